-- Transformer layers and stacks: values by their parts, masks, decoding with caches, gradients.
local t = require "tests.support"
local pg = require "perigee"
local gradcheck = require "tests.gradcheck"
local layers = require "tests.layers"
local nn = pg.nn

local near = {rtol = 1e-4, atol = 1e-5}

local function made(class, ...)
  pg.manual_seed(11)
  return class(...):initialize("xavier")
end

t.test("an encoder layer is its parts, post-norm and pre-norm", function()
  local x = pg.randn(2, 5, 8)
  local post = made(nn.TransformerEncoderLayer, 8, 2, {activation = "gelu"})
  local y = post.attention_norm(x + post.attention(x))
  t.close(layers.check(post, x), post.ffn_norm(y + post.ffn(y)), near)
  t.equal(post.ffn[1].weight.shape, {32, 8})
  local pre = made(nn.TransformerEncoderLayer, 8, 2, {pre_norm = true, norm = "rms", hidden_size = 12, causal = true, rotary = true})
  y = x + pre.attention(pre.attention_norm(x))
  t.close(layers.check(pre, x), y + pre.ffn(pre.ffn_norm(y)), near)
  t.check(pre.attention_norm.beta == nil and pre.ffn[3].weight.shape[2] == 12)
  t.check(tostring(pre):find("8 units, 2 heads, pre-norm", 1, true))
end)

t.test("a decoder layer is its parts", function()
  local x, memory = pg.randn(2, 3, 8), pg.randn(2, 5, 6)
  local post = made(nn.TransformerDecoderLayer, 8, 2)
  local y = post.attention_norm(x + post.attention(x))
  y = post.memory_norm(y + post.memory_attention(y, memory))
  t.close(layers.check(post, x, memory), post.ffn_norm(y + post.ffn(y)), near)
  local pre = made(nn.TransformerDecoderLayer, 8, 2, {pre_norm = true})
  y = x + pre.attention(pre.attention_norm(x))
  y = y + pre.memory_attention(pre.memory_norm(y), memory)
  t.close(layers.check(pre, x, memory), y + pre.ffn(pre.ffn_norm(y)), near)
end)

