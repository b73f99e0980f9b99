-- Walks what a Lua function can reach and may read: fields, metatables, upvalues, globals. The walk is the snapshot to which a
-- trace rolls back, and the list of places that guards are made of.
local core = ...
local inspect = core.introspect
inspect.interpreted()   -- runs seldom, and over tables of every form
local library = core.require("hybrid.library")
local walk = {}

local rawget, rawset, type, next, pairs, ipairs = rawget, rawset, type, next, pairs, ipairs
local raw_metatable, upvalue, cell_of, kind_of = inspect.raw_metatable, inspect.upvalue, inspect.cell, inspect.kind
local own_fields, none = library.own_fields, {}

walk.big = 256          -- entries of a table beyond which they are not guarded one by one
walk.budget = 20000     -- tables and functions

local metamethods = {}
for name in ("index newindex call add sub mul div mod pow unm concat len eq lt le tostring"):gmatch("%a+") do
  metamethods["__" .. name] = true
end

local scans = setmetatable({}, {__mode = "k"})

-- Cached by function, and by prototype for the fresh closures of one function expression.
local by_prototype = {}

local function scan(f)
  local found = scans[f]
  if found then return found end
  local prototype = inspect.prototype(f)
  local entry = prototype and by_prototype[prototype]
  if entry and entry.f then found = entry.found
  else
    found = inspect.scan(f)
    if prototype then by_prototype[prototype] = setmetatable({f = f, found = found}, {__mode = "v"}) end
  end
  scans[f] = found
  return found
end

local Walk = {}
Walk.__index = Walk

local copy_entries, differences = inspect.copy, inspect.differences

local add_table, add_function, add_value

-- The methods that a script's optimizer, metric or the like defines are called by the library, under names of its own.
local function open_classes(w, classes, untraced)
  for _, class in ipairs(classes) do
    local node = w.node_of[class]
    if node and not node.all then
      node.all, node.untraced, node.generation = true, untraced, -1
      w.generation = w.generation + 1
    end
  end
end

