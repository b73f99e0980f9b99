-- MXNet's ops: layers. See define.lua.
local core = ...
local norm = core.require("nn.norm")
local mxnet = core.require("mxnet.ops.define")
local param = core.require("param")
local ops = core.ops

local ipairs = ipairs
local define, integers = mxnet.define, mxnet.integers

define("FullyConnected", function(a)
  local flat = a:boolean("flatten", true)
  local no_bias = a:boolean("no_bias", false)
  return function(x, weight, bias)
    if flat and x:dim() ~= 2 then x = ops.flatten(x, 2) end
    return no_bias and ops.linear(x, weight) or ops.linear(x, weight, bias)
  end
end, 2)

local layouts = {[false] = false, NCW = false, NCHW = false, NCDHW = false, NWC = true, NHWC = true, NDHWC = true}

-- Reads the attribute layout of an op over n dims, or any number of dims. Returns a function of f: f for inputs and results with
-- the channels in dim 2, in the layout of the attribute. Weights have their channels at the same place.
local function in_layout(a, n)
  local layout = a:text("layout", false)
  local is_last = layouts[layout]
  if is_last == nil or layout and n and #layout ~= n + 2 then
    local known = {"NCW or NWC", "NCHW or NHWC", "NCDHW or NDHWC"}
    a:fail("layout", n and known[n] or table.concat(known, ", "))
  end
  if not is_last then return function(f) return f end end
  return function(f)
    return function(x, weight, ...)
      local y = f(ops.moveaxis(x, -1, 2), weight and ops.moveaxis(weight, -1, 2), ...)
      return ops.moveaxis(y, 2, -1)
    end
  end
end

-- Reads the attributes of a window over 1 to 3 dims.
local function window(a)
  local kernel = a:list("kernel")
  local n = #kernel
  if n < 1 or n > 3 then a:fail("kernel", "1 to 3 sizes") end
  local function each(key, default)
    local list = a:list(key, {})
    if #list == 0 then for i = 1, n do list[i] = default end end
    if #list ~= n then a:fail(key, n .. " numbers") end
    return list
  end
  return n, kernel, each, in_layout(a, n)
end

-- Returns a function of the input -> the options with which a transposed convolution has the size of the attribute
-- target_shape, or nil without one.
local function target_size(a, n, kernel, options)
  local size = a:list("target_shape", {})
  if not (size[1] and size[1] > 0) then return nil end
  if #size ~= n then a:fail("target_shape", n .. " sizes") end
  return function(x)
    local o = {stride = options.stride, dilation = options.dilation, groups = options.groups, padding = {}, output_padding = {}}
    for i = 1, n do
      local extra = options.stride[i] * (x:size(i + 2) - 1) + options.dilation[i] * (kernel[i] - 1) + 1 - (size[i] or 0)
      if not size[i] or extra < 0 then a:fail("target_shape", "at most the size without padding") end
      o.padding[i], o.output_padding[i] = math.ceil(extra / 2), extra % 2
    end
    return o
  end
end

local function convolution(names, op, transposed)
  define(names, function(a)
    local n, kernel, each, placed = window(a)
    local options = {stride = each("stride", 1), padding = each("pad", 0), dilation = each("dilate", 1), groups = a:number("num_group", 1)}
    local target = transposed and target_size(a, n, kernel, options)
    if transposed then options.output_padding = each("adj", 0) end
    local no_bias, convolve = a:boolean("no_bias", transposed or false), ops[op .. n .. "d"]
    return placed(function(x, weight, bias)
      local o = target and target(x) or options
      if no_bias then return convolve(x, weight, o) end
      return convolve(x, weight, bias, o)
    end)
  end)
end
convolution("Convolution Convolution_v1", "conv")
convolution("Deconvolution", "conv_transpose", true)

local function all_positions(n)
  local dims = {}
  for i = 1, n do dims[i] = i + 2 end
  return dims
end

local reductions = {max = ops.amax, avg = ops.mean, sum = ops.sum, lp = ops.norm}

