-- Recurrent cells and their modifiers: cells against layers, sequences of different lengths.
local t = require "tests.support"
local pg = require "perigee"
local rnn = pg.nn.rnn

-- Runs once as written and once with the loops as plain Lua.
local function test(name, f)
  t.test(name, f)
  t.test(name .. ", loops as plain Lua", function() pg.debug(f) end)
end

local function randn(...) return pg.randn({...}) end

-- Cells and layers ---------------------------------------------------------------------------------------------------------------

local pairs_of = {
  LSTM = {function(o) return rnn.LSTM(4, o) end, function() return rnn.LSTMCell(4, {input_size = 3}) end},
  GRU = {function(o) return rnn.GRU(4, o) end, function() return rnn.GRUCell(4, {input_size = 3}) end},
  RNN = {function(o) o.activation = "tanh" return rnn.RNN(4, o) end, function() return rnn.RNNCell(4, {input_size = 3}) end},
}

-- Gives a cell the parameters of a layer under a prefix such as "l0_".
local function copy_to(cell, layer, prefix)
  for path, p in cell:parameters() do p:set_data(layer[prefix .. path:match("[^.]*$")]) end
end

test("unroll of a cell, its single steps and the layer agree", function()
  for kind, make in pairs(pairs_of) do
    local layer, cell = make[1]{input_size = 3}:initialize("xavier"), make[2]():initialize()
    copy_to(cell, layer, "l0_")
    local x = randn(5, 2, 3)
    local expected, last = layer(x, layer:begin_state(2))
    local outs, states = cell:unroll(5, x, {layout = "TNC"})
    t.close(outs, expected, {atol = 1e-5, what = kind})
    local s = cell:begin_state(2)
    for i = 1, 5 do
      local y
      y, s = cell(x[i], s)
      t.close(y, expected[i], {atol = 1e-5, what = kind .. " step " .. i})
    end
    t.equal(#states, #last)
    for i, v in ipairs(last) do
      t.close(s[i], v[1], {atol = 1e-5})
      t.close(states[i], v[1], {atol = 1e-5})
    end
  end
end)

test("a bidirectional layer is a BidirectionalCell, two layers a SequentialRNNCell", function()
  for kind, make in pairs(pairs_of) do
    local layer = make[1]{input_size = 3, bidirectional = true, layout = "NTC"}:initialize("xavier")
    local bi = rnn.BidirectionalCell(make[2](), make[2]()):initialize()
    copy_to(bi.l_cell, layer, "l0_")
    copy_to(bi.r_cell, layer, "r0_")
    local x, lengths = randn(3, 5, 3), pg.tensor({5, 2, 3}, {dtype = "int64"})
    local outs, states = bi:unroll(5, x)
    local expected, last = layer(x, layer:begin_state(3))
    t.close(outs, expected, {atol = 1e-5, what = kind})
    local per = #states / 2
    for i = 1, per do
      t.close(states[i], last[i][1], {atol = 1e-5})
      t.close(states[per + i], last[i][2], {atol = 1e-5})
    end
    t.close((bi:unroll(5, x, {valid_length = lengths})), (layer(x, nil, lengths)), {atol = 1e-5})
  end
  local layer = rnn.GRU(4, 2, {input_size = 3}):initialize("xavier")
  local stack = rnn.HybridSequentialRNNCell{rnn.GRUCell(4), rnn.GRUCell(4)}:initialize()
  local x = randn(5, 2, 3)
  stack:unroll(5, x, {layout = "TNC"})
  copy_to(stack[1], layer, "l0_")
  copy_to(stack[2], layer, "l1_")
  local outs, states = stack:unroll(5, x, {layout = "TNC"})
  local expected, last = layer(x, layer:begin_state(2))
  t.close(outs, expected, {atol = 1e-5})
  t.close(pg.stack(states), last[1], {atol = 1e-5})
  local y, s = stack(x[1], stack:begin_state(2))
  t.close(y, expected[1], {atol = 1e-5})
  t.equal(#s, 2)
end)

test("layouts, lists of steps, merge_outputs", function()
  local cell = rnn.LSTMCell(4):initialize("xavier")
  local x = randn(2, 5, 3)
  local merged, states = cell:unroll(5, x)
  t.equal(merged.shape, {2, 5, 4})
  t.equal(states[2].shape, {2, 4})
  t.close((cell:unroll(5, x:transpose(1, 2), {layout = "TNC"})):transpose(1, 2), merged)
  local steps = x:unbind(2)
  local list = cell:unroll(5, steps)
  t.equal(#list, 5)
  t.close(list[3], merged[{{}, 3}])
  t.close((cell:unroll(nil, steps, {merge_outputs = true})), merged)
  t.equal(#(cell:unroll(5, x, nil, "NTC", false)), 5)
  local start = {randn(2, 4), randn(2, 4)}
  local first = cell(steps[1], start)
  t.close((cell:unroll(5, x, start))[{{}, 1}], first)
end)

test("valid_length: zeros after the end, states of the last step", function()
  for kind, make in pairs(pairs_of) do
    local layer, cell = make[1]{input_size = 3}:initialize("xavier"), make[2]():initialize()
    copy_to(cell, layer, "l0_")
    local x, lengths = randn(6, 3, 3), {6, 1, 4}
    local outs, states = cell:unroll(6, x, {layout = "TNC", valid_length = lengths})
    local y, last = layer(x, layer:begin_state(3), pg.tensor(lengths, {dtype = "int64"}))
    t.close(y, outs, {atol = 1e-5, what = kind})
    for n, length in ipairs(lengths) do
      local own, own_states = layer(x[{{1, length}, {n, n}}], layer:begin_state(1))
      t.close(y[{{1, length}, n}], own[{{}, 1}], {atol = 1e-5})
      t.equal(y[{{length + 1, 6}, n}]:ne(0):sum():item(), 0)
      for i, s in ipairs(own_states) do
        t.close(states[i][n], s[1][1], {atol = 1e-5, what = kind})
        t.close(last[i][1][n], s[1][1], {atol = 1e-5, what = kind})
      end
    end
  end
end)

test("no steps after the end: poisoned padding changes neither values nor gradients", function()
  for _, bidirectional in ipairs{false, true} do
    local layer = rnn.LSTM(4, 2, {input_size = 3, bidirectional = bidirectional}):initialize("xavier")
    local clean, lengths = randn(4, 2, 3), pg.tensor({2, 4}, {dtype = "int64"})
    local dirty = clean:clone()
    dirty[{{3, 4}, 1}] = 1e30
    local function run(x)
      x = x:attach_grad()
      local y, s = pg.record(function() return layer(x, layer:begin_state(2), lengths) end)
      pg.autograd.backward{y, s[1], s[2]}
      return y, s, x.grad, layer.l0_i2h_weight.grad:clone()
    end
    local y1, s1, dx1 = run(clean)
    local y2, s2, dx2 = run(dirty)
    t.equal(y2, y1)
    t.equal(s2[2], s1[2])
    t.equal(dx2, dx1)
    t.equal(dx1[{{3, 4}, 1}]:ne(0):sum():item(), 0)
  end
end)

test("sequences without a single step keep the first states", function()
  local layer = rnn.GRU(4, {input_size = 3}):initialize("xavier")
  local h = randn(1, 2, 4)
  local y, last = layer(randn(3, 2, 3), h, {0, 3})
  t.equal(last[1][1], h[1][1])
  t.equal(y[{{}, 1}]:ne(0):sum():item(), 0)
  t.check(last:dim() == 3, "a bare state comes back bare")
end)

-- Modifiers ----------------------------------------------------------------------------------------------------------------------

test("ZoneoutCell keeps old values in training mode only", function()
  local base = rnn.RNNCell(50, {input_size = 3}):initialize("xavier")
  local cell = rnn.ZoneoutCell(base, {zoneout_outputs = 0.5, zoneout_states = 0.3})
  local x = randn(2, 6, 3)
  local plain, plain_states = base:unroll(6, x)
  local outs, states = cell:unroll(6, x)
  t.close(outs, plain)
  t.close(states[1], plain_states[1])
  local zoned, zoned_states = pg.train_mode(function() return cell:unroll(6, x) end)
  local zeros = zoned[{{}, 1}]:eq(0):sum():item()
  t.check(zeros > 20 and zeros < 80, "outputs before the first step are zero: " .. zeros)
  local same = zoned[{{}, 4}]:eq(zoned[{{}, 3}]):sum():item()
  t.check(same > 20 and same < 80, "outputs kept: " .. same)
  t.check(not zoned_states[1]:allclose(plain_states[1]))
  t.equal(#cell:state_info(2), 1)
  t.equal(cell:begin_state(2)[1].shape, {2, 50})
end)

test("ZoneoutCell in single steps remembers its output until reset", function()
  local cell = rnn.ZoneoutCell(rnn.LSTMCell(60), {zoneout_outputs = 0.5}):initialize("xavier")
  local x = randn(2, 3)
  pg.train_mode(function()
    local first, s = cell(x, cell:begin_state(2))
    local second = cell(x, s)
    local kept = second:eq(first):sum():item()
    t.check(kept > 30 and kept < 90, "kept " .. kept)
    cell:reset()
    local again = cell(x, cell:begin_state(2))
    local zeros = again:eq(0):sum():item()
    t.check(zeros > 30 and zeros < 90, "zeros " .. zeros)
  end)
end)

test("DropoutCell drops between cells in training mode, ResidualCell adds the input", function()
  local drop = rnn.DropoutCell(0.5)
  local x = pg.ones(4, 5, 20)
  t.equal((drop:unroll(5, x)), x)
  t.equal(#drop:begin_state(4), 0)
  local y = pg.train_mode(function() return (drop:unroll(5, x)) end)
  local zeros = y:eq(0):sum():item()
  t.check(zeros > 120 and zeros < 280, "zeros " .. zeros)
  local shared = pg.train_mode(function() return (rnn.DropoutCell(0.5, {axes = {1}}):unroll(5, x)) end)
  t.equal(shared:min(1), shared:max(1))
  t.equal((drop(x[{{}, 1}], {})), x[{{}, 1}])

  local base = rnn.GRUCell(3, {input_size = 3}):initialize("xavier")
  local residual = rnn.ResidualCell(base)
  local z = randn(2, 5, 3)
  t.close((residual:unroll(5, z)), (base:unroll(5, z)) + z)
  local out, states = residual(z[{{}, 1}], residual:begin_state(2))
  t.close(out, states[1] + z[{{}, 1}])
  local short = residual:unroll(5, z, {valid_length = {5, 2}})
  t.equal(short[{2, {3, 5}}]:ne(0):sum():item(), 0)
  t.close(short[{2, {1, 2}}], ((base:unroll(5, z)) + z)[{2, {1, 2}}], {atol = 1e-5})

  local bi = rnn.ResidualCell(rnn.BidirectionalCell(rnn.GRUCell(2), rnn.GRUCell(2))):initialize()
  t.equal((bi:unroll(3, randn(2, 3, 4))).shape, {2, 3, 4})
end)

test("a stack of modified cells in both modes", function()
  local stack = rnn.SequentialRNNCell{
    rnn.LSTMCell(4), rnn.DropoutCell(0.5), rnn.ZoneoutCell(rnn.GRUCell(4), {zoneout_outputs = 0.3, zoneout_states = 0.2}),
    rnn.ResidualCell(rnn.RNNCell(4)), rnn.BidirectionalCell(rnn.LSTMCell(3), rnn.GRUCell(2)),
  }
  stack:initialize("xavier")
  t.equal(#stack, 5)
  local x = randn(5, 3, 6)
  local outs, states = stack:unroll(5, x, {layout = "TNC"})
  t.equal(outs.shape, {5, 3, 5})
  t.equal(#states, 7)
  for i, info in ipairs(stack:state_info(3)) do t.equal(states[i].shape, info.shape) end
  local again = stack:unroll(5, x, {layout = "TNC", begin_state = stack:begin_state(3)})
  t.close(again, outs)
  local l = pg.record(function() return (stack:unroll(5, x, {layout = "TNC", valid_length = {1, 5, 3}})):sum() end)
  l:backward()
  t.check(stack[1].i2h_weight.grad:abs():sum():item() > 0)
end)

test("a cell of one's own", function()
  local Leaky = rnn.HybridRecurrentCell:extend("Leaky")
  function Leaky:init(size)
    self.size, self.weight = size, pg.param{shape = {size, 0}}
  end
  function Leaky:infer_shape(x) self.weight:set_shape{self.size, x:size(2)} end
  function Leaky:state_info(n) return {{shape = {n or 0, self.size}, layout = "NC"}} end
  function Leaky:forward(x, states)
    local h = states[1] * 0.9 + x:linear(self.weight)
    return h, {h}
  end
  local cell = Leaky(2):initialize("one")
  local outs, states = cell:unroll(3, pg.ones(1, 3, 4))
  t.close(outs, {{{4, 4}, {7.6, 7.6}, {10.84, 10.84}}})
  t.close(states[1], {{10.84, 10.84}})
  t.equal((rnn.ResidualCell(Leaky(4)):initialize():unroll(3, pg.ones(1, 3, 4))).shape, {1, 3, 4})
end)

t.test("what a cell keeps between single steps survives pg.scope", function()
  for _, cell in ipairs{rnn.ZoneoutCell(rnn.GRUCell(3), {zoneout_outputs = 0.2}), rnn.VariationalDropoutCell(rnn.GRUCell(3), {drop_inputs = 0.2})} do
    cell:initialize()
    for i = 1, 3 do
      if i == 3 then pg.scope(function() cell:reset() end) end
      pg.scope(function() pg.record(function() return cell(pg.ones(2, 3), cell:begin_state(2)) end) end)
    end
  end
end)

t.test("a loop's body cannot run the first step of a cell that keeps something for later ones", function()
  for name, make in pairs{
    ZoneoutCell = function(base) return rnn.ZoneoutCell(base, {zoneout_outputs = 0.5}) end,
    VariationalDropoutCell = function(base) return rnn.VariationalDropoutCell(base, {drop_inputs = 0.5, drop_states = 0.5}) end,
  } do
    local cell = make(rnn.GRUCell(3)):initialize()
    local function run(xs, states)
      return pg.train_mode(function() return (pg.foreach(function(x, s) return cell(x, s) end, xs, states)) end)
    end
    local xs = pg.ones(4, 2, 3)
    t.error_contains(function() run(xs, cell:begin_state(2)) end, name .. ": the body of a loop or branch cannot run the first step after reset")
    t.error_contains(function() pg.jit(run)(xs, cell:begin_state(2)) end, name .. ": the body of a loop or branch cannot run the first step after reset")
    local _, states = pg.train_mode(function() return cell(xs[1], cell:begin_state(2)) end)
    t.equal(run(xs[{{2, 4}}], states).shape, {3, 2, 3})
  end
end)
