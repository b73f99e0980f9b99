-- One-cycle and plateau schedules.
local t = require "tests.support"
local pg = require "perigee"
local optim = pg.optim
local schedules = optim.lr_scheduler

t.test("a cycle rises to the base rate, then falls below its start", function()
  local rate = schedules.OneCycle(10, {base_lr = 2, pct_start = 0.4, anneal_strategy = "linear", div_factor = 4, final_div_factor = 5})
  local expected = {[0] = 0.5, 0.875, 1.25, 1.625, 2}
  for n = 5, 10 do expected[n] = 2 + (0.1 - 2) * (n - 4) / 6 end
  expected[11] = 0.1
  for n = 0, 11 do t.close(rate(n), expected[n], {rtol = 1e-12, what = n}) end
  rate = schedules.OneCycle(100, {base_lr = 1})
  t.close(rate(0), 1 / 25, {rtol = 1e-12})
  t.close(rate(15), (1 + 1 / 25) / 2, {rtol = 1e-12})
  t.close(rate(30), 1, {rtol = 1e-12})
  t.close(rate(65), (1 + 1 / 25e4) / 2, {rtol = 1e-12})
  t.close(rate(100), 1 / 25e4, {rtol = 1e-9})
  t.close(schedules.OneCycle(10, {base_lr = 1, pct_start = 1})(10), 1)
  t.close(schedules.OneCycle(10, {base_lr = 1, pct_start = 0})(0), 1)
  t.check(schedules.OneCycleScheduler == schedules.OneCycle)
end)

t.test("the momentum of a cycle falls and rises as PyTorch's, eagerly and jitted", function()
  local function schedule(options)
    local o = {base_lr = 0.1, pct_start = 0.5, anneal_strategy = "linear", cycle_momentum = true, base_momentum = 0.8, max_momentum = 0.9}
    for key, value in pairs(options or {}) do o[key] = value end
    return schedules.OneCycle(4, o)
  end
  local rate = schedule()
  for n, expected in pairs{[0] = 0.9, 0.85, 0.8, 0.85, 0.9, 0.9} do t.close(rate:momentum(n), expected, {rtol = 1e-12, what = n}) end
  -- Each case: the step of one weight w with the gradient 1.
  local cases = {
    sgd = function(s, lr, m) s.m = m * (s.m or 0) - lr return s.m end,
    nag = function(s, lr, m) s.m = m * (s.m or 0) - lr return m * s.m - lr end,
    adam = function(s, lr, m, n)
      s.m, s.v = m * (s.m or 0) + 1 - m, 0.999 * (s.v or 0) + 0.001
      return -lr * math.sqrt(1 - 0.999 ^ n) / (1 - m ^ n) * s.m / (math.sqrt(s.v) + 1e-8)
    end,
  }
  cases.adamw = cases.adam
  for name, reference in pairs(cases) do
    for _, mult in ipairs{1, 0.5} do
      for _, scaled in ipairs{false, true} do
        for way, jit in pairs{eager = function(f) return f end, jit = pg.jit} do
          local w, v = pg.param(pg.tensor({1}, {dtype = "float64"})), pg.param(pg.tensor({1}, {dtype = "float64"}))
          v.lr_mult = mult
          local momentum = not name:find("adam") and 0.5 or nil
          local trainer = optim.Trainer({w, v}, name, {lr_scheduler = schedule(), momentum = momentum})
          local scaler = scaled and optim.LossScaler(trainer)
          local step = jit(function()
            local loss = pg.record(function() return (w + v):sum() end)
            if scaler then loss = scaler:scale(loss) end
            loss:backward()
            trainer:step(1)
          end)
          local s, x = {}, 1
          for n = 1, 5 do
            step()
            x = x + reference(s, rate(n), rate:momentum(n), n)
            t.close(w, {x}, {rtol = 1e-6, what = name .. " " .. way .. " " .. n})
            t.close(v, {1 + (x - 1) * mult}, {rtol = 1e-6, what = name .. " " .. way .. " " .. n})
          end
        end
      end
    end
  end
  t.error_contains(function() optim.SGD{lr_scheduler = schedule()} end, "SGD: bad argument 'lr_scheduler' (expected one without cycle_momentum")
  t.error_contains(function() optim.RMSProp{lr_scheduler = schedule()} end, "lr_scheduler")
  t.error_contains(function() schedule{max_momentum = 1} end, "max_momentum")
  t.error_contains(function() schedule{cycle_momentum = 1} end, "cycle_momentum")
end)

-- PyTorch's loop, for positive metrics: the rate after each metric.
local function reference(o, metrics)
  local lr, best, bad, wait, out = o.base_lr, o.mode == "min" and math.huge or -math.huge, 0, 0, {}
  for i, x in ipairs(metrics) do
    local better
    if o.mode == "min" then better = x < (o.threshold_mode == "rel" and best * (1 - o.threshold) or best - o.threshold)
    else better = x > (o.threshold_mode == "rel" and best * (1 + o.threshold) or best + o.threshold) end
    if better then best, bad = x, 0 else bad = bad + 1 end
    if wait > 0 then wait, bad = wait - 1, 0 end
    if bad > o.patience then lr, wait, bad = math.max(lr * o.factor, o.min_lr), o.cooldown, 0 end
    out[i] = lr
  end
  return out
