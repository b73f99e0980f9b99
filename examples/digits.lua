-- Trains a small LeNet on the handwritten digits embedded in perigee, and saves its parameters.
--   perigee examples/digits.lua [--tiny] [--save FILE]
local pg = require "perigee"
local nn, loss, optim, data, metric = pg.nn, pg.loss, pg.optim, pg.data, pg.metric

local tiny, path = false, "digits.safetensors"
for i = 1, #arg do
  if arg[i] == "--tiny" then tiny = true end
  if arg[i] == "--save" then path = assert(arg[i + 1], "--save needs a file") end
end

pg.utils.seed_all(1)
local train, test = data.digits{train = true}, data.digits{train = false}
if tiny then train, test = train:take(64), test:take(32) end
local epochs, batch_size = tiny and 1 or 40, 32
local loader = data.DataLoader(train, {batch_size = batch_size, shuffle = true})

local net = nn.HybridSequential{
  nn.Conv2D(32, 3, {padding = 1}), nn.BatchNorm(), pg.relu,
  nn.Conv2D(32, 3, {padding = 1}), nn.BatchNorm(), pg.relu,
  nn.MaxPool2D(2),
  nn.Conv2D(64, 3, {padding = 1}), nn.BatchNorm(), pg.relu,
  nn.MaxPool2D(2),
  nn.Dense(128, {activation = "relu"}),
  nn.Dropout(0.5),
  nn.Dense(10),
}
net:initialize("xavier")
net:hybridize()

local loss_fn = loss.SoftmaxCrossEntropyLoss()
local steps = epochs * loader:len()
local trainer = optim.Trainer(net:collect_params(), "adam", {
  learning_rate = 0.002, lr_scheduler = optim.lr_scheduler.Cosine(steps + 1, {base_lr = 0.002, final_lr = 1e-5}),
})

-- Shifts the digits by a pixel up, down, left or right: the writers of the test set place them differently.
local function shift(x) return x:pad{1, 1, 1, 1}:narrow(3, math.random(3), 8):narrow(4, math.random(3), 8) end

local function accuracy()
  local hits = metric.Accuracy()
  for x, y in data.DataLoader(test, {batch_size = 120}):iter() do hits:update(y, net(x)) end
  local _, value = hits:get()
  return value
end

local start = os.clock()
local bar = pg.utils.progress(steps, "digits")
for epoch = 1, epochs do
  local mean = metric.Loss()
  for x, y in loader:iter() do
    local l = pg.record(function() return loss_fn(net(shift(x)), y) end)
    l:backward()
    trainer:step(x:size(1))
    mean:update(y, l)
    bar:step(string.format("epoch %d loss %.4f", epoch, select(2, mean:get())))
  end
end

print(string.format("test accuracy %.4f after %d epochs in %.1f s of processor time", accuracy(), epochs, os.clock() - start))
net:save_parameters(path)
print("parameters in " .. path)
