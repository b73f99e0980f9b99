-- The Graph objects of scripts: a traced program with named inputs, over live tensors, or with its own copies of them
-- (frozen).
local core = ...
local args = core.require("support.args")
local hint = core.require("support.namespace").hint
local native = core.graph
local graph = {}

local type, ipairs, pairs, rawget, unpack = type, ipairs, pairs, rawget, unpack
local getmetatable, setmetatable = getmetatable, setmetatable

-- Trees ------------------------------------------------------------------------------------------------------------------
-- Descriptions of nesting: {kind = "input" or "output", index =}, {kind = "value", value =}, {kind = "table", keys =,
-- values =}.

local function keys_of(t, op)
  local keys = {}
  for key in pairs(t) do
    if type(key) ~= "number" and type(key) ~= "string" then core.fail(op, "a table with the key %s (expected numbers and strings)", tostring(key)) end
    keys[#keys + 1] = key
  end
  table.sort(keys, function(a, b)
    if type(a) == type(b) then return a < b end
    return type(a) == "number"
  end)
  return keys
end

graph.max_tables = 100000   -- in a value; a table that appears twice counts twice, with all tables in it

--- graph.describe(op, value, leaf) -> the tree of a value. leaf(tensor) returns the tree of a tensor in it.
function graph.describe(op, value, leaf, depth, count)
  depth, count = depth or 0, count or {tables = 0}
  if depth > 90 then core.fail(op, "nested tables, more than 90 deep or in a cycle") end
  if core.is_tensor(value) then return leaf(value) end
  if args.plain(value) then
    count.tables = count.tables + 1
    if count.tables > graph.max_tables then core.fail(op, "more than %d tables among arguments or results", graph.max_tables) end
    local tree = {kind = "table", keys = keys_of(value, op), values = {}}
    for i, key in ipairs(tree.keys) do tree.values[i] = graph.describe(op, value[key], leaf, depth + 1, count) end
    return tree
  end
  local kind = type(value)
  if kind ~= "nil" and kind ~= "boolean" and kind ~= "number" and kind ~= "string" then
    core.fail(op, "a %s among arguments or results (expected tensors, tables, numbers, strings, booleans)", kind)
  end
  return {kind = "value", value = value}
end

local function show(value) return type(value) == "string" and '"' .. value .. '"' or tostring(value) end

-- Stores the tensors of a value in `boxes` at the indices of the tree. Raises if the value has another structure than
-- the tree.
local function match(op, tree, value, boxes, where)
  if tree.kind == "input" then
    if not core.is_tensor(value) then core.arg_error(op, where, "a tensor", value) end
    boxes[tree.index] = value
  elseif tree.kind == "table" then
    if not args.plain(value) then core.arg_error(op, where, "a table of " .. #tree.keys .. " entries", value) end
    local count = 0
    for _ in pairs(value) do count = count + 1 end
    for i, key in ipairs(tree.keys) do match(op, tree.values[i], value[key], boxes, where .. "." .. tostring(key)) end
    if count > #tree.keys then core.arg_error(op, where, "a table of " .. #tree.keys .. " entries", "a table of " .. count) end
  elseif value ~= tree.value and (value == value or tree.value == tree.value) then
    core.arg_error(op, where, show(tree.value) .. ", with which the graph was made", value)
  end
end

-- Makes the value of a tree: outputs in walking order from `list`, inputs from `boxes`.
local function build(tree, list, boxes, at)
  if tree.kind == "output" then return list[at], at + 1 end
  if tree.kind == "input" then return boxes[tree.index], at end
  if tree.kind == "value" then return tree.value, at end
  local t = {}
  for i, key in ipairs(tree.keys) do t[key], at = build(tree.values[i], list, boxes, at) end
  return t, at
end

local function build_all(trees, list, boxes)
  local out, at = {}, 1
  for i, tree in ipairs(trees) do out[i], at = build(tree, list, boxes, at) end
  return unpack(out, 1, #trees)
end

-- Calls ------------------------------------------------------------------------------------------------------------------

local function is_flat(trees, kind)
  for _, tree in ipairs(trees) do if tree.kind ~= kind then return false end end
  return true
end

-- Generates code for the common case, in which arguments and results are tensors. The code makes no tables.
local function generate(arguments, inputs, names_of)
  local position, parts, names = {}, {}, {}
  for i, tree in ipairs(arguments) do
    position[tree.index] = "x" .. i
    names[i] = "x" .. i
  end
  for k = 1, inputs do parts[k] = position[k] or (names_of[k] and ("holder[%q]"):format(names_of[k])) or "boxes[" .. k .. "]" end
  local text = ([[local run, program, boxes, holder, refused, bad, is_tensor = ...
    return function(%s)
      %s
      local y, why = run(program%s)
      if y == nil and why then return refused(why%s) end
      return %s
    end]]):format(
      table.concat(names, ", ") .. (#names > 0 and ", ..." or "..."),
      (#names > 0 and "if not (is_tensor(" .. table.concat(names, ") and is_tensor(") .. ")) then return bad(" .. table.concat(names, ", ") .. ") end" or "")
        .. " if select('#', ...) > 0 then return bad(" .. table.concat(names, ", ") .. (#names > 0 and ", " or "") .. "...) end",
      #parts > 0 and ", " .. table.concat(parts, ", ") or "", #names > 0 and ", " .. table.concat(names, ", ") or "", "y")
  return text
end

--- graph.caller(op, model, program, boxes[, holder, names]) -> f(…), which runs the program. boxes holds the tensors
--- that are not arguments, by input of the model. Inputs with a name in `names` are fetched from the fields of holder
--- at each call.
function graph.caller(op, model, program, boxes, holder, names)
  names = names or {}
  local arguments, results = native.trees(model)
  local count = #native.inputs(model)
  local function gather(...)
    if select("#", ...) > #arguments then
      core.fail(op, "too many arguments (expected %d, got %d)", #arguments, select("#", ...))
    end
    local all = {}
    for k = 1, count do all[k] = names[k] and holder[names[k]] or boxes[k] end
    for i, tree in ipairs(arguments) do match(op, tree, (select(i, ...)), all, "#" .. i) end
    return all
  end
  local function general(...)
    local all = gather(...)
    return build_all(results, core.run(program, all) or native.replay(program, all), all)
  end
  if count > 100 or #results ~= 1 or not is_flat(arguments, "input") or not is_flat(results, "output") then return general end
  -- run refuses types that the graph was not made for, and a tensor that is passed twice. replay runs these calls op by
  -- op, or raises.
  local function refused(_, ...) return native.replay(program, gather(...))[1] end
  local function bad(...) return general(...) end
  return assert(core.compile(generate(arguments, count, names), "@stdlib/graph/call.lua"))(core.run, program, boxes, holder, refused, bad, core.is_tensor)
end

-- Graph ------------------------------------------------------------------------------------------------------------------

local Graph = {}
Graph.__index = Graph

function Graph:__tostring() return native.text(self._model) end

--- graph.is(v) -> whether v is a Graph.
function graph.is(v) return type(v) == "table" and getmetatable(v) == Graph end

--- graph.new(model, boxes) -> a Graph over live tensors (by input of the model).
function graph.new(model, boxes) return setmetatable({_model = model, _boxes = boxes}, Graph) end

--- graph.frozen(handle) -> a Graph that owns its tensors.
function graph.frozen(handle)
  local model = native.frozen_parts(handle)
  return setmetatable({_model = model, _frozen = handle}, Graph)
end

--- graph.is(v) -> whether v is a Graph.
function graph.is(v) return type(v) == "table" and getmetatable(v) == Graph end

local function check(op, self)
  if not graph.is(self) then core.arg_error(op, "self", "a Graph (call g:" .. op .. "(…))", self) end
  return self
end

--- graph.boxes(g) -> the tensors that are not arguments, by input of the model. A frozen graph returns copies.
function graph.boxes(g)
  if not g._frozen then return g._boxes end
  local _, boxes = native.frozen_parts(g._frozen)
  return boxes
end

local function frozen_caller(self)
  local arguments, results = native.trees(self._model)
  local order = {}
  for k, input in ipairs(native.inputs(self._model)) do if input.role == "argument" then order[#order + 1] = k end end
  local outputs = 0
  local function count(tree)  -- a run of a frozen graph returns every leaf of the results, inputs too
    if tree.kind == "input" or tree.kind == "output" then outputs = outputs + 1 end
    if tree.kind ~= "table" then return tree.kind == "input" and {kind = "output"} or tree end
    local copy = {kind = "table", keys = tree.keys, values = {}}
    for i, value in ipairs(tree.values) do copy.values[i] = count(value) end
    return copy
  end
  local trees = {}
  for i, tree in ipairs(results) do trees[i] = count(tree) end
  return function(...)
    if select("#", ...) > #arguments then core.fail("run", "too many arguments (expected %d, got %d)", #arguments, select("#", ...)) end
    local boxes, list = {}, {}
    for i, tree in ipairs(arguments) do match("run", tree, (select(i, ...)), boxes, "#" .. i) end
    for i, k in ipairs(order) do list[i] = boxes[k] end
    return build_all(trees, {native.run_frozen(self._frozen, list)}, {})
  end
end

--- g:run(…) -> the results of the graph for these arguments.
function Graph:run(...)
  local call = rawget(self, "_call")
  if not call then
    check("run", self)
    if self._frozen then call = frozen_caller(self)
    else call = graph.caller("run", self._model, native.program(self._model), self._boxes) end
    self._call = call
  end
  return call(...)
end
function Graph:__call(...) return self:run(...) end

--- g:inputs() -> the names of the inputs: arguments first, then parameters and states.
function Graph:inputs()
  local names = {}
  for i, input in ipairs(native.inputs(check("inputs", self)._model)) do names[i] = input.name end
  return names
end

--- g:outputs() -> the names of the nodes that compute the results.
function Graph:outputs() return native.output_names(check("outputs", self)._model) end

local Internal = {}
Internal.__index = Internal
function Internal:__tostring() return ("%s: %s %s"):format(self.name, self.dtype, #self.shape > 0 and table.concat(self.shape, "x") or "scalar") end

--- graph.is_internal(v) -> whether v is an element of g:internals().
function graph.is_internal(v) return type(v) == "table" and getmetatable(v) == Internal end

--- g:internals() -> every value of the graph, by position and by name, with the fields name, shape and dtype. Each can
--- be an output of pg.graph or nn.SymbolBlock.
function Graph:internals()
  check("internals", self)
  local all = native.internals(self._model)
  local names = {}
  for i, internal in ipairs(all) do
    internal.graph, internal.position = self, i
    names[internal.name] = setmetatable(internal, Internal)
  end
  return setmetatable(all, {__index = function(_, key)
    if names[key] then return names[key] end
    if type(key) == "string" then core.fail("internals", "the graph has no '%s'%s", key, hint(nil, key, names)) end
  end})
end

--- g:infer_shape{name = shape, …} -> the shape of each result, then a list of their dtypes. Arguments that are not
--- named keep the shapes of the trace.
function Graph:infer_shape(shapes)
  check("infer_shape", self)
  if shapes ~= nil and type(shapes) ~= "table" then core.arg_error("infer_shape", "shapes", "a table of shapes by name", shapes) end
  local by_input, known = {}, {}
  for k, input in ipairs(native.inputs(self._model)) do
    known[input.name] = k
    by_input[k] = false
  end
  for name, shape in pairs(shapes or {}) do
    if not known[name] then core.fail("infer_shape", "the graph has no input '%s'%s", tostring(name), hint(nil, name, known)) end
    if type(shape) ~= "table" then core.arg_error("infer_shape", name, "a list of sizes", shape) end
    for i = 1, #shape do args.count("infer_shape", name, shape[i]) end
    by_input[known[name]] = shape
  end
  local types = native.infer(self._model, by_input)
  local _, results = native.trees(self._model)
  local out, dtypes = {}, {}
  local inputs = native.inputs(self._model)
  local function walk(tree)
    if tree.kind == "table" then for _, value in ipairs(tree.values) do walk(value) end end
    local found = tree.kind == "output" and types[tree.index] or tree.kind == "input" and inputs[tree.index]
    if found then
      out[#out + 1] = tree.kind == "input" and by_input[tree.index] or found.shape
      dtypes[#dtypes + 1] = found.dtype
    end
  end
  for _, tree in ipairs(results) do walk(tree) end
  out[#out + 1] = dtypes
  return unpack(out)
end

--- g:tojson() -> the text of model.json.
function Graph:tojson() return native.json(check("tojson", self)._model) end

--- g:dot() -> the graph for Graphviz.
function Graph:dot() return native.dot(check("dot", self)._model) end

--- g:optimize([passes]) -> a Graph for exactly the types of this one, after the named passes. The default is all passes
--- whose result is made of ops of the registry.
function Graph:optimize(passes)
  check("optimize", self)
  if type(passes) == "string" then passes = {passes} end
  if passes ~= nil and type(passes) ~= "table" then core.arg_error("optimize", "passes", "a list of names of passes", passes) end
  return graph.new(native.optimize(self._model, passes), graph.boxes(self))
end

--- g:freeze() -> a Graph that owns copies of its tensors. It may run in several threads and Lua states at once. Its random
--- numbers are those of the state that runs it (see pg.manual_seed).
function Graph:freeze()
  check("freeze", self)
  return graph.frozen(native.freeze(self._model, graph.boxes(self)))
end

--- graph.paths(path, epoch) -> the paths of the two files of an export. The path is their common beginning.
function graph.paths(path, epoch)
  if path == "" or path:sub(-1) == "/" then
    core.arg_error("export", "path", "the files' path without its ending, such as 'folder/model'", path)
  end
  local suffix = ""
  if epoch ~= nil then suffix = ("-%04d"):format(args.count("export", "epoch", epoch)) end
  return path .. ".json", path .. suffix .. ".safetensors"
end

--- g:export(path[, {epoch =}]) writes path.json and path.safetensors and returns both paths.
function Graph:export(path, opts)
  check("export", self)
  local o = args.options("export", opts, {epoch = args.none})
  local json, tensors = graph.paths(args.string("export", "path", path), o.epoch)
  native.save(self._model, json, tensors, graph.boxes(self))
  return json, tensors
end

-- Making graphs -----------------------------------------------------------------------------------------------------------

-- Makes a Graph whose outputs are these internals of another Graph.
local function select_internals(op, outputs)
  local owner
  local tree = function(value, self, depth)
    if graph.is_internal(value) then
      if owner and owner ~= value.graph then core.fail(op, "the outputs belong to two graphs") end
      owner = value.graph
      return {kind = "output", index = value.position}
    end
    if not args.plain(value) or depth > 90 then core.arg_error(op, "outputs", "internals of a graph or symbols", value) end
    local t = {kind = "table", keys = keys_of(value, op), values = {}}
    for i, key in ipairs(t.keys) do t.values[i] = self(value[key], self, depth + 1) end
    return t
  end
  local result = tree(outputs, tree, 0)
  if not owner then core.arg_error(op, "outputs", "internals of a graph or symbols", outputs) end
  local model, kept = native.select(owner._model, {results = {result}})
  local before, boxes = graph.boxes(owner), {}
  for k, place in ipairs(kept) do boxes[k] = before[place] end
  return graph.new(model, boxes)
end

local function first_leaf(value, depth)
  if not args.plain(value) or (depth or 0) > 90 then return value end
  for _, key in ipairs(keys_of(value, "graph")) do
    local leaf = first_leaf(value[key], (depth or 0) + 1)
    if leaf ~= nil then return leaf end
  end
end

--- graph.make(op, outputs, inputs) -> a Graph of symbols or internals.
function graph.make(op, outputs, inputs)
  if type(outputs) == "userdata" and not core.is_tensor(outputs) then return graph.frozen(outputs) end
  if graph.is(outputs) then return outputs end
  if core.is_tensor(first_leaf(outputs)) then return core.require("symbol").graph(op, outputs, inputs) end
  return select_internals(op, outputs)
end

--- pg.graph(outputs, inputs) -> a Graph. outputs is a tree of symbols (see pg.symbol) or of internals of another Graph
--- (see g:internals). inputs is a symbol or a list of symbols, in the order of the arguments of run.
function graph.graph(outputs, inputs) return graph.make("graph", outputs, inputs) end

return graph
