-- Derivatives of every differentiable op against central differences: gradient and jvp, then the second gradient.
local t = require "tests.support"
local gradcheck = require "tests.gradcheck"
local driver = require "tests.ops.driver"

t.skip_in("gcstress", "central differences do not depend on collections")

local function symmetric(x) return (x + x:transpose(-1, -2)) / 2 end

-- Every float64 tensor of the call varies except those in case.fixed.
local function check(row, case)
  local inputs, fixed = {}, {}
  for _, x in ipairs(case.fixed or {}) do fixed[x] = true end
  local function varies(x) return driver.is_double(x) and not fixed[x] end
  driver.map(function(x) if varies(x) then inputs[#inputs + 1] = x end end, case.args)
  if #inputs == 0 then return end
  local function f(list)
    local k = 0
    local out = driver.run(row, case, driver.map(function(x)
      if not varies(x) then return x end
      k = k + 1
      return case.symmetric and symmetric(list[k]) or list[k]
    end, case.args))
    return {unpack(out, 1, case.outputs or #out)}  -- the differentiable ones come first
  end
  gradcheck.check(f, inputs, {order = case.order})
end

driver.each(function(row, case, k)
  if not row.differentiable or case.order == 0 then return end
  t.test(row.name .. " " .. k, function()
    gradcheck.seed(k)
    check(row, case)
  end)
end)
