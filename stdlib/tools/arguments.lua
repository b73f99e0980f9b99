-- The arguments of a function or class: its signature in one line, and the names of its options.
local core = ...
local catalog, documents = core.require("support.catalog"), core.require("support.documents")
local arguments = {}

-- Returns the public name of a method of tensors, or of a value of the library; nil for others.
local function public_name(value, method_of_tensor)
  if method_of_tensor then return "x:" .. method_of_tensor end
  local item = catalog.item(value)
  if item then return item.name, item.class end
end

local function is_of_script(value)
  local info = type(value) == "function" and debug.getinfo(value, "S")
  return info and info.what ~= "C" and not info.source:find("^@stdlib/")
end

-- Returns the start of an entry's text up to the end of its arguments, on one line.
local function head(entry)
  local text = entry.text:gsub("%s+", " ")
  local stop = text:match("^[^({]*%b()()") or text:match("^[^({]*%b{}()")
  return stop and text:sub(1, stop - 1) or nil
end

local function of_op(row, method)
  local placed, options = {}, {}
  for i, part in ipairs(documents.op_parts(row)) do
    if not (method and i == 1) then
      if part.placed then placed[#placed + 1] = part.name else options[#options + 1] = part.name .. " =" end
    end
  end
  for _, attr in ipairs(row.attrs) do if attr.option then options[#options + 1] = attr.name .. " =" end end
  if options[1] then placed[#placed + 1] = "{" .. table.concat(options, ", ") .. "}" end
  return row.name .. "(" .. table.concat(placed, ", ") .. ")"
end

local function of_script(f)
  local names = {}
  for i = 1, 250 do
    local name = debug.getlocal(f, i)
    if not name then break end
    names[i] = name
  end
  if debug.getinfo(f, "u").isvararg then names[#names + 1] = "..." end
  return "function(" .. table.concat(names, ", ") .. ")"
end

--- arguments.signature(value, method) -> one line that shows the arguments of a function or class, or nil. method is the
--- name of a method of tensors, and value is then of no use.
function arguments.signature(value, method)
  if is_of_script(value) then return of_script(value) end
  local name, class = public_name(value, method)
  if not name then return nil end
  local row = catalog.op(name) or catalog.in_place(name)
  if row then return of_op(row, method) end
  local entry = catalog.entry(name, value, class)
  return entry and head(entry)
end

--- arguments.options(value, method) -> the names that the last table of a call may have, sorted.
function arguments.options(value, method)
  local name, class = public_name(value, method)
  local set, names = {}, {}
  if not name then return names end
  local row = catalog.op(name) or catalog.in_place(name)
  if row then
    for _, attr in ipairs(row.attrs) do set[attr.kind == "random" and "generator" or attr.name] = true end
    for i, part in ipairs(documents.op_parts(row)) do if i > 1 or not part.input then set[part.name] = true end end
  else
    local entry = catalog.entry(name, value, class)
    for table_text in (entry and entry.text or ""):gmatch("%b{}") do
      for key in table_text:gmatch("([%a_][%w_]*)%s*=") do set[key] = true end
    end
  end
  for key in pairs(set) do names[#names + 1] = key end
  table.sort(names)
  return names
end

return arguments
