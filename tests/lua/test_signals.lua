-- The program under a timer whose signals run on the thread's own stack. tests/vm/test_signals.cpp tests the same in a
-- host.
local t = require "tests.support"

t.test("timer signals during library code do not change results", function()
  t.skip_in("gcstress", "signals do not depend on collections")
  t.skip_in("guard", "a process of its own")
  t.skip_in("hybrid", "a process of its own")
  local out, err, code = t.run("-", [[
    package.path = "?.lua;" .. package.path
    local ffi = require "ffi"
    ffi.cdef "struct timer { long every_s, every_us, first_s, first_us; }; int setitimer(int, const struct timer*, void*); void* signal(int, void*); int abs(int);"
    ffi.C.signal(14, ffi.cast("void*", ffi.C.abs))  -- a handler that does nothing
    local work = require "tests.signals"
    ffi.C.setitimer(0, ffi.new("struct timer", 0, 500, 0, 500), nil)
    for _, piece in ipairs(work) do
      for _ = 1, 10 do piece.run() end
    end
    print(#work > 0 and "done")
  ]])
  t.equal({out, code}, {"done\n", 0}, err)
end)
