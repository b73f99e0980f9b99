-- Each optimizer equals a loop over plain Lua numbers in float64, eagerly and jitted, and survives a file bit for bit.
local t = require "tests.support"
local json = require "tests.json"
local pg = require "perigee"
local optim = pg.optim

t.skip_in("gcstress", "trajectories do not depend on collections")

-- References: step(w, g, s, o, n) changes the list w at update n; g is the raw gradient, s the state, o the options.
local function clip(x, bound) return bound and math.max(-bound, math.min(bound, x)) or x end
local function sign(x) return x > 0 and 1 or x < 0 and -1 or 0 end

-- Makes a reference of f(w, g, s, o, n) -> the new w for one element. first: wd * w is added before clipping.
local function each(f, first)
  return function(w, g, s, o, n)
    for i = 1, #w do
      s[i] = s[i] or setmetatable({}, {__index = function() return 0 end})
      local x = g[i] * o.rescale_grad + (first and o.wd * w[i] or 0)
      w[i] = f(w[i], clip(x, o.clip_gradient), s[i], o, n)
    end
  end
end

local function squares(x)
  local sum = 0
  for _, v in ipairs(x) do sum = sum + v * v end
  return sum
end

local function prepared(g, o)
  local list = {}
  for i, x in ipairs(g) do list[i] = clip(x * o.rescale_grad, o.clip_gradient) end
  return list
end

