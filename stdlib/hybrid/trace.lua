-- Makes a cache entry of one call: traces and logs it, rolls back its assignments, then makes guards and templates.
local core = ...
local inspect = core.introspect
inspect.interpreted()
local is_param = core.require("param").is
local logs = core.require("hybrid.access_log")
local guard = core.require("hybrid.guard")
local place = core.require("hybrid.place")
local template = core.require("hybrid.write_back")
local run_hooks = core.require("hybrid.run_hooks")
local trace = {}

local type, ipairs, next, rawget = type, ipairs, next, rawget

--- trace.backend: what traces and runs programs; pg.testing.graph_backend puts a model of it here.
trace.backend = {
  trace = core.trace, run = core.run,
  is_tensor = core.is_tensor, serial = inspect.serial, next_serial = inspect.next_serial, distinct = inspect.distinct,
}

-- Names of places, the same in all traces of a cache -----------------------------------------------------------------------------

local function child(of, key)
  local name = of[key]
  if not name then
    name = {}
    of[key] = name
  end
  return name
end

-- Variables are identified by their address. Once the function that held the variable is collected, the address may be
-- that of another variable; then the name is made anew.
local function cell_name(names, p)
  local known = child(names, "cells")[p.cell]
  if not known or not known.owner.f then
    known = {owner = setmetatable({f = p.owner}, {__mode = "v"})}
    names.cells[p.cell] = known
  end
  return known
end

-- Returns the name of a place: a table that is the same for the same place in every trace of the cache. Tables are
-- identified by identity, or by their path if they get replaced.
local function name_of(names, p)
  if p.argument then return child(child(names, "arguments"), p.argument) end
  if p.cell then return cell_name(names, p) end
  local node = p.node
  if node.by_path then
    node.path_name = node.path_name or name_of(names, node.place)
    return child(node.path_name, p.key)
  end
  local known = names.tables[node.table]
  if not known then
    known = {}
    names.tables[node.table] = known
  end
  return child(known, p.key)
end
trace.name_of = name_of

--- trace.new_names() -> an empty set of such names.
function trace.new_names() return {tables = setmetatable({}, {__mode = "k"})} end

-- Marks plain tables that were replaced before, and plain tables inside them, to be addressed by their path.
local function apply_paths(cache, w)
  local changed
  repeat
    changed = false
    for _, p in ipairs(w.places) do
      local node = p.target
      if node and node.plain and not node.by_path and node.place == p then
        if cache.paths[name_of(cache.names, p)] or (p.node and p.node.by_path) then
          node.by_path, changed = true, true
        end
      end
    end
  until not changed
end

-- Guards ---------------------------------------------------------------------------------------------------------------------

local function describe(kind, p, expected) return {kind = kind, place = p, expected = expected} end

local function add_table_guard(w, guards, p)
  local node = p.target
  if not node.by_path or w.keyed[node.table] then return guards:identical(p, node.table, describe("table", p, node.table)) end
  if node.place == p then return guards:plain_table(p, describe("structure", p, node.table)) end
  guards:equal(p, node.place, describe("alias", p))
end

