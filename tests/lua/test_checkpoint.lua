-- pg.checkpoint: its second run sees what the first run saw, and changes nothing. See also test_generators.lua.
local t = require "tests.support"
local pg = require "perigee"
local nn = pg.nn

local function T(list) return pg.tensor(list, {dtype = "float64"}) end

-- Compares gradients and state after training steps with and without a checkpoint. make() -> leaf, f(x), state.
local function compare(what, make)
  local function run(wrap)
    local w, f, state = make()
    for _ = 1, 2 do
      pg.record(function()
        local y = wrap(f, w * 2) + wrap(f, w * 3)
        return (y * y):sum()
      end):backward()
    end
    return w.grad:totable(), state:totable()
  end
  local grad, state = run(function(f, x) return f(x) end)
  local again, same = run(pg.checkpoint)
  t.equal(again, grad, what .. ": gradient")
  t.equal(same, state, what .. ": state")
end

t.test("the second run sees what the tensors held before the first", function()
  for name, change in pairs{
    add = function(s) s:add_(1) end,
    item = function(s) s[2] = s[2] * 3 end,
    copy = function(s) s:copy_(s * 2) end,
    fill = function(s) s:fill_(7) end,
    branch = function(s) pg.cond(s:sum():gt(0), function() s:mul_(2) end, function() s:add_(5) end) end,
    loop = function(s) pg.loop(2, function(_, v) s:add_(v) return v end, T{1}) end,
    jit = pg.jit(function(s) s:mul_(3) end),
    jit_bind = pg.jit(function(s) pg.pause(function() s:copy_(s * 2 + 1) end) end),
    grad = function(s) s:sum() end,
  } do
    for _, place in ipairs{"before", "after"} do
      compare(name .. " " .. place, function()
        local w, s = T{1, 2}:attach_grad(), T{3, 4}
        return w, function(x)
          if place == "before" then pg.pause(function() change(s) end) end
          local y = x * s
          if place == "after" then pg.pause(function() change(s) end) end
          return y * x
        end, s
      end)
    end
  end
end)

t.test("gradients flow through what the function changed", function()
  local function run(wrap)
    local w, v = T{1, 2}:attach_grad(), T{3, 5}:attach_grad()
    local h
    pg.record(function()
      h = v * 2
      local y = wrap(function(x) local a = x * h; h:mul_(x) return a, h end, w)
      return (y * h):sum()
    end):backward()
    return {w.grad:totable(), v.grad:totable(), h:totable()}
  end
  t.equal(run(pg.checkpoint), run(function(f, x) return f(x) end))
end)

t.test("gradients that the function reads and writes", function()
  local function run(wrap)
    local w, v = T{1, 2}:attach_grad(), T{3, 5}:attach_grad("add")
    local y = pg.record(function()
      return wrap(function(x)
        pg.pause(function() v.grad = v.grad + 1 end)
        local z = pg.record(function() return (v * v):sum() end)
        z:backward()
        local g = v.grad:detach()
        pg.pause(function() v.grad:mul_(2) end)
        return x * g
      end, w):sum()
    end)
    y:backward()
    return {w.grad:totable(), v.grad:totable()}
  end
  t.equal(run(pg.checkpoint), run(function(f, x) return f(x) end))
end)

t.test("nested checkpoints", function()
  compare("nested", function()
    local w, s = T{1, 2}:attach_grad(), T{3, 4}
    return w, function(x)
      local a = pg.checkpoint(function(u) s:add_(1) return u * s * u end, x)
      s:mul_(2)
      return a * s + pg.checkpoint(function(u) s:sub_(2) return u:exp() * s end, x)
    end, s
  end)
end)

t.test("a block with spectral or batch statistics", function()
  for _, hybrid in ipairs{false, true} do
    compare("batch norm", function()
      pg.manual_seed(3)
      local net = nn.BatchNorm{in_channels = 2}
      net:initialize()
      net:cast("float64")
      if hybrid then net:hybridize() end
      local w = T{{1, 2}, {3, 5}, {7, 1}}:attach_grad()
      return w, function(x) return net(x) * net.running_mean end, net.running_var
    end)
  end
end)

t.test("an error in the second run leaves the tensors as they are", function()
  local w, s, fails = T{1, 2}:attach_grad(), T{3, 4}, false
  local y = pg.record(function()
    return pg.checkpoint(function(x)
      s:add_(1)
      if fails then error("no second run") end
      return x * s
    end, w):sum()
  end)
  s:add_(10)
  fails = true
  t.error_contains(function() y:backward() end, "no second run")
  t.equal(s, T{14, 15})
  s:add_(1)
  t.equal(s, T{15, 16})
end)

