-- The n-th allocation of tensor memory fails, for every n of a script. Each failure is an error that pcall catches;
-- every tensor has its value from before the call or from after it; the script can run again; and no memory leaks.
local t = require "tests.support"
local driver = require "tests.ops.driver"
local pg = require "perigee"
local nn = pg.nn

t.skip_in("gcstress", "every script runs once an allocation")
t.skip_in("hybrid", "a graph allocates what its plan says")

-- Returns the bytes in use after all garbage was freed. Compiled traces refer to the closures they were made from and
-- are flushed first. Each collection runs one level of finalizers, and what a dead Function kept is freed by the next
-- call, so this collects until nothing changes for a while.
local function live()
  local bytes, same = nil, 0
  if jit then jit.flush() end
  repeat
    collectgarbage()
    pg.jvp(function(x) return x:sin() end, {pg.ones(1)}, {pg.ones(1)})
    collectgarbage()
    local now = pg.memory().live
    same = now == bytes and same + 1 or 0
    bytes = now
  until same == 4
  return bytes
end

local function attempt(body, n, persistent)
  pg.testing.fail_allocation(n, persistent)
  local ok, e = pcall(body)
  local failed = pg.testing.allocation_failed()
  pg.testing.fail_allocation(0)
  return ok, e, failed
end

