-- pg.init: initializers. An initializer is an object with make(self, shape, options, path) -> tensor.
local core = ...
local args = core.require("support.args")
local choose = core.require("support.namespace").choose
local class = core.require("support.class")
local patterns = core.require("support.pattern")
local ops = core.ops
local init = {}

--- pg.init.Initializer is the base class: `local Mine = pg.init.Initializer:extend("Mine")` with a method
--- `make(self, shape, options, path)` that returns a tensor; options holds dtype and device.
local Initializer = class.new("Initializer")
init.Initializer = Initializer

local halves = {float16 = true, bfloat16 = true}

-- Draws random values, in float32 for float16 and bfloat16, which not every random op supports.
local function draw(op, shape, options)
  local wanted = options.dtype or "float32"
  local x = ops[op](shape, {dtype = halves[wanted] and "float32" or wanted, device = options.device})
  return x, wanted
end

local function finish(x, wanted) return x.dtype == wanted and x or x:to(wanted) end

local function uniform(shape, options, scale)
  local x, wanted = draw("rand", shape, options)
  return finish(x * (2 * scale) - scale, wanted)
end

local function normal(shape, options, sigma, mean)
  local x, wanted = draw("randn", shape, options)
  x = x * sigma
  if mean and mean ~= 0 then x = x + mean end
  return finish(x, wanted)
end

local function full(shape, options, value) return ops.full(shape, value, {dtype = options.dtype, device = options.device}) end

local function define(name, names, spec)
  local kind = Initializer:extend(name)
  function kind:init(...)
    local values = args.read(name, names, spec, ...)
    for key, value in pairs(values) do self[key] = value end
    if self.check then self:check() end
  end
  init[name] = kind
  return kind
end

--- pg.init.Zero() fills with zeros.
--- Example: return pg.nn.Dense(2, {in_units = 2}):initialize(pg.init.Zero()).weight
local Zero = define("Zero", {}, {})
function Zero:make(shape, options) return full(shape, options, 0) end

--- pg.init.One() fills with ones.
--- Example: return pg.nn.Dense(2, {in_units = 2}):initialize(pg.init.One()).weight
local One = define("One", {}, {})
function One:make(shape, options) return full(shape, options, 1) end

--- pg.init.Constant(value) fills with a number, or copies a tensor of the parameter's shape.
--- Example: return pg.nn.Dense(2, {in_units = 2}):initialize(pg.init.Constant(0.5)).weight
local Constant = define("Constant", {"value"}, {value = args.required})

function Constant:check()
  if type(self.value) ~= "number" and not core.is_tensor(self.value) then
    core.arg_error("Constant", "value", "a number or a tensor", self.value)
  end
end

function Constant:make(shape, options, path)
  if type(self.value) == "number" then return full(shape, options, self.value) end
  core.require("param").merge("Constant", path ~= "" and path or "value", shape, self.value.shape)
  return self.value:detach():to{dtype = options.dtype, device = options.device}:clone()
end

--- pg.init.Uniform(scale = 0.07) draws uniformly from [-scale, scale].
--- Example: return pg.nn.Dense(2, {in_units = 2}):initialize(pg.init.Uniform(0.1)).weight:abs():max()
local Uniform = define("Uniform", {"scale"}, {scale = 0.07})
function Uniform:check() args.number("Uniform", "scale", self.scale, 0) end
function Uniform:make(shape, options) return uniform(shape, options, self.scale) end

--- pg.init.Normal(sigma = 0.01) draws from a normal distribution with mean 0 and standard deviation sigma.
--- Example: return pg.nn.Dense(2, {in_units = 2}):initialize(pg.init.Normal(0.1)).weight.shape
local Normal = define("Normal", {"sigma"}, {sigma = 0.01})
function Normal:check() args.number("Normal", "sigma", self.sigma, 0) end
function Normal:make(shape, options) return normal(shape, options, self.sigma) end

