-- Hosts in C and the symbols of libperigee.so. tests/vm/test_host.cpp tests the functions of perigee.h.
local t = require "tests.support"

t.skip_in("hybrid", "hosts have states of their own")
t.skip_in("gcstress", "hosts have states of their own")

local folder = t.program:match("^(.*)/[^/]*$") or "."
local function run(command)
  local pipe = assert(io.popen(command .. " 2>&1; echo code $?"))
  local text = pipe:read("*a")
  pipe:close()
  return text
end

t.test("a host of one C file gets the sum of its array", function()
  t.equal(run("'" .. folder .. "/perigee_host_hello'"), "2 4 6, sum 6\ncode 0\n")
end)

t.test("the library exports the functions of perigee.h and luaopen_perigee", function()
  local exported, declared = {}, {}
  for name in run("nm -D --defined-only '" .. folder .. "/libperigee.so'"):gmatch(" [TWBDRV] ([%w_]+)") do
    exported[#exported + 1] = name
  end
  for name in t.read(t.root .. "/vm/include/perigee.h"):gmatch("PERIGEE_API [^;(]-(perigee_[%w_]+)%(") do
    declared[#declared + 1] = name
  end
  declared[#declared + 1] = "luaopen_perigee"
  table.sort(exported)
  table.sort(declared)
  t.equal(table.concat(exported, "\n"), table.concat(declared, "\n"))
end)

t.test("the header compiles as C11 and C++17 without a warning", function()
  local source = t.write(t.tmp("host.c"), '#include <perigee.h>\nint main(void) { return perigee_last_error()->line; }\n')
  for _, command in ipairs{"cc -std=c11 -x c", "c++ -std=c++17 -x c++"} do
    t.equal(run(("%s -Wall -Wextra -pedantic -Werror -fsyntax-only -I'%s/vm/include' '%s'"):format(command, t.root, source)),
      "code 0\n")
  end
end)
