-- Models of the standard library's C functions for the interpreter of traces: what they read, write and call. A model
-- takes the calling frame and the arguments, and does what the function does, with reads and writes that the
-- interpreter logs. Functions in `pure` read no table and call nothing; those in `outside` depend on state that no
-- guard can check.
local core = ...
local inspect = core.introspect
inspect.interpreted()
local functions = core.require("hybrid.functions")
local frames = core.require("hybrid.frames")
local operators = core.require("hybrid.operators")
local interpret = core.require("hybrid.interpret")
local run_hooks = core.require("hybrid.run_hooks")
local lib = {}

local type, rawget, select, next, unpack, error, pairs = type, rawget, select, next, unpack, error, pairs
local models, invoke, callback = functions.models, frames.invoke, interpret.callback
local get, set, raw_set = operators.get, operators.set, operators.raw_set

lib.log = nil            -- the log of the trace in progress
local pure, outside = setmetatable({}, {__mode = "k"}), {}
lib.pure, lib.outside = pure, outside
lib.keeps = {}           -- C functions of the library that keep a function for later

-- The standard tables of the host. A missing one is an empty table, except debug.
local function host(name) return rawget(_G, name) or {} end
local coroutine, debug, io, math, os, string, table, package = host "coroutine", rawget(_G, "debug"), host "io", host "math", host "os",
  host "string", host "table", host "package"

-- Whether f is a standard function. A script's replacement for one is an ordinary function and gets no model.
local function is_of_host(f) return type(f) == "function" and (inspect.kind(f) ~= "script" or inspect.where(f):find("^%[builtin") ~= nil) end

local function model(f, m) if is_of_host(f) then models[f] = m end end

local function read(t, key)
  local value = rawget(t, key)
  if lib.log then lib.log:read(t, key, value) end
  return value
end

local function count(t)
  if lib.log then lib.log:length(t) end
  return #t
end

-- Tables --------------------------------------------------------------------------------------------------------------------

local natively_next = next
local function go_on(_, t, key)
  if lib.log and type(t) == "table" then lib.log:entries(t) end
  return natively_next(t, key)
end
model(next, go_on)

-- The iterator that ipairs returns. (pairs returns next, which has its model above.)
local step = ipairs{}
model(step, function(_, t, i)
  i = i + 1
  local value = read(t, i)
  if value ~= nil then return i, value end
end)

model(rawget, function(_, t, key)
  if type(t) ~= "table" then return rawget(t, key) end
  return read(t, key)
end)
model(rawset, function(_, t, key, value)
  raw_set(t, key, value)
  return t
end)
model(rawequal, function(_, x, y)
  if lib.log and (type(x) == "table" or type(x) == "function") and type(x) == type(y) then lib.log:compare(x, y) end
  return rawequal(x, y)
end)
local rawlen = rawget(_G, "rawlen")
model(rawlen, function(_, x)
  if type(x) == "table" then return count(x) end
  return rawlen(x)
end)

local function unpacked(_, t, first, last)
  if type(t) ~= "table" then return unpack(t, first, last) end
  first, last = first or 1, last or count(t)
  if lib.log and lib.log:knows(t) then for i = first, last do read(t, i) end end
  return unpack(t, first, last)
end
model(unpack, unpacked)
model(rawget(table, "unpack"), unpacked)

-- In a sandbox scripts have another getmetatable than the library.
for _, f in pairs{getmetatable, rawget(_G, "public_getmetatable")} do
  model(f, function(_, x)
    if lib.log and type(x) == "table" then lib.log:metatable(x, inspect.raw_metatable(x)) end
    local meta = f(x)
    if lib.log and type(meta) == "table" then lib.log:reach(meta) end
    return meta
  end)
end
model(setmetatable, function(_, t, meta)
  if lib.log and type(t) == "table" then lib.log:set_metatable(t) end
  return setmetatable(t, meta)
end)

model(table.insert, function(_, t, ...)
  if type(t) ~= "table" then return table.insert(t, ...) end
  local n, given = count(t), select("#", ...)
  if given == 1 then return raw_set(t, n + 1, (select(1, ...))) end
  if given ~= 2 then return table.insert(t, ...) end
  local at, value = select(1, ...)
  at = tonumber(at) or error("bad argument #2 to 'insert' (number expected, got " .. type(at) .. ")", 0)
  for i = n, at, -1 do raw_set(t, i + 1, read(t, i)) end
  raw_set(t, at, value)
end)
model(table.remove, function(_, t, ...)
  if type(t) ~= "table" then return table.remove(t, ...) end
  local n = count(t)
  if select("#", ...) == 0 then
    if n == 0 then return nil end
    local last = read(t, n)
    raw_set(t, n, nil)
    return last
  end
  local at = select(1, ...)
  local value = read(t, at)
  if at < 1 or at > n then return value end
  for i = at, n - 1 do raw_set(t, i, read(t, i + 1)) end
  raw_set(t, n, nil)
  return value
end)
model(table.move, function(_, a, first, last, to, b)
  b = b or a
  if first > to or first > last or b ~= a then
    for i = 0, last - first do set(b, to + i, get(a, first + i)) end
  else
    for i = last - first, 0, -1 do set(b, to + i, get(a, first + i)) end
  end
  return b
end)
model(table.concat, function(_, t, sep, first, last)
  if type(t) ~= "table" or not (lib.log and lib.log:knows(t)) then return table.concat(t, sep, first, last) end
  for i = first or 1, last or count(t) do read(t, i) end
  return table.concat(t, sep, first, last)
end)
model(table.sort, function(_, t, less)
  if type(t) ~= "table" then return table.sort(t, less) end
  local list = {}
  for i = 1, count(t) do list[i] = read(t, i) end
  table.sort(list, less and callback(less) or operators.less)
  for i = 1, #list do raw_set(t, i, list[i]) end
end)
local function read_all(t)
  if lib.log and type(t) == "table" then lib.log:entries(t) end
