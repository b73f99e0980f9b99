-- Runs tests/lua in one mode or in all: build/perigee tests/run.lua [--mode=M] [--isolate] [--times] [--all] [pattern]
-- In another LuaJIT: LUA_CPATH='build/?.so' luajit tests/run.lua --program=build/perigee … ; tests of the program run that one.
-- pattern is a Lua pattern over "tests/lua/test_file.lua: test name". --isolate gives every file a process of its own. --all: all
-- files in modes that take a sample.
local root = (arg[0]:match("^(.*)/tests/run%.lua$")) or (arg[0]:match("^tests/run%.lua$") and ".") or ".."
package.path = root .. "/?.lua;" .. package.path
local t = require "tests.support"
local modes = require "tests.modes"
local program = arg[-1] or "build/perigee"
io.stdout:setvbuf("line")

local opts = {}
for _, a in ipairs(arg) do
  local key, value = a:match("^%-%-(%w+)=(.*)$")
  if key then opts[key] = value
  elseif a:match("^%-%-") then opts[a:sub(3)] = true
  else opts.pattern = a end
end

local function quote(s) return "'" .. s:gsub("'", "'\\''") .. "'" end

local function is_wanted(mode, path)
  if not mode.files or opts.all then return true end
  for _, pattern in ipairs(mode.files) do
    if path:find(pattern) then return true end
  end
  return false
end

-- The files of a mode.
local function files_of(mode)
  local p, files = assert(io.popen("cd " .. quote(root) .. " && find tests/lua -name '*.lua' | LC_ALL=C sort")), {}
  for line in p:lines() do
    if is_wanted(mode, line) then files[#files + 1] = line end
  end
  p:close()
  return files
end

-- Under the sanitizers those that add code to look at: the others run the same with other canaries, files or passes.
local function all_modes()
  if not os.getenv("PERIGEE_SANITIZED") then return modes end
  local some = {}
  for _, m in ipairs(modes) do if m.sanitized then some[#some + 1] = m end end
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

-- Runs a child with these arguments and adds its counts, which it leaves in a file with the name of the running test.
local function child(mode, args, sum)
  local report = os.tmpname()
  local env = {"PERIGEE_TEST_REPORT=" .. quote(report)}
  for k, v in pairs(mode.env or {}) do env[#env + 1] = k .. "=" .. quote(v) end
  local command = string.format("env %s %s %s --mode=%s %s", table.concat(env, " "), quote(program), quote(arg[0]),
                                mode.name, args)
  local code = t.status_of(os.execute(command))
  local text = t.read(report)
  os.remove(report)
  local p, f, s = text:match("^done (%d+) (%d+) (%d+)$")
  if p then
    sum.passed, sum.failed, sum.skipped = sum.passed + p, sum.failed + f, sum.skipped + s
  else
    sum.failed = sum.failed + 1
    io.write("FAILED [", mode.name, "] the process ended with code ", code, " in ", text == "" and "start-up" or text, "\n")
  end
  if code == 130 or code == 2 then os.exit(code, true) end
end

local function pass_on()
  local args = {}
  if opts.times then args[#args + 1] = "--times" end
  if opts.all then args[#args + 1] = "--all" end
  if opts.program then args[#args + 1] = quote("--program=" .. opts.program) end
  if opts.pattern then args[#args + 1] = quote(opts.pattern) end
  return table.concat(args, " ")
end

local function run_files(mode)
  local pg = require "perigee"
  t.mode, t.root, t.filter, t.program = mode.name, root, opts.pattern, absolute(opts.program or program)
  local report = os.getenv("PERIGEE_TEST_REPORT")
  local function note(text)
    if not report then return end
    local f = io.open(report, "w")
    f:write(text)
    f:close()
  end
  function t.on_start(name) note(t.file .. ": " .. name) end
  if mode.setup then mode.setup(pg) end
  for _, path in ipairs(opts.file and {opts.file} or files_of(mode)) do
    t.file = path
    local start = os.clock()
    local before = t.passed
    local ok = t.protect("(file)", function()
      local chunk = assert(loadfile(root .. "/" .. path))
      chunk(path)
    end)
    if ok then t.passed = t.passed - 1 end  -- the file itself is not a test
    if opts.times then io.write(string.format("%7.2f s %5d %s\n", os.clock() - start, t.passed - before, path)) end
    collectgarbage()
  end
  t.cleanup()
  for reason, n in pairs(t.reasons) do io.write("skipped [", mode.name, "] ", n, " x ", reason, "\n") end
  note(string.format("done %d %d %d", t.passed, t.failed, t.skipped))
  if not report then closing("", t) end
  os.exit(t.failed > 0 and 1 or 0, true)  -- closing the state runs every finalizer
end

local function run_children()
  local sum = {passed = 0, failed = 0, skipped = 0}
  for _, mode in ipairs(opts.mode and {find_mode(opts.mode)} or all_modes()) do
    local own = {passed = 0, failed = 0, skipped = 0}
    if opts.isolate then
      for _, file in ipairs(files_of(mode)) do
        child(mode, "--file=" .. quote(file) .. " " .. pass_on(), own)
      end
    else
      child(mode, pass_on(), own)
    end
    closing(mode.name .. ": ", own)
    for k, v in pairs(own) do sum[k] = sum[k] + v end
  end
  closing("", sum)
  os.exit(sum.failed > 0 and 1 or 0, true)
end

local mode = opts.mode and find_mode(opts.mode)
local ready = mode and not opts.isolate
for k, v in pairs(mode and mode.env or {}) do ready = ready and os.getenv(k) == v end
if ready then run_files(mode) else run_children() end
