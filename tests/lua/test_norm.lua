-- Normalizations: statistics, modes, errors, and fused kernels against their compositions.
local t = require "tests.support"
local pg = require "perigee"

t.test("layer_norm has mean 0 and variance 1 in every row", function()
  pg.manual_seed(1)
  for _, n in ipairs{2, 16, 100, 1024} do
    local y = (pg.randn(4, n) * 3 + 5):layer_norm{n}
    t.close(y:mean(2), pg.zeros(4), {atol = 1e-5})
    t.close(y:var(2, 0), pg.ones(4), {atol = 1e-3})
  end
end)

t.test("layer_norm takes weight and bias in PyTorch's order", function()
  local x, w, b = pg.randn(3, 4), pg.tensor({1, 2, 3, 4}), pg.tensor({4, 3, 2, 1})
  local plain = x:layer_norm{4}
  t.close(x:layer_norm({4}, w, b), plain * w + b, {atol = 1e-5})
  t.close(x:layer_norm({4}, {weight = w}), plain * w, {atol = 1e-5})
  t.close(x:to("bfloat16"):layer_norm({4}, w, b):to("float32"), plain * w + b, {atol = 0.1})
end)

t.test("batch_norm returns new running statistics and changes nothing in place", function()
  local x = pg.randn(8, 3, 5)
  local mean, var = pg.zeros(3), pg.ones(3)
  local y, new_mean, new_var = pg.batch_norm(x, mean, var, nil, nil, {training = true, momentum = 0.75})
  t.close(y:mean{1, 3}, pg.zeros(3), {atol = 1e-5})
  t.close(new_mean, x:mean{1, 3} * 0.25, {atol = 1e-6})
  t.close(new_var, x:var({1, 3}, 0) * 0.25 + 0.75, {atol = 1e-5})
  t.equal(mean:totable(), {0, 0, 0})
  local _, _, unbiased = pg.batch_norm(x, mean, var, nil, nil, {training = true, momentum = 0, running_var_correction = 1})
  t.close(unbiased, x:var{1, 3}, {atol = 1e-5})
end)

t.test("batch_norm follows the mode", function()
  local x, mean, var = pg.randn(6, 2), pg.tensor({1, 2}), pg.tensor({4, 9})
  local eval = (x - mean) / (var + 1e-5):sqrt()
  t.close((pg.batch_norm(x, mean, var)), eval, {atol = 1e-5})
  local trained = pg.train_mode(function() return (pg.batch_norm(x, mean, var)) end)
  t.close(trained, (pg.batch_norm(x)), {atol = 1e-6})
  t.close(pg.record(function() return (pg.batch_norm(x, mean, var, {training = false})) end), eval, {atol = 1e-5})
end)

t.test("gradients of fused norms are those of the compositions", function()
  local function gradients(f, ...)
    local leaves = {...}
    for i, x in ipairs(leaves) do leaves[i] = x:clone():attach_grad() end
    pg.record(function() return (f(unpack(leaves)) * pg.range(1, leaves[1]:numel()):reshape_as(leaves[1])):sum() end):backward()
    local out = {}
    for i, x in ipairs(leaves) do out[i] = x.grad end
    return out
  end
  local function compare(f, g, ...)
    local a, b = gradients(f, ...), gradients(g, ...)
    for i in ipairs(a) do t.close(a[i], b[i], {rtol = 1e-3, atol = 1e-2, what = "gradient " .. i}) end
  end
  local w, b = pg.randn(40), pg.randn(40)
  compare(function(x, w2, b2) return x:layer_norm({40}, w2, b2) end, function(x, w2, b2)
    local d = x - x:mean(2, true)
    return d / ((d * d):mean(2, true) + 1e-5):sqrt() * w2 + b2
  end, pg.randn(6, 40), w, b)
  compare(function(x, w2, b2) return (pg.batch_norm(x, nil, nil, w2, b2, {training = true})) end, function(x, w2, b2)
    local d = x - x:mean(1, true)
    return d / ((d * d):mean(1, true) + 1e-5):sqrt() * w2 + b2
  end, pg.randn(6, 40), w, b)
  compare(function(x, w2) return x:rms_norm({40}, w2) end, function(x, w2)
    return x / ((x * x):mean(2, true) + 1e-6):sqrt() * w2
  end, pg.randn(6, 40), w)
end)

