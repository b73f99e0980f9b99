-- nn.MultiHeadAttention, for whole sequences and for steps with a cache.
local core = ...
local args = core.require("support.args")
local HybridBlock = core.require("nn.block").HybridBlock
local Dense = core.require("nn.basic").Dense
local position = core.require("nn.position")
local param = core.require("param")
local ops = core.ops
local layers = {}

--- nn.MultiHeadAttention(units, num_heads, {num_kv_heads = num_heads, dropout = 0, causal = false, rotary = false,
--- use_bias = true, weight_initializer=, bias_initializer=, dtype=}): attention of several heads, called as
--- layer(query[, key = query[, value = key[, mask[, cache]]]]) with tensors (batch, positions, size) -> (batch, positions of
--- query, units). With causal = true each position sees those up to its own. mask says what a query sees:
--- a bool tensor, true where it sees a key, or a floating one that is added to the products; of 2 dims (batch, keys), 3
--- (batch, queries, keys) or 4 (batch, heads, queries, keys); or the number of valid keys of each sequence, integers
--- (batch). A query that sees no key gets zeros. dropout drops weights in training mode. rotary = true rotates queries and
--- keys by nn.RotaryEmbedding. With fewer num_kv_heads groups of queries share a head of keys and values (Ainslie et al.,
--- GQA, 2023).
--- With a cache of begin_cache the call takes the next positions of the sequence only, sees the earlier ones too, and
--- returns the output and the new cache; a mask then covers max_length keys. With a cache of remember it returns the
--- output and that cache. Raises if num_heads does not divide units. Vaswani et al., Attention Is All You Need, 2017.
--- Example: local layer = pg.nn.MultiHeadAttention(4, 2, {causal = true})
--- layer:initialize("xavier")
--- local x, cache, y = pg.randn(1, 3, 4), layer:begin_cache(1, 3), nil
--- for i = 1, 3 do y, cache = layer(x:narrow(2, i, 1), nil, nil, nil, cache) end
--- return y:allclose(layer(x):narrow(2, 3, 1), {atol = 1e-5})
local MultiHeadAttention = HybridBlock:extend("MultiHeadAttention")
layers.MultiHeadAttention = MultiHeadAttention

local name = "MultiHeadAttention"
local names = {"units", "num_heads"}
local spec = {
  units = args.required, num_heads = args.required, num_kv_heads = args.none, dropout = 0, causal = false, rotary = false,
  use_bias = true, weight_initializer = args.none, bias_initializer = args.none, dtype = "float32",
}

local function check_divisor(option, value, of, total)
  args.count(name, option, value, 1)
  if total % value ~= 0 then core.arg_error(name, option, ("a divisor of %s = %d"):format(of, total), value) end
  return value
end

function MultiHeadAttention:init(...)
  local o = args.read(name, names, spec, ...)
  local units = args.count(name, "units", o.units, 1)
  self._heads = check_divisor("num_heads", o.num_heads, "units", units)
  self._kv_heads = check_divisor("num_kv_heads", o.num_kv_heads or o.num_heads, "num_heads", o.num_heads)
  self._size = units / o.num_heads
  if o.rotary and self._size % 2 ~= 0 then core.arg_error(name, "num_heads", "heads of an even size, as rotary asks", o.num_heads) end
  self._causal = args.boolean(name, "causal", o.causal)
  self._dropout = args.number(name, "dropout", o.dropout, 0, 1)
  local function dense(count)
    return Dense(count, {
      flatten = false, use_bias = o.use_bias, weight_initializer = o.weight_initializer, bias_initializer = o.bias_initializer,
      dtype = o.dtype,
    })
  end
  self.query = dense(units)
  self.key = dense(self._kv_heads * self._size)
  self.value = dense(self._kv_heads * self._size)
  self.out = dense(units)
  self.rotary = args.boolean(name, "rotary", o.rotary) and position.RotaryEmbedding()
end

-- (batch, positions, heads * size) as (batch, heads, positions, size).
local function split(x, heads) return ops.transpose(ops.unflatten(x, 3, {heads, -1}), 2, 3) end

-- Returns the heads of keys and values as {key =, value =}. Positions count from offset.
local function project(self, key, value, offset)
  local k = split(self.key(key), self._kv_heads)
  if self.rotary then k = self.rotary(k, offset) end
  return {key = k, value = split(self.value(value), self._kv_heads)}
end

local function check_input(op, label, x)
  if args.tensor(op, label, x):dim() ~= 3 then core.arg_error(op, label, "a tensor (batch, positions, size)", x) end
  return x
end

--- attention:remember(key[, value = key]) -> a cache for calls that attend to these keys and values, projected once:
--- attention(query, nil, nil, mask, cache).
function MultiHeadAttention:remember(key, value)
  args.self("remember", self, "attention")
  check_input("remember", "key", key)
  return project(self, key, value == nil and key or check_input("remember", "value", value), 0)
end

