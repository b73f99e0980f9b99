-- pg.data.vision: image datasets read from files, and transforms of images.
local core = ...
local args = core.require("support.args")
local datasets = core.require("data.dataset")
local ops = core.ops
local vision = {}

local function malformed(op, path, position, text, ...)
  core.fail(op, "%s: byte %d: " .. text, path, position, ...)
end

--- vision.read_idx(path, rank) -> a uint8 tensor from an idx file, plain or gzipped, with this number of dims. A
--- malformed file is an error that names the path and the position.
function vision.read_idx(path, rank)
  local x = core.load_idx(path, "MNIST")
  if x.dtype ~= "uint8" then malformed("MNIST", path, 2, "expected unsigned bytes, got %s", x.dtype) end
  if x:dim() ~= rank then malformed("MNIST", path, 3, "expected %d dims, got %d", rank, x:dim()) end
  return x
end

-- Returns the path of a file, plain or gzipped, in the folder root or in its folder `inner`.
local function find(op, root, name, inner)
  for _, folder in ipairs{root, inner and root .. "/" .. inner} do
    for _, path in ipairs{folder .. "/" .. name, folder .. "/" .. name .. ".gz"} do
      if core.can_read(path) then return path end
    end
  end
  core.fail(op, "no file %s or %s.gz in the folder %s%s", name, name, root, inner and " or its folder " .. inner or "")
end

-- The base class of datasets that hold images as uint8 and labels as int64.
local Images = datasets.Dataset:extend("Images")

function Images:len() return self._images:size(1) end

function Images:get(i)
  local n = self:len()
  if type(i) ~= "number" or i ~= math.floor(i) or i == 0 or math.abs(i) > n then
    core.arg_error("get", "i", "a whole number in 1.." .. n, i)
  end
  return self._images[i]:to("float32") / 255, self._labels[i]
end

function Images:get_batch(index)
  index = index:to(self._images.device)
  return ops.index_select(self._images, 1, index):to("float32") / 255, ops.index_select(self._labels, 1, index)
end

-- Sets the images and labels of a dataset. Labels count from 0 in files.
local function fill(dataset, images, labels, classes)
  dataset._images, dataset._labels, dataset.classes = images, labels:to("int64") + 1, classes
end

