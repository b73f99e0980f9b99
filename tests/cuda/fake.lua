-- The fake driver: a table whose fields are its C functions, or false on a GPU and on other devices.
local library = os.getenv("PERIGEE_CUDA_CUDNN")
if not library then return false end
local ffi = require "ffi"
ffi.cdef "void fake_fail(const char*, int, int, int); int fake_calls(const char*);"
return ffi.load(library)