--- pg.init.TruncatedNormal(mean = 0, stdev = 0.01) draws from a normal distribution truncated at two standard
--- deviations.
--- Example: return pg.nn.Dense(2, {in_units = 2}):initialize(pg.init.TruncatedNormal(0, 0.1)).weight:abs():max()
local TruncatedNormal = define("TruncatedNormal", {"mean", "stdev"}, {mean = 0, stdev = 0.01})

function TruncatedNormal:check()
  args.number("TruncatedNormal", "mean", self.mean)
  args.number("TruncatedNormal", "stdev", self.stdev, 0)
end

function TruncatedNormal:make(shape, options)
  local x, wanted = draw("rand", shape, options)
  local inside = 0.9544997361036416                     -- erf(2 / sqrt 2): the probability within two standard deviations
  x = ((x * 2 - 1) * inside):erfinv() * (math.sqrt(2) * self.stdev) + self.mean
  return finish(x, wanted)
end

local function product(shape, first)
  local n = 1
  for i = first, #shape do n = n * shape[i] end
  return n
end

local function check_dims(op, shape, least, path)
  if #shape < least then
    core.arg_error(op, path ~= "" and path or "shape", "a shape of at least " .. least .. " dims",
                   "{" .. table.concat(shape, ", ") .. "}")
  end
end

--- pg.init.Orthogonal(scale = 1.414, rand_type = "uniform" or "normal") makes rows or columns orthogonal with length
--- scale.
--- Example: local w = pg.nn.Dense(2, {in_units = 2}):initialize(pg.init.Orthogonal(1)).weight
--- return w:matmul(w:t()):allclose(pg.eye(2), {atol = 1e-5})
local Orthogonal = define("Orthogonal", {"scale", "rand_type"}, {scale = 1.414, rand_type = "uniform"})

function Orthogonal:check()
  args.number("Orthogonal", "scale", self.scale)
  args.choice("Orthogonal", "rand_type", self.rand_type, {"uniform", "normal"})
end

function Orthogonal:make(shape, options, path)
  check_dims("Orthogonal", shape, 2, path)
  local out, rest = shape[1], product(shape, 2)
  if out == 0 or rest == 0 then return full(shape, options, 0) end
  local wide = {math.min(out, rest), math.max(out, rest)}
  local source = {dtype = "float64"}
  local x = self.rand_type == "uniform" and uniform(wide, source, 1) or normal(wide, source, 1)
  local q, r = ops.linalg_qr(x:t())
  q = q * ops.sign(ops.diagonal(r))  -- the signs that Gram-Schmidt gives; with those of the factorization q would be biased
  if out <= rest then q = q:t() end
  return (q * self.scale):reshape(shape):to{dtype = options.dtype, device = options.device}
end

--- pg.init.Xavier(rnd_type = "uniform" or "gaussian", factor_type = "avg", "in" or "out", magnitude = 3): random values
--- with scale sqrt(magnitude / fan), where fan is the number of inputs, of outputs, or their average.
--- Example: return pg.nn.Dense(2, {in_units = 4}):initialize(pg.init.Xavier{magnitude = 2}).weight.shape
local Xavier = define("Xavier", {"rnd_type", "factor_type", "magnitude"},
                      {rnd_type = "uniform", factor_type = "avg", magnitude = 3})

function Xavier:check()
  args.choice(self.name, "rnd_type", self.rnd_type, {"uniform", "gaussian"})
  args.choice(self.name, "factor_type", self.factor_type, {"avg", "in", "out"})
  args.number(self.name, "magnitude", self.magnitude, 0)
end

function Xavier:make(shape, options, path)
  check_dims(self.name, shape, 2, path)
  local window = product(shape, 3)
  local fan_in, fan_out = shape[2] * window, shape[1] * window
  local factor = self.factor_type == "avg" and (fan_in + fan_out) / 2 or self.factor_type == "in" and fan_in or fan_out
  local scale = factor > 0 and math.sqrt(self.magnitude / factor) or 0
  if self.rnd_type == "uniform" then return uniform(shape, options, scale) end
  return normal(shape, options, scale)
end

