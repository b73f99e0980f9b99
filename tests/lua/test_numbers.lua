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

-- Values in which products of integers wrap around, and floats that are no integers.
local operands = {
  {bool = {1, 0, 1, 1, 0, 1}, uint8 = {200, 3, 17, 1, 250, 5}, int8 = {120, 3, 17, 1, -100, 5},
    int = {200, 3, 170, 1, -100, 5}, float = {1.7, 0.3, 2.2, 0.9, 1.1, 3.3}},
  {bool = {1, 0, 1, 1, 0, 1}, uint8 = {2, 7, 100, 255, 1, 3}, int8 = {2, -7, 100, 127, 1, 3},
    int = {2, -7, 100, 3, 1, 3}, float = {0.7, 1.3, 2.7, -1.4, 0.6, -2.3}},
}
local function operand(k, dtype)
  local list = operands[k][dtype] or operands[k][dtype:match("float") or "int"]
  return pg.tensor(list, {dtype = "float64"}):to(dtype)
end

local dtypes = {"bool", "uint8", "int8", "int32", "int64", "float16", "bfloat16", "float32", "float64"}
local cotangent = pg.tensor({1, 0.5, -1, 0.25, 2, 1}, {dtype = "float64"})

-- The gradients of f of those arguments that are floating, in order, and the dtype of the result; nil if f is refused.
local function floating_gradients(f, ...)
  local args, floats = {...}, {}
  for i, x in ipairs(args) do
    if x.dtype:find("float") then
      args[i] = x:detach():attach_grad()
      floats[#floats + 1] = args[i]
    end
  end
  if #floats == 0 then return nil end
  local ok, y = pcall(pg.record, function() return f(unpack(args)) end)
  if not ok or not y.dtype:find("float") then return nil end
  pg.autograd.backward({y}, {cotangent:to(y.dtype)})
  for i, x in ipairs(floats) do floats[i] = x.grad end
  return floats, y.dtype
end

local spacing = {float16 = 2 ^ -10, bfloat16 = 2 ^ -7, float32 = 2 ^ -23, float64 = 2 ^ -52}

-- The largest error of `got` in units of the coarser of its dtype and `result`; infinities beyond float16 do not count.
local function worst(got, exact, result)
  local unit, out = math.max(spacing[got.dtype], spacing[result]), 0
  local a, b = got:totable(), exact:totable()
  for i = 1, #a do
    local same = a[i] == b[i] or (a[i] ~= a[i] and b[i] ~= b[i]) or math.abs(b[i]) < 1e-6 or (got.dtype == "float16" and math.abs(b[i]) > 65504)
    local e = math.abs(a[i] - b[i]) / (math.abs(b[i]) * unit)
    if not same and (e > out or e ~= e) then out = e == e and e or math.huge end
  end
  return out
end

for _, name in ipairs(pg.testing.op_names()) do
  local row = pg.testing.op_row(name)
  if row.pointwise and #row.inputs == 2 and not row.no_grad then
    t.test("gradients of " .. name .. " for all pairs of dtypes", function()
      for _, first in ipairs(dtypes) do
        for _, second in ipairs(dtypes) do
          local a, b = operand(1, first), operand(2, second)
          local got, result = floating_gradients(pg[name], a, b)
          if got then
            local wide = {a:to("float64"), b:to("float64")}
            local exact = floating_gradients(pg[name], unpack(wide))
            if #got == 1 and first:find("float") == nil then exact = {exact[2]} end
            for i, g in ipairs(got) do t.check(worst(g, exact[i], result) < 2.6, first .. " " .. second .. " gradient " .. i) end
          end
        end
      end
    end)
  end
end

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

t.test("variances of several dims, of other layouts and of one element", function()
  for _, mean in ipairs{0, 1e4, 1e6} do
    local x = pg.randn(20, 7, 30) + mean
    local wide = x:to("float64")
    local function check(f, what)
      local exact = f(wide)
      t.check(units(f(x), exact) < 8, what)
      t.check(units(pg.jit(function(a) return f(a) + 0 end)(x), exact) < 8, what .. ", traced")
    end
    check(function(a) return a:var{1, 3} end, "two dims")
    check(function(a) return a:std() end, "all dims")
    check(function(a) return a:permute{3, 1, 2}:var{dim = {1, 2}, correction = 0} end, "permuted")
    check(function(a) return a[{{1, 20, 3}, {}, {2, 30, 2}}]:std{dim = 1, keepdim = true} end, "strided")
  end
  local one = pg.tensor{{5}, {1e6}}
  t.check(one:var(2):isnan():all():item() and one:var{dim = 2, correction = 0}:equal(pg.zeros(2)))
  t.check(one:var{dim = 2, correction = 3}:isnan():all():item())
  for _, dtype in ipairs{"float16", "bfloat16"} do
    local h = (pg.randn(1000, 3) * 0.5 + 200):to(dtype)
    t.check(h:var(1):equal(h:to("float32"):var(1):to(dtype)) and h:std{1, 2}:equal(h:to("float32"):std{1, 2}:to(dtype)))
  end
end)

t.test("gradients of variances of numbers with a large mean", function()
  for _, name in ipairs{"var", "std"} do
    local x = pg.randn(1000, 3) + 1e5
    local exact = gradient(function(a) return a[name](a, 1) end, x:to("float64"))
    for _, f in ipairs{function(a) return a[name](a, 1) end, pg.jit(function(a) return a[name](a, 1) end)} do
      t.check((gradient(f, x):to("float64") - exact):abs():max():item() < 1e-5 * exact:abs():max():item(), name)
    end
  end
end)

t.test("small derivatives of exponential units keep their digits", function()
  local x = -pg.linspace(0.1, 60, 200)
  for _, f in ipairs{pg.elu, pg.selu, pg.celu, function(a) return a:celu(0.3) end, function(a) return a:elu(0.3) end} do
    local exact = gradient(f, x:to("float64"))
    local some = exact:abs():gt(1e-30)
    t.check(((gradient(f, x):to("float64") - exact):abs() / exact:abs())[some]:max():item() < 1e-5)
  end
  local far = pg.tensor{-1000, 1000}:attach_grad()  -- exp overflows
  pg.record(function() return pg.autograd.grad({far:elu():sum()}, {far}, {create_graph = true})[1]:sum() end):backward()
  t.check(far.grad:equal(pg.zeros(2)))
end)

t.test("numbers are not rounded to half precision before arithmetic", function()
  for _, dtype in ipairs{"float16", "bfloat16"} do
    local h = (pg.range(1, 500) / 7):to(dtype)
    for name, f in pairs{
      mul = function(a) return a * 0.3 end, div = function(a) return 0.3 / a end, add = function(a) return a + 0.3 end,
      pow = function(a) return a ^ 0.3 end, lerp = function(a) return pg.lerp(a, a * 2, 0.3) end,
    } do
      local exact = f(h:to("float32")):to(dtype)
      t.check(f(h):equal(exact), name)
      t.check(pg.jit(f)(h):equal(exact), name .. ", traced")
      t.check(pg.jit(function(a) return f(a:neg():neg()) end)(h):equal(exact), name .. ", fused")
    end
    t.check((pg.tensor({0.3}, {dtype = dtype})):eq(0.3):item(), "comparisons see what an element holds")
  end
end)

for _, name in ipairs{"pow", "atan2", "hypot", "logaddexp"} do
  t.test("derivatives of " .. name .. " in half precision round once", function()
    local x, y = pg.rand(200) * 3 + 0.1, pg.rand(200) * 3 + 0.1
    for _, dtype in ipairs{"float16", "bfloat16"} do
      local a, b = x:to(dtype), y:to(dtype)
      local got = {gradient(pg[name], a, b)}
      local exact = {gradient(pg[name], a:to("float32"), b:to("float32"))}
      for i = 1, 2 do t.check(got[i]:equal(exact[i]:to(dtype)), dtype .. " " .. i) end
    end
  end)
end

-- Derivatives that start from the result before rounding, and round once.
local from_result = {
  tan = function(y) return y * y + 1 end, expm1 = function(y) return y + 1 end, rsqrt = function(y) return y * y * y * -0.5 end,
  reciprocal = function(y) return -(y * y) end, exp2 = function(y) return y * math.log(2) end,
  tanh = function(y) return 1 - y * y end, sigmoid = function(y) return y * (1 - y) end,
}
for name, f in pairs(from_result) do
  t.test("the derivative of " .. name .. " in half precision starts from its unrounded result", function()
    local x = pg.rand(300) * 1.2 + 0.1
    for _, dtype in ipairs{"float16", "bfloat16"} do
      local h = x:to(dtype)
      local exact = f(pg[name](h:to("float64")))
      t.check(units(gradient(pg[name], h), exact) < 0.52, dtype)
    end
  end)
end

t.test("the gradient of softmax in half precision is the same with create_graph", function()
  local x, weight = pg.randn(20, 8), pg.randn(20, 8)
  for _, dtype in ipairs{"float16", "bfloat16"} do
    for _, name in ipairs{"softmax", "log_softmax", "softmin"} do
      local h, w = x:to(dtype):attach_grad(), weight:to(dtype)
      local y = pg.record(function() return h[name](h, 2) end)
      pg.autograd.backward({y}, {w})
      local once = pg.record(function()
        return pg.autograd.grad({(h[name](h, 2) * w):sum()}, {h}, {create_graph = true})[1]
      end)
      t.check(once:detach():equal(h.grad), name)
    end
  end
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
t.test("a batch norm in half precision with its running statistics rounds once", function()
  local x, mean, var = pg.randn(50, 6) * 3, pg.randn(6), pg.rand(6) + 0.5
  local w, b = pg.randn(6), pg.randn(6)
  local function f(a)
    local d = a.dtype
    return (pg.batch_norm(a, mean:to(d), var:to(d), w:to(d), b:to(d), {training = false}))
  end
  for _, dtype in ipairs{"float16", "bfloat16"} do
    mean, var, w, b = mean:to(dtype), var:to(dtype), w:to(dtype), b:to(dtype)
    t.check(f(x:to(dtype)):equal(f(x:to(dtype):to("float32")):to(dtype)), dtype)
  end
end)
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
    local large = dtype == "float16" and 6e4 or 1e30
    local far = pg.tensor({-math.huge, -large, -50, 50, large, math.huge}, {dtype = dtype})
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
