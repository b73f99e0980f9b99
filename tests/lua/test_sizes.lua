-- Sizes that exceed all memory, and huge dims beside a dim of 0. Each is an error or ends at once, and nothing is
-- written past the end of a buffer.
local t = require "tests.support"
local driver = require "tests.ops.driver"
local edges = require "tests.ops.edges"
local with_limit = require "tests.ops.limit"
local pg = require "perigee"

local nan = 0 / 0

-- f must raise an error that contains one of the texts.
local function refused(f, ...)
  local ok, e = t.pcall(with_limit, 2 ^ 28, f)
  t.check(not ok, "no error")
  for _, text in ipairs{...} do if e:find(text, 1, true) then return end end
  error("another error: " .. e, 0)
end

-- Loops --------------------------------------------------------------------------------------------------------------

t.test("the rows that a loop stacks are limited", function()
  local function run(cap, options)
    local function step(i) return i, {i + 1} end
    return pg.while_loop(function(i) return i:lt(3) end, step, {0}, options or {max_iterations = cap})
  end
  refused(function() run(2 ^ 62) end, "max_iterations")
  refused(function() run(2 ^ 53) end, "out of memory", "2^56 elements")
  refused(function() run(1e300) end, "max_iterations")
  refused(function() run(nil, {max_iterations = 3, checkpoint = 1e300}) end, "checkpoint")
  refused(function() pg.loop(1e300, function(_, v) return v end, pg.ones(2)) end, "count")
  local function wide(n)
    return function() pg.foreach(function(_, s) return pg.ones(n), s end, pg.zeros{2 ^ 53, 0}, {pg.zeros(1)}) end
  end
  refused(wide(3), "out of memory")
  refused(wide(16), "2^56 elements")
  refused(wide(1024), "2^56 elements")
end)

t.test("the residuals of a loop are limited", function()
  for _, wide in ipairs{1, 4, 1024} do
    refused(function()
      local x = pg.ones(wide):attach_grad()
      pg.record(function() return pg.loop(2 ^ 53, function(_, v) return v * v end, x):sum() end):backward()
    end, "out of memory", "2^56 elements")
  end
end)

t.test("the limits of an imported loop are checked for the sizes of each run", function()
  local function f(x)
    local function step(i, v) return v, {i + 1, v * 2} end
    return (pg.while_loop(function(i) return i:lt(3) end, step, {pg.tensor(0), x}, {max_iterations = 4}))
  end
  local net = pg.nn.HybridBlock:extend("Looping")
  function net:forward(x) return f(x) end
  local block = net()
  block:hybridize()
  block(pg.ones(1))
  local json, tensors = block:export(t.tmp("limit"))
  local changed, n = t.read(json):gsub('"limit": ?4', '"limit": 36028797018963968')
  t.check(n > 0, "no limit in the file")
  t.write(json, (changed:gsub('%[4, ?1%]', "[36028797018963968,1]")))
  local loaded = pg.nn.SymbolBlock.imports(json, nil, tensors)
  refused(function() loaded(pg.ones(1)) end, "out of memory")
  refused(function() loaded(pg.ones(1024)) end, "2^56 elements")
end)

t.test("attributes in a file are checked like those of a call", function()
  local net = pg.nn.HybridBlock:extend("Windows")
  function net:forward(x) return pg.conv1d(x, pg.ones(2, 1, 1), {groups = 2, stride = 3}) end
  local block = net()
  block:hybridize()
  block(pg.ones(1, 2, 7))
  local json, tensors = block:export(t.tmp("windows"))
  local text = t.read(json)
  for _, change in ipairs{{'"groups": ?2', '"groups":0'}, {'"groups": ?2', '"groups":-9'}, {'"stride": ?%[3%]',
    '"stride":[0]'},
                          {'"stride": ?%[3%]', '"stride":[288230376151711744]'}} do
    local changed, n = text:gsub(change[1], change[2])
    t.check(n > 0, "nothing to change for " .. change[1])
    t.write(json, changed)
    t.error_matches(function() pg.nn.SymbolBlock.imports(json, nil, tensors) end, "expected a")
  end
end)

t.test("a count that is a tensor is checked when the loop runs", function()
  for _, count in ipairs{1e300, 2 ^ 60, -1} do
    local steps = pg.tensor(count, {dtype = "float64"})
    t.error_contains(function() pg.loop(steps, function(_, v) return v end, pg.ones(2)) end, "count")
  end
end)

-- Shapes -------------------------------------------------------------------------------------------------------------

