-- Frozen leaves, and leaves that a head does not reach, in each way to run a function.
local t = require "tests.support"
local pg = require "perigee"

local ways = {
  plain = function(f) return f end,
  debug = function(f) return function(...) return pg.debug(f, ...) end end,
  jit = function(f) return pg.jit(f) end,
}

local function product(hybridized)
  local net = pg.nn.block{a = pg.param(pg.tensor{2}), b = pg.param(pg.tensor{3}), forward = function(self, x) return self.a * self.b * x end}
  net:initialize()
  if hybridized then net:hybridize() end
  return net
end

t.test("backward through frozen parameters only does nothing", function()
  for _, hybridized in ipairs{false, true} do
    local net = product(hybridized)
    net.a.grad_req, net.b.grad_req = "null", "null"
    local function run() return pg.record(function() return net(pg.tensor{5}) end) end
    t.check(not run().requires_grad)
    run():backward()
    local w = pg.tensor{1}:attach_grad()
    local y = pg.record(function() return net(pg.tensor{5}) * w end)
    y:backward()
    t.equal(w.grad, pg.tensor{30})
    t.error_contains(function() net(pg.tensor{5}):backward() end, "not computed under pg.record")
  end
end)

t.test("pg.autograd.grad accepts a frozen parameter", function()
  for _, hybridized in ipairs{false, true} do
    local net = product(hybridized)
    net.a.grad_req = "null"
    local function run() return pg.record(function() return net(pg.tensor{5}) end) end
    t.equal(pg.autograd.grad({run()}, {net.a, net.b}), {pg.tensor{15}, pg.tensor{10}})
    t.equal(pg.autograd.grad({run()}, {net.a})[1], pg.tensor{15})
    net.b.grad_req = "null"
    t.equal(pg.autograd.grad({run()}, {net.a, net.b}), {pg.tensor{15}, pg.tensor{10}})
  end
end)

-- Calls backward on the first result of f(a, b)(x), with b.grad = 7 before. Returns whether a trainer finds b's
-- gradient stale.
local function one_head(way, request, f)
  local a, b = pg.tensor{1}:attach_grad(request), pg.tensor{2}:attach_grad(request)
  local g = way(f(a, b))
  local y = pg.record(function() return (g(pg.tensor{3})) end)
  b.grad = pg.tensor{7}
  y:backward()
  local trainer = pg.optim.Trainer({a, b}, "sgd")
  return a.grad, b.grad, not pcall(trainer.step, trainer, 1)
end

t.test("backward from one of several heads does not change unreached gradients", function()
  local several = {
    results = function(a, b) return function(x) return a * x, b * x end end,
    branch = function(a, b)
      return function(x) return pg.cond(x[1]:gt(0), function() return a * x, b * x end, function() return a * 2, b * 3 end) end
    end,
    ["outputs of foreach"] = function(a, b)
      return function(x) return (pg.foreach(function(xi, s) return xi * a, s * b end, x, pg.tensor{1})) end
    end,
    ["states of foreach"] = function(a, b)
      return function(x) return (select(2, pg.foreach(function(xi, s) return xi * b, s * a end, x, pg.tensor{1}))) end
    end,
    ["variables of while_loop"] = function(a, b)
      return function(x)
        local _, vars = pg.while_loop(function(i) return i:lt(3) end, function(i, s, u) return nil, {i + 1, s * a, u * b} end, {0, x, x})
        return vars[2], vars[3]
      end
    end,
    ["states of loop"] = function(a, b)
      return function(x)
        local s = pg.loop(2, function(_, s) return {s[1] * a, s[2] * b} end, {x, x})
        return s[1], s[2]
      end
    end,
    ["a loop in a branch"] = function(a, b)
      return function(x)
        return pg.cond(x[1]:gt(0), function()
          local outs, s = pg.foreach(function(xi, s) return xi * a, s * b end, x, pg.tensor{1})
          return outs, s
        end, function() return x:reshape{1, 1}, x end)
      end
    end,
  }
  for name, f in pairs(several) do
    for way_name, way in pairs(ways) do
      for _, request in ipairs{"write", "add"} do
        local what = name .. ", " .. way_name .. ", " .. request
        local a, b, stale = one_head(way, request, f)
        t.check(a:item() ~= 0, what)
        t.equal(b, pg.tensor{7}, what)
        t.check(stale, what)
      end
    end
  end
end)

t.test("a whole step from one of several heads does not change unreached gradients", function()
  for _, way in pairs(ways) do
    local a, b = pg.tensor{1}:attach_grad(), pg.tensor{2}:attach_grad()
    b.grad = pg.tensor{7}
    way(function(x)
      local y = pg.record(function() return (pg.cond(x[1]:gt(0), function() return a * x, b * x end, function() return a * 2, b * 3 end)) end)
      y:backward()
    end)(pg.tensor{3})
    t.equal(a.grad, pg.tensor{3})
    t.equal(b.grad, pg.tensor{7})
  end
end)

t.test("a carry that a head reaches through the steps gets its gradient", function()
  for _, way in pairs(ways) do
    local a, b = pg.tensor{2}:attach_grad(), pg.tensor{3}:attach_grad()
    local f = way(function(xs)
      local outs = pg.foreach(function(x, s) return x * s[1], {s[1] * s[2], s[2] * b} end, xs, {a, pg.tensor{1}})
      return outs
    end)
    pg.record(function() return f(pg.tensor{1, 1, 1}):sum() end):backward()
    t.equal(a.grad, pg.tensor{1 + 1 + 3})
    t.equal(b.grad, pg.tensor{2})
  end
end)
