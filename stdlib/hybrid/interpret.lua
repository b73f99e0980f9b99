-- An interpreter of LuaJIT's bytecode with the semantics of Lua 5.1. It runs the call that is traced and reports to a
-- log (hybrid/access_log.lua) each read and write of state from before the call. Lua functions, including the library's
-- own, are interpreted. C functions are called, those of the standard library through the models of
-- hybrid/host_functions.lua. The instructions are described in LuaJIT's lj_bc.h and vm_*.dasc. vm/dump.cpp decodes them
-- and checks their numbers, and tests/lua/test_interpret.lua compares each with the engine.
local core = ...
local inspect = core.introspect
inspect.interpreted()
local interpret = {}

local type, rawget, rawset, rawequal, select, unpack, pairs = type, rawget, rawset, rawequal, select, unpack, pairs
local setmetatable, pcall, error = setmetatable, pcall, error
local concat, byte = table.concat, string.byte
local setfenv = setfenv
local raw_metatable, upvalue, set_upvalue = inspect.raw_metatable, inspect.upvalue, inspect.set_upvalue
local is_tensor = core.is_tensor

local handlers = {}
local current                  -- the innermost frame
local log                      -- of the trace in progress; nil if nothing is logged
local models = {}              -- by C function: model(frame, …), called instead of it
local natively = {}            -- Lua functions that the engine runs, not this interpreter
local done = {}                -- a handler returns it when the outermost frame has returned

-- Functions -----------------------------------------------------------------------------------------------------------------

local used = core.graphs.used
local by_key, by_value = {__mode = "k"}, {__mode = "v"}
local infos = setmetatable({}, by_key)
local by_prototype = {}        -- code by the identity of its prototype, valid as long as one of its functions lives
local known_prototypes, kMostPrototypes = 0, 1000

local operands   -- by opcode: a function that sets the operands of an instruction's record

local function make_code(f)
  local decoded = inspect.decode(f)
  local code, text = {}, decoded.code
  for at = 1, #text / 4 do
    local op, a, c, b = byte(text, 4 * at - 3, 4 * at)
    local i = {run = handlers[op], a = a, b = b, c = c, d = c + 256 * b, op = op}
    local set = operands[op]
    if set then set(i, decoded, at) end
    code[at] = i
  end
  code.parameters, code.vararg, code.upvalues, code.lines = decoded.parameters, decoded.vararg, decoded.upvalues, decoded.lines
  code.arguments, code.slots = decoded.arguments, decoded.frame + 2
  return code
end

local function code_of(f)
  local id = inspect.prototype(f)
  local known = id and by_prototype[id]
  if known and known.f then return known.code end
  local code = make_code(f)
  if not id then return code end
  known_prototypes = known_prototypes + 1
  if known_prototypes > kMostPrototypes then by_prototype, known_prototypes = {}, 1 end
  by_prototype[id] = setmetatable({f = f, code = code}, by_value)
  return code
end

-- Makes the record of a function: {code = (if it is interpreted), library = (whether it is the library's), model = (of
-- a C function), native = (whether the engine runs it)}.
local function learn(f)
  local kind = inspect.kind(f)
  local info
  if kind == "C" or natively[f] or models[f] or f == core.warn then info = {model = models[f], native = true}
  else
    local where = inspect.where(f)
    if where:find("^stdlib/hybrid/") or where:find("^stdlib/control/traced") or where:find("^%[builtin") then info = {native = true}
    else info = {code = code_of(f), library = kind == "library"} end
  end
  infos[f] = info
  if info.code and not info.library then used[f] = true end
  return info
end

-- Frames --------------------------------------------------------------------------------------------------------------------

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

local invoke

local function restore_frame(frame, ...)
  current = frame
  return ...
end

--- interpret.call(f, …) -> what f(…) returns. Lua functions are interpreted.
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
interpret.metafield = metafield

--- interpret.invoke(f, …) -> what f(…) returns, for any value that can be called.
function invoke(f, ...)
  if type(f) == "function" then return enter(f, ...) end
  local call = metafield(f, "__call")
  if type(call) ~= "function" then return f(...) end
  return enter(call, f, ...)
