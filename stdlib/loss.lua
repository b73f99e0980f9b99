-- pg.loss: Gluon's losses. loss(pred, label[, sample_weight]) returns one value per sample.
local core = ...
local args = core.require("support.args")
local HybridBlock = core.require("nn.block").HybridBlock
local ops = core.ops
local losses = {}

--- pg.loss.Loss is the base class of losses. All take the options weight (a factor) and batch_axis (default 1).
local Loss = HybridBlock:extend("Loss")
losses.Loss = Loss
Loss._any_inputs = true

local function define(name, names, spec)
  local class = Loss:extend(name)
  spec.weight, spec.batch_axis = spec.weight or args.none, 1
  function class:init(...)
    if core.is_tensor((select(1, ...))) then
      core.fail(name, "bad argument '%s' (expected an option, got a tensor; make the loss first: local loss_fn = loss.%s(), "
                .. "then loss_fn(pred, label))", names[1], name)
    end
    local o = args.read(name, names, spec, ...)
    if o.weight ~= nil then args.number(name, "weight", o.weight) end
    self._weight = o.weight or 1
    self._batch_axis = args.count(name, "batch_axis", o.batch_axis, 1)
    for key, value in pairs(o) do
      if key ~= "weight" and key ~= "batch_axis" then
        local default = spec[key]
        if type(default) == "boolean" then args.boolean(name, key, value)
        elseif type(default) == "number" then args.number(name, key, value) end
        self["_" .. key] = value
      end
    end
  end
  function class:describe() return "" end
  losses[name] = class
  return class
end

-- Returns label in the shape of pred, or another two arguments with their names. Raises if the number of elements differs.
local function like(self, label, pred, name, of)
  if core.tracing() then  -- reading a size would guard it
    local ok, shaped = pcall(ops.reshape_as, label, pred)
    if ok then return shaped end
  elseif label:numel() == pred:numel() then
    return label:reshape_as(pred)
  end
  core.arg_error(self._name, name or "label", ("as many elements as %s, which is %s"):format(of or "pred", core.describe(pred)), label)
end

-- Reshapes weights, one per sample, so that they broadcast along the batch dim.
local function spread(self, weight, l)
  if not core.is_tensor(weight) then return weight end
  local rank, own = l:dim(), weight:dim()
  if own > rank then return like(self, weight, l, "sample_weight", "the losses") end
  if own ~= 1 or rank < 2 then return weight end
  local shape = {}
  for i = 1, rank do shape[i] = i == self._batch_axis and -1 or 1 end
  return weight:reshape(shape)
end

local function weigh(self, l, sample_weight)
  if sample_weight ~= nil then l = l * spread(self, sample_weight, l) end
  if self._weight ~= 1 then l = l * self._weight end
  return l
end

