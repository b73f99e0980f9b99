-- Numbers as leaves of states, variables, outputs and branch results. They are weak: a number given as the first value
-- of a state takes the dtype that the body gives back for it, a number that a body returns takes the dtype of its state,
-- and a branch's number takes the dtype of the other branch. Where nothing decides, whole numbers become int64 and
-- others float32.
local core = ...
local numbers = {}

local floor, next = math.floor, next
local is_tensor = core.is_tensor

local floats = core.require("param").floats
local ranges = {bool = {0, 1}, uint8 = {0, 2 ^ 8 - 1}, int8 = {-2 ^ 7, 2 ^ 7 - 1}, int32 = {-2 ^ 31, 2 ^ 31 - 1}, int64 = {-2 ^ 53, 2 ^ 53}}

local function is_whole(number) return number == floor(number) and math.abs(number) <= 2 ^ 53 end

--- numbers.dtype(number) -> the dtype of a number where nothing decides it.
function numbers.dtype(number) return is_whole(number) and "int64" or "float32" end

--- numbers.fits(number, dtype) -> whether a tensor of that dtype can hold the number; floats hold all.
function numbers.fits(number, dtype)
  if floats[dtype] then return true end
  local range = ranges[dtype]
  return is_whole(number) and number >= range[1] and number <= range[2]
end

--- numbers.tensor(number[, dtype]) -> a 0-dim tensor.
function numbers.tensor(number, dtype) return core.pg.tensor(number, {dtype = dtype or numbers.dtype(number)}) end

--- numbers.seed(number) -> a 0-dim tensor that represents a weak number outside of a graph: int64 or float64, which
--- keep its value.
function numbers.seed(number) return core.pg.tensor(number, {dtype = is_whole(number) and "int64" or "float64"}) end

--- numbers.first(weak) -> the first value of a state: weak is a number or a seed.
function numbers.first(weak)
  if not is_tensor(weak) then return numbers.tensor(weak) end
  return weak.dtype == "float64" and weak:to("float32") or weak
end

-- Returns the weak number in another dtype. Whether a seed fits in an integer is checked when the graph runs.
local function convert(op, name, weak, dtype, device)
  if not is_tensor(weak) then
    local x = numbers.tensor(weak, dtype)
    return x.device == device and x or x:to(device)
  end
  local x = weak:to{dtype = dtype, device = device}
  if not floats[dtype] then
    core.pg.assert(x:to{dtype = weak.dtype, device = weak.device}:eq(weak),
                   ("%s: bad argument '%s' (expected a number that %s can hold)"):format(op, name, dtype))
  end
  return x
end

--- numbers.wanted(weak, before, after) -> {k = {dtype, device}} of the weak states that the body gave back with another
--- dtype, or nil if there are none. `tried` holds the dtypes that each state had already, so that this ends.
function numbers.wanted(weak, before, after, tried)
  local wanted
  for k in next, weak do
    local old, new = before[k], after[k]
    if new and new.dtype ~= old.dtype and not (tried[k] and tried[k][new.dtype]) then
      tried[k] = tried[k] or {[old.dtype] = true}
      tried[k][new.dtype] = true
      wanted = wanted or {}
      wanted[k] = {new.dtype, new.device}
    end
  end
  return wanted
end

--- numbers.can_adopt(loop, wanted) -> whether the dtypes can hold the numbers.
function numbers.can_adopt(loop, wanted)
  for k, to in next, wanted do
    local weak = loop.weak[k]
    if is_tensor(weak) then
      if weak.dtype == "float64" and not floats[to[1]] then return false end
    elseif not numbers.fits(weak, to[1]) then return false end
  end
  return true
end

--- numbers.adopt(loop, wanted) -> the carries of the loop, with those in `wanted` converted.
function numbers.adopt(loop, wanted)
  local out = {}
  for k, x in next, loop.carries do out[k] = x end
  for k, to in next, wanted do out[k] = convert(loop.op, loop.carry_names[k], loop.weak[k], to[1], to[2]) end
  return out
end

-- Sets the dtype that a number of a branch takes. Returns whether it changed.
local function decide(number, to, wanted, k)
  if not number or (wanted[k] or numbers.dtype(number)) == to or not numbers.fits(number, to) then return false end
  wanted[k] = to
  return true
end

--- numbers.read(results) notes the dtypes of the tensors in the results of the first branch. They cannot be read once
--- its trace is over, and each read is a guard.
function numbers.read(results)
  results.dtypes = {}
  for k, x in next, results.leaves do results.dtypes[k] = x.dtype end
end

--- numbers.join(a, b, wanted) sets the dtypes of the numbers in the results of two branches, {leaves =, numbers =}, in
--- wanted.a and wanted.b: that of the other branch, or float32 if both are numbers and one is no whole number. Returns
--- whether the first branch must run again, and whether the second changed.
function numbers.join(a, b, wanted)
  local changed_a, changed_b = false, false
  for k, p in next, a.numbers do
    local q = b.numbers[k]
    local to = q and (numbers.dtype(p) == numbers.dtype(q) and numbers.dtype(p) or "float32") or b.leaves[k].dtype
    changed_a = decide(p, to, wanted.a, k) or changed_a
    changed_b = decide(q, to, wanted.b, k) or changed_b
  end
  for k, q in next, b.numbers do
    if not a.numbers[k] then
      if not a.dtypes then
        wanted.reads = true
        return true, false
      end
      changed_b = decide(q, a.dtypes[k], wanted.b, k) or changed_b
    end
  end
  return changed_a, changed_b
end

return numbers
