-- Methods of tensors that are written in Lua.
local core = ...
local methods = core.tensor_methods

--- x:iter() -> an iterator over x[1], x[2], … to the last: for row in x:iter() do … end.
function methods.iter(x)
  if not core.is_tensor(x) then core.arg_error("iter", "x", "a tensor", x) end
  if x:dim() == 0 then core.fail("iter", "a 0-dim tensor has no rows; x:item() reads its value") end
  local i, n = 0, x:size(1)
  return function()
    i = i + 1
    if i <= n then return x[i] end
  end
end
