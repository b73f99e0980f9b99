-- MXNet's ops in terms of those of this library, with MXNet's attributes and defaults.
local core = ...
local autograd = core.require("autograd")
local norm = core.require("nn.norm")
local ops = core.ops
local t = {}

local ipairs, unpack = ipairs, unpack

-- define("a b", make, least): make(a) reads the attributes a of a node with one of these names and returns the function
-- of its inputs, and the roles of inputs that are no ordinary tensors, by position: "state" (updated in training) or
-- "label" (may be missing). a.inputs lists the ops of the inputs, a.subgraphs the graphs in the node. least is the
-- number of inputs that the node has at least, 1 by default; without inputs the function gets the device.
local function define(names, make, least)
  for name in names:gmatch("%S+") do t[name] = {make = make, least = least or 1} end
end

-- The same for a function of the inputs that has no attributes.
local function plain(names, f, least) define(names, function() return f end, least) end

local function to_dtype_of(x, y) return ops.to(y, x.dtype) end
local function is_true(x) return ops.ne(x, 0) end
local function at_least_1d(x) return x:dim() == 0 and ops.reshape(x, {1}) or x end   -- MXNet has no 0-dim tensors
local function integers(x) return ops.to(x, "int64") end

-- Elementwise ------------------------------------------------------------------------------------------------------------

for _, name in ipairs{
  "abs", "sign", "ceil", "floor", "trunc", "square", "sqrt", "rsqrt", "exp", "log", "log10", "log2", "log1p", "expm1", "sin", "cos",
  "tan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfinv", "reciprocal", "sigmoid", "softsign", "relu", "neg",
} do plain(name, ops[name]) end
plain("arcsin", ops.asin)
plain("arccos", ops.acos)
plain("arctan", ops.atan)
plain("arcsinh", ops.asinh)
plain("arccosh", ops.acosh)
plain("arctanh", ops.atanh)
plain("negative _np_negative", ops.neg)
plain("fix", ops.trunc)
plain("gammaln", ops.lgamma)
plain("gamma", function(x) return ops.exp(ops.lgamma(x)) end)
plain("degrees", function(x) return x * (180 / math.pi) end)
plain("radians", function(x) return x * (math.pi / 180) end)
plain("log_sigmoid", ops.logsigmoid)
plain("mish", ops.mish)
plain("digamma", ops.digamma)
plain("cbrt", function(x) return ops.sign(x) * ops.pow(ops.abs(x), 1 / 3) end)
plain("rcbrt", function(x) return ops.sign(x) * ops.pow(ops.abs(x), -1 / 3) end)
plain("round", function(x) return ops.sign(x) * ops.floor(ops.abs(x) + 0.5) end)        -- halves away from 0
plain("rint", function(x) return ops.ceil(x - 0.5) end)                                -- halves down
plain("logical_not", function(x) return to_dtype_of(x, ops.eq(x, 0)) end)
plain("zeros_like", ops.zeros_like)
plain("ones_like", ops.ones_like)
plain("_copy identity _identity_with_attr_like_rhs", function(x) return x end)
plain("BlockGrad stop_gradient", ops.detach)
plain("_contrib_div_sqrt_dim", function(x) return x / math.sqrt(x:size(-1)) end)
plain("add_n ElementWiseSum", function(first, ...)
  for _, x in ipairs{...} do first = first + x end
  return first
end)

define("hard_sigmoid", function(a)
  local alpha, beta = a:number("alpha", 0.2), a:number("beta", 0.5)
  return function(x) return ops.clamp(x * alpha + beta, 0, 1) end
end)
define("smooth_l1", function(a)
  local beta = 1 / a:number("scalar", 1) ^ 2
  return function(x) return ops.smooth_l1_loss(x, ops.zeros_like(x), {reduction = "none", beta = beta}) end
end)
define("clip", function(a)
  local low, high = a:number("a_min"), a:number("a_max")
  return function(x) return ops.clamp(x, low, high) end
end)
define("Cast cast amp_cast", function(a)
  local dtype = a:dtype("dtype")
  return function(x) return ops.to(x, dtype) end
end)

local function modulo(x, y)  -- 0 where y is
  if y == 0 then return ops.zeros_like(x) end
  local rest = ops.remainder(x, y)
  return type(y) == "number" and rest or ops.where(is_true(y), rest, 0)
end

