-- Recurrent cells whose products are convolutions, over inputs and states (batch, channels, sizes…).
local core = ...
local args = core.require("support.args")
local activation = core.require("nn.activation")
local cells = core.require("nn.rnn.cell")
local gates = core.require("nn.rnn.gates")
local param = core.require("param")
local ops = core.ops
local conv_cells = {}

local layouts = {"NCW", "NCHW", "NCDHW"}
local names = {"input_shape", "hidden_channels", "i2h_kernel", "h2h_kernel", "i2h_pad", "i2h_dilate", "h2h_dilate"}
local plain_spec = {
  input_shape = args.required, hidden_channels = args.required, i2h_kernel = args.required, h2h_kernel = args.required, i2h_pad = 0,
  i2h_dilate = 1, h2h_dilate = 1, activation = "tanh", dtype = "float32", i2h_weight_initializer = args.none,
  h2h_weight_initializer = args.none, i2h_bias_initializer = args.none, h2h_bias_initializer = args.none,
}

-- By kind: the number of gates and of states, and step(cell, i2h, h2h, states) -> output, new states.
local kinds = {}

kinds.RNN = {gates = 1, states = 1, step = function(cell, i2h, h2h, s)
  local h = i2h + h2h
  if cell._activation then h = cell._activation(h) end
  return h, cells.like(s, h)
end}

kinds.LSTM = {gates = 4, states = 2, step = function(cell, i2h, h2h, s)
  local h, c = gates.lstm(i2h + h2h, s[2], cell._activation, ops.sigmoid, 2)
  return h, {h, c}
end}

kinds.GRU = {gates = 3, states = 1, step = function(cell, i2h, h2h, s)
  local h = gates.gru(i2h, h2h, core.is_tensor(s) and s or s[1], cell._activation, ops.sigmoid, 2)
  return h, cells.like(s, h)
end}

-- Reads the options into cell._input, _hidden, _i2h and _h2h (options of the convolutions) and _kernels.
local function read(cell, n, o)
  local name = cell._name
  cell._input = args.tuple(name, "input_shape", type(o.input_shape) == "table" and o.input_shape or {o.input_shape}, n + 1, 1)
  cell._hidden = args.count(name, "hidden_channels", o.hidden_channels, 1)
  local i2h, h2h = args.tuple(name, "i2h_kernel", o.i2h_kernel, n, 1), args.tuple(name, "h2h_kernel", o.h2h_kernel, n, 1)
  cell._kernels = {i2h = i2h, h2h = h2h}
  cell._i2h = {padding = args.tuple(name, "i2h_pad", o.i2h_pad, n), dilation = args.tuple(name, "i2h_dilate", o.i2h_dilate, n, 1)}
  cell._h2h = {padding = {}, dilation = args.tuple(name, "h2h_dilate", o.h2h_dilate, n, 1)}
  for d = 1, n do
    if h2h[d] % 2 == 0 then core.arg_error(name, "h2h_kernel", "odd sizes, which keep that of the state", h2h[d]) end
    cell._h2h.padding[d] = cell._h2h.dilation[d] * (h2h[d] - 1) / 2
  end
  cell._activation = activation.find(name, o.activation)
end

-- The sizes of a state, those of the convolution of an input.
local function state_sizes(cell)
  local sizes = {}
  for d, k in ipairs(cell._kernels.i2h) do
    sizes[d] = cell._input[d + 1] + 2 * cell._i2h.padding[d] - cell._i2h.dilation[d] * (k - 1)
    if sizes[d] < 1 then core.arg_error(cell._name, "i2h_kernel", "kernels that fit into input_shape", k) end
  end
  return sizes
end

local function parameters(cell, count, o)
  local rows = count * cell._hidden
  local function make(field, ...) cell[field] = param.param{shape = {rows, ...}, dtype = o.dtype, init = o[field .. "_initializer"]} end
  make("i2h_weight", cell._input[1], unpack(cell._kernels.i2h))
  make("h2h_weight", cell._hidden, unpack(cell._kernels.h2h))
  make("i2h_bias")
  make("h2h_bias")
end

local function define(n, kind)
  local name = "Conv" .. n .. "D" .. kind .. "Cell"
  local Cell = cells.HybridRecurrentCell:extend(name)
  local convolve, form = ops["conv" .. n .. "d"], kinds[kind]
  local spec = {conv_layout = layouts[n]}
  for key, value in pairs(plain_spec) do spec[key] = value end
  conv_cells[name] = Cell

  --- nn.rnn.Conv1DRNNCell, Conv2DRNNCell, Conv3DRNNCell, Conv1DLSTMCell, Conv2DLSTMCell, Conv3DLSTMCell, Conv1DGRUCell,
  --- Conv2DGRUCell, Conv3DGRUCell(input_shape, hidden_channels, i2h_kernel, h2h_kernel, {i2h_pad = 0, i2h_dilate = 1, h2h_dilate =
  --- 1, activation = "tanh", dtype =, i2h_weight_initializer =, h2h_weight_initializer =, i2h_bias_initializer =,
  --- h2h_bias_initializer =}): the cells RNNCell, LSTMCell and GRUCell with convolutions in place of products. input_shape is
  --- {channels, sizes…} of a step without the batch; the states are (batch, hidden_channels, sizes…) with the sizes of the
  --- convolved input. Numbers per dim are one number or a list. Raises if h2h_kernel is even. Shi et al., Convolutional LSTM
  --- Network, 2015.
  --- Example: local cell = pg.nn.rnn.Conv2DLSTMCell({3, 8, 8}, 4, 3, 3, {i2h_pad = 1})
  --- cell:initialize()
  --- return (cell(pg.ones(2, 3, 8, 8), cell:begin_state(2))).shape
  function Cell:init(...)
    local o = args.read(name, names, spec, ...)
    args.choice(name, "conv_layout", o.conv_layout, {layouts[n]})
    read(self, n, o)
    self._sizes = state_sizes(self)
    parameters(self, form.gates, o)
  end

  function Cell:state_info(batch_size)
    local list = {}
    for i = 1, form.states do list[i] = {shape = {batch_size or 0, self._hidden, unpack(self._sizes)}, layout = layouts[n]} end
    return list
  end

  function Cell:forward(x, states)
    if args.tensor(name, "x", x):dim() ~= n + 2 then
      core.arg_error(name, "x", "a tensor of " .. n + 2 .. " dims (" .. layouts[n] .. ")", x)
    end
    local h = cells.states(self, states, form.states)[1]
    local i2h = convolve(x, self.i2h_weight, self.i2h_bias, self._i2h)
    local h2h = convolve(h, self.h2h_weight, self.h2h_bias, self._h2h)
    local out, new = form.step(self, i2h, h2h, states)
    return out, new
  end

  function Cell:describe() return ("%d -> %d, kernel %s"):format(self._input[1], self._hidden, table.concat(self._kernels.i2h, "x")) end
end

for n = 1, 3 do
  for kind in pairs(kinds) do define(n, kind) end
end

return conv_cells
