-- perigee.so in a stock LuaJIT.
local t = require "tests.support"

local build = t.program:match("^(.*)/[^/]*$") or "build"

local function luajit(code)
  if t.sanitized then t.skip("a stock luajit cannot load a sanitized module") end
  local _, _, missing = t.shell("command -v luajit")
  if missing ~= 0 then t.skip("luajit is not installed") end
  local file = t.write(t.tmp("module.lua"), code)
  return t.shell(string.format("LUA_CPATH='%s/?.so' luajit '%s'", build, file))
end

local function expect(code, text)
  local out, err, status = luajit(code)
  t.equal(err, "")
  t.equal(out, text)
  t.equal(status, 0)
end

t.test("require works from a stock luajit", function()
  expect([[local pg = require "perigee"; print(pg.tensor{1, 2, 3}:sum():item())]], "6\n")
end)

t.test("the module sets no global and no hook and leaves the collector as it is", function()
  expect([[
    local before, globals = {}, {}
    for k in pairs(_G) do before[k] = true end
    local pause, step = collectgarbage("setpause", 170), collectgarbage("setstepmul", 210)
    local pg = require "perigee"
    pg.nn.Dense(2)
    for k in pairs(_G) do if not before[k] then globals[#globals + 1] = k end end
    print(#globals, debug.gethook(), collectgarbage("setpause", pause), collectgarbage("setstepmul", step))
  ]], "0\tnil\t170\t210\n")
end)

t.test("the module works where the JIT is off, and after many collections", function()
  expect([[
    jit.off()
    local pg = require "perigee"
    local x = pg.zeros(3)
    for i = 1, 100 do x = x + i; collectgarbage() end
    print(x:sum():item())
  ]], "15150\n")
end)

t.test("coroutines may load and use it", function()
  expect([[
    local co = coroutine.wrap(function()
      local pg = require "perigee"
      coroutine.yield(pg.ones(2):sum():item())
      coroutine.yield(pg.ones(3):sum():item())
    end)
    print(co(), co())
  ]], "2\t3\n")
end)

t.test("a stopped collector stays stopped", function()
  expect([[
    local pg = require "perigee"
    collectgarbage("stop")
    local seen = false
    do local u = newproxy(true); getmetatable(u).__gc = function() seen = true end end
    for _ = 1, 2000 do local _ = pg.ones(1000) + 1 end
    print(seen)
  ]], "false\n")
end)
