-- Convolutions and transposed convolutions of one to three dims; layouts NCW, NCHW, NCDHW.
local core = ...
local args = core.require("support.args")
local HybridBlock = core.require("nn.block").HybridBlock
local activation = core.require("nn.activation")
local param = core.require("param")
local ops = core.ops
local layers = {}

local layouts = {"NCW", "NCHW", "NCDHW"}
local names = {
  "channels", "kernel_size", "strides", "padding", "dilation", "groups", "layout", "activation", "use_bias",
  "weight_initializer", "bias_initializer", "in_channels", "dtype",
}

local function specification(n, transposed)
  local spec = {
    channels = args.required, kernel_size = args.required, strides = 1, padding = 0, dilation = 1, groups = 1,
    layout = layouts[n], activation = args.none, use_bias = true, weight_initializer = args.none,
    bias_initializer = args.none, in_channels = 0, dtype = "float32",
  }
  if transposed then spec.output_padding = 0 end
  return spec
end

-- The shape of the weight: (out, in / groups, k…), or (in, out / groups, k…) for transposed convolutions.
local function weight_shape(block, inputs)
  local shape
  if block._transposed then shape = {inputs, block._channels / block._groups}
  else shape = {block._channels, inputs / block._groups} end
  for _, k in ipairs(block._kernel) do shape[#shape + 1] = k end
  return shape
end

local function check_groups(block, inputs)
  local name, groups = block._name, block._groups
  if block._channels % groups ~= 0 then core.arg_error(name, "channels", "a multiple of groups = " .. groups, block._channels) end
  if inputs % groups ~= 0 then core.arg_error(name, "in_channels", "a multiple of groups = " .. groups, inputs) end
end

-- Raises if the arguments by position are likely (in_channels, channels, kernel_size): a large kernel with odd strides.
local function refuse_in_channels(name, n, channels, kernel, strides)
  if n < 2 or type(kernel) ~= "number" or type(strides) ~= "number" or kernel <= 11 or kernel == strides then return end
  if strides % 2 ~= 1 or strides > 11 then return end
  core.fail(name, "bad arguments (%s, %g, %g): they are channels, kernel_size and strides; nn.%s(%g, %g) infers in_channels; "
            .. "write {strides = %g} if this is meant", tostring(channels), kernel, strides, name, kernel, strides, strides)
end

local function make_parameters(block, o)
  local name = block._name
  local inputs = args.count(name, "in_channels", o.in_channels)
  check_groups(block, inputs)
  block.weight = param.param{shape = weight_shape(block, inputs), dtype = o.dtype, init = o.weight_initializer}
  block.bias = false
  if args.boolean(name, "use_bias", o.use_bias) then
    block.bias = param.param{shape = {block._channels}, dtype = o.dtype, init = o.bias_initializer}
  end
end

-- A name of the op's padding stays a name; the op resolves it at each call.
local function read_padding(block, n, padding)
  if type(padding) ~= "string" or block._transposed then return args.tuple(block._name, "padding", padding, n, 0) end
  args.choice(block._name, "padding", padding, {"same", "valid"})
  return padding
end

local function read_options(block, n, o)
  local name = block._name
  block._channels = args.count(name, "channels", o.channels, 1)
  block._groups = args.count(name, "groups", o.groups, 1)
  block._kernel = args.tuple(name, "kernel_size", o.kernel_size, n, 1)
  block._activation = activation.find(name, o.activation)
  args.choice(name, "layout", o.layout, {layouts[n]})
  local options = {
    stride = args.tuple(name, "strides", o.strides, n, 1), padding = read_padding(block, n, o.padding),
    dilation = args.tuple(name, "dilation", o.dilation, n, 1), groups = block._groups,
  }
  if block._transposed then options.output_padding = args.tuple(name, "output_padding", o.output_padding, n, 0) end
  block._options = options
  block._text = type(o.activation) == "string" and ", " .. o.activation or ""
end

local function define(n, transposed)
  local name = "Conv" .. n .. "D" .. (transposed and "Transpose" or "")
  local Conv = HybridBlock:extend(name)
  local convolve = ops[(transposed and "conv_transpose" or "conv") .. n .. "d"]
  local spec = specification(n, transposed)
  layers[name] = Conv
  Conv._transposed, Conv._sizes = transposed, "channels"

  --- nn.Conv1DTranspose, Conv2DTranspose, Conv3DTranspose(channels, kernel_size, {strides = 1, padding = 0,
  --- output_padding = 0, dilation = 1, groups = 1, activation=, use_bias = true, weight_initializer=,
  --- bias_initializer=, in_channels = 0}): a transposed convolution, the gradient of a convolution by its input, with
  --- weight (in_channels, channels / groups, kernel sizes…). The result is (batch, channels, sizes…) with sizes (size -
  --- 1) strides - 2 padding + dilation (kernel_size - 1) + output_padding + 1. Raises if groups does not divide both
  --- channels and in_channels.
  --- Example: local conv = pg.nn.Conv2DTranspose(4, 2, {strides = 2})
  --- conv:initialize()
  --- return conv(pg.ones(1, 2, 8, 8)).shape

  --- nn.Conv1D, Conv2D, Conv3D(channels, kernel_size, {strides = 1, padding = 0, dilation = 1, groups = 1,
  --- activation=, use_bias = true, weight_initializer=, bias_initializer=, in_channels = 0}): a convolution of x (batch,
  --- in_channels, sizes…) with weight (channels, in_channels / groups, kernel sizes…), plus bias. The result is (batch,
  --- channels, sizes…) with sizes floor((size + 2 padding - dilation (kernel_size - 1) - 1) / strides) + 1. Numbers per
  --- dim are one number or a list. padding may be "valid" or, with strides of 1, "same": the result has the size of x,
  --- and an odd zero goes to the far end. With in_channels = 0 the first call infers it. Raises if groups does not
  --- divide both channels and in_channels.
  --- Example: local conv = pg.nn.Conv2D(4, 3, {padding = 1})
  --- conv:initialize()
  --- return conv(pg.ones(1, 2, 8, 8)).shape
  function Conv:init(...)
    refuse_in_channels(name, n, ...)
    local o = args.read(name, names, spec, ...)
    read_options(self, n, o)
    make_parameters(self, o)
  end

  function Conv:infer_shape(x)
    local shape = args.tensor(name, "x", x).shape
    if #shape ~= n + 2 then core.arg_error(name, "x", "a tensor of " .. n + 2 .. " dims (" .. layouts[n] .. ")", x) end
    check_groups(self, shape[2])
    self.weight:set_shape(weight_shape(self, shape[2]))
  end

  function Conv:forward(x)
    local bias, f = self.bias, self._activation
    local y
    if bias then y = convolve(x, self.weight, bias, self._options) else y = convolve(x, self.weight, self._options) end
    if f then return f(y) end
    return y
  end

  function Conv:describe()
    local inputs = param.shape(self.weight)[transposed and 1 or 2] * (transposed and 1 or self._groups)
    local text = string.format("%s -> %d, kernel %s", inputs == 0 and "?" or inputs, self._channels, table.concat(self._kernel, "x"))
    for _, key in ipairs{"stride", "padding", "dilation"} do
      local default = key == "padding" and "0" or "1"
      local value = self._options[key]
      if type(value) == "table" then value = table.concat(value, "x") end
      if value:find("[^x" .. default .. "]") then text = text .. ", " .. key .. " " .. value end
    end
    if self._groups > 1 then text = text .. ", groups " .. self._groups end
    return text .. self._text .. (self.bias and "" or ", no bias")
  end
end

for n = 1, 3 do
  define(n, false)
  define(n, true)
end

return layers