-- Adds the guard of a place. Tensors are only collected in boxes; add_tensors guards them.
local function add_place(cache, w, guards, p, boxes)
  if p.kind == "tensor" then
    local list = boxes.places[p.value]
    if not list then
      list = {}
      boxes.places[p.value] = list
      boxes.order[#boxes.order + 1] = p.value
    end
    list[#list + 1] = p
    return
  end
  if p.kind == "reference" then return end
  if p.kind == "existence" then return guards:existence(p, p.value ~= nil, describe("existence", p, p.value)) end
  if p.kind == "table" then return add_table_guard(w, guards, p) end
  if p.kind == "function" and not w.keyed[p.value] then return guards:same_function(p, p.value, describe("function", p, p.value)) end
  if p.kind == "same" or p.kind == "function" then return guards:identical(p, p.value, describe("object", p, p.value)) end
  if type(p.value) == "number" and cache:is_freed(name_of(cache.names, p)) then return guards:is_a(p, "number", describe("number", p)) end
  guards:scalar(p, p.value, describe("scalar", p, p.value))
end

local function add_node(cache, guards, node)
  if node.big then
    cache:warn_once("big" .. place.node_name(node), ("%s has %d entries; more than %d are guarded by identity and length only"):format(
      place.node_name(node), node.size, logs.big))
  end
  if node.length then guards:length(node, node.length, {kind = "length", node = node, expected = node.length}) end
  if node.keys then guards:keys(node, {kind = "count", node = node, expected = #node.keys}) end
  if node.meta_read and not (node.by_path and node.plain) then guards:metatable(node, {kind = "metatable", node = node}) end
end

-- Two tables of the log must not become one table, where one of them is found by its path and one is written or
-- compared.
local function add_apart(w, guards)
  local touched = {}
  for i, node in ipairs(w.nodes) do
    node.number = i
    if (node.written or node.compared) and not node.foreign then touched[#touched + 1] = node end
  end
  for _, node in ipairs(touched) do
    for i, other in ipairs(w.nodes) do
      local first = not (other.written or other.compared) or node.number < i
      if other ~= node and first and not other.foreign and (node.by_path or other.by_path) then
        guards:two(node, other, {kind = "alias", place = node.place})
      end
    end
  end
end

-- Tensors --------------------------------------------------------------------------------------------------------------------

-- Chooses where a hit fetches the tensor: from an argument, a confirmed place (see confirm), the first place that held
-- it, or the box itself, which the entry then holds. Adds the guards of all places that held it.
local function choose(cache, boxes, guards, box, needs_identity)
  local list = boxes.places[box] or {}
  local main, confirmed
  for _, p in ipairs(list) do
    if p.argument or (p.node and p.node.argument) then main = main or p end
  end
  if main then confirmed = true end
  if boxes.keyed[box] then confirmed, needs_identity = false, true end
  if not boxes.held[box] then
    for _, p in ipairs(list) do
      if not main and cache.confirmed[name_of(cache.names, p)] then main, confirmed = p, not boxes.keyed[box] end
    end
    main = main or list[1]
  end
  if main and not boxes.held[box] then
    if confirmed or not needs_identity then guards:is_a(main, "userdata", describe("tensor", main))
    else guards:identical(main, box, describe("replaced", main, box)) end
    boxes.main[box] = main
  else
    boxes.held[box] = true
  end
  for _, p in ipairs(list) do
    if boxes.held[box] or p ~= main then
      if boxes.held[box] then guards:identical(p, box, describe("replaced", p, box))
      else guards:equal(p, main, describe("alias", p)) end
    end
  end
end

local function fetch_of(boxes, box)
  local main = boxes.main[box]
  if not main then return {refs = {{object = box}}, text = "$1"} end
  local refs, text = place.address(main)
  return {refs = refs, text = text}
end

-- Guards that all these tensors are different boxes. The program checks that for its own inputs only.
local function add_distinct(guards, boxes, inputs, others)
  local fetches = {}
  for _, list in ipairs{inputs, others} do
    for _, box in ipairs(list) do fetches[#fetches + 1] = fetch_of(boxes, box) end
  end
  if #fetches > 1 then guards:distinct(fetches, trace.backend.distinct, {kind = "alias"}) end
end

local function add_tensors(cache, guards, boxes, captured, templates)
  local inputs, others, is_input = {}, {}, {}
  for _, c in ipairs(captured) do
    if not is_input[c.box] then
      is_input[c.box] = true
      inputs[#inputs + 1] = c.box
      choose(cache, boxes, guards, c.box, true)
    end
  end
  for _, box in ipairs(boxes.order) do if not is_input[box] then others[#others + 1] = box end end
  local returned = {}
  for _, box in ipairs(templates.boxes) do
    returned[box] = true
    if not is_input[box] and not boxes.places[box] then boxes.held[box] = true end
  end
  for _, box in ipairs(others) do choose(cache, boxes, guards, box, returned[box]) end
  if #others > 0 then add_distinct(guards, boxes, inputs, others) end
end

-- Numbers that the function advances -----------------------------------------------------------------------------------------

local function is_counter(change) return type(change.before) == "number" and type(change.after) == "number" end

local kRepeats = 8

-- Whether the number had a different value in each of the traces.
local function never_repeats(series, name)
  local seen = {}
  for _, row in ipairs(series) do
    local before = row[name]
    if before == nil or seen[before] then return false end
    seen[before] = true
  end
  return true
end

local function free(cache, change, name, signature)
  local known = cache.freed[name] or {}
  cache.freed[name] = known
  known[signature] = true
  local label = place.name(place.of_change(change))
  cache:warn_once("free" .. label, ("%s never repeated in %d traces that gave the same graph: it is no longer guarded, each call advances "
    .. "it by %.14g"):format(label, kRepeats, change.after - change.before), true)
end

-- Records this trace, and stops guarding the numbers that never repeated in kRepeats traces in a row with the same
-- signature. They stay unguarded only in traces with that signature: a script that branches on the number gives another
-- signature.
local function free_counters(cache, changes, signature)
  local numbers, any = {}, false
  for _, change in ipairs(changes) do
    if is_counter(change) then numbers[name_of(cache.names, change)], any = change.before, true end
  end
  local series = cache.series
  if series.signature ~= signature then
    series = {signature = signature}
    cache.series = series
  end
  cache.signature = signature
  if not any then return end
  series[#series + 1] = numbers
  if #series > kRepeats then table.remove(series, 1) end
  if #series < kRepeats then return end
  for _, change in ipairs(changes) do
    local name = is_counter(change) and name_of(cache.names, change)
    if name and not cache:is_freed(name) and never_repeats(series, name) then free(cache, change, name, signature) end
  end
end

-- One trace --------------------------------------------------------------------------------------------------------------------

local function pack(...) return {n = select("#", ...), ...} end

local function build_templates(w, t, changes, results, mark, hooks)
  local templates = template.new{log = w, trace = t, mark = mark, is_tensor = trace.backend.is_tensor, serial = trace.backend.serial}
  for _, change in ipairs(changes) do templates:assign(change) end
  for _, d in ipairs(hooks.deliveries) do templates:delivers(d.f, d.values) end
  templates:returns(results.n - 3, {unpack(results, 4, results.n)})
  for _, x in ipairs(hooks.kept) do templates:keeps(x) end
  templates.problem = w.problem or templates.problem
  return templates
end

local function add_guards(cache, w, boxes)
  local guards = guard.new()
  for _, p in ipairs(w.places) do add_place(cache, w, guards, p, boxes) end
  for _, node in ipairs(w.nodes) do add_node(cache, guards, node) end
  add_apart(w, guards)
  return guards
end

local function written_cells(changes)
  local written = {}
  for _, change in ipairs(changes) do if change.cell then written[change.cell] = true end end
  return written
end

-- Returns the tensors by the names of their places, so that a later trace can see which were replaced.
local function captured_places(cache, boxes, captured, templates)
  local found = {}
  local function note(box)
    for _, p in ipairs(boxes.places[box] or {}) do
      if not p.argument then found[name_of(cache.names, p)] = box end
    end
  end
  for _, c in ipairs(captured) do note(c.box) end
  for _, box in ipairs(templates.boxes) do note(box) end
  return found
end

-- Confirms the places where this trace found another tensor than the entries that did not fit. From now on the tensor
-- is fetched from there at each call, without a guard on its identity.
local function confirm(cache, attempt, captured)
  for _, note in ipairs(attempt) do
    for name, box in next, note.entry.captured do
      local now = captured[name]
      if now ~= nil and not rawequal(now, box) then cache.confirmed[name] = true end
    end
  end
end

-- Names the graph's inputs: parameters by their path, arguments as in an export, other tensors by their place.
local function name_inputs(cache, w, t, captured)
  local at, arguments, names, parameters = {}, {}, {}, {}
  for _, p in ipairs(w.places) do
    local box = p.kind == "tensor" and p.value
    if box and (p.argument or (p.node and p.node.argument)) then
      if not arguments[box] then
        arguments[#arguments + 1] = box
        arguments[box] = #arguments
      end
    end
    if box and not at[box] then at[box] = p end
  end
  local own = type(cache.root) == "table" and rawget(cache.root, "_arguments") or {}
  for i, c in ipairs(captured) do
    local position = arguments[c.box]
    parameters[i] = not position and is_param(c.box)
    if position then names[i] = #own == #arguments and own[position] or #arguments == 1 and "data" or "data" .. position
    else names[i] = c.box.name or at[c.box] and place.name(at[c.box]) or false end
  end
  t:name_inputs(names, parameters)
end

local function finish_entry(cache, w, t, changes, templates, n, attempt, hooks)
  local captured = t:captured()
  local text = t:text()
  if t.name_inputs then name_inputs(cache, w, t, captured) end
  local program = t:finish(cache.options)
  if core.graphs.through_files and type(program) == "userdata" then program = core.graph.roundtrip(program) end
  local boxes = {places = {}, order = {}, main = {}, held = {}, keyed = w.keyed}
  free_counters(cache, changes, text .. "\n" .. templates:signature(function(i)
    return is_counter(changes[i]) and changes[i].after - changes[i].before
  end))
  for i, a in ipairs(templates.assignments) do
    local change = changes[i]
    if is_counter(change) and cache:is_freed(name_of(cache.names, change)) then a.step = change.after - change.before end
  end
  local guards = add_guards(cache, w, boxes)
  local known = captured_places(cache, boxes, captured, templates)
  confirm(cache, attempt, known)
  add_tensors(cache, guards, boxes, captured, templates)
  templates.fetch_of = function(box) return fetch_of(boxes, box) end
  templates:measure()
  local fetches = {}
  for i, c in ipairs(captured) do
    fetches[i] = fetch_of(boxes, c.box)
    local main = boxes.main[c.box]
    if is_param(c.box) then
      c.place = main and place.name(main)
      for _, p in ipairs(boxes.places[c.box] or {}) do c.given = c.given or place.is_given(p) end
    end
  end
  local entry = {cache = cache, hits = 0, program = program, reasons = guards.reasons, n = n, functions = w.functions, ties = w.ties}
  entry.captured, entry.inputs = known, captured
  entry.compares, entry.asks = #guards.items, hooks.before[1] ~= nil
  entry.exec = guard.build{
    entry = entry, n = n, guards = guards, program = program, run = trace.backend.run, fetches = fetches, writes = templates,
    epoch = w.epoch, miss = cache.miss, written = written_cells(changes), before = hooks.before[1] and hooks.before, after = hooks.after[1] and hooks.after,
  }
  return entry
end

-- Traces and logs the function. Returns the packed results of pcall, and the hooks that it registered for each run.
local function trace_body(cache, w, n, arguments)
  local graphs = core.graphs
  local off, hooks = graphs.off, nil
  local function undo()
    graphs.off = off
    hooks = run_hooks.finish() or hooks
  end
  local results = pack(xpcall(core.finally, core.keep_traceback, undo, function()
    graphs.off = off + 1
    run_hooks.collect()
    return trace.backend.trace(function(...) return run_hooks.ended(logs.run(w, cache.body, ...)) end, n, unpack(arguments, 1, n))
  end))
  return results, hooks
end
inspect.jit_off(trace_body)  -- Lua code called from C may flush compiled code; a compiled caller below it would crash

-- Warns of the calls whose results no guard can check.
local function warn_of_outsiders(cache, w)
  for _, outsider in ipairs(w.outsiders) do
    cache:warn_once("outside " .. outsider.name, ("calls %s%s, whose result becomes a constant of the graph; pass it as an argument or by pg.live"):format(
      outsider.name, outsider.where and " at " .. outsider.where or ""))
  end
end

--- trace.run(cache, n, arguments, attempt) -> an entry, or nil and the reason why the function must run as plain Lua.
--- Raises what the function raised. Restores all that the function changed; the entry's exec makes the changes again.
--- attempt: the entries that did not fit this call.
function trace.run(cache, n, arguments, attempt)
  local backend = trace.backend
  local mark = backend.next_serial()
  local code, names
  if cache.code then code, names = cache.code() end
  local w = logs.new{
    root = cache.root, label = cache.label, n = n, arguments = arguments, code = code, names = names, mark = mark,
    is_tensor = backend.is_tensor, serial = backend.serial,
  }
  local results, hooks = trace_body(cache, w, n, arguments)
  local changes = w:difference(true)
  logs.roll_back(w, changes)
  if not results[1] then core.reraise(results[2]) end
  if not results[2] then
    if results[4] then return nil, results[4] end
    core.reraise(results[3])
  end
  local templates = build_templates(w, results[3], changes, results, mark, hooks)
  if templates.problem then return nil, templates.problem end
  for _, f in ipairs(hooks.escaped) do w:escape(f) end
  warn_of_outsiders(cache, w)
  apply_paths(cache, w)
  return finish_entry(cache, w, results[3], changes, templates, n, attempt, hooks)
end

return trace
