-- Attempts to leave a sandbox or to harm its host: {what is tried, script, outcome}. The outcome is "held" if the script
-- itself asserts that it gains nothing, "budget" or "memory" if it must end by a limit, or else a part of its error.
-- tests/vm/test_host_sandbox.cpp runs them, one after the other, in one state, which must work after each.
local list = {}
local function add(what, script, outcome) list[#list + 1] = {what, script, outcome} end

-- What does not exist -----------------------------------------------------------------------------------------------------

for _, name in ipairs{"io", "debug", "jit", "ffi", "package", "getfenv", "setfenv", "newproxy", "dofile", "loadfile", "module", "gcinfo"} do
  add("the global " .. name, "assert(" .. name .. " == nil and _G." .. name .. " == nil and rawget(_G, '" .. name .. "') == nil)", "held")
end
for _, name in ipairs{"ffi", "jit", "jit.util", "jit.opt", "debug", "io", "os", "package", "string.buffer", "table.new", "table.clear",
                      "_G", "socket", "lfs", "../secret", "/etc/passwd", "perigee.core", "stdlib.init"} do
  add("require " .. name, "require '" .. name .. "'", "module '" .. name .. "' not found")
end
for _, name in ipairs{"execute", "exit", "getenv", "remove", "rename", "setlocale", "tmpname"} do
  add("os." .. name, "os." .. name .. "('x')", "attempt to call field '" .. name .. "'")
end
add("string.dump", "string.dump(function() end)", "attempt to call field 'dump'")
add("string.dump as a method", "('').dump(function() end)", "attempt to call field 'dump'")
add("the collector: stop", "collectgarbage('stop')", "only collectgarbage")
add("the collector: collect", "collectgarbage()", "only collectgarbage")
add("the collector: count is allowed", "assert(collectgarbage('count') > 0)", "held")
add("pg.testing reaches the inside", "local t = require('perigee').testing", "unknown field 'testing'")
add("the threads of the host", "require('perigee').set_num_threads(1)", "not available in a sandbox")
add("a library table through require's result", "local pg = require 'perigee' assert(rawget(pg, 'core') == nil and rawget(pg, 'testing') == nil)", "held")

-- Bytecode ----------------------------------------------------------------------------------------------------------------

add("bytecode by load", "assert(load('\\27LJ\\2\\2'))", "attempt to load")
add("bytecode by loadstring", "assert(loadstring('\\27LJ\\2\\2'))", "attempt to load")
add("bytecode in pieces", "local parts = {'\\27', 'LJ', '\\2'} assert(load(function() return table.remove(parts, 1) end))", "attempt to load")
add("bytecode with the mode b", "assert(load('\\27LJ\\2', 'x', 'b'))", "attempt to load")
add("bytecode of Lua 5.1", "assert(load('\\27Lua\\81\\0\\1\\4\\4\\4\\8\\0'))", "attempt to load")
add("bytecode after a first line for the shell", "assert(load('#!x\\n\\27LJ\\2\\2'))", "")
add("bytecode after a byte order mark", "assert(load('\\239\\187\\191\\27LJ\\2\\2'))", "malformed bytecode")
add("load gives the globals of scripts", "assert(load('return _G')() == _G and load('return io')() == nil)", "held")
add("load with an environment", "assert(load('return io or debug or jit', 'x', 't', {})() == nil)", "held")
add("a reader that returns no text", "load(function() return {} end)", "reader function must return a string")
add("a reader that never ends", "load(function() return 'x ' end)", "budget")
add("a reader that loops", "load(function() while true do end end)", "budget")
add("a chunk name that looks like the library", "assert(load('while true do end', '@stdlib/hybrid/interpret.lua'))()", "budget")
add("an error at a place of the library", "assert(load('error(\"x\")', '@stdlib/init.lua'))()", "x")

-- Metatables ----------------------------------------------------------------------------------------------------------------

add("the metatable of strings", "assert(getmetatable('') == false) assert(not pcall(setmetatable, '', {}))", "held")
add("methods of strings are not those of the global", "string.upper = function() return 'changed' end assert(('a'):upper() == 'A')", "held")
add("the methods of strings", "local s = ('').find assert(type(s) == 'function') assert(not pcall(function() ('').x = 1 end))", "held")
add("the metatable of numbers, booleans, functions and nil", "for _, v in ipairs{1, true, print} do assert(getmetatable(v) == nil) assert(not pcall(setmetatable, v, {})) end", "held")
add("the metatable of tensors", "local x = require('perigee').ones(2) assert(type(getmetatable(x)) ~= 'table') assert(not pcall(setmetatable, x, {}))", "held")
add("the metatable of a generator", "local x = require('perigee').Generator(1) assert(type(getmetatable(x)) ~= 'table')", "held")
add("the metatable of a data loader", "local pg = require 'perigee' local l = pg.data.DataLoader(pg.data.ArrayDataset(pg.ones(4, 2)), {batch_size = 2}) assert(getmetatable(l) == false)", "held")
add("the metatable of pg", "local pg = require 'perigee' assert(getmetatable(pg) == false) assert(not pcall(setmetatable, pg, {}))", "held")
add("the metatables of its modules", "local pg = require 'perigee' for _, n in ipairs{'nn', 'loss', 'optim', 'data', 'init', 'metric', 'utils'} do assert(type(getmetatable(pg[n])) ~= 'table', n) end", "held")
add("hidden ops", "local pg = require 'perigee' return pg._print_value(pg.ones(2))", "unknown field")
add("rawset on tensors", "rawset(require('perigee').ones(2), 'x', 1)", "table expected")
add("getmetatable in traced code", "local pg = require 'perigee' local found pg.jit(function(x) found = getmetatable('') return x * 2 end)(pg.ones(2)) assert(found == false)", "held")
add("getmetatable of a tensor in traced code", "local pg = require 'perigee' local found pg.jit(function(x) found = type(getmetatable(x)) return x * 2 end)(pg.ones(2)) assert(found ~= 'table')", "held")
add("__gc of a table is no finalizer", "ran = false for i = 1, 1000 do setmetatable({}, {__gc = function() ran = true while true do end end}) end for i = 1, 1e5 do local t = {} end assert(not ran)", "held")
add("a cycle of __index", "local a, b = {}, {} setmetatable(a, {__index = b}) setmetatable(b, {__index = a}) return a.x", "loop")
add("an endless __index", "return setmetatable({}, {__index = function() while true do end end}).x", "budget")
add("an endless __newindex", "setmetatable({}, {__newindex = function() while true do end end}).x = 1", "budget")
add("an endless __tostring", "print(setmetatable({}, {__tostring = function() while true do end end}))", "budget")
add("an endless __tostring of an error", "error(setmetatable({}, {__tostring = function() while true do end end}))", "budget")
add("an endless __call", "setmetatable({}, {__call = function() while true do end end})()", "budget")
add("an endless __eq", "local m = {__eq = function() while true do end end} return setmetatable({}, m) == setmetatable({}, m)", "budget")
add("an endless __lt in sort", "local m = {__lt = function() while true do end end} local t = {} for i = 1, 9 do t[i] = setmetatable({}, m) end table.sort(t)", "budget")
add("an endless __concat", "return setmetatable({}, {__concat = function() while true do end end}) .. 'x'", "budget")
add("a __call chain", "local t = {} for i = 1, 300 do t = setmetatable({}, {__call = t}) end t()", "attempt to call")

-- Globals and the environment -------------------------------------------------------------------------------------------------

add("the call of a hybridized block with a wrong number of arguments", "local pg = require 'perigee' local net = pg.nn.Dense(2) net:initialize() net:hybridize() for _, n in ipairs{5, -1, 1e9, 0/0, -2^31} do pcall(net._exec, n) end net(pg.ones(1, 2)) for _, n in ipairs{5, -1, 1e9, 0/0} do pcall(net._exec, n) pcall(net._exec, n, 1, 2) end local f = pg.jit(function(x) return x end) for _, n in ipairs{5, -1, 1e9} do pcall(f.exec, n) end", "held")
add("globals of coroutines", "coroutine.wrap(function() assert(io == nil and debug == nil and _G.io == nil) end)()", "held")
add("globals in callbacks", "('x'):gsub('x', function() assert(io == nil and _G.debug == nil) end) table.sort({2, 1}, function(a, b) assert(io == nil) return a < b end)", "held")
add("replaced globals do not reach the library", "local pg, keep = require 'perigee', {type, pairs} type, pairs = nil, nil local x = pg.ones(3):sum():item() type, pairs = keep[1], keep[2] assert(x == 3)", "held")
add("a replaced setmetatable gets nothing of the library", "local pg, old, seen = require 'perigee', setmetatable, 0 setmetatable = function(...) seen = seen + 1 return old(...) end pg.nn.Dense(3) setmetatable = old assert(seen == 0)", "held")
add("a replaced require", "local pg, old = require 'perigee', require require = function() return {} end pg.nn.Dense(2) require = old", "held")
add("the environment of the library through print", "local pg, old, level = require 'perigee', print print = function(...) level = ... end pg.help('sigmoid') print = old assert(level == nil)", "held")
add("the functions on the stack through error levels", "for level = 1, 50 do local ok, text = pcall(error, 'x', level) assert(type(text) == 'string') end", "held")
add("the traceback of an error object", "local ok, e = pcall(error, {}) assert(next(e) == nil)", "held")
add("the message handler sees only the error", "xpcall(function() require('perigee').ones(-1) end, function(...) assert(select('#', ...) == 1 and type(...) == 'string') end)", "held")
add("a debug library of the script's own", "local got = 0 debug = {getinfo = function() got = got + 1 return {} end, getlocal = function() got = got + 1 end} io = {write = function() got = got + 1 end} local pg = require 'perigee' pg.help(print) pg.help(pg.nn.Dense) local net = pg.nn.Sequential{pg.nn.Dense(2)} pcall(net, 3) debug, io = nil, nil assert(got == 0)", "held")
add("the debug library of the library", "local pg = require 'perigee' pg.nn.Dense(2, {in_units = 3}):initialize() local net = pg.nn.Dense(2, {in_units = 3}) net:initialize() local ok, e = pcall(net, pg.ones(1, 3), 2) assert(e:find('got 2 inputs')) assert(debug == nil and rawget(_G, 'debug') == nil and load('return debug')() == nil and not pcall(require, 'debug'))", "held")
add("globals with a metatable", "local got = {} setmetatable(_G, {__index = function(_, k) got[#got + 1] = k end}) local pg = require 'perigee' local net = pg.nn.Dense(2) net:initialize() net:hybridize() net(pg.ones(1, 2)) pg.linalg.norm(pg.ones(2)) setmetatable(_G, nil) assert(#got == 0, got[1])", "held")
add("pairs of the loaded modules", "assert(package == nil) local pg = require 'perigee' assert(require 'perigee' == pg)", "held")

add("everything that tables, keys and metatables lead to", [[
  local pg = require "perigee"
  local nn, inside = pg.nn, {introspect = 1, tensor_methods = 1, untraced = 1, embedded = 1, setfenv = 1, dump = 1, newproxy = 1, run_frozen = 1, getinfo = 1, getlocal = 1}
  local net, x = nn.HybridSequential{nn.Dense(3), nn.BatchNorm()}, pg.ones(2, 4)
  net:initialize() net:hybridize() net(x)
  local trainer = pg.optim.Trainer(net:collect_params(), "adam")
  local f = pg.jit(function(x) local l = pg.record(function() return net(x):sum() end) l:backward() trainer:step(1) return l end)
  f(x)
  local queue, seen = {_G, pg, pg.nn, pg.loss, pg.optim, pg.data, pg.metric, net, trainer, f, net:graph(), net:freeze(), net:cache_info()}, {}
  local i = 1
  local function push(v) if type(v) == "table" and not seen[v] then seen[v] = true queue[#queue + 1] = v end end
  while queue[i] do
    for k, v in next, queue[i] do
      assert(not inside[k], k)
      push(k) push(v) push(getmetatable(v))
    end
    push(getmetatable(queue[i]))
    i = i + 1
  end
  assert(i > 100)]], "held")

-- Strings ---------------------------------------------------------------------------------------------------------------------

add("rep of a gigabyte", "('x'):rep(1e9)", "longer than")
add("rep of 2^52", "('x'):rep(2^52)", "")
add("rep of nothing, often", "assert(#(''):rep(1e15) == 0)", "held")
add("rep with a separator", "('x'):rep(1e5, ('y'):rep(1e5))", "longer than")
add("rep up to the memory limit", "('x'):rep(1e8)", "memory")
add("doubling by ..", "local s = 'x' while true do s = s .. s end", "memory")
add("doubling by format", "local s = 'x' while true do s = ('%s%s'):format(s, s) end", "memory")
add("doubling by gsub", "local s = 'x' while true do s = s:gsub('.', '%0%0') end", "")
add("gsub with a large replacement", "(('x'):rep(1e5)):gsub('x', ('y'):rep(1e5))", "")
add("gsub of the empty pattern", "(('x'):rep(1e6)):gsub('', ('y'):rep(1000))", "")
add("gsub with an endless function", "('x'):gsub('x', function() while true do end end)", "budget")
add("gsub with an endless table", "('x'):gsub('x', setmetatable({}, {__index = function() while true do end end}))", "budget")
add("a format of much", "local s, t = ('x'):rep(1e6), {} for i = 1, 300 do t[i] = s end (('%s'):rep(300)):format(unpack(t))", "longer than")
add("a wide format", "('%99999999d'):format(1)", "invalid")
add("a precise format", "('%.99999999f'):format(1)", "invalid")
add("a star in a format", "('%*d'):format(100000000, 1)", "invalid")
add("%n in a format", "('%n'):format(1)", "invalid")
add("a concat of much", "local t = {} for i = 1, 1000 do t[i] = 'x' end table.concat(t, ('y'):rep(1e6))", "longer than")
add("a concat far outside of the table", "table.concat({}, 'x', 1, 2^31 - 1)", "invalid value")
add("a concat from far below", "table.concat({}, 'x', -2^31, 2^31 - 1)", "invalid value")
add("backtracking: .- .- .-", "(('x'):rep(5000)):find('.-.-.-.-.-.-y')", "")
add("backtracking: .*.*.*", "(('x'):rep(5000)):find('.*.*.*.*y')", "")
add("backtracking: (a*)*", "(('a'):rep(5000)):match(('a*'):rep(20) .. 'b')", "")
add("backtracking: a?a?a?aaa", "local n = 150 (('a'):rep(n)):match(('a?'):rep(n) .. ('a'):rep(n))", "")
add("a deep pattern", "(('a'):rep(1e5)):match(('a?'):rep(1e5))", "too complex")
add("backtracking in a loop of pcall", "while true do pcall(string.find, ('x'):rep(5000), '.-.-.-.-y') end", "budget")
add("backtracking in gmatch", "for w in (('x'):rep(5000)):gmatch('.-.-.-.-y') do end", "")
add("backtracking in gsub", "(('x'):rep(5000)):gsub('.-.-.-.-y', '')", "")
add("balanced pairs, quadratically", "(('('):rep(2e5)):find('%b()%b()')", "")
add("frontiers", "(('x'):rep(1e6)):gsub('%f[%w]%f[%W]', '')", "held")
add("a large set", "(('x'):rep(1e4)):find('[' .. ('a'):rep(4e5) .. ']y')", "")
add("a large set in a loop of pcall", "local p = '[' .. ('a'):rep(5e4) .. ']y' while true do pcall(string.find, 'x', p) end", "budget")
add("a large set after %f", "(('x'):rep(1e4)):find('%f[' .. ('a'):rep(4e5) .. ']y')", "")
add("a large set with *", "(('x'):rep(1e4)):find('^[x' .. ('a'):rep(4e5) .. ']*y')", "")
add("a large set without ]", "local p = '[' .. ('a'):rep(5e4) while true do pcall(string.find, 'x', p) end", "budget")
add("a large plain pattern", "local p = ('a'):rep(1e6) while true do ('x'):find(p) end", "budget")
add("the same capture again and again", "(('a'):rep(2e6)):find('^(a*)%1b')", "")
add("sets are as in Lua", "assert(('a]b'):find('[]]') == 2 and ('a]b'):find('[^]a]') == 3 and ('a-z'):match('[%]%-]+') == '-' and ('x^'):find('[x^]', 2) == 2 and ('THE (quick) fox'):find('%f[%a]%a+%f[%A]') == 1)", "held")
add("a plain search, quadratically", "(('a'):rep(1e6)):find(('a'):rep(5e5) .. 'b', 1, true)", "held")
add("a pattern that ends with %", "('x'):find('%')", "malformed pattern")
add("a pattern without ]", "('x'):find('[a')", "malformed pattern")
add("a pattern without ] after %", "('x'):find('[%')", "malformed pattern")
add("a pattern %f without set", "('x'):find('%f')", "missing")
add("a pattern %b without arguments", "('x'):find('%b')", "malformed pattern")
add("a pattern with an absent capture", "('x'):find('%1')", "invalid capture")
add("a pattern that uses an open capture", "('xx'):find('(x%1)')", "invalid capture")
add("a pattern with 33 captures", "(('x'):rep(40)):find(('(x)'):rep(33))", "too many captures")
add("a pattern with an open parenthesis", "('x'):find('(x')", "unfinished capture")
add("a pattern with a closing parenthesis", "('x'):match('x)')", "invalid pattern capture")
add("a replacement with an absent capture", "('x'):gsub('x', '%2')", "invalid capture")
for _, call in ipairs{"s:lower()", "s:upper()", "s:reverse()", "s:sub(2)", "('%s'):format(s)", "s:gsub('x*', s)", "load(s)", "print(s)"} do
  add("the size of texts counts: " .. call, "local s = ('x'):rep(2e6) while true do " .. call .. " end", "budget")
end
add("functions of string as in Lua", [[
  local function text(f, ...) return select(2, pcall(f, ...)) end
  local bytes = string.char(0, 64, 65, 90, 91, 96, 97, 122, 123, 192, 255)
  assert(bytes:lower() == string.char(0, 64, 97, 122, 91, 96, 97, 122, 123, 192, 255))
  assert(bytes:upper() == string.char(0, 64, 65, 90, 91, 96, 65, 90, 123, 192, 255))
  assert(('abc'):reverse() == 'cba' and (''):reverse() == '' and (''):lower() == '' and ('1'):upper() == '1')
  local s = 'hello'
  assert(s:sub(2) == 'ello' and s:sub(0) == s and s:sub(-2) == 'lo' and s:sub(2, -2) == 'ell' and s:sub(4, 2) == '' and s:sub(-9, 2) == 'he')
  assert(s:sub(9) == '' and s:sub(1, -9) == '' and s:sub(3, 99) == 'llo' and s:sub('2', 3.9) == 'el' and s:sub(6) == '' and s:sub(5, 5) == 'o')
  assert(('%5.2f|%-4d|%+d|%x|%s|%q|%c|%%|%g'):format(1 / 3, 5, 7, 255, nil, 'a\n', 65, 0.5) == ' 0.33|5   |+7|ff|nil|"a\\\n"|A|%|0.5')
  assert(('%s'):format(setmetatable({}, {__tostring = function() return 'made' end})) == 'made' and ('%d'):format('12') == '12')
  assert(text(string.format, '%d', {}):find('number expected, got table', 1, true) and text(string.format, '%s %s', 1):find('#3'))
  local ok, e = pcall(function() local s = ('%d'):format('x') return s end)
  assert(e:find("^host.lua:%d+: bad argument #%d to 'format' %(number expected, got string%)"), e)
  assert(text(string.sub, 'x'):find('number expected, got no value', 1, true) and text(string.lower):find('string expected', 1, true))
  assert(text(string.format, '%y', 1):find("invalid option '%y' to 'format'", 1, true))]], "held")
add("zero bytes in patterns", "assert(('a\\0b'):find('\\0') == 2 and ('a\\0b'):match('%z') == '\\0')", "held")
add("huge indices", "local s = ('x'):sub(-2^53, 2^53), ('x'):byte(2^31) assert(('x'):find('x', 2^52) == nil and ('x'):find('x', -2^52) == 1)", "held")
add("many results of byte", "(('x'):rep(1e6)):byte(1, -1)", "string slice too long")
add("unpack of much", "unpack({}, 1, 1e8)", "too many results")
add("select of much", "select(-2^31, 1)", "out of range")
add("table.move of much", "table.move({}, 1, 1e9, 2)", "budget")
add("colliding strings", "local t = {} for i = 1, 1e9 do t[('x'):rep(64) .. i .. ('x'):rep(64)] = i end", "")
add("os.date with a bad conversion", "os.date('%Ez')", "not allowed")
add("os.date with a lone %", "os.date('%')", "not allowed")
add("os.date with a long format", "os.date(('%c'):rep(10000))", "longer than 200")
add("os.date of a far time", "os.date('*t', 2^53)", "held")

-- Control -----------------------------------------------------------------------------------------------------------------------

add("an endless loop", "while true do end", "budget")
add("an endless loop in pcall in a loop", "while true do pcall(function() while true do end end) end", "budget")
add("an endless message handler", "xpcall(error, function() while true do end end)", "budget")
add("an endless message handler of the limit", "xpcall(function() while true do end end, function() while true do end end)", "budget")
add("errors in error handling", "local function h() error('again') end while true do xpcall(error, h) end", "budget")
add("nested message handlers", "local function f() xpcall(f, f) end while true do f() end", "budget")
add("coroutines that fail", "while true do coroutine.resume(coroutine.create(error)) end", "budget")
add("endless coroutines", "while true do coroutine.wrap(function() pcall(function() while true do end end) end)() end", "budget")
add("a coroutine that resumes itself", "local co co = coroutine.create(function() return coroutine.resume(co) end) assert(coroutine.resume(co))", "held")
add("coroutines in coroutines", "local function f() return coroutine.wrap(f)() end f()", "")
for _, call in ipairs{"coroutine.wrap(f)()", "coroutine.resume(coroutine.create(f))", "select(2, coroutine.resume(coroutine.create(f)))", "coroutine.wrap(pcall)(f)"} do
  add("coroutines without end: " .. call, "local function f() return " .. call .. " end f()", "")
end
add("coroutines nest some hundred times", "local n = 0 local function f() n = n + 1 if n < 300 then coroutine.wrap(f)() end end f() assert(n == 300)", "held")
add("coroutine.wrap behaves as in Lua", [[
  local function text(f, ...) return select(2, pcall(f, ...)) end
  local g = coroutine.wrap(function(...) local n = select('#', ...) while true do n = select('#', coroutine.yield(n, ...)) end end)
  assert(select('#', g()) == 1 and g(1, nil) == 2 and g(nil) == 1 and g() == 0)
  local all = {coroutine.wrap(function(...) return ... end)(1, nil, 3)}
  assert(all[1] == 1 and all[2] == nil and all[3] == 3)
  local key = {}
  assert(text(coroutine.wrap(error), key) == key)
  assert(text(coroutine.wrap(error), 'x', 0) == 'x')
  local dead = coroutine.wrap(function() error('x', 0) end)
  assert(text(function() dead() end) == 'host.lua:10: x')
  assert(text(function() dead() end) == 'host.lua:11: cannot resume dead coroutine')
  assert(text(coroutine.wrap, 1):find('function expected, got number', 1, true))
  assert(text(coroutine.resume, 1):find('coroutine expected', 1, true))
  local inside
  local co = coroutine.create(function(a) inside = coroutine.running() local ok, b = pcall(function() return coroutine.yield(a + 1) end) return ok, b end)
  assert(coroutine.status(co) == 'suspended')
  local ok, two = coroutine.resume(co, 1)
  assert(ok and two == 2 and inside == co and coroutine.status(co) == 'suspended')
  local ok, a, b = coroutine.resume(co, 'b')
  assert(ok and a == true and b == 'b' and coroutine.status(co) == 'dead')
  assert(select(2, coroutine.resume(co)) == 'cannot resume dead coroutine')
  local outer outer = coroutine.wrap(function()
    local me = coroutine.running()
    return coroutine.wrap(function() return coroutine.status(me), coroutine.isyieldable() end)()
  end)
  local status, can = outer()
  assert(status == 'normal' and can == true and not coroutine.isyieldable())]], "held")
add("a yield outside", "coroutine.yield()", "attempt to yield")
add("a yield across sort", "coroutine.wrap(function() table.sort({3, 2, 1}, coroutine.yield) end)()", "attempt to yield")
add("endless iteration", "for _ in function() return 1 end do end", "budget")
add("endless sort", "local t = {} for i = 1, 50 do t[i] = i end table.sort(t, function() while true do end end)", "budget")
add("an invalid order", "local t = {} for i = 1, 1000 do t[i] = i % 7 end pcall(table.sort, t, function() return true end)", "held")
add("sort that changes its table", "local t = {} for i = 1, 100 do t[i] = -i end pcall(table.sort, t, function(a, b) t[#t + 1] = 1 t[1] = nil return (a or 0) < (b or 0) end)", "held")
add("sort of an order that is bad for quicksort", [=[
  local n, id, val, small = 30000, {}, {}, 1
  for i = 1, n do id[i] = i end
  local l = 1
  while n - l > 2 do
    local m = math.floor((l + n) / 2)
    val[id[l]], val[id[m]], small = small, small + 1, small + 2
    id[m], id[n - 1] = id[n - 1], id[m]
    id[n - 1], id[l + 1] = id[l + 1], id[n - 1]
    l = l + 2
  end
  for i = 1, n do val[i] = val[i] or n + i end
  local before = os.clock()
  table.sort(val)
  assert(os.clock() - before < 1)
  for i = 2, n do assert(val[i - 1] <= val[i]) end]=], "")
add("sort in a loop", "local t = {} for i = 1, 3000 do t[i] = i % 7 end while true do table.sort(t) end", "budget")
add("sort of long strings", "local s, t = ('x'):rep(1e6), {} for i = 1, 8 do t[i] = s .. i end for i = 9, 1e4 do t[i] = t[i % 8 + 1] end table.sort(t)", "budget")
add("sort by a function of C", "local t = {} for i = 1, 1e5 do t[i] = i end table.sort(t, rawequal)", "budget")
add("sort keeps its elements and puts them in order", [=[
  local function copy(t) local c = {} for i = 1, #t do c[i] = t[i] end return c end
  local function count(t) local c = {} for i = 1, #t do c[t[i]] = (c[t[i]] or 0) + 1 end return c end
  local function check(t, before)
    local old = count(t)
    table.sort(t, before)
    for i = 2, #t do assert(not (before or function(a, b) return a < b end)(t[i], t[i - 1]), i) end
    for k, n in pairs(count(t)) do assert(old[k] == n) end
  end
  for n = 0, 40 do
    local t, words = {}, {}
    for i = 1, n do t[i] = i * 7919 % 31 words[i] = ('w'):rep(i % 5) .. i % 3 end
    check(t) check(t) check(t, function(a, b) return a > b end) check(copy(words)) check(words, function(a, b) return #a < #b end)
  end
  local m = {__lt = function(a, b) return a.n < b.n end}
  local t = {} for i = 1, 20 do t[i] = setmetatable({n = i * 7 % 11}, m) end
  check(t)
  local t = {3, 1, 2, 5, 4, 9, 8}
  local old, calls = count(t), 0
  assert(select(2, pcall(table.sort, t, function(a, b) calls = calls + 1 if calls == 9 then error('no', 0) end return a < b end)) == 'no')
  for k, n in pairs(count(t)) do assert(old[k] == n) end
  assert(select(2, pcall(table.sort, {1, 'a'})):find('attempt to compare'))
  assert(select(2, pcall(table.sort, {}, 1)):find('function expected, got number'))
  assert(table.sort({}) == nil)]=], "held")
add("insert as in Lua", [[
  local t = {1, 2} table.insert(t, 3) table.insert(t, 1, 0) table.insert(t, 3, 'x')
  assert(table.concat(t, ' ') == '0 1 x 2 3')
  local t = {} table.insert(t, 5, 1) assert(t[5] == 1)
  local t = {1, 2} table.insert(t, -1, 9) assert(t[-1] == 9 and t[2] == 1 and t[3] == 2 and t[1] == nil)
  assert(select(2, pcall(table.insert, {}, 1, 2, 3)):find("wrong number of arguments to 'insert'"))]], "held")
add("insert far below", "table.insert({}, -2^31, 1)", "budget")
add("insert at the front of a long list", "local t = {} for i = 1, 2e5 do t[i] = 0 end while true do table.insert(t, 1, 0) end", "budget")
add("next with a key that is gone", "local t = {} for i = 1, 100 do t[i] = i end for k in pairs(t) do t[k] = nil t[k .. ''] = 1 end", "")
add("deep recursion", "local function f() return 1 + f() end f()", "stack overflow")
add("deep recursion in pcall", "local function f() return pcall(f) and 1 end f()", "")
add("deep recursion of tostring", "local m = {} m.__tostring = function(t) return tostring(t) .. '' end tostring(setmetatable({}, m))", "overflow")
add("gsub in gsub", "local function f() return (('a'):gsub('a', f)) end f()", "stack overflow")
add("gsub in gsub with tables", "local t = setmetatable({}, {}) getmetatable(t).__index = function() return (('a'):gsub('a', t)) end return (('a'):gsub('a', t))", "stack overflow")
add("gsub in gsub, caught at each level", "local n = 0 local function f() n = n + 1 pcall(string.gsub, 'a', 'a', f) return 'b' end f() assert(n > 50)", "held")
add("load in the reader of load", "local function f() load(f) end f()", "stack overflow")
add("print in the __tostring of print", "local t t = setmetatable({}, {__tostring = function() print(t) return '' end}) print(t)", "stack overflow")
add("gsub, load and print by turns", "local f, t local n = 0 function f() n = n + 1 if n % 3 == 0 then return (('a'):gsub('a', f)) elseif n % 3 == 1 then load(f) else print(t) end end t = setmetatable({}, {__tostring = function() f() return '' end}) f()", "stack overflow")
add("sort in sort", "local function f() table.sort({1, 2, 3}, f) return true end f()", "stack overflow")
add("gsub in gsub in a job", "local pg = require 'perigee' local function f() return (('a'):gsub('a', f)) end local j = pg.job(function() local ok, e = pcall(f) return e end) while not j:step(1) do end assert(j:result():find('stack overflow'))", "held")
add("deep recursion of sources", "load(('('):rep(1e5) .. ('x') .. (')'):rep(1e5))() ", "")
add("a source with many locals", "assert(load(('local x = 1 '):rep(300)))", "local variables")
add("a source with a large constant table", "assert(load('return {' .. ('1,'):rep(2e6) .. '}'))", "")
add("a flood of prints", "while true do print('x') end", "budget")
add("a flood of warnings by pg.print", "local pg = require 'perigee' while true do pg.print('x', pg.ones(1)) end", "budget")

-- Memory --------------------------------------------------------------------------------------------------------------------------

add("a table without end", "local t = {} for i = 1, 1e12 do t[i] = i end", "")
add("tables without end", "local t = {} while true do t = {t} end", "memory")
add("closures without end", "local f = print while true do local g = f f = function() return g end end", "memory")
add("coroutines without end", "local t = {} while true do t[#t + 1] = coroutine.create(print) end", "memory")
add("catching lack of memory again and again", "while true do pcall(function() local t = {} while true do t[#t + 1] = {} end end) end", "budget")
add("a tensor of 2^60", "require('perigee').ones(2^60)", "")
add("a tensor of 2^30 x 2^30", "require('perigee').zeros(2^30, 2^30)", "")
add("a tensor of 2^63", "require('perigee').zeros(2^62, 4)", "")
add("a tensor of a gigabyte", "require('perigee').zeros(2^28)", "memory")
add("a view without end", "local x = require('perigee').ones(1):expand(2^40) return (x + 1)", "")
add("tensors without end", "local pg, t = require 'perigee', {} while true do t[#t + 1] = pg.ones(1000) end", "memory")
add("a history without end", "local pg = require 'perigee' local x = pg.ones(1e4) x:attach_grad() pg.record(function() while true do x = x:sin() end end)", "memory")
add("a large product", "local pg = require 'perigee' pg.ones(1e5, 1):matmul(pg.ones(1, 1e5))", "memory")
add("a large arange", "require('perigee').arange(1e12)", "")
add("a large one_hot", "local pg = require 'perigee' pg.tensor({1, 2}, {dtype = 'int64'}):one_hot(1e12)", "")
add("nested tables as tensor", "local t = {} t[1] = t require('perigee').tensor(t)", "")
add("a negative size", "require('perigee').ones(-1)", "")
add("a size that is no number", "require('perigee').ones(0/0)", "")
add("an endless native loop", "local pg = require 'perigee' pg.loop(1e15, function(i, s) return s + 1 end, pg.ones(1))", "budget")
add("an endless while_loop", "local pg = require 'perigee' pg.while_loop(function(s) return s:ge(0) end, function(s) return nil, {s + 1} end, {pg.ones(1)})", "budget")
add("a trace without end", "local pg = require 'perigee' pg.jit(function(x) while true do x = x * 1.5 end end)(pg.ones(2))", "")
add("a hook of a block that never ends", "local pg = require 'perigee' local net = pg.nn.Dense(2) net:initialize() net.forward = function() while true do end end net(pg.ones(1, 2))", "budget")
add("a backward function that never ends", "local pg = require 'perigee' local x = pg.ones(2) x:attach_grad() local y = pg.record(function() return x:register_hook(function() while true do end end) or x * 2 end)", "")

-- Files -------------------------------------------------------------------------------------------------------------------------------

for _, call in ipairs{"pg.load('/etc/passwd')", "pg.load('/etc/passwd.npy')", "pg.load('../x.safetensors')", "pg.load('x\\0.npy')",
                      "pg.save('/tmp/perigee_escape.npy', pg.ones(2))", "pg.save('x.npy', pg.ones(2))",
                      "pg.nn.SymbolBlock.imports('/etc/passwd', {'data'})", "pg.data.vision.MNIST{root = '/etc'}",
                      "pg.nn.Dense(2):load_parameters('/etc/passwd')"} do
  add("a file: " .. call, "local pg = require 'perigee' " .. call, "")
end
add("a file of a model", "local pg = require 'perigee' local net = pg.nn.Dense(2) net:initialize() net:hybridize() net(pg.ones(1, 2)) net:export('/tmp/perigee_escape')", "not allowed")

return list
