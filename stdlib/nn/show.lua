-- Text of blocks: the indented tree of tostring and the table of summary.
local core = ...
local discover = core.require("nn.discover")
local param = core.require("param")
local plain = core.require("support.args").plain
local show = {}

local function label(block) return block.describe and block:describe() or "" end

local add_block

-- Adds a line per child, parameter and function, in order. Functions have a position in the array part.
local function add_lines(lines, block, indent, seen)
  local functions = discover.functions(block)
  local positions = {}
  for position in pairs(functions) do positions[#positions + 1] = position end
  table.sort(positions)
  local at = 1
  local function functions_before(limit)
    while positions[at] and (not limit or positions[at] < limit) do
      lines[#lines + 1] = indent .. positions[at] .. ": function"
      at = at + 1
    end
  end
  for _, entry in ipairs(discover.entries(block)) do
    functions_before(tonumber(entry.path))
    if entry.kind == "block" then add_block(lines, entry.value, indent, indent .. entry.path .. ": ", seen)
    elseif not block.describe then
      local shape = param.shape(entry.value)
      lines[#lines + 1] = string.format("%s%s: parameter %s", indent, entry.path, shape and table.concat(shape, "x") or "?")
    end
  end
  functions_before(nil)
end

-- Adds the lines of a block. A block that was already shown with children is shown with `…` instead of them.
function add_block(lines, block, indent, head, seen)
  local at = #lines + 1
  lines[at] = head .. block._name .. "(" .. label(block)
  if not seen[block] then add_lines(lines, block, indent .. "  ", seen)
  elseif seen[block] > 0 then lines[at] = lines[at] .. "…" end
  if #lines == at then lines[at] = lines[at] .. ")"
  else lines[#lines + 1] = indent .. ")" end
  seen[block] = seen[block] or #lines - at
end

--- show.tree(block) -> the block as an indented tree.
function show.tree(block)
  discover.walk(block, function() end)  -- raises for a block that holds itself
  local lines = {}
  add_block(lines, block, "", "", {})
  return table.concat(lines, "\n")
end

local function own_count(block, counted)
  local total, shared = 0, 0
  for _, entry in ipairs(discover.entries(block)) do
    if entry.kind == "param" and core.has_value(entry.value) then
      local n = entry.value:numel()
      total = total + n
      if counted[entry.value] then shared = shared + n end
      counted[entry.value] = true
    end
  end
  return total, shared
end

local function shapes(outputs)
  if core.is_tensor(outputs) then return "{" .. table.concat(outputs.shape, ", ") .. "}" end
  if not plain(outputs) then return type(outputs) end
  local list = {}
  for _, leaf in core.require("tree").leaves(outputs) do list[#list + 1] = shapes(leaf) end
  return table.concat(list, " ")
end

-- Registers hooks on every block below the block. Each adds a row {name, shape, parameters, multiply-adds} when its block
-- returns. Multiply-adds are those of the ops that the block applied itself.
local function watch(block, handles, result)
  local open, counted = {}, {}
  for _, entry in ipairs(discover.blocks(block)) do
    handles[#handles + 1] = entry.block:register_forward_pre_hook(function() open[#open + 1] = {start = core.counted(), inside = 0} end)
    handles[#handles + 1] = entry.block:register_forward_hook(function(b, _, outputs)
      local name = b._name .. (entry.path ~= "" and " " .. entry.path or "")
      local own, again = own_count(b, counted)
      result.shared = result.shared + again
      local call = table.remove(open)
      local work = core.counted() - call.start
      local outer = open[#open]
      if outer then outer.inside = outer.inside + work else result.work = result.work + work end
      result.rows[#result.rows + 1] = {name, shapes(outputs), tostring(own), ("%.0f"):format(work - call.inside)}
    end)
  end
end

local function kept_bytes(...)
  local tensors = {}
  for _, leaf in core.require("tree").leaves{...} do
    if core.is_tensor(leaf) then tensors[#tensors + 1] = leaf end
  end
  return core.kept_bytes(tensors)
end

-- Runs the block once, recorded, in predict mode and with graphs off, because a graph runs no hooks of children.
-- Returns {rows =, shared = (parameter elements that were counted before), work = (multiply-adds), kept = (bytes that
-- the record keeps for backward)}.
local function trace(block, ...)
  local handles, result = {}, {rows = {}, shared = 0, work = 0, kept = 0}
  local autograd, list, n = core.require("autograd"), {...}, select("#", ...)
  watch(block, handles, result)
  core.start_count()
  local ok, message = xpcall(autograd.record, core.keep_traceback, function()
    result.kept = kept_bytes(core.require("hybrid").debug(block, unpack(list, 1, n)))
  end, {train = false})
  core.stop_count()
  for _, handle in ipairs(handles) do handle:detach() end
  if not ok and n == 0 then
    local text = tostring(message):gsub("\n.*", ""):gsub("^[^\n]-:%d+: ", "")
    core.fail("summary", "the block fails without inputs; pass those of a call: net:summary(x) (%s)", text)
  end
  if not ok then core.reraise(message) end
  return result
end

local columns = 4

local function format_rows(rows)
  local widths, width = {}, 2 * (columns - 1)
  for i = 1, columns do
    widths[i] = 0
    for _, row in ipairs(rows) do widths[i] = math.max(widths[i], #row[i]) end
    width = width + widths[i]
  end
  local pattern = string.format("%%-%ds  %%-%ds  %%%ds  %%%ds", unpack(widths))
  local lines = {}
  for i, row in ipairs(rows) do lines[i] = pattern:format(unpack(row)) end
  return lines, width
end

--- show.summary(block, …) -> the table of Block:summary.
function show.summary(block, ...)
  local result = trace(block, ...)
  table.insert(result.rows, 1, {"Layer", "Output shape", "Parameters", "Multiply-adds"})
  local lines, width = format_rows(result.rows)
  local rule = ("-"):rep(width)
  table.insert(lines, 2, rule)
  local total, trainable, values, gradients = 0, 0, 0, 0
  for _, entry in ipairs(discover.parameters(block)) do
    local n = core.has_value(entry.tensor) and entry.tensor:numel() or 0
    local size = n > 0 and n * tonumber(entry.tensor.dtype:match("%d+$")) / 8 or 0  -- parameters are floating
    total, values = total + n, values + size
    if entry.tensor.grad_req ~= "null" then trainable, gradients = trainable + n, gradients + size end
  end
  local bytes = core.require("support.units").bytes
  lines[#lines + 1] = rule
  lines[#lines + 1] = "Parameters in total: " .. total
  lines[#lines + 1] = "Trainable: " .. trainable
  lines[#lines + 1] = "Not trainable: " .. total - trainable
  lines[#lines + 1] = "Shared: " .. result.shared
  lines[#lines + 1] = ("Multiply-adds: %.0f"):format(result.work)
  lines[#lines + 1] = ("Memory of a training step: %s (parameters %s, gradients %s, kept for backward %s)"):format(
    bytes(values + gradients + result.kept), bytes(values), bytes(gradients), bytes(result.kept))
  return table.concat(lines, "\n")
end

return show
