-- Places: where a Lua value is stored (field, upvalue, argument), how generated code addresses it, and its name in
-- messages.
local core = ...
local inspect = core.introspect
inspect.interpreted()
local place = {}

local rawget, type, tostring, format = rawget, type, tostring, string.format

local keywords = {}
for word in ("and break do else elseif end false for function goto if in local nil not or repeat return then true until while")
  :gmatch("%a+") do keywords[word] = true end

local function is_name(key) return type(key) == "string" and key:find("^[%a_][%w_]*$") and not keywords[key] end

--- place.literal(value) -> the value as Lua source text, or nil if it has no short one.
function place.literal(value)
  local kind = type(value)
  if kind == "number" then
    if value ~= value or value == math.huge or value == -math.huge then return nil end
    return format("%.17g", value)
  elseif kind == "boolean" or kind == "nil" then return tostring(value)
  elseif kind == "string" and #value <= 80 and not value:find("[%c$\128-\255]") then return format("%q", value) end
end

-- Generated code is {refs, text}, see hybrid/codegen.lua.

--- place.key(refs, key) -> the text of an index. Adds the key to refs if it has no literal.
function place.key(refs, key)
  if is_name(key) then return "." .. key end
  local text = place.literal(key)
  if text then return "[" .. text .. "]" end
  refs[#refs + 1] = {object = key}
  return "[$" .. #refs .. "]"
end

local function copy(list)
  local out = {}
  for i = 1, #list do out[i] = list[i] end
  return out
end

-- Returns refs, text of a table of the log: the table itself, or its path if it gets replaced.
local function node_address(node)
  if node.by_path then
    if node.place.argument then return place.address(node.place) end
    node.ref = node.ref or {path = node}
    return {node.ref}, "$1"
  end
  return {{object = node.table}}, "$1"
end

-- The most arguments that generated functions take as parameters: a function of LuaJIT has at most 200 variables and 250
-- stack slots. More arguments are passed in the table A.
local kMostParameters = 60

--- place.are_packed(n) -> whether generated functions take the arguments of a call with n arguments in the table A
--- instead of the parameters a1, a2 ….
function place.are_packed(n) return n > kMostParameters end

--- place.address(p) -> refs, text: an expression for the value at the place.
function place.address(p)
  if p.argument then return {}, (p.packed and "A[%d]" or "a%d"):format(p.argument) end
  if p.cell then return {{cell = p.owner, index = p.index, id = p.cell}}, "$1" end
  local refs, text = node_address(p.node)
  refs = copy(refs)
  if p.node.raw then
    local key = place.literal(p.key)
    if not key then
      refs[#refs + 1] = {object = p.key}
      key = "$" .. #refs
    end
    return refs, "rawget(" .. text .. ", " .. key .. ")"
  end
  return refs, text .. place.key(refs, p.key)
end

--- place.node_address(node) -> refs, text: an expression for a table of the log.
place.node_address = node_address

--- place.read(p, arguments) -> the present value of the place. Calls no metamethods.
function place.read(p, arguments)
  if p.argument then return arguments and arguments[p.argument] end
  if p.cell then
    local _, value = inspect.upvalue(p.owner, p.index)
    return value
  end
  local t = p.node.table
  if p.node.foreign then return t[p.key] end
  if p.node.by_path then t = place.read(p.node.place, arguments) end
  if type(t) ~= "table" then return nil end
  return rawget(t, p.key)
end

--- place.write(p, value) stores a value in the table of the log or the variable, without metamethods.
function place.write(p, value)
  if p.cell then inspect.set_upvalue(p.owner, p.index, value)
  else rawset(p.node.table, p.key, value) end
end

--- place.name(p) -> the name of the place in messages: `self.fc.rate`, `upvalue 'scale'`, `argument 2`.
function place.name(p)
  if p.argument and not p.name then return "argument " .. p.argument end
  if p.argument or p.cell then return "upvalue '" .. p.name .. "'" end
  if p.node.environment then return "global '" .. tostring(p.key) .. "'" end
  return place.node_name(p.node) .. (is_name(p.key) and "." .. p.key or "[" .. (type(p.key) == "string" and format("%q", p.key) or tostring(p.key)) .. "]")
end

--- place.is_given(p) -> whether an argument of the call leads to the place: the argument itself or a table or block in it.
function place.is_given(p)
  while p and not p.argument do p = p.node and p.node.place end
  return p ~= nil and not p.name
end

--- place.of_change(change) -> the place that a change of the log assigns to.
function place.of_change(change)
  if change.cell then return {cell = change.cell, owner = change.owner, index = change.index, name = change.name} end
  return {node = change.node, key = change.key}
end

--- place.node_name(node) -> the name of a table in messages. Its label is a text, or {of = another node, what = a
--- suffix}, which is composed only when a message needs it.
function place.node_name(node)
  local label = node.label
  if type(label) == "table" then return place.node_name(label.of) .. label.what end
  if label then return label end
  local p = node.place
  if not p then return "table" end
  if p.cell or p.argument and p.name then return p.name end
  if p.node and p.node.environment then return tostring(p.key) end
  return place.name(p)
end

--- place.show(value) -> a short text for messages.
function place.show(value)
  local kind = type(value)
  if kind == "string" then return format("%q", #value > 40 and value:sub(1, 37) .. "..." or value) end
  if kind == "number" then return format("%.14g", value) end
  if kind == "userdata" then return core.is_tensor(value) and "a tensor" or "a userdata" end
  if kind == "table" then return "a table" end
  if kind == "function" then return "a function" end
  return tostring(value)
end

return place
