-- Errors of control flow for wrong input name the combinator, the leaf and the line of the script. Endless loops can be
-- interrupted.
local t = require "tests.support"
local control = require "tests.control"
local pg = require "perigee"

local here = "test_control_errors%.lua:%d+:"

-- f must fail with all of these plain texts in every way, and the message must start with a position in this file.
local function fails_but_in(left_out, f, ...)
  local texts = {...}
  control.each(function(way, wrap)
    if way == left_out then return end
    local e = t.error_contains(function() wrap(function() f() return {} end)({}) end, texts[1])
    t.check(e:find(here), way .. ": no line of the script in " .. e)
    for _, text in ipairs(texts) do t.check(e:find(text, 1, true), ("%s: %q is not in %s"):format(way, text, e)) end
  end)
end

local function fails(f, ...) fails_but_in(nil, f, ...) end

local xs, s, w = pg.ones(3, 2), pg.ones(2), pg.ones(2, 4)

t.test("bodies that change the structure of the state", function()
  fails(function() pg.foreach(function(x, h) return x, {h} end, xs, s) end, "foreach", "structure", "states")
  fails(function() pg.foreach(function(x, h) return x, h.a end, xs, {a = s}) end, "foreach", "states.a")
  fails(function() pg.foreach(function(x, h) return x, {a = h.a} end, xs, {a = s, b = s}) end, "foreach", "states.b")
  fails(function() pg.foreach(function(x) return x end, xs, s) end, "foreach", "states", "nil")
  fails(function() pg.foreach(function(x) return x, x end, xs) end, "foreach", "states", "nil")
  fails(function() pg.loop(3, function(_, h) return {h, h} end, {s}) end, "loop", "state")
  fails(function() pg.loop(3, function() end, s) end, "loop", "state")
  fails(function() pg.while_loop(function(i) return i:lt(3) end, function(i) return nil, {i + 1} end, {0, s}) end, "while_loop", "vars[2]")
  fails(function() pg.while_loop(function(i) return i:lt(3) end, function(i) return nil, {i + 1, i, i} end, {0, 0}) end, "while_loop", "vars")
  fails(function() pg.while_loop(function(i) return i:lt(3) end, function(i) return i + 1 end, {0}) end, "while_loop")
end)

t.test("bodies that change a shape or a dtype are errors that name the leaf and both types", function()
  local whole = pg.tensor(1, {dtype = "int64"})
  fails(function() pg.foreach(function(x, h) return x, h:matmul(w) end, xs, s) end, "foreach", "states", "2", "4")
  fails(function() pg.foreach(function(x, h) return x, {a = h.a, b = {h.b[1]:to("float64")}} end, xs, {a = s, b = {s}}) end, "foreach", "states.b[1]", "float32", "float64")
  fails(function() pg.loop(3, function(i, h) return h + i * 0.5 end, whole) end, "loop", "state", "int64", "float32")
  fails(function() pg.while_loop(function(i) return i:lt(3) end, function(i, h) return nil, {i + 1, pg.cat{h, h}} end, {0, s}) end, "while_loop", "vars[2]", "float32")
  fails(function() pg.while_loop(function(i) return i:lt(3) end, function(i) return nil, i + 0.5 end, {whole}) end, "while_loop", "vars[1]", "int64")
  fails(function() pg.loop(3, function(_, h) return h:sum() end, s) end, "loop", "state")
end)

t.test("branches that return different structures, shapes or dtypes are errors that show both", function()
  local p = pg.tensor(1)
  local function differ(then_f, else_f, ...) fails_but_in("debug", function() pg.cond(p, then_f, else_f) end, "cond", ...) end
  differ(function() return s end, function() return {s} end, "structure", "then_f", "else_f")
  differ(function() return {a = s} end, function() return {b = s} end, ".a", ".b")
  differ(function() return s end, function() return xs end, "3x2", "2")
  differ(function() return {h = s} end, function() return {h = s:to("int64")} end, "float32", "int64", ".h")
  differ(function() return s, s end, function() return s end, "then_f", "else_f")
  differ(function() return s end, function() end, "then_f", "else_f")
end)

