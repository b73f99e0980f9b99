-- MXNet's ops: reductions, products and indexing. See define.lua.
local core = ...
local mxnet = core.require("mxnet.ops.define")
local ops = core.ops

local ipairs = ipairs
local define, plain, to_dtype_of, is_true, at_least_1d, integers = mxnet.define, mxnet.plain, mxnet.to_dtype_of, mxnet.is_true, mxnet.at_least_1d, mxnet.integers

local function reduction(names, reduce)
  define(names, function(a)
    local dims, keep, excluded = a:dims("axis"), a:boolean("keepdims", false), a:boolean("exclude", false)
    return function(x)
      local chosen = dims
      if excluded then
        local out, rank = {}, x:dim()
        for _, dim in ipairs(dims or {}) do out[dim < 0 and rank + 1 + dim or dim] = true end
        chosen = {}
        for d = 1, rank do if not out[d] then chosen[#chosen + 1] = d end end
      end
      return at_least_1d(reduce(x, chosen, keep, a))
    end
  end)
end
reduction("sum sum_axis", function(x, dims, keep) return ops.to(ops.sum(x, {dim = dims, keepdim = keep}), x.dtype) end)
reduction("mean", function(x, dims, keep) return ops.mean(x, {dim = dims, keepdim = keep}) end)
reduction("max max_axis", function(x, dims, keep) return ops.amax(x, {dim = dims, keepdim = keep}) end)
reduction("min min_axis", function(x, dims, keep) return ops.amin(x, {dim = dims, keepdim = keep}) end)
reduction("nansum", function(x, dims, keep) return ops.nansum(x, {dim = dims, keepdim = keep}) end)
reduction("prod", function(x, dims, keep)
  if not dims then return ops.prod(x) end
  local at = {}
  for i, dim in ipairs(dims) do at[i] = dim < 0 and x:dim() + 1 + dim or dim end
  table.sort(at, function(p, q) return p > q end)
  for _, dim in ipairs(at) do x = ops.prod(x, {dim = dim, keepdim = keep}) end
  return x
end)
reduction("norm", function(x, dims, keep, a) return ops.norm(x, {p = a:number("ord", 2), dim = dims, keepdim = keep}) end)

local function position(names, op)
  define(names, function(a)
    local dims, keep = a:dims("axis"), a:boolean("keepdims", false)
    return function(x)
      return at_least_1d(to_dtype_of(x, op(x, {dim = dims and dims[1], keepdim = keep, index_base = 0})))
    end
  end)
end
position("argmax", ops.argmax)
position("argmin", ops.argmin)
plain("argmax_channel", function(x) return to_dtype_of(x, ops.argmax(x, {dim = -1, index_base = 0})) end)

define("sort", function(a)
  local dim, ascending = a:dim("axis", -1), a:boolean("is_ascend", true)
  return function(x) return (ops.sort(x, {dim = dim, descending = not ascending})) end
end)
define("argsort", function(a)
  local options = {dim = a:dim("axis", -1), descending = not a:boolean("is_ascend", true), index_base = 0}
  local dtype = a:dtype("dtype", "float32")
  return function(x) return ops.to(ops.argsort(x, options), dtype) end
end)
define("topk", function(a)
  local k, dtype = a:number("k", 1), a:dtype("dtype", "float32")
  local options = {dim = a:dim("axis", -1), largest = not a:boolean("is_ascend", false), index_base = 0}
  local kind = a:choice("ret_typ", {value = true, indices = true, both = true}, "indices")
  return function(x)
    local values, indices = ops.topk(x, k, options)
    if kind == "value" then return values end
    if kind == "indices" then return ops.to(indices, dtype) end
    return values, ops.to(indices, dtype)
  end
end)

-- Products -----------------------------------------------------------------------------------------------------------------

define("dot", function(a)
  local options = {transpose_a = a:boolean("transpose_a", false), transpose_b = a:boolean("transpose_b", false)}
  local sums = {dims = {options.transpose_a and 1 or -1}, dims_b = {options.transpose_b and -1 or 1}}
  return function(x, y)
    if x:dim() > 2 or y:dim() > 2 then return ops.tensordot(x, y, sums) end
    return at_least_1d(ops.dot(x, y, options))
  end
end, 2)
define("batch_dot", function(a)
  local turn_a, turn_b = a:boolean("transpose_a", false), a:boolean("transpose_b", false)
  return function(x, y)
    if turn_a then x = ops.transpose(x, -2, -1) end
    if turn_b then y = ops.transpose(y, -2, -1) end
    return ops.matmul(x, y)
  end
end, 2)

-- Indexing -----------------------------------------------------------------------------------------------------------------

-- Returns the whole numbers of an index, those outside of 0..count - 1 moved to the end or to the other side.
local function bounded(index, count, mode)
  index = integers(index)
  if mode == "wrap" then return ops.remainder(index, count) end
  return mode == "clip" and ops.clamp(index, 0, count - 1) or index
end
local modes = {clip = true, wrap = true, raise = true}

define("take", function(a)
  local dim, mode = a:dim("axis", 0), a:choice("mode", modes, "clip")
  return function(x, index) return ops.index_select(x, dim, bounded(index, x:size(dim), mode), {index_base = 0}) end
end, 2)
define("pick", function(a)
  local dims, keep, mode = a:dims("axis") or {-1}, a:boolean("keepdims", false), a:choice("mode", modes, "clip")
  return function(x, index)
    return ops.pick(x, bounded(index, x:size(dims[1]), mode), {dim = dims[1], keepdim = keep, index_base = 0})
  end
end, 2)
define("one_hot", function(a)
  local depth, dtype = a:number("depth"), a:dtype("dtype", "float32")
  local on, off = a:number("on_value", 1), a:number("off_value", 0)
  return function(index)
    local hot = ops.eq(ops.unsqueeze(integers(index), -1), ops.range(0, depth - 1, {dtype = "int64", device = index.device}))
    return ops.to(hot, dtype) * (on - off) + off
  end
end)
plain("gather_nd", function(x, index)
  index = integers(index)
  local key = {}
  for i = 1, index:size(1) do key[i] = index[i] + 1 end
  return x[key]
end, 2)
plain("where", function(condition, x, y)
  if condition:dim() == 1 and x:dim() > 1 then  -- chooses rows
    local shape = {-1}
    for d = 2, x:dim() do shape[d] = 1 end
    condition = ops.reshape(condition, shape)
  end
  return ops.where(is_true(condition), x, y)
end, 3)

local function sequence(name, op, read)
  define(name, function(a)
    local by_length, dim = a:boolean("use_sequence_length", false), a:dim("axis", 0)
    local options = read(a)
    options.dim = dim
    return function(x, lengths)
      if by_length then return op(x, lengths, options) end
      return op(x, options)
    end
  end)
end
sequence("SequenceMask", ops.sequence_mask, function(a) return {value = a:number("value", 0)} end)
sequence("SequenceLast", ops.sequence_last, function() return {} end)
sequence("SequenceReverse", ops.sequence_reverse, function() return {} end)
