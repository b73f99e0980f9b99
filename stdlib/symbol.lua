-- pg.symbol: symbolic tensors outside of traces, and graphs made of them.
local core = ...
local args = core.require("support.args")
local param = core.require("param")
local native, symbols = core.graph, core.symbols
local symbol = {}

local ipairs = ipairs

--- pg.symbol(name, {shape =, dtype = "float32"}) -> a symbolic tensor. Ops, functions and blocks that are called with
--- it build a graph instead of computing. pg.graph and nn.SymbolBlock make a callable of that graph.
function symbol.symbol(name, opts)
  args.string("symbol", "name", name)
  if opts == nil or args.plain(opts) and opts.shape == nil and opts[1] == nil then
    core.check_options("symbol", opts, {shape = true, dtype = true})
    core.fail("symbol", "bad argument 'shape' (expected a list of sizes, got nothing; write pg.symbol(\"%s\", {shape = {2, 3}}))", name)
  end
  if args.plain(opts) and type(opts[1]) == "number" then
    core.fail("symbol", "bad argument 'options' (expected a table of options, got a list of sizes; write pg.symbol(\"%s\", {shape = {%s}}))",
              name, table.concat(opts, ", "))
  end
  local o = args.options("symbol", opts, {shape = args.required, dtype = "float32"})
  local shape = o.shape
  if type(shape) == "number" then shape = {shape} end
  if type(shape) ~= "table" then core.arg_error("symbol", "shape", "a list of sizes", shape) end
  for i = 1, #shape do args.count("symbol", "shape", shape[i]) end
  local made = symbols.new(name, shape, args.string("symbol", "dtype", o.dtype))
  core.extra(made).name = name
  return made
end

local function list_inputs(op, inputs)
  if core.is_tensor(inputs) then return {inputs} end
  if not args.plain(inputs) then core.arg_error(op, "inputs", "a symbol or a list of symbols", inputs) end
  for i = 1, #inputs do args.tensor(op, "inputs", inputs[i]) end
  return inputs
end

-- Describes a tensor that the graph uses from outside: a parameter, a state that it writes, or a constant.
local function describe_captured(c, i, taken)
  local p = c.box
  local function unique(name)
    local base, n = name, 1
    while taken[name] do
      n = n + 1
      name = base .. "_" .. n
    end
    taken[name] = true
    return name
  end
  if param.is(p) then
    local e = core.extra(p)
    return {
      role = "parameter", name = unique(e.path or "parameter" .. i), position = 1e6 + i, grad_req = e.grad_req or "write",
      lr_mult = e.lr_mult, wd_mult = e.wd_mult, differentiable = e.differentiable ~= false, constant = e.constant == true,
    }
  end
  if c.written then return {role = "state", name = unique("state" .. i), position = 2e6 + i} end
  return {role = "constant", box = p}
end

--- symbol.graph(op, outputs, inputs) -> a Graph of symbols.
function symbol.graph(op, outputs, inputs)
  local graph = core.require("graph")
  inputs = list_inputs(op, inputs)
  local list, place = {}, {}
  local result = graph.describe(op, outputs, function(y)
    if not place[y] then
      list[#list + 1] = y
      place[y] = #list
    end
    return {kind = "output", index = place[y]}
  end)
  local program, captured, names = symbols.program(list, inputs)
  local descriptions, arguments, taken = {}, {}, {}
  for i, name in ipairs(names) do
    if taken[name] then core.fail(op, "two inputs have the name '%s'", name) end
    taken[name] = true
    descriptions[i] = {role = "argument", name = name, position = i}
    arguments[i] = {kind = "input", index = i}
  end
  for i, c in ipairs(captured) do descriptions[#names + i] = describe_captured(c, i, taken) end
  local model, places = native.model_of(program, {name = "graph", inputs = descriptions, arguments = arguments, results = {result}})
  local boxes = {}
  for k, at in ipairs(places) do boxes[k] = at > #names and captured[at - #names].box end
  return graph.new(model, boxes)
end

return symbol
