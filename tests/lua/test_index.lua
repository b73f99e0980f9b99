-- Index ops: the index base, negative positions, wrong values, ordering and NaN.
local t = require "tests.support"
local pg = require "perigee"

-- f must raise a bad argument of op whose message contains `text`.
local function bad(f, op, name, text)
  t.bad_argument(f, op, name)
  if text then t.error_contains(f, text) end
end

local nan = 0 / 0
local function index(values, dtype) return pg.tensor(values, {dtype = dtype or "int64"}) end
local is = t.has
local x23 = pg.tensor({{1, 2, 3}, {4, 5, 6}})

t.test("gather and take read 1-based positions, negative ones from the end", function()
  is(x23:gather(2, index{{1, 3}, {-1, 2}}), {2, 2}, {{1, 3}, {6, 5}})
  is(x23:gather(1, index{{2, 1, 2}}), {1, 3}, {{4, 2, 6}})
  is(x23:gather(2, index{{0}, {2}}, {index_base = 0}), {2, 1}, {{1}, {6}})
  is(x23:take(index{{6, 1}}), {1, 2}, {{6, 1}})
  is(x23:pick(index{3, 1}), {2}, {3, 4})
  is(x23:pick(index({3, 1}, "uint8"), {keepdim = true}), {2, 1}, {{3}, {4}})
  is(x23:pick(index{2, 1, 2}, 1), {3}, {4, 2, 6})
  is(x23:take_along_dim(x23:argsort(2, true), 2), {2, 3}, {{3, 2, 1}, {6, 5, 4}})
  is(x23:take_along_dim(index{{2}}, 1), {1, 3}, {{4, 5, 6}})
end)

t.test("index_select and embedding copy rows", function()
  is(x23:index_select(1, index{2, 2, -2}), {3, 3}, {{4, 5, 6}, {4, 5, 6}, {1, 2, 3}})
  is(x23:index_select(2, index{{3, 1}}), {2, 1, 2}, {{{3, 1}}, {{6, 4}}})
  is(x23:index_select(1, pg.tensor(2, {dtype = "int64"})), {3}, {4, 5, 6})
  is(x23:index_select(1, index({2}, "int8")), {1, 3}, {{4, 5, 6}})
  is(pg.embedding(index{{2, 1}}, x23), {1, 2, 3}, {{{4, 5, 6}, {1, 2, 3}}})
  is(pg.embedding(pg.zeros({0}, {dtype = "int64"}), x23), {0, 3})
  is(index{1, 3}:one_hot(3), {2, 3}, {{1, 0, 0}, {0, 0, 1}})
  t.equal(index{1}:one_hot(2).dtype, "int64")
end)

t.test("the error of a bad index value has its position and the range", function()
  bad(function() return x23:gather(2, index{{1, 4}, {1, 1}}) end, "gather", "index",
                 "index values from 1 to 3 or -3 to -1, got 4 at position {1, 2}")
  bad(function() return x23:gather(2, index{{1, 1}, {0, 1}}) end, "gather", "index", "got 0 at position {2, 1}")
  bad(function() return x23:gather(2, index{{3}}, {index_base = 0}) end, "gather", "index", "from 0 to 2")
  bad(function() return x23:take(index{7}) end, "take", "index", "got 7 at position 1")
  bad(function() return x23:pick(index{4, 1}) end, "pick", "index")
  bad(function() return x23:index_select(1, index{3}) end, "index_select", "index")
  bad(function() return x23:take_along_dim(index{{9}}, 2) end, "take_along_dim", "index")
  bad(function() return pg.embedding(index{1, 3}, x23) end, "embedding", "indices", "from 1 to 2, got 3 at position 2")
  bad(function() return pg.embedding(index{-1}, x23) end, "embedding", "indices")
  bad(function() return index{0}:one_hot(3) end, "one_hot", "x", "from 1 to 3, got 0")
  bad(function() return pg.zeros(0, 2):index_select(1, index{1}) end, "index_select", "index")
  bad(function() return x23:gather(2, pg.tensor({{1.0}, {2.0}})) end, "gather", "index", "an integer dtype")
  bad(function() return x23:gather(1, index{1}) end, "gather", "index")
  bad(function() return x23:pick(index{1, 1, 1}) end, "pick", "index")
end)

