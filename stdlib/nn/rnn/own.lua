-- Graphs of their own for loops of the library that run outside of any graph: a combinator keeps graphs for functions of the script only
-- and would make a new one at each call.
local core = ...
local own = {}

local rawget, rawset, select = rawget, rawset, select
local graphs = core.graphs

--- own.free() -> whether a loop that starts now would stand alone: no trace is under way and graphs are on.
function own.free() return graphs.off == 0 and not core.tracing() end

local function make(root, name, f, on_exec)
  return core.require("hybrid.cache").new{
    root = root, label = "self", name = name, options = {name = name}, quiet = true, body = f, on_exec = on_exec,
  }
end

--- own.call(block, field, f, …) -> what f(block, …) returns, as a graph whose function stays in the block's field (its class names
--- the field in _untraced).
function own.call(block, field, f, ...)
  if not own.free() then return f(block, ...) end
  local exec = rawget(block, field)
  if not exec then
    make(block, block._name, function(...) return f(block, ...) end, function(new) rawset(block, field, new) end)
    exec = rawget(block, field)
  end
  return exec(select("#", ...), ...)
end

local functions = {}

--- own.run(key, f, …) -> what f(…) answers, as a graph that serves all calls with this key, which says all that f holds.
function own.run(key, f, ...)
  if not own.free() then return f(...) end
  local site = functions[key]
  if not site then
    site = {}
    functions[key] = site
    make({}, key, f, function(exec) site.exec = exec end)
  end
  return site.exec(select("#", ...), ...)
end

return own
