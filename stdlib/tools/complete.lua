-- Completion of the text before the prompt's cursor. It reads raw fields only, so no metamethod runs, except that
-- modules of the library are loaded when one of their fields is read.
--
-- session: globals, local_of(name) -> whether the session has a local of this name, and its value; locals() -> their
-- names; files(path) -> the paths that begin so.
local core = ...
local raw_metatable = core.introspect.raw_metatable
local complete = {}

local most_steps = 50  -- metatables that are followed
local most_bytes = 2000  -- of the text that are looked at, from its end: the work grows with their square

local function meta(value, field)
  local metatable = raw_metatable(value)
  return metatable and rawget(metatable, field)
end

-- Returns the table in which absent fields of a value are looked up: its __index, or the class where that is the
-- library's function (see support/class.lua).
local function index_of(value)
  local index = meta(value, "__index")
  if type(index) == "table" then return index end
  return index ~= nil and meta(value, "_library") ~= nil and raw_metatable(value) or nil
end

-- Reads the chain of names `a.b[2].c:` that a text ends with: keys (outermost first; none for a global; nil if something
-- else is before the separator), separator ("." or ":"), head (what is before the word after it) and word.
local function read_chain(text)
  local word = text:match("[%w_]*$")
  local at = #text - #word
  local chain = {keys = {}, word = word, head = text:sub(1, at)}
  local separator = text:sub(at, at)
  if not separator:find("[.:]") or text:sub(at - 1, at) == ".." then return chain end
  chain.separator, at = separator, at - 1
  local more
  repeat
    local rest = text:sub(1, at)
    local before, inside = rest:match("^(.*)%[([^%[]*)%]$")
    local key
    if before then
      key = select(2, inside:match("^(['\"])(.*)%1$")) or #inside <= 9 and inside:match("^%d+$") and tonumber(inside)
      at, more = #before, true
    else
      key = rest:match("[%w_]+$")
      at = at - #(key or "")
      more = text:sub(at, at):find("[.:]")
      if more then at = at - 1 end
    end
    if not key then
      chain.keys = nil
      return chain
    end
    table.insert(chain.keys, 1, key)
  until not more
  return chain
end

-- Returns whether a value has the field, and its value. Fields of modules of the library are loaded.
local function step(value, key, of_library)
  for _ = 1, most_steps do
    if type(value) == "table" then
      local field = rawget(value, key)
      if field ~= nil then return true, field end
      if of_library and type(key) == "string" then return true, value[key] end
    end
    value = index_of(value)
    if value == nil then return false end
  end
  return false
end

-- Returns whether there is a value that the keys name, and the value.
local function find(session, keys)
  local value, from, of_library = session.globals, 1, false
  if type(keys[1]) == "string" then
    local found, own = session.local_of(keys[1])
    if found then value, from = own, 2 end
  end
  for i = from, #keys do
    local found
    found, value = step(value, keys[i], of_library)
    if not found then return false end
    of_library = (of_library or rawequal(value, core.pg)) and type(value) == "table" and meta(value, "__fields") ~= nil
  end
  return true, value
end

