-- The script changes values that a traced function read: globals, standard tables, environments, upvalues, numbers.
-- Each probe is a function, a change and a comparison with plain Lua (tests/probes.lua).
-- luacheck: ignore 111 112 113 121 122 142 143
local probe = require "tests.probes"
local pg = require "perigee"

-- Globals -----------------------------------------------------------------------------------------------------------

probe("a global that holds an op", function()
  ACT = pg.neg
  return {f = function(x) return ACT(x) end, mutate = function() ACT = pg.square end}
end)

probe("a global that holds a C function", function()
  RND = math.floor
  return {f = function(x) return x * RND(1.5) end, mutate = function() RND = math.ceil end}
end)

probe("a field of _G", function()
  ACT = pg.neg
  return {f = function(x) return _G.ACT(x) end, mutate = function() ACT = pg.square end}
end)

probe("_G under another name", function()
  local G = _G
  ACT = pg.neg
  return {f = function(x) return G.ACT(x) end, mutate = function() ACT = pg.square end}
end)

probe("_G by a computed name", function()
  local name = "A" .. "CT"
  ACT = 2
  return {f = function(x) return x * _G[name] end,
    mutate = {function() ACT = 3 end, function() name = "RATE" RATE = 7 end}}
end)

probe("a global number, absent and another type", function()
  return {f = function(x) return x * (RATE or 2) end,
    mutate = {function() RATE = 3 end, function() RATE = false end, function() RATE = nil end,
      function() RATE = "4" end}}
end, {fails = true})

probe("a global table and its field", function()
  CFG = {rate = 2}
  return {f = function(x) return x * CFG.rate end,
    mutate = {function() CFG.rate = 3 end, function() CFG = {rate = 4} end}}
end)

probe("an op in a global table", function()
  ACTS = {f = pg.neg}
  return {f = function(x) return ACTS.f(x) end, mutate = function() ACTS.f = pg.square end}
end)

probe("a global function of the script", function()
  function ACT(x) return x + 1 end
  return {f = function(x) return ACT(x) end,
    mutate = {function() function ACT(x) return x + 2 end end, function() ACT = pg.neg end}}
end)

probe("a global alias of a standard table", function()
  M = math
  return {f = function(x) return x * M.floor(1.5) end, mutate = function() M = {floor = math.ceil} end}
end)

probe("a field added to a standard table, read by an alias", function()
  M = math
  math.myk = 2
  return {f = function(x) return x * M.myk end, mutate = {function() math.myk = 3 end, function() M.myk = 4 end}}
end)

probe("a global alias of the library", function()
  LIB = pg
  return {f = function(x) return LIB.neg(x) end, mutate = function() LIB = {neg = pg.square} end}
end)

probe("rawget(_G, name)", function()
  RATE = 2
  return {f = function(x) return x * rawget(_G, "RATE") end, mutate = function() RATE = 3 end}
end)

probe("rawget under a global name", function()
  GET, CFG = rawget, {rate = 2}
  return {f = function(x) return x * GET(CFG, "rate") end, mutate = {function() CFG.rate = 3 end, function()
    GET = function() return 5 end
  end}}
end)

probe("counting the globals", function()
  return {f = function(x)
    local n = 0
    for _ in pairs(_G) do n = n + 1 end
    return x * n
  end, mutate = {function() ONE_MORE = 1 end, function() ONE_MORE = nil end}}
end)

probe("globals of some name", function()
  return {f = function(x)
    for name, v in next, _G do if name:find("^RATE_") then x = x * v end end
    return x
  end, mutate = {function() RATE_A = 2 end, function() RATE_B = 5 end, function() RATE_A = 3 end}}
end)

probe("a metatable of _G", function()
  return {f = function(x) return x * (RATE or 2) end,
    mutate = {function() setmetatable(_G, {__index = {RATE = 3}}) end, function() setmetatable(_G, nil) end}}
end)

probe("a replaced standard function by its global name", function()
  return {f = function(x) return x * tonumber("0x7") end, mutate = function()
    local before = tonumber
    tonumber = function(s, ...) return s == "0x7" and 5 or before(s, ...) end
  end}
end)

probe("a replaced standard table", function()
  return {f = function(x) return x * bit.bor(1, 2) end,
    mutate = function() bit = setmetatable({bor = function() return 9 end}, {__index = bit}) end}
end)

probe("a global written by forward", function()
  COUNT = 0
  return {f = function(x)
    COUNT = (COUNT + 1) % 3
    return x * COUNT
  end, mutate = {function() COUNT = 1 end, function() COUNT = 0 end}, state = function() return COUNT end}
end)

-- Standard tables ---------------------------------------------------------------------------------------------------

