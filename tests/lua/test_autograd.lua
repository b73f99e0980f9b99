local t = require "tests.support"
local pg = require "perigee"

local function f64(x) return pg.tensor(x, {dtype = "float64"}) end
local function cube(x) return (x * x * x):sum() end

t.test("record, backward, grad", function()
  local w = pg.tensor({1, 2, 3}):attach_grad()
  t.equal(w.grad, pg.zeros(3))
  local y = pg.record(function() return (w * w):sum() end)
  y:backward()
  t.equal(w.grad, pg.tensor({2, 4, 6}))
  t.check(w.requires_grad and y.requires_grad)
  t.check(not (w * w).requires_grad, "nothing is recorded outside pg.record")
end)

t.test("results of record pass through, errors restore the modes", function()
  local a, b, c = pg.record(function() return 1, nil, 3 end)
  t.check(a == 1 and b == nil and c == 3)
  t.error_contains(function() pg.record(function() error("boom") end) end, "boom")
  t.check(not pg.is_recording() and not pg.is_training())
end)

t.test("recording and training are two flags that nest", function()
  pg.record(function()
    t.check(pg.is_recording() and pg.is_training())
    pg.pause(function() t.check(not pg.is_recording() and pg.is_training()) end)
    pg.predict_mode(function() t.check(pg.is_recording() and not pg.is_training()) end)
    t.check(pg.is_recording() and pg.is_training())
  end)
  pg.record(function() t.check(pg.is_recording() and not pg.is_training()) end, {train = false})
  pg.train_mode(function() t.check(not pg.is_recording() and pg.is_training()) end)
  t.bad_argument(function() pg.record(function() end, {trian = false}) end, "record", "trian")
end)

t.test("a scope is active while its coroutine is not suspended", function()
  local step = coroutine.wrap(function()
    pg.record(function()
      coroutine.yield(pg.is_recording())
      coroutine.yield(pg.is_recording())
    end)
  end)
  t.check(step())
  t.check(not pg.is_recording(), "suspended")
  t.check(step())
  local inner = coroutine.wrap(function() coroutine.yield(pg.is_recording()) end)
  t.check(pg.record(function() return inner() end), "a generator resumed inside the scope is covered")
end)

t.test("an abandoned coroutine ends its scope", function()
  for _ = 1, 20 do
    local co = coroutine.create(function() pg.record(function() coroutine.yield() end) end)
    coroutine.resume(co)
  end
  collectgarbage() collectgarbage()
  t.check(not pg.is_recording())
  t.equal(pg.tensor({1}) + 1, pg.tensor({2}))
end)

t.test("write, add and null", function()
  local function run(req)
    local w = pg.tensor({3}):attach_grad(req)
    for _ = 1, 2 do pg.record(function() return w * w end):backward() end
    return w
  end
  t.equal(run("write").grad, pg.tensor({6}))
  t.equal(run("add").grad, pg.tensor({12}))
  local w, v = pg.tensor({3}):attach_grad("null"), pg.tensor({2}):attach_grad()
  pg.record(function() return w * v end):backward()
  t.check(w.grad == nil)
  t.equal(v.grad, pg.tensor({3}))
  t.bad_argument(function() w:attach_grad("wrote") end, "attach_grad", "grad_req")
end)

t.test("a leaf reached without flow gets exact zeros, others keep their gradient", function()
  local a, b, c = pg.tensor({1}):attach_grad(), pg.tensor({2}):attach_grad(), pg.tensor({3}):attach_grad()
  pg.record(function() return a * b + c end):backward()
  local y = pg.record(function() local parts = pg.cat({a, b}):split(1); return parts[1] end)
  y:backward()
  t.equal(a.grad, pg.tensor({1}))
  t.equal(b.grad, pg.tensor({0}))
  t.equal(c.grad, pg.tensor({1}))
end)

t.test("a second backward needs retain_graph", function()
  local w = pg.tensor({2}):attach_grad()
  local y = pg.record(function() return w * w end)
  y:backward{retain_graph = true}
  y:backward()
  t.error_contains(function() y:backward() end, "retain_graph")
  t.error_contains(function() pg.tensor({1}):backward() end, "pg.record")
end)

