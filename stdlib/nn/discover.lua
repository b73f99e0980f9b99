-- Finds the child blocks and parameters of a block, in its fields and in plain tables there, in a stable order.
local core = ...
local discover = {}

local is_param = core.require("param").is
local args = core.require("support.args")
local is_plain = args.plain
local rawget, type, pairs, ipairs, getmetatable = rawget, type, pairs, ipairs, getmetatable

--- discover.is_block(v) -> whether v is a block (an instance of a class made from nn.Block).
function discover.is_block(v)
  if type(v) ~= "table" then return false end
  local class = getmetatable(v)
  return type(class) == "table" and rawget(class, "_is_class") == true
end

local is_block = discover.is_block

-- Returns the keys of a table: numbers sorted, then the names listed in `order`, then the other names sorted.
local function keys_of(t, order)
  local numbers, rest, keys = {}, {}, {}
  for key in pairs(t) do
    if type(key) == "number" then numbers[#numbers + 1] = key
    elseif type(key) == "string" and key:byte() ~= 95 and not (order and order[key]) then rest[#rest + 1] = key end
  end
  table.sort(numbers)
  for _, key in ipairs(numbers) do keys[#keys + 1] = key end
  if order then
    for _, key in ipairs(order) do if rawget(t, key) ~= nil then keys[#keys + 1] = key end end
  end
  table.sort(rest)
  for _, key in ipairs(rest) do keys[#keys + 1] = key end
  return keys
end

--- discover.names(t) -> the string keys of a table that may name children, sorted.
function discover.names(t)
  local names = {}
  for _, key in ipairs(keys_of(t)) do if type(key) == "string" then names[#names + 1] = key end end
  return names
end

local scan

local max_depth = 1000   -- of nested plain tables, far below the limit of Lua's stack

local function visit(entries, value, path, seen, depth)
  local kind = type(value)
  if kind == "userdata" then
    if is_param(value) then entries[#entries + 1] = {kind = "param", path = path, value = value} end
  elseif kind == "table" then
    if is_block(value) then entries[#entries + 1] = {kind = "block", path = path, value = value}
    elseif is_plain(value) and not seen[value] then
      if depth >= max_depth then core.fail("Block", "a field of the block nests more than %d tables", max_depth) end
      seen[value] = true
      scan(entries, value, path .. ".", seen, depth + 1)
    end
  end
end

function scan(entries, t, prefix, seen, depth, order)
  for _, key in ipairs(keys_of(t, order)) do visit(entries, rawget(t, key), prefix .. key, seen, depth) end
end

--- discover.entries(block) -> the block's own children and parameters in order: a list of {kind = "block" or "param",
--- path, value}. Items of plain tables are included, each table once, with paths such as `layers.1`. Fields that start
--- with `_` are not.
function discover.entries(block)
  local entries = {}
  scan(entries, block, "", {}, 0, rawget(block, "_order"))
  return entries
end

--- discover.functions(block) -> the functions in the block's array part, by position.
function discover.functions(block)
  local found = {}
  for key, value in pairs(block) do
    if type(key) == "number" and not is_block(value) and args.is_callable(value) then found[key] = value end
  end
  return found
end

local function walk(block, prefix, open, f)
  if open[block] then
    core.fail("Block", "the block '%s' holds itself (a block cannot be its own child)", prefix:sub(1, -2))
  end
  if open[block] == false then return end
  open[block] = true
  for _, entry in ipairs(discover.entries(block)) do
    local path = prefix .. entry.path
    f(entry.kind, path, entry.value, block)
    if entry.kind == "block" then walk(entry.value, path .. ".", open, f) end
  end
  open[block] = false
end

--- discover.walk(block, f) calls f(kind, path, value, owner) for all blocks and parameters below block, parents before
--- children. A block that is reached again is reported again, but not its content. A block that holds itself is an
--- error.
function discover.walk(block, f) return walk(block, "", {}, f) end

-- Returns the parameter at path:sub(from) below t. Keys may contain dots.
local function find(t, path, from)
  local stop = from - 1
  while stop do
    stop = path:find(".", stop + 1, true)
    local key = path:sub(from, stop and stop - 1)
    local value = rawget(t, key)
    if value == nil then value = rawget(t, tonumber(key) or false) end
    if value ~= nil and key:byte() ~= 95 then
      if not stop then return is_param(value) and value or nil end
      local found = (is_block(value) or is_plain(value)) and find(value, path, stop + 1)
      if found then return found end
    end
  end
end

--- discover.at(block, path) -> the parameter at this path, or nil. The path may be any of several to the same
--- parameter.
function discover.at(block, path) return find(block, path, 1) end

--- discover.parameters(block) -> a list of {path =, tensor =, owner =}: each parameter once, under its first path. The
--- list also has the field root = block.
function discover.parameters(block)
  local list, seen, paths = {root = block}, {}, {}
  discover.walk(block, function(kind, path, value, owner)
    if kind ~= "param" then return end
    if paths[path] and paths[path] ~= value then core.fail("Block", "two parameters have the path '%s'", path) end
    paths[path] = value
    if seen[value] then return end
    seen[value] = true
    list[#list + 1] = {path = path, tensor = value, owner = owner}
  end)
  return list
end

--- discover.blocks(block) -> a list of {path =, block =}: block itself with path "", then all blocks below it, each
--- once.
function discover.blocks(block)
  local list, seen = {{path = "", block = block}}, {[block] = true}
  discover.walk(block, function(kind, path, value)
    if kind == "block" and not seen[value] then
      seen[value] = true
      list[#list + 1] = {path = path, block = value}
    end
  end)
  return list
end

return discover
