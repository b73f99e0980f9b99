-- pg.print, x:tap and pg.live act in every run, hybridized too.
local t = require "tests.support"
local pg = require "perigee"

t.test("tap sees the value of every run, and gradients pass it", function()
  local seen = {}
  local f = pg.jit(function(x) return (x * 2):tap(function(v) seen[#seen + 1] = v:sum():item() end) + 1 end)
  t.equal(f(pg.tensor{1, 2}):totable(), {3, 5})
  t.equal(f(pg.tensor{3, 4}):totable(), {7, 9})
  t.equal(f(pg.tensor{5}):totable(), {11})
  t.equal(seen, {6, 14, 10})
  local w = pg.tensor{1, 2}:attach_grad()
  pg.record(function() return f(w):sum() end):backward()
  t.equal(w.grad:totable(), {2, 2})
end)

t.test("an error in a tap fails the run and changes nothing", function()
  local total = pg.zeros(2)
  local bad = false
  local f = pg.jit(function(x)
    total:add_(x)
    x:tap(function() if bad then error("no more") end end)
    return total * 1
  end)
  f(pg.ones(2))
  bad = true
  t.error_contains(function() f(pg.ones(2)) end, "no more")
  t.equal(total:totable(), {1, 1})
  bad = false
  t.equal(f(pg.ones(2)):totable(), {2, 2})
end)

t.test("endless recursion through a tap is an error", function()
  local x = pg.ones(1)
  local function recursion(make)
    local f
    local function call() return f(x) end
    f = make(call)
    local e = t.error_contains(call, "nested calls of functions by graphs or backward")
    t.equal(pg.jit(function(v) return v:tap(function() end) + 1 end)(x):item(), 2, e)
    t.check(not pg.is_recording())
  end
  recursion(function(call) return pg.jit(function(v) return (v * 2):tap(call) end) end)
  recursion(function(call)
    return pg.jit(function(v) return (v * 2):tap(function() coroutine.wrap(call)() end) end)
  end)
  recursion(function(call)
    return pg.jit(function(v)
      return pg.loop(2, function(_, s)
        return pg.cond(s:sum():gt(0), function() return s:tap(call) + 1 end, function() return s end)
      end, v)
    end)
  end)
  recursion(function(call)
    local inner = pg.jit(function(v) return v:tap(call) end)
    local twice = pg.autograd.Function{
      forward = function(_, v) return v * 2 end,
      backward = function(_, dy) inner(x) return dy end,
    }
    return function(v)
      local w = v:clone():attach_grad()
      pg.record(function() return twice(w):sum() end):backward()
    end
  end)
end)

t.test("taps of other functions nest", function()
  local calls, f = 0, nil
  f = pg.jit(function(v)
    return v:tap(function(s)
      calls = calls + 1
      if s:item() < 40 then f(s + 1) end
    end)
  end)
  for _ = 1, 3 do f(pg.ones(1)) end
  t.equal(calls, 120)
end)

t.test("print prints at every run", function()
  local script = [[
    local pg = require "perigee"
    local f = pg.jit(function(x) pg.print("h", x) return x + 1 end)
    f(pg.tensor{1, 2}) f(pg.tensor{3, 4})
    pg.print("eager", pg.tensor(7))
  ]]
  local out = t.run("-e '" .. script:gsub("%s+", " ") .. "'")
  t.check(out:find("h\n{1, 2}", 1, true) and out:find("h\n{3, 4}", 1, true) and out:find("eager 7", 1, true), out)
end)

t.test("live numbers do not trace again", function()
  local rate = 0.5
  local f = pg.jit(function(x) return x * pg.live(function() return rate end) end)
  t.equal(f(pg.tensor{2}):totable(), {1})
  rate = 3
  t.equal(f(pg.tensor{2}):totable(), {6})
  t.equal(f:cache_info().traces, 1)
  t.equal(pg.live(function() return 4 end):item(), 4)
end)

t.test("reading the value of a traced tensor fails even if the error is caught", function()
  for name, read in pairs{
    item = function(x) return x:sum():item() end, totable = function(x) return x:totable() end,
    equal = function(x) return x:equal(x) end, allclose = function(x) return x:allclose(x) end,
  } do
    local f = pg.jit(function(x) pcall(read, x) return x + 1 end)
    t.error_contains(function() f(pg.ones(2)) end, "pg.cond")
    t.error_contains(function() f(pg.ones(2)) end, name == "item" and "test_effects.lua" or "traced")
  end
end)

t.test("effects in the backward of a Function run once, in branches at any order", function()
  local count
  local Cube = pg.autograd.Function{
    name = "Cube",
    forward = function(ctx, x) ctx.saved = {x} return x * x * x end,
    backward = function(ctx, dy)
      dy:tap(function() count = count + 1 end)
      local x = ctx.saved[1]
      return dy * 3 * x * x
    end,
  }
  local forms = {
    plain = function(v) return Cube(v) end,
    cond = function(v) return pg.cond(v:gt(0), function() return Cube(v) end, function() return v end) end,
    nested = function(v)
      return pg.cond(v:gt(0), function() return pg.loop(1, function(_, s) return Cube(s) end, v) end, function() return v end)
    end,
    loop = function(v) return pg.loop(1, function(_, s) return Cube(s) end, v) end,
    foreach = function(v) return (pg.foreach(function(s) return Cube(s) end, v:reshape{1})):sum() end,
    while_loop = function(v)
      local _, vars = pg.while_loop(function(s) return s:lt(7) end, function(s) return nil, {Cube(s)} end, {v})
      return vars[1]
    end,
  }
  local in_loops = {nested = true, loop = true, foreach = true, while_loop = true}  -- their gradients run bodies again
  for name, f in pairs(forms) do
    for order, expected in ipairs(in_loops[name] and {12} or {12, 12, 6}) do
      local g = f
      for _ = 1, order do g = pg.grad(g) end
      for way, run in pairs{eager = g, jit = pg.jit(g)} do
        for _ = 1, 2 do
          count = 0
          t.equal(run(pg.tensor(2)):item(), expected)
          t.equal(count, 1, ("%s, %s, order %d"):format(name, way, order))
        end
      end
    end
  end
end)

t.test("a net with a tap cannot be exported: the error names the block and the line", function()
  local function tapped() return pg.nn.block{forward = function(_, x) x:tap(function() end) return x * 2 end} end
  local net = pg.nn.HybridSequential{tapped(), pg.nn.Dense(2)}
  net:initialize()
  net:hybridize()
  net(pg.ones(1, 3))
  local text = "tap: a function of the script cannot be part of an exported or frozen graph"
  local function refuse(f)
    local _, err = pcall(f)
    t.check(err:find("test_effects.lua:%d+: ") and err:find(text, 1, true) and err:find("in block '1'", 1, true), err)
  end
  refuse(function() net:export(t.tmp "tapped") end)
  refuse(function() net:freeze() end)
  local w = pg.ones(2):attach_grad()
  local step = pg.jit(function(x)
    local l = pg.record(function() return (w * x):tap(function() end):sum() end)
    l:backward()
    return l
  end)
  step(pg.ones(2))
  t.error_contains(function() step:export(t.tmp "step") end, text)
end)
