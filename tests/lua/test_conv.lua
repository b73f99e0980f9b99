-- Convolution, pooling and resampling as scripts use them.
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

-- Returns the largest |got - want| / (|want| / 256 + slack), where got is rounded to bfloat16 once.
local function off_by(got, want, slack)
  got, want = got:to("float32"), want:to("float32")
  return ((got - want):abs() / (want:abs() / 256 + slack)):max():item()
end

t.test("large convolutions of bfloat16 are those of the same numbers in float32, rounded once", function()
  t.skip_in("cuda_host", "its library rounds before it adds a bias")
  local narrow = {x = (pg.rand(2, 32, 20, 21) - 0.5):to("bfloat16"), w = ((pg.rand(48, 32, 3, 3) - 0.5) / 4):to("bfloat16")}
  local bias = (pg.rand(48) - 0.5):to("bfloat16")
  local wide = {x = narrow.x:to("float32"), w = narrow.w:to("float32")}
  for _, options in ipairs{{padding = 1}, {padding = 2, dilation = 2, stride = 2}} do
    local function run(of)
      for _, v in pairs(of) do v:attach_grad() end
      local b = bias:to(of.x.dtype)
      local y = pg.record(function() return of.x:conv2d(of.w, b, options):relu() end)
      local dy = (pg.range(1, y:numel()):reshape(y.shape):sin()):to("bfloat16"):to(of.x.dtype)
      y:backward(dy)
      return y
    end
    local got, want = run(narrow), run(wide)
    t.equal(got.dtype, "bfloat16")
    t.equal(off_by(got, want, 1e-4) <= 1, true)
    for name in pairs(narrow) do t.equal(off_by(narrow[name].grad, wide[name].grad, 1e-2) <= 1, true) end
  end
  local transposed = pg.conv_transpose2d(narrow.x, narrow.w:permute(2, 1, 3, 4):contiguous(), {stride = 2})
  t.equal(off_by(transposed, pg.conv_transpose2d(wide.x, wide.w:permute(2, 1, 3, 4):contiguous(), {stride = 2}), 1e-4) <= 1, true)
end)

t.test("convolutions of bfloat16 that the library gets wrong are right", function()
  t.skip_in("cuda_host", "its library adds up in bfloat16")
  for _, c in ipairs{
    {x = {3, 20, 35, 20}, w = {76, 20, 3, 3}, {padding = 3, stride = 2}},         -- rows of windows that read only padding
    {x = {2, 64, 33, 30}, w = {64, 64, 1, 1}, {padding = 1, stride = 2}},
    {x = {4, 48, 41, 21}, w = {48, 48, 2, 2}, {stride = 3}},                     -- pixels that no window reads
    {x = {2, 64, 20, 40}, w = {64, 1, 3, 3}, {padding = 2, dilation = 2, groups = 64}},
    {x = {2, 144, 20, 40}, w = {144, 36, 3, 3}, {padding = 2, dilation = 2, groups = 4}},
  } do
    local narrow = {x = pg.randn(unpack(c.x)):to("bfloat16"), w = pg.randn(unpack(c.w)):to("bfloat16")}
    local wide, dy = {x = narrow.x:to("float32"), w = narrow.w:to("float32")}, nil
    local function run(of)
      for _, v in pairs(of) do v:attach_grad() end
      local y = pg.record(function() return of.x:conv2d(of.w, nil, c[1]) end)
      dy = dy or pg.randn(unpack(y.shape)):to("bfloat16")
      y:backward{grad = dy:to(of.x.dtype)}
      return {y, of.x.grad, of.w.grad}
    end
    local want, jitted = run(wide), pg.jit(function(x, w) return x:conv2d(w, nil, c[1]) end)
    for _, got in ipairs{run(narrow), run(narrow), {jitted(narrow.x, narrow.w)}} do
      for k, v in ipairs(got) do
        local off = (v:to("float32") - want[k]):norm():item() / want[k]:norm():item()
        t.check(off < 0.01, ("value %d of %s is off by %g"):format(k, table.concat(c.w, "x"), off))
      end
    end
  end
end)

