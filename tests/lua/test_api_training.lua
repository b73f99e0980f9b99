-- Sections 8 and 9 of the script API, one test per claim.
local t = require "tests.support"
local pg = require "perigee"
local nn, loss, optim, data = pg.nn, pg.loss, pg.optim, pg.data

local function i64(v) return pg.tensor(v, {dtype = "int64"}) end

-- pg.init

t.test("initializers by type and by name", function()
  local init = pg.init
  local list = {init.Zero(), init.One(), init.Constant(2), init.Uniform(0.1), init.Normal(0.1), init.TruncatedNormal(0, 0.1),
                init.Orthogonal(), init.Xavier(), init.MSRAPrelu(), init.Mixed({".*"}, {init.One()}),
                "zeros", "ones", "uniform", "normal", "xavier", "orthogonal", "msra_prelu", "truncated_normal", "Xavier", "Zero"}
  for i, rule in ipairs(list) do
    local d = nn.Dense(4, {in_units = 4})
    local ok, e = pcall(d.initialize, d, rule)
    t.check(ok, i .. ": " .. tostring(e))
  end
  local d = nn.Dense(2, {in_units = 2})
  d:initialize(init.Xavier{rnd_type = "gaussian", factor_type = "in", magnitude = 2})
  d:initialize(init.Load({weight = pg.ones(2, 2), bias = pg.ones(2)}), {force = true})
  t.equal(d.weight, pg.ones(2, 2))
  local up = nn.Conv2DTranspose(1, 4, {strides = 2, padding = 1, in_channels = 1, weight_initializer = init.Bilinear()})
  up:initialize()
  t.close(up.weight:sum(), pg.tensor(4))
  t.check(init.LSTMBias(1) ~= nil)
end)

-- pg.loss

t.test("losses return one value per sample and accept sample weights", function()
  local pred, label = pg.randn(3, 4), pg.randn(3, 4)
  local labels = i64{1, 4, 2}
  for _, l in ipairs{loss.L2Loss(), loss.L1Loss(), loss.SigmoidBinaryCrossEntropyLoss(), loss.HuberLoss()} do
    t.equal(l(pred, label:sigmoid()).shape, {3})
    local w = l(pred, label, pg.tensor({{1}, {0}, {2}}))
    t.close(w[2], pg.tensor(0))
  end
  local ce = loss.SoftmaxCrossEntropyLoss()
  t.equal(ce(pred, labels).shape, {3})
  t.close(ce(pred, labels), pred:cross_entropy(labels, {reduction = "none"}))
  t.close(loss.L2Loss()(pred, label), ((pred - label) ^ 2):mean(2) / 2)
  local sparse = loss.SoftmaxCrossEntropyLoss{sparse_label = false, axis = -1, from_logits = false, weight = 1, batch_axis = 1}
  t.close(sparse(pred, pg.one_hot(labels, 4):to("float32")), ce(pred, labels))
  t.close(loss.HuberLoss{rho = 2}(pg.tensor{{1}}, pg.tensor{{0}}), pg.tensor{0.25})
  t.close(loss.SigmoidBinaryCrossEntropyLoss{from_sigmoid = true}(pg.full({1, 1}, 0.5), pg.ones(1, 1)), pg.tensor{math.log(2)})
  t.error_contains(function() ce(pred, i64{0, 1, 2}) end, "1")
  t.error_contains(function() loss.L2Loss{wieght = 1} end, "weight")
  t.error_contains(function() pg.debug(loss.L2Loss(), pred, pg.ones(3, 3)) end, "L2Loss: bad argument 'label'")
end)

-- pg.optim

local function net_and_step(optimizer, opts)
  local net = nn.Dense(1, {in_units = 2})
  net:initialize("ones")
  local trainer = optim.Trainer(net:collect_params(), optimizer, opts)
  local function step()
    local l = pg.record(function() return (net(pg.tensor{{1, 2}, {3, 4}}) ^ 2):sum() end)
    l:backward()
    trainer:step(2)
  end
  return net, trainer, step
end

