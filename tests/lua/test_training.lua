-- Complete trainings against MXNet's curves, with the same weights and batches.
local t = require "tests.support"
local json = require "tests.json"
local pg = require "perigee"
local nn = pg.nn

local nets = {
  mlp_sgd = function() return nn.HybridSequential{nn.Dense(32, {activation = "relu"}), nn.Dense(16, {activation = "relu"}), nn.Dense(10)} end,
  cnn_sgd = function()
    return nn.HybridSequential{
      nn.Conv2D(6, 3, {padding = 1, activation = "relu"}), nn.MaxPool2D(2), nn.Conv2D(8, 3, {activation = "relu"}), nn.Dense(10),
    }
  end,
}

local function one_based(path) return (path:gsub("^%d+", function(i) return tostring(i + 1) end)) end

local function run_curve(curve, values, x, y)
  local net = nets[curve.name]()
  local source = {}
  for _, path in ipairs(curve.params) do source[one_based(path)] = values["init:" .. path] end
  net:initialize(pg.init.Load(source))
  local shape = {-1, unpack(curve.input_shape)}
  local loss_fn = pg.loss.SoftmaxCrossEntropyLoss()
  local trainer = pg.optim.Trainer(net:collect_params(), curve.optimizer, curve.args)
  local tolerance = {rtol = curve.rtol, atol = curve.atol, what = curve.name}
  for step = 1, curve.steps do
    local rows = values.order[step]:to("int64") + 1
    local batch, labels = x:index_select(1, rows):reshape(shape), y:index_select(1, rows)
    local l = pg.record(function() return loss_fn(net(batch), labels) end)
    t.close(l:mean():item(), values.loss[step]:item(), tolerance)
    l:backward()
    trainer:step(curve.batch)
  end
  for path, p in net:parameters() do
    for _, name in ipairs(curve.params) do
      if one_based(name) == path then t.close(p, values["final:" .. name], {rtol = 5e-3, atol = 1e-3, what = path}) end
    end
  end
  t.close(net(x:narrow(1, 1, values.logits:size(1)):reshape(shape)), values.logits, {rtol = 5e-3, atol = 2e-3})
end

t.test("mlp and cnn with sgd follow MXNet for 50 steps", function()
  t.skip_in("gcstress", "many small ops")
  local manifest = json.decode(t.read(t.shared("data/fixtures/train/manifest.json")))
  local digits = pg.load(t.shared("data/fixtures/train/digits.safetensors"))
  local x, y = digits.x, digits.y:to("int64") + 1
  for _, curve in ipairs(manifest.curves) do
    if nets[curve.name] then run_curve(curve, pg.load(t.shared("data/fixtures/train/" .. curve.file)), x, y) end
  end
end)

t.test("the embedded digits are those of the reference slice", function()
  local digits = pg.load(t.shared("data/fixtures/train/digits.safetensors"))
  local own = pg.data.digits()
  t.equal(own:len(), 1797)
  local first = digits.x[1]
  local found
  for i = 1, own:len() do
    local image, label = own:get(i)
    if image:reshape{64}:allclose(first) then
      found = true
      t.equal(label:item(), digits.y[1]:item() + 1)
      break
    end
  end
  t.check(found)
end)
