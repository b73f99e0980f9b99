-- What depends only on parameters is computed once and kept until a parameter changes. The results are always those of
-- the current parameters, however these change, and of the function that is not traced.
local t = require "tests.support"
local pg = require "perigee"
local nn = pg.nn

-- How often each kernel ran in a call of f.
local function kernels_of(f)
  local counts = {}
  for _, row in ipairs(pg.profile(f).kernels) do counts[row.name] = row.count end
  return counts
end

-- A layer with the weight a b, scaled to rows of norm 1, and a sum of two biases.
local function layer()
  local net = nn.block{
    a = pg.param{shape = {24, 5}}, b = pg.param{shape = {5, 20}}, c = pg.param{shape = {24}, init = "zeros"},
    d = pg.param{shape = {24}, init = "zeros"}, scale = pg.param{shape = {24, 1}, init = "ones", grad_req = "null"},
    forward = function(self, x)
      local w = self.a:matmul(self.b)
      return x:linear(w / w:norm(2, 2, true) * self.scale, self.c + self.d)
    end,
  }
  return net:initialize("xavier")
end

local function plain(net, x) return net.forward(net, x) end

t.test("what depends on parameters only runs once", function()
  if t.mode == "nofuse" or t.mode == "device" or t.mode == "cuda_host" or t.mode == "cuda" then t.skip("kernels have other names there") end
  local net, x = layer(), pg.rand(6, 20)
  net:hybridize()
  for _ = 1, 3 do net(x) end
  t.equal(kernels_of(function() net(x) end), {linear = 1})
  net.b:mul_(2)
  t.equal(kernels_of(function() net(x) end).matmul, 1)
  for _ = 1, 8 do net(x) end
  t.equal(kernels_of(function() net(x) end), {linear = 1})
end)

