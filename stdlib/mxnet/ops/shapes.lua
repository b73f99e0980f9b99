-- MXNet's ops: ops that change shapes. See define.lua.
local core = ...
local mxnet = core.require("mxnet.ops.define")
local ops = core.ops

local ipairs, unpack = ipairs, unpack
local define, plain, at_least_1d = mxnet.define, mxnet.plain, mxnet.at_least_1d

plain("Flatten flatten", function(x) return x:dim() == 2 and x or ops.flatten(x, 2) end)
plain("reshape_like", ops.reshape_as, 2)
plain("shape_array", function(x) return core.pg.tensor(x.shape, {dtype = "int64"}) end)

-- Returns the new shape by MXNet's codes: 0 copies a dim, -2 copies the rest, -3 joins two dims, -4 splits one.
local function reshape_codes(a, shape, codes)
  local out, from, i = {}, 1, 1
  local function size()
    local n = shape[from]
    if not n then a:fail("shape", "codes for at most " .. #shape .. " dims") end
    from = from + 1
    return n
  end
  while i <= #codes do
    local code = codes[i]
    if code == 0 then out[#out + 1] = size()
    elseif code == -1 then
      out[#out + 1] = -1
      from = from + 1
    elseif code == -2 then while shape[from] do out[#out + 1] = size() end
    elseif code == -3 then out[#out + 1] = size() * size()
    elseif code == -4 then
      local whole, first, second = size(), codes[i + 1], codes[i + 2]
      if not second then a:fail("shape", "two sizes after -4") end
      out[#out + 1] = first == -1 and whole / second or first
      out[#out + 1] = second == -1 and whole / first or second
      i = i + 2
    else
      out[#out + 1] = code
      from = from + 1
    end
    i = i + 1
  end
  return out
end

local function backwards(list)
  local out = {}
  for i = #list, 1, -1 do out[#out + 1] = list[i] end
  return out
end

define("Reshape reshape", function(a)
  local codes = a:list("shape", {})
  if #codes == 0 then codes = a:list("target_shape") end
  local reversed, coded = a:boolean("reverse", false), false
  for _, code in ipairs(codes) do
    if not code then a:fail("shape", "numbers") end
    coded = coded or code < -1
  end
  if not coded and not reversed then return function(x) return ops.reshape(x, codes) end end
  return function(x)
    if not reversed then return ops.reshape(x, reshape_codes(a, x.shape, codes)) end
    return ops.reshape(x, backwards(reshape_codes(a, backwards(x.shape), backwards(codes))))
  end
end)

define("transpose", function(a)
  local dims = a:dims("axes")
  return function(x)
    if dims then return ops.permute(x, dims) end
    local all = {}
    for d = x:dim(), 1, -1 do all[#all + 1] = d end
    return ops.permute(x, all)
  end
end)

define("SwapAxis swapaxes", function(a)
  local first, second = a:dim("dim1", 0), a:dim("dim2", 0)
  return function(x) return ops.transpose(x, first, second) end
end)
define("expand_dims", function(a)
  local dim = a:dim("axis")
  return function(x) return ops.unsqueeze(x, dim) end
end)
define("squeeze", function(a)
  local dims = a:dims("axis")
  return function(x) return at_least_1d(dims and ops.squeeze(x, dims) or ops.squeeze(x)) end
end)
define("Concat concat _rnn_param_concat", function(a)
  local dim = a:dim("dim", 1)
  return function(...) return ops.cat({...}, dim) end
end)
define("stack", function(a)
  local dim = a:dim("axis", 0)
  return function(...) return ops.stack({...}, dim) end
end)
define("SliceChannel split", function(a)
  local count, dim, squeezed = a:count("num_outputs", nil, 1000), a:dim("axis", 1), a:boolean("squeeze_axis", false)
  return function(x)
    local parts = ops.chunk(x, count, dim)
    if squeezed then for i, part in ipairs(parts) do parts[i] = ops.squeeze(part, dim) end end
    return unpack(parts, 1, count)
  end
end)
define("_split_v2", function(a)
  local starts, sections, dim = a:list("indices", {}), a:number("sections", 0), a:dim("axis", 1)
  local squeezed = a:boolean("squeeze_axis", false)
  return function(x)
    local parts
    if sections > 0 then parts = ops.chunk(x, sections, dim)
    else
      local sizes, from = {}, starts[1] == 0 and 1 or 0
      for i = 1 + from, #starts do sizes[#sizes + 1] = starts[i] - (starts[i - 1] or 0) end
      sizes[#sizes + 1] = x:size(dim) - (starts[#starts] or 0)
      parts = ops.split(x, sizes, dim)
    end
    if squeezed then for i, part in ipairs(parts) do parts[i] = ops.squeeze(part, dim) end end
    return unpack(parts)
  end
end)

-- Returns the positions begin, begin + step, … before `stop` along a dim, as an entry of an index and whether the dim has
-- to be flipped first. Bounds are from 0 on, negative from the end, or false.
local function span(x, dim, begin, stop, step)
  step = step or 1
  if step < 0 then  -- position i is -(i + 1) in the flipped dim
    begin, stop = begin and -begin - 1, stop and -stop - 1
    local entry = span(x, dim, begin, stop, -step)
    return entry, true
  end
  local first, last = begin or 0, stop and stop - 1 or -1
  if first >= 0 then first = first + 1 end
  if stop == 0 then return {1, 0} end
  if stop and stop > 0 then last = math.min(stop, x:size(dim)) end
  if begin and begin < 0 and -begin > x:size(dim) then first = 1 end
  if last < 0 and -last > x:size(dim) then return {1, 0} end
  return {first, last, step}
end

-- x with dims cut to bounds[d] = {begin, stop, step}.
local function slice(x, bounds)
  local key, flipped = {}, {}
  for d = 1, x:dim() do
    local b = bounds[d]
    local entry, flip = {}, false
    if b then entry, flip = span(x, d, b[1], b[2], b[3]) end
    key[d] = entry
    if flip then flipped[#flipped + 1] = d end
  end
  if flipped[1] then x = ops.flip(x, flipped) end
  return x[key]
end

define("slice crop", function(a)
  local begin, stop, step = a:list("begin"), a:list("end"), a:list("step", {})
  local bounds = {}
  for d = 1, #begin do bounds[d] = {begin[d], stop[d], step[d]} end
  return function(x) return slice(x, bounds) end
end)
define("slice_axis", function(a)
  local dim, begin, stop = a:dim("axis"), a:number("begin"), a:number("end", false)
  return function(x) return slice(x, {[dim < 0 and x:dim() + 1 + dim or dim] = {begin, stop}}) end
end)
define("slice_like", function(a)
  local dims = a:dims("axes")
  return function(x, like)
    local bounds = {}
    for d = 1, dims and #dims or like:dim() do
      local dim = dims and dims[d] or d
      if dim < 0 then dim = x:dim() + 1 + dim end
      bounds[dim] = {0, like:size(dim)}
    end
    return slice(x, bounds)
  end
end, 2)

define("Pad pad", function(a)
  local widths, value = a:list("pad_width"), a:number("constant_value", 0)
  local _, mode = a:choice("mode", {constant = "constant", edge = "replicate", reflect = "reflect"})
  local pad = {}
  for i = #widths - 1, 1, -2 do
    pad[#pad + 1], pad[#pad + 2] = widths[i], widths[i + 1]
  end
  while mode ~= "constant" and #pad > 2 and pad[#pad] == 0 and pad[#pad - 1] == 0 do pad[#pad], pad[#pad - 1] = nil, nil end
  return function(x) return ops.pad(x, pad, mode, value) end
end)

define("broadcast_to", function(a)
  local shape = a:list("shape")
  for d, size in ipairs(shape) do if size == 0 then shape[d] = -1 end end
  return function(x) return ops.expand(x, shape) end
end)
plain("broadcast_like", function(x, like) return ops.expand_as(x, like) end, 2)
define("broadcast_axis broadcast_axes", function(a)
  local dims, sizes = a:dims("axis") or {}, a:list("size", {})
  return function(x)
    local shape = {}
    for d = 1, x:dim() do shape[d] = -1 end
    for i, dim in ipairs(dims) do shape[dim < 0 and x:dim() + 1 + dim or dim] = sizes[i] end
    return ops.expand(x, shape)
  end
end)
define("tile", function(a)
  local counts = a:list("reps")
  return function(x) return ops.tile(x, counts) end
end)
define("repeat", function(a)
  local count, axis = a:number("repeats"), a:dims("axis")
  return function(x) return ops.repeat_interleave(x, count, axis and {dim = axis[1]} or nil) end
end)
define("reverse flip", function(a)
  local dims = a:dims("axis")
  return function(x) return ops.flip(x, dims) end
end)

local function shape_of(a)
  local shape = a:list("shape", {})
  for d, size in ipairs(shape) do if size == 0 then shape[d] = 1 end end  -- unknown sizes; the result broadcasts
  return shape, a:dtype("dtype", "float32")
end
define("_zeros", function(a)
  local shape, dtype = shape_of(a)
  return function(device) return ops.zeros(shape, {dtype = dtype, device = device}) end
end, 0)
define("_ones", function(a)
  local shape, dtype = shape_of(a)
  return function(device) return ops.ones(shape, {dtype = dtype, device = device}) end
end, 0)
define("_full", function(a)
  local shape, dtype = shape_of(a)
  local value = a:number("value")
  return function(device) return ops.full(shape, value, {dtype = dtype, device = device}) end
end, 0)
define("_arange", function(a)
  local start, stop, step = a:number("start", 0), a:number("stop", false), a:number("step", 1)
  local repeats, dtype = a:number("repeat", 1), a:dtype("dtype", "float32")
  if not stop then start, stop = 0, start end
  local count = math.max(0, math.ceil((stop - start) / step))
  return function(device)
    local x = ops.range(0, count - 1, {dtype = "float64", device = device}) * step + start
    if repeats > 1 then x = ops.repeat_interleave(x, repeats) end
    return ops.to(x, dtype)
  end
end, 0)
