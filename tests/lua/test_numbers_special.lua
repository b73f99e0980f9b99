-- Values and gradients near poles and roots, far tails, and bounds that a dtype cannot hold. Expected numbers are from
-- formulas, or computed with 60 digits.
local pg = require "perigee"
local t = require "tests.support"

local function gradient(f, x)
  x = x:detach():attach_grad()
  pg.record(function() return f(x):sum() end):backward()
  return x.grad
end
local function near(got, expected, tolerance)
  for i, v in ipairs(got:reshape{-1}:totable()) do
    local want = expected[i]
    t.check(math.abs(v - want) <= (tolerance or 1e-6) * math.abs(want), ("element %d: %.9g, expected %.9g"):format(i, v, want))
  end
end
local function float64(list) return pg.tensor(list, {dtype = "float64"}) end

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
