-- What a traced function does in Lua around each run of its program: numbers that are asked for anew, counters that go on.
local core = ...
local prototype = core.introspect.prototype
local live = {}

local hooks                       -- of the trace under way

--- live.collect() starts a list of hooks for a trace; live.finish() -> {before = {f, …}, after = {f, …}, read = set of the
--- functions that are asked for numbers}.
function live.collect() hooks = {before = {}, after = {}, notes = {}, read = {}} end
function live.finish()
  local done = hooks
  hooks = nil
  return done
end

--- live.before_run(f) calls f before each run of the program that is being traced. f may answer a reason why the
--- function has to be traced again.
function live.before_run(f) hooks.before[#hooks.before + 1] = f end

--- live.after_run(f) calls f after each run that succeeded.
function live.after_run(f) hooks.after[#hooks.after + 1] = f end

--- live.notes(object) -> a table for what the object notes of itself in this trace, empty at first.
function live.notes(object)
  local notes = hooks.notes[object]
  if not notes then
    notes = {}
    hooks.notes[object] = notes
  end
  return notes
end

-- Numbers that functions gave for this call. A run that the program refuses is followed by another entry's or by a new trace:
-- the numbers asked for then are those of this call again.
local kept = setmetatable({}, {__mode = "k"})
local call, turn = 0, 0

--- live.begin(again) starts to ask for the numbers of one run; again: of a call whose last run was refused.
function live.begin(again)
  turn = turn + 1
  if not again then call = call + 1 end
end

--- live.ask(key, f, …) -> what f(…) gives for this run: the first ask for the key's first number, the second for its second.
function live.ask(key, f, ...)
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

--- live.tracing() -> whether a function is being traced.
function live.tracing() return hooks ~= nil and core.tracing() end

--- pg.live(f) -> a 0-dim float32 tensor with the number that f() answers. Inside a hybridized block or pg.jit, f is called
--- before each run, so that a number that changes (a temperature, a schedule) traces nothing again.
function live.number(f)
  core.require("support.args").callable("live", "f", f)
  local function read()
    local v = f()
    if type(v) ~= "number" then core.arg_error("live", "f", "a function that answers a number", v) end
    return v
  end
  if not live.tracing() then return core.ops.tensor(read()) end
  hooks.read[f] = true
  local key = type(f) == "function" and prototype(f) or f  -- each trace makes another closure
  local t = core.number_table(1, 1)
  live.before_run(function() core.set_numbers(t, live.ask(key, read)) end)
  return core.ops.reshape(core.ops.to(t, "float32"), {})
end

return live