t.test("a NaN or an infinity stays where a large convolution of bfloat16 reads it", function()
  t.skip_in("winograd", "others of the tile may become NaN too")
  local x, w = pg.ones(1, 32, 20, 20, {dtype = "bfloat16"}), pg.ones(32, 32, 3, 3, {dtype = "bfloat16"})
  x[{1, 5, 3, 4}], x[{1, 6, 18, 18}] = 0 / 0, math.huge
  local y = x:conv2d(w, {padding = 1}):relu():to("float32")
  t.equal(y:isnan():sum():item(), 32 * 9)
  t.equal(y:isinf():sum():item(), 32 * 9)
  t.equal(y[1][7][10][10]:item(), 288)
end)

t.test("networks of bfloat16 give about the same eagerly and as graphs", function()
  local nn = pg.nn
  local net = nn.HybridSequential()
  for _, l in ipairs{{3, 32, 3, 1}, {32, 32, 3, 32}, {32, 64, 1, 1}} do
    local inputs, channels, kernel, groups = unpack(l)
    net:add(nn.Conv2D(channels, kernel, {in_channels = inputs, groups = groups, padding = (kernel - 1) / 2, use_bias = false}))
    net:add(nn.BatchNorm{in_channels = channels})
    net:add(nn.Activation("relu"))
  end
  net:initialize()
  local x = pg.rand(2, 3, 40, 40) - 0.5
  pg.record(function() return net(x) end)  -- statistics of batch normalization
  local want = net(x)
  net:cast("bfloat16")
  local eager = net(x:to("bfloat16"))
  net:hybridize()
  local graph = net(x:to("bfloat16"))
  t.equal(graph.dtype, "bfloat16")
  local scale = want:abs():max():item()
  for _, y in ipairs{eager, graph} do t.equal((y:to("float32") - want):abs():max():item() < 0.04 * scale, true) end
end)

-- Returns a step of training of a network with shortcuts, as a function of an image, and the network's blocks.
local function network(channels)
  local nn = pg.nn
  local function conv(kernel, strides, bias)
    return nn.Conv2D(channels, kernel, {in_channels = channels, strides = strides, padding = (kernel - 1) / 2, use_bias = bias})
  end
  local first = nn.Conv2D(channels, 7, {in_channels = 3, strides = 2, padding = 3})
  local inner, second, short = nn.HybridSequential(), conv(3, 2, true), conv(1, 2, false)
  inner:add(nn.BatchNorm{in_channels = channels}, nn.Activation("relu"), conv(3, 1, false), nn.BatchNorm{in_channels = channels})
  local blocks = {first, inner, second, short}
  for _, block in ipairs(blocks) do block:initialize() end
  return function(x)
    local loss = pg.record(function()
      local y = pg.max_pool2d(first(x):relu(), 3, {stride = 2, padding = 1})
      y = (inner(y) + y):relu()
      y = (second(y) + short(y)):relu()
      return (y:mean{3, 4}:to("float32") ^ 2):sum()
    end)
    loss:backward()
    return loss, first.weight.grad, first.bias.grad, second.weight.grad, short.weight.grad, inner[1].gamma.grad, inner[3].weight.grad, inner[4].beta.grad
  end, blocks
end

