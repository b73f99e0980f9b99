-- Loops whose bodies contain ops that passes move, and their comparison with plain Lua.
local pg = require "perigee"
local bodies = {}

-- Returns the results of f() and the gradients of all inputs.
function bodies.measured(f, inputs)
  for _, x in ipairs(inputs) do x:attach_grad() end
  local outs
  local loss = pg.record(function()
    outs = f()
    local sum = 0
    for k, out in ipairs(outs) do sum = sum + (out * out * (0.3 + 0.1 * k)):sum() end
    return sum
  end)
  loss:backward()
  local all = {}
  for i, out in ipairs(outs) do all[i] = out:detach() end
  for _, x in ipairs(inputs) do all[#all + 1] = x.grad + 0 end
  return all
end

local function compare(name, f, inputs)
  local expected = pg.debug(function() return bodies.measured(f, inputs) end)
  local jitted = pg.jit(function() return f() end)
  for way, g in pairs{eager = f, jit = function() return jitted() end} do
    for i, value in ipairs(bodies.measured(g, inputs)) do
      local scale = 1 + expected[i]:abs():max():item()
      local off = (value - expected[i]):abs():max():item()
      if off ~= off or off > 2e-5 * scale then error(("%s, %s: value %d is off by %g of %g"):format(name, way, i, off, scale), 2) end
    end
  end
end

local T, I, H = 5, 4, 6

local function weights()
  return pg.randn(H, I) * 0.5, pg.randn(H, H) * 0.4, pg.randn(H), pg.randn(I, H)
end

local function batch(B)
  local x, h = pg.randn(T, B, I), pg.randn(B, H)
  local wi, wh, b, v = weights()
  local all = {x, h, wi, wh, b, v}
  compare("gates", function()
    local o, s = pg.foreach(function(xt, u)
      local z = (xt:linear(wi, b) + u:linear(wh)):sigmoid()
      local n = (xt:linear(wi) + (z * u):linear(wh, b)):tanh()
      local new = z * u + (1 - z) * n
      return {new:linear(v), z}, new
    end, x, h)
    return {o[1], o[2], s}
  end, all)
  compare("products and softmax", function()
    local o, s = pg.foreach(function(xt, u)
      local new = (xt:matmul(wi:t()) + u:matmul(wh) + b):tanh()
      return new:matmul(v:t()):softmax(2), new
    end, x, h)
    return {o, s}
  end, all)
  compare("no states", function()
    return {(pg.foreach(function(xt) return (xt * 2):relu():linear(wi, b):tanh() + wi:sum() end, x))}
  end, {x, wi, b})
  compare("two layers", function()
    local o, s = pg.foreach(function(xt, u)
      local first = (xt:linear(wi, b) + u[1]:linear(wh)):tanh()
      local second = (first:linear(wh) + u[2]:linear(wh, b)):tanh()
      return second, {first, second}
    end, x, {h, h * 2})
    return {o, s[1], s[2]}
  end, {x, h, wi, wh, b})
  compare("a loop in a loop", function()
    local o, s = pg.foreach(function(xt, u)
      local inner = pg.loop(3, function(_, w) return (w:linear(wh) + xt:linear(wi, b)):tanh() end, u)
      return inner, inner
    end, x, h)
    return {o, s}
  end, {x, h, wi, wh, b})
  compare("a branch in a loop", function()
    local o, s = pg.foreach(function(xt, u)
      local new = pg.cond(xt:sum():gt(0), function() return (u:linear(wh) + xt:linear(wi)):tanh() end, function() return u * 0.5 + b end)
      return new:linear(v), new
    end, x, h)
    return {o, s}
  end, all)
  for _, most in ipairs{T, T + 2} do
    compare("rows by a counter, at most " .. most, function()
      local o, vars, n = pg.while_loop(function(i) return i:le(T) end, function(i, u)
        local new = (x[i]:linear(wi, b) + u:linear(wh)):tanh()
        return new:linear(v), {i + 1, new}
      end, {1, h}, {max_iterations = most})
      return {o, vars[2], vars[1]:to("float32") + n:to("float32")}
    end, all)
  end
  compare("rows from the second", function()
    local o, vars = pg.while_loop(function(i) return i:lt(T - 1) end, function(i, u)
      local new = (x[i + 1]:linear(wi) + u:linear(wh) * i:to("float32")):tanh()
      return {new, i:to("float32")}, {i + 1, new}
    end, {1, h}, {max_iterations = T - 2})
    return {o[1], o[2], vars[2]}
  end, {x, h, wi, wh})
end

function bodies.check_all()
  pg.manual_seed(3)
  batch(1)
  batch(3)
  local x, h = pg.randn(T, I), pg.randn(H)
  local wi, wh, b, v = weights()
  compare("vectors", function()
    local o, s = pg.foreach(function(xt, u)
      local new = (wi:matmul(xt) + wh:matmul(u) + b):tanh()
      return new, new
    end, x, h)
    return {o, s}
  end, {x, h, wi, wh, b})
  compare("a loop that ends by what it computes", function()
    local o, vars = pg.while_loop(function(u) return (u * u):sum():lt(100) end, function(u)
      return u:linear(v), u:linear(wh, b) * 1.7 + wi:abs():sum()
    end, {h}, {max_iterations = 7})
    return {o, vars[1]}
  end, {h, wi, wh, b, v})
  local ids, states = pg.randint(1, 9, {T, 2}), pg.randn(2, H)
  local words = pg.randn(9, I)
  compare("an embedding", function()
    local o, s = pg.foreach(function(id, u)
      local new = (pg.embedding(id, words):linear(wi) + u:linear(wh, b)):tanh()
      return new, new
    end, ids, states)
    return {o, s}
  end, {words, states, wi, wh, b})
  compare("the embedding of what a while loop reads", function()
    local o, vars = pg.while_loop(function(i) return i:lt(4) end, function(i, u)
      local new = (pg.embedding(ids[i], words):linear(wi) + u:linear(wh, b)):tanh()
      return new, {i + 1, new}
    end, {1, states}, {max_iterations = 6})
    return {o, vars[2]}
  end, {words, states, wi, wh, b})
  compare("a state that does not change, a sum, data nobody reads", function()
    local o, s = pg.foreach(function(xt, u) return xt[1], {u[1], u[2] + xt[1]:sum(), u[3]} end, {x, x * 2}, {h, h * 0, h * 2})
    return {o, s[1], s[2]}
  end, {x, h})
end

return bodies
