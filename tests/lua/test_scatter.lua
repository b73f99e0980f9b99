-- Ops that write at positions: values and gradients of PyTorch 2.15, in-place forms, and checks before any write.
local t = require "tests.support"
local pg = require "perigee"

local nan = 0 / 0
local function index(values, dtype) return pg.tensor(values, {dtype = dtype or "int64"}) end
local function is(x, values, what) t.equal(x:totable(), values, what) end

local gradients = t.gradients

local function reduced(reduce, include_self, i)
  return function(x, src) return x:scatter_reduce(1, index(i), src, reduce, {include_self = include_self}) end
end

t.test("scatter_reduce joins the elements for one position", function()
  local x, i, src = pg.tensor({5, 7, 2}), index{1, 1, 2}, pg.tensor({-1, -2, -4})
  is(x:scatter_reduce(1, i, src, "sum"), {2, 3, 2})
  is(x:scatter_reduce(1, i, src, "prod"), {10, -28, 2})
  t.close(x:scatter_reduce(1, i, src, "mean"), pg.tensor({2 / 3, 1.5, 2}))
  is(x:scatter_reduce(1, i, src, "amax"), {5, 7, 2})
  is(x:scatter_reduce(1, i, src, "amin"), {-2, -4, 2})
  is(x:scatter_reduce(1, i, src, "sum", false), {-3, -4, 2})
  is(x:scatter_reduce(1, i, src, "prod", {include_self = false}), {2, -4, 2})
  is(x:scatter_reduce(1, i, src, "mean", {include_self = false}), {-1.5, -4, 2})
  is(x:scatter_reduce(1, i, src, "amax", {include_self = false}), {-1, -4, 2})
  is(x:scatter_reduce(1, i, src, "amin", {include_self = false}), {-2, -4, 2})
  is(x:scatter_reduce(1, i, pg.tensor(3), "amin"), {3, 3, 2})
  local m = pg.zeros(2, 3):scatter_reduce(2, index{{1, 1}, {3, -1}}, pg.tensor({{1, 2, 9}, {3, 4, 9}}), "amax")
  is(m, {{2, 0, 0}, {0, 0, 4}})
end)

t.test("scatter_reduce of integers, halves and NaN", function()
  local i = index{1, 1, 2}
  is(index{5, 7}:scatter_reduce(1, i, index{-1, -2, -4}, "mean"), {0, 1}, "integer means round down")
  is(index{-5, 7}:scatter_reduce(1, i, index{-1, -2, -4}, "mean", {include_self = false}), {-2, -4})
  is(index({1, 2}, "int8"):scatter_reduce(1, i, index({9, 3, 4}, "int8"), "amax", {include_self = false}), {9, 4})
  is(index({1, 2}, "uint8"):scatter_reduce(1, i, index({9, 3, 4}, "uint8"), "amin", {include_self = false}), {3, 4})
  local ones = pg.full({4096}, 1, {dtype = "float16"})
  local sum = pg.zeros({1}, {dtype = "float16"}):scatter_reduce(1, pg.ones({4096}, {dtype = "int64"}), ones, "sum")
  is(sum:to("float32"), {4096}, "halves are summed in float32")
  for _, reduce in ipairs{"sum", "prod", "mean", "amax", "amin"} do
    local y = pg.tensor({1, 2}):scatter_reduce(1, i, pg.tensor({nan, 3, 4}), reduce):totable()
    t.check(y[1] ~= y[1] and y[2] == y[2], reduce .. " of NaN")
  end
end)

