-- Products, einsum and solvers as scripts use them.
local t = require "tests.support"
local pg = require "perigee"

local function range(...)
  local shape, n = {...}, 1
  for _, d in ipairs(shape) do n = n * d end
  return pg.range(1, n):to("float64"):reshape(shape)
end

t.test("matmul follows NumPy's rules for 1-D operands and leading dims", function()
  local a, v = range(2, 3), range(3)
  t.equal(pg.matmul(a, v):totable(), {14, 32})
  t.equal(pg.matmul(v, range(3, 2)):totable(), {22, 28})
  t.equal(pg.matmul(v, v):item(), 14)
  t.equal(pg.matmul(range(5, 2, 3), range(3, 4)).shape, {5, 2, 4})
  t.equal(pg.matmul(range(5, 1, 2, 3), range(4, 3, 2)).shape, {5, 4, 2, 2})
  t.equal(a:mm(a:t()):totable(), {{14, 32}, {32, 77}})
  t.equal(a:mv(v):totable(), {14, 32})
  t.equal(range(2, 1, 2):bmm(range(2, 2, 1)):totable(), {{{5}}, {{25}}})
end)

t.test("integers multiply exactly and mixed dtypes promote", function()
  local a = pg.tensor({{1, 2}, {3, 4}}, {dtype = "int64"})
  local y = a:matmul(a)
  t.equal(y.dtype, "int64")
  t.equal(y:totable(), {{7, 10}, {15, 22}})
  t.equal(a:matmul(pg.ones(2, 2)).dtype, "float32")
  t.equal(pg.ones(2, 2):to("float16"):matmul(pg.ones(2, 2):to("bfloat16")).dtype, "float32")
end)

t.test("empty products are zeros", function()
  t.equal(pg.matmul(pg.zeros(2, 0), pg.zeros(0, 3)):totable(), {{0, 0, 0}, {0, 0, 0}})
  t.equal(pg.matmul(pg.zeros(0, 2), pg.zeros(2, 3)).shape, {0, 3})
  t.equal(pg.zeros(0, 4):linear(pg.ones(3, 4), pg.ones(3)).shape, {0, 3})
  t.equal(pg.zeros(2, 0):linear(pg.ones(3, 0), pg.ones(3)):totable(), {{1, 1, 1}, {1, 1, 1}})
end)

t.test("batches of small products are sums of products, in any layout", function()
  local function exact(a, b) return (a:double():unsqueeze(4) * b:double():unsqueeze(2)):sum(3) end
  for _, count in ipairs{1, 7, 8, 19} do
    for m = 1, 5 do
      for n = 1, 5 do
        for _, k in ipairs{1, 2, 3, 4, 9, 70} do
          local a, b = pg.randn(count, m, k), pg.randn(count, k, n)
          local what = table.concat({count, m, k, n}, " ")
          local expected = exact(a, b)
          local function check(x, y) t.close(x:bmm(y):double(), expected, {rtol = 1e-5, atol = 2e-5, what = what}) end
          local a_t, b_t = a:transpose(2, 3):contiguous():transpose(2, 3), b:transpose(2, 3):contiguous():transpose(2, 3)
          check(a, b)
          check(a_t, b)
          check(a, b_t)
          check(a_t, b_t)
          t.close((a:matmul(b[1])):double(), exact(a, b[{{1, 1}}]:expand{count, k, n}), {rtol = 1e-5, atol = 2e-5, what = what})
        end
      end
    end
  end
end)

t.test("dot transposes, outer and addmm", function()
  local a, b = range(3, 2), range(3, 4)
  t.equal(a:dot(b, {transpose_a = true}):totable(), a:t():matmul(b):totable())
  t.equal(pg.outer(range(2), range(3)):totable(), {{1, 2, 3}, {2, 4, 6}})
  local c = pg.ones(2, 4):to("float64")
  t.equal(pg.addmm(c, a:t(), b, {beta = 2, alpha = 0}):totable(), (c * 2):totable())
  t.equal(pg.baddbmm(pg.zeros(2, 1, 1), pg.ones(2, 1, 3), pg.ones(2, 3, 1)):totable(), {{{3}}, {{3}}})
end)

