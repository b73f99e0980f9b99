-- Lua's operators with its metamethods, for the interpreter of traces: indexing, assignment to fields, arithmetic,
-- comparison, length and concatenation. Reads and writes go to the log of the trace.
local core = ...
local inspect = core.introspect
inspect.interpreted()
local functions = core.require("hybrid.functions")
local frames = core.require("hybrid.frames")
local operators = {}

local type, rawget, rawset, rawequal, setmetatable, error = type, rawget, rawset, rawequal, setmetatable, error
local concat = table.concat
local is_tensor = core.is_tensor
local infos, learn = functions.infos, functions.learn
local enter, invoke, metafield = frames.enter, frames.invoke, frames.metafield

local log                      -- of the trace in progress; nil if nothing is logged

-- Tables -----------------------------------------------------------------------------------------------------------------

local function get(t, key)
  for _ = 1, 100 do
    local index
    if type(t) == "table" then
      local value = rawget(t, key)
      if log then log:read(t, key, value) end
      if value ~= nil then return value end
      index = metafield(t, "__index")
      if index == nil then return nil end
    else
      if log and is_tensor(t) then return log:attribute(t, key) end
      index = metafield(t, "__index")
      if index == nil or type(t) == "cdata" then
        if log and type(t) == "cdata" then return log:cdata(t, key) end
        return t[key]
      end
    end
    if type(index) == "function" then return (enter(index, t, key)) end
    t = index
  end
  error("'__index' chain too long; possibly a loop", 0)
end

local function raw_set(t, key, value)
  if log then log:write(t, key) end
  rawset(t, key, value)
end

local function set(t, key, value)
  for _ = 1, 100 do
    local newindex
    if type(t) == "table" then
      if rawget(t, key) ~= nil then return raw_set(t, key, value) end
      newindex = metafield(t, "__newindex")
      if newindex == nil then return raw_set(t, key, value) end
      if log then log:read(t, key, nil) end
    else
      newindex = metafield(t, "__newindex")
      if newindex == nil or is_tensor(t) or type(t) == "cdata" then
        if log and type(t) == "cdata" then log:write_cdata(t, key) elseif log then log:set_item(t, key, value) end
        t[key] = value
        return
      end
    end
    if type(newindex) == "function" then
      enter(newindex, t, key, value)
      return
    end
    t = newindex
  end
  error("'__newindex' chain too long; possibly a loop", 0)
end

-- Operators --------------------------------------------------------------------------------------------------------------

-- Returns the Lua function that an operator on these values calls, or nil if the engine can run the operator.
local function operator(x, y, event)
  local f
  if type(x) ~= "number" and not is_tensor(x) then f = metafield(x, event) end
  if f == nil and type(y) ~= "number" and not is_tensor(y) then f = metafield(y, event) end
  if type(f) == "function" and (infos[f] or learn(f)).code then return f end
  if f ~= nil and type(f) ~= "function" then return function(...) return invoke(f, ...) end end
end

local natives = {
  __add = function(x, y) return x + y end, __sub = function(x, y) return x - y end, __mul = function(x, y) return x * y end,
  __div = function(x, y) return x / y end, __mod = function(x, y) return x % y end, __pow = function(x, y) return x ^ y end,
  __concat = function(x, y) return x .. y end,
}

local function arithmetic(event, x, y)
  if type(x) ~= "number" or type(y) ~= "number" then
    local f = operator(x, y, event)
    if f then return (enter(f, x, y)) end
  end
  return natives[event](x, y)
end

local function less(x, y)
  if type(x) == "table" or type(y) == "table" then
    local f = operator(x, y, "__lt")
    if f then return not not enter(f, x, y) end
  end
  return x < y
end

local function at_most(x, y)
  if type(x) == "table" or type(y) == "table" then
    local f = operator(x, y, "__le")
    if f then return not not enter(f, x, y) end
    f = operator(y, x, "__lt")
    if f then return not enter(f, y, x) end
  end
  return x <= y
end

local function equal(x, y)
  local kind = type(x)
  if log and (kind == "table" or kind == "function") and type(y) == kind then log:compare(x, y) end
  if rawequal(x, y) then return true end
  if type(x) == "table" and type(y) == "table" then
    local f = metafield(x, "__eq")
    if f == nil or f ~= metafield(y, "__eq") then return false end
    return not not invoke(f, x, y)
  end
  return x == y
end

local compat = #setmetatable({}, {__len = function() return 7 end}) == 7    -- LUAJIT_ENABLE_LUA52COMPAT

local function length(x)
  if type(x) == "table" then
    local f = compat and metafield(x, "__len")
    if f then return (invoke(f, x)) end
    if log then log:length(x) end
    return #x
  end
  if type(x) == "string" then return #x end
  local f = metafield(x, "__len")
  if type(f) == "function" and (infos[f] or learn(f)).code then return (enter(f, x)) end
  return #x
end

local function joined(R, first, last)
  local plain = true
  for k = first, last do
    local kind = type(R[k])
    if kind ~= "string" and kind ~= "number" then plain = false end
  end
  if plain then
    local parts = {}
    for k = first, last do parts[k - first + 1] = R[k] end
    return concat(parts)
  end
  local value = R[last]
  for k = last - 1, first, -1 do value = arithmetic("__concat", R[k], value) end
  return value
end

operators.get, operators.raw_set, operators.set = get, raw_set, set
operators.natives, operators.operator, operators.arithmetic, operators.joined = natives, operator, arithmetic, joined
operators.less, operators.at_most, operators.equal = less, at_most, equal
operators.length, operators.compat = length, compat

--- operators.log_to(new_log): reads and writes go to new_log; nil logs nothing.
function operators.log_to(new_log) log = new_log end

return operators
