-- Section 1 of the script API, one test per claim: what holds for all ops.
local t = require "tests.support"
local pg = require "perigee"

local function T(v, dtype) return pg.tensor(v, dtype and {dtype = dtype}) end
local function i64(v) return T(v, "int64") end
local function shape(x, ...) t.equal(x.shape, {...}, "shape") end

t.test("dims, elements and ranges are 1-based, inclusive, negative from the end", function()
  local x = T{{1, 2}, {3, 4}, {5, 6}, {7, 8}}
  t.equal(x:sum(1), T{16, 20})
  t.equal(x:sum(-1), T{3, 7, 11, 15})
  t.equal(x[-1], T{7, 8})
  t.equal(x[{{2, 4}}], T{{3, 4}, {5, 6}, {7, 8}})
  t.equal(x[{{-2, -1}}], T{{5, 6}, {7, 8}})
  t.equal(x:argmax(1), i64{4, 4})
  t.equal(x:argmax(), i64(8))
  t.bad_argument(function() return x:sum(0) end, "sum", "dim")
  t.bad_argument(function() return x:sum(3) end, "sum", "dim")
end)

t.test("class labels are 1..C or ignore_index", function()
  local x = pg.randn(2, 3)
  t.check(pcall(function() return x:cross_entropy(i64{1, 3}) end))
  t.error_contains(function() return x:cross_entropy(i64{0, 1}) end, "cross_entropy")
  t.error_contains(function() return x:cross_entropy(i64{4, 1}) end, "cross_entropy")
  t.error_contains(function() return x:cross_entropy(i64{-1, 1}) end, "cross_entropy")
  t.close(x:cross_entropy(i64{-1, 1}, {ignore_index = -1}), x[{{2, 2}}]:cross_entropy(i64{1}))
  t.close(x:cross_entropy(i64{0, 2}, {index_base = 0}), x:cross_entropy(i64{1, 3}))
end)

