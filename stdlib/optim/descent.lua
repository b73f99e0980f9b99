-- Variants of gradient descent, with MXNet's formulas.
local core = ...
local define = core.require("optim.optimizer").define
local formulas = core.require("optim.formulas")
local average, decayed, ops = formulas.average, formulas.decayed, core.ops

--- pg.optim.Signum{learning_rate = 0.01, momentum = 0.9, wd_lh = 0, wd=, …}: steps by the sign of the average
--- gradient (Bernstein et al. 2018). w = (1 - lr * wd_lh) * w - lr * sign(m), where m averages g + wd * w. Without momentum
--- it is signSGD: w = (1 - lr * wd) * w - lr * sign(g).
--- Example: local w = pg.tensor({1, 2}):attach_grad()
--- pg.record(function() return (w * w):sum() end):backward()
--- pg.optim.Trainer({w}, pg.optim.Signum{learning_rate = 0.1}):step(1)
--- return w
local Signum = define("Signum", {momentum = 0.9, wd_lh = 0})

function Signum:check()
  if self.momentum >= 1 then core.arg_error(self.name, "momentum", "a number in 0..1, less than 1", self.momentum) end
  self.states = self.momentum > 0 and {"momentum"} or {}
end

function Signum:rule(w, g, state, h)
  if self.momentum == 0 then return w * (1 - h.lr * h.wd) - g:sign() * h.lr end
  state.momentum = average(state.momentum, decayed(g, w, h.wd), self.momentum)
  return w * (1 - h.lr * self.wd_lh) - state.momentum:sign() * h.lr
end

--- pg.optim.SGLD{learning_rate = 0.01, wd=, …}: half a step of SGD and normal noise of variance lr, so that the weights become
--- samples of the posterior (Welling, Teh 2011).
--- Example: local w = pg.tensor({1, 2}):attach_grad()
--- pg.record(function() return (w * w):sum() end):backward()
--- pg.optim.Trainer({w}, pg.optim.SGLD{learning_rate = 0.1}):step(1)
--- return w
local SGLD = define("SGLD", {})

function SGLD:rule(w, g, _, h) return w - decayed(g, w, h.wd) * (h.lr / 2) + ops.randn_like(w) * h.lr ^ 0.5 end

--- pg.optim.DCASGD{learning_rate = 0.01, momentum = 0, lamda = 0.04, wd=, …}: SGD that compensates for gradients one update
--- late (Zheng et al. 2017). They become g + wd * w + lamda * g ^ 2 * (w - w_before).
--- Example: local w = pg.tensor({1, 2}):attach_grad()
--- pg.record(function() return (w * w):sum() end):backward()
--- pg.optim.Trainer({w}, pg.optim.DCASGD{learning_rate = 0.1}):step(1)
--- return w
local DCASGD = define("DCASGD", {momentum = 0, lamda = 0.04}, {"delta"})

-- In one process, w - w_before is the last step.
function DCASGD:rule(w, g, state, h)
  local late = decayed(g, w, h.wd) + g:square() * state.delta * self.lamda
  state.delta = state.delta * self.momentum - late * h.lr
  return w + state.delta
end

--- pg.optim.Test{…}: w = w + g, and the state "copy" is the new w. For tests of what surrounds an optimizer: it has no rate
--- and no decay (MXNet's optimizer of this name).
--- Example: local w = pg.tensor({1, 2}):attach_grad()
--- pg.record(function() return (w * w):sum() end):backward()
--- pg.optim.Trainer({w}, "test"):step(1)
--- return w
local Test = define("Test", {}, {"copy"})

function Test:rule(w, g, state)
  state.copy = w + g
  return state.copy
end
