-- Checks that hold for every hybrid block: the same hybridized and imported, gradients as by differences.
local t = require "tests.support"
local pg = require "perigee"
local gradcheck = require "tests.gradcheck"

local layers = {}

-- The sum of the outputs with different weights, so that gradients differ by element.
local function weighted(...)
  local sum = 0
  for _, y in ipairs(pg.tree.flatten{...}) do
    local weights = pg.range(1, y:numel(), {dtype = y.dtype}):reshape_as(y):sin()
    sum = sum + (y * weights):sum()
  end
  return sum
end

local function trained(block)
  local list = {}
  for path, p in block:parameters() do if p.grad then list[#list + 1] = {path, p} end end
  return list
end

-- Compares the gradient of each parameter along a random direction with central differences.
local function check_parameters(block, inputs, tolerance)
  local list = trained(block)
  if #list == 0 then return end
  pg.record(function() return weighted(block(unpack(inputs, 1, inputs.n))) end, {train = false}):backward()
  for _, item in ipairs(list) do
    local path, p = unpack(item)
    local direction, value, h = gradcheck.random(p.shape), p:detach():clone(), 1e-5
    local rule = (p.grad * direction):sum():item()
    local function at(step)
      p:set_data(value + direction * step)
      return weighted(block(unpack(inputs, 1, inputs.n))):item()
    end
    local numeric = (at(h) - at(-h)) / (2 * h)
    p:set_data(value)
    t.check(math.abs(rule - numeric) <= tolerance * math.max(1, math.abs(numeric)), ("%s: %.9g, expected %.9g"):format(path, rule, numeric))
  end
end

-- layers.gradients(block, …) checks the gradients of the first input and of the parameters in predict mode. All are float64.
function layers.gradients(block, ...)
  local inputs = {n = select("#", ...), ...}
  gradcheck.check(function(list)
    return pg.predict_mode(function() return {(block(list[1], unpack(inputs, 2, inputs.n)))} end)
  end, {inputs[1]}, {order = 1})
  check_parameters(block, inputs, 1e-5)
end

-- layers.imported(block, …) -> the block after export and import. The arguments are those of the example call.
function layers.imported(block, ...)
  local json, tensors = block:export(t.tmp("layer"), {inputs = {...}})
  return pg.nn.SymbolBlock.imports(json, nil, tensors)
end

-- layers.check(block, …) -> the outputs. They must be the same hybridized, and after export and import. The arguments must
-- have no nil before the last.
function layers.check(block, ...)
  local tolerance = {rtol = 1e-5, atol = 1e-6}
  local outputs = {block(...)}
  t.close({layers.imported(block, ...)(...)}, outputs, tolerance)
  block:hybridize()
  for _ = 1, 2 do t.close({block(...)}, outputs, tolerance) end
  block:hybridize(false)
  return unpack(outputs)
end

return layers
