-- Blocks that change the weight of a layer: LoRA, WeightNorm, SpectralNorm.
local t = require "tests.support"
local pg = require "perigee"
local gradcheck = require "tests.gradcheck"
local layers = require "tests.layers"
local nn = pg.nn

local near = {rtol = 1e-4, atol = 1e-5}

local function randomize(block, names)
  for name in names:gmatch("%S+") do block[name]:set_data(pg.randn(block[name].shape)) end
  return block
end

t.test("LoRA adds a low-rank change to the weight", function()
  pg.manual_seed(4)
  for _, options in ipairs{{}, {activation = "tanh"}, {flatten = false, use_bias = false}} do
    local dense = nn.Dense(3, options):initialize("xavier")
    local x = pg.randn(2, 4, 5)
    local before = dense(x)
    local layer = nn.LoRA(dense, 2, {alpha = 6})
    layer:initialize()
    t.close(layer(x), before, near)
    randomize(layer, "lora_a lora_b")
    local changed = nn.Dense(3, options):initialize()
    changed(x)
    changed.weight:set_data(dense.weight + 3 * layer.lora_b:matmul(layer.lora_a))
    local y = layers.check(layer, x)
    t.close(y, changed(x), near)
    t.equal(layer:merge(), layer)
    t.close(layer(x), y, near)
    t.close(dense(x), y, near)
    t.close(layers.check(layer, x), y, near)
    t.check(tostring(layer):find("rank 2, merged", 1, true))
    layer:unmerge()
    t.close(layer(x), y, near)
    t.close(dense(x), before, near)
  end
end)

t.test("LoRA infers the sizes of a layer that has none", function()
  local layer = nn.LoRA(nn.Dense(3), {rank = 2}):initialize()
  t.equal(layer(pg.ones(2, 5)).shape, {2, 3})
  t.equal({layer.lora_a.shape, layer.lora_b.shape, layer.base.weight.shape}, {{2, 5}, {3, 2}, {3, 5}})
end)

