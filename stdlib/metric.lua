-- pg.metric: metrics accumulated over batches. update(labels, preds), get() -> name, value, reset().
local core = ...
local args = core.require("support.args")
local base = core.require("metric.base")
local choose = core.require("support.namespace").choose
local class = core.require("support.class")
local class_labels = core.require("support.class_labels")
local floats = core.require("param").floats
local ops = core.ops
local Metric, add_to = base.Metric, base.add_to
local metrics = {Metric = Metric}

local function define(name, label, names, spec)
  local kind = Metric:extend(name)
  kind.label, kind.names, kind.spec, kind._optional = label, names or {}, spec or {}, spec or {}
  kind.__tostring = Metric.__tostring
  metrics[name] = kind
  return kind
end

-- Returns the number of scores along the dim if preds are scores of classes, nil if they are classes like labels. Labels
-- may have the dims of the scores, with another size along the dim.
local function classes_along(label, pred, dim)
  if pred:dim() < math.abs(dim) then return nil end
  if label:dim() < pred:dim() or label:size(dim) ~= pred:size(dim) then return pred:size(dim) end
end

-- Class scores have more dims than labels.
local function require_order(self, label, pred)
  if label:dim() <= pred:dim() then return end
  core.fail(self.name, "bad argument 'labels' (expected at most the dims of preds, %s, got %s; the order is metric:update(labels, preds))",
            core.describe(pred), core.describe(label))
end

-- The number of elements for checks. A trace does not fix it: ops must check it in later calls, such as reshape_as.
local function numel(x) return core.tracing() and core.untraced(x.numel, x) or x:numel() end

-- The number of elements as a count. In a trace it is a tensor, since batches of any size may follow.
local function count_of(x) return core.tracing() and ops.ones_like(x, {dtype = "int64"}):sum() or x:numel() end

-- Returns label in the shape of pred, so that the two never broadcast against each other.
local function like(self, label, pred)
  if numel(label) ~= numel(pred) then
    core.fail(self.name, "bad argument 'preds' (expected %d predictions like labels, got %d; the order is metric:update(labels, preds))",
              numel(label), numel(pred))
  end
  return label:reshape_as(pred)
end

-- Raises unless preds holds a row of scores or probabilities for each label.
local function require_rows(self, label, pred, what)
  if pred:dim() > 0 and numel(label) * pred:size(-1) == numel(pred) then return end
  core.fail(self.name, "bad argument 'preds' (expected a row of %s for each of %d labels, got %s)", what or "probabilities", numel(label),
            core.describe(pred))
end

-- Returns the labels in an integer dtype. Raises for those outside of 1..C.
local function labels_within(self, label, classes)
  label = class_labels(label)
  ops.assert(ops.logical_and(ops.ge(label, 1), ops.le(label, classes)), {message = ("%s: bad argument 'labels' (expected labels from 1 to %d; "
    .. "for those from 0 on write labels + 1)"):format(self.name, classes)})
  return label
end

-- The dtype in which values of x neither wrap nor overflow nor lose a small constant.
local function wide(x) return floats[x.dtype] and x.dtype ~= "float64" and "float32" or "float64" end

--- pg.metric.Accuracy({axis = 2}): the share of correct predictions. pred holds class indices (in the shape of labels),
--- or scores with the classes along axis. Raises if labels and predictions differ in number, or for a label that is no
--- class of the scores.
--- Example: local metric = pg.metric.Accuracy()
--- metric:update(pg.tensor({1, 2}, {dtype = "int64"}), pg.tensor{{0.9, 0.1}, {0.8, 0.2}})
--- return metric:get()
local Accuracy = define("Accuracy", "accuracy", {"axis"}, {axis = 2})

function Accuracy:_check()
  if self.axis ~= 0 and args.number("Accuracy", "axis", self.axis) % 1 == 0 then return end
  core.arg_error("Accuracy", "axis", "a whole number other than 0", self.axis)
end

