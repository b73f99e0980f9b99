-- Linear regression from scratch: tensors, recorded gradients and a training loop without blocks.
--   perigee examples/linear_regression.lua [--tiny]
local pg = require "perigee"

local tiny = arg[1] == "--tiny"
pg.manual_seed(7)

local true_w, true_b = pg.tensor{2, -3.4}, 4.2
local n, batch = tiny and 100 or 1000, 10
local x = pg.randn(n, 2)
local y = x:mv(true_w) + true_b + pg.randn(n) * 0.01

local w, b = pg.zeros(2):attach_grad(), pg.zeros(1):attach_grad()
local loader = pg.data.DataLoader(pg.data.ArrayDataset(x, y), {batch_size = batch, shuffle = true})
local rate = 0.03

for epoch = 1, tiny and 10 or 3 do
  for features, targets in loader:iter() do
    local l = pg.record(function()
      local difference = features:mv(w) + b - targets
      return (difference * difference):mean() / 2
    end)
    l:backward()
    w:sub_(w.grad * rate)
    b:sub_(b.grad * rate)
  end
  local l = ((x:mv(w) + b - y) ^ 2):mean() / 2
  print(string.format("epoch %d: loss %.6f", epoch, l:item()))
end

print("w", w)
print("b", b:item())