t.test("gradients of scatter_reduce at equal extremes and at zeros", function()
  local third = 1 / 3
  local cases = {
    {"amax", true, {5, 0, 2}, {1, 1, 2}, {5, 5, 0}, {third, 0.5, 1}, {third, third, 0.5}},
    {"amax", true, {1, 2, 3}, {1, 1, 1}, {0, 0, 4}, {0, 1, 1}, {0, 0, 1}},
    {"amin", true, {1, 2, 3}, {1, 1, 1}, {0, 0, 4}, {0, 1, 1}, {0.5, 0.5, 0}},
    {"amax", false, {5, 0, 2}, {1, 1, 2}, {5, 5, 0}, {0, 0, 1}, {third, third, 0.5}},
    {"amin", false, {1, 2, 3}, {1, 1, 1}, {0, 0, 4}, {0, 1, 1}, {0.5, 0.5, 0}},
    {"prod", true, {5, 0, 2}, {1, 1, 2}, {5, 5, 0}, {25, 0, 1}, {25, 25, 0}},
    {"prod", true, {1, 2, 3}, {1, 1, 1}, {0, 0, 4}, {0, 1, 1}, {0, 0, 0}},
    {"prod", true, {0, 2, 3}, {1, 2, 2}, {0, 2, 3}, {0, 6, 1}, {0, 6, 4}},
    {"prod", false, {5, 0, 2}, {1, 1, 2}, {5, 5, 0}, {0, 0, 1}, {5, 5, 1}},
    {"prod", false, {0, 2, 3}, {1, 2, 2}, {0, 2, 3}, {0, 0, 1}, {1, 3, 2}},
    {"mean", true, {5, 0, 2}, {1, 1, 2}, {5, 5, 0}, {third, 0.5, 1}, {third, third, 0.5}},
    {"mean", false, {5, 0, 2}, {1, 1, 2}, {5, 5, 0}, {0, 0, 1}, {0.5, 0.5, 1}},
    {"sum", false, {nan, 2, 3}, {1, 2, 2}, {1, 2, 3}, {0, 0, 1}, {1, 1, 1}},
  }
  for k, c in ipairs(cases) do
    local _, dx, dsrc = gradients(reduced(c[1], c[2], c[4]), c[3], c[5])
    t.close(dx, pg.tensor(c[6]), {what = ("case %d, %s: x"):format(k, c[1])})
    t.close(dsrc, pg.tensor(c[7]), {what = ("case %d, %s: src"):format(k, c[1])})
  end
end)

t.test("scatter_reduce with any number of threads", function()
  local i, src = pg.randint(1, 50, {64, 3000}), pg.randn(64, 3000)
  local results = {}
  for _, threads in ipairs{1, 4} do
    pg.set_num_threads(threads)
    results[threads] = pg.zeros(64, 50):scatter_reduce(2, i, src, "mean")
  end
  pg.set_num_threads(2)
  t.check(results[1]:equal(results[4]), "the means differ")
end)

t.test("index_copy, index_fill and put", function()
  local x = pg.tensor({{1, 2, 3}, {4, 5, 6}})
  is(x:index_copy(2, index{3, 1}, pg.tensor({{10, 20}, {30, 40}})), {{20, 2, 10}, {40, 5, 30}})
  is(x:index_copy(1, index{-1}, pg.tensor({{7, 8, 9}})), {{1, 2, 3}, {7, 8, 9}})
  is(x:index_fill(2, index{1, 3}, -1), {{-1, 2, -1}, {-1, 5, -1}})
  is(x:index_fill(1, index({0}, "int32"), pg.tensor(9), {index_base = 0}), {{9, 9, 9}, {4, 5, 6}})
  is(x:put(index{{6, 1}}, pg.tensor({{60, 10}})), {{10, 2, 3}, {4, 5, 60}})
  is(x:put(index{2, 2}, pg.tensor({1, 1}), true), {{1, 4, 3}, {4, 5, 6}})
  is(x:put(index{-1}, 0), {{1, 2, 3}, {4, 5, 0}})
end)

