-- nn.Block and nn.HybridBlock: tables whose fields are child blocks and parameters.
local core = ...
local args = core.require("support.args")
local argument_types = core.require("nn.argument_types")
local discover = core.require("nn.discover")
local calls = core.require("nn.block_call")
local param = core.require("param")
local show = core.require("nn.show")
local sets = core.require("nn.parameters")

local rawget, rawset, type, setmetatable = rawget, rawset, type, setmetatable

-- Whether a new field may hold a parameter without a value, which the next call has to infer.
local function may_wait(value)
  if type(value) == "userdata" then return param.is(value) and not core.has_value(value) end
  return args.plain(value)
end

-- The __newindex of blocks: records the order in which names were first assigned.
local function assign(self, key, value)
  if value ~= nil and type(key) == "string" and key:byte() ~= 95 then
    local order = rawget(self, "_order")
    if not order then
      order = {}
      rawset(self, "_order", order)
    end
    if not order[key] then
      order[#order + 1] = key
      order[key] = #order
    end
  end
  if may_wait(value) then rawset(self, "_ready", nil) end
  rawset(self, key, value)
end

local constructor_names = {"__init", "__init__"}  -- of other languages

local function construct(class, ...)
  for _, name in ipairs(constructor_names) do
    if class[name] then core.fail(class._name, "a class has no %s: the constructor is init, as in function %s:init(…)", name, class._name) end
  end
  args.called_with_dot(class._name, ...)
  local block = setmetatable({}, class)
  if calls.runs() then rawset(block, "_late", true) end
  block:init(...)
  return block
end

-- Classes of the library are marked: hybridized code does not guard them.
local function make_class(parent, name, of_library)
  local class = {
    _is_class = true, _name = name, super = parent, _library = of_library or nil,
    __call = calls.call, __newindex = assign, __tostring = show.tree,
  }
  class.__index = class
  return setmetatable(class, {__index = parent, __call = construct, __tostring = function() return name end, _class_meta = true})
end

--- nn.Block is the base class of blocks that run as plain Lua. See nn.HybridBlock for blocks that can be hybridized.
local Block = make_class(nil, "Block", true)
Block._is_base, Block._kind = true, "block"

--- Class:extend(name) -> a subclass. Define `init` (called with the constructor's arguments) and `forward` on it.
--- `Class(…)` makes a block; `block(…)` calls forward.
function Block:extend(name)
  if type(self) ~= "table" then args.self("extend", self, "nn.HybridBlock") end
  args.string("extend", "name", name)
  return make_class(self, name, core.introspect.called_from_library(1))
end

--- Block:init(…) is called by the constructor with its arguments. A class may define it.
function Block:init() end

local function own_parameters(block)
  local params = {}
  for _, entry in ipairs(discover.entries(block)) do
    if entry.kind == "param" then params[entry.path] = entry.value end
  end
  return params
end

--- Block:forward(…) computes the outputs. A class defines it, or hybrid_forward(self, F, …, params), where F is the
--- library and params a table of the block's own parameters by field.
function Block:forward(...)
  local hybrid_forward = self.hybrid_forward
  if not hybrid_forward then core.fail(self._name, "the block has no forward (define forward(self, …))") end
  local n = select("#", ...)
  local list = {...}
  list[n + 1] = own_parameters(self)
  return hybrid_forward(self, core.pg, unpack(list, 1, n + 1))
end

--- block:initialize([init[, {force=, device=, dtype=}]]) gives every parameter its value and returns the block. init is
--- an initializer of pg.init or its name; the default is Uniform(0.07). A parameter's own initializer takes precedence,
--- then the rule of its name (bias 0, gamma 1), then init. Parameters that have a value keep it unless force is true.
--- Parameters with unknown dims get their value at the first call.
function Block:initialize(init, opts)
  args.self("initialize", self, "net")
  param.initialize_all(discover.parameters(self), init, opts)
  return self
end

--- block:parameters([pattern]) -> an iterator of path, tensor in a stable order, each parameter once. Only paths that
--- contain the Lua pattern are included. Raises if none does and the pattern is a regular expression, with | or a backslash.
function Block:parameters(pattern)
  args.self("parameters", self, "net")
  local list, i = sets.matching("parameters", self, pattern), 0
  return function()
    i = i + 1
    local entry = list[i]
    if entry then return entry.path, entry.tensor end
  end
end

--- block:collect_params([pattern]) -> a set of the parameters: a table indexed by path with the methods initialize,
--- zero_grad, set(key, value), save(path), load(path), iter() and len(). pattern is that of block:parameters.
function Block:collect_params(pattern)
  args.self("collect_params", self, "net")
  return sets.collect(self, pattern)
end

--- block:children() -> an iterator of name, child over the block's direct children.
function Block:children()
  args.self("children", self, "net")
  local entries, i = discover.entries(self), 0
  return function()
    repeat
      i = i + 1
      local entry = entries[i]
      if not entry then return nil end
      if entry.kind == "block" then return entry.path, entry.value end
    until false
  end
end

--- block:apply(f) calls f(child) once for every block below this one, children first, then f(block). Returns the block.
function Block:apply(f)
  args.self("apply", self, "net")
  args.callable("apply", "f", f)
  discover.walk(self, function() end)                 -- raises for a block that holds itself
  local seen = {}
  local function visit(block)
    if seen[block] then return end
    seen[block] = true
    for _, child in block:children() do visit(child) end
    f(block)
  end
  visit(self)
  return self
end

--- block:to(dtype or device, or {dtype=, device=}) converts every parameter and returns the block. The statistics and
--- parameters of normalization layers stay float32 if the dtype is float16 or bfloat16. The states of trainers and the
--- averages of pg.optim.EMA and SWA are converted too. The next call of a hybridized block or jitted function that reads
--- them traces again; export takes it that arguments of this block change as the parameters do.
function Block:to(target, more)
  args.self("to", self, "net")
  target = param.target(target, more)
  local changed = false
  for _, entry in ipairs(discover.parameters(self)) do
    local p = entry.tensor
    local before = core.has_value(p) and {p.dtype, p.device}
    param.convert(p, target)
    changed = changed or before and (p.dtype ~= before[1] or p.device ~= before[2])
  end
  for _, entry in ipairs(discover.blocks(self)) do
    local others = argument_types.convert(entry.block, target)
    if (changed or others) and rawget(entry.block, "_graphs") then core.require("hybrid").renew(entry.block, entry.path) end
  end
  return self
end

--- block:cast(dtype) is block:to(dtype).
function Block:cast(dtype) return self:to(dtype) end

--- block:zero_grad() sets the gradients of all parameters to zeros.
function Block:zero_grad()
  args.self("zero_grad", self, "net")
  for _, p in self:parameters() do p:zero_grad() end
  return self
end

--- block:register_forward_hook(f) -> handle. f(block, inputs, outputs) runs after each forward; inputs is the list of
--- arguments, outputs the result (a list when there are several). handle:detach() removes it.
function Block:register_forward_hook(f)
  args.self("register_forward_hook", self, "net")
  return calls.add_hook(self, "_hooks", args.callable("register_forward_hook", "f", f))
end

--- block:register_forward_pre_hook(f) -> handle. f(block, inputs) runs before each forward.
function Block:register_forward_pre_hook(f)
  args.self("register_forward_pre_hook", self, "net")
  return calls.add_hook(self, "_pre_hooks", args.callable("register_forward_pre_hook", "f", f))
end

--- block:save_parameters(path) writes all parameters under their paths to a safetensors file, atomically, and returns
--- the block. Raises if a parameter has no value yet or the file cannot be written.
--- Example: local net, path = pg.nn.Dense(2, {in_units = 3}), os.tmpname()
--- net:initialize()
--- net:save_parameters(path)
--- local copy = pg.nn.Dense(2, {in_units = 3})
--- copy:load_parameters(path)
--- os.remove(path)
--- return pg.equal(net.weight, copy.weight)
function Block:save_parameters(path)
  args.self("save_parameters", self, "net")
  sets.save(self, args.string("save_parameters", "path", path))
  return self
end

--- block:load_parameters(path, {allow_missing=, ignore_extra=, cast_dtype=, device=}) reads a file of save_parameters.
--- It may be one of MXNet (.params): the children of a Sequential count from 0 on there, and names may begin with arg: or
--- aux:. Everything is checked before the first parameter changes. cast_dtype converts to the dtypes of the block; without
--- a device the parameters stay on theirs.
function Block:load_parameters(path, opts)
  args.self("load_parameters", self, "net")
  sets.load(self, args.string("load_parameters", "path", path), opts)
  return self
end

--- block:summary(…) -> a text with the output shape, the number of parameters and the multiply-adds of every block,
--- from one forward pass with these arguments. The pass is recorded, in predict mode and op by op as in pg.debug, also
--- for a hybridized block. Multiply-adds are those of products and convolutions. The memory of a training step is that
--- of the parameters, their gradients and what the record keeps for backward, which is counted in this pass; the state of
--- an optimizer and the temporary results of backward come on top.
function Block:summary(...)
  args.self("summary", self, "net")
  return show.summary(self, ...)
end

--- block:export(path[, {epoch =, inputs =}]) writes the graph of forward to path.json and its tensors to
--- path.safetensors (path-0001.safetensors with epoch = 1), and returns both paths. See nn.SymbolBlock.imports. Ops
--- that depend on the training mode keep that, so the import can be trained. Tensors that forward replaces in fields and
--- variables become states; it is warned of numbers that forward changes. The block must have been called once, or
--- inputs = {…} must give example arguments.
function Block:export(path, opts)
  args.self("export", self, "net")
  return core.require("nn.export").export(self, path, opts)
end

--- block:freeze([{inputs =}]) -> a Graph that owns copies of the block's tensors. It may run in several threads and Lua
--- states at once. Its random numbers are those of the state that runs it (see pg.manual_seed).
function Block:freeze(opts)
  args.self("freeze", self, "net")
  return core.require("nn.export").freeze(self, opts)
end

local hybrid_options = {active = true, static_alloc = true, static_shape = false}

-- Raises if a hybrid block has a child that is not hybrid.
local function check_hybrid(block)
  discover.walk(block, function(kind, path, child, owner)
    if kind == "block" and owner._is_hybrid and not child._is_hybrid then
      core.fail("hybridize", "the child '%s' (%s) is a plain Block inside a HybridBlock", path, child._name)
    end
  end)
end

local function read_hybrid_options(opts)
  if opts == nil or type(opts) == "boolean" then opts = {active = opts ~= false} end
  local values = args.options("hybridize", opts, hybrid_options)
  for name in pairs(hybrid_options) do args.boolean("hybridize", name, values[name]) end
  return values
end

--- block:hybridize([{active=, static_alloc=, static_shape=} or boolean]) makes this block and the hybrid blocks below
--- it run as native graphs, forward and backward, and returns the block. The first call traces forward. Later calls run
--- the graph without entering Lua, as long as the shapes, types, fields, upvalues and arguments that forward read are
--- the same; else forward is traced again. Sizes that forward did not read may change. forward cannot read the values
--- of tensors. static_alloc (default true) keeps the planned memory between calls. static_shape (default false)
--- promises one shape; another one is an error. hybridize(false) returns to plain Lua. Raises if a block is no
--- HybridBlock, or if forward reads a value.
--- Example: local net = pg.nn.Dense(2, {weight_initializer = "one"})
--- net:initialize()
--- net:hybridize()
--- return net(pg.ones(1, 3)), net:cache_info().traces
function Block:hybridize(opts)
  args.self("hybridize", self, "net")
  local values = read_hybrid_options(opts)
  local blocks = discover.blocks(self)
  if values.active then check_hybrid(self) end
  local hybrid = core.require("hybrid")
  for _, entry in ipairs(blocks) do
    if entry.block._is_hybrid then hybrid.attach(entry.block, values, entry.path) end
  end
  return self
end

--- block:cache_info() -> {traces=, specializations=, hits=, last_retrace=} of a hybridized block: the number of traces
--- of forward, of graphs specialized for a set of types, and of calls that ran one, and why forward was traced again
--- last.
function Block:cache_info()
  args.self("cache_info", self, "net")
  return core.require("hybrid").info(self)
end

--- block:graph() -> the last trace of forward as text with types and script lines. The types are those of the call that
--- was traced. graph():dot() returns it for Graphviz.
function Block:graph()
  args.self("graph", self, "net")
  return core.require("hybrid").graph(self)
end

--- nn.HybridBlock is the base class of blocks that can be hybridized: `local Net = nn.HybridBlock:extend("Net")`.
--- Example: local Net = pg.nn.HybridBlock:extend("Net")
--- function Net:init() self.fc = pg.nn.Dense(2) end
--- function Net:forward(x) return self.fc(x):relu() end
--- local net = Net()
--- net:initialize()
--- return net(pg.ones(3, 4)).shape
local HybridBlock = Block:extend("HybridBlock")
HybridBlock._is_hybrid, HybridBlock._is_base = true, true

local PlainTable, HybridTable = Block:extend("block"), HybridBlock:extend("block")
PlainTable._is_base, HybridTable._is_base = true, true

--- nn.block{field = child or parameter, …, forward = function(self, …) … end} makes the table a hybrid block and
--- returns it. hybrid = false makes it a plain nn.Block.
local function block(t)
  if not args.plain(t) then core.arg_error("block", "fields", "a table of fields", t) end
  local hybrid = t.hybrid
  if hybrid ~= nil then args.boolean("block", "hybrid", hybrid) end
  if t.forward ~= nil then args.callable("block", "forward", t.forward) end
  t.hybrid = nil
  local fields = {}
  for _, entry in ipairs(discover.names(t)) do fields[#fields + 1] = entry end
  t._order = fields
  for i, name in ipairs(fields) do fields[name] = i end
  return setmetatable(t, hybrid == false and PlainTable or HybridTable)
end

return {Block = Block, HybridBlock = HybridBlock, block = block}
