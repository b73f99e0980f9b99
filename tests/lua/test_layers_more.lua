-- Layers of Gluon's contrib, and norms: values by hand or by ops, gradients, hybridized and imported.
local t = require "tests.support"
local pg = require "perigee"
local gradcheck = require "tests.gradcheck"
local layers = require "tests.layers"
local nn = pg.nn

t.test("RMSNorm", function()
  local x = pg.tensor{{3, 4}, {1, 7}}
  local layer = nn.RMSNorm{epsilon = 0, gamma_initializer = pg.tensor{1, 2}}:initialize()
  local root = {math.sqrt(12.5), 5}
  t.close(layers.check(layer, x), {{3 / root[1], 8 / root[1]}, {1 / root[2], 14 / root[2]}})
  local by_channel = nn.RMSNorm{axis = 2, epsilon = 1e-3}:initialize()
  local z = pg.randn(2, 3, 4)
  t.close(layers.check(by_channel, z), z / ((z * z):mean(2, true) + 1e-3):sqrt(), {rtol = 1e-5})
  t.equal(by_channel.gamma.shape, {3})
  t.equal(nn.RMSNorm{scale = false}.gamma.grad_req, "null")
  local double = nn.RMSNorm():initialize():to("float64")
  layers.gradients(double, gradcheck.random{2, 3, 4})
  local half = nn.RMSNorm():initialize():to("float16")
  t.equal(half(x:to("float16")).dtype, "float16")
  t.equal(half.gamma.dtype, "float32")
  t.check(tostring(layer):find("RMSNorm(2)", 1, true))
end)

t.test("wrong arguments of RMSNorm", function()
  t.bad_argument(function() nn.RMSNorm(512) end, "RMSNorm", "axis")
  t.bad_argument(function() nn.RMSNorm{epsilon = -1} end, "RMSNorm", "epsilon")
  t.bad_argument(function() nn.RMSNorm():initialize()(3) end, "RMSNorm", "x")
  t.error_contains(function() nn.RMSNorm{center = true} end, "center")
  local layer = nn.RMSNorm():initialize()
  layer(pg.ones(2, 3))
  t.error_contains(function() layer(pg.ones(2, 4)) end, "expected 3 features")
end)

t.test("SyncBatchNorm is BatchNorm, BatchNormReLU its relu", function()
  pg.manual_seed(3)
  local x = pg.randn(8, 3, 2) * 2 + 1
  local plain = nn.BatchNorm{momentum = 0.8}:initialize()
  local sync = nn.SyncBatchNorm(3, {momentum = 0.8, num_devices = 1}):initialize()
  local rectified = nn.BatchNormReLU{momentum = 0.8}:initialize()
  local function train(layer) return pg.record(function() return layer(x) end) end
  local y = train(plain)
  t.close(train(sync), y)
  t.close(train(rectified), y:relu())
  for _, layer in ipairs{sync, rectified} do
    t.close(layer.running_mean, plain.running_mean)
    t.close(layer.running_var, plain.running_var)
  end
  t.close(layers.check(sync, x), plain(x), {rtol = 1e-5})
  t.close(layers.check(rectified, x), plain(x):relu(), {rtol = 1e-5})
  t.close(nn.BatchNormReLU{axis = -1}:initialize()(x), nn.BatchNorm{axis = -1}:initialize()(x):relu())
  layers.gradients(nn.BatchNormReLU():initialize():to("float64"), gradcheck.random{4, 3})
  t.bad_argument(function() nn.SyncBatchNorm{num_devices = 2} end, "SyncBatchNorm", "num_devices")
  t.bad_argument(function() nn.SyncBatchNorm(-1) end, "SyncBatchNorm", "in_channels")
  t.error_contains(function() nn.SyncBatchNorm{axis = 3} end, "axis")
  t.bad_argument(function() nn.BatchNormReLU(64) end, "BatchNormReLU", "axis")
  t.bad_argument(function() nn.BatchNormReLU():initialize()("x") end, "BatchNormReLU", "x")
end)

