-- Convolutions and losses on the CUDA device with the fake cuDNN of tests/cuda.
local t = require "tests.support"
local pg = require "perigee"
local fake = require "tests.cuda.fake"
if t.device ~= "cuda" or not fake then return end

local not_supported, failed = 3000, 5000

local function images(dtype) return pg.range(1, 32):reshape(1, 2, 4, 4):to(dtype) / 8 end
local function weights(dtype) return pg.range(1, 16):reshape(2, 2, 2, 2):to(dtype) / 16 end

t.test("an algorithm is looked for once a shape and dtype", function()
  local x, w = images("float32"), weights("float32")
  local function looked() return fake.fake_calls("cudnnGetConvolutionForwardAlgorithm_v7") end
  local before = looked()
  pg.conv2d(x, w)
  pg.conv2d(x * 2, w)
  t.equal(looked(), before + 1)
  pg.conv2d(x, w, {padding = 1})
  t.equal(looked(), before + 2)
end)

t.test("halves go through float32 where cuDNN lacks them", function()
  local x, w = images("bfloat16"), weights("bfloat16")
  local plain = pg.conv2d(x, w, {stride = 2})
  fake.fake_fail("cudnnConvolutionForward", 1, not_supported, 1)
  t.equal(pg.conv2d(x, w, {stride = 2, padding = 0}):totable(), plain:totable())
end)

t.test("what cuDNN refuses or fails at is an error of the op", function()
  local x, w = images("float32"), weights("float32")
  fake.fake_fail("cudnnConvolutionForward", 1, not_supported, 1)
  t.error_contains(function() pg.conv2d(x, w, {padding = {3, 2}}) end,
           "conv2d: cuDNN has no algorithm for float32 arrays of these shapes")
  fake.fake_fail("cudnnConvolutionForward", 1, failed, 1)
  t.error_contains(function() pg.conv2d(x, w, {padding = {2, 3}}) end, "cudnnConvolutionForward: ")
  fake.fake_fail("cudnnGetConvolutionForwardAlgorithm_v7", 1, failed, 1)
  t.error_contains(function() pg.conv2d(x, w, {padding = {1, 3}}) end, "cudnnGetConvolutionForwardAlgorithm: ")
  t.equal(pg.conv2d(x, w, {padding = {1, 3}}).shape, {1, 2, 5, 9})
end)

-- A net whose images have their channels last inside of a plan. Pooling and a group of few channels are part of it.
local function net_of(dtype)
  local nn = pg.nn
  pg.manual_seed(3)
  local net = nn.Sequential(
    nn.Conv2D(8, 3, {in_channels = 3, padding = 1}), nn.Activation("relu"), nn.MaxPool2D(3, {strides = 2, padding = 1}),
    nn.Conv2D(16, 3, {in_channels = 8, strides = 2, padding = 1}), nn.Activation("silu"),
    nn.AvgPool2D(2), nn.Conv2D(8, 1, {in_channels = 16}))
  net:initialize(pg.init.Normal(0.3))
  net:cast(dtype)
  return net
end

local function count(text, name)
  local _, n = text:gsub(" = " .. name .. "%(", "")
  return n
end

t.test("halves have their channels last inside of a plan", function()
  for _, dtype in ipairs{"float16", "bfloat16", "float32"} do
    local half = dtype ~= "float32"
    local net, x = net_of(dtype), ((pg.range(1, 2 * 3 * 11 * 9) * 0.37):sin()):reshape(2, 3, 11, 9):to(dtype)
    local plain = net(x)
    local f = pg.jit(function(v) return net(v) end)
    t.close(f(x), plain, {rtol = half and 2e-2 or 1e-5, atol = half and 2e-2 or 1e-5})
    local text = f:graph():optimized()
    t.equal({count(text, "conv_act_last"), count(text, "conv_last"), count(text, "max_pool_last"), count(text, "avg_pool_last")},
            half and {2, 1, 1, 1} or {0, 0, 0, 0}, text)
    net:to("cpu")
    t.close(net(x:to("cpu")), plain:to("cpu"), {rtol = half and 2e-2 or 1e-5, atol = half and 2e-2 or 1e-5})
  end
end)

