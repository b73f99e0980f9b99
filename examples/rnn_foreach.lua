-- The ForeachRNN of Gluon's documentation: a recurrent cell in foreach, before and after hybridize, and in while_loop,
-- each compared with the same cell in a Lua loop. It runs with the sizes of the benchmark and those of the
-- documentation.
--   perigee examples/rnn_foreach.lua [rounds] [--tiny]
local pg = require "perigee"
local nn = pg.nn

local rounds, tiny = tonumber(arg[1]) or 10, arg[1] == "--tiny" or arg[2] == "--tiny"
local ffi = require "ffi"
ffi.cdef "struct example_time { long seconds, nanoseconds; }; int clock_gettime(int, struct example_time *);"
local stamp = ffi.new("struct example_time")
local function now()
  ffi.C.clock_gettime(1, stamp)
  return tonumber(stamp.seconds) * 1e3 + tonumber(stamp.nanoseconds) * 1e-6
end

local ForeachRNN = nn.HybridBlock:extend("ForeachRNN")
function ForeachRNN:init(cell) self.cell = cell end
function ForeachRNN:forward(inputs, states)
  return (pg.foreach(function(x, s) return self.cell(x, s) end, inputs, states))
end

-- A variable of the loop counts the steps and selects the rows.
local WhileRNN = nn.HybridBlock:extend("WhileRNN")
function WhileRNN:init(cell) self.cell = cell end
function WhileRNN:forward(inputs, states)
  local n = #inputs
  return (pg.while_loop(function(i) return i:le(n) end, function(i, s)
    local out, new = self.cell(inputs[i], s)
    return out, {i + 1, new}
  end, {1, states}, {max_iterations = n}))
end

local LuaRNN = nn.Block:extend("LuaRNN")
function LuaRNN:init(cell) self.cell = cell end
function LuaRNN:forward(inputs, states)
  local outs = {}
  for i = 1, #inputs do outs[i], states = self.cell(inputs[i], states) end
  return pg.stack(outs)
end

-- Returns the milliseconds of the fastest round.
local function time(f)
  f()
  local best = math.huge
  for _ = 1, rounds do
    local start = now()
    f()
    best = math.min(best, now() - start)
  end
  return best
end

local function passes(net, data, states)
  local function infer() return net(data, states) end
  local function train()
    local outs = pg.record(infer)
    outs:backward()
  end
  return time(infer), time(train)
end

local function compare(what, make_cell, steps, batch, inputs, hidden)
  pg.manual_seed(1)
  local cell = make_cell(hidden)
  cell:initialize()
  local data, states = pg.randn(steps, batch, inputs), cell:begin_state{batch_size = batch}
  local before, after, by_while, by_lua = ForeachRNN(cell), ForeachRNN(cell), WhileRNN(cell), LuaRNN(cell)
  local expected = before(data, states)
  after:hybridize()
  by_while:hybridize()
  for _, net in ipairs{after, by_while, by_lua} do
    assert(net(data, states):allclose(expected, {rtol = 1e-3, atol = 1e-4}), "the ways differ")
  end
  print(("=== %s, %d steps of %d x %d -> %d ==="):format(what, steps, batch, inputs, hidden))
  local slow_infer, slow_train = passes(by_lua, data, states)
  for _, way in ipairs{{"a Lua loop", by_lua}, {"foreach before hybridizing", before}, {"foreach after hybridizing", after}, {"while_loop after hybridizing", by_while}} do
    local infer, train = slow_infer, slow_train
    if way[2] ~= by_lua then infer, train = passes(way[2], data, states) end
    print(("%-29s inference %9.3f ms (%.2f times as fast), training %9.3f ms (%.2f)"):format(way[1] .. ":", infer, slow_infer / infer, train, slow_train / train))
  end
  return after
end

pg.set_num_threads(1)
local rnn = nn.rnn
if tiny then
  compare("RNNCell", rnn.RNNCell, 5, 2, 4, 8)
  print(compare("LSTMCell", rnn.LSTMCell, 5, 1, 4, 8):graph())
else
  compare("the documents' RNNCell", rnn.RNNCell, 100, 32, 256, 512)
  for _, name in ipairs{"RNNCell", "GRUCell", "LSTMCell"} do compare(name, rnn[name], 100, 1, 512, 512) end
end
