-- Regression tests of control flow.
local t = require "tests.support"
local pg = require "perigee"
local nn = pg.nn
local control = require "tests.control"

t.test("a jitted function returns the .grad that it computed", function()
  local x = pg.tensor{1, 2}:attach_grad()
  local step = pg.jit(function(k)
    pg.record(function() return (x * x * k):sum() end):backward()
    return x.grad
  end)
  for k = 1, 3 do t.equal(step(pg.tensor(k)), pg.tensor{2 * k, 4 * k}) end
  local read = pg.jit(function() return x.grad end)
  for k = 1, 3 do
    x.grad:fill_(k)
    t.equal(read(), pg.full({2}, k))
  end
end)

t.test("imported graphs draw the same numbers as the network they come from", function()
  local net = nn.block{drop = nn.Dropout(0.5), forward = function(self, x)
    local outs, h = pg.foreach(function(row, s)
      local y = self.drop(row + s)
      return y * pg.rand(8), y
    end, x, pg.zeros(8))
    return outs + h
  end}
  net:initialize()
  net:hybridize()
  local x = pg.ones(5, 8)
  net(x)
  local folder = t.temporary_folder and t.temporary_folder() or os.tmpname()
  local json, weights = net:export(folder .. "_model")
  local imported = nn.SymbolBlock.imports(json, nil, weights)
  local function draw(f)
    pg.manual_seed(7)
    return pg.record(function() return f(x) end)
  end
  local expected = draw(net)
  t.equal(draw(imported), expected)
  imported:hybridize()
  t.equal(draw(imported), expected)
  local outer = pg.jit(function(v) return imported(v) end)
  t.equal(draw(outer), expected)
  os.remove(json)
  os.remove(weights)
  os.remove(folder)
end)

t.test("numbers as states and variables and a changing count need no new trace", function()
  local enter, entered = control.counter()
  for k = 1, 20 do
    local outs, last = pg.foreach(function(x, s) enter() return x * s, s + x end, pg.ones(3), k + 0.5)
    t.equal(last, pg.tensor(k + 3.5))
    t.equal(outs, pg.tensor{k + 0.5, k + 1.5, k + 2.5})
  end
  t.check(entered() <= 1, entered() .. " traces for states")
  enter, entered = control.counter()
  for k = 1, 20 do
    local _, vars, n = pg.while_loop(function(i) return i:lt(30) end, function(i, h) enter() return nil, {i + 1, {a = h.a * 1, b = h.b}} end, {k, {a = k, b = 0.5}})
    t.equal({vars, n}, {{pg.tensor(30, {dtype = "int64"}), {a = pg.tensor(k, {dtype = "int64"}), b = pg.tensor(0.5)}}, pg.tensor(30 - k, {dtype = "int64"})})
  end
  t.check(entered() <= 1, entered() .. " traces for variables")
  enter, entered = control.counter()
  local w = pg.tensor{2, 3}:attach_grad()
  for k = 0, 20 do
    local y = pg.record(function() return pg.loop(k, function(i, s) enter() return s * 0.5 + w * i end, pg.ones(2)) end)
    y:backward()
    local expected = pg.debug(function() return pg.loop(k, function(i, s) return s * 0.5 + w * i end, pg.ones(2)) end)
    t.close(y, expected)
    local slope = 0
    for i = 1, k do slope = slope * 0.5 + i end
    t.close(w.grad, pg.full({2}, slope))
  end
  t.check(entered() <= 5, entered() .. " traces for counts")
end)

t.test("functions that bodies call are closures made anew at each call", function()
  local enter, entered = control.counter()
  local function run(k, weight)
    local scale = {weight = weight}
    local function inner(x) return x * scale.weight + k end
    local function cell(x, s) return inner(x) + s end
    return pg.foreach(function(x, s) enter() local y = cell(x, s) return y, y end, pg.ones(2), pg.zeros{})
  end
  local shift = pg.tensor(1)
  for k = 1, 20 do
    local outs, last = run(shift, pg.tensor(k))
    t.equal({outs, last}, {pg.tensor{k + 1, 2 * k + 2}, pg.tensor(2 * k + 2)})
  end
  t.check(entered() <= 3, entered() .. " traces")
  -- the result depends on which of two functions of the same code calls the other
  local function make(w) return function(x, other) return other and other(x) * w or x * w end end
  for k = 1, 8 do
    local a, b = make(pg.tensor(k)), make(pg.tensor(10 * k))
    local f, g = a, b
    if k % 2 == 0 then f, g = b, a end
    if k % 3 == 0 then g = f end
    local got = (pg.foreach(function(x) return f(x, g) end, pg.ones(1)))
    local first, second = k % 2 == 0 and 10 * k or k, k % 2 == 0 and k or 10 * k
    if k % 3 == 0 then second = first end
    t.equal(got, pg.tensor{first * second})
  end
end)

