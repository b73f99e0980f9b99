-- The outer places that a body assigns tensors to: carries of a loop, or results of a branch. A place may hold a tree of
-- tensors, which is carried by its tensors; its structure and its other leaves must stay.
local core = ...
local args = core.require("support.args")
local leaves_of = core.require("control.leaves")
local place = core.require("hybrid.place")
local tree = core.require("tree")
local carried = {}

local ipairs, next, rawequal, type = ipairs, next, rawequal, type
local is_tensor, serial = core.is_tensor, core.introspect.serial

local kMostTables = 1000

-- Whether tree.flatten takes the value. `open` holds the tables around it, and the number of all tables.
local function is_tree(value, open)
  if not args.plain(value) then return true end
  open.count = (open.count or 0) + 1
  if open[value] or open.count > kMostTables then return false end
  open[value] = true
  for key, item in next, value do
    if type(key) ~= "number" and type(key) ~= "string" or not is_tree(item, open) then return false end
  end
  open[value] = nil
  return true
end

-- Returns {leaves =, spec =, at = the positions of its tensors} of a plain table; nil if it holds no tensor or is no
-- tree.
local function parts_of(value)
  if not args.plain(value) or not is_tree(value, {}) then return nil end
  local leaves, spec = tree.flatten(value)
  local at = {}
  for i = 1, #leaves do if is_tensor(leaves[i]) then at[#at + 1] = i end end
  return at[1] and {leaves = leaves, spec = spec, at = at}
end

--- carried.holds_tensors(value) -> whether it is a tensor or a tree that holds one.
function carried.holds_tensors(value) return is_tensor(value) or parts_of(value) ~= nil end

-- Whether two values that are no tensors are the same: NaN equals itself, and 0 is not -0.
local function is_same(x, y)
  if x ~= x then return y ~= y end
  return rawequal(x, y) and (x ~= 0 or 1 / x == 1 / y)
end

-- Whether two trees differ at most in which tensors they hold.
local function is_alike(a, b)
  if not a or not b or not leaves_of.same(a.spec, b.spec) then return false end
  for i = 1, #a.leaves do
    local x, y = a.leaves[i], b.leaves[i]
    if is_tensor(x) ~= is_tensor(y) or not is_tensor(x) and not is_same(x, y) then return false end
  end
  return true
end

-- Whether a tensor that the trace of the log made can be reached from the value. `seen` holds the tables on the way.
local function reaches_made(w, value, seen)
  if is_tensor(value) then return serial(value) >= w.mark end
  if type(value) ~= "table" or seen[value] or seen.count > kMostTables then return false end
  seen[value], seen.count = true, seen.count + 1
  for key, item in next, value do
    if reaches_made(w, item, seen) or reaches_made(w, key, seen) then return true end
  end
  return false
end

-- Raises for values that a body put in a place and that cannot be carried.
local function refuse(op, p, what, before, hint)
  core.fail(op, "the body assigns %s to %s, which held %s before: %s, or %s", what, place.name(p), before, hint,
    op == "cond" and "return it from both branches"
      or ("pass it as a state: pg.%s(function(…, states) … return out, states end, …, states)"):format(op))
end

--- carried.replaced(change) -> whether a change of a log put tensors in the place of as many others, and the place.
function carried.replaced(change)
  local p = place.of_change(change)
  if is_tensor(change.before) then return is_tensor(change.after), p end
  p.parts = parts_of(change.before)
  return is_alike(p.parts, parts_of(change.after)), p
end

-- Returns the place of a change if the body put other tensors there. Raises if it put tensors in a place that held
-- something else, or, in a branch, something else in place of tensors.
local function assigned_place(op, w, change)
  local replaced, p = carried.replaced(change)
  if replaced then return p end
  local after = change.after
  if is_tensor(after) then
    refuse(op, p, "a tensor", place.show(change.before),
      "give it a tensor first" .. (op == "cond" and "" or " (then it is carried from step to step)"))
  end
  if reaches_made(w, after, {count = 0}) then
    refuse(op, p, "a table of tensors", p.parts and "another one" or place.show(change.before),
      "only the tensors of a plain table can change, not its keys or other values, so give it such a table first")
  end
  if op == "cond" and (is_tensor(change.before) or p.parts) then
    refuse(op, p, place.show(after), place.show(change.before), "give it a tensor")
  end
end

--- carried.assigned(op, w) -> the places where the body replaced tensors by others, and all changes of the log w. Raises
--- for tensors in a place that held something else.
function carried.assigned(op, w)
  local found, changes = {}, w:difference()
  for _, change in ipairs(changes) do found[#found + 1] = assigned_place(op, w, change) end
  return found, changes
end

local function key_of(p) return p.cell or p.node end

--- carried.add(places, more) adds those of `more` that `places` lacks. Returns whether there were any.
function carried.add(places, more)
  local added = false
  for _, p in ipairs(more) do
    local known = false
    for _, q in ipairs(places) do known = known or (key_of(p) == key_of(q) and p.key == q.key) end
    if not known then
      places[#places + 1] = p
      added = true
    end
  end
  return added
end

--- carried.read(op, places) -> the tensors that the places hold now. Raises if the structure of one has changed.
function carried.read(op, places)
  local values = {}
  for _, p in ipairs(places) do
    local value = place.read(p)
    if not p.parts then values[#values + 1] = value
    else
      local parts = parts_of(value)
      if not is_alike(p.parts, parts) then
        core.fail(op, "the body changes the structure of %s, or a value in it that is no tensor; only its tensors can change", place.name(p))
      end
      for _, i in ipairs(parts.at) do values[#values + 1] = parts.leaves[i] end
    end
  end
  return values
end

--- carried.before(op, w, places) -> the tensors before a loop or branch, which it keeps if it makes no step or takes the
--- other branch.
function carried.before(op, w, places)
  for _, p in ipairs(places) do
    p.was = place.read(p)
    w:keep(p, p.was)
  end
  return carried.read(op, places)
end

--- carried.restore(places) stores what the places held at carried.before.
function carried.restore(places) for _, p in ipairs(places) do place.write(p, p.was) end end

--- carried.write(places, values) stores the tensors in the places. A tree is stored as a new table.
function carried.write(places, values)
  local n = 0
  for _, p in ipairs(places) do
    if p.parts then
      local leaves = {}
      for i = 1, #p.parts.leaves do leaves[i] = p.parts.leaves[i] end
      for k, i in ipairs(p.parts.at) do leaves[i] = values[n + k] end
      p.now, n = tree.unflatten(p.parts.spec, leaves), n + #p.parts.at
    else p.now, n = values[n + 1], n + 1 end
    place.write(p, p.now)
  end
end

--- carried.check_kept(op, w, places) raises if the condition assigned a tensor since carried.write. It runs one time more
--- than the body, so the value could not be carried.
function carried.check_kept(op, w, places)
  local function complain(p) core.fail(op, "the condition assigns %s; do that in the body", place.name(p)) end
  for _, p in ipairs(places) do if not rawequal(place.read(p), p.now) then complain(p) end end
  for _, change in ipairs(w:difference()) do
    local p = place.of_change(change)
    if carried.holds_tensors(change.after) and carried.add({unpack(places)}, {p}) then complain(p) end
  end
end

--- carried.names(places) -> the names of the tensors, for messages.
function carried.names(places)
  local names = {}
  for _, p in ipairs(places) do
    local all = p.parts and leaves_of.names(place.name(p), p.parts.spec, {})
    if all then for _, i in ipairs(p.parts.at) do names[#names + 1] = all[i] end
    else names[#names + 1] = place.name(p) end
  end
  return names
end

return carried
