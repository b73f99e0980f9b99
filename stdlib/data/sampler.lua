-- Samplers: sampler:iter() returns an iterator over positions (or lists of positions), sampler:len() their number.
local core = ...
local args = core.require("support.args")
local class = core.require("support.class")
local ops = core.ops
local samplers = {}

--- pg.data.Sampler is the base class: define iter() and len().
local Sampler = class.new("Sampler")
samplers.Sampler = Sampler
core.require("support.no_list").define(Sampler, "a sampler has no length as a list; write sampler:len() for the number of positions")
Sampler._no_items = "write for i in sampler:iter() do … end"

local function iterate(list)
  local i = 0
  return function()
    i = i + 1
    return list[i]
  end
end

local function own_length(self)
  args.self("len", self, "sampler")
  return self._length
end

-- A sampler with a list of positions.
local function listed(name)
  local Listed = Sampler:extend(name)
  function Listed:len()
    args.self("len", self, "sampler")
    return #self._positions
  end
  function Listed:iter()
    args.self("iter", self, "sampler")
    return iterate(self._positions)
  end
  samplers[name] = Listed
  return Listed
end

--- pg.data.SequentialSampler(length[, start = 1]): the positions start, start + 1, … of that number.
local SequentialSampler = Sampler:extend("SequentialSampler")
samplers.SequentialSampler = SequentialSampler

function SequentialSampler:init(length, start)
  self._length = args.count("SequentialSampler", "length", length)
  self._start = args.count("SequentialSampler", "start", start or 1)
end

SequentialSampler.len = own_length

function SequentialSampler:iter()
  args.self("iter", self, "sampler")
  local i, last = self._start - 1, self._start + self._length - 1
  return function()
    i = i + 1
    if i <= last then return i end
  end
end

--- pg.data.RandomSampler(length): the positions 1..length, in a new random order in each round.
local RandomSampler = Sampler:extend("RandomSampler")
samplers.RandomSampler = RandomSampler
function RandomSampler:init(length) self._length = args.count("RandomSampler", "length", length) end
RandomSampler.len = own_length

function RandomSampler:iter()
  args.self("iter", self, "sampler")
  if self._length == 0 then return function() end end
  return iterate(ops.randperm(self._length):totable())
end

--- pg.data.FilterSampler(f, dataset): the positions of the items for which f(values…) is true.
local FilterSampler = listed("FilterSampler")

function FilterSampler:init(f, dataset)
  args.callable("FilterSampler", "f", f)
  if not args.has(dataset, "len") then core.arg_error("FilterSampler", "dataset", "a dataset", dataset) end
  self._positions = {}
  for i = 1, dataset:len() do
    if args.returned("FilterSampler", f, i, "a boolean", false, f(dataset:get(i))) then self._positions[#self._positions + 1] = i end
  end
end

--- pg.data.IntervalSampler(length, interval[, {rollover = true}]): the positions 1, 1 + interval, …; with rollover then
--- those from 2, from 3 and so on, until each position has come once.
local IntervalSampler = listed("IntervalSampler")

function IntervalSampler:init(length, interval, opts)
  self._length = args.count("IntervalSampler", "length", length)
  args.count("IntervalSampler", "interval", interval, 1)
  local rounds = args.options("IntervalSampler", opts, {rollover = true}).rollover and interval or 1
  self._positions = {}
  for start = 1, math.min(rounds, length) do
    for i = start, length, interval do self._positions[#self._positions + 1] = i end
  end
end

--- pg.data.BatchSampler(sampler, batch_size[, last_batch = "keep"]): lists of batch_size positions. The rest at the end
--- becomes a smaller batch ("keep"), is dropped ("discard") or starts the next round ("rollover").
local BatchSampler = Sampler:extend("BatchSampler")
samplers.BatchSampler = BatchSampler

function BatchSampler:init(sampler, batch_size, last_batch)
  if not args.has(sampler, "iter") then core.arg_error("BatchSampler", "sampler", "a sampler", sampler) end
  self._sampler = sampler
  self._size = args.count("BatchSampler", "batch_size", batch_size, 1)
  self._last = args.choice("BatchSampler", "last_batch", last_batch or "keep", {"keep", "discard", "rollover"})
  self._rest = {}
end

function BatchSampler:len()
  args.self("len", self, "sampler")
  local n = #self._rest + self._sampler:len()
  if self._last == "keep" then return math.ceil(n / self._size) end
  return math.floor(n / self._size)
end

function BatchSampler:iter()
  args.self("iter", self, "sampler")
  local next_position, batch, done = self._sampler:iter(), self._rest, false
  self._rest = {}
  return function()
    if done then return nil end
    while #batch < self._size do
      local i = next_position()
      if i == nil then
        done = true
        if #batch > 0 and self._last == "keep" then return batch end
        if self._last == "rollover" then self._rest = batch end
        return nil
      end
      batch[#batch + 1] = i
    end
    local full = batch
    batch = {}
    return full
  end
end

return samplers
