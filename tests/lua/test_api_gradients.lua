-- Section 3 of the script API, one test per claim.
local t = require "tests.support"
local pg = require "perigee"
local nan = 0 / 0

local function T(v, dtype) return pg.tensor(v, dtype and {dtype = dtype}) end
local function square_sum(w) return pg.record(function() return (w * w):sum() end) end

t.test("attach_grad, record, backward, grad", function()
  local w = pg.randn(3)
  t.check(w:attach_grad() == w)
  t.equal(w.grad, pg.zeros(3))
  square_sum(w):backward()
  t.close(w.grad, w * 2)
  local a = T{1, 2}:attach_grad("add")
  square_sum(a):backward()
  square_sum(a):backward()
  t.equal(a.grad, T{4, 8})
  local n = T{1, 2}:attach_grad("null")
  local b = T{1}:attach_grad()
  pg.record(function() return (n * b):sum() end):backward()
  t.check(n.grad == nil)
  t.error_contains(function() return T{1}:attach_grad("ad") end, "attach_grad")
  t.error_contains(function() return T({1}, "int64"):attach_grad() end, "attach_grad")
end)

t.test("backward takes grad, retain_graph and create_graph", function()
  local w = T{1, 2}:attach_grad()
  local y = pg.record(function() return w * w end)
  y:backward{grad = T{1, 10}, retain_graph = true}
  t.equal(w.grad, T{2, 40})
  y:backward()
  t.equal(w.grad, T{2, 4})
  t.error_contains(function() y:backward() end, "retain_graph")
  t.error_contains(function() square_sum(w):backward{grad = T{1, 2}} end, "backward")
  t.error_contains(function() square_sum(w):backward{retain = true} end, "retain_graph")
  t.error_contains(function() T{1}:backward() end, "backward")
  pg.record(function()
    local z = (w * w * w):sum()
    z:backward{create_graph = true}
    local g = w.grad;
    (g * g):sum():backward()
  end)
  t.equal(w.grad, T{2 * 3 * 6, 2 * 12 * 12})
end)

t.test("autograd.grad does not change .grad, and nests", function()
  local w = T{1, 2}:attach_grad()
  local y = pg.record(function() return (w * w * w):sum() end)
  local g = pg.autograd.grad({y}, {w}, {create_graph = true})
  t.equal(g[1], T{3, 12})
  t.equal(w.grad, T{0, 0})
  local second = pg.record(function()
    local d = pg.autograd.grad({(w * w * w):sum()}, {w}, {create_graph = true})[1]
    return pg.autograd.grad({d:sum()}, {w})[1]
  end)
  t.equal(second, T{6, 12})
end)

t.test("scopes pass results, restore on error, nest", function()
  t.equal({pg.record(function() return 1, 2 end)}, {1, 2})
  pcall(pg.record, function() error("x") end)
  t.check(not pg.is_recording() and not pg.is_training())
  pg.record(function()
    t.check(pg.is_recording() and pg.is_training())
    pg.no_grad(function() t.check(not pg.is_recording() and pg.is_training()) end)
    pg.predict_mode(function() t.check(pg.is_recording() and not pg.is_training()) end)
    t.check(pg.is_training())
  end)
  pg.record(function() t.check(pg.is_recording() and not pg.is_training()) end, {train = false})
  pg.train_mode(function() t.check(not pg.is_recording() and pg.is_training()) end)
  local g = coroutine.wrap(function()
    pg.record(function() coroutine.yield(pg.is_recording()) return 1 end)
    coroutine.yield(pg.is_recording())
  end)
  t.check(g() == true and not pg.is_recording())
  t.check(g() == false)
  pg.record(function()
    local inner = coroutine.wrap(function() coroutine.yield(pg.is_recording()) end)
    t.check(inner() == true)
  end)
  t.bad_argument(function() pg.record(1) end, "record")
  t.bad_argument(function() pg.pause() end)
end)

t.test("heads and grads of autograd.backward", function()
  local w = T{1, 2}:attach_grad()
  local a, b = pg.record(function() return w * 2, (w * w):sum() end)
  pg.autograd.backward({a, b}, {T{1, 1}, T(10)})
  t.equal(w.grad, T{2 + 20, 2 + 40})
  a, b = pg.record(function() return w * 2, (w * w):sum() end)
  pg.autograd.backward({a, b})
  t.equal(w.grad, T{4, 6})
  a = pg.record(function() return w * 2 end)
  pg.autograd.backward(a, nil, {retain_graph = true})
  pg.autograd.backward(a)
end)

