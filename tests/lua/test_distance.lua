-- Norms, distances and similarities: values and gradients of PyTorch 2.15, above all at zero vectors and equal points.
local t = require "tests.support"
local pg = require "perigee"

local inf = math.huge
local origin = {{0, 0}, {1, 2}, {3, 3}}
local others = {{0, 0}, {1, 3}, {4, 4}}

local gradients = t.gradients

local function close(x, values, what) t.close(x, pg.tensor(values), {rtol = 1e-5, atol = 2e-6, what = what}) end

t.test("normalize divides by the norm or eps", function()
  local y, g = gradients(function(x) return x:normalize() end, {{0, 0}, {3, 4}, {1e-13, 0}})
  close(y, {{0, 0}, {0.6, 0.8}, {0.1, 0}})
  close(g, {{1e12, 1e12}, {0.032, -0.024}, {1e12, 1e12}})
  local zeros = {{0, 0}, {3, -3}, {0, 2}}
  for p, want in pairs{
    [1] = {{1e12, 1e12}, {1 / 6, 1 / 6}, {0.5, 0}}, [0.5] = {{1e12, 1e12}, {1 / 12, 1 / 12}, {0.5, 0}},
    [3] = {{1e12, 1e12}, {0.2645668387, 0.2645668387}, {0.5, 0}}, [inf] = {{1e12, 1e12}, {1 / 3, 1 / 3}, {0.5, 0}},
    [0] = {{1e12, 1e12}, {0.5, 0.5}, {1, 1}},
  } do
    local _, dx = gradients(function(x) return x:normalize(p) end, zeros)
    close(dx, want, "p = " .. p)
  end
  close(pg.tensor({{3, 0}, {4, 2}}):normalize{dim = 1}, {{0.6, 0}, {0.8, 1}})
  close(pg.tensor({{3, 0}, {4, 0}}):normalize(2, {1, 2}), {{0.6, 0}, {0.8, 0}})
  t.bad_argument(function() pg.ones(3):normalize() end, "normalize", "dim")
end)

t.test("cosine_similarity bounds each norm, and its gradient does not see the bound", function()
  local y, a, b = gradients(pg.cosine_similarity, {{0, 0}, {1, 2}, {1e-9, 0}}, {{1, 2}, {0, 0}, {1, 1}})
  close(y, {0, 0, 0.0707106814})
  t.close(a, pg.tensor{{44721360, 89442720}, {0, 0}, {63639612, 70710680}}, {rtol = 1e-5})
  t.close(b, pg.tensor{{0, 0}, {44721360, 89442720}, {0.0353553407, -0.0353553407}}, {rtol = 1e-5})
  t.equal(pg.tensor({1, 0, 0}):cosine_similarity(pg.ones(2, 3)).shape, {2})
  t.equal(pg.cosine_similarity(pg.ones(4, 3), pg.ones(4, 1), 1).shape, {3})
  t.bad_argument(function() pg.ones(3):cosine_similarity(pg.ones(3)) end, "cosine_similarity", "dim")
  t.bad_argument(function() pg.ones(2, 3):cosine_similarity(pg.ones(2, 2)) end, "cosine_similarity", "x2")
end)

t.test("pairwise_distance at equal points", function()
  for p, want in pairs{
    [0] = {{0, 1, 2}, {{0, 0}, {0, 0}, {0, 0}}}, [0.5] = {{0, 1, 4}, {{0, 0}, {0, -1}, {-2, -2}}},
    [1] = {{0, 1, 2}, {{0, 0}, {0, -1}, {-1, -1}}},
    [1.5] = {{0, 1, 1.5874010324}, {{0, 0}, {0, -1}, {-0.7937005162, -0.7937005162}}},
    [2] = {{0, 1, 1.4142135382}, {{0, 0}, {0, -1}, {-0.7071067690, -0.7071067690}}},
    [3] = {{0, 1, 1.2599210739}, {{0, 0}, {0, -1}, {-0.6299604774, -0.6299604774}}},
    [inf] = {{0, 1, 1}, {{0, 0}, {0, -1}, {-0.5, -0.5}}},
  } do
    local y, a, b = gradients(function(x, z) return x:pairwise_distance(z, {p = p, eps = 0}) end, origin, others)
    close(y, want[1], "p = " .. p)
    close(a, want[2], "gradient, p = " .. p)
    close(-b, want[2], "gradient of x2, p = " .. p)
  end
  t.equal(pg.ones(2, 3):pairwise_distance(pg.zeros(3), {keepdim = true}).shape, {2, 1})
  close(pg.zeros(3):pairwise_distance(pg.zeros(3)), 1.7320508e-6)
end)