local references = {
  adagrad = each(function(w, g, s, o)
    s.h = s.h + g * g
    return w - o.lr * (g / math.sqrt(s.h + o.eps) + o.wd * w)
  end),
  adadelta = each(function(w, g, s, o)
    s.v = o.rho * s.v + (1 - o.rho) * g * g
    local d = math.sqrt(s.d + o.epsilon) / math.sqrt(s.v + o.epsilon) * g
    s.d = o.rho * s.d + (1 - o.rho) * d * d
    return w - o.lr * d - o.lr * o.wd * w
  end),
  rmsprop = each(function(w, g, s, o)
    s.n = o.gamma1 * s.n + (1 - o.gamma1) * g * g
    if o.centered then
      s.g = o.gamma1 * s.g + (1 - o.gamma1) * g
      s.d = o.gamma2 * s.d - o.lr * g / math.sqrt(s.n - s.g * s.g + o.epsilon)
      return clip(w + s.d, o.clip_weights)
    end
    return clip(w - o.lr * g / math.sqrt(s.n + o.epsilon), o.clip_weights)
  end, true),
  adamax = each(function(w, g, s, o, n)
    s.m, s.u = o.beta1 * s.m + (1 - o.beta1) * g, math.max(o.beta2 * s.u, math.abs(g))
    return w - o.lr / (1 - o.beta1 ^ n) * s.m / (s.u + o.epsilon)
  end, true),
  nadam = each(function(w, g, s, o, n)
    local now = o.beta1 * (1 - 0.5 * 0.96 ^ (n * o.schedule_decay))
    local after = o.beta1 * (1 - 0.5 * 0.96 ^ ((n + 1) * o.schedule_decay))
    s.p = (n == 1 and 1 or s.p) * now
    s.m, s.v = o.beta1 * s.m + (1 - o.beta1) * g, o.beta2 * s.v + (1 - o.beta2) * g * g
    local bar = (1 - now) * g / (1 - s.p) + after * s.m / (1 - s.p * after)
    return w - o.lr * bar / (math.sqrt(s.v / (1 - o.beta2 ^ n)) + o.epsilon)
  end, true),
  ftrl = each(function(w, g, s, o)
    s.z = s.z + g - (math.sqrt(s.n + g * g) - math.sqrt(s.n)) * w / o.lr
    s.n = s.n + g * g
    if math.abs(s.z) <= o.lamda1 then return 0 end
    return (sign(s.z) * o.lamda1 - s.z) / ((o.beta + math.sqrt(s.n)) / o.lr + o.wd)
  end),
  ftml = each(function(w, g, s, o, n)
    s.v = o.beta2 * s.v + (1 - o.beta2) * g * g
    local d = (1 - o.beta1 ^ n) / o.lr * (math.sqrt(s.v / (1 - o.beta2 ^ n)) + o.epsilon)
    s.z = o.beta1 * s.z + (1 - o.beta1) * g - (d - o.beta1 * s.d) * w
    s.d = d
    return -s.z / d
  end, true),
  signum = each(function(w, g, s, o)
    if o.momentum == 0 then return (1 - o.lr * o.wd) * w - o.lr * sign(g) end
    s.m = o.momentum * s.m - (1 - o.momentum) * (o.wd * w + g)
    return (1 - o.lr * o.wd_lh) * w + o.lr * sign(s.m)
  end),
  dcasgd = each(function(w, g, s, o, n)
    local before = n == 1 and w or s.before
    s.m = o.momentum * s.m - o.lr * (g + o.wd * w + o.lamda * g * g * (w - before))
    s.before = w
    return w + s.m
  end),
  group_adagrad = function(w, g, s, o)
    g = prepared(g, o)
    local rows = o.rows
    local columns = #w / rows
    for r = 1, rows do
      local sum = 0
      for c = 1, columns do sum = sum + g[(r - 1) * columns + c] ^ 2 end
      s[r] = (s[r] or 0) + sum / columns
      for c = 1, columns do
        local i = (r - 1) * columns + c
        w[i] = w[i] - o.lr * g[i] / math.sqrt(s[r] + o.eps)
      end
    end
  end,
  lars = function(w, g, s, o)
    g = prepared(g, o)
    local a, b, scale = math.sqrt(squares(w)), math.sqrt(squares(g)), 1
    if a > 0 and b > 0 and not o.path:find("bias$") then scale = o.eta * a / (b + o.wd * a + o.eps) end
    local momentum = o.momentum * (o.momentum_correction and o.lr / (s.lr or o.lr) or 1)
    s.lr = o.lr
    for i = 1, #w do
      s[i] = momentum * (s[i] or 0) - o.lr * scale * (g[i] + o.wd * w[i])
      w[i] = w[i] + s[i]
    end
  end,
  lamb = function(w, g, s, o, n)
    g = prepared(g, o)
    local step = {}
    for i = 1, #w do
      local own = s[i] or {m = 0, v = 0}
      s[i] = own
      own.m, own.v = o.beta1 * own.m + (1 - o.beta1) * g[i], o.beta2 * own.v + (1 - o.beta2) * g[i] * g[i]
      local m, v = own.m, own.v
      if o.bias_correction then m, v = m / (1 - o.beta1 ^ n), v / (1 - o.beta2 ^ n) end
      step[i] = m / (math.sqrt(v) + o.epsilon) + o.wd * w[i]
    end
    local a, b = math.sqrt(squares(w)), math.sqrt(squares(step))
    a = math.min(math.max(a, o.lower_bound or 0), o.upper_bound or math.huge)
    local ratio = (a == 0 or b == 0) and 1 or a / b
    for i = 1, #w do w[i] = w[i] - o.lr * ratio * step[i] end
  end,
  test = function(w, g, _, o)
    g = prepared(g, o)
    for i = 1, #w do w[i] = w[i] + g[i] end
  end,
  lbsgd = function(w, g, s, o, n)
    g = prepared(g, o)
    for i = 1, #w do s[i] = (s[i] or 0) + g[i] end
    n = n + o.begin_epoch * o.updates_per_epoch
    if n % o.batch_scale ~= 0 then return end
    local mean, total, factor = {}, o.warmup_epochs * o.updates_per_epoch
    for i = 1, #w do mean[i], s[i] = s[i] / o.batch_scale, 0 end
    local shapes = {linear = function(x) return x end, power2 = function(x) return x * x end, sqrt = math.sqrt}
    if o.warmup_strategy == "lars" then
      factor = math.min(math.max(math.sqrt(squares(w) / (squares(mean) + o.wd * squares(w) + 1e-18)), 0.01), 100)
    elseif n >= total then factor = o.batch_scale
    else factor = 1 + (o.batch_scale - 1) * shapes[o.warmup_strategy](n / total) end
    for i = 1, #w do
      local key = "m" .. i
      s[key] = o.momentum * (s[key] or 0) - o.lr * factor * (mean[i] + o.wd * w[i])
      w[i] = w[i] + s[key]
    end
  end,
}

