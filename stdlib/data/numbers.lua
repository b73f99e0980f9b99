-- What is known of the numbers of a dataset, so that its batches have one dtype: a tree like a list of the values of an
-- item. A node has fraction = true if a number there is not whole, and node.keys[key] is the tree of the values at the key.
local core = ...
local args = core.require("support.args")
local numbers = {}

local met = setmetatable({}, {__mode = "k"})  -- by dataset that is no list: the tree of the items so far

--- numbers.of(dataset) -> its tree. That of a list has all items.
function numbers.of(dataset)
  local all = dataset._numbers and dataset:_numbers()
  if all then return all end
  met[dataset] = met[dataset] or {}
  return met[dataset]
end

--- numbers.at(node, key) -> the tree of the values at the key.
function numbers.at(node, key)
  node.keys = node.keys or {}
  node.keys[key] = node.keys[key] or {}
  return node.keys[key]
end

-- Whether int64 holds the number as exactly as Lua does.
local function is_whole(v) return v == math.floor(v) and math.abs(v) < 2 ^ 53 end

--- numbers.note(node, value) adds a value to a tree.
function numbers.note(node, value)
  if type(value) == "number" then node.fraction = node.fraction or not is_whole(value) end
  if not args.plain(value) then return end
  for key, v in pairs(value) do numbers.note(numbers.at(node, key), v) end
end

--- numbers.dtype(node) -> the dtype of a tensor of the numbers there.
function numbers.dtype(node) return node.fraction and "float32" or "int64" end

return numbers