t.test("arguments of the wrong kind", function()
  local function f() end
  t.bad_argument(function() pg.cond(1, f, f) end, "cond", "pred")
  t.bad_argument(function() pg.cond(nil, f, f) end, "cond", "pred")
  t.bad_argument(function() pg.cond(pg.tensor(1), 5, f) end, "cond", "then_f")
  t.bad_argument(function() pg.cond(pg.tensor(1), f) end, "cond", "else_f")
  t.bad_argument(function() pg.cond(pg.ones(2), function() return s end, function() return s end) end, "cond", "pred")
  t.bad_argument(function() pg.cond(pg.zeros(0), function() return s end, function() return s end) end, "cond", "pred")
  t.bad_argument(function() pg.foreach(nil, xs, s) end, "foreach", "body")
  t.bad_argument(function() pg.foreach(f, nil, s) end, "foreach", "data")
  t.bad_argument(function() pg.foreach(f, {}, s) end, "foreach", "data")
  t.bad_argument(function() pg.foreach(f, {a = xs, b = "text"}, s) end, "foreach", "data.b")
  t.bad_argument(function() pg.foreach(f, xs, {h = f}) end, "foreach", "states.h")
  t.bad_argument(function() pg.foreach(f, pg.tensor(1), s) end, "foreach", "data")
  t.bad_argument(function() pg.foreach(f, xs, s, {chekpoint = 2}) end, "foreach", "chekpoint")
  t.bad_argument(function() pg.foreach(f, xs, s, {checkpoint = 0}) end, "foreach", "checkpoint")
  t.bad_argument(function() pg.while_loop(f, f, s) end, "while_loop", "vars")
  t.bad_argument(function() pg.while_loop(f, f, {}) end, "while_loop", "vars")
  t.bad_argument(function() pg.while_loop(f, f, {s}, {max_iterations = -1}) end, "while_loop", "max_iterations")
  t.bad_argument(function() pg.while_loop(f, f, {s}, {max_iterations = 2.5}) end, "while_loop", "max_iterations")
  t.bad_argument(function() pg.while_loop(f, f, {s}, {max_iter = 3}) end, "while_loop", "max_iter")
  t.bad_argument(function() pg.while_loop(f, nil, {s}) end, "while_loop", "body")
  t.bad_argument(function() pg.loop("3", f, s) end, "loop", "count")
  t.bad_argument(function() pg.loop(3, s, f) end, "loop", "body")
  t.bad_argument(function() pg.loop(pg.ones(2), function(_, h) return h end, s) end, "loop", "count")
end)

t.test("an outer variable that changes its type is named", function()
  local kept = xs
  fails_but_in("debug", function() pg.foreach(function(x) kept = kept:sum() * x end, xs) end, "foreach", "kept", "3x2", "2")
  local box = {h = s}
  fails_but_in("debug", function() pg.loop(2, function(_, u) box.h = box.h:to("float64") return u end, s) end, "loop", "h", "float64")
end)

t.test("a count that is not a whole number is an error", function()
  local function double(_, h) return h * 2 end
  t.error_contains(function() pg.loop(pg.tensor(2.5), double, s) end, "count")
  t.error_contains(pg.jit(function(n) return pg.loop(n, double, s) end), "count", pg.tensor(0.5))
  t.equal(pg.loop(pg.tensor(2), double, s), pg.full({2}, 4))
  t.equal(pg.jit(function(n) return pg.loop(n, double, s) end)(pg.tensor(3)), pg.full({2}, 8))
end)

t.test("data of different lengths name both", function()
  fails(function() pg.foreach(function(x) return x.a end, {a = xs, b = pg.ones(4, 2)}) end, "foreach", "data.a", "3", "data.b", "4")
  fails(function() pg.foreach(function(x) return x[1] end, {xs, pg.tensor(2)}) end, "foreach", "data[2]")
end)

t.test("outputs that change or are not tensors are errors", function()
  fails(function() pg.foreach(function(x) return {h = x, n = "text"} end, xs) end, "foreach", "outputs.n")
  fails(function() pg.foreach(function() return print end, xs) end, "foreach", "outputs")
  fails(function() pg.while_loop(function() return "yes" end, function(i) return nil, i end, {0}) end, "while_loop", "cond")
  fails(function() pg.while_loop(function() end, function(i) return nil, i end, {0}) end, "while_loop", "cond")
  fails(function() pg.while_loop(function(i) return i:lt(3):expand(2) end, function(i) return nil, i + 1 end, {0}) end, "while_loop")
end)

