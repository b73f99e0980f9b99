-- pg.autograd: recording scopes, backward, functional transforms, and functions with their own gradient.
local core = ...
local args = core.require("support.args")
local tree = core.require("tree")
local modes = core.require("support.modes")
local autograd = {}

local check_function, in_modes = modes.check_function, modes.run

--- pg.record(f, {train = true}) -> the results of f, run with recording on, and training on unless train = false.
--- Example: local x = pg.tensor({1, 2}):attach_grad()
--- pg.record(function() return (x * x):sum() end):backward()
--- return x.grad
function autograd.record(f, options)
  core.check_options("record", options, {train = true})
  local train = true
  if options and options.train ~= nil then train = options.train end
  return in_modes("record", f, true, train)
end

--- pg.pause(f[, {train =}]) -> the results of f, run with recording off: no gradients flow through it. The same as
--- pg.no_grad(f). Unlike MXNet's pause it leaves training as it is, so dropout inside pg.record still drops:
--- pg.predict_mode(f) or {train = false} turns training off.
--- Example: return pg.pause(function() return pg.is_recording() end)
function autograd.pause(f, options)
  core.check_options("pause", options, {train = true})
  return in_modes("pause", f, false, options and options.train)
end

--- pg.no_grad(f[, {train =}]) -> the results of f, run with recording off: no gradients flow through it. The same as
--- pg.pause(f). Training stays as it is; pg.predict_mode(f) or {train = false} turns it off.
--- Example: return pg.no_grad(function() return pg.is_recording() end)
function autograd.no_grad(f, options)
  core.check_options("no_grad", options, {train = true})
  return in_modes("no_grad", f, false, options and options.train)
end

--- pg.train_mode(f) -> the results of f, run with training on. Recording does not change.
function autograd.train_mode(f) return in_modes("train_mode", f, nil, true) end

--- pg.predict_mode(f) -> the results of f, run with training off. Recording does not change.
function autograd.predict_mode(f) return in_modes("predict_mode", f, nil, false) end

--- pg.is_recording() -> whether ops are recorded.
autograd.is_recording = core.is_recording
--- pg.is_training() -> whether ops such as dropout and batch_norm run in training mode.
autograd.is_training = core.is_training

-- Runs core.backward, by the function that gradients of rows have set (see sparse_grad.lua) if there is one.
local function run_backward(...)
  if core.watch_backward then return core.watch_backward(core.backward, ...) end
  core.backward(...)
end

--- x:backward{grad =, retain_graph =, create_graph =} computes the gradients of x and writes them to the `.grad` of its
--- leaves. With create_graph the new `.grad` has a history that refers to its leaf, and the leaf refers to it: set
--- x.grad = nil when done, or use pg.autograd.grad, which does not change `.grad`. A backward that fails writes no
--- `.grad`. The part of the history that it has processed is released unless retain_graph is true. Raises if x was not
--- computed under pg.record from a tensor with attach_grad. grad has the shape of x; it may be absent for one element.
--- Example: local x = pg.tensor{1, 2}:attach_grad()
--- local loss = pg.record(function() return (x * x):sum() end)
--- loss:backward()
--- return x.grad
function core.tensor_methods.backward(x, options)
  if not core.is_tensor(x) then args.tensor_self("backward", x) end
  if options == nil or core.is_tensor(options) then return run_backward(x, options) end
  core.check_options("backward", options, {grad = true, retain_graph = true, create_graph = true, train_mode = true})
  run_backward(x, options.grad, {retain_graph = options.retain_graph, create_graph = options.create_graph})
end

--- pg.autograd.backward(heads, grads, {retain_graph =, create_graph =}) computes the gradients of several heads and
--- writes them to the `.grad` of their leaves. grads has one gradient per head.
--- Example: local x = pg.tensor{1, 2}:attach_grad()
--- local y, z = pg.record(function() return x * x, x + 1 end)
--- pg.autograd.backward({y, z}, {pg.ones(2), pg.ones(2)})
--- return x.grad
function autograd.backward(heads, grads, options)
  if heads == nil then core.arg_error("backward", "heads", "a tensor or a list of tensors", heads) end
  run_backward(heads, grads, options)
