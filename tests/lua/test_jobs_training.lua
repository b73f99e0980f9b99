-- Training in slices has the same bits as training in one piece, whatever the host does between the slices.
local t = require "tests.support"
local pg = require "perigee"
local nn, loss, optim, data = pg.nn, pg.loss, pg.optim, pg.data

t.skip_in("gcstress", "trains networks; test_jobs.lua collects")

local function bytes_of(params)
  local parts = {}
  for _, p in ipairs(params) do
    parts[#parts + 1] = p:to_bytes()
    parts[#parts + 1] = p.grad and p.grad:to_bytes() or ""
  end
  return table.concat(parts)
end

local function sorted(net)
  local list, names = {}, {}
  local params = net:collect_params()
  for name in pairs(params) do names[#names + 1] = name end
  table.sort(names)
  for i, name in ipairs(names) do list[i] = params[name] end
  return list
end

local function lenet()
  return nn.HybridSequential{
    nn.Conv2D(4, 3, {padding = 1, activation = "relu"}), nn.MaxPool2D(2), nn.BatchNorm(), nn.Conv2D(6, 3, {activation = "tanh"}),
    nn.Flatten(), nn.Dense(12, {activation = "relu"}), nn.Dropout(0.3), nn.Dense(10),
  }
end

local LSTM = nn.HybridBlock:extend("LSTM")
function LSTM:init()
  self.lstm = nn.rnn.LSTM(6, 2, {layout = "NTC", dropout = 0.2})
  self.out = nn.Dense(10)
end
function LSTM:forward(x) return self.out(self.lstm(x:reshape(-1, 8, 8))) end

local Cell = nn.HybridBlock:extend("Cell")
function Cell:init()
  self.cell = nn.rnn.LSTMCell(5)
  self.out = nn.Dense(10)
end
function Cell:forward(x)
  local rows = x:reshape(-1, 8, 8):transpose(1, 2)
  local states = self.cell:begin_state(x:size(1))
  local outs = pg.foreach(function(row, s) return self.cell(row, s) end, rows, states)
  return self.out(outs[-1])
end

local nets = {lenet = lenet, lstm = function() return LSTM() end, cell = function() return Cell() end}

-- Returns a function that trains, and a list of the bytes of parameters and gradients after each of its steps.
local function trainer_of(name, way)
  local states = {}
  local kept = {states = states}
  local function train()
    pg.manual_seed(7)
    local net = nets[name]()
    net:initialize("xavier")
    if way == "hybrid" then net:hybridize() end
    local loss_fn = loss.SoftmaxCrossEntropyLoss()
    local images, labels = {}, {}
    local digits = data.digits{train = true}
    for i = 1, 40 do images[i], labels[i] = digits:get(i) end
    local few = data.ArrayDataset(pg.stack(images), labels)
    local trainer
    local function step(x, y)
      local l = pg.record(function() return loss_fn(net(x), y):mean() end)
      l:backward()
      trainer = trainer or optim.Trainer(net:collect_params(), "adam", {learning_rate = 1e-2})
      trainer:step(1)
      return l
    end
    local losses = {}
    for _ = 1, 2 do
      for x, y in data.DataLoader(few, {batch_size = 16, shuffle = true, last_batch = "discard"}):iter() do
        if #losses == 1 and way == "jit" then step = pg.jit(step) end
        losses[#losses + 1] = step(x, y):item()
        kept.params = sorted(net)
        kept.net = net
        states[#states + 1] = bytes_of(kept.params)
      end
    end
    return table.concat(losses, " ")
  end
  return train, kept
end

for _, name in ipairs{"lenet", "lstm", "cell"} do
  for _, way in ipairs{"eager", "hybrid", "jit"} do
    t.test(name .. ", " .. way .. ": the same bits in slices, and the host sees whole steps", function()
      local whole, reference = trainer_of(name, way)
      local expected = whole()
      local train, kept = trainer_of(name, way)
      local other = nn.HybridSequential{nn.Dense(8, {activation = "relu"}), nn.Dense(2)}
      other:initialize()
      other:hybridize()
      local job, slices, at = pg.job(train), 0, 0
      local input, image = pg.ones(2, 4), pg.ones(2, 1, 8, 8)
      local wanted = other(input):to_bytes()
      while not job:step(0) do
        slices = slices + 1
        t.check(not pg.is_recording() and not pg.is_training())
        if slices % 7 == 0 then t.check(other(input):to_bytes() == wanted) end
        if slices % 31 == 0 then collectgarbage("step", 10) end
        if kept.net and slices % 101 == 0 then kept.net(image) end
        if kept.params and way == "jit" and slices % 3 == 0 then
          local now = bytes_of(kept.params)
          local found = now == reference.states[#kept.states] or now == reference.states[#kept.states + 1]
          if not found then at = at + 1 end
        end
      end
      t.check(job:result() == expected, job:result() .. " is not " .. expected)
      for i, state in ipairs(reference.states) do t.check(state == kept.states[i], "state " .. i .. " differs") end
      t.check(slices > 200, slices .. " slices")
      t.equal(at, 0)
    end)
  end
end

t.test("two jobs train in turn, on generators of their own, as each does by itself", function()
  local function train(seed)
    local g = pg.Generator(seed)
    local w = pg.randn(4, 3, {generator = g}):attach_grad()
    for _ = 1, 3 do
      local x = pg.rand(5, 4, {generator = g})
      pg.record(function() return x:matmul(w):tanh():square():sum() end):backward()
      w:sub_(w.grad * 0.1)
    end
    return w:to_bytes()
  end
  local a, b = pg.job(train, 1), pg.job(train, 2)
  while not (a:step(0) and b:step(0)) do end
  t.check(a:result() == train(1) and b:result() == train(2))
end)

t.test("loops run one step at a time", function()
  local function work()
    local outs, s = pg.foreach(function(x, s) return x * s, s + x end, pg.range(1, 30):reshape(30, 1), pg.zeros(1))
    local rows, _, n = pg.while_loop(function(i) return i:lt(9) end, function(i, v) return v, {i + 1, v * 1.5} end, {pg.zeros(1), pg.ones(1)}, {max_iterations = 20})
    local p = pg.loop(25, function(i, q) return q:sin() + i end, pg.ones(2))
    return table.concat({outs:to_bytes(), s:to_bytes(), rows:to_bytes(), tostring(n), p:to_bytes()})
  end
  local expected = work()
  local job, slices = pg.job(work), 1
  while not job:step(0) do slices = slices + 1 end
  t.check(job:result() == expected)
  t.check(slices > 60, slices .. " slices")
end)

t.test("kernels are cut where a slice ends, with any number of threads", function()
  local before = pg.get_num_threads()
  local x = pg.randn(600, 2000, {generator = pg.Generator(3)})
  local function work()
    local y = x:exp():cumsum(1) + x:softmax(2) + (x:sort(2))
    return y:sum():item(), y[{{1, 20}}]:to_bytes()
  end
  for _, threads in ipairs{1, 3} do
    pg.set_num_threads(threads)
    local sum, bytes = work()
    local job, slices = pg.job(work), 1
    while not job:step(0) do
      slices = slices + 1
      pg.ones(400, 400):sum()  -- the host uses the threads meanwhile
    end
    pg.set_num_threads(before)
    local now, content = job:result()
    t.check(now == sum and content == bytes)
    t.check(slices > 10, slices .. " slices")
  end
end)

-- The threads of a region wait inside their parts, so the sums have the same order.
t.test("large products, convolutions and pools are cut too", function()
  local before = pg.get_num_threads()
  local generator = pg.Generator(5)
  local function rand(...)
    local args = {...}
    args[#args + 1] = {generator = generator}
    return pg.randn(unpack(args))
  end
  local a, b, x, w = rand(400, 380), rand(380, 420), rand(6, 32, 40, 40), rand(32, 32, 3, 3)
  local function gradients(f, ...)
    local inputs = {...}
    for i, v in ipairs(inputs) do inputs[i] = v:detach():attach_grad() end
    local y = pg.record(function() return f(unpack(inputs)) end)
    y:backward(pg.ones_like(y))
    local grads = {}
    for i, v in ipairs(inputs) do grads[i] = v.grad:to_bytes() end
    return table.concat(grads)
  end
  local kernels = {
    {"a product", 20, function() return a:matmul(b) end},
    {"a product in float64", 20, function() return a:double():matmul(b:double()) end},
    {"a product of transposed matrices", 20, function() return b:t():matmul(a:t()) end},
    {"a batch of products", 20, function() return a:reshape(2, 200, 380):matmul(pg.stack({b, b}, 1)) end},
    {"gradients of a product", 20, function() return gradients(function(u, v) return u:matmul(v) end, a, b) end},
    {"a convolution", 3, function() return pg.conv2d(x, w, nil, {padding = 1}) end},
    {"gradients of a convolution", 5, function() return gradients(function(u, v) return pg.conv2d(u, v, nil, {padding = 1}) end, x, w) end},
    {"gradients of pooling", 5, function() return gradients(function(u) return pg.max_pool2d(u, 3, {stride = 1}) end, x) end},
  }
  for _, threads in ipairs{1, 3} do
    pg.set_num_threads(threads)
    for _, kernel in ipairs(kernels) do
      local name, fewest, f = unpack(kernel)
      local function bytes()
        local y = f()
        return type(y) == "string" and y or y:to_bytes()
      end
      local expected = bytes()
      local slices = 1
      local job = pg.job(bytes)
      while not job:step(0) do
        slices = slices + 1
        if slices % 8 == 0 then pg.ones(300, 300):sum() end  -- the host uses the threads meanwhile
      end
      t.check(job:result() == expected, name)
      -- Threads that are behind may pass several places where others wait.
      t.check(slices * threads >= fewest, name .. ": " .. slices .. " slices")
    end
    pg.set_num_threads(before)
  end
end)

-- The first call of a shape measures which algorithm is fastest. The pauses between slices do not count.
t.test("a convolution that a job calls first has the bits of later calls", function()
  local generator = pg.Generator(5)
  local x, w = pg.randn(3, 48, 37, 35, {generator = generator}), pg.randn(40, 48, 3, 3, {generator = generator})
  local function bytes() return x:conv2d(w, nil, {padding = 1}):to_bytes() end
  local job, slices = pg.job(bytes), 1
  while not job:step(0) do slices = slices + 1 end
  t.check(job:result() == bytes())
  t.check(slices > 5, slices .. " slices")
end)
