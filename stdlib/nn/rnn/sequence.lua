-- Sequences of steps: tensors (time, batch, …), where some sequences of the batch may end early. This file reads no
-- size, so one graph serves any number of steps and any batch size.
local core = ...
local args = core.require("support.args")
local tree = core.require("tree")
local ops = core.ops
local sequence = {}

local control

--- sequence.foreach is pg.foreach.
function sequence.foreach(...)
  control = control or core.require("control")
  return control.foreach(...)
end

-- Returns zeros of shape (batch), or (time, batch) if `time` is true. They depend on the shape of x only, not on its
-- values.
local function blank(x, time)
  x = x:detach()
  local dims = {}
  for d = time and 3 or 2, x:dim() do
    if d > 2 then dims[#dims + 1] = d end
  end
  if not time then
    table.insert(dims, 1, 1)
    return ops.sum(ops.narrow(x, 1, 1, 0), dims)
  end
  return ops.sum(ops.narrow(x, 3, 1, 0), dims)
end

--- sequence.zeros(x, weight, size, …) -> zeros of shape (batch, size, …) on the device of x (time, batch, …), in the
--- dtype of a product of x and weight. weight may be nil.
function sequence.zeros(x, weight, ...)
  local flat, full = {-1}, {-1}
  for i = 1, select("#", ...) do
    flat[i + 1] = 1
    full[i + 1] = (select(i, ...))
  end
  local zeros = ops.expand(ops.reshape(blank(x), flat), full)
  if not weight or weight.dtype == x.dtype then return zeros end
  return zeros + ops.zeros({}, {dtype = weight.dtype, device = x.device})
end

--- sequence.zeros_like(x, row) -> zeros of shape (batch, size of row). A graph of it does not depend on that size.
function sequence.zeros_like(x, row) return ops.unsqueeze(blank(x), 2) + ops.zeros_like(row:detach()) end

--- sequence.reverse(x, lengths) -> x (time, batch, …) with its steps in reverse order. With lengths only the first
--- lengths[i] steps of sequence i are reversed.
function sequence.reverse(x, lengths)
  if lengths then return ops.sequence_reverse(x, lengths) end
  return ops.flip(x, 1)
end

--- sequence.mask(x, lengths) -> x with zeros after the end of each sequence. Without lengths it returns x.
function sequence.mask(x, lengths)
  if lengths then return ops.sequence_mask(x, lengths) end
  return x
end

-- Returns new for the sequences that have not ended and old for the others. going has shape (batch, 1).
local function keep(going, new, old)
  local rank = new:dim()
  if rank ~= 2 then
    local shape = {-1}
    for i = 2, rank do shape[i] = 1 end
    going = ops.reshape(going, shape)
  end
  return ops.where(going, new, old)
end

--- sequence.scan(body, x, states, lengths) -> outs, states: runs body(item, states) for each step of x (time, batch,
--- …). With lengths (batch) outs are zero after the end of each sequence, and its final states are those after its last
--- step.
function sequence.scan(body, x, states, lengths)
  if not lengths then return sequence.foreach(body, x, states) end
  local going = ops.unsqueeze(ops.gt(ops.sequence_mask(blank(x, true) + 1, lengths), 0), 3)
  local outs, finals = sequence.foreach(function(item, old)
    local out, new = body(item[1], old)
    return out, tree.map(function(a, b) return keep(item[2], a, b) end, new, old)
  end, {x, going}, states)
  return ops.sequence_mask(outs, lengths), finals
end

--- sequence.check_lengths(op, name, lengths) -> lengths as an int64 tensor if it is a list, else lengths itself.
function sequence.check_lengths(op, name, lengths)
  if lengths == nil or core.is_tensor(lengths) then return lengths end
  if not args.plain(lengths) then core.arg_error(op, name, "a tensor or a list with the number of steps of each sequence", lengths) end
  return ops.tensor(lengths, {dtype = "int64"})
end

return sequence
