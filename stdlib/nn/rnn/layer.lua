-- Recurrent layers over whole sequences: several layers, one or both directions. One product before the loop multiplies
-- the inputs of all steps by their weights.
local core = ...
local args = core.require("support.args")
local HybridBlock = core.require("nn.block").HybridBlock
local cells = core.require("nn.rnn.cell")
local gates = core.require("nn.rnn.gates")
local standalone = core.require("nn.rnn.standalone")
local param = core.require("param")
local sequence = core.require("nn.rnn.sequence")
local ops = core.ops
local linear, sigmoid, tanh, relu = ops.linear, ops.sigmoid, ops.tanh, ops.relu
local layers = {}

-- Makes the function of one step, by kind of layer: step(x, s) -> output, states. x is the product with the input plus
-- all biases except GRU's h2h bias; s is the list of states. clip, if not nil, limits LSTM's c.
local steps = {}

function steps.lstm(w, clip)
  local weight, projection = w.h2h_weight, w.h2r_weight
  if projection then
    return function(x, s)
      local h, c = gates.lstm(x + linear(s[1], weight), s[2], tanh, sigmoid, -1, clip)
      h = linear(h, projection)
      return h, {h, c}
    end
  end
  return function(x, s)
    local h, c = gates.lstm(x + linear(s[1], weight), s[2], tanh, sigmoid, -1, clip)
    return h, {h, c}
  end
end

function steps.gru(w)
  local weight, bias = w.h2h_weight, w.h2h_bias
  return function(x, s)
    local h = gates.gru(x, bias and linear(s[1], weight, bias) or linear(s[1], weight), s[1], tanh, sigmoid)
    return h, {h}
  end
end

local function plain(activation)
  return function(w)
    local weight = w.h2h_weight
    return function(x, s)
      local h = activation(x + linear(s[1], weight))
      return h, {h}
    end
  end
end
steps.tanh, steps.relu = plain(tanh), plain(relu)

--- layers.direction(spec, x, w, states, lengths) -> outputs, final states of one layer in one direction over x (time,
--- batch, size). spec.kind is "lstm", "gru", "tanh" or "relu". w holds i2h_weight, h2h_weight, and optionally both i2h_bias
--- and h2h_bias, and h2r_weight.
function layers.direction(spec, x, w, states, lengths)
  local bias = w.i2h_bias
  if bias and spec.kind ~= "gru" then bias = bias + w.h2h_bias end
  local products = bias and linear(x, w.i2h_weight, bias) or linear(x, w.i2h_weight)
  return sequence.scan(steps[spec.kind](w, spec.clip), products, states, lengths)
end

--- layers.stack(spec, x, weights, states, lengths) -> outputs (time, batch, size), final states. The final states are a
--- list by kind of state; each item is a list over layers and directions. spec: kind, count (layers), directions,
--- dropout, train (whether dropout acts; nil: in training mode), clip (see steps). weights(i) returns the weights of the i-th layer and
--- direction, states(i, x) its first states.
function layers.stack(spec, x, weights, states, lengths)
  local finals = {}
  for layer = 1, spec.count do
    local outs = {}
    for d = 1, spec.directions do
      local at, input = (layer - 1) * spec.directions + d, x
      if d == 2 then input = sequence.reverse(x, lengths) end
      local out, last = layers.direction(spec, input, weights(at), states(at, x), lengths)
      outs[d] = d == 2 and sequence.reverse(out, lengths) or out
      for i, s in ipairs(last) do
        finals[i] = finals[i] or {}
        finals[i][at] = s
      end
    end
    x = spec.directions == 2 and ops.cat(outs, 3) or outs[1]
    if spec.dropout > 0 and layer < spec.count then x = ops.dropout(x, spec.dropout, spec.train) end
  end
  return x, finals
end

--- layers.gate_counts: the number of gates by kind.
layers.gate_counts = {lstm = 4, gru = 3, tanh = 1, relu = 1}

local function prefix(layer, at)
  local directions = layer._spec.directions
  return (at % directions == 0 and directions == 2 and "r" or "l") .. math.floor((at - 1) / directions) .. "_"
end

-- The parameters of one layer in one direction.
local function parameters(layer, at, o)
  local spec, name = layer._spec, prefix(layer, at)
  local rows = layers.gate_counts[spec.kind] * o.hidden_size
  local inputs = at <= spec.directions and o.input_size or layer._size * spec.directions
  local function make(field, ...)
    layer[name .. field] = param.param{shape = {...}, dtype = o.dtype, init = o[field .. "_initializer"]}
  end
  make("i2h_weight", rows, inputs)
  make("h2h_weight", rows, layer._size)
  make("i2h_bias", rows)
  make("h2h_bias", rows)
  if o.projection_size then make("h2r_weight", o.projection_size, o.hidden_size) end
end

local names = {"hidden_size", "num_layers"}

