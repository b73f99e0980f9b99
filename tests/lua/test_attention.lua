-- Attention and positions: values by formulas, masks, decoding with a cache, gradients.
local t = require "tests.support"
local pg = require "perigee"
local gradcheck = require "tests.gradcheck"
local layers = require "tests.layers"
local nn = pg.nn

local near = {rtol = 1e-4, atol = 1e-5}

local function attention(units, heads, options)
  pg.manual_seed(7)
  options = options or {}
  options.bias_initializer = "uniform"
  return nn.MultiHeadAttention(units, heads, options):initialize("xavier")
end

-- Attention by its formula, head by head. seen(i, j) says whether query i sees key j.
local function by_formula(layer, heads, query, key, value, seen)
  local q, k, v = layer.query(query), layer.key(key), layer.value(value)
  local size = q:size(3) / heads
  local outs = {}
  for h = 1, heads do
    local function part(x) return x:narrow(3, (h - 1) * size + 1, size) end
    local products = part(q):matmul(part(k):transpose(2, 3)) / math.sqrt(size)
    for i = 1, query:size(2) do
      for j = 1, key:size(2) do
        if seen and not seen(i, j) then products[{{}, i, j}] = -1e30 end
      end
    end
    outs[h] = products:softmax(-1):matmul(part(v))
  end
  return layer.out(pg.cat(outs, 3))
end