t.test("backward takes head gradients and several heads", function()
  local w = pg.tensor({1, 2}):attach_grad()
  local y, z = pg.record(function() return w * 2, w * w end)
  pg.autograd.backward({y, z}, {pg.tensor({1, 10}), false})
  t.equal(w.grad, pg.tensor({2 + 2, 20 + 4}))
  local v = pg.tensor({1, 2}):attach_grad()
  pg.record(function() return v * 3 end):backward{grad = pg.tensor({1, 2})}
  t.equal(v.grad, pg.tensor({3, 6}))
  local u = pg.record(function() return v * 3 end)
  t.bad_argument(function() u:backward{grad = pg.tensor({1, 2, 3})} end, "backward", "grad")
  t.bad_argument(function() u:backward{retain_grpah = true} end, "backward", "retain_grpah")
end)

t.test("autograd.grad does not change .grad", function()
  local w = pg.tensor({2}):attach_grad()
  local y = pg.record(function() return w * w * w end)
  local g = pg.autograd.grad({y}, {w}, {create_graph = true})
  t.equal(g[1], pg.tensor({12}))
  t.equal(w.grad, pg.tensor({0}))
  local h = pg.autograd.grad({pg.record(function() return g[1] * 1 end)}, {w})
  t.equal(h[1], pg.tensor({12}))
end)

t.test("create_graph through backward", function()
  local w = f64({0.5}):attach_grad()
  local y = pg.record(function() return w:sin() end)
  pg.record(function() y:backward{create_graph = true} end)
  local g = w.grad:clone()
  t.close(g, {math.cos(0.5)})
  w.grad = nil  -- a gradient with a history refers to its leaf
end)

t.test("functional transforms nest to any order", function()
  local x = f64({1, 2, 3})
  t.equal(pg.grad(cube)(x), f64({3, 12, 27}))
  local second = function(v) return pg.grad(cube)(v):sum() end
  t.equal(pg.grad(second)(x), f64({6, 12, 18}))
  t.equal(pg.grad(function(v) return pg.grad(second)(v):sum() end)(x), f64({6, 6, 6}))
  local y, g = pg.value_and_grad(cube)(x)
  t.equal(y, pg.tensor(36, {dtype = "float64"}))
  t.equal(g, f64({3, 12, 27}))
end)

t.test("grad takes argument numbers and trees, and keeps captured uses apart", function()
  local x, y = f64({2, 3}), f64({5, 7})
  local gx, gy = pg.grad(function(a, b) return (a * b).sum and (a * b):sum() end, {1, 2})(x, y)
  t.equal(gx, y) t.equal(gy, x)
  local g = pg.grad(function(p) return (p.w * p.w):sum() + p.list[1]:sum() end)({w = x, list = {y}})
  t.equal(g.w, f64({4, 6})) t.equal(g.list[1], f64({1, 1}))
  t.equal(pg.grad(function(v) return pg.grad(function(a) return (a * v * v):sum() end)(v):sum() end)(x), f64({4, 6}))
  t.bad_argument(function() pg.grad(cube, 2)(x) end, "grad", "argnum")
  t.bad_argument(function() pg.grad(function(v) return v end)(x) end, "grad", "f")
end)

t.test("pause stops gradients", function()
  local x = f64({2})
  t.equal(pg.grad(function(v) return (v * pg.pause(function() return v * 1 end)):sum() end)(x), f64({2}))
end)

t.test("vjp and jvp", function()
  local x = f64({1, 2})
  local y, back = pg.vjp(function(a, b) return a * b end, x, f64({3, 4}))
  t.equal(y, f64({3, 8}))
  local da, db = back(f64({1, 10}))
  t.equal(da, f64({3, 40})) t.equal(db, f64({1, 20}))
  local value, tangent = pg.jvp(function(v) return v * v end, {x}, {f64({1, 10})})
  t.equal(value, f64({1, 4})) t.equal(tangent, f64({2, 40}))
  local second = pg.grad(function(v) local _, d = pg.jvp(cube, {v}, {pg.ones_like(v)}); return d end)(x)
  t.equal(second, f64({6, 12}))
  local _, forward2 = pg.jvp(function(v) local _, d = pg.jvp(cube, {v}, {pg.ones_like(v)}); return d end, {x}, {pg.ones_like(x)})
  t.close(forward2, 18)
end)

t.test("detect_anomaly names the op and the line", function()
  local e = t.error_contains(function() pg.autograd.detect_anomaly(function() return pg.tensor({-1}):sqrt() end) end, "sqrt")
  t.check(e:find("test_autograd.lua:%d+"), e)
  local w = pg.tensor({0}):attach_grad()
  t.error_contains(function()
    pg.autograd.detect_anomaly(function() pg.record(function() return w:sqrt() * 0 end):backward() end)
  end, "NaN")
end)

