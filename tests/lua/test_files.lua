-- pg.save and pg.load: saved tensors load again, and a failing call loses nothing.
local t = require "tests.support"
local pg = require "perigee"

t.test("named tensors keep shape, dtype and values in a file", function()
  local path = t.tmp
  local saved = {
    weight = pg.range(1, 6):reshape{2, 3}, ["layers.1.bias"] = pg.tensor({1, -2}, {dtype = "int64"}), mask = pg.tensor{true, false},
    scalar = pg.tensor(2.5), empty = pg.zeros{0, 3}, half = pg.tensor({1.5}, {dtype = "bfloat16"}), ["a\0b"] = pg.ones(1), [3] = pg.ones(1),
    turned = pg.range(1, 6):reshape{2, 3}:t(),
  }
  pg.save(path "t.safetensors", saved)
  local loaded = pg.load(path "t.safetensors")
  local count = 0
  for name, x in pairs(loaded) do
    local y = saved[name] or saved[tonumber(name)]
    t.equal({x.dtype, x.shape, x:totable()}, {y.dtype, y.shape, y:totable()})
    count = count + 1
  end
  t.equal(count, 9)
  pg.save(path "again.safetensors", loaded)
  pg.save(path "list.safetensors", {pg.ones(1), pg.zeros(1), [1e15] = pg.ones(1)})
  t.equal(pg.load(path "list.safetensors"), {["1"] = {1}, ["2"] = {0}, ["1000000000000000"] = {1}})
  t.equal(t.read(path "again.safetensors") == t.read(path "t.safetensors"), true)
end)

t.test("one tensor in an npy file", function()
  local path = t.tmp
  local x = pg.range(1, 6):reshape{2, 3}:t()
  pg.save(path "x.npy", x)
  t.equal(pg.load(path "x.npy"):totable(), x:totable())
  t.error_contains(function() pg.save(path "x.npy", pg.ones(1):to("bfloat16")) end, "npy has no dtype bfloat16")
  t.equal(pg.load(path "x.npy").shape, {3, 2})
end)

t.test("an archive of NumPy's savez_compressed", function()
  local bytes = ([[
    504b03042d0000000800000021004fe9002affffffffffffffff05001400782e6e707901001000980000000000000055000000000000009bec17ea1b10c9c850
    c650ad9e925a9c5ca46ea5a06e9366a2aea3a09e965f54529498179f5f94920a12774bcc294e058a17672416a402f91a463a0ac69a3a0ab50a64032e063068b0
    07120e4004c40d40bcc00100504b03042d000000080000002100f3fd2d11ffffffffffffffff05001400792e6e70790100100084000000000000004800000000
    0000009bec17ea1b10c9c850c650ad9e925a9c5ca46ea5a06e536aa4aea3a09e965f54529498179f5f94920a12774bcc294e058a17672416a402f91a463a9a3a
    0ab50a14002e4686ffff01504b01022d032d0000000800000021004fe9002a5500000098000000050000000000000000000000800100000000782e6e7079504b
    01022d032d000000080000002100f3fd2d11480000008400000005000000000000000000000080018c000000792e6e7079504b05060000000002000200660000
    000b0100000000]]):gsub("%s", ""):gsub("%x%x", function(byte) return string.char(tonumber(byte, 16)) end)
  local file = t.write(t.tmp("a.npz"), bytes)
  local arrays = pg.load(file)
  t.equal(arrays, {x = {{0, 1, 2}, {3, 4, 5}}, y = {1, 65535}})
  t.equal({arrays.x.dtype, arrays.y.dtype}, {"float32", "int32"})
  t.write(file, bytes:sub(1, -2))
  t.error_contains(function() pg.load(file) end, "load: " .. file .. ": at byte 390: the zip archive has no directory at its end")
end)

t.test("unsupported calls are errors that give the reason", function()
  local path = t.tmp
  local p, x = path "t.safetensors", pg.ones(2)
  pg.save(p, {x = x})
  local before = t.read(p)
  local function save(...)
    local args, n = {...}, select("#", ...)
    return function() pg.save(unpack(args, 1, n)) end
  end
  t.error_contains(save(p), "save: bad argument 'tensors' (expected a table of tensors, got nil)")
  t.error_contains(save(p, {1}), "save: bad argument 'tensors['1']' (expected a tensor, got number 1)")
  t.error_contains(save(p, {[x] = x}), "expected names or whole numbers as keys")
  t.error_contains(save(p, {[1.5] = x}), "expected names or whole numbers as keys, got number 1.5")
  t.error_contains(save(p, {["1"] = x, x}), "each name once")
  t.error_contains(save(p, {["\255"] = x}), "not UTF-8")
  t.error_contains(save(p, {["__metadata__"] = x}), "reserved")
  t.error_contains(save(p, x), "a path that ends in .npy")
  t.error_contains(save(path "t.npy", {x = x}), "a path that ends in .safetensors")
  t.error_contains(save(path "t.txt", {x = x}), "a path that ends in")
  t.error_contains(save(path "none/t.npy", x), "No such file or directory")
  t.error_contains(save({}, x), "save: bad argument 'path'")
  t.error_contains(function() pg.load(path "none.npy") end, "none.npy: No such file or directory")
  t.error_contains(function() pg.load() end, "load: bad argument 'path'")
  t.equal(t.read(p) == before, true)
end)

