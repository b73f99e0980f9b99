-- Random networks that are called, trained, changed and called again: hybridized and as a jitted step against plain Lua.
local t = require "tests.support"
local pg = require "perigee"
local nn = pg.nn

local random, pick, restart = require "tests.choices"(1)

local activations = {"relu", "tanh", "sigmoid", "softsign"}
local function maybe_activation() return random(2) == 1 and pick(activations) or nil end

local image_layers = {
  function() return nn.Conv2D(random(6), pick{1, 3}, {padding = 1, use_bias = random(2) == 1, activation = maybe_activation()}) end,
  function() return nn.Conv2D(4, 3, {strides = 2, padding = 1, use_bias = false}) end,
  function() return nn.BatchNorm{scale = random(3) > 1, center = random(3) > 1} end,
  function() return nn.Activation(pick(activations)) end,
  function() return nn.MaxPool2D(2, {strides = 1}) end,
  function() return nn.AvgPool2D(2, {strides = 1}) end,
  function() return nn.Dropout(0.2) end,
  function() return nn.block{inner = nn.Conv2D(5, 3, {padding = 1}), forward = function(self, x)
    local y = self.inner(x)
    return pg.cat({x, y:relu() + y}, 2)
  end} end,
}
local flat_layers = {
  function() return nn.Dense(random(9), {use_bias = random(2) == 1, activation = maybe_activation()}) end,
  function() return nn.BatchNorm() end,
  function() return nn.LayerNorm() end,
  function() return nn.Dropout(0.3) end,
  function() return nn.block{inner = nn.Dense(6), forward = function(self, x)
    local y = self.inner(x)
    return y / (y * y + 1) + x:mean{dim = 2, keepdim = true}
  end} end,
}

local function make_net(seed)
  restart(seed * 6151 % 2147483646 + 1)
  local net = nn.HybridSequential{}
  for _ = 1, random(5) do net:add(pick(image_layers)()) end
  net:add(pick{nn.Flatten, nn.GlobalAvgPool2D}(), nn.Flatten())
  for _ = 1, random(3) do net:add(pick(flat_layers)()) end
  net:add(nn.Dense(3))
  pg.manual_seed(seed)
  net:initialize("xavier")
  net(pg.randn(2, 2, 9, 9))
  return net
end

-- Performs the same actions for one seed. Each action adds its observable effects.
local function act(seed, way)
  local net = make_net(seed)
  local loss_fn = pg.loss.SoftmaxCrossEntropyLoss()
  local name, options = unpack(pick{{"sgd", {learning_rate = 0.05, momentum = 0.9}}, {"adam", {learning_rate = 0.01}}, {"sgd", {learning_rate = 0.1, wd = 0.01}}})
  local trainer = pg.optim.Trainer(net:collect_params(), name, options)
  local function step(x, y)
    local l = pg.record(function() return loss_fn(net(x), y):mean() end)
    l:backward()
    trainer:step(1)
    return l
  end
  if way ~= "eager" then
    net:hybridize(pick{{static_alloc = true}, {static_alloc = false}})
    if way == "jit" then step = pg.jit(step) end
  else
    random(2)
  end
  local seen = {}
  local function see(v) seen[#seen + 1] = v:detach():clone() end
  local function input() return pg.randn(pick{2, 3, 5}, 2, 9, 9) end
  local actions = {
    function() see(net(input())) end,
    function()
      local x = input()
      see(step(x, pg.randint(1, 3, {x:size(1)})))
    end,
    function()
      local x = input():attach_grad()
      pg.record(function() return net(x):square():sum() end, {train = random(2) == 1}):backward()
      see(x.grad)
    end,
    function()
      for _, p in net:parameters() do
        if p.grad_req ~= "null" then p:mul_(0.9) break end
      end
    end,
    function()
      local list = {}
      for _, p in net:parameters() do list[#list + 1] = p end
      local p = pick(list)
      if p.grad_req ~= "null" then p.grad_req = pick{"write", "write", "add"} end
      if p.grad_req == "add" then p.grad:zero_() end
    end,
    function()
      net[#net] = nn.Dense(3)
      net[#net]:initialize("xavier")
      pg.debug(net, input())
      trainer = pg.optim.Trainer(net:collect_params(), name, options)
      if way ~= "eager" then net:hybridize() end
    end,
  }
  local weights = {1, 1, 1, 1, 2, 2, 2, 2, 2, 3, 3, 4, 5, 6}
  for _ = 1, 12 do actions[pick(weights)]() end
  for _, p in net:parameters() do see(p) end
  return seen
end

local function compare(seed, way)
  local ok, e = pcall(function()
    local expected = act(seed, "eager")
    local got = act(seed, way)
    t.equal(#got, #expected)
    for i, v in ipairs(expected) do
      local size = v:numel() > 0 and v:abs():max():item() or 0
      t.close(got[i], v, {rtol = 5e-3, atol = 1e-5 + 1e-3 * size, what = "value " .. i})
    end
  end)
  if not ok then error(("net %d, %s: %s\n%s"):format(seed, way, e, tostring(make_net(seed))), 0) end
end

for _, way in ipairs{"hybrid", "jit"} do
  t.test("random nets, " .. way, function()
    for seed = 1, t.mode == "gcstress" and 3 or 25 do compare(seed, way) end
  end)
end

return compare
