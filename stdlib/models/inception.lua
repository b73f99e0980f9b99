-- Inception v3, a family of pg.models. Szegedy et al., Rethinking the Inception architecture for computer vision, 2015.
local core = ...
local args = core.require("support.args")
local nn = core.require("nn")
local zoo = core.require("models.zoo")
local models = {}

-- A convolution {channels, kernel size, stride = 1, padding = 0} with its BatchNorm and relu.
local function convolution(c)
  return nn.HybridSequential{zoo.convolution(c[1], c[2], c[3] or 1, c[4] or 0), nn.BatchNorm{epsilon = 0.001}, zoo.relu()}
end

local pools = {avg = function() return nn.AvgPool2D(3, 1, 1) end, max = function() return nn.MaxPool2D(3, 2) end}

local block

-- A branch is a list of convolutions, of which the first item may be the name of a pooling and the last a list of branches.
local function branch(parts)
  local net = nn.HybridSequential()
  for _, part in ipairs(parts) do
    if pools[part] then net:add(pools[part]())
    elseif type(part[1]) == "table" then net:add(block(part))
    else net:add(convolution(part)) end
  end
  return net
end

function block(branches)
  local nets = {}
  for i, parts in ipairs(branches) do nets[i] = branch(parts) end
  return nn.HybridConcurrent(nets, {axis = 2})
end

local function wide(channels) return {channels, {1, 7}, 1, {0, 3}} end
local function tall(channels) return {channels, {7, 1}, 1, {3, 0}} end

-- The blocks have Gluon's letters.
local function A(c) return {{{64, 1}}, {{48, 1}, {64, 5, 1, 2}}, {{64, 1}, {96, 3, 1, 1}, {96, 3, 1, 1}}, {"avg", {c, 1}}} end
local function B() return {{{384, 3, 2}}, {{64, 1}, {96, 3, 1, 1}, {96, 3, 2}}, {"max"}} end

local function C(c)
  return {{{192, 1}}, {{c, 1}, wide(c), tall(192)}, {{c, 1}, tall(c), wide(c), tall(c), wide(192)}, {"avg", {192, 1}}}
end

local function D() return {{{192, 1}, {320, 3, 2}}, {{192, 1}, wide(192), tall(192), {192, 3, 2}}, {"max"}} end

local function E()
  local function split() return {{{384, {1, 3}, 1, {0, 1}}}, {{384, {3, 1}, 1, {1, 0}}}} end
  return {{{320, 1}}, {{384, 1}, split()}, {{448, 1}, {384, 3, 1, 1}, split()}, {"avg", {192, 1}}}
end

--- pg.models.Inception3({classes = 1000}) is the class of pg.models.inception_v3.
local Inception3 = zoo.Model:extend("Inception3")
models.Inception3 = Inception3

function Inception3:init(...)
  local o = args.read("Inception3", {}, {classes = 1000}, ...)
  local features = nn.HybridSequential{
    convolution{32, 3, 2}, convolution{32, 3}, convolution{64, 3, 1, 1}, nn.MaxPool2D(3, 2), convolution{80, 1},
    convolution{192, 3}, nn.MaxPool2D(3, 2),
  }
  for _, branches in ipairs{A(32), A(64), A(64), B(), C(128), C(160), C(160), C(192), D(), E(), E()} do
    features:add(block(branches))
  end
  features:add(nn.GlobalAvgPool2D(), nn.Dropout(0.5))
  self.features = features
  self.output = nn.Dense(zoo.classes("Inception3", o))
end

--- pg.models.inception_v3({classes = 1000}) -> Inception v3, without the second output for training, for images (batch, 3,
--- height, width) of at least 75 x 75. The last pooling is over whole channels, where Gluon's is over 8 x 8, the same for
--- images of 299 x 299. Szegedy et al., Rethinking the Inception architecture for computer vision, 2015.
--- Example: return #pg.models.inception_v3{classes = 10}.features
zoo.add(models, "inception_v3", Inception3)

return models
