-- What a hybridized block or a jitted function notices: each scenario against plain Lua, with the number of traces.
local t = require "tests.support"
local pg = require "perigee"
local nn = pg.nn

t.skip_in("hybrid", "hybridizes its blocks itself")

local function traces(x) return x:cache_info().traces end

-- f and its jitted form return the same for these arguments.
local function agree(f, jitted, ...)
  local want, got = pg.debug(f, ...), jitted(...)
  t.equal(got, want)
end

t.test("the first call traces, later calls hit, sizes of batches are free", function()
  local net = nn.HybridSequential{nn.Dense(8, {activation = "relu"}), nn.Dense(3)}:initialize()
  local x = pg.randn(4, 5)
  local want = pg.debug(net, x)
  net:hybridize()
  t.equal(net:cache_info(), {traces = 0, specializations = 0, hits = 0})
  for _ = 1, 3 do t.close(net(x), want) end
  t.equal(net:cache_info(), {traces = 1, specializations = 1, hits = 2})
  for n = 1, 6 do t.equal(net(pg.randn(n, 5)).shape, {n, 3}) end
  t.equal(net:cache_info().traces, 1)
  t.check(tostring(net:graph()):find("linear", 1, true))
  net:hybridize(false)
  t.close(net(x), want)
  t.equal(net:cache_info(), {traces = 0, specializations = 0, hits = 0})
end)

t.test("parameters are inputs: updates and replacements are seen", function()
  local net = nn.HybridSequential{nn.Dense(2, {in_units = 3})}:initialize()
  net:hybridize()
  local x = pg.ones(1, 3)
  net(x)
  net[1].weight:fill_(2)
  net[1].bias:fill_(1)
  t.equal(net(x), pg.tensor{{7, 7}})
  net[1].weight:set_data(pg.ones(2, 3))
  t.equal(net(x), pg.tensor{{4, 4}})
  t.equal(traces(net), 1)
  for i = 1, 4 do
    net[1].weight = pg.param(pg.full({2, 3}, i))
    t.equal(net(x), pg.tensor{{3 * i + 1, 3 * i + 1}})
  end
  t.equal(traces(net), 2)  -- one to confirm the place
end)

t.test("fields, options set later, children", function()
  local net = nn.block{
    fc = nn.Dense(2, {in_units = 2}), rate = 2,
    forward = function(self, x)
      local y = self.fc(x) * self.rate
      if self.negate then y = -y end
      return y
    end,
  }
  net:initialize("ones")
  net.fc.bias:fill_(0)
  net:hybridize()
  local x = pg.ones(1, 2)
  t.equal(net(x), pg.tensor{{4, 4}})
  net.rate = 3
  t.equal(net(x), pg.tensor{{6, 6}})
  t.equal(net:cache_info().last_retrace, "self.rate was 2, is 3")
  net.negate = true
  t.equal(net(x), pg.tensor{{-6, -6}})
  t.equal(net:cache_info().last_retrace, "self.negate was nil, is true")
  net.rate, net.negate = 2, nil
  t.equal(net(x), pg.tensor{{4, 4}})
  t.equal(traces(net), 3)  -- the first trace fits again
  net.steps = 0
  for _ = 1, 5 do
    net.steps = net.steps + 1
    net(x)
  end
  t.equal(traces(net), 3)
  net.fc = nn.Dense(2, {in_units = 2, use_bias = false}):initialize("ones")
  t.equal(net(x), pg.tensor{{4, 4}})
  t.equal(traces(net), 4)
  net.fc.forward = function(_, z) return z * 10 end
  t.equal(net(x), pg.tensor{{20, 20}})
end)

t.test("classes: methods and fields of classes and parents, shadowed in objects", function()
  local Base = nn.HybridBlock:extend("Base")
  Base.scale = 2
  function Base:act(x) return x * self.scale end
  local Net = Base:extend("Net")
  function Net:forward(x) return self:act(x) + 1 end
  local net = Net()
  net:hybridize()
  local x = pg.ones(1)
  local function expect(value) t.equal(net(x), pg.tensor{value}) end
  expect(3)
  Base.scale = 5
  expect(6)
  Net.scale = 7
  expect(8)
  net.scale = 1
  expect(2)
  rawset(net, "scale", nil)
  Net.scale = nil
  expect(6)
  function Base:act(z) return z - self.scale end
  expect(-3)
  net.act = function(_, z) return z * 100 end
  expect(101)
end)

