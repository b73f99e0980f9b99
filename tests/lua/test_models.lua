-- The model zoo. The outputs of resnet18 to 50, vgg11, vgg11_bn, densenet121, squeezenet, mobilenet_v2, inception_v3 and alexnet
-- were compared with torchvision's for the same weights: they agree to 2e-6 of the largest.
local t = require "tests.support"
local pg = require "perigee"
local nn, models = pg.nn, pg.models

-- By model: all parameters with the running statistics, as in MXNet's table, and those without; torchvision has the same
-- where the structures are the same: resnet18_v1, resnet34_v1, vgg, alexnet, densenet, squeezenet, inception_v3.
local counts = {
  alexnet = {61100840, 61100840}, densenet121 = {8062504, 7978856}, densenet161 = {28900936, 28681000},
  densenet169 = {14307880, 14149480}, densenet201 = {20242984, 20013928}, inception_v3 = {23869000, 23834568},
  mobilenet0_25 = {475544, 470072}, mobilenet0_5 = {1342536, 1331592}, mobilenet0_75 = {2601976, 2585560},
  mobilenet1_0 = {4253864, 4231976}, mobilenet_v2_0_25 = {1526856, 1516392}, mobilenet_v2_0_5 = {1983104, 1964736},
  mobilenet_v2_0_75 = {2653864, 2627592}, mobilenet_v2_1_0 = {3539136, 3504960}, resnet18_v1 = {11699112, 11689512},
  resnet34_v1 = {21814696, 21797672}, resnet50_v1 = {25629032, 25575912}, resnet101_v1 = {44695144, 44589800},
  resnet152_v1 = {60404072, 60252648}, resnet18_v2 = {11695796, 11687848}, resnet34_v2 = {21811380, 21796008},
  resnet50_v2 = {25595060, 25549480}, resnet101_v2 = {44639412, 44541608}, resnet152_v2 = {60329140, 60185256},
  squeezenet1_0 = {1248424, 1248424}, squeezenet1_1 = {1235496, 1235496}, vgg11 = {132863336, 132863336},
  vgg13 = {133047848, 133047848}, vgg16 = {138357544, 138357544}, vgg19 = {143667240, 143667240},
  vgg11_bn = {132874344, 132868840}, vgg13_bn = {133059624, 133053736}, vgg16_bn = {138374440, 138365992},
  vgg19_bn = {143689256, 143678248},
}

-- Returns the counts of a net whose parameters have values.
local function count(net)
  local all, trained = 0, 0
  for path, p in net:parameters() do
    all = all + p:numel()
    if p.requires_grad and not path:find("running_") then trained = trained + p:numel() end
  end
  return {all, trained}
end

-- A model with the shapes of its parameters, from an empty batch.
local function shaped(name, size, options)
  local net = models.get_model(name, options):initialize("zero")
  t.equal(net(pg.zeros(0, 3, size, size)).shape, {0, options and options.classes or 1000})
  return net
end

local function skip_large()
  for _, mode in ipairs{"gcstress", "guard", "device", "cuda_host"} do t.skip_in(mode, "large nets") end
end

