-- Symbols outside of traces, graphs of them, and blocks of graphs.
local t = require "tests.support"
local pg = require "perigee"
local nn = pg.nn

t.test("ops on symbols make a graph", function()
  local a, b = pg.symbol("a", {shape = {2, 3}}), pg.symbol("b", {shape = {3}})
  t.equal(b.shape, {3})
  t.equal(b.dtype, "float32")
  local y = (a * 2 + b):sum(2)
  local g = pg.graph(y, {a, b})
  t.equal(g:inputs(), {"a", "b"})
  local x, z = pg.randn(2, 3), pg.randn(3)
  t.close(g:run(x, z), (x * 2 + z):sum(2))
  t.close(g(pg.ones(5, 3), z), (pg.ones(5, 3) * 2 + z):sum(2))
  t.equal({pg.graph({y, {sum = a}}, {a, b}):infer_shape{a = {4, 3}}}, {{4}, {4, 3}, {"float32", "float32"}})
end)

t.test("values of symbols cannot be read", function()
  local a = pg.symbol("a", {shape = {2}})
  t.error_contains(function() return a:item() end, "cannot be read")
  t.error_contains(function() return a:totable() end, "cannot be read")
  t.check(tostring(a):find("2"))
  t.close(pg.ones(2) + 1, pg.tensor{2, 2}, {what = "eager as before"})
end)