end

t.test("a plateau lowers the rate as PyTorch's", function()
  for _, mode in ipairs{"min", "max"} do
    for _, threshold_mode in ipairs{"rel", "abs"} do
      for patience = 0, 2 do
        for cooldown = 0, 2 do
          local o = {mode = mode, threshold_mode = threshold_mode, patience = patience, cooldown = cooldown, factor = 0.5,
                     threshold = 0.05, min_lr = 0.03, base_lr = 1}
          local metrics = {}
          for i = 1, 40 do metrics[i] = 1.5 + math.sin(i * 1.3) * 0.2 + (mode == "min" and 1 or -1) / i end
          local rate, expected = schedules.Plateau(o), reference(o, metrics)
          for i, x in ipairs(metrics) do
            rate:step(x)
            t.close(rate(i), expected[i], {rtol = 1e-12, what = i})
          end
        end
      end
    end
  end
end)

t.test("metrics are numbers or tensors; NaN is never better", function()
  local rate = schedules.Plateau{patience = 0, factor = 0.5, base_lr = 1}
  rate:step(pg.tensor(2))
  rate:step(0 / 0)
  t.equal(rate(1), 0.5)
  rate:step(pg.tensor{1})
  t.equal(rate(1), 0.5)
  rate:set_base_lr(4)
  t.equal(rate(1), 2)
end)

local function make(path)
  local w = pg.param(pg.tensor{4, -2})
  local scheduler = schedules.Plateau{patience = 0, factor = 0.5, base_lr = 0.1}
  local trainer = optim.Trainer({w}, "rmsprop", {lr_scheduler = scheduler})
  if path then trainer:load_states(path) end
  local step = pg.jit(function()
    local l = pg.record(function() return (w * w):sum() end)
    l:backward()
    trainer:step(1)
    return l
  end)
  return w, scheduler, trainer, step
end

t.test("a jitted step follows both, and states keep the plateau", function()
  local w, scheduler, trainer, step = make()
  for _ = 1, 3 do scheduler:step(step() + 100) end
  for _ = 1, 2 do scheduler:step(200) end
  t.equal(trainer:learning_rate(), 0.025)
  local path = t.tmp("s.safetensors")
  trainer:save_states(path)
  local v, again, other, resumed = make(path)
  v:set_data(w:detach())
  for _ = 1, 3 do
    step()
    resumed()
    scheduler:step(150)
    again:step(150)
  end
  t.check(pg.equal(v, w))
  t.equal(other:learning_rate(), trainer:learning_rate())
  t.error_contains(function() optim.Trainer({w}, "rmsprop"):load_states(path) end, "@scheduler")
  optim.Trainer({w}, "rmsprop"):save_states(path)
  t.error_contains(function() trainer:load_states(path) end, "lacks the state of the scheduler")
  local x = pg.param(pg.tensor{1})
  local rate = schedules.OneCycle(4, {base_lr = 1, pct_start = 0.5, anneal_strategy = "linear", div_factor = 2})
  local cycle = optim.Trainer({x}, "sgd", {lr_scheduler = rate})
  local descend = pg.jit(function()
    pg.record(function() return x:sum() end):backward()
    cycle:step(1)
  end)
  for _ = 1, 2 do descend() end
  t.close(x, {1 - 0.75 - 1}, {rtol = 1e-6})
end)

t.test("wrong arguments of schedules", function()
  t.error_contains(function() schedules.OneCycle() end, "max_update")
  t.error_contains(function() schedules.OneCycle(10, {pct_start = 2}) end, "OneCycleScheduler: bad argument 'pct_start'")
  t.error_contains(function() schedules.OneCycle(10, {div_factor = 0}) end, "div_factor")
  t.error_contains(function() schedules.OneCycle(10, {anneal_strategy = "cosine"}) end, '"cos", "linear"')
  t.error_contains(function() schedules.OneCycle(10, {warmup_steps = 2}) end, "its own warm-up")
  t.error_contains(function() schedules.Plateau{mode = "least"} end, '"min", "max"')
  t.error_contains(function() schedules.Plateau{patience = -1} end, "patience")
  t.error_contains(function() schedules.Plateau():step() end, "bad argument 'metric' (expected a number")
  t.error_contains(function() return schedules.ReduceLROnPlateau end, "lr_scheduler.Plateau()")
end)

t.test("no metric is better than an infinite one that was measured", function()
  local plateau = schedules.Plateau{mode = "max", patience = 0, factor = 0.1, base_lr = 1}
  local rates = {}
  for i, metric in ipairs{1, math.huge, 0.5, 0.4} do
    plateau:step(metric)
    rates[i] = plateau(1)
  end
  t.close(pg.tensor(rates), pg.tensor{1, 1, 0.1, 0.01})
end)
