-- unfold, fold, bicubic interpolation and deformable convolution. The expected values are PyTorch's and torchvision's,
-- or follow from other ops.
local t = require "tests.support"
local gradcheck = require "tests.gradcheck"
local layers = require "tests.layers"
local pg = require "perigee"

t.test("unfold gives the windows of conv2d", function()
  gradcheck.seed(1)
  local x, w = gradcheck.random{2, 3, 6, 7}, gradcheck.random{4, 3, 3, 2}
  for _, o in ipairs{{padding = 0}, {padding = 1}, {stride = {2, 1}, padding = {0, 2}}, {dilation = {2, 3}, padding = 2, stride = 2}} do
    local columns = pg.unfold(x, {3, 2}, o)
    local want = pg.conv2d(x, w, o)
    t.close(pg.matmul(w:reshape{4, -1}, columns):reshape(want.shape), want, {rtol = 1e-12, atol = 1e-12})
  end
end)

t.test("fold adds what unfold copies", function()
  local x = pg.randn(2, 3, 5, 6)
  local options = {padding = 1, stride = 2}
  local count = pg.fold(pg.unfold(pg.ones_like(x), 3, options), {5, 6}, 3, options)
  t.close(pg.fold(pg.unfold(x, 3, options), {5, 6}, 3, options), x * count, {rtol = 1e-5, atol = 1e-6})
  t.equal(pg.fold(pg.ones(4, 2), {2, 3}, 2):totable(), {{{1, 2, 1}, {1, 2, 1}}})
  t.equal(pg.unfold(pg.ones(3, 4, 4), 2).shape, {12, 9})
  t.equal(pg.unfold(pg.ones(0, 3, 4, 4), 2).shape, {0, 12, 9})
  t.equal(pg.unfold(pg.zeros(1, 1, 1, 1), 1, {padding = 3, stride = 2}):sum():item(), 0)
end)

t.test("wrong windows", function()
  local x = pg.ones(1, 2, 4, 4)
  t.error_contains(function() pg.unfold(x, 5) end, "unfold: bad argument 'x' (expected at least 5 elements")
  t.error_contains(function() pg.unfold(x, {1, 2, 3}) end, "unfold: bad argument 'kernel_size'")
  t.error_contains(function() pg.unfold(pg.ones(4, 4), 2) end, "unfold: bad argument 'x' (expected 4 dims")
  t.error_contains(function() pg.fold(pg.ones(1, 9, 3), {4, 4}, 3) end, "fold: bad argument 'x' (expected 4 columns")
  t.error_contains(function() pg.fold(pg.ones(1, 8, 4), {4, 4}, 3) end, "fold: bad argument 'x' (expected a multiple of 9 rows")
  t.error_contains(function() pg.fold(pg.ones(1, 9, 4), {2, 2}, 3) end, "fold: bad argument 'output_size'")
end)

local bicubic_a = {{{{1.50174, 1.031462, 2.385166, 4.587286}, {2.078178, 4.619596, 4.45245, 1.697195}}}}
local bicubic_b = {{{{1.035604, 3.403294}, {1.638231, 3.223385}, {2.512132, 3.122974}, {3.016007, 3.312826}}}}
local bicubic_c = {{{{1, 4}, {2.09375, 4.875}, {3, 5}, {2.6875, 3.09375}, {2, 1}}}}
local deform_a = {{{{-0.5714475, -1.347172, -0.525168}, {0.3006887, 0.8280539, -0.7985072}, {-1.005768, -0.61059,
  -0.3345072}}, {{-1.24612, -1.713278, -0.4654835}, {0.9437688, 0.5698337, -0.4816463}, {-0.763513, 0.03177959,
  0.04253216}}}}
local deform_b = {{{{1.072105, 0.172892, 1.658154}, {1.206914, 0.5670216, 1.126967}, {1.43658, 1.198929, 0.4595335}},
  {{-0.9818449, -1.402842, -0.2671193}, {-0.7734682, -1.311784, -0.5221259}, {-0.1003467, -0.3882959, -1.575419}}}}

local image = pg.tensor({{{{1, 2, 4}, {3, 0, 5}, {2, 7, 1}}}}, {dtype = "float64"})

t.test("bicubic interpolation as PyTorch's", function()
  local function rounded(o) return pg.interpolate(image, o) end
  t.close(rounded{size = {2, 4}, mode = "bicubic"}, bicubic_a, {atol = 1e-6})
  t.close(rounded{scale_factor = {1.5, 0.7}, mode = "bicubic"}, bicubic_b, {atol = 1e-6})
  t.close(rounded{size = {5, 2}, mode = "bicubic", align_corners = true}, bicubic_c, {atol = 1e-6})
  t.error_contains(function() pg.interpolate(pg.ones(1, 1, 4), {size = {2}, mode = "bicubic"}) end, "mode")
end)

t.test("deform_conv2d without offsets is conv2d", function()
  gradcheck.seed(2)
  local x, w, bias = gradcheck.random{2, 4, 5, 6}, gradcheck.random{6, 2, 3, 2}, gradcheck.random{6}
  for _, o in ipairs{{stride = 1}, {stride = 2, padding = 1}, {dilation = {1, 2}, padding = {2, 1}}} do
    local plain = {stride = o.stride, padding = o.padding, dilation = o.dilation, groups = 2}
    local want = pg.conv2d(x, w, bias, plain)
    local offset = pg.zeros({2, 2 * 2 * 6, want:size(3), want:size(4)}, {dtype = "float64"})
    t.close(pg.deform_conv2d(x, offset, w, bias, o), want, {rtol = 1e-12, atol = 1e-12})
    local shift = pg.deform_conv2d(x, offset + 1, w, bias, o)
    local moved = pg.pad(x, {0, 1, 0, 1})[{{}, {}, {2, -1}, {2, -1}}]
    local inner = {{}, {}, {1, 1}, {1, 1}}
    if not o.padding then t.close(shift[inner], pg.conv2d(moved, w, bias, plain)[inner], {rtol = 1e-12, atol = 1e-12}) end
  end
end)

