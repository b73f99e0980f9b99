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

-- A parameter of one value per channel. One that is not trained exists too, so that files always hold it.
local function per_channel(size, init, trained)
  local p = param.param{shape = {size}, init = init, differentiable = trained, grad_req = trained and "write" or "null"}
  core.extra(p).keep_float32 = true
  return p
end

-- Sets gamma and beta, with the constant values 1 and 0 if scale or center is false.
local function affine(block, o, size)
  local name = block._name
  args.boolean(name, "scale", o.scale)
  args.boolean(name, "center", o.center)
  args.number(name, "epsilon", o.epsilon, 0)
  block.gamma = per_channel(size, o.gamma_initializer, o.scale)
  block.beta = per_channel(size, o.beta_initializer, o.center)
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
  self.running_mean = per_channel(size, o.running_mean_initializer, false)
  self.running_var = per_channel(size, o.running_variance_initializer, false)
  self._global = args.boolean(name, "use_global_stats", o.use_global_stats)
  self._options = {momentum = args.number(name, "momentum", o.momentum, 0, 1), eps = o.epsilon}
  self._fixed = {momentum = o.momentum, eps = o.epsilon, training = false}
end

BatchNorm.infer_shape, BatchNorm._sizes = infer_channels, "channels"
BatchNorm.describe = describe

--- norm.normalize_batch(x, running_mean, running_var, gamma, beta, options) -> batch_norm of x. In training mode it
--- updates the running statistics, unless options.training is false.
function layers.normalize_batch(x, running_mean, running_var, gamma, beta, options)
  local y, mean, var = ops.batch_norm(x, running_mean, running_var, gamma, beta, options)
  if options.training ~= false and (core.tracing() or core.is_training() or core.symbols.any(mean)) then   -- in a graph each run decides whether it trains; if not, mean and var are the old ones
    core.bind(running_mean, mean)
    core.bind(running_var, var)
  end
  return y
end

local function normalize_batch(block, x)
  return layers.normalize_batch(x, block.running_mean, block.running_var, block.gamma, block.beta, block._global and block._fixed or block._options)
end

function BatchNorm:forward(x)
  args.tensor(self._name, "x", x)
  if self._axis == 2 then return pass(normalize_batch(self, x)) end
  local axis = channel_axis(self._name, self._axis, x:dim())
  if axis == 2 then return pass(normalize_batch(self, x)) end
  return normalize_batch(self, x:transpose(axis, 2)):transpose(axis, 2)
end

--- nn.BatchNormReLU({the options of BatchNorm}): relu of BatchNorm.
--- Example: local layer = pg.nn.BatchNormReLU()
--- layer:initialize()
--- return layer(pg.tensor{{-1, 2}})
local BatchNormReLU = BatchNorm:extend("BatchNormReLU")
layers.BatchNormReLU = BatchNormReLU

function BatchNormReLU:forward(x)
  local y = BatchNorm.forward(self, x)
  return ops.relu(y)
end

--- nn.SyncBatchNorm(in_channels = 0, num_devices = 1, {the options of BatchNorm except axis}): BatchNorm over dim 2 with
--- the statistics of all devices. A net runs on one device, so num_devices must be 1. Zhang et al., Context Encoding for
--- Semantic Segmentation, 2018.
--- Example: local layer = pg.nn.SyncBatchNorm()
--- layer:initialize()
--- return layer(pg.ones(2, 3)).shape
local SyncBatchNorm = BatchNorm:extend("SyncBatchNorm")
layers.SyncBatchNorm = SyncBatchNorm

local sync_names = {"in_channels", "num_devices", "momentum", "epsilon", "center", "scale", "use_global_stats"}
local sync_spec = {num_devices = 1}
for key, value in pairs(batch_spec) do if key ~= "axis" then sync_spec[key] = value end end

function SyncBatchNorm:init(...)
  local o = args.read("SyncBatchNorm", sync_names, sync_spec, ...)
  if o.num_devices ~= 1 then core.arg_error("SyncBatchNorm", "num_devices", "1", o.num_devices) end
  o.num_devices = nil
  BatchNorm.init(self, o)
