-- MobileNet of versions 1 and 2, a family of pg.models. Howard et al., MobileNets: efficient convolutional neural networks for mobile
-- vision applications, 2017, and Sandler et al., MobileNetV2: inverted residuals and linear bottlenecks, 2018.
local core = ...
local args = core.require("support.args")
local nn = core.require("nn")
local zoo = core.require("models.zoo")
local models = {}

-- Adds a convolution with its BatchNorm and activation, if one is named. With groups it is depthwise, of 3 x 3.
local function add(net, activation, channels, kernel, stride, groups)
  net:add(zoo.convolution(channels, kernel, stride, (kernel - 1) / 2, {groups = groups or 1}), nn.BatchNorm())
  if activation then net:add(nn.Activation(activation)) end
end

-- Reads (multiplier, {classes =}) and returns a function that scales numbers of channels, and the number of classes.
local function read(name, ...)
  local o = args.read(name, {"multiplier", "classes"}, {multiplier = 1, classes = 1000}, ...)
  local multiplier = args.number(name, "multiplier", o.multiplier, 0.05)
  return function(channels) return math.floor(channels * multiplier) end, zoo.classes(name, o), multiplier
end

--- pg.models.MobileNet(multiplier = 1, {classes = 1000}) is the class of the MobileNets of version 1, with multiplier times
--- the channels.
local MobileNet = zoo.Model:extend("MobileNet")
models.MobileNet = MobileNet

-- Channels after each depthwise and 1 x 1 convolution, and the stride of the first of them.
local pairs_v1 = {
  {64, 1}, {128, 2}, {128, 1}, {256, 2}, {256, 1}, {512, 2}, {512, 1}, {512, 1}, {512, 1}, {512, 1}, {512, 1}, {1024, 2}, {1024, 1},
}

function MobileNet:init(...)
  local scaled, classes = read("MobileNet", ...)
  local features, inputs = nn.HybridSequential(), scaled(32)
  add(features, "relu", inputs, 3, 2)
  for _, pair in ipairs(pairs_v1) do
    local channels = scaled(pair[1])
    add(features, "relu", inputs, 3, pair[2], inputs)
    add(features, "relu", channels, 1, 1)
    inputs = channels
  end
  features:add(nn.GlobalAvgPool2D(), nn.Flatten())
  self.features = features
  self.output = nn.Dense(classes)
end

-- 1 x 1 to `expansion` times the channels, depthwise 3 x 3, 1 x 1 without activation; plus x if shapes agree.
local Bottleneck = nn.HybridBlock:extend("LinearBottleneck")

function Bottleneck:init(inputs, channels, expansion, stride)
  local inner = inputs * expansion
  self._shortcut = stride == 1 and inputs == channels
  self.out = nn.HybridSequential()
  add(self.out, "relu6", inner, 1, 1)
  add(self.out, "relu6", inner, 3, stride, inner)
  add(self.out, nil, channels, 1, 1)
end

function Bottleneck:forward(x)
  local y = self.out(x)
  if self._shortcut then return y + x end
  return y
end

--- pg.models.MobileNetV2(multiplier = 1, {classes = 1000}) is the class of the MobileNets of version 2, with multiplier times
--- the channels.
local MobileNetV2 = zoo.Model:extend("MobileNetV2")
models.MobileNetV2 = MobileNetV2

-- Expansion, channels, number of blocks, stride of the first.
local stages_v2 = {{1, 16, 1, 1}, {6, 24, 2, 2}, {6, 32, 3, 2}, {6, 64, 4, 2}, {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}}

function MobileNetV2:init(...)
  local scaled, classes, multiplier = read("MobileNetV2", ...)
  local features, inputs = nn.HybridSequential(), scaled(32)
  add(features, "relu6", inputs, 3, 2)
  for _, stage in ipairs(stages_v2) do
    local channels = scaled(stage[2])
    for i = 1, stage[3] do
      features:add(Bottleneck(inputs, channels, stage[1], i == 1 and stage[4] or 1))
      inputs = channels
    end
  end
  add(features, "relu6", multiplier > 1 and scaled(1280) or 1280, 1, 1)
  features:add(nn.GlobalAvgPool2D())
  self.features = features
  self.output = nn.HybridSequential{zoo.convolution(classes, 1, 1, 0), nn.Flatten()}
end

--- pg.models.mobilenet1_0, pg.models.mobilenet0_75, pg.models.mobilenet0_5, pg.models.mobilenet0_25, pg.models.mobilenet_v2_1_0,
--- pg.models.mobilenet_v2_0_75, pg.models.mobilenet_v2_0_5, pg.models.mobilenet_v2_0_25({classes = 1000}) -> a MobileNet of
--- version 1 or 2 for images (batch, 3, height, width) of any size. The last number multiplies the channels. As in Gluon,
--- the first block of version 2 has its convolution of 1 x 1 although it expands nothing, and the output has no bias. Howard
--- et al., MobileNets, 2017, and Sandler et al., MobileNetV2, 2018.
--- Example: local net = pg.models.mobilenet0_25{classes = 10}:initialize()
--- return net(pg.ones(1, 3, 32, 32)).shape
for prefix, Class in pairs{mobilenet = MobileNet, mobilenet_v2_ = MobileNetV2} do
  for suffix, multiplier in pairs{["1_0"] = 1, ["0_75"] = 0.75, ["0_5"] = 0.5, ["0_25"] = 0.25} do
    zoo.add(models, prefix .. suffix, function(o) return Class(multiplier, o) end)
  end
end

return models