end
for _, f in pairs{table.maxn or false, table.getn or false} do
  model(f, function(_, t)
    read_all(t)
    if lib.log and type(t) == "table" then lib.log:length(t) end
    return f(t)
  end)
end
model(table.foreach, function(_, t, f)
  read_all(t)
  for key, value in next, t do
    local result = invoke(f, key, value)
    if result ~= nil then return result end
  end
end)
model(table.foreachi, function(_, t, f)
  for i = 1, count(t) do
    local result = invoke(f, i, read(t, i))
    if result ~= nil then return result end
  end
end)

-- Control ---------------------------------------------------------------------------------------------------------------------

model(pcall, function(_, ...)
  if select("#", ...) == 0 then return pcall() end
  return interpret.protected(...)
end)

-- The handler runs before the failed frames are left, so that it can inspect them.
model(xpcall, function(frame, f, handler, ...)
  local function at_error(message)
    message = interpret.at_script(message)
    local inner = frames.current()
    local results = {pcall(invoke, handler, message)}
    frames.set_current(inner)
    return results[2]
  end
  local function restore(...)
    frames.set_current(frame)
    return ...
  end
  frames.set_current{outer = frame, slots = frame and frame.slots or 0}   -- the frame of xpcall
  return restore(xpcall(invoke, at_error, f, ...))
end)

local function frame_at(frame, level)
  for _ = 2, level do frame = frame and frames.around(frame) end
  return frame
end

model(error, function(frame, message, level)
  level = level or 1
  if type(message) == "number" and level > 0 then message = tostring(message) end
  if type(message) == "string" and level > 0 then
    local at = frame_at(frame, level)
    if at and interpret.line(at) then message = interpret.where(at) .. ": " .. message end
  end
  error(message, 0)
end)

model(getfenv, function(frame, f)
  local environment
  if type(f) == "function" then environment = getfenv(f)
  else
    local at = frame_at(frame, tonumber(f) or 1)
    environment = (f == 0 or not at or not at.f) and getfenv(0) or inspect.environment(at.f)
  end
  if lib.log then
    if type(f) == "function" then core.graphs.used[f] = true end
    lib.log:reach(environment)
  end
  return environment
end)
model(setfenv, function(frame, f, environment)
  if lib.log then lib.log:refuse("it sets the environment of a function") end
  if type(f) == "number" and f > 0 then f = frame_at(frame, f).f end
  return setfenv(f, environment)
end)

model(tostring, function(_, x)
  local f = type(x) == "table" and frames.metafield(x, "__tostring")
  if f then return (invoke(f, x)) end
  return tostring(x)
end)

model(require, function(frame, name)
  local loaded = package.loaded or {}
  if lib.log then
    lib.log:reach(loaded)
    if not (frame and frame.library) then lib.log:outside("require", frame) end
  end
  local found = type(name) == "string" and read(loaded, name)
  if found then return found end
  return require(name)
end)

-- Strings ---------------------------------------------------------------------------------------------------------------------

model(string.gsub, function(_, s, pattern, by, ...)
  if type(by) == "function" then by = callback(by)
  elseif type(by) == "table" then
    local t = by
    by = function(key) return get(t, key) end
  end
  return string.gsub(s, pattern, by, ...)
end)
model(string.gmatch, function(_, ...)
  local f = string.gmatch(...)
  pure[f] = true
  return f
end)

-- Coroutines ------------------------------------------------------------------------------------------------------------------

local resumers = frames.resumers

local function resumed(frame, ...)
  frames.set_current(frame)
  return ...
end

