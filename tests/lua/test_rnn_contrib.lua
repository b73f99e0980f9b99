-- Recurrent cells of Gluon's contrib: projection, variational dropout, convolutions; clipped states.
local t = require "tests.support"
local pg = require "perigee"
local gradcheck = require "tests.gradcheck"
local layers = require "tests.layers"
local rnn = pg.nn.rnn

local near = {rtol = 1e-4, atol = 1e-5}

-- Runs a cell over x (time, batch, …) step by step, without unroll.
local function by_steps(cell, x, states)
  local outs = {}
  for i = 1, x:size(1) do outs[i], states = cell(x[i], states) end
  return pg.stack(outs), states
end

-- Checks unroll against single steps, masked ends, and the cell hybridized and imported.
local function check_cell(cell, x)
  local batch = x:size(2)
  local outs, states = by_steps(cell, x, cell:begin_state(batch))
  local y, last = cell:unroll(nil, x, {layout = "TNC"})
  t.close(y, outs, near)
  t.close(last, states, near)
  for i, info in ipairs(cell:state_info(batch)) do t.equal(last[i].shape, info.shape) end
  local lengths = {}
  for n = 1, batch do lengths[n] = n == 1 and 2 or x:size(1) end
  local short, ends = cell:unroll(nil, x, {layout = "TNC", valid_length = lengths})
  local _, first = by_steps(cell, x:narrow(1, 1, 2), cell:begin_state(batch))
  for i, s in ipairs(ends) do t.close(s[1], first[i][1], near) end
  t.equal(short:narrow(1, 3, x:size(1) - 2):select(2, 1):ne(0):sum():item(), 0)
  layers.check(cell, x[1], cell:begin_state(batch))
end

-- LSTMPCell ----------------------------------------------------------------------------------------------------------------------

t.test("LSTMPCell is the layer with projection_size", function()
  pg.manual_seed(1)
  local layer = rnn.LSTM(5, {projection_size = 3, input_size = 4}):initialize("xavier")
  local cell = rnn.LSTMPCell(5, 3):initialize()
  local x = pg.randn(6, 2, 4)
  cell(x[1], cell:begin_state(2))
  for path, p in cell:parameters() do p:set_data(layer["l0_" .. path]) end
  check_cell(cell, x)
  local y, states = cell:unroll(6, x, {layout = "TNC"})
  local expected, last = layer(x, layer:begin_state(2))
  t.close(y, expected, near)
  t.close(states, {last[1][1], last[2][1]}, near)
end)

t.test("LSTMPCell: gradients, wrong arguments", function()
  pg.manual_seed(2)
  gradcheck.seed(1)
  local cell = rnn.LSTMPCell(3, 2, {dtype = "float64", i2h_bias_initializer = "uniform"}):initialize("xavier")
  layers.gradients(cell, gradcheck.random{2, 4}, {gradcheck.random{2, 2}, gradcheck.random{2, 3}})
  t.bad_argument(function() rnn.LSTMPCell(3) end, "LSTMPCell", "projection_size")
  t.bad_argument(function() rnn.LSTMPCell(3, 0) end, "LSTMPCell", "projection_size")
  t.error_contains(function() rnn.LSTMPCell(3, 2, {activation = "relu"}) end, "activation")
  t.bad_argument(function() cell(pg.ones(1, 4), {pg.ones(1, 2)}) end, "LSTMPCell", "states")
end)

-- Clipped states -----------------------------------------------------------------------------------------------------------------

