-- Metrics of a script and of the library measure the same as plain Lua and inside jitted functions.
local t = require "tests.support"
local pg = require "perigee"
local T = pg.tensor

-- Runs make(jit) -> a table of results as plain Lua and jitted. The results must be equal.
local function same(make, opts) t.close(make(pg.jit), make(function(f) return f end), opts) end

-- Metrics --------------------------------------------------------------------------------------------------------------------

-- Returns the values after each of four updates, with a reset after the second.
local function measured(jit, metric, cases)
  local update = jit(function(label, pred)
    metric:update(label, pred)
    return pred
  end)
  local out = {}
  for i, case in ipairs(cases) do
    update(unpack(case))
    out[i] = select(2, metric:get())
    t.check(type(out[i]) == "number")
    if i == 2 then metric:reset() end
  end
  return out
end

local function values_cases()
  local out = {}
  for i = 1, 4 do out[i] = {T{1, 2}, T{i, 0.1}} end
  return out
end

local function class_cases()
  local out = {}
  for i = 1, 4 do out[i] = {T({1, 2, 2}, {dtype = "int64"}), T{{i, 2}, {2, i}, {1, 3}}:softmax(2)} end
  return out
end

t.test("custom metrics measure the same jitted", function()
  t.may_warn("traced again for the third time because metric.n")
  same(function(jit)
    local Mine = pg.metric.Metric:extend("Mine")
    Mine.label = "mine"
    function Mine:measure(label, pred) return ((label - pred) ^ 2):sum(), label:numel() end
    function Mine:finish(sum, count) return math.sqrt(sum / count) end
    return measured(jit, Mine(), values_cases())
  end)
  same(function(jit)
    return measured(jit, pg.metric.create(function(label, pred) return (label - pred):abs():max() end, "worst"), values_cases())
  end)
  same(function(jit)
    local metric = {total = T(0), n = 0}
    local update = jit(function(label, pred)
      metric.total = metric.total + (label - pred):abs():sum()
      metric.n = metric.n + 1
      return pred
    end)
    for _, case in ipairs(values_cases()) do update(unpack(case)) end
    return {metric.total, T(metric.n)}
  end)
end)

t.test("the library's metrics in a jitted step", function()
  for _, name in ipairs{"MAE", "MSE", "RMSE", "PearsonCorrelation", "Loss"} do
    same(function(jit) return measured(jit, pg.metric[name](), values_cases()) end, {what = name})
  end
  for _, name in ipairs{"Accuracy", "TopKAccuracy", "F1", "MCC", "Perplexity", "CrossEntropy", "NegativeLogLikelihood"} do
    same(function(jit) return measured(jit, pg.metric[name](), class_cases()) end, {what = name})
  end
  for _, name in ipairs{"F1", "MCC"} do
    same(function(jit) return measured(jit, pg.metric[name]{average = "micro"}, class_cases()) end, {what = name .. " micro"})
  end
  same(function(jit)
    local metric = pg.metric.create{"mae", "mse"}
    local update = jit(function(label, pred) metric:update(label, pred) return pred end)
    for _, case in ipairs(values_cases()) do update(unpack(case)) end
    return {(select(2, metric:get()))}
  end)
end)

t.test("reset before the first update, in a traced function: sums are where the values are", function()
  for _, device in ipairs{pg.testing.default_device(), "cpu"} do
    local preds = pg.tensor({{0.9, 0.1}, {0.2, 0.8}}, {device = device})
    local label = pg.tensor({1, 1}, {dtype = "int64", device = device})
    local metric = pg.metric.Accuracy()
    local evaluate = pg.jit(function(x, y)
      metric:reset()
      metric:update(y, x)
      return x:sum()
    end)
    for _ = 1, 4 do evaluate(preds, label) end
    t.equal({metric:get()}, {"accuracy", 0.5})
    t.equal(metric._sums.sum.device, device)
    t.equal(evaluate:cache_info().traces, device == pg.testing.default_device() and 1 or 2)
  end
end)
