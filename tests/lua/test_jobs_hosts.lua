-- Hosts in C that run jobs: the game of examples/embed, and the benchmark of jobs. tests/vm/test_host_jobs.cpp tests the
-- functions of perigee.h.
local t = require "tests.support"

t.skip_in("hybrid", "hosts have states of their own")
t.skip_in("gcstress", "hosts have states of their own")

local folder, run = t.build_folder(), t.output_of

t.test("a game trains its controller in slices of its frames", function()
  local text = run("'" .. folder .. "/perigee_host_game' 160 0")
  t.check(text:find("^trained 100 %%, cost [%d.]+, squared distance [%d.]+ at first, [%d.]+ now\ncode 0\n$"), text)
end)

t.test("the benchmark of jobs compiles and runs", function()
  if t.sanitized then t.skip("the libraries of the sanitizers must come first") end
  local program = t.tmp("jobs")
  t.equal(run(("cc -std=c11 -Wall -Wextra -Werror -I'%s/vm/include' '%s/scripts/benchmarks/jobs.c' -o '%s' -L'%s' -lperigee -Wl,-rpath,\"$(cd '%s' && pwd)\"")
    :format(t.root, t.root, program, folder, folder)), "code 0\n")
  for _, arguments in ipairs{"lenet jit", "lstm eager"} do
    local text = run(("'%s' %s 0.05 500 0"):format(program, arguments))
    t.check(text:find("3 frames of 500 us", 1, true) and text:find("code 0\n$"), text)
  end
end)
