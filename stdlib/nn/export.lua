-- block:export, block:freeze: make a graph of a block's forward for prediction. f:export: makes one of a training step.
local core = ...
local args = core.require("support.args")
local autograd = core.require("autograd")
local argument_types = core.require("nn.argument_types")
local calls = core.require("nn.block_call")
local carried = core.require("control.carried")
local discover = core.require("nn.discover")
local logs = core.require("hybrid.access_log")
local run_hooks = core.require("hybrid.run_hooks")
local graph = core.require("graph")
local places_of = core.require("hybrid.place")
local trees = core.require("tree")
local is_param = core.require("param").is
local native = core.graph
local export = {}

local ipairs, pairs, select, unpack = ipairs, pairs, select, unpack

local function pack(...) return {n = select("#", ...), ...} end

-- Makes a value of these types. A table that occurred twice becomes two, since each tensor in it is an input of its own.
-- `path` counts the tables and maps the open ones to their copies: a table may hold itself, which graph.describe refuses.
local function example(op, spec, path)
  if spec.tensor then return core.ops.zeros(spec.shape, {dtype = spec.dtype, device = spec.device}) end
  if not spec.entries then return spec.value end
  if path[spec] then return path[spec] end
  path.tables = path.tables + 1
  if path.tables > graph.max_tables then core.fail(op, "more than %d tables in an argument", graph.max_tables) end
  local t = {}
  path[spec] = t
  for key, entry in pairs(spec.entries) do t[key] = example(op, entry, path) end
  path[spec] = nil
  return t
end

-- Makes arguments of the types that were noted, or of those of `inputs`. They are new tensors, never the script's own.
local function arguments_of(op, block, inputs)
  local types
  if inputs ~= nil then
    if core.is_tensor(inputs) then inputs = {inputs} end
    if not args.plain(inputs) then core.arg_error(op, "inputs", "a list of arguments", inputs) end
    local n = table.maxn(inputs)
    types = {n = n}
    for i = 1, n do types[i] = argument_types.summary(inputs[i]) end
  else
    types = argument_types.noted[block]
    if not types then core.fail(op, "call the %s once first, so that its arguments are known (or pass inputs = {…})", block._name and "block" or "function") end
  end
  local list = {n = types.n}
  for i = 1, types.n do list[i] = example(op, types[i], {tables = 0}) end
  return list
end

-- Names the tensors among the arguments: by the block's own names for them, else data, or data1, data2, ….
local function name_arguments(block, inputs, count, paths)
  local own = rawget(block, "_arguments") or {}
  for _, input in ipairs(inputs) do
    if input.role == "argument" then
      input.name = #own == count and own[input.position] or count == 1 and "data" or "data" .. input.position
      while paths[input.name] do input.name = "_" .. input.name end
    end
  end
end

local function describe_parameter(entry, position)
  local p, e = entry.tensor, core.extra(entry.tensor)
  return {
    role = "parameter", name = entry.path, position = position, grad_req = e.grad_req or "write", lr_mult = e.lr_mult, wd_mult = e.wd_mult,
    differentiable = e.differentiable ~= false and p.grad_req ~= nil, constant = e.constant == true,
  }
end

local function is_leaf(x) return (x.grad_req or "null") ~= "null" end

-- Describes each input of the program: an argument, a known tensor by its description, a state that the program writes or,
-- in a training step, a tensor with attach_grad, or a constant. Returns the descriptions and the set of the names in use.
local function describe_inputs(captured, argument_at, known, training)
  local inputs, taken, states = {}, {}, 0
  for _, description in pairs(known) do taken[description.name] = true end
  for i, c in ipairs(captured) do
    if argument_at[i] then inputs[i] = {role = "argument", position = argument_at[i]}
    elseif known[c.box] then inputs[i] = known[c.box]
    elseif c.written or training and is_leaf(c.box) then
      states = states + 1
      local name = "state" .. states
      while taken[name] do name = "_" .. name end
      if is_leaf(c.box) then inputs[i] = describe_parameter({tensor = c.box, path = name}, 2e6 + states)
      else inputs[i] = {role = "state", name = name, position = 2e6 + states} end
    else inputs[i] = {role = "constant", box = c.box} end
  end
  return inputs, taken
end

