-- Parameters: tensors that know how to initialize their value. The options are stored in the box's extra table, the
-- value in the box.
local core = ...
local args = core.require("support.args")
local ops, extra = core.ops, core.extra
local param = {}

local spec = {
  shape = args.none, dtype = "float32", init = args.none, grad_req = "write", lr_mult = 1, wd_mult = 1,
  differentiable = true,
}
local dtypes = {
  float32 = true, float64 = true, float16 = true, bfloat16 = true, int8 = true, uint8 = true, int32 = true, int64 = true,
  bool = true,
}
local requests = {"write", "add", "null"}
local floats = {float32 = true, float64 = true, float16 = true, bfloat16 = true}
param.floats = floats  -- the set of floating-point dtypes

local function initializers() return core.require("initializer") end

local function check_shape(op, shape)
  if type(shape) == "number" then shape = {shape} end
  if type(shape) ~= "table" then core.arg_error(op, "shape", "a list of whole numbers", shape) end
  local list = {}
  for i = 1, #shape do list[i] = args.count(op, "shape", shape[i]) end
  return list
end

local function check_dtype(op, dtype)
  if dtypes[dtype] then return dtype end
  local hint = type(dtype) == "string" and core.hint_of("dtype", dtype)
  if hint then core.fail(op, "bad argument 'dtype' (expected the name of a dtype, got \"%s\"; %s)", dtype, hint) end
  local near = type(dtype) == "string" and core.suggest(dtype, dtypes)
  core.arg_error(op, "dtype", 'a dtype such as "' .. (near or "float32") .. '"', dtype)
end

-- Raises for an unknown or unusable device, before anything changes.
local function check_device(op, device)
  local hint = type(device) == "string" and core.hint_of("device", device)
  if hint then core.fail(op, "bad argument 'device' (expected the name of a device, got \"%s\"; %s)", device, hint) end
  local ok, message = pcall(ops.zeros, {0}, {device = args.string(op, "device", device)})
  if not ok then core.fail(op, "%s", (tostring(message):gsub("^.-zeros: ", ""))) end
  return device
end

local function show(shape) return shape and "{" .. table.concat(shape, ", ") .. "}" or "unknown" end

-- All parameters. A lookup by extra() would make a table for each tensor that is no parameter.
local made = setmetatable({}, {__mode = "k"})

--- param.is(v) -> whether v is a parameter (a tensor made by pg.param or pg.constant).
function param.is(v) return made[v] == true end

--- param.shape(p) -> the shape as a list with 0 for unknown dims, or nil if the number of dims is unknown too.
function param.shape(p)
  if core.has_value(p) then return p.shape end
  return extra(p).shape
end

--- param.dtype(p) -> the dtype it has or will have.
function param.dtype(p) return core.has_value(p) and p.dtype or extra(p).dtype end

--- param.device(p) -> the device that p is on, or will be on.
function param.device(p)
  if core.has_value(p) then return p.device end
  local pending = extra(p).pending
  return pending and pending.device or core.testing.default_device()
end

--- param.is_complete(p) -> whether every dim is known.
function param.is_complete(p)
  local shape = param.shape(p)
  if not shape then return false end
  for _, size in ipairs(shape) do if size == 0 and not core.has_value(p) then return false end end
  return true
end

local probe  -- during param.fits: set_shape changes nothing, and notes a difference here

--- param.fits(block, x) -> whether block:infer_shape(x) agrees with the shapes of the parameters. If it raises, also the
--- error. It changes nothing. A message handler may call it.
function param.fits(block, x)
  local before = probe
  local mine = {}
  probe = mine
  local ok, text = pcall(block.infer_shape, block, x)
  probe = before
  if ok then return not mine.differs end
  return false, tostring(text)
end

--- param.merge(op, name, known, given[, place]) -> given. Raises if given disagrees with the known dims (0 is unknown).
--- `place` says where given was found.
function param.merge(op, name, known, given, place)
  if known then
    local same = #known == #given
    for i = 1, #known do same = same and (known[i] == 0 or known[i] == given[i]) end
    if not same and probe then
      probe.differs = true
    elseif not same then
      core.fail(op, "bad argument '%s' (expected shape %s, got %s%s)", name, show(known):gsub("%f[%d]0%f[%D]", "?"), show(given), place or "")
    end
  end
  return given
end

local function request_of(p)
  local e = extra(p)
  if not e.differentiable or not floats[p.dtype] then return "null" end
  return e.grad_req
end