function Accuracy:measure(label, pred)
  require_order(self, label, pred)
  local classes = classes_along(label, pred, self.axis)
  if classes then pred = ops.argmax(pred, self.axis) end
  local labels = like(self, classes and labels_within(self, label, classes) or label:to("int64"), pred)
  return ops.eq(pred:to("int64"), labels):sum(), count_of(pred)
end

--- pg.metric.TopKAccuracy(top_k = 1): the share of labels among the top_k highest scores. Raises for a label that is no
--- class.
--- Example: local metric = pg.metric.TopKAccuracy(2)
--- metric:update(pg.tensor{1, 3}, pg.tensor{{0.5, 0.3, 0.2}, {0.5, 0.3, 0.2}})
--- return metric:get()
local TopKAccuracy = define("TopKAccuracy", "top_k_accuracy", {"top_k"}, {top_k = 1})

function TopKAccuracy:init(...)
  local o = args.read(self.name, self.names, self.spec, ...)
  args.count(self.name, "top_k", o.top_k, 1)
  self:setup("top_k_accuracy_" .. o.top_k, o)
end

function TopKAccuracy:measure(label, pred)
  require_order(self, label, pred)
  require_rows(self, label, pred, "scores")
  local classes = pred:size(-1)
  local order = ops.argsort(pred, -1, true):narrow(-1, 1, math.min(self.top_k, classes))
  local labels = labels_within(self, label, classes):reshape_as(order:select(-1, 1))
  return ops.eq(order, labels:unsqueeze(-1)):sum(), count_of(labels)
end

-- Returns both in a dtype in which differences neither wrap nor overflow, and in the shape of pred.
local function columns(self, label, pred)
  local dtype = wide(pred)
  return like(self, label:to(dtype), pred), pred:to(dtype)
end

--- pg.metric.MAE(): the mean of |label - pred|, averaged over updates.
--- Example: local metric = pg.metric.MAE()
--- metric:update(pg.tensor{1, 2}, pg.tensor{2, 4})
--- return metric:get()
local MAE = define("MAE", "mae")
function MAE:measure(label, pred)
  label, pred = columns(self, label, pred)
  return ops.abs(label - pred):mean(), 1
end

local function squared_error(self, label, pred)
  label, pred = columns(self, label, pred)
  return ops.square(label - pred):mean(), 1
end

--- pg.metric.MSE(): the mean of (label - pred)², averaged over updates.
--- Example: local metric = pg.metric.MSE()
--- metric:update(pg.tensor{1, 2}, pg.tensor{2, 4})
--- return metric:get()
define("MSE", "mse").measure = squared_error

--- pg.metric.RMSE(): the root of the mean of (label - pred)², averaged over updates.
--- Example: local metric = pg.metric.RMSE()
--- metric:update(pg.tensor{1, 2}, pg.tensor{2, 4})
--- return metric:get()
local RMSE = define("RMSE", "rmse")
function RMSE:measure(label, pred) return ops.sqrt((squared_error(self, label, pred)):to("float64")), 1 end

-- Returns the probability of each label. Raises for labels outside of 1..C.
local function picked(label, pred)
  return -ops.nll_loss(pred:to(wide(pred)):reshape{-1, pred:size(-1)}, class_labels(label):reshape{-1}, {reduction = "none"})
end

local function negative_log(self, label, pred)
  require_order(self, label, pred)
  require_rows(self, label, pred)
  return -ops.log(picked(label, pred) + self.eps):sum(), count_of(label)
end

local function check_eps(self) args.number(self.name, "eps", self.eps, 0) end

--- pg.metric.CrossEntropy({eps = 1e-12}): the mean of -log(p + eps), where p is the label's probability in pred (rows
--- of probabilities).
--- Example: local metric = pg.metric.CrossEntropy()
--- metric:update(pg.tensor{1, 2}, pg.tensor{{0.9, 0.1}, {0.8, 0.2}})
--- return metric:get()
local CrossEntropy = define("CrossEntropy", "cross-entropy", {"eps"}, {eps = 1e-12})
CrossEntropy.measure, CrossEntropy._check = negative_log, check_eps

