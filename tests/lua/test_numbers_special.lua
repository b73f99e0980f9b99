-- Values and gradients near poles and roots, far tails, and bounds that a dtype cannot hold. Expected numbers are from
-- formulas, or computed with 60 digits.
local pg = require "perigee"

local inf = math.huge
local t = require "tests.support"

local function gradient(f, x)
  x = x:detach():attach_grad()
  pg.record(function() return f(x):sum() end):backward()
  return x.grad
end
local near = t.elements_near
local function float64(list) return pg.tensor(list, {dtype = "float64"}) end

t.test("polygamma at its poles has the sign of its terms, as in PyTorch", function()
  for _, dtype in ipairs{"float32", "float64"} do
    local poles = pg.tensor({0, -1, -2, -30, -1e10}, {dtype = dtype}):attach_grad()
    for n = 1, 4 do
      local sign = n % 2 == 1 and 1 or -1
      t.equal(poles:polygamma(n), pg.full_like(poles, sign * math.huge))
      pg.record(function() return poles:polygamma(n) end):backward()
      t.equal(poles.grad, pg.full_like(poles, -sign * math.huge))
      local ends = pg.tensor({math.huge, -math.huge}, {dtype = dtype}):polygamma(n)
      t.check(ends[1]:item() == 0 and ends[2]:isnan():item())
    end
  end
end)

t.test("polygamma next to its pole at 0 from below", function()
  local x = float64{-1e-12, -1e-16, -1e-17, -1e-30}
  near(x:polygamma(1), {1e24, 1e32, 1e34, 1e60}, 1e-14)
  near(x:polygamma(2), {2e36, 2e48, 2e51, 2e90}, 1e-14)
  near(gradient(function(v) return v:digamma() end, x), {1e24, 1e32, 1e34, 1e60}, 1e-14)
end)

t.test("lgamma of float32 next to its negative roots", function()
  local x = pg.tensor{-2.457025, -2.4570246, -2.7476826, -3.1435809, -3.9552942, -4.0399613}
  local exact = x:to("float64"):lgamma():totable()
  near(x:lgamma(), exact, 2 ^ -23)
end)

