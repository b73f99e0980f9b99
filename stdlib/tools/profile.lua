-- --profile FILE: the profiler runs from before the script to the end of the program.
local core = ...
local profile = {}

local path

--- profile.start(path) starts the profiler.
function profile.start(to)
  path = to
  core.require("profile").start()
  local exit = os.exit
  function os.exit(code, close)  -- luacheck: ignore 122
    profile.finish()
    exit(code, close)
  end
end

--- profile.finish() stops it and writes the trace to the path of start.
function profile.finish()
  if not path then return end
  local to = path
  path = nil
  core.require("profile").stop(to)
end

return profile
