-- What a hybridized block or a jitted function notices: each scenario against plain Lua, with the number of traces.
local t = require "tests.support"
local pg = require "perigee"
local nn = pg.nn

t.skip_in("hybrid", "hybridizes its blocks itself")

local function traces(x) return x:cache_info().traces end

-- f and its jitted form answer the same for these arguments.
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

t.test("pg.live changes nothing but the number", function()
  local k = 1
  local f = pg.jit(function(x) return x * pg.live(function() return k end) end)
  for i = 1, 4 do
    k = i
    t.equal(f(pg.ones(2)), pg.full({2}, i))
  end
  t.equal(traces(f), 1)
  local net = nn.block{temperature = 1, forward = function(self, x) return x / pg.live(function() return self.temperature end) end}
  net:hybridize()
  for i = 1, 4 do
    net.temperature = i
    t.close(net(pg.ones(2)), pg.full({2}, 1 / i))
  end
  t.equal(traces(net), 1)
end)

t.test("pg.debug runs plain Lua, also inside jitted functions", function()
  local net = nn.HybridSequential{nn.Dense(2, {in_units = 2})}:initialize()
  local calls = 0
  net[1].forward = function(self, x)
    calls = calls + 1
    return x:linear(self.weight)
  end
  net:hybridize()
  local x = pg.ones(1, 2)
  net(x)
  net(x)
  local before = calls
  pg.debug(function()
    net(x)
    net(x)
  end)
  t.equal(calls, before + 2)
  net(x)
  t.error_contains(function() pg.debug(function() error("inside") end) end, "inside")
  t.check(not pg.testing.graphs_off())
end)