t.test("a cut or changed file is an error with file and position", function()
  local path = t.tmp
  for _, name in ipairs{"t.safetensors", "t.npy"} do
    local p = path(name)
    pg.save(p, name == "t.npy" and pg.range(1, 4) or {x = pg.range(1, 4)})
    local whole = t.read(p)
    for _, bad in ipairs{whole:sub(1, 5), whole:sub(1, -2), whole .. "x", "", "not such a file at all"} do
      t.write(p, bad)
      local ok, e = pcall(pg.load, p)
      t.equal(ok, false)
      t.equal(e:find("load: " .. p .. ": at byte ", 1, true) ~= nil, true, e)
    end
    t.write(p, whole)
    pg.load(p)
  end
end)

t.test("pg.load returns one value for every format", function()
  local x = pg.tensor{1, 2}
  for _, case in ipairs{{"one.safetensors", {a = x}}, {"one.npy", x}} do
    local path = t.tmp(case[1])
    pg.save(path, case[2])
    local n, first = select("#", pg.load(path)), pg.load(path)
    t.equal(n, 1)
    t.equal(first, case[2])
  end
end)

t.test("errors about a file name the function that was called", function()
  local nn = pg.nn
  local net = nn.Dense(1, {in_units = 2}):initialize()
  local trainer, average = pg.optim.Trainer(net, "adam"), pg.optim.EMA(net)
  local json = net:export(t.tmp("model"), {inputs = {pg.ones(1, 2)}})
  local params = net:collect_params()
  local frozen = nn.SymbolBlock.imports(json, "data", t.tmp("model.safetensors"))
  local absent, broken, nowhere = t.tmp("absent.npy"), t.write(t.tmp("broken.npy"), "no tensors"), t.tmp("absent/x.npy")
  local reads = {
    load = pg.load, load_parameters = function(path) net:load_parameters(path) end, Load = pg.init.Load,
    load_states = function(path) trainer:load_states(path) end, imports = nn.SymbolBlock.imports,
  }
  local other_reads = {
    load = function(path) params:load(path) end, load_states = function(path) average:load_states(path) end,
    imports = function(path) nn.SymbolBlock.imports(json, "data", path) end,
  }
  for _, list in ipairs{reads, other_reads} do
    for name, read in pairs(list) do
      t.error_contains(function() read(absent) end, (": %s: %s: No such file"):format(name, absent))
      t.error_contains(function() read(broken) end, (": %s: %s: at byte 0: "):format(name, broken))
    end
  end
  local writes = {
    save = function(path) pg.save(path, pg.ones(1)) end, save_parameters = function(path) net:save_parameters(path) end,
    save_states = function(path) trainer:save_states(path) end, export = function(path) net:export(path) end,
  }
  local other_writes = {
    save = function(path) params:save(path) end, save_states = function(path) average:save_states(path) end,
    export = function(path) frozen:export(path, {inputs = {pg.ones(1, 2)}}) end,
  }
  for _, list in ipairs{writes, other_writes} do
    for name, write in pairs(list) do
      t.error_contains(function() write(nowhere) end, (": %s: %s"):format(name, nowhere))
    end
  end
  t.error_contains(function() pg.init.Load("weights.txt") end, "Load: bad argument 'path' (expected a path that ends in")
  t.error_contains(function() params:load(t.tmp("model.safetensors"), {alow_missing = 1}) end, "load: bad argument 'alow_missing'")
end)

t.test("a file of another format: the message says what it seems to be", function()
  local net = pg.nn.Dense(1, {in_units = 1})
  for kind, bytes in pairs{
    ["a zip archive, which torch.save and numpy.savez write"] = "PK\3\4\20\0\0\0\8\8",
    ["a pickle of Python"] = "\128\2}q\0X\1\0\0\0",
    ["a .npy file, which pg.load reads"] = "\147NUMPY\1\0v\0",
    ["an HDF5 file"] = "\137HDF\r\n\26\n\0\0", ["a gzip archive"] = "\31\139\8\0\0\0\0\0\0\3",
    ["a PNG image"] = "\137PNG\r\n\26\n\0\0\0\rIHDR", ["a JPEG image"] = "\255\216\255\224\0\16JFIF",
    JSON = '{"a": [1, 2]}', text = "weights of the model\n",
  } do
    local file = t.write(t.tmp("weights.safetensors"), bytes)
    t.error_contains(function() net:load_parameters(file) end, "at byte 0: not a safetensors file, but " .. kind .. " (expected safetensors, in")
    t.error_contains(function() pg.load(file) end, kind)
  end
  local file = t.write(t.tmp("weights.safetensors"), "\1\2\3\4\5\6\7\8\9")
  t.error_contains(function() net:load_parameters(file) end, "the header length is 578437695752307201, not from 2 to 100000000")
end)
