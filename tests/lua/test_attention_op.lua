-- scaled_dot_product_attention beyond the blocks of its kernel: against the composition, in memory, with gradients.
local t = require "tests.support"
local pg = require "perigee"
local gradcheck = require "tests.gradcheck"

-- The op by products of all scores. A number of keys that a query may not see has weight 0.
local function by_scores(q, k, v, options)
  local scores = q:matmul(k:transpose(-2, -1)) * (options.scale or 1 / math.sqrt(q:size(-1)))
  local mask = options.attn_mask
  if options.is_causal then mask = pg.ones(q:size(-2), k:size(-2)):tril():gt(0) end
  if mask and mask.dtype == "bool" then scores = pg.where(mask, scores, -math.huge) elseif mask then scores = scores + mask end
  return scores:softmax(-1):matmul(v)
end

local function gradients(f, inputs, cotangent)
  local leaves = {}
  for i, x in ipairs(inputs) do leaves[i] = x:clone():attach_grad() end
  local y = pg.record(function() return f(unpack(leaves)) end)
  y:backward{grad = cotangent}
  local grads = {}
  for i, x in ipairs(leaves) do grads[i] = x.grad end
  return y, grads
end

local function compare(inputs, options, tolerance)
  local y = pg.scaled_dot_product_attention(inputs[1], inputs[2], inputs[3], options)
  local cotangent = gradcheck.random(y.shape):to(y.dtype)
  local function op(q, k, v) return pg.scaled_dot_product_attention(q, k, v, options) end
  local function composed(q, k, v) return by_scores(q, k, v, options) end
  local got, grads = gradients(op, inputs, cotangent)
  local expected, expected_grads = gradients(composed, inputs, cotangent)
  t.close(got, expected, tolerance)
  t.close(y, expected, tolerance)
  for i, g in ipairs(expected_grads) do t.close(grads[i], g, tolerance) end
end

local function random(...) return gradcheck.random{...} end
local close = {rtol = 1e-10, atol = 1e-11}
local near = {rtol = 2e-4, atol = 2e-5}

-- Halves against the composition in float32. Gradients have as many terms as there are queries.
local function compare_halves(dtype, inputs, options)
  local halves, floats = {}, {}
  for i, x in ipairs(inputs) do
    halves[i] = x:to(dtype)
    floats[i] = halves[i]:float()
  end
  local mask = options.attn_mask
  local of_floats = {is_causal = options.is_causal, scale = options.scale, attn_mask = mask and mask.dtype ~= "bool" and mask:float() or mask}
  local cotangent = gradcheck.random{inputs[1]:size(1), inputs[1]:size(2), inputs[3]:size(3)}:to(dtype)
  local got, grads = gradients(function(q, k, v) return pg.scaled_dot_product_attention(q, k, v, options) end, halves, cotangent)
  local want, want_grads = gradients(function(q, k, v) return by_scores(q, k, v, of_floats) end, floats, cotangent:float())
  local error = dtype == "float16" and 4e-3 or 3e-2
  local function agree(x, y, what)
    t.equal(x.dtype, dtype)
    t.close(x:float(), y, {rtol = error, atol = error * math.max(1, y:abs():max():item()) / 2, what = what})
  end
  agree(got, want, "out")
  for i, g in ipairs(want_grads) do agree(grads[i], g, "gradient " .. i) end
end