t.test("leaves without flow get exact zeros, other leaves keep their gradient", function()
  local w, u, v = T{1, nan}:attach_grad(), T{1, 2}:attach_grad(), T{1, 2}:attach_grad()
  v.grad = T{5, 5}
  u.grad = T{7, 7}
  pg.record(function() return (w * 2):detach():sum() + (u * 0):detach():sum() + u[1] end):backward()
  t.equal(u.grad, T{1, 0})
  t.equal(v.grad, T{5, 5})
  local a = T{3}:attach_grad()
  a.grad = T{9}
  pg.record(function() return a:floor():sum() end):backward()
  t.equal(a.grad, T{0})
end)

t.test("leaves may be written in place, except while recording", function()
  local w = T{1, 2}:attach_grad()
  w:add_(1)
  w[1] = 5
  t.equal(w, T{5, 3})
  square_sum(w):backward()
  t.equal(w.grad, T{10, 6})
  pg.record(function()
    t.error_contains(function() w:add_(1) end, "attach_grad")
    t.error_contains(function() w[1] = 1 end, "attach_grad")
    pg.pause(function() w:add_(1) end)
  end)
  t.equal(w, T{6, 4})
end)

t.test("grad and value_and_grad", function()
  local f = function(x, y) return (x * x * y):sum() end
  t.equal(pg.grad(f)(T{2}, T{3}), T{12})
  t.equal(pg.grad(f, 2)(T{2}, T{3}), T{4})
  local g = {pg.grad(f, {1, 2})(T{2}, T{3})}
  if #g == 1 then g = g[1] end
  t.equal(g, {T{12}, T{4}})
  local v, d = pg.value_and_grad(f)(T{2}, T{3})
  t.equal(v, T(12))
  t.equal(d, T{12})
  local tree = pg.grad(function(p) return (p.a * p.b[1]):sum() end)({a = T{2}, b = {T{3}}})
  t.equal(tree, {a = T{3}, b = {T{2}}})
  t.equal(pg.grad(pg.grad(pg.grad(function(x) return x ^ 4 end)))(T(2, "float64")), T(48, "float64"))
  t.error_contains(function() pg.grad(function(x) return x end)(T{1, 2}) end, "one element")
  t.error_contains(function() pg.grad(f, 3)(T{1}, T{1}) end, "argnum")
  t.error_contains(function() pg.grad(f, 0)(T{1}, T{1}) end, "argnum")
  t.equal(pg.grad(function(x) return (x * pg.pause(function() return x * 1 end)):sum() end)(T{3}), T{3})
end)

t.test("vjp and jvp", function()
  local y, back = pg.vjp(function(a, b) return a * b end, T{1, 2}, T{3, 4})
  t.equal(y, T{3, 8})
  local da, db = back(T{1, 1})
  t.equal({da, db}, {T{3, 4}, T{1, 2}})
  local z, dz = pg.jvp(function(a, b) return a * b end, {T{1, 2}, T{3, 4}}, {T{1, 0}, T{0, 1}})
  t.equal(z, T{3, 8})
  t.equal(dz, T{3, 2})
  local _, hv = pg.jvp(pg.grad(function(x) return (x * x * x):sum() end), {T{1, 2}}, {T{1, 1}})
  t.equal(hv, T{6, 12})
end)

t.test("a Function has its own gradient", function()
  local f = pg.autograd.Function{
    name = "triple",
    forward = function(ctx, x) ctx.saved = {x} return x * x end,
    backward = function(ctx, dy) return dy * ctx.saved[1] * 3 end,
  }
  local w = T{2}:attach_grad()
  pg.record(function() return f(w):sum() end):backward()
  t.equal(w.grad, T{6})
  local two = pg.autograd.Function{
    forward = function(_, x, y) return x + y, x * y end,
    backward = function(_, d1, d2) return d1, d2 end,
  }
  local a, b = T{1}:attach_grad(), T{1}:attach_grad()
  pg.record(function() local s, p = two(a, b) return s * 2 + p * 5 end):backward()
  t.equal({a.grad, b.grad}, {T{2}, T{5}})
  t.bad_argument(function() pg.autograd.Function{forward = function() end} end, "Function", "backward")
  local wrong = pg.autograd.Function{name = "wrong", forward = function(_, x) return x * 1 end,
                                     backward = function() return pg.ones(5) end}
  local v = T{1, 2}:attach_grad()
  t.bad_argument(function() pg.record(function() return wrong(v):sum() end):backward() end, "wrong", "gradient 1")
end)

