-- Gradients of control flow: exact zeros over poisoned buffers, all orders, requests, checkpoints, functions and scopes inside bodies.
local t = require "tests.support"
local control = require "tests.control"
local gradcheck = require "tests.gradcheck"
local pg = require "perigee"

local nan = 0 / 0
local each = control.test
local function poisoned(x)
  x = x:clone():attach_grad()
  x.grad:fill_(nan)
  return x
end
local function f64(list) return pg.tensor(list, {dtype = "float64"}) end
local function int(x) return pg.tensor(x, {dtype = "int64"}) end

-- Exact zeros ------------------------------------------------------------------------------------------------------------------

local function check_zero(x, what) t.equal(x.grad, pg.zeros_like(x), what) end

each("what only the other branch reads gets exact zeros", function(wrap)
  local f = wrap(function(v)
    return {pg.cond(v.p, function() return v.a:log() * v.x end, function() return (v.b / v.x):sqrt() end)}
  end)
  for _, p in ipairs{1, 0, 1} do
    local a, b, x = poisoned(pg.tensor{-1, 0}), poisoned(pg.tensor{-4, -1}), poisoned(pg.tensor{0, -3})
    if p == 0 then b = poisoned(pg.tensor{0, 8}) end
    pg.record(function() return f{p = pg.tensor(p), a = a, b = b, x = x}[1] end):backward()
    check_zero(p == 1 and b or a, "pred " .. p)
  end
end)

each("the predicate gets no gradient, and zeros where nothing else flows", function(wrap)
  local f = wrap(function(v) return {pg.cond(v.x:sum():gt(0), function() return v.y * 2 end, function() return v.y * v.x end)} end)
  local x, y = poisoned(pg.tensor{1, 2}), poisoned(pg.tensor{3, 4})
  pg.record(function() return f{x = x, y = y}[1] end):backward()
  check_zero(x)
  t.equal(y.grad, pg.tensor{2, 2})
end)

each("what only the other branch reads for a variable gets zeros, so that a step takes it", function(wrap)
  local f = wrap(function(v)
    local h, box = v.c * v.x, {t = v.c * 2}
    pg.cond(v.p, function() h = v.a * v.x end, function()
      h = v.b * v.x + h
      box.t = box.t * v.b
    end)
    return {(h + box.t):sum()}
  end)
  for _, p in ipairs{1, 0} do
    local v = {p = pg.tensor(p), x = pg.tensor{1, 2}}
    for _, name in ipairs{"a", "b", "c"} do v[name] = poisoned(pg.ones(2)) end
    local trainer = pg.optim.Trainer({v.a, v.b, v.c}, "sgd", {learning_rate = 1})
    pg.record(function() return f(v)[1] end):backward()
    trainer:step(1)
    t.equal({v.a, v.b, v.c}, p == 1 and {pg.tensor{0, -1}, pg.ones(2), pg.tensor{-1, -1}}
            or {pg.ones(2), pg.tensor{-2, -3}, pg.tensor{-2, -3}})
  end
end)

each("nested branches: inputs of branches that are not taken get zeros", function(wrap)
  local f = wrap(function(v)
    return {pg.cond(v.p, function()
      return pg.cond(v.q, function() return v.a * v.x end, function() return v.b:log() end)
    end, function()
      return pg.cond(v.q, function() return v.c:log() end, function() return v.d:sqrt() end)
    end)}
  end)
  for _, case in ipairs{{1, 1, "a"}, {1, 0, "b"}, {0, 1, "c"}, {0, 0, "d"}} do
    local v = {p = pg.tensor(case[1]), q = pg.tensor(case[2])}
    for _, name in ipairs{"a", "b", "c", "d", "x"} do v[name] = poisoned(pg.tensor{name == case[3] and 2 or 0}) end
    pg.record(function() return f(v)[1] end):backward()
    for _, name in ipairs{"a", "b", "c", "d"} do if name ~= case[3] then check_zero(v[name], case[3] .. ": " .. name) end end
    t.close(v[case[3]].grad, ({a = {0}, b = {0.5}, c = {0.5}, d = {1 / (2 * math.sqrt(2))}})[case[3]])
    if case[3] ~= "a" then check_zero(v.x, "x") end
  end
end)

