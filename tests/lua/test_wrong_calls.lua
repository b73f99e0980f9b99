-- Functions that are not ops of the registry, called with wrong values of every kind: constructors, functions of the
-- modules, methods. A call must return or raise a string with the position of the script. It must not crash or fail
-- inside the library. (Ops: test_registry_errors.lua.)
local t = require "tests.support"
local with_limit = require "tests.ops.limit"
local bounded = require "tests.ops.bounded"
local pg = require "perigee"

t.skip_in("gcstress", "thousands of wrong calls")

local nan = 0 / 0

local function released()
  local x = pg.ones(2)
  x:release()
  return x
end

local function slips()
  return {nil, 1, -1, 0, 1.5, nan, 2 ^ 53, 2 ^ 63, -2 ^ 40, true, false, "", "/no/such/file", t.tmp("weight"), {}, {1}, {1.5}, {x = 1},
    {{1}, {2, 3}}, function() end, function(x) return x end, pg.ones(2), pg.ones(2, 3), pg.tensor(1), pg.zeros(0),
    pg.tensor({1, 2}, {dtype = "int64"}), pg.tensor{true, false}, released(), pg.param{shape = {0, 3}}, pg.nn.Dense(2),
    coroutine.create(function() end), io.stdout}, 32
end

local draw, _, restart = require "tests.choices"(1)

local function complaint(e)
  if type(e) ~= "string" then return "raised a " .. type(e) end
  if e:find("attempt to ", 1, true) or e:find("bad argument #", 1, true) then return "failed inside: " .. e end
  if not e:find("^%S*test_wrong_calls%.lua:%d+: ") then return "named no position of the script: " .. e end
end

local function try(f)
  for _ = 1, 30 do
    local values, n = slips()
    local args, count = {}, draw(4) - 1
    for k = 1, count do args[k] = values[draw(n)] end
    local ok, e = bounded(pcall, function() return (f(unpack(args, 1, count))), true end)
    local text = not ok and complaint(e)
    if text then error(text, 0) end
  end
end

