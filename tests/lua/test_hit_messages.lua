-- A graph that was traced with other types refuses what plain Lua refuses, and its messages name what the script wrote.
local t = require "tests.support"
local pg = require "perigee"

local function T(...) return pg.zeros{...} end
local function int(v) return pg.tensor(v, {dtype = "int64"}) end
local function mask(...) return pg.ones{...}:gt(0) end

local function words(ok, e)
  if not ok then
    e = tostring(e):gsub("^[^:]+:%d+: ", ""):gsub("\n.*", "")
    return t.device == "cpu" and e or (e:gsub("^[%w_]+: ", ""))  -- an error that comes late may name another op
  end
  return table.concat(e.shape, "x") .. " " .. e.dtype
end

-- f must behave the same with `wrong` as plain Lua and as a graph that was traced with `good`.
local function same(text, f, good, wrong)
  local plain, jitted = words(t.pcall(f, unpack(wrong))), pg.jit(f)
  if t.device ~= "cpu" then text = text:gsub("^[%w_]+: ", "") end
  t.check(plain:find(text, 1, true), plain)
  local expected = words(t.pcall(f, unpack(good)))
  for _ = 1, 2 do
    t.equal(words(t.pcall(jitted, unpack(good))), expected)
    t.equal(words(t.pcall(jitted, unpack(wrong))), plain)
  end
end

-- key(a, b) -> the key to read, with tensors besides x.
local function reads(text, key, good, wrong)
  same(text, function(x, ...) return x[key(...)] * 1 end, good, wrong)
end
local function writes(text, key, good, wrong)
  same(text, function(x, v, ...)
    local y = x * 1
    y[key(...)] = v
    return y * 1
  end, good, wrong)
end
local function always(key) return function() return key end end

t.test("positions and ranges", function()
  for _, case in ipairs{
    {3, {T(4, 4)}, {T(2, 4)}, "index: bad argument 'dim 1' (expected an index from 1 to 2 or -2 to -1"},
    {-3, {T(4, 4)}, {T(2, 4)}, "got -3)"},
    {3, {T(4)}, {T()}, "index: a 0-dim tensor"},
    {{1, 3}, {T(4, 4)}, {T(4, 2)}, "'dim 2'"},
    {{1, 3}, {T(4, 4)}, {T(4)}, "expected at most 1 positions"},
    {{{1, 3}}, {T(4, 4)}, {T(2, 4)}, "(expected a range from 1 to 2 in a dim of size 2, got {1, 3})"},
    {{{}, {2, 4}}, {T(4, 4)}, {T(4, 2)}, "'dim 2' (expected a range"},
    {{{1, 4, 2}}, {T(4, 4)}, {T(2, 4)}, "got {1, 4, 2})"},
    {{{1, 4, 2}}, {T(4, 4)}, {T(3, 4)}, "got {1, 4, 2})"},  -- the selected elements would fit
    {{{1, 3, 2}}, {T(4, 4)}, {T(3, 4)}, "2x4"},
    {{{1, -1, 3}}, {T(4, 4)}, {T(7, 4)}, "3x4"},
    {{{-3, -1, 2}}, {T(4, 4)}, {T(2, 4)}, "got {-3, -1, 2})"},
    {{{3, 2}}, {T(4, 4)}, {T(1, 4)}, "got {3, 2})"},
    {{{3, -1}}, {T(4, 4)}, {T(1, 4)}, "got {3, -1})"},
    {{"...", 3}, {T(4, 4)}, {T(4, 2)}, "'dim 2'"},
  } do
    local key, good, wrong, text = unpack(case)
    reads(text, always(key), good, wrong)
    if not text:find("^%dx") then writes(text, always(key), {good[1], T(1)}, {wrong[1], T(1)}) end
  end
end)

