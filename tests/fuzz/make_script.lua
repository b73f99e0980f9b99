-- Random scripts for tests/fuzz/mutations.lua: local script = make_script.new(random), random(n) -> 1..n.
-- A script is plain data: {statements = texts, result = text, events = list of events, way =, own_env =}. An event is
-- {mutate = index into mutations, r = 1..4} or {call = a text of arguments}. make_script.source(script) -> Lua text.
local make_script = {}

-- State that forward reads as a number; a value that is not a number counts as 2.
local numbers = {
  "o.n", "o.absent", "o.cfg.a", "o.cfg[o.key]", "o.list[1]", "o.list[3]", "#o.list", "o[o.key]",
  "o.list[o.key or 1]", "o.cfg[true]", "o.list[0]",
  "up_n", "up_absent", "up_tab.a", "up_tab.inner.a", "G_n", "G_absent", "_G.G_n", "GG.G_n", "rawget(_G, 'G_n')",
  "_G[o.gname]", "GG[o.gname]",
  "G_tab.a", "G_M.myk", "math.myk", "string.myk", "table.myk", "('x').myk", "('x'):twice(o.n)", "(5).myk",
  "G_c(1.5)", "up_c(1.5)", "math.floor(2.5)", "o.c(2.5)", "G_M.floor(1.5)", "tonumber('0x7')", "G_f(2)", "up_f(2)",
  "o.f(2)",
  "Net.shared", "o.inherited", "o:method()", "o:inherited_method()", "o.obj.k", "o.obj.j",
  "getmetatable(o.obj).mark", "#tostring(o.obj)", "o.obj(3)",
  "1 / o.zero > 0 and 1 or 3", "1 / up_zero > 0 and 1 or 4", "o.v ~= o.v and 5 or 6", "env_read()",
  "getfenv(env_read).G_env", "getfenv(1).G_n",
  "s.a", "s.inner.b", "arr[1]", "#ffi.string(buffer)", "tonumber(o.big)", "u.k", "#u", "proxy.k",
  "o.w1.lr_mult", "o.w1.wd_mult", "#(o.w1.name or '')", "o.w1.grad and 2 or 1", "o.w1.grad_req == 'null' and 2 or 3",
  "#x.shape", "x:size(1)", "x.dtype == 'int64' and 2 or 3",
  "k", "#a", "a.n", "b.n", "a == b and 2 or 3", "a == o.cfg and 3 or 4", "select('#', ...)", "(...)",
  "select(-1, 1, ...)",
  "o.t1 == o.t2 and 5 or 6", "rawequal(o.w1, o.w2) and 2 or 1", "x == o.w1 and 2 or 3", "o.f == up_f and 2 or 3",
  "o.e1 == o.e2 and 3 or 4", "o.e1 < o.e2 and 2 or 4", "#(o.e1 .. o.e2)", "o.e1 + o.e2",
  "select('#', unpack(o.list))", "#table.concat(o.list, ',')", "table.maxn(o.list)", "table.getn(o.list)",
  "next(o.cfg) and 1 or 2", "next(o.empty) and 3 or 2", "#o.empty", "#o.meta_list", "select('#', unpack(o.empty))",
  "#o",
  "count(o.cfg)", "count(o.empty)", "order(o.ranks)", "u_each(o.cfg)", "sum_ipairs(o.list)", "sum_ipairs(o.empty)",
  "sum_ipairs(o.meta_list)", "sum_next(o.cfg)", "count(_G)",
  "o.lazy.v", "o.lazy[o.key]", "(function() return o.n end)()", "select(2, pcall(error, o.n))", "co(o, 'n')",
  "#(('a b'):gsub('%w', function(c) return c:rep(up_n) end))", "#(('a'):gsub('%w', o.words))",
  "#o.s", "o.s:byte(1)", "#o.s:upper()", "('%s'):format(o.s):len()", "(o.s < 'm') and 2 or 3", "package.loaded.fz.k",
  "select(2, debug.getupvalue(peek, 1))", "peek()", "bump()",
  "sorted(o.list)[1]", "o.names[1] and o.cfg[o.names[1]]", "by_name(o.names, o.cfg)", "bit.band(o.n or 1, 3)",
  "math.max(num(o.n), num(up_n))", "o.pair.first.v", "o.pair.second.v",
  "pg.is_training() and 2 or 1",
}

