-- Other names of ops, conversions by the name of a dtype, and the fields T and mT, eagerly and in traces.
local t = require "tests.support"
local pg = require "perigee"
local nn = pg.nn

local aliases = pg.testing.op_aliases()

t.test("an alias is the function of its op, and no op has its name", function()
  t.check(#aliases >= 30, "only " .. #aliases)
  local names = {}
  for _, name in ipairs(pg.testing.op_names(true)) do names[name] = true end
  for _, alias in ipairs(aliases) do
    local row = pg.testing.op_row(alias)
    t.equal(row.name, alias)
    t.check(row.main ~= alias and names[row.main] and not names[alias], alias)
    local found
    for _, other in ipairs(row.aliases) do if other.name == alias then found = other.call end end
    t.check(found, alias .. " is not in the row of " .. row.main)
    if found == row.main then t.check(rawequal(pg[alias], pg[row.main]), alias) end
  end
end)

t.test("methods and in-place methods have the aliases of their op", function()
  local x = pg.ones(2)
  for _, alias in ipairs(aliases) do
    local main = pg.testing.op_row(alias).main
    local has, method = pcall(function() return x[main] end)
    local has_alias, other = pcall(function() return x[alias] end)
    t.equal(has_alias, has, alias)
    if has and pg[alias] == pg[main] then t.check(rawequal(method, other), alias) end
  end
  t.equal(pg.tensor({1, 5}):clip_(2, 3):totable(), {2, 3})
  t.equal(pg.tensor({1, 5}):multiply_(2):totable(), {2, 10})
end)

t.test("aliases that the contract names", function()
  local names = [[view view_as clip concat concatenate swapaxes swapdims absolute negative multiply subtract divide true_divide
    power greater less greater_equal less_equal not_equal arcsin arccos arctan arcsinh arccosh arctanh arctan2 fix row_stack
    float double half bfloat16 long int bool]]
  for name in names:gmatch("%S+") do t.check(pg.testing.op_row(name), name) end
  local x = pg.range(1, 6)
  t.equal(x:view(2, -1):totable(), {{1, 2, 3}, {4, 5, 6}})
  t.equal(x:view{3, 2}:swapaxes(1, 2).shape, {2, 3})
  t.equal(x:view_as(pg.zeros(3, 2)).shape, {3, 2})
  t.equal(pg.concat({x, x}, 1):numel(), 12)
  t.equal(pg.concatenate{x, x}:numel(), 12)
  t.equal(x:clip(2, 4):totable(), {2, 2, 3, 4, 4, 4})
  t.equal(x:greater_equal(5):totable(), {false, false, false, false, true, true})
  t.equal(pg.power(x, 2):subtract(1):totable(), {0, 3, 8, 15, 24, 35})
end)

t.test("conversions by the name of a dtype", function()
  local x = pg.tensor({1.5, -2})
  local dtypes = {float = "float32", double = "float64", half = "float16", bfloat16 = "bfloat16", long = "int64", int = "int32", bool = "bool"}
  for name, dtype in pairs(dtypes) do
    t.equal(x[name](x).dtype, dtype, name)
    t.equal(pg[name](x).dtype, dtype, name)
  end
  t.equal(x:long():totable(), {1, -2})
  t.equal(x:bool():totable(), {true, true})
  t.equal(x:type_as(pg.tensor({1}, {dtype = "int8"})):totable(), {1, -2})
  t.equal(x:float{device = "cpu"}.dtype, "float32")
  t.error_contains(function() x:float{dtype = "int8"} end, "to: bad argument 'dtype' (expected one value")
  t.error_contains(function() x:long("cpu", 3) end, "to: bad argument '#3' (expected at most 2 arguments, got number 3)")
  t.error_contains(function() return x.long_ end, "a tensor has no field or method 'long_'")
end)

t.test("gradients flow back through conversions and aliases", function()
  local x = pg.tensor({1, 2, 3}):attach_grad()
  pg.record(function() return x:double():multiply(2):view(3, 1):float():sum() end):backward()
  t.equal(x.grad:totable(), {2, 2, 2})
  t.equal(x.grad.dtype, "float32")
end)

t.test("T and mT", function()
  local x = pg.range(1, 6):view(2, 3)
  t.equal(x.T:totable(), {{1, 4}, {2, 5}, {3, 6}})
  t.equal(x.mT.shape, {3, 2})
  t.equal(pg.zeros(4, 2, 3).mT.shape, {4, 3, 2})
  t.equal(pg.tensor({1, 2}).T:totable(), {1, 2})
  t.error_contains(function() return pg.zeros(2, 3, 4).T end, "at most 2 dims (transpose and permute take more)")
  t.error_contains(function() return pg.zeros(2).mT end, "transpose: bad argument 'dim0'")
  t.error_contains(function() x.T = x end, "a tensor has no field 'T' to set")
end)

t.test("all of them in traces: the graph has the main names, and a call hits", function()
  local f = pg.jit(function(x, y)
    local z = pg.concat({x:view(2, 3).T, x:view_as(y).mT}, 1):double():clip(-1, 4)
    return z:type_as(y):negative(), z:greater(2):int():sum(), pg.hstack{z, z}
  end)
  local function plain(x, y)
    local z = pg.cat({x:reshape(2, 3):t(), x:reshape_as(y):transpose(-2, -1)}, 1):to("float64"):clamp(-1, 4)
    return z:to(y.dtype):neg(), z:gt(2):to("int32"):sum(), pg.cat({z, z}, 2)
  end
  local x, y = pg.range(1, 6), pg.zeros(2, 3)
  for _ = 1, 2 do
    local got, want = {f(x, y)}, {plain(x, y)}
    for k = 1, 3 do t.check(got[k]:equal(want[k]), "result " .. k) end
  end
  t.equal(f:cache_info().traces, 1)
  local text = tostring(f:graph())
  for _, name in ipairs{"view", "concat", "clip", "double", "negative", "greater"} do
    t.check(not text:find("%f[%w_]" .. name .. "%f[^%w_]"), name .. " in\n" .. text)
  end
end)

t.test("in a hybridized block, with guards on what was read", function()
  local net = nn.block{scale = 2, forward = function(self, x)
    return x:view(-1, 2).T:multiply(self.scale):float()
  end}
  net:hybridize()
  local x = pg.range(1, 4)
  t.equal(net(x):totable(), {{2, 6}, {4, 8}})
  net.scale = 3
  t.equal(net(x):totable(), {{3, 9}, {6, 12}})
  t.equal(net(pg.range(1, 6)):totable(), {{3, 9, 15}, {6, 12, 18}})
end)

t.test("help of an alias names the op, and help of the op lists its aliases", function()
  local help = pg.testing.core.require("help").text
  t.check(help("view"):find("view is another name of reshape.", 1, true), help("view"))
  t.check(help("view"):find("pg.view(x, shape)", 1, true))
  t.check(help("float"):find('float is another name of to{dtype = "float32"}.', 1, true), help("float"))
  t.check(help("reshape"):find("Other names: view.", 1, true), help("reshape"))
  t.equal(help(pg.view), help("reshape"))
  t.equal(help(pg.ones(1).clip_), help("clamp_"))
  t.check(help("clip_"):find("in place", 1, true))
  t.check(help("x.T"):find("x.T is x:t()", 1, true), help("x.T"))
end)

t.test("near misses of aliases are suggested", function()
  t.error_contains(function() return pg.concatenat end, "did you mean 'concatenate'?")
  t.error_contains(function() return pg.ones(1).multiplyy end, "did you mean 'multiply'?")
end)

t.test("an error of a call by an alias has the alias", function()
  local x = pg.ones(2, 3)
  t.error_contains(function() local _ = x:view{5, 5} end, "view: bad argument 'shape'")
  t.error_contains(function() local _ = pg.concat{pg.ones(2), x} end, "concat: bad argument 'tensors'")
  t.error_contains(function() local _ = x:reshape{5, 5} end, "reshape: bad argument 'shape'")
end)
