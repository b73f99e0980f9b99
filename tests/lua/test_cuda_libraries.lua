-- Fourier transforms and factorizations on the CUDA device with the fakes of tests/cuda: plans, errors, and matrices
-- that are too large for a kernel of our own.
local t = require "tests.support"
local gradcheck = require "tests.gradcheck"
local pg = require "perigee"
local path = os.getenv("PERIGEE_CUDA_FFT")
if t.device ~= "cuda" or not path then return end

local ffi = require "ffi"
ffi.cdef "void fake_fail(const char*, int, int, int); int fake_calls(const char*);"
local fake = ffi.load(path)
local linalg, double = pg.linalg, {dtype = "float64"}
local function calls(name) return fake.fake_calls(name) end
local function zero(x, tolerance, what) t.check(x:abs():max():item() <= tolerance, what) end
local function random(...) return gradcheck.random{...} end

t.test("a plan is made once for a shape, and 64 of them are kept", function()
  local x = pg.randn(2, 12)
  local before = calls("cufftMakePlanMany64")
  pg.fft.rfft(x)
  pg.fft.rfft(x * 2)
  t.equal(calls("cufftMakePlanMany64"), before + 1)
  local gone = calls("cufftDestroy")
  for n = 20, 90 do pg.fft.rfft(pg.ones(n)) end
  t.check(calls("cufftDestroy") - gone >= 71 - 64, "old plans are destroyed")
  pg.fft.rfft(x)
  t.equal(calls("cufftMakePlanMany64"), before + 2 + 71)
end)

