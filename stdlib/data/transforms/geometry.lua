-- Transforms that move pixels: resizing, crops, flips and rotations.
local core = ...
local args = core.require("support.args")
local base = core.require("nn.block")
local image = core.require("data.transforms.image")
local ops = core.ops
local transforms = {}

--- pg.data.vision.transforms.Resize(size, keep_ratio = false, interpolation = "bilinear", {layout = "HWC"}) resizes images.
--- size is a number or {width, height}. With keep_ratio a number is the size of the shorter side. interpolation is "nearest",
--- "bilinear", "bicubic" or "area", or its number in OpenCV, 0 to 3, and means what it means in pg.interpolate: pixels are
--- squares, and there is no antialiasing, as in OpenCV, and in torchvision with antialias = False. uint8 images are rounded.
--- Example: return pg.data.vision.transforms.Resize({4, 2})(pg.ones(8, 8, 3)).shape
local Resize = image.define(transforms, "Resize", {"size", "keep_ratio", "interpolation"},
                            {size = args.required, keep_ratio = false, interpolation = "bilinear"})

function Resize:_setup(o)
  self._short = args.boolean("Resize", "keep_ratio", o.keep_ratio) and type(o.size) == "number"
  self._width, self._height = image.pair("Resize", "size", o.size)
  self._mode = image.mode("Resize", o.interpolation)
end

function Resize:_change(x, dims)
  local width, height = self._width, self._height
  if self._short then
    local from_width, from_height = x:size(dims.width), x:size(dims.height)
    if from_height > from_width then height = math.floor(height * from_height / from_width)
    else width = math.floor(width * from_width / from_height) end
  end
  return image.resize(x, dims, width, height, self._mode)
end

-- The part of x with this size that has `left` pixels to its left and `top` above it.
local function crop(x, dims, left, top, width, height)
  return x:narrow(dims.height, top + 1, height):narrow(dims.width, left + 1, width)
end

--- pg.data.vision.transforms.CenterCrop(size, interpolation = "bilinear", {layout = "HWC"}) cuts out the center, of a number
--- or {width, height}. A smaller image gives the largest center of that aspect ratio, resized. As in Gluon, an odd pixel is
--- cut off at the right and bottom.
--- Example: return pg.data.vision.transforms.CenterCrop(2)(pg.range(1, 16):reshape{4, 4, 1}):squeeze(3)
local CenterCrop = image.define(transforms, "CenterCrop", {"size", "interpolation"}, {size = args.required, interpolation = "bilinear"})

function CenterCrop:_setup(o)
  self._width, self._height = image.pair("CenterCrop", "size", o.size)
  self._mode = image.mode("CenterCrop", o.interpolation)
end

local function center(x, dims, width, height)
  return crop(x, dims, math.floor((x:size(dims.width) - width) / 2), math.floor((x:size(dims.height) - height) / 2), width, height)
end

function CenterCrop:_change(x, dims)
  local width, height = image.reduced(x, dims, self._width, self._height)
  return image.resize(center(x, dims, width, height), dims, self._width, self._height, self._mode)
end

--- pg.data.vision.transforms.CropResize(x, y, width, height, size = nil, interpolation = "bilinear", {layout = "HWC"}) cuts out
--- width x height pixels that have x pixels to their left and y above them, and resizes them to size if it is given.
--- Example: return pg.data.vision.transforms.CropResize(1, 0, 2, 2)(pg.range(1, 16):reshape{4, 4, 1}):squeeze(3)
local CropResize = image.define(transforms, "CropResize", {"x", "y", "width", "height", "size", "interpolation"}, {
  x = args.required, y = args.required, width = args.required, height = args.required, size = args.none, interpolation = "bilinear",
})

function CropResize:_setup(o)
  self._x, self._y = args.count("CropResize", "x", o.x), args.count("CropResize", "y", o.y)
  self._width, self._height = args.count("CropResize", "width", o.width, 1), args.count("CropResize", "height", o.height, 1)
  self._size = o.size and {image.pair("CropResize", "size", o.size)} or false
  self._mode = image.mode("CropResize", o.interpolation)
end

function CropResize:_change(x, dims)
  if x:size(dims.width) < self._x + self._width or x:size(dims.height) < self._y + self._height then
    core.arg_error("CropResize", "x", ("an image of at least %d x %d pixels"):format(self._x + self._width, self._y + self._height), x)
  end
  local y = crop(x, dims, self._x, self._y, self._width, self._height)
  local size = self._size
  if size then return image.resize(y, dims, size[1], size[2], self._mode) end
  return y
end

