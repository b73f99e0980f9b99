-- Gradients of embeddings that hold only the rows of the table that were looked up. A lookup makes a leaf of the rows that
-- it reads. backward writes the gradient of this leaf, and the Trainer updates the rows. Nothing has the size of the table.
-- A traced function returns its leaves, so the same holds for backward outside of it.
local core = ...
local autograd = core.require("autograd")
local run_hooks = core.require("hybrid.run_hooks")
local param = core.require("param")
local ops, grad_state = core.ops, core.grad_state
local sparse = {}

-- From each table to its lookups, before and after their backward: a list of {index = (flat, 1-based), leaf = the rows}. Its
-- field holds says that a gradient which adds up may be in the gradient of the table itself in part, as after p.grad was read.
local lookups = setmetatable({}, {__mode = "k"})

-- The parameters, numbered: weak values, since a weak key may still be there while its finalizer runs.
local marked, count = setmetatable({}, {__mode = "v"}), 0

local read_grad, write_grad = core.builtin_getters.grad, core.builtin_setters.grad

--- sparse.own_grad(p) -> the part of the gradient of p that does not come from lookups: p.grad of other parameters.
sparse.own_grad = read_grad

-- Removes the lookups for which keep(part) is false.
local function filter(parts, keep)
  local n = 0
  for i, part in ipairs(parts) do
    parts[i] = nil
    if keep(part) then
      n = n + 1
      parts[n] = part
    end
  end
end

local function is_fresh(part) return (select(2, grad_state(part.leaf))) end

-- Whether backward has reached the lookup, before or after the last update.
local function is_done(part)
  part.done = part.done or is_fresh(part)
  return part.done
end

local function is_open(part) return not is_done(part) and (select(3, grad_state(part.leaf))) end
local function is_alive(part) return is_done(part) or (select(3, grad_state(part.leaf))) end

-- Forgets the gradient of a lookup -> whether a later backward may write it again, since the history was kept.
local function restart(part)
  local request, _, is_held = grad_state(part.leaf)
  if not is_held or core.tracing() then return false end
  part.done = false
  core.mark_stale(part.leaf)
  if request == "add" then part.leaf.grad = nil end
  return true
end

