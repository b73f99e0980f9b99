-- Cells made of cells: several in a row, or two that read the sequence from both ends.
local core = ...
local args = core.require("support.args")
local cells = core.require("nn.rnn.cell")
local sequence = core.require("nn.rnn.sequence")
local ops = core.ops
local containers = {}

local function check_cell(op, name, cell)
  if not cells.is(cell) then core.arg_error(op, name, "a recurrent cell", cell) end
  return cell
end
containers.check_cell = check_cell

local function append(list, more)
  for _, v in ipairs(more) do list[#list + 1] = v end
  return list
end

-- Joins the lists that the children return from `method` (state_info, begin_state or _first_states).
local function gather(children, method, ...)
  local list = {}
  for _, child in ipairs(children) do append(list, child[method](child, ...)) end
  return list
end

-- Splits the list of states among the children. Returns an empty table if states is nil.
local function share(cell, children, states)
  local parts, at = {}, 0
  if states == nil then return parts end
  states = cells.states(cell, states, #cell:state_info(0))
  for i, child in ipairs(children) do
    local n = #child:state_info(0)
    parts[i] = {unpack(states, at + 1, at + n)}
    at = at + n
  end
  return parts
end

local function define_sequential(parent, name)
  local class = parent:extend(name)
  containers[name] = class

  --- nn.rnn.SequentialRNNCell{a, b, …} and nn.rnn.HybridSequentialRNNCell{a, b, …}: cells in a row, each fed with the
  --- output of the one before it. The states of all cells are one list. `cell[i]` is a child, `#cell` their number.
  --- Example: local rnn = pg.nn.rnn
  --- local cell = rnn.SequentialRNNCell{rnn.GRUCell(3), rnn.DropoutCell(0.2), rnn.GRUCell(3)}:initialize()
  --- local y, states = cell(pg.ones(2, 4), cell:begin_state(2))
  --- return y.shape, #states
  function class:init(...)
    local list = {...}
    if select("#", ...) == 1 and args.plain(list[1]) then list = list[1] end
    self:add(unpack(list, 1, table.maxn(list)))
  end

  function class:add(...)
    for i = 1, select("#", ...) do check_cell(name, "children[" .. i .. "]", (select(i, ...))) end
    for i = 1, select("#", ...) do rawset(self, #self + 1, (select(i, ...))) end
    return self
  end

  function class:state_info(batch_size) return gather(self, "state_info", batch_size) end

  function class:begin_state(...) return gather(self, "begin_state", ...) end

  function class:forward(x, states)
    local parts = share(self, self, states or {})
    local all = {}
    for i, child in ipairs(self) do
      local new
      x, new = child(x, parts[i])
      append(all, new)
    end
    return x, all
  end

  function class:_scan(x, states, lengths)
    local parts, all = share(self, self, states), {}
    for i, child in ipairs(self) do
      local new
      x, new = cells.unroll(child, x, parts[i], lengths)
      append(all, new)
    end
    return x, all
  end

  function class:_first_states(x) return gather(self, "_first_states", x) end

  function class:_output_like(x, states)
    local at, found = 0, nil
    for _, child in ipairs(self) do
      local n = #child:state_info(0)
      if n > 0 then found = states[at + 1] end
      at = at + n
    end
    return found or ops.select(x, 1, 1)
  end
end

define_sequential(cells.RecurrentCell, "SequentialRNNCell")
define_sequential(cells.HybridRecurrentCell, "HybridSequentialRNNCell")

--- nn.rnn.BidirectionalCell(l_cell, r_cell): l_cell reads the sequence from its start, r_cell from its end. Their
--- outputs are concatenated along the features, or the channels of convolutional cells. The cell supports only unroll.
--- With valid_length r_cell starts at the last valid step of each sequence.
--- Example: local rnn = pg.nn.rnn
--- local cell = rnn.BidirectionalCell(rnn.GRUCell(3), rnn.GRUCell(3)):initialize()
--- local y = cell:unroll(5, pg.ones(2, 5, 4))
--- return y.shape
local BidirectionalCell = cells.HybridRecurrentCell:extend("BidirectionalCell")
containers.BidirectionalCell = BidirectionalCell

function BidirectionalCell:init(...)
  local o = args.read("BidirectionalCell", {"l_cell", "r_cell"}, {l_cell = args.required, r_cell = args.required}, ...)
  self.l_cell = check_cell("BidirectionalCell", "l_cell", o.l_cell)
  self.r_cell = check_cell("BidirectionalCell", "r_cell", o.r_cell)
end

local function pair(cell) return {cell.l_cell, cell.r_cell} end

function BidirectionalCell:state_info(batch_size) return gather(pair(self), "state_info", batch_size) end

function BidirectionalCell:begin_state(...) return gather(pair(self), "begin_state", ...) end

function BidirectionalCell:_first_states(x) return gather(pair(self), "_first_states", x) end

function BidirectionalCell:forward()
  core.fail(self._name, "the cell reads sequences from both ends and cannot run single steps (use cell:unroll(length, inputs))")
end

function BidirectionalCell:_scan(x, states, lengths)
  local parts = share(self, pair(self), states)
  local outs, l_states = cells.unroll(self.l_cell, x, parts[1], lengths)
  local back, r_states = cells.unroll(self.r_cell, sequence.reverse(x, lengths), parts[2], lengths)
  return ops.cat({outs, sequence.reverse(back, lengths)}, 3), append(append({}, l_states), r_states)
end

return containers
