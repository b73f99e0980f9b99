-- Writes the initial corpus of libFuzzer: build/perigee tests/fuzz/seeds.lua FOLDER. Each target gets a folder of small
-- files, such as FOLDER/graph/…, and a dictionary, such as FOLDER/graph.dict.
local root = arg[0]:match("^(.*)/tests/fuzz/seeds%.lua$") or "."
package.path = root .. "/?.lua;" .. package.path
local pg = require "perigee"
local params = require "tests.params_file"
local folder = assert(arg[1], "usage: seeds.lua FOLDER")

local function quote(s) return "'" .. s:gsub("'", "'\\''") .. "'" end

local function read(path)
  local file = assert(io.open(path, "rb"))
  local text = file:read("*a")
  file:close()
  return text
end

local function write(path, text)
  local file = assert(io.open(path, "wb"))
  file:write(text)
  file:close()
end

for target in io.popen("ls " .. quote(root .. "/tests/fuzz")):read("*a"):gmatch("load_(%w+)%.cpp") do
  os.execute("mkdir -p " .. quote(folder .. "/" .. target))
end
pg.manual_seed(1)

-- Tensors -----------------------------------------------------------------------------------------------------------

local dtypes = {"bool", "uint8", "int8", "int32", "int64", "float16", "bfloat16", "float32", "float64"}
local shapes = {{}, {0}, {3}, {2, 3}, {1, 0, 4}, {2, 1, 3, 2}}

for k, shape in ipairs(shapes) do
  for i, dtype in ipairs(dtypes) do
    local x = (pg.rand(shape) * 2):to(dtype)
    local name = folder .. "/npy/" .. dtype .. k
    if dtype ~= "bfloat16" then pg.save(name .. ".npy", x) end
    if i % 3 == k % 3 then
      pg.save(folder .. "/safetensors/" .. dtype .. k .. ".safetensors", {a = x, ["b.weight"] = pg.ones(2),
        c = x:to("float32")})
    end
  end
end

