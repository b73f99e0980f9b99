-- Arguments outside of an op's domain are errors, eagerly and in graphs; empty sets have values and gradients.
local pg = require "perigee"
local t = require "tests.support"

local function leaves(...)
  local out = {...}
  for i, x in ipairs(out) do out[i] = x:detach():attach_grad() end
  return out
end

-- The gradients of orders 1 and 2 of f, of each argument, as two lists. `weight` makes the cotangent uneven.
local function gradients(f, ...)
  local xs = leaves(...)
  local first
  local total = pg.record(function()
    local y = f(unpack(xs))
    local weight = pg.range(1, y:numel()):reshape_as(y):to(y.dtype)
    first = pg.autograd.grad({(y * y * weight):sum()}, xs, {create_graph = true})
    local sum = 0
    for _, g in ipairs(first) do sum = sum + g:square():sum() end
    return sum
  end)
  return first, pg.autograd.grad({total}, xs)
end

local function all_zero(list)
  for _, g in ipairs(list) do if not g:detach():equal(pg.zeros_like(g)) then return false end end
  return true
end

local nan = 0 / 0

t.test("binary_cross_entropy takes probabilities", function()
  local half, one = pg.tensor{0.5, 0.5}, pg.tensor{1, 1}
  local text = "binary_cross_entropy: bad argument '%s' (expected probabilities from 0 to 1, got %s at element 2)"
  local function f(x, y) return x:binary_cross_entropy(y) end
  for _, g in ipairs{f, pg.jit(f), pg.jit(function(x, y) return f(x * 1, y) + 1 end)} do
    for _, bad in ipairs{1.5, -0.25, nan, math.huge} do
      local shown = bad ~= bad and "nan" or tostring(bad)
      t.error_contains(function() return g(pg.tensor{1, bad}, one) end, text:format("x", shown))
      t.error_contains(function() return g(half, pg.tensor{0, bad}) end, text:format("target", shown))
    end
    g(pg.tensor{0, 1}, one)
    g(pg.zeros(0), pg.zeros(0))
  end
  for _, dtype in ipairs{"float16", "bfloat16", "float64"} do
    t.error_contains(function() return f(pg.tensor({0, 2}, {dtype = dtype}), one:to(dtype)) end, text:format("x", 2))
    f(half:to(dtype), one:to(dtype))
  end
  t.error_contains(function() return f(pg.tensor{{0, 1}, {2, 0}}:t(), pg.zeros(2, 2)) end, text:format("x", 2))
end)

t.test("a check in a graph runs where and as often as its op does", function()
  local function f(x, on)
    return pg.cond(on, function() return x:binary_cross_entropy(x * 0) end, function() return x:sum() end)
  end
  for _, g in ipairs{f, pg.jit(f)} do
    t.check(g(pg.tensor{2, 3}, pg.tensor(false)):item() == 5)
    t.error_contains(function() return g(pg.tensor{2, 3}, pg.tensor(true)) end, "expected probabilities from 0 to 1, got 2 at element 1")
  end
  local function loop(x) return pg.loop(3, function(_, s) return s + (s * 0.5):binary_cross_entropy(s * 0):sum() end, x) end
  for _, g in ipairs{loop, pg.jit(loop)} do
    t.check(g(pg.tensor(0.01)):item() > 0.01)
    t.error_contains(function() return g(pg.tensor(1.5)) end, "bad argument 'x' (expected probabilities")
  end
  -- The loss of a training step is not read.
  local step = pg.jit(function(x) x:binary_cross_entropy(x * 0) return x + 1 end)
  t.error_contains(function() return step(pg.tensor{2}) end, "expected probabilities")
end)

t.test("binary_cross_entropy has gradients in graphs", function()
  local x, y = pg.tensor{0.2, 0.9}, pg.tensor{1, 0.5}
  local function f(a) return a:binary_cross_entropy(y) end
  local first, second = gradients(f, x)
  local first2, second2 = gradients(pg.jit(f), x)
  t.check(first[1]:detach():allclose(first2[1]:detach()) and second[1]:allclose(second2[1], {rtol = 1e-4}))
  local w = x:detach():attach_grad()
  pg.record(function() return f(w) end):backward()
  t.check(w.grad:allclose(pg.tensor{-2.5, (0.9 - 0.5) / (0.9 * 0.1) / 2}, {rtol = 1e-5}))
end)

