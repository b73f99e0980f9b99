-- Blocks: discovery, names, deferred shapes, files, hooks, errors.
local t = require "tests.support"
local pg = require "perigee"
local nn = pg.nn

local function paths(block, pattern)
  local list = {}
  for path in block:parameters(pattern) do list[#list + 1] = path end
  return list
end

t.test("a class: fields in order of assignment, deferred shapes, one name scheme", function()
  local Net = nn.HybridBlock:extend("Net")
  function Net:init(classes)
    self.z_first = nn.HybridSequential{nn.Dense(4, {activation = "relu"}), nn.Dense(3)}
    self.a_second = nn.Dense(classes, {use_bias = false})
    self.weight = pg.param{shape = {classes, 0}}
    self.layers = {nn.Dense(2), {nn.Dense(1)}}
    self._hidden = nn.Dense(1)
  end
  function Net:infer_shape(x) self.weight:set_shape{5, x:size(2)} end
  function Net:forward(x) return self.a_second(self.z_first(x)) + x:linear(self.weight) end
  local net = Net(5):initialize("xavier")
  t.equal(paths(net), {
    "z_first.1.weight", "z_first.1.bias", "z_first.2.weight", "z_first.2.bias", "a_second.weight", "weight",
    "layers.1.weight", "layers.1.bias", "layers.2.1.weight", "layers.2.1.bias",
  })
  local y = net(pg.ones(2, 7))
  t.equal(y.shape, {2, 5})
  t.equal(net.weight.shape, {5, 7})
  t.equal(net.z_first[1].weight.shape, {4, 7})
  t.equal(paths(net, "^a_"), {"a_second.weight"})
end)

t.test("nn.block takes a table literal; unknown order is sorted order", function()
  local b = nn.block{
    zeta = nn.Dense(2), alpha = nn.Dense(2), gain = pg.param{shape = {1}, init = "ones"},
    forward = function(self, x) return self.zeta(self.alpha(x)) * self.gain end,
  }
  b.beta = nn.Dense(1)
  t.equal(paths(b), {"alpha.weight", "alpha.bias", "gain", "zeta.weight", "zeta.bias", "beta.weight", "beta.bias"})
  b:initialize()
  t.equal(b(pg.ones(3, 4)).shape, {3, 2})
  t.equal(b.gain:totable(), {1})
  b.alpha = nn.Dense(7)
  t.equal(paths(b)[1], "alpha.weight")
  t.error_contains(function() nn.block(3) end, "block: bad argument 'fields'")
end)

t.test("a block that contains itself is an error", function()
  local b = nn.Sequential()
  b.child = nn.Sequential()
  b.child.parent = b
  t.error_contains(function() paths(b) end, "holds itself")
  t.error_contains(function() tostring(b) end, "holds itself")
  t.error_contains(function() b:apply(function() end) end, "holds itself")
end)

t.test("Sequential: array part, functions, add, slice, holes", function()
  local net = nn.HybridSequential{nn.Dense(4), pg.relu, nn.Dense(2)}
  t.equal(#net, 3)
  net:add(pg.tanh, nn.Flatten())
  t.equal(#net, 5)
  net:initialize("normal")
  t.equal(net(pg.ones(2, 3)).shape, {2, 2})
  t.equal(paths(net), {"1.weight", "1.bias", "3.weight", "3.bias"})
  local part = net:slice(3, -1)
  t.equal(#part, 3)
  t.check(part[1] == net[3])
  t.check(tostring(part):find("^HybridSequential"))
  t.error_contains(function() nn.Sequential{nn.Dense(1), 7} end, "child")
  t.error_contains(function() nn.Sequential{nn.Dense(1), nil, nn.Dense(2)} end, "hole")
  local x = pg.ones(2)
  t.check(nn.Sequential()(x) == x, "an empty one returns its very input")
end)

t.test("shared blocks and parameters count once", function()
  local shared = nn.Dense(3, {in_units = 3})
  local net = nn.Sequential{shared, shared}
  t.equal(paths(net), {"1.weight", "1.bias"})
  local visits = 0
  net:apply(function() visits = visits + 1 end)
  t.equal(visits, 2)
  local file = t.tmp("shared.safetensors")
  net:initialize():save_parameters(file)
  nn.Sequential{shared, shared}:load_parameters(file)
end)

t.test("an error names the child's path and the script line", function()
  local net = nn.HybridSequential{nn.Dense(4), nn.HybridSequential{nn.Dense(3), nn.Dense(2, {in_units = 9})}}
  net:initialize()
  local e = t.error_contains(function() net(pg.ones(2, 5)) end, "2.2")
  t.check(e:find("test_nn.lua:%d+"), e)
  local broken = nn.block{inner = nn.block{forward = function(_, x) return x.nothing.at_all end}, forward = function(s, x) return s.inner(x) end}
  e = t.error_contains(function() broken({nothing = false}) end, "'inner'")
  t.check(e:find("test_nn.lua:%d+"), e)
  t.error_contains(function() net(pg.ones(2, 5)) end, "2.2")
end)

t.test("use before initialize is an error; re-initialize keeps values unless forced", function()
  local net = nn.Dense(2, {in_units = 3})
  t.error_contains(function() net(pg.ones(1, 3)) end, "initialize")
  net:initialize("ones")
  t.equal(net.weight:sum():item(), 6)
  net:initialize("zeros")
  t.equal(net.weight:sum():item(), 6)
  net:initialize("zeros", {force = true})
  t.equal(net.weight:sum():item(), 0)
  t.error_contains(function() net:initialize("xavir") end, "xavier")
  t.error_contains(function() net:initialize("xavier", {forse = true}) end, "force")
end)

t.test("parameters are tensors with fields that can be set", function()
  local p = pg.param{shape = {2, 0}, lr_mult = 0.5}
  t.equal(p.lr_mult, 0.5)
  t.equal(p.wd_mult, 1)
  t.equal(p.grad_req, "write")
  p:initialize("one")
  p:set_shape{2, 3}
  t.equal(p.shape, {2, 3})
  t.check(p.requires_grad)
  p.grad_req = "null"
  t.check(p.grad == nil)
  p.grad_req = "add"
  t.equal(p.grad:totable(), {{0, 0, 0}, {0, 0, 0}})
  t.error_contains(function() p.grad_req = "writ" end, "write")
  t.error_contains(function() p:set_shape{2, 4} end, "shape")
  t.error_contains(function() p:set_data(pg.ones(3)) end, "x")
  p:set_data(pg.zeros(2, 3))
  t.equal(p:sum():item(), 0)
  local c = pg.constant{1, 2}
  t.equal(c:totable(), {1, 2})
  t.check(not c.requires_grad)
  t.error_contains(function() pg.param{shape = {2}, inti = "ones"} end, "init")
  t.error_contains(function() pg.param{shape = {2.5}} end, "shape")
end)

t.test("collect_params returns parameters by path", function()
  local net = nn.HybridSequential{nn.Dense(2, {in_units = 2}), nn.BatchNorm{in_channels = 2}}
  local all = net:collect_params()
  t.equal(all:len(), 6)
  all:initialize("ones")
  t.equal(all["1.weight"]:sum():item(), 4)
  t.equal(all["2.running_var"]:totable(), {1, 1})
  local weights = net:collect_params("weight$")
  t.equal(weights:len(), 1)
  weights:set("grad_req", "null")
  t.equal(net[1].weight.grad_req, "null")
  t.error_contains(function() return all["1.wieght"] end, "1.weight")
end)

t.test("save and load: all or nothing, missing, extra, dtypes, shapes", function()
  local function make() return nn.HybridSequential{nn.Dense(3), nn.Dense(2)} end
  local a, b = make(), make()
  a:initialize("xavier")
  t.error_contains(function() a:save_parameters(t.tmp("no.safetensors")) end, "no value")
  local x = pg.randn(4, 5)
  local expected = a(x)
  local file = t.tmp("net.safetensors")
  a:save_parameters(file)
  b:load_parameters(file)
  t.equal(b(x), expected)
  local c = nn.HybridSequential{nn.Dense(3), nn.Dense(2), nn.Dense(1)}
  t.error_contains(function() c:load_parameters(file) end, "3.weight")
  c:initialize("zeros"):load_parameters(file, {allow_missing = true})
  local d = nn.HybridSequential{nn.Dense(3)}
  t.error_contains(function() d:load_parameters(file) end, "2.")
  d:load_parameters(file, {ignore_extra = true})
  t.equal(d[1].weight, a[1].weight:detach())
  local e = nn.HybridSequential{nn.Dense(3, {in_units = 6}), nn.Dense(2)}
  t.error_contains(function() e:load_parameters(file) end, "1.weight")
  local f = make():to("float64")
  t.error_contains(function() f:load_parameters(file) end, "cast_dtype")
  f:load_parameters(file, {cast_dtype = true})
  t.equal(f[1].weight.dtype, "float64")
  t.error_contains(function() b:load_parameters(file, {alow_missing = true}) end, "allow_missing")
end)

t.test("to converts parameters and their gradients", function()
  local net = nn.Dense(2, {in_units = 2}):initialize("ones"):to("float64")
  local y = pg.record(function() return net(pg.ones({1, 2}, {dtype = "float64"})) end)
  y:backward()
  t.equal(net.weight.grad.dtype, "float64")
  t.equal(net.weight.grad:totable(), {{1, 1}, {1, 1}})
  local waiting = nn.Dense(2):initialize()
  t.error_contains(function() waiting:to("flot64") end, "flot64")
  t.error_contains(function() waiting:to("cpu", "flot64") end, "float64")
  t.error_contains(function() waiting:initialize("ones", {dtype = "flot64"}) end, "float64")
  t.error_contains(function() pg.param{shape = {1}, dtype = "flot64"} end, "float64")
  t.equal(waiting(pg.ones(1, 3)).dtype, "float32")
end)

t.test("hooks see inputs and outputs and can be detached", function()
  local net = nn.Dense(2, {in_units = 2}):initialize("ones")
  local seen = {}
  local after = net:register_forward_hook(function(b, inputs, outputs)
    seen[#seen + 1] = {b == net, #inputs, outputs.shape[2]}
  end)
  local before = net:register_forward_pre_hook(function(_, inputs) seen[#seen + 1] = inputs[1].shape end)
  net(pg.ones(3, 2))
  t.equal(seen, {{3, 2}, {true, 1, 2}})
  after:detach()
  before:detach()
  net(pg.ones(3, 2))
  t.equal(#seen, 2)
end)

t.test("tostring and summary", function()
  local net = nn.HybridSequential{nn.Conv2D(4, 3, {activation = "relu"}), nn.MaxPool2D(2), pg.relu, nn.Dense(5)}
  t.check(tostring(net):find("HybridSequential(\n  1: Conv2D(? -> 4, kernel 3x3, relu)", 1, true), tostring(net))
  net:initialize()
  local text = net:summary(pg.ones(2, 1, 6, 6))
  t.check(text:find("{2, 4, 4, 4}", 1, true), text)
  t.check(text:find("Parameters in total: " .. 4 * 9 + 4 + 16 * 5 + 5, 1, true), text)
  t.check(tostring(net):find("4: Dense(16 -> 5)", 1, true), tostring(net))
end)

t.test("hybrid_forward gets the library and the block's own parameters", function()
  local Scale = nn.HybridBlock:extend("Scale")
  function Scale:init() self.gain = pg.param{shape = {1}, init = 3} end
  function Scale:hybrid_forward(F, x, params) return F.relu(x) * params.gain end
  t.equal(Scale():initialize()(pg.tensor{-1, 2}):totable(), {0, 6})
end)

t.test("hybridize checks its options and that children are hybrid", function()
  local net = nn.HybridSequential{nn.Dense(2), nn.Lambda(pg.relu)}
  t.error_contains(function() net:hybridize() end, "plain Block")
  t.error_contains(function() net:hybridize{static_aloc = true} end, "static_alloc")
  local plain = nn.Sequential{nn.HybridSequential{nn.Dense(2)}, nn.Lambda("relu")}
  t.check(plain:hybridize() == plain)
  plain:hybridize(false)
end)

t.test("blocks with several inputs and outputs, and in coroutines", function()
  local b = nn.block{forward = function(_, x, y) return x + y, x - y, nil end}
  local function count(...) return select("#", ...), ... end
  local n, s, d = count(b(pg.tensor{3}, pg.tensor{1}))
  t.equal({n, s:item(), d:item()}, {3, 4, 2})
  local stepper = nn.block{hybrid = false, forward = function(_, x) coroutine.yield(x); error("late") end}
  local co = coroutine.create(function() stepper(1) end)
  t.check(coroutine.resume(co))
  t.error_contains(function() nn.Sequential{nn.Dense(1, {in_units = 2})}:initialize()(pg.ones(1, 3)) end, "'1'")
  local ok, e = coroutine.resume(co)
  t.check(not ok and e:find("late"))
end)

t.test("unknown names suggest the nearest name", function()
  t.error_contains(function() return nn.Dence end, "Dense")
  t.error_contains(function() return pg.loss.L2los end, "L2Loss")
  t.error_contains(function() nn.Dense(3, {activaton = "relu"}) end, "activation")
  t.error_contains(function() nn.Dense(3, {activation = "reluu"}) end, "relu")
  t.error_contains(function() nn.Dense() end, "Dense: bad argument 'units'")
  t.error_contains(function() nn.Dense(2.5) end, "Dense: bad argument 'units'")
  t.error_contains(function() nn.Conv2D(2) end, "kernel_size")
end)

t.test("a parameter without a value prints its planned shape and dtype", function()
  local p = pg.param{shape = {3, 0}, dtype = "float64"}
  t.equal(p.shape, {3, 0})
  t.equal(p.dtype, "float64")
  p.shape[1] = 7
  t.equal(p.shape, {3, 0})
  t.error_contains(function() return p + 1 end, "initialize")
end)

t.test("blocks refuse integer dtypes", function()
  local net = nn.Dense(2, {in_units = 3})
  net:initialize()
  t.bad_argument(function() net:to("int64") end, "to", "dtype")
  t.bad_argument(function() net:to("nonsense") end, "to", "device")
  t.bad_argument(function() net:initialize{device = "nonsense"} end, "initialize", "device")
  t.equal(net.weight.dtype, "float32")
end)

-- A call that fails ------------------------------------------------------------------------------------------------------------

-- Returns a net whose first part is initialized before its second part fails.
local function failing(fail)
  return nn.block{
    body = nn.HybridSequential{nn.Dense(3), nn.BatchNorm()}, last = nn.Dense(2),
    forward = function(self, x) return self.last(fail(self.body(x), x)) end,
  }:initialize("xavier")
end

local function open_parameters(net)
  local n = 0
  for _, p in net:parameters() do
    if not pcall(function() return p + 0 end) then n = n + 1 end
  end
  return n
end

local failures = {
  ["an error in forward"] = function(y, x)
    if #x == 3 then error("no") end
    return y
  end,
  ["an op that fails"] = function(y, x) return y * pg.ones(#x == 3 and 2 or 1, 1) end,
  ["a check at the run"] = function(y, x)
    pg.assert(x[1][1]:lt(2), "no")
    return y
  end,
}

t.test("a call that fails leaves deferred shapes open", function()
  for name, fail in pairs(failures) do
    for _, way in ipairs{"plain", "hybridized", "jitted"} do
      local net = failing(fail)
      local call = net
      if way == "hybridized" then net:hybridize() end
      if way == "jitted" then call = pg.jit(function(x) return net(x) end) end
      local what = name .. ", " .. way
      for _ = 1, 2 do
        t.check(not pcall(call, pg.full({3, 5}, 7)), what)
        t.check(open_parameters(net) == 6, what .. ": " .. open_parameters(net) .. " open")
      end
      t.equal(call(pg.full({2, 4}, 1)):size(), {2, 2}, what)  -- with other sizes
      t.equal(net.body[1].weight:size(), {3, 4}, what)
      t.check(open_parameters(net) == 0, what)
      local before = net.body[1].weight:clone()
      pcall(call, pg.full({3, 4}, 7))
      t.equal(net.body[1].weight, before, what)
      t.equal(call(pg.full({1, 4}, 1)):size(), {1, 2}, what)
    end
  end
end)

t.test("a failing call undoes the shapes that its inner calls filled in", function()
  local inner = nn.Dense(2):initialize("ones")
  local outer = nn.block{hybrid = false, forward = function(self, x)
    inner(x)
    error("no")
  end}
  t.check(not pcall(outer, pg.ones(1, 3)))
  t.equal(inner(pg.ones(1, 4)), pg.full({1, 2}, 4))
  local caught = nn.block{hybrid = false, again = nn.Dense(2), forward = function(self, x)
    t.check(not pcall(self.again, pg.tensor(1)))
    return self.again(x)
  end}:initialize("ones")
  t.equal(caught(pg.ones(1, 3)), pg.full({1, 2}, 3))
end)

t.test("a pattern that matches nothing is an empty set, a bar of a path is matched", function()
  local net = nn.HybridSequential{nn.Dense(2)}
  t.equal(net:collect_params("gamma"):len(), 0)
  t.equal(net:parameters("gamma")(), nil)
  local block = nn.block{["a|b"] = pg.param{shape = {1}}, forward = function(_, x) return x end}
  t.equal((block:parameters("a|b")()), "a|b")
  t.equal(block:collect_params("^a|"):len(), 1)
end)