probe("a user's field of math", function()
  math.myk = 2
  return {f = function(x) return x * math.myk end, mutate = {function() math.myk = 3 end, function() math.myk = 2 end}}
end)

probe("a user's field of table, absent at first", function()
  return {f = function(x) return x * (table.myk or 2) end,
    mutate = {function() table.myk = 3 end, function() table.myk = nil end}}
end)

-- The library must keep working with it.
local function replace_floor()
  local before = math.floor
  math.floor = function(v) return v == 1.5 and 7 or before(v) end
end

probe("a replaced math.floor", function()
  return {f = function(x) return x * math.floor(1.5) end, mutate = replace_floor}
end)

probe("a replaced math.floor is not in a local that holds it", function()
  local floor = math.floor
  return {f = function(x) return x * floor(1.5) end, mutate = replace_floor}
end, {traces = 1})

probe("a local that holds a C function", function()
  local round = math.floor
  return {f = function(x) return x * round(1.5) end, mutate = function() round = math.ceil end}
end)

probe("a field of package.loaded", function()
  package.loaded.perigee_probe = {k = 2}
  return {f = function(x) return x * package.loaded.perigee_probe.k end, mutate = {
    function() package.loaded.perigee_probe.k = 3 end, function() package.loaded.perigee_probe = {k = 4} end,
  }}
end)

probe("a module held in a local", function()
  local m = {k = 2}
  package.loaded.perigee_probe = m
  return {f = function(x) return x * m.k end, mutate = function() require("perigee_probe").k = 3 end}
end)

probe("a method added to strings", function()
  function string.myk(s) return #s end
  return {f = function(x) return x * ("x"):myk() end, mutate = function() function string.myk() return 5 end end}
end)

probe("a replaced method of strings", function()
  return {f = function(x) return x * #("ab"):rep(2) end, mutate = function()
    local before = string.rep
    function string.rep(s, ...) return s == "ab" and s or before(s, ...) end
  end}
end)

probe("an absent method of strings", function()
  return {f = function(x) return x * (("x").myk or 2) end, mutate = function() string.myk = 3 end}
end)

probe("the metatable of strings", function()
  return {f = function(x) return x * (("x").myk or 2) end,
    mutate = function() getmetatable("").__index = setmetatable({myk = 3}, {__index = string}) end}
end)

probe("a metatable of numbers", function()
  debug.setmetatable(0, {__index = {myk = 2}})
  local one = 1
  return {f = function(x) return x * one.myk end, mutate = {
    function() debug.getmetatable(0).__index.myk = 3 end, function() debug.setmetatable(0, {__index = {myk = 4}}) end,
  }}
end)

probe("a metatable of booleans, and of functions", function()
  debug.setmetatable(true, {__index = {myk = 2}})
  debug.setmetatable(print, {__index = {myk = 3}})
  local on = true
  return {f = function(x) return x * on.myk + print.myk end, mutate = {
    function() debug.setmetatable(true, {__index = {myk = 4}}) end,
      function() debug.getmetatable(print).__index.myk = 5 end,
  }}
end)

probe("a metatable of nil", function()
  debug.setmetatable(nil, {__index = function() return 2 end})
  local t = {}
  return {f = function(x) return x * t.missing.myk end, mutate = function()
    debug.getmetatable(nil).__index = function() return 3 end
  end}
end)

-- Environments and upvalues -----------------------------------------------------------------------------------------

probe("setfenv after the trace", function()
  local function f(x) return x * RATE end
  setfenv(f, {RATE = 2})
  return {f = f, mutate = {function() setfenv(f, {RATE = 3}) end, function() getfenv(f).RATE = 4 end}}
end)

probe("setfenv of a helper", function()
  local function helper() return RATE end
  setfenv(helper, {RATE = 2})
  return {f = function(x) return x * helper() end, mutate = function() setfenv(helper, {RATE = 3}) end}
end)

probe("getfenv(1)", function()
  local env = setmetatable({rate = 2}, {__index = _G})
  local function f(x) return x * getfenv(1).rate end
  setfenv(f, env)
  return {f = f, mutate = function() env.rate = 3 end}
end)

probe("getfenv of a helper", function()
  local function helper() end
  setfenv(helper, {rate = 2})
  return {f = function(x) return x * getfenv(helper).rate end,
    mutate = {function() getfenv(helper).rate = 3 end, function() setfenv(helper, {rate = 4}) end}}
end)

probe("the class of an environment", function()
  local class = {RATE = 2}
  local function f(x) return x * RATE end
  setfenv(f, setmetatable({}, {__index = class}))
  return {f = f, mutate = {function() class.RATE = 3 end, function() getfenv(f).RATE = 4 end,
    function() setmetatable(getfenv(f), {__index = {RATE = 6}}) getfenv(f).RATE = nil end}}
end)

