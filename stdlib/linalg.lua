-- pg.linalg: the ops whose names in the registry begin with linalg_, under the rest of their names.
local core = ...
local namespace = core.require("support.namespace")
local linalg = {}

for name, op in pairs(core.ops) do
  local short = name:match("^linalg_(.+)$")
  if short then linalg[short] = op end
end

return namespace.seal("linalg", linalg)
