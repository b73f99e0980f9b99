-- An interpreter of LuaJIT's bytecode with the semantics of Lua 5.1. It runs the call that is traced and reports to a
-- log (hybrid/access_log.lua) each read and write of state from before the call. Lua functions, including the library's
-- own, are interpreted. C functions are called, those of the standard library through the models of
-- hybrid/host_functions.lua. This file has the entry and the positions of errors; functions.lua, frames.lua,
-- operators.lua and instructions.lua have the parts.
local core = ...
local inspect = core.introspect
inspect.interpreted()
local functions = core.require("hybrid.functions")
local frames = core.require("hybrid.frames")
local operators = core.require("hybrid.operators")
local instructions = core.require("hybrid.instructions")
local interpret = {}

local type, select, tonumber, setmetatable, pcall, xpcall = type, select, tonumber, setmetatable, pcall, xpcall
local upvalue = inspect.upvalue
local current, set_current, around = frames.current, frames.set_current, frames.around
local enter, invoke = frames.enter, frames.invoke

local log                      -- of the trace in progress; nil if nothing is logged

-- Positions --------------------------------------------------------------------------------------------------------------

--- interpret.line(frame) -> the line that the frame is at, or nil.
local function line(frame) return frame.code and frame.code.lines[frame.pc - 1] end
interpret.line = line

local function source_of(frame) return inspect.where(frame.f):match("^(.*):%-?%d+$") end

local function where(frame) return source_of(frame) .. ":" .. (line(frame) or "?") end
interpret.where = where

-- Returns where the value of a register was read, as the engine's messages say it: "global", "field", "method" or
-- "upvalue", and the name. Returns nothing for other values.
local function origin(frame, register)
  local code = frame.code
  for at = frame.pc - 2, 1, -1 do
    local i, before = code[at], code[at - 1]
    if i.a == register then
      if i.op == 54 then return "global", i.k end
      if i.op == 45 then return "upvalue", (upvalue(frame.f, i.d + 1)) end
      if i.op ~= 57 then return nil end
      local has_self = before and before.op == 18 and before.a == register + code.arguments and before.d == i.b
      return has_self and "method" or "field", i.k
    end
  end
end

-- Returns the name under which the called function was read: a field, a global or a variable; nil if it was none of
-- these, or only_field is true and it was no field.
local function callee(frame, only_field)
  if not frame.code then return nil end
  local kind, name = origin(frame, frame.code[frame.pc - 1].a)
  if kind ~= "upvalue" or not only_field then return name end
end

-- For messages of C++: the file and line of the innermost script frame, and the name of the function that the innermost
-- frame calls.
local function position()
  local frame = current()
  while frame do
    local at = frame.library and frame.left or frame
    if not at.library and line(at) then return source_of(at), line(at), callee(current()) end
    frame = around(frame)
  end
end

