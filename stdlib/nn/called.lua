-- What blocks were called with first, for the traces that export and freeze make.
local core = ...
local args = core.require("support.args")
local called = {}

local pairs, select = pairs, select

-- By block, the types of the arguments of its first call.
called.types = setmetatable({}, {__mode = "k"})

--- called.summary(value) -> what a later trace needs of a value: types instead of tensors.
function called.summary(value, depth)
  depth = depth or 0
  if core.is_tensor(value) then
    if not core.has_value(value) then return value end
    return {tensor = true, shape = value.shape, dtype = value.dtype, device = value.device}
  end
  if not args.plain(value) or depth > 90 then return {value = value} end
  local entries = {}
  for key, entry in pairs(value) do entries[key] = called.summary(entry, depth + 1) end
  return {entries = entries}
end

--- called.note(block, …) remembers what the block was called with, as types.
function called.note(block, ...)
  local n = select("#", ...)
  local list = {n = n}
  for i = 1, n do list[i] = called.summary((select(i, ...))) end
  called.types[block] = list
end

return called
