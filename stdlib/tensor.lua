-- Methods of tensors that are written in Lua.
local core = ...
local args = core.require("support.args")
local methods, getters, ops = core.tensor_methods, core.tensor_getters, core.ops

--- x.shape -> the sizes of the dims, as a new table: {2, 3}. x:dim() is their number, x:size(i) one of them.

--- x.dtype -> the name of the dtype, such as "float32". x:to("int64") converts.

--- x.device -> the name of the device, such as "cpu". x:to("cpu") copies.

--- x.grad -> the gradient that the last backward wrote for a tensor with attach_grad, or nil. It can be set.

--- x.requires_grad -> whether gradients flow to x: it has attach_grad with a request other than "null", or was computed from
--- such a tensor under pg.record. x:attach_grad() sets it; it cannot be assigned.

--- x.name -> the name of a parameter or of a symbol, or nil. It can be set.

--- x.T is x:t(): the transpose of a matrix. Tensors of 0 or 1 dims come back as they are.
getters.T = ops.t

--- x.mT is x:transpose(-2, -1): each matrix of a batch is transposed.
function getters.mT(x) return ops.transpose(x, -2, -1) end

--- x:iter() -> an iterator over x[1], x[2], … x[#x]: for row in x:iter() do … end.
function methods.iter(x)
  args.tensor_self("iter", x)
  if x:dim() == 0 then core.fail("iter", "a 0-dim tensor has no rows; x:item() reads its value") end
  local i, n = 0, x:size(1)
  return function()
    i = i + 1
    if i <= n then return x[i] end
  end
end

--- x:tap(f) calls f with the value of x and returns x. Inside a hybridized block or pg.jit it calls f at every run. A net
--- with a tap cannot be exported or frozen.
function methods.tap(x, f)
  args.tensor_self("tap", x)
  args.callable("tap", "f", f)
  if core.graphs.exporting then
    core.fail("tap", "a function of the script cannot be part of an exported or frozen graph (remove the tap, call it under a "
              .. "condition that is false while you export, or write pg.print, which stays in the graph)")
  end
  if core.tracing() then
    core.require("hybrid.run_hooks").escape(f)
    core.ops._call_value(core.detach(x), {callback = core.callback(f)})
  else
    f(x)
  end
  return x
end

--- x:lstm(…), x:gru(…) and x:rnn(…) are pg.lstm(x, …), pg.gru(x, …) and pg.rnn(x, …).
for _, name in ipairs{"lstm", "gru", "rnn"} do
  methods[name] = function(x, ...)
    args.tensor_self(name, x)
    return core.require("nn.rnn.functional")[name](x, ...)
  end
end
