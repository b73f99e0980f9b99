-- perigee run: runs a model on files of tensors.
local core = ...
local model_file = core.require("tools.model_file")
local native = core.graph

-- Returns the positions of the options [NAME=]FILE among `names`, as {position = path}: by name, or the next that has
-- none.
local function assign(what, given, names)
  local place, paths, next_free = {}, {}, 1
  for i, name in ipairs(names) do place[name] = i end
  for _, word in ipairs(given or {}) do
    local name, path = word:match("^([^=/]+)=(.*)$")
    local i = name and place[name]
    if name and not i then
      local near = core.suggest(name, place)
      return nil, ("the model has no %s '%s'%s"):format(what, name, near and "; did you mean '" .. near .. "'?" or
        " (it has " .. table.concat(names, ", ") .. ")")
    end
    if not name then
      path = word
      while paths[next_free] do next_free = next_free + 1 end
      i = next_free
    end
    if i > #names then return nil, ("too many files of %ss (the model has %d: %s)"):format(what, #names, table.concat(names, ", ")) end
    if paths[i] then return nil, ("the %s '%s' has two files"):format(what, names[i]) end
    paths[i] = path
  end
  return paths
end

local floating = {float16 = true, bfloat16 = true, float32 = true, float64 = true}

-- Reads the tensors of the arguments, in their order.
local function read_inputs(arguments, paths)
  local values = {}
  for i, input in ipairs(arguments) do
    if not paths[i] then return nil, ("--input %s=FILE is missing (%s %s)"):format(input.name, input.dtype, table.concat(input.shape, "x")) end
    local x, why = model_file.try(core.pg.load, paths[i])
    if not x then return nil, why end
    if not core.is_tensor(x) then return nil, ("%s holds tensors by name, not one tensor"):format(paths[i]) end
    if x.dtype ~= input.dtype and floating[x.dtype] and floating[input.dtype] then x = x:to(input.dtype) end
    values[i] = x
  end
  return values
end

-- Returns the value of an argument tree, with the tensors by input of the model.
local function build(tree, tensors)
  if tree.kind == "input" then return tensors[tree.index] end
  if tree.kind == "value" then return tree.value end
  local t = {}
  for i, key in ipairs(tree.keys) do t[key] = build(tree.values[i], tensors) end
  return t
end

-- Adds the tensors of the results to the list, in the order of native.output_names.
local function flatten(tree, value, list)
  if tree.kind == "input" or tree.kind == "output" then list[#list + 1] = value
  elseif tree.kind == "table" then
    for i, key in ipairs(tree.keys) do flatten(tree.values[i], value[key], list) end
  end
end

-- Runs the model. Returns the list of its outputs.
local function compute(model, boxes, places, values)
  local tensors, call = {}, {}
  for i, k in ipairs(places) do tensors[k] = values[i] end
  local argument_trees, result_trees = native.trees(model)
  for i, tree in ipairs(argument_trees) do call[i] = build(tree, tensors) end
  local g = core.require("graph").new(model, boxes)
  local results, outputs = {g:run(unpack(call, 1, #argument_trees))}, {}
  for i, tree in ipairs(result_trees) do flatten(tree, results[i], outputs) end
  return outputs
end

-- Writes the outputs that have paths. Without any, prints all.
local function write_outputs(names, outputs, paths)
  for i, x in ipairs(outputs) do
    if not next(paths) then io.write(names[i], " = ", tostring(x), "\n") end
    if paths[i] then core.save_tensors(paths[i], x) end
  end
end

local function run(words, options)
  local json, tensors, problem = model_file.of(words[1])
  if not json then return nil, problem end
  local model, boxes = model_file.try(native.load, json, tensors, "load")
  if not model then return nil, boxes end
  local arguments, names, places = {}, {}, {}
  for k, input in ipairs(native.inputs(model)) do
    if input.role == "argument" then
      arguments[#arguments + 1], names[#names + 1], places[#places + 1] = input, input.name, k
    elseif not boxes[k] then return nil, ("%s: there is no .safetensors file with '%s' beside it"):format(json, input.name) end
  end
  local output_names = native.output_names(model)
  local inputs, why = assign("input", options.input, names)
  if not inputs then return nil, "run: " .. why end
  local outputs
  outputs, why = assign("output", options.output, output_names)
  if not outputs then return nil, "run: " .. why end
  for _, path in pairs(outputs) do
    if not path:find("%.npy$") then return nil, ("run: --output %s: the path of a .npy file expected"):format(path) end
  end
  local values
  values, why = read_inputs(arguments, inputs)
  if not values then return nil, "run: " .. why end
  write_outputs(output_names, compute(model, boxes, places, values), outputs)
  return 0
end

return function(words, options)
  local code, why = model_file.try(run, words, options)
  return code, why
end
