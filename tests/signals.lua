-- Workloads that tests interrupt with signals: products, convolutions, recurrent layers and training steps that may run
-- code of a library. Returns {{name =, run = function() -> tensors}, …}. Each run has the same results.
local pg = require "perigee"
local nn = pg.nn
local work = {}

local function add(name, run) work[#work + 1] = {name = name, run = run} end

local function numbers(...) return pg.randn({...}, {generator = pg.Generator(select("#", ...) * 1000 + ...)}) end

for _, dtype in ipairs{"float32", "float64", "bfloat16", "float16"} do
  for _, n in ipairs{16, 64, 96, 130, 200, 256, 512} do
    local x, y = numbers(n, n):to(dtype), numbers(n, n + 3):to(dtype)
    add(("%s product of %d"):format(dtype, n), function() return {x:matmul(y)} end)
    add(("%s transposed product of %d"):format(dtype, n), function() return {x:t():matmul(x), x:matmul(x:t())} end)
  end
end
for _, m in ipairs{1, 8, 32, 100} do
  local x, w, b = numbers(m, 300), numbers(256, 300), numbers(256)
  add(("linear of %d rows"):format(m), function() return {x:linear(w, b)} end)
end

local function convolution(name, x, w, options)
  x:attach_grad()
  w:attach_grad()
  local f = "conv" .. (x:dim() - 2) .. "d"
  if options.transposed then f = "conv_transpose" .. (x:dim() - 2) .. "d" end
  options.transposed = nil
  add(name, function()
    local y = pg.record(function() return pg[f](x, w, options) end)
    y:backward()
    return {y, x.grad, w.grad}
  end)
end
convolution("3 x 3 convolution", numbers(2, 64, 28, 28), numbers(64, 64, 3, 3), {padding = 1})
convolution("first convolution of an image net", numbers(1, 3, 64, 64), numbers(64, 3, 7, 7), {stride = 2, padding = 3})
convolution("1 x 1 convolution", numbers(2, 64, 28, 28), numbers(128, 64, 1, 1), {})
convolution("strided 1 x 1 convolution", numbers(2, 64, 28, 28), numbers(128, 64, 1, 1), {stride = 2})
convolution("dilated convolution", numbers(1, 48, 30, 30), numbers(48, 48, 3, 3), {padding = 2, dilation = 2})
convolution("grouped convolution", numbers(2, 64, 20, 20), numbers(64, 16, 3, 3), {groups = 4, padding = 1})
convolution("depthwise convolution", numbers(2, 64, 28, 28), numbers(64, 1, 3, 3), {groups = 64, padding = 1})
convolution("channels that are no multiple of 16", numbers(2, 37, 25, 25), numbers(50, 37, 3, 3), {padding = 1})
convolution("1-d convolution", numbers(4, 64, 200), numbers(64, 64, 5), {padding = 2})
convolution("3-d convolution", numbers(1, 32, 10, 12, 14), numbers(32, 32, 3, 3, 3), {padding = 1})
convolution("transposed convolution", numbers(2, 64, 14, 14), numbers(64, 32, 4, 4), {stride = 2, padding = 1, transposed = true})

for _, cell in ipairs{"LSTM", "GRU", "RNN"} do
  local layer, x = nn.rnn[cell](96, {input_size = 80}), numbers(6, 16, 80)
  layer:initialize(pg.init.Normal(0.1))
  for _, p in layer:parameters() do p:copy_(numbers(p:numel()):reshape(p.shape) * 0.1) end
  add(cell, function()
    pg.record(function() return layer(x):sum() end):backward()
    local out = {layer(x)}
    for _, p in layer:parameters() do out[#out + 1] = p.grad end
    return out
  end)
end

for _, jit in ipairs{false, true} do
  local net = nn.HybridSequential{
    nn.Conv2D(32, 3, {padding = 1, activation = "relu", in_channels = 16}), nn.MaxPool2D(2), nn.Flatten(), nn.Dense(100, {in_units = 32 * 14 * 14}),
  }
  net:initialize("ones")
  local start = {}
  for path, p in net:parameters() do start[path] = numbers(p:numel()):reshape(p.shape) * 0.05 end
  local x = numbers(16, 16, 28, 28)
  local trainer = pg.optim.Trainer(net:collect_params(), "sgd", {learning_rate = 0.01})
  local function step()
    local l = pg.record(function() return net(x):square():mean() end)
    l:backward()
    trainer:step(1)
    return l
  end
  if jit then step = pg.jit(step) end
  add(jit and "jitted training step" or "training step", function()
    for path, p in net:parameters() do p:copy_(start[path]) end
    local out = {step(), step()}
    for _, p in net:parameters() do out[#out + 1] = p:clone() end
    return out
  end)
end

return work
