-- Large arrays, limited by memory bandwidth or arithmetic.
local cases = {
  {name = "softmax_4096x1024", setup = function(pg)
    local x = pg.rand(4096, 1024) - 0.5
    return function() return x:softmax(-1) end
  end},
  {name = "layernorm_4096x1024", setup = function(pg)
    local x, g, b = pg.rand(4096, 1024) - 0.5, pg.ones(1024), pg.zeros(1024)
    return function() return x:layer_norm({1024}, g, b) end
  end},
  {name = "sum_16m", setup = function(pg)
    local x = pg.rand(2 ^ 24) - 0.5
    return function() return x:sum() end
  end},
}

for _, n in ipairs{512, 1024, 2048} do
  cases[#cases + 1] = {name = "gemm_" .. n, setup = function(pg)
    local a, b = pg.rand(n, n) - 0.5, pg.rand(n, n) - 0.5
    return function() return a:mm(b) end
  end}
  cases[#cases + 1] = {name = "gemm_" .. n, variant = "jit", setup = function(pg)  -- b is a constant of the program
    local a, b = pg.rand(n, n) - 0.5, pg.rand(n, n) - 0.5
    local product = pg.jit(function(x) return x:mm(b) end)
    return function() return product(a) end
  end}
end

local M = 2 ^ 20
for _, op in ipairs{"add", "mul", "div", "maximum"} do
  cases[#cases + 1] = {name = op .. "_1m", setup = function(pg)
    local a, b = pg.rand(M) + 0.5, pg.rand(M) + 0.5
    return function() return pg[op](a, b) end
  end}
end
for _, op in ipairs{"relu", "sqrt", "exp", "log", "sin", "tanh", "sigmoid", "erf", "gelu", "sum", "max", "mean", "argmax"} do
  cases[#cases + 1] = {name = op .. "_1m", setup = function(pg)
    local a = pg.rand(M) + 0.5
    return function() return pg[op](a) end
  end}
end
for _, dim in ipairs{1, 2} do
  cases[#cases + 1] = {name = "sum_dim" .. dim .. "_1024x1024", setup = function(pg)
    local a = pg.rand(1024, 1024)
    return function() return a:sum(dim) end
  end}
end
cases[#cases + 1] = {name = "add_row_1024x1024", setup = function(pg)
  local a, b = pg.rand(1024, 1024), pg.rand(1024)
  return function() return a + b end
end}
cases[#cases + 1] = {name = "transpose_copy_1024x1024", setup = function(pg)
  local a = pg.rand(1024, 1024)
  return function() return a:t():contiguous() end
end}
return cases
