-- Runs f while no tensor may be larger than `bytes` and the process may use only that much more address space. A
-- request for too much is then an error at once instead of a machine that swaps. Under sanitizers, which reserve the
-- address space, only tensors are limited.
local ffi = require "ffi"
local testing = require("perigee").testing
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

local function with_address_space(bytes, f, ...)
  local used = address_space()
  if not used or used > 2 ^ 40 then return pcall(f, ...) end
  local limit = ffi.new("struct pg_test_rlimit")
  ffi.C.getrlimit(kAddressSpace, limit)
  local before = limit.now
  limit.now = used + bytes
  ffi.C.setrlimit(kAddressSpace, limit)
  local ok, e = pcall(f, ...)
  limit.now = before
  ffi.C.setrlimit(kAddressSpace, limit)
  return ok, e
end

return function(bytes, f, ...)
  testing.limit_allocation(bytes)
  local ok, e = with_address_space(bytes, f, ...)
  testing.limit_allocation(0)
  if not ok then error(e, 0) end
end
