-- pg.utils.reload: scripts that change while their networks train.
local t = require "tests.support"
local pg = require "perigee"

local first = [[
local pg = require "perigee"
local M = ...
M.Net = pg.nn.HybridBlock:extend("Net")
function M.Net:init() self.layer = pg.nn.Dense(3) end
function M.Net:forward(x) return self.layer(x):relu() end
M.options = {rate = 0.1, kind = "first"}
if not M.net then
  pg.manual_seed(1)
  M.net = M.Net()
  M.net:initialize()
  M.net:hybridize()
  M.trainer = pg.optim.Trainer(M.net:collect_params(), "adam", {learning_rate = M.options.rate})
end
function M.train(x)
  local loss = pg.record(function() return M.net(x):square():mean() end)
  loss:backward()
  M.trainer:step(1)
  return loss:item()
end
]]

local function write(text) return t.write(t.tmp("script.lua"), text) or t.tmp("script.lua") end

local function reload(M, text)
  write(text)
  return pg.utils.reload(M, t.tmp("script.lua"))
end

t.test("a reloaded script keeps its network and trainer, and graphs are traced again", function()
  local M = reload({}, first)
  local x = pg.randn(4, 5)
  M.train(x)
  local net, class, trainer, options = M.net, M.Net, M.trainer, M.options
  local weight = net.layer.weight:clone()
  t.check(pg.equal(net(x), net.layer(x):relu()))
  reload(M, (first:gsub(":relu%(%)", ":tanh()"):gsub('"first"', '"second"')))
  t.check(rawequal(M.net, net) and rawequal(M.Net, class) and rawequal(M.trainer, trainer) and rawequal(M.options, options))
  t.equal(options.kind, "second")
  t.check(pg.equal(net.layer.weight, weight), "the parameters have changed")
  t.check(pg.equal(net(x), net.layer(x):tanh()), "the old forward ran")
  M.train(x)
  t.check(not pg.equal(net.layer.weight, weight), "training went on")
  t.check(tostring(trainer):find("2 updates"), tostring(trainer))
end)

t.test("a script that raises leaves the module as it was", function()
  local M = reload({}, first)
  local x = pg.randn(4, 5)
  local forward, train, before = M.Net.forward, M.train, M.net(x):clone()
  t.error_contains(function() reload(M, first:gsub(":relu", ":tanh") .. "M.extra = 1\nerror('half way')") end, "half way")
  t.error_contains(function() reload(M, "this is no Lua") end, "reload: ")
  t.error_contains(function() pg.utils.reload(M, t.tmp("absent.lua")) end, "reload: ")
  t.check(M.Net.forward == forward and M.train == train and M.extra == nil)
  t.check(pg.equal(M.net(x), before))
end)

t.test("subclasses and classes of samplers keep their identity", function()
  local M = {}
  local function script(n)
    return function(new)
      new.Base = pg.nn.HybridBlock:extend("Base")
      function new.Base:scale() return n end
      new.Net = new.Base:extend("Net")
      function new.Net:forward(x) return x * self:scale() end
      new.Stopper = pg.optim.lr_scheduler.Scheduler:extend("Stopper")
      function new.Stopper.rate() return n end
      new.net = new.net or new.Net()
      new.stopper = new.stopper or new.Stopper{base_lr = 1}
    end
  end
  pg.utils.reload(M, script(2))
  local net, stopper = M.net, M.stopper
  t.equal(net(pg.ones(1)):item(), 2)
  pg.utils.reload(M, script(3))
  t.equal(net(pg.ones(1)):item(), 3)
  t.equal(M.Net()(pg.ones(1)):item(), 3)
  t.equal(stopper:rate(1), 3)
  t.check(M.net == net and M.Net.super == M.Base)
end)

t.test("wrong arguments of reload", function()
  t.error_contains(function() pg.utils.reload(3, "x.lua") end, "reload: bad argument 'module' (expected a table, got number 3)")
  t.error_contains(function() pg.utils.reload({}, 3) end, "reload: bad argument 'path'")
end)
