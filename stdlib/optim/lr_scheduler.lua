-- pg.optim.lr_scheduler: learning rates as functions of the number of updates, with MXNet's formulas.
local core = ...
local args = core.require("support.args")
local class = core.require("support.class")
local schedulers = {}

--- pg.optim.lr_scheduler.Scheduler is the base class. Define rate(n), the learning rate at update n after the warm-up. All
--- schedulers take base_lr = 0.01, warmup_steps = 0, warmup_begin_lr = 0 and warmup_mode = "linear" or "constant".
local Scheduler = class.new("Scheduler")
schedulers.Scheduler = Scheduler

local function with_common(spec)
  spec.base_lr, spec.warmup_steps, spec.warmup_begin_lr, spec.warmup_mode = 0.01, 0, 0, "linear"
  return spec
end

local function check_common(self)
  local name = self.name
  args.number(name, "base_lr", self.base_lr, 0)
  args.count(name, "warmup_steps", self.warmup_steps)
  args.number(name, "warmup_begin_lr", self.warmup_begin_lr, 0)
  args.choice(name, "warmup_mode", self.warmup_mode, {"linear", "constant"})
  if self.warmup_begin_lr > self.base_lr then
    core.arg_error(name, "warmup_begin_lr", "at most base_lr = " .. self.base_lr, self.warmup_begin_lr)
  end
end

-- scheduler(n) -> the learning rate at update n. A Trainer counts updates from 1.
function Scheduler:__call(n)
  if type(n) ~= "number" then core.arg_error(self.name, "n", "the number of updates", n) end
  if n < (self.warmup_steps or 0) then
    if self.warmup_mode == "constant" then return self.warmup_begin_lr end
    return self.warmup_begin_lr + (self.base_lr - self.warmup_begin_lr) * n / self.warmup_steps
  end
  class.defined(self, "rate", "rate(n)")
  return self:rate(n)
end

--- scheduler:set_base_lr(v) sets the learning rate before any decay.
function Scheduler:set_base_lr(v)
  args.self("set_base_lr", self, "scheduler")
  self.base_lr = args.number(self.name, "base_lr", v, 0)
end

local function define(name, names, spec)
  local kind = Scheduler:extend(name .. "Scheduler")
  spec = with_common(spec)
  function kind:init(...)
    for key, value in pairs(args.read(self.name, names, spec, ...)) do self[key] = value end
    check_common(self)
    self:check()
  end
  schedulers[name], schedulers[name .. "Scheduler"] = kind, kind
  return kind
end

--- pg.optim.lr_scheduler.Factor(step, {factor = 1, stop_factor_lr = 1e-8, base_lr=, …}): multiplies the rate by factor after
--- each `step` updates, down to stop_factor_lr.
--- Example: local rate = pg.optim.lr_scheduler.Factor(10, {factor = 0.5, base_lr = 1})
--- return rate(10), rate(11)
local Factor = define("Factor", {"step", "factor", "stop_factor_lr"}, {step = args.required, factor = 1, stop_factor_lr = 1e-8})

function Factor:check()
  args.count(self.name, "step", self.step, 1)
  args.number(self.name, "factor", self.factor, 0, 1)
  args.number(self.name, "stop_factor_lr", self.stop_factor_lr, 0)
end

function Factor:rate(n)
  local times = math.max(0, math.ceil(n / self.step) - 1)
  return math.max(self.base_lr * self.factor ^ times, math.min(self.stop_factor_lr, self.base_lr))
end

--- pg.optim.lr_scheduler.MultiFactor({s1, s2, …}, {factor = 1, base_lr=, …}): multiplies the rate by factor after each of these
--- updates.
--- Example: local rate = pg.optim.lr_scheduler.MultiFactor({5, 8}, {factor = 0.1, base_lr = 1})
--- return rate(5), rate(6), rate(9)
local MultiFactor = define("MultiFactor", {"step", "factor"}, {step = args.required, factor = 1})

