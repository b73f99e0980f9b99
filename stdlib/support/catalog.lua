-- The public API as a list, found by walking the public tables: modules, functions, ops, classes and their methods.
local core = ...
local documents = core.require("support.documents")
local namespace = core.require("support.namespace")
local catalog = {}
core.make_ops()

local function is_namespace(value) return type(value) == "table" and (getmetatable(value) or {}).__fields ~= nil end

local function is_class(value) return type(value) == "table" and (getmetatable(value) or {})._class_meta == true end
catalog.is_namespace, catalog.is_class = is_namespace, is_class

local function sorted(set)
  local names = {}
  for name in pairs(set) do if type(name) == "string" and not name:find("^_") then names[#names + 1] = name end end
  table.sort(names)
  return names
end

--- catalog.names(t) -> the sorted public names of a namespace, those that load when first used among them.
function catalog.names(t)
  local set = {}
  for name in pairs(t) do set[name] = true end
  for _, more in ipairs(getmetatable(t).__fields) do for name in pairs(more) do set[name] = true end end
  set.testing = nil
  return sorted(set)
end

--- catalog.methods(class) -> the sorted names of the methods that the class itself defines.
function catalog.methods(class)
  local set = {}
  for name, value in pairs(class) do if type(value) == "function" then set[name] = true end end
  return sorted(set)
end

local function add(list, name, value, class)
  list[#list + 1] = {name = name, value = value, class = class}
end

local function walk(list, prefix, t, seen)
  if seen[t] then return end
  seen[t] = true
  for _, key in ipairs(catalog.names(t)) do
    local value, name = t[key], prefix .. key
    if type(value) ~= "string" then add(list, name, value) end
    if is_namespace(value) then walk(list, name .. ".", value, seen)
    elseif is_class(value) then
      for _, method in ipairs(catalog.methods(value)) do add(list, name .. ":" .. method, value[method], value) end
    end
  end
end

--- catalog.list() -> {name = "nn.Dense", value =, class = (of a method)} for everything public, without "pg.". Methods
--- of tensors have names such as "x:sum".
function catalog.list()
  local list = {}
  walk(list, "", core.pg, {})
  local methods = core.tensor_methods
  for _, name in ipairs(sorted(methods)) do
    if type(methods[name]) == "string" then core.require(methods[name]) end  -- see init.lua
    add(list, "x:" .. name, methods[name])
  end
  return list
end

--- catalog.op(name) -> the row of the op with this public name ("softmax", "linalg.inv", "x:sum"), or nil.
function catalog.op(name)
  local plain = namespace.op_name((name:gsub("^x:", "")))
  local row = core.op_row(plain)
  return row and not row.hidden and row or nil
end

--- catalog.in_place(name) -> the row of the op whose result the method or function with this name writes, or nil.
function catalog.in_place(name)
  local plain = name:gsub("^x:", "")
  local of = plain:match("^(.*[^_])_$")
  if of and (core.tensor_methods[plain] or core.ops[plain]) then return catalog.op(of) end
end

-- Returns the comment of a method: that above its definition, of the method of the same name in a class above, of the
-- method of all objects of that kind, or of the class.
local function method_entry(name, value, class)
  local index, method = documents.index(), name:match("[^:]*$")
  local entry = documents.of_function(value)
  local at, base = class, class
  while not entry and type(at) == "table" do
    local inherited = rawget(at, method)
    entry = type(inherited) == "function" and documents.of_function(inherited)
    base, at = at, rawget(at, "super")
  end
  local kind = rawget(base, "_name") or rawget(base, "name") or ""
  return entry or index.names[kind .. ":" .. method] or index.names[kind:lower() .. ":" .. method]
end

-- Whether the name is the one of the row of its op, or has a comment of its own; other names are aliases.
local function is_main(name)
  local row = catalog.op(name) or catalog.in_place(name)
  if row then return namespace.op_name((name:gsub("^x:", ""):gsub("_$", ""))) == (row.main or row.name) end
  return documents.index().names[name] ~= nil
end

local by_value

--- catalog.item(value) -> the item of catalog.list with this value; if there are several, one whose name is no alias.
function catalog.item(value)
  if not by_value then
    by_value = setmetatable({}, {__mode = "k"})
    for _, item in ipairs(catalog.list()) do
      local known = by_value[item.value]
      if not known or (not is_main(known.name) and is_main(item.name)) then by_value[item.value] = item end
    end
  end
  return by_value[value]
end

--- catalog.entry(name, value[, class]) -> the entry of documents.index() that explains a function, class or method, or
--- nil.
function catalog.entry(name, value, class)
  local names = documents.index().names
  if names[name] then return names[name] end
  if class then return method_entry(name, value, class) or catalog.entry(name:match("^[^:]*"), class) end
  local entry = type(value) == "function" and documents.of_function(value)
  if entry then return entry end
  local item = catalog.item(value)
  return item and names[item.name] or names["x:" .. name]  -- pg.equal is explained as x:equal
end

local function row(t, prefix, key)
  local name, value = prefix .. key, t[key]
  local op = catalog.op(name) or catalog.in_place(name)
  local entry = op or catalog.entry(name, value)
  return {key, entry and documents.summary(entry) or documents.index().modules[name] or ""}
end

--- catalog.rows(prefix, t) -> {name, one line} for each public name of a namespace.
function catalog.rows(prefix, t)
  local rows = {}
  for _, key in ipairs(catalog.names(t)) do rows[#rows + 1] = row(t, prefix, key) end
  return rows
end

return catalog
