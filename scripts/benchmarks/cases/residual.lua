-- Residual networks: the memory of a training step, and the time to make a graph.
local residual = dofile((arg[0]:match("^(.*)/[^/]*$") or ".") .. "/networks.lua").residual

local function train_step(pg, net, loss_fn, trainer, n)
  return function(x, y)
    local l = pg.record(function() return loss_fn(net(x), y) end)
    l:backward()
    trainer:step(n)
  end
end

-- The peers' training step of ResNet-18. peak_rss_delta_mb is the memory that it needs.
local function train(variant)
  return {name = "resnet18_n8_train", variant = variant, setup = function(pg)
    local net, x, y = residual(pg, {2, 2, 2, 2}, false), pg.rand(8, 3, 224, 224) - 0.5, pg.randint(1, 1000, {8})
    net(x:narrow(1, 1, 1))
    local loss_fn = pg.loss.SoftmaxCrossEntropyLoss()
    local trainer = pg.optim.Trainer(net:collect_params(), "sgd", {learning_rate = 0.05, momentum = 0.9})
    if variant == "hybrid" then net:hybridize() end
    local step = train_step(pg, net, loss_fn, trainer, 8)
    if variant == "jit" then step = pg.jit(step) end
    return function() step(x, y) end, {inner = 1}
  end}
end

local function timed(env, f, ...)
  local start = env.now()
  f(...)
  return env.now() - start
end

local function best(env, f, ...)
  local us = math.huge
  for _ = 1, 5 do us = math.min(us, timed(env, f, ...)) end
  return us
end

local function row(env, name, times)
  return {name = name, us_min = math.min(unpack(times)), us_median = env.median(times), n = #times}
end

-- Measures calls of f(x) that make a new graph, or a new plan of one graph for another batch size, minus the time of
-- the run.
local function costs(env, pg, renew, f)
  local first, again = {}, {}
  for round = 1, 3 do
    renew()
    local x = pg.rand(1, 3, 32, 32)
    local t = timed(env, f, x)
    first[round] = t - best(env, f, x)
    x = pg.rand(1 + round, 3, 32, 32)
    t = timed(env, f, x)
    again[round] = t - best(env, f, x)
  end
  return first, again
end

local function graph_costs(env)
  local pg = require "perigee"
  pg.set_num_threads(env.threads)
  local net = residual(pg, {3, 4, 6, 3}, true)
  net(pg.rand(1, 3, 32, 32))
  local function infer(x) return net(x) end
  local function train_pass(x)
    local y = pg.record(function() return net(x) end)
    y:backward()
  end
  local first, again = costs(env, pg, function() net:hybridize() end, infer)
  local _, training = costs(env, pg, function() net:hybridize() end, train_pass)
  local tracing = {}
  for i, us in ipairs(first) do tracing[i] = us - again[i] end
  return {
    row(env, "residual50_trace_and_guards", tracing), row(env, "residual50_new_batch_infer", again),
    row(env, "residual50_new_batch_train", training),
  }
end

-- Runs 200 batch sizes twice and returns the growth of memory after the first round.
local function batch_sizes(env)
  local pg = require "perigee"
  pg.set_num_threads(env.threads)
  local net = residual(pg, {1, 1}, false)
  net(pg.rand(1, 3, 32, 32))
  net:hybridize()
  local rss, peaks, times = env.status("VmRSS"), {}, {}
  for round = 1, 2 do
    env.reset_peak()
    for n = 1, 200 do
      local x = pg.rand((n * 37) % 200 + 1, 3, 16, 16)
      times[#times + 1] = timed(env, net, x)
    end
    peaks[round] = env.status("VmHWM") - rss
  end
  local r = row(env, "residual_200_batch_sizes", times)
  r.peak_rss_delta_mb, r.growth_after_first_round_mb = peaks[1], peaks[2] - peaks[1]
  r.specializations = net:cache_info().specializations
  return r
end

return {
  train(), train("hybrid"), train("jit"),
  {name = "residual50_graph_costs", measure = graph_costs},
  {name = "residual_200_batch_sizes", variant = "hybrid", measure = batch_sizes},
}
