-- Pooling with positions, sampling at points, bags of embeddings, attention with groups of heads, and activations that
-- cut. The numbers are those of PyTorch 2.15, with positions from 1.
local t = require "tests.support"
local pg = require "perigee"

local function whole(list) return pg.tensor(list, {dtype = "int64"}) end
local function close(x, list, options) t.close(x, pg.tensor(list, {dtype = x.dtype}), options or {atol = 1e-5}) end

t.test("shrinking activations keep NaN, and thresholds replace", function()
  local x = pg.tensor{-2, -0.4, 0, 0.4, 0.5, 2, 0 / 0}
  local function list(y) y = y:totable() t.check(y[7] ~= y[7], "NaN stays") y[7] = nil return y end
  t.equal(list(x:hardshrink()), {-2, 0, 0, 0, 0, 2})
  t.equal(list(x:hardshrink(1)), {-2, 0, 0, 0, 0, 2})
  t.equal(list(x:threshold(0.4, 9)), {9, 9, 9, 9, 0.5, 2})
  close(pg.tensor{-2, 0.5, 2}:tanhshrink(), {-1.0359724, 0.0378828, 1.0359724})
  t.equal(pg.tensor{-2, 4}:rrelu(0.25, 0.75):totable(), {-1, 4})
  t.equal(pg.tensor{-2, 4}:rrelu(0.5, 0.5, true):totable(), {-1, 4})
  t.error_contains(function() pg.ones(2):rrelu(0.5, 0.25) end, "rrelu: bad argument 'lower' (expected at most `upper`, got 0.5)")
end)

t.test("rrelu is random in training and follows the mode", function()
  pg.manual_seed(3)
  local x = -pg.ones(1000)
  local y = pg.train_mode(function() return x:rrelu(0.1, 0.5) end)
  t.check(y:amax():item() <= -0.1 and y:amin():item() > -0.5, "within the bounds")
  t.check(y:std():item() > 0.05, "spread")
  close(x:rrelu(0.1, 0.5):mean(), -0.3)
  local f = pg.jit(function(v) return v:rrelu(0.1, 0.5) end)
  pg.manual_seed(3)
  t.close(pg.train_mode(function() return f(x) end), y)
  close(f(x):mean(), -0.3)
end)

t.test("local_response_norm", function()
  local x = pg.range(1, 6):reshape{1, 3, 2}
  close(x:local_response_norm(2, {alpha = 1, beta = 0.5, k = 2}), {{{0.632456, 1}, {1.133893, 1.154701}, {1.147079, 1.133893}}})
  t.error_contains(function() pg.ones(2, 2):local_response_norm(2) end, "local_response_norm: bad argument 'x'")
end)

t.test("max pooling returns positions, which max_unpool takes", function()
  local x = pg.tensor{{{{1, 5, 2, 0}, {4, 3, 8, 7}, {9, 6, 1, 1}, {0, 2, 3, 1}}}}
  local y, index = x:max_pool2d(2, {return_indices = true})
  t.equal(y:totable(), {{{{5, 8}, {9, 3}}}})
  t.equal(index:totable(), {{{{2, 7}, {9, 15}}}})
  t.equal(index.dtype, "int64")
  local _, from0 = x:max_pool2d(2, {return_indices = true, index_base = 0})
  t.equal(from0:totable(), {{{{1, 6}, {8, 14}}}})
  t.equal(select("#", x:max_pool2d(2)), 1)
  local back = y:max_unpool2d(index, 2)
  t.equal(back:totable(), {{{{0, 5, 0, 0}, {0, 0, 8, 0}, {9, 0, 0, 0}, {0, 0, 3, 0}}}})
  t.equal(y:max_unpool2d(from0, 2, {index_base = 0}):totable(), back:totable())
  t.equal(y:max_unpool2d(index, 2, {output_size = {1, 1, 5, 4}}).shape, {1, 1, 5, 4})
  t.equal(y:max_unpool2d(index, 2, {output_size = {5, 5}}).shape, {1, 1, 5, 5})
end)

