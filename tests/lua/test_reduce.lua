-- Reductions, scans and softmax: dtypes, edge cases, errors, and vector loops against plain loops.
local t = require "tests.support"
local pg = require "perigee"

local function int(list, dtype) return pg.tensor(list, {dtype = dtype or "int64"}) end
local inf, nan = math.huge, 0 / 0

t.test("sum, prod and cumsum of bool and integers give int64, mean float32", function()
  for _, dtype in ipairs{"bool", "uint8", "int8", "int32", "int64"} do
    local x = pg.tensor({1, 0, 1}):to(dtype)
    t.equal(x:sum().dtype, "int64", dtype)
    t.equal(x:sum():item(), 2, dtype)
    t.equal(x:prod():item(), 0, dtype)
    t.equal(x:cumsum(1):totable(), {1, 1, 2}, dtype)
    t.equal(x:mean().dtype, "float32", dtype)
  end
  t.equal(int({100, 100, 100}, "int8"):sum():item(), 300)
  t.equal(int({200, 200}, "uint8"):prod():item(), 40000)
end)

t.test("dims count from 1 or from the end, in any order", function()
  local x = pg.range(1, 24):reshape{2, 3, 4}
  t.equal(x:sum(1):totable()[1], {14, 16, 18, 20})
  t.equal(x:sum(-1):totable(), {{10, 26, 42}, {58, 74, 90}})
  t.equal(x:sum{dim = {3, 1}}:totable(), {68, 100, 132})
  t.equal(x:sum({1, 3}, true).shape, {1, 3, 1})
  t.equal(x:sum(1, true).shape, {1, 3, 4})
  t.equal(x:sum():item(), 300)
  t.equal(x:mean{2}:totable()[1], {5, 6, 7, 8})
  t.equal(pg.tensor(3):sum():item(), 3)
end)

t.test("reductions of any layout equal those of a copy", function()
  local x = pg.range(1, 60):reshape{3, 4, 5}
  for _, y in ipairs{x:permute{3, 1, 2}, x:transpose(1, 3), x[{{}, {1, 4, 2}, {2, 5}}], x[{{1, 3, 2}}], pg.tensor({1, 2, 3}):expand{4, 3}} do
    local z = y:contiguous()
    for _, dim in ipairs{{}, {1}, {2}, {-1}, {1, 2}} do
      local options = #dim > 0 and {dim = dim} or nil
      for _, op in ipairs{"sum", "amax", "amin", "mean", "count_nonzero"} do
        t.check(pg[op](y, options):equal(pg[op](z, options)), op)
      end
    end
  end
end)

t.test("long rows and columns: blocks and chunks add up", function()
  local n = 300000
  local x = pg.ones(n)
  t.equal(x:sum():item(), n)
  t.equal(pg.full({n}, 0.1):sum():item() - 30000 < 1e-2, true)
  t.equal(pg.ones(n, 3):sum(1):totable(), {n, n, n})
  t.equal(pg.ones(3, n):sum(2):totable(), {n, n, n})
  t.equal(pg.ones(600, 1100):sum(1):sum():item(), 660000)
  t.equal(pg.ones(n):to("bool"):count_nonzero():item(), n)
  t.equal(pg.ones(n):to("float16"):sum():item(), inf)
  t.equal(pg.ones(1000):to("bfloat16"):sum():item(), 1000)
end)

t.test("the number of threads does not change a bit", function()
  local x = pg.randn(700, 1003)
  local function all()
    return {x:sum(), x:sum(1), x:sum(2), x:mean(), x:softmax(1), x:softmax(2), x:var(2), x:layer_norm{1003}, x:cumsum(1), x:argmax(1)}
  end
  pg.set_num_threads(1)
  local one = all()
  pg.set_num_threads(2)
  for i, y in ipairs(all()) do t.check(y:equal(one[i]), "result " .. i) end
end)