each("zero steps: everything but the initial states gets zeros", function(wrap)
  local f = wrap(function(v)
    local outs, s = pg.foreach(function(x, s) return (x * v.w):log() + s, s * v.u end, v.xs, v.s)
    return {outs, s}
  end)
  local v = {xs = poisoned(pg.zeros(0, 2)), s = poisoned(pg.tensor{1, 2}), w = poisoned(pg.zeros(2)), u = poisoned(pg.tensor{5, 5})}
  local y = pg.record(function() return f(v) end)
  pg.autograd.backward({y[1], y[2]}, {pg.zeros(0, 2), pg.tensor{7, 8}})
  check_zero(v.xs) check_zero(v.w) check_zero(v.u)
  t.equal(v.s.grad, pg.tensor{7, 8})
  local g = wrap(function(q)
    local outs, vars = pg.while_loop(function(i) return i:lt(q.limit) end, function(i, s) return s:log() * q.w, {i + 1, s * q.u} end, {0, q.s}, {max_iterations = 4})
    return {outs, vars[2], pg.loop(q.n, function(_, s) return s * q.u end, q.s)}
  end)
  v = {limit = int(0), n = int(0), s = poisoned(pg.tensor{1, 2}), w = poisoned(pg.zeros(2)), u = poisoned(pg.tensor{5, 5})}
  y = pg.record(function() return g(v) end)
  pg.autograd.backward(y, {pg.full({4, 2}, 3), pg.tensor{7, 8}, pg.tensor{1, 1}})
  check_zero(v.w) check_zero(v.u)
  t.equal(v.s.grad, pg.tensor{8, 9})
end)

each("heads of rows after the last step are ignored, NaN or not", function(wrap)
  local f = wrap(function(v)
    return {(pg.while_loop(function(i) return i:lt(v.n) end, function(i, s) return s * v.w, {i + 1, s + 1} end, {int(0), v.s}, {max_iterations = 5}))}
  end)
  for n = 0, 5 do
    local w, s = pg.tensor{2, 3}:attach_grad(), pg.tensor{1, 10}:attach_grad()
    local y = pg.record(function() return f{n = int(n), w = w, s = s}[1] end)
    local head = pg.ones(5, 2)
    if n < 5 then head[{{n + 1, 5}}] = nan end
    if y.requires_grad then y:backward{grad = head} end
    local sum = n * (n - 1) / 2
    t.equal(w.grad, pg.tensor{n + sum, 10 * n + sum}, n .. " steps")
    t.equal(s.grad, pg.tensor{2 * n, 3 * n}, n .. " steps")
  end
end)

each("rows that no step reads get zeros", function(wrap)
  local f = wrap(function(v)
    local _, vars = pg.while_loop(function(i) return i:le(2) end, function(i, s) return nil, {i + 1, s * v.xs[i]} end, {1, v.s})
    return {vars[2]}
  end)
  local xs, s = poisoned(pg.tensor{{1, 2}, {3, 4}, {nan, 0}}), poisoned(pg.tensor{1, 1})
  pg.record(function() return f{xs = xs, s = s}[1] end):backward()
  t.equal(xs.grad, pg.tensor{{3, 4}, {1, 2}, {0, 0}})
  t.equal(s.grad, pg.tensor{3, 8})
end)

