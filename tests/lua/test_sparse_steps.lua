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
