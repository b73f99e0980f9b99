-- Forward and backward of a hybridized block: backward reuses the memory of what forward keeps for it, and writes new
-- gradients over the old ones.
local t = require "tests.support"
local pg = require "perigee"

-- A network whose residuals take some MB, as its gradients do, and the same one without a graph.
local function twins()
  t.skip_in("device", "has too little memory")
  pg.manual_seed(7)
  local function make()
    local nn = pg.nn
    local net = nn.HybridSequential{
      nn.Conv2D(16, 3, {padding = 1}), nn.BatchNorm(), nn.Activation("relu"), nn.MaxPool2D(2),
      nn.Conv2D(16, 3, {padding = 1}), nn.BatchNorm(), nn.Activation("tanh"), nn.Flatten(), nn.Dense(64), nn.Dense(10),
    }
    net:initialize(pg.init.Xavier())
    net(pg.zeros(1, 3, 64, 64))
    return net
  end
  local eager, graph = make(), make()
  local from = eager:collect_params()
  for name, p in graph:collect_params():iter() do p:set_data(from[name]:detach()) end
  graph:hybridize()
  return eager, graph
end

local function images(count)
  return pg.rand(count or 4, 3, 64, 64) - 0.5
end

local function gradients(net)
  local out = {}
  for name, p in net:collect_params():iter() do
    if p.grad_req ~= "null" then out[name] = p.grad + 0 end
  end
  return out
end

local function same(a, b, tolerance)
  for name, g in pairs(a) do t.close(g, b[name], {rtol = 1e-3, atol = tolerance or 1e-5, what = name}) end
end

local function backward(net, x, options)
  local loss = pg.record(function() return (net(x) ^ 2):mean() end)
  loss:backward(options)
  return loss
end

t.test("steps get the gradients of eager mode", function()
  local eager, graph = twins()
  for _ = 1, 3 do
    local x = images()
    backward(eager, x)
    backward(graph, x)
    same(gradients(eager), gradients(graph))
  end
end)

t.test("a retained run can be walked again", function()
  local eager, graph = twins()
  local x = images()
  backward(eager, x)
  local wanted = gradients(eager)
  local loss = backward(graph, x, {retain_graph = true})
  same(wanted, gradients(graph))
  for _ = 1, 2 do
    loss:backward{retain_graph = true}
    same(wanted, gradients(graph))
  end
  loss:backward()
  same(wanted, gradients(graph))
  t.error_contains(function() loss:backward() end, "retain_graph = true")
end)

t.test("a released run says so, also where it is the head", function()
  local _, graph = twins()
  local y = pg.record(function() return graph(images()) end)
  y:backward()
  t.error_contains(function() y:backward() end, "has released the graph of this result")
end)

t.test("runs that wait for backward keep what they need", function()
  local eager, graph = twins()
  local xs = {images(), images(), images()}
  local function both(net)
    local losses = pg.record(function()
      local out = {}
      for i, x in ipairs(xs) do out[i] = (net(x) ^ 2):mean() end
      return out
    end)
    local found = {}
    for _, i in ipairs{2, 3, 1} do
      losses[i]:backward()
      found[i] = gradients(net)
    end
    return found
  end
  local wanted, found = both(eager), both(graph)
  for i = 1, #xs do same(wanted[i], found[i]) end
end)

t.test("several runs add up in one walk", function()
  local eager, graph = twins()
  local a, b = images(), images()
  for _, net in ipairs{eager, graph} do
    for _ = 1, 2 do
      pg.record(function() return (net(a) ^ 2):mean() + net(b):sum() * 0.01 end):backward()
    end
  end
  same(gradients(eager), gradients(graph))
end)

t.test("gradients that a script holds do not change", function()
  local _, graph = twins()
  backward(graph, images())
  local held = {}
  for name, p in graph:collect_params():iter() do
    if p.grad_req ~= "null" then held[name] = p.grad:detach() end
  end
  local before = {}
  for name, g in pairs(held) do before[name] = g + 0 end
  backward(graph, images())
  for name, g in pairs(held) do t.equal(g, before[name]) end
end)

t.test("gradients that are added up", function()
  local eager, graph = twins()
  local xs = {images(), images()}
  for _, net in ipairs{eager, graph} do
    for _, p in net:collect_params():iter() do
      if p.grad_req ~= "null" then p.grad_req = "add" end
    end
    for _, x in ipairs(xs) do backward(net, x) end
  end
  same(gradients(eager), gradients(graph))
end)

