-- What a traced function does in Lua around each run of its program: numbers that are asked for anew, counters that go on.
local core = ...
local live = {}

local hooks                       -- of the trace under way

--- live.collect() starts a list of hooks for a trace; live.finish() -> {before = {f, …}, after = {f, …}, read = set of the
--- functions that are asked for numbers}.
function live.collect() hooks = {before = {}, after = {}, counts = {}, read = {}} end
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

--- live.count(object) -> how often it was called for this object in this trace, from 0.
function live.count(object)
  local n = hooks.counts[object] or 0
  hooks.counts[object] = n + 1
  return n
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
  local t = core.number_table(1, 1)
  live.before_run(function() core.set_numbers(t, read()) end)
  return core.ops.reshape(core.ops.to(t, "float32"), {})
end

return live
