-- The programs of Gluon's documents on hybridizing, in their order. Each has the same results hybridized and eagerly,
-- and prints where the documents say so. Loops of a hybridized block (foreach) have tests of their own.
local t = require "tests.support"
local pg = require "perigee"
local nn = pg.nn

-- Runs a script in a separate process and returns its lines.
local function lines_of(script)
  local out, err, code = t.run("-", script)
  t.check(code == 0, "code " .. code .. ": " .. err .. out)
  local lines = {}
  for line in out:gmatch("[^\n]*") do if line ~= "" then lines[#lines + 1] = line end end
  return lines, out
end

local function mlp()
  local net = nn.HybridSequential{}
  net:add(nn.Dense(256, {activation = "relu"}), nn.Dense(128, {activation = "relu"}), nn.Dense(2))
  net:collect_params():initialize()
  return net
end

t.test("imperative and symbolic: the intermediate values of a function", function()
  local function our_function(A, B, C, D)
    local E = A * B
    local F = C:matmul(D)
    local G = E + F
    return G
  end
  local W, X, Y, Z = pg.randn(3, 3), pg.randn(3, 3), pg.randn(3, 3), pg.randn(3, 3)
  local expected = our_function(W, X, Y, Z)
  local compiled = pg.jit(our_function)
  for _ = 1, 3 do t.close(compiled(W, X, Y, Z), expected) end
  t.equal(compiled:cache_info().traces, 1)
end)

t.test("imperative and symbolic: ones, times two, plus one is folded into one step", function()
  local function program(a)
    local b = pg.ones(10) * 2
    local c = b * a
    local d = c + 1
    return d
  end
  local compiled = pg.jit(program)
  t.equal(compiled(pg.ones(10)), program(pg.ones(10)))
  local _, products = tostring(compiled:graph()):gsub("mul%(", "")
  t.equal(products, 2)
  if t.mode == "nofuse" then return end
  local _, steps = compiled:graph():optimized():gsub("\n%%%d+ = [^i]", "")
  t.check(steps <= 2, compiled:graph():optimized())
end)

t.test("hybrid: add and fancy_func", function()
  local function add(a, b) return a + b end
  local function fancy_func(a, b, c, d)
    local e = add(a, b)
    local f = add(c, d)
    local g = add(e, f)
    return g
  end
  t.equal(fancy_func(1, 2, 3, 4), 10)
  local compiled = pg.jit(fancy_func)
  local one, two, three, four = pg.tensor(1), pg.tensor(2), pg.tensor(3), pg.tensor(4)
  for _ = 1, 2 do
    t.equal(compiled(one, two, three, four):item(), 10)
    t.equal(compiled(1, 2, 3, 4), 10, "plain numbers")
  end
end)

t.test("hybrid: a program can be loaded from text", function()
  local function add_str() return "local function add(a, b) return a + b end\n" end
  local function fancy_func_str()
    return "local function fancy_func(a, b, c, d)\n local e = add(a, b)\n local f = add(c, d)\n local g = add(e, f)\n return g\nend\n"
  end
  local function evoke_str() return add_str() .. fancy_func_str() .. "return fancy_func(...)" end
  local y = assert(loadstring(evoke_str()))
  t.equal(y(1, 2, 3, 4), 10)
  local compiled = pg.jit(y)
  for _ = 1, 2 do t.equal(compiled(pg.ones(2), pg.ones(2), pg.ones(2), pg.ones(2)), pg.full({2}, 4)) end
end)

t.test("HybridSequential: the same result before and after hybridize", function()
  local x, net = pg.randn(1, 512), mlp()
  local before = net(x)
  t.equal(before.shape, {1, 2})
  net:hybridize()
  for _ = 1, 3 do t.close(net(x), before) end
  local info = net:cache_info()
  t.equal({info.traces, info.hits}, {1, 2})
  net:hybridize(false)
  t.close(net(x), before)
end)

t.test("a plain Sequential hybridizes its children", function()
  local net = nn.Sequential{nn.Dense(8, {activation = "relu"}), nn.block{hybrid = false, forward = function(_, x) return x * x:sum():item() end},
                            nn.Dense(2)}
  net:initialize()
  local x = pg.randn(3, 4)
  local before = net(x)
  net:hybridize()
  for _ = 1, 2 do t.close(net(x), before) end
  t.equal({net[1]:cache_info().traces, net[3]:cache_info().hits}, {1, 1})
end)

t.test("performance: 1000 passes before and after", function()
  t.skip_in("gcstress", "a thousand passes")
  local function bench(net, x)
    local y
    for _ = 1, 1000 do y = net(x) end
    return y
  end
  local x, net = pg.randn(1, 512), mlp()
  local before = bench(net, x)
  net:hybridize()
  t.close(bench(net, x), before)
  t.equal(net:cache_info().hits, 999)
end)

local hybrid_block = [[
local pg = require "perigee"
local nn = pg.nn
local Net = nn.HybridBlock:extend("Net")
function Net:init()
  self.fc1 = nn.Dense(256)
  self.fc2 = nn.Dense(128)
  self.fc3 = nn.Dense(2)
end
function Net:hybrid_forward(F, x)
  print(("type(x): %s, F is pg: %s"):format(type(x) == "userdata" and "tensor" or "other", tostring(F == pg)))
  x = F.relu(self.fc1(x))
  x = F.relu(self.fc2(x))
  return self.fc3(x)
end
local net = Net()
net:collect_params():initialize()
local x = pg.randn(1, 512)
print("=== 1st forward ===")
local y = net(x)
print("=== 2nd forward ===")
y = net(x)
net:hybridize()
print("=== 1st forward ===")
local z = net(x)
print("=== 2nd forward ===")
z = net(x)
print(y:allclose(z))
]]

t.test("HybridBlock: forward runs at each call, and once after hybridize", function()
  local called = "type(x): tensor, F is pg: true"
  t.equal(lines_of(hybrid_block), {
    "=== 1st forward ===", called, "=== 2nd forward ===", called,
    "=== 1st forward ===", called, "=== 2nd forward ===", "true",
  })
end)

local lenet = [[
local pg = require "perigee"
local nn = pg.nn
pg.manual_seed(42)
local Net = nn.HybridBlock:extend("Net")
function Net:init()
  self.conv1 = nn.Conv2D(6, {kernel_size = 5})
  self.pool1 = nn.MaxPool2D{pool_size = 2}
  self.conv2 = nn.Conv2D(16, {kernel_size = 5})
  self.pool2 = nn.MaxPool2D{pool_size = 2}
  self.fc1 = nn.Dense(120)
  self.fc2 = nn.Dense(84)
  self.fc3_weight = pg.param{shape = {10, 84}}
end
function Net:hybrid_forward(F, x, params)
  print(x)
  x = self.pool1(F.relu(self.conv1(x)))
  x = self.pool2(F.relu(self.conv2(x)))
  x = x:reshape{0, -1}  -- 0 copies the size of the dim, -1 infers it from the rest
  x = F.relu(self.fc1(x))
  x = F.relu(self.fc2(x))
  x = F.dot(x, params.fc3_weight, {transpose_b = true})
  return x
end
local net = Net()
net:initialize()
]]

t.test("LeNet: print(x) prints a tensor at each eager call and a traced one once", function()
  local _, out = lines_of(lenet .. [[
  local x, x2 = pg.randn(16, 1, 28, 28), pg.randn(16, 1, 28, 28)
  local a, a2 = net(x), net(x2)
  print("hybridize")
  net:hybridize()
  local b, b2 = net(x), net(x2)
  print(a:allclose(b, {atol = 1e-5}), a2:allclose(b2, {atol = 1e-5}), a:equal(a2))
  ]])
  local eager, hybrid = out:match("^(.*)hybridize\n(.*)$")
  local _, printed = eager:gsub("%[float32 16x1x28x28 cpu%]", "")
  t.equal(printed, 2)
  _, printed = hybrid:gsub("16x1x28x28", "")
  t.equal(printed, 1, hybrid)
  t.check(not hybrid:find("{{", 1, true), "a traced tensor has no values to print: " .. hybrid)
  t.check(hybrid:find("true\ttrue\tfalse\n$"), hybrid)
end)

t.test("LeNet: static_alloc and static_shape", function()
  lines_of(lenet .. [[
  local print = function() end
  Net.hybrid_forward = setfenv(Net.hybrid_forward, setmetatable({print = print}, {__index = _G}))
  local x = pg.randn(16, 1, 28, 28)
  local y = net(x)
  for _, options in ipairs{{static_alloc = true}, {static_alloc = true, static_shape = true}, {static_alloc = false}} do
    net:hybridize(options)
    for _ = 1, 3 do assert(net(x):allclose(y, {atol = 1e-5})) end
  end
  net:hybridize{static_alloc = true, static_shape = true}
  net(x)
  local ok, e = pcall(net, x:narrow(1, 1, 8))
  assert(not ok and e:find("static_shape", 1, true), e)
  assert(net(x):allclose(y, {atol = 1e-5}))
  net:hybridize()
  assert(net(x:narrow(1, 1, 8)):allclose(y:narrow(1, 1, 8), {atol = 1e-5}))
  ]])
end)

t.test("hybrid: three prints of HybridNet", function()
  local lines = lines_of[[
  local pg = require "perigee"
  local nn = pg.nn
  local HybridNet = nn.HybridBlock:extend("HybridNet")
  function HybridNet:init()
    self.hidden = nn.Dense(10)
    self.output = nn.Dense(2)
  end
  function HybridNet:hybrid_forward(F, x)
    print("F: ", F == pg)
    print("x: ", x:dim(), x:size(2))
    x = F.relu(self.hidden(x))
    print("hidden: ", x:dim(), x:size(2))
    return self.output(x)
  end
  local net = HybridNet()
  net:initialize()
  local x = pg.randn(1, 4)
  local y = net(x)
  print("again") net(x)
  net:hybridize()
  print("hybrid") assert(net(x):allclose(y))
  print("again") assert(net(x):allclose(y))
  print("eager") pg.debug(function() assert(net(x):allclose(y)) end)
  ]]
  local three = {"F: \ttrue", "x: \t2\t4", "hidden: \t2\t10"}
  local expected = {}
  local function expect(...) for _, line in ipairs{...} do expected[#expected + 1] = line end end
  expect(unpack(three)) expect("again", unpack(three)) expect("hybrid", unpack(three)) expect("again")
  expect("eager", unpack(three))
  t.equal(lines, expected)
end)