local ops = {
  "G_op(y)", "up_op(y)", "o.op(y)", "_G.G_op(y)", "GG.G_op(y)", "G_tab.op(y)", "o.acts[1](y)",
  "rawget(_G, 'G_op')(y)", "GG[o.opname](y)",
}
local tensors = {
  "o.w1", "o.w2", "up_t", "G_t", "up_tab.w", "o.ws[1]", "o.ws[2]", "a.w or 1", "o.lazy_t or 1", "x",
  "pg.tensor({num(o.n), 3}, {dtype = 'float64'})", "o.last or 1", "o.child.w",
}
-- What bodies of combinators may read. Nothing here raises or writes, because plain Lua runs other bodies than a trace.
local calm = {
  "o.n", "o.absent", "o.cfg.a", "up_n", "G_n", "GG.G_n", "math.myk", "#o.empty", "Net.shared", "o.obj.k", "peek()",
  "rawget(_G, 'G_n')", "env_read()", "count(o.empty)", "o.v ~= o.v and 5 or 6", "s.a", "o.t1 == o.t2 and 5 or 6",
}
local boxes = {
  "o.w1", "o.w2", "up_t", "G_t", "up_tab.w", "o.ws[1]", "o.child.w",
}
local writable = {
  "o.n", "o.absent", "up_n", "up_absent", "G_n", "G_absent", "Net.shared", "o.cfg.a", "o.cfg.fresh", "o.list[1]",
  "up_tab.a", "a.n", "b.n", "math.myk", "o.t1.v", "o.t2.v", "o.obj.k", "o.pair.first.v", "GG.G_n",
}

