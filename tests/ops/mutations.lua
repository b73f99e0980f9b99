-- Wrong calls of an op, made from a correct one: each argument is replaced by invalid values.
local pg = require "perigee"
local driver = require "tests.ops.driver"

local nan, inf = 0 / 0, math.huge
local nothing = {}  -- represents nil in a list of replacements

local dtypes = {"bool", "uint8", "int8", "int32", "int64", "float16", "bfloat16", "float32", "float64"}

-- Replacements of an attribute by its kind. Those in `must` have to fail. Those in `may` can fail or succeed, but must
-- not crash or hang.
local function f() end
local wild = {-1, -2 ^ 40, 2 ^ 40, 2 ^ 53, 0}
local bad_lists = {{1.5}, {nan}, {inf}, {"1"}, {2 ^ 63}, {[2] = 3}, {{1}}, {1, true}, f}
local attrs = {
  bool = {must = {1, "true", {1}, f}, may = {}},
  int = {must = {1.5, nan, inf, -inf, "1", {1}, true, 2 ^ 63, -2 ^ 63, f}, may = wild},
  dim = {must = {1.5, nan, inf, "1", {1}, true, 2 ^ 63, 99, -99, f}, may = {0}},
  element = {must = {"1", {1}, f}, may = {true, nan, inf, -inf, -1, 0, 1e300}},  -- of pg.full
  float = {must = {"1", {1}, true, f}, may = {nan, inf, -inf, -1, 0, 1e300}},
  string = {must = {1, {"x"}, true, f}, may = {"", "\0", ("x"):rep(300)}},
  dtype = {must = {"float33", 5, {1}, f}, may = {"int8"}},
  device = {must = {"gpu7", "cpu:9", 5, {1}, f}, may = {}},
  ints = {
    must = bad_lists,
    may = {{}, {0}, {-1}, {2 ^ 40}, {2 ^ 40, 2 ^ 40}, {-2 ^ 40, 1}, {2 ^ 53}, {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, -5},
  },
  dims = {must = bad_lists, may = {{}, {0}, {1, 1}, {99}, {-99}}},
  floats = {must = {{"1"}, {[2] = 3}, f}, may = {{}, {nan}, {-1}, {1e300}, {0}}},
  random = {must = {5, "x", {1}, f}, may = {}},
}

local function released()
  local x = pg.ones(2)
  x:release()
  return x
end

-- A bool tensor beside a number is promoted to a dtype that the op may take.
local function wrong_dtypes(def, x, beside_number)
  local out = {}
  for _, dtype in ipairs(dtypes) do
    if not def.dtypes[dtype] and not (dtype == "bool" and beside_number) then out[#out + 1] = x:to(dtype) end
  end
  return out
end

local function has_number(args)
  for _, value in pairs(args) do if type(value) == "number" then return true end end
  return false
end

local function is_index(row, def, x)
  if not (def.name:find("^ind") or def.name == "target") or x.dtype:find("float") or x:numel() == 0 then return false end
  for _, attr in ipairs(row.attrs) do if attr.name == "index_base" then return true end end
end

local function other_shapes(x)
  local out = {}
  for _, shape in ipairs{{7}, {0}, {}, {1, 1, 1, 1, 1, 1, 1, 1}, {3, 2, 5, 2}} do
    out[#out + 1] = pg.ones(shape, {dtype = "float64"}):to(x.dtype)
  end
  return out
end

local function for_attr(row, attr)
  return attrs[row.name:find("^full") and attr.kind == "float" and "element" or attr.kind]
end

local function for_input(row, def, value, args)
  local must = {"x", f, released(), pg.param{shape = {0, 3}}}
  local may = {nan, inf, 1e300, true}
  if def.arity == "one" then must[#must + 1] = nothing end
  if def.arity == "list" then
    for _, x in ipairs{"x", 1, released()} do must[#must + 1] = {x} end
    may[#may + 1] = {}
    return must, may
  end
  must[#must + 1] = {1}
  if not driver.is_tensor(value) then return must, may end
  for _, x in ipairs(wrong_dtypes(def, value, has_number(args))) do must[#must + 1] = x end
  for _, x in ipairs(other_shapes(value)) do may[#may + 1] = x end
  if is_index(row, def, value) then
    for _, i in ipairs{1000, -1000} do must[#must + 1] = pg.full_like(value, i, {dtype = "int64"}) end
  end
  return must, may
end

local function show(v)
  if v == nothing then return "nil" end
  if driver.is_tensor(v) then
    local ok, text = pcall(function() return v.dtype .. " " .. table.concat(v.shape, "x") end)
    return ok and text or "a tensor without a value"
  end
  if type(v) == "string" then return (("%q"):format(v:sub(1, 20)):gsub("%z", "\\0")) end
  if type(v) ~= "table" then return tostring(v) end
  local out = {}
  for k = 1, table.maxn(v) do out[k] = show(v[k]) end
  return "{" .. table.concat(out, ", ") .. "}"
end

local function by_name(list)
  local out = {}
  for _, def in ipairs(list) do out[def.name] = def end
  return out
end

-- Calls visit(what, name, args, n, attrs, must) for every wrong call: args[1..n], then attrs unless nil. name is the
-- argument that an error has to name; nil if several are possible, because a value that is not a tensor ends a list of
-- tensors.
local function visit_calls(row, case, visit)
  local inputs, known = by_name(row.inputs), by_name(row.attrs)
  local n, lists = table.maxn(case.args), false
  for _, def in ipairs(row.inputs) do lists = lists or def.arity == "list" end
  local function positional(k, name, list, must)
    for _, v in ipairs(list) do
      local args = {unpack(case.args, 1, n)}
      if v == nothing then args[k] = nil else args[k] = v end
      visit(name .. " = " .. show(v), not lists and name or nil, args, n, case.attrs, must)
    end
  end
  local function named(name, list, must)
    for _, v in ipairs(list) do
      local with = {}
      for key, value in pairs(case.attrs or {}) do with[key] = value end
      with[name] = v
      visit("{" .. name .. " = " .. show(v) .. "}", name, case.args, n, with, must)
    end
  end
  for k = 1, math.min(n, #row.signature) do
    local name = row.signature[k]
    if inputs[name] then
      local must, may = for_input(row, inputs[name], case.args[k], case.args)
      positional(k, name, must, true)
      positional(k, name, may, false)
    else
      positional(k, name, for_attr(row, known[name]).must, true)
      positional(k, name, for_attr(row, known[name]).may, false)
      known[name] = nil
    end
  end
  for name, attr in pairs(known) do
    local option = attr.kind == "random" and "generator" or name
    named(option, for_attr(row, attr).must, true)
    named(option, for_attr(row, attr).may, false)
    if #attr.choices > 0 then named(name, {"no such choice"}, true) end
  end
  named("no_such_option", {1}, true)
  local slots = #row.signature
  if slots >= n then
    local args = {unpack(case.args, 1, n)}
    args[slots + 1] = "too many"
    visit("an argument too many", "#" .. slots + 1, args, slots + 1, case.attrs, true)
  end
end

return visit_calls
