-- bounded(f, …) -> what f(…) returns. A call that goes on and on is an error here: one that computes is interrupted after
-- kPolls polls of ops and kernels, one that runs Lua after kInstructions. Compiled loops count no instructions, so the
-- compiler is off. No clock is asked: a slow machine changes nothing.
local testing = require("perigee").testing

local kPolls, kInstructions = 20000, 3e7

local function too_many() error("bounded: the call went on for too many instructions of Lua", 0) end

local function finish(compiled, ok, ...)
  testing.cancel_after(nil)
  debug.sethook()
  if compiled then jit.on() end
  if not ok then error((...), 0) end
  if (...) == false then
    local text = tostring((select(2, ...)))
    if text:find("interrupted", 1, true) or text:find("^bounded: ") then error("the call does not end: " .. text, 0) end
  end
  return ...
end

return function(f, ...)
  local compiled = jit.status()
  if compiled then jit.off() end
  debug.sethook(too_many, "", kInstructions)
  testing.cancel_after(kPolls)
  return finish(compiled, pcall(f, ...))
end