t.test("a walk that fails later changes no gradient", function()
  local _, graph = twins()
  local fails = pg.autograd.Function{
    name = "fails",
    forward = function(_, x) return x * 1 end,
    backward = function() error("no gradient here") end,
  }
  local x = images()
  x:attach_grad()
  backward(graph, x)
  local before, old = gradients(graph), x.grad + 0
  local ok, message = pcall(function()
    pg.record(function() return graph(fails(images() * x)):sum() end):backward()
  end)
  t.check(not ok and tostring(message):find("no gradient here"), tostring(message))
  t.equal(x.grad, old)
  for name, g in pairs(gradients(graph)) do t.equal(g, before[name]) end
end)

t.test("anomaly mode reads what a run without it has left, and the other way round", function()
  local eager, graph = twins()
  local x = images()
  backward(eager, x)
  local wanted = gradients(eager)
  local loss = pg.record(function() return (graph(x) ^ 2):mean() end)
  pg.autograd.detect_anomaly(function() loss:backward() end)
  same(wanted, gradients(graph))
  pg.autograd.detect_anomaly(function()
    loss = pg.record(function() return (graph(x) ^ 2):mean() end)
  end)
  loss:backward()
  same(wanted, gradients(graph))
end)

t.test("second derivatives after a first walk", function()
  local eager, graph = twins()
  local x = images(2)
  local function twice(net)
    local y = pg.record(function()
      local loss = (net(x) ^ 2):mean()
      local weight = net[1].weight
      return (pg.autograd.grad(loss, {weight}, {create_graph = true})[1] ^ 2):sum()
    end)
    y:backward()
    return gradients(net)
  end
  local a, b = twice(eager), twice(graph)
  same(a, b, 1e-3)
end)

t.test("loops and branches in a run whose residuals take some MB", function()
  t.skip_in("device", "has too little memory")
  pg.manual_seed(3)
  local w, u = (pg.randn(128, 256) * 0.05):attach_grad(), (pg.randn(256, 256) * 0.05):attach_grad()
  local xs = pg.randn(48, 32, 128)
  local function step(x, h)
    h = (x:matmul(w) + h:matmul(u)):tanh()
    return h, h
  end
  local function wide(h)
    return pg.cond(h:sum():gt(-1e9), function() return (h * u:sum()):sin():sum() end, function() return h:sum() end)
  end
  local function looped()
    local out, h = pg.foreach(step, xs, pg.zeros(32, 256))
    return (out ^ 2):mean() + wide(h) * 1e-3
  end
  local function unrolled()
    local h, sum = pg.zeros(32, 256), 0
    for k = 1, 48 do
      h = step(xs[k], h)
      sum = sum + (h ^ 2):mean() / 48
    end
    return sum + (h * u:sum()):sin():sum() * 1e-3
  end
  local found = {}
  local block = pg.nn.block{forward = looped}
  block:hybridize()
  for i, f in ipairs{unrolled, looped, function() return block(xs) end} do
    for _ = 1, 2 do pg.record(f):backward() end
    found[i] = {w = w.grad + 0, u = u.grad + 0}
    same(found[1], found[i])
  end
end)

-- Two weights of 1.4 MB, each used several times.
local function shared_weights()
  pg.manual_seed(2)
  local net = pg.nn.block{
    w = pg.param{shape = {600, 600}, init = "xavier"}, v = pg.param{shape = {600, 600}, init = "xavier"},
    forward = function(self, x)
      for _ = 1, 4 do x = x:linear(self.w):tanh():linear(self.v):tanh() end
      return x
    end,
  }
  net:initialize("xavier")
  local x = pg.rand(100, 600)
  return net, function() return pg.record(function() return (net(x) ^ 2):mean() end) end
end