t.test("sums of any size are the same on any number of threads, of converted and repeated elements too", function()
  local function each(f)
    for _, n in ipairs{1, 2, 3, 31, 4097} do
      for _, rows in ipairs{1, 5, 257, 3001} do
        if n * rows < 2e6 then f(rows, n) end
      end
    end
    f(7, 20000)
    f(20000, 7)
    f(1, 100003)
    f(70000, 1)
  end
  each(function(rows, n)
    local x = (pg.range(0, rows * n - 1, {dtype = "int64"}) % 7 - 3):reshape(rows, n)
    local function all(dtype)
      local v = x:to(dtype)
      return {v:sum(), v:sum(1), v:sum(2), v:amax(2), v:any(2), v:select(1, 1):reshape(1, n):expand(rows, n):sum(2), v:narrow(2, 1, 1):expand(rows, n):sum(2)}
    end
    local expected = all("int64")
    for _, dtype in ipairs{"float32", "float64", "int32", "float16"} do
      if dtype ~= "float16" or rows * n < 300 then
        for threads = 1, 2 do
          pg.set_num_threads(threads)
          for k, y in ipairs(all(dtype)) do
            t.check(y:to("int64"):equal(expected[k]:to("int64")), ("%s %d x %d, %d threads, result %d"):format(dtype, rows, n, threads, k))
          end
        end
      end
    end
  end)
end)

t.test("extremes: NaN wins, infinities, first of equals, indices", function()
  local x = pg.tensor({1, nan, 3, -inf})
  t.check(x:amax():isnan():item())
  t.check(x:min():isnan():item())
  t.equal(x:argmax():item(), 2)
  t.equal(x:argmin():item(), 2)
  t.equal(pg.tensor({-inf, -inf}):amax():item(), -inf)
  t.equal(pg.tensor({2, 5, 5}):argmax():item(), 2)
  t.equal(pg.tensor({2, 5, 5}):argmax{index_base = 0}:item(), 1)
  local long = pg.zeros(5000)
  long[{4321}] = 7
  long[{77}] = -7
  t.equal(long:argmax():item(), 4321)
  t.equal(long:argmin():item(), 77)
  long[{4999}] = nan
  t.equal(long:argmax():item(), 4999)
  t.check(long:amax():isnan():item())
  local values, indices = pg.tensor({{1, 5}, {7, 4}}):max(2)
  t.equal(values:totable(), {5, 7})
  t.equal(indices:totable(), {2, 1})
  t.equal(indices.dtype, "int64")
  t.equal(select("#", pg.tensor({1, 2}):max()), 1)
  t.equal(pg.tensor({true, false}):amax():item(), true)
  t.equal(int({3, -7}):amin():item(), -7)
end)

t.test("reductions of no elements", function()
  local x = pg.zeros{0, 3}
  t.equal(x:sum():item(), 0)
  t.equal(x:sum(1):totable(), {0, 0, 0})
  t.equal(x:prod(1):totable(), {1, 1, 1})
  t.check(x:mean():isnan():item())
  t.equal(x:any():item(), false)
  t.equal(x:all():item(), true)
  t.equal(x:amax(2).shape, {0})
  t.error_contains(function() return x:amax() end, "amax: bad argument 'x'")
  t.error_contains(function() return x:argmax(1) end, "argmax: bad argument 'x'")
  t.equal(x:softmax(2).shape, {0, 3})
  t.equal(x:cumsum(1).shape, {0, 3})
end)

t.test("norm of every order", function()
  local x = pg.tensor({3, -4})
  t.equal(x:norm():item(), 5)
  t.equal(x:norm(1):item(), 7)
  t.equal(x:norm(0):item(), 2)
  t.equal(x:norm(math.huge):item(), 4)
  t.equal(x:norm(-math.huge):item(), 3)
  t.close(x:norm(3), pg.tensor((27 + 64) ^ (1 / 3)))
  local zero = pg.zeros(2):attach_grad()
  pg.record(function() return zero:norm() end):backward()
  t.equal(zero.grad:totable(), {0, 0})
end)

