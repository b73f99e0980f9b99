-- Random fills in place, their pure forms, and samples with a gradient.
local t = require "tests.support"
local pg = require "perigee"

local n = 40000
local function mean(x) return x:to("float64"):mean():item() end
local function near(value, expected, tolerance) t.check(math.abs(value - expected) < tolerance, ("%g, expected %g"):format(value, expected)) end

t.test("fills have their distribution and return the box", function()
  pg.manual_seed(5)
  for _, dtype in ipairs{"float32", "float64", "float16", "bfloat16"} do
    local x = pg.empty({n}, {dtype = dtype})
    t.check(rawequal(x:normal_(3, 0.5), x))
    t.equal(x.dtype, dtype)
    near(mean(x), 3, 0.02)
    near(x:to("float64"):std():item(), 0.5, 0.02)
    x:uniform_(-1, 3)
    near(mean(x), 1, 0.05)
    t.check(x:amin():item() >= -1 and x:amax():item() < 3, dtype)
    x:exponential_(2)
    near(mean(x), 0.5, 0.02)
    t.check(x:amin():item() > 0, dtype)
    near(mean(x:bernoulli_(0.3)), 0.3, 0.02)
    near(mean(x:geometric_(0.25)), 4, 0.15)
    t.equal(x:amin():item(), 1)
  end
  local x = pg.empty(n)
  near(x:log_normal_(0.5, 0.25):log():mean():item(), 0.5, 0.02)
  near(mean(x:cauchy_(1, 2):gt(3)), 0.25, 0.02)  -- a quarter lies above median + sigma
  near(mean(pg.zeros({n}, {dtype = "int64"}):geometric_(0.5)), 2, 0.05)
  t.equal(x:uniform_(2, 2):amax():item(), 2)
end)

t.test("a fill takes one tick of its generator, eagerly and traced", function()
  local function draw(x)
    x = x * 1
    x:normal_(0, 2)
    local y = pg.empty(5):exponential_()
    return x, y, x:uniform(0, 4), pg.zeros(5):bernoulli_(0.5), x:rrelu(0.1, 0.9, true), x:gumbel_softmax()
  end
  pg.manual_seed(11)
  local eager = {draw(pg.zeros(5))}
  local f = pg.jit(draw)
  for _ = 1, 2 do
    pg.manual_seed(11)
    for k, y in ipairs{f(pg.zeros(5))} do t.equal(y, eager[k], "output " .. k) end
  end
  t.check(not f(pg.zeros(5)):equal(eager[1]), "the next call draws other numbers")
  t.equal(f:cache_info().traces, 1)
end)

t.test("fills with a generator do not advance the default one", function()
  pg.manual_seed(1)
  local a = pg.empty(4):normal_(0, 1, {generator = pg.Generator(9)})
  local after = pg.rand(2)
  t.equal(pg.empty(4):normal_(0, 1, {generator = pg.Generator(9)}), a)
  pg.manual_seed(1)
  t.equal(pg.rand(2), after)
end)

t.test("pure forms leave x alone", function()
  local x = pg.zeros(3)
  t.equal(x:normal(1, 0):totable(), {1, 1, 1})
  t.equal(x:totable(), {0, 0, 0})
end)

t.test("wrong parameters", function()
  local x = pg.empty(2)
  t.error_contains(function() x:uniform_(1, 0) end, "uniform_: bad argument 'to' (expected at least `from`, got 0)")
  t.error_contains(function() x:normal_(0, -1) end, "normal_: bad argument 'std'")
  t.error_contains(function() x:exponential_(0) end, "exponential_: bad argument 'lambda'")
  t.error_contains(function() x:geometric_(1) end, "geometric_: bad argument 'p'")
  t.error_contains(function() x:geometric_() end, "geometric_: bad argument 'p'")
  t.error_contains(function() x:bernoulli_(2) end, "bernoulli_: bad argument 'probability'")
  t.error_contains(function() pg.zeros({2}, {dtype = "int64"}):normal_() end, "normal_: bad argument 'x'")
  t.error_contains(function() pg.ones(2):gumbel_softmax(0) end, "gumbel_softmax: bad argument 'tau' (expected a number above 0, got 0)")
end)

t.test("gumbel_softmax draws the classes with their probabilities, and has the gradient of the soft sample", function()
  pg.manual_seed(4)
  local logits = pg.tensor{0.2, 0.5, 0.3}:log():expand(n, 3)
  local hard = logits:gumbel_softmax{hard = true}
  t.equal(hard:sum(2):amin():item(), 1)
  t.equal(hard:eq(0):logical_or(hard:eq(1)):all():item(), true)
  for k, share in ipairs{0.2, 0.5, 0.3} do near(mean(hard:select(2, k)), share, 0.02) end
  local grads = {}
  for k, is_hard in ipairs{true, false} do
    local x = pg.tensor{0.1, 0.4, -0.3}:attach_grad()
    pg.manual_seed(6)
    pg.record(function() return (x:gumbel_softmax(0.5, is_hard) * pg.tensor{1, 2, 4}):sum() end):backward()
    grads[k] = x.grad
  end
  t.equal(grads[1], grads[2])
end)
