-- Applies the rule of an optimizer, which is written for one weight, to the weights of a step.
local core = ...
local half = {float16 = true, bfloat16 = true}
local rows = {lr = 1, wd = 2, t = 3, rescale = 4}

local function at(value, i) return type(value) == "table" and value[i] or value end

-- Returns a function that returns the rates of weight i in this dtype: numbers, or 0-dim tensors in a trace.
local function reader(group)
  local rates, read = group.rates, {}
  if not rates then
    return function(i) return {lr = at(group.lr, i), wd = at(group.wd, i), t = at(group.t, i), rescale = group.rescale_grad} end
  end
  return function(i, dtype)
    local column = rates:size(2) == 1 and 1 or i
    local key = column .. dtype
    local known = read[key] or {}
    read[key] = known
    if not known.lr then for name, row in pairs(rows) do known[name] = rates[{row, column}]:to(dtype) end end
    return {lr = known.lr, wd = known.wd, t = known.t, rescale = known.rescale}
  end
end

-- Rates that are the number 0 or 1 need no op. In a trace they are tensors, which may change.
local function prepare(self, w, g, h, bound)
  if h.rescale ~= 1 then g = g * h.rescale end
  if self.decay_in_gradient and h.wd ~= 0 then g = g + w * h.wd end
  return bound and g:clamp(-bound, bound) or g
end

local function widen(x, dtype) return x.dtype == dtype and x or x:to(dtype) end

local function write(to, value)
  if not rawequal(to, value) then to:copy_(widen(value, to.dtype)) end
end

-- Updates every weight of the group and its states.
return function(self, group)
  local states, rates_of = self.states, reader(group)
  for i = 1, group.n do
    local weight, state, own = group.weights[i], {}, {}
    local dtype = half[weight.dtype] and "float32" or weight.dtype
    for _, name in ipairs(states) do
      own[name] = group[name][i]
      state[name] = widen(own[name], dtype)
    end
    local w, h = widen(weight, dtype), rates_of(i, dtype)
    h.path = group.entries[i].path
    local new = self:rule(w, prepare(self, w, widen(group.grads[i], dtype), h, group.clip_gradient), state, h)
    if not core.is_tensor(new) then core.fail(self.name, "the rule returned %s (expected the new weight)", core.describe(new)) end
    write(weight, new)
    for _, name in ipairs(states) do write(own[name], state[name]) end
  end
end
