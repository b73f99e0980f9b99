-- The calls that the generated tests make of every op, in float64: those listed in tests/ops/cases_*.lua, and one
-- derived from the op's row. A call is {args = by position, attrs = by name}. Optional fields: order (the highest order
-- that is differentiable), outputs (only that many outputs are differentiable), fixed (a list of args without a
-- derivative), symmetric (the op reads half of a symmetric matrix), values = false (the elements are unspecified), rtol
-- (for float32).
local pg = require "perigee"
local gradcheck = require "tests.gradcheck"

local cases = {}
local families = {"pointwise", "special", "shape", "index", "linalg", "create", "reduce", "statistics", "norm", "loss",
  "optim", "scatter", "arrange", "product", "distance", "neural", "fft"}
local listed, complete = {}, {}

for _, family in ipairs(families) do
  gradcheck.seed(1)  -- the same numbers in any order of the tests
  for name, list in pairs(require("tests.ops.cases_" .. family)(pg, gradcheck.random)) do
    listed[name] = listed[name] or {}
    for _, case in ipairs(list) do table.insert(listed[name], case) end
  end
end

-- Returns the field of pg that has the op: hidden ops have an underscore in front.
function cases.field(row) return (row.hidden and "_" or "") .. row.name end

local function operand(def, i)
  local shape = ({{2, 3}, {3}, {2, 1}})[i] or {3}
  if def.dtypes.float64 then return gradcheck.random(shape, def.low, def.high) end
  local x = gradcheck.random(shape, def.low, def.high)
  if def.dtypes.int64 then return x:round():to("int64") end
  return x:gt((def.low + def.high) / 2)
end

-- Derives a call of pointwise ops and of ops whose only input determines the call.
local function derived(row)
  if #row.inputs == 0 or not (row.pointwise or #row.inputs == 1) then return {} end
  for _, attr in ipairs(row.attrs) do if attr.required then return {} end end
  local args, seed = {}, 1
  for i = 1, #row.name do seed = seed * 31 % 1000003 + row.name:byte(i) end
  gradcheck.seed(seed)
  for i, def in ipairs(row.inputs) do
    if def.arity == "list" then return {} end
    args[i] = operand(def, i)
  end
  return {{args = args}}
end

-- Ops that only show values to the host. tests/lua/test_effects.lua tests them.
local shown = {print_value = true, call_value = true}

-- Returns the calls of the op with this row; empty when none is listed and none can be derived.
function cases.of(row)
  if shown[row.name] then return {} end
  local field = cases.field(row)
  if not complete[field] then
    complete[field] = listed[field] or {}
    if row.pointwise or not listed[field] then
      for _, case in ipairs(derived(row)) do table.insert(complete[field], case) end
    end
  end
  return complete[field]
end

function cases.needed(row) return not shown[row.name] end

-- Returns the names in the lists that are not ops.
function cases.strays()
  local known, out = {}, {}
  for _, name in ipairs(pg.testing.op_names(true)) do known[cases.field(pg.testing.op_row(name))] = true end
  for name in pairs(listed) do if not known[name] then out[#out + 1] = name end end
  return out
end

return cases