t.test("hooks: those of the root run at each call, those of children while tracing", function()
  local net = nn.HybridSequential{nn.Dense(2, {in_units = 2}), nn.Dense(2, {in_units = 2})}:initialize()
  local outer, inner = 0, 0
  local handle = net:register_forward_hook(function(_, inputs, outputs)
    outer = outer + 1
    t.check(#inputs == 1 and outputs.shape[2] == 2)
  end)
  net[1]:register_forward_hook(function() inner = inner + 1 end)
  net:hybridize()
  local list = t.warnings(function() for _ = 1, 3 do net(pg.ones(1, 2)) end end)
  t.equal({outer, inner}, {3, 1})
  t.check(#list == 1 and list[1]:find("hooks", 1, true), list[1])
  handle:detach()
  net(pg.ones(1, 2))
  t.equal(outer, 3)
end)

t.test("hybridize: options, a plain child, deferred shapes, nested blocks", function()
  local net = nn.HybridSequential{nn.Dense(2), nn.BatchNorm(), nn.Dense(1)}:initialize()
  t.error_contains(function() net:hybridize{static_aloc = true} end, "static_alloc")
  net:hybridize()
  for _, child in net:children() do if child.weight then child:hybridize() end end
  t.equal(net(pg.ones(3, 4)).shape, {3, 1})
  t.equal(net(pg.ones(5, 4)).shape, {5, 1})
  t.equal(traces(net), 1)
  t.equal(traces(net[1]), 0)
  t.equal(net[1](pg.ones(1, 4)).shape, {1, 2})
  t.equal(traces(net[1]), 1)
  local Plain = nn.Block:extend("Plain")
  function Plain:forward(x) return x end
  t.error_contains(function() nn.HybridSequential{nn.HybridSequential{}, nn.block{child = Plain(), forward = function(_, x) return x end}}:hybridize() end, "plain Block")
  t.error_contains(function() net.nothing = nil return nn.Dense(1):graph() end, "no graph yet")
end)

t.test("hundreds of parameters, results and assignments", function()
  local function make()
    pg.manual_seed(1)
    local layers = {}
    for i = 1, 90 do layers[i] = nn.Dense(2, {in_units = 2}) end
    return nn.block{
      seq = nn.HybridSequential(layers), n = 0, log = {},
      forward = function(self, x)
        local outs = {}
        for i = 1, #self.seq do
          x = self.seq[i](x) * 0.5 + 1
          outs[i] = x
        end
        self.n = (self.n + 1) % 2
        self.last, self.log.y, self.log.list = x, outs[5], {x, outs[1]}
        for i = 1, 70 do self["f" .. i] = outs[i] end
        return x, {a = outs[3], n = self.n}, outs[2]
      end,
    }:initialize()
  end
  local net, twin = make(), make()
  net:hybridize()
  for i = 1, 10 do
    local x = pg.full({1, 2}, i)
    t.close({net(x)}, {twin(x)})
    t.close({net.n, net.last, net.log.y, net.log.list, net.f70}, {twin.n, twin.last, twin.log.y, twin.log.list, twin.f70})
  end
  t.check(traces(net) <= 6, traces(net) .. " traces")
end)

t.test("numbers of arguments, recursion, tables handed over twice, released tensors", function()
  local f = pg.jit(function(...)
    local n, sum = select("#", ...), 0
    for i = 1, n do
      local x = (select(i, ...))
      if x then sum = x + sum end
    end
    return sum, n
  end)
  local x = pg.ones(1)
  t.equal({f(x, nil, x)}, {pg.tensor{2}, 3})
  t.equal({f(x, nil, x, nil)}, {pg.tensor{2}, 4})
  t.equal({f(x, nil, x)}, {pg.tensor{2}, 3})
  t.equal(traces(f), 2)
  local deep = nn.block{forward = function(self, y, n) return n == 0 and y or self(y * 2, n - 1) end}
  deep:hybridize()
  t.equal(deep(x, 3), pg.tensor{8})
  t.equal(deep(x, 3), pg.tensor{8})
  local g = pg.jit(function(a, b)
    a.k = (a.k or 0) + 1
    return b.x * (b.k or 7)
  end)
  local one, two = {x = x}, {x = x + 1}
  t.equal(g(one, two), pg.tensor{14})
  t.equal(g(one, one), pg.tensor{2})
  t.equal({one.k, two.k}, {2})
  local p = pg.ones(1)
  local h = pg.jit(function(y) return y * p end)
  h(x)
  p:release()
  t.error_contains(function() h(x) end, "released")
  local sum = pg.jit(function(a, b) return a + b end)
  sum(pg.ones(2, 3), pg.ones(2, 3))
  local e = t.error_contains(function() sum(pg.ones(2, 3), pg.ones(4, 5)) end, "add: bad argument 'y'")
  t.check(not e:find(":%d+: .*:%d+: "), e)
end)

t.test("a parameter that no path leads to", function()
  local hidden = pg.param(pg.ones(1))
  local net = nn.block{scale = pg.param(pg.ones(1)), _cache = {n = 2}, forward = function(self, x) return x * hidden * self.scale * self._cache.n end}
  net:hybridize()
  local list = t.warnings(function() for _ = 1, 3 do net(pg.ones(1)) end end)
  t.check(#list == 1 and list[1]:find("neither trained nor saved", 1, true), list[1])
  net._cache._ready = 1
  net._cache.n = 5
  t.equal(net(pg.ones(1)), pg.full({1}, 5))
end)

t.test("recording: gradients through a hybridized net, training flags resolved per run", function()
  local function make()
    pg.manual_seed(4)
    local net = nn.HybridSequential{nn.Dense(4, {activation = "tanh", in_units = 3}), nn.BatchNorm{in_channels = 4}, nn.Dense(1, {in_units = 4})}
    return net:initialize("xavier")
  end
  local net, twin = make(), make()
  net:hybridize()
  for i = 1, 4 do
    local x = pg.randn(2 + i % 2, 3)
    local function loss(n) return pg.record(function() return (n(x) * n(x)):sum() end) end
    local a, b = loss(net), loss(twin)
    t.close(a, b)
    a:backward()
    b:backward()
    for path, p in net:parameters() do t.close(p.grad or p, twin:collect_params()[path].grad or twin:collect_params()[path], {what = path}) end
    t.close(net(x), twin(x))
  end
  t.equal(traces(net), 1)
end)

t.test("a training step under pg.jit: the losses of plain Lua, one trace", function()
  for _, optimizer in ipairs{"sgd", "adam"} do
    local function losses(jit)
      pg.manual_seed(3)
      local net = nn.HybridSequential{nn.Dense(8, {activation = "relu"}), nn.Dropout(0.2), nn.Dense(3)}:initialize("xavier")
      local loss_fn = pg.loss.SoftmaxCrossEntropyLoss()
      net(pg.randn(2, 5))
      local trainer = pg.optim.Trainer(net:collect_params(), optimizer, {learning_rate = 0.05, wd = 0.01})
      local step = function(x, y)
        local l = pg.record(function() return loss_fn(net(x), y):mean() end)
        l:backward()
        trainer:step(1)
        return l
      end
      if jit then step = pg.jit(step) end
      pg.manual_seed(7)
      local out = {}
      for i = 1, 10 do
        if i == 6 then trainer:set_learning_rate(0.01) end
        out[i] = step(pg.randn(4, 5), pg.randint(1, 3, {4})):item()
      end
      if jit then t.equal(traces(step), 1) end
      return out
    end
    t.close(losses(true), losses(false))
  end
end)

t.test("the identity of code: shared by the closures of one function expression only", function()
  local prototype = pg.testing.prototype
  local functions, seen = {}, {}
  for i = 1, 200 do  -- all of one form, so that their closures look alike but for the code
    local make = assert(loadstring("local u = ... return function() return u + " .. i .. " end"))
    functions[i] = make(i)
    local id = prototype(functions[i])
    t.check(id ~= nil and not seen[tostring(id)], "function " .. i)
    seen[tostring(id)] = true
    t.check(prototype(make(0)) == id)
  end
  local function expression() return function() return functions end end
  t.check(prototype(expression()) == prototype(expression()))
end)

t.test("a graph's text names its inputs by their paths", function()
  local up, list = pg.ones(2), {pg.ones(2)}
  local Net = nn.HybridBlock:extend("Net")
  function Net:init()
    self.features = nn.HybridSequential{nn.Dense(2, {in_units = 3})}
    self.layers = {nn.Dense(2, {in_units = 2}), {deep = pg.param{shape = {2}, init = "ones"}}}
    self._hidden, self.cfg = pg.ones(2), {scale = pg.ones(2)}
  end
  function Net:forward(x, o)
    local y = self.layers[1](self.features(x)) * self.layers[2].deep
    return y + up + list[1] + self._hidden * self.cfg.scale + o.a
  end
  local net = Net()
  net:initialize()
  net:hybridize()
  local step = pg.jit(function(x, o) return net(x, o) * up end)
  for f, self in pairs{[net] = "self", [step] = "net"} do
    f(pg.ones(1, 3), {a = pg.ones(2)})
    local text, names = tostring(f:graph()), {}
    for name in text:gmatch('= input "([^"]*)"') do names[name] = true end
    for path in net:parameters() do t.check(names[path], path .. " is missing: " .. text) end
    for _, name in ipairs{"data1", "data2", "upvalue 'up'", "list[1]", self .. "._hidden", self .. ".cfg.scale"} do
      t.check(names[name], name .. " is missing: " .. text)
    end
  end
end)
