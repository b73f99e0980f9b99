-- Updates the rows of a parameter with a sparse gradient (see sparse_grad.lua): in the group of a step the rows that have a
-- gradient take the place of the parameter, and those of its states that of the states.
local core = ...
local sparse = core.require("sparse_grad")
local rows = {}

-- Returns the gradient of the rows to update, and their index. In a trace, where the number of rows that are not all 0 is
-- unknown, the gradient is that of all rows, and a mask of the rows to update follows. Neither: all rows are updated.
local function select_rows(optimizer, p)
  local whole = optimizer.needs_whole or optimizer.lazy_update == false
  if not whole and not (core.tracing() and sparse.is_partly_dense(p)) then
    local index, grad = sparse.used_rows(p)
    return grad, index
  end
  sparse.gather(p)
  local grad = core.detach(sparse.own_grad(p))
  return grad, nil, not whole and grad:ne(0):any(2) or nil
end

-- A state that has no rows is updated as it is.
local function has_rows(state, p) return state:dim() > 0 and state:size(1) == p:size(1) end

--- rows.take(optimizer, group, i, states) replaces parameter i of the group by its rows. states are the names of the states.
function rows.take(optimizer, group, i, states)
  local p = group.weights[i]
  if not sparse.is(p) then return end
  local grad, index, mask = select_rows(optimizer, p)
  group.grads[i] = grad
  if not index and not mask then return end
  local function taken_from(x) return mask and core.detach(x):clone() or x:index_select(1, index) end
  local taken = {i = i, p = p, index = index, mask = mask, states = {}}
  group.weights[i] = taken_from(p)
  for _, name in ipairs(states) do
    local state = group[name][i]
    if state and has_rows(state, p) then taken.states[name], group[name][i] = state, taken_from(state) end
  end
  group.rows = group.rows or {}
  table.insert(group.rows, taken)
end

-- Writes the new rows to x, which is a parameter or a state.
local function put(taken, x, new)
  if taken.index then return x:index_copy_(1, taken.index, new) end
  local shape = {-1}
  for d = 2, x:dim() do shape[d] = 1 end
  x:copy_(core.ops.where(taken.mask:reshape(shape), new, x))
end

--- rows.put_back(group) writes the updated rows to the parameters and their states.
function rows.put_back(group)
  for _, taken in ipairs(group.rows or {}) do
    local i = taken.i
    put(taken, taken.p, group.weights[i])
    for name, state in pairs(taken.states) do put(taken, state, group[name][i]) end
  end
  group.rows = nil
  for _, entry in ipairs(group.entries) do if sparse.is(entry.tensor) then sparse.mark_stale(entry.tensor) end end
end

return rows