t.test("errors inside of bodies keep their position", function()
  fails(function() pg.foreach(function(x) return x:matmul(pg.ones(7, 7)) end, xs) end, "matmul")
  fails(function() pg.cond(pg.tensor(1), function() error("from then_f") end, function() return s end) end, "from then_f")
  fails(function() pg.loop(2, function(_, h) return pg.loop(2, function(_, u) return u + nil end, h) end, s) end, "nil")
end)

t.test("reading a value inside a body is an error that names the alternatives and cannot be caught", function()
  for _, f in ipairs{
    function() return (pg.foreach(function(x) return x * x:sum():item() end, xs)) end,
    function() return pg.cond(pg.tensor(1), function() return s * s:totable()[1] end, function() return s end) end,
    function() return pg.loop(3, function(i, h) return h * i:item() end, s) end,
    function() return pg.loop(3, function(_, h) if pcall(h.item, h[1]) then return h end return h end, s) end,
  } do
    local e = t.error_matches(f, here)
    t.check(e:find("cond", 1, true) or e:find("while_loop", 1, true) or e:find("pg.debug", 1, true), e)
    t.error_contains(pg.jit(f), "traced tensor")
  end
  t.equal(pg.debug(function() return (pg.foreach(function(x) return x * x:sum():item() end, xs)) end), pg.full({3, 2}, 2))
end)

