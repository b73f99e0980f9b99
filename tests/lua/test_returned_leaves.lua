-- Tensors that a traced function makes leaves (attach_grad) and returns have their gradients, as in plain Lua.
local t = require "tests.support"
local pg = require "perigee"
local nn = pg.nn

local w = pg.tensor({{1, -2}, {3, 4}}, {dtype = "float64"})
local function leaf(x) return x:detach():attach_grad() end
local function plain(f) return f end

-- Calls run(wrap) with wrap = pg.jit, twice, and without it. What it returns must be equal.
local function same(run)
  local expected = {run(plain)}
  t.check(#expected > 0)
  local f = run
  for _ = 1, 2 do
    local found = {f(pg.jit)}
    for i, x in ipairs(expected) do t.close(found[i], x, {what = i}) end
  end
end

t.test("backward outside of the function writes their gradients", function()
  same(function(wrap)
    local v = w:clone():attach_grad()
    local f = wrap(function(x)
      local h = leaf(x * v)
      return (h:square() * v):sum(), h
    end)
    local out = {}
    for n = 1, 3 do
      local loss, h = pg.record(function() return f(w + n) end)
      loss:backward()
      for _, x in ipairs{loss, h, h.grad, v.grad} do out[#out + 1] = x end
      t.check(h.requires_grad)
      pg.record(function() return (h * 3):sum() end):backward()
      out[#out + 1] = h.grad
    end
    return unpack(out)
  end)
end)

t.test("ops outside of the function and inside of it contribute to one gradient", function()
  same(function(wrap)
    local f = wrap(function(x)
      local h = leaf(x)
      return h:exp(), h, {again = h}
    end)
    local loss, h, again = pg.record(function()
      local y, h, list = f(w)
      return (y * h):sum() + list.again:sum() * 5, h, list.again
    end)
    loss:backward()
    return loss, h.grad, again.grad
  end)
end)

t.test("an output that does not depend on a leaf does not change its gradient", function()
  same(function(wrap)
    local f = wrap(function(x)
      local a, b = leaf(x), leaf(x + 1)
      return a:square():sum(), b:square():sum(), (a * b):sum(), a, b
    end)
    local p, q, r, a, b = pg.record(function() return f(w) end)
    p:backward{retain_graph = true}
    local first = {a.grad + 0, b.grad + 0}
    r:backward{retain_graph = true}
    local second = {a.grad + 0, b.grad + 0}
    q:backward()
    return first[1], first[2], second[1], second[2], a.grad + 0, b.grad + 0
  end)
end)

t.test("grad_req, and leaves that the results do not read", function()
  same(function(wrap)
    local f = wrap(function(x)
      local add, frozen, other = x:detach():attach_grad("add"), x:detach():attach_grad("null"), leaf(x)
      return (add * frozen):sum(), add, frozen, other
    end)
    local loss, add, frozen, other = pg.record(function() return f(w) end)
    loss:backward{retain_graph = true}
    loss:backward()
    t.equal({add.grad_req, frozen.grad_req, other.grad_req}, {"add", "null", "write"})
    t.equal(frozen.grad, nil)
    return add.grad, other.grad
  end)
end)

t.test("gradients of gradients", function()
  same(function(wrap)
    local v = w:clone():attach_grad()
    local f = wrap(function(x)
      local h = leaf(x + 1)
      return (h ^ 3 * v ^ 2):sum(), h
    end)
    local penalty, h = pg.record(function()
      local loss, h = f(w)
      local g = pg.autograd.grad({loss}, {h, v}, {create_graph = true})
      return (g[1]:square()):sum() + g[2]:sum(), h
    end)
    penalty:backward()
    return penalty, h.grad, v.grad
  end)
end)

t.test("a wanted gradient of a frozen tensor", function()
  same(function(wrap)
    local v = w:clone():attach_grad("null")
    local f = wrap(function(x)
      local h = leaf(x + 1)
      return (h ^ 3 * v ^ 2):sum(), h
    end)
    return pg.record(function()
      local loss, h = f(w)
      return unpack(pg.autograd.grad({loss}, {v, h}))
    end)
  end)
end)

t.test("backward inside of the function: the leaf is returned with its gradient", function()
  same(function(wrap)
    local f = wrap(function(x)
      local h, idle, set = leaf(x), leaf(x), leaf(x)
      pg.record(function() return (h ^ 3):sum() end):backward()
      set.grad = x * 2
      return h, idle, set
    end)
    local h, idle, set = f(w)
    local first = h.grad + 0
    pg.record(function() return h:sum() end):backward()
    return first, h.grad, idle.grad, set.grad
  end)
end)

t.test("without a record the leaf can be used later", function()
  same(function(wrap)
    local f = wrap(function(x) return leaf(x * 2) end)
    local h = f(w)
    pg.record(function() return h:square():sum() end):backward()
    return h, h.grad
  end)
end)

t.test("a leaf that is written to, and one in a field", function()
  same(function(wrap)
    local box = {}
    local f = wrap(function(x)
      local h = leaf(x)
      box.h = h
      return (h * h):sum()
    end)
    pg.record(function() return f(w) end):backward()
    return box.h, box.h.grad
  end)
  local f = pg.jit(function(x)
    local h = leaf(x)
    pg.pause(function() h:add_(1) end)
    return h
  end)
  t.close(f(w), w + 1)
end)

t.test("hybridized nets, nested and exported", function()
  local Net = nn.HybridBlock:extend("Net")
  function Net:init()
    self.features, self.head = nn.Dense(3, {in_units = 2}), nn.Dense(1, {in_units = 3})
  end
  function Net:forward(x)
    local h = self.features(x):detach():attach_grad()
    return self.head(h):tanh(), h
  end
  local net = Net()
  net:initialize("normal")
  local x = pg.randn(4, 2)
  local function maps()
    local y, h = pg.record(function() return net(x) end)
    y:backward()
    return y, h, h.grad, net.head.weight.grad + 0
  end
  local expected = {maps()}
  for _, block in ipairs{net, net.head} do
    block:hybridize()
    for _ = 1, 2 do
      for i, found in ipairs{maps()} do t.close(found, expected[i], {what = i, rtol = 1e-5, atol = 1e-6}) end
    end
  end
  local json, tensors = net:export(t.tmp("leaf"))
  local again = nn.SymbolBlock.imports(json, nil, tensors)
  local y, h = pg.record(function() return again(x) end)
  y:backward()
  t.close(y, expected[1], {rtol = 1e-5, atol = 1e-6})
  t.close(h.grad, expected[3], {rtol = 1e-5, atol = 1e-6})
end)

t.test("cycles of such leaves and functions of the script are freed", function()
  local f = pg.jit(function(x)
    local h = leaf(x)
    return (h ^ 3):sum(), h
  end)
  local big = pg.ones(1000)
  local function cycle()
    local loss, h
    local scale = pg.autograd.Function{
      forward = function(_, x) return x * 2 end,
      backward = function(_, dy) return dy * 2 + h * 0 end,
    }
    loss, h = pg.record(function()
      local y, leaf_of_f = f(big)
      return scale(y) * y, leaf_of_f
    end)
    pg.record(function() loss:backward{create_graph = true} end)
    t.check(h.grad.requires_grad)
  end
  local function live()
    for _ = 1, 100 do cycle() end
    collectgarbage()
    collectgarbage()
    return pg.memory().live
  end
  local first, last = live(), nil
  for _ = 1, 12 do last = live() end
  t.check(last < first + 6e6, ("%d, then %d"):format(first, last))  -- 100 cycles hold 1.6 MB
end)

t.test("a result whose history ends within the call can be walked back", function()
  local scale = pg.ones(2):attach_grad()
  local function f(x)
    local p = (x * 3):attach_grad()
    return pg.record(function() return (x * p):sum() end), pg.record(function() return (p * scale):sum() end)
  end
  for _, way in ipairs{f, pg.jit(f)} do
    for _ = 1, 3 do
      local y, z = way(pg.ones(2))
      t.check(y.requires_grad and z.requires_grad)
      y:backward{retain_graph = true}
      z:backward()
      t.equal(scale.grad, pg.full({2}, 3))
    end
    local x = pg.ones(2):attach_grad()
    way(x):backward()
    t.equal(x.grad, pg.full({2}, 3))
  end
end)

t.test("a body cannot write the gradient of a leaf that its function has made", function()
  local function f(x)
    local a = x:clone():attach_grad()
    pg.loop(3, function() pg.record(function() return (a ^ 2):sum() end):backward() end)
    return a.grad
  end
  local function g(x)
    local a = x:clone():attach_grad()
    pg.cond(x:sum():gt(0), function() pg.record(function() return (a ^ 2):sum() end):backward() end, function() end)
    return x
  end
  for _, way in ipairs{f, g, pg.jit(f), pg.jit(g)} do
    t.error_contains(function() way(pg.ones(2)) end, "a body cannot write the .grad of a tensor from outside")
  end
  local function inner(x)
    return (pg.loop(3, function(_, s)
      local b = (s * 2):attach_grad()
      pg.record(function() return (b ^ 2):sum() end):backward()
      return b.grad
    end, x))
  end
  t.equal(pg.jit(inner)(pg.ones(2)), inner(pg.ones(2)))
end)

t.test("leaves that were written to are returned as leaves", function()
  local writes = {
    sub = function(h) h:sub_(1) end,
    item = function(h) h[1] = 7 end,
    twice = function(h) h:mul_(2) h:add_(1) end,
    copy = function(h) h:copy_(h * 3) end,
    step = function(h)
      pg.record(function() return (h * h):sum() end):backward()
      h:sub_(h.grad * 0.25)
    end,
  }
  for name, write in pairs(writes) do
    for _, record in ipairs{false, true} do
      same(function(wrap)
        local f = wrap(function(x)
          local h = leaf(x * 2)
          write(h)
          return h, {again = h}
        end)
        local function run() return f(w) end
        local h, list = (record and name ~= "step" and pg.record or run)(record and name ~= "step" and function() return pg.pause(run) end or nil)
        t.check(h.requires_grad and list.again.requires_grad, name)
        local before = h.grad:clone()
        pg.record(function() return (h * h + list.again):sum() end):backward()
        return h, before, h.grad, list.again.grad
      end)
    end
  end
end)

t.test("gradients reach a leaf through its contents before and after a write", function()
  same(function(wrap)
    local v = w:clone():attach_grad()
    local f = wrap(function(x)
      local h = leaf(x + 1)
      local a = pg.record(function() return (h ^ 2 * v):sum() end)
      pg.pause(function() h:add_(2) end)
      local b = pg.record(function() return (h ^ 3 * v):sum() end)
      return a, b, h
    end)
    local a, b, h = f(w)
    pg.record(function() return a * 1 + b * 2 + (h * 5):sum() end):backward()
    return a, b, h, h.grad, v.grad
  end)
end)