--- pg.metric.NegativeLogLikelihood({eps = 1e-12}): the same value as CrossEntropy, with the name nll-loss.
--- Example: local metric = pg.metric.NegativeLogLikelihood()
--- metric:update(pg.tensor{1, 2}, pg.tensor{{0.9, 0.1}, {0.8, 0.2}})
--- return metric:get()
local Likelihood = define("NegativeLogLikelihood", "nll-loss", {"eps"}, {eps = 1e-12})
Likelihood.measure, Likelihood._check = negative_log, check_eps

--- pg.metric.Perplexity({ignore_label=}): the exponential of the mean of -log of the label's probability. Labels equal
--- to ignore_label are skipped.
--- Example: local metric = pg.metric.Perplexity{ignore_label = 2}
--- metric:update(pg.tensor{1, 2}, pg.tensor{{0.5, 0.5}, {0.8, 0.2}})
--- return metric:get()
local Perplexity = define("Perplexity", "perplexity", {"ignore_label"}, {ignore_label = args.none})

function Perplexity:_check()
  if self.ignore_label ~= nil then args.number("Perplexity", "ignore_label", self.ignore_label) end
end

function Perplexity:measure(label, pred)
  require_order(self, label, pred)
  require_rows(self, label, pred)
  local kept = class_labels(label):reshape{-1}
  local safe, weight, n = kept, nil, nil
  if self.ignore_label ~= nil then
    weight = ops.ne(kept, self.ignore_label)
    safe = ops.where(weight, kept, ops.ones_like(kept))
    n = weight:sum()
  end
  local logs = ops.log(ops.maximum(picked(safe, pred), 1e-10))
  if weight then logs = logs * weight:to(logs.dtype) end
  return -logs:sum(), n or count_of(kept)
end

function Perplexity:finish(sum, count) return math.exp(sum / count) end

--- pg.metric.Loss(): the mean of all values given as preds. It ignores labels.
--- Example: local metric = pg.metric.Loss()
--- metric:update(nil, pg.tensor{1, 3})
--- return metric:get()
local Loss = define("Loss", "loss")

function Loss:update(_, preds)
  args.self("update", self, "metric")
  for _, pred in ipairs(base.as_list("Loss", "preds", preds)) do
    base.add(self, pred.device, pred:detach():sum{dtype = wide(pred)}, count_of(pred))
  end
end

--- pg.metric.PearsonCorrelation(): the correlation of labels and preds, averaged over updates.
--- Example: local metric = pg.metric.PearsonCorrelation()
--- metric:update(pg.tensor{1, 2, 3}, pg.tensor{2, 4, 5})
--- return metric:get()
local Pearson = define("PearsonCorrelation", "pearsonr")
function Pearson:measure(label, pred)
  label, pred = columns(self, label, pred)
  local x, y = (label - label:mean()):to("float64"), (pred - pred:mean()):to("float64")
  return (x * y):sum() / (ops.square(x):sum() * ops.square(y):sum()):sqrt(), 1
end

local function confusion(self, label, pred)
  require_order(self, label, pred)
  if classes_along(label, pred, 2) then
    if pred:dim() ~= 2 or pred:size(2) ~= 2 then
      core.fail(self.name, "bad argument 'preds' (expected scores of 2 classes or one class per label, got %s; class 2 is the positive one)",
                core.describe(pred))
    end
    pred = ops.argmax(pred, 2)
  end
  local table_of_positive = ops.tensor({{0}, {1}}, {device = label.device})  -- it has no other classes
  local positive = ops.embedding(like(self, class_labels(label), pred), table_of_positive):gt(0.5):reshape_as(pred)
  local said = ops.eq(pred, 2)
  local function count(x) return x:sum():to("float64") end
  local hits, n = count(ops.logical_and(positive, said)), count_of(pred)
  local wrong, missed = count(said) - hits, count(positive) - hits
  return {hits = hits, wrong = wrong, missed = missed, rejected = n - hits - wrong - missed}
