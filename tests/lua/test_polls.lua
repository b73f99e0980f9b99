-- Kernels whose work on one row or plane may take long are interrupted inside it.
local t = require "tests.support"
local pg = require "perigee"

local function plane(size) return pg.randn(1, 1, size, size) end
local function labels(n) return pg.ones(n, {dtype = "int64"}) end

-- Each prepares a call that works on one row or plane.
local calls = {
  max_pool2d = function()
    local x = plane(200)
    return function() return x:max_pool2d(100, {stride = 1}) end
  end,
  avg_pool2d = function()
    local x = plane(200)
    return function() return x:avg_pool2d(100, {stride = 1}) end
  end,
  ["max_pool1d with one window"] = function()
    local x = pg.randn(1, 1, 2 ^ 21)
    return function() return x:max_pool1d(2 ^ 21) end
  end,
  ["avg_pool1d with one window"] = function()
    local x = pg.randn(1, 1, 2 ^ 21)
    return function() return x:avg_pool1d(2 ^ 21) end
  end,
  ["avg_pool2d backward"] = function()
    local x = plane(200)
    x:attach_grad()
    local y = pg.record(function() return x:avg_pool2d(40, {stride = 1}) end)
    return function() y:backward(pg.ones_like(y)) end
  end,
  ["interpolate"] = function()
    local x = plane(100)
    return function() return x:interpolate({2000, 2000}) end
  end,
  ["interpolate backward"] = function()
    local x = plane(100)
    x:attach_grad()
    local y = pg.record(function() return x:interpolate({1500, 1500}) end)
    local dy = pg.ones_like(y)
    return function() y:backward(dy) end
  end,
  ["fft of one line"] = function()
    local x = pg.randn(2 ^ 18, 2)
    return function() return pg.fft.fft(x) end
  end,
  ["rfft of a prime length"] = function()
    local x = pg.randn(99991)
    return function() return pg.fft.rfft(x) end
  end,
  ["batch_norm of one row"] = function()
    local x = pg.randn(2, 2 ^ 20)
    return function() return x:batch_norm(nil, nil, nil, nil, {training = true}) end
  end,
  ["batch_norm backward of few channels"] = function()
    local x = pg.randn(2 ^ 19, 3):attach_grad()
    local y = pg.record(function() return x:batch_norm(nil, nil, nil, nil, {training = true}) end)
    local dy = pg.ones_like(y)
    return function() y:backward{grad = dy, retain_graph = true} end
  end,
  unfold = function()
    local x = plane(400)
    return function() return x:unfold(5, {padding = 2}) end
  end,
  fold = function()
    local x = plane(400):unfold(5, {padding = 2})
    return function() return x:fold({400, 400}, 5, {padding = 2}) end
  end,
  ["ctc_loss"] = function()
    local x, y = pg.zeros(2000, 1, 4), labels(500) + 1
    return function() return pg.ctc_loss(x, y) end
  end,
  ["ctc_loss backward"] = function()
    local x, y = pg.zeros(1000, 1, 4):attach_grad(), labels(300) + 1
    local loss = pg.record(function() return pg.ctc_loss(x, y) end)
    return function() loss:backward() end
  end,
  searchsorted = function()
    local edges, x = pg.range(1, 100), pg.rand(2e6)
    return function() return edges:searchsorted(x) end
  end,
  bincount = function()
    local x = labels(1e6)
    return function() return x:bincount() end
  end,
  ["unique of slices"] = function()
    local x = pg.ones(64, 20000)
    return function() return x:unique({dim = 1}) end
  end,
  ["cdist of order 3"] = function()
    local x, y = pg.randn(1, 1000), pg.randn(200, 1000)
    return function() return x:cdist(y, 3) end
  end,
  ["softmax of float64"] = function()
    local x = pg.zeros(1, 6e6, {dtype = "float64"})
    return function() return x:softmax(2) end
  end,
  ["softmax of columns"] = function()
    local x = pg.zeros(5000, 250)
    return function() return x:softmax(1) end
  end,
  nll_loss = function()
    local x, y = pg.zeros(1e6, 1), labels(1e6)
    return function() return x:nll_loss(y) end
  end,
}

local polls = {}  -- that a call makes before it is interrupted; 12 unless given
for _, dtype in ipairs{"float32", "float64", "float16", "bfloat16"} do
  polls["mv of " .. dtype], polls["mv of the transposed of " .. dtype], polls["bmm with columns of " .. dtype] = 3, 3, 3
  local function matrix() return pg.ones(6000, 6400):to(dtype) end
  local function vector(n) return pg.ones(n):to(dtype) end
  calls["mv of " .. dtype] = function()
    local x, y = matrix(), vector(6400)
    return function() return x:mv(y) end
  end
  calls["mv of the transposed of " .. dtype] = function()
    local x, y = matrix():t(), vector(6000)
    return function() return x:mv(y) end
  end
  calls["bmm with columns of " .. dtype] = function()
    local x, y = matrix():reshape(8, 750, 6400), vector(6400):reshape(1, 6400, 1):expand(8, -1, -1)
    return function() return x:bmm(y) end
  end
end

for name, prepare in pairs(calls) do
  t.test("a long row or plane is interrupted: " .. name, function()
    for _, mode in ipairs{"cuda", "cuda_host"} do t.skip_in(mode, "a kernel that runs on the device is not interrupted") end
    local call = prepare()
    pg.testing.cancel_after(polls[name] or 12)
    local ok, e = pcall(call)
    pg.testing.cancel_after(nil)
    t.check(not ok and e:find("interrupted"), ok and "it has run to its end" or e)
  end)
end

t.test("the place of the extreme of a row that polls is that of plain loops", function()
  local n = 2 ^ 20 + 7
  for _, dtype in ipairs{"float32", "float16", "int32"} do
    local x = pg.zeros(n, {dtype = dtype})
    t.equal(x:argmax():item(), 1, dtype)
    x[n - 2] = 5
    t.equal(x:argmax():item(), n - 2, dtype)
    t.equal(x:argmin():item(), 1, dtype)
    x[2] = 5
    t.equal(x:argmax():item(), 2, dtype)
    if dtype ~= "int32" then
      x[n - 1] = 0 / 0
      t.equal(x:argmax():item(), n - 1, dtype)
      x[3] = 0 / 0
      t.equal(x:argmax():item(), 3, dtype)
      t.equal(x:argmin():item(), 3, dtype)
    end
  end
end)
