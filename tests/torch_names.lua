-- Adapts the cases of the reference data, which use torch's names and count dims and indices from 0, to perigee.
-- adapters[op](pg, inputs, attrs) returns an array of outputs. Ops without an entry are called by their own name.
local dims = {dim = true, dim0 = true, dim1 = true, dim2 = true, dims = true, start_dim = true, end_dim = true,
              source = true, destination = true}

local function from0(v)
  if type(v) == "table" then
    local out = {}
    for i, x in ipairs(v) do out[i] = from0(x) end
    return out
  end
  return v >= 0 and v + 1 or v
end

local function options(attrs, extra)
  local out = {}
  for k, v in pairs(attrs) do out[k] = dims[k] and from0(v) or v end
  for k, v in pairs(extra or {}) do out[k] = v end
  return out
end

local function rename(attrs, names)
  local out = {}
  for k, v in pairs(attrs) do if names[k] ~= false then out[names[k] or k] = v end end
  return out
end

-- Makes a call with all inputs in order, then a table of options if there are any.
local function call(f, inputs, opts)
  local args = {}
  for i, v in ipairs(inputs) do args[i] = v end
  if next(opts) ~= nil then args[#args + 1] = opts end
  return {f(unpack(args))}
end

local base0 = {index_base = 0}
local function named(name, extra, names)
  return function(pg, x, a) return call(pg[name], x, options(rename(a, names or {}), extra)) end
end

local function number(v) return v == "inf" and math.huge or v == "-inf" and -math.huge or v end

local function same(name, count)  -- torch's scalar attributes for every spatial dim
  return function(pg, x, a)
    local size = a.output_size
    if type(size) == "number" then
      local n = size
      size = {}
      for i = 1, count do size[i] = n end
    end
    return {pg[name](x[1], size)}
  end
end

local function recurrent(name, nonlinearity)  -- x, states and weights one by one
  return function(pg, x, a)
    return call(pg[name], x, {num_layers = a.num_layers, bidirectional = a.bidirectional, nonlinearity = nonlinearity})
  end
end

local function shaped(name)
  return function(pg, x, a) return {pg[name](x[1], a.normalized_shape, x[2], x[3], {eps = a.eps})} end
end

local function end_of(v, size) return v < 0 and v + size or math.min(v, size) end

-- Converts a NumPy index to a key. "newaxis" becomes an unsqueeze before the read.
local function index(_, x, a, is_null)
  local y, key, axis = x[1], {}, 1
  for _, k in ipairs(a.index) do
    if k == "newaxis" then
      y, key[axis] = y:unsqueeze(axis), {}
    elseif k == "ellipsis" then key[axis] = "..."
    elseif type(k) == "number" then key[axis] = from0(k)
    elseif k.tensor then key[axis] = x[k.tensor + 2] + 1
    else
      local from, to, step = k.slice[1], k.slice[2], k.slice[3]
      key[axis] = {is_null(from) and 1 or from + 1, is_null(to) and -1 or to, is_null(step) and 1 or step}
    end
    axis = axis + 1
  end
  return {y[key]}
end

local adapters = {
  add_scalar = function(_, x, a) return {x[1] + a.other} end,
  rsub_scalar = function(_, x, a) return {a.other - x[1]} end,
  mul_scalar = function(_, x, a) return {x[1] * a.other} end,
  div_scalar = function(_, x, a) return {x[1] / a.other} end,
  rdiv_scalar = function(_, x, a) return {a.other / x[1]} end,
  pow_scalar = function(_, x, a) return {x[1] ^ a.exponent} end,
  rpow_scalar = function(_, x, a) return {a.base ^ x[1]} end,
  add_scaled = function(_, x, a) return {x[1] + a.alpha * x[2]} end,
  cast = function(_, x, a) return {x[1]:to(a.dtype)} end,
  norm = function(pg, x, a)
    local opts = options(rename(a, {ord = false}))
    if a.ord then opts.p = number(a.ord) end
    return call(pg.norm, x, opts)
  end,
  argmax = named("argmax", base0), argmin = named("argmin", base0),
  max_dim = named("max", base0), min_dim = named("min", base0),
  topk = named("topk", base0), sort = named("sort", base0), argsort = named("argsort", base0),
  embedding = named("embedding", base0), take_along_dim = named("take_along_dim", base0),
  one_hot = named("one_hot", base0), cross_entropy = named("cross_entropy", base0), nll_loss = named("nll_loss", base0),
  cross_entropy_weighted = named("cross_entropy", base0),
  -- torch's inputs are x, index, source; dim comes after x.
  gather = function(pg, x, a) return {pg.gather(x[1], from0(a.dim), x[2], base0)} end,
  scatter = function(pg, x, a) return {pg.scatter(x[1], from0(a.dim), x[2], x[3], base0)} end,
  scatter_add = function(pg, x, a) return {pg.scatter_add(x[1], from0(a.dim), x[2], x[3], base0)} end,
  index_add = function(pg, x, a) return {pg.index_add(x[1], from0(a.dim), x[2], x[3], base0)} end,
  index_select = function(pg, x, a) return {pg.index_select(x[1], from0(a.dim), x[2], base0)} end,
  masked_fill = function(pg, x, a) return {pg.masked_fill(x[1], x[2], a.value)} end,
  index = index,
  slice = function(_, x, a)
    local d = from0(a.dim)
    local axis = d < 0 and d + x[1]:dim() + 1 or d
    local key, size = {}, x[1]:size(axis)
    for i = 1, axis - 1 do key[i] = {} end
    key[axis] = {end_of(a.start, size) + 1, end_of(a["end"], size), a.step or 1}
    return {x[1][key]}
  end,
  narrow = function(pg, x, a) return {pg.narrow(x[1], from0(a.dim), from0(a.start), a.length)} end,
  select = function(pg, x, a) return {pg.select(x[1], from0(a.dim), from0(a.index))} end,
  split = function(pg, x, a) return pg.split(x[1], a.split_size_or_sections, from0(a.dim)) end,
  chunk = function(pg, x, a) return pg.chunk(x[1], a.chunks, from0(a.dim)) end,
  unbind = function(pg, x, a) return pg.unbind(x[1], from0(a.dim)) end,
  cat = function(pg, x, a) return {pg.cat(x, from0(a.dim))} end,
  stack = function(pg, x, a) return {pg.stack(x, from0(a.dim))} end,
  reshape = function(pg, x, a) return {pg.reshape(x[1], a.shape)} end,
  expand = function(pg, x, a) return {pg.expand(x[1], a.shape)} end,
  permute = function(pg, x, a) return {pg.permute(x[1], from0(a.dims))} end,
  transpose = function(pg, x, a) return {pg.transpose(x[1], from0(a.dim0), from0(a.dim1))} end,
  flatten = function(pg, x, a) return {pg.flatten(x[1], from0(a.start_dim or 0), from0(a.end_dim or -1))} end,
  tile = function(pg, x, a) return {pg.tile(x[1], a.dims)} end,
  movedim = function(pg, x, a) return {pg.moveaxis(x[1], from0(a.source), from0(a.destination))} end,
  repeat_interleave = function(pg, x, a) return {pg.repeat_interleave(x[1], a.repeats, from0(a.dim))} end,
  roll = function(pg, x, a) return {pg.roll(x[1], a.shifts, from0(a.dims))} end,
  flip = function(pg, x, a) return {pg.flip(x[1], from0(a.dims))} end,
  pad = function(pg, x, a) return {pg.pad(x[1], a.pad, {mode = a.mode, value = a.value})} end,
  tril = function(pg, x, a) return {pg.tril(x[1], a.diagonal)} end,
  triu = function(pg, x, a) return {pg.triu(x[1], a.diagonal)} end,
  diagonal = function(pg, x, a)
    return {pg.diagonal(x[1], a.offset, from0(a.dim1 or 0), from0(a.dim2 or 1))}
  end,
  einsum = function(pg, x, a) return {pg.einsum(a.equation, unpack(x))} end,
  adaptive_avg_pool2d = same("adaptive_avg_pool", 2),
  pixel_unshuffle = function(pg, x, a) return {pg.pixel_unshuffle(x[1], a.downscale_factor)} end,
  layer_norm = shaped("layer_norm"),
  rms_norm = function(pg, x, a) return {pg.rms_norm(x[1], a.normalized_shape, x[2], {eps = a.eps})} end,
  group_norm = function(pg, x, a) return {pg.group_norm(x[1], a.num_groups, x[2], x[3], {eps = a.eps})} end,
  instance_norm = function(pg, x, a) return {pg.instance_norm(x[1], nil, nil, x[2], x[3], {eps = a.eps})} end,
  batch_norm = function(pg, x, a)  -- torch's momentum is the new share, its running variance unbiased
    local opts = {training = a.training, momentum = 1 - a.momentum, eps = a.eps, running_var_correction = 1}
    local y, mean, var = pg.batch_norm(x[1], x[4], x[5], x[2], x[3], opts)
    return a.training and {y, mean, var} or {y}
  end,
  binary_cross_entropy_with_logits_posweight = function(pg, x, a)
    return {pg.binary_cross_entropy_with_logits(x[1], x[2], {pos_weight = x[3], reduction = a.reduction})}
  end,
  ctc_loss = function(pg, x, a)
    return {pg.ctc_loss(x[1], x[2] + 1, x[3], x[4], {blank = a.blank + 1, reduction = a.reduction, zero_infinity = a.zero_infinity})}
  end,
  lstm = recurrent("lstm"),
  gru = recurrent("gru"),
  rnn_tanh = recurrent("rnn", "tanh"),
  rnn_relu = recurrent("rnn", "relu"),
  scaled_dot_product_attention_mask = named("scaled_dot_product_attention"),
  cholesky = function(pg, x) return {pg.linalg.cholesky(x[1])} end,
  inv = function(pg, x) return {pg.linalg.inv(x[1])} end,
  solve = function(pg, x) return {pg.linalg.solve(x[1], x[2])} end,
  qr = function(pg, x)  -- normalised to a positive diagonal of r
    local q, r = pg.linalg.qr(x[1])
    local sign = r:diagonal(0, -2, -1):sign()
    return {q * sign:unsqueeze(-2), r * sign:unsqueeze(-1)}
  end,
  eigh_reconstruct = function(pg, x)
    local w, v = pg.linalg.eigh(x[1])
    return {w, (v * w:unsqueeze(-2)):matmul(v:transpose(-2, -1))}
  end,
  svd_reconstruct = function(pg, x)
    local u, s, vh = pg.linalg.svd(x[1])
    return {s, (u * s:unsqueeze(-2)):matmul(vh)}
  end,
  matrix_power = function(pg, x, a) return {pg.linalg.matrix_power(x[1], a.n)} end,
  multi_dot = function(pg, x) return {pg.linalg.multi_dot(x)} end,
}
for name in ("det slogdet svdvals eigvalsh solve_triangular cholesky_solve lstsq matrix_exp pinv"):gmatch("%S+") do
  adapters[name] = function(pg, x, a) return call(pg.linalg[name], x, options(a)) end
end

local absent = {}
for name in ([[trunc_divide logit i0 i1 ndtr hardshrink multigammaln threshold logaddexp2 xlog1py
  gammainc median tensordot normalize cosine_embedding_loss poisson_nll_loss
  multi_margin_loss diag_embed]]):gmatch("%S+") do absent[name] = true end

return {
  adapters = adapters,
  absent = absent,  -- ops of the reference data that are not in the registry
  call = function(pg, name, inputs, attrs, is_null)
    local f = adapters[name]
    if f then return f(pg, inputs, attrs, is_null) end
    return call(pg[name], inputs, options(attrs))
  end,
}
