-- Pointwise ops about NaN, infinities, zero and integers, and the joins hstack, vstack, dstack: PyTorch's values.
local t = require "tests.support"
local pg = require "perigee"

local function int(list, dtype) return pg.tensor(list, {dtype = dtype or "int64"}) end
local inf, nan = math.huge, 0 / 0

local function same(x, want)
  t.equal(x:numel(), #want)
  for k, v in ipairs(want) do
    local got = x[k]:item()
    t.check(got == v or (got ~= got and v ~= v), ("element %d: %s, not %s"):format(k, tostring(got), tostring(v)))
  end
end

t.test("nan_to_num", function()
  local x = pg.tensor({nan, inf, -inf, 1})
  same(x:nan_to_num(), {0, 3.4028234663852886e38, -3.4028234663852886e38, 1})
  same(x:half():nan_to_num(), {0, 65504, -65504, 1})
  same(x:bfloat16():nan_to_num(), {0, 3.3895313892515355e38, -3.3895313892515355e38, 1})
  same(x:double():nan_to_num(), {0, 1.7976931348623157e308, -1.7976931348623157e308, 1})
  same(x:nan_to_num(inf, 1, 2), {inf, 1, 2, 1})
  same(x:nan_to_num{neginf = -5}, {0, 3.4028234663852886e38, -5, 1})
  same(int({1, 2}):nan_to_num(0.5), {1, 2})
  t.equal(int({1}):nan_to_num(0.5).dtype, "int64")
  same(pg.tensor({true}):nan_to_num(), {true})
  local y = pg.tensor({nan, inf, 2}):attach_grad()
  pg.record(function() return y:nan_to_num():sum() end):backward()
  same(y.grad, {0, 0, 1})
  local z = x:clone()
  t.check(rawequal(z:nan_to_num_(7), z))
  t.equal(z[1]:item(), 7)
end)

t.test("isclose", function()
  same(pg.tensor({1, nan, inf, inf, -inf}):isclose(pg.tensor({1 + 1e-9, nan, inf, -inf, 1e38})), {true, false, true, false, false})
  same(pg.tensor({nan, 1}):isclose(pg.tensor({nan, nan}), {equal_nan = true}), {true, false})
  same(int({100000, 5}):isclose(int({100001, 6})), {true, false})
  same(int({2 ^ 53}):isclose(int({-2 ^ 53})), {false})
  same(pg.tensor({true, false}):isclose(pg.tensor({true, true})), {true, false})
  same(pg.tensor({1, 3}):isclose(1), {true, false})
  same(pg.tensor({1, 1.05}):half():isclose(pg.tensor({1.0009765625, 1}):half(), {rtol = 1e-2}), {true, false})
  t.error_contains(function() pg.ones(1):isclose(1, {rtol = -1}) end, "isclose: bad argument 'rtol'")
end)

t.test("fmax, fmin, heaviside, frac", function()
  same(pg.tensor({1, nan, nan, 0}):fmax(pg.tensor({nan, 2, nan, -1})), {1, 2, nan, 0})
  same(pg.tensor({1, nan, nan, 0}):fmin(pg.tensor({nan, 2, nan, -1})), {1, 2, nan, -1})
  same(int({1, 5}):fmax(3), {3, 5})
  same(pg.tensor({nan, 0, -1, 1, inf}):heaviside(pg.tensor({2, 3, 4, 5, 6})), {0, 3, 0, 1, 1})
  same(int({-1, 0, 7}):heaviside(2), {0, 2, 1})
  same(pg.tensor({inf, -inf, nan, -1.5, 2.25}):frac(), {nan, nan, nan, -0.5, 0.25})
  t.error_contains(function() int({1}):frac() end, "frac: bad argument 'x'")
  local x, y = pg.tensor({1, nan, 2}):attach_grad(), pg.tensor({1, 2, nan}):attach_grad()
  pg.record(function() return x:fmax(y):sum() end):backward()
  same(x.grad, {0.5, 0, 1})
  same(y.grad, {0.5, 1, 0})
end)

t.test("logit and xlogy", function()
  same(pg.tensor({0, 1, -1, 2, 0.5, nan}):logit(), {-inf, inf, nan, nan, 0, nan})
  t.close(pg.tensor({0, 1, -1, 2, 0.5}):logit(0.1), pg.tensor({-2.1972246, 2.1972246, -2.1972246, 2.1972246, 0}))
  t.equal(int({0, 1}):logit().dtype, "float32")
  same(pg.tensor({0, 0, 0, 1, 0}):xlogy(pg.tensor({0, nan, -1, 0, inf})), {0, nan, 0, -inf, 0})
  t.close(pg.xlogy(2, pg.tensor({3})), pg.tensor({2.1972246}))
  local x = pg.tensor({0, 0.25, 2, 1}):attach_grad()
  pg.record(function() return x:logit():sum() end):backward()
  t.close(x.grad, pg.tensor({inf, 16 / 3, nan, inf}), {equal_nan = true})
  pg.record(function() return x:logit(0.1):sum() end):backward()
  t.close(x.grad, pg.tensor({0, 16 / 3, 0, 0}))
  local a, b = pg.tensor({0, 2}):attach_grad(), pg.tensor({0, 4}):attach_grad()
  pg.record(function() return a:xlogy(b):sum() end):backward()
  t.close(a.grad, pg.tensor({0, math.log(4)}))
  t.equal(b.grad[2]:item(), 0.5)
end)

-- Checks the gradients of f(…):sum() with respect to tensors of these lists, eagerly and in a graph.
local function gradients(f, lists, want)
  for _, g in ipairs{f, pg.jit(f)} do
    local xs = {}
    for i, list in ipairs(lists) do xs[i] = pg.tensor(list):attach_grad() end
    pg.record(function() return (g(unpack(xs))):sum() end):backward()
    for i, x in ipairs(xs) do same(x.grad:reshape{-1}, want[i]) end
  end
end

-- What the op returned gets the gradient, so NaN does too: a gradient of 0 would hide it.
t.test("gradients where an element is NaN are PyTorch's", function()
  local a, b = {nan, 1, nan, 2, 2, inf, -inf}, {1, nan, nan, 2, 3, inf, -inf}
  gradients(pg.maximum, {a, b}, {{1, 1, 1, 0.5, 0, 0.5, 0.5}, {1, 1, 1, 0.5, 1, 0.5, 0.5}})
  gradients(pg.minimum, {a, b}, {{1, 1, 1, 0.5, 1, 0.5, 0.5}, {1, 1, 1, 0.5, 0, 0.5, 0.5}})
  gradients(pg.fmax, {a, b}, {{0, 1, 1, 0.5, 0, 0.5, 0.5}, {1, 0, 0, 0.5, 1, 0.5, 0.5}})
  gradients(pg.fmin, {a, b}, {{0, 1, 1, 0.5, 1, 0.5, 0.5}, {1, 0, 0, 0.5, 0, 0.5, 0.5}})
  gradients(function(x) return x:maximum(0) end, {{nan, -1, 0, 1}}, {{1, 0, 0.5, 1}})
  gradients(function(x) return pg.minimum(nan, x) end, {{nan, -1}}, {{1, 1}})
  local x = {nan, -1, -0.0, 0, 1, 6, inf, -inf}
  gradients(function(v) return v:clamp(-1, 1) end, {x}, {{0, 1, 1, 1, 1, 0, 0, 0}})
  gradients(function(v) return v:clamp{min = 0} end, {x}, {{0, 0, 1, 1, 1, 1, 1, 0}})
  gradients(function(v) return v:clamp{max = 0} end, {x}, {{0, 1, 1, 1, 0, 0, 0, 1}})
  gradients(function(v) return v:clamp{min = nan} end, {{nan, 1}}, {{0, 0}})
  local low, high = {0, nan, nan, 2, 0, 2}, {2, 2, nan, 1, nan, 3}
  gradients(function(v, l) return v:clamp{min = l} end, {{nan, 1, nan, 1, 1, 1}, low}, {{1, 1, 1, 0, 1, 0}, {1, 1, 1, 1, 0, 1}})
  gradients(function(v, h) return v:clamp{max = h} end, {{nan, 1, nan, 0, 1, 4}, high}, {{1, 1, 1, 1, 1, 0}, {1, 0, 1, 0, 1, 1}})
  gradients(function(v, l, h) return v:clamp(l, h) end, {{nan, 1, nan, 1, 1, 1}, low, high},
            {{1, 1, 1, 0, 1, 0}, {0, 0, 0, 0, 0, 1}, {0, 0, 0, 1, 0, 0}})
  gradients(pg.relu, {x}, {{1, 0, 0, 0, 1, 1, 1, 0}})
  gradients(pg.relu6, {x}, {{1, 0, 0, 0, 1, 0, 0, 0}})
  gradients(pg.hardtanh, {x}, {{1, 0, 1, 1, 0, 0, 0, 0}})
  gradients(pg.leaky_relu, {{nan, 1}}, {{pg.tensor(0.01):item(), 1}})
  gradients(pg.elu, {{nan, 1, 0, -inf}}, {{1, 1, 1, 0}})
  gradients(pg.celu, {{nan, 1, 0, -inf}}, {{1, 1, 1, 0}})
  local scale = pg.tensor(1.0507009873554805):item()
  gradients(pg.selu, {{nan, 1, -inf}}, {{scale, scale, 0}})
  gradients(pg.hardsigmoid, {{nan, 4}}, {{0, 0}})
  for _, extreme in ipairs{"max", "min"} do
    gradients(function(v) return (v[extreme](v)) end, {{1, nan, 2, nan}}, {{0, 0.5, 0, 0.5}})
    gradients(function(v) return (v[extreme](v, 1)) end, {{1, nan, 2, nan}}, {{0, 1, 0, 0}})
    gradients(function(v) return v["a" .. extreme](v, 2) end, {{{1, nan}, {2, 2}}}, {{nan, nan, 0.5, 0.5}})
  end
  gradients(function(v) return v:max_pool1d(2) end, {{{{1, nan, 2, 3, nan, nan}}}}, {{0, 1, 0, 1, 0, 1}})
  local at = int{1, 1, 2, 2, 3}
  gradients(function(v, s) return v:scatter_reduce(1, at, s, "amax") end, {{0, 0, nan}, {1, 2, nan, 4, 5}},
            {{0, nan, nan}, {0, 1, nan, nan, nan}})
  gradients(function(v, s) return v:scatter_reduce(1, at, s, "amin", {include_self = false}) end, {{0, 0, nan}, {1, 2, nan, 4, 5}},
            {{0, 0, 0}, {1, 0, nan, nan, 1}})
end)

t.test("gcd, lcm and shifts", function()
  same(int({-4, 6, 0, 12}):gcd(int({6, -9, 0, 8})), {2, 3, 0, 4})
  same(int({-4, 6, 0, -128}, "int8"):lcm(int({6, -9, 0, 3}, "int8")), {12, 18, 0, -128})
  same(int({-128}, "int8"):gcd(0), {-128})
  same(int({250}, "uint8"):gcd(100), {50})
  same(int({1, -1, -8, 3}):bitwise_left_shift(int({64, -1, 2, 2})), {0, 0, -32, 12})
  same(int({1, -1, -8, 13}):bitwise_right_shift(int({64, -1, 2, 2})), {0, -1, -2, 3})
  same(int({200}, "uint8"):bitwise_right_shift(8), {0})
  same(int({200}, "uint8"):bitwise_left_shift(1), {144})
  for _, op in ipairs{"gcd", "lcm", "bitwise_left_shift", "bitwise_right_shift"} do
    t.error_contains(function() pg[op](pg.ones(1), 2) end, op .. ": bad argument 'x' (expected a tensor of an integer dtype")
    t.error_contains(function() pg[op](pg.tensor({true}), pg.tensor({true})) end, op .. ": bad argument 'x'")
    t.error_contains(function() pg[op](int({1}), 1.5) end, op .. ": bad argument 'y' (expected a whole number")
  end
end)

t.test("trunc_divide", function()
  same(int({7, -7, -128}, "int8"):trunc_divide(int({2, 2, -1}, "int8")), {3, -3, -128})
  same(pg.tensor({7.5, -7.5}):trunc_divide(2), {3, -3})
  t.error_contains(function() int({1}):trunc_divide(0) end, "trunc_divide: bad argument 'y'")
end)

t.test("hstack, vstack, dstack", function()
  t.equal(pg.hstack{pg.tensor(1), pg.tensor({2, 3})}:totable(), {1, 2, 3})
  t.equal(pg.hstack{int({{1}, {2}}), int({{2}, {3}})}:totable(), {{1, 2}, {2, 3}})
  t.equal(pg.vstack{pg.tensor(1), pg.tensor({2})}:totable(), {{1}, {2}})
  t.equal(pg.vstack(pg.tensor({1, 2}), pg.tensor({3, 4})):totable(), {{1, 2}, {3, 4}})
  t.equal(pg.dstack{pg.tensor({1, 2}), pg.tensor({3, 4})}:totable(), {{{1, 3}, {2, 4}}})
  t.equal(pg.dstack{pg.zeros(1, 2), pg.zeros(1, 2)}.shape, {1, 2, 2})
  t.equal(pg.hstack{pg.ones(2), int({1})}.dtype, "float32")
  t.error_contains(function() pg.hstack{} end, "hstack: bad argument 'tensors' (expected at least one tensor, got none)")
  t.error_contains(function() pg.vstack{pg.ones(2), pg.ones(3)} end, "vstack: bad argument 'tensors' (expected sizes like the first but for dim 1, 2, got float32 3")
  t.error_contains(function() pg.hstack{pg.ones(2), pg.ones(2, 2)} end, "hstack: bad argument 'tensors' (expected as many dims as the first, 2")
end)

t.test("unflatten", function()
  t.equal(pg.range(1, 4):view(1, 4):unflatten(2, {2, -1}):totable(), {{{1, 2}, {3, 4}}})
  t.equal(pg.zeros(2, 0):unflatten(2, {0, 3}).shape, {2, 0, 3})
  t.equal(pg.zeros(2, 6):unflatten(-1, 3, 2).shape, {2, 3, 2})
  t.error_contains(function() pg.zeros(1, 4):unflatten(2, {3, -1}) end, "unflatten: bad argument 'sizes' (expected sizes with the product 4, that of dim 2")
  t.error_contains(function() pg.tensor(3):unflatten(1, {1}) end, "unflatten: bad argument 'x' (expected at least 1 dim")
  t.error_contains(function() pg.zeros(2, 0):unflatten(2, {0, -1}) end, "unflatten: bad argument 'sizes'")
  t.error_contains(function() pg.zeros(4):unflatten(1, {}) end, "unflatten: bad argument 'sizes'")
end)

t.test("the gradient of logsumexp in 16 bits is softmax", function()
  local x = pg.tensor{{200, 201, 199}, {100.5, 100, 99}}
  for dtype, tolerance in pairs{bfloat16 = 0.01, float16 = 0.002} do
    for _, dims in ipairs{2, -1} do
      local gradient = pg.grad(function(v) return v:logsumexp(dims):sum() end)(x:to(dtype))
      t.close(gradient:to("float32"), x:softmax(2), {rtol = tolerance})
    end
    local both = pg.grad(function(v) return v:logsumexp({1, 2}):sum() end)(x:to(dtype))
    t.close(both:to("float32"):sum():item(), 1, {rtol = tolerance})
  end
end)

t.test("gradients of atan2 where squares underflow or overflow", function()
  local function slopes(y, x, dtype)
    local a, b = pg.tensor({y}, {dtype = dtype}), pg.tensor({x}, {dtype = dtype})
    local gy = pg.grad(function(v) return pg.atan2(v, b):sum() end)(a):item()
    local gx = pg.grad(function(v) return pg.atan2(a, v):sum() end)(b):item()
    return {gy, gx}
  end
  t.close(slopes(0, 1e-25, "float32"), {1e25, 0}, {rtol = 1e-5})
  t.close(slopes(3e25, 4e25, "float32"), {4 / 25 * 1e-25, -3 / 25 * 1e-25}, {rtol = 1e-5, atol = 0})
  t.close(slopes(0, 1e-300, "float64"), {1e300, 0}, {rtol = 1e-12})
  t.close(slopes(3e200, 4e200, "float64"), {4 / 25 * 1e-200, -3 / 25 * 1e-200}, {rtol = 1e-12, atol = 0})
  t.equal(slopes(0, 0, "float32"), {0, 0})
end)

t.test("functions that are 0 at 0 keep the sign of zero in every float dtype", function()
  local names = {"expm1", "log1p", "sin", "tan", "asin", "atan", "sinh", "tanh", "asinh", "atanh", "erf", "erfinv", "floor", "ceil",
    "round", "trunc", "sqrt", "leaky_relu", "elu", "selu", "celu", "gelu", "silu", "mish", "hardswish", "hardtanh", "softsign"}
  for _, dtype in ipairs{"float64", "float32", "float16", "bfloat16"} do
    for _, n in ipairs{1, 37} do
      local zero = pg.zeros(n, {dtype = dtype})
      local function check(name, op)
        local where = ("%s of %d %s"):format(name, n, dtype)
        t.check(op(zero):reciprocal():eq(inf):all():item(), where .. ": 0")
        t.check(op(-zero):reciprocal():eq(-inf):all():item(), where .. ": -0")
      end
      for _, name in ipairs(names) do check(name, pg[name]) end
      check("gelu's tanh form", function(x) return x:gelu{approximate = "tanh"} end)
    end
  end
end)
