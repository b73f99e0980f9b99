-- Runs f while the process may take at most `bytes` more address space than it has, so that a request for too much is an
-- error at once and not a machine that swaps. Without effect where the address space says nothing (sanitizers reserve it).
local ffi = require "ffi"
ffi.cdef[[
struct pg_test_rlimit { unsigned long now, most; };
int getrlimit(int what, struct pg_test_rlimit *limit);
int setrlimit(int what, const struct pg_test_rlimit *limit);
]]

local kAddressSpace, kPage = 9, 4096

local function address_space()
  local file = io.open("/proc/self/statm")
  if not file then return end
  local pages = file:read("*n")
  file:close()
  return pages * kPage
end

return function(bytes, f, ...)
  local used = address_space()
  if not used or used > 2 ^ 40 then return f(...) end
  local limit = ffi.new("struct pg_test_rlimit")
  ffi.C.getrlimit(kAddressSpace, limit)
  local before = limit.now
  limit.now = used + bytes
  ffi.C.setrlimit(kAddressSpace, limit)
  local ok, e = pcall(f, ...)
  limit.now = before
  ffi.C.setrlimit(kAddressSpace, limit)
  if not ok then error(e, 0) end
end
