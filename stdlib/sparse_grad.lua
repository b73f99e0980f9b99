-- Gradients of embeddings that hold only the rows of the table that were looked up. A lookup makes a leaf of the rows that
-- it reads. backward writes the gradient of this leaf, and the Trainer updates the rows. Nothing has the size of the table.
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

--- sparse.mark(p) makes p a parameter with sparse gradients. From then on reading p.grad makes its gradient dense.
function sparse.mark(p)
  lookups[p] = {}
  function core.builtin_getters.grad(x)
    if lookups[x] and read_grad(x) then sparse.gather(x) end
    return read_grad(x)
  end
end

--- sparse.is(p) -> whether p is a parameter with sparse gradients.
function sparse.is(p) return lookups[p] ~= nil end

-- In a trace the leaves are symbols, which end with it.
local function parts_of(p)
  if not run_hooks.tracing() then return lookups[p] end
  local notes = run_hooks.notes(lookups[p])
  if not notes.parts then
    notes.parts = {}
    run_hooks.at_end(function()
      if not sparse.is_fresh(p) then return end
      sparse.gather(p)  -- no step took the gradient
      core.mark_fresh(p)
    end)
  end
  return notes.parts
end

local function is_fresh(part) return (select(2, grad_state(part.leaf))) end

-- Whether backward has reached the lookup, before or after the last update.
local function is_done(part)
  part.done = part.done or is_fresh(part)
  return part.done
end

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

-- Whether the rows that are read now can have a gradient of their own: the program that runs also runs backward.
local function is_tracked(p)
  local request = p.grad_req
  if request == "null" or not core.is_recording() or core.in_checkpoint then return false end
  return not core.tracing() or request == "write" and run_hooks.recording_inside()
end

--- sparse.lookup(x, p, options) -> the rows of p at the indices x, as ops.embedding.
function sparse.lookup(x, p, options)
  if not is_tracked(p) then return ops.embedding(x, p, options) end
  local parts = parts_of(p)
  if p.grad_req == "write" then  -- a new backward replaces them
    filter(parts, function(part) return not is_done(part) end)
    parts.dense = nil
  end
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

-- Returns the sum of the rows with equal indices, for each position of index: all sizes are those of index.
local function sum_equal(index, rows)
  local n = index:size(1)
  local sorted, order = index:sort()
  local first = ops.cat({ops.ones({math.min(n, 1)}, {dtype = "int64", device = index.device}),
                         sorted[{{2, n}}]:ne(sorted[{{1, n - 1}}]):to("int64")}, 1)
  local segment = ops.index_copy(ops.zeros_like(index), 1, order, first:cumsum(1))
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
