-- The forward of a block with other values in some of its fields, for blocks that wrap it.
local core = ...
local args = core.require("support.args")
local discover = core.require("nn.discover")
local param = core.require("param")
local view = {}

--- view.check(op, block) -> block, which must hold its parameter `weight`.
function view.check(op, block)
  if not discover.is_block(block) or not param.is(rawget(block, "weight")) then
    core.arg_error(op, "block", "a block with a parameter weight, such as nn.Dense(10)", block)
  end
  return block
end

--- view.call(block, fields, …) -> what the block's forward returns with `fields` instead of its own. The block is unchanged.
function view.call(block, fields, ...)
  return block.forward(setmetatable(fields, {__index = block}), ...)
end

--- view.infer(block, …) infers the unknown sizes of a block whose forward is run by view.call.
function view.infer(block, ...)
  if block.infer_shape then block:infer_shape(...) end
end

--- view.describe(block, text) -> the description of a block that wraps this one. It begins with that of the block, from
--- which messages take the number of features.
function view.describe(block, text)
  local own = block.describe and block:describe() or ""
  return own ~= "" and own .. ", " .. text or text
end

--- view.size(block, axis) -> the size of its weight along axis, 0 while any size is unknown: a parameter of that size
--- then gets its value after the weight.
function view.size(block, axis)
  return param.is_complete(block.weight) and param.shape(block.weight)[axis] or 0
end

--- view.axis(op, block, axis) -> axis, a dim of the weight.
function view.axis(op, block, axis)
  local rank = #param.shape(block.weight)
  if args.count(op, "axis", axis, 1) > rank then core.arg_error(op, "axis", "a dim of a weight of " .. rank .. " dims", axis) end
  return axis
end

return view