each("requests: add, null, and a second backward", function(wrap)
  local f = wrap(function(v)
    local _, s = pg.foreach(function(x, u) return nil, u * v.w + x * v.k end, v.xs, v.s)
    return {s:sum()}
  end)
  local function plain(v)
    local s = v.s
    for k = 1, #v.xs do s = s * v.w + v.xs[k] * v.k end
    return {s:sum()}
  end
  local seen = {}
  for number, g in ipairs{plain, f} do
    local v = {xs = pg.tensor{{1, 2}, {3, 4}, {5, 6}}:attach_grad("null"), s = pg.tensor{1, 2}:attach_grad("add"), w = pg.tensor{2, 3}:attach_grad("add"),
               k = pg.tensor{1, 1}:attach_grad()}
    v.w.grad:fill_(100)
    for _ = 1, 2 do
      local y = pg.record(function() return g(v)[1] end)
      y:backward{retain_graph = true}
      y:backward()
      t.error_contains(function() y:backward() end, "retain_graph")
    end
    seen[number] = {v.s.grad, v.w.grad, v.k.grad}
  end
  t.equal(seen[2], seen[1])
end)

-- All orders -------------------------------------------------------------------------------------------------------------------

-- Smooth programs of one list of float64 tensors.
local smooth = {
  foreach = {function(x)
    local outs, s = pg.foreach(function(row, s) return (row * x[3]):sin() * s, (s * x[3] + row):tanh() end, x[1], x[2])
    return {outs, s}
  end, {{3, 2}, {2}, {2}}},
  foreach_matrix = {function(x)
    local outs, s = pg.foreach(function(row, s)
      s = (row:matmul(x[3]) + s:matmul(x[4])):tanh()
      return s, s
    end, x[1], x[2])
    return {outs, s}
  end, {{2, 2, 3}, {2, 2}, {3, 2}, {2, 2}}},
  while_loop = {function(x)
    local outs, vars = pg.while_loop(function(i) return i:lt(3) end, function(i, s, u) return {s * u}, {i + 1, (s * x[3]):sin() + u, u * s} end,
                                     {0, x[1], x[2]}, {max_iterations = 4})
    return {outs[1], vars[2], vars[3]}
  end, {{2}, {2}, {2}}},
  while_without_limit = {function(x)
    local _, vars = pg.while_loop(function(i) return i:lt(4) end, function(i, s) return nil, {i + 1, (s * x[2]):sin() + s * s * 0.1} end, {0, x[1]})
    return {vars[2]}
  end, {{2}, {2}}},
  loop = {function(x) return {pg.loop(3, function(i, s) return (s * x[2] + i * 0.1):tanh() end, x[1])} end, {{2}, {2}}},
  cond = {function(x)
    local function f(p) return pg.cond(p, function() return (x[1] * x[2]):sin() end, function() return x[1]:exp() * 0.5 + x[2] * x[2] * x[1] end) end
    return {f(pg.tensor(1)), f(pg.tensor(0))}
  end, {{2}, {2}}},
  nested = {function(x)
    local outs = pg.foreach(function(row, s)
      local y = pg.loop(2, function(_, u) return pg.cond(u:sum():gt(0), function() return u * s end, function() return u:sin() + row end) end, row)
      return y, s * 0.5 + y
    end, x[1], x[2])
    return {outs}
  end, {{2, 2}, {2}}},
  cond_in_while = {function(x)
    local _, vars = pg.while_loop(function(i) return i:lt(3) end, function(i, s)
      return nil, {i + 1, pg.cond(i:eq(1), function() return s * s * x[2] end, function() return (s + x[2]):sin() end)}
    end, {0, x[1]})
    return {vars[2]}
  end, {{2}, {2}}},
  outputs_used_twice = {function(x)
    local outs, s = pg.foreach(function(row, s) return {row * s, s}, s * x[2] end, x[1], x[2])
    local more = pg.foreach(function(row) return row * row * s end, outs[1])
    return {more + outs[2] * outs[1]}
  end, {{3, 2}, {2}}},
}

local function inputs_of(shapes, seed)
  local list = {}
  gradcheck.seed(seed)
  for i, shape in ipairs(shapes) do list[i] = gradcheck.random(shape, 0.2, 1.1) end
  return list
