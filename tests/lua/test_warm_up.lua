-- pg.warm_up: what it does not change. Its effect on times is measured in scripts/benchmarks.
local t = require "tests.support"
local pg = require "perigee"

t.test("warm_up changes no random stream, and can be called again", function()
  pg.manual_seed(5)
  local expected = pg.randn(4)
  pg.manual_seed(5)
  pg.warm_up()
  pg.warm_up()
  t.equal(pg.randn(4), expected)
end)

t.test("warm_up leaves no tensors, gradients or modes", function()
  pg.warm_up()
  t.equal(pg.is_recording(), false)
  t.equal(pg.is_training(), false)
  local x = pg.ones(2)
  x:attach_grad()
  pg.record(function()
    pg.warm_up()
    return x:sum()
  end):backward()
  t.equal(x.grad, pg.ones(2))
end)

t.test("warm_up inside a traced function is an error", function()
  t.error_contains(function() pg.jit(function(x) pg.warm_up() return x end)(pg.ones(1)) end, "cannot run inside a traced function")
end)

t.test("warm_up calls a block twice in predict mode without a record", function()
  local modes = {}
  pg.record(function()
    pg.warm_up(function(a, b)
      modes[#modes + 1] = tostring(pg.is_recording()) .. tostring(pg.is_training()) .. a .. tostring(b)
    end, 1, nil)
  end)
  t.equal(table.concat(modes, " "), "falsefalse1nil falsefalse1nil")
  local net = pg.nn.HybridSequential{pg.nn.Dense(3), pg.nn.BatchNorm()}
  net:initialize()
  net:hybridize()
  pg.warm_up(net, pg.ones(2, 4))
  t.equal(net:cache_info().traces, 1)
  t.error_contains(function() pg.warm_up(3) end, "warm_up: bad argument 'f'")
end)
