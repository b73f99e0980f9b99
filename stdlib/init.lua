-- The library's table: modules load when first used, ops come from the registry.
local core = ...

--- core.fail(op, format, …) raises `file:line: op: text` with the position of the script.
core.fail = core.fail or function(op, format, ...)
  core.raise(op, select("#", ...) > 0 and format:format(...) or format)
end

local args = core.require("support.args")
local hint = core.require("support.namespace").hint
local ops = core.ops
local pg = {}
core.pg = pg

local modules = {
  nn = "nn", loss = "loss", optim = "optim", init = "initializer", data = "data", metric = "metric", utils = "utils",
  tree = "tree", autograd = "autograd",
}
local parameter_functions = {param = true, constant = true}

-- Functions of the core that scripts see as they are.
local exposed = {
  Generator = true, manual_seed = true, is_recording = true, is_training = true, keep = true, memory = true,
  set_num_threads = true, get_num_threads = true, devices = true, synchronize = true, version = true, testing = true,
}

--- pg.save(path, tensors) writes a table of tensors by name to a .safetensors file, or one tensor to a .npy file,
--- atomically.
function pg.save(path, tensors)
  args.string("save", "path", path)
  if type(tensors) == "table" then
    local named = {}
    for key, x in pairs(tensors) do
      if not core.is_tensor(x) then core.arg_error("save", "tensors['" .. tostring(key) .. "']", "a tensor", x) end
      named[tostring(key)] = x
    end
    tensors = named
  elseif not core.is_tensor(tensors) then core.arg_error("save", "tensors", "a table of tensors", tensors) end
  core.save_tensors(path, tensors)
end

--- pg.load(path) -> the tensors of a .safetensors file by name, or the tensor of a .npy file.
function pg.load(path) return core.load_tensors(args.string("load", "path", path)) end

local function lookup(key)
  if modules[key] then return core.require(modules[key]) end
  if parameter_functions[key] then return core.require("param")[key] end
  if exposed[key] then return core[key] end
  local op = rawget(ops, key)
  if op ~= nil then return op end
  return core.require("autograd")[key]
end

return setmetatable(pg, {
  __index = function(self, key)
    local value = lookup(key)
    if value == nil then core.fail("pg", "unknown field '%s'%s", tostring(key), hint(key, ops, self, modules, parameter_functions, exposed)) end
    rawset(self, key, value)
    return value
  end,
})
