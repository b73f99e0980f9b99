-- Reads and runs graphs of MXNet's symbol JSON.
local core = ...
local args = core.require("support.args")
local attributes = core.require("mxnet.attributes")
local hint = core.require("support.namespace").hint
local graph = {}

local ipairs, unpack = ipairs, unpack

local function check(holds, place, text, ...)
  if not holds then core.fail("imports", "%s: " .. text, place, ...) end
end

-- Merges the spellings of all versions: attrs, and before them attr and param. Older files spell the attributes of
-- variables without underscores.
local function texts_of(node, place)
  local out = {}
  for _, key in ipairs{"param", "attr", "attrs"} do
    local texts = node[key]
    check(texts == nil or args.plain(texts), place, "'%s' is no table", key)
    for name, text in pairs(texts or {}) do
      check(type(name) == "string" and type(text) == "string", place, "'%s' holds other values than texts", key)
      out[name] = text
    end
  end
  return out
end

local function is_count(v, most) return type(v) == "number" and v >= 0 and v == math.floor(v) and v <= most end

-- Reads a list of [node, output, version], which refer to the nodes before `count`.
local function read_entries(list, count, place)
  check(args.plain(list), place, "no list of inputs")
  local out = {}
  for i, entry in ipairs(list) do
    check(args.plain(entry) and is_count(entry[1], count - 1) and is_count(entry[2], 1e6), place,
          "input %d does not refer to an output of a node before it", i)
    out[i] = {node = entry[1] + 1, output = entry[2] + 1}
  end
  return out
end

local read_graph

local function read_subgraphs(node, place, file, depth)
  check(node.subgraphs == nil or args.plain(node.subgraphs), place, "'subgraphs' is no list")
  local out = {}
  for i, sub in ipairs(node.subgraphs or {}) do out[i] = read_graph(sub, file, place .. ", subgraph " .. i, depth + 1) end
  return out
end

-- Adds a variable for the running statistics of a node, which files of versions before 0.9 lack.
local function add_variable(out, name)
  out.count = out.count + 1
  local variable = {id = out.count, name = name, op = "null", place = name, texts = {}}
  out.nodes[out.count], out.variables[#out.variables + 1] = variable, variable
  return {node = variable.id, output = 1}
end

-- Reads one node: a variable, or a step with the function f that computes its outputs.
local function read_node(out, id, node, file, where, depth)
  check(args.plain(node) and type(node.op) == "string" and type(node.name) == "string", where,
        "node %d has no 'op' or no 'name'", id - 1)
  local place = ("%s: node %d '%s' (%s)"):format(where, id - 1, node.name:sub(1, 200), node.op:sub(1, 60))
  local read = {id = id, name = node.name, op = node.op, place = place, texts = texts_of(node, place)}
  out.nodes[id] = read
  if node.op == "null" then
    out.variables[#out.variables + 1] = read
    return
  end
  read.inputs = read_entries(node.inputs, id - 1, place)
  local ops = core.require("mxnet.ops")
  local op = ops.table[node.op]
  if not op then
    core.fail("imports", "%s: the op '%s' is not supported%s", place, node.op, hint(nil, node.op, ops.table))
  end
  local a = attributes.new(place, read.texts)
  a.inputs, a.subgraphs = {}, read_subgraphs(node, place, file, depth)
  out.has_sources = out.has_sources or #read.inputs == 0
  out.has_loops = out.has_loops or #a.subgraphs > 0
  for i, entry in ipairs(read.inputs) do a.inputs[i] = out.nodes[entry.node].op end
  check(#read.inputs >= op.least, place, "%d inputs (expected at least %d)", #read.inputs, op.least)
  read.f, read.roles = op.make(a)
  for _, name in ipairs(read.roles and read.roles.added or {}) do
    read.inputs[#read.inputs + 1] = add_variable(out, node.name .. name)
  end
  out.steps[#out.steps + 1] = read
end

-- Lists in each step the nodes whose outputs no later step uses, so that a run does not keep them.
local function note_last_uses(g)
  local last = {}
  for _, head in ipairs(g.heads) do last[head.node] = false end
  for at = #g.steps, 1, -1 do
    local step = g.steps[at]
    step.done = {}
    for _, from in ipairs(step.inputs) do
      if last[from.node] == nil then
        last[from.node] = at
        step.done[#step.done + 1] = from.node
      end
    end
  end
end

function read_graph(t, file, where, depth)
  check(depth < 50, where, "graphs nested more than 50 deep")
  check(args.plain(t) and args.plain(t.nodes), where, "no list 'nodes'")
  local count = #t.nodes
  local out = {nodes = {}, steps = {}, variables = {}, count = count}
  for id = 1, count do read_node(out, id, t.nodes[id], file, where, depth) end
  out.heads = read_entries(t.heads, count, where .. ": heads")
  check(#out.heads > 0, where, "no heads")
  note_last_uses(out)
  return out
end

--- graph.read(t, file) -> {nodes =, steps =, variables =, heads =, has_loops =, …} of a decoded JSON file. The nodes are
--- numbered from 1 on, in an order in which each follows its inputs; steps are those that are no variables. Raises for
--- what is malformed or not supported.
function graph.read(t, file) return read_graph(t, file, file, 0) end

-- Returns the device of the variables.
local function device_of(g, values)
  for _, variable in ipairs(g.variables) do
    local x = values[variable.id][1]
    if x then return x.device end
  end
end

--- graph.run(g, values) -> the list of the graph's outputs. values has {tensor} for each variable, by its id, and gets
--- the outputs of the other nodes.
function graph.run(g, values)
  local device = g.has_sources and device_of(g, values)
  for _, step in ipairs(g.steps) do
    local list, n = {}, #step.inputs
    for i, from in ipairs(step.inputs) do
      local x = values[from.node][from.output]
      if x == nil and not (step.roles and step.roles[i] == "label") then
        core.fail("SymbolBlock", "%s: no output %d (as input %d)", g.nodes[from.node].place, from.output - 1, i)
      end
      list[i] = x
    end
    if n == 0 then list, n = {device}, 1 end
    values[step.id] = {step.f(unpack(list, 1, n))}
    for _, id in ipairs(step.done) do values[id] = nil end
  end
  local out = {}
  for i, head in ipairs(g.heads) do
    out[i] = values[head.node][head.output]
    if out[i] == nil then
      core.fail("SymbolBlock", "%s: no output %d (as head %d)", g.nodes[head.node].place, head.output - 1, i - 1)
    end
  end
  return out
end

return graph
