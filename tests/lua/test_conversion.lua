-- Graphs and exports after their block was converted to another dtype.
local t = require "tests.support"
local pg = require "perigee"
local nn = pg.nn

t.test("after a conversion exports and graphs have the types of the converted block", function()
  local net = nn.HybridSequential{nn.Embedding(5, 4), nn.Dense(2, {flatten = false})}
  net:initialize()
  net:hybridize()
  local words = pg.tensor({1, 5, 2}, {dtype = "int64"})
  net(words)
  local kept = net:cache_info().traces
  net:to("float32")
  t.equal(net:cache_info().traces, kept, "nothing was converted")
  net:cast("float64")
  local json, tensors = net:export(t.tmp("converted"))
  t.equal(nn.SymbolBlock.imports(json, nil, tensors)(words).dtype, "float64")
  net(words)
  t.check(tostring(net:graph()):find("float64") and not tostring(net:graph()):find("float32"), "the graph")
  local line = nn.Dense(2)
  line:initialize()
  line:hybridize()
  line(pg.ones(2, 3))
  line:cast("float16")
  t.equal({line:freeze():infer_shape{data = {3, 3}}}, {{3, 2}, {"float16"}})
  t.equal(line(pg.ones(4, 3, {dtype = "float16"})).dtype, "float16")
  local deep = nn.HybridSequential{nn.Dense(4), nn.LayerNorm()}
  deep:initialize()
  deep:hybridize()
  deep(pg.ones(2, 3))
  deep:apply(function(block) block:cast("float64") end)  -- the children first
  t.equal({deep:freeze():infer_shape{data = {5, 3}}}, {{5, 4}, {"float64"}})
  deep(pg.ones(2, 3, {dtype = "float64"}))
  t.check(not tostring(deep:graph()):find("float32"), "the graph")
  local norm = nn.LayerNorm()
  norm:initialize()
  norm(pg.ones(2, 3))
  norm:cast("float16")  -- its parameters stay float32
  t.equal({norm:freeze():infer_shape{data = {5, 3}}}, {{5, 3}, {"float16"}})
end)

t.test("a hook that converts its block leaves it with graphs", function()
  local net, done = nn.Dense(3, {in_units = 5}), false
  net:initialize()
  net:hybridize()
  net:register_forward_pre_hook(function()
    if done then return end
    done = true
    net:cast("float64")
  end)
  local x = pg.ones(2, 5, {dtype = "float64"})
  net(x)
  net(x)
  t.equal(net:cache_info().traces, 1)
  t.equal(net(x).dtype, "float64")
  t.check(tostring(net:graph()):find("float64"), "a graph")
end)

t.test("graphs and exports have the types from after a conversion, also of a child", function()
  local net = nn.HybridSequential{nn.Dense(2, {in_units = 2}), nn.Dense(3, {in_units = 2})}
  net:initialize()
  net:hybridize()
  local f = pg.jit(function(x) return net(x):sum() end)
  local other = pg.jit(function(x) return x * 2 end)
  local function run(dtype)
    local x = pg.ones({4, 2}, {dtype = dtype})
    return net(x), f(x), other(x)
  end
  run("float32")
  run("float32")
  t.check(not tostring(net:graph()):find("float64"))
  local hits = net:cache_info().hits
  for _, child in ipairs{net[1], net[2]} do child:cast("float64") end
  t.error_contains(function() net:graph() end, "the graph was dropped, since 1.weight has another dtype or device; call the block")
  t.equal(net:cache_info().last_retrace, "1.weight has another dtype or device")
  t.equal(net:cache_info().hits, hits)
  run("float64")
  for name, subject in pairs{net = net, f = f} do
    t.check(not tostring(subject:graph()):find("float32"), name)
    t.equal(subject:cache_info().traces, 2)
    local text = t.read((subject:export(t.tmp(name))))
    t.check(text:find("float64") and not text:find("float32"), text)
  end
  t.equal(other:cache_info().traces, 1)
  net:initialize("ones", {force = true, dtype = "float32"})
  t.error_contains(function() f:graph() end, "the graph was dropped, since ")
  t.equal(run("float32").dtype, "float32")
end)