-- Lists have no holes, because # of a list with holes may be any border. A mutation of a variable that no function assigns
-- flushes compiled code, because LuaJIT inlines the value of such a variable.
local mutations = {
  "o.n = r", "o.n = nil", "o.n = 'text'", "o.n = -r", "o.n = 0.5 * r", "o.n = false", "o.absent = r",
  "o.absent = nil", "o.cfg.a = r", "o.cfg.b = r", "o.cfg.b = nil", "o.cfg.c = r", "o.cfg.d = r", "o.cfg = {a = r}",
  "o.cfg = {b = 2, a = r}", "o.cfg.a = nil; o.cfg.z = r", "o.cfg[true] = r", "o.cfg[0.5 * r] = r", "o.cfg[r] = r",
  "o.list[1] = r", "o.list[#o.list] = r", "o.list[#o.list + 1] = r", "o.list[#o.list] = nil",
  "o.list = {r}", "o.list = {}", "o.list[0] = r",
  "table.insert(o.list, 1, r)", "table.remove(o.list, 1)", "table.sort(o.list)", "o.key = ({'a', 'b', 'n', 'v'})[r]",
  "o.key = nil", "o.key = r", "o.gname = ({'G_n', 'G_absent', 'G_x', 'G_n'})[r]",
  "o.opname = 'G_op2'; G_op2 = ({pg.neg, pg.square, pg.relu, pg.abs})[r]",
  "up_n = r", "up_n = nil", "up_absent = r", "up_absent = nil", "up_tab.a = r",
  "up_tab = {a = r, inner = {a = r}, w = T(r)}", "up_tab.inner = {a = r}", "up_tab.inner.a = r",
  "up_tab.inner = up_tab",
  "G_n = r", "G_n = nil", "G_absent = r", "G_absent = nil", "G_x = r", "G_fresh = r", "G_fresh = nil",
  "rawset(_G, 'G_n', r)", "G_tab.a = r", "G_tab = {a = r, op = pg.abs}",
  "setmetatable(_G, {__index = {G_absent = r}})", "setmetatable(_G, nil)",
  "math.myk = r", "math.myk = nil", "string.myk = r", "table.myk = r",
  "function string.twice(_, n) return (n or 1) * r end",
  "local before = math.floor; math.floor = function(q) return (q == 1.5 or q == 2.5) and r or before(q) end",
  "G_M = {floor = math.ceil, myk = r}",
  "local before = tonumber; tonumber = function(q, ...) return q == '0x7' and r or before(q, ...) end",
  "G_c = ({math.floor, math.ceil, math.abs, math.sqrt})[r]",
  "up_c = ({math.floor, math.ceil, math.abs, math.sqrt})[r]",
  "o.c = ({math.floor, math.ceil, math.abs, math.sqrt})[r]",
  "debug.setmetatable(0, {__index = {myk = r}})", "debug.getmetatable(0).__index.myk = r",
  "getmetatable('').__index = setmetatable({myk = r}, {__index = string})", "package.loaded.fz.k = r",
  "package.loaded.fz = {k = r}",
  "G_f = make(r)", "up_f = make(r)", "o.f = make(r)", "o.f = up_f", "up_f = o.f",
  "o.f = function(v) return v * up_n end", "function G_f(v) return v + r end",
  "G_op = ({pg.neg, pg.square, pg.relu, pg.abs})[r]", "up_op = ({pg.neg, pg.square, pg.relu, pg.abs})[r]",
  "o.op = ({pg.neg, pg.square, pg.relu, pg.abs})[r]", "G_tab.op = ({pg.neg, pg.square, pg.relu, pg.abs})[r]",
  "o.acts[1] = ({pg.neg, pg.square, pg.relu, pg.abs})[r]",
  "o.op = function(y) return y * r end", "Net.shared = r", "Net.shared = nil", "Base.inherited = r",
  "Net.inherited = r", "Net.inherited = nil", "o.inherited = r", "o.inherited = nil",
  "function Net:method() return r end", "function Base:inherited_method() return r + num(self.n) end",
  "o.method = function() return r end", "o.method = nil", "setmetatable(o, {__index = Base})",
  "setmetatable(o, Net)", "setmetatable(Net, {__index = {inherited = r, inherited_method = Base.inherited_method}})",
  "Net.__index = Net",
  "o.ranks = {q = 2, p = r}", "o.ranks.p = nil; o.ranks.s = r", "o.ranks.q = r",
  "o.obj.k = r", "o.obj = setmetatable({k = r}, getmetatable(o.obj))", "getmetatable(o.obj).mark = r",
  "getmetatable(o.obj).__call = function(_, v) return v * r end",
  "getmetatable(o.obj).__tostring = function() return ('x'):rep(r) end", "getmetatable(o.obj).__index = {j = r}",
  "getmetatable(o.obj).__index = function() return r end",
  "getmetatable(o.obj).__index = nil", "o.zero = -o.zero", "up_zero = -up_zero", "o.zero = r", "o.v = 0 / 0",
  "o.v = r", "getfenv(env_read).G_env = r", "setfenv(env_read, setmetatable({G_env = r}, {__index = _G}))",
  "setfenv(run, setmetatable({G_n = r}, {__index = getfenv(run)}))",
  "s.a = r", "s.inner.b = r", "arr[1] = r", "arr[0] = r", "ffi.copy(buffer, ('x'):rep(r))", "o.big = 1LL * r",
  "o.big = r", "getmetatable(u).__index = function() return r end",
  "getmetatable(u).__len = function() return r end", "hidden = r", "hidden_len = r",
  "getmetatable(proxy).__index.k = r", "getmetatable(proxy).__index = {k = r}",
  "o.w1.lr_mult = r", "o.w1.wd_mult = r", "o.w1.name = ('n'):rep(r)", "o.w1.grad_req = 'null'",
  "o.w1.grad_req = 'write'", "o.w1:attach_grad()", "up_t:attach_grad()", "o.w1 = T(r)", "o.w2 = T(r)", "o.w2 = o.w1",
  "o.w1 = o.w2", "o.w1 = up_t", "up_t = T(r)", "up_t = o.w1", "up_t:add_(r)", "o.w1:mul_(r)", "G_t = T(r)",
  "G_t = up_t", "o.ws[1] = T(r)", "o.ws[2] = o.ws[1]", "o.ws[2] = nil", "o.ws = {T(r), T(1)}", "up_tab.w = o.w1",
  "o.child.w = o.w2", "o.child = {w = T(r)}",
  "o.w1 = pg.ones(2, 2, {dtype = 'float64'})", "o.w1 = T(r):to('float32')", "o.w1 = r", "o.last = nil",
  "o.last = T(r)", "o.lazy_t = T(r)", "o.lazy_t = nil",
  "o.t1 = {v = r}", "o.t2 = o.t1", "o.t2 = {v = r}", "o.t1 = o.t2", "o.cfg = up_tab",
  "o.e1 = setmetatable({v = r}, getmetatable(o.e1))", "o.e2 = o.e1", "o.e1.v = r",
  "getmetatable(o.e1).__eq = function() return r > 2 end", "getmetatable(o.e1).__eq = nil",
  "getmetatable(o.e1).__lt = function() return r > 2 end", "getmetatable(o.e1).__add = function() return r end",
  "getmetatable(o.e1).__concat = function() return ('c'):rep(r) end",
  "o.empty.k = r", "o.empty[1] = r", "o.empty[1] = nil", "o.empty.k = nil", "o.empty = {}",
  "o.empty = setmetatable({r}, {})", "o.meta_list[1] = r", "o.meta_list[2] = r", "o.meta_list[#o.meta_list] = nil",
  "rawset(o, 1, r)", "o[1] = nil", "lib.each = next and ({pairs, ipairs, pairs, ipairs})[r]", "lib.step = next",
  "getmetatable(o.lazy).__index = function() return r end", "getmetatable(o.lazy).__index = {v = r}", "o.lazy.v = r",
  "o.lazy.v = nil", "o.words.a = ('w'):rep(r)", "o.words = {a = r}", "setmetatable(o.words, {__index = {a = 'zz'}})",
  "o.s = ('s'):rep(r)", "o.s = ({'a', 'z', 'a\\n', 'a\\0'})[r]", "o.s = 12", "shared_n = r",
  "debug.setupvalue(peek, 1, r); jit.flush()", "debug.upvaluejoin(peek, 1, env_read2, 1); jit.flush()",
  "sort_down = r > 2", "o.names[1] = ({'a', 'b', 'zz', 'c'})[r]", "o.names[3] = 'a'", "o.names = {}",
  "o.pair.first = o.pair.second", "o.pair.second = {v = r}", "o.pair = {first = {v = 1}, second = {v = r}}",
  "o.unread = r", "train = not train", "G_unread = {r}", "o.unread = {T(r)}", "collectgarbage()",
}
make_script.mutations = mutations

