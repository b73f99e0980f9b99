-- nn.SymbolBlock: a block that runs a graph made of symbols or read from files.
local core = ...
local args = core.require("support.args")
local HybridBlock = core.require("nn.block").HybridBlock
local graph = core.require("graph")
local param = core.require("param")
local sets = core.require("nn.parameters")
local hint = core.require("support.namespace").hint
local owner_of = core.require("nn.block_call").owner_of
local native = core.graph

local SymbolBlock = HybridBlock:extend("SymbolBlock")

local ipairs, rawset = ipairs, rawset

-- Makes the parameter for an input of the model. Without a value it has to be initialized.
local function make_parameter(input, value)
  local p = param.param{
    shape = input.shape, dtype = input.dtype, grad_req = input.grad_req, lr_mult = input.lr_mult, wd_mult = input.wd_mult,
    differentiable = input.differentiable,
  }
  if input.constant then core.extra(p).constant = true end
  if value then param.give(p, input.name, value) end
  return p
end

local function make_boxes(block, model, values)
  local boxes, shared = {}, {}
  for k, input in ipairs(native.inputs(model)) do
    local value = values[k]
    if input.role == "argument" then boxes[k] = false
    elseif input.role == "state" then boxes[k] = value or core.ops.zeros(input.shape, {dtype = input.dtype, device = input.device})
    elseif value and param.is(value) then boxes[k] = value
    else
      boxes[k] = value and shared[value] or make_parameter(input, value)
      if value then shared[value] = boxes[k] end
    end
    if input.role == "parameter" then block[input.name] = boxes[k] end
  end
  return boxes
end

-- Returns the values of the model's inputs, with those in `params` (tensors by name) replaced.
local function override(model, values, params)
  local entries = sets.entries(params)
  if entries then
    params = {}
    for _, entry in ipairs(entries) do params[entry.path] = entry.tensor end
  elseif not args.plain(params) then
    core.arg_error("SymbolBlock", "params", "a set of collect_params or a table of tensors by name", params)
  end
  local known, out = {}, {}
  for k, input in ipairs(native.inputs(model)) do
    if input.role ~= "argument" then known[input.name] = k end
    out[k] = values[k]
  end
  for name, x in pairs(params) do
    local k = known[name]
    if not k then core.fail("SymbolBlock", "params: the graph has no '%s'%s", tostring(name), hint(nil, name, known)) end
    args.tensor("SymbolBlock", "params." .. name, x)
    param.merge("SymbolBlock", "params." .. name, native.inputs(model)[k].shape, x.shape)
    out[k] = x
  end
  return out
end

-- Makes the function that runs the graph on fields of the block. A copy of the block gets its own at its first call.
local function set_run(block)
  local model = block._model
  local run = graph.caller("SymbolBlock", model, native.program(model), block._boxes, block, block._names)
  rawset(block, "_run", run)
  owner_of[run] = block
end