local function left(...)
  resumers[#resumers] = nil
  return resumed(...)
end

-- Ends a call of a function of coroutine.wrap. Its errors get the place of the call, as the engine does it.
local function wrap_left(frame, ok, ...)
  left(frame)
  if ok then return ... end
  local message = (select(1, ...))
  if type(message) == "string" and frame and interpret.line(frame) then message = interpret.where(frame) .. ": " .. message end
  core.reraise(message)
end

local function body_of(f)
  return function(...)
    frames.set_current(nil)
    return invoke(f, ...)
  end
end
model(coroutine.create, function(_, f)
  if type(f) ~= "function" then return coroutine.create(f) end
  return coroutine.create(body_of(f))
end)
model(coroutine.wrap, function(_, f)
  if type(f) ~= "function" then return coroutine.wrap(f) end
  local g = coroutine.wrap(body_of(f))
  models[g] = function(frame, ...)
    resumers[#resumers + 1] = frame or false
    return wrap_left(frame, xpcall(g, core.keep_traceback, ...))
  end
  return g
end)
model(coroutine.resume, function(frame, ...)
  resumers[#resumers + 1] = frame or false
  return left(frame, coroutine.resume(...))
end)
model(coroutine.yield, function(frame, ...) return resumed(frame, coroutine.yield(...)) end)

-- The library's own -----------------------------------------------------------------------------------------------------------

model(core.introspect.called_from_library, function(frame, level)
  local at = frame and frames.around(frame)
  for _ = 1, level - 1 do at = at and frames.around(at) end
  return (at and at.library) or false
end)
model(core.untraced, function(_, ...) return core.untraced(...) end)
model(core.keep, function(_, x)
  if run_hooks.tracing() and core.is_tensor(x) then run_hooks.keep(x) end
  return core.keep(x)
end)
model(core.unlogged, function(_, f, ...) return f(...) end)
lib.keeps[core.callback] = true
for _, f in pairs(core.introspect) do if not models[f] then pure[f] = true end end

-- Debug -----------------------------------------------------------------------------------------------------------------------

if debug then
  model(debug.getinfo, function(frame, ...)
    local level, what = select(1, ...)
    if type(level) ~= "number" then return debug.getinfo(...) end
    local at = level == 0 and {f = debug.getinfo} or frame_at(frame, level)
    if not at then return nil end
    if not at.f then return debug.getinfo(pcall, type(what) == "string" and what:gsub("[nlr]", "") or nil) end
    local info = type(what) == "string" and debug.getinfo(at.f, (what:gsub("[nlr]", ""))) or debug.getinfo(at.f)
    if at.code then info.currentline = interpret.line(at) end
    return info
  end)
  model(debug.getlocal, function(frame, level, i)
    if type(level) ~= "number" then return debug.getlocal(level, i) end
    local at = frame_at(frame, level)
    if not at then error("bad argument #1 to 'getlocal' (level out of range)", 0) end
    if not at.code or i < 1 or i > at.code.parameters then return nil end
    return debug.getlocal(at.f, i) or "?", at.R[i - 1]
  end)
  model(debug.getupvalue, function(_, f, i)
    local name, value = debug.getupvalue(f, i)
    if lib.log then core.graphs.used[f] = true end
    if lib.log and name and inspect.kind(f) == "script" then lib.log:read_upvalue({f = f}, i, name, value) end
    return name, value
  end)
  for _, name in pairs{"setupvalue", "upvaluejoin", "setfenv", "setmetatable"} do
    local f = debug[name]
    model(f, function(_, ...)
      if lib.log then lib.log:refuse("it calls debug." .. name) end
      return f(...)
    end)
  end
end

-- The rest -----------------------------------------------------------------------------------------------------------------------

local function add(to, t, names)
  if type(t) ~= "table" then return end
  for name in names:gmatch("%S+") do
    local f = t[name]
    if is_of_host(f) then to[f] = true end
  end
end
local globals = {assert = assert, collectgarbage = collectgarbage, print = print, select = select, tonumber = tonumber, type = type,
                 pairs = pairs, ipairs = ipairs, load = load, loadstring = loadstring, loadfile = loadfile, dofile = dofile,
                 newproxy = newproxy, gcinfo = gcinfo}
add(pure, globals, "assert print select tonumber type pairs ipairs newproxy")
add(outside, globals, "load loadstring loadfile dofile collectgarbage gcinfo")
for _, t in pairs{math, host "bit", string} do
  if t then for _, f in pairs(t) do if is_of_host(f) then pure[f] = true end end end
end
for _, f in pairs{math.random, math.randomseed} do
  pure[f] = nil
  outside[f] = true
end
for _, t in pairs{os or false, io or false} do
  if t then for _, f in pairs(t) do if is_of_host(f) then outside[f] = true end end end
end
add(pure, os, "exit difftime")
add(pure, coroutine, "running status isyieldable")
add(pure, debug, "traceback sethook gethook getregistry getmetatable getfenv")

-- Replacements for functions that print, while something is traced again, as in an export: it has printed the same before.
local function write(file, ...)
  if file == io.stdout or file == io.stderr then return file end
  return file:write(...)
end
lib.shows = {[print] = function() end, [core.warn] = function() end}
if io.write then lib.shows[io.write] = function(...) return write(io.output(), ...) end end
if io.stdout then lib.shows[io.stdout.write] = write end

return lib
