-- pg.data.vision.transforms: Gluon's transforms of images, blocks for dataset:transform_first.
-- Images are height x width x channels, as in files, and ToTensor makes tensors channels x height x width of them. With the option
-- layout = "CHW" all others take such tensors too, which is what pg.data.vision.MNIST and CIFAR10 give. Each takes
-- one image or several (N x …), which then share the random numbers. pg.manual_seed repeats these.
local core = ...
local args = core.require("support.args")
local base = core.require("nn.block")
local sequential = core.require("nn.sequential")
local image = core.require("data.transforms.image")
local ops = core.ops
local transforms = {}

for _, module in ipairs{"data.transforms.geometry", "data.transforms.color"} do
  for name, value in pairs(core.require(module)) do transforms[name] = value end
end

--- pg.data.vision.transforms.Compose{a, b, …} and pg.data.vision.transforms.HybridCompose{a, b, …} call transforms one after
--- the other. They are nn.Sequential and nn.HybridSequential: hybridize() of Compose makes graphs of those children that allow it.
--- Example: local T = pg.data.vision.transforms
--- local f = T.Compose{T.Resize(8), T.ToTensor(), T.Normalize(0.5, 0.25)}
--- return f(pg.ones({4, 4, 3}, {dtype = "uint8"})).shape
transforms.Compose = sequential.Sequential:extend("Compose")
transforms.HybridCompose = sequential.HybridSequential:extend("HybridCompose")

--- pg.data.vision.transforms.Cast(dtype = "float32") converts its input.
--- Example: return pg.data.vision.transforms.Cast("int32")(pg.tensor{1.5}).dtype
local Cast = base.HybridBlock:extend("Cast")
transforms.Cast = Cast
function Cast:init(...) self._dtype = args.read("Cast", {"dtype"}, {dtype = "float32"}, ...).dtype end
function Cast:forward(x) return args.tensor("Cast", "x", x):to(self._dtype) end
function Cast:describe() return self._dtype end

--- pg.data.vision.transforms.ToTensor() makes a float32 tensor channels x height x width in [0, 1] of a uint8 image height x
--- width x channels. As in Gluon and torchvision: x / 255.
--- Example: return pg.data.vision.transforms.ToTensor()(pg.tensor({{{0, 51, 255}}}, {dtype = "uint8"}))
local ToTensor = base.HybridBlock:extend("ToTensor")
transforms.ToTensor = ToTensor
function ToTensor:init(...) args.read("ToTensor", {}, {}, ...) end

function ToTensor:forward(x)
  image.check("ToTensor", x, "HWC")
  if x.dtype ~= "uint8" then
    core.arg_error("ToTensor", "x", "an image of dtype uint8; x:permute(3, 1, 2) changes the layout of others", x)
  end
  return x:permute(x:dim() == 3 and {3, 1, 2} or {1, 4, 2, 3}):to("float32") / 255
end

function ToTensor:describe() return "" end

--- pg.data.vision.transforms.Normalize(mean = 0, std = 1) is (x - mean) / std for tensors channels x height x width. mean and std
--- are numbers, or lists with a number for each channel.
--- Example: return pg.data.vision.transforms.Normalize({0, 1}, 2)(pg.ones(2, 1, 1))
local Normalize = base.HybridBlock:extend("Normalize")
transforms.Normalize = Normalize

local function numbers(name, value)
  local list = type(value) == "table" and value or {value}
  if not args.plain(list) or #list == 0 then core.arg_error("Normalize", name, "a number or a list of numbers", value) end
  for _, v in ipairs(list) do
    args.number("Normalize", name, v)
    if name == "std" and v <= 0 then core.arg_error("Normalize", name, "numbers > 0", v) end
  end
  return list
end

function Normalize:init(...)
  local o = args.read("Normalize", {"mean", "std"}, {mean = 0, std = 1}, ...)
  self._mean, self._std = numbers("mean", o.mean), numbers("std", o.std)
end

local function per_channel(name, list, x)
  if #list == 1 then return list[1] end
  if x:size(-3) ~= #list then core.arg_error("Normalize", "x", ("a tensor of %d channels, as %s"):format(#list, name), x) end
  return ops.tensor(list, {device = x.device, dtype = x.dtype}):reshape{#list, 1, 1}
end

function Normalize:forward(x)
  image.floating("Normalize", image.check("Normalize", x, "CHW"))
  return (x - per_channel("mean", self._mean, x)) / per_channel("std", self._std, x)
end

function Normalize:describe() return table.concat(self._mean, " ") .. ", " .. table.concat(self._std, " ") end

--- pg.data.vision.transforms.RandomApply, pg.data.vision.transforms.HybridRandomApply(f, p = 0.5) call f, a transform or another
--- function, with probability p. Lua reads the random number of RandomApply, so that f may do anything. HybridRandomApply
--- decides with pg.cond, so it can be hybridized; f then keeps shape and dtype, and reads no values.
--- Example: local T = pg.data.vision.transforms
--- return T.RandomApply(T.Resize(2), 1)(pg.ones(4, 4, 3)).shape
local function define_apply(name, parent, choose)
  local Apply = parent:extend(name)
  transforms[name] = Apply

  function Apply:init(...)
    local o = args.read(name, {"f", "p"}, {f = args.required, p = 0.5}, ...)
    self.f, self._p = args.callable(name, "f", o.f), image.probability(name, o.p)
  end

  function Apply:forward(x) return choose(image.chance(args.tensor(name, "x", x), self._p), self.f, x) end
end

define_apply("RandomApply", base.Block, function(yes, f, x)
  if yes:item() then return f(x) end
  return x
end)

define_apply("HybridRandomApply", base.HybridBlock, function(yes, f, x)
  return core.pg.cond(yes, function() return f(x) end, function() return x end)
end)

return core.require("support.namespace").seal("transforms", transforms)
