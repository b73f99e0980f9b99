-- Metrics against MXNet's values; trees and utilities.
local t = require "tests.support"
local json = require "tests.json"
local pg = require "perigee"

-- Metrics of class labels, which count from 0 in the fixtures.
local classes = {acc = true, f1 = true, mcc = true, top_k_accuracy = true, ce = true, nll_loss = true, perplexity = true}
local known = {acc = true, top_k_accuracy = true, mae = true, mse = true, rmse = true, ce = true, nll_loss = true, perplexity = true, pearsonr = true, f1 = true, mcc = true}

local function options(case)
  local o = {}
  for key, value in pairs(case.args) do
    if value ~= json.null then o[key] = value end
  end
  if o.axis then o.axis = o.axis + 1 end
  if o.ignore_label then o.ignore_label = o.ignore_label + 1 end
  return o
end

t.test("values of MXNet after each update", function()
  for _, case in ipairs(json.decode(t.read(t.shared("data/fixtures/metric/metrics.json"))).cases) do
    if known[case.metric] then
      local metric = pg.metric.create(case.metric, options(case))
      for i, update in ipairs(case.updates) do
        local labels, preds = pg.tensor(update.labels), pg.tensor(update.preds)
        if classes[case.metric] then labels = labels + 1 end
        if case.metric == "acc" and preds:dim() == labels:dim() then preds = preds + 1 end
        metric:update(labels, preds)
        local name, value = metric:get()
        t.equal(name, case.name)
        t.close(value, case.values_after_each_update[i], {rtol = 1e-4, what = case.metric .. " " .. (case.note or "")})
      end
    end
  end
end)

t.test("lists, reset, Loss and composites", function()
  local metric = pg.metric.Accuracy()
  local name, value = metric:get()
  t.check(name == "accuracy" and value ~= value)
  metric:update({pg.tensor{1, 2}, pg.tensor{1}}, {pg.tensor{{3, 1}, {3, 1}}, pg.tensor{1}})
  t.close(select(2, metric:get()), 2 / 3)
  metric:reset()
  value = select(2, metric:get())
  t.check(value ~= value)
  local loss = pg.metric.Loss()
  loss:update(nil, pg.tensor{1, 3})
  t.equal({loss:get()}, {"loss", 2})
  local both = pg.metric.create{"acc", "loss"}
  both:update(pg.tensor{1}, pg.tensor{{1, 0}})
  t.equal({both:get()}, {{"accuracy", "loss"}, {1, 0.5}})
  local custom = pg.metric.create(function(label, pred) return (label - pred):abs():max():item() end, "worst")
  custom:update(pg.tensor{1, 2}, pg.tensor{1, 5})
  t.equal({custom:get()}, {"worst", 3})
  t.error_contains(function() pg.metric.create("acuracy") end, "accuracy")
end)

t.test("tree.map and tree.flatten keep the structure", function()
  local tree = {1, {b = 2, a = 3}, c = {}}
  local doubled = pg.tree.map(function(x) return x * 2 end, tree)
  t.equal(doubled, {2, {b = 4, a = 6}, c = {}})
  t.equal(pg.tree.map(function(x, y) return x + y end, tree, doubled), {3, {b = 6, a = 9}, c = {}})
  local leaves, spec = pg.tree.flatten(tree)
  t.equal(leaves, {1, 3, 2})
  t.equal(pg.tree.unflatten(spec, {10, 30, 20}), {10, {b = 20, a = 30}, c = {}})
  t.equal(pg.tree.flatten(5), {5})
  t.error_contains(function() pg.tree.map(function() end, {1}, {1, 2}) end, "differ")
  local loop = {}
  loop[1] = loop
  t.error_contains(function() pg.tree.flatten(loop) end, "holds itself")
end)

-- Runs f as a script calls it and jitted, both at once, because f writes to its own boxes.
local function both(f)
  f(function(g) return g end)
  f(function(g) return pg.jit(g) end)
end

t.test("clip_global_norm", function()
  both(function(made)
    local a, b = pg.tensor{3}, pg.tensor{4}
    local clip = made(function(max_norm) return pg.utils.clip_global_norm({a, b}, max_norm) end)
    t.close(clip(1), pg.tensor(5))
    t.close(a, {0.6})
    t.close(b, {0.8})
    t.close(clip(2), pg.tensor(1), {rtol = 1e-4})
    t.close(a, {0.6})
    t.equal(made(function() return pg.utils.clip_global_norm({}, 1) end)(), pg.tensor(0))
  end)
end)

