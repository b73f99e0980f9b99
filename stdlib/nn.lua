-- pg.nn: blocks and layers. Each module holds one family.
local core = ...
local base = core.require("nn.block")
local nn = {Block = base.Block, HybridBlock = base.HybridBlock, block = base.block}

for _, module in ipairs{
  "nn.sequential", "nn.concurrent", "nn.basic", "nn.activation", "nn.conv", "nn.deformable", "nn.pool", "nn.pixel_shuffle", "nn.norm", "nn.position",
  "nn.attention", "nn.transformer", "nn.lora", "nn.weight_norm", "nn.symbol",
} do
  for name, value in pairs(core.require(module)) do
    if name:find("^%u") then nn[name] = value end
  end
end

return core.require("support.namespace").seal("nn", nn, {rnn = function() return core.require("nn.rnn") end})
