-- The cache of a hybridized function: its entries, most recently used first, what happens when none fits, and its
-- statistics.
local core = ...
local inspect = core.introspect
inspect.interpreted()
local trace = core.require("hybrid.trace")
local place = core.require("hybrid.place")
local param = core.require("param")
local cache = {}

local ipairs, type, next, rawequal = ipairs, type, next, rawequal

cache.capacity = 16          -- the most entries
cache.patience = 12          -- after as many traces in a row without a hit the function runs as plain Lua
cache.all = setmetatable({}, {__mode = "k"})  -- the caches, as keys
cache.watchers = {}          -- functions that are called after a trace with the cache, core.profile_mark() from before it, and why the function was traced again or ""

local Cache = {}
Cache.__index = Cache

function Cache:warn_once(key, text, due)
  if due == false or self.warned[key] then return end
  self.warned[key] = true
  core.warn(self.name .. ": " .. text)
end

--- cache:is_freed(name) -> whether the number at the place is not guarded in traces with the signature of the present
--- one.
function Cache:is_freed(name) return self.freed[name] ~= nil and self.freed[name][self.signature] == true end

-- Why an entry did not fit ----------------------------------------------------------------------------------------------------

local function where_read(entry, p)
  if not p or not (p.node or p.name) then return nil end
  local key = p.key or p.name
  if type(key) ~= "string" then return nil end
  for f in next, entry.functions do
    local line = inspect.kind(f) == "script" and inspect.key_line(f, key)
    if line then return line end
  end
end

local function explain(entry, id, arguments, n)
  if type(id) == "string" then return id, (id:gsub("%d+", "#")) end
  if id == 0 then return ("called with %d arguments instead of %d"):format(n, entry.n), "arguments" end
  local reason = entry.reasons[id]
  local p = reason.place
  if reason.kind == "existence" then return ("%s was %s, is %s"):format(place.name(p), reason.expected == nil and "nil" or "set", reason.expected == nil and "set" or "nil"), reason end
  if reason.kind == "length" then return ("the length of %s changed from %d"):format(place.node_name(reason.node), reason.expected), reason.node.table end
  if reason.kind == "count" then return ("the number of entries of %s changed from %d"):format(place.node_name(reason.node), reason.expected), reason.node.table end
  if reason.kind == "metatable" then return place.node_name(reason.node) .. " has another metatable", reason.node.table end
  if reason.kind == "alias" then
    return p and place.name(p) .. " no longer shares its tensor or table with the same places" or "two places now share one tensor", "alias"
  end
  local name = place.name(p)
  local key = trace.name_of(entry.cache.names, p)
  if reason.kind == "replaced" then return name .. " holds another tensor", key end
  if reason.kind == "tensor" then return name .. " was a tensor, is " .. place.show(place.read(p, arguments)), key end
  if reason.kind == "structure" then return name .. " is no longer a plain table", key end
  if reason.kind == "number" then return name .. " is no longer a number", key end
  if reason.kind == "scalar" then
    return ("%s was %s, is %s"):format(name, place.show(reason.expected), place.show(place.read(p, arguments))), key
  end
  return ("%s was replaced by another %s"):format(name, type(reason.expected)), key
end

local function remedy(entry, id)
  if type(id) == "string" then
    return (id:find("size") or id:find("dim") or id:find("shape"))
      and core.require("support.hint").of_size or "keep the types of the arguments"
  end
  local reason = id ~= 0 and entry.reasons[id]
  if reason and reason.kind == "scalar" and type(reason.expected) == "number" then
    return "pass the number as a tensor or by pg.live(function() return … end)"
  end
  return "keep it the same between calls, or keep it in a field that forward does not read"
end

-- Counts guard failures of the most recently used entry by reason, and warns at the third one.
local function count_reason(self, entry, id, arguments, n)
  local words, key = explain(entry, id, arguments, n)
  self.last_retrace = words
  local count = (self.reason_counts[key] or 0) + 1
  self.reason_counts[key] = count
  if count ~= 3 or self.quiet then return end
  local reason = type(id) == "number" and id > 0 and entry.reasons[id]
  local line = reason and where_read(entry, reason.place)
  core.warn(("%s: traced again for the third time because %s%s; %s"):format(self.name, words, line and " (read at " .. line .. ")" or "",
    remedy(entry, id)))
end

