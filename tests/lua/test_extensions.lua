-- What a script makes of its own (optimizers, schedulers, initializers, Functions, blocks, datasets) gives the same
-- numbers as plain Lua, jitted and hybridized.
local t = require "tests.support"
local pg = require "perigee"
local nn, optim, data = pg.nn, pg.optim, pg.data
local T = pg.tensor

local ways = {
  plain = {jit = function(f) return f end, hybridize = function(block) return block end},
  graph = {jit = pg.jit, hybridize = function(block) block:hybridize() return block end},
}

-- Runs make(jit, hybridize) -> a table of results as plain Lua and with graphs, from one seed; the results of both are equal.
local function same(make, opts)
  local found = {}
  for name, way in pairs(ways) do
    pg.manual_seed(3)
    found[name] = make(way.jit, way.hybridize)
  end
  t.close(found.graph, found.plain, opts)
  return found.plain
end

-- Optimizers and schedulers ------------------------------------------------------------------------------------------------------

-- Trains two tensors for four steps. between(trainer, w, v, i) is called after each.
local function train(jit, optimizer, between, prepare)
  local w, v = T{1, -2, 3}:attach_grad(), pg.param(T{0.5, 1, 2})
  if prepare then prepare(w, v) end
  local trainer = optim.Trainer({w, v}, optimizer)
  local step = jit(function(x)
    local l = pg.record(function() return (w * w * v * x):sum() end)
    l:backward()
    trainer:step(2)
    return l
  end)
  local out = {}
  for i = 1, 4 do
    out[i] = step(T{i * 0.1, 0.2, 0.3})
    if between then between(trainer, w, v, i) end
  end
  out[5], out[6] = w, v
  return out
end

-- An optimizer whose update calls update(self, group, i, w, g) for each weight.
local function kind(update, fields)
  local Mine = optim.Optimizer:extend("Mine")
  for key, value in pairs(fields or {}) do Mine[key] = value end
  function Mine:update(group)
    for i, w in ipairs(group.weights) do update(self, group, i, w, group.grads[i]) end
  end
  return Mine
end

local function at(value, i) return type(value) == "table" and value[i] or value end
local function descend(_, group, i, w, g) w:sub_(g * at(group.lr, i)) end

t.test("an optimizer of one's own reads the live lr, wd, t and rescale_grad", function()
  local rules = {
    lr = function(group, _, g) return g * group.lr end,
    rescale_grad = function(group, _, g) return g * group.rescale_grad * group.lr end,
    wd = function(group, w, g) return (g + w * group.wd) * group.lr end,
    t = function(group, _, g) return g * (group.lr / group.t) end,
    ["a power of t"] = function(group, _, g) return g * group.lr * (1 - 0.9 ^ group.t) ^ 0.5 end,
  }
  for name, rule in pairs(rules) do
    local Mine = kind(function(_, group, _, w, g) w:sub_(rule(group, w, g)) end)
    local found = same(function(jit)
      return train(jit, Mine{learning_rate = 0.1, wd = 0.3}, function(trainer, _, _, i) trainer:set_learning_rate(0.1 / i) end)
    end, {what = name})
    t.check(not found[5]:allclose(T{1, -2, 3}), name .. " trains nothing")
  end
end)

