-- The learning rate, decay and count of each parameter in a step: numbers, or in a traced step, or with a loss scaler, a
-- tensor of them.
local core = ...
local args = core.require("support.args")
local multi_precision = core.require("optim.multi_precision")
local Optimizer = core.require("optim.optimizer").Optimizer
local run_hooks = core.require("hybrid.run_hooks")
local rates = {}

-- Returns one number if all values are equal, else the list.
local function condense(list, n)
  for i = n + 1, #list do list[i] = nil end
  for i = 2, n do if list[i] ~= list[1] then return list end end
  return list[1]
end

local group_fields = {params = true, learning_rate = true, lr_mult = true, wd = true, wd_mult = true}

-- Checks what a script has set in the groups of a trainer.
local function check_groups(groups)
  for i, group in ipairs(groups) do
    for key, value in next, group do
      if not group_fields[key] or key == "learning_rate" then
        core.fail("Trainer", "param_groups[%d].%s: a group has the fields lr_mult, wd and wd_mult (lr_mult is a multiple of the trainer's learning rate)",
                  i, tostring(key))
      end
      if key ~= "params" then args.number("Trainer", ("param_groups[%d].%s"):format(i, key), value, 0) end
    end
  end
end

--- rates.set(trainer, group, lr, ahead) sets lr, wd and t of the group. ahead: the number of earlier steps in the same trace
--- that update the parameters, or a list with one number per parameter.
function rates.set(self, group, lr, ahead)
  local optimizer, lrs, wds, counts = self.optimizer, self._lrs, self._wds, self._counts
  local differ = type(ahead) == "table"
  local groups = rawget(self, "param_groups")
  if groups then check_groups(groups) end
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

local function at(value, i) return type(value) == "table" and value[i] or value end
local function is_list(value) return type(value) == "table" end

--- rates.reader(trainer, ahead) -> a function that returns the learning rate of the update that is `ahead` updates later in
--- a run of this trace. A set_learning_rate earlier in the trace counts.
function rates.reader(self, ahead)
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

--- rates.fixed(group, rescale) -> the rates that a program may take for granted, because they make an op needless: wd = 0 if
--- no weight decays, rescale = 1 if gradients are not scaled. A program with other ones is another program.
function rates.fixed(group, rescale) return {wd = group.wd == 0 and 0 or nil, rescale = rescale == 1 and 1 or nil} end

-- Makes the rates of a traced step: a tensor that is filled before each run. Its rows are the learning rate, decay, count
-- and factor of the gradients, and the momentum if a schedule changes it. It has one column, or one column per weight if a
-- rate differs between weights (`lists`).
local function make_rates(self, group, ahead, lists, fixed)
  local optimizer, read = self.optimizer, rates.reader(self, ahead + 1)
  local columns = (lists.lr or lists.wd or lists.t) and group.n or 1
  local count = optimizer:momentum_at(1) and 5 or 4
  local filled, numbers = core.number_table(count, columns), {}
  run_hooks.before_run(function()
    rates.set(self, group, read(), group.ahead)
    group.cycled = optimizer:momentum_at(self._updates + ahead + 1)
    if (group.cycled and 5 or 4) ~= count then return "the schedule of the momentum began or ended" end
    local lr, wd, t = group.lr, group.wd, group.t
    if (is_list(lr) and not lists.lr) or (is_list(wd) and not lists.wd) or (is_list(t) and not lists.t) then
      return "the learning rate, decay or update count now differs between parameters"
    end
    local rescale = optimizer.rescale_grad / group.batch_size
    if (fixed.wd and wd ~= 0) or (fixed.rescale and rescale ~= 1) then return "a weight now decays or gradients are now scaled" end
    if columns == 1 and count == 4 then return core.set_numbers(filled, lr, wd, t, rescale) end
    core.set_numbers(filled, fill_columns(numbers, group, columns, rescale))
  end)
  return filled
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
  rates.set(self, group, notes.rate or optimizer.learning_rate, group.ahead)
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
local function apply_rates(self, group, given, lists, fixed)
  local optimizer, scaler = self.optimizer, self.loss_scaler
  local device = group.weights[1].device
  if device ~= "cpu" then given = given:to(device) end
  group.lr, group.wd, group.t, group.rescale_grad, group.cycled = nil, nil, nil, nil, nil
  group.rates, group.fixed = scaler and scaler:adjust(given) or given, fixed
  local function update()
    return (optimizer.multi_precision and multi_precision or optimizer.update)(optimizer, read_rates(group, lists))
  end
  core.finally(function()
    setmetatable(group, nil)
    group.rates, group.fixed = nil, nil
  end, function()
    if scaler then return scaler:guard(group, update) end
    update()
  end)
end

--- rates.update_scaled(trainer, group) updates with a loss scaler: the scale and the number of skipped updates are tensors, and so are the rates.
function rates.update_scaled(self, group)
  local lists = {lr = is_list(group.lr), wd = is_list(group.wd), t = is_list(group.t)}
  local columns = (lists.lr or lists.wd or lists.t) and group.n or 1
  apply_rates(self, group, numbers(fill_columns({}, group, columns, group.rescale_grad)):reshape{-1, columns}, lists, rates.fixed(group))
end

--- rates.update_traced(trainer, group, batch_size, count_up) updates in a traced function: the rates are filled before each
--- run, and the counters advance after it.
function rates.update_traced(self, group, batch_size, count_up)
  local notes = run_hooks.notes(self)
  local ahead = notes.steps or 0
  notes.steps = ahead + 1
  local kept = {n = group.n, entries = {}, batch_size = batch_size}
  for i = 1, group.n do kept.entries[i] = group.entries[i] end
  run_hooks.after_run(function() count_up(self, kept) end)
  if group.n == 0 then return end
  local before = {}
  for i, entry in ipairs(kept.entries) do
    local own = run_hooks.notes(entry)
    before[i], own.steps = own.steps or 0, (own.steps or 0) + 1
  end
  kept.ahead = condense(before, group.n)
  rates.set(self, kept, 1, kept.ahead)
  local lists = {lr = is_list(kept.lr), wd = is_list(kept.wd), t = is_list(kept.t)}
  local fixed = rates.fixed(kept, not self.loss_scaler and self.optimizer.rescale_grad / batch_size)
  local given = run_hooks.exporting() and exported_rates(self, kept, lists) or make_rates(self, kept, ahead, lists, fixed)
  apply_rates(self, group, given, lists, fixed)
end

return rates
