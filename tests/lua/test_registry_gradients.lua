-- Derivatives of every differentiable op against central differences: gradient and jvp, then the second gradient.
local t = require "tests.support"
local pg = require "perigee"
local gradcheck = require "tests.gradcheck"
local driver = require "tests.ops.driver"

t.skip_in("gcstress", "central differences do not depend on collections")

local function symmetric(x) return (x + x:transpose(-1, -2)) / 2 end

-- Every float64 tensor of the call varies except those in case.fixed.
local function check_derivatives(row, case)
  local inputs, fixed = {}, {}
  for _, x in ipairs(case.fixed or {}) do fixed[x] = true end
  local function varies(x) return driver.is_double(x) and not fixed[x] end
  driver.map(function(x) if varies(x) then inputs[#inputs + 1] = x end end, case.args)
  if #inputs == 0 then return end
  local function f(list)
    local k = 0
    local out = driver.run(row, case, driver.map(function(x)
      if not varies(x) then return x end
      k = k + 1
      return case.symmetric and symmetric(list[k]) or list[k]
    end, case.args))
    return {unpack(out, 1, case.outputs or #out)}  -- the differentiable ones come first
  end
  gradcheck.check(f, inputs, {order = case.order})
end

local function is_float(x) return driver.is_tensor(x) and x.dtype:find("float") end
local function leaf_of(x) return is_float(x) and x:detach():attach_grad() or x end

local function check_results(row, case, args)
  args = driver.map(leaf_of, args)
  local ok, results = pcall(pg.record, function() return driver.run(row, case, args) end)
  for i, y in ipairs(ok and results or {}) do t.check(not is_float(y) or y.grad == nil, row.name .. ": result " .. i) end
end

-- Many ops return what they get for some arguments: the cases, and other shapes with and without the attributes.
t.test("no result of an op is a leaf", function()
  local shapes, done = {{}, {1}, {3}, {0}, {1, 1}, {2, 0}, {2, 3}, {1, 1, 1}, {1, 2, 3, 2}}, {}
  driver.each(function(row, case)
    check_results(row, case, case.args)
    if done[row.name] or not is_float(case.args[1]) then return end
    done[row.name] = true
    local args = {unpack(case.args, 1, table.maxn(case.args))}
    for _, shape in ipairs(shapes) do
      args[1] = pg.ones(shape)
      for _, call in ipairs{case, {}} do
        check_results(row, call, args)
        check_results(row, call, {args[1]})
      end
    end
  end)
end)

t.test("what an op returns as it is has a gradient of its own", function()
  local function check(name, x, ...)
    local leaf = x:clone():attach_grad()
    local rest = {...}
    local same = pg.record(function() return pg[name](leaf, unpack(rest)) end)
    t.equal(same:totable(), leaf:totable(), name)
    t.check(same.requires_grad and same.grad == nil and pg[name](leaf, ...).grad == nil, name)
    local function f(w)
      local y = pg[name](w, unpack(rest))
      local before = pg.autograd.grad((y * 2 + w):sum(), {y}, {retain_graph = true})[1]
      y:mul_(3)
      return (y * y):sum() + w:sum(), before
    end
    for form, run in pairs{eager = f, jit = pg.jit(f)} do
      leaf.grad = nil
      local loss, before = pg.record(function() return run(leaf) end)
      loss:backward()
      t.equal(leaf.grad, x * 18 + 1, name .. " " .. form)
      t.equal(before, pg.full(x.shape, 2), name .. " " .. form)
    end
  end
  check("ravel", pg.ones(3))
  check("atleast_1d", pg.ones(1))
  check("atleast_2d", pg.ones(2, 2))
  check("atleast_3d", pg.ones(2, 2, 1))
  check("unflatten", pg.ones(3), 1, {3})
  check("diff", pg.ones(3), {n = 0})
  check("diff", pg.ones(0))
  check("rot90", pg.ones(2, 2):t(), 4)
  check("adaptive_avg_pool", pg.ones(1, 2, 2), {2})
  check("dropout", pg.ones(2), 0)
  check("tile", pg.ones(2), {1})
  local leaf = pg.ones(3):attach_grad()
  for _, key in ipairs{{}, {{}}, {{1, 3}}} do
    local y, loss = pg.record(function() local y = leaf[key] return y, (y * 2 + leaf):sum() end)
    t.check(y.requires_grad and y.grad == nil and leaf[key].grad == nil)
    t.equal(pg.autograd.grad(loss, {y})[1], pg.full({3}, 2))
  end
end)

driver.each(function(row, case, k)
  if not row.differentiable or case.order == 0 then return end
  t.test(row.name .. " " .. k, function()
    gradcheck.seed(k)
    check_derivatives(row, case)
  end)
end)
