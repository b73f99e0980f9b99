-- Section 2 of the script API, one test per claim: tensors.
local t = require "tests.support"
local pg = require "perigee"
local nan, inf = 0 / 0, math.huge

local function T(v, dtype) return pg.tensor(v, dtype and {dtype = dtype}) end
local function i64(v) return T(v, "int64") end
local function shape(x, ...) t.equal(x.shape, {...}, "shape") end

t.test("tensor from numbers, booleans and nested tables", function()
  t.equal(pg.tensor({{1, 2}, {3, 4}}):totable(), {{1, 2}, {3, 4}})
  t.equal(pg.tensor({1, 2}, {dtype = "int64", device = "cpu"}), i64{1, 2})
  for _, bad in ipairs{{{{1, 2}, {3}}}, {{1, {2}}}, {{1, "2"}}, {{1, true}}, {{a = 1}}, {{1, nil, 3}}, {"x"}} do
    t.error_contains(function() return pg.tensor(bad[1]) end, "tensor")
  end
  t.error_contains(function() return pg.tensor() end, "tensor")
  t.error_contains(function() return pg.tensor(nil) end, "tensor")
  for dtype, v in pairs{int8 = 128, uint8 = -1, int32 = 2 ^ 31, int64 = 2 ^ 63, bool = 2} do
    t.error_contains(function() return pg.tensor({v}, {dtype = dtype}) end, "tensor")
    t.error_contains(function() return pg.full({1}, v, {dtype = dtype}) end, "full")
  end
  t.error_contains(function() return pg.tensor({1.5}, {dtype = "int64"}) end, "tensor")
  t.error_contains(function() return pg.tensor({nan}, {dtype = "int64"}) end, "tensor")
  shape(pg.tensor(5))
  shape(pg.tensor{}, 0)
  t.check(pg.tensor(true).dtype == "bool")
end)

t.test("creation", function()
  shape(pg.zeros(2, 3), 2, 3)
  shape(pg.ones{2, 3}, 2, 3)
  t.equal(pg.full({2, 3}, 7), T{{7, 7, 7}, {7, 7, 7}})
  shape(pg.empty(2), 2)
  t.equal(pg.eye(2), T{{1, 0}, {0, 1}})
  shape(pg.eye(2, 3), 2, 3)
  t.check(pg.zeros(2, {dtype = "int64"}).dtype == "int64" and pg.ones({2}, {dtype = "bool"}).dtype == "bool")
  t.check(pg.eye(2, {dtype = "float64"}).dtype == "float64" and pg.empty(2, {dtype = "int8"}).dtype == "int8")
  t.check(pg.full({2}, 7, {dtype = "int64"}).dtype == "int64")
  t.equal(pg.range(1, 5), T{1, 2, 3, 4, 5})
  t.equal(pg.range(0, 1, 0.25), T{0, 0.25, 0.5, 0.75, 1})
  t.equal(pg.range(5, 1, -2), T{5, 3, 1})
  t.check(pg.range(1, 3, {dtype = "int64"}).dtype == "int64")
  t.check(pg.range(0, 1, 0.1):numel() == 11)
  t.check(pg.range(1, 0):numel() == 0)
  t.close(pg.linspace(0, 1, 11)[11], T(1))
  t.error_contains(function() return pg.zeros(-1) end, "zeros")
  t.error_contains(function() return pg.zeros(1.5) end, "zeros")
  t.error_contains(function() return pg.zeros(2 ^ 40, 2 ^ 40) end, "zeros")
  t.error_contains(function() return pg.range(1, 5, 0) end, "range")
  t.error_contains(function() return pg.range(1, inf) end, "range")
end)

t.test("bytes", function()
  local x = pg.from_bytes("\1\2\3\4", "uint8", {2, 2})
  t.equal(x, T({{1, 2}, {3, 4}}, "uint8"))
  t.check(x:to_bytes() == "\1\2\3\4" and x:t():to_bytes() == "\1\3\2\4")
  t.error_contains(function() return pg.from_bytes("123", "float32", {1}) end, "from_bytes")
end)

t.test("random creation", function()
  pg.manual_seed(42)
  local a = pg.rand(2, 3)
  pg.manual_seed(42)
  t.equal(pg.rand{2, 3}, a)
  shape(pg.randn{2, 3}, 2, 3)
  local r = pg.randint(1, 6, {1000})
  t.check(r.dtype == "int64" and r:min():item() == 1 and r:max():item() == 6)
  local p = pg.randperm(10):sort()
  t.equal(p, i64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10})
  t.equal(pg.bernoulli(pg.ones(3)), T{1, 1, 1})
  local m = pg.multinomial(T{1, 1, 1}, 3, {replacement = false})
  t.equal((m:sort()), i64{1, 2, 3})
  t.error_contains(function() return pg.multinomial(T{1, 0}, 3) end, "multinomial")
  local g, h = pg.Generator(7), pg.Generator(7)
  t.equal(pg.rand(3, {generator = g}), pg.rand(3, {generator = h}))
  local x = pg.ones(2, 2, {dtype = "float64"})
  for _, name in ipairs{"zeros_like", "ones_like", "rand_like", "randn_like"} do
    local y = pg[name](x)
    t.check(y.dtype == "float64", name)
    shape(y, 2, 2)
  end
  t.equal(pg.full_like(x, 3):sum():item(), 12)
