-- Layers that move channels into space.
local core = ...
local args = core.require("support.args")
local HybridBlock = core.require("nn.block").HybridBlock
local ops = core.ops
local layers = {}

local layouts = {"NCW", "NCHW", "NCDHW"}

-- Returns the order of dims that puts each factor beside its size: (batch, channels, factors…, sizes…) becomes (batch,
-- channels, size 1, factor 1, size 2, factor 2, …).
local function interleaved(n)
  local order = {1, 2}
  for i = 1, n do
    order[#order + 1] = 2 + n + i
    order[#order + 1] = 2 + i
  end
  return order
end

local function define(n)
  local name = "PixelShuffle" .. n .. "D"
  local Shuffle = HybridBlock:extend(name)
  local order = interleaved(n)
  layers[name] = Shuffle

  --- nn.PixelShuffle1D, PixelShuffle2D, PixelShuffle3D(factor): x (batch, channels * product of the factors, sizes…)
  --- rearranged to (batch, channels, sizes times factors…). factor is one number or a list of one per dim. Raises if the
  --- product does not divide the channels. Shi et al., Real-Time Single Image and Video Super-Resolution, 2016.
  --- Example: return pg.nn.PixelShuffle1D(2)(pg.tensor{{{1, 3}, {2, 4}}}), pg.nn.PixelShuffle2D({2, 3})(pg.ones(1, 12, 3, 5)).shape
  function Shuffle:init(factor, ...)
    if args.plain(factor) and factor[1] ~= nil then factor = {factor = factor} end  -- a list, not options
    local o = args.read(name, {"factor"}, {factor = args.required}, factor, ...)
    self._factors = args.tuple(name, "factor", o.factor, n, 1)
    self._product = 1
    for _, f in ipairs(self._factors) do self._product = self._product * f end
  end

  function Shuffle:forward(x)
    if args.tensor(name, "x", x):dim() ~= n + 2 then
      core.arg_error(name, "x", "a tensor of " .. n + 2 .. " dims (" .. layouts[n] .. ")", x)
    end
    if x:size(2) % self._product ~= 0 then core.arg_error(name, "x", "channels in a multiple of " .. self._product, x) end
    local y = ops.permute(ops.unflatten(x, 2, {-1, unpack(self._factors)}), order)
    for dim = 3, n + 2 do y = ops.flatten(y, dim, dim + 1) end
    return y
  end

  function Shuffle:describe() return table.concat(self._factors, "x") end
end

for n = 1, 3 do define(n) end

return layers
