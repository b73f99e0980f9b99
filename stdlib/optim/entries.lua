-- The parameters that a Trainer or an average is given.
local core = ...
local discover = core.require("nn.discover")
local sets = core.require("nn.parameters")
local is_param = core.require("param").is

local function add(op, list, seen, path, p)
  if not core.is_tensor(p) then core.arg_error(op, "params['" .. path .. "']", "a parameter", p) end
  if not is_param(p) and not core.grad_state(p) then
    core.arg_error(op, "params['" .. path .. "']", "a parameter, or a tensor after x:attach_grad()", p)
  end
  if seen[p] then return end
  seen[p] = true
  list[#list + 1] = {path = path, tensor = p, fields = is_param(p) and core.extra(p)}
end

-- Returns a list of {path =, tensor =, fields = (the options of a parameter)} from a set of collect_params, a block, a list
-- of tensors, or a table of tensors by name.
return function(op, params)
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
