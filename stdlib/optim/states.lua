-- The state tensors that a trainer holds for each parameter: their names, shapes and dtypes.
local core = ...
local param = core.require("param")
local states = {}

local half = {float16 = true, bfloat16 = true}

-- Weights of these dtypes have float32 states and a residual, see multi_precision.lua.
local function is_split(optimizer, p) return optimizer.multi_precision and half[param.dtype(p)] end

--- states.names(optimizer[, p]) -> the list of states of the parameter p, or those that any parameter may have.
function states.names(optimizer, p)
  if not optimizer.multi_precision or p and not is_split(optimizer, p) then return optimizer.states end
  local list = {unpack(optimizer.states)}
  list[#list + 1] = "residual"
  return list
end

local function dtype_of(optimizer, p) return is_split(optimizer, p) and "float32" or param.dtype(p) end

-- Returns the shape of a state of p if it differs from that of p.
local function own_shape(optimizer, name, shape)
  local f = optimizer.state_shapes[name]
  return f and shape and f(shape)
end

local function zeros(optimizer, name, p)
  local shape, dtype = own_shape(optimizer, name, p.shape), dtype_of(optimizer, p)
  local like = p
  if shape or dtype ~= p.dtype then
    like = core.untraced(function() return core.ops.zeros(shape or p.shape, {dtype = dtype, device = p.device}) end)
  end
  return core.outside_zeros(like)
end

--- states.make(optimizer, entry) makes the states that the entry of a trainer does not have yet. They are zeros.
function states.make(optimizer, entry)
  for _, name in ipairs(states.names(optimizer, entry.tensor)) do
    if not entry.states[name] then entry.states[name] = core.keep(zeros(optimizer, name, entry.tensor)) end
  end
end

--- states.follow(optimizer, entry) converts the states of a parameter that has another dtype or device than before. The
--- residual is put aside while it is not used, since graphs may hold it.
function states.follow(optimizer, entry)
  local p, own = entry.tensor, entry.states
  if not is_split(optimizer, p) then
    if own.residual then core.untraced(own.residual.zero_, own.residual) end
    entry.residual, own.residual = own.residual or entry.residual, nil
  elseif entry.residual then entry.residual, own.residual = nil, entry.residual end
  if entry.count > 0 then states.make(optimizer, entry) end
  for _, state in pairs(own) do param.follow(p, state, dtype_of(optimizer, p)) end
end

--- states.check(path, optimizer, entry, name, state) -> the state of this name from a file, on the parameter's device. Raises
--- if it does not fit the parameter.
function states.check(path, optimizer, entry, name, state)
  local p = entry.tensor
  local shape = param.shape(p)
  param.merge("load_states", name .. "." .. entry.path, own_shape(optimizer, name, shape) or shape, state.shape)
  if core.has_value(p) and state.dtype ~= dtype_of(optimizer, p) then
    core.fail("load_states", "%s: '%s.%s' is %s, the parameter %s", path, name, entry.path, state.dtype, p.dtype)
  end
  return core.keep(state:to(param.device(p)))
end

return states
