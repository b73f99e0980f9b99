-- Runs the flat forms of control.lua inside a trace: the functions are traced as bodies of a node. If a body assigns an
-- outer local or field that held a tensor or a tree of tensors, the place becomes carries of the loop, or results of the
-- branch (control/carried.lua).
local core = ...
local inspect = core.introspect
inspect.interpreted()
local logs = core.require("hybrid.access_log")
local places = core.require("control.carried")
local numbers = core.require("control.numbers")
local traced = {}

local ipairs, next, type = ipairs, next, type
local graphs = core.graphs

local function joined(a, b)
  local out = {}
  for _, v in ipairs(a) do out[#out + 1] = v end
  for _, v in ipairs(b) do out[#out + 1] = v end
  return out
end

local function cut(list, first, last)
  local out = {}
  for i = first, last do out[#out + 1] = list[i] end
  return out
end

-- Wraps f for C, which turns errors into text: an error of another type is stored in `keep`, from which raise takes it.
local function errors_kept(keep, f)
  local function pass(ok, ...)
    if ok then return ... end
    keep.error = select(1, ...)
    core.reraise(keep.error)
  end
  return f and function(...) return pass(xpcall(f, core.keep_traceback, ...)) end
end

local function raise(keep, text)
  local kept = keep.error
  core.reraise(kept ~= nil and type(kept) ~= "string" and kept or text)
end

-- Calls f(…), which traces again what was traced before, so that Lua functions such as print show nothing. first is
-- true for the first time.
local function trace_again(first, f, ...)
  if first then return f(...) end
  local outer = graphs.retracing
  local function undo() graphs.retracing = outer end
  graphs.retracing = true
  return core.finally(undo, f, ...)
end

-- Traces the loop once. Returns nil if the body assigned places that are not carried yet, which are added to `carried`,
-- or gave back weak states with another dtype, which replace l.carries.
local function try_loop(l, w, carried, home)
  local own, before, changes, again, wanted = #l.carries, places.before(l.op, w, carried), nil, false, nil
  local count = own + #before
  local function step(i, items, states)
    places.write(carried, cut(states, own + 1, count))
    if home ~= "cpu" then i = i:to(home) end
    local new, outs = logs.run(w, l.step, i, items, cut(states, 1, own))
    local assigned
    assigned, changes = places.assigned(l.op, w)
    again = places.add(carried, assigned)
    wanted = next(l.weak) and numbers.wanted(l.weak, l.carries, new, l.tried)
    if again or wanted and numbers.can_adopt(l, wanted) then
      again = true
      return nil
    end
    return joined(new, places.read(l.op, carried)), outs
  end
  local function cond(states)
    places.write(carried, cut(states, own + 1, count))
    local flag = logs.run(w, l.cond, cut(states, 1, own))
    places.check_kept(l.op, w, carried)
    return flag
  end
  local form = {}
  for key, value in pairs(l) do form[key] = value end
  local keep = {}
  form.step, form.cond = errors_kept(keep, step), errors_kept(keep, l.cond and cond)
  form.carries, form.carry_names = joined(l.carries, before), joined(l.carry_names, places.names(carried))
  local ok, finals, stacks, steps = xpcall(core.trace_loop, core.keep_traceback, form, form.slices, form.carries)  -- the lists show C which symbols it gets
  if not ok then
    logs.roll_back(w, w:difference())
    raise(keep, finals)
  end
  if again then
    logs.roll_back(w, changes)
    if wanted then l.carries = numbers.adopt(l, wanted) end
    return nil
  end
  places.write(carried, cut(finals, own + 1, count))
  return cut(finals, 1, own), stacks, home == "cpu" and steps or steps:to(home)
end

--- traced.loop{op =, slices =, slice_names =, carries =, carry_names =, weak =, step =, cond =, count =, limit =,
--- checkpoint =} -> finals, stacks, steps. step(index, items, carries) returns two lists: the new carries and the
--- outputs. cond(carries) returns a tensor. weak holds the numbers among the carries (see control/numbers.lua). count and
--- limit: see graph/ir/ir.h.
function traced.loop(form)
  local w, carried, home, l = logs.new(), {}, core.require("control.plain").home(form), {tried = {}}
  for key, value in next, form do l[key] = value end
  local first = true
  while true do
    local finals, stacks, steps = trace_again(first, try_loop, l, w, carried, home)
    if finals then return finals, stacks, steps end
    first = false
  end
end

--- traced.carry_types(loop) -> {k = {dtype, device}} of the weak carries whose dtype the body changes.
function traced.carry_types(l)
  local finals, types = traced.loop(l), {}
  for k in next, l.weak do types[k] = {finals[k].dtype, finals[k].device} end
  return types
end

local function try_branch(b, w, carried)
  local again, changes = false, nil
  places.before(b.op, w, carried)
  local counts, branches, keep = {}, {}, {}
  for i = 1, 2 do
    branches[i] = function()
      places.restore(carried)
      local results = logs.run(w, b.branches[i])
      if i == 2 then again, results = b.join() end
      counts[i] = #results
      local assigned
      assigned, changes = places.assigned(b.op, w)
      local values = places.read(b.op, carried)
      if places.add(carried, assigned) or again then
        again = true
        return nil
      end
      logs.roll_back(w, changes)
      return joined(results, values)
    end
    branches[i] = errors_kept(keep, branches[i])
  end
  local function names() return joined(b.names(), places.names(carried)) end
  local ok, results = xpcall(core.trace_branch, core.keep_traceback, {op = b.op, pred = b.pred, branches = branches, names = names}, b.pred)
  if not ok then
    logs.roll_back(w, w:difference())
    raise(keep, results)
  end
  if again then
    logs.roll_back(w, changes)
    return nil
  end
  places.write(carried, cut(results, counts[1] + 1, #results))
  return cut(results, 1, counts[1])
end

--- traced.branch{op =, pred =, arguments =, branches =, join =, names =} -> the results of the taken branch. branches:
--- two functions that return lists of tensors. arguments: those that they pass on. join() -> whether the first branch must be traced again, because a number in its results
--- takes another dtype, and the results of the second. names() returns the names of the results.
function traced.branch(b)
  local w, carried, first = logs.new(), {}, true
  for _, value in next, b.arguments do if type(value) == "table" then w:reach(value) end end
  while true do
    local results = trace_again(first, try_branch, b, w, carried)
    if results then return results end
    first = false
  end
end

inspect.jit_off(try_loop)
inspect.jit_off(try_branch)

return traced
