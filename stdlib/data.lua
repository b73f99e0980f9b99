-- pg.data: datasets, samplers and loaders.
local core = ...
local data = {DataLoader = core.require("data.loader"), digits = core.require("data.digits")}

for _, module in ipairs{"data.dataset", "data.sampler"} do
  for name, value in pairs(core.require(module)) do data[name] = value end
end

return core.require("support.namespace").seal("data", data, {vision = function() return core.require("data.vision") end})