--- pg.init.MSRAPrelu(factor_type = "avg", slope = 0.25): Xavier with gaussian values for networks of leaky rectifiers
--- with this slope.
--- Example: return pg.nn.Conv2D(4, 3, {in_channels = 2}):initialize(pg.init.MSRAPrelu()).weight.shape
local MSRAPrelu = Xavier:extend("MSRAPrelu")
init.MSRAPrelu = MSRAPrelu

function MSRAPrelu:init(...)
  local values = args.read("MSRAPrelu", {"factor_type", "slope"}, {factor_type = "avg", slope = 0.25}, ...)
  args.number("MSRAPrelu", "slope", values.slope)
  self.rnd_type, self.factor_type, self.magnitude = "gaussian", values.factor_type, 2 / (1 + values.slope ^ 2)
  self:check()
end

--- pg.init.Bilinear() initializes the weight of a transposed convolution to bilinear interpolation.
--- Example: return pg.nn.Conv2DTranspose(1, 4, {in_channels = 1, weight_initializer = pg.init.Bilinear()}):initialize().weight
local Bilinear = define("Bilinear", {}, {})
function Bilinear:make(shape, options, path)
  check_dims("Bilinear", shape, 4, path)
  local height, width = shape[3], shape[4]
  local f = math.ceil(width / 2)
  local c = (2 * f - 1 - f % 2) / (2 * f)
  local window = {}
  for y = 1, height do
    window[y] = {}
    for x = 1, width do window[y][x] = (1 - math.abs((x - 1) / f - c)) * (1 - math.abs((y - 1) / f - c)) end
  end
  local x = ops.tensor(window, {dtype = "float64"}):expand(shape):contiguous()
  return x:to{dtype = options.dtype, device = options.device}
end

--- pg.init.LSTMBias(forget_bias = 1): zeros, except forget_bias for the forget gate. The order of the gates is in,
--- forget, cell, out.
--- Example: return pg.nn.rnn.LSTMCell(2, {input_size = 1, i2h_bias_initializer = pg.init.LSTMBias(1)}):initialize().i2h_bias
local LSTMBias = define("LSTMBias", {"forget_bias"}, {forget_bias = 1})
function LSTMBias:check() args.number("LSTMBias", "forget_bias", self.forget_bias) end

function LSTMBias:make(shape, options, path)
  if #shape ~= 1 or shape[1] % 4 ~= 0 then
    core.arg_error("LSTMBias", path ~= "" and path or "shape", "one dim of a size divisible by 4", "{" .. table.concat(shape, ", ") .. "}")
  end
  local gate, values = shape[1] / 4, {}
  for i = 1, shape[1] do values[i] = (i > gate and i <= 2 * gate) and self.forget_bias or 0 end
  return ops.tensor(values, {dtype = options.dtype, device = options.device})
end

--- pg.init.Mixed(patterns, initializers): the initializer of the first Lua pattern that is found in a parameter's path.
--- It takes precedence over the rule of the name (bias 0, gamma 1), except for a pattern that matches every path, such
--- as ".*". Raises for a regular expression, with | or a backslash; "%|" is a bar in a path.
--- Example: local net = pg.nn.HybridSequential{pg.nn.Dense(1, {in_units = 2}), pg.nn.Dense(1, {in_units = 1})}
--- net:initialize(pg.init.Mixed({"^1%.", ".*"}, {"ones", "zeros"}))
--- return net[1].weight, net[2].weight
local Mixed = define("Mixed", {"patterns", "initializers"}, {patterns = args.required, initializers = args.required})
local fits_all = {[""] = true, ["."] = true, [".*"] = true, ["^"] = true}

function Mixed:check()
  if type(self.patterns) ~= "table" then core.arg_error("Mixed", "patterns", "a list of Lua patterns", self.patterns) end
  if type(self.initializers) ~= "table" or #self.initializers ~= #self.patterns then
    core.arg_error("Mixed", "initializers", "one initializer for each pattern", self.initializers)
  end
  local list = {}
  for i, pattern in ipairs(self.patterns) do
    args.string("Mixed", "patterns", pattern)
    patterns.refuse_regex("Mixed", "patterns", pattern, "give each alternative its own pattern and initializer")
    list[i] = init.resolve("Mixed", self.initializers[i])
  end
  self.initializers = list
