-- Initializers: ranges, moments, rules by name.
local t = require "tests.support"
local pg = require "perigee"
local init, nn = pg.init, pg.nn

local function make(value, shape, path)
  local p = pg.param{shape = shape}
  p:initialize(value)
  return p:detach(), path
end

t.test("constants", function()
  t.equal(make("zeros", {2}):totable(), {0, 0})
  t.equal(make("one", {2}):totable(), {1, 1})
  t.equal(make(3, {2}):totable(), {3, 3})
  t.equal(make(init.Constant(pg.tensor{1, 2}), {2}):totable(), {1, 2})
  t.error_contains(function() make(pg.ones(3), {2}) end, "shape")
end)

t.test("random initializers have the right scale", function()
  pg.manual_seed(1)
  local u = make(nil, {100, 100})
  t.check(u:max():item() <= 0.07 and u:max():item() > 0.069 and u:min():item() < -0.069)
  t.close(make(init.Normal(0.5), {200, 200}):std():item(), 0.5, {rtol = 0.02})
  local bound = math.sqrt(3 / ((50 * 9 + 20 * 9) / 2))
  local x = make("xavier", {20, 50, 3, 3})
  t.check(x:max():item() <= bound and x:max():item() > 0.98 * bound)
  local sigma = math.sqrt(2 / (1 + 0.25 ^ 2) / 150)
  t.close(make(init.MSRAPrelu(), {200, 100}):std():item(), sigma, {rtol = 0.03})
  local tn = make(init.TruncatedNormal(1, 0.5), {200, 200})
  t.check(tn:max():item() <= 2.0001 and tn:min():item() >= -0.0001)
  t.close(tn:mean():item(), 1, {atol = 0.02})
  t.close(tn:std():item(), 0.5 * 0.8796, {rtol = 0.03})
  t.error_contains(function() make("xavier", {3}) end, "2 dims")
end)

t.test("Orthogonal rows or columns", function()
  local a = make(init.Orthogonal(2), {3, 5})
  t.close(a:matmul(a:t()), pg.eye(3) * 4, {atol = 1e-5})
  pg.manual_seed(5)
  local tall = init.Orthogonal(1, "normal"):make({5, 3}, {dtype = "float64"}, "")
  pg.manual_seed(5)
  local along = tall:t():matmul(pg.randn({3, 5}, {dtype = "float64"}):t())  -- upper triangular with a positive diagonal
  t.close(along, along:triu(), {atol = 1e-12})
  t.check(along:diagonal():gt(0):all():item())
  local b = make(init.Orthogonal(1, "normal"), {6, 2, 2})
  b = b:reshape{6, 4}
  t.close(b:t():matmul(b), pg.eye(4), {atol = 1e-5})
end)

t.test("Bilinear and LSTMBias", function()
  t.close(make("bilinear", {1, 1, 4, 4})[{1, 1, 2}], {0.1875, 0.5625, 0.5625, 0.1875})
  t.equal(make(init.LSTMBias(), {8}):totable(), {0, 0, 1, 1, 0, 0, 0, 0})
end)

t.test("the parameter's own initializer precedes its name and the default", function()
  local net = nn.block{
    bias = pg.param{shape = {2}}, gamma = pg.param{shape = {2}}, weight = pg.param{shape = {2}},
    beta = pg.param{shape = {2}, init = 5}, forward = function() end,
  }
  net:initialize(7)
  t.equal(net.bias:totable(), {0, 0})
  t.equal(net.gamma:totable(), {1, 1})
  t.equal(net.weight:totable(), {7, 7})
  t.equal(net.beta:totable(), {5, 5})
end)

t.test("Mixed and Load choose by path", function()
  local net = nn.HybridSequential{nn.Dense(2, {in_units = 1}), nn.Dense(1, {in_units = 2})}
  net:initialize(init.Mixed({"^1%.bias", ".*"}, {3, "ones"}))
  t.equal(net[1].bias:totable(), {3, 3})
  t.equal(net[2].bias:totable(), {0})
  t.equal(net[2].weight:totable(), {{1, 1}})
  net:initialize(init.Load({["2.weight"] = pg.tensor{{8, 9}}}, "zeros"), {force = true})
  t.equal(net[2].weight:totable(), {{8, 9}})
  t.equal(net[1].weight:totable(), {{0}, {0}})
  t.error_contains(function() init.Mixed({"a"}, {}) end, "initializer")
end)

t.test("FusedRNN sets the biases of the forget gates", function()
  local function made(layer, mode, ...)
    local net = nn.rnn[layer](2, {input_size = 1, num_layers = 2, bidirectional = true})
    net:initialize(init.FusedRNN("ones", 2, 2, mode, true, ...))
    return net
  end
  local lstm = made("LSTM", "lstm", 0.5)
  for name, p in pairs(lstm:collect_params()) do
    local expected = name:find("bias$") and pg.tensor{0, 0, 0.5, 0.5, 0, 0, 0, 0} or pg.ones(p.shape)
    t.equal(p, expected, name)
  end
  for name, p in pairs(made("GRU", "gru"):collect_params()) do
    t.equal(p, pg.full(p.shape, name:find("bias$") and 0 or 1), name)
  end
  local cell = nn.rnn.LSTMCell(2, {input_size = 1, i2h_weight_initializer = init.FusedRNN{init = 3, num_hidden = 2, num_layers = 1, mode = "lstm"}})
  t.equal(cell:initialize().i2h_weight, pg.full({8, 1}, 3))
  t.error_contains(function() made("GRU", "lstm") end, "8 elements, for num_hidden and mode = \"lstm\"")
  t.error_contains(function() init.FusedRNN("ones", 2, 1, "lstn") end, "mode")
  t.error_contains(function() init.FusedRNN("ones") end, "num_hidden")
end)

t.test("custom functions and classes are initializers", function()
  t.equal(make(function(shape) return pg.full(shape, 4) end, {2}):totable(), {4, 4})
  local Ramp = init.Initializer:extend("Ramp")
  function Ramp:make(shape) return pg.range(1, shape[1]) end
  t.equal(make(Ramp(), {3}):totable(), {1, 2, 3})
  t.error_contains(function() return init.Xaver end, "Xavier")
end)

t.test("values repeat with the seed", function()
  pg.manual_seed(5)
  local a = make("normal", {4})
  pg.manual_seed(5)
  t.equal(make("normal", {4}), a)
end)

t.test("options may come first: of a block, a set and a parameter", function()
  local net = nn.Dense(2, {in_units = 2}):initialize("zeros")
  for _, owner in ipairs{net, net:collect_params(), net.weight} do
    net:initialize("zeros", {force = true})
    t.check(owner:initialize{force = true} == owner)
    t.check(net.weight:abs():sum():item() > 0)
    t.error_contains(function() owner:initialize{forse = true} end, "initialize: ")
  end
end)
