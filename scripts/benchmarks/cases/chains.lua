-- Chains of ten pointwise ops, as in the peers' programs. Fused they need one pass over memory.
local function arith(a, b, c)
  local t = a * b
  t = t + c
  t = t * a
  t = t - b
  t = t * c
  t = t + a
  t = t * 0.5
  t = t - c
  t = t * b
  return t + 1
end

local function transc(a, b, c)
  local t = (a * b + c):tanh()
  local u = (a - b):sigmoid()
  t = t * u
  t = t + c * 0.5
  t = t:relu()
  return t * a
end

local cases = {}
local function add(kind, f, size, n, variant)
  cases[#cases + 1] = {name = "chain10_" .. kind .. "_" .. size, variant = variant, setup = function(pg)
    local a, b, c = pg.rand(n) - 0.5, pg.rand(n) - 0.5, pg.rand(n) - 0.5
    local g = variant and pg.jit(f) or f
    return function() return g(a, b, c) end
  end}
end

for _, size in ipairs{{"1k", 2 ^ 10}, {"64k", 2 ^ 16}, {"1m", 2 ^ 20}, {"16m", 2 ^ 24}} do
  for _, kind in ipairs{{"arith", arith}, {"transc", transc}} do
    if size[1] ~= "16m" then add(kind[1], kind[2], size[1], size[2]) end
    add(kind[1], kind[2], size[1], size[2], "jit")
  end
end
return cases
