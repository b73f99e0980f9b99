-- Runs tests/lua in one or all modes: build/perigee tests/run.lua [--mode=M] [--file=PATH] [--jobs=N] [--times]
-- [--all] [pattern]. With another LuaJIT: LUA_CPATH='build/?.so' luajit tests/run.lua --program=build/perigee …,
-- where --program names the program under test. pattern is a Lua pattern for "tests/lua/test_file.lua: test name".
-- --times prints the processor time of each file, and of each test that takes more than half a second. --all runs all
-- files and cases in modes that run a sample.
-- --jobs: the number of modes (or files) that run at once; default one per processor, at most 4.
local root = (arg[0]:match("^(.*)/tests/run%.lua$")) or (arg[0]:match("^tests/run%.lua$") and ".") or ".."
package.path = root .. "/?.lua;" .. package.path
local t = require "tests.support"
local modes = require "tests.modes"
local program = arg[-1] or "build/perigee"
io.stdout:setvbuf("line")

local known = {mode = true, file = true, jobs = true, times = true, all = true, program = true}
local opts = {}
for _, a in ipairs(arg) do
  local key, value = a:match("^%-%-(%w+)=?(.*)$")
  if key and not known[key] then
    print("tests/run.lua: unknown option --" .. key .. "; its first lines say which there are")
    os.exit(1)
  end
  if key then opts[key] = a:find("=", 1, true) and value or true else opts.pattern = a end
end

local function quote(s) return "'" .. s:gsub("'", "'\\''") .. "'" end

local function is_wanted(mode, path)
  if opts.all then return true end
  if t.sanitized and type(mode.sanitized) == "function" and not mode.sanitized(path) then return false end
  if not mode.files then return true end
  for _, pattern in ipairs(mode.files) do
    if path:find(pattern) then return true end
  end
  return false
end

