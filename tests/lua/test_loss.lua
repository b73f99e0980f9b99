-- Losses against MXNet, and their options.
local t = require "tests.support"
local gradcheck = require "tests.gradcheck"
local json = require "tests.json"
local layers = require "tests.layers"
local pg = require "perigee"

-- The arguments of each loss in order. Labels that are classes count from 0 there.
local order = {
  TripletLoss = {"pred", "positive", "negative"}, PoissonNLLLoss = {"pred", "target"},
  CosineEmbeddingLoss = {"pred", "b", "label"}, CTCLoss = {"pred", "label", "pred_lengths", "label_lengths"},
}
local sparse = {["SoftmaxCrossEntropyLoss.007"] = true, ["SoftmaxCrossEntropyLoss.009"] = true,
                ["CTCLoss.019"] = true, ["CTCLoss.020"] = true}

local function run_case(case, values)
  local inputs = {}
  for i, name in ipairs(order[case.op] or {"pred", "label", "sample_weight"}) do
    local key = case.inputs[name]
    if key then inputs[i] = values[key] + (sparse[case.id] and name == "label" and 1 or 0) end
  end
  local names = order[case.op] or {"pred", "label"}
  local leaves = {}
  for i, name in ipairs(names) do if case.grads[name] then leaves[name] = inputs[i]:attach_grad() end end
  local loss = pg.loss[case.op](case.attrs)
  local out = pg.record(function() return loss(unpack(inputs)) end)
  local expected, head = values[case.outputs[1]], values[case.heads[1]]
  local tolerance = {rtol = case.rtol, atol = case.atol, what = case.id}
  t.close(out:reshape{-1}, expected:reshape{-1}, tolerance)
  out:backward{grad = head:reshape_as(out)}
  for name, key in pairs(case.grads) do t.close(leaves[name].grad, values[key], tolerance) end
end

t.test("values and gradients of MXNet", function()
  local manifest = json.decode(t.read(t.shared("data/fixtures/mxnet_ops/manifest.json")))
  local values = pg.load(t.shared("data/fixtures/mxnet_ops/mxnet_ops.safetensors"))
  local ran = 0
  for _, case in ipairs(manifest.cases) do
    if case.group == "loss" then
      run_case(case, values)
      ran = ran + 1
    end
  end
  t.check(ran == 21, ran)
end)

t.test("BatchNorm as MXNet's", function()
  local manifest = json.decode(t.read(t.shared("data/fixtures/mxnet_ops/manifest.json")))
  local values = pg.load(t.shared("data/fixtures/mxnet_ops/mxnet_ops.safetensors"))
  for _, case in ipairs(manifest.cases) do
    if case.op == "BatchNorm" then
      local bn = pg.nn.BatchNorm{momentum = case.attrs.momentum, epsilon = case.attrs.eps}
      local names = {gamma = "gamma", beta = "beta", running_mean = "moving_mean", running_var = "moving_var"}
      bn:initialize()
      for field, name in pairs(names) do bn[field]:set_data(values[case.inputs[name]]) end
      local x = values[case.inputs.data]:attach_grad()
      local y = pg.record(function() return bn(x) end, {train = case.train_mode})
      local tolerance = {rtol = 1e-3, atol = 1e-4, what = case.id}
      t.close(y, values[case.outputs[1]], tolerance)
      y:backward{grad = values[case.heads[1]]}
      t.close(x.grad, values[case.grads.data], tolerance)
      t.close(bn.gamma.grad, values[case.grads.gamma], tolerance)
      t.close(bn.running_mean, values[case.new.moving_mean], tolerance)
      t.close(bn.running_var, values[case.new.moving_var], tolerance)
    end
  end
end)

