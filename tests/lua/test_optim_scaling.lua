-- Loss scaling: skipped steps, growth, unscaling, files; and gradients that accumulate over batches.
local t = require "tests.support"
local same = require "tests.plain_and_graph"
local pg = require "perigee"
local optim, nn = pg.optim, pg.nn

local function eager(f) return f end

-- Returns a step with the gradient x * scale for each of the parameters, and the scaler.
local function stepper(jit, params, name, options, scaling)
  local trainer = optim.Trainer(params, name, options)
  local scaler = optim.LossScaler(trainer, scaling)
  return jit(function(x)
    local loss = pg.record(function()
      local sum = 0
      for _, w in ipairs(params) do sum = (w:to("float32") * x):sum() + sum end
      return sum
    end)
    scaler:scale(loss):backward()
    trainer:step(1)
  end), scaler, trainer
end

local function make(dtype)
  local a, b = pg.param(pg.tensor({1, -2}, {dtype = dtype})), pg.param(pg.tensor{3})
  b.lr_mult = 0.5
  return {a, b}
end

t.test("steps with infinite gradients change nothing but the scale", function()
  for _, name in ipairs{"sgd", "adam", "adamw", "lamb", "nadam", "rmsprop", "ftml"} do
    for way, jit in pairs{eager = eager, jit = pg.jit} do
      local options = {learning_rate = 0.1, momentum = name == "sgd" and 0.9 or nil, wd = 0.1}
      local params, plain = make(), make()
      local step, scaler = stepper(jit, params, name, options, {init_scale = 8, growth_interval = 2, max_scale = 16})
      local trainer, scales = optim.Trainer(plain, name, options), {}
      for i, v in ipairs{1, 1 / 0, 2, 3, 0 / 0, -1 / 0, 1, 2, 1, 3, 1, 2} do
        step(pg.tensor(v))
        scales[i] = scaler:value():item()
        if v == v and math.abs(v) < 4 then
          for _, w in ipairs(plain) do pg.record(function() return (w * v):sum() end):backward() end
          trainer:step(1)
        end
        for k, w in ipairs(plain) do t.close(params[k], w:detach(), {rtol = 1e-5, what = name .. " " .. way .. " step " .. i}) end
      end
      t.equal(scales, {8, 4, 4, 8, 4, 2, 2, 4, 4, 8, 8, 16})
    end
  end
end)

t.test("a scale keeps gradients that are too small for float16", function()
  for way, jit in pairs{eager = eager, jit = pg.jit} do
    local w = pg.param(pg.tensor{1}:to("float16"))
    local trainer = optim.Trainer({w}, "sgd", {learning_rate = 1e5, multi_precision = true})
    local scaler = optim.LossScaler(trainer, {init_scale = 1024})
    jit(function()
      scaler:scale(pg.record(function() return (w * 1e-4):to("float32"):sum() * 1e-5 end)):backward()
      trainer:step(1)
    end)()
    t.close(w:to("float32"), {1 - 1e-4}, {atol = 1e-3, what = way})
    t.check(w.grad:item() > 0, "the scaled gradient is not 0")
    t.equal(trainer._entries[1].states.residual:item() ~= 0, true)
  end
end)

t.test("unscale comes before clipping by the norm", function()
  for way, jit in pairs{eager = eager, jit = pg.jit} do
    local w = pg.param(pg.tensor{1, 2})
    local trainer = optim.Trainer({w}, "sgd", {learning_rate = 1})
    local scaler = optim.LossScaler(trainer, {init_scale = 64})
    local step = jit(function(x)
      scaler:scale(pg.record(function() return (w * x):sum() end)):backward()
      scaler:unscale()
      local norm = pg.utils.clip_global_norm({w.grad}, 1, {check_isfinite = false})
      trainer:step(1)
      return norm
    end)
    t.close(step(pg.tensor{3, 4}), 5, {what = way})
    t.close(w, {1 - 0.6, 2 - 0.8}, {rtol = 1e-5, what = way})
    step(pg.tensor{1 / 0, 4})
    t.close(w, {1 - 0.6, 2 - 0.8}, {rtol = 1e-5, what = way})
    t.equal(scaler:value():item(), 32)
    t.close(step(pg.tensor{0.3, 0.4}), 0.5, {what = way})
    t.close(w, {0.1, 0.8}, {rtol = 1e-5, what = way})
  end
end)

