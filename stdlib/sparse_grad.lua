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
-- field dense says that the gradient of the table itself holds those of earlier lookups, because p.grad was read.
local lookups = setmetatable({}, {__mode = "k"})

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

-- Called before lookups of p are added. A new backward replaces the gradients of earlier ones, unless it adds to them.
-- Lookups that no backward can reach any more are forgotten.
local function begin_lookup(p, parts)
  if p.grad_req ~= "write" then return filter(parts, is_alive) end
  filter(parts, is_open)
  parts.dense = nil
end

-- Adds lookups of a traced function after a run. They have a gradient already if the function ran backward.
local function receive(p, ...)
  if p.grad_req == "null" then return end
  local parts = lookups[p]
  begin_lookup(p, parts)
  for i = 1, select("#", ...), 2 do
    local index, leaf = select(i, ...)
    parts[#parts + 1] = {index = index, leaf = leaf}
  end
end

-- At the end of a trace: passes on the lookups whose gradient no step of the traced function took.
local function hand_over(p, parts)
  if parts.dense then core.mark_fresh(p) end
  local values = {p}
  for _, part in ipairs(parts) do
    if is_fresh(part) or not is_done(part) then values[#values + 1], values[#values + 2] = part.index, part.leaf end
  end
  if #values > 1 then run_hooks.deliver(receive, values) end
end

-- Makes the gradient of earlier lookups dense, for a traced function that reads it.
local function settle(p)
  if not sparse.is_fresh(p) then return end
  autograd.pause(function() sparse.gather(p) end)
  core.mark_fresh(p)
  lookups[p].dense = nil
end

local function changed_mode()
  local inside = core.in_checkpoint
  return function() if core.in_checkpoint ~= inside then return "whether it runs in pg.checkpoint has changed" end end
end

-- In a trace the leaves are symbols, which end with it. looks_up: the function makes a lookup before it reads the gradient.
local function parts_of(p, looks_up)
  if not run_hooks.tracing() then return lookups[p] end
  local notes = run_hooks.notes(lookups[p])
  if not notes.parts then
    notes.parts = {}
    local function prepare()
      if looks_up then begin_lookup(p, lookups[p]) else settle(p) end
    end
    core.untraced(prepare)
    run_hooks.before_run(prepare)
    run_hooks.before_run(changed_mode())
    run_hooks.at_end(function() hand_over(p, notes.parts) end)
  end
  return notes.parts
end

--- sparse.mark(p) makes p a parameter with sparse gradients. From then on reading p.grad makes its gradient dense.
function sparse.mark(p)
  lookups[p] = {}
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
  begin_lookup(p, parts)
  if not is_tracked(p) then return ops.embedding(x, p, options) end
  local rows = autograd.pause(function() return ops.embedding(x, p, options) end)
  local index = x:to("int64"):reshape{-1}
  if options.index_base ~= 1 then index = index + (1 - options.index_base) end
  local leaf = core.attach_grad(core.detach(rows), "write")
  parts[#parts + 1] = {index = index, leaf = leaf}
  return ops.reshape_as(leaf, leaf)
end

--- sparse.is_dense(p) -> whether p.grad was read since the backward that wrote it.
function sparse.is_dense(p) return parts_of(p).dense == true end

--- sparse.is_fresh(p) -> whether backward has written a gradient of rows of p since the last update.
function sparse.is_fresh(p)
  local parts = parts_of(p)
  for _, part in ipairs(parts) do if is_fresh(part) then return true end end
  return parts.dense == true
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
  local parts, grad, any = parts_of(p), core.detach(read_grad(p)), false
  local _, own = grad_state(p)
  if p.grad_req == "write" and not parts.dense and not own then grad = ops.zeros_like(grad) end
  for _, part in ipairs(parts) do
    -- A backward that wrote the gradient of p itself replaced those of lookups before the last update.
    if is_done(part) and (is_fresh(part) or not (own and p.grad_req == "write")) then
      grad, any = ops.index_add(grad, 1, part.index, part.leaf.grad:reshape{-1, p:size(2)}), true
    end
  end
  if not any then return end
  filter(parts, function(part) return not is_done(part) end)
  parts.dense = true
  write_grad(p, grad)
end

--- sparse.used_rows(p) -> index, gradient as sparse.rows; of a dense gradient the rows that are not all 0.
function sparse.used_rows(p)
  local _, own = grad_state(p)
  if not own and not sparse.is_dense(p) then return sparse.rows(p) end
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
  local parts = parts_of(p)
  for _, part in ipairs(parts) do if is_done(part) then core.mark_stale(part.leaf) end end
  parts.dense = nil
end

--- sparse.clear(p) forgets all lookups.
function sparse.clear(p)
  local parts = parts_of(p)
  filter(parts, function() return false end)
  parts.dense = nil
end

-- The gradients of a parameter that got another dtype or device no longer fit it. A dense gradient becomes zeros then.
function sparse:_follow(p)
  if lookups[p] then sparse.clear(p) end
end
param.followers[sparse] = true

return sparse
