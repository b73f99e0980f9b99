-- Blocks that run graphs exported by MXNet.
local core = ...
local args = core.require("support.args")
local HybridBlock = core.require("nn.block").HybridBlock
local graph = core.require("mxnet.graph")
local param = core.require("param")
local sets = core.require("nn.parameters")
local standalone = core.require("nn.rnn.standalone")
local hint = core.require("support.namespace").hint
local block = {}

local ipairs, pairs, rawset, select, unpack = ipairs, pairs, rawset, select, unpack

-- _plan: the graph, and which of its variables are arguments and parameters.
local Imported = HybridBlock:extend("SymbolBlock")
Imported._untraced = {_plan = true, _own_graph = true}

local function compute(self, ...)
  local plan, values = self._plan, {}
  local n = #plan.arguments
  if select("#", ...) > n then core.fail("SymbolBlock", "too many arguments (expected %d, got %d)", n, (select("#", ...))) end
  for i, argument in ipairs(plan.arguments) do
    local x = select(i, ...)
    values[argument.id] = {(x ~= nil or not argument.optional) and args.tensor("SymbolBlock", argument.name, x) or nil}
  end
  for _, variable in ipairs(plan.parameters) do values[variable.id] = {self[variable.name]} end
  for _, variable in ipairs(plan.labels) do values[variable.id] = {} end
  return unpack(graph.run(plan.graph, values))
end

function Imported:forward(...)
  if self._plan.graph.has_loops then return standalone.call(self, "_own_graph", compute, ...) end
  return compute(self, ...)
end

-- Called before the first forward while a parameter has no value.
function Imported:infer_shape()
  for _, variable in ipairs(self._plan.parameters) do
    if param.state(self[variable.name]) ~= "ready" then
      core.fail("SymbolBlock", "the parameter '%s' has no value (pass the file of the parameters: nn.SymbolBlock.imports(%q, …, \"%s-0000.params\"))",
                variable.name, self._file, (self._file:gsub("%-symbol%.json$", "")))
    end
  end
end

function Imported:describe() return ("%d arguments, %d parameters"):format(#self._plan.arguments, #self._plan.parameters) end

-- Returns for the variables of the graph, by id, what their consumers use them as: "state" or "label".
local function roles_of(g)
  local roles = {}
  for _, step in ipairs(g.steps) do
    for i, from in ipairs(step.inputs) do
      local role = step.roles and step.roles[i]
      if g.nodes[from.node].op == "null" then roles[from.node] = role or roles[from.node] or "tensor" end
    end
  end
  return roles
end

local function sizes_of(variable)
  local text = variable.texts.__shape__
  if not text then return nil end
  local shape = {}
  for size in text:gmatch("%-?%d+") do shape[#shape + 1] = math.max(0, tonumber(size)) end
  return shape
end

-- Makes the parameter of a variable. Without a value it has to be initialized.
local function make_parameter(variable, value, is_state)
  local texts = variable.texts
  local p = param.param{
    shape = value and value.shape or sizes_of(variable), dtype = value and value.dtype or nil,
    lr_mult = tonumber(texts.__lr_mult__ or texts.lr_mult), wd_mult = tonumber(texts.__wd_mult__ or texts.wd_mult),
    grad_req = is_state and "null" or nil, differentiable = not is_state,
  }
  if is_state then core.extra(p).keep_float32 = true end
  if value then param.give(p, variable.name, value) end
  return p
end

-- Returns the arguments: those with these names, or without names the variables that have no value and are no parameters.
local function arguments_of(g, roles, names, values)
  local list, known = {}, {}
  for _, variable in ipairs(g.variables) do
    local role = roles[variable.id]
    known[variable.name] = variable
    if not (values[variable.name] or variable.texts.__shape__ or role == "state" or role == "label") then list[#list + 1] = variable end
  end
  if names == nil then return list end
  if type(names) == "string" then names = {names} end
  if type(names) ~= "table" then core.arg_error("imports", "names", "a list of names", names) end
  local chosen, seen = {}, {}
  for i, name in ipairs(names) do
    if not known[name] then core.fail("imports", "the graph has no argument '%s'%s", tostring(name), hint(nil, name, known)) end
    if seen[name] then core.fail("imports", "the name '%s' appears twice", name) end
    chosen[i], seen[name] = known[name], true
  end
  return chosen
end

-- Raises if two variables have one name, or a tensor of the file belongs to none.
local function check_names(g, file, params, values)
  local known, extra = {}, {}
  for _, variable in ipairs(g.variables) do
    if known[variable.name] then core.fail("imports", "%s: two variables have the name '%s'", file, variable.name) end
    known[variable.name] = true
  end
  for name in pairs(values) do if not known[name] then extra[#extra + 1] = tostring(name) end end
  table.sort(extra)
  if extra[1] then core.fail("imports", "%s: has the tensor '%s', which %s does not have%s", params, extra[1], file, hint(nil, extra[1], known)) end
end

--- block.text(file, op) -> the text of a file that holds a graph of MXNet, or nil. op is the name of the caller.
function block.text(file, op)
  local text = core.read_file(file, op)
  return text:find('"arg_nodes"%s*:') and text or nil
end

--- block.imports(file, text, names, params) is nn.SymbolBlock.imports for the text of a JSON file of MXNet.
function block.imports(file, text, names, params)
  local g = graph.read(core.read_json(text, file, "imports"), file)
  local values, states = {}, {}
  if params then values, states = sets.read("imports", params) end
  check_names(g, file, params, values)
  local roles = roles_of(g)
  local plan = {graph = g, arguments = arguments_of(g, roles, names, values), parameters = {}, labels = {}}
  local self, own, is_argument = setmetatable({}, Imported), {}, {}
  rawset(self, "_file", file)
  rawset(self, "_plan", plan)
  rawset(self, "_arguments", own)
  for i, variable in ipairs(plan.arguments) do
    own[i], is_argument[variable] = variable.name, true
    variable.optional = roles[variable.id] == "label"
  end
  for _, variable in ipairs(g.variables) do
    local name, role = variable.name, roles[variable.id]
    local value = values[name]
    if not is_argument[variable] then
      if role == "label" and not value then plan.labels[#plan.labels + 1] = variable
      else
        if params and not value then
          core.fail("imports", "%s: does not have the tensor '%s' of %s (nor is it among the names of the arguments)", params, name, file)
        end
        if Imported[name] ~= nil or name:byte() == 95 then core.fail("imports", "%s: '%s' cannot be the name of a parameter", file, name) end
        plan.parameters[#plan.parameters + 1] = variable
        self[name] = make_parameter(variable, value, states[name] or role == "state")
      end
    end
  end
  return self
end

return block
