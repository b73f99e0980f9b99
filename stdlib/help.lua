-- pg.help: prints documentation from the op registry and the comments of the library.
local core = ...
local documents = core.require("support.documents")
local help = {}

local width = 88

local function signature(row)
  local parts = documents.op_parts(row)
  local required, optional = {}, {}
  for _, part in ipairs(parts) do
    if part.attr and part.attr.kind == "random" then optional[#optional + 1] = "generator ="
    elseif part.optional then optional[#optional + 1] = part.attr and part.name .. " =" or part.name
    else required[#required + 1] = part.name end
  end
  local function call(first)
    local list = {}
    for i = first, #required do list[#list + 1] = required[i] end
    if #optional > 0 then list[#list + 1] = "{" .. table.concat(optional, ", ") .. "}" end
    return table.concat(list, ", ")
  end
  local text = "pg." .. row.name:gsub("^linalg_", "linalg.") .. "(" .. call(1) .. ")"
  if documents.has_method(row) then
    text = text .. "  or  " .. required[1] .. ":" .. row.name .. "(" .. call(2) .. ")"
  end
  return text .. " -> " .. (row.list_output and "a list" or table.concat(row.outputs, ", "))
end

local function section(lines, title, rows)
  if #rows == 0 then return end
  local longest = 0
  for _, row in ipairs(rows) do longest = math.max(longest, #row[1]) end
  lines[#lines + 1] = title
  for _, row in ipairs(rows) do
    lines[#lines + 1] = "  " .. row[1] .. (" "):rep(longest - #row[1] + 2) .. documents.wrap(row[2], longest + 4, width)
  end
end

local function describe(words, doc) return doc ~= "" and words .. "; " .. doc or words end

local function op_text(row)
  local lines = {documents.wrap(signature(row), 4, width), documents.wrap(row.doc, 0, width)}
  local inputs, options = {}, {}
  for _, input in ipairs(row.inputs) do
    local words = documents.dtypes(input)
    if input.arity == "list" then words = "a list of tensors, " .. words end
    if input.arity == "optional" then words = "optional, " .. words end
    inputs[#inputs + 1] = {input.name, describe(words, input.doc)}
  end
  for _, attr in ipairs(row.attrs) do
    options[#options + 1] = {attr.kind == "random" and "generator" or attr.name, describe(documents.attribute(attr), attr.doc)}
  end
  section(lines, "Inputs", inputs)
  section(lines, "Options (by position after the inputs, or by name in a last table)", options)
  if row.no_grad then lines[#lines + 1] = "Not differentiable." end
  lines[#lines + 1] = "Example"
  lines[#lines + 1] = "  " .. row.example:gsub("\n", "\n  ")
  return table.concat(lines, "\n")
end

local function columns(names)
  return "  " .. documents.wrap(table.concat(names, " "), 2, width)
end

local overview = [[
perigee: tensors with gradients for Lua.
  local pg = require "perigee"
  local x = pg.tensor{{1, 2}, {3, 4}}      x.shape, x.dtype, x.device; x[1], x[{1, 2}]; x + 1, x:matmul(x), x:sum()
  x:attach_grad(); pg.record(function() return (x * x):sum() end):backward(); print(x.grad)
  local net = pg.nn.HybridSequential(); net:add(pg.nn.Dense(10)); net:initialize(); net(x)
  local trainer = pg.optim.Trainer(net:collect_params(), "sgd", {learning_rate = 0.1}); trainer:step(batch_size)
  net:hybridize() runs net as a native graph; pg.jit(f) any function, a whole training step too
Modules: pg.nn pg.loss pg.optim pg.init pg.data pg.metric pg.autograd pg.linalg pg.utils pg.tree
pg.help(f), pg.help(module) and pg.help("name") explain more, such as pg.help("softmax") or pg.help(pg.nn.Dense).
Ops (most are also methods of tensors):]]

local function function_names(t)
  local names = {}
  for key, value in pairs(t) do
    if type(key) == "string" and not key:find("^_") and type(value) ~= "string" then names[#names + 1] = key end
  end
  table.sort(names)
  return names
end

-- Returns the public name of the value in pg or a module of it, or nil.
local function public_name(value)
  for name, f in pairs(core.ops) do if f == value then return name end end
  for name, f in pairs(core.tensor_methods) do if f == value then return "x:" .. name end end
  for _, entry in ipairs(documents.index().list) do
    local module, name = entry.name:match("^([%w_.]+)%.([%w_]+)$")
    local holder = module and package.loaded.perigee and rawget(package.loaded.perigee, module)
    if type(holder) == "table" and rawget(holder, name) == value then return entry.name end
    if not module and rawget(core.pg, entry.name) == value then return entry.name end
  end
end

local function named(name)
  local index = documents.index()
  local plain = name:gsub("^pg%.", "")
  local row = core.op_row(plain) or core.op_row((plain:gsub("^x:", "")))
  if row and not row.hidden then return op_text(row) end
  local in_place = plain:match("^(.*[^_])_$")
  row = in_place and core.tensor_methods[plain] and core.op_row(in_place)
  if row then return "x:" .. plain .. "(…) is x:" .. in_place .. "(…) in place: x gets the result.\n" .. op_text(row) end
  local short = plain:match("[^.:]*$")
  local entry = index.names[plain] or index.short[plain] or index.short[short] or documents.mentioning(short)
  return entry and entry.text
end

local function of_module(value, name)
  local lines = {"pg." .. name .. " contains"}
  lines[2] = columns(function_names(value))
  lines[3] = "pg.help(pg." .. name .. ".NAME) explains one of them."
  return table.concat(lines, "\n")
end

local function class_name(t)
  local meta = getmetatable(t)
  for _, at in ipairs{t, type(meta) == "table" and meta or {}} do
    local name = rawget(at, "_name") or rawget(at, "name")
    if type(name) == "string" then return name end
  end
end

local function of_table(t)
  if t == core.pg then return help.text() end
  for _, name in ipairs(function_names(core.pg)) do
    if rawget(core.pg, name) == t then return of_module(t, name) end
  end
  local name = class_name(t)
  return name and named(name)
end

local function of_function(f)
  local entry = documents.of_function(f)
  if entry then return entry.text end
  local name = public_name(f)
  return name and named(name)
end

--- help.text([what]) -> the text that pg.help prints.
function help.text(...)
  if select("#", ...) == 0 then return overview .. "\n" .. columns(core.op_names(false)) end
  local what = select(1, ...)
  local text
  if type(what) == "string" then text = named(what)
  elseif type(what) == "function" then text = of_function(what)
  elseif type(what) == "table" then text = of_table(what)
  elseif core.is_tensor(what) then
    text = "A tensor, " .. core.describe(what) .. ". Its methods:\n" .. columns(function_names(core.tensor_methods))
  else core.arg_error("help", "what", "a function, a module, a class or a name", what) end
  if text then return text end
  if type(what) ~= "string" then return "No documentation for this " .. type(what) .. "." end
  local near = core.suggest(what, core.op_names(false)) or core.suggest(what, documents.index().short)
  core.fail("help", "no documentation for '%s'%s", what, near and " (did you mean '" .. near .. "'?)" or "")
end

--- pg.help([what]) prints the documentation of a function, an op, a class or a module, or of the one with that name.
--- Without arguments it prints an overview.
function help.help(...) io.write(help.text(...), "\n") end

return help
