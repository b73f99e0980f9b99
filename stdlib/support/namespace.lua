-- The public tables of the library: an unknown field raises and suggests the nearest name.
local core = ...
local namespace = {}

-- Where users of other libraries look for ops.
local modules = {nn = true, loss = true, autograd = true, linalg = true, fft = true, data = true, utils = true}

-- The given tables and, for each public table among them, those of the names that load when first used. So the nearest
-- name does not depend on what a script has used before.
local function with_lazy_names(...)
  local tables = {...}
  for i = 1, select("#", ...) do
    for _, names in ipairs((getmetatable(tables[i]) or {}).__fields or {}) do tables[#tables + 1] = names end
  end
  return unpack(tables)
end

--- namespace.hint(kind, name, candidates, …) -> " (write …)" from the table of hints for names of this kind (see
--- support/hints.lua), else " (did you mean 'x'?)" with the nearest key of the given tables, or "". A key that differs in
--- case only comes before an op of that name.
function namespace.hint(kind, name, ...)
  if type(name) ~= "string" then return "" end
  core.make_ops()
  local hint = kind and core.hint_of(kind, name)
  if hint then return " (" .. hint .. ")" end
  local near = core.suggest(name, with_lazy_names(...))
  local did_you_mean = near and " (did you mean '" .. near .. "'?)"
  if near and near:lower() == name:lower() then return did_you_mean end
  if modules[kind] and core.ops[name] then return (" (write pg.%s(x))"):format(name) end
  if kind == "pg" and core.tensor_methods[name] then return (" (it is a method: write x:%s())"):format(name) end
  return did_you_mean or ""
end

--- namespace.choose(kind, name, known) -> the hint, or " (there are …)" with the names in the set `known`.
function namespace.choose(kind, name, known)
  local text = namespace.hint(kind, name, known)
  if text ~= "" then return text end
  local names = {}
  for key in pairs(known) do names[#names + 1] = key end
  table.sort(names)
  return " (there are " .. table.concat(names, ", ") .. ")"
end

--- namespace.seal(label, t[, lazy]) -> t. An absent field is loaded by lazy[name](); other absent fields raise.
function namespace.seal(label, t, lazy)
  return setmetatable(t, {
    _label = label,
    __metatable = core.sandboxed and false,
    __fields = {lazy or {}},  -- for completion at the prompt: names besides the fields of t
    __tostring = function(self) return core.require("help").columns(self) or label end,
    __index = function(self, key)
      local load = lazy and lazy[key]
      if load then
        local value = load()
        rawset(self, key, value)
        return value
      end
      local hint = namespace.hint(label, key, t)
      core.fail(label, "unknown field '%s'%s", tostring(key), hint ~= "" and hint or " (pg.help() lists what there is)")
    end,
  })
end

-- The modules that hold ops: pg.fft.rfft is the op fft_rfft.
namespace.families = core.op_modules

--- namespace.of_ops(family) -> a table with the ops whose names begin with the family's, without that prefix.
function namespace.of_ops(family)
  local t = {}
  for _, name in ipairs(core.op_names(false)) do
    local short = name:match("^" .. family .. "_(.+)$")
    if short then t[short] = core.ops[name] end
  end
  return t
end

local function replace_separator(name, from, to)
  for _, family in ipairs(namespace.families) do
    if name:sub(1, #family + 1) == family .. from then return family .. to .. name:sub(#family + 2), family end
  end
  return name
end

--- namespace.dotted(name) -> "linalg.inv" and "linalg" for the op "linalg_inv"; the names of other ops as they are.
function namespace.dotted(name) return replace_separator(name, "_", ".") end

--- namespace.op_name(name) -> "linalg_inv" for "linalg.inv"; other names as they are.
function namespace.op_name(name) return (replace_separator(name, ".", "_")) end

return namespace