-- Dilation may leave a window with padding only: it takes part in no gradient.
t.test("max pooling of nothing but padding", function()
  local low = -math.huge
  local function check(op, shape, window, options, value, places, dx)
    for _, dtype in ipairs{"float32", "float64", "float16", "bfloat16"} do
      local n = 1
      for _, size in ipairs(shape) do n = n * size end
      local x = pg.range(1, n, {dtype = dtype}):reshape(shape)
      local function f(v) return (pg[op](v, window, options)) end
      local function slope(v) return pg.grad(function(z) return f(z):sum() end)(v) end
      local all = {return_indices = true}
      for k, v in pairs(options) do all[k] = v end
      for form, run in pairs{plain = function(g, ...) return g(...) end, jit = function(g, ...) return pg.jit(g)(...) end} do
        local text = op .. " " .. dtype .. " " .. form
        local y, index = run(function(v) return pg[op](v, window, all) end, x)
        t.equal(y:reshape{-1}:totable(), value, text)
        t.equal(index:reshape{-1}:totable(), places, text)
        t.equal(run(slope, x):reshape{-1}:totable(), dx, text)
        local _, tangent = run(function(v) return pg.jvp(f, {v}, {v}) end, x)
        t.equal(tangent:reshape{-1}:totable(), places, text)  -- each element is its position
      end
    end
  end
  check("max_pool1d", {1, 1, 3}, 2, {padding = 1, dilation = 4, stride = 1}, {low}, {0}, {0, 0, 0})
  check("max_pool2d", {1, 1, 4, 1}, {1, 2}, {stride = {2, 1}, padding = {0, 1}, dilation = {1, 2}}, {low, low}, {0, 0}, {0, 0, 0, 0})
  check("max_pool2d", {1, 1, 3, 1}, {1, 2}, {stride = 1, padding = {0, 1}, dilation = {1, 2}}, {low, low, low}, {0, 0, 0}, {0, 0, 0})
  check("max_pool2d", {1, 2, 1, 1}, {2, 1}, {stride = 1, padding = {1, 0}, dilation = {2, 1}}, {low, low}, {0, 0}, {0, 0})
  check("max_pool3d", {1, 1, 1, 2, 2}, {2, 1, 1}, {stride = 1, padding = {1, 0, 0}, dilation = {2, 1, 1}}, {low, low, low, low},
    {0, 0, 0, 0}, {0, 0, 0, 0})
  check("max_pool1d", {1, 1, 4}, 2, {padding = 1, dilation = 5, stride = 1}, {low}, {0}, {0, 0, 0, 0})
  check("max_pool1d", {1, 1, 2}, 4, {padding = 2, dilation = 4, stride = 8, ceil_mode = true}, {low}, {0}, {0, 0})
  local _, from0 = pg.ones(1, 1, 3):max_pool1d(2, {padding = 1, dilation = 4, return_indices = true, index_base = 0})
  t.equal(from0:totable(), {{{-1}}})
  t.error_contains(function() pg.ones(1, 1, 1):max_unpool1d(from0 + 1, 2) end,
    "max_unpool1d: bad argument 'indices' (expected index values from 1 to 2, got 0")
end)

-- Pooling inside of a net that keeps its channels last.
t.test("max pooling of nothing but padding with the channels last", function()
  for _, dtype in ipairs{"float32", "float64", "float16", "bfloat16"} do
    local x = pg.range(1, 6, {dtype = dtype}):reshape{1, 3, 1, 2}
    local y, index = pg.testing.ops._max_pool_last(x, {2, 1}, {stride = 1, padding = {1, 0}, dilation = {4, 1}})
    t.equal(y:totable(), {{{{-math.huge, -math.huge}}}})
    t.equal(index:totable(), {{{{-1, -1}}}})
    t.equal(pg.testing.ops._max_pool_backward_last(y, index, {3, 1}):totable(), pg.zeros(1, 3, 1, 2):totable())
  end
end)

t.test("positions and output_size of max_unpool are checked", function()
  local y = pg.ones(1, 1, 2)
  t.error_contains(function() y:max_unpool1d(whole{{{1, 5}}}, 2) end,
    "max_unpool1d: bad argument 'indices' (expected index values from 1 to 4, got 5 at position {1, 1, 2})")
  t.error_contains(function() y:max_unpool1d(whole{{{1, -1}}}, 2) end, "max_unpool1d: bad argument 'indices'")
  t.error_contains(function() y:max_unpool1d(whole{{{1, 2}}}, 2, {output_size = {6}}) end,
    "max_unpool1d: bad argument 'output_size' (expected from 3 to 5 elements in spatial dim 1, got 6)")
end)

