-- Runs functions with recording and training on or off.
local core = ...
local args = core.require("support.args")
local modes = {}

--- modes.check_function(op, f) raises unless f can be called.
function modes.check_function(op, f)
  if args.is_callable(f) then return end
  local late = (f == nil or core.is_tensor(f)) and "; write pg." .. op .. "(function() return net(x) end)" or ""
  core.fail(op, "bad argument 'f' (expected a function, got %s%s)", core.describe(f), late)
end

-- Ends the scope, then returns the results or raises the error unchanged.
local function leave(guard, ok, ...)
  core.pop_modes(guard)
  if not ok then core.reraise((select(1, ...))) end
  return ...
end

--- modes.run(op, f, recording, training, …) -> what f(…) returns with these modes; nil leaves one as it is.
function modes.run(op, f, recording, training, ...)
  modes.check_function(op, f)
  return leave(core.push_modes(recording, training), xpcall(f, core.keep_traceback, ...))
end

return modes
