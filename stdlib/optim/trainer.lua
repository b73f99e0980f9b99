-- pg.optim.Trainer: applies an optimizer to a set of parameters.
local core = ...
local args = core.require("support.args")
local class = core.require("support.class")
local create = core.require("optim.create")
local param = core.require("param")
local entries = core.require("optim.entries")
local states_of, multi_precision = core.require("optim.states"), core.require("optim.multi_precision")
local sparse_grad, sparse_rows = core.require("sparse_grad"), core.require("optim.sparse_rows")
local rates, run_hooks = core.require("optim.rates"), core.require("hybrid.run_hooks")
local grad_state, mark_stale = core.grad_state, core.mark_stale

local Trainer = class.new("Trainer")
Trainer._kind = "Trainer"

-- Fields that the trainer itself updates around each run of a traced step, or that do not change the graph; see
-- hybrid/library.lua.
Trainer._untraced = {
  _updates = true, count = true, _group = true, _lrs = true, _wds = true, _counts = true, states = "shallow",
  path = true, shape = true, init = true, name = true, pending = true, lr_mult = true, wd_mult = true, wd = true,
}

-- Turns the learning rate of a group into a factor of the trainer's rate.
local function share_rate(optimizer, group)
  local own, scheduler = group.learning_rate, optimizer.lr_scheduler
  if not own then return end
  local base = type(scheduler) == "table" and scheduler.base_lr or optimizer.learning_rate
  if base == 0 then core.arg_error("Trainer", "learning_rate", "a rate > 0 of the trainer, of which a group's rate is a multiple", base) end
  group.lr_mult, group.learning_rate = group.lr_mult * own / base, nil
end

local function check_store(kvstore, compression_params, update_on_kvstore)
  if kvstore ~= nil and kvstore ~= "local" and kvstore ~= "device" then
    core.arg_error("Trainer", "kvstore", '"local", "device" or nil, since a trainer updates the parameters of one process', kvstore)
  end
  if compression_params ~= nil then
    core.arg_error("Trainer", "compression_params", "nil, since no gradients are sent", compression_params)
  end
  if update_on_kvstore ~= nil then args.boolean("Trainer", "update_on_kvstore", update_on_kvstore) end
end

--- pg.optim.Trainer(params, optimizer, options[, kvstore[, compression_params[, update_on_kvstore]]]): params is
--- net:collect_params(), a block, a table of tensors, or a list of groups. optimizer is a name such as "sgd", with options
--- {learning_rate=, momentum=, wd=, …}, or an optimizer object. Raises for an unknown name or option, and for values of
--- params that are no tensors.
---
--- A group is {params =, learning_rate=, wd=, lr_mult = 1, wd_mult = 1}, as in PyTorch: its parameters have this rate and
--- decay instead of the trainer's. The rate is stored as a multiple of the trainer's, so a schedule or set_learning_rate
--- changes the rates of all groups by the same factor. trainer.param_groups[i] has the fields lr_mult, wd and wd_mult,
--- which a script may set at any time; save_states does not save them. Without groups all parameters are in
--- trainer.param_groups[1]. The fields lr_mult and wd_mult of each parameter are factors too. Groups that differ in other
--- options need one trainer each.
---
--- kvstore, compression_params and update_on_kvstore are Gluon's. A trainer updates its parameters in this process, so
--- kvstore = "local" or "device" changes nothing, and what a store of several machines would do is an error.
--- Example: local w = pg.param(pg.tensor{1, 2})
--- local trainer = pg.optim.Trainer({w = w}, "sgd", {learning_rate = 0.1})
--- pg.record(function() return (w * w):sum() end):backward()
--- trainer:step(1)
--- local v = pg.param(pg.tensor{1})
--- trainer = pg.optim.Trainer({{params = {w}}, {params = {v}, learning_rate = 0.01, wd = 0}}, "sgd", {learning_rate = 0.1, wd = 1e-4})
--- return w, trainer.param_groups[2].lr_mult
function Trainer:init(params, optimizer, options, kvstore, compression_params, update_on_kvstore)
  if options ~= nil and type(options) ~= "table" then
    core.arg_error("Trainer", "options", "a table of options such as {learning_rate = 0.1}", options)
  end
  check_store(kvstore, compression_params, update_on_kvstore)
  local groups
  self._entries, groups = entries.read_groups("Trainer", params)
  if groups or getmetatable(self) ~= Trainer then self.param_groups = groups or entries.one_group(self._entries) end
  self.optimizer = create(optimizer, options)
  for _, group in ipairs(groups or {}) do share_rate(self.optimizer, group) end
  self._updates, self.loss_scaler = 0, false
  self._group = {weights = {}, grads = {}, entries = {}, n = 0}
  self._lrs, self._wds, self._counts = {}, {}, {}
  for _, entry in ipairs(self._entries) do entry.count, entry.states = 0, {} end
  param.followers[self] = true
end

-- The group of a trainer without groups is made when a script asks for it, so that steps need not look at it.
local find = Trainer.__index
function Trainer.__index(self, key)
  if key ~= "param_groups" or not rawget(self, "_entries") then return find(self, key) end
  local groups = entries.one_group(self._entries)
  rawset(self, key, groups)
  return groups
end