t.test("cdist: values and gradients at equal points and equal differences", function()
  for p, want in pairs{
    [0.5] = {{0, 7.4641022682, 16}, {{-4.7320508957, -3.5773501396}, {0.5977170467, -1.5176379681}, {1, 0}},
      {{-4.4142136574, -3.7071068287}, {1.7320508957, 2.5773501396}, {5.8164968491, 6.2247447968}}},
    [1] = {{0, 4, 8}, {{-2, -2}, {0, -1}, {1, 0}}, {{-2, -2}, {0, 2}, {3, 3}}},
    [1.5] = {{0, 3.3735051155, 6.3496041298}, {{-1.3381521702, -1.7367184162}, {-0.2259063125, -0.8023707271}, {1, 0}},
      {{-1.4329345226, -1.6977138519}, {-0.4555483460, 1.9430178404}, {2.4525413513, 2.2937850952}}},
    [2] = {{0, 3.1622776985, 5.6568541527}, {{-1.0233345032, -1.6557900906}, {-0.3848367333, -0.6602730155}, {1, 0}},
      {{-1.1543204784, -1.6015340090}, {-0.6837722063, 1.9486832619}, {2.2462639809, 1.9689137936}}},
    [3] = {{0, 3.0365889072, 5.0396842957}, {{-0.7384101152, -1.6060069799}, {-0.6100108624, -0.4493544102}, {1, 0}},
      {{-0.8610809445, -1.5544421673}, {-0.8915503621, 1.9760465622}, {2.1010522842, 1.6337571144}}},
    [inf] = {{0, 3, 4}, {{-1, -2}, {-1, 0}, {1, 0}}, {{-1, -2}, {-1, 2}, {3, 2}}},
    [0] = {{0, 2, 2}, {{0, 0}, {0, 0}, {0, 0}}, {{0, 0}, {0, 0}, {0, 0}}},
  } do
    local y, a, b = gradients(function(x, z) return pg.cdist(x, z, p) end, origin, others)
    close(y[1], want[1], "first row, p = " .. p)
    close(a, want[2], "gradient of x1, p = " .. p)
    close(b, want[3], "gradient of x2, p = " .. p)
  end
end)

t.test("cdist of near points keeps its digits, for any number of rows", function()
  local x = pg.full({40, 3}, 1000)
  local y = x + pg.tensor({0.25, 0, 0})
  t.check(x:cdist(y):allclose(pg.full({40, 40}, 0.25)), "distances far from the origin")
  t.equal(x:cdist(x):abs():max():item(), 0)
end)

t.test("cdist broadcasts leading dims and agrees with its definition", function()
  local x, y = pg.randn({2, 1, 5, 37}, {dtype = "float64"}), pg.randn({3, 70, 37}, {dtype = "float64"})
  for _, p in ipairs{2, 1, 3, 0.7, inf} do
    local want = (x:unsqueeze(-2) - y:unsqueeze(-3)):norm(p, -1)
    t.close(x:cdist(y, p), want, {rtol = 1e-12, what = "p = " .. p})
  end
  t.equal(pg.zeros(2, 0, 3):cdist(pg.zeros(4, 3)).shape, {2, 0, 4})
  t.equal(pg.zeros(2, 0):cdist(pg.zeros(3, 0)):totable(), {{0, 0, 0}, {0, 0, 0}})
  local half = pg.tensor({{0, 0}}, {dtype = "float16"}):cdist(pg.tensor({{300, 400}}, {dtype = "float16"}))
  t.equal(half:to("float32"):totable(), {{500}}, "squares beyond float16")
  t.bad_argument(function() pg.ones(3):cdist(pg.ones(2, 3)) end, "cdist", "x1")
  t.bad_argument(function() pg.ones(1, 3):cdist(pg.ones(2, 2)) end, "cdist", "x2")
  t.bad_argument(function() pg.ones(1, 3):cdist(pg.ones(2, 3), -1) end, "cdist", "p")
end)

t.test("renorm shortens slices that are too long", function()
  local y, g = gradients(function(x) return x:renorm(2, 1, 2.5) end, {{0, 0}, {3, 4}, {1, 1}})
  close(y, {{0, 0}, {1.5, 2}, {1, 1}})
  close(g, {{1, 1}, {0.08, -0.06}, {1, 1}})
  local _, zero = gradients(function(x) return x:renorm(0.5, 1, 0) end, {{0, 0}, {3, 4}, {0, 1}})
  close(zero, {{1, 1}, {0, 0}, {0, 0}})
  t.bad_argument(function() pg.ones(2, 2):renorm(0, 1, 1) end, "renorm", "p")
  t.bad_argument(function() pg.ones(2):renorm(2, 1, 1) end, "renorm", "x")
end)
