-- nn.Concurrent and nn.HybridConcurrent give one input to all children and join their results.
local core = ...
local args = core.require("support.args")
local sequential = core.require("nn.sequential")
local ops = core.ops
local names, spec = {"axis"}, {axis = -1}

local function define(parent, name)
  local class = parent:extend(name)

  --- nn.Concurrent({a, b, …}, {axis = -1}) and nn.HybridConcurrent({a, b, …}, {axis = -1}) give their inputs to each child
  --- and concatenate the results along axis. Without a list, add() adds the children: nn.HybridConcurrent{axis = 2}.
  --- Children are blocks or functions. Szegedy et al., Going Deeper with Convolutions, 2014.
  --- Example: local net = pg.nn.HybridConcurrent({pg.nn.Dense(2), pg.nn.Identity()}, {axis = 2})
  --- net:initialize()
  --- return net(pg.ones(3, 4)).shape
  function class:init(children, ...)
    local listed = args.plain(children) and (children[1] ~= nil or next(children) == nil)
    local axis = (listed and args.read(name, names, spec, ...) or args.read(name, names, spec, children, ...)).axis
    if type(axis) ~= "number" or axis ~= math.floor(axis) or axis == 0 then core.arg_error(name, "axis", "a dim", axis) end
    self._axis = axis
    if listed then parent.init(self, children) end
  end

  function class:forward(...)
    local results = {}
    for i = 1, #self do results[i] = self[i](...) end
    if #results == 0 then core.fail(name, "the block has no children (add some: net:add(block, …))") end
    return ops.cat(results, self._axis)
  end

  function class:slice(...)
    local part = parent.slice(self, ...)
    part._axis = self._axis
    return part
  end

  function class:describe() return "axis " .. self._axis end
  return class
end

return {
  Concurrent = define(sequential.Sequential, "Concurrent"), HybridConcurrent = define(sequential.HybridSequential, "HybridConcurrent"),
}
