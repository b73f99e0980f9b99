-- The call of a block: infers unknown shapes before the first forward, runs hooks, and adds the path of a failing child
-- to errors.
local core = ...
local argument_types = core.require("nn.argument_types")
local discover = core.require("nn.discover")
local param = core.require("param")
local calls = {}

local rawget, rawset, select, xpcall, type, running = rawget, rawset, select, xpcall, type, coroutine.running
local getinfo, getlocal = debug and debug.getinfo, debug and debug.getlocal

-- `inside` is the coroutine in which a block runs (main for none), or false. Only the outermost call in a coroutine is
-- protected.
local main = {}
local inside = false
local told                        -- the last error message that already names its block

local function pass(...) return ... end

local function own_parameters_ready(block)
  for _, entry in ipairs(discover.entries(block)) do
    if entry.kind == "param" and param.state(entry.value) ~= "ready" then return false end
  end
  return true
end

-- Infers the unknown shapes of the block's own parameters. The block is ready once nothing has to run before forward.
local function fill_in(block, ...)
  local symbolic = core.symbols.any(...)
  if not symbolic then argument_types.note(block, ...) end  -- reading a size of a symbol would fix it
  local ready = own_parameters_ready(block)
  if not ready and block.infer_shape then
    block:infer_shape(...)
    ready = own_parameters_ready(block)
  end
  if ready and not symbolic and not block._hooks and not block._pre_hooks then
    param.note(nil, block)
    rawset(block, "_ready", true)
  end
end

-- Whether the traced function has made a parameter of the block, so that each call makes one.
local function is_made_here(block)
  for _, entry in ipairs(discover.entries(block)) do
    if entry.kind == "param" and core.made_here(entry.value) then return true end
  end
  return false
end

-- Inside a trace the parameters get their values outside of it, and the shapes read here are not guarded. In a body that
-- runs as plain Lua they draw them outside of it, as if it was traced.
local function prepare(block, ...)
  if core.tracing() and not core.unlogged(is_made_here, block) then return core.untraced(fill_in, block, ...) end
  if core.in_streams() then return core.outside_streams(fill_in, block, ...) end
  return fill_in(block, ...)
end
core.introspect.jit_off(prepare)  -- see hybrid/trace.lua

local function run_hooks(hooks, ...)
  local snapshot = {}
  for i, hook in ipairs(hooks) do snapshot[i] = hook end
  for _, hook in ipairs(snapshot) do core.unlogged(hook.f, ...) end
end

local function collect(...) return select("#", ...), {...} end

local warn_of_hooks

local function with_hooks(block, ...)
  if block._pre_hooks or block._hooks then warn_of_hooks(block) end
  if block._pre_hooks then run_hooks(block._pre_hooks, block, {...}) end
  if not block._hooks then return pass(block:forward(...)) end
  local count, outputs = collect(block:forward(...))
  local shown = outputs
  if count == 1 then shown = outputs[1] end
  run_hooks(block._hooks, block, {...}, shown)
  return unpack(outputs, 1, count)
end

-- Warns once that the hooks of a block inside a traced one run during the trace only.
function warn_of_hooks(block)
  if not core.tracing() or block._hooks_told then return end
  rawset(block, "_hooks_told", true)
  core.warn(block._name .. ": the hooks of a block inside a hybridized one run only while the graph is made")
end

-- By forward of the library: the most inputs that it takes, or false where it takes any number.
local most_inputs = setmetatable({}, {__mode = "k"})

-- Raises if a layer of the library gets more inputs than its forward takes. Lua would drop the others.
local function check_inputs(block, n, ...)
  local f = block.forward
  if most_inputs[f] == nil then
    local info = getinfo and core.introspect.kind(f) == "library" and not block._any_inputs and getinfo(f, "u")
    most_inputs[f] = info and not info.isvararg and info.nparams > 1 and info.nparams - 1
  end
  local most = most_inputs[f]
  if not most or n <= most or select(most + 1, ...) == nil then return end
  core.fail(block._name, "got %d inputs (expected %s)", n, most == 1 and "1" or "at most " .. most)
end

local outermost, call, adopt
local log = param.log
local graphs = core.graphs

--- calls.owner_of[exec] is the object whose graph `exec` runs. A copy of the object's fields has the same exec.
local owner_of = setmetatable({}, {__mode = "kv"})
calls.owner_of = owner_of

