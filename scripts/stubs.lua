-- Writes stdlib/meta/perigee.lua, the stubs for the Lua language server, from the registry and the comments of the
-- library:
-- build/perigee scripts/stubs.lua. With --check it only compares the file with what it would write.
local pg = require "perigee"
local core = pg.testing.core
local documents = core.require("support.documents")
local catalog = core.require("support.catalog")
local namespace = core.require("support.namespace")

local root = arg[0]:match("^(.*)/scripts/stubs%.lua$") or "."
local target = root .. "/stdlib/meta/perigee.lua"
local lines = {}
local function emit(text, ...) lines[#lines + 1] = select("#", ...) > 0 and text:format(...) or text end

local keywords = {}
for word in ([[and break do else elseif end false for function goto if in local nil not or repeat return then true
  until while]]):gmatch("%S+") do keywords[word] = true end
local function usable(name) return name:find("^[%a_][%w_]*$") and not keywords[name] end

local function emit_document(text)
  for line in (text .. "\n"):gmatch("(.-)\n") do emit("---" .. line) end
end

local types = {
  bool = "boolean", int = "integer", float = "number", string = "string", dtype = "perigee.DType", device = "string",
  ints = "integer|integer[]", floats = "number[]", dim = "integer", dims = "integer|integer[]", random = "perigee.Generator",
}

local function attr_type(attr)
  if #attr.choices > 0 then return '"' .. table.concat(attr.choices, '"|"') .. '"' end
  return types[attr.kind]
end

local function input_type(row, input)
  if input.arity == "list" then return "perigee.Tensor[]" end
  return row.pointwise and "perigee.Tensor|number" or "perigee.Tensor"
end

local function part_type(row, part) return part.input and input_type(row, part.input) or attr_type(part.attr) end

local function returns(row)
  if row.list_output then return "perigee.Tensor[]" end
  return ("perigee.Tensor, "):rep(#row.outputs):sub(1, -3)
end

-- Returns the arguments by position, and those that a last table may hold by name.
local function read_parts(row)
  local positional, named, seen = {}, {}, {}
  for _, part in ipairs(documents.op_parts(row)) do
    positional[#positional + 1] = part
    seen[part.name] = true
    if not part.placed then named[#named + 1] = part end
  end
  for _, attr in ipairs(row.attrs) do
    if attr.kind == "random" then named[#named + 1] = {name = "generator", attr = attr, optional = true}
    elseif not seen[attr.name] then named[#named + 1] = {name = attr.name, attr = attr, optional = true} end
  end
  local kept = {}
  for _, part in ipairs(positional) do
    if not (part.attr and part.attr.kind == "random") then kept[#kept + 1] = part end
  end
  return kept, named
end

local function emit_overload(row, first, positional, named, own)
  if #named == 0 then return end
  local placed, options, seen = {own}, {}, {}
  for i = first, #positional do
    local part = positional[i]
    if part.placed then placed[#placed + 1] = part.name .. (part.optional and "?: " or ": ") .. part_type(row, part) end
  end
  for _, part in ipairs(named) do
    if not seen[part.name] then options[#options + 1] = part.name .. "?: " .. part_type(row, part) end
    seen[part.name] = true
  end
  placed[#placed + 1] = "options: {" .. table.concat(options, ", ") .. "}"
  emit("---@overload fun(%s): %s", table.concat(placed, ", "), returns(row))
end

local function alias_call(row)
  for _, alias in ipairs(row.aliases) do if alias.name == row.name then return alias.call end end
end

local function emit_call(row, holder, first, own)
  local positional, named = read_parts(row)
  emit_document(row.doc)
  if row.name ~= row.main then emit_document("Another name of " .. alias_call(row) .. ".") end
  local names = {}
  for i = first, #positional do
    local part = positional[i]
    names[#names + 1] = part.name
    local doc = part.input and part.input.doc or part.attr.doc
    emit("---@param %s%s %s%s", part.name, part.optional and "?" or "", part_type(row, part), doc ~= "" and " " .. doc or "")
  end
  if row.list_output then emit("---@return perigee.Tensor[]")
  else for _, name in ipairs(row.outputs) do emit("---@return perigee.Tensor %s", name) end end
  emit_overload(row, first, positional, named, own)
  emit("function %s(%s) end\n", holder .. row.name, table.concat(names, ", "))
end

-- Returns the parameters in the first line of a comment: "f(x, n = 1, {a =, b =})[, …]".
local function read_parameters(text, name)
  local at = text:find(name, 1, true)
  local rest = at and text:sub(at + #name) or ""
  if rest:sub(1, 1) == "{" then return {"options"} end
  local inside = rest:match("^%b()") or rest:find("^[,%s]") and text:match("%b()")
  if not inside then return {} end
  inside = inside:sub(2, -2):gsub("%b{}", "options"):gsub("[%[%]]", ""):gsub("…", "..."):gsub("%b()", "")
  local list, seen = {}, {}
  for piece in (inside .. ","):gmatch("%s*(.-)%s*,") do
    local word = piece:match("^%.%.%.") or piece:match("^[%a_][%w_]*")
    if word and (word == "..." or usable(word)) and not seen[word] then
      list[#list + 1] = word
      seen[word] = true
    end
    if word == "..." then break end
  end
  return list
end

-- Returns the name by which the comment of an entry calls a function. An alias has another one.
local function name_in(entry, name)
  for _, full in ipairs(entry.names) do if full:match("[^.:]*$") == name then return name end end
  return entry.name:match("[^.:]*$")
end

local function emit_function(holder, name, entry, result)
  if entry then emit_document(entry.text) end
  local list = entry and read_parameters(entry.text:gsub("\n", " "), name_in(entry, name)) or {"..."}
  if entry and holder == "pg." and entry.name:find("^x:") then table.insert(list, 1, "x") end
  for _, word in ipairs(list) do emit("---@param %s any", word) end
  emit("---@return %s", result or "any")
  emit("function %s%s(%s) end\n", holder, name, table.concat(list, ", "))
end

local function sorted(t)
  local names = {}
  for name in pairs(t) do if type(name) == "string" and usable(name) and name:sub(1, 1) ~= "_" then names[#names + 1] = name end end
  table.sort(names)
  return names
end

local function emit_tensor()
  emit("---@alias perigee.DType \"bool\"|\"uint8\"|\"int8\"|\"int32\"|\"int64\"|\"float16\"|\"bfloat16\"|\"float32\"|\"float64\"\n")
  emit("---@class perigee.Generator\nlocal Generator = {}\n---@param seed integer\nfunction Generator:seed(seed) end\n")
  emit("---@class perigee.Tensor")
  for _, name in ipairs{"add", "sub", "mul", "div", "mod", "pow"} do
    emit("---@operator %s(perigee.Tensor|number): perigee.Tensor", name)
  end
  emit("---@operator unm: perigee.Tensor\n---@operator len: integer")
  emit("---@field shape integer[]\n---@field dtype perigee.DType\n---@field device string\n---@field name string?")
  emit("---@field grad perigee.Tensor?\n---@field requires_grad boolean\n---@field T perigee.Tensor\n---@field mT perigee.Tensor\n---@field [integer|table|perigee.Tensor] perigee.Tensor")
  local rows, in_place = {}, {}
  for _, name in ipairs(sorted(core.tensor_methods)) do
    local row = core.op_row(name)
    if row and documents.has_method(row) then rows[#rows + 1] = row
    elseif name:find("[^_]_$") and core.op_row(name:sub(1, -2)) then
      in_place[#in_place + 1] = name
      emit("---@field %s fun(self: perigee.Tensor, ...): perigee.Tensor", name)
    end
  end
  emit("local Tensor = {}\n")
  for _, row in ipairs(rows) do emit_call(row, "Tensor:", 2, "self: perigee.Tensor") end
  local done = {}
  for _, row in ipairs(rows) do done[row.name] = true end
  for _, name in ipairs(in_place) do done[name] = true end
  for _, name in ipairs(sorted(core.tensor_methods)) do
    if not done[name] then emit_function("Tensor:", name, documents.index().names["x:" .. name]) end
  end
end

local function emit_methods(class, prefixes, parent)
  emit("---@class perigee.%s%s\nlocal %s = {}\n", class, parent or "", class)
  for _, entry in ipairs(documents.index().list) do
    local prefix, name = entry.name:match("^(%w+):([%w_]+)$")
    if prefix and prefixes[prefix] and usable(name) then emit_function(class .. ":", name, entry) end
  end
end

local results = {nn = "perigee.Block", loss = "perigee.Block", rnn = "perigee.Block", models = "perigee.Block", transforms = "perigee.Block"}

local is_namespace = catalog.is_namespace

-- Modules in others that have a class of their own, each after those in it.
local inner = {{"rnn", "nn"}, {"transforms", "data.vision"}, {"vision", "data"}}

local function class_of(name)
  for _, pair in ipairs(inner) do if pair[1] == name then return "perigee." .. name end end
  return "table"
end

local function result_of(module, name)
  if name == "list" then return "string[]" end
  return name:find("Cell$") and "perigee.Cell" or results[module]
end

local function emit_module(module, holder)
  local t = pg
  for part in ((holder and holder .. "." or "") .. module):gmatch("[^.]+") do t = t[part] end
  local path = (holder and holder .. "." or "") .. module .. "."
  emit("---@class perigee.%s", module)
  for _, name in ipairs(sorted(t)) do
    if is_namespace(rawget(t, name)) then emit("---@field %s %s", name, class_of(name)) end
  end
  emit("local %s = {}\n", module)
  for _, name in ipairs(sorted(t)) do
    local value = rawget(t, name)
    local row = core.op_row(namespace.op_name(module .. "." .. name))
    if row then
      row.name, row.main = name, name
      emit_call(row, module .. ".", 1)
    elseif type(value) == "function" or type(value) == "table" and not is_namespace(value) then
      emit_function(module .. ".", name, catalog.entry(path .. name, value), result_of(module, name))
    end
  end
end

local function emit_library(modules)
  emit("---@class perigee")
  for _, module in ipairs(modules) do emit("---@field %s perigee.%s", module, module) end
  emit("---@field version string\nlocal pg = {}\n")
  local names = core.op_names(false)
  for _, name in ipairs(core.op_aliases()) do names[#names + 1] = name end
  table.sort(names)
  for _, name in ipairs(names) do
    local row = core.op_row(name)
    if namespace.dotted(name) == name then emit_call(row, "pg.", 1) end
  end
  for _, name in ipairs(catalog.names(pg)) do
    local value = pg[name]
    local is_op = core.op_row(name) or catalog.in_place(name)
    if usable(name) and type(value) == "function" and not is_op then emit_function("pg.", name, catalog.entry(name, value)) end
  end
  emit("return pg")
end

local function generate()
  local modules = {"autograd", "data", "fft", "init", "linalg", "loss", "metric", "models", "nn", "optim", "tree", "utils"}
  emit("---@meta perigee")
  emit("-- Written by scripts/stubs.lua from the registry and the comments of the library.\n")
  emit_tensor()
  emit_methods("Block", {block = true, Block = true, Class = true})
  emit_methods("Trainer", {trainer = true})
  emit_methods("Cell", {cell = true}, ": perigee.Block")
  for _, pair in ipairs(inner) do emit_module(unpack(pair)) end
  for _, module in ipairs(modules) do emit_module(module) end
  emit_library(modules)
  return table.concat(lines, "\n") .. "\n"
end

local text = generate()
assert(loadstring(text, "@stdlib/meta/perigee.lua"))
if arg[1] == "--check" then
  local file = io.open(target, "rb")
  local current = file and file:read("*a")
  if file then file:close() end
  if current ~= text then
    print("stdlib/meta/perigee.lua is out of date; run build/perigee scripts/stubs.lua")
    os.exit(1)
  end
else
  os.execute("mkdir -p '" .. root .. "/stdlib/meta'")
  local file = assert(io.open(target, "wb"))
  file:write(text)
  file:close()
end