-- Adds the names that begin with the word to a list. Those that begin with _ must have been begun.
local function add(list, word, name)
  if name:sub(1, #word) ~= word or not name:find("^[%a_][%w_]*$") then return end
  if word ~= "" or name:byte() ~= 95 then list[#list + 1] = name end
end

local function add_keys(list, word, fields, functions_only)
  for key, value in next, fields do
    if type(key) == "string" and (not functions_only or type(value) == "function") then add(list, word, key) end
  end
end

-- Adds the names of the fields of a value, or of its methods.
local function add_fields(list, word, value, methods)
  core.make_ops()
  if core.is_tensor(value) then
    if methods then return add_keys(list, word, core.tensor_methods) end
    add_keys(list, word, core.builtin_getters)
    return add_keys(list, word, core.tensor_getters)
  end
  for _ = 1, most_steps do
    if type(value) == "table" then
      add_keys(list, word, value, methods)
      if not methods then  -- what a module of the library loads at the first use
        for _, fields in ipairs(meta(value, "__fields") or {}) do add_keys(list, word, fields) end
      end
    end
    value = index_of(value)
    if value == nil then return end
  end
end

local keywords = {
  "and", "break", "do", "else", "elseif", "end", "false", "for", "function", "goto", "if", "in", "local", "nil", "not", "or",
  "repeat", "return", "then", "true", "until", "while",
}

local function names_of(session, chain)
  local list, word = {}, chain.word
  if not chain.keys then return list end
  local found, value = find(session, chain.keys)
  if found then add_fields(list, word, value, chain.separator == ":") end
  if not chain.keys[1] then
    for _, name in ipairs(session.locals()) do add(list, word, name) end
    if word ~= "" then for _, name in ipairs(keywords) do add(list, word, name) end end
  end
  return list
end

-- Returns the string keys of the table that the head names, that begin with the word.
local function keys_of(session, head, word)
  local list, chain = {}, read_chain(head .. ".")
  if not chain.keys or not chain.keys[1] then return list end
  local found, value = find(session, chain.keys)
  for key in next, found and type(value) == "table" and value or {} do
    if type(key) == "string" and key:sub(1, #word) == word then list[#list + 1] = key end
  end
  return list
end

-- Returns the place of the quote of a string without its end, or nil, and those of open brackets, outermost first.
local function scan(text)
  local quote, brackets, at = nil, {}, 1
  while at <= #text do
    local c = text:sub(at, at)
    if quote then
      if c == "\\" then at = at + 1 elseif c == text:sub(quote, quote) then quote = nil end
    elseif c:find("['\"]") then quote = at
    elseif c:find("[({%[]") then brackets[#brackets + 1] = at
    elseif c:find("[)}%]]") then brackets[#brackets] = nil end
    at = at + 1
  end
  return quote, brackets
end

-- Asks tools.arguments for `what` of the function that a bracket calls. `{` calls a name, or is in the arguments of a
-- call.
local function ask(session, what, text, brackets, level)
  local place = brackets[level]
  local head = text:sub(1, place - 1):match("^(.-)%s*$")
  if not head:find("[%w_]$") then
    local outer = brackets[level - 1]
    if not outer or text:sub(place, place) ~= "{" or text:sub(outer, outer) ~= "(" then return nil end
    return ask(session, what, text, brackets, level - 1)
  end
  local chain = read_chain(head)
  if not chain.keys then return nil end
  local found, value = find(session, chain.keys)
  if not found then return nil end
  local of = core.require("tools.arguments")[what]
  if chain.separator == ":" and core.is_tensor(value) then return of(value, chain.word) end
  chain.keys[#chain.keys + 1] = chain.word
  found, value = find(session, chain.keys)
  if found then return of(value) end
end

-- Returns the items that begin with the word, with `behind` after each.
local function beginning(items, word, behind)
  local list = {}
  for _, item in ipairs(items) do if item:sub(1, #word) == word then list[#list + 1] = item .. behind end end
  return list
end

-- Returns where the path begins that a command such as `:load` or the shell gets, or nil.
local function path_start(text)
  local first, last = text:find("[^ \t]"), text:match(".*()[ \t!]")
  if not first or not last or last < first then return nil end
  local command = text:sub(first, first + 5)
  local takes_path = command:sub(1, 1) == "!" or command == ":load " or command == ":save " or command == ":edit "
  return takes_path and last + 1 or nil
end

local function search(session, text)
  local first = text:find("[^ \t]")
  if first and text:sub(first, first) == ":" and not text:find(" ", first, true) then
    return first - 1, beginning(core.require("tools.prompt").names(), text:sub(first), " ")
  end
  local path = path_start(text)
  if path then return path - 1, session.files(text:sub(path)) end
  local quote, brackets = scan(text)
  if quote then
    local word = text:sub(quote + 1)
    if text:sub(quote - 1, quote - 1) == "[" then return quote, keys_of(session, text:sub(1, quote - 2), word) end
    return quote, session.files(word)
  end
  local chain, level = read_chain(text), #brackets
  local list = {}
  if not chain.separator and level > 0 and text:sub(brackets[level], brackets[level]) == "{" and chain.head:find("[{,]%s*$") then
    list = beginning(ask(session, "options", text, brackets, level) or {}, chain.word, " = ")
  end
  return #chain.head, list[1] and list or names_of(session, chain)
end

--- complete.search(session, text) -> the length of the text before the word that it ends with, and what may stand in
--- place of the word: a chain of names, the keys of options in `f(x, {…`, the keys of a table in `t["…`, the path of a
--- file in another string, or a command `:…`.
function complete.search(session, text)
  local skipped = math.max(0, #text - most_bytes)
  local length, list = search(session, text:sub(skipped + 1))
  return skipped + length, list
end

--- complete.signature(session, text) -> the arguments of the innermost call that the text has opened, as one line, or
--- nil.
function complete.signature(session, text)
  text = text:sub(-most_bytes)
  local _, brackets = scan(text)
  for level = #brackets, 1, -1 do
    local line = ask(session, "signature", text, brackets, level)
    if line then return line end
  end
end

return complete
