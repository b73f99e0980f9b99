-- Optimizers that follow the regularized leader: the weight is the minimum of all past steps' bounds together.
local core = ...
local define = core.require("optim.optimizer").define
local formulas = core.require("optim.formulas")
local average, correction, ops = formulas.average, formulas.correction, core.ops

--- pg.optim.Ftrl{learning_rate = 0.1, lamda1 = 0.01, beta = 1, wd=, …}: sparse weights for a large lamda1 (McMahan et al.
--- 2013). z = z + g - (sqrt(n + g ^ 2) - sqrt(n)) * w / lr, n = n + g ^ 2, w = 0 where |z| <= lamda1, else
--- (sign(z) * lamda1 - z) / ((beta + sqrt(n)) / lr + wd).
--- Example: local w = pg.tensor({1, 2}):attach_grad()
--- pg.record(function() return (w * w):sum() end):backward()
--- pg.optim.Trainer({w}, pg.optim.Ftrl{learning_rate = 0.5}):step(1)
--- return w
local Ftrl = define("Ftrl", {learning_rate = 0.1, lamda1 = 0.01, beta = 1}, {"z", "squares"})
Ftrl.divides_by_rate = true

function Ftrl:rule(w, g, state, h)
  local squares = state.squares + g:square()
  local root = squares:sqrt()
  local z = state.z + g - (root - state.squares:sqrt()) / h.lr * w
  state.z, state.squares = z, squares
  return ops.where(z:abs():gt(self.lamda1), (z:sign() * self.lamda1 - z) / ((root + self.beta) / h.lr + h.wd), 0)
end

--- pg.optim.FTML{learning_rate = 0.01, beta1 = 0.6, beta2 = 0.999, epsilon = 1e-8, wd=, …}: follows the moving
--- leader (Zheng, Kwok 2017). d = (1 - beta1 ^ t) / lr * (sqrt(var / (1 - beta2 ^ t)) + epsilon), z averages
--- g - (d - beta1 * d_before) / (1 - beta1) * w, w = -z / d.
--- Example: local w = pg.tensor({1, 2}):attach_grad()
--- pg.record(function() return (w * w):sum() end):backward()
--- pg.optim.Trainer({w}, pg.optim.FTML{learning_rate = 0.1}):step(1)
--- return w
local FTML = define("FTML", {beta1 = 0.6, beta2 = 0.999, epsilon = 1e-8}, {"d", "var", "z"})
FTML.decay_in_gradient, FTML.divides_by_rate = true, true

function FTML:rule(w, g, state, h)
  state.var = average(state.var, g:square(), self.beta2)
  local d = ((state.var / correction(self.beta2, h.t)):sqrt() + self.epsilon) * (correction(self.beta1, h.t) / h.lr)
  state.z = average(state.z, g, self.beta1) - (d - state.d * self.beta1) * w
  state.d = d
  return -state.z / d
end