end

-- Puts zeros in place of missing gradients.
local function filled(found, wanted)
  for i = 1, #wanted do
    if not found[i] then found[i] = core.ops.zeros_like(core.detach(wanted[i])) end
  end
  return found
end

local function as_list(x) return core.is_tensor(x) and {x} or x end

--- pg.autograd.grad(heads, variables, {head_grads =, retain_graph =, create_graph =}) -> one gradient per variable. It
--- does not change `.grad`.
function autograd.grad(heads, variables, options)
  core.check_options("grad", options, {head_grads = true, retain_graph = true, create_graph = true, train_mode = true})
  local list = as_list(variables)
  if type(list) ~= "table" then core.arg_error("grad", "variables", "a tensor or a table of tensors", variables) end
  local o, sparse = options or {}, core.require("sparse_grad")
  for i, x in pairs(list) do
    if core.is_tensor(x) and sparse.is(x) then
      core.fail("grad", "bad argument 'variables' (expected tensors with dense gradients, got a weight with sparse ones at [%s]; "
                .. "use backward, or make the Embedding without sparse_grad)", i)
    end
  end
  local found = core.gradients(heads, list, o.head_grads, {retain_graph = o.retain_graph, create_graph = o.create_graph})
  filled(found, list)
  return core.is_tensor(variables) and found[1] or found
end

-- Whether gradients computed here may be differentiated in turn: in an export that depends on the run.
local function keeps_history() return core.is_recording() or (core.graphs.exporting and core.recording_is_open()) end

-- Makes a new input from x: a recorded view of x if x has a history, else a leaf. Gradients of other uses of x do not
-- reach it.
local function fresh_input(x)
  -- In a loop body x may have a history in some steps only, in an export in some runs only.
  local input = core.fresh_input(x, core.graphs.exporting)
  if input then return input end
  if core.is_recording() and core.is_recorded(x) then return core.ops.reshape_as(x, x) end
  return core.attach_grad(core.detach(x), "write")
end

