-- Generates Lua functions (chunks) that stay below LuaJIT's limits on upvalues and locals. Upvalues of other functions
-- are joined to a generated function once, before its first run: compiled code would keep using the variable that it
-- saw first.
--
-- A piece of code is {refs, text}. $1, $2 … in the text mean its refs: an object {object =}, a variable {cell =
-- the function that holds it, index = its upvalue, id = its identity}, or a table that is found by its path {path =
-- node}.
local core = ...
local inspect = core.introspect
inspect.interpreted()
local place = core.require("hybrid.place")
local chunks = {}

local ipairs, concat = ipairs, table.concat

chunks.compares, chunks.slots = 50, 50    -- the most checks, and variables, of one chunk

local Chunk = {}
Chunk.__index = Chunk

--- chunks.new() -> an empty chunk: chunk:add(refs, text) appends a line, chunk:build compiles it.
function chunks.new()
  return setmetatable({objects = {}, names = {}, cells = {}, cell_names = {}, lines = {}, slots = 0, paths = 0}, Chunk)
end

--- chunks.identity(ref) -> a key that is the same for equal refs.
function chunks.identity(ref) return ref.cell and ref.id or ref.path or ref.object end

local resolve

-- Returns refs, text of the whole path to a table. They are stored in its node, and the paths of tables below it start
-- there.
local function whole_path(node)
  local steps, from = {}, node
  local around = from.place.node
  while not from.whole and around and around.by_path and not around.place.argument do
    steps[#steps + 1] = from.place.key
    from, around = around, around.place.node
  end
  local refs, text
  if from.whole then refs, text = {unpack(from.whole.refs)}, {from.whole.text}
  else
    local first, address = place.address(from.place)
    refs, text = {unpack(first)}, {address}
  end
  for i = #steps, 1, -1 do text[#text + 1] = place.key(refs, steps[i]) end
  node.whole = {refs = refs, text = concat(text)}
  return refs, node.whole.text
end

-- Returns the variable that holds a table found by its path. It is one step from the variable of the enclosing table,
-- or the whole path if that table has no variable in this chunk. So the code grows by one step per table, however deep
-- the tables nest.
local function name_path(self, ref)
  local around, text = ref.path.place.node
  if around and self.names[around] then
    local refs = {}
    local key = place.key(refs, ref.path.place.key)
    text = self.names[around] .. resolve(self, refs, key)
  else text = resolve(self, whole_path(ref.path)) end
  self.slots, self.paths = self.slots + 1, self.paths + 1
  local name = "p" .. self.paths
  self.names[ref.path] = name
  self.lines[#self.lines + 1] = "local " .. name .. " = " .. text
  return name
end

-- Returns the name of the variable for a ref in this chunk.
function Chunk:name(ref)
  if ref.cell then
    local name = self.cell_names[ref.id]
    if not name then
      self.slots = self.slots + 1
      name = "u" .. #self.cells + 1
      self.cells[#self.cells + 1] = ref
      self.cell_names[ref.id] = name
    end
    return name
  end
  local name = self.names[ref.path or ref.object]
  if not name then
    if ref.path then return name_path(self, ref) end
    self.slots = self.slots + 1
    self.objects[#self.objects + 1] = ref.object
    name = "o" .. #self.objects
    self.names[ref.object] = name
  end
  return name
end

--- chunks.resolve(chunk, refs, text) -> the text with $1, $2 … replaced by the names of the refs in the chunk.
function resolve(chunk, refs, text)
  return (text:gsub("%$(%d+)", function(i) return chunk:name(refs[tonumber(i)]) end))
end

function Chunk:add(refs, text)
  local line = resolve(self, refs, text)   -- may append lines that define variables
  self.lines[#self.lines + 1] = line
end

-- Returns how many new variables these refs would need.
function Chunk:needs(refs)
  local n = 0
  for _, ref in ipairs(refs) do
    if not (ref.cell and self.cell_names[ref.id] or not ref.cell and self.names[ref.path or ref.object]) then n = n + 1 end
  end
  return n
end

--- chunks.names(prefix, n) -> "prefix1, prefix2 …".
local function names(prefix, n)
  local list = {}
  for i = 1, n do list[i] = prefix .. i end
  return concat(list, ", ")
end

-- Compiles the chunk to a function of `parameters`. The names in base_names are variables with the values in `base`.
function Chunk:build(parameters, base, base_names)
  local text = {}
  text[#text + 1] = "local " .. concat(base_names, ", ") .. (#self.objects > 0 and ", " .. names("o", #self.objects) or "") .. " = ...\n"
  if #self.cells > 0 then text[#text + 1] = "local " .. names("u", #self.cells) .. "\n" end
  text[#text + 1] = "return function(" .. parameters .. ")\n" .. concat(self.lines, "\n") .. "\nend"
  local chunk, problem = core.compile(concat(text), "@stdlib/guard")
  if problem == "not enough memory" then error(problem, 0) end
  if not chunk then error("perigee guard: " .. problem .. "\n" .. concat(text), 0) end
  local values, n = {}, #base_names
  for i, name in ipairs(base_names) do values[i] = base[name] end
  for i = 1, #self.objects do values[n + i] = self.objects[i] end
  local f = chunk(unpack(values, 1, n + #self.objects))
  for i = 1, 60 do
    local name = inspect.upvalue(f, i)
    if not name then break end
    local number = name:match("^u(%d+)$")
    local ref = number and self.cells[tonumber(number)]
    if ref then inspect.join(f, i, ref.cell, ref.index) end
  end
  return f
end

--- chunks.spread(items, limit) -> a list of chunks that hold the items {refs, text}, at most `limit` each.
function chunks.spread(items, limit)
  local list, count = {}, 0
  local chunk
  for _, item in ipairs(items) do
    if not chunk or count >= limit or chunk.slots + chunk:needs(item.refs) > chunks.slots then
      chunk, count = chunks.new(), 0
      list[#list + 1] = chunk
    end
    chunk:add(item.refs, item.text)
    count = count + 1
  end
  return list
end

--- chunks.join(refs, text, more, other) -> the refs of both pieces in one list, text, and other with its $ numbers
--- shifted to match.
function chunks.join(refs, text, more, other)
  local all, n = {}, #refs
  for i = 1, n do all[i] = refs[i] end
  for i = 1, #more do all[n + i] = more[i] end
  return all, text, (other:gsub("%$(%d+)", function(i) return "$" .. tonumber(i) + n end))
end
chunks.resolve, chunks.names = resolve, names
return chunks
