-- Recurrent cells: blocks with cell(x, states) -> output, states for one step, and unroll for a sequence.
local core = ...
local args = core.require("support.args")
local base = core.require("nn.block")
local activation = core.require("nn.activation")
local gates = core.require("nn.rnn.gates")
local standalone = core.require("nn.rnn.standalone")
local param = core.require("param")
local sequence = core.require("nn.rnn.sequence")
local ops = core.ops
local linear, is_tensor = ops.linear, core.is_tensor
local cells, methods = {}, {}

--- cells.is(v) -> whether v is a recurrent cell.
function cells.is(v)
  local class = type(v) == "table" and getmetatable(v)
  return type(class) == "table" and rawget(class, "_is_class") == true and v._is_cell == true
end

--- cell:state_info([batch_size = 0]) -> a list of {shape =, layout =}, one entry per state. Each class defines it.
function methods:state_info() return {} end

local begin_names = {"batch_size", "func"}
local begin_spec = {batch_size = args.required, func = args.none, dtype = args.none, device = args.none}

local function read_begin(cell, ...)
  local o = args.read("begin_state", begin_names, begin_spec, ...)
  args.count("begin_state", "batch_size", o.batch_size)
  if o.func ~= nil then args.callable("begin_state", "func", o.func) end
  o.dtype = o.dtype or cell:_state_dtype()
  return o
end

--- cells.begin(cell, …) -> the first states. The arguments are those of begin_state.
function cells.begin(cell, ...)
  local o = read_begin(cell, ...)
  local func, states = o.func or ops.zeros, {}
  for i, info in ipairs(cell:state_info(o.batch_size)) do states[i] = func(info.shape, {dtype = o.dtype, device = o.device}) end
  return states
end

--- cell:begin_state(batch_size[, {func = pg.zeros, dtype =, device =}]) -> the list of states before the first step,
--- made by func(shape, {dtype =, device =}).
function methods:begin_state(...) return cells.begin(self, ...) end

function methods:_state_dtype()
  local _, first = self:parameters()()
  return first and param.dtype(first) or "float32"
end

--- cell:reset() clears what the cell keeps from step to step besides its states. Call it before a new sequence.
function methods:reset()
  for _, child in self:children() do
    if child.reset then child:reset() end
  end
  return self
end

-- The states before the first step of x (time, batch, …).
function methods:_first_states(x)
  if self.begin_state ~= methods.begin_state then
    return self:begin_state(x:size(2), {dtype = x.dtype, device = x.device})
  end
  local states = {}
  for i, info in ipairs(self:state_info(0)) do states[i] = sequence.zeros(x, self.h2h_weight, unpack(info.shape, 2)) end
  return states
end

-- A tensor of the shape of a step's output.
function methods:_output_like(x, states)
  if is_tensor(states) then return states end
  return states[1] or ops.select(x, 1, 1)
end

-- Runs all steps of x (time, batch, …) and returns the outputs in the same layout and the states. states and lengths
-- may be nil.
function methods:_scan(x, states, lengths)
  local function step(item, s) return self(item, s) end
  return sequence.scan(step, x, states or self:_first_states(x), lengths)
end

local unroll_names = {"length", "inputs", "begin_state", "layout", "merge_outputs", "valid_length"}
local unroll_spec = {
  length = args.none, inputs = args.required, begin_state = args.none, layout = "NTC", merge_outputs = args.none,
  valid_length = args.none,
}

local function check_inputs(o)
  local inputs = o.inputs
  if is_tensor(inputs) then
    if inputs:dim() < 2 then core.arg_error("unroll", "inputs", "a tensor with the dims of layout " .. o.layout, inputs) end
    return inputs
  end
  if not args.plain(inputs) or #inputs == 0 then core.arg_error("unroll", "inputs", "a tensor or a list of the steps' tensors", inputs) end
  for i, x in ipairs(inputs) do args.tensor("unroll", "inputs[" .. i .. "]", x) end
  return inputs
end

local function check_length(o, steps)
  if args.count("unroll", "length", o.length) ~= steps() then
    core.arg_error("unroll", "inputs", o.length .. " steps, the length", steps() .. " steps")
  end
end

