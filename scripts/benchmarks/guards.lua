-- Prints a table of the costs of hits and traces in Lua, as minima over passes. See cases/guards.lua.
-- build/perigee scripts/benchmarks/guards.lua [--budget=SECONDS] [--passes=N] [PATTERN]
local here = arg[0]:match("^(.*)/[^/]*$") or "."
package.path = here .. "/../../?.lua;" .. package.path
local json = require "tests.json"

local opts = {budget = 0.5, passes = 3, pattern = ""}
for _, a in ipairs(arg) do
  local k, v = a:match("^%-%-(%w+)=(.*)$")
  if k then opts[k] = tonumber(v) or v else opts.pattern = a end
end

local function quote(s) return "'" .. tostring(s):gsub("'", "'\\''") .. "'" end

local names, best = {}, {}
for _ = 1, opts.passes do
  local p = assert(io.popen(("%s %s --budget=%s %s"):format(quote(arg[-1]), quote(here .. "/bench.lua"), opts.budget,
    quote("^guards_.*" .. opts.pattern))))
  for line in p:lines() do
    local row = json.decode(line)
    local name = row.name:match("^guards_(.*)$")
    if row.error then io.stderr:write(name, ": ", row.error, "\n")
    else
      local known = best[name]
      if not known then
        known = {ns = row.ns, us = row.trace_us}
        best[name], names[#names + 1] = known, name
      end
      known.ns, known.us = math.min(known.ns, row.ns), math.min(known.us, row.trace_us)
    end
  end
  p:close()
end

print(("%-22s %12s %12s"):format("net", "ns a hit", "ms a trace"))
for _, name in ipairs(names) do print(("%-22s %12.0f %12.2f"):format(name, best[name].ns, best[name].us / 1000)) end