t.test("index lists and masks", function()
  local function itself(i) return i end
  local function second(i) return {{}, i} end
  local list = "(expected an index list of int64 or a mask of bool, got float32 3 " .. t.device .. "; x:long() converts)"
  reads(list, itself, {T(4, 4), int{3}}, {T(4, 4), T(3)})
  reads("2x2x4", itself, {T(4, 4), int{2, 3}}, {T(4, 4), int{{1, 2}, {3, 4}}})
  reads("4x2", second, {T(4, 4), int{{1, 2}, {3, 4}}}, {T(4, 4), int{2, 3}})
  reads("9 at position 1", itself, {T(4, 4), int{3}}, {T(4, 4), int{9}})
  writes(list, itself, {T(4, 4), T(4), int{3}}, {T(4, 4), T(4), T(3)})
  writes(list, itself, {T(3, 4), T(4), mask(3)}, {T(3, 4), T(4), T(3)})
  writes("4x4", itself, {T(4, 4), T(1), mask(4)}, {T(4, 4), T(1), int{2}})
  writes("4x4", itself, {T(4, 4), T(1), int{2}}, {T(4, 4), T(1), mask(4)})
  writes("4x4", itself, {T(4, 4), T(1), mask(4)}, {T(4, 4), T(1), mask(4, 4)})
  writes("4x4x4", second, {T(4, 4, 4), T(1), mask(4)}, {T(4, 4, 4), T(1), mask(4, 4)})
  writes("a mask that matches shape 4x4 from dim 1 on, got a mask of 3", itself, {T(4, 4), T(4), mask(4)},
    {T(4, 4), T(4), mask(3)})
  writes("from dim 2 on", function(m) return {{1, 2}, m} end, {T(4, 4), T(1), mask(4)}, {T(4, 4), T(1), mask(3)})
end)

t.test("values that are written", function()
  for _, key in ipairs{3, {{1, 3}}, {}, {"..."}} do
    writes("", always(key), {T(4, 4), T(4)}, {T(4, 4), T(3)})
    writes("", always(key), {T(4, 4), T(4)}, {T(4, 4), T(2, 4, 4)})
    writes("index: bad argument 'value' (expected a tensor that int64 can hold", always(key), {T(4, 4), T(4)},
      {int{{1, 1, 1, 1}, {1, 1, 1, 1}, {1, 1, 1, 1}, {1, 1, 1, 1}}, T(4)})
  end
  for _, place in ipairs{int{3}, int(3), mask(4)} do
    writes("", function(i) return i end, {T(4, 4), T(4), place}, {T(4, 4), T(3), place})
  end
end)

t.test("methods that write in place", function()
  local function method(name, text, good, wrong)
    same(name .. ": " .. text, function(x, ...)
      local y = x * 1
      y[name](y, ...)
      return y * 1
    end, good, wrong)
  end
  method("copy_", "bad argument 'y' (expected a shape that broadcasts to 4x4, got 3)", {T(4, 4), T(4)}, {T(4, 4), T(3)})
  method("copy_", "bad argument 'y' (expected a shape that broadcasts to 4, got 4x4)", {T(4, 4), T(4)}, {T(4), T(4, 4)})
  method("add_", "bad argument 'x'", {T(4, 4), T(4)}, {T(4), T(4, 4)})
  method("mul_", "bad argument 'y' (expected a shape that broadcasts", {T(4, 4), T(4)}, {T(4, 4), T(3)})
  method("fmod_", "bad argument 'y' (expected a tensor of a numeric dtype", {T(3), T(3)}, {T(3), mask(3)})
  method("gather_", "bad argument 'index' (expected", {T(2, 3), 2, int{{1, 1, 1}, {2, 2, 2}}}, {T(2, 3), 2, int{1, 2}})
  method("masked_fill_", "bad argument 'mask'", {T(2, 3), mask(2, 3), 1}, {T(2, 3), mask(2), 1})
  method("index_add_", "", {T(4, 3), 1, int{1, 2}, T(2, 3)}, {T(4, 3), 1, int{1, 2}, T(2, 2)})
  method("layer_norm_", "", {T(2, 3), {3}}, {T(2, 4), {3}})
  method("cumsum_", "", {T(2, 3), 2}, {T(3), 2})
end)

