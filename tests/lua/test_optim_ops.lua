-- Fused optimizer updates: formulas against the trajectories of MXNet and torch, rebinding, mixed precision, errors.
local t = require "tests.support"
local json = require "tests.json"
local pg = require "perigee"

local function near(a, b) t.close(a, b, {rtol = 1e-5, atol = 1e-6}) end

t.test("sgd_update rebinds the weights it is given", function()
  local a, b = pg.tensor({1, 2}), pg.full({20000}, 3)
  local pure = pg.sgd_update({a, b}, {pg.ones(2), pg.ones(20000)}, {lr = 0.5})
  t.equal(a:totable(), {1, 2})
  t.equal(pure[1]:totable(), {0.5, 1.5})
  pg.sgd_update_({a, b}, {pg.ones(2), pg.ones(20000)}, {lr = {0.5, 1}, wd = {0, 0.1}})
  t.equal(a:totable(), {0.5, 1.5})
  near(b, pg.full({20000}, 3 - 1.3))
end)

t.test("other tensors of the buffer keep their values", function()
  local w = pg.tensor({1, 2})
  local view, alias = w:reshape{2, 1}, w:detach()
  pg.sgd_update_({w}, {pg.ones(2)}, {lr = 1})
  t.equal(w:totable(), {0, 1})
  t.equal(view:totable(), {{1}, {2}})
  t.equal(alias:totable(), {1, 2})
end)

t.test("leaves stay leaves", function()
  local w = pg.tensor({1, 2}):attach_grad()
  pg.record(function() return (w * w):sum() end):backward()
  pg.sgd_update_({w}, {w.grad}, {lr = 0.25})
  t.equal(w:totable(), {0.5, 1})
  t.check(w.requires_grad)
  pg.record(function() return (w * w):sum() end):backward()
  t.equal(w.grad:totable(), {1, 2})
end)

