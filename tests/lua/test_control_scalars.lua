-- Loops over single elements. As programs they run in the kernel of their body; the reference is plain Lua arithmetic
-- on tensors, step by step.
local t = require "tests.support"
local pg = require "perigee"

-- Loops by name: initial states, step(index, states…) -> states, more(states…) -> bool tensor or nil.
local loops = {
  fibonacci = {{1, 1, 0}, function(_, a, b, n) return {b, a + b, n + 1} end, function(_, _, n) return n:lt(40) end},
  floats = {{0.5, 1}, function(i, x, y) return {x * 0.9 + y, (y - x):tanh() * i} end},
  countdown = {{1000}, function(_, x) return {x - 1} end, function(x) return x:gt(0) end},
  collatz = {{27, 0}, function(_, x, n)
    return {pg.where((x % 2):eq(0), x:floor_divide(2), x * 3 + 1), n + 1}
  end, function(x) return x:ne(1) end},
  unused_state = {{1.5, 2.5}, function(i, x) return {x + i, x * 0.5} end},
  kept_state = {{1.5, 3.0}, function(_, x, y) return {x + y, y} end},
  nan = {{0.0, 1.0}, function(_, x, y) return {(x - 1):sqrt() * y, y + 1} end},
  squares = {{1}, function(_, x) return {x * x + 1} end},
}

local function initial(list, dtype)
  local out = {}
  for k, v in ipairs(list) do out[k] = pg.tensor({v}, {dtype = dtype}) end
  return out
end

local function by_hand(loop, count, states)
  local n = 0
  while (not count or n < count) and (not loop[3] or loop[3](unpack(states)):item()) do
    n = n + 1
    states = loop[2](pg.tensor(n, {dtype = "int64"}), unpack(states))
  end
  return states
end

local function as_loop(loop, count)
  return function(states)
    if loop[3] then
      local _, vars = pg.while_loop(function(...) return loop[3](...) end, function(...) return nil, loop[2](0, ...) end,
                                    states, count and {max_iterations = count} or nil)
      return vars
    end
    return pg.loop(count, function(i, v) return loop[2](i, unpack(v)) end, states)
  end
end

local names = {}
for name in pairs(loops) do names[#names + 1] = name end
table.sort(names)
for _, name in ipairs(names) do
  t.test("a loop over single elements: " .. name, function()
    local loop = loops[name]
    for _, dtype in ipairs(loop[3] and {"int64", "float64"} or {"float32", "float64", "float16"}) do
      for _, count in ipairs(loop[3] and {false} or {0, 1, 2, 7, 60}) do
        local start = initial(loop[1], dtype)
        local expected = by_hand(loop, count or nil, start)
        local got = pg.jit(as_loop(loop, count or nil))(start)
        for k = 1, #expected do t.equal(got[k], expected[k], ("%s %s %s %d"):format(name, dtype, tostring(count), k)) end
        t.equal(start, initial(loop[1], dtype))
      end
    end
  end)
end

t.test("a loop over single elements can run again on its results", function()
  local f = pg.jit(function(i, s)
    local _, vars = pg.while_loop(function(k) return k:lt(5000) end, function(k, u) return nil, {k + 1, u + k} end, {i, s})
    return vars[2]
  end)
  local zero = pg.zeros(1, {dtype = "float64"})
  local s = zero
  for round = 1, 3 do
    s = f(zero, s)
    t.equal(s:item(), round * 12497500)
  end
end)