-- Returns the files of a mode.
local function files_of(mode)
  local p, files = assert(io.popen("cd " .. quote(root) .. " && find tests/lua -name '*.lua' | LC_ALL=C sort")), {}
  for line in p:lines() do
    if is_wanted(mode, line) then files[#files + 1] = line end
  end
  p:close()
  return files
end

-- Returns the modes to run. Under the sanitizers these are the modes that run different code.
local function all_modes()
  local some = {}
  for _, m in ipairs(modes) do if not m.named and (m.sanitized or not t.sanitized) then some[#some + 1] = m end end
  return some
end

local function find_mode(name)
  for _, m in ipairs(modes) do if m.name == name then return m end end
  local names = {}
  for i, m in ipairs(modes) do names[i] = m.name end
  io.stderr:write("no mode '", name, "' (there are ", table.concat(names, ", "), ")\n")
  os.exit(2, true)
end

local function closing(label, r)
  io.write(label, r.passed, " passed, ", r.failed, " failed, ", r.skipped, " skipped\n")
  io.flush()
end

local function absolute(path)
  if path:sub(1, 1) == "/" or not path:find("/") then return path end
  local p = assert(io.popen("pwd"))
  local cwd = p:read("*l")
  p:close()
  return cwd .. "/" .. path
end

-- The order in which the test device works. A failed run prints it.
local function device_seed()
  local given = os.getenv("PERIGEE_TEST_DEVICE_SEED")
  if given then return given end
  local f = assert(io.open("/dev/urandom", "rb"))
  local a, b, c = f:read(3):byte(1, 3)
  f:close()
  return tostring(a + 256 * b + 65536 * c)
end
local seed = device_seed()

-- Returns the command of a child process with these arguments. The child writes its counts to the file `report`; if it
-- crashes, the file holds the name of the running test.
local function command_of(mode, args, report)
  local env = {"PERIGEE_TEST_REPORT=" .. quote(report), "PERIGEE_TEST_DEVICE_SEED=" .. seed}
  for k, v in pairs(mode.env or {}) do env[#env + 1] = k .. "=" .. quote(v) end
  return ("env %s %s %s --mode=%s %s"):format(table.concat(env, " "), quote(program), quote(arg[0]), mode.name, args)
end

local function new_sum() return {passed = 0, failed = 0, skipped = 0, reasons = {}} end

local function add(sum, r)
  for _, key in ipairs{"passed", "failed", "skipped"} do sum[key] = sum[key] + r[key] end
  for reason, n in pairs(r.reasons) do sum.reasons[reason] = (sum.reasons[reason] or 0) + n end
end

-- The counts as a file of a child, and back; nil if the child did not come to its end.
local function report_of(r)
  local lines = {("done %d %d %d\n"):format(r.passed, r.failed, r.skipped)}
  for reason, n in pairs(r.reasons) do lines[#lines + 1] = n .. " " .. reason .. "\n" end
  return table.concat(lines)
end

local function counts_in(text)
  local p, f, s, reasons = text:match("^done (%d+) (%d+) (%d+)\n(.*)$")
  if not p then return nil end
  local r = {passed = tonumber(p), failed = tonumber(f), skipped = tonumber(s), reasons = {}}
  for n, reason in reasons:gmatch("(%d+) ([^\n]+)") do r.reasons[reason] = tonumber(n) end
  return r
end

local function print_skipped(mode, reasons)
  local lines = {}
  for reason, n in pairs(reasons) do lines[#lines + 1] = ("skipped [%s] %d x %s\n"):format(mode, n, reason) end
  table.sort(lines)
  io.write(table.concat(lines))
end

-- Adds the counts of a finished child to those of its mode.
local function collect(run)
  local text, sum = t.read(run.report), run.sum
  local counts = counts_in(text)
  if counts then add(sum, counts)
  else
    sum.failed = sum.failed + 1
    io.write("FAILED [", run.mode.name, "] the process ended with code ", run.code, " in ",
      text == "" and "start-up" or text, "\n")
  end
end

-- Runs all commands, `jobs` at a time. The output of each is printed when it has ended.
local function run_at_once(runs, jobs)
  for i, run in ipairs(runs) do
    local place = t.tmp("run" .. i)
    t.write(place, ("%s >%s.log 2>&1\necho $? >%s.code\ncat %s.log\n"):format(run.command, place, place, place))
  end
  os.execute(("seq 1 %d | xargs -P %d -I@ sh %s@"):format(#runs, jobs, t.tmp("run")))
  for i, run in ipairs(runs) do
    local path = t.tmp("run" .. i .. ".code")
    if not t.exists(path) then os.exit(130, true) end  -- interrupted
    run.code = tonumber(t.read(path))
  end
end

local function run_in_turn(runs)
  for _, run in ipairs(runs) do
    run.code = t.status_of(os.execute(run.command))
    if run.code == 130 or run.code == 2 then os.exit(run.code, true) end
  end
end

local function processors()
  local p = assert(io.popen("nproc"))
  local n = p:read("*n")
  p:close()
  return n or 1
end

local function pass_on()
  local args = {}
  if opts.times then args[#args + 1] = "--times" end
  if opts.all then args[#args + 1] = "--all" end
  if opts.program then args[#args + 1] = quote("--program=" .. opts.program) end
  if opts.pattern then args[#args + 1] = quote(opts.pattern) end
  return table.concat(args, " ")
end

-- Runs a file. A process of its own, since a full collection costs what lives.
local function run_file(mode, path)
  local pg = require "perigee"
  t.mode, t.label, t.root, t.filter, t.program = mode.name, "[" .. mode.name .. "] ", root, opts.pattern, absolute(opts.program or program)
  t.all, t.times = opts.all, opts.times
  local report = os.getenv("PERIGEE_TEST_REPORT")
  local function note(text)
    if not report then return end
    local f = io.open(report, "w")
    f:write(text)
    f:close()
  end
  function t.on_start(name)
    note(t.file .. ": " .. name)
    if mode.start then mode.start(pg) end
  end
  pg.testing.on_warning(t.on_warning)
  if mode.setup then mode.setup(pg) end
  if mode.start then mode.start(pg) end
  t.file = path
  local start = os.clock()
  local ok = t.protect("(file)", function()
    local chunk = assert(loadfile(root .. "/" .. path))
    chunk(path)
  end)
  if ok then t.passed = t.passed - 1 end  -- the file itself is not a test
  if opts.times then io.write(string.format("%7.2f s %5d %s\n", os.clock() - start, t.passed, path)) end
  collectgarbage()
  t.cleanup()
  if t.device ~= "cpu" then pg.synchronize(t.device) end  -- kernels need tables that are gone when the process exits
  note(report_of(t))
  if not report then
    print_skipped(mode.name, t.reasons)
    closing("", t)
  end
  os.exit(t.failed > 0 and 1 or 0, true)  -- closing the state runs every finalizer
end

local function run_children()
  local order, runs = opts.mode and {find_mode(opts.mode)} or all_modes(), {}
  local sums, total = {}, new_sum()
  for _, mode in ipairs(order) do
    sums[mode] = new_sum()
    for _, file in ipairs(opts.file and {opts.file} or files_of(mode)) do
      local run = {mode = mode, sum = sums[mode], report = t.tmp("report" .. #runs + 1)}
      run.command = command_of(mode, "--file=" .. quote(file) .. " " .. pass_on(), run.report)
      t.write(run.report, "")
      runs[#runs + 1] = run
    end
  end
  local jobs = math.min(#runs, tonumber(opts.jobs) or processors(), 4)
  if jobs > 1 then run_at_once(runs, jobs) else run_in_turn(runs) end
  for _, run in ipairs(runs) do collect(run) end
  t.cleanup()
  for _, mode in ipairs(order) do
    print_skipped(mode.name, sums[mode].reasons)
    closing(mode.name .. ": ", sums[mode])
    add(total, sums[mode])
  end
  if total.failed > 0 then io.write("PERIGEE_TEST_DEVICE_SEED=", seed, "\n") end
  closing("", total)
  os.exit(total.failed > 0 and 1 or 0, true)
end

local mode = opts.mode and find_mode(opts.mode)
local ready = mode and opts.file and os.getenv("PERIGEE_TEST_DEVICE_SEED")
for k, v in pairs(mode and mode.env or {}) do ready = ready and os.getenv(k) == v end
if ready then run_file(mode, opts.file) else run_children() end
