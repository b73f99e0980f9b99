-- Measures the limits of this machine, as rows of a peer: limits.lua THREADS BUDGET [PATTERN]. GEMM uses oneDNN
-- directly. Memory bandwidth is measured on buffers of 1 M floats that are reused: memchr reads, memcpy reads and
-- writes, both make three streams.
local ffi = require "ffi"
ffi.cdef [[
  struct pg_limit_time { long s, ns; };
  int clock_gettime(int, struct pg_limit_time *);
  void *memchr(const void *, int, size_t);
  void *memcpy(void *, const void *, size_t);
  int dnnl_sgemm(char, char, int64_t, int64_t, int64_t, float, const float *, int64_t, const float *, int64_t, float, float *, int64_t);
]]
local threads, budget, pattern = tonumber(arg[1]), tonumber(arg[2]) * 1e6, arg[3] or ""
local stamp = ffi.new("struct pg_limit_time")
local function now()
  ffi.C.clock_gettime(1, stamp)
  return tonumber(stamp.s) * 1e6 + tonumber(stamp.ns) * 1e-3
end

local function case(name, peer, f)
  if not name:find(pattern) then return end
  local times, start = {}, now()
  f()
  repeat
    local t = now()
    f()
    times[#times + 1] = now() - t
  until #times >= 5 and now() - start > budget
  table.sort(times)
  print(string.format('{"name": "%s", "us_min": %.4g, "us_median": %.4g, "n": %d, "threads": %d, "peer": "%s"}', name, times[1],
                      times[math.ceil(#times / 2)], #times, threads, peer))
end

local function floats(n)
  local p = ffi.new("float[?]", n)
  for i = 0, n - 1 do p[i] = i % 7 - 3 end
  return p
end

local ok, dnnl = pcall(ffi.load, "dnnl")
for _, n in ipairs(ok and {512, 1024, 2048} or {}) do
  local a, b, c = floats(n * n), floats(n * n), floats(n * n)
  case("gemm_" .. n, "oneDNN sgemm", function() dnnl.dnnl_sgemm(78, 78, n, n, n, 1, a, n, b, n, 0, c, n) end)
end

local bytes = 2 ^ 22
local a, b = ffi.new("char[?]", bytes), ffi.new("char[?]", bytes)
local function read() return ffi.C.memchr(a, 1, bytes) end
local function copy() ffi.C.memcpy(b, a, bytes) end
local other = ffi.new("char[?]", bytes)
local function three()
  ffi.C.memchr(other, 1, bytes)
  copy()
end
if threads == 1 then
  for _, op in ipairs{"sum", "max", "mean", "argmax"} do case(op .. "_1m", "memory", read) end
  for _, op in ipairs{"relu", "sqrt", "exp", "log", "sin", "tanh", "sigmoid", "erf", "gelu"} do case(op .. "_1m", "memory", copy) end
  for _, op in ipairs{"add", "mul", "div", "maximum"} do case(op .. "_1m", "memory", three) end
end