end

for name, program in pairs(smooth) do
  each("derivatives of order 1 and 2, and forward: " .. name, function(wrap, way)
    if way == "hybrid" then t.skip_in("hybrid", "one kind of graph is enough") end
    gradcheck.seed(17)
    gradcheck.check(wrap(program[1]), inputs_of(program[2], 5), {order = 2, tolerance = 2e-5})
  end)
end

-- Returns the n-th derivative of a scalar function of one number, by nested grad.
local function derivative(f, order)
  for _ = 1, order do
    local inner = f
    f = function(x) return pg.grad(inner)(x) end
  end
  return f
end

local powers = {  -- of x = 1.3, where each is x^5 by other means
  loop = function(x) return pg.loop(4, function(_, s) return s * x end, x) end,
  while_loop = function(x) return pg.while_loop(function(i) return i:lt(5) end, function(i, s) return nil, {i + 1, s * x} end, {1, x}, {max_iterations = 7}) end,
  foreach = function(x) return select(2, pg.foreach(function(row, s) return nil, s * row end, x:expand(4), x)) end,
  cond = function(x) return pg.cond(x:gt(0), function() return x ^ 5 end, function() return x * 0 end) end,
  mixed = function(x)
    return pg.loop(2, function(_, s) return pg.cond(s:gt(0), function() return s * x * x end, function() return s end) end, x)
  end,
}
local last = powers.while_loop
powers.while_loop = function(x) return select(2, last(x))[2] end

for name, f in pairs(powers) do
  each("derivatives to order 4 by grad of grad: " .. name, function(wrap)
    local x, factor = 1.3, 1
    for order = 1, 4 do
      factor = factor * (6 - order)
      local g = wrap(function(v) return {derivative(f, order)(v.x)} end)
      t.close(g{x = f64(x)}[1]:item(), factor * x ^ (5 - order), {rtol = 1e-9, what = "order " .. order})
    end
  end)
end

each("gradient penalty: a loss of gradients through a loop, minimised inside one function", function(wrap)
  local function forward(w, xs) return (pg.foreach(function(x) return (x * w):tanh():sum() end, xs)):sum() end
  local function penalty(v)
    local g = pg.grad(function(xs) return forward(v.w, xs) end)(v.xs)
    return g:square():sum()
  end
  local f = wrap(function(v) return {pg.grad(function(w) return penalty{w = w, xs = v.xs} end)(v.w)} end)
  local w, xs = f64{0.5, -0.25}, f64{{1, 2}, {0.5, -1}, {0.1, 0.2}}
  local got = f{w = w, xs = xs}[1]
  for k = 1, 2 do
    local h = 1e-5
    local function at(d)
      local moved = w:totable()
      moved[k] = moved[k] + d
      return penalty{w = f64(moved), xs = xs}:item()
    end
    t.close(got[k]:item(), (at(h) - at(-h)) / (2 * h), {rtol = 1e-6, atol = 1e-8})
  end
end)

-- Things inside of bodies ------------------------------------------------------------------------------------------------------

each("pg.grad, value_and_grad, vjp and jvp inside of bodies", function(wrap)
  local f = wrap(function(v)
    local outs = pg.foreach(function(x, s)
      local g = pg.grad(function(y) return (y * y * v.w):sum() end)(x)
      local value, slope = pg.value_and_grad(function(y) return (y ^ 3):sum() end)(s)
      local _, back = pg.vjp(function(y) return y * v.w end, x)
      local _, push = pg.jvp(function(y) return y * y end, {x}, {v.w})
      return {g, value, slope, back(s), push}, s + x
    end, v.xs, v.s)
    return outs
  end)
  local w, xs, s = f64{2, 3}, f64{{1, 2}, {3, 4}}, f64{1, 1}
  local y = f{w = w, xs = xs, s = s}
  t.close(y[1], {{4, 12}, {12, 24}})
  t.close(y[2], {2, 35})
  t.close(y[3], {{3, 3}, {12, 27}})
  t.close(y[4], {{2, 3}, {4, 9}})
  t.close(y[5], {{4, 12}, {12, 24}})
end)

