-- pg.save and pg.load: tensors in files.
local core = ...
local args = core.require("support.args")
local files = {}

--- pg.save(path, tensors) writes a table of tensors by name to a .safetensors file, or one tensor to a .npy file,
--- atomically. Whole numbers as keys become names: the list {a, b} loads as {["1"] = a, ["2"] = b}.
function files.save(path, tensors)
  if type(path) ~= "string" then
    core.fail("save", "bad argument 'path' (expected a string, got %s; the order is pg.save(path, tensors))", core.describe(path))
  end
  if type(tensors) == "table" then
    local named = {}
    for key, x in pairs(tensors) do
      local whole = type(key) == "number" and key % 1 == 0
      if type(key) ~= "string" and not whole then core.arg_error("save", "tensors", "names or whole numbers as keys", key) end
      local name = whole and ("%.0f"):format(key) or key
      if not core.is_tensor(x) then core.arg_error("save", "tensors['" .. name .. "']", "a tensor", x) end
      if named[name] then core.arg_error("save", "tensors", "each name once", name) end
      named[name] = x
    end
    tensors = named
  elseif not core.is_tensor(tensors) then core.arg_error("save", "tensors", "a table of tensors", tensors) end
  core.save_tensors(path, tensors)
end

--- pg.load(path) -> the tensors of a .safetensors or .npz file by name, or the tensor of a .npy file. Files in an .npz
--- archive that are not arrays are left out. Of a .params file of MXNet the arrays by name, or as a list if they have no
--- names; sparse ones become dense. NumPy's int16 and uint16 become int32, uint32 and uint64 int64.
function files.load(path)
  local tensors = core.load_tensors(args.string("load", "path", path), "load")
  return tensors
end

return files
