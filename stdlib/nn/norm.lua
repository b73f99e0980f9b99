-- Normalization layers. Their parameters have Gluon's names: gamma, beta, running_mean and running_var.
local core = ...
local args = core.require("support.args")
local HybridBlock = core.require("nn.block").HybridBlock
local param = core.require("param")
local ops = core.ops
local layers = {}

local function channel_axis(name, axis, rank)
  local at = axis < 0 and rank + 1 + axis or axis
  if at < 1 or at > rank then core.arg_error(name, "axis", "a dim of a tensor of " .. rank .. " dims", axis) end
  return at
end

local function pass(y) return y end  -- in place of a tail call: messages read x from the frame of forward

local function check_axis(name, axis)
  if type(axis) ~= "number" or axis ~= math.floor(axis) or axis == 0 then core.arg_error(name, "axis", "a dim", axis) end
  return axis
end

-- Raises if the first argument by position is likely a number of channels instead of a dim.
local function refuse_channels(name, first)
  if type(first) ~= "number" or first < 3 then return end
  core.fail(name, "bad argument 'axis' (expected a dim, got number %g; nn.%s() infers the number of channels; nn.%s{axis = %g} is a dim)",
            first, name, name, first)
end

-- Sets gamma and beta. They exist even if scale or center is false, with the constant values 1 and 0, so that files
-- always hold both.
local function affine(block, o, size)
  local name = block._name
  args.boolean(name, "scale", o.scale)
  args.boolean(name, "center", o.center)
  args.number(name, "epsilon", o.epsilon, 0)
  block.gamma = param.param{
    shape = {size}, init = o.gamma_initializer, differentiable = o.scale, grad_req = o.scale and "write" or "null",
  }
  block.beta = param.param{
    shape = {size}, init = o.beta_initializer, differentiable = o.center, grad_req = o.center and "write" or "null",
  }
  core.extra(block.gamma).keep_float32 = true
  core.extra(block.beta).keep_float32 = true
end

local function statistic(size, init)
  local p = param.param{shape = {size}, init = init, differentiable = false, grad_req = "null"}
  core.extra(p).keep_float32 = true
  return p
end