t.test("Trainer with names, optimizers and options", function()
  for _, name in ipairs{"sgd", "nag", "adam", "adamw"} do
    local net, trainer, step = net_and_step(name, {learning_rate = 0.01, wd = 0.01, clip_gradient = 5})
    local before = net.weight:clone()
    step()
    t.check(not net.weight:equal(before), name)
    t.check(math.abs(trainer:learning_rate() - 0.01) < 1e-9)
    trainer:set_learning_rate(0.5)
    t.check(trainer:learning_rate() == 0.5)
    local path = t.tmp(name .. ".states")
    trainer:save_states(path)
    trainer:load_states(path)
    step()
  end
  for _, rule in ipairs{optim.SGD{learning_rate = 0.1, momentum = 0.9}, optim.NAG{learning_rate = 0.1, momentum = 0.9},
                        optim.Adam{beta1 = 0.9, beta2 = 0.99, epsilon = 1e-8}, optim.AdamW()} do
    local _, _, step = net_and_step(rule)
    step()
    step()
  end
  t.error_contains(function() net_and_step("sdg", {}) end, "sgd")
  t.error_contains(function() net_and_step("sgd", {learning_rat = 1}) end, "learning_rate")
  t.error_contains(function() optim.Adam{beta = 1} end, "beta1")
  t.error_contains(function() optim.Trainer(1, "sgd") end, "Trainer: bad argument")
end)

t.test("sgd does the arithmetic of MXNet", function()
  local net, trainer = net_and_step("sgd", {learning_rate = 0.1, momentum = 0.9, wd = 0.1})
  for _ = 1, 2 do
    pg.record(function() return net(pg.tensor{{1, 2}}):sum() end):backward()
    trainer:step(1)
  end
  local w, m = 1, 0
  for _ = 1, 2 do m = 0.9 * m - 0.1 * (1 + 0.1 * w); w = w + m end
  t.close(net.weight[{1, 1}], pg.tensor(w))
end)

t.test("step, allreduce_grads with update, stale gradients", function()
  local net, trainer, step = net_and_step("sgd", {learning_rate = 0.1})
  step()
  t.error_contains(function() trainer:step(1) end, "ignore_stale_grad")
  trainer:step(1, {ignore_stale_grad = true})
  pg.record(function() return net(pg.ones(1, 2)):sum() end):backward()
  trainer:allreduce_grads()
  trainer:update(1)
  net.weight.grad_req = "null"
  local before = net.weight:clone()
  pg.record(function() return net(pg.ones(1, 2)):sum() end):backward()
  trainer:step(1)
  t.equal(net.weight, before)
end)

t.test("lr_mult, wd_mult and schedulers", function()
  local net = nn.Dense(1, {in_units = 1})
  net:initialize("ones")
  net.weight.lr_mult = 0
  local trainer = optim.Trainer(net:collect_params(), "sgd", {learning_rate = 1})
  pg.record(function() return net(pg.ones(1, 1)):sum() end):backward()
  trainer:step(1)
  t.equal(net.weight, pg.ones(1, 1))
  t.equal(net.bias, pg.tensor{-1})
  local s = optim.lr_scheduler
  local f = s.Factor{step = 2, factor = 0.5, base_lr = 1}
  t.check(f(1) == 1 and f(2) == 1 and f(3) == 0.5 and f(5) == 0.25)
  local m = s.MultiFactor{step = {2, 4}, factor = 0.1, base_lr = 1}
  t.check(m(2) == 1 and math.abs(m(3) - 0.1) < 1e-9 and math.abs(m(5) - 0.01) < 1e-9)
  local p = s.Poly{max_update = 10, base_lr = 1, pwr = 1, final_lr = 0}
  t.check(math.abs(p(5) - 0.5) < 1e-9 and p(10) == 0 and p(11) == 0)
  local c = s.Cosine{max_update = 10, base_lr = 1, final_lr = 0, warmup_steps = 2, warmup_begin_lr = 0, warmup_mode = "linear"}
  t.check(c(0) == 0 and c(1) == 0.5 and math.abs(c(10)) < 1e-9)
  local _, scheduled, step = net_and_step("sgd", {lr_scheduler = s.Factor{step = 1, factor = 0.5}, learning_rate = 1})
  step()
  step()
  step()
  t.check(scheduled:learning_rate() < 1)
  t.error_contains(function() s.Factor{stp = 1} end, "step")
end)

-- pg.data

