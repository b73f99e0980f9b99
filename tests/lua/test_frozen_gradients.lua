-- Second gradients with respect to tensors whose grad_req is "null", through graphs: the same as without graphs.
local t = require "tests.support"
local pg = require "perigee"
local nn = pg.nn

local nets = {}
function nets.mlp()
  return nn.HybridSequential{nn.Dense(4, {in_units = 3, activation = "tanh"}), nn.Dense(2, {in_units = 4})}
end
function nets.norm()
  return nn.HybridSequential{nn.Dense(4, {in_units = 3}), nn.BatchNorm{in_channels = 4}, nn.Activation("sigmoid")}
end
function nets.dropped()
  local first = nn.Dense(4, {in_units = 3, activation = "tanh"})
  return nn.HybridSequential{first, nn.Dropout(0.5), nn.Dense(2, {in_units = 4})}
end
function nets.looping()
  return nn.block{
    weight = pg.param{shape = {3, 3}}, gain = pg.param{shape = {3}, init = "ones"},
    forward = function(self, x)
      local y = pg.loop(2, function(_, v) return (v:matmul(self.weight) * self.gain):tanh() end, x)
      return pg.cond(y:sum():gt(0), function() return y * self.gain end, function() return y:sin() * x end)
    end,
  }
end

local function parameters(net)
  local list = {}
  for _, p in net:parameters() do
    if p.dtype:find("float") and p.differentiable ~= false then list[#list + 1] = p end
  end
  return list
end

-- Returns the results for one set of requests: requests[i] is that of parameter i, requests[0] that of x.
local function run(make, hybrid, requests, order)
  pg.manual_seed(5)
  local net = make()
  net:initialize("xavier")
  net:to("float64")
  local list = parameters(net)
  for i, p in ipairs(list) do p.grad_req = requests[i % #requests + 1] end
  if hybrid then net:hybridize() end
  local x = pg.tensor({{0.1, 0.2, 0.3}, {-0.5, 0.4, 1}}, {dtype = "float64"}):attach_grad(requests[1])
  local wanted = {x, unpack(list)}
  local out, last = {}, nil
  pg.record(function()
    last = (net(x) ^ 2):sum()
    for k = 1, order do
      local g = pg.autograd.grad({last}, wanted, {create_graph = k < order, retain_graph = true})
      last = 0
      for i, v in ipairs(g) do
        out[#out + 1] = v:detach()
        out[#out + 1] = pg.tensor(k < order and v.requires_grad and 1 or 0, {dtype = "float64"})
        last = last + (v ^ 2):sum() * i
      end
    end
  end)
  return out
end

for name, make in pairs(nets) do
  t.test("gradients of gradients by frozen tensors: " .. name, function()
    for _, requests in ipairs{{"write"}, {"null"}, {"null", "write"}, {"write", "null"}, {"null", "write", "null"}} do
      for order = 2, t.mode == "eager" and 3 or 2 do
        local what = ("%s, order %d"):format(table.concat(requests, " "), order)
        local expected = run(make, false, requests, order)
        t.close(run(make, true, requests, order), expected, {rtol = 1e-9, atol = 1e-12, what = what})
      end
    end
  end)
end

t.test("backward passes through a frozen graph to the leaves of another", function()
  local function attempt(hybrid)
    pg.manual_seed(2)
    local first, second = nets.mlp(), nn.HybridSequential{nn.Dense(3, {in_units = 2, activation = "tanh"})}
    for _, net in ipairs{first, second} do
      net:initialize("xavier")
      if hybrid then net:hybridize() end
    end
    for _, p in first:parameters() do p.grad_req = "null" end
    local w = first[1].weight
    local l = pg.record(function()
      local y = second(first(pg.ones(2, 3))):sum() + (w * w):sum()
      return (pg.autograd.grad({y}, {w}, {create_graph = true})[1] ^ 2):sum()
    end)
    l:backward{retain_graph = true}
    return {second[1].weight.grad, unpack(pg.autograd.grad({l}, {w, second[1].weight}))}
  end
  t.close(attempt(true), attempt(false), {rtol = 1e-5, atol = 1e-6})
end)

t.test("requires_grad of what only frozen tensors lead to", function()
  local frozen, free = pg.ones(3):attach_grad("null"), pg.ones(3):attach_grad()
  for name, make in pairs{
    one = function(x) return frozen * x end,
    chain = function(x) return (frozen * x):exp():sum() end,
    made = function(x) return x:detach():attach_grad("null") * 2 end,
    made_itself = function(x) return x:detach():attach_grad("null") end,
    both = function(x) return frozen * free * x end,
    inner = function(x) return pg.record(function() return frozen * x end) end,
    paused = function(x) return pg.pause(function() return free * x end) end,
  } do
    local function f(x)
      local y = make(x)
      if y.requires_grad then return pg.ones(1) end
      return pg.zeros(1)
    end
    local jitted = pg.jit(f)
    for k = 1, 3 do
      local function value(g) return pg.record(function() return g(pg.ones(3) * k) end):item() end
      t.equal(value(jitted), value(f), name)
    end
    t.equal(jitted:cache_info().traces, 1, name)
  end
end)

t.test("requires_grad says the same in every mode, call and order of calls", function()
  local Net = nn.HybridBlock:extend("Net")
  function Net:init() self.w, self.v = pg.param{shape = {2}, init = "ones"}, pg.param{shape = {2}, init = "ones"} end
  function Net:forward(x)
    local y = x * self.w
    local z = pg.loop(2, function(_, s) return s * y end, y) * self.v
    return y, z, pg.tensor{self.w.requires_grad and 1 or 0, y.requires_grad and 1 or 0, z.requires_grad and 1 or 0}
  end
  for _, requests in ipairs{{"write", "write"}, {"null", "write"}, {"write", "null"}, {"null", "null"}} do
    for _, order in ipairs{{true, false, true}, {false, true, false}} do
      for _, hybrid in ipairs{false, true} do
        local net = Net():initialize()
        if hybrid then net:hybridize() end
        net.w.grad_req, net.v.grad_req = requests[1], requests[2]
        for _, recorded in ipairs(order) do
          local y, z, inside
          local function call() y, z, inside = net(pg.ones(2)) end
          if recorded then pg.record(call) else call() end
          local w, v = requests[1] == "write", requests[2] == "write"
          local expected = {w and 1 or 0, recorded and w and 1 or 0, recorded and (w or v) and 1 or 0}
          local what = ("%s %s, %s, %s"):format(requests[1], requests[2], hybrid, recorded)
          t.equal(inside:totable(), expected, what)
          t.equal({y.requires_grad, z.requires_grad}, {expected[2] == 1, expected[3] == 1}, what .. ": results")
        end
      end
    end
  end
end)

t.test("requires_grad of arguments with a history of frozen tensors only", function()
  local frozen, free = pg.ones(2):attach_grad("null"), pg.ones(2):attach_grad()
  local function f(x) return (x * 2).requires_grad and pg.ones(1) or pg.zeros(1) end
  local jitted = pg.jit(f)
  pg.record(function()
    for k, x in ipairs{pg.ones(2), frozen, frozen * 2, frozen * free, free * 3, pg.ones(2), frozen * 4} do
      t.equal({k, jitted(x):item()}, {k, f(x):item()})
    end
  end)
  t.equal(pg.record(function() return frozen * 2 end).requires_grad, false)
end)

t.test("the gradient of a frozen tensor whose requires_grad was read", function()
  local w, x = pg.tensor({2, 3}):attach_grad("null"), pg.tensor({5, 7}):attach_grad()
  local function f(a)
    local y = a * w * (w.requires_grad and 1 or 10)
    return pg.loop(2, function(_, s) return w.requires_grad and s or s * y end, w):sum()
  end
  local jitted = pg.jit(f)
  for _, create_graph in ipairs{false, true} do
    local function gradients(g)
      return pg.record(function()
        local first = pg.autograd.grad({g(x)}, {w, x}, {create_graph = create_graph})
        return create_graph and pg.autograd.grad({first[1]:sum()}, {w, x}) or first
      end)
    end
    t.equal(gradients(jitted), gradients(f))
  end
  w.grad_req = "write"
  local y = pg.record(function() return jitted(x) end)
  t.equal(pg.autograd.grad({y}, {w})[1], pg.autograd.grad({pg.record(function() return f(x) end)}, {w})[1])
end)
