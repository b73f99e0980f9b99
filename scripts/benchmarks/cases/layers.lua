-- Inference of convolutional networks and transformers, and single layers of them.
local networks = dofile((arg[0]:match("^(.*)/[^/]*$") or ".") .. "/networks.lua")

local function infer(name, build, shape, variant)
  return {name = name, variant = variant, setup = function(pg)
    local net, x = build(pg), pg.rand(shape) - 0.5
    net(x)
    if name:find("bf16") then
      net:cast("bfloat16")
      x = x:to("bfloat16")
    end
    if variant then net:hybridize() end
    return function() return net(x) end
  end}
end

local cases = {
  {name = "conv3x3_64_56", setup = function(pg)
    local x, w = pg.rand(1, 64, 56, 56) - 0.5, pg.rand(64, 64, 3, 3) - 0.5
    return function() return x:conv2d(w, nil, {padding = 1}) end
  end},
  {name = "gemm_bf16_1024", setup = function(pg)
    local a, b = (pg.rand(1024, 1024) - 0.5):to("bfloat16"), (pg.rand(1024, 1024) - 0.5):to("bfloat16")
    return function() return a:mm(b) end
  end},
}
local function resnet18(pg) return networks.residual(pg, {2, 2, 2, 2}, false) end
local function resnet50(pg) return networks.residual(pg, {3, 4, 6, 3}, true) end
local image = {1, 3, 224, 224}
for _, row in ipairs{
  {"resnet18_b1_infer", resnet18, image},
  {"resnet18_b1_infer_bf16", resnet18, image},
  {"resnet50_b1_infer", resnet50, image},
  {"resnet50_b1_infer_bf16", resnet50, image},
  {"mobilenet_v2_b1_infer", networks.mobilenet, image},
  {"mobilenet_v2_b1_infer_bf16", networks.mobilenet, image},
  {"unet3d_b1_infer", function(pg) return networks.unet3d(pg, 32) end, {1, 1, 32, 64, 64}},
  {"lenet_b64_infer", networks.lenet, {64, 1, 28, 28}},
  {"xf_4l_n1_t128_infer", function(pg) return networks.transformer(pg, 4) end, {1, 128, 256}},
  {"xf_4l_n1_t1_infer", function(pg) return networks.transformer(pg, 4) end, {1, 1, 256}},
} do
  cases[#cases + 1] = infer(row[1], row[2], row[3])
  cases[#cases + 1] = infer(row[1], row[2], row[3], "hybrid")
end
return cases
