-- CIFAR10, CIFAR100 and the transforms of images. Expected values of transforms are torchvision's.
local t = require "tests.support"
local pg = require "perigee"
local data = pg.data
local vision, T = data.vision, data.vision.transforms

-- A record of a CIFAR file: labels, then planes of red, green and blue.
local function record(labels, red, green, blue)
  return labels .. ("%c"):format(red):rep(1024) .. ("%c"):format(green):rep(1024) .. ("%c"):format(blue):rep(1024)
end

local function folder(name) return t.tmp(name) .. "/" end

local function make(path)
  os.execute("mkdir -p '" .. path .. "'")
  return path
end

t.test("CIFAR10 reads its binary files, also in the folder that the archive makes", function()
  local root = make(folder("cifar"))
  local inner = make(root .. "cifar-10-batches-bin/")
  for i = 1, 5 do t.write(inner .. "data_batch_" .. i .. ".bin", record(string.char(i), 51 * i, 0, 255) .. record("\0", 0, i, 0)) end
  t.write(root .. "test_batch.bin", record("\9", 255, 51, 0):sub(1, -2) .. "\102")
  local train, test = vision.CIFAR10{root = root, train = true}, vision.CIFAR10(root:sub(1, -2), false)
  t.equal({train:len(), test:len(), train.classes[1], #train.classes}, {10, 1, "airplane", 10})
  local x, y = test:get(1)
  t.equal({x.shape, x.dtype, y:item(), y.dtype, test.classes[y:item()]}, {{3, 32, 32}, "float32", 10, "int64", "truck"})
  t.close(pg.stack{x[{1, 1, 1}], x[{2, 32, 32}], x[{3, 1, 1}], x[{3, 32, 32}]}, {1, 0.2, 0, 0.4})
  x, y = train:get(-4)
  t.close(x:mean({2, 3}), {0.8, 0, 1})
  t.equal(y:item(), 5)
  for bx, by in data.DataLoader(train, {batch_size = 10}):iter() do
    t.equal({bx.shape, by:totable()}, {{10, 3, 32, 32}, {2, 1, 3, 1, 4, 1, 5, 1, 6, 1}})
  end
  t.error_contains(function() train:get(11) end, "a whole number in 1..10")
end)

t.test("CIFAR100 has coarse and fine labels", function()
  local root = make(folder("cifar100"))
  t.write(root .. "train.bin", record("\19\99", 1, 2, 3) .. record("\0\1", 1, 2, 3))
  local coarse, fine = vision.CIFAR100{root = root}, vision.CIFAR100{root = root, fine_label = true}
  local function labels(ds) return {select(2, ds:get(1)):item(), select(2, ds:get(2)):item(), ds.classes[(select(2, ds:get(1))):item()]} end
  t.equal(labels(coarse), {20, 1, "vehicles_2"})
  t.equal(labels(fine), {100, 2, "worm"})
  t.equal({#coarse.classes, #fine.classes}, {20, 100})
  t.error_contains(function() vision.CIFAR100{root = root, train = false} end, "CIFAR100: no file test.bin or test.bin.gz in the folder")
end)

t.test("CIFAR10 refuses missing and malformed files by name", function()
  local root = make(folder("malformed"))
  local path = root .. "test_batch.bin"
  local function refuses(content, text)
    if content then t.write(path, content) end
    t.error_contains(function() vision.CIFAR10{root = root:sub(1, -2), train = false} end, text)
  end
  local one = record("\3", 1, 2, 3)
  refuses(nil, ("no file test_batch.bin or test_batch.bin.gz in the folder %s or its folder cifar-10-batches-bin"):format(root:sub(1, -2)))
  refuses(one:sub(1, -2), path .. ": expected records of 3073 bytes, each with 1 of labels and an image of 3 x 32 x 32, got 3072 bytes (less "
          .. "than one record)")
  refuses(one .. "xy", "got 3075 bytes (2 bytes after record 1)")
  refuses("", "got 0 bytes")
  refuses(one .. record("\10", 1, 2, 3), path .. ": byte 3073: expected labels 0 to 9, got 10")
  t.error_contains(function() vision.CIFAR10{root = root} end, "no file data_batch_1.bin")
  t.error_contains(function() vision.CIFAR10() end, "root")
  t.error_contains(function() vision.CIFAR10{root = root, train = "yes"} end, "train")
end)

local plane = (pg.range(0, 11) * 5):remainder(12):reshape{1, 3, 4}
local colors = pg.tensor{{{0.2, 0.9}, {0.5, 0.1}}, {{0.4, 0.1}, {0.5, 0.8}}, {{0.6, 0.3}, {0.5, 0.7}}}
local CHW = {layout = "CHW"}

-- A call of f as it is, and hybridized twice, with the same random numbers.
local function ways(f, x, seed)
  seed = seed or 7
  local function call()
    pg.manual_seed(seed)
    return f(x)
  end
  local plain = call()
  f:hybridize()
  for _ = 1, 2 do t.close(call(), plain, {atol = 1e-6}) end
  f:hybridize(false)
  return plain
end

local function flat(x) return x:flatten():totable() end

t.test("ToTensor, Cast and Normalize", function()
  local x = pg.tensor({{{0, 51, 255}, {102, 0, 0}}}, {dtype = "uint8"})
  t.close(ways(T.ToTensor(), x), {{{0, 0.4}}, {{0.2, 0}}, {{1, 0}}})
  t.equal(T.ToTensor()(pg.stack{x, x}).shape, {2, 3, 1, 2})
  t.equal(T.Cast("float64")(x).dtype, "float64")
  t.equal(T.Cast()(x).dtype, "float32")
  local y = pg.ones(2, 3, 1, 1)
  t.close(ways(T.Normalize({1, 0, -1}, {1, 2, 4}), y):select(1, 2), {{{0}}, {{0.5}}, {{0.5}}})
  t.close(T.Normalize{mean = 0.5, std = 0.25}(y), y * 2)
  t.close(T.Normalize()(y), y)
  t.error_contains(function() T.ToTensor()(y) end, "ToTensor: bad argument 'x' (expected an image of dtype uint8;")
  t.error_contains(function() T.ToTensor()(x[1]) end, "expected an image, HWC or NHWC")
  t.error_contains(function() T.Normalize(0.5)(x) end, "ToTensor() makes one")
  t.error_contains(function() T.Normalize({1, 2})(y) end, "2 channels")
  t.error_contains(function() T.Normalize(0, 0) end, "std")
end)

t.test("Resize: torchvision's values without antialiasing, sizes, layouts and dtypes", function()
  local function resized(interpolation) return ways(T.Resize({5, 2}, false, interpolation, CHW), plane) end
  local bilinear = {2.0, 3.4, 6.5, 7.8, 5.0, 5.0, 6.4, 5.0, 4.5, 8.0}
  t.close(flat(resized("bilinear")), bilinear)
  t.close(flat(resized(1)), bilinear)
  t.close(flat(resized("bicubic")), {1.840168, 2.695975, 7.099121, 8.637669, 4.693038, 5.074544, 7.000118, 4.572266, 3.806321, 8.516879})
  t.close(flat(resized(0)), {0, 0, 5, 10, 3, 8, 8, 1, 6, 11})
  local hwc = plane:permute(2, 3, 1):to("uint8")
  local y = ways(T.Resize{5, 2}, hwc)
  t.equal({y.shape, y.dtype, flat(y)}, {{2, 5, 1}, "uint8", {2, 3, 6, 8, 5, 5, 6, 5, 4, 8}})
  local batch = T.Resize({5, 2})(pg.stack{hwc, hwc})
  t.equal({batch.shape, batch[2]:totable()}, {{2, 2, 5, 1}, y:totable()})
  t.equal({T.Resize(2)(hwc).shape, T.Resize(6, true)(hwc).shape, T.Resize(6, true)(hwc:transpose(1, 2)).shape}, {{2, 2, 1}, {6, 8, 1}, {8, 6, 1}})
  t.error_contains(function() T.Resize(0) end, "size")
  t.error_contains(function() T.Resize(2, false, "lanczos") end, "interpolation")
  t.error_contains(function() T.Resize(2, {layout = "WHC"}) end, "layout")
  t.error_contains(function() T.Resize(2)(pg.ones(2, 2)) end, "an image, HWC or NHWC")
end)

t.test("CenterCrop and CropResize", function()
  local x = pg.range(1, 20):reshape{4, 5, 1}
  t.equal(flat(ways(T.CenterCrop{3, 2}, x)), {7, 8, 9, 12, 13, 14})
  t.equal(flat(T.CenterCrop(2)(x)), {7, 8, 12, 13})
  local large = T.CenterCrop(8)(x)                     -- the center 4 x 4, resized
  t.close(large, T.Resize(8)(x:narrow(2, 1, 4)))
  t.equal(flat(ways(T.CropResize(1, 2, 3, 2), x)), {12, 13, 14, 17, 18, 19})
  t.close(T.CropResize(1, 2, 3, 2, {6, 4})(x), T.Resize({6, 4})(x:narrow(1, 3, 2):narrow(2, 2, 3)))
  t.error_contains(function() T.CropResize(3, 0, 3, 2)(x) end, "an image of at least 6 x 2 pixels")
end)

t.test("RandomCrop: parts of the image, padding, every place", function()
  local x = pg.range(1, 12):reshape{3, 4, 1}
  local seen = {}
  for seed = 1, 40 do
    pg.manual_seed(seed)
    local y = T.RandomCrop(2)(x)
    local first = y[{1, 1, 1}]:item()
    t.equal(flat(y), {first, first + 1, first + 4, first + 5})
    seen[first] = true
  end
  local places = {}
  for place in pairs(seen) do places[#places + 1] = place end
  table.sort(places)
  t.equal(places, {1, 2, 3, 5, 6, 7})
  ways(T.RandomCrop({3, 2}), x)
  local whole = T.RandomCrop({6, 5}, 1, 9)(x)
  t.equal({whole.shape, whole[1]:flatten():totable(), whole[2]:flatten():totable()}, {{5, 6, 1}, {9, 9, 9, 9, 9, 9}, {9, 1, 2, 3, 4, 9}})
  local sides = T.RandomCrop({7, 3}, {0, 0, 1, 2}, CHW)(x:permute(3, 1, 2))
  t.equal(sides[{1, 1}]:totable(), {0, 1, 2, 3, 4, 0, 0})
  t.equal(T.RandomCrop(8)(x).shape, {8, 8, 1})
end)

t.test("RandomResizedCrop takes parts of the given area", function()
  local ramp = pg.range(1, 30):reshape{1, 30, 1}:expand{20, 30, 1}
  for seed = 1, 10 do
    pg.manual_seed(seed)
    local y = T.RandomResizedCrop({8, 6}, {0.25, 0.25}, {1, 1})(ramp)
    t.equal(y.shape, {6, 8, 1})
    t.close(y[{1, 8, 1}] - y[{1, 1, 1}], 12 * 7 / 8, {atol = 1e-3})   -- the side is sqrt(600 / 4), about 12
  end
  pg.manual_seed(2)
  local f = T.RandomResizedCrop(5)
  local y = f(ramp)
  pg.manual_seed(2)
  t.equal(f(ramp), y)
  t.equal(T.RandomResizedCrop(4, {1, 1}, {9, 9})(ramp):select(1, 1):flatten():totable(), {14, 15, 16, 17})   -- no part fits: the center
  t.error_contains(function() T.RandomResizedCrop(4, {1, 0.5}) end, "scale")
end)

t.test("flips", function()
  local x = pg.range(1, 6):reshape{2, 3, 1}
  t.equal(flat(ways(T.RandomFlipLeftRight(1), x)), {3, 2, 1, 6, 5, 4})
  t.equal(flat(ways(T.RandomFlipTopBottom(1), x)), {4, 5, 6, 1, 2, 3})
  t.equal(flat(T.RandomFlipLeftRight(1, CHW)(x:permute(3, 1, 2))), {3, 2, 1, 6, 5, 4})
  t.equal(ways(T.RandomFlipLeftRight(0), x), x)
  local f, turned = T.RandomFlipLeftRight(0.3):hybridize(), 0
  pg.manual_seed(1)
  for _ = 1, 100 do if f(x)[{1, 1, 1}]:item() == 3 then turned = turned + 1 end end
  t.check(turned > 15 and turned < 45, turned)
  t.error_contains(function() T.RandomFlipLeftRight(2) end, "'p'")
end)

t.test("Rotate and RandomRotation", function()
  local function turned(degrees) return flat(ways(T.Rotate(degrees), plane)) end
  t.close(turned(30), {1.345758, 6.925885, 7.428203, 7.059947, 2.401924, 2.334937, 4.866026, 6.99519, 5.282378, 5.75833, 5.276366, 1.342065})
  t.close(turned(0), flat(plane))
  local ones = pg.ones(1, 9, 9)
  t.close(T.Rotate(45, true)(ones)[{1, {2, 8}, {2, 8}}], pg.ones(7, 7))
  t.close(T.Rotate(45, false, true)(ones)[{1, 5, {4, 6}}], {1, 1, 1})
  t.check(T.Rotate(45, false, true)(ones):sum():item() < 45)
  local f = T.RandomRotation({-20, 20})
  t.equal(ways(f, pg.stack{plane, plane}).shape, {2, 1, 3, 4})
  t.equal(T.RandomRotation({-20, 20}, {rotate_with_proba = 0})(plane), plane)
  t.close(T.RandomRotation({90, 90.0001})(ones), ones, {atol = 1e-3})
  t.error_contains(function() T.Rotate(10)(plane:to("uint8")) end, "ToTensor() makes one")
  t.error_contains(function() T.Rotate(10, true, true) end, "exclude each other")
  t.error_contains(function() T.RandomRotation({20, -20}) end, "angle_limits")
end)

-- A transform whose random number is v.
local function fixed(f, v)
  f._low, f._high = v, v
  return f
end

t.test("brightness, contrast, saturation and hue: torchvision's changes", function()
  local function changed(f, v) return flat(ways(fixed(f, v), colors)) end
  local close = {atol = 2e-4}                          -- torchvision weighs red by 0.2989
  t.close(changed(T.RandomBrightness(1, CHW), 0.5), flat(colors * 0.5))
  t.close(changed(T.RandomContrast(1, CHW), 0.5), {0.325516, 0.675516, 0.475516, 0.275516, 0.425516, 0.275516, 0.475516, 0.625516, 0.525516,
          0.375516, 0.475516, 0.575516}, close)
  t.close(changed(T.RandomSaturation(1, CHW), 0.5), {0.28149, 0.630955, 0.499975, 0.339645, 0.38149, 0.230955, 0.499975, 0.689645, 0.48149,
          0.330955, 0.499975, 0.639645}, close)
  t.close(changed(T.RandomHue(1, CHW), 0.3), {0.6, 0.46, 0.5, 0.56, 0.2, 0.9, 0.5, 0.1, 0.48, 0.1, 0.5, 0.8})
  t.close(changed(T.RandomHue(1, CHW), -0.2), {0.2, 0.54, 0.5, 0.34, 0.6, 0.1, 0.5, 0.8, 0.32, 0.9, 0.5, 0.1})
  t.close(T.RandomGray(1, CHW)(colors)[2], T.RandomGray(1, CHW)(colors)[3])
  t.close(T.RandomGray(1, CHW)(colors)[{1, 1, 1}], 0.2 * 0.299 + 0.4 * 0.587 + 0.6 * 0.114)
  t.equal(T.RandomGray(0, CHW)(colors), colors)
end)

t.test("uint8 images: torchvision's values", function()
  local x = pg.tensor({127, 196, 22, 33, 78, 162, 125, 229, 116, 161, 89, 102, 5, 43, 75, 132, 178, 204}, {dtype = "uint8"}):reshape{3, 2, 3}
  local function values(f) return flat(f(x)) end
  t.equal(values(fixed(T.RandomBrightness(1, CHW), 1.3)),
          {165, 254, 28, 42, 101, 210, 162, 255, 150, 209, 115, 132, 6, 55, 97, 171, 231, 255})
  t.equal(values(fixed(T.RandomContrast(1, CHW), 0.5)),
          {124, 159, 72, 77, 100, 142, 123, 175, 119, 141, 105, 112, 63, 82, 98, 127, 150, 163})
  t.equal(values(fixed(T.RandomSaturation(1, CHW), 1.6)),
          {136, 195, 0, 0, 67, 180, 133, 248, 135, 186, 85, 84, 0, 0, 70, 139, 227, 247})
  t.equal(values(fixed(T.RandomHue(1, CHW), 0)),
          {127, 196, 22, 33, 78, 162, 125, 229, 116, 161, 89, 102, 5, 43, 75, 132, 178, 204})
  t.equal(values(fixed(T.RandomHue(1, CHW), -0.3)),
          {127, 229, 116, 161, 78, 102, 5, 43, 94, 158, 178, 204, 105, 159, 22, 33, 87, 183})
  t.equal(values(T.RandomGray(1, CHW)), {111, 197, 83, 119, 95, 131, 111, 197, 83, 119, 95, 131, 111, 197, 83, 119, 95, 131})
  pg.manual_seed(1)
  local whole = values(T.RandomLighting(0.02, CHW))
  pg.manual_seed(1)
  t.equal(whole, flat((T.RandomLighting(0.02, CHW)(x:to("float32") / 255) * 255):round():to("uint8")))
end)

t.test("random colors: ranges, uint8, gray images and layouts", function()
  for seed = 1, 20 do
    pg.manual_seed(seed)
    local factor = T.RandomBrightness(0.25)(pg.ones(1, 1, 3)):max():item()
    t.check(factor >= 0.75 and factor <= 1.25, factor)
  end
  local bytes = (colors:permute(2, 3, 1) * 255):to("uint8")
  for _, f in ipairs{T.RandomBrightness(0.4), T.RandomContrast(0.4), T.RandomSaturation(0.4), T.RandomHue(0.4), T.RandomLighting(0.1), T.RandomGray(0.5),
                     T.RandomColorJitter(0.1, 0.1, 0.1, 0.1)} do
    local y = ways(f, bytes)
    t.equal({y.dtype, y.shape, f(pg.stack{bytes, bytes}).shape}, {"uint8", {2, 2, 3}, {2, 2, 2, 3}})
  end
  t.equal(fixed(T.RandomBrightness(1), 2)(pg.tensor({{{200, 3, 4}}}, {dtype = "uint8"})), pg.tensor({{{255, 6, 8}}}, {dtype = "uint8"}))
  t.equal(fixed(T.RandomBrightness(1), 0.5)(pg.tensor({{{3}}}, {dtype = "uint8"})):item(), 1)
  local one = pg.ones(2, 2, 1)
  for _, f in ipairs{T.RandomSaturation(0.4), T.RandomHue(0.4), T.RandomContrast(0.4), T.RandomGray(1)} do t.close(f(one), one) end
  t.equal(T.RandomColorJitter()(one), one)
  pg.manual_seed(4)
  local hwc = T.RandomLighting(0.1)(colors:permute(2, 3, 1))
  pg.manual_seed(4)
  local chw = T.RandomLighting(0.1, CHW)(colors)
  t.close(hwc:permute(3, 1, 2), chw)
  local shift = chw - colors
  t.close(shift, shift[{{1, 3}, {1, 1}, {1, 1}}]:expand{3, 2, 2}, {atol = 1e-6})
  t.check(shift:abs():max():item() < 0.3)
  t.error_contains(function() T.RandomHue(0.1)(pg.ones(2, 2, 2)) end, "an image of 1 or 3 channels")
  t.error_contains(function() T.RandomLighting(0.1)(one) end, "3 channels")
  t.error_contains(function() T.RandomBrightness(-1) end, "brightness")
end)

t.test("Compose, RandomApply, and transforms of a dataset", function()
  local f = T.Compose{T.Resize(4), T.RandomColorJitter(0.1, 0.1), T.RandomResizedCrop(3), T.ToTensor(), T.Normalize(0.5, 0.5)}
  local x = (pg.rand(8, 6, 3) * 255):to("uint8")
  t.equal(ways(f, x).shape, {3, 3, 3})
  local net = T.HybridCompose{T.RandomCrop(4, 1), T.RandomFlipLeftRight(), T.ToTensor(), T.HybridRandomApply(T.Normalize(1, 2), 0.5)}
  for seed = 1, 4 do t.equal(ways(net, x, seed).shape, {3, 4, 4}) end
  t.equal(net:hybridize():cache_info().traces, 0)
  for _ = 1, 3 do net(x) end
  t.equal(net:cache_info().traces, 1)
  t.error_contains(function() T.HybridCompose{f}:hybridize() end, "a plain Block inside a HybridBlock")
  t.equal({T.RandomApply(T.Resize(2), 1)(x).shape, T.RandomApply(T.Resize(2), 0)(x).shape}, {{2, 2, 3}, {8, 6, 3}})
  t.equal(T.RandomApply(function(v) return v:size(1) end, 1)(x), 8)
  local ds = data.ArrayDataset((pg.rand(6, 8, 8, 3) * 255):to("uint8"), {1, 2, 3, 1, 2, 3})
  local loader = data.DataLoader(ds:transform_first(T.Compose{T.RandomCrop(6), T.ToTensor()}), {batch_size = 3})
  local n = 0
  for images, labels in loader:iter() do
    t.equal({images.shape, images.dtype, labels.shape}, {{3, 3, 6, 6}, "float32", {3}})
    n = n + 1
  end
  t.equal(n, 2)
  t.equal(tostring(T.Resize({4, 2}, {layout = "CHW"})), "Resize(size 4x2, CHW)")
end)

t.test("gradients flow through transforms", function()
  local x = pg.rand(3, 6, 6):attach_grad()
  local f = T.HybridCompose{T.RandomBrightness(0.2, CHW), T.RandomCrop(4, CHW), T.Resize(5, CHW), T.Rotate(20), T.Normalize(0.5, 0.5)}
  local l = pg.record(function() return f(x):sum() end)
  l:backward()
  t.check(x.grad:abs():sum():item() > 0)
end)
