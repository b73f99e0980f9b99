-- Structures that nest deeply, contain themselves or contain one table many times. Each table is visited once, in
-- linear time, and too much depth is an error with the line of the script.
local pg = require "perigee"
local t = require "tests.support"
local nn = pg.nn

local function chain(n, last)
  local top = last or {s = 2}
  for _ = 1, n do top = {v = top} end
  return top
end

-- Returns tables with 2^levels paths.
local function shared(levels)
  local v = {}
  for _ = 1, levels do v = {v, v} end
  return v
end

-- Returns the number of Lua instructions that f runs, in thousands.
local function cost(f)
  local count = 0
  local on = jit and jit.status()
  if on then jit.off() end
  debug.sethook(function() count = count + 1 end, "", 1000)
  local ok, e = pcall(f)
  debug.sethook()
  if on then jit.on() end
  if not ok then error(e, 0) end
  return count
end

-- make(n) -> the function to measure. Four times the size may take at most five times the instructions.
local function is_linear(what, n, make)
  local small, large = cost(make(n)), cost(make(4 * n))
  t.check(large <= 5 * small + 20, ("%s: %d thousand instructions for %d, %d for %d"):format(what, small, n, large, 4 * n))
end

local function end_of(node)
  while node.v do node = node.v end
  return node
end

t.test("deeply nested tables in upvalues and arguments take linear time", function()
  if t.mode == "gcstress" then t.skip("collects at every step") end
  is_linear("upvalue", 500, function(n)
    local deep = chain(n)
    local f = pg.jit(function(x) return x * end_of(deep).s end)
    return function() t.equal(f(pg.ones(2)), pg.full({2}, 2)) end
  end)
  is_linear("replaced upvalue", 250, function(n)
    local deep = chain(n)
    local f = pg.jit(function(x) return x * end_of(deep).s end)
    return function()
      for i = 1, 3 do
        deep = chain(n, {s = i})
        t.equal(f(pg.ones(2)), pg.full({2}, i))
      end
    end
  end)
  is_linear("argument", 500, function(n)
    local f = pg.jit(function(x, node) return x * end_of(node).s end)
    return function() for i = 1, 2 do t.equal(f(pg.ones(2), chain(n, {s = i})), pg.full({2}, i)) end end
  end)
  is_linear("assigned argument", 500, function(n)
    local f = pg.jit(function(x, node)
      local last = end_of(node)
      last.s, last.y = last.s + 1, x * last.s
      return x
    end)
    return function()
      for i = 1, 2 do
        local node = chain(n, {s = i})
        f(pg.ones(2), node)
        t.equal(end_of(node).s, i + 1)
        t.equal(end_of(node).y, pg.full({2}, i))
      end
    end
  end)
end)

local Wrap = nn.HybridBlock:extend("Wrap")
function Wrap:init(child) self.child = child end
function Wrap:forward(x) return self.child(x) * 1 end

