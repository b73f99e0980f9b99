-- What bodies assign outside of themselves, over calls that take one branch or the other and loops of no steps.
-- luacheck: ignore 111 112 113
local t = require "tests.support"
local control = require "tests.control"
local pg = require "perigee"
local T = pg.tensor

local function steps(n, body)
  pg.while_loop(function(i) return i:lt(n) end, function(i) body(i) return nil, i + 1 end, {T(0)})
end

-- name = make() -> f(k), which runs a combinator, and read(), which returns tensors.
local programs = {
  ["an upvalue that one branch assigns"] = function()
    local a = T(1)
    return function(k) pg.cond(k:gt(0), function() a = k * 5 end, function() end) end, function() return {a} end
  end,
  ["a field that one branch assigns"] = function()
    local s = {a = T(1)}
    return function(k) pg.cond(k:gt(0), function() end, function() s.a = k - 7 end) end, function() return {s.a} end
  end,
  ["a list item"] = function()
    local s = {T(1), T(2)}
    return function(k) pg.cond(k:gt(0), function() s[2] = k * 5 end, function() s[1] = k + 1 end) end, function() return s end
  end,
  ["a global"] = function()
    assigned_global = T(1)
    return function(k) pg.cond(k:gt(0), function() assigned_global = k * 5 end, function() end) end, function() return {assigned_global} end
  end,
  ["the best so far"] = function()
    local best, at = T(-1), T(0)
    return function(k) pg.cond(k:gt(best), function() best, at = k * 1, k * 10 end, function() end) end,
      function() return {best, at} end
  end,
  ["one variable assigned from the other"] = function()
    local a, b = T(1), T(2)
    return function(k) pg.cond(k:gt(0), function() a = k * 5 end, function() b = a end) end, function() return {a, b} end
  end,
  ["a branch that reads after the cond"] = function()
    local s = {a = T(1), sum = T(0)}
    return function(k)
      pg.cond(k:gt(0), function() s.a = k * 5 end, function() end)
      s.sum = s.sum + s.a
    end, function() return {s.a, s.sum} end
  end,
  ["a while_loop that may make no step"] = function()
    local s = {last = T(9)}
    return function(k) steps(k, function(i) s.last = i * 10 end) end, function() return {s.last} end
  end,
  ["a loop that may make no step"] = function()
    local last = T(9)
    return function(k) pg.loop(k:to("int64"), function(i, c) last = i * 10.5 return c + 1 end, T(0)) end, function() return {last} end
  end,
  ["a cond in a loop"] = function()
    local last = T(9)
    return function(k)
      steps(k, function(i) pg.cond(i:eq(1), function() last = i + k end, function() end) end)
    end, function() return {last} end
  end,
  ["a table of tensors in an upvalue"] = function()
    local s = {T(1), T(2)}
    return function(k) pg.cond(k:gt(0), function() s = {k * 3, s[1]} end, function() end) end, function() return s end
  end,
  ["a table with other values in a field"] = function()
    local s = {h = {v = T(1), n = 3, more = {T(2)}}}
    return function(k)
      pg.cond(k:gt(0), function() s.h = {v = k * 3, n = 3, more = {s.h.v}} end, function() end)
    end, function() return {s.h.v, s.h.more[1], T(s.h.n)} end
  end,
  ["a table that a loop assigns"] = function()
    local s = {v = T(1)}
    return function(k) steps(k, function(i) s = {v = s.v * 2 + i} end) end, function() return {s.v} end
  end,
  ["two tables that branches exchange"] = function()
    local s = {a = {T(1)}, b = {T(2)}}
    return function(k) pg.cond(k:gt(0), function() s.a, s.b = s.b, s.a end, function() end) end,
      function() return {s.a[1], s.b[1]} end
  end,
  ["the states of a cell"] = function()
    local cell = pg.nn.rnn.LSTMCell(2, {input_size = 2})
    cell:initialize(pg.init.Constant(0.5))
    local states = cell:begin_state(1)
    return function(k)
      pg.foreach(function(x)
        local out
        out, states = cell(x, states)
        return out
      end, pg.ones(3, 1, 2) * k)
    end, function() return {states[1], states[2]} end
  end,
}

