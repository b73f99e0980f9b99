-- Factorizations, determinants and functions of matrices: identities, special values and errors. The reference values are
-- in test_fixtures_ops.lua, the derivatives in test_registry_gradients.lua.
local t = require "tests.support"
local gradcheck = require "tests.gradcheck"
local pg = require "perigee"
local linalg = pg.linalg
local double = {dtype = "float64"}

local function random(...) return gradcheck.random({...}) end
local function eye(n, m) return pg.eye(n, m or n, double) end
local function transposed(x) return x:transpose(-2, -1) end

local function zero(x, tolerance, what)
  local worst = x:numel() > 0 and x:abs():max():item() or 0
  t.check(worst <= tolerance, ("%s: %g"):format(what, worst))
end

local function orthonormal(q, tolerance, what)
  zero(transposed(q):matmul(q) - pg.eye(q:size(-1), {dtype = q.dtype}), tolerance, what .. " is orthonormal")
end

-- A matrix that has equal singular values, or none but 0.
local function special(n)
  return {
    ones = pg.ones(n, n, double), identity = eye(n), zeros = pg.zeros(n, n, double),
    blocks = eye(n / 4):repeat_interleave(4, {dim = 1}):repeat_interleave(4, {dim = 2}),
    ring = eye(n) + eye(n):roll(1, 1), signs = (pg.range(1, n * n, double):reshape(n, n) * 12.9898):sin():gt(0.9):to("float64"),
    ["rank 2"] = random(n, 2):matmul(random(2, n)), huge = random(n, n) * 1e300, tiny = random(n, n) * 1e-300,
  }
end

local function check_svd(a, tolerance, what)
  local size = math.max(a:abs():max():item(), 1e-307)
  local k = math.min(a:size(-2), a:size(-1))
  for _, full in ipairs{false, true} do
    local u, s, vh = linalg.svd(a, {full_matrices = full})
    t.equal({u:size(-1), vh:size(-2)}, full and {a:size(-2), a:size(-1)} or {k, k})
    orthonormal(u, tolerance, what .. ": u")
    orthonormal(transposed(vh), tolerance, what .. ": vh")
    local product = (u:narrow(-1, 1, k) * s:unsqueeze(-2)):matmul(vh:narrow(-2, 1, k))
    zero(product / size - a / size, tolerance, what .. ": u s vh")
    t.check(s:narrow(-1, 1, k - 1):ge(s:narrow(-1, 2, k - 1)):all():item() and s:ge(0):all():item(), what .. ": order")
    zero((linalg.svdvals(a) - s) / size, tolerance, what .. ": svdvals")
  end
end

t.test("svd of all shapes and sizes", function()
  for _, shape in ipairs{{3, 3}, {5, 2}, {2, 5}, {17, 17}, {40, 20}, {20, 45}, {2, 3, 4, 3}} do
    local a = random(unpack(shape))
    check_svd(a, 1e-12, "svd of " .. table.concat(shape, "x"))
    check_svd(a:to("float32"), 1e-4, "float32 svd of " .. table.concat(shape, "x"))
  end
end)

t.test("svd and eigh of matrices with equal, zero, huge and tiny values", function()
  for _, n in ipairs{4, 36, 72} do
    for what, a in pairs(special(n)) do
      check_svd(a, 1e-11, what .. " " .. n)
      local s = a / 2 + transposed(a) / 2
      local values, vectors = linalg.eigh(s)
      local size = math.max(s:abs():max():item(), 1e-307)
      orthonormal(vectors, 1e-11, what)
      zero((vectors * values):matmul(vectors:t()) / size - s / size, 1e-11, what .. ": v w v^T")
      zero((linalg.eigvalsh(s) - values) / size, 1e-11, what .. ": eigvalsh")
    end
  end
end)

