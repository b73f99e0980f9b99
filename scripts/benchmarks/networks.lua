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

return {mlp = mlp, lenet = lenet, residual = residual}