--- pg.data.vision.MNIST{root=, train = true} -> the dataset in the idx files of a folder (train-images-idx3-ubyte and
--- so on, plain or .gz). Images are 1 x 28 x 28, float32 in [0, 1]. Labels are int64 1..10; dataset.classes holds their
--- names.
local MNIST = Images:extend("MNIST")
vision.MNIST = MNIST
local digits = {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"}

function MNIST:init(...)
  local o = args.read("MNIST", {"root", "train"}, {root = args.required, train = true}, ...)
  args.string("MNIST", "root", o.root)
  local part = args.boolean("MNIST", "train", o.train) and "train" or "t10k"
  local image_path = find("MNIST", o.root, part .. "-images-idx3-ubyte")
  local label_path = find("MNIST", o.root, part .. "-labels-idx1-ubyte")
  local images, labels = vision.read_idx(image_path, 3), vision.read_idx(label_path, 1)
  local n = images:size(1)
  if labels:size(1) ~= n then
    malformed("MNIST", label_path, 4, "expected %d labels, one per image, got %d", n, labels:size(1))
  end
  if n > 0 and labels:max():item() > 9 then
    local at = ops.argmax(labels):item()
    malformed("MNIST", label_path, 7 + at, "expected labels 0 to 9, got %d", labels[at]:item())
  end
  fill(self, images:unsqueeze(2), labels, digits)
end

local pixels = 3 * 32 * 32

-- Reads a file of CIFAR's records: `heads` bytes of labels, then the pixels of an image, 3 x 32 x 32. Returns the images and
-- the bytes at place `at` of the heads. classes is the number of classes.
local function read_records(op, path, heads, at, classes)
  local bytes, record = core.read_file(path), heads + pixels
  local count = math.floor(#bytes / record)
  if count == 0 or #bytes ~= count * record then
    core.fail(op, "%s: expected records of %d bytes, each with %d of labels and an image of 3 x 32 x 32, got %d bytes (%s)", path, record,
              heads, #bytes, count == 0 and "less than one record" or ("%d bytes after record %d"):format(#bytes - count * record, count))
  end
  local records = ops.from_bytes(bytes, "uint8", {count, record})
  local labels = records:narrow(2, at, 1):flatten()
  if labels:max():item() >= classes then
    local i = ops.argmax(labels):item()
    malformed(op, path, (i - 1) * record + at - 1, "expected labels 0 to %d, got %d", classes - 1, labels[i]:item())
  end
  return records:narrow(2, heads + 1, pixels):reshape{count, 3, 32, 32}, labels
end

-- Reads the files of a dataset.
local function read_all(op, root, inner, names, ...)
  local images, labels = {}, {}
  for i, name in ipairs(names) do images[i], labels[i] = read_records(op, find(op, root, name, inner), ...) end
  return ops.cat(images), ops.cat(labels)
end

local function words(text)
  local list = {}
  for word in text:gmatch("%S+") do list[#list + 1] = word end
  return list
end

local cifar10 = words "airplane automobile bird cat deer dog frog horse ship truck"
local cifar10_files = {
  [true] = words "data_batch_1.bin data_batch_2.bin data_batch_3.bin data_batch_4.bin data_batch_5.bin", [false] = {"test_batch.bin"},
}

--- pg.data.vision.CIFAR10{root=, train = true} -> the dataset in the files of the binary version of CIFAR-10 (data_batch_1.bin to
--- data_batch_5.bin, or test_batch.bin; plain or .gz), in the folder root or in its folder cifar-10-batches-bin. Images are 3 x
--- 32 x 32, float32 in [0, 1]. Labels are int64 1..10; dataset.classes holds their names. For transforms of images, give
--- these the layout "CHW". Krizhevsky, Learning multiple layers of features from tiny images, 2009.
local CIFAR10 = Images:extend("CIFAR10")
vision.CIFAR10 = CIFAR10

function CIFAR10:init(...)
  local o = args.read("CIFAR10", {"root", "train"}, {root = args.required, train = true}, ...)
  local files = cifar10_files[args.boolean("CIFAR10", "train", o.train)]
  local images, labels = read_all("CIFAR10", args.string("CIFAR10", "root", o.root), "cifar-10-batches-bin", files, 1, 1, 10)
  fill(self, images, labels, cifar10)
end

local cifar100_fine = words [[apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel
  can castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin elephant
  flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree motorcycle
  mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine possum
  rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake spider squirrel streetcar sunflower
  sweet_pepper table tank telephone television tiger tractor train trout tulip turtle wardrobe whale willow_tree wolf woman worm]]
local cifar100_coarse = words [[aquatic_mammals fish flowers food_containers fruit_and_vegetables household_electrical_devices
  household_furniture insects large_carnivores large_man-made_outdoor_things large_natural_outdoor_scenes
  large_omnivores_and_herbivores medium_mammals non-insect_invertebrates people reptiles small_mammals trees vehicles_1 vehicles_2]]

--- pg.data.vision.CIFAR100{root=, train = true, fine_label = false} -> the dataset in train.bin or test.bin, the binary version
--- of CIFAR-100, in the folder root or in its folder cifar-100-binary. Images are those of CIFAR10. Labels are int64 1..20
--- for the coarse classes, or 1..100 with fine_label = true.
local CIFAR100 = Images:extend("CIFAR100")
vision.CIFAR100 = CIFAR100

function CIFAR100:init(...)
  local o = args.read("CIFAR100", {"root", "train"}, {root = args.required, train = true, fine_label = false}, ...)
  local fine = args.boolean("CIFAR100", "fine_label", o.fine_label)
  local classes = fine and cifar100_fine or cifar100_coarse
  local files = {args.boolean("CIFAR100", "train", o.train) and "train.bin" or "test.bin"}
  local root = args.string("CIFAR100", "root", o.root)
  local images, labels = read_all("CIFAR100", root, "cifar-100-binary", files, 2, fine and 2 or 1, #classes)
  fill(self, images, labels, classes)
end

return core.require("support.namespace").seal("vision", vision, {transforms = function() return core.require("data.transforms") end})
