-- Random programs in graphs against plain Lua: results, gradients, state and random numbers, with all passes and with
-- each one off.
local t = require "tests.support"
local programs = require "tests.programs"

t.test("random programs", function()
  for seed = 1, t.mode == "gcstress" and 10 or t.takes_all() and 150 or 50 do programs.check(seed) end
end)

t.test("programs in second order", function()
  for seed = 2001, t.mode == "gcstress" and 2005 or t.takes_all() and 2100 or 2030 do programs.check_second(seed) end
end)

t.test("programs from files", function()
  for seed = 3001, t.mode == "gcstress" and 3005 or t.takes_all() and 3100 or 3030 do programs.check_export(seed, t.tmp("program")) end
end)

local script = [[
package.path = "./?.lua;" .. package.path
local programs = require "tests.programs"
for seed = 1001, 1025 do programs.check(seed) end
]]

t.test("programs with each pass switched off", function() t.without_passes(script) end)
