-- Wrong calls of every op, generated from its row. Each must raise an error of the usual form that names the argument,
-- or return a correct result. No input changes, nothing large is allocated, and in-place variants keep their target.
local t = require "tests.support"
local cases = require "tests.ops.cases"
local driver = require "tests.ops.driver"
local visit_calls = require "tests.ops.mutations"
local with_limit = require "tests.ops.limit"
local bounded = require "tests.ops.bounded"
local pg = require "perigee"

t.skip_in("gcstress", "thousands of wrong calls, most of which run no op")

local position = t.device == "cpu" and "^%S+test_registry_errors%.lua:%d+" or "^%S+%.lua:%d+"  -- a late error has another
local form = position .. ": ([%w_.]+): bad argument '(.-)' %(expected .+, got .+%)$"

local function invoke(f, args, n, attrs)
  if not attrs then return bounded(t.pcall, function() return f(unpack(args, 1, n)), true end) end
  local all = {unpack(args, 1, n)}
  all[n + 1] = attrs
  return bounded(t.pcall, function() return f(unpack(all, 1, n + 1)), true end)
end

-- Returns a complaint about the outcome of a call, or nil.
local function judge(op, name, ok, e, must)
  if ok then return must and "answered" or nil end
  if type(e) ~= "string" then return "raised a " .. type(e) end
  local o, n = e:match(form)
  if not o then return (must or not e:find("out of memory: cannot allocate", 1, true)) and e or nil end
  if o ~= op and o ~= op .. "_" then return "named another op: " .. e end
  if must and name and n ~= name then return "named another argument: " .. e end
end

local function in_place_method(row, x)
  if row.hidden or not driver.is_tensor(x) then return end
  local ok, method = pcall(function() return x[row.name .. "_"] end)
  return ok and method or nil
end

-- The function of an op. pg.trace takes functions too: see pg.trace in stdlib/profile.lua.
local function function_of(row) return row.name == "trace" and pg.ones(1, 1).trace or pg[cases.field(row)] end

local function check(row, case)
  local tensors = driver.tensors(case.args)
  local before, complaints = driver.snapshot(tensors), {}
  local function complain(what, text)
    if text and #complaints < 6 then complaints[#complaints + 1] = what .. ": " .. text end
  end
  local method, target = in_place_method(row, case.args[1]), nil
  visit_calls(row, case, function(what, name, args, n, attrs, must)
    t.on_start(row.name .. " " .. what)
    local ok, e = invoke(function_of(row), args, n, attrs)
    complain(what, judge(row.public, name, ok, e, must))
    if driver.changed(tensors, before) then complain(what, "an input changed") end
    if not method or not rawequal(args[1], case.args[1]) then return end
    target = args[1]:clone()
    local shown = driver.snapshot{target}
    ok, e = invoke(method, {target, unpack(args, 2, n)}, n, attrs)
    complain("in place, " .. what, judge(row.public, nil, ok, e, must))
    local late = t.device ~= "cpu"  -- a write that fails late leaves no value
    if not ok and not late and driver.changed({target}, shown) then complain("in place, " .. what, "the target changed") end
  end)
  if #complaints > 0 then error(table.concat(complaints, "\n"), 0) end
end

driver.each(function(row, case, k)
  if row.hidden or k > 2 then return end
  t.test(row.name .. " " .. k, function() with_limit(2 ^ 27, check, row, case) end)
end)
