-- The library's documentation: the `---` comments of its sources, indexed by name and by position, and the rows of ops
-- as text.
local core = ...
local documents = {}

local internal_files = {"^hybrid/", "^control/", "^tools/", "^support/[^b]", "^testing%.lua$", "^meta/"}
local public_holders = {pg = true, nn = true, vision = true}  -- "nn.Dense" is short for "pg.nn.Dense"

-- Returns the name at the position of the text and the position after its arguments. A name without a holder gets that
-- of the name before: "nn.Conv1D, Conv2D(…)".
local function name_at(text, at, holder)
  local word, stop = text:match("^([%a_][%w_.:]*%w_?)()", at)
  if not word then return nil end
  if not word:find("[.:]") then
    if holder and not word:find("^%u") then return nil end
    word = (holder or "") .. word
  end
  return word, text:match("^%b()()", stop) or text:match("^%b{}()", stop) or stop
end

-- Returns the names that a comment begins with, without "pg.", and the text after them: "pg.optim.SGD{…}: …" gives
-- {"optim.SGD"}, "a, b = pg.f(x), pg.g(x) …" gives {"f", "g"}.
local function read_names(text)
  local names, at, after = {}, text:match("^[%w_, ]+ = ()pg%.") or 1, 1
  local holder
  while at do
    local name, stop = name_at(text, at, holder)
    if not name then break end
    holder = name:match("^(.*[.:])") or holder
    names[#names + 1] = name:gsub("^pg%.", "")
    after = stop
    at = text:match("^, ()", stop) or text:match("^ and ()", stop)
  end
  return names, text:sub(after)
end

local function is_public(name, text)
  local holder, mark = name:match("^([%w_]+)([.:])")
  return mark ~= "." or holder == "x" or public_holders[holder] or text:find("pg.", 1, true) ~= nil
end

-- Splits the lines of a comment into its text and the code after "Example: " at the start of a line.
local function split_example(lines)
  local text, code = {}, nil
  for _, line in ipairs(lines) do
    local first = not code and line:match("^Example: (.*)$")
    if first then code = {first}
    elseif code then code[#code + 1] = line
    else text[#text + 1] = line end
  end
  return text, code and table.concat(code, "\n")
end

local function add(index, file, all, following)
  local lines, example = split_example(all)
  local text = table.concat(lines, " ")
  local names, rest = read_names(text)
  if not names[1] or not is_public(names[1], text) then return end
  local entry = {name = names[1], text = table.concat(lines, "\n"), file = file, line = following, rest = rest, example = example, names = names}
  index.list[#index.list + 1] = entry
  index.places[file .. ":" .. following] = entry
  for _, name in ipairs(names) do
    index.names[name] = index.names[name] or entry
    local short = name:match("[^.:]*$")
    index.short[short] = index.short[short] or entry
  end
end

-- Returns the first sentence of a text.
local function first_sentence(text)
  local stop = text:match("()%.%s+[%a`]") or text:match("()%.$")
  return stop and text:sub(1, stop - 1) or text
end

-- Adds what the first comment of a file says about a module: "-- pg.nn: blocks and layers. …".
local function add_module(index, text)
  local name, about = text:match("^%-%- pg%.([%w_.]+): ([^\n]*)")
  if not name then return end
  local rest = text:match("^[^\n]*\n%-%- ([^\n]*)")
  index.modules[name] = first_sentence(rest and about .. " " .. rest or about)
end

local function scan(index, file)
  local block, number = nil, 0
  add_module(index, core.embedded(file) or "")
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

local function is_internal(file)
  for _, pattern in ipairs(internal_files) do if file:find(pattern) then return true end end
  return not file:find("%.lua$")
end

--- documents.index() -> {list =, names =, short =, places =, modules =}: the entries {names = (those that the comment
--- explains), name = (the first), text =, rest = (the text after the names and arguments), example =, file =, line =} in
--- the order of the sources, by each of their names ("optim.SGD", "block:to"), by the last parts of these, and by
--- "file:line" of the line after the comment; and what each module is.
function documents.index()
  if built then return built end
  built = {list = {}, names = {}, short = {}, places = {}, modules = {}}
  for _, file in ipairs(core.embedded_names()) do
    if not is_internal(file) then scan(built, file) end
  end
  return built
end

--- documents.summary(entry) -> one line of an entry or of the row of an op.
function documents.summary(entry)
  local text = (entry.doc or entry.rest:gsub("^[%s:.,]+", "")):gsub("\n", " ")
  local first = first_sentence(text)
  if #first > 30 or not first:find("^%->") then return first end
  local rest = text:sub(#first + 1):gsub("^%.%s*", "")  -- a short name of the result says too little
  return rest ~= "" and first .. ". " .. first_sentence(rest) or first
end

--- documents.cut(text, width) -> the text, or its first words and "…" if it is longer than width.
function documents.cut(text, width)
  if #text <= width then return text end
  return text:sub(1, width - 2):gsub("%s+%S*$", "") .. " …"
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

--- documents.op_parts(row) -> the arguments by position: {name =, input =, attr =, optional =, placed =}. placed: calls
--- show it at its position, since it is required or a required one follows.
function documents.op_parts(row)
  local parts, inputs, attrs = {}, {}, {}
  for _, input in ipairs(row.inputs) do inputs[input.name] = input end
  for _, attr in ipairs(row.attrs) do attrs[attr.name] = attr end
  for i, name in ipairs(row.signature) do
    local input, attr = inputs[name], attrs[name]
    parts[i] = {name = name, input = input, attr = attr,
                optional = input and input.arity == "optional" or attr and not attr.required or false}
  end
  local placed = false
  for i = #parts, 1, -1 do
    placed = placed or not parts[i].optional
    parts[i].placed = placed
  end
  return parts
end

--- documents.has_method(row) -> whether the op is also a method of tensors.
function documents.has_method(row) return not row.hidden and core.tensor_methods[row.name] == core.ops[row.name] end

return documents
