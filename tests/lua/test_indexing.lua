-- x[…] and x[…] = v.
local t = require "tests.support"
local pg = require "perigee"

local function iota(...)
  local n = 1
  for _, d in ipairs{...} do n = n * d end
  return pg.linspace(1, n, n):reshape{...}
end
local function list(...) return pg.tensor({...}, {dtype = "int64"}) end
local is = t.has

t.test("numbers select, tables narrow, \"...\" fills", function()
  local x = iota(2, 3, 4)
  is(x[1], {3, 4})
  is(x[-1][2], {4}, {17, 18, 19, 20})
  is(x[2][3][4], {}, 24)
  is(x[{2, 3, 4}], {}, 24)
  is(x[{1, {2, 3}, {}}], {2, 4}, {{5, 6, 7, 8}, {9, 10, 11, 12}})
  is(x[{"...", 1}], {2, 3}, {{1, 5, 9}, {13, 17, 21}})
  is(x[{2, "..."}], {3, 4})
  is(x[{{}, {}, {-2, -1}}], {2, 3, 2})
  is(x[{1, 2, {1, 4, 2}}], {2}, {5, 7})
  is(x[{1, {3, 2}}], {0, 4})
  is(x[{}], {2, 3, 4})
end)

t.test("masks and index lists", function()
  local x = iota(2, 3, 4)
  is(x[x:gt(21)], {3}, {22, 23, 24})
  is(x[pg.tensor({false, true})], {1, 3, 4})
  is(x[pg.tensor({{false, true, false}, {false, false, false}})], {1, 4}, {{5, 6, 7, 8}})
  is(x[list(2, 2, -2)], {3, 3, 4})
  is(x[pg.tensor(2, {dtype = "int64"})], {3, 4})
  is(x[{1, list(2, -1), {1, 2}}], {2, 2}, {{5, 6}, {9, 10}})
  is(x[{{}, list(3, 1), 1}], {2, 2}, {{9, 1}, {21, 13}})
end)

t.test("several index lists read one coordinate each", function()
  -- Values: torch 2.15.
  local x = iota(2, 3, 4)
  is(x[{list(1, 2), list(3, -2)}], {2, 4}, {{9, 10, 11, 12}, {17, 18, 19, 20}})
  is(x[{list(1, 2), list(3, 1), list(4, 1)}], {2}, {12, 13})
  is(x[{{}, list(1, 3), list(2, 4)}], {2, 2}, {{2, 12}, {14, 24}})
  is(x[{list(2, 1), {2, 3}, list(4, 2)}], {2, 2}, {{20, 24}, {6, 10}})
  is(x[{pg.tensor({{2}, {1}}, {dtype = "int32"}), 3, list(1, 4)}], {2, 2}, {{21, 24}, {9, 12}})
  is(x[{list(2), pg.tensor({true, false, true}), 1}], {2}, {13, 21})
  is(x[{pg.tensor({true, true}), pg.tensor({true, false, true})}], {2, 4}, {{1, 2, 3, 4}, {21, 22, 23, 24}})
  local one = pg.tensor(2, {dtype = "int64"})
  is(x[{one, {}, one}], {3}, {14, 18, 22})
  is(x[{one, {}, list(1, 2)}], {3, 2}, {{13, 14}, {17, 18}, {21, 22}})
  is(x[{"...", list(1, 2), pg.zeros({0, 1}, {dtype = "int64"})}], {2, 0, 2})
end)

t.test("assignment through several index lists", function()
  local x = iota(2, 3)
  x[{list(1, 2, 1), list(1, 3, 3)}] = pg.tensor{10, 20, 30}
  is(x, {2, 3}, {{10, 2, 30}, {4, 5, 20}})
  local y = pg.zeros(2, 2, 3)
  y[{list(2, 1), {}, list(3, 1)}] = pg.tensor{{1, 2}, {3, 4}}
  is(y, {2, 2, 3}, {{{3, 0, 0}, {4, 0, 0}}, {{0, 0, 1}, {0, 0, 2}}})
  y[{2, pg.tensor({false, true}), list(1, 2)}] = 7
  is(y, {2, 2, 3}, {{{3, 0, 0}, {4, 0, 0}}, {{0, 0, 1}, {7, 7, 2}}})
  y[{{}, {}, pg.tensor({true, false, true})}] = pg.tensor{{{5}, {6}}, {{8}, {9}}}
  is(y, {2, 2, 3}, {{{5, 0, 5}, {6, 0, 6}}, {{8, 0, 8}, {9, 7, 9}}})
end)

