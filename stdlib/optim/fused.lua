-- The optimizers that have an update op of their own, which updates all weights in one pass.
local core = ...
local define = core.require("optim.optimizer").define
local ops = core.ops

--- pg.optim.SGD{learning_rate = 0.01, momentum = 0, wd=, …}: m = momentum * m - lr * g, w = w + m, where g is the
--- rescaled, clipped gradient plus wd * w.
--- Example: local w = pg.tensor({1, 2}):attach_grad()
--- pg.record(function() return (w * w):sum() end):backward()
--- pg.optim.Trainer({w}, pg.optim.SGD{learning_rate = 0.1, momentum = 0.9}):step(1)
--- return w
local SGD = define("SGD", {momentum = 0})

SGD.cycled = "momentum"

-- The state tensors with and without momentum.
function SGD:check() self.states = self.momentum > 0 and {"momentum"} or {} end

function SGD:update(group)
  if self.momentum == 0 then return ops.sgd_update_(group.weights, group.grads, self:with(group)) end
  ops.sgd_momentum_update_(group.weights, group.grads, group.momentum, self:with(group))
end

--- pg.optim.NAG{learning_rate = 0.01, momentum = 0, wd=, …}: SGD with the momentum of Nesterov (1983).
--- Example: local w = pg.tensor({1, 2}):attach_grad()
--- pg.record(function() return (w * w):sum() end):backward()
--- pg.optim.Trainer({w}, pg.optim.NAG{learning_rate = 0.1, momentum = 0.9}):step(1)
--- return w
local NAG = define("NAG", {momentum = 0})
NAG.check, NAG.cycled = SGD.check, "momentum"

function NAG:update(group)
  if self.momentum == 0 then return ops.sgd_update_(group.weights, group.grads, self:with(group)) end
  ops.nag_update_(group.weights, group.grads, group.momentum, self:with(group))
end

--- pg.optim.Adam{learning_rate = 0.001, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, wd=, …}: steps by the mean over the
--- root of the mean square of gradients (Kingma, Ba 2014). As in MXNet, epsilon is outside of the bias correction, and
--- wd * w is added to the gradient.
--- Example: local w = pg.tensor({1, 2}):attach_grad()
--- pg.record(function() return (w * w):sum() end):backward()
--- pg.optim.Trainer({w}, pg.optim.Adam{learning_rate = 0.1}):step(1)
--- return w
local Adam = define("Adam", {learning_rate = 0.001, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8}, {"mean", "var"})

Adam.cycled = "beta1"

function Adam:update(group) ops.adam_update_(group.weights, group.grads, group.mean, group.var, self:with(group)) end

--- pg.optim.AdamW{learning_rate = 0.001, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, wd=, …}: Adam with decoupled
--- weight decay w = w - lr * wd * w, as in PyTorch (Loshchilov, Hutter 2019).
--- Example: local w = pg.tensor({1, 2}):attach_grad()
--- pg.record(function() return (w * w):sum() end):backward()
--- pg.optim.Trainer({w}, pg.optim.AdamW{learning_rate = 0.1, wd = 0.01}):step(1)
--- return w
local AdamW = define("AdamW", {learning_rate = 0.001, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8}, {"mean", "var"})

AdamW.cycled = "beta1"

function AdamW:update(group) ops.adamw_update_(group.weights, group.grads, group.mean, group.var, self:with(group)) end
