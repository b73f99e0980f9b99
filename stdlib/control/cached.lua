-- Runs combinators outside of graphs: each call site has a graph of its own. Its cache belongs to the code of the
-- functions. Scripts make new closures at each call, so the upvalues of the closures are arguments of the graph, and
-- assigned upvalues are results.
local core = ...
local inspect = core.introspect
inspect.interpreted()
local caches = core.require("hybrid.cache")
local logs = core.require("hybrid.access_log")
local place = core.require("hybrid.place")
local holds_tensors = core.require("control.carried").holds_tensors
local tree = core.require("tree")
local cached = {}

local select, type, ipairs, getfenv = select, type, ipairs, getfenv
local globals = getfenv(0)
local upvalue, set_upvalue, prototype, cell = inspect.upvalue, inspect.set_upvalue, inspect.prototype, inspect.cell

local function pack(...) return {n = select("#", ...), ...} end

-- A trace for a single run -------------------------------------------------------------------------------------------------------

-- Returns the tensors that the trace made, each with its position among the results of the run.
local function number_outputs(trace, mark, results, places)
  local outputs = {}
  local function note(x)
    if core.is_tensor(x) and not outputs[x] and inspect.serial(x) >= mark then outputs[x] = trace:output(x) end
  end
  tree.map(note, results)
  for _, p in ipairs(places) do tree.map(note, place.read(p)) end
  return outputs
end

local function run_trace(trace, mark, results, places)
  local outputs, boxes = number_outputs(trace, mark, results, places), {}
  for i, captured in ipairs(trace:captured()) do boxes[i] = captured.box end
  local values = core.run(trace:finish{name = "control"}, boxes)
  local function value_of(x)
    local k = outputs[x]
    if k then return values[k] end
    return x
  end
  for _, p in ipairs(places) do place.write(p, tree.map(value_of, place.read(p))) end
  return tree.map(value_of, results)
end