t.test("an optimizer of one's own has states, counters and fields", function()
  t.may_warn("traced again for the third time because trainer.optimizer.n")
  same(function(jit)
    local Momentum = kind(function(_, group, i, w, g)
      local m = group.m[i]
      m:copy_(m * 0.9 + g)
      w:sub_(m * group.lr)
    end, {states = {"m"}})
    return train(jit, Momentum{learning_rate = 0.1})
  end)
  same(function(jit)
    local Counting = kind(descend)
    local update = Counting.update
    function Counting:update(group)
      self.n = (self.n or 0) + 1
      self.sum = (self.sum or T(0)) + group.grads[1]:sum() * self.n
      update(self, group)
      group.weights[1]:sub_(self.sum * 0.01)
    end
    local optimizer = Counting{learning_rate = 0.1}
    local out = train(jit, optimizer)
    out[#out + 1], out[#out + 2] = T(optimizer.n), optimizer.sum
    return out
  end)
  same(function(jit)
    local Scaled = kind(function(self, group, _, w, g) w:sub_(g * group.lr * self.scale) end, {options = {scale = 0.5}})
    return train(jit, Scaled{learning_rate = 0.1, scale = 0.7}, function(trainer, _, _, i)
      if i == 2 then trainer.optimizer.scale = 0.9 end
    end)
  end)
end)

t.test("multipliers by parameter come as lists of tensors", function()
  same(function(jit) return train(jit, kind(descend){learning_rate = 0.1}, nil, function(_, v) v.lr_mult = 0.5 end) end)
  same(function(jit)
    return train(jit, kind(descend){learning_rate = 0.1}, function(_, _, v, i) v.lr_mult = i == 1 and 0.5 or 1 end)
  end)
  same(function(jit)  -- decay is zero at first, so that one number says it all
    local Decay = kind(function(_, group, i, w, g) w:sub_((g + w * at(group.wd, i)) * at(group.lr, i)) end)
    return train(jit, Decay{learning_rate = 0.1}, function(trainer, _, _, i) trainer.optimizer.wd = i * 0.1 end,
                 function(_, v) v.wd_mult = 0 end)
  end)
end)

t.test("fused updates in an optimizer of one's own", function()
  same(function(jit)
    local Mine = optim.Optimizer:extend("Mine")
    function Mine:update(group) pg.sgd_update_(group.weights, group.grads, self:with(group)) end
    return train(jit, Mine{learning_rate = 0.1, wd = 0.2})
  end)
  same(function(jit)
    local Halved = optim.SGD:extend("Halved")
    function Halved:update(group)
      for i = 1, group.n do group.grads[i]:mul_(0.5) end
      return optim.SGD.update(self, group)
    end
    return train(jit, Halved{learning_rate = 0.1, momentum = 0.5})
  end)
end)

t.test("an optimizer of one's own trains other dtypes", function()
  for dtype, rtol in pairs{float64 = 1e-15, float16 = 1e-3} do
    same(function(jit)
      local w = T({1, 2}, {dtype = dtype}):attach_grad()
      local trainer = optim.Trainer({w}, kind(descend){learning_rate = 0.1})
      local step = jit(function(x)
        pg.record(function() return (w * x):sum() end):backward()
        trainer:step(1)
      end)
      for _ = 1, 3 do step(T({1, 2}, {dtype = dtype})) end
      return {w}
    end, {rtol = rtol, what = dtype})
  end
  same(function(jit)
    local w, v = T({1, 2}, {dtype = "float64"}):attach_grad(), T({1, 2}, {dtype = "float16"}):attach_grad()
    local trainer = optim.Trainer({w, v}, kind(descend){learning_rate = 0.1})
    local step = jit(function(x)
      pg.record(function() return ((w + v) * x):sum() end):backward()
      trainer:step(1)
    end)
    for _ = 1, 3 do step(T{1, 2}) end
    return {w, v}
  end, {rtol = 1e-3})
end)

t.test("an optimizer of one's own reads plain rates for float32 and float64 weights together", function()
  same(function(jit)
    local w, v = T({1, 2}, {dtype = "float64"}):attach_grad(), T{1, 2}:attach_grad()
    local Warm = kind(function(_, group, _, x, g)
      x:sub_((g + x * group.wd) * group.lr * group.rescale_grad / (1 + 0.9 ^ group.t))
      t.equal(x.dtype, g.dtype)
    end)
    local trainer = optim.Trainer({w, v}, Warm{learning_rate = 0.1, wd = 0.2})
    local step = jit(function(x)
      pg.record(function() return ((w + v) * x):sum() end):backward()
      trainer:step(1)
    end)
    for _ = 1, 3 do step(T{1, 2}) end
    t.equal({w.dtype, v.dtype}, {"float64", "float32"})
    return {w, v}
  end, {rtol = 1e-6})
end)

t.test("a step that depends on the count of updates says so with an op", function()
  t.skip_in("device", "an op of numbers gives a tensor on the CPU")
  same(function(jit)
    local First = kind(function(_, group, i, w, g)
      local m = group.m[i]
      m:copy_(pg.where(pg.eq(group.t, 1), g, m * 0.9 + g * 0.1))
      w:sub_(m * group.lr)
    end, {states = {"m"}})
    return train(jit, First{learning_rate = 0.1})
  end)
end)

t.test("schedulers of one's own are called once an update", function()
  local makers = {
    ["a function"] = function() return function(n) return 0.1 / n end end,
    ["a class"] = function()
      local Mine = optim.lr_scheduler.Scheduler:extend("Mine")
      function Mine:init() self.base_lr, self.warmup_steps = 0.2, 2 self.warmup_begin_lr, self.warmup_mode = 0, "linear" end
      function Mine:rate(n) return self.base_lr / n end
      return Mine()
    end,
    ["a counter in a local"] = function()
      local calls = 0
      return function()
        calls = calls + 1
        return 0.1 / calls
      end
    end,
    ["a counter in a field"] = function()
      return setmetatable({calls = 0}, {__call = function(self)
        self.calls = self.calls + 1
        return 0.1 / self.calls
      end})
    end,
  }
  for name, make in pairs(makers) do
    same(function(jit) return train(jit, optim.SGD{lr_scheduler = make()}) end, {what = name})
    same(function(jit) return train(jit, kind(descend){lr_scheduler = make()}) end, {what = name})
  end
  same(function(jit)
    local Mine = kind(descend, {rate = function(self, n)
      self.asked = (self.asked or 0) + 1
      return 0.1 * n / self.asked
    end})
    return train(jit, Mine())
  end)
end)

t.test("numbers are asked for once a call, though a graph is made anew", function()
  local function run(jit)
    local n, calls = 0, 0
    local w = T{1}:attach_grad()
    local trainer = optim.Trainer({w}, "sgd", {lr_scheduler = function()
      calls = calls + 1
      return 0.1 / calls
    end})
    local step = jit(function(x)
      local scale = pg.live(function()
        n = n + 1
        return n
      end)
      pg.record(function() return (w * x * x:size(1)):sum() end):backward()
      trainer:step(1)
      return w * scale
    end)
    local out = {}
    for i, rows in ipairs{2, 3, 4, 3, 2} do out[i] = step(pg.ones(rows)) end
    out[6], out[7] = T(n), T(calls)
    return out
  end
  same(run)
end)

t.test("learning_rate and set_learning_rate in the step", function()
  same(function(jit)
    local w = T{1, 2}:attach_grad()
    local trainer = optim.Trainer({w}, "sgd", {lr_scheduler = function(n) return 0.1 * n end})
    local step = jit(function(x)
      local before = trainer:learning_rate() + 0 * x
      pg.record(function() return (w * x):sum() end):backward()
      trainer:step(1)
      return before, w * trainer:learning_rate()
    end)
    local out = {}
    for _ = 1, 3 do out[#out + 1], out[#out + 2] = step(T{1, 2}) end
    return out
  end)
  same(function(jit)
    local w = T{1, 2}:attach_grad()
    local trainer = optim.Trainer({w}, "sgd", {learning_rate = 0.1})
    local step = jit(function(x, rate)
      local l = pg.record(function() return (w * x):sum() end)
      l:backward()
      trainer:set_learning_rate(rate)
      trainer:step(1)
      return l
    end)
    local out = {}
    for i, rate in ipairs{0.1, 0.2, 0.1, 0.2} do out[#out + 1], out[#out + 2] = step(T{i, 2}, rate), T(trainer:learning_rate()) end
    return out
  end)
end)

-- Initializers -----------------------------------------------------------------------------------------------------------------

t.test("initializers of one's own, run at the first call", function()
  local x = pg.range(1, 6):reshape{2, 3}
  same(function(_, hybridize)
    local net = nn.HybridSequential{nn.Dense(4), nn.Dropout(0.5), nn.Dense(2)}
    net:initialize(function(shape, options) return pg.randn(shape, {dtype = options.dtype}) end)
    hybridize(net)
    return {net(x), pg.rand(2), pg.record(function() return net(x) end), pg.rand(2)}
  end)
  same(function(_, hybridize)
    local Counting = pg.init.Initializer:extend("Counting")
    function Counting:make(shape, options)
      self.n = (self.n or 0) + 1
      return pg.full(shape, self.n, {dtype = options.dtype})
    end
    local init = Counting()
    local net = nn.HybridSequential{nn.Dense(4), nn.Dense(2)}
    net:initialize(init)
    hybridize(net)
    return {net(x), T(init.n), net(x), T(init.n)}
  end)
  same(function(jit)
    local double = jit(function(y) return y * 2 end)
    local net = nn.HybridSequential{nn.Dense(4), nn.Dense(2)}
    net:initialize(function(shape, options) return pg.full(shape, double(pg.rand(1)):item(), {dtype = options.dtype}) end)
    local f = jit(function(y) return net(y) + pg.rand(2, 2) end)
    return {f(x), f(x), pg.rand(1)}
  end)
end)

-- Functions -------------------------------------------------------------------------------------------------------------------

local function product()
  return pg.autograd.Function{
    forward = function(ctx, a, b)
      ctx.saved.a, ctx.b = a, b
      return a * b
    end,
    backward = function(ctx, dy) return dy * ctx.b * 10, dy * ctx.saved.a end,
  }
end

-- Losses and gradients of three steps of f(w, x).
local function steps(jit, f)
  local w = T{1, -2, 3}:attach_grad()
  local step = jit(function(x)
    local l = pg.record(function() return f(w, x):sum() end)
    l:backward()
    return l, w.grad
  end)
  local out = {}
  for i = 1, 3 do
    local l, g = step(T{i, 2, 3})
    out[#out + 1], out[#out + 2] = l, g:clone()
  end
  return out
end

t.test("Functions with gradients of their own", function()
  local F = product()
  local cases = {
    plain = function(w, x) return F(w, x) end,
    loop = function(w, x)
      local _, s = pg.foreach(function(xi, s)
        s = F(s, xi)
        return s, s
      end, x, w)
      return s
    end,
    branch = function(w, x) return pg.cond(x[1]:gt(1), function() return F(w, x) end, function() return w * 1 end) end,
    random = function(w, x) return F(w, pg.rand(3)) * x * pg.rand(3) end,
  }
  for name, f in pairs(cases) do same(function(jit) return steps(jit, f) end, {what = name}) end
  same(function(jit)
    local cube
    cube = pg.autograd.Function{
      forward = function(ctx, a)
        ctx.saved[1] = a
        return a ^ 3
      end,
      backward = function(ctx, dy) return dy * 3 * ctx.saved[1] ^ 2 end,
    }
    local second = jit(function(x) return pg.grad(function(y) return pg.grad(function(z) return cube(z):sum() end)(y):sum() end)(x) end)
    return {second(T{1, 2}), second(T{3, 4})}
  end)
end)

t.test("a Function gets zeros for outputs that nothing flowed to", function()
  local F = pg.autograd.Function{
    forward = function(_, a) return a * 2, a * 3 end,
    backward = function(_, d1, d2) return d1 * 20 + d2 * 30 end,
  }
  local found = same(function(jit)
    return steps(jit, function(w, x)
      local a = F(w)
      return a * x
    end)
  end)
  t.equal(found[2], T{20, 40, 60})
end)

t.test("a Function in a hybrid block, with numbers, nil gradients and state of the script", function()
  same(function(_, hybridize)
    local F = pg.autograd.Function{
      forward = function(ctx, a, k)
        ctx.saved[1], ctx.k = a, k
        return a:clamp{min = 0} * k
      end,
      backward = function(ctx, dy) return dy * ctx.saved[1]:sigmoid() * ctx.k end,
    }
    local net = hybridize(nn.block{fc = nn.Dense(2, {in_units = 3}), forward = function(self, x) return F(self.fc(x), 3) end}:initialize("xavier"))
    local y = pg.record(function() return net(T{{1, 2, 3}}):sum() end)
    y:backward()
    return {y, net.fc.weight.grad}
  end)
  same(function(jit)
    local scale = 2
    local F = pg.autograd.Function{forward = function(_, a) return a * 1 end, backward = function(_, dy) return dy * scale end}
    local w = T{1}:attach_grad()
    local step = jit(function(x)
      pg.record(function() return (F(w) * x):sum() end):backward()
      return w.grad * 1
    end)
    local first = step(T{2})
    scale = 5
    return {first, step(T{2})}
  end)
end)

-- Blocks ------------------------------------------------------------------------------------------------------------------------

t.test("blocks of one's own", function()
  t.may_warn("traced again for the third time because self.calls")
  same(function(_, hybridize)
    local Mean = nn.HybridBlock:extend("Mean")
    function Mean:init() self.calls, self.mean, self.w = 0, pg.constant(T{0}), pg.param{shape = {0}, init = "ones"} end
    function Mean:infer_shape(x) self.w:set_shape{x:size(1)} end
    function Mean:forward(x)
      self.calls = self.calls + 1
      if pg.is_training() then self.mean:copy_(self.mean * 0.9 + x:mean() * 0.1) end
      return x * self.w + self.mean
    end
    local block = hybridize(Mean():initialize())
    local out = {}
    for i = 1, 4 do out[i] = pg.record(function() return block(T{i}) end) end
    out[5], out[6], out[7] = block(T{5}), T(block.calls), block.mean
    return out
  end)
  same(function(_, hybridize)
    local Scale = nn.HybridBlock:extend("Scale")
    function Scale:init() self.w = pg.param{shape = {0}, init = "ones"} end
    function Scale:infer_shape(x) self.w:set_shape{x:size(2)} end
    function Scale:hybrid_forward(F, x, params) return F.relu(x * params.w) end
    local Double = nn.Dense:extend("Double")
    function Double:forward(x) return nn.Dense.forward(self, x) * 2 end
    local net = hybridize(nn.HybridSequential{Scale(), Double(3), pg.tanh}:initialize("ones"))
    return {net(T{{1, 2}}), net(T{{1, 2}, {3, 4}})}
  end)
  same(function(_, hybridize)
    local Power = pg.loss.Loss:extend("Power")
    function Power:init(power) self.power = power end
    function Power:forward(pred, label) return ((pred - label):abs() ^ self.power):mean(2) end
    local loss = hybridize(Power(3))
    return {loss(T{{1, 2}}, T{{2, 4}}), loss(T{{1, 2}, {2, 2}}, T{{2, 4}, {1, 1}})}
  end)
end)

-- Data ---------------------------------------------------------------------------------------------------------------------------

local function batches(loader)
  local out = {}
  for x, y in loader:iter() do out[#out + 1], out[#out + 2] = x, y or T(0) end
  return out
end

t.test("datasets of one's own that run graphs", function()
  same(function(_, hybridize)
    local Made = data.Dataset:extend("Made")
    local net = hybridize(nn.Dense(2):initialize("xavier"))
    function Made:len() return 5 end
    function Made:get(i) return net(pg.full({1, 3}, i))[1], i end
    return batches(data.DataLoader(Made(), {batch_size = 2, shuffle = true}))
  end)
  same(function(jit)
    local Rows = data.Dataset:extend("Rows")
    local xs = pg.range(1, 10):reshape{5, 2}
    local read = jit(function(i) return xs:index_select(1, i) * 2, i end)
    function Rows:len() return 5 end
    function Rows:get(i) return xs[i] end
    function Rows:get_batch(i) return read(i) end
    return batches(data.DataLoader(Rows(), {batch_size = 2}))
  end)
  same(function(_, hybridize)
    local noise = hybridize(nn.block{forward = function(_, x) return x * pg.rand_like(x) end})
    local ds = data.ArrayDataset(pg.range(1, 10):reshape{5, 2}, pg.range(1, 5)):transform_first(function(x) return noise(x) end)
    return batches(data.DataLoader(ds, {batch_size = 2, shuffle = true}))
  end)
end)

t.test("a dataset read inside a jitted function", function()
  same(function(jit)
    local Rows = data.Dataset:extend("Rows")
    local xs = pg.range(1, 10):reshape{5, 2}
    function Rows:len() return 5 end
    function Rows:get(i) return xs[i] * 2 end
    local ds = Rows()
    local f = jit(function(k) return ds:get(k) + 1 end)
    local out = {f(1), f(2)}
    xs[{1}] = 100
    out[3], out[4] = f(1), f(2)
    return out
  end)
  same(function(jit)
    local ds = data.ArrayDataset(pg.range(1, 4))
    local f = jit(function(s)
      for x in data.DataLoader(ds, {batch_size = 2}):iter() do s = s + x:sum() end
      return s
    end)
    return {f(T(0)), f(T(1))}
  end)
end)
