-- pg.lstm, pg.gru and pg.rnn: recurrent layers as functions of their weights, with torch's signatures.
local core = ...
local args = core.require("support.args")
local layers = core.require("nn.rnn.layer")
local standalone = core.require("nn.rnn.standalone")
local sequence = core.require("nn.rnn.sequence")
local ops, is_tensor = core.ops, core.is_tensor
local functions = {}

local names = {"has_biases", "num_layers", "dropout", "train", "bidirectional", "batch_first"}
local spec = {
  has_biases = args.none, num_layers = args.none, dropout = 0, train = args.none, bidirectional = false, batch_first = false,
  sequence_length = args.none,
}
local rnn_spec = {nonlinearity = "tanh"}
for key, value in pairs(spec) do rnn_spec[key] = value end

local function is_list(v) return args.plain(v) and v[1] ~= nil end

-- Returns the tensors at the front of the list, with nested lists flattened, and the position after them.
local function read_tensors(op, list, count)
  local tensors, at = {}, 1
  while at <= count and (is_tensor(list[at]) or is_list(list[at])) do
    for _, x in ipairs(is_tensor(list[at]) and {list[at]} or list[at]) do tensors[#tensors + 1] = args.tensor(op, "weights", x) end
    at = at + 1
  end
  return tensors, at
end

-- Sorts the arguments after x into the first states (or nil), the weights and the options.
local function read(op, kinds, option_spec, ...)
  local count, list, states = select("#", ...), {...}, nil
  local missing = list[1] == nil or list[1] == false
  if missing then
    list = {unpack(list, 2, count)}
    count = count - 1
  end
  local weights, at = read_tensors(op, list, count)
  local o = args.read(op, names, option_spec, unpack(list, at, count))
  if not missing then
    states = {}
    for i = 1, kinds do
      states[i] = args.tensor(op, i == 1 and "h0" or "c0", table.remove(weights, 1))
    end
  end
  return states, weights, o
end

local function check_options(op, o, weights)
  local has_biases = o.has_biases
  if has_biases == nil then has_biases = weights[3] ~= nil and weights[3]:dim() == 1 end
  o.each = (args.boolean(op, "has_biases", has_biases) and 4 or 2) + (o.projected and 1 or 0)
  o.directions = args.boolean(op, "bidirectional", o.bidirectional) and 2 or 1
  local count = o.num_layers and args.count(op, "num_layers", o.num_layers, 1) or math.max(1, math.floor(#weights / (o.each * o.directions)))
  if #weights ~= count * o.each * o.directions then
    core.arg_error(op, "weights", ("%d tensors: %s for %d layers and directions"):format(
      count * o.each * o.directions, o.each == 4 and "w_ih, w_hh, b_ih, b_hh" or "w_ih, w_hh", count * o.directions), #weights)
  end
  args.boolean(op, "batch_first", o.batch_first)
  if o.train ~= nil then args.boolean(op, "train", o.train) end
  return {
    count = count, directions = o.directions, dropout = args.number(op, "dropout", o.dropout, 0, 1), train = o.train,
    clip = o.clip and layers.clipper(o.clip),
  }
end

local function require_shape(op, name, x, ...)
  local shape, expected = x.shape, {...}
  local fits = #shape == #expected
  for i, size in ipairs(expected) do fits = fits and shape[i] == size end
  if not fits then core.arg_error(op, name, "shape (" .. table.concat(expected, ", ") .. ")", x) end
end

-- Raises unless the shapes of the weights and states go with each other and with x.
local function check_shapes(op, form, o, x, states, weights)
  if weights[2]:dim() ~= 2 then core.arg_error(op, "weights[2]", "2 dims (gates * hidden, hidden)", weights[2]) end
  local size, count = weights[2]:size(2), form.count * form.directions
  local hidden = o.projected and weights[o.each]:size(2) or size
  local rows = layers.gate_counts[form.kind] * hidden
  for at = 1, count do
    local first = (at - 1) * o.each
    require_shape(op, ("weights[%d]"):format(first + 1), weights[first + 1], rows, at <= form.directions and x:size(3) or form.directions * size)
    require_shape(op, ("weights[%d]"):format(first + 2), weights[first + 2], rows, size)
    local last = first + o.each
    if o.projected then
      require_shape(op, ("weights[%d]"):format(last), weights[last], size, hidden)
      last = last - 1
    end
    for i = first + 3, last do require_shape(op, ("weights[%d]"):format(i), weights[i], rows) end
  end
  for i, s in ipairs(states or {}) do
    require_shape(op, i == 1 and "h0" or "c0", s, count, x:size(o.batch_first and 1 or 2), i == 1 and size or hidden)
  end
end

local fields = {"i2h_weight", "h2h_weight", "i2h_bias", "h2h_bias"}

-- Returns the function that runs the layers. o.each: the number of weights per layer and direction.
local function compute(form, o)
  local each, by_batch, own = o.each, o.batch_first, o.projected and o.each - 1 or o.each
  local kinds = form.kind == "lstm" and 2 or 1
  return function(x, weights, states, lengths)
    if by_batch then x = ops.transpose(x, 1, 2) end
    local y, finals = layers.stack(form, x, function(at)
      local w = {}
      for i = 1, own do w[fields[i]] = weights[(at - 1) * each + i] end
      if o.projected then w.h2r_weight = weights[at * each] end
      return w
    end, function(at, input)
      local first = {}
      for i = 1, kinds do
        local row = weights[i == 2 and o.projected and at * each or (at - 1) * each + 2]  -- one of its rows has the size of the state
        first[i] = states and ops.select(states[i], 1, at) or sequence.zeros_like(input, ops.select(row, 1, 1))
      end
      return first
    end, lengths)
    if by_batch then y = ops.transpose(y, 1, 2) end
    if kinds == 2 then return y, ops.stack(finals[1]), ops.stack(finals[2]) end
    return y, ops.stack(finals[1])
  end
end

local function run(op, kind, x, states, weights, o)
  local form = check_options(op, o, weights)
  form.kind = kind
  if args.tensor(op, "x", x):dim() ~= 3 then core.arg_error(op, "x", "3 dims (time, batch, size), or (batch, time, size) with batch_first", x) end
  core.untraced(check_shapes, op, form, o, x, states, weights)  -- a trace must fit other sizes of x
  local lengths = sequence.check_lengths(op, "sequence_length", o.sequence_length)
  local key = ("%s %s %d %d %d %.17g %s %s"):format(op, kind, o.each, form.count, form.directions, form.dropout, tostring(form.train), tostring(o.batch_first))
  if o.clip then key = ("%s %.17g %.17g %s"):format(key, o.clip.state_clip_min, o.clip.state_clip_max, tostring(o.clip.state_clip_nan)) end
  return standalone.run(key, compute(form, o), x, weights, states, lengths)
end

--- functional.layers(op, kind, x, states, weights, o) -> as pg.lstm and pg.rnn. kind: see layers.gate_counts. o: the options of
--- pg.lstm, each of them given; also projected (whether each layer and direction has a fifth weight, which projects h) and
--- clip (the options state_clip_… of nn.rnn.LSTM).
functions.layers = run

--- pg.lstm(x, states, weights, {num_layers =, bidirectional = false, dropout = 0, batch_first = false, train =,
--- has_biases =, sequence_length =}) -> y, hn, cn: layers of long short-term memory over x (time, batch, size). states
--- is {h0, c0}, each (layers * directions, batch, hidden), or nil for zeros. weights lists w_ih, w_hh, b_ih, b_hh for
--- each layer and direction, with the gates in the order in, forget, cell, out. dropout acts between layers if train is
--- true, or in training mode if train is nil. The tensors may also be passed one by one. See nn.rnn.LSTM.
--- Example: local weights = {pg.ones(4, 2), pg.ones(4, 1), pg.zeros(4), pg.zeros(4)}
--- return pg.lstm(pg.ones(3, 1, 2), nil, weights)
function functions.lstm(x, ...) return run("lstm", "lstm", x, read("lstm", 2, spec, ...)) end

--- pg.gru(x, h0, weights, {options of pg.lstm}) -> y, hn: layers of gated recurrent units, called like pg.lstm. The
--- order of the gates is reset, update, new.
function functions.gru(x, ...) return run("gru", "gru", x, read("gru", 1, spec, ...)) end

--- pg.rnn(x, h0, weights, {nonlinearity = "tanh", options of pg.lstm}) -> y, hn: layers of h = nonlinearity(x w_ihᵀ + h
--- w_hhᵀ + biases), where nonlinearity is "tanh" or "relu". Called like pg.lstm.
function functions.rnn(x, ...)
  local states, weights, o = read("rnn", 1, rnn_spec, ...)
  return run("rnn", args.choice("rnn", "nonlinearity", o.nonlinearity, {"tanh", "relu"}), x, states, weights, o)
end

return functions
