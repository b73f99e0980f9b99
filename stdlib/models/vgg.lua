-- VGG, a family of pg.models. Simonyan and Zisserman, Very deep convolutional networks for large-scale image recognition, 2014.
local core = ...
local args = core.require("support.args")
local nn = core.require("nn")
local zoo = core.require("models.zoo")
local initializer = core.require("initializer")
local models = {}

--- pg.models.VGG(layers, filters, {classes = 1000, batch_norm = false}) is the class of the VGG nets: for each block the
--- number of its convolutions and of their channels.
local VGG = zoo.Model:extend("VGG")
models.VGG = VGG

local function dense(units, activation)
  return nn.Dense(units, {activation = activation, weight_initializer = "normal", bias_initializer = "zero"})
end

function VGG:init(...)
  local spec = {layers = args.required, filters = args.required, classes = 1000, batch_norm = false}
  local o = args.read("VGG", {"layers", "filters"}, spec, ...)
  local weights = initializer.Xavier{rnd_type = "gaussian", factor_type = "out", magnitude = 2}
  local normed = args.boolean("VGG", "batch_norm", o.batch_norm)
  local features = nn.HybridSequential()
  for block, count in ipairs(o.layers) do
    for _ = 1, count do
      features:add(nn.Conv2D(o.filters[block], 3, 1, 1, {weight_initializer = weights, bias_initializer = "zero"}))
      if normed then features:add(nn.BatchNorm()) end
      features:add(zoo.relu())
    end
    features:add(nn.MaxPool2D(2, 2))
  end
  features:add(dense(4096, "relu"), nn.Dropout(0.5), dense(4096, "relu"), nn.Dropout(0.5))
  self.features = features
  self.output = dense(zoo.classes("VGG", o))
end

local layers = {[11] = {1, 1, 2, 2, 2}, [13] = {2, 2, 2, 2, 2}, [16] = {2, 2, 3, 3, 3}, [19] = {2, 2, 4, 4, 4}}

--- pg.models.vgg11, pg.models.vgg13, pg.models.vgg16, pg.models.vgg19, pg.models.vgg11_bn, pg.models.vgg13_bn,
--- pg.models.vgg16_bn, pg.models.vgg19_bn({classes = 1000}) -> a VGG net; those with _bn have a BatchNorm after each
--- convolution. Images are (batch, 3, height, width), of at least 32 x 32; the first call fixes the size. Simonyan and Zisserman,
--- Very deep convolutional networks for large-scale image recognition, 2014.
--- Example: return #pg.models.vgg11_bn{classes = 10}.features
for depth, counts in pairs(layers) do
  for suffix, batch_norm in pairs{[""] = false, _bn = true} do
    zoo.add(models, "vgg" .. depth .. suffix, function(o)
      return VGG(counts, {64, 128, 256, 512, 512}, {classes = o.classes, batch_norm = batch_norm})
    end)
  end
end

return models
