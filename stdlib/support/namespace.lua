-- Tables of the library's names: unknown names raise and point to the nearest one.
local core = ...
local namespace = {}

--- namespace.hint(name, candidates, …) -> " (did you mean 'x'?)" or "" for the nearest key of the tables given.
function namespace.hint(name, ...)
  if type(name) == "string" then
    for i = 1, select("#", ...) do
      local near = core.suggest(name, (select(i, ...)))
      if near then return " (did you mean '" .. near .. "'?)" end
    end
  end
  return ""
end

--- namespace.seal(label, t[, lazy]) -> t, whose unknown fields are loaded by lazy[name]() or raise.
function namespace.seal(label, t, lazy)
  return setmetatable(t, {
    __fields = {lazy or {}},  -- what Tab offers beside the fields of t
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
