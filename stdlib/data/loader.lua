-- pg.data.DataLoader: batches of a dataset.
local core = ...
local args = core.require("support.args")
local class = core.require("support.class")
local numbers = core.require("data.numbers")
local samplers = core.require("data.sampler")
local ops = core.ops

local DataLoader = class.new("DataLoader")
DataLoader._kind = "DataLoader"
core.require("support.no_list").define(DataLoader, "a loader has no length as a list; write loader:len() for the number of batches")
DataLoader._no_items = "a loader is no list: write for x, y in loader:iter() do … end; loader:len() is the number of batches"

-- A place describes the values that are joined: positions = those of their items, path = their keys in an item,
-- numbers = what is known of the numbers at that path.
local stack

local function kind_of(value)
  if core.is_tensor(value) then return "a tensor" end
  if args.plain(value) then return "a table" end
  local kind = type(value)
  return (kind == "table" or kind == "userdata") and "an object" or "a " .. kind
end

-- Raises unless all values are of one kind, and returns that.
local function check_kinds(values, place)
  local kind = kind_of(values[1])
  for i, value in ipairs(values) do
    if kind_of(value) ~= kind then
      core.fail("DataLoader", "item %d of the dataset has %s at value %s (expected %s, as in item %d)", place.positions[i], core.describe(value),
                place.path, kind, place.positions[1])
    end
  end
  return kind
end

-- Joins what the items hold at the key.
local function stack_at(items, key, place)
  local inside = {
    positions = place.positions, path = (place.path and place.path .. "." or "") .. tostring(key),
    numbers = numbers.at(place.numbers, key),
  }
  local column = {}
  for i, item in ipairs(items) do
    if item[key] == nil then
      core.fail("DataLoader", "item %d of the dataset has no value %s (expected one from get, as for the other items of the batch)",
                place.positions[i], inside.path)
    end
    column[i] = item[key]
  end
  return stack(column, inside)
end

local function stack_tables(values, place)
  local result = {}
  for _, item in ipairs(values) do
    for key in pairs(item) do
      if result[key] == nil then result[key] = stack_at(values, key, place) end
    end
  end
  return result
end

-- Joins the values of many items: stacks tensors, makes a tensor of numbers, joins tables by key, and returns other
-- values as a list.
function stack(values, place)
  local kind = check_kinds(values, place)
  if kind == "a tensor" then return ops.stack(values, 1) end
  if kind == "a number" then
    for _, v in ipairs(values) do numbers.note(place.numbers, v) end
    return ops.tensor(values, {dtype = numbers.dtype(place.numbers)})
  end
  if kind == "a boolean" then return ops.tensor(values) end
  if kind == "a table" then return stack_tables(values, place) end
  return values
end

local spec = {
  batch_size = args.none, shuffle = false, sampler = args.none, last_batch = args.none, batch_sampler = args.none,
  batchify = args.none, num_workers = 0,
}

local function check_sampler(name, sampler)
  if sampler ~= nil and not args.has(sampler, "iter") then core.arg_error("DataLoader", name, "a sampler", sampler) end
end

local function check_combination(o)
  if o.batch_sampler ~= nil then
    for _, name in ipairs{"batch_size", "sampler", "last_batch"} do
      if o[name] ~= nil then core.arg_error("DataLoader", name, "no value together with batch_sampler", o[name]) end
    end
  elseif o.batch_size == nil then
    core.fail("DataLoader", "bad argument 'batch_size' (expected a whole number >= 1, got nil; write data.DataLoader(ds, {batch_size = 32}))")
  end
  if o.shuffle and (o.sampler ~= nil or o.batch_sampler ~= nil) then
    core.arg_error("DataLoader", "shuffle", "false together with a sampler", true)
  end
end