-- Adds lookups of a traced function after a run. They have a gradient already if the function ran backward. Lookups that no
-- backward can reach any more are forgotten.
local function receive(p, ...)
  if p.grad_req == "null" then return end
  local parts, new, reached = lookups[p], {}, false
  for i = 1, select("#", ...), 2 do
    local index, leaf = select(i, ...)
    new[#new + 1] = {index = index, leaf = leaf}
    reached = reached or is_done(new[#new])
  end
  filter(parts, reached and p.grad_req == "write" and is_open or is_alive)
  for _, part in ipairs(new) do parts[#parts + 1] = part end
end

-- At the end of a trace: passes on the lookups whose gradient no step of the traced function took.
local function hand_over(p, parts)
  if p.grad_req == "add" then
    local holds = parts.holds
    run_hooks.after_run(function() lookups[p].holds = holds end)
  end
  local values = {p}
  for _, part in ipairs(parts) do
    if is_fresh(part) or not is_done(part) then values[#values + 1], values[#values + 2] = part.index, part.leaf end
  end
  if #values > 1 then run_hooks.deliver(receive, values) end
end

-- Makes the gradient of earlier lookups dense, for a traced function that reads it.
local function settle(p) autograd.pause(function() sparse.gather(p) end) end

-- A backward in a traced function replaces the gradients of earlier lookups.
local function replace(p) filter(lookups[p], is_open) end

local function changed_mode()
  local inside = core.in_checkpoint
  return function() if core.in_checkpoint ~= inside then return "whether it runs in pg.checkpoint has changed" end end
end

-- Calls f(p) before each run of the function that is being traced.
local function prepare(p, notes, f)
  local function run() f(p) end
  notes.prepared = true
  core.untraced(run)
  run_hooks.before_run(run)
end

-- Returns the lookups of p. Those in a trace are symbols, which end with it. Gradients from before a run become dense when the
-- traced function uses them; a lookup (looks_up) that gets a gradient of its own does not.
local function parts_of(p, looks_up)
  if not run_hooks.tracing() then return lookups[p] end
  local notes = run_hooks.notes(lookups[p])
  if not notes.parts then
    notes.parts = {holds = p.grad_req == "add"}
    run_hooks.before_run(changed_mode())
    run_hooks.at_end(function() hand_over(p, notes.parts) end)
  end
  local apart = looks_up and (p.grad_req == "write" or not run_hooks.recording_inside())
  if not apart and not notes.prepared then prepare(p, notes, settle) end
  return notes.parts
end

-- Marks the gradients of p as stale, so that those that a backward writes can be told from others. Returns a function to call
-- after the backward.
local function watch(p, parts)
  local _, own = grad_state(p)
  local fresh = {}
  for _, part in ipairs(parts) do
    if is_done(part) and is_fresh(part) then fresh[#fresh + 1] = part.leaf end
  end
  if own then fresh[#fresh + 1] = p end
  for _, leaf in ipairs(fresh) do core.mark_stale(leaf) end
  return function()
    local _, reached = grad_state(p)
    if reached then parts.holds = true end
    for _, part in ipairs(parts) do reached = reached or is_fresh(part) end
    if not reached or p.grad_req ~= "write" then
      for _, leaf in ipairs(fresh) do core.mark_fresh(leaf) end
      return
    end
    filter(parts, function(part) return is_fresh(part) or not part.done end)
    local notes = run_hooks.tracing() and run_hooks.notes(lookups[p])
    if notes and not notes.prepared then prepare(p, notes, replace) end
  end
end

-- Runs backward. Unless it adds to the gradients of earlier ones it replaces them, also those of lookups that it does not
-- reach, and a leaf does not tell which backward has reached it.
local function watched_backward(backward, ...)
  local ends = {}
  for _, p in pairs(marked) do
    local parts = lookups[p]
    local inside = run_hooks.tracing() and run_hooks.notes(parts).parts
    if inside or #parts > 0 and not run_hooks.tracing() then ends[#ends + 1] = watch(p, inside or parts) end
  end
  local ok, message = xpcall(backward, core.keep_traceback, ...)
  for _, finish in ipairs(ends) do finish() end
  if not ok then core.reraise(message) end
end

--- sparse.mark(p) makes p a parameter with sparse gradients. From then on reading p.grad makes its gradient dense.
function sparse.mark(p)
  lookups[p] = {}
  count = count + 1
  marked[count] = p
  if core.watch_backward then return end
  core.watch_backward = watched_backward
  function core.builtin_getters.grad(x)
    local parts = lookups[x] and parts_of(x)
    if parts and read_grad(x) then sparse.gather(x) end
    return read_grad(x)
  end
end

--- sparse.is(p) -> whether p is a parameter with sparse gradients.
function sparse.is(p) return lookups[p] ~= nil end

-- Whether the rows that are read now can have a gradient of their own. The body of a branch or loop cannot return a leaf,
-- and a lookup in a trace cannot add to the gradients of an earlier run.
local function is_tracked(p)
  local tracing, in_body = core.tracing()
  if core.in_checkpoint or in_body then return false end
  return not tracing or run_hooks.tracing() and (p.grad_req == "write" or not run_hooks.recording_inside())
end

--- sparse.lookup(x, p, options) -> the rows of p at the indices x, as ops.embedding.
function sparse.lookup(x, p, options)
  if not lookups[p] then sparse.mark(p) end
  if (p.grad_req or "null") == "null" or not core.is_recording() then return ops.embedding(x, p, options) end
  local parts = parts_of(p, true)
  filter(parts, is_alive)
  if not is_tracked(p) then return ops.embedding(x, p, options) end
  local rows = autograd.pause(function() return ops.embedding(x, p, options) end)
  local index = x:to("int64"):reshape{-1}
  if options.index_base ~= 1 then index = index + (1 - options.index_base) end
  local leaf = core.attach_grad(core.detach(rows), p.grad_req)
  parts[#parts + 1] = {index = index, leaf = leaf}
  return ops.reshape_as(leaf, leaf)
end

--- sparse.is_partly_dense(p) -> whether a part of the gradient of p has the size of p.
function sparse.is_partly_dense(p)
  local parts = parts_of(p)  -- first, since in a trace it may write the gradient of p itself
  return select(2, grad_state(p)) or p.grad_req == "add" and parts.holds
end

--- sparse.is_fresh(p) -> whether backward has written a gradient of p since the last update.
function sparse.is_fresh(p)
  for _, part in ipairs(parts_of(p)) do if is_fresh(part) then return true end end
  return (select(2, grad_state(p)))
end

-- Returns the sum of the rows with equal indices, for each position of index: all sizes are those of index, and none is
-- read.
local function sum_equal(index, rows)
  local sorted, order = index:sort()
  -- Where another index begins. The first position counts unless all are equal.
  local begins = sorted:ne(sorted:roll(1)):to("int64"):cumsum(1)
  local segment = ops.index_copy(ops.zeros_like(index), 1, order, begins:clamp{min = 1})
  return ops.index_add(ops.zeros_like(rows), 1, segment, rows):index_select(1, segment)
end

--- sparse.rows(p) -> index, gradient: the rows of p that have a gradient, and one row of the gradient for each. In a trace
--- an index may occur more than once, with the same row. Returns nil if no row has a gradient.
function sparse.rows(p)
  local indices, grads = {}, {}
  for _, part in ipairs(parts_of(p)) do
    if is_done(part) then
      indices[#indices + 1] = part.index
      grads[#grads + 1] = core.detach(part.leaf.grad):reshape{-1, p:size(2)}
    end
  end
  if #indices == 0 then return nil end
  local index, grad = ops.cat(indices, 1), ops.cat(grads, 1)
  if core.tracing() then return index, sum_equal(index, grad) end
  local unique, inverse = ops.unique(index, {return_inverse = true})
  return unique, ops.index_add(ops.zeros({unique:size(1), p:size(2)}, {dtype = grad.dtype, device = grad.device}), 1, inverse, grad)
end

--- sparse.gather(p) moves the gradients of lookups to the gradient of p itself, which has the size of p.
function sparse.gather(p)
  local parts, done, fresh = parts_of(p), {}, false
  local _, own = grad_state(p)
  for _, part in ipairs(parts) do
    -- A backward that wrote the gradient of p itself replaced those of lookups before the last update.
    if is_done(part) and (is_fresh(part) or not (own and p.grad_req == "write")) then
      done[#done + 1], fresh = part, fresh or is_fresh(part)
    end
  end
  if #done == 0 then return end
  local grad = core.detach(read_grad(p))
  if p.grad_req == "write" and not own then grad = ops.zeros_like(grad) end
  for _, part in ipairs(done) do grad = ops.index_add(grad, 1, part.index, part.leaf.grad:reshape{-1, p:size(2)}) end
  filter(parts, function(part) return not is_done(part) or restart(part) end)
  parts.holds = true
  write_grad(p, grad)
  if fresh then core.mark_fresh(p) end
end

--- sparse.used_rows(p) -> index, gradient as sparse.rows; of a dense gradient the rows that are not all 0.
function sparse.used_rows(p)
  if not sparse.is_partly_dense(p) then return sparse.rows(p) end
  sparse.gather(p)
  local grad = core.detach(read_grad(p))
  local index = grad:ne(0):any(2):nonzero():reshape{-1}
  return index, grad:index_select(1, index)
end

--- sparse.scale(p, f) replaces the gradient g of each lookup by f(g).
function sparse.scale(p, f)
  for _, part in ipairs(parts_of(p)) do if is_done(part) then part.leaf.grad = f(part.leaf.grad) end end
end

--- sparse.mark_stale(p) notes an update of p.
function sparse.mark_stale(p)
  for _, part in ipairs(parts_of(p)) do if is_done(part) then core.mark_stale(part.leaf) end end
end

--- sparse.clear(p) sets the gradients of lookups to zeros, for a caller that does so with the gradient of p itself. A later
--- backward may reach the lookups that it has not reached yet.
function sparse.clear(p)
  local parts = parts_of(p)
  if sparse.is_fresh(p) then core.mark_fresh(p) end
  filter(parts, function(part) return not is_done(part) or restart(part) end)
  parts.holds = false
end

--- sparse.forget(p) forgets all lookups.
function sparse.forget(p)
  local parts = parts_of(p)
  filter(parts, function() return false end)
  parts.holds = false
end

-- The gradients of a parameter that got another dtype or device no longer fit it. A dense gradient becomes zeros then.
function sparse:_follow(p)
  if lookups[p] then sparse.forget(p) end
end
param.followers[sparse] = true

return sparse
