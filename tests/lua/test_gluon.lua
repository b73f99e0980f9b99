-- The tables of Gluon's API as a checklist: each name exists, takes Gluon's options with Gluon's defaults, works
-- hybridized, exported and imported, and has a document whose example runs (test_help runs them).
local t = require "tests.support"
local pg = require "perigee"
local layers = require "tests.layers"
local nn, rnn, loss = pg.nn, pg.nn.rnn, pg.loss

local names = pg.testing.core.require("support.documents").index().names

local function documented(path)
  local entry = names[path] or names[path:gsub("^nn%.", "")]
  t.check(entry, "no document: " .. path)
  t.check(entry.example, "no example: " .. path)
end

local function sorted(rows)
  local list = {}
  for name in pairs(rows) do list[#list + 1] = name end
  table.sort(list)
  local i = 0
  return function()
    i = i + 1
    return list[i], rows[list[i]]
  end
end

-- name = {the positional arguments, the options with Gluon's defaults, the shape of an input}
local function with(options, more)
  local all = {}
  for _, list in ipairs{options, more} do
    for key, value in pairs(list) do all[key] = value end
  end
  return all
end

local function conv(dims, layout)
  local one, zero = {}, {}
  for i = 1, dims do one[i], zero[i] = 1, 0 end
  return with({strides = one, padding = zero, dilation = one, groups = 1, layout = layout, use_bias = true, in_channels = 0,
               bias_initializer = "zeros"}, {})
end
local function transposed(dims, layout)
  local zero = {}
  for i = 1, dims do zero[i] = 0 end
  return with(conv(dims, layout), {output_padding = zero})
end
local function pool(layout, more) return with({padding = 0, layout = layout, ceil_mode = false}, more or {}) end
local norm = {epsilon = 1e-5, center = true, scale = true, beta_initializer = "zeros", gamma_initializer = "ones", in_channels = 0}
local batch_norm = with(norm, {
  axis = 2, momentum = 0.9, use_global_stats = false, running_mean_initializer = "zeros", running_variance_initializer = "ones",
})
local average = {count_include_pad = true}
local sequence, image, volume = {2, 4, 9}, {2, 4, 6, 6}, {1, 4, 4, 4, 4}

local blocks = {
  Dense = {{3}, {use_bias = true, flatten = true, dtype = "float32", bias_initializer = "zeros", in_units = 0}, {2, 5}},
  Dropout = {{0.5}, {axes = {}}, {2, 5}},
  BatchNorm = {{}, batch_norm, image}, BatchNormReLU = {{}, batch_norm, image},
  InstanceNorm = {{}, with(norm, {axis = 2, scale = false}), image},
  LayerNorm = {{}, with(norm, {axis = -1}), {2, 5}},
  GroupNorm = {{}, {num_groups = 1, epsilon = 1e-5, center = true, scale = true, beta_initializer = "zeros", gamma_initializer = "ones"}, image},
  Flatten = {{}, {}, image}, Activation = {{"softrelu"}, {}, {2, 5}}, LeakyReLU = {{0.1}, {}, {2, 5}},
  PReLU = {{}, {alpha_initializer = pg.init.Constant(0.25), in_channels = 1}, {2, 5}}, ELU = {{}, {alpha = 1}, {2, 5}},
  SELU = {{}, {}, {2, 5}}, GELU = {{}, {}, {2, 5}}, Swish = {{}, {beta = 1}, {2, 5}},
  Conv1D = {{3, 3}, conv(1, "NCW"), sequence}, Conv2D = {{3, 3}, conv(2, "NCHW"), image}, Conv3D = {{3, 3}, conv(3, "NCDHW"), volume},
  Conv1DTranspose = {{3, 3}, transposed(1, "NCW"), sequence}, Conv2DTranspose = {{3, 3}, transposed(2, "NCHW"), image},
  Conv3DTranspose = {{3, 3}, transposed(3, "NCDHW"), volume},
  MaxPool1D = {{}, pool("NCW", {pool_size = 2}), sequence}, MaxPool2D = {{}, pool("NCHW", {pool_size = 2}), image},
  MaxPool3D = {{}, pool("NCDHW", {pool_size = 2}), volume}, AvgPool1D = {{}, pool("NCW", average), sequence},
  AvgPool2D = {{}, pool("NCHW", average), image}, AvgPool3D = {{}, pool("NCDHW", average), volume},
  GlobalMaxPool1D = {{}, {layout = "NCW"}, sequence}, GlobalMaxPool2D = {{}, {layout = "NCHW"}, image},
  GlobalMaxPool3D = {{}, {layout = "NCDHW"}, volume}, GlobalAvgPool1D = {{}, {layout = "NCW"}, sequence},
  GlobalAvgPool2D = {{}, {layout = "NCHW"}, image}, GlobalAvgPool3D = {{}, {layout = "NCDHW"}, volume},
  ReflectionPad2D = {{}, {padding = 0}, image}, Identity = {{}, {}, {2, 5}}, SyncBatchNorm = {{}, {num_devices = 1, in_channels = 0}, image},
  PixelShuffle1D = {{2}, {}, sequence}, PixelShuffle2D = {{2}, {}, image}, PixelShuffle3D = {{{2, 2, 1}}, {}, volume},
  DeformableConvolution = {{3, 3}, {
    strides = {1, 1}, padding = {0, 0}, dilation = {1, 1}, groups = 1, num_deformable_group = 1, layout = "NCHW", use_bias = true,
    in_channels = 0, bias_initializer = "zeros", offset_bias_initializer = "zeros", offset_use_bias = true,
  }, image},
}

-- Rows whose calls have other forms: name = function that returns a block and its input.
local special = {
  Sequential = function() return nn.HybridSequential{nn.Dense(3)}, pg.ones(2, 4) end,
  HybridSequential = function() return nn.HybridSequential{nn.Dense(3)}, pg.ones(2, 4) end,
  Concurrent = function() return nn.HybridConcurrent{nn.Dense(3), nn.Dense(2)}, pg.ones(2, 4) end,
  HybridConcurrent = function() return nn.HybridConcurrent({nn.Dense(3), nn.Dense(2)}, {axis = -1}), pg.ones(2, 4) end,
  Embedding = function()
    return nn.Embedding(5, 3, {dtype = "float32", weight_initializer = "uniform", sparse_grad = false}), pg.tensor({1, 5}, {dtype = "int64"})
  end,
  SparseEmbedding = function() return nn.SparseEmbedding(5, 3), pg.tensor({1, 5}, {dtype = "int64"}) end,
  Lambda = function() return nn.HybridLambda("tanh"), pg.ones(2) end,
  HybridLambda = function() return nn.HybridLambda(function(x) return x:tanh() end), pg.ones(2) end,
}

local function input(shape) return pg.range(1, pg.zeros(shape):numel()):reshape(shape):sin() end

local function outputs(make, x, train)
  pg.manual_seed(3)
  local block = make()
  block:initialize()
  return block, (train and pg.train_mode or pg.predict_mode)(function() return block(x) end)
end

for name, row in sorted(blocks) do
  t.test("nn." .. name, function()
    documented("nn." .. name)
    local positional, options, x = row[1], row[2], input(row[3])
    local function plain() return nn[name](unpack(positional)) end
    local all = {unpack(positional)}
    all[#all + 1] = next(options) and options or nil
    local function explicit() return nn[name](unpack(all)) end
    for _, train in ipairs{false, true} do
      local _, expected = outputs(plain, x, train)
      local _, y = outputs(explicit, x, train)
      t.equal(y, expected)
    end
    layers.check((outputs(plain, x, false)), x)
  end)
end

for name, make in sorted(special) do
  t.test("nn." .. name, function()
    documented("nn." .. name)
    local block, x = make()
    t.check(nn[name])
    layers.check(block:initialize(), x)
  end)
end

-- --- rnn ---

local cell = {i2h_weight_initializer = "xavier", h2h_weight_initializer = "xavier", i2h_bias_initializer = "zeros", h2h_bias_initializer = "zeros"}
local function fused(more)
  return with({num_layers = 1, layout = "TNC", dropout = 0, bidirectional = false, input_size = 0, dtype = "float32",
               i2h_bias_initializer = "zeros", h2h_bias_initializer = "zeros", use_sequence_length = false}, more or {})
end
local function base() return rnn.GRUCell(3) end

-- name = {a function that returns its arguments, with Gluon's defaults, the shape of a step (or of a sequence)}
local recurrent = {
  RNNCell = {function() return 3, with(cell, {activation = "tanh", input_size = 0}) end, {2, 4}},
  LSTMCell = {function() return 3, with(cell, {activation = "tanh", recurrent_activation = "sigmoid", input_size = 0}) end, {2, 4}},
  GRUCell = {function() return 3, with(cell, {input_size = 0}) end, {2, 4}},
  LSTMPCell = {function() return 3, 2, with(cell, {h2r_weight_initializer = "xavier", input_size = 0}) end, {2, 4}},
  SequentialRNNCell = {function() return {base(), base()} end, {2, 4}}, HybridSequentialRNNCell = {function() return {base(), base()} end, {2, 4}},
  DropoutCell = {function() return 0.5, {axes = {}} end, {2, 4}},
  ZoneoutCell = {function() return base(), {zoneout_outputs = 0, zoneout_states = 0} end, {2, 4}},
  ResidualCell = {function() return rnn.GRUCell(4) end, {2, 4}},
  VariationalDropoutCell = {function() return base(), {drop_inputs = 0, drop_states = 0, drop_outputs = 0} end, {2, 4}},
  BidirectionalCell = {function() return base(), base() end, {2, 3, 4}, unroll = true},
  RNN = {function() return 3, fused{activation = "relu"} end, {3, 2, 4}, sequence = true},
  LSTM = {function() return 3, fused() end, {3, 2, 4}, sequence = true}, GRU = {function() return 3, fused() end, {3, 2, 4}, sequence = true},
}
for dims, layout in ipairs{"NCW", "NCHW", "NCDHW"} do
  local shape = {2, 5, 5, 5}
  for i = #shape, dims + 2, -1 do shape[i] = nil end
  local window, zero, one = {}, {}, {}
  for i = 1, dims do window[i], zero[i], one[i] = 3, 0, 1 end
  for _, kind in ipairs{"RNN", "LSTM", "GRU"} do
    recurrent[("Conv%dD%sCell"):format(dims, kind)] = {function()
      return {unpack(shape)}, 3, {unpack(window)}, {unpack(window)},
        with(cell, {i2h_pad = zero, i2h_dilate = one, h2h_dilate = one, conv_layout = layout, activation = "tanh"})
    end, {2, unpack(shape)}}
  end
end

for name, row in sorted(recurrent) do
  t.test("nn.rnn." .. name, function()
    documented("nn.rnn." .. name)
    pg.manual_seed(3)
    local block, x = rnn[name](row[1]()), input(row[2])
    block:initialize("xavier")
    if row.sequence then layers.check(block, x)
    elseif row.unroll then
      t.equal(block:unroll(3, x)[1] ~= nil, true)
    else
      local states = block:begin_state(2)
      if #states == 1 then layers.check(block, x, states) else layers.check(block, x, states) end
    end
  end)
end

t.test("nn.rnn.dynamic_unroll", function()
  documented("nn.rnn.dynamic_unroll")
  local unit = base():initialize()
  local x = input{3, 2, 4}
  t.close((rnn.dynamic_unroll(unit, x, unit:begin_state(2), {layout = "TNC"})), (unit:unroll(3, x, {layout = "TNC", merge_outputs = true})))
end)

-- --- loss ---

local pair, signs = {{2, 3}, {2, 3}}, {{1, -1, 1}, {-1, 1, 1}}
local classes = pg.tensor({1, 3}, {dtype = "int64"})
-- name = {the options with Gluon's defaults, the inputs}
local losses = {
  L2Loss = {{weight = 1, batch_axis = 1}, pair}, L1Loss = {{batch_axis = 1}, pair},
  SigmoidBinaryCrossEntropyLoss = {{from_sigmoid = false, batch_axis = 1}, pair},
  SoftmaxCrossEntropyLoss = {{axis = -1, sparse_label = true, from_logits = false, batch_axis = 1}, {{2, 3}, classes}},
  KLDivLoss = {{from_logits = true, axis = -1, batch_axis = 1}, pair},
  CTCLoss = {{layout = "NTC", label_layout = "NT"}, {{2, 5, 3}, pg.tensor({{1, 2}, {2, 2}}, {dtype = "int64"})}},
  HuberLoss = {{rho = 1, weight = 1, batch_axis = 1}, pair}, HingeLoss = {{margin = 1, batch_axis = 1}, {{2, 3}, pg.tensor(signs)}},
  SquaredHingeLoss = {{margin = 1, batch_axis = 1}, {{2, 3}, pg.tensor(signs)}},
  LogisticLoss = {{label_format = "signed", batch_axis = 1}, {{2, 3}, pg.tensor(signs)}},
  TripletLoss = {{margin = 1, batch_axis = 1}, {{2, 3}, {2, 3}, {2, 3}}},
  PoissonNLLLoss = {{from_logits = true, compute_full = false, batch_axis = 1}, pair},
  CosineEmbeddingLoss = {{margin = 0, batch_axis = 1}, {{2, 3}, {2, 3}, pg.tensor{1, -1}}},
  SDMLLoss = {{smoothing_parameter = 0.3, weight = 1, batch_axis = 1}, pair},
}

for name, row in sorted(losses) do
  t.test("loss." .. name, function()
    documented("loss." .. name)
    local inputs = {}
    for i, x in ipairs(row[2]) do inputs[i] = getmetatable(x) and x or input(x) * (1 + 0.1 * i) end
    local f = loss[name](row[1])
    local expected = loss[name]()(unpack(inputs))
    t.equal(f(unpack(inputs)), expected)
    layers.check(f, unpack(inputs))
  end)
end

-- --- optimizers, schedules, initializers, metrics ---

local optimizers = {
  SGD = {momentum = 0, lazy_update = true}, NAG = {momentum = 0}, Adam = {learning_rate = 0.001, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, lazy_update = true},
  AdaMax = {learning_rate = 0.002, beta1 = 0.9, beta2 = 0.999},
  Nadam = {learning_rate = 0.001, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, schedule_decay = 0.004}, AdaGrad = {eps = 1e-7},
  AdaDelta = {rho = 0.9, epsilon = 1e-5}, RMSProp = {learning_rate = 0.001, gamma1 = 0.9, gamma2 = 0.9, epsilon = 1e-8, centered = false},
  Ftrl = {lamda1 = 0.01, learning_rate = 0.1, beta = 1}, FTML = {beta1 = 0.6, beta2 = 0.999, epsilon = 1e-8},
  Signum = {learning_rate = 0.01, momentum = 0.9, wd_lh = 0}, DCASGD = {momentum = 0, lamda = 0.04}, SGLD = {}, LBSGD = {momentum = 0},
  LARS = {momentum = 0, eta = 0.001}, LAMB = {learning_rate = 0.001, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-6},
  Test = {}, GroupAdaGrad = {eps = 1e-5}, AdamW = {learning_rate = 0.001, beta1 = 0.9, beta2 = 0.999},
}
local common = {wd = 0, rescale_grad = 1, multi_precision = false}

local function two_steps(name, options)
  pg.manual_seed(5)
  local net = nn.Dense(2, {in_units = 3})
  net:initialize("xavier")
  local trainer = pg.optim.Trainer(net:collect_params(), name:lower(), options)
  for _ = 1, 2 do
    pg.record(function() return (net(input{4, 3}) ^ 2):sum() end):backward()
    trainer:step(1)
  end
  return net.weight:detach()
end

for name, options in sorted(optimizers) do
  t.test("optim." .. name, function()
    documented("optim." .. name)
    t.check(pg.optim[name])
    t.equal(two_steps(name, with(options, common)), two_steps(name, {}))
  end)
end

local schedulers = {
  FactorScheduler = {5, {factor = 1, stop_factor_lr = 1e-8}}, MultiFactorScheduler = {{3, 6}, {factor = 1}},
  PolyScheduler = {8, {pwr = 2, final_lr = 0}}, CosineScheduler = {8, {final_lr = 0}},
}
for name, row in sorted(schedulers) do
  t.test("lr_scheduler." .. name, function()
    documented("optim.lr_scheduler." .. name:gsub("Scheduler", ""))
    local kind = pg.optim.lr_scheduler[name]
    local plain = kind(row[1])
    local explicit = kind(row[1], with(row[2], {base_lr = 0.01, warmup_steps = 0, warmup_begin_lr = 0, warmup_mode = "linear"}))
    for update = 1, 10 do t.equal(explicit(update), plain(update)) end
  end)
end

local initializers = {
  Zero = {}, One = {}, Constant = {2}, Uniform = {0.07}, Normal = {0.01}, Orthogonal = {1.414, "uniform"},
  Xavier = {{rnd_type = "uniform", factor_type = "avg", magnitude = 3}}, MSRAPrelu = {{factor_type = "avg", slope = 0.25}},
  Bilinear = {}, LSTMBias = {1}, Load = false, Mixed = false, FusedRNN = false, TruncatedNormal = {},
}
for name, row in sorted(initializers) do
  t.test("init." .. name, function()
    documented("init." .. name)
    if not row then return end
    local shape = name == "LSTMBias" and {8} or {2, 2, 4, 4}
    local function make(...)
      pg.manual_seed(2)
      return pg.init[name](...):make(shape, {dtype = "float32"}, "weight")
    end
    local x = make(unpack(row))
    t.equal(x.shape, shape)
    if name ~= "Constant" then t.equal(make(), x) end
  end)
end

local metric_options = {
  Accuracy = {axis = 2}, TopKAccuracy = {top_k = 1}, F1 = {average = "macro"}, MCC = {average = "macro"}, Perplexity = {}, MAE = {}, MSE = {},
  RMSE = {}, CrossEntropy = {eps = 1e-12}, NegativeLogLikelihood = {eps = 1e-12}, PearsonCorrelation = {}, PCC = {}, Loss = {},
}
for name, options in sorted(metric_options) do
  t.test("metric." .. name, function()
    documented("metric." .. name)
    local m = pg.metric[name](options)
    local scores = name:find("^P[^C]") and not name:find("Perp") or name:find("^M[AS]E") or name == "RMSE"
    local preds = scores and pg.tensor{0.4, 0.1, 0.7} or pg.tensor{{0.4, 0.6}, {0.1, 0.9}, {0.7, 0.3}}
    local labels = scores and pg.tensor{0.5, 0.2, 0.4} or pg.tensor({2, 1, 1}, {dtype = "int64"})
    m:update(labels, preds)
    local first, value = m:get()
    t.check(type(first) == "string" and value == value)
    m:reset_local()
    m:update(labels, preds)
    local _, all = m:get_global()
    local _, last = m:get()
    t.close(last, value)
    if name ~= "F1" then t.close(all, value) end
    m:reset()
    t.check(select(2, m:get_global()) ~= value)
  end)
end
for _, name in ipairs{"CustomMetric", "CompositeEvalMetric", "create"} do
  t.test("metric." .. name, function()
    documented("metric." .. name)
    t.check(pg.metric[name])
  end)
end
