-- The environment in which the CUDA device runs on the fake driver, or false where the build has none.

local folder = (arg and arg[-1] or "build/perigee"):match("^(.*)/[^/]*$") or "."
local library = folder .. "/perigee_fake_cuda.so"
local file = io.open(library, "rb")
if not file then return false end
file:close()
if library:sub(1, 1) ~= "/" then
  local pipe = assert(io.popen("pwd"))
  library = pipe:read("*l") .. "/" .. library
  pipe:close()
end
return {PERIGEE_CUDA_DRIVER = library, PERIGEE_CUDA_NVRTC = library, PERIGEE_CUDA_BLAS = library,
        PERIGEE_CUDA_CUDNN = library, PERIGEE_CUDA_FFT = library, PERIGEE_CUDA_SOLVER = library,
        XDG_CACHE_HOME = os.getenv("PERIGEE_CUDA_HOST_CACHE") or folder .. "/cuda_host_cache", PERIGEE_VERIFY_PLANS = "1"}
