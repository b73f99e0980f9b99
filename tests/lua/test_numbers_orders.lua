-- Second gradients of functions whose first gradient does not depend on the argument.
local pg = require "perigee"
local t = require "tests.support"

local steps = {
  relu = {}, abs = {}, relu6 = {}, leaky_relu = {0.1}, hardtanh = {}, softshrink = {}, hardshrink = {}, threshold = {0.5, -1},
  nan_to_num = {}, clamp = {-1, 1}, hardsigmoid = {}, neg = {}, sum = {}, median = {}, quantile = {0.3}, amax = {}, floor = {},
}
for _, name in ipairs{"fmax", "fmin", "maximum", "minimum", "add", "sub"} do steps[name] = {pg.tensor{0.3, -4, 2}} end

local function second(f, x)
  return pg.record(function()
    local first = pg.autograd.grad(f(x):sum(), x, {create_graph = true})
    return pg.autograd.grad(first:sum(), x)
  end)
end

for name, args in pairs(steps) do
  t.test("the second gradient of " .. name .. " is 0", function()
    local x = pg.tensor{0.5, -3, 7}:attach_grad()
    local function f(v) return v[name](v, unpack(args)) end
    t.equal(second(f, x):totable(), {0, 0, 0})
    t.equal(second(pg.jit(f), x):totable(), {0, 0, 0})
    local both = pg.jit(function(v) return pg.autograd.grad(pg.autograd.grad(f(v):sum(), v, {create_graph = true}):sum(), v) end)
    t.equal(pg.record(function() return both(x) end):totable(), {0, 0, 0})
  end)
end

t.test("a constant gradient is one for backward, too", function()
  local x = pg.tensor{0.5, -3}:attach_grad()
  pg.record(function()
    (x * 2):sum():backward{create_graph = true}
    local first = x.grad * 1
    t.equal(first:totable(), {2, 2})
    x.grad = nil
    ;(first * x):sum():backward()
  end)
  t.equal(x.grad:totable(), {2, 2})
end)
