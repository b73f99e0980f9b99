-- In a LuaJIT whose bytecode and closures perigee does not know, graphs are off and results are the same.
local t = require "tests.support"
local pg = require "perigee"
local nn = pg.nn

-- luacheck: globals global_total

-- Runs f as if this LuaJIT were unknown.
local function unknown(f)
  pg.testing.unknown_engine(true)
  local ok, message = pcall(f)
  pg.testing.unknown_engine(false)
  if not ok then error(message, 0) end
end

t.may_warn("perigee does not know the bytecode of this LuaJIT")  -- once in a process

t.test("jitted functions and hybridized blocks run as plain Lua", function()
  unknown(function()
    local scale = {2}
    local f = pg.jit(function(x) return x * scale[1] end)
    t.equal(f(pg.tensor{1, 2}):totable(), {2, 4})
    scale[1] = 3
    t.equal(f(pg.tensor{1, 2}):totable(), {3, 6})
    t.equal(f:cache_info().traces, 0)
    local net = nn.HybridSequential{nn.Dense(3, {in_units = 2}), pg.relu}
    net:initialize("ones")
    net:hybridize()
    t.equal(net(pg.ones(1, 2)):totable(), {{2, 2, 2}})
    t.equal(net:cache_info().traces, 0)
  end)
end)

t.test("a training step has the same results", function()
  local function train()
    local w = pg.ones(2):attach_grad()
    local trainer = pg.optim.Trainer({w = w}, "sgd", {learning_rate = 0.5})
    local step = pg.jit(function(x)
      local l = pg.record(function() return (w * x):sum() end)
      l:backward()
      trainer:step(1)
      return l
    end)
    local losses = {}
    for i = 1, 3 do losses[i] = step(pg.tensor{1, i}):item() end
    return losses, w:totable()
  end
  local losses, w = train()
  unknown(function()
    local losses2, w2 = train()
    t.equal(losses2, losses)
    t.equal(w2, w)
  end)
end)

t.test("control flow carries what its bodies assign, globals too", function()
  unknown(function()
    for round = 1, 2 do
      local n = pg.zeros(1)
      global_total = pg.zeros(1)
      local out = pg.foreach(function(x, s)
        n = n + x
        global_total = global_total + x * 2
        return x * round, s
      end, pg.tensor{{1}, {2}, {3}}, {})
      t.equal(out:totable(), {{round}, {2 * round}, {3 * round}})
      t.equal(n:totable(), {6})
      t.equal(global_total:totable(), {12})
    end
    local y = pg.cond(pg.tensor(1):gt(0), function() return pg.tensor{1} end, function() return pg.tensor{2} end)
    t.equal(y:totable(), {1})
  end)
end)

t.test("one warning names the features that are off", function()
  local out, err, code = t.run("-", [[
    local pg = require "perigee"
    pg.testing.unknown_engine(true)
    pg.jit(function(x) return x end)(pg.ones(1))
    pg.jit(function(x) return x + 1 end)(pg.ones(1))
    print "done"
  ]])
  t.equal({out, code}, {"done\n", 0})
  t.equal(err, "perigee: warning: stdin:3: perigee does not know the bytecode of this LuaJIT: hybridized blocks and jitted functions run as "
    .. "plain Lua, and control flow traces its bodies at each call\n")
end)
