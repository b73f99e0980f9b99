-- Optimizers that divide by an average or sum of squared gradients, with MXNet's formulas.
local core = ...
local args = core.require("support.args")
local define = core.require("optim.optimizer").define
local formulas = core.require("optim.formulas")
local average, correction, decayed, ops = formulas.average, formulas.correction, formulas.decayed, core.ops

--- pg.optim.AdaGrad{learning_rate = 0.01, eps = 1e-7, wd=, …}: divides by the root of all squared gradients (Duchi, Hazan,
--- Singer 2011). history = history + g ^ 2, w = w - lr * (g / sqrt(history + eps) + wd * w).
--- Example: local w = pg.tensor({1, 2}):attach_grad()
--- pg.record(function() return (w * w):sum() end):backward()
--- pg.optim.Trainer({w}, pg.optim.AdaGrad{learning_rate = 0.1}):step(1)
--- return w
local AdaGrad = define("AdaGrad", {eps = 1e-7}, {"history"})

function AdaGrad:rule(w, g, state, h)
  state.history = state.history + g:square()
  return w - decayed(g / (state.history + self.eps):sqrt(), w, h.wd) * h.lr
end

--- pg.optim.GroupAdaGrad{learning_rate = 0.01, eps = 1e-5, …}: AdaGrad with one history for each row of a weight, the mean
--- of g ^ 2 in the row (MXNet's contrib.GroupAdaGrad). It has no weight decay.
--- Example: local w = pg.tensor({{1}, {2}}):attach_grad()
--- pg.record(function() return (w * w):sum() end):backward()
--- pg.optim.Trainer({w}, pg.optim.GroupAdaGrad{learning_rate = 0.1}):step(1)
--- return w
local GroupAdaGrad = define("GroupAdaGrad", {eps = 1e-5}, {"history"})

function GroupAdaGrad:check()
  if self.wd ~= 0 then core.arg_error(self.name, "wd", "0, since the optimizer has no weight decay", self.wd) end
end

GroupAdaGrad.state_shapes = {history = function(shape)
  local rows = {shape[1]}
  for i = 2, #shape do rows[i] = 1 end
  return rows
end}

function GroupAdaGrad:rule(w, g, state, h)
  local square, dims = g:square(), {}
  for i = 2, w:dim() do dims[#dims + 1] = i end
  state.history = state.history + (dims[1] and square:mean{dim = dims, keepdim = true} or square)
  return w - g / (state.history + self.eps):sqrt() * h.lr
end

--- pg.optim.AdaDelta{learning_rate = 1, rho = 0.9, epsilon = 1e-5, wd=, …}: finds the sizes of its steps (Zeiler 2012). The
--- step d is g times the root of the average of d ^ 2 over that of g ^ 2, w = w - lr * (d + wd * w).
--- Example: local w = pg.tensor({1, 2}):attach_grad()
--- pg.record(function() return (w * w):sum() end):backward()
--- pg.optim.Trainer({w}, pg.optim.AdaDelta()):step(1)
--- return w
local AdaDelta = define("AdaDelta", {learning_rate = 1, rho = 0.9, epsilon = 1e-5}, {"var", "delta"})

function AdaDelta:rule(w, g, state, h)
  state.var = average(state.var, g:square(), self.rho)
  local step = (state.delta + self.epsilon):sqrt() / (state.var + self.epsilon):sqrt() * g
  state.delta = average(state.delta, step:square(), self.rho)
  return w - decayed(step, w, h.wd) * h.lr
end

--- pg.optim.RMSProp{learning_rate = 0.001, gamma1 = 0.9, gamma2 = 0.9, epsilon = 1e-8, centered = false, clip_weights=,
--- wd=, …}: divides by the root of the average squared gradient (Tieleman, Hinton 2012). w = w - lr * g / sqrt(var +
--- epsilon), where var averages g ^ 2 with gamma1. centered subtracts the square of the average gradient from var, and
--- steps have the momentum gamma2 (Graves 2013). clip_weights bounds the size of each element of w.
--- Example: local w = pg.tensor({1, 2}):attach_grad()
--- pg.record(function() return (w * w):sum() end):backward()
--- pg.optim.Trainer({w}, pg.optim.RMSProp{learning_rate = 0.1, centered = true}):step(1)
--- return w
local RMSProp = define("RMSProp", {
  learning_rate = 0.001, gamma1 = 0.9, gamma2 = 0.9, epsilon = 1e-8, centered = false, clip_weights = args.none,
})
RMSProp.decay_in_gradient = true

function RMSProp:check() self.states = self.centered and {"var", "mean", "delta"} or {"var"} end

function RMSProp:rule(w, g, state, h)
  state.var = average(state.var, g:square(), self.gamma1)
  local var = state.var
  if self.centered then
    state.mean = average(state.mean, g, self.gamma1)
    var = (var - state.mean:square()):clamp{min = 0}  -- rounding may make it negative
  end
  local step = g / (var + self.epsilon):sqrt() * h.lr
  if self.centered then
    state.delta = state.delta * self.gamma2 - step
    step = -state.delta
  end
  w = w - step
  return self.clip_weights and w:clamp(-self.clip_weights, self.clip_weights) or w
end

--- pg.optim.AdaMax{learning_rate = 0.002, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, wd=, …}: Adam with the largest |g|,
--- which decays with beta2 (Kingma, Ba 2014). w = w - lr / (1 - beta1 ^ t) * mean / (max + epsilon).
--- Example: local w = pg.tensor({1, 2}):attach_grad()
--- pg.record(function() return (w * w):sum() end):backward()
--- pg.optim.Trainer({w}, pg.optim.AdaMax{learning_rate = 0.1}):step(1)
--- return w
local AdaMax = define("AdaMax", {learning_rate = 0.002, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8}, {"mean", "max"})
AdaMax.decay_in_gradient = true

function AdaMax:rule(w, g, state, h)
  state.mean = average(state.mean, g, self.beta1)
  state.max = ops.maximum(state.max * self.beta2, g:abs())
  return w - state.mean / (state.max + self.epsilon) * (h.lr / correction(self.beta1, h.t))
end

--- pg.optim.Nadam{learning_rate = 0.001, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, schedule_decay = 0.004, wd=, …}: Adam
--- with Nesterov's momentum (Dozat 2016). It follows the schedule beta1 * (1 - 0.5 * 0.96 ^ (t * schedule_decay)).
--- Each parameter has its own schedule; MXNet advances one for all of them.
--- Example: local w = pg.tensor({1, 2}):attach_grad()
--- pg.record(function() return (w * w):sum() end):backward()
--- pg.optim.Trainer({w}, pg.optim.Nadam{learning_rate = 0.1}):step(1)
--- return w
local Nadam = define("Nadam", {
  learning_rate = 0.001, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, schedule_decay = 0.004,
}, {"mean", "var", "schedule"})
Nadam.decay_in_gradient = true
Nadam.state_shapes = {schedule = function() return {} end}

function Nadam:rule(w, g, state, h)
  local function momentum(t) return (1 - 0.5 * 0.96 ^ (t * self.schedule_decay)) * self.beta1 end
  local now, after = momentum(h.t), momentum(h.t + 1)
  -- The state is 1 minus the product of all momenta, which starts at 0 and loses no digits.
  state.schedule = state.schedule * now + (1 - now)
  local following = state.schedule * after + (1 - after)
  state.mean, state.var = average(state.mean, g, self.beta1), average(state.var, g:square(), self.beta2)
  local step = g * ((1 - now) / state.schedule) + state.mean * (after / following)
  return w - step / ((state.var * (1 / correction(self.beta2, h.t))):sqrt() + self.epsilon) * h.lr
end
