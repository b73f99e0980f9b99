-- Why a cached trace whose guards hold gives what the script would give.
--
-- A cache entry holds the program that one call of a function traced, and guards. Claim: if all guards hold at a later
-- call, running the function again would trace the same program and return and assign the same things. So the entry
-- may run its program instead of the function.
--
-- Compare the traced run with the run that the script would make now, step by step. Lua is deterministic: the next step
-- of a run depends only on the values that it has read so far. The traced run was executed by an interpreter
-- (interpret.lua) that logged every read of state from before the call (access_log.lua): arguments, fields, upvalues,
-- globals, lengths, metatables, keys, and comparisons of identity. Each logged read has a guard on the value: a scalar
-- by value, a function or table by identity or by the content that was read. So both runs read the same values, take
-- the same branches and call the same ops in the same order. Four kinds of reads have other reasons:
-- * A place that the call wrote before it read it: the value follows from earlier reads, which have guards.
-- * Elements of a tensor: they are inputs of the program, and a trace cannot read them (item raises an error). The
--   properties of types that it read, such as a dim, are guarded in C++ (graph/exec/program.cpp).
-- * Modules and classes of the library: scripts do not change them.
-- * C functions: models (host_functions.lua) list what standard functions read; an unknown function is taken to read
--   all that it is passed. What no guard can check (the clock, files, math.random) causes a warning.
--
-- Writes: the trace is rolled back, and each hit repeats the assignments (write_back.lua) after its program succeeded.
-- A guard that fails only costs a new trace. So guards may be stricter than the claim needs, but never weaker.
--
-- This file generates the code of an entry: functions that check the guards, fetch tensors, run the program and assign.
local core = ...
local inspect = core.introspect
inspect.interpreted()
local place = core.require("hybrid.place")
local chunks = core.require("hybrid.codegen")
local guard = {}

local type, ipairs, rawget, rawequal, concat = type, ipairs, rawget, rawequal, table.concat
local join, resolve, names = chunks.join, chunks.resolve, chunks.names

-- Checks ---------------------------------------------------------------------------------------------------------------------

local Guards = {}
Guards.__index = Guards

--- guard.new() -> an empty list of checks. Each check has a number; reasons[number] describes what it checks.
function guard.new() return setmetatable({items = {}, reasons = {}}, Guards) end

