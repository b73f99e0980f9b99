-- Every op as a program: a traced call has the bits of the eager one, in its value and its gradients. The core's own
-- trace function is used, so that no guard walks through the objects of the tests.
local t = require "tests.support"
local pg = require "perigee"
local driver = require "tests.ops.driver"
local testing = pg.testing

t.skip_in("gcstress", "programs are the same whenever the collector runs")

local function is_float(x) return driver.is_tensor(x) and x.dtype:match("float") end

-- Returns the case's arguments in another float dtype and contiguous: programs read their inputs so, and sums depend on
-- the layout.
local function arguments(case, dtype)
  return driver.map(function(x)
    if not driver.is_tensor(x) then return x end
    return (x.dtype == "float64" and x:to(dtype) or x):contiguous()
  end, case.args)
end

local function bits(x) return x.dtype .. " " .. table.concat(x.shape, "x") .. " " .. x:contiguous():to_bytes() end

-- Returns the sum of the squares of all float results that have gradients, so that gradients depend on values. The
-- first, eager call finds which results have one.
local function loss_of(results, counted)
  local total
  for i, v in ipairs(results) do
    if counted[i] == nil then counted[i] = is_float(v) and v.requires_grad end
    if counted[i] then
      local part = (v * v):sum()
      total = total and total + part or part
    end
  end
  return total
end

local function value_program(row, case, args)
  return function() return unpack(driver.run(row, case, args)) end, {}
end

local function gradient_program(row, case, args)
  local leaves, counted = {}, {}
  for _, x in ipairs(driver.tensors(args)) do
    if is_float(x) then x:attach_grad() leaves[#leaves + 1] = x end
  end
  return function()
    local total = pg.record(function() return loss_of(driver.run(row, case, args), counted) end)
    if total then total:backward() end
    return total
  end, leaves
end

local function outcome(f, leaves)
  local out = {f()}
  for i, x in ipairs(out) do out[i] = bits(x) end
  for _, x in ipairs(leaves) do out[#out + 1] = bits(x.grad) end
  return out
end

-- Returns a function that runs f as a program, and the program; nil and the reason if f cannot be a program.
local function traced(f)
  local all = {testing.trace(f, 0)}
  if not all[1] then return nil, tostring(all[2]) end
  local trace, boxes = all[2], {}
  for i = 3, #all do trace:output(all[i]) end
  for i, captured in ipairs(trace:captured()) do boxes[i] = captured.box end
  local program = trace:finish{name = "test"}
  return function() return testing.run(program, unpack(boxes)) end, program
end

local function compare(make, row, case, dtype)
  local f, leaves = make(row, case, arguments(case, dtype))
  local ok, eager = pcall(outcome, f, leaves)
  if not ok then return end  -- the dtype is not supported, or the op has no derivative
  local run, program = traced(f)
  if not run then
    if program:match("depends on values") then return end
    error(program, 0)
  end
  for _ = 1, 2 do
    local done, result = pcall(outcome, run, leaves)
    if not done then
      if tostring(result):match("depends on values") then return end  -- in an op of the gradient
      error(result, 0)
    end
    t.equal(#result, #eager)
    for i = 1, #eager do
      if result[i] ~= eager[i] then error(("result %d differs from the eager one in\n%s"):format(i, program:graph("optimized")), 0) end
    end
  end
end

driver.each(function(row, case, k)
  if row.random or case.values == false or #row.outputs == 0 then return end
  for _, dtype in ipairs{"float64", "float32"} do
    t.test(("%s, case %d, %s"):format(row.name, k, dtype), function()
      compare(value_program, row, case, dtype)
      compare(gradient_program, row, case, dtype)
    end)
  end
end)
