-- --strict: a global must be declared before it is read or assigned in a function. An assignment in a main chunk, in C
-- or in the library declares it.
local core = ...
local strict = {}

-- Names of other versions of Lua, which modules read to learn where they run.
local declared = {_ENV = true, utf8 = true, warn = true, rawlen = true}

-- What runs in the caller of the metamethod: "library", "main", "C" or "Lua". Without a caller it is the program.
local function caller()
  local info = debug.getinfo(3, "S")
  if not info then return "C" end
  return info.source:find("^@stdlib/") and "library" or info.what
end

local function fail(name)
  local near = type(name) == "string" and core.suggest(name, _G)
  error(("undeclared global '%s'%s"):format(tostring(name), near and " (did you mean '" .. near .. "'?)" or ""), 3)
end

--- strict.start() makes undeclared globals errors from now on.
function strict.start()
  local class = getmetatable(_G) or {}
  function class.__newindex(globals, name, value)
    if not declared[name] and caller() == "Lua" then fail(name) end
    declared[name] = true
    rawset(globals, name, value)
  end
  function class.__index(_, name)
    local from = not declared[name] and caller()
    if from == "Lua" or from == "main" then fail(name) end
    return nil
  end
  setmetatable(_G, class)
end

return strict
