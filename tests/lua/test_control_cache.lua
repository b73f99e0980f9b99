-- Repeated calls of combinators: what is traced again, what is not, effects inside bodies, coroutines, scopes and
-- memory.
local t = require "tests.support"
local control = require "tests.control"
local pg = require "perigee"

local function int(x) return pg.tensor(x, {dtype = "int64"}) end
local each = control.test

t.test("a body whose trace is cached is not entered", function()
  local enter, entered = control.counter()
  local scale = {}
  local function scaled(xs)
    return (pg.foreach(function(x)
      enter()
      return x * scale.by
    end, xs))
  end
  for k = 1, 30 do
    scale.by = pg.tensor(k)
    t.equal(scaled(pg.ones(k)), pg.full({k}, k))
  end
  t.check(entered() <= 3, entered() .. " entries")
  local function number(by, xs)
    return (pg.foreach(function(x)
      enter()
      return x * by
    end, xs))
  end
  local before = entered()
  for _ = 1, 10 do
    for by = 1, 3 do t.equal(number(by, pg.ones(2)), pg.full({2}, by)) end
  end
  t.check(entered() - before <= 6, entered() - before .. " entries for three numbers")
end)

t.test("two blocks of one class, called in turn, have one trace each", function()
  local enter, entered = control.counter()
  local Net = pg.nn.HybridBlock:extend("Net")
  function Net:init(units) self.dense = pg.nn.Dense(units, {in_units = units}) end
  function Net:forward(xs)
    return (pg.foreach(function(x)
      enter()
      return self.dense(x)
    end, xs))
  end
  local a, b = Net(3), Net(3)
  a:initialize()
  b:initialize()
  local x = pg.rand(4, 2, 3)
  for _ = 1, 10 do
    t.close(a(x)[2], a.dense(x[2]))
    t.close(b(x)[3], b.dense(x[3]))
  end
  t.check(entered() <= 6, entered() .. " entries")
end)

t.test("the Lua values that a body reads are never stale", function()
  local config, factor, mode = {gain = 2, names = {"a"}}, 3, "double"
  local function transform(x) return mode == "double" and x * 2 or x end
  local function run(xs)
    return (pg.foreach(function(x)
      local y = transform(x) * factor
      for _ = 1, #config.names do y = y * config.gain end
      if config.extra then y = y + config.extra end
      return y
    end, xs))
  end
  local function expect(v) t.equal(run(pg.ones(2)), pg.full({2}, v)) end
  expect(12)
  config.gain = 5 expect(30)
  factor = 1 expect(10)
  mode = "single" expect(5)
  config.names[2] = "b" expect(25)
  config.extra = 1 expect(26)
  config.extra = pg.tensor(2) expect(27)
  config.extra = nil expect(25)
  transform = function(x) return x * 7 end
  expect(175)
  config = {gain = 1, names = {}} expect(7)
end)

t.test("tensors that closures reach are read at each call", function()
  local box, own = {w = pg.ones(2)}, pg.ones(2)
  local function run() return pg.loop(2, function(_, s) return s * box.w + own end, pg.ones(2)) end
  t.equal(run(), pg.tensor{3, 3})
  box.w = pg.full({2}, 2)
  t.equal(run(), pg.tensor{7, 7})
  own = pg.zeros(2)
  t.equal(run(), pg.tensor{4, 4})
  box.w = own
  t.equal(run(), pg.tensor{0, 0})
  box.w, own = pg.ones(2, 2), pg.ones(1)
  t.error_contains(run, "loop")
  box.w = pg.ones(2)
  t.equal(run(), pg.tensor{3, 3})
  box.w = pg.ones(2):to("float64")
  t.error_contains(run, "float64")
end)

t.test("gradients reach tensors that begin to require one", function()
  local w = pg.full({2}, 3)
  local function run() return pg.loop(2, function(_, s) return s * w end, pg.ones(2)) end
  t.check(not pg.record(run).requires_grad)
  w:attach_grad()
  local y = pg.record(run)
  y:backward()
  t.equal(w.grad, pg.tensor{6, 6})
  t.check(not run().requires_grad)
  t.check(not pg.record(function() return pg.pause(run) end).requires_grad)
  w.grad_req = "null"
  local plain = pg.record(function() return pg.ones(2) * w * w end)
  t.equal(pg.record(run).requires_grad, plain.requires_grad)
  pg.record(run):backward()
  w.grad_req = "write"
  t.equal(w.grad, pg.tensor{0, 0})
  pg.record(run):backward()
  t.equal(w.grad, pg.tensor{6, 6})
end)

