-- The table of MXNet's ops: name -> {make =, least =}, see ops/define.lua.
local core = ...
for _, part in ipairs{"elementwise", "activations", "layers", "shapes", "reduce", "control"} do core.require("mxnet.ops." .. part) end
return {table = core.require("mxnet.ops.define").table}