--- pg.data.vision.transforms.RandomCrop(size, pad = 0, pad_value = 0, interpolation = "bilinear", {layout = "HWC"}) cuts out
--- size, a number or {width, height}, at a random place. Before that it pads with pad_value: pad is a number, or {top, bottom,
--- left, right}. A smaller image gives a part of that aspect ratio, resized.
--- Example: return pg.data.vision.transforms.RandomCrop(32, 4)(pg.ones(32, 32, 3)).shape
local RandomCrop = image.define(transforms, "RandomCrop", {"size", "pad", "pad_value", "interpolation"},
                                {size = args.required, pad = 0, pad_value = 0, interpolation = "bilinear"})

function RandomCrop:_setup(o)
  self._width, self._height = image.pair("RandomCrop", "size", o.size)
  self._pad = args.tuple("RandomCrop", "pad", o.pad, 4)
  self._value = args.number("RandomCrop", "pad_value", o.pad_value)
  self._mode = image.mode("RandomCrop", o.interpolation)
end

-- `count` positions of a dim from a random one on. The result has a fixed size, so it can be traced.
local function random_part(x, dim, count)
  local start = ops.randint(0, x:size(dim) - count, {}, {device = x.device})
  return ops.index_select(x, dim, ops.range(1, count, {dtype = "int64", device = x.device}) + start)
end

function RandomCrop:_change(x, dims)
  local pad = self._pad
  if pad[1] + pad[2] + pad[3] + pad[4] > 0 then
    local widths = {pad[3], pad[4], pad[1], pad[2]}
    if dims.channels == -1 then widths = {0, 0, pad[3], pad[4], pad[1], pad[2]} end
    x = ops.pad(x, widths, {value = self._value})
  end
  local width, height = image.reduced(x, dims, self._width, self._height)
  local y = random_part(random_part(x, dims.height, height), dims.width, width)
  return image.resize(y, dims, self._width, self._height, self._mode)
end

--- pg.data.vision.transforms.RandomResizedCrop(size, scale = {0.08, 1}, ratio = {3/4, 4/3}, interpolation = "bilinear", {layout =
--- "HWC"}) cuts out a random part and resizes it to size, a number or {width, height}. scale limits the share of the area,
--- ratio the ratio of width to height, whose logarithm is uniform. After ten parts that do not fit it is CenterCrop.
--- The size of the part is a random number that Lua reads, so it runs as plain Lua. Szegedy et al., Going deeper with
--- convolutions, 2014.
--- Example: return pg.data.vision.transforms.RandomResizedCrop(8)(pg.ones(32, 32, 3)).shape
local RandomResizedCrop = base.Block:extend("RandomResizedCrop")
transforms.RandomResizedCrop = RandomResizedCrop

local function limits(name, value)
  if type(value) ~= "table" or #value ~= 2 or not (value[1] > 0 and value[1] <= value[2]) then
    core.arg_error("RandomResizedCrop", name, "a list of two numbers > 0 in ascending order", value)
  end
  return value
end

function RandomResizedCrop:init(...)
  local o = args.read("RandomResizedCrop", {"size", "scale", "ratio", "interpolation"}, {
    size = args.required, scale = {0.08, 1}, ratio = {3 / 4, 4 / 3}, interpolation = "bilinear", layout = "HWC",
  }, ...)
  self._width, self._height = image.pair("RandomResizedCrop", "size", o.size)
  self._scale = limits("scale", type(o.scale) == "number" and {o.scale, 1} or o.scale)
  self._ratio = limits("ratio", o.ratio)
  self._mode = image.mode("RandomResizedCrop", o.interpolation)
  self._layout, self._dims = o.layout, image.dims("RandomResizedCrop", o.layout)
end

function RandomResizedCrop:describe() return "" end

-- Returns the width and height of a random part that fits, and its random place as two shares, or nil.
local function choose_part(scale, ratios, width, height)
  local low, high = math.log(ratios[1]), math.log(ratios[2])
  for _, u in ipairs(ops.rand({10, 4}):totable()) do
    local area, ratio = width * height * (scale[1] + u[1] * (scale[2] - scale[1])), math.exp(low + u[2] * (high - low))
    local w, h = math.floor(math.sqrt(area * ratio) + 0.5), math.floor(math.sqrt(area / ratio) + 0.5)
    if w >= 1 and h >= 1 and w <= width and h <= height then return w, h, u[3], u[4] end
  end
end

function RandomResizedCrop:forward(x)
  image.check("RandomResizedCrop", x, self._layout)
  local dims = self._dims
  local width, height = x:size(dims.width), x:size(dims.height)
  local w, h, left, top = choose_part(self._scale, self._ratio, width, height)
  local part
  if w then part = crop(x, dims, math.floor(left * (width - w + 1)), math.floor(top * (height - h + 1)), w, h)
  else part = center(x, dims, image.reduced(x, dims, self._width, self._height)) end
  return image.resize(part, dims, self._width, self._height, self._mode)
end