end)

t.test("fields", function()
  local x = pg.ones(2, 3)
  local s = x.shape
  s[1] = 99
  shape(x, 2, 3)
  t.check(x.dtype == "float32" and x.device == t.device and x.grad == nil and x.requires_grad == false)
  t.check(x.name == nil)
end)

t.test("size methods", function()
  local x = pg.ones(2, 3)
  t.check(x:size(1) == 2 and x:size(-1) == 3 and #x == 2 and x:dim() == 2 and x:numel() == 6)
  t.equal(x:size(), {2, 3})
  t.equal(x:stride(), {3, 1})
  t.check(x:stride(1) == 3)
  t.check(x:is_contiguous() and not x:t():is_contiguous())
  t.bad_argument(function() return x:size(3) end, "size", "dim")
  t.error_contains(function() return #T(1) end, "0-dim")
end)

t.test("values out", function()
  t.check(T(5):item() == 5 and T{{2}}:item() == 2 and T(true):item() == true)
  t.error_contains(function() return T{1, 2}:item() end, "item")
  local big = i64(2 ^ 53) + 1
  t.check(type(big:item()) == "cdata" and tostring(big:item()) == "9007199254740993LL")
  t.check(type(i64(2 ^ 53):item()) == "number")
  local far = pg.stack{big, i64(-2 ^ 63), i64(7), i64(-2 ^ 63) - 1}
  local out = far:totable()
  t.equal({tostring(out[1]), tostring(out[2]), out[3], tostring(out[4])},
          {"9007199254740993LL", "-9223372036854775808LL", 7, "9223372036854775807LL"})
  t.equal(pg.tensor(out, {dtype = "int64"}), far)
  t.equal(pg.tensor(big:item(), {dtype = "int64"}), big)
  t.equal(pg.tensor(out), far:to("float32"))
  t.check(tostring(far):find("9007199254740993", 1, true))
  t.error_contains(function() return pg.tensor(out, {dtype = "int32"}) end, "a number that int32 can hold")
  t.error_contains(function() return pg.tensor({require("ffi").new("int[2]")}) end, "got cdata")
  t.error_contains(function() return big + out[1] end, "got cdata; pg.tensor(v) makes a tensor of an FFI integer")
  t.equal({pg.constant(3, {dtype = "int64"}).dtype, pg.constant(T(3), {dtype = "float64"}).dtype, pg.constant{1}.dtype}, {"int64", "float64", "float32"})
  t.error_contains(function() return pg.constant(1, {dtyp = "int64"}) end, "did you mean 'dtype'?")
  for _, dtype in ipairs{"float32", "int8", "bool"} do
    local x = pg.zeros(2, {dtype = dtype})
    x[2] = true
    t.equal(x, pg.zeros(2, {dtype = dtype}):masked_fill(T{false, true}, true))
  end
  t.check(T(5):totable() == 5)
  t.equal(T{{true}}:totable(), {{true}})
  t.check(tostring(pg.ones(2, 3)):find("[float32 2x3 " .. t.device .. "]", 1, true))
  t.check(tostring(pg.ones(1000, 1000)):find("[float32 1000x1000 " .. t.device .. "]", 1, true))
  t.check(tostring(T(5)):find("float32", 1, true))
  local rows = {}
  for row in T{{1, 2}, {3, 4}}:iter() do rows[#rows + 1] = row end
  t.equal(rows, {T{1, 2}, T{3, 4}})
  t.error_contains(function() return T(1):iter() end, "iter")
end)

t.test("conversions", function()
  local x = T{1, 2}
  t.check(x:to("float64").dtype == "float64" and x:to("cpu").device == "cpu" and x:to{dtype = "int64"}.dtype == "int64")
  t.check(x:to{dtype = "int8", device = "cpu"}.dtype == "int8")
  t.error_contains(function() return x:to("cuda") end, "cuda")
  t.error_contains(function() return x:to("cuda:1") end, "cuda")
  t.error_contains(function() return x:to("float") end, "to: bad argument")
  local c = x:clone()
  c:add_(1)
  t.equal(x, T{1, 2})
  t.equal(x:detach(), x)
  t.check(x:t():contiguous():is_contiguous())
  c:release()
  t.error_contains(function() return c + 1 end, "released")
  t.check(type(tostring(c)) == "string")
end)

t.test("operators", function()
  local x = T{1, 2, 4}
  t.equal(x + x, T{2, 4, 8})
  t.equal(1 - x, T{0, -1, -3})
  t.equal(x * 2, T{2, 4, 8})
  t.equal(8 / x, T{8, 4, 2})
  t.equal(x % 2, T{1, 0, 0})
  t.equal(x ^ 2, T{1, 4, 16})
  t.equal(2 ^ x, T{2, 4, 16})
  t.equal(-x, T{-1, -2, -4})
  t.check(x == x and x ~= x:clone())
  t.error_contains(function() return x < x end, "x:lt(y)")
  t.error_contains(function() return x <= x end, "x:le(y)")
  t.error_contains(function() return x + "1" end, "add: bad argument")
  t.error_contains(function() return x + nil end, "add: bad argument")
  t.error_contains(function() return {} + x end, "add: bad argument")
end)

t.test("comparisons and logic", function()
  local x, y = T{1, 2, 3}, T{3, 2, 1}
  t.equal(x:eq(y), T{false, true, false})
  t.equal(x:ne(2), T{true, false, true})
  t.equal(x:lt(y), T{true, false, false})
  t.equal(x:le(y), T{true, true, false})
  t.equal(x:gt(y), T{false, false, true})
  t.equal(x:ge(2), T{false, true, true})
  t.check(x:equal(x:clone()) == true and x:equal(y) == false and x:equal(pg.ones(2)) == false)
  t.check(x:allclose(x + 1e-7) == true and x:allclose(y, {rtol = 0, atol = 3}) == true and x:allclose(y) == false)
  t.equal(T{true, true}:logical_and(T{true, false}), T{true, false})
  t.equal(T{true, false}:logical_or(T{false, false}), T{true, false})
  t.equal(T{true, true}:logical_xor(T{true, false}), T{false, true})
  t.equal(T{true, false}:logical_not(), T{false, true})
end)

t.test("assert is an op", function()
  pg.assert(T(true), "fine")
  pg.assert(true, "fine")
  t.error_contains(function() pg.assert(T(false), "text of mine") end, "text of mine")
  t.error_contains(function() pg.assert(T{1, 2}:gt(1):all(), "text of mine") end, "text of mine")
end)

t.test("indexing reads", function()
  local x = pg.range(1, 24):reshape(2, 3, 4)
  shape(x[1], 3, 4)
  shape(x[1][1][1])
  t.check(type(x[1][1][1]) == "userdata")
  shape(x[{1, {2, 3}, {}}], 2, 4)
  t.equal(x[{1, 1, {1, 4, 2}}], T{1, 3})
  t.equal(x[{1, 1, {-3, -1}}], T{2, 3, 4})
  shape(x[{{}, {2, 1}}], 2, 0, 4)
  t.error_contains(function() return x[{{}, {3, 1}}] end, "dim")
  t.error_contains(function() return x[{{}, {1, 3, -1}}] end, "step")
  t.equal(x[{"...", 4}], x:select(3, 4))
  t.equal(x[{1, "...", 4}], T{4, 8, 12})
  t.equal(T{1, 2, 3}[T{true, false, true}], T{1, 3})
  shape(x[T{{true, false, true}, {false, false, false}}], 2, 4)
  t.equal(T{10, 20, 30}[i64{3, 1, 3}], T{30, 10, 30})
  t.equal(T{10, 20, 30}[i64{-1}], T{30})
  shape(x[{{}, i64{1, 3, 3, 2}}], 2, 4, 4)
  shape(x[{}], 2, 3, 4)
end)

t.test("indexing errors name dim, size and index", function()
  local x = pg.ones(2, 3)
  local e = t.error_contains(function() return x[3] end, "3")
  t.check(e:find("dim 1") and e:find("2"), e)
  e = t.error_contains(function() return x[{1, 4}] end, "4")
  t.check(e:find("dim 2") and e:find("3"), e)
  for _, k in ipairs{0, -3, 1.5, inf, -inf} do t.error_contains(function() return x[k] end, "dim 1") end
  for _, k in ipairs{0, -3, 1.5, nan, inf, "1"} do
    t.error_contains(function() return x[{k}] end, "dim 1")
    t.error_contains(function() x[{k}] = 1 end, "dim 1")
    t.error_contains(function() return x[{{k, 2}}] end, "dim 1")
  end
  t.error_contains(function() return x[nan] end, "dim 1")
  t.error_contains(function() return x["1"] end, 'got "1"')
  t.error_contains(function() return x[{1, 1, 1}] end, "positions")
  t.error_contains(function() return x[true] end, "index")
  t.error_contains(function() return x[i64{3}] end, "3")
  t.error_contains(function() return x[T{true, false, true}] end, "mask")
  t.error_contains(function() return x[{"...", "..."}] end, "...")
  t.error_contains(function() return T(1)[1] end, "0-dim")
end)

t.test("indexing writes", function()
  local x = pg.zeros(2, 3)
  x[1] = 5
  x[{2, 1}] = 7
  t.equal(x, T{{5, 5, 5}, {7, 0, 0}})
  x[{{}, {2, 3}}] = T{1, 2}
  t.equal(x, T{{5, 1, 2}, {7, 1, 2}})
  x[x:gt(4)] = 0
  t.equal(x, T{{0, 1, 2}, {0, 1, 2}})
  x[i64{2}] = T{9, 8, 7}
  t.equal(x, T{{0, 1, 2}, {9, 8, 7}})
  x[{"...", 1}] = T{3, 4}
  t.equal(x, T{{3, 1, 2}, {4, 8, 7}})
  x[{{}, {1, 3, 2}}] = -1
  t.equal(x, T{{-1, 1, -1}, {-1, 8, -1}})
  x[{{1, 0}}] = 3
  local before = x:clone()
  t.error_contains(function() x[1] = pg.ones(2) end, "shape")
  t.error_contains(function() x[3] = 1 end, "dim 1")
  t.error_contains(function() x[1] = "a" end, "bad argument")
  t.error_contains(function() x[1] = nil end, "bad argument")
  t.error_contains(function() x[1] = {1, 2, 3} end, "bad argument")
  t.equal(x, before)
  local n = i64{1, 2}
  t.error_contains(function() n[1] = 1.5 end, "int64")
  n[1] = 3
  t.equal(n, i64{3, 2})
end)

t.test("boxes over values", function()
  local a = T{1, 2, 3, 4}
  local same, r = a, a:reshape(2, 2)
  a:add_(1)
  t.equal(same, T{2, 3, 4, 5})
  t.equal(r, T{{1, 2}, {3, 4}})
  r:add_(10)
  t.equal(a, T{2, 3, 4, 5})
  local d = a:detach()
  d:zero_()
  t.equal(a, T{2, 3, 4, 5})
  local row = T{{1, 2}, {3, 4}}
  local first = row[1]
  row:zero_()
  t.equal(first, T{1, 2})
  local w = T{1, 2}:attach_grad()
  local y = pg.record(function() local h = w * 2; local z = (h * h):sum(); h:add_(5); return z + h:sum() end)
  y:backward()
  t.equal(w.grad, T{10, 18})
end)

t.test("results of indexing reads refuse writes", function()
  local x = pg.ones(2, 2)
  local reads = {function() return x[1] end, function() return x[{1, {1, 2}}] end, function() return x:select(1, 1) end,
                 function() return x:narrow(1, 1, 1) end, function() return x:unbind()[1] end,
                 function() return x:iter()() end, function() return x[x:gt(0)] end}
  for i, f in ipairs(reads) do
    t.error_contains(function() f():add_(1) end, "clone()")
    local e = t.error_contains(function() local r = f(); r[1] = 5 end, "x[{1, 2}] = 5")
    t.check(e:find("clone()", 1, true), i .. e)
    f():clone():add_(1)
  end
  x:reshape(4):add_(1)
  x:t():add_(1)
  t.equal(x, pg.ones(2, 2))
end)

t.test("ops() and help", function()
  local names = pg.ops()
  local sorted = {unpack(names)}
  table.sort(sorted)
  t.equal(names, sorted)
  local out = t.run("-e 'pg.help(\"softmax\") pg.help(pg.relu) pg.help(pg.nn.Dense)'")
  t.check(out:find("softmax") and out:find("relu") and out:find("Dense"), out)
  t.error_contains(function() pg.help("sofmax") end, "softmax")
end)

t.test("full of a boolean is a tensor of booleans", function()
  local function make()
    return pg.full({2}, true), pg.full({2}, false, "float32"), pg.full{shape = {2}, value = true, dtype = "int64"}, pg.full_like(pg.ones(2), true),
           pg.full({2}, 1)
  end
  local bools, floats, ints, like, ones
  for _, f in ipairs{make, pg.jit(make)} do
    bools, floats, ints, like, ones = f()
    t.equal(bools, pg.tensor{true, true})
    t.equal(floats, pg.tensor{0, 0})
    t.equal(ints, pg.tensor({1, 1}, {dtype = "int64"}))
    t.equal(like, pg.tensor{1, 1})
    t.equal(ones, pg.tensor{1, 1})
  end
  t.error_contains(function() return pg.range(true, 2) end, "expected a number, got true")
end)
