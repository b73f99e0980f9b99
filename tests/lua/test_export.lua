-- Exports and imports of blocks, and the resulting graphs.
local t = require "tests.support"
local pg = require "perigee"
local cases = require "tests.ops.cases"
local driver = require "tests.ops.driver"
local nn = pg.nn

local function roundtrip(net, opts)
  local json, tensors = net:export(t.tmp("model"), opts)
  return nn.SymbolBlock.imports(json, nil, tensors)
end

local function check_same(net, other, ...)
  t.close({net(...)}, {other(...)}, {rtol = 1e-6, atol = 1e-6})
end

local function built(layer, x)
  layer:initialize()
  layer(x)
  return layer
end

local layers = {
  Dense = function() return nn.Dense(3, {activation = "relu"}), pg.randn(2, 5), pg.randn(7, 5) end,
  Conv2D = function() return nn.Conv2D(4, 3, {padding = 1}), pg.randn(2, 3, 6, 6), pg.randn(3, 3, 8, 8) end,
  BatchNorm = function() return nn.BatchNorm(), pg.randn(4, 3, 5, 5), pg.randn(2, 3, 5, 5) end,
  LayerNorm = function() return nn.LayerNorm(), pg.randn(4, 6), pg.randn(2, 6) end,
  GroupNorm = function() return nn.GroupNorm(2), pg.randn(4, 6, 3), nil end,
  InstanceNorm = function() return nn.InstanceNorm(), pg.randn(4, 6, 3), nil end,
  Embedding = function() return nn.Embedding(7, 4), pg.tensor({1, 7, 3}, {dtype = "int64"}), pg.tensor({2, 2}, {dtype = "int64"}) end,
  Dropout = function() return nn.Dropout(0.5), pg.randn(4, 6), pg.randn(2, 6) end,
  MaxPool2D = function() return nn.MaxPool2D(2), pg.randn(2, 3, 6, 6), pg.randn(3, 3, 4, 4) end,
  Identity = function() return nn.Identity(), pg.randn(4, 6), pg.randn(2, 6) end,
  Flatten = function() return nn.Flatten(), pg.randn(4, 6, 2), pg.randn(2, 6, 2) end,
}

for name, make in pairs(layers) do
  t.test("round trip of " .. name, function()
    local layer, x, other = make()
    built(layer, x)
    local back = roundtrip(layer)
    check_same(layer, back, x)
    if other then check_same(layer, back, other) end
    check_same(layer, layer:freeze(), x)
  end)
end

local function small()
  pg.manual_seed(5)
  local net = nn.HybridSequential{nn.Conv2D(4, 3), nn.BatchNorm(), nn.Activation("relu"), nn.Flatten(), nn.Dense(3), nn.Dropout(0.3)}
  local x = pg.randn(4, 2, 5, 5)
  return built(net, x), x
end

