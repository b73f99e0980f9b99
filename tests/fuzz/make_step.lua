-- Random training steps for tests/fuzz/mutations.lua, of the same form as those of tests/fuzz/make_script.lua.
local make_step = {}

local mutations = {
  "trainer:set_learning_rate(0.01 * r)", "second:set_learning_rate(0.02 * r)", "w.lr_mult = r", "w.wd_mult = r",
  "w.grad_req = 'null'", "w.grad_req = 'write'", "w.grad_req = 'add'", "v.grad_req = 'null'", "v.grad_req = 'write'",
  "for _, p in pairs(net:collect_params()) do p.grad_req = 'null' end",
  "for _, p in pairs(net:collect_params()) do p.grad_req = 'write' end",
  "for _, p in pairs(net:collect_params()) do p.grad_req = 'add' end",
  "other[1].weight = net[1].weight", "other[1].weight = pg.param(pg.full({2, 2}, 0.1 * r, {dtype = 'float64'}))",
  "w:set_data(pg.full({2, 2}, 0.1 * r, {dtype = 'float64'}))", "w:fill_(0.2 * r)", "v:mul_(0.5)", "net:zero_grad()",
  "w.grad:fill_(r)",
  "o.flag = not o.flag", "o.rate = r", "o.phase = r", "o.limit = 0.2 * r", "o.scale = 0.5 * r", "rows = r",
  "o.which = r",
  "o.f = function(x) return x * r end", "o.k = r", "o.unread = r", "o.batch = r", "o.factor = 0.1 * r",
  "pg.manual_seed(r)",
  "trainer = pg.optim.Trainer(net:collect_params(), 'sgd', {learning_rate = 0.01 * r})", "bias.grad_req = 'null'",
}
make_step.mutations = mutations

local optimizers = {
  "'sgd', {learning_rate = 0.05}", "'sgd', {learning_rate = 0.05, momentum = 0.9}",
  "'sgd', {learning_rate = 0.05, momentum = 0.9, wd = 0.01}", "'sgd', {learning_rate = 0.05, clip_gradient = 0.1}",
  "'nag', {learning_rate = 0.05, momentum = 0.9}", "'adam', {learning_rate = 0.01}",
  "'adam', {learning_rate = 0.01, wd = 0.01}",
  "'adamw', {learning_rate = 0.01, wd = 0.1}", "Own{learning_rate = 0.05}", "Own{learning_rate = 0.05, wd = 0.1}",
  "'sgd', {learning_rate = 0.1, lr_scheduler = pg.optim.lr_scheduler.Factor(2, {factor = 0.5})}",
  "'adam', {learning_rate = 0.1, lr_scheduler = function(n) return 0.1 / n end}",
}
local activations = {"tanh", "relu", "sigmoid", "softrelu"}

local kinds = {
  "l = pg.record(function() return loss(net(x), y):mean() end) l:backward()",
  "l = pg.record(function() return loss(net(x), y):sum() * o.scale end) l:backward()",
  "l = pg.record(function() return loss(other(net(x)), y):mean() end) l:backward()",
  "l = pg.record(function() return loss(net(x) * o.rate, y):mean() + (w * w):sum() * o.factor end) l:backward()",
  "l = pg.record(function() return (net(x) - y):abs():mean() end) l:backward()",
  "l = pg.record(function() return loss(o.f(net(x)), y):mean() end) l:backward()",
  "local a, b = pg.record(function() local h = net(x) return loss(h, y):mean(), loss(other(h), y):mean() end) "
    .. "pg.autograd.backward{a, b} l = a",
  "trainer:step(1)", "trainer:step(o.batch)", "trainer:step(1, lax)", "trainer:step(1, lax)", "second:step(1, lax)",
  "second:step(x:size(1), lax)",
  "second:step(1)",
  "pg.utils.clip_global_norm({w.grad, bias.grad}, o.limit)",
  "pg.pause(function() w:clamp_{min = -o.limit, max = o.limit} end)",
  "pg.pause(function() w:sub_(w.grad * 0.01) end)",
  "if o.flag then trainer:step(1, lax) else second:step(1, lax) end", "if o.flag then net:zero_grad() end",
  "w.grad:mul_(o.scale)", "w:mul_(0.9)",
  "o.phase = (o.phase or 0) % 3 + 1 if o.phase == 1 then trainer:step(1, lax) end", "o.steps = o.steps + 1",
  "o.last = l",
  "if o.last then l = l + o.last end",
  "for i = 1, o.k do l = pg.record(function() return loss(net(x * i), y):mean() end) l:backward() "
    .. "trainer:step(1, lax) end",
  "v:add_(w:mean() * 0.01)", "o.mean = o.mean * 0.9 + w * 0.1", "net:zero_grad()", "w.grad:fill_(0)",
  "local g = pg.grad(function(z) return loss(net(z), y):mean() end)(x) l = g:sum()",
  "if w.grad_req ~= 'null' then w.grad:add_(0.01) end", "if x:size(1) > 2 then l = l * 2 end",
  "l = l + pg.rand(1, {dtype = 'float64'}):sum()",
  "w.grad:add_(pg.full({2, 2}, o.factor, {dtype = 'float64'}))",
  "for _, p in pairs(net:collect_params()) do p:mul_(0.99) end",
  "l = pg.train_mode(function() return dropped(net(x)):sum() end)",
  "l = pg.record(function() return loss(normed(net(x)), y):mean() end) l:backward()",
}

