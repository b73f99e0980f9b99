-- Applies the rule of an optimizer, which is written for one weight, to the weights of a step.
local core = ...
local decayed = core.require("optim.formulas").decayed
local half = {float16 = true, bfloat16 = true}

local function at(value, i) return type(value) == "table" and value[i] or value end

-- Returns a function that returns the rates of weight i in this dtype: numbers, or 0-dim tensors in a trace.
local function reader(group)
  local rates, fixed, read = group.rates, group.fixed, {}
  if not rates then
    return function(i) return {lr = at(group.lr, i), wd = at(group.wd, i), t = at(group.t, i), rescale = group.rescale_grad} end
  end
  return function(i, dtype)
    local column = rates:size(2) == 1 and 1 or i
    local key = column .. dtype
    local function at_row(row) return rates[{row, column}]:to(dtype) end
    read[key] = read[key] or {lr = at_row(1), wd = fixed.wd or at_row(2), t = at_row(3), rescale = fixed.rescale or at_row(4)}
    return read[key]
  end
end

-- Rates that are the number 0 or 1 need no op.
local function prepare(self, w, g, h, bound)
  if h.rescale ~= 1 then g = g * h.rescale end
  if self.decay_in_gradient then g = decayed(g, w, h.wd) end
  return bound and g:clamp(-bound, bound) or g
end

local function widen(x, dtype) return x.dtype == dtype and x or x:to(dtype) end

-- 0 where a state is subnormal or next to it, as in the kernels of optimizers.
local smallest = {float32 = 2 ^ -126, float64 = 2 ^ -1022}
local function settled(x)
  return core.is_tensor(x) and smallest[x.dtype] and x:hardshrink(smallest[x.dtype]) or x
end

local function write(to, value)
  if not rawequal(to, value) then to:copy_(widen(value, to.dtype)) end
end

-- Applies the rule to weight i with the rates h.
local function step(self, group, i, dtype, h)
  local weight, state, own = group.weights[i], {}, {}
  for _, name in ipairs(self.states) do
    own[name] = group[name][i]
    state[name] = widen(own[name], dtype)
  end
  local w = widen(weight, dtype)
  local new = self:rule(w, prepare(self, w, widen(group.grads[i], dtype), h, group.clip_gradient), state, h)
  if not core.is_tensor(new) then core.fail(self.name, "the rule returned %s (expected the new weight)", core.describe(new)) end
  local kept = self.divides_by_rate and core.is_tensor(h.lr) and h.lr:gt(0)
  local function finish(to, value) write(to, kept and core.ops.where(kept, value, widen(to, dtype)) or value) end
  finish(weight, new)
  for _, name in ipairs(self.states) do
    if not rawequal(state[name], own[name]) then finish(own[name], settled(state[name])) end
  end
end

-- Updates every weight of the group and its states. A rule that divides by the rate changes nothing where the rate is 0, as
-- at the end of a schedule.
local function update(self, group)
  local rates_of = reader(group)
  for i = 1, group.n do
    local dtype = half[group.weights[i].dtype] and "float32" or group.weights[i].dtype
    local h = rates_of(i, dtype)
    h.path = group.entries[i].path
    if not (self.divides_by_rate and h.lr == 0) then step(self, group, i, dtype, h) end
  end
end

-- Returns the compiled update of an optimizer: one program for all weights.
local function compile(self, fixed)
  return core.pg.jit(function(weights, grads, states, rates)
    local now = self._now
    local group = {n = #weights, weights = weights, grads = grads, rates = rates, fixed = fixed, clip_gradient = now.clip_gradient, entries = now.entries}
    for k, name in ipairs(self.states) do group[name] = states[k] end
    update(self, group)
  end)
end

local function count(value) return type(value) == "table" and #value or 1 end

-- The rates of a group as a tensor with the rows lr, wd, t and rescale_grad.
local function as_tensor(group)
  local columns, list = math.max(count(group.lr), count(group.wd), count(group.t)), {}
  for i = 1, columns do
    list[i], list[columns + i] = at(group.lr, i), at(group.wd, i)
    list[2 * columns + i], list[3 * columns + i] = at(group.t, i), group.rescale_grad
  end
  return core.ops.tensor(list, {dtype = "float64", device = group.weights[1].device}):reshape{4, columns}
end

local function first(list, n)
  local copy = {}
  for i = 1, n do copy[i] = list[i] end
  return copy
end

-- Rules of the library run compiled. Those of scripts may do what a graph cannot hold.
local function is_compiled(self)
  return self._compiles == self.name and not core.tracing() and not core.is_recording() and core.graphs.off == 0
end

return function(self, group)
  if not is_compiled(self) then return update(self, group) end
  local states, n = {}, group.n
  for k, name in ipairs(self.states) do states[k] = first(group[name], n) end
  rawset(self, "_now", group)
  local fixed = group.fixed or core.require("optim.rates").fixed(group, group.rescale_grad)
  local key, programs = ("%s %s"):format(fixed.wd, fixed.rescale), rawget(self, "_programs") or {}
  rawset(self, "_programs", programs)
  programs[key] = programs[key] or compile(self, fixed)
  programs[key](first(group.weights, n), first(group.grads, n), states, group.rates or as_tensor(group))
end