t.test("leaves may be written outside recording, and refuse writes inside", function()
  local w = pg.tensor({1, 2}):attach_grad()
  w:add_(1)
  t.check(w.requires_grad)
  t.equal(w, pg.tensor({2, 3}))
  t.error_contains(function() pg.record(function() w:add_(1) end) end, "attach_grad")
  t.equal(w, pg.tensor({2, 3}))
  local y = pg.record(function()
    local a = w * 2
    a:mul_(a)
    a[{1}] = 0
    return a:sum()
  end)
  y:backward()
  t.equal(w.grad, pg.tensor({0, 8 * 3}))
end)

t.test("saved values are never corrupted by in-place writes", function()
  local w, x = pg.tensor({3}):attach_grad(), pg.tensor({5})
  local y = pg.record(function() return w * x end)
  x:fill_(100)
  y:backward()
  t.equal(w.grad, pg.tensor({5}))
end)

t.test("deep tapes do not overflow and are freed", function()
  t.skip_in("gcstress", "a chain of 20000 ops")
  local w = pg.tensor({1}):attach_grad()
  local y = pg.record(function()
    local y = w
    for _ = 1, 20000 do y = y * 1 end
    return y
  end)
  y:backward()
  t.equal(w.grad, pg.tensor({1}))
end)

local file = t.shared("data/fixtures/train/higher_order.json")
local cases = require("tests.json").read(file).cases
local data = pg.load(t.shared("data/fixtures/train/higher_order.safetensors"))

local function norms_minus_one(g)
  return ((g:flatten(2) ^ 2):sum(2):sqrt() - 1):square():mean()
end

local programs = {}

local function penalty(value, names)
  return function(p)
    local out = {}
    local first = pg.grad(function(x) return value(x, p):sum() end)
    out.y = value(p.x, p)
    out.grad_x = first(p.x)
    local function cost(q) return norms_minus_one(pg.grad(function(x) return value(x, q):sum() end)(q.x)) end
    out.penalty = cost(p)
    local g = pg.grad(cost)(p)
    for _, name in ipairs(names) do out["dpenalty_" .. name] = g[name] end
    return out
  end
end

programs.penalty_mlp_tanh = penalty(function(x, p) return x:linear(p.W1, p.b1):tanh():linear(p.W2, p.b2) end, {"W1", "b1", "W2"})
programs.penalty_conv = penalty(function(x, p)
  return (x:conv2d(p.W, p.b, {padding = 1}):tanh() * p.V):sum{2, 3, 4}
end, {"W", "b", "V"})

local function hvp(value)
  return function(p)
    local f = function(x) return value(x, p) end
    local _, product = pg.jvp(pg.grad(f), {p.x}, {p.v})
    return {y = f(p.x), grad = pg.grad(f)(p.x), hvp = product}
  end
end
programs.hvp_quartic = hvp(function(x, p) return (x:matmul(p.A) ^ 4):sum() / 4 end)
programs.hvp_logistic = hvp(function(x, p) return (-p.s * p.X:matmul(x)):softplus():mean() end)

for name, f in pairs{sin = pg.sin, exp = pg.exp, tanh = pg.tanh, log = pg.log, ["pow3.5"] = function(x) return x ^ 3.5 end,
                     sigmoid = pg.sigmoid, reciprocal = pg.reciprocal, sqrt = pg.sqrt} do
  programs["nth_" .. name] = function(p)
    local d1 = pg.grad(function(x) return (p.c * f(x)):sum() end)
    local d2 = pg.grad(function(x) return d1(x):sum() end)
    return {d0 = f(p.x), d1 = d1(p.x), d2 = d2(p.x), d3 = pg.grad(function(x) return d2(x):sum() end)(p.x)}
  end
end

function programs.meta_sgd(p)
  local function outer(W, lr)
    local g = pg.grad(function(w) return (p.X1:matmul(w) - p.y1):square():mean() end)(W)
    return ((p.X2:matmul(W - lr * g)):tanh() - p.y2):square():mean()
  end
  local dW, dlr = pg.grad(outer, {1, 2})(p.W, p.lr)
  return {outer = outer(p.W, p.lr), dW = dW, dlr = dlr}
end

for _, case in ipairs(cases) do
  t.test("torch " .. case.name, function()
    local inputs = {}
    for name, key in pairs(case.inputs) do inputs[name] = data[key] end
    local out = programs[case.name](inputs)
    for name, key in pairs(case.outputs) do
      local expected = data[key]
      if out[name]:dim() == 0 and expected:dim() == 1 then expected = expected:reshape{} end
      t.close(out[name], expected, {rtol = case.rtol, atol = case.atol, what = name})
    end
  end)