function MultiFactor:check()
  if type(self.step) ~= "table" or #self.step == 0 then core.arg_error(self.name, "step", "a list of update counts", self.step) end
  for i, step in ipairs(self.step) do
    args.count(self.name, "step", step, 1)
    if i > 1 and step <= self.step[i - 1] then core.arg_error(self.name, "step", "an increasing list", step) end
  end
  args.number(self.name, "factor", self.factor, 0, 1)
end

function MultiFactor:rate(n)
  local lr = self.base_lr
  for _, step in ipairs(self.step) do if n > step then lr = lr * self.factor end end
  return lr
end

-- Returns the share of the updates after the warm-up that are done, from 0 to 1.
local function progress(self, n)
  local steps = self.max_update - self.warmup_steps
  return math.min(1, (n - self.warmup_steps) / steps)
end

local function check_fall(self)
  args.count(self.name, "max_update", self.max_update, 1)
  args.number(self.name, "final_lr", self.final_lr, 0)
  if self.max_update <= self.warmup_steps then
    core.arg_error(self.name, "max_update", "more than warmup_steps = " .. self.warmup_steps, self.max_update)
  end
end

--- pg.optim.lr_scheduler.Poly(max_update, {base_lr=, pwr = 2, final_lr = 0, …}): decays to final_lr as (1 - progress) ^ pwr.
--- Example: local rate = pg.optim.lr_scheduler.Poly(100, {base_lr = 1})
--- return rate(0), rate(50), rate(100)
local Poly = define("Poly", {"max_update", "base_lr", "pwr", "final_lr"}, {max_update = args.required, pwr = 2, final_lr = 0})

function Poly:check()
  check_fall(self)
  args.number(self.name, "pwr", self.pwr, 0)
end

function Poly:rate(n) return self.final_lr + (self.base_lr - self.final_lr) * (1 - progress(self, n)) ^ self.pwr end

--- pg.optim.lr_scheduler.Cosine(max_update, {base_lr=, final_lr = 0, …}): decays to final_lr along half a cosine.
--- Example: local rate = pg.optim.lr_scheduler.Cosine(100, {base_lr = 1})
--- return rate(0), rate(50), rate(100)
local Cosine = define("Cosine", {"max_update", "base_lr", "final_lr"}, {max_update = args.required, final_lr = 0})
Cosine.check = check_fall

function Cosine:rate(n)
  return self.final_lr + (self.base_lr - self.final_lr) * (1 + math.cos(math.pi * progress(self, n))) / 2
end

--- pg.optim.lr_scheduler.OneCycle(max_update, {base_lr=, pct_start = 0.3, anneal_strategy = "cos" or "linear", div_factor = 25,
--- final_div_factor = 1e4, cycle_momentum = false, base_momentum = 0.85, max_momentum = 0.95}): one rise and fall (Smith
--- 2018), with PyTorch's names. The rate rises from base_lr / div_factor to base_lr in the share pct_start of the updates,
--- then falls to base_lr / div_factor / final_div_factor. With cycle_momentum the momentum of SGD and NAG, or beta1 of Adam
--- and AdamW, falls from max_momentum to base_momentum and rises again: scheduler:momentum(n) at update n.
--- Example: local rate = pg.optim.lr_scheduler.OneCycle(100, {base_lr = 1})
--- return rate(0), rate(30), rate(100), rate:momentum(30)
local OneCycle = define("OneCycle", {"max_update", "base_lr"}, {
  max_update = args.required, pct_start = 0.3, anneal_strategy = "cos", div_factor = 25, final_div_factor = 1e4,
  cycle_momentum = false, base_momentum = 0.85, max_momentum = 0.95,
})

function OneCycle:check()
  args.count(self.name, "max_update", self.max_update, 1)
  args.number(self.name, "pct_start", self.pct_start, 0, 1)
  args.choice(self.name, "anneal_strategy", self.anneal_strategy, {"cos", "linear"})
  for _, key in ipairs{"div_factor", "final_div_factor"} do
    if args.number(self.name, key, self[key], 0) == 0 then core.arg_error(self.name, key, "a number > 0", 0) end
  end
  args.boolean(self.name, "cycle_momentum", self.cycle_momentum)
  for _, key in ipairs{"base_momentum", "max_momentum"} do
    if args.number(self.name, key, self[key], 0) >= 1 then core.arg_error(self.name, key, "a number in 0..1, less than 1", self[key]) end
  end
  if self.warmup_steps ~= 0 then
    core.arg_error(self.name, "warmup_steps", "0, since the cycle begins with its own warm-up", self.warmup_steps)
  end
