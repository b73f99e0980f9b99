-- Finds optimizers by name.
local core = ...
local choose = core.require("support.namespace").choose
local class = core.require("support.class")
local base = core.require("optim.optimizer")

for _, family in ipairs{"fused", "adaptive", "leader", "descent", "large_batch"} do core.require("optim." .. family) end

local by_name = {}
for name in pairs(base.defined) do by_name[name:lower()] = name end

local function find(value)
  local found = by_name[(value:lower():gsub("_", ""))]
  if not found then core.fail("Trainer", "unknown optimizer '%s'%s", value, choose("optimizer", value:lower(), by_name)) end
  return base.defined[found]
end

--- pg.optim.create(name or optimizer, options) -> an optimizer. The names are those of the classes in lower case: "sgd",
--- "nag", "adam", "adamw", "adamax", "nadam", "adagrad", "groupadagrad", "adadelta", "rmsprop", "ftrl", "ftml", "signum",
--- "sgld", "dcasgd", "lars", "lamb", "lbsgd", "test".
--- Example: return pg.optim.create("rmsprop", {centered = true})
return function(value, options)
  if type(value) == "string" then return find(value)(options) end
  if class.is(value, base.Optimizer) then
    if options ~= nil and next(options) ~= nil then
      core.arg_error("Trainer", "options", "nil, since the optimizer has its own options", options)
    end
    return value
  end
  if type(value) == "table" and rawget(value, "super") and value.update then return value(options) end
  core.arg_error("Trainer", "optimizer", "an optimizer or its name", value)
end
