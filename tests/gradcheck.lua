-- Compares derivatives up to order 2 with central differences along a random direction, in float64.
local pg = require "perigee"

local gradcheck = {}

-- Returns numbers in [low, high] that are the same in every run.
local state = 1
function gradcheck.numbers(count, low, high)
  local out = {}
  for i = 1, count do
    state = (state * 16807) % 2147483647
    out[i] = low + (high - low) * state / 2147483647
  end
  return out
end

function gradcheck.seed(n) state = n end

function gradcheck.random(shape, low, high)
  local count = 1
  for _, d in ipairs(shape) do count = count * d end
  if count == 0 then return pg.zeros(shape, {dtype = "float64"}) end
  return pg.tensor(gradcheck.numbers(count, low or -1, high or 1), {dtype = "float64"}):reshape(shape)
end

local function is_float(x) return x.dtype:find("float", 1, true) ~= nil end

local function floats(list)
  local out = {}
  for _, y in ipairs(list) do if is_float(y) then out[#out + 1] = y end end
  return out
end

local function like(tensors)
  local out = {}
  for i, x in ipairs(tensors) do out[i] = gradcheck.random(x.shape):to(x.device) end
  return out
end

local function dot(a, b)
  local sum = 0
  for i, x in ipairs(a) do if x then sum = sum + (x * b[i]):sum():to("cpu") end end
  return sum
end

local function fresh(tensors)
  local out = {}
  for i, x in ipairs(tensors) do out[i] = x:detach():contiguous():attach_grad() end
  return out
end

local function moved(tensors, direction, step)
  local out = {}
  for i, x in ipairs(tensors) do out[i] = x + direction[i] * step end
  return out
end

-- Returns the gradient of the scalar function f of a list, as a list; zeros if no gradient reaches an input.
local function gradient(f, inputs, create_graph)
  local y = f(inputs)
  if type(y) == "number" then y = inputs[1]:sum() * 0 end
  return pg.autograd.grad({y}, inputs, {create_graph = create_graph})
end

local function number(v) return type(v) == "number" and v or v:item() end

local function agree(what, analytic, numeric, tolerance)
  local close = math.abs(analytic - numeric) <= tolerance * math.max(1, math.abs(numeric))  -- false for NaN
  if not close then error(string.format("%s: %.10g by the rule, %.10g by differences", what, analytic, numeric), 0) end
end

local function difference(f, inputs, direction)
  local h = 1e-5
  return (number(f(moved(inputs, direction, h))) - number(f(moved(inputs, direction, -h)))) / (2 * h)
end

local function compare(f, inputs, order, tolerance)
  local direction = like(inputs)
  local leaves = fresh(inputs)
  local g = pg.record(function() return gradient(f, leaves, false) end)
  agree("derivative of order " .. order, number(dot(g, direction)), difference(f, inputs, direction), tolerance)
end

-- The same for forward mode (jvp).
local function compare_jvp(f, inputs, weights, tolerance)
  local direction = like(inputs)
  local function outputs(list) return floats(f(list)) end
  local _, dy = pg.jvp(outputs, {inputs}, {direction})
  local function loss(list) return dot(outputs(list), weights) end
  agree("jvp", number(dot(dy, weights)), difference(loss, inputs, direction), tolerance)
end

-- f(list of tensors) returns a list of tensors; those with a floating-point dtype are compared. opts: order (2),
-- tolerance (1e-5).
function gradcheck.check(f, inputs, opts)
  opts = opts or {}
  local tolerance = opts.tolerance or 1e-5
  local weights = like(floats(f(inputs)))
  local n, all = #inputs, {}
  for i, x in ipairs(inputs) do all[i] = x end
  for i, w in ipairs(weights) do all[n + i] = w end
  local function loss(list)  -- the weights are inputs too, so that order 2 covers the cotangents
    local own = {}
    for i = 1, n do own[i] = list[i] end
    return dot(floats(f(own)), {unpack(list, n + 1, n + #weights)})
  end
  compare(loss, all, 1, tolerance)
  compare_jvp(f, inputs, weights, tolerance)
  if (opts.order or 2) < 2 then return end
  local directions = like(all)
  local function slope(list)
    return pg.record(function()
      local leaves = {}
      for i, x in ipairs(list) do leaves[i] = x.requires_grad and x or x:detach():contiguous():attach_grad() end
      return dot(gradient(loss, leaves, true), directions)
    end)
  end
  compare(slope, all, 2, tolerance)
end

--- gradcheck.each_reduction(make[, attrs]) -> cases of an op with the arguments that make() returns, one per reduction.
function gradcheck.each_reduction(make, extra)
  local list = {}
  for _, how in ipairs{"none", "mean", "sum"} do
    local attrs = {reduction = how}
    for k, v in pairs(extra or {}) do attrs[k] = v end
    list[#list + 1] = {args = {make()}, attrs = attrs}
  end
  return list
end

return gradcheck
