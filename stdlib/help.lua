-- pg.help: prints documentation from the op registry and the comments of the library.
local core = ...
local documents = core.require("support.documents")
local catalog = core.require("support.catalog")
local hint = core.require("support.hint")
local namespace = core.require("support.namespace")
local help = {}

local width, row_width, example_lines = 88, 110, 12

local function signature(row)
  local parts = documents.op_parts(row)
  local placed, optional = {}, {}
  for _, part in ipairs(parts) do
    if part.attr and part.attr.kind == "random" then optional[#optional + 1] = "generator ="
    elseif part.placed then placed[#placed + 1] = part.name
    else optional[#optional + 1] = part.attr and part.name .. " =" or part.name end
  end
  for _, attr in ipairs(row.attrs) do if attr.option then optional[#optional + 1] = attr.name .. " =" end end
  local function call(first)
    local list = {}
    for i = first, #placed do list[#list + 1] = placed[i] end
    if #optional > 0 then list[#list + 1] = "{" .. table.concat(optional, ", ") .. "}" end
    return table.concat(list, ", ")
  end
  local text = "pg." .. namespace.dotted(row.name) .. "(" .. call(1) .. ")"
  if documents.has_method(row) then
    text = text .. "  or  " .. placed[1] .. ":" .. row.name .. "(" .. call(2) .. ")"
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

-- Examples ---------------------------------------------------------------------------------------------------------------

local function shown(value)
  if type(value) ~= "table" or getmetatable(value) then return tostring(value) end
  local parts, tensors = {}, core.is_tensor(value[1])
  for i, item in ipairs(value) do parts[i] = (tensors and "[" .. i .. "] " or "") .. tostring(item) end
  return tensors and table.concat(parts, "\n") or "{" .. table.concat(parts, ", ") .. "}"
end

-- Leaves out the middle of a long text. The last line has the type of a tensor.
local function cut_lines(text)
  local lines = {}
  for line in (text .. "\n"):gmatch("(.-)\n") do lines[#lines + 1] = line end
  if #lines <= example_lines then return text end
  return table.concat(lines, "\n", 1, example_lines - 2) .. "\n…\n" .. lines[#lines]
end

-- Returns what the example returns as text. It runs with globals of its own, without a record of gradients and with
-- random numbers of its own. Returns nil inside a trace.
local function run_example(code)
  if core.tracing() then return nil end
  local chunk = loadstring(code, "=example")
  if not chunk then return nil end
  setfenv(chunk, setmetatable({pg = core.pg}, {__index = _G}))
  local streams = core.random_streams()
  local results = {pcall(core.finally, function() streams:restore() end, core.pg.pause, function()
    core.manual_seed(0)
    return chunk()
  end)}
  if not results[1] then return "error: " .. tostring(results[2]) end
  local parts = {}
  for i = 2, #results do parts[i - 1] = shown(results[i]) end
  return cut_lines(table.concat(parts, "\n"))
end

local function indented(text) return ("  " .. text:gsub("\n", "\n  ")):gsub("[ ]+\n", "\n") end

local function add_example(lines, code)
  lines[#lines + 1] = "Example\n" .. indented(code)
  local result = run_example(code)
  if result and result ~= "" then lines[#lines + 1] = "Result\n" .. indented(result) end
end

-- Ops --------------------------------------------------------------------------------------------------------------------

-- Says which calls are errors, as far as the row knows.
local function errors_of(row)
  local parts, tensors, dims = {}, 0, false
  for _, input in ipairs(row.inputs) do
    tensors = tensors + 1
    local words = documents.dtypes(input)
    if words ~= "any dtype" then parts[#parts + 1] = input.name .. " of another dtype (" .. words .. ")" end
  end
  if row.pointwise and tensors > 1 then parts[#parts + 1] = "shapes that do not broadcast" end
  for _, attr in ipairs(row.attrs) do
    if attr.required then parts[#parts + 1] = "no " .. attr.name end
    if #attr.choices > 0 then parts[#parts + 1] = "another " .. attr.name end
    dims = dims or attr.kind == "dim" or attr.kind == "dims"
  end
  if dims then parts[#parts + 1] = "a dim that the tensor does not have (dims are 1, 2, … or -1 for the last)" end
  parts[#parts + 1] = "an unknown option"
  return table.concat(parts, "; ")
end

-- Says what shape the result has, where the row knows more than its documentation.
local function shape_of(row)
  if row.dynamic_shape then return "a shape that depends on the values" end
  if row.list_output then return "a list of tensors" end
  if not row.pointwise then return nil end
  return #row.inputs > 1 and "the shape to which the inputs broadcast" or "the shape of " .. row.inputs[1].name
end

-- "view is another name of reshape.", or the other names of the op.
local function other_names(row)
  local others = {}
  for _, alias in ipairs(row.aliases) do
    if alias.name == row.name then return ("%s is another name of %s."):format(alias.name, alias.call) end
    others[#others + 1] = alias.call == row.name and alias.name or alias.name .. " (" .. alias.call .. ")"
  end
  return #others > 0 and "Other names: " .. table.concat(others, ", ") .. "." or nil
end

-- Returns the example of an op with the name by which it is asked for, if an alias only renames the op.
local function example_of(row)
  for _, alias in ipairs(row.aliases) do
    if alias.name == row.name and alias.call == row.main then
      return (row.example:gsub("([.:])" .. row.main .. "%f[^%w_]", "%1" .. row.name))
    end
  end
  return row.example
end

local function op_text(row)
  local lines = {documents.wrap(signature(row), 4, width), documents.wrap(row.doc, 0, width)}
  local others = other_names(row)
  if others then table.insert(lines, row.name == row.main and 3 or 2, documents.wrap(others, 0, width)) end
  local inputs, options = {}, {}
  for _, input in ipairs(row.inputs) do
    local words = documents.dtypes(input)
    if input.arity == "list" then words = "a list of tensors, " .. words end
    if input.arity == "optional" then words = "optional, " .. words end
    inputs[#inputs + 1] = {input.name, describe(words, input.doc)}
  end
  for _, attr in ipairs(row.attrs) do
    local words = describe(documents.attribute(attr), attr.doc) .. (attr.option and "; by name only" or "")
    options[#options + 1] = {attr.kind == "random" and "generator" or attr.name, words}
  end
  section(lines, "Inputs", inputs)
  section(lines, "Options (by position after the inputs, or by name in a last table)", options)
  local shape = shape_of(row)
  if shape then lines[#lines + 1] = "Returns " .. shape .. "." end
  if row.no_grad then lines[#lines + 1] = "Not differentiable." end
  lines[#lines + 1] = "Errors: " .. documents.wrap(errors_of(row), 8, width) .. "."
  add_example(lines, example_of(row))
  return table.concat(lines, "\n")
end

-- Columns ----------------------------------------------------------------------------------------------------------------

local function columns(names)
  return "  " .. documents.wrap(table.concat(names, " "), 2, width)
end

-- Returns rows {name, one line} as two columns.
local function table_of(rows)
  local longest, lines = 0, {}
  for _, row in ipairs(rows) do longest = math.max(longest, #row[1]) end
  for i, row in ipairs(rows) do
    lines[i] = "  " .. row[1] .. (" "):rep(longest - #row[1] + 2) .. documents.cut(row[2], row_width - longest - 4)
  end
  return table.concat(lines, "\n")
end

local overview = [[
perigee: tensors with gradients for Lua.
  local pg = require "perigee"
  local x = pg.tensor{{1, 2}, {3, 4}}      x.shape, x.dtype, x.device; x[1], x[{1, 2}]; x + 1, x:matmul(x), x:sum()
  x:attach_grad(); pg.record(function() return (x * x):sum() end):backward(); print(x.grad)
  local net = pg.nn.HybridSequential(); net:add(pg.nn.Dense(10)); net:initialize(); net(x)
  local trainer = pg.optim.Trainer(net:collect_params(), "sgd", {learning_rate = 0.1}); trainer:step(batch_size)
  net:hybridize() runs net as a native graph; pg.jit(f) any function, a whole training step too
Modules: pg.nn pg.loss pg.optim pg.init pg.data pg.metric pg.autograd pg.linalg pg.fft pg.utils pg.tree
pg.help(f), pg.help(module) and pg.help("name") explain more, such as pg.help("softmax") or pg.help(pg.nn.Dense).
Ops (most are also methods of tensors):]]

-- Returns the public names of the methods of tensors, also of those that no script has called.
local function method_names()
  local names = {}
  for name in pairs(core.tensor_methods) do
    if not name:find("^_") then names[#names + 1] = name end
  end
  table.sort(names)
  return names
end

-- Returns the text for pg: its modules, its functions and the ops.
local function library_text()
  local groups = {{}, {}, {}}
  for _, row in ipairs(catalog.rows("", core.pg)) do
    local value = core.pg[row[1]]
    if catalog.is_namespace(value) then table.insert(groups[1], row)
    elseif catalog.op(row[1]) or catalog.in_place(row[1]) then table.insert(groups[3], row)
    elseif type(value) ~= "string" then table.insert(groups[2], row) end
  end
  return ("perigee %s: tensors with gradients for Lua. pg.help(\"name\") explains each of these.\nModules\n%s\nFunctions\n%s\nOps (most are also methods of tensors)\n%s"):format(
    core.version, table_of(groups[1]), table_of(groups[2]), table_of(groups[3]))
end

--- help.columns(t) -> the public names of pg or a module of it, with one line about each.
function help.columns(t)
  if t == core.pg then return library_text() end
  local item = catalog.item(t)
  if not item then return nil end
  local about = documents.index().modules[item.name]
  return ("pg.%s contains%s\n%s\npg.help(pg.%s.NAME) explains one of them."):format(
    item.name, about and " " .. about or "", table_of(catalog.rows(item.name .. ".", t)), item.name)
end

-- Entries ----------------------------------------------------------------------------------------------------------------

-- The documented methods of a class and of the classes above it.
local function methods_text(class)
  local rows, seen, at = {}, {}, class
  while type(at) == "table" do
    for _, name in ipairs(catalog.methods(at)) do
      local entry = not seen[name] and documents.of_function(at[name])
      seen[name] = true
      if entry and entry.name:find(":" .. name .. "$") then rows[#rows + 1] = {name, documents.summary(entry)} end
    end
    at = rawget(at, "super")
  end
  return rows[1] and "\nMethods\n" .. table_of(rows) or ""
end

-- Returns the text of an entry with `more` at its end, and its example.
local function entry_text(entry, more)
  local lines = {entry.text .. (more or "")}
  if entry.example then add_example(lines, entry.example) end
  return table.concat(lines, "\n")
end

-- Returns the text for a public name with its value, or nil.
local function item_text(name, value, class)
  local row = catalog.op(name)
  if row then return op_text(row) end
  row = catalog.in_place(name)
  if row then
    local of = name:match("[^:]*$"):sub(1, -2)
    local holder = documents.has_method(row) and "x:" or "pg."
    return ("%s%s_(…) is %s%s(…) in place: the first input gets the result.\n%s"):format(holder, of, holder, of, op_text(row))
  end
  if catalog.is_namespace(value) then return help.columns(value) end
  local entry = catalog.entry(name, value, class)
  if not entry then return nil end
  local text = entry_text(entry, catalog.is_class(value) and methods_text(value))
  if entry.text:find(name:match("[^.:]*$"), 1, true) then return text end
  local relation = class and "is a method of pg." .. name:match("^[^:]*") or "is another name of pg." .. entry.name
  return ("pg.%s %s.\n%s"):format(name, relation, text)
end

local by_name

-- Returns the item of the catalog with this name, or with this last part of its name.
local function find_item(name)
  if not by_name then
    by_name = {}
    local list = catalog.list()
    for _, item in ipairs(list) do by_name[item.name] = item end
    for _, item in ipairs(list) do
      local short = item.name:match("[^.:]*$")
      by_name[short] = by_name[short] or item
    end
  end
  return by_name[name] or by_name[(name:gsub("%.([%w_]+)$", ":%1"))]
end

-- Returns the function that a name such as "metric.MAE:reset" denotes: a method that the class has or inherits.
local function method_named(name)
  local holder, method = name:match("^(.*):([^:]*)$")
  local item = holder and find_item(holder)
  return item and catalog.is_class(item.value) and item.value[method]
end

local of_function

local function named(name)
  local index = documents.index()
  local plain = name:gsub("^pg%.", "")
  local row = catalog.op(plain)
  if row then return op_text(row) end
  local item = find_item(plain)
  if item and (item.name == plain or catalog.is_class(item.value)) then return item_text(item.name, item.value, item.class) end
  local method = method_named(plain)
  local text = type(method) == "function" and of_function(method)
  if text then return text end
  local short = plain:match("[^.:]*$")
  local entry = index.names[plain] or index.short[plain]
  if entry then return entry_text(entry) end
  item = item or find_item(short)
  if item then return item_text(item.name, item.value, item.class) end
  return index.short[short] and entry_text(index.short[short])
end

-- Returns the nearest public class of an object or class.
local function public_class(t)
  local at = catalog.is_class(t) and t or getmetatable(t)
  while type(at) == "table" do
    local item = catalog.is_class(at) and catalog.item(at)
    if item then return item end
    at = rawget(at, "super")
  end
end

local function of_table(t)
  if t == core.pg then return help.text() end
  if catalog.is_namespace(t) then return help.columns(t) end
  local item = catalog.item(t) or public_class(t)
  return item and item_text(item.name, item.value, item.class)
end

function of_function(f)
  local item = catalog.item(f)
  if item then return item_text(item.name, f, item.class) end
  local entry = documents.of_function(f)
  return entry and entry_text(entry)
end

-- Returns what to say about a name that has no documentation.
local function advice(name)
  local plain = name:match("[^.:]*$")
  for _, kind in ipairs{"pg", "nn", "block", "tensor", "loss", "optim", "data", "metric"} do
    local text = hint.find(kind, plain)
    if text then return text end
  end
  local names = {}  -- by spelling without case and underscores: ctc_los is near CTCLoss
  local function squashed(text) return (text:lower():gsub("_", "")) end
  local function add(full)
    local short = full:match("[^.:]*$")
    names[squashed(short)] = names[squashed(short)] or short
  end
  for _, item in ipairs(catalog.list()) do add(item.name) end
  for short in pairs(documents.index().short) do add(short) end
  local near = core.suggest(plain, core.op_names(false)) or names[core.suggest(squashed(plain), names)]
  return near and "did you mean '" .. near .. "'?" or "pg.help() lists what there is"
end

--- help.text([what]) -> the text that pg.help prints.
function help.text(...)
  if select("#", ...) == 0 then return overview .. "\n" .. columns(core.op_names(false)) end
  local what = select(1, ...)
  local text
  what = core.require("support.no_list").object(what)
  if type(what) == "string" then text = named(what)
  elseif type(what) == "function" then text = of_function(what)
  elseif type(what) == "table" then text = of_table(what)
  elseif core.is_tensor(what) then
    text = "A tensor, " .. core.describe(what) .. ". Its methods:\n" .. columns(method_names())
  else core.arg_error("help", "what", "a function, a module, a class or a name", what) end
  if text then return text end
  if type(what) ~= "string" then return "No documentation for this " .. type(what) .. "." end
  core.fail("help", "no documentation for '%s' (%s)", what, advice(what))
end

local function show(...)
  local text = help.text(...) .. "\n"
  if not core.write_to_host(text) and io then io.write(text) end
end

--- pg.help([what]) prints the documentation of a function, an op, a class or a module, or of the one with that name,
--- and the example of an op with its result. Without arguments it prints an overview. It returns nothing. In a traced
--- function it prints once, while that is traced.
function help.help(...) core.untraced(show, ...) end

return help
