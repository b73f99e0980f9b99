-- Trains LeNet on the MNIST files in a folder (train-images-idx3-ubyte and so on, plain or .gz).
--   perigee examples/mnist.lua FOLDER [--tiny] [--epochs N]
local pg = require "perigee"
local nn, loss, optim, data, metric = pg.nn, pg.loss, pg.optim, pg.data, pg.metric

local root, tiny, epochs = arg[1], false, 2
if not root then
  io.stderr:write("usage: perigee examples/mnist.lua FOLDER [--tiny] [--epochs N]\n")
  os.exit(1)
end
for i = 2, #arg do
  if arg[i] == "--tiny" then tiny, epochs = true, 1 end
  if arg[i] == "--epochs" then epochs = assert(tonumber(arg[i + 1]), "--epochs needs a number") end
end

pg.utils.seed_all(1)
local train, test = data.vision.MNIST{root = root, train = not tiny}, data.vision.MNIST{root = root, train = false}
if tiny then train, test = train:take(128), test:take(100) end
local batch_size = 64
local loader = data.DataLoader(train, {batch_size = batch_size, shuffle = true})

local net = nn.HybridSequential{
  nn.Conv2D(20, 5, {activation = "relu"}),
  nn.MaxPool2D(2, 2),
  nn.Conv2D(50, 5, {activation = "relu"}),
  nn.MaxPool2D(2, 2),
  nn.Dense(128, {activation = "relu"}),
  nn.Dense(10),
}
net:initialize("xavier")
net:hybridize()

local loss_fn = loss.SoftmaxCrossEntropyLoss()
local trainer = optim.Trainer(net:collect_params(), "sgd", {learning_rate = 0.05, momentum = 0.9})

local function accuracy()
  local hits = metric.Accuracy()
  for x, y in data.DataLoader(test, {batch_size = 500}):iter() do hits:update(y, net(x)) end
  local _, value = hits:get()
  return value
end

for epoch = 1, epochs do
  local bar = pg.utils.progress(loader:len(), "epoch " .. epoch)
  local mean = metric.Loss()
  for x, y in loader:iter() do
    local l = pg.record(function() return loss_fn(net(x), y) end)
    l:backward()
    trainer:step(x:size(1))
    mean:update(y, l)
    bar:step(string.format("loss %.4f", select(2, mean:get())))
  end
  print(string.format("epoch %d: test accuracy %.4f", epoch, accuracy()))
  trainer:set_learning_rate(trainer:learning_rate() * 0.2)
end
