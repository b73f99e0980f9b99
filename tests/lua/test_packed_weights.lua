-- Eager calls keep the packed form of a weight that they read again: the same bits, and no change of a weight is missed.
local t = require "tests.support"
local pg = require "perigee"

local function cases(dtype)
  local function array(...) return (pg.rand(...) - 0.5):to(dtype) end
  return {
    {"linear", array(40, 72), array(64, 72), function(x, w) return x:linear(w) end},
    {"linear of one row", array(1, 72), array(64, 72), function(x, w) return x:linear(w) end},
    {"linear with a bias", array(16, 512), array(96, 512), function(x, w) return x:linear(w, array(96) * 0) end},
    {"3 x 3", array(1, 32, 20, 20), array(48, 32, 3, 3), function(x, w) return pg.conv2d(x, w, nil, {padding = 1}) end},
    {"3 x 3 of four images", array(4, 32, 20, 20), array(48, 32, 3, 3), function(x, w) return pg.conv2d(x, w) end},
    {"1 x 1", array(1, 64, 28, 28), array(128, 64, 1, 1), function(x, w) return pg.conv2d(x, w) end},
    {"strides", array(1, 32, 40, 40), array(64, 32, 3, 3), function(x, w) return pg.conv2d(x, w, nil, {stride = 2}) end},
    {"strides of four images", array(4, 32, 40, 40), array(64, 32, 3, 3), function(x, w) return pg.conv2d(x, w, nil, {stride = 2}) end},
    {"5 x 5", array(2, 16, 24, 24), array(32, 16, 5, 5), function(x, w) return pg.conv2d(x, w) end},
    {"groups", array(2, 32, 24, 24), array(64, 16, 3, 3), function(x, w) return pg.conv2d(x, w, nil, {groups = 2}) end},
    {"three dims", array(1, 16, 10, 12, 12), array(32, 16, 3, 3, 3), function(x, w) return pg.conv3d(x, w) end},
    {"one dim", array(2, 32, 300), array(64, 32, 5), function(x, w) return pg.conv1d(x, w) end},
  }
end

for _, dtype in ipairs{"float32", "bfloat16"} do
  for _, case in ipairs(cases(dtype)) do
    local name, x, w, f = unpack(case)
    t.test(dtype .. " " .. name .. ": all calls give the same bits, and follow the weight", function()
      local function check(what)
        local expected = f(x, w:clone())  -- a first call, for which nothing is packed
        for i = 1, 4 do t.check(pg.equal(f(x, w), expected), what .. ", call " .. i) end
      end
      check("first")
      w:mul_(-0.5)
      check("after mul_")
      w[1] = 2
      check("after an assignment")
      w:copy_(w * 3)
      check("after copy_")
      w[{{2, 4}}] = 0
      check("after an assignment to a slice")
    end)
  end
end

t.test("views of one weight", function()
  local x, w = pg.rand(40, 72) - 0.5, pg.rand(128, 72) - 0.5
  for _ = 1, 3 do
    for first = 1, 65, 32 do
      local rows = w:narrow(1, first, 64)
      t.check(pg.equal(x:linear(rows), x:linear(rows:clone())), "rows from " .. first)
    end
  end
end)

t.test("calls of many shapes, with and without recorded gradients", function()
  local w = pg.param(pg.rand(32, 16, 3, 3) - 0.5)
  for _, size in ipairs{8, 20, 33, 20, 8, 33} do
    local x = pg.rand(2, 16, size, size) - 0.5
    local expected = pg.conv2d(x, w:detach():clone())
    for _ = 1, 3 do t.check(pg.equal(pg.conv2d(x, w:detach()), expected)) end
    local y, sum = pg.record(function()
      local y = pg.conv2d(x, w)
      return y, y:sum()
    end)
    t.close(y, expected, {rtol = 1e-5, atol = 1e-5})
    sum:backward()
  end
end)

t.test("a training loop with evaluations between its steps", function()
  local w, x = pg.param(pg.rand(64, 72) - 0.5), pg.rand(40, 72) - 0.5
  local trainer = pg.optim.Trainer({w = w}, "sgd", {learning_rate = 0.1})
  for step = 1, 6 do
    pg.record(function() return (x:linear(w) ^ 2):mean() end):backward()
    trainer:step(1)
    local expected = x:linear(w:detach():clone())
    for i = 1, 3 do t.check(pg.equal(x:linear(w), expected), ("step %d, call %d"):format(step, i)) end
  end
end)

t.test("packed forms end with their weight", function()
  t.skip_in("device", "packs nothing")
  t.skip_in("cuda_host", "packs nothing")
  t.skip_in("interpreted", "keeps the weight for a while")
  local function live()
    collectgarbage()
    collectgarbage()
    return pg.memory().live
  end
  local x = pg.rand(40, 512)
  local before = live()
  local w = pg.rand(512, 512)
  local plain = live()
  for _ = 1, 3 do x:linear(w) end
  t.check(live() >= plain + 2 ^ 20, "nothing was packed")
  w:mul_(2)
  t.check(live() - plain < 2 ^ 16, "a write has kept the packed form")
  for _ = 1, 3 do x:linear(w) end
  w = nil  -- luacheck: ignore
  t.check(live() - before < 2 ^ 16, "the packed form has stayed")
end)
