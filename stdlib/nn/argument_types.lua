-- The argument types of the last traced call of each hybridized block and jitted function, or of the first call of a
-- block, that succeeded. export and freeze trace with arguments of these types.
local core = ...
local args = core.require("support.args")
local param = core.require("param")
local argument_types = {}

local pairs, select = pairs, select
local max_depth = 1000  -- far below the limit of Lua's stack

-- By block or function: the summaries of the arguments, with their number as n.
argument_types.noted = setmetatable({}, {__mode = "k"})

--- argument_types.summary(value[, seen]) -> what a later trace needs to know of a value: types instead of tensors. Each
--- table is visited once. `seen` maps visited tables to their summaries, since a table may hold itself.
function argument_types.summary(value, seen)
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
  for key, entry in pairs(value) do entries[key] = argument_types.summary(entry, seen) end
  seen.depth = seen.depth - 1
  return summary
end

local function put_back(block, list) argument_types.noted[block] = list end

--- argument_types.note(block, …) records the types of the arguments of a call, until it fails.
function argument_types.note(block, ...)
  local n = select("#", ...)
  local list, seen = {n = n}, {depth = 0}
  for i = 1, n do list[i] = argument_types.summary((select(i, ...)), seen) end
  param.note_change(block, put_back, argument_types.noted[block])
  argument_types.noted[block] = list
end

--- argument_types.convert(block, target) changes the floating types among the recorded ones, and the devices, as
--- block:to(target) changes parameters. Returns whether one changed.
function argument_types.convert(block, target)
  local seen, changed = {}, false
  local function visit(summary)
    if core.is_tensor(summary) or seen[summary] then return end
    seen[summary] = true
    if summary.tensor then
      local dtype = param.floats[summary.dtype] and target.dtype or summary.dtype
      local device = target.device or summary.device
      changed = changed or dtype ~= summary.dtype or device ~= summary.device
      summary.dtype, summary.device = dtype, device
    end
    for _, entry in pairs(summary.entries or {}) do visit(entry) end
  end
  local list = argument_types.noted[block] or {n = 0}
  for i = 1, list.n do visit(list[i]) end
  return changed
end

return argument_types