t.test("running extremes return the last of equal elements", function()
  for _, x in ipairs{pg.tensor{1, nan, 5, nan, 2}, pg.tensor{{1}, {nan}, {5}, {nan}, {2}}} do  -- the last of several NaN
    for _, name in ipairs{"cummax", "cummin"} do
      for _, dtype in ipairs{"float16", "bfloat16", "float32", "float64"} do
        local _, at = x:to(dtype)[name](x:to(dtype), 1)
        t.equal(at:reshape{-1}:totable(), {1, 2, 2, 4, 4})
      end
    end
  end
  local v, i = pg.tensor({1, 3, 3, 2, 4}):cummax(1)
  t.equal(v:totable(), {1, 3, 3, 3, 4})
  t.equal(i:totable(), {1, 2, 3, 3, 5})
  local x = pg.tensor({1, 3, 2}):attach_grad()
  pg.record(function() return (x:cummax(1)):sum() end):backward()
  t.equal(x.grad:totable(), {1, 2, 0})
end)

t.test("softmax survives large, infinite and missing values", function()
  t.equal(pg.tensor({1000, 1000}):softmax(1):totable(), {0.5, 0.5})
  t.equal(pg.tensor({0, -inf}):softmax(1):totable(), {1, 0})
  t.check(pg.tensor({-inf, -inf}):softmax(1):isnan():all():item())
  t.check(pg.tensor({1, nan, 2}):log_softmax(1):isnan():all():item())
  for _, n in ipairs{1, 3, 16, 17, 100, 1000} do
    local x = pg.randn(5, n) * 3
    local expected = (x - x:amax(2, true)):exp()
    expected = expected / expected:sum(2, true)
    t.close(x:softmax(2), expected, {rtol = 1e-5, atol = 1e-7})
    t.close(x:t():softmax(1), expected:t(), {rtol = 1e-5, atol = 1e-7})
    t.close(x:log_softmax(2), expected:log(), {rtol = 1e-4, atol = 1e-5})
    t.close(x:to("float16"):softmax(-1):to("float32"), expected, {atol = 1e-2})
  end
end)

t.test("errors name wrong dims", function()
  local x = pg.zeros(2, 3)
  t.error_contains(function() return x:sum(3) end, "sum: bad argument 'dim'")
  t.error_contains(function() return x:sum{dim = {1, -2}} end, "sum: bad argument 'dim'")
  t.error_contains(function() return x:softmax(0) end, "softmax: bad argument 'dim'")
  t.error_contains(function() return x:to("int64"):softmax(1) end, "softmax: bad argument 'x'")
  t.error_contains(function() return x:sum_to{2} end, "sum_to: bad argument 'shape'")
end)

-- Returns the position of the extreme of get(1), …, get(n): NaN is the extreme of all, and the first of equals is
-- returned.
local function extreme_place(n, largest, get)
  local at = 1
  for i = 2, n do
    local v, best = get(i), get(at)
    if best == best and (v ~= v or (largest and v > best) or (not largest and v < best)) then at = i end
  end
  return at
end

t.test("argmax of rows that are cut into parts is the first extreme, or the first NaN", function()
  local n = 200001
  for _, dtype in ipairs{"float32", "float64", "float16", "int64", "uint8"} do
    local x = pg.zeros({2, n}, {dtype = dtype})
    x[{1, 66000}], x[{1, 190000}], x[{2, n}] = 3, 3, 3
    t.equal(x:argmax(2):totable(), {66000, n})
    t.equal(x[1]:argmax():item(), 66000)
    local most, at = x:t():contiguous():max(1)
    t.equal({most:totable(), at:totable()}, {{3, 3}, {66000, n}})
    if dtype:find("float") then
      x[{1, 150000}], x[{1, 150001}], x[{2, 5}] = nan, nan, nan
      t.equal(x:argmax(2):totable(), {150000, 5})
      t.equal(x:argmin(2):totable(), {150000, 5})
    end
  end
end)