end

-- Returns normalize(x) with the dim of the block moved to `target`, the last one by default.
local function along(block, x, normalize, target)
  local rank = args.tensor(block._name, "x", x):dim()
  local axis, to = channel_axis(block._name, block._axis, rank), target or rank
  if axis == to then return pass(normalize(block, x)) end
  return normalize(block, x:transpose(axis, to)):transpose(axis, to)
end

-- The options of LayerNorm and InstanceNorm.
local function init_norm(block, spec, ...)
  local name = block._name
  refuse_channels(name, (select(1, ...)))
  local o = args.read(name, {"axis", "epsilon", "center", "scale"}, spec, ...)
  block._axis = check_axis(name, o.axis)
  affine(block, o, args.count(name, "in_channels", o.in_channels))
  block._options = {eps = o.epsilon}
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

function LayerNorm:init(...) init_norm(self, layer_spec, ...) end

LayerNorm.infer_shape = infer_channels
LayerNorm.describe = describe

local function normalize_layer(block, x)
  return ops.layer_norm(x, {x:size(-1)}, block.gamma, block.beta, block._options)
end

function LayerNorm:forward(x) return pass(along(self, x, normalize_layer)) end

--- nn.RMSNorm({axis = -1, epsilon = 1e-6, scale = true, in_channels = 0, gamma_initializer=}): x / sqrt(mean of x² +
--- epsilon) over one dim, times gamma. Zhang, Sennrich, Root Mean Square Layer Normalization, 2019.
--- Example: local layer = pg.nn.RMSNorm()
--- layer:initialize()
--- return layer(pg.tensor{{3, 4}})
local RMSNorm = HybridBlock:extend("RMSNorm")
layers.RMSNorm = RMSNorm

local rms_spec = {axis = -1, epsilon = 1e-6, scale = true, in_channels = 0, gamma_initializer = args.none}

function RMSNorm:init(...)
  refuse_channels("RMSNorm", (select(1, ...)))
  local o = args.read("RMSNorm", {"axis", "epsilon", "scale"}, rms_spec, ...)
  self._axis = check_axis("RMSNorm", o.axis)
  self._options = {eps = args.number("RMSNorm", "epsilon", o.epsilon, 0)}
  local size = args.count("RMSNorm", "in_channels", o.in_channels)
  self.gamma = per_channel(size, o.gamma_initializer, args.boolean("RMSNorm", "scale", o.scale))
end

RMSNorm.infer_shape = infer_channels
RMSNorm.describe = describe

local function normalize_rms(block, x) return ops.rms_norm(x, {x:size(-1)}, block.gamma, block._options) end

function RMSNorm:forward(x) return pass(along(self, x, normalize_rms)) end

--- nn.GroupNorm(num_groups = 1, {epsilon = 1e-5, center = true, scale = true, beta_initializer=, gamma_initializer=})
--- normalizes groups of channels of each sample. gamma and beta hold one value per group, as in Gluon 1.x.
--- Example: return pg.nn.GroupNorm(2):initialize()(pg.tensor{{{1, 3}, {2, 4}}})
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
--- Example: return pg.nn.InstanceNorm():initialize()(pg.tensor{{{1, 3}, {2, 6}}})
local InstanceNorm = HybridBlock:extend("InstanceNorm")
layers.InstanceNorm = InstanceNorm

local instance_spec = {
  axis = 2, epsilon = 1e-5, center = true, scale = false, in_channels = 0, beta_initializer = args.none,
  gamma_initializer = args.none,
}

function InstanceNorm:init(...) init_norm(self, instance_spec, ...) end

InstanceNorm.infer_shape, InstanceNorm._sizes = infer_channels, "channels"
InstanceNorm.describe = describe

local function normalize_instance(block, x)
  return ops.group_norm(x, x:size(2), block.gamma, block.beta, block._options)
end

function InstanceNorm:forward(x) return pass(along(self, x, normalize_instance, 2)) end

return layers
