-- What belongs to the library, so that guards leave it alone: its modules, its classes, and what their methods read.
local core = ...
local inspect = core.introspect
inspect.interpreted()
local library = {}

local rawget, type, pairs = rawget, type, pairs

-- Fields of blocks that the library keeps for itself; no guard covers them and no trace writes them back.
library.own_fields = {
  _ready = true, _order = true, _hooks = true, _pre_hooks = true, _hybrid = true, _exec = true, _graphs = true,
  _hooks_told = true, _no_graph = true, _sites = true, _arguments = true,
}

-- Tables of the host's standard library, and their functions under global names.
local standard = {}
for _, name in ipairs{"string", "table", "math", "os", "io", "coroutine", "bit", "jit", "ffi", "debug", "package"} do
  local t = rawget(_G, name) or (package and package.loaded and package.loaded[name])
  if type(t) == "table" then standard[t] = true end
end

local known, count = {}, -1

-- Modules load when first used, so the set grows.
local function refresh()
  local _, loaded = inspect.upvalue(core.require, 3)
  local n = 0
  for _ in pairs(loaded) do n = n + 1 end
  if n == count then return end
  count = n
  known = {[core] = true, [core.pg] = true, [loaded] = true}
  local function add(module)
    if type(module) ~= "table" then return end
    known[module] = true
    for _, value in pairs(module) do if type(value) == "table" then known[value] = true end end
  end
  add(core)
  for _, module in pairs(loaded) do add(module) end
end

--- library.refresh() takes in modules that were loaded since.
library.refresh = refresh

--- library.is_class(t) -> whether t is a class of the library.
function library.is_class(t) return rawget(t, "_library") == true end

--- library.owns(t) -> whether the table is a module or class of the library.
function library.owns(t) return known[t] or rawget(t, "_library") == true end

--- library.is_standard(value) -> whether value is a table or C function such as the host's own globals hold.
function library.is_standard(value)
  if type(value) == "function" then return inspect.kind(value) == "C" end
  return type(value) == "table" and (standard[value] or false)
end

local function is_base(class) return rawget(class, "_is_base") == true end

-- The methods of a class and its parents by name, without those that every block has.
local function methods_of(class)
  local methods = {}
  while type(class) == "table" do
    if not is_base(class) then
      for name, value in pairs(class) do
        if type(name) == "string" and type(value) == "function" and methods[name] == nil then methods[name] = value end
      end
    end
    class = rawget(class, "super")
  end
  return methods
end

local scan_function

local function scan_upvalues(keys, f, seen)
  for i = 1, 60 do
    local name, value = inspect.upvalue(f, i)
    if not name then break end
    if type(value) == "function" then scan_function(keys, value, seen) end
  end
end

function scan_function(keys, f, seen)
  if seen[f] or inspect.kind(f) ~= "library" then return end
  seen[f] = true
  for _, name in ipairs(inspect.scan(f).strings) do keys[name] = true end
  scan_upvalues(keys, f, seen)
end

local function scan_class(class)
  local keys, seen, methods = {}, {}, methods_of(class)
  local is_block = class._is_class
  for name, f in pairs(methods) do
    if not is_block or name == "forward" then scan_function(keys, f, seen) end
  end
  local grown = true
  while grown do
    grown = false
    for name, f in pairs(methods) do
      if keys[name] and not seen[f] then
        scan_function(keys, f, seen)
        grown = true
      end
    end
  end
  return keys
end

local keys_of = setmetatable({}, {__mode = "k"})

--- library.keys(class) -> the set of fields of an object that the methods of a class of the library may read. A block is
--- entered through forward.
function library.keys(class)
  local keys = keys_of[class]
  if not keys then
    keys = scan_class(class)
    keys_of[class] = keys
  end
  return keys
end

local untraced_of = setmetatable({}, {__mode = "k"})

--- library.untraced(class) -> the fields that a class keeps up to date itself around runs of graphs, in its objects and in the
--- plain tables they hold: true where nothing guards them, "shallow" where only the identity of what they hold is guarded.
--- Classes name them in `_untraced`.
function library.untraced(class)
  local found = untraced_of[class]
  if found then return found end
  found = {}
  local at = class
  while type(at) == "table" do
    for name, how in pairs(rawget(at, "_untraced") or {}) do if found[name] == nil then found[name] = how end end
    at = rawget(at, "super")
  end
  untraced_of[class] = found
  return found
end

local attributes

--- library.attributes() -> the set of all names of attributes of ops: keys that ops read from tables of options.
function library.attributes()
  if attributes then return attributes end
  attributes = {}
  for _, name in ipairs(core.op_names(true)) do
    for _, attr in ipairs(core.op_row(name).attrs) do attributes[attr.name] = true end
  end
  return attributes
end

-- Names whose use in a function means that it may read every entry of a table.
library.iterators = {
  pairs = true, next = true, rawget = true, foreach = true, tree = true, children = true, parameters = true,
  collect_params = true, hybrid_forward = true, while_loop = true, loop = true,
}

return library