t.test("slices without elements are equal, however many", function()
  for _, dtype in ipairs{"float32", "float64", "int64", "bool"} do
    refused(function() pg.zeros({2 ^ 45, 0}, {dtype = dtype}):unique{dim = 1, return_inverse = true} end, "out of memory")
    for _, name in ipairs{"unique", "unique_consecutive"} do
      local values, counts = pg[name](pg.zeros({0, 2 ^ 45}, {dtype = dtype}), {dim = -1, return_counts = true})
      t.equal(values.shape, {0, 1})
      t.equal(counts:totable(), {2 ^ 45})
    end
  end
end)

t.test("sizes of results are multiplied without overflow", function()
  local x, labels = pg.ones(2), pg.tensor({1, 2}, {dtype = "int64"})
  refused(function() pg.bincount(labels, {minlength = 2 ^ 62}) end, "minlength")
  refused(function() pg.bincount(labels, {minlength = 2 ^ 55}) end, "out of memory")
  refused(function() x:repeat_interleave{repeats = {2 ^ 62, 2 ^ 62}} end, "repeats")
  refused(function() x:repeat_interleave{repeats = {2 ^ 55, 2 ^ 56}} end, "2^56 elements")
  refused(function() x:repeat_interleave(2 ^ 56) end, "2^56 elements")
  refused(function() x:tile{2 ^ 56, 2 ^ 56} end, "2^56 elements")
  refused(function() labels:one_hot(2 ^ 56) end, "2^56 elements")
  refused(function() x:pad{2 ^ 56, 2 ^ 56} end, "2^56 elements")
  refused(function() pg.range(0, 1e15) end, "out of memory")
  refused(function() pg.range(-1e308, 1e308) end, "stop")
  refused(function() pg.linspace(0, 1, {steps = 2 ^ 56}) end, "out of memory")
  refused(function() pg.linspace(0, 1, {steps = 2 ^ 57}) end, "steps")
  refused(function() pg.eye(2 ^ 40, 2 ^ 40) end, "2^56 elements")
  refused(function() pg.zeros{2 ^ 56, 2} end, "2^56 elements")
  refused(function() pg.zeros{0, 2 ^ 56, 2} end, "2^56 elements")
  refused(function() pg.zeros(1e300) end, "shape")
  refused(function() pg.ones(1):expand(2 ^ 56, 2) end, "2^56 elements")
  local empty = {}
  for i = 1, 300 do empty[i] = pg.zeros{0, 2 ^ 56} end
  refused(function() pg.cat(empty, 2) end, "2^56 elements")
  t.equal(pg.cat({empty[1], empty[2]}, 1).shape, {0, 2 ^ 56})
end)

t.test("windows over dims of any length", function()
  local image = pg.zeros{0, 1, 2 ^ 55}
  refused(function() pg.conv_transpose1d(image, pg.ones(1, 1, 3), {stride = 2 ^ 30}) end, "2^56 elements")
  refused(function() pg.conv1d(pg.ones(1, 1, 8), pg.zeros{0, 1, 2 ^ 54}, {dilation = 2 ^ 30}) end,
    "at least 4611686018427387904")
  refused(function() pg.conv1d(pg.ones(1, 4, 8), pg.zeros{0, 2 ^ 54, 1}, {groups = 2 ^ 30}) end, "channels")
  refused(function() pg.max_pool1d(pg.ones(1, 1, 8), 2 ^ 30, {dilation = 2 ^ 30}) end, "room")
  t.equal(pg.zeros{0, 2 ^ 53}[{{}, {1, -1, 2 ^ 52}}].shape, {0, 2})
end)

t.test("whole numbers of attributes are at most 2^56", function()
  local x = pg.ones(4)
  for _, number in ipairs{2 ^ 57, 2 ^ 62, -2 ^ 57, 2 ^ 63, -2 ^ 63, 1e300, -1e300, math.huge, nan, 1.5} do
    t.error_contains(function() x:roll(number) end, "roll: bad argument 'shifts' (expected")
    t.error_contains(function() x:topk(number) end, "topk: bad argument 'k' (expected")
    t.error_contains(function() x:narrow(1, number, 1) end, "narrow: bad argument 'start' (expected")
    t.error_contains(function() x:reshape{number} end, "reshape: bad argument 'shape' (expected")
  end
  t.error_contains(function() x:roll(2 ^ 57) end,
    "roll: bad argument 'shifts' (expected a whole number of at most 2^56, got 144115188075855872)")
end)