each("gradient descent inside a loop has a gradient of its result", function(wrap)
  local function fit(v)  -- steps of descent on (a x - 1)^2 from x0: x_n - 1/a = (1 - 2 a^2 r)^n (x0 - 1/a)
    return pg.loop(6, function(_, x)
      return x - pg.grad(function(y) return ((v.a * y - 1) ^ 2):sum() end)(x) * 0.1
    end, v.x)
  end
  local f = wrap(function(v) return {fit(v), pg.grad(function(a) return fit{a = a, x = v.x}:sum() end)(v.a)} end)
  local a, x0 = 1.2, 0.3
  local function ends(b) return 1 / b + (1 - 0.2 * b * b) ^ 6 * (x0 - 1 / b) end
  local y = f{a = f64(a), x = f64(x0)}
  t.close(y[1]:item(), ends(a), {rtol = 1e-9})
  t.close(y[2]:item(), (ends(a + 1e-5) - ends(a - 1e-5)) / 2e-5, {rtol = 1e-6})
end)

each("autograd.Function inside of bodies", function(wrap)
  local clip = pg.autograd.Function{
    name = "clip", forward = function(ctx, x)
      ctx.saved = {x}
      return x:clamp(-1, 1)
    end,
    backward = function(ctx, dy) return dy * 10 + ctx.saved[1] end,
  }
  local f = wrap(function(v)
    local _, s = pg.foreach(function(x, s) return nil, s + clip(x * 2) end, v.xs, v.s)
    return {s, pg.cond(v.p, function() return clip(s) end, function() return s end)}
  end)
  local xs, s = pg.tensor{{1, 2}, {-3, 0.25}}:attach_grad(), pg.zeros(2):attach_grad()
  local y = pg.record(function() return f{xs = xs, s = s, p = pg.tensor(0)} end)
  t.equal(y[1], pg.tensor{0, 1.5})
  y[1]:backward()
  t.equal(xs.grad, pg.tensor{{24, 28}, {8, 21}})
  t.equal(s.grad, pg.tensor{1, 1})
end)

each("pause and detach inside of bodies stop gradients", function(wrap)
  local f = wrap(function(v)
    local _, s = pg.foreach(function(x, s)
      local held = pg.pause(function() return s * x end)
      return nil, s * 2 + held + (x * v.w):detach() + x * v.w
    end, v.xs, v.s)
    return {s}
  end)
  local xs, s, w = pg.tensor{{1, 2}, {3, 4}}:attach_grad(), pg.tensor{1, 1}:attach_grad(), pg.tensor{5, 6}:attach_grad()
  pg.record(function() return f{xs = xs, s = s, w = w}[1] end):backward()
  t.equal(s.grad, pg.tensor{4, 4})
  t.equal(xs.grad, pg.tensor{{10, 12}, {5, 6}})
  t.equal(w.grad, pg.tensor{5, 8})
end)

each("pg.checkpoint inside a body and around a loop", function(wrap)
  local f = wrap(function(v)
    local _, s = pg.foreach(function(x, s) return nil, pg.checkpoint(function(a, b) return (a * b):tanh() end, x, s) end, v.xs, v.s)
    return {s, pg.checkpoint(function(u) return pg.loop(3, function(_, k) return k * u end, u) end, v.s)}
  end)
  local xs, s = f64{{1, 2}, {3, 4}}:attach_grad(), f64{0.5, 0.25}:attach_grad()
  local y = pg.record(function() return f{xs = xs, s = s} end)
  pg.autograd.backward(y)
  local grad_xs, grad_s = xs.grad, s.grad
  xs, s = xs:clone():attach_grad(), s:clone():attach_grad()
  pg.autograd.backward(pg.record(function() return {((xs[1] * s):tanh() * xs[2]):tanh(), s ^ 4} end))
  t.close(grad_xs, xs.grad, {rtol = 1e-12})
  t.close(grad_s, s.grad, {rtol = 1e-12})
end)

