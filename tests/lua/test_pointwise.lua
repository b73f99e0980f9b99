-- Dtypes, special values, gradients at kinks and errors of the pointwise ops.
local t = require "tests.support"
local pg = require "perigee"

local inf, nan = math.huge, 0 / 0
local function ints(v, dtype) return pg.tensor(v, {dtype = dtype or "int64"}) end

t.test("integers keep their dtype in arithmetic and give float32 in division and maths", function()
  local a, b = ints{7, -7, 5}, ints{2, 2, -3}
  t.equal(a + b, ints{9, -5, 2})
  t.equal(a - b, ints{5, -9, 8})
  t.equal(a * b, ints{14, -14, -15})
  t.equal(a / b, pg.tensor{3.5, -3.5, 5 / -3})
  t.equal(a:floor_divide(b), ints{3, -4, -2})
  t.equal(a % b, ints{1, 1, -1})
  t.equal(a:fmod(b), ints{1, -1, 2})
  t.equal(a ^ 2, ints{49, 49, 25})
  t.equal(a:sqrt().dtype, "float32")
  t.equal(ints{4}:exp().dtype, "float32")
  t.equal(a:neg(), ints{-7, 7, -5})
  t.equal(a:abs(), ints{7, 7, 5})
  t.equal(a:sign(), ints{1, -1, 1})
  t.equal(a:relu(), ints{7, 0, 5})
  t.equal(ints{1, 2}:floor(), ints{1, 2})
end)

t.test("rounding keeps the sign, of zero too", function()
  for _, op in ipairs{"floor", "ceil", "round", "trunc"} do
    local in_graph = pg.jit(function(x, one) return pg[op](x * one) end)
    for _, v in ipairs{0, 0.3, 0.5, 0.7, 1.5, 2.5} do
      for _, n in ipairs{1, 5, 40} do
        local one, x = pg.ones{n}, pg.full({n}, v)
        for _, value in ipairs{x, -x} do
          local sign = one:copysign(value)
          t.equal(one:copysign(pg[op](value)), sign)
          t.equal(one:copysign(in_graph(value, one)), sign)
          t.equal(in_graph(value, one), pg[op](value))
        end
      end
    end
  end
end)

-- float32 in vectors against float64, whose remainders libm computes; a sum of floats in float64 rounds as in float32.
t.test("remainders are exact for all floats, and quotients agree with them", function()
  local tiny, huge = 2 ^ -149, 0x1.fffffep127
  local list = {0, tiny, 3 * tiny, 2 ^ -126 - tiny, 2 ^ -126, 1e-30, 0.1, 0.3, 0.5, 1 - 2 ^ -24, 1, 1 + 2 ^ -23, 2, 3, 5, 6,
    7.5, 10, 1e5, 2 ^ 23 + 1, 2 ^ 24 - 1, 2 ^ 24, 2 ^ 24 + 2, 2 ^ 25, 3e7, 1e10, 1e30, 2 ^ 127, huge, inf, nan}
  for k = #list, 1, -1 do list[#list + 1] = -list[k] end
  local hostile = pg.tensor(list)
  local function near_multiples(y)  -- quotients that are whole or next to it
    local whole = pg.randint(1, 2 ^ 24, y.shape):float() * 2 ^ -8
    return y * whole:ceil() * (1 + pg.randint(-2, 3, y.shape):float() * 2 ^ -23)
  end
  local function check(x, y)
    local X, Y = x:double(), y:double()
    local mod, rest, floored = x:fmod(y), x % y, x:floor_divide(y)
    t.equal(mod, X:fmod(Y):float())
    t.equal(rest, (X % Y):float())
    local one = pg.ones(mod.shape)
    local function sign(v) return pg.where(v:isnan(), 0, one:copysign(v)) end
    t.equal(sign(mod), pg.where(mod:isnan(), 0, one:copysign(x)))
    t.equal(sign(rest), sign(X % Y):float())
    local quotient = (x - mod) / y - pg.where(rest:eq(mod), 0, 1)
    local nearest = pg.where((quotient - quotient:floor()):gt(0.5), quotient:floor() + 1, quotient:floor())
    t.equal(floored, pg.where(y:eq(0), x / y, pg.where(quotient:eq(0), 0, nearest)))
    t.equal(sign(floored), pg.where(floored:eq(0), sign(x / y), sign(floored)))
    t.equal(pg.jit(function(a, b) return a % b + a:fmod(b) end)(x, y), rest + mod)
  end
  check(hostile:unsqueeze(2), hostile)
  local random = pg.randn(2, 20000) * pg.randint(-149, 127, {2, 20000}):float():exp2()
  check(random[1], random[2])
  local y = pg.randn(5000)
  for _, x in ipairs{pg.randn(5000) * 20, pg.randn(5000) * 1e7, near_multiples(y)} do check(x, y) end
end)