t.test("halves: widths, numbers of positions, masks and strides", function()
  for i, widths in ipairs{{16, 16}, {64, 64}, {40, 24}, {33, 7}, {128, 128}, {96, 80}, {1, 1}, {136, 16}} do
    local width, value_width = unpack(widths)
    local dtype = i % 2 == 0 and "float16" or "bfloat16"
    local q, k, v = random(2, 37, width), random(2, 70, width), random(2, 70, value_width)
    compare_halves(dtype, {q, k, v}, {})
    compare_halves(dtype, {q, k, v}, {is_causal = true, scale = 0.4})
  end
  local q, k, v = random(2, 130, 64), random(2, 150, 64), random(2, 150, 64)
  for _, dtype in ipairs{"float16", "bfloat16"} do
    compare_halves(dtype, {q, k, v}, {is_causal = true})
    compare_halves(dtype, {k, q, v:narrow(2, 1, 130)}, {is_causal = true})
    compare_halves(dtype, {q, k, v}, {attn_mask = random(150):gt(-0.5)})
    compare_halves(dtype, {q, k, v}, {attn_mask = random(2, 130, 1):to(dtype)})
    compare_halves(dtype, {q, k, v}, {attn_mask = random(130, 150):float()})
    local terms = pg.zeros({130, 150})
    terms[{{1, 40}}] = -1e9
    terms[{{60, 70}, {1, 100}}] = -1e9
    compare_halves(dtype, {q, k, v}, {attn_mask = terms})
    compare_halves(dtype, {q * 3, k, v}, {scale = 1})
    compare_halves(dtype, {q, k, v}, {scale = -0.5})
  end
  local columns = random(2, 64, 50):transpose(2, 3)
  compare_halves("bfloat16", {columns, columns, columns}, {is_causal = true})
  local rows = random(2, 50, 3, 16):to("bfloat16"):transpose(2, 3)
  t.close(pg.scaled_dot_product_attention(rows, rows, rows):float(), by_scores(rows:float(), rows:float(), rows:float(), {}), {atol = 2e-2})
end)

t.test("halves: queries that see no key, and NaN", function()
  local q, k, v = random(1, 20, 16):half(), random(1, 80, 16):half(), random(1, 80, 16):half()
  local mask = pg.ones({20, 80}, {dtype = "bool"})
  mask[3] = false
  mask[{4, {1, 70}}] = false
  local y, grads = gradients(function(a, b, c) return pg.scaled_dot_product_attention(a, b, c, {attn_mask = mask}) end, {q, k, v}, pg.ones({1, 20, 16}, {dtype = "float16"}))
  t.equal(y[{1, 3}], pg.zeros_like(y[{1, 3}]))
  t.check(not y:isnan():any():item() and not grads[1]:isnan():any():item() and not grads[2]:isnan():any():item())
  t.equal(grads[1][{1, 3}], pg.zeros_like(q[{1, 3}]))
  t.check(y[{1, 4}]:abs():max():item() > 0)
  q[{1, 2, 5}] = 0 / 0
  y = pg.scaled_dot_product_attention(q, k, v)
  t.check(y[{1, 2}]:isnan():all():item() and not y[{1, 1}]:isnan():any():item() and not y[{1, 3}]:isnan():any():item())
end)

t.test("halves: dropout is that of float32", function()
  for _, keys in ipairs{128, 77} do
    local q, k, v = random(2, 70, 16):half(), random(2, keys, 16):half(), random(2, keys, 16):half()
    local function op(a, b, c)
      return pg.scaled_dot_product_attention(a, b, c, {dropout_p = 0.3, is_causal = keys == 77, generator = pg.Generator(5)})
    end
    local cotangent = random(2, 70, 16):half()
    pg.train_mode(function()
      local y, grads = gradients(op, {q, k, v}, cotangent)
      local want, want_grads = gradients(op, {q:float(), k:float(), v:float()}, cotangent:float())
      t.close(y:float(), want, {rtol = 4e-3, atol = 4e-3})
      for i, g in ipairs(want_grads) do t.close(grads[i]:float(), g, {rtol = 4e-3, atol = 1e-2}) end
    end)
  end
end)