end

function Mixed:choose(path)
  for i, pattern in ipairs(self.patterns) do
    if fits_all[pattern] then return init.rule(path) or self.initializers[i] end
    if patterns.matches("Mixed", "patterns", pattern, path) then return self.initializers[i] end
  end
  core.fail("Mixed", "no pattern matches the parameter '%s' (add \".*\" as the last pattern)", path)
end

function Mixed:make(shape, options, path) return self:choose(path):make(shape, options, path) end

--- pg.init.FusedRNN(init, num_hidden, num_layers, mode = "rnn_relu", "rnn_tanh", "lstm" or "gru", bidirectional = false,
--- forget_bias = 1): the parameters of a recurrent layer. Biases are 0, but forget_bias for the forget gates of "lstm";
--- weights are made by init, by default Uniform(0.07). MXNet's layers have one packed parameter; those of perigee have
--- one for each weight and bias, so num_hidden only checks the biases, and num_layers and bidirectional change nothing.
--- Example: local net = pg.nn.rnn.LSTM(2, {input_size = 1})
--- return net:initialize(pg.init.FusedRNN("xavier", 2, 1, "lstm")):collect_params()
local FusedRNN = Initializer:extend("FusedRNN")
init.FusedRNN = FusedRNN
local gates = {rnn_relu = 1, rnn_tanh = 1, gru = 3, lstm = 4}

function FusedRNN:init(...)
  local values = args.read("FusedRNN", {"init", "num_hidden", "num_layers", "mode", "bidirectional", "forget_bias"}, {
    init = args.none, num_hidden = args.required, num_layers = args.required, mode = args.required, bidirectional = false, forget_bias = 1,
  }, ...)
  args.count("FusedRNN", "num_hidden", values.num_hidden, 1)
  args.count("FusedRNN", "num_layers", values.num_layers, 1)
  args.choice("FusedRNN", "mode", values.mode, {"rnn_relu", "rnn_tanh", "lstm", "gru"})
  args.boolean("FusedRNN", "bidirectional", values.bidirectional)
  args.number("FusedRNN", "forget_bias", values.forget_bias)
  self.weights, self.mode, self.forget_bias = init.resolve("FusedRNN", values.init), values.mode, values.forget_bias
  self.biases = gates[values.mode] * values.num_hidden
end

function FusedRNN:choose(path)
  if self.mode == "lstm" and path:find("bias$") then return init.LSTMBias(self.forget_bias) end
  return init.rule(path) or self.weights
end

function FusedRNN:make(shape, options, path)
  if path:find("[ih]2h_bias$") and shape[1] ~= self.biases then
    core.arg_error("FusedRNN", path, ("%d elements, for num_hidden and mode = \"%s\""):format(self.biases, self.mode), shape[1])
  end
  return self:choose(path):make(shape, options, path)
end

--- pg.init.Load(file or table, default_init): values by path, from a table or a file written by save_parameters,
--- pg.save or MXNet. Other paths get default_init.
--- Example: local net = pg.nn.Dense(1, {in_units = 2})
--- return net:initialize(pg.init.Load({weight = pg.tensor{{1, 2}}}, "zeros")).weight
local Load = Initializer:extend("Load")
Load._optional = {default_init = true}
init.Load = Load

function Load:init(source, default_init)
  if type(source) == "string" then
    local read = source:find("%.params$") and core.require("nn.parameters").read_paths
    source = read and read("Load", source) or core.load_tensors(source, "Load")
  end
  if type(source) ~= "table" then core.arg_error("Load", "source", "a path or a table of tensors", source) end
  if args.plain(default_init) then default_init = args.options("Load", default_init, {default_init = args.none}).default_init end
  self.source = source
  if default_init ~= nil then self.default_init = init.resolve("Load", default_init) end
end

function Load:choose(path)
  if self.source[path] then return Constant(self.source[path]) end
  if not self.default_init then core.fail("Load", "no value for the parameter '%s' and no default_init", path) end
  return init.rule(path) or self.default_init
