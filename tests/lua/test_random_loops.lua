-- Random loops in graphs against plain Lua, with all passes and with each one off.
local t = require "tests.support"

local script = [[
package.path = "./?.lua;" .. package.path
require("tests.random_loops").check_all(%d, %d)
]]

t.test("random loops", function() t.without_passes(script:format(1, 40), {""}) end)
t.test("random loops with each pass switched off", function() t.without_passes(script:format(41, 50)) end)
