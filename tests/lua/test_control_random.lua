-- Random nests of cond, foreach, while_loop and loop: all ways against plain Lua, in values, gradients, second
-- derivatives and written state.
local t = require "tests.support"
local programs = require "tests.control_programs"

t.may_warn("traced again for the third time")

local function run(check, first, count)
  if not t.takes_all() then count = math.ceil(count / 4) end
  for seed = first, first + (t.mode == "gcstress" and 1 or count - 1) do check(seed) end
end

t.test("40 programs", function() run(programs.check, 1, 40) end)
t.test("20 programs in second order", function() run(programs.check_second, 1001, 20) end)
t.test("20 programs that draw random numbers", function() run(programs.check_draws, 2001, 20) end)

t.test("20 programs from files", function()
  run(function(seed) programs.check_export(seed, t.tmp("program")) end, 4001, 20)
end)

local script = [[
package.path = "./?.lua;" .. package.path
local programs = require "tests.control_programs"
for seed = 3001, 3005 do programs.check(seed) end
]]

t.test("programs with each pass switched off", function()
  t.skip_in("hybrid", "processes of their own")
  t.without_passes(script, t.sanitized and {"", "all"})
end)
