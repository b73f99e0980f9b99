-- Values and gradients at the edges of the dtypes, compared with the same computed in a wider dtype.
local pg = require "perigee"
local t = require "tests.support"

local function gradient(f, ...)
  local args = {}
  for i = 1, select("#", ...) do args[i] = select(i, ...):detach():attach_grad() end
  pg.record(function() return f(unpack(args)):sum() end):backward()
  local grads = {}
  for i, x in ipairs(args) do grads[i] = x.grad end
  return unpack(grads)
end

-- The largest difference of x from `exact`, which is float64, in units of the spacing of x's dtype there.
local digits = {float16 = 2 ^ -10, bfloat16 = 2 ^ -7, float32 = 2 ^ -23}
local function units(x, exact)
  return ((x:to("float64") - exact):abs() / (exact:abs() * digits[x.dtype] + 1e-7)):max():item()
end

t.test("an integer exponent with a floating base is a floating power", function()
  local e = pg.tensor({-1, 2}, {dtype = "int8"})
  t.check((pg.tensor{2, 3} ^ e):equal(pg.tensor{0.5, 9}))
  t.check((2.5 ^ e):allclose(pg.tensor{0.4, 6.25}))
  local jit = pg.jit(function(x, n) return (x ^ n) * 1 end)
  t.check(jit(pg.tensor{2, 3}, e):equal(pg.tensor{0.5, 9}))
  t.error_contains(function() return pg.tensor({2}, {dtype = "int32"}) ^ pg.tensor({-1}, {dtype = "int32"}) end, "exponents of at least 0")
  t.check(gradient(function(x) return x ^ e end, pg.tensor{2, 3}):equal(pg.tensor{-0.25, 6}))
end)

t.test("gradients of mixed dtypes are computed in the dtype of the result", function()
  local small = pg.tensor({200}, {dtype = "uint8"})
  t.check(gradient(function(y) return y:atan2(small) end, pg.tensor{2}):allclose(pg.tensor{200 / 40004}))
  t.check(gradient(function(y) return y:hypot(small) end, pg.tensor{150}):allclose(pg.tensor{0.6}))
end)

t.test("the gradient of atan2 at the origin is 0 at every order", function()
  local y, x = pg.tensor{0, 1}:attach_grad(), pg.tensor{0, 1}:attach_grad()
  local first
  pg.record(function()
    first = pg.autograd.grad({pg.atan2(y, x):sum()}, {y}, {create_graph = true})[1]
    return first:sum()
  end):backward()
  t.check(first:detach():allclose(pg.tensor{0, 0.5}))
  t.check(x.grad:isfinite():all():item() and y.grad:isfinite():all():item())
end)

t.test("variances of numbers with a large mean", function()
  for _, mean in ipairs{0, 1e4, 1e6} do
    local x = pg.randn(1000, 6) + mean
    local exact = x:to("float64"):var(1)
    t.check(units(x:var(1), exact) < 8, "columns")
    t.check(units(x:t():contiguous():var(2), exact) < 8, "rows")
    t.check(units(x:std(1), exact:sqrt()) < 8, "std")
  end
  t.check(pg.tensor{1, math.huge, 2}:var():isnan():item())
end)

local sample = pg.randn(40, 40) * 3
local composites = {
  norm = function(x) return x:norm{dim = 1} end,
  std = function(x) return x:std(1) end,
  mse_loss = function(x) return x:mse_loss(x * 0) end,
  bce = function(x) return pg.binary_cross_entropy_with_logits(x, pg.ones_like(x)) end,
  attention = function(x) return pg.scaled_dot_product_attention(x, x, x) end,
  addmm = function(x) return pg.addmm(x, x, x, {beta = 0.5, alpha = 0.3}) end,
  cross_entropy = function(x) return x:cross_entropy(pg.range(1, 40):to("int64")) end,
}
for name, f in pairs(composites) do
  t.test(name .. " in half precision rounds once", function()
    for _, dtype in ipairs{"float16", "bfloat16"} do
      local h = sample:to(dtype)
      local y = f(h)
      t.check(y.dtype == dtype)
      t.check(y:equal(f(h:to("float32")):to(dtype)), dtype)
      t.check(pg.jit(f)(h):allclose(y, {rtol = 0.01}), "traced")
    end
  end)
end
t.test("the norm of many float16 numbers does not overflow on the way", function()
  t.check(pg.full({10000}, 10, {dtype = "float16"}):norm():item() == 1000)
end)

for _, name in ipairs{"celu", "elu", "selu", "gelu", "silu", "mish", "asinh", "softplus", "logsigmoid", "sin", "atan", "log1p"} do
  t.test("the derivative of " .. name .. " in half precision rounds once", function()
    local input = name == "log1p" and sample:abs() or sample
    for _, dtype in ipairs{"float16", "bfloat16"} do
      local h = input:to(dtype)
      t.check(gradient(pg[name], h):equal(gradient(pg[name], h:to("float32")):to(dtype)), dtype)
    end
  end)
