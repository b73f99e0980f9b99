-- perigee show: describes a model, or a file of tensors.
local core = ...
local model_file = core.require("tools.model_file")
local mxnet = core.require("mxnet.block")
local native = core.graph

local widths = {bool = 1, uint8 = 1, int8 = 1, float16 = 2, bfloat16 = 2, int32 = 4, float32 = 4, int64 = 8, float64 = 8}

local function shape_text(shape) return #shape > 0 and table.concat(shape, "x") or "scalar" end

local function count(shape)
  local n = 1
  for _, size in ipairs(shape) do n = n * size end
  return n
end

local function bytes_text(n)
  if n < 1024 then return ("%d bytes"):format(n) end
  if n < 1024 ^ 2 then return ("%.1f KB"):format(n / 1024) end
  return ("%.1f MB"):format(n / 1024 ^ 2)
end

-- Prints the list of {name =, dtype =, shape =} in columns, and its sum.
local function print_tensors(title, list, sums)
  if #list == 0 then return end
  local width, numbers, bytes = 0, 0, 0
  for _, x in ipairs(list) do
    width = math.max(width, #x.name)
    numbers = numbers + count(x.shape)
    bytes = bytes + count(x.shape) * widths[x.dtype]
  end
  io.write(title, ":\n")
  for _, x in ipairs(list) do
    local size = sums and ("  %10d"):format(count(x.shape)) or ""
    io.write(("  %-" .. width .. "s  %-8s%s  %s%s\n"):format(x.name, x.dtype, size, shape_text(x.shape), x.note or ""))
  end
  if sums then io.write(("  %d numbers, %s\n"):format(numbers, bytes_text(bytes))) end
end

local function show_tensors(path)
  local tensors, why = model_file.try(core.pg.load, path)
  local endings = not tensors and why:match("a path that ends in (.-), got")
  if endings then why = ("'%s' is neither a model (.json) nor a file of tensors (%s)"):format(path, endings) end
  if not tensors then return nil, why end
  local list = {}
  if core.is_tensor(tensors) then tensors = {[path:match("[^/]*$")] = tensors} end
  for name, x in pairs(tensors) do list[#list + 1] = {name = tostring(name), dtype = x.dtype, shape = x.shape} end
  table.sort(list, function(a, b) return a.name < b.name end)
  if #list == 0 then io.write("no tensors\n") end
  print_tensors("tensors", list, true)
  return 0
end

-- The outputs of the model: {name =, dtype =, shape =}.
local function outputs_of(model)
  local by_name, list = {}, {}
  for _, internal in ipairs(native.internals(model)) do by_name[internal.name] = internal end
  for _, name in ipairs(native.output_names(model)) do
    local internal = by_name[name]
    list[#list + 1] = {name = name, dtype = internal.dtype, shape = internal.shape}
  end
  return list
end

-- Describes a graph of MXNet, whose file does not hold the types of its inputs.
local function show_mxnet(json, text, tensors)
  local block, why = model_file.try(mxnet.imports, json, text, nil, tensors)
  if not block then return nil, why end
  local param, g, list = core.require("param"), block._plan.graph, {}
  for path, p in block:parameters() do list[#list + 1] = {name = path, dtype = param.dtype(p), shape = param.shape(p) or {}} end
  io.write("inputs:\n  ", table.concat(block._arguments, "\n  "), "\n")
  print_tensors("parameters", list, true)
  io.write("tensors: ", tensors or "no file", "\ngraph of MXNet:\n")
  for _, step in ipairs(g.steps) do
    local names = {}
    for i, from in ipairs(step.inputs) do
      names[i] = g.nodes[from.node].name .. (from.output > 1 and "[" .. from.output - 1 .. "]" or "")
    end
    io.write(("  %s = %s(%s)\n"):format(step.name, step.op, table.concat(names, ", ")))
  end
  return 0
end

return function(words, options)
  local json, tensors, why = model_file.of(words[1])
  if not json then
    if tensors ~= "file" or options.dot then return nil, why end
    return show_tensors(words[1])
  end
  local model, text
  text, why = model_file.try(mxnet.text, json, "load")
  if why then return nil, why end
  if text and not options.dot then return show_mxnet(json, text, tensors) end
  model, why = model_file.try(native.load, json, tensors, "load")
  if not model then return nil, why end
  if options.dot then
    io.write(native.dot(model))
    return 0
  end
  local roles = {argument = {}, parameter = {}, state = {}}
  for _, input in ipairs(native.inputs(model)) do
    input.note = input.written and "  (written)" or input.constant and "  (constant)" or nil
    table.insert(roles[input.role], input)
  end
  print_tensors("inputs", roles.argument)
  print_tensors("outputs", outputs_of(model))
  print_tensors("parameters", roles.parameter, true)
  print_tensors("states", roles.state, true)
  io.write("tensors: ", tensors or "no file", "\ngraph:\n", (native.text(model):gsub("%s+$", "")), "\n")
  return 0
end