end

-- Avoids a division of counts by zero: where the divisor is 0, the dividend is 0 too.
local function at_least_one(x) return ops.maximum(x, 1) end

local function f1_score(c) return 2 * c.hits / at_least_one(2 * c.hits + c.wrong + c.missed) end

local function matthews(c)
  local product = 1
  for _, sum in ipairs{c.hits + c.wrong, c.hits + c.missed, c.rejected + c.wrong, c.rejected + c.missed} do
    product = product * at_least_one(sum)
  end
  return (c.hits * c.rejected - c.wrong * c.missed) / product ^ 0.5
end

local function define_binary(name, label, score)
  local kind = define(name, label, {"average"}, {average = "macro"})
  kind._sum_names = {"sum", "count", "hits", "wrong", "missed", "rejected"}

  --- pg.metric.F1({average = "macro"}) and pg.metric.MCC({average = "macro"}) score two classes, where class 2 is the
  --- positive one. "macro" is the mean of the scores of all updates, "micro" the score of the counts of all updates
  --- together.
  --- Example: local f1 = pg.metric.F1{average = "micro"}
  --- f1:update(pg.tensor{2, 1, 2}, pg.tensor{2, 2, 2})
  --- return f1:get()
  function kind:measure(labels, pred)
    local counts = confusion(self, labels, pred)
    if self.average == "macro" then return score(counts), 1 end
    for key, n in pairs(counts) do add_to(self._sums, key, n) end
    return 0, 1
  end

  function kind:_check() args.choice(name, "average", self.average, {"macro", "micro"}) end

  function kind:finish(sum, count, sums) return self.average == "macro" and sum / count or score(sums):item() end
end

define_binary("F1", "f1", f1_score)
define_binary("MCC", "mcc", matthews)

--- pg.metric.PCC(): the correlation of labels and predicted classes, the Matthews correlation coefficient of any number
--- of classes, from the counts of all updates. pred holds classes, or scores with the classes along dim 2. Gorodkin,
--- Comparing two K-category assignments by a K-category correlation coefficient, 2004.
--- Example: local pcc = pg.metric.PCC()
--- pcc:update(pg.tensor{1, 2, 3}, pg.tensor{1, 2, 2})
--- return pcc:get()
local PCC = define("PCC", "pcc")
local most_classes = 4096  -- of the table of counts

-- Returns the largest class of integer tensors.
local function largest_class(...)
  local most = 1
  for _, classes in ipairs{...} do
    local top = ops.amax(classes):item()
    if top ~= top or top > most_classes then core.fail("PCC", "bad argument 'labels' (expected classes up to %d, got %g)", most_classes, top) end
    most = math.max(most, top)
  end
  return most
end

function PCC:measure(label, pred)
  require_order(self, label, pred)
  local classes = classes_along(label, pred, 2)
  if classes then pred = ops.argmax(pred, 2) end
  label = like(self, label, pred)
  if not (core.tracing() and classes) then
    if label:numel() == 0 then return 0, 0 end
    classes = math.max(classes or 1, largest_class(label, pred))
  end
  local function hot(x) return ops.one_hot(x:to("int64"):reshape{-1}, classes):to("float64") end
  add_to(self._sums, "counts", hot(label):t():matmul(hot(pred)))
  return 0, count_of(pred)
end

function PCC:finish(_, _, sums)
  local counts = sums.counts
  local n, labels, preds = counts:sum(), counts:sum(2), counts:sum(1)
  local function spread(x) return n * n - ops.square(x):sum() end
  local product = (spread(labels) * spread(preds)):sqrt():item()
  local shared = (n * counts:trace() - (labels * preds):sum()):item()
  return product == 0 and 0 or shared / product
end

