-- pg.nn.rnn: recurrent cells, containers and modifiers of cells, and layers over whole sequences.
local core = ...
local rnn = {}

for _, module in ipairs{
  "nn.rnn.cell", "nn.rnn.conv_cell", "nn.rnn.container", "nn.rnn.modifier", "nn.rnn.variational", "nn.rnn.layer",
} do
  for name, value in pairs(core.require(module)) do
    if name:find("^%u") then rnn[name] = value end
  end
end

rnn.dynamic_unroll = core.require("nn.rnn.variational").dynamic_unroll

return core.require("support.namespace").seal("nn.rnn", rnn)
