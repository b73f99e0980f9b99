-- Attention over 4096 positions and training of Transformer blocks. peak_rss_delta_mb is the memory that a call needs.
local networks = dofile((arg[0]:match("^(.*)/[^/]*$") or ".") .. "/networks.lua")

local cases = {}
for _, variant in ipairs{{"", "float32"}, {"_bf16", "bfloat16"}} do
  local suffix, dtype = unpack(variant)
  local function heads(pg) return (pg.rand(1, 8, 4096, 64) - 0.5):to(dtype) end
  table.insert(cases, {name = "attention_t4096" .. suffix, setup = function(pg)
    local q, k, v = heads(pg), heads(pg), heads(pg)
    return function() return pg.scaled_dot_product_attention(q, k, v) end, {inner = 1}
  end})
  table.insert(cases, {name = "attention_t4096_train" .. suffix, setup = function(pg)
    local q, k, v = heads(pg):attach_grad(), heads(pg):attach_grad(), heads(pg):attach_grad()
    return function()
      local y = pg.record(function() return pg.scaled_dot_product_attention(q, k, v, {is_causal = true}) end)
      y:backward()
    end, {inner = 1}
  end})
end

-- The gradients of the sum of the outputs, as the peers compute them.
local function train(variant)
  return {name = "xf_4l_n8_t128_train", variant = variant, setup = function(pg)
    local net, x = networks.transformer(pg, 4), pg.rand(8, 128, 256) - 0.5
    net(x)
    if variant == "hybrid" then net:hybridize() end
    local function step() pg.record(function() return net(x) end):backward() end
    return variant == "jit" and pg.jit(step) or step, {inner = 1}
  end}
end
for _, variant in ipairs{false, "hybrid", "jit"} do cases[#cases + 1] = train(variant or nil) end
return cases
