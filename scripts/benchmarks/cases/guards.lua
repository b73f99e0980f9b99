-- The cost of a hit in Lua: the call, guards, fetching inputs, writing results and state back, and the hooks of a
-- trainer. The program is replaced by a C call and the outputs of one real run, and the time of these is subtracted.
-- Also the cost of the call that traces, without the run and its plan.
local networks = dofile((arg[0]:match("^(.*)/[^/]*$") or ".") .. "/networks.lua")

local function hybrid(net, ...)
  local args = {...}
  return function()
    net:hybridize(false)
    net:hybridize()
    return function() return net(unpack(args)) end, net
  end
end

local function jitted(pg, f, ...)
  local args = {...}
  return function()
    local j = pg.jit(f)
    return function() return j(unpack(args)) end, j
  end
end

local nets = {}

function nets.seed_mlp(pg) return hybrid(networks.mlp(pg, 512, {256, 128, 2}), pg.rand(1, 512)) end

function nets.lenet(pg)
  local net, x = networks.lenet(pg), pg.rand(1, 1, 28, 28)
  net(x)
  return hybrid(net, x)
end

function nets.resnet50(pg)
  local net, x = networks.residual(pg, {3, 4, 6, 3}, true), pg.rand(1, 3, 32, 32)
  net(x)
  return hybrid(net, x)
end

local function dense(pg, layers)
  local sizes = {}
  for i = 1, layers do sizes[i] = 8 end
  return hybrid(networks.mlp(pg, 8, sizes), pg.rand(1, 8))
end

function nets.dense_50(pg) return dense(pg, 50) end
function nets.dense_200(pg) return dense(pg, 200) end

function nets.lstm_step(pg)
  local cell = pg.nn.rnn.LSTMCell(32, {input_size = 16})
  cell:initialize()
  return hybrid(cell, pg.rand(4, 16), cell:begin_state(4))
end

function nets.adam_step(pg)
  local net, loss_fn = networks.mlp(pg, 16, {32, 16, 4}), pg.loss.SoftmaxCrossEntropyLoss()
  local trainer = pg.optim.Trainer(net:collect_params(), "adam", {learning_rate = 1e-3})
  return jitted(pg, function(x, y)
    local l = pg.record(function() return loss_fn(net(x), y):mean() end)
    l:backward()
    trainer:step(1)
    return l
  end, pg.rand(8, 16), pg.randint(1, 4, {8}))
end

-- 60 globals and 40 helpers that read them. Each helper calls the one before.
function nets.globals_and_helpers(pg)
  local parts = {"local pg = ...", "local helpers = {}"}
  for i = 1, 60 do parts[#parts + 1] = ("RATE_%d = %d"):format(i, i) end
  for i = 1, 40 do
    parts[#parts + 1] = ("local function helper_%d(x) return %s + RATE_%d * 0.01 end"):format(i,
      i > 1 and ("helper_%d(x)"):format(i - 1) or "x * RATE_60", i)
  end
  parts[#parts + 1] = "local unused = {}  for i = 1, 50 do unused[i] = {RATE_1 = i} end"
  parts[#parts + 1] = "return function(x) return helper_40(x * OFFSET.scale) end"
  local chunk = assert(loadstring(table.concat(parts, "\n")))
  setfenv(chunk, setmetatable({OFFSET = {scale = 2}}, {__index = _G}))
  return jitted(pg, chunk(pg), pg.rand(4))
end

-- A data table of 100 rows and a helper that uses pairs on its argument.
function nets.helper_module(pg)
  local module, options = {data = {}}, {a = 1, b = 2}
  for i = 1, 100 do
    local values = {}
    for k = 1, 16 do values[k] = i * k end
    module.data[i] = {id = i, name = "row " .. i, values = values}
  end
  function module.sum(t)
    local n = 0
    for _, v in pairs(t) do n = n + v end
    return n
  end
  return jitted(pg, function(x) return x * module.sum(options) end, pg.rand(4))
end

local order = {
  "seed_mlp", "lenet", "resnet50", "dense_50", "dense_200", "lstm_step", "adam_step", "globals_and_helpers",
    "helper_module",
}

-- Returns a function that returns these values after a call into C, so that the compiler cannot remove the call.
local function giving(results)
  local parts = {}
  for i = 1, results.n do parts[i] = "o[" .. i .. "]" end
  local text = ("local o, c, p = ... return function() c(p) return %s end"):format(table.concat(parts, ", "))
  return assert(loadstring(text))(results, debug.getmetatable, results)
end

local function pack(...) return {n = select("#", ...), ...} end

-- Returns the minimum over blocks of about 2 ms, in ns per call.
local function minimum(env, f)
  local n, best, start = 16, math.huge, env.now()
  for _ = 1, 200 do f() end
  repeat
    local t = env.now()
    for _ = 1, n do f() end
    local us = env.now() - t
    best = math.min(best, us / n)
    if us < 2000 then n = n * 2 end
  until env.now() - start > env.budget * 1e6
  return best * 1000
end

local function measure(env, name)
  local pg = require "perigee"
  pg.set_num_threads(env.threads)
  local backend = pg.testing.graph_backend()
  local real, outputs = backend.run, nil
  local fresh = nets[name](pg)
  function backend.run(...)
    outputs = pack(real(...))
    return unpack(outputs, 1, outputs.n)
  end
  fresh()()
  local stub, runs = giving(outputs), 0
  backend.run = function() runs = runs + 1 return stub() end
  fresh()()
  if runs == 0 then error("the program is not run by hybrid.trace's backend.run") end
  backend.run = stub
  local traces = {}
  for i = 1, 12 do
    local call = fresh()
    collectgarbage()
    local t = env.now()
    call()
    traces[i] = env.now() - t
  end
  local call, cache = fresh()
  call()
  local ns = minimum(env, call) - minimum(env, stub)
  backend.run = real
  if cache:cache_info().traces ~= 1 then error("traced again") end
  return {name = "guards_" .. name, us_min = ns / 1000, us_median = ns / 1000, n = 1, ns = ns,
    trace_us = math.min(unpack(traces))}
end

local cases = {}
for i, name in ipairs(order) do
  cases[i] = {name = "guards_" .. name, measure = function(env) return measure(env, name) end}
end
return cases
