-- Losses over labels: bases, ignored samples, dtypes, errors.
local t = require "tests.support"
local pg = require "perigee"

local function labels(list, dtype) return pg.tensor(list, {dtype = dtype or "int64"}) end

t.test("labels are 1..C, from 0 with index_base = 0", function()
  local x = pg.tensor({{1, 2, 3}, {3, 2, 1}})
  local expected = -x:log_softmax(2)
  local mean = (expected[{1, 3}] + expected[{2, 2}]) / 2
  t.close(x:cross_entropy(labels{3, 2}), mean)
  t.close(x:cross_entropy(labels({3, 2}, "int32")), mean)
  t.close(x:cross_entropy(labels({3, 2}, "uint8")), mean)
  t.close(x:cross_entropy(labels{2, 1}, {index_base = 0}), mean)
  t.close(x:log_softmax(2):nll_loss(labels{3, 2}), mean)
end)

t.test("a label outside 1..C is an error that names it", function()
  local x = pg.zeros(2, 3)
  for _, bad in ipairs{0, 4, -1} do
    t.error_contains(function() return x:cross_entropy(labels{1, bad}) end,
             "cross_entropy: bad argument 'target' (expected labels from 1 to 3, or ignore_index -100, got " .. bad .. " at position 2")
    t.error_contains(function() return x:nll_loss(labels{1, bad}) end, "nll_loss: bad argument 'target'")
  end
  t.error_contains(function() return x:cross_entropy(labels{1, 2, 3}) end, "cross_entropy: bad argument 'target'")
  t.error_contains(function() return x:nll_loss(pg.tensor({1, 2})) end, "nll_loss: bad argument 'target'")
end)

t.test("ignored samples count neither in the loss nor in the mean nor in the gradient", function()
  local x = pg.randn(3, 4):attach_grad()
  local loss = pg.record(function() return x:cross_entropy(labels{2, -100, 1}) end)
  loss:backward()
  t.close(loss, x[{{1, 3, 2}}]:cross_entropy(labels{2, 1}), {atol = 1e-6})
  t.equal(x.grad[2]:totable(), {0, 0, 0, 0})
  t.check(x:cross_entropy(labels{0, 0, 0}, {ignore_index = 0}):isnan():item())
end)

t.test("classes are dim 2 of images and dim 1 of 1-D inputs", function()
  local x, y = pg.randn(2, 3, 4, 5), pg.randint(1, 3, {2, 4, 5})
  local flat = x:permute{1, 3, 4, 2}:reshape{-1, 3}
  t.close(x:cross_entropy(y), flat:cross_entropy(y:reshape{-1}), {atol = 1e-6})
  t.close(pg.tensor({1, 2, 3}):cross_entropy(labels(1)), pg.tensor({{1, 2, 3}}):cross_entropy(labels{1}))
end)

t.test("one-hot probabilities are the same as labels", function()
  local x, y = pg.randn(4, 5), labels{1, 5, 3, 2}
  local hot = y:one_hot(5):to("float32")
  for _, options in ipairs{{}, {label_smoothing = 0.3}, {reduction = "sum"}} do
    t.close(x:cross_entropy(y, options), x:cross_entropy(hot, options), {atol = 1e-5})
  end
end)

t.test("half precision computes in float32", function()
  local x, y = pg.randn(4, 5), labels{1, 5, 3, 2}
  local half = x:to("float16"):cross_entropy(y)
  t.equal(half.dtype, "float16")
  t.close(half:to("float32"), x:cross_entropy(y), {atol = 1e-2})
end)

t.test("reductions", function()
  local x, y = pg.tensor({1, 2, 4}), pg.tensor({1, 4, 1})
  t.equal(pg.mse_loss(x, y, {reduction = "none"}):totable(), {0, 4, 9})
  t.equal(pg.mse_loss(x, y, "sum"):item(), 13)
  t.equal(pg.l1_loss(x, y, "sum"):item(), 5)
  t.equal(pg.huber_loss(x, y, {reduction = "none"}):totable(), {0, 1.5, 2.5})
  t.error_contains(function() return pg.mse_loss(x, y, {reduction = "average"}) end, "mse_loss: bad argument 'reduction'")
  t.error_contains(function() return pg.mse_loss(x, pg.zeros(2)) end, "mse_loss: bad argument 'target'")
end)

