-- Jobs: functions that run in slices. A step of 0 seconds ends at the next place where the job can be suspended.
local t = require "tests.support"
local pg = require "perigee"

-- Runs f in slices of 0 seconds with between(slice) after each. Returns the number of slices and what f returns.
local function sliced(f, between, ...)
  local job, slices = pg.job(f, ...), 0
  repeat
    local done = job:step(0)
    slices = slices + 1
    if between then between(slices) end
  until done
  return slices, job:result()
end

t.test("a job gives its arguments and results through, nils too", function()
  local job = pg.job(function(...) return select("#", ...), ... end, 1, nil, "x", nil)
  t.equal(job:done(), false)
  t.error_contains(function() job:result() end, "job:result: the job is not done")
  t.equal(job:step(1e3), true)
  t.equal({job:done(), select("#", job:result())}, {true, 5})
  local n, a, b, c = job:result()
  t.equal({n, a, tostring(b), c}, {4, 1, "nil", "x"})
  t.equal(job:step(0), true)
  t.equal(pg.job(function() end):step(math.huge), true)
end)

t.test("each op is a place to stop", function()
  local seen = {}
  local slices, y = sliced(function()
    local x = pg.ones(3)
    for i = 1, 5 do
      x = x * 2
      seen[i] = true
    end
    return x
  end, function(slice) t.check(#seen <= slice) end)
  t.check(slices > 5, slices .. " slices")
  t.equal(y, {32, 32, 32})
end)

t.test("pcall, sort, gsub, metamethods and coroutines are no obstacles", function()
  local function work()
    local out = {}
    local ok, e = pcall(function()
      pg.ones(2):sum()
      error("mine", 0)
    end)
    out[1], out[2] = ok, e
    local list = {3, 1, 2}
    table.sort(list, function(a, b) return pg.tensor(a):item() < pg.tensor(b):item() end)
    out[3] = table.concat(list)
    out[4] = ("abc"):gsub(".", function(c) return c .. pg.ones(2):sum():item() end)
    local object = setmetatable({}, {__index = function(_, k) return pg.ones(k):sum():item() end, __tostring = function() return "o" .. pg.ones(2):sum():item() end})
    out[5], out[6] = object[3], tostring(object)
    local make = coroutine.wrap(function() for i = 1, 3 do coroutine.yield(pg.tensor(i):item()) end end)
    out[7] = make() + make() + make()
    return table.concat({tostring(out[1]), out[2], out[3], out[4], out[5], out[6], out[7]}, " ")
  end
  local slices, text = sliced(work)
  t.equal(text, work())
  t.check(slices > 15, slices .. " slices")
end)

t.test("coroutine.yield in the job's own coroutine gives the slice back", function()
  local job = pg.job(function() return coroutine.yield(1, 2), 3 end)
  t.equal(job:step(1e3), false)
  t.equal(job:step(1e3), true)
  local a, b = job:result()
  t.equal({tostring(a), b}, {"nil", 3})
end)

t.test("pg.yield gives the rest of the slice back, and does nothing elsewhere", function()
  pg.yield()
  local job = pg.job(function(x)
    pcall(pg.yield)
    pg.yield()
    return x + 1
  end, pg.ones(1))
  t.equal({job:step(1e3), job:step(1e3), job:step(1e3)}, {false, false, true})
  t.equal(job:result(), {2})
end)

t.test("pg.progress reports", function()
  pg.progress(0.2)
  local job = pg.job(function()
    pg.progress(0.25)
    pg.yield()
    pg.progress(0.5)
  end)
  t.equal(job:progress(), 0)
  job:step(1e3)
  t.equal(job:progress(), 0.25)
  job:step(1e3)
  t.equal(job:progress(), 0.5)
  t.error_contains(pg.progress, "progress: bad argument 'fraction' (expected a number, got \"x\")", "x")
end)

t.test("arguments are checked", function()
  t.error_contains(function() pg.job(3) end, "job: bad argument 'f' (expected a function")
  t.error_contains(function() pg.job(print):step() end, "job:step: bad argument 'seconds' (expected a number")
  t.error_contains(function() pg.job(print):step(0 / 0) end, "job:step: bad argument 'seconds'")
end)

-- Plain Lua ----------------------------------------------------------------------------------------------------------

local go_on, turns
local function spin()
  while not go_on do turns = turns + 1 end
  return turns
end
local function spin_below(f) return function() return f(spin) end end

local loops = {
  ["a loop"] = spin,
  ["a loop below pcall"] = spin_below(function(f) return select(2, pcall(f)) end),
  ["a loop in a coroutine"] = spin_below(function(f) return coroutine.wrap(f)() end),
  ["a loop below table.sort"] = spin_below(function(f)
    local n
    table.sort({2, 1}, function(a, b)
      n = n or f()
      return a < b
    end)
    return n
  end),
}
for name, loop in pairs(loops) do
  t.test(name .. " without ops is stopped, also if it was compiled before", function()
    go_on, turns = false, 0
    local job = pg.job(loop)
    for _ = 1, 3 do t.equal(job:step(0), false) end
    while turns == 0 do t.equal(job:step(0), false) end  -- a slice may end before the loop starts
    local others = 0  -- the host's Lua runs at its usual speed
    for i = 1, 1000 do others = others + i end
    go_on = true
    while not job:step(0) do end
    t.check(job:result() > 0)
  end)
end

t.test("two loops without ops take turns", function()
  go_on, turns = false, 0
  local a, b = pg.job(spin), pg.job(loops["a loop in a coroutine"])
  for _ = 1, 3 do t.equal({a:step(0), b:step(0)}, {false, false}) end
  go_on = true
  while not (a:step(0) and b:step(0)) do end
end)

t.test("finalizers are not interrupted, and a stopped collector does not keep a job from stopping", function()
  local finalized = 0
  local function work()
    for _ = 1, 5 do
      getmetatable(newproxy(true)).__gc = function()
        finalized = finalized + pg.ones(2):sum():item()
      end
      collectgarbage()
    end
    return "done"
  end
  local _, text = sliced(work, function()
    t.check(finalized % 2 == 0)
    collectgarbage("step", 100)
  end)
  t.equal({text, finalized}, {"done", 10})
  collectgarbage("stop")
  local slices = sliced(function() for _ = 1, 5 do pg.yield() end return pg.ones(2):sum() end)
  collectgarbage("restart")
  t.check(slices > 5, slices .. " slices")
end)

-- Errors and ends ----------------------------------------------------------------------------------------------------

t.test("an error of the job is raised by step, again by later steps and by result", function()
  local function fails()
    pg.ones(2):sum()
    error("broken")
  end
  local job = pg.job(fails)
  local function run() while not job:step(0) do end end
  t.error_contains(run, "test_jobs.lua:" .. debug.getinfo(fails, "S").linedefined + 2 .. ": broken")
  t.error_contains(function() job:step(0) end, "broken")
  t.error_contains(function() job:result() end, "broken")
  t.equal(job:done(), true)
  local value = {}
  local other = pg.job(error, value)
  local ok, e = pcall(other.step, other, 1)
  t.check(not ok and e == value)
  local silent = setmetatable({}, {__tostring = function() error("no text") end})
  other = pg.job(error, silent)
  ok, e = pcall(other.step, other, 1)
  t.check(not ok and rawequal(e, silent))
  t.error_contains(function() pg.job(function() return pg.ones(2) + pg.ones(3) end):step(1) end, "add: ")
end)

t.test("release ends a job that pcall would keep running", function()
  local log, hook = {}, debug.gethook()
  local function stubborn(inner)
    return function()
      while true do
        pcall(inner)
        xpcall(inner, function(e) return e end)
        xpcall(inner, spin)
        log[#log + 1] = true
      end
    end
  end
  go_on = false
  for _, inner in ipairs{function() pg.ones(2):sum() end, spin, function() coroutine.wrap(spin)() end} do
    for steps = 0, 4 do
      local job = pg.job(stubborn(inner))
      for _ = 1, steps do job:step(0) end
      local before = #log
      job:release()
      t.equal(#log, before)
      t.equal(debug.gethook(), hook)
      t.error_contains(function() job:step(0) end, "this job was released, or its state is closed")
      job:release()
    end
  end
  local finished = pg.job(function() return 1 end)
  finished:step(1)
  finished:release()
  t.error_contains(function() finished:result() end, "job:result: this job was released")
end)

t.test("release closes the scopes of the job, not those of its host", function()
  local job = pg.job(function() pg.record(function() for _ = 1, 10 do pg.ones(2):sum() end end) end)
  pg.record(function()
    for _ = 1, 4 do job:step(0) end
    t.check(pg.is_recording())
    job:release()
    t.check(pg.is_recording())
  end)
  t.check(not pg.is_recording())
end)

t.test("the collector ends jobs that nothing refers to", function()
  local gone = setmetatable({}, {__mode = "k"})
  for steps = 0, 3 do
    local held = {}
    gone[held] = true
    local job
    job = pg.job(function()
      for _ = 1, 10 do pg.ones(2):sum() end
      return held, job
    end)
    for _ = 1, steps do job:step(0) end
  end
  for _ = 1, 4 do
    collectgarbage()
    pg.ones(1)  -- the next op ends them
  end
  t.equal(next(gone), nil)
end)

t.test("a job releases itself, and cannot step itself", function()
  local job
  job = pg.job(function()
    job:release()
    return 1
  end)
  job:step(1)
  t.equal(job:done(), true)
  job = pg.job(function()
    job:release()
    while true do pcall(function() pg.ones(1):sum() end) end
  end)
  t.error_contains(function() while true do job:step(0) end end, "job:step: this job was released during its slice")
  job = pg.job(function() return pcall(job.step, job, 0) end)
  job:step(1)
  local ok, e = job:result()
  t.check(not ok and e:find("a job cannot step itself", 1, true), e)
end)

-- Jobs and their hosts -----------------------------------------------------------------------------------------------

t.test("a job makes and steps a job", function()
  local slices, n, y = sliced(function()
    return sliced(function()
      local x = pg.ones(2)
      for _ = 1, 3 do x = x + 1 end
      return x
    end, function() pg.ones(1):sum() end)
  end)
  t.equal(y, {4, 4})
  t.check(slices > n, slices .. " and " .. n .. " slices")
end)

t.test("a hundred jobs take turns", function()
  local jobs, sum = {}, 0
  for i = 1, 100 do
    jobs[i] = pg.job(function()
      local x = pg.zeros(1)
      for _ = 1, 3 do x = x + i end
      return x:item()
    end)
  end
  local running = 100
  while running > 0 do
    for i, job in pairs(jobs) do
      if job:step(0) then
        jobs[i], running, sum = nil, running - 1, sum + job:result()
      end
    end
  end
  t.equal(sum, 3 * 5050)
end)

t.test("scopes of the job and of its host do not meet", function()
  local inside, outside = {}, {}
  local job = pg.job(function()
    inside[1] = pg.is_recording()
    pg.record(function()
      for _ = 1, 4 do
        pg.ones(2):sum()
        inside[#inside + 1] = pg.is_recording() and pg.is_training()
      end
    end)
    inside[#inside + 1] = pg.is_recording()
  end)
  local done
  repeat
    outside[#outside + 1] = pg.is_recording() or pg.is_training()
    pg.predict_mode(function() done = job:step(0) end)
    pg.record(function()
      if not done then done = job:step(0) end
      outside[#outside + 1] = not pg.is_recording()
    end)
  until done
  t.equal(inside, {false, true, true, true, true, false})
  for _, wrong in ipairs(outside) do t.check(not wrong) end
end)

t.test("a coroutine takes its scopes along, from host to job and back", function()
  local make = function()
    return coroutine.wrap(function()
      return pg.record(function()
        for _ = 1, 3 do
          pg.ones(1):sum()
          coroutine.yield(pg.is_recording())
        end
        return pg.is_recording()
      end)
    end)
  end
  local co = make()
  t.equal({co(), pg.is_recording()}, {true, false})
  local job = pg.job(function() return co(), pg.is_recording() end)
  repeat t.check(not pg.is_recording()) until job:step(0)
  t.equal({job:result()}, {true, false})
  t.equal({co(), co(), pg.is_recording()}, {true, true, false})
end)

t.test("tensors of pg.scope belong to the side that made them", function()
  local kept
  local job = pg.job(function()
    return pg.scope(function()
      local x = pg.ones(2)
      x:sum()
      return x * 2
    end)
  end)
  pg.scope(function()
    job:step(0)
    job:step(0)
    kept = pg.keep(pg.ones(3))
  end)
  while not job:step(0) do end
  t.equal(job:result(), {2, 2})
  t.equal(kept, {1, 1, 1})
end)

t.test("backward functions of job and host run in turn, with collections between", function()
  local F = pg.autograd.Function{
    forward = function(ctx, x) ctx.saved = {x} return x * x end,
    backward = function(ctx, dy) return ctx.saved[1] * dy * 2 end,
  }
  local function gradient(n)
    local x = pg.full({2}, n):attach_grad()
    pg.record(function() return F(F(x)):sum() end):backward()
    return x.grad:totable()[1]
  end
  local slices, n = sliced(gradient, function(slice)
    t.equal(gradient(2), 32)
    if slice % 5 == 0 then collectgarbage() end
  end, 3)
  t.equal(n, 108)
  t.check(slices > 10)
end)

t.test("traced code is not stopped, and cannot run jobs", function()
  local f = pg.jit(function(x)
    pg.yield()
    return x + 1
  end)
  t.equal(select(2, sliced(function() return f(pg.ones(1)) + f(pg.ones(1)) end)), {4})
  local job = pg.job(function() end)
  t.error_contains(function() pg.jit(function(x) job:step(0) return x end)(pg.ones(1)) end, "traced function")
end)

t.test("pg.debug in a job does not switch graphs off for the host", function()
  local job = pg.job(function() pg.debug(function() for _ = 1, 5 do pg.ones(1):sum() end end) end)
  job:step(0)
  job:step(0)
  job:step(0)
  t.equal(pg.testing.graphs_off(), false)
  while not job:step(0) do end
end)

t.test("an op in place is seen whole", function()
  local x = pg.zeros(1000)
  sliced(function() for _ = 1, 5 do x:add_(1) x:mul_(2) end end, function()
    local list = x:totable()
    t.equal(list[1], list[1000])
  end)
  t.equal(x:sum():item(), 62000)
end)

t.test("an update in place of a tensor that the host changes meanwhile does no harm", function()
  local step = pg.jit(function(x, w)
    w:add_(x)
    return w:sum()
  end)
  local w = pg.zeros(3)
  step(pg.ones(3), w)
  sliced(function() return step(pg.ones(3), w) end, function() w:mul_(2) end)
  t.equal(w:size(1), 3)
end)

t.test("a job that adds rows by position looks at the positions as often as without a job", function()
  local rows, columns, count = 2000, 64, 50000
  local at, w = pg.randint(1, rows, {count}), pg.ones(rows, columns):attach_grad()
  local expected = at:bincount{minlength = rows}:to("float32"):reshape(rows, 1):expand{rows, columns}
  local slices, sums = sliced(function() return pg.zeros(rows, columns):index_add(1, at, pg.ones(count, columns)) end)
  t.check(sums:equal(expected))
  t.check(slices < 200, slices)
  local loss = pg.record(function() return pg.embedding_bag(at, w, pg.ones(1, {dtype = "int64"}), {mode = "sum"}) end)
  slices = sliced(function() loss:backward() end)
  t.check(w.grad:equal(expected))
  t.check(slices < 200, slices)
end)