--- The objects that keep tensors beside parameters. object:_follow(p) is called when p has another dtype or device.
param.followers = setmetatable({}, {__mode = "k"})

local function type_of(p) return p.dtype, p.device end

-- Gives p a value. Followers do not make p an input of a trace in progress.
local function rebind(p, value)
  if not next(param.followers) or not core.has_value(p) then return core.bind(p, value) end
  local dtype, device = core.untraced(type_of, p)
  core.bind(p, value)
  local now, there = core.untraced(type_of, p)
  if now == dtype and there == device then return end
  for object in pairs(param.followers) do object:_follow(p) end
end

--- param.follow(p, x[, dtype]) gives x, a tensor that is kept beside p, p's device and this dtype, by default p's. It
--- stays the same tensor, since graphs may hold it, and does not become an input of a trace in progress.
function param.follow(p, x, dtype)
  core.untraced(function()
    local target = {dtype = dtype or p.dtype, device = p.device}
    if x.dtype ~= target.dtype or x.device ~= target.device then core.bind(x, x:to(target)) end
  end)
end

--- param.bind(p, value) sets the parameter's value and attaches a gradient according to its grad_req.
function param.bind(p, value)
  rebind(p, value)
  local request = request_of(p)
  local now = core.grad_state(p) or "null"
  if now ~= request then core.attach_grad(p, request) end
end

-- The log of parameters that running calls gave a shape or value, and of blocks that became ready. A call that fails
-- undoes its own changes. log.depth is the number of running calls: the caller increments it before a call, decrements
-- it after, and then calls param.settle if the call failed or the log is not empty.
local log = {depth = 0}
param.log = log
local running, main = coroutine.running, {}
local weak = {__mode = "v"}  -- the calls of a coroutine that is never resumed stay in the log