-- A residual block with batch normalization, and a step that returns the loss and the gradients.
local function step_of(dtype)
  local nn = pg.nn
  pg.manual_seed(4)
  local inner = nn.Sequential(
    nn.Conv2D(8, 3, {in_channels = 8, padding = 1, use_bias = false}), nn.BatchNorm{in_channels = 8}, nn.Activation("relu"),
    nn.Conv2D(8, 1, {in_channels = 8}), nn.BatchNorm{in_channels = 8})
  local first, second = nn.Conv2D(8, 3, {in_channels = 3, padding = 1}), nn.Conv2D(16, 3, {in_channels = 8, strides = 2})
  for _, block in ipairs{inner, first, second} do block:initialize(pg.init.Normal(0.3)) block:cast(dtype) end
  return function(x)
    local loss = pg.record(function()
      local y = pg.max_pool2d(first(x):relu(), 2)
      y = (inner(y) + y):relu()
      return (second(y):mean{3, 4}:to("float32") ^ 2):sum()
    end)
    loss:backward()
    return loss, first.weight.grad, first.bias.grad, second.weight.grad, inner[1].weight.grad, inner[2].gamma.grad,
           inner[2].beta.grad, inner[4].weight.grad
  end
end

t.test("a step of training in halves has its channels last in both directions", function()
  for _, dtype in ipairs{"float16", "bfloat16", "float32"} do
    local half = dtype ~= "float32"
    local x = ((pg.range(1, 2 * 3 * 12 * 10) * 0.37):sin()):reshape(2, 3, 12, 10):to(dtype)
    local expected = {step_of(dtype)(x)}
    local f = pg.jit(step_of(dtype))
    local got = {f(x)}
    local text = f:graph():optimized()
    t.equal({count(text, "conv_by_input_last"), count(text, "conv_by_weight_last"), count(text, "conv_by_weight")},
            half and {3, 4, 0} or {0, 0, 4}, text)
    for k = 1, #expected do
      local scale = math.max(expected[k]:to("float32"):abs():amax():item(), 1e-2)
      t.close(got[k]:to("float32") / scale, expected[k]:to("float32") / scale, {rtol = 0, atol = half and 3e-2 or 1e-4, what = dtype .. k})
    end
    -- Images are reordered where they enter, and in the gradient of the mean.
    t.equal({count(text, "max_pool_last"), count(text, "max_pool_backward_last"), count(text, "contiguous")}, half and {1, 1, 2} or {0, 0, 0}, text)
    t.equal(text:find("dim = {1, 3, 4}", 1, true) == nil, half, "gradients of biases sum over the leading dims: " .. text)
  end
end)

t.test("what cuDNN lacks with the channels last goes through the plain form", function()
  local f = pg.jit(function(x, w) return pg.conv2d(x, w, {padding = 1}) end)
  local x, w = pg.range(1, 2 * 2 * 16):reshape(2, 2, 4, 4):to("float16") / 64, weights("float16")
  local expected = f(x, w)
  t.check(f:graph():optimized():find("conv_last", 1, true), "the plain form is in the plan")
  local y = (pg.range(1, 5 * 2 * 16):reshape(5, 2, 4, 4):to("float16") / 64)
  local calls = fake.fake_calls("cudnnConvolutionForward")
  fake.fake_fail("cudnnConvolutionForward", 1, not_supported, 4)  -- both algorithms for halves, and both for float32
  t.equal(f(y, w)[{{1, 2}}]:totable(), expected:totable())
  t.equal(fake.fake_calls("cudnnConvolutionForward"), calls + 5)
end)

t.test("labels outside the classes are reported late", function()
  local x = pg.zeros(2, 3)
  local loss = pg.cross_entropy(x, pg.tensor({1, 4}, {dtype = "int64"}))
  t.error_contains(function() loss:item() end,
           "cross_entropy: bad argument 'target' (expected labels from 1 to 3, or ignore_index -100, got 4 at position 2)")
end)

t.test("a step of training is one program", function()
  local f = pg.jit(function(x, w, target)
    local y = pg.max_pool2d(pg.conv2d(x, w, {padding = 1}):relu(), 2)
    return pg.cross_entropy(y:mean({3, 4}), target)
  end)
  local x, w, target = images("float32"), weights("float32"), pg.tensor({2}, {dtype = "int64"})
  local y = pg.max_pool2d(pg.conv2d(x, w, {padding = 1}):relu(), 2)
  local expected = pg.cross_entropy(y:mean({3, 4}), target):item()
  local before = fake.fake_calls("cuGraphLaunch")
  for _ = 1, 4 do
    local loss = f(x, w, target)
    t.close(loss:item(), expected, {rtol = 1e-6})
    loss:release()  -- the next one has the same memory
  end
  t.check(fake.fake_calls("cuGraphLaunch") > before, "no program was launched")
end)
