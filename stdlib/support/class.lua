-- Classes of samplers, optimizers, metrics and so on. The classes of blocks are in nn/block.lua.
local core = ...
local class = {}

local function construct(self, ...)
  local object = setmetatable({}, self)
  if self.init then self.init(object, ...) end
  return object
end

local function extend(parent, name)
  local child = {name = name, super = parent, _library = core.introspect.called_from_library(1) or nil}
  child.__index = child
  child.__call = parent.__call
  child.__tostring = parent.__tostring
  return setmetatable(child, {__index = parent, __call = construct, __tostring = function() return name end, _class_meta = true})
end

--- class.new(name) -> a class C. `C(…)` makes an object and calls C.init on it; `C:extend(name)` makes a subclass.
function class.new(name)
  local base = {name = name, extend = extend, __tostring = function(self) return self.name end, _library = true}
  base.__index = base
  return setmetatable(base, {__call = construct, __tostring = function() return name end, _class_meta = true})
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