t.test("self-attention and cross-attention by the formula", function()
  local layer = attention(6, 2)
  local x = pg.randn(2, 5, 6)
  t.close(layers.check(layer, x), by_formula(layer, 2, x, x, x), near)
  local causal = attention(6, 3, {causal = true})
  t.close(layers.check(causal, x), by_formula(causal, 3, x, x, x, function(i, j) return j <= i end), near)
  local cross = attention(6, 2)
  local key, value = pg.randn(2, 4, 3), pg.randn(2, 4, 5)
  t.close(layers.check(cross, x, key, value), by_formula(cross, 2, x, key, value), near)
  t.equal(cross.key.weight.shape, {6, 3})
  local same = attention(6, 2)
  t.close(layers.check(same, x, key), by_formula(same, 2, x, key, key), near)
  t.check(tostring(causal):find("6 units, 3 heads, causal", 1, true))
  local names = {}
  for path in layer:parameters() do names[#names + 1] = path end
  t.equal(names, {"query.weight", "query.bias", "key.weight", "key.bias", "value.weight", "value.bias", "out.weight", "out.bias"})
end)

t.test("masks of each form", function()
  t.may_warn("traced again for the third time")
  local layer, causal = attention(4, 2), attention(4, 2, {causal = true})
  local x = pg.randn(2, 3, 4)
  local lengths = pg.tensor({3, 2}, {dtype = "int64"})
  local valid = pg.tensor{{true, true, true}, {true, true, false}}
  local function hidden(i, j) return i ~= 2 or j < 3 end
  for _, net in ipairs{layer, causal} do
    local whole = net(x)
    local short = net(x[{{2, 2}, {1, 2}}])
    local forms = {
      lengths, valid, valid:unsqueeze(2), valid:unsqueeze(2):unsqueeze(2), pg.where(valid, pg.zeros(2, 3), -math.huge),
      valid:unsqueeze(2):expand(2, 3, 3),
    }
    for k, mask in ipairs(forms) do
      local y = net(x, nil, nil, mask)
      t.close(y[1], whole[1], {rtol = 1e-4, atol = 1e-5, what = "mask " .. k})
      t.close(y[{2, {1, 2}}], short[1], {rtol = 1e-4, atol = 1e-5, what = "mask " .. k})
    end
    t.close(layers.check(net, x, x, x, lengths), net(x, nil, nil, valid), near)
  end
  local square = pg.ones({3, 3}, {dtype = "bool"})
  square[{2, 3}] = false
  t.close(layer(x, nil, nil, square:unsqueeze(1)), by_formula(layer, 2, x, x, x, hidden), near)
  local bias = pg.randn(1, 2, 3, 3)
  local moved = layer(x, nil, nil, bias)
  t.check(not moved:allclose(layer(x)))
  t.close(layer(x, nil, nil, bias + 5), moved, near)
  local nothing = layer(x, nil, nil, pg.zeros({2}, {dtype = "int64"}))
  t.close(nothing[1][1], layer.out.bias)
end)

t.test("fewer heads of keys and values are repeated ones", function()
  local few, many = attention(8, 4, {num_kv_heads = 2}), attention(8, 4)
  local x = pg.randn(2, 3, 8)
  few(x)
  many(x)
  for _, name in ipairs{"query", "out"} do many[name].weight:set_data(few[name].weight) many[name].bias:set_data(few[name].bias) end
  for _, name in ipairs{"key", "value"} do
    local function repeated(p) return p:unflatten(1, {2, 2}):repeat_interleave(2, 1):flatten(1, 2) end
    many[name].weight:set_data(repeated(few[name].weight))
    many[name].bias:set_data(repeated(few[name].bias))
  end
  t.equal(few.key.weight.shape, {4, 8})
  t.close(layers.check(few, x), many(x), near)
end)

-- Runs x through the layer in pieces of these sizes and returns the joined outputs and the last cache.
local function decode(layer, x, cache, sizes, mask)
  local outs, at = {}, 1
  for i, size in ipairs(sizes) do
    outs[i], cache = layer(x:narrow(2, at, size), nil, nil, mask, cache)
    at = at + size
  end
  return pg.cat(outs, 2), cache
end

t.test("decoding with a cache is the full run", function()
  local x = pg.randn(2, 5, 8)
  for _, options in ipairs{{}, {rotary = true}, {num_kv_heads = 1, rotary = true}} do
    options.causal = true
    local layer = attention(8, 2, options)
    local whole = layer(x)
    for _, hybrid in ipairs{false, true} do
      layer:hybridize(hybrid)
      for _, sizes in ipairs{{1, 1, 1, 1, 1}, {3, 1, 1}, {5}, {2, 3}} do
        local y, cache = decode(layer, x, layer:begin_cache(2, 6), sizes)
        t.close(y, whole, near)
        t.equal(cache.length:item(), 5)
      end
    end
    t.check(layer:cache_info().traces <= 2, "one graph with a cache, for all sizes")
    layer:hybridize(false)
    local valid = pg.tensor{{true, true, true, true, true, false}, {false, true, true, true, true, false}}
    t.close(decode(layer, x, layer:begin_cache(2, 6), {2, 1, 2}, valid), layer(x, nil, nil, valid:narrow(2, 1, 5)), near)
  end
end)

t.test("a cache is a state of a loop", function()
  local layer = attention(4, 2, {causal = true})
  local x = pg.randn(2, 5, 4)
  local whole = layer(x)
  local function run(y)
    local outs = pg.foreach(function(item, cache)
      local out, new = layer(item:unsqueeze(2), nil, nil, nil, cache)
      return out:squeeze(2), new
    end, y:transpose(1, 2), layer:begin_cache(2, 5))
    return outs:transpose(1, 2)
  end
  t.close(run(x), whole, near)
  t.close(pg.jit(run)(x), whole, near)
end)

t.test("a cache without causal sees all positions so far, a remembered memory all of it", function()
  t.may_warn("traced again for the third time")
  local layer = attention(4, 2)
  local x, memory = pg.randn(1, 3, 4), pg.randn(1, 6, 4)
  local y, cache = layer(x:narrow(2, 1, 2), nil, nil, nil, layer:begin_cache(1, 4))
  t.close(y, layer(x:narrow(2, 1, 2)), near)
  y = layer(x:narrow(2, 3, 1), nil, nil, nil, cache)
  t.close(y, layer(x):narrow(2, 3, 1), near)
  local stored = layer:remember(memory)
  local z, same = layer(x, nil, nil, nil, stored)
  t.close(z, layer(x, memory), near)
  t.check(same.key:equal(stored.key))
  t.error_contains(function() decode(layer, pg.randn(1, 5, 4), layer:begin_cache(1, 4), {4, 1}) end, "5")
end)

t.test("a full cache is an error that names max_length and the layer", function()
  t.skip_in("hybrid", "the next test is that of graphs")
  if t.device ~= "cpu" then t.skip("a device reports a wrong index later") end
  local full = "MultiHeadAttention: the cache is full: positions %d to 5 exceed its max_length of 4 (begin_cache takes max_length)"
  local layer = attention(4, 2)
  t.error_contains(function() decode(layer, pg.randn(1, 5, 4), layer:begin_cache(1, 4), {4, 1}) end, full:format(5))
  local encoder = nn.TransformerEncoder(2, 4, 2, {causal = true}):initialize()
  t.error_contains(function()
    local _, state = encoder(pg.ones(1, 3, 4), nil, encoder:begin_cache(1, 4))
    encoder(pg.ones(1, 2, 4), nil, state)
  end, full:format(4) .. " (in block '1.attention', MultiHeadAttention)")
end)

t.test("a full cache in a graph is an error of begin_cache", function()
  if t.device ~= "cpu" then t.skip("a device reports a wrong index later") end
  local layer = attention(4, 2)
  layer:hybridize()
  local _, cache = layer(pg.ones(1, 4, 4), nil, nil, nil, layer:begin_cache(1, 4))
  local _, e = pcall(layer, pg.ones(1, 1, 4), nil, nil, nil, cache)
  t.check(e:find("test_attention.lua:%d+: begin_cache: bad argument 'index' %(expected index values from 1 to 4"), e)
end)

t.test("export with a cache", function()
  local layer = attention(4, 2, {causal = true, rotary = true})
  local x = pg.randn(2, 3, 4)
  local whole = layer(x)
  local cache = layer:begin_cache(2, 4)
  local back = layers.imported(layer, x:narrow(2, 1, 1), nil, nil, nil, cache)
  local outs = {}
  for i = 1, 3 do outs[i], cache = back(x:narrow(2, i, 1), nil, nil, nil, cache) end
  t.close(pg.cat(outs, 2), whole, near)
end)

t.test("dropout acts in training mode only", function()
  local layer = attention(4, 2, {dropout = 0.5})
  local x = pg.randn(2, 6, 4)
  t.equal(layer(x), layer(x))
  local a, b = pg.train_mode(function() return layer(x), layer(x) end)
  t.check(not a:allclose(b))
end)

t.test("gradients of attention and positions", function()
  gradcheck.seed(1)
  local x, memory = gradcheck.random{2, 3, 4}, gradcheck.random{2, 2, 3}
  layers.gradients(attention(4, 2, {dtype = "float64", causal = true, rotary = true}), x)
  layers.gradients(attention(4, 2, {dtype = "float64", num_kv_heads = 1}), x, memory, nil, pg.tensor({2, 1}, {dtype = "int64"}))
  layers.gradients(nn.RotaryEmbedding(), x, 2)
  layers.gradients(nn.SinusoidalPositions(), x)
end)

t.test("SinusoidalPositions by the formula", function()
  local layer = nn.SinusoidalPositions{base = 100}
  local y = layers.check(layer, pg.zeros(1, 3, 4))
  for p = 0, 2 do
    t.close(y[{1, p + 1}], {math.sin(p), math.cos(p), math.sin(p / 10), math.cos(p / 10)}, near)
  end
  local x = pg.randn(2, 3, 4, 6)
  local whole = nn.SinusoidalPositions()(x)
  t.close(nn.SinusoidalPositions()(x:narrow(3, 3, 2), 2), whole:narrow(3, 3, 2), near)
  t.close(nn.SinusoidalPositions()(x:narrow(3, 3, 2), pg.tensor(2, {dtype = "int64"})), whole:narrow(3, 3, 2), near)
  t.equal(nn.SinusoidalPositions()(x:to("float16")).dtype, "float16")
end)

t.test("positions of an empty batch, and of no items", function()
  for _, shape in ipairs{{0, 3, 4}, {2, 0, 4}} do
    for _, layer in ipairs{nn.RotaryEmbedding(), nn.SinusoidalPositions(), attention(4, 2, {rotary = true, causal = true})} do
      t.equal(layers.check(layer, pg.zeros(shape)).shape, shape)
    end
  end
end)

t.test("RotaryEmbedding rotates pairs, and products depend on distances", function()
  local layer = nn.RotaryEmbedding{base = 100}
  local x = pg.randn(2, 3, 4)
  local y = layers.check(layer, x)
  for p = 0, 2 do
    for i = 1, 2 do
      local a, angle = {x[{1, p + 1, i}]:item(), x[{1, p + 1, i + 2}]:item()}, p / 10 ^ (i - 1)
      t.close(y[{1, p + 1, i}], a[1] * math.cos(angle) - a[2] * math.sin(angle), near)
      t.close(y[{1, p + 1, i + 2}], a[2] * math.cos(angle) + a[1] * math.sin(angle), near)
    end
  end
  t.close(layer(x:narrow(2, 2, 2), 1), y:narrow(2, 2, 2), near)
  local q, k = pg.randn(1, 1, 8):expand(1, 5, 8), pg.randn(1, 1, 8):expand(1, 5, 8)
  local rotary = nn.RotaryEmbedding()
  local function products(offset) return rotary(q, offset):matmul(rotary(k, offset):transpose(2, 3))[1] end
  local m = products(0)
  t.close(m[{2, 1}], m[{5, 4}], near)
  t.close(products(7), m, {rtol = 1e-3, atol = 1e-4})
  layer:hybridize()
  layer(x)
  layer(pg.randn(2, 6, 4))
  t.equal(layer:cache_info().traces, 1)
end)

t.test("wrong arguments of attention and positions", function()
  local layer = nn.MultiHeadAttention(4, 2):initialize()
  local x = pg.ones(1, 2, 4)
  t.bad_argument(function() nn.MultiHeadAttention(5, 2) end, "MultiHeadAttention", "num_heads")
  t.bad_argument(function() nn.MultiHeadAttention(4) end, "MultiHeadAttention", "num_heads")
  t.bad_argument(function() nn.MultiHeadAttention(8, 4, {num_kv_heads = 3}) end, "MultiHeadAttention", "num_kv_heads")
  t.bad_argument(function() nn.MultiHeadAttention(4, 2, {dropout = 2}) end, "MultiHeadAttention", "dropout")
  t.bad_argument(function() nn.MultiHeadAttention(6, 2, {rotary = true}) end, "MultiHeadAttention", "num_heads")
  t.error_contains(function() nn.MultiHeadAttention(4, 2, {casual = true}) end, "causal")
  t.bad_argument(function() layer(pg.ones(2, 4)) end, "MultiHeadAttention", "query")
  t.bad_argument(function() layer(x, 3) end, "MultiHeadAttention", "key")
  t.bad_argument(function() layer(x, x, pg.ones(4)) end, "MultiHeadAttention", "value")
  t.bad_argument(function() layer(x, nil, nil, 3) end, "MultiHeadAttention", "mask")
  t.bad_argument(function() layer(x, nil, nil, pg.ones(1, 1, 1, 2, 2)) end, "MultiHeadAttention", "mask")
  t.bad_argument(function() layer(x, nil, nil, nil, {}) end, "MultiHeadAttention", "cache")
  t.bad_argument(function() layer:begin_cache(1) end, "begin_cache", "max_length")
  t.bad_argument(function() layer:remember(1) end, "remember", "key")
  t.bad_argument(function() nn.RotaryEmbedding()(pg.ones(2, 3)) end, "RotaryEmbedding", "x")
  t.bad_argument(function() nn.RotaryEmbedding{base = 0} end, "RotaryEmbedding", "base")
  t.bad_argument(function() nn.SinusoidalPositions()(pg.ones(2)) end, "SinusoidalPositions", "x")
end)