t.test("upvalues and globals", function()
  local scale, shift, f = 2, pg.ones(2), function(z) return z + 1 end
  local env = setmetatable({}, {__index = _G})
  local function run(x)
    local y = f(x * scale) + shift
    if DEBUGGING then y = y * 100 end  -- luacheck: ignore
    return y * FACTOR  -- luacheck: ignore
  end
  setfenv(run, env)
  env.FACTOR = 1
  local jitted = pg.jit(run)
  local x = pg.ones(2)
  agree(run, jitted, x)
  scale = 3
  agree(run, jitted, x)
  shift = pg.full({2}, 5)
  agree(run, jitted, x)
  shift:add_(1)
  agree(run, jitted, x)
  f = function(z) return z - 1 end
  agree(run, jitted, x)
  env.DEBUGGING = true
  agree(run, jitted, x)
  env.FACTOR = 4
  agree(run, jitted, x)
  t.equal(jitted:cache_info().last_retrace, "global 'FACTOR' was 1, is 4")
  local before = traces(jitted)
  for i = 1, 5 do
    f = (function(n) return function(z) return z - n end end)(1)
    agree(run, jitted, x)
    shift = pg.full({2}, i)
    agree(run, jitted, x)
  end
  t.check(traces(jitted) - before <= 2, "fresh closures of one expression over equal values are the same: " .. traces(jitted) - before)
end)

t.test("arguments: scalars, structure, trees, nil, the same tensor twice", function()
  local function run(x, options, k)
    local y = x.a + x.list[1]
    if options and options.double then y = y * 2 end
    return {y = y, k = k, same = x.a == x.list[1]}, x.a, k
  end
  local jitted = pg.jit(run)
  local a, b = pg.ones(2), pg.full({2}, 3)
  local r, x, k = jitted({a = a, list = {b}}, {double = true}, 5)
  t.equal(r, {y = pg.tensor{8, 8}, k = 5, same = false})
  t.check(x == a and k == 5)
  t.equal(traces(jitted), 1)
  r = jitted({a = b, list = {a}}, {double = true}, 5)
  t.equal(r.y, pg.tensor{8, 8})
  t.equal(traces(jitted), 1)
  r = jitted({a = a, list = {a}}, {double = true}, 5)
  t.equal(r, {y = pg.tensor{4, 4}, k = 5, same = true})
  r, x, k = jitted({a = a, list = {b}})
  t.check(x == a)
  t.equal(r, {y = pg.tensor{4, 4}, same = false})
  t.check(k == nil)
  t.equal(traces(jitted), 3)
  jitted({a = a, list = {b, b}}, nil, 0 / 0)
  r = jitted({a = a, list = {b, b}}, nil, 0 / 0)
  t.check(r.k ~= r.k)
  t.equal(traces(jitted), 4)
  t.check(jitted:cache_info().last_retrace:find("argument"), jitted:cache_info().last_retrace)
end)

t.test("dims, dtype and flags that the script reads are guards, others are free", function()
  local jitted = pg.jit(function(x)
    if x:size(2) > 3 then return x * 2 end
    return x + 1
  end)
  t.equal(jitted(pg.ones(1, 4)), pg.full({1, 4}, 2))
  t.equal(jitted(pg.ones(7, 4)), pg.full({7, 4}, 2))
  t.equal(traces(jitted), 1)
  t.equal(jitted(pg.ones(1, 2)), pg.full({1, 2}, 2))
  t.equal(traces(jitted), 2)
  local words = jitted:cache_info().last_retrace
  t.check(words:find("test_hybrid_guards.lua:%d+"), words)
  local flagged = pg.jit(function(x) return pg.is_training() and x * 2 or x end)
  local x = pg.ones(1)
  t.equal(flagged(x), pg.ones(1))
  t.equal(pg.train_mode(function() return flagged(x) end), pg.full({1}, 2))
  t.equal(flagged(x), pg.ones(1))
  t.equal(traces(flagged), 2)
end)

