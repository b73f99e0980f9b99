-- Functions for test files: local t = require "tests.support". tests/run.lua runs the files. The harness is that of
-- perigee test; the program, or another LuaJIT, reads it from the checkout, so that its functions are those of a script.
local root = debug.getinfo(1, "S").source:match("^@(.*)/tests/support%.lua$") or "."
local t = dofile(root .. "/stdlib/tools/harness.lua")
t.mode, t.root, t.program, t.label = "eager", ".", "build/perigee", "[eager] "
t.device = "cpu"  -- of tensors that name none
local show, fail, exists = t.show, t.fail, t.exists

-- t.skip_in("gcstress", "trains for a minute") skips in that mode only.
-- "hybrid" means all modes that hybridize.
local hybridizes = {hybrid = true, nofuse = true, roundtrip = true}
function t.skip_in(mode, reason)
  if t.mode == mode or (mode == "hybrid" and hybridizes[t.mode]) then t.skip(t.mode .. ": " .. reason) end
end

-- Whether under the sanitizers.
t.sanitized = os.getenv("PERIGEE_SANITIZED") ~= nil

-- Whether this run takes all cases of tests that have many: other modes and sanitized runs take some of them.
function t.takes_all() return t.all or t.mode == "eager" and not t.sanitized end

-- Checks the shape of a tensor, and its elements if they are given.
function t.has(x, shape, elements)
  t.equal(x.shape, shape, "shape")
  if elements then t.equal(x:totable(), elements, "values") end
end

-- Checks each element against a list of numbers, by relative error.
function t.elements_near(got, expected, tolerance)
  for i, v in ipairs(got:reshape{-1}:totable()) do
    local want = expected[i]
    t.check(math.abs(v - want) <= (tolerance or 1e-6) * math.abs(want), ("element %d: %.9g, expected %.9g"):format(i, v, want))
  end
end

-- Returns f(leaves) for tensors made of the values, and the gradients of its sum.
function t.gradients(f, ...)
  local pg, leaves = require "perigee", {}
  for k, x in ipairs{...} do leaves[k] = pg.tensor(x):attach_grad() end
  local y
  pg.record(function()
    y = f(unpack(leaves))
    return y:sum()
  end):backward()
  local grads = {}
  for k, x in ipairs(leaves) do grads[k] = x.grad end
  return y, unpack(grads)
end

local function settle(ok, ...)
  if ok and t.device ~= "cpu" then
    local fine, e = pcall(require("perigee").synchronize, t.device)
    if not fine then return false, e end
  end
  return ok, ...
end

-- pcall(f, …) that also catches the errors that a device reports after f has returned.
function t.pcall(f, ...) return settle(pcall(f, ...)) end

-- f(...) must raise `file:line: op: bad argument 'name' (expected …, got …)`. op and name are plain texts; nil matches
-- any.
function t.bad_argument(f, op, name, ...)
  local e = t.message_of(f, ...)
  local where, o, n = e:match("^(%S+:%d+): (.-): bad argument '(.-)' %(expected .+, got .+%)")
  if not where then fail("message " .. show(e) .. " has not the form of a bad argument") end
  if t.device ~= "cpu" and o .. "_" == op then o = op end  -- an error that comes late names the op, not the method
  if op and o ~= op then fail("message names op " .. show(o) .. ", expected " .. show(op) .. ": " .. e) end
  if name and n ~= name then fail("message names argument " .. show(n) .. ", expected " .. show(name) .. ": " .. e) end
  return e
end

-- Returns the path of a file or folder in ../shared (or $PERIGEE_SHARED). If it is absent the test is skipped, or fails
-- in CI.
function t.shared(path)
  local full = (os.getenv("PERIGEE_SHARED") or t.root .. "/../shared") .. "/" .. path
  if exists(full) then return full end
  if os.getenv("CI") == "true" then error("../shared/" .. path .. " is missing; CI may not skip it", 2) end
  t.skip("../shared is not beside this checkout")
end

-- Whether the program may exit by os.exit, which does not close its Lua state. The leak checker then reports false
-- leaks, since it does not find references in Lua's memory.
local function leaves_early(args, input)
  local text = args .. (input or "")
  for path in args:gmatch("[^%s'\"]+%.lua") do
    if not exists(path) then path = t.root .. "/" .. path end
    if exists(path) then text = text .. t.read(path) end
  end
  return text:find("os.exit", 1, true)
end

-- The same for build/perigee with these arguments (in shell syntax), run in the root of the checkout.
function t.run(args, input)
  local sanitized = t.sanitized and leaves_early(args, input)
  local environment = sanitized and "ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0 " or ""
  return t.shell("cd '" .. t.root .. "' && " .. environment .. "'" .. t.program .. "' " .. args, input)
end

-- The folder of the program, with the hosts that the build makes.
function t.build_folder() return t.program:match("^(.*)/[^/]*$") or "." end

-- Returns what a command of the shell writes, and then "code N".
function t.output_of(command)
  local pipe = assert(io.popen(command .. " 2>&1; echo code $?"))
  local text = pipe:read("*a")
  pipe:close()
  return text
end

-- Runs the script once per name of a pass, in a process that disables the pass and verifies the output of the others.
-- The default is: all passes enabled (""), each disabled, and all disabled ("all").
function t.without_passes(script, names)
  for _, mode in ipairs{"gcstress", "guard"} do t.skip_in(mode, "processes of their own") end
  for _, name in ipairs(names or {"", "all", unpack(require("perigee").testing.pass_names())}) do
    local command = "cd '%s' && PERIGEE_VERIFY_PASSES=1 PERIGEE_VERIFY_PLANS=1 PERIGEE_DISABLE_PASSES=%s '%s' -"
    local out, err, code = t.shell(command:format(t.root, name, t.program), script)
    t.check(code == 0, "without '" .. name .. "': " .. out .. err)
  end
end

return t
