-- nn.LoRA: a Dense layer that learns a low-rank change of its weight.
local core = ...
local args = core.require("support.args")
local HybridBlock = core.require("nn.block").HybridBlock
local Dense = core.require("nn.basic").Dense
local Dropout = core.require("nn.basic").Dropout
local Xavier = core.require("initializer").Xavier
local param = core.require("param")
local view = core.require("nn.view")
local ops = core.ops

--- nn.LoRA(block, rank = 8, {alpha = rank, dropout = 0}) wraps a Dense layer, which it freezes, and adds alpha / rank * b a to
--- its weight, where a (rank, in_units) and b (units, rank), zeros at first, are trained: the parameters lora_a and lora_b.
--- dropout acts on the input of a. The layer is the field `base`. Hu et al., LoRA: Low-Rank Adaptation of Large Language
--- Models, 2021.
--- Example: local dense = pg.nn.Dense(3, {in_units = 4})
--- local layer = pg.nn.LoRA(dense, 2)
--- layer:initialize()
--- return pg.equal(layer(pg.ones(1, 4)), dense(pg.ones(1, 4)))
local LoRA = HybridBlock:extend("LoRA")

local names = {"block", "rank", "alpha", "dropout"}
local spec = {block = args.required, rank = 8, alpha = args.none, dropout = 0}

function LoRA:init(...)
  local o = args.read("LoRA", names, spec, ...)
  local base = view.check("LoRA", o.block)
  if getmetatable(base) ~= Dense then core.arg_error("LoRA", "block", "a Dense layer", base) end
  local rank = args.count("LoRA", "rank", o.rank, 1)
  local shape, dtype = param.shape(base.weight), param.dtype(base.weight)
  self._rank, self._scale = rank, args.number("LoRA", "alpha", o.alpha or rank) / rank
  for _, p in base:parameters() do p.grad_req = "null" end
  self.base = base
  self.lora_a = param.param{shape = {rank, shape[2]}, dtype = dtype, init = Xavier{factor_type = "in", magnitude = 1}}
  self.lora_b = param.param{shape = {shape[1], rank}, dtype = dtype, init = 0}
  self.dropout = o.dropout ~= 0 and Dropout(o.dropout)
end

function LoRA:infer_shape(x)
  view.infer(self.base, x)
  self.lora_a:set_shape{self._rank, param.shape(self.base.weight)[2]}
end

function LoRA:forward(x)
  local base = self.base
  if self._merged then return base(x) end
  local low = view.call(base, {weight = self.lora_a, bias = false, _activation = false}, self.dropout and self.dropout(x) or x)
  local y = view.call(base, {_activation = false}, x) + ops.linear(low, self.lora_b) * self._scale
  return base._activation and base._activation(y) or y
end

-- Adds sign times the change to the weight of the layer.
local function move(self, sign)
  self.base.weight:set_data(self.base.weight + ops.matmul(self.lora_b, self.lora_a) * (sign * self._scale))
  self._merged = sign > 0
  return self
end

--- lora:merge() adds the change to the weight of the layer, which then costs what the Dense layer costs, and returns the
--- block. Raises if it is merged.
function LoRA:merge()
  args.self("merge", self, "lora")
  if self._merged then core.fail("merge", "the change is already in the weight") end
  return move(self, 1)
end

--- lora:unmerge() takes the change out of the weight again, for further training, and returns the block. Raises if it is
--- not merged.
function LoRA:unmerge()
  args.self("unmerge", self, "lora")
  if not self._merged then core.fail("unmerge", "the change is not in the weight") end
  return move(self, -1)
end

function LoRA:describe() return view.describe(self.base, ("rank %d%s"):format(self._rank, self._merged and ", merged" or "")) end

return {LoRA = LoRA}
