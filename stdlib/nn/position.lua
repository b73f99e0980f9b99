-- Positions of the items of a sequence, as terms (SinusoidalPositions) or as rotations (RotaryEmbedding).
local core = ...
local args = core.require("support.args")
local HybridBlock = core.require("nn.block").HybridBlock
local ops = core.ops
local layers = {}

--- position.count(x) -> 1, 2, … along dim -2 of x, as int64. No size is read, so one graph serves all lengths, and
--- any dim may have size 0.
function layers.count(x)
  local others = {}
  for d = 1, x:dim() do if d ~= x:dim() - 1 then others[#others + 1] = d end end
  local zeros = ops.sum(ops.narrow(x:detach(), -1, 1, 0), {dim = others, dtype = "int64"})
  return ops.cumsum(zeros + 1, 1)
end

-- Returns the angles (positions, size / 2) of x (…, positions, size): those of position p, which counts from offset, are
-- p * base^(-2 i / size) for i = 0, 1, … They are float32 at least, since half precision cannot hold positions.
local function angles(block, x, offset)
  local name = block._name
  if args.tensor(name, "x", x):dim() < 2 then core.arg_error(name, "x", "a tensor (…, positions, size)", x) end
  local size = x:size(-1)
  if size % 2 ~= 0 then core.arg_error(name, "x", "an even size of the last dim", x) end
  local dtype = x.dtype == "float64" and "float64" or "float32"
  local powers = ops.range(0, size - 2, {step = 2, dtype = dtype, device = x.device}) * (-math.log(block._base) / size)
  local positions = (layers.count(x) + (offset or 0) - 1):to(dtype)
  return ops.unsqueeze(positions, 2) * ops.exp(powers)
end

local function define(name)
  local Layer = HybridBlock:extend(name)
  layers[name] = Layer

  function Layer:init(...)
    self._base = args.number(name, "base", args.read(name, {"base"}, {base = 10000}, ...).base, 1)
  end

  function Layer:describe() return "base " .. self._base end
  return Layer
end

--- nn.SinusoidalPositions({base = 10000}), called as layer(x[, offset = 0]): x (…, positions, size) plus the sines and
--- cosines of each position, which counts from offset: element 2 i of position p is sin(p / base^(2 i / size)), element
--- 2 i + 1 the cosine, both from 0. offset is a number or a tensor of one element. Raises for an odd size. Vaswani et al.,
--- Attention Is All You Need, 2017.
--- Example: return pg.nn.SinusoidalPositions()(pg.zeros(1, 3, 4))
local SinusoidalPositions = define("SinusoidalPositions")

function SinusoidalPositions:forward(x, offset)
  local a = angles(self, x, offset)
  return x + ops.flatten(ops.stack({ops.sin(a), ops.cos(a)}, 3), 2):to(x.dtype)
end

--- nn.RotaryEmbedding({base = 10000}), called as layer(x[, offset = 0]): rotates each pair of elements i and i + size / 2
--- of x (…, positions, size) by the angle p / base^(2 i / size) for the position p, which counts from offset. Products of
--- rotated queries and keys depend on the distance of their positions only. Raises for an odd size. Su et al., RoFormer,
--- 2021.
--- Example: return pg.nn.RotaryEmbedding()(pg.ones(2, 2))
local RotaryEmbedding = define("RotaryEmbedding")

function RotaryEmbedding:forward(x, offset)
  local a = angles(self, x, offset)
  local sin, cos = ops.sin(a):to(x.dtype), ops.cos(a):to(x.dtype)
  local half = ops.chunk(x, 2, -1)
  return ops.cat({half[1] * cos - half[2] * sin, half[2] * cos + half[1] * sin}, -1)
end

return layers
