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

-- Runs the block once with a hook on every block below it. Returns rows {name, shape, parameters} in the order in which
-- the blocks returned, and the number of shared parameter elements.
local function trace(block, counted, ...)
  local rows, handles, shared = {}, {}, 0
  for _, entry in ipairs(discover.blocks(block)) do
    handles[#handles + 1] = entry.block:register_forward_hook(function(b, _, outputs)
      local name = b._name .. (entry.path ~= "" and " " .. entry.path or "")
      local own, again = own_count(b, counted)
      shared = shared + again
      rows[#rows + 1] = {name, shapes(outputs), tostring(own)}
    end)
  end
  local autograd, list, n = core.require("autograd"), {...}, select("#", ...)
  local ok, message = xpcall(autograd.pause, core.keep_traceback, function()
    autograd.predict_mode(function() core.require("hybrid").debug(block, unpack(list, 1, n)) end)  -- a graph runs no hooks of children
  end)
  for _, handle in ipairs(handles) do handle:detach() end
  if not ok and n == 0 then
    local text = tostring(message):gsub("\n.*", ""):gsub("^[^\n]-:%d+: ", "")
    core.fail("summary", "the block fails without inputs; pass those of a call: net:summary(x) (%s)", text)
  end
  if not ok then core.reraise(message) end
  return rows, shared
end

local function format_rows(rows)
  local widths = {0, 0, 0}
  for _, row in ipairs(rows) do for i = 1, 3 do widths[i] = math.max(widths[i], #row[i]) end end
  local pattern = string.format("%%-%ds  %%-%ds  %%%ds", widths[1], widths[2], widths[3])
  local lines = {}
  for i, row in ipairs(rows) do lines[i] = pattern:format(row[1], row[2], row[3]) end
  return lines, widths[1] + widths[2] + widths[3] + 4
end

--- show.summary(block, …) -> the table of Block:summary.
function show.summary(block, ...)
  local rows, shared = trace(block, {}, ...)
  table.insert(rows, 1, {"Layer", "Output shape", "Parameters"})
  local lines, width = format_rows(rows)
  local rule = ("-"):rep(width)
  table.insert(lines, 2, rule)
  local total, trainable = 0, 0
  for _, entry in ipairs(discover.parameters(block)) do
    local n = core.has_value(entry.tensor) and entry.tensor:numel() or 0
    total = total + n
    if entry.tensor.grad_req ~= "null" then trainable = trainable + n end
  end
  lines[#lines + 1] = rule
  lines[#lines + 1] = "Parameters in total: " .. total
  lines[#lines + 1] = "Trainable: " .. trainable
  lines[#lines + 1] = "Not trainable: " .. total - trainable
  lines[#lines + 1] = "Shared: " .. shared
  return table.concat(lines, "\n")
end

return show