t.test("rescaling, clipping and decay come in MXNet's order", function()
  local function step(op, options, states)
    local args = {{pg.tensor({2})}, {pg.tensor({10})}}
    for i = 1, states do args[2 + i] = {pg.zeros(1)} end
    args[#args + 1] = options
    return pg[op](unpack(args))[1]
  end
  near(step("sgd_update", {lr = 1, wd = 0.5, rescale_grad = 0.5, clip_gradient = 1}, 0), pg.tensor({2 - (1 + 1)}))
  near(step("sgd_momentum_update", {lr = 1, momentum = 0.9, clip_gradient = 3}, 1), pg.tensor({-1}))
  near(step("adamw_update", {lr = 0.1, wd = 0.5}, 2), pg.tensor({2 * 0.95 - 0.1}))
  near(step("adam_update", {lr = 0.1, clip_gradient = 1, wd = 0.5}, 2), pg.tensor({1.9}))
end)

t.test("float16 weights may have float32 states", function()
  local w, m = pg.tensor({1, 2}):to("float16"), pg.zeros(2)
  pg.sgd_momentum_update_({w}, {pg.ones(2):to("float16")}, {m}, {lr = 0.5, momentum = 0.9})
  t.equal(w.dtype, "float16")
  t.equal(w:totable(), {0.5, 1.5})
  t.equal(m.dtype, "float32")
  t.equal(m:totable(), {-0.5, -0.5})
end)

t.test("wrong calls change nothing", function()
  local w, m = pg.tensor({1, 2}), pg.zeros(2)
  t.error_contains(function() pg.sgd_update_({w}, {pg.ones(3)}, {lr = 1}) end, "sgd_update_: bad argument 'grads'")
  t.error_contains(function() pg.sgd_update_({w, w}, {m, m}, {lr = 1}) end, "sgd_update_: bad argument 'weights'")
  t.error_contains(function() pg.sgd_update_({w}, {m}, {lr = {1, 2}}) end, "sgd_update_: bad argument 'lr'")
  t.error_contains(function() pg.sgd_update_({w}, {m}) end, "sgd_update_: bad argument 'lr'")
  t.error_contains(function() pg.adam_update_({w}, {m}, {m:clone()}, {pg.zeros(3)}, {lr = 1}) end, "adam_update_: bad argument 'vars'")
  t.error_contains(function() pg.adam_update_({w}, {m}, {pg.zeros(2)}, {pg.zeros(2)}, {lr = 1, t = 0}) end, "adam_update_: bad argument 't'")
  t.equal(w:totable(), {1, 2})
  w:attach_grad()
  pg.record(function() t.error_contains(function() pg.sgd_update_({w}, {m}, {lr = 1}) end, "attach_grad") end)
  t.equal(w:totable(), {1, 2})
end)

local function is_null(v) return v == nil or v == json.null end

-- Compares the whole trajectory of one reference case. `states` is the number of state lists.
local function follow(data, params, grads, trajectory, op, states, options, tolerance)
  local weights, lists = {}, {}
  for k = 1, states do lists[k] = {} end
  for i, key in ipairs(params) do
    weights[i] = data[key]:clone()
    for k = 1, states do lists[k][i] = pg.zeros_like(weights[i]) end
  end
  for step = 1, data[trajectory[1]]:size(1) do
    local g = {}
    for i, key in ipairs(grads) do g[i] = data[key][step]:contiguous():to(weights[i].dtype) end
    options.t = step
    local call = {weights, g}
    for k = 1, states do call[2 + k] = lists[k] end
    call[#call + 1] = options
    pg[op .. "_"](unpack(call))
    for i, key in ipairs(trajectory) do t.close(weights[i], data[key][step]:contiguous(), tolerance) end
  end
end

local mxnet = json.read(t.shared("data/fixtures/optim/mxnet.json"))
local mxnet_ops = {sgd = {"sgd_update", 0}, sgd_momentum = {"sgd_momentum_update", 1}, nag = {"nag_update", 1}, adam = {"adam_update", 2}}
for _, case in ipairs(mxnet.cases) do
  local e = case.effective
  local name = case.optimizer .. (case.optimizer == "sgd" and e.momentum ~= 0 and "_momentum" or "")
  local row = mxnet_ops[name]
  if row then
    t.test(case.id, function()
      local data = pg.load(t.shared("data/fixtures/optim/" .. mxnet.file))
      local options = {lr = e.lr, wd = e.wd, rescale_grad = e.rescale_grad}
      if not is_null(e.clip_gradient) then options.clip_gradient = e.clip_gradient end
      if row[2] == 1 then options.momentum = e.momentum end
      if row[2] == 2 then options.beta1, options.beta2, options.epsilon = e.beta1, e.beta2, e.epsilon end
      follow(data, case.params, case.grads, case.trajectory, row[1], row[2], options, {rtol = case.rtol, atol = case.atol})
    end)
  end
end

local torch = json.read(t.shared("data/fixtures/optim/torch.json"))
local torch_ops = {SGD = true, AdamW = true}
for _, case in ipairs(torch.cases) do
  local a = case.args
  local plain = not (a.dampening or a.maximize or a.amsgrad) and (not a.momentum or a.momentum > 0)
  if torch_ops[case.optimizer] and plain then
    t.test(case.id, function()
      local data = pg.load(t.shared("data/fixtures/optim/" .. torch.file))
      local options, op, states = {lr = a.lr, wd = a.weight_decay or 0}, "sgd_update", 0
      if case.optimizer == "AdamW" then
        options.wd = a.weight_decay or 0.01
        options.lr = a.lr or 1e-3
        if a.betas then options.beta1, options.beta2 = a.betas[1], a.betas[2] end
        options.epsilon = a.eps
        op, states = "adamw_update", 2
      elseif a.momentum then
        options.momentum = a.momentum
        op, states = a.nesterov and "nag_update" or "sgd_momentum_update", 1
      end
      local f = case.fixed
      follow(data, f.params, f.grads, f.trajectory, op, states, options, {rtol = case.rtol, atol = case.atol})
    end)
  end
end