t.test("training and recording flags inside of bodies", function()
  local function run() return pg.foreach(function(x) return pg.is_training() and x * 2 or x, pg.is_recording() and x * 3 or x end, pg.ones(2), 1.0) end
  local function probe() return (pg.foreach(function(x) return {pg.is_training() and x * 2 or x, pg.is_recording() and x * 3 or x} end, pg.ones(2))) end
  t.check(pcall(run) or true)
  t.equal(probe(), {pg.ones(2), pg.ones(2)})
  t.equal(pg.train_mode(probe), {pg.full({2}, 2), pg.ones(2)})
  t.equal(pg.record(probe), {pg.full({2}, 2), pg.full({2}, 3)})
  t.equal(pg.record(probe, {train = false}), {pg.ones(2), pg.full({2}, 3)})
  t.equal(probe(), {pg.ones(2), pg.ones(2)})
end)

t.test("closures and caches are collected", function()
  local dead = setmetatable({}, {__mode = "k"})
  for k = 1, 50 do
    local big = {}
    local w = pg.full({4}, k)
    local function body(_, s) return big and s * w end
    dead[body], dead[big], dead[w] = true, true, true
    pg.loop(2, body, pg.ones(4))
  end
  for _ = 1, 3 do collectgarbage() end
  local left = 0
  for _ in pairs(dead) do left = left + 1 end
  t.check(left <= 12, left .. " of 150 are held")
end)

t.test("memory stays bounded over many shapes, prototypes and calls", function()
  t.skip_in("gcstress", "a thousand traces")
  t.skip_in("guard", "canaries count as memory")
  local function run(n) return pg.loop(3, function(_, s) return (s * 0.5):tanh() end, pg.ones(n)) end
  local function round()
    for n = 1, 120 do run(n * 7) end
    for k = 1, 60 do
      local f = assert(loadstring("local pg = ... return function(x) return pg.loop(2, function(_, s) return s * " .. k .. " end, x) end"))(pg)
      f(pg.ones(100))
    end
    collectgarbage() collectgarbage()
    return pg.memory().live, collectgarbage("count")
  end
  round()
  local live, lua = round()
  local live2, lua2 = round()
  t.check(live2 - live < 2 ^ 20, ("%d bytes more"):format(live2 - live))
  t.check(lua2 - lua < 600, ("%.0f KB of Lua more"):format(lua2 - lua))
end)

t.test("recorded loops without backward do not accumulate memory", function()
  t.skip_in("guard", "canaries count as memory")
  local w = pg.ones(1000):attach_grad()
  local function run() return pg.record(function() return pg.loop(20, function(_, s) return (s * w):tanh() end, pg.ones(1000)) end) end
  run()
  collectgarbage() collectgarbage()
  local before = pg.memory().live
  for _ = 1, 200 do run() end
  collectgarbage() collectgarbage()
  t.check(pg.memory().live - before < 2 ^ 20, pg.memory().live - before)
end)

