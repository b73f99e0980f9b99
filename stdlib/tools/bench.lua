-- perigee bench: measures the functions that a script names.
local core = ...
local paths = core.require("tools.paths")
local measure = core.require("tools.measure")
local units = core.require("support.units")

-- Returns the bytes of Lua and of tensors that a call of f leaves to the collector.
local function bytes_per_call(f)
  local calls = 10
  collectgarbage()
  collectgarbage("stop")
  local tensors = core.memory().live
  local lua = collectgarbage("count")
  for _ = 1, calls do f() end
  lua = collectgarbage("count") - lua
  tensors = core.memory().live - tensors
  collectgarbage("restart")
  return math.max(0, lua * 1024 / calls), math.max(0, tensors / calls)
end

-- Runs the script and returns the list of its functions, {name =, run =}, in the order of the calls of bench, then of
-- the names of the table that it returns.
local function collect(chunk, path)
  local list = {}
  local function bench(name, f)
    if type(name) ~= "string" then core.arg_error("bench", "name", "a string", name) end
    core.require("support.args").callable("bench", "f", f)
    list[#list + 1] = {name = name, run = f}
  end
  local result = chunk(bench)
  if type(result) == "function" then bench(path:match("([^/]*)%.lua$") or path, result) end
  local names = {}
  for name in pairs(type(result) == "table" and result or {}) do names[#names + 1] = name end
  table.sort(names, function(a, b) return tostring(a) < tostring(b) end)
  for _, name in ipairs(names) do bench(name, result[name]) end
  return list
end

-- Writes a name and texts in columns of 12 behind it.
local function write_row(name, ...)
  io.write(name, (" "):rep(32 - units.width(name)))
  for _, text in ipairs{...} do io.write((" "):rep(12 - units.width(text)), text) end
  io.write("\n")
end

local function print_row(name, f, seconds)
  local m = measure.functions({f}, {seconds = seconds})[1]
  local function time_at(share) return m.times[math.ceil(m.batches * share)] end
  local spread = 100 * (time_at(0.75) - time_at(0.25)) / m.median
  local lua, tensors = bytes_per_call(f)
  write_row(name, units.seconds(m.median), units.seconds(m.fastest), ("%.1f %%"):format(spread), units.bytes(lua), units.bytes(tensors))
  io.flush()
end

return function(words, options)
  local path = words[1]
  local chunk, why = paths.load(path)
  if not chunk then return nil, why end
  _G.arg = {[0] = path}
  local list = collect(chunk, path)
  if #list == 0 then return nil, "bench: " .. path .. " names no function (perigee bench -h shows how)" end
  local found = false
  for _, case in ipairs(list) do
    if not options.pattern or case.name:find(options.pattern) then
      if not found then write_row("benchmark", "median", "fastest", "spread", "Lua", "tensors") end
      found = true
      print_row(case.name, case.run, options.seconds or 0.5)
    end
  end
  if not found then return nil, "bench: no name matches '" .. options.pattern .. "'" end
  return 0
end