t.test("eigh reads the lower triangle; values ascend; the largest element of a vector is positive", function()
  local a = random(2, 5, 5)
  local values, vectors = linalg.eigh(a)
  local symmetric = a:tril() + transposed(a:tril{diagonal = -1})
  zero(symmetric:matmul(vectors) - vectors * values:unsqueeze(-2), 1e-13, "a v = v w")
  t.check(values:narrow(-1, 1, 4):le(values:narrow(-1, 2, 4)):all():item(), "ascending")
  t.check(vectors:amax(-2):gt(-vectors:amin(-2)):all():item(), "signs")
  a[{1, 1, 5}] = 0 / 0
  t.check(linalg.eigh(a):isfinite():all():item(), "the upper triangle is not read")
end)

t.test("qr of all shapes", function()
  for _, shape in ipairs{{3, 3}, {7, 3}, {3, 7}, {60, 50}, {2, 4, 3}} do
    local a = random(unpack(shape))
    for _, scale in ipairs{1, 1e250, 1e-250} do
      for _, mode in ipairs{"reduced", "complete"} do
        local q, r = linalg.qr(a * scale, {mode = mode})
        t.equal(q:size(-1), mode == "complete" and a:size(-2) or math.min(a:size(-2), a:size(-1)))
        orthonormal(q, 1e-13, "q")
        zero(q:matmul(r / scale) - a, 1e-13, "q r")
        zero(r:tril{diagonal = -1}, 0, "below the diagonal")
      end
    end
  end
end)

t.test("matrices with NaN or inf give NaN, and only they do", function()
  for _, wrong in ipairs{0 / 0, 1 / 0} do
    for _, n in ipairs{3, 20} do
      local a = pg.stack{eye(n), eye(n) * 2}
      a[{1, 2, 1}] = wrong
      for _, name in ipairs{"qr", "svd", "svdvals", "eigh", "eigvalsh", "matrix_exp", "pinv"} do
        for k, y in ipairs{linalg[name](a)} do
          t.check(y[1]:isnan():all():item(), name .. " " .. k .. " of NaN")
          t.check(y[2]:isfinite():all():item(), name .. " " .. k .. " beside NaN")
        end
      end
    end
  end
end)

t.test("matrices without elements", function()
  t.equal(linalg.det(pg.zeros(2, 0, 0)):totable(), {1, 1})
  local sign, log = linalg.slogdet(pg.zeros(0, 0))
  t.equal({sign:item(), log:item()}, {1, 0})
  t.equal(linalg.qr(pg.zeros(3, 0), {mode = "complete"}):totable(), pg.eye(3):totable())
  local u, s, vh = linalg.svd(pg.zeros(0, 2), {full_matrices = true})
  t.equal({u.shape, s.shape, vh:totable()}, {{0, 0}, {0}, pg.eye(2):totable()})
  t.equal(linalg.pinv(pg.zeros(2, 0)).shape, {0, 2})
  t.equal(linalg.matrix_rank(pg.zeros(2, 3, 0)):totable(), {0, 0})
  t.equal(linalg.eigh(pg.zeros(2, 0, 0)).shape, {2, 0})
  t.equal(linalg.matrix_exp(pg.zeros(0, 0)).shape, {0, 0})
  t.equal(linalg.lstsq(pg.zeros(3, 0), pg.ones(3)).shape, {0})
  t.equal(linalg.solve_triangular(pg.zeros(0, 0), pg.zeros(0, 2), {upper = true}).shape, {0, 2})
end)

t.test("triangular systems of several blocks", function()
  local n = 150
  local a, b = random(n, n) * 0.1 + eye(n) * 3, random(n, 3)
  for _, upper in ipairs{false, true} do
    for _, transpose in ipairs{false, true} do
      for _, unit in ipairs{false, true} do
        local read = upper and a:triu() or a:tril()
        if unit then read = read - read:diagonal():diag() + eye(n) end
        if transpose then read = read:t() end
        local options = {upper = upper, transpose = transpose, unitriangular = unit}
        zero(read:matmul(linalg.solve_triangular(a, b, options)) - b, 1e-9, "a x = b")
        options.left = false
        zero(linalg.solve_triangular(a, b:t(), options):matmul(read) - b:t(), 1e-9, "x a = b")
      end
    end
  end
  local l = linalg.cholesky(a:matmul(a:t()))
  zero(a:matmul(a:t()):matmul(linalg.cholesky_solve(b, l)) - b, 1e-9, "cholesky_solve")
  zero(linalg.cholesky_solve(b, l:t(), {upper = true}) - linalg.cholesky_solve(b, l), 1e-12, "cholesky_solve of l^T")
end)