t.test("a failed write changes nothing", function()
  local x = pg.zeros(3)
  bad(function() x:scatter_(1, index{1, 9}, 5) end, "scatter_", "index")
  bad(function() x:scatter_add_(1, index{1, 9}, pg.ones(2)) end, "scatter_add_", "index")
  bad(function() x:index_add_(1, index{1, 9}, pg.ones(2)) end, "index_add_", "index")
  if t.device == "cpu" then is(x, {3}, {0, 0, 0}) end  -- a device may have written when it reports
end)

t.test("scatter, scatter_add and index_add", function()
  is(pg.zeros(3):scatter(1, index{1, 3}, 5), {3}, {5, 0, 5})
  is(pg.zeros(3):scatter(1, index{2, 2}, pg.tensor({7, 8})), {3}, {0, 8, 0})
  is(pg.zeros(2, 3):scatter(2, index{{3}, {1}}, pg.tensor({{1, 9}, {2, 9}})), {2, 3}, {{0, 0, 1}, {2, 0, 0}})
  is(pg.zeros(3):scatter_add(1, index{2, 2, 1}, pg.tensor({1, 2, 4})), {3}, {4, 3, 0})
  is(pg.zeros(2, 2):index_add(2, index{1, 1}, pg.ones(2, 2), {alpha = 0.5}), {2, 2}, {{1, 0}, {1, 0}})
  local x = pg.zeros(3)
  x:scatter_(1, index{1}, 2)
  is(x, {3}, {2, 0, 0})
  t.equal(pg.zeros({2}, {dtype = "float64"}):scatter(1, index{1}, 0.1):totable(), {0.1, 0})
  bad(function() return pg.zeros({2}, {dtype = "int64"}):scatter(1, index{1}, 0.5) end, "scatter", "src", "a number that int64 can hold")
  bad(function() return pg.zeros({2}, {dtype = "int64"}):scatter(1, index{1}, pg.tensor({0.5})) end, "scatter", "src")
  bad(function() return pg.zeros(2):scatter(1, index{1, 2}, pg.ones(1)) end, "scatter", "src")
  bad(function() return pg.zeros(2):scatter(1, 1, 1) end, "scatter", "index")
end)

t.test("many equal positions are summed with any number of threads", function()
  local n, rows = 20000, 7
  local idx = (pg.linspace(0, n - 1, n):to("int64") % rows) + 1
  local src = pg.randn(n, 64)
  pg.set_num_threads(1)
  local one = pg.zeros(rows, 64):index_add(1, idx, src)
  pg.set_num_threads(4)
  local four = pg.zeros(rows, 64):index_add(1, idx, src)
  pg.set_num_threads(2)
  t.check(one:equal(four), "the sums differ")
  t.close(one:sum(1):to("float64"), src:to("float64"):sum(1), {rtol = 1e-3, atol = 1e-2})
end)

t.test("masks", function()
  local x = pg.tensor({1, -2, 3})
  is(x:masked_fill(x:lt(0), 0), {3}, {1, 0, 3})
  is(x:masked_fill(x:lt(0), pg.tensor(9)), {3}, {1, 9, 3})
  is(x:masked_fill(x:lt(0), pg.full({1, 1, 1, 1, 1}, 9, {dtype = "float64"})), {3}, {1, 9, 3})
  is(x23:masked_fill(pg.tensor({true, false, true}), -1), {2, 3}, {{-1, 2, -1}, {-1, 5, -1}})
  is(pg.tensor({true, false}):masked_fill(pg.tensor({false, true}), true), {2}, {true, true})
  is(x:masked_select(x:gt(0)), {2}, {1, 3})
  is(x:masked_select(x:gt(9)), {0})
  is(pg.tensor({{0, 1}, {2, 0}}):nonzero(), {2, 2}, {{1, 2}, {2, 1}})
  is(pg.tensor({0, 7}):nonzero{index_base = 0}, {1, 1}, {{1}})
  is(pg.tensor(3):nonzero(), {1, 0})
  bad(function() return x:masked_fill(x, 0) end, "masked_fill", "mask", "bool")
  bad(function() return index{1}:masked_fill(pg.tensor({true}), 0.5) end, "masked_fill", "value")
  bad(function() return x:masked_fill(x:lt(0), pg.ones(3)) end, "masked_fill", "value")
  bad(function() return x23:masked_select(pg.tensor({true, false})) end, "masked_select", "mask")
end)

