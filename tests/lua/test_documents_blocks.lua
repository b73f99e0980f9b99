-- What Gluon's documents and the issues of its users say of blocks that are hybridized: children, hooks, modes, shapes and
-- gradients are as eagerly.
local t = require "tests.support"
local pg = require "perigee"
local nn = pg.nn

t.test("every child must be hybrid, options are checked at once", function()
  local net = nn.HybridSequential{nn.Dense(2), nn.block{hybrid = false, forward = function(_, x) return x end}}
  t.error_contains(function() net:hybridize() end, "plain Block")
  local dense = nn.Dense(2)
  t.error_matches(function() dense:hybridize{static_aloc = true} end, "static_alloc")
  t.error_matches(function() dense:hybridize{static_alloc = 3} end, "static_alloc")
end)

t.test("a child added or replaced, a cast, hybridize again", function()
  local net = nn.HybridSequential{nn.Dense(3), nn.Dense(2)}
  net:initialize()
  net:hybridize()
  local x = pg.randn(2, 4)
  t.equal(net(x).shape, {2, 2})
  net:add(nn.Dense(5))
  net:initialize()
  t.equal(net(x).shape, {2, 5})
  t.close(net(x), pg.debug(net, x))
  net[2] = nn.Dense(7)
  net[3] = nn.Dense(1)
  net:initialize()
  t.equal(net(x).shape, {2, 1})
  t.close(net(x), pg.debug(net, x))
  net:to("float64")
  t.equal(net(x:to("float64")).dtype, "float64")
  net:hybridize()
  t.equal(net:cache_info().traces, 0)
  t.equal(net(x:to("float64")).shape, {2, 1})
end)

t.test("blocks in plain tables, a hundred children, shared parameters", function()
  local Net = nn.HybridBlock:extend("Net")
  function Net:init()
    self.layers = {}
    for i = 1, 100 do self.layers[i] = nn.Dense(4, {in_units = 4, activation = "tanh"}) end
    self.layers[50] = self.layers[1]
  end
  function Net:forward(x)
    for _, layer in ipairs(self.layers) do x = layer(x) + x end
    return x
  end
  local net = Net()
  net:initialize("xavier")
  local x = pg.randn(2, 4)
  local y = net(x)
  net:hybridize()
  for _ = 1, 2 do t.close(net(x), y, {rtol = 1e-4, atol = 1e-5}) end
  t.equal(net:cache_info().traces, 1)
end)

t.test("hooks of a hybridized block run, those of its children while tracing", function()
  local net = nn.HybridSequential{nn.Dense(2)}
  net:initialize()
  local outer = 0
  local handle = net:register_forward_hook(function() outer = outer + 1 end)
  net:hybridize()
  local x = pg.randn(2, 3)
  for _ = 1, 3 do net(x) end
  t.equal(outer, 3)
  handle:detach()
  net(x)
  t.equal(outer, 3)
end)

t.test("is_training is resolved at each call", function()
  local net = nn.HybridSequential{nn.Dense(64), nn.Dropout(0.5), nn.BatchNorm()}
  net:initialize()
  local x = pg.randn(16, 8)
  net(x)
  local quiet = net(x)
  net:hybridize()
  t.close(net(x), quiet, {rtol = 1e-4, atol = 1e-5})
  local mean = net[3].running_mean:clone()
  local y = pg.record(function() return net(x) end)
  t.check(not y:allclose(quiet))
  t.check(not net[3].running_mean:equal(mean), "the statistics follow")
  local zeros = pg.record(function() return net[2](pg.ones(1000)) end):eq(0):sum():item()
  t.check(zeros > 400 and zeros < 600)
  t.equal(net:cache_info().traces, 1)
  local flag = nn.block{forward = function(_, v) return pg.is_training() and v * 2 or v end}
  flag:hybridize()
  for _ = 1, 2 do
    t.equal(flag(pg.ones(1)), pg.ones(1))
    t.equal(pg.train_mode(function() return flag(pg.ones(1)) end), pg.full({1}, 2))
  end
end)

t.test("shapes that the first call fills in: the same initial values, the same random numbers after it", function()
  local seen = {}
  for i, active in ipairs{false, true} do
    pg.manual_seed(3)
    local net = nn.HybridSequential{nn.Dropout(0.3), nn.Dense(4), nn.Dropout(0.3), nn.Dense(2)}
    net:initialize("xavier")
    net:hybridize(active)
    local x = pg.randn(3, 5)
    seen[i] = {net(x), net[2].weight, net[4].weight, pg.rand(3)}
  end
  t.close(seen[2], seen[1])
end)