t.test("determinants", function()
  t.equal(linalg.det(pg.tensor({{0, 2}, {3, 4}}, double)):item(), -6)
  local a = random(90, 90)
  local sign, log = linalg.slogdet(a * 1e30)
  local q, r = linalg.qr(a)
  zero(log - r:diagonal():abs():log():sum() - 90 * math.log(1e30), 1e-9, "logarithm")
  t.equal(sign:item(), linalg.det(q):mul(r:diagonal():sign():prod()):round():item())
  sign, log = linalg.slogdet(pg.ones(2, 2))
  t.equal({sign:item(), log:item()}, {0, -math.huge})
  t.equal(linalg.det(pg.ones(3, 3)):item(), 0)
end)

t.test("matrices of very large and very small elements", function()
  local base = pg.tensor({{2, 1, 0.5}, {1, 3, 1}, {0.25, 1, 4}}, double)
  local log = math.log(18.375)
  -- The determinant and gradients of diag(2^r) base diag(2^s) follow from those of base.
  local function check(dtype, r, s, what)
    local rows = pg.tensor({{2 ^ r[1]}, {2 ^ r[2]}, {2 ^ r[3]}}, double)
    local columns = pg.tensor({2 ^ s[1], 2 ^ s[2], 2 ^ s[3]}, double)
    local sum = r[1] + r[2] + r[3] + s[1] + s[2] + s[3]
    local a = (base * rows * columns):to(dtype):attach_grad()
    local tolerance = {rtol = dtype == "float64" and 1e-12 or 2e-5, what = what .. " " .. dtype}
    local function close(x, y) t.close(x, y:to(dtype), tolerance) end
    local det, sign, size
    pg.record(function() det = linalg.det(a) return det end):backward()
    close(det, pg.tensor(18.375 * 2 ^ sum, double))
    local inverse = linalg.inv(base)
    -- Elsewhere the gradient comes from singular values, among which small ones beside large ones have no digits.
    if t.device == "cpu" then close(a.grad, inverse:t() * 18.375 * 2 ^ sum / rows / columns) end
    sign, size = linalg.slogdet(a)
    t.equal(sign:item(), 1)
    close(size, pg.tensor(log + sum * math.log(2), double))
    close(linalg.inv(a), inverse / columns:reshape{3, 1} / rows:reshape(3))
    close(linalg.solve(a, (base * rows):sum(2):to(dtype)), 1 / columns)
  end
  check("float64", {-600, 0, 600}, {0, 0, 0}, "rows")
  check("float64", {0, 0, 0}, {900, -900, 0}, "columns")
  check("float64", {-500, 0, 500}, {450, 0, -450}, "both")
  check("float64", {400, 400, 400}, {-400, -400, -400}, "cancelling")
  check("float32", {-60, 0, 60}, {0, 0, 0}, "rows")
  check("float32", {0, 0, 0}, {100, -100, 0}, "columns")
  check("float32", {-50, -50, -50}, {50, 50, 50}, "cancelling")
  for _, n in ipairs{5, 70} do  -- a batch of which one matrix is extreme, with several right-hand sides
    local plain = random(n, n) + pg.eye(n, double) * n
    local powers = ((pg.range(1, n, double) * 1.7):sin() * 500):round() * math.log(2)
    local a = pg.stack{plain, plain * powers:exp():reshape(n, 1)}
    local x = random(2, n, 3)
    t.close(linalg.solve(a, a:matmul(x)), x, {rtol = 1e-9, atol = 1e-9, what = "solve"})
    local sign, size = linalg.slogdet(a)
    t.equal(sign:totable(), {1, 1})
    t.close(size[2] - size[1], powers:sum(), {rtol = 1e-9, atol = 1e-9, what = "logarithm"})
  end
  for _, p in ipairs{-140, -60, 60, 120} do  -- what the dtype cannot hold is 0 or inf
    local a = (base * 2 ^ p):to("float32")
    local sign, size = linalg.slogdet(a)
    t.check(sign:item() == 1 and math.abs(size:item() - log - 3 * p * math.log(2)) < 2e-3 * math.abs(p), "2^" .. p)
    t.equal(linalg.det(a):item(), p < 0 and 0 or math.huge)
  end
  t.equal(linalg.inv(pg.eye(2) * 2 ^ -140):totable(), {{math.huge, 0}, {0, math.huge}})
  t.equal({linalg.slogdet(pg.ones(3, 3) * 2 ^ -140)}, {pg.tensor(0), pg.tensor(-math.huge)})
  local diag = pg.tensor{2 ^ -100, 2 ^ -100, 2 ^ 100, 2 ^ 100}
  t.equal(linalg.det(diag:diag()):item(), 1)
  t.equal(linalg.det(diag:flip(1):diag()):item(), 1)
  t.equal(linalg.slogdet(pg.zeros(2, 2, double)):item(), 0)
end)