t.test("walks over the same leaves may be suspended in any order", function()
  t.skip_in("device", "has too little memory")
  t.skip_in("gcstress", "collects so often that slices do little")
  local slice = t.sanitized and 0.004 or 0.0004
  for _, way in ipairs{"eager", "hybrid"} do
    local net, run = shared_weights()
    if way == "hybrid" then net:hybridize() end
    for _ = 1, 2 do run():backward() end
    local w, v = net.w.grad + 0, net.v.grad + 0
    local function check(found)
      local far = math.max((found[1] - w):abs():amax():item(), (found[2] - v):abs():amax():item())
      t.check(far < 1e-6, far)
    end
    local function gradients_of(loss) return pg.autograd.grad({loss}, {net.w, net.v}, {retain_graph = true}) end
    local found, jobs = {}, {}
    for i = 1, 2 do
      local loss = run()
      jobs[i] = pg.job(function() found[i] = gradients_of(loss) end)
    end
    local done = {}
    for _ = 1, 3 do done[1] = done[1] or jobs[1]:step(slice) end
    while not (done[1] and done[2]) do
      for i = 2, 1, -1 do done[i] = done[i] or jobs[i]:step(slice) end
    end
    check(found[1])
    check(found[2])
    -- The caller walks over the very node that a job's walk is suspended in.
    local loss = run()
    local job = pg.job(function() loss:backward{retain_graph = true} end)
    local slices = 0
    while not job:step(slice) do
      slices = slices + 1
      if slices % 8 == 0 then
        check(gradients_of(loss))
        check{net.w.grad, net.v.grad}
      end
    end
    check{net.w.grad, net.v.grad}
  end
end)

t.test("a backward that lacks memory loses no gradient", function()
  t.skip_in("device", "has too little memory")
  local net, run = shared_weights()
  net:hybridize()
  for _ = 1, 2 do run():backward() end
  local failed = 0
  for n = 1, 12 do
    local loss = run()
    for _, name in ipairs{"w", "v"} do net[name].grad = pg.full({600, 600}, 7) end
    local held = net.v.grad:detach()  -- cannot be written over
    pg.testing.fail_allocation(n)
    local ok = pcall(function() loss:backward() end)
    pg.testing.fail_allocation(0)
    if not ok then
      failed = failed + 1
      t.check(net.v.grad:eq(held):all():item())
      local least, most = net.w.grad:amin():item(), net.w.grad:amax():item()
      t.check(least == most and (least == 7 or least == 0), ("%g to %g"):format(least, most))
    end
  end
  t.check(failed > 0)
  run():backward()
end)

-- A process of its own, since peaks last as long as a process.
t.test("a step needs little more than the parameters, their gradients and what forward keeps", function()
  local path = os.tmpname()
  local file = io.open(path, "w")
  file:write [[
    local pg, nn = require "perigee", require("perigee").nn
    local net = nn.HybridSequential()
    for _ = 1, 8 do net:add(nn.Conv2D(16, 3, {padding = 1}), nn.BatchNorm(), nn.Activation "tanh") end
    net:add(nn.Flatten(), nn.Dense(64))
    net:initialize()
    net:hybridize()
    local x = pg.rand(32, 3, 32, 32)
    local function step() pg.record(function() return (net(x) ^ 2):mean() end):backward() end
    for _ = 1, 3 do step() end
    print(pg.memory().peak)
  ]]
  file:close()
  local pipe = io.popen(t.program .. " " .. path)
  local peak = tonumber(pipe:read("*a"))
  pipe:close()
  os.remove(path)
  -- The results of the convolutions and of tanh take 33.6 MB together, the last weight and its gradient 8.4.
  t.check(peak < 49e6, ("%.1f MB"):format(peak / 1e6))
end)

t.test("gradients of a loop's captures keep the terms of many steps", function()
  t.skip_in("nofuse", "the pass that gathers gradients is off")
  for _, dtype in ipairs{"float16", "bfloat16"} do
    local x, b = pg.linspace(0.5, 1, 3000):reshape{1000, 3}:to(dtype), pg.tensor({0.5, 0.25, 2}, {dtype = dtype})
    local function gradient(type)
      local v = b:to(type):attach_grad()
      local function body(row, s) s = s * 0.5 + row * v return s, s end
      local y = pg.record(function()
        local outs, s = pg.foreach(body, x:to(type), pg.zeros({3}, {dtype = type}))
        return outs:sum() + pg.loop(1000, function(_, a) return a * 0.5 + v end, s):sum()
      end)
      y:backward()
      return v.grad:float()
    end
    t.close(gradient(dtype), gradient("float32"), {rtol = dtype == "float16" and 4e-3 or 0.03, atol = 0})
  end
end)
