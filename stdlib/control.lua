-- The combinators cond, while_loop, foreach and loop, which graphs can hold. This file flattens and unflattens trees of
-- tensors and checks what the functions return. An engine runs the flat form: control/plain.lua as Lua,
-- control/traced.lua as part of a trace.
local core = ...
local args = core.require("support.args")
local tree = core.require("tree")
local numbers = core.require("control.numbers")
local leaves_of = core.require("control.leaves")
local control = {}

local ipairs, type, select = ipairs, type, select
local is_tensor, is_plain = core.is_tensor, args.plain
local leaf_names, same_spec = leaves_of.names, leaves_of.same
local graphs = core.graphs

-- Leaves -----------------------------------------------------------------------------------------------------------------------

-- Returns the tensor of a leaf. A number gets the dtype, if that can hold it.
local function to_tensor(op, name, leaf, dtype)
  if is_tensor(leaf) then return leaf end
  if type(leaf) ~= "number" then core.arg_error(op, name, "tensors or numbers as leaves", leaf) end
  return numbers.tensor(leaf, dtype and numbers.fits(leaf, dtype) and dtype or nil)
end

local function replace_numbers(value, path)
  if type(value) == "number" then return numbers.seed(value) end
  if not is_plain(value) or path[value] then return value end
  path[value] = true
  local copy
  for key, leaf in next, value do
    local new = type(leaf) == "userdata" and leaf or replace_numbers(leaf, path)
    if not rawequal(new, leaf) then
      if not copy then
        copy = {}
        for k, v in next, value do copy[k] = v end
      end
      copy[key] = new
    end
  end
  path[value] = nil
  return copy or value
end

