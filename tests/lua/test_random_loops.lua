-- Random loops in graphs against plain Lua, with all passes and with each of those for loops off.
local t = require "tests.support"

local script = [[
package.path = "./?.lua;" .. package.path
require("tests.random_loops").check_all(%d, %d)
]]

local function run(setting, first, last)
  local out, err, code = t.shell(("cd '%s' && PERIGEE_VERIFY_PASSES=1 PERIGEE_VERIFY_PLANS=1 %s '%s' -"):format(t.root, setting, t.program),
    script:format(first, last))
  t.check(code == 0, setting .. ": " .. out .. err)
end

t.test("random loops", function()
  t.skip_in("gcstress", "processes of their own")
  t.skip_in("guard", "processes of their own")
  run("", 1, 40)
end)

t.test("random loops with each pass switched off", function()
  t.skip_in("gcstress", "processes of their own")
  t.skip_in("guard", "processes of their own")
  for _, name in ipairs{"steps", "prune", "hoist", "sink", "gather_gradients", "simplify", "fuse", "all"} do
    run("PERIGEE_DISABLE_PASSES=" .. name, 41, 50)
  end
end)
