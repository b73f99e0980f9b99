-- Activation layers.
local core = ...
local args = core.require("support.args")
local choose = core.require("support.namespace").choose
local HybridBlock = core.require("nn.block").HybridBlock
local param = core.require("param")
local ops = core.ops
local layers = {}

local functions = {
  softrelu = "softplus", swish = "silu", relu = "relu", sigmoid = "sigmoid", tanh = "tanh", softsign = "softsign",
  softplus = "softplus", relu6 = "relu6", leaky_relu = "leaky_relu", elu = "elu", selu = "selu", celu = "celu", gelu = "gelu",
  silu = "silu", mish = "mish", hardsigmoid = "hardsigmoid", hardswish = "hardswish", hardtanh = "hardtanh",
  logsigmoid = "logsigmoid", exp = "exp",
}

--- activation.find(op, value) -> the function for the option `activation`, which is a name, a function, false or nil.
--- Returns false for false and nil.
function layers.find(op, value)
  if value == nil or value == false then return false end
  if type(value) == "function" then return value end
  if type(value) ~= "string" then core.arg_error(op, "activation", "the name of an activation or a function", value) end
  if not functions[value] then
    core.fail(op, "unknown activation '%s'%s", value, choose("activation", value, functions))
  end
  return ops[functions[value]]
end

local find = layers.find

--- nn.Activation(name) applies "relu", "sigmoid", "tanh", "softrelu", "softsign" or another activation op.
--- Example: return pg.nn.Activation("relu")(pg.tensor{-1, 2})
local Activation = HybridBlock:extend("Activation")
layers.Activation = Activation

function Activation:init(...)
  local o = args.read("Activation", {"activation"}, {activation = args.required}, ...)
  self._f = find("Activation", o.activation)
  self._text = tostring(o.activation)
end

function Activation:forward(x) return self._f(x) end
function Activation:describe() return self._text end

--- nn.LeakyReLU(alpha = 0.01): x where x > 0, else alpha * x.
--- Example: return pg.nn.LeakyReLU(0.1)(pg.tensor{-1, 2})
local LeakyReLU = HybridBlock:extend("LeakyReLU")
layers.LeakyReLU = LeakyReLU

function LeakyReLU:init(...)
  local o = args.read("LeakyReLU", {"alpha"}, {alpha = 0.01}, ...)
  self.alpha = args.number("LeakyReLU", "alpha", o.alpha, 0)
end

function LeakyReLU:forward(x) return ops.leaky_relu(x, self.alpha) end
function LeakyReLU:describe() return tostring(self.alpha) end

--- nn.PReLU({alpha_initializer = 0.25, in_channels = 1}): a leaky rectifier with one learned slope, or one per channel.
--- Example: return pg.nn.PReLU():initialize()(pg.tensor{{-1, 2}})
local PReLU = HybridBlock:extend("PReLU")
layers.PReLU = PReLU

function PReLU:init(...)
  local o = args.read("PReLU", {"alpha_initializer", "in_channels"}, {alpha_initializer = 0.25, in_channels = 1}, ...)
  self.alpha = param.param{shape = {args.count("PReLU", "in_channels", o.in_channels, 1)}, init = o.alpha_initializer}
end

function PReLU:forward(x) return ops.prelu(x, self.alpha) end
function PReLU:describe() return "" end

--- nn.ELU(alpha = 1): x where x > 0, else alpha * (exp(x) - 1).
--- Example: return pg.nn.ELU()(pg.tensor{-1, 2})
local ELU = HybridBlock:extend("ELU")
layers.ELU = ELU

function ELU:init(...)
  local o = args.read("ELU", {"alpha"}, {alpha = 1}, ...)
  self.alpha = args.number("ELU", "alpha", o.alpha)
end

function ELU:forward(x) return ops.elu(x, self.alpha) end
function ELU:describe() return tostring(self.alpha) end

--- nn.SELU(): the scaled exponential linear unit of self-normalizing networks.
--- Example: return pg.nn.SELU()(pg.tensor{-1, 2})
local SELU = HybridBlock:extend("SELU")
layers.SELU = SELU
function SELU:init(...) args.read("SELU", {}, {}, ...) end
function SELU:forward(x) return ops.selu(x) end
function SELU:describe() return "" end

--- nn.GELU(approximation = "erf" or "tanh"): x times the cumulative distribution function of the standard normal
--- distribution at x.
--- Example: return pg.nn.GELU()(pg.tensor{-1, 2})
local GELU = HybridBlock:extend("GELU")
layers.GELU = GELU

function GELU:init(...)
  local o = args.read("GELU", {"approximation"}, {approximation = "erf"}, ...)
  self.approximation = args.choice("GELU", "approximation", o.approximation, {"erf", "none", "tanh"})
  self._options = {approximate = o.approximation == "tanh" and "tanh" or "none"}
end

function GELU:forward(x) return ops.gelu(x, self._options) end
function GELU:describe() return self.approximation end

--- nn.Swish(beta = 1): x * sigmoid(beta * x).
--- Example: return pg.nn.Swish()(pg.tensor{-1, 2})
local Swish = HybridBlock:extend("Swish")
layers.Swish = Swish

function Swish:init(...)
  local o = args.read("Swish", {"beta"}, {beta = 1}, ...)
  self.beta = args.number("Swish", "beta", o.beta)
end

function Swish:forward(x)
  if self.beta == 1 then return ops.silu(x) end
  return x * ops.sigmoid(x * self.beta)
end

function Swish:describe() return tostring(self.beta) end

return layers
