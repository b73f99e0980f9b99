-- Generated functions that stay below the limits of upvalues and locals. Variables of others are joined to them once, before
-- their first run (compiled code keeps the variable that it first saw).
--
-- A piece of code is {refs, text}: $1, $2 … in the text are its refs: {object =}, {cell =, id =, index =} or {path = node}.
local core = ...
local inspect = core.introspect
inspect.interpreted()
local place = core.require("hybrid.place")
local chunks = {}

local ipairs, concat = ipairs, table.concat

chunks.compares, chunks.slots = 50, 50    -- of a chunk, at most

local Chunk = {}
Chunk.__index = Chunk

--- chunks.new() -> an empty chunk: chunk:add(refs, text) appends a line, chunk:build compiles it.
function chunks.new()
  return setmetatable({objects = {}, names = {}, cells = {}, cell_names = {}, lines = {}, slots = 0, paths = 0}, Chunk)
end

--- chunks.identity(ref) -> what tells it from others.
function chunks.identity(ref) return ref.cell and ref.id or ref.path or ref.object end

local resolve

-- refs, text of the whole path to a table. Kept with the table, so that the next one below takes up there.
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

-- The variable that holds a table found by its path: a step from that of the table around it, or the whole path where
-- that has none here. So a chunk is as long as one path and a step for each check, however deep the tables nest.
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

-- The name that a ref has in the chunk.
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

--- chunks.resolve(chunk, refs, text) -> the text with the names that the refs have in the chunk.
function resolve(chunk, refs, text)
  return (text:gsub("%$(%d+)", function(i) return chunk:name(refs[tonumber(i)]) end))
end

function Chunk:add(refs, text)
  local line = resolve(self, refs, text)   -- may add lines of its own
  self.lines[#self.lines + 1] = line
end

-- How many more variables these refs would need.
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

local load = loadstring or load

-- Compiles the chunk to a function of `parameters`, with `base` (a table by name) as further variables.
function Chunk:build(parameters, base, base_names)
  local text = {}
  text[#text + 1] = "local " .. concat(base_names, ", ") .. (#self.objects > 0 and ", " .. names("o", #self.objects) or "") .. " = ...\n"
  if #self.cells > 0 then text[#text + 1] = "local " .. names("u", #self.cells) .. "\n" end
  text[#text + 1] = "return function(" .. parameters .. ")\n" .. concat(self.lines, "\n") .. "\nend"
  local chunk, problem = load(concat(text), "@perigee guard")
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

--- chunks.spread(items, limit) -> chunks with at most so many of the items {refs, text} each.
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

--- chunks.join(refs, text, more, other) -> the refs of both, the two texts: the numbers in the second move.
function chunks.join(refs, text, more, other)
  local all, n = {}, #refs
  for i = 1, n do all[i] = refs[i] end
  for i = 1, #more do all[n + i] = more[i] end
  return all, text, (other:gsub("%$(%d+)", function(i) return "$" .. tonumber(i) + n end))
end
chunks.resolve, chunks.names = resolve, names
return chunks
