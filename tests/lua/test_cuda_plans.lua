-- Plans on the CUDA device: fused bodies with reductions, accesses of several elements, epilogues of products, programs
-- that are patched.
local t = require "tests.support"
local pg = require "perigee"
if t.device ~= "cuda" then return end

local fake = require "tests.cuda.fake"  -- absent on a GPU
local function calls(name) return fake and fake.fake_calls(name) or 0 end
local function count(before, name, expected)
  if fake then t.equal(calls(name) - before, expected, name) end
end

-- Runs f of the tensors as plain Lua and as a program, twice. The bits must agree.
local function same(f, ...)
  local expected, jitted = {f(...)}, pg.jit(f)
  for _ = 1, 2 do
    local got = {jitted(...)}
    t.equal(#got, #expected)
    for i = 1, #got do
      t.equal(got[i].dtype, expected[i].dtype)
      t.equal(got[i]:totable(), expected[i]:totable())
    end
  end
end

local function numbers(dtype, ...)
  local shape, n = {...}, 1
  for _, s in ipairs(shape) do n = n * s end
  return ((pg.range(1, n) * 0.37):sin() * 3):reshape(shape):to(dtype)
end

t.test("a reduction at the end of a body gives the bits of the ops one by one", function()
  for _, dtype in ipairs{"float32", "float16"} do
    local x, bias = numbers(dtype, 3, 70), numbers(dtype, 70)
    same(function(a, b)
      local y = (a * b + 1):tanh()
      return y, y:sum(2), (a - b):mean({1, 2})
    end, x, bias)
    same(function(a, b) return (a * b):amax(2), (a + b):amin(2), (a * a):prod(2) end, x, bias)
  end
  local whole = pg.range(1, 60):reshape(2, 30):to("int32")
  same(function(a) return (a * 3 - 50):sum(2), (a * 2):prod({1, 2}), (a - 7):count_nonzero(2) end, whole)
  same(function(a) return (a:gt(4) * a:lt(50)):all(2), (a * 0):any({1, 2}) end, whole)
end)

t.test("a body with a reduction is one kernel", function()
  local x = numbers("float32", 40, 100)
  local f = pg.jit(function(a) return (a * 2 + 1):exp():sum(2) end)
  f(x)
  local launched = calls("cuLaunchKernel")
  f(x * 1)
  count(launched, "cuLaunchKernel", 2)
end)

t.test("a large reduction is cut into parts in a fixed order", function()
  local x = numbers("float32", 50000)
  same(function(a) return (a * 2 - 1):abs():sum() end, x)
  local f = pg.jit(function(a) return (a * a + a):mean() end)
  local first = f(x):item()
  for _ = 1, 3 do t.equal(f(x):item(), first) end
end)

t.test("elements are taken several at once where they are aligned", function()
  for _, dtype in ipairs{"float32", "float64", "bfloat16", "uint8"} do
    local all = pg.range(1, 103):to(dtype)
    for _, cut in ipairs{{1, 103}, {1, 100}, {2, 102}, {5, 103}, {9, 40}, {3, 3}} do
      local x, expected = all[{{cut[1], cut[2]}}], {}
      for i = cut[1], cut[2] do expected[#expected + 1] = i * 2 end
      t.equal((x + x):to("float64"):totable(), (pg.tensor(expected):to("float64"):to(dtype)):to("float64"):totable())
      t.equal(x:to("float64"):totable(), all:to("float64")[{{cut[1], cut[2]}}]:totable())
      t.equal(x:lt(20):sum():item(), math.max(0, math.min(19, cut[2]) - cut[1] + 1))
    end
  end
  local x = pg.range(1, 24):reshape(2, 12)
  local rows = x[{{}, {3, 10}}]  -- strides of 12, and 8 elements a row
  t.equal((rows * 10):totable(), pg.tensor{{30, 40, 50, 60, 70, 80, 90, 100}, {150, 160, 170, 180, 190, 200, 210, 220}}:totable())
  t.equal((rows + pg.range(1, 8)):select(1, 2):totable(), pg.tensor{16, 18, 20, 22, 24, 26, 28, 30}:totable())
  t.equal((pg.full({2, 12}, 2.5) * x:t():contiguous():t()):totable(), (x * 2.5):totable())
end)

t.test("products with activations", function()
  for _, dtype in ipairs{"float32", "float16", "float64"} do
    local x, w, b = numbers(dtype, 3, 5), numbers(dtype, 4, 5), numbers(dtype, 4)
    for _, name in ipairs{"relu", "sigmoid", "tanh", "gelu", "silu"} do
      for _, bias in ipairs{b, false} do
        local f = function(a) return pg[name](a:linear(w, bias or nil) * 1) end
        local plain, fused = f(x), pg.jit(function(a) return pg[name](a:linear(w, bias or nil)) end)(x)
        t.close(fused, plain, {rtol = dtype == "float16" and 2e-3 or 1e-6, atol = 1e-6})
      end
    end
    local smooth = pg.jit(function(a) return a:linear(w, b):gelu{approximate = "tanh"} end)
    t.close(smooth(x), x:linear(w, b):gelu{approximate = "tanh"},
            {rtol = dtype == "float16" and 2e-3 or 1e-6, atol = dtype == "float16" and 1e-3 or 1e-6})
  end
end)

-- A chain of steps that do not fuse, so that few of them read the input.
local function chain(x, w)
  for _ = 1, 6 do x = x:matmul(w):softmax(2) end
  return x
end

t.test("a program is made once, and patched where memory has moved", function()
  local w = numbers("float32", 4, 4)
  local f = pg.jit(function(x) return chain(x, w) end)
  local launches, made = calls("cuGraphLaunch"), calls("cuGraphInstantiateWithFlags")
  local kept = {}
  for i = 1, 6 do
    local x = numbers("float32", 3, 4) * i
    kept[i] = {x, f(x)}  -- all stay alive: each run has other memory
  end
  for _, pair in ipairs(kept) do t.equal(pair[2]:totable(), chain(pair[1], w):totable()) end
  count(launches, "cuGraphLaunch", 5)
  count(made, "cuGraphInstantiateWithFlags", 1)
end)

t.test("a program that cannot be patched is made anew", function()
  if not fake then t.skip("needs the fake driver") end
  local w = numbers("float32", 4, 4)
  local f = pg.jit(function(x) return chain(x, w) end)
  local made, kept = calls("cuGraphInstantiateWithFlags"), {}
  for i = 1, 4 do
    local x = numbers("float32", 3, 4) * i
    if i == 4 then fake.fake_fail("cuGraphExecChildGraphNodeSetParams", 1, 910, 1) end
    kept[i] = {x, f(x)}
    t.equal(kept[i][2]:totable(), chain(x, w):totable())
  end
  count(made, "cuGraphInstantiateWithFlags", 2)
end)

t.test("what waits for the host is between two programs", function()
  local w = numbers("float32", 4, 4)
  local f = pg.jit(function(x)
    return chain(chain(x, w):to("cpu"):to("cuda"), w)
  end)
  local launches = calls("cuGraphLaunch")
  local x = numbers("float32", 3, 4)
  local expected = chain(chain(x, w), w):totable()
  for _ = 1, 4 do t.equal(f(x):totable(), expected) end
  count(launches, "cuGraphLaunch", 6)
end)

t.test("dropout in a program draws other numbers each time", function()
  local w = numbers("float32", 4, 4)
  local function plain(x) return chain(x, w):dropout(0.5) end
  local function draws(f)
    pg.manual_seed(3)
    local out = {}
    local x = numbers("float32", 3, 4)
    for i = 1, 4 do out[i] = pg.train_mode(function() return f(x) end):totable() end
    return out
  end
  local got = draws(pg.jit(plain))
  t.equal(got, draws(plain))
  local zeros = {}
  for i = 3, 4 do zeros[#zeros + 1] = pg.tensor(got[i]):eq(0):to("uint8"):totable() end
  t.check(not pcall(t.equal, zeros[1], zeros[2]), "the same numbers were dropped twice")
end)

for _, case in ipairs{{"sgd", {learning_rate = 0.1}}, {"sgd", {learning_rate = 0.1, momentum = 0.9}},
                      {"adam", {learning_rate = 0.01, wd = 0.1}}, {"rmsprop", {learning_rate = 0.01}},
                      {"lamb", {learning_rate = 0.01}}} do
  local optimizer, options = case[1], case[2]
  local name = options.momentum and "sgd with momentum" or optimizer
  t.test("a step of training by " .. name .. " is one launch", function()
    local nn = pg.nn
    local function losses(jitted)
      pg.manual_seed(7)
      local net = nn.HybridSequential{
        nn.Conv2D(2, 3, {in_channels = 1}), nn.BatchNorm{in_channels = 2}, nn.Activation("relu"), nn.Flatten(),
        nn.Dropout(0.2), nn.Dense(3, {in_units = 8}),
      }
      net:initialize("xavier")
      net:to("cuda")
      local loss_fn = pg.loss.SoftmaxCrossEntropyLoss()
      local trainer = pg.optim.Trainer(net:collect_params(), optimizer, options)
      local function step(x, y)
        local l = pg.record(function() return loss_fn(net(x), y):mean() end)
        l:backward()
        trainer:step(1)
        return l
      end
      local f, out = jitted and pg.jit(step) or step, {}
      for i = 1, 6 do
        trainer:set_learning_rate(options.learning_rate / i)
        local x, y = numbers("float32", 4, 1, 4, 4) * i, pg.tensor({1, 3, 2, 1}, {dtype = "int64"}):to("cuda")
        local launched, launches = calls("cuLaunchKernel"), calls("cuGraphLaunch")
        local waits, copies = calls("cuStreamSynchronize"), calls("cuMemcpyHtoDAsync")
        local l = f(x, y)
        if jitted and i == 6 then
          count(launches, "cuGraphLaunch", 1)
          count(waits, "cuStreamSynchronize", 0)
          count(copies, "cuMemcpyHtoDAsync", 0)
          if fake then t.check(calls("cuLaunchKernel") - launched <= 8, "many kernels were captured again") end
        end
        out[i] = l:item()
      end
      return out
    end
    local plain, fast = losses(false), losses(true)
    for i = 1, #plain do t.close(fast[i], plain[i], {rtol = 1e-5}) end
  end)
end

t.test("a loop of known length is part of a program", function()
  local w, h = numbers("float32", 4, 4), numbers("float32", 2, 4)
  local function rnn(xs)
    local outs, last = pg.foreach(function(x, state)
      state = (x + state:matmul(w)):tanh()
      return state * 2, state
    end, xs, h)
    return chain(outs:reshape(10, 4), w), last
  end
  local f = pg.jit(rnn)
  for i = 1, 5 do
    local xs = numbers("float32", 5, 2, 4) / i
    local launches, waits = calls("cuGraphLaunch"), calls("cuStreamSynchronize")
    local outs, last = f(xs)
    count(launches, "cuGraphLaunch", i > 2 and 1 or 0)
    count(waits, "cuStreamSynchronize", 0)
    local expected, state = rnn(xs)
    t.equal(outs:totable(), expected:totable())
    t.equal(last:totable(), state:totable())
  end
  local g = pg.jit(function(x) return (pg.loop(6, function(i, s) return s * i + chain(s, w) end, x)) end)
  for i = 1, 3 do
    local x, expected = numbers("float32", 3, 4) * i
    expected = x
    for k = 1, 6 do expected = expected * k + chain(expected, w) end
    t.close(g(x), expected, {rtol = 1e-5})
  end
end)

t.test("branches and loops that look at values give what the ops give one by one", function()
  local w = numbers("float32", 4, 4)
  local function plain(x)
    local y = chain(x, w)
    y = pg.cond(y:sum():gt(2.9), function() return y * 2 end, function() return y - 1 end)
    local _, vars = pg.while_loop(function(s) return s:sum():lt(100) end, function(s) return s, {s * 2} end,
                                  {y:abs() + 1}, {max_iterations = 20})
    return chain(vars[1], w)
  end
  local f = pg.jit(plain)
  for i = 1, 4 do
    local x = numbers("float32", 3, 4) * i
    t.equal(f(x):totable(), plain(x):totable())
  end
end)