t.test("deeply nested blocks take linear time", function()
  if t.mode == "gcstress" then t.skip("collects at every step") end
  is_linear("blocks", 60, function(n)
    local b = nn.Dense(2, {in_units = 2})
    for _ = 1, n do b = Wrap(b) end
    return function()
      b:initialize(pg.init.One())
      b:hybridize()
      t.equal(b(pg.ones(1, 2)), pg.full({1, 2}, 2))
      t.check(#tostring(b) > n)
    end
  end)
end)

t.test("a table that occurs many times is visited once", function()
  local v = shared(40)
  local dense = nn.Dense(3, {in_units = 3}):initialize()
  t.error_matches(function() dense(v) end, "^%S+test_deep.lua:%d+: ")
  t.error_matches(function() dense(_G) end, "^%S+test_deep.lua:%d+: ")
  local b = nn.block{v = v, w = {v, v}, p = pg.param(3), forward = function(self, x, extra) return x * 2, extra end}
  b:initialize()
  local _, extra = b(pg.ones(3), v)
  t.check(#extra == 2 and extra[1][1] ~= nil)
  t.equal(#tostring(b) < 1000, true)
  b:hybridize()
  for _ = 1, 2 do
    local y, w = b(pg.ones(3), v)
    t.equal(y, pg.full({3}, 2))
    t.check(rawequal(w[1], w[2]))
  end
  local f = pg.jit(function(x) return x, shared(40) end)
  for _ = 1, 2 do
    local _, w = f(pg.ones(3))
    t.check(rawequal(w[1], w[2]) and rawequal(w[1][1], w[2][2]))
  end
  for _, call in ipairs{function() pg.tree.flatten(v) end, function() pg.tree.map(function(x) return x end, v) end} do
    t.error_matches(call, "^%S+test_deep.lua:%d+: tree: bad argument 'tree' %(expected at most 100000 tables, got more%)")
  end
end)

t.test("a block that occurs many times is one block", function()
  local Pair = nn.HybridBlock:extend("Pair")
  function Pair:init(child)
    self.a = child
    self.b = child
  end
  function Pair:forward(x) return self.a(x) end
  local b = nn.Dense(2, {in_units = 2})
  for _ = 1, 40 do b = Pair(b) end
  b:initialize(pg.init.One())
  b:hybridize()
  t.equal(b(pg.ones(1, 2)), pg.full({1, 2}, 2))
  local paths = {}
  for path in b:parameters() do paths[#paths + 1] = path end
  t.equal(paths, {("a."):rep(40) .. "weight", ("a."):rep(40) .. "bias"})
  t.check(#tostring(b) < 20000)
  local file = t.tmp("pairs.safetensors")
  local weight, bias = b:collect_params()[paths[1]], b:collect_params()[paths[2]]
  pg.save(file, {[("b."):rep(40) .. "weight"] = pg.full({2, 2}, 7), [("a.b."):rep(20) .. "bias"] = pg.full({2}, 8)})
  b:load_parameters(file)
  t.equal(weight:detach(), pg.full({2, 2}, 7))
  t.equal(bias:detach(), pg.full({2}, 8))
  pg.save(file, {[paths[1]] = pg.ones(2, 2), [paths[2]] = pg.ones(2), [("a."):rep(39) .. "c.weight"] = pg.ones(2, 2)})
  t.error_contains(function() b:load_parameters(file) end, "which the block does not have")
end)

t.test("tables that contain themselves are visited once", function()
  local dense = nn.Dense(3, {in_units = 3}):initialize()
  local o = {}
  o.a, o.b, o[1] = o, {o, o}, o
  local b = nn.block{p = pg.param(3), o = o, forward = function(self, x, extra) return x * #extra.b end}
  b:initialize()
  t.equal(b(pg.ones(3), o), pg.full({3}, 2))
  t.error_matches(function() nn.Dense(3, o) end, "^%S+test_deep.lua:%d+: ")
  t.error_matches(function() nn.Dense(3, {use_bias = o}) end, "^%S+test_deep.lua:%d+: ")
  t.error_matches(function() pg.zeros({3}, {dtype = o}) end, "^%S+test_deep.lua:%d+: ")
  t.error_matches(function() pg.ones(3):sum{dim = o} end, "^%S+test_deep.lua:%d+: ")
  t.error_matches(function() pg.tensor(o) end, "^%S+test_deep.lua:%d+: ")
  t.error_matches(function() pg.tree.flatten(o) end, "^%S+test_deep.lua:%d+: tree: .*holds itself")
  t.error_matches(function() pg.save(t.tmp("self.pg"), o) end, "^%S+test_deep.lua:%d+: ")
  t.error_matches(function() dense(pg.ones(1, 3), o):sum(o) end, "^%S+test_deep.lua:%d+: ")
end)

t.test("an error at a stated depth names the script's line", function()
  local deep = chain(5000)
  for _, call in ipairs{function() pg.tree.flatten(deep) end, function() pg.tree.map(function(x) return x end, deep) end} do
    t.error_matches(call, "^%S+test_deep.lua:%d+: tree: bad argument 'tree' %(expected at most 1000 levels, got more%)")
  end
  local b = nn.block{p = pg.param(3), forward = function(self, x) return x * 2 end}:initialize()
  if t.mode == "eager" then
    t.error_matches(function() b(pg.ones(3), deep) end, "^%S+test_deep.lua:%d+: call: the arguments nest more than 1000 tables")
  end
  local holder = nn.block{deep = deep, p = pg.param(3), forward = function(self, x) return x end}
  t.error_matches(function() holder:initialize() end, "^%S+test_deep.lua:%d+: Block: a field of the block nests more than 1000 tables")
end)

-- Control flow that nests ---------------------------------------------------------------------------------------------

-- Computes x * 1.01 inside `depth` nested bodies of one kind.
local nests = {}
function nests.cond(x, inner)
  return pg.cond(x:sum():gt(-1), function() return inner(x) end, function() return x * 1 end)
end
function nests.loop(x, inner) return (pg.loop(1, function(_, v) return inner(v) end, x)) end
function nests.foreach(x, inner)
  local _, s = pg.foreach(function(row, v) return row, inner(v) end, pg.ones(1), x)
  return s
end
function nests.while_loop(x, inner)
  local function step(i, v) return nil, {i + 1, inner(v)} end
  local _, vars = pg.while_loop(function(i) return i:lt(1) end, step, {0, x}, {max_iterations = 1})
  return vars[2]
end

local function nested(kind, depth)
  local f = function(x) return x * 1.01 end
  for _ = 1, depth do
    local inner = f
    f = function(x) return nests[kind](x, inner) end
  end
  return f
end

local function gradient(f)
  local x = pg.ones(2):attach_grad()
  pg.record(function() return f(x):sum() end):backward()
  return x.grad
end

local function imported(f)
  local Block = nn.HybridBlock:extend("Nested")
  function Block:forward(x) return f(x) end
  local block = Block()
  block:hybridize()
  block(pg.ones(2))
  local json, tensors = block:export(t.tmp("nested"))
  return nn.SymbolBlock.imports(json, nil, tensors)
end

local function check_nested(kind, depth, what)
  local f, expected = nested(kind, depth), pg.full({2}, 1.01)
  local ways = {
    eager = function() return f(pg.ones(2)) end,
    jit = function() return pg.jit(f)(pg.ones(2)) end,
    gradient = function() return gradient(f) end,
    jit_gradient = function() return gradient(pg.jit(f)) end,
    import = function() return imported(f)(pg.ones(2)) end,
    import_gradient = function() return gradient(imported(f)) end,
  }
  for name, way in pairs(ways) do
    if not what or what[name] then t.check(way():allclose(expected), kind .. " " .. name) end
  end
end

t.test("bodies nest 200 deep", function()
  t.skip_in("gcstress", "many traces")
  -- Each loop around a value that its gradient needs adds a dim to it, and a tensor has at most 12. The passes remove
  -- loops of one step.
  local whole = t.takes_all()  -- every pass verifies the whole graph
  for kind in pairs(nests) do check_nested(kind, whole and 65 or 8) end
  if not whole then return end
  check_nested("while_loop", 200, {eager = true})
  check_nested("foreach", 200, {jit = true})
  check_nested("loop", 200, {jit_gradient = true})
  check_nested("cond", 200, {import_gradient = true})
  t.error_contains(function() nested("loop", 201)(pg.ones(2)) end, "bodies of branches and loops nest deeper than 200")
end)