t.test("sort keeps the order of equal elements and puts NaN last", function()
  local v, i = pg.tensor({2, 1, 2, 1}):sort()
  is(v, {4}, {1, 1, 2, 2})
  is(i, {4}, {2, 4, 1, 3})
  v, i = pg.tensor({2, 1, 2, 1}):sort{descending = true}
  is(v, {4}, {2, 2, 1, 1})
  is(i, {4}, {1, 3, 2, 4})
  v, i = pg.tensor({nan, 1, math.huge, -math.huge}):sort()
  is(i, {4}, {4, 2, 3, 1})
  t.check(v:totable()[4] ~= v:totable()[4], "NaN is last")
  is(pg.tensor({1, nan, 2}):argsort{descending = true}, {3}, {2, 3, 1})
  is(pg.tensor({0, -0.0, 0}):argsort(), {3}, {1, 2, 3})
  is(index({-5, 7, -128}, "int8"):sort(), {3}, {-128, -5, 7})
  is(index({3, 200, 1}, "uint8"):sort(), {3}, {1, 3, 200})
  is(pg.tensor({true, false}):sort(), {2}, {false, true})
  is(index{-3, 2, -9}:sort(), {3}, {-9, -3, 2})
  is(pg.tensor({-1.5, 2, -3}):to("bfloat16"):sort():to("float32"), {3}, {-3, -1.5, 2})
  is(pg.tensor(4):sort(), {}, 4)
  is(x23:sort{dim = 1, descending = true}, {2, 3}, {{4, 5, 6}, {1, 2, 3}})
end)

t.test("topk", function()
  local v, i = pg.tensor({1, 5, 3, 5}):topk(3)
  is(v, {3}, {5, 5, 3})
  is(i, {3}, {2, 4, 3})
  is(pg.tensor({1, 5, 3}):topk(2, {largest = false}), {2}, {1, 3})
  is(x23:topk(1, 1), {1, 3}, {{4, 5, 6}})
  is(x23:topk(0), {2, 0})
  bad(function() return x23:topk(4) end, "topk", "k", "at most the 3")
  bad(function() return x23:topk(-1) end, "topk", "k")
end)

t.test("sort is stable in lines of any length, with NaN last", function()
  local function expected(x, descending)
    local list, order = x:totable(), {}
    for k, v in ipairs(list) do
      order[k] = k
      if type(v) == "boolean" then list[k] = v and 1 or 0 end
      if v ~= v then list[k] = math.huge end  -- no infinity is beside one
    end
    table.sort(order, function(a, b)
      if list[a] == list[b] then return a < b end
      if descending then return list[a] > list[b] end
      return list[a] < list[b]
    end)
    return index(order)
  end
  for _, n in ipairs{2, 127, 128, 1000} do
    local few, wide = pg.randint(-9, 10, {n}), pg.randn(n) * pg.randint(-30, 31, {n}):float():exp2()
    local zeros = pg.where(few:gt(0), 0, pg.where(few:lt(-4), -0.0, wide))
    for _, x in ipairs{few, few * 2 ^ 40, few:to("int8"), few:to("int32"), few:gt(0), wide, wide:double(), wide:to("float16"),
      wide:to("bfloat16"), pg.where(few:eq(3), 0 / 0, few / 4 * -1):to("float16"), pg.where(few:eq(3), -(0 / 0), few / 4):to("bfloat16"),
      zeros, pg.where(few:eq(3), 0 / 0, zeros), pg.where(few:eq(3), 0 / 0, zeros):double(), -wide:abs(), few:float() * 0} do
      for _, descending in ipairs{false, true} do
        local values, indices = x:sort{dim = 1, descending = descending}
        t.equal(indices, expected(x, descending))
        t.equal(values, x:gather(1, indices))
        t.equal((select(2, pg.stack({x, x}, 2):sort{dim = 1, descending = descending})), pg.stack({indices, indices}, 2))
      end
    end
  end
end)