t.test("errors of wrong shapes and groups name them", function()
  local x = pg.zeros(2, 3, 4)
  t.error_contains(function() return x:layer_norm{3} end, "layer_norm: bad argument 'normalized_shape'")
  t.error_contains(function() return x:layer_norm({4}, pg.zeros(3)) end, "layer_norm: bad argument 'weight'")
  t.error_contains(function() return x:group_norm(2) end, "group_norm: bad argument 'num_groups'")
  t.error_contains(function() return pg.batch_norm(pg.zeros(3)) end, "batch_norm: bad argument 'x'")
  t.error_contains(function() return pg.batch_norm(x, pg.zeros(3)) end, "batch_norm: bad argument 'running_var'")
  t.error_contains(function() return pg.batch_norm(x, pg.zeros(2), pg.zeros(2)) end, "batch_norm: bad argument 'running_mean'")
  t.error_contains(function() return x:layer_norm({4}, pg.zeros({4}, {dtype = "float64"})) end, "layer_norm: bad argument 'weight'")
  t.error_contains(function() return pg.zeros(2, 3):instance_norm() end, "instance_norm: bad argument 'x'")
end)

t.test("rows of large arrays have the bits of rows by themselves", function()
  local rows = t.device == "cpu" and 4099 or 67  -- other devices know no large arrays
  local x = pg.randn(rows, 1024)
  x[{3, 5}], x[{4, 7}], x[5] = 0 / 0, 1 / 0, -1 / 0
  local w, b = pg.rand(1024), pg.rand(1024)
  local forms = {
    softmax = function(v) return v:softmax(-1) end,
    log_softmax = function(v) return v:log_softmax(-1) end,
    layer_norm = function(v) return v:layer_norm({1024}, w, b) end,
    weight = function(v) return v:layer_norm({1024}, w) end,
    bias = function(v) return v:layer_norm({1024}, nil, b) end,
    rms_norm = function(v) return v:rms_norm({1024}) end,
  }
  local function slope(f, v)
    v = v:detach():attach_grad()
    pg.record(function() return (f(v) * 0.25):sum() end):backward()
    return v.grad
  end
  for name, f in pairs(forms) do
    local all, slopes = f(x), slope(f, x)
    for _, first in ipairs{1, rows - 9} do
      local range = {first, first + 9}
      t.equal(all[{range}]:to_bytes(), f(x[{range}]:contiguous()):to_bytes(), name)
      t.equal(slopes[{range}]:to_bytes(), slope(f, x[{range}]:contiguous()):to_bytes(), name)
    end
  end
end)

t.test("softmax, log_softmax and logsumexp of short rows and of narrow columns agree with their definitions", function()
  local function wide(x, dim)  -- the three results by elementary ops in float64
    x = x:to("float64")
    local shifted = x - x:amax(dim, true)
    local sum = shifted:exp():sum(dim, true)
    return {softmax = shifted:exp() / sum, log_softmax = shifted - sum:log(),
            logsumexp = (sum:log() + x:amax(dim, true)):squeeze(dim)}
  end
  local function gradients(f, x, dy)
    local v = x:detach():attach_grad()
    pg.record(function() return (f(v) * dy):sum() end):backward()
    return v.grad
  end
  for _, shape in ipairs{{3, 70, 1}, {67, 2}, {130, 3}, {1, 12}, {65, 13}, {31, 1}, {520, 5}, {33, 16}, {2, 1000, 7},
                         {1290, 1}, {2, 40, 63}, {3, 24, 64}} do
    for _, dtype in ipairs{"float32", "float64"} do
      local x = (pg.randn(shape, {dtype = "float64"}) * 5):to(dtype)
      for dim = 1, #shape do
        local tolerance = {rtol = 1e-5, atol = 2e-6, what = table.concat(shape, "x") .. " dim " .. dim}
        local defined = wide(x, dim)
        local dy = pg.randn(shape, {dtype = "float64"})
        for op, value in pairs(defined) do
          t.close(x[op](x, dim):to("float64"), value, tolerance)
          if op ~= "logsumexp" then
            local expected = gradients(function(v) return wide(v, dim)[op] end, x:to("float64"), dy)
            t.close(gradients(function(v) return v[op](v, dim) end, x, dy:to(dtype)):to("float64"), expected, tolerance)
          end
        end
      end
    end
  end
end)