local function check(name, f)
  t.test(name, function()
    restart(#name * 7919 + 1)
    with_limit(2 ^ 27, try, f)
  end)
end

local function callable(v)
  local meta = type(v) == "table" and getmetatable(v)
  return type(v) == "function" or type(meta) == "table" and meta.__call
end

local function check_module(name, module, except)
  local names = {}
  for key, v in pairs(module) do
    if type(key) == "string" and not key:find("^_") and callable(v) and not except[key] then names[#names + 1] = key end
  end
  table.sort(names)
  for _, key in ipairs(names) do check(name .. "." .. key, module[key]) end
end

local opaque = {unflatten = true}  -- its argument must come from flatten
for _, name in ipairs{"nn", "loss", "optim", "init", "data", "metric", "utils", "tree", "autograd", "linalg", "fft"} do
  check_module("pg." .. name, pg[name], opaque)
end
check_module("pg.optim.lr_scheduler", pg.optim.lr_scheduler, {})

for name in ("param constant record pause value_and_grad vjp jvp checkpoint scope keep memory devices synchronize manual_seed " ..
             "Generator ops grad save load tensor from_bytes"):gmatch("%S+") do
  check("pg." .. name, pg[name])
end

local function dense()
  local net = pg.nn.Dense(2, {in_units = 3})
  net:initialize()
  return net
end

local function sequence()
  local net = pg.nn.HybridSequential{pg.nn.Dense(2, {in_units = 3})}
  net:initialize()
  return net
end

local subjects = {
  tensor = {function() return pg.ones(2, 3):attach_grad() end, "allclose attach_grad backward copy_ fill_ dim size stride numel initialize " ..
    "is_contiguous item set_data set_shape to_bytes totable zero_ zero_grad equal iter release"},
  net = {sequence, "add slice initialize parameters collect_params children apply to summary register_forward_hook " ..
    "register_forward_pre_hook save_parameters load_parameters hybridize"},
  params = {function() return dense():collect_params() end, "initialize zero_grad set save load"},
  trainer = {function() return pg.optim.Trainer(dense():collect_params(), "sgd", {learning_rate = 0.1}) end,
    "step update allreduce_grads learning_rate set_learning_rate save_states load_states"},
  dataset = {function() return pg.data.ArrayDataset(pg.range(1, 5), pg.range(1, 5)) end,
    "len get filter shard take sample transform transform_first"},
  loader = {function() return pg.data.DataLoader(pg.data.ArrayDataset(pg.range(1, 5)), {batch_size = 2}) end, "iter len"},
  metric = {function() return pg.metric.Accuracy() end, "update get reset"},
}

for name, subject in pairs(subjects) do
  for method in subject[2]:gmatch("%S+") do
    check(name .. ":" .. method, function(...)
      local self = subject[1]()
      return self[method](self, ...)
    end)
  end
end

for name, make in pairs{
  Dense = function() return pg.nn.Dense(2) end, Conv2D = function() return pg.nn.Conv2D(2, 3) end,
  BatchNorm = pg.nn.BatchNorm, LayerNorm = pg.nn.LayerNorm, InstanceNorm = pg.nn.InstanceNorm, Flatten = pg.nn.Flatten,
  GlobalAvgPool2D = pg.nn.GlobalAvgPool2D, MaxPool2D = function() return pg.nn.MaxPool2D(2) end, PReLU = pg.nn.PReLU,
  Embedding = function() return pg.nn.Embedding(3, 2) end, Dropout = function() return pg.nn.Dropout(0.5) end,
  Sequential = sequence, L2Loss = pg.loss.L2Loss, SoftmaxCrossEntropyLoss = pg.loss.SoftmaxCrossEntropyLoss,
  KLDivLoss = pg.loss.KLDivLoss, HuberLoss = pg.loss.HuberLoss, SDMLLoss = pg.loss.SDMLLoss,
  RMSNorm = pg.nn.RMSNorm, BatchNormReLU = pg.nn.BatchNormReLU, SyncBatchNorm = pg.nn.SyncBatchNorm,
  PixelShuffle2D = function() return pg.nn.PixelShuffle2D(2) end,
  HybridConcurrent = function() return pg.nn.HybridConcurrent{pg.nn.Dense(2), pg.nn.Flatten()} end,
  SinusoidalPositions = pg.nn.SinusoidalPositions, RotaryEmbedding = pg.nn.RotaryEmbedding,
  MultiHeadAttention = function() return pg.nn.MultiHeadAttention(4, 2) end,
  TransformerEncoder = function() return pg.nn.TransformerEncoder(1, 4, 2) end,
  TransformerDecoder = function() return pg.nn.TransformerDecoder(1, 4, 2, {pre_norm = true}) end,
  LoRA = function() return pg.nn.LoRA(pg.nn.Dense(2)) end, WeightNorm = function() return pg.nn.WeightNorm(pg.nn.Dense(2)) end,
  SpectralNorm = function() return pg.nn.SpectralNorm(pg.nn.Conv2D(2, 1)) end,
  LSTMPCell = function() return pg.nn.rnn.LSTMPCell(3, 2) end,
  VariationalDropoutCell = function() return pg.nn.rnn.VariationalDropoutCell(pg.nn.rnn.GRUCell(2), {drop_inputs = 0.1}) end,
  Conv1DLSTMCell = function() return pg.nn.rnn.Conv1DLSTMCell({2, 3}, 2, 1, 1) end,
} do
  check("a call of " .. name, function(...)
    local block = make()
    block:initialize()
    return block(...)
  end)
end

t.test("unknown names suggest the nearest", function()
  local x = pg.ones(2)
  t.error_contains(function() x:summ() end, "sum")
  t.error_contains(function() return pg.arange end, "range")
  t.error_contains(function() return pg.nn.Dens end, "Dense")
  t.error_contains(function() return pg.optim.Trainr end, "Trainer")
end)

t.test("errors of in-place methods name the method", function()
  local x = pg.ones(2, 3)
  t.bad_argument(function() x:add_("q") end, "add_", "y")
  t.bad_argument(function() x:mul_(pg.ones(5)) end, "mul_", "y")
  t.bad_argument(function() x:clamp_{lowest = 1} end, "clamp_", "lowest")
  t.equal(x, pg.ones(2, 3))
end)

t.test("the name of a device: a bad number, an unknown kind", function()
  t.bad_argument(function() pg.ones(1):to("cpu:x") end, "to", "device")
  t.bad_argument(function() pg.ones(1):to("cpu:1") end, "to", "device")
  t.bad_argument(function() pg.ones(1):to("no such") end, "to", "device")
end)

t.test("trees too deep to walk are an error", function()
  local deep = {}
  local at = deep
  for _ = 1, 1e5 do
    at[1] = {}
    at = at[1]
  end
  t.bad_argument(function() pg.tree.flatten(deep) end, "tree", "tree")
  t.bad_argument(function() pg.tree.map(function(x) return x end, deep) end, "tree", "tree")
end)

t.test("every method of tensors that is called with a dot and no arguments raises at the script's line", function()
  local x = pg.ones(2, 3)
  for _, entry in ipairs(pg.testing.tensor_names()) do
    local name = entry:match("^tensor_methods (%S+)$")
    if name then
      local ok, message = pcall(x[name])
      t.check(not ok, name .. " raised nothing")
      t.check(not message:find("^stdlib/"), name .. ": " .. message)
    end
  end
end)
