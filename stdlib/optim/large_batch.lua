-- Optimizers for large batches: the rate grows slowly, or follows the norms of each layer.
local core = ...
local args = core.require("support.args")
local define = core.require("optim.optimizer").define
local formulas = core.require("optim.formulas")
local average, correction, decayed, length, trust = formulas.average, formulas.correction, formulas.decayed, formulas.length, formulas.trust

--- pg.optim.LARS{learning_rate = 0.01, momentum = 0, eta = 0.001, eps = 0, momentum_correction = true, wd=, …}: SGD whose rate
--- follows the norms of each parameter (You, Gitman, Ginsburg 2017). The factor is eta * |w| / (|g| + wd * |w| + eps), or 1
--- for those named bias, gamma or beta. momentum_correction scales past steps to the current rate (Goyal et al. 2017).
--- Example: local w = pg.tensor({1, 2}):attach_grad()
--- pg.record(function() return (w * w):sum() end):backward()
--- pg.optim.Trainer({w}, pg.optim.LARS{learning_rate = 0.1, momentum = 0.9}):step(1)
--- return w
local LARS = define("LARS", {momentum = 0, eta = 0.001, eps = 0, momentum_correction = true}, {"momentum"})

LARS.needs_whole = true

function LARS:rule(w, g, state, h)
  local step = decayed(g, w, h.wd)
  if not (h.path:find("bias$") or h.path:find("gamma$") or h.path:find("beta$")) then
    local a, b = length(w), length(g)
    step = step * trust(a, b, (b + a * h.wd + self.eps) / self.eta)
  end
  -- Steps without the rate make up the corrected momentum: the current rate scales them all.
  local inside, outside = h.lr, 1
  if self.momentum_correction then inside, outside = 1, h.lr end
  state.momentum = state.momentum * self.momentum - step * inside
  return w + state.momentum * outside
end

--- pg.optim.LAMB{learning_rate = 0.001, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-6, lower_bound=, upper_bound=,
--- bias_correction = true, wd=, …}: Adam's step s with wd * w added, scaled by |w| / |s| (You et al. 2019). The bounds limit
--- |w| there.
--- Example: local w = pg.tensor({1, 2}):attach_grad()
--- pg.record(function() return (w * w):sum() end):backward()
--- pg.optim.Trainer({w}, pg.optim.LAMB{learning_rate = 0.1}):step(1)
--- return w
local LAMB = define("LAMB", {
  learning_rate = 0.001, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-6, lower_bound = args.none, upper_bound = args.none,
  bias_correction = true,
}, {"mean", "var"})

function LAMB:check()
  local low, high = self.lower_bound, self.upper_bound
  if low and high and low > high then core.arg_error(self.name, "upper_bound", "at least lower_bound = " .. low, high) end
end

LAMB.needs_whole = true

function LAMB:rule(w, g, state, h)
  state.mean, state.var = average(state.mean, g, self.beta1), average(state.var, g:square(), self.beta2)
  local mean, var = state.mean, state.var
  if self.bias_correction then
    mean, var = mean * (1 / correction(self.beta1, h.t)), var * (1 / correction(self.beta2, h.t))
  end
  local step = decayed(mean / (var:sqrt() + self.epsilon), w, h.wd)
  local a, b = length(w), length(step)
  if self.lower_bound or self.upper_bound then a = a:clamp{min = self.lower_bound, max = self.upper_bound} end
  return w - step * (trust(a, b, b) * h.lr)
end

local powers = {linear = 1, power2 = 2, sqrt = 0.5}

--- pg.optim.LBSGD{learning_rate = 0.01, momentum = 0, batch_scale = 1, warmup_strategy = "linear", "power2", "sqrt" or
--- "lars", warmup_epochs = 5, updates_per_epoch = 32, begin_epoch = 0, num_epochs = 60, wd=, …}: SGD that updates with the
--- mean of each batch_scale gradients. The rate grows to batch_scale times learning_rate during warmup_epochs (Goyal et al.
--- 2017). "lars" scales it by sqrt(|w| ^ 2 / (|g| ^ 2 + wd * |w| ^ 2)) in 0.01..100 instead (You, Gitman, Ginsburg 2017).
--- Example: local w = pg.tensor({1, 2}):attach_grad()
--- pg.record(function() return (w * w):sum() end):backward()
--- pg.optim.Trainer({w}, pg.optim.LBSGD{learning_rate = 0.1, batch_scale = 4}):step(1)
--- return w
local LBSGD = define("LBSGD", {
  momentum = 0, warmup_strategy = "linear", warmup_epochs = 5, batch_scale = 1, updates_per_epoch = 32, begin_epoch = 0, num_epochs = 60,
}, {"momentum", "sum"})

function LBSGD:check()
  args.choice(self.name, "warmup_strategy", self.warmup_strategy, {"linear", "power2", "sqrt", "lars"})
  args.count(self.name, "batch_scale", self.batch_scale, 1)
  for _, key in ipairs{"updates_per_epoch", "begin_epoch", "num_epochs"} do args.count(self.name, key, self[key]) end
end

-- Returns the factor of the learning rate at update n.
local function warm_up(self, n, w, g, wd)
  local power = powers[self.warmup_strategy]
  if not power then
    local a = w:square():sum()
    return (a / (g:square():sum() + a * wd + 1e-18)):sqrt():clamp(0.01, 100)
  end
  local updates = self.warmup_epochs * self.updates_per_epoch
  if updates == 0 then return self.batch_scale end
  return formulas.least(n / updates, 1) ^ power * (self.batch_scale - 1) + 1
end

LBSGD.needs_whole = true

function LBSGD:rule(w, g, state, h)
  local n = h.t + self.begin_epoch * self.updates_per_epoch
  local due = 0 ^ (n % self.batch_scale)  -- 1 if the remainder is 0, else 0
  local sum = state.sum + g
  local mean = sum / self.batch_scale
  local step = state.momentum * self.momentum - decayed(mean, w, h.wd) * (warm_up(self, n, w, mean, h.wd) * h.lr)
  state.sum, state.momentum = sum * (1 - due), state.momentum * (1 - due) + step * due
  return w + step * due
end
