-- Exported training steps: a graph that updates its own parameters, without the script.
local t = require "tests.support"
local pg = require "perigee"
local nn = pg.nn

local optimizers = {
  {"sgd", {learning_rate = 0.1, momentum = 0.9, wd = 0.01}}, {"adam", {learning_rate = 0.01}}, {"adamw", {learning_rate = 0.01, wd = 0.1}}, {"nag", {learning_rate = 0.01, momentum = 0.5, clip_gradient = 0.1}},
}

local function make_net()
  local net = nn.HybridSequential{nn.Dense(8, {activation = "tanh"}), nn.BatchNorm(), nn.Dense(3)}
  net:initialize(pg.init.Xavier())
  return net
end

local function make_step(net, trainer)
  local loss_of = pg.loss.SoftmaxCrossEntropyLoss()
  return pg.jit(function(x, y)
    local loss = pg.record(function() return loss_of(net(x), y):mean() end)
    loss:backward()
    trainer:step(1)
    return loss
  end)
end

local function batch(i)
  local generator = pg.Generator(i)
  local x = pg.randn(16, 5, {generator = generator})
  return x, (x:sum(2):gt(0):to("int64") + 1)
end

-- Returns an exported step after three steps of the script, with the script's own step and net.
local function exported(path, optimizer, options)
  pg.manual_seed(7)
  local net = make_net()
  local trainer = pg.optim.Trainer(net:collect_params(), optimizer, options)
  local step = make_step(net, trainer)
  for i = 1, 3 do step(batch(i)) end
  local json, tensors = step:export(path)
  return nn.SymbolBlock.imports(json, {"data1", "data2"}, tensors), step, net, trainer
end

for _, row in ipairs(optimizers) do
  t.test("an exported " .. row[1] .. " step equals the script's, bit for bit", function()
    local path = t.tmp("train")
    local model, step, net = exported(path, row[1], row[2])
    for i = 4, 12 do
      local x, y = batch(i)
      local expected, got = step(x, y), model(x, y)
      t.check(pg.equal(expected, got), ("step %d: %s and %s"):format(i, tostring(expected), tostring(got)))
    end
    local trained = model:collect_params()
    for name, p in pairs(net:collect_params()) do
      if trained[name] then t.check(pg.equal(p, trained[name]), name) end
    end
  end)
end

t.test("an exported step names parameters and states as the trainer does", function()
  local path = t.tmp("train")
  exported(path, "adam", {learning_rate = 0.01})
  local tensors = pg.load(path .. ".safetensors")
  for _, name in ipairs{"1.weight", "1.weight.mean", "3.bias", "updates", "2.running_mean"} do
    t.check(tensors[name] ~= nil, "no " .. name)
  end
  t.equal(tensors.updates:item(), 3)
end)

t.test("two trainers keep their counts apart", function()
  local path = t.tmp("train")
  pg.manual_seed(3)
  local nets, trainers = {}, {}
  for i = 1, 2 do
    nets[i] = make_net()
    trainers[i] = pg.optim.Trainer(nets[i]:collect_params(), "adam", {learning_rate = 0.01 * i})
  end
  local step = pg.jit(function(x)
    local function train(i, target)
      local loss = pg.record(function() return (nets[i](x) - target):square():mean() end)
      loss:backward()
      trainers[i]:step(1)
      return loss
    end
    local a = train(1, 1)
    return a, train(2, a:detach()), train(1, 0)
  end)
  step((batch(1)))
  local json, tensors = step:export(path)
  local model = nn.SymbolBlock.imports(json, {"data"}, tensors)
  for i = 2, 6 do
    local x = batch(i)
    local expected, got = {step(x)}, {model(x)}
    for k = 1, 3 do t.check(pg.equal(expected[k], got[k]), "result " .. k .. " of step " .. i) end
  end
end)

t.test("what an exported step cannot hold is an error", function()
  local path = t.tmp("train")
  local net = make_net()
  local scheduler = pg.optim.lr_scheduler.Factor(10, {factor = 0.5, base_lr = 0.1})
  local step = make_step(net, pg.optim.Trainer(net:collect_params(), "sgd", {learning_rate = 0.1, lr_scheduler = scheduler}))
  t.error_contains(function() step:export(path) end, "call the function once first")
  step(batch(1))
  t.error_contains(function() step:export(path) end, "export: the learning rate follows a schedule")
  local plain = pg.jit(function(x) return x * 2 end)
  plain(pg.ones(3))
  t.check(plain:export(path) == path .. ".json")
end)

t.test("an exported step keeps rates per parameter and dropout", function()
  local path = t.tmp("train")
  local net = nn.HybridSequential{nn.Dense(8), nn.Dropout(0.5), nn.Dense(3)}
  net:initialize()
  net[1].weight.lr_mult = 0.5
  local step = make_step(net, pg.optim.Trainer(net:collect_params(), "adam", {learning_rate = 0.01}))
  step(batch(1))
  local json, tensors = step:export(path)
  local model = nn.SymbolBlock.imports(json, {"data1", "data2"}, tensors)
  for i = 2, 6 do
    local x, y = batch(i)
    pg.manual_seed(i)
    local expected = step(x, y)
    pg.manual_seed(i)
    t.check(pg.equal(model(x, y), expected), "step " .. i)
  end
end)

