-- Runs a test as plain Lua and with graphs: local same = require "tests.plain_and_graph".
local t = require "tests.support"
local pg = require "perigee"

local ways = {
  plain = {jit = function(f) return f end, hybridize = function(block) return block end},
  graph = {jit = pg.jit, hybridize = function(block) block:hybridize() return block end},
}

-- Runs make(jit, hybridize) -> a table of results as plain Lua and with graphs, from one seed; the results of both are equal.
return function(make, opts)
  local found = {}
  for name, way in pairs(ways) do
    pg.manual_seed(3)
    found[name] = make(way.jit, way.hybridize)
  end
  t.close(found.graph, found.plain, opts)
  return found.plain
end