t.test("gradients and graphs of several index lists", function()
  local w, values = iota(2, 3):attach_grad(), pg.tensor{10, 20, 30}:attach_grad()
  local rows, columns = list(1, 2, 1), list(1, 3, 1)
  for _, f in ipairs{function(...) return ... end, pg.jit} do
    local read = f(function(x, i, j) return x[{i, j}] * pg.tensor{1, 2, 3} end)
    local write = f(function(x, v, i, j)
      x = x * 2
      x[{i, j}] = v
      return x
    end)
    pg.record(function() return read(w, rows, columns) end):backward()
    t.equal(w.grad:totable(), {{4, 0, 0}, {0, 0, 2}})
    pg.record(function() return write(w, values, rows, columns) end):backward{grad = iota(2, 3)}
    t.equal(w.grad:totable(), {{0, 4, 6}, {8, 10, 0}})
    t.equal(values.grad:totable(), {1, 6, 1})  -- as torch's, also for the value that is overwritten
    is(read(iota(3, 4), list(3, -1, 2), list(4, 1, 2)), {3}, {12, 18, 18})
    is(write(iota(3, 1), pg.ones(2), list(3, 1), list(1, 1)), {3, 1}, {{1}, {4}, {1}})
  end
end)

t.test("a graph is traced again for an index of another rank", function()
  local read = pg.jit(function(x, i) return x[i] end)
  local x = iota(3)
  is(read(x, pg.tensor(2, {dtype = "int64"})), {}, 2)
  is(read(x, list(2)), {1}, {2})
  is(read(x, pg.tensor({{2, 1}}, {dtype = "int64"})), {1, 2}, {{2, 1}})
  is(read(x, list(3, 3)), {2}, {3, 3})
end)

t.test("index lists and tensors without elements", function()
  local none, x = pg.zeros({2, 0}, {dtype = "int64"}), pg.zeros(3, 1):attach_grad()
  is(x[none], {2, 0, 1})
  is(pg.jit(function(a, i) return a[i] end)(x, none), {2, 0, 1})
  is(pg.zeros(3, 3, 0)[{2, pg.ones({2, 2}, {dtype = "int64"})}], {2, 2, 0})
  pg.record(function() return x[none]:sum() end):backward()
  is(x.grad, {3, 1}, {{0}, {0}, {0}})
end)

t.test("assignment through every key", function()
  local y = pg.zeros(2, 3)
  y[1] = 5
  is(y, {2, 3}, {{5, 5, 5}, {0, 0, 0}})
  y[{2, {1, 2}}] = pg.tensor{7, 8}
  is(y, {2, 3}, {{5, 5, 5}, {7, 8, 0}})
  y[y:gt(6)] = -1
  is(y, {2, 3}, {{5, 5, 5}, {-1, -1, 0}})
  y[list(2)] = 3
  is(y, {2, 3}, {{5, 5, 5}, {3, 3, 3}})
  y[{{}, list(1, 3)}] = pg.tensor{{1, 2}}
  is(y, {2, 3}, {{1, 5, 2}, {1, 3, 2}})
  y[{{}, {1, 3, 2}}] = pg.tensor{{0}, {9}}
  is(y, {2, 3}, {{0, 5, 0}, {9, 3, 9}})
  y[y:lt(4)] = pg.tensor{10, 20, 30}
  is(y, {2, 3}, {{10, 5, 20}, {9, 30, 9}})
  y[pg.tensor({true, false})] = pg.tensor{1, 2, 3}
  is(y, {2, 3}, {{1, 2, 3}, {9, 30, 9}})
  y[{}] = 4
  is(y, {2, 3}, {{4, 4, 4}, {4, 4, 4}})
  local d = pg.zeros({2}, {dtype = "float64"})
  d[1] = 0.1
  is(d, {2}, {0.1, 0})
  local b = pg.zeros({2}, {dtype = "bool"})
  b[2] = true
  is(b, {2}, {false, true})
end)