t.test("what forward assigns comes back on each hit, in fields, upvalues, tables and globals", function()
  t.may_warn("traced again for the third time because self.phase")
  local last, log = nil, {n = 0}
  local net = nn.block{
    phase = 0, w = pg.param(pg.ones(2)),
    forward = function(self, x)
      self.phase = (self.phase + 1) % 3
      if self.phase == 0 then x = x * 10 end
      self.seen = x + self.w
      self.pair = {x = x, {self.seen}}
      last = self.seen
      log.last = x
      return self.seen
    end,
  }
  local twin = nn.block{phase = 0, w = pg.param(pg.ones(2)), forward = net.forward}
  net:hybridize()
  for i = 1, 12 do
    local x = pg.full({2}, i)
    local want = twin(x)
    local got = net(x)
    t.equal(got, want)
    t.check(net.phase == twin.phase and net.seen == got and last == got and net.pair[1][1] == got, "the same boxes")
    t.equal(net.pair, twin.pair)
    t.equal(log.last, net.pair.x)
  end
  t.check(traces(net) <= 6, traces(net) .. " traces")
end)

t.test("a counter is freed after eight equal graphs, with a warning", function()
  local net = nn.block{count = 0, forward = function(self, x)
    self.count = self.count + 1
    return x + 1
  end}
  net:hybridize()
  local list = t.warnings(function() for _ = 1, 50 do net(pg.ones(1)) end end)
  t.equal(net.count, 50)
  t.equal(traces(net), 8)
  t.equal(#list, 2)
  t.check(list[1]:find("third time because self.count was", 1, true), list[1])
  t.check(list[1]:find("read at .*test_hybrid_guards.lua:%d+"), list[1])
  t.check(list[2]:find("self.count never repeated in 8 traces", 1, true), list[2])
  net.count = "text"
  t.error_contains(function() net(pg.ones(1)) end, "arithmetic")
end)

t.test("a block that keeps retracing runs as plain Lua, with a warning", function()
  local net = nn.block{forward = function(self, x) return x * self.rate end}
  net:hybridize()
  local list = t.warnings(function()
    for i = 1, 20 do
      net.rate = i
      t.equal(net(pg.ones(1)), pg.full({1}, i))
    end
  end)
  t.equal(traces(net), 12)
  t.check(list[#list]:find("plain Lua", 1, true), list[#list])
  t.check(list[1]:find("pg.live", 1, true), list[1])
end)

t.test("a function that stays reachable cannot be rebuilt: plain Lua, with a warning", function()
  local net = nn.block{forward = function(self, x)
    local n = (self.n or 0) + 1
    self.n = n
    self.f = function(z) return z * n end
    return self.f(x)
  end}
  net:hybridize()
  local list = t.warnings(function() for i = 1, 3 do t.equal(net(pg.ones(1)), pg.full({1}, i)) end end)
  t.equal(#list, 1)
  t.check(list[1]:find("function that stays reachable", 1, true), list[1])
end)

t.test("a failed call leaves fields, tables and tensors as they were", function()
  local net = nn.block{n = 1, w = pg.param(pg.ones(2)), list = {1}, forward = function(self, x)
    self.n = 2
    self.list[2] = 5
    self.w:mul_(3)
    error("stop")
    return x
  end}
  net:hybridize()
  t.error_contains(function() net(pg.ones(2)) end, "stop")
  t.check(net.n == 1 and net.list[2] == nil)
  t.equal(net.w, pg.ones(2))
  t.check(getmetatable(net.list) == nil)
end)

t.test("values cannot be read, and catching the error does not help", function()
  local f = pg.jit(function(x) return x * x:sum():item() end)
  local e = t.error_contains(function() f(pg.ones(2)) end, "pg.cond")
  t.check(e:find("test_hybrid_guards.lua:%d+:"), e)
  local g = pg.jit(function(x)
    pcall(x.item, x:sum())
    return x
  end)
  t.error_contains(function() g(pg.ones(2)) end, "value of a traced tensor")
  t.equal(pg.debug(f, pg.ones(2)) ~= nil, true)
end)

t.test("tensors that share a place, and later do not", function()
  local net = nn.block{a = pg.param(pg.ones(1)), b = pg.param(pg.full({1}, 2)), forward = function(self, x)
    self.a:add_(1)
    return x + self.a * 10 + self.b
  end}
  local twin = nn.block{a = pg.param(pg.ones(1)), b = pg.param(pg.full({1}, 2)), forward = net.forward}
  net:hybridize()
  local x = pg.ones(1)
  local function both()
    t.equal(net(x), twin(x))
    t.equal(net.a, twin.a)
    t.equal(net.b, twin.b)
  end
  both()
  both()
  net.b, twin.b = net.a, twin.a
  both()
  both()
  net.b, twin.b = pg.param(pg.ones(1)), pg.param(pg.ones(1))
  both()
  both()
  t.check(traces(net) <= 4, traces(net) .. " traces")
end)

t.test("plain tables that are replaced are addressed by their path", function()
  local net = nn.block{cfg = {k = 2, inner = {b = 1}}, forward = function(self, x) return x * self.cfg.k + self.cfg.inner.b end}
  net:hybridize()
  local x = pg.ones(1)
  for _ = 1, 6 do
    t.equal(net(x), pg.full({1}, 3))
    net.cfg = {k = 2, inner = {b = 1}}
  end
  t.equal(traces(net), 2)
  net.cfg.inner.b = 5
  t.equal(net(x), pg.full({1}, 7))
end)

t.test("iterated tables count with all their entries", function()
  local net = nn.block{weights = {a = 1, b = 2}, list = {1, 2}, forward = function(self, x)
    for _, v in pairs(self.weights) do x = x + v end
    for i = 1, #self.list do x = x * self.list[i] end
    return x
  end}
  net:hybridize()
  local x = pg.ones(1)
  t.equal(net(x), pg.full({1}, 8))
  net.weights.c = 4
  t.equal(net(x), pg.full({1}, 16))
  net.list[3] = 2
  t.equal(net(x), pg.full({1}, 32))
  net.list[3] = nil
  net.weights.c = nil
  t.equal(net(x), pg.full({1}, 8))
  t.check(traces(net) <= 4)  -- the entries that are left may come in another order than at first
end)

t.test("a table of many entries is guarded by identity and length, with a warning", function()
  local net = nn.block{table = {}, forward = function(self, x)
    local n = 0
    for _ in pairs(self.table) do n = n + 1 end
    return x + n
  end}
  for i = 1, 1000 do net.table[i] = i end
  net:hybridize()
  local list = t.warnings(function()
    t.equal(net(pg.ones(1)), pg.full({1}, 1001))
    net.table[1001] = 1
    t.equal(net(pg.ones(1)), pg.full({1}, 1002))
  end)
  t.check(#list == 1 and list[1]:find("1000 entries", 1, true), list[1])
end)

-- A call that fails is no op of the graph, so guards check what the failure depended on. A call that succeeds is
-- checked even if nothing uses its result.
t.test("types of the arguments of a failed call that the script caught", function()
  t.skip_in("gcstress", "many traces")
  if t.sanitized then t.skip("a thousand traces") end
  local kept = pg.full({2}, 6)
  local calls = {
    function(x) return kept + x end,
    function(x) kept:add_(x) end,
    function(x) return pg.concat({kept, x}, 1) end,
    function(x) return pg.mm(x, x) end,
    function(x) return x:reshape(2, 2) end,
    function(x) return x:sum(2) end,
    function(x) return x[3] end,
    function(x) return pg.take(kept, x) end,
    function(x) return x:bitwise_and(x) end,
    function(x) x.grad = pg.zeros(2) end,
    function(x) return pg.cond(x, function() return kept end, function() return kept end) end,
    function(x) return pg.full({2}, 1):copy_(x) end,
    function(x) x:cos_(x, x) end,
  }
  local makers = {}
  for _, dtype in ipairs{"float32", "int64", "bool"} do
    for _, shape in ipairs{{2}, {3}, {1}, {}, {2, 2}, {2, 3}, {4}} do
      makers[#makers + 1] = function() return pg.ones(shape, {dtype = dtype}) end
    end
  end
  makers[#makers + 1] = function() return pg.param(pg.ones(2)) end
  for i, call in ipairs(calls) do
    local function f(x)
      local ok = pcall(call, x)
      return x * 1 + (ok and 1 or 2)
    end
    for _, first in ipairs(makers) do
      local jitted = pg.jit(f)
      t.warnings(function()  -- that it is traced again
        jitted(first())
        for _, make in ipairs(makers) do
          kept = pg.full({2}, 6)
          local want = f(make())
          local after = kept
          kept = pg.full({2}, 6)
          t.equal(jitted(make()), want, "call " .. i)
          t.equal(kept, after, "call " .. i)
        end
      end)
    end
  end
end)
