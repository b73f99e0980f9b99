-- Products over chosen dims, of vectors, and per element: values of PyTorch 2.15.
local t = require "tests.support"
local pg = require "perigee"

local function is(x, values, what) t.equal(x:totable(), values, what) end

t.test("tensordot by count and by lists of dims", function()
  local a = pg.range(0, 23):reshape{2, 3, 4}
  local b = pg.range(0, 11):reshape{4, 3}
  is(pg.tensordot(a, b, {{2, 3}, {2, 1}}), {440, 1232})
  is(pg.tensordot(a, b, {dims = {{-2, -1}, {-1, 1}}}), {440, 1232})
  is(pg.tensordot(a, b, {2, 3}, {2, 1}), {440, 1232})
  is(pg.tensordot(a, b:t()), {440, 1232}, "two dims")
  t.equal(a:tensordot(b, 1).shape, {2, 3, 3})
  t.equal(pg.tensordot(a, b, 0).shape, {2, 3, 4, 4, 3})
  t.equal(pg.tensordot(a, b, {{}, {}}).shape, {2, 3, 4, 4, 3})
  is(pg.tensordot(pg.ones(2, 3), pg.ones(2, 1), {{1, 2}, {1, 2}}), 6, "size 1 broadcasts")
  t.bad_argument(function() a:tensordot(b, 4) end, "tensordot", "dims")
  t.bad_argument(function() a:tensordot(b, {{1}, {1, 2}}) end, "tensordot", "dims_b")
  t.bad_argument(function() a:tensordot(b, {{1, 2, 3}}) end, "tensordot", "dims")
  t.bad_argument(function() a:tensordot(b, {{1}, {9}}) end, "tensordot", "dims_b")
  t.error_contains(function() a:tensordot(b, {{1}, {1}}) end,
                   "tensordot: bad argument 'b' (expected size 2 in dim 1 to go with dim 1 of a 2x3x4, got float32 4x3")
  local knot = {}
  knot[1], knot[2] = knot, knot
  t.bad_argument(function() a:tensordot(b, knot) end, "tensordot", "dims")
end)

t.test("products of integers wrap around, whatever the layout", function()
  for _, dtype in ipairs{"int64", "int32", "int8", "uint8"} do
    for _, size in ipairs{{1, 1, 1}, {3, 7, 5}, {2, 0, 3}, {4, 9, 1100}, {17, 6, 33}} do
      local m, k, n = unpack(size)
      local a, b = pg.randint(-1000, 1000, {2, m, k}):to(dtype), pg.randint(-1000, 1000, {2, k, n}):to(dtype)
      local expected = (a:unsqueeze(4):to("int64") * b:unsqueeze(2):to("int64")):sum(3):to(dtype)
      local ta, tb = a:transpose(2, 3):contiguous():transpose(2, 3), b:transpose(2, 3):contiguous():transpose(2, 3)
      t.equal(a:matmul(b), expected)
      t.equal(ta:matmul(b), expected)
      t.equal(a:matmul(tb), expected)
      t.equal(a[1]:matmul(tb), pg.stack({a[1]:matmul(b[1]), a[1]:matmul(b[2])}, 1))
      t.equal(a:matmul(pg.cat({b, b}, 3):narrow(3, 1, n)), expected)
    end
  end
end)