for version = 0, 3 do
  local records, named = {}, {}
  for i, dtype in ipairs(dtypes) do
    local shape = shapes[i % #shapes + 1]
    records[i] = params.array(pg.rand(#shape == 0 and version < 3 and {1} or shape):to(dtype), version)
    named[i] = dtype
  end
  write(folder .. "/params/list" .. version, params.file(records))
  write(folder .. "/params/dict" .. version, params.file(records, named))
end
local function index(list) return pg.tensor(list, {dtype = "int64"}) end
write(folder .. "/params/sparse", params.file{params.sparse({4, 2}, pg.ones(2, 2), {index{1, 3}}),
  params.sparse({3, 4}, pg.ones(3), {index{0, 1, 1, 3}, index{2, 0, 3}})})

local function big_endian(n) return string.char(math.floor(n / 2 ^ 24) % 256, math.floor(n / 2 ^ 16) % 256,
  math.floor(n / 256) % 256, n % 256) end

local function little_endian(n, bytes) return big_endian(n):reverse():sub(1, bytes) end

for code, size in pairs{[0x08] = 1, [0x09] = 1, [0x0B] = 2, [0x0C] = 4, [0x0D] = 4, [0x0E] = 8} do
  local data = ("\1\2\3\4\5\6"):rep(size)
  write(folder .. "/idx/" .. code .. "-1", "\0\0" .. string.char(code, 1) .. big_endian(6) .. data)
  write(folder .. "/idx/" .. code .. "-3", "\0\0" .. string.char(code, 3) .. big_endian(1) .. big_endian(2)
    .. big_endian(3) .. data)
end
for _, format in ipairs{"npy/float323.npy", "idx/8-1"} do
  local path = quote(folder .. "/" .. format)
  os.execute("gzip -c " .. path .. " > " .. path .. ".gz 2>/dev/null")
end

-- Archives. gzip knows the checksum of an array, its size and its deflated bytes.
for method, archive in pairs{[0] = "stored", [8] = "deflated"} do
  local members, directory, count = "", "", 0
  for _, name in ipairs{"float323", "int644", "bool1"} do
    local path = folder .. "/npy/" .. name .. ".npy"
    os.execute(("gzip -nc %s > %s"):format(quote(path), quote(path .. ".gz")))
    local array, zipped = read(path), read(path .. ".gz")
    local packed = method == 8 and zipped:sub(11, -9) or array
    local about = ("\20\0\0\0%s\0\0\0\0\0%s%s%s%s\0\0"):format(string.char(method), zipped:sub(-8, -5),
      little_endian(#packed, 4), zipped:sub(-4), little_endian(#name + 4, 2))
    directory = directory .. "PK\1\2\20\0" .. about .. ("\0"):rep(10) .. little_endian(#members, 4) .. name .. ".npy"
    members = members .. "PK\3\4" .. about .. name .. ".npy" .. packed
    count = count + 1
  end
  local counts = little_endian(count, 2):rep(2)
  write(folder .. "/npz/" .. archive, members .. directory .. "PK\5\6\0\0\0\0" .. counts
    .. little_endian(#directory, 4) .. little_endian(#members, 4) .. "\0\0")
end

-- Graphs ------------------------------------------------------------------------------------------------------------

-- Returns a block whose forward is f.
local function block_of(f, make)
  local class = pg.nn.HybridBlock:extend("Seed")
  function class:forward(...) return f(self, ...) end
  local block = class()
  if make then make(block) end
  block:initialize()
  return block
end

local function dense(block) block.dense = pg.nn.Dense(3, {in_units = 4}) end
local function image(block)
  block.conv = pg.nn.Conv2D(2, 3, {padding = 1, in_channels = 1})
  block.norm = pg.nn.BatchNorm{in_channels = 2}
  block.pool = pg.nn.MaxPool2D(2)
end

local seeds = {
  dense = {function(self, x) return self.dense(x):relu() end, {pg.ones(2, 4)}, dense},
  loss = {function(self, x) return self.dense(x):log_softmax(2):mean(), x:dropout(0.5) end, {pg.ones(2, 4)}, dense},
  image = {function(self, x) return self.pool(self.norm(self.conv(x))):reshape{x.shape[1], -1} end, {pg.ones(1, 1, 4,
    4)}, image},
  pointwise = {function(_, x, y) return (x * y + 1):exp():sigmoid(), x:gt(y), pg.where(x:lt(0), x, y) end,
    {pg.ones(2, 3), pg.ones(3)}},
  shapes = {function(_, x) return pg.cat({x:t(), x:t()}, 1)[{{2, 3}, {1, -1, 2}}], x:reshape{-1}:cumsum(1), x:sum(1),
    x:sort(2) end,
    {pg.rand(3, 4)}},
  pieces = {function(_, x)
    local parts = x:split(2, 1)
    return parts[1] * 2, parts[2], x:unbind(2)[1], x:chunk(2, 2)[2]
  end, {pg.rand(4, 3)}},
  indexing = {function(_, x, i) return x:index_select(1, i), x:gather(1, i:reshape{2, 1}), pg.one_hot(i, 4),
    pg.embedding(i, x) end,
    {pg.rand(4, 3), pg.tensor({1, 2}, {dtype = "int64"})}},
  matrices = {function(_, x) return pg.linalg.inv(x), pg.matmul(x, x), x:softmax(1), x:topk(2) end, {pg.eye(3) + 1}},
  foreach = {function(_, x, h)
    local out, state = pg.foreach(function(row, s) return row * s, s + row:dropout(0.5) end, x, h)
    return out, state
  end, {pg.rand(3, 2), pg.ones(2)}},
  while_loop = {function(_, x)
    local outs, vars = pg.while_loop(function(i) return i:lt(3) end, function(i, v) return v, {i + 1, v * 2} end,
      {pg.tensor(0), x},
      {max_iterations = 4})
    return outs, vars[2]
  end, {pg.ones(2)}},
  loop = {function(_, x) return pg.loop(3, function(k, v) return (v * k):tanh() end, x) end, {pg.ones(2, 2)}},
  counted = {function(_, x, n) return pg.loop(n, function(_, v) return v * 0.5 + x end, x) end,
    {pg.ones(2), pg.tensor({3}, {dtype = "int64"}):sum()}},
  cond = {function(_, x) return pg.cond(x:sum():gt(0), function() return x * 2 end, function() return x - 1 end) end,
    {pg.ones(2)}},
  nested = {function(_, x)
    return (pg.foreach(function(row, s)
      local inner = pg.loop(2, function(_, v) return v * row end, s)
      return pg.cond(inner:sum():gt(1), function() return inner end, function() return inner + 1 end), s
    end, x, pg.ones(2)))
  end, {pg.rand(2, 2)}},
}

local scratch = os.tmpname()
for name, seed in pairs(seeds) do
  local block = block_of(seed[1], seed[3])
  block:hybridize()
  block(unpack(seed[2]))
  local json, tensors = block:export(scratch)
  write(folder .. "/graph/" .. name, read(json) .. "\0" .. read(tensors))
  os.remove(json)
  os.remove(tensors)
end
os.remove(scratch)
write(folder .. "/graph/golden", read(root .. "/tests/golden/model-v1.json") .. "\0" .. read(root
  .. "/tests/golden/model-v1.safetensors"))

-- Dictionaries ------------------------------------------------------------------------------------------------------

local function dictionary(target, words)
  local out = {}
  for k, word in ipairs(words) do
    out[k] = '"' .. word:gsub('[%c"\\\128-\255]', function(c) return ("\\x%02X"):format(c:byte()) end) .. '"\n'
  end
  write(folder .. "/" .. target .. ".dict", table.concat(out))
end

local numbers = {"0", "-1", "9007199254740992", "4611686018427387904", "9223372036854775807", "1e300"}
local function with(list)
  for _, number in ipairs(numbers) do list[#list + 1] = number end
  return list
end

dictionary("safetensors", with{'"dtype":', '"shape":[', '"data_offsets":[', '"__metadata__":{', '"F32"', '"BF16"',
  '"BOOL"', '"I64"', "[0]"})
dictionary("npy", with{"\147NUMPY", "'descr':", "'fortran_order':", "'shape':", "True", "False", "'<f4'", "'>i2'",
  "'|b1'", "(1,)", "()"})
dictionary("npz", {"PK\1\2", "PK\3\4", "PK\5\6", "PK\6\6", "PK\6\7", "\147NUMPY", ".npy", "/", "\255\255\255\255", "\1\0\8\0"})
dictionary("params", {"\200\250\147\249", "\201\250\147\249\0\0\0\0", "\201\250\147\249\1\0\0\0",
  "\201\250\147\249\2\0\0\0", "\202\250\147\249\0\0\0\0", "\255\255\255\255\255\255\255\255", "\0\0\0\0\0\0\0\64"})
dictionary("idx", {"\0\0\8", "\255\255\255\255", "\31\139\8"})
local words = with{'"op":"', '"op":"loop"', '"op":"cond"', '"kind":"', '"then_body":', '"condition":', '"body":',
  '"bodies":[', '"attrs":{', '"types":[', '"inputs":[',
  '"outputs":[', '"guards":[',
  '"limit":', '"checkpoint":', '"streams":[', '"writes":[', '"counted":true', '"conditional":true', '"reverse":true',
    '"number":'}
for _, name in ipairs(pg.testing.op_names()) do words[#words + 1] = '"' .. name .. '"' end
for _, dtype in ipairs(dtypes) do words[#words + 1] = '"' .. dtype .. '"' end
dictionary("graph", words)
