-- The first call of a net, which fills in shapes, draws the random numbers of the program in every way of running.
local t = require "tests.support"
local pg = require "perigee"
local nn = pg.nn

local function debugged(f) return function(...) return pg.debug(f, ...) end end
local function as_it_is(f) return f end

local function looping(net)
  return nn.block{net = net, forward = function(self, x)
    local first = self.net[1](x)
    return pg.loop(2, function(_, h) return self.net[3](self.net[2](h)) + pg.rand(1) end, first) + pg.rand(1)
  end}
end

local nets = {
  ["dropout between layers"] = function() return nn.HybridSequential{nn.Dense(4), nn.Dropout(0.5), nn.Dense(5), nn.Dropout(0.5), nn.Dense(3)} end,
  ["dropout first"] = function() return nn.HybridSequential{nn.Dropout(0.5), nn.Dense(5), nn.Dense(3)} end,
  ["a loop"] = function() return looping(nn.HybridSequential{nn.Dense(4), nn.Dropout(0.5), nn.Dense(4)}) end,
  ["noise before a branch"] = function()
    return nn.block{a = nn.Dense(4), b = nn.Dense(4), forward = function(self, x)
      x = x + pg.randn(4)
      return pg.cond(x:sum():gt(0), function() return self.a(x) + pg.rand(4) end, function() return self.b(x) end) * pg.rand(4)
    end}
  end,
  ["a Function"] = function()
    local scaled = pg.autograd.Function{name = "scaled", forward = function(_, x) return x * 2 end, backward = function(_, dy) return dy * 3 end}
    return nn.block{a = nn.Dense(4), b = nn.Dense(3), forward = function(self, x) return self.b(scaled(self.a(x):dropout(0.5))) end}
  end,
}

local function train(net, wrap)
  local step = wrap(function(x)
    local l = pg.record(function() return net(x):square():sum() end)
    l:backward()
    return l
  end)
  pg.manual_seed(9)
  local seen = {}
  for i = 1, 3 do
    seen[#seen + 1] = step(pg.full({2, 4}, 1 / i))
    for _, p in net:parameters() do
      seen[#seen + 1] = p:clone()
      seen[#seen + 1] = p.grad:clone()
    end
  end
  seen[#seen + 1] = pg.rand(2)
  return seen
end

for name, make in pairs(nets) do
  t.test("the first call draws as eagerly: " .. name, function()
    local function made()
      pg.manual_seed(3)
      local net = make()
      net:initialize("xavier")
      return net
    end
    local expected = train(made(), as_it_is)
    local hybrid = made()
    hybrid:hybridize()
    t.close(train(hybrid, as_it_is), expected, {rtol = 1e-5, atol = 1e-6})
    t.equal(hybrid:cache_info().traces, 1)
    t.close(train(made(), pg.jit), expected, {rtol = 1e-5, atol = 1e-6})
  end)
end

t.test("a layer that a traced function makes has new values in each call", function()
  local found = {}
  for i, wrap in ipairs{as_it_is, pg.jit} do
    pg.manual_seed(7)
    local f = wrap(function(x)
      local layer = nn.Dense(2)
      layer:initialize("xavier")
      return layer(x):dropout(0.5)
    end)
    found[i] = {}
    for k = 1, 3 do found[i][k] = pg.train_mode(function() return f(pg.ones(2, 4)) end) end
  end
  t.close(found[2], found[1])
  t.check(not found[1][1]:equal(found[1][2]))
end)

t.test("pg.debug fills parameters in as a graph does", function()
  local found = {}
  for i, wrap in ipairs{as_it_is, debugged} do
    pg.manual_seed(7)
    local net = nn.HybridSequential{nn.Dense(3), nn.Dense(3)}
    net:initialize("xavier")
    local y = wrap(function() return pg.loop(2, function(_, x) return net(x) end, pg.ones(1, 3)) end)()
    found[i] = {y, net[1].weight, net[2].weight, pg.rand(1)}
  end
  t.close(found[2], found[1])
end)
