-- The parameters that a Trainer or an average is given.
local core = ...
local args = core.require("support.args")
local discover = core.require("nn.discover")
local sets = core.require("nn.parameters")
local is_param = core.require("param").is

local function place(path) return tonumber(path) and "params[" .. path .. "]" or "params['" .. path .. "']" end

local function add(op, list, seen, path, p)
  if not core.is_tensor(p) then core.arg_error(op, place(path), "a parameter", p) end
  if not is_param(p) and not core.grad_state(p) then
    core.arg_error(op, place(path), "a parameter, or a tensor after x:attach_grad()", p)
  end
  if seen[p] then return end
  seen[p] = true
  list[#list + 1] = {path = path, tensor = p, fields = is_param(p) and core.extra(p)}
end

local function some(op, list)
  if list[1] then return list end
  core.fail(op, "bad argument 'params' (expected at least one parameter, got none; print(net:collect_params()) lists those of a net)")
end

-- Returns a list of {path =, tensor =, fields = (the options of a parameter)} from a set of collect_params, a block, a list
-- of tensors, or a table of tensors by name.
local function read(op, params)
  local list, seen = {}, {}
  if discover.is_block(params) then params = params:collect_params() end
  if type(params) ~= "table" or rawget(params, "_is_class") then
    core.arg_error(op, "params", "a block or a set such as net:collect_params()", params)
  end
  local entries = sets.entries(params)
  if entries then
    for _, entry in ipairs(entries) do add(op, list, seen, entry.path, entry.tensor) end
    return list
  end
  for i, p in ipairs(params) do add(op, list, seen, tostring(i), p) end
  local names = {}
  for key in pairs(params) do if type(key) == "string" then names[#names + 1] = key end end
  table.sort(names)
  for _, name in ipairs(names) do add(op, list, seen, name, params[name]) end
  return list
end
core.introspect.jit_off(read)  -- LuaJIT can compile this pairs loop into one that never ends

local group_spec = {params = args.required, learning_rate = args.none, wd = args.none, lr_mult = 1, wd_mult = 1}

local function is_group(value)
  return args.plain(value) and not core.is_tensor(value) and not discover.is_block(value) and rawget(value, "params") ~= nil
end

local function read_group(op, i, given)
  if not is_group(given) then core.arg_error(op, "params[" .. i .. "]", "a group such as {params = net.body, wd = 0}", given) end
  if rawget(given, "learning_rate") ~= nil and rawget(given, "lr_mult") ~= nil then
    core.arg_error(op, "params[" .. i .. "]", "learning_rate or lr_mult, not both", given)
  end
  local group = args.options(op, given, group_spec)
  for key, value in next, group do if key ~= "params" then args.number(op, key, value, 0) end end
  return group
end

-- Returns the list of entries, and the list of groups if params is one. Entries of groups have a group, and paths that begin
-- with its number.
local function read_groups(op, params)
  if not (args.plain(params) and is_group(params[1])) then return some(op, read(op, params)), nil end
  local list, groups, seen = {}, {}, {}
  for i, given in ipairs(params) do
    groups[i] = read_group(op, i, given)
    for _, entry in ipairs(read(op, given.params)) do
      if seen[entry.tensor] then core.fail(op, "parameter '%s' of group %d is in group %d too", entry.path, i, seen[entry.tensor]) end
      seen[entry.tensor] = i
      entry.path, entry.group = i .. "." .. entry.path, groups[i]
      list[#list + 1] = entry
    end
  end
  return some(op, list), groups
end

-- Makes the list of groups with one group that holds all entries.
local function one_group(entries)
  local group = {params = {}, lr_mult = 1, wd_mult = 1}
  for i, entry in ipairs(entries) do group.params[i], entry.group = entry.tensor, group end
  return {group}
end

return {one_group = one_group, read = function(op, params) return some(op, read(op, params)) end, read_groups = read_groups}