t.test("adaptive max pooling returns the first position of the largest element", function()
  local x = pg.tensor{{{0, 1, 1}, {1, 0, 1}, {2, 2, 0}}}
  local y, index = x:adaptive_max_pool({2, 2}, {return_indices = true})
  t.equal(y:totable(), {{{1, 1}, {2, 2}}})
  t.equal(index:totable(), {{{2, 2}, {7, 8}}})
end)

t.test("dropout drops whole channels", function()
  pg.manual_seed(1)
  for name, shape in pairs{dropout1d = {8, 8, 5}, dropout2d = {8, 8, 2, 3}, dropout3d = {8, 8, 2, 2, 2}, feature_alpha_dropout = {8, 8, 5}} do
    local y = pg.ones(shape)[name](pg.ones(shape), 0.5, true):reshape{64, -1}
    t.equal(y:amax(2):totable(), y:amin(2):totable(), name)
    local dropped = y:select(2, 1):eq(y:amin()):sum():item()
    t.check(dropped > 16 and dropped < 48, name .. " dropped " .. dropped)
  end
  local y = pg.ones(64, 5):dropout(0.5, true, {axes = {2}})
  t.equal(y:amax(2):totable(), y:amin(2):totable())
  pg.manual_seed(9)
  local unbatched = pg.ones(64, 3):dropout1d(0.5, true)
  t.equal(unbatched:amax(2):totable(), unbatched:amin(2):totable(), "(channels, length)")
  t.error_contains(function() pg.ones(3):dropout1d() end, "dropout1d: bad argument 'x' (expected 2 or 3 dims, got float32 3")
  t.error_contains(function() pg.ones(3, 2):dropout(0.5, true, {axes = {3}}) end, "dropout: bad argument 'axes'")
end)

t.test("alpha_dropout keeps mean and variance", function()
  pg.manual_seed(2)
  local x = pg.randn(20000)
  local y = x:alpha_dropout(0.3, true)
  t.close(y:mean(), pg.tensor(0), {atol = 0.03})
  t.close(y:std(), pg.tensor(1), {atol = 0.03})
  t.equal(x:alpha_dropout(0.3), x)
  t.equal(x:alpha_dropout(1, true):count_nonzero():item(), 0)
end)

local image = pg.range(1, 12):reshape{1, 1, 3, 4}
local points = pg.tensor{{{{-1, -1}, {0.3, -0.7}, {1, 1}}, {{0, 0}, {1.3, 0.2}, {-2.5, 1.9}}}}
local sampled = {  -- mode, padding_mode: without and with align_corners
  {"bilinear", "zeros", {0.25, 2.945, 3, 6.5, 0, 0}, {1, 4.15, 12, 6.5, 4.84, 0}},
  {"bilinear", "border", {1, 3.1, 12, 6.5, 9.2, 9}, {1, 4.15, 12, 6.5, 8.8, 9}},
  {"bilinear", "reflection", {1, 3.1, 12, 6.5, 9.1, 8.1}, {1, 4.15, 12, 6.5, 8.35, 7.65}},
  {"nearest", "zeros", {1, 3, 0, 7, 0, 0}, {1, 3, 12, 7, 8, 0}},
  {"nearest", "border", {1, 3, 12, 7, 8, 9}, {1, 3, 12, 7, 8, 9}},
  {"nearest", "reflection", {1, 3, 12, 7, 8, 7}, {1, 3, 12, 7, 8, 7}},
  {"bicubic", "zeros", {0.015625, 2.908852, 3.234375, 6.5, -0.615031, 0}, {1, 4.178505, 12, 6.5, 5.319361, 0}},
  {"bicubic", "border", {0.53125, 3.007374, 12.46875, 6.5, 9.556993, 9}, {1, 3.855624, 12, 6.5, 9.1901, 9.027}},
  {"bicubic", "reflection", {0.0625, 3.000246, 12.9375, 6.5, 9.481744, 8.429622}, {1, 3.414626, 12, 6.5, 8.925817, 7.965187}},
}
for _, row in ipairs(sampled) do
  t.test(("grid_sample %s %s"):format(row[1], row[2]), function()
    for k, corners in ipairs{false, true} do
      local y = image:grid_sample(points, {mode = row[1], padding_mode = row[2], align_corners = corners})
      t.equal(y.shape, {1, 1, 2, 3})
      close(y:reshape{-1}, row[2 + k], {atol = 1e-5, rtol = 1e-5})
    end
  end)
