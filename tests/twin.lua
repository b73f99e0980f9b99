-- Helpers to compare two runs of one script, one as plain Lua and one traced.
--   local twin = require "tests.twin"
--   local restore = twin.keep()       restore() restores globals, standard tables and metatables of values
-- twin.show(seen, v, …)             a text; tables and tensors are numbered in the order in which they are first shown
-- with `seen`
local pg = require "perigee"
local twin = {}

-- Globals and standard tables ---------------------------------------------------------------------------------------

local kept_tables = {_G, string, math, table, os, io, coroutine, debug, bit, package, package.loaded, getmetatable("")}
local kept_values = {0, true, print, "", coroutine.create(print)}

local function copy(from)
  local out = {}
  for k, v in next, from do out[k] = v end
  return out
end

-- Returns a function that restores their present content.
function twin.keep()
  local contents, metatables = {}, {}
  local next_, rawset_, set, set_any = next, rawset, debug.setmetatable, debug.setmetatable
  for i, each in ipairs(kept_tables) do contents[i], metatables[i] = copy(each), debug.getmetatable(each) or false end
  local values = {}
  for i, v in ipairs(kept_values) do values[i] = debug.getmetatable(v) or false end
  local nothing = debug.getmetatable(nil)
  return function()
    for i = 1, #kept_values do set_any(kept_values[i], values[i] or nil) end
    set_any(nil, nothing)
    for i = 1, #kept_tables do
      local each, before = kept_tables[i], contents[i]
      set(each, metatables[i] or nil)
      for k in next_, copy(each) do if before[k] == nil then rawset_(each, k, nil) end end
      for k, v in next_, before do rawset_(each, k, v) end
    end
  end
end

-- Texts of values ---------------------------------------------------------------------------------------------------

local show

local function show_number(v)
  if v ~= v then return "nan" end
  if v == 0 then return 1 / v < 0 and "-0" or "0" end
  return ("%.6g"):format(v)
end

local function show_table(v, seen)
  if seen[v] then return "table " .. seen[v] end
  seen.n = seen.n + 1
  seen[v] = seen.n
  local parts = {}
  for k, each in next, v do
    local key = type(k) == "string" and k or type(k) == "number" and show_number(k) or type(k)
    parts[#parts + 1] = {key, each}
  end
  table.sort(parts, function(a, b) return a[1] < b[1] end)
  for i, p in ipairs(parts) do parts[i] = p[1] .. " = " .. show(p[2], seen) end
  return seen[v] .. "{" .. table.concat(parts, ", ") .. "}"
end

-- Tables and tensors are numbered in the order in which they are met, so that the text shows sharing.
function show(v, seen)
  if pg.testing.is_tensor(v) then
    if not seen[v] then
      seen.n = seen.n + 1
      seen[v] = seen.n
    end
    return ("tensor %d %s %s"):format(seen[v], v.dtype, show(v:totable(), {n = 0}))
  end
  local kind = type(v)
  if kind == "number" then return show_number(v) end
  if kind == "string" then return ("%q"):format(v) end
  if kind == "table" then return show_table(v, seen) end
  return kind == "boolean" and tostring(v) or kind
end

function twin.show(seen, ...)
  local parts = {}
  seen.n = seen.n or 0
  for i = 1, select("#", ...) do parts[i] = show((select(i, ...)), seen) end
  return table.concat(parts, "; ")
end

return twin
