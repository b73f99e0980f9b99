-- What runs beside the graph of a hybridized block or a jitted function, and limits of calls: pg.live, pg.debug, hooks,
-- options, many values, recording, training.
local t = require "tests.support"
local pg = require "perigee"
local nn = pg.nn

t.skip_in("hybrid", "hybridizes its blocks itself")

local function traces(x) return x:cache_info().traces end

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
  t.skip_in("gcstress", "a large heap")
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

local function total(...)
  local sum = 0
  for i = 1, select("#", ...) do sum = sum + (select(i, ...)) end
  return sum
end

-- LuaJIT allows a function 200 variables and 250 slots of the stack.
t.test("hundreds of arguments and results", function()
  t.skip_in("gcstress", "a large heap")
  for _, n in ipairs{59, 60, 61, 100, 101, 150, 250, 300} do
    local function list(first)
      local xs = {}
      for i = 1, n do xs[i] = pg.tensor(first or i) end
      return xs
    end
    local sum = n * (n + 1) / 2
    local net = nn.block{forward = function(_, ...) return total(...) end}
    net:hybridize()
    local echo = pg.jit(function(...)
      for i = 1, select("#", ...) do (select(i, ...)):add_(1) end
      return ...
    end)
    for _, f in ipairs{pg.jit(total), net} do
      for _ = 1, 3 do t.equal(f(unpack(list())):item(), sum) end
      t.equal(traces(f), 1)
      t.equal(f(pg.tensor(3)):item(), 3)
      t.equal(f(unpack(list(2))):item(), 2 * n)
      local same = list()
      for i = 1, n do same[i] = same[1] end
      t.equal(f(unpack(same)):item(), n)
      local xs = list()
      for i = 1, n do xs[i]:attach_grad() end
      pg.record(function() return f(unpack(xs)) end):backward()
      t.equal({xs[1].grad:item(), xs[n].grad:item()}, {1, 1})
    end
    for _ = 1, 3 do
      local xs = list()
      local ys = {echo(unpack(xs))}
      t.check(#ys == n and rawequal(ys[n], xs[n]))
      t.equal({ys[1]:item(), ys[n]:item()}, {2, n + 1})
    end
    local numbers, scaled = {}, pg.jit(function(x, ...) return x * total(...) end)
    for i = 1, n do numbers[i] = i end
    for _ = 1, 2 do t.equal(scaled(pg.tensor(1), unpack(numbers)):item(), sum) end
    numbers[n] = 0
    t.equal(scaled(pg.tensor(1), unpack(numbers)):item(), sum - n)
    t.equal(scaled:cache_info().last_retrace, ("argument %d was %d, is 0"):format(n + 1, n))
    local spread = pg.jit(function(x)
      local ys = {}
      for i = 1, n do ys[i] = x + i end
      return unpack(ys)
    end)
    for _ = 1, 3 do
      local ys = {spread(pg.tensor(1))}
      t.equal({#ys, ys[1]:item(), ys[n]:item()}, {n, 2, n + 1})
    end
  end
end)

t.test("hundreds of arguments of a branch, of variables around it, and of values handed over after a run", function()
  t.skip_in("gcstress", "a large heap")
  local xs, names = {}, {}
  for i = 1, 50 do xs[i], names[i] = pg.tensor(i), "x" .. i end
  local text = table.concat(names, ", ")
  local make = assert(loadstring(("local %s = ... return function() return %s end"):format(text, text:gsub(", ", " + "))))
  local fs = {}
  for i = 1, 6 do fs[i] = make(unpack(xs)) end
  local a, b, c, d, e, f = unpack(fs)
  for i = 1, 3 do
    t.equal(pg.loop(i, function(_, s) return s + a() + b() + c() + d() + e() + f() end, pg.tensor(0)):item(), i * 6 * 1275)
  end
  for i = 1, 5 do for k = 1, 50 do xs[50 * i + k] = pg.tensor(1) end end
  t.equal(pg.cond(pg.tensor(true), total, total, unpack(xs)):item(), 1275 + 250)
  local layer = nn.Embedding(10, 4, {sparse_grad = true}):initialize()
  local rows = pg.tensor({1, 3, 3}, {dtype = "int64"})
  local lookups = pg.jit(function(x)
    return (pg.record(function()
      local s = 0
      for _ = 1, 150 do s = s + layer(x):sum() end
      return s
    end))
  end)
  for _ = 1, 2 do
    lookups(rows):backward()
    t.equal(layer.weight.grad:sum(2), pg.tensor{600, 0, 1200, 0, 0, 0, 0, 0, 0, 0})
  end
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

-- What scripts write to copy a network.
local function deep_copy(x, copies)
  if copies[x] then return copies[x] end
  if pg.is_tensor(x) then copies[x] = pg.param(x:clone())
  elseif type(x) == "table" then
    copies[x] = {}
    for k, v in pairs(x) do copies[x][deep_copy(k, copies)] = deep_copy(v, copies) end
    setmetatable(copies[x], getmetatable(x))
  end
  return copies[x] or x
end

t.test("a copy of a hybridized block has graphs of its own", function()
  local net = nn.HybridSequential{nn.Dense(3, {in_units = 2}), nn.Dense(1, {in_units = 3})}
  net:initialize("ones")
  net:hybridize()
  local x = pg.ones(1, 2)
  t.equal({net(x):item(), net(x):item()}, {6, 6})
  local copy = deep_copy(net, {})
  t.equal({copy:cache_info().traces, net:cache_info().traces}, {0, 1})
  t.error_contains(function() copy:graph() end, "there is no graph yet")
  copy[1].weight:zero_()
  t.equal({copy(x):item(), net(x):item()}, {0, 6})
  copy[2].bias:fill_(4)
  local calls = 0
  local hook = copy:register_forward_hook(function(block) calls = calls + (block == copy and 1 or 0) end)
  t.equal({copy(x):item(), net(x):item(), calls}, {4, 6, 1})
  hook:detach()
  pg.record(function() return copy(x):sum() end):backward()
  t.equal({copy[2].bias.grad, net[2].bias.grad}, {{1}, {0}})
  copy:hybridize(false)
  t.equal({copy(x):item(), net(x):item(), copy:cache_info().traces, net:cache_info().traces}, {4, 6, 0, 1})

  local first = setmetatable({}, {__index = net, __call = getmetatable(net).__call})
  first[1], first[2] = net[1], copy[2]
  t.equal({first(x):item(), net(x):item()}, {10, 6})
end)

t.test("a copy of a recurrent cell unrolls its own parameters", function()
  local cell = nn.rnn.RNNCell(2, {input_size = 1, activation = "relu"})
  cell:initialize("ones")
  local function unroll(c) return c:unroll(2, pg.ones(1, 2, 1), {merge_outputs = true}):sum():item() end
  local before = unroll(cell)
  t.check(before ~= 0)
  local copy = deep_copy(cell, {})
  for _, p in copy:parameters() do p:zero_() end
  t.equal({unroll(copy), unroll(cell)}, {0, before})
end)

t.test("a copy of a SymbolBlock runs on its own parameters", function()
  local dense = nn.Dense(1, {in_units = 2})
  dense:initialize("ones")
  local x, data = pg.ones(1, 2), pg.symbol("data", {shape = {1, 2}})
  for _, hybridized in ipairs{false, true} do
    local net = nn.SymbolBlock(dense(data), data)
    if hybridized then net:hybridize() end
    t.equal(net(x):item(), 2)
    local copy = deep_copy(net, {})
    copy.weight:fill_(3)
    t.equal({copy(x):item(), net(x):item()}, {6, 2})
    pg.record(function() return copy(x):sum() end):backward()
    t.equal({copy.weight.grad, net.weight.grad}, {{{1, 1}}, {{0, 0}}})
  end
end)
