-- Cells that change another cell, or act between cells: dropout, zoneout, residual connections.
local core = ...
local args = core.require("support.args")
local cells = core.require("nn.rnn.cell")
local check_cell = core.require("nn.rnn.container").check_cell
local Dropout = core.require("nn.basic").Dropout
local sequence = core.require("nn.rnn.sequence")
local tree = core.require("tree")
local ops = core.ops
local modifiers = {}

--- nn.rnn.DropoutCell(rate, {axes =}): dropout between cells. It has no states. axes lists the dims of a step's input
--- that share one mask.
--- Example: local cell = pg.nn.rnn.DropoutCell(0.5)
--- return cell(pg.ones(2, 3), {})
local DropoutCell = cells.HybridRecurrentCell:extend("DropoutCell")
modifiers.DropoutCell = DropoutCell

function DropoutCell:init(...)
  local o = args.read("DropoutCell", {"rate", "axes"}, {rate = args.required, axes = args.none}, ...)
  self._step = Dropout(o.rate, {axes = o.axes})
  local axes = self._step._axes
  if axes then
    local later = {}
    for i, axis in ipairs(axes) do later[i] = axis > 0 and axis + 1 or axis end
    self._all = Dropout(o.rate, {axes = later})
  end
end

function DropoutCell:forward(x, states)
  args.tensor("DropoutCell", "x", x)
  return self._step(x), states or {}
end

function DropoutCell:_scan(x, states, lengths) return sequence.mask((self._all or self._step)(x), lengths), states or {} end

function DropoutCell:describe() return self._step:describe() end

--- nn.rnn.ModifierCell is the base class of cells that wrap another cell, the field base_cell. Their states are those
--- of base_cell.
local ModifierCell = cells.HybridRecurrentCell:extend("ModifierCell")
modifiers.ModifierCell = ModifierCell
ModifierCell._is_base = true

function ModifierCell:init(base_cell) self.base_cell = check_cell(self._name, "base_cell", base_cell) end
function ModifierCell:state_info(batch_size) return self.base_cell:state_info(batch_size) end
function ModifierCell:begin_state(...) return self.base_cell:begin_state(...) end
function ModifierCell:_first_states(x) return self.base_cell:_first_states(x) end
function ModifierCell:_output_like(x, states) return self.base_cell:_output_like(x, states) end

--- nn.rnn.ResidualCell(base_cell) adds the input of base_cell to its output. Wu et al., Google's Neural Machine
--- Translation System, 2016.
--- Example: local cell = pg.nn.rnn.ResidualCell(pg.nn.rnn.GRUCell(4)):initialize()
--- local y = cell(pg.ones(2, 4), cell:begin_state(2))
--- return y.shape
local ResidualCell = ModifierCell:extend("ResidualCell")
modifiers.ResidualCell = ResidualCell

function ResidualCell:forward(x, states)
  local out, new = self.base_cell(x, states)
  return out + x, new
end

function ResidualCell:_scan(x, states, lengths)
  local outs, new = cells.unroll(self.base_cell, x, states, lengths)
  return outs + sequence.mask(x, lengths), new
end

--- nn.rnn.ZoneoutCell(base_cell, {zoneout_outputs = 0, zoneout_states = 0}): in training mode each element of the
--- output and of the states keeps its value of the step before with these probabilities. The output before the first
--- step is zero; reset() returns to that. With zoneout_outputs use cell:unroll or dynamic_unroll in place of pg.foreach,
--- whose body cannot run the first step after reset. Krueger et al., Zoneout, 2016.
--- Example: local rnn = pg.nn.rnn
--- local cell = rnn.ZoneoutCell(rnn.GRUCell(3), {zoneout_states = 0.1}):initialize()
--- local y = cell(pg.ones(2, 4), cell:begin_state(2))
--- return y.shape
local ZoneoutCell = ModifierCell:extend("ZoneoutCell")
modifiers.ZoneoutCell = ZoneoutCell

