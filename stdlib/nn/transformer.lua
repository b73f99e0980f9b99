-- Layers and stacks of the Transformer: attention and a feed-forward net, each with a residual connection and a norm.
local core = ...
local args = core.require("support.args")
local HybridBlock = core.require("nn.block").HybridBlock
local HybridSequential = core.require("nn.sequential").HybridSequential
local MultiHeadAttention = core.require("nn.attention").MultiHeadAttention
local basic = core.require("nn.basic")
local norms = core.require("nn.norm")
local layers = {}

local names = {"units", "num_heads"}
local norm_of = {layer = norms.LayerNorm, rms = norms.RMSNorm}

local function spec_of(more)
  local spec = {
    units = args.required, num_heads = args.required, hidden_size = args.none, dropout = 0.1, attention_dropout = args.none,
    activation = "relu", pre_norm = false, norm = "layer", epsilon = 1e-5, rotary = false, num_kv_heads = args.none, use_bias = true,
    weight_initializer = args.none, bias_initializer = args.none, dtype = "float32",
  }
  for key, value in pairs(more) do spec[key] = value end
  return spec
end

local function attention(o, more)
  local options = {
    dropout = o.attention_dropout or o.dropout, use_bias = o.use_bias, weight_initializer = o.weight_initializer,
    bias_initializer = o.bias_initializer, dtype = o.dtype, num_kv_heads = o.num_kv_heads,
  }
  for key, value in pairs(more) do options[key] = value end
  return MultiHeadAttention(o.units, o.num_heads, options)
end

local function norm(o) return norm_of[o.norm]{epsilon = o.epsilon, in_channels = o.units} end

local function feed_forward(o)
  local function dense(units, inputs, f)
    return basic.Dense(units, {
      in_units = inputs, activation = f, flatten = false, use_bias = o.use_bias, weight_initializer = o.weight_initializer,
      bias_initializer = o.bias_initializer, dtype = o.dtype,
    })
  end
  return HybridSequential{dense(o.hidden_size, o.units, o.activation), basic.Dropout(o.dropout), dense(o.units, o.hidden_size)}
end

local function check(block, o)
  local name = block._name
  args.count(name, "units", o.units, 1)
  o.hidden_size = args.count(name, "hidden_size", o.hidden_size or 4 * o.units, 1)
  block._pre_norm = args.boolean(name, "pre_norm", o.pre_norm)
  args.choice(name, "norm", o.norm, {"layer", "rms"})
  block._text = ("%d units, %d heads%s"):format(o.units, o.num_heads, o.pre_norm and ", pre-norm" or "")
end

-- Returns x plus what the sub-layer f makes of it, with the norm before f or after the sum, and the second result of f.
local function residual(block, normalize, x, f, ...)
  if core.is_tensor(x) and x:size(-1) ~= block._units then block:infer_shape(x) end  -- the sum would expand a size of 1
  local y, more = f(block._pre_norm and normalize(x) or x, ...)
  y = x + block.dropout(y)
  return block._pre_norm and y or normalize(y), more
end

local function define_layer(name, spec)
  local Layer = HybridBlock:extend(name)
  layers[name] = Layer

  function Layer:init(...)
    local o = args.read(name, names, spec, ...)
    check(self, o)
    self._units = o.units
    self:_make(o)
    self.ffn = feed_forward(o)
    self.ffn_norm = norm(o)
    self.dropout = basic.Dropout(o.dropout)
  end

  function Layer:describe() return self._text end

  -- Explains a failed call: a layer has no parameters of its own to infer.
  function Layer:infer_shape(x)
    args.tensor(name, "x", x)
    if x:dim() ~= 3 then core.arg_error(name, "x", ("a tensor (batch, positions, %d)"):format(self._units), x) end
    if x:size(3) ~= self._units then core.arg_error(name, "x", ("%d features (units)"):format(self._units), x) end
  end
  return Layer
end

--- nn.TransformerEncoderLayer(units, num_heads, {hidden_size = 4 * units, dropout = 0.1, attention_dropout = dropout,
--- activation = "relu", pre_norm = false, norm = "layer" or "rms", epsilon = 1e-5, causal = false, rotary = false,
--- num_kv_heads=, use_bias = true, weight_initializer=, bias_initializer=, dtype=}): self-attention, then two Dense layers of
--- hidden_size and units. Each has a residual connection; its norm comes after the sum, or before the sub-layer with
--- pre_norm. layer(x[, mask[, cache]]) -> (batch, positions, units), and the new cache if one is given. mask, causal, rotary
--- and cache are those of nn.MultiHeadAttention; layers that decode step by step are causal. Vaswani et al., Attention Is
--- All You Need, 2017; pre_norm: Xiong et al., On Layer Normalization in the Transformer Architecture, 2020.
--- Example: local layer = pg.nn.TransformerEncoderLayer(4, 2, {activation = "gelu"})
--- layer:initialize()
--- return layer(pg.ones(1, 3, 4)).shape
local encoder_spec = spec_of{causal = false}
local EncoderLayer = define_layer("TransformerEncoderLayer", encoder_spec)

function EncoderLayer:_make(o)
  self.attention = attention(o, {causal = o.causal, rotary = o.rotary})
  self.attention_norm = norm(o)
end

--- layer:begin_cache(batch_size, max_length[, {dtype =, device =}]) -> an empty cache of its attention.
function EncoderLayer:begin_cache(...) return self.attention:begin_cache(...) end