t.test("two branches may assign one variable or two", function()
  local function run(share, p)
    local a, b = pg.tensor(1), pg.tensor(1)
    local function add() a = a + 1 end
    local function other() b = b * 5 end
    if share then
      other = function() a = a * 5 end
    end
    pg.cond(pg.tensor(p), add, other)
    return a, b
  end
  t.equal({run(true, true)}, {pg.tensor(2), pg.tensor(1)})
  t.equal({run(true, false)}, {pg.tensor(5), pg.tensor(1)})
  t.equal({run(false, true)}, {pg.tensor(2), pg.tensor(1)})
  t.equal({run(false, false)}, {pg.tensor(1), pg.tensor(5)})
end)

t.test("code that is loaded again and again leaves a bounded number of graphs", function()
  t.skip_in("gcstress", "hundreds of traces")
  local function load_some(n)
    for k = 1, n do
      local body = assert(loadstring("return function(x, s) return s * " .. k .. ", s + x end"))()
      pg.foreach(body, pg.ones(2), pg.zeros{})
    end
    collectgarbage() collectgarbage()
    return collectgarbage("count")
  end
  load_some(600)
  local before = load_some(600)
  local after = load_some(600)
  t.check(after - before < 1500, ("%.0f KB of Lua more"):format(after - before))
end)

t.test("pg.debug checks counts as graphs do", function()
  local function f(_, s) return s * 2 end
  pg.debug(function()
    t.equal(pg.loop(pg.tensor(true), f, pg.ones(2)), pg.full({2}, 2))
    t.error_contains(function() pg.loop(pg.tensor{3}, f, pg.ones(2)) end, "count")
  end)
end)

local function each_way(name, f)
  for _, way in ipairs{"eager", "jit", "debug"} do
    t.test(name .. ", " .. way, function()
      f(function(g)
        if way == "jit" then return pg.jit(g)() end
        if way == "debug" then return pg.debug(g) end
        return g()
      end)
    end)
  end
end

each_way("bodies write in place to boxes of their own", function(run)
  local xs, s0, w = pg.tensor{1, 2, 3}, pg.zeros(2), pg.zeros(2)
  local outs, last = run(function()
    return pg.foreach(function(x, s)
      x:mul_(2)
      s:add_(x)
      w:add_(1)
      return w, s
    end, xs, s0)
  end)
  t.equal({outs, last, xs, s0, w}, {pg.tensor{{1, 1}, {2, 2}, {3, 3}}, pg.full({2}, 12), pg.tensor{1, 2, 3}, pg.zeros(2), pg.full({2}, 3)})
  local kept = run(function() return pg.loop(2, function() return w end, s0) end)
  kept:add_(1)
  local taken = run(function() return pg.cond(w:sum():gt(0), function() return w end, function() return s0 end) end)
  taken:add_(1)
  t.equal({kept, taken, w}, {pg.full({2}, 4), pg.full({2}, 4), pg.full({2}, 3)})
end)

t.test("a condition that assigns a tensor from outside is an error", function()
  local n, holder = pg.zeros{}, {n = pg.zeros{}}
  local function count(condition) return pg.while_loop(condition, function(i) n = n * 1 return nil, i + 1 end, {0}) end
  for _, way in ipairs{pg.jit, function(f) return f end} do
    t.error_contains(way(function() count(function(i) n = n + 1 return i:lt(3) end) end), "the condition assigns upvalue 'n'")
    t.error_contains(way(function() count(function(i) holder.n = holder.n + 1 return i:lt(3) end) end), "the condition assigns")
    t.equal({n, holder.n}, {pg.zeros{}, pg.zeros{}})
  end
end)

t.test("an error leaves everything as before where each call makes a graph", function()
  t.may_warn("runs as plain Lua from now on")
  local acc, n = pg.zeros{}, pg.zeros{}
  local holder = {n = n}
  for k = 1, 20 do
    local function body(x, s)
      n, holder.n = n + x, holder.n * 2
      acc:add_(1)
      pg.assert(x:lt(3), "too large")
      return x * k, s
    end
    t.error_contains(function() pg.foreach(body, pg.tensor{1, 2, 3}, 0) end, "too large")
    t.error_contains(function() pg.foreach(function(x) n = n + x * k error("stop") end, pg.tensor{1, 2, 3}) end, "stop")
    t.equal({acc, n, holder.n}, {pg.zeros{}, pg.zeros{}, pg.zeros{}})
  end
end)

t.test("errors that are not strings pass through bodies", function()
  local thing = {}
  local function fail() error(thing) end
  local x = pg.ones(2)
  for _, f in ipairs{
    function() pg.foreach(fail, x) end,
    function() pg.loop(2, function() return pg.loop(2, fail, x) end, x) end,
    function() pg.cond(pg.tensor(true), fail, function() return x end) end,
    function() pg.while_loop(fail, function() return nil, x end, {x}) end,
  } do
    for _, way in ipairs{pg.jit, function(g) return g end, function(g) return function() pg.debug(g) end end} do
      local ok, e = pcall(way(f))
      t.check(not ok and rawequal(e, thing), tostring(e))
    end
  end
end)

