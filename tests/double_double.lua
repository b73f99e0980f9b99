-- Numbers of about 32 digits as sums of two doubles, high and low, with the elementary functions: the reference for the
-- accuracy of the ops. Dekker, A floating-point technique for extending the available precision, 1971; Hida, Li and
-- Bailey, Library for double-double and quad-double arithmetic, 2000. Numbers stay far from overflow and underflow.
-- The functions take a double-double and return one; special values are left to the caller.
local dd = {}
dd.__index = dd

local floor, abs, ldexp = math.floor, math.abs, math.ldexp

local function new(high, low) return setmetatable({high = high, low = low or 0}, dd) end
dd.new = new

-- The sum of a and b, where |a| >= |b| or a is 0.
local function ordered_sum(a, b)
  local s = a + b
  return new(s, b - (s - a))
end
local function sum(a, b)
  local s = a + b
  local t = s - a
  return s, (a - (s - t)) + (b - t)
end
local function split(a)
  local t = 134217729 * a  -- 2^27 + 1
  local high = t - (t - a)
  return high, a - high
end
local function product(a, b)
  local p = a * b
  local ah, al = split(a)
  local bh, bl = split(b)
  return p, ((ah * bh - p) + ah * bl + al * bh) + al * bl
end
local function wide(x) return type(x) == "number" and new(x) or x end

function dd.__add(a, b)
  a, b = wide(a), wide(b)
  local s, e = sum(a.high, b.high)
  local t, f = sum(a.low, b.low)
  local r = ordered_sum(s, e + t)
  return ordered_sum(r.high, r.low + f)
end
function dd.__unm(a) return new(-a.high, -a.low) end
function dd.__sub(a, b) return wide(a) + -wide(b) end
function dd.__mul(a, b)
  a, b = wide(a), wide(b)
  local p, e = product(a.high, b.high)
  return ordered_sum(p, e + (a.high * b.low + a.low * b.high))
end
function dd.__div(a, b)
  a, b = wide(a), wide(b)
  local q = a.high / b.high
  local r = a - b * q
  local q2 = r.high / b.high
  r = r - b * q2
  local y = ordered_sum(q, q2)
  return y + r.high / b.high
end

function dd.is_negative(x) return x.high < 0 end
function dd.abs(x) return x.high < 0 and -x or x end
function dd.scale(x, n) return new(ldexp(x.high, n), ldexp(x.low, n)) end

function dd.sqrt(x)
  if x.high == 0 then return x end
  local y = new(math.sqrt(x.high))
  return y + (x - y * y) / (y * 2)
end

dd.pi = new(3.141592653589793116, 1.2246467991473532072e-16)
dd.ln2 = new(0.69314718055994528623, 2.3190468138462995584e-17)
dd.log_pi = new(1.1447298858494001639, 1.026595116270782638e-17)
local half_pi = {1.5707963267948965580, 6.1232339957367660359e-17, -1.4973849048591833e-33}

-- Sum of x^k / k! for k >= 1 with |x| <= 0.4.
local function expm1_series(x)
  local term, out = x, x
  for k = 2, 28 do
    term = term * x / k
    out = out + term
  end
  return out
end
function dd.exp(x)
  local n = floor(x.high / dd.ln2.high + 0.5)
  return (expm1_series(x - dd.ln2 * n) + 1):scale(n)
end
function dd.expm1(x)
  if abs(x.high) < 0.4 then return expm1_series(x) end
  return x:exp() - 1
end
-- By one step of Halley's method.
function dd.log(x)
  local y = new(math.log(x.high))
  local e = y:exp()
  return y + (x - e) * 2 / (x + e)
end
-- Near zero 2 atanh(x / (2 + x)).
function dd.log1p(x)
  if abs(x.high) > 0.1 then return (x + 1):log() end
  local z = x / (x + 2)
  local z2, power, out = z * z, z, z
  for k = 3, 29, 2 do
    power = power * z2
    out = out + power / k
  end
  return out * 2
end

-- Returns sin and cos.
function dd.sin_cos(x)
  local n = floor(x.high / half_pi[1] + 0.5)
  local r = x - new(half_pi[1]) * n - new(half_pi[2]) * n - new(half_pi[3]) * n
  local z, s, c = r * r, r, new(1)
  local odd, even = r, new(1)
  for k = 1, 15 do
    even, odd = -(even * z) / (2 * k * (2 * k - 1)), -(odd * z) / (2 * k * (2 * k + 1))
    s, c = s + odd, c + even
  end
  n = n % 4
  if n % 2 == 1 then s, c = c, -s end
  if n >= 2 then s, c = -s, -c end
  return s, c
end
function dd.sin(x) return (x:sin_cos()) end
function dd.cos(x) return (select(2, x:sin_cos())) end
function dd.tan(x)
  local s, c = x:sin_cos()
  return s / c
end
-- tan(atan(x) - y) = (x - t) / (1 + x t) for t = tan(y).
function dd.atan(x)
  local y = new(math.atan(x.high))
  local s, c = y:sin_cos()
  return y + (x * c - s) / (c + x * s)
end

return dd