-- As in PyTorch, a gradient of a shape that the input broadcasts to is summed, and its dtype is converted.
t.test("gradients of a Function have the shape of its inputs in each form", function()
  local x = T{1, 2, 3}
  local function forms(back)
    local f = pg.autograd.Function{name = "odd", forward = function(_, v, w) return v * w end,
                                   backward = function(_, dy) return back(dy), dy * 2 end}
    local function slope(v) return pg.grad(function(u) return f(u * 1, u):sum() end)(v) end
    local block = pg.nn.block{forward = function(_, v) return f(v * 1, x) end}
    block:hybridize()
    local function recorded(run)
      return function(v)
        local leaf = v:clone():attach_grad()
        pg.record(function() return run(leaf):sum() end):backward()
        return leaf.grad
      end
    end
    local function each(v) return (pg.foreach(function(row) return f(row, row) end, v:unsqueeze(1))) end
    local function either(v) return pg.cond(v:sum():gt(0), function() return f(v, v) end, function() return v end) end
    return {
      eager = slope, jit = pg.jit(slope), block = recorded(block), again = recorded(block),
      plain = recorded(function(v) return f(v, v) end),
      body = recorded(each), branch = recorded(either), body_jit = pg.jit(pg.grad(function(v) return each(v):sum() end)),
      checked = function(v) return pg.debug(slope, v) end,
    }
  end
  local wrong = {
    scalar = function(dy) return dy:sum() end, short = function(dy) return dy[{{1, 2}}] * 1 end,
    one = function(dy) return dy[{{1, 1}}] * 1 end,
    column = function(dy) return dy:unsqueeze(2):expand(3, 2) * 1 end,
  }
  for name, back in pairs(wrong) do
    for form, run in pairs(forms(back)) do
      for _ = 1, 2 do
        local e = t.bad_argument(function() return run(x) end, "odd", "gradient 1")
        t.check(e:find("expected a tensor of shape 3, got ", 1, true), name .. " " .. form .. ": " .. e)
      end
    end
  end
  local right = {
    same = function(dy) return dy end, row = function(dy) return dy:unsqueeze(1) end, other = function(dy) return dy:to("float64") end,
    rows = function(dy) return dy:expand(2, 3) / 2 end,
  }
  for name, back in pairs(right) do
    for form, run in pairs(forms(back)) do
      t.equal(run(x), pg.full({3}, (form == "block" or form == "again") and 1 or 3), name .. " " .. form)
    end
  end
end)

t.test("checkpoint recomputes in backward", function()
  local calls, w = 0, T{1, 2}:attach_grad()
  local f = function(x) calls = calls + 1 return (x * x):dropout(0.5) end
  pg.manual_seed(3)
  pg.record(function() return f(w):sum() end):backward()
  local want = w.grad:clone()
  calls = 0
  pg.manual_seed(3)
  local y = pg.record(function() return pg.checkpoint(f, w):sum() end)
  t.check(calls == 1)
  y:backward()
  t.check(calls == 2)
  t.equal(w.grad, want)
end)

t.test("detect_anomaly names the op and the line", function()
  local w = T{-1}:attach_grad()
  local e = t.error_contains(function()
    pg.autograd.detect_anomaly(function() return pg.record(function() return w:sqrt():sum() end) end)
  end, "sqrt")
  t.check(e:find("test_api_gradients.lua:%d"), e)
  local z = T{0}:attach_grad()
  e = t.error_contains(function()
    pg.autograd.detect_anomaly(function() pg.record(function() return (z:sqrt() * 0):sum() end):backward() end)
  end, "made a NaN")
  t.check(e:find("test_api_gradients.lua:%d"), e)
end)