t.test("clip_global_norm of norms that are not finite", function()
  both(function(made)
    for _, bad in ipairs{0 / 0, 1 / 0} do
      local a, b = pg.tensor{3}, pg.tensor{bad}
      t.error_contains(made(function() return pg.utils.clip_global_norm({a, b}, 1) end), "the norm of the tensors is not finite")
      local norm = made(function() return pg.utils.clip_global_norm({a, b}, 1, {check_isfinite = false}) end)()
      t.check(norm:isfinite():item() == false)
      t.equal({a:item(), b}, {3, pg.tensor{bad}})
    end
  end)
end)

t.test("clip_global_norm keeps dtypes and does not overflow in half precision", function()
  both(function(made)
    local a, b, c = pg.tensor({300, 400}, {dtype = "float16"}), pg.tensor{0}, pg.tensor({0}, {dtype = "bfloat16"})
    t.close(made(function() return pg.utils.clip_global_norm({a, b, c}, 50) end)(), pg.tensor(500), {rtol = 1e-3})
    t.close(a, pg.tensor({30, 40}, {dtype = "float16"}), {rtol = 1e-3})
    local d = pg.tensor({3, 4}, {dtype = "float64"})
    t.close(made(function() return pg.utils.clip_global_norm({d, b}, 1) end)(), pg.tensor(5, {dtype = "float64"}), {rtol = 1e-12})
    t.close(d, pg.tensor({0.6, 0.8}, {dtype = "float64"}), {rtol = 1e-7})
  end)
end)