t.test("losses return one value per sample, with weights of either form", function()
  local pred, label = pg.tensor{{1, 2}, {3, 4}}, pg.tensor{{0, 0}, {0, 0}}
  local l2 = pg.loss.L2Loss()
  t.equal(l2(pred, label):totable(), {1.25, 6.25})
  t.equal(l2(pred, label, pg.tensor{1, 0}):totable(), {1.25, 0})
  t.equal(l2(pred, label, pg.tensor{{1}, {0}}):totable(), {1.25, 0})
  t.equal(pg.loss.L2Loss{weight = 2}(pred, label):totable(), {2.5, 12.5})
end)

t.test("labels are reshaped to predictions, or refused with both shapes", function()
  local pred, label = pg.tensor{{0.25, 0.5}, {0.75, 0.125}}, pg.tensor{0.5, 0.5, 0.25, 0.75}
  for _, name in ipairs{"L2Loss", "L1Loss", "SigmoidBinaryCrossEntropyLoss", "HuberLoss", "HingeLoss", "SquaredHingeLoss", "LogisticLoss",
                        "KLDivLoss", "PoissonNLLLoss"} do
    for _, hybrid in ipairs{false, true} do
      local loss = pg.loss[name]()
      if hybrid then loss:hybridize() end
      t.equal(loss(pred, label), pg.loss[name]()(pred, label:reshape{2, 2}), name)
      t.error_contains(function() return loss(pred, pg.ones(2)) end,
                       name .. ": bad argument 'label' (expected as many elements as pred, which is float32 2x2")
    end
  end
  local function refuses(name, argument, ...)
    local inputs = {...}
    t.error_contains(function() return pg.loss[name]()(unpack(inputs)) end, ("%s: bad argument '%s' (expected as many elements as"):format(name, argument))
  end
  refuses("TripletLoss", "positive", pred, label[{{1, 2}}], pred)
  refuses("TripletLoss", "negative", pred, pred, pg.ones(2, 3))
  refuses("CosineEmbeddingLoss", "x1", pg.ones(2, 3), pred, pg.ones(2))
  refuses("CosineEmbeddingLoss", "label", pred, pred, pred)
  refuses("SDMLLoss", "x2", pred, pg.ones(3, 2))
end)

t.test("class labels out of range are an error", function()
  local ce = pg.loss.SoftmaxCrossEntropyLoss()
  local weighted, logits = pg.loss.SoftmaxCrossEntropyLoss{weight = 2}, pg.loss.SoftmaxCrossEntropyLoss{from_logits = true}
  for _, label in ipairs{0, 4, -1} do
    for _, f in ipairs{ce, weighted, logits} do
      t.error_contains(function() f(pg.ones(1, 3), pg.tensor({label}, {dtype = "int64"})) end, tostring(label))
    end
  end
  t.close(ce(pg.zeros(1, 3), pg.tensor({3}, {dtype = "int64"})), {math.log(3)})
  local dense = pg.loss.SoftmaxCrossEntropyLoss{axis = 2}
  t.equal(dense(pg.zeros(2, 3, 4), pg.ones({2, 4}, {dtype = "int64"})).shape, {2})
  t.error_contains(function() pg.loss.SoftmaxCrossEntropyLoss{sparse_labels = true} end, "sparse_label")
end)

-- SDMLLoss by the definition of Gluon 1.7, with numbers.
local function sdml(x1, x2, smoothing)
  local n, out = #x1, {}
  for i = 1, n do
    local scores, sum = {}, 0
    for j = 1, n do
      local d = 0
      for k = 1, #x1[i] do d = d + (x1[i][k] - x2[j][k]) ^ 2 end
      scores[j] = -d
      sum = sum + math.exp(-d)
    end
    out[i] = 0
    for j = 1, n do
      local label = i == j and 1 - smoothing or smoothing / (n - 1)
      if label > 0 then out[i] = out[i] + label * (math.log(label) - scores[j] + math.log(sum)) end
    end
  end
  return out
end