--- pg.metric.CompositeEvalMetric(metrics): several metrics updated together; get() -> lists of names and values.
--- Example: local metric = pg.metric.CompositeEvalMetric{"mae", "mse"}
--- metric:update(pg.tensor{1, 2}, pg.tensor{2, 4})
--- return metric:get()
local Composite = class.new("CompositeEvalMetric")
metrics.CompositeEvalMetric = Composite
Composite._kind = "Metric"

function Composite:init(list)
  self.metrics = {}
  if list ~= nil and not args.plain(list) then core.arg_error("CompositeEvalMetric", "metrics", "a list of metrics", list) end
  for _, metric in ipairs(list or {}) do self:add(metric) end
end

--- composite:add(metric) adds a metric or the name of one.
function Composite:add(metric)
  args.self("add", self, "metric")
  self.metrics[#self.metrics + 1] = metrics.create(metric)
end

function Composite:reset()
  args.self("reset", self, "metric")
  for _, metric in ipairs(self.metrics) do metric:reset() end
end

function Composite:reset_local()
  args.self("reset_local", self, "metric")
  for _, metric in ipairs(self.metrics) do metric:reset_local() end
end

function Composite:update(labels, preds)
  args.self("update", self, "metric")
  for _, metric in ipairs(self.metrics) do metric:update(labels, preds) end
end

local function all_results(self, method)
  args.self(method, self, "metric")
  local names, values = {}, {}
  for i, metric in ipairs(self.metrics) do names[i], values[i] = metric[method](metric) end
  return names, values
end

function Composite:get() return all_results(self, "get") end
function Composite:get_global() return all_results(self, "get_global") end

--- pg.metric.CustomMetric(f[, name]): f(label, pred) -> a number or a tensor of one element, averaged over updates.
--- Example: local metric = pg.metric.CustomMetric(function(label, pred) return (label - pred):abs():max() end, "worst")
--- metric:update(pg.tensor{1, 2}, pg.tensor{2, 4})
--- return metric:get()
local Custom = Metric:extend("CustomMetric")
metrics.CustomMetric = Custom

function Custom:init(f, name)
  args.callable("CustomMetric", "f", f)
  self:setup(name and args.string("CustomMetric", "name", name) or "custom", {f = f})
end

function Custom:measure(label, pred)
  local value = self.f(label, pred)
  if core.is_tensor(value) and value:numel() == 1 then return value, 1 end
  return args.number("CustomMetric", "f(label, pred)", value), 1
end

local by_name = {
  acc = "Accuracy", accuracy = "Accuracy", top_k_accuracy = "TopKAccuracy", top_k_acc = "TopKAccuracy", mae = "MAE", mse = "MSE",
  rmse = "RMSE", ce = "CrossEntropy", ["cross-entropy"] = "CrossEntropy", nll_loss = "NegativeLogLikelihood",
  perplexity = "Perplexity", loss = "Loss", torch = "Loss", caffe = "Loss", f1 = "F1", mcc = "MCC", pcc = "PCC",
  pearsonr = "PearsonCorrelation",
}

--- pg.metric.create(value, …) -> a metric. value is a name (such as "acc"), a list of names or metrics, a function or a
--- metric.
--- Example: return pg.metric.create{"acc", "mae"}:get()
function metrics.create(value, ...)
  if type(value) == "function" then return Custom(value, ...) end
  if type(value) == "table" and rawget(value, "__index") ~= nil then
    local name = value.name or "Accuracy"
    core.fail("metric.create", "bad argument 'value' (expected a metric or its name, got class %s; make one first: metric.%s())", name, name)
  end
  if type(value) == "table" and getmetatable(value) then
    if type(value.update) == "function" and type(value.get) == "function" then return value end
    core.arg_error("metric.create", "value", "a metric or its name", value)
  end
  if type(value) == "table" then return Composite(value) end
  if type(value) ~= "string" then core.arg_error("metric.create", "value", "the name of a metric", value) end
  local found = by_name[value:lower()]
  if found then return metrics[found](...) end
  core.fail("metric.create", "unknown metric '%s'%s", value, choose("metric", value:lower(), by_name))
end

return core.require("support.namespace").seal("metric", metrics)