t.test("the caller of a jitted function can differentiate what it recorded", function()
  local w = pg.tensor{1, 2}:attach_grad()
  local recorded = pg.jit(function(v) return pg.record(function() return pg.loop(2, function(_, s) return s * v end, v):sum() end), v * 2 end)
  for _ = 1, 3 do
    local y, twice = recorded(w)
    y:backward()
    t.equal({y, w.grad, twice}, {pg.tensor(9), pg.tensor{3, 12}, pg.tensor{2, 4}})
  end
  local used = pg.jit(function(v)
    local y = pg.record(function() return (v * v):sum() end)
    y:backward()
    return y
  end)
  for _ = 1, 2 do t.error_contains(function() used(w):backward() end, "backward") end
end)

each_way("loops in parts draw what they draw as a whole", function(run)
  local x, w = pg.range(1, 22):reshape{11, 2} / 22, pg.tensor{0.5, 0.7}:attach_grad()
  local function body(row, s)
    local y = (row * w + s):tanh():dropout(0.4) + pg.rand(2) * 0.1
    return y * s, y
  end
  local programs = {
    function(o) local outs, h = pg.foreach(body, x, pg.ones(2), o) return outs:sum() + (h * h):sum() end,
    function(o) return pg.loop(11, function(i, s) return (body(x[i], s)) end, pg.ones(2), o):sum() end,
    function(o) return pg.loop(pg.tensor(7), function(i, s) return (body(x[i], s)) end, pg.ones(2), o):sum() end,
    function(o)
      o = {max_iterations = 10, checkpoint = o and o.checkpoint}
      local outs, vars = pg.while_loop(function(i) return (i + pg.rand{} * 0.5):lt(9) end, function(i, s)
        local out, h = body(x[i], s)
        return out, {i + 1, h}
      end, {1, pg.ones(2)}, o)
      return outs:sum() + vars[2]:sum()
    end,
    function(o)
      return (pg.foreach(function(row, s)
        local h = pg.loop(5, function(_, u) return (body(row, u)) end, s, o)
        return h, h
      end, x[{{1, 5}}], pg.ones(2), o)):sum()
    end,
  }
  for k, program in ipairs(programs) do
    local function measure(options)
      w.grad:zero_()
      pg.manual_seed(k)
      local y = pg.record(function() return run(function() return program(options) end) end)
      y:backward()
      return y, w.grad:clone(), pg.rand(2)
    end
    local y, slope, after = measure(nil)
    for _, size in ipairs{1, 2, 3, 5, 20} do
      local y2, slope2, after2 = measure{checkpoint = size}
      t.close(y2, y)
      t.close(slope2, slope)
      t.equal(after2, after)
    end
  end
end)

t.test("the second gradient of a loop in parts draws the same numbers", function()
  local x = pg.tensor{0.5, 0.7}
  local function second(options)
    pg.manual_seed(3)
    return pg.grad(function(u) return pg.grad(function(v)
      return pg.loop(7, function(_, s) return (s * v):sin() + pg.rand(2) * v * 0.1 end, v, options):sum()
    end)(u):sum() end)(x)
  end
  local whole = second()
  for _, size in ipairs{2, 3} do t.close(second{checkpoint = size}, whole) end
end)

t.test("many blocks of one class keep one graph each while they live", function()
  t.skip_in("gcstress", "many traces")
  local enter, entered = control.counter()
  local Layer = nn.HybridBlock:extend("Layer")
  function Layer:init(scale) self.scale = pg.param{shape = {1}, init = pg.init.Constant(scale)} end
  function Layer:forward(x)
    return (pg.foreach(function(row, s)
      enter()
      local y = row * self.scale + s
      return y, y
    end, x, pg.zeros(2)))
  end
  local dead = setmetatable({}, {__mode = "k"})
  local function run(count)
    local layers = {}
    for k = 1, count do
      layers[k] = Layer(k)
      layers[k]:initialize()
      dead[layers[k]] = true
    end
    for _ = 1, 4 do
      for k, layer in ipairs(layers) do t.equal(layer(pg.ones(3, 2)), pg.tensor{{k, k}, {2 * k, 2 * k}, {3 * k, 3 * k}}) end
    end
  end
  run(30)
  t.check(entered() <= 90, entered() .. " entries for 30 blocks")
  for _ = 1, 3 do run(5) end
  for _ = 1, 3 do collectgarbage() end
  local left = 0
  for _ in pairs(dead) do left = left + 1 end
  t.check(left <= 8, left .. " of 45 blocks are held")
end)

t.test("bodies that return too many values are errors", function()
  local x = pg.ones(3)
  for _, way in ipairs{pg.jit, function(f) return f end, function(f) return function() return pg.debug(f) end end} do
    t.error_contains(way(function() return pg.foreach(function(a, s) return a, s, s end, x, x) end), "foreach: the body returned 3 values (expected outputs and states)")
    t.error_contains(way(function() return pg.loop(2, function(_, s) return s, s * 2 end, x) end), "loop: the body returned 2 values (expected the state)")
    t.error_contains(way(function()
      return pg.while_loop(function(i) return i:lt(3) end, function(i, s) return nil, {i + 1, s}, s end, {0, x})
    end), "while_loop: the body returned 3 values (expected outputs and the list of variables)")
    local outs = way(function() return (pg.foreach(function(a) return a, nil, nil end, x)) end)()
    t.equal(outs, x)
  end
end)
