-- Transforms that change the colors of pixels.
local core = ...
local args = core.require("support.args")
local base = core.require("nn.block")
local image = core.require("data.transforms.image")
local ops = core.ops
local transforms = {}

-- The brightness of each pixel of an image of this dtype, converted to floating point as x, with one channel.
local function gray(op, x, dims, dtype)
  local red, green, blue = image.colors(op, x, dims)
  if not red then return x end
  local y = red * 0.299 + green * 0.587 + blue * 0.114
  return image.is_float(dtype) and y or y:floor()
end

-- share x + (1 - share) y.
local function blend(x, y, share) return x * share + y * (1 - share) end

-- The values of uint8 images, scaled so that truncation yields what rounding errors have made a little too small.
local widened = 255.999 / 255

-- Turns the colors of x by `share` of the circle of hues, and keeps the largest and smallest channel of each pixel.
local function turn_hue(op, x, dims, share, dtype)
  local r, g, b = image.colors(op, x, dims)
  if not r then return x end
  local most, least = ops.maximum(ops.maximum(r, g), b), ops.minimum(ops.minimum(r, g), b)
  local range = most - least
  local divisor = ops.where(range:eq(0), 1, range)
  local sixth = ops.where(most:eq(r), (g - b) / divisor, ops.where(most:eq(g), (b - r) / divisor + 2, (r - g) / divisor + 4))
  local parts = {}
  for i, offset in ipairs{5, 3, 1} do  -- red, green, blue
    local k = ops.remainder(sixth + share * 6 + offset, 6)
    parts[i] = most - range * ops.minimum(k, 4 - k):clamp(0, 1)
  end
  local y = ops.cat(parts, dims.channels)
  return dtype == "uint8" and y * widened or y
end

-- By name: the name of the option, the center of the random factor, and the change by it.
local jitters = {
  RandomBrightness = {"brightness", 1, function(_, x, _, factor) return x * factor end},
  RandomContrast = {"contrast", 1, function(op, x, dims, factor, dtype)
    return blend(x, gray(op, x, dims, dtype):mean({dims.height, dims.width}, true), factor)
  end},
  RandomSaturation = {"saturation", 1, function(op, x, dims, factor, dtype) return blend(x, gray(op, x, dims, dtype), factor) end},
  RandomHue = {"hue", 0, turn_hue},
}

for name, jitter in pairs(jitters) do
  local option, middle, change = unpack(jitter)

  --- pg.data.vision.transforms.RandomBrightness, pg.data.vision.transforms.RandomContrast,
  --- pg.data.vision.transforms.RandomSaturation, pg.data.vision.transforms.RandomHue(amount, {layout = "HWC"}): RandomBrightness
  --- multiplies images by a random factor, RandomContrast their distance to the mean of their brightness, and RandomSaturation
  --- that to the brightness of each pixel. The factor lies in 1 - amount (at least 0) to 1 + amount. RandomHue turns the hues
  --- by a random share of the circle in -amount to amount. Brightness is 0.299 red + 0.587 green + 0.114 blue, truncated for
  --- whole numbers. uint8 images are cut to 0 to 255 and truncated, those of floating point are not cut. The changes are
  --- torchvision's.
  --- Example: return pg.data.vision.transforms.RandomBrightness(0.5)(pg.ones(1, 1, 3))
  local Jitter = image.define(transforms, name, {option}, {[option] = args.required})

  function Jitter:_setup(o)
    local amount = args.number(name, option, o[option], 0)
    self._low, self._high = middle - amount, middle + amount
    if middle == 1 then self._low = math.max(0, self._low) end
  end

  function Jitter:_change(x, dims)
    local y = change(name, image.float(x), dims, image.uniform(x, self._low, self._high), x.dtype)
    return y:to(x.dtype)
  end
end

--- pg.data.vision.transforms.RandomColorJitter(brightness = 0, contrast = 0, saturation = 0, hue = 0, {layout = "HWC"}) applies
--- RandomBrightness, RandomContrast, RandomSaturation and RandomHue in random order. Lua reads the order, so it runs as plain
--- Lua, while its four children can be hybridized.
--- Example: return pg.data.vision.transforms.RandomColorJitter(0.4, 0.4, 0.4, 0.1)(pg.ones(8, 8, 3)).shape
local RandomColorJitter = base.Block:extend("RandomColorJitter")
transforms.RandomColorJitter = RandomColorJitter

function RandomColorJitter:init(...)
  local o = args.read("RandomColorJitter", {"brightness", "contrast", "saturation", "hue"},
                      {brightness = 0, contrast = 0, saturation = 0, hue = 0, layout = "HWC"}, ...)
  for _, name in ipairs{"RandomBrightness", "RandomContrast", "RandomSaturation", "RandomHue"} do
    local option = jitters[name][1]
    if args.number("RandomColorJitter", option, o[option], 0) > 0 then
      self[#self + 1] = transforms[name](o[option], {layout = o.layout})
    end
  end
end

function RandomColorJitter:forward(x)
  if #self == 0 then return x end
  for _, i in ipairs(ops.randperm(#self):totable()) do x = self[i](x) end
  return x
end

-- The main directions of the colors of ImageNet, in values of 0 to 255, times the square roots of their variances.
local directions = {
  {55.46 * -0.5675, 4.794 * 0.7192, 1.148 * 0.4009},
  {55.46 * -0.5808, 4.794 * -0.0045, 1.148 * -0.8140},
  {55.46 * -0.5836, 4.794 * -0.6948, 1.148 * 0.4203},
}

--- pg.data.vision.transforms.RandomLighting(alpha, {layout = "HWC"}) adds a random color to images: the main directions of the
--- colors of ImageNet, each times its deviation and a normal random number of deviation alpha. The values of uint8 images are
--- from 0 to 255, those of floating point from 0 to 1. Krizhevsky et al., ImageNet classification with deep convolutional
--- neural networks, 2012.
--- Example: return pg.data.vision.transforms.RandomLighting(0.1)(pg.ones(8, 8, 3)).shape
local RandomLighting = image.define(transforms, "RandomLighting", {"alpha"}, {alpha = args.required})
function RandomLighting:_setup(o) self._alpha = args.number("RandomLighting", "alpha", o.alpha, 0) end

function RandomLighting:_change(x, dims)
  if x:size(dims.channels) ~= 3 then core.arg_error("RandomLighting", "x", "an image of 3 channels", x) end
  local floats = image.float(x)
  local size = self._alpha
  if image.is_float(x.dtype) then size = size / 255 end
  local shift = ops.matmul(ops.tensor(directions, {device = x.device}), ops.randn({3}, {device = x.device}) * size)
  if dims.channels == -3 then shift = shift:reshape{3, 1, 1} end
  return image.cast(floats + shift, x.dtype)
end

--- pg.data.vision.transforms.RandomGray(p = 0.5, {layout = "HWC"}) makes images gray with probability p: all channels become
--- 0.299 red + 0.587 green + 0.114 blue, truncated for whole numbers as torchvision does.
--- Example: return pg.data.vision.transforms.RandomGray(1)(pg.tensor{{{1, 0, 0}}})
local RandomGray = image.define(transforms, "RandomGray", {"p"}, {p = 0.5})
function RandomGray:_setup(o) self._p = image.probability("RandomGray", o.p) end

function RandomGray:_change(x, dims)
  local one = gray("RandomGray", image.float(x), dims, x.dtype):to(x.dtype)
  return ops.where(image.chance(x, self._p), one, x)
end

return transforms