t.test("squares end in lines, whose slope is exact", function()
  local d = {-1e30, -7, -0.3, 0, 1e-15, 0.3, 1, 7, 1 / 0, 0 / 0}
  for _, dtype in ipairs{"float32", "float64"} do
    local x, zero = pg.tensor(d, {dtype = dtype}), pg.zeros({#d}, {dtype = dtype})
    local function both(f)
      local leaf = x:detach():attach_grad()
      local loss
      pg.record(function()
        loss = f(leaf, zero)
        return loss:sum()
      end):backward()
      return loss:detach(), leaf.grad
    end
    for _, delta in ipairs{0.1, 0.3, 1, 3, 1e-30, 1e30, 1 / 0} do
      local loss, slope = both(function(a, b) return pg.huber_loss(a, b, {reduction = "none", delta = delta}) end)
      local size = x:abs()
      t.equal(slope, x:clamp(-delta, delta), "slope of huber_loss")
      t.close(loss, pg.where(size:gt(delta), (size - delta / 2) * delta, x:square() / 2), {rtol = 1e-6, atol = 0})
    end
    for _, beta in ipairs{0.1, 0.3, 1, 3, 49, 1e-5, 1e30, 1e-30, 1e-39, 1e-45, 1e-300, 1e-320, 0, 1 / 0} do
      local loss, slope = both(function(a, b) return pg.smooth_l1_loss(a, b, {reduction = "none", beta = beta}) end)
      local size, finite = x:abs(), x:isfinite()
      local square = x * (x / math.max(beta, dtype == "float64" and 1e-300 or 1e-30)) / 2
      local expected = pg.where(size:gt(beta), size - math.min(beta, 1e300) / 2, square)
      t.close(pg.where(finite, loss, 0), pg.where(finite, expected, 0), {rtol = 1e-6, atol = 1e-38})
      local inner = beta == 1 / 0 and 0 * x or (x:to("float64") / math.max(beta, 1e-300)):to(dtype)
      expected = pg.where(size:gt(beta), x:sign(), inner)
      t.close(pg.where(finite, slope, 0), pg.where(finite, expected, 0), {rtol = 1e-6, atol = 0})
      t.equal(pg.where(size:gt(beta), slope, x:sign()), x:sign(), "slope of smooth_l1_loss")
    end
  end
end)

t.test("cross_entropy of samples at positions is that of the samples as rows", function()
  local function value_and_gradient(x, y, options)
    x = x:detach():contiguous():attach_grad()
    local loss = pg.record(function() return x:cross_entropy(y, options) end)
    loss:backward(pg.range(1, loss:numel()):reshape(loss.shape) / loss:numel())
    return loss, x.grad
  end
  for _, size in ipairs{{1, 2, 1030}, {2, 21, 7, 5}, {3, 5, 19}} do
    local x, classes = pg.randn(size) * 4, size[2]
    local y = pg.randint(1, classes, x:select(2, 1).shape)
    y[y:eq(2)] = -100
    x[{1, {}, 1}] = x[{1, {}, 1}] * 1e4
    local rows = x:reshape{size[1], classes, -1}:transpose(2, 3):reshape{-1, classes}
    for _, weight in ipairs{false, pg.rand(classes) + 0.5} do
      for _, smoothing in ipairs{0, 0.2} do
        for _, reduction in ipairs{"none", "mean", "sum"} do
          local options = {weight = weight or nil, label_smoothing = smoothing, reduction = reduction}
          local loss, gradient = value_and_gradient(x, y, options)
          local expected, expected_gradient = value_and_gradient(rows, y:reshape{-1}, options)
          t.close(loss:reshape{-1}, expected:reshape{-1}, {rtol = 1e-5, atol = 1e-5})
          expected_gradient = expected_gradient:reshape{size[1], -1, classes}:transpose(2, 3):reshape(size)
          t.close(gradient, expected_gradient, {rtol = 1e-5, atol = 1e-6})
        end
      end
    end
  end
end)

t.test("cross_entropy of large logits keeps the digits of their differences", function()
  local logits = {{1000, 999}, {1000, 980}, {-1000, -1001}, {20, 3}}
  for _, classes in ipairs{2, 40} do
    for _, smoothing in ipairs{0, 0.1} do
      local function values(dtype, columns)
        local x = pg.tensor(logits, {dtype = dtype})
        x = pg.cat({x, x:narrow(2, 2, 1):expand(4, classes - 2) - 500}, 2):attach_grad()
        local targets = pg.tensor({1, 1, 2, 1}, {dtype = "int64"})
        local y = pg.record(function()
          local scores = columns and x:t():unsqueeze(1) or x
          return scores:cross_entropy(columns and targets:unsqueeze(1) or targets, {reduction = "none", label_smoothing = smoothing})
        end)
        y:backward()
        return y:to("float64"):flatten(), x.grad:to("float64")
      end
      local loss, grad = values("float64")
      for _, columns in ipairs{false, true} do
        local l, g = values("float32", columns)
        t.close(l, loss, {rtol = 1e-6, atol = 1e-7})
        t.close(g, grad, {rtol = 1e-6, atol = 1e-7})
      end
    end
  end
end)