local zoneout_names = {"base_cell", "zoneout_outputs", "zoneout_states"}
local zoneout_spec = {base_cell = args.required, zoneout_outputs = 0, zoneout_states = 0}

-- Whether a cell or a cell inside it has zoneout_outputs.
local function keeps_outputs(cell)
  local found = false
  cell:apply(function(block) found = found or (block._keeps_outputs or 0) > 0 end)
  return found
end

function ZoneoutCell:init(...)
  local o = args.read("ZoneoutCell", zoneout_names, zoneout_spec, ...)
  self.base_cell = check_cell("ZoneoutCell", "base_cell", o.base_cell)
  if modifiers.unrolls_only(o.base_cell) then
    core.arg_error("ZoneoutCell", "base_cell", "a cell that can run single steps (put ZoneoutCell around the cells of BidirectionalCell)", o.base_cell)
  end
  if keeps_outputs(o.base_cell) then core.arg_error("ZoneoutCell", "base_cell", "a cell without zoneout_outputs of its own", o.base_cell) end
  self._keeps_outputs = args.number("ZoneoutCell", "zoneout_outputs", o.zoneout_outputs, 0, 1)
  self._keeps_states = args.number("ZoneoutCell", "zoneout_states", o.zoneout_states, 0, 1)
  self:reset()
end

--- modifiers.unrolls_only(cell) -> whether the cell is or contains a BidirectionalCell, which cannot run single steps.
function modifiers.unrolls_only(cell)
  local found = false
  cell:apply(function(block) found = found or block._name == "BidirectionalCell" end)
  return found
end

--- modifiers.check_step(cell, is_first) raises in the body of a loop or branch if is_first(cell): the first step makes what the
--- cell keeps for later ones, and a body cannot do so in one of its steps only.
function modifiers.check_step(cell, is_first)
  local _, in_body = core.tracing()
  if not (in_body and is_first(cell)) then return end
  core.fail(cell._name, "the body of a loop or branch cannot run the first step after reset (write cell:unroll or nn.rnn.dynamic_unroll "
            .. "in place of pg.foreach, or run the first step before the loop)")
end

-- Returns new; in training mode each element is replaced by that of old with probability p.
local function zone(p, new, old) return ops.where(ops.ne(ops.dropout(ops.ones_like(new:detach()), p), 0), new, old) end

local function step(cell, x, states, before)
  local out, new = cell.base_cell(x, states)
  local p = cell._keeps_states
  if before then out = zone(cell._keeps_outputs, out, before) end
  if p > 0 then new = tree.map(function(a, b) return zone(p, a, b) end, new, states) end
  return out, new
end

-- The output before the first step. It broadcasts to every shape and promotes to every dtype, so that the graph traced
-- at the first step of a sequence serves the later steps.
local function nothing() return core.keep(ops.zeros({1, 1}, {dtype = "bool"})) end

local function is_before_first(cell) return cell._before.dtype == "bool" end

function ZoneoutCell:forward(x, states)
  if self._keeps_outputs == 0 then return step(self, x, states) end
  local before = self._before
  modifiers.check_step(self, is_before_first)
  if before.device ~= x.device then before = before:to(x.device) end
  local out, new = step(self, x, states, before)
  self._before = core.keep(out)
  return out, new
end

function ZoneoutCell:reset()
  if self._keeps_outputs > 0 then self._before = nothing() end
  self.base_cell:reset()
  return self
end

function ZoneoutCell:_scan(x, states, lengths)
  states = states or self:_first_states(x)
  local first = {states = states}
  if self._keeps_outputs > 0 then first.before = ops.zeros_like(self.base_cell:_output_like(x, states)) end
  local outs, last = sequence.scan(function(item, s)
    local out, new = step(self, item, s.states, s.before)
    return out, {states = new, before = s.before and out}
  end, x, first, lengths)
  return outs, last.states
end

function ZoneoutCell:describe() return ("outputs %g, states %g"):format(self._keeps_outputs, self._keeps_states) end

return modifiers
