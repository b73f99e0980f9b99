-- Recurrent layers: values of torch and MXNet, modes, files, graphs, errors.
local t = require "tests.support"
local json = require "tests.json"
local gradcheck = require "tests.gradcheck"
local pg = require "perigee"
local nn, rnn = pg.nn, pg.nn.rnn

local function is_null(v) return v == nil or v == json.null end

-- Runs once as written and once with the loops as plain Lua.
local function test(name, f)
  t.test(name, f)
  t.test(name .. ", loops as plain Lua", function() pg.debug(f) end)
end

local function randn(...) return pg.randn({...}) end

local function paths(block)
  local list = {}
  for path in block:parameters() do list[#list + 1] = path end
  return list
end

-- Reference values ---------------------------------------------------------------------------------------------------------------

local makers = {
  lstm = function(hidden, o) return rnn.LSTM(hidden, o) end,
  gru = function(hidden, o) return rnn.GRU(hidden, o) end,
  rnn_tanh = function(hidden, o) o.activation = "tanh" return rnn.RNN(hidden, o) end,
  rnn_relu = function(hidden, o) return rnn.RNN(hidden, o) end,
}

-- A layer with the weights of a case (w_ih, w_hh, b_ih, b_hh per layer and direction) and its parameters in that order.
local function layer_of(case, inputs, first)
  local hidden = inputs[first + 1]:size(2)
  local layer = makers[case.op](hidden, {
    num_layers = case.attrs.num_layers, bidirectional = case.attrs.bidirectional, dtype = case.dtype, input_size = inputs[1]:size(3),
  }):initialize()
  local list = {}
  for path, p in layer:parameters() do
    list[#list + 1] = p
    p:set_data(inputs[first + #list - 1])
    t.check(path:find("^[lr]%d_[ih]2h_%a+$"), path)
  end
  t.equal(#list, #inputs - first + 1)
  return layer, list
end

local function check_case(case, data)
  local inputs = {}
  for i, key in ipairs(case.inputs) do inputs[i] = data[key] end
  local count = case.op == "lstm" and 2 or 1
  local layer, leaves = layer_of(case, inputs, count + 2)
  for i = 1, count + 1 do table.insert(leaves, i, inputs[i]:attach_grad()) end
  local heads = pg.record(function()
    local y, states = layer(inputs[1], {unpack(inputs, 2, count + 1)})
    return {y, unpack(states)}
  end)
  local cotangents = {}
  for i, key in ipairs(case.output) do
    t.close(heads[i], data[key], {rtol = case.rtol, atol = case.atol, what = "output " .. i})
    cotangents[i] = data[case.grad_output[i]]
  end
  pg.autograd.backward(heads, cotangents)
  for i, key in ipairs(case.grads) do
    if not is_null(key) then t.close(leaves[i].grad, data[key], {rtol = case.rtol, atol = case.atol, what = "gradient " .. i}) end
  end
end

test("the layers follow torch, outputs, states and gradients", function()
  t.skip_in("gcstress", "reference values do not depend on collections")
  local folder = t.shared("data/fixtures/ops/")
  local manifest = json.read(folder .. "manifest.json")
  local data, count = pg.load(folder .. manifest.groups.rnn), 0
  for _, case in ipairs(manifest.cases) do
    if case.group == "rnn" then
      check_case(case, data)
      count = count + 1
    end
  end
  t.check(count >= 12)
end)

local function curve_net(hidden)
  return nn.block{
    rnn = rnn.LSTM(hidden, {layout = "NTC"}), fc = nn.Dense(10),
    forward = function(self, x)
      local y = self.rnn(x)
      return self.fc(y[{{}, -1}])
    end,
  }
end

test("pg.lstm, pg.gru and pg.rnn in all forms of their arguments", function()
  local layer = rnn.LSTM(4, 2, {input_size = 3, bidirectional = true}):initialize("xavier")
  local w, x = {}, randn(5, 2, 3)
  for _, p in layer:parameters() do w[#w + 1] = p end
  local start = {randn(4, 2, 4), randn(4, 2, 4)}
  local y, s = layer(x, start)
  local function same(a, h, c)
    t.equal(a, y)
    t.equal(h, s[1])
    t.equal(c, s[2])
  end
  same(pg.lstm(x, start, w, {num_layers = 2, bidirectional = true}))
  same(pg.lstm(x, start, w, true, 2, 0, false, true))
  local flat = {start[1], start[2], unpack(w)}
  flat[#flat + 1] = {bidirectional = true}
  same(pg.lstm(x, unpack(flat)))
  same(x:lstm(start, w, {bidirectional = true}))
  t.close((pg.lstm(x, nil, w, {bidirectional = true})), layer(x))
  t.close((pg.lstm(x:transpose(1, 2), nil, w, {bidirectional = true, batch_first = true})), layer(x):transpose(1, 2))
  t.close((pg.lstm(x, nil, w, {bidirectional = true, sequence_length = {5, 2}})), (layer(x, nil, {5, 2})))
  local gru = rnn.GRU(4, {input_size = 3}):initialize("xavier")
  t.close((pg.gru(x, start[1]:narrow(1, 1, 1), {gru.l0_i2h_weight, gru.l0_h2h_weight})), (gru(x, start[1]:narrow(1, 1, 1))))
  local h, last = pg.rnn(x, nil, {pg.ones(4, 3), pg.zeros(4, 4)}, {nonlinearity = "relu"})
  t.close(h, x:sum(3, true):relu():expand(5, 2, 4), {atol = 1e-5})
  t.equal(last.shape, {1, 2, 4})
  t.bad_argument(function() pg.lstm(x, start, {w[1], w[2], w[3]}) end, "lstm", "weights")
  t.bad_argument(function() pg.lstm(x, start) end, "lstm", "weights")
  local weights, none = {pg.ones(3, 2), pg.ones(3, 1), pg.zeros(3), pg.zeros(3)}, pg.zeros(1, 2, 1)
  local function refuses(name, expected, h0, index, weight)
    local list = {unpack(weights)}
    if index then list[index] = weight end
    for _, made in ipairs{pg.gru, pg.jit(pg.gru)} do
      t.error_contains(function() made(pg.ones(3, 2, 2), h0, list) end, ("gru: bad argument '%s' (expected shape (%s), got"):format(name, expected))
    end
  end
  refuses("h0", "1, 2, 1", pg.zeros(2, 2, 1))
  refuses("h0", "1, 2, 1", pg.zeros(1, 3, 1))
  refuses("h0", "1, 2, 1", pg.zeros(1, 2, 4))
  refuses("h0", "1, 2, 1", pg.zeros(2, 1))
  refuses("weights[1]", "3, 2", nil, 1, pg.ones(4, 2))
  refuses("weights[1]", "6, 2", none, 2, pg.ones(3, 2))
  refuses("weights[2]", "3, 1", none, 2, pg.ones(4, 1))
  refuses("weights[3]", "3", none, 3, pg.ones(2))
  refuses("weights[4]", "3", none, 4, pg.ones(2))
  t.bad_argument(function() pg.gru(x[1], nil, {gru.l0_i2h_weight, gru.l0_h2h_weight}) end, "gru", "x")
  t.error_contains(function() pg.rnn(x, nil, {pg.ones(4, 3), pg.zeros(4, 4)}, {nonlinearty = "relu"}) end, "nonlinearity")
end)

test("an LSTM with sgd follows MXNet for 50 steps", function()
  t.skip_in("gcstress", "many small ops")
  local folder = t.shared("data/fixtures/train/")
  local curve
  for _, c in ipairs(json.read(folder .. "manifest.json").curves) do if c.name == "lstm_sgd" then curve = c end end
  local digits, values = pg.load(folder .. "digits.safetensors"), pg.load(folder .. curve.file)
  local x, y = digits.x, digits.y:to("int64") + 1
  local net = curve_net(values["init:rnn._unfused.0.h2h_weight"]:size(2))
  local source = {}
  for _, path in ipairs(curve.params) do source[(path:gsub("_unfused%.0%.", "l0_"))] = values["init:" .. path] end
  net:initialize(pg.init.Load(source))
  local loss_fn = pg.loss.SoftmaxCrossEntropyLoss()
  local trainer = pg.optim.Trainer(net:collect_params(), curve.optimizer, curve.args)
  for step = 1, curve.steps do
    local rows = values.order[step]:to("int64") + 1
    local batch = x:index_select(1, rows):reshape{-1, 8, 8}
    local l = pg.record(function() return loss_fn(net(batch), y:index_select(1, rows)) end)
    t.close(l:mean():item(), values.loss[step]:item(), {rtol = curve.rtol, atol = curve.atol, what = "loss " .. step})
    l:backward()
    trainer:step(curve.batch)
  end
  local logits = net(x:narrow(1, 1, values.logits:size(1)):reshape{-1, 8, 8})
  t.close(logits, values.logits, {rtol = 5e-3, atol = 2e-3})
end)

-- Layers -------------------------------------------------------------------------------------------------------------------------

test("names, shapes, states and printing of the layers", function()
  local layer = rnn.LSTM(4, 2, {bidirectional = true, layout = "NTC", dropout = 0.5})
  t.equal(tostring(layer), "LSTM(? -> 4, NTC, 2 layers, dropout 0.5, bidirectional)")
  t.equal(paths(layer), {
    "l0_i2h_weight", "l0_h2h_weight", "l0_i2h_bias", "l0_h2h_bias", "r0_i2h_weight", "r0_h2h_weight", "r0_i2h_bias", "r0_h2h_bias",
    "l1_i2h_weight", "l1_h2h_weight", "l1_i2h_bias", "l1_h2h_bias", "r1_i2h_weight", "r1_h2h_weight", "r1_i2h_bias", "r1_h2h_bias",
  })
  layer:initialize()
  local y = layer(randn(3, 5, 6))
  t.equal(y.shape, {3, 5, 8})
  t.equal(layer.l0_i2h_weight.shape, {16, 6})
  t.equal(layer.l1_i2h_weight.shape, {16, 8})
  t.equal(layer:state_info(3)[2].shape, {4, 3, 4})
  local _, s = layer(randn(3, 5, 6), layer:begin_state{batch_size = 3, func = pg.ones})
  t.equal(s[1].shape, {4, 3, 4})
  t.equal(tostring(rnn.RNN(4, {input_size = 2})), "RNN(2 -> 4, TNC, relu)")
  local bias = rnn.LSTM(2, {input_size = 1, i2h_bias_initializer = pg.init.LSTMBias(1)}):initialize().l0_i2h_bias
  t.equal(bias:totable(), {0, 0, 1, 1, 0, 0, 0, 0})
  local projected = rnn.LSTM(6, 2, {projection_size = 3, bidirectional = true}):initialize()
  local out, states = projected(randn(5, 2, 4), projected:begin_state(2))
  t.equal(out.shape, {5, 2, 6})
  t.equal(states[1].shape, {4, 2, 3})
  t.equal(states[2].shape, {4, 2, 6})
  t.equal(projected.l0_h2r_weight.shape, {3, 6})
end)

test("other dtypes, subclasses, stateful training", function()
  for _, dtype in ipairs{"float16", "bfloat16", "float64"} do
    local x = randn(5, 2, 3):to(dtype)
    local layer = rnn.GRU(4, 2, {bidirectional = true}):initialize():to(dtype)
    local y, states = layer(x, layer:begin_state(2), {5, 3})
    t.equal(y.dtype, dtype)
    t.equal(states[1].dtype, dtype)
    local cell = rnn.ZoneoutCell(rnn.LSTMCell(4, {dtype = dtype}), {zoneout_outputs = 0.5, zoneout_states = 0.5}):initialize()
    local outs, last = pg.train_mode(function() return cell:unroll(5, x, {layout = "TNC", valid_length = {1, 5}}) end)
    t.equal(outs.dtype, dtype)
    t.equal(last[2].dtype, dtype)
    t.equal(pg.train_mode(function() return (cell(x[1], cell:begin_state(2))) end).dtype, dtype)
  end
  local Doubled = rnn.LSTMCell:extend("Doubled")
  function Doubled:forward(x, s)
    local h, new = rnn.LSTMCell.forward(self, x, s)
    return h * 2, new
  end
  local cell, x = Doubled(4):initialize("xavier"), randn(2, 3, 5)
  local outs, states = cell:unroll(3, x)
  t.close(outs[{{}, -1}], states[1] * 2)

  local net = nn.block{
    rnn = rnn.LSTM(8, 2), fc = nn.Dense(3, {flatten = false}),
    forward = function(self, a, s)
      local y, new = self.rnn(a, s)
      return self.fc(y), new
    end,
  }:initialize("xavier")
  net:hybridize()
  local trainer = pg.optim.Trainer(net:collect_params(), "adam", {learning_rate = 0.02})
  local s, labels, first, last = net.rnn:begin_state(2), pg.tensor{1, 2, 3, 1, 2, 3, 1, 2, 3, 1}:to("int64"), nil, nil
  x = randn(5, 2, 4)
  for _ = 1, 15 do
    local l = pg.record(function()
      local y
      y, s = net(x, s)
      return y:reshape{-1, 3}:cross_entropy(labels)
    end)
    l:backward()
    trainer:step(1)
    s = pg.tree.map(function(a) return a:detach() end, s)
    last = l:item()
    first = first or last
  end
  t.check(last < first, ("%g after %g"):format(last, first))
end)

test("dropout of a layer acts between layers, in training mode", function()
  local layer = rnn.GRU(8, 2, {dropout = 0.5, input_size = 3}):initialize("xavier")
  local single = rnn.GRU(8, 1, {dropout = 0.5, input_size = 3}):initialize("xavier")
  local x = randn(5, 2, 3)
  t.equal(layer(x), layer(x))
  pg.train_mode(function()
    t.check(not layer(x):allclose(layer(x)))
    t.equal(single(x), single(x))
  end)
end)

test("parameters of layers and cells in files", function()
  local a, b = rnn.LSTM(4, 2, {bidirectional = true}):initialize("xavier"), rnn.LSTM(4, 2, {bidirectional = true})
  local x = randn(3, 2, 5)
  local expected = a(x)
  a:save_parameters(t.tmp("lstm.safetensors"))
  b:load_parameters(t.tmp("lstm.safetensors"))
  t.equal(b(x), expected)
  local function make() return rnn.SequentialRNNCell{rnn.LSTMCell(4), rnn.ResidualCell(rnn.GRUCell(4))} end
  local c, d = make():initialize("xavier"), make()
  expected = c:unroll(3, x, {layout = "TNC"})
  t.equal(paths(c)[5], "2.base_cell.i2h_weight")
  c:save_parameters(t.tmp("cells.safetensors"))
  d:load_parameters(t.tmp("cells.safetensors"))
  t.equal((d:unroll(3, x, {layout = "TNC"})), expected)
end)

test("no steps, one step, a batch of one", function()
  local layer = rnn.LSTM(4, {input_size = 3}):initialize("xavier")
  t.equal(layer(randn(1, 1, 3)).shape, {1, 1, 4})
  t.equal(layer(randn(2, 0, 3)).shape, {2, 0, 4})
  t.equal(layer(randn(0, 2, 3)).shape, {0, 2, 4})
  local h = {randn(1, 2, 4), randn(1, 2, 4)}
  local _, states = layer(randn(0, 2, 3), h)
  t.equal(states[2], h[2])
end)

test("gradients against finite differences", function()
  t.skip_in("gcstress", "many small ops")
  local x = gradcheck.random({3, 2, 2})
  for _, make in ipairs{rnn.LSTM, rnn.GRU} do
    local layer = make(2, {bidirectional = true, dtype = "float64", input_size = 2}):initialize("xavier")
    gradcheck.check(function(list)
      local y, s = layer(list[1], {unpack(list, 2)}, pg.tensor{3, 2})
      return {y, unpack(s)}
    end, {x, unpack(layer:begin_state(2, {func = function(shape) return gradcheck.random(shape) end}))})
  end
  local cell = rnn.ResidualCell(rnn.LSTMCell(2, {dtype = "float64", input_size = 2})):initialize("xavier")
  gradcheck.check(function(list) return {(cell:unroll(3, list[1], {layout = "TNC", valid_length = {1, 3}}))} end, {x})
end)

t.test("unrolling and layers see what is replaced or changed", function()
  local function same_as_plain(f) t.close(f(), pg.debug(f), {atol = 1e-5}) end
  local x = randn(2, 4, 5)
  local bi = rnn.BidirectionalCell(rnn.GRUCell(3), rnn.GRUCell(3)):initialize("xavier")
  local function unroll() return (bi:unroll(4, x)) end
  same_as_plain(unroll)
  bi.l_cell = rnn.GRUCell(3, {input_size = 5}):initialize("one")
  same_as_plain(unroll)
  bi.l_cell.i2h_weight = pg.param(pg.zeros(9, 5))
  same_as_plain(unroll)
  bi.l_cell.i2h_weight:set_data(pg.ones(9, 5))
  same_as_plain(unroll)

  local stack = rnn.SequentialRNNCell{rnn.LSTMCell(3)}:initialize("xavier")
  stack:unroll(4, x)
  stack:add(rnn.ResidualCell(rnn.RNNCell(3))):initialize("xavier")
  local outs, states = stack:unroll(4, x)
  t.equal(#states, 3)
  t.close(outs, (pg.debug(function() return (stack:unroll(4, x)) end)), {atol = 1e-5})

  local layer = rnn.LSTM(3, {layout = "NTC"}):initialize("xavier")
  layer(x)
  layer.l0_i2h_weight = pg.param(pg.zeros(12, 5))
  same_as_plain(function() return layer(x) end)

  local Scaled = rnn.HybridRecurrentCell:extend("Scaled")
  function Scaled:init(k) self.k = k end
  function Scaled:state_info(n) return {{shape = {n or 0, 5}, layout = "NC"}} end
  function Scaled:forward(a, s)
    local h = s[1] * 0.5 + a * self.k
    return h, {h}
  end
  local cell = Scaled(2)
  local doubled = cell:unroll(4, x)
  cell.k = 4
  t.close((cell:unroll(4, x)), doubled * 2)
end)

local function labelled_net()
  local net = nn.block{
    rnn = rnn.LSTM(3, 2, {bidirectional = true, layout = "NTC"}),
    forward = function(self, x, lengths) return self.rnn(x, nil, lengths) end,
  }:initialize("xavier")
  net:hybridize()
  local lengths = pg.tensor({1, 4}, {dtype = "int64"})
  net(randn(2, 4, 5), lengths)
  return net, lengths
end

t.test("one graph serves every batch and every length", function()
  local net = labelled_net()
  for _, shape in ipairs{{7, 3, 5}, {1, 1, 5}, {3, 9, 5}, {2, 0, 5}} do
    local x, n = randn(unpack(shape)), pg.full({shape[1]}, math.min(2, shape[2]), {dtype = "int64"})
    t.close(net(x, n), pg.debug(function() return net.rnn(x, nil, n) end), {atol = 1e-5})
  end
  t.equal(net:cache_info().traces, 1)
end)

t.test("export and import", function()
  local net, lengths = labelled_net()
  local json_path, weights = net:export(t.tmp("rnn"))
  local again = nn.SymbolBlock.imports(json_path, nil, weights)
  local x = randn(2, 6, 5)
  t.close(again(x, lengths), net(x, lengths), {atol = 1e-6})
end)

t.test("layers, unroll and combinators on symbols", function()
  local d, x = pg.symbol("data", {shape = {4, 2, 5}}), randn(6, 3, 5)
  local layer, cell = rnn.GRU(3, {input_size = 5}):initialize("xavier"), rnn.ResidualCell(rnn.LSTMCell(5)):initialize("xavier")
  t.close(pg.graph(layer(d), d):run(x), layer(x), {atol = 1e-6})
  t.close(pg.graph(layer(d * 2), d):run(x), layer(x * 2), {atol = 1e-6})
  t.close(pg.graph((cell:unroll(nil, d, {layout = "TNC"})), d):run(x), (cell:unroll(6, x, {layout = "TNC"})), {atol = 1e-6})
  local c = pg.cond(d:sum():gt(0), function() return d * 2 end, function() return d - 1 end)
  t.close(pg.graph(c, d):run(x:abs()), x:abs() * 2)
  t.close(pg.graph(c, d):run(-x:abs()), -x:abs() - 1)
  local _, vars, n = pg.while_loop(function(a) return a:lt(100) end, function(a) return nil, {a * 2} end, {d:sum()})
  t.equal(pg.graph({vars[1], n}, d):run(pg.ones(2, 1, 5)), {160, 4})
end)

t.test("steps of a hybridized ZoneoutCell need no new graph at each sequence", function()
  local cell = rnn.ZoneoutCell(rnn.LSTMCell(8), {zoneout_outputs = 0.5}):initialize("xavier")
  cell:hybridize()
  for _ = 1, 4 do
    cell:reset()
    local s = cell:begin_state(2)
    for _ = 1, 3 do
      local _
      _, s = cell(randn(2, 3), s)
    end
  end
  t.check(cell:cache_info().traces <= 2, cell:cache_info().last_retrace)
end)

test("what is wrong is said", function()
  local layer, cell = rnn.LSTM(4, {input_size = 3}):initialize(), rnn.LSTMCell(4, {input_size = 3}):initialize()
  local x = randn(5, 2, 3)
  t.bad_argument(function() layer(x[1]) end, "LSTM", "x")
  t.bad_argument(function() layer(x, x) end, "LSTM", "states")
  t.bad_argument(function() layer(x, {x, x}) end, "LSTM", "states[1]")
  t.error_contains(function() layer(x, {pg.zeros(1, 3, 4), pg.zeros(1, 3, 4)}) end, "3")
  if not pg.testing.graphs_off() and t.mode == "eager" then
    t.bad_argument(function() layer(x, layer:begin_state(3)) end, "LSTM", "states[1]")
  end
  t.check(not t.pcall(layer, x, layer:begin_state(3)))
  t.check(not t.pcall(layer, x, layer:begin_state(1)), "a batch of one is no batch of two")
  t.bad_argument(function() layer(x, nil, {1, 2, 3}) end, nil, "lengths")
  t.bad_argument(function() layer(x, nil, {1, 6}) end, nil, "lengths")
  t.bad_argument(function() layer(x, nil, 3) end, "LSTM", "sequence_length")
  t.bad_argument(function() rnn.GRU(4, {use_sequence_length = true, input_size = 3}):initialize()(x) end, "GRU", "sequence_length")
  t.error_contains(function() layer(randn(5, 2, 4)) end, "bad argument")
  t.bad_argument(function() rnn.LSTM() end, "LSTM", "hidden_size")
  t.bad_argument(function() rnn.LSTM(0) end, "LSTM", "hidden_size")
  t.bad_argument(function() rnn.RNN(4, {activation = "sigmoid"}) end, "RNN", "activation")
  t.bad_argument(function() rnn.RNN(4, {layout = "NCT"}) end, "RNN", "layout")
  t.error_contains(function() rnn.GRU(4, {bidirectonal = true}) end, "bidirectional")
  t.error_contains(function() return rnn.LSTMcell end, "LSTMCell")
  t.error_contains(function() cell(x[1]) end, "begin_state")
  t.bad_argument(function() cell(x[1], {x[1]}) end, "LSTMCell", "states")
  t.bad_argument(function() cell:unroll(4, x, {layout = "TNC"}) end, "unroll", "inputs")
  t.bad_argument(function() cell:unroll(5, x, {layout = "CNT"}) end, "unroll", "layout")
  t.bad_argument(function() cell:unroll(5, {}) end, "unroll", "inputs")
  t.bad_argument(function() cell:begin_state() end, "begin_state", "batch_size")
  t.error_contains(function() rnn.BidirectionalCell(cell, rnn.GRUCell(2))(x[1], {}) end, "unroll")
  t.bad_argument(function() rnn.SequentialRNNCell{cell, nn.Dense(3)} end, "SequentialRNNCell", "children[2]")
  t.bad_argument(function() rnn.ZoneoutCell(rnn.BidirectionalCell(cell, cell)) end, "ZoneoutCell", "base_cell")
  t.bad_argument(function() rnn.ZoneoutCell(rnn.ZoneoutCell(cell, {zoneout_outputs = 0.5}), {zoneout_outputs = 0.5}) end, "ZoneoutCell")
  t.bad_argument(function() rnn.ResidualCell(nn.Dense(2)) end, "ResidualCell", "base_cell")
  t.error_contains(function() rnn.RNNCell(4, {activation = "tahn"}) end, "tanh")
end)

t.test("x of a narrower dtype than the weights", function()
  local x = randn(5, 2, 3)
  local lengths = pg.tensor({3, 5}, {dtype = "int64"})
  for _, layer in ipairs{rnn.LSTM(4, 2, {bidirectional = true, use_sequence_length = true}), rnn.GRU(4, {use_sequence_length = true}), rnn.RNN(4, {use_sequence_length = true})} do
    layer:initialize()(x, nil, lengths)
    layer:cast("float64")
    t.equal(layer(x, nil, lengths), layer(x:to("float64"), nil, lengths))
  end
  local cell = rnn.HybridSequentialRNNCell{rnn.LSTMCell(4, {input_size = 3}), rnn.ResidualCell(rnn.GRUCell(4, {input_size = 4}))}
  cell:initialize():cast("float64")
  local options = {layout = "TNC", valid_length = lengths}
  t.equal((cell:unroll(5, x, options)), (cell:unroll(5, x:to("float64"), options)))
end)

t.test("a number of layers has a limit", function()
  for _, make in ipairs{pg.nn.rnn.LSTM, pg.nn.rnn.GRU, pg.nn.rnn.RNN} do
    t.error_contains(function() make(3, {num_layers = 2 ^ 53}) end, "bad argument 'num_layers' (expected a whole number of at most 10000, got number 9")
  end
  t.error_contains(function() pg.nn.TransformerEncoder(2 ^ 53, 8, 2) end, "expected a whole number of at most 10000")
end)
