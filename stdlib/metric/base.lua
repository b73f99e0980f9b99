-- The base class of metrics: its sums over batches, which traces may hold, and its values.
local core = ...
local args = core.require("support.args")
local class = core.require("support.class")
local run_hooks = core.require("hybrid.run_hooks")
local ops = core.ops
local base = {}

local nan = 0 / 0

--- pg.metric.Metric is the base class. A subclass defines measure(label, pred) -> sum, count, each a number or a tensor
--- of one element, which update accumulates. It may define finish(sum, count) -> the value, from two numbers. A measure
--- that returns tensors and reads none of their values also runs inside pg.jit; if it reads no sizes either, one trace
--- fits batches of all sizes.
--- Example: local Errors = pg.metric.Metric:extend("Errors")
--- function Errors:measure(label, pred) return label:ne(pred):sum(), 1 end
--- local errors = Errors()
--- errors:update(pg.tensor{1, 2, 3}, pg.tensor{1, 3, 2})
--- return errors:get()
local Metric = class.new("Metric")
Metric._kind, Metric._optional = "Metric", {names = true, spec = true, label = true}

function Metric:init(...)
  self:setup(self.label, args.read(self.name, self.names or {}, self.spec or {}, ...))
  if self._check then self:_check() end
end

--- metric:setup(label, options) sets the options as fields and resets the metric.
function Metric:setup(label, options)
  for key, value in pairs(options) do self[key] = value end
  self._label = label
  self:reset()
end

-- Enlarges a square matrix with zeros.
local function grown(matrix, size)
  local missing = size - matrix:size(1)
  return missing > 0 and ops.pad(matrix, {0, missing, 0, missing}) or matrix
end

-- Sums that reset made in a trace, and that no update has reached: their device is a guess.
local guessed = setmetatable({}, {__mode = "k"})

-- Returns the tensor of this name. It is made once and then only written in place, so that traces may hold it, and no
-- pg.scope frees it.
local function sum_for(sums, name, shape, device)
  local sum = sums[name]
  if not sum then
    sum = core.outside_zeros(ops.zeros(shape, {dtype = "float64", device = device}))
    sums[name] = sum
  elseif shape[1] then core.bind(sum, grown(sum, shape[1])) end
  return sum
end

local function make_for_reset(sums, name)
  if not sums[name] then guessed[sum_for(sums, name, {})] = true end
end

local function move(sum, device)
  guessed[sum] = nil
  if sum.device ~= device then core.bind(sum, sum:to(device)) end
end

-- Moves a sum to the device of the values that are added to it. A trace has its type already: the next one begins with it.
local function settle_device(sum, device)
  if not core.tracing() then return move(sum, device) end
  if run_hooks.tracing() then run_hooks.after_run(function() if guessed[sum] then move(sum, device) end end) end
end

--- base.add_to(sums, name, x, device) adds a tensor, or a number for values on this device.
function base.add_to(sums, name, x, device)
  local is_tensor = core.is_tensor(x)
  -- Untraced, since a trace must not depend on whether the sum was there.
  device = device or x.device
  local sum = core.untraced(sum_for, sums, name, is_tensor and x.shape or {}, device)
  if guessed[sum] then settle_device(sum, device) end
  if is_tensor then
    if x.device ~= sum.device then x = x:to(sum.device) end
    if x:dim() == 2 then x = grown(x, sum:size(1)) end
  end
  sum:add_(x)
end

Metric._sum_names = {"sum", "count"}

--- metric:reset() forgets all updates.
function Metric:reset()
  args.self("reset", self, "metric")
  -- Sums by name: sum, count and others that finish gets. One set is of the updates since the last reset_local, the
  -- other of those before it.
  self._sums, self._earlier = self._sums or {}, self._earlier or {}
  for _, sums in ipairs{self._sums, self._earlier} do
    -- A trace also forgets the updates that come later in it.
    for _, name in ipairs(core.tracing() and self._sum_names or {}) do core.untraced(make_for_reset, sums, name) end
    for _, sum in pairs(sums) do sum:zero_() end
  end
end

--- metric:reset_local() starts anew for get; get_global still covers all updates since reset.
function Metric:reset_local()
  args.self("reset_local", self, "metric")
  for name, sum in pairs(self._sums) do
    base.add_to(self._earlier, name, sum)
    sum:zero_()
  end
end

local function result(self, sums)
  local count = sums.count and sums.count:item() or 0
  if count == 0 then return self._label, nan end
  return self._label, self:finish(sums.sum:item(), count, sums)
end

--- metric:get() -> name, value; the value is NaN before the first update.
function Metric:get()
  args.self("get", self, "metric")
  return result(self, self._sums)
end

--- metric:get_global() -> name, value of all updates since reset, also those before reset_local.
function Metric:get_global()
  args.self("get_global", self, "metric")
  local sums = {}
  for _, part in ipairs{self._earlier, self._sums} do
    for name, sum in pairs(part) do base.add_to(sums, name, sum) end
  end
  return result(self, sums)
end

function Metric:finish(sum, count) return sum / count end

--- base.add(metric, device, sum, count) adds what measure returned for values on this device.
function base.add(self, device, sum, count)
  local function scalar(x)
    if core.is_tensor(x) then return x:reshape{} end
    if type(x) ~= "number" then core.arg_error(self.name, "measure", "a function that returns a sum and a count", x) end
    return x
  end
  sum, count = scalar(sum), scalar(count)
  base.add_to(self._sums, "sum", sum, device)
  base.add_to(self._sums, "count", count, device)
end

--- base.as_list(op, name, value) -> a list of tensors, from one or a list.
function base.as_list(op, name, value)
  if core.is_tensor(value) then return {value} end
  if not args.plain(value) then core.arg_error(op, name, "a tensor or a list of tensors", value) end
  return value
end

--- metric:update(labels, preds) adds one batch. Both are a tensor or a list of tensors.
function Metric:update(labels, preds)
  args.self("update", self, "metric")
  class.defined(self, "measure", "measure(label, pred)")
  labels, preds = base.as_list(self.name, "labels", labels), base.as_list(self.name, "preds", preds)
  if #labels ~= #preds then core.fail(self.name, "bad argument 'preds' (expected %d tensors like labels, got %d)", #labels, #preds) end
  local autograd = core.require("autograd")
  for i, label in ipairs(labels) do
    args.tensor(self.name, "labels", label)
    args.tensor(self.name, "preds", preds[i])
    base.add(self, preds[i].device, autograd.pause(function() return self:measure(label, preds[i]) end))
  end
end

Metric.__tostring = function(self)
  local name, value = self:get()
  return string.format("%s: %g", name, value)
end

base.Metric = Metric

return base