t.test("rows and columns keep to themselves beside NaN and infinities", function()
  for _, shape in ipairs{{200, 3}, {200, 5}, {90, 20}} do
    for dim = 1, 2 do
      local x = pg.randn(shape)
      for op in pairs{softmax = 1, log_softmax = 1, logsumexp = 1} do
        local y = x[op](x, dim)
        for _, bad in ipairs{0 / 0, math.huge, -math.huge} do
          local z = x:clone()
          local line, third = dim == 1 and {{}, 2} or {2, {}}, dim == 1 and {3, 2} or {2, 3}
          z[bad == -math.huge and line or third] = bad
          local expected = y:clone()
          if op == "logsumexp" then expected[2] = bad else expected[line] = 0 / 0 end
          local got = z[op](z, dim)
          t.equal(got, expected, op .. bad)
        end
      end
    end
  end
end)

t.test("float32 parameters of layers in half precision have gradients of float32", function()
  local n = 20000
  for name, dims in pairs{LayerNorm = {4}, InstanceNorm = {4, 3}, GroupNorm = {4, 3}, BatchNorm = {4}} do
    for _, dtype in ipairs{"float16", "bfloat16"} do
      for _, frozen in ipairs{false, name == "BatchNorm" or nil} do
        local net = pg.nn[name](frozen and {use_global_stats = true} or name == "InstanceNorm" and {scale = true} or {})
        net:initialize()
        net(pg.ones(2, unpack(dims)))
        net:to(dtype)
        for _ = 1, 2 do
          local x = pg.randn(n, unpack(dims)):to(dtype)
          pg.record(function() return (net(x) * 10):sum{dtype = "float32"} end):backward()
          t.equal(net.beta.grad.dtype, "float32")
          local each = 10 * n * (dims[2] or 1) * 4 / net.beta:numel()
          t.close(net.beta.grad, pg.full({net.beta:numel()}, each), {rtol = 1e-6, what = name .. dtype})
          t.check(net.gamma.grad:isfinite():all():item(), name)
          net:hybridize()
        end
      end
    end
  end
end)

t.test("the gradient of a frozen batch norm's scale keeps its digits far from 0", function()
  pg.manual_seed(3)
  for _, mean in ipairs{0, 50, 1e4} do
    for _, dtype in ipairs{"float32", "float16", "bfloat16"} do
      if dtype == "float32" or mean < 100 then
        local x, k = (pg.randn(512, 2) + mean):to(dtype), pg.randn(512, 2):to(dtype)
        local function slope(to)
          local gamma, beta = pg.ones({2}, {dtype = to}):attach_grad(), pg.zeros({2}, {dtype = to}):attach_grad()
          local at, var = pg.full({2}, mean, {dtype = to}), pg.ones({2}, {dtype = to})
          local a, b = x, k
          if to == "float64" then a, b = x:to(to), k:to(to) end
          pg.record(function()
            return (pg.batch_norm(a, at, var, gamma, beta, {training = false}) * b):sum{dtype = to}
          end):backward()
          return gamma.grad:to("float64"), beta.grad:to("float64")
        end
        local gamma, beta = slope("float32")
        local exact, shift = slope("float64")
        t.close(gamma, exact, {rtol = 1e-4, atol = 1e-3, what = dtype .. " " .. mean})
        t.close(beta, shift, {rtol = 1e-4, atol = 1e-3})
      end
    end
  end
end)

