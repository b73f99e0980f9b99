-- Numbers as states, variables and branch results of the combinators: they are weak, in all modes.
local t = require "tests.support"
local pg = require "perigee"

local v = pg.tensor{0.5, 1.5}
local floats = {"float16", "bfloat16", "float32", "float64"}

-- Runs f(v) eagerly, in debug, in jit (twice) and in a hybridized block, and returns each as text with dtypes.
local function in_all_ways(f, x)
  local function text(...)
    local out = {}
    for k, y in ipairs((pg.tree.flatten{...})) do
      out[k] = ("%s %s"):format(y.dtype, y:dim() == 0 and tostring(y:item()) or table.concat(y:totable(), ","))
    end
    return table.concat(out, "; ")
  end
  local jitted, net = pg.jit(f), pg.nn.block{forward = function(_, y) return f(y) end}
  net:initialize()
  net:hybridize()
  jitted(x)
  return {eager = text(f(x)), debug = text(pg.debug(f, x)), jit = text(jitted(x)), hybrid = text(net(x))}
end

local function gives(f, expected, x)
  for way, got in pairs(in_all_ways(f, x or v)) do t.equal(got, expected, way) end
end

t.test("a number as the first state takes the dtype that the body gives back", function()
  gives(function(x) return pg.foreach(function(a, s) s = s + a return s, s end, x, 0) end, "float32 0.5,2; float32 2")
  gives(function() return pg.loop(3, function(_, s) return s * 0.5 end, 1) end, "float32 0.125")
  gives(function() return pg.loop(0, function(_, s) return s * 0.5 end, 1) end, "float32 1")
  gives(function()
    local _, vars = pg.while_loop(function(i) return i:lt(3) end, function(i) return nil, i + 0.5 end, {1})
    return vars
  end, "float32 3")
  gives(function()
    return pg.while_loop(function(i) return i:lt(3) end, function(i, s) return s, {i + 1, s * 0.5} end, {0, 1}, {max_iterations = 4})
  end, "float32 1,0.5,0.25,0; int64 3; float32 0.125; int64 3")
  gives(function() return pg.loop(3, function(_, s) return {a = s.b * 0.5, b = s.a} end, {a = 1, b = 2}) end, "float32 0.5; float32 0.5")
  gives(function(x)
    return pg.loop(2, function(_, s) return pg.loop(2, function(_, u) return u + x:sum() end, 1) + s end, 1)
  end, "float32 11")
end)

t.test("a number as the first state takes every dtype of floats, with its own precision", function()
  for _, dtype in ipairs(floats) do
    gives(function(x) return (select(2, pg.foreach(function(a, s) return a, s + a end, x, 0))) end, dtype .. " 2", v:to(dtype))
  end
  gives(function(x) return (select(2, pg.foreach(function(a, s) return a, s + a * 0 end, x, 0.1))) end, "float64 0.1", v:to("float64"))
end)

t.test("a number as the first state stays int64, or float32, where nothing decides", function()
  gives(function() return pg.loop(3, function(_, s) return s + 1 end, 1) end, "int64 4")
  gives(function() return pg.loop(3, function(_, s) return s end, 0.5) end, "float32 0.5")
end)

t.test("a number as the first state takes a dtype of integers that can hold it", function()
  local bytes = pg.tensor({7, 8}, {dtype = "uint8"})
  local function shifted(first)
    return function(x) return pg.foreach(function(a, s) return s, a end, x, first) end
  end
  gives(shifted(3), "uint8 3,7; uint8 8", bytes)
  t.error_contains(shifted(300), "foreach: bad argument 'states' (expected a number that uint8 can hold)", bytes)
  t.error_contains(pg.jit(shifted(300)), "foreach: the body changed the type of states (expected int64 scalar", bytes)
  t.error_contains(shifted(0.5), "foreach: the body changed the type of states (expected float32 scalar", bytes)
end)