t.test("einsum", function()
  local a, b = range(2, 3), range(3, 4)
  t.equal(pg.einsum("ij,jk->ik", a, b):totable(), a:matmul(b):totable())
  t.equal(pg.einsum("ij,jk", a, b):totable(), a:matmul(b):totable())
  t.equal(pg.einsum("ij -> ji", a):totable(), a:t():totable())
  t.equal(pg.einsum("ii", range(3, 3)):item(), 15)
  t.equal(pg.einsum("...ij,...jk->...ik", range(5, 2, 3), b).shape, {5, 2, 4})
end)

t.test("solvers", function()
  local a, b = pg.tensor({{2, 1}, {1, 3}}), pg.tensor({3, 5})
  local x = pg.linalg.solve(a, b)
  t.check(a:mv(x):allclose(b), "a x = b")
  t.check(pg.linalg.inv(a):matmul(a):allclose(pg.eye(2), {atol = 1e-6}), "inverse")
  local l = pg.linalg.cholesky(a)
  t.check(l:matmul(l:t()):allclose(a), "cholesky")
  t.equal(l[{1, 2}]:item(), 0)
  t.error_contains(function() pg.linalg.inv(pg.ones(2, 2)) end, "expected invertible matrices, got a singular one")
  t.error_contains(function() pg.linalg.solv(a, b) end, "unknown field 'solv' (did you mean 'solve'?)")
end)

t.test("errors of wrong operands say what was expected", function()
  local a = pg.ones(2, 3)
  t.error_contains(function() a:matmul(a) end, "matmul: bad argument 'y' (expected 3 rows to go with the 3 columns of x 2x3; y:transpose(-1, -2) has them, got float32 2x3 ")
  t.error_contains(function() a:mm(pg.ones(3)) end, "mm: bad argument 'y' (expected 2 dims, got float32 3 ")
  t.error_contains(function() a:linear(pg.ones(4, 2)) end, "linear: bad argument 'weight' (expected a matrix with 3 columns to go with x 2x3, got float32 4x2 ")
  t.error_contains(function() pg.einsum("ij,jk->il", a, pg.ones(3, 2)) end, "einsum: bad argument 'equation'")
  t.error_contains(function() pg.einsum("ij", pg.ones(2)) end, "einsum: bad argument 'equation'")
  t.error_contains(function() pg.einsum("ii", pg.ones(1, 5)) end,
    "einsum: bad argument 'equation' (expected equal sizes for a letter that occurs twice in operand 1, which has 1 and 5, got \"ii\")")
end)

t.test("large solvers: several blocks, a rest, pivots far below", function()
  for _, n in ipairs{385, 448, 500} do
    for dtype, tolerance in pairs{float32 = 2e-3, float64 = 1e-10} do
      local options = {dtype = dtype}
      local eye = pg.eye(n, options)
      local a = (pg.range(1, n * n):to(dtype):reshape(n, n) * 0.7):sin() + eye * 0.5
      local shuffled = a:flip(1) * 3  -- the largest of a column is far from the diagonal
      for _, m in ipairs{a, shuffled} do
        local b = pg.range(1, 3 * n):to(dtype):reshape(n, 3):cos()
        local x = pg.linalg.solve(m, b)
        t.check((m:matmul(x) - b):abs():max():item() < tolerance, n .. " " .. dtype)
        t.check((pg.linalg.inv(m):matmul(m) - eye):abs():max():item() < tolerance, n .. " " .. dtype)
        t.check((m:mv(pg.linalg.solve(m, b:select(2, 1))) - b:select(2, 1)):abs():max():item() < tolerance)
      end
      local s = a:matmul(a:t()) + eye * n
      local l = pg.linalg.cholesky(s + eye:roll(1, 2) * 0)
      t.check((l:matmul(l:t()) - s):abs():max():item() < tolerance * n)
      t.equal(l:triu{diagonal = 1}:abs():sum():item(), 0)
      a[{400 - 15, {}}] = a[{1, {}}]:clone()
      t.error_contains(function() pg.linalg.solve(a:floor(), pg.zeros(n, options)) end, "singular")
      s[{380, 380}] = -1
      t.error_contains(function() pg.linalg.cholesky(s) end, "positive definite")
    end
  end
end)

