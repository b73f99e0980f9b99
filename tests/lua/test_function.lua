-- pg.autograd.Function: gradients of its own, what backward must return, and what it keeps.
local t = require "tests.support"
local pg = require "perigee"

local function f64(x) return pg.tensor(x, {dtype = "float64"}) end

t.test("Function has its own gradient, of any order", function()
  local F = pg.autograd.Function{
    name = "cube",
    forward = function(ctx, x, k) ctx.saved = {x} ctx.k = k return x * x * x * k end,
    backward = function(ctx, dy) return dy * 3 * ctx.k * ctx.saved[1] * ctx.saved[1] end,
  }
  local w = f64({2, 3}):attach_grad()
  pg.record(function() return F(w, 2) end):backward()
  t.equal(w.grad, f64({24, 54}))
  t.equal(pg.grad(function(x) return pg.grad(function(v) return F(v, 1):sum() end)(x):sum() end)(f64({2, 3})), f64({12, 18}))
  t.equal(F(w, 1), f64({8, 27}))
  local broken = pg.autograd.Function{forward = function(_, x) return x * 1 end, backward = function() error("in backward") end}
  local y = pg.record(function() return broken(w) end)
  t.error_contains(function() y:backward() end, "in backward")
  t.check(not pg.is_recording())
end)

t.test("a Function's backward returns a gradient or nil for each argument", function()
  local function run(backward, more, compile)
    local F = pg.autograd.Function{name = "product", forward = function(ctx, a, b) ctx.saved = {a, b} return a * b end, backward = backward}
    local function call(a, b, k) return k and F(a, b, k) or F(a, b) end
    local a, b, f = f64({2}):attach_grad(), f64({3}):attach_grad(), compile and pg.jit(call) or call
    pg.record(function() return f(a, b, more) end):backward()
    return {a.grad:item(), b.grad:item()}
  end
  for _, compile in ipairs{false, true} do
    t.error_matches(function() run(function(_, dy) return dy end, nil, compile) end, "product: backward at %S*test_function.lua:%d+ returned "
                    .. "1 gradient %(expected 2, one for each argument of forward; write nil for one without gradient%)$")
    t.error_contains(function() run(function() end, nil, compile) end, "returned 0 gradients (expected 2,")
    t.error_contains(function() run(function(_, dy) return dy, dy, dy end, nil, compile) end, "returned 3 gradients (expected 2,")
    t.error_contains(function() run(function(_, dy) return dy end, 5, compile) end, "returned 1 gradient (expected 3,")
    t.equal(run(function(_, dy) return dy, nil end, nil, compile), {1, 0})
    t.equal(run(function(_, dy) return dy, nil, nil end, nil, compile), {1, 0})
    t.equal(run(function(_, dy) return nil, dy end, 5, compile), {0, 1})
    t.equal(run(function(_, dy) return dy, dy, nil end, 5, compile), {1, 1})
    t.equal(run(function(_, dy) return dy, dy end, pg.tensor({1}, {dtype = "int64"}), compile), {1, 1})
  end
end)

t.test("a Function's saved tensors and graph are freed", function()
  local F = pg.autograd.Function{forward = function(ctx, x) ctx.saved = {x} return x * 2 end, backward = function(_, dy) return dy * 2 end}
  local w = pg.zeros(1000):attach_grad()
  collectgarbage() collectgarbage()
  local before = pg.memory().live
  for _ = 1, 50 do pg.record(function() return F(w) end) end
  collectgarbage() collectgarbage()
  t.check(pg.memory().live <= before + 8000, "live bytes grew by " .. pg.memory().live - before)
end)

t.test("a Function of tables that can be called", function()
  local function callable(f) return setmetatable({}, {__call = function(_, ...) return f(...) end}) end
  local few = false
  local F = pg.autograd.Function{
    name = "Twice", forward = callable(function(_, x) return x * 2 end),
    backward = callable(function(_, dy) if few then return end return dy * 2 end),
  }
  for _, f in ipairs{F, pg.jit(function(x) return F(x) end)} do
    local w = f64({1, 2}):attach_grad()
    pg.record(function() return f(w) end):backward()
    t.equal(w.grad, f64({2, 2}))
  end
  few = true
  t.error_contains(function() pg.record(function() return F(f64({1}):attach_grad()) end):backward() end, "Twice: backward returned 0 gradients")
  t.error_contains(function() pg.autograd.Function{forward = {}, backward = print} end, "Function: bad argument 'forward' (expected a function")
end)

t.test("a Function returns tensors, recorded or not", function()
  local f = pg.autograd.Function{forward = function(_, x) return {x}, x end, backward = function(_, _, d) return d end}
  t.bad_argument(function() f(pg.ones(2)) end, "Function", "result 1")
  t.bad_argument(function() pg.record(function() return f(pg.ones(2):attach_grad()) end) end, "Function", "result 1")
end)
