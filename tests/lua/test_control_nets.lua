-- Random networks whose forward consists of loops and branches over layers and cells. They are trained, changed and
-- called again: as plain Lua, eagerly, hybridized and as one jitted step.
local t = require "tests.support"
local pg = require "perigee"
local nn = pg.nn

local random, pick, restart = require "tests.choices"(1)

local width = 6

-- Layers of batch x width -> batch x width.
local drawing, branching  -- graphs then differ: in random numbers, or in gradients of the branch not taken
local layers = {
  function() return nn.Dense(width, {activation = pick{"tanh", "relu", "sigmoid"}}) end,
  function() return nn.Dense(width, {use_bias = false, flatten = false}) end,
  function() return nn.BatchNorm{scale = random(2) == 1} end,
  function() return nn.LayerNorm() end,
  function() return nn.HybridSequential{nn.Dense(4, {activation = "tanh"}), nn.Dense(width)} end,
  function() return drawing and nn.Dropout(0.3) or nn.Activation("tanh") end,
}

-- Networks of steps x batch x width -> the same.
local wholes = {
  function()  -- layers at each step
    return nn.block{layer = pick(layers)(), forward = function(self, xs) return (pg.foreach(function(x) return self.layer(x) end, xs)) end}
  end,
  function()  -- a cell
    local make = pick{nn.rnn.RNNCell, nn.rnn.LSTMCell, nn.rnn.GRUCell}
    return nn.block{cell = make(width), forward = function(self, xs)
      return (pg.foreach(function(x, s) return self.cell(x, s) end, xs, self.cell:begin_state{batch_size = xs:size(2)}))
    end}
  end,
  function() return nn.rnn.LSTM(width) end,
  function()  -- a branch at each step, by value
    branching = true
    return nn.block{a = pick(layers)(), b = pick(layers)(), forward = function(self, xs)
      return (pg.foreach(function(x, s)
        local y = pg.cond((x * s):sum():gt(0), function() return self.a(x) end, function() return self.b(x) - s end)
        return y, s * 0.5 + y:tanh()
      end, xs, pg.ones_like(xs[1])))
    end}
  end,
  function()  -- the number of steps depends on values, at each step
    return nn.block{layer = nn.Dense(width, {activation = "tanh"}), forward = function(self, xs)
      return (pg.foreach(function(x)
        local _, vars = pg.while_loop(function(i, y) return i:lt(3):logical_and(y:sum():lt(4)) end, function(i, y)
          return nil, {i + 1, self.layer(y) + 0.3}
        end, {0, x}, {max_iterations = 4})
        return vars[2]
      end, xs))
    end}
  end,
  function()  -- one layer several times over all steps, with a running total
    return nn.block{layer = pick(layers)(), gain = pg.param{shape = {width}, init = "ones"}, forward = function(self, xs)
      local total = pg.zeros(width)
      local n, m = xs:size(1), xs:size(2)
      local y = pg.loop(2, function(i, h)
        h = self.layer(h) * self.gain + i * 0.1
        total = total + h:mean(1)
        return h:tanh()
      end, xs:reshape{-1, width})
      return y:reshape{n, m, width} + total
    end}
  end,
}

local function make_net(seed)
  restart(seed * 5281 % 2147483646 + 1)
  drawing, branching = random(2) == 1, false
  local net = nn.HybridSequential{}
  for _ = 1, random(3) do net:add(pick(wholes)()) end
  net:add(nn.Dense(3, {flatten = false}))
  pg.manual_seed(seed)
  net:initialize("xavier")
  net(pg.randn(2, 2, width))
  return net
end

