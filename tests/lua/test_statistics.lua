-- Medians, quantiles, modes, histograms and reductions without NaN: values (PyTorch's), NaN, ties, empty dims, dtypes.
local t = require "tests.support"
local pg = require "perigee"

local function int(list, dtype) return pg.tensor(list, {dtype = dtype or "int64"}) end
local inf, nan = math.huge, 0 / 0

local function is_nan(x) return x:isnan():all():item() end

t.test("median: the lower of two, NaN wins, the first NaN is its index", function()
  t.equal(pg.tensor({3, 1, 2, 5}):median():item(), 2)
  t.equal(int({4, 1, 3}, "int8"):median():item(), 3)
  t.equal(int({4, 1, 3}, "int8"):median().dtype, "int8")
  local values, indices = pg.tensor({{3, 1, 2, 5}, {1, nan, 0, nan}}):median(2)
  t.equal(values[1]:item(), 2)
  t.check(is_nan(values[2]))
  t.equal(indices:totable(), {3, 2})
  t.equal(pg.tensor({{3, 1}, {0, 2}}):median{dim = 1, keepdim = true, index_base = 0}:totable(), {{0, 1}})
  t.equal(select(2, pg.tensor({{3, 1}, {0, 2}}):median{dim = 1, keepdim = true, index_base = 0}):totable(), {{1, 0}})
  t.equal(pg.tensor({1, nan, 3, nan}):nanmedian():item(), 1)
  local v, at = pg.tensor({{1, nan, 3, 4}, {nan, nan, nan, nan}}):nanmedian(2)
  t.equal(v[1]:item(), 3)
  t.check(is_nan(v[2]))
  t.equal(at:totable(), {3, 1})
  t.equal(pg.tensor(7):median():item(), 7)
  t.equal(pg.tensor({inf, -inf, 2}):median():item(), 2)
end)

t.test("median of nothing", function()
  t.check(is_nan(pg.zeros{0}:median()))
  t.check(is_nan(pg.zeros{3, 0}:nanmedian()))
  t.equal(pg.zeros{3, 0}:median(1).shape, {0})
  t.error_contains(function() pg.zeros{0, 3}:median(1) end, "median: bad argument 'x' (expected at least one element in the reduced dims")
  t.error_contains(function() pg.zeros({0}, {dtype = "int64"}):median() end, "median: bad argument 'x' (expected at least one element")
  t.error_contains(function() pg.tensor({true}):median() end, "median: bad argument 'x' (expected a tensor of a numeric dtype, got bool 1")
end)

t.test("gradients of medians: ties share without dim, the index gets all with dim", function()
  local x = pg.tensor({2, 1, 2, 5}):attach_grad()
  pg.record(function() return x:median() end):backward()
  t.equal(x.grad:totable(), {0.5, 0, 0.5, 0})
  pg.record(function() return (x:median(1)) end):backward()
  t.equal(x.grad:totable(), {1, 0, 0, 0})
  local y = pg.tensor({nan, 1, nan}):attach_grad()
  pg.record(function() return y:median() end):backward()
  t.equal(y.grad:totable(), {0.5, 0, 0.5})
end)

t.test("selected elements are those of the sorted lines", function()
  local whole = pg.randint(-20, 21, {5, 301})
  local spread = (pg.randn(5, 301) * 8):exp() * pg.randint(-1, 2, {5, 301}):float()
  local holes = pg.where(whole:gt(5), nan, spread)
  for _, x in ipairs{whole, whole:to("int8"), spread, spread:double(), spread:to("float16"), holes, holes:double(),
    pg.where(whole:eq(20), 0, nan), pg.where(spread:lt(0), -inf, inf), spread:t()} do
    for dim = 1, 2 do
      local values, indices = x:sort(dim)
      local n = x.shape[dim]
      for _, k in ipairs{1, 2, 5, n} do
        local v, i = x:kthvalue(k, dim)
        t.equal(v, values:select(dim, k))
        t.equal(i, indices:select(dim, k))
      end
      local nans = x:isnan():sum(dim, true)
      local function check(place, v, i)
        t.equal(v, values:gather(dim, place):squeeze(dim))
        t.equal(i, indices:gather(dim, place):squeeze(dim))
      end
      check(pg.where(nans:gt(0), n + 1 - nans, math.floor((n + 1) / 2)), x:median(dim))
      check((n - 1 - nans):maximum(0):floor_divide(2) + 1, x:nanmedian(dim))
      if x.dtype == "float32" or x.dtype == "float64" then
        for _, how in ipairs{"linear", "lower", "higher", "midpoint", "nearest"} do
          for _, q in ipairs{0, 0.3, 0.5, 1} do
            local by_sorting = x:quantile(pg.tensor({q}, {dtype = "float64"}), {dim = dim, interpolation = how})
            t.equal(x:quantile(q, {dim = dim, interpolation = how}), by_sorting:squeeze(1))
          end
        end
      end
    end
  end
end)

t.test("kthvalue", function()
  local x = pg.tensor({{3, nan, 1}, {4, 6, 5}})
  local values, indices = x:kthvalue(2)
  t.equal(values:totable(), {3, 5})
  t.equal(indices:totable(), {1, 3})
  local last, at = x:kthvalue{k = 3, keepdim = true}
  t.check(is_nan(last[1]))
  t.equal(at:totable(), {{2}, {2}})
  t.equal(pg.tensor(3):kthvalue(1):item(), 3)
  t.error_contains(function() x:kthvalue(4) end, "kthvalue: bad argument 'k' (expected at most the 3 positions of the dim, got 4)")
  t.error_contains(function() x:kthvalue(0) end, "kthvalue: bad argument 'k' (expected a whole number of at least 1, got 0)")
  t.error_contains(function() pg.zeros(2, 0):kthvalue(1) end, "kthvalue: bad argument 'x'")
end)

t.test("mode: the smallest of the most frequent, its last occurrence", function()
  for _, case in ipairs{{{3, 1, 1, 3, 2}, 1, 3}, {{2, 2, 1, 1}, 1, 4}, {{5}, 5, 1}, {{7, 7, 7}, 7, 3}} do
    local value, index = int(case[1]):mode()
    t.equal(value:item(), case[2])
    t.equal(index:item(), case[3])
  end
  local value, index = pg.tensor({nan, nan, 1, 2, 2}):mode()
  t.equal(value:item(), 2)
  t.equal(index:item(), 5)
  t.equal(pg.tensor({true, false, true}):mode():item(), true)
  t.equal(int({{1, 2}, {1, 3}, {4, 3}}):mode(1):totable(), {1, 3})
  t.equal(pg.zeros{3, 0}:mode(1).shape, {0})
  t.error_contains(function() pg.zeros{3, 0}:mode() end, "mode: bad argument 'x' (expected at least one element in the reduced dims")
end)

t.test("quantile: interpolations", function()
  local x = pg.tensor({3, 1, 2, 4})
  local want = {linear = 1.9, lower = 1, higher = 2, midpoint = 1.5, nearest = 2}
  for how, value in pairs(want) do t.close(x:quantile(0.3, {interpolation = how}):item(), value, {what = how}) end
  t.equal(x:quantile(0.5, {interpolation = "nearest"}):item(), 3)  -- 1.5 to the even place
  t.equal(x:quantile(0):item(), 1)
  t.equal(x:quantile(1):item(), 4)
  t.close(x:quantile(pg.tensor({0.5, 0.25})), pg.tensor({2.5, 1.75}))
end)

t.test("quantile: shapes", function()
  local x, q = pg.zeros(2, 3, 4), pg.tensor({0.1, 0.2, 0.3, 0.4, 0.5})
  t.equal(x:quantile(0.5).shape, {})
  t.equal(x:quantile(0.5, 2).shape, {2, 4})
  t.equal(x:quantile(0.5, 2, true).shape, {2, 1, 4})
  t.equal(x:quantile(0.5, {keepdim = true}).shape, {1, 1, 1})
  t.equal(x:quantile(q).shape, {5})
  t.equal(x:quantile(q, 3).shape, {5, 2, 3})
  t.equal(x:quantile(q, 1, true).shape, {5, 1, 3, 4})
  t.equal(x:quantile(pg.tensor(0.5), 1).shape, {3, 4})
  t.equal(x:quantile(pg.zeros{0}, 1).shape, {0, 3, 4})
  t.equal(pg.tensor(3):quantile(0.3, 1):item(), 3)
  local y = pg.range(1, 6):view(2, 3)
  t.equal(y:quantile(pg.tensor({0, 1}), 1):totable(), {{1, 2, 3}, {4, 5, 6}})
end)

t.test("quantile: NaN, infinities, dtypes, errors", function()
  t.check(is_nan(pg.tensor({1, nan}):quantile(0)))
  t.check(is_nan(pg.tensor({nan, nan}):nanquantile(0.5)))
  t.equal(pg.tensor({2, nan, 4, 5}):nanquantile(pg.tensor({0.5, 0.25})):totable(), {4, 3})
  t.equal(pg.tensor({1, inf, inf}):quantile(0.75):item(), inf)
  t.equal(pg.tensor({1, inf}):quantile(0.75):item(), inf)
  t.equal(pg.tensor({-inf, 1}):quantile(0.25):item(), -inf)
  t.equal(pg.tensor({1, 2, 4}):half():quantile(0.25).dtype, "float16")
  t.equal(pg.tensor({1, 2, 4}):half():quantile(0.25):item(), 1.5)
  t.equal(pg.tensor({1, 2, 4}):double():quantile(0.25).dtype, "float64")
  t.check(is_nan(pg.tensor({1, 2}):quantile(pg.tensor({1.5, -0.5, nan}))))
  t.error_contains(function() pg.tensor({1, 2}):quantile(1.5) end, "quantile: bad argument 'q' (expected a number from 0 to 1, got number 1.5)")
  t.error_contains(function() pg.zeros(2, 0):quantile(0.5, 1) end, "quantile: bad argument 'x' (expected at least one element")
  t.error_contains(function() int({1, 2}):quantile(0.5) end, "quantile: bad argument 'x' (expected a tensor of a floating dtype")
  t.error_contains(function() pg.ones(2):quantile(pg.ones(1, 1)) end, "quantile: bad argument 'q' (expected a number or at most 1 dim")
end)

t.test("nansum and nanmean", function()
  local x = pg.tensor({{1, nan, 2}, {nan, nan, nan}})
  t.equal(x:nansum():item(), 3)
  t.equal(x:nansum(2):totable(), {3, 0})
  local means = x:nanmean(2, true)
  t.equal(means[1]:item(), 1.5)
  t.check(is_nan(means[2]))
  t.equal(int({1, 2}, "int8"):nansum().dtype, "int64")
  t.equal(pg.tensor({true, true}):nansum():item(), 2)
  t.equal(pg.full({3}, 60000):half():nanmean():item(), 60000)
  t.error_contains(function() int({1}):nanmean() end, "nanmean: bad argument 'x'")
  local y = pg.tensor({1, nan, 3}):attach_grad()
  pg.record(function() return y:nanmean() end):backward()
  t.equal(y.grad:totable(), {0.5, 0, 0.5})
end)

t.test("nansum of rows, columns and views is the sum with 0 for NaN, and so are its gradients", function()
  for _, dtype in ipairs{"float64", "float32", "float16"} do
    for _, shape in ipairs{{1000}, {3, 700}, {700, 3}, {260, 65}, {5, 4, 33}} do
      local x = pg.randn{unpack(shape)}:to(dtype)
      x = pg.where(x:gt(1), nan, x)
      local filled = pg.where(x:isnan(), 0, x)
      t.close(x:nansum(), filled:sum())
      for d = 1, #shape do
        t.equal(x:nansum(d):totable(), filled:sum(d):totable())
        t.equal(x:transpose(1, d):nansum(1):totable(), filled:transpose(1, d):sum(1):totable())
      end
      t.equal(pg.jit(function(v) return (v * 2):nansum(-1) end)(x):totable(), (filled * 2):sum(-1):totable())
    end
  end
  local x = pg.tensor({{1, nan}, {inf, 2}}):attach_grad()
  pg.record(function() return (x:nansum(1) * pg.tensor{3, 4}):sum() end):backward()
  t.equal(x.grad:totable(), {{3, 0}, {3, 4}})
  t.equal(pg.zeros(0, 3):nansum(1):totable(), {0, 0, 0})
  t.equal(pg.tensor(nan):nansum():item(), 0)
  t.equal(int({{1, 2}, {3, 4}}, "uint8"):nansum(1):totable(), {4, 6})
end)

t.test("aminmax, var_mean, std_mean", function()
  local x = pg.tensor({{3, 1}, {nan, 2}})
  local low, high = x:aminmax(2)
  t.equal({low[1]:item(), high[1]:item()}, {1, 3})
  t.check(is_nan(low[2]) and is_nan(high[2]))
  t.equal(select(2, pg.ones(2, 3):aminmax{dim = 1, keepdim = true}).shape, {1, 3})
  t.equal(select(2, int({4, 7}):aminmax()):item(), 7)
  t.error_contains(function() pg.zeros(2, 0):aminmax(2) end, "aminmax: bad argument 'x'")
  t.error_contains(function() pg.zeros(0):aminmax() end, "aminmax: bad argument 'x'")
  local y = pg.tensor({1, 2, 4})
  local variance, mean = y:var_mean()
  t.close({variance, mean}, {y:var(), y:mean()})
  local deviation, m = y:std_mean{dim = 1, correction = 0, keepdim = true}
  t.close({deviation, m}, {y:std{dim = 1, correction = 0, keepdim = true}, y:mean(1, true)})
end)

t.test("histc counts elements between exact edges", function()
  for _, dtype in ipairs{"float64", "float32"} do
    for _, range in ipairs{{10, 0, 1}, {7, -3, 3}, {1, -1, 1}, {100, -0.1, 0.3}, {1000, 1e-40, 1e-39}, {5000, 1, 1 + 1e-6}} do
      local bins, low, high = unpack(range)
      local x = pg.cat({pg.randn(5000):to(dtype) * (high - low) + low, pg.tensor({low, high, nan, inf, -inf}, {dtype = dtype})}, 1)
      local steps = pg.linspace(low, high, bins + 1, {dtype = dtype})
      x = pg.cat({x, steps}, 1)
      local counts = x:histc(bins, low, high)
      t.equal(counts:sum():item(), pg.logical_and(x:ge(low), x:le(high)):sum():item())
      -- in a graph and eagerly, and of one element at a time
      t.equal(pg.jit(function(v) return v:histc(bins, low, high) end)(x):totable(), counts:totable())
      if bins <= 100 then
        local one = pg.zeros_like(counts)
        for i = 1, #x, 97 do one = one + x[{{i, i}}]:histc(bins, low, high) end
        t.equal(x[{{1, -1, 97}}]:histc(bins, low, high):totable(), one:totable())
      end
    end
  end
end)

t.test("histc", function()
  t.equal(pg.tensor({1, 2, 3}):histc(3):totable(), {1, 1, 1})
  t.equal(pg.tensor({1, 1}):histc(4):totable(), {0, 0, 2, 0})
  t.equal(pg.tensor({1, 2, nan, 5}):histc(3, 0, 4):totable(), {1, 1, 0})
  t.equal(pg.tensor({1, 2}):histc(3, 2, 2):totable(), {1, 0, 1})
  t.equal(pg.tensor({1, 2}):half():histc(3).dtype, "float16")
  t.equal(pg.zeros{0}:histc(3):totable(), {0, 0, 0})
  t.equal(pg.range(0, 1, 0.1):histc(10, 0, 1):sum():item(), 11)
  t.equal(pg.range(1, 100):histc().shape, {100})
  t.equal(pg.tensor({1, nan}):histc(2):totable(), {0, 1})
  t.error_contains(function() pg.ones(2):histc(3, 4, 1) end, "histc: bad argument 'max' (expected a finite number of at least min, 4, got 1")
  t.error_contains(function() pg.ones(2):histc(0) end, "histc: bad argument 'bins'")
end)

t.test("bucketize", function()
  local edges = pg.tensor({1, 3, 5})
  t.equal(pg.tensor({3, 1, 9, nan}):bucketize(edges):totable(), {2, 1, 4, 4})
  t.equal(int({3, 1, 9}):bucketize(edges, true):totable(), {3, 2, 4})
  t.equal(pg.bucketize(3, edges):item(), 2)
  t.equal(int({{3}}):bucketize(edges, {index_base = 0}):totable(), {{1}})
  t.error_contains(function() pg.bucketize(3, pg.ones(1, 3)) end, "bucketize: bad argument 'boundaries' (expected 1 dims")
end)

t.test("unique_consecutive", function()
  local values, inverse, counts = int({3, 1, 3, 3, 1}):unique_consecutive{return_inverse = true, return_counts = true}
  t.equal(values:totable(), {3, 1, 3, 1})
  t.equal(inverse:totable(), {1, 2, 3, 3, 4})
  t.equal(counts:totable(), {1, 1, 2, 1})
  local rows, place, count = int({{1, 1}, {1, 1}, {2, 1}}):unique_consecutive{dim = 1, return_inverse = true, return_counts = true}
  t.equal(rows:totable(), {{1, 1}, {2, 1}})
  t.equal(place:totable(), {1, 1, 2})
  t.equal(count:totable(), {2, 1})
  t.equal(pg.tensor({nan, nan}):unique_consecutive():numel(), 2)
  t.equal(pg.zeros{0}:unique_consecutive().shape, {0})
  local one, at = pg.tensor(3):unique_consecutive(true)
  t.equal(one:totable(), {3})
  t.equal(at.shape, {})
end)

t.test("logcumsumexp", function()
  local x = pg.tensor({-inf, -inf, 1, 2, inf, 3, nan, 1})
  local y = x:logcumsumexp(1):totable()
  t.equal({y[1], y[2], y[5], y[6]}, {-inf, -inf, inf, inf})
  t.close({y[3], y[4]}, {1, 2.3132617})
  t.check(y[7] ~= y[7] and y[8] ~= y[8])
  t.close(pg.tensor({1000, 1000, -1000}):logcumsumexp(1), pg.tensor({1000, 1000.6931472, 1000.6931472}))
  t.close(pg.tensor({-1000, 1000}):logcumsumexp(1), pg.tensor({-1000, 1000}))
  t.equal(pg.zeros{0, 2}:logcumsumexp(1).shape, {0, 2})
  t.equal(pg.tensor(3):logcumsumexp(1):item(), 3)
  local z = pg.tensor({-inf, 1, 1000, 3}):attach_grad()
  pg.record(function() return z:logcumsumexp(1):sum() end):backward()
  t.close(z.grad:narrow(1, 2, 3), pg.tensor({1, 2, 0}))
  t.error_contains(function() int({1}):logcumsumexp(1) end, "logcumsumexp: bad argument 'x'")
  t.equal(pg.tensor({1e-4, -200, 0.3}):logcumsumexp(1):narrow(1, 1, 2):totable(), pg.tensor({1e-4, 1e-4}):totable())
end)

t.test("logcumsumexp of slowly rising numbers", function()
  for _, range in ipairs{0.5, 20} do
    local x = pg.linspace(-range, range, 50000)
    local wide = x:to("float64"):attach_grad()
    local exact = pg.record(function() return ((wide - range):exp():cumsum(1)):log() + range end)
    t.close(x:logcumsumexp(1):to("float64"), exact, {rtol = 1e-6, atol = 2e-6})
    t.close(wide:logcumsumexp(1), exact, {rtol = 1e-13, atol = 1e-13})
    exact:backward()
    x:attach_grad()
    pg.record(function() return x:logcumsumexp(1) end):backward()
    t.close(x.grad:to("float64"), wide.grad, {rtol = 1e-5, atol = 0})
  end
end)

t.test("the gradient of a quantile at a number reaches the last NaN of a line", function()
  for _, n in ipairs{5, 50} do
    local x = pg.range(1, n):to("float32")
    x[2] = 0 / 0
    local expected = pg.zeros(n)
    expected[2] = 1
    for _, q in ipairs{0, 0.4, 1} do
      local y = x:clone():attach_grad()
      pg.record(function() return y:quantile(q) end):backward()
      t.equal(y.grad, expected)
    end
  end
end)
