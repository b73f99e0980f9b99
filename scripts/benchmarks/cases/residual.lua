-- Residual networks: the memory of a training step, and the time and memory of plans for new batch sizes.
local residual = dofile((arg[0]:match("^(.*)/[^/]*$") or ".") .. "/networks.lua").residual

local function train_step(pg, net, loss_fn, trainer, n)
  return function(x, y)
    local l = pg.record(function() return loss_fn(net(x), y) end)
    l:backward()
    trainer:step(n)
  end
end

-- The peers' training step of ResNet-18. peak_rss_delta_mb is the memory that it needs.
local function train(dtype, variant)
  local name = dtype == "float32" and "resnet18_n8_train" or "resnet18_n8_train_bf16"
  return {name = name, variant = variant, setup = function(pg)
    local net, x, y = residual(pg, {2, 2, 2, 2}, false), pg.rand(8, 3, 224, 224) - 0.5, pg.randint(1, 1000, {8})
    net(x:narrow(1, 1, 1))
    net:cast(dtype)
    x = x:to(dtype)
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

-- Measures calls of f(x) that make a new plan of one graph for another batch size, minus the time of the run. What a
-- trace and its guards cost is trace_us of guards_resnet50 (guards.lua).
local function new_batch(env, pg, net, name, f)
  local times = {}
  for round = 1, 3 do
    net:hybridize()
    f(pg.rand(1, 3, 32, 32))
    local x = pg.rand(1 + round, 3, 32, 32)
    local us = timed(env, f, x)
    times[round] = us - best(env, f, x)
  end
  return {name = name, us_min = math.min(unpack(times)), us_median = env.median(times), n = #times}
end

local function new_batches(env)
  local pg = require "perigee"
  pg.set_num_threads(env.threads)
  local net = residual(pg, {3, 4, 6, 3}, true)
  net(pg.rand(1, 3, 32, 32))
  local function infer(x) return net(x) end
  local function train_pass(x)
    local y = pg.record(function() return net(x) end)
    y:backward()
  end
  return {
    new_batch(env, pg, net, "residual50_new_batch_infer", infer),
    new_batch(env, pg, net, "residual50_new_batch_train", train_pass),
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
  return {
    name = "residual_200_batch_sizes", us_min = math.min(unpack(times)), us_median = env.median(times), n = #times,
    peak_rss_delta_mb = peaks[1], growth_after_first_round_mb = peaks[2] - peaks[1],
    specializations = net:cache_info().specializations,
  }
end

return {
  train("float32"), train("float32", "hybrid"), train("float32", "jit"),
  train("bfloat16"), train("bfloat16", "hybrid"), train("bfloat16", "jit"),
  {name = "residual50_new_batch", measure = new_batches},
  {name = "residual_200_batch_sizes", variant = "hybrid", measure = batch_sizes},
}