t.test("ops over index values have index_base", function()
  local x = T{{10, 20}, {30, 40}}
  t.equal(x:gather(2, i64{{0}, {1}}, {index_base = 0}), T{{10}, {40}})
  t.equal(x:gather(2, i64{{1}, {2}}), T{{10}, {40}})
  t.equal(pg.embedding(i64{0}, x, {index_base = 0}), T{{10, 20}})
  t.equal(pg.one_hot(i64{0, 1}, 2, {index_base = 0}), i64{{1, 0}, {0, 1}})
  t.equal(x:argmax(2, {index_base = 0}), i64{1, 1})
  local _, at = x:topk(1, {index_base = 0})
  t.equal(at, i64{{1}, {1}})
  for _, case in ipairs{{"scatter", 1, i64{{0, 0}}, x}, {"index_select", 1, i64{0}}, {"take", i64{0}}, {"argsort"}, {"argmin"},
                        {"nonzero"}, {"index_add", 1, i64{0}, pg.ones(1, 2)}, {"pick", i64{0, 0}}} do
    local name = table.remove(case, 1)
    case[#case + 1] = {index_base = 0}
    local ok, e = pcall(x[name], x, unpack(case))
    t.check(ok, name .. ": " .. tostring(e))
  end
end)

t.test("pure by default, a trailing _ is in place", function()
  local x = T{-1, 2}
  t.equal(x:add(1), T{0, 3})
  t.equal(x, T{-1, 2})
  t.check(x:add_(1) == x)
  t.equal(x, T{0, 3})
  t.equal(T{-1, 2}:relu_(), T{0, 2})
  t.equal(x:fill_(0), T{0, 0})
  t.equal(x:copy_(T{5, 6}), T{5, 6})
  t.equal(x:zero_(), T{0, 0})
  t.equal(x:copy_(T{7}), T{7, 7})
end)

t.test("an in-place result keeps shape and dtype", function()
  local x, n = T{1, 2}, i64{1, 2}
  t.error_contains(function() n:copy_(0.5) end, "int64")
  t.error_contains(function() x:add_(pg.ones(2, 2)) end, "add_")
  t.error_contains(function() n:add_(0.5) end, "add_")
  t.equal(x, T{1, 2})
  t.equal(n, i64{1, 2})
end)

t.test("options are one trailing table, by name or position", function()
  local x = T{{1, 2}, {3, 4}}
  local sum = T{{3}, {7}}
  t.equal(x:sum{dim = 2, keepdim = true}, sum)
  t.equal(x:sum(2, true), sum)
  t.equal(x:sum(2, {keepdim = true}), sum)
  t.equal(pg.sum(x, 2, true), sum)
  t.equal(x:sum({1, 2}), T(10))
  t.equal(x:gather(2, i64{{2}, {1}}), T{{2}, {3}})
  t.close(x:layer_norm({2}, pg.ones(2), pg.zeros(2)), T{{-1, 1}, {-1, 1}}, {atol = 1e-4})
  local img, w, b = pg.randn(1, 2, 5, 5), pg.randn(3, 2, 3, 3), pg.randn(3)
  shape(img:conv2d(w, b, {stride = 2}), 1, 3, 2, 2)
  shape(img:conv2d(w, b, 2), 1, 3, 2, 2)
  t.equal(pg.einsum("ij,jk->ik", x, x), x:matmul(x))
  t.error_contains(function() return x:sum(2, true, {}, 5) end, "sum")
  t.bad_argument(function() return x:sum(2, {dim = 1}) end, "sum", "dim")
end)

t.test("an array table is the first list attribute; {} the empty list", function()
  local x = pg.range(1, 6)
  shape(x:reshape{2, -1}, 2, 3)
  shape(x:reshape(2, -1), 2, 3)
  shape(x:reshape{2, 3}:permute{2, 1}, 3, 2)
  shape(x:reshape{2, 3}:permute(2, 1), 3, 2)
  shape(T{5}:reshape{})
  shape(pg.zeros{})
  shape(pg.ones{})
  shape(pg.randn{})
  t.equal(x:sum{}, T(21))
end)

t.test("unknown names raise and suggest", function()
  local x = pg.ones(2, 2)
  t.error_contains(function() return x:sum{keepdims = true} end, "did you mean 'keepdim'")
  t.error_contains(function() return x:rehsape(4) end, "did you mean 'reshape'")
  t.error_contains(function() return x.shap end, "did you mean 'shape'")
  t.error_contains(function() x.foo = 1 end, "foo")
  t.error_contains(function() x.shape = {4} end, "shape")
  t.error_contains(function() return pg.arange end, "unknown field 'arange' (write pg.range(1, 5); both ends are included")
  t.error_contains(function() return pg.tenser end, "did you mean 'tensor'")
  t.error_contains(function() return pg.nn.Dens end, "did you mean 'Dense'")
  t.error_contains(function() return pg.loss.L2loss end, "did you mean 'L2Loss'")
  t.error_contains(function() return pg.optim.Adams end, "did you mean 'Adam")
  t.error_contains(function() return pg.data.DataLoder end, "did you mean 'DataLoader'")
  t.error_contains(function() return pg.init.Xaver end, "did you mean 'Xavier'")
  t.error_contains(function() return pg.metric.Acuracy end, "did you mean 'Accuracy'")
  t.error_contains(function() return pg.utils.seedall end, "did you mean 'seed_all'")
  t.error_contains(function() return pg.autograd.recrod end, "did you mean 'record'")
  t.error_contains(function() return pg.zeros(2, {dtyp = "int64"}) end, "did you mean 'dtype'")
  t.error_contains(function() return pg.tensor({1}, {dtype = "float23"}) end, "such as \"float32\"")
  t.error_contains(function() return pg.linalg.slove end, "did you mean 'solve'")
  t.error_contains(function() return pg.optim.lr_scheduler.Cosin end, "did you mean 'Cosine'")
  t.error_contains(function() return pg.tree.falten end, "did you mean 'flatten'")
end)

t.test("dtypes are strings, float32 by default", function()
  for _, d in ipairs{"float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32", "int64", "bool"} do
    local x = pg.zeros(2, {dtype = d})
    t.check(x.dtype == d)
    t.equal(x:totable(), d == "bool" and {false, false} or {0, 0})
    t.check(pg.ones(1):to(d).dtype == d)
  end
  t.check(pg.tensor{1, 2}.dtype == "float32" and pg.tensor{true}.dtype == "bool")
  t.check(pg.zeros(1).dtype == "float32" and pg.rand(1).dtype == "float32" and pg.range(1, 2).dtype == "float32")
  t.check(pg.zeros(1).device == t.device)
  t.error_contains(function() return pg.zeros(1, {device = "cuda"}) end, "cuda")
  t.error_contains(function() return pg.zeros(1, {device = "gpu"}) end, "device")
end)

t.test("broadcasting and empty shapes", function()
  shape(pg.ones(3, 1) + pg.ones(1, 4), 3, 4)
  shape(pg.ones(3) + T(1), 3)
  shape(pg.zeros(0, 3) + pg.ones(3), 0, 3)
  shape(pg.zeros(0, 3):sum(1), 3)
  t.equal(pg.zeros(0):sum(), T(0))
  t.equal(pg.zeros(0, 2):totable(), {})
  t.error_contains(function() return pg.ones(2) + pg.ones(3) end, "add")
end)

t.test("a number is a weak scalar", function()
  for _, d in ipairs{"float32", "float64", "float16", "bfloat16"} do t.check((pg.ones(1, {dtype = d}) + 0.5).dtype == d, d) end
  for _, d in ipairs{"int8", "uint8", "int32", "int64"} do
    local x = pg.ones(1, {dtype = d})
    t.check((x + 1).dtype == d, d)
    t.check((x * 0.5).dtype == "float32", d)
    t.check((1 + x).dtype == d)
  end
  t.error_contains(function() return pg.ones(1, {dtype = "int8"}) + 1000 end, "int8")
  t.error_contains(function() return pg.ones(1, {dtype = "uint8"}) - -1 end, "uint8")
  t.equal(T{true, false} + 1, i64{2, 1})
  t.check((T{true} * 0.5).dtype == "float32")
end)

t.test("bool with a number is promoted as in an addition", function()
  local b = T{true, false}
  local whole = {
    {function(x) return x - 1 end, {0, -1}}, {function(x) return 2 - x end, {1, 2}}, {function(x) return x % 2 end, {1, 0}},
    {function(x) return x ^ 2 end, {1, 0}}, {function(x) return x:floor_divide(2) end, {0, 0}},
    {function(x) return x:clamp(1, 3) end, {1, 1}}, {function(x) return x + 1 end, {2, 1}},
  }
  for i, case in ipairs(whole) do
    for name, f in pairs{eager = case[1], jit = pg.jit(case[1])} do
      t.equal(f(b), T(case[2], "int64"), name .. i)
    end
  end
  t.equal(b - 0.5, T{0.5, -0.5})
  t.equal(2.5 % T{true, true}, T{0.5, 0.5})
  for _, f in ipairs{pg.remainder, pg.fmod, pg.floor_divide} do  -- false is a divisor of 0
    t.bad_argument(function() f(2, b) end, nil, "y")
    t.bad_argument(function() pg.jit(function(x) return f(2, x) end)(b) end, nil, "y")
    t.bad_argument(function() pg.jit(function(x) return f(2, x:logical_not()) end)(b) end, nil, "y")
  end
  t.bad_argument(function() return b - b end, "sub", "x")
  t.bad_argument(function() return b - T{1, 2} end, "sub", "x")
end)

t.test("promotion of two tensors", function()
  local function both(a, b, want)
    local x, y = pg.ones(1, {dtype = a}), pg.ones(1, {dtype = b})
    t.check((x + y).dtype == want, a .. " + " .. b .. " gives " .. (x + y).dtype)
    t.check((y + x).dtype == want, b .. " + " .. a .. " gives " .. (y + x).dtype)
  end
  both("bool", "uint8", "uint8") both("bool", "int8", "int8") both("uint8", "int8", "int32") both("int8", "int32", "int32")
  both("uint8", "int64", "int64") both("int64", "float16", "float16") both("int64", "bfloat16", "bfloat16")
  both("float16", "bfloat16", "float32") both("float16", "float32", "float32") both("float32", "float64", "float64")
  both("int64", "float32", "float32") both("bool", "float64", "float64") both("int32", "int64", "int64")
end)

t.test("integers: /, mean and unary maths return float32, % floors, sums return int64", function()
  local x = T({7, -7}, "int32")
  t.equal(x / 2, T{3.5, -3.5})
  t.equal(x:mean(), T(0))
  t.check(x:abs().dtype == "int32" and x:exp().dtype == "float32" and i64{4}:sqrt().dtype == "float32")
  t.equal(x % 3, T({1, 2}, "int32"))
  t.equal(T{7.5, -7.5} % 2, T{7.5 % 2, -7.5 % 2})
  t.equal(T{5.5} % -2, T{5.5 % -2})
  t.equal(-7 % i64{3}, i64{2})
  for _, d in ipairs{"bool", "uint8", "int8", "int32", "int64"} do
    local o = pg.ones(2, {dtype = d})
    t.check(o:sum().dtype == "int64" and o:prod().dtype == "int64" and o:cumsum(1).dtype == "int64", d)
  end
end)

t.test("trees", function()
  local tree = {pg.ones(1), {b = pg.zeros(2), a = pg.ones(3)}}
  local mapped = pg.tree.map(function(x) return x * 2 end, tree)
  t.equal(mapped, {T{2}, {a = T{2, 2, 2}, b = T{0, 0}}})
  t.equal(pg.tree.map(function(x, y) return x + y end, tree, tree)[2].a, T{2, 2, 2})
  local flat = pg.tree.flatten(tree)
  t.check(#flat == 3)
  shape(flat[2], 3)
end)
