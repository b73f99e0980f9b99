-- Convolution, pooling and resampling as scripts see them.
local t = require "tests.support"
local pg = require "perigee"

local function range(...)
  local shape, n = {...}, 1
  for _, d in ipairs(shape) do n = n * d end
  return pg.range(1, n):reshape(shape)
end

t.test("conv2d takes bias and options, batched or not", function()
  local x, w = range(1, 1, 3, 3), pg.ones(1, 1, 2, 2)
  t.equal(x:conv2d(w):totable(), {{{{12, 16}, {24, 28}}}})
  t.equal(x:conv2d(w, pg.tensor({1})):totable(), {{{{13, 17}, {25, 29}}}})
  t.equal(x[1]:conv2d(w):totable(), {{{12, 16}, {24, 28}}})
  t.equal(x:conv2d(w, {stride = 2, padding = 1}).shape, {1, 1, 2, 2})
  t.equal(x:conv2d(w, nil, {padding = {1, 0}}).shape, {1, 1, 4, 2})
  t.equal(pg.ones(0, 1, 3, 3):conv2d(w).shape, {0, 1, 2, 2})
  t.equal(pg.ones(2, 4, 9):conv1d(pg.ones(6, 2, 3), {groups = 2}).shape, {2, 6, 7})
  t.equal(pg.ones(1, 2, 4, 4, 4):conv3d(pg.ones(3, 2, 2, 2, 2)).shape, {1, 3, 3, 3, 3})
end)

t.test("transposed convolution", function()
  local y = pg.conv_transpose2d(range(1, 1, 2, 2), pg.ones(1, 1, 2, 2), {stride = 2})
  t.equal(y:totable(), {{{{1, 1, 2, 2}, {1, 1, 2, 2}, {3, 3, 4, 4}, {3, 3, 4, 4}}}})
  t.equal(pg.conv_transpose1d(pg.ones(1, 2, 5), pg.ones(2, 3, 3), {stride = 2, output_padding = 1}).shape, {1, 3, 12})
end)

t.test("half precision is computed in float32", function()
  local x, w = range(1, 1, 3, 3):to("bfloat16"), pg.ones(1, 1, 2, 2):to("bfloat16")
  local y = x:conv2d(w)
  t.equal(y.dtype, "bfloat16")
  t.equal(y:to("float32"):totable(), {{{{12, 16}, {24, 28}}}})
end)

t.test("pooling", function()
  local x = range(1, 1, 4, 5)
  t.equal(x:max_pool2d(2):totable(), {{{{7, 9}, {17, 19}}}})
  t.equal(x:max_pool2d(2, {ceil_mode = true}):totable(), {{{{7, 9, 10}, {17, 19, 20}}}})
  t.equal(x:avg_pool2d(2):totable(), {{{{4, 6}, {14, 16}}}})
  t.equal(x:avg_pool2d({2, 1}, {stride = 1}).shape, {1, 1, 3, 5})
  t.equal(x:adaptive_avg_pool{1, 1}:item(), 10.5)
  t.equal(x:adaptive_max_pool{2, 2}:totable(), {{{{8, 10}, {18, 20}}}})
  t.check(pg.lp_pool(x, 1, 2):allclose(x:avg_pool2d(2) * 4), "1-norm")
end)

t.test("max pooling sends the gradient to one element a window", function()
  local x = pg.ones(1, 1, 4, 4):attach_grad()
  local y = pg.record(function() return x:max_pool2d(2):sum() end)
  y:backward()
  t.equal(x.grad:sum():item(), 4)
  t.equal(x.grad:totable(), {{{{1, 0, 1, 0}, {0, 0, 0, 0}, {1, 0, 1, 0}, {0, 0, 0, 0}}}})
end)

