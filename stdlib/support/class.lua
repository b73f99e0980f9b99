-- Classes of samplers, optimizers, metrics and so on. The classes of blocks are in nn/block.lua.
local core = ...
local class = {}

local function construct(self, ...)
  core.require("support.args").called_with_dot(self.name, ...)
  local object = setmetatable({}, self)
  if self.init then self.init(object, ...) end
  local wrap = rawget(self, "_library") and self._wrap
  return wrap and wrap(object) or object
end

-- Methods and fields that the library looks for in objects of any class.
local probed = {
  init = true, check = true, choose = true, make = true, get = true, get_batch = true, len = true, iter = true, classes = true,
  update = true, measure = true, rate = true, set_base_lr = true, metrics = true,
}

local function kind_of(at)
  while type(at) == "table" do
    if rawget(at, "_kind") then return rawget(at, "_kind") end
    at = rawget(at, "super")
  end
end

-- What to write instead of object[key], where the class has no such field.
local function hint_at(object_class, key)
  local kind = kind_of(object_class)
  local say = type(key) == "number" and object_class._no_items
  if say then return " (" .. say .. ")" end
  if type(key) ~= "string" then return "" end
  local names, at = {}, object_class
  while type(at) == "table" do
    names[#names + 1] = at
    at = rawget(at, "super")
  end
  return core.require("support.namespace").hint(kind, key, unpack(names))
end

-- The __index of objects of the library's own classes: a name that does not exist raises. Objects of a script's classes
-- may have absent fields, so their classes are plain tables.
local function strict(self_class)
  return function(_, key)
    local value = self_class[key]
    if value ~= nil or type(key) == "string" and (probed[key] or key:byte() == 95 or self_class._optional[key]) then return value end
    core.fail(self_class.name, "no field or method '%s'%s", tostring(key), hint_at(self_class, key))
  end
end

local variables = {Trainer = "trainer", DataLoader = "loader", Dataset = "ds", Metric = "metric"}

-- The __newindex of objects: a value that is no function would hide the method of that name.
local function assign_to(self_class)
  return function(self, key, value)
    if type(value) ~= "function" and type(self_class[key]) == "function" and value ~= nil then
      local name, setter = variables[kind_of(self_class)] or "object", "set_" .. key
      local text = type(value) == "number" and ("%g"):format(value) or "value"
      core.fail(self_class.name, "'%s' is a method, which a value would hide%s", key,
                type(self_class[setter]) == "function" and ("; write %s:%s(%s)"):format(name, setter, text)
                  or ("; write %s:%s(…) to call it"):format(name, key))
    end
    rawset(self, key, value)
  end
end

local function extend(parent, name)
  local library = core.introspect.called_from_library(1) or nil
  local child = {name = name, super = parent, _library = library}
  child.__index = library and strict(child) or child
  child.__newindex = assign_to(child)
  child.__call = parent.__call
  child.__tostring = parent.__tostring
  return setmetatable(child, {__index = parent, __call = construct, __tostring = function() return name end, _class_meta = true})
end

--- class.new(name) -> a class C. `C(…)` makes an object and calls C.init on it; `C:extend(name)` makes a subclass.
--- Absent fields of objects raise, except those that start with _ or that the set C._optional lists. C._kind names the
--- table of hints for names that do not exist, C._no_items says what to write instead of object[1].
function class.new(name)
  local base = {name = name, extend = extend, __tostring = function(self) return self.name end, _library = true, _optional = {}}
  base.__index, base.__newindex = strict(base), assign_to(base)
  return setmetatable(base, {__call = construct, __tostring = function() return name end, _class_meta = true})
end

--- class.defined(object, method, form[, more]) raises if the class of the object lacks a method that a script has to
--- define. form shows its arguments.
function class.defined(object, method, form, more)
  if object[method] ~= nil then return end
  core.fail(object.name, "the class has no %s (define function %s:%s … end%s)", method, object.name, form, more or "")
end

--- class.is(object, base) -> whether the object was made by base or one of its subclasses.
function class.is(object, base)
  local at = type(object) == "table" and getmetatable(object)
  while type(at) == "table" do
    if at == base then return true end
    at = rawget(at, "super")
  end
  return false
end

return class