local function act(seed, way)
  local net = make_net(seed)
  if way == "debug" and (drawing or branching) then way = "eager" end
  local loss_fn = pg.loss.SoftmaxCrossEntropyLoss()
  local trainer = pg.optim.Trainer(net:collect_params(), pick{"sgd", "adam"}, {learning_rate = 0.02})
  local function step(xs, y)
    local l = pg.record(function() return loss_fn(net(xs):reshape{-1, 3}, y):mean() end)
    l:backward()
    trainer:step(1)
    return l
  end
  local forward = net
  if way == "hybrid" then net:hybridize{static_alloc = random(2) == 1} else random(2) end
  if way == "jit" then step = pg.jit(step) end
  if way == "debug" then
    local plain = step
    step = function(...) return pg.debug(plain, ...) end
    forward = function(...) return pg.debug(net, ...) end
  end
  local seen = {}
  local function see(v) seen[#seen + 1] = v:detach():clone() end
  local function input() return pg.randn(random(4), random(3) + 1, width) end
  for _ = 1, 8 do
    local xs = input()
    local what = random(3)
    if what == 1 then see(forward(xs))
    elseif what == 2 then see(step(xs, pg.randint(1, 3, {xs:size(1) * xs:size(2)})))
    else
      xs:attach_grad()
      pg.record(function() return forward(xs):square():sum() end, {train = random(2) == 1}):backward()
      see(xs.grad)
    end
  end
  for _, p in net:parameters() do see(p) end
  return seen
end

local function compare(seed)
  local expected
  for _, way in ipairs{"debug", "eager", "hybrid", "jit"} do
    local ok, e = pcall(function()
      local seen = act(seed, way)
      expected = expected or seen
      t.equal(#seen, #expected)
      for i, v in ipairs(expected) do
        local size = v:numel() > 0 and v:abs():max():item() or 0
        t.close(seen[i], v, {rtol = 5e-3, atol = 1e-4 + 2e-3 * size, what = "value " .. i})
      end
    end)
    if not ok then error(("network %d, %s: %s"):format(seed, way, tostring(e)), 0) end
  end
end

t.test("20 networks", function()
  t.may_warn("traced again for the third time")  -- the inputs change their sizes
  local count = t.takes_all() and 20 or 5
  for seed = 1, t.mode == "gcstress" and 1 or count do compare(seed) end
end)

-- Products whose right side is large enough to be packed (16 rows and 100 000 multiply-adds on any machine). It must be
-- packed again when it changes: from run to run, in memory that the run writes over, or from step to step.
local function losses_of(step, ...)
  local out = {}
  for i = 1, 8 do out[i] = ("%.9g"):format(step(...):item()) end
  return table.concat(out, " ")
end

t.test("a jitted step trains a recurrent network with the weights of each run", function()
  local function train(wrap)
    pg.manual_seed(3)
    local net = nn.block{
      cell = nn.rnn.LSTM(64, 1, {layout = "NTC"}), out = nn.Dense(4),
      forward = function(self, x) return self.out(self.cell(x)) end,
    }
    local x, y = pg.rand(16, 10, 64), pg.rand(16, 4)
    net:initialize("xavier")
    net(x)
    local trainer = pg.optim.Trainer(net:collect_params(), "sgd", {learning_rate = 0.1})
    return losses_of(wrap(function(a, b)
      local l = pg.record(function() return (net(a) - b):square():mean() end)
      l:backward()
      trainer:step(1)
      return l
    end), x, y)
  end
  t.equal(train(pg.jit), train(function(f) return f end))
end)

t.test("weights that a loop updates are the current ones in each step", function()
  local function adapt(wrap)
    pg.manual_seed(4)
    local xs, W = pg.rand(6, 16, 96) - 0.5, pg.rand(96, 96) - 0.5
    return losses_of(wrap(function(a, w)
      local outs = pg.foreach(function(x, v)
        local y = x:linear(v):tanh()
        return y:square():mean(), v - y:t():matmul(x) * 0.01
      end, a, w)
      return outs:sum()
    end), xs, W)
  end
  t.equal(adapt(pg.jit), adapt(function(f) return f end))
  t.equal(adapt(pg.jit), adapt(function(f) return function(...) return pg.debug(f, ...) end end))
end)

t.test("a loop multiplies by weights that the same program computes", function()
  local function run(wrap)
    pg.manual_seed(5)
    local xs, W, h0 = pg.rand(6, 16, 96) - 0.5, pg.rand(96, 96) - 0.5, pg.zeros(16, 96)
    return losses_of(wrap(function(a, w, h)
      local scaled = w * a:mean()
      local _, last = pg.foreach(function(x, s)
        local y = (x + s):linear(scaled):tanh()
        return y, y
      end, a, h)
      w:mul_(1.01)
      return last:sum()
    end), xs, W, h0)
  end
  t.equal(run(pg.jit), run(function(f) return f end))
end)
