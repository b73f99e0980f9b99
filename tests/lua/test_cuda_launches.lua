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

-- Of a layer and of a cell: launches forward, and with the gradients.
local counts = {LSTM = {3, 6, 3, 8}, GRU = {2, 7, 2, 7}, RNN = {2, 4, 2, 6}}

for kind, count in pairs(counts) do
  local layer = pg.nn.rnn[kind](8, {input_size = 4}):initialize("xavier")
  check(kind, layer, function(x) return layer(x) end, count[1], count[2])
  local cell = pg.nn.rnn[kind .. "Cell"](8, {input_size = 4}):initialize("xavier")
  check(kind .. "Cell", cell, function(x) return (cell:unroll(nil, x, {layout = "TNC"})) end, count[3], count[4])
end
