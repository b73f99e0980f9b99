-- DenseNet, a family of pg.models. Huang et al., Densely connected convolutional networks, 2016.
local core = ...
local args = core.require("support.args")
local nn = core.require("nn")
local zoo = core.require("models.zoo")
local convolution, relu = zoo.convolution, zoo.relu
local models = {}

-- The input, and after its channels those that the layer makes of it.
local function dense_layer(growth, bottleneck, dropout)
  local made = nn.HybridSequential{
    nn.BatchNorm(), relu(), convolution(bottleneck * growth, 1, 1, 0), nn.BatchNorm(), relu(), convolution(growth, 3, 1, 1),
  }
  if dropout > 0 then made:add(nn.Dropout(dropout)) end
  return nn.HybridConcurrent({nn.Identity(), made}, {axis = 2})
end

local function dense_block(count, ...)
  local block = nn.HybridSequential()
  for _ = 1, count do block:add(dense_layer(...)) end
  return block
end

local function transition(channels)
  return nn.HybridSequential{nn.BatchNorm(), relu(), convolution(channels, 1, 1, 0), nn.AvgPool2D(2, 2)}
end

--- pg.models.DenseNet(num_init_features, growth_rate, block_config, {bn_size = 4, dropout = 0, classes = 1000}) is the class
--- of the DenseNets: the channels of the first convolution, those that each layer adds, and the number of layers of each
--- block.
--- Example: local net = pg.models.DenseNet(8, 4, {2, 2}, {classes = 10}):initialize()
--- return net(pg.ones(1, 3, 32, 32)).shape
local DenseNet = zoo.Model:extend("DenseNet")
models.DenseNet = DenseNet

local names = {"num_init_features", "growth_rate", "block_config", "bn_size", "dropout", "classes"}
local spec = {
  num_init_features = args.required, growth_rate = args.required, block_config = args.required, bn_size = 4, dropout = 0,
  classes = 1000,
}

function DenseNet:init(...)
  local o = args.read("DenseNet", names, spec, ...)
  local channels, growth = o.num_init_features, o.growth_rate
  local bottleneck = args.count("DenseNet", "bn_size", o.bn_size, 1)
  local dropout = args.number("DenseNet", "dropout", o.dropout, 0, 1)
  local features = nn.HybridSequential{convolution(channels, 7, 2, 3), nn.BatchNorm(), relu(), nn.MaxPool2D(3, 2, 1)}
  for i, count in ipairs(o.block_config) do
    features:add(dense_block(count, growth, bottleneck, dropout))
    channels = channels + count * growth
    if i < #o.block_config then
      channels = math.floor(channels / 2)
      features:add(transition(channels))
    end
  end
  features:add(nn.BatchNorm(), relu(), nn.GlobalAvgPool2D(), nn.Flatten())
  self.features = features
  self.output = nn.Dense(zoo.classes("DenseNet", o))
end

local depths = {
  [121] = {64, 32, {6, 12, 24, 16}}, [161] = {96, 48, {6, 12, 36, 24}}, [169] = {64, 32, {6, 12, 32, 32}},
  [201] = {64, 32, {6, 12, 48, 32}},
}

--- pg.models.densenet121, pg.models.densenet161, pg.models.densenet169, pg.models.densenet201({classes = 1000, bn_size = 4,
--- dropout = 0}) -> a DenseNet for images (batch, 3, height, width) of at least 29 x 29. The last pooling is over whole
--- channels, where Gluon's is over 7 x 7, the same for images of 224 x 224. Huang et al., Densely connected convolutional
--- networks, 2016.
--- Example: return #pg.models.densenet121{classes = 10}.features
for depth, settings in pairs(depths) do
  zoo.add(models, "densenet" .. depth, function(o) return DenseNet(settings[1], settings[2], settings[3], o) end, {bn_size = 4, dropout = 0})
end

return models