t.test("topk gives the head of the stable sort, whatever the order", function()
  local whole = pg.randint(-40, 41, {3, 600})
  local rising = pg.range(1, 600):expand{3, 600}
  local signed = pg.where(whole:eq(0), -0.0 * pg.randint(-1, 2, whole.shape):float(), whole:float())
  local holes = pg.where(whole:gt(38), 0 / 0, signed)
  for _, x in ipairs{whole, whole:to("int8"), rising, -rising, rising:float(), holes, holes:double(), holes:to("float16"),
    -holes, pg.where(whole:gt(-38), 0 / 0, signed), pg.zeros(3, 600), whole:gt(35)} do
    for _, k in ipairs{1, 3, 16, 17, 30, 100} do
      for _, largest in ipairs{true, false} do
        local values, indices = x:sort{dim = 2, descending = largest}
        local v, i = x:topk(k, {largest = largest})
        t.equal(i, indices:narrow(2, 1, k))
        t.equal(v, values:narrow(2, 1, k))
        t.equal((select(2, x:t():contiguous():topk(k, 1, largest))), i:t())
        local short = x:narrow(2, 1, 2 * k + k % 3)
        t.equal((select(2, short:topk(k, {largest = largest}))), (select(2, short:sort{dim = 2, descending = largest})):narrow(2, 1, k))
      end
    end
  end
end)

t.test("searchsorted counts the elements before a value", function()
  for n = 1, 40, 3 do
    local sequence = pg.randint(-9, 10, {2, n}):sort(2)
    local values = pg.randint(-11, 12, {2, 50})
    for _, types in ipairs{{"int64", "int64"}, {"float32", "float32"}, {"int8", "float32"}, {"float64", "float32"}} do
      local s, v = sequence:to(types[1]), values:to(types[2])
      local first, last = s:unsqueeze(2), v:unsqueeze(3)
      t.equal(s:searchsorted(v, {index_base = 0}), first:lt(last):sum(3))
      t.equal(s:searchsorted(v, {index_base = 0, right = true}), first:le(last):sum(3))
      t.equal(s[1]:searchsorted(v, {index_base = 0}), first[1]:lt(last):sum(3))
    end
  end
end)

t.test("unique, bincount and searchsorted", function()
  local v, inverse, counts = pg.tensor({3, 1, 3}):unique{return_inverse = true, return_counts = true}
  is(v, {2}, {1, 3})
  is(inverse, {3}, {2, 1, 2})
  is(counts, {2}, {1, 2})
  local _, only_counts = pg.tensor({3, 1, 3}):unique{return_counts = true}
  is(only_counts, {2}, {1, 2})
  is(pg.tensor({{true, false}}):unique(), {2}, {false, true})
  is(pg.zeros(0):unique(), {0})
  is(index{1, 3, 3}:bincount(), {3}, {1, 0, 2})
  is(index{0, 2}:bincount{index_base = 0, minlength = 4}, {4}, {1, 0, 1, 0})
  is(index{1, 2, 2}:bincount(pg.tensor({0.5, 1, 2})), {2}, {0.5, 3})
  bad(function() return index{0, 1}:bincount() end, "bincount", "x", "labels from 1")
  is(pg.tensor({1, 3, 5}):searchsorted(pg.tensor({0, 3, 9})), {3}, {1, 2, 4})
  is(pg.tensor({1, 3, 5}):searchsorted(pg.tensor({0, 3, 9}), {right = true, index_base = 0}), {3}, {0, 2, 3})
  is(pg.tensor({1, 3, 5}):searchsorted(4), {}, 3)
  is(pg.tensor({{1, 3}, {2, 4}}):searchsorted(pg.tensor({{2}, {2}})), {2, 1}, {{2}, {1}})
end)

t.test("sequences of different lengths", function()
  local x = pg.tensor({{1, 2}, {3, 4}, {5, 6}})
  local lengths = pg.tensor({1, 3})
  is(x:sequence_mask(lengths), {3, 2}, {{1, 2}, {0, 4}, {0, 6}})
  is(x:t():sequence_mask(lengths, {value = -1, dim = 2}), {2, 3}, {{1, -1, -1}, {2, 4, 6}})
  is(x:sequence_last(lengths), {2}, {1, 6})
  is(x:sequence_last(), {2}, {5, 6})
  is(x:sequence_reverse(lengths), {3, 2}, {{1, 6}, {3, 4}, {5, 2}})
  is(x:sequence_reverse(), {3, 2}, {{5, 6}, {3, 4}, {1, 2}})
  bad(function() return x:sequence_mask(pg.tensor({1, 4})) end, "sequence_mask", "lengths", "4 at position 2")
  bad(function() return x:sequence_last(pg.tensor({0, 1})) end, "sequence_last", "lengths")
  bad(function() return x:sequence_mask(pg.tensor({1, 0.5})) end, "sequence_mask", "lengths")
  bad(function() return x:sequence_mask(pg.tensor({1})) end, "sequence_mask", "lengths")
end)