t.test("attributes whose order or size matters", function()
  local x = pg.tensor{-2, 0.5, 3}
  local function refuses(name, attr, options)
    local function f(a) return pg[name](a, options) end
    t.bad_argument(function() return f(x) end, name, attr)
    t.bad_argument(function() return pg.jit(f)(x) end, name, attr)
  end
  refuses("hardtanh", "max_val", {min_val = 1, max_val = -1})
  refuses("hardtanh", "max_val", {max_val = -2})
  refuses("celu", "alpha", {alpha = 0})
  refuses("softshrink", "lambda", {lambda = -1})
  refuses("softshrink", "lambda", {lambda = nan})
  t.check(x:hardtanh(1, 1):equal(pg.ones(3)) and x:hardtanh(-1, math.huge):equal(pg.tensor{-1, 0.5, 3}))
  t.check(pg.tensor({1, 2}, {dtype = "int32"}):hardtanh(0, 1).dtype == "float32" and pg.hardtanh(7):item() == 1)
  -- As in PyTorch, max wins.
  t.check(x:clamp(1, -1):equal(pg.full({3}, -1)))
  t.check(pg.jit(function(a) return a:clamp(pg.tensor(1), pg.tensor(-1)) * 1 end)(x):equal(pg.full({3}, -1)))
  local first = gradients(function(a, low, high) return a:clamp(low, high) end, x, pg.ones(3), -pg.ones(3))
  t.check(first[1]:detach():equal(pg.zeros(3)) and first[2]:detach():equal(pg.zeros(3)))
  t.check(first[3]:detach():equal(pg.tensor{-2, -4, -6}))
end)

t.test("a mean over ignored labels is NaN, and has gradient 0 at every order", function()
  local labels = pg.full({3}, -100, {dtype = "int64"})
  for _, dtype in ipairs{"float32", "float64", "float16"} do
    local x = pg.randn(3, 4):to(dtype)
    for _, options in ipairs{{}, {label_smoothing = 0.1}} do
      local function f(a) return a:cross_entropy(labels, options) end
      t.check(f(x):isnan():item())
      for _, g in ipairs{f, pg.jit(f)} do
        local w = x:detach():attach_grad()
        local first
        pg.record(function()
          first = pg.autograd.grad({g(w)}, {w}, {create_graph = true})[1]
          return first:square():sum() + first:sum()
        end):backward()
        t.check(all_zero{first, w.grad}, dtype)
      end
    end
    local function nll(a) return a:nll_loss(labels) end
    local w = x:detach():attach_grad()
    pg.record(function() return nll(w) end):backward()
    t.check(nll(x):isnan():item() and all_zero{w.grad})
  end
  local weight = pg.tensor{0, 1}
  local w = pg.randn(2, 2):attach_grad()
  pg.record(function() return w:cross_entropy(pg.tensor({1, 1}, {dtype = "int64"}), weight) end):backward()
  t.check(all_zero{w.grad}, "all weights are 0")
end)

t.test("a batch norm over an empty batch changes no statistics", function()
  for _, shape in ipairs{{0, 3}, {0, 3, 2}, {4, 3, 0}} do
    local x, mean, var = pg.zeros(shape), pg.tensor{1, 2, 3}, pg.tensor{4, 5, 6}
    local function f(a, m, v) return pg.batch_norm(a, m, v, nil, nil, {training = true}) end
    for _, g in ipairs{f, pg.jit(f)} do
      local y, new_mean, new_var = g(x, mean, var)
      t.equal(y.shape, shape)
      t.check(new_mean:equal(mean) and new_var:equal(var))
    end
    local first, second = gradients(function(a, w, b) return (pg.batch_norm(a, nil, nil, w, b, {training = true})) end, x, mean, var)
    t.check(all_zero(first) and all_zero(second))
    local norm = pg.nn.BatchNorm{in_channels = 3}
    norm:initialize()
    norm:hybridize()
    pg.record(function() return norm(x) end)
    t.check(norm.running_mean:equal(pg.zeros(3)) and norm.running_var:equal(pg.ones(3)))
  end
end)

