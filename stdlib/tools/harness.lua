-- The harness of test files: perigee test, and the project's own tests (tests/support.lua adds to it). A test file calls
-- local t = require "perigee.test"
-- t.test("sums", function() t.equal(pg.ones(2):sum():item(), 2) end)
-- t.test runs its function at once. A failure is printed with its traceback and counted.
local t = {
  filter = nil,   -- a Lua pattern: only tests whose "file: name" matches it run
  label = "",     -- what is printed after FAILED
  passed = 0, failed = 0, skipped = 0, reasons = {}, file = "?",
  on_start = function() end,  -- is called with the name of each test
  pcall = pcall,  -- how a function that must fail is called
  hidden = {"stdlib/tools/harness%.lua:"},  -- Lua patterns: frames that failures do not show
  way = nil,      -- way(f) -> the function to run instead of the function of a test
}

local SkipToken = {}

-- Skips the running test; outside of a test, the rest of the file.
function t.skip(reason) error(setmetatable({reason = reason}, SkipToken), 0) end

local function count_skip(reason)
  t.skipped = t.skipped + 1
  t.reasons[reason] = (t.reasons[reason] or 0) + 1
end

-- Adds the frames of the test to an error: without those outside of the test, which are below the harness, and those
-- that match t.hidden.
local function handler(e)
  if getmetatable(e) == SkipToken then return e end
  local message = tostring(e)
  local trace, frames = debug.traceback("", 2), {}
  trace = trace:match("^(.-)\n\t%[C%]: in function 'xpcall'\n\t[^\n]*stdlib/tools/harness%.lua:") or trace
  for frame in trace:gmatch("\n(\t[^\n]+)") do
    local hidden = false
    for _, pattern in ipairs(t.hidden) do hidden = hidden or frame:find(pattern) end
    if not hidden then frames[#frames + 1] = "\n" .. frame end
  end
  return message .. (#frames > 0 and "\nstack traceback:" .. table.concat(frames) or "")
end

local function plain(v)
  if type(v) == "userdata" then return v:totable() end
  return v
end

local function show(v)
  if type(v) == "string" then return string.format("%q", v) end
  if type(v) == "number" then return string.format("%.9g", v) end
  if type(v) ~= "table" then return tostring(v) end
  local parts = {}
  for i = 1, math.min(#v, 8) do parts[i] = show(v[i]) end
  if #v > 8 then parts[9] = "…" end
  local keys = {}
  for k in pairs(v) do if type(k) ~= "number" then keys[#keys + 1] = k end end
  table.sort(keys, function(a, b) return tostring(a) < tostring(b) end)
  for _, k in ipairs(keys) do parts[#parts + 1] = tostring(k) .. " = " .. show(v[k]) end
  return "{" .. table.concat(parts, ", ") .. "}"
end
t.show = show

-- Raises an error at the caller of the caller, or further out for a level above 3.
local function fail(text, what, level) error((what and what .. ": " or "") .. text, level or 3) end
t.fail = fail

-- Of the running test: {allowed = patterns, unexpected = warnings, list = where t.warnings collects, outer = of the file}
local scope

-- Receives a warning of the library. An unexpected one fails the running test.
function t.on_warning(text)
  if scope.list then
    scope.list[#scope.list + 1] = text
    return
  end
  local s = scope
  while s do
    for _, pattern in ipairs(s.allowed) do if text:find(pattern) then return end end
    s = s.outer
  end
  scope.unexpected[#scope.unexpected + 1] = text
end

-- Warnings that match the Lua pattern may come until the end of the running test; outside of a test, of the file.
function t.may_warn(pattern)
  if scope then scope.allowed[#scope.allowed + 1] = pattern end
end

-- Returns the warnings of f(…) as a list.
function t.warnings(f, ...)
  local list, before, inside = {}, scope.list, scope
  inside.list = list
  local ok, e = pcall(f, ...)
  inside.list = before
  if not ok then error(e, 0) end
  return list
end

-- f(…) must warn, and each of its warnings must match the Lua pattern. Returns them.
function t.warns(pattern, f, ...)
  local list = t.warnings(f, ...)
  if #list == 0 then fail("expected a warning, none came") end
  for _, text in ipairs(list) do
    if not text:find(pattern) then fail("warning " .. show(text) .. " does not match " .. show(pattern)) end
  end
  return list
end

-- Runs f. Returns true, or false and the error or the unexpected warnings.
local function attempt(f)
  local inside = {allowed = {}, unexpected = {}, outer = scope}
  scope = inside
  local ok, e = xpcall(t.way and t.way(f) or f, handler)
  scope = inside.outer
  local warned = inside.unexpected
  if not ok or #warned == 0 then return ok, e end
  return false, #warned .. " unexpected warnings:\n" .. table.concat(warned, "\n", 1, math.min(#warned, 5))
end

-- Runs f, counts it, and prints a failure with its traceback.
function t.protect(name, f)
  t.on_start(name)
  local ok, e = attempt(f)
  if ok then t.passed = t.passed + 1
  elseif getmetatable(e) == SkipToken then count_skip(e.reason)
  else
    t.failed = t.failed + 1
    io.write("FAILED ", t.label, t.file, ": ", name, "\n  ", (tostring(e):gsub("\n", "\n  ")), "\n")
    io.flush()
  end
  return ok
end

function t.test(name, f)
  if t.filter and not (t.file .. ": " .. name):find(t.filter) then return end
  local start = os.clock()
  local ok = t.protect(name, f)
  local seconds = os.clock() - start
  if t.times and seconds > 0.5 then io.write(string.format("%7.2f s   %s: %s\n", seconds, t.file, name)) end
  return ok
end

-- Returns the path of the first difference of two values, and what differs; nil if nothing does. same(a, b) compares
-- leaves.
local function difference(a, b, same)
  a, b = plain(a), plain(b)
  if type(a) == "table" and type(b) == "table" then
    for k, v in pairs(b) do
      local path, what = difference(a[k], v, same)
      if path then return "[" .. tostring(k) .. "]" .. path, what end
    end
    for k, v in pairs(a) do
      if b[k] == nil then return "[" .. tostring(k) .. "]", "got " .. show(v) .. ", expected nothing" end
    end
  elseif not same(a, b) then
    return "", "got " .. show(a) .. ", expected " .. show(b)
  end
end

-- Raises at the caller of the caller unless the leaves of a and b are the same.
local function must_match(a, b, same, what)
  local path, text = difference(a, b, same)
  if path then fail((path == "" and "value" or path) .. ": " .. text, what, 4) end
end

local function same_type(a, b)
  if type(a) ~= "userdata" or type(b) ~= "userdata" then return end
  local function kind(x) return x.dtype .. " " .. table.concat(x.shape, "x") end
  if kind(a) ~= kind(b) then return "got " .. kind(a) .. ", expected " .. kind(b) end
end

-- Raises if a and b differ. Tensors are compared by dtype, shape and elements, tables by content; NaN equals NaN. One
-- may be a table and the other a tensor.
function t.equal(a, b, what)
  local d = same_type(a, b)
  if d then fail(d, what) end
  must_match(a, b, function(x, y) return x == y or (x ~= x and y ~= y) end, what)
end

-- Raises unless |a - b| <= atol + rtol * |b| per element, for tensors, numbers and nested tables. Infinities and other
-- values must be equal.
function t.close(a, b, opts)
  opts = opts or {}
  local rtol, atol = opts.rtol or 1e-5, opts.atol or 1e-6
  must_match(a, b, function(x, y)
    if x == y or (x ~= x and y ~= y) then return true end
    if type(x) ~= "number" or type(y) ~= "number" then return false end
    return math.abs(y) < math.huge and math.abs(x - y) <= atol + rtol * math.abs(y)
  end, opts.what)
end

function t.check(value, what) if not value then fail(what or "expected a true value, got " .. tostring(value)) end end

local function message_of(f, ...)
  local ok, e = t.pcall(f, ...)
  if ok then fail("expected an error, none was raised", nil, 4) end
  if getmetatable(e) == SkipToken then error(e, 0) end
  if type(e) ~= "string" then fail("expected a string as error, got " .. type(e), nil, 4) end
  return e
end
t.message_of = message_of

-- f(...) must raise a string that matches the Lua pattern; returns the message.
function t.error_matches(f, pattern, ...)
  local e = message_of(f, ...)
  if not e:find(pattern) then fail("message " .. show(e) .. " does not match " .. show(pattern)) end
  return e
end

-- The same for a plain text instead of a pattern.
function t.error_contains(f, text, ...)
  local e = message_of(f, ...)
  if not e:find(text, 1, true) then fail("message " .. show(e) .. " does not contain " .. show(text)) end
  return e
end

local function exists(path)
  local f = io.open(path, "rb")
  if f then f:close() end
  return f ~= nil
end

function t.read(path)
  local f = assert(io.open(path, "rb"))
  local s = f:read("*a")
  f:close()
  return s
end

function t.write(path, bytes)
  local f = assert(io.open(path, "wb"))
  assert(f:write(bytes))
  f:close()
  return path
end

local folder

-- Returns the path of a file in a temporary folder that is removed at the end. t.tmp() returns the folder.
function t.tmp(name)
  if not folder then
    local p = assert(io.popen("mktemp -d"))
    folder = p:read("*l")
    p:close()
  end
  return name and folder .. "/" .. name or folder
end

function t.cleanup()
  if folder then os.execute("rm -rf '" .. folder .. "'") end
  folder = nil
end

local function status_of(a, _, code)
  if type(a) == "number" then return a >= 256 and math.floor(a / 256) or a end
  return code or (a and 0 or 1)
end

-- Runs a shell command with the text on standard input. Returns standard output, standard error, exit code. Warnings of
-- perigee on standard error count as those of the test.
function t.shell(command, input)
  local out, err, inp = t.tmp("stdout"), t.tmp("stderr"), t.write(t.tmp("stdin"), input or "")
  local code = status_of(os.execute(string.format("{ %s ; } >'%s' 2>'%s' <'%s'", command, out, err, inp)))
  local errors = t.read(err)
  for text in errors:gmatch("perigee: warning: ([^\n]*)") do t.on_warning(text) end
  return t.read(out), errors, code
end

t.status_of, t.exists = status_of, exists
return t
