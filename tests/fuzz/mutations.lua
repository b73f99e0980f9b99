-- Random scripts whose state changes between calls of a traced function, and random training steps. Each runs as plain
-- Lua and traced. Any difference in results, in the state afterwards or in errors is a finding, which is reduced and
-- printed: build/perigee tests/fuzz/mutations.lua [--seed=N] [--seconds=N | --scripts=N] [--first=N] [--kind=script |
-- step] [--without=PATTERN] [--most=N] [--show] Scripts are numbered: --seed=N --first=K --scripts=1 repeats script K.
-- --without leaves out statements and mutations that contain this Lua pattern. --most: the number of findings that ends
-- the run. --show prints each script first, so that the last one printed is that of a crash or a hang. --plain runs
-- both sides as plain Lua: its findings are errors of the fuzzer.
local root = arg[0]:match("^(.*)/tests/fuzz/mutations%.lua$") or "."
package.path = root .. "/?.lua;" .. package.path

local ffi = require "ffi"
local pg = require "perigee"
local twin = require "tests.twin"
local end_after = require "tests.fuzz.end_after"
local kinds = {script = require "tests.fuzz.make_script", step = require "tests.fuzz.make_step"}
local testing = pg.testing

local kTries = 150  -- runs to reduce one finding
local kPatience = 60  -- seconds of processor time that one run may take before the process is ended as a hang

local opts = {most = 20, first = 1}
for _, a in ipairs(arg) do
  local key, value = a:match("^%-%-(%w+)=?(.*)$")
  if not key then io.stderr:write("unknown argument: ", a, "\n") os.exit(2) end
  opts[key] = tonumber(value) or value
end

-- Random numbers: the same on every machine for a seed and a script number.
local function generator(seed, k)
  local state = (seed * 48271 + k * 16807 + 12345) % 2147483646 + 1
  local function random(n)
    state = (state * 16807) % 2147483647
    return math.floor(state / 7) % n + 1
  end
  for _ = 1, 5 do random(2) end
  return random
end

-- One run -----------------------------------------------------------------------------------------------------------

local total = {script = {scripts = 0, calls = 0}, step = {scripts = 0, calls = 0}, traces = 0, hits = 0}

local function wrapped(run, way)
  if way == "jit" then return pg.jit(run) end
  local net = pg.nn.block{forward = function(_, ...) return run(...) end}
  net:hybridize()
  return net
end

local function outcome(seen, dump, ok, ...)
  if not ok then return "error", tostring((...)) end
  return twin.show(seen, ...) .. "; state " .. twin.show(seen, dump())
end

-- The FFI keeps every struct that a text declares, so each text is compiled once.
local types = {}
local scripts_ffi = setmetatable({new = function(text, ...)
  types[text] = types[text] or ffi.typeof(text)
  return ffi.new(types[text], ...)
end}, {__index = ffi})

-- Returns the texts of all events up to the first error, and that error. told: whether to count.
local function play(kind, script, traced, told)
  pg.manual_seed(script.seed)
  local chunk = assert(loadstring(kind.source(script), "=script"))
  if script.own_env then setfenv(chunk, setmetatable({}, {__index = _G})) end
  local run, events, dump = chunk(pg, scripts_ffi)
  traced = traced and not opts.plain
  local call = traced and wrapped(run, script.way) or function(...) return pg.debug(run, ...) end
  local texts, raised = {}, nil
  for i, e in ipairs(script.events) do
    if e.mutate then texts[i] = pcall(events[i]) and "mutated" or "mutation failed"
    else
      texts[i], raised = outcome({}, dump, pcall(events[i], call))
      if told then told.calls = told.calls + 1 end
      if raised then break end
    end
  end
  if told and traced then
    local info = call:cache_info()
    total.traces, total.hits = total.traces + info.traces, total.hits + info.hits
  end
  return texts, raised
end

-- Runs play, and restores the library and the globals afterwards.
local function contained(kind, script, traced, told)
  local restore, warned = twin.keep(), testing.on_warning(function() end)
  local patience = testing.patience(script.patient and 1000)
  end_after(kPatience)
  local ok, texts, raised = xpcall(function() return play(kind, script, traced, told) end, debug.traceback)
  testing.on_warning(warned)
  testing.patience(patience)
  restore()
  if not ok then error(texts, 0) end
  return texts, raised
end

-- Returns the parts where two texts first differ.
local function apart(want, got)
  local i = 1
  while i <= #want and want:byte(i) == got:byte(i) do i = i + 1 end
  local from = math.max(1, i - 40)
  return ("expected … %s\n           got … %s"):format(want:sub(from, i + 60), got:sub(from, i + 60))
end