end

t.test("grid_sample of volumes, and its errors", function()
  local cube = pg.range(1, 8):reshape{1, 1, 2, 2, 2}
  close(cube:grid_sample(pg.tensor{{{{{0, 0, 0}, {0.5, -0.5, 1}}}}}):reshape{-1}, {4.5, 3})
  close(cube:grid_sample(pg.tensor{{{{{0.4, 0.2, -0.3}, {0.5, -0.5, 0.9}}}}}, {mode = "nearest"}):reshape{-1}, {4, 6})
  t.error_contains(function() cube:grid_sample(pg.ones(1, 1, 1, 1, 3), {mode = "bicubic"}) end,
    "grid_sample: bad argument 'mode' (expected bilinear or nearest for 5 dims, got \"bicubic\")")
  t.error_contains(function() image:grid_sample(pg.ones(1, 2, 2, 3)) end,
    "grid_sample: bad argument 'grid' (expected 4 dims: batch 1, 2 spatial, and 2 coordinates, got float32 1x2x2x3")
  t.error_contains(function() image:grid_sample(pg.ones({1, 2, 2, 2}, {dtype = "float64"})) end, "grid_sample: bad argument 'grid' (expected float32 like x")
end)

t.test("grid_sample of many channels gives what it gives for each channel", function()
  local function results(x, grid, mode, dy)
    x, grid = x:clone():attach_grad(), grid:clone():attach_grad()
    local y
    pg.record(function()
      y = x:grid_sample(grid, {mode = mode})
      return (y * dy):sum()
    end):backward()
    return y, x.grad, grid.grad
  end
  for _, mode in ipairs{"bilinear", "nearest", "bicubic"} do
    for _, channels in ipairs{3, 4, 5, 8, 11, 16, 20, 37} do
      for _, rows in ipairs{1, 12} do  -- fewer points than the image has, and more
        local x, grid = pg.randn(2, channels, 6, 8), pg.rand(2, rows, 9, 2) * 2.6 - 1.3
        local dy = pg.randn(2, channels, rows, 9)
        local y, x_grad, grid_grad = results(x, grid, mode, dy)
        local sum = pg.zeros_like(grid)
        for c = 1, channels do
          local one = {{}, {c, c}}
          local own, own_grad, own_grid = results(x[one], grid, mode, dy[one])
          t.equal(y[one], own, mode)
          t.equal(x_grad[one], own_grad, mode)
          if own_grid then sum = sum + own_grid end
        end
        if grid_grad then t.close(grid_grad, sum, {rtol = 1e-3, atol = 1e-3}) end
      end
    end
  end
end)

t.test("grid_sample of a far, infinite or NaN point ends, and reads what is outside", function()
  for _, v in ipairs{1e30, -1e30, 1 / 0, -1 / 0, 0 / 0} do
    local grid = pg.full({1, 1, 1, 2}, v)
    for _, mode in ipairs{"bilinear", "nearest", "bicubic"} do
      for _, padding in ipairs{"zeros", "border", "reflection"} do
        t.equal(image:grid_sample(grid, {mode = mode, padding_mode = padding}).shape, {1, 1, 1, 1})
      end
    end
    t.equal(image:grid_sample(grid, {mode = "nearest"}):item(), 0)
  end
  t.equal(image:grid_sample(pg.full({1, 1, 1, 2}, 1e30), {padding_mode = "border"}):item(), 12)
end)

