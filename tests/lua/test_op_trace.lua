-- pg.trace of a function, pg.debug under a debugger, the messages of detect_anomaly, and net:summary.
local t = require "tests.support"
local pg = require "perigee"
local nn = pg.nn

-- The lines that a script prints.
local function printed(script)
  local out, err, code = t.run("-", 'local pg = require "perigee"\nlocal nn = pg.nn\n' .. script)
  t.check(code == 0, err .. out)
  return out
end

t.test("trace prints what each op got and gave", function()
  local out = printed [[
local x = pg.tensor{{1, 2, 3}, {4, 5, 6}}
print(pg.trace(function(a, b)
  local y = a:sum{dim = 2}
  return y * 2 + b
end, x, pg.tensor{1, -1}))
]]
  local lines = {}
  for line in out:gmatch("[^\n]+") do lines[#lines + 1] = line end
  t.check(lines[1]:find(":5: sum(x = float32 2x3 in 1..6; dim = {2}) -> out = float32 2 {6, 15}", 1, true), out)
  t.check(lines[2]:find(":6: mul(x = float32 2 {6, 15}; y = 2) -> out = float32 2 {12, 30}", 1, true), out)
  t.check(lines[3]:find(":6: add(x = float32 2 {12, 30}; y = float32 2 {1, -1}) -> out = float32 2 {13, 29}", 1, true), out)
  t.check(lines[4]:find("{13, 29}", 1, true), out)
end)

t.test("trace shows what an imported model has computed before", function()
  local out = printed(([[
local net = nn.block{
  w = pg.param{shape = {2, 2}, init = "ones"},
  forward = function(self, x) return x:matmul(self.w:matmul(self.w)) end,
}
net:initialize()
net:hybridize()
local x = pg.ones(1, 2)
net(x)
local json, tensors = net:export("%s")
local model = nn.SymbolBlock.imports(json, nil, tensors)
for _ = 1, 4 do model(x) end
pg.trace(model, x)
]]):format(t.tmp("traced")))
  local _, shown = out:gsub("matmul%(", "")
  t.equal(shown, 2, out)
end)

t.test("trace shows ops in place, NaNs, errors and backward", function()
  local out = printed [[
local x = pg.tensor{4, -1}
pg.trace(function() x:sqrt_() x:add_(1) end)
print(pcall(pg.trace, function() return pg.ones(2):matmul(pg.ones(3)) end))
local w = pg.ones(6):attach_grad()
local l = pg.record(function() return (w * w):sum() end)
pg.trace(l.backward, l)
print((pg.ones(2, 2) * 3):trace(), pg.trace(pg.ones(2, 2)))
]]
  t.check(out:find("sqrt(x = float32 2 {4, -1}) -> out = float32 2 {2, nan}", 1, true) or
          out:find("sqrt(x = float32 2 {4, -1}) -> out = float32 2 {2, -nan}", 1, true), out)
  t.check(out:find("add(x = float32 2 {2, ", 1, true), out)
  t.check(out:find("-> an error", 1, true) and out:find("false", 1, true), out)
  t.check(out:find("mul(", 1, true) and out:find("in 1..1", 1, true), out)
  t.check(out:find("6 [float32", 1, true) and out:find("2 [float32", 1, true), out)
end)

t.test("trace runs hybridized blocks and jitted functions op by op", function()
  local out = printed [[
local net = nn.HybridSequential{nn.Dense(3, {in_units = 2, activation = "relu"})}:initialize("ones")
net:hybridize()
local f = pg.jit(function(x) return x:exp() + 1 end)
local x = pg.ones(1, 2)
net(x) f(x)
pg.trace(function() f(net(x)) end)
]]
  for _, op in ipairs{"linear(", "relu(", "exp(", "add("} do t.check(out:find(op, 1, true), out) end
  t.check(out:find("linear(x = float32 1x2 in 1..1; weight = float32 3x2 in 1..1; bias = float32 3 {0, 0, 0}) -> out = float32 1x3 in 2..2", 1, true), out)
end)

t.test("trace leaves the op trace as it was", function()
  t.equal(pg.trace(pg.tensor{{1, 2}, {3, 4}}):item(), 5)
  t.equal(pg.tensor{{1, 2}, {3, 4}}:trace():item(), 5)
  t.equal(pg.jit(function(x) return pg.trace(x) end)(pg.tensor{{1, 2}, {3, 4}}):item(), 5)
  t.bad_argument(function() pg.trace(pg.ones(2)) end, "trace", "x")
  t.bad_argument(function() pg.trace() end, "trace", "x")
end)

t.test("trace returns results and raises errors with their position", function()
  t.equal({pg.trace(function(...) return select("#", ...), ... end, 1, nil, 3)}, {3, 1, nil, 3})
  local e = t.error_contains(function() pg.trace(function() error("my mistake") end) end, "my mistake")
  t.check(e:find("test_op_trace.lua:%d+"), e)
  t.error_contains(function() pg.jit(function(x) return pg.trace(function() return x end) end)(pg.ones(1)) end, "trace: cannot run inside")
end)

-- Debuggers ---------------------------------------------------------------------------------------------------------------

t.test("a line hook sees the lines of a forward in pg.debug", function()
  t.skip_in("interpreted", "the hook sees the interpreter")
  local lines, first, last = {}, nil, nil
  local net = nn.block{forward = function(_, x)
    first = debug.getinfo(1, "l").currentline
    local s = 0
    for _ = 1, 200 do
      s = s + 1
    end
    last = debug.getinfo(1, "l").currentline
    return x * s
  end}
  net:hybridize()
  local x = pg.ones(2)
  net(x)
  for _ = 1, 30 do pg.debug(net, x) end  -- LuaJIT may compile the loop
  local file = debug.getinfo(1, "S").source
  local hook, mask, count = debug.gethook()
  debug.sethook(function(_, line)
    if debug.getinfo(2, "S").source == file then lines[line] = (lines[line] or 0) + 1 end
  end, "l")
  local ok, y = pcall(pg.debug, net, x)
  if hook then debug.sethook(hook, mask, count) else debug.sethook() end
  t.check(ok, y)
  t.equal(y, pg.full({2}, 200))
  for line = first, last + 1 do if line ~= first + 4 then t.check(lines[line], "line " .. line) end end
  t.check(lines[first + 3] >= 200, "the loop body ran " .. tostring(lines[first + 3]) .. " times for the hook")
end)

-- Anomalies ---------------------------------------------------------------------------------------------------------------

local function anomaly(f)
  return (t.error_contains(function() pg.autograd.detect_anomaly(f) end, "made a NaN"):gsub(" test_device", ""))
end

t.test("detect_anomaly names the op, the line and the ranges", function()
  local x = pg.tensor{4, -1, 0}
  local line
  local e = anomaly(function()
    line = debug.getinfo(1, "l").currentline + 1
    local y = x:sqrt()
    return y
  end)
  t.check(e:find("test_op_trace.lua:" .. line .. ": sqrt: made a NaN: x = float32 3 in -1..4; out = float32 3 in 0..2, 1 NaN", 1, true), e)
  e = anomaly(function() return pg.tensor{1 / 0, 2} - pg.tensor{1 / 0, 1} end)
  t.check(e:find("x = float32 2 in 2..2, 1 infinite; y = float32 2 in 1..1, 1 infinite; out = float32 2 in 1..1, 1 NaN", 1, true), e)
  e = anomaly(function() pg.tensor{-2, 4}:sqrt_() end)
  t.check(e:find("x = float32 2 in -2..4", 1, true), e)
end)

t.test("detect_anomaly in backward names the forward and the gradient", function()
  local w = pg.tensor{0, 1}:attach_grad()
  local line
  local e = anomaly(function()
    local l = pg.record(function()
      line = debug.getinfo(1, "l").currentline + 1
      return (w:sqrt() * 0):sum()
    end)
    l:backward()
  end)
  t.check(e:find("sqrt: its gradient made a NaN", 1, true), e)
  t.check(e:find("forward at", 1, true) and e:find("test_op_trace.lua:" .. line, 1, true), e)
  t.check(e:find("gradient of result 1 = float32 2 in 0..0", 1, true), e)
end)

t.test("detect_anomaly in a graph names the op, the line and the ranges", function()
  local line
  local f = pg.jit(function(x)
    local y = x - 1
    line = debug.getinfo(1, "l").currentline + 1
    local z = y:log() * 2
    return z
  end)
  f(pg.tensor{2, 3})
  local e = anomaly(function() return f(pg.tensor{0.5, 3}) end)
  t.check(e:find("test_op_trace.lua:" .. line .. ": log: made a NaN: x = float32 2 in -0.5..2; out = ", 1, true), e)
end)

t.test("detect_anomaly in a graph finds what is computed before the run", function()
  t.check(anomaly(pg.jit(function() return pg.tensor{-1}:sqrt() end)):find("sqrt: made a NaN: x = float32 1 in -1..-1", 1, true))
  local x = pg.ones(2):attach_grad()
  local bad = pg.autograd.Function{
    name = "bad",
    forward = function(_, a) return a * 2 end,
    backward = function(_, dy) return dy / 0 * 0 end,
  }
  anomaly(pg.jit(function() pg.record(function() return bad(x):sum() end):backward() end))
end)

-- Summaries ---------------------------------------------------------------------------------------------------------------

local function conv_net()
  return nn.HybridSequential{
    nn.Conv2D(4, 3, {activation = "relu"}), nn.MaxPool2D(2), nn.Flatten(), nn.HybridSequential{nn.Dense(5), nn.Dense(2)}}:initialize()
end

t.test("summary has multiply-adds and the memory of a training step", function()
  local text = conv_net():summary(pg.ones(2, 1, 6, 6))
  local conv, first, second = 2 * 4 * 4 * 4 * 9, 2 * 16 * 5, 2 * 5 * 2
  local parameters = 4 * 9 + 4 + 16 * 5 + 5 + 5 * 2 + 2
  t.check(text:find("Conv2D 1 +{2, 4, 4, 4} +40 +" .. conv .. "\n"), text)
  t.check(text:find("Dense 4%.1 +{2, 5} +85 +" .. first .. "\n"), text)
  t.check(text:find("HybridSequential 4 +{2, 2} +0 +0\n"), text)
  t.check(text:find("Multiply-adds: " .. conv + first + second, 1, true), text)
  t.check(text:find("Trainable: " .. parameters, 1, true), text)
  t.check(text:find(("Memory of a training step: .* %%(parameters %d B, gradients %d B, kept for backward [%%d.]+ k?B%%)"):format(
    4 * parameters, 4 * parameters)), text)
end)

t.test("summary is the same for hybridized nets, before and after their first call", function()
  local x = pg.ones(2, 1, 6, 6)
  local net = conv_net()
  net:hybridize()
  local before = net:summary(x)
  net(x)
  t.equal(net:summary(x), before)
  net:hybridize(false)
  t.equal(net:summary(x), before)
end)

t.test("summary counts transposed convolutions and products inside other ops", function()
  local net = nn.HybridSequential{nn.Conv2DTranspose(3, 2, {strides = 2, in_channels = 2})}:initialize()
  t.check(net:summary(pg.ones(1, 2, 4, 4)):find("Multiply-adds: " .. 2 * 16 * 3 * 4, 1, true))
  local attend = nn.block{forward = function(_, q) return pg.scaled_dot_product_attention(q, q, q) end}
  t.check(attend:summary(pg.ones(1, 3, 4)):find("Multiply-adds: " .. 2 * 3 * 3 * 4, 1, true))
end)