-- Small integers: sums are exact in float64 and float32, and rounded once to 16 bits.
t.test("products with few rows or columns are exact in all floating dtypes and layouts", function()
  for _, dtype in ipairs{"float64", "float32", "float16", "bfloat16"} do
    for _, size in ipairs{{1, 1, 1}, {1, 7, 37}, {2, 33, 19}, {4, 70, 9}, {5, 40, 3}, {41, 65, 1}, {37, 19, 4}, {3, 0, 2},
                          {1, 40000, 1}, {2, 70001, 3}} do
      local m, k, n = unpack(size)
      local x, y = pg.randint(-4, 4, {m, 2 * k}):to(dtype), pg.randint(-4, 4, {2 * n, k}):to(dtype)
      local a, b = x:narrow(2, k + 1, k), y:narrow(1, n + 1, n):t()
      local expected = (a:to("float64"):unsqueeze(3) * b:to("float64"):unsqueeze(1)):sum(2):to(dtype)
      local what = ("%s %d %d %d"):format(dtype, m, k, n)
      local left, right = {a, a:contiguous(), a:t():contiguous():t()}, {b, b:contiguous(), b:t():contiguous():t()}
      for _, l in ipairs(left) do
        for _, r in ipairs(right) do t.equal(l:mm(r), expected, what) end
      end
      t.equal(pg.stack({a, a}):bmm(pg.stack({b, b})), pg.stack({expected, expected}), what)
      if m == 1 and n == 1 then t.equal(a:flatten():dot(b:flatten()), expected:reshape{}, what) end
      if k > 0 then
        local bias = pg.randint(-4, 4, {n}):to(dtype)
        local sums = (a:to("float64"):unsqueeze(3) * b:to("float64"):unsqueeze(1)):sum(2) + bias:to("float64")
        t.equal(a:linear(b:t(), bias), sums:to(dtype), what)
      end
    end
  end
end)

t.test("inner, vdot, trace and kron", function()
  is(pg.inner(pg.tensor({{1, 2}, {3, 4}}), pg.tensor({{5, 6}, {7, 8}, {9, 10}})), {{17, 23, 29}, {39, 53, 67}})
  is(pg.inner(pg.tensor({1, 2}), pg.tensor(3)), {3, 6})
  is(pg.vdot(pg.tensor({1, 2}), pg.tensor({3, 4})), 11)
  is(pg.tensor({{1, 2, 3}, {4, 5, 6}}):trace(), 6)
  t.equal(pg.ones({2, 2}, {dtype = "int8"}):trace().dtype, "int64")
  is(pg.kron(pg.tensor({{1, 2}}), pg.tensor({{1}, {3}})), {{1, 2}, {3, 6}})
  is(pg.kron(pg.eye(2), pg.tensor({{1, 2}, {3, 4}})), {{1, 2, 0, 0}, {3, 4, 0, 0}, {0, 0, 1, 2}, {0, 0, 3, 4}})
  is(pg.kron(pg.tensor({1, 10}), pg.tensor({{1, 2}, {3, 4}})), {{1, 2, 10, 20}, {3, 4, 30, 40}})
  t.bad_argument(function() pg.inner(pg.ones(2, 3), pg.ones(2)) end, "inner", "y")
  t.bad_argument(function() pg.vdot(pg.ones(2), pg.ones(3)) end, "vdot", "y")
  t.bad_argument(function() pg.trace(pg.ones(2)) end, "trace", "x")
end)

t.test("cross takes the first dim of size 3 or the given one", function()
  local x, unit = pg.tensor({{1, 2, 3}, {4, 5, 6}, {7, 8, 9}}), pg.eye(3)
  is(x:cross(unit), {{0, -8, 6}, {7, 0, -3}, {-4, 2, 0}})
  is(x:cross(unit, -1), {{0, 3, -2}, {-6, 0, 4}, {8, -7, 0}})
  is(pg.cross(pg.tensor({1, 0, 0}), pg.tensor({0, 1, 0})), {0, 0, 1})
  t.equal(pg.ones(2, 3):cross(pg.ones(1, 3)).shape, {2, 3})
  t.bad_argument(function() pg.ones(2, 4):cross(pg.ones(2, 4)) end, "cross", "x")
  t.bad_argument(function() pg.ones(3, 3):cross(pg.ones(3)) end, "cross", "y")
end)

t.test("chain_matmul", function()
  local a, b, c = pg.randn(7, 3), pg.randn(3, 9), pg.randn(9, 2)
  t.check(pg.chain_matmul(a, b, c):allclose(a:matmul(b):matmul(c), {atol = 1e-5}), "the product")
  t.check(pg.chain_matmul{a}:equal(a), "one matrix")
  t.bad_argument(function() pg.chain_matmul(a, c) end, "chain_matmul", "matrices")
  t.bad_argument(function() pg.chain_matmul{} end, "chain_matmul", "matrices")
end)

