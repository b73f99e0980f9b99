-- Blocks as the prompt shows them: a tree with the shapes and counts of parameters.
local core = ...
local discover = core.require("nn.discover")
local param = core.require("param")
local width = core.require("support.units").width
local tree = {}

local function grouped(n)
  local text = ("%d"):format(n):reverse():gsub("(%d%d%d)", "%1 "):reverse()
  return (text:gsub("^ ", ""))
end

local function label(block)
  return block._name .. "(" .. (block.describe and block:describe() or "") .. ")"
end

-- Returns the parameters of the block itself as text, and the number of elements of all below it that are not in `seen`.
local function own(block, seen)
  local parts, count = {}, 0
  for _, entry in ipairs(discover.entries(block)) do
    if entry.kind == "param" then
      local shape = param.shape(entry.value)
      parts[#parts + 1] = entry.path .. " " .. (shape and (#shape > 0 and table.concat(shape, "x"):gsub("%f[%d]0%f[%D]", "?") or "0-dim") or "?")
      if not seen[entry.value] and core.has_value(entry.value) then count = count + entry.value:numel() end
      seen[entry.value] = true
    end
  end
  return table.concat(parts, ", "), count
end

-- Adds {text, count, parameters} for the block and what is below it. Returns the number of elements.
local function add(rows, block, head, indent, seen)
  local row = {head .. label(block)}
  rows[#rows + 1] = row
  if seen[block] then
    row[1], row[2], row[3] = row[1] .. " …", 0, "shown above"
    return 0
  end
  seen[block] = true
  local total
  row[3], total = own(block, seen)
  local children = {}
  for _, entry in ipairs(discover.entries(block)) do if entry.kind == "block" then children[#children + 1] = entry end end
  for i, entry in ipairs(children) do
    local last = i == #children
    total = total + add(rows, entry.value, indent .. (last and "└ " or "├ ") .. entry.path .. ": ", indent .. (last and "  " or "│ "), seen)
  end
  row[2] = total
  return total
end

--- tree.text(value) -> a block with its children, one line each: what it is, how many parameter elements it has with those
--- below it, and its own parameters with their shapes. Returns nil for other values.
function tree.text(value)
  if not discover.is_block(value) then return nil end
  discover.walk(value, function() end)  -- raises for a block that holds itself
  local rows, lines, widest, most = {}, {}, 0, 0
  add(rows, value, "", "", {})
  for _, row in ipairs(rows) do
    row[2] = grouped(row[2])
    widest, most = math.max(widest, width(row[1])), math.max(most, #row[2])
  end
  for i, row in ipairs(rows) do
    lines[i] = (row[1] .. (" "):rep(widest - width(row[1]) + 2) .. (" "):rep(most - #row[2]) .. row[2] .. "  " .. row[3]):gsub("%s+$", "")
  end
  local trainable = 0
  for _, entry in ipairs(discover.parameters(value)) do
    if core.has_value(entry.tensor) and entry.tensor.grad_req ~= "null" then trainable = trainable + entry.tensor:numel() end
  end
  lines[#lines + 1] = ("%s trainable parameters"):format(grouped(trainable)) .. (value._active and ", hybridized" or "")
  return table.concat(lines, "\n")
end

return tree