t.test("a tensor that was collected or released meanwhile", function()
  local w = T{1, 2}:attach_grad()
  local y = pg.record(function()
    local list = {T{3, 4}}
    return pg.checkpoint(function(x)
      local s = list[1] or T{3, 4}
      s:add_(1)
      list[1] = nil
      return x * s
    end, w):sum()
  end)
  collectgarbage() collectgarbage()
  y:backward()
  t.equal(w.grad, T{4, 5})
  local s = T{3, 4}
  y = pg.record(function() return pg.checkpoint(function(x) s:add_(1) return x * s end, w):sum() end)
  s:release()
  y:backward()
  t.equal(w.grad, T{4, 5})
  t.error_contains(function() return s + 1 end, "released")
end)

t.test("a checkpoint whose tensors have changed when backward computes it again is an error", function()
  local w, x = pg.ones(2):attach_grad(), pg.ones(2):attach_grad()
  local y = pg.record(function() return pg.checkpoint(function(a) return a * w end, x) end)
  w:fill_(7)
  t.error_contains(function() y:backward() end, "checkpoint: a tensor that f reads (float32 2 cpu) has changed since f ran; change it after backward")
  t.equal(x.grad, {0, 0})
  pg.record(function()
    local h = x * 2
    y = pg.checkpoint(function(a) return a * h end, x)
    h:add_(1)
  end)
  t.error_contains(function() y:backward() end, "has changed since f ran")
  -- What f makes itself and what it changes are none.
  local count, made = pg.zeros(1), nil
  y = pg.record(function()
    return pg.checkpoint(function(a)
      count:add_(1)
      made = pg.grad(function(b) return (b * w):sum() end)(a)
      return a:mul_(2) * count + made
    end, x * 3)
  end)
  y:backward()
  t.equal({count, made, x.grad}, {{1}, {7, 7}, {6, 6}})
end)

t.test("a constant that another one has replaced when backward computes it again is an error", function()
  local x, scale = pg.ones(2):attach_grad(), pg.tensor{2}
  local y = pg.record(function() return pg.checkpoint(function(a) return a * scale end, x) end)
  scale = pg.tensor{3}
  t.error_contains(function() y:backward() end, "checkpoint: f computes something else when backward runs it again")
end)

t.test("a checkpoint returns all results, nil too", function()
  local x = pg.ones(2):attach_grad()
  local function f(a) return nil, a * 3, nil end
  t.equal(pg.record(function() return select("#", pg.checkpoint(f, x)) end), 3)
  local _, y = pg.record(function() return pg.checkpoint(f, x) end)
  y:backward()
  t.equal(x.grad, {3, 3})
end)

t.test("a function that computes something else the second time is an error", function()
  local text = "checkpoint: f computes something else when backward runs it again"
  local n, flip, double = 0, false, pg.jit(function(x) return x * 2 end)
  for name, f in pairs{
    number = function(x) n = n + 1 return x * n end,
    tensor = function(x) n = n + 1 return x * pg.tensor({n}, {dtype = "float64"}) end,
    expanded = function(x) n = n + 1 return x + T{n, n}[2]:expand(2) end,
    branch = function(x) flip = not flip if flip then return x:exp() end return x:sin() end,
    attribute = function(x) n = n + 1 return x:neg():leaky_relu(n) end,
    layers = function(x) n = n + 1 for _ = 1, n do x = x:tanh() end return x end,
    results = function(x) n = n + 1 if n % 2 == 0 then return x * 2 end return x * 2, x * 3 end,
    missing = function(x) n = n + 1 if n % 2 == 0 then return x * 2, 5 end return x * 2, x * 3 end,
    nothing = function(x) n = n + 1 if n % 2 == 1 then return x * 2 end end,
    argument = function(x) n = n + 1 if n % 2 == 0 then return x end return x * 2 end,
    detached = function(x) n = n + 1 x = x * 2 if n % 2 == 0 then return x:detach() end return x end,
    graph = function(x) n = n + 1 if n % 2 == 0 then return x end return double(x) end,
  } do
    n, flip = 0, false
    local w = T{1, 2}:attach_grad()
    local y = pg.record(function()
      local first, second = pg.checkpoint(f, w)
      return second and (first + second):sum() or first:sum()
    end)
    t.error_contains(function() y:backward() end, text)
    t.equal(w.grad:sum():item(), 0, name)
  end
end)