-- Returns the tree with its numbers as tensors, and a text that tells which leaves were numbers, such as ",1,3,". As
-- numbers they would become constants of the loop's own graph.
local function without_numbers(value)
  if core.tracing() or type(value) == "userdata" then return value, nil end
  local copy = replace_numbers(value, {})
  if rawequal(copy, value) then return value, nil end
  local places = {}
  for k, leaf in ipairs((tree.flatten(value))) do if type(leaf) == "number" then places[#places + 1] = k end end
  return copy, "," .. table.concat(places, ",") .. ","
end

-- Returns {leaves = tensors, spec =, names =, numbers = (the numbers by position)}; nil is an empty tree. A number takes
-- the dtype at its position in the list `like`, if that can hold it.
local function flatten(op, name, value, like)
  if value == nil then return {leaves = {}, empty = true, names = {}, numbers = {}} end
  local leaves, spec = tree.flatten(value)
  local names, found = leaf_names(name, spec, {}), {}
  for i = 1, #names do
    local leaf = leaves[i]
    if type(leaf) == "number" then found[i] = leaf end
    leaves[i] = to_tensor(op, names[i], leaf, like and like[i])
  end
  return {leaves = leaves, spec = spec, names = names, numbers = found}
end

-- Returns the parts of the first states. parts.weak holds the numbers, or the tensors that represent them, by position.
local function first_states(op, name, value, places)
  local parts = flatten(op, name, value)
  parts.weak = parts.numbers
  for k in (places or ""):gmatch("%d+") do
    k = tonumber(k)
    parts.weak[k] = parts.leaves[k]
  end
  for k, weak in next, parts.weak do parts.leaves[k] = numbers.first(weak) end
  return parts
end

-- Returns the dtypes of the carries of a step, for the numbers that the body returns.
local function dtypes_of(carries)
  return setmetatable({}, {__index = function(_, k) return carries[k] and carries[k].dtype end})
end

local function unflatten(parts, leaves)
  if parts.empty then return nil end
  return (tree.unflatten(parts.spec, leaves))
end

local function describe(parts)
  if parts.empty then return "nil" end
  if not parts.spec then return "a tensor" end
  return "a table of " .. (#parts.names == 0 and "nothing" or table.concat(parts.names, ", "))
end

-- What a body returns, for messages.
local returns = {foreach = "return output, states", while_loop = "return output, {variable}", loop = "return state"}

-- Returns the leaves of the new state. Raises if its structure differs from that of the old one.
local function next_state(op, name, state, value, carries)
  local new = flatten(op, name, value, dtypes_of(carries))
  if (new.empty or false) ~= (state.empty or false) or not same_spec(new.spec, state.spec) then
    local hint = new.empty and "; end the body with " .. returns[op] or ""
    core.fail(op, "the body changed the structure of %s (expected %s, got %s%s)", name, describe(state), describe(new), hint)
  end
  return new.leaves
end

-- Returns the leaves of a step's outputs. Raises if their structure differs from that of the first step.
local function step_outputs(op, seen, value)
  local out = flatten(op, "outputs", value)
  if seen.parts and not ((out.empty or false) == (seen.parts.empty or false) and same_spec(out.spec, seen.parts.spec)) then
    core.fail(op, "the body changed the structure of its outputs (first %s, now %s)", describe(seen.parts), describe(out))
  end
  seen.parts = seen.parts or out
  return out.leaves
end

-- Returns the results of a body. Raises if there are more than `most`.
local function check_results(op, most, what, ...)
  if select("#", ...) > most and select(most + 1, ...) ~= nil then
    core.fail(op, "the body returned %d values (expected %s)", select("#", ...), what)
  end
  return ...
end

local function check_tail(op, options, spec)
  options = args.options(op, options, spec)
  if options.checkpoint then args.count(op, "checkpoint", options.checkpoint, 1) end
  return options
end

-- Returns f(engine, …): inside a trace or with symbols as part of that graph, inside pg.debug as plain Lua, else as a
-- graph of its own.
local function dispatch(f, ...)
  if core.tracing() then return f(core.require("control.traced"), ...) end
  if core.symbols.any(...) then return core.require("hybrid").debug(f, core.require("control.traced"), ...) end
  if graphs.off > 0 then return f(core.require("control.plain"), ...) end
  return core.require("control.cached").call(f, ...)
end

-- cond -------------------------------------------------------------------------------------------------------------------------

local function run_cond(engine, pred, then_f, else_f, ...)
  local arguments, n, results, wanted = {...}, select("#", ...), {}, {a = {}, b = {}}
  local function with_dtypes(parts, dtypes)
    for k, dtype in next, dtypes do parts.leaves[k] = numbers.tensor(parts.numbers[k], dtype) end
    return parts.leaves
  end
  local function branch(f, name, dtypes)
    return function()
      results[name] = flatten("cond", name, {f(unpack(arguments, 1, n))})
      if dtypes == wanted.a and wanted.reads then numbers.read(results[name]) end
      return with_dtypes(results[name], dtypes)
    end
  end
  local leaves = engine.branch{
    op = "cond", pred = pred, arguments = arguments, branches = {branch(then_f, "then_f", wanted.a), branch(else_f, "else_f", wanted.b)},
    again = function(i)
      if i == 2 then return with_dtypes(results.else_f, wanted.b) end
      if wanted.reads then numbers.read(results.then_f) end
      return with_dtypes(results.then_f, wanted.a)
    end,
    join = function()
      if not same_spec(results.then_f.spec, results.else_f.spec) then return false, results.else_f.leaves end
      local changed, own = numbers.join(results.then_f, results.else_f, wanted)
      return changed, own and with_dtypes(results.else_f, wanted.b) or results.else_f.leaves
    end,
    names = function()
      local a, b = results.then_f, results.else_f
      if not same_spec(a.spec, b.spec) then
        core.fail("cond", "the branches return different structures (then_f %s, else_f %s)", describe(a), describe(b))
      end
      return a.names
    end,
  }
  return unpack(unflatten(results.then_f or results.else_f, leaves))
end

--- pg.cond(pred, then_f, else_f, …) -> what then_f(…) returns if pred (a boolean, or a tensor of one element) is true,
--- else what else_f(…) returns. Only the taken branch runs. If pred is a tensor, both branches are traced once and must
--- return the same structure, shapes and dtypes. Gradients flow through the taken branch; inputs of the other branch
--- only get zeros.
--- Example: return pg.cond(pg.tensor(1):gt(0), function() return pg.ones(2) end, function() return pg.zeros(2) end)
function control.cond(pred, then_f, else_f, ...)
  args.callable("cond", "then_f", then_f)
  args.callable("cond", "else_f", else_f)
  if type(pred) == "boolean" then
    if pred then return then_f(...) end
    return else_f(...)
  end
  if not is_tensor(pred) then core.arg_error("cond", "pred", "a boolean or a tensor of one element", pred) end
  return dispatch(run_cond, pred, then_f, else_f, ...)
end

-- Loops ------------------------------------------------------------------------------------------------------------------------

local function run_foreach(engine, body, data, states, places, checkpoint)
  local items, state, seen = flatten("foreach", "data", data), first_states("foreach", "states", states, places), {}
  if #items.leaves == 0 then core.arg_error("foreach", "data", "at least one tensor", data) end
  local finals, stacks = engine.loop{
    op = "foreach", slices = items.leaves, slice_names = items.names,
    carries = state.leaves, carry_names = state.names, weak = state.weak, checkpoint = checkpoint,
    step = function(_, slices, carries)
      local out, new = check_results("foreach", 2, "outputs and states", body(unflatten(items, slices), unflatten(state, carries)))
      return next_state("foreach", "states", state, new, carries), step_outputs("foreach", seen, out)
    end,
  }
  return unflatten(seen.parts, stacks), unflatten(state, finals)
end

--- pg.foreach(body, data, states[, {checkpoint =}]) -> outs, states. data is a tree of tensors; body(item, states) runs
--- for each index along their dim 1 and returns the outputs of the step and the new states. The outputs of all steps
--- are stacked along dim 1. States keep structure, shapes and dtypes. With checkpoint = k the gradient stores the
--- states of every k-th step and recomputes the others.
--- Example: return pg.foreach(function(x, sum) return sum + x, sum + x end, pg.range(1, 4), pg.tensor(0))
function control.foreach(body, data, states, options)
  args.callable("foreach", "body", body)
  options = check_tail("foreach", options, {checkpoint = args.none})
  local first, places = without_numbers(states)
  return dispatch(run_foreach, body, data, first, places, options.checkpoint)
end

local function new_vars(vars, value, carries)
  if #vars.spec == 1 and not (is_plain(value) and same_spec(select(2, tree.flatten(value)), vars.spec)) then value = {value} end
  return next_state("while_loop", "vars", vars, value, carries)
end

local function predicate(value)
  if type(value) == "boolean" then return core.pg.tensor(value, {dtype = "bool"}) end
  if not is_tensor(value) then core.arg_error("while_loop", "cond", "a function that returns a tensor of one element", value) end
  return value
end

local function run_while(engine, cond, body, list, places, max_iterations, checkpoint)
  local vars, seen = first_states("while_loop", "vars", list, places), {}
  local n = #list
  local function call(f, carries) return f(unpack(unflatten(vars, carries), 1, n)) end
  local finals, stacks, steps = engine.loop{
    op = "while_loop", slices = {}, carries = vars.leaves, carry_names = vars.names, weak = vars.weak,
    limit = max_iterations, checkpoint = checkpoint,
    cond = function(carries) return predicate((call(cond, carries))) end,
    step = function(_, _, carries)
      local out, new = check_results("while_loop", 2, "outputs and the list of variables", call(body, carries))
      if out ~= nil and not max_iterations then
        core.fail("while_loop", "outputs need the option max_iterations, the number of their rows; without it the body must return nil and the variables")
      end
      return new_vars(vars, new, carries), step_outputs("while_loop", seen, out)
    end,
  }
  return unflatten(seen.parts, stacks), unflatten(vars, finals), steps
end

--- pg.while_loop(cond, body, vars[, {max_iterations =, checkpoint =}]) -> outs, vars, n. While cond(vars…) is true,
--- body(vars…) runs and returns the outputs of the step (or nil) and the list of new variables. outs has max_iterations
--- rows, with zeros after the last step. n is the number of steps, a 0-dim int64 tensor. Without max_iterations the
--- number of steps has no limit, and a step has no outputs. checkpoint: see pg.foreach.
--- Example: return pg.while_loop(function(i) return i:lt(3) end, function(i) return i, {i + 1} end, {pg.tensor(0)}, {max_iterations = 4})
function control.while_loop(cond, body, vars, options)
  args.callable("while_loop", "cond", cond)
  args.callable("while_loop", "body", body)
  if not is_plain(vars) or #vars == 0 then core.arg_error("while_loop", "vars", "a list of at least one variable", vars) end
  options = check_tail("while_loop", options, {max_iterations = args.none, checkpoint = args.none})
  if options.max_iterations then args.count("while_loop", "max_iterations", options.max_iterations) end
  local first, places = without_numbers(vars)
  return dispatch(run_while, cond, body, first, places, options.max_iterations, options.checkpoint)
end

local function run_loop(engine, body, count, state, places, checkpoint)
  local parts = first_states("loop", "state", state, places)
  local finals = engine.loop{
    op = "loop", slices = {}, carries = parts.leaves, carry_names = parts.names, weak = parts.weak, count = count, checkpoint = checkpoint,
    step = function(i, _, carries)
      return next_state("loop", "state", parts, (check_results("loop", 1, "the state", body(i, unflatten(parts, carries)))), carries), {}
    end,
  }
  return unflatten(parts, finals)
end

--- pg.loop(count, body, state[, {checkpoint =}]) -> the state after count steps of state = body(i, state), where i is a
--- 0-dim int64 tensor from 1 to count. count is a whole number >= 0 or a 0-dim tensor. checkpoint: see pg.foreach.
--- Example: return pg.loop(10, function(i, x) return x * 2 end, pg.tensor(1))
function control.loop(count, body, state, options)
  if not is_tensor(count) then args.count("loop", "count", count)
  elseif count:numel() ~= 1 then core.arg_error("loop", "count", "a whole number or a tensor of one element", count) end
  args.callable("loop", "body", body)
  options = check_tail("loop", options, {checkpoint = args.none})
  if type(count) == "number" and not core.tracing() and graphs.off == 0 then count = core.require("control.cached").count(body, count) end
  local first, places = without_numbers(state)
  return dispatch(run_loop, body, count, first, places, options.checkpoint)
end

return control
