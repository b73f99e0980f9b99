-- Functions of pg for memory, devices, threads, random numbers and printing.
local core = ...
local runtime = {}

local function leave(guard, ok, ...)
  if not ok then
    core.keep_in_scope(guard, (select(1, ...)))
    core.pop_scope(guard)
    core.reraise((select(1, ...)))
  end
  core.keep_in_scope(guard, ...)
  core.pop_scope(guard)
  return ...
end

--- pg.scope(f) runs f, frees every tensor that f made and did not return, and returns the results of f.
--- Example: return pg.scope(function() return pg.ones(2):exp():sum() end)
function runtime.scope(f, ...)
  core.require("support.args").callable("scope", "f", f)
  return leave(core.push_scope(), xpcall(f, core.keep_traceback, ...))
end

--- pg.keep(x) -> x. No enclosing pg.scope frees it.
runtime.keep = core.keep
--- pg.memory() -> {live =, cached =, peak =, tensors =}: bytes in use, bytes kept for reuse, the highest number of
--- bytes in use so far, and the number of tensors.
runtime.memory = core.memory
--- pg.set_num_threads(n) limits kernels to n threads.
runtime.set_num_threads = core.sandboxed and function() core.fail("set_num_threads", "not available in a sandbox") end or core.set_num_threads
--- pg.get_num_threads() -> the most threads that kernels use.
runtime.get_num_threads = core.get_num_threads
--- pg.devices() -> the names of the devices that can be used now.
runtime.devices = core.devices
--- pg.instruction_set() -> "amx" (tiles of bfloat16 besides AVX-512), "avx512", "avx2", "sse4" or "sse2" ("neon" on ARM): the
--- instructions that kernels on the CPU use. The environment variable PERIGEE_MAX_ISA can lower it.
runtime.instruction_set = core.instruction_set
--- pg.synchronize(device) waits until the device has finished all its work.
runtime.synchronize = core.synchronize
--- pg.warm_up([f, …]) pays now for what the first calls of networks would pay: it starts threads, compiles kernels and
--- loads modules of the library, once, in some hundredths of a second. With a function or a block it then calls f(…)
--- twice in predict mode without a record, which prepares kernels for its shapes and, if f is hybridized, its graph.
--- Random streams do not change.
--- Example: pg.warm_up(pg.nn.Flatten(), pg.ones(2, 3, 4))
function runtime.warm_up(...) core.require("warm_up").run(...) end
--- pg.manual_seed(seed) restarts the default random stream. A hybridized block or jitted function that calls it, or makes or
--- seeds a Generator, runs as plain Lua, with a warning.
runtime.manual_seed = core.manual_seed
--- pg.Generator(seed) -> a separate random stream, for the option `generator` of random ops.
--- Example: return pg.randn(3, {generator = pg.Generator(7)})
runtime.Generator = core.Generator
--- pg.print(label, x) prints the label and the value of x. Inside a hybridized block or pg.jit it prints at every run.
function runtime.print(label, x)
  core.require("support.args").string("print", "label", label)
  if not core.is_tensor(x) then core.arg_error("print", "x", "a tensor", x) end
  core.ops._print_value(core.detach(x), {label = label})
end

--- pg.live(f) -> a 0-dim float32 tensor with the number that f() returns. Inside hybridized code f is called before
--- each run.
function runtime.live(f) return core.require("hybrid.run_hooks").number(f) end

--- pg.is_tensor(v) -> whether v is a tensor. Takes any value, also nil.
--- Example: return pg.is_tensor(pg.ones(2))
function runtime.is_tensor(v) return core.is_tensor(v) end

--- pg.type(v) -> "tensor", "block", "graph" or what Lua's type returns.
--- Example: return pg.type(pg.nn.Dense(2))
function runtime.type(v)
  if core.is_tensor(v) then return "tensor" end
  if core.require("nn.discover").is_block(v) then return "block" end
  return core.require("graph").is(v) and "graph" or type(v)
end

--- pg.ops() -> the sorted names of the registry.
function runtime.ops() return core.op_names(false) end

return runtime
