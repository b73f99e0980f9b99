-- pg.data.digits: a small set of handwritten digits, embedded in the program.
local core = ...
local args = core.require("support.args")
local datasets = core.require("data.dataset")
local ops = core.ops

local count, train_count, pixels = 1797, 1437, 64
local classes = {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"}

--- pg.data.digits([{train=}]) -> an ArrayDataset of handwritten digits: images 1 x 8 x 8, float32 in [0, 1], and int64
--- labels 1..10 for the digits 0 to 9; dataset.classes holds their names. It has all 1797 digits, the first 1437 with
--- train = true, or the last 360 with train = false. They are the test part of "Optical Recognition of Handwritten
--- Digits" (E. Alpaydin and C. Kaynak, UCI Machine Learning Repository, 1998) in scikit-learn's order. data/digits.bin
--- holds 1797 images of 64 bytes (0 to 16), then 1797 labels.
local function digits(opts)
  if type(opts) == "string" then
    core.fail("digits", "bad argument 'options' (expected a table of options, got \"%s\"; write data.digits{train = true})", opts)
  end
  local train = args.options("digits", opts, {train = args.none}).train
  if train ~= nil then args.boolean("digits", "train", train) end
  local bytes = core.embedded("data/digits.bin")
  local first, last = 1, count
  if train == true then last = train_count elseif train == false then first = train_count + 1 end
  local n = last - first + 1
  local images = ops.from_bytes(bytes:sub((first - 1) * pixels + 1, last * pixels), "uint8", {n, 1, 8, 8})
  local labels = ops.from_bytes(bytes:sub(count * pixels + first, count * pixels + last), "uint8", {n})
  local dataset = datasets.ArrayDataset(images:to("float32") / 16, labels:to("int64") + 1)
  dataset.classes = classes
  return dataset
end

return digits