-- The gradient of slogdet and negative powers call linalg.inv.
t.test("a singular matrix is an error of the op that the script called", function()
  local text = ": bad argument 'a' (expected invertible matrices, got a singular one)"
  local function slope(wrap)
    local x = pg.ones(2, 2):attach_grad()
    pg.record(function() return wrap(function(v) return select(2, linalg.slogdet(v)) end)(x) end):backward()
    return x.grad:totable()
  end
  local function power(wrap) return wrap(function(v) return linalg.matrix_power(v, -2) end)(pg.ones(2, 2)):totable() end
  local function in_loop(wrap)
    return wrap(function(v) return (pg.loop(2, function(_, s) return linalg.matrix_power(s, -1) end, v)) end)(pg.ones(2, 2)):totable()
  end
  local function direct(f) return f end
  local function jitted(f) return pg.jit(f) end
  -- On a device an eager op fails late, when nothing knows any more which rule applied it.
  for _, wrap in ipairs(t.device == "cpu" and {direct, jitted} or {}) do
    t.error_contains(function() slope(wrap) end, ": linalg.slogdet" .. text)
    t.error_contains(function() power(wrap) end, ": linalg.matrix_power" .. text)
    t.error_contains(function() in_loop(wrap) end, ": linalg.matrix_power" .. text)
  end
  local whole = pg.jit(function(v) return pg.grad(function(m) return select(2, linalg.slogdet(m)) end)(v) end)
  t.error_contains(function() whole(pg.ones(2, 2)):totable() end, ": linalg.slogdet" .. text)
  t.error_contains(function() linalg.inv(pg.ones(2, 2)):totable() end, ": linalg.inv" .. text)
end)

t.test("gradients of the determinant of singular matrices", function()
  local function slopes(a)
    local x = a:clone():attach_grad()
    pg.record(function() return linalg.det(x) end):backward()
    return x.grad
  end
  t.equal(slopes(pg.zeros(3, 3, double)):abs():sum():item(), 0)
  t.equal(slopes(pg.zeros(1, 1, double)):totable(), {{1}})
  t.equal(slopes(pg.tensor({{1, 2}, {2, 4}}, double)):round():totable(), {{4, -2}, {-2, 1}})
  local n = 5
  local a = random(n, n - 1):matmul(random(n - 1, n))
  gradcheck.check(function(list) return {linalg.det(list[1])} end, {a})
  gradcheck.check(function(list) return {linalg.det(list[1])} end, {random(n, 3):matmul(random(3, n))})
  gradcheck.check(function(list) return {linalg.det(list[1])} end, {eye(3)})
end)

t.test("equal singular values and eigenvalues have gradients where the vectors are not used", function()
  for name, f in pairs{svdvals = linalg.svdvals, nuc = function(a) return linalg.norm(a, "nuc") end,
                       svd = function(a) return (select(2, linalg.svd(a))) end} do
    local x = eye(3):attach_grad()
    pg.record(function() return f(x):sum() end):backward()
    zero(x.grad - eye(3), 1e-14, name)
  end
  local x = eye(3):attach_grad()
  pg.record(function() return linalg.eigvalsh(x):sum() end):backward()
  zero(x.grad - eye(3), 1e-14, "eigvalsh")
end)

