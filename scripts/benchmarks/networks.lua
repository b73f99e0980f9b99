-- Networks that several cases use: f(pg, …) -> an initialized network.
local function mlp(pg, inputs, sizes)
  local net = pg.nn.HybridSequential{}
  for i = 1, #sizes - 1 do
    net:add(pg.nn.Dense(sizes[i], {activation = "relu", in_units = i == 1 and inputs or sizes[i - 1]}))
  end
  net:add(pg.nn.Dense(sizes[#sizes], {in_units = sizes[#sizes - 1]}))
  net:initialize()
  return net
end

local function lenet(pg)
  local nn = pg.nn
  local net = nn.HybridSequential{
    nn.Conv2D(6, 5, {activation = "relu"}), nn.MaxPool2D(2), nn.Conv2D(16, 5, {activation = "relu"}), nn.MaxPool2D(2),
    nn.Flatten(), nn.Dense(120, {activation = "relu"}), nn.Dense(84, {activation = "relu"}), nn.Dense(10),
  }
  net:initialize()
  return net
end

local function conv(nn, channels, kernel, stride)
  return nn.Conv2D(channels, kernel, {strides = stride, padding = (kernel - 1) / 2, use_bias = false})
end

-- layers lists {kernel, channels, stride} of each convolution. The last one has no activation before the sum.
local function unit(pg, layers, shortcut, stride)
  local nn, body = pg.nn, pg.nn.HybridSequential{}
  for i, layer in ipairs(layers) do
    body:add(conv(nn, layer[2], layer[1], layer[3]), nn.BatchNorm())
    if i < #layers then body:add(nn.Activation("relu")) end
  end
  local side = shortcut and nn.HybridSequential{conv(nn, layers[#layers][2], 1, stride), nn.BatchNorm()}
  return nn.block{body = body, side = side or nil, forward = function(self, x)
    return (self.body(x) + (self.side and self.side(x) or x)):relu()
  end}
end

local function residual(pg, counts, bottleneck)
  local nn = pg.nn
  local net = nn.HybridSequential{conv(nn, 64, 7, 2), nn.BatchNorm(), nn.Activation("relu"), nn.MaxPool2D(3, {strides = 2, padding = 1})}
  for stage, count in ipairs(counts) do
    local channels = 64 * 2 ^ (stage - 1)
    for i = 1, count do
      local stride = i == 1 and stage > 1 and 2 or 1
      if bottleneck then
        net:add(unit(pg, {{1, channels, 1}, {3, channels, stride}, {1, 4 * channels, 1}}, i == 1, stride))
      else
        net:add(unit(pg, {{3, channels, stride}, {3, channels, 1}}, stride == 2, stride))
      end
    end
  end
  net:add(nn.GlobalAvgPool2D(), nn.Dense(1000))
  net:initialize()
  return net
end

-- MobileNet-v2: blocks of a 1x1 convolution that widens, a depthwise one and a 1x1 one that narrows.
local function mobilenet(pg)
  local nn = pg.nn
  local function layer(channels, kernel, stride, groups)
    return nn.Conv2D(channels, kernel, {strides = stride, padding = (kernel - 1) / 2, groups = groups, use_bias = false})
  end
  local function relu6() return nn.Activation("relu6") end
  local net = nn.HybridSequential{layer(32, 3, 2), nn.BatchNorm(), relu6()}
  local width = 32
  for _, stage in ipairs{{1, 16, 1, 1}, {6, 24, 2, 2}, {6, 32, 3, 2}, {6, 64, 4, 2}, {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}} do
    local factor, channels, count, first = unpack(stage)
    for i = 1, count do
      local stride, wide, body = i == 1 and first or 1, width * factor, nn.HybridSequential{}
      if factor > 1 then body:add(layer(wide, 1, 1), nn.BatchNorm(), relu6()) end
      body:add(layer(wide, 3, stride, wide), nn.BatchNorm(), relu6(), layer(channels, 1, 1), nn.BatchNorm())
      local sums = stride == 1 and width == channels
      net:add(nn.block{body = body, forward = function(self, x) return sums and x + self.body(x) or self.body(x) end})
      width = channels
    end
  end
  net:add(layer(1280, 1, 1), nn.BatchNorm(), relu6(), nn.GlobalAvgPool2D(), nn.Dense(1000))
  net:initialize()
  return net
end

-- One level of a 3-D U-Net: down, two convolutions, up, concatenation with the input's level, two convolutions.
local function unet3d(pg, channels)
  local nn = pg.nn
  local function pair(n)
    local net = nn.HybridSequential{}
    for _ = 1, 2 do net:add(nn.Conv3D(n, 3, {padding = 1, use_bias = false}), nn.BatchNorm(), nn.Activation("relu")) end
    return net
  end
  local net = nn.block{
    enter = pair(channels), down = nn.MaxPool3D(2), low = pair(2 * channels),
    up = nn.Conv3DTranspose(channels, 2, {strides = 2}), leave = pair(channels),
    forward = function(self, x)
      local level = self.enter(x)
      return self.leave(pg.cat({level, self.up(self.low(self.down(level)))}, 2))
    end,
  }
  net:initialize()
  return net
end

-- Transformer blocks of the peers' xf_torch.py: width 256, 4 heads, 1024 hidden units, layer norms in front.
local function transformer(pg, layers)
  local nn, net = pg.nn, pg.nn.HybridSequential{}
  for _ = 1, layers do
    local function dense(units) return nn.Dense(units, {flatten = false}) end
    net:add(nn.block{
      l1 = nn.LayerNorm(), l2 = nn.LayerNorm(), qkv = dense(768), out = dense(256), f1 = dense(1024), f2 = dense(256),
      forward = function(self, x)
        local b, t = x:size(1), x:size(2)
        local qkv = self.qkv(self.l1(x)):reshape(b, t, 3, 4, 64):permute(3, 1, 4, 2, 5)
        local a = pg.scaled_dot_product_attention(qkv[1], qkv[2], qkv[3])
        x = x + self.out(a:transpose(2, 3):reshape(b, t, 256))
        return x + self.f2(self.f1(self.l2(x)):gelu())
      end,
    })
  end
  net:initialize()
  return net
end

return {mlp = mlp, lenet = lenet, residual = residual, mobilenet = mobilenet, unet3d = unet3d, transformer = transformer}
