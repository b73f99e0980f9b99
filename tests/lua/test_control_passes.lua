-- Loops of many forms with all passes, with each loop pass disabled, and as plain Lua: results and gradients.
local t = require "tests.support"
local bodies = require "tests.loop_bodies"

t.test("loops whose bodies passes change equal plain Lua", function() bodies.check_all() end)

local script = [[
package.path = "./?.lua;" .. package.path
require("tests.loop_bodies").check_all()
]]

t.test("loops equal plain Lua with each pass switched off", function() t.without_passes(script) end)
