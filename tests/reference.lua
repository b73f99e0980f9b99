-- What the unary pointwise ops compute, in numbers of 32 digits (tests/double_double.lua): reference[op](x, attrs)
-- returns the value at the double-double x, or nil where the op has none; digamma returns a second number. attrs are the op's attributes by name.
-- The formulas are definitions, identities and series of Abramowitz and Stegun, Handbook of Mathematical Functions.
local dd = require "tests.double_double"
local new = dd.new

local reference = {}

-- 7.1.6 for |x| up to 4, with positive terms; beyond it 7.1.14, a continued fraction, for erfc of positive x.
local two_over_root_pi = new(2) / dd.pi:sqrt()
local function erf_series(x)
  local z, term, out, k = x * x * 2, x, x, 1
  while math.abs(term.high) > 1e-33 * math.abs(out.high) do
    k = k + 2
    term = term * z / k
    out = out + term
  end
  return out * (-(x * x)):exp() * two_over_root_pi
end
local function erfc(x)
  if math.abs(x.high) <= 4 then return 1 - erf_series(x) end
  if x:is_negative() then return 2 - erfc(-x) end
  local f = x
  for k = 90, 1, -1 do f = x + k / 2 / f end
  return (-(x * x)):exp() / f / dd.pi:sqrt()
end
local function erf(x)
  if math.abs(x.high) <= 4 then return erf_series(x) end
  return 1 - erfc(x)
end

-- B(2k) for k = 1 to 12.
local bernoulli = {
  new(1) / 6, new(-1) / 30, new(1) / 42, new(-1) / 30, new(5) / 66, new(-691) / 2730, new(7) / 6, new(-3617) / 510,
  new(43867) / 798, new(-174611) / 330, new(854513) / 138, new(-236364091) / 2730,
}
-- 6.1.41 beyond 30, by the recurrence 6.1.15 below.
local function lgamma(x)
  if x.high <= 0 then  -- 6.1.17
    local s = (dd.pi * (x - math.floor(x.high + 0.5))):sin()
    return dd.log_pi - (s * x):abs():log() - lgamma(-x)
  end
  local product = new(1)
  while x.high < 30 do
    product, x = product * x, x + 1
  end
  local out, z = (x - 0.5) * x:log() - x + (dd.log_pi + dd.ln2) / 2, new(1) / x
  for k, b in ipairs(bernoulli) do
    out = out + b * z / (2 * k * (2 * k - 1))
    z = z / x / x
  end
  return out - product:log()
end
-- The Hurwitz zeta function for whole s > 1: the first terms and the Euler-Maclaurin formula 23.1.30.
local function power(x, n)
  local out = new(1)
  for _ = 1, n do out = out * x end
  return out
end
local function zeta(s, x)
  local out = new(0)
  while x.high < 30 do
    out, x = out + new(1) / power(x, s), x + 1
  end
  out = out + new(1) / (power(x, s - 1) * (s - 1)) + new(1) / (power(x, s) * 2)
  local term = new(s) / (power(x, s + 1) * 2)
  for k, b in ipairs(bernoulli) do
    out = out + b * term
    term = term * (s + 2 * k - 1) * (s + 2 * k) / (x * x * ((2 * k + 1) * (2 * k + 2)))
  end
  return out
end
-- 6.3.18 beyond 30, by the recurrence 6.3.5 below. Below zero it is the difference of two terms, with many roots:
-- returns the larger one, too, or 1.
local function digamma(x)
  if x.high < 0 then  -- 6.3.7
    local a, b = digamma(1 - x), dd.pi / (dd.pi * (x - math.floor(x.high + 0.5))):tan()
    return a - b, new(math.max(math.abs(a.high), math.abs(b.high), 1))
  end
  local out = new(0)
  while x.high < 30 do
    out, x = out - new(1) / x, x + 1
  end
  out = out + x:log() - new(1) / (x * 2)
  local z = new(1) / (x * x)
  local p = z
  for k, b in ipairs(bernoulli) do
    out, p = out - b * p / (2 * k), p * z
  end
  return out
end
-- 6.4.10, for positive x.
local function polygamma(x, n)
  if x.high < 0 then return end
  if n == 0 then return digamma(x) end
  local out = zeta(n + 1, x)
  for k = 1, n do out = out * k end
  return n % 2 == 1 and out or -out
end
-- By Halley's method.
local function erfinv(x)
  if math.abs(x.high) >= 1 then return end
  local a, l = x:abs(), math.log((1 - x.high) * (1 + x.high)) / 2
  local y = new(math.sqrt(math.sqrt((4.33 + l) ^ 2 - 2 * l / 0.147) - 4.33 - l))  -- to three digits
  for _ = 1, 4 do
    local error = (1 - a - erfc(y)) / (two_over_root_pi * (-(y * y)):exp())
    y = y - error / (1 + y * error)
  end
  return x:is_negative() and -y or y
end

local function log1p_exp(x) return x.high < -70 and x:exp() or x:exp():log1p() end
local function sigmoid(x)
  if x.high < 0 then
    local e = x:exp()
    return e / (e + 1)
  end
  return new(1) / ((-x):exp() + 1)
end
local function tanh(x)
  if math.abs(x.high) > 40 then return new(x.high > 0 and 1 or -1) end
  local e = (x * 2):expm1()
  return e / (e + 2)