end

t.test("where a gradient is 0 beside a factor that is not finite, jvp is 0 and second gradients are finite", function()
  local zeros = pg.zeros(4)
  local forms = {
    logit = {function(x) return x:logit(0.001) end, pg.tensor{0, 1}, {0, 0}},
    ["0^x"] = {function(x) return 0 ^ x end, pg.tensor{0, 1, 2, 0.5}, {0, 0, 0, 0}},
    ["x^y"] = {function(x) return x ^ pg.tensor{0, 1, 2, 3} end, zeros, {0, 1, 0, 0}},
    ["y^x"] = {function(x) return zeros ^ x end, pg.tensor{0, 1, 2, 3}, {0, 0, 0, 0}},
    copysign = {function(x) return x:copysign(-1) end, pg.tensor{0, 1, -1}, {0, -1, 1}},
    xlogy = {function(x) return x:xlogy(pg.tensor{0, 1, 2}) end, pg.tensor{0, 1, 1}, {0, 0, math.log(2)}},
  }
  for name, case in pairs(forms) do
    local f, x, expected = unpack(case)
    local _, slope = pg.jvp(f, {x}, {pg.ones_like(x)})
    t.close(slope, pg.tensor(expected), {what = name})
    t.close(pg.grad(function(v) return f(v):sum() end)(x), pg.tensor(expected), {what = name})
    local second = pg.grad(function(v) return pg.grad(function(w) return f(w):sum() end)(v):sum() end)(x)
    if name ~= "x^y" then t.check(second:isfinite():all():item(), name .. ": " .. tostring(second)) end
  end
end)

t.test("copy_ gives a value, not the leaf or the recorded result that had it", function()
  local function leaf() return pg.tensor{1, 2, 3}:attach_grad() end
  local outside = {
    plain = function(w, x) x:copy_(w) end,
    paused = function(w, x) pg.record(function() pg.pause(function() x:copy_(w) end) end) end,
    changed = function(w, x) x:copy_(w):mul_(1) end,
    recorded = function(w, x)
      local h = pg.record(function() return w * 1 end)
      x:copy_(h)
    end,
    jitted = function(w, x) pg.jit(function() x:copy_(w) end)() end,
  }
  for name, copy in pairs(outside) do
    local w, x = leaf(), pg.zeros(3)
    copy(w, x)
    t.equal(x.requires_grad, false, name)
    pg.record(function() return w:sum() + (x * x):sum() end):backward()
    t.equal(w.grad, pg.tensor{1, 1, 1}, name)
    t.equal(x, pg.tensor{1, 2, 3}, name)
  end
  local function square(p)
    local z = pg.zeros(3)
    z:copy_(p)
    z:mul_(z)
    z[1] = 5
    return z:sum()
  end
  for name, f in pairs{eager = pg.grad(square), jitted = pg.jit(pg.grad(square))} do
    t.equal(f(pg.tensor{1, 2, 3}), pg.tensor{0, 4, 6}, name)
  end
end)

t.test("vjp and jvp name their own arguments in errors, and take numbers beside tensors", function()
  local T = pg.tensor
  local function times(x, y) return x * y end
  local y, back = pg.vjp(times, T{1, 2}, 5)
  t.equal(y, T{5, 10})
  local dx, none = back(T{1, 2})
  t.equal(dx, T{5, 10})
  t.equal(none, nil)
  local _, wrong = pg.vjp(times, T{1, 2}, T{3, 4})
  local wrong_calls = {
    {"vjp", "dy", function() wrong(T{1, 2, 3}) end}, {"vjp", "dy", function() wrong(3) end},
    {"vjp", "argument 1", function() pg.vjp(function(n) return n end, 5) end},
    {"jvp", "tangents", function() pg.jvp(times, {T{1, 2}, T{3, 4}}, {T{1, 0}, T{1}}) end},
    {"jvp", "primals[1]", function() pg.jvp(function(n) return n end, {5}, {1}) end},
    {"jvp", "f", function() pg.jvp(function() return 3 end, {T{1, 2}}, {T{1, 10}}) end},
    {"grad", "argument 1", function() pg.grad(function(x) return x * x end)(3) end},
  }
  for _, case in ipairs(wrong_calls) do t.bad_argument(case[3], case[1], case[2]) end
end)