t.test("index_put writes and adds at positions of several dims", function()
  local x = pg.zeros(2, 3)
  is(x:index_put({index{1, 2}, index{3, -1}}, pg.tensor({5, 6})), {{0, 0, 5}, {0, 0, 6}})
  is(x:index_put({index{1, 1}, index{2, 2}}, pg.tensor({5, 6}), true), {{0, 11, 0}, {0, 0, 0}})
  is(x:index_put({index{1, 1}, index{2, 2}}, pg.tensor({5, 6})), {{0, 6, 0}, {0, 0, 0}}, "the last value stays")
  is(x:index_put({index{2}}, pg.tensor({1, 2, 3})), {{0, 0, 0}, {1, 2, 3}})
  is(x:index_put({index{{1}, {2}}, index{1, 3}}, 7), {{7, 0, 7}, {7, 0, 7}})
  is(index{1, 2}:index_put({index{1, 1}}, index{5, 6}, {accumulate = true}), {12, 2})
  local mask = pg.tensor({true, false})
  is(x:index_put({mask}, pg.tensor({{1, 2, 3}})), {{1, 2, 3}, {0, 0, 0}})
  is(x:index_put({x:eq(0)}, pg.range(1, 6)), {{1, 2, 3}, {4, 5, 6}})
  is(pg.ones(2, 3):index_put({mask}, 7, true), {{8, 8, 8}, {1, 1, 1}})
end)

t.test("writes at no positions copy x", function()
  local x, none = pg.tensor({{1, 2, 3}, {4, 5, 6}}), pg.zeros({0}, {dtype = "int64"})
  local values, writes = pg.zeros(0), {}
  function writes.put() return x:put(none, values) end
  function writes.put_number() return x:put(none, 7) end
  function writes.put_added() return x:put(none, values, true) end
  function writes.index_put() return x:index_put({none}, 7) end
  function writes.index_add() return x:index_add(1, none, pg.zeros(0, 3)) end
  function writes.index_copy() return x:index_copy(2, none, pg.zeros(2, 0)) end
  function writes.index_fill() return x:index_fill(1, none, 7) end
  function writes.scatter() return x:scatter(1, none:reshape{0, 3}, 7) end
  function writes.scatter_add() return x:scatter_add(1, none:reshape{0, 3}, 7) end
  function writes.scatter_reduce() return x:scatter_reduce(1, none:reshape{0, 3}, pg.zeros(0, 3), "prod") end
  function writes.masked_scatter() return x:masked_scatter(x:lt(0), values) end
  function writes.masked_fill() return x:masked_fill(x:lt(0), 7) end
  for name, write in pairs(writes) do is(write(), {{1, 2, 3}, {4, 5, 6}}, name) end
end)

t.test("an index that is a view acts as its contiguous copy", function()
  local views = {
    function() return pg.randint(1, 7, {40, 1, 1}):expand{40, 3, 33} end,
    function() return pg.randint(1, 3, {40, 3, 1}):expand{40, 3, 33} end,
    function() return pg.randint(1, 3, {1, 3, 33}):expand{40, 3, 33} end,
    function() return pg.randint(1, 3, {33, 3, 40}):permute{3, 2, 1} end,
    function() return pg.randint(1, 3, {40, 3, 66})[{{}, {}, {1, 66, 2}}] end,
    function() return pg.randint(-3, -1, {40, 1, 1}):expand{40, 3, 33} end,
  }
  for which, view in ipairs(views) do
    for _, dtype in ipairs{"float32", "float16", "int64", "uint8"} do
      for dim = 1, 3 do
        local i = view()
        local j = i:clone():contiguous()
        local sizes = {40, 3, 33}
        sizes[dim] = 7
        local x = pg.randint(0, 20, sizes):to(dtype)
        local source = pg.randint(0, 20, {40, 3, 33}):to(dtype)
        local number = pg.randint(0, 20, {1, 1, 1}):to(dtype):expand{40, 3, 33}
        local what = which .. " " .. dtype .. " " .. dim
        t.equal(x:gather(dim, i), x:gather(dim, j), what)
        for _, src in ipairs{source, number, source:permute{3, 2, 1}:contiguous():permute{3, 2, 1}} do
          local copy = src:clone():contiguous()
          t.equal(x:scatter(dim, i, src), x:scatter(dim, j, copy), what)
          t.equal(x:scatter_add(dim, i, src), x:scatter_add(dim, j, copy), what)
          for _, reduce in ipairs{"sum", "prod", "mean", "amax", "amin"} do
            t.equal(x:scatter_reduce(dim, i, src, reduce), x:scatter_reduce(dim, j, copy, reduce), what .. reduce)
          end
        end
        if dtype == "float32" then
          local function slope(at)
            local v = x:detach():attach_grad()
            pg.record(function() return (v:gather(dim, at) * source):sum() end):backward()
            return v.grad
          end
          t.equal(slope(i), slope(j), what)
        end
      end
    end
  end
end)