end
interpret.invoke = invoke

-- Tables -----------------------------------------------------------------------------------------------------------------------

local function get(t, key)
  for _ = 1, 100 do
    local index
    if type(t) == "table" then
      local value = rawget(t, key)
      if log then log:read(t, key, value) end
      if value ~= nil then return value end
      index = metafield(t, "__index")
      if index == nil then return nil end
    else
      if log and is_tensor(t) then return log:attribute(t, key) end
      index = metafield(t, "__index")
      if index == nil or type(t) == "cdata" then
        if log and type(t) == "cdata" then return log:cdata(t, key) end
        return t[key]
      end
    end
    if type(index) == "function" then return (enter(index, t, key)) end
    t = index
  end
  error("'__index' chain too long; possibly a loop", 0)
end
interpret.get = get

local function raw_set(t, key, value)
  if log then log:write(t, key) end
  rawset(t, key, value)
end
interpret.raw_set = raw_set

local function set(t, key, value)
  for _ = 1, 100 do
    local newindex
    if type(t) == "table" then
      if rawget(t, key) ~= nil then return raw_set(t, key, value) end
      newindex = metafield(t, "__newindex")
      if newindex == nil then return raw_set(t, key, value) end
      if log then log:read(t, key, nil) end
    else
      newindex = metafield(t, "__newindex")
      if newindex == nil or is_tensor(t) or type(t) == "cdata" then
        if log and type(t) == "cdata" then log:write_cdata(t, key) elseif log then log:set_item(t, key, value) end
        t[key] = value
        return
      end
    end
    if type(newindex) == "function" then
      enter(newindex, t, key, value)
      return
    end
    t = newindex
  end
  error("'__newindex' chain too long; possibly a loop", 0)
end
interpret.set = set

-- Operators --------------------------------------------------------------------------------------------------------------------

-- Returns the Lua function that an operator on these values calls, or nil if the engine can run the operator.
local function operator(x, y, event)
  local f
  if type(x) ~= "number" and not is_tensor(x) then f = metafield(x, event) end
  if f == nil and type(y) ~= "number" and not is_tensor(y) then f = metafield(y, event) end
  if type(f) == "function" and (infos[f] or learn(f)).code then return f end
  if f ~= nil and type(f) ~= "function" then return function(...) return invoke(f, ...) end end
end

local natives = {
  __add = function(x, y) return x + y end, __sub = function(x, y) return x - y end, __mul = function(x, y) return x * y end,
  __div = function(x, y) return x / y end, __mod = function(x, y) return x % y end, __pow = function(x, y) return x ^ y end,
  __concat = function(x, y) return x .. y end,
}

local function arithmetic(event, x, y)
  if type(x) ~= "number" or type(y) ~= "number" then
    local f = operator(x, y, event)
    if f then return (enter(f, x, y)) end
  end
  return natives[event](x, y)
end
interpret.arithmetic = arithmetic

local function less(x, y)
  if type(x) == "table" or type(y) == "table" then
    local f = operator(x, y, "__lt")
    if f then return not not enter(f, x, y) end
  end
  return x < y
end
interpret.less = less

local function at_most(x, y)
  if type(x) == "table" or type(y) == "table" then
    local f = operator(x, y, "__le")
    if f then return not not enter(f, x, y) end
    f = operator(y, x, "__lt")
    if f then return not enter(f, y, x) end
  end
  return x <= y
end

local function equal(x, y)
  local kind = type(x)
  if log and (kind == "table" or kind == "function") and type(y) == kind then log:compare(x, y) end
  if rawequal(x, y) then return true end
  if type(x) == "table" and type(y) == "table" then
    local f = metafield(x, "__eq")
    if f == nil or f ~= metafield(y, "__eq") then return false end
    return not not invoke(f, x, y)
  end
  return x == y
end
interpret.equal = equal

local compat = #setmetatable({}, {__len = function() return 7 end}) == 7    -- LUAJIT_ENABLE_LUA52COMPAT
interpret.compat = compat

