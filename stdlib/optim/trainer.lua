-- pg.optim.Trainer: applies an optimizer to a set of parameters.
local core = ...
local args = core.require("support.args")
local class = core.require("support.class")
local create = core.require("optim.create")
local Optimizer = core.require("optim.optimizer").Optimizer
local read_groups = core.require("optim.entries").read_groups
local states_of, multi_precision = core.require("optim.states"), core.require("optim.multi_precision")
local sparse_grad, sparse_rows = core.require("sparse_grad"), core.require("optim.sparse_rows")
local run_hooks = core.require("hybrid.run_hooks")
local ops, grad_state, mark_stale = core.ops, core.grad_state, core.mark_stale

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

--- pg.optim.Trainer(params, optimizer, options): params is net:collect_params(), a block, a table of tensors, or a list of
--- groups. optimizer is a name such as "sgd", with options {learning_rate=, momentum=, wd=, …}, or an optimizer object. Raises
--- for an unknown name or option, and for values of params that are no tensors.
---
--- A group is {params =, learning_rate=, wd=, lr_mult = 1, wd_mult = 1}, as in PyTorch: its parameters have this rate and
--- decay instead of the trainer's. The rate is stored as a multiple of the trainer's, so a schedule or set_learning_rate
--- changes the rates of all groups by the same factor. trainer.param_groups[i] has the fields lr_mult, wd and wd_mult,
--- which a script may set at any time; save_states does not save them. The fields lr_mult and wd_mult of each
--- parameter are factors too. Groups that differ in other options need one trainer each.
--- Example: local w = pg.param(pg.tensor{1, 2})
--- local trainer = pg.optim.Trainer({w = w}, "sgd", {learning_rate = 0.1})
--- pg.record(function() return (w * w):sum() end):backward()
--- trainer:step(1)
--- local v = pg.param(pg.tensor{1})
--- trainer = pg.optim.Trainer({{params = {w}}, {params = {v}, learning_rate = 0.01, wd = 0}}, "sgd", {learning_rate = 0.1, wd = 1e-4})
--- return w, trainer.param_groups[2].lr_mult
function Trainer:init(params, optimizer, options)
  if options ~= nil and type(options) ~= "table" then
    core.arg_error("Trainer", "options", "a table of options such as {learning_rate = 0.1}", options)
  end
  self._entries, self.param_groups = read_groups("Trainer", params)
  self.optimizer = create(optimizer, options)
  for _, group in ipairs(self.param_groups) do share_rate(self.optimizer, group) end
  self._updates, self.loss_scaler = 0, false
  self._group = {weights = {}, grads = {}, entries = {}, n = 0}
  self._lrs, self._wds, self._counts = {}, {}, {}
  for _, entry in ipairs(self._entries) do entry.count, entry.states = 0, {} end
end