t.test("LSTM limits its state", function()
  pg.manual_seed(3)
  local x = pg.randn(5, 2, 3) * 4
  local plain = rnn.LSTM(4, {input_size = 3}):initialize("xavier")
  local clipped = rnn.LSTM(4, {input_size = 3, state_clip_min = -0.1, state_clip_max = 0.2}):initialize()
  local wide = rnn.LSTM(4, {input_size = 3, state_clip_min = -100, state_clip_max = 100, state_clip_nan = true}):initialize()
  for path, p in plain:parameters() do
    clipped[path]:set_data(p)
    wide[path]:set_data(p)
  end
  local y, last = plain(x, plain:begin_state(2))
  t.close((wide(x, wide:begin_state(2))), y, near)
  t.check(last[2]:max():item() > 0.2)
  local cell = rnn.LSTMCell(4, {input_size = 3}):initialize()
  for path, p in cell:parameters() do p:set_data(plain["l0_" .. path]) end
  local s, outs = cell:begin_state(2), {}
  for i = 1, 5 do
    local sums = x[i]:linear(cell.i2h_weight, cell.i2h_bias) + s[1]:linear(cell.h2h_weight, cell.h2h_bias)
    local g = sums:chunk(4, -1)
    local c = (g[2]:sigmoid() * s[2] + g[1]:sigmoid() * g[3]:tanh()):clamp(-0.1, 0.2)
    outs[i] = g[4]:sigmoid() * c:tanh()
    s = {outs[i], c}
  end
  local z, ends = clipped(x, clipped:begin_state(2))
  t.close(z, pg.stack(outs), near)
  t.close(ends[2][1], s[2], near)
  t.close(layers.check(clipped, x), z, near)
end)

t.test("state_clip_nan stops a NaN; wrong limits", function()
  local x = pg.ones(2, 1, 3)
  x[{1, 1, 1}] = 0 / 0
  for _, stops in ipairs{false, true} do
    local layer = rnn.LSTM(2, {state_clip_min = -1, state_clip_max = 1, state_clip_nan = stops}):initialize("xavier")
    local _, states = layer(x:narrow(1, 1, 1), layer:begin_state(1))
    t.equal(states[2]:isnan():any():item(), not stops)
  end
  t.bad_argument(function() rnn.LSTM(2, {state_clip_min = 1}) end, "LSTM", "state_clip_max")
  t.bad_argument(function() rnn.LSTM(2, {state_clip_min = 1, state_clip_max = 0}) end, "LSTM", "state_clip_max")
  t.bad_argument(function() rnn.LSTM(2, {state_clip_nan = 1}) end, "LSTM", "state_clip_nan")
end)

-- Variational dropout ------------------------------------------------------------------------------------------------------------

t.test("VariationalDropoutCell is its base in predict mode", function()
  pg.manual_seed(4)
  for _, base in ipairs{rnn.LSTMCell(4), rnn.GRUCell(4), rnn.RNNCell(4)} do
    local cell = rnn.VariationalDropoutCell(base, 0.3, 0.4, 0.5):initialize("xavier")
    local x = pg.randn(4, 2, 3)
    check_cell(cell, x)
    t.close((cell:unroll(4, x, {layout = "TNC"})), (base:unroll(4, x, {layout = "TNC"})), near)
  end
end)

t.test("the masks of inputs and outputs are the same at all steps", function()
  pg.manual_seed(5)
  local Copy = rnn.HybridRecurrentCell:extend("Copy")
  function Copy:state_info(n) return {{shape = {n or 0, 20}, layout = "NC"}} end
  function Copy:forward(x, states) return x, {states[1] + 1} end
  local x = pg.ones(6, 3, 20)
  for _, option in ipairs{"drop_inputs", "drop_outputs"} do
    local cell = rnn.VariationalDropoutCell(Copy(), {[option] = 0.5})
    local y = pg.train_mode(function() return (cell:unroll(6, x, {layout = "TNC"})) end)
    local zeros = y[1]:eq(0):sum():item()
    t.check(zeros > 10 and zeros < 50, zeros)
    t.equal(y, y:narrow(1, 1, 1):expand(6, 3, 20))
    t.equal(y:max():item(), 2)
    local again = pg.train_mode(function() return (cell:unroll(6, x, {layout = "TNC"})) end)
    t.check(not again:equal(y), "a new sequence has a new mask")
  end
end)

t.test("the mask of the state acts at each step, in single steps too until reset", function()
  pg.manual_seed(6)
  local base = rnn.RNNCell(30, {activation = false, h2h_weight_initializer = pg.eye(30), i2h_weight_initializer = "zero"})
  local cell = rnn.VariationalDropoutCell(base, {drop_states = 0.5}):initialize()
  local x, start = pg.zeros(3, 2, 4), {pg.ones(2, 30)}
  local y = pg.train_mode(function() return (cell:unroll(3, x, {layout = "TNC", begin_state = start})) end)
  local kept = y[1]:gt(0):to("float32")
  t.check(kept:sum():item() > 10 and kept:sum():item() < 50)
  t.close(y, pg.stack{kept * 2, kept * 4, kept * 8}, near)
  pg.train_mode(function()
    local first, s = cell(x[1], start)
    local second = cell(x[2], s)
    t.close(second, first * 2, near)
    cell:reset()
    t.check(not cell(x[1], start):equal(first))
  end)
end)