t.test("an error leaves everything as before", function()
  local count, net = pg.zeros(1), pg.nn.BatchNorm{in_channels = 2}
  net:initialize()
  local function bad(v)
    return {(pg.foreach(function(x, h)
      count:add_(1)
      local y = net(x)
      pg.assert(h:lt(2), "too far")
      return y, h + 1
    end, v.xs, v.h))}
  end
  control.each(function(way, wrap)
    if way == "debug" then return end
    local f = wrap(bad)
    local before = {count + 0, net.running_mean + 0, net.running_var + 0}
    for _ = 1, 2 do
      t.error_contains(function() pg.train_mode(function() f{xs = pg.ones(4, 3, 2), h = pg.tensor(0)} end) end, "too far")
      t.equal({count, net.running_mean, net.running_var}, before, way)
    end
    t.equal(#f{xs = pg.ones(2, 3, 2), h = pg.tensor(0)}[1], 2)
    t.equal(count, before[1] + 2, way)
    t.check(not pg.is_recording())
  end)
end)

local function again(i) return nil, i * 1 end

-- Each runs until it is interrupted.
local endless = {
  eager = function() pg.while_loop(function(i) return i:lt(10) end, again, {1}) end,
  jitted = function()
    local f = pg.jit(function(v) return select(2, pg.while_loop(function(i) return i:sum():lt(10) end, again, {v}))[1] end)
    f(pg.full({3}, 5))
    f(pg.zeros(3))
  end,
  nested = function() pg.loop(1e9, function(_, v) return pg.loop(1e9, function(_, u) return u + 1 end, v) end, 0) end,
  recorded = function()
    local v = pg.ones(1):attach_grad()
    pg.record(function() return pg.loop(1e12, function(_, u) return u * 0.5 end, v, {checkpoint = 1000000}) end)
  end,
}

for name, f in pairs(endless) do
  t.test("a loop that never ends is interrupted at any poll: " .. name, function()
    for _, polls in ipairs{0, 1, 10, 1000, 1001} do
      pg.testing.cancel_after(polls)
      local e = t.error_matches(f, here .. ".*interrupted")
      t.check(not pg.is_recording(), e)
      t.equal(pg.loop(2, function(_, h) return h * 2 end, s), pg.full({2}, 4), polls .. " polls")
    end
  end)
end

t.test("odd bodies never crash", function()
  t.may_warn("calls collectgarbage")
  local odd = {
    function() return pg.foreach(function(x, h) pg.foreach(function() return x end, h) return x, h end, xs, xs) end,
    function() return pg.foreach(function(x) xs = x return x end, pg.ones(2, 2)) end,
    function() local kept pg.foreach(function(x) kept = kept or x return x end, xs) return kept + 1 end,
    function() local box = {} pg.foreach(function(x) box[1] = x return x end, xs) return box[1] + 1 end,
    function() return pg.foreach(function(x) return coroutine.wrap(function() coroutine.yield(x) end)() end, xs) end,
    function() return coroutine.wrap(function() return pg.foreach(function(x) coroutine.yield(x) return x end, xs) end)() end,
    function() return pg.loop(2, function(_, h) h:add_(1) return h end, s) end,
    function() return pg.loop(2, function(_, h) s:add_(h) return h end, s) end,
    function() return pg.foreach(function(x) x:add_(1) return x end, xs) end,
    function() return pg.loop(2, function(_, h) collectgarbage() return h end, s) end,
    function() return pg.loop(2, function(_, h) h:release() return h end, s:clone()) end,
    function() return pg.scope(function() return pg.loop(2, function(_, h) return pg.scope(function() return h * 2 end) end, s) end) end,
    function() return pg.loop(2, function(_, h) return pg.jit(function(u) return u * 2 end)(h) end, s) end,
    function() return pg.loop(2, function(_, h) return pg.debug(function() return h * 2 end) end, s) end,
    function() return pg.cond(pg.tensor(1), function() return pg.cond end, function() return s end) end,
    function() return pg.foreach(function(x) return pg.nonzero(x) end, xs) end,
    function() return pg.loop(2, function(i, h) return h * (i == 1 and 2 or 3) end, s) end,
    function() return pg.loop(2, function(i, h) return i < 2 and h or h end, s) end,
    function() return pg.loop(2 ^ 60, function() error("stop at once") end, s) end,
  }
  for i, f in ipairs(odd) do
    for _, g in ipairs{f, pg.jit(f), function() return pg.record(f) end} do
      for _ = 1, 2 do
        local ok, e = pcall(g)
        t.check(ok or type(e) == "string", "case " .. i)
        s, xs = pg.ones(2), pg.ones(3, 2)
      end
    end
    t.equal(pg.loop(2, function(_, h) return h * 2 end, s), pg.full({2}, 4), "after case " .. i)
  end
end)

-- pg.debug, which runs branches as plain Lua -----------------------------------------------------------------------------------

local function in_each_way(f)
  return {
    eager = f, jit = pg.jit(f), debug = function(...) return pg.debug(f, ...) end,
  }
end

t.test("pg.debug draws the same numbers as a graph, for either branch", function()
  local function cases(then_n, else_n)
    return function(x)
      local function drawing(n)
        return function()
          local y = x * 1
          for _ = 1, n do y = y + pg.rand(1)[1] end
          return y
        end
      end
      return pg.cond(x:gt(2), drawing(then_n), drawing(else_n)) + pg.rand(1)
    end
  end
  for then_n = 0, 2 do
    for else_n = 0, 2 do
      local found = {}
      for name, f in pairs(in_each_way(cases(then_n, else_n))) do
        pg.manual_seed(5)
        local list = {}
        for i = 1, 4 do list[i] = f(pg.tensor(i)) end
        list[5] = pg.rand(1)
        found[name] = list
      end
      t.equal(found.jit, found.eager, then_n .. " and " .. else_n)
      t.equal(found.debug, found.eager, then_n .. " and " .. else_n)
    end
  end
end)

t.test("pg.debug refuses branches that differ", function()
  for _, pair in ipairs{
    {function(x) return x end, function() return pg.ones(2) end, "different types"},
    {function(x) return x end, function(x) return {x} end, "different structures"},
    {function(x) return x end, function(x) return x:to("int64") end, "different types"},
  } do
    for name, f in pairs(in_each_way(function(x) return pg.cond(x:gt(2), pair[1], pair[2], x) end)) do
      for i = 1, 4, 3 do t.error_contains(function() f(pg.tensor(i)) end, pair[3], name) end
    end
  end
end)

t.test("pg.debug undoes the branch that is not taken", function()
  local log, total, plain = {}, pg.tensor(0), 0
  local function f(x)
    return pg.cond(x:gt(2), function()
      plain = plain + 1
      total = total + x
      log[#log + 1] = x:item()  -- cannot be part of a graph
      return x
    end, function()
      plain = plain + 10
      total = total + 10 * x
      return x * 2
    end)
  end
  t.equal(pg.debug(f, pg.tensor(3)), pg.tensor(3))
  t.equal({plain, total, log}, {1, pg.tensor(3), {3}})
  t.equal(pg.debug(f, pg.tensor(1)), pg.tensor(2))
  t.equal({plain, total, log}, {11, pg.tensor(13), {3}})
end)