-- The options of a case, with the defaults of the class.
local cases = {
  {"adagrad"}, {"adagrad", {eps = 1e-3, wd = 0.1, clip_gradient = 0.5, rescale_grad = 1.5}},
  {"group_adagrad"}, {"group_adagrad", {eps = 1e-2, clip_gradient = 0.5}},
  {"adadelta"}, {"adadelta", {learning_rate = 0.7, rho = 0.8, wd = 0.1, clip_gradient = 0.5}},
  {"rmsprop"}, {"rmsprop", {wd = 0.2, clip_gradient = 0.4, clip_weights = 0.9, gamma1 = 0.7}},
  {"rmsprop", {centered = true, learning_rate = 0.01, gamma2 = 0.8, wd = 0.1, clip_weights = 1.5}},
  {"adamax"}, {"adamax", {learning_rate = 0.05, beta1 = 0.8, beta2 = 0.9, wd = 0.1, clip_gradient = 0.5}},
  {"nadam"}, {"nadam", {learning_rate = 0.05, beta1 = 0.8, schedule_decay = 0.1, wd = 0.1, clip_gradient = 0.5}},
  {"ftrl"}, {"ftrl", {lamda1 = 0.9, beta = 0.5, wd = 0.1, clip_gradient = 0.7}},
  {"ftml"}, {"ftml", {learning_rate = 0.1, beta1 = 0.5, wd = 0.1, clip_gradient = 0.5}},
  {"signum"}, {"signum", {wd = 0.1, wd_lh = 0.2, momentum = 0.5, clip_gradient = 0.5}}, {"signum", {momentum = 0, wd = 0.1}},
  {"dcasgd"}, {"dcasgd", {momentum = 0.9, lamda = 0.5, wd = 0.1, clip_gradient = 0.5}},
  {"lars"}, {"lars", {learning_rate = 0.5, momentum = 0.9, eta = 0.1, eps = 1e-3, wd = 0.1, clip_gradient = 0.5}},
  {"lars", {momentum = 0.9, momentum_correction = false, learning_rate = 1}},
  {"lamb"}, {"lamb", {learning_rate = 0.05, wd = 0.1, lower_bound = 1, upper_bound = 2, clip_gradient = 0.5}},
  {"lamb", {bias_correction = false, beta1 = 0.5}}, {"test"},
  {"lbsgd"}, {"lbsgd", {momentum = 0.9, batch_scale = 3, updates_per_epoch = 4, warmup_epochs = 2, wd = 0.1}},
  {"lbsgd", {batch_scale = 2, updates_per_epoch = 3, begin_epoch = 1, warmup_strategy = "power2", clip_gradient = 0.5}},
  {"lbsgd", {batch_scale = 2, warmup_strategy = "sqrt", warmup_epochs = 1}},
  {"lbsgd", {batch_scale = 2, momentum = 0.5, warmup_strategy = "lars", wd = 0.1, learning_rate = 0.05}},
}

local names = {"weight", "bias"}
local starts = {weight = {{1, -2, 0.5}, {0.1, 0, -1.5}}, bias = {0.3, -0.2}}