-- What a metatable tells: which class the object is of, and where absent fields come from.
local function add_metatable(w, node, meta)
  node.meta = meta
  if rawget(meta, "_class_meta") then
    local parent = rawget(meta, "__index")
    if type(parent) == "table" and not library.owns(parent) then add_table(w, parent) end
    return
  end
  if library.owns(meta) then
    node.library_class = library.is_class(meta) and meta
    node.layer = rawget(meta, "_is_class") and not rawget(meta, "_is_base")
    if node.library_class then node.own, node.untraced = library.keys(meta), library.untraced(meta) end
    if rawget(node.table, "hybrid_forward") or rawget(meta, "_reads_all") then node.all = true end
    return
  end
  local index = rawget(meta, "__index")
  if index ~= nil and type(index) ~= "table" then node.raw = true end
  local meta_node = add_table(w, meta, nil, {of = node, what = "'s metatable"})
  if meta_node and not rawget(meta, "_is_class") then meta_node.own = metamethods end
  if type(index) == "table" and index ~= meta and not library.owns(index) then
    add_table(w, index, nil, {of = node, what = "'s class"})
  end
  local class, chain = index, {}
  while type(class) == "table" and #chain < 50 do   -- the layers of the library among the parents
    if library.is_class(class) then
      node.own, node.untraced = library.keys(class), library.untraced(class)
      if not rawget(meta, "_is_class") then open_classes(w, chain, node.untraced) end
      break
    end
    class, chain[#chain + 1] = rawget(class, "super"), class
  end
end

-- The table of globals, reached as a value.
local function open_environment(w, node)
  node.environment, node.globals = false, true
  node.before, node.size = copy_entries(node.table)
  node.plain = node.meta == nil
  node.generation = -1
  w.generation = w.generation + 1
  return node
end

function add_table(w, t, at, label)
  local node = w.node_of[t]
  if node then return node.environment and open_environment(w, node) or node end
  if library.owns(t) then return nil end
  if w.count >= walk.budget then
    w.exhausted = true
    return nil
  end
  w.count = w.count + 1
  node = {table = t, place = at, label = label, done = {}, generation = -1, skipped = none}
  node.before, node.size = copy_entries(t)
  w.node_of[t] = node
  w.nodes[#w.nodes + 1] = node
  local meta = raw_metatable(t)
  if type(meta) == "table" then
    if rawget(meta, "_is_class") then node.skipped = own_fields end
    local name = rawget(meta, "_name") or rawget(meta, "name")
    if not at and not label and type(name) == "string" then node.label = name end
    add_metatable(w, node, meta)
  else
    node.plain = true
    local owner = at and at.node   -- plain tables of an object of the library are read by the same methods
    if owner then node.own, node.untraced = owner.own, owner.untraced end
  end
  node.big = node.plain and node.size > walk.big
  return node
end

-- Notes that functions of this environment read these globals.
local function add_environment(w, env, names)
  local node = w.node_of[env]
  if not node then
    node = {table = env, skipped = none, environment = true, names = {}, before = {}, done = {}, generation = -1, raw = false}
    w.node_of[env] = node
    w.nodes[#w.nodes + 1] = node
    local meta = raw_metatable(env)
    if type(meta) == "table" then
      node.meta = meta
      if type(rawget(meta, "__index")) ~= "table" then node.raw = rawget(meta, "__index") ~= nil end
    end
  end
  node.names = node.names or {}
  for _, name in ipairs(names) do
    if not node.names[name] then
      node.names[name] = true
      if node.environment then node.before[name] = rawget(env, name) end
      node.generation = -1
    end
  end
  local index = node.meta and rawget(node.meta, "__index")
  if type(index) == "table" and index ~= env and not library.owns(index) then
    local missing = {}
    for _, name in ipairs(names) do if rawget(env, name) == nil then missing[#missing + 1] = name end end
    if missing[1] then add_environment(w, index, missing) end
  end
end

local function add_strings(w, found)
  for _, name in ipairs(found.strings) do
    if not w.keys[name] then
      w.keys[name] = true
      w.generation = w.generation + 1
    end
    if library.iterators[name] and not w.computes then
      w.computes = true
      w.generation = w.generation + 1
    end
  end
  if found.computes and not w.computes then
    w.computes = true
    w.generation = w.generation + 1
  end
end

function add_function(w, f)
  if w.functions[f] then return end
  if w.count >= walk.budget then
    w.exhausted = true
    return
  end
  w.count = w.count + 1
  local found = scan(f)
  w.functions[f] = found
  w.function_list[#w.function_list + 1] = f
  add_strings(w, found)
  add_environment(w, inspect.environment(f), found.globals)
  if not inspect.knows_bytecode() then add_table(w, inspect.environment(f)) end  -- any global may be one of f's
  for i = 1, 255 do
    local name, value = upvalue(f, i)
    if not name then break end
    if (value == pairs or value == next or value == rawget) and not w.computes then
      w.computes = true
      w.generation = w.generation + 1
    end
    local id = cell_of(f, i)
    if w.cells[id] then w.cells[id].lent = false
    else
      local p = {cell = id, owner = f, index = i, name = name, value = value, frozen = found.frozen[i], lent = found.lent[i]}
      w.cells[id] = p
      w.places[#w.places + 1] = p
      add_value(w, p)
    end
  end
end

-- Sorts out what the place holds and walks on.
function add_value(w, p)
  local value = p.value
  local kind = type(value)
  if kind == "table" then
    if library.owns(value) then p.kind = "same"
    else
      local node = add_table(w, value, p)
      p.kind, p.target = node and "table" or "same", node
    end
  elseif kind == "function" then
    p.kind = "same"
    if kind_of(value) == "script" then
      p.kind = "function"
      add_function(w, value)
    end
  elseif kind == "userdata" then p.kind = w.is_tensor(value) and "tensor" or "same"
  elseif kind == "thread" or kind == "cdata" then p.kind = "same"
  else p.kind = "scalar" end
end

local function is_guarded(w, node, key)
  if type(key) == "string" then
    if node.skipped[key] or (node.untraced and node.untraced[key] == true) then return false end
    if node.names and node.names[key] then return true end
    if node.environment then return false end
    return w.keys[key] or w.computes or node.all or (node.own and node.own[key]) or (node.plain and w.attributes[key]) or false
  end
  if node.environment then return false end
  if type(key) == "number" then return true end
  return w.computes or node.all or false
end

-- Tables in which layers of the library keep their options: nobody else writes them.
local function is_private(node, key, value)
  return type(value) == "table" and node.layer and type(key) == "string" and key:byte() == 95 and raw_metatable(value) == nil
end

local function add_entry(w, node, key, value)
  node.done[key] = true
  if type(key) ~= "string" then w.keyed[key] = true end
  if (node.environment or node.globals) and library.is_standard(value) then return end
  local p = {node = node, key = key, value = value}
  w.places[#w.places + 1] = p
  if (node.untraced and node.untraced[key]) or is_private(node, key, value) then p.kind = "same" else add_value(w, p) end
end

-- The entries of a big table that functions name; the others are covered by its length.
local function visit_big(w, node)
  for name in next, w.keys do
    local value = rawget(node.table, name)
    if value ~= nil and not node.done[name] then add_entry(w, node, name, value) end
  end
end

local function visit(w, node)
  if node.environment then
    for name in next, node.names do
      if not node.done[name] then add_entry(w, node, name, node.before[name]) end
    end
    return
  end
  if node.big then return visit_big(w, node) end
  local list, rest = {}, {}
  for key in next, node.before do
    if not node.done[key] and is_guarded(w, node, key) then
      if type(key) == "number" then list[#list + 1] = key else rest[#rest + 1] = key end
    end
  end
  table.sort(list)
  table.sort(rest, function(a, b) return tostring(a) < tostring(b) end)
  for _, key in ipairs(list) do add_entry(w, node, key, node.before[key]) end
  for _, key in ipairs(rest) do add_entry(w, node, key, node.before[key]) end
end

local function settle(w)
  repeat
    local generation, i = w.generation, 1
    while i <= #w.nodes do   -- grows while it is walked
      local node = w.nodes[i]
      if node.generation ~= w.generation then
        node.generation = w.generation
        visit(w, node)
      end
      i = i + 1
    end
  until generation == w.generation
end

-- An argument that is a plain table is addressed by its path: each call brings another.
local function add_argument_table(w, t, at)
  local node = w.node_of[t]
  if node then return node end
  node = add_table(w, t, at)
  if node and node.plain then node.by_path, node.all, node.argument, node.big = true, true, true, false end
  return node
end

local function add_arguments(w, n, arguments)
  for i = 1, n do
    local value = arguments[i]
    local p = {argument = i, value = value, root = true}
    w.places[#w.places + 1] = p
    if type(value) == "table" and raw_metatable(value) == nil and not library.owns(value) then
      p.target = add_argument_table(w, value, p)
      p.kind = p.target and "table" or "same"
    else
      add_value(w, p)
    end
  end
end

-- Plain tables inside arguments are addressed by path as well.
local function spread_paths(w)
  for _, p in ipairs(w.places) do
    local target = p.target
    if target and p.node and p.node.argument and target.plain and target.place == p and not target.by_path then
      target.by_path, target.all, target.argument = true, true, true
      target.generation = -1
      w.generation = w.generation + 1
    end
  end
end

-- What a function names, without what it holds.
local function add_code(w, f)
  local found = scan(f)
  w.functions[f] = found
  add_strings(w, found)
  add_environment(w, inspect.environment(f), found.globals)
  for i = 1, 255 do
    local name, value = upvalue(f, i)
    if not name then break end
    if value == pairs or value == next or value == rawget then w.computes = true end
  end
end

--- walk.run{root =, label =, n =, arguments =, code =, is_tensor =} -> a walk: nodes (tables), places, functions, cells, keyed (what is a
--- key of a table: only the very same will do). root is a function or an object; code: functions whose upvalues are arguments.
function walk.run(options)
  library.refresh()
  local w = setmetatable({
    nodes = {}, node_of = {}, places = {}, functions = {}, function_list = {}, cells = {}, keys = {}, count = 0, generation = 0,
    computes = false, keyed = {}, attributes = library.attributes(), is_tensor = options.is_tensor or core.is_tensor,
  }, Walk)
  for _, name in ipairs{"forward", "hybrid_forward", "infer_shape"} do w.keys[name] = true end
  for _, f in ipairs(options.code or none) do add_code(w, f) end
  local root = options.root
  if type(root) == "function" then
    if kind_of(root) == "script" then add_function(w, root) end
  else
    add_table(w, root, nil, options.label or "self")
  end
  add_arguments(w, options.n, options.arguments)
  local generation
  repeat
    settle(w)
    generation = w.generation
    spread_paths(w)
  until generation == w.generation
  return w
end

--- walk.keys_only_in(w, functions) -> the set of names that stand in these functions (a set), which the functions of the walk make,
--- and nowhere else in them.
function walk.keys_only_in(w, functions)
  local uses, only = {}, {}
  for _, f in ipairs(w.function_list) do
    local found = w.functions[f]
    for i, name in ipairs(found.strings) do uses[name] = (uses[name] or 0) + found.uses[i] end
  end
  for f in next, functions do
    local found = kind_of(f) == "script" and scan(f) or {strings = {}}
    for i, name in ipairs(found.strings) do
      uses[name] = (uses[name] or 0) - found.uses[i]
      if uses[name] == 0 then only[name] = true end
    end
  end
  return only
end

-- Reads of absent fields ---------------------------------------------------------------------------------------------------

-- Puts a function that notes (t, key) before an entry of a metatable that is nil, a function or a table.
local function noting_read(note, index)
  if type(index) == "function" then
    return function(t, key)
      note(t, key)
      return index(t, key)
    end
  elseif index == nil then return note end
  return function(t, key)
    note(t, key)
    return index[key]
  end
end

local function noting_write(note, newindex)
  if type(newindex) == "function" then
    return function(t, key, value)
      note(t, key)
      newindex(t, key, value)
    end
  elseif newindex == nil then
    return function(t, key, value)
      note(t, key)
      rawset(t, key, value)
    end
  end
  return function(t, key, value)
    note(t, key)
    newindex[key] = value
  end
end

local function make_note(node_of, absent, keyed)
  return function(t, key)
    local node = node_of[t]
    if not node or key == nil or key ~= key or node.skipped[key] or (node.untraced and node.untraced[key] == true) then return end
    local keys = absent[node]
    if not keys then
      keys = {}
      absent[node] = keys
    end
    keys[key] = true
    if type(key) ~= "string" then keyed[key] = true end
  end
end

--- w:watch() notes from now on which absent fields of its tables are read (w.absent) and assigned (w.made) by node;
--- w:unwatch() ends that, wherever watch() got to. It takes no memory and may run twice: see core.finally.
function Walk:watch()
  self.absent, self.made, self.patched = {}, {}, {}
  local note, note_made, patched = make_note(self.node_of, self.absent, self.keyed), make_note(self.node_of, self.made, self.keyed), self.patched
  local recorder = {__index = note, __newindex = noting_write(note_made)}
  core.recorders[recorder] = true
  self.recorder = recorder
  for _, node in ipairs(self.nodes) do
    local meta = node.meta
    if not meta then
      if not node.environment then inspect.set_raw_metatable(node.table, recorder) end
    elseif not patched[meta] then
      local index, newindex = rawget(meta, "__index"), rawget(meta, "__newindex")
      patched[meta] = {index = index, newindex = newindex}
      rawset(meta, "__index", noting_read(note, index))
      rawset(meta, "__newindex", noting_write(note_made, newindex))
    end
  end
end

function Walk:unwatch()
  if not self.recorder then return end
  for meta, saved in next, self.patched do
    rawset(meta, "__index", saved.index)
    rawset(meta, "__newindex", saved.newindex)
  end
  for _, node in ipairs(self.nodes) do
    if not node.meta and not node.environment then
      if raw_metatable(node.table) == self.recorder then inspect.set_raw_metatable(node.table, nil) end
    end
  end
  core.recorders[self.recorder] = nil
end

--- w:has_new_metatables() -> whether a table got another metatable since the walk; not while it is watched.
function Walk:has_new_metatables()
  for _, node in ipairs(self.nodes) do
    if (node.meta or not node.environment) and raw_metatable(node.table) ~= node.meta then return true end
  end
  return false
end

-- Differences ----------------------------------------------------------------------------------------------------------------

local function differs(a, b) return not rawequal(a, b) and not (a ~= a and b ~= b) end

local function diff_node(changes, node)
  local t, before = node.table, node.before
  if node.environment then
    for name in next, node.names do
      local now = rawget(t, name)
      if differs(now, before[name]) then changes[#changes + 1] = {node = node, key = name, before = before[name], after = now} end
    end
    return
  end
  local skipped, untraced = node.skipped, node.untraced or none
  for _, key in ipairs(differences(t, before)) do
    if not skipped[key] and not untraced[key] then
      changes[#changes + 1] = {node = node, key = key, before = before[key], after = rawget(t, key)}
    end
  end
end

local function by_key(a, b)
  local x, y = a.key, b.key
  if type(x) == "number" and type(y) == "number" then return x < y end
  if type(x) ~= type(y) then return type(x) == "number" end
  return tostring(x) < tostring(y)
end

--- w:difference() -> a list of changes {node, key, before, after} or {cell, …} since the walk, in a stable order.
function Walk:difference()
  local changes = {}
  for _, node in ipairs(self.nodes) do
    local own = {}
    diff_node(own, node)
    table.sort(own, by_key)
    node.changed = {}
    for _, change in ipairs(own) do
      changes[#changes + 1] = change
      node.changed[change.key] = true
    end
  end
  for _, p in ipairs(self.places) do
    if p.cell then
      local _, now = upvalue(p.owner, p.index)
      if differs(now, p.value) then
        changes[#changes + 1] = {cell = p.cell, owner = p.owner, index = p.index, name = p.name, before = p.value, after = now}
      end
    end
  end
  return changes
end

--- walk.roll_back(changes) puts everything back.
function walk.roll_back(changes)
  for i = #changes, 1, -1 do
    local change = changes[i]
    if change.cell then inspect.set_upvalue(change.owner, change.index, change.before)
    else rawset(change.node.table, change.key, change.before) end
  end
end



return walk