local calls = {
  "x2", "x2, 1", "x2, 2, {}, {}", "x2, 2, shared, shared", "x2, 2, {n = 3}, {n = 4}", "x2, 2, o.cfg, {}",
  "x2, 2, {w = o.w1}, {}", "o.w1", "x1, 2", "x22", "x32, 0", "x32, -zero", "x2f, 1", "x2i, 1",
  "x2, nil, nil, nil, 5", "x2, 1, {5, 6}, {n = 1}, nil", "x2, 'text'",
  "x2, 2, setmetatable({}, {__index = {n = 8}}), {}", "x2, 0 / 0", "up_t, 1", "x2, 1, up_tab, up_tab.inner",
}

local prelude = [[
local pg, ffi = ...
local T = function(v) return pg.full({2}, v, {dtype = "float64"}) end
local num = function(v) if type(v) == "number" then return v end return 2 end
local like = function(p, q) return type(p) == "userdata" and p.dtype == q.dtype and table.concat(p.shape, ",") == table.concat(q.shape, ",") end
local limit = function(v) return v < 3 and v or 3 end  -- no NaN: LuaJIT's compiled loops would then take one step
local function make(n) return function(v) return v * n end end
local Base = {inherited = 2}; Base.__index = Base
local Net = setmetatable({}, {__index = Base}); Net.__index = Net
local GG, up_zero, up_absent = _G, 0, nil
local up_n, up_t, up_f, up_op, up_c = 2, T(3), make(2), pg.neg, math.floor
local train = false
local up_tab = {a = 1, w = T(4), inner = {a = 2}}
G_n, G_t, G_op, G_c, G_tab, G_f, G_M, G_op2 = 2, T(6), pg.neg, math.floor, {a = 1, op = pg.neg}, make(3), math, pg.abs
math.myk, string.twice, package.loaded.fz = 3, function(_, n) return (n or 1) * 2 end, {k = 2}
debug.setmetatable(0, {__index = {myk = 2}})
local s, arr, buffer = ffi.new("struct { double a; struct { int b; } inner; }", {2, {3}}), ffi.new("int[2]", {1, 2}),
  ffi.new("char[16]", "ab")
local hidden, hidden_len, hidden_t, sort_down = 3, 2, 4, false
local u, proxy = newproxy(true), newproxy(true)
getmetatable(u).__index = function() return hidden end
getmetatable(u).__len = function() return hidden_len end
getmetatable(proxy).__index = {k = 2}
local element = {__eq = function(p, q) return p.v == q.v end, __lt = function(p, q) return p.v < q.v end,
  __add = function(p, q) return p.v + q.v end, __concat = function(p, q) return ("e"):rep(p.v + q.v) end}
local function object(v) return setmetatable({v = v}, element) end
local lib = {each = pairs, step = next}
local o = setmetatable({n = 1, cfg = {a = 1, b = 2}, list = {1, 2}, key = "a", gname = "G_n", opname = "G_op",
  c = math.floor, f = make(4), op = pg.neg, acts = {pg.abs}, zero = 0, v = 1, big = 2LL,
  w1 = T(2), w2 = T(3), ws = {T(1), T(2)}, child = {w = T(5)}, t1 = {v = 1}, t2 = {v = 1}, e1 = object(1),
    e2 = object(2), empty = {}, meta_list = setmetatable({}, {}), words = {a = "xy"}, s = "ab", names = {"a", "b"},
  kept = T(1), box = {T(1), {T(2)}}, queue = {{v = 1}, {v = 2}, {v = 3}},
  pair = {first = {v = 1}, second = {v = 1}}, ranks = {p = 1, q = 2},
  obj = setmetatable({k = 2}, {mark = 3, __call = function(p, v) return p.k * v end,
    __tostring = function(p) return ("t"):rep(p.k) end}),
  lazy = setmetatable({}, {__index = function(_, k) return k == "v" and hidden or hidden_t end})}, Net)
function Net:method() return num(self.n) + 1 end
function Base:inherited_method() return num(self.inherited) end
local shared_n, other_n = 1, 7
local function peek() return shared_n end
local function env_read2() return other_n end
local function _assign() other_n = 7 end  -- otherwise compiled code would inline its value, even after debug.setupvalue
local function bump() shared_n = num(shared_n) % 3 + 1 return shared_n end
local function env_read() return G_env end
setfenv(env_read, setmetatable({G_env = 2}, {__index = _G}))
local function count(t) local n = 0; for _ in pairs(t) do n = n + 1 end return n end
-- Only for tables that no traced function writes: adding a key and taking it back may change the order of pairs.
local function order(t) local n = 0; for _, v in pairs(t) do n = n * 2 + num(v) end return n end
local function u_each(t) local n = 0; for _, v in lib.each(t) do n = n + num(v) end return n end
local function sum_next(t) local n = 0; for _, v in lib.step, t do n = n + num(v) end return n end
local function sum_ipairs(t) local n = 0; for i, v in ipairs(t) do n = n + i * num(v) end return n end
local function co(t, k) return coroutine.wrap(function() coroutine.yield(t[k]) end)() end
local function sorted(t) local l = {unpack(t)}; table.sort(l,
  function(p, q) if sort_down then return p > q end return p < q end) return l end
local function by_name(names, t) local n = 0; for i = 1, 2 do i = names[i]; n = n + num(i and t[i]) end return n end
local x1, x2, x22, x32, x2f, x2i, zero, shared = pg.ones(1, {dtype = "float64"}), T(2), pg.full({2, 2}, 3,
  {dtype = "float64"}), pg.ones(3, 2, {dtype = "float64"}), pg.full({2}, 2), pg.full({2}, 2, {dtype = "int64"}), 0,
  {n = 1}
local run
]]

