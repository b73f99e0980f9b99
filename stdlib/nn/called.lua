-- What blocks were called with first, for the traces that export and freeze make.
local core = ...
local args = core.require("support.args")
local called = {}

local pairs, select = pairs, select
local max_depth = 1000  -- far below what the stack of Lua holds

-- By block, the types of the arguments of its first call.
called.types = setmetatable({}, {__mode = "k"})

--- called.summary(value[, seen]) -> what a later trace needs of a value: types instead of tensors. Each table is visited
--- once; `seen` has the summaries of tables, which may hold themselves.
function called.summary(value, seen)
  if core.is_tensor(value) then
    if not core.has_value(value) then return value end
    return {tensor = true, shape = value.shape, dtype = value.dtype, device = value.device}
  end
  if not args.plain(value) then return {value = value} end
  seen = seen or {depth = 0}
  if seen[value] then return seen[value] end
  seen.depth = seen.depth + 1
  if seen.depth > max_depth then core.fail("call", "the arguments nest more than %d tables", max_depth) end
  local entries = {}
  local summary = {entries = entries}
  seen[value] = summary
  for key, entry in pairs(value) do entries[key] = called.summary(entry, seen) end
  seen.depth = seen.depth - 1
  return summary
end

--- called.note(block, …) remembers what the block was called with, as types.
function called.note(block, ...)
  local n = select("#", ...)
  local list, seen = {n = n}, {depth = 0}
  for i = 1, n do list[i] = called.summary((select(i, ...)), seen) end
  called.types[block] = list
end

return called
