-- Cycles through histories are freed: leaf, gradient, history, leaf; and tensor, history, backward function, tensor.
-- Tensors that a script can still reach are kept.
local t = require "tests.support"
local pg = require "perigee"
local testing = pg.testing

local rounds = t.mode == "gcstress" and 100 or 2000
local kBytes = 4000  -- per tensor below

local function collect()
  for _ = 1, 3 do collectgarbage() end
  local memory = pg.memory()
  return memory.live, memory.tensors
end

-- Runs f many times. Afterwards there may be at most `most` bytes and tensors more than after the first runs.
local function flat(f, most, most_tensors)
  for _ = 1, 200 do f() end
  testing.collect()
  local live, tensors = collect()
  for _ = 1, 2 do
    for _ = 1, rounds / 2 do f() end
    local now, tensors_now = collect()
    t.check(now - live <= most, ("%d bytes stay"):format(now - live))
    t.check(tensors_now - tensors <= most_tensors, ("%d tensors stay"):format(tensors_now - tensors))
  end
end

local function leaf() return pg.ones(kBytes / 4):attach_grad() end

t.test("gradients with a history are freed with their leaves", function()
  flat(function()
    local x = leaf()
    pg.record(function() (x * x * x):sum():backward{create_graph = true} end)
  end, 0, 0)
  flat(function()  -- several leaves whose gradients refer to each other
    local x, y = leaf(), leaf()
    pg.record(function() (x * y * x):sum():backward{create_graph = true} end)
    pg.record(function() (x.grad * y.grad):sum():backward{create_graph = true} end)
  end, 0, 0)
  flat(function()
    local x = leaf()
    x.grad_req = "add"
    for _ = 1, 2 do pg.record(function() (x * x):sum():backward{create_graph = true} end) end
  end, 0, 0)
end)

t.test("gradients from graphs are freed with their leaves", function()
  local f = pg.jit(function(x) return (x * x * x):sum() end)
  flat(function()
    local x = leaf()
    pg.record(function() f(x):backward{create_graph = true} end)
  end, 0, 0)
end)

-- The collector looks when as many functions again as were left the last time, and 64 more, live. How many were left
-- depends on where Lua's collector was: some hundreds of the rounds, where a leak keeps them all.
local kPending = rounds == 2000 and 300 or 80

local function held_by_function(through)
  local double = pg.autograd.Function
  return function()
    local x, out = leaf(), nil
    local f = double{name = "double", forward = function(_, v) return v * 2 end, backward = function(_, dy) return dy * 2, out and nil end}
    pg.record(function() out = through(f(x)) end)
  end
end

t.test("a Function that refers to its output is freed", function()
  flat(held_by_function(function(y) return y end), kPending * 6 * kBytes, kPending * 6)
  flat(held_by_function(function(y) return (y * y):sum() end), kPending * 8 * kBytes, kPending * 8)
  flat(function()  -- two that hold each other's
    local x, a, b = leaf(), nil, nil
    local Function = pg.autograd.Function
    local f = Function{name = "f", forward = function(_, v) return v * 2 end, backward = function(_, dy) return dy * 2, b and nil end}
    local g = Function{name = "g", forward = function(_, v) return v * 3 end, backward = function(_, dy) return dy * 3, a and nil end}
    pg.record(function() a = f(x) b = g(a) end)
  end, kPending * 8 * kBytes, kPending * 8)
end)

t.test("a Function that refers to its input is freed with the gradient's history", function()
  flat(function()
    local x = leaf()
    local f = pg.autograd.Function{name = "f", forward = function(_, v) return v * 2 end,
                                   backward = function(_, dy) return dy * 2, x and nil end}
    pg.record(function()
      local y = f(x)
      return (y * y):sum()
    end):backward{create_graph = true}
  end, kPending * 8 * kBytes, kPending * 8)
end)

t.test("a checkpoint that refers to its output is freed", function()
  flat(function()
    local x, out = leaf(), nil
    local function f(v) return (v * v):tanh(), out and nil end
    pg.record(function() out = pg.checkpoint(f, x) end)
  end, kPending * 6 * kBytes, kPending * 6)
end)

-- What is still of use --------------------------------------------------------------------------------------------------------

-- y = scale * x by a Function that only the history of y refers to.
local function scaled(x, scale)
  local f = pg.autograd.Function{name = "scaled", forward = function(_, v) return v * scale end, backward = function(_, dy) return dy * scale end}
  return f(x)
end

t.test("functions live while a tensor refers to them", function()
  local xs, ys = {}, {}
  for i = 1, 20 do
    xs[i] = leaf()
    pg.record(function()
      local y = scaled(xs[i], i)
      if i % 3 == 0 then y = (y * y):sum() elseif i % 3 == 1 then y = pg.checkpoint(function(v) return (v * 2):sum() end, y) end
      ys[i] = y
    end)
  end
  for _ = 1, 3 do testing.collect() end
  for i = 1, 20 do  -- histories that are made after the last check
    pg.record(function() ys[i] = (ys[i] * 3):sum() end)
    testing.collect()
    ys[i]:backward()
    local want = i % 3 == 0 and 6 * i * i or i % 3 == 1 and 6 * i or 3 * i
    t.equal(xs[i].grad[1]:item(), want)
  end
end)

t.test("functions live while a gradient's history refers to them", function()
  local x = leaf()
  pg.record(function()
    local y = scaled(x, 2)
    ;(y * y * y):sum():backward{create_graph = true}
  end)
  for _ = 1, 3 do testing.collect() end
  pg.memory()
  t.equal(x.grad[1]:item(), 24)
  pg.record(function() return x.grad:sum() end):backward()
  t.equal(x.grad[1]:item(), 48)
end)

t.test("gradients with a history live while something refers to them", function()
  local function make()
    local x = leaf()
    local y = pg.record(function() return (x * x * x):sum() end)
    y:backward{create_graph = true}
    return x, y
  end
  local g
  do
    local x = make()
    g = x.grad
  end
  collect()
  t.check(g.requires_grad)
  t.equal(pg.autograd.grad(pg.record(function() return g:sum() end), g)[1]:item(), 1)
  local x = make()
  collect()
  t.check(x.grad.requires_grad)
  local y = select(2, make())
  collect()
  y:backward()
end)

t.test("a leaf that only a history refers to keeps the history of its gradient", function()
  local seen
  local function make()
    local x = leaf()
    pg.record(function() (x * x):sum():backward{create_graph = true} end)
    local f = pg.autograd.Function{name = "f", forward = function(ctx, v) ctx.v = v return v * 2 end,
                                   backward = function(ctx, dy) seen = ctx.v.grad.requires_grad return dy * 2 end}
    return pg.record(function() return f(x):sum() end)
  end
  local y = make()
  collect()
  y:backward()
  t.check(seen)
end)

t.test("a collection inside of a backward function changes nothing", function()
  local x = leaf()
  local f = pg.autograd.Function{name = "f", forward = function(_, v) return v * 2 end,
                                 backward = function(_, dy) testing.collect() return dy * 2 end}
  local y = pg.record(function() return f(f(f(x))):sum() end)
  f = nil
  testing.collect()
  y:backward()
  t.equal(x.grad[1]:item(), 8)
end)