t.test("the part of a full basis that a matrix determines has its gradient, in graphs too", function()
  local function slopes(f, x)
    pg.record(function() return f(x) end):backward()
    return x.grad:clone()
  end
  local weights = random(5, 5)
  for _, make in ipairs{function(f) return f end, pg.jit} do
    local svd = make(function(a) return linalg.svd(a, {full_matrices = true}) end)
    local qr = make(function(a) return linalg.qr(a, {mode = "complete"}) end)
    for _, x in ipairs{random(5, 3):attach_grad(), random(3, 5):attach_grad()} do
      local m, n = x:size(1), x:size(2)
      local function read(factors)
        return function(a)
          local u, s, vh = factors(a)
          return (u[{{}, {1, 3}}] * weights[{{1, m}, {1, 3}}]):sum() + s:sum() + (vh[{{1, 3}}] * weights[{{1, 3}, {1, n}}]):sum()
        end
      end
      t.close(slopes(read(svd), x), slopes(read(linalg.svd), x), {rtol = 1e-9, atol = 1e-9})
      t.close(slopes(function(a) return select(2, svd(a)):sum() end, x), slopes(function(a) return linalg.norm(a, "nuc") end, x))
      local function triangle(factors)
        return function(a)
          local q, r = factors(a)
          return (q[{{}, {1, 3}}] * weights[{{1, m}, {1, 3}}]):sum() + (r[{{1, 3}}] * weights[{{1, 3}, {1, n}}]):sum()
        end
      end
      t.close(slopes(triangle(qr), x), slopes(triangle(linalg.qr), x), {rtol = 1e-9, atol = 1e-9})
      t.error_contains(function() slopes(function(a) return svd(a):sum() + select(3, svd(a)):sum() end, x) end, "linalg.svd: with full")
    end
    local x = eye(3):attach_grad()  -- equal singular values and eigenvalues
    zero(slopes(function(a) return select(2, svd(a)):sum() end, x) - eye(3), 1e-14, "s")
    zero(slopes(function(a) return (make(linalg.eigh)(a)):sum() end, x) - eye(3), 1e-14, "eigenvalues")
    local y = pg.zeros(3, 2, double):attach_grad()
    t.check(slopes(function(a) return select(2, make(linalg.svd)(a)):sum() end, y):isfinite():all():item(), "s of zeros")
  end
end)

t.test("gradients that do not exist are errors", function()
  local x = random(4, 2):attach_grad()
  t.error_contains(function()
    pg.record(function() return linalg.qr(x, {mode = "complete"}):sum() end):backward()
  end, 'linalg.qr: with mode = "complete" the gradient of the columns of q after those of a is not defined; use mode = "reduced"')
  t.error_contains(function()
    pg.record(function() return linalg.svd(x, {full_matrices = true}):sum() end):backward()
  end, "linalg.svd: with full_matrices = true the gradient of the columns of u and rows of vh after the first min(rows, columns) is "
       .. "not defined; use full_matrices = false")
  pg.record(function()  -- r and s have one in these modes too
    return select(2, linalg.qr(x, {mode = "complete"})):abs():sum() + select(2, linalg.svd(x, {full_matrices = true})):sum()
  end):backward()
  t.check(x.grad:isfinite():all():item(), "r and s")
end)