-- Returns the inputs as one tensor (time, batch, …).
local function read_inputs(o)
  local inputs, by_batch = check_inputs(o), o.layout == "NTC"
  local tensor = is_tensor(inputs)
  if o.length ~= nil then check_length(o, function() return tensor and inputs:size(by_batch and 2 or 1) or #inputs end) end
  if not tensor then return ops.stack(inputs) end
  return by_batch and ops.transpose(inputs, 1, 2) or inputs
end

local function scan(cell, x, states, lengths) return cell:_scan(x, states, lengths) end

--- cell:unroll(length, inputs[, begin_state, layout = "NTC", merge_outputs, valid_length] or {begin_state =, layout =,
--- …}) -> outputs, states after all steps, run by pg.foreach. inputs is one tensor with the dims of layout ("NTC" or
--- "TNC"), or a list of one tensor (batch, …) per step. length is the number of steps, or nil. merge_outputs: true
--- returns the outputs as one tensor, false as a list; the default is the form of inputs. valid_length (batch) is the
--- number of steps of each sequence: later outputs are zero, and the states are those after the last valid step.
function methods:unroll(...)
  local o = args.read("unroll", unroll_names, unroll_spec, ...)
  args.choice("unroll", "layout", o.layout, {"NTC", "TNC"})
  if o.merge_outputs ~= nil then args.boolean("unroll", "merge_outputs", o.merge_outputs) end
  local lengths = sequence.check_lengths("unroll", "valid_length", o.valid_length)
  local x = read_inputs(o)
  self:reset()
  local outs, states = standalone.call(self, "_unrolled", scan, x, o.begin_state, lengths)
  local merge = o.merge_outputs
  if merge == nil then merge = is_tensor(o.inputs) end
  if not merge then return ops.unbind(outs, 1), states end
  return o.layout == "NTC" and ops.transpose(outs, 1, 2) or outs, states
end

--- cells.unroll(cell, x, states, lengths) -> outputs, states of all steps of x (time, batch, …).
function cells.unroll(cell, x, states, lengths)
  return cell:unroll(nil, x, {begin_state = states, layout = "TNC", merge_outputs = true, valid_length = lengths})
end

--- nn.rnn.RecurrentCell and nn.rnn.HybridRecurrentCell are the base classes of cells: define state_info(self,
--- batch_size) and forward(self, x, states) -> output, new states.
local function define_base(parent, name)
  local Base = parent:extend(name)
  for key, method in pairs(methods) do Base[key] = method end
  Base._is_base, Base._is_cell, Base._untraced = true, true, {_unrolled = true}
  cells[name] = Base
  return Base
end

define_base(base.Block, "RecurrentCell")
local HybridRecurrentCell = define_base(base.HybridBlock, "HybridRecurrentCell")

--- cells.states(cell, states, count) -> the list of a cell's states, checked. A single state may be a tensor instead of
--- a list.
function cells.states(cell, states, count)
  if count == 1 and is_tensor(states) then return {states} end
  if not args.plain(states) or #states ~= count then
    local expected = "a list of " .. count .. (count == 1 and " tensor" or " tensors") .. ", such as cell:begin_state(batch_size)"
    core.arg_error(cell._name, "states", expected, args.plain(states) and "a list of " .. #states or states)
  end
  for i = 1, count do args.tensor(cell._name, "states[" .. i .. "]", states[i]) end
  return states
end

local cell_names = {"hidden_size"}

local function cell_spec(more)
  local spec = {
    hidden_size = args.required, input_size = 0, dtype = "float32", activation = "tanh", i2h_weight_initializer = args.none,
    h2h_weight_initializer = args.none, i2h_bias_initializer = args.none, h2h_bias_initializer = args.none,
  }
  for key, value in pairs(more) do spec[key] = value end
  return spec
end

-- Sets the parameters of a cell whose products hold `count` gates. The state h has projection_size elements if that is set.
local function parameters(cell, count, o)
  local hidden, inputs = args.count(cell._name, "hidden_size", o.hidden_size, 1), args.count(cell._name, "input_size", o.input_size)
  local rows = count * hidden
  cell.i2h_weight = param.param{shape = {rows, inputs}, dtype = o.dtype, init = o.i2h_weight_initializer}
  cell.h2h_weight = param.param{shape = {rows, o.projection_size or hidden}, dtype = o.dtype, init = o.h2h_weight_initializer}
  cell.i2h_bias = param.param{shape = {rows}, dtype = o.dtype, init = o.i2h_bias_initializer}
  cell.h2h_bias = param.param{shape = {rows}, dtype = o.dtype, init = o.h2h_bias_initializer}
  cell._hidden, cell._activation = hidden, activation.find(cell._name, o.activation)
  if o.recurrent_activation then cell._gate = activation.find(cell._name, o.recurrent_activation) end
end

local function define(name, states)
  local Cell = HybridRecurrentCell:extend(name)
  cells[name] = Cell

  function Cell:infer_shape(x)
    local shape = args.tensor(self._name, "x", x).shape
    self.i2h_weight:set_shape{param.shape(self.i2h_weight)[1], shape[#shape]}
  end

  function Cell:state_info(batch_size)
    local list = {}
    for i = 1, states do list[i] = {shape = {batch_size or 0, self._hidden}, layout = "NC"} end
    return list
  end

  function Cell:describe()
    local inputs = param.shape(self.i2h_weight)[2]
    return string.format("%s -> %d", inputs == 0 and "?" or inputs, self._hidden)
  end
  return Cell
end

--- cells.like(states, h) -> the new state h in the form of the old ones: a list or a tensor.
function cells.like(states, h)
  if is_tensor(states) then return h end
  return {h}
end

--- nn.rnn.RNNCell(hidden_size, {activation = "tanh", input_size = 0, dtype =, i2h_weight_initializer =,
--- h2h_weight_initializer =, i2h_bias_initializer =, h2h_bias_initializer =}): h = activation(x i2hᵀ + h h2hᵀ + both
--- biases). cell(x, {h}) -> h, {h}.
--- Example: local cell = pg.nn.rnn.RNNCell(3):initialize()
--- local y, states = cell(pg.ones(2, 4), cell:begin_state(2))
--- return y.shape, #states
local RNNCell = define("RNNCell", 1)
local rnn_spec = cell_spec{}

function RNNCell:init(...) parameters(self, 1, args.read("RNNCell", cell_names, rnn_spec, ...)) end

function RNNCell:forward(x, states)
  local h = cells.states(self, states, 1)[1]
  h = linear(x, self.i2h_weight, self.i2h_bias) + linear(h, self.h2h_weight, self.h2h_bias)
  if self._activation then h = self._activation(h) end
  return h, cells.like(states, h)
end

--- nn.rnn.LSTMCell(hidden_size, {activation = "tanh", recurrent_activation = "sigmoid", and the options of RNNCell}):
--- long short-term memory. The gates are packed in the order in, forget, cell, out. cell(x, {h, c}) -> h, {h, c}.
--- Hochreiter, Schmidhuber, Long Short-Term Memory, 1997.
--- Example: local cell = pg.nn.rnn.LSTMCell(3):initialize()
--- local y, states = cell(pg.ones(2, 4), cell:begin_state(2))
--- return y.shape, #states
local LSTMCell = define("LSTMCell", 2)
local gated_spec = cell_spec{recurrent_activation = "sigmoid"}

function LSTMCell:init(...) parameters(self, 4, args.read("LSTMCell", cell_names, gated_spec, ...)) end

local function lstm_step(self, x, states)
  local s = cells.states(self, states, 2)
  local sums = linear(x, self.i2h_weight, self.i2h_bias) + linear(s[1], self.h2h_weight, self.h2h_bias)
  return gates.lstm(sums, s[2], self._activation, self._gate)
end

function LSTMCell:forward(x, states)
  local h, c = lstm_step(self, x, states)
  return h, {h, c}
end

--- nn.rnn.LSTMPCell(hidden_size, projection_size, {the options of RNNCell except activation, h2r_weight_initializer =}): long
--- short-term memory whose state h is projected to projection_size elements: cell(x, {h, c}) -> h, {h, c}. Sak et al., Long
--- Short-Term Memory Based Recurrent Neural Network Architectures for Large Vocabulary Speech Recognition, 2014.
--- Example: local cell = pg.nn.rnn.LSTMPCell(6, 2)
--- cell:initialize()
--- local h, states = cell(pg.ones(1, 3), cell:begin_state(1))
--- return h.shape, states[2].shape
local LSTMPCell = define("LSTMPCell", 2)
local projected_spec = cell_spec{projection_size = args.required, h2r_weight_initializer = args.none}
projected_spec.activation = nil

function LSTMPCell:init(...)
  local o = args.read("LSTMPCell", {"hidden_size", "projection_size"}, projected_spec, ...)
  self._projection = args.count("LSTMPCell", "projection_size", o.projection_size, 1)
  o.activation, o.recurrent_activation = "tanh", "sigmoid"
  parameters(self, 4, o)
  self.h2r_weight = param.param{shape = {self._projection, self._hidden}, dtype = o.dtype, init = o.h2r_weight_initializer}
end

function LSTMPCell:state_info(batch_size)
  return {{shape = {batch_size or 0, self._projection}, layout = "NC"}, {shape = {batch_size or 0, self._hidden}, layout = "NC"}}
end

function LSTMPCell:forward(x, states)
  local h, c = lstm_step(self, x, states)
  h = linear(h, self.h2r_weight)
  return h, {h, c}
end

--- nn.rnn.GRUCell(hidden_size, {the options of LSTMCell}): gated recurrent unit. The gates are packed in the order
--- reset, update, new. The reset gate acts after the product with the state. cell(x, {h}) -> h, {h}. Cho et al.,
--- Learning Phrase Representations, 2014.
--- Example: local cell = pg.nn.rnn.GRUCell(3):initialize()
--- local y, states = cell(pg.ones(2, 4), cell:begin_state(2))
--- return y.shape, #states
local GRUCell = define("GRUCell", 1)

function GRUCell:init(...) parameters(self, 3, args.read("GRUCell", cell_names, gated_spec, ...)) end

function GRUCell:forward(x, states)
  local h = cells.states(self, states, 1)[1]
  local i2h, h2h = linear(x, self.i2h_weight, self.i2h_bias), linear(h, self.h2h_weight, self.h2h_bias)
  h = gates.gru(i2h, h2h, h, self._activation, self._gate)
  return h, cells.like(states, h)
end

return cells