function EncoderLayer:forward(x, mask, cache)
  local y, new = residual(self, self.attention_norm, x, self.attention, nil, nil, mask, cache)
  y = residual(self, self.ffn_norm, y, self.ffn)
  if cache then return y, new end
  return y
end

--- nn.TransformerDecoderLayer(units, num_heads, {the options of TransformerEncoderLayer except causal}): causal
--- self-attention, attention to a memory, which is the result of an encoder (batch, positions, size), and a feed-forward net.
--- layer(x, memory[, mask[, memory_mask[, cache]]]) -> (batch, positions, units). With a cache of begin_cache, which holds the
--- memory, x is the next positions only, and the new cache is the second result. Vaswani et al., 2017.
--- Example: local layer = pg.nn.TransformerDecoderLayer(4, 2)
--- layer:initialize()
--- return layer(pg.ones(1, 3, 4), pg.ones(1, 5, 4)).shape
local decoder_spec = spec_of{}
local DecoderLayer = define_layer("TransformerDecoderLayer", decoder_spec)

function DecoderLayer:_make(o)
  self.attention = attention(o, {causal = true, rotary = o.rotary})
  self.attention_norm = norm(o)
  self.memory_attention = attention(o, {})
  self.memory_norm = norm(o)
end

--- layer:begin_cache(memory, max_length) -> a cache for up to max_length positions that attend to the memory.
function DecoderLayer:begin_cache(memory, max_length)
  args.tensor("begin_cache", "memory", memory)
  return {
    own = self.attention:begin_cache(memory:size(1), max_length, {dtype = memory.dtype, device = memory.device}),
    memory = self.memory_attention:remember(memory),
  }
end

function DecoderLayer:forward(x, memory, mask, memory_mask, cache)
  local y, own = residual(self, self.attention_norm, x, self.attention, nil, nil, mask, cache and cache.own)
  if not cache then args.tensor(self._name, "memory", memory) end
  y = residual(self, self.memory_norm, y, self.memory_attention, memory, nil, memory_mask, cache and cache.memory)
  y = residual(self, self.ffn_norm, y, self.ffn)
  if cache then return y, {own = own, memory = cache.memory} end
  return y
end

local function define_stack(name, Layer, layer_spec)
  local Stack = HybridBlock:extend(name)
  layers[name] = Stack
  local spec = {num_layers = args.required}
  for key, value in pairs(layer_spec) do spec[key] = value end

  function Stack:init(...)
    local o = args.read(name, {"num_layers", "units", "num_heads"}, spec, ...)
    local count = args.layers(name, o.num_layers)
    o.num_layers = nil
    for i = 1, count do self[i] = Layer(o) end
    if o.pre_norm then self.norm = norm(o) end
  end

  --- encoder:begin_cache(batch_size, max_length[, {dtype =, device =}]) and decoder:begin_cache(memory, max_length) -> the list
  --- of the caches of the layers.
  function Stack:begin_cache(...)
    local caches = {}
    for i, layer in ipairs(self) do caches[i] = layer:begin_cache(...) end
    return caches
  end

  -- Runs all layers; `more` are the arguments between x and the cache, whose number is n.
  function Stack:_run(x, caches, n, ...)
    if caches and (not args.plain(caches) or #caches ~= #self) then
      core.arg_error(name, "cache", ("a list of %d caches, as begin_cache returns it"):format(#self), caches)
    end
    local list, new = {...}, {}
    for i, layer in ipairs(self) do
      if caches then list[n + 1] = caches[i] end
      x, new[i] = layer(x, unpack(list, 1, n + 1))
    end
    if self.norm then x = self.norm(x) end
    if caches then return x, new end
    return x
  end

  function Stack:describe() return #self .. " layers" end
  return Stack
end

--- nn.TransformerEncoder(num_layers, units, num_heads, {the options of TransformerEncoderLayer}): layers in a row, and a last
--- norm with pre_norm. encoder(x[, mask[, cache]]) -> (batch, positions, units), and the new caches if those of begin_cache
--- are given. `encoder[i]` is a layer. A net for language that decodes from itself is a causal encoder.
--- Example: local encoder = pg.nn.TransformerEncoder(2, 4, 2, {pre_norm = true})
--- encoder:initialize()
--- return encoder(pg.ones(1, 3, 4), pg.tensor({2}, {dtype = "int64"})).shape
local Encoder = define_stack("TransformerEncoder", EncoderLayer, encoder_spec)

function Encoder:forward(x, mask, cache) return self:_run(x, cache, 1, mask) end

--- nn.TransformerDecoder(num_layers, units, num_heads, {the options of TransformerDecoderLayer}): layers in a row, and a last
--- norm with pre_norm. decoder(x, memory[, mask[, memory_mask[, cache]]]) -> (batch, positions, units), and the new caches if
--- those of begin_cache are given. `decoder[i]` is a layer.
--- Example: local decoder = pg.nn.TransformerDecoder(2, 4, 2)
--- decoder:initialize()
--- local cache = decoder:begin_cache(pg.ones(1, 5, 4), 10)
--- return (decoder(pg.ones(1, 1, 4), nil, nil, nil, cache)).shape
local Decoder = define_stack("TransformerDecoder", DecoderLayer, decoder_spec)

function Decoder:forward(x, memory, mask, memory_mask, cache) return self:_run(x, cache, 3, memory, mask, memory_mask) end

return layers