-- Returns the places to which the traced function assigned tensors.
local function assigned(w)
  local places = {}
  for _, change in ipairs(w:difference()) do
    if holds_tensors(change.after) then places[#places + 1] = place.of_change(change) end
  end
  return places
end

--- cached.probe(f) traces f, shows nothing that it prints, runs nothing and undoes its assignments.
function cached.probe(f)
  local w, graphs = logs.new(), core.graphs
  local off, retracing = graphs.off, graphs.retracing
  local ok, traced, message = xpcall(core.finally, core.keep_traceback, function() graphs.off, graphs.retracing = off, retracing end, function()
    graphs.off, graphs.retracing = off + 1, true
    return core.trace(function() return logs.run(w, f) end, 0)
  end)
  logs.roll_back(w, w:difference())
  if not ok or not traced then core.reraise(ok and message or traced) end
end

--- cached.once(f, plain) -> what f() returns, traced and run once. If it raises, its assignments are undone. If f can only
--- run as plain Lua, returns plain() instead.
function cached.once(f, plain)
  local w = logs.new()
  local mark = inspect.next_serial()
  local graphs = core.graphs
  local off = graphs.off
  local traced = pack(xpcall(core.finally, core.keep_traceback, function() graphs.off = off end, function()
    graphs.off = off + 1
    return core.trace(function() return logs.run(w, f) end, 0)
  end))
  if not traced[1] or not traced[2] then
    logs.roll_back(w, w:difference())
    if plain and traced[1] and traced[4] then return plain() end
    core.reraise(traced[1] and traced[3] or traced[2])
  end
  local list = {n = traced.n - 3, unpack(traced, 4, traced.n)}
  local results = pack(xpcall(run_trace, core.keep_traceback, traced[3], mark, list, assigned(w)))
  if not results[1] then
    logs.roll_back(w, w:difference())
    core.reraise(results[2])
  end
  return unpack(results[2], 1, list.n)
end

-- Call sites ---------------------------------------------------------------------------------------------------------------------

-- Numbered strings that do not occur in scripts.
local function texts(prefix)
  return setmetatable({}, {__index = function(t, k)
    t[k] = prefix .. k
    return t[k]
  end})
end
local function_texts, variable_texts = texts("\0function "), texts("\0variable ")

-- Returns the string that represents one of the call's functions, or nil.
local function own(functions, value)
  for k, f in ipairs(functions) do if f == value then return function_texts[k] end end
end

local function is_script(value) return type(value) == "function" and inspect.kind(value) == "script" end

-- Returns the arguments of the graph: those of the call, then the upvalues of its functions, each variable once. Sets
-- site.deep if an upvalue holds another function of the script than at the last call.
local function arguments_of(call, site)
  local list, n, functions = {}, call.n, call.functions
  local first, holder, slot = {}, {}, {}  -- by value: the first argument that held it, with its function and upvalue
  for i = 1, n do
    local value = call[i]
    list[i] = type(value) == "function" and own(functions, value) or value
  end
  for k = 1, #functions do
    local f, i = functions[k], 1
    local name, value = upvalue(f, 1)
    while name do
      n = n + 1
      local argument = value
      if value ~= nil and value == value then
        local known = first[value]
        if not known then first[value], holder[n], slot[n] = n, f, i
        elseif cell(f, i) == cell(holder[known], slot[known]) then argument = variable_texts[known] end
        if type(value) == "function" then
          if site.had[n] and site.inner[n] ~= value then site.deep = site.deep or is_script(value) end
          site.had[n], site.inner[n] = true, value
          argument = own(functions, value) or argument
        end
      end
      list[n] = argument
      i = i + 1
      name, value = upvalue(f, i)
    end
  end
  return list, n
end

local function each_upvalue(functions, visit)
  for k, f in ipairs(functions) do
    local i = 1
    local name, value = upvalue(f, 1)
    while name do
      visit(k, i, value)
      i = i + 1
      name, value = upvalue(f, i)
    end
  end
end

-- Returns the functions of the site's call, and the names of their upvalues by their positions among the arguments of
-- the graph.
local function code_and_names(site)
  local call, names = site.call, {}
  local n = call.n
  each_upvalue(call.functions, function(k, i)
    n = n + 1
    names[n] = upvalue(call.functions[k], i)
  end)
  return call.functions, names
end

-- The call as a traced function: returns a list of the upvalues that it assigned ("1.2,1.3"), their values, and its
-- results.
local function traced_call(site)
  local call = site.call
  local function run_in(engine) return site.f(core.require(engine), unpack(call, 1, call.n)) end
  local function run() return run_in("control.traced") end
  if not core.tracing() then return "", cached.once(run, function() return run_in("control.plain") end) end
  local before, spec, values = {}, {}, {}
  each_upvalue(call.functions, function(_, _, value) before[#before + 1] = value == nil and cached or value end)
  local results = pack(xpcall(run, core.keep_traceback))
  local at = 0
  each_upvalue(call.functions, function(k, i, value)
    at = at + 1
    local was = before[at]
    if was == cached then was = nil end
    if not rawequal(value, was) then
      spec[#spec + 1] = k .. "." .. i
      values[#values + 1] = value
      set_upvalue(call.functions[k], i, was)
    end
  end)
  if not results[1] then core.reraise(results[2]) end
  for i = 2, results.n do values[#spec + i - 1] = results[i] end
  return table.concat(spec, ","), unpack(values, 1, #spec + results.n - 1)
end

local function code_of(f)
  local ok, text = pcall(string.dump, f)
  return ok and text or nil
end

-- Whether the functions have the code that the site was made for. Once all closures of a function are collected, the
-- address of its prototype may be reused.
local function is_same_code(site, functions)
  for i, f in ipairs(functions) do
    if not site.seen[i] then
      if not site.code[i] or site.code[i] ~= code_of(f) then return false end
      site.seen[i] = f
    end
  end
  return true
end

-- Functions that a graph of the site calls in each run read the variables of the call's functions.
local function tie(site, call)
  for f, list in next, site.ties do
    for _, t in ipairs(list) do inspect.join(f, t.index, call.functions[t.own[1]], t.own[2]) end
  end
end

local function add_ties(site, ties)
  for _, t in ipairs(ties) do
    site.ties[t.f] = site.ties[t.f] or {}
    table.insert(site.ties[t.f], {index = t.index, own = t.own})
  end
end

local function make_site(f, functions)
  local site = {f = f, seen = setmetatable({}, {__mode = "v"}), code = {}, inner = setmetatable({}, {__mode = "v"}), had = {},
                ties = setmetatable({}, {__mode = "k"})}
  for i, g in ipairs(functions) do site.seen[i], site.code[i] = g, code_of(g) end
  local name = functions[1] and inspect.where(functions[1]) or "a call"
  site.cache = caches.new{
    root = {}, label = "the call", name = "control flow at " .. name, options = {name = "control flow at " .. name}, quiet = true,
    code = function() return code_and_names(site) end,
    body = function() return traced_call(site) end,
    on_exec = function(exec) site.exec = exec end,
    on_trace = function(entry) add_ties(site, entry.ties) end,
  }
  return site
end

-- Two generations of sites. When `sites` is full it becomes `old_sites`, and the sites that are not used again are
-- dropped.
local sites, old_sites, kept = {}, {}, 0
local kMostSites = 256

-- Finds the level of the tree of sites for these functions. Its keys are the prototypes of the functions, with their
-- environments if these are not the globals, or the class of an object.
local function level_of(level, f, functions, call, add)
  local keys = {}
  for _, g in ipairs(functions) do
    local environment = getfenv(g)
    keys[#keys + 1] = prototype(g) or g
    if environment ~= globals then keys[#keys + 1] = environment end
  end
  for i = 0, math.max(1, #keys) do
    local key = i == 0 and f or keys[i]
    if not key then
      for k = 1, call.n do key = key or type(call[k]) == "table" and inspect.raw_metatable(call[k]) end
      key = key or f
    end
    local next_level = level[key]
    if not next_level then
      if not add then return nil end
      next_level = {}
      level[key] = next_level
    end
    level = next_level
  end
  return level
end

local function site_of(f, functions, call)
  local level = level_of(sites, f, functions, call, true)
  if level.site and is_same_code(level.site, functions) then return level.site end
  local old = level_of(old_sites, f, functions, call)
  local site = old and old.site
  if not site or not is_same_code(site, functions) then site = make_site(f, functions) end
  kept = kept + 1
  if kept > kMostSites then
    sites, old_sites, kept = {}, sites, 1
    level = level_of(sites, f, functions, call, true)
  end
  level.site = site
  return site
end

-- Functions inside of functions ---------------------------------------------------------------------------------------------------

local kMostFunctions = 24

-- Returns the functions and those that their upvalues hold, so that the upvalues of all of them become arguments.
local function with_inner(functions)
  local all, known = {}, {}
  local function add(f)
    if known[f] or #all >= kMostFunctions then return end
    known[f] = true
    all[#all + 1] = f
  end
  for _, f in ipairs(functions) do add(f) end
  local k = 1
  while all[k] do
    each_upvalue({all[k]}, function(_, _, value) if is_script(value) then add(value) end end)
    k = k + 1
  end
  return all
end

-- Sites of blocks -----------------------------------------------------------------------------------------------------------------

local function is_block(value) return type(value) == "table" and core.require("nn.discover").is_block(value) end

-- Finds the first block among the arguments of a site, usually `self`.
local function find_block(site, list, n)
  site.block_at = false
  for i = 1, n do
    if is_block(list[i]) then
      site.block_at, site.first_block = i, setmetatable({list[i]}, {__mode = "v"})
      return
    end
  end
end

-- All blocks of a class reach the same site. The first block uses it; each other block has a site of its own, which
-- lives as long as the block.
local function site_for(site, list, n, functions)
  if site.block_at == nil then find_block(site, list, n) end
  local block = site.block_at and list[site.block_at]
  if not block or rawequal(block, site.first_block[1]) or not is_block(block) then return site end
  local own_sites = rawget(block, "_sites")
  if not own_sites then
    own_sites = setmetatable({}, {__mode = "k"})
    rawset(block, "_sites", own_sites)
  end
  if not own_sites[site] then own_sites[site] = make_site(site.f, functions) end
  return own_sites[site]
end

local function finish(call, spec, ...)
  if spec == "" then return ... end
  local n = 0
  for k, i in spec:gmatch("(%d+)%.(%d+)") do
    n = n + 1
    set_upvalue(call.functions[tonumber(k)], tonumber(i), (select(n, ...)))
  end
  return select(n + 1, ...)
end

local counts, known_counts = {}, 0
local kMostChanges = 3

--- cached.count(body, count) -> the number of steps as an argument of the graph: a number, which is a constant of the
--- graph, until it has changed kMostChanges times; then a tensor.
function cached.count(body, count)
  local key = type(body) == "function" and prototype(body) or body
  local seen = counts[key]
  if not seen then
    if known_counts >= 2 * kMostSites then counts, known_counts = {}, 0 end
    seen, known_counts = {count = count, changes = 0}, known_counts + 1
    counts[key] = seen
  end
  if seen.count ~= count then seen.count, seen.changes = count, seen.changes + 1 end
  if seen.changes < kMostChanges then return count end
  return core.pg.tensor(count, {dtype = "int64"})
end

--- cached.call(f, …) -> what f(engine, …) returns, run as a graph that is cached for calls with functions of the same
--- code.
function cached.call(f, ...)
  local call = {n = select("#", ...), functions = {}, ...}
  for i = 1, call.n do
    local value = call[i]
    if is_script(value) then call.functions[#call.functions + 1] = value end
  end
  local site = site_of(f, call.functions, call)
  local list, n
  if not site.deep then list, n = arguments_of(call, site) end
  if site.deep then
    call.functions = with_inner(call.functions)
    site = site_of(f, call.functions, call)
    list, n = arguments_of(call, site)
  end
  site = site_for(site, list, n, call.functions)
  local outer = site.call
  site.call = call
  tie(site, call)
  local results = pack(xpcall(site.exec, core.keep_traceback, n, unpack(list, 1, n)))
  site.call = outer
  if outer then tie(site, outer) end
  if not results[1] then core.reraise(results[2]) end
  return finish(call, unpack(results, 2, results.n))
end

return cached
