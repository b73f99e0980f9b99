-- Jobs: functions that run in slices of time, such as a training loop inside the frames of a game.
local core = ...
local args = core.require("support.args")
local class = core.require("support.class")
local jobs = {}

local Job = class.new("Job")
Job._kind = "Job"

--- pg.job(f, …) -> a job that calls f(…) in slices: see job:step. f needs no change: it is stopped between two ops,
--- between two steps of loops and of compiled plans, in kernels between the parts that a thread runs, and in plain Lua
--- code. Not stopped are traces and, in a Lua state that the library did not open, Lua code without ops. Between slices
--- others see parameters and `.grad` as the last complete op or program left them. A job begins outside of pg.record and
--- other scopes of its caller, with a copy of the default random state. While a slice runs, LuaJIT's compiler is off, and
--- it never compiles f.
--- Example: local job = pg.job(function(n) return pg.ones(n):sum() end, 3)
--- while not job:step(0.002) do end
--- return job:result()
function jobs.job(f, ...)
  args.callable("job", "f", f)
  local job = Job()
  rawset(job, "_handle", core.job_start(f, ...))
  return job
end

local function checked(ok, ...)
  if ok == false then core.reraise((select(1, ...))) end
  return ok, ...
end

--- job:step(seconds) -> whether the job is done. Runs the job for about that long, at least up to the next place where
--- it can stop. Raises the error of the job, also in later calls. Does nothing when the job is done.
--- Example: return pg.job(math.sqrt, 4):step(1)
function Job:step(seconds)
  if type(seconds) ~= "number" or seconds ~= seconds then core.arg_error("job:step", "seconds", "a number", seconds) end
  local _, done = checked(core.job_step(self._handle, seconds))
  return done
end

--- job:done() -> whether the job has ended, also by an error.
function Job:done() return core.job_done(self._handle) end

local function results(ok, ...)
  if ok == nil then core.fail("job:result", "the job is not done; call job:step until it returns true") end
  checked(ok, ...)
  return ...
end

--- job:result() -> what the function of the job returned. Raises the error of the job.
function Job:result() return results(core.job_results(self._handle)) end

--- job:progress() -> the number that the job passed to pg.progress last, or 0.
function Job:progress() return core.job_progress(self._handle) end

--- job:release() ends the job: if it is not done, an error is raised where it is suspended, and its calls of pcall do
--- not keep it running. A job that runs ends with its slice. The collector releases jobs that nothing refers to.
function Job:release() core.job_release(self._handle) end

--- pg.yield() gives the rest of the slice back, inside a job. It does nothing outside of a job and during a trace.
--- Example: return pg.job(function() pg.yield() end):step(1)
function jobs.yield() core.job_yield() end

--- pg.progress(fraction) sets what job:progress() returns, inside a job. It does nothing outside of a job.
--- Example: local job = pg.job(function() pg.progress(0.4) end)
--- job:step(1)
--- return job:progress()
function jobs.progress(fraction) core.report_progress(fraction) end

return jobs
