-- The leaves of trees of tensors, by their specs (see tree.flatten).
local leaves = {}

local ipairs, type = ipairs, type

--- leaves.names(name, spec, names) -> the list `names` with those of the leaves in the order of tree.flatten:
--- "states.h", "vars[2].c".
function leaves.names(name, spec, names)
  if not spec then
    names[#names + 1] = name
    return names
  end
  for _, entry in ipairs(spec) do
    local key = entry[1]
    leaves.names(type(key) == "number" and ("%s[%d]"):format(name, key) or name .. "." .. tostring(key), entry[2], names)
  end
  return names
end

--- leaves.same(a, b) -> whether two specs are equal.
function leaves.same(a, b)
  if not a or not b then return a == b end
  if #a ~= #b then return false end
  for i, entry in ipairs(a) do
    if entry[1] ~= b[i][1] or not leaves.same(entry[2], b[i][2]) then return false end
  end
  return true
end

return leaves
