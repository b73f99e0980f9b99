-- Trainer, optimizers and schedules against the reference trajectories.
local t = require "tests.support"
local json = require "tests.json"
local pg = require "perigee"
local optim, nn = pg.optim, pg.nn

-- Runs 20 steps with given gradients and compares every weight after every step.
local function follow(case, values, optimizer, options, fixed)
  local weights, mults = {}, case.lr_mult or {}
  for i, key in ipairs(fixed.params) do
    weights[i] = pg.param(values[key]:to(case.dtype))
    if type(mults[i]) == "number" then weights[i].lr_mult = mults[i] end
    if case.wd_mult and type(case.wd_mult[i]) == "number" then weights[i].wd_mult = case.wd_mult[i] end
  end
  local trainer = optim.Trainer(weights, optimizer, options)
  for step = 1, case.steps do
    for i, w in ipairs(weights) do
      local g = values[fixed.grads[i]][step]:to(case.dtype)
      pg.record(function() return (w * g):sum() end):backward()
    end
    trainer:step(1)
    for i, w in ipairs(weights) do
      t.close(w, values[fixed.trajectory[i]][step]:to(case.dtype),
              {rtol = case.rtol, atol = case.atol, what = case.id .. " step " .. step})
    end
  end
end

t.test("a trainer takes the arguments of a store, which it does not need", function()
  local w = pg.param(pg.tensor{1, 2})
  for _, store in ipairs{"local", "device"} do optim.Trainer({w}, "sgd", {learning_rate = 1}, store, nil, false) end
  t.error_contains(function() optim.Trainer({w}, "sgd", {}, "dist_sync") end, "bad argument 'kvstore'")
  t.error_contains(function() optim.Trainer({w}, "sgd", {}, nil, {type = "2bit"}) end, "bad argument 'compression_params'")
  t.error_contains(function() optim.Trainer({w}, "sgd", {}, nil, nil, 1) end, "bad argument 'update_on_kvstore'")
end)

t.test("MXNet's sgd, nag and adam", function()
  local manifest = json.decode(t.read(t.shared("data/fixtures/optim/mxnet.json")))
  local values = pg.load(t.shared("data/fixtures/optim/mxnet.safetensors"))
  local known, ran = {sgd = true, nag = true, adam = true}, 0
  for _, case in ipairs(manifest.cases) do
    if known[case.optimizer] then
      follow(case, values, case.optimizer, case.args, case)
      ran = ran + 1
    end
  end
  t.check(ran >= 5)
end)

local function torch_options(args)
  local options = {learning_rate = args.lr, momentum = args.momentum, wd = args.weight_decay, epsilon = args.eps}
  if args.betas then options.beta1, options.beta2 = args.betas[1], args.betas[2] end
  return options
end

t.test("torch's SGD and AdamW, whose rules are the same", function()
  local manifest = json.decode(t.read(t.shared("data/fixtures/optim/torch.json")))
  local values = pg.load(t.shared("data/fixtures/optim/torch.safetensors"))
  local known, ran = {SGD = "sgd", AdamW = "adamw"}, 0
  for _, case in ipairs(manifest.cases) do
    local name = known[case.optimizer]
    if name and not case.args.nesterov and not case.args.dampening and case.fixed.trajectory[1] and values[case.fixed.trajectory[1]] then
      follow(case, values, name, torch_options(case.args), case.fixed)
      ran = ran + 1
    end
  end
  t.check(ran >= 4, "cases run: " .. ran)
end)

t.test("schedules", function()
  local tables = json.decode(t.read(t.shared("data/fixtures/optim/lr_schedules.json"))).tables
  for _, row in ipairs(tables) do
    local schedule = optim.lr_scheduler[row.scheduler](row.args)
    for i, step in ipairs(row.steps) do
      t.close(schedule(step), row.lr[i], {rtol = 1e-9, atol = 1e-12, what = row.scheduler .. " at " .. step})
    end
  end
  t.error_contains(function() optim.lr_scheduler.Factor{step = 0} end, "step")
  t.error_contains(function() optim.lr_scheduler.Cosine(10, {warmup_steps = 10}) end, "max_update")
end)

