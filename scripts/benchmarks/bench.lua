-- Measures the cases of cases/*.lua, each in its own process. A file returns one case or an array of cases:
-- {name =, setup = function(pg) return fn, opts end}; opts.scale: the units of work in one call of fn; opts.inner: the
-- calls per block. variant = "hybrid" or "jit" computes the same result in another way; the table shows the variants of
-- one name in one row. A case with `measure = function(env)` measures itself and returns {us_min =, us_median =, n =,
-- …}, or a list of these with names. A block is about 20 ms of calls. Minimum and median are those of the blocks of one
-- budget. --device=cuda makes tensors there by default; a block then ends when the device has finished its work.
local ffi = require "ffi"
ffi.cdef "struct pg_bench_time { long s, ns; }; int clock_gettime(int, struct pg_bench_time *);"
local stamp = ffi.new("struct pg_bench_time")
local function now()
  ffi.C.clock_gettime(1, stamp)
  return tonumber(stamp.s) * 1e6 + tonumber(stamp.ns) * 1e-3
end

local here = arg[0]:match("^(.*)/[^/]*$") or "."
local program = arg[-1]
local opts = {threads = 1, budget = 0.8}
for _, a in ipairs(arg) do
  local k, v = a:match("^%-%-(%w+)=(.*)$")
  if k then opts[k] = tonumber(v) or v elseif a ~= "" then opts.pattern = a end
end

local function quote(s) return "'" .. tostring(s):gsub("'", "'\\''") .. "'" end

local function load_cases()
  local p, cases = assert(io.popen("ls " .. quote(here) .. "/cases/*.lua")), {}
  for path in p:lines() do
    local c = dofile(path)
    for _, case in ipairs(c.name and {c} or c) do cases[#cases + 1] = case end
  end
  p:close()
  return cases
end

local function median(list)
  table.sort(list)
  local m = #list / 2
  return #list % 2 == 1 and list[m + 0.5] or (list[m] + list[m + 1]) / 2
end

local finish = function() end

local function block(f, n)
  local t = now()
  for _ = 1, n do f() end
  finish()
  return (now() - t) / n
end

local function time(f, o)
  local scale, budget = o.scale or 1, opts.budget * 1e6
  local est, start = block(f, 1), now()
  repeat est = math.min(est, block(f, 1)) until now() - start > math.min(0.25e6, budget / 4)
  local n = o.inner or math.max(1, math.min(100000, math.floor(20000 / math.max(est, 0.05))))
  block(f, n)
  local times = {}
  start = now()
  repeat times[#times + 1] = block(f, n)
  until #times >= 5 and now() - start > budget or #times >= 400
  for i, v in ipairs(times) do times[i] = v / scale end
  return {us_min = math.min(unpack(times)), us_median = median(times), n = n * #times * scale}
end

local function json(row)
  local keys, parts = {}, {}
  for k in pairs(row) do keys[#keys + 1] = k end
  local rank = {name = 1, variant = 2, us_min = 3, us_median = 4, n = 5, threads = 6}
  table.sort(keys, function(a, b)
    local x, y = rank[a] or 9, rank[b] or 9
    if x ~= y then return x < y end
    return a < b
  end)
  for i, k in ipairs(keys) do
    local v = row[k]
    if type(v) == "number" then v = v == math.floor(v) and string.format("%d", v) or string.format("%.4g", v)
    else v = '"' .. tostring(v):gsub('[\\"]', "\\%0"):gsub("%c", " ") .. '"' end
    parts[i] = string.format('"%s": %s', k, v)
  end
  return "{" .. table.concat(parts, ", ") .. "}"
end

-- Returns a value of /proc/self/status in MB.
local function status(key)
  for line in io.lines("/proc/self/status") do
    local kb = line:match("^" .. key .. ":%s+(%d+)")
    if kb then return tonumber(kb) / 1024 end
  end
end

local function reset_peak()
  local f = io.open("/proc/self/clear_refs", "w")
  if not f then return end
  f:write("5")
  f:close()
end

local function run(case)
  if case.measure then
    return case.measure({program = program, now = now, median = median, quote = quote, here = here, budget = opts.budget,
                         threads = opts.threads, status = status, reset_peak = reset_peak})
  end
  local pg = require "perigee"
  pg.set_num_threads(opts.threads)
  if opts.device then
    pg.testing.default_device(opts.device)
    finish = function() pg.synchronize(opts.device) end
  end
  reset_peak()
  local rss = status("VmRSS")
  local f, o = case.setup(pg)
  local row = time(f, o or {})
  row.peak_rss_delta_mb = status("VmHWM") - rss
  return row
end

local function id_of(case) return case.name .. (case.variant and "/" .. case.variant or "") end

local function print_rows(case, ok, result)
  if not ok then result = {error = result} end
  for _, row in ipairs(result[1] and result or {result}) do
    row.name, row.variant, row.threads = row.name or case.name, row.variant or case.variant, opts.threads
    print(json(row))
  end
end

-- The other cases are garbage when a case is measured: the collector's work depends on what is alive.
local function chosen()
  for _, case in ipairs(load_cases()) do
    if opts.case == id_of(case) then return case end
  end
end

if opts.case then
  local case = chosen()
  collectgarbage()
  print_rows(case, pcall(run, case))
  return
end
for _, case in ipairs(load_cases()) do
  if not opts.pattern or id_of(case):find(opts.pattern) then
    io.stdout:flush()
    os.execute(string.format("OMP_NUM_THREADS=%d %s %s --case=%s --threads=%d --budget=%s%s", opts.threads, quote(program),
                             quote(arg[0]), quote(id_of(case)), opts.threads, opts.budget,
                             opts.device and " --device=" .. quote(opts.device) or ""))
  end
end