t.test("batch normalization is folded into any convolution", function()
  if t.mode == "nofuse" or t.mode == "device" or t.mode == "cuda_host" or t.mode == "cuda" then t.skip("kernels have other names there") end
  local net = nn.HybridSequential{nn.Conv2D(64, 3, {in_channels = 32, use_bias = false}), nn.BatchNorm(), nn.Activation("relu")}
  net:initialize()
  local x = pg.rand(1, 32, 5, 5)
  for _ = 1, 3 do pg.record(function() return net(x) end) end
  local expected = net(x)
  net:hybridize()
  for _ = 1, 4 do t.check(net(x):allclose(expected, {atol = 1e-5})) end
  local kernels, names = kernels_of(function() net(x) end), {}
  for name in pairs(kernels) do names[#names + 1] = name end
  table.sort(names)
  t.check(#names == 1 and names[1]:find("conv"), table.concat(names, ", "))
end)

-- Each way to change a parameter, by name.
local changes = {
  in_place = function(net) net.a:mul_(1.5) end,
  item = function(net) net.c[3] = 7 end,
  slice = function(net) net.b[{1, {2, 9}}] = 0.25 end,
  rebind = function(net) net.scale:copy_(pg.rand(24, 1)) end,
  initialize = function(net) net:initialize("normal", {force = true}) end,
  step = function(net)
    local trainer = pg.optim.Trainer(net:collect_params(), "sgd", {learning_rate = 0.1})
    local loss = pg.record(function() return net(pg.ones(2, 20)):square():mean() end)
    loss:backward()
    trainer:step(1)
  end,
  load = function(net)
    local values = {}
    for name, p in pairs(net:collect_params()) do values[name] = p:detach() * -0.5 + 0.125 end
    pg.save(t.tmp("changed.safetensors"), values)
    net:load_parameters(t.tmp("changed.safetensors"))
  end,
  same = function() end,
}

t.test("results are those of the current parameters", function()
  local seed = tonumber(os.getenv("PERIGEE_TEST_SEED")) or os.time()
  pg.manual_seed(seed)
  math.randomseed(seed)
  local names = {}
  for name in pairs(changes) do names[#names + 1] = name end
  table.sort(names)
  local net = layer()
  net:hybridize()
  for round = 1, t.mode == "gcstress" and 10 or 60 do
    local name = names[math.random(#names)]
    changes[name](net)
    for call = 1, math.random(0, 4) do
      local x = pg.rand(math.random(2) * 3, 20)
      local got, want = net(x), plain(net, x)
      t.check(got:allclose(want, {atol = 1e-5, rtol = 1e-4}), ("seed %d, round %d: %s, call %d"):format(seed, round, name, call))
    end
  end
end)

t.test("results have the same bits before and after they are kept", function()
  local net, x = layer(), pg.rand(6, 20)
  net:hybridize()
  local first = net(x):totable()
  for _ = 1, 6 do t.equal(net(x):totable(), first) end
  net.a:mul_(1)
  t.equal(net(x):totable(), first)
end)

t.test("a failure of what is kept is raised at each call until its parameter is mended", function()
  local net = nn.block{
    table = pg.param{shape = {4, 3}}, at = pg.param{shape = {2}, init = "zeros", grad_req = "null"},
    forward = function(self, x) return x:matmul(self.table:index_select(1, self.at:to("int64")):t()) end,
  }
  net:initialize()
  net.at:copy_(pg.tensor{1, 4})
  local x = pg.rand(5, 3)
  net:hybridize()
  for _ = 1, 3 do t.check(net(x):allclose(plain(net, x))) end
  net.at[2] = 9
  for _ = 1, 3 do
    local ok, e = t.pcall(function()
      net(x)
      pg.synchronize()
    end)
    t.check(not ok and e:find("9", 1, true), tostring(e))
  end
  net.at[2] = 2
  for _ = 1, 3 do t.check(net(x):allclose(plain(net, x))) end
end)

t.test("detect_anomaly looks at what is kept, too", function()
  local net = nn.block{
    a = pg.param{shape = {4}, init = "ones"}, b = pg.param{shape = {4}},
    forward = function(self, x) return pg.where(x:gt(0), x, self.b:dot(self.a:log())) end,
  }
  net:initialize()
  net.a[2] = -1
  net:hybridize()
  local x = pg.ones(4)
  for _ = 1, 4 do net(x) end
  t.error_contains(function() pg.autograd.detect_anomaly(function() return net(x) end) end, "log")
  t.close(net(x), x)
end)

t.test("changes of parameters hold no memory, whatever sizes of input were met before", function()
  local function live()
    if jit then jit.flush() end
    for _ = 1, 4 do collectgarbage() end
    return pg.memory().live
  end
  local net = nn.block{
    a = pg.param{shape = {64, 8}}, b = pg.param{shape = {8, 64}},
    forward = function(self, x) return x * self.a:matmul(self.b):exp() end,
  }
  net:initialize()
  net:hybridize()
  local function meet(change)
    for rows = 1, 6 do
      if change then net.a:mul_(1.01) end
      for _ = 1, 4 do net(pg.ones(rows, 64, 64)) end
    end
    return live()
  end
  local before = meet(false)
  local grown = meet(true) - before
  t.check(grown < 64 * 64 * 4, grown)
end)

t.test("effects happen before a later op fails that depends on parameters only", function()
  local taps = 0
  local net = nn.block{
    table = pg.param{shape = {4, 3}}, at = pg.param{shape = {1}, grad_req = "null"},
    forward = function(self, x)
      x = x:tap(function() taps = taps + 1 end)
      return x:matmul(self.table:index_select(1, self.at:to("int64")):t())
    end,
  }
  net:initialize()
  net.at:copy_(pg.tensor{9})
  net:hybridize()
  t.error_contains(function()
    net(pg.ones(2, 3))
    pg.synchronize()
  end, "9")
  t.equal(taps, 1)
end)

t.test("recorded calls give the gradients of all parameters", function()
  local net, x = layer(), pg.rand(6, 20)
  local function gradients(f)
    local loss = pg.record(function() return f(x):square():sum() end)
    loss:backward()
    return {net.a.grad:totable(), net.b.grad:totable(), net.c.grad:totable()}
  end
  local want = gradients(function(y) return plain(net, y) end)
  net:hybridize()
  for _ = 1, 4 do net(x) end
  local got = gradients(net)
  for i = 1, 3 do t.close(pg.tensor(got[i]), pg.tensor(want[i]), {atol = 1e-5, rtol = 1e-4}) end
end)

t.test("an exported model keeps what depends on its parameters", function()
  local net, x = layer(), pg.rand(6, 20)
  net:hybridize()
  local want = net(x)
  local json, tensors = net:export(t.tmp("model"))
  local model = nn.SymbolBlock.imports(json, nil, tensors)
  for _ = 1, 4 do t.close(model(x), want, {atol = 1e-6}) end
end)
