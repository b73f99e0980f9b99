-- perigee test: runs test files. Each has a process of its own, in which harness.lua counts; a single file runs in this
-- one.
local core = ...
local paths = core.require("tools.paths")

local function counts_text(r) return ("%d passed, %d failed, %d skipped"):format(r.passed, r.failed, r.skipped) end

-- Returns the files that the words name: themselves, or the test files below a folder.
local function find_files(words)
  local files = {}
  for _, word in ipairs(words) do
    local kind, why = paths.kind(word)
    if not kind then return nil, why end
    if kind == "file" then files[#files + 1] = word
    else
      local names = "-type f '(' -name 'test_*.lua' -o -name '*_test.lua' ')'"
      local found = assert(io.popen("find " .. paths.quote((word:gsub("^%-", "./-"))) .. " " .. names .. " | LC_ALL=C sort"))
      for line in found:lines() do files[#files + 1] = line:gsub("^%./+", "") end
      found:close()
    end
  end
  if #files == 0 then return nil, "test: no file test_*.lua or *_test.lua below " .. table.concat(words, ", ") end
  return files
end

-- The environment variable that names the file of a process that run_files starts.
local part = "PERIGEE_TEST_PART"

-- Returns 0 if all tests have passed, 1 if not, and nil and an error if there was none.
local function outcome(r, pattern)
  if r.failed > 0 then return 1 end
  if r.passed + r.skipped > 0 then return 0 end
  return nil, pattern and ("test: no test matches the pattern '%s'"):format(pattern) or "test: no file calls t.test"
end

local function print_counts(t)
  t.cleanup()
  local reasons = {}
  for reason, n in pairs(t.reasons) do reasons[#reasons + 1] = ("skipped: %d x %s\n"):format(n, reason) end
  table.sort(reasons)
  io.write(table.concat(reasons), counts_text(t), "\n")
end

-- A file that ends its process, with whatever code, has failed: its later tests do not run.
local function refuse_exit(t)
  local exit = os.exit
  function os.exit(code)  -- luacheck: ignore
    local at, given = debug.getinfo(2, "Sl"), code == nil and "" or tostring(code)
    t.failed = t.failed + 1
    io.write(("FAILED %s: os.exit(%s) at %s:%d ended the file\n"):format(t.file, given, (at.source:gsub("^@", "")), at.currentline))
    print_counts(t)
    exit(1)
  end
end

-- Runs the file here and prints its counts.
local function run_file(path, options)
  local chunk, why = paths.load(path)
  if not chunk and not why:find("^" .. path:gsub("%p", "%%%0") .. ":%d+:") then return nil, why end
  local t = core.require("tools.harness")
  t.file, t.filter, t.hidden = path, options.pattern, {"^\tstdlib/", "^\t%[C%]: in function 'error'"}
  core.require("testing").on_warning(t.on_warning)
  refuse_exit(t)
  _G.arg = {[0] = path, [-1] = options.program}
  local ok = t.protect("(file)", function()
    if not chunk then error(why, 0) end
    return chunk(path)
  end)
  if ok then t.passed = t.passed - 1 end  -- the file itself is not a test
  print_counts(t)
  if os.getenv(part) == path then return t.failed > 0 and 1 or 0 end
  return outcome(t, options.pattern)
end

-- Starts a process for the file. Its output ends in its exit code.
local function start(path, command)
  local words = {}
  for i, word in ipairs(command) do words[i] = paths.quote(word) end
  io.stdout:flush()
  local quoted = paths.quote(path)
  return assert(io.popen(("%s=%s %s -- %s 2>&1; code=$?; echo; echo $code"):format(part, quoted, table.concat(words, " "), quoted)))
end

-- Prints the output of a process and a line about its file, and adds its counts to the sum.
local function finish(path, process, sum)
  local text, code = process:read("*a"):match("^(.-)\n(%d+)\n$")
  process:close()
  local output, p, f, s = (text or ""):match("^(.-)(%d+) passed, (%d+) failed, (%d+) skipped\n$")
  if not output then
    output, p, f, s = text or "", 0, 1, 0
    if output ~= "" and output:sub(-1) ~= "\n" then output = output .. "\n" end
    output = ("%sFAILED %s: its process ended with code %s\n"):format(output, path, code or "unknown")
  end
  local r = {passed = tonumber(p), failed = tonumber(f), skipped = tonumber(s)}
  for key, n in pairs(r) do sum[key] = sum[key] + n end
  io.write(output, path, ": ", counts_text(r), "\n")
  io.flush()
end

local function run_files(files, options, command)
  local running, sum, jobs = {}, {passed = 0, failed = 0, skipped = 0}, math.max(1, options.jobs or 1)
  for i, path in ipairs(files) do
    for k = i, math.min(i + jobs - 1, #files) do running[k] = running[k] or start(files[k], command) end
    finish(path, running[i], sum)
  end
  io.write(#files, " files: ", counts_text(sum), "\n")
  return outcome(sum, options.pattern)
end

return function(words, options, command)
  local files, why = find_files(words)
  if not files then return nil, why end
  options.program = command[1]
  if #files == 1 then return run_file(files[1], options) end
  return run_files(files, options, command)
end
