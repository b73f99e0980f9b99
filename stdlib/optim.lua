-- pg.optim: the Trainer, optimizers and learning-rate schedulers.
local core = ...
local base, averages = core.require("optim.optimizer"), core.require("optim.weight_average")
local optim = {
  Trainer = core.require("optim.trainer"), Optimizer = base.Optimizer, create = core.require("optim.create"),
  lr_scheduler = core.require("optim.lr_scheduler"), EMA = averages.EMA, SWA = averages.SWA, LossScaler = core.require("optim.loss_scaler"),
}

for name, value in pairs(base.defined) do optim[name] = value end

return core.require("support.namespace").seal("optim", optim)
