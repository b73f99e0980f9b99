-- Control flow, sentence by sentence as the API says it: pg.cond, foreach, while_loop, loop and what bodies assign, in every way to run them.
local t = require "tests.support"
local control = require "tests.control"
local pg = require "perigee"

local function int(x) return pg.tensor(x, {dtype = "int64"}) end
local function zeros_like(x) return pg.zeros(x.shape, {dtype = x.dtype}) end
local each = control.test

-- cond -------------------------------------------------------------------------------------------------------------------------

each("cond takes a tensor of one element of any dtype and shape", function(wrap)
  local f = wrap(function(v) return {pg.cond(v.p, function() return v.x * 2 end, function() return v.x - 1 end)} end)
  local x = pg.tensor{3, 4}
  local trues = {pg.tensor(true, {dtype = "bool"}), pg.tensor(2), pg.tensor{-1}, pg.tensor{{0.25}}, int(7), int{1}, pg.tensor({1}, {dtype = "float64"}), pg.tensor(0 / 0)}
  for i, p in ipairs(trues) do
    t.equal(f{p = p, x = x}[1], pg.tensor{6, 8}, "true " .. i)
    local off = zeros_like(p)
    t.equal(f{p = off, x = x}[1], pg.tensor{2, 3}, "false " .. i)
  end
end)

each("cond with a Lua boolean calls the branch", function(wrap)
  local f = wrap(function(v)
    local seen = {}
    local y = pg.cond(v.x:dim() == 1, function() seen[1] = "then" return v.x * 2 end, function() seen[1] = "else" return "anything" end)
    local z = pg.cond(v.x:dim() == 2, function() error("not taken") end, function(a, b) return {a, b} end, v.x, 5)
    return {y, z[1], z[2], seen[1]}
  end)
  t.equal(f{x = pg.tensor{1, 2}}, {pg.tensor{2, 4}, pg.tensor{1, 2}, 5, "then"})
end)

each("cond passes extra arguments to both branches", function(wrap)
  local f = wrap(function(v)
    local function more(a, b, c) return a + b * c.scale end
    local function less(a, b, c) return a - b * c.scale end
    return {pg.cond(v.p, more, less, v.x, v.y, {scale = v.x})}
  end)
  local x, y = pg.tensor{1, 2}, pg.tensor{10, 20}
  t.equal(f{p = pg.tensor(1), x = x, y = y}[1], pg.tensor{11, 42})
  t.equal(f{p = pg.tensor(0), x = x, y = y}[1], pg.tensor{-9, -38})
end)

each("cond returns trees, numbers, several values and nothing", function(wrap)
  local f = wrap(function(v)
    local a, b = pg.cond(v.p, function() return {h = v.x, list = {v.x * 2, 3}}, 1.5 end, function() return {h = v.x + 1, list = {v.x, 4}}, 2.5 end)
    local none = pg.cond(v.p, function() end, function() end)
    return {a.h, a.list[1], a.list[2], b, none == nil}
  end)
  local x = pg.tensor{1, 2}
  t.equal(f{p = pg.tensor(1), x = x}, {x, x * 2, int(3), pg.tensor(1.5), true})
  t.equal(f{p = pg.tensor(0), x = x}, {x + 1, x, int(4), pg.tensor(2.5), true})
end)

each("only the branch taken runs", function(wrap)
  local x, count = pg.tensor{1, 4}, {a = pg.zeros(1), b = pg.zeros(1)}
  local f = wrap(function(v)
    return {pg.cond(v.p, function() count.a:add_(1) return v.x:sqrt() end, function() count.b:add_(10) return v.x * 1 end)}
  end)
  for i, p in ipairs{1, 0, 0, 1, 1} do
    f{p = pg.tensor(p), x = x}
    local expected = ({{1, 0}, {1, 10}, {1, 20}, {2, 20}, {3, 20}})[i]
    t.equal({count.a:item(), count.b:item()}, expected, "call " .. i)
  end
end)

each("an error inside the branch not taken does not happen", function(wrap)
  local f = wrap(function(v)
    return {pg.cond(v.p, function()
      pg.assert(v.x:sum():gt(100), "the sum is too small")
      return v.x
    end, function() return v.x * 2 end)}
  end)
  t.equal(f{p = pg.tensor(0), x = pg.tensor{1}}[1], pg.tensor{2})
  t.error_contains(f, "the sum is too small", {p = pg.tensor(1), x = pg.tensor{1}})
  t.equal(f{p = pg.tensor(0), x = pg.tensor{1}}[1], pg.tensor{2})
  t.equal(f{p = pg.tensor(1), x = pg.tensor{200}}[1], pg.tensor{200})
end)

