-- Values and gradients of every op with results of torch in ../shared, in float32 and float64.
local t = require "tests.support"
local json = require "tests.json"
local torch = require "tests.torch_names"
local pg = require "perigee"

t.skip_in("gcstress", "reference values do not depend on collections")

local manifest = json.read(t.shared("data/fixtures/ops/manifest.json"))
local folder = t.shared("data/fixtures/ops/")
local function is_null(v) return v == nil or v == json.null end

local function inputs_of(case, data)
  local inputs, leaves = {}, {}
  for i, key in ipairs(case.inputs) do
    inputs[i] = data[key]
    if case.grads and not is_null(case.grads[i]) then
      inputs[i]:attach_grad()
      leaves[#leaves + 1] = {i, data[case.grads[i]]}
    end
  end
  return inputs, leaves
end

-- The reference files store results without dims as one element.
local function scalar_like(x, stored)
  if x:dim() == 0 and stored:dim() == 1 and stored:numel() == 1 then return stored:reshape{} end
  return stored
end

local function check(case, data)
  local tolerance = {rtol = case.rtol, atol = case.atol}
  local inputs, leaves = inputs_of(case, data)
  local outputs = pg.record(function() return torch.call(pg, case.op, inputs, case.attrs, is_null) end)
  t.equal(#outputs, #case.output, "number of outputs")
  for i, key in ipairs(case.output) do
    local expected = scalar_like(outputs[i], data[key])
    t.equal(outputs[i].shape, expected.shape, "shape of output " .. i)
    t.equal(outputs[i].dtype, expected.dtype, "dtype of output " .. i)
    t.close(outputs[i], expected, {rtol = case.rtol, atol = case.atol, what = "output " .. i})
  end
  if #leaves == 0 then return end
  local heads, cotangents = {}, {}
  for i, key in ipairs(case.grad_output) do
    if not is_null(key) then
      heads[#heads + 1] = outputs[i]
      cotangents[#cotangents + 1] = scalar_like(outputs[i], data[key])
    end
  end
  pg.autograd.backward(heads, cotangents)
  for _, leaf in ipairs(leaves) do
    tolerance.what = "gradient of input " .. leaf[1]
    t.close(inputs[leaf[1]].grad, leaf[2], tolerance)
  end
end

local data, left_out = {}, 0
for _, case in ipairs(manifest.cases) do
  local file = manifest.groups[case.group]
  if torch.absent[case.op] then left_out = left_out + 1
  else
    data[file] = data[file] or pg.load(folder .. file)
    t.test(case.id .. " " .. case.op, function() check(case, data[file]) end)
  end
end

t.test("the reference data covers the registry", function() t.check(left_out < 150, left_out .. " cases left out") end)
