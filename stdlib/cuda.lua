-- pg.cuda: the NVIDIA GPUs of this machine. Devices are counted from 0, as in "cuda:0".
local core = ...
local args = core.require("support.args")
local namespace = core.require("support.namespace")
local cuda = {}

local function device(op, index)
  index = args.count("cuda." .. op, "index", index == nil and 0 or index, 0)
  return ("cuda:%d"):format(index)
end

--- pg.cuda.is_available() -> whether there is a GPU that can be used. If not, pg.ones(1):to("cuda") says why.
--- Example: return pg.cuda.is_available() == (pg.cuda.device_count() > 0)
function cuda.is_available() return (pcall(core.device_count, "cuda")) end

--- pg.cuda.device_count() -> the number of GPUs, 0 without a driver.
--- Example: for i = 0, pg.cuda.device_count() - 1 do print(pg.cuda.device_name(i)) end
function cuda.device_count()
  local ok, count = pcall(core.device_count, "cuda")
  return ok and count or 0
end

--- pg.cuda.device_name(index = 0) -> the name of the GPU's product.
function cuda.device_name(index) return core.device_title(device("device_name", index)) end

--- pg.cuda.memory(index = 0) -> {used =, cached =, free =, total =} in bytes: of tensors, kept by perigee for reuse, and
--- what is free and in all.
function cuda.memory(index) return core.device_memory(device("memory", index)) end

--- pg.cuda.synchronize(index = 0) waits until the GPU has finished all its work, and raises the error of work that
--- failed.
function cuda.synchronize(index) core.synchronize(device("synchronize", index)) end

--- pg.cuda.allow_tf32(on) lets matrix products of float32 round their operands to TensorFloat-32 (10 bits of mantissa),
--- which is several times faster. It is off at first. Convolutions never do.
function cuda.allow_tf32(on)
  core.set_switch("cuda", "allow_tf32", args.boolean("cuda.allow_tf32", "on", on))
end

return namespace.seal("cuda", cuda)
