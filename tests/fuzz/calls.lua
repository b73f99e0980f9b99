-- Makes random calls of every op of the registry, including hidden ones, in every way that a script can, with valid
-- arguments, edge cases and nonsense: build/perigee tests/fuzz/calls.lua [--seed=N] [--seconds=N | --calls=N]
-- [--first=N] [--op=NAME] [--way=NAME] [--show] Each call must return or raise an ordinary error, and must change
-- nothing when it raises. The seed is new in each run and is printed. Calls are numbered: --seed=N --first=K --calls=1
-- repeats call K. --show prints the calls. They run in child processes, so that a crash or a hang is a finding with a
-- number and does not end the run.
local root = arg[0]:match("^(.*)/tests/fuzz/calls%.lua$") or "."
package.path = root .. "/?.lua;" .. package.path

local kBatch = 2000  -- calls per child
local kMostFindings = 20
local kPatience = 60       -- seconds of processor time that a call may take before it is ended as a hang
local kLargest = 2 ^ 22    -- bytes of one tensor

local opts = {}
for _, a in ipairs(arg) do
  local key, value = a:match("^%-%-(%w+)=?(.*)$")
  if not key then io.stderr:write("unknown argument: ", a, "\n") os.exit(2) end
  opts[key] = tonumber(value) or value
end

local function read(path)
  local file = io.open(path, "rb")
  local text = file and file:read("*a") or ""
  if file then file:close() end
  return text
end

local function quote(s) return "'" .. tostring(s):gsub("'", "'\\''") .. "'" end

-- The parent: starts children and finds the call at which one died ---------------------------------------------------

local program = arg[-1] or "build/perigee"

local function start(report, first, calls, deadline, more)
  local command = {quote(program), quote(arg[0]), "--report=" .. quote(report), "--seed=" .. opts.seed, "--first="
    .. first,
    "--calls=" .. calls, "--deadline=" .. deadline, more or ""}
  for _, key in ipairs{"op", "way"} do
    if opts[key] then command[#command + 1] = "--" .. key .. "=" .. quote(opts[key]) end
  end
  if opts.show then command[#command + 1] = "--show" end
  local status = os.execute(table.concat(command, " ") .. " >/dev/null")
  return status
end

local function again(k, batch)
  local how = (" tests/fuzz/calls.lua --seed=%d --first=%d --calls=%d"):format(opts.seed, k, 1)
  if k == batch then return program .. how end
  return program .. how .. (", or with what ran before: --first=%d --calls=%d"):format(batch, k - batch + 1)
end

local function tell(text) io.stderr:write(text, "\n") end

-- Runs calls first to last. Returns the number of calls and of findings.
local function batch(report, first, last, deadline)
  local made, findings, at = 0, 0, first
  while at <= last do
    local status = start(report, at, last - at + 1, deadline)
    local k, found = read(report):match("^%s*(%d+)%s+(%d+)")
    if not k then
      tell("the child ended before its first call, status " .. status)
      return made, findings + 1, true
    end
    k, found = tonumber(k), tonumber(found)
    made, findings = made + k - at + 1, findings + found
    if status == 0 then return made, findings, k < last end
    findings = findings + 1
    tell(("FINDING: call %d of seed %d ended the process, status %d\n  again: %s"):format(k, opts.seed, status,
      again(k, at)))
    start(report, k, 1, deadline, "--describe")
    if findings >= kMostFindings then return made, findings, true end
    at = k + 1
  end
  return made, findings, false
end

local function parent()
  if not opts.seed then
    local bytes = {assert(io.open("/dev/urandom", "rb")):read(4):byte(1, 4)}
    opts.seed = ((bytes[1] * 256 + bytes[2]) * 256 + bytes[3]) % 2 ^ 24 * 64 + bytes[4] % 64
  end
  tell(("calls: seed %d"):format(opts.seed))
  local report, began = os.tmpname(), os.time()
  local deadline = (opts.seconds or not opts.calls) and began + (opts.seconds or 60) or 2 ^ 40
  local first = opts.first or 1
  local last = opts.calls and first + opts.calls - 1 or 2 ^ 52
  local made, findings, ended = 0, 0, false
  while first <= last and not ended and findings < kMostFindings do
    local m, f
    m, f, ended = batch(report, first, math.min(first + kBatch - 1, last), deadline)
    made, findings, first = made + m, findings + f, first + kBatch
  end
  os.remove(report)
  print(("%d calls, %d findings, %d s, seed %d"):format(made, findings, os.time() - began, opts.seed))
  os.exit(findings == 0 and 0 or 1, true)
end

if not opts.report then parent() end

-- A child -----------------------------------------------------------------------------------------------------------

local end_after = require "tests.fuzz.end_after"
local pg = require "perigee"
local driver = require "tests.ops.driver"
local cases = require "tests.ops.cases"
local make_call = require "tests.fuzz.make_call"

-- Loads the file again for each call: a place in a script that keeps making new graphs runs as plain Lua after a while.
local function ways() return assert(loadfile(root .. "/tests/fuzz/ways.lua"))() end

local way_names = {}
for name in pairs(ways()) do way_names[#way_names + 1] = name end
table.sort(way_names)

-- Texts of errors that come from inside the library instead of from its checks.
local inside = {"attempt to ", "bad argument #", "assertion failed!", "stack overflow", "not enough memory", "std::",
  "vector::", "internal error",
  "bad_alloc", "basic_string", "map::at", "changed by an error"}

local function complaint(e)
  if type(e) ~= "string" then return "raised a " .. type(e) end
  for _, text in ipairs(inside) do if e:find(text, 1, true) then return "raised: " .. e end end
end

local kWatched = 2 ^ 16  -- elements; larger tensors are not compared

local function watched(args)
  local out = {}
  for _, x in ipairs(driver.tensors(args)) do
    if pcall(function() assert(x:numel() <= kWatched and x.dtype) end) and pcall(driver.snapshot,
      {x}) then out[#out + 1] = x end
  end
  return out
end

-- Makes call number k. Returns what is wrong, or nil.
local function attempt(call)
  local f = pg.testing.ops[cases.field(call.row)]
  local tensors = watched(call.args)
  local before = driver.snapshot(tensors)
  pg.manual_seed(1)
  pg.testing.limit_allocation(kLargest)
  local ok, e = pcall(ways()[call.way], f, call, call.choose)
  pg.testing.limit_allocation(0)
  if (not ok or not call.row.in_place) and driver.changed(tensors, before) then
    return "changed tensor " .. driver.changed(tensors, before) .. (ok and "" or " and raised: " .. tostring(e))
  end
  return not ok and complaint(e) or nil
end

local function child()
  local file = assert(io.open(opts.report, "w"))
  local findings, last = 0, opts.first + opts.calls - 1
  for k = opts.first, last do
    file:seek("set")
    file:write(("%16d %8d\n"):format(k, findings))
    file:flush()
    end_after(kPatience)
    local call = make_call(opts.seed, k, {op = opts.op, way = opts.way, ways = way_names})
    local text = make_call.show(call)
    if opts.describe or opts.show then io.stderr:write("  call ", k, ": ", text, "\n") end
    if opts.describe then break end
    local wrong = attempt(call)
    if wrong then
      findings = findings + 1
      io.stderr:write(("FINDING: call %d of seed %d %s\n  %s\n"):format(k, opts.seed, wrong, text))
      file:seek("set")
      file:write(("%16d %8d\n"):format(k, findings))
      file:flush()
    end
    if os.time() >= opts.deadline or findings >= kMostFindings then break end
  end
  end_after(0)
  file:close()
end

child()
