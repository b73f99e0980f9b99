-- The base class of optimizers, and their registration.
local core = ...
local args = core.require("support.args")
local class = core.require("support.class")
local apply = core.require("optim.rule")

--- pg.optim.Optimizer is the base class. A subclass lists the names of its state tensors in `states` and defines the
--- update of one weight, written once with ops: rule(w, g, state, h) returns the new weight and stores new tensors in
--- the fields of state, which are zeros before the first update. g is the gradient, rescaled and clipped. With
--- decay_in_gradient = true, wd * w is already in g, and the sum is clipped; else the rule applies h.wd. The fields of h
--- are lr, wd and t (the number of updates, including this one): numbers, or in a step that pg.jit or hybridize
--- traces 0-dim tensors that are filled before each run, so write `h.lr ^ 0.5`, not math.sqrt or a Lua `if`. wd is the
--- number 0 if no weight decays; the step is traced again when that changes. h.path is the parameter's name. float16 and bfloat16 weights come as float32. state_shapes maps the name of a state to a function
--- from the weight's shape to the state's, if it differs. All optimizers take learning_rate, wd = 0, rescale_grad = 1,
--- clip_gradient, lr_scheduler, multi_precision = false and lazy_update = true; a subclass lists more in `options`, with
--- defaults. With lazy_update = false a sparse gradient (nn.Embedding) updates all rows.
--- multi_precision keeps the states of float16 and bfloat16 weights in float32, and what their rounding takes away, so
--- that small updates add up. To scale the loss by a factor, also pass rescale_grad = 1 / factor.
---
--- A subclass may define update(group) instead, for all weights at once. group holds the lists weights, grads and one
--- list of tensors per state, their length n, lr, wd and t, each a number or a list with one per weight, and the numbers
--- rescale_grad and clip_gradient. In a trace lr, wd, t and rescale_grad are 0-dim tensors. Lua compares a tensor and a
--- number as different without calling the library, so `group.t == 1` is always false in a trace: write
--- `pg.where(pg.eq(group.t, 1), g, m)`. The tensors have the dtype of the weights, or float32 if some weights are float32
--- and some float64. Other mixtures get lists. self:with(group) returns the options of a fused update op such as
--- pg.sgd_update_, in a trace too.
--- Example: local SignDescent = pg.optim.Optimizer:extend("SignDescent")
--- function SignDescent:rule(w, g, state, h) return w - g:sign() * h.lr end
--- local w = pg.param(pg.tensor{1, -2})
--- local trainer = pg.optim.Trainer({w}, SignDescent{learning_rate = 0.5})
--- pg.record(function() return (w * w):sum() end):backward()
--- trainer:step(1)
--- return w
local Optimizer = class.new("Optimizer")
Optimizer.states, Optimizer.state_shapes, Optimizer._compiles = {}, {}, false
-- Trainer reads these before each run, so they are not guarded.
Optimizer._untraced = {learning_rate = true, wd = true, rescale_grad = true, lr_scheduler = true, rate = true, _options = true}

Optimizer._optional = {
  clip_gradient = true, lr_scheduler = true, learning_rate = true, momentum = true, options = true, rule = true, decay_in_gradient = true, divides_by_rate = true,
  multi_precision = true, cycled = true, needs_whole = true, lazy_update = true,
}

local common = {
  wd = 0, rescale_grad = 1, clip_gradient = args.none, lr_scheduler = args.none, learning_rate = args.none, multi_precision = false,
  lazy_update = true,
}

-- A schedule may change the option that `cycled` names.
local function check_cycle(self)
  local key = self.cycled
  if self:momentum_at(1) and (not key or self[key] == 0) then
    core.arg_error(self.name, "lr_scheduler", "one without cycle_momentum, since the optimizer has no momentum", self.lr_scheduler)
  end
end

local function check_common(self)
  local name = self.name
  args.number(name, "wd", self.wd, 0)
  args.number(name, "rescale_grad", self.rescale_grad)
  args.boolean(name, "multi_precision", self.multi_precision)
  args.boolean(name, "lazy_update", self.lazy_update)
  if self.clip_gradient ~= nil then args.number(name, "clip_gradient", self.clip_gradient, 0) end
  if self.lr_scheduler ~= nil then
    args.callable(name, "lr_scheduler", self.lr_scheduler)
    local set = type(self.lr_scheduler) == "table" and self.lr_scheduler.set_base_lr
    if set and self.learning_rate ~= nil then set(self.lr_scheduler, self.learning_rate) end
  end
