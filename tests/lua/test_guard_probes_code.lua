-- The script changes state that the closures, coroutines, callbacks and loops of a traced function read. Each probe is
-- a function, a change and a comparison with plain Lua (tests/probes.lua).
local probe = require "tests.probes"
local pg = require "perigee"

-- Functions ---------------------------------------------------------------------------------------------------------

probe("closures made in forward", function()
  local o = {rate = 2}
  return {f = function(x)
    local function outer(n) return function(z) return z * n * o.rate end end
    return outer(3)(x) + outer(o.rate)(x)
  end, mutate = {function() o.rate = 5 end, function() o = {rate = 6} end}}
end)

probe("closures over loop variables", function()
  local o = {n = 2}
  return {f = function(x)
    local list = {}
    for i = 1, o.n do list[i] = function(z) return z * (i + o.n) end end
    for _, g in ipairs(list) do x = g(x) end
    return x
  end, mutate = {function() o.n = 3 end, function() o.n = 0 end}}
end)

probe("a closure that writes what another one reads", function()
  local o = {by = 2}
  local n = 0
  return {f = function(x)
    local function bump() n = (n + o.by) % 5 end
    local function get() return n end
    bump()
    local y = x * get()
    bump()
    return y + get()
  end, mutate = {function() n = 3 end, function() o.by = 1 end}, state = function() return n end}
end)

probe("varargs: select, a table of them, the rest", function()
  local o = {n = 2}
  local function rest(_, ...) return ... end
  local function sum(...)
    local s = 0
    for i = 1, select("#", ...) do s = s + (select(i, ...) or 10) end
    return s + #{...}
  end
  return {f = function(x, ...)
    local a, b, c = ..., o.n  -- luacheck: ignore 221
    return x * sum(rest(...)) + (a or 0) + (b or 0) + (c or 5)
  end, args = function() return pg.ones(2), o.n, 3, nil, 4 end,
    mutate = {function() o.n = 5 end, function() o.n = 2 end}}
end)

probe("recursion, tail calls and results in the middle", function()
  local o = {depth = 3}
  local function fact(n, acc) if n <= 1 then return acc end return fact(n - 1, acc * n) end
  local function fib(n) if n < 2 then return n end return fib(n - 1) + fib(n - 2) end
  local function two() return o.depth, 1 end
  return {f = function(x)
    local list = {two(), two()}
    return x * fact(o.depth, 1) + fib(o.depth + 2) * #list
  end, mutate = {function() o.depth = 4 end, function() o.depth = 0 end}}
end)

probe("multiple assignment and swaps", function()
  local o = {a = 2, b = 3}
  return {f = function(x)
    o.a, o.b = o.b, o.a
    local i, t = 1, {5, 6}
    i, t[i] = i + 1, o.a
    return x * o.a + t[1] * i
  end, mutate = {function() o.a = 7 end, function() o.a, o.b = 2, 3 end}, state = function() return o end}
end)

probe("a helper that is replaced while forward runs", function()
  local helper
  local function one(x) helper = nil return x * 2 end
  helper = one
  return {f = function(x) return helper and helper(x) or x * 3 end,
    mutate = {function() helper = one end, function() helper = pg.neg end},
    state = function() return helper == nil end}
end)

-- Errors and coroutines ---------------------------------------------------------------------------------------------

