-- Dropout that uses one mask for all steps of a sequence: nn.rnn.VariationalDropoutCell, and nn.rnn.dynamic_unroll.
-- Gal, Ghahramani, A Theoretically Grounded Application of Dropout in Recurrent Neural Networks, 2016.
local core = ...
local args = core.require("support.args")
local cells = core.require("nn.rnn.cell")
local check_cell = core.require("nn.rnn.container").check_cell
local modifier = core.require("nn.rnn.modifier")
local sequence = core.require("nn.rnn.sequence")
local ops = core.ops
local ModifierCell, unrolls_only = modifier.ModifierCell, modifier.unrolls_only
local variational = {}

--- nn.rnn.VariationalDropoutCell(base_cell, drop_inputs = 0, drop_states = 0, drop_outputs = 0): in training mode drops elements of
--- the inputs, of the first state and of the outputs with these probabilities, the same elements at all steps. Single
--- steps keep their masks until reset(); use cell:unroll or dynamic_unroll in place of pg.foreach, whose body cannot make the
--- masks at its first step only. Gal, Ghahramani, A Theoretically Grounded Application of Dropout in Recurrent
--- Neural Networks, 2016.
--- Example: local cell = pg.nn.rnn.VariationalDropoutCell(pg.nn.rnn.LSTMCell(4), {drop_inputs = 0.2, drop_states = 0.3})
--- cell:initialize()
--- return (cell:unroll(3, pg.ones(2, 3, 5))).shape
local VariationalDropoutCell = ModifierCell:extend("VariationalDropoutCell")
variational.VariationalDropoutCell = VariationalDropoutCell

local names = {"base_cell", "drop_inputs", "drop_states", "drop_outputs"}
local spec = {base_cell = args.required, drop_inputs = 0, drop_states = 0, drop_outputs = 0}

function VariationalDropoutCell:init(...)
  local o = args.read("VariationalDropoutCell", names, spec, ...)
  self.base_cell = check_cell("VariationalDropoutCell", "base_cell", o.base_cell)
  for _, name in ipairs{"drop_inputs", "drop_states", "drop_outputs"} do
    self["_" .. name] = args.number("VariationalDropoutCell", name, o[name], 0, 1)
  end
  if self._drop_states > 0 and (unrolls_only(o.base_cell) or not o.base_cell:state_info(0)[1]) then
    core.arg_error("VariationalDropoutCell", "base_cell", "a cell with states that can run single steps, as drop_states asks", o.base_cell)
  end
  self:reset()
end

local function mask(x, p) return ops.dropout(ops.ones_like(x:detach()), p) end

-- Returns the states with the first one multiplied by the mask.
local function drop_first(states, m)
  if core.is_tensor(states) then return states * m end
  local list = {unpack(states)}
  list[1] = list[1] * m
  return list
end

-- Returns the mask in the field of the cell, which the first step makes. It stays until reset, also after a pg.scope.
local function kept_mask(cell, field, x, p)
  if not cell[field] then
    modifier.check_step(cell, function() return true end)
    cell[field] = core.keep(mask(x, p))
  end
  return cell[field]
end

function VariationalDropoutCell:forward(x, states)
  if not core.is_training() then
    local out, new = self.base_cell(x, states)
    return out, new
  end
  if self._drop_inputs > 0 then x = x * kept_mask(self, "_input_mask", x, self._drop_inputs) end
  if self._drop_states > 0 then
    local first = core.is_tensor(states) and states or states[1]
    states = drop_first(states, kept_mask(self, "_state_mask", first, self._drop_states))
  end
  local out, new = self.base_cell(x, states)
  if self._drop_outputs > 0 then out = out * kept_mask(self, "_output_mask", out, self._drop_outputs) end
  return out, new
end

function VariationalDropoutCell:reset()
  self._input_mask, self._state_mask, self._output_mask = false, false, false
  self.base_cell:reset()
  return self
end

-- Drops elements of x (time, batch, …), the same at all steps.
local function drop_over_time(x, p) return p > 0 and ops.dropout(x, p, {axes = {1}}) or x end

function VariationalDropoutCell:_scan(x, states, lengths)
  x = drop_over_time(x, self._drop_inputs)
  local outs, last
  if self._drop_states > 0 then
    states = states or self:_first_states(x)
    local m = mask(core.is_tensor(states) and states or states[1], self._drop_states)
    outs, last = sequence.scan(function(item, s) return self.base_cell(item, drop_first(s, m)) end, x, states, lengths)
  else
    outs, last = cells.unroll(self.base_cell, x, states, lengths)
  end
  return drop_over_time(outs, self._drop_outputs), last
end

function VariationalDropoutCell:describe()
  return ("inputs %g, states %g, outputs %g"):format(self._drop_inputs, self._drop_states, self._drop_outputs)
end

local unroll_spec = {drop_inputs = 0, drop_outputs = 0, layout = "TNC", valid_length = args.none}

--- nn.rnn.dynamic_unroll(cell, inputs, begin_state[, {drop_inputs = 0, drop_outputs = 0, layout = "TNC" or "NTC",
--- valid_length =}]) -> outputs, states: cell:unroll over one tensor of any number of steps, run by pg.foreach, with dropout
--- that shares its mask over the steps. begin_state may be nil.
--- Example: local cell = pg.nn.rnn.GRUCell(4)
--- cell:initialize()
--- return (pg.nn.rnn.dynamic_unroll(cell, pg.ones(5, 2, 3), cell:begin_state(2))).shape
function variational.dynamic_unroll(cell, inputs, begin_state, opts)
  check_cell("dynamic_unroll", "cell", cell)
  args.tensor("dynamic_unroll", "inputs", inputs)
  local o = args.options("dynamic_unroll", opts, unroll_spec)
  args.number("dynamic_unroll", "drop_inputs", o.drop_inputs, 0, 1)
  args.number("dynamic_unroll", "drop_outputs", o.drop_outputs, 0, 1)
  local time = {axes = {args.choice("dynamic_unroll", "layout", o.layout, {"TNC", "NTC"}) == "TNC" and 1 or 2}}
  if o.drop_inputs > 0 then inputs = ops.dropout(inputs, o.drop_inputs, time) end
  local outs, states = cell:unroll(nil, inputs, {begin_state = begin_state, layout = o.layout, valid_length = o.valid_length})
  if o.drop_outputs > 0 then outs = ops.dropout(outs, o.drop_outputs, time) end
  return outs, states
end

return variational
