-- Averages of parameters over time, for evaluation.
local core = ...
local args = core.require("support.args")
local class = core.require("support.class")
local read_params = core.require("optim.entries").read
local param = core.require("param")
local ops = core.ops

-- The base of both averages: blend(average, value, n) returns the average with the value of update n, a float64 scalar.
local Average = class.new("Average")

function Average:init(params, opts)
  opts = args.options(self.name, opts, self._options)
  for key, value in pairs(opts) do self[key] = args.number(self.name, key, value, 0, 1) end
  self._entries, self.averages = {}, {}
  param.followers[self] = true
  self._count = core.keep(ops.zeros({}, {dtype = "float64"}))
  for _, entry in ipairs(read_params(self.name, params)) do
    local p = entry.tensor
    if not core.has_value(p) then
      core.fail(self.name, "parameter '%s' has no value (initialize the block and call it once)", entry.path)
    end
    if param.floats[p.dtype] then
      self._entries[#self._entries + 1] = entry
      self.averages[entry.path] = core.keep(p:detach():clone())
    end
  end
end

function Average:_follow(p)
  for _, entry in ipairs(self._entries) do if entry.tensor == p then param.follow(p, self.averages[entry.path]) end end
end

--- average:update() adds the current values of the parameters. Call it after each step, in pg.jit too.
function Average:update()
  args.self("update", self, "average")
  self._count:add_(1)
  for _, entry in ipairs(self._entries) do
    local p, average = entry.tensor:detach(), self.averages[entry.path]
    average:copy_(self:blend(average, p, self._count:to{dtype = p.dtype, device = p.device}))
  end
end

--- average:swap() exchanges the parameters and their averages.
function Average:swap()
  args.self("swap", self, "average")
  for _, entry in ipairs(self._entries) do
    local p, average = entry.tensor, self.averages[entry.path]
    local value = p:detach():clone()
    p:copy_(average)
    average:copy_(value)
  end
end

--- average:apply(f) -> the results of f(), which runs while the parameters have the values of their averages. If f raises,
--- the parameters get their own values back too.
function Average:apply(f)
  args.self("apply", self, "average")
  args.callable("apply", "f", f)
  self:swap()
  return core.finally(function() self:swap() end, f)
end

--- average:save_states(path) writes the averages to a safetensors file, atomically.
function Average:save_states(path)
  args.self("save_states", self, "average")
  args.string("save_states", "path", path)
  local tensors = {["@count"] = self._count}
  for name, value in pairs(self.averages) do tensors[name] = value end
  core.save_tensors(path, tensors, nil, "save_states")
end

--- average:load_states(path) reads the averages that save_states wrote. An error changes nothing.
function Average:load_states(path)
  args.self("load_states", self, "average")
  local tensors = core.load_tensors(args.string("load_states", "path", path), "load_states", true)
  local known = {["@count"] = self._count}
  for name, value in pairs(self.averages) do known[name] = value end
  for name, value in pairs(known) do
    local given = tensors[name]
    if not given then core.fail("load_states", "%s lacks '%s'", path, name) end
    if given.dtype ~= value.dtype then
      core.fail("load_states", "%s: '%s' is %s, the average %s", path, name, given.dtype, value.dtype)
    end
    param.merge("load_states", name, value.shape, given.shape)
  end
  for name, value in pairs(known) do value:copy_(tensors[name]) end
end

--- pg.optim.EMA(params, {decay = 0.999}): exponential averages of the parameters (Polyak, Juditsky 1992). average = decay *
--- average + (1 - decay) * p at each ema:update(). ema:apply(f) evaluates with them, ema:swap() exchanges them with the
--- parameters, ema.averages holds them by name. params is net:collect_params(), a block, or a table of tensors, with
--- values; running statistics are averaged too.
--- Example: local w = pg.param(pg.tensor{1})
--- local ema = pg.optim.EMA({w = w}, {decay = 0.5})
--- w:set_data{3}
--- ema:update()
--- return ema.averages.w, ema:apply(function() return w * 10 end)
local EMA = Average:extend("EMA")
EMA._options = {decay = 0.999}

function EMA:blend(average, p) return average * self.decay + p * (1 - self.decay) end

--- pg.optim.SWA(params): the mean of the parameters at each swa:update() (Izmailov et al. 2018). It has the methods of
--- pg.optim.EMA. Call update at the end of epochs with a constant or cyclic rate.
local SWA = Average:extend("SWA")
SWA._options = {}

function SWA:blend(average, p, n) return average + (p - average) / n end

return {EMA = EMA, SWA = SWA}
