-- Blocks around a layer that normalize its weight before each use.
local core = ...
local args = core.require("support.args")
local HybridBlock = core.require("nn.block").HybridBlock
local param = core.require("param")
local view = core.require("nn.view")
local ops = core.ops
local layers = {}

local function wrap(self, o)
  self.base = view.check(self._name, o.block)
  self._axis = view.axis(self._name, o.block, o.axis)
  self._sizes = o.block._sizes
end

local function describe(self) return view.describe(self.base, "axis " .. self._axis) end

-- The weight as a matrix (size of axis, rest).
local function matrix(self, weight)
  return ops.flatten(self._axis == 1 and weight or ops.moveaxis(weight, self._axis, 1), 2)
end

-- The sizes of a tensor with one number per index of axis that broadcasts to the weight.
local function broadcast_shape(self)
  local shape = {}
  for i = 1, #param.shape(self.base.weight) do shape[i] = i == self._axis and -1 or 1 end
  return shape
end

--- nn.WeightNorm(block, {axis = 1}) runs a layer, such as Dense or Conv2D, with the weight weight_g v / |v|, where v is the
--- weight of the layer and |v| its norm over all dims except axis. weight_g (size of axis) begins as |v|, so that the layer
--- computes the same at first. The layer is the field `base`. Salimans, Kingma, Weight Normalization, 2016.
--- Example: local dense = pg.nn.Dense(3, {in_units = 4})
--- local layer = pg.nn.WeightNorm(dense)
--- layer:initialize()
--- return pg.allclose(layer(pg.ones(1, 4)), dense(pg.ones(1, 4)))
local WeightNorm = HybridBlock:extend("WeightNorm")
layers.WeightNorm = WeightNorm

local function norms(self) return ops.norm(matrix(self, self.base.weight), {dim = 2}) end

function WeightNorm:init(...)
  wrap(self, args.read("WeightNorm", {"block", "axis"}, {block = args.required, axis = 1}, ...))
  self.weight_g = param.param{
    shape = {view.size(self.base, self._axis)}, dtype = param.dtype(self.base.weight), init = function() return norms(self) end,
  }
end

function WeightNorm:infer_shape(...)
  view.infer(self.base, ...)
  self.weight_g:set_shape{view.size(self.base, self._axis)}
end

function WeightNorm:forward(x, ...)
  local factor = ops.reshape(self.weight_g / norms(self), broadcast_shape(self))
  local y = view.call(self.base, {weight = self.base.weight * factor}, x, ...)
  return y
end

WeightNorm.describe = describe

--- nn.SpectralNorm(block, {axis = 1, iterations = 1, epsilon = 1e-12}) runs a layer, such as Dense or Conv2D, with its weight
--- divided by the largest singular value of the weight as a matrix W (size of axis, rest). In training mode each call improves
--- the estimate of the singular vector u = weight_u by power iterations v = W'u / |W'u|, u = Wv / |Wv|, as in PyTorch; the
--- value is u'Wv. In prediction mode v follows from weight_u, which stays as it is, also in an imported graph. The layer is
--- the field `base`. Miyato et al., Spectral Normalization for Generative Adversarial Networks, 2018.
--- Example: local layer = pg.nn.SpectralNorm(pg.nn.Dense(2, {weight_initializer = pg.tensor{{3, 0}, {0, 3}}}))
--- layer:initialize()
--- return layer(pg.ones(1, 2))
local SpectralNorm = HybridBlock:extend("SpectralNorm")
layers.SpectralNorm = SpectralNorm

local spectral_spec = {block = args.required, axis = 1, iterations = 1, epsilon = 1e-12}

function SpectralNorm:init(...)
  local o = args.read("SpectralNorm", {"block", "axis", "iterations", "epsilon"}, spectral_spec, ...)
  wrap(self, o)
  self._iterations = args.count("SpectralNorm", "iterations", o.iterations, 1)
  self._options = {dim = 1, eps = args.number("SpectralNorm", "epsilon", o.epsilon, 0)}
  self.weight_u = param.param{
    shape = {view.size(self.base, self._axis)}, dtype = param.dtype(self.base.weight), differentiable = false, grad_req = "null",
    init = function(shape, options) return ops.normalize(ops.randn(shape, options), self._options) end,
  }
end

function SpectralNorm:infer_shape(...)
  view.infer(self.base, ...)
  self.weight_u:set_shape{view.size(self.base, self._axis)}
end

-- Returns the unit vectors u and v of a matrix w after `count` power iterations; v follows from the u before it.
local function iterate(w, u, count, options)
  local function right() return ops.normalize(ops.matmul(u, w), options) end
  if count == 0 then return u, right() end
  local v
  for _ = 1, count do
    v = right()
    u = ops.normalize(ops.matmul(w, v), options)
  end
  return u, v
end

function SpectralNorm:forward(x, ...)
  local weight, training = self.base.weight, core.is_training()
  local w = matrix(self, weight)
  local u, v = iterate(w:detach(), self.weight_u, training and self._iterations or 0, self._options)
  if training then core.bind(self.weight_u, u) end
  local sigma = ops.sum(u * ops.matmul(w, v))
  local y = view.call(self.base, {weight = weight / sigma}, x, ...)
  return y
end

SpectralNorm.describe = describe

return layers
