-- Values and gradients of losses and of the functions in them at the ends of their domain. Expected numbers are those
-- of float64 formulas without cancellation.
local pg = require "perigee"
local t = require "tests.support"

-- The value, the gradient and the second gradient of the sum of f(x), and the same computed by pg.jit.
local function orders(f, x)
  x = x:detach():attach_grad()
  return pg.record(function()
    local y = f(x)
    local first = pg.autograd.grad(y:sum(), x, {create_graph = true})
    return y:detach(), first:detach(), pg.autograd.grad(first:sum(), x)
  end)
end
local function jitted(f)
  local compiled = pg.jit(f)
  return function(x) return compiled(x) end
end
local function each_way(f, x, check)
  check(orders(f, x))
  check(orders(jitted(f), x))
end
local function finite(...)
  for k = 1, select("#", ...) do t.check((select(k, ...)):isfinite():all():item(), "order " .. k - 1 .. " is not finite") end
end
local near = t.elements_near

t.test("binary_cross_entropy has gradients at 0 and 1", function()
  for _, dtype in ipairs{"float32", "float64", "bfloat16"} do
    local x, target = pg.tensor({0, 1, 0, 1}, {dtype = dtype}), pg.tensor({0, 1, 1, 0}, {dtype = dtype})
    each_way(function(v) return v:binary_cross_entropy(target, {reduction = "none"}) end, x, function(y, first, second)
      finite(y, first, second)
      near(y, {0, 0, 100, 100})
      near(first, {0, 0, -1e12, 1e12}, dtype == "bfloat16" and 0.01)
    end)
  end
  local half, target = pg.tensor({0, 1, 0, 1}, {dtype = "float16"}), pg.tensor({0, 1, 1, 0}, {dtype = "float16"})
  each_way(function(v) return v:binary_cross_entropy(target, {reduction = "none"}) end, half, function(_, first)
    t.equal(first:totable(), {0, 0, -math.huge, math.huge})
  end)
  local logit = pg.tensor{20}:attach_grad()
  pg.record(function() return logit:sigmoid():binary_cross_entropy(pg.tensor{1}) end):backward()
  t.equal(logit.grad:item(), 0)
end)

t.test("the gradient of binary_cross_entropy to the target is bounded", function()
  local x, target = pg.tensor{0, 1, 0.25}, pg.tensor{0.5, 0.5, 0.5}
  each_way(function(v) return x:binary_cross_entropy(v, {reduction = "none"}) end, target, function(_, first)
    near(first, {100, -100, math.log(3)})
  end)
end)

t.test("binary_cross_entropy keeps the digits of small probabilities", function()
  near(pg.tensor{1e-7, 1e-3}:binary_cross_entropy(pg.zeros(2), {reduction = "none"}), {1e-7 + 0.5e-14, 1.000500333584e-3})
  local loss = pg.loss.SigmoidBinaryCrossEntropyLoss{from_sigmoid = true}
  near(loss(pg.tensor{{1e-7}, {1e-3}}, pg.zeros(2, 1)), {1e-7 + 0.5e-14, 1.000500333584e-3})
end)

t.test("the loss of probabilities in half precision is that in float32", function()
  local loss = pg.loss.SigmoidBinaryCrossEntropyLoss{from_sigmoid = true}
  local p, label = pg.tensor{{0}, {1}, {0}, {1}, {0.25}}, pg.tensor{{0}, {1}, {1}, {0}, {1}}
  for _, dtype in ipairs{"float16", "bfloat16"} do
    local function f(v) return loss(v, label:to(dtype)) end
    each_way(f, p:to(dtype), function(y, first)
      near(y, {0, 0, 27.631021, 27.631021, 1.3862944}, 0.01)
      t.check(first:isnan():logical_not():all():item(), "a gradient is NaN")
    end)
  end
end)

local function sigmoid(x) return 1 / (1 + math.exp(-x)) end
local function mapped(list, f)
  local out = {}
  for i, v in ipairs(list) do out[i] = f(v) end
  return out
end
local tails = {-80, -30, -17.5, -15, -10, -1, 1, 10, 15, 17.5, 30, 80}
local function softplus(x) return math.max(x, 0) + (math.abs(x) > 14 and math.exp(-math.abs(x)) or math.log(1 + math.exp(-math.abs(x)))) end

t.test("losses of logits keep both tails at every order", function()
  local gluon = pg.loss.SigmoidBinaryCrossEntropyLoss()
  local x = pg.tensor(tails):reshape{-1, 1}
  for _, label in ipairs{0, 1} do
    local target, side = pg.full({#tails, 1}, label), label == 0 and 1 or -1
    local ways = {
      function(v) return v:binary_cross_entropy_with_logits(target, {reduction = "none"}) end,
      function(v) return v:binary_cross_entropy_with_logits(target, {reduction = "none", pos_weight = pg.tensor{1}}) end,
      function(v) return v:multilabel_soft_margin_loss(target, {reduction = "none"}) end,
      function(v) return gluon(v, target) end,
      function(v) return gluon(v, target, nil, pg.tensor{1}) end,
    }
    for _, f in ipairs(ways) do
      each_way(f, x, function(y, first, second)
        near(y, mapped(tails, function(v) return softplus(side * v) end), 1e-5)
        near(first, mapped(tails, function(v) return side * sigmoid(side * v) end))
        near(second, mapped(tails, function(v) return sigmoid(v) * sigmoid(-v) end))
      end)
    end
  end
end)

t.test("logsigmoid and softplus keep both tails at every order", function()
  local x = pg.tensor(tails)
  each_way(function(v) return v:logsigmoid() end, x, function(_, first, second)
    near(first, mapped(tails, function(v) return sigmoid(-v) end))
    near(second, mapped(tails, function(v) return -sigmoid(v) * sigmoid(-v) end))
  end)
  each_way(function(v) return v:softplus{threshold = 100} end, x, function(_, first, second)
    near(first, mapped(tails, sigmoid))
    near(second, mapped(tails, function(v) return sigmoid(v) * sigmoid(-v) end))
  end)
  each_way(function(v) return v:soft_margin_loss(pg.ones(#tails), {reduction = "none"}) end, x, function(_, first)
    near(first, mapped(tails, function(v) return -sigmoid(-v) end))
  end)
end)

t.test("the loss of a logit of 0 has a gradient", function()
  local loss = pg.loss.SigmoidBinaryCrossEntropyLoss()
  each_way(function(v) return loss(v, pg.tensor{{0}, {1}}) end, pg.zeros(2, 1), function(_, first) near(first, {0.5, -0.5}) end)
end)
