-- perigee bench: measures the functions that a script names.
local core = ...
local paths = core.require("tools.paths")
local measure = core.require("tools.measure")

local function text_of_time(seconds)
  if seconds < 1e-3 then return ("%.3g us"):format(seconds * 1e6) end
  if seconds < 1 then return ("%.3g ms"):format(seconds * 1e3) end
  return ("%.3g s"):format(seconds)
end

local function text_of_bytes(n)
  if n < 1e4 then return ("%.0f"):format(n) end
  if n < 1e7 then return ("%.1f K"):format(n / 1024) end
  return ("%.1f M"):format(n / 1024 ^ 2)
end

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
    if type(f) ~= "function" then core.arg_error("bench", "f", "a function", f) end
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

local row = "%-32s %10s %10s %8s %12s %12s\n"

local function print_row(name, f, seconds)
  local m = measure.functions({f}, {seconds = seconds})[1]
  local function time_at(share) return m.times[math.ceil(m.batches * share)] end
  local spread = 100 * (time_at(0.75) - time_at(0.25)) / m.median
  local lua, tensors = bytes_per_call(f)
  io.write(row:format(name, text_of_time(m.median), text_of_time(m.fastest), ("%.1f %%"):format(spread), text_of_bytes(lua),
    text_of_bytes(tensors)))
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
      if not found then io.write(row:format("benchmark", "median", "fastest", "spread", "Lua bytes", "tensor bytes")) end
      found = true
      print_row(case.name, case.run, options.seconds or 0.5)
    end
  end
  if not found then return nil, "bench: no name matches '" .. options.pattern .. "'" end
  return 0
end