local function find_leaves(value, list)
  if core.is_tensor(value) then list[#list + 1] = value
  elseif args.plain(value) then
    graph.describe("export", value, function(x)
      list[#list + 1] = x
      return {kind = "value"}
    end)
  end
end

-- Traces body(…) in these modes, including the gradients of Functions, and undoes what it assigned. Returns the trace,
-- the packed results of pcall, and the changes. end_of(results) runs in the trace after the body and returns results.
local function trace_once(root, body, arguments, in_modes, end_of)
  local w = logs.new{root = root, n = arguments.n, arguments = arguments}
  local graphs = core.graphs
  local off = graphs.off
  local function undo()
    graphs.off, graphs.exporting = off, nil
  end
  local outcome = pack(xpcall(core.finally, core.keep_traceback, undo, in_modes, function()
    graphs.off, graphs.exporting = off + 1, true
    return core.trace(function(...)
      local results = end_of(pack(logs.run(w, body, ...)))
      return unpack(results, 1, results.n)
    end, arguments.n, unpack(arguments, 1, arguments.n))
  end))
  local changes = w:difference()
  logs.roll_back(w, changes)
  if not outcome[1] then core.reraise(outcome[2]) end
  if not outcome[2] then core.reraise(outcome[3]) end
  return outcome[3], outcome, changes
end

-- Returns the places where the traced function replaced tensors by others of the same types. Warns of numbers, flags
-- and texts that it changed, and of tables that it made longer.
local function find_states(op, changes)
  local places = {}
  for _, change in ipairs(changes) do
    local replaced, p = carried.replaced(change)
    local kind = type(change.before)
    if replaced then
      p.was = change.before
      places[#places + 1] = p
    elseif kind == "number" or kind == "boolean" or kind == "string" then
      core.warn(("%s: the function changes %s from %s to %s, which its graph does not; a tensor would be a state of the graph"):format(
        op, places_of.name(p), places_of.show(change.before), places_of.show(change.after)))
    elseif change.before == nil and type(p.key) == "number" then
      core.warn(("%s: the function adds %s to a table, which its graph does not; return what is to be kept"):format(op, places_of.name(p)))
    end
  end
  return places
end

-- Traces the function so that the tensors that it replaces become states of the graph: each such place gets a tensor of
-- its own, and its end writes there in place what the place holds then.
local function trace_states(op, places, trace_it)
  local before = carried.read(op, places)
  local states, is_state = {}, {}
  for k, x in ipairs(before) do
    states[k] = is_param(x) and x or x:detach():clone()
    if is_leaf(x) and not is_param(x) then states[k]:attach_grad(x.grad_req) end
    is_state[states[k]] = true
  end
  local function alias(x)
    if core.is_tensor(x) and is_state[x] then return x:clone() end
    return x
  end
  carried.write(places, states)
  local function store(results)
    for i = 1, results.n do results[i] = trees.map(alias, results[i]) end
    local now = carried.read(op, places)
    for k, x in ipairs(now) do now[k] = rawequal(x, states[k]) and x or alias(x) end
    for k, x in ipairs(now) do
      local was, is = core.describe(states[k]), core.describe(x)  -- reading the shapes would fix them in the graph
      if was ~= is then core.fail(op, "a state of the function changes from %s to %s (expected the same type)", was, is) end
      if not rawequal(x, states[k]) then states[k]:copy_(x) end
    end
    return results
  end
  return core.finally(function() carried.restore(places) end, trace_it, function(results)
    return autograd.pause(function() return store(results) end)
  end)
end

-- Traces body(…) in these modes and undoes what it assigned. Returns the trace and the packed results of pcall.
local function run(op, root, body, arguments, in_modes)
  local function trace_it(end_of) return trace_once(root, body, arguments, in_modes, end_of) end
  local trace, outcome, changes = trace_it(function(results) return results end)
  local places = find_states(op, changes)
  if not places[1] then return trace, outcome end
  return trace_states(op, places, trace_it)
end

local function in_predict_mode(f) return autograd.pause(f, {train = false}) end

-- A constant that is returned unchanged stays an input, as a state.
local function keep_constants(tree, descriptions)
  local d = tree.kind == "input" and descriptions[tree.index]
  if d and d.role == "constant" then d.role, d.name, d.position = "state", "constant" .. tree.index, 3e6 + tree.index end
  for _, value in ipairs(tree.values or {}) do keep_constants(value, descriptions) end
end

-- Makes a model of a trace. subject: {name =, root =, known = descriptions by tensor, training = whether it may write
-- gradients}. Returns it with its tensors by input.
local function model_of(op, subject, arguments, trace, outcome)
  local leaves, place_of = {}, {}
  for i = 1, arguments.n do find_leaves(arguments[i], leaves) end
  local argument_at = {}
  for position, x in ipairs(leaves) do
    place_of[x] = trace:input_of(x)
    argument_at[place_of[x]] = position
  end
  local argument_trees, result_trees, outputs = {}, {}, {}
  for i = 1, arguments.n do
    argument_trees[i] = graph.describe(op, arguments[i], function(x) return {kind = "input", index = place_of[x]} end)
  end
  for i = 4, outcome.n do
    result_trees[i - 3] = graph.describe(op, outcome[i], function(y)
      local from = trace:input_of(y)
      if from then return {kind = "input", index = from} end
      outputs[y] = outputs[y] or trace:output(y)
      return {kind = "output", index = outputs[y]}
    end)
  end
  local captured = trace:captured()
  local descriptions, paths = describe_inputs(captured, argument_at, subject.known, subject.training)
  name_arguments(subject.root, descriptions, #leaves, paths)
  for _, tree in ipairs(result_trees) do keep_constants(tree, descriptions) end
  local model, places = native.model_of(trace:finish{name = subject.name}, {
    name = subject.name, inputs = descriptions, arguments = argument_trees, results = result_trees, training = subject.training,
  })
  local boxes = {}
  for k, place in ipairs(places) do boxes[k] = not argument_at[place] and captured[place].box end
  return model, boxes
end

--- export.trace(op, block, inputs) -> model, boxes: a new trace of forward in predict mode, and its tensors by input of
--- the model.
function export.trace(op, block, inputs)
  local arguments = arguments_of(op, block, inputs)
  if inputs ~= nil and not argument_types.noted[block] then
    autograd.pause(function() block(unpack(arguments, 1, arguments.n)) end, {train = false})
  end
  local trace, outcome = run(op, block, function(...) return calls.traced(block, ...) end, arguments, in_predict_mode)
  local known = {}
  for i, entry in ipairs(discover.parameters(block)) do known[entry.tensor] = describe_parameter(entry, 1e6 + i) end
  return model_of(op, {name = block._name, root = block, known = known}, arguments, trace, outcome)
end

-- Writes the files of the model and boxes that make(inputs) returns. Returns their names.
local function save(path, opts, make)
  args.string("export", "path", path)
  local o = args.options("export", opts, {epoch = args.none, inputs = args.none})
  local json, tensors = graph.paths(path, o.epoch)
  local model, boxes = make(o.inputs)
  native.save(model, json, tensors, boxes)
  return json, tensors
end

--- export.export(block, path, opts) is block:export(path, opts).
function export.export(block, path, opts)
  return save(path, opts, function(inputs) return export.trace("export", block, inputs) end)
end

local function describe_named(entry, position)
  if is_param(entry.tensor) then return describe_parameter(entry, position) end
  return {role = "state", name = entry.path, position = position}
end

--- export.step(jitted, path, opts) is f:export(path, opts) of a jitted function. Parameters and states of the
--- trainers that step in it keep their names.
function export.step(jitted, path, opts)
  return save(path, opts, function(inputs)
    local arguments, named = arguments_of("export", jitted, inputs), {}
    local trace, outcome = core.finally(run_hooks.finish, function()
      run_hooks.collect(named)
      return run("export", jitted.f, jitted.f, arguments, function(f) return f() end)
    end)
    local known = {}
    for i, entry in ipairs(named) do known[entry.tensor] = describe_named(entry, 1e6 + i) end
    local subject = {name = core.shown(jitted.cache).name, root = {}, known = known, training = true}
    return model_of("export", subject, arguments, trace, outcome)
  end)
end

--- export.freeze(block, opts) is block:freeze(opts).
function export.freeze(block, opts)
  local o = args.options("freeze", opts, {inputs = args.none})
  local model, boxes = export.trace("freeze", block, o.inputs)
  return graph.frozen(native.freeze(model, boxes))
end

return export
