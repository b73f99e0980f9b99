-- Counts changes that no guard of a trace checks: of a function's environment or shared upvalues, and of the metatable
-- of a type. The host's functions that make such changes are wrapped. graphs.epoch is the number of changes to
-- functions that traces have used; entries of another epoch are not used. Calls through references that a script took
-- before it loaded the library are not counted.
local core = ...
local graphs = core.graphs

graphs.epoch, graphs.used = 0, setmetatable({}, {__mode = "k"})   -- used: the set of functions that traces ran

local function count(f) if type(f) ~= "function" or graphs.used[f] then graphs.epoch = graphs.epoch + 1 end end

local function replace(t, name, make)
  local f = type(t) == "table" and rawget(t, name)
  if type(f) == "function" then rawset(t, name, make(f)) end
end

local function first(...) return (select(1, ...)) end

replace(_G, "setfenv", function(setfenv)
  local getinfo = debug and debug.getinfo
  return function(f, environment)
    if type(f) ~= "number" then
      count(f)
      return first(setfenv(f, environment))
    end
    local info = f >= 1 and getinfo and getinfo(f + 1, "f")
    count(info and info.func)
    return first(setfenv(f >= 1 and f + 1 or f, environment))
  end
end)
replace(debug, "setfenv", function(setfenv)
  return function(x, environment)
    count(x)
    return setfenv(x, environment)
  end
end)
-- LuaJIT compiles the values of upvalues that no function assigns as constants, in generated guards too.
for _, name in ipairs{"upvaluejoin", "setupvalue"} do
  replace(debug, name, function(change)
    return function(f, ...)
      count(f)
      return change(f, ...)
    end
  end)
end
replace(debug, "setmetatable", function(set)
  return function(x, meta)
    if type(x) ~= "table" then count() end
    return set(x, meta)
  end
end)
