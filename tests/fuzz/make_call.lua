-- Makes the call for a seed and a number: make(seed, number, {op =, way =, ways =}) -> {row, way, args, n, attrs,
-- choose}.
local pg = require "perigee"
local driver = require "tests.ops.driver"
local cases = require "tests.ops.cases"
local edges = require "tests.ops.edges"
local values = require "tests.fuzz.values"

local make = {}

-- A stream of choices: choose(n) -> 1..n.
local function chooser(seed, number)
  local state = (seed * 48271 + number * 69621 + math.floor(number / 2 ^ 20) * 16807) % 2147483647
  if state == 0 then state = 1 end
  local function choose(n)
    state = (state * 16807) % 2147483647
    return math.floor(state / 2147483647 * n) % n + 1
  end
  for _ = 1, 4 do choose(1) end
  return choose
end

local rows = {}
for _, name in ipairs(pg.testing.op_names(true)) do rows[#rows + 1] = pg.testing.op_row(name) end

local function by_name(row)
  local out = {}
  for _, def in ipairs(row.inputs) do out[def.name] = {input = def} end
  for _, def in ipairs(row.attrs) do out[def.name] = {attr = def} end
  return out
end

local function value_for(def, v)
  if not def then return v.nonsense() end
  if def.input then return v.input(def.input) end
  return v.attribute(def.attr)
end

local function copied(case)
  local attrs
  if case.attrs then
    attrs = {}
    for key, x in pairs(case.attrs) do attrs[key] = x end
  end
  local n = table.maxn(case.args)
  return {args = {unpack(case.args, 1, n)}, n = n, attrs = attrs}
end

local function set_option(call, known, choose)
  local def = #call.row.attrs > 0 and call.row.attrs[choose(#call.row.attrs)]
  call.attrs = call.attrs or {}
  if not def or choose(30) == 1 then call.attrs.no_such_option = 1
  else call.attrs[def.kind == "random" and "generator" or def.name] = value_for(known[def.name], make.values) end
end

-- Makes one change to a correct call.
local function mutate(call, known, v, choose)
  local kind = choose(8)
  if kind <= 3 and call.n > 0 then
    local k = choose(call.n)
    local x = call.args[k]
    if driver.is_tensor(x) then call.args[k] = v.instead_of(x)
    elseif type(x) == "table" and driver.is_tensor(x[1]) and choose(2) == 1 then
      local list = {unpack(x)}
      list[choose(#list)] = v.instead_of(x[1])
      call.args[k] = list
    else call.args[k] = value_for(known[call.row.signature[k]], v) end
  elseif kind <= 5 then set_option(call, known, choose)
  elseif kind == 6 then  -- all tensors the same
    local how, dtype = choose(12), v.dtype()
    call.args = driver.map(function(x)
      if not driver.is_tensor(x) then return x end
      if how <= 8 then
        local ok, y = pcall(edges.stretched, x, how)
        return ok and y or x
      end
      local ok, y = pcall(function() return x:to(dtype) end)
      return ok and y or x
    end, call.args)
  elseif kind == 7 and choose(3) == 1 then call.n = math.max(call.n - 1, 0)
  elseif kind == 8 and choose(3) == 1 then
    call.n = call.n + 1
    call.args[call.n] = v.nonsense()
  end
end

local function from_nothing(row, known, v, choose)
  local call = {args = {}, n = 0}
  for k, name in ipairs(row.signature) do
    if known[name].attr and choose(3) == 1 then break end
    call.n = k
    call.args[k] = value_for(known[name], v)
  end
  return call
end

local function pick_row(filter, choose)
  if filter.op then
    local row = pg.testing.op_row((tostring(filter.op):gsub("^_", "")))
    if not row then error("no op '" .. filter.op .. "'", 0) end
    return row
  end
  return rows[choose(#rows)]
end

local function build(seed, number, filter)
  local choose = chooser(seed, number)
  local v = values(choose)
  make.values = v
  local row = pick_row(filter, choose)
  local known, list = by_name(row), cases.of(row)
  local call
  if #list > 0 and choose(4) > 1 then call = copied(list[choose(#list)])
  else call = from_nothing(row, known, v, choose) end
  call.row, call.choose = row, choose
  call.way = filter.way or filter.ways[choose(#filter.ways)]
  for _ = 1, choose(3) - 1 do mutate(call, known, v, choose) end
  if choose(6) == 1 then set_option(call, known, choose) end
  return call
end

local function show_value(x)
  if driver.is_tensor(x) then
    local ok, text = pcall(function() return x.dtype .. "(" .. table.concat(x.shape, "x") .. ")" end)
    return ok and text or "a tensor without a value"
  end
  if type(x) == "string" then return (("%q"):format(x:sub(1, 20)):gsub("%z", "\\0")) end
  if type(x) == "number" then return ("%.17g"):format(x) end
  if type(x) ~= "table" then return tostring(x) end
  local out = {}
  for k = 1, table.maxn(x) do out[k] = show_value(x[k]) end
  for key, y in pairs(x) do if type(key) == "string" then out[#out + 1] = key .. " = " .. show_value(y) end end
  return "{" .. table.concat(out, ", ") .. "}"
end

-- Returns the call as text.
function make.show(call)
  local out = {}
  for k = 1, call.n do out[k] = show_value(call.args[k]) end
  if call.attrs then out[#out + 1] = show_value(call.attrs) end
  return ("%s: %s(%s)"):format(call.way, cases.field(call.row), table.concat(out, ", "))
end

return setmetatable(make, {__call = function(_, ...) return build(...) end})