t.test("errors in bodies name the combinators around them", function()
  same("got 3) (in the branch then_f of cond)", function(p, x)
    return pg.cond(p, function() return x[3] * 1 end, function() return x[1] * 1 end)
  end, {mask(1), T(3)}, {mask(1), T(2)})
  same("index: bad argument 'dim 1' (expected an index from 1 to 2 or -2 to -1 in a dim of size 2, got 3) " ..
    "(in the body of foreach)", function(x, s)
    return (pg.foreach(function(row, v) return row[3] * 1, v + 1 end, x, s))
  end, {T(3, 3), T()}, {T(3, 2), T()})
  same("copy_: bad argument 'y' (expected a shape that broadcasts to 3, got 2) (in the body of loop)", function(x)
    return pg.loop(3, function(_, v) v:copy_(x) return v end, T(3))
  end, {T(3)}, {T(2)})
  same("while_loop: the body changed the type", function(x, v)
    local function more(i) return i:lt(3) end
    local _, vars = pg.while_loop(more, function(i, w) return nil, {i + 1, w + x} end, {0, v})
    return vars[2]
  end, {T(3), T(3)}, {T(2, 3), T(3)})
  same("(in the condition of while_loop)", function(x)
    local _, vars = pg.while_loop(function(i) return (i + x[3]):lt(3) end, function(i) return nil, {i + 1} end, {0})
    return vars[1]
  end, {T(3)}, {T(2)})
  same("(in the body of loop)", function(x)  -- the innermost
    local function inner(_, v) return v + x[3] end
    return (pg.foreach(function(row, s) return pg.loop(2, inner, row), s end, x, T()))
  end, {T(3)}, {T(2)})
end)

t.test("values that only a run can check have the same errors", function()
  local function at(name, f)
    same(name .. ": bad argument 'index' (expected index values from 1 to 3 or -3 to -1, got 7 at position 2)",
      function(x, i)
        local y = x:clone()
        return f(y, i) or y
      end, {T(3), int{1, 2}}, {T(3), int{1, 7}})
  end
  at("scatter_", function(y, i) y:scatter_(1, i, 5) end)
  at("scatter_add_", function(y, i) y:scatter_add_(1, i, T(2)) end)
  at("index_add_", function(y, i) y:index_add_(1, i, T(2)) end)
  at("index", function(y, i) y[i] = 3 end)
  at("index", function(y, i) return y[i] * 1 end)
  at("gather", function(y, i) return y:gather(1, i) end)
  at("index_add", function(y, i) return y:index_add(1, i, T(2)) end)
end)

t.test("frozen and imported graphs name what the script wrote", function()
  local net = pg.nn.block{forward = function(_, x, y)
    local z = x:clone()
    z:copy_(y)
    return z[3] * 1
  end}
  net:initialize()
  net:hybridize()
  net(T(4), T(4))
  local json, tensors = net:export(t.tmp("named"))
  for _, run in ipairs{net:freeze(), pg.nn.SymbolBlock.imports(json, {"data1", "data2"}, tensors)} do
    local function call(...) return type(run) == "table" and run(...) or run:run(...) end
    t.error_contains(function() call(T(4), T(3)) end, "copy_: ")
    t.error_contains(function() call(T(2), T(2)) end, "index: ")
  end
end)

t.test("wrong inputs of blocks", function()
  local nn, x = pg.nn, pg.ones(2, 3)
  local function build(hybridized)
    local net = nn.HybridSequential{nn.Dense(4), nn.Dense(3)}
    net:initialize()
    if hybridized then net:hybridize() end
    net(x)
    return net
  end
  for text, f in pairs{
    ["Dense: bad argument 'x' (expected 3 features, got float32 2x5 "] = function(net) return (net(T(2, 5))) end,
    ["linear: bad argument 'x' (expected a tensor of a floating dtype"] = function(net) return (net(x:to("int64"))) end,
    ["HybridSequential: got 2 inputs, but child 1, a Dense, takes 1"] = function(net) return (net(x, x)) end,
    ["Dense: bad argument 'x' (expected a tensor, got nil"] = function(net) return (net()) end,
    ["Dense: bad argument 'x' (expected a tensor, got \"x\")"] = function(net) return (net("x")) end,
    ["pg.tensor(list) makes a tensor of a list"] = function(net) return (net{1, 2}) end,
  } do
    local plain, graph = words(t.pcall(f, build(false))), words(t.pcall(f, build(true)))
    t.check(plain:find(text, 1, true), plain)
    t.equal(graph, plain)
  end
end)
