-- Layers: shapes, modes, and values computed by hand.
local t = require "tests.support"
local pg = require "perigee"
local nn = pg.nn

t.test("Dense flattens, or acts on the last dim", function()
  local x = pg.ones(2, 3, 4)
  t.equal(nn.Dense(5):initialize()(x).shape, {2, 5})
  t.equal(nn.Dense(5, {flatten = false}):initialize()(x).shape, {2, 3, 5})
  local d = nn.Dense(2, {in_units = 2, weight_initializer = pg.tensor{{1, 2}, {3, 4}}, bias_initializer = pg.tensor{10, 20}})
  t.equal(d:initialize()(pg.tensor{{1, 1}}):totable(), {{13, 27}})
end)

t.test("convolutions of one to three dims and their transposes", function()
  for n = 1, 3 do
    local shape = {2, 3, 8, 8, 8}
    for _ = n, 2 do shape[#shape] = nil end
    local x = pg.randn(shape)
    local y = nn["Conv" .. n .. "D"](4, 3, {strides = 2, padding = 1}):initialize()(x)
    local expected = {2, 4, 4, 4, 4}
    for _ = n, 2 do expected[#expected] = nil end
    t.equal(y.shape, expected)
    local back = nn["Conv" .. n .. "DTranspose"](3, 3, {strides = 2, padding = 1, output_padding = 1}):initialize()(y)
    t.equal(back.shape, shape)
  end
  local grouped = nn.Conv2D(4, 1, {groups = 2, use_bias = false}):initialize("ones")
  t.equal(grouped(pg.ones(1, 6, 2, 2)):max():item(), 3)
  t.equal(grouped.weight.shape, {4, 3, 1, 1})
  t.error_contains(function() nn.Conv2D(3, 1, {groups = 2}) end, "groups")
  t.error_contains(function() nn.Conv2D(3, 1):initialize()(pg.ones(1, 2, 3)) end, "4 dims")
end)

t.test("pooling", function()
  local x = pg.range(1, 16):reshape{1, 1, 4, 4}
  t.equal(nn.MaxPool2D(2)(x):totable(), {{{{6, 8}, {14, 16}}}})
  t.equal(nn.AvgPool2D{pool_size = 2}(x):totable(), {{{{3.5, 5.5}, {11.5, 13.5}}}})
  t.equal(nn.MaxPool2D(2, 1)(x).shape, {1, 1, 3, 3})
  t.equal(nn.GlobalAvgPool2D()(x):totable(), {{{{8.5}}}})
  t.equal(nn.GlobalMaxPool2D()(x):totable(), {{{{16}}}})
  t.equal(nn.MaxPool1D(2)(pg.ones(1, 2, 6)).shape, {1, 2, 3})
  t.equal(nn.AvgPool3D(2)(pg.ones(1, 2, 4, 4, 4)).shape, {1, 2, 2, 2, 2})
  t.equal(nn.GlobalAvgPool1D()(pg.ones(1, 2, 6)).shape, {1, 2, 1})
end)

t.test("BatchNorm: batch statistics in training, running ones otherwise", function()
  local bn = nn.BatchNorm()
  bn:initialize()
  local x = pg.randn(16, 3, 4, 4) * 3 + 1
  local y = pg.record(function() return bn(x) end)
  t.close(y:mean{dim = {1, 3, 4}}, {0, 0, 0}, {atol = 1e-5})
  local mean, var = x:mean{dim = {1, 3, 4}}, x:var{dim = {1, 3, 4}, correction = 0}
  t.close(bn.running_mean, mean * 0.1, {rtol = 1e-4})
  t.close(bn.running_var, var * 0.1 + 0.9, {rtol = 1e-4})
  local kept = bn.running_mean:clone()
  local z = bn(x)
  t.equal(bn.running_mean, kept)
  t.close(z[1], ((x - bn.running_mean:reshape{1, 3, 1, 1}) / (bn.running_var:reshape{1, 3, 1, 1} + 1e-5):sqrt())[1], {rtol = 1e-4, atol = 1e-5})
  local last = nn.BatchNorm{axis = -1}
  last:initialize()
  t.equal(last(pg.ones(2, 4, 5)).shape, {2, 4, 5})
  t.equal(last.gamma.shape, {5})
  y:backward()
  t.check(bn.gamma.grad ~= nil and bn.running_mean.grad == nil)
end)

t.test("LayerNorm, GroupNorm, InstanceNorm", function()
  local x = pg.randn(2, 6, 5)
  local ln = nn.LayerNorm():initialize()
  t.close(ln(x):mean(3), pg.zeros(2, 6), {atol = 1e-5})
  t.equal(ln.gamma.shape, {5})
  local by_channel = nn.LayerNorm{axis = 2}:initialize()
  t.close(by_channel(x):mean(2), pg.zeros(2, 5), {atol = 1e-5})
  local gn = nn.GroupNorm(3):initialize()
  t.close(gn(x):reshape{2, 3, 10}:mean(3), pg.zeros(2, 3), {atol = 1e-5})
  t.equal(gn.gamma.shape, {3})
  local norm = nn.InstanceNorm():initialize()
  t.close(norm(x):mean(3), pg.zeros(2, 6), {atol = 1e-5})
  t.equal(norm.gamma.grad_req, "null")
end)

t.test("Dropout acts in training mode only and may share its mask", function()
  local d = nn.Dropout(0.5)
  local x = pg.ones(20, 30)
  t.equal(d(x), x)
  local y = pg.train_mode(function() return d(x) end)
  local kept = y:gt(0):sum():item()
  t.check(kept > 200 and kept < 400)
  t.equal(y:max():item(), 2)
  local z = pg.train_mode(function() return nn.Dropout(0.5, {axes = {2}})(x) end)
  t.equal(z:min(2), z:max(2))
end)

t.test("Embedding, Flatten, Lambda, Identity", function()
  local e = nn.Embedding(4, 2, {weight_initializer = pg.tensor{{1, 2}, {3, 4}, {5, 6}, {7, 8}}}):initialize()
  t.equal(e(pg.tensor({2, 4}, {dtype = "int64"})):totable(), {{3, 4}, {7, 8}})
  t.error_contains(function() e(pg.tensor({5}, {dtype = "int64"})) end, "5")
  t.equal(nn.Flatten()(pg.ones(2, 3, 4)).shape, {2, 12})
  t.equal(nn.HybridLambda("tanh")(pg.zeros(2)):totable(), {0, 0})
  t.equal(nn.Lambda(function(x) return x * 2 end)(pg.ones(1)):item(), 2)
  t.error_contains(function() nn.Lambda("sigmiod") end, "sigmoid")
  local x = pg.ones(1)
  t.check(nn.Identity()(x) == x)
end)

t.test("activations", function()
  local x = pg.tensor{-2, 0, 2}
  t.equal(nn.Activation("relu")(x):totable(), {0, 0, 2})
  t.close(nn.Activation("softrelu")(x), x:softplus())
  t.close(nn.LeakyReLU(0.1)(x), {-0.2, 0, 2})
  t.close(nn.PReLU():initialize()(x), {-0.5, 0, 2})
  t.close(nn.ELU(1)(x), {math.exp(-2) - 1, 0, 2})
  t.close(nn.SELU()(x), x:selu())
  t.close(nn.GELU()(x), x:gelu())
  t.close(nn.Swish()(x), x:silu())
  t.close(nn.Swish(2)(x), x * (x * 2):sigmoid())
end)

t.test("ReflectionPad2D, and the op pad in each mode", function()
  local x = pg.range(1, 9):reshape{1, 1, 3, 3}
  local reflected = {{{{5, 4, 5, 6, 5}, {2, 1, 2, 3, 2}, {5, 4, 5, 6, 5}, {8, 7, 8, 9, 8}, {5, 4, 5, 6, 5}}}}
  local cases = {
    {nn.ReflectionPad2D(1), reflected},
    {nn.ReflectionPad2D{padding = 1}, reflected},
    {nn.ReflectionPad2D{1, 1, 1, 1}, reflected},
    {nn.ReflectionPad2D{0, 1, 0, 2}, {{{{1, 2, 3, 2}, {4, 5, 6, 5}, {7, 8, 9, 8}, {4, 5, 6, 5}, {1, 2, 3, 2}}}}},
    {nn.ReflectionPad2D(), x},
  }
  for mode, row in pairs{constant = {7, 1, 2, 3, 7, 7}, reflect = {2, 1, 2, 3, 2, 1}, replicate = {1, 1, 2, 3, 3, 3}} do
    local options = {pad = {1, 2}, mode = mode, value = mode == "constant" and 7 or nil}
    local block = nn.block{forward = function(_, y) return y:narrow(3, 1, 1):pad(options) end}
    cases[#cases + 1] = {block, {{{row}}}}
  end
  for _, case in ipairs(cases) do
    local block, expected = case[1], case[2]
    t.equal(block(x), type(expected) == "table" and pg.tensor(expected) or expected)
    local plain = x:clone():attach_grad()
    pg.record(function() return (block(plain) ^ 2):sum() end):backward()
    block:hybridize()
    t.equal(block(x), type(expected) == "table" and pg.tensor(expected) or expected)
    local hybrid = x:clone():attach_grad()
    pg.record(function() return (block(hybrid) ^ 2):sum() end):backward()
    t.close(hybrid.grad, plain.grad)
  end
  t.check(tostring(nn.ReflectionPad2D(1)):find("ReflectionPad2D(1)", 1, true))
  t.check(tostring(nn.ReflectionPad2D{0, 1, 0, 2}):find("0, 1, 0, 2", 1, true))
  t.bad_argument(function() nn.ReflectionPad2D{1, 2} end, "ReflectionPad2D", "padding")
  t.bad_argument(function() nn.ReflectionPad2D(-1) end, "ReflectionPad2D", "padding")
end)
