-- Random loops in graphs against plain Lua, with all passes and with each one off.
local t = require "tests.support"
local pg = require "perigee"

local script = [[
package.path = "./?.lua;" .. package.path
require("tests.random_loops").check_all(%d, %d)
]]

t.test("random loops", function() t.without_passes(script:format(1, 40), {""}) end)
t.test("random loops with each pass switched off", function() t.without_passes(script:format(41, 50)) end)

t.test("conditions that draw random numbers draw the same ones in each way", function()
  local function loop(below, draws)
    return function()
      local _, states = pg.while_loop(
        function(i) return (i + pg.rand{}):lt(below) end,
        function(i, s) return nil, {i + 1, draws and s + pg.rand{} or s + 1} end,
        {pg.tensor(0), pg.tensor(0)})
      return states[2], pg.rand{}
    end
  end
  for _, below in ipairs{-1, 0.5, 2, 3.5} do
    for _, draws in ipairs{false, true} do
      local f = loop(below, draws)
      local wanted
      for _, way in ipairs{f, pg.jit(f), function() return pg.debug(f) end} do
        pg.manual_seed(4)
        local found = {way()}
        pg.manual_seed(4)
        found[3] = way()
        for k, x in ipairs(found) do found[k] = x:item() end
        wanted = wanted or found
        t.equal(found, wanted, ("below %g, draws %s"):format(below, tostring(draws)))
      end
    end
  end
end)
