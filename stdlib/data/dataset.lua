-- Datasets: ds:len() -> the number of items, ds:get(i) -> the values of item i.
local core = ...
local args = core.require("support.args")
local class = core.require("support.class")
local numbers = core.require("data.numbers")
local ops = core.ops
local datasets = {}

--- pg.data.Dataset is the base class: define len() and get(i). A dataset may also define get_batch(index), which
--- loaders use: it returns the batched values of the items at an int64 tensor of positions.
local Dataset = class.new("Dataset")
datasets.Dataset = Dataset
core.require("support.no_list").define(Dataset, "a dataset has no length as a list; write ds:len() for the number of items")
Dataset._kind, Dataset._no_items = "Dataset", "write ds:get(1) for the values of item 1; ds:len() is the number of items"

Dataset.__tostring = function(self) return self.len and string.format("%s(%d items)", self.name, self:len()) or self.name end

local function check(op, ds)
  args.self(op, ds, "ds")
  class.defined(ds, "len", "len()")
  class.defined(ds, "get", "get(i)")
end

function Dataset:__call()
  core.fail(tostring(self.name), "a dataset is no iterator; write for i = 1, ds:len() do … ds:get(i) … end, or make a DataLoader")
end

local function check_position(ds, i)
  local n = ds:len()
  if type(i) ~= "number" or i ~= math.floor(i) or i == 0 or i > n or i < -n then
    core.arg_error("get", "i", "a whole number in 1.." .. n, i)
  end
  return i < 0 and n + 1 + i or i
end

--- pg.data.SimpleDataset(list): a list or tensor of items. An item that is a list has several values. A loader makes
--- int64 tensors of numbers that are whole in all items, else float32.
local SimpleDataset = Dataset:extend("SimpleDataset")
datasets.SimpleDataset = SimpleDataset

function SimpleDataset:init(list)
  if core.is_tensor(list) then
    self._tensor, self._n = list, list:size(1)
  elseif type(list) == "table" and getmetatable(list) == nil then self._list, self._n = list, #list
  else core.arg_error("SimpleDataset", "list", "a list or a tensor", list) end
end

--- dataset:len() -> the number of items.
function SimpleDataset:len()
  args.self("len", self, "ds")
  return self._n
end

--- dataset:get(i) -> the values of item i, 1-based; negative positions count from the end.
function SimpleDataset:get(i)
  args.self("get", self, "ds")
  i = check_position(self, i)
  if self._tensor then return self._tensor[i] end
  local item = self._list[i]
  if args.plain(item) and item[1] ~= nil then return unpack(item) end
  return item
end

function SimpleDataset:_numbers()
  if self._tensor or self.get ~= SimpleDataset.get then return nil end
  if not self._noted then
    local node = {}
    for i = 1, self._n do
      local item = self._list[i]
      numbers.note(node, args.plain(item) and item[1] ~= nil and item or {item})
    end
    self._noted = node
  end
  return self._noted
end

local function column(position, value)
  if core.is_tensor(value) then
    if value:dim() == 0 then core.arg_error("ArrayDataset", "array " .. position, "a tensor with a dim for items", value) end
    return value, value:size(1)
  end
  if not args.plain(value) then core.arg_error("ArrayDataset", "array " .. position, "a tensor or a list", value) end
  local node = {}
  for i = 1, #value do
    if type(value[i]) ~= "number" then return value, #value end
    numbers.note(node, value[i])
  end
  if #value > 0 then value = ops.tensor(value, {dtype = numbers.dtype(node)}) end
  return value, core.is_tensor(value) and value:size(1) or 0
end

--- pg.data.ArrayDataset(a, b, …): item i holds a[i], b[i] and so on. The arrays are tensors (indexed along dim 1) or
--- lists, all of the same length. Lists of numbers become tensors: int64 if all are whole, else float32.
--- Example: return pg.data.ArrayDataset(pg.range(1, 3), {4, 5, 6}):get(2)
local ArrayDataset = Dataset:extend("ArrayDataset")
datasets.ArrayDataset = ArrayDataset

function ArrayDataset:init(...)
  local count = select("#", ...)
  if count == 0 then core.arg_error("ArrayDataset", "array 1", "a tensor or a list", nil) end
  self.arrays, self._tensors = {}, true
  for k = 1, count do
    local values, n = column(k, (select(k, ...)))
    if self._n and n ~= self._n then
      core.fail("ArrayDataset", "bad argument 'array %d' (expected %d items like the first, got %d)", k, self._n, n)
    end
    self.arrays[k], self._n = values, n
    self._tensors = self._tensors and core.is_tensor(values)
  end
  if self._tensors then self.get_batch = self._batch end
end

function ArrayDataset:len()
  args.self("len", self, "ds")
  return self._n
end