t.test("argmax and argmin find the first extreme along rows and columns, NaN and infinities included", function()
  local random = math.random
  math.randomseed(7)
  for _, size in ipairs{{1, 1}, {3, 70}, {70, 3}, {37, 33}, {65, 64}} do
    local n, m, rows = size[1], size[2], {}
    for i = 1, n do
      rows[i] = {}
      for j = 1, m do
        local r = random()
        rows[i][j] = r < 0.02 and nan or r < 0.05 and inf or r < 0.08 and -inf or random(20)
      end
    end
    for _, dtype in ipairs{"float32", "float64"} do
      local x = pg.tensor(rows, {dtype = dtype})
      for _, op in ipairs{"argmax", "argmin"} do
        local columns, lines = {}, {}
        for j = 1, m do columns[j] = extreme_place(n, op == "argmax", function(i) return rows[i][j] end) end
        for i = 1, n do lines[i] = extreme_place(m, op == "argmax", function(j) return rows[i][j] end) end
        t.equal(x[op](x, 1):totable(), columns, op .. " of columns")
        t.equal(x[op](x, 2):totable(), lines, op .. " of rows")
      end
    end
  end
end)

t.test("softmax, log_softmax and logsumexp of NaN and infinities, short rows and long", function()
  for _, n in ipairs{3, 40} do
    local row = {}
    for i = 1, n do row[i] = -inf end
    row[2] = nan
    local x = pg.tensor(row)
    for _, op in ipairs{"softmax", "log_softmax", "logsumexp"} do t.check(x[op](x, 1):isnan():all():item(), op) end
    row[2] = 3
    t.equal(pg.tensor(row):softmax(1):sum():item(), 1)
    t.equal(pg.tensor(row):logsumexp(1):item(), 3)
  end
end)