-- Makes the parameters fields of the block, from which each call fetches them; boxes holds the other tensors.
local function set_up(block, model, values)
  local names, boxes, arguments = {}, make_boxes(block, model, values), {}
  for k, input in ipairs(native.inputs(model)) do
    if input.role == "parameter" then names[k], boxes[k] = input.name, false
    elseif input.role == "argument" then arguments[#arguments + 1] = input.name end
  end
  rawset(block, "_arguments", arguments)
  rawset(block, "_model", model)
  rawset(block, "_boxes", boxes)
  rawset(block, "_names", names)
  set_run(block)
end

--- nn.SymbolBlock(outputs, inputs[, params]) makes a block that runs a graph. outputs and inputs are symbols
--- (pg.symbol) or internals of a Graph. params are tensors by name that replace those of the graph. The block's
--- parameters have the names of the graph.
function SymbolBlock:init(outputs, inputs, params)
  if outputs == nil then core.arg_error("SymbolBlock", "outputs", "symbols, internals or a Graph", nil) end
  local g = graph.make("SymbolBlock", outputs, inputs)
  local values = graph.boxes(g)
  if params ~= nil then values = override(g._model, values, params) end
  set_up(self, g._model, values)
end

local function run_of(block)
  if owner_of[block._run] ~= block then set_run(block) end
  return block._run
end

function SymbolBlock:forward(...) return core.unlogged(run_of, self)(...) end

-- What to write for a block of imports without the file of its parameters.
local function with_file(json)
  return ("pass the file of the parameters: nn.SymbolBlock.imports(%q, nil, %q), or "):format(json, (json:gsub("%.json$", "")) .. ".safetensors")
end

-- Called before the first forward while a parameter has no value.
function SymbolBlock:infer_shape(...)
  if core.symbols.any(...) then return end
  for _, input in ipairs(native.inputs(self._model)) do
    if input.role == "parameter" and param.state(self[input.name]) == "none" then
      core.fail("SymbolBlock", "the parameter '%s' has no value (%scall net:initialize())", input.name, self._file and with_file(self._file) or "")
    end
  end
end

function SymbolBlock:describe()
  local arguments = 0
  for _, input in ipairs(native.inputs(self._model)) do if input.role == "argument" then arguments = arguments + 1 end end
  return ("%d arguments, %d parameters"):format(arguments, #native.inputs(self._model) - arguments)
end

--- block:graph() -> the Graph of the block, over its tensors.
function SymbolBlock:graph()
  local boxes = {}
  for k, box in ipairs(self._boxes) do boxes[k] = self._names[k] and self[self._names[k]] or box end
  return graph.new(self._model, boxes)
end

-- Checks that names are the arguments of the model, each once, and returns them as a list.
local function check_names(model, names)
  if type(names) == "string" then names = {names} end
  if type(names) ~= "table" then core.arg_error("imports", "names", "a list of names", names) end
  local known, wanted = {}, {}
  for _, input in ipairs(native.inputs(model)) do if input.role == "argument" then known[input.name] = true end end
  for i, name in ipairs(names) do
    if not known[name] then core.fail("imports", "the graph has no argument '%s'%s", tostring(name), hint(nil, name, known)) end
    if wanted[name] then core.fail("imports", "the name '%s' appears twice", name) end
    wanted[name] = i
  end
  for name in pairs(known) do
    if not wanted[name] then core.fail("imports", "the names lack the argument '%s' of the graph", name) end
  end
  return names
end

-- Returns for each argument of the graph its position among names, or nil if the order is the same or an argument is
-- nested.
local function reordered(model, names)
  local arguments = native.trees(model)
  local inputs, position, any = native.inputs(model), {}, false
  for i, name in ipairs(names) do position[name] = i end
  local order = {}
  for i, tree in ipairs(arguments) do
    if tree.kind ~= "input" then return nil end  -- nested arguments keep their order
    order[i] = position[inputs[tree.index].name]
    any = any or order[i] ~= i
  end
  return any and order or nil
end

--- nn.SymbolBlock.imports(json[, names[, params]]) -> a block that runs a graph written by block:export. names lists
--- the arguments in the order in which the block takes them. params is the path of the tensors; without it the
--- parameters have to be initialized. json may also be the x-symbol.json of a block of MXNet, with x-0000.params as
--- params: its parameters keep their names, index values in it start at 0, and the results are those of the graph, in
--- one flat list. Without the names of the arguments these are the variables without a value, in the order of the graph.
function SymbolBlock.imports(json, names, params)
  if json == SymbolBlock then
    core.fail("imports", "bad argument 'json' (expected a string, got class SymbolBlock; write nn.SymbolBlock.imports(…) with a dot)")
  end
  args.string("imports", "json", json)
  if params ~= nil then args.string("imports", "params", params) end
  local mxnet = core.require("mxnet.block")
  local text = mxnet.text(json, "imports")
  if text then return mxnet.imports(json, text, names, params) end
  local model, values = native.load(json, params, "imports")
  local order
  if names ~= nil then order = reordered(model, check_names(model, names)) end
  local block = setmetatable({}, SymbolBlock)
  rawset(block, "_file", json)
  set_up(block, model, values)
  if order then
    rawset(block, "_arguments", names)
    function block.forward(self, ...)
      local list, given = {}, {...}
      for i, from in ipairs(order) do list[i] = given[from] end
      for i = #order + 1, select("#", ...) do list[i] = given[i] end
      return SymbolBlock.forward(self, unpack(list, 1, math.max(#order, select("#", ...))))
    end
  end
  return block
end

return {SymbolBlock = SymbolBlock}
