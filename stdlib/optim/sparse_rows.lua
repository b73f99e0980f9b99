-- Updates the rows of a parameter with a sparse gradient (see sparse_grad.lua): in the group of a step the rows that have a
-- gradient take the place of the parameter, and those of its states that of the states.
local core = ...
local sparse = core.require("sparse_grad")
local rows = {}

-- Returns the index and the gradients of the rows to update, or the whole gradient if all of them are.
local function select_rows(optimizer, p)
  local whole = optimizer.needs_whole or optimizer.lazy_update == false
  if not whole and not (core.tracing() and sparse.is_partly_dense(p)) then return sparse.used_rows(p) end
  sparse.gather(p)
  return nil, core.detach(sparse.own_grad(p))
end

-- A state that has no rows is updated as it is.
local function has_rows(state, p) return state:dim() > 0 and state:size(1) == p:size(1) end

--- rows.take(optimizer, group, i, states) replaces parameter i of the group by its rows. states are the names of the states.
function rows.take(optimizer, group, i, states)
  local p = group.weights[i]
  if not sparse.is(p) then return end
  local index, grad = select_rows(optimizer, p)
  group.grads[i] = grad
  if not index then return end
  local taken = {i = i, p = p, index = index, states = {}}
  group.weights[i] = p:index_select(1, index)
  for _, name in ipairs(states) do
    local state = group[name][i]
    if state and has_rows(state, p) then
      taken.states[name], group[name][i] = state, state:index_select(1, index)
    end
  end
  group.rows = group.rows or {}
  table.insert(group.rows, taken)
end

--- rows.put_back(group) writes the updated rows to the parameters and their states.
function rows.put_back(group)
  for _, taken in ipairs(group.rows or {}) do
    local i, index = taken.i, taken.index
    taken.p:index_copy_(1, index, group.weights[i])
    for name, state in pairs(taken.states) do state:index_copy_(1, index, group[name][i]) end
  end
  group.rows = nil
  for _, entry in ipairs(group.entries) do if sparse.is(entry.tensor) then sparse.mark_stale(entry.tensor) end end
end

return rows
