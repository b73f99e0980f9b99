-- What image transforms share: layouts, checks, resizing and random numbers. An image has its dims in the order HWC or CHW,
-- after a dim of images if there are several.
local core = ...
local args = core.require("support.args")
local HybridBlock = core.require("nn.block").HybridBlock
local ops = core.ops
local image = {}

-- The dims of each layout, from the end.
local layouts = {HWC = {height = -3, width = -2, channels = -1}, CHW = {height = -2, width = -1, channels = -3}}

-- Orders of dims that bring the channels before height and width, and back, by the number of dims.
local forward = {[3] = {3, 1, 2}, [4] = {1, 4, 2, 3}}
local backward = {[3] = {2, 3, 1}, [4] = {1, 3, 4, 2}}

-- The options by position that differ from their defaults, as text.
local function text_of(names, spec, o)
  local parts = {}
  for _, name in ipairs(names) do
    local value = o[name]
    if value ~= nil and value ~= spec[name] then
      parts[#parts + 1] = name .. " " .. (type(value) == "table" and table.concat(value, "x") or tostring(value))
    end
  end
  if o.layout ~= spec.layout then parts[#parts + 1] = o.layout end
  return table.concat(parts, ", ")
end

--- image.define(transforms, name, names, spec[, layout]) -> a class of transforms, transforms[name]. Its _setup(o) gets the
--- options of spec by name, its _change(x, dims) an image and the dims of its layout. layout is the default.
function image.define(transforms, name, names, spec, layout)
  local Transform = HybridBlock:extend(name)
  transforms[name] = Transform
  spec.layout = layout or "HWC"

  function Transform:init(...)
    local o = args.read(name, names, spec, ...)
    self._layout, self._dims, self._text = o.layout, image.dims(name, o.layout), text_of(names, spec, o)
    self:_setup(o)
  end

  function Transform:forward(x)
    local y = self:_change(image.check(name, x, self._layout), self._dims)
    return y
  end

  function Transform:describe() return self._text end
  return Transform
end

--- image.dims(op, layout) -> the dims of height, width and channels.
function image.dims(op, layout) return layouts[args.choice(op, "layout", layout, {"HWC", "CHW"})] end

--- image.check(op, x, layout) -> x, an image or several.
function image.check(op, x, layout)
  local rank = args.tensor(op, "x", x):dim()
  if rank ~= 3 and rank ~= 4 then core.arg_error(op, "x", "an image, " .. layout .. " or N" .. layout, x) end
  return x
end

--- image.floating(op, x) -> x, whose elements are floating point.
function image.floating(op, x)
  if not image.is_float(x.dtype) then
    core.arg_error(op, "x", "an image of floating point; transforms.ToTensor() makes one", x)
  end
  return x
end

--- image.colors(op, x, dims) -> the channels red, green and blue of x, or nil of a gray image.
function image.colors(op, x, dims)
  local count = x:size(dims.channels)
  if count == 1 then return nil end
  if count ~= 3 then core.arg_error(op, "x", "an image of 1 or 3 channels", x) end
  return x:narrow(dims.channels, 1, 1), x:narrow(dims.channels, 2, 1), x:narrow(dims.channels, 3, 1)
end

--- image.is_float(dtype) -> whether images of this dtype hold floating point.
function image.is_float(dtype) return dtype:find("float", 1, true) ~= nil end

--- image.float(x) -> x, converted if it is no floating point.
function image.float(x) return image.is_float(x.dtype) and x or x:to("float32") end

--- image.cast(y, dtype) -> an image of floating point in this dtype. Whole numbers are rounded.
function image.cast(y, dtype) return image.is_float(dtype) and y or y:round():to(dtype) end

--- image.planes(x, dims) -> x as images x channels x height x width, of floating point.
function image.planes(x, dims)
  local rank = x:dim()
  x = image.float(x)
  if dims.channels == -1 then x = x:permute(forward[rank]) end
  if rank == 3 then x = x:unsqueeze(1) end
  return x
end

--- image.restore(y, x, dims) -> planes in the layout and dtype of x. Whole numbers are rounded.
function image.restore(y, x, dims)
  local rank, dtype = x:dim(), x.dtype
  if rank == 3 then y = y:squeeze(1) end
  if dims.channels == -1 then y = y:permute(backward[rank]) end
  return image.cast(y, dtype)
end

local modes = {[0] = "nearest", "bilinear", "bicubic", "area"}

--- image.mode(op, interpolation) -> the mode of pg.interpolate for a name, or for a number of OpenCV.
function image.mode(op, interpolation)
  local mode = modes[interpolation] or interpolation
  return args.choice(op, "interpolation", mode, {"nearest", "bilinear", "bicubic", "area"})
end

--- image.pair(op, name, size) -> width, height from a number or a list of both.
function image.pair(op, name, size)
  local list = args.tuple(op, name, size, 2, 1)
  return list[1], list[2]
end

--- image.resize(x, dims, width, height, mode) -> the image in this size.
function image.resize(x, dims, width, height, mode)
  if x:size(dims.width) == width and x:size(dims.height) == height then return x end
  return image.restore(ops.interpolate(image.planes(x, dims), {size = {height, width}, mode = mode}), x, dims)
end

--- image.reduced(x, dims, width, height) -> the largest size of this aspect ratio, and at most this size, in the image.
function image.reduced(x, dims, width, height)
  local most_width, most_height = x:size(dims.width), x:size(dims.height)
  if most_height < height then width, height = width * most_height / height, most_height end
  if most_width < width then width, height = most_width, height * most_width / width end
  return math.max(1, math.floor(width)), math.max(1, math.floor(height))
end

--- image.uniform(x, low, high) -> a 0-dim random number on the device of x.
function image.uniform(x, low, high) return ops.rand({}, {device = x.device}) * (high - low) + low end

--- image.chance(x, p) -> a 0-dim bool that is true with probability p.
function image.chance(x, p) return ops.rand({}, {device = x.device}):lt(p) end

--- image.probability(op, value) -> value, in 0..1.
function image.probability(op, value) return args.number(op, "p", value, 0, 1) end

return image
