-- pg.checkpoint: memory of a forward for the time of a second one.
local core = ...
local modes = core.require("support.modes")
local tree = core.require("tree")
local checkpoint = {}

local function pack(...) return {...}, select("#", ...) end

-- Returns a list of the results of f(…), a run of the function of a checkpoint, and their number. The log ends with it.
-- Lookups of embeddings have dense gradients in it: those of rows would end with the second run.
local function run_in_checkpoint(log, f, ...)
  local before = core.in_checkpoint
  core.in_checkpoint = true
  local results, n = pack(xpcall(f, core.keep_traceback, ...))
  core.in_checkpoint = before
  log:stop()
  if not results[1] then core.reraise(results[2]) end
  return {unpack(results, 2, n)}, n - 1
end

--- pg.checkpoint(f, ...) -> the results of f, run without keeping its intermediate results. backward computes them
--- again, with the same flags, random numbers and values of the tensors that f changes, and without changing any of them
--- a second time. Other tensors that f gets from outside must not change before backward. Eagerly f is called a second time:
--- assignments to variables and fields happen again, as in n = n + 1. If that leads to other ops, numbers or tensors of few
--- elements, backward raises.
--- Example: return pg.checkpoint(function(x) return x:exp():sum() end, pg.zeros(3))
function checkpoint.checkpoint(f, ...)
  modes.check_function("checkpoint", f)
  if core.tracing() or not core.is_recording() then return f(...) end
  local function alias(x) return core.is_tensor(x) and core.alias(x) or x end
  local kept, n = pack(...)  -- other names of the tensors, since f may change its arguments in place and a scope may end
  for i = 1, n do kept[i] = tree.map(function(x) return core.is_tensor(x) and core.keep(core.alias(x)) or x end, kept[i]) end
  local streams = core.random_streams()
  local training, mark = core.is_training(), core.tape_position()
  local log = core.log_writes()
  local param = core.require("param")
  local drawn = param.drawn
  local results, count = run_in_checkpoint(log, f, ...)
  local outputs = tree.flatten(results)
  local recorded, positions = {}, {}  -- an output that f got from outside keeps the history that it has
  for i, y in ipairs(outputs) do
    if core.is_tensor(y) and core.recorded_since(y, mark) then
      recorded[#recorded + 1], positions[#positions + 1] = y, i
    end
  end
  -- A second run would not draw the values that parameters got in the first one.
  if #recorded == 0 or param.drawn ~= drawn then return unpack(results, 1, count) end
  local ops_mark
  ops_mark = core.record_checkpoint(recorded, mark, function(outside, ...)
    local cotangents = {n = select("#", ...), ...}
    local create = core.is_recording()
    local present = core.random_streams()
    streams:restore()
    local undo = core.log_writes()
    log:restore()
    local first = core.tape_position()  -- the gradients stop at `outside`, not at what it was computed from
    local function recompute_all()
      local again = {}
      for i = 1, n do again[i] = tree.map(alias, kept[i]) end
      local list = tree.flatten({f(unpack(again, 1, n))})
      for i, y in ipairs(list) do list[i] = alias(y) end  -- one that f got from outside does not keep this value
      return list
    end
    local ok, again = xpcall(modes.run, core.keep_traceback, "checkpoint", run_in_checkpoint, true, training, undo, recompute_all)
    undo:restore()
    present:restore()
    if not ok then core.reraise(again) end
    local heads, dys, computed = {}, {n = 0}, {}
    for k, i in ipairs(positions) do
      local y = again[1][i]
      computed[k] = core.is_tensor(y) and y
      if cotangents[k] then
        heads[#heads + 1] = y
        dys.n = dys.n + 1
        dys[dys.n] = cotangents[k]
      end
    end
    core.check_recomputed(computed, first, outside, ops_mark)
    local found = core.gradients(heads, outside, dys, {create_graph = create, retain_graph = create, first = first})
    return unpack(found, 1, #outside)
  end)
  return unpack(results, 1, count)
end

return checkpoint