local function one_weight(optimizer, options)
  local w = pg.param(pg.ones(2))
  return w, optim.Trainer({w}, optimizer, options)
end

local function gradient(w, value) pg.record(function() return (w * value):sum() end):backward() end

t.test("step divides by the batch size, clips, decays, and knows multipliers", function()
  local w, trainer = one_weight("sgd", {learning_rate = 1})
  gradient(w, 4)
  trainer:step(2)
  t.close(w, {-1, -1})
  w, trainer = one_weight("sgd", {learning_rate = 1, clip_gradient = 0.5, rescale_grad = 2, wd = 0.1})
  gradient(w, 4)
  trainer:step(2)
  t.close(w, {0.4, 0.4})
  w, trainer = one_weight("sgd", {learning_rate = 1, wd = 0.5})
  w.lr_mult, w.wd_mult = 0.5, 0
  gradient(w, 1)
  trainer:step(1)
  t.close(w, {0.5, 0.5})
end)

t.test("a stale gradient is an error unless ignored", function()
  local w, trainer = one_weight("sgd", {learning_rate = 1})
  t.error_contains(function() trainer:step(1) end, "stale")
  gradient(w, 1)
  trainer:step(1)
  t.error_contains(function() trainer:step(1) end, "ignore_stale_grad")
  t.close(w, {0, 0})
  trainer:step(1, {ignore_stale_grad = true})
  t.close(w, {0, 0})
end)

t.test("frozen parameters stay; several groups of update counts work", function()
  local a, b = pg.param(pg.ones(1)), pg.param(pg.ones(1))
  local trainer = optim.Trainer({a = a, b = b}, "adam", {learning_rate = 0.1})
  b.grad_req = "null"
  gradient(a, 1)
  trainer:step(1)
  t.close(b, {1})
  b.grad_req = "write"
  gradient(a, 1)
  gradient(b, 1)
  trainer:step(1)
  t.close(a, {0.8}, {atol = 1e-5})
  t.close(b, {0.9}, {atol = 1e-5})
end)

t.test("grad_req add sums until zero_grad", function()
  local w = pg.param(pg.ones(1), {grad_req = "add"})
  local trainer = optim.Trainer({w}, "sgd", {learning_rate = 1})
  gradient(w, 1)
  gradient(w, 1)
  trainer:step(2)
  t.close(w, {0})
  w:zero_grad()
  t.equal(w.grad:totable(), {0})
end)

t.test("learning rates and schedulers", function()
  local w, trainer = one_weight("sgd", {learning_rate = 0.5})
  t.equal(trainer:learning_rate(), 0.5)
  trainer:set_learning_rate(0.25)
  gradient(w, 1)
  trainer:step(1)
  t.close(w, {0.75, 0.75})
  w, trainer = one_weight("sgd", {lr_scheduler = optim.lr_scheduler.MultiFactor({1}, {factor = 0.1, base_lr = 1})})
  for _ = 1, 2 do
    gradient(w, 1)
    trainer:step(1)
  end
  t.close(w, {-0.1, -0.1})
  t.error_contains(function() trainer:set_learning_rate(1) end, "lr_scheduler")
end)