t.test("norms of matrices without elements are 0", function()
  for _, shape in ipairs{{0, 2}, {2, 0}, {3, 0, 2}} do
    local x = pg.zeros(shape)
    for _, ord in ipairs{2, "nuc", "fro", 1, math.huge} do
      local y = pg.linalg.norm(x, ord, {-2, -1})
      t.equal(y, pg.zeros(#shape == 3 and {3} or {}), tostring(ord))
    end
  end
  t.equal(pg.linalg.cond(pg.zeros(3, 0, 0)), pg.zeros(3))
end)

t.test("small matrices: inverses, solutions and determinants of every size", function()
  for n = 1, 18 do
    for _, dtype in ipairs{"float64", "float32"} do
      local near = dtype == "float64" and {rtol = 1e-9, atol = 1e-9} or {rtol = 1e-2, atol = 1e-2}
      local a, b = pg.randn(5, n, n):to(dtype) + pg.eye(n, {dtype = dtype}) * 3, pg.randn(5, n, 2):to(dtype)
      local inverse = pg.linalg.inv(a)
      t.close(inverse:matmul(a), pg.eye(n, {dtype = dtype}):expand(5, n, n), near)
      t.close(a:matmul(pg.linalg.solve(a, b)), b, near)
      local sign, log = pg.linalg.slogdet(a)
      t.close(pg.linalg.det(a), sign * log:exp(), {rtol = 1e-4})
      t.close(pg.linalg.det(a:flip(2)), pg.linalg.det(a) * (math.floor(n / 2) % 2 == 1 and -1 or 1), {rtol = 1e-4})
    end
  end
  local zero = pg.tensor{{0, 1}, {2, 0}}
  t.equal(pg.linalg.inv(zero):totable(), {{0, 0.5}, {1, 0}})
  t.equal(pg.linalg.det(zero):item(), -2)
  t.equal(pg.linalg.det(pg.zeros(3, 3)):item(), 0)
  t.equal(pg.linalg.det(pg.eye(6) * 1e-7):item(), 1e-42 < 2 ^ -149 and 0 or pg.tensor(1e-42):item())
  t.close(pg.linalg.det(pg.diag(pg.tensor{1e30, 1e30, 1e-30, 1e-30})), pg.tensor(1), {rtol = 1e-5})
  t.check(pg.linalg.det(pg.full({2, 2}, 0 / 0)):isnan():item())
  t.error_contains(function() pg.linalg.inv(pg.ones(2, 2)) end, "linalg.inv: bad argument 'a' (expected invertible matrices")
  t.error_contains(function() pg.linalg.solve(pg.zeros(2, 2), pg.ones(2)) end, "a singular one")
end)

t.test("the gradients of both sides of a system share a solution", function()
  if t.mode == "device" or t.mode == "cuda_host" or t.mode == "cuda" then t.skip("solved in other steps there") end
  local a, b = (pg.rand(3, 3) + pg.eye(3)):attach_grad(), pg.rand(3, 2):attach_grad()
  for name, f in pairs{
    linalg_solve = pg.linalg.solve, linalg_solve_triangular = function(u, v) return pg.linalg.solve_triangular(u, v, true) end,
  } do
    local count
    for _, row in ipairs(pg.profile(function() pg.record(function() return f(a, b) end):backward() end).ops) do
      if row.name == name then count = row.count end
    end
    t.equal(count, 2, name)
  end
end)

t.test("cofactors of 3 x 3 have their digits, however small they are beside each other", function()
  if t.mode == "cuda_host" or t.mode == "cuda" then t.skip("computed by elimination there") end
  local a = pg.randn(50, 3, 3) * (pg.randn(50, 3, 1) * 4):exp()
  local function cofactors(x)
    x:attach_grad()
    pg.record(function() return pg.linalg.det(x) end):backward()
    return x.grad:to("float64")
  end
  t.close(cofactors(a), cofactors(a:to("float64")), {rtol = 1e-6, atol = 0})
end)