t.test("datasets", function()
  local d = data.ArrayDataset(pg.range(1, 6):reshape(3, 2), i64{1, 2, 1})
  t.check(d:len() == 3)
  local x, y = d:get(2)
  t.equal(x, pg.tensor{3, 4})
  t.check((type(y) == "number" and y or y:item()) == 2)
  local s = data.SimpleDataset{10, 20, 30, 40}
  t.check(s:len() == 4 and s:get(1) == 10)
  t.check(s:filter(function(v) return v > 15 end):len() == 3)
  t.check(s:take(2):len() == 2)
  t.check(s:shard(2, 1):len() == 2 and s:shard(2, 2):get(1) ~= s:shard(2, 1):get(1))
  t.check(s:transform(function(v) return v + 1 end):get(1) == 11)
  t.check(s:sample(data.SequentialSampler(2)):len() == 2)
  t.equal((d:transform_first(function(v) return v * 2 end):get(1)), pg.tensor{2, 4})
  t.error_contains(function() s:get(5) end, "5")
  t.error_contains(function() s:get(0) end, "0")
  t.error_contains(function() data.ArrayDataset(pg.ones(2), pg.ones(3)) end, "ArrayDataset")
end)

t.test("DataLoader", function()
  local d = data.ArrayDataset(pg.range(1, 10):reshape(5, 2), i64{1, 2, 3, 4, 5})
  local function sizes(opts)
    local out = {}
    local loader = data.DataLoader(d, opts)
    for x, y in loader:iter() do
      t.check(x.shape[1] == #y and y.dtype == "int64")
      out[#out + 1] = #x
    end
    return out, loader
  end
  t.equal(sizes{batch_size = 2}, {2, 2, 1})
  t.equal(sizes{batch_size = 2, last_batch = "discard", shuffle = true}, {2, 2})
  local first, loader = sizes{batch_size = 2, last_batch = "rollover"}
  t.equal(first, {2, 2})
  local n = 0
  for _ in loader:iter() do n = n + 1 end
  t.check(n == 3)
  sizes{batch_size = 2, sampler = data.RandomSampler(5), num_workers = 0}
  sizes{batch_size = 2, batchify = function(items)
    local xs, ys = {}, {}
    for i, item in ipairs(items) do xs[i], ys[i] = item[1], item[2] end
    return pg.stack(xs), pg.stack(ys)
  end}
  t.error_contains(function() data.DataLoader(d, {batch_size = 2, last_batch = "kep"}) end, "keep")
  t.error_contains(function() data.DataLoader(d, {batch_size = 0}) end, "batch_size")
  t.error_contains(function() data.DataLoader(d, {batchsize = 2}) end, "batch_size")
  t.error_contains(function() data.DataLoader(d, {batch_size = 2, shuffle = true, sampler = data.RandomSampler(5)}) end, "shuffle")
end)

t.test("digits", function()
  local all, train, test = data.digits(), data.digits{train = true}, data.digits{train = false}
  t.check(all:len() == 1797 and train:len() == 1437 and test:len() == 360)
  local x, y = all:get(1)
  t.equal(x.shape, {1, 8, 8})
  t.check(x.dtype == "float32" and x:max():item() <= 1 and x:min():item() >= 0)
  t.check((type(y) == "number" and y or y:item()) == 1, "the first image is a zero: class 1")
  t.check(#all.classes == 10 and tostring(all.classes[1]) == "0")
end)

-- pg.metric

t.test("metrics", function()
  local m = pg.metric.Accuracy()
  m:update(i64{1, 2}, pg.tensor{{0.9, 0.1}, {0.8, 0.2}})
  local name, value = m:get()
  t.check(name == "accuracy" and value == 0.5)
  m:reset()
  m:update({i64{1}}, {pg.tensor{{0.9, 0.1}}})
  t.check(select(2, m:get()) == 1)
  m:reset()
  m:update(i64{2, 2}, i64{2, 1})
  t.check(select(2, m:get()) == 0.5)
  local l = pg.metric.Loss()
  l:update(nil, pg.tensor{1, 3})
  t.check(select(2, l:get()) == 2)
  t.error_contains(function() m:update(i64{1, 2}, pg.ones(3, 2)) end, "Accuracy: bad argument 'preds'")
end)

-- pg.utils

t.test("utilities", function()
  local a = pg.tensor{3, 4}
  local norm = pg.utils.clip_global_norm({a}, 1)
  t.check(math.abs((type(norm) == "number" and norm or norm:item()) - 5) < 1e-5)
  t.close(a, pg.tensor{0.6, 0.8})
  local parts = pg.utils.split_data(pg.range(1, 4), 2)
  t.equal(parts, {pg.tensor{1, 2}, pg.tensor{3, 4}})
  pg.utils.seed_all(1)
  local x = pg.rand(2)
  pg.utils.seed_all(1)
  t.equal(pg.rand(2), x)
end)

-- The program

t.test("options, arg and ...", function()
  local script = t.write(t.tmp("s.lua"), "print(arg[0]:match('[^/]+$'), arg[1], arg[2], ..., #arg) os.exit(tonumber(arg[3]))")
  local out, err, code = t.run(script .. " -i -v 7")
  t.check(out:find("s.lua\t-i\t-v\t", 1, true) and code == 7, out .. err)
  out, err, code = t.run("-e 'print(1 + 1)'")
  t.check(out == "2\n" and code == 0, err)
  out, err, code = t.run("-e 'print(pg.version)'")
  t.check(out == pg.version .. "\n" and code == 0, err)
  out = t.run("-v")
  t.check(out:find(pg.version, 1, true), out)
  out = t.run("-h")
  t.check(out:find("-e") and out:find("-l"), out)
  out, err, code = t.run("-", "print(...)")
  t.check(code == 0 and out == "\n", out .. err)
  out, err = t.run("- a b", "print(...)")
  t.check(out == "a\tb\n", out .. err)
  out, err = t.run("", "print('piped')")
  t.check(out == "piped\n", out .. err)
  out, err = t.run("-l perigee -e 'print(type(require \"perigee\"))'")
  t.check(out == "table\n", out .. err)
  t.write(t.tmp("mod_of_mine.lua"), "return {x = 5}")
  local user = t.write(t.tmp("user.lua"), "print(require('mod_of_mine').x, pg)")
  out, err = t.run(user)
  t.check(out == "5\tnil\n", out .. err)
  out, err = t.run("-e 'x = 4' " .. t.write(t.tmp("x.lua"), "print(x)"))
  t.check(out == "4\n", out .. err)
end)

t.test("errors give a traceback and exit code 1", function()
  for _, code in ipairs{"error('mine')", "error({})", "local x = ", "error(nil)", "error(setmetatable({}, {__tostring = function() return 'mine' end}))",
                        "pg.ones(2) + pg.ones(3)"} do
    local _, err, status = t.run("-e \"" .. code .. "\"")
    t.check(status == 1 and #err > 0, code .. ": " .. status .. " " .. err)
  end
  local _, err, code = t.run(t.write(t.tmp("bad.lua"), "local function f() error('mine') end\nf()\n"))
  t.check(err:find("bad.lua:1: mine") and err:find("traceback") and code == 1, err)
  _, err, code = t.run("/nowhere/none.lua")
  t.check(code == 1 and err:find("none.lua"), err)
  _, err, code = t.run("-x")
  t.check(code == 1 and err:find("-x", 1, true), err .. code)
end)

t.test("SIGINT ends a script with 130", function()
  local script = t.write(t.tmp("loop.lua"), "io.popen('kill -INT $PPID'):close() while true do end")
  local _, _, code = t.run("'" .. script .. "'")
  t.check(code == 130, code)
end)

t.test("scope, keep, memory", function()
  local kept, lost
  local r = pg.scope(function()
    kept, lost = pg.keep(pg.ones(1)), pg.ones(1)
    return pg.ones(2) + 1
  end)
  t.equal(r, pg.full({2}, 2))
  t.equal(kept, pg.ones(1))
  t.error_contains(function() return lost + 1 end, "released")
  local m = pg.memory()
  t.check(m.live and m.cached and m.peak and m.tensors)
  local n = pg.get_num_threads()
  pg.set_num_threads(1)
  t.check(pg.get_num_threads() == 1)
  pg.set_num_threads(n)
  t.error_contains(function() pg.set_num_threads(0) end, "set_num_threads")
  t.equal(pg.devices()[1], "cpu")
  pg.synchronize()
end)

t.test("errors have a position and do not change tensors", function()
  local x = pg.ones(2)
  local e = t.error_matches(function() x:add_(pg.ones(3)) end, "^%S*test_api_training.lua:%d+: add_: ")
  t.check(e)
  t.equal(x, pg.ones(2))
  t.bad_argument(function() x:softmax("a") end, "softmax", "dim")
end)