-- Each tensor must have the bytes of `old` or of `new`; with all_or_none, all of them the same.
local function old_or_new(tensors, old, new, all_or_none)
  local now, count = driver.snapshot(tensors), 0
  for i, x in ipairs(now) do
    if x == new[i] then count = count + 1
    else t.check(x == old[i], "tensor " .. i .. " is half changed: " .. tostring(tensors[i])) end
  end
  local changed = 0
  for i in ipairs(old) do if old[i] ~= new[i] then changed = changed + 1 end end
  if all_or_none then t.check(count == #now or count == #now - changed, "some of the tensors changed, some did not") end
end

-- make() returns a function and the tensors that it changes. Runs the function with the n-th allocation failing, until
-- none fails.
local function sweep(name, make, opts)
  opts = opts or {}
  local function once(n, persistent, new)
    local body, targets = make()
    local old = driver.snapshot(targets)
    local ok, e, failed = attempt(body, n, persistent)
    if ok then t.check(not failed or opts.retries, "failure " .. n .. " went unnoticed")
    else t.check(type(e) == "string" and e:find("out of memory", 1, true), "failure " .. n .. ": " .. tostring(e)) end
    old_or_new(targets, old, new, opts.all_or_none)
    if opts.verify then opts.verify(n) end
    body()
    return failed
  end
  local function after()
    local body, targets = make()
    body()
    return driver.snapshot(targets)
  end
  t.test(name, function()
    local new = after()
    once(1, false, new)  -- afterwards, everything that is made on first use exists
    local before = live()
    for _, persistent in ipairs{false, true} do
      local n = 0
      repeat
        n = n + 1
        local failed = once(n, persistent, new)
      until not failed or n > 3000
      t.check(n < 3000, "no end of requests")
    end
    local now = live()
    t.check(now <= before, ("%d bytes live afterwards, %d before"):format(now, before))  -- garbage of earlier files may go
  end)
end

sweep("ops of many families", function()
  local x, w, i = pg.range(1, 24):reshape(2, 3, 4), pg.range(1, 12):reshape(3, 4), pg.tensor({3, 1}, {dtype = "int64"})
  local image, kernel = pg.ones(1, 2, 4, 4), pg.ones(2, 2, 3, 3)
  return function()
    local y = (x * w + 1):softmax(-1):sum{dim = 2, keepdim = true}
    y = pg.cat({y, x:index_select(2, i)}, 2):permute{3, 1, 2}:contiguous():cumsum(1)
    local v, k = y:sort(2)
    y = image:conv2d(kernel, {padding = 1}):relu():max_pool2d(2):mean()
    return v:topk(2), k:one_hot(8), pg.einsum("bij,ij->b", x, w), x:layer_norm({4}), x:var(1), w:t(), y,
      x:gt(3):nonzero(), x[x:gt(3)], pg.linalg.inv(pg.eye(3) * 2), pg.rand(3), tostring(x)
  end, {x, w, i, image, kernel}
end)

sweep("backward", function()
  local w, b = pg.ones(3, 2):attach_grad(), pg.ones(3):attach_grad("add")
  local x = pg.range(1, 8):reshape(4, 2)
  return function()
    local y = pg.record(function() return x:linear(w, b):tanh():square():sum() end)
    y:backward()
    b.grad = nil
  end, {x, w, b}
end)

sweep("gradients are written together", function()
  local w, b = pg.ones(3, 2):attach_grad(), pg.ones(3):attach_grad()
  local x = pg.range(1, 8):reshape(4, 2)
  local y = pg.record(function() return x:linear(w, b):square():sum() end)
  return function() y:backward{retain_graph = true} end, {w.grad, b.grad, w, b, x}
end, {all_or_none = true})

sweep("create_graph, jvp, checkpoint, Function", function()
  local w = pg.range(1, 3):attach_grad()
  local cube = pg.autograd.Function{
    name = "cube",
    forward = function(ctx, x) ctx.saved[1] = x; return x * x * x end,
    backward = function(ctx, dy) return dy * ctx.saved[1]:square() * 3 end,
  }
  return function()
    pg.record(function()
      local y = cube(w):sum() + pg.checkpoint(function(x) return x:exp():sum() end, w)
      local g = pg.autograd.grad({y}, {w}, {create_graph = true})
      return pg.autograd.grad({g[1]:sum()}, {w})
    end)
    pg.jvp(function(x) return x:sin() end, {w}, {pg.ones(3)})
    pg.grad(function(x) return x:square():sum() end)(w)
  end, {w}
end)

sweep("in place", function()
  local x = pg.range(1, 6):reshape(2, 3)
  local shared, y = x:detach(), pg.ones(2, 3)
  return function()
    x:copy_(pg.range(1, 6):reshape(2, 3)):add_(1):mul_(y * 2):clamp_(3, 9):relu_()
  end, {shared, y}
end)

for what, write in pairs{
  add_ = function(x, v) x:add_(v) end, mul_ = function(x) x:mul_(x) end, copy_ = function(x, v) x:copy_(v) end,
  fill_ = function(x) x:fill_(3) end, zero_ = function(x) x:zero_() end, softmax_ = function(x) x:softmax_(1) end,
  cumsum_ = function(x) x:cumsum_(1) end, ["a row"] = function(x) x[2] = 7 end,
  ["a range"] = function(x, v) x[{{1, 2}, {2, 3}}] = v[{{1, 2}, {1, 2}}] end,
  ["a mask"] = function(x) x[x:gt(4)] = -1 end,
  ["an index list"] = function(x, v) x[pg.tensor({2, 1}, {dtype = "int64"})] = v end,
  ["an element"] = function(x) x[{2, 2}] = x[{1, 1}] + 1 end,
} do
  sweep("one write: " .. what, function()
    local x, v = pg.range(1, 6):reshape(2, 3), pg.ones(2, 3) * 5
    local shared = x:detach()  -- so that the write needs memory
    local done
    return function()
      if done then return end
      write(x, v)
      done = true
    end, {x, shared, v}
  end, {all_or_none = true})
end

for _, optimizer in ipairs{"sgd", "nag", "adam", "adamw"} do
  sweep("a trainer's step: " .. optimizer, function()
    pg.manual_seed(1)
    local net = nn.Sequential{nn.Dense(4, {in_units = 3, activation = "relu"}), nn.Dense(2, {in_units = 4})}
    net:initialize("xavier")
    local options = {learning_rate = 0.1, wd = 0.01}
    if optimizer == "sgd" or optimizer == "nag" then options.momentum = 0.9 end
    local trainer = pg.optim.Trainer(net:collect_params(), optimizer, options)
    local x, done = pg.range(1, 6):reshape(2, 3), false
    local list = {x}
    for _, p in net:parameters() do list[#list + 1] = p end
    pg.record(function() return net(x):square():sum() end):backward()
    return function()
      if done then return end
      trainer:step(2)
      done = true
    end, list
  end, {all_or_none = true})
end

sweep("training mode: dropout and batch norm", function()
  pg.manual_seed(1)
  local net = nn.HybridSequential{
    nn.Conv2D(2, 3, {in_channels = 1}), nn.BatchNorm{in_channels = 2}, nn.Dropout(0.5), nn.Flatten(), nn.Dense(2),
  }
  net:initialize()
  local x = pg.ones(2, 1, 4, 4)
  pg.predict_mode(function() net(x) end)
  local list = {x}
  for _, p in net:parameters("weight") do list[#list + 1] = p end
  return function()
    pg.record(function() return pg.loss.L2Loss()(net(x), pg.ones(2, 2)) end):backward()
  end, list
end)

local path, npy = t.tmp("failing.safetensors"), t.tmp("failing.npy")
sweep("save and load", function()
  local a, b = pg.range(1, 6):reshape(2, 3):t(), pg.ones(2, {dtype = "int64"})
  pg.save(path, {a = a, b = b})
  return function()
    pg.save(path, {a = a, b = b})
    pg.save(npy, a)
    return pg.load(path), pg.load(npy)
  end, {a, b}
end, {verify = function() t.check(pg.load(path).a:equal(pg.range(1, 6):reshape(2, 3):t()), "the file is damaged") end})

sweep("parameters in files", function()
  pg.manual_seed(1)
  local net = nn.Sequential{nn.Dense(3, {in_units = 2}), nn.BatchNorm{in_channels = 3}}
  net:initialize("xavier")
  net:save_parameters(path)
  net:initialize("zeros", {force = true})
  local list = {}
  for _, p in net:parameters() do list[#list + 1] = p end
  return function() net:load_parameters(path) end, list
end, {all_or_none = true})

sweep("a data loader", function()
  local ds = pg.data.ArrayDataset(pg.range(1, 10), pg.range(1, 10))
  pg.manual_seed(3)
  local loader = pg.data.DataLoader(ds, {batch_size = 3, shuffle = true})
  return function() for x, y in loader:iter() do t.check(x:equal(y)) end end, {}
end)

sweep("deferred shapes", function()
  local net = nn.Sequential{nn.Dense(3), nn.Dense(2)}
  net:initialize("xavier")
  local x = pg.ones(2, 4)
  return function() net(x) end, {x}
end)
