-- LuaJIT's instructions for the interpreter of traces: what each does and which operands it takes. lj_bc.h and
-- vm_*.dasc of LuaJIT describe them. vm/dump.cpp checks their numbers, and tests/lua/test_interpret.lua compares each
-- with the engine.
local core = ...
local inspect = core.introspect
inspect.interpreted()
local functions = core.require("hybrid.functions")
local frames = core.require("hybrid.frames")
local operators = core.require("hybrid.operators")
local instructions = {}

local type, rawset, pairs, ipairs, tonumber, setmetatable, setfenv = type, rawset, pairs, ipairs, tonumber, setmetatable, setfenv
local error, is_tensor = error, core.is_tensor
local upvalue, set_upvalue = inspect.upvalue, inspect.set_upvalue
local handlers, operands, learn = functions.handlers, functions.operands, functions.learn
local enter, leave, call = frames.enter, frames.leave, frames.call
local get, set, natives, operator = operators.get, operators.set, operators.natives, operators.operator
local arithmetic, joined, length = operators.arithmetic, operators.joined, operators.length
local less, at_most, equal = operators.less, operators.at_most, operators.equal

local log                      -- of the trace in progress; nil if nothing is logged

local jumps, strings, numbers_c, numbers_d, constants = {}, {}, {}, {}, {}

local function op(number, f) handlers[number] = f end

local warned = {}              -- lines of scripts that were told

local function is_flag(x) return x.dtype == "bool" and x:dim() == 0 end

-- Warns once per line where a script branches on a traced 0-dim bool: every tensor is true in Lua, whatever it holds.
-- The instructions that test and copy a value, as in `a or b`, choose among values and do not warn.
local function truth(frame, v)
  if type(v) == "userdata" and log and not frame.library and is_tensor(v) and core.untraced(is_flag, v) then
    local where = inspect.where(frame.f):match("^(.*):%-?%d+$") .. ":" .. (frame.code.lines[frame.pc - 1] or "?")
    if not warned[where] then
      warned[where] = true
      core.warn("a branch on a bool tensor takes the same way for true and false, since a tensor is no Lua boolean; "
                .. "write pg.cond(pred, then_f, else_f), or pred:item() outside of graphs", where)
    end
  end
  return v
end

-- A comparison is followed by a jump, which is skipped if the comparison does not hold.
local function compare(number, holds)
  op(number, function(frame, R, i) if not holds(R, i, frame) then frame.pc = frame.pc + 1 end end)
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
compare(14, function(R, i, frame) return truth(frame, R[i.d]) end)
compare(15, function(R, i, frame) return not truth(frame, R[i.d]) end)
strings[6], strings[7], numbers_d[8], numbers_d[9] = "d", "d", true, true

op(18, function(_, R, i) R[i.a] = R[i.d] end)
op(19, function(frame, R, i) R[i.a] = not truth(frame, R[i.d]) end)
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

for number in pairs(jumps) do operands[number] = function(i, _, at) i.to = at + 1 + i.d - 0x8000 end end
for number, which in pairs(strings) do operands[number] = function(i, decoded) i.k = decoded.constants[i[which]] end end
for number in pairs(numbers_c) do operands[number] = function(i, decoded) i.k = decoded.numbers[i.c] end end
for number in pairs(numbers_d) do operands[number] = function(i, decoded) i.k = decoded.numbers[i.d] end end
for number in pairs(constants) do operands[number] = function(i, decoded) i.k = decoded.constants[i.d] end end

--- instructions.log_to(new_log): reads and writes of upvalues and new functions go to new_log; nil logs nothing.
function instructions.log_to(new_log) log = new_log end

return instructions
