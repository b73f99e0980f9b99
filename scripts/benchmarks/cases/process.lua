-- Whole processes: start-up time, resident memory, and a loop of temporaries that the script does not release.
local function spawn(env, args, count)
  local times = {}
  for i = 1, count do
    local t = env.now()
    os.execute(env.quote(env.program) .. " " .. args .. " >/dev/null")
    times[i] = env.now() - t
  end
  return {us_min = math.min(unpack(times)), us_median = env.median(times), n = count}
end

return {
  {name = "startup", measure = function(env) return spawn(env, "-e 'return 1'", 20) end},
  {name = "startup_shell_true", measure = function(env)  -- the cost of the shell, to subtract
    return spawn({program = "true", now = env.now, median = env.median, quote = env.quote}, "", 20)
  end},
  {name = "idle_rss", measure = function(env)
    local out = assert(io.popen(env.quote(env.program) .. [[ -e 'io.write(io.open("/proc/self/status"):read("*a"))']]))
    local text = out:read("*a")
    out:close()
    return {rss_mb = tonumber(text:match("VmRSS:%s+(%d+)")) / 1024}
  end},
  {name = "temporaries_12000x1mb", measure = function(env)
    local pg = require "perigee"
    local x, worst = pg.ones(2 ^ 18), 0
    local start, last = env.now(), env.now()
    for _ = 1, 12000 do
      local _y = x + 1
      local t = env.now()
      worst, last = math.max(worst, t - last), t
    end
    local us = (last - start) / 12000
    return {us_min = us, us_median = us, n = 12000, peak_rss_mb = env.status("VmHWM"), longest_pause_ms = worst / 1000}
  end},
}