Trainer.__tostring = function(self)
  return string.format("Trainer(%s, %d parameters, %d updates)", self.optimizer.name, #self._entries, self._updates)
end

function Trainer:_follow(p)
  for _, entry in ipairs(self._entries) do if entry.tensor == p then states_of.follow(self.optimizer, entry) end end
  if self.loss_scaler and self._entries[1].tensor == p then param.follow(p, self.loss_scaler.state, "float64") end
end

-- Whether to skip a parameter that has no new gradient. Raises if that is an error.
local function is_idle(entry, ignore_stale)
  local p = entry.tensor
  if entry.fields and entry.fields.grad_req == "null" then return true end
  if not core.has_value(p) then
    core.fail("Trainer", "parameter '%s' has no value (initialize the block and call it once)", entry.path)
  end
  local request = grad_state(p)
  if request == nil or request == "null" or ignore_stale then return true end
  core.fail("Trainer", "the gradient of '%s' is stale: no backward reached it since the last step "
            .. "(call backward on the loss before step, or pass ignore_stale_grad = true to skip such parameters)", entry.path)
end

-- Whether this step updates the parameter.
local function is_due(entry, ignore_stale)
  local rows = sparse_grad.is(entry.tensor) and sparse_grad.is_fresh(entry.tensor)
  local request, fresh = grad_state(entry.tensor)
  if request ~= "null" and (fresh or rows) then return true end
  return not is_idle(entry, ignore_stale)
end

-- Fills the group with what the optimizer updates in this step. The lists are reused from step to step.
local function refill(self, ignore_stale)
  local states, group = states_of.names(self.optimizer), self._group
  local before, n = #group.weights, 0
  for _, name in ipairs(states) do group[name] = group[name] or {} end
  for _, entry in ipairs(self._entries) do
    if is_due(entry, ignore_stale) then
      states_of.make(self.optimizer, entry)
      n = n + 1
      local p = entry.tensor
      group.weights[n], group.grads[n], group.entries[n] = p, not sparse_grad.is(p) and p.grad, entry
      for _, name in ipairs(states) do group[name][n] = entry.states[name] end
      sparse_rows.take(self.optimizer, group, n, states)
    end
  end
  for i = n + 1, before do
    group.weights[i], group.grads[i], group.entries[i] = nil, nil, nil
    for _, name in ipairs(states) do group[name][i] = nil end
  end
  group.n = n
  return group
end

local function count_up(self, group)
  for _, entry in ipairs(group.entries) do entry.count = entry.count + 1 end
  self._updates = self._updates + 1
end

local step_options = {ignore_stale_grad = false}

--- trainer:update(batch_size[, {ignore_stale_grad = false}]) updates the parameters with their gradients divided by
--- batch_size.
function Trainer:update(batch_size, opts)
  args.self("update", self, "trainer")
  if batch_size == nil then core.fail("step", "bad argument 'batch_size' (expected a number, got nil; write trainer:step(x:size(1)))") end
  args.number("step", "batch_size", batch_size)
  if batch_size <= 0 then core.arg_error("step", "batch_size", "a number > 0", batch_size) end
  local ignore = false
  if opts ~= nil then
    if type(opts) == "boolean" then opts = {ignore_stale_grad = opts} end
    ignore = args.boolean("step", "ignore_stale_grad", args.options("step", opts, step_options).ignore_stale_grad)
  end
  local optimizer, group = self.optimizer, refill(self, ignore)
  group.clip_gradient = optimizer.clip_gradient
  local traced = run_hooks.tracing()
  if traced then
    rates.update_traced(self, group, batch_size, count_up)
  elseif group.n > 0 then
    rates.set(self, group, optimizer:rate(self._updates + 1), 0)
    group.cycled = optimizer:momentum_at(self._updates + 1)
    group.rescale_grad = optimizer.rescale_grad / batch_size
    if self.loss_scaler then rates.update_scaled(self, group)
    elseif optimizer.multi_precision then multi_precision(optimizer, group) else optimizer:update(group) end
  end
  sparse_rows.put_back(group)
  for _, entry in ipairs(group.entries) do mark_stale(entry.tensor) end
  if not traced then count_up(self, group) end
end

--- trainer:allreduce_grads() sums gradients over devices. With one device it does nothing.
function Trainer:allreduce_grads() args.self("allreduce_grads", self, "trainer") end

--- trainer:step(batch_size[, {ignore_stale_grad = false}]) runs allreduce_grads, then update. Raises if backward has
--- not written the gradient of a parameter since the last step, unless ignore_stale_grad is true. Gradients are divided
--- by batch_size, a number > 0. To accumulate gradients over n batches, set grad_req = "add" on the parameters, call
--- backward n times, step with the size of all n batches, then set the gradients to zeros with params:zero_grad().
--- Example: local w = pg.param(pg.tensor{1, 2})
--- local trainer = pg.optim.Trainer({w = w}, "sgd", {learning_rate = 0.5})
--- pg.record(function() return (w * w):sum() end):backward()
--- trainer:step(2)
--- return w
function Trainer:step(batch_size, opts)
  args.self("step", self, "trainer")
  self:allreduce_grads()
  return self:update(batch_size, opts)
end

--- trainer:learning_rate() -> the current learning rate. In a traced function it is a 0-dim tensor that is filled
--- before each run.
function Trainer:learning_rate()
  args.self("learning_rate", self, "trainer")
  if not run_hooks.tracing() then return self.optimizer:rate(self._updates) end
  return run_hooks.number(rates.reader(self, run_hooks.notes(self).steps or 0))
end

--- trainer:set_learning_rate(v) sets the learning rate. Raises if the optimizer has a scheduler.
function Trainer:set_learning_rate(v)
  args.self("set_learning_rate", self, "trainer")
  args.number("set_learning_rate", "v", v, 0)
  local optimizer = self.optimizer
  if optimizer.lr_scheduler ~= nil then
    core.fail("set_learning_rate", "the optimizer has an lr_scheduler, which sets the learning rate")
  end
  if not run_hooks.tracing() then
    optimizer.learning_rate = v
    return
  end
  run_hooks.notes(self).rate = v
  run_hooks.after_run(function() optimizer.learning_rate = v end)
end

for name, method in pairs(core.require("optim.trainer_files")) do Trainer[name] = method end

return Trainer