t.test("affine_grid", function()
  local theta = pg.tensor{{{1, 0.5, 0.1}, {0, 2, -1}}}
  close(pg.affine_grid(theta, {1, 1, 2, 2}), {{{{-0.65, -2}, {0.35, -2}}, {{-0.15, 0}, {0.85, 0}}}})
  close(pg.affine_grid(theta, {1, 1, 2, 2}, {align_corners = true}), {{{{-1.4, -3}, {0.6, -3}}, {{-0.4, 1}, {1.6, 1}}}})
  local same = pg.affine_grid(pg.tensor{{{1, 0, 0}, {0, 1, 0}}}, {1, 1, 3, 4})
  t.close(image:grid_sample(same), image, {atol = 1e-5})
end)

t.test("embedding_bag", function()
  local weight, i, starts = pg.tensor{{1, 2}, {3, -4}, {5, 6}, {-7, 8}}, whole{1, 3, 4, 2, 2}, whole{1, 4, 4}
  local function bag(options) return pg.embedding_bag(i, weight, starts, options):totable() end
  t.equal(bag{mode = "sum"}, {{-1, 16}, {0, 0}, {6, -8}})
  close(pg.embedding_bag(i, weight, starts), {{-0.333333, 5.333333}, {0, 0}, {3, -4}})
  t.equal(bag{mode = "max"}, {{5, 8}, {0, 0}, {3, -4}})
  for _, mode in ipairs{"sum", "mean", "max"} do t.equal(bag{mode = mode, padding_idx = 2}[3], {0, 0}, mode) end
  t.equal(pg.embedding_bag(i, weight, starts, "sum", pg.tensor{1, 0.5, 2, 1, -1}):totable(), {{-10.5, 21}, {0, 0}, {0, 0}})
  t.equal(pg.embedding_bag(i, weight, whole{1, 4, 6}, "sum", {include_last_offset = true}):totable(), {{-1, 16}, {6, -8}})
  t.equal(pg.embedding_bag(whole{{1, 2}, {3, 4}}, weight):totable(), {{2, -1}, {-1, 7}})
  t.equal(pg.embedding_bag(i - 1, weight, starts - 1, {mode = "sum", index_base = 0}):totable(), bag{mode = "sum"})
end)

