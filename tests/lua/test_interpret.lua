-- The interpreter of traces against the engine: each piece of Lua has the same results, or the same error, in both.
local t = require "tests.support"
local pg = require "perigee"
local interpret = pg.testing.interpret

local function pack(...) return {n = select("#", ...), ...} end

-- The messages here name no variables, because the interpreter does not look for them. Each piece returns some values;
-- `...` is 1, 2.5, "x", nil, true.
local pieces = {
  arithmetic = "local a, b = ... return a + b, a - b, a * b, a / b, a % b, a ^ b, -a, a + 1, 1 - a, 2 * a, 2 / b, 7 % b, '3' + a, -'2'",
  comparisons = [[local a, b, c = ... return a < b, a <= b, a > b, a >= b, a == b, a ~= b, c < 'y', c == 'x', c ~= 'x', a == 1, a ~= 1,
    0/0 == 0/0, 0/0 < 1, not (0/0 >= 1), 0 == -0]],
  logic = "local a, _, c, d, e = ... return a and c, a or c, d and c, d or c, not d, not e, d == nil, e ~= nil, (d or e) and 1, d and 1 or 2",
  ["metamethods of arithmetic"] = [[local m = {} for _, k in ipairs{'add', 'sub', 'mul', 'div', 'mod', 'pow', 'concat'} do
      m['__' .. k] = function(x, y) return k .. (type(x) == 'table' and 1 or 0) .. (type(y) == 'table' and 1 or 0) end end
    m.__unm = function(x, y) return x == y end
    local o = setmetatable({}, m) return o + 1, 1 - o, o * o, o / 2, 5 % o, o ^ 'x', o .. 'x', 'x' .. o, 1 .. o, -o]],
  ["metamethods of comparisons"] = [[local m = {__lt = function(x, y) return x.v < y.v end, __le = function(x, y) return x.v <= y.v end,
      __eq = function(x, y) return x.v == y.v end, __len = function() return 7 end, __call = function(self, ...) return self.v, ... end}
    local a, b = setmetatable({v = 1}, m), setmetatable({v = 2}, m)
    return a < b, a <= b, a > b, a >= b, a == b, a ~= b, #a, a(3, 4), rawequal(a, b)]],
  index = [[local log, m = {}, {} m.__index = function(_, k) log[#log + 1] = k return k .. '!' end
    m.__newindex = function(o, k, v) rawset(o, k, v * 2) end
    local o = setmetatable({a = 1}, m) o.a, o.b, o[1] = 5, 6, 7
    local p = setmetatable({}, {__index = o}) return o.a, o.b, o[1], o.zz, p.a, p.q, ('x').rep, #log, ('ab'):upper(), o['k' .. 1] ]],
  constructors = [[local f = function() return 1, 2, 3 end
    local a, b, c = {f()}, {f(), f()}, {x = 1, [2] = 3, f(), y = {z = 4}, nil, f()}
    return #a, #b, c.x, c[1], c[2], c[3], c.y.z, #{...}, #{n = 1}, select('#', f(), f()), (f())]],
  closures = [[local fs, n = {}, 0 for i = 1, 3 do local j = i * 10 fs[i] = function(d) i = i + d j = j + 1 n = n + 1 return i + j end end
    local a, b = fs[1](1), fs[1](1) while n < 5 do local k = n n = n + 1 fs[4] = function() return k end end
    return a, b, fs[2](5), fs[4](), n]],
  loops = [[local s = {} for i = 3, 1, -1 do s[#s + 1] = i end for i = 1, 0 do s[#s + 1] = 'no' end for i = 0.5, 2 do s[#s + 1] = i end
    for i, v in ipairs{7, 8, nil, 9} do s[#s + 1] = i * v end for k, v in pairs{a = 1} do s[#s + 1] = k .. v end
    for k, v in next, {b = 2} do s[#s + 1] = k .. v end for w in ('a b'):gmatch('%a') do s[#s + 1] = w end
    local i = 0 repeat local done = i > 2 i = i + 1 until done while true do i = i + 1 if i > 9 then break end end
    for i = 1, 3 do if i == 2 then goto continue end s[#s + 1] = i ::continue:: end
    for i = '1', 2 do s[#s + 1] = i end return table.concat(s, ','), i]],
  varargs = [[local function f(...) local a, b = ... return select('#', ...), a, b, ... end
    local function g(x, ...) return f(...) end return f(), f(nil), g(1, 2, nil), (g(1, 2)), f(...)]],
  ["tail calls and recursion"] = [[local function count(n, s) if n == 0 then return s end return count(n - 1, s + n) end
    local function fib(n) return n < 2 and n or fib(n - 1) + fib(n - 2) end return count(30000, 0), fib(12)]],
  ["multiple assignment"] = "local a, b, c = 1, 2 a, b, c = b, a, c local t = {} t[1], t[2], t.x = (function() return 4, 5 end)() return a, b, c, t[1], t[2], t.x",
  errors = [[local r = {} local function try(f, ...) local ok, e = pcall(f, ...) r[#r + 1] = tostring(ok) .. ':' .. type(e) .. ':' .. tostring(e):gsub("%f[%w]%a+ '[^']*' ", ''):gsub('%((an? %a+ value)%)', '%1') end
    try(error, 'x') try(error, 2) try(error, {}, 2) try(function() error('here') end) try(function() error('up', 2) end)
    try(function() error() end) try(function() error('no place', 0) end) try(function() local q q() end) try(function() return {} + 1 end)
    try(function() return #5 end) try(function() return 1 < 'x' end) try(function() local u return u.v.w end) try(assert, false, 'm')
    try(function() for i = 1, {} do end end) try(string.rep) try(function() return nil .. 'x' end)
    for i = 1, #r do r[i] = r[i]:gsub('table: 0x%x+', 'table') end return table.concat(r, '\n')]],
  xpcall = "return xpcall(function(...) error({...}) end, function(e) return e[1], 9 end, 4), select('#', xpcall(function() return 1, nil end, print))",
  coroutines = [[local co = coroutine.create(function(a) local b = coroutine.yield(a + 1) local ok, e = pcall(function() coroutine.yield(b * 2) error('in') end) return ok, e:gsub('^.*: ', '') end)
    local r = {} for i = 1, 4 do r[i] = {coroutine.resume(co, i)} end
    local gen = coroutine.wrap(function() for i = 1, 3 do coroutine.yield(i) end end)
    return r[1][2], r[2][2], r[3][2], r[3][3], r[4][1], gen(), gen(), coroutine.status(co)]],
  ["standard functions with callbacks"] = [[local l = {3, 1, 2} table.sort(l, function(a, b) return a > b end)
    local s = ('a-b'):gsub('%a', function(c) return c:upper() end) local u = ('$x'):gsub('%$(%w+)', {x = 'y'})
    local n = 0 table.foreach({1, 2}, function(_, v) n = n + v end) local m = setmetatable({}, {__tostring = function() return 'me' end})
    return l[1], l[2], l[3], s, u, n, tostring(m), (select(2, pcall(error, m))) == m]],
  ["tables of the standard library"] = [[local l = {1, 2, 3} table.insert(l, 4) table.insert(l, 1, 0) local a, b = table.remove(l), table.remove(l, 1)
    return a, b, #l, table.concat(l, '+'), unpack(l), rawget(l, 2), rawequal(l, l), next({}), type(next), select(-1, 1, 2), table.maxn(l)]],
  environments = [[local env = setmetatable({}, {__index = _G}) local f = setfenv(function() y1 = 5 return y1, x1 end, env) env.x1 = 3
    local a, b = f() return a, b, rawget(_G, 'y1'), getfenv(f) == env, getfenv(1) == getfenv()]],
  numbers = "return 1e15, 0x10, 1 / 0, -1 / 0, 2 ^ 53, 5 % -3, -5 % 3, 1e300 * 1e10, 100000 * 100000, 3 == 3.0, 10 / 2, .5",
  strings = "local a, b, c = ... return a .. b .. c, 1 .. '', 'a' .. 1.5 .. 'b', #'xyz', 'a\\0b' == 'a\\0b', ('x'):rep(3), ('%d'):format(3)",
}

local names = {}
for name in pairs(pieces) do names[#names + 1] = name end
table.sort(names)

for _, name in ipairs(names) do
  t.test("the interpreter as the engine: " .. name, function()
    local f = assert(loadstring(pieces[name], "=piece"))
    local want = pack(pcall(f, 1, 2.5, "x", nil, true))
    local got = pack(pcall(interpret, f, 1, 2.5, "x", nil, true))
    t.check(want[1], tostring(want[2]))
    t.equal(got, want)
  end)
end

t.test("the interpreter bounds the depth of calls", function()
  local function deep(n) return 1 + deep(n + 1) end
  t.error_contains(function() interpret(deep, 1) end, "stack overflow")
end)

t.test("a branch on a traced bool tensor warns once with its line", function()
  local x = pg.ones(2)
  local function f(a)
    if a:sum():gt(0) then return a end
    return -a
  end
  t.warns("test_interpret%.lua:%d+: a branch on a bool tensor takes the same way for true and false.*pg%.cond", pg.jit(f), x)
  t.equal(t.warnings(pg.jit(f), x), {})
  local function g(a, mask) return mask and a or a and -a end
  t.equal(t.warnings(pg.jit(g), x, pg.tensor({true, false})), {})
end)

t.test("errors of C functions name what the script called, with the place of the argument", function()
  local x = pg.ones(3)
  local cases = {
    {function(a) local r = math.sqrt(a) return r end, "bad argument #1 to 'sqrt' (number expected, got userdata)"},
    {function(a) local r = math.max(1, a) return r end, "bad argument #2 to 'max' (number expected, got userdata)"},
    {function(a) local r = ("x"):rep(a) return r end, "bad argument #1 to 'rep' (number expected, got userdata)"},
    {function(a) local r = string.rep("x", a) return r end, "bad argument #2 to 'rep' (number expected, got userdata)"},
  }
  for _, case in ipairs(cases) do
    t.error_contains(pg.jit(case[1]), case[2], x)
    t.error_contains(case[1], case[2], x)
  end
end)
