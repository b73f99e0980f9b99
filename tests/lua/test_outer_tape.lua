-- Gradients in traced functions and bodies that flow through tensors recorded before the trace, and those of leaves
-- that a trace makes.
local t = require "tests.support"
local pg = require "perigee"
local T = pg.tensor

-- f(mode) must return the same in plain Lua, eagerly, jitted and in a hybridized block. Functions that no graph can hold
-- run as plain Lua and say so once.
local function same(f, expected)
  local plain = pg.debug(f)
  if expected then t.close(plain, expected) end
  local block = pg.nn.block{forward = function(_, x) return f() + x * 0 end}
  block:initialize()
  block:hybridize()
  local jitted = pg.jit(f)
  local warned = t.warnings(function()
    for call = 1, 3 do
      t.close(f(), plain, {what = "eager, call " .. call})
      t.close(jitted(), plain, {what = "jit, call " .. call})
      t.close(block(pg.zeros{}), plain, {what = "block, call " .. call})
    end
  end)
  return warned
end

t.test("a vjp taken before a loop over its cotangents", function()
  local x = T{1, 2, 3}
  local _, back = pg.vjp(function(a) return a * a end, x)
  same(function() return (pg.foreach(function(e) return (back(e)) end, pg.eye(3))) end, T{{2, 0, 0}, {0, 4, 0}, {0, 0, 6}})
  same(function() return (back(T{1, 0, 2})) end, T{2, 0, 12})
end)

t.test("part of the gradient flows inside, part outside", function()
  local p = T{1, 2, 3}:attach_grad()
  local h = pg.record(function() return p * p end)
  same(function()
    local y = pg.record(function() return h + 3 * p end)
    return pg.autograd.grad({y}, {p}, {retain_graph = true})[1]
  end, T{5, 7, 9})
  same(function()  -- from inside to a tensor of before, no further
    return pg.autograd.grad({pg.record(function() return h * h end)}, {h}, {retain_graph = true})[1]
  end, T{2, 8, 18})
  same(function()
    local y = pg.record(function() return h + 3 * p end)
    y:backward{retain_graph = true}
    return p.grad * 1
  end, T{5, 7, 9})
end)

t.test("a body takes a gradient through the results of its function", function()
  local w = T{2, 3}:attach_grad()
  same(function()
    return pg.record(function()
      local y = w * w
      return (pg.foreach(function(i) return pg.autograd.grad({y * i}, {w}, {retain_graph = true})[1] end, T{1, 2}))
    end):detach()
  end, T{{4, 6}, {8, 12}})
end)

t.test("both branches of cond", function()
  local x = T{1, 2}
  local _, back = pg.vjp(function(a) return a * a * a end, x)
  for _, sign in ipairs{1, -1} do
    same(function()
      return pg.cond(T(sign):gt(0), function() return (back(T{1, 1})) end, function() return (back(T{2, 0})) end)
    end, sign > 0 and T{3, 12} or T{6, 0})
  end
end)