local function global_pool(kind, p)
  local reduce = reductions[kind]
  return function(x)
    local dims = all_positions(x:dim() - 2)
    if p then return reduce(x, {p = p, dim = dims, keepdim = true}) end
    return reduce(x, dims, true)
  end
end

define("Pooling Pooling_v1", function(a)
  local kind = a:choice("pool_type", reductions, "max")
  local p = kind == "lp" and a:count("p_value", nil, 1000)
  if a:boolean("global_pool", false) then return in_layout(a)(global_pool(kind, p)) end
  local n, kernel, each, placed = window(a)
  local stride, padding = each("stride", 1), each("pad", 0)
  local full = a:choice("pooling_convention", {valid = true, full = true}, "valid") == "full"
  local counted = a:boolean("count_include_pad", true)
  local options = {kernel_size = kernel, stride = stride, padding = padding, ceil_mode = full}
  if kind == "max" then
    local pool = ops["max_pool" .. n .. "d"]
    return placed(function(x) return (pool(x, options)) end)
  end
  options.count_include_pad = counted
  if kind ~= "avg" then options.divisor_override = 1 end
  local pool = ops["avg_pool" .. n .. "d"]
  if p then return placed(function(x) return pool(x:abs() ^ p, options) ^ (1 / p) end) end
  return placed(function(x) return pool(x, options) end)
end)

define("_contrib_AdaptiveAvgPooling2D", function(a)
  local size = a:list("output_size", {1})
  if #size == 0 then size = {1} end
  if #size == 1 then size[2] = size[1] end
  return function(x) return ops.adaptive_avg_pool(x, size) end
end)

-- with_statistics: whether the results "mean" and 1 / sqrt(var + eps) of output_mean_var are known.
local function batch_norm(names, with_statistics)
  define(names, function(a)
    local options = {eps = a:number("eps", 1e-3), momentum = a:number("momentum", 0.9)}
    if a:boolean("use_global_stats", false) then options.training = false end
    local fixed, dim = a:boolean("fix_gamma", true), a:dim("axis", 1)
    local statistics = a:boolean("output_mean_var", false)
    if statistics and not with_statistics then a:fail("output_mean_var", "False") end
    local current = {eps = options.eps, momentum = 0, training = options.training}  -- the old statistics have no share
    local roles = {[4] = "state", [5] = "state"}
    if #a.inputs == 3 then roles.added = {"_moving_mean", "_moving_var"} end
    return function(x, gamma, beta, mean, var)
      if fixed then gamma = gamma * 0 + 1 end  -- keeps a gradient of zeros
      if dim ~= 2 then x = ops.transpose(x, dim, 2) end
      local _, m, v
      if statistics then _, m, v = ops.batch_norm(ops.detach(x), ops.detach(mean), ops.detach(var), gamma, beta, current) end
      local y = norm.normalize_batch(x, mean, var, gamma, beta, options)
      if dim ~= 2 then y = ops.transpose(y, dim, 2) end
      if statistics then return y, m, ops.rsqrt(v + options.eps) end
      return y
    end, roles
  end, 3)
end
batch_norm("BatchNorm", true)
batch_norm("BatchNorm_v1 CuDNNBatchNorm _contrib_SyncBatchNorm", false)