end

-- Returns the value at update n of what goes from `first` to `top` and then to `last`.
local function cycle(self, n, first, top, last)
  local function anneal(a, b, x)
    return self.anneal_strategy == "cos" and b + (a - b) * (1 + math.cos(math.pi * x)) / 2 or a + (b - a) * x
  end
  local x, turn = math.min(1, n / self.max_update), self.pct_start
  if x < turn then return anneal(first, top, x / turn) end
  return anneal(top, last, turn < 1 and (x - turn) / (1 - turn) or 0)
end

function OneCycle:rate(n)
  local first = self.base_lr / self.div_factor
  return cycle(self, n, first, self.base_lr, first / self.final_div_factor)
end

--- scheduler:momentum(n) -> the momentum at update n of a OneCycle.
function OneCycle:momentum(n)
  args.self("momentum", self, "scheduler")
  return cycle(self, args.number(self.name, "n", n), self.max_momentum, self.base_momentum, self.max_momentum)
end

--- pg.optim.lr_scheduler.Plateau{mode = "min" or "max", factor = 0.1, patience = 10, threshold = 1e-4, threshold_mode = "rel" or
--- "abs", cooldown = 0, min_lr = 0, base_lr=, …}: PyTorch's ReduceLROnPlateau; "rel" is a share of the best. Call
--- scheduler:step(metric) with a number or a tensor of one element, for example after each epoch: the rate is multiplied by
--- factor once more than `patience` calls in a row brought no metric better than the best by the threshold. Then `cooldown`
--- calls do not count. save_states of the trainer saves its state too.
--- Example: local rate = pg.optim.lr_scheduler.Plateau{patience = 0, factor = 0.5, base_lr = 1}
--- rate:step(2)
--- rate:step(2)
--- return rate(1)
local Plateau = define("Plateau", {}, {
  mode = "min", factor = 0.1, patience = 10, threshold = 1e-4, threshold_mode = "rel", cooldown = 0, min_lr = 0,
})
Plateau._saved = {"_best", "_bad", "_wait", "_scale"}

function Plateau:check()
  args.choice(self.name, "mode", self.mode, {"min", "max"})
  args.number(self.name, "factor", self.factor, 0, 1)
  args.count(self.name, "patience", self.patience)
  args.number(self.name, "threshold", self.threshold, 0)
  args.choice(self.name, "threshold_mode", self.threshold_mode, {"rel", "abs"})
  args.count(self.name, "cooldown", self.cooldown)
  args.number(self.name, "min_lr", self.min_lr, 0)
  self._best, self._bad, self._wait, self._scale = math.huge * (self.mode == "min" and 1 or -1), 0, 0, 1
end

local function is_better(self, metric)
  local best, margin = self._best, self.threshold
  if self.threshold_mode == "rel" then margin = margin * math.abs(best) end
  local worst = self.mode == "min" and math.huge or -math.huge
  if math.abs(best) == math.huge then return best == worst and metric == metric and metric ~= worst end
  if self.mode == "min" then return metric < best - margin end
  return metric > best + margin
end

-- Takes the latest value of the metric.
function Plateau:step(metric)
  args.self("step", self, "scheduler")
  if core.is_tensor(metric) then metric = metric:item() end
  if type(metric) ~= "number" then core.arg_error(self.name, "metric", "a number", metric) end
  if is_better(self, metric) then self._best, self._bad = metric, 0 else self._bad = self._bad + 1 end
  if self._wait > 0 then self._wait, self._bad = self._wait - 1, 0 end
  if self._bad > self.patience then self._scale, self._bad, self._wait = self._scale * self.factor, 0, self.cooldown end
end

function Plateau:rate() return math.max(self.base_lr * self._scale, math.min(self.min_lr, self.base_lr)) end

return core.require("support.namespace").seal("lr_scheduler", schedulers)
