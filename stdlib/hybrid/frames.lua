-- Frames of the interpreter of traces: calls, returns and metamethods. A frame is {f = function, code =, pc =, R =
-- registers, slots = of the stack, back = frame to return to, left = the place of the script's tail call that led to the frame}.
-- Frames of the C functions in between have no code.
local core = ...
local inspect = core.introspect
inspect.interpreted()
local functions = core.require("hybrid.functions")
local frames = {}

local type, rawget, select, unpack, error = type, rawget, select, unpack, error
local raw_metatable = inspect.raw_metatable
local infos, learn = functions.infos, functions.learn

local current                  -- the innermost frame
local log                      -- of the trace in progress; nil if nothing is logged
local done = {}                -- a handler returns it when the outermost frame has returned
local kMostSlots = 65500       -- slots of Lua's stack, as in the engine (LJ_STACK_MAX)

-- R holds the registers, numbered from 0. A local variable that a closure has captured is stored in a cell, a closure
-- with one upvalue; reads and writes of its register are redirected there.
local function new_frame(f, info)
  return {f = f, code = info.code, library = info.library, pc = 1, R = {}, slots = (current and current.slots or 0) + info.code.slots}
end

local function fill(frame, from, first, n)
  local R, code = frame.R, frame.code
  local parameters = code.parameters
  for k = 0, (n < parameters and n or parameters) - 1 do R[k] = from[first + k] end
  if code.vararg then
    local rest, count = {}, n - parameters
    for k = 1, count do rest[k] = from[first + parameters + k - 1] end
    frame.rest, frame.count = rest, count > 0 and count or 0
  end
end

local function run(frame)
  current = frame
  while true do
    local pc = frame.pc
    frame.pc = pc + 1
    local i = frame.code[pc]
    local next_frame = i.run(frame, frame.R, i)
    if next_frame then
      if next_frame == done then
        current = frame.outer
        return unpack(frame.R, frame.first, frame.first + frame.results - 1)
      end
      frame = next_frame
      current = frame
    end
  end
end

local function restore_frame(frame, ...)
  current = frame
  return ...
end

--- frames.enter(f, …) -> what f(…) returns. Lua functions are interpreted.
local function enter(f, ...)
  local info = infos[f] or learn(f)
  if not info.code then
    local frame = {outer = current, slots = current and current.slots or 0}   -- the frame of a C function has no code
    if info.model then return restore_frame(current, info.model(frame, ...)) end
    return f(...)
  end
  local frame = new_frame(f, info)
  frame.bottom, frame.outer = true, current
  fill(frame, {...}, 1, select("#", ...))
  return run(frame)
end

-- Returns the metamethod of a value for an event, or nil.
local function metafield(value, event)
  local meta = raw_metatable(value)
  if type(meta) ~= "table" and type(value) ~= "table" then return nil end
  if log then
    if type(value) == "table" then log:metatable(value, meta)
    elseif not (current and current.library) then log:reach(meta) end
  end
  if type(meta) ~= "table" then return nil end
  local found = rawget(meta, event)
  if log then log:read(meta, event, found) end
  return found
end

--- frames.invoke(f, …) -> what f(…) returns, for any value that can be called.
local function invoke(f, ...)
  if type(f) == "function" then return enter(f, ...) end
  local call = metafield(f, "__call")
  if type(call) ~= "function" then return f(...) end
  return enter(call, f, ...)
end

-- Returns from the frame with n results, in its registers from `first` on.
local function leave(frame, first, n)
  if frame.bottom then
    frame.first, frame.results = first, n
    return done
  end
  local back, R, at, want = frame.back, frame.R, frame.at, frame.want
  local S = back.R
  if want < 0 then want, back.multiple = n, n end
  for k = 0, want - 1 do if k < n then S[at + k] = R[first + k] else S[at + k] = nil end end
  return back
end

-- Stores the results of a function that is not interpreted in the registers of its caller.
local function place(frame, at, want, tail, ...)
  current = frame
  local R = frame.R
  if want == 1 and not tail then
    R[at] = (select(1, ...))
    return nil
  end
  local n = select("#", ...)
  local results = {...}
  if tail then
    for k = 1, n do R[at + k - 1] = results[k] end
    return leave(frame, at, n)
  end
  if want < 0 then want, frame.multiple = n, n end
  for k = 1, want do R[at + k - 1] = results[k] end
end

-- What calls functions where nothing is logged. The name of the method is the one that errors of C functions are given
-- with, see interpret.at_script.
local no_log = {}
function no_log:call(f, _, ...) return f(...) end

local function call(frame, R, at, n, want, tail)
  local f = R[at]
  local from = at + frame.code.arguments
  for _ = 1, 100 do
    if type(f) == "function" then break end
    local meta = metafield(f, "__call")
    if meta == nil then break end
    for k = n, 1, -1 do R[from + k] = R[from + k - 1] end
    R[from], f, n = f, meta, n + 1
  end
  local info = infos[f]
  if not info then
    if type(f) ~= "function" then f() end   -- raises
    info = learn(f)
  end
  if info.code then
    local new = {f = f, code = info.code, library = info.library, pc = 1, R = {}, slots = frame.slots + info.code.slots}
    if tail then new.slots = new.slots - frame.code.slots end
    if new.slots > kMostSlots then error("stack overflow") end
    fill(new, R, from, n)
    if tail then
      new.back, new.at, new.want, new.bottom, new.outer = frame.back, frame.at, frame.want, frame.bottom, frame.outer
      if frame.library then new.left = frame.left else new.left = {f = frame.f, code = frame.code, pc = frame.pc} end
    else
      new.back, new.at, new.want = frame, at, want
    end
    return new
  end
  if info.model then return place(frame, at, want, tail, info.model(frame, unpack(R, from, from + n - 1))) end
  return place(frame, at, want, tail, (log or no_log):call(f, n, unpack(R, from, from + n - 1)))
end

frames.enter, frames.invoke, frames.metafield, frames.leave, frames.call, frames.run = enter, invoke, metafield, leave, call, run

frames.resumers = {}  -- the frames that wait for the running coroutine and for those around it; false for none

--- frames.current() -> the innermost frame.
function frames.current() return current end

--- frames.set_current(frame) makes frame the innermost one, after a switch between coroutines or an error.
function frames.set_current(frame) current = frame end

--- frames.log_to(new_log): reads of metatables and calls go to new_log; nil logs nothing.
function frames.log_to(new_log) log = new_log end

--- frames.around(frame) -> the calling frame.
function frames.around(frame) return frame.back or frame.outer end

return frames
