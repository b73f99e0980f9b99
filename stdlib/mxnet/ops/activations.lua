-- MXNet's ops: activations, and the outputs of training. See define.lua.
local core = ...
local autograd = core.require("autograd")
local mxnet = core.require("mxnet.ops.define")
local ops = core.ops

local unpack = unpack
local define, to_dtype_of, integers = mxnet.define, mxnet.to_dtype_of, mxnet.integers

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

-- What takes no part in a softmax. It is finite, so that a sample of length 0 has gradients.
local lowest = {[ops.softmax] = -1e4, [ops.log_softmax] = -1e4, [ops.softmin] = 1e4}

local function softmax(names, f)
  define(names, function(a)
    local dim, temperature = a:dim("axis", -1), a:number("temperature", 1)
    local by_length, dtype = a:boolean("use_length", false), a:dtype("dtype", false)
    return function(x, lengths)
      local within
      if temperature ~= 1 then x = x / temperature end
      if by_length then  -- zeros behind the length
        local at = ops.cumsum(ops.ones_like(x, {dtype = "int64"}), dim)
        within = ops.le(at, ops.unsqueeze(integers(lengths), dim))
        x = ops.masked_fill(x, ops.logical_not(within), lowest[f])
      end
      local y = f(x, dim)
      if within then y = ops.where(within, y, 0) end
      return dtype and ops.to(y, dtype) or y
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
