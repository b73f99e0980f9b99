-- Parameter groups: each has its own rate and decay, eagerly, jitted and after a file.
local t = require "tests.support"
local pg = require "perigee"
local optim, nn = pg.optim, pg.nn

local function eager(f) return f end

local function weights() return pg.param(pg.tensor{1, -2}), pg.param(pg.tensor{3}) end

-- Returns a training step with gradients of ones.
local function stepper(trainer, jit, ...)
  local list = {...}
  return jit(function()
    pg.record(function()
      local sum = 0
      for _, w in ipairs(list) do sum = w:sum() + sum end
      return sum
    end):backward()
    trainer:step(1)
  end)
end

-- One step of SGD with a gradient of 1.
local function sgd(x, lr, wd) return x - lr * (1 + wd * x) end

t.test("each group has its own rate and decay", function()
  for way, jit in pairs{eager = eager, jit = pg.jit} do
    local a, b = weights()
    local trainer = optim.Trainer({{params = {a}}, {params = {b}, learning_rate = 0.5, wd = 0.2}}, "sgd", {learning_rate = 0.1, wd = 0.1})
    local step, x, y = stepper(trainer, jit, a, b), 1, 3
    local function check(lr_a, wd_a, lr_b, wd_b)
      step()
      x, y = sgd(x, lr_a, wd_a), sgd(y, lr_b, wd_b)
      t.close(a[1]:item(), x, {rtol = 1e-6, what = way})
      t.close(b:item(), y, {rtol = 1e-6, what = way})
    end
    check(0.1, 0.1, 0.5, 0.2)
    trainer:set_learning_rate(0.2)
    check(0.2, 0.1, 1, 0.2)
    local second = trainer.param_groups[2]
    second.lr_mult, second.wd = 0.1, 0
    check(0.2, 0.1, 0.02, 0)
    b.lr_mult, second.wd, second.wd_mult = 2, 0.3, 0.5
    check(0.2, 0.1, 0.04, 0.15)
    second.lr_mult, b.lr_mult, second.wd, second.wd_mult = 1, 1, nil, 1
    check(0.2, 0.1, 0.2, 0.1)
  end
end)

t.test("groups equal one trainer for each, with every kind of optimizer", function()
  for _, name in ipairs{"sgd", "adam", "lamb", "nadam"} do
    for way, jit in pairs{eager = eager, jit = pg.jit} do
      local a, b = weights()
      local c, d = weights()
      local both = optim.Trainer({{params = {a}}, {params = {b}, learning_rate = 0.05, wd = 0}}, name, {learning_rate = 0.1, wd = 0.1})
      local first, second = optim.Trainer({c}, name, {learning_rate = 0.1, wd = 0.1}), optim.Trainer({d}, name, {learning_rate = 0.05})
      local step, step1, step2 = stepper(both, jit, a, b), stepper(first, jit, c), stepper(second, jit, d)
      for _ = 1, 3 do step() step1() step2() end
      t.close(a, c:detach(), {rtol = 1e-6, what = name .. way})
      t.close(b, d:detach(), {rtol = 1e-6, what = name .. way})
    end
  end
end)

t.test("a schedule scales all groups", function()
  local a, b = weights()
  local schedule = optim.lr_scheduler.MultiFactor({1}, {factor = 0.1, base_lr = 1})
  local trainer = optim.Trainer({{params = {a}}, {params = {b}, learning_rate = 0.5}}, "sgd", {lr_scheduler = schedule})
  local step = stepper(trainer, pg.jit, a, b)
  step()
  step()
  t.close(a, {1 - 1 - 0.1, -2 - 1 - 0.1}, {rtol = 1e-6})
  t.close(b, {3 - 0.5 - 0.05}, {rtol = 1e-6})
end)

t.test("states of groups survive a file, whose paths do not collide", function()
  local function make()
    local body, head = nn.Dense(2, {in_units = 2}):initialize("ones"), nn.Dense(1, {in_units = 2}):initialize("ones")
    local trainer = optim.Trainer({{params = body}, {params = head:collect_params(), lr_mult = 0.5}}, "adam", {learning_rate = 0.1})
    return body, head, trainer, pg.jit(function(x)
      pg.record(function() return head(body(x)):square():sum() end):backward()
      trainer:step(1)
    end)
  end
  local body, head, trainer, step = make()
  local x, path = pg.tensor{{1, 2}}, t.tmp("groups.safetensors")
  for _ = 1, 2 do step(x) end
  trainer:save_states(path)
  local body2, head2, again, resumed = make()
  for key, p in body:parameters() do body2[key]:set_data(p:detach()) end
  for key, p in head:parameters() do head2[key]:set_data(p:detach()) end
  again:load_states(path)
  step(x)
  resumed(x)
  t.check(pg.equal(body.weight, body2.weight) and pg.equal(head.weight, head2.weight))
end)

t.test("wrong groups", function()
  local a, b = weights()
  local function fails(text, groups, options) t.error_contains(function() optim.Trainer(groups, "sgd", options) end, text) end
  fails("bad argument 'params[2]' (expected a group", {{params = {a}}, b})
  fails("is in group 1 too", {{params = {a}}, {params = {a, b}}})
  fails("'momentum'", {{params = {a}, momentum = 0.5}})
  fails("bad argument 'wd' (expected a number >= 0", {{params = {a}, wd = -1}})
  fails("bad argument 'learning_rate'", {{params = {a}, learning_rate = 0.1}}, {learning_rate = 0})
  fails("bad argument 'params", {{params = 3}})
end)

t.test("wrong fields of a group", function()
  local w = pg.param(pg.ones(2))
  local function step(change)
    local trainer = pg.optim.Trainer({{params = {w}}}, "sgd", {learning_rate = 0.1})
    change(trainer.param_groups[1])
    pg.record(function() return w:sum() end):backward()
    trainer:step(1)
  end
  t.error_contains(function() step(function(group) group.lr = 5 end) end, "param_groups[1].lr: a group has the fields lr_mult, wd and wd_mult")
  t.error_contains(function() step(function(group) group.learning_rate = 5 end) end, "param_groups[1].learning_rate")
  t.error_contains(function() step(function(group) group.lr_mult = "x" end) end, "param_groups[1].lr_mult")
  t.error_contains(function() step(function(group) group.wd = -1 end) end, "param_groups[1].wd")
  t.error_contains(function() pg.optim.Trainer({{params = {w}, learning_rate = 1, lr_mult = 2}}, "sgd") end, "learning_rate or lr_mult, not both")
end)

t.test("without groups all parameters are in one", function()
  for _, jit in ipairs{function(f) return f end, pg.jit} do
    local w, v = pg.param(pg.ones(2)), pg.param(pg.ones(2))
    v.lr_mult = 2
    local trainer = pg.optim.Trainer({w = w, v = v}, "sgd", {learning_rate = 0.5, wd = 1})
    local step = jit(function()
      pg.record(function() return (w + v):sum() end):backward()
      trainer:step(1)
    end)
    step()
    t.equal(#trainer.param_groups, 1)
    t.equal({w:totable(), v:totable()}, {{0, 0}, {-1, -1}})
    local group = trainer.param_groups[1]
    group.lr_mult, group.wd = 0.5, 0
    step()
    t.equal({w:totable(), v:totable()}, {{-0.25, -0.25}, {-1.5, -1.5}})
    group.lr = 1
    t.error_contains(step, "param_groups[1].lr: a group has the fields")
  end
  local Own = pg.optim.Trainer:extend("Own")
  t.equal(#Own({pg.param(pg.ones(2))}, "sgd").param_groups[1].params, 1)
end)