end

function Load:make(shape, options, path) return self:choose(path):make(shape, options, path) end

local zero, one = Zero(), One()
local rules = {
  {"bias$", zero}, {"beta$", zero}, {"running_mean$", zero}, {"moving_mean$", zero},
  {"gamma$", one}, {"running_var$", one}, {"moving_var$", one},
}

--- pg.init.rule(path) -> the initializer for the name of a parameter, the end of its path (bias, beta, running_mean: 0;
--- gamma, running_var: 1), or nil.
function init.rule(path)
  args.string("rule", "path", path)
  for _, rule in ipairs(rules) do if path:find(rule[1]) then return rule[2] end end
end

local aliases = {zeros = "Zero", ones = "One", gaussian = "Normal", truncnorm = "TruncatedNormal", msra = "MSRAPrelu"}
local no_argument = {
  "Zero", "One", "Uniform", "Normal", "TruncatedNormal", "Orthogonal", "Xavier", "MSRAPrelu", "Bilinear", "LSTMBias",
}

local function by_name(op, name)
  local known = {}
  for _, entry in ipairs(no_argument) do known[entry:lower()] = entry end
  for alias, entry in pairs(aliases) do known[alias] = entry end
  known.truncated_normal, known.msra_prelu, known.lstm_bias = "TruncatedNormal", "MSRAPrelu", "LSTMBias"
  local found = known[name:lower()]
  if found then return init[found]() end
  core.fail(op, "unknown initializer '%s'%s", name, choose("initializer", name:lower(), known))
end

local Function = Initializer:extend("Function")
function Function:init(f) self.f = f end

function Function:make(shape, options, path)
  local value = self.f(shape, options, path)
  if not core.is_tensor(value) then core.arg_error("initialize", "init", "a function that returns a tensor", value) end
  core.require("param").merge("initialize", path ~= "" and path or "init", shape, value.shape)
  return value:detach():to{dtype = options.dtype, device = options.device}
end

local default = init.Uniform()
local gluon = "; Gluon's _init_weight(name, data) writes to data instead"

--- pg.init.resolve(op, value) -> an initializer. value is a name, a number, a tensor, an initializer, a class of
--- pg.init, a function (shape, options, path) -> tensor, or nil for Uniform(0.07).
function init.resolve(op, value)
  if value == nil then return default end
  if type(value) == "string" then return by_name(op, value) end
  if type(value) == "number" or core.is_tensor(value) then return Constant(value) end
  if type(value) == "function" then return Function(value) end
  if type(value) == "table" and rawget(value, "super") and class.is(setmetatable({}, value), Initializer) then value = value() end
  if class.is(value, Initializer) then
    class.defined(value, "make", "make(shape, options, path)", ", which returns a tensor" .. (value._init_weight and gluon or ""))
    return value
  end
  core.arg_error(op, "init", "an initializer or its name", value)
end

-- Returns the value that make of an initializer has returned for a parameter.
local function check(initializer, path, shape, value)
  if not core.is_tensor(value) then
    core.fail(initializer.name, "make returned %s for %s (expected a tensor of its shape)", value == nil and "nothing" or core.describe(value),
              path ~= "" and "'" .. path .. "'" or "a parameter")
  end
  core.require("param").merge(initializer.name, path ~= "" and path or "init", shape, value.shape, " from make")
  return value
end

--- pg.init.make(own, default, path, shape, options) -> a value for a parameter. Its own initializer takes precedence,
--- then the rule of its name, then the default. If the default is Mixed or Load, it chooses by path and takes
--- precedence over the rule.
function init.make(own, fallback, path, shape, options)
  if type(fallback) ~= "table" or not fallback.make then fallback = init.resolve("make", fallback) end
  options = options or {}
  local chosen
  if own ~= nil then chosen = init.resolve("initialize", own)
  elseif fallback.choose then chosen = fallback
  else chosen = init.rule(path) or fallback end
  return core.require("autograd").pause(function() return check(chosen, path, shape, chosen:make(shape, options, path)) end)
end

return core.require("support.namespace").seal("init", init)