-- Kernels over nothing -----------------------------------------------------------------------------------------------

t.test("kernels do not loop over dims beside a dim of 0", function()
  local long, wide = pg.zeros{2 ^ 53, 0}, pg.zeros{0, 2 ^ 53}
  for _, x in ipairs{long, wide} do
    for dim = 1, 2 do
      for _, name in ipairs{"cumsum", "cumprod", "cummax", "cummin", "softmax", "log_softmax", "sort", "argsort",
        "flip"} do
        t.equal((pg[name](x, dim)).shape, x.shape)
      end
    end
    t.equal((x + 1):exp().shape, x.shape)
    t.equal(x:t():contiguous().shape, {x.shape[2], x.shape[1]})
    t.equal(x:sum():item(), 0)
    t.equal(x:prod():item(), 1)
    t.equal(x:to("float64"):clone().shape, x.shape)
    t.equal(pg.stack({x, x}, 2).shape, {x.shape[1], 2, x.shape[2]})
  end
  t.equal(pg.linalg.solve(pg.zeros{2 ^ 53, 0, 0}, pg.zeros{2 ^ 53, 0, 0}).shape, {2 ^ 53, 0, 0})
  t.equal(pg.linalg.inv(pg.zeros{2 ^ 53, 0, 0}).shape, {2 ^ 53, 0, 0})
  t.equal(pg.linalg.cholesky(pg.zeros{2 ^ 53, 0, 0}).shape, {2 ^ 53, 0, 0})
  t.equal(pg.matmul(pg.zeros{2 ^ 50, 0, 3}, pg.ones(3, 4)).shape, {2 ^ 50, 0, 4})
  t.equal(pg.zeros{2 ^ 50, 0, 3}:linear(pg.ones(4, 3), pg.ones(4)).shape, {2 ^ 50, 0, 4})
  t.equal(pg.zeros{2 ^ 50, 0, 3}:layer_norm({3}).shape, {2 ^ 50, 0, 3})
  t.equal(pg.batch_norm(pg.zeros{2 ^ 50, 3, 0}, pg.zeros(3), pg.ones(3), nil, nil, {training = false}).shape, {2 ^ 50,
    3, 0})
  t.equal(pg.batch_norm(pg.zeros{2 ^ 50, 3, 0}, nil, nil, nil, nil, {training = true}).shape, {2 ^ 50, 3, 0})
  t.equal(pg.embedding(pg.zeros({2 ^ 50, 0}, {dtype = "int64"}), pg.ones(3, 2)).shape, {2 ^ 50, 0, 2})
  for _, shape in ipairs{{2 ^ 45, 2, 0}, {2 ^ 45, 0, 5}, {0, 2, 2 ^ 45}} do
    local values, inverse, counts = pg.unique(pg.zeros(shape), {dim = 2, return_inverse = true, return_counts = true})
    t.equal(values.shape, {shape[1], math.min(shape[2], 1), shape[3]})
    t.equal(inverse:totable(), shape[2] == 2 and {1, 1} or {})
    t.equal(counts:totable(), shape[2] == 2 and {2} or {})
  end
  local places = pg.tensor({1, 2}, {dtype = "int64"})
  for _, shape in ipairs{{2 ^ 50, 5, 0}, {2 ^ 25, 5, 2 ^ 20, 0}} do
    local x = pg.zeros(shape)
    t.equal(x:index_select(2, places).shape[2], 2)
    t.equal(x:index_add(2, places, 7).shape, shape)
    x[{{}, places}] = 7
    x[{{}, {1, 2}}] = 7
    t.equal(x.shape, shape)
    t.equal(pg.testing.ops._resample(x, 2, 4, 0.5).shape[2], 4)
  end
end)

t.test("an index is checked even if nothing is read", function()
  local x, at = pg.zeros{5, 0}, pg.tensor({9}, {dtype = "int64"})
  t.error_contains(function() return x:index_select(1, at) end, "index_select: bad argument 'index'")
  t.error_contains(function() return x:index_add(1, at, pg.zeros{1, 0}) end, "index_add: bad argument 'index'")
  t.error_contains(function() return x:index_copy(1, at, pg.zeros{1, 0}) end, "index_copy: bad argument 'index'")
  t.error_contains(function() return x:index_fill(1, at, 1) end, "index_fill: bad argument 'index'")
  t.error_contains(function() return pg.embedding(at, x) end, "embedding: bad argument 'indices'")
  t.error_contains(function() return x[at] end, "bad argument 'index'")
  t.error_contains(function() x[at] = 7 end, "bad argument 'index'")
end)

