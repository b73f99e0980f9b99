-- Loops of many shapes with all passes, with each of those for loops off, and as plain Lua: results and gradients.
local t = require "tests.support"
local bodies = require "tests.loop_bodies"

t.test("bodies that passes take apart", function() bodies.check_all() end)

local script = [[
package.path = "./?.lua;" .. package.path
require("tests.loop_bodies").check_all()
]]

t.test("the same with each pass switched off", function() t.without_passes(script) end)