t.test("other tensors keep their elements", function()
  local x = iota(2, 3)
  local whole, row, turned = x:reshape(6), x[1], x:t()
  x[1] = 0
  is(x, {2, 3}, {{0, 0, 0}, {4, 5, 6}})
  is(whole, {6}, {1, 2, 3, 4, 5, 6})
  is(row, {3}, {1, 2, 3})
  is(turned, {3, 2}, {{1, 4}, {2, 5}, {3, 6}})
  for i = 1, 3 do x[{2, i}] = x[{2, i}] * 2 end
  is(x, {2, 3}, {{0, 0, 0}, {8, 10, 12}})
end)

t.test("bad keys and values are errors that do not change the tensor", function()
  local x = iota(2, 3)
  local function stays()
    is(x, {2, 3}, {{1, 2, 3}, {4, 5, 6}})
  end
  local function bad(key, text, depends_on_values)
    t.error_contains(function() return x[key] end, text)
    t.error_contains(function() x[key] = 1 end, text)
    if depends_on_values and t.device ~= "cpu" then x = iota(2, 3) end  -- a write that fails late leaves no value
    stays()
  end
  bad(3, "index from 1 to 2 or -2 to -1")
  bad(0, "got 0")
  bad(1.5, "1.5")
  bad(0 / 0, "nan")
  bad({1, 1, 1}, "at most 2")
  bad({1, {3, 1}}, "range")
  bad({{1, 2, 0}}, "step")
  bad({{1, 4}}, "range")
  bad({"...", "..."}, "once")
  bad(list(3), "got 3 at position 1", true)
  bad({list(1, 2), list(1, 2, 3)}, "a shape that broadcasts with the other indices, 2")
  bad({list(1), list(4)}, "from 1 to 3 or -3 to -1, got 4", true)
  t.error_contains(function() return x[{pg.tensor(true), list(1)}] end, "a mask of at least 1 dim beside")
  bad(pg.tensor({true, false, true}), "mask")
  t.error_contains(function() return x.no_such_field end, "no_such_field")
  t.error_contains(function() x[1] = pg.ones(4) end, "broadcasts to 3")
  t.error_contains(function() x[1] = "text" end, "value")
  t.error_contains(function() x[1] = nil end, "value")
  t.error_contains(function() x[1][1] = 5 end, "x[{1, 2}] = 5")
  t.error_contains(function() x[1]:add_(1) end, "clone()")
  t.error_contains(function() list(1)[1] = 0.5 end, "int64")
  stays()
  t.error_contains(function() x[x:gt(3)] = pg.ones(2) end, "3 rows")
  if t.device == "cpu" then stays() end
end)

t.test("gradients flow through reads and writes", function()
  local w = iota(2, 3):attach_grad()
  pg.record(function()
    local v = w * 1
    v[1] = 0
    v[{2, {1, 2}}] = w[{1, {2, 3}}] * 10
    return v:sum()
  end):backward()
  t.equal(w.grad:totable(), {{0, 10, 10}, {0, 0, 1}})
  pg.record(function() return w[w:gt(2)]:sum() + w[list(1, 1)]:sum() end):backward()
  t.equal(w.grad:totable(), {{2, 2, 3}, {1, 1, 1}})
  local m = pg.tensor({true, false})
  pg.record(function()
    local v = w * 2
    v[m] = w[2]
    return (v * pg.tensor{1, 2, 3}):sum()
  end):backward()
  t.equal(w.grad:totable(), {{0, 0, 0}, {3, 6, 9}})
end)