t.test("the derivatives of digamma far left of 0", function()
  for _, x in ipairs{-0.25, -3.75, -20.5, -1e3 - 0.25, -1e6 - 0.5, -2 ^ 50 - 0.25} do
    local v = pg.tensor({x}, {dtype = "float64"})
    -- psi_1(1 - x) + psi_1(x) = (pi / sin(pi x))^2
    local expected = (math.pi / math.sin(math.pi * (x - math.floor(x)))) ^ 2
    local sum = (v:polygamma(1) + (1 - v):polygamma(1)):item()
    t.check(math.abs(sum - expected) <= 1e-12 * expected, x .. ": " .. sum .. " and " .. expected)
    -- psi_2(1 - x) - psi_2(x) = 2 pi^3 cos(pi x) / sin(pi x)^3
    local angle = math.pi * (x - math.floor(x))
    local cubic = 2 * math.pi ^ 3 * math.cos(angle) / math.sin(angle) ^ 3
    local difference = ((1 - v):polygamma(2) - v:polygamma(2)):item()
    t.check(math.abs(difference - cubic) <= 1e-11 * math.abs(cubic) + 1e-11,
      x .. ": " .. difference .. " and " .. cubic)
  end
  local x = pg.tensor{-1e9, -1e30, -2 ^ 22 - 0.5}:attach_grad()
  pg.record(function() return x:digamma():sum() end):backward()
  t.check(math.abs(x.grad[3]:item() - math.pi ^ 2) < 1e-4)
end)

-- Tables and pieces --------------------------------------------------------------------------------------------------