t.test("small integers wrap around", function()
  t.equal(ints({200}, "uint8") + 100, ints({44}, "uint8"))
  t.equal(ints({-128}, "int8"):neg(), ints({-128}, "int8"))
  t.equal(ints({-2 ^ 31}, "int32"):floor_divide(-1), ints({-2 ^ 31}, "int32"))
end)

t.test("numbers are weak", function()
  t.equal((ints{1} + 1).dtype, "int64")
  t.equal((ints{1} + 1.5).dtype, "float32")
  t.equal((pg.tensor({1}, {dtype = "float16"}) * 2.5).dtype, "float16")
  t.equal(pg.tensor({true}) + 1, ints{2})
  t.bad_argument(function() return ints({1}, "uint8") + 300 end, "add", "y")
  t.equal(ints{1, 3}:lt(2.5), pg.tensor{true, false})
end)

t.test("bools add as or, multiply as and, and are refused by other arithmetic", function()
  local a, b = pg.tensor{true, true, false}, pg.tensor{true, false, false}
  t.equal(a + b, pg.tensor{true, true, false})
  t.equal(a * b, pg.tensor{true, false, false})
  t.equal(a:logical_xor(b), pg.tensor{false, true, false})
  t.equal(a:bitwise_and(b), pg.tensor{true, false, false})
  t.equal(a:bitwise_not(), pg.tensor{false, false, true})
  t.bad_argument(function() return a - b end, "sub", "x")
  t.bad_argument(function() return a:neg() end, "neg", "x")
  t.bad_argument(function() return a:where(1, 2, 3) end)
  t.bad_argument(function() return pg.where(pg.tensor{1}, 1, 2) end, "where", "condition")
  t.bad_argument(function() return pg.tensor{1.5}:bitwise_and(1) end, "bitwise_and", "x")
end)

t.test("an integer divisor of 0 and a negative integer exponent are errors that change nothing", function()
  local x = ints{1, 2, 3}
  t.bad_argument(function() return x:floor_divide(0) end, "floor_divide", "y")
  t.bad_argument(function() return x % ints{1, 0, 1} end, "remainder", "y")
  t.bad_argument(function() return x:fmod_(ints{1, 1, 0}) end, "fmod_", "y")
  t.bad_argument(function() return x ^ -1 end, "pow", "y")
  if t.device ~= "cuda" then t.equal(x, ints{1, 2, 3}) end  -- there fmod_ has written when the error arrives
  t.equal(pg.tensor{1, -1, 0} / 0, pg.tensor{inf, -inf, nan})
  t.equal(pg.tensor{1}:floor_divide(0), pg.tensor{inf})
end)