t.test("reads and writes by long masks agree with loops over the elements", function()
  for _, dtype in ipairs{"uint8", "float16", "float32", "int64"} do
    for _, width in ipairs{1, 2, 3} do
      local n = 1100
      local x = pg.randint(0, 99, {n, width}):to(dtype)
      local mask = pg.rand(n):lt(0.4)
      local chosen, rows = mask:totable(), x:totable()
      local picked, places = {}, {}
      for i = 1, n do
        if chosen[i] then
          picked[#picked + 1] = rows[i]
          places[#places + 1] = i
        end
      end
      local values = pg.randint(0, 99, {#picked, width}):to(dtype)
      local function written(value, row_of)
        local y = x:clone()
        y[mask] = value
        local expected = x:totable()
        for k, i in ipairs(places) do expected[i] = row_of(k) end
        t.equal(y:totable(), expected, dtype .. " " .. width)
      end
      t.equal(x[mask]:totable(), picked, dtype .. " " .. width)
      local list_of_values = values:totable()
      written(values, function(k) return list_of_values[k] end)
      written(values[1], function() return values[1]:totable() end)
      written(7, function() return pg.full({width}, 7):totable() end)
      if width == 1 then
        local line, wanted = x:reshape{-1}, x:reshape{-1}:totable()
        local scattered = line:masked_scatter(mask, values:reshape{-1})
        for k, i in ipairs(places) do wanted[i] = list_of_values[k][1] end
        t.equal(scattered:totable(), wanted, dtype)
        line = line:clone()
        line[mask] = 7
        for _, i in ipairs(places) do wanted[i] = 7 end
        t.equal(line:totable(), wanted, dtype)
      end
    end
  end
end)

t.test("the gradient of masked_scatter is 0 past the elements that it took", function()
  local mask, source = pg.rand(3000):lt(0.5), pg.randn(2990):attach_grad()
  local taken = mask:to("int64"):sum():item()
  pg.record(function() return (pg.zeros(3000):masked_scatter(mask, source) * pg.range(1, 3000)):sum() end):backward()
  t.equal(source.grad[{{1, taken}}], pg.range(1, 3000)[mask])
  t.equal(source.grad[{{taken + 1, -1}}], pg.zeros(2990 - taken))
end)

t.test("a mask selects from a 0-dim tensor", function()
  local x = pg.tensor(5)
  t.equal(x[x:gt(3)], pg.tensor{5})
  t.equal(x[x:gt(7)].shape, {0})
  x[x:gt(7)] = 1
  t.equal(x, pg.tensor(5))
  x[x:gt(3)] = 0
  t.equal(x, pg.tensor(0))
  t.error_contains(function() return x[1] end, "a 0-dim tensor has no elements to select")
end)

t.test("messages about positions show what the dim allows", function()
  local x = pg.zeros(3, 4)
  t.error_contains(function() return x[{{}, {1, 4, 1.5}}] end, "expected a step of at least 1, got number 1.5")
  t.error_contains(function() return x[{{}, {1.5, 4}}] end, "expected a range from 1 to 4 or -4 to -1 in a dim of size 4")
  t.error_contains(function() return x[4] end, "expected an index from 1 to 3 or -3 to -1 in a dim of size 3, got 4")
  t.error_contains(function() return pg.zeros(0, 3)[1] end, "expected no index in a dim of size 0, got 1")
end)

t.test("a function with a graph returns indexing reads as plain Lua does", function()
  local function first(x) return x[1], x * 2, {x:select(1, 2), x[{{1, 2}}]} end
  local block = pg.nn.block{forward = function(_, x) return first(x) end}
  block:hybridize()
  local inner = pg.jit(first)
  for form, run in pairs{eager = first, jit = pg.jit(first), block = block, nested = pg.jit(function(x) return inner(x) end)} do
    for _ = 1, 2 do
      local x = pg.ones(2, 2)
      local row, double, parts = run(x)
      for _, y in ipairs{row, parts[1], parts[2]} do
        t.error_contains(function() y:add_(1) end, "the result of an indexing read")
        t.equal(y:clone():add_(1), y + 1, form)
      end
      t.equal(double:add_(1), pg.full({2, 2}, 3), form)
      t.equal(x, pg.ones(2, 2), form)
    end
  end
end)
