-- Every allocation of several scripts fails once: each failure is an error that pcall catches, and what existed before
-- the script is as it was.
local t = require "tests.support"
local pg = require "perigee"
local testing = pg.testing

local function snapshot(kept)
  local out = {}
  for name, x in pairs(kept) do out[name] = {x.dtype, x.shape, x:totable(), x.grad and x.grad:totable()} end
  return out
end

-- make() answers the tensors that must not change and the script. `persistent`: all later allocations fail too.
local function fail_each(make, persistent)
  for n = 1, 2000 do
    local kept, script = make()
    local before = snapshot(kept)
    testing.fail_allocation(n, persistent)
    local ok, e = pcall(script)
    local failed = testing.allocation_failed()
    testing.fail_allocation(0)
    if not failed then
      t.check(ok, e)
      return n - 1
    end
    t.check(not ok, "allocation " .. n .. " failed and nobody said so")
    t.check(type(e) == "string" and e:find("out of memory", 1, true), e)
    t.equal(snapshot(kept), before, "after the failure of allocation " .. n)
  end
  error("the script never ends")
end

local scripts = {
  ["arithmetic, reductions and indexing"] = function()
    local x, y = pg.range(1, 6):reshape{2, 3}, pg.tensor{1, 2, 3}
    return {x = x, y = y}, function()
      local z = (x * y + 1):exp():sum(1) / y
      return z[{{1, 2}}]:softmax(1):totable(), x:t():contiguous(), x:matmul(x:t()), pg.cat({y, y}, 1), x:sort(2)
    end
  end,
  ["in-place methods and item assignment"] = function()
    local x, y = pg.tensor{1, 2, 3}, pg.tensor{4, 5, 6}
    local alias = x:reshape{3, 1}
    return {y = y, alias = alias}, function()
      x:add_(y)
      x:mul_(2)
      x[{2}] = 7
      x:copy_(y)
    end
  end,
  ["backward"] = function()
    local w, b = pg.tensor({{1, 2}, {3, 4}}):attach_grad(), pg.ones(2):attach_grad("add")
    local y = pg.record(function() return (pg.ones(3, 2):matmul(w) + b):tanh():sum() end)
    return {w = w, b = b}, function() y:backward() end
  end,
  ["second derivatives"] = function()
    local x = pg.tensor{0.5, 1.5}
    return {x = x}, function() return pg.grad(function(v) return pg.grad(function(u) return u:sin():sum() end)(v):sum() end)(x) end
  end,
  ["a trainer's step"] = function()
    local net = pg.nn.Dense(2, {in_units = 3})
    net:initialize("ones")
    local trainer = pg.optim.Trainer(net:collect_params(), "adam", {learning_rate = 0.1})
    pg.record(function() return net(pg.ones(4, 3)):square():sum() end):backward()
    return {weight = net.weight, bias = net.bias}, function() trainer:step(4) end
  end,
  ["a convolution forward and backward"] = function()
    local x, w = pg.ones(1, 2, 5, 5):attach_grad(), pg.ones(3, 2, 3, 3):attach_grad()
    return {x = x, w = w}, function()
      pg.record(function() return x:conv2d(w):relu():max_pool2d(2):sum() end):backward()
    end
  end,
}

for name, make in pairs(scripts) do
  t.test(name, function()
    t.check(fail_each(make) > 0, "the script allocates")
    fail_each(make, true)
  end)
end

t.test("a failed in-place method leaves its tensor", function()
  local x, y = pg.tensor{1, 2, 3}, pg.tensor{4, 5, 6}
  local alias = x:reshape{3, 1}
  for _, change in ipairs{function() x:add_(y) end, function() x[{2}] = 7 end, function() x:exp_() end, function() x:fill_(3) end} do
    testing.fail_allocation(1)
    local ok = pcall(change)
    testing.fail_allocation(0)
    if not ok then t.equal(x:totable(), {1, 2, 3}) end
    x:copy_(pg.tensor{1, 2, 3})
    alias = x:reshape{3, 1}
  end
  t.equal(alias:totable(), {{1}, {2}, {3}})
end)
