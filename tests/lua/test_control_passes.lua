-- Loops of many shapes with all passes, with each of those for loops off, and as plain Lua: results and gradients.
local t = require "tests.support"
local bodies = require "tests.loop_bodies"

t.test("bodies that passes take apart", function() bodies.check_all() end)

local script = [[
package.path = "./?.lua;" .. package.path
require("tests.loop_bodies").check_all()
]]

t.test("the same with each pass switched off", function()
  t.skip_in("gcstress", "processes of their own")
  t.skip_in("guard", "processes of their own")
  for _, name in ipairs{"", "steps", "prune", "hoist", "sink", "gather_gradients", "simplify", "cse", "all"} do
    local out, err, code = t.shell(("cd '%s' && PERIGEE_DISABLE_PASSES=%s PERIGEE_VERIFY_PASSES=1 PERIGEE_VERIFY_PLANS=1 '%s' -")
      :format(t.root, name, t.program), script)
    t.check(code == 0, name .. ": " .. out .. err)
  end
end)