-- foreach ----------------------------------------------------------------------------------------------------------------------

each("foreach slices trees along dim 1 and stacks the outputs of steps", function(wrap)
  local f = wrap(function(v)
    local outs, states = pg.foreach(function(item, s)
      local now = {sum = s.sum + item.x, list = {s.list[1] * item.more[1]}}
      return {item.x * 2, deep = {now.sum, now.list[1]}}, now
    end, {x = v.x, more = {v.y}}, {sum = v.s, list = {v.p}})
    return {outs[1], outs.deep[1], outs.deep[2], states.sum, states.list[1]}
  end)
  t.equal(f{x = pg.tensor{{1, 2}, {3, 4}}, y = pg.tensor{5, 6}, s = pg.tensor{0, 0}, p = pg.tensor(1)},
          {pg.tensor{{2, 4}, {6, 8}}, pg.tensor{{1, 2}, {4, 6}}, pg.tensor{5, 30}, pg.tensor{4, 6}, pg.tensor(30)})
end)

each("foreach over 1-D data passes 0-dim slices", function(wrap)
  local f = wrap(function(v)
    local outs, last = pg.foreach(function(x, s)
      assert(x:dim() == 0 and s:dim() == 0)
      return s + x, s + x
    end, v.x, 0.5)
    return {outs, last}
  end)
  t.equal(f{x = pg.tensor{1, 2, 3}}, {pg.tensor{1.5, 3.5, 6.5}, pg.tensor(6.5)})
end)

each("foreach without states, without outputs, with neither", function(wrap)
  local f = wrap(function(v)
    local outs, none = pg.foreach(function(x, s)
      assert(s == nil)
      return x * v.k
    end, v.x)
    local nothing, last = pg.foreach(function(x, s) return nil, s + x end, v.x, v.k)
    local a, b = pg.foreach(function() end, v.x)
    return {outs, none == nil, nothing == nil, last, a == nil and b == nil}
  end)
  t.equal(f{x = pg.tensor{1, 2, 3}, k = pg.tensor(2)}, {pg.tensor{2, 4, 6}, true, true, pg.tensor(8), true})
end)

each("zero steps: outputs of 0 rows whose types come from the body", function(wrap)
  local f = wrap(function(v)
    local outs, last = pg.foreach(function(x, s) return {x:matmul(v.w):to("float64"), s.n, pg.ones(4)}, {n = s.n + 1} end, v.x, {n = 7})
    return {outs[1], outs[2], outs[3], last.n}
  end)
  local y = f{x = pg.zeros(0, 2, 3), w = pg.ones(3, 5)}
  t.equal(y[1], pg.zeros({0, 2, 5}, {dtype = "float64"}))
  t.equal(y[2], pg.zeros({0}, {dtype = "int64"}))
  t.equal(y[3], pg.zeros(0, 4))
  t.equal(y[4], int(7))
end)

-- while_loop and loop ----------------------------------------------------------------------------------------------------------

