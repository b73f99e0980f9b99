-- Convolutions whose windows read at places that another convolution computes. Gluon's contrib.cnn.
local core = ...
local args = core.require("support.args")
local HybridBlock = core.require("nn.block").HybridBlock
local activation = core.require("nn.activation")
local param = core.require("param")
local ops = core.ops
local layers = {}

local names = {"channels", "kernel_size", "strides", "padding", "dilation", "groups", "num_deformable_group", "layout", "use_bias",
               "in_channels", "activation", "weight_initializer", "bias_initializer", "offset_weight_initializer",
               "offset_bias_initializer", "offset_use_bias"}
local spec = {
  channels = args.required, kernel_size = 1, strides = 1, padding = 0, dilation = 1, groups = 1, num_deformable_group = 1,
  layout = "NCHW", use_bias = true, in_channels = 0, activation = args.none, weight_initializer = args.none,
  bias_initializer = "zeros", offset_weight_initializer = "zeros", offset_bias_initializer = "zeros", offset_use_bias = true,
}

local function check_inputs(block, inputs)
  for _, divisor in ipairs{"groups", "num_deformable_group"} do
    local n = block["_" .. divisor]
    if inputs % n ~= 0 then core.arg_error(block._name, "in_channels", ("a multiple of %s = %d"):format(divisor, n), inputs) end
  end
end

local function weight_shapes(block, inputs)
  local h, w = unpack(block._kernel)
  return {block._channels, inputs / block._groups, h, w}, {block._moved, inputs, h, w}
end

local function read_options(block, o)
  local name = block._name
  block._channels = args.count(name, "channels", o.channels, 1)
  block._groups = args.count(name, "groups", o.groups, 1)
  block._num_deformable_group = args.count(name, "num_deformable_group", o.num_deformable_group, 1)
  block._kernel = args.tuple(name, "kernel_size", o.kernel_size, 2, 1)
  block._options = {stride = args.tuple(name, "strides", o.strides, 2, 1), padding = args.tuple(name, "padding", o.padding, 2, 0),
                    dilation = args.tuple(name, "dilation", o.dilation, 2, 1)}
  block._activation = activation.find(name, o.activation)
  block._taps = block._kernel[1] * block._kernel[2] * block._num_deformable_group
  block._moved = block._taps * (block._modulated and 3 or 2)
  args.choice(name, "layout", o.layout, {"NCHW"})
  if block._channels % block._groups ~= 0 then core.arg_error(name, "channels", "a multiple of groups = " .. block._groups, block._channels) end
end

local function bias(size, init, use, name, option)
  return args.boolean(name, option, use) and param.param{shape = {size}, init = init}
end

local function define(name, modulated)
  local Conv = HybridBlock:extend(name)
  layers[name] = Conv
  Conv._modulated, Conv._sizes = modulated, "channels"

  --- nn.DeformableConvolution, ModulatedDeformableConvolution(channels, {kernel_size = 1, strides = 1, padding = 0,
  --- dilation = 1, groups = 1, num_deformable_group = 1, use_bias = true, in_channels = 0, activation=,
  --- weight_initializer=, bias_initializer=, offset_weight_initializer = "zeros", offset_bias_initializer = "zeros",
  --- offset_use_bias = true}): a convolution of images (batch, in_channels, height, width) whose windows read at places
  --- that a convolution of the same image moves; see pg.deform_conv2d. The modulated one also multiplies each element by
  --- 2 sigmoid of a further result of that convolution. With in_channels = 0 the first call infers it. Raises if groups
  --- does not divide both channels and in_channels.
  --- Example: local conv = pg.nn.DeformableConvolution(4, {kernel_size = 3, padding = 1})
  --- conv:initialize()
  --- return conv(pg.ones(1, 2, 8, 8)).shape
  function Conv:init(...)
    local o = args.read(name, names, spec, ...)
    read_options(self, o)
    local inputs = args.count(name, "in_channels", o.in_channels)
    check_inputs(self, inputs)
    local shape, moved = weight_shapes(self, inputs)
    self.offset_weight = param.param{shape = moved, init = o.offset_weight_initializer}
    self.offset_bias = bias(self._moved, o.offset_bias_initializer, o.offset_use_bias, name, "offset_use_bias")
    self.deformable_conv_weight = param.param{shape = shape, init = o.weight_initializer}
    self.deformable_conv_bias = bias(self._channels, o.bias_initializer, o.use_bias, name, "use_bias")
  end

  function Conv:infer_shape(x)
    local shape = args.tensor(name, "x", x).shape
    if #shape ~= 4 then core.arg_error(name, "x", "a tensor of 4 dims (NCHW)", x) end
    check_inputs(self, shape[2])
    local own, moved = weight_shapes(self, shape[2])
    self.deformable_conv_weight:set_shape(own)
    self.offset_weight:set_shape(moved)
  end

  function Conv:forward(x)
    local offset, mask = ops.conv2d(x, self.offset_weight, self.offset_bias or nil, self._options), nil
    if modulated then
      mask = ops.sigmoid(offset:narrow(2, 2 * self._taps + 1, self._taps)) * 2
      offset = offset:narrow(2, 1, 2 * self._taps)
    end
    local o = self._options
    local y = ops.deform_conv2d(x, offset, self.deformable_conv_weight, self.deformable_conv_bias or nil, o.stride, o.padding,
                                o.dilation, mask)
    return self._activation and self._activation(y) or y
  end

  function Conv:describe()
    local inputs = param.shape(self.offset_weight)[2]
    return ("%s -> %d, kernel %s"):format(inputs == 0 and "?" or inputs, self._channels, table.concat(self._kernel, "x"))
  end
end

define("DeformableConvolution", false)
define("ModulatedDeformableConvolution", true)

return layers