-- Returns the difference and its event, or nil.
local function difference(kind, script, told)
  -- The order of pairs depends on the identity of strings. This chunk keeps them alive for both runs.
  script.strings = assert(loadstring(kind.source(script)))
  local want, e = contained(kind, script, false)
  local got, e2 = contained(kind, script, true, told)
  for i = 1, math.max(#want, #got) do
    if want[i] ~= got[i] then
      local text
      if want[i] == "error" then text = ("expected the error %s\n           got %s"):format(e, tostring(got[i]):sub(1,
        100))
      elseif got[i] == "error" then text = ("expected %s\n           got the error %s"):format(want[i]:sub(1, 100), e2)
      else text = apart(tostring(want[i]), tostring(got[i])) end
      return ("event %d: %s"):format(i, text), i
    end
  end
end

-- Smaller scripts that still differ ---------------------------------------------------------------------------------

local function copy(script)
  local out = {}
  for k, v in pairs(script) do out[k] = v end
  out.statements, out.events = {unpack(script.statements)}, {unpack(script.events)}
  return out
end

local function reduce(kind, script)
  local tries = 0
  -- Keeps the script if it still differs, without the events after the difference.
  local function try(other)
    tries = tries + 1
    if tries > kTries then return false end
    local ok, text, at = pcall(difference, kind, other)
    if not ok or not text then return false end
    for i = #other.events, at + 1, -1 do other.events[i] = nil end
    script = other
    return true
  end
  local function without(field)
    local smaller = false
    for i = #script[field], 1, -1 do
      local other = copy(script)
      if table.remove(other[field], i) and try(other) then smaller = true end
    end
    return smaller
  end
  local function with(field, value)
    local other = copy(script)
    other[field] = value
    if script[field] ~= value then try(other) end
  end
  try(copy(script))
  repeat until not (without("statements") or without("events"))
  with("result", kind == kinds.script and "return y" or script.result)
  with("own_env", false)
  with("way", "jit")
  return script
end

-- Findings with the same mutations count as one; findings without mutations, those with the same statements.
local function signature(kind, script)
  local parts = {}
  for _, e in ipairs(script.events) do if e.mutate then parts[#parts + 1] = kind.mutations[e.mutate] end end
  return table.concat(parts[1] and parts or script.statements, "\n")
end

-- The run -----------------------------------------------------------------------------------------------------------

local function filter(kind, script)
  if not opts.without then return end
  for i = #script.statements, 1, -1 do
    if script.statements[i]:find(opts.without) then table.remove(script.statements, i) end
  end
  for i = #script.events, 1, -1 do
    local e = script.events[i]
    if (e.mutate and kind.mutations[e.mutate] or e.call):find(opts.without) then table.remove(script.events, i) end
  end
end

local function make(k)
  local random = generator(opts.seed, k)
  local name = opts.kind or (random(4) == 1 and "step" or "script")
  local script = kinds[name].new(random)
  filter(kinds[name], script)
  return name, script
end

if not opts.seed then
  local bytes = {assert(io.open("/dev/urandom", "rb")):read(3):byte(1, 3)}
  opts.seed = (bytes[1] * 256 + bytes[2]) * 256 + bytes[3]
end
io.stderr:write(("mutations: seed %d\n"):format(opts.seed))

local findings, distinct, known = 0, 0, {}

local function tell(k, name, script, text)
  findings = findings + 1
  local small = reduce(kinds[name], script)
  local key = signature(kinds[name], small)
  if known[key] then return end
  known[key], distinct = true, distinct + 1
  io.stderr:write(("FINDING: script %d of seed %d\n  again: build/perigee tests/fuzz/mutations.lua --seed=%d "
    .. "--first=%d --scripts=1%s\n    %s\n  %s\n"):format(
    k, opts.seed, opts.seed, k, opts.kind and " --kind=" .. opts.kind or "", kinds[name].describe(small),
    select(2, pcall(difference, kinds[name], small)) or text))
end

io.stdout:setvbuf("line")
local began, k = os.time(), opts.first - 1
local last = opts.scripts and opts.first + opts.scripts - 1 or 2 ^ 52
local deadline = (opts.seconds or not opts.scripts) and began + (opts.seconds or 60) or 2 ^ 52
while k < last and os.time() < deadline and distinct < opts.most do
  k = k + 1
  local name, script = make(k)
  if opts.show then io.stderr:write(("script %d: %s\n"):format(k, kinds[name].describe(script))) end
  total[name].scripts = total[name].scripts + 1
  local ok, text = pcall(difference, kinds[name], script, total[name])
  if not ok then error(("script %d of seed %d could not be run: %s"):format(k, opts.seed, text), 0) end
  if text then tell(k, name, script, text) end
end
print(("%d scripts with %d calls, %d training programs with %d steps: %d traces, %d hits, %d findings (%d distinct), "
  .. "%d s, seed %d"):format(
  total.script.scripts, total.script.calls, total.step.scripts, total.step.calls, total.traces, total.hits, findings,
    distinct,
  os.time() - began, opts.seed))
os.exit(findings == 0 and 0 or 1, true)
