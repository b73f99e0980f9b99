-- A defect of LuaJIT's trace stitching, in Debian 12 and in v2.1 of 2026-08: this script ends in a segmentation fault.
-- Trace 1 starts in g and is stitched at clock. Trace 2 continues there, returns to f and is stitched at gsub, in which
-- g is dropped. While the next trace is recorded, the collector frees traces 1 and 2 with g's prototype, because it
-- does not traverse the predecessors of a recording (lj_gc.c: gc_traverse_curtrace). trace_stop (lj_trace.c) then
-- writes through traceref(J, J->exitno), which is NULL. With -Ominstitch=100000 the script prints "done". Run it by
-- hand to see whether a LuaJIT has the defect.
jit.opt.start("hotloop=2", "hotexit=2")
local clock, load = os.clock, loadstring
local h, drop = {}, false
local function release() if drop then h.g = nil end return "b" end
jit.off(release)
local g_source = [[local clock = ...; return function(x) clock(); return x + 1 end]]
local f_source = [[
  local gsub, h, release, set = ...
  return function(x)
    local y = h.g(x)
    gsub("a", "a", release)     -- a C function that runs Lua
    local s = {}
    for i = 1, 3 do s = {s} end
    set.x = s
    gsub("a", "b", "c")
    return y
  end]]
local function round(at)
  drop = false
  collectgarbage("setpause", 200) collectgarbage("setstepmul", 200)
  h.g = assert(load(g_source))(clock)
  local f = assert(load(f_source))(string.gsub, h, release, {})
  for k = 1, at do h.g(k) end
  f(1)
  drop = true
  collectgarbage("setpause", 1) collectgarbage("setstepmul", 0)
  collectgarbage("collect")
  f(2)
end
jit.off(round)
for _ = 1, tonumber(arg[1]) or 200 do
  for at = 1, 12 do round(at) end
end
print "done"