each("record and backward inside of a body", function(wrap, way)
  if way == "debug" then t.skip("leaves are written by plain Lua there") end
  local f = wrap(function(v)
    return {(pg.foreach(function(x)
      local w = (v.w * 1):detach():attach_grad()
      pg.record(function() return (w * w * x):sum() end):backward()
      return w.grad
    end, v.xs))}
  end)
  t.equal(f{xs = pg.tensor{1, 2}, w = pg.tensor{3, 4}}[1], pg.tensor{{6, 8}, {12, 16}})
end)

-- Training in one program ------------------------------------------------------------------------------------------------------

t.test("a jitted step of training with loops trains as plain Lua does", function()
  local results
  for _, way in ipairs{"debug", "eager", "jit"} do
    pg.manual_seed(2)
    local net = pg.nn.block{wx = pg.param{shape = {4, 3}}, wh = pg.param{shape = {4, 4}}, out = pg.nn.Dense(2, {in_units = 4}), forward = function(self, xs)
      local h = pg.foreach(function(x, h)
        h = (x:linear(self.wx) + h:linear(self.wh)):tanh()
        return h, h
      end, xs, pg.zeros(xs:size(2), 4))
      return self.out(h[-1])
    end}
    net:initialize("xavier")
    local loss_fn = pg.loss.SoftmaxCrossEntropyLoss()
    local trainer = pg.optim.Trainer(net:collect_params(), "adam", {learning_rate = 0.05})
    local function step(xs, y)
      local l = pg.record(function() return loss_fn(net(xs), y):mean() end)
      l:backward()
      trainer:step(1)
      return l
    end
    local f, losses = step, {}
    if way == "jit" then f = pg.jit(step) elseif way == "debug" then f = function(...) return pg.debug(step, ...) end end
    for i = 1, 8 do losses[i] = f(pg.rand(3 + i % 2, 6, 3), pg.randint(1, 2, {6})):item() end
    if way == "jit" then t.equal(f:cache_info().traces, 1) end
    results = results or losses
    t.close(losses, results, {rtol = 1e-4, what = way})
  end
end)

-- Checkpoints ------------------------------------------------------------------------------------------------------------------

each("checkpoints of tensors without elements", function(wrap)
  local f = wrap(function(v)
    local outs, s = pg.foreach(function(x, s) return x * s, s + x end, v.xs, v.s, {checkpoint = 2})
    return {outs, s}
  end)
  for _, shape in ipairs{{0}, {3, 0}, {0, 3}, {2, 0, 3}} do
    local xs = pg.zeros{6, unpack(shape)}:attach_grad()
    pg.autograd.backward(pg.record(function() return f{xs = xs, s = pg.zeros(shape)} end))
    t.equal(xs.grad, xs:detach())
  end
end)

local function checkpointed(k)
  return {
    foreach = function(v)
      local outs, s = pg.foreach(function(x, s)
        s = (x:matmul(v.w) + s:matmul(v.u)):tanh()
        return s * 2, s
      end, v.xs, v.s, {checkpoint = k})
      return {outs, s}
    end,
    while_loop = function(v)
      local outs, vars = pg.while_loop(function(i) return i:lt(7) end, function(i, s) return s * 2, {i + 1, (s:matmul(v.u) + v.xs[1]:matmul(v.w)):tanh()} end,
                                       {0, v.s}, {max_iterations = 9, checkpoint = k})
      return {outs, vars[2]}
    end,
    while_without_limit = function(v)
      local _, vars = pg.while_loop(function(i) return i:lt(7) end, function(i, s) return nil, {i + 1, (s:matmul(v.u) + v.xs[1]:matmul(v.w)):tanh()} end,
                                    {0, v.s}, {checkpoint = k})
      return {vars[2]}
    end,
    loop = function(v)
      return {pg.loop(7, function(i, s) return (s:matmul(v.u) * i + v.xs[i]:matmul(v.w)):tanh() end, v.s, {checkpoint = k})}
    end,
  }