t.test("only the adapters are trained", function()
  pg.manual_seed(5)
  local net = nn.HybridSequential{nn.LoRA(nn.Dense(8, {activation = "relu"}), 2, {dropout = 0.1}), nn.LoRA(nn.Dense(1), 1)}
  net:initialize("xavier")
  local x = pg.randn(16, 4)
  local y = x:sum(2, true)
  net(x)
  local names = {}
  for path, p in net:parameters() do if p.grad then names[#names + 1] = path end end
  t.equal(names, {"1.lora_a", "1.lora_b", "2.lora_a", "2.lora_b"})
  local kept = net[1].base.weight:clone()
  local trainer, first, l = pg.optim.Trainer(net:collect_params("lora_"), "adam", {learning_rate = 0.05}), nil, nil
  for _ = 1, 40 do
    l = pg.record(function() return (net(x) - y):square():mean() end)
    l:backward()
    trainer:step(1)
    first = first or l:item()
  end
  t.check(l:item() < 0.6 * first, l:item())
  t.equal(net[1].base.weight, kept)
end)

t.test("WeightNorm: direction and length of each row", function()
  pg.manual_seed(6)
  local cases = {
    {nn.Dense(3, {activation = "relu"}), pg.randn(2, 5), 1}, {nn.Conv2D(3, 2), pg.randn(2, 4, 5, 5), 1},
    {nn.Conv1DTranspose(3, 2), pg.randn(2, 4, 5), 2},
    {nn.Embedding(4, 3), pg.tensor({1, 4, 2}, {dtype = "int64"}), 1},
  }
  for _, case in ipairs(cases) do
    local base, x, axis = unpack(case)
    local layer = nn.WeightNorm(base, {axis = axis}):initialize("xavier")
    local y = layer(x)
    t.close(y, base(x), near)
    local dims = {}
    for i = 1, base.weight:dim() do if i ~= axis then dims[#dims + 1] = i end end
    t.close(layer.weight_g, base.weight:square():sum(dims):sqrt(), near)
    layer.weight_g:set_data(layer.weight_g * 2)
    local doubled = layers.check(layer, x)
    base.weight:set_data(base.weight * 2)
    t.close(doubled, base(x), near)
    t.close(layer(x), doubled, near)
    t.equal(#layer.weight_g.shape, 1)
  end
  local known = nn.WeightNorm(nn.Dense(2, {in_units = 2, weight_initializer = pg.tensor{{3, 4}, {0, 2}}})):initialize()
  t.close(known.weight_g, {5, 2})
end)

t.test("SpectralNorm divides by the largest singular value", function()
  pg.manual_seed(8)
  local function columns(shape, options) return pg.init.Orthogonal(1):make(shape, options, "") * pg.tensor{3, 2, 0.5} end
  local dense = nn.Dense(4, {use_bias = false, weight_initializer = columns})
  local layer = nn.SpectralNorm(dense, {iterations = 3}):initialize()
  local x = pg.eye(3)
  pg.train_mode(function() for _ = 1, 40 do layer(x) end end)
  t.close(layers.check(layer, x), dense(x) / 3, {rtol = 1e-3, atol = 1e-4})
  local u = layer.weight_u:clone()
  layer(x)
  t.equal(layer.weight_u, u)
  t.close(u:norm(), 1, near)
  local conv = nn.SpectralNorm(nn.Conv2D(3, 2)):initialize("xavier")
  local image = pg.randn(1, 2, 4, 4)
  local before = pg.record(function() return conv(image) end)
  t.equal(conv.weight_u.shape, {3})
  t.check(not before:allclose(conv.base(image)))
end)

-- The losses and weight_u of torch.nn.utils.spectral_norm. Its evaluation has the v of the last training step, and not one
-- that follows from u, so it is not compared.
t.test("SpectralNorm trains as PyTorch's", function()
  local expected = {
    {{10.372277227722773, 2.20741958120653, 0.41285274278789574}, {-0.6051160265985219, 0.7961372961704638}},
    {{4.9814235745290585, 0.9560375387080803, 0.5099163970287699}, {-0.7328866384326068, 0.6803507736505878}},
  }
  for iterations, values in ipairs(expected) do
    for _, hybrid in ipairs{false, true} do
      local dense = nn.Dense(2, {in_units = 3, dtype = "float64", use_bias = false})
      local layer = nn.SpectralNorm(dense, {iterations = iterations}):initialize()
      if hybrid then layer:hybridize() end
      dense.weight:set_data(pg.tensor({{1, 2, -1}, {0.5, -1, 2}}, {dtype = "float64"}))
      layer.weight_u:set_data(pg.tensor({0.6, 0.8}, {dtype = "float64"}))
      local trainer = pg.optim.Trainer({dense.weight}, "sgd", {learning_rate = 0.1})
      local x, losses = pg.tensor({{1, 2, 3}}, {dtype = "float64"}), {}
      for n = 1, 3 do
        local loss = pg.record(function() return layer(x):square():sum() end)
        loss:backward()
        trainer:step(1)
        losses[n] = loss:item()
      end
      t.close(pg.tensor(losses, {dtype = "float64"}), pg.tensor(values[1], {dtype = "float64"}), {rtol = 1e-9})
      t.close(layer.weight_u, pg.tensor(values[2], {dtype = "float64"}), {rtol = 1e-9})
      local u, w = layer.weight_u, dense.weight:detach()
      local v = pg.normalize(u:matmul(w), {dim = 1})
      t.close(layer(x), x:linear(w / u:dot(w:mv(v))), {rtol = 1e-9})
    end
  end
end)

t.test("SpectralNorm improves its estimate in training, hybridized as eagerly", function()
  local got = {}
  for k, hybrid in ipairs{false, true} do
    pg.manual_seed(9)
    local layer = nn.SpectralNorm(nn.Dense(3, {in_units = 4})):initialize("xavier")
    if hybrid then layer:hybridize() end
    local x = pg.randn(2, 4)
    for _ = 1, 3 do pg.record(function() return layer(x):sum() end):backward() end
    got[k] = {layer.weight_u:clone(), layer.base.weight.grad, layer(x)}
  end
  t.close(got[2], got[1], near)
end)

t.test("gradients of LoRA, WeightNorm and SpectralNorm", function()
  pg.manual_seed(10)
  gradcheck.seed(3)
  local x = gradcheck.random{2, 3}
  local function dense() return nn.Dense(2, {dtype = "float64", activation = "tanh", bias_initializer = "uniform"}) end
  local lora = nn.LoRA(dense(), 2):initialize("xavier")
  lora(x)
  layers.gradients(randomize(lora, "lora_b"), x)
  layers.gradients(nn.WeightNorm(dense()):initialize("xavier"), x)
  local spectral = nn.SpectralNorm(dense()):initialize("xavier")
  pg.train_mode(function() for _ = 1, 200 do spectral(x) end end)  -- at the singular vectors the rule is exact
  layers.gradients(spectral, x)
end)

t.test("an input of another size is an error in terms of the wrapped layer", function()
  for _, class in ipairs{nn.LoRA, nn.WeightNorm, nn.SpectralNorm} do
    for _, units in ipairs{0, 3} do
      local layer = class(nn.Dense(2, {in_units = units})):initialize()
      if units == 0 then layer(pg.ones(1, 3)) end
      t.error_contains(function() layer(pg.ones(1, 4)) end, layer._name .. ": bad argument 'x' (expected 3 features")
      t.check(tostring(layer):find("3 -> 2, ", 1, true))
    end
  end
  local conv = nn.WeightNorm(nn.Conv2D(2, 1)):initialize()
  conv(pg.ones(1, 3, 2, 2))
  t.error_contains(function() conv(pg.ones(1, 4, 2, 2)) end, "WeightNorm: bad argument 'x' (expected 3 channels")
end)

t.test("wrong arguments of LoRA, WeightNorm, SpectralNorm", function()
  t.bad_argument(function() nn.LoRA(nn.Conv2D(3, 1)) end, "LoRA", "block")
  t.bad_argument(function() nn.LoRA(3) end, "LoRA", "block")
  t.bad_argument(function() nn.LoRA(nn.Dense(2), 0) end, "LoRA", "rank")
  t.bad_argument(function() nn.LoRA(nn.Dense(2), {alpha = "x"}) end, "LoRA", "alpha")
  t.error_contains(function() nn.LoRA(nn.Dense(2, {in_units = 2})):initialize():unmerge() end, "unmerge: ")
  t.error_contains(function() nn.LoRA(nn.Dense(2, {in_units = 2})):initialize():merge():merge() end, "merge: ")
  t.bad_argument(function() nn.WeightNorm(nn.Flatten()) end, "WeightNorm", "block")
  t.bad_argument(function() nn.WeightNorm(nn.Dense(2), 3) end, "WeightNorm", "axis")
  t.bad_argument(function() nn.SpectralNorm(nn.Dense(2), {iterations = 0}) end, "SpectralNorm", "iterations")
  t.bad_argument(function() nn.SpectralNorm(nn.Dense(2), {epsilon = -1}) end, "SpectralNorm", "epsilon")
end)
