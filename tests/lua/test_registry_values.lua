-- Every op of the registry on all its calls: there is at least one, the example runs, float32 agrees with float64, and
-- results do not depend on the layout of the inputs, on running in place or on threads.
local t = require "tests.support"
local gradcheck = require "tests.gradcheck"
local cases = require "tests.ops.cases"
local driver = require "tests.ops.driver"
local pg = require "perigee"

local is_tensor, map, run = driver.is_tensor, driver.map, driver.run
local message = "^%S+:%d+: [%w_.]+: bad argument '.-' %(expected .+, got .+%)$"

t.test("every op with results has a call to test", function()
  local without = {}
  for _, name in ipairs(pg.testing.op_names(true)) do
    local row = pg.testing.op_row(name)
    if #row.outputs > 0 and #cases.of(row) == 0 then without[#without + 1] = name end
  end
  t.equal(without, {}, "ops without a call in tests/ops")
  t.equal(cases.strays(), {}, "calls of no op")
end)

for _, name in ipairs(pg.testing.op_names()) do
  t.test("example of " .. name, function()
    local example = pg.testing.op_row(name).example
    local chunk = assert(loadstring(example, "=example"))
    setfenv(chunk, setmetatable({pg = pg, require = require}, {__index = _G}))
    t.check(select("#", chunk()) > 0 and chunk() ~= nil, "nothing came back")
  end)
end

-- Every second element, stored with the last dim first and an offset: the same values in another layout.
local layouts = {
  gaps = function(x) return pg.stack({x, x}, -1):select(-1, 1) end,
  transposed = function(x) return x:dim() < 2 and x or x:transpose(1, -1):contiguous():transpose(1, -1) end,
  offset = function(x)
    if x:dim() == 0 or x:size(1) == 0 then return x end
    return pg.cat{x:narrow(1, 1, 1), x}:narrow(1, 2, x:size(1))
  end,
}

local function repeated(x)  -- the first row repeated, with stride 0
  if x:dim() == 0 or x:size(1) == 0 then return x end
  return x:narrow(1, 1, 1):expand(x.shape)
end

local function on_tensors(f, args) return map(function(x) return is_tensor(x) and f(x) or x end, args) end

-- Only the order of a sum may differ between layouts.
local function same(a, b, what) driver.same(a, b, what, {rtol = 1e-12, atol = 1e-12}) end

local function check_layouts(row, case)
  local plain = run(row, case)
  for name, f in pairs(layouts) do same(run(row, case, on_tensors(f, case.args)), plain, name) end
  local args = on_tensors(repeated, case.args)
  local packed = on_tensors(function(x) return x:contiguous() end, args)
  local ok, want = t.pcall(run, row, case, packed)
  local ok2, got = t.pcall(run, row, case, args)
  t.equal(ok2, ok, "expanded inputs: " .. tostring(ok and got or want))
  if ok then same(got, want, "expanded") end
end

