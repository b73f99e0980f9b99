-- Dense, Dropout, Embedding, Flatten, Identity and blocks around functions.
local core = ...
local args = core.require("support.args")
local base = core.require("nn.block")
local activation = core.require("nn.activation")
local param = core.require("param")
local hint = core.require("support.namespace").hint
local ops = core.ops
local HybridBlock = base.HybridBlock
local linear, dim, flatten = ops.linear, core.tensor_methods.dim, ops.flatten
local layers = {}

local function product(shape, first)
  local n = 1
  for i = first, #shape do n = n * shape[i] end
  return n
end

--- nn.Dense(units, {activation=, use_bias = true, flatten = true, dtype=, weight_initializer=, bias_initializer=,
--- in_units = 0}): x weightᵀ + bias with weight (units, in_units). flatten = true flattens all dims of x except the
--- first; false applies the layer to the last dim. With in_units = 0 the first call infers it. Raises if x does not have
--- in_units features.
--- Example: local layer = pg.nn.Dense(3, {weight_initializer = "one"})
--- layer:initialize()
--- return layer(pg.ones(2, 4))
local Dense = HybridBlock:extend("Dense")
layers.Dense = Dense

local dense_names = {"units", "activation", "use_bias", "flatten", "dtype", "weight_initializer", "bias_initializer", "in_units"}
local dense_spec = {
  units = args.required, activation = args.none, use_bias = true, flatten = true, dtype = "float32",
  weight_initializer = args.none, bias_initializer = args.none, in_units = 0,
}

function Dense:init(...)
  local o = args.read("Dense", dense_names, dense_spec, ...)
  local units = args.count("Dense", "units", o.units, 1)
  local inputs = args.count("Dense", "in_units", o.in_units)
  self.weight = param.param{shape = {units, inputs}, dtype = o.dtype, init = o.weight_initializer}
  self.bias = false
  if args.boolean("Dense", "use_bias", o.use_bias) then
    self.bias = param.param{shape = {units}, dtype = o.dtype, init = o.bias_initializer}
  end
  if type(o.activation) == "number" then
    core.fail("Dense", "bad argument 'activation' (expected a name or a function, got number %g; nn.Dense(%d) infers the size of its input)",
              o.activation, o.activation)
  end
  self._activation = activation.find("Dense", o.activation)
  self._flatten = args.boolean("Dense", "flatten", o.flatten)
  self._text = type(o.activation) == "string" and ", " .. o.activation or ""
end

