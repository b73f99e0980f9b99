-- Traced functions that write to tensors with attach_grad and take gradients afterwards have the same results as
-- eagerly.
local t = require "tests.support"
local pg = require "perigee"
local T = pg.tensor

-- Calls make() twice. One function runs as plain Lua and the other through pg.jit, `calls` times each. make returns the
-- function and the tensors to compare; the results of the function are also compared.
local function same(make, calls, arguments)
  local plain, one = make()
  local inner, two = make()
  local jitted = pg.jit(inner)
  for k = 1, calls or 3 do
    local a = {plain(unpack(arguments or {T{2, -1}}))}
    local b = {jitted(unpack(arguments or {T{2, -1}}))}
    for i = 1, #a do t.equal(b[i]:totable(), a[i]:totable(), ("call %d, result %d"):format(k, i)) end
    for i, x in ipairs(one) do
      t.equal(two[i]:totable(), x:totable(), ("call %d, tensor %d"):format(k, i))
      t.equal(two[i].grad and two[i].grad:totable(), x.grad and x.grad:totable(), ("call %d, gradient %d"):format(k, i))
    end
  end
end

local function leaf(...) return T{...}:attach_grad() end

t.test("a write may precede record and backward", function()
  for _, write in ipairs{
    function(w) w:sub_(0.125) end,
    function(w) w:sub_(0.125) w:mul_(2) end,
    function(w) w:copy_(w * 0.5) end,
    function(w) w:fill_(3) end,
    function(w) w[{1}] = 4 end,
    function(w) pg.sgd_update_({w}, {pg.ones(2)}, {lr = 0.25}) end,
  } do
    same(function()
      local w = leaf(1, 2)
      return function(x)
        write(w)
        local l = pg.record(function() return (w * w * x):sum() end)
        l:backward()
        return l
      end, {w}
    end)
  end
end)

t.test("gradients flow to the values of a leaf before and after a write", function()
  same(function()
    local w = leaf(1, 2)
    return function(x)
      local a = pg.record(function() return (w * w * x):sum() end)
      w:sub_(0.25)
      local b = pg.record(function() return (w * x):sum() + a end)
      b:backward()
      return b, pg.autograd.grad({pg.record(function() return (w * w * w):sum() end)}, {w})[1]
    end, {w}
  end)
end)

t.test("grad_req add over several writes", function()
  same(function()
    local w = T{1, 2}:attach_grad("add")
    return function(x)
      for _ = 1, 3 do
        pg.record(function() return (w * w * x):sum() end):backward()
        w:sub_(w.grad * 0.125)
      end
      return w:clone()
    end, {w}
  end)
end)

t.test("two optimizer steps in one call", function()
  for _, optimizer in ipairs{"sgd", "nag", "adam", "adamw"} do
    same(function()
      local w, b = leaf(0.5, -0.5), leaf(0.25)
      local trainer = pg.optim.Trainer({w = w, b = b}, optimizer, {learning_rate = 0.125})
      return function(x)
        local l
        for _ = 1, 2 do
          l = pg.record(function() return ((w * x):sum() + b - 1):square():sum() end)
          l:backward()
          trainer:step(1)
        end
        return l
      end, {w, b}
    end, 4)
  end
end)

t.test("two trainers may use each other's weights in their losses", function()
  same(function()
    local g, d = leaf(0.5, 1), leaf(1, -1)
    local of_g = pg.optim.Trainer({g = g}, "sgd", {learning_rate = 0.0625, momentum = 0.5})
    local of_d = pg.optim.Trainer({d = d}, "sgd", {learning_rate = 0.0625})
    return function(x)
      local real = pg.record(function() return (d * x):sum() - (d * (g * x):detach()):sum() end)
      real:backward()
      of_d:step(1)
      d:clamp_{min = -0.75, max = 0.75}
      local fake = pg.record(function() return -(d * g * x):sum() end)
      fake:backward()
      of_g:step(1)
      return real, fake
    end, {g, d}
  end, 4)
end)

t.test("a write under pg.pause in a recorded forward", function()
  for _, hybrid in ipairs{false, true} do
    local net = pg.nn.HybridBlock{}
    net.w = pg.param{shape = {2}, init = "ones"}
    function net:forward(x)
      pg.pause(function() self.w:clamp_{min = -0.5, max = 0.5} end)
      return (x * self.w):sum()
    end
    net:initialize()
    if hybrid then net:hybridize() end
    for _ = 1, 2 do
      pg.record(function() return net(T{1, 2}) end):backward()
      t.equal(net.w:totable(), {0.5, 0.5})
      t.equal(net.w.grad:totable(), {1, 2})
      net.w:add_(1)
    end
  end
end)

t.test("writes inside branches and after loops", function()
  same(function()
    local w = leaf(1, 2)
    return function(x)
      pg.cond(x:sum():gt(0), function() w:sub_(0.5) return x end, function() w:add_(0.5) return x end)
      local l = pg.record(function()
        return pg.loop(2, function(_, v) return v * w end, w):sum()
      end)
      l:backward()
      return l
    end, {w}
  end)
end)

