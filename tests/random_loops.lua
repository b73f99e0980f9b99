-- Compares the results and gradients of loops with random bodies with plain Lua. Load the file again for each seed: a
-- place in a script that keeps making new graphs runs as plain Lua after a while.
local pg = require "perigee"
local bodies = require "tests.loop_bodies"
local choices = require "tests.choices"
local loops = {}

local B, N = 2, 3  -- B is 1 for every third seed

-- Makers of values (B, N): a list of functions (choose, pick, weights) -> value.
local ops = {
  function(_, pick) return pick() + pick() end,
  function(_, pick) return pick() * pick() end,
  function(_, pick) return pick():tanh() end,
  function(_, pick) return (pick() * 0.5 - 0.2):relu() + pick() end,
  function(_, pick, w) return pick():linear(w.a, w.b) end,
  function(_, pick, w) return pick():linear(w.a) end,
  function(_, pick, w) return pick():matmul(w.a:t() * 0.5) end,
  function(_, pick, w) return pick():matmul(w.c) end,
  function(_, pick, w) return (w.c:matmul(pick():t())):t() end,
  function(_, pick, w) return pick() * w.b:exp() + w.b end,
  function(_, pick) return pick():softmax(2) end,
  function(_, pick) local x = pick() return x - x:mean(2, true) end,
  function(_, pick) return pick():sum(1, true) * 0.3 + pick() end,
  function(_, pick) local x, y = unpack(pg.cat({pick(), pick()}, 2):chunk(2, 2)) return x:sigmoid() * y end,
  function(_, pick) return pick():reshape(N, B):t():reshape(B, N) end,
  function(_, pick) return pg.cat({pick()[{{}, {2, 3}}], pick()[{{}, {1, 1}}]}, 2) end,
  function(_, pick) return pg.where(pick():gt(0), pick(), pick() * 0.1) end,
  function(_, pick, w) return pg.embedding(w.ids, w.words) * 0.3 + pick() end,
  function(choose, pick, w)
    local k, x, y = choose(3), pick(), pick()
    return pg.loop(k, function(_, s) return (s:linear(w.a) + y):tanh() end, x)
  end,
  function(_, pick, w)
    local x, y = pick(), pick()
    return pg.cond(x:sum():gt(0), function() return x:linear(w.c) end, function() return y * 0.5 + w.b end)
  end,
}

-- The values of a body: slices, states and captures first, then results of ops.
local function grow(seed, values, w, count)
  local choose = choices(seed * 7919 + 17)
  local made = {unpack(values)}
  local function pick() return made[choose(#made)] end
  for _ = 1, count do made[#made + 1] = ops[choose(#ops)](choose, pick, w) end
  return made
end

local function bounded(x) return (x * 0.5):tanh() end

local kinds = {}

function kinds.foreach(seed, v, w)
  local o, s = pg.foreach(function(x, h)
    local made = grow(seed, {x[1], x[2], h[1], h[2], v.c}, w, 6)
    return {bounded(made[#made]), made[#made - 1]:linear(w.a, w.b)}, {bounded(made[#made - 2]), bounded(made[#made - 3])}
  end, {v.xs, v.ys}, {v.h, v.g})
  return {o[1], o[2], s[1], s[2]}
end

function kinds.while_loop(seed, v, w)
  local o, s = pg.while_loop(function(i) return i:le(3) end, function(i, h, g)
    local made = grow(seed, {v.xs[i], v.ys[i + 1], h, g}, w, 6)
    return {bounded(made[#made]), made[#made - 1]:linear(w.a)}, {i + 1, bounded(made[#made - 2]), bounded(made[#made - 3])}
  end, {1, v.h, v.g}, {max_iterations = 3 + seed % 2})
  return {o[1], o[2], s[2], s[3]}
end

function kinds.data_dependent(seed, v, w)
  local o, s = pg.while_loop(function(h) return (h * h):sum():lt(4) end, function(h, g)
    local made = grow(seed, {h, g, v.c}, w, 5)
    return bounded(made[#made]), {h + bounded(made[#made - 1]):abs() * 0.3 + 0.1, bounded(made[#made - 2])}
  end, {v.h * 0.1, v.g}, {max_iterations = 6})
  return {o, s[1], s[2]}
end

function kinds.unlimited(seed, v, w)
  local _, s = pg.while_loop(function(i) return i:lt(4) end, function(i, h, g)
    local made = grow(seed, {v.xs[i], v.ys[i], h, g}, w, 6)
    return nil, {i + 1, bounded(made[#made]), bounded(made[#made - 1])}
  end, {1, v.h, v.g})
  local _, r = pg.while_loop(function(h) return (h * h):sum():lt(4) end, function(h)
    local made = grow(seed + 1, {h, s[2], v.c}, w, 4)
    return nil, h + bounded(made[#made]):abs() * 0.3 + 0.1
  end, {s[3] * 0.1})
  return {s[2], s[3], r[1]}
end

local function measured(kind, seed, v, w)
  return bodies.measured(function() return kinds[kind](seed, v, w) end, {v.xs, v.ys, v.h, v.g, v.c, w.a, w.b, w.c, w.words})
end

function loops.check(kind, seed)
  pg.manual_seed(seed)
  B = seed % 3 == 0 and 1 or 2
  local function double(...) return pg.randn(...):to("float64") end
  local w = {a = double(N, N) * 0.5, b = double(N), c = double(N, N) * 0.5, words = double(5, N), ids = pg.randint(1, 5, {B})}
  local v = {xs = double(4, B, N), ys = double(4, B, N), h = double(B, N), g = double(B, N), c = double(B, N)}
  local expected = pg.debug(measured, kind, seed, v, w)
  for i, value in ipairs(measured(kind, seed, v, w)) do
    local scale = 1 + expected[i]:abs():max():item()
    local off = (value - expected[i]):abs():max():item()
    if off ~= off or off > 1e-10 * scale then error(("%s, seed %d: value %d is off by %g of %g"):format(kind, seed, i, off, scale), 2) end
  end
end

-- Checks all kinds of loops for these seeds.
function loops.check_all(first, last)
  for seed = first, last do
    local fresh = dofile("tests/random_loops.lua")
    for _, kind in ipairs{"foreach", "while_loop", "data_dependent", "unlimited"} do fresh.check(kind, seed) end
  end
end

return loops
