-- Inference and training steps of small networks. Architecture, batch and loss are those of the peers' programs.
local networks = dofile((arg[0]:match("^(.*)/[^/]*$") or ".") .. "/networks.lua")
local mlp, lenet = networks.mlp, networks.lenet

local function infer(name, batch, variant)
  return {name = name, variant = variant, setup = function(pg)
    local net, x = mlp(pg, 512, {256, 128, 2}), pg.rand(batch, 512) - 0.5
    if variant then net:hybridize() end
    return function() return net(x) end, {inner = 1000}
  end}
end

-- One training step. variant "hybrid": net and loss are hybridized; "jit": the step is one program.
local function train(name, build, shape, optimizer, options, variant)
  return {name = name, variant = variant, setup = function(pg)
    local n = shape[1]
    local net, x, y = build(pg), pg.rand(shape) - 0.5, pg.randint(1, 10, {n})
    local loss_fn = pg.loss.SoftmaxCrossEntropyLoss()
    net(x)
    local trainer = pg.optim.Trainer(net:collect_params(), optimizer, options)
    if variant == "hybrid" then
      net:hybridize()
      loss_fn:hybridize()
    end
    local function step(features, labels)
      local l = pg.record(function() return loss_fn(net(features), labels) end)
      l:backward()
      trainer:step(n)
    end
    if variant == "jit" then step = pg.jit(step) end
    return function() step(x, y) end
  end}
end

local function mlp_784(pg) return mlp(pg, 784, {256, 128, 10}) end
local momentum = {learning_rate = 0.05, momentum = 0.9}
local cases = {infer("seed_mlp_b1", 1), infer("seed_mlp_b1", 1, "hybrid"), infer("seed_mlp_b32", 32), infer("seed_mlp_b32", 32, "hybrid")}
for _, c in ipairs{
  {"mlp_train_sgd_b64", mlp_784, {64, 784}, "sgd", {learning_rate = 0.01}},
  {"mlp_train_adam_b64", mlp_784, {64, 784}, "adam", {learning_rate = 1e-3}},
  {"lenet_train_b1", lenet, {1, 1, 28, 28}, "sgd", momentum},
  {"lenet_train_b64", lenet, {64, 1, 28, 28}, "sgd", momentum},
} do
  for _, variant in ipairs{false, "hybrid", "jit"} do
    cases[#cases + 1] = train(c[1], c[2], c[3], c[4], c[5], variant or nil)
  end
end
return cases
