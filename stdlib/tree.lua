-- pg.tree: nested plain tables of tensors and other values. Number keys are walked first, then string keys, both
-- sorted.
local core = ...
local args = core.require("support.args")
local tree = {}

local function keys_of(t)
  local numbers, strings = {}, {}
  for key in pairs(t) do
    if type(key) == "number" then numbers[#numbers + 1] = key
    elseif type(key) == "string" then strings[#strings + 1] = key
    else core.fail("tree", "bad key %s (expected numbers and strings as keys)", tostring(key)) end
  end
  table.sort(numbers)
  table.sort(strings)
  for _, key in ipairs(strings) do numbers[#numbers + 1] = key end
  return numbers
end

local max_depth = 1000     -- far below the limit of Lua's stack
local max_tables = 100000  -- a table that appears twice counts twice, with all tables in it

local function enter(path, t)
  path.depth, path.tables = (path.depth or 0) + 1, (path.tables or 0) + 1
  if path.tables > max_tables then
    core.fail("tree", "bad argument 'tree' (expected at most %d tables, got more)", max_tables)
  end
  if path.depth > max_depth then core.fail("tree", "bad argument 'tree' (expected at most %d levels, got more)", max_depth) end
  if path[t] then core.fail("tree", "bad argument 'tree' (expected a tree, got a table that holds itself)") end
  path[t] = true
end

local function leave(path, t)
  path.depth = path.depth - 1
  path[t] = nil
end

local function check_same(op, first, keys, other, where)
  if not args.plain(other) then core.arg_error(op, "tree", "the same structure as the first at " .. where, other) end
  local count = 0
  for key in pairs(other) do
    count = count + 1
    if first[key] == nil then core.fail(op, "trees differ: '%s.%s' is only in a later tree", where, tostring(key)) end
  end
  if count ~= #keys then core.fail(op, "trees differ: %s holds %d entries and %d", where, #keys, count) end
end

local function map(f, path, where, t, ...)
  if not args.plain(t) then return f(t, ...) end
  enter(path, t)
  local result, keys, others = {}, keys_of(t), {...}
  local n = select("#", ...)
  for i = 1, n do check_same("tree.map", t, keys, others[i], where) end
  for _, key in ipairs(keys) do
    local row = {}
    for i = 1, n do row[i] = others[i][key] end
    result[key] = map(f, path, where .. "." .. tostring(key), t[key], unpack(row, 1, n))
  end
  leave(path, t)
  return result
end

--- pg.tree.map(f, t, …) -> a tree of the same structure whose leaves are f(leaf, …). The leaves of further trees, which
--- must have the same structure, are further arguments of f. A leaf is any value that is not a plain table.
--- Example: return pg.tree.map(function(x) return 2 * x end, {pg.ones(2), pg.zeros(1)})
function tree.map(f, t, ...)
  args.callable("tree.map", "f", f)
  return map(f, {}, "tree", t, ...)
end

local function flatten(t, leaves, path)
  if not args.plain(t) then
    leaves[#leaves + 1] = t
    return false
  end
  enter(path, t)
  local spec = {}
  for i, key in ipairs(keys_of(t)) do spec[i] = {key, flatten(t[key], leaves, path)} end
  leave(path, t)
  return spec
end

--- pg.tree.flatten(t) -> leaves, spec: the leaves as a list in walking order, and the structure for tree.unflatten.
function tree.flatten(t)
  local leaves = {}
  local spec = flatten(t, leaves, {})
  return leaves, spec
end

local function unflatten(spec, leaves, at)
  if not spec then return leaves[at], at + 1 end
  local result = {}
  for _, entry in ipairs(spec) do result[entry[1]], at = unflatten(entry[2], leaves, at) end
  return result, at
end

--- pg.tree.unflatten(spec, leaves) -> a tree with these leaves and the structure that tree.flatten returned.
function tree.unflatten(spec, leaves)
  if spec and type(spec) ~= "table" then core.arg_error("tree.unflatten", "spec", "a spec returned by tree.flatten", spec) end
  if type(leaves) ~= "table" then core.arg_error("tree.unflatten", "leaves", "a list of leaves", leaves) end
  local result = unflatten(spec, leaves, 1)
  return result
end

--- pg.tree.leaves(t) -> an iterator over position, leaf.
function tree.leaves(t)
  local leaves = {}
  flatten(t, leaves, {})
  return ipairs(leaves)
end

return core.require("support.namespace").seal("tree", tree)
