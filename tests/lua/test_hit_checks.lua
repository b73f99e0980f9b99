-- A graph that was traced with other types refuses the same arguments as the eager op, with the same message.
local t = require "tests.support"
local pg = require "perigee"
local T = pg.tensor

-- f runs once with `good`, then fails with `bad` like plain Lua: jitted, in a separate eager call, and in a function
-- that was traced with the bad arguments first. Nothing is written.
local function refuses(name, f, good, bad, text)
  t.test(name, function()
    local function attempt(g, arguments)
      local a = arguments()
      local before = {}
      for i, x in ipairs(a) do before[i] = x:clone() end
      local ok, e = pcall(g, unpack(a))
      for i, x in ipairs(a) do
        t.equal(x.shape, before[i].shape)
        t.equal(x.dtype, before[i].dtype)
        if not ok then t.equal(x:totable(), before[i]:totable()) end
      end
      return ok, ok and "" or tostring(e)
    end
    local jitted = pg.jit(f)
    for _, g in ipairs{f, jitted, pg.jit(f)} do
      if g ~= f then t.check(attempt(g, good)) end
      for _ = 1, 2 do
        local ok, e = attempt(g, bad)
        t.check(not ok and e:find((text:gsub("cpu", t.device)), 1, true), ("expected %s, got %s"):format(text, ok and "no error" or e))
      end
      t.check(attempt(g, good))
    end
  end)
end

local function add(x, y) x:add_(y) return y * 1 end
local function pair(a, b) return function() return {a(), b()} end end
local function scalar() return T(1) end
local function ones(...)
  local shape = {...}
  return function() return pg.ones(unpack(shape)) end
end

refuses("a result of another shape", add, pair(ones(2, 3), ones(3)), pair(ones(3), ones(2, 3)),
  "add_: bad argument 'x' (expected a tensor of type float32 2x3 cpu to hold the result, got float32 3 cpu)")
refuses("a result of another dtype", add, pair(ones(2), ones(2)), pair(ones(2, {dtype = "int64"}), ones(2)),
  "add_: bad argument 'x' (expected a tensor of type float32 2 cpu to hold the result, got int64 2 cpu)")
refuses("a write to an indexing read", add, pair(ones(2), ones(2)), pair(function() return pg.ones(2, 2)[1] end, ones(2)),
  "add_: this tensor is the result of an indexing read")
refuses("a write whose outcome nobody uses", function(x, y) local z = x * 1; z:add_(y) return y * 1 end,
  pair(ones(2, 3), ones(3)), pair(ones(3), ones(2, 3)), "add_: bad argument 'x'")
refuses("a leaf of integers", function(x) local y = (x * 1):attach_grad() return y * 1 end, pair(ones(2), ones(2)),
  pair(ones(2, {dtype = "int64"}), ones(2)), "attach_grad: bad argument 'x' (expected a tensor of a floating dtype")
refuses("a predicate of two elements", function(p, x)
  return pg.cond(p, function() return x end, function() return x * 2 end)
end, pair(ones(1), ones(2)), pair(ones(2), ones(2)), "cond: bad argument 'pred' (expected a tensor of one element")
refuses("a predicate of none", function(p, x)
  return pg.cond(p, function() return x end, function() return x * 2 end)
end, pair(scalar, ones(2)), pair(ones(0), ones(2)), "cond: bad argument 'pred' (expected a tensor of one element")
refuses("a condition of two elements", function(x, y)
  local _, s = pg.while_loop(function(v) return v:lt(4) end, function(v) return nil, v * 2 end, {x}, {max_iterations = 3})
  return s[1] * y
end, pair(ones(1), ones(1)), pair(ones(2), ones(1)), "while_loop: bad argument 'cond' (expected a tensor of one element")
refuses("a count of two elements", function(n, x) return pg.loop(n, function(_, v) return v * 2 end, x) end,
  pair(scalar, ones(2)), pair(ones(2), ones(2)), "loop: bad argument 'count'")

t.test("a leaf while recording, and a gradient of another type", function()
  for _, wrap in ipairs{function(f) return f end, pg.jit} do
    local f = wrap(function(x) x:add_(1) return x * 1 end)
    f(pg.ones(2))
    local a = pg.ones(2):attach_grad()
    f(a)
    t.error_contains(function() pg.record(function() return f(a) end) end,
      "add_: a tensor with attach_grad cannot change in place inside pg.record")
    t.equal(a:totable(), {2, 2})
    local w = pg.ones(2):attach_grad()
    local g = wrap(function(x, y) x.grad = y return x * 1 end)
    g(w, T{3, 4})
    t.error_contains(function() g(w, pg.ones(3)) end, "grad: bad argument 'value' (expected a tensor of type float32 2 " .. t.device)
    t.equal(w.grad:totable(), {3, 4})
  end
end)

t.test("numbers and tensors are written to every dtype that can represent them", function()
  local write = pg.jit(function(y) y[{1}] = 7 return y * 1 end)
  local mask = pg.jit(function(y) y[y:gt(0)] = 0 return y * 1 end)
  local store = pg.jit(function(y, v) y[{1}] = v return y * 1 end)
  for _, dtype in ipairs{"float32", "int64", "float64", "uint8", "float32"} do
    local o = {dtype = dtype}
    t.equal(write(pg.ones(2, o)):totable(), {7, 1})
    t.equal(mask(pg.ones(2, o)):totable(), {0, 0})
    t.equal(store(pg.ones(2, o), pg.ones(1, {dtype = "uint8"}) * 5):totable(), {5, 1})
  end
  local fraction = pg.jit(function(y) y[{1}] = 0.5 return y * 1 end)
  t.equal(fraction(pg.ones(2)):totable(), {0.5, 1})
  t.error_contains(function() fraction(pg.ones(2, {dtype = "int64"})) end, "index: bad argument 'value'")
end)
