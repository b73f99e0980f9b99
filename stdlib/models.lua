-- pg.models: nets for images under Gluon's names, with random weights. Each file in models/ holds one family.
local core = ...
local args = core.require("support.args")
local namespace = core.require("support.namespace")
local models, makers = {}, {}

for _, family in ipairs{"alexnet", "densenet", "inception", "mobilenet", "resnet", "squeezenet", "vgg"} do
  for name, value in pairs(core.require("models." .. family)) do
    models[name] = value
    if name:find("^%l") then makers[name] = value end
  end
end

--- pg.models.list() -> the sorted list of the names of the models.
--- Example: return #pg.models.list(), pg.models.list()[1]
function models.list()
  local names = {}
  for name in pairs(makers) do names[#names + 1] = name end
  table.sort(names)
  return names
end

--- pg.models.get_model(name[, {classes = 1000, …}]) -> the model of that name: pg.models.NAME(options). Gluon's names with dots,
--- such as "mobilenetv2_1.0" and "inceptionv3", are names too.
--- Example: local net = pg.models.get_model("squeezenet1.1", {classes = 10}):initialize()
--- return net(pg.ones(1, 3, 32, 32)).shape
function models.get_model(name, options)
  local plain = args.string("get_model", "name", name):lower():gsub("%.", "_"):gsub("(%l)v(%d)", "%1_v%2")
  local make = makers[plain]
  if not make then core.fail("get_model", "unknown model '%s'%s", name, namespace.choose("models", plain, makers)) end
  return make(options)
end

return namespace.seal("models", models)
