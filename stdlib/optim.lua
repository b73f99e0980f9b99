-- pg.optim: the Trainer, optimizers and learning-rate schedulers.
local core = ...
local optim = {Trainer = core.require("optim.trainer"), lr_scheduler = core.require("optim.lr_scheduler")}

for name, value in pairs(core.require("optim.optimizer")) do optim[name] = value end

return core.require("support.namespace").seal("optim", optim)