function Dense:infer_shape(x)
  local shape = args.tensor("Dense", "x", x).shape
  local inputs = shape[#shape]
  if self._flatten and #shape > 2 then inputs = product(shape, 2) end
  self.weight:set_shape{param.shape(self.weight)[1], inputs}
end

function Dense:forward(x)
  if type(x) ~= "userdata" then args.tensor("Dense", "x", x) end
  if self._flatten and dim(x) > 2 then x = flatten(x, 2) end
  local bias, f = self.bias, self._activation
  local y
  if bias then y = linear(x, self.weight, bias) else y = linear(x, self.weight) end
  if f then return f(y) end
  return y
end

function Dense:describe()
  local shape = param.shape(self.weight)
  return string.format("%s -> %d%s%s", shape[2] == 0 and "?" or shape[2], shape[1], self._text, self.bias and "" or ", no bias")
end

--- nn.Dropout(rate, {axes=}): in training mode sets each element to zero with probability rate and scales the others by
--- 1 / (1 - rate). axes lists the dims along which all elements share one mask.
--- Example: return pg.nn.Dropout(0.5)(pg.ones(3))
local Dropout = HybridBlock:extend("Dropout")
layers.Dropout = Dropout

function Dropout:init(...)
  local o = args.read("Dropout", {"rate", "axes"}, {rate = args.required, axes = args.none}, ...)
  self.rate = args.number("Dropout", "rate", o.rate, 0, 1)
  if o.axes ~= nil then
    if type(o.axes) == "number" then o.axes = {o.axes} end
    if type(o.axes) ~= "table" then core.arg_error("Dropout", "axes", "a list of dims", o.axes) end
    if #o.axes > 0 then self._axes = o.axes end
  end
end

function Dropout:forward(x)
  if not self._axes then return ops.dropout(x, self.rate) end
  return ops.dropout(x, self.rate, {axes = self._axes})
end

function Dropout:describe() return tostring(self.rate) end

--- nn.Embedding(input_dim, output_dim, {dtype=, weight_initializer=, index_base = 1, sparse_grad = false}): looks up rows of
--- weight (input_dim, output_dim) by index. With sparse_grad the gradient consists of the rows that occur, and a Trainer
--- updates these rows and their states only, as MXNet's lazy_update: the time depends on the number of rows and not on
--- input_dim. Weight decay and momentum do not change other rows. This holds eagerly, in hybridized nets and in pg.jit.
--- Reading weight.grad makes the gradient dense, so that it can be clipped; the step then updates the rows that are not all
--- 0. The gradient is also dense for lookups in pg.checkpoint and in the body of a branch or loop, for weights that are used
--- elsewhere too, and if the step is jitted without the backward. LAMB, LARS and LBSGD, which need the norm of the whole
--- weight, and optimizers with lazy_update = false update all rows. pg.autograd.grad takes no weight with sparse gradients.
--- Example: local layer = pg.nn.Embedding(10, 4)
--- layer:initialize()
--- return layer(pg.tensor({1, 5}, {dtype = "int64"})).shape
local Embedding = HybridBlock:extend("Embedding")
layers.Embedding = Embedding

local embedding_names = {"input_dim", "output_dim", "dtype", "weight_initializer"}
local embedding_spec = {
  input_dim = args.required, output_dim = args.required, dtype = "float32", weight_initializer = args.none, index_base = 1,
  sparse_grad = false,
}

function Embedding:init(...)
  local o = args.read("Embedding", embedding_names, embedding_spec, ...)
  local rows = args.count("Embedding", "input_dim", o.input_dim, 1)
  local columns = args.count("Embedding", "output_dim", o.output_dim, 1)
  args.number("Embedding", "index_base", o.index_base)
  self.weight = param.param{shape = {rows, columns}, dtype = o.dtype, init = o.weight_initializer}
  self._options = {index_base = o.index_base}
  if args.boolean("Embedding", "sparse_grad", o.sparse_grad) then
    self._sparse = core.require("sparse_grad")
    self._sparse.mark(self.weight)
  end
end

Embedding._sparse = false

function Embedding:forward(x)
  return (self._sparse and self._sparse.lookup or ops.embedding)(x, self.weight, self._options)
end
function Embedding:describe() return table.concat(param.shape(self.weight), " -> ") end

--- embedding:grad_rows() -> index, rows: with sparse_grad the numbers of the rows of weight that have a gradient, from 1 in
--- ascending order, and the rows of the gradient; nil before backward. Unlike weight.grad it does not make the gradient dense.
--- Of a dense gradient it returns the rows that are not all 0.
function Embedding:grad_rows()
  if not self._sparse then
    core.fail("grad_rows", "the gradient of this %s is dense; read weight.grad, or make the layer with sparse_grad = true", self._name)
  end
  if core.tracing() then core.fail("grad_rows", "which rows have a gradient is known after a run; call it outside of the traced function") end
  return self._sparse.used_rows(self.weight)
end

--- nn.SparseEmbedding(input_dim, output_dim, {the options of Embedding}): an Embedding with sparse_grad = true.
--- Example: local layer = pg.nn.SparseEmbedding(10, 4):initialize()
--- return layer(pg.tensor({1, 5}, {dtype = "int64"})).shape
function layers.SparseEmbedding(...)
  local o = args.read("SparseEmbedding", embedding_names, embedding_spec, ...)
  o.sparse_grad = true
  return Embedding(o)
end

--- nn.Flatten() flattens all dims except the first.
--- Example: return pg.nn.Flatten()(pg.ones(2, 3, 4)).shape
local Flatten = HybridBlock:extend("Flatten")
layers.Flatten = Flatten
function Flatten:init(...) args.read("Flatten", {}, {}, ...) end

function Flatten:forward(x)
  local n = dim(x)
  if n == 2 then return x end
  if n < 2 then return ops.reshape(x, n == 1 and {0, 1} or {1, 1}) end
  return flatten(x, 2)
end

function Flatten:describe() return "" end

--- nn.Identity() returns its input.
--- Example: return pg.nn.Identity()(pg.tensor{1, 2})
local Identity = HybridBlock:extend("Identity")
layers.Identity = Identity
function Identity:init(...) args.read("Identity", {}, {}, ...) end
function Identity:forward(...) return ... end
function Identity:describe() return "" end

local function define_lambda(parent, name)
  local Lambda = parent:extend(name)

  --- nn.Lambda(f) and nn.HybridLambda(f) wrap a function in a block. f is a function or the name of an op.
  --- Example: return pg.nn.Lambda("tanh")(pg.zeros(2))
  function Lambda:init(...)
    local f = args.read(name, {"f"}, {f = args.required}, ...).f
    self._text = type(f) == "string" and f or "function"
    if type(f) == "string" then
      local found = ops[f]
      if not found then core.fail(name, "unknown op '%s'%s", f, hint("pg", f, ops)) end
      f = found
    end
    self._f = args.callable(name, "f", f)
  end

  function Lambda:forward(...) return self._f(...) end
  function Lambda:describe() return self._text end
  return Lambda
end

layers.Lambda = define_lambda(base.Block, "Lambda")
layers.HybridLambda = define_lambda(HybridBlock, "HybridLambda")

return layers
