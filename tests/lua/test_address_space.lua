-- A process that reaches its limit of address space ends with an error, never by a signal, wherever memory runs out: in
-- the loader, in Lua, in tensors, or in a library that generates code.
local t = require "tests.support"

local script = [[
  local pg = require "perigee"
  local nn = pg.nn
  local net = nn.HybridSequential{
    nn.Conv2D(32, 3, {padding = 1, activation = "relu"}), nn.Conv2D(32, 3, {padding = 1}), nn.MaxPool2D(2), nn.Flatten(),
    nn.Dense(64, {activation = "relu"}), nn.Dense(10),
  }
  net:initialize("xavier")
  net:hybridize(%s)
  local loss_fn = pg.loss.SoftmaxCrossEntropyLoss()
  local trainer = pg.optim.Trainer(net:collect_params(), "adam", {learning_rate = 1e-3})
  for _ = 1, 3 do
    local x, y = pg.randn(32, 3, 16, 16), pg.randint(1, 10, {32})
    local l = pg.record(function() return loss_fn(net(x), y) end)
    l:backward()
    trainer:step(32)
  end
  print "trained"
]]

for _, hybrid in ipairs{false, true} do
  t.test("training within any limit of the address space, " .. (hybrid and "hybridized" or "eager"), function()
    t.skip_in("hybrid", "processes of their own")
    t.skip_in("gcstress", "processes of their own")
    t.skip_in("guard", "processes of their own")
    if t.sanitized then t.skip("the sanitizers need terabytes of address space") end
    local path = t.write(t.tmp("limited.lua"), script:format(hybrid))
    local trained
    for megabytes = 40, 130, 3 do
      local out, err, code = t.shell(("ulimit -v %d; '%s' '%s'"):format(megabytes * 1024, t.program, path))
      t.check(code < 128, ("%d MB: code %d, %s"):format(megabytes, code, err))
      trained = out == "trained\n"
      t.check(trained or err ~= "", megabytes .. " MB: no word")
    end
    t.check(trained, "130 MB are enough")
  end)
end
