-- Sparse gradients of embeddings in training steps of which a part is jitted: they agree with eager steps.
local t = require "tests.support"
local pg = require "perigee"
local optim, nn = pg.optim, pg.nn

local function ids(list) return pg.tensor(list, {dtype = "int64"}) end
local function eager(f) return f end

local function make(options)
  local o = {sparse_grad = true, weight_initializer = "ones"}
  for key, value in pairs(options or {}) do o[key] = value end
  return nn.Embedding(5, 2, o):initialize()
end

t.test("a jitted step unscales the gradients of a backward outside of it", function()
  for _, request in ipairs{"write", "add"} do
    for _, read in ipairs{false, true} do
      local found = {}
      for k, way in ipairs{{eager, eager}, {eager, pg.jit}, {pg.jit, eager}, {pg.jit, pg.jit}} do
        local layer = make()
        layer.weight.grad_req = request
        local trainer = optim.Trainer(layer, "sgd", {learning_rate = 0.1})
        local scaler = optim.LossScaler(trainer, {init_scale = 1024})
        local backward = way[1](function(x) scaler:scale(pg.record(function() return layer(x):square():sum() end)):backward() end)
        local step = way[2](function()
          scaler:unscale()
          local norm = read and layer.weight.grad:norm() or pg.zeros{}
          trainer:step(1)
          layer:zero_grad()
          return norm
        end)
        found[k] = {}
        for _, batch in ipairs{{1, 2, 2}, {3, 2}, {1}} do
          backward(ids(batch))
          if request == "add" then backward(ids{2, 5}) end
          table.insert(found[k], step():item())
        end
        table.insert(found[k], layer.weight:sum(2):totable())
        t.close(pg.tensor(found[k][#found[k]]), pg.tensor(found[1][#found[1]]), {rtol = 1e-5, what = request .. " " .. k})
        if read then t.close(pg.tensor(found[k][2]), pg.tensor(found[1][2]), {rtol = 1e-5, what = request .. " norm " .. k}) end
      end
      t.check(math.abs(found[1][4][1]) < 2, "the update is not scaled")
    end
  end
end)

t.test("clipped gradients update the rows that are not all 0, in each mode", function()
  for name, options in pairs{
    sgd = {momentum = 0.5, wd = 0.1}, adam = {}, rmsprop = {}, adagrad = {wd = 0.1}, ftrl = {}, group_adagrad = {}, nadam = {},
  } do
    for _, request in ipairs{"write", "add"} do
      for _, half in ipairs(t.takes_all() and {false, true} or {request == "add"}) do
        local first
        for k, way in ipairs{{eager, eager, eager}, {eager, eager, pg.jit}, {pg.jit, pg.jit, eager}, {eager, pg.jit, pg.jit}} do
          local layer = make{dtype = half and "float16" or nil}
          layer.weight.grad_req = request
          options.learning_rate, options.multi_precision = 0.1, half
          local trainer = optim.Trainer(layer, name, options)
          local backward = way[2](function(x) pg.record(function() return layer(x):to("float32"):square():sum() end):backward() end)
          local step = way[3](function()
            pg.utils.clip_global_norm({layer.weight.grad}, 1)
            trainer:step(1)
          end)
          local both = way[1](function(x)
            backward(x)
            step()
          end)
          for _, batch in ipairs{{1, 3, 1}, {3}, {2, 3}} do
            both(ids(batch))
            layer:zero_grad()
          end
          local weight = layer.weight:to("float32")
          first = first or weight
          t.close(weight, first, {rtol = half and 2e-3 or 1e-5, what = ("%s %s %d"):format(name, request, k)})
          t.equal(weight[4]:totable(), {1, 1})
        end
      end
    end
  end
end)

t.test("lookups in branches and loops, and a weight that is used elsewhere", function()
  local function lookups(layer, x)
    local branch = pg.cond(x[1]:gt(2), function() return layer(x):square():sum() end, function() return layer(x):sum() end)
    return branch + (pg.foreach(function(i) return layer(i):sum() end, x)):sum()
  end
  local uses = {
    bodies = lookups,
    mixed = function(layer, x) return lookups(layer, x) + layer(x):square():sum() end,
    tied = function(layer, x) return layer(x):matmul(layer.weight[{{1, 3}}]:t()):square():sum() end,
  }
  for name, use in pairs(uses) do
    local found = {}
    for k, jit in ipairs{eager, pg.jit} do
      local layer = make()
      local trainer = optim.Trainer(layer, "adam", {learning_rate = 0.1})
      local step = jit(function(x)
        pg.record(function() return use(layer, x) end):backward()
        trainer:step(1)
      end)
      for _, batch in ipairs{{1, 3}, {3, 4}, {2, 1}, {4, 4}} do step(ids(batch)) end
      found[k] = layer.weight
      t.equal(layer.weight[5]:totable(), {1, 1})
    end
    t.close(found[2], found[1], {rtol = 1e-5, what = name})
  end
end)

-- Returns the parts of training loops of a layer by name. Each has an eager and a jitted form.
local function parts_of_loops(layer, trainer)
  local kept = {}
  local function loss(x) return pg.record(function() return layer(x):square():sum() end) end
  local function backward(x) loss(x):backward() end
  local function norm() return layer.weight.grad:norm() end
  local function step() trainer:step(1) end
  local forms = {
    backward = backward, look = loss, norm = norm, step = step,
    whole = function(x, y)
      backward(x)
      local other = loss(y)
      trainer:step(1)
      return other:detach()
    end,
    look_and_step = function(x)
      local other = loss(x)
      trainer:step(1)
      return other:detach()
    end,
    look_and_read = function(x) return loss(x) + norm() end,
    twice = function(x, y)
      backward(x)
      backward(y)
      return norm()
    end,
  }
  local jitted = {}
  for name, f in pairs(forms) do jitted[name] = pg.jit(f) end
  function forms.keep(x) kept[#kept + 1] = loss(x) end
  function forms.back()
    if kept[1] then table.remove(kept, 1):backward() end
  end
  function forms.back_twice()  -- the history stays after the first
    if not kept[1] then return end
    kept[1]:backward{retain_graph = true}
    table.remove(kept, 1):backward()
  end
  function forms.zero_before(x)
    local other = loss(x)
    layer:zero_grad()
    other:backward()
  end
  function forms.both(x, y) pg.autograd.backward{loss(x), loss(y)} end
  return forms, jitted
end

-- Without momentum and decay an update of all rows equals that of the rows with a gradient.
t.test("random training loops agree with those of a dense gradient", function()
  local names = {"backward", "look", "norm", "step", "whole", "look_and_step", "look_and_read", "twice", "keep", "back",
                 "back_twice", "both", "zero_before"}
  for seed = 1, t.takes_all() and 42 or 12 do
    local request = seed % 2 == 0 and "add" or "write"
    math.randomseed(seed)
    local plan = {}
    for n = 1, 25 do
      plan[n] = {name = names[math.random(#names)], jit = math.random(2) == 1, x = {math.random(5), math.random(5)}, y = {math.random(5)}}
    end
    local log = {}
    for k, sparse in ipairs{false, true} do
      local layer = make{sparse_grad = sparse}
      layer.weight.grad_req = request
      if seed % 3 == 0 then layer:hybridize() end
      local trainer = optim.Trainer(layer, "sgd", {learning_rate = 0.01})
      local forms, jitted = parts_of_loops(layer, trainer)
      for n, part in ipairs(plan) do
        local ok, value = pcall((part.jit and jitted or forms)[part.name] or forms[part.name], ids(part.x), ids(part.y))
        if not ok and not value:find("stale") then error(value, 0) end
        if part.name == "whole" then layer:zero_grad() end  -- weight.grad does not hold what a jitted step made and took
        local found = {ok, ok and value and value:item() or 0, layer.weight:reshape(-1):totable()}
        if k == 1 then log[n] = found end
        local what = ("seed %d, %d: %s%s"):format(seed, n, part.jit and "jitted " or "", part.name)
        t.equal(found[1], log[n][1], what)
        t.close(pg.tensor(found[2]), pg.tensor(log[n][2]), {rtol = 1e-4, atol = 1e-5, what = what})
        t.close(pg.tensor(found[3]), pg.tensor(log[n][3]), {rtol = 1e-4, atol = 1e-5, what = what})
      end
    end
  end
end)
