-- pg.data.vision: image datasets read from files.
local core = ...
local args = core.require("support.args")
local datasets = core.require("data.dataset")
local ops = core.ops
local vision = {}

local function malformed(path, position, text, ...)
  core.fail("MNIST", "%s: byte %d: " .. text, path, position, ...)
end

--- vision.read_idx(path, rank) -> a uint8 tensor from an idx file, plain or gzipped, with this number of dims. A
--- malformed file is an error that names the path and the position.
function vision.read_idx(path, rank)
  local x = core.load_idx(path, "MNIST")
  if x.dtype ~= "uint8" then malformed(path, 2, "expected unsigned bytes, got %s", x.dtype) end
  if x:dim() ~= rank then malformed(path, 3, "expected %d dims, got %d", rank, x:dim()) end
  return x
end

local function find(root, name)
  for _, path in ipairs{root .. "/" .. name, root .. "/" .. name .. ".gz"} do
    if core.can_read(path) then return path end
  end
  core.fail("MNIST", "no file %s or %s.gz in the folder %s", name, name, root)
end

--- pg.data.vision.MNIST{root=, train = true} -> the dataset in the idx files of a folder (train-images-idx3-ubyte and
--- so on, plain or .gz). Images are 1 x 28 x 28, float32 in [0, 1]. Labels are int64 1..10; dataset.classes holds their
--- names.
local MNIST = datasets.Dataset:extend("MNIST")
vision.MNIST = MNIST
local classes = {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"}

function MNIST:init(...)
  local o = args.read("MNIST", {"root", "train"}, {root = args.required, train = true}, ...)
  args.string("MNIST", "root", o.root)
  local part = args.boolean("MNIST", "train", o.train) and "train" or "t10k"
  local image_path, label_path = find(o.root, part .. "-images-idx3-ubyte"), find(o.root, part .. "-labels-idx1-ubyte")
  local images, labels = vision.read_idx(image_path, 3), vision.read_idx(label_path, 1)
  local n = images:size(1)
  if labels:size(1) ~= n then
    malformed(label_path, 4, "expected %d labels, one per image, got %d", n, labels:size(1))
  end
  if n > 0 and labels:max():item() > 9 then
    local at = ops.argmax(labels):item()
    malformed(label_path, 7 + at, "expected labels 0 to 9, got %d", labels[at]:item())
  end
  self._images, self._labels = images:unsqueeze(2), labels:to("int64") + 1
  self.classes = classes
end

function MNIST:len() return self._images:size(1) end

function MNIST:get(i)
  local n = self:len()
  if type(i) ~= "number" or i ~= math.floor(i) or i == 0 or math.abs(i) > n then
    core.arg_error("get", "i", "a whole number in 1.." .. n, i)
  end
  return self._images[i]:to("float32") / 255, self._labels[i]
end

function MNIST:get_batch(index)
  index = index:to(self._images.device)
  return ops.index_select(self._images, 1, index):to("float32") / 255, ops.index_select(self._labels, 1, index)
end

return core.require("support.namespace").seal("vision", vision)