-- Returns the argument with new inputs in place of its floating tensors, and the list of these.
local function map_inputs(argument)
  local leaves = {}
  local mapped = tree.map(function(x)
    if not core.is_tensor(x) or not x.dtype:find("float") then return x end
    local input = fresh_input(x)
    leaves[#leaves + 1] = input
    return input
  end, argument)
  return mapped, leaves
end

local function refuse_input(op, name, argument) core.arg_error(op, name, "a floating tensor, or a tree that holds one", argument) end

local function shape_text(x) return x:dim() == 0 and "scalar" or table.concat(x.shape, "x") end

-- Raises unless each of the tensors has the shape of its counterpart. A trace leaves that to the ops.
local function check_shapes(op, name, tensors, like)
  if core.tracing() then return end
  for i, x in ipairs(like) do
    local expected, given = core.is_tensor(x) and shape_text(x), tensors[i]
    if expected and not core.is_tensor(given) then core.arg_error(op, name, "tensors as leaves", given) end
    if expected and shape_text(given) ~= expected then
      core.fail(op, "bad argument '%s' (expected a tensor of shape %s, got %s)", name, expected, shape_text(given))
    end
  end
end

-- Unflattens a list of gradients to the structure of the argument.
local function like(argument, list)
  local i = 0
  return (tree.map(function(x)
    if not core.is_tensor(x) or not x.dtype:find("float") then return nil end
    i = i + 1
    return list[i]
  end, argument))
end

local function numbers_of(argnum)
  if argnum == nil then return {1} end
  return type(argnum) == "table" and argnum or {argnum}
end

local function record_outer(f) return in_modes("vjp", f, true, core.is_training()) end

local function value_and_gradients(op, f, argnum, ...)
  local arguments, n = {...}, select("#", ...)
  local numbers, inputs, maps = numbers_of(argnum), {}, {}
  local outer = keeps_history()
  local y = record_outer(function()
    for _, k in ipairs(numbers) do
      if type(k) ~= "number" or k < 1 or k > n or k % 1 ~= 0 then
        core.arg_error(op, "argnum", "argument numbers from 1 to " .. n, k)
      end
      local from = #inputs
      local mapped, leaves = map_inputs(arguments[k])
      if #leaves == 0 then refuse_input(op, "argument " .. k, arguments[k]) end
      for _, leaf in ipairs(leaves) do inputs[#inputs + 1] = leaf end
      maps[#maps + 1] = {argument = arguments[k], from = from, count = #leaves}
      arguments[k] = mapped
    end
    return f(unpack(arguments, 1, n))
  end)
  if not core.is_tensor(y) then core.arg_error(op, "f", "a function that returns a tensor", y) end
  if y:numel() ~= 1 then core.arg_error(op, "f", "a function that returns one element", y) end
  local found = core.is_recorded(y) and core.gradients({y}, inputs, nil, {create_graph = outer, retain_graph = outer}) or {}
  filled(found, inputs)
  local results = {}
  for i, m in ipairs(maps) do
    local list = {}
    for k = 1, m.count do list[k] = found[m.from + k] end
    results[i] = like(m.argument, list)
  end
  return (outer and y or core.detach(y)), results
end

--- pg.grad(f[, argnum = 1]) -> a function that returns the gradient of the scalar function f with respect to argument
--- argnum. A list of argument numbers gives one result for each. Arguments may be trees.
--- Example: return pg.grad(function(x) return (x * x):sum() end)(pg.tensor{1, 2})
function autograd.functional_grad(f, argnum)
  check_function("grad", f)
  return function(...)
    local _, results = value_and_gradients("grad", f, argnum, ...)
    return unpack(results, 1, #results)
  end
end

--- pg.value_and_grad(f[, argnum = 1]) -> a function that returns the value of f, then the gradients. See pg.grad.
--- Example: return pg.value_and_grad(function(x) return (x * x):sum() end)(pg.tensor{1, 2})
function autograd.value_and_grad(f, argnum)
  check_function("value_and_grad", f)
  return function(...)
    local y, results = value_and_gradients("value_and_grad", f, argnum, ...)
    return y, unpack(results, 1, #results)
  end
end

local function gradients_of(heads, cotangents, inputs, create)
  local used_heads, used_cotangents = {}, {n = 0}
  for i, head in ipairs(heads) do
    if core.is_tensor(head) and core.is_recorded(head) then
      used_heads[#used_heads + 1] = head
      used_cotangents.n = used_cotangents.n + 1
      used_cotangents[used_cotangents.n] = cotangents[i] or false
    end
  end
  local found = {}
  if #used_heads > 0 then
    found = core.gradients(used_heads, inputs, used_cotangents, {create_graph = create, retain_graph = true})
  end
  return filled(found, inputs)
end

--- y, back = pg.vjp(f, ...): y is the result of f(...), and back(dy) returns one gradient per argument, nil for one that
--- holds no floating tensor. Raises if dy does not have the structure and shapes of y.
--- Example: local y, back = pg.vjp(function(x) return x * x end, pg.tensor{1, 2})
--- return y, back(pg.ones(2))
function autograd.vjp(f, ...)
  check_function("vjp", f)
  local arguments, n = {...}, select("#", ...)
  local originals, inputs, ranges = {}, {}, {}
  local outer = keeps_history()
  local y = record_outer(function()
    for k = 1, n do
      originals[k] = arguments[k]
      local from = #inputs
      local mapped, leaves = map_inputs(arguments[k])
      for _, leaf in ipairs(leaves) do inputs[#inputs + 1] = leaf end
      ranges[k] = {from, #leaves}
      arguments[k] = mapped
    end
    if #inputs == 0 then refuse_input("vjp", "argument 1", arguments[1]) end
    return f(unpack(arguments, 1, n))
  end)
  local heads, form = tree.flatten(y)
  local function back(dy)
    local cotangents, given = tree.flatten(dy)
    if not core.require("control.leaves").same(form, given) then core.arg_error("vjp", "dy", "the structure of the result", dy) end
    check_shapes("vjp", "dy", cotangents, heads)
    local found = gradients_of(heads, cotangents, inputs, keeps_history())
    local results = {}
    for k = 1, n do
      local list = {}
      for i = 1, ranges[k][2] do list[i] = found[ranges[k][1] + i] end
      if list[1] then results[k] = like(originals[k], list) end
    end
    return unpack(results, 1, n)
  end
  local value = outer and y or tree.map(function(t) return core.is_tensor(t) and core.detach(t) or t end, y)
  return value, back
end

--- y, dy = pg.jvp(f, {primals}, {tangents}): y is the result of f, dy its directional derivative along the tangents. It
--- differentiates the vjp, which is linear in its cotangent, a second time. Raises if the lists differ in length or a
--- tangent in its shape.
--- Example: return pg.jvp(function(x) return x * x end, {pg.tensor{1, 2}}, {pg.tensor{1, 0}})
function autograd.jvp(f, primals, tangents)
  check_function("jvp", f)
  if type(primals) ~= "table" then core.arg_error("jvp", "primals", "a table of arguments", primals) end
  if type(tangents) ~= "table" or #tangents ~= #primals then core.arg_error("jvp", "tangents", #primals .. " tangents, one per primal", tangents) end
  local outer = keeps_history()
  local y, directional
  in_modes("jvp", function()
    local inputs, arguments = {}, {}
    for k = 1, #primals do
      local mapped, leaves = map_inputs(primals[k])
      if #leaves == 0 then refuse_input("jvp", ("primals[%d]"):format(k), primals[k]) end
      for _, leaf in ipairs(leaves) do inputs[#inputs + 1] = leaf end
      arguments[k] = mapped
    end
    local flat = tree.flatten(tangents)
    if #flat ~= #inputs then core.arg_error("jvp", "tangents", #inputs .. " tensors like the primals", tangents) end
    check_shapes("jvp", "tangents", flat, inputs)
    y = f(unpack(arguments, 1, #arguments))
    local heads, probes = tree.flatten(y), {}
    for i, head in ipairs(heads) do
      if not core.is_tensor(head) then core.arg_error("jvp", "f", "a function that returns tensors", head) end
      probes[i] = core.attach_grad(core.ops.zeros_like(core.detach(head)), "write")
    end
    local found = gradients_of(heads, probes, inputs, true)
    local through, weights = {}, {}
    for i, g in ipairs(found) do
      if core.is_recorded(g) then
        through[#through + 1] = g
        weights[#weights + 1] = flat[i]
      end
    end
    local result = {}
    if #through > 0 then result = core.gradients(through, probes, weights, {create_graph = outer, retain_graph = true}) end
    filled(result, probes)
    local i = 0
    directional = tree.map(function() i = i + 1; return result[i] end, y)
  end, true, core.is_training())
  if not outer then y = tree.map(function(t) return core.detach(t) end, y) end
  return y, directional
end

-- Returns the gradients that a Function's backward has returned as a list. Absent ones are no error where the rest of the
-- `wanted` arguments of forward can have no gradient, those after number `least`. Nor are more of them that are nil.
local function check_gradients(name, backward, least, wanted, ...)
  local got = select("#", ...)
  while got > wanted and (select(got, ...)) == nil do got = got - 1 end
  if got < least or got > wanted then
    core.fail(name, "backward%s returned %d gradient%s (expected %d, one for each argument of forward; write nil for one without "
              .. "gradient)", args.place(backward), got, got == 1 and "" or "s", wanted)
  end
  return {...}
end

-- The call of a Function. forward runs with recording off; backward is one tape entry.
local function call_function(self, ...)
  local arguments, n = {...}, select("#", ...)
  local ctx, inputs, places, least = {saved = {}}, {}, {}, 0
  for k = 1, n do
    if core.is_tensor(arguments[k]) then
      inputs[#inputs + 1] = arguments[k]
      places[#inputs] = k
      if arguments[k].dtype:find("float") then least = k end
    end
  end
  local results = {autograd.pause(function() return self.forward(ctx, unpack(arguments, 1, n)) end)}
  for i = 1, #results do
    if not core.is_tensor(results[i]) then core.arg_error(self.name, "result " .. i, "a tensor", results[i]) end
  end
  if not core.graphs.exporting and not core.is_recording() then return unpack(results, 1, #results) end
  local outputs = {}
  for i, y in ipairs(results) do outputs[i] = core.alias(core.detach(y)) end
  -- Tensors in ctx are stored on the tape until backward runs: Lua references to them would make cycles.
  local saved, fields = {}, {}
  for key, value in pairs(ctx) do
    if core.is_tensor(value) then
      saved[#saved + 1] = value
      fields[key] = #saved
    end
  end
  local saved_keys = {}
  for key, value in pairs(type(ctx.saved) == "table" and ctx.saved or {}) do
    if core.is_tensor(value) then
      saved[#saved + 1] = value
      saved_keys[key] = #saved
    end
  end
  for key in pairs(fields) do ctx[key] = nil end
  for key in pairs(saved_keys) do ctx.saved[key] = nil end
  local backward, name = self.backward, self.name
  local record = core.tracing() and core.trace_function_gradient or core.record_custom
  record(name, inputs, outputs, saved, function(tensors, ...)
    local view = setmetatable({saved = setmetatable({}, {__index = ctx.saved})}, {__index = ctx})
    for key, i in pairs(fields) do view[key] = tensors[i] end
    for key, i in pairs(saved_keys) do view.saved[key] = tensors[i] end
    local grads = check_gradients(name, backward, least, n, backward(view, ...))
    local out = {}
    for i = 1, #places do out[i] = grads[places[i]] end
    return unpack(out, 1, #places)
  end)
  return unpack(outputs, 1, #outputs)
end

--- pg.autograd.Function{name =, forward = function(ctx, ...), backward = function(ctx, dy...)} -> a callable with its
--- own gradient. backward gets one gradient per output (zeros if none reached it) and returns one gradient or nil per
--- argument of forward; those of last arguments that are no floating tensors may be absent. Any other number of them
--- raises. Tensors that forward stores in ctx.saved are available in backward. Store an output there and not in an
--- upvalue of backward: that would make a cycle, which is never collected.
--- Example: local double = pg.autograd.Function{forward = function(ctx, x) return 2 * x end, backward = function(ctx, dy) return 2 * dy end}
--- return double(pg.ones(2))
function autograd.Function(definition)
  if type(definition) ~= "table" then core.arg_error("Function", "definition", "a table with forward and backward", definition) end
  core.check_options("Function", definition, {name = true, forward = true, backward = true})
  for _, field in ipairs{"forward", "backward"} do
    args.callable("Function", field, definition[field])
  end
  return setmetatable({name = definition.name or "Function", forward = definition.forward, backward = definition.backward},
                      {__call = call_function})
end

--- pg.autograd.detect_anomaly(f) -> the results of f. Raises at the first op, forward or backward, that makes a NaN,
--- and names the op, the script line, and the ranges of its operands and results with their numbers of NaNs and
--- infinities. For a gradient it also names the line of the forward and the range of the gradient that came in. Graphs
--- run node by node meanwhile.
function autograd.detect_anomaly(f, ...)
  check_function("detect_anomaly", f)
  local before = core.set_detect_anomaly(true)
  local function finish(ok, ...)
    core.set_detect_anomaly(before)
    if not ok then core.reraise((select(1, ...))) end
    return ...
  end
  return finish(xpcall(f, core.keep_traceback, ...))
end

autograd.checkpoint = core.require("checkpoint").checkpoint

return core.require("support.namespace").seal("autograd", autograd)