local function spec_of(more)
  local spec = {
    hidden_size = args.required, num_layers = 1, layout = "TNC", dropout = 0, bidirectional = false, input_size = 0, dtype = "float32",
    use_sequence_length = false, i2h_weight_initializer = args.none, h2h_weight_initializer = args.none,
    i2h_bias_initializer = args.none, h2h_bias_initializer = args.none,
  }
  for key, value in pairs(more) do spec[key] = value end
  return spec
end

local function setup(layer, kind, o)
  local name = layer._name
  args.count(name, "hidden_size", o.hidden_size, 1)
  args.count(name, "input_size", o.input_size)
  args.boolean(name, "bidirectional", o.bidirectional)
  layer._spec = {
    kind = kind, count = args.layers(name, o.num_layers), directions = o.bidirectional and 2 or 1,
    dropout = args.number(name, "dropout", o.dropout, 0, 1),
  }
  layer._by_batch = args.choice(name, "layout", o.layout, {"TNC", "NTC"}) == "NTC"
  layer._needs_lengths = args.boolean(name, "use_sequence_length", o.use_sequence_length)
  layer._hidden = o.hidden_size
  if o.projection_size ~= nil then args.count(name, "projection_size", o.projection_size, 1) end
  layer._size = o.projection_size or o.hidden_size
  for at = 1, layer._spec.count * layer._spec.directions do parameters(layer, at, o) end
end

local fields = {"i2h_weight", "h2h_weight", "i2h_bias", "h2h_bias", "h2r_weight"}

local function weights_of(layer)
  return function(at)
    local name, w = prefix(layer, at), {}
    for _, field in ipairs(fields) do w[field] = layer[name .. field] end
    return w
  end
end

local function state_sizes(layer)
  if layer._spec.kind == "lstm" then return {layer._size, layer._hidden} end
  return {layer._size}
end