local function length(x)
  if type(x) == "table" then
    local f = compat and metafield(x, "__len")
    if f then return (invoke(f, x)) end
    if log then log:length(x) end
    return #x
  end
  if type(x) == "string" then return #x end
  local f = metafield(x, "__len")
  if type(f) == "function" and (infos[f] or learn(f)).code then return (enter(f, x)) end
  return #x
end
interpret.length = length

local function joined(R, first, last)
  local plain = true
  for k = first, last do
    local kind = type(R[k])
    if kind ~= "string" and kind ~= "number" then plain = false end
  end
  if plain then
    local parts = {}
    for k = first, last do parts[k - first + 1] = R[k] end
    return concat(parts)
  end
  local value = R[last]
  for k = last - 1, first, -1 do value = arithmetic("__concat", R[k], value) end
  return value
end

-- Calls and returns ----------------------------------------------------------------------------------------------------------

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
    if tail then new.back, new.at, new.want, new.bottom, new.outer = frame.back, frame.at, frame.want, frame.bottom, frame.outer
    else new.back, new.at, new.want = frame, at, want end
    return new
  end
  if info.model then return place(frame, at, want, tail, info.model(frame, unpack(R, from, from + n - 1))) end
  if log then return place(frame, at, want, tail, log:call(f, n, unpack(R, from, from + n - 1))) end
  return place(frame, at, want, tail, f(unpack(R, from, from + n - 1)))
end

-- Instructions ---------------------------------------------------------------------------------------------------------------

local jumps, strings, numbers_c, numbers_d, constants = {}, {}, {}, {}, {}

local function op(number, f) handlers[number] = f end

-- A comparison is followed by a jump, which is skipped if the comparison does not hold.
local function compare(number, holds)
  op(number, function(frame, R, i) if not holds(R, i) then frame.pc = frame.pc + 1 end end)
end
local primitives = {[0] = nil, [1] = false, [2] = true}
compare(0, function(R, i) return less(R[i.a], R[i.d]) end)
compare(1, function(R, i) return not less(R[i.a], R[i.d]) end)
compare(2, function(R, i) return at_most(R[i.a], R[i.d]) end)
compare(3, function(R, i) return not at_most(R[i.a], R[i.d]) end)
compare(4, function(R, i) return equal(R[i.a], R[i.d]) end)
compare(5, function(R, i) return not equal(R[i.a], R[i.d]) end)
compare(6, function(R, i) return R[i.a] == i.k end)
compare(7, function(R, i) return R[i.a] ~= i.k end)
compare(8, function(R, i) return R[i.a] == i.k end)
compare(9, function(R, i) return R[i.a] ~= i.k end)
compare(10, function(R, i) return R[i.a] == primitives[i.d] end)
compare(11, function(R, i) return R[i.a] ~= primitives[i.d] end)
compare(12, function(R, i) local v = R[i.d] if v then R[i.a] = v end return v end)
compare(13, function(R, i) local v = R[i.d] if not v then R[i.a] = v end return not v end)
compare(14, function(R, i) return R[i.d] end)
compare(15, function(R, i) return not R[i.d] end)
strings[6], strings[7], numbers_d[8], numbers_d[9] = "d", "d", true, true

op(18, function(_, R, i) R[i.a] = R[i.d] end)
op(19, function(_, R, i) R[i.a] = not R[i.d] end)
op(20, function(_, R, i)
  local x = R[i.d]
  local f = operator(x, x, "__unm")
  if f then R[i.a] = enter(f, x, x) else R[i.a] = -x end
end)
op(21, function(_, R, i) R[i.a] = length(R[i.d]) end)

for k, event in ipairs{"__add", "__sub", "__mul", "__div", "__mod"} do
  local native = natives[event]
  numbers_c[21 + k], numbers_c[26 + k] = true, true
  op(21 + k, function(_, R, i)
    local x = R[i.b]
    if type(x) == "number" then R[i.a] = native(x, i.k) else R[i.a] = arithmetic(event, x, i.k) end
  end)
  op(26 + k, function(_, R, i)
    local x = R[i.b]
    if type(x) == "number" then R[i.a] = native(i.k, x) else R[i.a] = arithmetic(event, i.k, x) end
  end)
  op(31 + k, function(_, R, i) R[i.a] = arithmetic(event, R[i.b], R[i.c]) end)
