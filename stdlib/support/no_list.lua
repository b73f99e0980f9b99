-- Objects that look like lists and are none. In LuaJIT without 5.2 compatibility # and ipairs of a table ignore its
-- metatable: they give 0 and an empty loop, not errors. So such objects of the library's own classes are userdata with
-- the fields and methods of a table. Objects of a script's classes are tables, since the script may use them as such.
local core = ...
local no_list = {}

local raw_metatable = core.introspect.raw_metatable
local made = setmetatable({}, {__mode = "k"})

local function object_of(handle) return raw_metatable(handle).__index end

-- A trace cannot make functions that stay, so all handles share these.
local function call(handle, ...) return object_of(handle)(...) end
local function text_of(handle) return tostring(object_of(handle)) end

-- Returns a userdata for the object. Its metatable leads to the object, so that the collector sees cycles through it.
local function wrap(object, newproxy, refuse_length)
  local handle = newproxy(true)
  local meta = raw_metatable(handle)
  meta.__metatable = core.sandboxed and false  -- else a script could give the object a finalizer
  meta.__index, meta.__newindex = object, object
  meta.__call, meta.__tostring, meta.__len = call, text_of, refuse_length
  made[handle] = true
  return handle
end

--- no_list.define(class, text) makes the objects of the class and of its subclasses in the library refuse #object, with
--- this text, and ipairs(object).
function no_list.define(class, text)
  local newproxy = core.newproxy
  if not newproxy then return end
  local function refuse_length(handle) core.fail(tostring(handle.name), text) end
  class._wrap = function(object) return wrap(object, newproxy, refuse_length) end
end

--- no_list.is(x) -> whether x is such a userdata.
function no_list.is(x) return made[x] == true end

--- no_list.object(x) -> the table behind such a userdata, or x.
function no_list.object(x) return made[x] and object_of(x) or x end

return no_list