t.test("a function that runs as plain Lua for it says why", function()
  if t.mode ~= "eager" then t.skip("the functions of other modes are traced already") end
  local p = T{1}:attach_grad()
  local h = pg.record(function() return p * p end)
  local f = pg.jit(function()
    return pg.autograd.grad({pg.record(function() return h * 2 end)}, {p}, {retain_graph = true})[1]
  end)
  local warned = t.warnings(function() t.equal(f(), T{4}) end)
  t.equal(#warned, 1)
  t.check(warned[1]:find("runs as plain Lua from now on: a gradient in it flows through a tensor that was computed before the call", 1, true), warned[1])
  t.equal(f(), T{4})
end)

t.test("a leaf made in a traced function, whatever the tape does outside", function()
  local function of_leaf(x)
    local leaf = x:detach():attach_grad()
    return pg.autograd.grad({pg.record(function() return (leaf * leaf):sum() end)}, {leaf})[1]
  end
  local function recorded_outside(x)
    local leaf = x:detach():attach_grad()
    return pg.autograd.grad({(leaf * leaf):sum()}, {leaf})[1]
  end
  local function by_backward(x)
    local leaf = x:detach():attach_grad()
    local y = (leaf * leaf):sum()
    y:backward()
    return leaf.grad * 1
  end
  local x, two = T{1, 2}, T{2, 4}
  local w = T{3, 4}:attach_grad()
  for name, f in pairs{of_leaf = of_leaf, recorded_outside = recorded_outside, by_backward = by_backward} do
    local jitted = pg.jit(f)
    local block = pg.nn.block{forward = function(_, a) return f(a) end}
    block:initialize()
    block:hybridize()
    for _ = 1, 2 do
      pg.record(function()
        t.equal(f(x), two, name)
        t.equal(jitted(x), two, name .. " jitted")
        t.equal(block(x), two, name .. " in a block")
        t.equal((pg.foreach(function(e) return f(e) end, pg.stack{x, x})), T{{2, 4}, {2, 4}}, name .. " in foreach")
        t.equal(pg.cond(x:sum():gt(0), function() return f(x) end, function() return x end), two, name .. " in cond")
        t.equal(jitted(w), T{6, 8}, name .. " of a leaf")
      end)
    end
  end
end)

t.test("checkpoint keeps the history of what it returns unchanged", function()
  local x = pg.ones(3)
  local function total(r) return r[1]:sum() + r[2]:sum() end
  for name, f in pairs{
    view = function(b) return {b[{{}}], b * 2} end,
    itself = function(b) return {b, b * 2} end,
    no_steps = function(b) return {pg.loop(0, function(_, s) return s end, b), b * 2} end,
    nothing_else = function(b) return {b, b} end,
  } do
    local plain = pg.grad(function(b) return total(f(b)) end)(x)
    local function with(b) return total(pg.checkpoint(f, b)) end
    t.equal(pg.grad(with)(x), plain, name)
    t.equal(pg.jit(pg.grad(with))(x), plain, name)
    local jitted = pg.jit(f)
    t.equal(pg.grad(function(b) return total(pg.checkpoint(jitted, b)) end)(x), plain, name)
  end
  local w = T{1, 2, 3}:attach_grad()
  local y = pg.record(function() return (pg.checkpoint(function() return w end, x) * x):sum() end)
  y:backward()
  t.equal(w.requires_grad, true)
  t.equal(w.grad_req, "write")
  t.equal(w.grad, T{1, 1, 1})
end)

t.test("a run of what a function records does not record the rest", function()
  local p = T{1, 2}:attach_grad()
  local function f(x)
    local l = pg.record(function() return (p * x):sum() end)
    local z = pg.foreach(function(e) return e * p end, pg.stack{x, x})
    return l, p * 3, z
  end
  local jitted = pg.jit(f)
  for _ = 1, 2 do
    for name, run in pairs{plain = function(g, x) return g(x) end, record = function(g, x) return pg.record(function() return g(x) end) end} do
      local a, b = {run(f, T{1, 2})}, {run(jitted, T{1, 2})}
      for k = 1, 3 do t.equal(b[k].requires_grad, a[k].requires_grad, name .. " " .. k) end
      b[1]:backward()
      t.equal(p.grad, T{1, 2})
    end
  end
end)

t.test("a step with an earlier gradient may come before the loss is returned", function()
  local function make()
    local p = pg.param(pg.ones(2))
    local trainer = pg.optim.Trainer({p}, "sgd", {learning_rate = 0.1})
    return p, function(x)
      local l = pg.record(function() return (p * x):sum() end)
      trainer:step(1)
      return l
    end
  end
  local p, step = make()
  local q, inner = make()
  local jitted = pg.jit(inner)
  for i = 1, 3 do
    if i == 1 then pg.record(function() return (p * 2):sum() + (q * 2):sum() end):backward() end
    local a, b = step(T{1, i}), jitted(T{1, i})
    t.equal(b, a)
    a:backward()
    b:backward()
    t.equal(q, p)
    t.equal(q.grad, p.grad)
  end
end)

t.test("a graph that was traced without a history does not drop a later one", function()
  local w, v = pg.ones(4):attach_grad(), pg.ones(4):attach_grad()
  local function step(h)
    local y = pg.record(function() return (h * w):sum() end)
    y:backward()
    return y
  end
  local function body(h)
    return (pg.foreach(function(e)
      return pg.autograd.grad({pg.record(function() return (h * w * e):sum() end)}, {v}, {retain_graph = true})[1] or pg.zeros(4)
    end, T{1, 2}))
  end
  for name, f in pairs{jit = pg.jit(step), eager = step} do
    t.warnings(function()
      f(pg.ones(4))
      f(pg.ones(4))
      v.grad:zero_()
      f(pg.record(function() return v * 2 end))
    end)
    t.equal(v.grad, T{2, 2, 2, 2}, name)
  end
  t.warnings(function()
    t.equal(body(pg.ones(4)), pg.zeros(2, 4))
    t.equal(body(pg.ones(4)), pg.zeros(2, 4))
    t.equal(body(pg.record(function() return v * 2 end)), T{{2, 2, 2, 2}, {4, 4, 4, 4}})
  end)
end)

t.test("an in-place write under the function's own record keeps its history", function()
  local w = pg.ones(2):attach_grad()
  local function make(wrap)
    local acc = pg.zeros{}
    local step = wrap(function(x) pg.record(function() acc:add_((w * w * x):sum()) end) end)
    for i = 1, 4 do step(T{1, i}) end
    acc:backward()
    return acc:item(), w.grad:totable()
  end
  local a, ga = make(function(f) return f end)
  local b, gb = make(pg.jit)
  t.equal(b, a)
  t.equal(gb, ga)
end)

t.test("a checkpoint whose function changes its argument in place", function()
  local w = T{1, -2, 3}:attach_grad()
  for name, f in pairs{
    relu = function(x) return x:relu_() end,
    mul = function(x) x:mul_(2) return x end,
    result = function(x) x:mul_(2) return x * 1 end,
    index = function(x) x[1] = 0 return x end,
    in_table = function(x) local list = {x} list[1]:mul_(3) return list[1] * list[1] end,
  } do
    local function gradient(run)
      local l = pg.record(function() local b = run(w * 2) return (b * b):sum() end)
      l:backward()
      return w.grad:totable()
    end
    local plain = gradient(f)
    t.equal(gradient(function(x) return pg.checkpoint(f, x) end), plain, name)
  end
end)

t.test("a Function that saves its output has second derivatives in graphs", function()
  local Exp = pg.autograd.Function{
    name = "Exp",
    forward = function(ctx, x) local y = x:exp() ctx.saved = {y} return y end,
    backward = function(ctx, dy) return dy * ctx.saved[1] end,
  }
  local Same = pg.autograd.Function{
    forward = function(ctx, x) ctx.saved = {x} return x end,
    backward = function(ctx, dy) return dy * ctx.saved[1] end,
  }
  for name, E in pairs{exp = Exp, same = Same} do
    local first = pg.grad(function(u) return E(u):sum() end)
    local g = pg.grad(function(v) return first(v):sum() end)
    local third = pg.grad(function(v) return g(v):sum() end)
    for _, f in ipairs{first, g, third} do
      local x = T{0.5, 1}
      local want = f(x)
      t.close(pg.jit(f)(x), want, {what = name})
      t.close((pg.foreach(function(e) return f(e) end, x:reshape{2, 1})):reshape(-1), want, {what = name})
    end
  end
end)
