-- Looks up what to write instead of a name that does not exist, in the table hints.lua.
local core = ...
local hint = {}

-- The lines of a kind by name. Case matters only where two names differ in nothing else.
local function read(lines, into)
  for line in lines:gmatch("[^\n]+") do
    local left, text = line:match("^%s*([^:]+):%s*(.-)%s*$")
    for name in left:gmatch("%S+") do
      into[name] = into[name] or {}
      table.insert(into[name], text)
    end
  end
end

local kinds = {}
for _, entry in ipairs(core.require("support.hints")) do
  for kind in entry[1]:gmatch("%S+") do
    kinds[kind] = kinds[kind] or {}
    read(entry[2], kinds[kind])
  end
end

local lowered = {}
for kind, names in pairs(kinds) do
  local sorted = {}
  for name in pairs(names) do sorted[#sorted + 1] = name end
  table.sort(sorted)
  lowered[kind] = {}
  for _, name in ipairs(sorted) do lowered[kind][name:lower()] = lowered[kind][name:lower()] or names[name] end
end

local function option_hint(name, op, known)
  for _, text in ipairs(kinds.option[name] or {}) do
    local needed, instead = text:match("^(%S+) = (.*)$")
    if needed and known[needed] then return instead end
    for wanted in (needed and "" or text):gmatch("%S+") do
      if known[wanted] and wanted ~= name then return ("write %s: %s{%s = …}"):format(wanted, op, wanted) end
    end
  end
  if name == "inplace" then return ("%s_ is the op that works in place"):format(op) end
  if name == "out" then return "an op has no out: write y:copy_(result)" end
end

-- "code -- reason" as "write code; reason".
local function sentence(text)
  local code, reason = text:match("^(.-)%s*%-%-%s*(.*)$")
  if not code then return "write " .. text end
  return code == "" and reason or "write " .. code .. "; " .. reason
end

--- hint.find(kind, name[, op, known]) -> what to write instead of the name, or nil. For options, op is the function and
--- known the set of its options.
function hint.find(kind, name, op, known)
  if type(name) ~= "string" or not kinds[kind] then return nil end
  if kind == "option" then return option_hint(name, op, known or {}) end
  local found = kinds[kind][name] or lowered[kind][name:lower()]
  return found and sentence((found[1]:gsub("NAME", name)))
end

--- hint.of_size: what to write so that a graph takes other sizes than those of the call that it was made from.
hint.of_size = "write shapes without the number, as in reshape{0, -1} instead of x:size(1), "
  .. "zeros_like(x:select(2, 1)):unsqueeze(2):expand(-1, 5) instead of zeros(x:size(1), 5), "
  .. "and ones_like(v):cumsum(1) instead of range(1, v:size(1))"

--- hint.lines() -> the texts by kind and name.
function hint.lines() return kinds end

return hint