t.test("special values", function()
  local x = pg.tensor{nan, inf, -inf, -1}
  t.equal(x:exp()[{{1, 3}}], pg.tensor{nan, inf, 0})
  t.equal(x:log(), pg.tensor{nan, inf, nan, nan})
  t.equal(pg.tensor{0}:log(), pg.tensor{-inf})
  t.equal(x:tanh()[{{1, 3}}], pg.tensor{nan, 1, -1})
  t.equal(x:sigmoid()[{{1, 3}}], pg.tensor{nan, 1, 0})
  t.equal(x:erf()[{{1, 3}}], pg.tensor{nan, 1, -1})
  t.equal(x:relu(), pg.tensor{nan, inf, 0, 0})
  t.equal(x:clamp(0, 1), pg.tensor{nan, 1, 0, 0})
  t.equal(x:maximum(0), pg.tensor{nan, inf, 0, 0})
  t.equal(pg.maximum(0, x), pg.tensor{nan, inf, 0, 0})
  t.equal(x:softshrink(), pg.tensor{nan, inf, -inf, -0.5})
  t.equal(x:isnan(), pg.tensor{true, false, false, false})
  t.equal(x:isinf(), pg.tensor{false, true, true, false})
  t.equal(x:isfinite(), pg.tensor{false, false, false, true})
  t.equal(x:sin():isnan(), pg.tensor{true, true, true, false})
  t.equal(pg.tensor{-0.0}:sqrt():reciprocal(), pg.tensor{-inf})
  t.equal(pg.tensor{1e-40}:log():lt(-90), pg.tensor{true})
  t.equal(pg.tensor{0.5, 1.5, 2.5, -0.5}:round(), pg.tensor{0, 2, 2, 0})
  t.equal(pg.tensor{8, 1024, 0.25}:log2(), pg.tensor{3, 10, -2})
  t.equal(pg.tensor({8, 1000}, {dtype = "float64"}):log10()[2], pg.tensor(3, {dtype = "float64"}))
  t.equal(pg.tensor{1, -1, 2}:erfinv(), pg.tensor{inf, -inf, nan})
  t.close(pg.tensor{1e6, 1e10, -3e7}:sin(), {math.sin(1e6), math.sin(1e10), math.sin(-3e7)}, {atol = 1e-6})
end)

local function grad_of(f, v)
  local x = pg.tensor(v):attach_grad()
  pg.record(function() return f(x):sum() end):backward()
  return x.grad
end

t.test("gradients at kinks", function()
  t.equal(grad_of(function(x) return x:abs() end, {-2, 0, 3}), pg.tensor{-1, 0, 1})
  t.equal(grad_of(function(x) return x:relu() end, {-2, 0, 3}), pg.tensor{0, 0, 1})
  t.equal(grad_of(function(x) return x:softshrink() end, {-2, -0.5, 0, 0.5, 2}), pg.tensor{1, 0, 0, 0, 1})
  t.equal(grad_of(function(x) return x:clamp(-1, 1) end, {-2, -1, 0, 1, 2}), pg.tensor{0, 1, 1, 1, 0})
  t.equal(grad_of(function(x) return x:maximum(pg.tensor{0, 0, 0}) end, {-1, 0, 1}), pg.tensor{0, 0.5, 1})
  t.equal(grad_of(function(x) return x:minimum(pg.tensor{0, 0, 0}) end, {-1, 0, 1}), pg.tensor{1, 0.5, 0})
  t.equal(grad_of(function(x) return x:sign() + x:floor() end, {-1.5, 2}), pg.tensor{0, 0})
  t.equal(grad_of(function(x) return x ^ 0 end, {0, 2}), pg.tensor{0, 0})
  t.equal(grad_of(function(x) return 0 ^ x end, {1, 2}), pg.tensor{0, 0})
  t.equal(grad_of(function(x) return pg.where(x:gt(0), x, 0) end, {-1, 1}), pg.tensor{0, 1})
end)

t.test("half precision computes through float32", function()
  for _, dtype in ipairs{"float16", "bfloat16"} do
    local x = pg.linspace(-3, 3, 1001):to(dtype)
    t.equal((x * 2 + 1).dtype, dtype)
    t.equal(x:exp(), x:to("float32"):exp():to(dtype))
    t.equal(x:softshrink(0.25), x:to("float32"):softshrink(0.25):to(dtype))
    t.equal(x:lt(0), x:to("float32"):lt(0))
    t.equal(pg.where(x:lt(0), x, 0), x:to("float32"):clamp{max = 0}:to(dtype) + 0)
  end
end)