probe("debug.setupvalue of a variable that is assigned nowhere", function()
  local rate = 2
  local function f(x) return x * rate end
  return {f = f, mutate = function() debug.setupvalue(f, 1, 3) end}
end)

probe("debug.upvaluejoin of variables that are assigned nowhere", function()
  local rate, other = 2, 3
  local function f(x) return x * rate end
  local function g() return other end
  return {f = f, mutate = function() debug.upvaluejoin(f, 1, g, 1) end}
end)

-- Variables that are assigned later: LuaJIT inlines the values of other variables, whatever debug functions do.
probe("debug.setupvalue", function()
  local rate
  rate = 2
  local function f(x) return x * rate end
  return {f = f, mutate = function() debug.setupvalue(f, 1, 3) end}
end)

probe("debug.setupvalue of a helper", function()
  local act
  act = pg.neg
  local function helper(x) return act(x) end
  return {f = function(x) return helper(x) end, mutate = function() debug.setupvalue(helper, 1, pg.square) end}
end)

probe("debug.upvaluejoin", function()
  local rate, other
  rate, other = 2, 3
  local function f(x) return x * rate end
  local function g() return other end
  return {f = f, mutate = {function() debug.upvaluejoin(f, 1, g, 1) end, function() other = 5 end}}
end)

probe("debug.upvaluejoin of a helper that writes", function()
  local n, m = 0, 0
  local function bump() n = (n + 1) % 3 return n end
  local function other() m = (m + 1) % 2 return m end
  return {f = function(x) return x * bump() end, mutate = function() debug.upvaluejoin(bump, 1, other, 1) end,
    state = function() return n, m end}
end)

probe("debug.getupvalue in forward", function()
  local rate = 2
  local function helper() return rate end
  return {f = function(x)
    local _, v = debug.getupvalue(helper, 1)
    return x * v
  end, mutate = function() rate = 3 end}
end)

probe("an upvalue set by another closure", function()
  local rate, act, shift = 2, pg.neg, pg.ones(3)
  return {f = function(x) return act(x * rate) + shift end, mutate = {
    function() rate = 3 end, function() act = pg.square end, function() shift = pg.full({3}, 5) end,
    function() shift:add_(1) end, function() act = function(x) return x + 1 end end,
  }}
end)

probe("an upvalue that only code of the other branch reads is free", function()
  local on, rate = false, 2
  return {f = function(x)
    if on then return x * rate end
    return x
  end, mutate = function() rate = 3 end}
end, {traces = 1})

-- 0, NaN and kinds of scalars ---------------------------------------------------------------------------------------

probe("0 and -0 in a field", function()
  local o = {zero = 0}
  return {f = function(x) return x + (1 / o.zero > 0 and 1 or 2) end,
    mutate = {function() o.zero = -0 * 1 end, function() o.zero = -o.zero end}}
end)

probe("0 and -0 as an argument", function()
  local zero = 0
  return {f = function(x, z) return x + (1 / z > 0 and 1 or 2) end, args = function() return pg.ones(2), zero end,
    mutate = {function() zero = -zero end, function() zero = -zero end}}
end)

probe("0 and -0 in an upvalue, as text and in a tensor", function()
  local zero = 0
  return {f = function(x) return x + #tostring(zero), pg.tensor{1} * zero end,
    mutate = {function() zero = -zero end, function() zero = -zero end}}
end)

probe("0 and -0 in an argument's table", function()
  local zero = 0
  return {f = function(x, o) return x + 1 / o.z end, args = function() return pg.ones(2), {z = zero} end,
    mutate = function() zero = -zero end}
end)

probe("NaN equals itself", function()
  local o = {v = 0 / 0}
  return {f = function(x) return o.v ~= o.v and x or x * 2 end, mutate = function() end}
end, {traces = 1})

probe("NaN and a number", function()
  local o = {v = 0 / 0}
  return {f = function(x) return o.v ~= o.v and x or x * o.v end,
    mutate = {function() o.v = 3 end, function() o.v = 0 / 0 end, function() o.v = math.huge end,
      function() o.v = -math.huge end}}
end)

probe("a number and its text", function()
  local o = {v = 1}
  return {f = function(x) return x + (type(o.v) == "string" and 10 or o.v) end,
    mutate = {function() o.v = "1" end, function() o.v = true end, function() o.v = 1 end}, fails = true}
end, {fails = true})

probe("long texts and texts with control characters", function()
  local o = {s = ("a"):rep(200) .. "\n"}
  return {f = function(x) return x + (o.s:sub(-1) == "\n" and 1 or 2) end,
    mutate = {function() o.s = ("a"):rep(200) .. "\r" end, function() o.s = "\n\0" end, function() o.s = "\n\0\n" end}}
end)