t.test("clip_global_norm in a training step", function()
  local function trained(jitted)
    local w = pg.tensor{1, -2}:attach_grad()
    local trainer = pg.optim.Trainer({w = w}, "sgd", {learning_rate = 0.1})
    local function step(x)
      local l = pg.record(function() return (w * w * x):sum() end)
      l:backward()
      local norm = pg.utils.clip_global_norm({w.grad}, 1.5)
      trainer:step(1)
      return l, norm
    end
    if jitted then step = pg.jit(step) end
    local out = {}
    for i = 1, 5 do
      local l, norm = step(pg.tensor{i, 0.1})
      out[#out + 1], out[#out + 2] = l, norm
    end
    out[#out + 1] = w
    return out
  end
  t.close(trained(true), trained(false))
end)

t.test("split_data, seed_all", function()
  local parts = pg.utils.split_data(pg.range(1, 7), 3, {even_split = false})
  t.equal({parts[1]:totable(), parts[3]:totable()}, {{1, 2}, {5, 6, 7}})
  t.error_contains(function() pg.utils.split_data(pg.range(1, 7), 3) end, "even_split")
  pg.utils.seed_all(4)
  local x, n = pg.rand(2), math.random()
  pg.utils.seed_all(4)
  t.equal(pg.rand(2), x)
  t.equal(math.random(), n)
end)

t.test("PCC is MCC for two classes, and takes labels of classes that come later", function()
  local pcc, mcc = pg.metric.PCC(), pg.metric.MCC{average = "micro"}
  for _, batch in ipairs{{{1, 2, 2, 1}, {1, 2, 1, 1}}, {{2, 2, 1}, {2, 1, 2}}} do
    pcc:update(pg.tensor(batch[1]), pg.tensor(batch[2]))
    mcc:update(pg.tensor(batch[1]), pg.tensor(batch[2]))
    t.close(select(2, pcc:get()), select(2, mcc:get()))
  end
  local all = pg.metric.PCC()
  all:update(pg.tensor{1, 2}, pg.tensor{1, 2})
  all:update(pg.tensor{3, 1, 3}, pg.tensor{{0, 0, 1}, {0.2, 0.3, 0.5}, {0, 1, 0}})
  -- R_K of labels 1 2 3 1 3 and predictions 1 2 3 3 2 by Gorodkin's formula.
  t.close(select(2, all:get()), (5 * 3 - (2 * 1 + 1 * 2 + 2 * 2)) / math.sqrt((25 - 9) * (25 - 9)))
  local one = pg.metric.PCC()
  one:update(pg.tensor{1, 1}, pg.tensor{1, 1})
  t.equal(select(2, one:get()), 0)
end)

t.test("local and global values", function()
  local composite = pg.metric.create{"mae", "f1", "pcc"}
  local function update(labels, preds) composite:update(pg.tensor(labels), pg.tensor(preds)) end
  update({1, 2}, {1, 1})
  composite:reset_local()
  update({2, 2, 1}, {2, 2, 1})
  local _, last = composite:get()
  local _, all = composite:get_global()
  t.close(last, {0, 1, 1})
  t.close({all[1], all[2]}, {0.25, 0.5})
  local together = pg.metric.PCC()
  together:update(pg.tensor{1, 2, 2, 2, 1}, pg.tensor{1, 1, 2, 2, 1})
  t.close(all[3], select(2, together:get()))
  composite:reset()
  t.check(composite:get_global())
  _, all = composite:get_global()
  for _, value in ipairs(all) do t.check(value ~= value) end
end)

t.test("PCC refuses what is no class", function()
  local pcc = pg.metric.PCC()
  t.error_contains(function() pcc:update(pg.tensor{1, 1e5}, pg.tensor{1, 2}) end, "expected classes up to 4096, got 100000")
  t.error_contains(function() pcc:update(pg.tensor{0 / 0, 1}, pg.tensor{1, 2}) end, "expected classes up to 4096")
  t.error_contains(function() pcc:update(pg.tensor{1, 1, 2}, pg.tensor{1, 2}) end, "expected 3 predictions like labels, got 2")
end)

local function value(metric, label, pred)
  metric:update(label, pred)
  return (select(2, metric:get()))
end

t.test("differences neither wrap nor truncate, sums of half precision do not overflow", function()
  local function small(x, dtype) return pg.tensor(x, {dtype = dtype}) end
  t.equal(value(pg.metric.MAE(), small({2, 4}, "uint8"), small({4, 2}, "uint8")), 2)
  t.equal(value(pg.metric.MSE(), small({100}, "int8"), small({-100}, "int8")), 40000)
  t.equal(value(pg.metric.RMSE(), small({100}, "int8"), small({-100}, "int8")), 200)
  t.equal(value(pg.metric.MAE(), pg.tensor{1.5, 2.5}, small({2, 4}, "int64")), 1)
  t.equal(value(pg.metric.Loss(), nil, pg.ones({70000}, {dtype = "float16"})), 1)
end)

t.test("labels outside of the classes and wrong counts are errors", function()
  local probabilities = pg.tensor{{0.8, 0.2}}
  for _, name in ipairs{"CrossEntropy", "NegativeLogLikelihood", "Perplexity"} do
    for _, label in ipairs{-1, 0, 3, 1.7} do
      t.error_contains(function() value(pg.metric[name](), pg.tensor{label}, probabilities) end, "expected labels from 1 to 2")
    end
  end
  for _, name in ipairs{"Accuracy", "TopKAccuracy"} do
    for _, label in ipairs{-1, 0, 3, 1.7} do
      t.error_contains(function() value(pg.metric[name](), pg.tensor{label}, probabilities) end, "expected labels from 1 to 2")
    end
  end
  for _, name in ipairs{"F1", "MCC"} do
    t.error_contains(function() value(pg.metric[name](), pg.tensor{0, 1}, pg.tensor{1, 2}) end, "from 1 to 2")
  end
  t.error_contains(function() value(pg.metric.TopKAccuracy(3), pg.tensor{2}, pg.rand(3, 4)) end,
                   "expected a row of scores for each of 1 labels")
  t.equal(value(pg.metric.Perplexity{ignore_label = 0}, pg.tensor{0, 1}, pg.tensor{{0.8, 0.2}, {0.5, 0.5}}) - 2 < 1e-6, true)
end)

local regression = {MAE = true, MSE = true, RMSE = true, PearsonCorrelation = true, Loss = true}
local names = {"Accuracy", "TopKAccuracy", "F1", "MCC", "PCC", "Perplexity", "CrossEntropy", "NegativeLogLikelihood", "MAE", "MSE",
               "RMSE", "PearsonCorrelation", "Loss"}

-- Returns labels and predictions of n items for the metric of this name.
local function batch(name, n)
  if regression[name] then return pg.rand(n), pg.rand(n) end
  return pg.randint(1, 2, {n}), pg.rand(n, 2):softmax(2)
end

t.test("the state of metrics survives pg.scope", function()
  both(function(made)
    for _, name in ipairs(names) do
      local metric, all = pg.metric[name](), pg.metric[name]()
      local update = made(function(label, pred) metric:update(label, pred) return pred end)
      for i = 1, 4 do
        local label, pred = batch(name, 6)
        all:update(label, pred)
        pg.scope(function() update(label, pred) end)
        if i == 2 then pg.scope(function() metric:reset_local() end) end
      end
      t.close(select(2, metric:get_global()), select(2, all:get()), {rtol = 1e-4, what = name})
      t.check(metric:get())
    end
  end)
end)

t.test("a metric in a jitted step is traced once, whatever the sizes of the batches", function()
  for _, name in ipairs(names) do
    local metric, all = pg.metric[name](), pg.metric[name]()
    local update = pg.jit(function(label, pred) metric:update(label, pred) return pred end)
    for n = 3, 8 do
      local label, pred = batch(name, n)
      update(label, pred)
      if n == 5 then metric:reset() elseif n > 5 then all:update(label, pred) end
    end
    t.equal(update:cache_info().traces, 1, name)
    t.close(select(2, metric:get()), select(2, all:get()), {rtol = 1e-4, what = name})
    if name ~= "Loss" then
      local label = batch(name, 4)
      t.error_contains(function() update(label, (select(2, batch(name, 3)))) end, "bad argument")
    end
  end
end)

t.test("another metric at the same place of a jitted step", function()
  local metric = pg.metric.Accuracy()
  local update = pg.jit(function(label, pred) metric:update(label, pred) return pred end)
  local first, scores = metric, pg.tensor{{1, 0}, {1, 0}}
  update(pg.tensor{1, 2}, scores)
  metric = pg.metric.Accuracy()
  for _ = 1, 3 do update(pg.tensor{1, 1}, scores) end
  t.equal({select(2, first:get()), select(2, metric:get())}, {0.5, 1})
end)

t.test("TopKAccuracy takes scores of any number of dims", function()
  local scores = pg.rand(4, 5, 6)
  t.equal(value(pg.metric.TopKAccuracy(1), scores:argmax(3), scores), 1)
  t.equal(value(pg.metric.TopKAccuracy(2), pg.tensor{3}, pg.tensor{0.1, 0.5, 0.4}), 1)
  t.error_contains(function() value(pg.metric.TopKAccuracy(1), pg.ones(3), pg.rand(3)) end, "expected a row of scores for each of 3 labels")
end)

t.test("the global value of PCC covers classes that only some updates have", function()
  for _, batches in ipairs{{{1, 2, 2}, {1, 3, 2}}, {{1, 3, 2}, {1, 2, 2}}} do
    local metric, all = pg.metric.PCC(), pg.metric.PCC()
    for _, labels in ipairs(batches) do
      metric:reset_local()
      metric:update(pg.tensor(labels), pg.tensor{1, 2, 2})
      all:update(pg.tensor(labels), pg.tensor{1, 2, 2})
    end
    t.close(select(2, metric:get_global()), select(2, all:get()))
  end
end)

t.test("logarithms of probabilities in half precision are finite", function()
  for _, dtype in ipairs{"float16", "bfloat16"} do
    local label, pred = pg.tensor{1, 2}, pg.tensor({{1, 0}, {1, 0}}, {dtype = dtype})
    for _, name in ipairs{"CrossEntropy", "NegativeLogLikelihood"} do
      t.close(value(pg.metric[name](), label, pred), -math.log(1e-12) / 2, {rtol = 1e-4})
    end
    t.close(value(pg.metric.Perplexity(), label, pred), 1e5, {rtol = 1e-4})
  end
end)

t.test("wrong options are errors where the metric is made", function()
  t.error_contains(function() pg.metric.F1("x") end, "F1: bad argument 'average' (expected \"macro\", \"micro\", got")
  t.error_contains(function() pg.metric.MCC("x") end, "MCC: bad argument 'average'")
  t.error_contains(function() pg.metric.Accuracy{axis = "x"} end, "Accuracy: bad argument 'axis'")
  t.error_contains(function() pg.metric.CrossEntropy{eps = "x"} end, "CrossEntropy: bad argument 'eps'")
  t.error_contains(function() pg.metric.Perplexity{ignore_label = "x"} end, "Perplexity: bad argument 'ignore_label'")
end)

t.test("updates in loop bodies and resets in jitted functions", function()
  local metric, scores = pg.metric.Accuracy(), pg.tensor{{{1, 0}, {0, 1}}, {{1, 0}, {1, 0}}}
  local function update(x) metric:update(pg.tensor{1, 1}, x) return x:sum() end
  pg.foreach(update, scores)
  t.equal(select(2, metric:get()), 0.75)
  metric = pg.metric.Accuracy()
  local evaluate = pg.jit(function(x)
    metric:reset()
    return update(x)
  end)
  for i = 1, 4 do evaluate(scores[i % 2 + 1]) end
  t.equal({select(2, metric:get()), evaluate:cache_info().traces}, {0.5, 1})
end)