local function check_float32(row, case)
  local plain = run(row, case)
  local narrow = run(row, case, map(function(x) return driver.is_double(x) and x:to("float32") or x end, case.args))
  t.equal(#narrow, #plain, "number of outputs")
  for k, y in ipairs(plain) do
    if is_tensor(y) then
      t.equal(narrow[k].shape, y.shape, "shape of float32 output " .. k)
      t.close(narrow[k]:to(y.dtype), y, {rtol = case.rtol or 2e-5, atol = 2e-6, what = "float32 output " .. k})
    end
  end
end

-- f() must return, or raise an error of the usual form.
local function returns_or_complains(f, what)
  local ok, e = t.pcall(f)
  if not ok and not tostring(e):find(message) then error(what .. ": " .. tostring(e), 0) end
  return ok and e or nil
end

-- Every dtype returns a result or raises an error that names the argument. Halves agree with float64 within their
-- precision.
local function check_dtypes(row, case)
  if row.effect then return end
  for _, dtype in ipairs{"float16", "bfloat16", "bool", "uint8", "int8", "int32", "int64"} do
    local half = dtype:find("float") ~= nil
    local function cast(x)
      if not driver.is_double(x) then return x end
      return (half and x or x:clamp(0, 100)):to(dtype)
    end
    local args = map(cast, case.args)
    local got = returns_or_complains(function() return run(row, case, args) end, dtype)
    if half and got and not row.random and not case.rounds then
      local want = run(row, case, map(function(x) return is_tensor(x) and x.dtype == dtype and x:to("float64") or x end, args))
      for k, y in ipairs(got) do
        if is_tensor(y) and y.dtype == dtype then
          t.close(y:to("float64"), want[k]:to("float64"), {rtol = 0.04, atol = 0.04, what = dtype .. " output " .. k})
        end
      end
    end
  end
end

local function check_degenerate(row, case)
  if row.hidden then return end  -- only rules call them, with valid dtypes
  local shapes = {
    ["0-dim"] = function(x) return x:dim() == 0 and x or (x:numel() > 0 and x:reshape{-1}:select(1, 1) or x) end,
    ["no rows"] = function(x) return x:dim() == 0 and x or x:narrow(1, 1, 0) end,
    ["no columns"] = function(x) return x:dim() == 0 and x or x:narrow(-1, 1, 0) end,
    ["a dim more"] = function(x) return x:unsqueeze(1) end,
    ["one dim"] = function(x) return x:reshape{-1} end,
  }
  for what, f in pairs(shapes) do
    local tensors = driver.tensors(case.args)
    local args = on_tensors(f, case.args)
    returns_or_complains(function() run(row, case, args) end, what)
    for k = 1, #tensors do  -- only one input
      local seen = 0
      local mixed = on_tensors(function(x) seen = seen + 1; return seen == k and f(x) or x end, case.args)
      returns_or_complains(function() run(row, case, mixed) end, what .. " of tensor " .. k)
    end
  end
end

local function first_dim(row, attrs)
  local out = {}
  for name, v in pairs(attrs or {}) do out[name] = v end
  for _, attr in ipairs(row.attrs) do if attr.name == "dim" then out.dim = attr.kind == "dims" and {1} or 1 end end
  return out
end

-- A 0-dim tensor along its dim 1 is a line of one element.
local function check_scalar_line(row, case)
  local attrs = first_dim(row, case.attrs)
  if row.hidden or not attrs.dim or #driver.tensors(case.args) ~= 1 or table.maxn(case.args) > 1 then return end
  local function along(x) return returns_or_complains(function() return run(row, {args = {x}, attrs = attrs}) end, "one element") end
  local scalar, line = along(pg.tensor(0.7)), along(pg.tensor{0.7})
  if not scalar or not line then return end
  for k, y in ipairs(scalar) do t.equal(y:reshape{-1}:totable(), line[k]:reshape{-1}:totable(), "0-dim output " .. k) end
end

local function in_place_method(row, x)
  if row.hidden or not is_tensor(x) then return end
  local ok, method = pcall(function() return x[row.name .. "_"] end)
  return ok and method or nil
end

local function check_in_place(row, case)
  local method = in_place_method(row, case.args[1])
  if not method then return end
  local want = run(row, case)
  local args = {unpack(case.args, 1, table.maxn(case.args))}
  local x = args[1]:clone()
  local others = driver.tensors(args)
  local witness, view = x:detach(), x:reshape{-1}
  others[#others + 1] = witness
  others[#others + 1] = view
  local before, own = driver.snapshot(others), driver.snapshot{x}
  args[1] = x
  if row.random then pg.manual_seed(7) end
  local ok, e = t.pcall(driver.call, method, args, case.attrs)
  t.equal(driver.changed(others, before), nil, "another tensor changed")
  if ok then
    t.check(rawequal(e[1], x), "the box itself comes back")
    return same({x}, want, "in place")
  end
  t.check(tostring(e):find(message), tostring(e))
  t.check(want[1].dtype ~= x.dtype or table.concat(want[1].shape, " ") ~= table.concat(x.shape, " "), tostring(e))
  t.equal(driver.changed({x}, own), nil, "the target changed")
end

driver.each(function(row, case, k)
  if case.values == false then return end  -- the elements are unspecified
  if t.mode == "gcstress" and k > 1 then return end  -- one call per op reaches every collection
  local label = row.name .. " " .. k
  local function test(what, f)
    t.test(label .. " " .. what, function()
      gradcheck.seed(k)
      local tensors = driver.tensors(case.args)
      local before = driver.snapshot(tensors)
      f(row, case)
      t.equal(driver.changed(tensors, before), nil, "an input changed")
    end)
  end
  test("layouts", check_layouts)
  if t.mode ~= "gcstress" then  -- mostly wrong calls, which leave no garbage
    if not row.random then test("in float32", check_float32) end
    test("dtypes", check_dtypes)
    test("degenerate shapes", check_degenerate)
  end
  test("a line of one", check_scalar_line)
  test("in place", check_in_place)
end)