t.test("totable of a long dim without elements is refused", function()
  t.error_contains(function() pg.zeros{1e7, 0}:totable() end,
    "totable: bad argument 'x' (expected a tensor that fits a Lua table, got")
  t.equal(#pg.zeros{1000, 0}:totable(), 1000)
end)

t.test("unbind into many pieces", function()
  local n = t.mode == "eager" and 2 ^ 20 or 2 ^ 8
  local pieces = pg.range(1, n):unbind()
  t.equal(#pieces, n)
  t.equal(pieces[n]:item(), n)
  t.equal(#pg.range(1, n):split(1), n)
end)

t.test("one_hot without num_classes checks its labels", function()
  local function labels(number, dtype) return pg.full({2}, number, {dtype = dtype or "int64"}) end
  for _, dtype in ipairs{"bfloat16", "float32", "bool"} do
    t.error_contains(function() labels(1, dtype):one_hot() end, "expected a tensor of an integer dtype, got " .. dtype)
  end
  t.error_contains(function() labels(nan, "bfloat16"):one_hot() end, "expected a tensor of an integer dtype")
  refused(function() labels(-2 ^ 63):one_hot() end, "-9223372036854775808")
  refused(function() labels(2 ^ 63 - 1024):one_hot() end, "2^56")
  refused(function() labels(2 ^ 63 - 1024):one_hot{index_base = 0} end, "2^56")
  refused(function() labels(2 ^ 50):one_hot() end, "out of memory")
  t.equal(labels(3):one_hot().shape, {2, 3})
end)

t.test("empty bools are bools", function()
  for _ = 1, 20 do pg.full({64}, 255, {dtype = "uint8"}):release() end
  local path = t.tmp("bools.npy")
  for _, x in ipairs{pg.empty(64, {dtype = "bool"}), pg.empty_like(pg.ones(64, {dtype = "bool"})),
    pg.empty_like(pg.ones(64), {dtype = "bool"})} do
    for byte in x:to_bytes():gmatch(".") do t.check(byte:byte() <= 1) end
    pg.save(path, x)
    t.check(pg.load(path):equal(x))
  end
end)

-- Generated ----------------------------------------------------------------------------------------------------------

local numeric = {int = true, dim = true, float = true, ints = true, dims = true, floats = true}
local function attempt(row, _, args, attrs)
  local ok, e = t.pcall(driver.run, row, {args = args, attrs = attrs}, args)
  if not ok then t.check(type(e) == "string" and not e:find("attempt to", 1, true), row.name .. ": " .. tostring(e)) end
end

local function with_option(attrs, name, value)
  local out = {}
  for key, old in pairs(attrs or {}) do out[key] = old end
  out[name] = value
  return out
end

local function try_edges(row, case)
  local dead = pg.ones(2)
  dead:release()
  for _, attr in ipairs(row.attrs) do
    attempt(row, case, case.args, with_option(case.attrs, attr.name, dead))
    if numeric[attr.kind] then
      for _, edge in ipairs(edges.numbers) do
        attempt(row, case, case.args, with_option(case.attrs, attr.name, edge))
        local twice = with_option(case.attrs, attr.name, {edge, edge})
        if attr.kind:sub(-1) == "s" then attempt(row, case, case.args, twice) end
      end
    end
  end
end

-- Returns the case with its dim, by position or by name, set to 2, and the original dim; nil for an op without one.
local function along_two(row, case)
  local takes_dim = false
  for _, attr in ipairs(row.attrs) do takes_dim = takes_dim or attr.name == "dim" end
  if not takes_dim then return end
  if case.attrs and case.attrs.dim then return case.args, with_option(case.attrs, "dim", 2), case.attrs.dim end
  local was
  local args = driver.map(function(x)
    if type(x) ~= "number" or x % 1 ~= 0 or was then return x end
    was = x
    return 2
  end, case.args)
  if was then return args, case.attrs, was end
  return args, with_option(case.attrs, "dim", 2), 1
end

-- Tries the inputs of the case with a dim, huge or 0, on either side of the dim that the op works along.
local function try_between(row, case, attempt_both)
  local args, attrs, dim = along_two(row, case)
  if type(dim) ~= "number" then return end
  for place = 0, #driver.tensors(args) do  -- all inputs, or only one
    local n = 0
    attempt_both(row, {attrs = attrs}, driver.map(function(x)
      if not driver.is_tensor(x) then return x end
      n = n + 1
      return (place == 0 or n == place) and edges.between(x, dim) or x
    end, args))
  end
end

-- Tries the call and its gradient.
local function attempt_both(row, case, args)
  attempt(row, case, args, case.attrs)
  if not row.differentiable then return end
  local ok, e = t.pcall(function()
    local leaves = driver.map(function(x)
      local floats = driver.is_tensor(x) and x.dtype:find("float")
      return floats and x:detach():attach_grad() or x
    end, args)
    pg.autograd.backward(pg.record(function()
      local heads = {}
      for _, y in ipairs(driver.run(row, {args = leaves, attrs = case.attrs}, leaves)) do
        if y.requires_grad then heads[#heads + 1] = y:sum() end
      end
      return heads
    end))
  end)
  if not ok then
    t.check(type(e) == "string" and not e:find("attempt to", 1, true), "gradient of " .. row.name .. ": " .. tostring(e))
  end
end

local function try_shapes(row, case)
  for k = 0, 5 do
    local function all(x) return driver.is_tensor(x) and edges.stretched(x, k) or x end
    attempt_both(row, case, driver.map(all, case.args))
    for place = 1, #driver.tensors(case.args) do  -- only one input
      local n = 0
      attempt_both(row, case, driver.map(function(x)
        if not driver.is_tensor(x) then return x end
        n = n + 1
        return n == place and edges.stretched(x, k) or x
      end, case.args))
    end
  end
  for _, shape in ipairs(edges.shapes) do
    local function all(x) return driver.is_tensor(x) and pg.zeros(shape, {dtype = x.dtype}) or x end
    attempt_both(row, case, driver.map(all, case.args))
  end
end

-- All tensors, and each by itself, hold the largest or smallest number of a dtype, NaN or an infinity.
local function try_extremes(row, case)
  edges.each_extreme(function(make)
    for place = 0, #driver.tensors(case.args) do
      local n = 0
      attempt(row, case, driver.map(function(x)
        if not driver.is_tensor(x) then return x end
        n = n + 1
        return (place == 0 or n == place) and make(x) or x
      end, case.args), case.attrs)
    end
  end)
end

-- Canaries and the sanitizers see writes past an end: there all cases run, elsewhere one per op.
local most = (t.mode == "guard" or t.all or t.sanitized) and 3 or 1

if t.mode ~= "gcstress" then
  for _, name in ipairs(pg.testing.op_names(true)) do
    local row = pg.testing.op_row(name)
    t.test("edge numbers and empty shapes of " .. name, function()
      if row.effect then return end
      local cases = require("tests.ops.cases").of(row)
      with_limit(2 ^ 28, function()
        for k = 1, math.min(#cases, most) do
          try_edges(row, cases[k])
          if most > 1 then try_extremes(row, cases[k]) end
          try_shapes(row, cases[k])
          try_between(row, cases[k], attempt_both)
        end
      end)
    end)
  end
end
