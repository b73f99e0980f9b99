-- Sizes of programs: deep nests whose work must not double with each level, and calls with thousands of tensors.
local pg = require "perigee"
local t = require "tests.support"

t.skip_in("gcstress", "large programs")

local function gradient(f)
  local x = pg.full({2}, 0.5):attach_grad()
  pg.record(function() return f(x):sum() end):backward()
  return x.grad
end

-- Nests --------------------------------------------------------------------------------------------------------------

-- Wraps f, of n tensors, in `depth` loops. Each result depends on all states, so an analysis that follows each path
-- through the nest never ends.
local function mixed(n, depth, wrap)
  local function f(list) return pg.tree.map(function(x) return x * 0.5 end, list) end
  for _ = 1, depth do
    local inner = f
    f = function(list)
      return wrap(list, function(states)
        local out, sum = inner(states), 0
        for i = 1, n do sum = sum + out[i] end
        local mixed_states = {}
        for i = 1, n do mixed_states[i] = sum / n + out[i] * 0 end
        return mixed_states
      end)
    end
  end
  return function(x)
    local list = {}
    for i = 1, n do list[i] = x * 1 end
    return f(list)[1]
  end
end

t.test("histories of nested bodies are found once for each output", function()
  local wraps = {
    foreach = function(list, body)
      local _, states = pg.foreach(function(row, states) return row, body(states) end, pg.ones(1), list)
      return states
    end,
    cond = function(list, body)
      return pg.cond(list[1]:sum():gt(-1), function() return body(list) end, function() return list end)
    end,
  }
  for name, wrap in pairs(wraps) do
    local f = mixed(4, 9, wrap)
    t.check(f(pg.ones(2)):allclose(pg.full({2}, 0.5)), name)
    t.check(gradient(f):allclose(pg.full({2}, 0.5)), name)
    t.check(gradient(pg.jit(f)):allclose(pg.full({2}, 0.5)), name .. " in jit")
  end
end)

t.test("the body of a loop is specialized once, although gradients reach its state only through the steps", function()
  local f = function(x) return x * 2 end
  for _ = 1, 24 do
    local inner = f
    f = function(x) return (pg.loop(1, function(_, s) return s + inner(x) end, pg.zeros(2))) end
  end
  t.equal(gradient(f), pg.full({2}, 2))
  t.equal(gradient(pg.jit(f)), pg.full({2}, 2))
end)

t.test("states that gradients reach after several steps", function()
  -- A value moves from state to state. State 4 is integers on the way, so no gradient passes it.
  local function shifted(steps, broken)
    return function(x)
      local function body(_, s)
        return nil, {x * x, s[1], broken and s[2]:to("int32"):to("float32") or s[2], s[3], s[5] + 1}
      end
      local zeros = {}
      for i = 1, 5 do zeros[i] = pg.zeros(2) end
      local _, s = pg.foreach(body, pg.ones(steps), zeros)
      return s[4] + s[5] + x * 0
    end
  end
  for _, wrap in ipairs{function(f) return f end, pg.jit} do
    t.equal(gradient(wrap(shifted(3))), pg.zeros(2))
    t.equal(gradient(wrap(shifted(4))), pg.ones(2))
    t.equal(gradient(wrap(shifted(4, true))), pg.zeros(2))
    local x = pg.ones(2):attach_grad()
    local last = pg.record(function()
      return wrap(function(v)
        local _, s = pg.foreach(function(_, s) return nil, {s[1] * v, s[2] + 1} end, pg.ones(2), {pg.ones(2), pg.ones(2)})
        return s[2]
      end)(x)
    end)
    t.equal(last.requires_grad, false)
  end
end)

-- Many tensors -------------------------------------------------------------------------------------------------------

local n = 9000

local function sum(list)
  local s = list[1]
  for i = 2, #list do s = s + list[i] end
  return s
end

local function tensors(count)
  local list = {}
  for i = 1, count do list[i] = pg.ones(1) end
  return list
end

t.test("programs over 9000 tensors", function()
  t.skip_in("nofuse", "long chains, node by node")
  t.skip_in("guard", "one allocation for each tensor")
  local list = tensors(n)
  local expected = pg.full({1}, n)
  t.may_warn("guarded by identity and length only")
  local captures = pg.jit(function(x) return x * sum(list) end)
  for _ = 1, 2 do t.equal(captures(pg.ones(1)), expected) end
  local arguments = pg.jit(sum)
  for _ = 1, 2 do t.equal(arguments(list), expected) end
  t.equal(pg.cond(pg.ones(1):gt(0), function() return sum(list) end, function() return list[1] end), expected)
  t.equal((pg.foreach(function(rows) return sum(rows) end, list)), expected)
  local block = pg.nn.block{forward = function(_, x) return sum(x) end}
  block:hybridize()
  t.equal(block(list), expected)
  local json, file = block:export(t.tmp("many"))
  t.equal(pg.nn.SymbolBlock.imports(json, nil, file)(list), expected)
  t.equal(block:freeze()(list), expected)
end)

t.test("programs with 9000 results", function()
  t.skip_in("nofuse", "thousands of steps")
  t.skip_in("guard", "one allocation for each tensor")
  t.may_warn("guarded by identity and length only")
  local function multiples(x)
    local out = {}
    for i = 1, n do out[i] = x * i end
    return out
  end
  local function check(list) t.equal({#list, list[1]:item(), list[n]:item()}, {n, 1, n}) end
  local f = pg.jit(multiples)
  for _ = 1, 2 do check(f(pg.ones(1))) end
  check(pg.cond(pg.ones(1):gt(0), function() return multiples(pg.ones(1)) end, function() return multiples(pg.zeros(1)) end))
  check((pg.foreach(multiples, pg.ones(1, 1))))
  local _, states = pg.foreach(function(row, list) return nil, pg.tree.map(function(x) return x * row end, list) end,
    pg.ones(1, 1), multiples(pg.ones(1)))
  check(states)
end)

t.test("a jitted training step with 2500 parameters, each with its own rate", function()
  t.skip_in("nofuse", "thousands of steps")
  t.skip_in("guard", "one allocation for each tensor")
  local block = pg.nn.block{weights = {}, forward = function(self, x) return sum(self.weights) * x end}
  for i = 1, 2500 do block.weights[i] = pg.param{shape = {1}, init = "ones", lr_mult = i % 2} end
  block:initialize()
  local trainer = pg.optim.Trainer(block:collect_params(), "adam", {learning_rate = 0.5})
  local step = pg.jit(function(x)
    local l = pg.record(function() return block(x):sum() end)
    l:backward()
    trainer:step(1)
    return l
  end)
  t.equal(step(pg.ones(1)):item(), 2500)
  t.equal(step(pg.ones(1)):item(), 1875)
  t.check(math.abs(block.weights[1]:item()) < 1e-3)
  t.equal(block.weights[2]:item(), 1)
end)
