-- The script changes tables that a traced function read: lengths, keys, iteration, metatables. Tables that it did not
-- read may change freely. Each probe is a function, a change and a comparison with plain Lua (tests/probes.lua).
-- luacheck: ignore 111 112 113
local probe = require "tests.probes"
local pg = require "perigee"
local nn = pg.nn

-- Lengths -----------------------------------------------------------------------------------------------------------

-- Each reads the length of t in a different way; f(x, t) -> results.
local lengths = {
  {"#t", function(x, t) return x + #t end},
  {"ipairs", function(x, t)
    for i, v in ipairs(t) do x = x * i + v end
    return x
  end},
  {"a loop to #t", function(x, t)
    for i = 1, #t do x = x * i + (t[i] or 0) end
    return x
  end},
  {"select('#', unpack(t))", function(x, t) return x + select("#", unpack(t)) end},
  {"table.concat", function(x, t) return x + #table.concat(t, ",") end},
  {"table.insert", function(x, t)
    table.insert(t, 7)
    local n = #t
    table.remove(t)
    return x + n
  end},
  {"table.remove", function(x, t)
    local last = table.remove(t)
    t[#t + 1] = last
    return x + (last or 50)
  end},
  {"table.getn", function(x, t) return x + table.getn(t) end},
  {"table.maxn", function(x, t) return x + table.maxn(t) end},
  {"table.sort", function(x, t)
    local sorted = {unpack(t)}
    table.sort(sorted, function(a, b) return a > b end)
    return x + (sorted[1] or 50)
  end},
  {"table.foreachi", function(x, t)
    local sum = 0
    table.foreachi(t, function(_, v) sum = sum + v end)
    return x + sum
  end},
}

for _, way in ipairs(lengths) do
  local label, read = way[1], way[2]
  local function append(t) return function() t[#t + 1] = #t + 3 end end
  local function shorten(t) return function() t[#t] = nil end end
  probe(label .. " of a table that is empty at first", function()
    local t = {}
    return {f = function(x) return read(x, t) end, mutate = {append(t), append(t), shorten(t), shorten(t)},
    state = function() return t end}
  end)
  probe(label .. " of a table with a metatable", function()
    local t = setmetatable({}, {})
    return {f = function(x) return read(x, t) end, mutate = {append(t), append(t), shorten(t), shorten(t)},
    state = function() return t end}
  end)
  probe(label .. " of a table whose list begins later", function()
    local t = {k = 5}
    return {f = function(x) return read(x, t) end, mutate = {function() t[1] = 4 end, function() t[2] = 5 end},
    state = function() return t end}
  end)
end

probe("# of a block", function()
  local net = nn.block{n = 1, forward = function(_, x) return x end}
  return {f = function(x) return x + #net end,
    mutate = {function() rawset(net, 1, 2) end, function() rawset(net, 2, 2) end}}
end)

probe("unpack up to a field", function()
  local t, o = {1, 2, 3}, {n = 2}
  return {f = function(x)
    local a, b, c = unpack(t, 1, o.n)
    return x + a + (b or 0) + (c or 10)
  end, mutate = {function() o.n = 3 end, function() t[3] = 5 end, function() o.n = 1 end}}
end)

probe("# of a text", function()
  local o = {s = "ab"}
  return {f = function(x) return x * #o.s end, mutate = {function() o.s = "abc" end, function() o.s = "abd" end}}
end)

probe("the number of arguments, nil at the end", function()
  local n = 1
  return {f = function(...) return (...) + select("#", ...) end,
    args = function() return pg.ones(2), unpack({}, 1, n) end,
    mutate = {function() n = 0 end, function() n = 3 end}}
end)

-- Keys --------------------------------------------------------------------------------------------------------------

probe("a key that may be a number", function()
  local t, cfg = {5, a = 2, b = 3}, {key = "a"}
  return {f = function(x) return x * t[cfg.key or 1] end,
    mutate = {function() t.a = 7 end, function() cfg.key = "b" end, function() cfg.key = nil end,
      function() t[1] = 9 end}}
end)

probe("a loop variable that is assigned a name", function()
  local t, names = {a = 2, b = 3}, {"a", "b"}
  return {f = function(x)
    local n = 0
    for i = 1, 2 do
      i = names[i]
      n = n + t[i]
    end
    return x * n
  end, mutate = {function() t.a = 7 end, function() names[2] = "a" end}}
end)

probe("a key put together from texts", function()
  local t = {a1 = 2, a2 = 3}
  return {f = function(x)
    for i = 1, 2 do x = x * t["a" .. i] end
    return x
  end, mutate = {function() t.a2 = 7 end, function() t.a1 = 5 end}}
end)

probe("keys that are booleans, fractions, negative, tables, functions, tensors", function()
  local object, w = {}, pg.ones(1)
  local t = {[true] = 2, [0.5] = 3, [-1] = 4, [0] = 5, [object] = 6, [print] = 7, [w] = 8}
  local function change(key) return function() t[key] = t[key] + 10 end end
  return {f = function(x) return x * t[true] + t[0.5] * t[-1] + t[0] * t[object] + t[print] * t[w] end,
    mutate = {change(true), change(0.5), change(-1), change(0), change(object), change(print), change(w)}}
end)

probe("an absent key that is no name", function()
  local t, key = {}, {}
  return {f = function(x) return x * (t[key] or t[true] or t[-1] or 2) end,
    mutate = {function() t[-1] = 3 end, function() t[true] = 4 end, function() t[key] = 5 end}}
end)

probe("rawget and rawequal of a table with a class", function()
  local t = setmetatable({}, {__index = {k = 5}})
  return {f = function(x) return x * (rawget(t, "k") or 2) + t.k end, mutate = function() t.k = 3 end}
end)

probe("rawget held in a field", function()
  local lib, t = {get = rawget}, {k = 2}
  local name = "k"
  return {f = function(x) return x * lib.get(t, name) end,
    mutate = {function() t.k = 3 end, function() lib.get = function() return 9 end end}}
end)

probe("a key from string.format, sub and tostring", function()
  local t = {k1 = 2, ["1"] = 3, k = 4}
  return {f = function(x) return x * t[("k%d"):format(1)] + t[tostring(1)] * t[("key"):sub(1, 1)] end,
    mutate = {function() t.k1 = 5 end, function() t["1"] = 6 end, function() t.k = 7 end}}
end)

-- Iteration ---------------------------------------------------------------------------------------------------------

local function digits(each, t, x)
  local n = 0
  for _, v in each(t) do n = n * 10 + v end
  return x * n
end

probe("pairs held in a field", function()
  local u, t = {each = pairs}, {a = 1, b = 2}
  return {f = function(x) return digits(u.each, t, x) end,
    mutate = {function() t.c = 3 end, function() t.a = 5 end, function() t.b = nil end, function() u.each = ipairs end}}
end)

probe("next held in a field", function()
  local u, t = {step = next}, {a = 1}
  return {f = function(x)
    for _, v in u.step, t do x = x * v + 1 end
    return x
  end, mutate = {function() t.b = 3 end, function() t.a = nil end}}
end)

probe("pairs under a global name", function()
  EACH = pairs
  local t = {a = 1}
  return {f = function(x) return digits(EACH, t, x) end,
    mutate = {function() t.c = 3 end, function() t.a = 5 end, function() EACH = ipairs end}}
end)

probe("next as a test for entries", function()
  local t = {}
  return {f = function(x) return next(t) and x * 2 or x end,
    mutate = {function() t.a = 1 end, function() t.a = nil end, function() t[1] = 1 end}}
end)

probe("next after a key", function()
  local t = {1, 2}
  return {f = function(x) return x * (next(t, 2) and 2 or 3) end,
    mutate = {function() t[3] = 1 end, function() t[3] = nil end, function() t.k = 1 end}}
end)

probe("the order of pairs after an entry went and another came", function()
  local all, names = {}, {}  -- a name that is collected and created again has another place in its table
  for i = 1, 24 do
    all[i] = {}
    for k = 1, 9 do names[i * 10 + k] = "n" .. i * 10 + k end
    for k = 1, 5 do all[i][names[i * 10 + k]] = k end
  end
  local function set(k, v) return function() for i = 1, 24 do all[i][names[i * 10 + k]] = v end end end
  return {f = function(x)
    local ys = {}
    for i = 1, 24 do ys[i] = digits(pairs, all[i], x * 1e-3) end
    return ys
  end, mutate = {set(2, nil), set(7, 9), set(2, 2), set(7, nil), set(8, 7), set(1, nil), set(1, 1)}}
end)

probe("counting entries", function()
  local t = {a = 1}
  return {f = function(x)
    local n = 0
    for _ in pairs(t) do n = n + 1 end
    return x * n
  end, mutate = {function() t.b = 2 end, function() t[1] = 2 end, function() t[true] = 1 end, function() t.a = nil end}}
end)

probe("an entry replaced by another of the same value", function()
  local t = {a = 1, b = 2}
  return {f = function(x)
    local names = {}
    for k in pairs(t) do names[#names + 1] = k end
    table.sort(names)
    return x * #table.concat(names), table.concat(names)
  end, mutate = function() t.a, t.c = nil, 1 end}
end)

probe("fields of a block by pairs", function()
  local net = nn.block{rate_a = 2, forward = function(self, x)
    for k, v in pairs(self) do if type(k) == "string" and k:find("^rate") then x = x * v end end
    return x
  end}
  return {f = function(x) return net(x) end, mutate = {function() net.rate_b = 3 end, function() net.rate_a = 5 end}}
end)

probe("pairs of an argument", function()
  local t = {a = 1}
  return {f = function(x, each) return digits(pairs, each, x) end, args = function() return pg.ones(2), t end,
    mutate = {function() t.b = 3 end, function() t = {c = 4} end, function() t = {} end}}
end)

probe("removal while iterating", function()
  local t = {a = 1, b = 2, c = 3}
  return {f = function(x)
    local n = 0
    for k, v in pairs(t) do
      n = n + v
      t[k] = nil
    end
    return x * n
  end, mutate = {function() t.z = 4 end, function() t.a, t.b = 5, 6 end}, state = function() return t end}
end)

probe("table.foreach", function()
  local t = {a = 1}
  return {f = function(x)
    local n = 0
    table.foreach(t, function(_, v) n = n + v end)
    return x * n
  end, mutate = {function() t.b = 2 end, function() t.a = 5 end}}
end)

-- Metatables --------------------------------------------------------------------------------------------------------

probe("setmetatable after the trace", function()
  local t = {}
  return {f = function(x) return x * (t.k or 2) end, mutate = {
    function() setmetatable(t, {__index = {k = 3}}) end, function() getmetatable(t).__index.k = 4 end,
    function() getmetatable(t).__index = function() return 5 end end, function() setmetatable(t, nil) end,
  }}
end)

probe("__index that reads an upvalue", function()
  local rate = 2
  local t = setmetatable({}, {__index = function(_, k) return k == "rate" and rate or nil end})
  return {f = function(x) return x * t.rate end,
    mutate = {function() rate = 3 end, function() t.rate = 4 end, function() t.rate = nil end}}
end)

probe("a chain of classes", function()
  local A = {rate = 2}
  local B = setmetatable({}, {__index = A})
  local C = setmetatable({}, {__index = B})
  local t = setmetatable({}, {__index = C})
  return {f = function(x) return x * t.rate end, mutate = {
    function() A.rate = 3 end, function() C.rate = 4 end, function() C.rate = nil end,
    function() setmetatable(C, {__index = {rate = 6}}) end, function() t.rate = 7 end,
  }}
end)

probe("arithmetic of objects", function()
  local meta, rate = {}, 2
  local o, p = setmetatable({v = 3}, meta), setmetatable({v = 4}, meta)
  function meta.__add(a, b) return a.v + b.v * rate end
  function meta.__unm(a) return -a.v end
  function meta.__concat(a, b) return (a.v .. "") .. b.v end
  return {f = function(x) return x * (o + p) + -o + #(o .. p) end, mutate = {
    function() rate = 5 end, function() o.v = 13 end, function() function meta.__unm() return 8 end end,
    function() p = o end,
  }}
end)

probe("comparison of objects", function()
  local meta = {}
  local o, p = setmetatable({v = 3}, meta), setmetatable({v = 4}, meta)
  function meta.__eq(a, b) return a.v == b.v end
  function meta.__lt(a, b) return a.v < b.v end
  function meta.__le(a, b) return a.v <= b.v end
  return {f = function(x) return x * (o == p and 2 or 3) + (o < p and 5 or 7) * (o <= p and 11 or 13) end, mutate = {
    function() o.v = 4 end, function() o.v = 5 end, function() function meta.__lt() return true end end,
      function() meta.__eq = nil end,
  }}
end)

probe("__call, __tostring and __newindex", function()
  local meta, log, rate = {}, {}, 2
  function meta.__call(o, x) return x * o.k * rate end
  function meta.__tostring(o) return ("k"):rep(o.k) end
  function meta.__newindex(_, k, v) log[k] = v end
  local o = setmetatable({k = 2}, meta)
  return {f = function(x)
    o.fresh = o.k + rate
    return o(x) + #tostring(o)
  end, mutate = {function() o.k = 3 end, function() rate = 4 end, function() meta.__newindex = nil end,
    function() function meta.__tostring() return "" end end}, state = function() return log, o end}
end)

probe("__newindex that is a table", function()
  local kept = {}
  local o = setmetatable({}, {__newindex = kept})
  return {f = function(x)
    o.last = (kept.last or 0) % 3 + 1
    return x * kept.last
  end, mutate = {function() kept.last = 2 end, function() getmetatable(o).__newindex = nil end},
    state = function() return kept, rawget(o, "last") end}
end)

probe("a protected metatable", function()
  local public = {k = 2}
  local meta = {__metatable = public, __index = {v = 3}}
  local o = setmetatable({}, meta)
  return {f = function(x) return x * getmetatable(o).k + o.v end,
    mutate = {function() public.k = 3 end, function() meta.__index.v = 5 end, function() meta.__index = {v = 6} end,
      function() meta.__metatable = {k = 7} end}}
end)

probe("getmetatable as a test of classes", function()
  local A, B = {}, {}
  A.__index, B.__index = A, B
  local o = setmetatable({}, A)
  return {f = function(x) return getmetatable(o) == A and x * 2 or x * 3 end,
    mutate = {function() setmetatable(o, B) end, function() setmetatable(o, A) end, function() A = {} end}}
end)

probe("a method replaced in an object, a class and a parent", function()
  local Base = {}
  Base.__index = Base
  local Class = setmetatable({}, Base)
  Class.__index = Class
  function Base.act(_, x) return x * 2 end
  local o = setmetatable({}, Class)
  return {f = function(x) return o:act(x) end, mutate = {
    function() function Base.act(_, x) return x * 3 end end, function() Class.act = function(_, x) return x * 4 end end,
    function() o.act = function(_, x) return x * 5 end end, function() o.act = nil end,
  }}
end)

-- Values that forward does not read may change ----------------------------------------------------------------------

local function free(name, make) probe("free: " .. name, make, {traces = 1}) end

free("a table of data beside a helper that iterates its argument", function()
  local rows = {}
  for i = 1, 100 do rows[i] = {id = i, name = "row " .. i, value = i * 2} end
  local helper = {data = rows}
  function helper.sum(t)
    local n = 0
    for _, v in pairs(t) do n = n + v end
    return n
  end
  local cfg = {a = 1, b = 2}
  return {f = function(x) return x * helper.sum(cfg) end, mutate = {
    function() rows[5].value = 7 end, function() rows[101] = {id = 101} end, function() helper.data = {} end,
      function() rows[1] = nil end,
  }}
end)

free("a field, an upvalue's other field, a global", function()
  local o = {rate = 2, steps = 0, list = {1, 2}}
  return {f = function(x) return x * o.rate end, mutate = {
    function() o.steps = 1 end, function() o.list[3] = 3 end, function() o.list = nil end, function() STEPS = 5 end,
      function() o.new = {} end,
  }}
end)

free("entries of a list beside the one that is read", function()
  local list = {1, 2, 3}
  return {f = function(x) return x * list[2] end,
    mutate = {function() list[1] = 7 end, function() list[3] = 9 end, function() list[4] = 1 end}}
end)

free("the field of the branch that was not taken", function()
  local o = {on = false, rate = 2, shift = 3}
  return {f = function(x) return o.on and x * o.rate or x + o.shift end,
    mutate = {function() o.rate = 5 end, function() o.rate = nil end}}
end)

free("a function that is not called", function()
  local function unused(x) return x end
  local o = {act = pg.neg, other = unused}
  return {f = function(x) return o.act(x) end,
    mutate = {function() o.other = pg.square end, function() unused = nil end}}  -- luacheck: ignore 311
end)

free("a field of the same name in another object", function()
  local a, b = {rate = 2}, {rate = 3}
  return {f = function(x) return x * a.rate, b end, mutate = function() b.rate = 7 end}
end)

free("a field that forward writes and never reads", function()
  local o = {}
  return {f = function(x)
    o.last = 5
    return x * 2
  end, mutate = {function() o.last = 6 end, function() o.last = "text" end, function() o.last = nil end},
    state = function() return o end}
end)

free("the metatable's fields that no operation used", function()
  local meta = {__index = {k = 2}}
  local o = setmetatable({}, meta)
  return {f = function(x) return x * o.k end,
    mutate = {function() meta.__add = print end, function() meta.__call = print end, function() meta.__index.j = 1 end}}
end)

free("entries after the loop broke off", function()
  local list = {1, 2, 3, 4}
  return {f = function(x)
    for _, v in ipairs(list) do
      if v == 2 then break end
      x = x * v
    end
    return x
  end, mutate = {function() list[4] = 9 end, function() list[5] = 9 end}}
end)
