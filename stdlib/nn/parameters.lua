-- Sets of parameters by path, and reading and writing them as files.
local core = ...
local args = core.require("support.args")
local discover = core.require("nn.discover")
local param = core.require("param")
local patterns = core.require("support.pattern")
local hint = core.require("support.namespace").hint
local sets = {}

-- By set: its ordered entries of discover.parameters. They are not fields of the set, since its fields are paths only.
local entries_of = setmetatable({}, {__mode = "k"})

local methods = {}
local settable = {init = true, grad_req = true, lr_mult = true, wd_mult = true, differentiable = true}

local function entries_at(op, self)
  local entries = type(self) == "table" and entries_of[self]
  if entries then return entries end
  core.fail(op, "bad argument 'self' (expected the object before the dot, got %s; write params:%s(…) with a colon)", core.describe(self), op)
end

local Set = {
  __index = function(self, key)
    local method = methods[key]
    if method then return method end
    core.fail("collect_params", "no parameter '%s'%s", tostring(key), hint("collect_params", key, self, methods))
  end,
  __newindex = function(_, key)
    core.fail("collect_params", "the set of parameters takes no field '%s' (write params:set(\"%s\", value) for a field of every parameter; "
              .. "params[path]:set_data(x) sets a value)", tostring(key), settable[key] and key or "grad_req")
  end,
  __call = function() core.fail("collect_params", "a set is no iterator; write for path, p in params:iter() do … end") end,
  __tostring = function(self)
    local lines = {}
    for _, entry in ipairs(entries_of[self]) do
      local shape = param.shape(entry.tensor)
      lines[#lines + 1] = string.format("  %s: %s %s", entry.path, param.dtype(entry.tensor), shape and table.concat(shape, "x") or "?")
    end
    return "parameters {\n" .. table.concat(lines, "\n") .. "\n}"
  end,
}

--- sets.matching(op, block, pattern) -> the entries of discover.parameters whose path contains the Lua pattern, or all.
--- Raises if none does and the pattern is a regular expression.
function sets.matching(op, block, pattern)
  local all, found = discover.parameters(block), {}
  if pattern == nil then return all end
  args.string(op, "pattern", pattern)
  for _, entry in ipairs(all) do
    if patterns.matches(op, "pattern", pattern, entry.path) then found[#found + 1] = entry end
  end
  if not found[1] then
    patterns.refuse_regex(op, "pattern", pattern, "write one call for each alternative; a Trainer takes several sets as {{params = a}, {params = b}}")
  end
  return found
end

--- sets.collect(block, pattern) -> the set of the block's parameters whose path contains the Lua pattern.
function sets.collect(block, pattern)
  local set, entries = {}, {root = block}
  for i, entry in ipairs(sets.matching("collect_params", block, pattern)) do
    entries[i], set[entry.path] = entry, entry.tensor
  end
  entries_of[set] = entries
  return setmetatable(set, Set)
end

--- sets.entries(v) -> the ordered list of {path =, tensor =} of a set, or nil if v is no set.
function sets.entries(v) return type(v) == "table" and entries_of[v] or nil end

--- params:initialize([init[, {force=, device=, dtype=}]]) is block:initialize for these parameters.
function methods:initialize(init, opts)
  param.initialize_all(entries_at("initialize", self), init, opts)
  return self
end

--- params:zero_grad() sets all gradients to zeros.
function methods:zero_grad()
  for _, entry in ipairs(entries_at("zero_grad", self)) do entry.tensor:zero_grad() end
  return self
end

--- params:set(key, value) sets a field of every parameter, such as ("grad_req", "null") to freeze them.
function methods:set(key, value)
  local entries = entries_at("set", self)
  if not settable[key] then
    core.fail("set", "bad argument 'key' (expected \"grad_req\", \"lr_mult\", \"wd_mult\", \"init\" or \"differentiable\", got %s%s)",
              core.describe(key), hint(nil, key, settable):gsub("^ %((.*)%)$", "; %1"))
  end
  for _, entry in ipairs(entries) do entry.tensor[key] = value end
  return self
end

--- params:iter() -> an iterator of path, tensor in the order of the block.
function methods:iter()
  local entries, i = entries_at("iter", self), 0
  return function()
    i = i + 1
    if entries[i] then return entries[i].path, entries[i].tensor end
  end
end

--- params:len() -> the number of parameters.
function methods:len() return #entries_at("len", self) end

local function save(op, entries, path)
  local tensors = {}
  for _, entry in ipairs(entries) do
    if not core.has_value(entry.tensor) then
      core.fail(op, "parameter '%s' has no value (initialize the block and call it once)", entry.path)
    end
    tensors[entry.path] = entry.tensor:detach()
  end
  core.save_tensors(path, tensors, nil, op)
end

local load_options = {allow_missing = false, ignore_extra = false, cast_dtype = false, device = args.none}

-- Returns the names in a file that are paths to parameters other than their first: {name = parameter}, and the values
-- by parameter.
local function find_aliases(entries, values)
  local first, aliases, by_tensor, names = {}, {}, {}, {}
  for _, entry in ipairs(entries) do first[entry.path] = true end
  for name in pairs(values) do if not first[name] then names[#names + 1] = name end end
  table.sort(names)
  for _, name in ipairs(names) do
    local p = discover.at(entries.root, name)
    if p then
      aliases[name] = p
      by_tensor[p] = by_tensor[p] or values[name]
    end
  end
  return aliases, by_tensor
end

local function check_value(op, path, entry, value, opts)
  param.merge(op, entry.path, param.shape(entry.tensor), value.shape, " in " .. path)
  local dtype = param.dtype(entry.tensor)
  if value.dtype == dtype then return value end
  if not opts.cast_dtype then
    core.fail(op, "parameter '%s' is %s, %s holds %s (pass cast_dtype = true to convert)", entry.path, dtype,
              path, value.dtype)
  end
  return value:to(dtype)
end

local function check_extra(op, path, entries, values, aliases)
  local known, extra, wanted = {}, {}, {}
  for _, entry in ipairs(entries) do known[entry.path], wanted[entry.tensor] = true, true end
  for name in pairs(values) do
    if not known[name] and not wanted[aliases[name]] then extra[#extra + 1] = tostring(name) end
  end
  table.sort(extra)
  if extra[1] then
    core.fail(op, "%s holds '%s', which the block does not have%s (pass ignore_extra = true to skip)", path, extra[1],
              hint(nil, extra[1], known))
  end
end

--- sets.read(op, path) -> the tensors of a file by name, and nothing else for a safetensors file; for one of MXNet the
--- set of the names that it marks as auxiliary states, and true. The names are those behind the marks arg: and aux:.
function sets.read(op, path)
  local tensors, metadata = core.load_tensors(path, op, true)
  if metadata then return tensors, {} end
  local values, states = {}, {}
  for name, x in pairs(tensors) do
    if type(name) == "number" then core.fail(op, "%s: holds a list of arrays without names", path) end
    local mark, bare = name:match("^(a[ru][gx]):(.*)$")
    if values[bare or name] then core.fail(op, "%s: holds two arrays for '%s'", path, bare or name) end
    values[bare or name] = x
    if mark == "aux" then states[bare] = true end
  end
  return values, states, true
end

--- sets.read_paths(op, path) -> the tensors of a file by path. In MXNet's paths the children of a Sequential count from
--- 0 on.
function sets.read_paths(op, path)
  local values, _, of_mxnet = sets.read(op, path)
  if not of_mxnet then return values end
  local out = {}
  for name, x in pairs(values) do
    if name:find(".", 1, true) then
      name = ("." .. name):gsub("%.(%d+)%f[.%z]", function(n) return "." .. tonumber(n) + 1 end):sub(2)
    end
    out[name] = x
  end
  return out
end

-- Reads and checks everything before it changes a parameter, so an error leaves the block unchanged.
local function load(op, entries, path, opts)
  opts = args.options(op, opts, load_options)
  local values = sets.read_paths(op, path)
  local aliases, by_tensor = find_aliases(entries, values)
  local found = {}
  for i, entry in ipairs(entries) do
    local value = values[entry.path] or by_tensor[entry.tensor]
    if value then
      value = check_value(op, path, entry, value, opts)
      found[i] = value:to(opts.device or param.device(entry.tensor))
    elseif not opts.allow_missing then
      core.fail(op, "%s lacks the parameter '%s'%s (pass allow_missing = true to keep it)", path, entry.path,
                hint(nil, entry.path, values))
    end
  end
  if not opts.ignore_extra then check_extra(op, path, entries, values, aliases) end
  for i, entry in ipairs(entries) do if found[i] then param.give(entry.tensor, entry.path, found[i]) end end
end

--- params:save(path) writes the parameters to a safetensors file, atomically.
function methods:save(path) save("save", entries_at("save", self), args.string("save", "path", path)) end

--- params:load(path[, {allow_missing=, ignore_extra=, cast_dtype=, device=}]) reads the parameters from a safetensors
--- file or one of MXNet, see block:load_parameters. Without a device they stay on theirs.
function methods:load(path, opts)
  load("load", entries_at("load", self), args.string("load", "path", path), opts)
  return self
end

--- sets.save(block, path) writes all parameters of a block.
function sets.save(block, path) save("save_parameters", discover.parameters(block), path) end

--- sets.load(block, path, opts) reads all parameters of a block.
function sets.load(block, path, opts) load("load_parameters", discover.parameters(block), path, opts) end

return sets