t.test("powers and exponentials", function()
  local a = random(3, 3)
  zero(linalg.matrix_power(a, 7) - a:matmul(a):matmul(a):matmul(a):matmul(a):matmul(a):matmul(a), 1e-12, "power")
  zero(linalg.matrix_power(a, -2):matmul(a):matmul(a) - eye(3), 1e-9, "negative power")
  t.equal(linalg.matrix_power(pg.ones(2, 3, 3), 0)[2]:totable(), pg.eye(3):totable())
  t.equal(linalg.matrix_power(pg.zeros(2, 0, 0), 0).shape, {2, 0, 0})
  for _, power in ipairs{linalg.matrix_power, pg.jit(linalg.matrix_power)} do
    local x = pg.full({2, 3, 3}, 0 / 0):attach_grad()
    pg.record(function() return power(x, 0):sum() end):backward()
    t.equal(x.grad, pg.zeros(2, 3, 3))
  end
  t.error_contains(function() linalg.matrix_power(pg.ones(2, 2), -1) end, "expected invertible matrices")
  for _, size in ipairs{1e-3, 0.1, 0.5, 1, 4, 40} do
    for dtype, tolerance in pairs{float32 = 1e-4, float64 = 1e-12} do
      local angle = pg.tensor({{0, -size}, {size, 0}}, {dtype = dtype})
      local c, s = math.cos(size), math.sin(size)
      zero(linalg.matrix_exp(angle) - pg.tensor({{c, -s}, {s, c}}, {dtype = dtype}), tolerance, "a rotation by " .. size)
    end
    local b = a * math.min(size, 4)
    zero(linalg.matrix_exp(b):matmul(linalg.matrix_exp(-b)) - eye(3), 1e-9, "exp(b) exp(-b)")
  end
  zero(linalg.matrix_exp(a:tril(-1)) - eye(3) - a:tril(-1) - a:tril(-1):matmul(a:tril(-1)) / 2, 1e-15, "nilpotent")
  t.equal(linalg.matrix_exp(eye(1) * -1e300):item(), 0, "a huge matrix ends")
end)

t.test("least squares and pseudoinverses", function()
  for _, shape in ipairs{{6, 3}, {3, 6}, {4, 4}} do
    local a, b = random(unpack(shape)), random(shape[1], 2)
    local p = linalg.pinv(a)
    zero(a:matmul(p):matmul(a) - a, 1e-12, "a p a")
    zero(p:matmul(a):matmul(p) - p, 1e-12, "p a p")
    zero(linalg.lstsq(a, b) - p:matmul(b), 1e-11, "lstsq")
    zero(linalg.lstsq(a, b:select(2, 1)) - p:mv(b:select(2, 1)), 1e-11, "lstsq of a vector")
    zero(linalg.lstsq(a, b, {driver = "gelsd"}) - p:matmul(b), 1e-12, "lstsq by svd")
  end
  local a = random(5, 2):matmul(random(2, 4))
  local p = linalg.pinv(a)
  zero(p:matmul(a) - transposed(p:matmul(a)), 1e-12, "p a is symmetric")
  t.equal(linalg.matrix_rank(pg.stack{a, a * 0}):totable(), {2, 0})
  t.equal(linalg.matrix_rank(a).dtype, "int64")
  t.equal(linalg.matrix_rank(pg.tensor{3, 2, 1, 0.1}:diag(), {atol = 0.5}):item(), 3)
  t.equal(linalg.matrix_rank(pg.tensor{3, 2, 1, 0.1}:diag(), {rtol = 0.5}):item(), 2)
  t.equal(linalg.pinv(pg.tensor{4, 1}:diag(), {atol = 2}):totable(), {{0.25, 0}, {0, 0}})
end)