-- Expressions and statements ----------------------------------------------------------------------------------------

-- statement(depth) -> the text of a random statement.
local function grammar(random, pick)
  local number, statement

  local function leaf() return random(8) == 1 and tostring(random(3)) or "num(" .. pick(numbers) .. ")" end
  local function quiet() return "num(" .. pick(calm) .. ")" end
  function number(depth)
    local way = depth <= 0 and 9 or random(12)
    if way == 1 then return "(" .. number(depth - 1) .. " + " .. number(depth - 1) .. ")" end
    if way == 2 then return "(" .. number(depth - 1) .. " % 7)" end
    if way == 3 then return "num((" .. number(depth - 1) .. " > 2 and " .. leaf() .. " or " .. leaf() .. "))" end
    if way == 4 then return "num((function(v) return v + " .. leaf() .. " end)(" .. leaf() .. "))" end
    return leaf()
  end

  local kinds = {
    function() return "y = y * " .. number(2) end,
    function() return "y = y + " .. number(2) end,
    function() return "y = y + " .. number(1) end,
    function() return "y = " .. pick(ops) end,
    function() return "y = y + (" .. pick(tensors) .. ")" end,
    function() return "y = y * (" .. pick(tensors) .. ")" end,
    function(d) return "if " .. number(1) .. " > " .. random(4) .. " then " .. statement(d) .. " else "
      .. statement(d) .. " end" end,
    function(d) return "if " .. pick(numbers) .. " then " .. statement(d) .. " end" end,
    function(d) return "for i = 1, limit(" .. leaf() .. ") do " .. statement(d) .. " y = y + i end" end,
    function() return "for _, v in pairs(" .. pick{"o.cfg", "o.empty", "a", "up_tab"} .. ") do y = y + num(v) end" end,
    function() return "for i, w in ipairs(o.ws) do y = y + w * i end" end,
    function(d) return "do local ok, e = pcall(function() " .. statement(d) .. " if " .. number(1)
      .. " > 3 then error(" .. leaf() .. ", 0) end end) y = y + (ok and 1 or num(e)) end" end,
    function(d) return "coroutine.wrap(function() " .. statement(d) .. " end)()" end,
    function() return pick(writable) .. " = (" .. leaf() .. " + 1) % 4" end,
    function() return pick(writable) .. " = " .. leaf() end,
    function() return pick(writable) .. ", " .. pick(writable) .. " = " .. leaf() .. ", " .. leaf() end,
    function() return pick(boxes) .. ":add_(" .. leaf() .. ")" end,
    function() return pick(boxes) .. ":mul_(y:sum() * 0 + 2)" end,
    function() return pick(boxes) .. ":fill_(" .. leaf() .. ")" end,
    function() return pick(boxes) .. pick{":add_(x)", ":copy_(x)", ":mul_(y)"} end,
    function() return pick{"x", "x", pick(boxes)} .. pick{":add_(", ":mul_(", ":fill_("} .. leaf() .. ")" end,
    function() return pick{"x", pick(boxes)} .. "[1] = " .. leaf() end,
    function() return "y = y + " .. pick(boxes) .. "[1]" end,
    function() return "o.last = y" end,
    function() return "o.state = {y, n = " .. leaf() .. "}" end,
    function() return "if o.state then y = y + o.state[1] * o.state.n end" end,
    function() return "o.w1, o.w2 = o.w2, o.w1" end,
    function() return "o.t1, o.t2 = o.t2, o.t1" end,
    function() return "local t = o.pair.first; o.pair.first = o.pair.second; o.pair.second = t" end,
    function() return "table.insert(o.queue, table.remove(o.queue, 1)); y = y * o.queue[1].v" end,
    function() return "o.t1.v = " .. leaf() .. "; y = y * num(o.t2.v)" end,
    function() return "a.n = " .. leaf() .. "; y = y * num(b.n)" end,
    function() return "o.pair.first.v = num(o.pair.first.v) % 3 + 1; y = y + num(o.pair.second.v)" end,
    function() return "table.insert(o.empty, " .. leaf() .. "); if #o.empty > 2 then o.empty = {} end" end,
    function() return "o.made = setmetatable({k = " .. leaf()
      .. "}, getmetatable(o.obj)); y = y * num(o.made.k) + num(o.made.j)" end,
    function() return "o.cfg = {a = num(o.cfg.a), b = " .. leaf() .. "}" end,
    function() return "o.ready = o.ready or y; y = y + o.ready" end,
    function() return "y = y + pg.rand(2, {dtype = 'float64'}) * " .. leaf() end,
    function()
      return "y = pg.cond(y:sum():gt(" .. quiet() .. "), function() return y * " .. quiet()
        .. " end, function() return y + " .. quiet() .. " end)"
    end,
    function() return "y = pg.loop(2, function(_, q) return q + " .. quiet() .. " end, y)" end,
    function()
      return "if like(o.kept, y) then pg.cond(y:sum():gt(" .. quiet() .. "), function() o.kept = y * " .. quiet()
        .. " end, function() end) end y = y + o.kept"
    end,
    function()
      return "if like(o.box[1], y) then pg.cond(y:sum():gt(" .. quiet() .. "), function() o.box = {y + " .. quiet()
        .. ", {o.box[1]}} end, function() end) end y = y + o.box[1]"
    end,
    function()
      return "if like(o.kept, y) then pg.loop(y:sum():gt(" .. quiet()
        .. "):to('int64'), function(i, q) o.kept = y * i return q end, y) end"
    end,
    function() return "y = y + x:sum() * x:size(1)" end,
    function(d) return "repeat " .. statement(d) .. " if " .. number(0)
      .. " > 1 then break end y = y + 1 until true" end,
    function(d) return "for i = 1, 3 do if i == " .. leaf() .. " then goto continue end " .. statement(d)
      .. " ::continue:: end" end,
  }
  function statement(depth) return depth <= 0 and kinds[random(6)](0) or pick(kinds)(depth - 1) end
  return statement