t.test("VariationalDropoutCell: gradients flow, wrong arguments", function()
  pg.manual_seed(7)
  local cell = rnn.VariationalDropoutCell(rnn.LSTMCell(4), 0.2, 0.2, 0.2):initialize("xavier")
  local x = pg.randn(2, 5, 3)
  pg.record(function() return (cell:unroll(5, x)):sum() end):backward()
  t.check(cell.base_cell.h2h_weight.grad:abs():sum():item() > 0)
  local function both() return rnn.BidirectionalCell(rnn.GRUCell(2), rnn.GRUCell(2)) end
  t.equal((rnn.VariationalDropoutCell(both(), 0.1):initialize():unroll(5, x)).shape, {2, 5, 4})
  t.bad_argument(function() rnn.VariationalDropoutCell(3) end, "VariationalDropoutCell", "base_cell")
  t.bad_argument(function() rnn.VariationalDropoutCell(rnn.GRUCell(2), 2) end, "VariationalDropoutCell", "drop_inputs")
  for _, base in ipairs{rnn.DropoutCell(0.1), both()} do
    t.bad_argument(function() rnn.VariationalDropoutCell(base, {drop_states = 0.1}) end, "VariationalDropoutCell", "base_cell")
  end
end)

t.test("dynamic_unroll", function()
  pg.manual_seed(8)
  local cell = rnn.LSTMCell(4):initialize("xavier")
  local x = pg.randn(5, 2, 3)
  local y, states = rnn.dynamic_unroll(cell, x, cell:begin_state(2))
  local expected, last = cell:unroll(5, x, {layout = "TNC"})
  t.close(y, expected, near)
  t.close(states, last, near)
  t.close((rnn.dynamic_unroll(cell, x:transpose(1, 2), nil, {layout = "NTC", valid_length = {5, 2}})):transpose(1, 2),
          (cell:unroll(5, x, {layout = "TNC", valid_length = {5, 2}})), near)
  local dropped = pg.train_mode(function() return (rnn.dynamic_unroll(cell, x, nil, {drop_inputs = 0.4, drop_outputs = 0.5})) end)
  local gone = dropped:eq(0)
  t.equal(gone, gone:narrow(1, 1, 1):expand(5, 2, 4))
  t.bad_argument(function() rnn.dynamic_unroll(3, x) end, "dynamic_unroll", "cell")
  t.bad_argument(function() rnn.dynamic_unroll(cell, {x[1]}) end, "dynamic_unroll", "inputs")
  t.bad_argument(function() rnn.dynamic_unroll(cell, x, nil, {drop_inputs = 2}) end, "dynamic_unroll", "drop_inputs")
  t.bad_argument(function() rnn.dynamic_unroll(cell, x, nil, {layout = "CTN"}) end, "dynamic_unroll", "layout")
end)

-- Convolutional cells ------------------------------------------------------------------------------------------------------------

local size = {5, 4, 3}

-- A convolutional cell with its input shape {2, sizes…}; kernels of 3, padded to keep the sizes.
local function conv_cell(n, kind, options)
  local shape = {2}
  for d = 1, n do shape[d + 1] = size[d] end
  options = options or {}
  options.i2h_pad, options.i2h_bias_initializer = options.i2h_pad or 1, "uniform"
  return rnn[("Conv%dD%sCell"):format(n, kind)](shape, 3, 3, 3, options), shape
end

