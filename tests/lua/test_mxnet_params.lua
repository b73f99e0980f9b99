-- The .params files of MXNet.
local t = require "tests.support"
local json = require "tests.json"
local file = require "tests.params_file"
local pg = require "perigee"

local u32, u64 = file.u32, file.u64

local function load(bytes) return pg.load(t.write(t.tmp "x.params", bytes)) end

local function same(got, expected, what)
  t.equal({got.dtype, got.shape, got:to_bytes()}, {expected.dtype, expected.shape, expected:to_bytes()}, what)
end

local dtypes = {"bool", "uint8", "int8", "int32", "int64", "float16", "bfloat16", "float32", "float64"}

t.test("all dtypes in all versions of a record", function()
  for version = 0, 3 do
    local records, tensors = {}, {}
    for i, dtype in ipairs(dtypes) do
      tensors[i] = pg.tensor{{1, 0, 1}, {0, 1, 1}}:to(dtype)
      records[i] = file.array(tensors[i], version)
    end
    local list = load(file.file(records))
    t.equal(#list, #dtypes)
    for i, x in ipairs(list) do same(x, tensors[i], "version " .. version .. ", " .. dtypes[i]) end
    local named = load(file.file(records, dtypes))
    for i, dtype in ipairs(dtypes) do same(named[dtype], tensors[i], dtype) end
  end
end)

t.test("0-dim and empty arrays, and those without a shape", function()
  same(load(file.file{file.array(pg.tensor(2.5), 3)})[1], pg.tensor(2.5))
  for version = 0, 3 do same(load(file.file{file.array(pg.zeros(0, 3), version)})[1], pg.zeros(0, 3)) end
  local none = pg.zeros(0)
  local version = {u32(0xF993FAC8), u32(0xF993FAC9) .. u32(0), u32(0xF993FACA) .. u32(0)}
  for _, record in ipairs{u32(0), version[1] .. u32(0), version[2] .. u32(0), version[3] .. u32(-1), version[3] .. u32(2) .. u64(3) .. u64(-1)} do
    local list = load(file.file{record, file.array(pg.ones(2), 2)})
    same(list[1], none)
    same(list[2], pg.ones(2))
  end
  t.equal(load(file.file{}), {})
end)

local function index(list, dtype) return pg.tensor(list, {dtype = dtype or "int64"}) end

t.test("sparse arrays become dense", function()
  local rows = pg.tensor{{1, 2}, {3, 4}}
  same(load(file.file{file.sparse({4, 2}, rows, {index{1, 3}})})[1], pg.tensor{{0, 0}, {1, 2}, {0, 0}, {3, 4}})
  same(load(file.file{file.sparse({3, 2}, pg.zeros(0, 2), {index{}})})[1], pg.zeros(3, 2))
  local data = pg.tensor({5, 6, 7}, {dtype = "float64"})
  same(load(file.file{file.sparse({3, 4}, data, {index({0, 1, 1, 3}, "int32"), index{2, 0, 3}})})[1],
       pg.tensor({{0, 0, 5, 0}, {0, 0, 0, 0}, {6, 0, 0, 7}}, {dtype = "float64"}))
end)

t.test("a file cut at any byte, or with trailing ones, is refused", function()
  local whole = file.file({file.array(pg.ones(2, 3), 2), file.sparse({3, 4}, pg.ones(1), {index{0, 0, 1, 1}, index{2}}), file.array(pg.ones(2), 0)}, {"a", "b", "c"})
  load(whole)
  local path = t.tmp "x.params"
  for n = 0, #whole - 1 do t.error_contains(function() load(whole:sub(1, n)) end, ": load: " .. path .. ": at byte ") end
  t.error_contains(function() load(whole .. "x") end, ("at byte %d: trailing bytes"):format(#whole))
end)

t.test("what is malformed or not supported is an error", function()
  local v2 = u32(0xF993FAC9)
  local device = u32(1) .. u32(0)
  local x, big = file.array(pg.ones(2), 2), u64(2 ^ 50)
  local function one(record) return file.file{record} end
  local start = u64(0x112) .. u64(0)
  for _, case in ipairs{
    {"not a file of arrays at all", "at byte 0: not a .params file of MXNet"},
    {start .. big .. x, "at byte 16: 1125899906842624 arrays are more than the file can hold"},
    {start .. u64(5) .. x, "the file ends within array 2 of 5"},
    {one(v2 .. u32(0) .. u32(1) .. big .. device .. u32(0)), "array 1 of 1: float32 1125899906842624 takes 4503599627370496 bytes, the file has 8"},
    {one(v2 .. u32(0) .. u32(2) .. big .. big .. device .. u32(0)), "has too many elements"},
    {one(v2 .. u32(0) .. u32(2) .. u64(-2) .. u64(1) .. device .. u32(0)), "a dim of -2"},
    {one(v2 .. u32(0) .. u32(1) .. u64(-1) .. device .. u32(0)), "a dim of -1"},
    {one(v2 .. u32(0) .. u32(-1)), "-1 dims"},
    {one(v2 .. u32(0) .. u32(40)), "40 dims (at most 12 expected)"},
    {one(v2 .. u32(3) .. u32(1)), "the unknown kind of storage 3"},
    {one(u32(0xF993FACA) .. u32(1) .. u32(1)), "a sparse array in a record of version 3"},
    {one(u32(77)), "0x0000004d is neither the version of an array nor a number of dims"},
    {one(v2 .. u32(0) .. u32(1) .. u64(1) .. device .. u32(13)), "the unknown dtype 13"},
    {one(v2 .. u32(0) .. u32(1) .. u64(1) .. device .. u32(-1)), "the unknown dtype -1"},
    {one(v2 .. u32(0) .. u32(1) .. u64(1) .. device .. u32(8) .. "ab"), "the dtype int16 is not supported"},
    {one(v2 .. u32(0) .. u32(1) .. u64(1) .. device .. u32(7) .. "\2"), "has a bool of value 2"},
    {file.file({x, x}, {"a"}), "1 names for 2 arrays"},
    {file.file({x, x}, {"a", "a"}), "duplicate name 'a'"},
    {start .. u64(1) .. x .. u64(1) .. big .. "a", "a name of 1125899906842624 bytes, the file has 1"},
    {one(file.sparse({2 ^ 30, 2}, pg.ones(1, 2), {index{1}})), "far larger than the file"},
    {one(file.sparse({2, 2, 2}, pg.ones(1), {index{0, 1, 1}, index{0}})), "a csr array of shape 2x2x2 with 1 dims of data"},
    {one(file.sparse({2 ^ 40, 2 ^ 40}, pg.ones(1), {index{0}, index{0}})), "has too many elements"},
    {one(file.sparse({4, 2}, pg.ones(2, 3), {index{1, 2}})), "rows of shape"},
    {one(file.sparse({4, 2}, pg.ones(1, 2), {index{4}})), "the index 4 (expected 0 to 3)"},
    {one(file.sparse({4, 2}, pg.ones(1, 2), {index{-1}})), "the index -1"},
    {one(file.sparse({4, 2}, pg.ones(1, 2), {pg.tensor{1}})), "indices of dtype float32"},
    {one(file.sparse({4, 2}, pg.ones(2, 2), {index{1}})), "indices of shape"},
    {one(file.sparse({2, 2}, pg.ones(1), {index{0, 2, 1}, index{0}})), "the index 2 (expected 0 to 1)"},
    {one(file.sparse({3, 2}, pg.ones(1), {index{0, 1, 0, 1}, index{0}})), "do not ascend"},
  } do
    t.error_contains(function() load(case[1]) end, case[2])
  end
end)

t.test("the fixtures, bit for bit", function()
  local folder = t.shared("data/fixtures/mxnet_params/")
  local count = 0
  for _, case in ipairs(json.read(folder .. "manifest.json").files) do
    if case.must_fail then
      t.error_contains(function() pg.load(folder .. case.file) end, "at byte")
    else
      local got, expected = pg.load(folder .. case.file), pg.load(folder .. case.expected)
      for i, array in ipairs(case.arrays) do
        local x = case.names == json.null and got[i] or got[array.key]
        same(x, expected[array.key], case.file .. ": " .. array.key)
        count = count + 1
      end
    end
  end
  t.check(count >= 17, count)
end)

t.test("load_parameters counts the children of a Sequential from 0 on, as MXNet does", function()
  local folder = t.shared("data/fixtures/mxnet_params/")
  local net = pg.nn.HybridSequential{pg.nn.Dense(8, {activation = "relu"}), pg.nn.Dense(3)}
  net:load_parameters(folder .. "mlp_blocks.params")
  t.close(net(pg.load(folder .. "mlp_blocks-input.npy")), pg.load(folder .. "mlp_blocks-output.npy"), {rtol = 1e-4, atol = 1e-5})
  t.error_contains(function() net:load_parameters(folder .. "list.params") end, "load_parameters: " .. folder .. "list.params: holds a list")
  t.error_contains(function() net:load_parameters(folder .. "dict.params") end, "dict.params lacks the parameter '1.weight'")
end)

t.test("names of exports, in load_parameters and pg.init.Load", function()
  local weight, bias = pg.rand(2, 3), pg.rand(2)
  local records = {file.array(weight, 2), file.array(bias, 1)}
  local path = t.write(t.tmp "e.params", file.file(records, {"arg:weight", "aux:bias"}))
  local net = pg.nn.Dense(2)
  net:load_parameters(path)
  same(net.weight, weight)
  same(net.bias, bias)
  local other = pg.nn.Dense(2, {in_units = 3}):initialize(pg.init.Load(path))
  same(other.weight, weight)
  t.equal(pg.load(path)["arg:weight"] ~= nil, true)
  t.write(path, file.file(records, {"arg:weight", "weight"}))
  t.error_contains(function() net:load_parameters(path) end, "holds two arrays for 'weight'")
end)
