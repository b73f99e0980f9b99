-- Averages of parameters, accumulated gradients, clipping by value, and float16 weights with a residual.
local t = require "tests.support"
local same = require "tests.plain_and_graph"
local pg = require "perigee"
local optim, nn = pg.optim, pg.nn

t.skip_in("gcstress", "averages do not depend on collections")

-- Trains one weight by SGD for some steps. Returns its values and what average(params) holds.
local function train(jit, make, steps)
  local w = pg.param(pg.tensor({1, -2}, {dtype = "float64"}))
  local trainer, average = optim.Trainer({w = w}, "sgd", {learning_rate = 0.1}), make{w = w}
  local step = jit(function()
    pg.record(function() return (w * w):sum() end):backward()
    trainer:step(1)
    average:update()
  end)
  local values = {}
  for n = 1, steps do
    step()
    values[n] = w:totable()
  end
  return average, values, w
end

t.test("EMA and SWA equal loops of numbers, jitted too", function()
  for _, jit in ipairs{function(f) return f end, pg.jit} do
    local ema, values = train(jit, function(p) return optim.EMA(p, {decay = 0.7}) end, 6)
    local expected = {1, -2}
    for _, v in ipairs(values) do for i = 1, 2 do expected[i] = 0.7 * expected[i] + 0.3 * v[i] end end
    t.close(ema.averages.w, pg.tensor(expected, {dtype = "float64"}), {rtol = 1e-12})
    local swa
    swa, values = train(jit, optim.SWA, 6)
    expected = {0, 0}
    for _, v in ipairs(values) do for i = 1, 2 do expected[i] = expected[i] + v[i] / 6 end end
    t.close(swa.averages.w, pg.tensor(expected, {dtype = "float64"}), {rtol = 1e-12})
  end
end)

t.test("swap and apply give the parameters back bit for bit", function()
  local ema, _, w = train(pg.jit, optim.EMA, 3)
  local own, average = w:detach():clone(), ema.averages.w:clone()
  local seen, more = ema:apply(function() return w:detach():clone(), 7 end)
  t.check(pg.equal(seen, average) and more == 7)
  t.check(pg.equal(w, own) and pg.equal(ema.averages.w, average))
  t.error_contains(function() ema:apply(function() error("stop") end) end, "stop")
  t.check(pg.equal(w, own) and pg.equal(ema.averages.w, average))
  ema:swap()
  t.check(pg.equal(w, average) and pg.equal(ema.averages.w, own))
end)

t.test("a hybridized net runs with the averages", function()
  same(function(jit, hybridize)
    local net = nn.HybridSequential{nn.Dense(3, {in_units = 2}), nn.BatchNorm{in_channels = 3}}
    net:initialize(pg.init.Constant(0.5))
    hybridize(net)
    local trainer, ema = optim.Trainer(net, "lamb", {learning_rate = 0.1}), optim.EMA(net, {decay = 0.5})
    local step = jit(function(x)
      pg.record(function() return (net(x) * x:sum(2, true)):sum() end):backward()
      trainer:step(4)
      ema:update()
    end)
    for n = 1, 3 do step(pg.randn(4, 2) * n) end
    local x = pg.randn(4, 2)
    return {net(x), ema:apply(function() return net(x) end), net(x)}
  end, {rtol = 1e-4, atol = 1e-5})
end)

t.test("averages survive a file bit for bit", function()
  for _, class in ipairs{optim.EMA, optim.SWA} do
    local path, values = t.tmp("average.safetensors"), t.tmp("w.safetensors")
    local average, _, w = train(pg.jit, class, 3)
    average:save_states(path)
    pg.save(values, {w = w:detach()})
    local v = pg.param(pg.zeros({2}, {dtype = "float64"}))
    local again = class{w = v}
    v:set_data(pg.load(values).w:to(v.device))
    again:load_states(path)
    for n = 1, 3 do
      for _, p in ipairs{w, v} do p:mul_(1 + n / 10) end
      average:update()
      again:update()
    end
    t.check(pg.equal(average.averages.w, again.averages.w))
    t.error_contains(function() class{x = w}:load_states(path) end, "lacks 'x'")
    t.error_contains(function() class{w = pg.param(pg.zeros(3))}:load_states(path) end, "float64")
  end
end)

t.test("averages and states of rules survive pg.scope", function()
  local net, trainer, swa
  pg.scope(function()
    net = nn.Dense(1, {in_units = 2}):initialize("ones")
    trainer, swa = optim.Trainer(net, "nadam", {learning_rate = 0.5}), optim.SWA(net)
  end)
  local sum = pg.zeros(1, 2)
  for _ = 1, 3 do
    pg.scope(function()
      pg.record(function() return net(pg.ones(1, 2)) end):backward()
      trainer:step(1)
      swa:update()
    end)
    sum = sum + net.weight:detach()
  end
  t.close(swa.averages.weight, sum / 3, {rtol = 1e-6})
  t.check(net.weight:lt(0.5):all():item())
end)