t.test("steps of training in bfloat16 are about those of float32, eagerly and as one graph", function()
  t.skip_in("gcstress", "the same kernels")
  for _, size in ipairs{{32, 56, 48}, {64, 96, 84}} do  -- the second in a layout of its own where there are tiles
    local channels, height, width = unpack(size)
    local step, blocks = network(channels)
    local x, want = pg.rand(2, 3, height, width) - 0.5, {}
    for k, v in ipairs{step(x)} do want[k] = v:clone() end
    for _, block in ipairs(blocks) do block:cast("bfloat16") end
    for _, f in ipairs{step, pg.jit(step)} do
      for k, got in ipairs{f(x:to("bfloat16"))} do
        local off = (got:to("float32") - want[k]):norm():item() / want[k]:norm():item()
        t.check(off < 0.2, ("value %d is off by %g"):format(k, off))
      end
    end
  end
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

t.test("lp_pool without a batch", function()
  for dims, kernel in ipairs{{2}, {2, 3}, {1, 2, 3}} do
    local x = pg.rand(2, 3, unpack({6, 7, 8}, 1, dims))
    local y = x:lp_pool(2, kernel, {ceil_mode = true})
    t.equal(x[2]:lp_pool(2, dims == 1 and 2 or kernel, {ceil_mode = true}), y[2])
  end
  t.error_contains(function() return pg.ones(5):lp_pool(2, 2) end, "lp_pool: bad argument 'x' (expected 3 to 5 dims (batch, channels, spatial) or one less, with a kernel_size for each spatial dim, got float32 5")
  t.error_contains(function() return pg.ones(4, 5):lp_pool(2, {2, 2}) end, "lp_pool: bad argument 'x' (expected 4 dims (batch, channels, 2 spatial) or one less, got float32 4x5")
end)

t.test("max pooling sends the gradient to one element per window", function()
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

-- Lines of the last dim have loops of their own.
t.test("interpolate resizes every dim alike, and its gradient is the transposed matrix", function()
  for _, mode in ipairs{"nearest-exact", "bilinear", "bicubic"} do
    for _, sizes in ipairs{{1, 5}, {4, 9}, {5, 10}, {7, 3}, {9, 4}, {6, 6}, {3, 1}, {8, 31}} do
      local n, m = sizes[1], sizes[2]
      for _, corners in ipairs(mode == "nearest-exact" and {false} or {false, true}) do
        local function resized(x, axis)
          local size = axis == 3 and {m, 2} or {2, m}
          return pg.interpolate(x, {size = size, mode = mode, align_corners = corners})
        end
        local last, first = pg.randn(3, 2, 2, n), nil
        first = last:transpose(3, 4):contiguous()
        last:attach_grad() first:attach_grad()
        local dy = pg.randn(3, 2, 2, m)
        local a = pg.record(function() return resized(last, 4) end)
        local b = pg.record(function() return resized(first, 3) end)
        local name = ("%s %d to %d"):format(mode, n, m)
        t.equal(a:totable(), b:transpose(3, 4):totable(), name)
        a:backward(dy) b:backward(dy:transpose(3, 4):contiguous())
        t.close(last.grad, first.grad:transpose(3, 4), {rtol = 1e-6, atol = 1e-6})
        local matrix = resized(pg.eye(n):reshape(n, 1, 1, n):expand(n, 1, 2, n), 4):select(3, 1):reshape(n, m)
        t.close(last.grad, pg.matmul(dy, matrix:transpose(1, 2)), {rtol = 1e-5, atol = 1e-5})
      end
    end
  end
end)

t.test("interpolate copies elements at their own places, beside infinities and NaN", function()
  local inf, nan = math.huge, 0 / 0
  for _, x in ipairs{pg.tensor{1, inf, 2, nan, 3}:reshape(1, 1, 5), pg.tensor{1, inf, 2, nan, 3}:reshape(1, 1, 5, 1)} do
    local spatial = x:dim() == 3 and {9} or {9, 1}
    local y = pg.interpolate(x, {size = spatial, mode = x:dim() == 3 and "linear" or "bilinear", align_corners = true})
    local list = y:reshape(9):totable()
    for i, want in pairs{[1] = 1, [3] = inf, [5] = 2, [9] = 3} do t.equal(list[i], want) end
    t.equal({list[7] ~= list[7], list[2], list[4]}, {true, inf, inf})
  end
end)

t.test("errors of wrong operands say what was expected", function()
  local x, w = pg.ones(1, 2, 5, 5), pg.ones(3, 2, 3, 3)
  t.error_contains(function() x:conv2d(pg.ones(3, 4, 3, 3)) end, "conv2d: bad argument 'x' (expected 4 channels (weight 3x4x3x3, groups 1), got float32 1x2x5x5 ")
  t.error_contains(function() x:conv2d(pg.ones(3, 2, 7, 3)) end, "conv2d: bad argument 'x'")
  t.error_contains(function() x:conv2d(w, {stride = 0}) end, "conv2d: bad argument 'stride'")
  t.error_contains(function() x:conv2d(w, {stride = {1, 2, 3}}) end, "conv2d: bad argument 'stride'")
  t.error_contains(function() x:conv2d(w, pg.ones(4)) end, "conv2d: bad argument 'bias' (expected 3 elements, got float32 4 ")
  t.error_contains(function() x:max_pool2d(3, {padding = 2}) end, "max_pool2d: bad argument 'padding' (expected at most half of kernel_size")
  t.error_contains(function() x:max_pool2d(6) end, "max_pool2d: bad argument 'x'")
  t.error_contains(function() pg.interpolate(x, {size = {2, 2}, scale_factor = 2}) end, "interpolate: bad argument 'size' (expected either size or scale_factor, got both)")
end)

t.test("adaptive pools use one size for all spatial dims", function()
  local x = range(2, 3, 6, 4)
  for _, op in ipairs{"adaptive_avg_pool", "adaptive_max_pool"} do
    t.equal(x[op](x, 2), x[op](x, {2, 2}))
    t.equal(x[op](x, {1}), x[op](x, {1, 1}))
    local line = range(2, 3, 8)
    t.equal(line[op](line, 4).shape, {2, 3, 4})
  end
  t.equal(range(1, 1, 4, 4, 4):adaptive_avg_pool(2).shape, {1, 1, 2, 2, 2})
end)

-- Windows overlap, and equal maxima lie in different rows and columns. Values: torch.nn.functional.adaptive_max_pool2d.
t.test("the first of equal maxima of an adaptive pool gets the gradient", function()
  local x = pg.tensor{{{0, 1, 0, 1}, {1, 0, 1, 0}, {0, 1, 0, 0}}}:attach_grad()
  for _, case in ipairs{
    {{2, 3}, {{0, 2, 0, 1}, {1, 0, 2, 0}, {0, 0, 0, 0}}}, {{2, 2}, {{0, 1, 0, 1}, {1, 0, 1, 0}, {0, 0, 0, 0}}},
    {{3, 3}, {{0, 2, 0, 1}, {1, 0, 2, 0}, {0, 2, 1, 0}}},
  } do
    pg.record(function() return x:adaptive_max_pool(case[1]):sum() end):backward()
    t.equal(x.grad:totable(), {case[2]}, table.concat(case[1], "x"))
  end
end)

t.test("padding by name: valid and same", function()
  local x, w = range(1, 1, 5, 6), pg.ones(2, 1, 3, 5)
  t.equal(x:conv2d(w, {padding = "valid"}), x:conv2d(w))
  t.equal(x:conv2d(w, {padding = "same"}), x:conv2d(w, {padding = {1, 2}}))
  t.equal(x:conv2d(w, {padding = "same", dilation = 2}).shape, {1, 2, 5, 6})
  t.equal(range(1, 1, 7):conv1d(pg.ones(1, 1, 3), {padding = "same"}).shape, {1, 1, 7})
  t.bad_argument(function() return x:conv2d(w, {padding = "same", stride = 2}) end, "conv2d", "padding")
  t.bad_argument(function() return x:conv2d(pg.ones(1, 1, 2), {padding = "same"}) end, "conv2d", "weight")
  t.bad_argument(function() return pg.ones(5):conv2d(w, {padding = "same"}) end, "conv2d", "x")
  t.bad_argument(function() return x:conv2d(w, {padding = "some"}) end, "conv2d", "padding")
  t.bad_argument(function() return x:conv2d_(w, {padding = "same"}) end)
  t.bad_argument(function() return x:conv_transpose2d(w, {padding = "same"}) end, "conv_transpose2d", "padding")
end)

-- Values: torch.nn.functional.conv1d(padding="same").
t.test("same padding of an odd width has its extra zero at the end", function()
  local line = range(1, 1, 5)
  t.equal(line:conv1d(pg.tensor{{{1, 10}}}, {padding = "same"}):totable(), {{{21, 32, 43, 54, 5}}})
  t.equal(line:conv1d(pg.tensor{{{1, 10, 100, 1000}}}, {padding = "same"}):totable(), {{{3210, 4321, 5432, 543, 54}}})
  t.equal(line:conv1d(pg.tensor{{{1, 10}}}, {padding = "same", dilation = 3}):totable(), {{{30, 41, 52, 3, 4}}})
  local function compare(x, w, widths, options)
    local both = {padding = "same"}
    for k, v in pairs(options or {}) do both[k] = v end
    local same = x["conv" .. w:dim() - 2 .. "d"]
    local function padded(a, b) return same(a:pad(widths), b, options or {}) end
    local function named(a, b) return same(a, b, both) end
    t.check(named(x, w):allclose(padded(x, w), {rtol = 1e-6, atol = 1e-6}))
    t.check(pg.jit(named)(x, w):allclose(padded(x, w), {rtol = 1e-6, atol = 1e-6}), "traced")
    local function second(f)
      local a, b = x:detach():attach_grad(), w:detach():attach_grad()
      pg.record(function()
        local g = pg.autograd.grad({f(a, b):square():sum()}, {a, b}, {create_graph = true})
        return g[1]:square():sum() + g[2]:square():sum()
      end):backward()
      return {a.grad, b.grad}
    end
    for _, f in ipairs{named, pg.jit(named)} do
      local got, expected = second(f), second(padded)
      for i = 1, 2 do t.check(got[i]:allclose(expected[i], {rtol = 1e-3, atol = 1e-2}), "gradient " .. i) end
    end
  end
  compare(pg.randn(2, 4, 5), pg.randn(2, 2, 4), {1, 2}, {groups = 2})
  compare(pg.randn(1, 2, 5, 4), pg.randn(3, 2, 2, 3), {1, 1, 0, 1})
  compare(pg.randn(2, 5, 4), pg.randn(3, 2, 4, 2), {1, 2, 4, 5}, {dilation = 3})
  compare(pg.randn(1, 1, 3, 4, 5), pg.randn(2, 1, 2, 3, 4), {1, 2, 1, 1, 0, 1})
end)

t.test("layers take padding by name", function()
  local x = pg.randn(1, 2, 5, 6)
  local layer = pg.nn.Conv2D(3, {2, 3}, {padding = "same"})
  layer:initialize()
  t.equal(layer(x).shape, {1, 3, 5, 6})
  t.check(tostring(layer):find("padding same", 1, true))
  layer:hybridize()
  t.equal(layer(pg.randn(2, 2, 4, 7)).shape, {2, 3, 4, 7})
  t.close(layer(x), x:conv2d(layer.weight, layer.bias, {padding = "same"}), {atol = 1e-6})
  t.bad_argument(function() return pg.nn.Conv1DTranspose(3, 2, {padding = "same"}) end, "Conv1DTranspose", "padding")
  t.bad_argument(function() return pg.nn.Conv1D(3, 2, {padding = "some"}) end, "Conv1D", "padding")
end)

-- Values: torch.nn.functional.conv_transpose1d.
t.test("output_padding of a transposed convolution is less than the stride or the dilation", function()
  local x, w = range(1, 1, 3), pg.tensor{{{1, 10}}}
  t.equal(x:conv_transpose1d(w, {dilation = 2, output_padding = 1}):totable(), {{{1, 2, 13, 20, 30, 0}}})
  t.equal(x:conv_transpose1d(w, pg.tensor{5}, {dilation = 3, output_padding = 2}):totable(), {{{6, 7, 8, 15, 25, 35, 5, 5}}})
  t.equal(x:conv_transpose1d(w, {stride = 2, dilation = 4, padding = 1, output_padding = 3}):totable(), {{{0, 2, 0, 13, 0, 20, 0, 30, 0, 0}}})
  for _, options in ipairs{{output_padding = 1}, {stride = 2, dilation = 2, output_padding = 2}} do
    t.bad_argument(function() return x:conv_transpose1d(w, options) end, "conv_transpose1d", "output_padding")
  end
  t.bad_argument(function() return pg.ones(1, 1, 1):conv_transpose1d(w, {padding = 1}) end, "conv_transpose1d", "padding")
  t.bad_argument(function() return pg.ones(1, 1, 0):conv_transpose1d(w) end, "conv_transpose1d", "x")
  local empty = pg.ones(0, 1, 3):attach_grad()
  pg.record(function()
    local y = empty:conv_transpose1d(w, {dilation = 2, output_padding = 1})
    t.equal(y.shape, {0, 1, 6})
    return y:sum()
  end):backward()
  t.equal(empty.grad.shape, {0, 1, 3})
end)

t.test("images without pixels or channels of one size give sums of padding", function()
  for _, dtype in ipairs{"float16", "bfloat16", "float32", "float64"} do
    local function ones(shape) return pg.ones(shape, {dtype = dtype}) end
    local w, bias = ones{3, 2, 2, 2}, ones{3}
    for _, size in ipairs{{2, 0}, {0, 2}, {0, 0}} do
      local height, width = size[1], size[2]
      local x = ones{2, 2, height, width}:attach_grad()
      local y = pg.record(function() return x:conv2d(w, bias, {padding = 1}) end)
      t.equal(y:totable(), ones{2, 3, height + 1, width + 1}:totable())
      y:backward()
      t.equal(x.grad.shape, {2, 2, height, width})
      local last = pg.testing.ops._conv_act_last(ones{2, height, width, 2}, w, bias, {padding = 1, activation = "relu"})
      t.equal(last:totable(), ones{2, height + 1, width + 1, 3}:totable())
    end
    t.equal(ones{2, 0, 3, 3}:conv2d(ones{3, 0, 2, 2}, bias):totable(), ones{2, 3, 2, 2}:totable())
    t.equal(ones{2, 2, 3, 3}:conv2d(ones{0, 2, 2, 2}).shape, {2, 0, 2, 2})
  end
end)

t.test("padding names and counted classes hold for methods in place", function()
  local x = pg.randn(1, 2, 5)
  local w = pg.randn(2, 2, 3)
  local expected = pg.conv1d(x, w, {padding = "same"})
  x:conv1d_(w, {padding = "same"})
  t.equal(tostring(x), tostring(expected))
  t.bad_argument(function() return pg.max_pool1d(x, 2, {padding = "same"}) end, "max_pool1d", "padding")
  t.bad_argument(function() return x:sum(pg.tensor({1}, {dtype = "int64"})) end, "sum", "dim")
end)

-- Large enough for oneDNN and for Winograd's algorithm, whichever is faster here.
local function large_arguments(n)
  local generator = pg.Generator(7)
  local function rand(...) return pg.rand({...}, {generator = generator}) - 0.5 end
  return rand(n, 32, 29, 26), rand(40, 32, 3, 3), rand(40)
end

t.test("large convolutions of 3 x 3 and their gradients agree with float64", function()
  for _, padding in ipairs{0, 1, 2} do
    local x, w, b = large_arguments(2)
    local results = {}
    for i, dtype in ipairs{"float32", "float64"} do
      local u, v, c = x:to(dtype):attach_grad(), w:to(dtype):attach_grad(), b:to(dtype):attach_grad()
      local y = pg.record(function() return u:conv2d(v, c, {padding = padding}):relu() end)
      y:backward(pg.cos(pg.range(0, y:numel() - 1)):to(dtype):reshape(y.shape))
      results[i] = {y, u.grad, v.grad, c.grad}
    end
    for i, name in ipairs{"y", "x.grad", "w.grad", "b.grad"} do
      local got, want = results[1][i]:double(), results[2][i]
      local difference = (got - want):abs():max():item()
      t.check(difference < 2e-5 * math.max(1, want:abs():max():item()), ("%s, padding %d: %g"):format(name, padding, difference))
    end
  end
end)

t.test("a large convolution of one image has the same bits eagerly and in a plan", function()
  local x, w, b = large_arguments(1)
  local function f(image, weight, bias) return image:conv2d(weight, bias, {padding = 1}):relu() end
  local eager, planned = f(x, w, b):to_bytes(), pg.jit(f)
  for _ = 1, 3 do t.check(planned(x, w, b):to_bytes() == eager) end
  local constant = pg.jit(function(image) return f(image, w, b) end)  -- its weights are packed
  for _ = 1, 3 do t.check(constant(x):to_bytes() == eager) end
end)

t.test("NaN reaches all outputs of a large convolution whose window holds it", function()
  local x, w, b = large_arguments(2)
  local function check(f)
    x[{1, 5, 20, 9}] = 0 / 0
    local y = f(x):isnan()
    t.equal(y[1]:narrow(2, 19, 3):narrow(3, 8, 3):all():item(), true)
    t.equal(y[1]:narrow(2, 1, 12):any():item(), false)
    t.equal(y[2]:any():item(), false)
  end
  local function f(image) return image:conv2d(w, b, {padding = 1}):relu() end
  check(f)
  check(pg.jit(f))
end)

t.test("large convolutions apply any activation to all of their result", function()
  local x = t.device == "cpu" and pg.randn(1, 64, 40, 36) or pg.randn(1, 64, 10, 9)  -- others know no large ones
  local kernels = {pg.randn(160, 64, 1, 1) * 0.2, pg.randn(64, 1, 3, 3), pg.randn(512, 64, 1, 1) * 0.2, pg.randn(64, 64, 3, 3) * 0.1}
  local groups = {1, 64, 1, 1}
  for _, act in ipairs{"relu6", "silu", "gelu", "leaky_relu", "tanh"} do
    local function layers(v)
      local out = {}
      for i, w in ipairs(kernels) do out[i] = pg[act](v:conv2d(w, nil, {padding = 1, groups = groups[i]})) end
      return out
    end
    local plan = pg.jit(layers)
    local expected = {}
    for i, w in ipairs(kernels) do expected[i] = pg[act](x:conv2d(w, nil, {padding = 1, groups = groups[i]})) end
    for _ = 1, 3 do
      for i, y in ipairs(plan(x)) do t.close(y, expected[i], {atol = 1e-4, rtol = 1e-4}) end
    end
  end
end)

t.test("a convolution of 1 x 1 is a product of pixels and weights", function()
  local x, w, b = pg.randn(2, 64, 40, 40), pg.randn(96, 64, 1, 1) * 0.2, pg.randn(96)
  local next_weight = pg.randn(8, 96, 3, 3) * 0.1
  local pixels = x:permute(1, 3, 4, 2):matmul(w:reshape(96, 64):t()) + b
  for _, act in ipairs{"relu", "silu"} do
    local expected = pg[act](pixels):permute(1, 4, 2, 3):contiguous()
    local function layers(v)
      local y = pg[act](v:conv2d(w, b))
      return y, y:conv2d(next_weight)  -- so that the layout is kept
    end
    local plan = pg.jit(layers)
    for _, f in ipairs{layers, plan, plan, plan} do
      local y, z = f(x)
      t.close(y, expected, {atol = 1e-4, rtol = 1e-4})
      t.close(z, expected:conv2d(next_weight), {atol = 1e-3, rtol = 1e-4})
    end
  end
end)