end
t.test("asinh of 300 in float16 has a gradient", function()
  t.check(math.abs(gradient(pg.asinh, pg.tensor({300}, {dtype = "float16"})):item() - 1 / 300) < 1e-5)
end)

local forms = {"none", "tanh"}
t.test("gelu of -inf is 0, and its gradient is finite everywhere", function()
  for _, dtype in ipairs{"float16", "bfloat16", "float32", "float64"} do
    local far = pg.tensor({-math.huge, -1e30, -50, 50, 1e30, math.huge}, {dtype = dtype})
    for _, form in ipairs(forms) do
      local function f(x) return x:gelu{approximate = form} end
      t.check(f(far[{{1, 3}}]):equal(pg.zeros(3, {dtype = dtype})), dtype .. " " .. form)
      t.check(f(far[{{4, 6}}]):equal(far[{{4, 6}}]), dtype .. " " .. form)
      t.check(gradient(f, far):equal(pg.tensor({0, 0, 0, 1, 1, 1}, {dtype = dtype})), dtype .. " " .. form)
      t.check(f(pg.tensor({0 / 0}, {dtype = dtype})):isnan():item(), dtype .. " " .. form)
    end
  end
end)

-- From tests/reference.lua: x Phi(x) and its derivative Phi(x) + x phi(x), and the same of the tanh form.
t.test("gelu and its gradient keep their digits below zero", function()
  local reference, dd = require "tests.reference", require "tests.double_double"
  local points = {-12, -8.3, -6, -4.5, -3.1, -2, -1.1}
  for _, form in ipairs(forms) do
    local value, slope = {}, {}
    for i, x in ipairs(points) do
      local h = 1e-9  -- of central differences in 32 digits: their error is about h^2
      local function at(v) return reference.gelu(v, {approximate = form}) end
      value[i] = at(dd.new(x)).high
      slope[i] = ((at(dd.new(x) + h) - at(dd.new(x) - h)) / (2 * h)).high
    end
    local function f(x) return x:gelu{approximate = form} end
    for dtype, rtol in pairs{float32 = 3e-5, float64 = 1e-12} do
      local x = pg.tensor(points, {dtype = dtype})
      if dtype == "float32" and form == "tanh" then x = x[{{2, 7}}] end  -- the first is subnormal
      local first = #points - x:size(1) + 1
      local function want(list) return pg.tensor(list, {dtype = "float64"})[{{first, #points}}] end
      t.close(f(x):to("float64"), want(value), {rtol = rtol, atol = 0, what = dtype .. " " .. form})
      t.close(gradient(f, x):to("float64"), want(slope), {rtol = rtol, atol = 0, what = dtype .. " gradient " .. form})
    end
  end
end)

t.test("digamma near its pole at 0", function()
  local x = pg.tensor({1e-20, -1e-20, 1e-5, -1e-5}, {dtype = "float64"})
  t.close(x:digamma(), {-1e20, 1e20, -100000.57719921568, 99999.42276788563}, {rtol = 1e-15, atol = 0})
end)

t.test("attention rows that are wholly masked are 0, and have gradient 0", function()
  local q = pg.randn(1, 3, 4)
  local mask = pg.tensor{{true, true, false}, {false, false, false}, {true, true, true}}
  local open = pg.zeros(3, 3):masked_fill(mask:logical_not(), -math.huge)
  for _, m in ipairs{mask, open} do
    local function f(query, key, value) return pg.scaled_dot_product_attention(query, key, value, m) end
    local y = f(q, q, q)
    t.check(y:isfinite():all():item() and y[{1, 2}]:equal(pg.zeros(4)))
    for _, g in ipairs{gradient(f, q, q, q)} do t.check(g:isfinite():all():item()) end
    t.check(pg.jit(f)(q, q, q):allclose(y))
  end
end)

t.test("gradients of tensors without dims or channels", function()
  t.check(gradient(function(x) return (x:cummax(1)) end, pg.tensor(3)):item() == 1)
  local _, w = gradient(function(x, w) return x:prelu(w) end, pg.zeros(2, 0, 3), pg.zeros(0))
  t.check(w:numel() == 0)
end)

t.test("a wider float is converted when it is written", function()
  local y = pg.zeros(3)
  y[{1}] = pg.tensor(2, {dtype = "float64"})
  y[{{2, 3}}] = pg.tensor({3, 4}, {dtype = "float64"})
  t.check(y.dtype == "float32" and y:equal(pg.tensor{2, 3, 4}))
  t.error_contains(function() pg.zeros({2}, {dtype = "int32"})[{1}] = pg.tensor(2.5) end, "that int32 can hold")
end)
