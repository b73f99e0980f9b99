-- end_after(seconds) ends the process as a hang after that many seconds of processor time, by SIGPROF, which the
-- program does not use. 0 cancels this.
local ffi = require "ffi"
ffi.cdef[[
struct pg_fuzz_timer { long every[2], first[2]; };
int setitimer(int which, const struct pg_fuzz_timer *timer, void *old);
]]

return function(seconds) ffi.C.setitimer(2, ffi.new("struct pg_fuzz_timer", {{0, 0}, {seconds, 0}}), nil) end