t.test("rows at one position are those of index_select and index_add, NaN included", function()
  local positions = pg.randint(1, 9, {50})
  local i = positions:reshape{50, 1}:expand{50, 21}
  local x, source = pg.randn(9, 21), pg.randn(50, 21)
  t.equal(x:gather(1, i), x:index_select(1, positions))
  t.equal(x:scatter_add(1, i, source), x:index_add(1, positions, source))
  x[{2, 3}], source[{4, 5}] = 0 / 0, 0 / 0
  local list, rows, more = positions:totable(), x:totable(), source:totable()
  for r, at in ipairs(list) do
    for c = 1, 21 do
      local a, b = rows[at][c], more[r][c]
      if a == a and (a <= b or b ~= b) then rows[at][c] = b end
    end
  end
  t.equal(x:scatter_reduce(1, i, source, "amax"):totable(), rows)
  t.equal(x:scatter_reduce(1, i:contiguous(), source, "amax"):totable(), rows)
  local line, values = pg.zeros(9), pg.randint(1, 9, {50})
  local sums = line:totable()
  for r, at in ipairs(list) do sums[at] = sums[at] + 3 * values[r]:item() end
  t.equal(line:index_add(1, positions, values:to("float32"), 3):totable(), sums)
end)

t.test("a wrong value of an index that is a view is named by its position in the view", function()
  local i = pg.tensor({{1}, {2}, {9}}, {dtype = "int64"}):expand{3, 4}
  t.error_contains(function() return pg.zeros(3, 4):gather(1, i) end, "got 9 at position {3, 1}")
  t.error_contains(function() return pg.zeros(3, 4):scatter_add(1, i, pg.zeros(3, 4)) end, "got 9 at position {3, 1}")
  local gaps = pg.tensor({{1, 0, 2}, {1, 0, 9}}, {dtype = "int64"})[{{}, {1, 3, 2}}]
  t.error_contains(function() return pg.zeros(3, 4):gather(1, gaps) end, "got 9 at position {2, 2}")
end)

t.test("masked_scatter takes the elements of source in order", function()
  local x, mask = pg.zeros(2, 3), pg.tensor({{true, false, true}, {false, true, false}})
  is(x:masked_scatter(mask, pg.tensor({{1, 2}, {3, 4}})), {{1, 0, 2}, {0, 3, 0}})
  is(pg.zeros(1, 3):masked_scatter(mask, index{7, 8, 9}), {{7, 0, 8}, {0, 9, 0}})
  t.bad_argument(function() x:masked_scatter(mask, pg.ones(2)) end, "masked_scatter", "source")
  t.error_contains(function() x:masked_scatter(mask, pg.ones(2)) end,
                   "expected at least 3 elements, one for each true element of the mask, got 2")
end)

t.test("gradients of writes", function()
  local i = index{3, 1, 3}
  local function check(what, f, x, v, dx, dv)
    local _, gx, gv = gradients(f, x, v)
    is(gx, dx, what .. ": x")
    is(gv, dv, what .. ": value")
  end
  check("index_copy", function(x, v) return x:index_copy(1, i, v) end, {1, 2, 3}, {4, 5, 6}, {0, 1, 0}, {1, 1, 1})
  check("index_fill", function(x, v) return x:index_fill(1, i, v) end, {1, 2, 3}, 4, {0, 1, 0}, 2)
  check("index_put", function(x, v) return x:index_put({i}, v) end, {1, 2, 3}, {4, 5, 6}, {0, 1, 0}, {1, 1, 1})
  check("index_put, added", function(x, v) return x:index_put({i}, v, true) end, {1, 2, 3}, {4, 5, 6}, {1, 1, 1}, {1, 1, 1})
  check("put", function(x, v) return x:put(i, v) end, {1, 2, 3}, {4, 5, 6}, {0, 1, 0}, {1, 1, 1})
  local mask = pg.tensor({true, false, true})
  check("masked_scatter", function(x, v) return x:masked_scatter(mask, v) end, {1, 2, 3}, {4, 5, 6}, {0, 1, 0}, {1, 1, 0})
end)