-- Returns the given states as a list. Raises if their sizes are not those of the layer.
local function check_states(layer, states)
  local sizes, spec = state_sizes(layer), layer._spec
  states = cells.states(layer, states, #sizes)
  for i, s in ipairs(states) do
    local rows = spec.count * spec.directions
    if s:dim() ~= 3 or s:size(1) ~= rows or s:size(3) ~= sizes[i] then
      core.arg_error(layer._name, "states[" .. i .. "]", ("shape (%d, batch, %d)"):format(rows, sizes[i]), s)
    end
  end
  return states
end

local function first_states(layer, states)
  if not states then
    local sizes = state_sizes(layer)
    return function(_, x)
      local list = {}
      for i, size in ipairs(sizes) do list[i] = sequence.zeros(x, layer.l0_h2h_weight, size) end
      return list
    end
  end
  return function(at)
    local list = {}
    for i, s in ipairs(states) do list[i] = ops.select(s, 1, at) end
    return list
  end
end

local function check_input(layer, x)
  if args.tensor(layer._name, "x", x):dim() ~= 3 then
    core.arg_error(layer._name, "x", "3 dims " .. (layer._by_batch and "(batch, time, size)" or "(time, batch, size)"), x)
  end
  return x
end

-- Raises if the batch of a state differs from that of x. Called outside of graphs only: in a graph the batch size is
-- not a number.
local function check_batch(layer, x, states)
  local batch = x:size(layer._by_batch and 1 or 2)
  for i, s in ipairs(check_states(layer, states)) do
    if s:size(2) ~= batch then core.arg_error(layer._name, "states[" .. i .. "]", "a batch of " .. batch .. ", as x has", s) end
  end
end

local function run(layer, x, states, lengths)
  local given = states and check_states(layer, states)
  if layer._by_batch then x = ops.transpose(x, 1, 2) end
  local out, finals = layers.stack(layer._spec, x, weights_of(layer), first_states(layer, given), lengths)
  if layer._by_batch then out = ops.transpose(out, 1, 2) end
  if not given then return out end
  for i, list in ipairs(finals) do finals[i] = ops.stack(list) end
  return out, core.is_tensor(states) and finals[1] or finals
end

local function define(name)
  local Layer = HybridBlock:extend(name)
  layers[name] = Layer
  Layer._untraced = {_run = true}

  function Layer:infer_shape(x)
    local size = check_input(self, x).shape[3]
    for at = 1, self._spec.directions do
      local weight = self[prefix(self, at) .. "i2h_weight"]
      weight:set_shape{param.shape(weight)[1], size}
    end
  end

  --- layer:state_info([batch_size = 0]) -> a list of {shape =, layout =}, one entry per state.
  function Layer:state_info(batch_size)
    local list, rows = {}, self._spec.count * self._spec.directions
    for i, size in ipairs(state_sizes(self)) do list[i] = {shape = {rows, batch_size or 0, size}, layout = "LNC"} end
    return list
  end

  --- layer:begin_state(batch_size[, {func = pg.zeros, dtype =, device =}]) -> the list of states (layers * directions,
  --- batch, size) before the first step.
  function Layer:begin_state(...) return cells.begin(self, ...) end
  function Layer:_state_dtype() return param.dtype(self.l0_i2h_weight) end

  function Layer:forward(x, states, sequence_length)
    check_input(self, x)
    if self._needs_lengths and sequence_length == nil then
      core.arg_error(self._name, "sequence_length", "the number of steps of each sequence, as use_sequence_length asks", nil)
    end
    if states == false then states = nil end
    if states and standalone.applies() and not core.symbols.any(x, states) then check_batch(self, x, states) end
    local lengths = sequence.check_lengths(self._name, "sequence_length", sequence_length)
    local out, finals = standalone.call(self, "_run", run, x, states, lengths)  -- no tail call: errors read x from this frame
    if finals == nil then return out end
    return out, finals
  end

  function Layer:describe()
    local inputs, spec = param.shape(self.l0_i2h_weight)[2], self._spec
    local text = ("%s -> %d, %s"):format(inputs == 0 and "?" or inputs, self._hidden, self._by_batch and "NTC" or "TNC")
    if name == "RNN" then text = text .. ", " .. spec.kind end
    if spec.count > 1 then text = text .. ", " .. spec.count .. " layers" end
    if spec.dropout > 0 then text = text .. ", dropout " .. spec.dropout end
    return text .. (spec.directions == 2 and ", bidirectional" or "")
  end
  return Layer
end

--- nn.rnn.RNN(hidden_size, num_layers = 1, {activation = "relu", layout = "TNC", dropout = 0, bidirectional = false,
--- input_size = 0, dtype =, use_sequence_length = false, i2h_weight_initializer =, h2h_weight_initializer =,
--- i2h_bias_initializer =, h2h_bias_initializer =}):
--- layers of h = activation(x i2hᵀ + h h2hᵀ + biases) over whole sequences. layer(x) -> outputs; layer(x, states) ->
--- outputs, states; layer(x, states or nil, sequence_length) ends each sequence after its own number of steps: later
--- outputs are zero. x is (time, batch, size), or (batch, time, size) with layout "NTC". states is a list as
--- begin_state returns it, or a tensor where there is one state; the new states have the same form. dropout acts
--- between layers. The parameters are l0_i2h_weight …, and r0_… for the reverse direction.
--- Example: local layer = pg.nn.rnn.RNN(3):initialize()
--- return layer(pg.ones(5, 2, 4)).shape
local RNN = define("RNN")
local rnn_spec = spec_of{activation = "relu"}

function RNN:init(...)
  local o = args.read("RNN", names, rnn_spec, ...)
  setup(self, args.choice("RNN", "activation", o.activation, {"relu", "tanh"}), o)
end

--- nn.rnn.LSTM(hidden_size, num_layers = 1, {projection_size =, state_clip_min =, state_clip_max =, state_clip_nan = false,
--- and the options of RNN except activation}): layers of long short-term memory, called like RNN, with the states h and c.
--- The gates are packed in the order in, forget, cell, out. projection_size sets the size of h. state_clip_min and
--- state_clip_max limit c after each step; with state_clip_nan a NaN becomes state_clip_min.
--- Example: local lstm = pg.nn.rnn.LSTM(4, 2)
--- lstm:initialize()
--- local out, states = lstm(pg.ones(3, 1, 2), lstm:begin_state(1))
--- return out.shape, states[1].shape
local LSTM = define("LSTM")
local lstm_spec = spec_of{
  projection_size = args.none, h2r_weight_initializer = args.none, state_clip_min = args.none, state_clip_max = args.none,
  state_clip_nan = false,
}

--- layers.clipper(o) -> the function that limits c, or nil. o: the options state_clip_… of nn.rnn.LSTM.
function layers.clipper(o)
  local low, high = o.state_clip_min, o.state_clip_max
  local also_nan = args.boolean("LSTM", "state_clip_nan", o.state_clip_nan)
  if low == nil and high == nil then return nil end
  args.number("LSTM", "state_clip_min", low)
  args.number("LSTM", "state_clip_max", high, low)
  if also_nan then return function(c) return ops.fmin(ops.fmax(c, low), high) end end
  return function(c) return ops.clamp(c, low, high) end
end

function LSTM:init(...)
  local o = args.read("LSTM", names, lstm_spec, ...)
  setup(self, "lstm", o)
  self._spec.clip = layers.clipper(o)
end

--- nn.rnn.GRU(hidden_size, num_layers = 1, {the options of RNN except activation}): layers of gated recurrent units,
--- called like RNN. The gates are packed in the order reset, update, new. The reset gate acts after the product with
--- the state.
--- Example: local layer = pg.nn.rnn.GRU(3, 2):initialize()
--- return layer(pg.ones(5, 2, 4)).shape
local GRU = define("GRU")
local gru_spec = spec_of{}

function GRU:init(...) setup(self, "gru", args.read("GRU", names, gru_spec, ...)) end

return layers