local function infer_channels(block, x)
  local shape = args.tensor(block._name, "x", x).shape
  local size = shape[channel_axis(block._name, block._axis, #shape)]
  for _, field in ipairs{"gamma", "beta", "running_mean", "running_var"} do
    if block[field] then block[field]:set_shape{size} end
  end
end

local function describe(block)
  local size = param.shape(block.gamma)[1]
  return (size == 0 and "?" or tostring(size)) .. (block._text or "")
end

--- nn.BatchNorm({axis = 2, momentum = 0.9, epsilon = 1e-5, center = true, scale = true, use_global_stats = false,
--- in_channels = 0, beta_initializer=, gamma_initializer=, running_mean_initializer=, running_variance_initializer=})
--- normalizes each channel. In training mode it uses the statistics of the batch and updates running_mean and
--- running_var, where momentum is the share of the old value and the variance is the biased one. In predict mode it
--- uses the running statistics.
--- Example: local layer = pg.nn.BatchNorm()
--- layer:initialize()
--- return layer(pg.ones(2, 3)).shape
local BatchNorm = HybridBlock:extend("BatchNorm")
layers.BatchNorm = BatchNorm

local batch_names = {"axis", "momentum", "epsilon", "center", "scale", "use_global_stats"}
local batch_spec = {
  axis = 2, momentum = 0.9, epsilon = 1e-5, center = true, scale = true, use_global_stats = false, in_channels = 0,
  beta_initializer = args.none, gamma_initializer = args.none, running_mean_initializer = args.none,
  running_variance_initializer = args.none,
}

function BatchNorm:init(...)
  local name = self._name
  refuse_channels(name, (select(1, ...)))
  local o = args.read(name, batch_names, batch_spec, ...)
  self._axis = check_axis(name, o.axis)
  local size = args.count(name, "in_channels", o.in_channels)
  affine(self, o, size)
  self.running_mean = statistic(size, o.running_mean_initializer)
  self.running_var = statistic(size, o.running_variance_initializer)
  self._global = args.boolean(name, "use_global_stats", o.use_global_stats)
  self._options = {momentum = args.number(name, "momentum", o.momentum, 0, 1), eps = o.epsilon}
  self._fixed = {momentum = o.momentum, eps = o.epsilon, training = false}
end

BatchNorm.infer_shape, BatchNorm._sizes = infer_channels, "channels"
BatchNorm.describe = describe

local function normalize_batch(block, x)
  local fixed = block._global
  local running_mean, running_var = block.running_mean, block.running_var
  local y, mean, var = ops.batch_norm(x, running_mean, running_var, block.gamma, block.beta, fixed and block._fixed or block._options)
  if not fixed and (core.tracing() or core.is_training() or core.symbols.any(mean)) then   -- in a graph each run decides whether it trains; if not, mean and var are the old ones
    core.bind(running_mean, mean)
    core.bind(running_var, var)
  end
  return y
end

function BatchNorm:forward(x)
  args.tensor("BatchNorm", "x", x)
  if self._axis == 2 then return pass(normalize_batch(self, x)) end
  local axis = channel_axis("BatchNorm", self._axis, x:dim())
  if axis == 2 then return pass(normalize_batch(self, x)) end
  return normalize_batch(self, x:transpose(axis, 2)):transpose(axis, 2)
end

--- nn.LayerNorm({axis = -1, epsilon = 1e-5, center = true, scale = true, in_channels = 0, beta_initializer=,
--- gamma_initializer=}) normalizes over one dim.
--- Example: local layer = pg.nn.LayerNorm()
--- layer:initialize()
--- return layer(pg.tensor{{1, 2, 3}})
local LayerNorm = HybridBlock:extend("LayerNorm")
layers.LayerNorm = LayerNorm

local layer_spec = {
  axis = -1, epsilon = 1e-5, center = true, scale = true, in_channels = 0, beta_initializer = args.none,
  gamma_initializer = args.none,
}

function LayerNorm:init(...)
  refuse_channels("LayerNorm", (select(1, ...)))
  local o = args.read("LayerNorm", {"axis", "epsilon", "center", "scale"}, layer_spec, ...)
  self._axis = check_axis("LayerNorm", o.axis)
  affine(self, o, args.count("LayerNorm", "in_channels", o.in_channels))
  self._epsilon = o.epsilon
end

LayerNorm.infer_shape = infer_channels
LayerNorm.describe = describe

function LayerNorm:forward(x)
  args.tensor("LayerNorm", "x", x)
  local rank = x:dim()
  local axis = channel_axis("LayerNorm", self._axis, rank)
  if axis ~= rank then x = x:transpose(axis, rank) end
  local y = ops.layer_norm(x, {x:size(rank)}, self.gamma, self.beta, {eps = self._epsilon})
  return axis ~= rank and y:transpose(axis, rank) or y
end

--- nn.GroupNorm(num_groups = 1, {epsilon = 1e-5, center = true, scale = true, beta_initializer=, gamma_initializer=})
--- normalizes groups of channels of each sample. gamma and beta hold one value per group, as in Gluon 1.x.
local GroupNorm = HybridBlock:extend("GroupNorm")
layers.GroupNorm = GroupNorm

function GroupNorm:init(...)
  local o = args.read("GroupNorm", {"num_groups", "epsilon", "center", "scale"}, {
    num_groups = 1, epsilon = 1e-5, center = true, scale = true, beta_initializer = args.none,
    gamma_initializer = args.none,
  }, ...)
  self._groups = args.count("GroupNorm", "num_groups", o.num_groups, 1)
  affine(self, o, self._groups)
  self._options = {eps = o.epsilon}
end

GroupNorm.describe = describe

function GroupNorm:forward(x)
  args.tensor("GroupNorm", "x", x)
  local channels, groups = x:size(2), self._groups
  if channels % groups ~= 0 then
    core.arg_error("GroupNorm", "x", "channels in a multiple of num_groups = " .. groups, x)
  end
  local each = channels / groups
  local gamma = ops.repeat_interleave(self.gamma, each, 1)
  local beta = ops.repeat_interleave(self.beta, each, 1)
  return ops.group_norm(x, groups, gamma, beta, self._options)
end

--- nn.InstanceNorm({axis = 2, epsilon = 1e-5, center = true, scale = false, in_channels = 0, beta_initializer=,
--- gamma_initializer=}) normalizes each channel of each sample.
local InstanceNorm = HybridBlock:extend("InstanceNorm")
layers.InstanceNorm = InstanceNorm

local instance_spec = {
  axis = 2, epsilon = 1e-5, center = true, scale = false, in_channels = 0, beta_initializer = args.none,
  gamma_initializer = args.none,
}

function InstanceNorm:init(...)
  refuse_channels("InstanceNorm", (select(1, ...)))
  local o = args.read("InstanceNorm", {"axis", "epsilon", "center", "scale"}, instance_spec, ...)
  self._axis = check_axis("InstanceNorm", o.axis)
  affine(self, o, args.count("InstanceNorm", "in_channels", o.in_channels))
  self._options = {eps = o.epsilon}
end

InstanceNorm.infer_shape, InstanceNorm._sizes = infer_channels, "channels"
InstanceNorm.describe = describe

local function normalize_instance(block, x)
  return ops.group_norm(x, x:size(2), block.gamma, block.beta, block._options)
end

function InstanceNorm:forward(x)
  args.tensor("InstanceNorm", "x", x)
  local axis = channel_axis("InstanceNorm", self._axis, x:dim())
  if axis == 2 then return pass(normalize_instance(self, x)) end
  return normalize_instance(self, x:transpose(axis, 2)):transpose(axis, 2)
end

return layers