t.test("nets compose", function()
  local net = nn.HybridSequential{nn.Dense(4, {activation = "relu"}), nn.BatchNorm(), nn.Dropout(0.5), nn.Dense(2)}
  net:initialize()
  local x = pg.randn(3, 5)
  local want = net(x)
  local data = pg.symbol("data", {shape = {3, 5}})
  local block = nn.SymbolBlock(net(data), data)
  t.close(block(x), want)
  t.close(block(x:narrow(1, 1, 2)), want:narrow(1, 1, 2))
  local paths = {}
  for path, p in block:parameters() do
    paths[#paths + 1] = path
    t.check(rawequal(p, net:collect_params()[path]), "shares the parameter")
  end
  t.equal(#paths, 8)
  net[1].bias:fill_(1)
  t.close(block(x), net(x), {what = "sees the change"})
  -- Training updates the running statistics of the net that it was composed from.
  local before = net[2].running_mean:clone()
  pg.record(function() block(x) end)
  t.check(not net[2].running_mean:equal(before))
  local json, tensors = pg.graph(net(data), data):export(t.tmp("composed"))
  t.close(nn.SymbolBlock.imports(json, "data", tensors)(x), net(x))
end)

t.test("parameters by name", function()
  local net = nn.Dense(2, {in_units = 3, use_bias = false})
  net:initialize()
  local data = pg.symbol("data", {shape = {1, 3}})
  local block = nn.SymbolBlock(net(data), data, {weight = pg.ones(2, 3)})
  t.close(block(pg.ones(1, 3)), pg.tensor{{3, 3}})
  t.error_contains(function() nn.SymbolBlock(net(data), data, {weigth = pg.ones(2, 3)}) end, "did you mean 'weight'")
  t.error_contains(function() nn.SymbolBlock(net(data), data, {weight = pg.ones(2, 4)}) end, "expected shape {2, 3}")
end)

t.test("wrong calls", function()
  t.bad_argument(function() pg.symbol(3) end, "symbol", "name")
  t.error_contains(function() pg.symbol("a", {shap = {1}}) end, "did you mean 'shape'")
  t.error_contains(function() pg.symbol("a") end, "shape")
  t.error_contains(function() pg.symbol("a", {shape = {-1}}) end, "shape")
  local a, b = pg.symbol("a", {shape = {2}}), pg.symbol("b", {shape = {2}})
  t.error_contains(function() pg.graph(a + b, a) end, "depend on the symbol 'b'")
  t.error_contains(function() pg.graph(a + b, {a, a + b}) end, "not a symbol of pg.symbol")
  t.error_contains(function() pg.graph(a + b, {a, b, b}) end, "twice")
  t.error_contains(function() pg.graph(pg.ones(2), a) end, "symbols")
  t.error_contains(function() pg.graph(a, pg.ones(2)) end, "symbols")
  t.error_contains(function() pg.graph({}, a) end, "outputs")
  t.error_contains(function() pg.graph(3, a) end, "outputs")
  t.error_contains(function() return a + pg.ones(3) end, "broadcast")
end)

t.test("symbols without references are freed", function()
  local live = pg.memory().tensors
  for _ = 1, 3 do
    do
      local net = nn.Dense(64, {in_units = 64})
      net:initialize()
      local data = pg.symbol("data", {shape = {1, 64}})
      pg.graph(net(data), data):run(pg.ones(1, 64))
    end
    collectgarbage()
    collectgarbage()
  end
  pg.symbol("last", {shape = {1}})
  collectgarbage()
  collectgarbage()
  t.check(pg.memory().tensors < live + 20, pg.memory().tensors - live)
end)

t.test("symbols, their graphs and exports keep the names", function()
  local left, right = pg.symbol("left", {shape = {2, 3}}), pg.symbol("right", {shape = {2, 3}})
  t.equal({left.name, right.name}, {"left", "right"})
  t.check(tostring(left):find('"left" float32 2x3', 1, true), tostring(left))
  local net = nn.HybridSequential{nn.Dense(4), nn.Dense(2)}:initialize("xavier")
  local y = net(left) + right:sum(2, true)
  t.equal(y.name, nil)
  local block = nn.SymbolBlock(y, {left, right})
  local x1, x2 = pg.rand(2, 3), pg.rand(2, 3)
  local expected = block(x1, x2)
  for _, hybridized in ipairs{false, true} do
    if hybridized then block:hybridize() end
    t.close(block(x1, x2), expected)
    local json, tensors = block:export(t.tmp("named"))
    t.check(t.read(json):find('"name":"left"', 1, true) and not t.read(json):find("data1", 1, true))
    local again = nn.SymbolBlock.imports(json, {"right", "left"}, tensors)
    t.close(again(x2, x1), expected)
    t.equal(again:graph():inputs(), block:graph():inputs())
    local second = nn.SymbolBlock.imports(again:export(t.tmp("again")), {"left", "right"}, t.tmp("again.safetensors"))
    t.close(second(x1, x2), expected)
  end
end)

t.test("a SymbolBlock takes the parameters of collect_params", function()
  local x = pg.symbol("data", {shape = {2, 3}})
  local net = nn.HybridSequential{nn.Dense(4), nn.Dense(2)}:initialize("xavier")
  local y = net(x)
  local block = nn.SymbolBlock(y, {x}, net:collect_params())
  local value = pg.rand(2, 3)
  t.close(block(value), net(value))
  t.check(block["1.weight"] == net[1].weight)
  net:hybridize()  -- the first call with a value
  net(value)
  t.check(net:export(t.tmp("composed")))
  t.error_contains(function() nn.SymbolBlock(y, {x}, 5) end, "SymbolBlock: bad argument 'params'")
end)

t.test("the graph of a block names its inputs", function()
  local scale = pg.tensor{2}
  local net = nn.block{fc = nn.Dense(2, {in_units = 3}), forward = function(self, x, more) return self.fc(x) * scale + more.extra end}
  net:initialize("xavier")
  net:hybridize()
  net(pg.rand(1, 3), {extra = pg.ones(1)})
  local text = tostring(net:graph())
  for _, name in ipairs{"data1", "data2", "fc.weight", "fc.bias", "upvalue 'scale'"} do
    t.check(text:find('input "' .. name .. '"', 1, true), name .. " in " .. text)
  end
  local f = pg.jit(function(x) return x * scale end)
  f(pg.ones(1))
  t.check(tostring(f:graph()):find('input "data"', 1, true))
end)