t.test("signs of 16-bit numbers change as in float32", function()
  for _, dtype in ipairs{"float16", "bfloat16"} do
    local x = pg.cat{pg.linspace(-3, 3, 1001), pg.tensor{0, -0.0, inf, -inf, 1e-7, -1e-7, 6e4}}:to(dtype)
    local y, wide = x:flip(1), x:to("float32")
    local calls = {
      neg = function(a) return -a end, abs = function(a) return a:abs() end,
      copysign = function(a, b) return a:copysign(b) end, copysign_number = function(a) return a:copysign(-1) end,
      of_number = function(_, b) return pg.copysign(2, b) end,
      strided = function(a) return -a:reshape{16, 63}:t() end,
      broadcast = function(a, b) return a:reshape{16, 63}:copysign(b[{{1, 16}}]:unsqueeze(2)) end,
    }
    for name, f in pairs(calls) do
      local got, expected = f(x, y), f(wide, wide:flip(1))
      t.equal(got.dtype, dtype)
      t.equal(1 / got:to("float32"), 1 / expected, name .. " " .. dtype)  -- 1 / -0 shows the sign
    end
    t.equal(pg.tensor({0 / 0}, {dtype = dtype}):neg():isnan(), pg.tensor{true})
  end
end)

t.test("conversions truncate, saturate and wrap", function()
  t.equal(pg.tensor{1.9, -1.9, nan, 1e20}:to("int32"), ints({1, -1, 0, 2 ^ 31 - 1}, "int32"))
  t.equal(pg.tensor{-5, 300}:to("uint8"), ints({0, 255}, "uint8"))
  t.equal(ints{257, -1}:to("uint8"), ints({1, 255}, "uint8"))
  t.equal(pg.tensor{0, 0.5, nan}:to("bool"), pg.tensor{false, true, true})
  t.equal(pg.tensor{65504, 65520, 1e-8, 6e-8}:to("float16"):to("float32"), pg.tensor{65504, inf, 0, 2 ^ -24})
  local x = pg.tensor({1, 2}):attach_grad()
  pg.record(function() return (x:to("float64") * 3):sum() end):backward()
  t.equal(x.grad, pg.tensor{3, 3})
  t.bad_argument(function() return x:to("float46") end, "to", "dtype")
  t.equal(x:to("cpu").device, "cpu")
end)

t.test("creation", function()
  t.equal(pg.range(1, 5), pg.tensor{1, 2, 3, 4, 5})
  t.equal(pg.range(5, 1, -2), pg.tensor{5, 3, 1})
  t.equal(pg.range(2, 1).shape, {0})
  t.equal(pg.range(0, 1, 0.1):size(1), 11)
  t.equal(pg.linspace(0, 1, 5), pg.tensor{0, 0.25, 0.5, 0.75, 1})
  t.equal(pg.linspace(3, 4, 1), pg.tensor{3})
  t.equal(pg.eye(2, 3), pg.tensor{{1, 0, 0}, {0, 1, 0}})
  t.equal(pg.full({2}, 7, {dtype = "int32"}), ints({7, 7}, "int32"))
  t.equal(pg.zeros{}, pg.tensor(0))
  t.equal(pg.ones(2, {dtype = "bool"}), pg.tensor{true, true})
  t.equal(pg.full_like(ints{1, 2}, 3), ints{3, 3})
  t.equal(pg.zeros_like(pg.ones(0, 3)).shape, {0, 3})
  t.equal(pg.ones_like(ints{1}, {dtype = "float64"}).dtype, "float64")
  t.bad_argument(function() return pg.range(1, 5, 0) end, "range", "step")
  t.bad_argument(function() return pg.range(1, nan) end, "range", "stop")
  t.bad_argument(function() return pg.full({2}, 1.5, {dtype = "int32"}) end, "full", "value")
  t.bad_argument(function() return pg.zeros(-1) end, "zeros", "shape")
end)

