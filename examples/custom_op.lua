-- An op with its own gradient: a rectifier whose gradient is small instead of zero for negative inputs.
--   perigee examples/custom_op.lua [--tiny]
local pg = require "perigee"
local nn = pg.nn

local soft_gate = pg.autograd.Function{
  name = "soft_gate",
  forward = function(ctx, x)
    ctx.saved = {x}
    return x:relu()
  end,
  backward = function(ctx, dy)
    local x = ctx.saved[1]
    return pg.where(x:gt(0), dy, dy * 0.1)
  end,
}

local x = pg.tensor{-2, -1, 1, 2}:attach_grad()
local y = pg.record(function() return soft_gate(x) end)
y:backward()
print("value", y)
print("gradient", x.grad)

pg.manual_seed(3)
local net = nn.block{
  hidden = nn.Dense(8), out = nn.Dense(1),
  forward = function(self, v) return self.out(soft_gate(self.hidden(v))) end,
}
net:initialize("xavier")
local trainer = pg.optim.Trainer(net:collect_params(), "adam", {learning_rate = 0.02})
local l2 = pg.loss.L2Loss()
local inputs = pg.linspace(-1, 1, 64):reshape{-1, 1}
local targets = (inputs * 3):sin()

local steps = arg[1] == "--tiny" and 5 or 300
local last
for _ = 1, steps do
  local l = pg.record(function() return l2(net(inputs), targets) end)
  l:backward()
  trainer:step(64)
  last = l:mean():item()
end
print(string.format("loss after %d steps %.5f", steps, last))