t.test("parameters keep paths, order and requests", function()
  local net = small()
  net[1].weight.grad_req = "null"
  net[5].bias.grad_req, net[5].bias.lr_mult = "add", 2
  local back = roundtrip(net)
  local paths, others = {}, {}
  for path, p in net:parameters() do paths[#paths + 1] = path .. " " .. p.grad_req .. " " .. p.lr_mult end
  for path, p in back:parameters() do others[#others + 1] = path .. " " .. p.grad_req .. " " .. p.lr_mult end
  t.equal(others, paths)
  back:save_parameters(t.tmp("w.safetensors"))
  net:load_parameters(t.tmp("w.safetensors"))
end)

local function train(net, x, steps)
  pg.manual_seed(9)
  local trainer = pg.optim.Trainer(net:collect_params(), "sgd", {learning_rate = 0.1, momentum = 0.9})
  local losses = {}
  for i = 1, steps do
    local loss = pg.record(function() return net(x):square():mean() end)
    loss:backward()
    trainer:step(1)
    losses[i] = loss:item()
  end
  return losses
end

t.test("fine-tuning an import is training the original", function()
  for _, hybrid in ipairs{false, true} do
    local net, x = small()
    local back = roundtrip(net)
    if hybrid then back:hybridize() end
    t.close(train(back, x, 4), train(net, x, 4), {rtol = 1e-5})
    local params = back:collect_params()
    for path, p in net:parameters() do t.close(params[path], p, {rtol = 1e-4, atol = 1e-5, what = path}) end
    check_same(net, back, x)
    t.close(train(roundtrip(back), x, 2), train(net, x, 2), {rtol = 1e-4})
  end
end)

t.test("the export of a hybridized net computes the same", function()
  local net, x = small()
  local want = net(x)
  net:hybridize()
  net(x)
  t.close(roundtrip(net)(x), want, {rtol = 1e-6})
  local parent = nn.HybridSequential{roundtrip(net), nn.Dense(2)}
  built(parent, x)
  local y = parent(x)
  parent:hybridize()
  t.close(parent(x), y, {rtol = 1e-5})
  t.close(roundtrip(parent)(x), y, {rtol = 1e-5})
end)

local Nested = nn.HybridBlock:extend("Nested")
function Nested:init()
  self.scale = pg.param{shape = {3}, init = "one"}
  self.offset = pg.tensor{1, 2, 3}
end
function Nested:forward(a, t2, flag)
  local y = a * self.scale + self.offset
  return {y, first = t2.x - t2.list[1], n = 3, name = "r", flag = flag, same = a}, t2.list[2], nil, self.scale
end

t.test("exports keep nested arguments and results, values and arguments that are returned", function()
  local net = Nested()
  net:initialize()
  local a, b, c, d = pg.randn(2, 3), pg.randn(3), pg.randn(3), pg.randn(4)
  net(a, {x = b, list = {c, d}}, true)
  for _, back in ipairs{roundtrip(net), net:freeze()} do
    local r, list2, none, scale = back(a, {x = b, list = {c, d}}, true)
    t.close(r[1], a + pg.tensor{1, 2, 3})
    t.close(r.first, b - c)
    t.equal({r.n, r.name, r.flag}, {3, "r", true})
    t.equal(list2, d)
    t.equal(none, nil)
    t.equal(scale, net.scale)
    t.equal(r.same, a)
    t.error_contains(function() back(a, {x = b, list = {c, d}}, false) end, "with which the graph was made")
    t.error_contains(function() back(a, {x = b, list = {c}}, true) end, "expected a tensor")
    t.error_contains(function() back(a, {x = b, list = {c, d}, more = 1}, true) end, "a table of 2 entries")
    t.error_contains(function() back(a) end, "expected a table")
    t.error_contains(function() back(a, {x = b, list = {c, d}}, true, 7) end, "too many arguments")
  end
  t.check(rawequal((roundtrip(net)(a, {x = b, list = {c, d}}, true)).same, a), "the argument itself comes back")
end)

local Counter = nn.HybridBlock:extend("Counter")
function Counter:init() self.total = pg.zeros(2) end
function Counter:forward(x)
  self.total:add_(x)
  return self.total * 2
end

t.test("tensors that forward writes are states of the graph", function()
  local net = Counter()
  net(pg.ones(2))
  local back, frozen = roundtrip(net), net:freeze()
  for _, other in ipairs{back, frozen} do
    t.equal(other(pg.ones(2)), pg.tensor{4, 4})
    t.equal(other(pg.ones(2)), pg.tensor{6, 6})
  end
  t.equal(net.total, pg.tensor{1, 1}, "the original does not change")
  t.equal(net(pg.ones(2)), pg.tensor{4, 4})
end)

t.test("an export warns of tables that grow", function()
  local net = nn.block{log = {}, forward = function(self, x) local y = x + 1; self.log[#self.log + 1] = y; return y end}
  net(pg.ones(2))
  t.warns("^export: the function adds self.log%[2%] to a table, which its graph does not", function() net:export(t.tmp("model")) end)
  t.equal(#net.log, 1)
end)

t.test("tracing for an export does not change Lua fields", function()
  local net = nn.block{calls = 0, forward = function(self, x) self.calls = self.calls + 1; return x + 1 end}
  net(pg.ones(2))
  t.warns("^export: the function changes self.calls from 1 to 2, which its graph does not", function() net:export(t.tmp("model")) end)
  t.equal(net.calls, 1)
end)

t.test("random ops draw the same numbers as the original", function()
  local net = nn.block{forward = function(_, x) return x + pg.rand(3), pg.randn(2) end}
  net(pg.ones(3))
  local back = roundtrip(net)
  pg.manual_seed(3)
  local a, b = net(pg.ones(3))
  pg.manual_seed(3)
  local c, d = back(pg.ones(3))
  t.equal({c, d}, {a, b})
  local e = back(pg.ones(3))
  t.check(not e:equal(c), "another draw")
end)

t.test("a frozen graph draws from the default generator, as the original does", function()
  local own = pg.Generator(8)
  local net = nn.block{drop = nn.Dropout(0.5), forward = function(self, x)
    return self.drop(x:reshape{x:size(1)}), pg.rand(3), pg.rand({3}, {generator = own})
  end}
  local x = pg.ones(20)
  net(x)
  local frozen = net:freeze()
  local function draw(f)
    pg.manual_seed(3)
    return {pg.train_mode(function() return {f(x)} end), pg.rand(2), pg.train_mode(function() return {f(x)} end)}
  end
  t.equal(draw(function(a) return frozen:run(a) end), draw(net))
  pg.manual_seed(3)
  local before = pg.rand(2)
  pg.manual_seed(3)
  t.error_contains(function() frozen:run(pg.ones(21)) end, "the script read size 20")
  t.equal(pg.rand(2), before)
end)

t.test("shapes that a script read are constraints of the graph", function()
  local net = nn.block{forward = function(_, x) return x:reshape{x:size(1) * x:size(2)} end}
  net(pg.ones(2, 3))
  local back = roundtrip(net)
  t.equal(back(pg.ones(2, 3)).shape, {6})
  t.error_contains(function() back(pg.ones(4, 3)) end, "the script read size 2 of dim 1, now it is size 4 of dim 1")
  t.error_contains(function() nn.HybridSequential{back}(pg.ones(4, 3)) end, "write shapes without the number, as in reshape{0, -1} instead")
  t.error_contains(function() net:freeze()(pg.ones(4, 3)) end, "the script read size 2 of dim 1, now it is size 4 of dim 1")
end)

t.test("what messages of sizes say to write makes graphs for all sizes", function()
  local net = nn.block{forward = function(_, x)
    local rows = pg.ones_like(x:select(2, 1)):cumsum(1)
    return pg.cat({pg.zeros_like(x:select(2, 1)):unsqueeze(2):expand(-1, 5), rows:unsqueeze(2)}, 2)
  end}
  net(pg.ones(2, 3))
  t.equal(roundtrip(net)(pg.ones(4, 3)), pg.cat({pg.zeros(4, 5), pg.range(1, 4):unsqueeze(2)}, 2))
end)

t.test("the same tensor for two arguments", function()
  local net = nn.block{forward = function(_, a, b) return a * 2 + b end}
  net(pg.ones(2), pg.ones(2))
  local back, x = roundtrip(net), pg.randn(2)
  t.close(back(x, x), x * 3)
  t.close(net:freeze()(x, x), x * 3)
end)

t.test("errors of export", function()
  local net = nn.Dense(3)
  net:initialize()
  t.error_contains(function() net:export(t.tmp("m")) end, "call the block once")
  t.error_contains(function() net:freeze() end, "call the block once")
  t.error_contains(function() net:export(t.tmp("m"), {epoc = 1}) end, "did you mean 'epoch'")
  t.bad_argument(function() net:export(3) end, "export", "path")
  net:export(t.tmp("m"), {inputs = {pg.ones(2, 4)}})
  local plain = nn.block{forward = function(_, x) return x:nonzero() end}
  pg.debug(plain, pg.ones(2))
  t.error_contains(function() plain:export(t.tmp("m")) end, "depends on values")
  for _, path in ipairs{"", t.tmp("m/")} do
    for _, exported in ipairs{net, small():freeze(), pg.jit(function(x) return x end)} do
      t.error_contains(function() exported:export(path) end, "export: bad argument 'path' (expected the files' path without its ending")
    end
  end
  t.error_contains(function() nn.SymbolBlock.imports("") end, "imports: '': a path is empty")
  t.error_contains(function() net:export(t.tmp("no/such/folder")) end, "export: " .. t.tmp("no/such/folder"))
end)

t.test("epochs, and files without tensors", function()
  local net, x = small()
  local json, tensors = net:export(t.tmp("m"), {epoch = 7})
  t.equal({json, tensors}, {t.tmp("m.json"), t.tmp("m-0007.safetensors")})
  local bare = nn.SymbolBlock.imports(json, "data")
  t.error_matches(function() bare(x) end, "SymbolBlock: the parameter '1.weight' has no value %(pass the file of the parameters: nn.SymbolBlock.imports%(\".-m.json\", nil, "
                  .. "\".-m.safetensors\"%), or call net:initialize%(%)%)$")
  bare:initialize()
  bare(x)
  net:save_parameters(t.tmp("w"))
  bare:load_parameters(t.tmp("w"))
  check_same(net, bare, x)
end)

t.test("an error in an imported graph is one of the call, with the line of the script that made it", function()
  local make = assert(loadstring([[
    local nn, pg, path, data = ...
    local net = nn.block{body = nn.Dense(3, {in_units = 2}), forward = function(self, x) return self.body(x):gather(2, data) end}
    net:initialize()
    net:hybridize()
    net(pg.ones(2, 2))
    return net, net:export(path)]], "@maker.lua"))
  local net, json, tensors = make(nn, pg, t.tmp("m"), pg.ones(2, 1):to("int64"))
  local function check(text, call)
    t.error_matches(call, "^%S*test_export.lua:%d+: linear: bad argument 'weight' %(.+, got float32 3x2 cpu%)" .. text)
  end
  for _, wrap in ipairs{false, true} do
    local back = nn.SymbolBlock.imports(json, nil, tensors)
    local block = wrap and nn.HybridSequential{back} or back
    local line = t.mode == "eager" and " %(at maker.lua:%d of the graph%)" or ""  -- other modes hybridize the block
    check(line, function() local _ = block(pg.ones(2, 5)) end)
    block(pg.ones(2, 2))
    check("", function() local _ = block(pg.ones(2, 5)) end)
    t.error_matches(function() local _ = block(pg.ones(2)) end, "^%S*test_export.lua:%d+: ")
  end
  check(" %(at maker.lua:%d of the graph%)", function() local _ = net:freeze()(pg.ones(2, 5)) end)
end)

t.test("names of arguments", function()
  local net = nn.block{forward = function(_, a, b) return a - b end}
  net(pg.ones(2), pg.ones(2))
  local json, tensors = net:export(t.tmp("m"))
  local a, b = pg.randn(2), pg.randn(2)
  t.close(nn.SymbolBlock.imports(json, {"data2", "data1"}, tensors)(a, b), b - a)
  t.error_contains(function() nn.SymbolBlock.imports(json, {"data1"}, tensors) end, "lack the argument 'data2'")
  t.error_contains(function() nn.SymbolBlock.imports(json, {"data1", "dat2"}, tensors) end, "did you mean 'data2'")
  t.error_contains(function() nn.SymbolBlock.imports(json, {"data1", "data1"}, tensors) end, "appears twice")
end)

t.test("graphs can be inspected, cut and optimized", function()
  local net, x = small()
  local g = net:freeze()
  t.equal(g:inputs()[1], "data")
  t.equal(g:outputs(), {"dropout1"})
  local all = g:internals()
  t.equal(all.relu1.shape, {4, 4, 3, 3})
  local features = nn.SymbolBlock(all.relu1, g)
  t.close(features(x), net[3](net[2](net[1](x))), {rtol = 1e-5, atol = 1e-6})
  t.equal(features:collect_params():len(), 6)
  local two = pg.graph({all["conv2d1"], last = all["linear1"]}, "data"):run(x)
  t.equal(two[1].shape, {4, 4, 3, 3})
  t.equal(two.last.shape, {4, 3})
  t.error_contains(function() return all.relu2 end, "did you mean 'relu1'")
  t.equal({g:infer_shape{data = {9, 2, 5, 5}}}, {{9, 3}, {"float32"}})
  t.error_contains(function() g:infer_shape{date = {1}} end, "did you mean 'data'")
  t.error_contains(function() g:infer_shape{data = {9, 3, 5, 5}} end, "conv2d")
  t.check(g:dot():find("digraph") and g:tojson():find('"perigee graph"', 1, true))
  t.close(g:optimize():run(x), net(x), {rtol = 1e-5})
  t.close(g:optimize{"dce"}:run(x), net(x), {rtol = 1e-5})
  t.error_contains(function() g:optimize{"fodl"} end, "did you mean 'fold'")
  local json, tensors = g:export(t.tmp("frozen"))
  check_same(net, nn.SymbolBlock.imports(json, "data", tensors), x)
end)

t.test("a Function and a gradient inside forward", function()
  local net = nn.block{forward = function(_, x)
    local z = x:detach():attach_grad()
    local y = pg.record(function() return (z * z * z):sum() end)
    return pg.autograd.grad(y, z) + x
  end}
  local x = pg.randn(4)
  local want = net(x)
  t.close(roundtrip(net)(x), want)
end)

-- For every op and every call, the program, its round trip through the files' text and the eager result agree.
driver.each(function(row, case, k)
  if case.values == false or row.dynamic_shape or row.effect then return end
  if t.mode == "gcstress" and k > 1 then return end
  t.test("round trip of " .. row.name .. " " .. k, function()
    local tensors = driver.tensors(case.args)
    local traced
    local function f(...)
      local list, at = {...}, 0
      local args = driver.map(function(x)
        if not driver.is_tensor(x) then return x end
        at = at + 1
        return list[at]
      end, case.args)
      traced = driver.call(pg.testing.ops[cases.field(row)], args, case.attrs)
      return unpack(traced)
    end
    if row.random then pg.manual_seed(7) end
    local ok, trace = pg.testing.trace(f, #tensors, unpack(tensors))
    if not ok then t.skip("not traced: " .. row.name) end
    for _, y in ipairs(traced) do if driver.is_tensor(y) and not trace:input_of(y) then trace:output(y) end end
    local boxes, list = {}, trace:captured()
    for i, c in ipairs(list) do boxes[i] = c.box end
    local program = trace:finish{name = row.name}
    local back = pg.testing.roundtrip(program)
    t.equal(back:graph(), program:graph())
    if row.random then pg.manual_seed(7) end
    local want = {pg.testing.run(program, unpack(boxes))}
    if row.random then pg.manual_seed(7) end
    local got = {pg.testing.run(back, unpack(boxes))}
    t.equal(#got, #want)
    for i, y in ipairs(want) do t.equal(got[i], y, "output " .. i) end
  end)
end)

t.test("the golden export of format version 1", function()
  local folder = t.root .. "/tests/golden/"
  local block = nn.SymbolBlock.imports(folder .. "model-v1.json", {"data1", "data2"}, folder .. "model-v1.safetensors")
  local want = pg.load(folder .. "model-v1-expected.safetensors")
  for i = 1, 2 do
    local y, states = block(want.x, {h = want.h})
    t.close(y, want["y" .. i])
    t.close(states.h, want["h" .. i])
  end
  local paths = {}
  for path in block:parameters() do paths[#paths + 1] = path end
  t.equal(paths, {"cell.weight", "cell.bias", "norm.gamma", "norm.beta", "norm.running_mean", "norm.running_var"})
end)

t.test("malformed files are errors", function()
  local net = nn.block{forward = function(_, x) return x * 2 + pg.tensor{1, 2} end}
  net(pg.ones(2))
  local json, tensors = net:export(t.tmp("hostile"))
  local text, bytes = t.read(json), t.read(tensors)
  local function refused(new, pattern)
    t.error_contains(function() nn.SymbolBlock.imports(t.write(t.tmp("bad.json"), new), "data", tensors) end, pattern)
  end
  refused("", "bad.json: at byte 0")
  refused(text:sub(1, 100), "bad.json: at byte 100")
  refused(("["):rep(1e5), "not a graph of perigee")
  refused(text:gsub('"op":"mul"', '"op":"mull"'), "unknown op 'mull'")
  refused(text:gsub('"in":%[0,', '"in":[7,'), "is not an earlier node")
  refused(text:gsub('%[2%]', '[-2]'), "expected a whole number from 0")
  refused(text:gsub('"version":1,"producer"', '"version":5,"producer"'), "format version 5")
  local memory = pg.memory().peak
  refused(text:gsub('%[%["float32",%[2%]', '[["float32",[1000000000000]'), "bad.json")
  t.check(pg.memory().peak - memory < 1e6, "memory")
  t.error_contains(function() nn.SymbolBlock.imports(json, "data", t.write(t.tmp("bad.st"), bytes:sub(1, -2))) end, "bad.st")
  t.error_contains(function() nn.SymbolBlock.imports(json, "data", json) end, "not a safetensors file")
  t.error_contains(function() nn.SymbolBlock.imports(tensors, "data") end, "hostile.safetensors: at byte 0")
  t.error_contains(function() nn.SymbolBlock.imports(t.tmp("none.json"), "data") end, "none.json")
  t.bad_argument(function() nn.SymbolBlock.imports(3) end, "imports", "json")
end)

t.test("an import as a hybridized block: one trace, replaced parameters are seen", function()
  local net, x = small()
  local back = roundtrip(net)
  local want = net(x)
  t.close(back(x), want)
  back:hybridize()
  for _ = 1, 4 do t.close(back(x), want) end
  t.equal(back:cache_info().traces, 1)
  for _, how in ipairs{true, false} do
    back:hybridize(how)
    back["5.weight"] = pg.param(pg.ones(3, 36))
    local ones = back(x)
    back["5.weight"] = pg.param(pg.zeros(3, 36))
    t.close(back(x), back["5.bias"]:expand{4, 3})
    t.check(not ones:allclose(back(x)))
  end
end)

t.test("a table that occurs twice among the arguments", function()
  local Net = nn.HybridBlock:extend("Net")
  function Net:forward(p, q) return p.a.y + p.b[1].y * 10 + p.b[2].y * 100 + q.y * 1000 end
  local inner, net = {y = pg.tensor{1, 2}}, Net()
  local pair = {a = inner, b = {inner, inner}}
  t.close(net(pair, inner), {1111, 2222})
  local function at(v) return {y = pg.tensor{v, v}} end
  for _, graph in ipairs{net:freeze(), roundtrip(net)} do
    t.close(graph(pair, inner), {1111, 2222})
    t.close(graph({a = at(1), b = {at(2), at(3)}}, at(4)), {4321, 4321})
  end
  local knot = {}
  knot.own = knot
  local f = pg.jit(function(k) return k.own.own == k and pg.ones(1) or pg.zeros(1) end)
  t.close(f(knot), {1})
  t.error_contains(function() f:export(t.tmp("knot")) end, "in a cycle")
end)

-- A gradient inside of forward can be differentiated where the import is recorded, as in the block itself.
t.test("an import has the gradients of gradients inside of forward", function()
  local cube = function(y) return (y * y * y):sum() end
  local forwards = {
    grad = function(_, x) return x * pg.grad(cube)(x) end,
    ["grad without a factor"] = function(_, x) return pg.grad(cube)(x) end,
    value_and_grad = function(_, x)
      local y, g = pg.value_and_grad(cube)(x)
      return y * g
    end,
    vjp = function(_, x)
      local y, back = pg.vjp(function(v) return v * v * v end, x)
      return y * back(x)
    end,
    jvp = function(_, x)
      local y, d = pg.jvp(function(v) return v * v * v end, {x}, {pg.ones_like(x)})
      return y * d
    end,
    ["paused grad"] = function(_, x) return x * x * pg.pause(function() return pg.grad(cube)(x) end) end,
    ["grad in a loop"] = function(_, x) return pg.loop(2, function(_, s) return s + x * pg.grad(cube)(x) end, x) end,
  }
  for name, forward in pairs(forwards) do
    local net = pg.nn.block{forward = forward}
    net:hybridize()
    local x = pg.tensor{1, 2, 3}:attach_grad()
    local function gradient(f) return pg.autograd.grad(pg.record(function() return f(x):sum() end), x):totable() end
    local want, value = gradient(net), net(x):totable()
    local model, weights = net:export(t.tmp("gradients_" .. name:gsub(" ", "_")))
    local again = pg.nn.SymbolBlock.imports(model, nil, weights)
    t.equal({again(x):totable(), gradient(again)}, {value, want}, name)
  end
end)
