-- Methods of the log (hybrid/access_log.lua) for calls of C functions without a model, and of functions whose results
-- no guard checks.
local core = ...
local inspect = core.introspect
inspect.interpreted()
local models = core.require("hybrid.host_functions")
local frames = core.require("hybrid.frames")
local interpret = core.require("hybrid.interpret")

local type, next, ipairs, select, unpack = type, next, ipairs, select, unpack
local kind_of, none = inspect.kind, {}

local names
local function name_of(f)
  if not names then
    names = {}
    for _, at in ipairs{{_G, ""}, {os, "os."}, {io, "io."}, {math, "math."}, {debug, "debug."}, {table, "table."}} do
      for key, value in next, at[1] or none do if type(value) == "function" and not names[value] then names[value] = at[2] .. key end end
    end
  end
  return names[f]
end

local function with_callbacks(n, ...)
  local list = {...}
  for i = 1, n do if type(list[i]) == "function" then list[i] = interpret.callback(list[i]) end end
  return unpack(list, 1, n)
end

-- Marks the iterator that io.lines returns as pure, so that it does not count as another unknown function.
local function note_iterator(f, ...)
  if type(f) == "function" and kind_of(f) == "C" then models.pure[f] = true end
  return f, ...
end

--- Adds the methods to Log. read_deeply(log, t, whole, open) logs a read of everything in a table.
return function(Log, read_deeply)
  --- log:outside(name, frame): the call uses the function `name`, whose result no guard can check.
  function Log:outside(name, frame)
    if self.parent then self.parent:outside(name, frame) end
    if self.outsiders[name] then return end
    self.outsiders[name] = true
    self.outsiders[#self.outsiders + 1] = {name = name, where = interpret.line(frame) and interpret.where(frame)}
  end

  --- log:call(f, n, …) -> what f(…) returns, where f is a C function or a function of the library that is not
  --- interpreted. A C function of others is taken to read all of its table arguments.
  function Log:call(f, n, ...)
    local graphs = core.graphs
    if (graphs.exporting or graphs.retracing) and models.shows[f] then return models.shows[f](...) end
    if models.pure[f] then return f(...) end
    if models.outside[f] then
      self:outside(name_of(f) or "a function of the host", frames.current())
      return note_iterator(f(...))
    end
    if kind_of(f) ~= "C" then return f(...) end
    local own = inspect.is_own(f)
    local frame = frames.current()
    if not own and frame and frame.library then return f(...) end
    local functions = false
    for i = 1, n do
      local value = (select(i, ...))
      if type(value) == "table" then read_deeply(self, value, not own, {})
      elseif type(value) == "function" then functions = true end
    end
    for i = 1, own and 0 or n do
      local value = (select(i, ...))
      if type(value) == "cdata" and self.node_of[value] then self:refuse("it hands memory of the FFI to a C function") end
    end
    if not own then self:outside(name_of(f) or "a C function that perigee does not know", frames.current()) end
    if functions and not models.keeps[f] then return f(with_callbacks(n, ...)) end
    return f(...)
  end
end