local function gradient_at(name, size, n)
  local list = {}
  for i = 1, size do list[i] = math.sin(1.7 * n + 2.3 * i + #name) * (n % 4 == 0 and 0.1 or 1) end
  return list
end

local function make(name, options, dtype)
  local params = {}
  for _, key in ipairs(names) do params[key] = pg.param(pg.tensor(starts[key], {dtype = dtype})) end
  params.bias.lr_mult, params.bias.wd_mult = 0.5, 2
  return params, optim.Trainer(params, name, options)
end

-- Returns step(n), which gives each parameter the gradient of update n.
local function stepper(params, trainer, jit)
  local step = jit(function(a, b)
    pg.record(function() return (params.weight * a):sum() + (params.bias * b):sum() end):backward()
    trainer:step(1)
  end)
  local dtype = params.weight.dtype
  return function(n)
    step(pg.tensor(gradient_at("weight", 6, n), {dtype = dtype}):reshape{2, 3}, pg.tensor(gradient_at("bias", 2, n), {dtype = dtype}))
  end
end

local function same(f) return f end
local steps = 14

local function rate_at(optimizer, n) return optimizer.learning_rate * (n > 8 and 0.5 or 1) end

-- The parameters after all steps of a reference; the rate falls at step 9.
local function expected(name, optimizer)
  local out = {}
  for _, key in ipairs(names) do
    local w = pg.tensor(starts[key], {dtype = "float64"}):reshape{-1}:totable()
    local mult, s = key == "bias" and {0.5, 2} or {1, 1}, {}
    local o = setmetatable({path = key, rows = 2, wd = optimizer.wd * mult[2]}, {__index = optimizer})
    for n = 1, steps do
      o.lr = rate_at(optimizer, n) * mult[1]
      references[name](w, gradient_at(key, #w, n), s, o, n)
    end
    out[key] = w
  end
  return out
end

local function trained(name, options, dtype, jit)
  local params, trainer = make(name, options, dtype)
  local step, rate = stepper(params, trainer, jit), trainer.optimizer.learning_rate
  for n = 1, steps do
    trainer:set_learning_rate(rate * (n > 8 and 0.5 or 1))
    step(n)
  end
  return params
end

for i, case in ipairs(cases) do
  local name, options = case[1], case[2]
  t.test(name .. (options and " with the options of case " .. i or "") .. " equals a loop of numbers", function()
    local found = expected(name, optim.create(name, options))
    for way, jit in pairs{eager = same, jit = pg.jit} do
      local params = trained(name, options, "float64", jit)
      for _, key in ipairs(names) do
        t.close(params[key]:reshape{-1}, pg.tensor(found[key], {dtype = "float64"}), {rtol = 1e-11, atol = 1e-12, what = way .. " " .. key})
      end
      local single = trained(name, options, "float32", jit)
      for _, key in ipairs(names) do
        t.close(single[key]:reshape{-1}, pg.tensor(found[key]), {rtol = 1e-4, atol = 2e-5, what = way .. " float32 " .. key})
      end
    end
  end)
end

t.test("SGLD adds normal noise of variance lr to half a step", function()
  for way, jit in pairs{eager = same, jit = pg.jit} do
    local params, trainer = make("sgld", {learning_rate = 0.04, wd = 0.5}, "float64")
    pg.manual_seed(5)
    local step = stepper(params, trainer, jit)
    step(1)
    step(2)
    pg.manual_seed(5)
    local order = {"bias", "weight"}  -- a trainer takes names in sorted order
    local values = {}
    for _, key in ipairs(names) do values[key] = pg.tensor(starts[key], {dtype = "float64"}) end
    for n = 1, 2 do
      for _, key in ipairs(order) do
        local w, lr, wd = values[key], 0.04 * (key == "bias" and 0.5 or 1), 0.5 * (key == "bias" and 2 or 1)
        local g = pg.tensor(gradient_at(key, w:numel(), n), {dtype = "float64"}):reshape(w.shape)
        values[key] = w - (g + w * wd) * (lr / 2) + pg.randn_like(w) * math.sqrt(lr)
      end
    end
    for _, key in ipairs(names) do t.close(params[key], values[key], {rtol = 1e-12, what = way .. " " .. key}) end
  end
end)

local all = {"sgd", "nag", "adam", "adamw", "sgld", "adagrad", "adadelta", "rmsprop", "adamax", "nadam", "ftrl", "ftml", "signum",
             "dcasgd", "group_adagrad", "lars", "lamb", "lbsgd", "test"}
local special = {
  rmsprop = {centered = true}, sgd = {momentum = 0.9}, nag = {momentum = 0.9}, lbsgd = {batch_scale = 2, momentum = 0.5},
  lars = {momentum = 0.9},
}

for _, name in ipairs(all) do
  t.test("the states of " .. name .. " survive a file bit for bit", function()
    local values, states = t.tmp("v.safetensors"), t.tmp("s.safetensors")
    for _, jit in ipairs{same, pg.jit} do
      local params, trainer = make(name, special[name], "float32")
      local step = stepper(params, trainer, jit)
      for n = 1, 3 do step(n) end
      pg.save(values, {weight = params.weight:detach(), bias = params.bias:detach()})
      trainer:save_states(states)
      pg.manual_seed(9)
      for n = 4, 7 do step(n) end
      local again, other = make(name, special[name], "float32")
      for key, value in pairs(pg.load(values)) do again[key]:set_data(value:to(again[key].device)) end
      other:load_states(states)
      pg.manual_seed(9)
      local resumed = stepper(again, other, jit)
      for n = 4, 7 do resumed(n) end
      for _, key in ipairs(names) do t.check(pg.equal(params[key], again[key]), key) end
    end
  end)
end

t.test("an exported step of a rule equals the script's", function()
  for _, name in ipairs{"nadam", "lamb", "rmsprop", "lbsgd"} do
    local w = pg.param(pg.tensor{{1, -2}, {0.5, 3}})
    local trainer = optim.Trainer({w = w}, name, special[name])
    local step = pg.jit(function(x)
      local l = pg.record(function() return (w * w * x):sum() end)
      l:backward()
      trainer:step(1)
      return l
    end)
    for n = 1, 3 do step(pg.full({2, 2}, n)) end
    local json_path, tensors = step:export(t.tmp("rule"))
    local model = pg.nn.SymbolBlock.imports(json_path, {"data"}, tensors)
    for n = 4, 7 do t.check(pg.equal(step(pg.full({2, 2}, n)), model(pg.full({2, 2}, n))), name .. " step " .. n) end
  end
end)

t.test("states of weights without gradients become 0, not subnormal", function()
  local settled = 0
  for _, name in ipairs(all) do
    for way, jit in pairs{eager = same, jit = pg.jit} do
      for dtype, smallest in pairs{float32 = 2 ^ -126, float64 = 2 ^ -1022} do
        local w, path = pg.param(pg.ones(40, {dtype = dtype})), t.tmp("states.safetensors")
        local trainer = optim.Trainer({w = w}, name, {learning_rate = 0.5})
        local step = jit(function(g)
          pg.record(function() return (w * g):sum() end):backward()
          trainer:step(1)
        end)
        step(pg.full({40}, smallest * 2 ^ 20, {dtype = dtype}))
        for _ = 1, 250 do step(pg.zeros(40, {dtype = dtype})) end
        trainer:save_states(path)
        for key, state in pairs(pg.load(path)) do
          if key:match("%.w$") then
            local size = state:abs()
            t.check(pg.logical_or(size:eq(0), size:ge(smallest)):all():item(), ("%s %s %s %s"):format(name, way, dtype, key))
            settled = settled + (size:eq(0):all():item() and 1 or 0)
          end
        end
      end
    end
  end
  t.check(settled >= 24, settled)
end)

t.test("rules compute in float32 for float16 weights", function()
  for _, jit in ipairs{same, pg.jit} do
    local params = trained("rmsprop", {learning_rate = 0.05}, "float16", jit)
    local single = trained("rmsprop", {learning_rate = 0.05}, "float32", jit)
    for _, key in ipairs(names) do
      t.equal(params[key].dtype, "float16")
      t.close(params[key]:to("float32"), single[key], {rtol = 1e-2, atol = 1e-2})
    end
  end
end)

t.test("a rate of 0 changes no weight, and training goes on", function()
  for _, name in ipairs(all) do
    if name ~= "sgld" and name ~= "test" then
      for way, jit in pairs{eager = same, jit = pg.jit} do
        local params, trainer = make(name, nil, "float32")
        local step = stepper(params, trainer, jit)
        for n = 1, 2 do step(n) end
        local before, rate = params.weight:detach():clone(), trainer.optimizer.learning_rate
        trainer:set_learning_rate(0)
        step(3)
        t.close(params.weight, before, {rtol = 1e-6, what = name .. " " .. way})
        trainer:set_learning_rate(rate)
        step(4)
        t.check(params.weight:isfinite():all():item() and not params.weight:allclose(before), name .. " " .. way)
      end
    end
  end
end)

t.test("a script's subclass may have other options and a rule", function()
  local Noisy = optim.RMSProp:extend("Noisy")
  Noisy.options = {gamma1 = 0.5, shift = -1}
  function Noisy:rule(w, g, state, h) return optim.RMSProp.rule(self, w, g + self.shift, state, h) end
  t.error_contains(function() Noisy{gamma1 = 2} end, "Noisy: bad argument 'gamma1'")
  t.error_contains(function() Noisy{rho = 2} end, "rho")
end)

t.test("the state of a group or schedule is small", function()
  local w = pg.param(pg.ones(3, 4))
  for name, shapes in pairs{group_adagrad = {["history.1"] = {3, 1}}, nadam = {["schedule.1"] = {}, ["mean.1"] = {3, 4}}} do
    local trainer, path = optim.Trainer({w}, name), t.tmp("states.safetensors")
    pg.record(function() return w:sum() end):backward()
    trainer:step(1)
    trainer:save_states(path)
    local tensors = pg.load(path)
    for key, shape in pairs(shapes) do t.equal(tensors[key].shape, shape) end
  end
end)

t.test("wrong options of rules", function()
  local function fails(text, name, options) t.error_contains(function() optim.create(name, options) end, text) end
  fails("RMSProp: bad argument 'gamma1'", "rmsprop", {gamma1 = 1})
  fails("RMSProp: bad argument 'centered' (expected a boolean", "rmsprop", {centered = 1})
  fails("RMSProp: bad argument 'clip_weights' (expected a number >= 0", "rmsprop", {clip_weights = -1})
  fails("Nadam: bad argument 'beta2'", "nadam", {beta2 = 1.5})
  fails("AdaGrad: bad argument 'ep'", "adagrad", {ep = 1})
  fails("GroupAdaGrad: bad argument 'wd'", "group_adagrad", {wd = 0.1})
  fails("LAMB: bad argument 'upper_bound'", "lamb", {lower_bound = 2, upper_bound = 1})
  fails("LBSGD: bad argument 'warmup_strategy'", "lbsgd", {warmup_strategy = "slow"})
  fails("LBSGD: bad argument 'batch_scale'", "lbsgd", {batch_scale = 1.5})
  fails("Signum: bad argument 'momentum'", "signum", {momentum = 1})
  fails("unknown optimizer 'rmspropp'", "rmspropp")
  t.error_contains(function() return optim.RMSProp().ruel end, "RMSProp: no field or method 'ruel'")
  local Empty = optim.Optimizer:extend("Empty")
  local w = pg.param(pg.ones(1))
  local trainer = optim.Trainer({w}, Empty())
  pg.record(function() return w:sum() end):backward()
  t.error_contains(function() trainer:step(1) end, "Empty: the class has no update (define Empty:rule")
  function Empty:rule() end
  t.error_contains(function() trainer:step(1) end, "Empty: the rule returned nil")
end)

-- Follows a trajectory of the fixtures with given gradients.
local function follow(case, values, keys, name, options)
  local weights = {}
  for i, key in ipairs(keys.params) do weights[i] = pg.param(values[key]:to(case.dtype)) end
  local trainer = optim.Trainer(weights, name, options)
  for n = 1, case.steps do
    for i, w in ipairs(weights) do
      pg.record(function() return (w * values[keys.grads[i]][n]:to(case.dtype)):sum() end):backward()
    end
    trainer:step(1)
    for i, w in ipairs(weights) do
      t.close(w, values[keys.trajectory[i]][n], {rtol = case.rtol, atol = case.atol, what = case.id .. " step " .. n})
    end
  end
end

t.test("MXNet's trajectories", function()
  local manifest = json.decode(t.read(t.shared("data/fixtures/optim/mxnet.json")))
  local values, ran = pg.load(t.shared("data/fixtures/optim/mxnet.safetensors")), 0
  for _, case in ipairs(manifest.cases) do
    if references[case.optimizer] then
      follow(case, values, case, case.optimizer, case.args)
      ran = ran + 1
    end
  end
  t.check(ran >= 7, "cases run: " .. ran)
end)

-- torch adds epsilon to the root: without it the rules are equal.
local torch = {
  Adagrad = {"adagrad", {eps = 1e-20}}, Adadelta = {"adadelta", {rho = 0.9, epsilon = 1e-6}}, NAdam = {"nadam", {}},
  RMSprop = {"rmsprop", {gamma1 = 0.99, epsilon = 1e-16}},
}

t.test("torch's trajectories, where the rules are the same", function()
  local manifest = json.decode(t.read(t.shared("data/fixtures/optim/torch.json")))
  local values, ran = pg.load(t.shared("data/fixtures/optim/torch.safetensors")), 0
  for _, case in ipairs(manifest.cases) do
    local row = torch[case.optimizer]
    if row then
      local options = {learning_rate = case.args.lr}
      for key, value in pairs(row[2]) do options[key] = value end
      if case.optimizer == "RMSprop" then case.rtol, case.atol = math.max(case.rtol, 1e-6), math.max(case.atol, 1e-7) end
      follow(case, values, case.fixed, row[1], options)
      ran = ran + 1
    end
  end
  t.check(ran >= 8, "cases run: " .. ran)
end)

-- A program takes for granted that no weight decays and that gradients are not scaled.
t.test("a jitted step follows decay and scale that begin and end", function()
  local function train(jit)
    local w, v = pg.tensor{1, -2, 3}:attach_grad(), pg.tensor{0.5, 1}:attach_grad()
    local optimizer = optim.LAMB{learning_rate = 0.1}
    local trainer = optim.Trainer({w, v}, optimizer)
    local step = jit(function()
      pg.record(function() return (w * w):sum() + (v * v * v):sum() end):backward()
      trainer:step(1)
    end)
    for i = 1, 8 do
      optimizer.wd = (i == 3 or i == 4) and 0.5 or 0
      optimizer.rescale_grad = (i == 6 or i == 7) and 0.25 or 1
      step()
    end
    return w, v
  end
  local w, v = train(function(f) return f end)
  local jitted_w, jitted_v = train(pg.jit)
  t.close(jitted_w, w, {rtol = 1e-5})
  t.close(jitted_v, v, {rtol = 1e-5})
end)
