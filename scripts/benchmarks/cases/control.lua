-- Recurrent networks of user-defined cells in foreach and while_loop, scalar loops and branches: the peers' workloads.
local gates = {rnn = 1, gru = 3, lstm = 4}

local cells = {}
function cells.rnn(w, x, s)
  local h = (x:linear(w.wx, w.bx) + s[1]:linear(w.wh, w.bh)):tanh()
  return h, {h}
end

function cells.gru(w, x, s)
  local h = s[1]
  local xr, xu, xn = unpack(x:linear(w.wx, w.bx):chunk(3, -1))
  local hr, hu, hn = unpack(h:linear(w.wh, w.bh):chunk(3, -1))
  local r, u = (xr + hr):sigmoid(), (xu + hu):sigmoid()
  local n = (xn + r * hn):tanh()
  h = (1 - u) * n + u * h
  return h, {h}
end

function cells.lstm(w, x, s)
  local i, f, g, o = unpack((x:linear(w.wx, w.bx) + s[1]:linear(w.wh, w.bh)):chunk(4, -1))
  local c = f:sigmoid() * s[2] + i:sigmoid() * g:tanh()
  local h = o:sigmoid() * c:tanh()
  return h, {h, c}
end

local loops = {}
function loops.foreach(pg, step, xs, states) return (pg.foreach(step, xs, states)) end

-- As in the benchmark of the documentation, a counter among the variables selects the rows.
function loops.while_loop(pg, step, xs, states)
  local n = #xs
  return (pg.while_loop(function(i) return i:le(n) end, function(i, ...)
    local out, new = step(xs[i], {...})
    return out, {i + 1, unpack(new)}
  end, {1, unpack(states)}, {max_iterations = n}))
end

function loops.lua(pg, step, xs, states)
  local outs = {}
  for i = 1, #xs do outs[i], states = step(xs[i], states) end
  return pg.stack(outs)
end

local function network(pg, kind, inputs, hidden, loop)
  local n, cell, run = gates[kind] * hidden, cells[kind], loops[loop]
  local net = pg.nn.block{
    wx = pg.param{shape = {n, inputs}}, wh = pg.param{shape = {n, hidden}}, bx = pg.param{shape = {n}, init = "zeros"},
    bh = pg.param{shape = {n}, init = "zeros"},
    forward = function(self, xs, states) return run(pg, function(x, s) return cell(self, x, s) end, xs, states) end,
  }
  net:initialize()
  return net
end

local function layer(pg, kind, inputs, hidden)
  local net = pg.nn.rnn[({rnn = "RNN", gru = "GRU", lstm = "LSTM"})[kind]](hidden, {input_size = inputs})
  net:initialize()
  return net
end

-- Makes a case with T steps of n x inputs. variant: how it runs (nil: foreach, eagerly).
local function recurrent(name, kind, shape, variant)
  local training = name:find("train") ~= nil
  return {name = name, variant = variant, setup = function(pg)
    local steps, n, inputs, hidden = unpack(shape)
    local loop = variant == "while" and "while_loop" or variant == "lua" and "lua" or "foreach"
    local net = variant == "fused" and layer(pg, kind, inputs, hidden) or network(pg, kind, inputs, hidden, loop)
    local xs, states = pg.rand(steps, n, inputs) - 0.5, {pg.zeros(n, hidden), kind == "lstm" and pg.zeros(n, hidden) or nil}
    if variant == "fused" then states = nil end
    if variant ~= "jit" and variant ~= "lua" and variant then net:hybridize() end
    local function infer() return net(xs, states) end
    local function step()
      local y = pg.record(infer)
      y:backward()
    end
    local f = training and step or infer
    if variant == "jit" then
      local jitted = pg.jit(training and function(x, s)
        local y = pg.record(function() return net(x, s) end)
        y:backward()
      end or function(x, s) return net(x, s) end)
      f = function() return jitted(xs, states) end
    end
    return f
  end}
end

local cases = {}
local function rows(name, kind, shape, ...)
  cases[#cases + 1] = recurrent(name, kind, shape)
  for _, variant in ipairs{...} do cases[#cases + 1] = recurrent(name, kind, shape, variant) end
end

for _, n in ipairs{1, 32} do
  for _, kind in ipairs{"rnn", "gru", "lstm"} do
    rows(("%s_n%d_infer"):format(kind, n), kind, {100, n, 512, 512}, "hybrid", "jit", "while", "fused", "lua")
  end
  for _, kind in ipairs{"rnn", "lstm"} do
    rows(("%s_n%d_train"):format(kind, n), kind, {100, n, 512, 512}, "hybrid", "jit", "while", "fused", "lua")
  end
end
rows("seed_foreach_rnn", "rnn", {100, 32, 256, 512}, "hybrid", "jit", "while", "fused", "lua")
rows("lstm_t35_b32_h200_train", "lstm", {35, 32, 200, 200}, "hybrid", "jit", "fused")

-- A million steps of s = s + i; i = i + 1.
local steps = 1000000
local function scalar(variant)
  return {name = "while_scalar_per_iter", variant = variant, setup = function(pg)
    local function f(i, s)
      local _, vars = pg.while_loop(function(k) return k:lt(steps) end, function(k, u) return nil, {k + 1, u + k} end, {i, s})
      return vars[2]
    end
    if variant == "jit" then f = pg.jit(f) end
    local i, s = pg.zeros(1), pg.zeros(1)
    return function() return f(i, s) end, {scale = steps, inner = 1}
  end}
end

local function branch(variant)
  return {name = "cond_scalar", variant = variant, setup = function(pg)
    local function f(a, b)
      return pg.cond((a * b):lt(5), function() return (a + 5) * (b + 5) end, function() return (a - 5) * (b - 5) end)
    end
    if variant == "jit" then f = pg.jit(f) end
    local a, b = pg.ones(1), pg.full({1}, 2)
    return function() return f(a, b) end
  end}
end

for _, make in ipairs{scalar, branch} do
  cases[#cases + 1] = make()
  cases[#cases + 1] = make("jit")
end
return cases
