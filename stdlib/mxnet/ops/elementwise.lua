-- MXNet's ops: elementwise ops. See define.lua.
local core = ...
local mxnet = core.require("mxnet.ops.define")
local ops = core.ops

local ipairs, unpack = ipairs, unpack
local define, plain, to_dtype_of, is_true = mxnet.define, mxnet.plain, mxnet.to_dtype_of, mxnet.is_true

for _, name in ipairs{
  "abs", "sign", "ceil", "floor", "trunc", "square", "sqrt", "rsqrt", "exp", "log", "log10", "log2", "log1p", "expm1", "sin", "cos",
  "tan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfinv", "reciprocal", "sigmoid", "softsign", "relu", "neg",
} do plain(name, ops[name]) end
plain("arcsin", ops.asin)
plain("arccos", ops.acos)
plain("arctan", ops.atan)
plain("arcsinh", ops.asinh)
plain("arccosh", ops.acosh)
plain("arctanh", ops.atanh)
plain("negative _np_negative", ops.neg)
plain("fix", ops.trunc)
plain("gammaln", ops.lgamma)
plain("gamma", function(x) return ops.exp(ops.lgamma(x)) end)
plain("degrees", function(x) return x * (180 / math.pi) end)
plain("radians", function(x) return x * (math.pi / 180) end)
plain("log_sigmoid", ops.logsigmoid)
plain("mish", ops.mish)
plain("digamma", ops.digamma)
plain("cbrt", function(x) return ops.sign(x) * ops.pow(ops.abs(x), 1 / 3) end)
plain("rcbrt", function(x) return ops.sign(x) * ops.pow(ops.abs(x), -1 / 3) end)
plain("round", function(x) return ops.sign(x) * ops.floor(ops.abs(x) + 0.5) end)        -- halves away from 0
plain("rint", function(x) return ops.ceil(x - 0.5) end)                                -- halves down
plain("logical_not", function(x) return to_dtype_of(x, ops.eq(x, 0)) end)
plain("zeros_like", ops.zeros_like)
plain("ones_like", ops.ones_like)
plain("_copy identity _identity_with_attr_like_rhs", function(x) return x end)
plain("BlockGrad stop_gradient", ops.detach)
plain("_contrib_div_sqrt_dim", function(x) return x / math.sqrt(x:size(-1)) end)
plain("add_n ElementWiseSum", function(first, ...)
  for _, x in ipairs{...} do first = first + x end
  return first
end)

define("hard_sigmoid", function(a)
  local alpha, beta = a:number("alpha", 0.2), a:number("beta", 0.5)
  return function(x) return ops.clamp(x * alpha + beta, 0, 1) end
end)
define("smooth_l1", function(a)
  local beta = 1 / a:number("scalar", 1) ^ 2
  return function(x) return ops.smooth_l1_loss(x, ops.zeros_like(x), {reduction = "none", beta = beta}) end
end)
define("clip", function(a)
  local low, high = a:number("a_min"), a:number("a_max")
  return function(x) return ops.clamp(x, low, high) end
end)
define("Cast cast amp_cast", function(a)
  local dtype = a:dtype("dtype")
  return function(x) return ops.to(x, dtype) end
end)

-- All inputs in the widest of their dtypes, or in the narrowest.
local widths = {float16 = 1, bfloat16 = 1, float32 = 2, float64 = 3}
define("amp_multicast", function(a)
  local sign = a:boolean("cast_narrow", false) and -1 or 1
  return function(...)
    local list = {...}
    local chosen = list[1].dtype
    for _, x in ipairs(list) do
      if widths[x.dtype] and sign * widths[x.dtype] > sign * (widths[chosen] or 0) then chosen = x.dtype end
    end
    for i, x in ipairs(list) do list[i] = widths[x.dtype] and ops.to(x, chosen) or x end
    return unpack(list)
  end
end)

local function modulo(x, y)  -- 0 where y is
  if y == 0 then return ops.zeros_like(x) end
  local rest = ops.remainder(x, y)
  return type(y) == "number" and rest or ops.where(is_true(y), rest, 0)
end

-- Functions of two tensors; their names with a scalar end in _scalar, as in _plus_scalar, and in Scalar, as in
-- _PlusScalar. A reversed one has the scalar on the left.
local binary = {
  {ops.add, "elemwise_add broadcast_add broadcast_plus _add _plus _Plus _grad_add", "plus"},
  {ops.sub, "elemwise_sub broadcast_sub broadcast_minus _sub _minus _Minus", "minus", "rminus"},
  {ops.mul, "elemwise_mul broadcast_mul _mul _Mul", "mul"},
  {ops.div, "elemwise_div broadcast_div _div _Div", "div", "rdiv"},
  {modulo, "broadcast_mod _mod _Mod", "mod", "rmod"},
  {ops.pow, "broadcast_power _power _Power", "power", "rpower"},
  {ops.maximum, "broadcast_maximum _maximum _Maximum", "maximum"},
  {ops.minimum, "broadcast_minimum _minimum _Minimum", "minimum"},
  {ops.hypot, "broadcast_hypot _hypot _Hypot", "hypot"},
}
-- Comparisons give numbers of the dtype of their input.
local function comparison(f) return function(x, y) return to_dtype_of(x, f(x, y)) end end
local function logical(f) return comparison(function(x, y) return f(is_true(x), type(y) == "number" and y ~= 0 or is_true(y)) end) end
for _, name in ipairs{"equal", "not_equal", "greater", "greater_equal", "lesser", "lesser_equal"} do
  local f = ops[({equal = "eq", not_equal = "ne", greater = "gt", greater_equal = "ge", lesser = "lt", lesser_equal = "le"})[name]]
  binary[#binary + 1] = {comparison(f), ("broadcast_%s _%s"):format(name, name), name}
end
for _, name in ipairs{"and", "or", "xor"} do
  binary[#binary + 1] = {logical(ops["logical_" .. name]), ("broadcast_logical_%s _logical_%s"):format(name, name)}
end

local function scalar_names(name)
  local camel = name:gsub("^r(%l)", function(c) return "R" .. c:upper() end):gsub("^%l", string.upper)
  return ("_%s_scalar _%sScalar"):format(name, camel)
end

for _, entry in ipairs(binary) do
  local f, names, scalar, reversed = unpack(entry, 1, 4)
  plain(names, f, 2)
  if scalar then
    define(scalar_names(scalar), function(a)
      local value = a:number("scalar")
      return function(x) return f(x, value) end
    end)
  end
  if reversed then
    define(scalar_names(reversed), function(a)
      local value = a:number("scalar")
      return function(x) return f(value, x) end
    end)
  end
end