t.test("errors of broadcasting name the shapes that do not fit", function()
  local e = t.bad_argument(function() return pg.zeros(2, 3) + pg.zeros(2) end, "add", "y")
  t.check(e:find("2x3", 1, true), e)
end)

t.test("in-place methods keep other tensors as they were", function()
  local x = pg.tensor{1, 2, 3}
  local y = x:reshape(3)
  x:add_(1):mul_(2)
  t.equal(x, pg.tensor{4, 6, 8})
  t.equal(y, pg.tensor{1, 2, 3})
end)

t.test("assert returns its condition or raises its message", function()
  local x = pg.tensor{1, 2}
  t.equal(pg.assert(x:gt(0), "not positive"), pg.tensor{true, true})
  t.error_contains(function() pg.assert(x:gt(1), "not above 1") end, "assert: not above 1")
  t.equal(pg.assert(pg.zeros(0)).shape, {0})
end)

t.test("gelu keeps its digits below zero, in both forms", function()
  local x = pg.linspace(-5, 5, 1001)
  local wide = x:to("float64")
  local exact = wide * 0.5 * (wide * -math.sqrt(0.5)):erfc()
  local inner = (wide + wide ^ 3 * 0.044715) * math.sqrt(2 / math.pi)
  t.close(x:gelu():to("float64"), exact, {rtol = 4e-6, atol = 0})
  t.close(x:gelu("tanh"):to("float64"), wide * (inner * 2):sigmoid(), {rtol = 4e-6, atol = 0})
  t.equal(pg.tensor{inf, 100, -100, 0}:gelu(), pg.tensor{inf, 100, 0, 0})
  for _, dtype in ipairs{"float32", "float64"} do t.equal(pg.tensor({-inf}, {dtype = dtype}):gelu():item(), 0) end
  t.check(pg.tensor{nan}:gelu():isnan():item())
end)

t.test("a row or column added to a matrix equals the sum of the expanded ones, whatever the dtypes", function()
  local x, row, column = pg.randn(7, 300), pg.randn(300), pg.randn(7, 1)
  t.equal(x + row, x + row:expand(7, 300):contiguous())
  t.equal(x + column, x + column:expand(7, 300):contiguous())
  t.equal(row - x, row:expand(7, 300):contiguous() - x)
  t.equal(x:to("float64") * row, x:to("float64") * row:expand(7, 300):contiguous():to("float64"))
  t.equal(x[{{2, 7}, {5, 290}}] + column[{{2, 7}}], (x + column)[{{2, 7}, {5, 290}}]:contiguous())
end)

t.test("the bits of a power do not depend on how the exponent is given", function()
  for _, dtype in ipairs{"float32", "float64"} do
    local x = pg.tensor({-0.0, 0, -math.huge, math.huge, 0 / 0, 2, 3.3, -1.7, 1e-20}, {dtype = dtype})
    for _, e in ipairs{0.5, 2, 3, -1, -0.5, 1, 0, 4, 0.3} do
      local function full(v) return v ^ pg.full({9}, e, {dtype = dtype}) end
      local function single(v) return v ^ pg.full({}, e, {dtype = dtype}) end
      local expected = x ^ e
      local function number(v) return v ^ e end
      for name, y in pairs{full = full(x), single = single(x), jit_full = pg.jit(full)(x),
          jit_single = pg.jit(single)(x), jit_number = pg.jit(number)(x)} do
        t.equal(tostring(y), tostring(expected), name .. " " .. e)
        t.equal(tostring(1 / y), tostring(1 / expected), name .. " " .. e)
      end
    end
  end
end)