-- PyTorch's std in float32 too does not overflow where the variance does.
t.test("std of numbers whose squares are out of range", function()
  for _, shape in ipairs{{4}, {3, 70}, {70, 3}, {4, 33, 5}, {1, 9000}} do
    for _, size in ipairs{1e30, 1e-30} do
      local wide = pg.randn(shape):double() * size
      local x = wide:float():attach_grad()
      for _, dim in ipairs{false, 1, #shape} do
        if not dim or shape[dim] > 1 then
          t.close(x:std{dim = dim or nil}:double() / size, wide:std{dim = dim or nil} / size, {rtol = 1e-5})
        end
      end
      t.close(select(1, x:std_mean()):double() / size, wide:std() / size, {rtol = 1e-5})
      local slope = pg.grad(function(v) return v:std() end)(wide)
      pg.record(function() return x:std() end):backward()
      t.close(x.grad:double(), slope, {rtol = 1e-4, atol = 1e-6})
    end
  end
  t.equal(pg.full({3, 5000}, 1e30):std(2), pg.zeros(3))
  t.equal(pg.tensor({1e30, 3e30}):var():item(), inf)
  t.close(pg.tensor({1e-20, 3e-20}):var():item() / 2e-40, 1, {rtol = 1e-3})
end)

t.test("var, std and logsumexp over any dims agree with their definitions, far from zero too", function()
  for _, shape in ipairs{{5}, {3, 70}, {70, 3}, {4, 33, 5}, {2, 3, 4, 5}, {1, 5000}, {200, 17}} do
    for _, dtype in ipairs{"float32", "float64", "float16"} do
      local x = pg.randn(shape):to(dtype) + (dtype == "float64" and 1e3 or 0)
      local dims = {false, {1}, {#shape}, #shape > 2 and {1, 3} or {1}, #shape > 2 and {2, 3} or {#shape}}
      for _, dim in ipairs(dims) do
        local o = {dim = dim or nil, keepdim = true}
        local wide = x:to("float64")
        local mean, n = wide:mean(o), x:numel() / wide:mean(o):numel()
        local var = ((wide - mean) ^ 2):sum(o) / (n - 1)
        local lse = (wide - wide:amax(o)):exp():sum(o):log() + wide:amax(o)
        local tolerance = {rtol = dtype == "float64" and 1e-9 or dtype == "float16" and 2e-3 or 1e-5, atol = 1e-5}
        if n > 1 then
          t.close(x:var(o):to("float64"), var, tolerance)
          t.close(x:std(o):to("float64"), var:sqrt(), tolerance)
        end
        t.close(x:logsumexp(o):to("float64"), lse, tolerance)
      end
    end
  end
  local far = pg.randn(4, 100000) * 0.01 + 1000
  t.close(far:var(2):to("float64"), far:to("float64"):var(2), {rtol = 1e-3})
  t.check(pg.ones(1):var():isnan():item())
  t.equal(pg.ones(3, 1):var{dim = 1}, pg.zeros(1))
  t.equal(pg.zeros(0, 3):var(2).shape, {0})
  t.equal(pg.zeros(2, 0, 3):logsumexp(2), pg.full({2, 3}, -inf))
  t.equal(pg.tensor({1, 1}, {dtype = "int64"}):logsumexp().dtype, "float32")
end)

t.test("the gradient of norm with p below 1 is 0 at elements that are 0", function()
  local x = pg.tensor({0, 4, 0}):attach_grad()
  pg.record(function() return x:norm(0.5) end):backward()
  t.close(x.grad, pg.tensor({0, 1, 0}))
end)

-- Strided operands come in runs, which differ from the dense ones that a program is compiled for.
t.test("sums of computed values over strided operands, as in eager mode", function()
  pg.manual_seed(5)
  local function shifted(x) return x[{{}, {}, {2, -1}}] - x[{{}, {}, {1, -2}}] end
  local programs = {
    {{256, 256}, function(x) return x:t():exp() end},
    {{256, 256}, function(x) return x[{{}, {1, 200}}]:exp() end},
    {{256, 256}, function(x) return x[{{3, 250}, {5, 133}}]:sin() end},
    {{64, 512}, function(x) local a, b = unpack(x:chunk(2, -1)) return b:exp() + a * a - b - 1 end},
    {{4, 8, 32, 160}, shifted},
    {{3, 40, 9, 50}, function(x) return x:permute(1, 3, 4, 2) * 2 end},
    {{300, 140}, function(x) return x * x[{{}, {1, 1}}] + x:narrow(1, 1, 1) end},
    {{2, 5000}, function(x) return x[{{}, {1, 4999}}] * 3 end},
  }
  local sums = {
    function(x) return x:sum() end, function(x) return x:mean() end, function(x) return x:square():sum() end,
    function(x) return x:norm() end, function(x) return x:sum(1) end, function(x) return x:sum(-1) end,
    function(x) return x:sum() + x:square():mean() end, function(x) return x:amax() - x:amin() end,
  }
  for _, dtype in ipairs{"float32", "float64", "bfloat16", "float16"} do
    for i, program in ipairs(programs) do
      local x = (pg.rand(unpack(program[1])) - 0.4):to(dtype)
      for k, sum in ipairs(sums) do
        local function f(y) return sum(program[2](y):float()) end
        t.close(pg.jit(f)(x), f(x), {rtol = 2e-4, atol = 1e-3, what = ("%s: program %d, sum %d"):format(dtype, i, k)})
      end
    end
  end
end)

t.test("reductions over few wide rows are those of the rows one after another", function()
  local folds = {amax = pg.maximum, amin = pg.minimum, sum = pg.add, prod = pg.mul}
  for _, dtype in ipairs{"uint8", "int8", "int32", "int64", "float16", "bfloat16", "float32", "float64"} do
    local float = dtype:find("float")
    for _, shape in ipairs{{1, 3, 2100}, {2, 5, 70}, {3, 2, 1030}, {1, 40, 64}, {2, 300, 65}} do
      local x = float and pg.randn(shape) or pg.randint(0, 100, shape)
      x = x:to(dtype)
      if float then
        x[{1, 1, {1, 3}}] = pg.tensor{0 / 0, math.huge, -math.huge}:to(dtype)
        x[{1, shape[2], 5}] = 0 / 0
      end
      for op, fold in pairs(folds) do
        local exact = op == "amax" or op == "amin"
        local whole = float and not exact and x:to("float64") or exact and x or x:to("int64")
        local expected = whole:select(2, 1)
        for r = 2, shape[2] do expected = fold(expected, whole:select(2, r)) end
        local got, what = x[op](x, 2), op .. " " .. dtype .. " " .. table.concat(shape, "x")
        if float and not exact then
          local size = dtype == "float16" and 2e-3 or dtype == "bfloat16" and 1e-2 or 1e-5
          t.close(got:to("float64"), expected:to(dtype):to("float64"), {rtol = size, atol = 20 * size, what = what})
        else
          t.equal(got, expected:to(got.dtype), what)
        end
      end
      if float then
        t.close(x:mean(2):to("float64"), (x:to("float64"):sum(2) / shape[2]):to(dtype):to("float64"),
                {rtol = dtype == "bfloat16" and 1e-2 or 2e-3, atol = 1e-5})
      end
    end
  end
end)

t.test("argmax and argmin of short rows are the first extremes, or the first NaN", function()
  for _, n in ipairs{1, 2, 3, 8, 12, 13} do
    for _, count in ipairs{1, 64, 131} do
      local whole = pg.randint(-3, 3, {count, n})
      for _, dtype in ipairs{"float32", "float64", "float16", "bfloat16", "int64", "int8"} do
        local x = whole:to(dtype)
        if dtype:find("float") then x = pg.where(pg.rand(count, n):lt(0.1), 0 / 0, x):to(dtype) end
        for _, op in ipairs{"argmax", "argmin"} do
          local expected = {}
          for r, row in ipairs(x:totable()) do
            local at = 1
            for c, v in ipairs(row) do
              local best = row[at]
              if best == best and (v ~= v or (op == "argmax" and v > best) or (op == "argmin" and v < best)) then at = c end
            end
            expected[r] = at
          end
          local what = op .. " " .. dtype .. " " .. count .. "x" .. n
          t.equal(x[op](x, 2):totable(), expected, what)
          local values, indices = x[op:sub(4)](x, 2)
          t.equal(indices:totable(), expected, what)
          t.equal(values, x:gather(2, indices:reshape{count, 1}):squeeze(2), what)
        end
      end
    end
  end
end)

t.test("extremes of arrays that repeat and turn elements are those of their copies", function()
  local base = pg.tensor({{3, 7, 7}, {9, 1, 9}}, {dtype = "float64"})
  for name, x in pairs{
    turned = base:t(), rows = base:reshape(2, 1, 3):expand(2, 4, 3), columns = base:reshape(2, 3, 1):expand(2, 3, 4),
    all = pg.tensor{5}:expand(6), front = base:reshape(1, 2, 3):expand(4, 2, 3), both = base:t():reshape(3, 1, 2):expand(3, 4, 2),
    scalar = pg.tensor(5),
  } do
    local copy = x:clone():contiguous()
    for _, op in ipairs{"max", "min", "argmax", "argmin"} do
      t.equal({name, op, x[op](x)}, {name, op, copy[op](copy)})
      for d = 1, x:dim() do t.equal({name, op, d, x[op](x, d)}, {name, op, d, copy[op](copy, d)}) end
    end
  end
  if t.device == "cpu" then t.equal(pg.ones(1):expand(2^40):argmax():item(), 1) end  -- others visit all elements
end)

t.test("narrow integers reduce as int64 does", function()
  if t.mode == "cuda_host" then t.skip("takes a minute there") end
  for dtype, most in pairs{int8 = 127, uint8 = 255, int32 = 2 ^ 31 - 1} do
    for _, shape in ipairs{{7000}, {9000, 30}, {4, 40, 70}} do
      local x = pg.randint(dtype == "uint8" and 0 or -most, most, shape):to(dtype)
      local wide = x:to("int64")
      for d = 0, #shape do
        local dim = d > 0 and d or nil
        for _, v in ipairs{{x, wide}, {x:transpose(1, -1), wide:transpose(1, -1)}} do
          for _, name in ipairs{"sum", "prod", "amax", "count_nonzero"} do
            local got, expected = v[1][name](v[1], dim), v[2][name](v[2], dim)
            t.check(got:to(expected.dtype):equal(expected), {name, dtype, shape, d})
          end
        end
      end
    end
  end
end)
