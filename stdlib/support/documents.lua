-- The library's documentation: the `---` comments of its sources, indexed by name and by position, and the rows of ops
-- as text.
local core = ...
local documents = {}

local internal = {core = true, args = true, class = true, namespace = true, documents = true}

-- "pg.optim.SGD{…" -> "optim.SGD", "block:to(…" -> "block:to"
local function key_of(line) return (line:match("^[%a_][%w_.:]*%w_?") or ""):gsub("^pg%.", "") end

local function add(index, file, lines, following)
  local name = key_of(lines[1])
  if name == "" or internal[name:match("^[^.:]*")] then return end
  local entry = {name = name, text = table.concat(lines, "\n"), file = file, line = following}
  index.list[#index.list + 1] = entry
  index.places[file .. ":" .. following] = entry
  index.names[name] = index.names[name] or entry
  local short = name:match("[^.:]*$")
  index.short[short] = index.short[short] or entry
end

local function scan(index, file)
  local block, number = nil, 0
  for line in ((core.embedded(file) or "") .. "\n"):gmatch("(.-)\n") do
    number = number + 1
    local text = line:match("^%s*%-%-%- ?(.*)$")
    if text then
      block = block or {}
      block[#block + 1] = text
    elseif block then
      add(index, file, block, number)
      block = nil
    end
  end
end

local built

--- documents.index() -> {list =, names =, short =, places =}: the entries {name =, text =, file =, line =} in the order
--- of the sources, by name ("optim.SGD", "block:to"), by the last part of the name, and by "file:line" of the line
--- after the comment.
function documents.index()
  if built then return built end
  built = {list = {}, names = {}, short = {}, places = {}}
  for _, file in ipairs(core.embedded_names()) do
    if file:find("%.lua$") then scan(built, file) end
  end
  return built
end

--- documents.mentioning(name) -> the first entry whose first line mentions this class, or nil.
function documents.mentioning(name)
  if not name:find("^%u%w+$") then return nil end
  for _, entry in ipairs(documents.index().list) do
    local first = entry.text:match("^[^\n]*")
    if first:find("%f[%w]" .. name .. "%f[^%w]") then return entry end
  end
end

--- documents.of_function(f) -> the entry whose comment is above the definition of a Lua function, or nil.
function documents.of_function(f)
  local info = type(debug) == "table" and debug.getinfo(f, "S")
  local file = info and info.source:match("^@stdlib/(.*)$")
  return file and documents.index().places[file .. ":" .. info.linedefined] or nil
end

--- documents.wrap(text, indent, width) -> the text broken into lines of at most `width` characters. All lines except
--- the first are indented.
function documents.wrap(text, indent, width)
  local lines, line = {}, nil
  for word in text:gmatch("%S+") do
    if line and indent + #line + 1 + #word > width then
      lines[#lines + 1] = line
      line = word
    else
      line = line and line .. " " .. word or word
    end
  end
  lines[#lines + 1] = line or ""
  return table.concat(lines, "\n" .. (" "):rep(indent))
end

local kinds = {
  {"any dtype", "bool uint8 int8 int32 int64 float16 bfloat16 float32 float64"},
  {"any dtype except bool", "uint8 int8 int32 int64 float16 bfloat16 float32 float64"},
  {"floating point", "float16 bfloat16 float32 float64"},
  {"integers", "uint8 int8 int32 int64"}, {"integers or bool", "bool uint8 int8 int32 int64"},
}

--- documents.dtypes(input) -> the dtypes that an input of an op accepts, in words.
function documents.dtypes(input)
  local names = {}
  for name in kinds[1][2]:gmatch("%S+") do if input.dtypes[name] then names[#names + 1] = name end end
  local all = table.concat(names, " ")
  for _, kind in ipairs(kinds) do if kind[2] == all then return kind[1] end end
  return (all:gsub(" ", ", "))
end

--- documents.attribute(attr) -> the kind and default of an attribute in words.
function documents.attribute(attr)
  local kind = attr.kind
  if #attr.choices > 0 then kind = '"' .. table.concat(attr.choices, '" or "') .. '"' end
  if kind == "random" then return "a Generator" end
  if attr.required then return kind .. ", required" end
  if attr.optional or attr.default == "" or attr.default == "nil" then return kind .. ", optional" end
  return kind .. ", default " .. attr.default
end

--- documents.op_parts(row) -> the arguments by position: {name =, input =, attr =, optional =}.
function documents.op_parts(row)
  local parts, inputs, attrs = {}, {}, {}
  for _, input in ipairs(row.inputs) do inputs[input.name] = input end
  for _, attr in ipairs(row.attrs) do attrs[attr.name] = attr end
  for i, name in ipairs(row.signature) do
    local input, attr = inputs[name], attrs[name]
    parts[i] = {name = name, input = input, attr = attr,
                optional = input and input.arity == "optional" or attr and not attr.required or false}
  end
  return parts
end

--- documents.has_method(row) -> whether the op is also a method of tensors.
function documents.has_method(row) return not row.hidden and core.tensor_methods[row.name] == core.ops[row.name] end

return documents
