-- Labels of classes, which are 1..C. Scripts may give them as floating-point numbers.
local core = ...
local ops = core.ops

local integers = {int64 = true, int32 = true, uint8 = true, int8 = true}

--- class_labels(label) -> the labels in an integer dtype. A number that is not whole becomes 0, which is no class.
return function(label)
  if integers[label.dtype] then return label end
  local whole = label:to("int64")
  return ops.where(ops.eq(whole, label), whole, 0)
end