local function history(wrap, make)
  local f, read = make()
  local run, rows = wrap(f), {}
  for _, k in ipairs{1, 0, 2, 0, 0, 3} do
    run(T(k))
    local row = {}
    for i, x in ipairs(read()) do row[i] = x:clone() end
    rows[#rows + 1] = row
  end
  return rows
end

for name, make in pairs(programs) do
  t.test(name .. " keeps its value where it is not assigned", function()
    local expected
    control.each(function(way, wrap)  -- debug is the first
      local rows = history(wrap, make)
      expected = expected or rows
      for call, row in ipairs(rows) do
        for i, x in ipairs(row) do t.close(x, expected[call][i], {what = ("%s, call %d, tensor %d"):format(way, call, i)}) end
      end
    end)
  end)
end

t.test("gradients flow through tables that bodies assign", function()
  control.each(function(way, wrap)
    local w = T(2):attach_grad()
    local run = wrap(function(inputs)
      local s = {h = T(1)}
      pg.foreach(function(x) s = {h = s.h * w * x} end, inputs.xs)
      return {s.h}
    end)
    for _ = 1, 2 do
      local y = pg.record(function() return run{xs = T{1, 2, 3}}[1] end)
      y:backward()
      t.equal(y, T(48), way)
      t.equal(w.grad, T(72), way)
    end
  end)
end)

t.test("what cannot be carried is an error that names the place, and leaves it as it was", function()
  local s = {h = {v = T(1), n = 3}}
  local old = s.h
  local function fails(text, body)
    for name, f in pairs{eager = pg.foreach, jit = pg.jit(pg.foreach)} do
      t.error_contains(function() f(body, pg.ones(3)) end, text, name)
      t.equal(rawequal(s.h, old), true)
    end
  end
  fails("a table of tensors to s.h, which held another one", function(x) s.h = {v = x * 1, n = 4} return x end)
  fails("a table of tensors to s.h, which held another one", function(x) s.h = {v = x * 1, w = x, n = 3} return x end)
  fails("a table of tensors to s.h, which held another one", function(x) s.h = {[true] = x * 1} return x end)
  fails("a table of tensors to s.h, which held another one", function(x) s.h = setmetatable({v = x * 1, n = 3}, {}) return x end)
  fails("a table of tensors to s.h, which held another one", function(x)
    s.h = {v = x * 1}
    s.h.me = s.h
    return x
  end)
  fails("a table of tensors to s.q, which held nil", function(x) s.q = {x * 2} return x end)
  fails("the type of s.h.v", function(x) s.h = {v = pg.stack{x, x}, n = 3} return x end)
  local function branch(text, body) t.error_contains(function() pg.cond(T(1):gt(0), body, function() end) end, text) end
  branch("nil to s.h, which held a table", function() s.h = nil end)
  branch("4 to s.h.v, which held a tensor", function() s.h.v = 4 end)
  t.equal(rawequal(s.h, old), true)
end)

t.test("tables whose tensors the body did not make may be assigned in loops", function()
  local s, x = {h = {T(1), ok = false}}, T(3)
  pg.loop(2, function(_, c) s.h = {s.h[1], ok = true} return c end, T(0))
  t.equal(s.h.ok, true)
  pg.foreach(function(q) s.h = {x, x} return q end, pg.ones(2))
  t.equal(#s.h, 2)
  s.h = {T(1), n = 0 / 0}
  pg.loop(2, function(_, c) s.h = {s.h[1] * 2, n = 0 / 0} return c end, T(0))
  t.equal(s.h[1], T(4))
end)

t.test("a table that cond passes on is one from outside", function()
  control.each(function(way, wrap)
    local s = {x = T(1)}
    local f = wrap(function(k) pg.cond(k:gt(0), function(a) a.x = a.x * 2 end, function() end, s) end)
    for i, k in ipairs{1, 0, 1} do
      f(T(k))
      t.equal(s.x, T(i == 3 and 4 or 2), way)
    end
  end)
end)

t.test("an error that a traced function catches leaves what the body assigned as it was", function()
  local bodies = {
    function(s, k) pg.loop(2, function(_, c) s.x = s.x + k error("stop") return c end, T(0)) end,
    function(s, k) pg.cond(k:gt(0), function() s.x = s.x + k error("stop") end, function() end) end,
    function(s, k) pg.foreach(function(q) s.t = {s.t[1] * k} error("stop") return q end, pg.ones(2)) end,
  }
  for i, body in ipairs(bodies) do
    local s = {x = T(1), t = {T(3)}}
    local f = pg.jit(function(k)
      pcall(body, s, k)
      return s.x * 2 + s.t[1]
    end)
    for _ = 1, 2 do t.equal(f(T(1)), T(5), "body " .. i) end
    t.equal(s.x, T(1))
  end
end)

t.test("functions of one code with environments of their own", function()
  local function make(value)
    return setfenv(function(x)
      total = total + x
      return (pg.loop(1, function(_, c) return c * scale end, x))
    end, {pg = pg, scale = value, total = T(0)})
  end
  local two, three = make(2), make(3)
  for _ = 1, 2 do
    t.equal(two(T(1)), T(2))
    t.equal(three(T(1)), T(3))
  end
  t.equal(getfenv(three).total, T(2))
end)
