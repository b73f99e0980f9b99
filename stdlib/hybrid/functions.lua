-- What the interpreter of traces knows of each function: its record {code = (if it is interpreted), library = (whether
-- it is the library's), model = (of a C function), native = (whether the engine runs it)}. code is the list of its
-- instructions, each {run = handler, a =, b =, c =, d =, k = constant, to = target of a jump}, as vm/decode.cpp
-- decodes them.
local core = ...
local inspect = core.introspect
inspect.interpreted()
local functions = {}

local byte = string.byte
local handlers, operands = {}, {}  -- by opcode: what runs an instruction; what sets the operands of its record
local models = {}                  -- by C function: model(frame, …), called instead of it
local by_key, by_value = {__mode = "k"}, {__mode = "v"}
local natively = setmetatable({}, by_key)  -- Lua functions that the engine runs, not the interpreter
local used = core.graphs.used
local infos = setmetatable({}, by_key)
local by_prototype = {}        -- code by the identity of its prototype, valid as long as one of its functions lives
local known_prototypes, kMostPrototypes = 0, 1000

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

--- functions.learn(f) makes the record of a function. It is stored in functions.infos.
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

functions.handlers, functions.operands, functions.models, functions.natively = handlers, operands, models, natively
functions.infos, functions.learn = infos, learn

--- functions.info(f) -> the record of a function.
function functions.info(f) return infos[f] or learn(f) end

return functions