t.test("large results are those of their parts", function()
  t.skip_in("device", "more memory than the device has")
  local n, half = 2 ^ 22 + 11, 2 ^ 21 + 3
  local x, y = pg.rand(n) - 0.5, pg.rand(n) - 0.5
  local ops = {
    function(a, b) return a + b end, function(a, b) return a * 0.5 - b end, function(a) return a:relu() end,
    function(a, b) return a:lt(b) end, function(a, b) return pg.where(a:lt(b), a, b) end, function(a) return a:exp() end,
    function(a) return a:abs() ^ 0.3 end, function(a) return (a * 100):to("int32") + 1 end,
  }
  for i, op in ipairs(ops) do
    for name, f in pairs{eager = op, jit = pg.jit(op)} do
      local whole = f(x, y)
      for _, part in ipairs{{1, half}, {half + 1, n}} do
        t.equal(whole[{part}]:equal(op(x[{part}]:contiguous(), y[{part}]:contiguous())), true, name .. i)
      end
    end
  end
  local sum = x + y
  t.equal(x:add_(y):equal(sum), true)
end)

-- The memory of b takes w, whose elements have another size.
t.test("fused ops read views with gaps in place", function()
  local function cell(i, f, g, o, c)
    local state = f:sigmoid() * c + i:sigmoid() * g:tanh()
    return {o:sigmoid() * state:tanh(), state}
  end
  for _, shape in ipairs{{32, 512}, {3, 700}, {40, 130}, {50, 60}, {2, 5, 256}, {1, 4096}} do
    local wide = {unpack(shape)}
    wide[#wide] = 4 * wide[#wide]
    local gates, c, column = pg.rand(unpack(wide)) * 4 - 2, pg.rand(unpack(shape)), pg.rand(shape[#shape - 1], 1)
    local step = pg.jit(function(x, y) return cell(x:chunk(4, -1)[1], x:chunk(4, -1)[2], x:chunk(4, -1)[3], x:chunk(4, -1)[4], y) end)
    local scaled = pg.jit(function(x, y, z) return (x:chunk(4, -1)[2] * z + y):exp() end)
    local summed = pg.jit(function(x, y) return (x:chunk(4, -1)[3] * y):exp():sum(-1) end)
    local parts = gates:chunk(4, -1)
    for k = 1, 4 do parts[k] = parts[k]:contiguous() end
    local expected, results = cell(parts[1], parts[2], parts[3], parts[4], c), step(gates, c)
    t.check(results[1]:equal(expected[1]) and results[2]:equal(expected[2]), "a cell of " .. table.concat(shape, "x"))
    t.check(scaled(gates, c, column):equal((parts[2] * column + c):exp()), "a column")
    t.check(summed(gates, c):equal((parts[3] * c):exp():sum(-1)), "a sum")
    t.check(scaled(gates, c:transpose(-1, -2):contiguous():transpose(-1, -2), column):equal((parts[2] * column + c):exp()), "a transpose")
  end
end)

t.test("a value takes no memory of another one with elements of another size", function()
  local function f(x, y)
    local b, e = (x * 2 + y - x * y):gt(y), x:exp()
    local w = pg.where(b, e, y) * y + x
    return w:exp() * w
  end
  pg.manual_seed(1)
  local x, y = pg.randn{640}, pg.randn{640}
  t.equal(pg.jit(f)(x, y):equal(f(x, y)), true)
end)

t.test("pow at special values is C's, however the exponent comes", function()
  local specials = {0, -0.0, 1, -1, inf, -inf, nan, 2, -2, 0.5, -0.5, 3, -3, 1.5, 0.25}
  specials[2] = -1 / inf
  local function check(got, y, what)
    local error = got.dtype == "float16" and 1e-3 or 1e-6
    for k, v in ipairs(got:double():totable()) do
      local x = specials[(k - 1) % #specials + 1]
      local want = x ^ y
      local same = v ~= v and want ~= want or math.abs(v - want) <= error * math.abs(want) or v == want
      t.check(same and (want ~= 0 or 1 / v == 1 / want), ("%s: %g ^ %g: got %g, expected %g"):format(what, x, y, v, want))
    end
  end
  for _, dtype in ipairs{"float32", "float64", "float16"} do
    local x = pg.tensor(specials, {dtype = dtype}):tile{dtype == "float32" and 100 or 1}
    for _, y in ipairs(specials) do
      local by_number = function(v) return v ^ y end
      check(x ^ pg.full_like(x, y), y, dtype .. " tensor")
      check(by_number(x), y, dtype .. " number")
      check(pg.jit(by_number)(x), y, dtype .. " jit")
      check(pg.jit(function(v) return (v * 0.5 + v * 0.5) ^ y * 0.5 end)(x) * 2, y, dtype .. " fused")
    end
  end
  local x = pg.tensor({-inf, 4, 0}):attach_grad()
  pg.record(function() return (x ^ 1.5):sum() end):backward()
  t.equal(x.grad:totable(), {inf, 3, 0})
  pg.record(function() return (x ^ 0.5):sum() end):backward()
  t.equal(x.grad:totable(), {0, 0.25, inf})
end)

t.test("graphs divide by powers of 2 exactly", function()
  local numbers = {0, -1 / inf, 1, -3, 1 / 3, -5e-8, 6e4, 3.4e38, 1e-38, -1e-44, inf, -inf, nan}
  for _, dtype in ipairs{"float32", "float64", "float16", "bfloat16"} do
    local x = pg.tensor(numbers, {dtype = "float64"}):to(dtype):tile{50}
    for k = -18, 18, 3 do
      for _, divisor in ipairs{2 ^ k, -2 ^ k} do
        local want = (x / divisor):double():totable()
        local got = pg.jit(function(v) return (v / divisor):relu() - (-(v / divisor)):relu() end)(x):double():totable()
        local alone = pg.jit(function(v) return v / divisor end)(x):double():totable()
        for i, w in ipairs(want) do
          local both_nan = w ~= w and alone[i] ~= alone[i]
          t.check(both_nan or (w == alone[i] and 1 / w == 1 / alone[i] and got[i] == w), dtype .. " " .. divisor)
        end
      end
    end
  end
end)

t.test("graphs read bytes as floats", function()
  local scaled = pg.jit(function(u, row) return u:to("float32") * 0.5 + row end)
  local doubled = pg.jit(function(u) return (u + u):to("float32") * 0.5 end)
  local summed = pg.jit(function(u) return (u:to("float32") * 0.5):sum() end)
  for _, n in ipairs{1, 2, 15, 16, 17, 129, 700, 5000} do
    local bytes, want, twice, sum = {}, {}, {}, 0
    for i = 1, n do
      bytes[i] = i * 7 % 256
      want[i], twice[i] = {bytes[i] * 0.5 + 1, bytes[i] * 0.5 - 2}, bytes[i] * 2 % 256 * 0.5
      sum = sum + bytes[i] * 0.5
    end
    local u = ints(bytes, "uint8")
    t.equal(scaled(u:unsqueeze(2), pg.tensor{1, -2}):totable(), want, n)
    t.equal(doubled(u):totable(), twice, n)
    t.equal(summed(u):item(), sum, n)
    t.equal(pg.jit(function(v) return v:to("float32") end)(u):totable(), bytes, n)
    t.equal(pg.jit(function(v) return v:to("float16") * 1 end)(u):totable(), bytes, n)
  end
end)

t.test("an optional attribute that is not given sets no limit", function()
  for _, dtype in ipairs{"float64", "float32", "float16", "bfloat16"} do
    local x = pg.tensor({-1, 2, 0, 1, 0.5}, {dtype = dtype})
    local function logit(v) return v:logit() end
    for _, f in ipairs{logit, pg.jit(logit), pg.jit(function(v) return logit(v + 0) end)} do
      local y = f(x):totable()
      t.check(y[1] ~= y[1] and y[2] ~= y[2])
      t.equal({y[3], y[4], y[5]}, {-math.huge, math.huge, 0})
    end
    t.equal(x:logit(0):totable(), {-math.huge, math.huge, -math.huge, math.huge, 0})
  end
end)
