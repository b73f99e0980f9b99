-- Ops that go by the order or the places of elements, on the CUDA device as on the CPU. Lines are long enough for
-- several blocks. On the fake driver of tests/cuda the threads also run from the last to the first, since no result may
-- depend on which thread comes first.
local t = require "tests.support"
local pg = require "perigee"
if t.device ~= "cuda" then return end

local ffi = require "ffi"
local driver = os.getenv("PERIGEE_CUDA_DRIVER")
local fake = driver and ffi.load(driver)
if fake then ffi.cdef "void fake_backwards(int); int fake_calls(const char*);" end

local cpu = {device = "cpu"}

local function moved(list, device)
  local out = {}
  for i, v in ipairs(list) do
    out[i] = type(v) == "table" and moved(v, device) or type(v) == "userdata" and v:to(device) or v
  end
  return out
end

local function check(what, got, expected, options)
  t.equal(#got, #expected, what)
  for i, want in ipairs(expected) do
    t.equal({got[i].shape, got[i].dtype}, {want.shape, want.dtype}, what)
    local y = got[i]:to("cpu")
    if options then
      t.close(y, want, options)
    else  -- the same elements, NaN where NaN is
      local same = y:eq(want):logical_or(y:ne(y):logical_and(want:ne(want)))
      t.check(same:all():item(), what .. ": another element")
    end
  end
end

-- f(args) must be the same on both devices. `options`: those of t.close where rounding differs.
local function same(what, f, args, options)
  local expected = {f(unpack(moved(args, "cpu")))}
  for _, backwards in ipairs(fake and {0, 1} or {0}) do
    if fake then fake.fake_backwards(backwards) end
    local ok, got = pcall(function() return {f(unpack(moved(args, "cuda")))} end)
    if ok then ok, got = pcall(function() check(what, got, expected, options) end) end
    if fake then
      pg.synchronize("cuda")
      fake.fake_backwards(0)
    end
    if not ok then error(got, 0) end
  end
end

-- Numbers with ties, zeros of both signs, infinities and NaN.
local function numbers(...)
  local x = pg.randint(-3, 3, {...}, {device = "cpu"}):to("float32")
  local special = pg.rand({...}, cpu)
  x = pg.where(special:lt(0.01), 0 / 0, x)
  x = pg.where(special:gt(0.99), math.huge, x)
  return pg.where(x:eq(0):logical_and(special:gt(0.5)), -0.0, x)
end
local function int64(...) return pg.randint(-40, 40, {...}, {device = "cpu"}) end

t.test("attention of halves", function()
  local function attend(options)
    return function(q, k, v, mask, dy)
      local leaves = {q:clone():attach_grad(), k:clone():attach_grad(), v:clone():attach_grad()}
      local y
      pg.train_mode(function()
        local given = {is_causal = options.is_causal, dropout_p = options.dropout_p, attn_mask = not options.is_causal and mask or nil,
                       generator = pg.Generator(5)}
        y = pg.record(function() return pg.scaled_dot_product_attention(leaves[1], leaves[2], leaves[3], given) end)
      end)
      y:backward{grad = dy}
      return y, leaves[1].grad, leaves[2].grad, leaves[3].grad
    end
  end
  for i, widths in ipairs{{16, 16}, {64, 64}, {128, 128}, {30, 72}} do
    local width, value_width = unpack(widths)
    local dtype = i % 2 == 0 and "float16" or "bfloat16"
    local function given(...) return pg.rand({...}, cpu):sub(0.5):to(dtype) end
    local args = {given(2, 140, width), given(2, 133, width), given(2, 133, value_width), pg.rand({140, 133}, cpu):gt(0.3), given(2, 140, value_width)}
    local tolerance = {rtol = dtype == "float16" and 4e-3 or 3e-2, atol = dtype == "float16" and 2e-3 or 2e-2}
    same("causal", attend{is_causal = true}, args, tolerance)
    same("masked", attend{}, args, tolerance)
    if i > 2 then same("dropped", attend{is_causal = true, dropout_p = 0.2}, args, tolerance) end
  end
end)

t.test("running sums, products and extremes", function()
  for _, shape in ipairs{{3}, {2, 70, 3}, {40000}, {3, 3000}, {900, 2, 2}} do
    local dim = shape[1] == 900 and 1 or math.ceil(#shape / 2)
    local given, finite = numbers(unpack(shape)), pg.rand(shape, cpu)
    same("cumsum", function(x) return x:cumsum(dim) end, {finite}, {rtol = 1e-6})
    same("cumsum back", function(x) return x:cumsum(dim, {reverse = true}) end, {int64(unpack(shape))})
    same("cumsum of NaN", function(x) return x:cumsum(dim):isnan() end, {given})
    same("cumprod", function(x) return x:cumprod(dim) end, {finite * 0.02 + 0.99}, {rtol = 1e-5})
    same("cummax", function(x) return x:cummax(dim) end, {given})
    same("cummin", function(x) return x:cummin(dim) end, {given})
  end
  same("cumsum of bools", function(x) return x:gt(0):cumsum(1) end, {numbers(5000)})
  -- The derivative of cumprod is y[i] = b[i] + a[i - lag] y[i - 1].
  local factors = pg.rand({20000}, cpu) * 0.02 + 0.99
  factors[7000] = 0
  same("the derivative of cumprod", function(x)
    x:attach_grad()
    pg.record(function() return x:cumprod(1):sum() end):backward()
    return x.grad
  end, {factors}, {rtol = 1e-4})
  same("large factors of zero", function(x, dy)
    x:attach_grad()
    pg.record(function() return (x:cumprod(1) * dy):sum() end):backward()
    return x.grad
  end, {pg.full({5000}, 1e10, cpu), pg.zeros(5000, cpu)})
end)

t.test("sort, argsort and topk keep the order of equal elements", function()
  for _, n in ipairs{1, 7, 2048, 5000, 20001} do
    local given = numbers(n)
    same("sort " .. n, function(x) return x:sort() end, {given})
    same("argsort " .. n, function(x) return x:argsort{descending = true} end, {given})
    same("topk " .. n, function(x) return x:topk(math.min(5, n)) end, {given})
  end
  same("topk", function(x) return x:topk(2500, {largest = false}) end, {numbers(9000)})
  same("sort int64", function(x) return x:sort(2) end, {int64(2, 4500, 2)})
  same("sort lines", function(x) return x:sort(1) end, {numbers(300, 40)})
  same("topk lines", function(x) return x:topk(3, 2) end, {numbers(4, 3000)})
  same("sort bools", function(x) return x:gt(0):sort() end, {numbers(100)})
end)

t.test("unique, searchsorted and bincount", function()
  local all = {return_inverse = true, return_counts = true}
  same("unique", function(x) return x:unique(all) end, {numbers(5000)})
  same("unique_consecutive", function(x) return x:unique_consecutive(all) end, {numbers(50, 60)})
  same("unique of none", function(x) return x:unique(all) end, {numbers(0)})
  for dim = 1, 3 do
    local options = {return_inverse = true, return_counts = true, dim = dim}
    local given = pg.randint(0, 1, {3, 2600, 2}, cpu):to("float32")
    same("unique slices", function(x) return x:unique(options) end, {given})
    same("unique_consecutive slices", function(x) return x:unique_consecutive(options) end, {given})
  end
  local sorted = numbers(3, 200):sort()
  for _, right in ipairs{true, false} do
    same("searchsorted", function(s, v) return s:searchsorted(v, {right = right}) end, {sorted, numbers(3, 50)})
    same("searchsorted in one", function(s, v) return s:searchsorted(v, {right = right}) end, {sorted[1], int64(7, 7)})
    same("searchsorted for a number", function(s) return s:searchsorted(1, {right = right}) end, {sorted[2]})
  end
  local labels = pg.randint(1, 20, {3000}, cpu)
  same("bincount", function(x) return x:bincount{minlength = 30} end, {labels})
  same("bincount of weights", function(x, w) return x:bincount(w) end, {labels, int64(3000)})
  same("bincount of none", function(x) return x:bincount{minlength = 2} end, {labels[{{1, 0}}]})
  t.error_contains(function() return (labels - 1):to("cuda"):bincount() end, "bincount: bad argument 'x' (expected labels from 1 on, got 0 ")
end)

t.test("masks", function()
  local given, mask, row = numbers(60, 70), numbers(60, 70):gt(0), numbers(60):gt(0)
  local count = mask:to("int64"):sum():item()
  same("masked_select", function(x, m) return x:masked_select(m) end, {given, mask})
  same("masked_select of one row", function(x, m) return x:masked_select(m) end, {given[1], mask})
  same("rows", function(x, m) return x[m] end, {given, row})
  same("nonzero", function(x) return x:nonzero() end, {given})
  same("nonzero of one", function(x) return x:nonzero() end, {pg.tensor(3, cpu)})
  same("masked_scatter", function(x, m, s) return x:masked_scatter(m, s) end, {given, mask, numbers(4200)})
  same("mask_assign", function(x, m, v)
    local y = x:clone()
    y[m] = v
    return y
  end, {given, mask, numbers(count)})
  same("mask_assign of one row", function(x, m, v)
    local y = x:clone()
    y[m] = v
    return y
  end, {given, row, numbers(70)})
  same("index_put of a mask", function(x, m, v) return x:index_put({m}, v, {accumulate = true}) end, {given, mask, numbers(count)})
  same("gradients", function(x, m, s)
    x:attach_grad() s:attach_grad()
    pg.record(function() return (x[m] * 2):sum() + (x:masked_scatter(m, s) * x):sum() end):backward()
    return x.grad, s.grad
  end, {pg.rand(60, 70, cpu), mask, pg.rand({count + 3}, cpu)})
  local y = given:to("cuda")
  t.error_contains(function() y:masked_scatter(mask:to("cuda"), pg.zeros(2)) end,
    ("masked_scatter: bad argument 'source' (expected at least %d elements, one for each true element of the mask, got 2)"):format(count))
  t.error_contains(function() y[mask:to("cuda")] = pg.zeros(3) end,
    ("(expected %d rows, one for each true element of the mask, got 3)"):format(count))
end)

t.test("of several writes to one place the last stays", function()
  local given, index = numbers(40, 30), pg.randint(1, 40, {300}, cpu)
  same("index_assign", function(x, i, v)
    local y = x:clone()
    y[i] = v
    return y
  end, {given, index, numbers(300, 30)})
  same("index_copy", function(x, i, v) return x:index_copy(2, i, v) end, {given:t(), index, numbers(30, 300)})
  same("index_fill", function(x, i) return x:index_fill(1, i, 7) end, {given, index})
  same("scatter", function(x, i, v) return x:scatter(1, i, v) end,
    {given, pg.randint(1, 40, {200, 30}, cpu), numbers(200, 30)})
  same("put", function(x, i, v) return x:put(i, v) end, {given, pg.randint(1, 1200, {5000}, cpu), numbers(5000)})
  same("index_put", function(x, i, j, v) return x:index_put({i, j}, v) end,
    {given, pg.randint(-40, -1, {90, 1}, {device = "cpu", dtype = "int32"}), pg.randint(1, 30, {100}, cpu), numbers(90, 100)})
  same("index_put of rows", function(x, i, v) return x:index_put({i}, v) end, {given, index, numbers(300, 30)})
end)

t.test("sums and extremes at index values", function()
  local given, index = int64(40, 30):to("float32"), pg.randint(1, 40, {200, 30}, cpu)
  local source = int64(200, 30):to("float32")
  for _, how in ipairs{"sum", "prod", "mean", "amax", "amin"} do
    for _, self in ipairs{true, false} do
      local options = {include_self = self}
      same(how, function(x, i, s) return x:scatter_reduce(1, i, s, how, options) end, {given, index, source}, {rtol = 1e-5})
      same(how .. " of int8", function(x, i, s) return x:scatter_reduce(1, i, s, how, options) end,
        {given:to("int8"), index, source:to("int8")})
    end
  end
  same("index_add at a table", function(x, i, v) return x:index_add(1, i, v) end,
    {given, pg.tensor({{1, 2}, {2, 40}}, {dtype = "int64", device = "cpu"}), int64(2, 2, 30):to("float32")})
  same("put adds", function(x, i, v) return x:put(i, v, {accumulate = true}) end,
    {given, pg.randint(1, 1200, {5000}, cpu), int64(5000):to("float32")})
  same("index_put adds", function(x, i, j, v) return x:index_put({i, j}, v, {accumulate = true}) end,
    {given, pg.randint(1, 40, {90, 1}, cpu), pg.randint(1, 30, {100}, cpu), int64(90, 100):to("float32")})
  same("its gradient", function(x, i, j, v)
    v:attach_grad()
    pg.record(function() return (x:index_put({i, j}, v) * x):sum() end):backward()
    return v.grad
  end, {given, pg.range(1, 40, cpu):to("int64"):reshape(40, 1), pg.tensor({3, 9}, {dtype = "int64", device = "cpu"}), given[{{}, {1, 2}}]})
  local y = given:to("cuda")
  t.error_contains(function()
    y:index_put({pg.tensor({1, 2}, {dtype = "int64"}), pg.tensor({3, 31}, {dtype = "int64"})}, 0)
  end, "index_put: bad argument 'indices' (expected index values from 1 to 30 or -30 to -1, got 31 at position 2 of tensor 2)")
end)

t.test("a program has sorts, scans and writes in it", function()
  local f = pg.jit(function(x, i, m)
    local y, order = x:sort()
    y = y:cumsum(1):index_fill(1, i, 7):scatter(1, order, y)
    return x:masked_scatter(m, y):scatter_reduce(1, order, y, "amax"), order:flip(1)
  end)
  local given, index = numbers(3000), pg.randint(1, 3000, {40}, cpu)
  local args = {given, index, given:gt(0)}
  local expected, here = {f(unpack(args))}, moved(args, "cuda")
  local before = fake and fake.fake_calls("cuGraphLaunch")
  for run = 1, 4 do
    local got = {f(unpack(here))}
    check("run " .. run, got, expected, {rtol = 1e-5})
    for _, y in ipairs(got) do y:release() end  -- the next results have the same memory
  end
  if fake then t.check(fake.fake_calls("cuGraphLaunch") > before, "no program was launched") end
end)

t.test("random numbers are those of the CPU", function()
  local function drawn(f)
    return function(...)
      pg.manual_seed(7)
      return f(...)
    end
  end
  local weights = pg.rand(3, 400, cpu)
  weights = pg.where(weights:lt(0.3), 0, weights)
  same("bernoulli", drawn(function(p) return p:bernoulli() end), {pg.rand(1000, cpu)})
  same("multinomial", drawn(function(p) return p:multinomial(50) end), {weights})
  same("multinomial with replacement", drawn(function(p) return p:multinomial(500, {replacement = true}) end), {weights})
  for _, n in ipairs{0, 1, 2, 10, 3000} do
    same("randperm", drawn(function(x) return pg.randperm(n, {device = x.device}) end), {weights})
  end
  t.error_contains(function() (weights * 2):to("cuda"):bernoulli() end, "bernoulli: bad argument 'p' (expected probabilities from 0 to 1, got 1.")
  t.error_contains(function() (weights * 0):to("cuda"):multinomial(2) end,
    "multinomial: bad argument 'p' (expected at least 2 weights above 0 in a row, got 0)")
end)

t.test("distances, bags and triangles", function()
  local rows, others = pg.randn(2, 19, 70, cpu), pg.randn(2, 33, 70, cpu)
  for _, p in ipairs{0, 1, 2, 3.5, math.huge} do
    same("cdist " .. p, function(x, y)
      x:attach_grad() y:attach_grad()
      local d = pg.record(function() return pg.cdist(x, y, {p = p}) end)
      d:backward()
      return d, x.grad, y.grad
    end, {rows, others}, {rtol = 1e-4, atol = 1e-5})
  end
  local weight, offsets = pg.randn(50, 6, cpu), pg.tensor({1, 1, 40, 300}, {dtype = "int64", device = "cpu"})
  for _, mode in ipairs{"sum", "mean", "max"} do
    same(mode, function(i, w, o) return pg.embedding_bag(i, w, o, {mode = mode, padding_idx = 4}) end,
      {pg.randint(1, 50, {400}, cpu), weight, offsets}, {rtol = 1e-5})
  end
  t.error_contains(function()
    pg.embedding_bag(pg.randint(1, 50, {9}), weight:to("cuda"), pg.tensor({1, 5, 3}, {dtype = "int64"}))
  end, "embedding_bag: bad argument 'offsets' (expected offsets in order, up to 10, got 3 at position 3)")
  for _, case in ipairs{{5, 7, 0}, {7, 5, -2}, {6, 4, 3}, {3, 90, -1}, {90, 3, 1}, {4, 4, 9}, {4, 4, -9}} do
    local height, width, offset = unpack(case)
    same("tril_indices", function(x) return pg.tril_indices(height, width, {offset = offset, device = x.device}) end, {weight})
    same("triu_indices", function(x) return pg.triu_indices(height, width, {offset = offset, device = x.device}) end, {weight})
  end
end)

t.test("ctc_loss and its derivatives", function()
  local given = pg.randn(40, 3, 9, cpu):log_softmax(3)
  local labels = pg.randint(2, 9, {3, 12}, cpu)
  labels[{1, 2}] = labels[{1, 1}]
  local steps, counts = pg.tensor({40, 9, 33}, {dtype = "int64", device = "cpu"}), pg.tensor({12, 10, 0}, {dtype = "int64", device = "cpu"})
  for _, zero in ipairs{true, false} do
    same("ctc_loss", function(x, l, n, c)
      x:attach_grad()
      local y = pg.record(function() return pg.ctc_loss(x, l, n, c, {reduction = "none", zero_infinity = zero}) end)
      y:backward()
      return y, x.grad
    end, {given, labels, steps, counts}, {rtol = 1e-4, atol = 1e-5, equal_nan = true})
  end
end)
