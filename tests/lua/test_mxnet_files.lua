-- Graphs exported by MXNet, as blocks.
local t = require "tests.support"
local json = require "tests.json"
local file = require "tests.params_file"
local pg = require "perigee"
local nn = pg.nn
local imports = nn.SymbolBlock.imports

-- Helpers ----------------------------------------------------------------------------------------------------------------

-- Returns the JSON of a value. An empty table is an array.
local function text_of(v)
  if type(v) == "table" and (v[1] ~= nil or next(v) == nil) then
    local out = {}
    for i, item in ipairs(v) do out[i] = text_of(item) end
    return "[" .. table.concat(out, ",") .. "]"
  elseif type(v) == "table" then
    local out = {}
    for key, item in pairs(v) do out[#out + 1] = ("%q:%s"):format(key, text_of(item)) end
    return "{" .. table.concat(out, ",") .. "}"
  end
  return type(v) == "string" and ("%q"):format(v) or tostring(v)
end

-- Returns a node; its inputs are numbers of nodes, or {node, output}.
local function node(op, name, attrs, inputs, subgraphs)
  local list = {}
  for i, from in ipairs(inputs or {}) do list[i] = type(from) == "table" and {from[1], from[2], 0} or {from, 0, 0} end
  local out = {op = op, name = name, inputs = list, subgraphs = subgraphs}
  if attrs and next(attrs) then out.attrs = attrs end
  return out
end

local function var(name) return node("null", name) end

local function graph(nodes, heads)
  local arg_nodes, list = {}, {}
  for i, n in ipairs(nodes) do if n.op == "null" then arg_nodes[#arg_nodes + 1] = i - 1 end end
  for i, head in ipairs(heads or {#nodes - 1}) do list[i] = type(head) == "table" and {head[1], head[2], 0} or {head, 0, 0} end
  return {nodes = nodes, arg_nodes = arg_nodes, heads = list}
end

local function write(g, name) return t.write(t.tmp(name or "x-symbol.json"), type(g) == "string" and g or text_of(g)) end

-- Returns a block of one op with n inputs, all of them arguments.
local function block_of(op, attrs, n, outputs)
  local nodes, inputs, names = {}, {}, {}
  for i = 1, n do nodes[i], inputs[i], names[i] = var("x" .. i), i - 1, "x" .. i end
  nodes[n + 1] = node(op, "op", attrs, inputs)
  local heads = {}
  for k = 1, outputs or 1 do heads[k] = {n, k - 1} end
  return imports(write(graph(nodes, heads)), names)
end

-- The op with these attributes must give the tensors of `expected` for the inputs, in a hybridized block too.
local function gives(op, attrs, inputs, expected)
  if pg.is_tensor(expected) then expected = {expected} end
  for _, hybrid in ipairs{false, true} do
    local block = block_of(op, attrs, #inputs, #expected)
    if hybrid then block:hybridize() end
    local got = {block(unpack(inputs))}
    for i, y in ipairs(expected) do
      local what = ("%s, output %d"):format(op, i)
      t.equal(got[i].shape, y.shape, what)
      t.equal(got[i].dtype, y.dtype, what)
      t.close(got[i], y, {rtol = 1e-5, atol = 1e-6, what = what})
    end
  end
end

local function same_as(got, want, case, what)
  t.equal({got.shape, got.dtype}, {want.shape, want.dtype}, what)
  t.close(got, want, {rtol = case.rtol, atol = case.atol, what = what})
end

-- Fixtures ---------------------------------------------------------------------------------------------------------------

local exports = t.shared("data/fixtures/mxnet/")
local nets = json.read(exports .. "manifest.json").nets

local function read_inputs(set)
  local names, tensors = {}, {}
  for i, input in ipairs(set.inputs) do names[i], tensors[i] = input.name, pg.load(exports .. input.file) end
  return names, tensors
end

local function import(net, names) return imports(exports .. net.symbol, names, exports .. net.params) end

local function check_outputs(net, set, got, what)
  for k, output in ipairs(set.outputs) do
    local x, y = got[k], pg.load(exports .. output.file)
    local rows = set.valid_rows and set.valid_rows[tostring(k - 1)]
    if rows then x, y = x[{{1, rows}}], y[{{1, rows}}] end
    same_as(x, y, net, ("%s, %s, output %d"):format(net.name, what, k - 1))
  end
end

for _, net in ipairs(nets) do
  t.test("the export " .. net.name, function()
    local block, hybrid
    for s, set in ipairs(net.sets) do
      local names, tensors = read_inputs(set)
      block, hybrid = block or import(net, names), hybrid or import(net, names):hybridize()
      check_outputs(net, set, {block(unpack(tensors))}, "set " .. s)
      check_outputs(net, set, {hybrid(unpack(tensors))}, "hybridized, set " .. s)
      local own = imports(block:export(t.tmp("own")), names, t.tmp("own.safetensors"))
      check_outputs(net, set, {own(unpack(tensors))}, "exported again, set " .. s)
    end
    t.equal(block:collect_params():len(), net.graph.n_arg_params + net.graph.n_aux_params)
  end)

  if net.grads then
    t.test("gradients of the export " .. net.name, function()
      local names, tensors = read_inputs(net.sets[1])
      local data = pg.load(exports .. net.grads.file)
      for _, block in ipairs{import(net, names), import(net, names):hybridize()} do
        for i, name in ipairs(names) do if data["grad:" .. name] then tensors[i]:attach_grad() end end
        local loss = pg.record(function()
          local total = 0
          for k, y in ipairs{block(unpack(tensors))} do total = total + (y * data["head" .. k - 1]):sum() end
          return total
        end, {train = net.grads.mode == "train"})
        loss:backward()
        local grads = {}
        for name, p in block:parameters() do grads[name] = p.grad end
        for i, name in ipairs(names) do grads[name] = tensors[i].grad end
        for key, want in pairs(data) do
          local name = key:match("^grad:(.*)")
          if name then t.close(grads[name], want, {rtol = 1e-4, atol = 1e-5, what = key}) end
        end
      end
    end)
  end
end

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

t.test("show describes an export", function()
  local out, err, code = t.run("show '" .. exports .. "two_in_out-symbol.json'")
  t.equal({err, code}, {"", 0})
  for _, text in ipairs{
    "inputs:\n  data0\n  data1\n", "  twoinout0_scale          float32            6  1x6\n", "tensors: " .. exports .. "two_in_out-0000.params\n",
    "  twoinout0_concat0 = Concat(twoinout0_dense0_relu_fwd, twoinout0_dense1_tanh_fwd)\n",
  } do t.check(out:find(text, 1, true), out) end
  out, err = t.run("show '" .. write(graph{var "x", node("Frobnicate", "f", {}, {0})}) .. "'")
  t.equal(out, "")
  t.check(err:find("node 1 'f' (Frobnicate): the op 'Frobnicate' is not supported", 1, true), err)
end)

-- Ops --------------------------------------------------------------------------------------------------------------------

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
  for _, attrs in ipairs{{layout = "NHWC"}, {kernel = "(1, 1, 1, 1)"}, {kernel = "x"}, {stride = "(1,)"}} do
    local key = next(attrs)
    attrs.kernel, attrs.num_filter = attrs.kernel or "(3, 3)", "8"
    t.error_contains(function() block_of("Convolution", attrs, 3) end, "node 3 'op' (Convolution): the attribute '" .. key .. "' is \"")
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
    local parts = {}
    for _, kind in ipairs{"weight", "bias"} do
      for l = 0, 1 do
        for _, direction in ipairs(attrs.bidirectional == "True" and {"l", "r"} or {"l"}) do
          for _, part in ipairs{"i2h", "h2h"} do
            parts[#parts + 1] = layer[("%s%d_%s_%s"):format(direction, l, part, kind)]:detach():reshape{-1}
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

-- Training ---------------------------------------------------------------------------------------------------------------

local function net_named(name) for _, net in ipairs(nets) do if net.name == name then return net end end end

t.test("an import trains: running statistics, gradients of all parameters, a Trainer", function()
  local net = net_named("bn_dropout")
  local x = pg.load(exports .. "bn_dropout-input.npy")
  local results = {}
  for i, hybrid in ipairs{false, true} do
    local block = import(net, {"data"})
    if hybrid then block:hybridize() end
    local trainer = pg.optim.Trainer(block:collect_params(), "sgd", {learning_rate = 0.1})
    local mean = block.hybridsequential2_batchnorm0_running_mean
    local before, untrained = mean:clone(), block(x)
    for step = 1, 3 do
      pg.manual_seed(step)
      pg.record(function() return block(x):square():mean() end):backward()
      trainer:step(1)
    end
    t.equal(pg.allclose(mean, before), false)
    t.equal(mean.grad_req, "null")
    results[i] = block(x)
    t.equal(pg.allclose(results[i], untrained), false)
    block:save_parameters(t.tmp("p.safetensors"))
    local copy = import(net, {"data"})
    copy:load_parameters(t.tmp("p.safetensors"))
    t.close(copy(x), results[i])
    local json_path, tensors = block:export(t.tmp("m"))
    t.close(imports(json_path, {"data"}, tensors)(x), results[i], {rtol = 1e-5, atol = 1e-6})
  end
  t.close(results[1], results[2], {rtol = 1e-4, atol = 1e-5})
end)

t.test("an import composes: in a hybridized net, and with symbols", function()
  local x = pg.load(exports .. "lenet-input.npy")
  local block = import(net_named("lenet"), {"data"})
  local net = nn.HybridSequential{block, nn.Dense(2)}
  net:initialize()
  local y = net(x)
  net:hybridize()
  t.close(net(x), y, {rtol = 1e-5, atol = 1e-6})
  local data = pg.symbol("data", {shape = {2, 1, 28, 28}})
  local g = pg.graph(block(data), data)
  t.close(g:run(x), block(x), {rtol = 1e-5, atol = 1e-6})
  local parameters = 0
  for _, name in ipairs(g:inputs()) do if name:find("^hybridsequential1_") then parameters = parameters + 1 end end
  t.equal(parameters, 10)
end)

t.test("a training head needs no label", function()
  local g = graph{var "data", var "softmax_label", node("SoftmaxOutput", "softmax", {}, {0, 1})}
  local path, x = write(g), pg.randn(2, 3)
  for _, names in ipairs{{"data"}, {"data", "softmax_label"}, false} do t.close(imports(path, names or nil)(x), x:softmax(2)) end
  t.close(imports(path, {"softmax_label", "data"})(pg.zeros(2), x), x:softmax(2))
end)

-- Files ------------------------------------------------------------------------------------------------------------------

t.test("arguments in the order of the names, parameters without a file", function()
  local path = write(graph{var "a", var "b", node("elemwise_sub", "d", {}, {0, 1})})
  local x, y = pg.tensor{5}, pg.tensor{3}
  t.equal(imports(path, {"a", "b"})(x, y):item(), 2)
  t.equal(imports(path, {"b", "a"})(x, y):item(), -2)
  t.equal(imports(path)(x, y):item(), 2)
  local block = imports(path, {"a"})
  t.error_contains(function() block(x) end, "SymbolBlock: the parameter 'b' has no value")
  t.error_contains(function() imports(path, {"a", "c"}) end, "imports: the graph has no argument 'c'")
  t.error_contains(function() imports(path, {"a", "a"}) end, "imports: the name 'a' appears twice")
  t.error_contains(function() imports(path)(x) end, "SymbolBlock: bad argument 'b' (expected a tensor, got nil")
  t.error_contains(function() imports(path)(x, y, y) end, "too many arguments (expected 2, got 3)")
  local params = t.write(t.tmp "p.params", file.file({file.array(y, 2)}, {"arg:b"}))
  t.equal(imports(path, nil, params)(x):item(), 2)
  t.equal(imports(path, "a", params).b.name, "b")
  t.error_contains(function() imports(path, {"a"}, t.write(t.tmp "q.params", file.file({}, {}))) end, "q.params: does not have the tensor 'b'")
  local more = t.write(t.tmp "r.params", file.file({file.array(y, 2), file.array(y, 2)}, {"arg:b", "arg:z"}))
  t.error_contains(function() imports(path, {"a"}, more) end, "r.params: has the tensor 'z', which")
end)

t.test("the spelling of older versions, without auxiliary variables", function()
  local old = {
    nodes = {
      {op = "null", param = {}, name = "data", inputs = {}, backward_source_id = -1, attr = {lr_mult = "2"}},
      {op = "null", param = {}, name = "bn_gamma", inputs = {}, backward_source_id = -1},
      {op = "null", param = {}, name = "bn_beta", inputs = {}, backward_source_id = -1},
      {op = "BatchNorm", param = {eps = "0.001", fix_gamma = "False", momentum = "0.9"}, name = "bn", inputs = {{0, 0}, {1, 0}, {2, 0}}, backward_source_id = -1},
      {op = "Activation", param = {act_type = "relu"}, name = "relu", inputs = {{3, 0}}, backward_source_id = -1},
    },
    arg_nodes = {0, 1, 2}, heads = {{4, 0}},
  }
  local one, two = pg.tensor{1, 2}, pg.tensor{4, 9}
  local names = {"arg:bn_gamma", "arg:bn_beta", "aux:bn_moving_mean", "aux:bn_moving_var"}
  local params = t.write(t.tmp "o.params", file.file({file.array(one, 0), file.array(one, 1), file.array(two, 2), file.array(two, 2)}, names))
  local block, x = imports(write((text_of(old):gsub('"param":%[%]', '"param":{}'))), {"data"}, params), pg.randn(3, 2)
  t.close(block(x), pg.batch_norm(x, two, two, one, one, {training = false, eps = 1e-3}):relu(), {rtol = 1e-5, atol = 1e-6})
  t.equal(block.bn_moving_mean.requires_grad, false)
  t.equal(block.bn_gamma.requires_grad, true)
end)

t.test("malformed graphs are errors that name the file and the node", function()
  local x, relu = var "x", node("relu", "r", {}, {0})
  local function refuse(g, text)
    local path = write(g)
    t.error_contains(function() imports(path) end, "imports: " .. path .. ": " .. text)
  end
  refuse(graph{x, node("Frobnicate", "f", {}, {0})}, "node 1 'f' (Frobnicate): the op 'Frobnicate' is not supported")
  refuse(graph{x, node("relu", "r", {}, {1})}, "node 1 'r' (relu): input 1 does not refer to an output of a node before it")
  refuse(graph{x, node("relu", "r", {}, {-1})}, "node 1 'r' (relu): input 1")
  refuse(graph{x, node("relu", "r", {}, {0.5})}, "node 1 'r' (relu): input 1")
  refuse(graph({x, relu}, {7}), "heads: input 1 does not refer")
  refuse(graph({x, relu}, {}), "no heads")
  refuse({nodes = {{op = "null"}}, arg_nodes = {0}, heads = {{0, 0}}}, "node 0 has no 'op' or no 'name'")
  refuse({nodes = {3}, arg_nodes = {0}, heads = {{0, 0}}}, "node 0 has no 'op' or no 'name'")
  refuse({nodes = 3, arg_nodes = {0}}, "no list 'nodes'")
  refuse(graph{x, node("Cast", "c", {dtype = "complex"}, {0})}, "node 1 'c' (Cast): the attribute 'dtype' is \"complex\"")
  refuse(graph{x, node("Cast", "c", {}, {0})}, "node 1 'c' (Cast): the attribute 'dtype' is missing")
  refuse(graph{x, node("Cast", "c", {dtype = 3}, {0})}, "node 1 'c' (Cast): 'attrs' holds other values than texts")
  refuse(graph{x, node("_foreach", "f", {}, {0})}, "node 1 'f' (_foreach): 0 subgraphs (expected 1)")
  local body = graph{x, node("Frobnicate", "g", {}, {0})}
  refuse(graph{x, node("_foreach", "f", {}, {0}, {body})}, "node 1 'f' (_foreach), subgraph 1: node 1 'g' (Frobnicate)")
  refuse(graph{x, node("where", "w", {}, {0, 0})}, "node 1 'w' (where): 2 inputs (expected at least 3)")
  local loop = {in_data_locs = "[9]", in_state_locs = "[]", remain_locs = "[]", num_out_data = "1"}
  refuse(graph{x, node("_foreach", "f", loop, {0}, {graph{x, relu}})}, "node 1 'f' (_foreach): the attribute 'in_data_locs' is \"[9]\"")
  loop = {in_data_locs = "[0]", in_state_locs = "[]", remain_locs = "[]", num_out_data = "1e9"}
  refuse(graph{x, node("_foreach", "f", loop, {0}, {graph{x, relu}})}, "node 1 'f' (_foreach): the attribute 'num_out_data' is \"1e9\"")
  refuse('{"arg_nodes": [0], "nodes": [', "at byte ")
  local path = write(graph({x, relu}, {{1, 3}}))
  t.error_contains(function() imports(path)(pg.ones(1)) end, "node 1 'r' (relu): no output 3 (as head 0)")
  path = write(graph{x, relu, node("relu", "s", {}, {{1, 2}})})
  t.error_contains(function() imports(path)(pg.ones(1)) end, "node 1 'r' (relu): no output 2 (as input 1)")
  local whole = text_of(graph{x, relu})
  for n = 1, #whole - 1, 7 do t.check(not pcall(imports, write(whole:sub(1, n))), n) end
end)
