-- The ops of graphs exported by MXNet.
local t = require "tests.support"
local json = require "tests.json"
local mxnet = require "tests.mxnet_graphs"
local pg = require "perigee"
local nn = pg.nn
local imports = nn.SymbolBlock.imports
local node, var, graph, write, block_of, gives, same_as =
  mxnet.node, mxnet.var, mxnet.graph, mxnet.write, mxnet.block_of, mxnet.gives, mxnet.same_as

local function attribute_of(v)
  if type(v) ~= "table" then return v == true and "True" or v == false and "False" or tostring(v) end
  local out = {}
  for i, item in ipairs(v) do out[i] = item == json.null and "None" or tostring(item) end
  return "(" .. table.concat(out, ", ") .. (#out == 1 and ",)" or ")")
end

-- Cases whose gradient is shared among equal elements here, and one whose result is that of several ops.
local ties = {["max.049"] = true, ["broadcast_maximum.056"] = true}
local squared = {["MakeLoss.025"] = true}
-- The order of the inputs, which the manifest keeps as names only.
local orders = {
  "data", "a", "c", "indices", "x", "y", "b", "weight", "gamma", "bias", "beta", "moving_mean", "moving_var", "index", "len", "label",
}
for i, name in ipairs(orders) do orders[name] = i end

local function run_case(case, data, hybrid)
  local nodes, inputs, names, tensors = {}, {}, {}, {}
  for name in pairs(case.inputs) do names[#names + 1] = name end
  table.sort(names, function(a, b)
    if case.op == "take" or case.op == "gather_nd" then return a < b end
    return orders[a] < orders[b]
  end)
  for i, name in ipairs(names) do nodes[i], inputs[i] = var(name), i - 1 end
  local attrs = {}
  for key, v in pairs(case.attrs) do attrs[key] = attribute_of(v) end
  nodes[#nodes + 1] = node(case.op, "op", attrs, inputs)
  local heads = {}
  for k in ipairs(case.outputs) do heads[k] = {#names, k - 1} end
  local given = {}
  local new, grads, all_heads = case.new or {}, case.grads or {}, case.heads
  for _, name in ipairs(names) do if not new[name] then given[#given + 1] = name end end
  local block = imports(write(graph(nodes, heads)), given)
  for _, name in ipairs(names) do
    local value = data[case.inputs[name]]
    if new[name] then block[name] = pg.param(value, {grad_req = "null"})
    else
      tensors[#tensors + 1] = value:clone()
      if grads[name] then tensors[#tensors]:attach_grad() end
    end
  end
  if hybrid then block:hybridize() end
  local got
  local loss = pg.record(function()
    if squared[case.id] then got = {block(tensors[1] * tensors[1])} else got = {block(unpack(tensors))} end
    if not all_heads then return end
    local total = tensors[1]:sum() * 0
    for k, y in ipairs(got) do total = total + (y * data[all_heads[k]]):sum() end
    return total
  end, {train = case.train_mode})
  for k, key in ipairs(case.outputs) do same_as(got[k], data[key], case, case.id) end
  if loss and case.grads and not ties[case.id] then
    loss:backward()
    for i, name in ipairs(given) do
      if grads[name] then t.close(tensors[i].grad, data[grads[name]], {rtol = case.rtol, atol = case.atol, what = case.id .. ": " .. name}) end
    end
  end
  for name, key in pairs(new) do t.close(block[name], data[key], {rtol = case.rtol, atol = case.atol, what = case.id .. ": " .. name}) end
end

t.test("ops of MXNet with their attributes, values and gradients", function()
  local folder, count = t.shared("data/fixtures/mxnet_ops/"), 0
  local data = pg.load(folder .. "mxnet_ops.safetensors")
  for _, case in ipairs(json.read(folder .. "manifest.json").cases) do
    if case.group ~= "loss" then
      run_case(case, data)
      run_case(case, data, true)
      count = count + 1
    end
  end
  t.check(count >= 49, count)
end)

t.test("Reshape with MXNet's codes", function()
  local x = pg.range(1, 24):reshape{2, 3, 4}
  for _, case in ipairs{
    {"(4, 0, 2)", {4, 3, 2}}, {"(-1,)", {24}}, {"(0, -1)", {2, 12}}, {"(-2,)", {2, 3, 4}}, {"(-2, 1, 1)", {2, 3, 4, 1, 1}}, {"(0, -3)", {2, 12}},
    {"(-3, 0)", {6, 4}}, {"(-4, 1, 2, -2)", {1, 2, 3, 4}}, {"(2, -4, -1, 3, -2)", {2, 1, 3, 4}}, {"(-3, -2)", {6, 4}}, {"(0, 0, -4, 2, -1)", {2, 3, 2, 2}},
  } do gives("Reshape", {shape = case[1]}, {x}, x:reshape(case[2])) end
  local y = pg.range(1, 400):reshape{10, 5, 8}
  gives("reshape", {shape = "(-1, 0)", reverse = "True"}, {y}, y:reshape{50, 8})
  gives("reshape", {shape = "(-1, 0)"}, {y}, y:reshape{80, 5})
  t.error_contains(function() block_of("Reshape", {shape = "(-4, 2)"}, 1)(x) end, "two sizes after -4")
end)

t.test("slices with bounds from 0 on, from the end, and beyond", function()
  local x = pg.range(1, 20):reshape{4, 5}
  gives("slice", {begin = "(1, 0)", ["end"] = "(3, 2)"}, {x}, x[{{2, 3}, {1, 2}}])
  gives("slice", {begin = "(None, -2)", ["end"] = "(None, None)"}, {x}, x[{{}, {4, 5}}])
  gives("slice", {begin = "(-3,)", ["end"] = "(-1,)"}, {x}, x[{{2, 3}}])
  gives("slice", {begin = "(0,)", ["end"] = "(100,)"}, {x}, x)
  gives("slice", {begin = "(-100,)", ["end"] = "(2,)"}, {x}, x[{{1, 2}}])
  gives("slice", {begin = "(0, 0)", ["end"] = "(4, 5)", step = "(2, 3)"}, {x}, x[{{1, 4, 2}, {1, 5, 3}}])
  gives("slice", {begin = "(None,)", ["end"] = "(None,)", step = "(-1,)"}, {x}, x:flip(1))
  gives("slice", {begin = "(-1,)", ["end"] = "(0,)", step = "(-2,)"}, {x}, x:index_select(1, pg.tensor({4, 2}, {dtype = "int64"})))
  gives("slice", {begin = "(2,)", ["end"] = "(-4,)", step = "(-1,)"}, {x}, x:index_select(1, pg.tensor({3, 2}, {dtype = "int64"})))
  gives("slice_axis", {axis = "1", begin = "1", ["end"] = "None"}, {x}, x[{{}, {2, 5}}])
  gives("slice_axis", {axis = "-1", begin = "-3", ["end"] = "-1"}, {x}, x[{{}, {3, 4}}])
  gives("slice_like", {}, {x, pg.zeros(2, 3)}, x[{{1, 2}, {1, 3}}])
  gives("slice_like", {axes = "(-1,)"}, {x, pg.zeros(9, 3)}, x[{{}, {1, 3}}])
end)

t.test("ops of shapes", function()
  local x = pg.range(1, 24):reshape{2, 3, 4}
  gives("transpose", {}, {x}, x:permute{3, 2, 1})
  gives("transpose", {axes = "(0, 2, 1)"}, {x}, x:permute{1, 3, 2})
  gives("SwapAxis", {dim1 = "0", dim2 = "2"}, {x}, x:transpose(1, 3))
  gives("expand_dims", {axis = "0"}, {x}, x:unsqueeze(1))
  gives("expand_dims", {axis = "-1"}, {x}, x:unsqueeze(-1))
  gives("squeeze", {axis = "(1,)"}, {x:unsqueeze(2)}, x)
  gives("squeeze", {}, {x:unsqueeze(2)}, x)
  gives("Flatten", {}, {x}, x:flatten(2))
  gives("Concat", {num_args = "2", dim = "2"}, {x, x}, pg.cat({x, x}, 3))
  gives("stack", {num_args = "2", axis = "1"}, {x, x}, pg.stack({x, x}, 2))
  gives("SliceChannel", {num_outputs = "3"}, {x}, x:chunk(3, 2))
  gives("split", {num_outputs = "2", axis = "0", squeeze_axis = "1"}, {x}, x:unbind(1))
  gives("_split_v2", {indices = "(0, 1, 3)", axis = "2", sections = "0"}, {x}, x:split({1, 2, 1}, 3))
  local image = x:unsqueeze(1)
  gives("Pad", {mode = "constant", pad_width = "(0, 0, 0, 0, 1, 2, 3, 4)", constant_value = "5"}, {image}, image:pad({3, 4, 1, 2}, {value = 5}))
  gives("Pad", {mode = "edge", pad_width = "(0, 0, 0, 0, 1, 2, 3, 4)"}, {image}, image:pad({3, 4, 1, 2}, {mode = "replicate"}))
  gives("broadcast_to", {shape = "(5, 0)"}, {pg.ones(1, 3)}, pg.ones(5, 3))
  gives("broadcast_axis", {axis = "0", size = "4"}, {pg.ones(1, 3)}, pg.ones(4, 3))
  gives("broadcast_like", {}, {pg.ones(1, 3), pg.ones(4, 3)}, pg.ones(4, 3))
  gives("tile", {reps = "(2, 1)"}, {pg.ones(1, 3)}, pg.ones(2, 3))
  gives("repeat", {repeats = "2", axis = "1"}, {pg.tensor{{1, 2}}}, pg.tensor{{1, 1, 2, 2}})
  gives("reverse", {axis = "(0,)"}, {x}, x:flip(1))
  gives("_arange", {start = "1", stop = "4", step = "0.5"}, {}, pg.tensor{1, 1.5, 2, 2.5, 3, 3.5})
  gives("_arange", {start = "3", dtype = "int32"}, {}, pg.tensor({0, 1, 2}, {dtype = "int32"}))
  gives("Cast", {dtype = "float16"}, {x}, x:to("float16"))
  local blocks = pg.range(1, 8):reshape{1, 8, 1, 1}
  gives("depth_to_space", {block_size = "2"}, {blocks}, pg.tensor{{{{1, 3}, {5, 7}}, {{2, 4}, {6, 8}}}})
  gives("space_to_depth", {block_size = "2"}, {pg.tensor{{{{1, 3}, {5, 7}}, {{2, 4}, {6, 8}}}}}, blocks)
end)

t.test("scalars, comparisons and reductions", function()
  local x, y = pg.tensor{{1, -2, 3}, {4, 5, -6}}, pg.tensor{{2, -2, 1}}
  for name, want in pairs{
    _plus_scalar = x + 2, _PlusScalar = x + 2, _minus_scalar = x - 2, _rminus_scalar = 2 - x, _RMinusScalar = 2 - x, _mul_scalar = x * 2, _div_scalar = x / 2,
    _rdiv_scalar = 2 / x, _RDivScalar = 2 / x, _power_scalar = x ^ 2, _rpower_scalar = pg.pow(2, x), _maximum_scalar = x:maximum(2), _minimum_scalar = x:minimum(2),
    _mod_scalar = x % 2, _rmod_scalar = 2 % x, _equal_scalar = x:eq(2):to("float32"), _lesser_scalar = x:lt(2):to("float32"), _greater_equal_scalar = x:ge(2):to("float32"),
  } do gives(name, {scalar = "2"}, {x}, want) end
  gives("broadcast_greater", {}, {x, y}, x:gt(y):to("float32"))
  gives("broadcast_logical_and", {}, {x - 1, y - 2}, pg.tensor{{0, 1, 1}, {0, 1, 1}})
  gives("logical_not", {}, {x - 1}, pg.tensor{{1, 0, 0}, {0, 0, 0}})
  gives("sum", {}, {x}, pg.tensor{5})
  gives("sum", {axis = "(0,)", exclude = "True"}, {x}, x:sum(2))
  gives("mean", {axis = "(0, 1)", keepdims = "True"}, {x}, x:mean({1, 2}, true))
  gives("max", {axis = "-1"}, {x}, x:amax(2))
  gives("min", {}, {x}, pg.tensor{-6})
  gives("prod", {axis = "(0, 1)"}, {x}, pg.tensor{720})
  gives("norm", {}, {pg.tensor{3, 4}}, pg.tensor{5})
  gives("argmax", {axis = "1"}, {x}, pg.tensor{2, 1})
  gives("argmin", {}, {x}, pg.tensor{5})
  gives("topk", {k = "2", axis = "1", ret_typ = "both"}, {x}, {pg.tensor{{3, 1}, {5, 4}}, pg.tensor{{2, 0}, {1, 0}}})
  gives("argsort", {axis = "1"}, {x}, pg.tensor{{1, 0, 2}, {2, 0, 1}})
  gives("dot", {transpose_b = "True"}, {x, x}, x:matmul(x:t()))
  gives("batch_dot", {transpose_a = "True"}, {x:unsqueeze(1), x:unsqueeze(1)}, x:t():matmul(x):unsqueeze(1))
  gives("one_hot", {depth = "3", on_value = "2", off_value = "-1"}, {pg.tensor{0, 2, 5}}, pg.tensor{{2, -1, -1}, {-1, -1, 2}, {-1, -1, -1}})
  gives("add_n", {num_args = "3"}, {x, x, x}, x * 3)
end)

t.test("layers and activations", function()
  local x = pg.randn(2, 4, 6, 6)
  gives("LeakyReLU", {act_type = "elu", slope = "0.3"}, {x}, pg.elu(x, 0.3))
  gives("LeakyReLU", {act_type = "gelu"}, {x}, pg.gelu(x))
  gives("LeakyReLU", {}, {x}, pg.leaky_relu(x, 0.25))
  local slopes = pg.rand(4)
  gives("LeakyReLU", {act_type = "prelu"}, {x, slopes}, pg.prelu(x, slopes))
  gives("Activation", {act_type = "softrelu"}, {x}, pg.softplus(x))
  local weight, bias = pg.randn(8, 2, 3, 3), pg.randn(8)
  gives("Convolution", {kernel = "(3, 3)", stride = "(2, 2)", pad = "(1, 1)", dilate = "(1, 1)", num_filter = "8", num_group = "2", no_bias = "False"}, {x, weight, bias},
        pg.conv2d(x, weight, bias, {stride = 2, padding = 1, groups = 2}))
  gives("Convolution", {kernel = "(3,)", num_filter = "8"}, {x:flatten(3), pg.ones(8, 4, 3), bias}, pg.conv1d(x:flatten(3), pg.ones(8, 4, 3), bias))
  local up = pg.randn(4, 3, 4, 4)
  gives("Deconvolution", {kernel = "(4, 4)", stride = "(2, 2)", pad = "(1, 1)", num_filter = "3"}, {x, up}, pg.conv_transpose2d(x, up, {stride = 2, padding = 1}))
  gives("Pooling", {kernel = "(2, 2)", pool_type = "avg", global_pool = "True"}, {x}, x:mean({3, 4}, true))
  gives("Pooling", {kernel = "(3, 3)", stride = "(2, 2)", pad = "(1, 1)", pool_type = "avg", count_include_pad = "False"}, {x},
        pg.avg_pool2d(x, 3, {stride = 2, padding = 1, count_include_pad = false}))
  gives("Pooling", {kernel = "(2, 2)"}, {x}, (pg.max_pool2d(x, 2, {stride = 1})))
  gives("softmax", {}, {x}, x:softmax(-1))
  gives("log_softmax", {axis = "1"}, {x}, x:log_softmax(2))
  gives("SoftmaxActivation", {mode = "channel"}, {x}, x:softmax(2))
  gives("SoftmaxActivation", {}, {x}, x:flatten(2):softmax(2):reshape_as(x))
  gives("FullyConnected", {num_hidden = "3", no_bias = "True"}, {x, pg.ones(3, 144)}, x:flatten(2):matmul(pg.ones(144, 3)))
  gives("FullyConnected", {num_hidden = "3", flatten = "False"}, {x, pg.ones(3, 6), pg.ones(3)}, x:matmul(pg.ones(6, 3)) + 1)
  gives("LayerNorm", {axis = "1"}, {x, pg.ones(4), pg.zeros(4)}, x:transpose(2, -1):layer_norm({4}):transpose(2, -1))
  gives("GroupNorm", {num_groups = "2"}, {x, pg.tensor{1, 2}, pg.tensor{0, 1}}, pg.group_norm(x, 2, pg.tensor{1, 1, 2, 2}, pg.tensor{0, 0, 1, 1}))
  for _, attrs in ipairs{{layout = "NWC"}, {layout = "CHWN"}, {kernel = "(1, 1, 1, 1)"}, {kernel = "x"}, {stride = "(1,)"}} do
    local key = next(attrs)
    attrs.kernel, attrs.num_filter = attrs.kernel or "(3, 3)", "8"
    t.error_contains(function() block_of("Convolution", attrs, 3) end, "node 3 'op' (Convolution): the attribute '" .. key .. "' is \"")
  end
end)

t.test("layouts with the channels last", function()
  local function last(x) return x:moveaxis(2, -1) end
  for n, layout in pairs{"NWC", "NHWC", "NDHWC"} do
    local function sizes(size, ...)
      local list = {...}
      for _ = 1, n do list[#list + 1] = size end
      return list
    end
    local function text(size) return "(" .. (size .. ","):rep(n) .. ")" end
    local x, w, bias, up = pg.randn(sizes(7, 2, 4)), pg.randn(sizes(3, 6, 2)), pg.randn(6), pg.randn(sizes(3, 4, 3))
    gives("Convolution", {kernel = text(3), stride = text(2), num_filter = "6", num_group = "2", layout = layout},
          {last(x), last(w), bias}, last(pg["conv" .. n .. "d"](x, w, bias, {stride = 2, groups = 2})))
    gives("Deconvolution", {kernel = text(3), stride = text(2), num_filter = "3", layout = layout},
          {last(x), last(up)}, last(pg["conv_transpose" .. n .. "d"](x, up, nil, {stride = 2})))
    gives("Pooling", {kernel = text(2), stride = text(2), layout = layout}, {last(x)}, last((pg["max_pool" .. n .. "d"](x, 2))))
    gives("Pooling", {kernel = text(2), pool_type = "avg", layout = layout}, {last(x)}, last(pg["avg_pool" .. n .. "d"](x, 2, {stride = 1})))
    gives("Pooling", {global_pool = "True", pool_type = "avg", layout = layout}, {last(x)}, last(x:flatten(3):mean(3):reshape(sizes(1, 2, 4))))
  end
  t.error_contains(function() block_of("Pooling", {global_pool = "True", layout = "CHWN"}, 1) end,
                   "(Pooling): the attribute 'layout' is \"CHWN\" (expected NCW or NWC, NCHW or NHWC, NCDHW or NDHWC)")
end)

t.test("norms that also return means and deviations", function()
  local x, gamma, beta = pg.randn(5, 4, 3), pg.rand(4), pg.randn(4)
  local y = x:transpose(2, -1):layer_norm({4}, gamma, beta):transpose(2, -1)
  gives("LayerNorm", {axis = "1", output_mean_var = "True"}, {x, gamma, beta}, {y, x:mean(2, true), (x:var(2, {correction = 0, keepdim = true}) + 1e-5):sqrt()})

  local mean, variance = pg.randn(4), pg.rand(4)
  gives("BatchNorm", {output_mean_var = "True", fix_gamma = "False"}, {x, gamma, beta, mean, variance},
        {pg.batch_norm(x, mean, variance, gamma, beta, {training = false, eps = 1e-3}), mean, (variance + 1e-3):rsqrt()})
  for _, hybrid in ipairs{false, true} do
    local block = block_of("BatchNorm", {output_mean_var = "True", fix_gamma = "False", axis = "2"}, 5, 3)
    if hybrid then block:hybridize() end
    local data, old = x:transpose(2, 3), mean:clone()
    for _ = 1, 2 do
      local now = data:clone():attach_grad()
      local got = pg.record(function() return {block(now, gamma, beta, old, variance:clone())} end)
      t.close(got[2], x:mean{1, 3}, {rtol = 1e-5, atol = 1e-6})
      t.close(got[3], (x:var({1, 3}, {correction = 0}) + 1e-3):rsqrt(), {rtol = 1e-5, atol = 1e-6})
      t.equal({got[1].requires_grad, got[2].requires_grad, got[3].requires_grad}, {true, false, false})
    end
    t.close(old, mean * 0.81 + x:mean{1, 3} * 0.19, {rtol = 1e-5, atol = 1e-6})
  end
  t.error_contains(function() block_of("BatchNorm_v1", {output_mean_var = "True"}, 5) end, "(BatchNorm_v1): the attribute 'output_mean_var' is \"True\" (expected False)")
end)

t.test("lookups with sparse gradients", function()
  local function train(op, attrs, hybrid)
    local path = write(graph{var "data", var "w", node(op, "e", attrs, {0, 1})})
    local params = t.tmp("w.safetensors")
    pg.save(params, {w = pg.range(1, 12):reshape{6, 2}})
    local net = imports(path, {"data"}, params)
    if hybrid then net:hybridize() end
    local trainer = pg.optim.Trainer(net:collect_params(), "sgd", {learning_rate = 0.1, wd = 0.5})
    for step = 1, 2 do
      pg.record(function() return net(pg.tensor{1, 3, step}):square():sum() end):backward()
      trainer:step(1)
    end
    return net.w
  end
  for _, hybrid in ipairs{false, true} do
    local dense = train("Embedding", {input_dim = "6", output_dim = "2"}, hybrid)
    for op, attrs in pairs{Embedding = {sparse_grad = "True"}, _contrib_SparseEmbedding = {}} do
      attrs.input_dim, attrs.output_dim = "6", "2"
      local w = train(op, attrs, hybrid)
      for _, row in ipairs{2, 4} do t.close(w[row], dense[row], {rtol = 1e-5}) end
      for _, row in ipairs{1, 5, 6} do t.equal(w[row]:totable(), {2 * row - 1, 2 * row}, "weight decay only for rows that occur") end
    end
  end
end)

t.test("attributes that few exports have", function()
  local inf = math.huge
  local half, single = pg.tensor({1, 2}, {dtype = "float16"}), pg.tensor{3, 4}
  gives("amp_multicast", {num_outputs = "2"}, {half, single}, {half:float(), single})
  gives("amp_multicast", {num_outputs = "2", cast_narrow = "True"}, {single, half}, {single:half(), half})

  local x = pg.tensor{{1, 2, 3}, {4, 6, 5}}
  local masked = pg.tensor{{1, 2, -inf}, {4, 6, 5}}
  gives("softmax", {axis = "-1", use_length = "True"}, {x, pg.tensor({2, 3}, {dtype = "int32"})}, masked:softmax())
  gives("softmax", {axis = "0", use_length = "True"}, {x, pg.tensor({2, 1, 0}, {dtype = "int32"})},
        pg.tensor{{1 / (1 + math.exp(3)), 1, 0}, {1 / (1 + math.exp(-3)), 0, 0}})
  gives("log_softmax", {dtype = "float64"}, {x}, x:log_softmax():to("float64"))

  local a, b = pg.randn(2, 3, 4), pg.randn(5, 2)
  gives("dot", {transpose_a = "True", transpose_b = "True"}, {a, b}, pg.tensordot(a, b, {dims = {1}, dims_b = {2}}))
  local c = pg.randn(3, 2, 4)
  gives("dot", {transpose_b = "True"}, {a, c}, pg.tensordot(a, c, {dims = {3}, dims_b = {3}}))

  local image = pg.randn(1, 2, 5, 5)
  local window = image:abs():square():avg_pool2d({2, 2}, {stride = 2, padding = 1}) * 4
  gives("Pooling", {kernel = "(2, 2)", stride = "(2, 2)", pad = "(1, 1)", pool_type = "lp", p_value = "2"}, {image}, window:sqrt())
  gives("Pooling", {global_pool = "True", kernel = "(2, 2)", pool_type = "lp", p_value = "1"}, {image}, image:abs():sum({3, 4}, true))

  local w = pg.randn(2, 3, 4, 4)
  gives("Deconvolution", {kernel = "(4, 4)", stride = "(2, 2)", target_shape = "(9, 10)", num_filter = "3"}, {image, w},
        image:conv_transpose2d(w, nil, {stride = 2, padding = {2, 1}, output_padding = {1, 0}}))

  local up = image:interpolate{scale_factor = 2}
  local larger = pg.randn(1, 1, 10, 10)
  gives("UpSampling", {scale = "2", sample_type = "nearest", num_args = "2"}, {image, larger[{{}, {}, {1, 5}, {1, 5}}]},
        pg.cat({up, larger[{{}, {}, {1, 5}, {1, 5}}]:interpolate{scale_factor = 2}}, 2))
  gives("UpSampling", {scale = "2", sample_type = "nearest", num_args = "2", multi_input_mode = "sum"}, {image, larger:expand{1, 2, 10, 10}}, up + larger)
  local kernel = pg.rand(2, 1, 4, 4)
  gives("UpSampling", {scale = "2", sample_type = "bilinear", num_filter = "2", num_args = "2"}, {image, kernel},
        image:conv_transpose2d(kernel, nil, {stride = 2, padding = 1, groups = 2}))
  t.error_contains(function()
    block_of("Deconvolution", {kernel = "(2, 2)", target_shape = "(90, 90)"}, 2)(image, pg.ones(2, 3, 2, 2))
  end, "target_shape")
end)

t.test("recurrent layers", function()
  local function check(layer, mode, attrs)
    layer:initialize(pg.init.Uniform(0.5))
    local x = pg.randn(5, 2, 3)
    local states = layer:begin_state(2)
    if pg.is_tensor(states) then states = {states} end
    local flat = pg.tree.flatten(states)
    for i, s in ipairs(flat) do flat[i] = pg.randn(unpack(s.shape)) end
    local y, final = layer(x, flat)
    local expected = pg.tree.flatten(final)
    table.insert(expected, 1, y)
    local parts, named = {}, {}
    for name, p in layer:parameters() do named[name] = p end
    for _, kind in ipairs{"weight", "bias"} do
      for l = 0, 1 do
        for _, direction in ipairs(attrs.bidirectional == "True" and {"l", "r"} or {"l"}) do
          for _, part in ipairs{"i2h", "h2h", "h2r"} do
            local own = named[("%s%d_%s_%s"):format(direction, l, part, kind)]
            parts[#parts + 1] = own and own:detach():reshape{-1}
          end
        end
      end
    end
    attrs.mode, attrs.state_size, attrs.num_layers, attrs.state_outputs = mode, "4", "2", "True"
    gives("RNN", attrs, {x, pg.cat(parts), unpack(flat)}, expected)
  end
  check(nn.rnn.LSTM(4, {num_layers = 2, input_size = 3}), "lstm", {})
  check(nn.rnn.GRU(4, {num_layers = 2, bidirectional = true, input_size = 3}), "gru", {bidirectional = "True"})
  check(nn.rnn.RNN(4, {num_layers = 2, activation = "tanh", input_size = 3}), "rnn_tanh", {})
  check(nn.rnn.LSTM(4, {num_layers = 2, input_size = 3, projection_size = 2}), "lstm", {projection_size = "2"})
  check(nn.rnn.LSTM(4, {num_layers = 2, bidirectional = true, input_size = 3, projection_size = 3}), "lstm", {projection_size = "3", bidirectional = "True"})
  check(nn.rnn.LSTM(4, {num_layers = 2, input_size = 3, state_clip_min = -0.1, state_clip_max = 0.2}), "lstm",
        {lstm_state_clip_min = "-0.1", lstm_state_clip_max = "0.2", lstm_state_clip_nan = "False"})
  for key, attrs in pairs{
    projection_size = {mode = "gru", projection_size = "2"}, lstm_state_clip_min = {mode = "rnn_tanh", lstm_state_clip_min = "0", lstm_state_clip_max = "1"},
    lstm_state_clip_max = {mode = "lstm", lstm_state_clip_min = "0"},
  } do
    attrs.state_size, attrs.num_layers = "4", "1"
    t.error_contains(function() block_of("RNN", attrs, 3) end, "(RNN): the attribute '" .. key .. "' is ")
  end
end)

-- Control flow -----------------------------------------------------------------------------------------------------------

-- The graph, called several times in each mode, must give the same as f.
local function runs_as(g, names, inputs, f)
  for _, hybrid in ipairs{false, true} do
    local block = imports(write(g), names)
    if hybrid then block:hybridize() end
    local leaves, own = {}, {}
    for i, x in ipairs(inputs) do leaves[i], own[i] = x:clone():attach_grad(), x:clone():attach_grad() end
    for _ = 1, 3 do t.close(block(unpack(leaves)), f(unpack(own)), {rtol = 1e-5, atol = 1e-6}) end
    pg.record(function() return block(unpack(leaves)):square():sum() end):backward()
    pg.record(function() return f(unpack(own)):square():sum() end):backward()
    for i in ipairs(inputs) do t.close(leaves[i].grad, own[i].grad, {rtol = 1e-4, atol = 1e-5, what = names[i]}) end
  end
end

local function each(attrs)
  attrs.in_state_locs, attrs.remain_locs = attrs.in_state_locs or "[]", attrs.remain_locs or "[]"
  return attrs
end

t.test("foreach without states, without outputs, and of numbers", function()
  local body = graph{var "x", node("square", "s", {}, {0})}
  runs_as(graph{var "d", node("_foreach", "f", each{in_data_locs = "[0]", num_out_data = "1"}, {0}, {body})}, {"d"}, {pg.tensor{1, 2, 3}},
          function(d) return d:square():reshape{3, 1} end)
  local sum = graph{var "x", var "s", node("elemwise_add", "a", {}, {0, 1})}
  runs_as(graph{var "d", var "s", node("_foreach", "f", each{in_data_locs = "[0]", in_state_locs = "[1]", num_out_data = "0"}, {0, 1}, {sum})},
          {"d", "s"}, {pg.rand(3, 2), pg.rand(2)}, function(d, s) return d:sum(1) + s end)
end)

t.test("a loop without outputs, and loops and branches in a loop", function()
  local less = graph{var "i", node("_lesser_scalar", "l", {scalar = "5"}, {0})}
  local double = graph{var "i", node("_mul_scalar", "m", {scalar = "2"}, {0})}
  local attrs = {num_out_data = "0", max_iterations = "10", cond_input_locs = "[0]", func_input_locs = "[0]", func_var_locs = "[0]"}
  local loop = node("_while_loop", "w", attrs, {1}, {less, double})
  runs_as(graph{var "x", node("_copy", "c", {}, {0}), loop}, {"x"}, {pg.tensor{0.7}}, function(x) return x * 8 end)
  local test = graph{var "p", node("_greater_scalar", "g", {scalar = "0"}, {0})}
  local yes, no = graph{var "a", node("square", "s", {}, {0})}, graph{var "a", node("_mul_scalar", "m", {scalar = "3"}, {0})}
  local choose = node("_cond", "c", {cond_input_locs = "[0]", then_input_locs = "[1]", else_input_locs = "[1]"}, {1, 0}, {test, yes, no})
  local body = graph({var "x", node("sum", "p", {}, {0}), choose, var "w", node("broadcast_mul", "y", {}, {2, 3})}, {4})
  runs_as(graph{var "d", var "w", node("_foreach", "f", each{in_data_locs = "[0]", remain_locs = "[1]", num_out_data = "1"}, {0, 1}, {body})},
          {"d", "w"}, {pg.tensor{{1, 2}, {-3, 1}, {2, -1}}, pg.tensor{2, 3}}, function(d, w)
            return pg.where(d:sum(2, true):gt(0), d:square(), d * 3) * w
          end)
end)
