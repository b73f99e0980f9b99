-- Loss scaling for gradients in float16 and bfloat16.
local core = ...
local args = core.require("support.args")
local class = core.require("support.class")
local tree = core.require("tree")
local param = core.require("param")
local sparse = core.require("sparse_grad")
local run_hooks = core.require("hybrid.run_hooks")
local ops = core.ops

--- pg.optim.LossScaler(trainer, {init_scale = 2 ^ 16, growth_factor = 2, backoff_factor = 0.5, growth_interval = 2000,
--- max_scale = 2 ^ 24}) scales losses, so that small gradients in float16 do not become 0 (Micikevicius et al. 2018; MXNet's
--- amp, PyTorch's GradScaler). Call scaler:scale(loss):backward(), then trainer:step(batch_size), in pg.jit too. The step
--- divides the gradients by the scale. If one of them is not finite, the step changes no parameter and no state of the
--- optimizer, and the scale is multiplied by backoff_factor. After growth_interval steps in a row that were not skipped it
--- is multiplied by growth_factor. trainer:save_states saves the scale too. A schedule counts skipped steps, a correction
--- such as Adam's does not.
--- Example: local w = pg.param(pg.tensor{1, 2}:to("float16"))
--- local trainer = pg.optim.Trainer({w}, "sgd", {learning_rate = 0.5, multi_precision = true})
--- local scaler = pg.optim.LossScaler(trainer, {init_scale = 1024})
--- scaler:scale(pg.record(function() return (w * w):sum() end)):backward()
--- trainer:step(1)
--- return w, scaler:value()
local LossScaler = class.new("LossScaler")

local spec = {init_scale = 2 ^ 16, growth_factor = 2, backoff_factor = 0.5, growth_interval = 2000, max_scale = 2 ^ 24}
local least_scale = 2 ^ -24

function LossScaler:init(trainer, options)
  if type(trainer) ~= "table" or rawget(trainer, "_entries") == nil or rawget(trainer, "_group") == nil then
    core.arg_error("LossScaler", "trainer", "a trainer made by pg.optim.Trainer", trainer)
  end
  if trainer.loss_scaler then core.fail("LossScaler", "the trainer has a loss scaler already: use trainer.loss_scaler") end
  local o = args.options("LossScaler", options, spec)
  args.number("LossScaler", "max_scale", o.max_scale, least_scale)
  args.number("LossScaler", "init_scale", o.init_scale, least_scale, o.max_scale)
  args.number("LossScaler", "growth_factor", o.growth_factor, 1)
  args.number("LossScaler", "backoff_factor", o.backoff_factor, 0, 1)
  args.count("LossScaler", "growth_interval", o.growth_interval, 1)
  self._options, self._unscaled = o, false
  local first = trainer._entries[1]
  -- The scale, the number of good steps since it changed, and the number of skipped steps.
  self.state = core.keep(ops.tensor({o.init_scale, 0, 0}, {dtype = "float64", device = first and param.device(first.tensor)}))
  self._trainer, trainer.loss_scaler = trainer, self
end

--- scaler:value() -> the scale, a 0-dim tensor.
function LossScaler:value()
  args.self("value", self, "scaler")
  return self.state[1]
end

-- The dtype in which x is scaled.
local function wide(x) return x.dtype == "float64" and "float64" or "float32" end

--- scaler:scale(loss) -> the loss multiplied by the scale, in at least float32. loss is a tensor or a tree of tensors.
function LossScaler:scale(loss)
  args.self("scale", self, "scaler")
  return tree.map(function(x)
    if not core.is_tensor(x) then core.arg_error("scale", "loss", "a tensor or a tree of tensors", x) end
    local dtype = wide(x)
    local function product() return x:to(dtype) * self.state[1]:to{dtype = dtype, device = x.device} end
    -- A loss that was recorded is scaled in the record, so that this call may come after it.
    return core.is_recorded(x) and core.pg.record(product, {train = core.is_training()}) or product()
  end, loss)
end

--- scaler:unscale() divides the gradients by the scale now and not in the step, for example before
--- pg.utils.clip_global_norm(grads, 1, {check_isfinite = false}). Call it once before a step.
function LossScaler:unscale()
  args.self("unscale", self, "scaler")
  if self._unscaled then core.fail("unscale", "the gradients are unscaled already (call it once before trainer:step)") end
  local function divided(grad)
    local dtype = wide(grad)
    return (grad:to(dtype) / self.state[1]:to{dtype = dtype, device = grad.device}):to(grad.dtype)
  end
  for _, entry in ipairs(self._trainer._entries) do
    local p = entry.tensor
    local rows = sparse.is(p)
    if rows then sparse.scale(p, divided) end  -- first, since in a trace it may write the gradient of p itself
    local request, fresh = core.grad_state(p)
    if (fresh or rows and sparse.is_partly_dense(p)) and request ~= "null" then sparse.own_grad(p):copy_(divided(sparse.own_grad(p))) end
  end
  self._unscaled = true
end

-- The rates of a step (see make_rates in trainer.lua) with the scale and without the skipped updates.
function LossScaler:adjust(rates)
  local state = self.state
  local rescale = self._unscaled and rates[4] or rates[4] / state[1]
  return ops.stack{rates[1], rates[2], (rates[3] - state[3]):clamp{min = 1}, rescale, rates:size(1) == 5 and rates[5] or nil}
end

local function all_finite(grads, n)
  local list = {}
  for i = 1, n do list[i] = grads[i]:isfinite():all() end
  return ops.stack(list):all()
end

-- Runs update() if all gradients of the group are finite, then moves the scale.
function LossScaler:guard(group, update)
  local finite, o = all_finite(group.grads, group.n), self._options
  if not core.tracing() then
    if finite:item() then update() end
  else
    core.pg.cond(finite, function() update() end, function() end)
  end
  local scale, good, skipped = self.state[1], self.state[2] + 1, self.state[3]
  local grown = good:ge(o.growth_interval)
  local up = ops.where(grown, (scale * o.growth_factor):clamp{max = o.max_scale}, scale)
  local down = (scale * o.backoff_factor):clamp{min = least_scale}
  self.state:copy_(ops.stack{
    ops.where(finite, up, down), ops.where(finite:logical_and(grown:logical_not()), good, 0), skipped + 1 - finite:to("float64"),
  })
  self._unscaled = false
  if run_hooks.tracing() and run_hooks.exporting() then run_hooks.name(self.state, "loss_scale") end
end

return LossScaler
