-- The ways to make a generated call: ways[name](f, call, choose), where f is the op and call = {row, args, n, attrs}.
-- Each makes the call at least once; errors that it raises are those of the call.
local pg = require "perigee"
local driver = require "tests.ops.driver"

local ways = {}
local kMost = 2 ^ 16  -- larger results (views use no memory) are not computed with

local function is_live(x)
  local ok, dtype = pcall(function() return driver.is_tensor(x) and x.dtype end)
  return ok and dtype
end

local function is_float(x)
  local dtype = is_live(x)
  return dtype and dtype:find("float", 1, true)
end

-- Returns the arguments by position, including holes and attributes.
local function arguments(call, args)
  local all, n = {unpack(args or call.args, 1, call.n)}, call.n
  if call.attrs then
    n = n + 1
    all[n] = call.attrs
  end
  return all, n
end

local function apply(f, call, args)
  local all, n = arguments(call, args)
  return f(unpack(all, 1, n))
end

local function collect(out, ...)
  for k = 1, select("#", ...) do
    local x = (select(k, ...))
    if type(x) == "table" then for _, y in ipairs(x) do out[#out + 1] = y end
    else out[#out + 1] = x end
  end
  return out
end

local function with_leaves(args)
  local leaves = {}
  local mapped = driver.map(function(x)
    if not is_float(x) then return x end
    leaves[#leaves + 1] = x:detach():clone():attach_grad()
    return leaves[#leaves]
  end, args)
  return mapped, leaves
end

-- Returns the results that have gradients and are small enough to compute with.
local function heads_of(results)
  local heads = {}
  for _, y in ipairs(results) do
    if is_live(y) and y.requires_grad and y:numel() <= kMost then heads[#heads + 1] = y end
  end
  return heads
end

function ways.eager(f, call) collect({}, apply(f, call)) end

function ways.gradient(f, call)
  local args = with_leaves(call.args)
  local heads = pg.record(function() return heads_of(collect({}, apply(f, call, args))) end)
  if #heads > 0 then pg.autograd.backward(heads) end
end

function ways.second_order(f, call)
  local args, leaves = with_leaves(call.args)
  pg.record(function()
    local heads = heads_of(collect({}, apply(f, call, args)))
    if #heads == 0 then return end
    local found = heads_of(pg.autograd.grad(heads, leaves, {create_graph = true}))
    if #found > 0 then pg.autograd.backward(found) end
  end)
end

-- Returns the tensors of the arguments, one row longer where possible, to run a graph with types that were not traced.
local function longer(args)
  return driver.map(function(x)
    if not is_live(x) or #x.shape == 0 or x.shape[1] == 0 or x:numel() > kMost then return x end
    return pg.cat({x, x:narrow(1, 1, 1)}, 1)
  end, args)
end

function ways.jit(f, call, choose)
  local g = pg.jit(f)
  collect({}, apply(g, call))
  pcall(apply, g, call, longer(call.args))
  if choose(2) == 1 then return end
  local args = with_leaves(call.args)
  local heads = pg.record(function() return heads_of(collect({}, apply(g, call, args))) end)
  if #heads > 0 then pg.autograd.backward(heads) end
end

local Calling = pg.nn.HybridBlock:extend("Calling")
function Calling:forward(...) return self.f(...) end

function ways.hybrid(f, call, choose)
  local block = Calling()
  block.f = f
  block:hybridize{static_alloc = choose(2) == 1}
  collect({}, apply(block, call))
  local args = with_leaves(call.args)
  local heads = pg.record(function() return heads_of(collect({}, apply(block, call, args))) end)
  if #heads > 0 then pg.autograd.backward(heads) end
  pcall(apply, block, call, longer(call.args))
end

-- Calls x:op_(…) on a copy if the method exists: the copy may change.
function ways.in_place(f, call)
  local x = call.args[1]
  local ok, method = pcall(function() return x[call.row.name .. "_"] end)
  if not (is_live(x) and ok) then return ways.eager(f, call) end
  local args = {unpack(call.args, 1, call.n)}
  args[1] = x:numel() <= kMost and x:clone() or x
  local before = x:numel() <= kMost and driver.snapshot{args[1]}
  local e
  ok, e = pcall(apply, method, call, args)
  if not ok and before and driver.changed({args[1]}, before) then error("changed by an error: " .. tostring(e), 0) end
  if not ok then error(e, 0) end
end

-- Calls the op in a body: the first tensor is sliced, the others are captured.
local function sliced(call)
  for k = 1, call.n do
    local x = call.args[k]
    if is_live(x) and x:numel() <= kMost then return k, x end
  end
end

-- The body contains only the call, because each trace walks everything that a body reaches.
function ways.foreach(f, call, choose)
  local place, x = sliced(call)
  if not place then return ways.eager(f, call) end
  local all, n = arguments(call)
  local function step(row, sum)
    local args = {unpack(all, 1, n)}
    args[place] = row
    local y = f(unpack(args, 1, n))
    return type(y) == "table" and y or {y}, sum + 1
  end
  local function run(v) return (pg.foreach(step, pg.stack({v, v}, 1), pg.zeros(1))) end
  if choose(2) == 1 or not is_float(x) then
    if choose(2) == 1 then run = pg.jit(run) end
    return run(x)
  end
  local leaf = x:detach():clone():attach_grad()
  local heads = pg.record(function() return heads_of(collect({}, run(leaf))) end)
  if #heads > 0 then pg.autograd.backward(heads) end
end

function ways.cond(f, call)
  local all, n = arguments(call)
  local function branch() return (f(unpack(all, 1, n))) end
  local function other() return (f(unpack(all, 1, n))) end
  local g = pg.jit(function(p) return pg.cond(p:gt(0), branch, other) end)
  g(pg.ones(1))
  g(pg.zeros(1))
end

return ways
