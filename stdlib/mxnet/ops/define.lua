-- How MXNet's ops are defined in terms of those of this library, with MXNet's attributes and defaults.
local core = ...
local ops = core.ops
local mxnet = {table = {}}  -- by the name of an op: {make =, least =}

--- define("a b", make, least): make(a) reads the attributes a of a node with one of these names and returns the function
--- of its inputs, and the roles of inputs that are no ordinary tensors, by position: "state" (updated in training) or
--- "label" (may be missing). a.inputs lists the ops of the inputs, a.subgraphs the graphs in the node. least is the
--- number of inputs that the node has at least, 1 by default; without inputs the function gets the device.
function mxnet.define(names, make, least)
  for name in names:gmatch("%S+") do mxnet.table[name] = {make = make, least = least or 1} end
end

--- The same for a function of the inputs that has no attributes.
function mxnet.plain(names, f, least) mxnet.define(names, function() return f end, least) end

function mxnet.to_dtype_of(x, y) return ops.to(y, x.dtype) end
function mxnet.is_true(x) return ops.ne(x, 0) end
function mxnet.at_least_1d(x) return x:dim() == 0 and ops.reshape(x, {1}) or x end   -- MXNet has no 0-dim tensors
function mxnet.integers(x) return ops.to(x, "int64") end

return mxnet
