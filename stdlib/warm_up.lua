-- pg.warm_up: pays for first uses before they cost a frame.
local core = ...
local args = core.require("support.args")
local autograd = core.require("autograd")
local warmed_up = false

-- A network and one step of its training, with sizes for which kernels start threads and the libraries behind them.
local function train_once()
  local pg = core.pg
  local nn = pg.nn
  local net = nn.HybridSequential{
    nn.Conv2D(8, 3, {activation = "relu"}), nn.BatchNorm(), nn.MaxPool2D(2), nn.Flatten(), nn.Dense(64, {activation = "relu"}), nn.Dense(10),
  }
  net:initialize("xavier")
  local loss_fn = pg.loss.SoftmaxCrossEntropyLoss()
  local trainer = pg.optim.Trainer(net:collect_params(), "adam", {learning_rate = 1e-3})
  local x, y = pg.ones(32, 1, 28, 28), pg.ones(32, {dtype = "int64"})
  local function step(a, b)
    local l = pg.record(function() return loss_fn(net(a), b):mean() end)
    l:backward()
    trainer:step(1)
    return l
  end
  step(x, y)
  net(x)
  net:hybridize()
  net(x)
  local fast = pg.jit(step)
  fast(x, y)
  fast(x, y):item()
end

local function use_kernels()
  local pg = core.pg
  local x = pg.ones(256, 512)
  local y = (pg.ones(1000000) * 1.5 + 1):exp():sum()
  return (x:matmul(x:t()):softmax(2):sum() + pg.randn(1000):mean() + y):item()
end

-- See pg.warm_up in runtime.lua.
local function run(f, ...)
  if core.tracing() then core.fail("warm_up", "cannot run inside a traced function; call it when the program starts") end
  if f ~= nil then args.callable("warm_up", "f", f) end
  local rest = {n = select("#", ...), ...}
  local streams = core.random_streams()
  core.finally(function() streams:restore() end, autograd.pause, function()
    core.require("runtime").scope(function()
      if not warmed_up then
        use_kernels()
        train_once()
        warmed_up = true
      end
      for _ = 1, f ~= nil and 2 or 0 do f(unpack(rest, 1, rest.n)) end
    end)
  end, {train = false})
end

return {run = run}