--- attention:begin_cache(batch_size, max_length[, {dtype =, device =}]) -> an empty cache for up to max_length positions:
--- a table of tensors of constant shapes, so that it can be a state of pg.foreach and pg.while_loop. A call that exceeds
--- max_length raises, in a graph as index_copy.
function MultiHeadAttention:begin_cache(batch_size, max_length, opts)
  args.self("begin_cache", self, "attention")
  local o = args.options("begin_cache", opts, {dtype = args.none, device = args.none})
  args.count("begin_cache", "batch_size", batch_size)
  args.count("begin_cache", "max_length", max_length, 1)
  local like = {dtype = o.dtype or param.dtype(self.key.weight), device = o.device or param.device(self.key.weight)}
  local shape = {batch_size, self._kv_heads, max_length, self._size}
  return {key = ops.zeros(shape, like), value = ops.zeros(shape, like), length = ops.zeros({}, {dtype = "int64", device = like.device})}
end

-- Returns x with the positions of `new` written behind `at`. The op raises where the cache is full. A graph adds no check of
-- its own, which would run at each step; its error has the name of the function that takes max_length.
local function write_behind(x, at, new)
  if core.tracing() then return core.run_as("begin_cache", ops.index_copy, x, 3, at, new) end
  local ok, written = xpcall(ops.index_copy, core.keep_traceback, x, 3, at, new)
  if ok then return written end
  if not tostring(written):find("index values from", 1, true) then core.reraise(written) end
  core.fail(name, "the cache is full: positions %d to %d exceed its max_length of %d (begin_cache takes max_length)",
            at[1]:item(), at[-1]:item(), x:size(3))
end

-- Returns the cache with the positions of `new` written behind those it has.
local function append(cache, new)
  local steps = position.count(new.key)
  local at = steps + cache.length
  return {
    key = write_behind(cache.key, at, new.key), value = write_behind(cache.value, at, new.value),
    length = cache.length + ops.amax(steps),
  }
end

-- Whether query i sees key j, a bool tensor (queries, keys): causal queries, the first of which follows `before` positions,
-- see the keys up to their own position, other queries the first `count` keys.
local function reach(query, key, before, count)
  local own = position.count(query)
  local last = count and ops.ones_like(own) * count or own + before
  return ops.le(ops.unsqueeze(position.count(key), 1), ops.unsqueeze(last, 2))
end

-- Returns the mask of a call as one that broadcasts to (batch, heads, queries, keys).
local function full_mask(mask, key)
  local rank = args.tensor(name, "mask", mask):dim()
  if rank == 1 then
    local column = ops.select(ops.select(key:detach(), 4, 1), 2, 1)
    mask, rank = ops.gt(ops.sequence_mask(ops.ones_like(column), mask, {dim = 2}), 0), 2
  end
  if rank == 2 then return ops.unsqueeze(ops.unsqueeze(mask, 2), 2) end
  if rank == 3 then return ops.unsqueeze(mask, 2) end
  if rank ~= 4 then core.arg_error(name, "mask", "a tensor of 1 to 4 dims", mask) end
  return mask
end

local function combine(mask, seen)
  if mask == nil then return seen end
  if mask.dtype == "bool" then return ops.logical_and(mask, seen) end
  return ops.where(seen, mask, -math.huge)
end

local function check_cache(cache)
  if args.plain(cache) and core.is_tensor(cache.key) and core.is_tensor(cache.value) then return end
  core.arg_error(name, "cache", "a cache of attention:begin_cache or attention:remember", cache)
end

-- Returns the cache to attend to, and its number of positions before the call if it grows.
local function look_up(self, query, key, value, cache)
  if cache then check_cache(cache) end
  local before = cache and cache.length
  if cache and not before then return cache end
  key = key == nil and query or check_input(name, "key", key)
  value = value == nil and key or check_input(name, "value", value)
  local new = project(self, key, value, before or 0)
  return before and append(cache, new) or new, before
end

function MultiHeadAttention:forward(query, key, value, mask, cache)
  check_input(name, "query", query)
  local stored, before = look_up(self, query, key, value, cache)
  local q = split(self.query(query), self._heads)
  if self.rotary then q = self.rotary(q, before or 0) end
  local options = {dropout_p = self._dropout, enable_gqa = self._kv_heads ~= self._heads}
  if mask ~= nil then mask = full_mask(mask, stored.key) end
  if self._causal and not before and mask == nil then options.is_causal = true
  elseif self._causal then mask = combine(mask, reach(q, stored.key, before or 0))
  elseif before then mask = combine(mask, reach(q, stored.key, before, stored.length)) end
  options.attn_mask = mask
  local y = ops.scaled_dot_product_attention(q, stored.key, stored.value, options)
  y = self.out(ops.flatten(ops.transpose(y, 2, 3), 3))
  if cache then return y, stored end
  return y
end

function MultiHeadAttention:describe()
  local text = ("%d units, %d heads"):format(self._heads * self._size, self._heads)
  if self._kv_heads ~= self._heads then text = text .. (" of %d"):format(self._kv_heads) end
  return text .. (self._causal and ", causal" or "") .. (self._dropout > 0 and ", dropout " .. self._dropout or "")
end

return layers