each("while_loop as the API shows it", function(wrap)
  local f = wrap(function(v)
    local outs, vars, n = pg.while_loop(function(i) return i:lt(10) end, function(i, s) return s, {i + 1, s * 2} end, {v.i, v.s}, {max_iterations = 20})
    return {outs, vars[1], vars[2], n, #vars}
  end)
  local rows = {}
  for k = 1, 20 do rows[k] = {k <= 9 and 2 ^ (k - 1) or 0} end
  t.equal(f{i = int(1), s = pg.tensor{1}}, {pg.tensor(rows), int(10), pg.tensor{512}, int(9), 2})
  t.equal(f{i = int(10), s = pg.tensor{1}}, {pg.zeros(20, 1), int(10), pg.tensor{1}, int(0), 2})
  t.equal(f{i = int(-100), s = pg.tensor{0}}, {pg.zeros(20, 1), int(-80), pg.tensor{0}, int(20), 2})
end)

each("while_loop of outputs, zero iterations at most", function(wrap)
  local f = wrap(function(v)
    local outs, vars, n = pg.while_loop(function(s) return s:lt(10) end, function(s) return {a = s}, s + 1 end, {v.s}, {max_iterations = 0})
    return {outs.a, vars[1], n}
  end)
  t.equal(f{s = pg.tensor(3)}, {pg.zeros(0), pg.tensor(3), int(0)})
end)

each("while_loop without max_iterations has no limit and no outputs", function(wrap)
  local f = wrap(function(v)
    local outs, vars, n = pg.while_loop(function(s) return s:sum():lt(1e6) end, function(s) return nil, s * 1.5 end, {v.s})
    return {outs == nil, vars[1], n}
  end)
  local y = f{s = pg.tensor{1}}
  t.equal({y[1], y[3]}, {true, int(35)})
  t.close(y[2]:item(), 1.5 ^ 35, {rtol = 1e-4})
  local g = wrap(function(v) return {(pg.while_loop(function(s) return s:lt(3) end, function(s) return s, s + 1 end, {v.s}))} end)
  t.error_contains(g, "max_iterations", {s = pg.tensor(0)})
end)

each("a body of one variable may return it bare", function(wrap)
  local f = wrap(function(v)
    local _, bare = pg.while_loop(function(s) return s:lt(10) end, function(s) return nil, s * 2 end, {v.s})
    local _, list = pg.while_loop(function(s) return s:lt(10) end, function(s) return nil, {s * 2} end, {v.s})
    local _, nested = pg.while_loop(function(s) return s.a:lt(10) end, function(s) return nil, {a = s.a * 2} end, {{a = v.s}})
    return {bare[1], list[1], nested[1].a}
  end)
  t.equal(f{s = pg.tensor(3)}, {pg.tensor(12), pg.tensor(12), pg.tensor(12)})
end)

each("numbers become 0-dim tensors: whole ones int64, others float32", function(wrap)
  local f = wrap(function(v)
    local _, vars = pg.while_loop(function(i) return i:lt(3) end, function(i, h, x) return nil, {i + 1, h * 2, x} end, {0, 0.5, v.x})
    local _, state = pg.foreach(function(_, s) return nil, {s[1] + 1, s[2] + 0.5} end, v.x, {1, 2.5})
    local y = pg.cond(v.x:sum():gt(0), function() return 1 end, function() return 2 end)
    return {vars[1], vars[2], state[1], state[2], y, pg.loop(3, function(_, s) return s * 2 end, 1)}
  end)
  t.equal(f{x = pg.ones(2)}, {int(3), pg.tensor(4), int(3), pg.tensor(3.5), int(1), int(8)})
end)

each("loop counts from 1, its count is a number or a 0-dim tensor", function(wrap)
  local f = wrap(function(v)
    return {pg.loop(5, function(i, s) return s * i end, v.s), pg.loop(v.n, function(i, s) return {s[1] + i, s[2] * 2} end, {0, v.s})[1],
            pg.loop(0, function(_, s) return s * 0 end, v.s)}
  end)
  t.equal(f{s = pg.tensor{1, 2}, n = int(4)}, {pg.tensor{120, 240}, int(10), pg.tensor{1, 2}})
  t.equal(f{s = pg.tensor{1, 2}, n = int(0)}[2], int(0))
  t.equal(f{s = pg.tensor{1, 2}, n = int(9)}[2], int(45))
end)

each("a count below zero is an error", function(wrap)
  local f = wrap(function(v) return {pg.loop(v.n, function(_, s) return s * 2 end, v.s)} end)
  t.error_contains(f, "loop", {n = int(-1), s = pg.ones(1)})
  t.bad_argument(function() pg.loop(-1, function(_, s) return s end, pg.ones(1)) end, "loop", "count")
  t.bad_argument(function() pg.loop(1.5, function(_, s) return s end, pg.ones(1)) end, "loop", "count")
end)

each("a 0-dim counter selects", function(wrap)
  local f = wrap(function(v)
    local _, vars = pg.while_loop(function(i) return i:le(3) end, function(i, s) return nil, {i + 1, s + v.xs[i]} end, {1, v.s})
    return {vars[2], pg.loop(3, function(i, s) return s * 2 + v.xs[{i, 1}] end, v.s)}
  end)
  t.equal(f{xs = pg.tensor{{1, 2}, {10, 20}, {100, 200}}, s = pg.zeros(2)}, {pg.tensor{111, 222}, pg.tensor{124, 124}})
end)

each("the counter of loop may be the row that is written", function(wrap)
  local f = wrap(function(v)
    return {pg.loop(3, function(i, s)
      s = s:clone()
      s[i] = v.x * i
      return s
    end, pg.zeros(3, 2))}
  end)
  t.equal(f{x = pg.tensor{1, 2}}[1], pg.tensor{{1, 2}, {2, 4}, {3, 6}})
end)

-- Closures and what bodies assign ----------------------------------------------------------------------------------------------

each("closures may use any outer tensor, made inside or outside", function(wrap)
  local constant, holder = pg.tensor{5, 5}, {deep = {pg.tensor{1, 2}}}
  local f = wrap(function(v)
    local made = pg.ones(2) * 3
    local outs = pg.foreach(function(x) return x + constant + holder.deep[1] + made + v.y:sum() end, v.x)
    return {outs}
  end)
  t.equal(f{x = pg.zeros(2, 2), y = pg.ones(2)}[1], pg.tensor{{11, 12}, {11, 12}})
  constant:add_(1)
  t.equal(f{x = pg.zeros(1, 2), y = pg.ones(2)}[1], pg.tensor{{12, 13}})
  holder.deep[1] = pg.tensor{0, 0}
  t.equal(f{x = pg.zeros(1, 2), y = pg.ones(2)}[1], pg.tensor{{11, 11}})
end)

each("an outer local that a body assigns is carried", function(wrap)
  local f = wrap(function(v)
    local total, count = v.zero, pg.zeros(1)
    local outs = pg.foreach(function(x)
      total = total + x:sum()
      count = count + 1
      return total
    end, v.xs)
    return {total, count, outs}
  end)
  t.equal(f{xs = pg.tensor{{1, 2}, {3, 4}}, zero = pg.tensor(0)}, {pg.tensor(10), pg.tensor{2}, pg.tensor{3, 10}})
  local g = wrap(function(v)
    local s = v.s
    pg.while_loop(function(i) return i:lt(4) end, function(i) s = s * 2 return nil, i + 1 end, {0})
    pg.loop(3, function(_, u) s = s + u return u end, v.one)
    return {s}
  end)
  t.equal(g{s = pg.tensor{1}, one = pg.tensor{1}}[1], pg.tensor{19})
end)

each("an outer field that a body assigns is carried", function(wrap)
  local f = wrap(function(v)
    local box = {h = v.s, list = {v.s * 2}}
    pg.foreach(function(x)
      box.h = box.h + x
      box.list[1] = box.list[1] * x
    end, v.xs)
    return {box.h, box.list[1]}
  end)
  t.equal(f{xs = pg.tensor{{1, 2}, {3, 4}}, s = pg.tensor{1, 1}}, {pg.tensor{5, 7}, pg.tensor{6, 16}})
end)

each("an outer local that branches assign is joined", function(wrap)
  local f = wrap(function(v)
    local a, b = v.x, v.x * 10
    pg.cond(v.p, function() a = a + 1 end, function() b = b - 1 end)
    return {a, b}
  end)
  t.equal(f{p = pg.tensor(1), x = pg.tensor{1}}, {pg.tensor{2}, pg.tensor{10}})
  t.equal(f{p = pg.tensor(0), x = pg.tensor{1}}, {pg.tensor{1}, pg.tensor{9}})
end)

each("gradients flow through what is carried by assignment", function(wrap)
  local x = pg.tensor{1, 2, 3}:attach_grad()
  local f = wrap(function(v)
    local total = v.zero
    pg.foreach(function(item) total = total + item * item end, v.x)
    return {total}
  end)
  pg.record(function() return f{x = x, zero = pg.tensor(0)}[1] end):backward()
  t.equal(x.grad, pg.tensor{2, 4, 6})
end)

t.test("an outer local or field that held nil is an error that names it", function()
  local e = t.error_contains(function()
    local last
    pg.foreach(function(x) last = x end, pg.ones(3))
    return last
  end, "last")
  t.check(e:find("foreach") and e:find("state"), e)
  e = t.error_contains(function()
    local box = {}
    pg.loop(3, function(_, s) box.result = s * 2 return s end, pg.ones(1))
    return box.result
  end, "result")
  t.check(e:find("loop"), e)
  e = t.error_contains(function()
    local chosen
    pg.cond(pg.tensor(1), function() chosen = pg.ones(1) end, function() chosen = pg.zeros(1) end)
    return chosen
  end, "chosen")
  t.check(e:find("cond"), e)
end)