t.test("deform_conv2d as torchvision's", function()
  local function ramp(shape, factor)
    local count = 1
    for _, n in ipairs(shape) do count = count * n end
    return (pg.range(1, count, {dtype = "float64"}) * factor):sin():reshape(shape)
  end
  local x, offset, w = ramp({1, 2, 4, 4}, 0.7), ramp({1, 16, 3, 3}, 1.3) * 1.5, ramp({2, 2, 2, 2}, 0.9)
  local mask = ramp({1, 8, 3, 3}, 0.31)
  t.close(pg.deform_conv2d(x, offset, w), deform_a, {atol = 1e-6})
  t.close(pg.deform_conv2d(x, offset, w, ramp({2}, 2), {mask = mask}), deform_b, {atol = 1e-6})
end)

t.test("wrong deformations", function()
  local x, w = pg.ones(1, 4, 4, 4), pg.ones(2, 2, 3, 3)
  local function fails(text, offset, weight, options)
    t.error_contains(function() pg.deform_conv2d(x, offset, weight or w, options) end, "deform_conv2d: bad argument " .. text)
  end
  fails("'offset' (expected 18 values for each of some groups of the 4 channels", pg.zeros(1, 17, 2, 2))
  fails("'offset' (expected shape 1x18x2x2", pg.zeros(1, 18, 3, 2))
  fails("'x' (expected a multiple of 3 channels", pg.zeros(1, 18, 2, 2), pg.ones(2, 3, 3, 3))
  fails("'mask' (expected shape 1x9x2x2", pg.zeros(1, 18, 2, 2), w, {mask = pg.ones(1, 18, 2, 2)})
  fails("'x' (expected at least 5 elements", pg.zeros(1, 50, 1, 1), pg.ones(2, 4, 5, 5))
end)

t.test("DeformableConvolution", function()
  for _, name in ipairs{"DeformableConvolution", "ModulatedDeformableConvolution"} do
    local net = pg.nn[name](4, {kernel_size = {3, 2}, padding = 1, groups = 2, num_deformable_group = 2, activation = "relu"})
    net:initialize()
    local x = pg.randn(2, 4, 5, 6)
    -- Without offsets it is a convolution, and the factors are 2 sigmoid(0) = 1.
    t.close(net(x), pg.conv2d(x, net.deformable_conv_weight, net.deformable_conv_bias, {padding = 1, groups = 2}):relu(),
            {rtol = 1e-4, atol = 1e-5})
    net.offset_weight:set_data(pg.randn(net.offset_weight.shape) * 0.1)
    net.offset_bias:set_data(pg.rand(net.offset_bias.shape) * 0.3 + 0.1)
    layers.check(net, x)
    net:cast("float64")
    layers.gradients(net, x:to("float64"))
  end
  t.bad_argument(function() return pg.nn.DeformableConvolution(3, {groups = 2}) end, "DeformableConvolution", "channels")
  t.bad_argument(function() return pg.nn.DeformableConvolution(2, {groups = 2, in_channels = 3}) end, "DeformableConvolution", "in_channels")
  t.bad_argument(function()
    local net = pg.nn.DeformableConvolution(2, {num_deformable_group = 2})
    net:initialize()
    return net(pg.ones(1, 3, 4, 4))
  end, "DeformableConvolution", "in_channels")
end)

t.test("nearest neighbors of images are rows and columns, and gradients add up", function()
  for _, size in ipairs{{10, 14}, {3, 20}, {7, 3}, {2, 2}, {5, 9}} do
    local x = pg.randint(-9, 10, {2, 3, 5, 7}):float():attach_grad()
    local y = pg.record(function() return pg.interpolate(x, size) end)
    local rows = (pg.range(0, size[1] - 1):float() * 5 / size[1]):floor():to("int64") + 1
    local columns = (pg.range(0, size[2] - 1):float() * 7 / size[2]):floor():to("int64") + 1
    t.equal(y, x:index_select(3, rows):index_select(4, columns))
    local dy = pg.randint(-9, 10, y.shape):float()
    y:backward(dy)
    local sums = pg.zeros(2, 3, 5, size[2]):index_add(3, rows, dy)
    t.equal(x.grad, pg.zeros(2, 3, 5, 7):index_add(4, columns, sums))
  end
end)

t.test("interpolate copies a dim that keeps its size", function()
  local x = pg.tensor{{{1, 2, 4}}}
  t.equal(pg.interpolate(x, {scale_factor = {1.3}, mode = "linear"}), x)
end)

-- PyTorch ignores the factor of an image that doubles, but not that of a sequence.
t.test("nearest interpolation by a factor that is not the ratio of the sizes", function()
  local x = pg.tensor{{{1, 2, 3}}}
  t.equal(pg.interpolate(x, {scale_factor = {2.3}}):totable(), {{{1, 1, 1, 2, 2, 3}}})
  t.equal(pg.interpolate(x:unsqueeze(3), {scale_factor = {1, 2.3}}):totable(), {{{{1, 1, 2, 2, 3, 3}}}})
end)
