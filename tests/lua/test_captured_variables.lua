-- Functions that each run of a graph calls (pg.live, x:tap) read the variables that they would read in plain Lua.
local t = require "tests.support"
local pg = require "perigee"

local function number(x) return x:item() end

t.test("pg.live and tap in the body of a loop read the variables of each call", function()
  local function run(x, state)
    local steps, sums = 0, {}
    local y = pg.loop(3, function(_, h)
      h:tap(function(v)
        steps = steps + 1
        sums[steps] = v:sum():item()
      end)
      return h * pg.live(function() return state.rate end)
    end, x)
    return y, steps, sums
  end
  for _, rate in ipairs{2, 3, 1, 2} do
    local y, steps, sums = run(pg.ones(1), {rate = rate})
    t.equal({number(y), steps, sums}, {rate ^ 3, 3, {1, rate, rate ^ 2}})
  end
end)

t.test("functions of a function in a body", function()
  local function run(rate)
    local function factor() return rate.value end
    local function twice() return factor() * 2 end
    return number(pg.loop(2, function(_, h) return h * pg.live(function() return twice() end) + pg.live(factor) * 0 end, pg.ones(1)))
  end
  for _, rate in ipairs{1, 2, 3} do t.equal(run{value = rate}, 4 * rate ^ 2) end
end)

t.test("a body that runs its own call site again", function()
  local function run(depth, names)
    local name = "level " .. depth
    return pg.loop(2, function(_, h)
      h:tap(function() names[#names + 1] = name end)
      h:tap(function() if depth > 1 and #names < 6 then run(depth - 1, names) end end)
      return h * 1
    end, pg.ones(1))
  end
  for _ = 1, 2 do
    local names = {}
    run(1, names)
    t.equal(names, {"level 1", "level 1"})
    names = {}
    run(2, names)
    t.equal(names, {"level 2", "level 1", "level 1", "level 2", "level 1", "level 1"})
  end
end)

t.test("a call site that other calls reach while a job runs it for the first time", function()
  local function run(name, log, steps)
    return pg.loop(steps, function(_, h)
      h:tap(function() log[#log + 1] = name end)
      return h * 1
    end, pg.ones(1))
  end
  local own, other = {}, {}
  local job = pg.job(function() run("job", own, 20) end)
  while not job:step(1e-6) do run("host", other, 1) end
  t.equal(#own, 20)
  for _, name in ipairs(own) do t.equal(name, "job") end
  for _, name in ipairs(other) do t.equal(name, "host") end
end)

t.test("a jitted function whose local variables hold other tables", function()
  t.may_warn("was replaced by another table")
  local held = {rate = 1}
  local settings = {inner = {rate = 1}}
  local f = pg.jit(function(x)
    local now, inner = held, settings.inner
    return x * pg.live(function() return now.rate end) + pg.live(function() return inner.rate end)
  end)
  for rate = 1, 5 do
    held = {rate = rate}
    t.equal(number(f(pg.ones(1))), rate + settings.inner.rate)
    settings.inner = {rate = 10 * rate}
    t.equal(number(f(pg.ones(1))), 11 * rate)
    held.rate = 7
    t.equal(number(f(pg.ones(1))), 7 + 10 * rate)
  end
end)

t.test("tables among the arguments of a jitted function", function()
  t.may_warn("was replaced by another table")
  local function reader(config) return function() return config.rate end end
  local f = pg.jit(function(x, config) return x * pg.live(reader(config)) end)
  for rate = 1, 5 do t.equal(number(f(pg.ones(1), {rate = rate})), rate) end
  local kept = {rate = 1}
  f(pg.ones(1), kept)
  local traces = f:cache_info().traces
  for rate = 2, 5 do
    kept.rate = rate
    t.equal(number(f(pg.ones(1), kept)), rate)
  end
  t.equal(f:cache_info().traces, traces)
end)

t.test("another function in the place of the one that pg.live or tap got", function()
  t.may_warn("was replaced by another function")
  local seen = {}
  local function caller(name) return function() seen[#seen + 1] = name end end
  local function constant(rate) return function() return rate end end
  local hooks = {tap = caller("a"), rate = constant(1)}
  local f = pg.jit(function(x)
    x:tap(hooks.tap)
    return x * pg.live(hooks.rate)
  end)
  for i, name in ipairs{"b", "c", "d", "e"} do
    hooks.tap, hooks.rate = caller(name), constant(i)
    t.equal({number(f(pg.ones(1))), seen[#seen]}, {i, name})
  end
end)

t.test("what the variables of pg.live reach may change without a new trace", function()
  local net = pg.nn.block{rate = 1, forward = function(self, x)
    return pg.loop(2, function(_, h) return h * pg.live(function() return self.rate end) end, x)
  end}
  net:hybridize()
  local total = 0
  local f = pg.jit(function(x)
    x:tap(function(v) total = total + v:item() end)
    return x * pg.live(function() return total end)
  end)
  for rate = 1, 5 do
    net.rate = rate
    t.equal(number(net(pg.ones(1))), rate ^ 2)
    t.equal(number(f(pg.ones(1))), rate - 1)
  end
  t.equal(net:cache_info().traces, 1)
  t.equal(f:cache_info().traces, 1)
end)
