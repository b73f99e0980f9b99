-- pg.utils.reload: runs a script again while what it made before lives on.
local core = ...
local args = core.require("support.args")
local is_class = core.require("support.catalog").is_class

local next, rawget, rawset, type, getmetatable = next, rawget, rawset, type, getmetatable

-- Whether reload merges a value with the one before instead of replacing it: a plain table, or a class of a script.
local function merges(value)
  return type(value) == "table" and (getmetatable(value) == nil or is_class(value)) and not rawget(value, "_library")
end

-- Collects in `old_of` the table that each new table is merged into.
local function pair(old, new, old_of)
  if old == new or old_of[new] then return end
  old_of[new] = old
  for key, value in next, new do
    local before = rawget(old, key)
    if merges(value) and merges(before) and is_class(value) == is_class(before) then pair(before, value, old_of) end
  end
end

local function run(path, module)
  if type(path) ~= "string" then return path(module) end
  if not loadfile then core.fail("reload", "a sandbox has no files; give a function that returns what the script does") end
  local chunk, problem = loadfile(path)
  if not chunk then core.fail("reload", "%s", problem) end
  return chunk(module)
end

-- Runs the script with a table that reads from `module`, and stores what the script has put there only if it succeeds.
return function(module, path)
  if type(module) ~= "table" then core.arg_error("reload", "module", "a table", module) end
  if type(path) ~= "string" then args.callable("reload", "path", path) end
  local stage = setmetatable({}, {__index = module})
  run(path, stage)
  local old_of = {}
  pair(module, stage, old_of)
  for new, old in next, old_of do
    for key, value in next, new do rawset(old, key, old_of[value] or value) end
  end
  return module
end