each("effects inside of bodies: tap and print at each step that runs", function(wrap)
  local seen = {}
  local f = wrap(function(v)
    local _, vars = pg.while_loop(function(i) return i:lt(v.n) end, function(i, s)
      i:tap(function(x) seen[#seen + 1] = x:item() end)
      return nil, {i + 1, s + i}
    end, {0, 0})
    local y = pg.cond(v.n:gt(2), function() v.n:tap(function() seen[#seen + 1] = "many" end) return vars[2] * 1 end,
                      function() v.n:tap(function() seen[#seen + 1] = "few" end) return vars[2] * 2 end)
    return {y}
  end)
  for _, n in ipairs{3, 0, 1} do f{n = int(n)} end
  t.equal(seen, {0, 1, 2, "many", "few", 0, "few"})
end)

t.test("an error in a tap inside of a body", function()
  local w = pg.zeros(1)
  local function run(limit)
    return pg.loop(5, function(i, s)
      w:add_(1)
      i:tap(function(x) if x:item() > limit then error("no further") end end)
      return s + 1
    end, 0)
  end
  for _ = 1, 2 do
    t.error_contains(run, "no further", 3)
    t.equal(w, pg.tensor{0})
  end
  t.equal(run(9), int(5))
  t.equal(w, pg.tensor{5})
end)

t.test("combinators in coroutines, generators and pcall", function()
  local gen = coroutine.wrap(function()
    for k = 1, 3 do coroutine.yield(pg.loop(k, function(i, s) return s * i end, 1)) end
  end)
  t.equal({gen(), gen(), gen()}, {int(1), int(2), int(6)})
  local co = coroutine.create(function() pg.foreach(function(x) coroutine.yield(1) return x end, pg.ones(2)) end)
  local ok, e = coroutine.resume(co)
  t.check(ok == false and type(e) == "string" or coroutine.status(co) == "dead", tostring(e))
  t.equal(pg.loop(2, function(_, s) return s + 1 end, 0), int(2))
end)

t.test("pg.scope frees what loops made except their results", function()
  local outs, s = pg.scope(function()
    local a = pg.ones(4) * 2
    return pg.foreach(function(x, u) return x * u, u + a:sum() end, a, 1.5)
  end)
  t.equal(outs, pg.tensor{3, 19, 35, 51})
  t.equal(s, pg.tensor(33.5))
  for _ = 1, 3 do
    local y = pg.scope(function() return pg.loop(3, function(_, u) return u * 2 end, pg.ones(2)) end)
    t.equal(y, pg.full({2}, 8))
  end
end)

t.test("pg.live in a body is read before each run", function()
  t.skip_in("device", "pg.live gives tensors of the host")
  local rate = 1
  local f = pg.jit(function(s) return pg.loop(3, function(_, u) return u + pg.live(function() return rate end) end, s) end)
  t.equal(f(pg.zeros(1)), pg.tensor{3})
  rate = 2
  t.equal(f(pg.zeros(1)), pg.tensor{6})
  t.equal(f:cache_info().traces, 1)
end)

t.test("hits of jitted functions with combinators do not enter Lua for any number of steps", function()
  local enter, entered = control.counter()
  local f = pg.jit(function(xs, n, s)
    enter()
    local outs, last = pg.foreach(function(x, u) return x * u, u + 1 end, xs, s)
    local _, vars = pg.while_loop(function(i) return i:lt(n) end, function(i, u) return nil, {i + 1, u * 2} end, {0, last})
    return outs, pg.cond(n:gt(2), function() return vars[2] end, function() return vars[2] * 0 end)
  end)
  for k = 1, 12 do
    local outs, y = f(pg.ones(k), int(k % 5), pg.tensor(1))
    t.equal(outs, pg.range(1, k))
    t.equal(y, pg.tensor(k % 5 > 2 and (k + 1) * 2 ^ (k % 5) or 0))
  end
  t.check(entered() <= 2, entered() .. " entries")
  t.equal(f:cache_info().traces, 1)
end)

t.test("a hundred steps and a thousand calls agree with one", function()
  local w = pg.randn(6, 6):to("float64") * 0.3
  local function run(xs, h) return pg.foreach(function(x, s) s = (x + s:matmul(w)):tanh() return s, s end, xs, h) end
  local xs, h = pg.randn(100, 2, 6):to("float64"), pg.zeros({2, 6}, {dtype = "float64"})
  local outs, last = run(xs, h)
  local s = h
  for k = 1, 100 do
    local o
    o, s = run(xs[{{k, k}}], s)
    t.close(o[1], outs[k], {rtol = 1e-12, atol = 1e-13})
  end
  t.close(s, last, {rtol = 1e-12, atol = 1e-13})
end)

each("descent inside of a loop: pg.grad and writes to a parameter", function(wrap)
  local w = pg.zeros(2):attach_grad()
  local f = wrap(function(v)
    return {pg.loop(20, function()
      local l, g = pg.value_and_grad(function(u) return ((u - v.target) ^ 2):sum() end)(w)
      w:sub_(g * 0.25)
      return l
    end, pg.tensor(0.5))}
  end)
  local y = f{target = pg.tensor{3, -1}}
  t.check(y[1]:item() < 1e-6, tostring(y[1]:item()))
  t.close(w, pg.tensor{3, -1}, {atol = 1e-3})
  t.check(w.requires_grad)
end)

each("backward to a tensor from outside the body is an error that names the alternative", function(wrap, way)
  if way == "debug" then return end
  local w = pg.ones(2):attach_grad()
  local f = wrap(function(v)
    return {pg.loop(2, function(_, s)
      pg.record(function() return (w * v.x):sum() end):backward()
      return s
    end, v.x)}
  end)
  t.error_contains(f, "pg.grad", {x = pg.ones(2)})
  t.equal(w.grad, pg.zeros(2))
end)

t.test("checkpointed loops take other sizes and dtypes without a new trace", function()
  t.skip_in("hybrid", "one kind of graph is enough")
  local w = pg.tensor{0.5, 0.25, 2}
  local loops = {
    loop = function(a, o) return pg.loop(5, function(i, s) return (s * w + i):sin() end, a, o) end,
    foreach = function(a, o)
      local _, s = pg.foreach(function(x, s) return s, (s * x):sin() * w end, pg.stack{a, a * 2, a * 3, a, a}, a, o)
      return s
    end,
    while_loop = function(a, o)
      o = {max_iterations = 7, checkpoint = o and o.checkpoint}
      local _, s = pg.while_loop(function(i) return i:lt(5) end, function(i, s) return s, {i + 1, (s * w):cos()} end, {pg.tensor(0), a}, o)
      return s[2]
    end,
  }
  for name, loop in pairs(loops) do
    local function gradient(o)
      return function(a)
        local x = a:detach():attach_grad()
        local y = pg.record(function() return loop(x, o):square():sum() end)
        return y, pg.autograd.grad({y}, {x})[1]
      end
    end
    local plain, jitted = gradient(), pg.jit(gradient{checkpoint = 2})
    for _, n in ipairs{4, 2, 5, 1} do
      local a = pg.range(1, 3 * n):reshape{n, 3} * 0.1
      local y, g = plain(a)
      local y2, g2 = jitted(a)
      t.close(y2, y, {what = name})
      t.close(g2, g, {what = name})
    end
    t.equal(jitted:cache_info().traces, 1, name)
  end
end)
