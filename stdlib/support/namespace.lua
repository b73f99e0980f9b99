-- The public tables of the library: an unknown field raises and suggests the nearest name.
local core = ...
local namespace = {}

--- namespace.hint(name, candidates, …) -> " (did you mean 'x'?)" with the nearest key of the given tables, or "".
function namespace.hint(name, ...)
  if type(name) == "string" then
    for i = 1, select("#", ...) do
      local near = core.suggest(name, (select(i, ...)))
      if near then return " (did you mean '" .. near .. "'?)" end
    end
  end
  return ""
end

--- namespace.seal(label, t[, lazy]) -> t. An absent field is loaded by lazy[name](); other absent fields raise.
function namespace.seal(label, t, lazy)
  return setmetatable(t, {
    __fields = {lazy or {}},  -- for completion at the prompt: names besides the fields of t
    __tostring = function(self) return core.require("help").columns(self) or label end,
    __index = function(self, key)
      local load = lazy and lazy[key]
      if load then
        local value = load()
        rawset(self, key, value)
        return value
      end
      core.fail(label, "unknown field '%s'%s", tostring(key), namespace.hint(key, t, lazy or {}))
    end,
  })
end

return namespace