t.test("halves: gradients of masks, and second derivatives", function()
  local inputs = {random(3, 4), random(5, 4), random(5, 4), random(3, 5)}
  local function op(q, k, v, mask) return pg.scaled_dot_product_attention(q, k, v, {attn_mask = mask}) end
  local function second(list)
    local leaves = {}
    for i, x in ipairs(list) do leaves[i] = x:clone():attach_grad() end
    local y = pg.record(function() return op(unpack(leaves)):sum() end)
    local squares = pg.record(function()
      local sum = 0
      for _, g in ipairs(pg.autograd.grad({y}, leaves, {create_graph = true})) do sum = sum + g:float():square():sum() end
      return sum
    end)
    return pg.autograd.grad({squares}, leaves)
  end
  local halves, floats = {}, {}
  for i, x in ipairs(inputs) do
    halves[i] = x:half()
    floats[i] = halves[i]:float()
  end
  local want = second(floats)
  for i, g in ipairs(second(halves)) do t.close(g:float(), want[i], {rtol = 2e-2, atol = 2e-2, what = i}) end
end)

t.test("several blocks of queries and keys", function()
  local q, k, v = random(2, 130, 8), random(2, 521, 8), random(2, 521, 5)
  compare({q, k, v}, {}, close)
  compare({q, k, v}, {is_causal = true}, close)
  compare({q, k, v}, {attn_mask = random(2, 130, 521)}, close)
  compare({q, k, v}, {attn_mask = random(521):gt(-0.5), scale = 2}, close)
  compare({k, q, v:narrow(-2, 1, 130)}, {is_causal = true}, close)
  compare({q:float(), k:float(), v:float()}, {is_causal = true}, near)
  compare({q:float(), k:float(), v:float()}, {attn_mask = random(130, 1):gt(-2)}, near)
end)

t.test("sums of blocks with scores of very different sizes", function()
  local q, k, v = random(1, 3, 4), random(1, 1100, 4), random(1, 1100, 2)
  local steps = pg.range(1, 1100):double()
  compare({q, k, v}, {attn_mask = steps * 0.5}, close)
  compare({q, k, v}, {attn_mask = steps * -0.5}, close)
  compare({q, k, v}, {attn_mask = steps:gt(600)}, close)
  compare({q, k, v}, {attn_mask = pg.where(steps:lt(3), 0, -math.huge)}, close)
end)

t.test("large negative terms of a mask hide keys, or shift all scores of a query", function()
  local q, k, v = random(3, 4), random(65, 4), random(65, 2)
  local mask = pg.zeros({3, 65}, {dtype = "float64"})
  mask[1] = -1e30
  mask[{2, {1, 40}}] = -1e9
  compare({q, k, v}, {attn_mask = mask}, {rtol = 1e-6, atol = 1e-6})
  compare({q:float(), k:float(), v:float()}, {attn_mask = mask:float()}, near)
  compare({q:float(), k:float(), v:float()}, {attn_mask = pg.full({1, 65}, -1e9)}, near)
end)

t.test("heads as views of rows of heads", function()
  local x = random(2, 7, 3, 4)
  local heads = x:transpose(2, 3)
  compare({heads, heads, heads}, {}, close)
  local columns = random(2, 4, 9):transpose(2, 3)
  compare({columns, columns, columns}, {is_causal = true}, close)
  compare({random(5, 1, 6, 4), random(3, 6, 4), random(1, 6, 2)}, {}, close)
end)

t.test("few queries, as in decoding", function()
  for _, queries in ipairs{1, 5, 13} do
    compare({random(2, 3, queries, 16):float(), random(2, 3, 40, 16):float(), random(2, 3, 40, 16):float()}, {}, near)
  end
end)

t.test("groups of heads with masks of each form", function()
  local q, k, v = random(2, 4, 3, 2), random(2, 2, 5, 2), random(2, 2, 5, 3)
  local function all(x) return x:repeat_interleave(2, -3) end
  for _, shape in ipairs{{5}, {3, 5}, {1, 3, 5}, {4, 3, 5}, {2, 1, 3, 5}, {2, 4, 1, 5}} do
    local mask = random(unpack(shape))
    local y = pg.scaled_dot_product_attention(q, k, v, {enable_gqa = true, attn_mask = mask})
    t.close(y, by_scores(q, all(k), all(v), {attn_mask = mask}), close)
    gradcheck.check(function(list)
      return {pg.scaled_dot_product_attention(list[1], list[2], list[3], {enable_gqa = true, attn_mask = list[4]})}
    end, {q, k, v, mask})
  end
end)