t.test("silu and mish far below zero", function()
  local list = {}
  for k = 0, 170 do list[#list + 1] = -104 + k / 10 end
  local x = pg.tensor(list)
  for _, name in ipairs{"silu", "mish"} do
    local exact, y = x:to("float64")[name](x:to("float64")):totable(), x[name](x):totable()
    for i, v in ipairs(y) do
      local spacing = math.max(math.abs(exact[i]) * 2 ^ -23, 2 ^ -149)
      t.check(math.abs(v - exact[i]) <= 4 * spacing, ("%s(%g): %.9g, expected %.9g"):format(name, list[i], v, exact[i]))
    end
  end
end)

t.test("tanhshrink keeps its digits near 0", function()
  local list = {1e-3, -1e-2, 0.1, -0.5, 1, 1.9, -2.1, 5}
  local exact = {3.33333200000054e-10, -3.3332000053966065e-07, 0.0003320053750441829, -0.03788284273999024,
    0.23840584404423512, 0.9437625418722609, -1.129548063386546, 4.000090795737405}
  near(pg.tensor(list):tanhshrink(), exact, 5e-7)
  near(float64(list):tanhshrink(), exact, 2e-15)
  near(gradient(function(v) return v:tanhshrink() end, float64(list)), float64(list):tanh():square():totable(), 1e-14)
end)

t.test("gradients of two arguments in float16 round once", function()
  local x, y = pg.tensor({2}, {dtype = "float16"}):attach_grad(), pg.tensor({1e-5}, {dtype = "float16"}):attach_grad()
  local dy = pg.tensor({1e-3}, {dtype = "float16"})
  local z = pg.record(function() return x:xlogy(y) end)
  z:backward(dy)
  near(y.grad, {2 / y:item() * dy:item()}, 1e-3)
  local a, b = pg.tensor({1e-8 * 6}, {dtype = "float16"}):attach_grad(), pg.tensor({1e-4}, {dtype = "float16"}):attach_grad()
  local q = pg.record(function() return a / b end)
  local small = pg.tensor({1e-4}, {dtype = "float16"})
  q:backward(small)
  near(b.grad, {-small:item() * a:item() / b:item() ^ 2}, 2e-3)
end)

t.test("derivatives in half precision start from the result before rounding", function()
  local exact = {
    tanh = {-5.2, function(x) return 1 / math.cosh(x) ^ 2 end},
    sigmoid = {8.32, function(x) return 1 / (2 + math.exp(x) + math.exp(-x)) end},
    expm1 = {-8.32, math.exp}, exp = {3.21, math.exp}, exp2 = {-3.3, function(x) return 2 ^ x * math.log(2) end},
  }
  for name, case in pairs(exact) do
    for dtype, spacing in pairs{float16 = 2 ^ -11, bfloat16 = 2 ^ -8} do
      local x = pg.tensor({case[1]}, {dtype = dtype})
      local function f(v) return v[name](v) end
      local want = {case[2](x:item())}
      near(gradient(f, x), want, spacing)
      near(gradient(pg.jit(f), x), want, spacing)
    end
  end
end)

t.test("the gradient of the 0-norm is 0", function()
  local x = pg.tensor{0, 1, math.huge}
  t.equal(gradient(function(v) return v:norm(0) end, x):totable(), {0, 0, 0})
  t.equal(gradient(function(v) return (v:unsqueeze(1)):norm(0, 2) end, x):totable(), {0, 0, 0})
end)

t.test("covariances of numbers with a large mean", function()
  local base = pg.rand(3, 200)
  local shifted = base + 1e6
  local exact = shifted:to("float64"):cov()
  t.check(shifted:cov():to("float64"):allclose(exact, {rtol = 1e-4}))
  t.check(gradient(function(v) return v:cov():diagonal() end, shifted):isfinite():all():item())
end)

t.test("random numbers of a range that the dtype holds", function()
  local x = pg.empty(1000):uniform_(-3e38, 3e38)
  t.check(x:isfinite():all():item())
  t.check(x:min():item() < -1e38 and x:max():item() > 1e38)
  local half = pg.empty(1000, {dtype = "float16"}):uniform_(-65504, 65504)
  t.check(half:isfinite():all():item() and half:min():item() < -3e4 and half:max():item() > 3e4)
  t.error_contains(function() pg.empty(2, {dtype = "float16"}):uniform_(0, 1e5) end,
                   "uniform_: bad argument 'to' (expected a number that float16 can hold, got 100000")
  t.error_contains(function() pg.empty(2):uniform_(-1e39, 0) end, "bad argument 'from' (expected a number that float32 can hold")
  t.error_contains(function() pg.empty(2):uniform_(0, math.huge) end, "bad argument 'to' (expected a finite number")
  t.error_contains(function() pg.empty(2):normal_(1e39, 1) end, "bad argument 'mean' (expected a number that float32 can hold")
end)

t.test("histc of ranges that are not finite or overflow", function()
  t.error_contains(function() pg.tensor{1, math.huge}:histc(3) end, "histc: bad argument 'x' (expected finite elements")
  t.error_contains(function() pg.tensor{0 / 0}:histc(3) end, "histc: bad argument 'x' (expected finite elements")
  t.equal(pg.tensor{1, math.huge}:histc(3, 0, 2):totable(), {0, 1, 0})
  t.equal(pg.tensor{1, 0 / 0, 2}:histc(2):totable(), {1, 1})
  t.equal(pg.tensor{-3e38, 3e38, 0}:histc(4):totable(), {1, 0, 1, 1})
  t.equal(pg.tensor{-3e38, 3e38, 1.5e38}:histc(3, -3e38, 3e38):totable(), {1, 0, 2})
  t.equal(pg.tensor{-3e38, 3e38}:histc(1):totable(), {2})
end)

t.test("a number that the dtype of a tensor cannot hold is an error", function()
  t.error_contains(function() return pg.tensor({70000}, {dtype = "float16"}) end,
                   "tensor: bad argument 'data' (expected a number that float16 can hold, got number 70000")
  t.error_contains(function() return pg.tensor{1e39} end, "expected a number that float32 can hold")
  t.equal(pg.tensor({65519}, {dtype = "float16"}):item(), 65504)
  t.equal(pg.tensor({math.huge, -math.huge}, {dtype = "float16"}):totable(), {math.huge, -math.huge})
end)

t.test("logit keeps its digits near its ends and its root", function()
  local x = pg.tensor({1e-300, 1e-20, 0.1, 0.2499, 0.25, 0.4, 0.5 - 1e-9, 0.5, 0.5 + 1e-12, 0.6, 0.75, 0.7501, 0.999}, {dtype = "float64"})
  local exact = {-690.77552789821370521, -46.051701859880913681, -2.1972245773362193828, -1.0991456310890205, -1.0986122886681098,
    -0.40546510810816438198, -4e-9, 0, 4e-12, 0.40546510810816438198, 1.0986122886681098, 1.0991456310890205, 6.9067547786485535}
  t.close(x:logit(), pg.tensor(exact, {dtype = "float64"}), {rtol = 1e-4, atol = 0})
  t.close(pg.tensor({0.1, 0.4, 0.75}, {dtype = "float64"}):logit(), pg.tensor({exact[3], exact[6], exact[11]}, {dtype = "float64"}),
    {rtol = 1e-15, atol = 0})
  local grid = pg.range(1, 999):to("float64") / 1000
  t.close(grid:to("float32"):logit():to("float64"), grid:to("float32"):to("float64"):logit(), {rtol = 5e-7, atol = 0})
  t.equal(pg.tensor{0, 1, 0.5}:logit():totable(), {-math.huge, math.huge, 0})
  t.check(pg.tensor{-0.1, 1.1, 0 / 0, math.huge, -math.huge}:logit():isnan():all():item())
  t.equal(pg.tensor{-1, 2, 0.5}:logit(0):totable(), {-math.huge, math.huge, 0})
  t.check(pg.tensor{0 / 0}:logit(0.1):isnan():item())
end)

t.test("running products and sums of rows are those of each row", function()
  for _, dtype in ipairs{"float64", "float32", "float16", "int32", "bool"} do
    for _, rows in ipairs{1, 3, 4, 5, 9} do
      local x = (pg.rand(rows, 21) * 3):to(dtype)
      for _, f in ipairs{function(v, d) return v:cumsum(d) end, function(v, d) return v:cumprod(d) end,
                         function(v, d) return v:cumsum(d, {reverse = true}) end, function(v, d) return v:cumprod(d, {reverse = true}) end} do
        local each = {}
        for r = 1, rows do each[r] = f(x[r]:clone(), 1) end
        t.equal(f(x, 2):totable(), pg.stack(each, 1):totable())
        t.equal(f(x:t():contiguous(), 1):t():totable(), f(x, 2):totable())
      end
    end
  end
  local x = pg.randn(6, 9):to("float64"):attach_grad()
  pg.record(function() return (x:cumprod(2) * pg.range(1, 9)):sum() end):backward()
  local grad = x.grad
  local y = x:detach():t():contiguous():attach_grad()
  pg.record(function() return (y:cumprod(1) * pg.range(1, 9):unsqueeze(2)):sum() end):backward()
  t.equal(y.grad:t():totable(), grad:totable())
end)

t.test("a running product that leaves the range of numbers stays there", function()
  for _, dtype in ipairs{"float64", "float32", "float16"} do
    local large, small = pg.full({35000}, 1.5, {dtype = dtype}), pg.full({35000}, 0.5, {dtype = dtype})
    for _, case in ipairs{{{large, small}, inf}, {{small, large}, 0}} do
      local x = pg.cat(case[1])
      t.equal(x:cumprod(1)[-1]:item(), case[2])
      t.equal(x:flip(1):cumprod(1, {reverse = true})[1]:item(), case[2])
    end
  end
  -- The products are small or large, but within the range.
  local x = pg.cat{pg.full({1000}, 0.5), pg.ones(3096), pg.full({1100}, 2), pg.full({900}, 0.5), pg.ones(64000)}
  local y = x:cumprod(1)
  t.equal(y[1000 + 3096 + 1100]:item(), 2 ^ 100)
  t.equal(y[-1]:item(), 0)
  t.equal((1 / x):cumprod(1)[1000 + 3096 + 1100]:item(), 2 ^ -100)
  t.equal(pg.cat{pg.full({5000}, 2), pg.zeros(1), pg.ones(65000)}:cumprod(1)[5001]:isnan():item(), true)  -- inf * 0
  t.equal(pg.cat{pg.full({5000}, 2, {dtype = "int64"}), pg.full({65000}, 3, {dtype = "int64"})}:cumprod(1)[-1]:item(), 0)
end)

t.test("the gradient of a product of 16-bit floats may have factors out of their range", function()
  for _, dtype in ipairs{"float16", "bfloat16"} do
    local x = pg.tensor({128, 128, 128, 1 / 128, 1 / 128, 1 / 64}, {dtype = dtype})
    local expected = {1 / 64, 1 / 64, 1 / 64, 256, 256, 128}
    t.equal(gradient(function(v) return v:prod() end, x):totable(), expected)
    t.equal(gradient(function(v) return v:prod{dim = 1} end, pg.stack({x, x}, 2)):select(2, 2):totable(), expected)
  end
end)

t.test("lgamma of special numbers", function()
  for _, dtype in ipairs{"float64", "float32"} do
    local x = pg.tensor({0, -0, -1, -100, math.huge, -math.huge, 1, 2, 1e37}, {dtype = dtype}):lgamma():totable()
    for i = 1, 6 do t.equal(x[i], math.huge) end
    t.equal({x[7], x[8]}, {0, 0})
    t.equal(x[9] == math.huge, dtype == "float32")
    t.check(pg.tensor({0 / 0}, {dtype = dtype}):lgamma():isnan():item())
  end
end)