t.test("an exported step updates averages", function()
  local w = pg.param(pg.tensor{1, -2})
  local trainer, ema, swa = optim.Trainer({w = w}, "rmsprop", {learning_rate = 0.1}), optim.EMA({w = w}, {decay = 0.5}), optim.SWA{w = w}
  local step = pg.jit(function(x)
    pg.record(function() return (w * w * x):sum() end):backward()
    trainer:step(1)
    ema:update()
    swa:update()
    return ema.averages.w + 0, swa.averages.w + 0
  end)
  for n = 1, 2 do step(pg.full({2}, n)) end
  local json, tensors = step:export(t.tmp("average"))
  local model = nn.SymbolBlock.imports(json, {"data"}, tensors)
  for n = 3, 5 do
    local expected, got = {step(pg.full({2}, n))}, {model(pg.full({2}, n))}
    for i = 1, 2 do t.check(pg.equal(expected[i], got[i]), "result " .. i .. " of step " .. n) end
  end
end)

t.test("wrong arguments of averages", function()
  t.error_contains(function() optim.EMA({}, {decay = 2}) end, "EMA: bad argument 'decay'")
  t.error_contains(function() optim.SWA({}, {decay = 0.5}) end, "SWA: bad argument 'decay'")
  t.error_contains(function() optim.EMA(3) end, "EMA: bad argument 'params'")
  t.error_contains(function() optim.EMA(nn.Dense(2):initialize()) end, "has no value")
  t.error_contains(function() optim.EMA.update() end, "update")
  t.error_contains(function() optim.EMA({pg.param(pg.ones(1))}):apply(3) end, "apply: bad argument 'f'")
end)

