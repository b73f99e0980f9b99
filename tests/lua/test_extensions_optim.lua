-- Optimizers and learning-rate schedulers of a script give the same numbers as plain Lua and jitted.
local t = require "tests.support"
local same = require "tests.plain_and_graph"
local pg = require "perigee"
local optim = pg.optim
local T = pg.tensor

-- Trains two tensors for four steps. between(trainer, w, v, i) is called after each.
local function train(jit, optimizer, between, prepare)
  local w, v = T{1, -2, 3}:attach_grad(), pg.param(T{0.5, 1, 2})
  if prepare then prepare(w, v) end
  local trainer = optim.Trainer({w, v}, optimizer)
  local step = jit(function(x)
    local l = pg.record(function() return (w * w * v * x):sum() end)
    l:backward()
    trainer:step(2)
    return l
  end)
  local out = {}
  for i = 1, 4 do
    out[i] = step(T{i * 0.1, 0.2, 0.3})
    if between then between(trainer, w, v, i) end
  end
  out[5], out[6] = w, v
  return out
end

-- An optimizer whose update calls update(self, group, i, w, g) for each weight.
local function kind(update, fields)
  local Mine = optim.Optimizer:extend("Mine")
  for key, value in pairs(fields or {}) do Mine[key] = value end
  function Mine:update(group)
    for i, w in ipairs(group.weights) do update(self, group, i, w, group.grads[i]) end
  end
  return Mine
end

local function at(value, i) return type(value) == "table" and value[i] or value end
local function descend(_, group, i, w, g) w:sub_(g * at(group.lr, i)) end

t.test("a custom optimizer reads the current lr, wd, t and rescale_grad", function()
  local rules = {
    lr = function(group, _, g) return g * group.lr end,
    rescale_grad = function(group, _, g) return g * group.rescale_grad * group.lr end,
    wd = function(group, w, g) return (g + w * group.wd) * group.lr end,
    t = function(group, _, g) return g * (group.lr / group.t) end,
    ["a power of t"] = function(group, _, g) return g * group.lr * (1 - 0.9 ^ group.t) ^ 0.5 end,
  }
  for name, rule in pairs(rules) do
    local Mine = kind(function(_, group, _, w, g) w:sub_(rule(group, w, g)) end)
    local found = same(function(jit)
      return train(jit, Mine{learning_rate = 0.1, wd = 0.3}, function(trainer, _, _, i) trainer:set_learning_rate(0.1 / i) end)
    end, {what = name})
    t.check(not found[5]:allclose(T{1, -2, 3}), name .. " trains nothing")
  end
end)