for name, side in pairs{RandomFlipLeftRight = "width", RandomFlipTopBottom = "height"} do
  --- pg.data.vision.transforms.RandomFlipLeftRight, pg.data.vision.transforms.RandomFlipTopBottom(p = 0.5, {layout = "HWC"})
  --- mirror images with probability p.
  --- Example: return pg.data.vision.transforms.RandomFlipLeftRight(1)(pg.range(1, 4):reshape{2, 2, 1}):squeeze(3)
  local Flip = image.define(transforms, name, {"p"}, {p = 0.5})
  function Flip:_setup(o) self._p = image.probability(name, o.p) end
  function Flip:_change(x, dims) return ops.where(image.chance(x, self._p), ops.flip(x, dims[side]), x) end
end

-- The scale at which the rotated image fills the frame (zoom_in), or lies in it (zoom_out).
local function zoom(cos, sin, width, height, out)
  local across, down = cos:abs() * width + sin:abs() * height, sin:abs() * width + cos:abs() * height
  if out then return ops.maximum(across / width, down / height) end
  return ops.minimum(width / across, height / down)
end

-- Turns each of the planes by its angle in degrees.
local function rotate(planes, angle, zooming)
  local width, height = planes:size(4), planes:size(3)
  local radians = angle * (math.pi / 180)
  local cos, sin = radians:cos(), radians:sin()
  local zero = ops.zeros_like(cos)
  local theta = ops.stack({cos, -sin * (height / width), zero, sin * (width / height), cos, zero}, 2)
  if zooming then theta = theta * zoom(cos, sin, width, height, zooming == "out"):unsqueeze(2) end
  return ops.grid_sample(planes, ops.affine_grid(theta:reshape{-1, 2, 3}, planes.shape))
end

local function read_zoom(op, o)
  local into, out = args.boolean(op, "zoom_in", o.zoom_in), args.boolean(op, "zoom_out", o.zoom_out)
  if into and out then core.fail(op, "zoom_in and zoom_out exclude each other") end
  return into and "in" or out and "out" or false
end

--- pg.data.vision.transforms.Rotate(rotation_degrees, zoom_in = false, zoom_out = false, {layout = "CHW"}) turns images of
--- floating point counterclockwise, with bilinear interpolation, and keeps their size. Outside of the image is 0, as in
--- torchvision. zoom_in enlarges it until nothing of the outside is seen, zoom_out reduces it until all of it is.
--- Example: return pg.data.vision.transforms.Rotate(90)(pg.tensor{{{1, 2}, {3, 4}}}):squeeze(1):round()
local Rotate = image.define(transforms, "Rotate", {"rotation_degrees", "zoom_in", "zoom_out"},
                            {rotation_degrees = args.required, zoom_in = false, zoom_out = false}, "CHW")

function Rotate:_setup(o)
  self._degrees, self._zoom = args.number("Rotate", "rotation_degrees", o.rotation_degrees), read_zoom("Rotate", o)
end

function Rotate:_change(x, dims)
  local planes = image.planes(image.floating("Rotate", x), dims)
  local angle = ops.full({planes:size(1)}, self._degrees, {device = x.device})
  return image.restore(rotate(planes, angle, self._zoom):to(x.dtype), x, dims)
end

--- pg.data.vision.transforms.RandomRotation(angle_limits, zoom_in = false, zoom_out = false, rotate_with_proba = 1, {layout =
--- "CHW"}) turns images as Rotate, each by its own random angle between the two limits in degrees. With rotate_with_proba < 1
--- all images of a call are turned, or none.
--- Example: return pg.data.vision.transforms.RandomRotation({-10, 10})(pg.ones(3, 8, 8)).shape
local RandomRotation = image.define(transforms, "RandomRotation", {"angle_limits", "zoom_in", "zoom_out", "rotate_with_proba"}, {
  angle_limits = args.required, zoom_in = false, zoom_out = false, rotate_with_proba = 1,
}, "CHW")

function RandomRotation:_setup(o)
  local range = o.angle_limits
  if not args.plain(range) or #range ~= 2 or type(range[1]) ~= "number" or type(range[2]) ~= "number" or range[1] >= range[2] then
    core.arg_error("RandomRotation", "angle_limits", "a list of two angles in ascending order", range)
  end
  self._low, self._high, self._zoom = range[1], range[2], read_zoom("RandomRotation", o)
  self._p = args.number("RandomRotation", "rotate_with_proba", o.rotate_with_proba, 0, 1)
end

function RandomRotation:_change(x, dims)
  local planes = image.planes(image.floating("RandomRotation", x), dims)
  local angle = ops.rand({planes:size(1)}, {device = x.device}) * (self._high - self._low) + self._low
  local turned = image.restore(rotate(planes, angle, self._zoom):to(x.dtype), x, dims)
  if self._p == 1 then return turned end
  return ops.where(image.chance(x, self._p), turned, x)
end

return transforms
