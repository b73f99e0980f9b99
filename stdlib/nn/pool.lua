-- Pooling layers of one to three dims, and padding by reflection.
local core = ...
local args = core.require("support.args")
local HybridBlock = core.require("nn.block").HybridBlock
local ops = core.ops
local layers = {}

local layouts = {"NCW", "NCHW", "NCDHW"}

local function define(kind, n)
  local name = kind .. "Pool" .. n .. "D"
  local Pool = HybridBlock:extend(name)
  local average = kind == "Avg"
  local pool = ops[(average and "avg" or "max") .. "_pool" .. n .. "d"]
  local names = {"pool_size", "strides", "padding", "layout", "ceil_mode"}
  local spec = {pool_size = 2, strides = args.none, padding = 0, layout = layouts[n], ceil_mode = false}
  if average then
    names[#names + 1] = "count_include_pad"
    spec.count_include_pad = true
  end
  layers[name] = Pool

  --- nn.MaxPool1D, MaxPool2D, MaxPool3D, AvgPool1D, AvgPool2D, AvgPool3D(pool_size = 2, strides = pool_size, {padding =
  --- 0, ceil_mode = false, count_include_pad = true (averages only)}): the maximum or mean of each window of each
  --- channel of x (batch, channels, sizes…). The result has the sizes floor((size + 2 padding - pool_size) / strides) +
  --- 1, rounded up with ceil_mode. Numbers per dim are one number or a list. Raises if padding is more than half of
  --- pool_size.
  --- Example: local x = pg.range(1, 16):reshape{1, 1, 4, 4}
  --- return pg.nn.MaxPool2D(2)(x), pg.nn.AvgPool2D(2, 1)(x), pg.nn.MaxPool1D(2)(pg.tensor{{{1, 3, 2, 5}}})
  function Pool:init(...)
    local o = args.read(name, names, spec, ...)
    args.choice(name, "layout", o.layout, {layouts[n]})
    local size = args.tuple(name, "pool_size", o.pool_size, n, 1)
    local options = {
      kernel_size = size, stride = o.strides == nil and size or args.tuple(name, "strides", o.strides, n, 1),
      padding = args.tuple(name, "padding", o.padding, n, 0), ceil_mode = args.boolean(name, "ceil_mode", o.ceil_mode),
    }
    if average then options.count_include_pad = args.boolean(name, "count_include_pad", o.count_include_pad) end
    self._options = options
  end

  function Pool:forward(x) return pool(x, self._options) end

  function Pool:describe()
    local o = self._options
    return table.concat(o.kernel_size, "x") .. ", stride " .. table.concat(o.stride, "x")
  end
end

local function define_global(kind, n)
  local name = "Global" .. kind .. "Pool" .. n .. "D"
  local Pool = HybridBlock:extend(name)
  local reduce = ops[kind == "Avg" and "mean" or "amax"]
  local dims = {}
  for i = 1, n do dims[i] = i + 2 end
  layers[name] = Pool

  --- nn.GlobalMaxPool1D, GlobalMaxPool2D, GlobalMaxPool3D, GlobalAvgPool1D, GlobalAvgPool2D, GlobalAvgPool3D(): the
  --- maximum or mean of each channel of x (batch, channels, sizes…). The result is (batch, channels, 1…). Raises for
  --- another number of dims.
  --- Example: return pg.nn.GlobalAvgPool1D()(pg.tensor{{{1, 3, 2, 6}}})
  function Pool:init(...)
    local o = args.read(name, {"layout"}, {layout = layouts[n]}, ...)
    args.choice(name, "layout", o.layout, {layouts[n]})
  end

  function Pool:forward(x)
    if args.tensor(name, "x", x):dim() ~= n + 2 then core.arg_error(name, "x", "a tensor of " .. n + 2 .. " dims (" .. layouts[n] .. ")", x) end
    return reduce(x, dims, true)
  end

  function Pool:describe() return "" end
end

for n = 1, 3 do
  for _, kind in ipairs{"Max", "Avg"} do
    define(kind, n)
    define_global(kind, n)
  end
end

--- nn.ReflectionPad2D(padding = 0) pads height and width by reflection. padding is one number, or {left, right, top,
--- bottom}.
--- Example: return pg.nn.ReflectionPad2D(1)(pg.ones(1, 1, 2, 2)).shape
local ReflectionPad2D = HybridBlock:extend("ReflectionPad2D")
layers.ReflectionPad2D = ReflectionPad2D

function ReflectionPad2D:init(padding, ...)
  if args.plain(padding) and padding[1] ~= nil then padding = {padding = padding} end  -- a list, not options
  local p = args.read("ReflectionPad2D", {"padding"}, {padding = 0}, padding, ...).padding
  if type(p) ~= "table" then p = {p, p, p, p} end
  if #p ~= 4 then core.arg_error("ReflectionPad2D", "padding", "a number or a list of 4", p) end
  local widths = {}
  for i = 1, 4 do widths[i] = args.count("ReflectionPad2D", "padding", p[i]) end
  self._options = {pad = widths, mode = "reflect"}
end

function ReflectionPad2D:forward(x) return ops.pad(x, self._options) end

function ReflectionPad2D:describe()
  local p = self._options.pad
  return p[1] == p[2] and p[1] == p[3] and p[1] == p[4] and tostring(p[1]) or table.concat(p, ", ")
end

return layers
