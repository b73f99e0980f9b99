-- The programs of Gluon's documents that inspect, write and read the symbolic program.
local t = require "tests.support"
local json = require "tests.json"
local pg = require "perigee"
local nn = pg.nn

local function mlp()
  local net = nn.HybridSequential{nn.Dense(256, {activation = "relu"}), nn.Dense(128, {activation = "relu"}), nn.Dense(2)}
  net:initialize()
  return net
end

local Lenet = nn.HybridBlock:extend("Lenet")
function Lenet:init()
  self.conv1 = nn.Conv2D(6, {kernel_size = 5})
  self.pool1 = nn.MaxPool2D{pool_size = 2}
  self.conv2 = nn.Conv2D(16, {kernel_size = 5})
  self.pool2 = nn.MaxPool2D{pool_size = 2}
  self.fc1 = nn.Dense(120)
  self.fc2 = nn.Dense(84)
  self.fc3_weight = pg.param{shape = {10, 84}}
end
function Lenet:hybrid_forward(F, x, params)
  x = self.pool1(F.relu(self.conv1(x)))
  x = self.pool2(F.relu(self.conv2(x)))
  x = x:reshape{0, -1}
  x = F.relu(self.fc1(x))
  x = F.relu(self.fc2(x))
  return F.dot(x, params.fc3_weight, {transpose_b = true})
end

t.test("symbols: define, compile, feed", function()
  local A, B = pg.symbol("A", {shape = {3, 3}}), pg.symbol("B", {shape = {3, 3}})
  local C, D = pg.symbol("C", {shape = {3, 3}}), pg.symbol("D", {shape = {3, 3}})
  local E = A * B
  local F = C:matmul(D)
  local G = E + F
  local our_function = pg.graph({G}, {A, B, C, D})
  local W, X, Y, Z = pg.randn(3, 3), pg.randn(3, 3), pg.randn(3, 3), pg.randn(3, 3)
  local result = our_function:run(W, X, Y, Z)
  t.close(result[1], W * X + Y:matmul(Z))
  t.equal(our_function:inputs(), {"A", "B", "C", "D"})
end)

t.test("sym.var('data'), net(x), tojson", function()
  local net = mlp()
  local input = pg.randn(1, 512)
  local expected = net(input)
  local x = pg.symbol("data", {shape = {1, 512}})
  t.check(tostring(x):find("float32 1x512", 1, true), tostring(x))
  local y = net(x)
  t.check(type(tostring(y)) == "string")
  local graph = pg.graph(y, {x})
  local text = graph:tojson()
  local document = json.decode(text)
  t.check(type(document) == "table")
  for _, word in ipairs{"data", "linear", "relu"} do t.check(text:find(word, 1, true), word .. " is missing in " .. text:sub(1, 500)) end
  t.close(graph:run(input), expected)
end)

t.test("net:export('my_mlp') and import without the script", function()
  local net, x = mlp(), pg.randn(1, 512)
  net:hybridize()
  t.error_matches(function() net:export(t.tmp("early")) end, "call")
  local y = net(x)
  local model, weights = net:export(t.tmp("my_mlp"))
  t.equal({model, weights}, {t.tmp("my_mlp.json"), t.tmp("my_mlp.safetensors")})
  local imported = nn.SymbolBlock.imports(model, {"data"}, weights)
  t.close(imported(x), y)
  imported:hybridize()
  for n = 1, 3 do
    local batch = pg.randn(n, 512)
    t.close(imported(batch), net(batch), {rtol = 1e-4, atol = 1e-5})
  end
  local out, err, code = t.run("-", ([[
    local pg = require "perigee"
    local net = pg.nn.SymbolBlock.imports("%s", {"data"}, "%s")
    print(net(pg.ones(1, 512, {device = "%s"})):size(2))
  ]]):format(model, weights, t.device))
  t.equal(code, 0, err)
  t.equal(out, "2\n")
end)

t.test("LeNet: export with an epoch, import, compare, train on", function()
  local net, x = Lenet(), pg.randn(4, 1, 28, 28)
  net:initialize()
  net:hybridize()
  local y = net(x)
  local model, weights = net:export(t.tmp("model"), {epoch = 1})
  t.equal(weights, t.tmp("model-0001.safetensors"))
  local net2 = nn.SymbolBlock.imports(model, {"data"}, weights)
  t.close(net2(x), y, {rtol = 1e-4, atol = 1e-5})
  local names = {}
  for path in net2:parameters() do names[path] = true end
  for path in net:parameters() do t.check(names[path], path .. " is not in the import") end
  net2:hybridize()
  local loss_fn = pg.loss.SoftmaxCrossEntropyLoss()
  local labels = pg.tensor({1, 2, 3, 4}, {dtype = "int64"})
  local trainer = pg.optim.Trainer(net2:collect_params(), "sgd", {learning_rate = 0.1})
  local first, last
  for _ = 1, 5 do
    local l = pg.record(function() return loss_fn(net2(x), labels):mean() end)
    l:backward()
    trainer:step(1)
    last = l:item()
    first = first or last
  end
  t.equal(net2:cache_info().traces, 1)
  t.check(last < first, ("loss went from %g to %g"):format(first, last))
end)

t.test("an export keeps several inputs, their nesting and the nesting of outputs", function()
  local net = nn.block{forward = function(_, a, states) return {sum = a + states[1], parts = {states[2] * 2, a}} end}
  net:hybridize()
  local a, b, c = pg.randn(2), pg.randn(2), pg.randn(2)
  local y = net(a, {b, c})
  local model, weights = net:export(t.tmp("nested"))
  local net2 = nn.SymbolBlock.imports(model, nil, weights)
  local z = net2(a, {b, c})
  t.close(z.sum, y.sum)
  t.close(z.parts, y.parts)
end)

t.test("an internal value can be the output: features of a net", function()
  local net, x = mlp(), pg.randn(2, 512)
  net(x)
  local data = pg.symbol("data", {shape = {2, 512}})
  local graph = pg.graph(net(data), {data})
  local internals = graph:internals()
  t.equal(internals.relu2.shape, {2, 128})
  local features = nn.SymbolBlock(internals.relu2, data)
  t.close(features(x), net[2](net[1](x)), {rtol = 1e-4, atol = 1e-5})
end)

t.test("an export keeps the gradient of a Function and the state that forward updates", function()
  local twice = pg.autograd.Function{
    name = "twice", forward = function(_, x) return x * 2 end, backward = function(_, dy) return dy * 20 end,
  }
  local net = nn.block{
    count = pg.constant(pg.tensor{0}),
    forward = function(self, x)
      self.count:add_(1)
      return twice(x) * self.count
    end,
  }
  net:initialize()
  t.equal(net(pg.ones(2)), pg.full({2}, 2))
  local imported = nn.SymbolBlock.imports(net:export(t.tmp("function")), nil, t.tmp("function.safetensors"))
  local x = pg.ones(3):attach_grad()
  local y = pg.record(function() return imported(x) end)
  t.equal(y, pg.full({3}, 4))
  y:backward()
  t.equal(x.grad, pg.full({3}, 40))
  t.equal(imported(x), pg.full({3}, 6))
end)
