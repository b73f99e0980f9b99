-- Every op of the registry inside pg.jit has the values and gradients of eager calls, and a second call does not trace
-- again.
local t = require "tests.support"
local driver = require "tests.ops.driver"
local cases = require "tests.ops.cases"
local pg = require "perigee"

local is_tensor = driver.is_tensor

local function same(a, b, what) driver.same(a, b, what, {rtol = 1e-6, atol = 1e-7, equal_nan = true}) end

local function jitted(row) return pg.jit(pg.testing.ops[cases.field(row)]) end

local function check_values(row, case)
  local f = jitted(row)
  local eager = pg.debug(function() return driver.run(row, case) end)
  for round = 1, 2 do
    if row.random then pg.manual_seed(7) end
    same(driver.call(f, case.args, case.attrs), eager, row.name .. " call " .. round)
  end
  t.equal(f:cache_info().traces, 1, "traces")
end

-- Returns the gradients of the sum of the floating outputs.
local function gradients(f, row, case)
  local leaves = {}
  local args = driver.map(function(x)
    if not is_tensor(x) or not x.dtype:find("float") then return x end
    leaves[#leaves + 1] = x:detach():clone():attach_grad()
    return leaves[#leaves]
  end, case.args)
  if row.random then pg.manual_seed(7) end
  local heads = {}
  pg.record(function()
    for _, y in ipairs(driver.call(f, args, case.attrs)) do
      if is_tensor(y) and y.requires_grad then heads[#heads + 1] = y end
    end
  end)
  if #heads == 0 then return {} end
  pg.autograd.backward(heads)
  local out = {}
  for i, leaf in ipairs(leaves) do out[i] = leaf.grad end
  return out
end

local function check_gradients(row, case)
  local eager = pg.debug(function() return gradients(pg.testing.ops[cases.field(row)], row, case) end)
  same(gradients(jitted(row), row, case), eager, row.name .. " gradients")
end

driver.each(function(row, case, k)
  if row.dynamic_shape or row.hidden or row.name:find("^empty") then return end
  t.test(("jit of %s, call %d"):format(row.name, k), function()
    if t.mode == "gcstress" and k > 1 then return end
    check_values(row, case)
    if row.differentiable and case.order ~= 0 then check_gradients(row, case) end
  end)
end)