t.test("the forms in place write into their tensor only", function()
  local i, mask = index{1, 3}, pg.tensor({true, false, true})
  local calls = {
    scatter_reduce_ = function(x) return x:scatter_reduce_(1, i, pg.tensor({5, 6}), "amax") end,
    index_copy_ = function(x) return x:index_copy_(1, i, pg.tensor({5, 6})) end,
    index_put_ = function(x) return x:index_put_({i}, pg.tensor({5, 6})) end,
    put_ = function(x) return x:put_(i, pg.tensor({5, 6})) end,
    masked_scatter_ = function(x) return x:masked_scatter_(mask, pg.tensor({5, 6})) end,
  }
  for name, call in pairs(calls) do
    local x = pg.tensor({1, 2, 3})
    local other = x:detach()
    t.check(rawequal(call(x), x), name .. " returns its tensor")
    is(x, {5, 2, 6}, name)
    is(other, {1, 2, 3}, name .. ": another tensor")
  end
  is(pg.ones(3):index_fill_(1, i, 7), {7, 1, 7})
end)

t.test("a wrong index value is named, and nothing is written", function()
  local x, i = pg.zeros(3), index{1, 9}
  local calls = {
    scatter_reduce_ = function() x:scatter_reduce_(1, i, pg.ones(2), "prod", {include_self = false}) end,
    index_copy_ = function() x:index_copy_(1, i, pg.ones(2)) end,
    index_fill_ = function() x:index_fill_(1, i, 1) end,
    put_ = function() x:put_(i, pg.ones(2)) end,
  }
  for name, call in pairs(calls) do
    t.bad_argument(call, name, "index")
    t.error_contains(call, "expected index values from 1 to 3 or -3 to -1, got 9 at position 2")
  end
  local function put() pg.zeros(2, 3):index_put_({index{1, 2}, i}, 1) end
  t.bad_argument(put, "index_put_", "indices")
  t.error_contains(put, "expected index values from 1 to 3 or -3 to -1, got 9 at position 2 of tensor 2")
  t.bad_argument(function() x:masked_scatter_(pg.tensor({true, true, true}), pg.ones(2)) end, "masked_scatter_", "source")
  if t.device == "cpu" then is(x, {0, 0, 0}) end  -- a device may have written when it reports
end)

t.test("wrong arguments of writes", function()
  local x, i = pg.zeros(2, 3), index{1, 2}
  t.error_contains(function() x:scatter_reduce(1, index{{1}}, pg.ones(1, 1), "max") end,
                   'expected one of "sum", "prod", "mean", "amax", "amin", got "max"')
  t.bad_argument(function() x:index_put({}, 1) end, "index_put", "indices")
  t.bad_argument(function() x:index_put({i, i, i}, 1) end, "index_put", "indices")
  t.bad_argument(function() x:index_put({i, index{1, 2, 3}}, 1) end, "index_put", "indices")
  t.bad_argument(function() x:index_put({i}, pg.ones(2)) end, "index_put", "values")
  t.bad_argument(function() x:index_put({pg.ones(2)}, 1) end, "index_put", "indices")
  t.bad_argument(function() x:index_put({pg.tensor({true, false}), i}, 1) end, "index_put", "indices")
  t.bad_argument(function() x:index_put({pg.tensor({true})}, 1) end, "index_put", "indices")
  t.error_contains(function() x:index_put_({pg.tensor({true, false})}, pg.ones(2, 3)) end,
                   "expected 1 rows, one for each true element of the mask, got 2")
  t.bad_argument(function() x:index_copy(1, i, pg.ones(3, 3)) end, "index_copy", "source")
  t.bad_argument(function() x:index_fill(1, i, pg.ones(3)) end, "index_fill", "value")
  t.bad_argument(function() x:put(i, pg.ones(3)) end, "put", "source")
  t.bad_argument(function() index{1, 2}:put(i, 0.5) end, "put", "source")
end)