t.test("embedding_bag sums long bags, and rows in any order for the gradient", function()
  local rows, columns, count = 50, 37, 2000
  local weight = (pg.range(0, rows * columns - 1) % 13 - 6):reshape(rows, columns)
  local i = pg.range(0, count - 1, {dtype = "int64"}) * 7919 % rows + 1
  local starts = whole{1, 4, 4, 1000, 1001, 1300, 2000}
  local factors = pg.range(0, count - 1) % 3 - 1
  local function reference(w, f)
    local gathered, out = w:index_select(1, i), {}
    if f then gathered = gathered * f:reshape(count, 1) end
    local s = starts:totable()
    s[#s + 1] = count + 1
    for b = 1, #s - 1 do out[b] = gathered:narrow(1, s[b], s[b + 1] - s[b]):sum(1) end
    return pg.stack(out)
  end
  local scale = (pg.range(0, 7 * columns - 1) % 5):reshape(7, columns)
  for threads = 1, 2 do
    pg.set_num_threads(threads)
    for _, f in ipairs{false, factors} do
      local function bags(w, g) return pg.embedding_bag(i, w, starts, "sum", g or nil) end
      local gradients = {}
      for k, make in ipairs{bags, reference} do
        local w, g = weight:clone():attach_grad(), f and f:clone():attach_grad()
        local y = pg.record(function() return make(w, g) end)
        t.equal(y, reference(weight, f))
        pg.record(function() return (make(w, g) * scale):sum() end):backward()
        gradients[k] = {w.grad, g and g.grad}
      end
      t.equal(gradients[1][1], gradients[2][1])
      if f then t.equal(gradients[1][2], gradients[2][2]) end
    end
    t.close(pg.embedding_bag(i, weight, starts), reference(weight) / pg.tensor{3, 1, 996, 1, 299, 700, 1}:reshape(7, 1), {rtol = 1e-5, atol = 1e-5})
    t.equal(pg.embedding_bag(i:reshape(4, 500), weight, {mode = "sum"}), weight:index_select(1, i):reshape(4, 500, columns):sum(2))
  end
end)

t.test("embedding_bag of no indices has a gradient and checks its offsets, in programs too", function()
  local none = pg.zeros({0}, {dtype = "int64"})
  for _, mode in ipairs{"sum", "mean", "max"} do
    local function bags(weight, starts) return pg.embedding_bag(none, weight, starts, mode) end
    for _, f in ipairs{bags, pg.jit(bags)} do
      local weight = pg.ones(2, 3):attach_grad()
      local y = pg.record(function() return f(weight, whole{1, 1}) end)
      t.equal(y:totable(), {{0, 0, 0}, {0, 0, 0}}, mode)
      y:backward()
      t.equal(weight.grad, pg.zeros(2, 3), mode)
      t.error_contains(function() f(weight, whole{1, 9}):sum():item() end, "offsets")
    end
  end
end)

t.test("embedding_bag names what is wrong", function()
  local weight, i = pg.ones(4, 2), whole{1, 3, 4}
  local function wrong(text, ...) local args = {...} t.error_contains(function() pg.embedding_bag(unpack(args)) end, "embedding_bag: bad argument " .. text) end
  wrong("'indices' (expected index values from 1 to 4, got 5 at position 2)", whole{1, 5}, weight, whole{1})
  wrong("'indices' (expected index values from 1 to 4, got -1 at position 1)", whole{-1, 4}, weight, whole{1})
  wrong("'offsets' (expected 1 first, got 2 at position 1)", i, weight, whole{2})
  wrong("'offsets' (expected offsets in order, up to 4, got 2 at position 3)", i, weight, whole{1, 3, 2})
  wrong("'offsets' (expected 4 last, got 3 at position 2)", i, weight, whole{1, 3}, {include_last_offset = true})
  wrong("'mode' (expected sum where per_sample_weights is given, got \"max\")", i, weight, whole{1}, "max", pg.ones(3))
  wrong("'indices' (expected 2 dims: bags of one length; or 1 dim and offsets, got int64 3", i, weight)
end)

t.test("attention with fewer heads of key and value", function()
  local q = pg.tensor{{{{1, 0}}, {{0, 1}}, {{1, 1}}, {{2, 0}}}}
  local k, v = pg.tensor{{{{1, 0}, {0, 1}}, {{1, 1}, {0, 2}}}}, pg.tensor{{{{1}, {2}}, {{3}, {4}}}}
  local y = pg.scaled_dot_product_attention(q, k, v, {enable_gqa = true})
  close(y:reshape{-1}, {1.330238, 1.669762, 3.5, 3.19557})
  t.error_contains(function() pg.scaled_dot_product_attention(q:narrow(2, 1, 3), k, v, {enable_gqa = true}) end,
    "scaled_dot_product_attention: bad argument 'key' (expected heads (dim -3) that divide the 3 of query, for enable_gqa, got float32 1x2x2x2")
end)

t.test("the dropout of attention draws the same numbers eagerly and traced", function()
  local q = pg.randn(2, 4, 8)
  local function attend(x) return pg.scaled_dot_product_attention(x, x, x, {dropout_p = 0.5}) end
  local f = pg.jit(attend)
  local function trained(g) return pg.train_mode(function() return g(q) end) end
  pg.manual_seed(3)
  local eager = trained(attend)
  for _ = 1, 2 do
    pg.manual_seed(3)
    t.close(trained(f), eager, {atol = 1e-6})
  end
  t.check(not trained(f):allclose(eager), "the next call draws other numbers")
  t.close(f(q), pg.scaled_dot_product_attention(q, q, q), {atol = 1e-6})
end)

t.test("a file of before attention named a generator loads", function()
  local net = pg.nn.block{forward = function(_, x) return pg.scaled_dot_product_attention(x, x, x) end}
  net:initialize()
  net:hybridize()
  local q = pg.randn(2, 4, 8)
  local want = net(q)
  local path = net:export(t.tmp("attention"))
  local file = assert(io.open(path))
  local text = file:read("*a")
  file:close()
  local older, count = text:gsub(',?"generator":%b{}', "")
  t.equal(count, 1, "generators in the file")
  local imported = pg.nn.SymbolBlock.imports(t.write(t.tmp("older.json"), older))
  t.close(imported(q), want, {atol = 1e-6})
  t.close(pg.nn.SymbolBlock.imports((imported:export(t.tmp("again"))))(q), want, {atol = 1e-6})
end)