end

-- Words that tell which mutations and statements concern the same state.
local function words_of(text)
  local set = {}
  for word in text:gmatch("[%a_][%w_]*") do set[word] = true end
  for _, w in ipairs{"o", "r", "T", "pg", "function", "return", "end", "local", "nil", "v", "a", "y", "n", "w", "k",
    "math", "x"} do set[w] = nil end
  return set
end

function make_script.new(random)
  local function pick(list) return list[random(#list)] end
  local statement = grammar(random, pick)
  local results = {"return y", "return y, x", "return {y, k = x}, k", "return y, o.w1, {n = o.n}",
    "return y, a == b, select('#', ...)", "return o.w2, y, a"}
  local script = {statements = {}, result = pick(results), events = {}, way = random(4) == 1 and "block" or "jit",
    own_env = random(3) == 1, patient = random(4) > 1, seed = random(1000)}
  for i = 1, random(4) do
    script.statements[i] = statement(2):gsub("function%(([^)]*)%)",
      function(p) return "function(" .. p .. (p == "" and "" or ", ") .. "...)" end)
  end
  local near, text = {}, words_of(table.concat(script.statements, " ") .. script.result)
  for i, m in ipairs(mutations) do
    for word in pairs(words_of(m)) do if text[word] then near[#near + 1] = i break end end
  end
  local usual, before = pick(calls), nil
  for _ = 1, 8 + random(10) do
    local m = random(3) == 1 and before or (random(8) > 1 and near[1] and pick(near)) or random(#mutations)
    before = m
    local n = #script.events
    if random(8) > 1 then script.events[n + 1] = {mutate = m, r = random(4)} end
    for _ = 1, random(2) do script.events[#script.events + 1] = {call = random(4) == 1 and pick(calls) or usual} end
  end
  return script
end

--- make_script.source(script) -> the text of a chunk: chunk(pg, ffi) -> run, steps (one function per event), dump.
function make_script.source(script)
  local parts = {prelude, "run = function(x, k, a, b, ...)", "  a, b = a or {}, b or {}", "  local y = x"}
  for _, s in ipairs(script.statements) do parts[#parts + 1] = "  " .. s end
  parts[#parts + 1] = "  " .. script.result .. "\nend\nreturn run, {"
  for _, e in ipairs(script.events) do
    if e.mutate then parts[#parts + 1] = ("  function() local r = %d; %s end,"):format(e.r, mutations[e.mutate])
    else
      parts[#parts + 1] = ("  function(run) local function f() return run(%s) end "):format(e.call)
      parts[#parts + 1] = "  if train then return pg.train_mode(f) end return f() end,"
    end
  end
  parts[#parts + 1] = "}, function() return {o, Net, Base, up_n, up_t, up_tab, up_absent, shared_n, other_n, shared, "
    .. "zero, G_n, G_t, G_absent, G_tab, math.myk, x2, x1, x22, s.a, arr[1]} end"
  return table.concat(parts, "\n")
end

--- make_script.describe(script) -> the random parts of the script, as text.
function make_script.describe(script)
  local parts = {"forward(x, k, a, b, ...), " .. script.way .. (script.own_env and ", an environment of its own" or "")}
  for _, s in ipairs(script.statements) do parts[#parts + 1] = "  " .. s end
  parts[#parts + 1] = "  " .. script.result
  for _, e in ipairs(script.events) do
    parts[#parts + 1] = e.mutate and ("mutation: %s  (r = %d)"):format(mutations[e.mutate], e.r) or "call: " .. e.call
  end
  return table.concat(parts, "\n    ")
end

return make_script
