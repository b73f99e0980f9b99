-- Graphs for the library's own loops where they run outside of any graph. A combinator caches graphs only for functions
-- of the script; a loop of the library would be traced again at each call.
local core = ...
local standalone = {}

local rawget, rawset, select = rawget, rawset, select
local graphs = core.graphs
local owner_of = core.require("nn.block_call").owner_of

--- standalone.applies() -> whether a loop that starts now needs its own graph: no trace is in progress and graphs are
--- on.
function standalone.applies() return graphs.off == 0 and not core.tracing() end

local function make(root, name, f, on_exec)
  return core.require("hybrid.cache").new{
    root = root, label = "self", name = name, options = {name = name}, quiet = true, body = f, on_exec = on_exec,
  }
end

--- standalone.call(block, field, f, …) -> what f(block, …) returns, run as a graph. The graph is cached in the block's
--- field `field`, which the class of the block must list in _untraced.
function standalone.call(block, field, f, ...)
  if not standalone.applies() then return f(block, ...) end
  local exec = rawget(block, field)
  if not exec or owner_of[exec] ~= block then
    make(block, block._name, function(...) return f(block, ...) end, function(new)
      rawset(block, field, new)
      owner_of[new] = block
    end)
    exec = rawget(block, field)
  end
  return exec(select("#", ...), ...)
end

local functions = {}

--- standalone.run(key, f, …) -> what f(…) returns, run as a graph that is cached under key. All functions with the same
--- key must compute the same, so key must describe every value that f captures.
function standalone.run(key, f, ...)
  if not standalone.applies() then return f(...) end
  local site = functions[key]
  if not site then
    site = {}
    functions[key] = site
    make({}, key, f, function(exec) site.exec = exec end)
  end
  return site.exec(select("#", ...), ...)
end

return standalone
