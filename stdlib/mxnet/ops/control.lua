-- MXNet's ops: branches and loops. See define.lua.
local core = ...
local mxnet = core.require("mxnet.ops.define")

local ipairs, unpack = ipairs, unpack
local define, is_true, at_least_1d = mxnet.define, mxnet.is_true, mxnet.at_least_1d

local function control() return core.require("control") end
local function run_graph(g, values) return core.require("mxnet.graph").run(g, values) end

local function check_subgraphs(a, count)
  if #a.subgraphs ~= count then core.fail("imports", "%s: %d subgraphs (expected %d)", a.place, #a.subgraphs, count) end
  return unpack(a.subgraphs)
end

-- Reads positions from 0 to `most` - 1, as positions from 1 on.
local function positions(a, name, most)
  local list = a:list(name)
  for i, at in ipairs(list) do
    if not at or at < 0 or at >= most or at ~= math.floor(at) then a:fail(name, "positions below " .. most) end
    list[i] = at + 1
  end
  return list
end

-- Reads for each variable of a subgraph which input of the node it is.
local function locations(a, name, g)
  local list = positions(a, name, #a.inputs)
  if #list ~= #g.variables then a:fail(name, #g.variables .. " positions") end
  return list
end

local function run_at(g, at, given)
  local values = {}
  for i, variable in ipairs(g.variables) do values[variable.id] = {given[at[i]]} end
  return run_graph(g, values)
end

local function part(list, first, last)
  local out = {}
  for i = first, last do out[#out + 1] = list[i] end
  return out
end

define("_foreach", function(a)
  local body = check_subgraphs(a, 1)
  local most = #body.variables
  local data_at, state_at, rest_at = positions(a, "in_data_locs", most), positions(a, "in_state_locs", most), positions(a, "remain_locs", most)
  local n, outputs = #data_at, a:count("num_out_data", nil, #body.heads)
  local placed = {}
  for _, list in ipairs{data_at, state_at, rest_at} do for _, at in ipairs(list) do placed[at] = true end end
  if n + #state_at + #rest_at ~= #a.inputs or #placed ~= most or most ~= #a.inputs then
    a:fail("in_data_locs", "with in_state_locs and remain_locs a place for each input of the node")
  end
  return function(...)
    local given = {...}
    local outs, states = control().foreach(function(items, states)
      local values = {}
      for i, at in ipairs(data_at) do
        values[body.variables[at].id] = {at_least_1d(items[i])}
      end
      for i, at in ipairs(state_at) do values[body.variables[at].id] = {states[i]} end
      for i, at in ipairs(rest_at) do values[body.variables[at].id] = {given[n + #state_at + i]} end
      local all = run_graph(body, values)
      return part(all, 1, outputs), part(all, outputs + 1, #all)
    end, part(given, 1, n), part(given, n + 1, n + #state_at))
    local all = outs or {}
    for _, state in ipairs(states or {}) do all[#all + 1] = state end
    return unpack(all)
  end
end)

-- The list with the values at these places.
local function replaced(list, at, values)
  local out = part(list, 1, #list)
  for i, k in ipairs(at) do out[k] = values[i] end
  return out
end

define("_while_loop", function(a)
  local test, body = check_subgraphs(a, 2)
  local test_at, body_at = locations(a, "cond_input_locs", test), locations(a, "func_input_locs", body)
  local var_at = positions(a, "func_var_locs", #body.variables)
  for i, at in ipairs(var_at) do var_at[i] = body_at[at] end
  local outputs, most = a:count("num_out_data", nil, #body.heads), a:number("max_iterations")
  return function(...)
    local given, first = {...}, {}
    for i, at in ipairs(var_at) do first[i] = given[at] end
    local outs, vars = control().while_loop(
      function(...) return is_true(run_at(test, test_at, replaced(given, var_at, {...}))[1]) end,
      function(...)
        local all = run_at(body, body_at, replaced(given, var_at, {...}))
        return part(all, 1, outputs), part(all, outputs + 1, #all)
      end, first, {max_iterations = most})
    local all = outs or {}
    for _, x in ipairs(vars) do all[#all + 1] = x end
    return unpack(all)
  end
end)

define("_cond", function(a)
  local test, yes, no = check_subgraphs(a, 3)
  local test_at, yes_at, no_at = locations(a, "cond_input_locs", test), locations(a, "then_input_locs", yes), locations(a, "else_input_locs", no)
  return function(...)
    local given = {...}
    local pick = is_true(run_at(test, test_at, given)[1])
    return unpack(control().cond(pick, function() return run_at(yes, yes_at, given) end, function() return run_at(no, no_at, given) end))
  end
end)
