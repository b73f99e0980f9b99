-- pg.linalg: the ops of the registry whose names begin with linalg_, without that prefix, and norm.
local core = ...
local args = core.require("support.args")
local namespace = core.require("support.namespace")
local linalg, ops = namespace.of_ops("linalg"), core.ops

local orders = '"fro", 1, -1, math.huge or -math.huge for two dims'

-- Returns the largest (ord > 0) or smallest sum of |x| along the first of two dims; for ±math.huge along the second.
local function matrix_norm(x, ord, dims, keepdim)
  if ord == "fro" then return ops.norm(x, 2, dims, keepdim) end
  local size = type(ord) == "number" and math.abs(ord)
  if size ~= 1 and size ~= math.huge then core.arg_error("linalg.norm", "ord", orders, ord) end
  local summed, other = dims[1], dims[2]
  if size == math.huge then summed, other = other, summed end
  local sums = ops.sum(ops.abs(x), summed, true)
  local y = ops[ord > 0 and "amax" or "amin"](sums, other, true)
  return keepdim and y or y:squeeze(dims)
end

--- pg.linalg.norm(x[, ord[, dim[, keepdim]]]) -> the norm of vectors along one dim (ord is a number, as p in x:norm{p
--- =}) or of matrices along two dims (ord is "fro", 1, -1, math.huge or -math.huge). Without ord it is the root of the
--- sum of squares along dim, or along all dims.
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

return namespace.seal("linalg", linalg)