t.test("addr, addcmul and addcdiv", function()
  local u, v = pg.tensor({1, 2}), pg.tensor({3, 4, 5})
  is(pg.addr(pg.ones(3), u, v, {beta = 10, alpha = 2}), {{16, 18, 20}, {22, 26, 30}})
  is(pg.addr(pg.full({2, 3}, 0 / 0), u, v, {beta = 0}), {{3, 4, 5}, {6, 8, 10}}, "input is not read")
  is(pg.ones(2):addcmul(u, pg.tensor({3, 4}), {value = 0.5}), {2.5, 5})
  is(pg.ones(2):addcdiv(u, pg.tensor({4, 4}), {value = 2}), {1.5, 2})
  local x = pg.ones(2)
  x:addcmul_(u, u)
  is(x, {2, 5})
  x:addcdiv_(u, u, {value = -1})
  is(x, {1, 4})
  local whole = pg.tensor({1, 2}, {dtype = "int32"})
  is(whole:addcmul(whole, whole, {value = 3}), {4, 14})
  t.equal(whole:addcmul(whole, whole).dtype, "int32")
  t.equal(whole:addcdiv(whole, whole).dtype, "float32")
  t.bad_argument(function() whole:addcmul(whole, whole, {value = 0.5}) end, "addcmul", "value")
end)

t.test("a product with a right side that lasts follows its changes", function()
  for _, shape in ipairs{{70, 90, 33}, {1, 64, 64}, {200, 31, 520}} do
    local m, k, n = unpack(shape)
    local a, b = pg.rand(m, k) - 0.5, pg.rand(k, n) - 0.5
    local mm, matmul = pg.jit(function(x) return x:mm(b) end), pg.jit(function(x) return x:matmul(b) end)
    for _ = 1, 3 do
      t.check(mm(a):equal(a:mm(b)) and matmul(a):equal(a:mm(b)), "other bits")
      b:add_(1)
    end
  end
end)

t.test("a linear layer has the same bits in inference, in training, and for any number of threads", function()
  local threads = pg.get_num_threads()
  for _, shape in ipairs{{2, 40, 30}, {13, 37, 650}, {16, 128, 784}, {33, 100, 1500}, {64, 64, 64}, {200, 70, 2100}, {1100, 50, 130}} do
    local m, n, k = unpack(shape)
    local x, w, b = pg.rand(m, k) - 0.5, pg.rand(n, k) - 0.5, pg.rand(n)
    local expected = x:linear(w, b)
    local infer, other = pg.jit(function(v) return v:linear(w, b) end), pg.jit(function(v, u) return v:linear(u, b) end)
    local trained = w:clone()
    trained:attach_grad()
    local train = pg.jit(function(v)
      local y
      pg.record(function() y = v:linear(trained, b) return y:sum() end):backward()
      trained:add_(trained.grad, {alpha = 0})
      return y
    end)
    for count = 1, 2 do
      pg.set_num_threads(count)
      for _ = 1, 2 do
        for name, y in pairs{eager = x:linear(w, b), infer = infer(x), other = other(x, w), train = train(x)} do
          t.check(y:equal(expected), ("%s, %d threads, %d x %d x %d"):format(name, count, m, n, k))
        end
      end
    end
  end
  pg.set_num_threads(threads)
end)

t.test("products of whole numbers with vectors, whatever the layout", function()
  for _, dtype in ipairs{"int64", "int32", "uint8"} do
    for _, size in ipairs{{1, 1}, {3, 5}, {70, 33}, {300, 257}} do
      local rows, columns = size[1], size[2]
      local a = (pg.range(0, rows * columns - 1, {dtype = "int64"}) * 31 % 17 - (dtype == "uint8" and 0 or 8)):to(dtype):reshape(rows, columns)
      local x = (pg.range(0, columns - 1, {dtype = "int64"}) * 13 % 11):to(dtype)
      local expected = (a * x):sum(2):to(dtype)
      t.equal(a:mv(x), expected)
      t.equal(a:t():contiguous():t():mv(x), expected)
      t.equal(a:t():contiguous():t():matmul(x:reshape(columns, 1):expand(columns, 2)), expected:reshape(rows, 1):expand(rows, 2))
      t.equal(a:t():contiguous():t():mv(x:reshape(columns, 1):repeat_interleave(2, 2):select(2, 1)), expected)
    end
  end
end)
