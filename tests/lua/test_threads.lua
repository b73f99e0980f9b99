-- Results and gradients have the same bits with any number of threads, for tensors large enough to be split.
local t = require "tests.support"
local pg = require "perigee"

t.skip_in("gcstress", "large tensors, few ops")

local function uniform(shape, low, high)
  return pg.rand(shape) * (high - low) + low
end

local function bytes(out, x)
  if type(x) == "table" then for _, y in ipairs(x) do bytes(out, y) end
  elseif type(x) == "userdata" then out[#out + 1] = x:contiguous():to_bytes()
  else out[#out + 1] = tostring(x) end
  return out
end

local function is_float(x) return x.dtype:find("float") ~= nil end

-- Returns the outputs of f on args, and the gradients of the floating args.
local function results(f, args, differentiable)
  pg.manual_seed(5)
  local leaves = {}
  for i, x in ipairs(args) do
    if type(x) == "userdata" and is_float(x) then leaves[#leaves + 1] = x:attach_grad() end
    args[i] = x
  end
  local out = pg.record(function() return {f(unpack(args))} end)
  local all = bytes({}, out)
  if differentiable then
    local heads = {}
    for _, y in ipairs(out) do if type(y) == "userdata" and y.requires_grad then heads[#heads + 1] = y end end
    if #heads > 0 and #leaves > 0 then
      pg.autograd.backward(heads)
      for _, x in ipairs(leaves) do bytes(all, x.grad) end
    end
  end
  return all
end

local function check(f, make, differentiable)
  local before, reference = pg.get_num_threads(), nil
  for _, n in ipairs{1, 2, 3} do
    pg.set_num_threads(n)
    pg.manual_seed(1)
    local ok, now = pcall(results, f, make(), differentiable)
    pg.set_num_threads(before)
    if not ok then error(now, 0) end
    reference = reference or now
    for i, b in ipairs(now) do t.check(b == reference[i], n .. " threads: result " .. i .. " differs from that of 1") end
  end
end

for _, name in ipairs(pg.testing.op_names()) do
  local row = pg.testing.op_row(name)
  if row.pointwise then
    t.test(name, function()
      check(pg[name], function()
        local args = {}
        for i, def in ipairs(row.inputs) do
          local x = uniform({257, 401}, def.low, def.high)
          args[i] = def.dtypes.float32 and x or def.dtypes.int32 and x:to("int32") or x:gt((def.low + def.high) / 2)
        end
        local options
        for _, attr in ipairs(row.attrs) do
          if attr.required then options = options or {}; options[attr.name] = 0.5 end
        end
        args[#args + 1] = options
        return args
      end, row.differentiable)
    end)
  end
end

local function x() return uniform({300, 401}, -2, 2) end
local function flat() return uniform({120000}, -2, 2) end
local function labels(n, high) return pg.randint(1, high, {n}) end

local calls = {
  ["sum of all"] = {function(a) return a:sum(), a:mean(), a:norm(), a:var() end, x},
  ["sums of rows"] = {function(a) return a:sum(2), a:mean(2), a:norm{dim = 2}, a:var(2), a:logsumexp(2), a:amax(2), a:prod(2) end, x},
  ["sums of columns"] = {function(a) return a:sum(1), a:mean(1), a:norm{dim = 1}, a:var(1), a:logsumexp(1), a:amin(1) end, x},
  ["extremes"] = {function(a) return a:max(), a:min(1), a:max(2), a:argmax(1), a:argmin(), a:count_nonzero() end, x},
  ["softmax"] = {function(a) return a:softmax(2), a:log_softmax(1), a:softmin(2) end, x},
  ["scans"] = {function(a) return a:cumsum(1), a:cumsum(2), a:cummax(2), (a:tanh() + 1.5):cumprod(2) end, x},
  ["scans of one line"] = {function(a)
    local i, steps = (a * 100):floor():to("int64"), (a * 2):floor()
    return a:cumsum(1), a:cumsum(1, {reverse = true}), (a / 1e4 + 1):cumprod(1), a:cummax(1), steps:cummin(1), i:cumsum(1), i:cummax(1)
  end, flat},
  ["sorting of one line"] = {function(a)
    local ties, same = (a * 1000):floor(), a:narrow(1, 1, 40000) * 0
    for _, v in ipairs{a, ties, same, a:to("float64"), ties:to("int64"), a:to("float16"), a:lt(0)} do
      local sorted, i = v:sort()
      t.check(v:take(i):equal(sorted) and not sorted:narrow(1, 2, sorted:numel() - 1):lt(sorted:narrow(1, 1, sorted:numel() - 1)):any():item())
      local tied = sorted:narrow(1, 2, sorted:numel() - 1):eq(sorted:narrow(1, 1, sorted:numel() - 1))
      t.check(not i:diff():lt(0):logical_and(tied):any():item(), "equal elements changed places")
    end
    return a:sort(), a:argsort({descending = true}), (ties / 0):sort(), ties:unique({return_inverse = true, return_counts = true})
  end, flat},
  ["places in one line"] = {function(a)
    local ties, nan = (a * 100):floor(), pg.where(a:gt(1.9), 0 / 0, a)
    for _, v in ipairs{a, ties, a:to("float64"), a * 0} do
      for _, k in ipairs{1, 9, 50, 3000} do
        local sorted, order = v:sort({descending = true})
        local top, i = v:topk(k)
        t.check(top:equal(sorted:narrow(1, 1, k)) and i:equal(order:narrow(1, 1, k)), k)
      end
    end
    local found = {a:median(), a:nanmedian(), nan:nanmedian(), nan:median(), ties:median(1), a:to("float16"):median(1)}
    for _, v in ipairs{a, ties, a:to("float64"), ties:to("int64"), a:to("float16"), a * 0} do
      local sorted = v:sort()
      for _, k in ipairs{1, 77, 60000, 119999, 120000} do
        local value, i = v:kthvalue(k)
        t.check(value:item() == sorted[k]:item() and v[i:item()]:item() == value:item(), k)
        found[#found + 1] = i
      end
    end
    return unpack(found)
  end, flat},
  ["choices"] = {function(a, m) return pg.multinomial(a:abs(), 5, true), pg.multinomial(a:abs() + 1, 5), pg.bernoulli(a:sigmoid()),
    a[m], a[m:any(2)], pg.where(m, a, 0):nonzero(), m:flatten():nonzero(), a:masked_scatter(m, a), a:equal(a), pg.allclose(a, a + 1e-9) end, x,
    function() return x():gt(0.3) end},
  ["sorting"] = {function(a) return a:sort(1), a:sort(2), a:topk(5), a:argsort(1) end, x},
  ["layer_norm"] = {function(a, w, b) return a:layer_norm({401}, w, b), a:rms_norm({401}, w) end, x, function() return pg.rand(401) end,
    function() return pg.rand(401) end},
  ["batch_norm"] = {function(a, w, b) return (a:batch_norm(nil, nil, w, b, true)) end, function() return pg.rand(16, 8, 31, 33) end,
    function() return pg.rand(8) end, function() return pg.rand(8) end},
  ["group_norm"] = {function(a) return a:group_norm(4), a:instance_norm() end, function() return pg.rand(16, 8, 31, 33) end},
  ["products"] = {function(a, b) return a:matmul(b), a:t():matmul(a), a:mv(b:select(2, 1):contiguous()), pg.einsum("ij,jk->k", a, b) end,
    x, function() return pg.rand(401, 129) end},
  ["bfloat16 products"] = {function(a, b) a, b = a:to("bfloat16"), b:to("bfloat16") return a:matmul(b), a:t():matmul(a), b:t():matmul(a:t()), a:matmul(a:t()) end,
    x, function() return pg.rand(401, 329) end},
  ["bmm"] = {function(a, b) return a:bmm(b) end, function() return pg.rand(9, 70, 50) end, function() return pg.rand(9, 50, 60) end},
  ["linear"] = {function(a, w, b) return a:linear(w, b) end, x, function() return pg.rand(130, 401) end, function() return pg.rand(130) end},
  ["float64 products"] = {function(a) return a:to("float64"):matmul(a:t():to("float64")) end, x},
  ["products of vectors"] = {function(a, v)
    local out = {a:flatten():dot(a:flatten())}
    for _, dtype in ipairs{"float64", "float16", "bfloat16"} do
      local m, w = a:to(dtype), v:to(dtype)
      for _, y in ipairs{m:mv(w), m:t():mv(m:narrow(2, 1, 1):flatten()), m:flatten():dot(m:flatten())} do out[#out + 1] = y end
    end
    return unpack(out)
  end, x, function() return pg.rand(401) end},
  ["products of batches"] = {function(a, b)
    local products = {}
    for _, dtype in ipairs{"float64", "float32", "float16", "bfloat16"} do
      local m, w = a:to(dtype), b:to(dtype)
      for _, right in ipairs{w, w:transpose(2, 3):contiguous():transpose(2, 3), w:narrow(3, 1, 1)} do
        products[#products + 1] = m:bmm(right)
      end
    end
    return unpack(products)
  end, function() return pg.randn(2, 3, 100001) end, function() return pg.randn(2, 100001, 3) end},
  ["convolution"] = {function(a, w, b) return a:conv2d(w, b, {padding = 1}) end, function() return pg.rand(8, 6, 24, 23) end,
    function() return pg.rand(12, 6, 3, 3) end, function() return pg.rand(12) end},
  ["wide convolution"] = {function(a, w) return a:conv2d(w, {padding = 1}) end, function() return pg.rand(7, 16, 16, 15) end,
    function() return pg.rand(32, 16, 3, 3) end},
  ["convolution at batch 1"] = {function(a, w) return a:conv2d(w, {stride = 2}) end, function() return pg.rand(1, 16, 40, 41) end,
    function() return pg.rand(24, 16, 3, 3) end},
  ["convolution of one image"] = {function(a, w, v, b) return a:conv2d(w, b, {padding = 1}), a:conv2d(v) end,
    function() return pg.rand(1, 32, 40, 41) end, function() return pg.rand(64, 32, 3, 3) end, function() return pg.rand(96, 32, 1, 1) end,
    function() return pg.rand(64) end},
  ["convolution with large weights"] = {function(a, w) return a:conv2d(w, {padding = 1}) end, function() return pg.rand(5, 96, 7, 6) end,
    function() return pg.rand(160, 96, 3, 3) end},
  ["transposed convolution"] = {function(a, w) return a:conv_transpose2d(w, {stride = 2}) end, function() return pg.rand(4, 8, 15, 16) end,
    function() return pg.rand(8, 6, 3, 3) end},
  ["pooling"] = {function(a) return a:max_pool2d(3, {stride = 2}), a:avg_pool2d(2), a:adaptive_avg_pool{5, 7} end,
    function() return pg.rand(8, 6, 40, 41) end},
  ["resampling"] = {function(a) return a:interpolate{size = {50, 60}, mode = "bilinear"} end, function() return pg.rand(8, 6, 24, 23) end},
  ["windows"] = {function(a) local b = a:unfold(3, {padding = 1}); return b, b:fold({24, 23}, 3, {padding = 1}) end,
    function() return pg.rand(8, 6, 24, 23) end},
  ["transforms"] = {function(a) return pg.fft.rfft(a), pg.fft.rfft(a, {dim = 1}), pg.fft.irfft2(pg.fft.rfft2(a)) end, x},
  ["paths"] = {function(a) return pg.ctc_loss(a:reshape{50, 6, 401}:log_softmax(3), pg.ones({6, 9}, {dtype = "int64"}) + 1) end, x},
  ["gather and scatter"] = {function(a, i) return a:gather(1, i), a:scatter_add(1, i, a:square()), a:take(i) end, x,
    function() return pg.randint(1, 300, {300, 401}) end},
  ["rows"] = {function(a, i) return a:index_select(1, i), a:index_add(1, i:narrow(1, 1, 300), a), pg.embedding(i, a) end, x,
    function() return labels(900, 300) end},
  ["writes of rows"] = {function(a, b, i)
    local j = i:narrow(1, 1, 300)
    return a:index_add(1, j, a), a:index_copy(1, j, b), a:index_put({j}, b), a:index_put({j}, b, {accumulate = true}),
      a:index_add(1, j, b, {alpha = 0.3}), a:to("float16"):index_add(1, j, b:to("float16")), b:narrow(1, 1, 3):index_add(1, i:remainder(3) + 1, pg.cat({a, b, a}, 1)),
      pg.one_hot(i, 300), pg.full({300, 401}, 3)
  end, x, x, function() return labels(900, 300) end},
  ["masks"] = {function(a) local m = a:gt(0.5); return a:masked_select(m), a:masked_fill(m, 3), m:nonzero() end, x},
  ["sets"] = {function(a) local i = (a * 100):floor():to("int64"); return i:unique(), (i + 300):bincount() end, flat},
  ["movement"] = {function(a) return a:t():contiguous(), a:roll(7), a:flip{1}, a:pad{3, 2}, a:tril(), pg.cat({a, a}, 2), a:repeat_interleave(2, 1) end, x},
  ["random numbers"] = {function(a) return a:dropout(0.3, true), pg.rand(120000), pg.randn(120000), pg.randint(1, 9, {120000}) end, x},
  ["cross entropy"] = {function(a, y) return a:cross_entropy(y) end, x, function() return labels(300, 401) end},
  ["solvers"] = {function(a) return pg.linalg.inv(a), pg.linalg.cholesky(a:matmul(a:t())) end, function() return pg.rand(90, 90) + pg.eye(90) * 60 end},
}

for name, call in pairs(calls) do
  t.test(name, function()
    check(call[1], function()
      local args = {}
      for i = 2, #call do args[i - 1] = call[i]() end
      return args
    end, true)
  end)
end

-- Products of any size, and layers with weights that a plan packs.
t.test("products of random sizes", function()
  local seed = tonumber(os.getenv("PERIGEE_TEST_SEED")) or os.time()
  math.randomseed(seed)
  local random = math.random
  for _ = 1, 12 do
    local m, n, k = random(1, 600), random(1, 600), random(1, 700)
    if random(3) == 1 then m = random(1, 40) end
    local function matrix(rows, columns) return function() return pg.rand(rows, columns) - 0.5 end end
    local layer = pg.jit(function(a, w, b) return a:linear(w, b):relu() end)
    local ok, e = t.pcall(check, function(a, w, b)
      local y, traced, again = a:linear(w, b):relu(), layer(a, w, b), layer(a, w, b)
      t.check(traced:equal(y) and again:equal(y), "the plan computes other bits")
      return y, traced, a:mm(w:t()), a:mm(w:t():contiguous()),
        a:t():contiguous():t():mm(w:t())
    end, function() return {matrix(m, k)(), matrix(n, k)(), pg.rand(n)} end)
    if not ok then error(("%d x %d x %d, PERIGEE_TEST_SEED=%d: %s"):format(m, n, k, seed, e), 0) end
  end
end)

-- A column that is strided and expanded, beside operands whose results bypass the caches.
t.test("large outputs with an expanded column start where vectors may be streamed", function()
  local before = pg.get_num_threads()
  pg.set_num_threads(2)
  local inner, rows = 97, 61855
  local column = pg.rand(inner, 9):narrow(2, 3, 1):transpose(1, 2)
  local c, y = pg.rand(rows, inner):gt(0.5), pg.rand(rows, inner)
  local expanded, dense = column:broadcast_to(rows, inner), column:contiguous():broadcast_to(rows, inner):contiguous()
  for _, f in ipairs{
    function(v) return pg.where(c, v, y) end, function(v) return v + y:to("float16") end, function(v) return v:exp() end,
  } do
    t.check(f(expanded):equal(f(dense)))
  end
  pg.set_num_threads(before)
end)

-- The operands of short runs are gathered by tiles, whose ends may lie between places where vectors may be streamed.
t.test("large outputs beside gathered rows and columns", function()
  local before = pg.get_num_threads()
  local f = pg.jit(function(m, r, c) return (m - c) * r + m end)
  for _, width in ipairs{16, 24, 130, 304} do
    local rows = math.ceil(2 ^ 21 / width)
    local matrix, row, column = pg.rand(rows, width), pg.rand(width), pg.rand(rows, 1)
    for threads = 1, 2 do
      pg.set_num_threads(threads)
      local wholes = {matrix + row, matrix - column, f(matrix, row, column)}
      for _, first in ipairs{1, 1000, rows - 36} do
        local part = {{first, first + 36}}
        local a, b = matrix[part]:contiguous(), column[part]:contiguous()
        for i, expected in ipairs{a + row, a - b, (a - b) * row + a} do
          t.check(wholes[i][part]:equal(expected), {width, threads, i})
        end
      end
    end
  end
  pg.set_num_threads(before)
end)

-- Rows of a multiple of 16 elements leave their blocks at multiples of 64 bytes, others do not.
t.test("large outputs beside reductions", function()
  local before = pg.get_num_threads()
  for _, shape in ipairs{{1048576}, {256, 4096}, {257, 4081}, {16640, 64}, {16640, 63}} do
    local p, q = pg.rand(unpack(shape)), pg.rand(unpack(shape))
    local function f(a, b)
      local u, v = a * 2 + b, b * 3 + a
      return u, v, u:sum(-1), v:square():sum(-1), (u - v):amax(-1), u:gt(v):to("float32"):mean(-1)
    end
    local expected = {f(p, q)}
    for threads = 1, 2 do
      pg.set_num_threads(threads)
      local g = pg.jit(f)
      for _ = 1, 2 do
        for i, found in ipairs{g(p, q)} do
          if i <= 2 then t.check(found:equal(expected[i]), {shape, threads, i}) else t.close(found, expected[i], {rtol = 1e-5}) end
        end
      end
      local sum = pg.jit(function(a, b)
        local u, v = a * 2 + b, b * 3 + a
        return u, v, u:sum(), v:square():sum()
      end)
      local u, v, su, sv = sum(p, q)
      t.check(u:equal(expected[1]) and v:equal(expected[2]))
      t.close(su, expected[1]:sum(), {rtol = 1e-5})
      t.close(sv, expected[2]:square():sum(), {rtol = 1e-5})
    end
  end
  pg.set_num_threads(before)
end)