t.test("the gradient of repeated rows adds up, and a padding row gets none", function()
  local w = pg.ones(3, 2):attach_grad()
  pg.record(function() return pg.embedding(index{2, 2, 1}, w):sum() end):backward()
  is(w.grad, {3, 2}, {{1, 1}, {2, 2}, {0, 0}})
  pg.record(function() return pg.embedding(index{2, 2, 1}, w, {padding_idx = 2}):sum() end):backward()
  is(w.grad, {3, 2}, {{1, 1}, {0, 0}, {0, 0}})
end)

t.test("one_hot infers the number of classes", function()
  local x = pg.tensor({1, 3}, {dtype = "int64"})
  t.equal(x:one_hot(), x:one_hot(3))
  t.equal(pg.one_hot(x, {index_base = 0}), x:one_hot(4, {index_base = 0}))
  t.bad_argument(function() return pg.zeros(0, {dtype = "int64"}):one_hot() end, "one_hot", "num_classes")
  t.error_matches(function() return pg.tensor({0, 2}, {dtype = "int64"}):one_hot() end, "one_hot: ")
end)

t.test("unique of whole numbers close together and far apart", function()
  local far = pg.tensor({-9007199254740992, 3, 9007199254740992, 3, -9007199254740992, 0, 3}, {dtype = "int64"})
  local values, inverse, counts = far:unique{return_inverse = true, return_counts = true}
  t.equal(values:totable(), {-9007199254740992, 0, 3, 9007199254740992})
  t.equal(inverse:totable(), {1, 3, 4, 3, 1, 2, 3})
  t.equal(counts:totable(), {2, 1, 3, 1})
  t.equal(far:unique():totable(), values:totable())
  for _, n in ipairs{5, 300, 70000} do
    for _, dtype in ipairs{"int8", "uint8", "int32", "int64", "float32", "float16"} do
      for _, scale in ipairs{1, dtype == "int64" and 2 ^ 40 or dtype == "int32" and 2 ^ 20 or 3} do
        local base = pg.range(0, n - 1, {dtype = "int64"}) * 7919 % 37 - (dtype == "uint8" and 0 or 18)
        local x = (base * scale):to(dtype)
        local v, at, c = x:unique{return_inverse = true, return_counts = true}
        local what = dtype .. " " .. n .. " " .. scale
        t.check(v:index_select(1, at):equal(x), what)
        t.equal(v, x:unique(), what)
        t.equal(v:numel(), math.min(n, 37), what)
        t.equal(c:sum():item(), n, what)
        if v:numel() > 1 then t.check(v:narrow(1, 2, v:numel() - 1):gt(v:narrow(1, 1, v:numel() - 1)):all():item(), what) end
      end
    end
  end
  local bools = pg.range(0, 499):gt(100)
  local kinds, place, count = bools:unique{return_inverse = true, return_counts = true}
  t.equal(kinds:totable(), {false, true})
  t.equal(count:totable(), {101, 399})
  t.check(place:eq(2):equal(bools))
  t.equal(pg.tensor{nan, 1, nan, 0, -0.0}:unique():numel(), 4)
  t.equal(pg.tensor({nan, 1, nan, 0, -0.0, 1}, {dtype = "float16"}):unique():numel(), 4)
end)

t.test("unique returns slices along a dim, with their positions and counts", function()
  local x = pg.tensor{{2, 1, 2}, {1, 9, 1}, {2, 1, 2}, {1, 3, 1}}
  local values, inverse, counts = x:unique{dim = 1, return_inverse = true, return_counts = true}
  t.equal(values:totable(), {{1, 3, 1}, {1, 9, 1}, {2, 1, 2}})
  t.equal(inverse:totable(), {3, 2, 3, 1})
  t.equal(counts:totable(), {1, 1, 2})
  t.equal(values:index_select(1, inverse), x)
  t.equal(x:unique{dim = 2}:totable(), {{1, 2}, {9, 1}, {1, 2}, {3, 1}})
  t.equal(x:unique():totable(), {1, 2, 3, 9})
  t.equal(pg.zeros(0, 3):unique{dim = 1}.shape, {0, 3})
  t.equal(pg.zeros(3, 0):unique{dim = 1}.shape, {1, 0})
  t.bad_argument(function() return x:unique{dim = 3} end, "unique", "dim")
end)
