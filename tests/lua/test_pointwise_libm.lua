-- Elementary functions of float64 against libm, from subnormal arguments to the largest ones, and what scripts rely on:
-- exact powers and logarithms, and the same bits for an element anywhere.
local t = require "tests.support"
local pg = require "perigee"
local ffi = require "ffi"

local unary = {"exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan",
               "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc"}
local binary = {"pow", "atan2", "hypot", "fmod"}
for _, name in ipairs(unary) do ffi.cdef("double " .. name .. "(double);") end
for _, name in ipairs(binary) do ffi.cdef("double " .. name .. "(double, double);") end

-- The distance in units of the last place of b, infinite where only one is NaN or infinite, or zeros differ in sign.
local function distance(a, b)
  if a ~= a or b ~= b then return a ~= a and b ~= b and 0 or math.huge end
  if a == b then return (a ~= 0 or 1 / a == 1 / b) and 0 or math.huge end
  if math.abs(a) == math.huge or math.abs(b) == math.huge then return math.huge end
  local _, exponent = math.frexp(math.max(math.abs(b), 2 ^ -1021))
  return math.abs(a - b) / math.ldexp(1, exponent - 53)
end

local function float64(x) return pg.tensor(x, {dtype = "float64"}) end

local function grid()
  local out = {0, -0.0, math.huge, -math.huge, 0 / 0}
  local function add(x) out[#out + 1], out[#out + 2] = x, -x end
  for k = -1074, 1023, t.takes_all() and 3 or 41 do
    for _, m in ipairs{1, 1.37, 1.9999} do add(math.ldexp(m, k)) end
  end
  local edges = {0.5, 1, 2, 3, 26.2, 26.5, 27.2, 36.7, 88, 709, 709.78, 709.7827118, 709.782712893384, 710.4, 745.1, 1e15, 1e22, 1e300, 1.3e154, 1.7e308}
  for k = 1, 12 do edges[#edges + 1] = k * math.pi / 2 end
  for _, edge in ipairs(edges) do
    for k = -3, 3 do add(edge * (1 + k * 2 ^ -52)) end
  end
  return out
end

for _, name in ipairs(unary) do
  t.test(name .. " of float64 is that of libm", function()
    local xs = grid()
    local got = pg[name](float64(xs)):totable()
    for i, x in ipairs(xs) do
      local want = ffi.C[name](x)
      t.check(distance(got[i], want) <= 2, ("%s(%.17g) = %.17g, expected %.17g"):format(name, x, got[i], want))
    end
  end)
end

t.test("erfinv of float64 inverts libm's erf", function()
  local xs = {5e-324, 1e-310, 1 - 2 ^ -53, 1 - 2 ^ -52, 2 ^ -53, 0.998, 0.99804, 0.99999994, 0.99999995}
  for k = 1, 400 do xs[#xs + 1] = k / 401 end
  for k = 2, 52 do xs[#xs + 1], xs[#xs + 2] = 1 - 1.3 * 2 ^ -k, 1.3 * 2 ^ -k end
  local signed = {}
  for i, x in ipairs(xs) do signed[2 * i - 1], signed[2 * i] = x, -x end
  local got = float64(signed):erfinv():totable()
  for i, x in ipairs(signed) do
    local y = math.abs(got[i])
    -- What erf misses, over its slope: of that one, libm's rounding is half a unit of the last place of erf or erfc.
    local a = math.abs(x)
    local missing = a < 0.5 and ffi.C.erf(y) - a or (1 - a) - ffi.C.erfc(y)
    local slope = 2 / math.sqrt(math.pi) * math.exp(-y * y)
    local units = math.abs(missing / slope) / (y * 2 ^ -53)
    t.check((got[i] > 0) == (x > 0) and (y < 1e-300 or units < 8), ("erfinv(%.17g) = %.17g, %.1f halves off"):format(x, got[i], units))
  end
  t.equal(float64{1, -1, 0, -0.0, 1.5, -1.5, 0 / 0}:erfinv(), float64{math.huge, -math.huge, 0, -0.0, 0 / 0, 0 / 0, 0 / 0})
end)

for _, name in ipairs(binary) do
  t.test(name .. " of float64 is that of libm", function()
    local some = {0, -0.0, 1, -1, 0.5, 2, 3, -2, -3, 0.3, 7.5, 1e-310, -1e-310, 1e300, -1e300, 1e-300, 1.0000001, 0.99999,
                  math.huge, -math.huge, 0 / 0, 100, 1023, -1074.5, 1 / 3, 2 ^ 53, 2 ^ 53 + 1, -7, 5e-324,
                  1.7976931348623157e308, 1 - 2 ^ -53, 1e150, 1e154, 1.9999999}
    local xs, ys = {}, {}
    for _, x in ipairs(some) do
      for _, y in ipairs(some) do xs[#xs + 1], ys[#ys + 1] = x, y end
    end
    local got = pg[name](float64(xs), float64(ys)):totable()
    for i, x in ipairs(xs) do
      local want = ffi.C[name](x, ys[i])
      t.check(distance(got[i], want) <= 2,
              ("%s(%.17g, %.17g) = %.17g, expected %.17g"):format(name, x, ys[i], got[i], want))
    end
  end)
end

t.test("powers and logarithms of whole numbers are exact", function()
  for dtype, digits in pairs{float64 = 53, float32 = 24} do
    local function check(name, got, want)
      got = got:totable()
      for i, x in ipairs(want) do
        t.check(got[i] == x, ("%s, %s: got %.17g, expected %.17g"):format(name, dtype, got[i], x))
      end
    end
    local base, exponent, power = {}, {}, {}
    for x = -40, 40 do
      for y = 0, 12 do
        if math.abs(x ^ y) <= 2 ^ digits then
          base[#base + 1], exponent[#exponent + 1], power[#power + 1] = x, y, x ^ y
        end
      end
    end
    check("pow", pg.pow(pg.tensor(base, {dtype = dtype}), pg.tensor(exponent, {dtype = dtype})), power)
    local whole, twos, tens = {}, {}, {}
    for k = 0, 10 do whole[k + 1], twos[k + 1], tens[k + 1] = k, 2 ^ k, 10 ^ k end
    check("exp2", pg.tensor(whole, {dtype = dtype}):exp2(), twos)
    check("log2", pg.tensor(twos, {dtype = dtype}):log2(), whole)
    check("log10", pg.tensor(tens, {dtype = dtype}):log10(), whole)
  end
end)

t.test("an element gives the same bits in any place and in a program", function()
  for _, dtype in ipairs{"float32", "float64"} do
    local x, y = (pg.rand(1031) * 1.9 - 0.9):to(dtype), (pg.rand(1031) * 3):to(dtype)
    local same = function(a, b) return pg.where(a:isnan(), b:isnan(), a:eq(b)):all():item() end
    local function check(name, f)
      local all = f(x, y)
      local program = pg.jit(function(a, b) return f(a * 1, b * 1) * 1 end)
      t.check(same(program(x, y), all), name .. " in a program")
      for _, i in ipairs{1, 2, 5, 1029, 1031} do
        local a, b = x[{{i, i}}], y[{{i, i}}]
        t.check(same(f(a, b), all[{{i, i}}]), name .. " of one element")
        t.check(same(program(a, b), all[{{i, i}}]), name .. " of one element in a program")
      end
    end
    for _, name in ipairs(unary) do check(name, function(a) return pg[name](a) end) end
    for _, name in ipairs{"pow", "atan2", "hypot", "fmod", "logaddexp", "xlogy"} do check(name, pg[name]) end
  end
end)