--- param.note(p, block) logs that a call is about to give the parameter p a shape or value, or made the block ready.
function param.note(p, block)
  if log.depth == 0 then return end
  local entry = {by = running() or main, depth = log.depth, of = setmetatable({p = p, block = block}, weak)}
  if p then
    local e = extra(p)
    if core.has_value(p) then return end
    entry.shape, entry.pending = e.shape, e.pending
  end
  log[#log + 1] = entry
end

--- param.note_change(owner, undo, old) logs that a call changed something of owner which no graph depends on.
--- undo(owner, old) takes it back.
function param.note_change(owner, undo, old)
  if log.depth == 0 then return end
  log[#log + 1] = {by = running() or main, depth = log.depth, of = setmetatable({owner = owner}, weak), undo = undo, old = old}
end

local function take_back(entry)
  local p, block, owner = entry.of.p, entry.of.block, entry.of.owner
  if owner then entry.undo(owner, entry.old) end
  if block then rawset(block, "_ready", nil) end
  if not p then return end
  local e = extra(p)
  e.shape, e.pending = entry.shape, entry.pending
  core.unbind(p)
end

--- param.settle(ok) -> whether changes were undone that graphs depend on; called after a call, which succeeded if ok. The changes of a nested
--- call that succeeded become those of the outer call. Inside a trace nothing is undone; the tracing call does that.
function param.settle(ok)
  local depth, by, keep, any = log.depth, running() or main, ok or core.tracing(), false
  for i = #log, 1, -1 do
    local entry = log[i]
    if entry.by == by and entry.depth > depth then
      entry.depth = depth
      if not keep then
        take_back(entry)
        any = any or not entry.undo
      end
      if not keep or depth == 0 then table.remove(log, i) end
    end
  end
  return any
end

--- param.drawn: how many parameters have drawn their first values.
param.drawn = 0

local function materialize(p)
  param.note(p)
  local e = extra(p)
  local pending = e.pending
  local shape = param.shape(p)
  local value = initializers().make(e.init, pending.init, e.path or "", shape, {dtype = e.dtype, device = pending.device})
  e.pending = nil
  param.bind(p, value)
  param.drawn = param.drawn + 1
end

--- param.check_target(op, opts) -> opts. Checks its options dtype and device, which may be nil.
function param.check_target(op, opts)
  if opts.dtype ~= nil then check_dtype(op, opts.dtype) end
  if opts.device ~= nil then check_device(op, opts.device) end
  return opts
end

local initialize_options = {force = false, device = args.none, dtype = args.none}

--- param.initialize_all(entries, init, opts) is initialize(init, opts) of the owner of these entries {tensor =, path =, owner =}.
function param.initialize_all(entries, init, opts)
  if opts == nil and args.plain(init) then init, opts = nil, init end
  opts = param.check_target("initialize", args.options("initialize", opts, initialize_options))
  local initializer = initializers().resolve("initialize", init)
  for _, entry in ipairs(entries) do
    param.initialize(entry.tensor, entry.path, initializer, opts)
    if entry.owner then rawset(entry.owner, "_ready", nil) end
  end
end

--- param.initialize(p, path, default, opts) gives p its value if its shape is known, else the first call does. default
--- is the initializer if p has none. opts: force (replace an existing value), device, dtype.
function param.initialize(p, path, default, opts)
  local e = extra(p)
  if path and not e.path then
    e.path = path
    p.name = path
  end
  if e.constant or (core.has_value(p) and not opts.force) then return end
  if opts.dtype then e.dtype = opts.dtype end
  e.pending = {init = default, device = opts.device}
  if param.is_complete(p) then materialize(p) end
end

--- param.give(p, path, value) binds a value from a file.
function param.give(p, path, value)
  local e = extra(p)
  e.shape, e.dtype, e.pending = value.shape, value.dtype, nil
  if not e.path then
    e.path = path
    p.name = path
  end
  param.bind(p, value)
end

--- param.target(target[, more]) -> the arguments of `to` as {dtype =, device =}, checked.
function param.target(target, more)
  local values
  if args.plain(target) then values = args.options("to", target, {dtype = args.none, device = args.none})
  elseif dtypes[args.string("to", "target", target)] then values = {dtype = target, device = more}
  else
    if core.hint_of("dtype", target) then check_dtype("to", target) end
    local near = core.suggest(target, dtypes)
    if near then core.arg_error("to", "dtype", 'the name of a dtype such as "' .. near .. '"', target) end
    values = {device = target, dtype = more}
  end
  if values.dtype and dtypes[values.dtype] and not floats[values.dtype] then
    core.arg_error("to", "dtype", "a floating-point dtype", values.dtype)
  end
  return param.check_target("to", values)
end

--- param.convert(p, target) converts a parameter to the dtype and device of target, see param.target. Its gradient
--- becomes zeros.
function param.convert(p, target)
  local e = extra(p)
  local dtype, device = target.dtype, target.device
  if e.keep_float32 and (dtype == "float16" or dtype == "bfloat16") then dtype = "float32" end
  if not floats[e.dtype] and dtype and floats[dtype] then dtype = nil end
  if core.has_value(p) then
    local before = p.dtype
    rebind(p, p:detach():to{dtype = dtype or before, device = device or p.device}:clone())
    if core.grad_state(p) then core.attach_grad(p, request_of(p)) end
    local sparse = core.require("sparse_grad")
    if sparse.is(p) then sparse.forget(p) end
  elseif e.pending and device then e.pending.device = device end
  if dtype then e.dtype = dtype end
end

--- param.state(p) -> "ready", "pending" (initialized, but its shape is unknown) or "none" (not initialized).
function param.state(p)
  if core.has_value(p) then return "ready" end
  return extra(p).pending and "pending" or "none"
end

local function check_request(op, value) return args.choice(op, "grad_req", value, requests) end

local function settle(p, e, values)
  made[p] = true
  e.differentiable = args.boolean("param", "differentiable", values.differentiable)
  e.grad_req = check_request("param", values.grad_req)
  e.lr_mult = args.number("param", "lr_mult", values.lr_mult)
  e.wd_mult = args.number("param", "wd_mult", values.wd_mult)
  e.dtype = check_dtype("param", values.dtype)
  e.init = values.init
  e.shape = values.shape and check_shape("param", values.shape)
  return p
end

local function from_tensor(op, tensor, options)
  local values = args.options(op, options, spec)
  local p = core.new_parameter()
  values.shape, values.dtype = tensor.shape, tensor.dtype
  settle(p, extra(p), values)
  param.bind(p, tensor:detach():clone())
  return p
end

-- Splits {2, 3, init = "ones"} into the shape and the options.
local function split_shape(t)
  local shape, options = {}, {}
  for key, value in pairs(t) do if type(key) == "number" then shape[key] = value else options[key] = value end end
  return shape, options
end

--- pg.param{shape=, dtype=, init=, grad_req=, lr_mult=, wd_mult=, differentiable=} -> a parameter: a tensor that gets
--- its value from `initialize`. A 0 in shape is a dim that the first call infers. init is an initializer, its name, a
--- number or a tensor. grad_req is "write", "add" or "null" (frozen). pg.param(tensor[, options]) makes a parameter
--- with a copy of the tensor as value.
--- Example: return pg.param(pg.ones(2)):size(1)
function param.param(options, more)
  if core.is_tensor(options) then return from_tensor("param", options, more) end
  if type(more) == "number" then
    core.fail("param", "bad argument 'shape' (expected a list of sizes, got two numbers; write pg.param{shape = {%s, %s}})",
              tostring(options), tostring(more))
  end
  if more == nil and args.plain(options) and options[1] ~= nil then options, more = split_shape(options) end
  if more ~= nil or type(options) == "number" then
    local values = args.options("param", more, spec)
    values.shape = options
    options = values
  end
  if type(options) ~= "table" then core.arg_error("param", "options", "a table such as {shape = {2, 3}}", options) end
  local values = args.options("param", options, spec)
  if values.init ~= nil then initializers().resolve("param", values.init) end
  if values.shape == nil and core.is_tensor(values.init) then values.shape = values.init.shape end
  local p = core.new_parameter()
  return settle(p, extra(p), values)
end

--- pg.constant(v[, {dtype =, device =}]) -> a tensor that is saved with its block but never trained. v is a tensor, a number
--- or a nested table.
function param.constant(v, options)
  local tensor = options == nil and core.is_tensor(v) and v or core.read_tensor("constant", "v", v, options)
  local p = from_tensor("constant", tensor, {grad_req = "null", differentiable = false})
  extra(p).constant = true
  return p
end

local function check_param(op, p)
  if not param.is(p) then core.arg_error(op, "self", "a parameter made by pg.param", p) end
  return extra(p)
end

local methods = core.tensor_methods

--- p:set_shape{…} sets the unknown dims of a parameter. Raises if a known dim differs.
function methods.set_shape(p, ...)
  local e = check_param("set_shape", p)
  local first = select(1, ...)
  local shape = check_shape("set_shape", type(first) == "table" and first or {...})
  param.merge("set_shape", "shape", param.shape(p), shape)
  if probe or core.has_value(p) then return p end
  param.note(p)
  e.shape = shape
  if e.pending and param.is_complete(p) then materialize(p) end
  return p
end

--- p:set_data(x) sets a parameter's value to a copy of x, converted to its dtype. Raises if a known dim differs.
function methods.set_data(p, x)
  local e = check_param("set_data", p)
  if not core.is_tensor(x) then x = core.read_tensor("set_data", "x", x) end
  param.merge("set_data", "x", param.shape(p), x.shape)
  e.shape, e.pending = x.shape, nil
  x = x:detach()
  param.bind(p, x.dtype == e.dtype and x:clone() or x:to(e.dtype))
  return p
end

--- p:initialize([init[, {force=, device=, dtype=}]]) gives this parameter its value and returns it; see
--- Block:initialize.
function methods.initialize(p, init, opts)
  check_param("initialize", p)
  param.initialize_all({{tensor = p}}, init, opts)
  return p
end

--- x:zero_grad() sets x.grad to zeros.
function methods.zero_grad(x)
  args.tensor_self("zero_grad", x)
  local sparse = core.require("sparse_grad")
  if sparse.is(x) then sparse.clear(x) end
  local grad = sparse.own_grad(x)
  if grad then grad:zero_() end
  return x
end

local getters, setters = core.tensor_getters, core.tensor_setters

for _, field in ipairs{"init", "lr_mult", "wd_mult", "differentiable"} do
  getters[field] = function(box)
    if made[box] then return extra(box)[field] end
  end
end

function getters.grad_req(box)
  if made[box] then return extra(box).grad_req end
  return core.grad_state(box) or "null"
end

local function refresh_grad(p)
  if not core.has_value(p) then return end
  local request = request_of(p)
  if (core.grad_state(p) or "null") ~= request then core.attach_grad(p, request) end
end

function setters.grad_req(box, value)
  check_request("grad_req", value)
  if not made[box] then return core.attach_grad(box, value) end
  extra(box).grad_req = value
  refresh_grad(box)
end

function setters.differentiable(box, value)
  check_param("differentiable", box).differentiable = args.boolean("differentiable", "value", value)
  refresh_grad(box)
end

function setters.init(box, value)
  if value ~= nil then initializers().resolve("init", value) end
  check_param("init", box).init = value
end

for _, field in ipairs{"lr_mult", "wd_mult"} do
  setters[field] = function(box, value) check_param(field, box)[field] = args.number(field, "value", value) end
end

return param
