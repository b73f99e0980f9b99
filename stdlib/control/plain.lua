-- Runs the flat forms of control.lua as plain Lua, for pg.debug. Bodies can read values.
local core = ...
local numbers = core.require("control.numbers")
local plain = {}

local ipairs = ipairs

local function describe(x) return ("%s %s"):format(x.dtype, x:dim() == 0 and "scalar" or table.concat(x.shape, "x")) end

local function holds(op, name, pred)
  if pred:numel() ~= 1 then core.arg_error(op, name, "a tensor of one element", pred) end
  local value = pred:item()
  return value ~= 0 and value ~= false
end

-- Returns the same values in new boxes, so that a write in place changes no other tensor.
local function own_boxes(list)
  local boxes = {}
  for k, x in ipairs(list) do boxes[k] = x:reshape_as(x) end
  return boxes
end

-- Traces the branch that is not taken, with the results of the taken one, as a graph would: it checks that both agree,
-- and takes ticks for the random numbers of either. Returns the results of the graph, through which what only this branch
-- reads gets zeros as gradients; so do variables that it assigns, which keep their values. Returns nil, and undoes what the
-- branch has assigned, if it raises. Afterwards b.again(taken) has the dtypes of both branches.
local function try_untaken(b, taken)
  local other, branches, whole = 3 - taken, {}, false
  branches[taken] = function() return b.again(taken) end
  branches[other] = function()
    local list = b.branches[other]()
    whole = true
    return list
  end
  local ok, results = xpcall(core.require("control.cached").once, core.keep_traceback, function()
    return core.require("control.traced").branch{
      op = b.op, pred = b.pred, arguments = b.arguments, branches = branches, join = b.join, names = b.names,
    }
  end)
  if whole and not ok then core.reraise(results) end
  return ok and results or nil
end

--- plain.branch: see traced.branch.
function plain.branch(b)
  local taken = holds(b.op, "pred", b.pred) and 1 or 2
  local streams = core.random_streams()
  streams:in_step(taken, b.branches[taken])
  local results = try_untaken(b, taken)
  streams:take_ticks()
  return own_boxes(results or b.again(taken))
end

local function row_count(l)
  local first
  for i, x in ipairs(l.slices) do
    if x:dim() == 0 then core.arg_error(l.op, l.slice_names[i], "a tensor with at least one dim", x) end
    first = first or x:size(1)
    if x:size(1) ~= first then
      core.fail(l.op, "%s has %d rows, %s has %d", l.slice_names[1], first, l.slice_names[i], x:size(1))
    end
  end
  return first
end

local function most_steps(l)
  if l.slices[1] then return row_count(l) end
  local count = l.count or l.limit or math.huge
  if core.is_tensor(count) then
    if count:dim() > 0 then core.arg_error(l.op, "count", "a whole number or a 0-dim tensor", count) end
    count = count:to("float64"):item()
  end
  if count ~= math.huge and (count < 0 or count ~= math.floor(count)) then core.arg_error(l.op, "count", "a whole number >= 0", count) end
  return count
end

local function check_types(l, old, new)
  for k, x in ipairs(new) do
    if x.dtype ~= old[k].dtype or describe(x) ~= describe(old[k]) then
      core.fail(l.op, "the body changed the type of %s (expected %s, got %s)", l.carry_names[k], describe(old[k]), describe(x))
    end
  end
end

-- Returns the carries with the dtypes that a graph would give the weak ones. A body that cannot be traced, since it reads
-- values, leaves them as they are.
local function weak_states(l)
  if not next(l.weak) then return l.carries end
  local wanted
  local ok = xpcall(core.require("control.cached").probe, core.keep_traceback, function()
    wanted = core.require("control.traced").carry_types(l)
  end)
  return ok and wanted and numbers.adopt(l, wanted) or l.carries
end

-- Lets the weak states take the dtypes that the first step gave back.
local function adopt_first(l, types, new)
  local wanted = next(l.weak) and numbers.wanted(l.weak, types, new, {})
  return wanted and numbers.can_adopt(l, wanted) and numbers.adopt(l, wanted) or types
end

-- Stacks the rows and appends rows of zeros up to count.
local function stack(rows, count, steps)
  local stacked = core.ops.stack(rows)
  if count <= steps or count == math.huge then return stacked end
  local shape = stacked.shape
  shape[1] = count - steps
  return core.ops.cat{stacked, core.pg.zeros(shape, {dtype = stacked.dtype, device = stacked.device})}
end

--- plain.home(loop) -> the device of the step number and the number of steps in scripts: that of the first slice or
--- carry.
function plain.home(l)
  local first = l.slices[1] or l.carries[1]
  return first and first.device or core.testing.default_device()
end

--- plain.loop: see traced.loop.
function plain.loop(l)
  local rows, most, n = {}, most_steps(l), 0
  local states = weak_states(l)
  local types, streams = states, core.random_streams()
  local place = {dtype = "int64", device = plain.home(l)}
  -- The condition after a step draws the random numbers of that step, as the body does.
  local function goes_on()
    if not l.cond then return true end
    return holds(l.op, "cond", streams:in_step(n, l.cond, states))
  end
  while n < most and goes_on() do
    n = n + 1
    local items = {}
    for k, x in ipairs(l.slices) do items[k] = x[n] end
    local new, outs = streams:in_step(n, l.step, core.pg.tensor(n, place), own_boxes(items), own_boxes(states))
    if n == 1 then types = adopt_first(l, types, new) end
    check_types(l, types, new)
    new = own_boxes(new)
    for k, out in ipairs(own_boxes(outs)) do
      rows[k] = rows[k] or {}
      rows[k][n] = out
    end
    states = new
  end
  if n == 0 then return core.require("control.cached").once(function() return core.require("control.traced").loop(l) end) end
  streams:take_ticks()
  local stacks = {}
  for k, list in ipairs(rows) do stacks[k] = stack(list, most, n) end
  return states, stacks, core.pg.tensor(n, place)
end

core.introspect.jit_off(plain.branch)
core.introspect.jit_off(plain.loop)

return plain