t.test("states keep the scale", function()
  local path = t.tmp("scale.safetensors")
  local params = make()
  local step, _, trainer = stepper(pg.jit, params, "adam", {learning_rate = 0.1}, {init_scale = 8, growth_interval = 3})
  for _, v in ipairs{1, 1 / 0, 2, 1} do step(pg.tensor(v)) end
  trainer:save_states(path)
  local again = make()
  for i, w in ipairs(params) do again[i]:set_data(w:detach()) end
  local resumed, other_scaler, other = stepper(pg.jit, again, "adam", {learning_rate = 0.1}, {growth_interval = 3})
  other:load_states(path)
  t.equal(other_scaler.state:totable(), {4, 2, 1})
  for _, v in ipairs{2, 3} do
    step(pg.tensor(v))
    resumed(pg.tensor(v))
  end
  t.equal(other_scaler:value():item(), 8)
  for i, w in ipairs(params) do t.check(pg.equal(w, again[i])) end
  t.error_contains(function() optim.Trainer(again, "adam"):load_states(path) end, "@loss_scale")
  optim.Trainer(again, "adam"):save_states(path)
  t.error_contains(function() other:load_states(path) end, "lacks the state of the loss scaler")
end)

t.test("an exported step scales its loss", function()
  local w = pg.param(pg.tensor{1, -2})
  local step = stepper(pg.jit, {w}, "adam", {learning_rate = 0.1}, {init_scale = 8, growth_interval = 2})
  for _, v in ipairs{1, 1 / 0} do step(pg.tensor(v)) end
  local out = pg.jit(function(x)
    step(x)
    return w + 0
  end)
  out(pg.tensor(1))
  local json, tensors = out:export(t.tmp("scaled"))
  local model = nn.SymbolBlock.imports(json, {"data"}, tensors)
  for _, v in ipairs{2, 1 / 0, 3, 1} do t.check(pg.equal(out(pg.tensor(v)), model(pg.tensor(v)))) end
end)

t.test("gradients accumulate over batches, with a scale too", function()
  same(function(jit, hybridize)
    local net = nn.Dense(1, {in_units = 3})
    net:initialize(pg.init.Constant(0.5))
    hybridize(net)
    local params = net:collect_params()
    for _, p in net:parameters() do p.grad_req = "add" end
    local trainer = optim.Trainer(params, "adam", {learning_rate = 0.1})
    local scaler = optim.LossScaler(trainer, {init_scale = 16})
    local add = jit(function(x) scaler:scale(pg.record(function() return net(x):square():sum() end)):backward() end)
    local apply = jit(function()
      trainer:step(8)
      params:zero_grad()
    end)
    -- A second network takes each pair of batches at once.
    local whole = nn.Dense(1, {in_units = 3})
    whole:initialize(pg.init.Constant(0.5))
    local other = optim.Trainer(whole, "adam", {learning_rate = 0.1})
    for _ = 1, 2 do
      local batches = {pg.randn(4, 3), pg.randn(4, 3)}
      for _, x in ipairs(batches) do add(x) end
      apply()
      pg.record(function() return whole(pg.cat(batches, 1)):square():sum() end):backward()
      other:step(8)
    end
    t.close(net.weight, whole.weight:detach(), {rtol = 1e-4, atol = 1e-6})
    return net.weight:detach()
  end, {rtol = 1e-4, atol = 1e-5})
end)

t.test("wrong arguments of scalers", function()
  local params = make()
  local trainer = optim.Trainer(params, "sgd")
  t.error_contains(function() optim.LossScaler(params) end, "LossScaler: bad argument 'trainer'")
  t.error_contains(function() optim.LossScaler(trainer, {init_scale = 0}) end, "init_scale")
  t.error_contains(function() optim.LossScaler(trainer, {backoff_factor = 2}) end, "backoff_factor")
  t.error_contains(function() optim.LossScaler(trainer, {growth_interval = 0}) end, "growth_interval")
  local scaler = optim.LossScaler(trainer)
  t.error_contains(function() scaler:scale(3) end, "scale: bad argument 'loss'")
  scaler:unscale()
  t.error_contains(function() scaler:unscale() end, "unscaled already")
end)

t.test("a trainer has one scaler", function()
  local trainer = pg.optim.Trainer({pg.param(pg.ones(2))}, "sgd")
  pg.optim.LossScaler(trainer)
  t.error_contains(function() pg.optim.LossScaler(trainer) end, "the trainer has a loss scaler already")
end)