t.test("cond, norm and multi_dot", function()
  local a = random(2, 3, 3) + eye(3) * 2
  local i = linalg.inv(a)
  for _, p in ipairs{"fro", "nuc", 1, -1, 2, -2, math.huge, -math.huge} do
    local norm = linalg.norm(a, p, {2, 3}) * linalg.norm(i, p, {2, 3})
    zero(linalg.cond(a, p) / norm - 1, 1e-12, "cond " .. p)
  end
  t.equal(linalg.cond(pg.tensor{{3, 0, 0}, {0, 2, 0}}):item(), 1.5)
  t.equal(linalg.cond(pg.ones(2, 2), 1):item(), math.huge)
  t.equal(linalg.inv(pg.ones(1, 2, 2), {check_errors = false}):totable(), {{{math.huge, math.huge}, {math.huge, math.huge}}})
  t.equal(linalg.norm(pg.tensor{3, 4}:diag(), "nuc", {keepdim = true}):totable(), {{7}})
  t.equal(linalg.norm(pg.ones(2, 3, 4), 2, {3, 1}).shape, {3})
  t.bad_argument(function() linalg.cond(pg.ones(2, 2), 3) end, "linalg.cond", "p")
  t.bad_argument(function() linalg.cond(pg.ones(2)) end, "linalg.cond", "a")
  t.bad_argument(function() linalg.norm(pg.ones(2, 2), 3) end, "linalg.norm", "ord")
  local x, y, z = random(3), random(3, 4), random(4)
  zero(linalg.multi_dot{x, y, z} - x:matmul(y):matmul(z), 1e-14, "multi_dot")
  t.equal({linalg.multi_dot{x, y}.shape, linalg.multi_dot{y, z}.shape, linalg.multi_dot{y, y:t(), y}.shape}, {{4}, {3}, {3, 4}})
  t.bad_argument(function() linalg.multi_dot{x} end, "linalg.multi_dot", "tensors")
  t.bad_argument(function() linalg.multi_dot{x, 2} end, "linalg.multi_dot", "tensors")
end)

t.test("large batches: every matrix gets its own result, and one singular matrix is an error", function()
  local a = random(600, 4, 4) + eye(4) * 3
  zero(linalg.inv(a):matmul(a) - eye(4), 1e-12, "inverses")
  zero(linalg.det(a) - linalg.det(a:flip(1)):flip(1), 0, "determinants")
  a[{500, {}, 1}] = 0
  t.error_contains(function() linalg.inv(a) end, "expected invertible matrices, got a singular one")
  t.error_contains(function() linalg.solve(a, pg.ones(4, 1, double)) end, "expected invertible matrices, got a singular one")
end)

t.test("a block with all of them can be exported, and imported", function()
  local net = pg.nn.block{forward = function(_, x, b)
    local q, r = linalg.qr(x)
    local u, s, vh = linalg.svd(x)
    local values, vectors = linalg.eigh(x)
    local sign, log = linalg.slogdet(x)
    return q, r, u, s, vh, values, vectors, sign, log, linalg.det(x), linalg.cond(x, 1), linalg.norm(x, "nuc"), linalg.pinv(x),
      linalg.lstsq(x, b), linalg.matrix_exp(x), linalg.matrix_power(x, -3), linalg.matrix_rank(x), linalg.svdvals(x),
      linalg.eigvalsh(x), linalg.solve_triangular(x, b, {upper = true}), linalg.cholesky_solve(b, x), linalg.multi_dot{x, x, b}
  end}
  net:initialize()
  net:hybridize()
  local x, b = random(3, 3) + eye(3) * 2, random(3, 2)
  local want = {net(x, b)}
  local json, tensors = net:export(t.tmp("factors"))
  local got = {pg.nn.SymbolBlock.imports(json, nil, tensors)(x, b)}
  t.equal(#got, 22)
  for k, y in ipairs(want) do t.close(got[k], y, {what = "output " .. k}) end
end)

t.test("errors of wrong operands say what was expected", function()
  local function says(text, f, ...)
    local args = {...}
    t.error_contains(function() f(unpack(args)) end, text)
  end
  says("linalg.det: bad argument 'a' (expected square matrices in the last two dims, got float32 2x3", linalg.det, pg.ones(2, 3))
  says("linalg.qr: bad argument 'a' (expected matrices in the last two dims, got float32 3", linalg.qr, pg.ones(3))
  says("linalg.solve_triangular: bad argument 'upper'", linalg.solve_triangular, eye(2), eye(2))
  says("linalg.solve_triangular: bad argument 'b' (expected 3 columns to go with 3x3, got float64 3x2", linalg.solve_triangular,
       eye(3), eye(3, 2), {upper = true, left = false})
  says("linalg.lstsq: bad argument 'b' (expected 3 rows to go with 3x2", linalg.lstsq, eye(3, 2), eye(2))
  says("linalg.qr: bad argument 'mode'", linalg.qr, eye(2), {mode = "r"})
end)