t.test("stacks run their layers, with a last norm if pre_norm", function()
  local x, memory = pg.randn(2, 4, 8), pg.randn(2, 3, 8)
  for _, pre in ipairs{false, true} do
    local encoder = made(nn.TransformerEncoder, 3, 8, 2, {pre_norm = pre})
    local y = x
    for i = 1, 3 do y = encoder[i](y) end
    t.close(layers.check(encoder, x), pre and encoder.norm(y) or y, near)
    local decoder = made(nn.TransformerDecoder, 2, 8, 2, {pre_norm = pre})
    y = decoder[2](decoder[1](x, memory), memory)
    t.close(layers.check(decoder, x, memory), pre and decoder.norm(y) or y, near)
    t.equal(encoder.norm ~= nil, pre)
    t.check(#decoder == 2 and tostring(encoder):find("3 layers", 1, true))
  end
end)

t.test("masks: padding changes nothing before it", function()
  local encoder, decoder = made(nn.TransformerEncoder, 2, 8, 2), made(nn.TransformerDecoder, 2, 8, 2)
  local source, target = pg.randn(2, 5, 8), pg.randn(2, 4, 8)
  local lengths = pg.tensor({5, 3}, {dtype = "int64"})
  local memory = encoder(source, lengths)
  local short = encoder(source[{{2, 2}, {1, 3}}])
  t.close(memory[{{2, 2}, {1, 3}}], short, near)
  local y = decoder(target, memory, nil, lengths)
  t.close(y[{{2, 2}}], decoder(target[{{2, 2}}], short), near)
  local changed = target:clone()
  changed[{{}, 4}] = 9
  t.close(decoder(changed, memory, nil, lengths)[{{}, {1, 3}}], y[{{}, {1, 3}}], near)
end)

t.test("decoding step by step is the full run", function()
  local x, memory = pg.randn(2, 5, 8), pg.randn(2, 3, 8)
  local own = made(nn.TransformerEncoder, 2, 8, 2, {causal = true, rotary = true, pre_norm = true, num_kv_heads = 1})
  local decoder = made(nn.TransformerDecoder, 2, 8, 2)
  local lengths = pg.tensor({3, 2}, {dtype = "int64"})
  local whole, wanted = own(x), decoder(x, memory, nil, lengths)
  for _, hybrid in ipairs{false, true} do
    own:hybridize(hybrid)
    decoder:hybridize(hybrid)
    local a, b = own:begin_cache(2, 5), decoder:begin_cache(memory, 5)
    for i = 1, 5 do
      local y, z
      y, a = own(x:narrow(2, i, 1), nil, a)
      z, b = decoder(x:narrow(2, i, 1), nil, nil, lengths, b)
      t.close(y, whole:narrow(2, i, 1), near)
      t.close(z, wanted:narrow(2, i, 1), near)
    end
    if hybrid then t.equal({own:cache_info().traces, decoder:cache_info().traces}, {1, 1}) end
  end
end)

t.test("greedy decoding in a loop, jitted too", function()
  local net = made(nn.TransformerEncoder, 1, 8, 2, {causal = true})
  local words = nn.Embedding(7, 8):initialize("normal")
  local function logits(x) return x:matmul(words.weight:t()) end
  local function run(first)
    local steps = pg.foreach(function(_, s)
      local y, cache = net(words(s.word), nil, s.cache)
      local word = logits(y):argmax(-1)
      return word, {word = word, cache = cache}
    end, pg.zeros(6), {word = first, cache = net:begin_cache(1, 6)})
    return steps:reshape{-1}
  end
  local first = pg.tensor({{3}}, {dtype = "int64"})
  local expected, sequence = {}, {3}
  for i = 1, 6 do
    local y = net(words(pg.tensor({sequence}, {dtype = "int64"})))
    expected[i] = logits(y)[{1, -1}]:argmax():item()
    sequence[i + 1] = expected[i]
  end
  t.equal(run(first):totable(), expected)
  t.equal(pg.jit(run)(first):totable(), expected)
end)

t.test("gradients of encoder and decoder", function()
  gradcheck.seed(2)
  local x, memory = gradcheck.random{2, 3, 4}, gradcheck.random{2, 2, 4}
  local options = {activation = "gelu", hidden_size = 6, dtype = "float64", dropout = 0.3}
  local function double(class, ...) return made(class, ...):to("float64") end
  layers.gradients(double(nn.TransformerEncoder, 2, 4, 2, options), x)
  options.pre_norm, options.norm = true, "rms"
  layers.gradients(double(nn.TransformerDecoder, 1, 4, 2, options), x, memory)
end)

t.test("a stack learns to copy, eagerly and hybridized", function()
  local losses = {}
  for k, hybrid in ipairs{false, true} do
    local encoder = made(nn.TransformerEncoder, 1, 8, 2, {dropout = 0, pre_norm = true})
    if hybrid then encoder:hybridize() end
    local trainer = pg.optim.Trainer(encoder:collect_params(), "adam", {learning_rate = 0.01})
    local x = pg.randn(4, 3, 8)
    local l
    for _ = 1, 30 do
      l = pg.record(function() return (encoder(x) - x):square():mean() end)
      l:backward()
      trainer:step(1)
      losses[k] = losses[k] or {l:item()}
    end
    losses[k][2] = l:item()
    t.check(losses[k][2] < 0.5 * losses[k][1], losses[k][2])
  end
  t.close(losses[2], losses[1], {rtol = 1e-2})
end)

t.test("wrong arguments of Transformer blocks", function()
  local x = pg.ones(1, 2, 4)
  t.bad_argument(function() nn.TransformerEncoderLayer(4) end, "TransformerEncoderLayer", "num_heads")
  t.bad_argument(function() nn.TransformerEncoderLayer(4, 2, {norm = "batch"}) end, "TransformerEncoderLayer", "norm")
  t.bad_argument(function() nn.TransformerEncoderLayer(4, 2, {pre_norm = 1}) end, "TransformerEncoderLayer", "pre_norm")
  t.bad_argument(function() nn.TransformerEncoder(0, 4, 2) end, "TransformerEncoder", "num_layers")
  t.error_contains(function() nn.TransformerEncoderLayer(4, 2, {activation = "rellu"}) end, "relu")
  t.error_contains(function() nn.TransformerDecoderLayer(4, 2, {causal = false}) end, "causal")
  t.bad_argument(function() made(nn.TransformerDecoderLayer, 4, 2)(x) end, "TransformerDecoderLayer", "memory")
  local encoder = made(nn.TransformerEncoder, 2, 4, 2, {causal = true})
  t.bad_argument(function() encoder(x, nil, {}) end, "TransformerEncoder", "cache")
  t.bad_argument(function() made(nn.TransformerDecoder, 2, 4, 2):begin_cache(3, 4) end, "begin_cache", "memory")
end)