t.test("NaN and infinite scores spread to their own query only", function()
  local q, k, v = random(3, 2), random(4, 2), random(4, 2)
  q[{2, 1}] = 0 / 0
  local y = pg.scaled_dot_product_attention(q, k, v)
  t.check(y[2]:isnan():all():item() and not y[{{1, 1}}]:isnan():any():item() and not y[3]:isnan():any():item())
  q[{2, 1}] = math.huge
  t.check(pg.scaled_dot_product_attention(q, k, v)[2]:isnan():all():item())
end)

t.test("dropout by the kernel is that of the composition", function()
  local q, k, v = random(2, 130, 4), random(2, 140, 4), random(2, 140, 3)
  local options = {dropout_p = 0.3, is_causal = true}
  local keys = {pg.Generator(5), pg.Generator(5)}
  local function op(a, b, c) return pg.scaled_dot_product_attention(a, b, c, {dropout_p = 0.3, is_causal = true, generator = keys[1]}) end
  local function composed(a, b, c)
    local scores = a:matmul(b:transpose(-2, -1)) / 2
    local weights = pg.where(pg.ones(130, 140):tril():gt(0), scores, -math.huge):softmax(-1)
    return weights:dropout(0.3, true, {generator = keys[2]}):matmul(c)
  end
  local y = pg.scaled_dot_product_attention(q, k, v, options)
  local cotangent = gradcheck.random(y.shape)
  pg.train_mode(function()
    local got, grads = gradients(op, {q, k, v}, cotangent)
    local expected, expected_grads = gradients(composed, {q, k, v}, cotangent)
    t.close(got, expected, close)
    for i, g in ipairs(expected_grads) do t.close(grads[i], g, close) end
    t.check(not got:allclose(y))
    local all = pg.scaled_dot_product_attention(q, k, v, {dropout_p = 1})
    t.equal(all, pg.zeros_like(all))
  end)
  pg.train_mode(function()
    local seed = 7
    gradcheck.check(function(list)
      return {pg.scaled_dot_product_attention(list[1], list[2], list[3], {dropout_p = 0.4, generator = pg.Generator(seed)})}
    end, {random(2, 3, 2), random(2, 4, 2), random(2, 4, 2)})
  end)
end)

t.test("sizes of 0", function()
  local none = pg.scaled_dot_product_attention(random(2, 3, 4), pg.zeros({2, 0, 4}, {dtype = "float64"}), pg.zeros({2, 0, 5}, {dtype = "float64"}))
  t.equal(none, pg.zeros({2, 3, 5}, {dtype = "float64"}))
  local v = random(4, 2)
  local mean = pg.scaled_dot_product_attention(pg.zeros({3, 0}, {dtype = "float64"}), pg.zeros({4, 0}, {dtype = "float64"}), v, {scale = 1})
  t.close(mean, v:mean(1, true):expand(3, 2))
  for _, sizes in ipairs{{0, 3, 4, 5}, {2, 0, 4, 5}, {2, 3, 0, 5}, {2, 3, 4, 0}} do
    local queries, keys, width, value_width = unpack(sizes)
    local function zeros(...) return pg.zeros({1, ...}, {dtype = "float64"}) end
    local _, grads = gradients(function(q, k, value)
      return pg.scaled_dot_product_attention(q, k, value, {scale = 1})
    end, {zeros(queries, width), zeros(keys, width), zeros(keys, value_width)})
    t.equal(grads[3].shape, {1, keys, value_width})
  end
end)

t.test("memory is linear in the number of positions", function()
  local length = 2048
  local x = pg.randn(1, 2, length, 8):attach_grad()
  local scores = 2 * length * length * 4
  collectgarbage()
  local most, before = 0, pg.memory().live
  local y = pg.record(function() return pg.scaled_dot_product_attention(x, x, x, {is_causal = true}):sum() end)
  most = math.max(most, pg.memory().live - before)
  y:backward()
  most = math.max(most, pg.memory().live - before)
  t.check(most < scores / 8, most)
end)