t.test("a custom optimizer has states, counters and fields", function()
  t.may_warn("traced again for the third time because trainer.optimizer.n")
  same(function(jit)
    local Momentum = kind(function(_, group, i, w, g)
      local m = group.m[i]
      m:copy_(m * 0.9 + g)
      w:sub_(m * group.lr)
    end, {states = {"m"}})
    return train(jit, Momentum{learning_rate = 0.1})
  end)
  same(function(jit)
    local Counting = kind(descend)
    local update = Counting.update
    function Counting:update(group)
      self.n = (self.n or 0) + 1
      self.sum = (self.sum or T(0)) + group.grads[1]:sum() * self.n
      update(self, group)
      group.weights[1]:sub_(self.sum * 0.01)
    end
    local optimizer = Counting{learning_rate = 0.1}
    local out = train(jit, optimizer)
    out[#out + 1], out[#out + 2] = T(optimizer.n), optimizer.sum
    return out
  end)
  same(function(jit)
    local Scaled = kind(function(self, group, _, w, g) w:sub_(g * group.lr * self.scale) end, {options = {scale = 0.5}})
    return train(jit, Scaled{learning_rate = 0.1, scale = 0.7}, function(trainer, _, _, i)
      if i == 2 then trainer.optimizer.scale = 0.9 end
    end)
  end)
end)

t.test("multipliers by parameter come as lists of tensors", function()
  same(function(jit) return train(jit, kind(descend){learning_rate = 0.1}, nil, function(_, v) v.lr_mult = 0.5 end) end)
  same(function(jit)
    return train(jit, kind(descend){learning_rate = 0.1}, function(_, _, v, i) v.lr_mult = i == 1 and 0.5 or 1 end)
  end)
  same(function(jit)  -- decay is zero at first, so that one number says it all
    local Decay = kind(function(_, group, i, w, g) w:sub_((g + w * at(group.wd, i)) * at(group.lr, i)) end)
    return train(jit, Decay{learning_rate = 0.1}, function(trainer, _, _, i) trainer.optimizer.wd = i * 0.1 end,
                 function(_, v) v.wd_mult = 0 end)
  end)
end)

t.test("a custom optimizer may use fused updates", function()
  same(function(jit)
    local Mine = optim.Optimizer:extend("Mine")
    function Mine:update(group) pg.sgd_update_(group.weights, group.grads, self:with(group)) end
    return train(jit, Mine{learning_rate = 0.1, wd = 0.2})
  end)
  same(function(jit)
    local Halved = optim.SGD:extend("Halved")
    function Halved:update(group)
      for i = 1, group.n do group.grads[i]:mul_(0.5) end
      return optim.SGD.update(self, group)
    end
    return train(jit, Halved{learning_rate = 0.1, momentum = 0.5})
  end)
end)

t.test("a custom optimizer trains other dtypes", function()
  for dtype, rtol in pairs{float64 = 1e-15, float16 = 1e-3} do
    same(function(jit)
      local w = T({1, 2}, {dtype = dtype}):attach_grad()
      local trainer = optim.Trainer({w}, kind(descend){learning_rate = 0.1})
      local step = jit(function(x)
        pg.record(function() return (w * x):sum() end):backward()
        trainer:step(1)
      end)
      for _ = 1, 3 do step(T({1, 2}, {dtype = dtype})) end
      return {w}
    end, {rtol = rtol, what = dtype})
  end
  same(function(jit)
    local w, v = T({1, 2}, {dtype = "float64"}):attach_grad(), T({1, 2}, {dtype = "float16"}):attach_grad()
    local trainer = optim.Trainer({w, v}, kind(descend){learning_rate = 0.1})
    local step = jit(function(x)
      pg.record(function() return ((w + v) * x):sum() end):backward()
      trainer:step(1)
    end)
    for _ = 1, 3 do step(T{1, 2}) end
    return {w, v}
  end, {rtol = 1e-3})
end)

t.test("a custom optimizer reads plain rates for float32 and float64 weights together", function()
  same(function(jit)
    local w, v = T({1, 2}, {dtype = "float64"}):attach_grad(), T{1, 2}:attach_grad()
    local Warm = kind(function(_, group, _, x, g)
      x:sub_((g + x * group.wd) * group.lr * group.rescale_grad / (1 + 0.9 ^ group.t))
      t.equal(x.dtype, g.dtype)
    end)
    local trainer = optim.Trainer({w, v}, Warm{learning_rate = 0.1, wd = 0.2})
    local step = jit(function(x)
      pg.record(function() return ((w + v) * x):sum() end):backward()
      trainer:step(1)
    end)
    for _ = 1, 3 do step(T{1, 2}) end
    t.equal({w.dtype, v.dtype}, {"float64", "float32"})
    return {w, v}
  end, {rtol = 1e-6})
end)

t.test("a step may depend on the count of updates through an op", function()
  t.skip_in("device", "an op of numbers gives a tensor on the CPU")
  same(function(jit)
    local First = kind(function(_, group, i, w, g)
      local m = group.m[i]
      m:copy_(pg.where(pg.eq(group.t, 1), g, m * 0.9 + g * 0.1))
      w:sub_(m * group.lr)
    end, {states = {"m"}})
    return train(jit, First{learning_rate = 0.1})
  end)
end)

t.test("custom schedulers are called once per update", function()
  local makers = {
    ["a function"] = function() return function(n) return 0.1 / n end end,
    ["a class"] = function()
      local Mine = optim.lr_scheduler.Scheduler:extend("Mine")
      function Mine:init() self.base_lr, self.warmup_steps = 0.2, 2 self.warmup_begin_lr, self.warmup_mode = 0, "linear" end
      function Mine:rate(n) return self.base_lr / n end
      return Mine()
    end,
    ["a counter in a local"] = function()
      local calls = 0
      return function()
        calls = calls + 1
        return 0.1 / calls
      end
    end,
    ["a counter in a field"] = function()
      return setmetatable({calls = 0}, {__call = function(self)
        self.calls = self.calls + 1
        return 0.1 / self.calls
      end})
    end,
  }
  for name, make in pairs(makers) do
    same(function(jit) return train(jit, optim.SGD{lr_scheduler = make()}) end, {what = name})
    same(function(jit) return train(jit, kind(descend){lr_scheduler = make()}) end, {what = name})
  end
  same(function(jit)
    local Mine = kind(descend, {rate = function(self, n)
      self.asked = (self.asked or 0) + 1
      return 0.1 * n / self.asked
    end})
    return train(jit, Mine())
  end)
end)

t.test("numbers are read once per call even when a graph is traced again", function()
  local function run(jit)
    local n, calls = 0, 0
    local w = T{1}:attach_grad()
    local trainer = optim.Trainer({w}, "sgd", {lr_scheduler = function()
      calls = calls + 1
      return 0.1 / calls
    end})
    local step = jit(function(x)
      local scale = pg.live(function()
        n = n + 1
        return n
      end)
      pg.record(function() return (w * x * x:size(1)):sum() end):backward()
      trainer:step(1)
      return w * scale
    end)
    local out = {}
    for i, rows in ipairs{2, 3, 4, 3, 2} do out[i] = step(pg.ones(rows)) end
    out[6], out[7] = T(n), T(calls)
    return out
  end
  same(run)
end)

t.test("learning_rate and set_learning_rate in the step", function()
  same(function(jit)
    local w = T{1, 2}:attach_grad()
    local trainer = optim.Trainer({w}, "sgd", {lr_scheduler = function(n) return 0.1 * n end})
    local step = jit(function(x)
      local before = trainer:learning_rate() + 0 * x
      pg.record(function() return (w * x):sum() end):backward()
      trainer:step(1)
      return before, w * trainer:learning_rate()
    end)
    local out = {}
    for _ = 1, 3 do out[#out + 1], out[#out + 2] = step(T{1, 2}) end
    return out
  end)
  same(function(jit)
    local w = T{1, 2}:attach_grad()
    local trainer = optim.Trainer({w}, "sgd", {learning_rate = 0.1})
    local step = jit(function(x, rate)
      local l = pg.record(function() return (w * x):sum() end)
      l:backward()
      trainer:set_learning_rate(rate)
      trainer:step(1)
      return l
    end)
    local out = {}
    for i, rate in ipairs{0.1, 0.2, 0.1, 0.2} do out[#out + 1], out[#out + 2] = step(T{i, 2}, rate), T(trainer:learning_rate()) end
    return out
  end)
end)