t.test("tensors that the function assigns become states of the graph", function()
  local x = pg.tensor{1, 2}
  local function run(make)
    local step = make()
    step(x) step(x)
    local path = t.tmp("states")
    local json, tensors = step:export(path)
    local imported = pg.nn.SymbolBlock.imports(json, nil, tensors)
    for call = 1, 4 do
      local a, b = {step(x * call)}, {imported(x * call)}
      t.equal(#a, #b)
      for k = 1, #a do t.equal(b[k]:totable(), a[k]:totable(), ("call %d, result %d"):format(call, k)) end
    end
  end
  run(function()
    local s = pg.zeros(2)
    return pg.jit(function(a) local old = s s = s + a return s * 1, old end)
  end)
  run(function()
    local h = {pg.zeros(2), at = {pg.ones(2)}}
    return pg.jit(function(a) h = {h.at[1], at = {h[1] + a}} return h[1], h.at[1] end)
  end)
  run(function()
    local first = pg.ones(2)
    local o = {a = first, b = pg.zeros(2), c = first}  -- two names of one tensor
    return pg.jit(function(a) o.a, o.b = o.b, o.a + a return o.a, o.b, o.c * 1 end)
  end)
  run(function()
    local net = pg.nn.block{forward = function(self, a)
      self.mean = self.mean * 0.5 + a:mean() * 0.5
      return a - self.mean
    end}
    net.mean = pg.constant(pg.zeros{})
    net:initialize()
    return net
  end)
end)

t.test("tensors with attach_grad that no trainer knows go on training", function()
  local x = pg.ones(2)
  for name, make in pairs{
    in_place = function()
      local w = pg.ones(2):attach_grad()
      return function(a)
        local l = pg.record(function() return (w * w * a):sum() end)
        l:backward()
        w:sub_(w.grad * 0.1)
        return l
      end
    end,
    replaced = function()
      local st = {w = pg.ones(2):attach_grad()}
      return function(a)
        local l = pg.record(function() return (st.w * st.w * a):sum() end)
        l:backward()
        st.w = (st.w - st.w.grad * 0.1):detach():attach_grad()
        return l
      end
    end,
    read = function()
      local w = pg.ones(2):attach_grad()
      return function(a)
        return pg.autograd.grad({pg.record(function() return (w * w * a):sum() end)}, {w})[1]:sum()
      end
    end,
  } do
    local step = pg.jit(make())
    step(x)
    local json, tensors = step:export(t.tmp("leaf"))
    local imported = nn.SymbolBlock.imports(json, nil, tensors)
    t.warnings(function()  -- of new traces for new leaves
      for call = 1, 3 do t.close(imported(x):item(), step(x):item(), {what = name .. call}) end
    end)
  end
end)

t.test("what no graph can change is an error or a warning", function()
  local n, s, flags = 0, pg.zeros(2), {seen = false}
  local count = pg.jit(function(a) n = n + 1 flags.seen = true return a * 1 end)
  count(pg.tensor{1})
  flags.seen = false
  local warned = t.warnings(function() count:export(t.tmp("count")) end)
  t.equal(#warned, 2)
  t.check(warned[1]:find("changes upvalue 'n' from 1 to 2, which its graph does not", 1, true) or
          warned[2]:find("changes upvalue 'n' from 1 to 2, which its graph does not", 1, true), warned[1])
  local grow = pg.jit(function(a) s = pg.cat{s, a} return s * 1 end)
  grow(pg.tensor{1})
  t.error_contains(function() grow:export(t.tmp("grow")) end, "a state of the function changes from float32 3 cpu to float32 4 cpu")
  t.equal(s:totable(), {0, 0, 1})
  t.equal(flags.seen, false)
end)

t.test("a call that fails leaves the types that an export uses", function()
  local function block()
    local w = pg.param{shape = {2, 2}}
    return nn.block{forward = function(self, x) return x:matmul(x:t()):linear(self.w) end, w = w}:initialize()
  end
  local function hybrid() local net = block() net:hybridize() return net end
  local function hooked()
    local net = block()
    net:register_forward_hook(function() end)
    return net
  end
  local function nested()
    local net = nn.HybridSequential{block()}
    net:hybridize()
    return net
  end
  local function step() local net = block() return pg.jit(function(x) return net(x) end) end
  for what, make in pairs{block = block, hybrid = hybrid, hooked = hooked, nested = nested, step = step} do
    local f, good, bad, path = make(), pg.ones(2, 5), pg.ones(3, 5), t.tmp("failed")
    local function fails() t.error_contains(function() f(bad) end, "linear") end
    fails()
    t.error_contains(function() f:export(path) end, "once first")
    f(good)
    f:export(path)
    fails()
    f:export(path)
    f(good)
    t.check(f:export(path), what)
    if what == "nested" then t.check(f[1]:export(path), what) end
  end
end)
