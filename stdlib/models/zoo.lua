-- What the families of pg.models share: a net of features and output, and functions that make nets by name.
local core = ...
local args = core.require("support.args")
local nn = core.require("nn")
local zoo = {}

-- The base class of all models. Its fields have Gluon's names.
local Model = nn.HybridBlock:extend("Model")
zoo.Model = Model

function Model:forward(x) return self.output(self.features(x)) end

--- zoo.convolution(channels, kernel size, stride, padding[, {options of nn.Conv2D}]) -> a convolution without bias.
function zoo.convolution(channels, kernel, stride, padding, options)
  options = options or {}
  if options.use_bias == nil then options.use_bias = false end
  return nn.Conv2D(channels, kernel, stride, padding, options)
end

--- zoo.relu() -> a layer.
function zoo.relu() return nn.Activation("relu") end

--- zoo.classes(op, o) -> the option `classes`.
function zoo.classes(op, o) return args.count(op, "classes", o.classes, 1) end

local function refuse_weights(name, pretrained)
  if not args.boolean(name, "pretrained", pretrained) then return end
  core.fail(name, "there are no trained weights for models (make the net without pretrained, then load a file of its parameters: "
            .. "net:load_parameters(path))")
end

--- zoo.add(models, name, make[, more]) makes models[name]({classes = 1000, pretrained = false}), which returns make(options).
--- `more` holds the names and defaults of further options.
function zoo.add(models, name, make, more)
  local spec = {classes = 1000, pretrained = false}
  for key, default in pairs(more or {}) do spec[key] = default end
  models[name] = function(options)
    local o = args.options(name, options, spec)
    refuse_weights(name, o.pretrained)
    o.pretrained = nil
    return make(o)
  end
end

return zoo