t.test("a function may count its calls", function()
  local calls, block = 0, nn.HybridSequential{nn.Dense(3), nn.Dropout(0.5), nn.Dense(2)}
  block:initialize()
  block:hybridize()
  local function f(x)
    calls = calls + 1
    local y = block(x):dropout(0.5)
    if calls > 100 then y = y * 2 end
    return pg.loop(2, function(_, s) return s * y end, y), pg.cond(y:sum():gt(0), function() return y * 2 end, function() return y end)
  end
  for _ = 1, 3 do
    pg.record(function()
      local a, b = pg.checkpoint(f, pg.ones(2, 4))
      return (a * b):sum()
    end):backward()
  end
  t.equal(calls, 5)  -- the first call gave the parameters their values, and kept what backward reads
end)

t.test("a function may name what it makes by its calls", function()
  local calls, x = 0, pg.ones(2):attach_grad()
  pg.record(function()
    return pg.checkpoint(function(a)
      calls = calls + 1
      return pg.autograd.Function{name = "call " .. calls, forward = function(_, b) return b * 2 end,
                                  backward = function(_, dy) return dy * 2 end}(a)
    end, x)
  end):backward()
  t.equal({calls, x.grad}, {2, {2, 2}})
end)

t.test("the first call of a net infers shapes and draws as without a checkpoint", function()
  local function run(wrap)
    pg.manual_seed(3)
    local net = nn.HybridSequential{nn.Dropout(0.5), nn.Dense(3), nn.Dropout(0.5), nn.Dense(2)}
    net:initialize("xavier")
    local out = {}
    for k = 1, 2 do
      local x = pg.ones(2, 4):attach_grad()
      pg.record(function() return wrap(function(v) return net(v):dropout(0.5) end, x):square():sum() end):backward()
      out[k] = {x.grad:totable(), net[2].weight.grad:totable(), pg.rand(1):item()}
    end
    return out
  end
  t.equal(run(pg.checkpoint), run(function(f, x) return f(x) end))
end)

t.test("a checkpoint in a scope that ends before backward", function()
  local w = T{1, 2}:attach_grad()
  local y = pg.record(function()
    return pg.scope(function() return pg.checkpoint(function(x) return x * x end, w * 3) end)
  end)
  y:backward()
  t.equal(w.grad, {18, 36})
end)

t.test("checkpoint recomputes with the same numbers", function()
  local w, v = T({2, 3}):attach_grad(), T({1, 4}):attach_grad()
  local calls = 0
  local function body(a)
    calls = calls + 1
    return (a * v * a):dropout(0.5) + a
  end
  local function run(f)
    pg.manual_seed(7)
    pg.record(function() return f(w):sum() end):backward()
    return w.grad:clone(), v.grad:clone()
  end
  local gw, gv = run(body)
  calls = 0
  local hw, hv = run(function(x) return pg.checkpoint(body, x) end)
  t.equal(hw, gw) t.equal(hv, gv)
  t.equal(calls, 2)
  local x = T({2, 3})
  t.equal(pg.grad(function(u) return pg.grad(function(s) return pg.checkpoint(function(z) return (z * z * z):sum() end, s) end)(u):sum() end)(x), T({12, 18}))
end)

t.test("checkpoint of large tensors that no gradient needs", function()
  local function twice(f) return function(x) return pg.checkpoint(function(y) return f(f(y)) end, x) end end
  local bodies = {
    exp = pg.exp, relu = pg.relu, flatten = pg.flatten,
    sum = function(x) return x + 1 end,
    nested = function(x) return pg.checkpoint(pg.sigmoid, x):t() end,
    residual = function(x) return x + (x:tanh() * 2):matmul(x:t()) end,
  }
  pg.manual_seed(5)
  local x = (pg.randn(40, 40) / 8):to("float64")
  for name, f in pairs(bodies) do
    local function run(g)
      return pg.grad(function(u)
        local y, du = pg.value_and_grad(function(v) return g(v * 1):square():sum() end)(u)
        return y + (du * x):sum()
      end)(x)
    end
    t.close(run(twice(f)), run(function(v) return f(f(v)) end), {rtol = 1e-12}, name)
    local leaf = x:clone():attach_grad()
    pg.record(function() return pg.checkpoint(f, leaf):sum() end):backward()
    t.close(leaf.grad, pg.grad(function(v) return f(v):sum() end)(x), {rtol = 1e-12}, name)
  end
end)

t.test("checkpoint writes state once", function()
  local w, count = T({2}):attach_grad(), T({0})
  local y = pg.record(function()
    return pg.checkpoint(function(a) pg.pause(function() count:add_(1) end) return a * a end, w)
  end)
  y:backward()
  t.equal(count, T({1}))
  t.equal(w.grad, T({4}))
end)
