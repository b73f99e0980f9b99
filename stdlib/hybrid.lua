-- Hybridized blocks and jitted functions: calls that run native graphs instead of Lua.
local core = ...
local args = core.require("support.args")
local argument_types = core.require("nn.argument_types")
local caches = core.require("hybrid.cache")
local calls = core.require("nn.block_call")
local discover = core.require("nn.discover")
local is_param = core.require("param").is
local hybrid = {}

local rawget, rawset, select, setmetatable = rawget, rawset, select, setmetatable
local graphs = core.graphs

-- Hybridized blocks ----------------------------------------------------------------------------------------------------------

-- Warns of parameters that the graph uses but that the block does not hold: no trainer and no file would include them. Those
-- that a caller passes are inputs.
local function check_parameters(block, name, entry)
  local found, missing = {}, {}
  for _, p in ipairs(discover.parameters(block)) do found[p.tensor] = true end
  for _, input in ipairs(entry.inputs) do
    if is_param(input.box) and not found[input.box] and not input.given then
      missing[#missing + 1] = input.box.name and "'" .. input.box.name .. "'" or "in " .. (input.place or "a variable")
    end
  end
  if missing[1] then
    core.warn(("%s: forward uses the parameter%s %s, which no field of the block leads to: it is neither trained nor saved with the block"):format(
      name, missing[2] and "s" or "", table.concat(missing, ", ")))
  end
end

-- Records the types of a traced call for an export. That makes no guards on sizes. Bad arguments are reported elsewhere.
local function note_types(subject, ...)
  if core.tracing() then pcall(core.untraced, argument_types.note, subject, ...) end
end

-- Makes calls of the block run exec.
local function set_exec(block, exec)
  rawset(block, "_exec", exec)
  calls.owner_of[exec] = block
end

-- Returns the cache of the block, if it is not the one of a block that this one was copied from.
local function cache_of(block)
  local cache = core.shown(rawget(block, "_graphs"))
  return cache and cache.root == block and cache or nil
end

local function make_cache(block, name, options)
  local cache
  cache = caches.new{
    root = block, label = "self", name = name,
    options = {name = name, static_alloc = options.static_alloc, static_shape = options.static_shape},
    body = function(...)
      note_types(block, ...)
      return calls.traced(block, ...)
    end,
    on_trace = function(entry)
      if cache.traces == 1 then check_parameters(block, name, entry) end
    end,
    on_exec = function(exec)
      if cache and core.shown(rawget(block, "_graphs")) ~= cache then return end  -- a hook has dropped the graphs
      set_exec(block, calls.hooked(block, exec))
    end,
  }
  rawset(block, "_graphs", core.hide(cache))  -- places in it lead to the library's variables
  return cache
end

--- hybrid.attach(block, options, path) makes calls of the block run graphs, or run as Lua again if options.active is
--- false.
function hybrid.attach(block, options, path)
  rawset(block, "_graphs", nil)
  rawset(block, "_exec", nil)
  rawset(block, "_hybrid", options.active and options or nil)
  if not options.active then return end
  local name = block._name .. (path ~= "" and " '" .. path .. "'" or "")
  set_exec(block, function(n, ...) return calls.hooked(block, make_cache(block, name, options).exec)(n, ...) end)
end

--- hybrid.renew(block, path) drops the graphs of a hybridized block, so that the next call traces forward again.
function hybrid.renew(block, path) hybrid.attach(block, block._hybrid, path) end

--- hybrid.info(block) -> see Block:cache_info.
function hybrid.info(block)
  local cache = cache_of(block)
  if cache then return cache:info() end
  return {traces = 0, specializations = 0, hits = 0}
end

-- The text of a graph, with methods.
local Text = {}
Text.__index = Text
Text.__tostring = function(self) return self.text end
Text.__concat = function(a, b) return tostring(a) .. tostring(b) end

--- graph:dot() -> the graph for Graphviz.
function Text:dot() return self.program:dot() end

--- graph:optimized() -> the text of the graph that the last run executed, after all passes.
function Text:optimized() return self.program:graph("optimized") end

local function show_graph(op, cache)
  local entry = cache and cache.order[1]
  if not entry and cache and cache.traces > 0 then
    core.fail(op, "the graph was dropped%s; call the block or function once", cache.last_retrace and ", since " .. cache.last_retrace or "")
  end
  if not entry then core.fail(op, "there is no graph yet: hybridize the block and call it once") end
  return setmetatable({program = entry.program, text = entry.program:graph()}, Text)
end

--- hybrid.graph(block) -> see Block:graph.
function hybrid.graph(block) return show_graph("graph", cache_of(block)) end

-- Functions ------------------------------------------------------------------------------------------------------------------

local Jitted = {_library = true, _untraced = {cache = true, exec = true}}
Jitted.__index = Jitted
Jitted.__tostring = function() return "a function with a graph" end

function Jitted.__call(self, ...)
  if graphs.off > 0 then return self.f(...) end
  return self.exec(select("#", ...), ...)
end

--- f:cache_info() -> {traces=, specializations=, hits=, last_retrace=} of a function made by pg.jit.
function Jitted:cache_info() return core.shown(self.cache):info() end

--- f:graph() -> the last trace of f as text with types and script lines.
function Jitted:graph() return show_graph("graph", core.shown(self.cache)) end

--- f:export(path[, {epoch =, inputs =}]) writes the graph of a function made by pg.jit to path.json and the tensors that
--- it reads to path.safetensors, and returns both paths. A host runs it without Lua, see perigee_model_load; a training
--- step keeps its parameters, the states of its trainers and their numbers of updates, and the tensors that it replaces.
--- Learning rates, pg.live and numbers are constants. inputs: the arguments to trace with; by default they have the types of the call that was traced last. Raises
--- if the rate follows a schedule.
function Jitted:export(path, opts)
  args.self("export", self, "step")
  return core.require("nn.export").step(self, path, opts)
end

local jit_options = {static_alloc = true, static_shape = false, name = args.none}

--- pg.jit(f[, {static_alloc=, static_shape=, name=}]) -> a callable with cache_info() and graph() that runs f as a
--- native graph. f takes and returns tensors, numbers, booleans, strings and trees of them. f may be a whole training
--- step. What f reads is guarded, see Block:hybridize. Raises if f reads the value of a tensor. If no graph can repeat what
--- f does, f runs as plain Lua and a warning says why. The call that finds out starts again, so what it prints or writes to
--- files happens twice.
--- Example: local f = pg.jit(function(x) return (x + 1):relu() end)
--- return f(pg.tensor{-3, 1})
function hybrid.jit(f, opts)
  args.callable("jit", "f", f)
  opts = args.options("jit", opts, jit_options)
  args.boolean("jit", "static_alloc", opts.static_alloc)
  args.boolean("jit", "static_shape", opts.static_shape)
  local name = opts.name and args.string("jit", "name", opts.name)
  if not name then name = type(f) == "function" and "function at " .. core.introspect.where(f) or tostring(f) end
  local jitted = {f = f}
  jitted.cache = core.hide(caches.new{
    root = f, label = "f", name = name, options = {name = name, static_alloc = opts.static_alloc, static_shape = opts.static_shape},
    body = function(...)
      note_types(jitted, ...)
      return f(...)
    end,
    on_exec = function(exec) jitted.exec = exec end,
  })
  return setmetatable(jitted, Jitted)
end

-- Turns the compiler of LuaJIT off if a debugger has set a hook, since compiled code calls no hooks. Returns whether it
-- was on.
local function stop_compiler()
  local hook = debug and debug.gethook and debug.gethook()
  local jit = rawget(_G, "jit")
  if type(hook) ~= "function" or not jit or not jit.status() then return false end
  jit.off()
  jit.flush()
  return true
end

local function leave(compiled, ok, ...)
  graphs.off = graphs.off - 1
  if compiled then rawget(_G, "jit").on() end
  if not ok then core.reraise((select(1, ...))) end
  return ...
end

--- pg.debug(f, …) -> what f(…) returns, run with graphs off: hybridized blocks and jitted functions run as plain Lua,
--- and every value can be read. The branch that a cond does not take is traced only, to check it and to keep the random
--- numbers the same. A first step of a loop that infers the shapes of parameters draws other random numbers than a graph. A
--- debugger that has set a hook (debug.sethook) sees every line of a forward; LuaJIT's compiler is off meanwhile.
function hybrid.debug(f, ...)
  args.callable("debug", "f", f)
  graphs.off = graphs.off + 1
  return leave(stop_compiler(), xpcall(f, core.keep_traceback, ...))
end

hybrid.live = core.require("hybrid.run_hooks").number

return hybrid
