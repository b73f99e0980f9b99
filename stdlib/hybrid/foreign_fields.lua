-- Methods of the log (hybrid/access_log.lua) for fields of tensors and for FFI values.
local core = ...
core.introspect.interpreted()
local frames = core.require("hybrid.frames")

local type = type

local of_type = {shape = true, dtype = true, device = true, requires_grad = true}

--- Adds the methods to Log. log: functions of access_log.lua.
return function(Log, log)
  local read_deeply, add_place, note_write = log.read_deeply, log.add_place, log.note_write

  --- log:attribute(x, key) -> the field of the tensor. Fields that scripts can set, such as lr_mult, are guarded.
  function Log:attribute(x, key)
    if self.parent then self.parent:attribute(x, key) end
    if type(key) == "table" then read_deeply(self, key, false, {}) end
    local value = x[key]
    local frame = frames.current()
    if type(key) ~= "string" or type(value) == "function" or of_type[key] or not frame or frame.library or self.serial(x) >= self.mark then return value end
    local seen = self.attributes[x]
    if not seen then
      seen = {table = x, foreign = true, seen = {}}
      self.attributes[x] = seen
    end
    if seen.seen[key] then return value end
    seen.seen[key] = true
    local kind = type(value)
    if kind == "userdata" or kind == "nil" then
      self.places[#self.places + 1] = {node = seen, key = key, value = value, kind = "existence"}
    elseif kind ~= "table" then
      self.places[#self.places + 1] = {node = seen, key = key, value = value, kind = "scalar"}
    end
    self.keyed[x] = true
    return value
  end

  --- log:cdata(t, key) -> the field of an FFI struct or element of an FFI array. It is guarded.
  function Log:cdata(t, key)
    if self.parent then self.parent:cdata(t, key) end
    local value = t[key]
    local node = self.node_of[t]
    if not node or (type(key) ~= "string" and type(key) ~= "number") or node.seen[key] then return value end
    if type(value) == "function" then return value end
    node.seen[key] = true
    add_place(self, {node = node, key = key, value = value})
    return value
  end

  --- log:set_item(x, key, value): the call is about to set a field or elements of a tensor. It reads all of a table key
  --- or value.
  function Log:set_item(_, key, value)
    if type(key) == "table" then read_deeply(self, key, false, {}) end
    if type(value) == "table" then read_deeply(self, value, false, {}) end
  end

  function Log:write_cdata(t, key)
    if self.parent then self.parent:write_cdata(t, key) end
    local node = self.node_of[t]
    if node then note_write(node, key, t[key]) end
  end
end
