-- pg.cuda without a driver, and on the fake driver of tests/cuda in a process of its own.
local t = require "tests.support"
local pg = require "perigee"
local fake = require "tests.cuda.host"

local function run(env, script)
  local list = {}
  for name, value in pairs(env) do list[#list + 1] = ("%s='%s'"):format(name, value) end
  return t.shell(("cd '%s' && env %s '%s' -"):format(t.root, table.concat(list, " "), t.program), script)
end

local function needs_process()
  if t.mode ~= "eager" then t.skip(t.mode .. ": a process of its own") end
  if not fake then t.skip("the CUDA device is not built") end
end

t.test("without a driver there is no GPU, and errors say why", function()
  needs_process()
  local out, err, code = run({PERIGEE_CUDA_DRIVER = "/absent.so"}, [[
    local pg = require "perigee"
    print(pg.cuda.is_available(), pg.cuda.device_count(), table.concat(pg.devices(), " "))
    print(select(2, pcall(pg.cuda.device_name)))
    print(select(2, pcall(function() return pg.ones(2):to("cuda") end)))]])
  t.equal({err, code}, {"", 0})
  t.check(out:find("^false\t0\tcpu\n"), out)
  local _, told = out:gsub("device 'cuda' cannot be loaded: /absent%.so cannot be opened", "")
  t.equal(told, 2, out)
end)

t.test("GPUs without tensor cores for bfloat16 compute attention in float32", function()
  needs_process()
  if t.sanitized then t.skip("AddressSanitizer warns of the fake driver's fibers") end
  local env = {PERIGEE_FAKE_ARCH = "75"}
  for name, value in pairs(fake) do env[name] = value end
  local out, err, code = run(env, [[
    local pg, calls = require "perigee", require("tests.cuda.fake").fake_calls
    local x = pg.ones(2, 3, 16):to("bfloat16"):to("cuda")
    local y = pg.scaled_dot_product_attention(x, x, x)
    print(y.dtype, y:float():sum():item(), calls("attend"), calls("attend_halves"))]])
  t.equal({out, err, code}, {"bfloat16\t96\t1\t0\n", "", 0})
end)

t.test("facts and switches of GPUs", function()
  needs_process()
  if t.sanitized then t.skip("AddressSanitizer warns of the fake driver's fibers") end
  local out, err, code = run(fake, [[
    local pg = require "perigee"
    local cuda = pg.cuda
    print(cuda.is_available(), cuda.device_count(), cuda.device_name(), cuda.device_name(1))
    local x = pg.ones(1024, 1024):to("cuda")
    local m = cuda.memory()
    print(m.used, m.used + m.cached + m.free <= m.total, cuda.memory(1).used)
    cuda.allow_tf32(true)
    print(x:matmul(x):sum():item())
    cuda.allow_tf32(false)
    cuda.synchronize()
    print(table.concat(pg.devices(), " "))
    print(select(2, pcall(cuda.device_name, 2)))
    print(select(2, pcall(cuda.memory, -1)))]])
  t.equal({err, code}, {"", 0})
  local lines = {}
  for line in out:gmatch("[^\n]+") do lines[#lines + 1] = line end
  t.equal(lines[1], "true\t2\tFake GPU\tFake GPU")
  t.equal(lines[2], "4194304\ttrue\t0")
  t.equal({lines[3], lines[4]}, {tostring(1024 ^ 3), "cpu cuda cuda:1"})
  t.check(lines[5]:find("bad argument 'device' (expected a number below 2, got \"cuda:2\")", 1, true), lines[5])
  t.check(lines[6]:find("cuda.memory: bad argument 'index' (expected a whole number >= 0, got number -1)", 1, true), lines[6])
end)

t.test("pg.cuda checks its arguments", function()
  t.error_contains(function() pg.cuda.allow_tf32(1) end, "cuda.allow_tf32: bad argument 'on' (expected a boolean, got number 1)")
  t.error_contains(function() return pg.cuda.memroy end, "memory")
end)