end
op(37, function(_, R, i) R[i.a] = arithmetic("__pow", R[i.b], R[i.c]) end)
op(38, function(_, R, i) R[i.a] = joined(R, i.b, i.c) end)

op(39, function(_, R, i) R[i.a] = i.k end)
strings[39] = "d"
op(40, function(_, R, i) R[i.a] = i.k() end)
constants[40] = true
op(41, function(_, R, i) R[i.a] = i.d < 0x8000 and i.d or i.d - 0x10000 end)
op(42, function(_, R, i) R[i.a] = i.k end)
numbers_d[42] = true
op(43, function(_, R, i) R[i.a] = primitives[i.d] end)
op(44, function(_, R, i) for k = i.a, i.d do R[k] = nil end end)

op(45, function(frame, R, i)
  local name, value = upvalue(frame.f, i.d + 1)
  if log then log:read_upvalue(frame, i.d + 1, name, value) end
  R[i.a] = value
end)
local function store(frame, n, value)
  if log then log:write_upvalue(frame, n) end
  set_upvalue(frame.f, n, value)
end
op(46, function(frame, R, i) store(frame, i.a + 1, R[i.d]) end)
op(47, function(frame, _, i) store(frame, i.a + 1, i.k) end)
op(48, function(frame, _, i) store(frame, i.a + 1, i.k) end)
op(49, function(frame, _, i) store(frame, i.a + 1, primitives[i.d]) end)
strings[47], numbers_d[48] = "d", true

local function new_cell(value)
  return function(write, x)
    if write then value = x else return value end
  end
end

local function cell_of(frame, r)
  local cells, R = frame.cells, frame.R
  if not cells then
    cells = {}
    frame.cells = cells
    setmetatable(R, {
      __index = function(_, k)
        local cell = cells[k]
        if cell then return (cell()) end
      end,
      __newindex = function(_, k, value)
        local cell = cells[k]
        if cell then cell(true, value) else rawset(R, k, value) end
      end,
    })
  end
  local cell = cells[r]
  if not cell then
    cell = new_cell(R[r])
    rawset(R, r, nil)
    cells[r] = cell
    if log then log:made_cell(inspect.cell(cell, 1)) end
  end
  return cell
end