function ArrayDataset:_numbers()
  if self._tensors or self.get ~= ArrayDataset.get then return nil end
  if not self._noted then
    local node = {}
    for k, values in ipairs(self.arrays) do
      local at = numbers.at(node, k)
      for i = 1, core.is_tensor(values) and 0 or #values do numbers.note(at, values[i]) end
    end
    self._noted = node
  end
  return self._noted
end

local function values_at(arrays, i, k)
  if k > #arrays then return end
  return arrays[k][i], values_at(arrays, i, k + 1)
end

function ArrayDataset:get(i)
  args.self("get", self, "ds")
  return values_at(self.arrays, check_position(self, i), 1)
end

local function rows_at(arrays, index, k)
  if k > #arrays then return end
  return ops.index_select(arrays[k], 1, index:to(arrays[k].device)), rows_at(arrays, index, k + 1)
end

function ArrayDataset:_batch(index) return rows_at(self.arrays, index, 1) end

-- The items of another dataset at a list of positions.
local Subset = Dataset:extend("Subset")

function Subset:init(source, positions)
  self._source, self._positions = source, positions
  self.classes = source.classes
  if source.get_batch then self.get_batch = self._batch end
end

function Subset:len()
  args.self("len", self, "ds")
  return #self._positions
end

function Subset:get(i)
  args.self("get", self, "ds")
  return self._source:get(self._positions[check_position(self, i)])
end

function Subset:_numbers() return numbers.of(self._source) end

function Subset:_batch(index)
  self._index = self._index or core.keep(ops.tensor(self._positions, {dtype = "int64"}))
  return self._source:get_batch(ops.index_select(self._index, 1, index))
end

local function range(first, last)
  local positions = {}
  for i = first, last do positions[#positions + 1] = i end
  return positions
end

--- dataset:filter(f) -> the dataset of the items for which f(values…) is true. Raises if f returns nothing.
function Dataset:filter(f)
  check("filter", self)
  args.callable("filter", "f", f)
  local positions = {}
  for i = 1, self:len() do
    if args.returned("filter", f, i, "a boolean", false, f(self:get(i))) then positions[#positions + 1] = i end
  end
  return Subset(self, positions)
end

--- dataset:shard(n, i) -> part i of n. If n does not divide the length, the first parts have one item more.
function Dataset:shard(n, i)
  check("shard", self)
  args.count("shard", "n", n, 1)
  if args.count("shard", "i", i, 1) > n then core.arg_error("shard", "i", "a part in 1.." .. n, i) end
  local each, rest = math.floor(self:len() / n), self:len() % n
  local first = (i - 1) * each + math.min(i - 1, rest)
  return Subset(self, range(first + 1, first + each + (i <= rest and 1 or 0)))
end

--- dataset:take(n) -> the dataset of the first n items, or of all if there are fewer.
function Dataset:take(n)
  check("take", self)
  return Subset(self, range(1, math.min(args.count("take", "n", n), self:len())))
end

--- dataset:sample(sampler) -> the dataset of the items at the positions of one round of the sampler.
function Dataset:sample(sampler)
  check("sample", self)
  if not args.has(sampler, "iter") then core.arg_error("sample", "sampler", "a sampler", sampler) end
  local positions = {}
  for i in sampler:iter() do positions[#positions + 1] = check_position(self, i) end
  return Subset(self, positions)
end

local Transformed = Dataset:extend("Transformed")

function Transformed:init(source, f, first)
  self._source, self._f, self._first = source, f, first
  self.classes = source.classes
end

function Transformed:len()
  args.self("len", self, "ds")
  return self._source:len()
end

local function apply_first(f, i, x, ...)
  return args.returned("transform_first", f, i, "the first value of the item", true, (f(x))), ...
end

-- Returns what f makes of an item.
local function compute(self, i)
  local f = self._f
  if self._first then return apply_first(f, i, self._source:get(i)) end
  return args.returned("transform", f, i, "the values of the item", true, f(self._source:get(i)))
end

local function pack(...) return {n = select("#", ...), ...} end

function Transformed:get(i)
  args.self("get", self, "ds")
  if not self._items then return compute(self, i) end
  local item = self._items[check_position(self, i)]
  return unpack(item, 1, item.n)
end

local function transform(op, ds, f, opts, first)
  check(op, ds)
  args.callable(op, "f", f)
  local lazy = args.boolean(op, "lazy", args.options(op, opts, {lazy = true}).lazy)
  local result = Transformed(ds, f, first)
  if lazy then return result end
  local items = {}
  for i = 1, ds:len() do items[i] = pack(compute(result, i)) end
  result._items = items
  return result
end

--- dataset:transform(f[, {lazy = true}]) -> the dataset whose items are f(values…). With lazy = false all items are
--- computed now. Raises if f returns nothing for an item.
function Dataset:transform(f, opts) return transform("transform", self, f, opts, false) end

--- dataset:transform_first(f[, {lazy = true}]) -> the dataset with f applied to the first value of each item. Raises if
--- f returns nothing for an item.
function Dataset:transform_first(f, opts) return transform("transform_first", self, f, opts, true) end

return datasets
