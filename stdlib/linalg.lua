-- pg.linalg: the ops whose names begin with linalg_, without that prefix, and norm.
local core = ...
local args = core.require("support.args")
local namespace = core.require("support.namespace")
local linalg, ops = namespace.of_ops("linalg"), core.ops

local orders = '"fro", "nuc", 1, -1, 2, -2, math.huge or -math.huge for two dims'

-- amax, and 0 of no elements, which are those of a norm.
local function largest(x, dim, keepdim) return ops[x:size(dim) == 0 and "sum" or "amax"](x, dim, keepdim) end

-- The norms of matrices that singular values give.
local by_values = {
  nuc = function(s) return ops.sum(s, -1, true) end,
  [2] = function(s) return largest(s, -1, true) end,
  [-2] = function(s) return ops.amin(s, -1, true) end,
}

-- Returns a norm of the singular values of the matrices along two dims, which get size 1.
local function values_norm(x, norm, dims)
  local y = norm(ops.linalg_svdvals(ops.moveaxis(x, dims, {-2, -1})))
  return ops.moveaxis(y:unsqueeze(-1), {-2, -1}, dims)
end

-- Returns the largest (ord > 0) or smallest sum of |x| along the first of two dims; for ±math.huge along the second.
local function sums_norm(x, ord, dims)
  local summed, other = dims[1], dims[2]
  if math.abs(ord) == math.huge then summed, other = other, summed end
  return (ord > 0 and largest or ops.amin)(ops.sum(ops.abs(x), summed, true), other, true)
end

local function matrix_norm(x, ord, dims, keepdim)
  if ord == "fro" then return ops.norm(x, 2, dims, keepdim) end
  local norm, size = by_values[ord], type(ord) == "number" and math.abs(ord)
  if not norm and size ~= 1 and size ~= math.huge then core.arg_error("linalg.norm", "ord", orders, ord) end
  local y = norm and values_norm(x, norm, dims) or sums_norm(x, ord, dims)
  return keepdim and y or y:squeeze(dims)
end

--- pg.linalg.norm(x[, ord[, dim[, keepdim]]]) -> the norm of vectors along one dim (ord is a number, as p in x:norm{p
--- =}) or of matrices along two dims (ord is "fro", "nuc", 1, -1, 2, -2, math.huge or -math.huge; "nuc", 2 and -2 are the
--- sum, the largest and the smallest of the singular values). Without ord it is the root of the sum of squares along
--- dim, or along all dims.
function linalg.norm(...)
  local o = args.read("linalg.norm", {"x", "ord", "dim", "keepdim"},
                      {x = args.required, ord = args.none, dim = args.none, keepdim = false}, ...)
  local x, ord, dim = o.x, o.ord, o.dim
  if not core.is_tensor(x) then core.arg_error("linalg.norm", "x", "a tensor", x) end
  if ord == nil then return ops.norm(x, 2, dim, o.keepdim) end
  if dim == nil then
    if x:dim() > 2 then core.arg_error("linalg.norm", "dim", "one or two dims for a tensor of more than two", nil) end
    dim = x:dim() == 2 and {1, 2} or 1
  end
  if type(dim) == "table" and #dim == 2 then return matrix_norm(x, ord, dim, o.keepdim) end
  if type(ord) ~= "number" then core.arg_error("linalg.norm", "ord", "a number for vectors", ord) end
  return ops.norm(x, ord, dim, o.keepdim)
end

--- pg.linalg.cond(a[, p]) -> the condition numbers of matrices: the norm of a times that of its inverse, for the norms of
--- pg.linalg.norm. Without p, or with 2, it is the ratio of the largest to the smallest singular value, of matrices of
--- any shape; -2 is the inverse ratio. Singular matrices have inf, or 0 for -2; matrices of zeros have NaN.
function linalg.cond(...)
  local o = args.read("linalg.cond", {"a", "p"}, {a = args.required, p = 2}, ...)
  local a, p = o.a, o.p
  if not core.is_tensor(a) or a:dim() < 2 then core.arg_error("linalg.cond", "a", "a tensor of at least 2 dims", a) end
  if p == 2 or p == -2 then
    local s = ops.linalg_svdvals(a)
    if s:size(-1) == 0 then return ops.sum(s, -1) end
    local high, low = ops.amax(s, -1), ops.amin(s, -1)
    if p == 2 then return high / low end
    return low / high
  end
  if p ~= "fro" and p ~= "nuc" and p ~= 1 and p ~= -1 and p ~= math.huge and p ~= -math.huge then
    core.arg_error("linalg.cond", "p", orders, p)
  end
  return matrix_norm(a, p, {-2, -1}) * matrix_norm(ops.linalg_inv(a, {check_errors = false}), p, {-2, -1})
end

--- pg.linalg.multi_dot(tensors) -> the product of a list of matrices, in the order that takes the fewest
--- multiplications. The first tensor may be a row and the last one a column, with one dim, which the result then lacks.
function linalg.multi_dot(...)
  local o = args.read("linalg.multi_dot", {"tensors"}, {tensors = args.required}, ...)
  local list = type(o.tensors) == "table" and {unpack(o.tensors)} or {}
  local n = #list
  if n < 2 then core.arg_error("linalg.multi_dot", "tensors", "a list of at least two tensors", o.tensors) end
  for _, x in ipairs(list) do
    if not core.is_tensor(x) then core.arg_error("linalg.multi_dot", "tensors", "tensors", x) end
  end
  local row, column = list[1]:dim() == 1, list[n]:dim() == 1
  if row then list[1] = list[1]:unsqueeze(1) end
  if column then list[n] = list[n]:unsqueeze(2) end
  local y = ops.chain_matmul(list)
  if column then y = y:squeeze(2) end
  return row and y:squeeze(1) or y
end

return namespace.seal("linalg", linalg)