--- pg.data.DataLoader(dataset, {batch_size=, shuffle = false, last_batch = "keep", "discard" or "rollover", sampler=,
--- batch_sampler=, batchify=, num_workers = 0}): `for x, y in loader:iter() do … end` iterates over the dataset once.
--- batchify(items) gets a list of items, each a list of values, and returns the values of the batch. Without it tensors
--- are stacked and tables are joined by key; numbers give an int64 tensor if all of them are whole, else float32. That
--- is all in the dataset if it is a list (ArrayDataset, SimpleDataset and parts of them), else all so far. num_workers
--- has no effect: the calling thread makes the batches.
--- Raises if dataset has no len and get, if batch_size is not a whole number >= 1, if it is combined with batch_sampler,
--- or where items of a batch have different kinds of values.
--- Example: local loader = pg.data.DataLoader(pg.data.ArrayDataset(pg.range(1, 5)), {batch_size = 2})
--- local batches = {}
--- for x in loader:iter() do batches[#batches + 1] = x end
--- return batches
function DataLoader:init(dataset, ...)
  if not args.has(dataset, "get", "len") then
    local list = core.is_tensor(dataset) or args.plain(dataset)
    core.fail("DataLoader", "bad argument 'dataset' (expected a dataset with len and get, got %s%s)", core.describe(dataset),
              list and "; write data.ArrayDataset(x, y)" or "")
  end
  local o = args.read("DataLoader", {"batch_size"}, spec, ...)
  args.boolean("DataLoader", "shuffle", o.shuffle)
  args.count("DataLoader", "num_workers", o.num_workers)
  if o.last_batch ~= nil then args.choice("DataLoader", "last_batch", o.last_batch, {"keep", "discard", "rollover"}) end
  check_sampler("sampler", o.sampler)
  check_sampler("batch_sampler", o.batch_sampler)
  check_combination(o)
  if o.batchify ~= nil then args.callable("DataLoader", "batchify", o.batchify) end
  self.dataset, self._batchify = dataset, o.batchify
  local sampler = o.sampler or (o.shuffle and samplers.RandomSampler or samplers.SequentialSampler)(dataset:len())
  if o.batch_sampler then self._batches = o.batch_sampler
  else self._batches = samplers.BatchSampler(sampler, args.count("DataLoader", "batch_size", o.batch_size, 1), o.last_batch) end
end

-- `for x, y in loader do` calls the loader.
function DataLoader:__call() core.fail("DataLoader", "a loader is no iterator; write for x, y in loader:iter() do … end") end

--- loader:len() -> the number of batches in the next round. #loader and ipairs(loader) raise.
function DataLoader:len()
  args.self("len", self, "loader")
  return self._batches:len()
end

local function pack(...) return {n = select("#", ...), ...} end

local function values_of(dataset, position)
  local item = pack(dataset:get(position))
  if item.n == 0 then core.fail("DataLoader", "get of the dataset returned nothing at item %d (expected the values of the item)", position) end
  return item
end

-- Joins value k of the items, or returns nil if no item has one.
local function join_column(items, k, place)
  local absent = k > 1
  for _, item in ipairs(items) do absent = absent and item[k] == nil end
  if absent then return nil end
  return stack_at(items, k, place)
end

local function join(dataset, batchify, positions)
  local items, most = {}, 0
  for i, position in ipairs(positions) do
    items[i] = values_of(dataset, position)
    most = math.max(most, items[i].n)
  end
  if batchify then
    for _, item in ipairs(items) do item.n = nil end
    return batchify(items)
  end
  local columns, place = {}, {positions = positions, numbers = numbers.of(dataset)}
  for k = 1, most do columns[k] = join_column(items, k, place) end
  return unpack(columns, 1, most)
end

--- loader:iter() -> an iterator over batches; each call starts a new round.
function DataLoader:iter()
  args.self("iter", self, "loader")
  local next_batch, dataset, batchify = self._batches:iter(), self.dataset, self._batchify
  local whole = not batchify and dataset.get_batch
  -- A first value of nil would end the loop of the script as if there were no more batches.
  local function batch(...)
    if (select(1, ...)) == nil then
      core.fail("DataLoader", "%s returned nothing for a batch (expected its values; end it with return …)",
                whole and "get_batch of the dataset" or "batchify")
    end
    return ...
  end
  return function()
    local positions = next_batch()
    if positions == nil then return nil end
    if whole then return batch(dataset:get_batch(ops.tensor(positions, {dtype = "int64"}))) end
    return batch(join(dataset, batchify, positions))
  end
end

return DataLoader
