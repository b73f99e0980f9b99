-- pg.testing: what tests, fuzzers, benchmarks and generators may ask of the inside. The functions on memory, polls and the
-- registry are in vm/memory.cpp, vm/library.cpp and vm/introspect.cpp. No part of the API: it changes with the inside.
local core = ...
local testing = core.testing

testing.core = core              -- for scripts/ only
testing.ops = core.ops           -- every op by name, hidden ones too
testing.roundtrip = core.graph.roundtrip
testing.is_tensor = core.is_tensor
testing.trace = core.trace       -- trace(f, n, …) -> true, a trace, the results; false and an error
testing.run = core.run           -- run(program, …) -> what the program gives for these boxes
testing.tracing = core.tracing   -- whether a trace is under way
testing.prototype = core.introspect.prototype  -- prototype(f) -> the identity of a function's code
testing.suggest = core.suggest   -- suggest(name, table, …) -> the nearest string key or element of the tables

--- hints() -> the lines of support/hints.lua by kind and name.
function testing.hints() return core.require("support.hint").lines() end

--- roundtrip_all(on): programs of hybridized blocks and pg.jit go through the text of an export before they run.
function testing.roundtrip_all(on) core.graphs.through_files = on end

--- hybridize_all(on): outermost calls of hybrid blocks hybridize them, where their children allow it.
function testing.hybridize_all(on)
  core.require("nn.block_call")
  core.graphs.all = on
end

--- graphs_off() -> whether graphs are off here, as in pg.debug and while a function is traced.
function testing.graphs_off() return core.graphs.off > 0 end

--- on_warning([f]): warnings go to f(text), or to standard error again. Returns where they went before.
function testing.on_warning(f)
  local before = core.tell_warning
  core.tell_warning = f or core.print_warning
  return before
end

--- unlogged(f, …) -> what f(…) returns: a trace takes no guard from what it reads and does not repeat what it writes.
function testing.unlogged(f, ...) return core.unlogged(f, ...) end

--- interpret(f, …) -> what f(…) returns when the interpreter of traces runs it, outside a trace.
function testing.interpret(f, ...)
  core.require("hybrid.host_functions")
  return core.require("hybrid.interpret").run(nil, f, ...)
end

--- runs_natively(f): the interpreter of traces calls this function, of Lua or C, and takes it to read nothing.
function testing.runs_natively(f)
  core.require("hybrid.functions").natively[f] = true
  core.require("hybrid.host_functions").pure[f] = true
end

--- patience([n]) -> how many traces in a row without a hit make a function run as plain Lua; n sets it.
function testing.patience(n)
  local cache = core.require("hybrid.cache")
  local before = cache.patience
  cache.patience = n or before
  return before
end

--- graph_backend([backend]) -> what traces and runs programs (see stdlib/hybrid/trace.lua); another takes its place.
function testing.graph_backend(backend)
  local trace = core.require("hybrid.trace")
  local before = trace.backend
  trace.backend = backend or before
  return before
end

--- tensor_names() -> the names of all methods and fields of tensors, sorted.
function testing.tensor_names()
  local names = {}
  core.make_ops()
  for _, kind in ipairs{"tensor_methods", "builtin_getters", "tensor_getters", "builtin_setters", "tensor_setters"} do
    for name in pairs(core[kind]) do names[#names + 1] = kind .. " " .. name end
  end
  table.sort(names)
  return names
end

return testing