probe("pcall, error with a table, xpcall with a handler", function()
  local o, handled = {bad = 2}, 3
  return {f = function(x)
    local ok, e = pcall(function() error({code = o.bad}) end)
    local _, e2 = xpcall(function() error("text", 0) end, function(m) return #m + handled end)
    return x * (ok and 1 or e.code) + e2
  end, mutate = {function() o.bad = 5 end, function() handled = 7 end}}
end)

probe("writes before an error that pcall catches", function()
  local o = {n = 0, limit = 2}
  return {f = function(x)
    pcall(function()
      o.n = o.n + 1
      if o.n > o.limit then error("too many") end
      o.n = 0
    end)
    return x * (o.n + 1)
  end, mutate = {function() o.limit = 0 end, function() o.n = 0 end, function() o.limit = 5 end},
    state = function() return o end}
end)

probe("error and assert out of forward", function()
  local o = {ok = true}
  return {f = function(x)
    assert(o.ok, "not now")
    return x * 2
  end, mutate = {function() o.ok = false end, function() o.ok = 1 end}}
end, {fails = true})

probe("the message of an error, and tostring and type of what was caught", function()
  local o = {v = 1}
  return {f = function(x)
    local _, e = pcall(function() return o.v .. {} end)
    return x * #type(e) + #type(o.v)
  end, mutate = {function() o.v = {} end, function() o.v = print end, function() o.v = nil end}}
end)

probe("coroutine.wrap", function()
  local o = {a = 2, b = 3}
  return {f = function(x)
    local step = coroutine.wrap(function(n)
      while true do n = coroutine.yield(o.a * n + o.b) end
    end)
    return x * step(1) + step(2)
  end, mutate = {function() o.a = 5 end, function() o.b = 7 end}}
end)

probe("coroutine.resume, status, and an error inside", function()
  local o = {limit = 2}
  return {f = function(x)
    local co = coroutine.create(function()
      for i = 1, 5 do
        if i > o.limit then error("over") end
        coroutine.yield(i)
      end
    end)
    local n = 0
    while coroutine.resume(co) and coroutine.status(co) ~= "dead" do n = n + 1 end
    return x * n
  end, mutate = {function() o.limit = 4 end, function() o.limit = 9 end, function() o.limit = 0 end}}
end)

probe("an iterator made of a coroutine", function()
  local list = {2, 3}
  local function values() return coroutine.wrap(function() for _, v in ipairs(list) do coroutine.yield(v) end end) end
  return {f = function(x)
    for v in values() do x = x * v end
    return x
  end, mutate = {function() list[3] = 4 end, function() list[1] = 5 end, function() list = {} end}}
end)

-- Callbacks of standard functions -----------------------------------------------------------------------------------

probe("string.gsub with a function and with a table", function()
  local words, n = {a = "xy", b = "z"}, 2
  return {f = function(x)
    local s = ("a b c"):gsub("%w", words)
    local r = ("aa"):gsub("a", function(c) return c:rep(n) end)
    return x * #s + #r
  end, mutate = {function() words.c = "long" end, function() words.a = nil end, function() n = 4 end}}
end)

probe("string.gsub with a table that has a class", function()
  local class = {a = "xy"}
  local words = setmetatable({}, {__index = class})
  return {f = function(x) return x * #(("a b"):gsub("%w", words)) end,
    mutate = {function() class.b = "long" end, function() words.a = "" end}}
end)

probe("table.sort with a comparison that reads state", function()
  local o = {down = false, list = {3, 1, 2}}
  return {f = function(x)
    local sorted = {unpack(o.list)}
    table.sort(sorted, function(a, b) if o.down then return a > b end return a < b end)
    return x * sorted[1] + sorted[3]
  end, mutate = {function() o.down = true end, function() o.list[2] = 9 end}}
end)

probe("table.sort in place, of objects with __lt", function()
  local meta = {}
  function meta.__lt(a, b) return a.v < b.v end
  local function object(v) return setmetatable({v = v}, meta) end
  local list = {object(3), object(1), object(2)}
  return {f = function(x)
    table.sort(list)
    return x * list[1].v + list[3].v
  end, mutate = {function() list[2].v = 9 end, function() list[1], list[3] = list[3], list[1] end,
    function() function meta.__lt(a, b) return a.v > b.v end end}, state = function() return list end}
end)

probe("string.format, tostring, tonumber and rep of state", function()
  local o = {n = 2.5, s = "12", base = 10}
  return {f = function(x) return x * #("%5.1f|%s"):format(o.n, o.s) + tonumber(o.s, o.base) * #tostring(o.n) end,
    mutate = {function() o.base = 3 end, function() o.n = 2 end, function() o.s = "2" end}}
end)

probe("string.gmatch, find, byte and upper of state", function()
  local o = {s = "a1b2", pattern = "%d"}
  return {f = function(x)
    local n = 0
    for d in o.s:gmatch(o.pattern) do n = n + (tonumber(d) or d:byte()) end
    return x * n + (o.s:upper():find("B") or 0)
  end, mutate = {function() o.s = "a1b3c" end, function() o.pattern = "%a" end}}
end)

probe("math and bit functions of state", function()
  local o = {a = 6, b = 3.7}
  return {f = function(x) return x * math.max(o.a, o.b) + math.floor(o.b) + o.a % o.b + bit.band(o.a, 3) + select(2,
    math.modf(o.b)) end,
    mutate = {function() o.a = -7 end, function() o.b = 2.5 end}}
end)

probe("loadstring'd code made before the trace", function()
  local o = {k = 2}
  local chunk = assert(loadstring "local o = ... return function(x) return x * o.k end")
  local act = chunk(o)
  return {f = function(x) return act(x) end, mutate = {function() o.k = 3 end, function() act = chunk{k = 7} end}}
end)

probe("setmetatable, rawset and new objects in forward", function()
  local class = {rate = 2}
  class.__index = class
  return {f = function(x)
    local o = setmetatable({n = 3}, class)
    rawset(o, "m", o.n + o.rate)
    return x * o.m
  end, mutate = {function() class.rate = 5 end, function() class.n = 8 end, function() class.__index = {rate = 7} end}}
end)

probe("setmetatable of a table that stays", function()
  local o, class = {}, {__index = {rate = 2}}
  return {f = function(x)
    setmetatable(o, class)
    return x * o.rate
  end, mutate = {function() setmetatable(o, nil) end, function() class.__index.rate = 3 end},
    state = function() return getmetatable(o) == class end}
end)

probe("a table with a class that forward stores", function()
  local o, class = {}, {k = 2}
  class.__index = class
  return {f = function(x)
    local before = o.state and o.state.v + o.state.k or 0
    o.state = setmetatable({v = (o.state and o.state.v or 0) % 3 + 1}, class)
    return x * before
  end, mutate = {function() class.k = 5 end, function() o.state = nil end}, state = function()
    return o, getmetatable(o.state) == class
  end}
end)

-- Control -----------------------------------------------------------------------------------------------------------

probe("numeric for with computed bounds and step", function()
  local o = {from = 1, to = 4, step = 1}
  return {f = function(x)
    local n = 0
    for i = o.from, o.to, o.step do n = n * 10 + i end
    return x * n
  end, mutate = {function() o.step = 2 end, function() o.from, o.to, o.step = 4, 1, -1 end, function() o.to = 9 end,
    function() o.from = 1.5 o.step = 1 end}}
end)

probe("while, repeat, break, goto continue", function()
  local o = {limit = 5, skip = 2, stop = 4}
  return {f = function(x)
    local n, i = 0, 0
    while i < o.limit do
      i = i + 1
      if i == o.skip then goto continue end
      n = n + i
      if n > o.stop then break end
      ::continue::
    end
    repeat
      local done = n % 3 == o.skip
      n = n + 1
    until done or n > 20
    return x * n
  end, mutate = {function() o.skip = 1 end, function() o.stop = 9 end, function() o.limit = 2 end}}
end)

probe("nested loops over lists of lists", function()
  local rows = {{1, 2}, {3}}
  return {f = function(x)
    local n = 0
    for i, row in ipairs(rows) do for j = #row, 1, -1 do n = n + i * row[j] end end
    return x * n
  end, mutate = {function() rows[2][2] = 5 end, function() rows[3] = {7} end, function() rows[1] = rows[2] end,
    function() rows[2][1] = 9 end}}
end)

probe("and, or, not over nil, false and absent", function()
  local o = {a = false}
  return {f = function(x)
    local v = o.a and 2 or o.b and 3 or not o.a and 5
    return x * (v or 7) + (o.a == nil and 1 or 0) + (o.b == false and 1 or 0)
  end, mutate = {function() o.a = nil end, function() o.b = false end, function() o.b = 1 end, function() o.a = 0 end}}
end)

probe("comparisons and concatenation of texts", function()
  local o = {s = "b", t = "10", n = 9}
  return {f = function(x) return x * (o.s < "c" and 2 or 3) + #(o.s .. o.n .. "|" .. o.t) + (o.t + 1) end,
    mutate = {function() o.s = "d" end, function() o.t = "9" end, function() o.n = 1.5 end}}
end)

probe("upvalues that are closed while forward runs", function()
  local o = {n = 2}
  return {f = function(x)
    local list = {}
    do
      local v = o.n
      list[1] = function() v = v + 1 return v end
      list[2] = function() return v end
    end
    list[1]()
    return x * list[2]() + list[1]()
  end, mutate = {function() o.n = 5 end, function() o.n = 2 end}}
end)

probe("upvalues of two levels, and one that shadows", function()
  local a = 2
  local function outer()
    local b = a
    return function()
      local c = a + b
      do local a = 10 c = c + a end  -- luacheck: ignore 431 421
      return c
    end
  end
  local inner = outer()
  return {f = function(x) return x * inner() end, mutate = {function() a = 3 end, function() inner = outer() end}}
end)

probe("a counter, a phase and a flag that forward writes", function()
  local o = {n = 0, ready = false}
  return {f = function(x)
    o.n = (o.n + 1) % 3
    if not o.ready then o.ready, o.first = true, o.n end
    return x * o.n + o.first
  end, mutate = {function() o.n = 2 end, function() o.ready = false end, function() o.first = 7 end},
    state = function() return o end}
end)

probe("a table that forward fills and empties", function()
  local queue = {}
  return {f = function(x)
    queue[#queue + 1] = #queue
    if #queue > 3 then for _ = 1, 3 do table.remove(queue, 1) end end
    return x * (#queue + queue[1])
  end, mutate = {function() queue[1] = 5 end, function() queue = {7, 8} end}, state = function() return queue end}
end)

probe("state written, then read, then reset: as it was", function()
  local o = {scratch = 1}
  return {f = function(x)
    local before = o.scratch
    o.scratch = 9
    local y = x * o.scratch
    o.scratch = before
    return y
  end, mutate = {function() o.scratch = 2 end, function() o.scratch = nil end}, state = function() return o end}
end)

probe("combinators: a body that reads state", function()
  local o = {rate = 2, steps = 2}
  return {f = function(x)
    local y = pg.loop(o.steps, function(_, s) return s * o.rate end, x)
    return pg.cond(x:sum():gt(0), function() return y + o.rate end, function() return y - o.steps end)
  end, mutate = {function() o.rate = 3 end, function() o.steps = 4 end, function() o = {rate = 1, steps = 1} end}}
end)
