-- Optimizers: the options of their fused update ops, and the state per weight.
local core = ...
local args = core.require("support.args")
local choose = core.require("support.namespace").choose
local class = core.require("support.class")
local ops = core.ops
local optimizers = {}

--- pg.optim.Optimizer is the base class. A subclass lists the names of its state tensors in `states` and defines
--- update(group). group holds the lists weights, grads and one list of tensors per state, their length n, lr, wd and t
--- (the number of updates, including this one), each a number or a list with one per weight, and the numbers
--- rescale_grad and clip_gradient. In a step that pg.jit or hybridize traces, lr, wd, t and rescale_grad are 0-dim
--- tensors that are filled before each run. Use ops on them: `w:sub_(g * group.lr)` and `(1 - 0.9 ^ group.t) ^ 0.5`,
--- not math.sqrt or a Lua `if`. Lua compares a tensor and a number as different without calling the library, so
--- `group.t == 1` is always false in a trace: write `pg.where(pg.eq(group.t, 1), g, m)`. The tensors have the dtype of
--- the weights, or float32 if some weights are float32 and some float64. Other mixtures get lists. self:with(group)
--- returns the options of a fused update op such as pg.sgd_update_, in a trace too. All optimizers take learning_rate,
--- wd = 0, rescale_grad = 1, clip_gradient and lr_scheduler.
local Optimizer = class.new("Optimizer")
optimizers.Optimizer = Optimizer
Optimizer.states = {}
-- Trainer reads these before each run, so they are not guarded.
Optimizer._untraced = {learning_rate = true, wd = true, rescale_grad = true, lr_scheduler = true, rate = true, _options = true}

Optimizer._optional = {clip_gradient = true, lr_scheduler = true, learning_rate = true, momentum = true, options = true}

local common = {wd = 0, rescale_grad = 1, clip_gradient = args.none, lr_scheduler = args.none, learning_rate = args.none}

local function check_common(self)
  local name = self.name
  args.number(name, "wd", self.wd, 0)
  args.number(name, "rescale_grad", self.rescale_grad)
  if self.clip_gradient ~= nil then args.number(name, "clip_gradient", self.clip_gradient, 0) end
  if self.lr_scheduler ~= nil then
    args.callable(name, "lr_scheduler", self.lr_scheduler)
    local set = type(self.lr_scheduler) == "table" and self.lr_scheduler.set_base_lr
    if set and self.learning_rate ~= nil then set(self.lr_scheduler, self.learning_rate) end
  end
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
  if self.check then self:check() end
end

Optimizer.default_rate = 0.01

--- optimizer:rate(n) -> the learning rate at update n.
function Optimizer:rate(n)
  local scheduler = self.lr_scheduler
  if scheduler == nil then return self.learning_rate end
  return args.number(self.name, "lr_scheduler", scheduler(n))
end

local function define(name, options, default_rate)
  local kind = Optimizer:extend(name)
  kind.options, kind.default_rate = options, default_rate
  optimizers[name] = kind
  return kind
end

local function check_share(self, key)
  local value = args.number(self.name, key, self[key], 0, 1)
  if value == 1 then core.arg_error(self.name, key, "a number in 0..1, less than 1", value) end
end

--- pg.optim.SGD{learning_rate = 0.01, momentum = 0, wd=, …}: m = momentum * m - lr * g, w = w + m, where g is the
--- rescaled, clipped gradient plus wd * w.
local SGD = define("SGD", {momentum = 0}, 0.01)

function SGD:check()
  args.number(self.name, "momentum", self.momentum, 0)
  self.states = self.momentum > 0 and {"momentum"} or {}
end

function SGD:update(group)
  if self.momentum == 0 then return ops.sgd_update_(group.weights, group.grads, self:with(group)) end
  ops.sgd_momentum_update_(group.weights, group.grads, group.momentum, self:with(group))
end

--- pg.optim.NAG{learning_rate = 0.01, momentum = 0, wd=, …}: SGD with Nesterov's momentum.
local NAG = define("NAG", {momentum = 0}, 0.01)
NAG.check = SGD.check

function NAG:update(group)
  if self.momentum == 0 then return ops.sgd_update_(group.weights, group.grads, self:with(group)) end
  ops.nag_update_(group.weights, group.grads, group.momentum, self:with(group))
end

local function check_adam(self)
  check_share(self, "beta1")
  check_share(self, "beta2")
  args.number(self.name, "epsilon", self.epsilon, 0)
end

--- pg.optim.Adam{learning_rate = 0.001, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, wd=, …}. As in MXNet, epsilon is
--- outside of the bias correction, and wd * w is added to the gradient.
local Adam = define("Adam", {beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8}, 0.001)
Adam.check, Adam.states = check_adam, {"mean", "var"}

function Adam:update(group) ops.adam_update_(group.weights, group.grads, group.mean, group.var, self:with(group)) end

--- pg.optim.AdamW{learning_rate = 0.001, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, wd=, …}: Adam with decoupled
--- weight decay w = w - lr * wd * w, as in PyTorch.
local AdamW = define("AdamW", {beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8}, 0.001)
AdamW.check, AdamW.states = check_adam, {"mean", "var"}

function AdamW:update(group) ops.adamw_update_(group.weights, group.grads, group.mean, group.var, self:with(group)) end

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
  if self.momentum == 0 then options.momentum = nil end
  return options
end

local by_name = {sgd = "SGD", nag = "NAG", adam = "Adam", adamw = "AdamW"}

--- pg.optim.create(name or optimizer, options) -> an optimizer.
function optimizers.create(value, options)
  if type(value) == "string" then
    local found = by_name[value:lower()]
    if not found then
      core.fail("Trainer", "unknown optimizer '%s'%s", value, choose("optimizer", value:lower(), by_name))
    end
    return optimizers[found](options)
  end
  if class.is(value, Optimizer) then
    if options ~= nil and next(options) ~= nil then
      core.arg_error("Trainer", "options", "nil, since the optimizer has its own options", options)
    end
    return value
  end
  if type(value) == "table" and rawget(value, "super") and value.update then return value(options) end
  core.arg_error("Trainer", "optimizer", "an optimizer or its name", value)
end

return optimizers
