-- ResNet of both versions, a family of pg.models. He et al., Deep residual learning for image recognition, 2015 (v1), and Identity
-- mappings in deep residual networks, 2016 (v2).
local core = ...
local args = core.require("support.args")
local nn = core.require("nn")
local zoo = core.require("models.zoo")
local relu = core.ops.relu
local models = {}

-- The convolutions of a block: channels, kernel size, stride, bias. In a bottleneck, Gluon's v1 has the stride in the first
-- convolution and biases in those of 1 x 1; v2 has the stride in the convolution of 3 x 3.
local function basic(channels, stride) return {{channels, 3, stride}, {channels, 3, 1}} end

local function bottleneck_v1(channels, stride)
  return {{channels / 4, 1, stride, true}, {channels / 4, 3, 1}, {channels, 1, 1, true}}
end

local function bottleneck_v2(channels, stride) return {{channels / 4, 1, 1}, {channels / 4, 3, stride}, {channels, 1, 1}} end

local function convolution(unit)
  return zoo.convolution(unit[1], unit[2], unit[3], (unit[2] - 1) / 2, {use_bias = unit[4] or false})
end

-- relu(body(x) + x), where a body is convolutions, each with a BatchNorm and all but the last with a relu.
local BlockV1 = nn.HybridBlock:extend("ResNetBlockV1")

function BlockV1:init(units, shortcut)
  self.body = nn.HybridSequential()
  for i, unit in ipairs(units) do
    self.body:add(convolution(unit), nn.BatchNorm())
    if i < #units then self.body:add(zoo.relu()) end
  end
  self.downsample = shortcut and nn.HybridSequential{convolution(shortcut), nn.BatchNorm()} or false
end

function BlockV1:forward(x)
  local shortcut = x
  if self.downsample then shortcut = self.downsample(x) end
  return relu(self.body(x) + shortcut)
end

-- body(x) + x, where a body is convolutions, each after a BatchNorm and a relu.
local BlockV2 = nn.HybridBlock:extend("ResNetBlockV2")

function BlockV2:init(units, shortcut)
  self._count = #units
  for i, unit in ipairs(units) do
    self["bn" .. i] = nn.BatchNorm()
    self["conv" .. i] = convolution(unit)
  end
  self.downsample = shortcut and convolution(shortcut) or false
end

function BlockV2:forward(x)
  local y = relu(self.bn1(x))
  local shortcut = x
  if self.downsample then shortcut = self.downsample(y) end
  y = self.conv1(y)
  for i = 2, self._count do y = self["conv" .. i](relu(self["bn" .. i](y))) end
  return y + shortcut
end

local versions = {
  {Block = BlockV1, bottleneck = bottleneck_v1},
  {Block = BlockV2, bottleneck = bottleneck_v2},
}

local function stage(version, units, count, inputs, channels, stride)
  local blocks = nn.HybridSequential()
  for i = 1, count do
    local step = i == 1 and stride or 1
    local resized = i == 1 and channels ~= inputs
    blocks:add(version.Block(units(channels, step), resized and {channels, 1, step}))
  end
  return blocks
end

local names = {"layers", "channels"}
local spec = {layers = args.required, channels = args.required, bottleneck = false, classes = 1000, thumbnail = false}

for v, version in ipairs(versions) do
  local name = "ResNetV" .. v

  --- pg.models.ResNetV1, pg.models.ResNetV2(layers, channels, {bottleneck = false, classes = 1000, thumbnail = false}) are the
  --- classes of the ResNets: for each stage the number of its blocks and their channels, with the channels of the first
  --- convolution before them. thumbnail begins with a convolution of 3 x 3 instead of 7 x 7 and pooling, for small images.
  --- Example: local net = pg.models.ResNetV2({1, 1}, {8, 8, 16}, {classes = 10, thumbnail = true})
  --- net:initialize()
  --- return net(pg.ones(2, 3, 8, 8)).shape
  local ResNet = zoo.Model:extend(name)
  models[name] = ResNet

  function ResNet:init(...)
    local o = args.read(name, names, spec, ...)
    local channels = o.channels
    if #channels ~= #o.layers + 1 then core.arg_error(name, "channels", #o.layers + 1 .. " numbers, one more than layers", channels) end
    local units = args.boolean(name, "bottleneck", o.bottleneck) and version.bottleneck or basic
    local features = nn.HybridSequential()
    if v == 2 then features:add(nn.BatchNorm{scale = false, center = false}) end
    if args.boolean(name, "thumbnail", o.thumbnail) then features:add(convolution{channels[1], 3, 1})
    else features:add(convolution{channels[1], 7, 2}, nn.BatchNorm(), zoo.relu(), nn.MaxPool2D(3, 2, 1)) end
    for i, count in ipairs(o.layers) do
      features:add(stage(version, units, count, channels[i], channels[i + 1], i == 1 and 1 or 2))
    end
    if v == 2 then features:add(nn.BatchNorm(), zoo.relu()) end
    features:add(nn.GlobalAvgPool2D(), nn.Flatten())
    self.features = features
    self.output = nn.Dense(zoo.classes(name, o), {in_units = channels[#channels]})
  end
end

local depths = {
  [18] = {2, 2, 2, 2}, [34] = {3, 4, 6, 3}, [50] = {3, 4, 6, 3}, [101] = {3, 4, 23, 3}, [152] = {3, 8, 36, 3},
}

--- pg.models.resnet18_v1, pg.models.resnet34_v1, pg.models.resnet50_v1, pg.models.resnet101_v1, pg.models.resnet152_v1,
--- pg.models.resnet18_v2, pg.models.resnet34_v2, pg.models.resnet50_v2, pg.models.resnet101_v2,
--- pg.models.resnet152_v2({classes = 1000, thumbnail = false}) -> a ResNet for images (batch, 3, height, width) of any size. As
--- in Gluon, the bottlenecks of v1 have their stride in the first convolution and biases in the convolutions of 1 x 1.
--- thumbnail begins with a convolution of 3 x 3, for small images. He et al., Deep residual learning for image recognition,
--- 2015, and Identity mappings in deep residual networks, 2016.
--- Example: local net = pg.models.resnet18_v1{classes = 10, thumbnail = true}:initialize()
--- return net(pg.ones(1, 3, 8, 8)).shape
for depth, layers in pairs(depths) do
  local deep = depth >= 50
  for v in ipairs(versions) do
    zoo.add(models, ("resnet%d_v%d"):format(depth, v), function(o)
      o.bottleneck = deep
      return models["ResNetV" .. v](layers, deep and {64, 256, 512, 1024, 2048} or {64, 64, 128, 256, 512}, o)
    end, {thumbnail = false})
  end
end

return models