t.test("gradients of the second order through a hybridized block", function()
  local net = nn.HybridSequential{nn.Dense(4, {activation = "tanh"}), nn.Dense(1)}
  net:initialize("xavier")
  local function slopes(x)
    x:attach_grad()
    local y = pg.record(function()
      local g = pg.autograd.grad({net(x):sum()}, {x}, {create_graph = true})
      return (g[1] ^ 2):sum()
    end)
    y:backward()
    return x.grad
  end
  local x = pg.randn(3, 2)
  net(x)
  local expected = slopes(x:clone())
  net:hybridize()
  for _ = 1, 2 do t.close(slopes(x:clone()), expected, {rtol = 1e-4, atol = 1e-5}) end
end)

t.test("gradients of what is detached, cut off or not reached are as eagerly", function()
  local programs = {
    function(x, b) return x:floor():sum() + b:sum() * 0 end, function(x, b) return x:detach():sum() + b:sum() end,
    function(x, b) return (x:gt(0):to("float32") * b):sum() end, function(x) return x:floor():sum() end, function(_, b) return b:sum() end,
  }
  for _, f in ipairs(programs) do
    local seen = {}
    for i, g in ipairs{f, pg.jit(f)} do
      local x, b = pg.ones(2):attach_grad(), pg.ones(2):attach_grad()
      x.grad:fill_(7)
      b.grad:fill_(7)
      pg.record(function() return g(x, b) end):backward()
      seen[i] = {x.grad, b.grad}
    end
    t.equal(seen[2], seen[1])
  end
end)

t.test("what was not hybridizable in the library: CosineEmbeddingLoss, Normalize in a net", function()
  local L = pg.loss
  local x, y, label = pg.randn(3, 4), pg.randn(3, 4), pg.tensor{1, -1, 1}
  for _, case in ipairs{{L.CosineEmbeddingLoss(), {x, y, label}}, {L.TripletLoss(), {x, y, x + 1}},
                        {L.PoissonNLLLoss(), {x, y:abs()}}, {L.HuberLoss(), {x, y}}} do
    local block, inputs = case[1], case[2]
    local expected = block(unpack(inputs))
    block:hybridize()
    for _ = 1, 2 do t.close(block(unpack(inputs)), expected, {rtol = 1e-4, atol = 1e-5}) end
  end
  local normalize = nn.block{
    mean = {0.4, 0.5, 0.6}, std = {0.2, 0.3, 0.1},
    forward = function(self, v) return (v - pg.tensor(self.mean):reshape{3, 1, 1}) / pg.tensor(self.std):reshape{3, 1, 1} end,
  }
  local net = nn.HybridSequential{normalize, nn.Flatten()}
  local image = pg.rand(3, 4, 4)
  local expected = net(image)
  net:hybridize()
  t.close(net(image), expected)
end)

t.test("six hundred input shapes: one trace, bounded specializations", function()
  t.skip_in("gcstress", "six hundred plans")
  local net = nn.HybridSequential{nn.Dense(8, {activation = "relu"}), nn.Dense(2)}
  net:initialize()
  net:hybridize()
  for n = 1, 600 do t.equal(net(pg.ones(n, 4)).shape, {n, 2}) end
  local info = net:cache_info()
  t.equal(info.traces, 1)
  t.equal(info.specializations, 512)
end)

t.test("input shapes that come in turns keep their plans, most of them where there are too many", function()
  t.skip_in("gcstress", "hundreds of plans")
  local function planned(shapes)
    local net = nn.HybridSequential{nn.Dense(8, {activation = "relu"}), nn.Dense(2)}
    net:initialize()
    net:hybridize()
    local function epoch() for n = 1, shapes do net(pg.ones(n, 4)) end end
    epoch()
    local again = 0
    for _, graph in ipairs(pg.profile(function() for _ = 1, 3 do epoch() end end).graphs) do again = again + graph.compiled end
    return again / (3 * shapes)
  end
  t.equal(planned(100), 0)
  t.check(planned(600) < 0.8)
end)

t.test("K best paths of any batch and any k", function()
  local function best(F, emission, transition, k)
    local score = emission[{{}, 1}]
    for step = 2, emission:size(2) do
      local all = score:unsqueeze(3) + transition + emission[{{}, step}]:unsqueeze(2)
      score = all:max(2)
    end
    return F.topk(score, k)
  end
  local net = nn.block{forward = function(_, ...) return best(pg, ...) end}
  local transition = pg.randn(5, 5)
  net:hybridize()
  for _, case in ipairs{{2, 3, 1}, {4, 3, 2}, {2, 6, 3}, {7, 3, 2}} do
    local emission = pg.randn(case[1], case[2], 5)
    local a, i = net(emission, transition, case[3])
    local b, j = best(pg, emission, transition, case[3])
    t.close(a, b)
    t.equal(i, j)
  end
end)
