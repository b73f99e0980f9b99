-- The number of results of split, chunk and unbind is part of a graph. Other sizes with the same number of results run
-- the graph; others are traced again or, where there is no script to trace, refused.
local t = require "tests.support"
local pg = require "perigee"
local nn = pg.nn

t.may_warn("traced again for the third time")

local kRows = {6, 4, 2, 8, 6, 5, 1}

local function rows(n) return pg.range(1, 3 * n, {dtype = "float32"}):reshape{n, 3} end

-- The pieces of each op that are read: the first, the last, and the number of pieces.
local cuts = {
  split = function(x) return x:split(2, 1) end,
  chunk = function(x) return x:chunk(5, 1) end,
  unbind = function(x) return x:unbind(1) end,
}

local function ends(cut)
  return function(x)
    local pieces = cut(x)
    return pieces[1] * 2, pieces[#pieces] + #pieces
  end
end

for name, cut in pairs(cuts) do
  local f = ends(cut)

  t.test(name .. ": a jitted function follows the number of pieces", function()
    local jitted = pg.jit(f)
    for _, n in ipairs(kRows) do
      local x = rows(n)
      local a, b = jitted(x)
      local c, d = pg.debug(f, x)
      t.equal(a, c)
      t.equal(b, d)
    end
  end)

  t.test(name .. ": a piece that is not there is an error of the script", function()
    local jitted = pg.jit(function(x) return cut(x)[3] * 2 end)
    t.equal(jitted(rows(6)), cut(rows(6))[3] * 2)
    t.error_contains(function() jitted(rows(2)) end, "arithmetic on")
    t.equal(jitted(rows(8)), cut(rows(8))[3] * 2)
  end)

  t.test(name .. ": the number alone, without any piece", function()
    local jitted = pg.jit(function(x) return x * #cut(x) end)
    for _, n in ipairs{0, 6, 4, 0, 2, 8} do
      local x = pg.ones(n, 3)
      t.equal(jitted(x), x * #cut(x))
    end
    for _, n in ipairs{6, 0} do
      local block, x = nn.block{forward = function(_, x) return pg.full({2}, #cut(x)) end}, pg.ones(n, 3)
      block:hybridize()
      t.equal(block(x), pg.full({2}, #cut(x)))
      local back = nn.SymbolBlock.imports((block:export(t.tmp("counted"))))
      t.equal(back(x), block(x))
      t.error_contains(function() back(pg.ones(7, 3)) end, "outputs of " .. name)
    end
  end)

  t.test(name .. ": a hybridized block follows it", function()
    local block = nn.block{forward = function(_, x) return f(x) end}
    block:hybridize()
    for _, n in ipairs(kRows) do
      local a, b = block(rows(n))
      local c, d = f(rows(n))
      t.equal(a, c)
      t.equal(b, d)
    end
  end)

  t.test(name .. ": bodies of branches and loops follow it", function()
    local yes = pg.tensor(true)
    local forms = {
      cond = function(x) return pg.cond(yes, function() return select(2, f(x)) end, function() return select(2, f(x)) * 0 end) end,
      foreach = function(x)
        return (pg.foreach(function(item, state) return item, state + select(2, f(x)):sum() end, pg.zeros(2), pg.zeros{}))
      end,
      final = function(x)
        return select(2, pg.foreach(function(item, state) return item, state + select(2, f(x)):sum() end, pg.zeros(2), pg.zeros{}))
      end,
      while_loop = function(x)
        return select(2, pg.while_loop(function(i) return i:lt(2) end,
          function(i, s) return {}, {i + 1, s + select(2, f(x)):sum()} end, {pg.zeros{}, pg.zeros{}}, {max_iterations = 3}))[2]
      end,
      rows = function(x)  -- slices that are cut again
        return (pg.foreach(function(item, state) return cut(item)[1] + #cut(item), state end, x:unsqueeze(1):tile{2, 1, 1}, pg.zeros{}))
      end,
    }
    for form, g in pairs(forms) do
      local jitted = pg.jit(g)
      for _, n in ipairs(kRows) do
        local want = pg.debug(g, rows(n))
        t.equal(g(rows(n)), want, form)
        t.equal(jitted(rows(n)), want, form)
      end
    end
  end)

  t.test(name .. ": gradients of both orders follow it", function()
    local function energy(x)
      local a, b = f(x)
      return (a ^ 3):sum() + (b ^ 3):sum()
    end
    local jitted = pg.jit(energy)
    for _, n in ipairs(kRows) do
      local function taken(g)
        local x = rows(n) / 10
        x:attach_grad()
        local first, again
        pg.record(function()
          first = pg.autograd.grad(g(x), {x}, {create_graph = true})[1]
          again = pg.autograd.grad((first ^ 2):sum(), {x})[1]
        end)
        return first, again
      end
      local a, b = taken(energy)
      local c, d = taken(jitted)
      t.close(c, a)
      t.close(d, b)
    end
  end)

  t.test(name .. ": exports, frozen graphs and symbols refuse another number", function()
    local block = nn.block{forward = function(_, x) return f(x) end}
    block:hybridize()
    block(rows(4))
    local json, tensors = block:export(t.tmp("pieces"))
    local count = #cut(rows(4))
    local frozen, data = block:freeze(), pg.symbol("data", {shape = {4, 3}})
    local composed = pg.graph({f(data)}, data)
    local runs = {
      import = nn.SymbolBlock.imports(json, nil, tensors),
      frozen = function(x) return frozen:run(x) end,
      symbol = nn.SymbolBlock((f(data)), data),
      composed = function(x) return unpack(composed:run(x)) end,
    }
    for way, g in pairs(runs) do
      for _, n in ipairs(kRows) do
        if #cut(rows(n)) == count then
          local want = {f(rows(n))}
          local got = {g(rows(n))}
          for k = 1, #got do t.equal(got[k], want[k], way) end
        else
          t.error_contains(function() g(rows(n)) end, ("got %d outputs of %s, now there are %d"):format(count, name, #cut(rows(n))))
        end
      end
    end
  end)
end

t.test("files: a missing guard or one with another number is refused", function()
  local block = nn.block{forward = function(_, x) return x:split(2, 1)[2] end}
  block:hybridize()
  block(pg.ones(4, 3))
  local json = block:export(t.tmp("guards"))
  local function changed(pattern, by)
    local text, count = t.read(json):gsub(pattern, by)
    t.equal(count, 1)
    return nn.SymbolBlock.imports(t.write(t.tmp("changed.json"), text))
  end
  local bare = changed('{[^{}]*"kind":"outputs"[^{}]*}', "")  -- like files from before such guards existed
  t.equal(bare(rows(4)), rows(4):split(2, 1)[2])
  t.error_contains(function() bare(rows(2)) end, "got 2 outputs of split, now there are 1")
  t.error_contains(function() changed('("kind":"outputs","value":)2', "%13") end, "a guard expects 3 outputs of a node that has 2")
  t.error_contains(function() changed('"of":1(,"kind":"outputs")', '"of":[1,3]%1') end, "a guard of a node that does not exist")
end)

t.test("a list of results may be longer than Lua's stack", function()
  t.skip_in("gcstress", "thousands of results")
  local pieces = pg.jit(function(x) return x:unbind(1) end)
  for _, n in ipairs{100, 20000, 20000} do
    local list = pieces(pg.range(1, n))
    t.equal(#list, n)
    t.equal(list[n], pg.tensor(n))
  end
end)

t.test("more outputs than an op of a graph can have are an error that says so", function()
  t.skip_in("gcstress", "thousands of results")
  local empty, flag = pg.zeros(0, 2 ^ 20), pg.ones(1)
  t.equal(#empty:split(8, 2), 2 ^ 17)
  for name, cut in pairs{unbind = function() return empty:unbind(2) end, split = function() return empty:split(1, 2) end,
                         chunk = function() return empty:chunk(1e6, 2) end} do
    local expected = name .. ": %d outputs are more than an op in a graph can have (65536); use larger pieces"
    expected = expected:format(name == "chunk" and 2 ^ 19 or 2 ^ 20)
    t.error_contains(pg.jit(cut), expected)
    t.error_contains(function() pg.cond(flag, cut, cut) end, expected)
  end
end)
