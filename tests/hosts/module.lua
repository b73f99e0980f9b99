-- Uses perigee as a module of any host with LuaJIT 2.1, with the host's own settings, and checks that nothing of the
-- host has changed. Prints "perigee ok". tests/lua/test_hosts.lua runs it in luajit, scripts/checks/hosts in others.
local ffi = require "ffi"
pcall(ffi.cdef, "extern char **environ; char *setlocale(int, const char *);")

local function environment()
  local lines, i = {}, 0
  while ffi.C.environ[i] ~= nil do
    lines[#lines + 1] = ffi.string(ffi.C.environ[i])
    i = i + 1
  end
  return table.concat(lines, "\n")
end

-- stdlib/support/changes.lua wraps these, since graphs depend on what they change.
local wrapped = {setfenv = true, setupvalue = true, upvaluejoin = true, setmetatable = true}

local function fields(t)
  local lines = {}
  for k, v in pairs(t) do
    local replaced = wrapped[k] and (t == debug or k == "setfenv")
    lines[#lines + 1] = tostring(k) .. "=" .. (replaced and type(v) or tostring(v))
  end
  table.sort(lines)
  return table.concat(lines, "\n")
end

-- The process's signal handlers: ignored and caught ones.
local function signals()
  local file = io.open("/proc/self/status")
  local text = file:read("*a")
  file:close()
  return text:match("SigIgn:%s*(%x+)") .. text:match("SigCgt:%s*(%x+)")
end

local function state_of_host()
  local all = {
    globals = fields(_G), locale = ffi.string(ffi.C.setlocale(6, nil)), environment = environment(), signals = signals(),
    hook = tostring(debug.gethook()), jit = fields{jit.status()}, strings = fields(getmetatable("").__index),
  }
  for _, name in ipairs{"string", "table", "math", "io", "os", "coroutine", "debug", "jit"} do all[name] = fields(_G[name]) end
  return all
end

local before = state_of_host()
local pg = require "perigee"
assert(package.loaded.perigee == pg and require "perigee" == pg)

local net = pg.nn.HybridSequential{pg.nn.Dense(8, {activation = "tanh"}), pg.nn.Dense(1)}
pg.manual_seed(1)
net:initialize("xavier")
net:hybridize()
local trainer = pg.optim.Trainer(net:collect_params(), "sgd", {learning_rate = 0.1})
local loss_fn = pg.loss.L2Loss()
local x, y = pg.randn(16, 4), pg.ones(16, 1)
local function step()
  local loss = pg.record(function() return loss_fn(net(x), y) end)
  loss:backward()
  trainer:step(16)
  return loss:mean():item()
end

local first = step()
collectgarbage("stop")  -- a host that collects by itself
for _ = 1, 30 do step() end
collectgarbage("restart")
assert(step() < 0.5 * first, "the net does not learn")

-- A coroutine that leaves pg.record half way does not disturb its caller, nor another coroutine.
local function recorder()
  return coroutine.wrap(function(w)
    local loss = pg.record(function()
      local s = w * w
      coroutine.yield(pg.is_recording())
      return (s * 2):sum()
    end)
    loss:backward()
    return w.grad:sum():item()
  end)
end
local a, b = recorder(), recorder()
local wa, wb = pg.ones(3):attach_grad(), pg.ones(2):attach_grad()
local ok, inside = pcall(a, wa)
if ok then
  assert(inside == true)
  assert(not pg.is_recording(), "recording has left its coroutine")
  assert(b(wb) == true)
  assert(a() == 12 and b() == 8)
end
assert(not pg.is_recording())

for name, text in pairs(state_of_host()) do
  if text ~= before[name] then error(("%s has changed from\n%s\nto\n%s"):format(name, before[name], text)) end
end
io.stdout:write(ok and "perigee ok\n" or "perigee ok, no yield in record: " .. tostring(inside) .. "\n")