-- A sum that is rounded at each term would stay at 256 ones in bfloat16, and at 2048 in float16.
t.test("sums of many 16-bit elements by index round once", function()
  local n = 5000
  for _, dtype in ipairs{"bfloat16", "float16"} do
    local function ones(...) return pg.ones({...}, {dtype = dtype}) end
    local function zeros(...) return pg.zeros({...}, {dtype = dtype}) end
    local i = pg.ones({n}, {dtype = "int64"})
    local want = pg.tensor({n}, {dtype = dtype}):item()
    local function check(what, got) t.equal(got:reshape{-1}[1]:item(), want, dtype .. " " .. what) end
    check("scatter_add", zeros(3):scatter_add(1, i, ones(n)))
    check("scatter_add of columns", zeros(3, 2):scatter_add(1, pg.ones({n, 2}, {dtype = "int64"}), ones(n, 2)))
    check("index_add", zeros(3, 40):index_add(1, i, ones(n, 40)))
    check("index_add of columns", zeros(2, 3):index_add(2, i, ones(2, n)))
    check("index_put", zeros(3, 2):index_put({i}, ones(n, 2), {accumulate = true}))
    check("put", zeros(3):put(i, ones(n), {accumulate = true}))
    local function gradient(what, f, x) check("gradient of " .. what, pg.grad(function(v) return f(v):sum() end)(x)) end
    gradient("embedding", function(w) return pg.embedding(i, w) end, ones(2, 3))
    gradient("index_select", function(w) return w:index_select(1, i) end, ones(2, 3))
    gradient("a row", function(w) return w[i] end, ones(2, 3))
    gradient("gather", function(w) return w:gather(1, i) end, ones(2))
    gradient("take", function(w) return w:take(i) end, ones(2))
    gradient("cummax", function(w) return w:cummax(1) end, pg.cat({ones(1), zeros(n - 1)}, 1))
    local mean = pg.grad(function(s) return zeros(1):scatter_reduce(1, i, s, "mean", {include_self = false}):sum() end)(ones(n))
    t.close(mean[1]:item(), 1 / n, {rtol = 0.01, what = dtype .. " gradient of a mean"})
    -- a few elements of a large array
    t.equal(zeros(100000):scatter_add(1, i:narrow(1, 1, 999) * 777, ones(999))[777]:item(), pg.tensor({999}, {dtype = dtype}):item())
    t.equal(zeros(400, 300):scatter_add(1, pg.tensor({{7, 8}, {7, 9}, {400, 8}}, {dtype = "int64"}), pg.tensor{{1, 2}, {3, 4}, {5, 6}}:to(dtype))
              :nonzero(), pg.tensor({{7, 1}, {8, 2}, {9, 2}, {400, 1}}, {dtype = "int64"}))
    -- none
    local none = pg.zeros({0}, {dtype = "int64"})
    t.equal(ones(3):put(none, zeros(0), {accumulate = true}), ones(3))
    t.equal(ones(3, 2):index_put({none}, zeros(0, 2), {accumulate = true}), ones(3, 2))
    t.equal(ones(3):index_put({pg.zeros({3}, {dtype = "bool"})}, ones(1), {accumulate = true}), ones(3))
    t.equal(ones(3, 2):index_add(1, none, zeros(0, 2)), ones(3, 2))
    t.equal(ones(3):scatter_add(1, none, zeros(0)), ones(3))
    -- a few elements of many rows, in any order
    pg.manual_seed(5)
    local rows, token = pg.randn(700, 33):to(dtype), pg.randint(1, 60, {700})
    t.close(zeros(60, 33):index_add(1, token, rows), pg.zeros(60, 33):index_add(1, token, rows:to("float32")):to(dtype),
            {rtol = dtype == "float16" and 1e-3 or 8e-3, atol = 1e-3})
    t.close(zeros(90000, 33):index_add(1, token * 7, rows, {alpha = -0.5}),
            pg.zeros(90000, 33):index_add(1, token * 7, rows:to("float32"), {alpha = -0.5}):to(dtype),
            {rtol = dtype == "float16" and 1e-3 or 8e-3, atol = 1e-3})
  end
end)