end
local function expm1(x) return x.high < -80 and new(-1) or x:expm1() end
-- x where it is positive, else f(x)
local function rectified(f) return function(x, attrs) return x.high > 0 and x or f(x, attrs) end end
local function within(low, high, f)
  return function(x) if x.high >= low and x.high <= high then return f(x) end end
end

reference.exp, reference.expm1, reference.sin, reference.cos, reference.tan = dd.exp, expm1, dd.sin, dd.cos, dd.tan
function reference.exp2(x) return (x * dd.ln2):exp() end
reference.log = within(0, math.huge, dd.log)
reference.log2 = within(0, math.huge, function(x) return x:log() / dd.ln2 end)
reference.log10 = within(0, math.huge, function(x) return x:log() / new(10):log() end)
reference.log1p = within(-1, math.huge, dd.log1p)
reference.sqrt = within(0, math.huge, dd.sqrt)
reference.rsqrt = within(0, math.huge, function(x) return new(1) / x:sqrt() end)
function reference.reciprocal(x) return new(1) / x end
function reference.square(x) return x * x end

function reference.sinh(x)
  local e = x:abs():expm1()
  local y = (e + e / (e + 1)) / 2
  return x:is_negative() and -y or y
end
function reference.cosh(x)
  local e = x:abs():exp()
  return (e + new(1) / e) / 2
end
reference.tanh = tanh
function reference.asinh(x)
  local a = x:abs()
  local y = (a + a * a / ((a * a + 1):sqrt() + 1)):log1p()
  return x:is_negative() and -y or y
end
reference.acosh = within(1, math.huge, function(x)
  local m = x - 1
  return (m + (m * (x + 1)):sqrt()):log1p()
end)
reference.atanh = within(-1, 1, function(x) return (x * 2 / (1 - x)):log1p() / 2 end)
reference.asin = within(-1, 1, function(x) return (x / ((1 - x) * (x + 1)):sqrt()):atan() end)
reference.acos = within(-1, 1, function(x) return ((1 - x) / (x + 1)):sqrt():atan() * 2 end)
reference.atan = dd.atan

reference.erf, reference.erfc, reference.erfinv = erf, erfc, erfinv
reference.lgamma, reference.digamma = lgamma, digamma
function reference.polygamma(x, attrs) return polygamma(x, attrs.n) end

reference.sigmoid = sigmoid
function reference.logsigmoid(x) return -log1p_exp(-x) end
function reference.silu(x) return x * sigmoid(x) end
function reference.mish(x)
  if x.high > 40 then return x end
  local e = x:exp()
  local m = e * (e + 2)
  return x * m / (m + 2)
end
function reference.gelu(x, attrs)
  if attrs.approximate == "none" then return x * erfc(-x / new(2):sqrt()) / 2 end
  return x * sigmoid((new(2) / dd.pi):sqrt() * 2 * x * (1 + new(0.044715) * x * x))
end
function reference.softplus(x, attrs)
  local scaled = x * attrs.beta
  return scaled.high > attrs.threshold and x or log1p_exp(scaled) / attrs.beta
end
reference.elu = rectified(function(x, attrs) return expm1(x) * attrs.alpha end)
reference.celu = rectified(function(x, attrs) return expm1(x / attrs.alpha) * attrs.alpha end)
function reference.selu(x)
  local y = x.high > 0 and x or expm1(x) * new(1.6732632423543772848, 0)
  return y * new(1.0507009873554804934, 0)
end
function reference.softsign(x) return x / (x:abs() + 1) end

-- The others round once or never.
local function clamp(x, low, high) return new(math.min(math.max(x.high, low), high)) end
function reference.hardsigmoid(x) return x.high <= -3 and new(0) or x.high >= 3 and new(1) or (x + 3) / 6 end
function reference.hardswish(x) return x.high <= -3 and new(0) or x.high >= 3 and x or x * (x + 3) / 6 end
function reference.hardtanh(x, attrs) return clamp(x, attrs.min_val, attrs.max_val) end
function reference.relu6(x) return clamp(x, 0, 6) end
function reference.softshrink(x, attrs)
  local l = attrs.lambda
  return x.high > l and x - l or x.high < -l and x + l or new(0)
end
function reference.huber(x, attrs)
  local a = dd.abs(x)
  return a.high > attrs.delta and (a - attrs.delta / 2) * attrs.slope or x * x * (attrs.slope / attrs.delta / 2)
end
reference.leaky_relu = rectified(function(x, attrs) return x * attrs.negative_slope end)
reference.relu = rectified(function() return new(0) end)
reference.abs = dd.abs
function reference.neg(x) return -x end
function reference.sign(x) return new(x.high > 0 and 1 or x.high < 0 and -1 or 0) end
function reference.floor(x) return new(math.floor(x.high)) end
function reference.ceil(x) return new(math.ceil(x.high)) end
function reference.trunc(x) return new(x.high > 0 and math.floor(x.high) or math.ceil(x.high)) end
function reference.round(x)
  local down = math.floor(x.high)
  local rest = x.high - down
  return new((rest > 0.5 or (rest == 0.5 and down % 2 == 1)) and down + 1 or down)
end

return reference