t.test("states survive a file; a foreign file is refused", function()
  local function make()
    pg.manual_seed(3)
    local net = nn.HybridSequential{nn.Dense(3, {in_units = 2}), nn.Dense(1, {in_units = 3})}
    net:initialize("xavier")
    return net, optim.Trainer(net:collect_params(), "adam", {learning_rate = 0.1})
  end
  local function train(net, trainer, steps)
    for i = 1, steps do
      pg.record(function() return net(pg.full({4, 2}, i)):square() end):backward()
      trainer:step(4)
    end
  end
  local a, ta = make()
  train(a, ta, 3)
  local params, states = t.tmp("p.safetensors"), t.tmp("s.safetensors")
  a:save_parameters(params)
  ta:save_states(states)
  train(a, ta, 2)
  local b, tb = make()
  b:load_parameters(params)
  tb:load_states(states)
  train(b, tb, 2)
  t.equal(b[1].weight:detach(), a[1].weight:detach())
  local other = optim.Trainer(b:collect_params(), "sgd", {momentum = 0.9})
  t.error_contains(function() other:load_states(states) end, "no state of SGD")
  t.error_contains(function() optim.Trainer({a[1].weight}, "adam"):load_states(states) end, "another set")
  t.error_contains(function() tb:load_states(params) end, "no state")
end)

t.test("wrong arguments", function()
  local w = pg.param(pg.ones(1))
  t.error_contains(function() optim.Trainer({w}, "adan") end, "adam")
  t.error_contains(function() optim.Trainer({w}, "sgd", {learning_rte = 1}) end, "learning_rate")
  t.error_contains(function() optim.Trainer({w}, "sgd", {momentum = -1}) end, "momentum")
  t.error_contains(function() optim.Trainer(w, "sgd") end, "params")
  t.error_contains(function() optim.Trainer({w}, "adam", {beta1 = 1}) end, "beta1")
  local trainer = optim.Trainer({w}, "sgd")
  t.error_contains(function() trainer:step(0) end, "batch_size")
  t.error_contains(function() trainer:step(1, {ignore_stale = true}) end, "ignore_stale_grad")
  local net = nn.Dense(1)
  t.error_contains(function() optim.Trainer(net:collect_params(), "sgd"):step(1) end, "weight")
end)

t.test("a custom optimizer computes its own update", function()
  local SignSGD = optim.Optimizer:extend("SignSGD")
  SignSGD.options = {}
  function SignSGD:update(group)
    for i, w in ipairs(group.weights) do w:sub_(group.grads[i]:sign() * group.lr) end
  end
  local w, trainer = one_weight(SignSGD{learning_rate = 0.25})
  gradient(w, 7)
  trainer:step(1)
  t.close(w, {0.75, 0.75})
end)

t.test("parameters, gradients and the trainer's state survive pg.scope", function()
  local net, trainer
  pg.scope(function()
    net = nn.Dense(1, {in_units = 2}):initialize("ones")
    trainer = optim.Trainer(net, "sgd", {learning_rate = 1, momentum = 0.5})
  end)
  for _ = 1, 2 do
    pg.scope(function()
      pg.record(function() return net(pg.ones(1, 2)) end):backward()
      trainer:step(1)
    end)
  end
  t.close(net.weight, {{-1.5, -1.5}})
  t.equal(net.weight.grad:totable(), {{1, 1}})
end)

t.test("a scheduler is called for each update of a traced step, also after a step without updates", function()
  local function run(wrap)
    local asked, w = {}, pg.ones(2):attach_grad()
    local net = pg.nn.Dense(1, {in_units = 2})
    net:initialize(pg.init.Constant(0.5))
    local trainer = pg.optim.Trainer(net:collect_params(), "adam", {lr_scheduler = function(n)
      asked[n] = true
      return 0.1 / n
    end})
    local step = wrap(function(x)
      local l = pg.record(function() return (net(x) - 3):square():mean() + w:sum() end)
      l:backward()
      trainer:step(1, true)
      return l
    end)
    local losses = {}
    for _, request in ipairs{"write", "null", "write", "add", "write", "null", "null", "write"} do
      for _, p in pairs(net:collect_params()) do p.grad_req = request end
      losses[#losses + 1] = step(pg.ones(4, 2)):item()
    end
    return losses, asked
  end
  local plain, traced = {run(function(f) return f end)}, {run(pg.jit)}
  for i, loss in ipairs(plain[1]) do t.close(traced[1][i], loss, {rtol = 1e-6}) end
  for n in pairs(plain[2]) do t.check(traced[2][n], "update " .. n) end
end)