t.test("means of scattered elements are sums over counts, in any dtype and layout", function()
  for _, dtype in ipairs{"float64", "float32", "float16", "int32", "uint8"} do
    local x = (pg.rand(37, 23) * 9):to(dtype)
    local src, places = (pg.rand(37, 23) * 9):to(dtype), pg.randint(-8, -1, {37, 23})
    for d = 1, 2 do
      for _, own in ipairs{true, false} do
        local exact = dtype:find("float") and "float64" or "int64"
        local start, ones = x:to(exact), pg.ones(37, 23, {dtype = exact})
        local count = (own and ones or ones * 0):scatter_add(d, places, ones)
        local named = pg.zeros(37, 23, {dtype = exact}):scatter_add(d, places, ones):gt(0)
        local base = own and start or pg.where(named, start * 0, start)
        local total = base:scatter_add(d, places, src:to(exact))
        local divisor = pg.maximum(count, 1)
        local mean = exact == "int64" and total:floor_divide(divisor) or total / divisor
        if dtype == "uint8" then mean = nil end  -- sums wrap around
        local got = x:scatter_reduce(d, places, src, "mean", own)
        if mean then t.close(got:to("float64"), mean:to("float64"), {rtol = dtype == "float16" and 1e-3 or 1e-5}) end
        t.equal(pg.where(named, got * 0, got):totable(), pg.where(named, x * 0, x):totable())
      end
    end
  end
end)

t.test("bytes are gathered and scattered like other elements", function()
  local places = pg.randint(-50, -1, {7, 50})
  for _, dtype in ipairs{"uint8", "bool", "int8", "int64", "float16"} do
    local x, y = pg.randint(0, 100, {7, 50}), pg.randint(0, 100, {7, 50})
    if dtype == "bool" then x, y = x:gt(50):to("int64"), y:gt(50):to("int64") end
    local small, other = x:to(dtype), y:to(dtype)
    for _, view in ipairs{function(v) return v end, function(v) return v:t():contiguous():t() end} do
      t.equal(view(small):gather(2, places):to("int64"):totable(), x:gather(2, places):totable())
      t.equal(view(small):scatter(2, places, view(other)):to("int64"):totable(), x:scatter(2, places, y):totable())
      t.equal(view(small):gather(1, places:remainder(7) + 1):to("int64"):totable(), x:gather(1, places:remainder(7) + 1):totable())
    end
  end
end)

t.test("scattering along the first dim of wide rows is that along the last dim of the transposed", function()
  -- Whole numbers, whose sums and products are exact in any order: that of the CUDA device depends on the dim.
  for _, dtype in ipairs{"float64", "int32", "uint8"} do
    local x, y = pg.randint(1, 9, {200, 300}):to(dtype), pg.randint(1, 9, {200, 300}):to(dtype)
    local places = pg.randint(1, 200, {200, 300})
    local function both(f) t.equal(f(x, 1, places, y):totable(), f(x:t(), 2, places:t(), y:t()):t():totable()) end
    both(function(v, d, i, s) return v:scatter(d, i, s) end)
    both(function(v, d, i, s) return v:scatter_add(d, i, s) end)
    for _, how in ipairs{"mean", "prod", "amax"} do
      both(function(v, d, i, s) return v:scatter_reduce(d, i, s, how) end)
      both(function(v, d, i, s) return v:scatter_reduce(d, i, s, how, false) end)
    end
  end
end)