end

-- Averages over time: these options are in 0..1 and less than 1.
local shares = {beta1 = true, beta2 = true, gamma1 = true, gamma2 = true, rho = true}

-- Checks an option of one of the library's optimizers by the type of its default.
local function check_option(self, key, default)
  local value = self[key]
  if type(default) == "boolean" then return args.boolean(self.name, key, value) end
  if type(default) == "string" or value == nil and default == args.none then return end
  args.number(self.name, key, value, 0, shares[key] and 1)
  if shares[key] and value == 1 then core.arg_error(self.name, key, "a number in 0..1, less than 1", value) end
end

--- Optimizer:init(options) reads the options that all optimizers share and those that the class lists in `options`.
function Optimizer:init(options, more)
  if more ~= nil or type(options) == "table" and not args.plain(options) then
    core.fail(self.name, "an optimizer takes a table of options (a Trainer holds the parameters: write optim.Trainer(params, \"%s\", {learning_rate = 0.1}))",
              self.name:lower())
  end
  if type(options) == "number" then
    core.fail(self.name, "bad argument 'options' (expected a table of options, got number %g; write optim.%s{learning_rate = %g})",
              options, self.name, options)
  end
  local spec = {}
  for key, value in pairs(common) do spec[key] = value end
  for key, value in pairs(self.options or {}) do spec[key] = value end
  for key, value in pairs(args.options(self.name, options, spec)) do self[key] = value end
  check_common(self)
  if self.learning_rate == nil then self.learning_rate = self.default_rate end
  args.number(self.name, "learning_rate", self.learning_rate, 0)
  for key, default in pairs(self._defined or {}) do
    if self.options[key] ~= nil then check_option(self, key, default) end  -- a script's subclass may have others
  end
  if self.check then self:check() end
  check_cycle(self)
end

Optimizer.default_rate = 0.01

--- optimizer:rate(n) -> the learning rate at update n.
function Optimizer:rate(n)
  local scheduler = self.lr_scheduler
  if scheduler == nil then return self.learning_rate end
  return args.number(self.name, "lr_scheduler", scheduler(n))
end

-- The momentum at update n, or nil if no schedule changes it.
function Optimizer:momentum_at(n)
  local scheduler = self.lr_scheduler
  return type(scheduler) == "table" and rawget(scheduler, "cycle_momentum") and scheduler:momentum(n) or nil
end

--- optimizer:update(group) applies the optimizer's rule to each weight of the group.
function Optimizer:update(group)
  if not self.rule then
    core.fail(self.name, "the class has no update (define %s:rule(w, g, state, h), which returns the new w)", self.name)
  end
  apply(self, group)
end

--- optimizer:with(group) -> the options of a fused update op. In a trace they hold the rates as one tensor.
function Optimizer:with(group)
  local options = self._options
  if not options then
    options = {}
    self._options = options
  end
  local rates = group.rates
  options.rates = rates
  if rates then options.lr, options.wd, options.t, options.rescale_grad = 0, 0, 1, 1
  else options.lr, options.wd, options.t, options.rescale_grad = group.lr, group.wd, group.t, group.rescale_grad end
  options.clip_gradient = group.clip_gradient
  for key in pairs(self.options or {}) do options[key] = self[key] end
  if group.cycled then options[self.cycled] = group.cycled end
  if self.momentum == 0 then options.momentum = nil end
  return options
end

local defined = {}

-- define(name, options[, states]) -> a class of the library, which checks its options. The default of learning_rate in
-- options is the default rate. Options with the default args.none are numbers or nil.
local function define(name, options, states)
  local kind = Optimizer:extend(name)
  kind._defined, kind.states, kind._compiles = options, states or {}, name
  kind.default_rate, options.learning_rate = options.learning_rate or Optimizer.default_rate, nil
  kind.options, kind._optional = options, setmetatable({}, {__index = Optimizer._optional})
  for key, default in pairs(options) do kind._optional[key] = default == args.none or nil end
  defined[name] = kind
  return kind
end

return {Optimizer = Optimizer, define = define, defined = defined}
