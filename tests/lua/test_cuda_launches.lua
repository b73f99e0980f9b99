-- How many launches a step of a loop is on the CUDA device: kernels, products, copies and fills. Only the fake driver
-- counts them.
local t = require "tests.support"
local pg = require "perigee"

if t.device ~= "cuda" then return end
local fake = require "tests.cuda.fake"
if not fake then return end

local function launched()
  local count = 0
  for _, name in ipairs{"cuLaunchKernel", "cublasLtMatmul", "cuMemcpyDtoDAsync", "cuMemsetD8Async"} do
    count = count + fake.fake_calls(name)
  end
  return count
end

-- Launches of a step of a loop in f(x), x having a row per step. A plan is no program yet in its first run, so that all
-- of it is launched; the calls for 5 steps trace f and compute what it keeps.
local function of_a_step(f)
  local function run(steps)
    local x, before = pg.randn(steps, 3, 4), launched()
    f(x)
    return launched() - before
  end
  for _ = 1, 3 do run(5) end
  return (run(20) - run(10)) / 10
end

-- f(x) with the gradients of the parameters and a step of an optimizer.
local function training(net, f)
  local trainer = pg.optim.Trainer(net:collect_params(), "sgd", {learning_rate = 0.1})
  return pg.jit(function(x)
    local loss = pg.record(function() return f(x):sum() end)
    loss:backward()
    trainer:step(1)
    return loss
  end)
end

local function check(name, net, f, forward, train)
  t.test("launches of a step of " .. name, function()
    t.equal({of_a_step(pg.jit(f)), of_a_step(training(net, f))}, {forward, train})
  end)
end

-- A product and a fused body forward, and as many for the gradients.
for _, kind in ipairs{"LSTM", "GRU", "RNN"} do
  local layer = pg.nn.rnn[kind](8, {input_size = 4}):initialize("xavier")
  check(kind, layer, function(x) return layer(x) end, 2, 4)
  local cell = pg.nn.rnn[kind .. "Cell"](8, {input_size = 4}):initialize("xavier")
  check(kind .. "Cell", cell, function(x) return (cell:unroll(nil, x, {layout = "TNC"})) end, 2, 4)
end

-- Launches of the jitted f, whose results are those of the CPU.
local function launches(f, ...)
  local on_cpu, jitted = {}, pg.jit(f)
  for i, x in ipairs{...} do on_cpu[i] = x:to("cpu") end
  local expected = {f(unpack(on_cpu))}
  jitted(...)
  local before = launched()
  local got = {jitted(...)}
  local count = launched() - before
  for k = 1, #expected do
    local half = expected[k].dtype == "float16"
    t.close(got[k]:to("cpu"), expected[k], {rtol = half and 4e-3 or 1e-5, atol = half and 4e-3 or 1e-6})
  end
  return count
end

local function numbers(...)
  local shape, n = {...}, 1
  for _, s in ipairs(shape) do n = n * s end
  return (pg.range(1, n) * 0.37):sin():reshape(shape)
end

t.test("slices of a pointwise value are computed with what reads them", function()
  local x, y, bias = numbers(3, 8), numbers(3, 8) * 2, numbers(8)
  for _, dtype in ipairs{"float32", "float16", "float64"} do
    local a, b, c = x:to(dtype), y:to(dtype), bias:to(dtype)
    t.equal(launches(function(p, q, r)
      local sum = (p * 2 + q + r):tanh()
      local u, v = unpack(sum:chunk(2, 2))
      return u * v:sigmoid()
    end, a, b, c), 1)
    t.equal(launches(function(p, q, r)
      local sum = p + q * r
      return sum:narrow(2, 1, 3):exp() * sum:narrow(2, 4, 3) + q:narrow(2, 8, 1)
    end, a, b, c), 1)
  end
  local columns, rows = numbers(3, 1), numbers(1, 8)
  t.equal(launches(function(p, q)
    local sum = p + q
    return sum:select(1, 2) * sum:select(1, 3)
  end, columns, rows), 1)
end)

t.test("a value that others read too, or whose slices overlap or broadcast, is computed as a whole", function()
  local x, y = numbers(3, 8), numbers(3, 8) * 2
  t.equal(launches(function(p, q)
    local sum = p + q
    return sum:narrow(2, 1, 4):exp() * sum:narrow(2, 5, 4), sum
  end, x, y), 2)
  t.equal(launches(function(p, q)
    local sum = p + q
    return sum:narrow(2, 1, 6):exp() * sum:narrow(2, 3, 6)
  end, x, y), 2)
  t.equal(launches(function(p, q)  -- two that broadcast would need a launch each
    local sum = p + q
    return sum:narrow(2, 1, 6):exp() * sum:narrow(2, 7, 1) + sum:narrow(2, 8, 1)
  end, x, y), 2)
end)

t.test("a fused body writes its values into the parts of a join", function()
  local x, y = numbers(2, 3, 4), numbers(2, 3, 4) * 2
  for dim = 1, 3 do
    t.equal(launches(function(p, q) return pg.cat({p * q, (p + q):tanh(), q}, dim) end, x, y), 1)
    t.equal(launches(function(p, q) return pg.stack({p * q, p - q}, dim) end, x, y), 1)
    t.equal(launches(function(p, q)  -- a value in two joins, and by itself
      local sum = p + q
      return pg.cat({sum, p * q}, dim), pg.stack({p - q, sum}, dim), sum
    end, x:half(), y:half()), 1)
    t.equal(launches(function(p, q)
      local rotated = pg.cat({-p:narrow(3, 3, 2), p:narrow(3, 1, 2)}, 3)
      return p * q:cos() + rotated * q:sin()
    end, x, y), 2)
  end
  t.equal(launches(function(p, q) return pg.cat({p * 2, q:narrow(3, 1, 2)}, 3) end, x, y), 3, "of different sizes")
  t.equal(launches(function(p, q) return pg.cat({p * q, p + q}, 1):sum(1) end, x, y), 2)
end)

t.test("what is added to a product becomes part of it", function()
  local x, w, z = numbers(3, 4), numbers(4, 5), numbers(3, 5)
  for _, dtype in ipairs{"float32", "float64"} do
    local a, b, c = x:to(dtype), w:to(dtype), z:to(dtype)
    t.equal(launches(function(p, q, r) return r + p:matmul(q) end, a, b, c), 1)
    t.equal(launches(function(p, q, r) return p:linear(q:t()) + r end, a, b, c), 1)
    t.equal(launches(function(p, q, r) return p:matmul(q) + r end, a, b, c:t():contiguous():t()), 2, "an addend with gaps")
    t.equal(launches(function(p, q) return p:matmul(q) + (p * 2):matmul(q) end, a, b), 3)
    t.equal(launches(function(p, q, r) return pg.stack{p, p + 1}:linear(q:t()) + pg.stack{r, r + 1} end, a, b, c), 3)
    t.equal(launches(function(p, q, r) return pg.stack{p, p * 2}:matmul(q) + pg.stack{r, r} end, a, b, c), 3)
  end
  t.equal(launches(function(p, q, r) return (p:matmul(q) + r):tanh() end, x, w, z), 2, "fused with what follows")
  t.equal(launches(function(p, q, r) return p:matmul(q) + r end, x:half(), w:half(), z:half()), 2, "rounds twice")
end)
