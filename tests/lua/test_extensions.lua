-- Extensions in a script (optimizers, schedulers, initializers, Functions, blocks, datasets) have the same results as
-- plain Lua, jitted and hybridized.
local t = require "tests.support"
local same = require "tests.plain_and_graph"
local pg = require "perigee"
local nn, data = pg.nn, pg.data
local T = pg.tensor

-- Initializers -----------------------------------------------------------------------------------------------------------------

t.test("custom initializers run at the first call", function()
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

-- Returns the losses and gradients of three steps of f(w, x).
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

t.test("Functions have custom gradients", function()
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

t.test("a Function gets zeros for outputs without a gradient", function()
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

t.test("custom blocks run hybridized", function()
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
end)

-- Losses and metrics ---------------------------------------------------------------------------------------------------

t.test("custom losses run hybridized", function()
  same(function(_, hybridize)
    local Power = pg.loss.Loss:extend("Power")
    function Power:init(power) self.power = power end
    function Power:forward(pred, label) return ((pred - label):abs() ^ self.power):mean(2) end
    local loss = hybridize(Power(3))
    return {loss(T{{1, 2}}, T{{2, 4}}), loss(T{{1, 2}, {2, 2}}, T{{2, 4}, {1, 1}})}
  end)
  same(function(jit, hybridize)
    local Power = pg.loss.Loss:extend("Power")
    function Power:init(power) self.power = power end
    function Power:forward(pred, label) return ((pred - label):abs() ^ self.power):mean(2) end
    local loss, w = hybridize(Power(3)), T{{1, 2}}:attach_grad()
    local step = jit(function(x)
      local l = pg.record(function() return loss(w * x, x + 1):sum() end)
      l:backward()
      return l
    end)
    local out = {}
    for i = 1, 3 do out[2 * i - 1], out[2 * i] = step(T{{i, 0.5}}), w.grad:clone() end
    return out
  end)
end)

t.test("custom metrics, and functions as metrics", function()
  local function measured(jit, metric)
    local update = jit(function(label, pred)
      metric:update(label, pred)
      return pred
    end)
    local out = {}
    for i = 1, 4 do
      update(T{1, 2}, T{i, 0.1})
      out[i] = T(select(2, metric:get()))
      if i == 2 then metric:reset() end
    end
    return out
  end
  same(function(jit)
    local Mine = pg.metric.Metric:extend("Mine")
    function Mine:measure(label, pred) return ((label - pred) ^ 2):sum(), label:numel() end
    function Mine:finish(sum, count) return math.sqrt(sum / count) end
    return measured(jit, Mine())
  end)
  same(function(jit)
    return measured(jit, pg.metric.create(function(label, pred) return (label - pred):abs():max() end, "worst"))
  end)
end)

-- Data ---------------------------------------------------------------------------------------------------------------------------

local function batches(loader)
  local out = {}
  for x, y in loader:iter() do out[#out + 1], out[#out + 2] = x, y or T(0) end
  return out
end

t.test("custom datasets may run graphs", function()
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

t.test("custom samplers and batchify functions", function()
  same(function(_, hybridize)
    local Odd = data.Sampler:extend("Odd")
    function Odd:len() return 3 end
    function Odd:iter()
      local i = -1
      return function()
        i = i + 2
        return i <= 5 and i or nil
      end
    end
    local double = hybridize(nn.block{forward = function(_, x) return x * 2 end})
    local function batchify(items)
      local rows = {}
      for k, item in ipairs(items) do rows[k] = item[1] end
      return double(pg.stack(rows))
    end
    local ds = data.ArrayDataset(pg.range(1, 10):reshape{5, 2}, pg.range(1, 5))
    local out = batches(data.DataLoader(ds, {batch_size = 2, sampler = Odd(), batchify = batchify}))
    t.equal(out[1], T{{2, 4}, {10, 12}})
    t.equal(out[3], T{{18, 20}})
    return out
  end)
end)