function make_step.new(random)
  local function pick(list) return list[random(#list)] end
  local script = {statements = {kinds[random(7)]}, events = {}, way = "jit", result = "return l", patient = true,
    seed = random(1000),
    optimizers = {pick(optimizers), pick(optimizers)}, activation = pick(activations), single = random(3) == 1}
  for _ = 1, random(4) do script.statements[#script.statements + 1] = pick(kinds) end
  if random(3) > 1 then script.statements[#script.statements + 1] = "trainer:step(1, lax)" end
  for _ = 1, 4 + random(5) do
    if random(3) > 1 then script.events[#script.events + 1] = {mutate = random(#mutations), r = random(4)} end
    for _ = 1, random(3) do script.events[#script.events + 1] = {call = "inputs()"} end
  end
  return script
end

local prelude = [[
local pg = ...
local nn = pg.nn
local net = nn.HybridSequential{nn.Dense(2, {in_units = 2, activation = "%s"}), nn.Dense(2,
  {in_units = 2})}:initialize()
local other = nn.HybridSequential{nn.Dense(2, {in_units = 2})}:initialize()
local normed, dropped = nn.BatchNorm{in_channels = 2}:initialize(), nn.Dropout(0.5)
net:cast("float64") other:cast("float64") normed:cast("float64")
local w, bias, v = net[1].weight, net[1].bias, other[1].weight
local loss = pg.loss.L2Loss()
local Own = pg.optim.Optimizer:extend("Own")
Own.states = {"mean"}
local function of(v, i) if type(v) == "table" then return v[i] end return v end
function Own:update(group)
  for i, p in ipairs(group.weights) do
    group.mean[i]:mul_(0.5)
    group.mean[i]:add_(group.grads[i] * group.rescale_grad)
    p:sub_((group.mean[i] + p * of(group.wd, i)) * of(group.lr, i) / of(group.t, i))
  end
end
local trainer = pg.optim.Trainer(net:collect_params(), %s)
local second = pg.optim.Trainer(%s:collect_params(), %s)
local o = {flag = true, rate = 2, phase = 0, limit = 0.5, scale = 1, which = 1, f = pg.tanh, k = 2, steps = 0,
  batch = 2, factor = 0.1, mean = pg.zeros(2, 2, {dtype = "float64"})}
local rows, lax = 2, {ignore_stale_grad = true}
local function inputs()
  local x = pg.range(1, rows * 2, {dtype = "float64"}):reshape{rows, 2} * 0.1
  return x, x * 2 - 0.3
end
local run
]]

--- make_step.source(script) -> the text of a chunk, like make_script.source.
function make_step.source(script)
  local parts = {prelude:format(script.activation, script.optimizers[1], script.single and "net" or "other",
    script.optimizers[2]),
    "run = function(x, y)", "  local l = x:sum()"}
  for _, s in ipairs(script.statements) do parts[#parts + 1] = "  do " .. s .. " end" end
  parts[#parts + 1] = "  " .. script.result .. "\nend\nreturn run, {"
  for _, e in ipairs(script.events) do
    if e.mutate then parts[#parts + 1] = ("  function() local r = %d; %s end,"):format(e.r, mutations[e.mutate])
    else parts[#parts + 1] = ("  function(run) return run(%s) end,"):format(e.call) end
  end
  parts[#parts + 1] = "}, function() local list, last = {}, net[2] for _, p in ipairs{w, bias, last.weight, last.bias, "
    .. "v, other[1].weight} do list[#list + 1] = {p, p.grad} end return {list, o.phase, o.steps, o.mean, o.last} end"
  return table.concat(parts, "\n")
end

--- make_step.describe(script) -> the random parts of the script, as text.
function make_step.describe(script)
  local parts = {"step(x, y): " .. script.activation .. "; trainer " .. script.optimizers[1] .. "; second, of "
    .. (script.single and "net" or "other") .. ": " .. script.optimizers[2]}
  for _, s in ipairs(script.statements) do parts[#parts + 1] = "  " .. s end
  for _, e in ipairs(script.events) do
    parts[#parts + 1] = e.mutate and ("mutation: %s  (r = %d)"):format(mutations[e.mutate], e.r) or "step"
  end
  return table.concat(parts, "\n    ")
end

return make_step