t.test("interpolate and pixel_shuffle", function()
  local x = range(1, 1, 2, 2)
  t.equal(pg.interpolate(x, {scale_factor = 2}):totable(), {{{{1, 1, 2, 2}, {1, 1, 2, 2}, {3, 3, 4, 4}, {3, 3, 4, 4}}}})
  t.equal(pg.interpolate(x, {size = {3, 3}, mode = "bilinear", align_corners = true}):totable(),
    {{{{1, 1.5, 2}, {2, 2.5, 3}, {3, 3.5, 4}}}})
  local y = range(1, 4, 1, 2):pixel_shuffle(2)
  t.equal(y:totable(), {{{{1, 3, 2, 4}, {5, 7, 6, 8}}}})
  t.equal(y:pixel_unshuffle(2):totable(), range(1, 4, 1, 2):totable())
end)

t.test("wrong operands name what was expected", function()
  local x, w = pg.ones(1, 2, 5, 5), pg.ones(3, 2, 3, 3)
  t.error_contains(function() x:conv2d(pg.ones(3, 4, 3, 3)) end, "conv2d: bad argument 'x' (expected 4 channels (weight 3x4x3x3, groups 1), got float32 1x2x5x5 cpu)")
  t.error_contains(function() x:conv2d(pg.ones(3, 2, 7, 3)) end, "conv2d: bad argument 'x'")
  t.error_contains(function() x:conv2d(w, {stride = 0}) end, "conv2d: bad argument 'stride'")
  t.error_contains(function() x:conv2d(w, {stride = {1, 2, 3}}) end, "conv2d: bad argument 'stride'")
  t.error_contains(function() x:conv2d(w, pg.ones(4)) end, "conv2d: bad argument 'bias' (expected 3 elements, got float32 4 cpu)")
  t.error_contains(function() x:max_pool2d(3, {padding = 2}) end, "max_pool2d: bad argument 'padding' (expected at most half of kernel_size")
  t.error_contains(function() x:max_pool2d(6) end, "max_pool2d: bad argument 'x'")
  t.error_contains(function() pg.interpolate(x, {size = {2, 2}, scale_factor = 2}) end, "interpolate: bad argument 'size' (expected either size or scale_factor, got both)")
end)

t.test("one size serves every spatial dim of adaptive pools", function()
  local x = range(2, 3, 6, 4)
  for _, op in ipairs{"adaptive_avg_pool", "adaptive_max_pool"} do
    t.equal(x[op](x, 2), x[op](x, {2, 2}))
    t.equal(x[op](x, {1}), x[op](x, {1, 1}))
    local line = range(2, 3, 8)
    t.equal(line[op](line, 4).shape, {2, 3, 4})
  end
  t.equal(range(1, 1, 4, 4, 4):adaptive_avg_pool(2).shape, {1, 1, 2, 2, 2})
end)

t.test("padding by name: valid and same", function()
  local x, w = range(1, 1, 5, 6), pg.ones(2, 1, 3, 5)
  t.equal(x:conv2d(w, {padding = "valid"}), x:conv2d(w))
  t.equal(x:conv2d(w, {padding = "same"}), x:conv2d(w, {padding = {1, 2}}))
  t.equal(x:conv2d(w, {padding = "same", dilation = 2}).shape, {1, 2, 5, 6})
  t.equal(range(1, 1, 7):conv1d(pg.ones(1, 1, 3), {padding = "same"}).shape, {1, 1, 7})
  t.bad_argument(function() return x:conv2d(w, {padding = "same", stride = 2}) end, "conv2d", "padding")
  t.bad_argument(function() return x:conv2d(pg.ones(1, 1, 2, 2), {padding = "same"}) end, "conv2d", "padding")
  t.bad_argument(function() return x:conv2d(w, {padding = "some"}) end, "conv2d", "padding")
  t.bad_argument(function() return x:conv2d_(w, {padding = "same"}) end)
  t.bad_argument(function() return x:conv_transpose2d(w, {padding = "same"}) end, "conv_transpose2d", "padding")
end)
