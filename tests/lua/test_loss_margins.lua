-- Losses of pairs, margins and distributions, and the weights of elementwise losses. The numbers are those of PyTorch
-- 2.15, with labels from 1.
local t = require "tests.support"
local pg = require "perigee"

local function whole(list) return pg.tensor(list, {dtype = "int64"}) end
local function close(x, list) t.close(x, pg.tensor(list), {atol = 2e-6, rtol = 1e-5}) end
local none = {reduction = "none"}
local function with(options) options.reduction = "none" return options end

local a, b, v = pg.tensor{0.5, -1.2, 2}, pg.tensor{1, -1, 0.5}, pg.tensor{0.5, 1, 2}
local sign = whole{1, -1, 1}
local p, q, n = pg.tensor{{1, 2, 3}, {0, 1, 0}}, pg.tensor{{1, 1, 3}, {2, 1, 0}}, pg.tensor{{2, 2, 2}, {0, 1, 1}}
local x = pg.tensor{{0.1, 0.2, 0.4, 0.8}, {0.3, -0.2, 0.5, 0.1}}

t.test("poisson_nll_loss", function()
  close(a:poisson_nll_loss(pg.tensor{1, 0, 3}, none), {1.148721, 0.301194, 1.389056})
  close(a:abs():poisson_nll_loss(pg.tensor{1, 2, 3}, with{log_input = false, full = true}), {1.193147, 1.487163, 1.68464})
end)

t.test("gaussian_nll_loss", function()
  close(a:gaussian_nll_loss(b, v, none), {-0.096574, 0.02, 0.909074})
  close(a:gaussian_nll_loss(b, pg.tensor{0, 1, 2}, with{full = true, eps = 0.25}), {0.725791, 0.938938, 1.828012})
  close(a:gaussian_nll_loss(b, 1, none), {0.125, 0.02, 1.125})
  t.equal(pg.ones(2, 3):gaussian_nll_loss(pg.ones(2, 3), pg.ones(2), none).shape, {2, 3})
  local text = "gaussian_nll_loss: bad argument 'var' (expected variances of at least 0, got a negative one)"
  t.error_contains(function() a:gaussian_nll_loss(b, pg.tensor{1, -1, 1}) end, text)
  t.error_contains(function() pg.jit(function(s) return a:gaussian_nll_loss(b, s) end)(pg.tensor{1, -1, 1}) end, text)
  t.error_contains(function() a:gaussian_nll_loss(b, pg.ones(2)) end, "gaussian_nll_loss: bad argument 'var' (expected a shape that expands to 3")
  local var = pg.tensor{0, 1, 2}:attach_grad()  -- the limit lets the gradient pass
  pg.record(function() return a:gaussian_nll_loss(b, var, {eps = 0.25, reduction = "sum"}) end):backward()
  close(var.grad, {0, 0.48, -0.03125})
end)

t.test("losses of signs", function()
  close(a:hinge_embedding_loss(sign, with{margin = 0.5}), {0.5, 1.7, 2})
  close(a:margin_ranking_loss(b, sign, with{margin = 0.25}), {0.75, 0.05, 0})
  close(a:soft_margin_loss(sign, none), {0.474077, 0.263282, 0.126928})
  close(pg.tensor{-1000}:soft_margin_loss(whole{1}), 1000)
end)

t.test("binary losses take labels of the shape of x, but for dims of size 1", function()
  local scores = pg.tensor{{0.25}, {0.5}, {0.75}}:attach_grad()
  for name, low in pairs{binary_cross_entropy = 0, binary_cross_entropy_with_logits = 0, soft_margin_loss = -1, hinge_embedding_loss = -1} do
    local flat = pg.tensor{1, low, 1}
    for _, f in ipairs{pg[name], pg.jit(pg[name])} do
      t.equal(f(scores, flat, none), f(scores, flat:reshape{3, 1}, none))
      t.equal(f(scores:reshape{1, 1, 3}, flat, none), f(scores, flat, none):reshape{1, 1, 3})
      pg.record(function() return f(scores, flat) end):backward()
      local slopes = scores.grad:clone()
      pg.record(function() return f(scores, flat:reshape{3, 1}) end):backward()
      t.equal(scores.grad, slopes)
      t.error_contains(function() return f(scores, pg.ones(1)) end, name .. ": bad argument 'target' (expected the shape of x, 3x1, got float32 1")
      t.error_contains(function() return f(scores:reshape(3), pg.ones(2, 3)) end, "expected the shape of x, 3, got float32 2x3")
      t.error_contains(function() return f(pg.ones(2, 3) / 2, pg.ones(3, 2)) end, "expected the shape of x, 2x3, got float32 3x2")
    end
  end
  t.error_contains(function() return pg.binary_cross_entropy(scores, pg.ones(3, 1), pg.ones(3)) end,
                   "binary_cross_entropy: bad argument 'weight' (expected a shape that broadcasts to that of x, 3x1, got float32 3")
end)

t.test("losses of distances", function()
  close(p:triplet_margin_loss(q, n, none), {0.585787, 2})
  close(p:triplet_margin_loss(q, n, with{p = 1, swap = true, margin = 2}), {1.000002, 3})
  close(p:cosine_embedding_loss(q, whole{1, -1}, none), {0.033012, 0.447214})
  close(p:cosine_embedding_loss(q, whole{-1, -1}, with{margin = 0.3}), {0.666988, 0.147214})
end)

t.test("losses of class margins", function()
  close(x:multi_margin_loss(whole{4, 1}, none), {0.325, 0.625})
  close(x:multi_margin_loss(whole{4, 1}, 2, 0.5, pg.tensor{1, 2, 3, 4}, none), {0.01, 0.145})
  close(x:multi_margin_loss(whole{3, 0}, with{index_base = 0}), {0.325, 0.625})
  close(x[1]:multi_margin_loss(whole(4)), 0.325)
  close(x:multilabel_margin_loss(whole{{4, 1, 0, 2}, {3, 0, 1, 1}}, none), {0.85, 0.425})
  close(x:multilabel_margin_loss(whole{{3, 0, -1, 1}, {2, -1, 0, 0}}, with{index_base = 0}), {0.85, 0.425})
  local hot = pg.tensor{{1, 0, 0, 1}, {0, 1, 1, 0}}
  close(x:multilabel_soft_margin_loss(hot, none), {0.681663, 0.717742})
  close(x:multilabel_soft_margin_loss(hot, pg.tensor{1, 2, 3, 4}), 1.664322)
end)

t.test("labels outside the classes are errors", function()
  t.error_contains(function() x:multi_margin_loss(whole{5, 1}) end,
    "multi_margin_loss: bad argument 'target' (expected index values from 1 to 4, got 5 at position 1)")
  t.error_contains(function() x:multi_margin_loss(whole{-1, 1}) end, "multi_margin_loss: bad argument 'target'")
  t.error_contains(function() x:multilabel_margin_loss(whole{{1, 2, 3, 5}, {0, 0, 0, 0}}) end,
    "multilabel_margin_loss: bad argument 'target' (expected index values from 0 to 4, got 5 at position {1, 4})")
  t.error_contains(function() x:multilabel_margin_loss(whole{{1, 2, 3, -1}, {0, 0, 0, 0}}) end, "multilabel_margin_loss: bad argument 'target'")
end)

t.test("weights of elementwise losses", function()
  close(a:mse_loss(b, {weight = v}), 1.332857)
  close(a:l1_loss(b, {weight = v}), 0.985714)
  close(a:huber_loss(b, {weight = v, delta = 0.4}), 0.373333)
  close(a:mse_loss(b, "none", v), {0.125, 0.04, 4.5})
end)