-- Functions of two tensors; their names with a scalar end in _scalar, as in _plus_scalar, and in Scalar, as in
-- _PlusScalar. A reversed one has the scalar on the left.
local binary = {
  {ops.add, "elemwise_add broadcast_add broadcast_plus _add _plus _Plus _grad_add", "plus"},
  {ops.sub, "elemwise_sub broadcast_sub broadcast_minus _sub _minus _Minus", "minus", "rminus"},
  {ops.mul, "elemwise_mul broadcast_mul _mul _Mul", "mul"},
  {ops.div, "elemwise_div broadcast_div _div _Div", "div", "rdiv"},
  {modulo, "broadcast_mod _mod _Mod", "mod", "rmod"},
  {ops.pow, "broadcast_power _power _Power", "power", "rpower"},
  {ops.maximum, "broadcast_maximum _maximum _Maximum", "maximum"},
  {ops.minimum, "broadcast_minimum _minimum _Minimum", "minimum"},
  {ops.hypot, "broadcast_hypot _hypot _Hypot", "hypot"},
}
-- Comparisons give numbers of the dtype of their input.
local function comparison(f) return function(x, y) return to_dtype_of(x, f(x, y)) end end
local function logical(f) return comparison(function(x, y) return f(is_true(x), type(y) == "number" and y ~= 0 or is_true(y)) end) end
for _, name in ipairs{"equal", "not_equal", "greater", "greater_equal", "lesser", "lesser_equal"} do
  local f = ops[({equal = "eq", not_equal = "ne", greater = "gt", greater_equal = "ge", lesser = "lt", lesser_equal = "le"})[name]]
  binary[#binary + 1] = {comparison(f), ("broadcast_%s _%s"):format(name, name), name}
end
for _, name in ipairs{"and", "or", "xor"} do
  binary[#binary + 1] = {logical(ops["logical_" .. name]), ("broadcast_logical_%s _logical_%s"):format(name, name)}
end

local function scalar_names(name)
  local camel = name:gsub("^r(%l)", function(c) return "R" .. c:upper() end):gsub("^%l", string.upper)
  return ("_%s_scalar _%sScalar"):format(name, camel)
end

for _, entry in ipairs(binary) do
  local f, names, scalar, reversed = unpack(entry, 1, 4)
  plain(names, f, 2)
  if scalar then
    define(scalar_names(scalar), function(a)
      local value = a:number("scalar")
      return function(x) return f(x, value) end
    end)
  end
  if reversed then
    define(scalar_names(reversed), function(a)
      local value = a:number("scalar")
      return function(x) return f(value, x) end
    end)
  end
end

-- Activations -------------------------------------------------------------------------------------------------------------

local activations = {
  relu = ops.relu, sigmoid = ops.sigmoid, tanh = ops.tanh, softrelu = ops.softplus, softsign = ops.softsign,
  log_sigmoid = ops.logsigmoid, mish = ops.mish,
}
define("Activation", function(a)
  local _, f = a:choice("act_type", activations)
  return f
end)

local leaky = {
  leaky = function(a)
    local slope = a:number("slope", 0.25)
    return function(x) return ops.leaky_relu(x, slope) end
  end,
  elu = function(a)
    local slope = a:number("slope", 0.25)
    return function(x) return ops.elu(x, slope) end
  end,
  rrelu = function(a)
    local low, high = a:number("lower_bound", 0.125), a:number("upper_bound", 0.334)
    return function(x) return ops.rrelu(x, low, high) end
  end,
  prelu = function() return ops.prelu end,
  selu = function() return ops.selu end,
  gelu = function() return function(x) return ops.gelu(x) end end,
}
define("LeakyReLU", function(a)
  local _, make = a:choice("act_type", leaky, "leaky")
  return make(a)
end)

local function softmax(names, f)
  define(names, function(a)
    local dim, temperature = a:dim("axis", -1), a:number("temperature", 1)
    local by_length = a:boolean("use_length", false)
    if by_length then a:fail("use_length", "False") end
    return function(x)
      if temperature ~= 1 then x = x / temperature end
      return f(x, dim)
    end
  end)
end
softmax("softmax", ops.softmax)
softmax("log_softmax", ops.log_softmax)
softmax("softmin", ops.softmin)

-- The softmax of all classes of a sample.
local function by_sample(x)
  if x:dim() <= 2 then return ops.softmax(x, -1) end
  return ops.reshape_as(ops.softmax(ops.flatten(x, 2), 2), x)
end

define("SoftmaxActivation", function(a)
  if a:choice("mode", {instance = true, channel = true}, "instance") == "instance" then return by_sample end
  return function(x) return ops.softmax(x, 2) end
end)

-- Outputs of training: their gradient is that of a loss, whatever the gradient of the result. -----------------------------

-- Makes the op of the function `value`, whose gradient by x is gradient(y, label).
local function output_head(name, value, gradient)
  local call = autograd.Function{
    name = name,
    forward = function(ctx, x, label)
      local y = value(x)
      ctx.saved = {y, label}
      return y
    end,
    backward = function(ctx)
      local y, label = unpack(ctx.saved)
      return gradient(y, label), ops.zeros_like(label)
    end,
  }
  return function(x, label)
    if label == nil then return value(x) end
    return call(x, label)
  end
end

define("SoftmaxOutput Softmax", function(a)
  local scale, ignored = a:number("grad_scale", 1), a:boolean("use_ignore", false) and a:number("ignore_label", -1)
  local normalization = a:choice("normalization", {null = true, batch = true, valid = true}, "null")
  local by_channel, keeps = a:boolean("multi_output", false), a:boolean("preserve_shape", false)
  local function value(x)
    if by_channel then return ops.softmax(x, 2) end
    if keeps then return ops.softmax(x, -1) end
    return by_sample(x)
  end
  return output_head("SoftmaxOutput", value, function(y, label)
    local classes = by_channel and 2 or y:dim()
    local index, count = integers(label), y:size(classes)
    local target = to_dtype_of(y, ops.one_hot(ops.clamp(index, 0, count - 1), count, {index_base = 0}))
    if by_channel then target = ops.moveaxis(target, -1, 2) end
    local d = (y - ops.reshape_as(target, y)) * scale
    local valid = ignored and ops.ne(label, ignored)
    if valid then d = d * to_dtype_of(y, ops.unsqueeze(valid, classes)) end
    if normalization == "batch" then d = d / y:size(1) end
    if by_channel and normalization ~= "valid" then d = d * (y:size(1) * count / y:numel()) end
    if normalization == "valid" then
      d = d / (valid and ops.clamp(ops.sum(to_dtype_of(y, valid)), 1) or label:numel())
    end
    return d
  end), {[2] = "label"}
end)

local function regression(name, value, gradient)
  define(name, function(a)
    local scale = a:number("grad_scale", 1)
    return output_head(name, value, function(y, label)
      return gradient(y - ops.reshape_as(label, y)) * (scale * y:size(1) / y:numel())
    end), {[2] = "label"}
  end)
end
local function same(x) return x end
regression("LinearRegressionOutput", same, same)
regression("LogisticRegressionOutput", ops.sigmoid, same)
regression("MAERegressionOutput", same, ops.sign)

define("MakeLoss make_loss", function(a)
  local scale = a:number("grad_scale", 1)
  if a:choice("normalization", {null = true, batch = true}, "null") == "batch" then
    return function(x) return ops.detach(x) + (x - ops.detach(x)) * (scale / x:size(1)) end
  end
  local loss = output_head("MakeLoss", function(x) return x * 1 end, function(y) return ops.full_like(y, scale) end)
  return function(x) return loss(x, ops.detach(x)) end
end)

-- Layers -------------------------------------------------------------------------------------------------------------------

define("FullyConnected", function(a)
  local flat = a:boolean("flatten", true)
  local no_bias = a:boolean("no_bias", false)
  return function(x, weight, bias)
    if flat and x:dim() ~= 2 then x = ops.flatten(x, 2) end
    return no_bias and ops.linear(x, weight) or ops.linear(x, weight, bias)
  end
end, 2)

-- Reads the attributes of a window over 1 to 3 dims and checks the layout.
local function window(a)
  local kernel = a:list("kernel")
  local n = #kernel
  if n < 1 or n > 3 then a:fail("kernel", "1 to 3 sizes") end
  local layout = a:text("layout", false)
  local expected = ({"NCW", "NCHW", "NCDHW"})[n]
  if layout and layout ~= expected then a:fail("layout", expected) end
  local function each(key, default)
    local list = a:list(key, {})
    if #list == 0 then for i = 1, n do list[i] = default end end
    if #list ~= n then a:fail(key, n .. " numbers") end
    return list
  end
  return n, kernel, each
end

local function convolution(names, op, transposed)
  define(names, function(a)
    local n, _, each = window(a)
    local options = {stride = each("stride", 1), padding = each("pad", 0), dilation = each("dilate", 1), groups = a:number("num_group", 1)}
    if transposed then
      options.output_padding = each("adj", 0)
      local size = a:list("target_shape", {})
      for i, s in ipairs(size) do if s and s ~= 0 then a:fail("target_shape", "none; the size follows from pad and adj, place " .. i) end end
    end
    local no_bias, convolve = a:boolean("no_bias", transposed or false), ops[op .. n .. "d"]
    return function(x, weight, bias)
      if no_bias then return convolve(x, weight, options) end
      return convolve(x, weight, bias, options)
    end
  end)
end
convolution("Convolution Convolution_v1", "conv")
convolution("Deconvolution", "conv_transpose", true)

local function all_positions(n)
  local dims = {}
  for i = 1, n do dims[i] = i + 2 end
  return dims
end

local reductions = {max = ops.amax, avg = ops.mean, sum = ops.sum, lp = false}

local function global_pool(kind)
  local reduce = reductions[kind]
  return function(x) return reduce(x, all_positions(x:dim() - 2), true) end
end

define("Pooling Pooling_v1", function(a)
  local kind = a:choice("pool_type", reductions, "max")
  if kind == "lp" then a:fail("pool_type", "max, avg or sum") end
  if a:boolean("global_pool", false) then return global_pool(kind) end
  local n, kernel, each = window(a)
  local stride, padding = each("stride", 1), each("pad", 0)
  local full = a:choice("pooling_convention", {valid = true, full = true}, "valid") == "full"
  local counted = a:boolean("count_include_pad", true)
  local options = {kernel_size = kernel, stride = stride, padding = padding, ceil_mode = full}
  if kind == "max" then
    local pool = ops["max_pool" .. n .. "d"]
    return function(x) return (pool(x, options)) end
  end
  options.count_include_pad = counted
  if kind == "sum" then options.divisor_override = 1 end
  local pool = ops["avg_pool" .. n .. "d"]
  return function(x) return pool(x, options) end
end)

define("_contrib_AdaptiveAvgPooling2D", function(a)
  local size = a:list("output_size", {1})
  if #size == 0 then size = {1} end
  if #size == 1 then size[2] = size[1] end
  return function(x) return ops.adaptive_avg_pool(x, size) end
end)

define("BatchNorm BatchNorm_v1 CuDNNBatchNorm _contrib_SyncBatchNorm", function(a)
  local options = {eps = a:number("eps", 1e-3), momentum = a:number("momentum", 0.9)}
  if a:boolean("use_global_stats", false) then options.training = false end
  local fixed, dim = a:boolean("fix_gamma", true), a:dim("axis", 1)
  if a:boolean("output_mean_var", false) then a:fail("output_mean_var", "False") end
  local roles = {[4] = "state", [5] = "state"}
  if #a.inputs == 3 then roles.added = {"_moving_mean", "_moving_var"} end
  return function(x, gamma, beta, mean, var)
    if fixed then gamma = gamma * 0 + 1 end  -- keeps a gradient of zeros
    if dim == 2 then return norm.normalize_batch(x, mean, var, gamma, beta, options) end
    return ops.transpose(norm.normalize_batch(ops.transpose(x, dim, 2), mean, var, gamma, beta, options), dim, 2)
  end, roles
end, 3)

define("LayerNorm", function(a)
  local dim, eps = a:dim("axis", -1), a:number("eps", 1e-5)
  if a:boolean("output_mean_var", false) then a:fail("output_mean_var", "False") end
  return function(x, gamma, beta)
    if dim == -1 or dim == x:dim() then return ops.layer_norm(x, {x:size(-1)}, gamma, beta, eps) end
    x = ops.transpose(x, dim, -1)
    return ops.transpose(ops.layer_norm(x, {x:size(-1)}, gamma, beta, eps), dim, -1)
  end
end, 3)

define("GroupNorm", function(a)
  local groups, eps = a:number("num_groups", 1), a:number("eps", 1e-5)
  return function(x, gamma, beta)
    local each = x:size(2) / gamma:size(1)  -- one factor per group, or per channel
    if each > 1 then gamma, beta = ops.repeat_interleave(gamma, each, 1), ops.repeat_interleave(beta, each, 1) end
    return ops.group_norm(x, groups, gamma, beta, eps)
  end
end, 3)

define("InstanceNorm", function(a)
  local eps = a:number("eps", 1e-3)
  return function(x, gamma, beta) return ops.group_norm(x, x:size(2), gamma, beta, eps) end
end, 3)

define("L2Normalization", function(a)
  local eps = a:number("eps", 1e-10)
  local mode = a:choice("mode", {instance = true, channel = true, spatial = true}, "instance")
  return function(x)
    local dims = {}
    for d = mode == "spatial" and 3 or 2, mode == "channel" and 2 or x:dim() do dims[#dims + 1] = d end
    return x / ops.sqrt(ops.sum(ops.square(x), dims, true) + eps)
  end
end)

define("LRN", function(a)
  local options = {size = a:number("nsize"), alpha = a:number("alpha", 1e-4), beta = a:number("beta", 0.75), k = a:number("knorm", 2)}
  return function(x) return ops.local_response_norm(x, options) end
end)

define("Dropout", function(a)
  local options = {p = a:number("p", 0.5), axes = a:dims("axes")}
  if a:choice("mode", {training = true, always = true}, "training") == "always" then options.training = true end
  return function(x) return ops.dropout(x, options) end
end)

define("Embedding _contrib_SparseEmbedding", function(a)
  local last = a:number("input_dim") - 1
  return function(x, weight) return ops.embedding(ops.clamp(integers(x), 0, last), weight, {index_base = 0}) end
end, 2)

local function by_block(name, op)
  define(name, function(a)
    local size = a:number("block_size")
    return function(x) return op(x, size) end
  end)
end
-- Unlike pixel_shuffle, the positions in a block come before the channels.
by_block("depth_to_space", function(x, size)
  local n, c, h, w = x:size(1), x:size(2), x:size(3), x:size(4)
  local parts = ops.permute(ops.reshape(x, {n, size, size, c / size ^ 2, h, w}), {1, 4, 5, 2, 6, 3})
  return ops.reshape(parts, {n, c / size ^ 2, h * size, w * size})
end)
by_block("space_to_depth", function(x, size)
  local n, c, h, w = x:size(1), x:size(2), x:size(3), x:size(4)
  local parts = ops.permute(ops.reshape(x, {n, c, h / size, size, w / size, size}), {1, 4, 6, 2, 3, 5})
  return ops.reshape(parts, {n, c * size ^ 2, h / size, w / size})
end)

define("UpSampling", function(a)
  local scale = a:number("scale")
  a:choice("sample_type", {nearest = true}, "nearest")
  if #a.inputs ~= 1 then a:fail("num_args", "1") end
  return function(x) return ops.interpolate(x, {scale_factor = {scale, scale}, mode = "nearest"}) end
end)

local rnn_gates = {rnn_relu = 1, rnn_tanh = 1, lstm = 4, gru = 3}

-- The weights of all layers and directions as one tensor, then all biases.
define("RNN", function(a)
  local mode, gates = a:choice("mode", rnn_gates)
  local hidden, layers = a:number("state_size"), a:count("num_layers", nil, 1000)
  local directions = a:boolean("bidirectional", false) and 2 or 1
  local with_states, by_length = a:boolean("state_outputs", false), a:boolean("use_sequence_length", false)
  for _, name in ipairs{"projection_size", "lstm_state_clip_min", "lstm_state_clip_max"} do
    if a:text(name, false) then a:fail(name, "None") end
  end
  local options = {num_layers = layers, bidirectional = directions == 2, dropout = a:number("p", 0), has_biases = true}
  if gates == 1 then options.nonlinearity = mode:sub(5) end
  local states = mode == "lstm" and 2 or 1
  local zeros = a.inputs[3] == "_zeros"   -- of a batch size that the graph does not know
  return function(x, packed, ...)
    local at = 1
    local function take(rows, columns)
      local count = rows * (columns or 1)
      local part = ops.narrow(packed, 1, at, count)
      at = at + count
      return columns and ops.reshape(part, {rows, columns}) or part
    end
    local weights = {}
    for k = 1, layers * directions do
      weights[4 * k - 3] = take(gates * hidden, k <= directions and x:size(3) or hidden * directions)
      weights[4 * k - 2] = take(gates * hidden, hidden)
    end
    for k = 1, layers * directions do
      weights[4 * k - 1], weights[4 * k] = take(gates * hidden), take(gates * hidden)
    end
    local given = {...}
    local o = {sequence_length = by_length and given[states + 1] or nil}
    for key, value in pairs(options) do o[key] = value end
    local initial
    if not zeros then initial = mode == "lstm" and {given[1], given[2]} or given[1] end
    local run = core.require("nn.rnn.functional")[gates == 1 and "rnn" or mode]
    if with_states then return run(x, initial, weights, o) end
    return (run(x, initial, weights, o))
  end
end, 3)

-- Shapes -------------------------------------------------------------------------------------------------------------------

plain("Flatten flatten", function(x) return x:dim() == 2 and x or ops.flatten(x, 2) end)
plain("reshape_like", ops.reshape_as, 2)
plain("shape_array", function(x) return core.pg.tensor(x.shape, {dtype = "int64"}) end)

-- Returns the new shape by MXNet's codes: 0 copies a dim, -2 copies the rest, -3 joins two dims, -4 splits one.
local function reshape_codes(a, shape, codes)
  local out, from, i = {}, 1, 1
  local function size()
    local n = shape[from]
    if not n then a:fail("shape", "codes for at most " .. #shape .. " dims") end
    from = from + 1
    return n
  end
  while i <= #codes do
    local code = codes[i]
    if code == 0 then out[#out + 1] = size()
    elseif code == -1 then
      out[#out + 1] = -1
      from = from + 1
    elseif code == -2 then while shape[from] do out[#out + 1] = size() end
    elseif code == -3 then out[#out + 1] = size() * size()
    elseif code == -4 then
      local whole, first, second = size(), codes[i + 1], codes[i + 2]
      if not second then a:fail("shape", "two sizes after -4") end
      out[#out + 1] = first == -1 and whole / second or first
      out[#out + 1] = second == -1 and whole / first or second
      i = i + 2
    else
      out[#out + 1] = code
      from = from + 1
    end
    i = i + 1
  end
  return out
end

local function backwards(list)
  local out = {}
  for i = #list, 1, -1 do out[#out + 1] = list[i] end
  return out
end

define("Reshape reshape", function(a)
  local codes = a:list("shape", {})
  if #codes == 0 then codes = a:list("target_shape") end
  local reversed, coded = a:boolean("reverse", false), false
  for _, code in ipairs(codes) do
    if not code then a:fail("shape", "numbers") end
    coded = coded or code < -1
  end
  if not coded and not reversed then return function(x) return ops.reshape(x, codes) end end
  return function(x)
    if not reversed then return ops.reshape(x, reshape_codes(a, x.shape, codes)) end
    return ops.reshape(x, backwards(reshape_codes(a, backwards(x.shape), backwards(codes))))
  end
end)

define("transpose", function(a)
  local dims = a:dims("axes")
  return function(x)
    if dims then return ops.permute(x, dims) end
    local all = {}
    for d = x:dim(), 1, -1 do all[#all + 1] = d end
    return ops.permute(x, all)
  end
end)

define("SwapAxis swapaxes", function(a)
  local first, second = a:dim("dim1", 0), a:dim("dim2", 0)
  return function(x) return ops.transpose(x, first, second) end
end)
define("expand_dims", function(a)
  local dim = a:dim("axis")
  return function(x) return ops.unsqueeze(x, dim) end
end)
define("squeeze", function(a)
  local dims = a:dims("axis")
  return function(x) return at_least_1d(dims and ops.squeeze(x, dims) or ops.squeeze(x)) end
end)
define("Concat concat _rnn_param_concat", function(a)
  local dim = a:dim("dim", 1)
  return function(...) return ops.cat({...}, dim) end
end)
define("stack", function(a)
  local dim = a:dim("axis", 0)
  return function(...) return ops.stack({...}, dim) end
end)
define("SliceChannel split", function(a)
  local count, dim, squeezed = a:count("num_outputs", nil, 1000), a:dim("axis", 1), a:boolean("squeeze_axis", false)
  return function(x)
    local parts = ops.chunk(x, count, dim)
    if squeezed then for i, part in ipairs(parts) do parts[i] = ops.squeeze(part, dim) end end
    return unpack(parts, 1, count)
  end
end)
define("_split_v2", function(a)
  local starts, sections, dim = a:list("indices", {}), a:number("sections", 0), a:dim("axis", 1)
  local squeezed = a:boolean("squeeze_axis", false)
  return function(x)
    local parts
    if sections > 0 then parts = ops.chunk(x, sections, dim)
    else
      local sizes, from = {}, starts[1] == 0 and 1 or 0
      for i = 1 + from, #starts do sizes[#sizes + 1] = starts[i] - (starts[i - 1] or 0) end
      sizes[#sizes + 1] = x:size(dim) - (starts[#starts] or 0)
      parts = ops.split(x, sizes, dim)
    end
    if squeezed then for i, part in ipairs(parts) do parts[i] = ops.squeeze(part, dim) end end
    return unpack(parts)
  end
end)

-- Returns the positions begin, begin + step, … before `stop` along a dim, as an entry of an index and whether the dim has
-- to be flipped first. Bounds are from 0 on, negative from the end, or false.
local function span(x, dim, begin, stop, step)
  step = step or 1
  if step < 0 then  -- position i is -(i + 1) in the flipped dim
    begin, stop = begin and -begin - 1, stop and -stop - 1
    local entry = span(x, dim, begin, stop, -step)
    return entry, true
  end
  local first, last = begin or 0, stop and stop - 1 or -1
  if first >= 0 then first = first + 1 end
  if stop == 0 then return {1, 0} end
  if stop and stop > 0 then last = math.min(stop, x:size(dim)) end
  if begin and begin < 0 and -begin > x:size(dim) then first = 1 end
  if last < 0 and -last > x:size(dim) then return {1, 0} end
  return {first, last, step}
end

-- x with dims cut to bounds[d] = {begin, stop, step}.
local function slice(x, bounds)
  local key, flipped = {}, {}
  for d = 1, x:dim() do
    local b = bounds[d]
    local entry, flip = {}, false
    if b then entry, flip = span(x, d, b[1], b[2], b[3]) end
    key[d] = entry
    if flip then flipped[#flipped + 1] = d end
  end
  if flipped[1] then x = ops.flip(x, flipped) end
  return x[key]
end

define("slice crop", function(a)
  local begin, stop, step = a:list("begin"), a:list("end"), a:list("step", {})
  local bounds = {}
  for d = 1, #begin do bounds[d] = {begin[d], stop[d], step[d]} end
  return function(x) return slice(x, bounds) end
end)
define("slice_axis", function(a)
  local dim, begin, stop = a:dim("axis"), a:number("begin"), a:number("end", false)
  return function(x) return slice(x, {[dim < 0 and x:dim() + 1 + dim or dim] = {begin, stop}}) end
end)
define("slice_like", function(a)
  local dims = a:dims("axes")
  return function(x, like)
    local bounds = {}
    for d = 1, dims and #dims or like:dim() do
      local dim = dims and dims[d] or d
      if dim < 0 then dim = x:dim() + 1 + dim end
      bounds[dim] = {0, like:size(dim)}
    end
    return slice(x, bounds)
  end
end, 2)

define("Pad pad", function(a)
  local widths, value = a:list("pad_width"), a:number("constant_value", 0)
  local _, mode = a:choice("mode", {constant = "constant", edge = "replicate", reflect = "reflect"})
  local pad = {}
  for i = #widths - 1, 1, -2 do
    pad[#pad + 1], pad[#pad + 2] = widths[i], widths[i + 1]
  end
  while mode ~= "constant" and #pad > 2 and pad[#pad] == 0 and pad[#pad - 1] == 0 do pad[#pad], pad[#pad - 1] = nil, nil end
  return function(x) return ops.pad(x, pad, mode, value) end
end)

define("broadcast_to", function(a)
  local shape = a:list("shape")
  for d, size in ipairs(shape) do if size == 0 then shape[d] = -1 end end
  return function(x) return ops.expand(x, shape) end
end)
plain("broadcast_like", function(x, like) return ops.expand_as(x, like) end, 2)
define("broadcast_axis broadcast_axes", function(a)
  local dims, sizes = a:dims("axis") or {}, a:list("size", {})
  return function(x)
    local shape = {}
    for d = 1, x:dim() do shape[d] = -1 end
    for i, dim in ipairs(dims) do shape[dim < 0 and x:dim() + 1 + dim or dim] = sizes[i] end
    return ops.expand(x, shape)
  end
end)
define("tile", function(a)
  local counts = a:list("reps")
  return function(x) return ops.tile(x, counts) end
end)
define("repeat", function(a)
  local count, axis = a:number("repeats"), a:dims("axis")
  return function(x) return ops.repeat_interleave(x, count, axis and {dim = axis[1]} or nil) end
end)
define("reverse flip", function(a)
  local dims = a:dims("axis")
  return function(x) return ops.flip(x, dims) end
end)

local function shape_of(a)
  local shape = a:list("shape", {})
  for d, size in ipairs(shape) do if size == 0 then shape[d] = 1 end end  -- unknown sizes; the result broadcasts
  return shape, a:dtype("dtype", "float32")
end
define("_zeros", function(a)
  local shape, dtype = shape_of(a)
  return function(device) return ops.zeros(shape, {dtype = dtype, device = device}) end
end, 0)
define("_ones", function(a)
  local shape, dtype = shape_of(a)
  return function(device) return ops.ones(shape, {dtype = dtype, device = device}) end
end, 0)
define("_full", function(a)
  local shape, dtype = shape_of(a)
  local value = a:number("value")
  return function(device) return ops.full(shape, value, {dtype = dtype, device = device}) end
end, 0)
define("_arange", function(a)
  local start, stop, step = a:number("start", 0), a:number("stop", false), a:number("step", 1)
  local repeats, dtype = a:number("repeat", 1), a:dtype("dtype", "float32")
  if not stop then start, stop = 0, start end
  local count = math.max(0, math.ceil((stop - start) / step))
  return function(device)
    local x = ops.range(0, count - 1, {dtype = "float64", device = device}) * step + start
    if repeats > 1 then x = ops.repeat_interleave(x, repeats) end
    return ops.to(x, dtype)
  end
end, 0)

-- Reductions ---------------------------------------------------------------------------------------------------------------

local function reduction(names, reduce)
  define(names, function(a)
    local dims, keep, excluded = a:dims("axis"), a:boolean("keepdims", false), a:boolean("exclude", false)
    return function(x)
      local chosen = dims
      if excluded then
        local out, rank = {}, x:dim()
        for _, dim in ipairs(dims or {}) do out[dim < 0 and rank + 1 + dim or dim] = true end
        chosen = {}
        for d = 1, rank do if not out[d] then chosen[#chosen + 1] = d end end
      end
      return at_least_1d(reduce(x, chosen, keep, a))
    end
  end)
end
reduction("sum sum_axis", function(x, dims, keep) return ops.to(ops.sum(x, {dim = dims, keepdim = keep}), x.dtype) end)
reduction("mean", function(x, dims, keep) return ops.mean(x, {dim = dims, keepdim = keep}) end)
reduction("max max_axis", function(x, dims, keep) return ops.amax(x, {dim = dims, keepdim = keep}) end)
reduction("min min_axis", function(x, dims, keep) return ops.amin(x, {dim = dims, keepdim = keep}) end)
reduction("nansum", function(x, dims, keep) return ops.nansum(x, {dim = dims, keepdim = keep}) end)
reduction("prod", function(x, dims, keep)
  if not dims then return ops.prod(x) end
  local at = {}
  for i, dim in ipairs(dims) do at[i] = dim < 0 and x:dim() + 1 + dim or dim end
  table.sort(at, function(p, q) return p > q end)
  for _, dim in ipairs(at) do x = ops.prod(x, {dim = dim, keepdim = keep}) end
  return x
end)
reduction("norm", function(x, dims, keep, a) return ops.norm(x, {p = a:number("ord", 2), dim = dims, keepdim = keep}) end)

local function position(names, op)
  define(names, function(a)
    local dims, keep = a:dims("axis"), a:boolean("keepdims", false)
    return function(x)
      return at_least_1d(to_dtype_of(x, op(x, {dim = dims and dims[1], keepdim = keep, index_base = 0})))
    end
  end)
end
position("argmax", ops.argmax)
position("argmin", ops.argmin)
plain("argmax_channel", function(x) return to_dtype_of(x, ops.argmax(x, {dim = -1, index_base = 0})) end)

define("sort", function(a)
  local dim, ascending = a:dim("axis", -1), a:boolean("is_ascend", true)
  return function(x) return (ops.sort(x, {dim = dim, descending = not ascending})) end
end)
define("argsort", function(a)
  local options = {dim = a:dim("axis", -1), descending = not a:boolean("is_ascend", true), index_base = 0}
  local dtype = a:dtype("dtype", "float32")
  return function(x) return ops.to(ops.argsort(x, options), dtype) end
end)
define("topk", function(a)
  local k, dtype = a:number("k", 1), a:dtype("dtype", "float32")
  local options = {dim = a:dim("axis", -1), largest = not a:boolean("is_ascend", false), index_base = 0}
  local kind = a:choice("ret_typ", {value = true, indices = true, both = true}, "indices")
  return function(x)
    local values, indices = ops.topk(x, k, options)
    if kind == "value" then return values end
    if kind == "indices" then return ops.to(indices, dtype) end
    return values, ops.to(indices, dtype)
  end
end)

-- Products -----------------------------------------------------------------------------------------------------------------

define("dot", function(a)
  local options = {transpose_a = a:boolean("transpose_a", false), transpose_b = a:boolean("transpose_b", false)}
  local turned = options.transpose_a or options.transpose_b
  return function(x, y)
    if x:dim() > 2 or y:dim() > 2 then
      if turned then core.fail("dot", "transpose_a and transpose_b with more than 2 dims") end
      return ops.tensordot(x, y, {dims = 1})
    end
    return at_least_1d(ops.dot(x, y, options))
  end
end, 2)
define("batch_dot", function(a)
  local turn_a, turn_b = a:boolean("transpose_a", false), a:boolean("transpose_b", false)
  return function(x, y)
    if turn_a then x = ops.transpose(x, -2, -1) end
    if turn_b then y = ops.transpose(y, -2, -1) end
    return ops.matmul(x, y)
  end
end, 2)

-- Indexing -----------------------------------------------------------------------------------------------------------------

-- Returns the whole numbers of an index, those outside of 0..count - 1 moved to the end or to the other side.
local function bounded(index, count, mode)
  index = integers(index)
  if mode == "wrap" then return ops.remainder(index, count) end
  return mode == "clip" and ops.clamp(index, 0, count - 1) or index
end
local modes = {clip = true, wrap = true, raise = true}

define("take", function(a)
  local dim, mode = a:dim("axis", 0), a:choice("mode", modes, "clip")
  return function(x, index) return ops.index_select(x, dim, bounded(index, x:size(dim), mode), {index_base = 0}) end
end, 2)
define("pick", function(a)
  local dims, keep, mode = a:dims("axis") or {-1}, a:boolean("keepdims", false), a:choice("mode", modes, "clip")
  return function(x, index)
    return ops.pick(x, bounded(index, x:size(dims[1]), mode), {dim = dims[1], keepdim = keep, index_base = 0})
  end
end, 2)
define("one_hot", function(a)
  local depth, dtype = a:number("depth"), a:dtype("dtype", "float32")
  local on, off = a:number("on_value", 1), a:number("off_value", 0)
  return function(index)
    local hot = ops.eq(ops.unsqueeze(integers(index), -1), ops.range(0, depth - 1, {dtype = "int64", device = index.device}))
    return ops.to(hot, dtype) * (on - off) + off
  end
end)
plain("gather_nd", function(x, index)
  index = integers(index)
  local key = {}
  for i = 1, index:size(1) do key[i] = index[i] + 1 end
  return x[key]
end, 2)
plain("where", function(condition, x, y)
  if condition:dim() == 1 and x:dim() > 1 then  -- chooses rows
    local shape = {-1}
    for d = 2, x:dim() do shape[d] = 1 end
    condition = ops.reshape(condition, shape)
  end
  return ops.where(is_true(condition), x, y)
end, 3)

local function sequence(name, op, read)
  define(name, function(a)
    local by_length, dim = a:boolean("use_sequence_length", false), a:dim("axis", 0)
    local options = read(a)
    options.dim = dim
    return function(x, lengths)
      if by_length then return op(x, lengths, options) end
      return op(x, options)
    end
  end)
end
sequence("SequenceMask", ops.sequence_mask, function(a) return {value = a:number("value", 0)} end)
sequence("SequenceLast", ops.sequence_last, function() return {} end)
sequence("SequenceReverse", ops.sequence_reverse, function() return {} end)

-- Control flow -------------------------------------------------------------------------------------------------------------

local function control() return core.require("control") end
local function run_graph(g, values) return core.require("mxnet.graph").run(g, values) end

local function check_subgraphs(a, count)
  if #a.subgraphs ~= count then core.fail("imports", "%s: %d subgraphs (expected %d)", a.place, #a.subgraphs, count) end
  return unpack(a.subgraphs)
end

-- Reads positions from 0 to `most` - 1, as positions from 1 on.
local function positions(a, name, most)
  local list = a:list(name)
  for i, at in ipairs(list) do
    if not at or at < 0 or at >= most or at ~= math.floor(at) then a:fail(name, "positions below " .. most) end
    list[i] = at + 1
  end
  return list
end

-- Reads for each variable of a subgraph which input of the node it is.
local function locations(a, name, g)
  local list = positions(a, name, #a.inputs)
  if #list ~= #g.variables then a:fail(name, #g.variables .. " positions") end
  return list
end

local function run_at(g, at, given)
  local values = {}
  for i, variable in ipairs(g.variables) do values[variable.id] = {given[at[i]]} end
  return run_graph(g, values)
end

local function part(list, first, last)
  local out = {}
  for i = first, last do out[#out + 1] = list[i] end
  return out
end

define("_foreach", function(a)
  local body = check_subgraphs(a, 1)
  local most = #body.variables
  local data_at, state_at, rest_at = positions(a, "in_data_locs", most), positions(a, "in_state_locs", most), positions(a, "remain_locs", most)
  local n, outputs = #data_at, a:count("num_out_data", nil, #body.heads)
  local placed = {}
  for _, list in ipairs{data_at, state_at, rest_at} do for _, at in ipairs(list) do placed[at] = true end end
  if n + #state_at + #rest_at ~= #a.inputs or #placed ~= most or most ~= #a.inputs then
    a:fail("in_data_locs", "with in_state_locs and remain_locs a place for each input of the node")
  end
  return function(...)
    local given = {...}
    local outs, states = control().foreach(function(items, states)
      local values = {}
      for i, at in ipairs(data_at) do
        values[body.variables[at].id] = {at_least_1d(items[i])}
      end
      for i, at in ipairs(state_at) do values[body.variables[at].id] = {states[i]} end
      for i, at in ipairs(rest_at) do values[body.variables[at].id] = {given[n + #state_at + i]} end
      local all = run_graph(body, values)
      return part(all, 1, outputs), part(all, outputs + 1, #all)
    end, part(given, 1, n), part(given, n + 1, n + #state_at))
    local all = outs or {}
    for _, state in ipairs(states or {}) do all[#all + 1] = state end
    return unpack(all)
  end
end)

-- The list with the values at these places.
local function replaced(list, at, values)
  local out = part(list, 1, #list)
  for i, k in ipairs(at) do out[k] = values[i] end
  return out
end

define("_while_loop", function(a)
  local test, body = check_subgraphs(a, 2)
  local test_at, body_at = locations(a, "cond_input_locs", test), locations(a, "func_input_locs", body)
  local var_at = positions(a, "func_var_locs", #body.variables)
  for i, at in ipairs(var_at) do var_at[i] = body_at[at] end
  local outputs, most = a:count("num_out_data", nil, #body.heads), a:number("max_iterations")
  return function(...)
    local given, first = {...}, {}
    for i, at in ipairs(var_at) do first[i] = given[at] end
    local outs, vars = control().while_loop(
      function(...) return is_true(run_at(test, test_at, replaced(given, var_at, {...}))[1]) end,
      function(...)
        local all = run_at(body, body_at, replaced(given, var_at, {...}))
        return part(all, 1, outputs), part(all, outputs + 1, #all)
      end, first, {max_iterations = most})
    local all = outs or {}
    for _, x in ipairs(vars) do all[#all + 1] = x end
    return unpack(all)
  end
end)

define("_cond", function(a)
  local test, yes, no = check_subgraphs(a, 3)
  local test_at, yes_at, no_at = locations(a, "cond_input_locs", test), locations(a, "then_input_locs", yes), locations(a, "else_input_locs", no)
  return function(...)
    local given = {...}
    local pick = is_true(run_at(test, test_at, given)[1])
    return unpack(control().cond(pick, function() return run_at(yes, yes_at, given) end, function() return run_at(no, no_at, given) end))
  end
end)

return {table = t}
