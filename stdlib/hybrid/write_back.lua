-- Templates of write-backs: how a hit rebuilds what the traced function returned and assigned, out of the program's
-- outputs, tensors from before the call, constants and new tables.
local core = ...
local inspect = core.introspect
inspect.interpreted()
local library = core.require("hybrid.library")
local place = core.require("hybrid.place")
local chunks = core.require("hybrid.codegen")
local join = chunks.join
local template = {}

local type, ipairs, next, rawget = type, ipairs, next, rawget

local Template = {}
Template.__index = Template

--- template.new{log =, trace =, mark =, is_tensor =, serial =} -> an empty template. mark: the serial number of the
--- first box made inside the trace.
function template.new(options)
  options.outputs, options.output_of = 0, {}
  options.boxes, options.box_index = {}, {}      -- tensors from before the trace
  options.tables, options.table_of = {}, {}      -- tables made inside the trace
  options.moved = {}                             -- tables from before the trace, as values
  options.assignments, options.deliveries, options.result_list = {}, {}, {}
  return setmetatable(options, Template)
end

local function is_known_function(self, f)
  return not self.log.fresh[f] or self.log.functions[f] ~= nil
end

local value_of

local function table_of(self, t)
  local known = self.table_of[t]
  if known then return known end
  local node = self.log.node_of[t]
  if node then
    local moved = {kind = "node", node = node, index = #self.moved + 1}
    self.moved[moved.index], self.table_of[t] = moved, moved
    return moved
  end
  if library.owns(t) then return {kind = "constant", value = t} end
  if inspect.raw_metatable(t) ~= nil then
    self.problem = self.problem or "it makes an object that stays reachable"
    return {kind = "constant", value = t}
  end
  local made = {kind = "table", entries = {}}
  self.tables[#self.tables + 1] = made
  made.index = #self.tables
  self.table_of[t] = made
  local keys = {}
  for key in next, t do keys[#keys + 1] = key end
  table.sort(keys, function(a, b)
    if type(a) == "number" and type(b) == "number" then return a < b end
    return tostring(a) < tostring(b)
  end)
  for _, key in ipairs(keys) do made.entries[#made.entries + 1] = {value_of(self, key), value_of(self, rawget(t, key))} end
  return made
end

local function tensor_of(self, x)
  if self.serial(x) >= self.mark then
    local index = self.output_of[x]
    if not index then
      index = self.trace:output(x)
      self.output_of[x] = index
      if index > self.outputs then self.outputs = index end
    end
    return {kind = "output", index = index}
  end
  local index = self.box_index[x]
  if not index then
    index = #self.boxes + 1
    self.boxes[index] = x
    self.box_index[x] = index
  end
  return {kind = "box", index = index}
end

function value_of(self, value)
  local kind = type(value)
  if kind == "userdata" and self.is_tensor(value) then return tensor_of(self, value) end
  if kind == "table" then return table_of(self, value) end
  if kind == "function" and not is_known_function(self, value) then
    self.problem = self.problem or "it makes a function that stays reachable"
  elseif kind == "thread" then
    self.problem = self.problem or "it keeps a coroutine"
  end
  return {kind = "constant", value = value}
end

--- templates:assign(change) adds an assignment that a hit makes. An assignment that gets a `step` later advances a
--- number by it instead.
function Template:assign(change)
  self.assignments[#self.assignments + 1] = {place = place.of_change(change), value = value_of(self, change.after)}
end

--- templates:returns(n, results) sets what a hit returns.
function Template:returns(n, results)
  for i = 1, n do self.result_list[i] = value_of(self, results[i]) end
end

--- templates:delivers(f, values) adds the call f(values[1], …) that a hit makes.
function Template:delivers(f, values)
  local list = {}
  for i, value in ipairs(values) do list[i] = value_of(self, value) end
  self.deliveries[#self.deliveries + 1] = {f = f, values = list}
end

--- templates:keeps(x): no pg.scope frees x where a hit makes it. All values must have been added.
function Template:keeps(x)
  if self.output_of[x] then self:delivers(core.keep, {x}) end
end

-- The text of a value for the signature. A table that was shown before is shown by its number.
local function show(v, shown)
  if v.kind == "output" then return "r" .. v.index end
  if v.kind == "box" then return "v" .. v.index end
  if v.kind == "node" then return v.node.argument and place.node_name(v.node) or tostring(v.node.table) end
  if v.kind == "constant" then return type(v.value) .. ":" .. (type(v.value) == "number" and ("%.17g"):format(v.value) or tostring(v.value)) end
  if shown[v] then return "t" .. v.index end
  shown[v] = true
  local parts = {}
  for _, entry in ipairs(v.entries) do parts[#parts + 1] = show(entry[1], shown) .. "=" .. show(entry[2], shown) end
  return "{" .. table.concat(parts, ",") .. "}"
end

--- templates:signature(step_of) -> a text that is equal for templates that return and assign the same. A number that
--- advances counts with its step only: step_of(i) returns the step of assignment i, or nil.
function Template:signature(step_of)
  local parts, shown = {}, {}
  for i, a in ipairs(self.assignments) do
    local step = step_of(i)
    parts[i] = step and ("%+.17g"):format(step) or show(a.value, shown)
  end
  for _, d in ipairs(self.deliveries) do
    parts[#parts + 1] = tostring(d.f)
    for _, v in ipairs(d.values) do parts[#parts + 1] = show(v, shown) end
  end
  parts[#parts + 1] = "|"
  for _, v in ipairs(self.result_list) do parts[#parts + 1] = show(v, shown) end
  return table.concat(parts, ";")
end

-- Code -----------------------------------------------------------------------------------------------------------------------

-- Names of values in generated code: locals in small entries, fields of the tables R and V in large ones.
local small_names = {output = "r%d", box = "v%d", table = "t%d", node = "n%d"}
local large_names = {output = "R[%d]", box = "V[%d]", table = "V.t%d", node = "V.n%d"}

local function expression(names, v)
  if v.kind == "node" and not v.node.by_path then return place.node_address(v.node) end
  if v.kind ~= "constant" then return {}, names[v.kind]:format(v.index) end
  local text = place.literal(v.value)
  if text then return {}, text end
  if v.value ~= v.value then return {}, "(0/0)" end
  return {{object = v.value}}, "$1"
end

local function assign(items, refs, target, more, text, prefix)
  local all, one, two = join(refs, target, more, text)
  items[#items + 1] = {refs = all, text = (prefix or "") .. one .. " = " .. two}
end

-- Assigns by rawset, for tables whose metatable may have __newindex.
local function assign_raw(items, node, key, more, text)
  local refs, target = place.node_address(node)
  local all = {unpack(refs)}
  local name = place.literal(key)
  if not name then
    all[#all + 1] = {object = key}
    name = "$" .. #all
  end
  local joined, one, two = join(all, target .. ", " .. name, more, text)
  joined[#joined + 1] = {object = rawset}
  items[#items + 1] = {refs = joined, text = "$" .. #joined .. "(" .. one .. ", " .. two .. ")"}
end

local function step_items(items, a)
  local refs, target = place.address(a.place)
  items[#items + 1] = {refs = refs, text = target .. " = " .. target .. " + " .. ("(%.17g)"):format(a.step)}
end

local function assignment_items(items, names, a)
  if a.step then return step_items(items, a) end
  local more, text = expression(names, a.value)
  local p = a.place
  if p.cell or p.node.foreign or (p.node.meta == nil and not p.node.environment) then
    local refs, target = place.address(p)
    return assign(items, refs, target, more, text)
  end
  assign_raw(items, p.node, p.key, more, text)
end

-- Returns refs, text of the expressions of these values, separated by commas.
local function list_of(names, values)
  local all, parts = {}, {}
  for i, v in ipairs(values) do
    local refs, text = expression(names, v)
    local joined, _, moved = join(all, "", refs, text)
    all, parts[i] = joined, moved
  end
  return all, table.concat(parts, ", ")
end

-- A call of more values gets them from a table, since each would take a slot of the stack while the call is prepared.
local kMostPassed = 100

local function delivery_item(names, d)
  local refs, text = list_of(names, d.values)
  if #d.values > kMostPassed then
    refs[#refs + 1] = {object = unpack}
    text = ("$%d({%s}, 1, %d)"):format(#refs, text, #d.values)
  end
  refs[#refs + 1] = {object = d.f}
  return {refs = refs, text = "$" .. #refs .. "(" .. text .. ")"}
end

-- Returns the statements in the order in which they must run. Old tensors, and old tables that are found by their path,
-- are fetched first, since assignments may replace them.
local function statements(self, names, declare)
  local items = {}
  for i, x in ipairs(self.boxes) do
    local fetch = self.fetch_of(x)
    items[#items + 1] = {refs = fetch.refs, text = declare .. names.box:format(i) .. " = " .. fetch.text}
  end
  for i, v in ipairs(self.moved) do
    if v.node.by_path then
      local refs, text = place.node_address(v.node)
      items[#items + 1] = {refs = refs, text = declare .. names.node:format(i) .. " = " .. text}
    end
  end
  for i in ipairs(self.tables) do items[#items + 1] = {refs = {}, text = declare .. names.table:format(i) .. " = {}"} end
  for i, t in ipairs(self.tables) do
    for _, entry in ipairs(t.entries) do
      local key_refs, key = expression(names, entry[1])
      local refs, value = expression(names, entry[2])
      assign(items, key_refs, names.table:format(i) .. "[" .. key .. "]", refs, value)
    end
  end
  for _, a in ipairs(self.assignments) do assignment_items(items, names, a) end   -- in the order of `order`
  for _, d in ipairs(self.deliveries) do items[#items + 1] = delivery_item(names, d) end
  return items
end

local function depth_of(node)
  if not node or not node.by_path then return 0 end
  node.depth = node.depth or depth_of(node.place.node) + 1
  return node.depth
end

-- Sorts the assignments. Those to tables found by their path run first, the innermost first, since others may replace a
-- table on the path.
local function order(self)
  local depths = {}
  for i, a in ipairs(self.assignments) do depths[a], a.number = depth_of(a.place.node), i end
  table.sort(self.assignments, function(a, b)
    if depths[a] ~= depths[b] then return depths[a] > depths[b] end
    return a.number < b.number
  end)
end

--- templates:measure() counts the variables and statements that the code needs. All values must have been added, and
--- the field fetch_of(box) -> {refs, text} must be set.
function Template:measure()
  order(self)
  self.small = statements(self, small_names, "local ")
  local seen, slots = {}, 0
  local function note(refs)
    for _, ref in ipairs(refs) do
      local key = chunks.identity(ref)
      if not seen[key] then
        seen[key] = true
        slots = slots + 1
      end
    end
  end
  for _, item in ipairs(self.small) do note(item.refs) end
  for _, v in ipairs(self.result_list) do note((expression(small_names, v))) end
  self.slots, self.statements = slots, #self.small + self.outputs + #self.result_list
end

function Template:emit_small(add) for _, item in ipairs(self.small) do add(item.refs, item.text) end end
function Template:items_large() return statements(self, large_names, "") end

--- templates:results(small) -> refs, text of the list of results, with the names of small or large entries.
function Template:results(small)
  return list_of(small and small_names or large_names, self.result_list)
end

--- templates:result_items() -> the results as a list of {refs, text}, with the names of large entries.
function Template:result_items()
  local items = {}
  for i, v in ipairs(self.result_list) do
    local refs, text = expression(large_names, v)
    items[i] = {refs = refs, text = text}
  end
  return items
end

return template