Trainer.__tostring = function(self)
  return string.format("Trainer(%s, %d parameters, %d updates)", self.optimizer.name, #self._entries, self._updates)
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
  local request, fresh = grad_state(entry.tensor)
  if request ~= "null" and (fresh or sparse_grad.is(entry.tensor) and sparse_grad.is_fresh(entry.tensor)) then return true end
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

-- Returns one number if all values are equal, else the list.
local function condense(list, n)
  for i = n + 1, #list do list[i] = nil end
  for i = 2, n do if list[i] ~= list[1] then return list end end
  return list[1]
end

-- ahead: the number of earlier steps in the same trace that update the parameters, or a list with one number per
-- parameter.
local function set_rates(self, group, lr, ahead)
  local optimizer, lrs, wds, counts = self.optimizer, self._lrs, self._wds, self._counts
  local differ = type(ahead) == "table"
  for i, entry in ipairs(group.entries) do
    local own, wd, fields = lr, optimizer.wd, entry.fields
    local of = entry.group
    if of then own, wd = own * of.lr_mult, (of.wd or wd) * of.wd_mult end
    if fields then own, wd = own * fields.lr_mult, wd * fields.wd_mult end
    lrs[i], wds[i] = own, wd
    counts[i] = entry.count + 1 + (differ and ahead[i] or ahead)
  end
  local n = group.n
  group.lr, group.wd, group.t = condense(lrs, n), condense(wds, n), condense(counts, n)
end

local function count_up(self, group)
  for _, entry in ipairs(group.entries) do entry.count = entry.count + 1 end
  self._updates = self._updates + 1
end

local function at(value, i) return type(value) == "table" and value[i] or value end
local function is_list(value) return type(value) == "table" end

-- Returns a function that returns the learning rate of the update that is `ahead` updates later in a run of this trace.
-- A set_learning_rate earlier in the trace counts.
local function rate_reader(self, ahead)
  local optimizer, given = self.optimizer, run_hooks.notes(self).rate
  local function read()
    local n = self._updates + ahead
    if not given then return optimizer:rate(n) end
    local before = optimizer.learning_rate
    optimizer.learning_rate = given
    local ok, rate = xpcall(optimizer.rate, core.keep_traceback, optimizer, n)
    optimizer.learning_rate = before
    return ok and rate or core.reraise(rate)
  end
  local plain = optimizer.rate == Optimizer.rate
  return function()
    if plain and optimizer.lr_scheduler == nil then return given or optimizer.learning_rate end
    return run_hooks.ask(self, read)
  end
end

-- Writes the rows of rates of a group to a list, one after the other.
local function fill_columns(list, group, columns, rescale)
  for i = 1, columns do
    list[i], list[columns + i] = at(group.lr, i), at(group.wd, i)
    list[2 * columns + i], list[3 * columns + i] = at(group.t, i), rescale
    if group.cycled then list[4 * columns + i] = group.cycled end
  end
  return list
end

-- Makes the rates of a traced step: a tensor that is filled before each run. Its rows are the learning rate, decay, count
-- and factor of the gradients, and the momentum if a schedule changes it. It has one column, or one column per weight if a
-- rate differs between weights (`lists`).
local function make_rates(self, group, ahead, lists)
  local optimizer, read = self.optimizer, rate_reader(self, ahead + 1)
  local columns = (lists.lr or lists.wd or lists.t) and group.n or 1
  local count = optimizer:momentum_at(1) and 5 or 4
  local rates, numbers = core.number_table(count, columns), {}
  run_hooks.before_run(function()
    set_rates(self, group, read(), group.ahead)
    group.cycled = optimizer:momentum_at(self._updates + ahead + 1)
    if (group.cycled and 5 or 4) ~= count then return "the schedule of the momentum began or ended" end
    local lr, wd, t = group.lr, group.wd, group.t
    if (is_list(lr) and not lists.lr) or (is_list(wd) and not lists.wd) or (is_list(t) and not lists.t) then
      return "the learning rate, decay or update count now differs between parameters"
    end
    local rescale = optimizer.rescale_grad / group.batch_size
    if columns == 1 and count == 4 then return core.set_numbers(rates, lr, wd, t, rescale) end
    core.set_numbers(rates, unpack(fill_columns(numbers, group, columns, rescale), 1, count * columns))
  end)
  return rates
end

local rows = {lr = 1, wd = 2, t = 3, rescale_grad = 4}

-- Returns the dtype for a 0-dim rate that promotes no weight to another dtype, or nil if there is none.
local function common_dtype(weights)
  local first = weights[1] and weights[1].dtype or "float32"
  local equal, wide = true, true
  for _, w in ipairs(weights) do
    equal = equal and w.dtype == first
    wide = wide and (w.dtype == "float32" or w.dtype == "float64")
  end
  return equal and first or wide and "float32" or nil
end

-- Makes the rates readable as fields of a traced group, for optimizers of scripts: a 0-dim tensor, or a list with one
-- per weight.
local function read_rates(group, lists)
  return setmetatable(group, {__index = function(_, key)
    local row = rows[key]
    if not row then return nil end
    local dtype = common_dtype(group.weights)
    local function element(i)
      return group.rates[{row, lists[key] and i or 1}]:to(dtype or group.weights[i].dtype)
    end
    local value
    if lists[key] or not dtype then
      value = {}
      for i = 1, group.n do value[i] = element(i) end
    else value = element(1) end
    rawset(group, key, value)
    return value
  end})
end

local function numbers(list) return core.ops.tensor(list, {dtype = "float64", device = "cpu"}) end

-- The rates of a step that is exported: constants, but for the number of updates, which is a state of the graph.
local function exported_rates(self, group, lists)
  local optimizer, notes = self.optimizer, run_hooks.notes(self)
  if optimizer.lr_scheduler ~= nil or optimizer.rate ~= Optimizer.rate then
    core.fail("export", "the learning rate follows a schedule, which runs in Lua (use a constant rate in an exported step)")
  end
  set_rates(self, group, notes.rate or optimizer.learning_rate, group.ahead)
  if lists.t or (notes.last and group.t ~= notes.last + 1) then
    core.fail("export", "the parameters of one trainer have had different numbers of updates")
  end
  if not notes.last then
    notes.updates = core.number_table(1, 1)
    core.set_numbers(notes.updates, group.t - 1)
    run_hooks.name(notes.updates, "updates")
  end
  notes.last = group.t
  for _, entry in ipairs(self._entries) do
    run_hooks.name(entry.tensor, entry.path)
    for name, state in pairs(entry.states) do run_hooks.name(state, entry.path .. "." .. name) end
  end
  local columns = (lists.lr or lists.wd) and group.n or 1
  local lr, wd, rescale = {}, {}, {}
  for i = 1, columns do lr[i], wd[i], rescale[i] = at(group.lr, i), at(group.wd, i), optimizer.rescale_grad / group.batch_size end
  notes.updates:add_(1)
  return core.ops.stack{numbers(lr), numbers(wd), core.ops.expand(notes.updates:reshape{1}, {columns}), numbers(rescale)}
end

-- Runs the optimizer with a tensor of rates (see make_rates).
local function apply_rates(self, group, rates, lists)
  local optimizer, scaler = self.optimizer, self.loss_scaler
  local device = group.weights[1].device
  if device ~= "cpu" then rates = rates:to(device) end
  group.lr, group.wd, group.t, group.rescale_grad, group.cycled = nil, nil, nil, nil, nil
  group.rates = scaler and scaler:adjust(rates) or rates
  local function update()
    return (optimizer.multi_precision and multi_precision or optimizer.update)(optimizer, read_rates(group, lists))
  end
  core.finally(function()
    setmetatable(group, nil)
    group.rates = nil
  end, function()
    if scaler then return scaler:guard(group, update) end
    update()
  end)
end

-- An update with a loss scaler: the scale and the number of skipped updates are tensors, and so are the rates.
local function update_scaled(self, group)
  local lists = {lr = is_list(group.lr), wd = is_list(group.wd), t = is_list(group.t)}
  local columns = (lists.lr or lists.wd or lists.t) and group.n or 1
  apply_rates(self, group, numbers(fill_columns({}, group, columns, group.rescale_grad)):reshape{-1, columns}, lists)
end

-- An update in a traced function: the rates are filled before each run, and the counters advance after it.
local function update_traced(self, group, batch_size)
  local optimizer, notes = self.optimizer, run_hooks.notes(self)
  local ahead = notes.steps or 0
  notes.steps = ahead + 1
  local kept = {n = group.n, entries = {unpack(group.entries, 1, group.n)}, batch_size = batch_size}
  run_hooks.after_run(function() count_up(self, kept) end)
  if group.n == 0 then return end
  local before = {}
  for i, entry in ipairs(kept.entries) do
    local own = run_hooks.notes(entry)
    before[i], own.steps = own.steps or 0, (own.steps or 0) + 1
  end
  kept.ahead = condense(before, group.n)
  set_rates(self, kept, 1, kept.ahead)
  local lists = {lr = is_list(kept.lr), wd = is_list(kept.wd), t = is_list(kept.t)}
  local rates = run_hooks.exporting() and exported_rates(self, kept, lists) or make_rates(self, kept, ahead, lists)
  apply_rates(self, group, rates, lists)
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
    update_traced(self, group, batch_size)
  elseif group.n > 0 then
    set_rates(self, group, optimizer:rate(self._updates + 1), 0)
    group.cycled = optimizer:momentum_at(self._updates + 1)
    group.rescale_grad = optimizer.rescale_grad / batch_size
    if self.loss_scaler then update_scaled(self, group)
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
  return run_hooks.number(rate_reader(self, run_hooks.notes(self).steps or 0))
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

local function header(self) return "@optimizer." .. self.optimizer.name end

-- Returns the scheduler if it has a state of its own: the numbers in the fields that it lists in _saved.
local function saved_scheduler(self)
  local scheduler = self.optimizer.lr_scheduler
  return type(scheduler) == "table" and scheduler._saved and scheduler
end

--- trainer:save_states(path) writes the optimizer's state, and those of a scheduler and a LossScaler, to a safetensors file, atomically.
function Trainer:save_states(path)
  args.self("save_states", self, "trainer")
  args.string("save_states", "path", path)
  local tensors, counts = {}, {}
  for i, entry in ipairs(self._entries) do
    counts[i] = entry.count
    for name, state in pairs(entry.states) do tensors[name .. "." .. entry.path] = state end
  end
  counts[#counts + 1] = self._updates
  tensors["@counts"] = ops.tensor(counts, {dtype = "int64"})
  tensors[header(self)] = ops.tensor({self.optimizer.learning_rate}, {dtype = "float64"})
  local scheduler = saved_scheduler(self)
  if scheduler then
    local values = {}
    for i, field in ipairs(scheduler._saved) do values[i] = scheduler[field] end
    tensors["@scheduler"] = ops.tensor(values, {dtype = "float64"})
  end
  if self.loss_scaler then tensors["@loss_scale"] = self.loss_scaler.state end
  core.save_tensors(path, tensors, nil, "save_states")
end

local function check_counts(self, path, tensors)
  local rate, counts = tensors[header(self)], tensors["@counts"]
  if not rate or not counts then core.fail("load_states", "%s holds no state of %s", path, self.optimizer.name) end
  if counts.dtype ~= "int64" or counts:dim() ~= 1 or counts:numel() ~= #self._entries + 1 then
    core.fail("load_states", "%s holds the state of another set of parameters", path)
  end
  if rate.dtype ~= "float64" or rate:numel() ~= 1 then core.fail("load_states", "%s holds a bad learning rate", path) end
  counts = counts:totable()
  for _, count in ipairs(counts) do
    if type(count) ~= "number" or count < 0 then core.fail("load_states", "%s holds a bad update count", path) end
  end
  return counts, rate:reshape{1}:totable()[1]
end

--- trainer:load_states(path) reads the state that save_states wrote for the same optimizer and parameters. An error
--- changes nothing.
function Trainer:load_states(path)
  args.self("load_states", self, "trainer")
  args.string("load_states", "path", path)
  local tensors = core.load_tensors(path, true)
  local counts, rate = check_counts(self, path, tensors)
  local states, used = {}, {["@counts"] = true, [header(self)] = true}
  for i, entry in ipairs(self._entries) do
    states[i] = {}
    for _, name in ipairs(states_of.names(self.optimizer, entry.tensor)) do
      local key = name .. "." .. entry.path
      local state = tensors[key]
      if state then states[i][name], used[key] = states_of.check(path, self.optimizer, entry, name, state), true
      elseif counts[i] > 0 then core.fail("load_states", "%s lacks '%s'", path, key) end
    end
  end
  local scheduler, memory = saved_scheduler(self), tensors["@scheduler"]
  used["@scheduler"] = scheduler
  if scheduler and (not memory or memory.dtype ~= "float64" or memory:numel() ~= #scheduler._saved) then
    core.fail("load_states", "%s lacks the state of the scheduler", path)
  end
  local scaler, scale = self.loss_scaler, tensors["@loss_scale"]
  used["@loss_scale"] = scaler
  if scaler and (not scale or scale.dtype ~= "float64" or scale:numel() ~= 3) then
    core.fail("load_states", "%s lacks the state of the loss scaler", path)
  end
  for key in pairs(tensors) do
    if not used[key] then core.fail("load_states", "%s holds '%s', which this trainer does not have", path, tostring(key)) end
  end
  for i, entry in ipairs(self._entries) do entry.count, entry.states = counts[i], states[i] end
  self._updates = counts[#counts]
  self.optimizer.learning_rate = rate
  if scaler then scaler.state:copy_(scale:to(scaler.state.device)) end
  if scheduler then for i, value in ipairs(memory:reshape{-1}:totable()) do scheduler[scheduler._saved[i]] = value end end
end

return Trainer
