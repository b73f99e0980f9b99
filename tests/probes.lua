-- Tests that a jitted function notices changes: local probe = require "tests.probes".
-- probe(name, make[, options]) is a test. make() -> a new {f =, mutate =, args =, state =}:
--   f(...)     the function; it is called as plain Lua and through pg.jit, each with its own result of make()
--   mutate     a function or a list of functions that make one change each; after each change f is called twice
--   args()     the arguments of one call; the default is a tensor of three elements
--   state()    further values to compare after each call
-- All calls of the plain function come first. Globals and standard tables are restored after both.
-- options.traces: the most traces allowed. options.fails: f may raise; then both must raise in the same calls.
-- options.refused: the jitted function may raise an error with this text at its first call instead.
local t = require "tests.support"
local twin = require "tests.twin"
local pg = require "perigee"

local function pack(...) return {n = select("#", ...), ...} end

-- One run -----------------------------------------------------------------------------------------------------------

local function default_args() return pg.tensor{1, 2, 4} end

local function is_list(v) return type(v) == "table" and v or {v} end

-- Returns the results of all calls as texts. wrap(f) returns the function to call instead of f.
local function run(spec, wrap)
  local call, texts = wrap(spec.f), {}
  local function once(label)
    local args = pack((spec.args or default_args)())
    local results = pack(pcall(call, unpack(args, 1, args.n)))
    local seen = {}
    local text = results[1] and twin.show(seen, unpack(results, 2, results.n)) or "error"
    if spec.state then text = text .. "; state " .. twin.show(seen, spec.state()) end
    texts[#texts + 1] = {label, text, not results[1] and tostring(results[2])}
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

-- Runs the result of make without warnings, and restores the globals afterwards.
local function guarded(make, wrap)
  local restore, warned = twin.keep(), pg.testing.on_warning(function() end)
  local ok, texts = xpcall(function() return run(make(), wrap) end, debug.traceback)
  pg.testing.on_warning(warned)
  restore()
  if not ok then error(texts, 0) end
  return texts
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
