-- How model-v1 was made, by the first program that wrote format version 1: build/perigee tests/golden/model-v1.lua FOLDER.
-- The files stay as they are for ever; tests/graph/test_model_file.cpp and tests/lua/test_export.lua load and run them.
local pg = require "perigee"
local nn = pg.nn
local folder = assert((...), "a folder to write to")

local Golden = nn.HybridBlock:extend("Golden")
function Golden:init()
  self.cell = nn.Dense(3, {in_units = 5})
  self.norm = nn.BatchNorm{in_channels = 3}
  self.drop = nn.Dropout(0.5)
  self.count = pg.zeros(1)
  self.scale = pg.tensor{1, 2, 3}
end
function Golden:forward(x, states)
  self.count:add_(1)
  local h = self.cell(pg.cat({x, states.h}, 2)):tanh()
  return self.drop(self.norm(h) * self.scale[{{1, -1}}]) * self.count, {h = h}
end

pg.manual_seed(11)
local net = Golden()
net:initialize()
local x, h = pg.randn(2, 2), pg.randn(2, 3)
net(x, {h = h})
net.count:zero_()
net.norm.running_mean:copy_(pg.tensor{0.1, 0.2, 0.3})
net:export(folder .. "/model-v1")
local y1, s1 = net(x, {h = h})
local y2, s2 = net(x, {h = h})
pg.save(folder .. "/model-v1-expected.safetensors", {x = x, h = h, y1 = y1, y2 = y2, h1 = s1.h, h2 = s2.h})