t.test("a leaf made inside, written to, and used again", function()
  same(function()
    return function(x)
      local w = (x * 2):attach_grad()
      w:sub_(1)
      pg.record(function() return (w * w):sum() end):backward()
      return w.grad:clone(), w:clone()
    end, {}
  end)
end)

t.test("an exported forward that writes to its parameter", function()
  local net = pg.nn.HybridBlock{}
  net.w = pg.param{shape = {2}, init = "ones"}
  function net:forward(x)
    pg.pause(function() self.w:mul_(0.5) end)
    return (self.w * self.w * x):sum()
  end
  net:initialize()
  net:hybridize()
  net(T{1, 3})
  local json, tensors = net:export(t.tmp("leaf_writes"))
  local imported = pg.nn.SymbolBlock.imports(json, nil, tensors)
  for _ = 1, 2 do
    local l, expected
    pg.record(function() expected = net(T{1, 3}) end)
    expected:backward()
    pg.record(function() l = imported(T{1, 3}) end)
    l:backward()
    t.equal(l:item(), expected:item())
    for _, w in imported:parameters() do
      t.equal(w:totable(), net.w:totable())
      t.equal(w.grad:totable(), net.w.grad:totable())
    end
  end
end)

t.test("a step that updates nothing does not count as an update", function()
  for _, name in ipairs{"sgd", "adam"} do
    local results = {}
    for _, jit in ipairs{false, true} do
      local w = pg.param(pg.ones(2))
      local trainer = pg.optim.Trainer({w = w}, name, {learning_rate = 0.1})
      local function step(x)
        trainer:step(1, true)   -- no gradient yet
        local l = pg.record(function() return (w * x):sum() end)
        l:backward()
        trainer:step(1, true)
        return l
      end
      if jit then step = pg.jit(step) end
      for i = 1, 3 do step(pg.tensor{1, i}) end
      results[#results + 1] = w
    end
    t.close(results[2], results[1], {what = name})
  end
end)

-- Calls a recorded step with backward three times. x stays the same tensor, with the history of the call before.
local function steps_with(write, mode)
  local w, x = leaf(1, 2), pg.zeros(2)
  local function step()
    write(x, w)
    return (x * x):sum()
  end
  local f, seen = mode == "jit" and pg.jit(step) or step, {}
  for call = 1, 3 do
    local ok, y = pcall(pg.record, f)
    local message
    if ok then ok, message = pcall(y.backward, y) end
    seen[#seen + 1] = {call, ok, message and message:match("has released the graph") or "", w.grad:totable(), x:totable()}
  end
  return seen
end

t.test("the history of what was written over ends there, that of what remains goes on", function()
  for name, write in pairs{
    fill = function(x, w) x:fill_(2) x:mul_(w) end,
    copy = function(x, w) x:copy_(w) end,
    copy_a_result = function(x, w) x:copy_(w * 3) end,
    copy_broadcast = function(x, w) x:copy_(w:sum()) end,
    keep = function(x, w) x:add_(w) end,
    keep_an_element = function(x, w) x[1] = w:sum() end,
    both_branches = function(x, w) pg.cond(w:sum():gt(0), function() x:copy_(w) end, function() x:copy_(w * 2) end) end,
    one_branch = function(x, w) pg.cond(w:sum():gt(0), function() x:copy_(w) end, function() end) end,
    loop = function(x, w) pg.loop(2, function(i) x:copy_(w * i) end) end,
  } do
    t.equal(steps_with(write, "jit"), steps_with(write, "eager"), name)
  end
end)

t.test("a graph that wrote to a plain tensor does not write to a leaf while the tape records", function()
  for name, write in pairs{
    plain = function(x, w) x:copy_(w * 2) end,
    cond = function(x, w) pg.cond(w:sum():gt(0), function() x:copy_(w * 2) end, function() end) end,
    loop = function(x, w) pg.loop(2, function() x:mul_(w) end) end,
    foreach = function(x, w) pg.foreach(function(i) x:fill_(1) return i end, w) end,
    while_loop = function(x)
      local function write_one(i) x[1] = 3 return i, {i + 1} end
      pg.while_loop(function(i) return i:lt(2) end, write_one, {T(0)}, {max_iterations = 4})
    end,
  } do
    for _, mode in ipairs{"eager", "jit"} do
      local w, x = leaf(1, 2), T{3, 4}
      local function step() write(x, w) return (x * w):sum() end
      local f = mode == "jit" and pg.jit(step) or step
      for _ = 1, 2 do pg.record(f) end
      x = leaf(3, 4)
      for _ = 1, 2 do t.error_contains(function() pg.record(f) end, "a tensor with attach_grad cannot change in place", name) end
      t.equal(x:totable(), {3, 4})
      f()  -- not recorded
      t.equal(x.requires_grad, true)
      x = pg.zeros(2)
      pg.record(f)
    end
  end
end)
