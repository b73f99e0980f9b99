-- AlexNet, a family of pg.models. Krizhevsky, One weird trick for parallelizing convolutional neural networks, 2014.
local core = ...
local args = core.require("support.args")
local nn = core.require("nn")
local zoo = core.require("models.zoo")
local models = {}

local function convolution(channels, kernel, stride, padding)
  return nn.Conv2D(channels, kernel, stride, padding, {activation = "relu"})
end

--- pg.models.AlexNet({classes = 1000}) is the class of pg.models.alexnet.
local AlexNet = zoo.Model:extend("AlexNet")
models.AlexNet = AlexNet

function AlexNet:init(...)
  local o = args.read("AlexNet", {}, {classes = 1000}, ...)
  self.features = nn.HybridSequential{
    convolution(64, 11, 4, 2), nn.MaxPool2D(3, 2),
    convolution(192, 5, 1, 2), nn.MaxPool2D(3, 2),
    convolution(384, 3, 1, 1), convolution(256, 3, 1, 1), convolution(256, 3, 1, 1), nn.MaxPool2D(3, 2),
    nn.Flatten(),
    nn.Dense(4096, {activation = "relu"}), nn.Dropout(0.5), nn.Dense(4096, {activation = "relu"}), nn.Dropout(0.5),
  }
  self.output = nn.Dense(zoo.classes("AlexNet", o))
end

--- pg.models.alexnet({classes = 1000}) -> AlexNet with random weights after initialize(). Images are (batch, 3, height, width),
--- of at least 63 x 63; the first call fixes the size. Krizhevsky, One weird trick for parallelizing convolutional neural
--- networks, 2014.
--- Example: local net = pg.models.alexnet{classes = 10}:initialize()
--- return net(pg.ones(1, 3, 63, 63)).shape
zoo.add(models, "alexnet", AlexNet)

return models