local other_dims = {}
for axis = 1, 4 do
  other_dims[axis] = {}
  for rank = 1, 8 do
    local dims = {}
    for i = 1, rank do if i ~= axis then dims[#dims + 1] = i end end
    other_dims[axis][rank] = dims
  end
end

local function reduce(self, l, op)
  local rank = l:dim()
  local dims = other_dims[self._batch_axis] and other_dims[self._batch_axis][rank]
  if not dims or self._batch_axis > rank then
    core.arg_error(self._name, "pred", "a tensor with a dim " .. self._batch_axis .. " for the batch", l)
  end
  if #dims == 0 then return l end
  return op(l, dims)
end

local function mean(self, l) return reduce(self, l, ops.mean) end

--- pg.loss.L2Loss({weight = 1, batch_axis = 1}): the mean of (pred - label)² / 2 over each sample.
--- Example: return pg.loss.L2Loss()(pg.tensor{{1, 2}, {3, 4}}, pg.tensor{{1, 2}, {3, 6}})
local L2Loss = define("L2Loss", {"weight", "batch_axis"}, {weight = 1})

function L2Loss:forward(pred, label, sample_weight)
  local l = ops.square(like(self, label, pred) - pred) * 0.5
  return mean(self, weigh(self, l, sample_weight))
end

--- pg.loss.L1Loss({weight=, batch_axis = 1}): the mean of |pred - label| over each sample.
--- Example: return pg.loss.L1Loss()(pg.tensor{{1, 2}}, pg.tensor{{0, 4}})
local L1Loss = define("L1Loss", {"weight", "batch_axis"}, {})

function L1Loss:forward(pred, label, sample_weight)
  return mean(self, weigh(self, ops.abs(like(self, label, pred) - pred), sample_weight))
end

local function logistic(pred, label, pos_weight)
  return ops.binary_cross_entropy_with_logits(pred, label, {reduction = "none", pos_weight = pos_weight})
end

--- pg.loss.SigmoidBinaryCrossEntropyLoss({from_sigmoid = false, weight=, batch_axis = 1}), called as
--- loss(pred, label[, sample_weight[, pos_weight]]): binary cross entropy of logits, or of probabilities.
--- Example: return pg.loss.SigmoidBinaryCrossEntropyLoss()(pg.tensor{{0.5, -1}}, pg.tensor{{1, 0}})
local SigmoidBCE = define("SigmoidBinaryCrossEntropyLoss", {"from_sigmoid", "weight", "batch_axis"}, {from_sigmoid = false})
losses.SigmoidBCELoss = SigmoidBCE

-- log(1 - p + eps), with the digits of a small p.
local function log_of_rest(p, eps)
  return ops.where(p:lt(0.5), ops.log1p(-ops.minimum(p, 0.5)), ops.log(1 - p + eps))
end

-- Half precision cannot hold eps.
local function binary_of_probabilities(pred, label, pos_weight)
  local eps, half = 1e-12, pred.dtype:find("float16") and pred.dtype
  if half then pred, label = pred:to("float32"), label:to("float32") end
  local yes = ops.log(pred + eps) * label
  if pos_weight ~= nil then yes = yes * pos_weight end
  local loss = -(yes + log_of_rest(pred, eps) * (1 - label))
  return half and loss:to(half) or loss
end

function SigmoidBCE:forward(pred, label, sample_weight, pos_weight)
  label = like(self, label, pred)
  if label.dtype ~= pred.dtype then label = label:to(pred.dtype) end
  local binary = self._from_sigmoid and binary_of_probabilities or logistic
  return mean(self, weigh(self, binary(pred, label, pos_weight), sample_weight))
end

--- pg.loss.SoftmaxCrossEntropyLoss({axis = -1, sparse_label = true, from_logits = false, weight=, batch_axis = 1}):
--- cross entropy with class labels 1..C, or with distributions if sparse_label is false. from_logits = true means that
--- pred holds log-probabilities, as in Gluon.
--- Example: return pg.loss.SoftmaxCrossEntropyLoss()(pg.tensor{{2, 1}, {0, 3}}, pg.tensor({1, 2}, {dtype = "int64"}))
local SoftmaxCE = define("SoftmaxCrossEntropyLoss", {"axis", "sparse_label", "from_logits", "weight", "batch_axis"},
                         {axis = -1, sparse_label = true, from_logits = false})
losses.SoftmaxCELoss = SoftmaxCE

local per_sample = {reduction = "none"}
local class_labels = core.require("support.class_labels")

-- Returns the loss of class labels, in the shape of pred without its class dim. The ops check that labels are in 1..C.
local function sparse_loss(self, pred, label, axis)
  if label:dim() == pred:dim() then label = label:squeeze(axis) end
  if axis ~= 2 then pred = pred:moveaxis(axis, 2) end
  return (self._from_logits and ops.nll_loss or ops.cross_entropy)(pred, class_labels(label), per_sample)
end

function SoftmaxCE:forward(pred, label, sample_weight)
  if not self._sparse_label then
    local p = self._from_logits and pred or ops.log_softmax(pred, self._axis)
    local l = -ops.sum(p * like(self, label, pred), self._axis, true)
    return mean(self, weigh(self, l, sample_weight))
  end
  local rank, axis = pred:dim(), self._axis
  if rank < 2 then
    core.fail(self._name, "bad argument 'pred' (expected scores of shape batch x classes, got %s; the order is loss(pred, label))",
              core.describe(pred))
  end
  if axis < 0 then axis = rank + 1 + axis end
  local l = sparse_loss(self, pred, label, axis)
  if rank == 2 and sample_weight == nil and self._weight == 1 then return l end
  return mean(self, weigh(self, l:unsqueeze(axis), sample_weight))
end

--- pg.loss.HuberLoss({rho = 1, weight=, batch_axis = 1}): quadratic for errors up to rho, linear above.
--- Example: return pg.loss.HuberLoss()(pg.tensor{{1, 2}}, pg.tensor{{0.5, 5}})
local HuberLoss = define("HuberLoss", {"rho", "weight", "batch_axis"}, {rho = 1})

function HuberLoss:forward(pred, label, sample_weight)
  local distance = ops.abs(like(self, label, pred) - pred)
  local rho = self._rho
  local l = ops.where(ops.gt(distance, rho), distance - 0.5 * rho, ops.square(distance) * (0.5 / rho))
  return mean(self, weigh(self, l, sample_weight))
end

--- pg.loss.HingeLoss({margin = 1, weight=, batch_axis = 1}): max(0, margin - pred * label), with labels -1 and 1.
--- Example: return pg.loss.HingeLoss()(pg.tensor{{0.5, -2}}, pg.tensor{{1, -1}})
local HingeLoss = define("HingeLoss", {"margin", "weight", "batch_axis"}, {margin = 1})

function HingeLoss:forward(pred, label, sample_weight)
  return mean(self, weigh(self, ops.relu(self._margin - pred * like(self, label, pred)), sample_weight))
end

--- pg.loss.SquaredHingeLoss({margin = 1, weight=, batch_axis = 1}): the square of HingeLoss's terms.
--- Example: return pg.loss.SquaredHingeLoss()(pg.tensor{{0.5, -2}}, pg.tensor{{1, -1}})
local SquaredHingeLoss = define("SquaredHingeLoss", {"margin", "weight", "batch_axis"}, {margin = 1})

function SquaredHingeLoss:forward(pred, label, sample_weight)
  return mean(self, weigh(self, ops.square(ops.relu(self._margin - pred * like(self, label, pred))), sample_weight))
end

--- pg.loss.LogisticLoss({weight=, batch_axis = 1, label_format = "signed" or "binary"}): log(1 + exp(-pred * label)).
--- Example: return pg.loss.LogisticLoss()(pg.tensor{{0.5, -2}}, pg.tensor{{1, -1}})
local LogisticLoss = define("LogisticLoss", {"weight", "batch_axis", "label_format"}, {label_format = "signed"})

function LogisticLoss:forward(pred, label, sample_weight)
  args.choice("LogisticLoss", "label_format", self._label_format, {"signed", "binary"})
  label = like(self, label, pred)
  if self._label_format == "signed" then label = (label + 1) / 2 end
  return mean(self, weigh(self, logistic(pred, label), sample_weight))
end

--- pg.loss.TripletLoss({margin = 1, weight=, batch_axis = 1}), called as loss(anchor, positive, negative):
--- max(0, |positive - anchor|² - |negative - anchor|² + margin).
--- Example: return pg.loss.TripletLoss()(pg.tensor{{1, 2}}, pg.tensor{{1, 1}}, pg.tensor{{2, 2}})
local TripletLoss = define("TripletLoss", {"margin", "weight", "batch_axis"}, {margin = 1})

function TripletLoss:forward(anchor, positive, negative, sample_weight)
  positive, negative = like(self, positive, anchor, "positive", "anchor"), like(self, negative, anchor, "negative", "anchor")
  local l = reduce(self, ops.square(positive - anchor) - ops.square(negative - anchor), ops.sum)
  return weigh(self, ops.relu(l + self._margin), sample_weight)
end

--- pg.loss.KLDivLoss({from_logits = true, axis = -1, weight=, batch_axis = 1}): the sum of label * (log label - pred)
--- over each sample. pred holds log-probabilities, or scores if from_logits is false.
--- Example: return pg.loss.KLDivLoss{from_logits = false}(pg.tensor{{1, 2}}, pg.tensor{{0.25, 0.75}})
local KLDivLoss = define("KLDivLoss", {"from_logits", "axis", "weight", "batch_axis"}, {from_logits = true, axis = -1})

function KLDivLoss:forward(pred, label, sample_weight)
  if not self._from_logits then pred = ops.log_softmax(pred, self._axis) end
  label = like(self, label, pred)
  local l = label * (ops.log(label + 1e-12) - pred)
  return reduce(self, weigh(self, l, sample_weight), ops.sum)
end

--- pg.loss.PoissonNLLLoss({weight=, from_logits = true, batch_axis = 1, compute_full = false}): the negative log
--- likelihood of counts, averaged over all elements. compute_full adds Stirling's approximation of log(label!).
--- Example: return pg.loss.PoissonNLLLoss()(pg.tensor{{0.5, 1}}, pg.tensor{{1, 3}})
local PoissonNLLLoss = define("PoissonNLLLoss", {"weight", "from_logits", "batch_axis", "compute_full"},
                              {from_logits = true, compute_full = false})

function PoissonNLLLoss:forward(pred, label, sample_weight, epsilon)
  label = like(self, label, pred)
  local l
  if self._from_logits then l = ops.exp(pred) - label * pred
  else l = pred - label * ops.log(pred + (epsilon or 1e-8)) end
  if self._compute_full then
    local n = ops.maximum(label, 1)  -- others are not used, but their gradients would be NaN
    local stirling = n * ops.log(n) - n + 0.5 * ops.log(2 * math.pi * n)
    l = l + ops.where(ops.gt(label, 1), stirling, 0)
  end
  return ops.mean(weigh(self, l, sample_weight))
end

--- pg.loss.CosineEmbeddingLoss({weight=, batch_axis = 1, margin = 0}), called as loss(x1, x2, label): 1 - cos if label
--- is 1, max(0, cos - margin) if it is -1.
--- Example: return pg.loss.CosineEmbeddingLoss()(pg.tensor{{1, 2}, {1, 2}}, pg.tensor{{2, 4}, {3, 0}}, pg.tensor{1, -1})
local CosineEmbeddingLoss = define("CosineEmbeddingLoss", {"weight", "batch_axis", "margin"}, {margin = 0})

function CosineEmbeddingLoss:forward(x1, x2, label, sample_weight)
  local similarity = ops.cosine_similarity(like(self, x1, x2, "x1", "x2"), x2, -1)
  label = like(self, label, similarity, "label", "the similarities")
  local apart = ops.relu(similarity - self._margin)
  return weigh(self, ops.where(ops.eq(label, 1), 1 - similarity, apart), sample_weight)
end

--- pg.loss.CTCLoss({layout = "NTC" or "TNC", label_layout = "NT" or "TN", weight=}), called as
--- loss(pred, label[, pred_lengths[, label_lengths[, sample_weight]]]) with scores of C classes, of which class C is the
--- blank: -log of the probability of the labels 1..C-1, one value a sample. Without label_lengths the labels of a sample
--- end before its first label below 1. See pg.ctc_loss.
--- Example: local pred, label = pg.zeros(2, 5, 4), pg.tensor({{1, 2}, {3, 0}}, {dtype = "int64"})
--- return pg.loss.CTCLoss()(pred, label)
local CTCLoss = define("CTCLoss", {"layout", "label_layout", "weight"}, {layout = "NTC", label_layout = "NT"})
local read_ctc_options = CTCLoss.init

function CTCLoss:init(...)
  read_ctc_options(self, ...)
  args.choice("CTCLoss", "layout", self._layout, {"NTC", "TNC"})
  args.choice("CTCLoss", "label_layout", self._label_layout, {"NT", "TN"})
  if self._batch_axis ~= 1 then core.arg_error("CTCLoss", "batch_axis", "1 (the layouts say where the batch is)", self._batch_axis) end
end

function CTCLoss:forward(pred, label, pred_lengths, label_lengths, sample_weight)
  if pred:dim() ~= 3 then core.arg_error("CTCLoss", "pred", "scores in layout " .. self._layout, pred) end
  if label:dim() ~= 2 then core.arg_error("CTCLoss", "label", "labels in layout " .. self._label_layout, label) end
  if self._layout == "NTC" then pred = pred:transpose(1, 2) end
  if self._label_layout == "TN" then label = label:transpose(1, 2) end
  if label_lengths == nil then label_lengths = ops.sum(ops.cumprod(ops.ge(label, 1):to("int64"), 2), 2) end
  local l = ops.ctc_loss(ops.log_softmax(pred, 3), label, pred_lengths, label_lengths, {blank = pred:size(3), reduction = "none"})
  return weigh(self, l, sample_weight)
end

--- pg.loss.SDMLLoss({smoothing_parameter = 0.3, weight = 1, batch_axis = 1}), called as loss(x1, x2[, sample_weight]) with
--- vectors (batch, size): row i of x1 belongs to row i of x2, and every other row of x2 is a wrong partner. The loss is the
--- divergence of softmax(-squared distances of row i) from the labels 1 - smoothing_parameter for row i and an equal share
--- of the rest for the others. The batch must have two rows or more. Bonadiman et al., Large Scale Question Paraphrase
--- Retrieval with Smoothed Deep Metric Learning, 2019.
--- Example: local x = pg.tensor{{0, 0}, {3, 4}}
--- return pg.loss.SDMLLoss()(x, x)
local SDMLLoss = define("SDMLLoss", {"smoothing_parameter", "weight", "batch_axis"}, {smoothing_parameter = 0.3, weight = 1})

local read_options = SDMLLoss.init

function SDMLLoss:init(...)
  read_options(self, ...)
  args.number("SDMLLoss", "smoothing_parameter", self._smoothing_parameter, 0, 1)
  if self._batch_axis ~= 1 then core.arg_error("SDMLLoss", "batch_axis", "1", self._batch_axis) end
end

-- Returns the labels (batch, batch). No size is read, so one graph serves all batch sizes.
local function smoothed_labels(distances, smoothing)
  local ones = ops.ones_like(ops.select(distances:detach(), 2, 1))
  local row = ops.cumsum(ops.ones_like(ones, {dtype = "int64"}), 1)
  local share = smoothing / (ops.sum(ones, {dtype = "float64"}) - 1):to(distances.dtype)
  return ops.where(ops.eq(ops.unsqueeze(row, 2), ops.unsqueeze(row, 1)), 1 - smoothing, share)
end

function SDMLLoss:forward(x1, x2, sample_weight)
  if x1:dim() ~= 2 then core.arg_error("SDMLLoss", "x1", "vectors (batch, size)", x1) end
  local distances = ops.sum(ops.square(ops.unsqueeze(x1, 2) - ops.unsqueeze(like(self, x2, x1, "x2", "x1"), 1)), 3)
  local l = ops.kl_div(ops.log_softmax(-distances, 2), smoothed_labels(distances, self._smoothing_parameter), per_sample)
  return weigh(self, ops.sum(l, 2), sample_weight)
end

local operands = {TripletLoss = {"anchor", "positive"}, CosineEmbeddingLoss = {"x1", "x2"}, SDMLLoss = {"x1", "x2"}}

-- Each loss checks its first two arguments, which are tensors.
for name, class in pairs(losses) do
  local forward, names = rawget(class, "forward"), operands[name] or {"pred", "label"}
  if forward then
    function class:forward(x, y, ...)
      args.tensor(self._name, names[1], x)
      args.tensor(self._name, names[2], y)
      return forward(self, x, y, ...)
    end
  end
end

return core.require("support.namespace").seal("loss", losses)
