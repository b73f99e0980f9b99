-- What Gluon's documents and the issues of its users list as impossible or wrong in hybridized code: the same code runs eagerly
-- and hybridized, with the same values, gradients and changed arguments.
local t = require "tests.support"
local pg = require "perigee"
local nn = pg.nn

local function floating(x) return type(x) == "userdata" and x.dtype:find("float") ~= nil end

local function copies(inputs)
  return pg.tree.map(function(v) return type(v) == "userdata" and v:clone() or v end, inputs)
end

-- Returns the results of a call and its arguments afterwards.
local function values(net, inputs)
  local own = copies(inputs)
  return {net(unpack(own, 1, inputs.n))}, own
end

-- The gradients of all floating arguments for heads of ones.
local function gradients(net, inputs)
  local own = copies(inputs)
  local leaves = {}
  for _, x in ipairs(pg.tree.flatten(own)) do if floating(x) then leaves[#leaves + 1] = x:attach_grad() end end
  local outputs = pg.record(function() return pg.tree.flatten{net(unpack(own, 1, inputs.n))} end)
  local heads = {}
  for _, y in ipairs(outputs) do if floating(y) and y.requires_grad then heads[#heads + 1] = y end end
  if #heads > 0 then pg.autograd.backward(heads) end
  for i, x in ipairs(leaves) do leaves[i] = x.grad end
  return leaves
end

-- forward(F, x, …) as a block, three times eagerly and hybridized. {record = false}: it writes to its arguments, which recording forbids.
local function same(forward, inputs, opts)
  opts = opts or {}
  inputs.n = inputs.n or #inputs
  local net = nn.block{hybrid_forward = function(_, F, ...) return forward(F, ...) end}
  local expected, changed = values(net, inputs)
  local slopes = opts.record ~= false and gradients(net, inputs)
  net:hybridize()
  for _ = 1, 3 do
    local got, written = values(net, inputs)
    t.close(got, expected, {rtol = 1e-5, atol = 1e-6})
    t.close(written, changed, {what = "the arguments afterwards"})
    if slopes then t.close(gradients(net, inputs), slopes, {rtol = 1e-4, atol = 1e-5, what = "gradients"}) end
  end
  local info = net:cache_info()
  t.check(info.hits >= 2 and info.traces <= 3, ("%d traces, %d hits, %s"):format(info.traces, info.hits, tostring(info.last_retrace)))
  return expected, net
end

-- Operators ------------------------------------------------------------------------------------------------------------------

local operators = {
  {"add", function(x, y) return x + y end}, {"sub", function(x, y) return x - y end}, {"mul", function(x, y) return x * y end},
  {"div", function(x, y) return x / y end}, {"mod", function(x, y) return x % y end}, {"pow", function(x, y) return x ^ y end},
  {"lt", function(x, y) return x:lt(y) end}, {"le", function(x, y) return x:le(y) end}, {"gt", function(x, y) return x:gt(y) end},
  {"ge", function(x, y) return x:ge(y) end}, {"eq", function(x, y) return x:eq(y) end}, {"ne", function(x, y) return x:ne(y) end},
}

for _, operator in ipairs(operators) do
  t.test("broadcasting: " .. operator[1], function()
    local x, f = pg.range(1, 6):reshape(2, 3) / 2, operator[2]
    for _, y in ipairs{pg.tensor{0.5, 1.5, 2}, pg.tensor{{1.5}, {0.5}}, pg.tensor(1.5), pg.tensor{{{0.3, 1, 2}}, {{0.7, 1, 3}}}} do
      same(function(_, a, b) return f(a, b), f(b, a) end, {x, y})
    end
    same(function(_, a) return f(a, 2), a + 1 end, {x})
  end)
end

t.test("x + ones(1, 1)", function()
  t.equal(same(function(F, x) return x + F.ones{1, 1} end, {pg.zeros(2, 3)})[1], pg.ones(2, 3))
  t.equal(same(function(F, x) return F.add(x, F.ones{1, 1}) end, {pg.zeros(2, 3)})[1], pg.ones(2, 3))
end)

local in_place = {
  {"add_", function(x, y) x:add_(y) end}, {"sub_", function(x, y) x:sub_(y) end}, {"mul_", function(x, y) x:mul_(y) end},
  {"div_", function(x, y) x:div_(y) end}, {"remainder_", function(x, y) x:remainder_(y) end},
  {"x[{}] = a + b", function(x, y) x[{}] = x + y end}, {"copy_", function(x, y) x:copy_(y * 2) end}, {"zero_", function(x) x:zero_() end},
  {"fill_", function(x) x:fill_(3) end}, {"relu_", function(x) x:relu_() end}, {"clamp_", function(x) x:clamp_(-0.5, 0.5) end},
}

for _, operator in ipairs(in_place) do
  t.test("in place: " .. operator[1], function()
    local f, x, y = operator[2], pg.randn(2, 3), pg.rand(2, 3) + 0.5
    same(function(_, a, b)
      f(a, b)
      return a * 2
    end, {x, y}, {record = false})
    same(function(_, a, b)
      local h = a * 2
      f(h, b)
      return h + a
    end, {x, y})
    same(function(_, a, b)  -- a box seen under two names
      local h = a * 2
      local alias = h
      f(alias, b)
      return h, alias
    end, {x, y})
  end)
end

-- Shape, type, device -------------------------------------------------------------------------------------------------------

t.test("shape: x * x.shape[1]", function()
  local expected, net = same(function(_, x) return x * x.shape[1] end, {pg.ones(4, 2)})
  t.equal(expected[1], pg.full({4, 2}, 4))
  for _, n in ipairs{1, 7, 4} do t.equal(net(pg.ones(n, 2)), pg.full({n, 2}, n), "another shape") end
end)

t.test("shape: flatten and back, size, dim, numel, #", function()
  same(function(_, x)
    local shape = x.shape
    local flat = x:reshape{-1}
    return (flat * 2):reshape(shape)
  end, {pg.randn(2, 3, 4)})
  same(function(F, x) return F.full({x:size(2), #x}, x:numel()) + x:dim() end, {pg.randn(2, 3, 4)})
  same(function(_, x) return x:reshape{0, 0, -1}, x:reshape{0, -1} end, {pg.randn(2, 3, 4, 5)})
end)

t.test("shape: positions and masks as long as another tensor", function()
  same(function(F, x)
    local position = F.range(1, x:size(2))
    return x + position, F.range(0, x:size(1) - 1):reshape{-1, 1} * x
  end, {pg.randn(3, 5)})
  same(function(F, x, n) return F.sequence_mask(x, n), F.range(1, x:size(1)):lt(3) end, {pg.randn(4, 2), pg.tensor({2, 4}, {dtype = "int64"})})
end)

t.test("shape: if and for over dims", function()
  local _, net = same(function(_, x)
    local sum = 0
    for i = 1, #x do sum = sum + x[i] * i end
    if x:size(2) > 2 then return sum * 10 end
    return sum
  end, {pg.randn(3, 2)})
  local wide = pg.randn(4, 5)
  t.close(net(wide), pg.debug(net, wide))
end)

t.test("shape: an input of no elements", function()
  same(function(_, x) return x:sum(2), x * 2, x:reshape{0, -1, 1} end, {pg.zeros(0, 3)})
  same(function(_, x, y) return pg.cat({x, y}, 1) end, {pg.zeros(0, 3), pg.randn(2, 3)})
end)

t.test("dtype: if x.dtype", function()
  local function forward(_, x)
    if x.dtype == "float16" then return x end
    return x * 2
  end
  local _, net = same(forward, {pg.randn(2, 3)})
  local half = pg.randn(2, 3):to("float16")
  t.equal(net(half), half)
  t.equal(net:cache_info().traces, 2)
  t.close(net(pg.ones(2, 3)), pg.full({2, 3}, 2))
end)

t.test("device: if x.device", function()
  same(function(_, x)
    if x.device == "cpu" then return x * 1 end
    return x * 2
  end, {pg.randn(2, 3)})
  same(function(F, x) return F.zeros({2}, {device = x.device, dtype = x.dtype}) + x:sum() end, {pg.randn(2, 3)})
end)

-- Elements ------------------------------------------------------------------------------------------------------------------

t.test("indexing: x[0], x[0,0], slices", function()
  local x = pg.randn(3, 4, 5)
  same(function(_, v) return v[1], v[-1], v[2][1] end, {x})
  same(function(_, v) return v[{1, 1}], v[{1, 1, 1}] end, {x})
  same(function(_, v) return v[{{2, 3}, {}, {1, -1, 2}}], v[{"...", 2}], v[{{}, 3}] end, {x})
  same(function(_, v, i) return v[i], v[{{}, i}] end, {x, pg.tensor({3, 1, 1}, {dtype = "int64"})})
end)

t.test("indexing: the operators named instead", function()
  local x = pg.randn(3, 4)
  same(function(F, v)
    local parts = F.split(v, 2, 2)
    return parts[1] + parts[2], F.narrow(v, 1, 2, 2), F.select(v, 2, 1)
  end, {x})
  local rows = pg.tensor({1, 3}, {dtype = "int64"})
  same(function(F, v, i) return F.index_select(v, 1, i), F.take(v, i) end, {x, rows})
  same(function(F, v, i) return F.pick(v, i) end, {x, pg.tensor({1, 3, 2}, {dtype = "int64"})})
  same(function(F, v) return F.where(v:gt(0), v, v * 0), v:reshape_as(v:t()) end, {x})
end)

t.test("item assignment: x[0] = 2", function()
  same(function(_, x)
    x[1] = 2
    return x
  end, {pg.tensor{1, 2, 3}}, {record = false})
  same(function(_, x)
    local y = x:clone()
    y[1] = 2
    y[{{2, 3}}] = y[{{1, 2}}] * 3
    y[-1] = x[1]
    return y
  end, {pg.tensor{1, 2, 3, 4}})
  same(function(_, x)
    local y = x * 1
    y[y:lt(0)] = 0
    y[{{}, 2}] = pg.tensor{7, 8}
    y[{{}, pg.tensor({1, 3}, {dtype = "int64"})}] = x[{{}, {2, 3}}]
    return y
  end, {pg.randn(2, 3)})
end)

t.test("item assignment: with where instead", function()
  local x = pg.tensor{1, 2, 3}
  local y = same(function(F, v)
    local value = F.ones_like(v) * 2
    local condition = F.tensor{false, true, true}
    return F.where(condition, v, value)
  end, {x})
  t.equal(y[1], pg.tensor{2, 2, 3})
end)

t.test("arrays made of Lua numbers", function()
  same(function(F, x) return x * F.tensor{1, 2, 3} + F.tensor{{1}, {2}}, F.tensor(2) * x end, {pg.randn(2, 3)})
  same(function(F, x) return F.ones(2, 3) + F.zeros{3} + F.full({2, 1}, 4) + x + F.eye(3)[1] + F.linspace(0, 1, 3) end, {pg.randn(2, 3)})
  local mean, std = {0.4, 0.5, 0.6}, {0.2, 0.3, 0.1}
  same(function(F, x)
    return (x - F.tensor(mean):reshape{1, 3, 1, 1}) / F.tensor(std):reshape{1, 3, 1, 1}
  end, {pg.rand(2, 3, 4, 4)})
end)

-- Values --------------------------------------------------------------------------------------------------------------------

t.test("a value cannot be read: the error names the line and the way around", function()
  t.skip_in("hybrid", "reads values in plain blocks too")
  for name, read in pairs{
    asnumpy = function(x) return x:totable() end, asscalar = function(x) return x:sum():item() end,
    equal = function(x) return x:equal(x) end, iter = function(x) return x:allclose(x) end, bytes = function(x) return x:to_bytes() end,
  } do
    local net = nn.block{forward = function(_, x)
      if read(x) then return x end
      return x * 2
    end}
    local x = pg.ones(2)
    net(x)
    net:hybridize()
    local e = t.error_contains(net, "test_documents_limits.lua:", x)
    t.check(e:find("cond", 1, true), name .. ": " .. e)
    pg.debug(function() t.equal(net(x), x) end)
    net:hybridize(false)
    t.equal(net(x), x)
  end
end)

t.test("pg.print and tap run at every call", function()
  local seen = {}
  local net = nn.block{forward = function(_, x) return (x * 2):tap(function(v) seen[#seen + 1] = v:sum():item() end) + 1 end}
  net:hybridize()
  for i = 1, 3 do t.equal(net(pg.full({2}, i)), pg.full({2}, 2 * i + 1)) end
  t.equal(seen, {4, 8, 12})
  local out, err, code = t.run("-", [[
    local pg = require "perigee"
    local f = pg.jit(function(x) pg.print("h", x) return x + 1 end)
    for i = 1, 3 do f(pg.full({1}, i)) end
  ]])
  t.equal(code, 0, err)
  local _, n = out:gsub("h%s+{%d}", "")
  t.equal(n, 3, out)
end)

t.test("a shape that depends on values names the alternative", function()
  t.skip_in("hybrid", "calls plain blocks too")
  local net = nn.block{forward = function(_, x) return x[x:gt(0)] end}
  t.equal(net(pg.tensor{-1, 2, 3}), pg.tensor{2, 3})
  net:hybridize()
  t.error_matches(net, "where", pg.tensor{-1, 2, 3})
end)

-- Arguments -----------------------------------------------------------------------------------------------------------------

t.test("arguments: nil, numbers, strings, booleans, trees", function()
  local x, y = pg.randn(2), pg.randn(2)
  same(function(_, a, b) return b and a + b or a * 2 end, {x, nil, n = 2})
  same(function(_, a, b) return a and a + b or b * 2 end, {nil, y, n = 2})
  same(function(_, a, k, how, flag) return how == "times" and flag and a * k or a + k end, {x, 2.5, "times", true})
  same(function(_, tree) return {tree.a + tree.b[1], sum = tree.b[1] + tree.b[2]} end, {{a = x, b = {y, x}}})
  same(function(_, states) return states[1] * 2, {states[2][1], states[2][2] + 1} end, {{x, {y, y * 2}}})
end)

t.test("arguments: another structure, number or flag traces again", function()
  t.may_warn("traced again for the third time because argument 2")
  local net = nn.block{forward = function(_, x, y) return type(y) == "table" and x + y[1] or y and x * y or x end}
  net:hybridize()
  local x = pg.ones(2)
  for _ = 1, 2 do
    t.equal(net(x), x)
    t.equal(net(x, {x}), x + x)
    t.equal(net(x, 3), x * 3)
    t.equal(net(x, 4), x * 4)
    t.equal(net(x, x + 1), x + x)
  end
  t.equal(net:cache_info().traces, 5)
end)

t.test("arguments that are not used, and one used twice", function()
  same(function(_, a, _b) return a * 2 end, {pg.randn(2), pg.randn(3)})
  local net = nn.block{unused = nn.Dense(3, {in_units = 2}), used = nn.Dense(3), forward = function(self, x) return self.used(x) end}
  net:initialize()
  local x = pg.randn(4, 2)
  local y = net(x)
  net:hybridize()
  t.close(net(x), y)
  local both = nn.block{forward = function(_, a, b) return a * 2 + b end}
  both:hybridize()
  t.close(both(x, x), x * 3)
  t.close(both(x, x + 1), x * 3 + 1)
end)

t.test("a returned input or parameter is that very tensor", function()
  local net = nn.block{weight = pg.param{shape = {2}, init = "ones"}, forward = function(self, x) return x, self.weight, x * self.weight end}
  net:initialize()
  local x = pg.randn(2)
  for _, active in ipairs{false, true, true} do
    net:hybridize(active)
    for _ = 1, 2 do
      local a, w, y = net(x)
      t.check(rawequal(a, x) and rawequal(w, net.weight))
      t.close(y, x)
    end
  end
  local l = pg.record(function()
    local _, w, y = net(x)
    return (w * y):sum()
  end)
  l:backward()
  t.close(net.weight.grad, x * 2)
end)

t.test("a gradient of its own inside a hybridized block", function()
  local gate = pg.autograd.Function{
    name = "gate",
    forward = function(ctx, x)
      ctx.saved = {x}
      return x:relu()
    end,
    backward = function(ctx, dy)
      local x = ctx.saved[1]
      return pg.where(x:gt(0), dy, dy * 0.1)
    end,
  }
  same(function(_, x) return gate(x * 2) end, {pg.tensor{-1, 2, -3}})
end)

t.test("constants, cat and slices, adding a constant", function()
  same(function(F, x)
    local parts = F.split(x, 2, 1)
    return F.cat({parts[2], parts[1], x + 3}, 1):narrow(1, 2, 4) + 1
  end, {pg.randn(4, 3)})
  local net = nn.block{scale = pg.constant(pg.tensor{1, 2, 3}), forward = function(self, x) return x * self.scale + 1 end}
  net:initialize()
  net:hybridize()
  for _ = 1, 2 do t.equal(net(pg.ones(2, 3)), pg.tensor{{2, 3, 4}, {2, 3, 4}}) end
end)