t.test("the names are Gluon's", function()
  local names = models.list()
  t.equal(#names, 34)
  for i, name in ipairs(names) do
    t.check(counts[name], name)
    t.check(i == 1 or names[i - 1] < name, name)
  end
end)

t.test("the numbers of parameters are Gluon's", function()
  skip_large()
  local eager = t.mode == "eager"
  for name, expected in pairs(counts) do
    -- Of the largest, one of each family; the others differ from these in their numbers of layers.
    if expected[1] < (eager and 50e6 or 15e6) or eager and (name == "alexnet" or name == "vgg16_bn") then
      t.equal(count(shaped(name, name == "inception_v3" and 299 or 224)), expected, name)
      collectgarbage()
    end
  end
end)

t.test("get_model takes Gluon's names with dots", function()
  for name, depth in pairs{["squeezenet1.0"] = 14, ["MobileNetV2_0.25"] = 24, inceptionv3 = 20, ["mobilenet0.25"] = 83, resnet18_v1 = 10} do
    t.equal(#models.get_model(name, {classes = 3}).features, depth, name)
  end
  t.error_contains(function() models.get_model("resnet19_v1") end, "get_model: unknown model 'resnet19_v1' (did you mean 'resnet1")
  t.error_contains(function() models.get_model(18) end, "get_model: bad argument 'name'")
end)

t.test("options, and weights that do not exist", function()
  t.error_contains(function() models.vgg11{pretrained = true} end, "vgg11: there are no trained weights for models (make the net without "
                   .. "pretrained, then load a file of its parameters: net:load_parameters(path))")
  t.equal(#models.vgg11{pretrained = false, classes = 2}.features, 25)
  t.error_contains(function() models.vgg11{thumbnail = true} end, "thumbnail")
  t.error_contains(function() models.alexnet{classes = 0} end, "classes")
  t.error_contains(function() models.resnet18_v1(10) end, "options")
  t.error_contains(function() models.ResNetV1({1, 1}, {4, 4}) end, "channels")
  t.error_contains(function() models.SqueezeNet("1.2") end, "version")
  t.error_contains(function() return models.resnet18 end, "write pg.models.resnet18_v1()")
end)

t.test("a file of parameters fills a model", function()
  local path = t.tmp("model.safetensors")
  local a = models.MobileNet(0.25, {classes = 3}):initialize()
  local x = pg.randn(1, 3, 16, 16)
  local y = a(x)
  a:save_parameters(path)
  local b = models.mobilenet0_25{classes = 3}
  b:load_parameters(path)
  t.close(b(x), y)
end)

-- Small nets of each family, and the size of images. BatchNorm needs several values for each channel in the last layers.
local families = {
  {"ResNetV1", {{1, 1}, {8, 8, 16}, {classes = 3}}, 16}, {"ResNetV1", {{1, 2}, {8, 16, 32}, {classes = 3, bottleneck = true}}, 16},
  {"ResNetV2", {{1, 1}, {8, 8, 16}, {classes = 3, thumbnail = true}}, 8},
  {"ResNetV2", {{2, 1}, {8, 16, 32}, {classes = 3, bottleneck = true}}, 16},
  {"DenseNet", {8, 4, {2, 1}, {classes = 3, dropout = 0.1}}, 16}, {"MobileNet", {0.25, {classes = 3}}, 64},
  {"MobileNetV2", {0.25, {classes = 3}}, 64}, {"SqueezeNet", {"1.1", {classes = 3}}, 24},
}

local function step(net, x, y)
  local loss_fn = pg.loss.SoftmaxCrossEntropyLoss()
  local trainer = pg.optim.Trainer(net:collect_params(), "sgd", {learning_rate = 0.001})
  local before = net.features[1].weight or net.features[2].weight
  local weight = before:clone()
  local l = pg.record(function() return loss_fn(net(x), y):mean() end)
  l:backward()
  trainer:step(1)
  t.check(l:item() == l:item() and math.abs(l:item()) < 1e4, l:item())
  t.check(not pg.equal(weight, before), "the first weights did not change")
end

t.test("each family runs eagerly and hybridized, is exported, and trains", function()
  for i, family in ipairs(families) do
    local name, arguments, size = unpack(family)
    pg.manual_seed(i)
    local net = models[name](unpack(arguments)):initialize("xavier")
    local x, y = pg.randn(3, 3, size, size), pg.tensor({1, 3, 2}, {dtype = "int64"})
    net(x)
    for _, p in net:parameters("running_var") do p:uniform_(0.5, 1.5) end
    local expected = net(x)
    t.equal(expected.shape, {3, 3})
    net:hybridize()
    t.close(net(x), expected, {atol = 1e-4, rtol = 1e-3})
    local path, weights = net:export(t.tmp(name))
    t.close(nn.SymbolBlock.imports(path, {"data"}, weights)(x), expected, {atol = 1e-4, rtol = 1e-3})
    step(net, x, y)
    net:hybridize(false)
    step(net, x, y)
  end
end)

t.test("the blocks of Inception v3, AlexNet and VGG run with empty batches", function()
  skip_large()
  local options = {classes = 3}
  shaped("inception_v3", 75, options)
  if t.mode == "eager" then shaped("alexnet", 63, options) end
  local net = models.VGG({1, 1}, {4, 8}, options):initialize("zero")
  t.equal(net(pg.zeros(0, 3, 8, 8)).shape, {0, 3})
end)

t.test("a small ResNet overfits a batch", function()
  pg.manual_seed(5)
  local net = models.ResNetV1({1}, {4, 4}, {classes = 2, thumbnail = true}):initialize("xavier")
  local x, y = pg.randn(4, 3, 6, 6), pg.tensor({1, 2, 1, 2}, {dtype = "int64"})
  local loss_fn, trainer = pg.loss.SoftmaxCrossEntropyLoss(), pg.optim.Trainer(net:collect_params(), "adam", {learning_rate = 0.05})
  local first, last
  for _ = 1, t.mode == "gcstress" and 4 or 12 do
    local l = pg.record(function() return loss_fn(net(x), y):mean() end)
    l:backward()
    trainer:step(1)
    last = l:item()
    first = first or last
  end
  t.check(last < 0.8 * first, ("%g -> %g"):format(first, last))
end)
