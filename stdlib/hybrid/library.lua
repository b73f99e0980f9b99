-- What belongs to the library and needs no guards: its modules, its classes, and the fields that their methods
-- maintain.
local core = ...
local inspect = core.introspect
inspect.interpreted()
local library = {}

local rawget, type, pairs = rawget, type, pairs

-- Fields of blocks that the library maintains. They are not guarded and not written back.
library.own_fields = {
  _ready = true, _order = true, _hooks = true, _pre_hooks = true, _hybrid = true, _exec = true, _graphs = true,
  _hooks_told = true, _no_graph = true, _sites = true, _arguments = true,
}

local known, count = {}, -1

-- Updates the set of the library's tables. It grows because modules load when first used.
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

--- library.refresh() adds modules that were loaded since the last call.
library.refresh = refresh

--- library.is_class(t) -> whether t is a class of the library.
function library.is_class(t) return rawget(t, "_library") == true end

--- library.owns(t) -> whether the table is a module or class of the library.
function library.owns(t) return known[t] or rawget(t, "_library") == true end

local untraced_of = setmetatable({}, {__mode = "k"})

--- library.untraced(class) -> the fields that the class itself maintains around runs of graphs, in its objects and in
--- the plain tables in them: a table from field to true (not guarded) or "shallow" (guarded by identity only). Classes
--- list them in `_untraced`.
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

return library
