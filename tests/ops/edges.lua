-- Numbers, elements and shapes at the limits.
local pg = require "perigee"

local edges = {
  numbers = {2 ^ 31, 2 ^ 53, 2 ^ 56, 2 ^ 62, -2 ^ 63, 1e300, 0 / 0, -1, 0},
  shapes = {{2 ^ 53, 0}, {0, 2 ^ 53}, {0, 2 ^ 31}, {2 ^ 31, 0, 2 ^ 20}, {1, 0, 2 ^ 53}, {2 ^ 53, 1, 0}, {0, 1, 1,
    2 ^ 53},
    {2 ^ 53, 2, 0, 3}},
}

-- Returns x with 0 and a huge size in place of two of its dims; k chooses them.
function edges.stretched(x, k)
  local shape = {unpack(x.shape)}
  if #shape < 2 then return pg.zeros({0}, {dtype = x.dtype}) end
  local huge = k % #shape + 1
  local none = (huge + math.floor(k / #shape) % (#shape - 1)) % #shape + 1
  shape[huge], shape[none] = 2 ^ 45, 0
  return pg.zeros(shape, {dtype = x.dtype})
end

local dtypes = {"float32", "float64", "float16", "bfloat16", "uint8", "int8", "int32", "int64", "bool"}
local range = {uint8 = {0, 255}, int8 = {-128, 127}, int32 = {-2 ^ 31, 2 ^ 31 - 1}, int64 = {-2 ^ 63, 2 ^ 63 - 1024},
  bool = {0, 1}}

-- Calls f(make) for each dtype and each of its extreme numbers; make(x) has the shape of x and only that number.
function edges.each_extreme(f)
  for _, dtype in ipairs(dtypes) do
    for _, number in ipairs(range[dtype] or {0 / 0, 1 / 0, -1 / 0}) do
      f(function(x) return pg.full(x.shape, number, {dtype = dtype}) end)
    end
  end
end

-- Returns a tensor with a huge dim, the size of x along `dim`, and a dim of 0: a loop over the dims before dim 2 never
-- ends.
function edges.between(x, dim)
  local size = x:dim() > 0 and x:size(math.max(-x:dim(), math.min(dim, x:dim()))) or 1
  return pg.zeros({2 ^ 45, size, 0}, {dtype = x.dtype})
end

return edges
