-- The benchmark of Gluon's documentation: 1000 passes through a 512-256-128-2 network before and after hybridize, then
-- the same network from files, without the script that made it.
--   perigee examples/hybridize.lua [passes [path]]
local pg = require "perigee"
local nn = pg.nn

local passes = tonumber(arg[1]) or 1000
local ffi = require "ffi"
ffi.cdef "struct example_time { long seconds, nanoseconds; }; int clock_gettime(int, struct example_time *);"
local stamp = ffi.new("struct example_time")
local function now()
  ffi.C.clock_gettime(1, stamp)
  return tonumber(stamp.seconds) + tonumber(stamp.nanoseconds) * 1e-9
end

local function get_net()
  local net = nn.HybridSequential{nn.Dense(256, {activation = "relu"}), nn.Dense(128, {activation = "relu"}), nn.Dense(2)}
  net:initialize()
  return net
end

local function bench(net, x)
  net(x)  -- the first pass infers the shapes, or makes the graph
  local start = now()
  for _ = 1, passes do net(x) end
  return now() - start
end

pg.set_num_threads(1)
pg.manual_seed(1)
local x = pg.randn(1, 512)
local net = get_net()
print("=== net(x) ===")
print(net(x))

local before = bench(net, x)
print(string.format("before hybridizing: %.4f s, %.2f µs per pass", before, before / passes * 1e6))
net:hybridize()
local after = bench(net, x)
print(string.format("after hybridizing:  %.4f s, %.2f µs per pass", after, after / passes * 1e6))
print("=== net(x) ===")
print(net(x))
print("=== the graph ===")
print(net:graph())

local info = net:cache_info()
print(string.format("traced %d time(s), %d passes did not enter Lua", info.traces, info.hits))

-- Exports the graph to path.json and path.safetensors and runs it without the script that made it.
local path = arg[2] or os.tmpname()
local model, weights = net:export(path)
local imported = nn.SymbolBlock.imports(model, {"data"}, weights)
imported:hybridize()
print(string.format("imported: the same result: %s, %.2f µs per pass", tostring(imported(x):allclose(net(x))), bench(imported, x) / passes * 1e6))
if not arg[2] then for _, file in ipairs{path, model, weights} do os.remove(file) end end
