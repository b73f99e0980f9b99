-- Probes of what a jitted function notices: local probe = require "tests.probes".
-- probe(name, make[, options]) is a test. make() -> a new {f =, mutate =, args =, state =}:
--   f(...)     the function, called as it is and by pg.jit, each with a state of its own
--   mutate     a function or a list: one change each, after which f is called twice
--   args()     the arguments of one call; a tensor of three elements by default
--   state()    values to compare after each call too
-- All calls of the plain function come first. Globals and standard tables are as before after each of both.
-- options.traces: how many traces at most. options.fails: f may raise, which has to happen in the same calls.
-- options.refused: the jitted function may raise an error with this text at its first call instead.
local t = require "tests.support"
local pg = require "perigee"
local core = pg.testing.core

local function pack(...) return {n = select("#", ...), ...} end

-- Globals and standard tables ---------------------------------------------------------------------------------------

local kept_tables = {_G, string, math, table, os, io, coroutine, debug, bit, package, package.loaded, getmetatable("")}
local kept_values = {0, true, print, "", coroutine.create(print)}

local function copy(from)
  local out = {}
  for k, v in next, from do out[k] = v end
  return out
end

-- Returns a function that puts back what they hold now.
local function keep()
  local contents, metatables = {}, {}
  local next_, rawset_, set, set_any = next, rawset, debug.setmetatable, debug.setmetatable
  for i, each in ipairs(kept_tables) do contents[i], metatables[i] = copy(each), debug.getmetatable(each) or false end
  local values = {}
  for i, v in ipairs(kept_values) do values[i] = debug.getmetatable(v) or false end
  local nothing = debug.getmetatable(nil)
  return function()
    for i = 1, #kept_values do set_any(kept_values[i], values[i] or nil) end
    set_any(nil, nothing)
    for i = 1, #kept_tables do
      local each, before = kept_tables[i], contents[i]
      set(each, metatables[i] or nil)
      for k in next_, copy(each) do if before[k] == nil then rawset_(each, k, nil) end end
      for k, v in next_, before do rawset_(each, k, v) end
    end
  end
end

-- Texts of values ---------------------------------------------------------------------------------------------------

local show

local function show_number(v)
  if v ~= v then return "nan" end
  if v == 0 then return 1 / v < 0 and "-0" or "0" end
  return ("%.6g"):format(v)
end

local function show_table(v, seen)
  if seen[v] then return "table " .. seen[v] end
  seen.n = seen.n + 1
  seen[v] = seen.n
  local parts = {}
  for k, each in next, v do
    local key = type(k) == "string" and k or type(k) == "number" and show_number(k) or type(k)
    parts[#parts + 1] = {key, each}
  end
  table.sort(parts, function(a, b) return a[1] < b[1] end)
  for i, p in ipairs(parts) do parts[i] = p[1] .. " = " .. show(p[2], seen) end
  return seen[v] .. "{" .. table.concat(parts, ", ") .. "}"
end

-- Tables and tensors are told apart by the order in which they are met, so that sharing shows.
function show(v, seen)
  if core.is_tensor(v) then
    if not seen[v] then
      seen.n = seen.n + 1
      seen[v] = seen.n
    end
    return ("tensor %d %s %s"):format(seen[v], v.dtype, show(v:totable(), {n = 0}))
  end
  local kind = type(v)
  if kind == "number" then return show_number(v) end
  if kind == "string" then return ("%q"):format(v) end
  if kind == "table" then return show_table(v, seen) end
  return kind == "boolean" and tostring(v) or kind
end

-- One run -----------------------------------------------------------------------------------------------------------

local function default_args() return pg.tensor{1, 2, 4} end

local function is_list(v) return type(v) == "table" and v or {v} end

-- The texts of all calls; wrap(f) -> what is called for f.
local function run(spec, wrap)
  local call, texts = wrap(spec.f), {}
  local function once(label)
    local args = pack((spec.args or default_args)())
    local results = pack(pcall(call, unpack(args, 1, args.n)))
    local seen, parts = {n = 0}, {}
    if results[1] then
      for i = 2, results.n do parts[#parts + 1] = show(results[i], seen) end
    else
      parts[1] = "error"
    end
    if spec.state then
      local state = pack(spec.state())
      for i = 1, state.n do parts[#parts + 1] = "state " .. show(state[i], seen) end
    end
    texts[#texts + 1] = {label, table.concat(parts, "; "), not results[1] and tostring(results[2])}
  end
  once "first call"
  once "second call"
  for i, mutate in ipairs(is_list(spec.mutate)) do
    mutate()
    once("call after mutation " .. i)
    once("second call after mutation " .. i)
  end
  return texts
end

-- Runs what make gives, with the globals of now afterwards. Warnings are collected.
local function guarded(make, wrap)
  local restore, warn, warnings = keep(), core.warn, {}
  core.warn = function(text) warnings[#warnings + 1] = text end
  local ok, texts = xpcall(function() return run(make(), wrap) end, debug.traceback)
  core.warn = warn
  restore()
  if not ok then error(texts, 0) end
  return texts, warnings
end

local function compare(want, got, options)
  local e = got[1][3]
  if options.refused and e and e:find(options.refused, 1, true) then return end
  for i, w in ipairs(want) do
    local g = got[i]
    if w[3] and not options.fails then error(w[1] .. ": plain Lua raised " .. w[3], 0) end
    if w[2] ~= g[2] then
      error(("%s: got %s%s, expected %s"):format(w[1], g[2], g[3] and " (" .. g[3] .. ")" or "", w[2]), 0)
    end
  end
end

local function probe(name, make, options)
  options = options or {}
  t.test(name, function()
    local jitted
    local want = guarded(make, function(f) return function(...) return pg.debug(f, ...) end end)
    local got = guarded(make, function(f)
      jitted = pg.jit(f)
      return jitted
    end)
    compare(want, got, options)
    local traces = jitted:cache_info().traces
    if options.traces then
      t.check(traces <= options.traces and traces > 0, ("%d traces, at most %d expected; the last because %s"):format(
        traces, options.traces, tostring(jitted:cache_info().last_retrace)))
    end
  end)
end

return probe