end

for name, expected in pairs(checkpointed(nil)) do
  each("checkpoint gives the gradients of all steps kept: " .. name, function(_, way)
    -- More than four rows and columns: products of one step and of all have the same bits.
    local v = {xs = pg.randn(7, 6, 3):to("float64"), s = pg.randn(6, 5):to("float64"), w = pg.randn(3, 5):to("float64"), u = pg.randn(5, 5):to("float64")}
    local y, grads = control.see(way, expected, v, {poisoned = true})
    for _, k in ipairs{1, 2, 3, 7, 20} do
      local z, own = control.see(way, checkpointed(k)[name], v, {poisoned = true})
      for i in ipairs(y) do t.equal(z[i], y[i], "output of checkpoint " .. k) end
      for input, grad in pairs(grads) do t.close(own[input], grad, {rtol = 1e-10, atol = 1e-12, what = ("checkpoint %d: %s"):format(k, input)}) end
    end
  end)
end

t.test("checkpoint uses less memory", function()
  local function peak(options)
    local w = (pg.eye(64) * 0.9):attach_grad()
    local function run()
      local s = pg.record(function()
        return pg.loop(400, function(_, h) return (h:matmul(w):tanh() + h:sin() * 0.1):sigmoid() end, pg.ones(64, 64), options)
      end)
      s:backward()
    end
    run()
    collectgarbage() collectgarbage()
    local before = pg.memory().live
    local s = pg.record(function()
      return pg.loop(400, function(_, h) return (h:matmul(w):tanh() + h:sin() * 0.1):sigmoid() end, pg.ones(64, 64), options)
    end)
    local held = pg.memory().live - before
    s:backward()
    return held, w.grad
  end
  local all, g = peak()
  local some, h = peak{checkpoint = 20}
  t.check(some < all / 4, ("%.2f MB with checkpoint, %.2f MB without"):format(some / 2 ^ 20, all / 2 ^ 20))
  t.close(h, g, {rtol = 1e-4, atol = 1e-4})
end)

each("checkpoint with dropout draws the same masks again", function(wrap)
  local f = wrap(function(v) return {pg.loop(6, function(_, s) return (s * v.w):dropout(0.5) end, v.s, {checkpoint = 2})} end)
  local w, s = pg.ones(400):attach_grad(), pg.ones(400):attach_grad()
  local y = pg.record(function() return f{w = w, s = s}[1] end)
  y:backward()
  t.equal(s.grad, y:detach())
  t.equal(w.grad, y:detach() * 6)
  t.check(y:gt(0):sum():item() < 60)
end)

-- Sizes ------------------------------------------------------------------------------------------------------------------------

each("the number of steps may change between calls", function(wrap)
  local f = wrap(function(v)
    local _, vars, n = pg.while_loop(function(i) return i:lt(v.n) end, function(i, s) return nil, {i + 1, s * v.w} end, {int(0), v.s})
    return {vars[2], n}
  end)
  for _, n in ipairs(t.mode == "gcstress" and {30, 1, 0, 7, 30} or {3000, 1, 0, 700, 3000}) do
    local w = f64(1.0005):attach_grad()
    local y = pg.record(function() return f{n = int(n), s = f64(1), w = w} end)
    y[1]:backward()
    t.equal(y[2]:item(), n)
    t.close(y[1]:item(), 1.0005 ^ n, {rtol = 1e-9})
    t.close(w.grad:item(), n * 1.0005 ^ (n - 1), {rtol = 1e-9})
  end
end)
