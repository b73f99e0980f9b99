-- Sections 4 and 7 (parameters and tensors) of the script API, one test per claim.
local t = require "tests.support"
local pg = require "perigee"
local nn = pg.nn

local function paths(block, pattern)
  local out = {}
  for path in block:parameters(pattern) do out[#out + 1] = path end
  return out
end

local function lenet(classes)
  local Net = nn.HybridBlock:extend("Net")
  function Net:init(n)
    self.body = nn.HybridSequential{nn.Conv2D(6, 5, {activation = "relu"}), nn.MaxPool2D(2), nn.Flatten(), nn.Dense(84)}
    self.weight = pg.param{shape = {n, 84}}
  end
  function Net:forward(x) return self.body(x):linear(self.weight) end
  return Net(classes)
end

t.test("extend, init, forward, tostring", function()
  local net = lenet(10)
  net:initialize("xavier")
  t.equal(net(pg.ones(2, 1, 12, 12)).shape, {2, 10})
  t.equal(paths(net), {"body.1.weight", "body.1.bias", "body.4.weight", "body.4.bias", "weight"})
  local text = tostring(net)
  t.check(text:find("Net") and text:find("HybridSequential") and text:find("Conv2D") and text:find("\n"), text)
end)

t.test("nn.block takes a table literal", function()
  local tiny = nn.block{
    fc = nn.Dense(4), gain = pg.param{shape = {1}, init = "ones"},
    forward = function(self, x) return self.fc(x) * self.gain end,
  }
  tiny:initialize()
  t.equal(tiny(pg.ones(2, 3)).shape, {2, 4})
  t.equal(tiny.gain, pg.ones(1))
  t.check(tiny.fc.weight:abs():max():item() <= 0.07 and tiny.fc.weight:abs():max():item() > 0)
  t.equal(tiny.fc.bias, pg.zeros(4))
  t.equal(paths(tiny), {"fc.weight", "fc.bias", "gain"})
end)

t.test("children have an order, may be in tables and can be replaced", function()
  local net = nn.Block:extend("Plain")()
  net.z = nn.Dense(1, {in_units = 1})
  net.a = nn.Dense(1, {in_units = 1})
  net.layers = {nn.Dense(1, {in_units = 1}), nn.Dense(1, {in_units = 1})}
  net._hidden = nn.Dense(1)
  t.equal(paths(net), {"z.weight", "z.bias", "a.weight", "a.bias", "layers.1.weight", "layers.1.bias", "layers.2.weight",
                       "layers.2.bias"})
  net.z = nn.Flatten()
  t.check(#paths(net) == 6)
  local names = {}
  for name in net:children() do names[#names + 1] = name end
  t.equal(names, {"z", "a", "layers.1", "layers.2"})
  net.layers[3] = net
  t.error_contains(function() paths(net) end, "itself")
end)

t.test("Sequential", function()
  for _, make in ipairs{nn.Sequential, nn.HybridSequential} do
    local s = make{nn.Dense(3), pg.relu}
    s:add(nn.Dense(2), nn.Dropout(0.5))
    t.check(#s == 4 or pcall(function() return s:len() end), "#net")
    t.check(s[1].weight ~= nil and s[3] ~= nil)
    s:initialize()
    t.equal(s(pg.ones(4, 5)).shape, {4, 2})
    local part = s:slice(1, 2)
    t.equal(part(pg.ones(4, 5)).shape, {4, 3})
    t.check(part[1] == s[1])
    t.equal(paths(s), {"1.weight", "1.bias", "3.weight", "3.bias"})
  end
end)

t.test("hybrid_forward, plain blocks, infer_shape", function()
  local b = nn.block{w = pg.param{shape = {2}, init = "ones"},
                     hybrid_forward = function(_, F, x, params) return F.add(x, params.w) end}
  b:initialize()
  local ok, y = pcall(b, pg.ones(2))
  if not ok then
    b = nn.block{w = pg.param{shape = {2}, init = "ones"}, hybrid_forward = function(_, F, x, w) return F.add(x, w) end}
    b:initialize()
    y = b(pg.ones(2))
  end
  t.equal(y, pg.tensor{2, 2})
  local plain = nn.block{hybrid = false, forward = function(_, x) return x:item() end}
  t.check(plain(pg.tensor(3)) == 3)
  local d = nn.block{
    weight = pg.param{shape = {0}, init = "ones"},
    infer_shape = function(self, x) self.weight:set_shape{x:size(2)} end,
    forward = function(self, x) return x * self.weight end,
  }
  d:initialize()
  t.equal(d(pg.ones(2, 3)), pg.ones(2, 3))
  t.equal(d.weight.shape, {3})
end)

t.test("a parameter is a tensor with fields that can be set", function()
  local p = pg.param{shape = {2, 2}, dtype = "float64", init = "ones", grad_req = "write", lr_mult = 2, wd_mult = 0,
                     differentiable = true}
  local b = nn.block{p = p, forward = function(self, x) return x * self.p end}
  b:initialize()
  t.equal(p, pg.ones(2, 2, {dtype = "float64"}))
  t.equal(p + 1, pg.full({2, 2}, 2, {dtype = "float64"}))
  t.check(p.lr_mult == 2 and p.wd_mult == 0 and p.grad_req == "write")
  p.lr_mult = 3
  p.grad_req = "null"
  t.check(p.lr_mult == 3 and p.grad_req == "null")
  t.error_contains(function() p.grad_req = "nul" end, "grad_req")
  t.error_contains(function() pg.param{shpe = {1}} end, "did you mean 'shape'")
  t.error_contains(function() return pg.param{shape = {0, 2}} + 1 end, "initialize")
  local c = nn.block{c = pg.constant({1, 2}), forward = function(self, x) return x * self.c end}
  c:initialize()
  t.equal(c(pg.ones(2)), pg.tensor{1, 2})
  t.equal(paths(c), {"c"})
  t.check(c.c.grad_req == "null")
end)

t.test("a parameter's own initializer comes first", function()
  local net = nn.HybridSequential{nn.Dense(2, {in_units = 2, weight_initializer = "ones"}), nn.BatchNorm{in_channels = 2}}
  net:initialize("zeros")
  t.equal(net[1].weight, pg.ones(2, 2))
  t.equal(net[1].bias, pg.zeros(2))
  t.equal(net[2].gamma, pg.ones(2))
  t.equal(net[2].running_var, pg.ones(2))
  t.equal(net[2].running_mean, pg.zeros(2))
  net:initialize("zeros", {force = true})
  local ok = pcall(function() net:initialize("xaver") end)
  t.check(not ok)
  net:initialize(pg.init.Constant(3), {force = true})
  net:initialize("uniform", {force = true, dtype = "float64"})
  t.check(net[1].bias.dtype == "float64")
end)

t.test("collect_params", function()
  local net = nn.HybridSequential{nn.Dense(2, {in_units = 2}), nn.Dense(1, {in_units = 2})}
  local set = net:collect_params()
  set:initialize("ones")
  t.equal(set["1.weight"], pg.ones(2, 2))
  t.equal(paths(net, "weight$"), {"1.weight", "2.weight"})
  local weights = net:collect_params("weight$")
  t.error_contains(function() return weights["1.bias"] end, "1.bias")
  pg.record(function() return net(pg.ones(1, 2)):sum() end):backward()
  set:zero_grad()
  t.equal(net[1].weight.grad, pg.zeros(2, 2))
  set:set("lr_mult", 0.5)
  t.check(net[2].bias.lr_mult == 0.5)
  set:save(t.tmp("set.safetensors"))
  set:initialize("zeros", {force = true})
  set:load(t.tmp("set.safetensors"))
  t.equal(net[1].weight, pg.ones(2, 2))
end)

t.test("apply, to, summary, hooks", function()
  local net = nn.HybridSequential{nn.Dense(2), nn.Dense(1)}
  net:initialize()
  local seen = {}
  net:apply(function(b) seen[#seen + 1] = b end)
  t.check(seen[1] == net[1] and seen[2] == net[2] and seen[3] == net)
  local text = net:summary(pg.ones(4, 3))
  t.check(type(text) == "string" and text:find("Dense") and text:find("8"), text)
  net:hybridize(false)  -- hooks of children run only while a graph is made
  t.may_warn("the hooks of a block inside a hybridized one")
  local calls = {}
  local h = net[1]:register_forward_hook(function(block, inputs, outputs)
    calls[#calls + 1] = block == net[1] and (type(inputs) == "table" and inputs[1] or inputs).shape[2]
    t.check(outputs)
  end)
  local p = net:register_forward_pre_hook(function(block, inputs) calls[#calls + 1] = block == net and inputs and "pre" end)
  net(pg.ones(4, 3))
  t.equal(calls, {"pre", 3})
  h:detach()
  p:detach()
  net(pg.ones(4, 3))
  t.check(#calls == 2)
  net:to("float64")
  t.check(net[1].weight.dtype == "float64" and net(pg.ones(1, 3, {dtype = "float64"})).dtype == "float64")
  net:to("cpu")
  t.bad_argument(function() net:to("flot64") end, "to", "dtype")
end)

t.test("an error inside a child has its path, file and line", function()
  local net = nn.block{body = nn.HybridSequential{nn.Dense(2, {in_units = 3})}, forward = function(self, x) return self.body(x) end}
  net:initialize()
  local e = t.error_contains(function() net(pg.ones(1, 4)) end, "body.1")
  t.check(e:find("test_api_blocks.lua:%d+"), e)
  local bad = nn.block{sub = nn.block{forward = function() error("mine") end}, forward = function(self, x) return self.sub(x) end}
  e = t.error_contains(function() bad(pg.ones(1)) end, "mine")
  t.check(e:find("sub") and e:find("test_api_blocks.lua:%d+"), e)
end)

t.test("layers accept Gluon's options", function()
  local x1, x2, x3 = pg.randn(2, 4, 8), pg.randn(2, 4, 8, 8), pg.randn(2, 4, 4, 4, 4)
  local function run(block, x, ...)
    block:initialize()
    local y = block(x)
    t.equal(y.shape, {...}, tostring(block))
  end
  run(nn.Dense(10, {activation = "relu", in_units = 4, use_bias = false, flatten = false}), pg.ones(2, 3, 4), 2, 3, 10)
  run(nn.Conv1D(6, 3, {strides = 2, padding = 1, dilation = 1, groups = 2}), x1, 2, 6, 4)
  run(nn.Conv2D(6, 5, {strides = 2, padding = 1, in_channels = 4, use_bias = false}), x2, 2, 6, 3, 3)
  run(nn.Conv2D(6, {3, 1}, {strides = {1, 2}, activation = "relu"}), x2, 2, 6, 6, 4)
  run(nn.Conv3D(6, 3), x3, 2, 6, 2, 2, 2)
  run(nn.Conv1DTranspose(6, 3, {strides = 2, output_padding = 1}), x1, 2, 6, 18)
  run(nn.Conv2DTranspose(6, 3, {strides = 2, padding = 1}), x2, 2, 6, 15, 15)
  run(nn.Conv3DTranspose(6, 3), x3, 2, 6, 6, 6, 6)
  run(nn.MaxPool1D(2), x1, 2, 4, 4)
  run(nn.MaxPool2D(3, 2, 1), x2, 2, 4, 4, 4)
  run(nn.MaxPool2D(3, {strides = 2, padding = 1, ceil_mode = true}), x2, 2, 4, 5, 5)
  run(nn.AvgPool2D{pool_size = 2}, x2, 2, 4, 4, 4)
  run(nn.AvgPool1D(2, {count_include_pad = false}), x1, 2, 4, 4)
  run(nn.AvgPool3D(2), x3, 2, 4, 2, 2, 2)
  run(nn.GlobalAvgPool2D(), x2, 2, 4, 1, 1)
  run(nn.GlobalMaxPool1D(), x1, 2, 4, 1)
  run(nn.BatchNorm{axis = 2, momentum = 0.9, epsilon = 1e-5, center = true, scale = true, use_global_stats = false}, x2, 2, 4, 8, 8)
  run(nn.LayerNorm{axis = -1, epsilon = 1e-5}, x2, 2, 4, 8, 8)
  run(nn.GroupNorm{num_groups = 2}, x2, 2, 4, 8, 8)
  run(nn.InstanceNorm{}, x2, 2, 4, 8, 8)
  run(nn.Dropout(0.5), x2, 2, 4, 8, 8)
  run(nn.Dropout{rate = 0.5}, x2, 2, 4, 8, 8)
  run(nn.Embedding(10, 3), pg.tensor({1, 10}, {dtype = "int64"}), 2, 3)
  run(nn.Flatten(), x2, 2, 256)
  run(nn.Activation("tanh"), x2, 2, 4, 8, 8)
  for _, name in ipairs{"LeakyReLU", "PReLU", "ELU", "SELU", "GELU", "Swish"} do
    run(name == "LeakyReLU" and nn.LeakyReLU(0.1) or nn[name](), x2, 2, 4, 8, 8)
  end
  run(nn.Lambda(function(x) return x * 2 end), x2, 2, 4, 8, 8)
  run(nn.HybridLambda("tanh"), x2, 2, 4, 8, 8)
  t.error_contains(function() nn.Dense(10, {actvation = "relu"}) end, "did you mean 'activation'")
  t.error_contains(function() nn.Activation("rleu") end, "relu")
  t.error_contains(function() nn.Dense() end, "Dense: bad argument 'units'")
  t.error_contains(function() nn.Conv2D(6) end, "Conv2D: bad argument 'kernel_size'")
end)

t.test("hybridize checks its options", function()
  local net = nn.HybridSequential{nn.Dense(1)}
  net:initialize()
  net:hybridize()
  net:hybridize{active = true, static_alloc = true, static_shape = false}
  net:hybridize(false)
  t.error_contains(function() net:hybridize{static_aloc = true} end, "static_alloc")
  t.equal(net(pg.ones(1, 2)).shape, {1, 1})
end)

t.test("save and load parameters", function()
  local a, b = lenet(3), lenet(3)
  a:initialize()
  a(pg.ones(1, 1, 12, 12))
  local path = t.tmp("w.safetensors")
  a:save_parameters(path)
  b:load_parameters(path)
  t.equal(b(pg.ones(1, 1, 12, 12)), a(pg.ones(1, 1, 12, 12)))
  local keys = {}
  for k in pairs(pg.load(path)) do keys[#keys + 1] = k end
  table.sort(keys)
  t.equal(keys, {"body.1.bias", "body.1.weight", "body.4.bias", "body.4.weight", "weight"})
  local small = nn.block{weight = pg.param{shape = {3, 84}}, forward = function(_, x) return x end}
  t.error_contains(function() small:load_parameters(path) end, "ignore_extra")
  small:load_parameters(path, {ignore_extra = true})
  t.equal(small.weight, a.weight)
  local more = nn.block{weight = pg.param{shape = {3, 84}}, other = pg.param{shape = {1}}, forward = function(_, x) return x end}
  t.error_contains(function() more:load_parameters(path, {ignore_extra = true}) end, "allow_missing")
  more:load_parameters(path, {ignore_extra = true, allow_missing = true})
  local d = nn.block{weight = pg.param{shape = {3, 84}, dtype = "float64"}, forward = function(_, x) return x end}
  t.error_contains(function() d:load_parameters(path, {ignore_extra = true}) end, "cast_dtype")
  d:load_parameters(path, {ignore_extra = true, cast_dtype = true, device = "cpu"})
  t.check(d.weight.dtype == "float64")
  t.error_contains(function() a:load_parameters(t.tmp("none.safetensors")) end, "none.safetensors")
  t.error_contains(function() a:load_parameters(path, {alow_missing = true}) end, "allow_missing")
end)

t.test("save and load tensors", function()
  local x, y = pg.randn(2, 3), pg.tensor({1, 2}, {dtype = "int64"})
  local path = t.tmp("t.safetensors")
  pg.save(path, {a = x, b = y})
  local back = pg.load(path)
  t.equal(back.a, x)
  t.equal(back.b, y)
  pg.save(t.tmp("x.npy"), x)
  t.equal(pg.load(t.tmp("x.npy")), x)
  t.write(t.tmp("bad.safetensors"), "nonsense")
  t.error_contains(function() pg.load(t.tmp("bad.safetensors")) end, "bad.safetensors")
  t.error_contains(function() pg.load(t.tmp("x.txt")) end, "x.txt")
  t.error_contains(function() pg.save(path, {a = 1}) end, "save: bad argument")
  t.error_contains(function() pg.save("/nowhere/x.safetensors", {a = x}) end, "/nowhere")
end)