t.test("gradients of orders 1 and 2 without dims or channels", function()
  for _, name in ipairs{"cummax", "cummin"} do
    local function f(x) return (pg[name](x, 1)) end
    for _, g in ipairs{f, pg.jit(f)} do
      local first, second = gradients(g, pg.tensor(3))
      t.check(first[1]:detach():item() == 6 and second[1]:item() == 24, name)
      first, second = gradients(g, pg.zeros(0))
      t.check(first[1].shape[1] == 0 and second[1].shape[1] == 0, name)
    end
  end
  for _, g in ipairs{pg.prelu, pg.jit(pg.prelu)} do
    local first, second = gradients(g, pg.zeros(2, 0, 3), pg.zeros(0))
    t.equal(first[1].shape, {2, 0, 3})
    t.equal(second[2].shape, {0})
    first, second = gradients(g, pg.zeros(0, 3), pg.ones(3))
    t.check(all_zero(first) and all_zero(second))
  end
end)

t.test("wholly masked rows of attention are 0 at every order", function()
  local mask = pg.tensor{{true, true, false}, {false, false, false}, {true, true, true}}
  for _, dtype in ipairs{"float32", "float64", "float16", "bfloat16"} do
    local q, k, v = pg.randn(1, 3, 4):to(dtype), pg.randn(1, 3, 4):to(dtype), pg.randn(1, 3, 4):to(dtype)
    local open = pg.zeros(3, 3):masked_fill(mask:logical_not(), -math.huge):to(dtype)
    for _, m in ipairs{mask, open} do
      local function f(...)
        local args = {...}
        return pg.scaled_dot_product_attention(args[1], args[2], args[3], m)
      end
      for _, g in ipairs{f, pg.jit(f)} do
        t.check(g(q, k, v)[{1, 2}]:equal(pg.zeros({4}, {dtype = dtype})), dtype)
        local first, second = gradients(g, q, k, v)
        for _, list in ipairs{first, second} do
          for _, x in ipairs(list) do t.check(x:detach():isfinite():all():item(), dtype) end
          t.check(all_zero{list[1][{1, 2}]}, dtype)
        end
      end
    end
  end
end)

t.test("ranges with elements that an integer dtype cannot hold", function()
  local function range(first, last, step, dtype) return pg.range(first, last, step, {dtype = dtype}) end
  local function between(first, last, n, dtype) return pg.linspace(first, last, n, {dtype = dtype}) end
  for _, case in ipairs{
    {range, 0, 200, 1, "int8", "range: bad argument 'stop' (expected elements that int8 can hold; the last is 200, got 200)"},
    {range, 0, 1000, 300, "uint8", "range: bad argument 'stop' (expected elements that uint8 can hold; the last is 900, got 1000)"},
    {range, 5, -1, -2, "uint8", "range: bad argument 'stop' (expected elements that uint8 can hold; the last is -1, got -1)"},
    {range, 0, 3, 1, "bool", "range: bad argument 'stop' (expected elements that bool can hold; the last is 3, got 3)"},
    {range, -1, 1, 1, "uint8", "range: bad argument 'start' (expected a number that uint8 can hold, got -1)"},
    {range, 0, 4e9, 1e9, "int32", "expected elements that int32 can hold; the last is 4000000000, got 4000000000)"},
    {range, 0, 1, 0.25, "int8", "range: bad argument 'step' (expected a whole number for int8, got 0.25)"},
    {between, 0, 300, 4, "uint8", "linspace: bad argument 'stop' (expected a number that uint8 can hold, got 300)"},
    {between, -1, 1, 3, "uint8", "linspace: bad argument 'start' (expected a number that uint8 can hold, got -1)"},
    {between, 0, nan, 3, "int64", "linspace: bad argument 'stop' (expected a number that int64 can hold, got"},
  } do
    local f, first, last, n, dtype, text = unpack(case)
    t.error_contains(function() return f(first, last, n, dtype) end, text)
    t.error_contains(function() return pg.jit(function() return f(first, last, n, dtype) end)() end, text)
  end
  t.equal(range(5, 0, -2, "uint8"):totable(), {5, 3, 1})
  t.equal(range(1, 300, 100, "uint8"):totable(), {1, 101, 201})
  t.equal(range(-128, 127, 255, "int8"):totable(), {-128, 127})
  t.equal(between(0, 255.5, 3, "uint8"):totable(), {0, 127, 255})
  t.equal(between(-128, 127, 2, "int8"):totable(), {-128, 127})
end)
