-- Random numbers are reproducible, independent and correctly distributed; dropout and its gradient.
local t = require "tests.support"
local pg = require "perigee"

local function draws() return {pg.rand(5), pg.randn{2, 3}, pg.randint(1, 6, {4}), pg.randperm(7), pg.bernoulli(pg.full({9}, 0.5))} end

t.test("the same seed gives the same numbers", function()
  pg.manual_seed(42)
  local a = draws()
  pg.manual_seed(42)
  local b = draws()
  pg.manual_seed(43)
  local c = draws()
  for i, x in ipairs(a) do t.equal(x, b[i]) end
  t.check(not a[1]:equal(c[1]))
  t.check(not pg.rand(5):equal(pg.rand(5)), "two calls draw different numbers")
end)

t.test("a separate generator does not change the default one", function()
  pg.manual_seed(1)
  local expected = pg.rand(3)
  pg.manual_seed(1)
  local g = pg.Generator(1)
  t.equal(pg.rand(3, {generator = g}), expected)
  t.equal(pg.rand(3), expected)
end)

t.test("moments and ranges", function()
  pg.manual_seed(7)
  for _, dtype in ipairs{"float32", "float64", "float16", "bfloat16"} do
    local u, z = pg.rand(100000, {dtype = dtype}):to("float64"), pg.randn(100000, {dtype = dtype}):to("float64")
    t.check(u:min():item() >= 0 and u:max():item() < 1, "range of " .. dtype)
    t.close(u:mean():item(), 0.5, {atol = 0.01})
    t.close(z:mean():item(), 0, {atol = 0.02})
    t.close(z:var():item(), 1, {atol = 0.03})
  end
  local d = pg.randint(-2, 2, {50000})
  t.equal(d:min():item(), -2)
  t.equal(d:max():item(), 2)
  t.close(d:mean():item(), 0, {atol = 0.05})
  t.equal(pg.randint(3, 3, {2}), pg.tensor({3, 3}, {dtype = "int64"}))
  t.equal(pg.rand_like(pg.ones(2, 3)).shape, {2, 3})
  t.equal(pg.rand{}:dim(), 0)
  t.equal(pg.randn(0, 2).shape, {0, 2})
end)

t.test("permutations count from index_base", function()
  t.equal(pg.randperm(100):sort(), pg.range(1, 100, {dtype = "int64"}))
  t.equal(pg.randperm(3, {index_base = 0}):sum():item(), 3)
  t.equal(pg.randperm(0).shape, {0})
end)

t.test("multinomial without replacement takes each element once, and the heavy ones first", function()
  for _, n in ipairs{1, 7, 100, 3000} do
    local p = pg.range(0, 2999) % 5
    local order = pg.multinomial(p:gt(0):to("float32"):expand(3, 3000), math.min(n, 2400))
    for row = 1, 3 do
      t.equal(order[row]:unique():numel(), math.min(n, 2400))
      t.check(p:index_select(1, order[row]):gt(0):all():item(), "an element of weight 0")
    end
  end
  t.equal(pg.multinomial(pg.ones(50), 50):sort(), pg.range(1, 50, {dtype = "int64"}))
  local heavy = pg.ones(2000):mul(1e-6)
  heavy[77] = 1
  local first = pg.multinomial(heavy:expand(200, 2000), 2):select(2, 1)
  t.check(first:eq(77):count_nonzero():item() > 190)
end)

t.test("multinomial", function()
  local p = pg.tensor{{0, 1, 3}, {1, 0, 0}}
  local drawn = pg.multinomial(p, 2000, {replacement = true})
  t.equal(drawn.shape, {2, 2000})
  t.equal(drawn[2]:eq(1):all():item(), true)
  t.close(drawn[1]:eq(3):to("float32"):mean():item(), 0.75, {atol = 0.05})
  t.equal(pg.multinomial(pg.tensor{1, 0, 2}, 2):sum():item(), 4)
  t.bad_argument(function() return pg.multinomial(pg.tensor{1, 0, 2}, 3) end, "multinomial", "p")
  t.bad_argument(function() return pg.multinomial(pg.tensor{1, -1}, 1) end, "multinomial", "p")
  t.bad_argument(function() return pg.multinomial(pg.tensor{1, 1}, 3) end, "multinomial", "n")
  t.bad_argument(function() return pg.multinomial(pg.tensor{0, 0}, 1, {replacement = true}) end, "multinomial", "p")
end)

t.test("wrong arguments", function()
  t.bad_argument(function() return pg.randint(6, 1, {2}) end, "randint", "high")
  t.bad_argument(function() return pg.randint(0, 300, {2}, {dtype = "uint8"}) end, "randint", "high")
  t.bad_argument(function() return pg.rand(2, {dtype = "int32"}) end, "rand", "dtype")
  t.bad_argument(function() return pg.bernoulli(pg.tensor{1.5}) end, "bernoulli", "p")
  t.bad_argument(function() return pg.ones(2):dropout(1.5) end, "dropout", "p")
  t.bad_argument(function() return pg.rand_like(pg.tensor({1}, {dtype = "int64"})) end, "rand_like", "dtype")
end)

t.test("dropout follows the mode, keeps the mean, and its gradient has the same mask", function()
  local x = pg.ones(10000)
  t.equal(x:dropout(0.5), x)
  local y = pg.train_mode(function() return x:dropout(0.25) end)
  t.close(y:mean():item(), 1, {atol = 0.05})
  t.equal(x:dropout(1, true), pg.zeros(10000))
  x:attach_grad()
  local z = pg.record(function() return x:dropout(0.5) end)
  z:backward()
  t.equal(x.grad, z:detach())
  t.equal(pg.predict_mode(function() return x:dropout(0.5) end):equal(x), true)
end)

t.test("randperm is the Fisher-Yates shuffle of the bits that randint draws, short and long", function()
  for _, n in ipairs{1, 2, 17, 1000, 32768, 32769, 65600} do
    pg.manual_seed(n)
    local bits = pg.randint(0, 2 ^ 53 - 1, {n}):totable()
    local expected = {}
    for i = 1, n do expected[i] = i end
    for i = n, 2, -1 do
      local j = math.floor(bits[i] * (i / 2 ^ 53)) + 1
      expected[i], expected[j] = expected[j], expected[i]
    end
    for _, dtype in ipairs{"int64", "int32", "float64"} do
      pg.manual_seed(n)
      t.equal(pg.randperm(n, {dtype = dtype}), pg.tensor(expected, {dtype = dtype}), dtype .. " " .. n)
    end
  end
end)
