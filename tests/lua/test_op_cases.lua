-- Every listed call of an op: float32 and float64 agree, strided inputs give what contiguous ones give, and derivatives
-- are those of central differences to order 2.
local t = require "tests.support"
local gradcheck = require "tests.gradcheck"
local pg = require "perigee"

t.skip_in("gcstress", "central differences do not depend on collections")

local function is_tensor(x) return type(x) == "userdata" end
local function is_double(x) return is_tensor(x) and x.dtype == "float64" end

local function map(f, args)
  local out = {}
  for k = 1, table.maxn(args) do
    local x = args[k]
    out[k] = type(x) == "table" and map(f, x) or f(x)
  end
  return out
end

-- The outputs as an array; ops with lists of outputs answer one already.
local function run(name, case, args)
  local call = map(function(x) return x end, args)
  local n = table.maxn(call)
  if case.attrs then n = n + 1; call[n] = case.attrs end
  local op = name:sub(1, 1) == "_" and pg.testing.ops[name] or pg[name]  -- hidden ops are for tests only
  local out = {op(unpack(call, 1, n))}
  if type(out[1]) == "table" then return out[1] end
  return out
end

-- The same elements with gaps between them.
local function strided(x)
  if not is_double(x) then return x end
  return pg.stack({x, x * 0 + 7}, -1):select(-1, 1)
end

-- Tensors listed in case.fixed (class weights, running statistics) have no derivative.
local function check_gradient(name, case)
  local inputs, fixed = {}, {}
  for _, x in ipairs(case.fixed or {}) do fixed[x] = true end
  local function is_variable(x) return is_double(x) and not fixed[x] end
  map(function(x) if is_variable(x) then inputs[#inputs + 1] = x end end, case.args)
  local function f(list)
    local k = 0
    local args = map(function(x)
      if not is_variable(x) then return x end
      k = k + 1
      return list[k]
    end, case.args)
    return run(name, case, args)
  end
  if #inputs > 0 then gradcheck.check(f, inputs, {order = case.order}) end
end

local no_grad = {detach = true, nonzero = true, argsort = true, unique = true, bincount = true, searchsorted = true,
                 argmax = true, argmin = true, any = true, all = true, count_nonzero = true}

local function check(name, case)
  local plain = run(name, case, case.args)
  local gaps = run(name, case, map(strided, case.args))
  local narrow = run(name, case, map(function(x) return is_double(x) and x:to("float32") or x end, case.args))
  t.equal(#gaps, #plain, "number of outputs")
  for k, y in ipairs(plain) do
    t.equal(gaps[k].shape, y.shape, "shape of strided output " .. k)
    t.close(gaps[k], y, {rtol = 1e-13, atol = 1e-14, what = "strided output " .. k})
    t.equal(narrow[k].shape, y.shape, "shape of float32 output " .. k)
    t.close(narrow[k]:to(y.dtype), y, {rtol = 1e-5, atol = 1e-6, what = "float32 output " .. k})
  end
  if not no_grad[name] and case.order ~= 0 then check_gradient(name, case) end
end

for _, family in ipairs{"shape", "index", "pointwise", "reduce", "norm", "loss"} do
  local cases = require("tests.ops.cases_" .. family)(pg, gradcheck.random)
  local names = {}
  for name in pairs(cases) do names[#names + 1] = name end
  table.sort(names)
  for _, name in ipairs(names) do
    for k, case in ipairs(cases[name]) do
      t.test(name .. " " .. k, function()
        gradcheck.seed(k)
        check(name, case)
      end)
    end
  end
end
