-- Datasets, samplers, loaders and readers.
local t = require "tests.support"
local pg = require "perigee"
local data = pg.data

local function numbers(n) return data.ArrayDataset(pg.range(1, n), pg.range(101, 100 + n)) end

local function firsts(loader)
  local batches = {}
  for x in loader:iter() do batches[#batches + 1] = x:totable() end
  return batches
end

t.test("ArrayDataset: items, lists, classes of values", function()
  local ds = data.ArrayDataset(pg.tensor{{1, 2}, {3, 4}, {5, 6}}, {7, 8, 9})
  t.equal(ds:len(), 3)
  local x, y = ds:get(2)
  t.equal(x:totable(), {3, 4})
  t.equal({y:item(), y.dtype}, {8, "int64"})
  t.equal(ds:get(-1):totable(), {5, 6})
  t.error_contains(function() ds:get(4) end, "get: bad argument 'i'")
  t.error_contains(function() data.ArrayDataset(pg.ones(2), pg.ones(3)) end, "array 2")
  t.error_contains(function() data.ArrayDataset() end, "array 1")
end)

t.test("filter, shard, take, sample, transform", function()
  local ds = numbers(10)
  local even = ds:filter(function(x) return x:item() % 2 == 0 end)
  t.equal(firsts(data.DataLoader(even, {batch_size = 10})), {{2, 4, 6, 8, 10}})
  local lengths = {}
  for i = 1, 3 do lengths[i] = ds:shard(3, i):len() end
  t.equal(lengths, {4, 3, 3})
  t.equal(ds:shard(3, 2):get(1):item(), 5)
  t.equal(ds:take(3):len(), 3)
  t.equal(ds:take(30):len(), 10)
  t.equal(ds:sample(data.IntervalSampler(10, 4)):len(), 10)
  t.equal(ds:transform_first(function(x) return x * 10 end):get(3):item(), 30)
  local sum = ds:transform(function(x, y) return x + y end, {lazy = false})
  t.equal(sum:get(1):item(), 102)
  t.error_contains(function() ds:shard(3, 4) end, "'i'")
end)

t.test("a transform, a predicate, get, get_batch and batchify that return nothing raise", function()
  local ds = numbers(4)
  local function first_batch(dataset, options)
    options = options or {}
    options.batch_size = 2
    return data.DataLoader(dataset, options):iter()()
  end
  local function nothing() end
  t.error_matches(function() ds:transform(nothing):get(2) end, "^%S+test_data.lua:%d+: transform: the function at %S+test_data.lua:%d+ "
                  .. "returned nothing at item 2 %(expected the values of the item; end it with return …%)$")
  t.error_contains(function() first_batch(ds:transform(nothing)) end, "returned nothing at item 1")
  t.error_contains(function() ds:transform(nothing, {lazy = false}) end, "returned nothing at item 1")
  t.error_contains(function() ds:transform_first(nothing):get(-1) end, "returned nothing at item -1 (expected the first value of the item;")
  t.error_contains(function() ds:filter(nothing) end, "returned nothing at item 1 (expected a boolean;")
  t.error_contains(function() data.FilterSampler(nothing, ds) end, "FilterSampler: the function at ")
  t.equal(ds:filter(function() return nil end):len(), 0)
  t.error_contains(function() first_batch(ds, {batchify = nothing}) end, "DataLoader: batchify returned nothing for a batch")
  local Own = data.Dataset:extend("Own")
  function Own:len() return 4 end
  function Own:get(i) return self.item(i) end
  local own = Own()
  own.item = nothing
  t.error_contains(function() first_batch(own) end, "get of the dataset returned nothing at item 1")
  own.item = function(i) return i, i == 2 and 1 or nil end
  t.error_contains(function() first_batch(own) end, "item 1 of the dataset has no value 2")
  own.item = function(i) return i, nil, false end
  local x, absent, flags = first_batch(own)
  t.equal({x:totable(), absent == nil, flags:totable()}, {{1, 2}, true, {false, false}})
  own.get_batch = nothing
  t.error_contains(function() first_batch(own) end, "get_batch of the dataset returned nothing for a batch")
end)

t.test("loaders keep, discard or roll over the last incomplete batch", function()
  local ds = numbers(7)
  t.equal(firsts(data.DataLoader(ds, {batch_size = 3})), {{1, 2, 3}, {4, 5, 6}, {7}})
  t.equal(firsts(data.DataLoader(ds, {batch_size = 3, last_batch = "discard"})), {{1, 2, 3}, {4, 5, 6}})
  local loader = data.DataLoader(ds, {batch_size = 3, last_batch = "rollover"})
  t.equal(loader:len(), 2)
  t.equal(firsts(loader), {{1, 2, 3}, {4, 5, 6}})
  t.equal(loader:len(), 2)
  t.equal(firsts(loader), {{7, 1, 2}, {3, 4, 5}})
  t.equal(loader:len(), 3)
  t.equal(firsts(loader), {{6, 7, 1}, {2, 3, 4}, {5, 6, 7}})
end)

t.test("shuffle is a permutation that follows the seed", function()
  local ds = numbers(50)
  local loader = data.DataLoader(ds, {batch_size = 8, shuffle = true})
  pg.manual_seed(2)
  local a = firsts(loader)
  pg.manual_seed(2)
  t.equal(firsts(loader), a)
  local seen, order = {}, {}
  for _, batch in ipairs(a) do for _, v in ipairs(batch) do seen[v], order[#order + 1] = true, v end end
  t.equal(#order, 50)
  for i = 1, 50 do t.check(seen[i]) end
  local x, y
  for bx, by in loader:iter() do x, y = bx, by end
  t.equal((y - x):totable(), {100, 100})
end)

t.test("items of tensors, numbers, booleans, tables and text are joined", function()
  local ds = data.SimpleDataset{
    {pg.ones(2), 1, true, "a", {u = 1.5, v = pg.zeros(1)}}, {pg.zeros(2), 2, false, "b", {u = 2, v = pg.ones(1)}},
  }
  for x, n, flag, text, tree in data.DataLoader(ds, {batch_size = 2}):iter() do
    t.equal(x:totable(), {{1, 1}, {0, 0}})
    t.equal({n.dtype, n:totable()}, {"int64", {1, 2}})
    t.equal(flag:totable(), {true, false})
    t.equal(text, {"a", "b"})
    t.equal({tree.u:totable(), tree.v:totable()}, {{1.5, 2}, {{0}, {1}}})
  end
  local sums = {}
  local batchify = function(items) return #items end
  for n in data.DataLoader(numbers(5), {batch_size = 2, batchify = batchify}):iter() do sums[#sums + 1] = n end
  t.equal(sums, {2, 2, 1})
end)

t.test("samplers", function()
  local function all(sampler)
    local list = {}
    for i in sampler:iter() do list[#list + 1] = i end
    return list
  end
  t.equal(all(data.SequentialSampler(3)), {1, 2, 3})
  t.equal(all(data.IntervalSampler(5, 2)), {1, 3, 5, 2, 4})
  t.equal(all(data.IntervalSampler(5, 2, {rollover = false})), {1, 3, 5})
  t.equal(all(data.FilterSampler(function(x) return x:item() > 3 end, numbers(5))), {4, 5})
  t.equal(all(data.BatchSampler(data.SequentialSampler(3), 2)), {{1, 2}, {3}})
  t.equal(#all(data.RandomSampler(9)), 9)
  t.equal(firsts(data.DataLoader(numbers(5), {batch_sampler = data.BatchSampler(data.SequentialSampler(2), 1)})), {{1}, {2}})
  t.error_contains(function() data.DataLoader(numbers(5)) end, "batch_size")
  t.error_contains(function() data.DataLoader(numbers(5), {batch_size = 2, shufle = true}) end, "shuffle")
  t.error_contains(function() data.DataLoader(numbers(5), {batch_size = 2, last_batch = "drop"}) end, "last_batch")
end)

t.test("digits", function()
  local train, test = data.digits{train = true}, data.digits{train = false}
  t.equal({train:len(), test:len(), data.digits():len()}, {1437, 360, 1797})
  local x, y = train:get(1)
  t.equal(x.shape, {1, 8, 8})
  t.equal({x.dtype, y.dtype, y:item(), train.classes[y:item()]}, {"float32", "int64", 1, "0"})
  t.equal(x[{1, 1, {}}]:totable(), {0, 0, 5 / 16, 13 / 16, 9 / 16, 1 / 16, 0, 0})
  t.equal(select(2, data.digits():get(1438)):item(), select(2, test:get(1)):item())
end)

local function be(n) return string.char(math.floor(n / 2 ^ 24) % 256, math.floor(n / 65536) % 256, math.floor(n / 256) % 256, n % 256) end

local function idx(magic, dims, body)
  local parts = {be(magic)}
  for i, d in ipairs(dims) do parts[i + 1] = be(d) end
  return table.concat(parts) .. body
end

local function folder(images, labels)
  t.write(t.tmp("t10k-images-idx3-ubyte"), images)
  t.write(t.tmp("t10k-labels-idx1-ubyte"), labels)
  return {root = t.tmp(), train = false}
end

t.test("MNIST reads idx files and refuses malformed ones with file and position", function()
  local images, labels = idx(0x803, {2, 2, 3}, string.char(0, 255, 51, 0, 0, 0, 1, 2, 3, 4, 5, 6)), idx(0x801, {2}, string.char(9, 0))
  local ds = data.vision.MNIST(folder(images, labels))
  t.equal(ds:len(), 2)
  local x, y = ds:get(1)
  t.close(x, {{{0, 1, 0.2}, {0, 0, 0}}})
  t.equal({y:item(), ds.classes[y:item()]}, {10, "9"})
  for bx, by in data.DataLoader(ds, {batch_size = 2}):iter() do
    t.equal({bx.shape, by:totable()}, {{2, 1, 2, 3}, {10, 1}})
  end
  local function refuses(i, l, text) t.error_contains(function() data.vision.MNIST(folder(i, l)) end, text) end
  refuses(images:sub(1, 10), labels, "t10k-images-idx3-ubyte")
  refuses("", labels, "t10k-images-idx3-ubyte")
  refuses(idx(0x802, {2, 6}, ("x"):rep(12)), labels, "byte 3: expected 3 dims, got 2")
  refuses(idx(0xd03, {1, 1, 1}, ("x"):rep(4)), labels, "byte 2: expected unsigned bytes, got float32")
  refuses(images .. "x", labels, "byte 28")
  refuses(images:sub(1, -2), labels, "idx3-ubyte")
  refuses(idx(0x803, {0xffffffff, 0xffffffff, 0xffffffff}, ""), labels, "idx3-ubyte")
  refuses(images, idx(0x801, {3}, "\1\2\3"), "2 labels")
  refuses(images, idx(0x801, {2}, "\1\12"), "byte 9")
  t.error_contains(function() data.vision.MNIST{root = t.tmp("none")} end, "train-images-idx3-ubyte")
  t.error_contains(function() data.vision.MNIST{} end, "root")
end)

t.test("MNIST reads the original gzipped files", function()
  local path = t.shared("data/mnist/t10k-labels-idx1-ubyte.gz")
  local ds = data.vision.MNIST{root = path:match("^(.*)/"), train = false}
  t.equal(ds:len(), 10000)
  local x, y = ds:get(1)
  t.equal({x.shape, ds.classes[y:item()]}, {{1, 28, 28}, "7"})
end)

t.test("a dataset has no length as a list, and ipairs refuses it", function()
  local ds = numbers(5)
  for _, each in ipairs{ds, ds:take(2), ds:transform(function(x) return x end), data.SimpleDataset{1}, data.digits()} do
    t.error_contains(function() return #each end, "write ds:len() for the number of items")
    t.error_contains(function() return ipairs(each) end, "table expected, got userdata")
  end
  t.equal(tostring(ds), "ArrayDataset(5 items)")
  ds.note = 5
  t.equal(ds.note, 5)
  t.error_contains(function() ds.len = 7 end, "'len' is a method")
  t.error_contains(function() return ds.size end, "ArrayDataset: no field or method 'size'")
  local Own = data.ArrayDataset:extend("Own")
  t.equal(Own(pg.range(1, 5)):len(), 5)
end)

t.test("a sampler has no length as a list, and ipairs refuses it", function()
  local sampler = data.SequentialSampler(5)
  for _, each in ipairs{sampler, data.RandomSampler(3), data.BatchSampler(sampler, 2)} do
    t.error_contains(function() return #each end, "write sampler:len() for the number of positions")
    t.error_contains(function() return ipairs(each) end, "table expected, got userdata")
  end
  local loader = data.DataLoader(numbers(5), {batch_sampler = data.BatchSampler(sampler, 2)})
  t.equal({loader:len(), data.DataLoader(numbers(5), {batch_size = 5, sampler = sampler}):iter()():totable()}, {3, {1, 2, 3, 4, 5}})
  t.error_contains(function() data.BatchSampler({}, 2) end, "expected a sampler")
  t.error_contains(function() data.DataLoader(numbers(5), {batch_sampler = 3}) end, "expected a sampler")
end)

t.test("a dataset that its transform refers to is collected", function()
  local gone = setmetatable({}, {__mode = "k"})
  local function make()
    local ds
    local function f(x) return x, ds end
    ds, gone[f] = numbers(3):transform(f), true
    return ds:len()
  end
  make()
  collectgarbage()
  collectgarbage()
  t.equal(next(gone), nil)
end)

t.test("a jit function reads a dataset", function()
  local ds = numbers(3)
  local f = pg.jit(function(x) return x + ds:get(2), ds:len() end)
  for _ = 1, 3 do
    local y, n = f(pg.ones(1))
    t.equal({y:totable(), n}, {{3}, 3})
  end
end)

t.test("a loader has no length as a list, and ipairs refuses it", function()
  local loader = pg.data.DataLoader(pg.data.ArrayDataset(pg.range(1, 5)), {batch_size = 2})
  t.error_contains(function() return #loader end, "write loader:len() for the number of batches")
  t.error_contains(function() return ipairs(loader) end, "table expected, got userdata")
  t.error_contains(function() return pairs(loader) end, "table expected, got userdata")
  t.equal(tostring(loader), "DataLoader")
  loader.note = 5
  t.equal(loader.note, 5)
  local Own = pg.data.DataLoader:extend("Own")
  t.equal(Own(pg.data.ArrayDataset(pg.range(1, 5)), {batch_size = 2}):len(), 3)
end)

t.test("parts of a dataset, datasets from a scope and masks of cells survive pg.scope", function()
  local ds = numbers(4)
  for _, part in ipairs{ds:filter(function() return true end), ds:take(4), ds:shard(1, 1), ds:sample(data.SequentialSampler(4))} do
    local loader = data.DataLoader(part, {batch_size = 4})
    for _ = 1, 2 do
      pg.scope(function()
        for x in loader:iter() do t.equal(x:totable(), {1, 2, 3, 4}) end
      end)
    end
  end
  local made = pg.scope(function() return {loader = data.DataLoader(numbers(2), {batch_size = 2})} end)
  t.equal(made.loader:iter()():totable(), {1, 2})
end)

local function batch_of(list, n) return data.DataLoader(data.SimpleDataset(list), {batch_size = n or #list}):iter()() end

t.test("items that differ in their values are errors that name the item and the value", function()
  t.error_contains(function() batch_of{{{1, 2}, 3}, {{4}, 6}} end,
                   "DataLoader: item 2 of the dataset has no value 1.2 (expected one from get, as for the other items of the batch)")
  t.error_contains(function() batch_of{{a = 1}, {a = 3, b = 9}} end, "item 1 of the dataset has no value 1.b")
  t.error_contains(function() batch_of{1, "x"} end,
                   "DataLoader: item 2 of the dataset has \"x\" at value 1 (expected a number, as in item 1)")
  t.error_contains(function() batch_of{1, pg.ones(2)} end, "item 2 of the dataset has float32 2 ")
  t.error_contains(function() batch_of{{a = {1}}, {a = {true}}} end, "item 2 of the dataset has true at value 1.a.1")
  t.error_contains(function() batch_of{"x", 1} end, "item 2 of the dataset has number 1 at value 1 (expected a string, as in item 1)")
end)

-- Returns the dtypes of the batches of one item.
local function dtypes(ds)
  local list = {}
  for x in data.DataLoader(ds, {batch_size = 1}):iter() do list[#list + 1] = (type(x) == "table" and x.a or x).dtype end
  return list
end

t.test("numbers of a dataset have one dtype in all batches", function()
  local whole, real = data.SimpleDataset{1, 2, 3}, data.SimpleDataset{0.5, 1, 2}
  t.equal({dtypes(whole), dtypes(real)}, {{"int64", "int64", "int64"}, {"float32", "float32", "float32"}})
  t.equal({dtypes(whole:take(2)), dtypes(real:take(2))}, {{"int64", "int64"}, {"float32", "float32"}})
  t.equal(dtypes(data.SimpleDataset{{a = 1}, {a = 1.5}}), {"float32", "float32"})
  t.equal(dtypes(data.ArrayDataset{{a = 1}, {a = 2}}), {"int64", "int64"})
  for _, lazy in ipairs{true, false} do
    t.equal(dtypes(whole:transform(function(x) return x / 2 end, {lazy = lazy})), {"float32", "float32", "float32"})
    t.equal(dtypes(whole:transform(function(x) return x + 1 end, {lazy = lazy})), {"int64", "int64", "int64"})
  end
  local Own = data.SimpleDataset:extend("Own")
  function Own:get(i) return self._list[i] / 2 end
  local own = Own{2, 3, 4}  -- no list: what was met decides
  t.equal(dtypes(own), {"int64", "float32", "float32"})
  t.equal(dtypes(own), {"float32", "float32", "float32"})
  local label = data.DataLoader(whole:transform(function(x) return x end), {batch_size = 3}):iter()()
  t.equal(pg.cross_entropy(pg.zeros(3, 3), label):dim(), 0)
end)

t.test("a transform that is computed at once keeps values behind nil", function()
  local ds = data.SimpleDataset{1, 2}
  for _, lazy in ipairs{true, false} do
    local function f(x) return x, nil, x * 2, nil end
    local result = ds:transform(f, {lazy = lazy})
    t.equal({n = select("#", result:get(2)), select(3, result:get(-1))}, {n = 4, 4, nil})
    t.equal(select("#", data.DataLoader(result, {batch_size = 2}):iter()()), 4)
  end
end)