t.test("convolutional cells of one to three dims by convolutions", function()
  pg.manual_seed(9)
  local steps = {
    RNN = function(_, a, b) return (a + b):tanh() end,
    LSTM = function(s, a, b)
      local g = (a + b):chunk(4, 2)
      local c = g[2]:sigmoid() * s[2] + g[1]:sigmoid() * g[3]:tanh()
      return g[4]:sigmoid() * c:tanh(), c
    end,
    GRU = function(s, a, b)
      local x, h = a:chunk(3, 2), b:chunk(3, 2)
      local update = (x[2] + h[2]):sigmoid()
      return (1 - update) * (x[3] + (x[1] + h[1]):sigmoid() * h[3]):tanh() + update * s[1]
    end,
  }
  for n = 1, 3 do
    for _, kind in ipairs{"RNN", "LSTM", "GRU"} do
      local cell, shape = conv_cell(n, kind)
      cell:initialize("xavier")
      local x = pg.randn{3, 2, unpack(shape)}
      check_cell(cell, x)
      local states = {}
      for i, info in ipairs(cell:state_info(2)) do
        states[i] = pg.randn(info.shape)
        t.equal(info.layout, ({"NCW", "NCHW", "NCDHW"})[n])
      end
      local convolve = pg["conv" .. n .. "d"]
      local a = convolve(x[1], cell.i2h_weight, cell.i2h_bias, {padding = 1})
      local b = convolve(states[1], cell.h2h_weight, cell.h2h_bias, {padding = 1})
      local h, c = steps[kind](states, a, b)
      local y, new = cell(x[1], states)
      t.close(y, h, near)
      t.close(new, {h, c}, near)
    end
  end
end)

t.test("convolutional cells: sizes, activations, gradients", function()
  pg.manual_seed(10)
  gradcheck.seed(2)
  local cell = rnn.Conv2DGRUCell({2, 9, 7}, 3, {3, 2}, {3, 5}, {i2h_dilate = {2, 1}, h2h_dilate = 2}):initialize("xavier")
  t.equal(cell:state_info(4)[1].shape, {4, 3, 5, 6})
  check_cell(cell, pg.randn(3, 2, 2, 9, 7))
  local rectified = conv_cell(1, "RNN", {activation = "relu"}):initialize("xavier")
  t.check(rectified(pg.randn(2, 2, 5), rectified:begin_state(2)):min():item() >= 0)
  for _, kind in ipairs{"RNN", "LSTM", "GRU"} do
    local double, shape = conv_cell(1, kind, {dtype = "float64"})
    double:initialize("xavier")
    local states = {}
    for i, info in ipairs(double:state_info(2)) do states[i] = gradcheck.random(info.shape) end
    layers.gradients(double, gradcheck.random{2, unpack(shape)}, states)
  end
  local names = {}
  for path in cell:parameters() do names[#names + 1] = path end
  t.equal(names, {"i2h_weight", "h2h_weight", "i2h_bias", "h2h_bias"})
  local bi = rnn.BidirectionalCell((conv_cell(1, "LSTM")), (conv_cell(1, "GRU"))):initialize()
  t.equal((bi:unroll(3, pg.randn(2, 3, 2, 5))).shape, {2, 3, 6, 5})
end)

t.test("wrong arguments of convolutional cells", function()
  t.bad_argument(function() rnn.Conv1DRNNCell({2, 5}, 3, 3, 2) end, "Conv1DRNNCell", "h2h_kernel")
  t.bad_argument(function() rnn.Conv2DLSTMCell({2, 5}, 3, 3, 3) end, "Conv2DLSTMCell", "input_shape")
  t.bad_argument(function() rnn.Conv1DGRUCell(5, 3, 3, 3) end, "Conv1DGRUCell", "input_shape")
  t.bad_argument(function() rnn.Conv1DGRUCell({2, 2}, 3, 3, 3) end, "Conv1DGRUCell", "i2h_kernel")
  t.bad_argument(function() rnn.Conv1DGRUCell({2, 5}, 0, 3, 3) end, "Conv1DGRUCell", "hidden_channels")
  t.bad_argument(function() rnn.Conv1DGRUCell({2, 5}, 3, 3, 3, {conv_layout = "NWC"}) end, "Conv1DGRUCell", "conv_layout")
  local cell = conv_cell(2, "LSTM"):initialize()
  t.bad_argument(function() cell(pg.ones(1, 2, 5), cell:begin_state(1)) end, "Conv2DLSTMCell", "x")
  t.bad_argument(function() cell(pg.ones(1, 2, 5, 4), {}) end, "Conv2DLSTMCell", "states")
end)
