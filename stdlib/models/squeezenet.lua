-- SqueezeNet, a family of pg.models. Iandola et al., SqueezeNet: AlexNet-level accuracy with 50x fewer parameters, 2016.
local core = ...
local args = core.require("support.args")
local nn = core.require("nn")
local zoo = core.require("models.zoo")
local models = {}

local function convolution(channels, kernel, padding)
  return nn.HybridSequential{nn.Conv2D(channels, kernel, 1, padding), zoo.relu()}
end

-- Few channels, then many of two kernel sizes.
local function fire(squeeze)
  return nn.HybridSequential{
    convolution(squeeze, 1, 0), nn.HybridConcurrent({convolution(squeeze * 4, 1, 0), convolution(squeeze * 4, 3, 1)}, {axis = 2}),
  }
end

-- By version: the first convolution, then the channels of each fire; 0 is a pooling.
local versions = {
  ["1.0"] = {{96, 7}, {0, 16, 16, 32, 0, 32, 48, 48, 64, 0, 64}},
  ["1.1"] = {{64, 3}, {0, 16, 16, 0, 32, 32, 0, 48, 48, 64, 64}},
}

--- pg.models.SqueezeNet(version, {classes = 1000}) is the class of the SqueezeNets; version is "1.0" or "1.1".
local SqueezeNet = zoo.Model:extend("SqueezeNet")
models.SqueezeNet = SqueezeNet

function SqueezeNet:init(...)
  local o = args.read("SqueezeNet", {"version"}, {version = args.required, classes = 1000}, ...)
  local first, parts = unpack(versions[args.choice("SqueezeNet", "version", o.version, {"1.0", "1.1"})])
  local features = nn.HybridSequential{nn.Conv2D(first[1], first[2], 2), zoo.relu()}
  for _, squeeze in ipairs(parts) do
    features:add(squeeze == 0 and nn.MaxPool2D(3, 2, {ceil_mode = true}) or fire(squeeze))
  end
  features:add(nn.Dropout(0.5))
  self.features = features
  self.output = nn.HybridSequential{nn.Conv2D(zoo.classes("SqueezeNet", o), 1), zoo.relu(), nn.GlobalAvgPool2D(), nn.Flatten()}
end

--- pg.models.squeezenet1_0, pg.models.squeezenet1_1({classes = 1000}) -> a SqueezeNet for images (batch, 3, height, width) of
--- at least 21 x 21. The second has the same accuracy with less computation. The last pooling is over whole channels, where Gluon's is
--- over 13 x 13, the same for images of 224 x 224. Iandola et al., SqueezeNet: AlexNet-level accuracy with 50x fewer
--- parameters, 2016.
--- Example: local net = pg.models.squeezenet1_1{classes = 10}:initialize()
--- return net(pg.ones(1, 3, 32, 32)).shape
for version in pairs(versions) do
  zoo.add(models, "squeezenet" .. version:gsub("%.", "_"), function(o) return SqueezeNet(version, o) end)
end

return models