t.test("a tensor as the first state keeps its dtype; a number that the body returns takes it", function()
  for _, run in ipairs{function(f, ...) return f(...) end, pg.debug, function(f, ...) return pg.jit(f)(...) end} do
    t.error_contains(run, "foreach: the body changed the type of states (expected int64 scalar", function(x)
      return pg.foreach(function(a, s) return s, s + a end, x, pg.tensor(0, {dtype = "int64"}))
    end, v)
  end
  gives(function(x) return (select(2, pg.foreach(function(a) return a, 0 end, x, pg.tensor(3)))) end, "float32 0")
  gives(function() return pg.loop(2, function() return 0.5 end, 1) end, "float32 0.5")
end)

t.test("the number of a branch takes the dtype of the other branch", function()
  local function branches(a, b)
    return function(x)
      local function pick(value)
        return function()
          if type(value) == "function" then return value(x) end
          return value
        end
      end
      return {pg.cond(x:sum():gt(0), pick(a), pick(b)), pg.cond(x:sum():lt(0), pick(a), pick(b))}
    end
  end
  local function sum(x) return x:sum() end
  gives(branches(1, 2.5), "float32 1; float32 2.5")
  gives(branches(1.5, 2), "float32 1.5; float32 2")
  gives(branches(1, 2), "int64 1; int64 2")
  for _, dtype in ipairs(floats) do
    gives(branches(1, sum), dtype .. " 1; " .. dtype .. " 2", v:to(dtype))
    gives(branches(sum, 1), dtype .. " 2; " .. dtype .. " 1", v:to(dtype))
  end
  gives(branches(1, function(x) return x:sum():gt(0) end), "bool true; bool true")
  gives(function(x)
    return pg.cond(x:sum():gt(0), function() return {1, b = 2.5} end, function() return {0.5, b = 1} end)
  end, "float32 1; float32 2.5")
  t.error_contains(branches(1.5, function() return pg.tensor(1, {dtype = "int64"}) end),
                   "cond: the branches return different types (then_f[1]: float32 scalar", v)
end)

t.test("a trace with a weak number serves another dtype after one more trace", function()
  local f = pg.jit(function(x) return (select(2, pg.foreach(function(a, s) return a, s + a end, x, 0))) end)
  t.equal(f(v).dtype, "float32")
  t.equal(f(v:to("float64")).dtype, "float64")
  t.equal(f(pg.ones(5)):item(), 5)
  t.equal(f:cache_info().traces, 2)
end)

t.test("gradients flow through a weak state", function()
  local w = pg.tensor{1, 2, 3}:attach_grad()
  local y = pg.record(function() return (select(2, pg.foreach(function(a, s) return a, s * a + 1 end, w, 1))) end)
  y:backward()
  t.equal(y:item(), 16)
  t.equal(w.grad:totable(), {6, 6, 5})
end)

t.test("a body with a weak state prints once and assigns once when it is traced", function()
  local out = t.run([[-e 'local steps = 0
    pg.foreach(function(a, s) steps = steps + 1 print("step") return a, s + a end, pg.ones(3), 0)
    pg.cond(pg.tensor(1), function() print("then") return 1 end, function() return 2.5 end)
    print(steps)']])
  t.equal(out, "step\nthen\n1\n")
end)

t.test("weak states and branch results export", function()
  local net = pg.nn.block{forward = function(_, x)
    local _, s = pg.foreach(function(a, sum) sum = sum + a return sum, sum end, x, 0)
    return s + pg.cond(x:sum():gt(0), function() return 1 end, function() return 2.5 end)
  end}
  net:initialize()
  net:hybridize()
  net(v)
  local path = os.tmpname()
  net:export(path)
  local back = pg.nn.SymbolBlock.imports(path .. ".json", {"data"}, path .. ".safetensors")
  t.equal(back(v):item(), 3)
  t.equal(back(-v):item(), 0.5)
  for _, ending in ipairs{"", ".json", ".safetensors"} do os.remove(path .. ending) end
end)
