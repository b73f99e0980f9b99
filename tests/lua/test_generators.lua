-- Explicit generators draw the numbers that the default one would: in pg.checkpoint, in pg.debug, in traced functions.
local t = require "tests.support"
local pg = require "perigee"

-- Returns what run(generator, options) gives with the default generator and with one of its own, which starts alike.
local function with_both(run)
  pg.manual_seed(5)
  local default = {run(nil)}
  default[#default + 1] = pg.rand(2)
  local generator = pg.Generator(5)
  local own = {run(generator)}
  own[#own + 1] = pg.rand(2, {generator = generator})
  return default, own
end

t.test("a checkpoint draws the same numbers again", function()
  local w = pg.linspace(-1, 1, 36):reshape{6, 6}
  local function gradients(generator, wrap)
    local x, v = pg.linspace(-1, 2, 18):reshape{3, 6}:attach_grad(), w:clone():attach_grad()
    local function f(a) return a:matmul(v):tanh():dropout(0.4, {generator = generator}):matmul(v) end
    local y = pg.record(function() return wrap(f, wrap(f, x)) end)
    y:backward()
    return y:detach(), x.grad, v.grad
  end
  local function plain(f, x) return f(x) end
  local function nested(f, x) return pg.checkpoint(function(a) return pg.checkpoint(f, a) * 2 end, x) / 2 end
  local expected = with_both(function(generator) return gradients(generator, plain) end)
  local function jitted(f, x) return pg.checkpoint(pg.jit(f), x) end
  for _, wrap in ipairs{pg.checkpoint, nested, jitted} do
    for _, found in ipairs{with_both(function(generator) return gradients(generator, wrap) end)} do
      for i, x in ipairs(expected) do t.close(found[i], x) end
    end
  end
end)

t.test("a checkpoint draws the numbers of an imported graph again", function()
  local generator = pg.Generator(4)
  local net = pg.nn.block{forward = function(_, x) return x * pg.rand(3, {generator = generator}) end}
  net(pg.ones(3))
  local path = t.tmp("generators")
  local imported = pg.nn.SymbolBlock.imports(net:export(path), nil, path .. ".safetensors")
  local w = pg.ones(3):attach_grad()
  local y = pg.record(function() return pg.checkpoint(imported, w) end)
  y:backward()
  t.equal(w.grad, y)
end)

t.test("later backward calls of a checkpoint draw the same numbers too", function()
  local function second(generator, wrap)
    local x = pg.linspace(-1, 2, 15):attach_grad()
    local function f(a) return a:sin():dropout(0.4, {generator = generator}) ^ 3 end
    local y = pg.record(function() return wrap(f, wrap(f, x)):sum() end)
    y:backward{retain_graph = true}
    local first = x.grad:clone()
    y:backward()
    t.equal(x.grad, first)
    pg.record(function()
      local g = pg.autograd.grad({wrap(f, wrap(f, x)):sum()}, {x}, {create_graph = true})[1]
      return (g * g):sum()
    end):backward()
    return first, x.grad
  end
  local expected = with_both(function(generator) return second(generator, function(f, x) return f(x) end) end)
  for _, found in ipairs{with_both(function(generator) return second(generator, pg.checkpoint) end)} do
    for i, x in ipairs(expected) do t.close(found[i], x) end
  end
end)

t.test("a checkpoint leaves generators that it seeds or makes as a plain call does", function()
  local generator = pg.Generator(1)
  local function f(x)
    generator:seed(3)
    return x:dropout(0.5, {generator = generator}):dropout(0.5, {generator = pg.Generator(4)}) * pg.rand(8)
  end
  local function run(call)
    pg.manual_seed(2)
    local x = pg.ones(8):attach_grad()
    local y = pg.record(function() return call(f, x) end)
    pg.rand(1, {generator = generator})
    y:backward()
    return {y:detach(), x.grad, pg.rand(1), pg.rand(1, {generator = generator})}
  end
  t.equal(run(pg.checkpoint), run(function(g, x) return g(x) end))
end)

t.test("a checkpoint that fails again gives the generators back", function()
  local generator, fail = pg.Generator(1), false
  local x = pg.ones(3):attach_grad()
  local y = pg.record(function()
    return pg.checkpoint(function(a)
      a = a * pg.rand(3, {generator = generator})
      if fail then error("again") end
      return a
    end, x)
  end)
  pg.rand(1, {generator = generator})
  local _, tick = generator:state()
  fail = true
  t.error_contains(function() y:backward() end, "again")
  t.equal(select(2, generator:state()), tick)
end)

t.test("pg.debug draws the numbers of graphs", function()
  local function bodies(generator)
    local options = {generator = generator}
    local outs, s = pg.foreach(function(x, s)
      local r = pg.rand({2}, options) + pg.loop(2, function(_, a) return a + pg.rand({2}, options) end, x)
      return r, s + r:sum()
    end, pg.zeros(3, 2), 0)
    local _, vars = pg.while_loop(function(i) return (i + pg.rand({}, options)):lt(2.5) end,
                                  function(i, a) return a, {i + 1, a + pg.rand({}, options)} end, {0, s}, {max_iterations = 6})
    local drawn = pg.cond(s:gt(0), function() return pg.rand({2}, options) end, function() return pg.ones(2) end)
    local kept = pg.cond(s:lt(0), function() return pg.rand({2}, options) end, function() return pg.ones(2) end)
    return outs, s, vars[2], drawn, kept
  end
  local expected, own = with_both(bodies)
  for i, x in ipairs(own) do t.equal(x, expected[i], "result " .. i) end
  for _, found in ipairs{with_both(function(generator) return pg.debug(bodies, generator) end)} do
    for i, x in ipairs(expected) do t.close(found[i], x, {what = "result " .. i}) end
  end
end)

t.test("bodies advance only the generators that they draw from", function()
  local function run(wrap)
    local g, h = pg.Generator(4), pg.Generator(5)
    pg.manual_seed(3)
    local f = wrap(function()
      return pg.cond(pg.tensor(false), function() return pg.rand(1, {generator = g}) end, function()
        return pg.loop(4, function(i, s)
          return s + pg.cond(i:gt(2), function() return pg.rand(1, {generator = h}) end, function() return pg.rand(1) end)
        end, pg.rand(1, {generator = g}))
      end)
    end)
    return {f(), f(), pg.rand(1), pg.rand(1, {generator = g}), pg.rand(1, {generator = h})}
  end
  local expected = run(function(f) return f end)
  t.close(run(pg.jit), expected)
  t.close(run(function(f) return function() return pg.debug(f) end end), expected)
end)

t.test("pg.warm_up changes no generator", function()
  local generator = pg.Generator(4)
  pg.warm_up(function() return pg.rand(1, {generator = generator}) end)
  t.equal(pg.rand(1, {generator = generator}), pg.rand(1, {generator = pg.Generator(4)}))
end)

-- Functions that no graph can repeat: why, and one that draws from the generator.
local unrepeatable = {
  ["makes a Generator"] = function(_, x) return x + pg.rand(2, {generator = pg.Generator(3)}) end,
  ["seeds a Generator"] = function(generator, x)
    local before = pg.rand(2, {generator = generator})
    return x + before * 10 + pg.rand(2, {generator = generator:seed(7)})
  end,
  ["sets the state of a Generator"] = function(generator, x)
    generator:set_state(7, 2)
    return x + pg.rand(2, {generator = generator})
  end,
  ["reads the state of a Generator"] = function(generator, x) return x + select(2, generator:state()) + pg.rand(2, {generator = generator}) end,
  ["seeds random numbers"] = function(_, x)
    local before = pg.rand(2)
    pg.manual_seed(7)
    return x + before * 10 + pg.rand(2)
  end,
}

for why, draw in pairs(unrepeatable) do
  t.test("a traced function runs as plain Lua if it " .. why, function()
    local function run(wrap)
      local generator = pg.Generator(2)
      pg.manual_seed(5)
      local f, seen = wrap(function(x) return draw(generator, x) end), {}
      for i = 1, 3 do seen[i] = f(pg.zeros(2)) end
      return seen
    end
    local function as_block(f)
      local net = pg.nn.block{forward = function(_, x) return f(x) end}
      net:hybridize()
      return net
    end
    local function repeated(f) return function(x) return pg.loop(2, function(_, h) return f(h) end, x) end end
    local function debugged(f) return function(x) return pg.debug(f, x) end end
    local function check(expected, wrap)
      t.warns("runs as plain Lua from now on: it " .. why, function() t.equal(run(wrap), expected) end)
    end
    local expected = run(debugged)
    t.equal(run(function(f) return f end), expected)
    check(expected, pg.jit)
    check(expected, as_block)
    check(run(function(f) return debugged(repeated(f)) end), repeated)
  end)
end
