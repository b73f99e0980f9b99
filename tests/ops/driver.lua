-- Makes the calls of tests/ops/cases.lua: with other inputs, and with the results as an array of tensors.
local pg = require "perigee"
local cases = require "tests.ops.cases"

local driver = {}

function driver.is_tensor(x) return type(x) == "userdata" end
local is_tensor = driver.is_tensor

function driver.is_double(x) return is_tensor(x) and x.dtype == "float64" end

-- Replaces every x in args by f(x, place). Tables (lists of tensors, shapes) are walked, holes are kept.
function driver.map(f, args)
  local out = {}
  for k = 1, table.maxn(args) do
    local x = args[k]
    if type(x) == "table" then out[k] = driver.map(f, x) else out[k] = f(x, k) end
  end
  return out
end

-- Returns all tensors in args, in order.
function driver.tensors(args)
  local out = {}
  driver.map(function(x) if is_tensor(x) then out[#out + 1] = x end end, args)
  return out
end

local function results(...)
  local out = {}
  for k = 1, select("#", ...) do
    local x = (select(k, ...))
    if type(x) == "table" then for _, y in ipairs(x) do out[#out + 1] = y end
    elseif x ~= nil then out[#out + 1] = x end
  end
  return out
end

-- Calls f with args and then, if there are any, the attributes.
function driver.call(f, args, attrs)
  local n = table.maxn(args)
  if not attrs then return results(f(unpack(args, 1, n))) end
  local all = {unpack(args, 1, n)}
  all[n + 1] = attrs
  return results(f(unpack(all, 1, n + 1)))
end

-- Returns the outputs of the case with these args (its own by default). Random ops always start from the same seed.
function driver.run(row, case, args)
  if row.random then pg.manual_seed(7) end
  local f = pg.testing.ops[cases.field(row)]
  if driver.jit and not pg.testing.tracing() and not row.dynamic_shape and not row.name:find("^mask_") then f = pg.jit(f) end
  return driver.call(f, args or case.args, case.attrs)
end

-- Raises unless both lists of outputs have equal values, or close ones; shapes and dtypes are equal.
function driver.same(a, b, what, tolerances)
  local t = require "tests.support"
  t.equal(#a, #b, what .. ": number of outputs")
  for k, y in ipairs(b) do
    if not is_tensor(y) then t.equal(a[k], y, what)
    else
      tolerances.what = what .. ": output " .. k
      t.equal(a[k].shape, y.shape, "shape of " .. tolerances.what)
      t.equal(a[k].dtype, y.dtype, "dtype of " .. tolerances.what)
      if not a[k]:equal(y) then t.close(a[k], y, tolerances) end
    end
  end
end

-- Returns the bytes, types and strides of tensors, to detect changes.
function driver.snapshot(tensors)
  local out = {}
  for i, x in ipairs(tensors) do
    out[i] = table.concat({x.dtype, table.concat(x.shape, "x"), table.concat(x:stride(), ","), x:contiguous():to_bytes()}, " ")
  end
  return out
end

function driver.changed(tensors, before)
  for i, x in ipairs(driver.snapshot(tensors)) do if x ~= before[i] then return i end end
end

-- Calls visit(row, case, number) for the calls of every op, including hidden ones.
function driver.each(visit)
  for _, name in ipairs(pg.testing.op_names(true)) do
    local row = pg.testing.op_row(name)
    for k, case in ipairs(cases.of(row)) do visit(row, case, k) end
  end
end

return driver
