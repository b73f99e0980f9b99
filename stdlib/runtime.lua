-- The process and its memory.
local core = ...
local runtime = {}

local function leave(guard, ok, ...)
  if not ok then
    core.keep_in_scope(guard, (select(1, ...)))
    core.pop_scope(guard)
    error((select(1, ...)), 0)
  end
  core.keep_in_scope(guard, ...)
  core.pop_scope(guard)
  return ...
end

--- pg.scope(f) runs f, frees every tensor that f made and did not return, and answers f's results.
function runtime.scope(f, ...)
  if type(f) ~= "function" then core.arg_error("scope", "f", "a function", f) end
  return leave(core.push_scope(), pcall(f, ...))
end

--- pg.keep(x) -> x, which survives every pg.scope around it.
runtime.keep = core.keep
--- pg.memory() -> {live =, cached =, peak =, tensors =}: bytes held, kept for reuse, held at most so far; boxes alive.
runtime.memory = core.memory
--- pg.set_num_threads(n): kernels use at most n threads.
runtime.set_num_threads = core.set_num_threads
--- pg.get_num_threads() -> how many threads kernels use at most.
runtime.get_num_threads = core.get_num_threads
--- pg.devices() -> the names of the devices that can be used now.
runtime.devices = core.devices
--- pg.instruction_set() -> "avx512", "avx2", "sse4" or "sse2": what kernels on the CPU use. The environment variable
--- PERIGEE_MAX_ISA sets a lower limit than the CPU's.
runtime.instruction_set = core.instruction_set
--- pg.synchronize(device) waits until the device has done what it was asked.
runtime.synchronize = core.synchronize
--- pg.manual_seed(seed) restarts the default random stream.
runtime.manual_seed = core.manual_seed
--- pg.Generator(seed) -> a random stream of its own, for the option `generator`.
runtime.Generator = core.Generator
--- pg.print(label, x) prints the label and the value of x; inside a hybridized block or pg.jit at every run.
function runtime.print(label, x)
  core.require("support.args").string("print", "label", label)
  if not core.is_tensor(x) then core.arg_error("print", "x", "a tensor", x) end
  core.ops._print_value(core.detach(x), {label = label})
end

--- pg.live(f) -> a 0-dim tensor with the number f() answers, asked for before each run inside hybridized code.
function runtime.live(f) return core.require("hybrid.live").number(f) end

--- pg.ops() -> the sorted names of the registry.
function runtime.ops() return core.op_names(false) end

return runtime
