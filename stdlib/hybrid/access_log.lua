-- The log of a traced call: what it read and wrote of the state from before the call. Reads become guards
-- (hybrid/guard.lua explains why that is enough). Only the first read of a place counts, and only if the call did not
-- write it before. Writes are recorded with the value that they replaced: the trace is rolled back to those, and each
-- hit repeats the writes.
--
-- A node is a table from before the call; a place is a field of a node, an upvalue or an argument (hybrid/place.lua).
local core = ...
local inspect = core.introspect
inspect.interpreted()
local library = core.require("hybrid.library")
local models = core.require("hybrid.host_functions")
local interpret = core.require("hybrid.interpret")
local place = core.require("hybrid.place")
local log = {}

local rawget, rawset, rawequal, type, next, ipairs = rawget, rawset, rawequal, type, next, ipairs
local raw_metatable, cell_of, kind_of, serial = inspect.raw_metatable, inspect.cell, inspect.kind, inspect.serial
local own_fields, none = library.own_fields, {}

log.big = 256          -- a plain table with more entries is guarded by identity and length when it is iterated

local Log = {}
Log.__index = Log

-- Nodes: tables from before the call -------------------------------------------------------------------------------------------

-- Returns the untraced fields (see library.untraced) of the first class of the library among a metatable's parents, or
-- nil, and the script's classes below it.
local function untraced_of(meta)
  local class, script = meta, {}
  for _ = 1, 50 do
    if type(class) ~= "table" then return nil, script end
    if library.is_class(class) then return library.untraced(class), script end
    class, script[#script + 1] = rawget(class, "super"), class
  end
end

local function add_metatable(node, meta)
  node.meta = meta
  if rawget(meta, "_is_class") then node.skipped = own_fields end
  local index = rawget(meta, "__index")
  if index ~= nil and type(index) ~= "table" then node.raw = true end
  if library.is_class(meta) then
    node.layer = rawget(meta, "_is_class") and not rawget(meta, "_is_base")
    node.untraced = library.untraced(meta)
  else node.untraced = untraced_of(meta) end
end

local function add_node(w, t, at, label)
  local node = w.node_of[t]
  if node then return node end
  if library.owns(t) or w.fresh[t] then return nil end
  node = {table = t, place = at, label = label, seen = {}, skipped = none, untraced = none}
  w.node_of[t] = node
  w.nodes[#w.nodes + 1] = node
  local meta = raw_metatable(t)
  if type(meta) == "table" then
    local name = rawget(meta, "_name") or rawget(meta, "name")
    if not at and not label and type(name) == "string" then node.label = name end
    add_metatable(node, meta)
    node.untraced = node.untraced or none
  else
    node.plain = true
    local owner = at and at.node   -- a plain table inside an object of the library has the same untraced fields
    if owner then node.untraced = owner.untraced end
    if owner and owner.argument then node.by_path, node.argument = true, true end
  end
  return node
end

-- Adds a struct or array of the FFI. Structs inside it are addressed by their path.
local function add_foreign(w, value, at)
  local node = {table = value, place = at, seen = {}, skipped = none, untraced = none, foreign = true}
  if at and at.node and at.node.foreign then node.by_path = true end
  w.node_of[value] = node
  w.nodes[#w.nodes + 1] = node
end

-- Whether the value is an options table of a library layer, which only the library writes.
local function is_private(node, key, value)
  return type(value) == "table" and node.layer and type(key) == "string" and key:byte() == 95 and raw_metatable(value) == nil
end

-- Sets the kind of a place by the value that it holds.
local function add_value(w, p)
  local value = p.value
  local kind = type(value)
  if kind == "table" then
    local node = add_node(w, value, p)
    p.kind, p.target = node and "table" or "same", node
  elseif kind == "function" then
    p.kind = kind_of(value) == "script" and "function" or "same"
    w.functions[value] = true
  elseif kind == "userdata" then p.kind = w.is_tensor(value) and "tensor" or "same"
  elseif kind == "cdata" then
    p.kind = p.node and p.node.foreign and "reference" or "same"
    add_foreign(w, value, p)
  elseif kind == "thread" then p.kind = "same"
  else p.kind = "scalar" end
end

local function is_made_here(w, value)
  if type(value) == "userdata" then return w.is_tensor(value) and w.serial(value) >= w.mark end
  return w.fresh[value]
end

local function add_place(w, p)
  if p.value ~= nil and is_made_here(w, p.value) then return end
  w.places[#w.places + 1] = p
  add_value(w, p)
end

-- Reads --------------------------------------------------------------------------------------------------------------------------

--- log:read(t, key, value): the call reads t[key], which holds value. Metatables are not involved.
function Log:read(t, key, value)
  if self.parent then self.parent:read(t, key, value) end
  local node = self.node_of[t]
  if not node or key == nil then return end
  local seen = node.seen
  if seen[key] or key ~= key then return end
  seen[key] = true
  local untraced = node.untraced[key]
  if node.skipped[key] or untraced == true then return end
  local p = {node = node, key = key, value = value}
  local kind = type(key)
  if kind ~= "string" and kind ~= "number" and kind ~= "boolean" then
    self.keyed[key] = true
    if kind == "table" then add_node(self, key, nil, "key") end
  end
  if untraced or is_private(node, key, value) then
    p.kind = "same"
    self.places[#self.places + 1] = p
  else add_place(self, p) end
end

--- log:knows(t) -> whether the log records reads of the table.
function Log:knows(t) return self.node_of[t] ~= nil end

--- log:reach(t): the call received a table from before the call from a C function.
function Log:reach(t)
  if self.parent then self.parent:reach(t) end
  add_node(self, t)
end

--- log:environment(t): t is the environment (the table of globals) of a script function.
function Log:environment(t)
  if self.parent then self.parent:environment(t) end
  if self.node_of[t] then return end
  local node = add_node(self, t)
  if node then node.environment = true end
end

--- log:metatable(t, meta): the call reads the metatable of t, which is meta.
function Log:metatable(t, meta)
  if self.parent then self.parent:metatable(t, meta) end
  local node = self.node_of[t]
  if not node or node.meta_read or node.new_meta then return end
  node.meta_read, node.meta = true, meta
  if type(meta) == "table" then
    local owner = add_node(self, meta, nil, {of = node, what = "'s metatable"})
    if owner and owner.untraced == none then owner.untraced = node.untraced end
    local index = rawget(meta, "__index")
    if type(index) == "table" and index ~= meta then
      local class = add_node(self, index, nil, {of = node, what = "'s class"})
      if class and class.untraced == none then class.untraced = node.untraced end
    end
  end
end

--- log:set_metatable(t): the call sets the metatable of t. No hit can repeat that.
function Log:set_metatable(t)
  if self.parent then self.parent:set_metatable(t) end
  local node = self.node_of[t]
  if not node then return end
  node.new_meta = node.new_meta or {before = raw_metatable(t)}
  self:refuse("it gives a table a metatable")
end

--- log:refuse(why): the call did something that a hit cannot repeat, so the function must run as plain Lua.
function Log:refuse(why)
  if self.parent then self.parent:refuse(why) end
  self.problem = self.problem or why
end

--- log:length(t): the call reads #t.
function Log:length(t)
  if self.parent then self.parent:length(t) end
  local node = self.node_of[t]
  if not node or node.length then return end
  node.length = node.length_before or #t
end

-- Whether the field belongs to the library; such fields do not count as entries.
local function is_own(node, key) return node.skipped[key] or node.untraced[key] end

--- log:entries(t): the call reads all entries of t, in the order of next.
function Log:entries(t)
  if self.parent then self.parent:entries(t) end
  local node = self.node_of[t]
  if not node or node.keys or node.big then return end
  local keys = {}
  for key in next, t do if not is_own(node, key) then keys[#keys + 1] = key end end
  if #keys > log.big and node.plain then
    node.big, node.size, node.length = true, #keys, node.length_before or #t
    return
  end
  for key, written in next, node.written or none do   -- restores the set of keys from before the call
    if written.before == nil and rawget(t, key) ~= nil then
      for i, k in ipairs(keys) do if rawequal(k, key) then table.remove(keys, i) break end end
      node.unordered = true
    elseif written.before ~= nil and rawget(t, key) == nil then
      keys[#keys + 1] = key
      node.unordered = true
    end
  end
  -- Fields that the library adds to its objects may change the order of the others.
  node.keys, node.unordered = keys, node.unordered or node.skipped ~= none or next(node.untraced) ~= nil
  for _, key in ipairs(keys) do self:read(t, key, rawget(t, key)) end
end

--- log:compare(x, y): the call compares the identities of x and y.
function Log:compare(x, y)
  if self.parent then self.parent:compare(x, y) end
  local a, b = self.node_of[x], self.node_of[y]
  if a and b then a.compared, b.compared = true, true end
  if type(x) == "function" then self.keyed[x], self.keyed[y] = true, true end
end

-- Variables ----------------------------------------------------------------------------------------------------------------------

local function variable(w, f, i, name, value)
  local id = cell_of(f, i)
  if not id or w.fresh_cells[id] then return nil end
  local p = w.cells[id]
  if not p then
    p = {cell = id, owner = f, index = i, name = name, value = value}
    w.cells[id] = p
  end
  return p
end

--- log:read_upvalue(frame, i, name, value): the call reads upvalue i of the frame's function.
function Log:read_upvalue(frame, i, name, value)
  if self.parent then self.parent:read_upvalue(frame, i, name, value) end
  if frame.library then return end
  local p = variable(self, frame.f, i, name, value)
  if not p or p.read or p.written then return end
  p.read = true
  add_place(self, p)
end

--- log:write_upvalue(frame, i): the call is about to write upvalue i of the frame's function.
function Log:write_upvalue(frame, i)
  if self.parent then self.parent:write_upvalue(frame, i) end
  if frame.library then return end
  local name, value = inspect.upvalue(frame.f, i)
  local p = variable(self, frame.f, i, name, value)
  if not p or p.written then return end
  p.written, p.before = true, value
  self.variables[#self.variables + 1] = p
end

--- log:made_function(f) and log:made_cell(id): the call made a closure, or a captured variable with that identity.
function Log:made_function(f)
  if self.parent then self.parent:made_function(f) end
  self.fresh[f] = true
end
function Log:made_cell(id)
  if self.parent then self.parent:made_cell(id) end
  self.fresh_cells[id] = true
end

--- log:escape(f): later runs call f, as in pg.live, when it reads its variables. Objects in variables that the call made
--- are those of this trace, so they are guarded by identity. Variables of the functions of a call site are collected in
--- log.ties: {f =, index =, own =}, where own names the function of the site and its upvalue.
function Log:escape(f)
  if self.escaped[f] then return end
  self.escaped[f], self.keyed[f] = true, true
  if type(f) ~= "function" or kind_of(f) ~= "script" then return end
  for i = 1, 255 do
    local id = cell_of(f, i)
    if not id then return end
    local _, value = inspect.upvalue(f, i)
    if self.own_cells[id] then
      inspect.jit_off(f)  -- its variables will be joined to others: see inspect.join
      self.ties[#self.ties + 1] = {f = f, index = i, own = self.own_cells[id]}
    elseif self.fresh_cells[id] then
      local kind = type(value)
      if kind == "function" then self:escape(value)
      elseif kind == "table" or kind == "userdata" or kind == "cdata" then self.keyed[value] = true end
    end
  end
end

-- Writes -------------------------------------------------------------------------------------------------------------------------

local function note_write(node, key, before)
  if node.skipped[key] or node.untraced[key] then return end
  local written = node.written
  if not written then
    written = {}
    node.written = written
  end
  if written[key] then return end
  written[key] = {before = before, read = node.seen[key]}
  node.seen[key] = true
end

--- log:write(t, key): the call is about to write t[key].
function Log:write(t, key)
  if self.parent then self.parent:write(t, key) end
  local node = self.node_of[t]
  if not node or key == nil or key ~= key then return end
  if type(key) == "number" then node.length_before = node.length_before or #t end
  note_write(node, key, rawget(t, key))
end

-- Whether a hit must repeat the write. Not needed if a guard ensures that the place already holds the same value. A
-- tensor may be a different one at a hit, so it is written (`all`).
local function is_change(before, now, read, all)
  if not read or (all and type(now) == "userdata") then return true end
  return not rawequal(before, now) and not (before ~= before and now ~= now)
end

local function by_key(a, b)
  local x, y = a.key, b.key
  if type(x) == "number" and type(y) == "number" then return x < y end
  if type(x) ~= type(y) then return type(x) == "number" end
  return tostring(x) < tostring(y)
end

local function now_at(node, key)
  if node.foreign then return node.table[key] end
  return rawget(node.table, key)
end

--- log:difference(all) -> a list of changes {node, key, before, after} or {cell, owner, index, name, before, after}, in
--- a stable order. all: includes writes of an equal value over a place without a guard.
function Log:difference(all)
  local changes = {}
  for _, node in ipairs(self.nodes) do
    local own = {}
    for key, written in next, node.written or none do
      local now = now_at(node, key)
      if is_change(written.before, now, not all or written.read, all) then own[#own + 1] = {node = node, key = key, before = written.before, after = now} end
    end
    table.sort(own, by_key)
    for _, change in ipairs(own) do changes[#changes + 1] = change end
  end
  for _, p in ipairs(self.variables) do
    local _, now = inspect.upvalue(p.owner, p.index)
    if is_change(p.before, now, not all or p.read, all) then
      changes[#changes + 1] = {cell = p.cell, owner = p.owner, index = p.index, name = p.name, before = p.before, after = now}
    end
  end
  return changes
end

--- log.roll_back(w, changes) restores the state from before the call.
function log.roll_back(w, changes)
  for i = #changes, 1, -1 do
    local change = changes[i]
    if change.cell then inspect.set_upvalue(change.owner, change.index, change.before)
    elseif change.node.foreign then change.node.table[change.key] = change.before
    else rawset(change.node.table, change.key, change.before) end
  end
  for _, node in ipairs(w.nodes) do
    if node.new_meta then inspect.set_raw_metatable(node.table, node.new_meta.before) end
  end
end

local function read_deeply(w, t, whole, open)
  if open[t] or not w.node_of[t] then return end
  open[t] = true
  local meta = raw_metatable(t)
  if meta ~= nil and not whole then return end
  w:metatable(t, meta)
  w:entries(t)
  for _, value in next, t do if type(value) == "table" then read_deeply(w, value, whole, open) end end
end

--- log:keep(p, value): a branch or loop that assigns the place may also leave it as it was. If it holds the value from
--- before the call, that counts as read, so that a hit fetches it from the place.
function Log:keep(p, value)
  if self.parent then self.parent:keep(p, value) end
  local own = p.cell and self.cells[p.cell] or p.node and self.node_of[p.node.table]
  local written = own and (p.cell and own or own.written and own.written[p.key])
  if not written or written.before == nil or not rawequal(written.before, value) then return end
  if not written.read then
    written.read = true
    add_place(self, p.cell and own or {node = own, key = p.key, value = value})
  end
  if type(value) == "table" then read_deeply(self, value, false, {}) end
end

core.require("hybrid.foreign_fields")(Log, {read_deeply = read_deeply, add_place = add_place, note_write = note_write})
core.require("hybrid.foreign_calls")(Log, read_deeply)

-- Arguments --------------------------------------------------------------------------------------------------------------------------

local function add_arguments(w, n, arguments, names)
  local packed = place.are_packed(n)
  for i = 1, n do
    local value = arguments[i]
    local p = {argument = i, packed = packed, value = value, name = names and names[i]}
    w.places[#w.places + 1] = p
    add_value(w, p)
    local node = p.target
    if node and node.plain and node.place == p then node.by_path, node.argument = true, true end  -- each call may pass another table
  end
end

--- log.new{root =, label =, n =, arguments =, code =, mark =, is_tensor =, serial =} -> a log. root: the called object,
--- which messages name by label. n, arguments: those of the call. names: those of upvalues among the arguments, by
--- position. code: functions whose upvalues are arguments. mark:
--- the serial number of the first tensor that the call makes; is_tensor and serial replace the library's functions in
--- tests. A log without root and code that is made while another log is active is nested in it: both record what the
--- nested one records.
function log.new(options)
  options = options or {}
  library.refresh()
  local w = setmetatable({
    parent = not options.root and not options.code and models.log or nil,
    nodes = {}, node_of = {}, places = {}, functions = {}, cells = {}, variables = {}, keyed = {}, attributes = {},
    fresh = setmetatable({}, {__mode = "k"}), fresh_cells = {}, own_cells = {}, escaped = {}, ties = {}, outsiders = {}, epoch = core.graphs.epoch,
    is_tensor = options.is_tensor or core.is_tensor, serial = options.serial or serial, mark = options.mark or inspect.next_serial(),
  }, Log)
  if type(options.root) == "table" then add_node(w, options.root, nil, options.label or "self") end
  for k, f in ipairs(options.code or none) do
    for i = 1, 255 do
      local id = cell_of(f, i)
      if not id then break end
      w.fresh_cells[id], w.own_cells[id] = true, w.own_cells[id] or {k, i}
    end
  end
  add_arguments(w, options.n or 0, options.arguments, options.names)
  return w
end

--- log.run(w, f, …) -> what f(…) returns, interpreted. Its reads and writes go to the log w.
function log.run(w, f, ...)
  local outer = models.log
  local function undo() models.log = outer end
  local function start(...)
    models.log = w
    return interpret.run(w, f, ...)
  end
  return core.finally(undo, start, ...)
end

return log