t.test("rows of a result that is written past the caches have the bits of the others", function()
  t.skip_in("device", "the device has little memory")
  t.skip_in("cuda_host", "the device has little memory")
  local x, w, b = pg.randn(8300, 1024), pg.rand(1024), pg.rand(1024)
  local dy = pg.randn(8300, 1024)
  for name, f in pairs{
    softmax = function(v) return v:softmax(2) end,
    log_softmax = function(v) return v:log_softmax(2) end,
    layer_norm = function(v) return pg.layer_norm(v, {1024}, w, b) end,
  } do
    local function run(from, count)  -- the result and the gradient of some rows
      local v = x:narrow(1, from, count):clone():attach_grad()
      local y = pg.record(function() return f(v) end)
      y:backward{grad = dy:narrow(1, from, count)}
      return y:detach(), v.grad
    end
    local y, dx = run(1, 8300)
    for _, from in ipairs{1, 4001, 8201} do
      local part, slope = run(from, 100)
      t.equal(pg.equal(y:narrow(1, from, 100), part), true, name)
      t.equal(pg.equal(dx:narrow(1, from, 100), slope), true, name)
    end
  end
end)

-- As PyTorch's: an infinity of one sign is the mean, and the variance is NaN.
t.test("running statistics beside infinities are those of the sums, for rows and images", function()
  local inf, nan = math.huge, 0 / 0
  local function one(v) return pg.tensor{v} end
  for _, shape in ipairs{{4, 3}, {4, 3, 1, 1}, {600, 3}, {70000, 3}, {4, 3, 5}, {3, 3, 20, 20}, {5, 3, 1, 30000}} do
    for _, places in ipairs{{{1, inf, inf}}, {{-1, -inf, -inf}}, {{2, inf, inf}, {3, inf, inf}}, {{1, inf, nan}, {-1, -inf, nan}}, {{-1, nan, nan}}} do
      local x, want = pg.randn(shape), nil
      for _, place in ipairs(places) do
        local at, v = place[1], place[2]
        x[{at, 2}], want = v, place[3]
      end
      local _, mean, var = x:batch_norm(pg.zeros(3), pg.ones(3), {training = true, running_var_correction = 1})
      t.equal(mean:isfinite(), pg.tensor{true, false, true})
      t.equal(var:isfinite(), pg.tensor{true, false, true})
      t.check(mean[2]:equal(one(want)[1]) or want ~= want and mean[2]:isnan():item(), table.concat(shape, "x") .. ": " .. tostring(mean))
      t.check(var[2]:isnan():item(), tostring(var))
    end
  end
end)

t.test("statistics of many rows are accurate, whatever the rows' order and the number of threads", function()
  local rows, channels = 9000, 37
  local base, slope = pg.randn(rows, channels), pg.randn(rows, channels)
  local before, bits = pg.get_num_threads(), {}
  for name, shift in pairs{steady = pg.full({rows, 1}, 3000), steps = (pg.range(0, rows - 1) / 1000):floor():reshape(rows, 1) * 500, late = pg.cat({pg.zeros(300, 1), pg.full({rows - 300, 1}, 1000)}, 1)} do
    local x = base + shift
    for threads = 1, 3 do
      pg.set_num_threads(threads)
      x:attach_grad()
      local y = pg.record(function() return pg.batch_norm(x, nil, nil, nil, nil, {training = true}) end)
      y:backward{grad = slope}
      local wide = x:detach():to("float64")
      local off = wide - wide:mean({1}, {keepdim = true})
      local rstd = (off:square():mean({1}, {keepdim = true}) + 1e-5):rsqrt()
      t.close(y:to("float64"), off * rstd, {rtol = 2e-5, atol = 2e-3, what = name})
      local dy = slope:to("float64")
      local hat = off * rstd
      local dx = (dy - dy:mean({1}, {keepdim = true}) - hat * (dy * hat):mean({1}, {keepdim = true})) * rstd
      t.close(x.grad:to("float64") / dx:abs():amax(), dx / dx:abs():amax(), {rtol = 0, atol = 1e-3, what = name})
      bits[threads] = {y, x.grad:clone()}
    end
    for k = 1, 2 do t.equal({bits[2][k]:equal(bits[1][k]), bits[3][k]:equal(bits[1][k])}, {true, true}, name) end
  end
  pg.set_num_threads(before)
end)