local function add_frame(lines, frame, name, ending)
  lines[#lines + 1] = where(frame)
  lines[#lines + 1] = (name and "in function '" .. name .. "'" or "in function <" .. inspect.where(frame.f) .. ">") .. ending
end

local function add_frames(lines, frame)
  while frame do
    local left, name = frame.left, frame.back and callee(frame.back, frame.back.library)
    if frame.code and not frame.library then add_frame(lines, frame, not left and name, "") end
    if left then add_frame(lines, left, name, " (tail call)") end
    if frame.bottom then lines[#lines + 1] = false end
    frame = around(frame)
  end
end

-- For tracebacks: see introspect.set_interpreter. A function that was left by a tail call is listed too, if the
-- function that it called is running. The frames of a coroutine are followed by those that wait for it.
local function list()
  local lines = {}
  add_frames(lines, current())
  for k = #frames.resumers, 1, -1 do add_frames(lines, frames.resumers[k]) end
  return lines
end

inspect.set_interpreter(position, frames.run, list)

local engine = {frames = true, operators = true, instructions = true, interpret = true, host_functions = true}

-- The operand that an instruction indexes or calls.
local operand = {[56] = "b", [57] = "b", [58] = "b", [60] = "b", [61] = "b", [62] = "b", [65] = "a", [66] = "a", [67] = "a", [68] = "a"}

-- Replaces the name of the interpreter's method `call` in an error of a C function, "bad argument #1 to 'call' (…)", by
-- the name that the script called. The engine does not count the self of a method as an argument.
local function with_function_name(text, frame)
  local place, rest = text:match("^bad argument #(%d+) to 'call' (%(.*)$")
  if not place then rest = text:match("^calling 'call' on bad self (%(.*)$") end
  if not rest then return nil end
  place = place and tonumber(place) + 1 or 1
  local kind, name = origin(frame, frame.code[frame.pc - 1].a)
  name = name or "?"
  if kind == "method" then place = place - 1 end
  if place == 0 then return ("calling '%s' on bad self %s"):format(name, rest) end
  return ("bad argument #%d to '%s' %s"):format(place, name, rest)
end

-- Replaces the name of a variable of the interpreter in a message of the engine, "attempt to index local 't' (a nil
-- value)", by that of the script.
local function with_script_name(text, frame)
  local of_function = with_function_name(text, frame)
  if of_function then return of_function end
  local attempt, value = text:match("^(attempt to [%a ]-) %a+ '[^']*' %((a %w+ value)%)$")
  if not attempt then return text end
  local i = frame.code[frame.pc - 1]
  local kind, name = nil, nil
  if operand[i.op] then kind, name = origin(frame, i[operand[i.op]]) end
  if name then return ("%s %s '%s' (%s)"):format(attempt, kind, name, value) end
  return attempt .. " " .. value
end

-- Replaces the position of an error that the engine raised in one of these files by the line of the script.
local function at_script(message, frame)
  if type(message) ~= "string" then return message end
  local file, text = message:match("^stdlib/hybrid/([%w_]+)%.lua:%d+: (.*)$")
  if not file or not engine[file] then return message end
  frame = frame or current()
  while frame and not frame.code do frame = around(frame) end
  if not frame then return message end
  return where(frame) .. ": " .. with_script_name(text, frame)
end

-- Entries ----------------------------------------------------------------------------------------------------------------

local function restore(frame, ok, ...)
  if ok then return true, ... end
  local message = at_script((select(1, ...)))
  set_current(frame)
  return false, message
end

--- interpret.protected(f, …) is pcall(f, …), interpreted.
function interpret.protected(f, ...)
  local frame = current()
  set_current{outer = frame, slots = frame and frame.slots or 0}   -- the frame of pcall
  return restore(frame, pcall(invoke, f, ...))
end

interpret.at_script = at_script

local callbacks = setmetatable({}, {__mode = "kv"})

--- interpret.callback(f) -> a function that C can call instead of f. It interprets f while a trace is in progress.
function interpret.callback(f)
  if type(f) ~= "function" or not functions.info(f).code then return f end
  local g = callbacks[f]
  if not g then
    g = function(...)
      if current() then return enter(f, ...) end
      return f(...)
    end
    callbacks[f] = g
  end
  return g
end

local function log_to(new_log)
  log = new_log
  frames.log_to(new_log)
  operators.log_to(new_log)
  instructions.log_to(new_log)
end

--- interpret.run(new_log, f, …) -> what f(…) returns, interpreted. Reads and writes go to new_log; nil logs nothing.
function interpret.run(new_log, f, ...)
  local outer_log, outer_frame, inner = log, current(), nil
  local function undo()
    inner = inner or current()
    log_to(outer_log)
    set_current(outer_frame)
  end
  local function finish(ok, ...)
    if not ok then core.reraise(at_script((select(1, ...)), inner)) end
    return ...
  end
  local function start(...)
    log_to(new_log)
    set_current(new_log and new_log.parent and current() or nil)
    return enter(f, ...)
  end
  return finish(xpcall(core.finally, core.keep_traceback, undo, start, ...))
end

return interpret