t.test("a program keeps its plans, also more than 64", function()
  local function transforms(x)
    local sums = {}
    for n = 20, 89 do sums[#sums + 1] = pg.fft.rfft(x:narrow(1, 1, n)):square():sum() end
    return pg.stack(sums)
  end
  local f, x = pg.jit(transforms), pg.randn(90)
  local expected, launches = transforms(x):totable(), calls("cuGraphLaunch")
  for run = 1, 4 do
    local y = f(x)
    t.close(y, expected, {rtol = 1e-4, what = "run " .. run})
    y:release()  -- the next result has the same memory, which programs need
  end
  t.check(calls("cuGraphLaunch") - launches >= 3, "launches")
end)

t.test("odd places in memory, and dims in the middle", function()
  local x = random(3, 5, 7)
  local row = x:reshape(-1):narrow(1, 2, 14):contiguous()
  local part = x:reshape(-1):narrow(1, 2, 14)
  t.close(pg.fft.rfft(part), pg.fft.rfft(row), {rtol = 1e-12})
  t.close(pg.fft.rfft(part:float()):double(), pg.fft.rfft(row), {rtol = 1e-4, atol = 1e-5})
  t.close(pg.fft.rfft(x, {dim = 2}), pg.fft.rfft(x:transpose(2, 3)):transpose(2, 3), {rtol = 1e-12, atol = 1e-12})
end)

t.test("products of arrays at odd places in memory", function()
  local x, w = pg.randn(70 * 40 + 1), pg.randn(40, 3)
  t.close(x:narrow(1, 2, 70 * 40):reshape(70, 40):matmul(w), x[{{2, -1}}]:clone():reshape(70, 40):matmul(w), {rtol = 1e-6})
end)

t.test("a program may contain attention, with dropout only if it is off", function()
  local x = pg.randn(2, 9, 4)
  local function attend(q)
    for _ = 1, 4 do q = pg.scaled_dot_product_attention(q, q, q, {dropout_p = 0.5}) * 2 end
    return q
  end
  local f = pg.jit(attend)
  local function launches()
    local before = calls("cuGraphLaunch")
    for _ = 1, 4 do f(x):release() end
    return calls("cuGraphLaunch") - before
  end
  t.check(launches() >= 2)
  t.close(f(x), attend(x), {rtol = 1e-5, atol = 1e-6})
  pg.train_mode(function()
    t.equal(launches(), 0, "a program with so many draws would be captured again at each run")
    t.check(not f(x):allclose(f(x)), "each run drops other weights")
  end)
end)

t.test("tensor cores compute the attention of halves", function()
  local function launches(dtype, width)
    local names = {"attend", "query_grads", "key_grads"}
    local before = {}
    for i, name in ipairs(names) do before[i] = {calls(name .. "_halves"), calls(name)} end
    local x = pg.randn({2, 5, width}, {dtype = dtype}):attach_grad()
    pg.record(function() return pg.scaled_dot_product_attention(x, x, x):sum() end):backward()
    x.grad:totable()
    for i, name in ipairs(names) do
      local count = {calls(name .. "_halves") - before[i][1], calls(name) - before[i][2]}
      if i > 1 then t.equal(count, {before.halves, before.others}) end
      before.halves, before.others = unpack(count)
    end
    return {before.halves, before.others}
  end
  t.equal(launches("float16", 16), {1, 0})
  t.equal(launches("bfloat16", 128), {1, 0})
  t.equal(launches("bfloat16", 129), {0, 1})
  t.equal(launches("float32", 16), {0, 1})
end)

t.test("calls that fail are errors with their names", function()
  local x = pg.randn(8)
  pg.fft.rfft(x)
  fake.fake_fail("cufftExecR2C", 1, 6, 1)
  t.error_contains(function() pg.fft.rfft(x) end, "cufftExecR2C: cuFFT status 6")
  fake.fake_fail("cufftMakePlanMany64", 1, 8, 1)
  t.error_contains(function() pg.fft.rfft(pg.randn(9)) end, "cufftMakePlanMany64: cuFFT status 8")
  t.equal(pg.fft.rfft(pg.randn(9)).shape, {5, 2})
  fake.fake_fail("cusolverDnXgesvd", 1, 7, 1)
  t.error_contains(function() linalg.svd(pg.randn(33, 3)) end, "cusolverDnXgesvd: cuSOLVER status 7")
end)

t.test("matrices of more than 64 rows go to cuSOLVER", function()
  local n = 70
  local before = calls("cusolverDnXgetrf")
  local a, b = random(2, n, n) + pg.eye(n, double) * 4, random(2, n, 3)
  zero(a:matmul(linalg.solve(a, b)) - b, 1e-10, "solve")
  zero(a[1]:matmul(linalg.solve(a[1], b)) - b, 1e-10, "one matrix for a batch")
  zero(a:matmul(linalg.inv(a)) - pg.eye(n, double), 1e-10, "inv")
  zero(a:float():matmul(linalg.inv(a:float())) - pg.eye(n), 1e-3, "inv of float32")
  local sign, log = linalg.slogdet(a)
  local _, r = linalg.qr(a)  -- too large for a kernel of our own
  zero(log - r:diagonal(0, -2, -1):abs():log():sum(-1), 1e-10, "slogdet")
  t.close(linalg.det(a / 8), sign * (log - n * math.log(8)):exp(), {rtol = 1e-9})
  t.check(calls("cusolverDnXgetrf") > before)
  local s = a:matmul(a:transpose(2, 3))
  local l = linalg.cholesky(s)
  zero(l:matmul(l:transpose(2, 3)) - s, 1e-9, "cholesky")
  zero(l:triu(1), 0, "above the diagonal")
end)

t.test("singular values, eigenvalues and QR of small and of large matrices", function()
  local function orthonormal(q, what) zero(q:transpose(-2, -1):matmul(q) - pg.eye(q:size(-1), double), 1e-12, what) end
  for _, shape in ipairs{{1, 1}, {2, 2}, {5, 3}, {31, 31}, {32, 7}, {9, 32}, {70, 33}, {257, 3}} do
    local m, n = unpack(shape)
    local what = m .. " x " .. n
    for rank = 0, math.min(m, n), math.max(1, math.min(m, n) - 1) do
      local a = rank == 0 and pg.zeros(2, m, n, double) or random(2, m, rank):matmul(random(2, rank, n))
      local u, s, vh = linalg.svd(a, {full_matrices = true})
      orthonormal(u, what .. ": u")
      orthonormal(vh:transpose(2, 3), what .. ": vh")
      local k = s:size(-1)
      zero((u:narrow(3, 1, k) * s:unsqueeze(2)):matmul(vh:narrow(2, 1, k)) - a, 1e-11, what .. ": svd")
      zero(s - linalg.svdvals(a), 0, what)
      for _, mode in ipairs{"reduced", "complete"} do
        local q, r = linalg.qr(a, {mode = mode})
        orthonormal(q, what .. ": q")
        zero(q:matmul(r) - a, 1e-11, what .. ": qr")
      end
      local sym = a:matmul(a:transpose(2, 3)) - pg.eye(m, double) * 2
      local values, vectors = linalg.eigh(sym)
      orthonormal(vectors, what .. ": vectors")
      zero((vectors * values:unsqueeze(2)):matmul(vectors:transpose(2, 3)) - sym, 1e-9, what .. ": eigh")
    end
  end
end)

t.test("matrices that are refused are reported with the words of the CPU", function()
  for _, n in ipairs{3, 70} do
    local a = pg.stack{pg.eye(n), pg.ones(n, n)}
    local x = linalg.solve(a, pg.ones(2, n, 1))
    t.error_contains(function() x:totable() end, "linalg.solve: bad argument 'a' (expected invertible matrices, got a singular one)")
    x = linalg.inv(a)
    t.error_contains(function() x:totable() end, "linalg.inv: bad argument 'a' (expected invertible matrices, got a singular one)")
    x = linalg.inv(a, {check_errors = false})
    t.equal(x[1]:totable(), pg.eye(n):totable())
    t.equal(x[{2, 1, n}]:item(), math.huge)
    x = linalg.cholesky(a - 2 * pg.eye(n))
    t.error_contains(function() x:totable() end, "linalg.cholesky: bad argument 'a' (expected positive definite matrices, got one that is not)")
    t.equal(pg.ones(2):sum():item(), 2)
  end
end)