define("LayerNorm", function(a)
  local dim, eps = a:dim("axis", -1), a:number("eps", 1e-5)
  local function normalize(x, gamma, beta)
    if dim == -1 or dim == x:dim() then return ops.layer_norm(x, {x:size(-1)}, gamma, beta, eps) end
    x = ops.transpose(x, dim, -1)
    return ops.transpose(ops.layer_norm(x, {x:size(-1)}, gamma, beta, eps), dim, -1)
  end
  if not a:boolean("output_mean_var", false) then return normalize end
  return function(x, gamma, beta)  -- also the means and standard deviations, which have no gradient
    local fixed = ops.detach(x)
    local deviation = ops.sqrt(ops.var(fixed, dim, {correction = 0, keepdim = true}) + eps)
    return normalize(x, gamma, beta), ops.mean(fixed, dim, true), deviation
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

local function embedding(name, is_sparse)
  define(name, function(a)
    local last, options = a:number("input_dim") - 1, {index_base = 0}
    local sparse = (is_sparse or a:boolean("sparse_grad", false)) and core.require("sparse_grad")
    return function(x, weight)
      local lookup = sparse and param.is(weight) and sparse.lookup or ops.embedding
      return lookup(ops.clamp(integers(x), 0, last), weight, options)
    end
  end, 2)
end
embedding("Embedding", false)
embedding("_contrib_SparseEmbedding", true)

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
  local scale = a:count("scale", nil, 1000)
  if a:choice("sample_type", {nearest = true, bilinear = true}, "nearest") == "bilinear" then
    local kernel, pad = 2 * scale - scale % 2, math.ceil((scale - 1) / 2)
    return function(x, weight)
      if weight:size(3) ~= kernel then a:fail("scale", "a weight of " .. kernel .. " rows") end
      return ops.conv_transpose2d(x, weight, {stride = {scale, scale}, padding = {pad, pad}, groups = x:size(2)})
    end
  end
  local adds = a:choice("multi_input_mode", {concat = true, sum = true}, "concat") == "sum"
  return function(first, ...)
    local height, width = first:size(3) * scale, first:size(4) * scale
    local list = {first, ...}
    for i, x in ipairs(list) do list[i] = ops.interpolate(x, {size = {height, width}, mode = "nearest"}) end
    if not adds then return #list > 1 and ops.cat(list, 2) or list[1] end
    local sum = list[1]
    for i = 2, #list do sum = sum + list[i] end
    return sum
  end
end)

local rnn_gates = {rnn_relu = 1, rnn_tanh = 1, lstm = 4, gru = 3}

-- The options of an LSTM that projects h or limits c. Other kinds have none.
local function read_lstm_options(a, mode)
  local size, clip = a:number("projection_size", false), nil
  if a:text("lstm_state_clip_min", false) or a:text("lstm_state_clip_max", false) then
    clip = {
      state_clip_min = a:number("lstm_state_clip_min"), state_clip_max = a:number("lstm_state_clip_max"),
      state_clip_nan = a:boolean("lstm_state_clip_nan", false),
    }
  end
  if size and mode ~= "lstm" then a:fail("projection_size", "None in the mode " .. mode) end
  if clip and mode ~= "lstm" then a:fail("lstm_state_clip_min", "None in the mode " .. mode) end
  return size, clip
end

-- The weights of all layers and directions as one tensor, then all biases.
define("RNN", function(a)
  local mode, gates = a:choice("mode", rnn_gates)
  local hidden, layers = a:number("state_size"), a:count("num_layers", nil, 1000)
  local directions = a:boolean("bidirectional", false) and 2 or 1
  local with_states, by_length = a:boolean("state_outputs", false), a:boolean("use_sequence_length", false)
  local projection, clip = read_lstm_options(a, mode)
  local size, each = projection or hidden, projection and 5 or 4
  local options = {
    num_layers = layers, bidirectional = directions == 2, dropout = a:number("p", 0), has_biases = true, batch_first = false,
    projected = projection and true, clip = clip,
  }
  local kind = gates == 1 and mode:sub(5) or mode
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
      weights[each * (k - 1) + 1] = take(gates * hidden, k <= directions and x:size(3) or size * directions)
      weights[each * (k - 1) + 2] = take(gates * hidden, size)
      if projection then weights[each * k] = take(size, hidden) end
    end
    for k = 1, layers * directions do
      weights[each * (k - 1) + 3], weights[each * (k - 1) + 4] = take(gates * hidden), take(gates * hidden)
    end
    local given = {...}
    local o = {sequence_length = by_length and given[states + 1] or nil}
    for key, value in pairs(options) do o[key] = value end
    local initial
    if not zeros then initial = {given[1], states == 2 and given[2] or nil} end
    local run = core.require("nn.rnn.functional").layers
    if with_states then return run("RNN", kind, x, initial, weights, o) end
    return (run("RNN", kind, x, initial, weights, o))
  end
end, 3)
