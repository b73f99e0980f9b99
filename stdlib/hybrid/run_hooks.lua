-- Lua functions that run before and after each run of a traced program: they compute the numbers of pg.live and advance
-- counters.
local core = ...
local prototype = core.introspect.prototype
local run_hooks = {}

local hooks                       -- those of the trace in progress

--- run_hooks.collect([named]) starts the list of hooks of a trace. run_hooks.finish() ends it -> {before = {f, …}, after
--- = {f, …}, deliveries = {{f =, values =}, …}, kept = {tensor, …}, notes =, read = the set of functions passed to pg.live,
--- escaped = {f, …}}. With a list `named` the trace is of an export: no hook will run, and run_hooks.name adds to the list.
function run_hooks.collect(named)
  hooks = {before = {}, after = {}, ends = {}, deliveries = {}, kept = {}, notes = {}, read = {}, escaped = {}, named = named, names = {}, recording = core.is_recording()}
end
function run_hooks.finish()
  local done = hooks
  hooks = nil
  return done
end

--- run_hooks.before_run(f) calls f before each run of the program that is being traced. If f returns a text, the
--- program does not run, and the function is traced again for that reason.
function run_hooks.before_run(f) hooks.before[#hooks.before + 1] = f end

--- run_hooks.after_run(f) calls f after each successful run.
function run_hooks.after_run(f) hooks.after[#hooks.after + 1] = f end

--- run_hooks.at_end(f) calls f when the traced function has returned, as the last part of the trace.
function run_hooks.at_end(f) hooks.ends[#hooks.ends + 1] = f end

--- run_hooks.deliver(f, values) calls f(values[1], …) after each run of the program, with the values of that run: tensors
--- that the trace made, and what existed before it.
function run_hooks.deliver(f, values) table.insert(hooks.deliveries, {f = f, values = values}) end

--- run_hooks.keep(x): if the traced function returns or assigns the tensor x, which it made, no pg.scope frees x, in
--- later runs either.
function run_hooks.keep(x) table.insert(hooks.kept, x) end

--- run_hooks.escape(f): each run of the program calls the function f of the script.
function run_hooks.escape(f) if hooks then table.insert(hooks.escaped, f) end end

--- run_hooks.ended(…) calls these functions and returns its arguments.
function run_hooks.ended(...)
  for _, f in ipairs(hooks.ends) do f() end
  return ...
end

--- run_hooks.notes(object) -> a table in which the object can store data for the rest of this trace, empty at first.
function run_hooks.notes(object)
  local notes = hooks.notes[object]
  if not notes then
    notes = {}
    hooks.notes[object] = notes
  end
  return notes
end

-- The numbers that functions returned for the current call. If a program refuses the call, another entry or a new trace
-- follows; it gets the same numbers, so that each function is called once per call.
local kept = setmetatable({}, {__mode = "k"})
local call, turn = 0, 0

--- run_hooks.begin(again) starts the numbers of a run. again: the run belongs to the same call as the one before, which
--- was refused.
function run_hooks.begin(again)
  turn = turn + 1
  if not again then call = call + 1 end
end

--- run_hooks.ask(key, f, …) -> the next number of the key in this run: f(…), or what it returned at the same position
--- of the refused run.
function run_hooks.ask(key, f, ...)
  local known = kept[key]
  if not known then
    known = {have = 0, n = 0}
    kept[key] = known
  end
  if known.call ~= call then known.call, known.have = call, 0 end
  if known.turn ~= turn then known.turn, known.n = turn, 0 end
  local n = known.n + 1
  known.n = n
  if n > known.have then known[n], known.have = f(...), n end
  return known[n]
end

--- run_hooks.exporting() -> whether the trace in progress is of an export of a function.
function run_hooks.exporting() return hooks ~= nil and hooks.named ~= nil end

--- run_hooks.name(tensor, path) names an input of the exported graph. A name that another tensor has gets a number.
function run_hooks.name(tensor, path)
  local names = hooks.names
  if names[tensor] then return end
  local unique, n = path, 1
  while names[unique] do
    n = n + 1
    unique = path .. "_" .. n
  end
  names[tensor], names[unique] = unique, tensor
  table.insert(hooks.named, {tensor = tensor, path = unique})
end

--- run_hooks.tracing() -> whether a function is being traced.
function run_hooks.tracing() return hooks ~= nil and core.tracing() end

--- run_hooks.recording_inside() -> whether the traced function itself has begun to record.
function run_hooks.recording_inside() return run_hooks.tracing() and not hooks.recording and core.is_recording() end

--- pg.live(f) -> a 0-dim float32 tensor with the number that f() returns. Inside a hybridized block or pg.jit, f is
--- called before each run, so a changing number (a temperature, a schedule) causes no new trace. An export keeps the number
--- of that moment.
function run_hooks.number(f)
  core.require("support.args").callable("live", "f", f)
  local function read()
    local v = f()
    if type(v) ~= "number" then core.arg_error("live", "f", "a function that returns a number", v) end
    return v
  end
  if not run_hooks.tracing() or hooks.named then return core.ops.tensor(read()) end
  hooks.read[f] = true
  run_hooks.escape(f)
  local key = type(f) == "function" and prototype(f) or f  -- each trace makes a new closure of the same prototype
  local t = core.number_table(1, 1)
  run_hooks.before_run(function() core.set_numbers(t, run_hooks.ask(key, read)) end)
  return core.ops.reshape(core.ops.to(t, {dtype = "float32", device = core.testing.default_device()}), {})
end

return run_hooks