local raw_metatable = inspect.raw_metatable

-- Where a plain table was replaced by another plain table, later traces guard its content instead of its identity.
local function learn_paths(self, attempt, arguments)
  for _, note in ipairs(attempt) do
    local reason = type(note.id) == "number" and note.entry.reasons[note.id]
    if reason and reason.kind == "table" then
      local now = place.read(reason.place, arguments)
      if type(now) == "table" and raw_metatable(now) == nil and reason.place.target.plain then
        self.paths[trace.name_of(self.names, reason.place)] = true
      end
    end
  end
end

-- Calls ------------------------------------------------------------------------------------------------------------------------

local function run_eagerly(self, why)
  self.eager = why
  core.warn(("%s: runs as plain Lua from now on: %s"):format(self.name, why))
  self:set_exec(function(_, ...) return self.body(...) end)
end

local unknown = "perigee does not know the bytecode of this LuaJIT"
local said_unknown = false

-- Makes the function run as plain Lua. Warns once for all caches.
local function run_untraced(self)
  if not said_unknown then
    core.warn(unknown .. ": hybridized blocks and jitted functions run as plain Lua, and control flow traces its bodies at each call")
  end
  said_unknown, self.eager = true, unknown
  self:set_exec(function(_, ...) return self.body(...) end)
  return self.body
end

function Cache:set_exec(exec)
  self.exec = exec
  if self.on_exec then self.on_exec(exec) end
end

local function total_hits(self)
  local n = self.old_hits
  for _, entry in ipairs(self.order) do n = n + entry.hits end
  return n
end

-- Drops all entries. The next call traces.
function Cache:forget()
  if self.eager then return end
  self.old_hits, self.order = total_hits(self), {}
  self:set_exec(self.first)
end

local function reads(self, p)
  for _, entry in ipairs(self.order) do
    for _, box in next, entry.captured do if rawequal(box, p) then return true end end
  end
  return false
end

-- Graphs that read a parameter would stay right when it gets another dtype or device, but would show the types of
-- before.
function cache:_follow(p)
  if core.tracing() then return end
  for c in next, cache.all do
    if reads(c, p) then
      c:forget()
      c.last_retrace = (p.name or "a parameter") .. " has another dtype or device"
    end
  end
end
param.followers[cache] = true

local function insert(self, entry)
  table.insert(self.order, 1, entry)
  local last = self.order[cache.capacity + 1]
  if last then
    self.old_hits = self.old_hits + last.hits
    self.order[cache.capacity + 1] = nil
  end
  self:set_exec(entry.exec)
end

-- Whether cache.patience traces in a row had no hit. A trace that raised does not count: its call raised the error.
local function is_fruitless(self)
  if total_hits(self) > self.hits_before then self.fruitless = 0 end
  return self.fruitless >= cache.patience
end

-- Sets self.refused if the program of another entry refused this call after its numbers were computed (pg.live). The
-- next entry that computes numbers before its run then reuses them and clears the mark.
local function ask_again(self, entry, attempt)
  self.refused = false
  if not entry.asks then return end
  for _, note in ipairs(attempt) do self.refused = self.refused or type(note.id) == "string" end
end

-- The first run of a new entry is the call that traced it. It does not count as a hit.
local function first_run(self, entry, ok, ...)
  self.fresh = nil
  if not ok then core.reraise((select(1, ...))) end
  if not self.eager then entry.hits = entry.hits - 1 end
  self.hits_before = total_hits(self)
  return ...
end

local function trace_anew(self, n, ...)
  if core.symbols.any(...) then return self.body(...) end  -- its ops become nodes of the graph of the symbols
  if not inspect.knows_bytecode() then  -- the reads of a function cannot be logged, so no guards can be made
    return run_untraced(self)(...)
  end
  local arguments = {...}
  local attempt = self.attempt
  self.attempt = {}
  local newest = attempt[1]
  local function count() if newest then count_reason(self, newest.entry, newest.id, arguments, n) end end
  if is_fruitless(self) then
    count()
    run_eagerly(self, ("%d traces in a row were used once%s"):format(cache.patience, self.last_retrace and
      "; the last was made because " .. self.last_retrace .. "; " .. remedy(newest.entry, newest.id) or ""))
    return self.body(...)
  end
  learn_paths(self, attempt, arguments)
  local time, own = core.profile_mark()
  local entry, why = trace.run(self, n, arguments, attempt)
  if not entry then
    run_eagerly(self, why .. "; this call starts again")
    return self.body(...)
  end
  count()
  for _, watch in pairs(cache.watchers) do watch(self, time, own, newest and self.last_retrace or "") end
  self.traces, self.fruitless = self.traces + 1, self.fruitless + 1
  if self.on_trace then self.on_trace(entry) end
  entry.inputs = nil
  insert(self, entry)
  self.fresh = {entry = entry, n = n, unpack(arguments, 1, n)}
  ask_again(self, entry, attempt)
  return first_run(self, entry, xpcall(entry.exec, core.keep_traceback, n, ...))