-- Adds a check that returns its number if the condition holds. `reason` is a table for messages and retraces.
function Guards:fail_if(refs, condition, reason)
  local id = #self.reasons + 1
  self.reasons[id] = reason
  self.items[#self.items + 1] = {refs = refs, text = "if " .. condition .. " then return " .. id .. " end"}
end

-- Returns the refs with one more object, and the text that stands for it.
local function with_object(refs, object)
  local all = {unpack(refs)}
  all[#all + 1] = {object = object}
  return all, "$" .. #all
end

local function raw_text(p)
  local refs, text = place.node_address(p.node)
  local key = place.literal(p.key)
  if not key then refs, key = with_object(refs, p.key) end
  return refs, "rawget(" .. text .. ", " .. key .. ")"
end

--- guards:absent(p, reason): the table itself must not have the field; its metatable is not asked.
function Guards:absent(p, reason)
  local refs, text
  if p.node.meta then refs, text = raw_text(p) else refs, text = place.address(p) end
  self:fail_if(refs, text .. " ~= nil", reason)
end

--- guards:scalar(p, value, reason): the place must hold this number, string, boolean or nil. NaN equals itself; 0 is
--- not -0.
function Guards:scalar(p, value, reason)
  if value == nil and p.node then return self:absent(p, reason) end
  local refs, text = place.address(p)
  if value ~= value then return self:fail_if(refs, text .. " == " .. text, reason) end
  if value == 0 then  -- 0 is not -0
    return self:fail_if(refs, text .. " ~= 0 or 1 / " .. text .. (1 / value > 0 and " < 0" or " > 0"), reason)
  end
  local literal = place.literal(value)
  if literal then return self:fail_if(refs, text .. " ~= " .. literal, reason) end
  local all, object = with_object(refs, value)
  self:fail_if(all, text .. " ~= " .. object, reason)
end

--- guards:identical(p, value, reason): the place must hold this object.
function Guards:identical(p, value, reason)
  local refs, text = place.address(p)
  local all, object = with_object(refs, value)
  if type(value) == "function" then return self:fail_if(all, text .. " ~= " .. object, reason) end
  self:fail_if(all, "not rawequal(" .. text .. ", " .. object .. ")", reason)
end

--- guards:same_function(p, f, reason): the place must hold f, or another closure of the same code over the same values.
function Guards:same_function(p, f, reason)
  local refs, text = place.address(p)
  local all, other = with_object(refs, f)
  self:fail_if(all, text .. " ~= " .. other .. " and not same(" .. text .. ", " .. other .. ")", reason)
end

function Guards:plain_table(p, reason)
  local refs, text = place.address(p)
  self:fail_if(refs, "type(" .. text .. ") ~= \"table\" or getmetatable(" .. text .. ")", reason)
end

--- guards:is_a(p, kind, reason): the place must hold a value of this type of Lua's.
function Guards:is_a(p, kind, reason)
  local refs, text = place.address(p)
  self:fail_if(refs, "type(" .. text .. ") ~= \"" .. kind .. "\"", reason)
end

--- guards:equal(p, q, reason): both places must hold the same object.
function Guards:equal(p, q, reason)
  local refs, text = place.address(p)
  local more, other = place.address(q)
  local all, one, two = join(refs, text, more, other)
  self:fail_if(all, "not rawequal(" .. one .. ", " .. two .. ")", reason)
end

function Guards:length(node, n, reason)
  local refs, text = place.node_address(node)
  self:fail_if(refs, "#" .. text .. " ~= " .. n, reason)
end

--- guards:keys(node, reason): the keys must be the same, and in the same order of next. An `unordered` node checks only
--- their number: each key has a check of its own.
function Guards:keys(node, reason)
  local refs, text = place.node_address(node)
  local all = {unpack(refs)}
  local n = #all
  all[n + 1], all[n + 2], all[n + 3] = {object = node.skipped}, {object = node.untraced}, {object = node.keys}
  local own = ("$%d, $%d"):format(n + 1, n + 2)
  if node.unordered then return self:fail_if(all, "count(" .. text .. ", " .. own .. ") ~= " .. #node.keys, reason) end
  self:fail_if(all, "not same_keys(" .. text .. (", $%d, "):format(n + 3) .. own .. ")", reason)
end

--- guards:metatable(node, reason): getmetatable must return the same value as during the trace.
function Guards:metatable(node, reason)
  local refs, text = place.node_address(node)
  local expected = getmetatable(node.table)
  if expected == nil then return self:fail_if(refs, "getmetatable(" .. text .. ") ~= nil", reason) end
  if type(expected) ~= "table" and type(expected) ~= "function" then
    return self:fail_if(refs, "getmetatable(" .. text .. ") ~= " .. (place.literal(expected) or "nil"), reason)
  end
  local all, object = with_object(refs, expected)
  self:fail_if(all, "getmetatable(" .. text .. ") ~= " .. object, reason)
end

--- guards:existence(p, exists, reason): the place must hold a value (exists = true), or nil.
function Guards:existence(p, exists, reason)
  local refs, text = place.address(p)
  self:fail_if(refs, text .. (exists and " == nil" or " ~= nil"), reason)
end

--- guards:two(a, b, reason): the nodes must be two different tables.
function Guards:two(a, b, reason)
  local refs, text = place.node_address(a)
  local more, other = place.node_address(b)
  local all, one, two = join(refs, text, more, other)
  self:fail_if(all, "rawequal(" .. one .. ", " .. two .. ")", reason)
end

--- guards:distinct(fetches, check, reason): check(…) must hold for the fetched tensors, a list of {refs, text}. Up to
--- 40 tensors are an ordinary check; more are fetched and checked by the entry's main function, since a chunk cannot
--- hold them.
function Guards:distinct(fetches, check, reason)
  local refs, parts = {}, {}
  for i, fetch in ipairs(fetches) do
    local joined, _, text = join(refs, "", fetch.refs, fetch.text)
    refs, parts[i] = joined, text
  end
  if #parts <= 40 then
    local all, object = with_object(refs, check)
    return self:fail_if(all, "not " .. object .. "(" .. concat(parts, ", ") .. ")", reason)
  end
  self.reasons[#self.reasons + 1] = reason
  self.apart = {fetches = fetches, check = check, id = #self.reasons}
end

-- The entry ------------------------------------------------------------------------------------------------------------------

local run_hooks = core.require("hybrid.run_hooks")

-- Returns the number of entries of t without the library's own.
local function count(t, skipped, untraced)
  local n = 0
  for key in next, t do if not skipped[key] and not untraced[key] then n = n + 1 end end
  return n
end

-- Whether t has these keys in this order, not counting the library's own.
local function same_keys(t, keys, skipped, untraced)
  local n = 0
  for key in next, t do
    if not skipped[key] and not untraced[key] then
      n = n + 1
      if keys[n] ~= key then return false end
    end
  end
  return keys[n + 1] == nil
end

local base_names = {"type", "rawget", "rawequal", "getmetatable", "count", "same_keys", "same"}

-- Returns same(a, b): whether a is a closure of the same code as b over the same values. Variables in `written` (those
-- that the function assigns) must be the same variables, not only hold the same values.
local function make_same(written)
  local upvalue, cell, prototype, environment = inspect.upvalue, inspect.cell, inspect.prototype, inspect.environment
  local function same(a, b, open)
    if type(a) ~= "function" or type(b) ~= "function" then return false end
    local code = prototype(a)
    if not code or code ~= prototype(b) or environment(a) ~= environment(b) then return false end
    open = open or {}
    if open[a] == b then return true end
    open[a] = b
    for i = 1, 255 do
      local name, x = upvalue(a, i)
      if not name then return true end
      local _, y = upvalue(b, i)
      local id = cell(b, i)
      if cell(a, i) ~= id then
        if written[id] then return false end
        if not (rawequal(x, y) or (x ~= x and y ~= y) or same(x, y, open)) then return false end
      end
    end
    return true
  end
  inspect.jit_off(same)
  return same
end

local kGroup = 12   -- the most functions that one generated function calls

-- Replaces each kGroup functions by one that calls them, until at most kGroup are left. combine(names) returns the text
-- of its body.
local function group(functions, parameters, base, combine)
  while #functions > kGroup do
    local fewer = {}
    for from = 1, #functions, kGroup do
      local chunk, list = chunks.new(), {}
      for i = from, math.min(from + kGroup - 1, #functions) do list[#list + 1] = chunk:name{object = functions[i]} end
      chunk.lines[1] = combine(list)
      fewer[#fewer + 1] = chunk:build(parameters, base, base_names)
    end
    functions = fewer
  end
  return functions
end

local function build_checks(guards, parameters, base)
  local functions = {}
  for _, chunk in ipairs(chunks.spread(guards.items, chunks.compares)) do
    functions[#functions + 1] = chunk:build(parameters, base, base_names)
  end
  return group(functions, parameters, base, function(list)
    local lines = {}
    for i, name in ipairs(list) do lines[i] = "do local id = " .. name .. "(" .. parameters .. ") if id then return id end end" end
    return concat(lines, "\n")
  end)
end

local function list_refs(list)
  local seen, n = {}, 0
  for _, item in ipairs(list) do
    for _, ref in ipairs(item.refs) do
      local key = chunks.identity(ref)
      if not seen[key] then
        seen[key] = true
        n = n + 1
      end
    end
  end
  return n
end

-- Returns functions f(a1, …, ...) that return the values of their expressions {refs, text} followed by ....
local function build_values(items, parameters, base)
  local functions, i = {}, 1
  local vararg = parameters == "" and "..." or parameters .. ", ..."
  while i <= #items do
    local chunk, list = chunks.new(), {}
    while i <= #items and #list < chunks.compares and chunk.slots + chunk:needs(items[i].refs) <= chunks.slots do
      list[#list + 1] = resolve(chunk, items[i].refs, items[i].text)
      i = i + 1
    end
    chunk.lines[#chunk.lines + 1] = "return " .. concat(list, ", ") .. ", ..."
    functions[#functions + 1] = chunk:build(vararg, base, base_names)
  end
  local before = parameters == "" and "" or parameters .. ", "
  return group(functions, vararg, base, function(list)
    local text = "..."
    for k = #list, 1, -1 do text = list[k] .. "(" .. before .. text .. ")" end
    return "return " .. text
  end)
end

-- Returns functions f(R, V, a1, …) that run the assignments. R holds the results of the program, V old tensors and new
-- tables.
local function build_writes(items, parameters, base)
  local functions = {}
  for _, chunk in ipairs(chunks.spread(items, chunks.compares)) do functions[#functions + 1] = chunk:build(parameters, base, base_names) end
  return group(functions, parameters, base, function(list)
    local lines = {}
    for i, name in ipairs(list) do lines[i] = name .. "(" .. parameters .. ")" end
    return concat(lines, "\n")
  end)
end

-- Returns functions f(L, a1, …) that write the values of their expressions {refs, text} to the list L.
local function build_lists(items, parameters, base)
  local lines = {}
  for i, item in ipairs(items) do lines[i] = {refs = item.refs, text = "L[" .. i .. "] = " .. item.text} end
  return build_writes(lines, parameters, base)
end

local function run_before(functions, of)
  run_hooks.begin(of.refused)
  of.refused = false
  for i = 1, #functions do
    local reason = functions[i]()
    if reason then return reason end
  end
end

local function run_after(functions) for i = 1, #functions do functions[i]() end end

local changed = "an environment, a shared variable or a metatable of values was replaced"

local kMostResults = 100   -- the most results that one statement lists

--- guard.build(spec) -> exec, the function of an entry. exec(n, a1, …) returns the results of the call. If a check
--- fails or the program refuses the call, it returns what miss(entry, id, n, a1, …) returns. spec: entry, n (the number
--- of arguments), guards, program, run, fetches, writes (a template of hybrid/write_back.lua), miss, epoch
--- (core.graphs.epoch during the trace), written (variables that the function assigns), before and after (lists of
--- functions called around each run, or nil).
function guard.build(spec)
  local packed = place.are_packed(spec.n)
  local parameters = packed and "A" or names("a", spec.n)
  local base = {type = type, rawget = rawget, rawequal = rawequal, getmetatable = getmetatable, count = count, same_keys = same_keys,
    same = make_same(spec.written)}
  local checks = build_checks(spec.guards, parameters, base)
  local main = chunks.new()
  local passed = packed and ", ..." or spec.n > 0 and ", " .. parameters or ""
  local function object(value) return main:name({object = value}) end
  local entry, miss = object(spec.entry), object(spec.miss)
  main.lines[1] = "if n ~= " .. spec.n .. " then return " .. miss .. "(" .. entry .. ", 0, n, " .. (packed and "..." or spec.n > 0 and parameters .. ", ..." or "...") .. ") end"
  main.lines[2] = "if " .. object(core.graphs) .. ".epoch ~= " .. spec.epoch .. " then return " .. miss .. "(" .. entry .. ", \"" .. changed ..
    "\", n" .. passed .. ") end"
  if packed then main.lines[3] = "local A = {...}" end
  for _, check in ipairs(checks) do
    main.lines[#main.lines + 1] = "do local id = " .. object(check) .. "(" .. parameters .. ")\n  if id then return " .. miss .. "(" ..
      entry .. ", id, n" .. passed .. ") end end"
  end
  if spec.before then
    main.lines[#main.lines + 1] = "do local reason = " .. object(run_before) .. "(" .. object(spec.before) .. ", " .. object(spec.entry.cache) .. ")\n  if reason then return " ..
      miss .. "(" .. entry .. ", reason, n" .. passed .. ") end end"
  end
  local fetches, inputs, apart = spec.fetches, {}, spec.guards.apart
  local function list_of(list)
    local functions = build_lists(list, "L" .. (parameters == "" and "" or ", ") .. parameters, base)
    main.lines[#main.lines + 1] = "L = {}"
    for _, f in ipairs(functions) do
      main.lines[#main.lines + 1] = object(f) .. "(L" .. (parameters == "" and "" or ", ") .. parameters .. ")"
    end
    return "L"
  end
  local function values_of(list, own)
    local functions, text = build_values(list, own, base), nil
    for i = #functions, 1, -1 do
      text = object(functions[i]) .. "(" .. own .. (text and (own == "" and "" or ", ") .. text or "") .. ")"
    end
    return text
  end
  main.lines[#main.lines + 1] = "local L"
  if apart then
    main.lines[#main.lines + 1] = "if not " .. object(apart.check) .. "(" .. list_of(apart.fetches) .. ") then return " .. miss .. "(" ..
      entry .. ", " .. apart.id .. ", n" .. passed .. ") end"
  end
  local writes, rest = spec.writes, parameters == "" and "R, V" or "R, V, " .. parameters
  local small = list_refs(fetches) + writes.slots + main.slots + 4 <= chunks.slots and #fetches <= 120 and writes.statements <= 60
  if small then
    for i, fetch in ipairs(fetches) do inputs[i] = resolve(main, fetch.refs, fetch.text) end
  else
    inputs[1] = list_of(fetches)
  end
  local call = object(spec.run) .. "(" .. object(spec.program) .. (#inputs > 0 and ", " .. concat(inputs, ", ") or "") .. ")"
  local refused = "return " .. miss .. "(" .. entry .. ", %s, n" .. passed .. ") end"
  if small then
    local outputs = math.max(writes.outputs, 2)
    main.lines[#main.lines + 1] = "local " .. names("r", outputs) .. " = " .. call
    main.lines[#main.lines + 1] = "if r1 == nil and r2 then " .. refused:format("r2")
    writes:emit_small(function(refs, text) main:add(refs, text) end)
  else
    main.lines[#main.lines + 1] = "local R, why = " .. call
    main.lines[#main.lines + 1] = "if not R then " .. refused:format("why")
    main.lines[#main.lines + 1] = "local V = {}"
    for _, f in ipairs(build_writes(writes:items_large(), rest, base)) do
      main.lines[#main.lines + 1] = object(f) .. "(" .. rest .. ")"
    end
  end
  if spec.after then main.lines[#main.lines + 1] = object(run_after) .. "(" .. object(spec.after) .. ")" end
  main.lines[#main.lines + 1] = entry .. ".hits = " .. entry .. ".hits + 1"
  if #writes.result_list > kMostResults then main.lines[#main.lines + 1] = "return " .. values_of(writes:result_items(), rest)
  else
    local refs, results = writes:results(small)
    main:add(refs, "return " .. results)
  end
  return main:build("n" .. (spec.n > 0 and not packed and ", " .. parameters or "") .. ", ...", base, base_names)
end

return guard