-- The element of x that PixelShuffle puts at channel c and the 1-based positions, by the formula of the paper.
local function shuffled(x, factors, c, at)
  local index, channel = {1}, c - 1
  for d, f in ipairs(factors) do channel = channel * f + (at[d] - 1) % f end
  index[2] = channel + 1
  for d, f in ipairs(factors) do index[#index + 1] = math.floor((at[d] - 1) / f) + 1 end
  return x[index]:item()
end

t.test("PixelShuffle1D, 2D and 3D", function()
  for n, factors in ipairs{{3}, {2, 3}, {2, 1, 3}} do
    local shape, product, size = {1, 2}, 1, {2, 3, 2}
    for d, f in ipairs(factors) do
      product = product * f
      shape[d + 2] = size[d]
    end
    shape[2] = 2 * product
    local x = pg.rand(shape)
    local layer = nn["PixelShuffle" .. n .. "D"](factors)
    local y = layers.check(layer, x)
    local expected = {1, 2}
    for d, f in ipairs(factors) do expected[d + 2] = size[d] * f end
    t.equal(y.shape, expected)
    local at = {}
    local function visit(d)
      if d > n then
        for c = 1, 2 do t.equal(y[{1, c, unpack(at)}]:item(), shuffled(x, factors, c, at)) end
        return
      end
      for i = 1, expected[d + 2] do
        at[d] = i
        visit(d + 1)
      end
    end
    visit(1)
    layers.gradients(layer, x:to("float64"))
    t.check(tostring(layer):find(table.concat(factors, "x"), 1, true))
  end
  local x = pg.randn(2, 8, 3, 3)
  t.equal(nn.PixelShuffle2D(2)(x), x:pixel_shuffle(2))
  t.equal(nn.PixelShuffle2D{factor = 2}(x), x:pixel_shuffle(2))
end)

t.test("wrong arguments of PixelShuffle", function()
  t.bad_argument(function() nn.PixelShuffle2D(0) end, "PixelShuffle2D", "factor")
  t.bad_argument(function() nn.PixelShuffle2D() end, "PixelShuffle2D", "factor")
  t.bad_argument(function() nn.PixelShuffle3D{1, 2} end, "PixelShuffle3D", "factor")
  t.bad_argument(function() nn.PixelShuffle1D(2)(pg.ones(1, 2, 3, 4)) end, "PixelShuffle1D", "x")
  t.bad_argument(function() nn.PixelShuffle1D(2)(pg.ones(1, 3, 4)) end, "PixelShuffle1D", "x")
end)

t.test("Concurrent and HybridConcurrent join the results of their children", function()
  for _, make in ipairs{nn.Concurrent, nn.HybridConcurrent} do
    local a, b = nn.Dense(2), nn.Dense(3)
    local net = make({a, b, pg.relu}, {axis = 2})
    net:initialize()
    local x = pg.randn(4, 5)
    t.equal(net(x), pg.cat({a(x), b(x), x:relu()}, 2))
    t.equal(#net, 3)
    t.check(net[2] == b)
    t.equal(net:slice(1, 2)(x), pg.cat({a(x), b(x)}, 2))
    local first = make{axis = 1}
    first:add(pg.relu, pg.abs)
    t.equal(first(x), pg.cat({x:relu(), x:abs()}, 1))
    t.equal(make{pg.relu, pg.abs}(x).shape, {4, 10})
    t.equal(make({pg.add, pg.sub})(x, x).shape, {4, 10})
    local names = {}
    for path in net:parameters() do names[#names + 1] = path end
    t.equal(names, {"1.weight", "1.bias", "2.weight", "2.bias"})
  end
  local net = nn.HybridConcurrent({nn.Dense(2), nn.HybridSequential{nn.Dense(4), nn.Dense(1)}}, {axis = -1})
  net:initialize()
  layers.check(net, pg.randn(3, 4))
  layers.gradients(net:to("float64"), gradcheck.random{3, 4})
end)

t.test("wrong arguments of HybridConcurrent", function()
  t.bad_argument(function() nn.HybridConcurrent{3} end, "HybridConcurrent", "child")
  t.bad_argument(function() nn.HybridConcurrent({pg.relu}, {axis = 0}) end, "HybridConcurrent", "axis")
  t.bad_argument(function() nn.HybridConcurrent(nn.Dense(2)) end, "HybridConcurrent", "axis")
  t.error_contains(function() nn.HybridConcurrent()(pg.ones(2)) end, "HybridConcurrent: the block has no children")
  t.error_contains(function() nn.HybridConcurrent({nn.block{hybrid = false, forward = pg.relu}}):hybridize() end, "plain Block")
end)