end

-- If the call failed, the parameter shapes that it inferred are undone, and the entries that depend on them are
-- dropped.
local function finish(self, ok, ...)
  param.log.depth = param.log.depth - 1
  if param.settle(ok) then self:forget() end
  if not ok then core.reraise((select(1, ...))) end
  return ...
end

-- Traces a call with n arguments. An entry passes its own number of arguments, filled up with nil, so the rest is cut.
local function trace_call(self, n, ...)
  param.log.depth = param.log.depth + 1
  return finish(self, xpcall(trace_anew, core.keep_traceback, self, n, unpack({...}, 1, n)))
end

local function promote(self, entry, position, hits, ...)
  if entry.hits > hits and self.order[position] == entry then
    table.remove(self.order, position)
    table.insert(self.order, 1, entry)
    self:set_exec(entry.exec)
  end
  return ...
end

-- Whether this is the call that the entry was traced for, and not one that was made while that call runs.
local function is_first_call(fresh, entry, n, ...)
  if not fresh or fresh.entry ~= entry or fresh.n ~= n then return false end
  for i = 1, n do
    local was, now = fresh[i], (select(i, ...))
    if not rawequal(was, now) and (was == was or now == now) then return false end
  end
  return true
end

-- Called when an entry does not fit the call: tries the next entry. id: the number of the check that failed, 0 for the
-- number of arguments, or a text from the program.
local function miss(entry, id, n, ...)
  local self = entry.cache
  local order = self.order
  local position = 1
  while order[position] and order[position] ~= entry do position = position + 1 end
  if is_first_call(self.fresh, entry, n, ...) then
    self.fresh = nil
    local words = explain(entry, id, {...}, n)
    run_eagerly(self, "a trace does not fit its own call: " .. words)
    return self.body(unpack({...}, 1, n))
  end
  if position == 1 then self.attempt = {} end
  self.attempt[#self.attempt + 1] = {entry = entry, id = id}
  local other = order[position + 1]
  if other then
    ask_again(self, other, self.attempt)
    return promote(self, other, position + 1, other.hits, other.exec(n, ...))
  end
  return trace_call(self, n, ...)
end

--- cache.new{root =, body =, name =, label =, options =, on_exec =, on_trace =, code =, quiet =} -> a cache.
--- cache.exec(n, …) is the call. root: the function or object that is called, which messages name by label. body(…):
--- the call as plain Lua. options: those of the program (name, static_alloc, static_shape). on_exec(f) receives the
--- function to call from now on, on_trace(entry) each new entry. code() returns functions whose upvalues are arguments.
--- quiet: no warning about repeated traces.
function cache.new(options)
  local self = setmetatable(options, Cache)
  self.miss = miss
  self.names, self.paths, self.confirmed, self.freed = trace.new_names(), {}, {}, {}
  self.series, self.warned, self.reason_counts = {}, {}, {}
  self.order, self.attempt = {}, {}
  self.traces, self.fruitless, self.old_hits, self.hits_before = 0, 0, 0, 0
  self.first = function(n, ...) return trace_call(self, n, ...) end
  cache.all[self] = true
  self:set_exec(self.first)
  return self
end

local function specializations(self)
  local n = 0
  for _, entry in ipairs(self.order) do n = n + (entry.program:info()) end
  return n
end

--- cache:hits() -> the number of hits. A cache whose programs are collected has it too.
Cache.hits = total_hits

--- cache:info() -> {traces =, specializations =, hits =, last_retrace =}
function Cache:info()
  return {traces = self.traces, specializations = specializations(self), hits = total_hits(self), last_retrace = self.last_retrace}
end

return cache
