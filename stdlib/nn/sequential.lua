-- nn.Sequential and nn.HybridSequential call the children in their array part in order.
local core = ...
local args = core.require("support.args")
local base = core.require("nn.block")
local discover = core.require("nn.discover")
local getinfo = debug and debug.getinfo

local function check_child(op, child)
  if type(child) == "table" and rawget(child, "_is_class") then
    core.fail(op, "bad argument 'child' (expected a block or a function, got class %s; call it to make a block: nn.%s(…))",
              child._name, child._name)
  end
  if discover.is_block(child) or args.is_callable(child) then return child end
  if op == "add" and args.plain(child) and child[1] ~= nil then
    core.fail(op, "bad argument 'child' (expected a block or a function, got table; write net:add(a, b) with parentheses)")
  end
  core.arg_error(op, "child", "a block or a function", child)
end

local function check_list(op, list)
  local n = 0
  for key, child in pairs(list) do
    if type(key) ~= "number" then core.fail(op, "unknown field '%s' (expected a list of blocks)", tostring(key)) end
    check_child(op, child)
    n = math.max(n, key)
  end
  for i = 1, n do
    if list[i] == nil then core.fail(op, "bad argument 'children' (expected a list without holes, got nil at place %d)", i) end
  end
  return n
end

-- Raises if the first child takes fewer inputs than it gets. Lua would drop the others.
local function check_inputs(op, first, n)
  local f, self = first, 0
  if discover.is_block(first) then f, self = not first.hybrid_forward and first.forward, 1 end
  local info = type(f) == "function" and getinfo and core.unlogged(getinfo, f, "u")
  local most = not first and 1 or info and info.nparams and not info.isvararg and info.nparams - self
  if most and most < n then
    core.fail(op, "got %d inputs, but child 1%s takes %d", n, self == 1 and ", a " .. first._name .. "," or "", most)
  end
end

local function not_callable(self, i, child)
  if not discover.is_block(self) then return end
  core.fail(self._name, "bad child %d (expected a block or a function, got %s)", i, core.describe(child))
end

local function define(parent, name)
  local class = parent:extend(name)

  --- nn.Sequential{a, b, …} and nn.HybridSequential{a, b, …} call their children in order. Children are blocks or
  --- functions. The first child gets all arguments, each other child the result of the one before it. `net[i]` is a
  --- child, `#net` their number.
  --- Example: local net = pg.nn.HybridSequential{pg.nn.Dense(4, {activation = "relu"}), pg.nn.Dense(2)}
  --- net:initialize()
  --- return net(pg.ones(3, 5)).shape
  function class:init(...)
    local list = {...}
    if select("#", ...) == 1 and args.plain(list[1]) then list = list[1] end
    for i = 1, check_list(self._name, list) do rawset(self, i, list[i]) end
  end

  function class:forward(x, ...)
    local first = self[1]
    if select("#", ...) > 0 then check_inputs(name, first, 1 + select("#", ...)) end
    if not first then return x end
    if type(first) ~= "table" and type(first) ~= "function" then not_callable(self, 1, first) end
    x = first(x, ...)
    for i = 2, #self do
      local child = self[i]
      if type(child) ~= "table" and type(child) ~= "function" then not_callable(self, i, child) end
      x = child(x)
    end
    return x
  end

  --- net:add(child, …) appends children and returns the net.
  function class:add(...)
    args.self("add", self, "net")
    for i = 1, select("#", ...) do check_child("add", (select(i, ...))) end
    for i = 1, select("#", ...) do rawset(self, #self + 1, (select(i, ...))) end
    return self
  end

  --- net:slice(a[, b]) -> a net of the same type with the children a to b. Both nets share the children. Negative
  --- positions count from the end.
  function class:slice(a, b)
    args.self("slice", self, "net")
    local n = #self
    local function position(argument, value)
      if type(value) ~= "number" or value ~= math.floor(value) or value == 0 or math.abs(value) > n then
        core.arg_error("slice", argument, "a position in 1.." .. n .. " or from the end", value)
      end
      return value < 0 and n + 1 + value or value
    end
    local from, to = position("a", a), b == nil and n or position("b", b)
    local part = setmetatable({}, getmetatable(self))
    for i = from, to do rawset(part, i - from + 1, self[i]) end
    return part
  end

  return class
end

return {Sequential = define(base.Block, "Sequential"), HybridSequential = define(base.HybridBlock, "HybridSequential")}
