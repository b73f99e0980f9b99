-- The tape computes large activations again in backward instead of keeping them. All gradients stay as they were.
local t = require "tests.support"
local pg = require "perigee"
local nn = pg.nn

-- Two residual blocks on activations of 512 KB, which are worth it, or on small ones, which are kept.
local function make(size)
  pg.manual_seed(7)
  local net = nn.block{
    forward = function(self, x)
      for k = 1, 4, 2 do
        local y = self["norm" .. k](self["conv" .. k](x)):relu()
        y = self["norm" .. k + 1](self["conv" .. k + 1](y))
        x = (y + x):relu()
      end
      return x
    end,
  }
  for k = 1, 4 do
    net["conv" .. k] = nn.Conv2D(16, 3, {padding = 1, in_channels = 16, use_bias = false})
    net["norm" .. k] = nn.BatchNorm{in_channels = 16}
  end
  net:initialize()
  net:cast("float64")
  return net, pg.randn{2, 16, size, size, dtype = "float64"}
end

local function gradients(net)
  local list = {}
  for _, p in pairs(net:collect_params()) do
    if p.grad_req == "write" then list[#list + 1] = p end
  end
  table.sort(list, function(a, b) return a.name < b.name end)
  return list
end

local function step(net, x, options)
  local loss = pg.record(function() return (net(x) * net(x):detach()):mean() end)
  loss:backward(options)
  return loss
end

t.test("gradients of residual blocks equal those of a graph and of a checkpoint", function()
  local net, x = make(64)
  step(net, x)
  local list = gradients(net)
  t.equal(#list > 8, true)
  local found = {}
  for i, p in ipairs(list) do found[i] = p.grad:clone() end
  pg.jit(function(a) return step(net, a) end)(x)
  for i, p in ipairs(list) do t.close(p.grad, found[i], {rtol = 1e-9, atol = 1e-12, what = p.name}) end
  pg.record(function() return (pg.checkpoint(function(a) return net(a) end, x) * net(x):detach()):mean() end):backward()
  for i, p in ipairs(list) do t.close(p.grad, found[i], {rtol = 1e-9, atol = 1e-12, what = p.name}) end
end)

t.test("a second backward, and one with create_graph, find everything", function()
  local net, x = make(64)
  x:attach_grad()
  local y = pg.record(function() return net(x):sum() end)
  y:backward{retain_graph = true}
  local first = x.grad:clone()
  y:backward{retain_graph = true}
  t.equal(x.grad:eq(first):all():item(), true)
  local again = pg.record(function() return pg.autograd.grad({y}, {x}, {create_graph = true})[1] end)
  t.close(again, first, {rtol = 1e-9, atol = 1e-12})
  t.equal(again:isfinite():all():item(), true)
end)

t.test("a backward that has released the activation is an error for its other readers", function()
  local c, w = pg.randn(2, 16, 64, 64):attach_grad(), pg.randn(2, 16, 64, 64):attach_grad()
  local a, b
  local reader = pg.autograd.Function{
    forward = function(_, x) return x * 2 end,
    backward = function(_, dy) a:backward() return dy * 2 end,  -- releases what the walk in progress still needs
  }
  pg.record(function()
    local h = pg.batch_norm(c, pg.zeros(16), pg.ones(16), pg.ones(16), pg.zeros(16), {training = true}):relu()
    a, b = (h * 2):sum(), reader((h * w):sum())
  end)
  t.error_contains(function() b:backward() end, "pass retain_graph = true there")
  t.error_contains(function() a:backward() end, "released")
end)

t.test("a change in place of an activation changes no gradient", function()
  local function run(change)
    pg.manual_seed(3)
    local x = pg.randn(2, 16, 64, 64):attach_grad()
    local k = pg.randn(16, 16, 3, 3):attach_grad()
    local y = pg.record(function()
      local h = pg.batch_norm(x, pg.zeros(16), pg.ones(16), pg.ones(16), pg.zeros(16), {training = true}):relu()
      local out = h:conv2d(k, nil, {padding = 1}):sum()
      if change then h:fill_(7) end
      return out
    end)
    y:backward()
    return x.grad, k.grad
  end
  local x1, k1 = run(false)
  local x2, k2 = run(true)
  t.equal(x1:eq(x2):all():item(), true)
  t.equal(k1:eq(k2):all():item(), true)
end)

t.test("half precision", function()
  for _, dtype in ipairs{"bfloat16", "float16"} do
    local net, x = make(96)
    net:cast(dtype)
    x = x:to(dtype)
    step(net, x)
    local list = gradients(net)
    local found = {}
    for i, p in ipairs(list) do found[i] = p.grad:clone() end
    net:hybridize()
    step(net, x)
    for i, p in ipairs(list) do t.close(p.grad:float(), found[i]:float(), {rtol = 0.05, atol = 0.02}) end
  end
end)

t.test("the tape of normalized activations keeps half as much", function()
  if t.mode ~= "eager" then t.skip("eager only: hybridized blocks have a tape of their own") end
  local function kept(scale)
    local x = pg.randn(4, 16, scale, scale):attach_grad()
    local w = pg.randn(16, 16, 3, 3)
    collectgarbage() collectgarbage()
    local before = pg.memory().live
    local y = pg.record(function()
      local h = x
      for _ = 1, 6 do
        h = pg.batch_norm(h:conv2d(w, nil, {padding = 1}), pg.zeros(16), pg.ones(16), pg.ones(16), pg.zeros(16), {training = true}):relu()
      end
      return h:sum()
    end)
    collectgarbage() collectgarbage()
    local bytes = pg.memory().live - before
    y:backward()
    return bytes / (4 * 16 * scale * scale * 4)
  end
  local large, small = kept(128), kept(16)
  t.check(large < 7, ("%.1f large arrays are kept"):format(large))
  t.check(small > 11, ("%.1f small arrays are kept"):format(small))
end)