t.test("SDMLLoss by its definition, for all batch sizes with one graph", function()
  pg.manual_seed(1)
  local near = {rtol = 1e-4, atol = 1e-5}
  for _, smoothing in ipairs{0.3, 0, 0.5} do
    local loss = pg.loss.SDMLLoss{smoothing_parameter = smoothing}
    loss:hybridize()
    for _, n in ipairs{2, 5, 3} do
      local x1, x2 = pg.randn(n, 4), pg.randn(n, 4)
      t.close(loss(x1, x2), sdml(x1:totable(), x2:totable(), smoothing), near)
    end
    t.equal(loss:cache_info().traces, 1)
  end
  local x1, x2 = pg.randn(3, 2), pg.randn(3, 2)
  local loss = pg.loss.SDMLLoss(0.2, 2)
  local l = layers.check(loss, x1, x2)
  t.close(l, pg.tensor(sdml(x1:totable(), x2:totable(), 0.2)) * 2, near)
  t.close(loss(x1, x2, pg.tensor{1, 0, 2}), l * pg.tensor{1, 0, 2}, near)
  layers.gradients(loss, gradcheck.random{3, 4}, gradcheck.random{3, 4})
end)

t.test("wrong arguments of SDMLLoss", function()
  t.bad_argument(function() pg.loss.SDMLLoss(2) end, "SDMLLoss", "smoothing_parameter")
  t.bad_argument(function() pg.loss.SDMLLoss{batch_axis = 2} end, "SDMLLoss", "batch_axis")
  t.bad_argument(function() pg.loss.SDMLLoss()(pg.ones(3), pg.ones(3)) end, "SDMLLoss", "x1")
  t.bad_argument(function() pg.loss.SDMLLoss()(pg.ones(3, 2), 1) end, "SDMLLoss", "x2")
  t.error_contains(function() pg.loss.SDMLLoss()(pg.ones(3, 2), pg.ones(2, 2)) end, "SDMLLoss: bad argument 'x2'")
end)

t.test("a sample_weight with a dim more than the losses counts one value a sample", function()
  local x, zeros, weight = pg.tensor{1, 2, 3}, pg.zeros(3), pg.tensor{{1}, {0}, {2}}
  t.equal(pg.loss.L2Loss()(x, zeros, weight):totable(), {0.5, 0, 9})
  local rows = pg.tensor{{1, 2}, {3, 4}, {5, 6}}
  t.equal(pg.loss.TripletLoss()(rows, rows, rows + 1, weight).shape, {3})
  t.equal(pg.loss.CosineEmbeddingLoss()(rows, rows, pg.ones(3), weight).shape, {3})
  t.error_contains(function() pg.loss.L2Loss()(x, zeros, pg.ones(2, 1)) end, "L2Loss: bad argument 'sample_weight'")
end)

t.test("gradients at zero vectors and at labels of 0 are finite, labels that are not whole are refused", function()
  local a = pg.tensor{{0, 0}, {1, 2}}:attach_grad()
  pg.record(function() return pg.loss.CosineEmbeddingLoss()(a, pg.tensor{{1, 2}, {2, 1}}, pg.ones(2)):sum() end):backward()
  t.check(a.grad:isfinite():all():item())
  local label = pg.tensor{0, 1, 2}:attach_grad()
  pg.record(function() return pg.loss.PoissonNLLLoss{compute_full = true}(pg.ones(3), label):sum() end):backward()
  t.close(label.grad, pg.tensor{-1 / 3, -1 / 3, (math.log(2) - 1 + 0.25) / 3}, {atol = 1e-6})
  local loss = pg.loss.SoftmaxCrossEntropyLoss()
  t.equal(loss(pg.zeros(2, 2), pg.tensor{1, 2}):totable(), loss(pg.zeros(2, 2), pg.tensor({1, 2}, {dtype = "int64"})):totable())
  t.error_contains(function() loss(pg.zeros(3, 2), pg.tensor{1.7, 2, 1}) end, "cross_entropy: bad argument 'target'")
end)