t.test("grad_req add with a step every n calls equals one step with the whole batch", function()
  local data = pg.range(1, 12):to("float32"):reshape{6, 2} / 10
  for _, name in ipairs{"adam", "adagrad", "lamb", "ftml"} do
    local found = {}
    for _, parts in ipairs{1, 3} do
      local net = nn.Dense(1, {in_units = 2}):initialize("ones")
      local params = net:collect_params()
      if parts > 1 then params:set("grad_req", "add") end
      local trainer = optim.Trainer(params, name, {learning_rate = 0.1})
      local backward = pg.jit(function(x) pg.record(function() return net(x):square():sum() end):backward() end)
      for _ = 1, 4 do
        for _, x in ipairs(data:split(6 / parts)) do backward(x) end
        trainer:step(6)
        if parts > 1 then params:zero_grad() end
      end
      found[#found + 1] = net.weight:detach()
    end
    t.close(found[2], found[1], {rtol = 1e-5, what = name})
    t.check(not found[1]:allclose(pg.ones(1, 2)))
  end
end)

t.test("clip_value limits every element in place, jitted too", function()
  same(function(jit)
    local x, y = pg.tensor{3, -4, 0.5}, pg.tensor({-2, 0}, {dtype = "float64"})
    jit(function() pg.utils.clip_value({x, y}, 1) end)()
    t.equal({x:totable(), y:totable()}, {{1, -1, 0.5}, {-1, 0}})
    return {x, y}
  end)
  t.error_contains(function() pg.utils.clip_value({1}, 1) end, "clip_value: bad argument 'arrays[1]'")
  t.error_contains(function() pg.utils.clip_value({}, -1) end, "max_value")
end)

-- Trains a float16 and a float32 weight with small steps, from the same values.
local function small_steps(jit, name, options, dtype, path)
  local w = pg.param(pg.tensor({1, -2, 4}, {dtype = dtype}))
  local v = pg.param(pg.tensor({1, 2}))
  local trainer = optim.Trainer({w = w, v = v}, name, options)
  local step = jit(function()
    pg.record(function() return w:sum():to("float32") + v:sum() end):backward()
    trainer:step(1)
  end)
  for n = 1, 30 do
    step()
    if path and n == 10 then
      trainer:save_states(path)
      trainer:load_states(path)
    end
  end
  return w, v
end

t.test("multi_precision adds up steps that float16 would round away", function()
  for _, row in ipairs{{"sgd", {momentum = 0.5}}, {"adam", {}}, {"rmsprop", {}}, {"nadam", {}}, {"group_adagrad", {}}} do
    local name, options = row[1], row[2]
    options.multi_precision = true
    for dtype, rate in pairs{float16 = 1e-4, bfloat16 = 1e-3} do
      options.learning_rate = rate
      local exact = small_steps(function(f) return f end, name, options, "float32")
      for way, jit in pairs{eager = function(f) return f end, jit = pg.jit} do
        local w, v = small_steps(jit, name, options, dtype)
        t.equal({w.dtype, v.dtype}, {dtype, "float32"})
        t.close(w:to("float32"), exact, {rtol = 5 * rate, what = name .. " " .. way})
        t.check(pg.equal(small_steps(jit, name, options, dtype, t.tmp("states.safetensors")), w), "from a file")
      end
    end
  end
  local plain = small_steps(function(f) return f end, "sgd", {learning_rate = 1e-4}, "float16")
  t.equal(plain:totable(), {1, -2, 4}, "steps without a residual are lost")
  t.error_contains(function() optim.SGD{multi_precision = 1} end, "SGD: bad argument 'multi_precision' (expected a boolean")
end)

t.test("states of trainers and averages follow a conversion of their parameters", function()
  local list = {{"sgd", {momentum = 0.9}}, {"adam", {}}, {"lamb", {}}, {"rmsprop", {centered = true}}, {"ftml", {}}, {"lars", {momentum = 0.9}}, {"lbsgd", {momentum = 0.5}}}
  for _, case in ipairs(list) do
    -- Returns the weight and its average after six steps, the middle ones with the parameters converted.
    local function run(jit, dtype, other, device)
      local name, options = unpack(case)
      options.learning_rate = 0.05
      local net = nn.Dense(2, {in_units = 3}):initialize("ones"):to(dtype)
      local home = net.weight.device
      local trainer, ema = optim.Trainer(net:collect_params(), name, options), optim.EMA(net, {decay = 0.5})
      local step = jit(function(x)
        pg.record(function() return net(x):square():sum() end):backward()
        trainer:step(1)
        ema:update()
      end)
      local x = pg.tensor({{1, 2, 3}, {-1, 0.5, 1}}, {dtype = dtype})
      local function steps()
        for _ = 1, 2 do step(x) end
        t.check(ema.averages.weight.dtype == net.weight.dtype and net.weight.dtype == x.dtype)
      end
      steps()
      net:to(other, device or home)
      x = x:to(other, device or home)
      steps()
      net:to(dtype, home)  -- a graph for it is there
      x = x:to(dtype, home)
      steps()
      return {net.weight:to("float64", "cpu"), ema.averages.weight:to("float64", "cpu")}
    end
    for _, jit in ipairs{function(f) return f end, pg.jit} do
      local expected = run(jit, "float64", "float64")
      t.close(run(jit, "float32", "float64"), expected, {rtol = 1e-4, what = case[1]})
      t.close(run(jit, "float64", "float32", "cpu"), expected, {rtol = 1e-4, what = case[1]})
    end
  end
end)

t.test("the residual of a float16 weight is used only while the weight is float16", function()
  local function run(jit)
    local w = pg.param(pg.tensor{1, -2})
    local net = nn.block{w = w, forward = function(self, x) return (self.w * x):sum() end}
    local function make() return optim.Trainer(net:collect_params(), "sgd", {learning_rate = 1e-4, multi_precision = true}) end
    local trainer = make()
    local step = jit(function(x)
      pg.record(function() return net(x) end):backward()
      trainer:step(1)
    end)
    local values = {}
    for _, dtype in ipairs{"float32", "float16", "float32", "float16", "float64"} do
      net:to(dtype)
      local path = t.tmp("residual.safetensors")
      trainer:save_states(path)
      make():load_states(path)
      for _ = 1, 2 do step(pg.ones(2, {dtype = dtype})) end
      values[#values + 1] = w:to("float64")
    end
    return values
  end
  t.close(run(pg.jit), run(function(f) return f end))
end)

t.test("states follow a parameter that is initialized anew with another dtype, and the scale of losses its device", function()
  local net = nn.Dense(1, {in_units = 2}):initialize("ones")
  local home = net.weight.device
  local trainer = optim.Trainer(net:collect_params(), "adam", {})
  local scaler = optim.LossScaler(trainer, {init_scale = 4})
  local function step(x)
    scaler:scale(pg.record(function() return net(x):sum() end)):backward()
    trainer:step(1)
  end
  step(pg.ones(1, 2))
  net:initialize("ones", {force = true, dtype = "float64"})
  step(pg.ones(1, 2, {dtype = "float64"}))
  net:to("cpu")
  step(pg.ones(1, 2, {dtype = "float64", device = "cpu"}))
  net:to(home)
  step(pg.ones(1, 2, {dtype = "float64"}))
  t.equal({net.weight.dtype, scaler:value():item()}, {"float64", 4})
end)