op(50, function(frame, R, i)
  local cells = frame.cells
  if cells then
    local closed = {}
    for r in pairs(cells) do if r >= i.a then closed[#closed + 1] = r end end
    for _, r in ipairs(closed) do
      local value = cells[r]()
      cells[r] = nil
      rawset(R, r, value)
    end
  end
  frame.pc = i.to
end)
jumps[50] = true

op(51, function(frame, R, i)
  local f = i.k()
  local info = learn(f)
  local environment = inspect.environment(frame.f)
  if environment ~= inspect.environment(f) then setfenv(f, environment) end
  for k, captured in ipairs(info.code.upvalues) do
    if captured >= 0x8000 then inspect.join(f, k, cell_of(frame, captured % 256), 1)
    else inspect.join(f, k, frame.f, captured + 1) end
  end
  info.library = frame.library
  if log then log:made_function(f) end
  R[i.a] = f
end)
constants[51] = true

local makers = {}
op(52, function(_, R, i)
  local d = i.d
  local make = makers[d]
  if not make then
    make = inspect.new_table(d)
    makers[d] = make
  end
  R[i.a] = make()
end)
op(53, function(_, R, i) R[i.a] = i.k() end)
constants[53] = true

op(54, function(frame, R, i)
  local environment = inspect.environment(frame.f)
  if frame.library then
    R[i.a] = environment[i.k]
    return
  end
  if log then log:environment(environment) end
  R[i.a] = get(environment, i.k)
end)
op(55, function(frame, R, i)
  local environment = inspect.environment(frame.f)
  if log and not frame.library then log:environment(environment) end
  set(environment, i.k, R[i.a])
end)
strings[54], strings[55] = "d", "d"

op(56, function(_, R, i) R[i.a] = get(R[i.b], R[i.c]) end)
op(57, function(_, R, i) R[i.a] = get(R[i.b], i.k) end)
op(58, function(_, R, i) R[i.a] = get(R[i.b], i.c) end)
op(60, function(_, R, i) set(R[i.b], R[i.c], R[i.a]) end)
op(61, function(_, R, i) set(R[i.b], i.k, R[i.a]) end)
op(62, function(_, R, i) set(R[i.b], i.c, R[i.a]) end)
op(63, function(frame, R, i)
  local t, first = R[i.a - 1], i.k - 2 ^ 52
  for k = 0, frame.multiple - 1 do rawset(t, first + k, R[i.a + k]) end   -- of a table constructor
end)
strings[57], strings[61], numbers_d[63] = "c", "c", true

op(65, function(frame, R, i) return call(frame, R, i.a, i.c + frame.multiple, i.b - 1) end)
op(66, function(frame, R, i) return call(frame, R, i.a, i.c - 1, i.b - 1) end)
op(67, function(frame, R, i) return call(frame, R, i.a, i.d + frame.multiple, -1, true) end)
op(68, function(frame, R, i) return call(frame, R, i.a, i.d - 1, -1, true) end)
local function iterate(frame, R, i)
  local a, skip = i.a, frame.code.arguments
  R[a], R[a + skip], R[a + skip + 1] = R[a - 3], R[a - 2], R[a - 1]
  return call(frame, R, a, 2, i.b - 1)
end
op(69, iterate)
op(70, iterate)
op(71, function(frame, R, i)
  local rest, count, n = frame.rest, frame.count, i.b - 1
  if n < 0 then n, frame.multiple = count, count end
  for k = 1, n do R[i.a + k - 1] = rest[k] end
end)
op(72, function(frame, _, i) frame.pc = i.to end)

op(73, function(frame, _, i) return leave(frame, i.a, i.d + frame.multiple) end)
op(74, function(frame, _, i) return leave(frame, i.a, i.d - 1) end)
op(75, function(frame, _, i) return leave(frame, i.a, 0) end)
op(76, function(frame, _, i) return leave(frame, i.a, 1) end)

local function goes_on(index, stop, step)
  if step >= 0 then return index <= stop end
  return index >= stop
end
local function bound(value, what)
  local number = type(value) == "number" and value or type(value) == "string" and tonumber(value)
  return number or error("'for' " .. what .. " must be a number")
end
op(77, function(frame, R, i)
  local a = i.a
  local index, stop, step = bound(R[a], "initial value"), bound(R[a + 1], "limit"), bound(R[a + 2], "step")
  R[a], R[a + 1], R[a + 2] = index, stop, step
  if goes_on(index, stop, step) then R[a + 3] = index else frame.pc = i.to end
end)
op(79, function(frame, R, i)
  local a = i.a
  local index = R[a] + R[a + 2]
  if goes_on(index, R[a + 1], R[a + 2]) then
    R[a], R[a + 3] = index, index
    frame.pc = i.to
  end
end)
op(82, function(frame, R, i)
  local a = i.a
  local value = R[a]
  if value ~= nil then
    R[a - 1] = value
    frame.pc = i.to
  end
end)
op(85, function() end)
op(88, function(frame, _, i) frame.pc = i.to end)
for _, number in ipairs{72, 77, 79, 82, 88} do jumps[number] = true end
handlers[80], handlers[83], handlers[86] = handlers[79], handlers[82], handlers[85]
jumps[80], jumps[83] = true, true

operands = {}
for number in pairs(jumps) do operands[number] = function(i, _, at) i.to = at + 1 + i.d - 0x8000 end end
for number, which in pairs(strings) do operands[number] = function(i, decoded) i.k = decoded.constants[i[which]] end end
for number in pairs(numbers_c) do operands[number] = function(i, decoded) i.k = decoded.numbers[i.c] end end
for number in pairs(numbers_d) do operands[number] = function(i, decoded) i.k = decoded.numbers[i.d] end end
for number in pairs(constants) do operands[number] = function(i, decoded) i.k = decoded.constants[i.d] end end

-- Positions ------------------------------------------------------------------------------------------------------------------

-- Returns the calling frame.
local function around(frame) return frame.back or frame.outer end
interpret.around = around

--- interpret.current() -> the innermost frame, {f =, R =, …}. interpret.around(frame) -> the frame that called it.
function interpret.current() return current end

--- interpret.line(frame) -> the line that the frame is at, or nil.
local function line(frame) return frame.code and frame.code.lines[frame.pc - 1] end
interpret.line = line

local function source_of(frame) return inspect.where(frame.f):match("^(.*):%-?%d+$") end

local function where(frame) return source_of(frame) .. ":" .. (line(frame) or "?") end
interpret.where = where

-- Returns the name under which the called function was read: a field, a global or a variable; nil if it was none of
-- these.
local function callee(frame)
  if not frame.code then return nil end
  local last = frame.code[frame.pc - 1]
  for at = frame.pc - 2, 1, -1 do
    local i = frame.code[at]
    if i.a == last.a then
      if i.op == 57 or i.op == 54 then return i.k end
      if i.op == 45 then return (upvalue(frame.f, i.d + 1)) end
      return nil
    end
  end
end

-- For messages of C++: the file and line of the innermost script frame, and the name of the function that the innermost
-- frame calls.
inspect.set_interpreter(function()
  local frame = current
  while frame do
    if not frame.library and line(frame) then return source_of(frame), line(frame), callee(current) end
    frame = around(frame)
  end
end)

-- Replaces the position of an error that the engine raised in this file or in the models by the line of the script.
-- Both files are recognized by their names.
local function at_script(message, frame)
  if type(message) ~= "string" then return message end
  local text = message:match("^stdlib/hybrid/interpret%.lua:%d+: (.*)$") or message:match("^stdlib/hybrid/host_functions%.lua:%d+: (.*)$")
  frame = frame or current
  while frame and not frame.code do frame = around(frame) end
  if not text or not frame then return message end
  return where(frame) .. ": " .. text
end

local function restore(frame, ok, ...)
  if ok then return true, ... end
  local message = at_script((select(1, ...)))
  current = frame
  return false, message
end

--- interpret.protected(f, …) is pcall(f, …), interpreted.
function interpret.protected(f, ...)
  local frame = current
  current = {outer = frame, slots = frame and frame.slots or 0}   -- the frame of pcall
  return restore(frame, pcall(invoke, f, ...))
end

--- interpret.set_frame(frame) makes frame the innermost one, after a switch between coroutines or an error.
function interpret.set_frame(frame) current = frame end

interpret.call, interpret.models, interpret.natively, interpret.at_script = enter, models, natively, at_script
interpret.info = function(f) return infos[f] or learn(f) end

local callbacks = setmetatable({}, {__mode = "kv"})

--- interpret.callback(f) -> a function that C can call instead of f. It interprets f while a trace is in progress.
function interpret.callback(f)
  if type(f) ~= "function" or not (infos[f] or learn(f)).code then return f end
  local g = callbacks[f]
  if not g then
    g = function(...)
      if current then return enter(f, ...) end
      return f(...)
    end
    callbacks[f] = g
  end
  return g
end

--- interpret.run(new_log, f, …) -> what f(…) returns, interpreted. Reads and writes go to new_log; nil logs nothing.
function interpret.run(new_log, f, ...)
  local outer_log, outer_frame, inner = log, current, nil
  local function undo()
    inner = inner or current
    log, current = outer_log, outer_frame
  end
  local function finish(ok, ...)
    if not ok then error(at_script((select(1, ...)), inner), 0) end
    return ...
  end
  local function start(...)
    log, current = new_log, new_log and new_log.parent and current or nil
    return enter(f, ...)
  end
  return finish(pcall(core.finally, undo, start, ...))
end

return interpret