-- The __call of every block. This frame must stay on the stack, since the error handler reads the blocks from there: so
-- no tail calls of forward (see pass). A hybridized block has the function of its graph in _exec (see hybrid.lua).
function call(self, ...)
  if graphs.off == 0 then
    local exec = self._exec
    if exec then
      if owner_of[exec] ~= self then exec = adopt(self) end
      return exec(select("#", ...), ...)
    end
    if graphs.all and self._is_hybrid and not inside then return calls.hybridized(self, ...) end
  end
  if inside ~= (running() or main) then return outermost(self, ...) end
  if select("#", ...) > 1 then core.unlogged(check_inputs, self, select("#", ...), ...) end
  if not self._ready then
    prepare(self, ...)
    if not self._ready then return pass(with_hooks(self, ...)) end
  end
  return pass(self:forward(...))
end

-- Gives a block that was copied from a hybridized one a graph of its own, since that of the other reads the other's fields.
function adopt(block)
  core.require("hybrid").renew(block, "")
  return block._exec
end

local function name_in(parent, child)
  for _, entry in ipairs(discover.entries(parent)) do if entry.value == child then return entry.path end end
  return "<" .. child._name .. ">"
end

-- Returns the blocks that run, innermost first, as {block =, known = whether the stack has the frame of its forward}.
local function blocks_on_stack()
  local chain, level, seen = {}, 2, {}
  while true do
    local info = getinfo(level, "f")
    if not info then break end
    if info.func == call or info.func == calls.body then
      local _, block = getlocal(level, 1)
      chain[#chain + 1] = {block = block, known = seen[block.forward]}
      seen = {}
    else
      seen[info.func] = true
    end
    level = level + 1
  end
  return chain
end

-- Returns "file:first-last" of a function of the script.
local function lines_of(f)
  local info = type(f) == "function" and getinfo(f, "S")
  if not info or info.what == "C" or info.source:find("^@stdlib/") then return nil end
  return ("%s:%d-%d"):format(info.short_src, info.linedefined, info.lastlinedefined)
end

-- Whether the error message begins with a line of the function.
local function has_line(message, f)
  local file, line = message:match("^(.-):(%d+): ")
  local info = getinfo(f, "S")
  line = tonumber(line)
  return file == info.short_src and line >= info.linedefined and line <= info.lastlinedefined
end

-- Returns where in the outermost block the error is: the path of the innermost block and the name of its class, and the
-- lines of the innermost forward of a script if its frame is lost, because it ended in a tail call.
local function describe_place(message)
  local chain, names, parts = blocks_on_stack(), {}, {}
  for i = #chain - 1, 1, -1 do names[#names + 1] = name_in(chain[i + 1].block, chain[i].block) end
  if names[1] then parts[1] = "block '" .. table.concat(names, ".") .. "', " .. chain[1].block._name end
  for i, item in ipairs(chain) do
    local lines = lines_of(item.block.forward)
    if lines then
      if item.known or has_line(message, item.block.forward) then break end
      parts[1] = parts[1] or "block " .. item.block._name
      parts[2] = (i > 1 and "called in forward at " or "forward at ") .. lines
      break
    end
  end
  return parts[1] and " (in " .. table.concat(parts, ", ") .. ")"
end

-- Returns the innermost block that runs, and the first argument of its forward if that is on the stack.
local function innermost()
  local level, callee = 3, nil
  while true do
    local info = getinfo(level, "f")
    if not info then return nil end
    if info.func == call or info.func == calls.body then
      local _, block = getlocal(level, 1)
      local _, x = getlocal(level, -1)
      if x == nil and callee == block.forward then _, x = getlocal(level - 1, 2) end
      return block, x
    end
    level, callee = level + 1, info.func
  end
end

-- Returns the error of a layer whose input does not go with the shapes of its parameters in terms of that input, or nil.
local function explain_input(message, block, x)
  if not rawget(getmetatable(block), "_library") or not block.infer_shape or not core.is_tensor(x) then return nil end
  local fits, text
  if core.tracing() then fits, text = core.untraced(param.fits, block, x) else fits, text = param.fits(block, x) end
  if text then return text:find(block._name .. ": bad argument", 1, true) and text or nil end
  local size = not fits and block:describe():match("^%d+")
  if not size then return nil end
  local place = message:match("^(.-)[%w_]+: bad argument")  -- a trace adds the place later
  return ("%s%s: bad argument 'x' (expected %s %s, got %s)"):format(place, block._name, size, block._sizes or "features", core.describe(x))
end

-- Returns the message in terms of the block that fails.
local function in_terms_of_block(message)
  local block, x = innermost()
  if not block or not message:find("bad argument", 1, true) then return message end
  if block._late then
    message = message:gsub("call initialize%(%) before the first call: net:initialize%(%)",
                           "its block was made in forward; make blocks in init, where initialize() finds them")
  end
  local ok, text = pcall(explain_input, message, block, x)
  return ok and text or message
end

-- Returns the message of a graph that does not take the sizes of its arguments with what to write instead.
local function with_remedy(message)
  if not message:find("the script read size %d+ of dim %d+, now it is") then return message end
  return message .. "; " .. core.require("support.hint").of_size
end

local function explain(message)
  if type(message) == "string" and message ~= told and getlocal then
    message = with_remedy(in_terms_of_block(message))
    local ok, place = pcall(describe_place, message)
    told = ok and place and message .. place or message
    message = told
  end
  return core.keep_traceback(message)
end

local function finish(before, ok, ...)
  inside = before
  log.depth = log.depth - 1
  if not ok or log[1] then param.settle(ok) end
  if not ok then core.reraise((select(1, ...))) end
  return ...
end

function outermost(self, ...)
  local before = inside
  inside = running() or main
  log.depth = log.depth + 1
  return finish(before, xpcall(call, explain, self, ...))
end

calls.call = call

-- Runs forward of a block that is being traced, without its hooks, which run around the graph (see calls.hooked).
function calls.body(self, ...)
  if select("#", ...) > 1 then core.unlogged(check_inputs, self, select("#", ...), ...) end
  if not self._ready then prepare(self, ...) end
  return pass(self:forward(...))
end

--- calls.runs() -> whether a block runs now in this coroutine.
function calls.runs() return inside == (running() or main) end

--- calls.traced(block, …) runs the block as Lua: during a trace, and for a hybridized block that has no graph.
function calls.traced(self, ...)
  local before = inside
  inside = running() or main
  log.depth = log.depth + 1
  return finish(before, xpcall(calls.body, explain, self, ...))
end

-- What calls of outermost blocks do after pg.testing.hybridize_all(true).
function calls.hybridized(self, ...)
  graphs.all = false
  local ok = not rawget(self, "_no_graph") and pcall(self.hybridize, self)
  graphs.all = true
  if not ok then
    rawset(self, "_no_graph", true)
    return outermost(self, ...)
  end
  return call(self, ...)
end

--- calls.hooked(block, exec) -> exec with the block's hooks around it.
function calls.hooked(block, exec)
  if not block._hooks and not block._pre_hooks then return exec end
  return function(n, ...)
    if block._pre_hooks then run_hooks(block._pre_hooks, block, {...}) end
    local count, outputs = collect(exec(n, ...))
    local shown = outputs
    if count == 1 then shown = outputs[1] end
    if block._hooks then run_hooks(block._hooks, block, {...}, shown) end
    return unpack(outputs, 1, count)
  end
end

local Handle = {}
Handle.__index = Handle

--- handle:detach() removes the hook.
function Handle:detach()
  local hooks = self.block[self.field]
  for i, hook in ipairs(hooks or {}) do
    if hook == self then
      table.remove(hooks, i)
      break
    end
  end
  if hooks and #hooks == 0 then rawset(self.block, self.field, nil) end
  rawset(self.block, "_ready", nil)
  calls.hooks_changed(self.block)
end

-- Sets the call of a hybridized block anew, with its present hooks.
function calls.hooks_changed(block)
  local graph = core.shown(rawget(block, "_graphs"))
  if graph then graph.on_exec(graph.exec) end
end

--- calls.add_hook(block, field, f) -> a handle; field is "_hooks" or "_pre_hooks".
function calls.add_hook(block, field, f)
  local hooks = rawget(block, field)
  if not hooks then
    hooks = {}
    rawset(block, field, hooks)
  end
  local handle = setmetatable({block = block, field = field, f = f}, Handle)
  hooks[#hooks + 1] = handle
  rawset(block, "_ready", nil)
  calls.hooks_changed(block)
  return handle
end

return calls
