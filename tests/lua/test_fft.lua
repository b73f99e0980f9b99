-- pg.fft against its definition, and the properties of transforms of many lengths; stft and istft.
local t = require "tests.support"
local gradcheck = require "tests.gradcheck"
local pg = require "perigee"

local fft = pg.fft

-- The transform by its definition: a product with the matrix of exp(-2 pi i j k / n).
local function by_definition(x)
  local n = x:size(1)
  local j = pg.range(0, n - 1, {dtype = "float64"})
  local turns = pg.outer(j, j) % n * (2 * math.pi / n)
  local c, s, re, im = turns:cos(), turns:sin(), x[{{}, 1}], x[{{}, 2}]
  return pg.stack({c:mv(re) + s:mv(im), c:mv(im) - s:mv(re)}, 2)
end

-- Powers of 2, products of small primes, primes that are radices, and lengths of Bluestein's algorithm.
local lengths = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 16, 25, 29, 30, 31, 32, 37, 49, 60, 64, 74, 97, 121, 128, 202, 210, 256, 360}

t.test("fft of every kind of length is the definition", function()
  gradcheck.seed(1)
  for _, n in ipairs(lengths) do
    local x = gradcheck.random{n, 2}
    local y = fft.fft(x)
    t.close(y, by_definition(x), {rtol = 1e-11, atol = 1e-11, what = "length " .. n})
    t.close(fft.ifft(y), x, {rtol = 1e-12, atol = 1e-12, what = "inverse of length " .. n})
    t.close(fft.fft(x:to("float32")):to("float64"), y, {rtol = 1e-5, atol = 1e-5, what = "float32, length " .. n})
  end
end)

t.test("rfft is half of fft, irfft its inverse", function()
  gradcheck.seed(2)
  for _, n in ipairs(lengths) do
    local x = gradcheck.random{n}
    local whole = fft.fft(pg.stack({x, pg.zeros_like(x)}, 2))
    local half = fft.rfft(x)
    t.close(half, whole[{{1, math.floor(n / 2) + 1}}], {rtol = 1e-11, atol = 1e-11, what = "length " .. n})
    t.close(fft.irfft(half, n), x, {rtol = 1e-12, atol = 1e-12, what = "inverse of length " .. n})
  end
end)

t.test("any dim, batches of many lines", function()
  gradcheck.seed(3)
  local x = gradcheck.random{3, 12, 37, 2}
  for dim = 1, 3 do
    local last = x:moveaxis(dim, 3):contiguous()
    t.close(fft.fft(x, {dim = dim}), fft.fft(last):moveaxis(3, dim), {rtol = 1e-12, atol = 1e-12})
    t.close(fft.fft(x, {dim = dim - 4}), fft.fft(x, {dim = dim}))
    t.close(fft.irfft(x, {dim = dim, n = 9}), fft.irfft(last, 9):moveaxis(3, dim), {rtol = 1e-12, atol = 1e-12})
    local real = x[{"...", 1}]
    t.close(fft.rfft(real, {dim = dim}), fft.rfft(real:moveaxis(dim, 3)):moveaxis(3, dim), {rtol = 1e-12, atol = 1e-12})
  end
end)

t.test("n cuts and pads, norm scales", function()
  gradcheck.seed(4)
  local x = gradcheck.random{5, 2}
  t.close(fft.fft(x, 3), fft.fft(x[{{1, 3}}]))
  t.close(fft.fft(x, 8), fft.fft(pg.cat{x, pg.zeros({3, 2}, {dtype = "float64"})}))
  t.close(fft.fft(x, {norm = "forward"}), fft.fft(x) / 5, {rtol = 1e-12})
  t.close(fft.fft(x, {norm = "ortho"}), fft.fft(x) / math.sqrt(5), {rtol = 1e-12})
  t.close(fft.ifft(x, {norm = "forward"}), fft.ifft(x) * 5, {rtol = 1e-12})
  for _, norm in ipairs{"backward", "ortho", "forward"} do
    local o = {norm = norm}
    t.close(fft.ifftn(fft.fftn(x, o), o), x, {rtol = 1e-12, atol = 1e-12})
    t.close(fft.irfftn(fft.rfftn(x, o), {norm = norm, s = {5, 2}}), x, {rtol = 1e-12, atol = 1e-12})
  end
end)

t.test("transforms along several dims are those along each", function()
  gradcheck.seed(5)
  local x, real = gradcheck.random{4, 3, 5, 2}, gradcheck.random{4, 3, 6}
  t.close(fft.fft2(x), fft.fft(fft.fft(x, {dim = 2}), {dim = 3}), {rtol = 1e-12, atol = 1e-12})
  t.close(fft.fftn(x), fft.fft(fft.fft2(x), {dim = 1}), {rtol = 1e-12, atol = 1e-12})
  t.close(fft.fftn(x, {s = {3, 7}}), fft.fft2(x, {s = {3, 7}}))
  t.close(fft.rfft2(real), fft.fft(fft.rfft(real), {dim = 2}), {rtol = 1e-12, atol = 1e-12})
  t.close(fft.irfft2(fft.rfft2(real)), real, {rtol = 1e-12, atol = 1e-12})
  t.close(fft.ifft2(fft.fft2(x)), x, {rtol = 1e-12, atol = 1e-12})
end)

t.test("the product of spectra is a circular convolution", function()
  local a, b = pg.randn(2, 64):to("float64"), pg.randn(64):to("float64")
  local function spectrum(x) local y = fft.rfft(x); return y[{"...", 1}], y[{"...", 2}] end
  local ar, ai = spectrum(a)
  local br, bi = spectrum(b)
  local y = fft.irfft(pg.stack({ar * br - ai * bi, ar * bi + ai * br}, -1))
  local want = pg.zeros_like(a)
  for k = 0, 63 do want = want + a:roll(k, 2) * b[k + 1] end
  t.close(y, want, {rtol = 1e-9, atol = 1e-9})
end)

t.test("frequencies, shifts, windows", function()
  t.close(fft.fftfreq(5, 0.1), {0, 2, 4, -4, -2}, {rtol = 1e-6})
  t.close(fft.fftfreq(4), {0, 0.25, -0.5, -0.25})
  t.close(fft.rfftfreq(5), {0, 0.2, 0.4}, {rtol = 1e-6})
  t.equal(fft.fftshift(pg.range(1, 5)):totable(), {4, 5, 1, 2, 3})
  t.equal(fft.ifftshift(fft.fftshift(pg.range(1, 5))):totable(), {1, 2, 3, 4, 5})
  t.equal(fft.fftshift(pg.tensor{{1, 2}, {3, 4}, {5, 6}}, 1):totable(), {{5, 6}, {1, 2}, {3, 4}})
  t.close(pg.hann_window(4), {0, 0.5, 1, 0.5}, {atol = 1e-7})
  t.close(pg.hann_window(5, {periodic = false}), {0, 0.5, 1, 0.5, 0}, {atol = 1e-7})
  t.close(pg.hamming_window(4), {0.08, 0.54, 1, 0.54}, {atol = 1e-7})
  t.close(pg.blackman_window(4, {dtype = "float64"}), {0, 0.34, 1, 0.34}, {atol = 1e-12})
  t.equal(pg.hann_window(1):totable(), {1})
  t.equal(pg.hann_window(0).shape, {0})
end)

t.test("empty batches, and values that are not finite", function()
  t.equal(fft.fft(pg.zeros(0, 4, 2)).shape, {0, 4, 2})
  t.equal(fft.rfft(pg.zeros(3, 0, 4)).shape, {3, 0, 3, 2})
  t.check(fft.rfft(pg.tensor{1, 0 / 0, 2}):isnan():any():item())
  t.check(fft.rfft(pg.zeros(37) + math.huge):isnan():any():item())
end)

t.test("wrong transforms", function()
  local function fails(text, f, ...)
    local n, given = select("#", ...), {...}
    t.error_contains(function() f(unpack(given, 1, n)) end, text)
  end
  fails("fft.fft: bad argument 'x' (expected pairs (real, imaginary) in a last dim of 2", fft.fft, pg.ones(4))
  fails("fft.fft: bad argument 'dim'", fft.fft, pg.ones(4, 2), {dim = 2})
  fails("fft.fft: bad argument 'n'", fft.fft, pg.ones(4, 2), {n = 0})
  fails("fft.fft: bad argument 'norm'", fft.fft, pg.ones(4, 2), {norm = "none"})
  fails("fft.rfft: bad argument 'x'", fft.rfft, pg.zeros(0))
  fails("fft.irfft: bad argument 'x' (expected at least 1 result along dim 1", fft.irfft, pg.ones(1, 2))
  fails("fft.fft2: bad argument 's' (expected 2 sizes, one a dim", fft.fft2, pg.ones(4, 4, 2), {s = {1, 2, 3}})
  fails("fft.fft2: bad argument 'dim' (expected each dim once", fft.fft2, pg.ones(4, 4, 2), {dim = {1, -2}})
  fails("fft.fftshift: bad argument 'dim'", fft.fftshift, pg.ones(4, 2))
  fails("did you mean 'rfft'", function() return fft.rftt end)
end)

t.test("stft is the transform of windowed frames", function()
  local x, window = pg.randn(2, 40):to("float64"), pg.hann_window(6, {dtype = "float64"})
  local y = pg.stft(x, 8, {hop_length = 3, win_length = 6, window = window, center = false})
  t.equal(y.shape, {2, 5, 11, 2})
  local full = pg.cat{pg.zeros({1}, {dtype = "float64"}), window, pg.zeros({1}, {dtype = "float64"})}
  for frame = 1, 11 do
    local part = x:narrow(2, 3 * (frame - 1) + 1, 8) * full
    t.close(y[{{}, {}, frame}], fft.rfft(part), {rtol = 1e-12, atol = 1e-12})
  end
  local padded = pg.pad(x, {4, 4}, {mode = "reflect"})
  t.close(pg.stft(x, 8), pg.stft(padded, 8, {center = false}))
  t.close(pg.stft(x, 8, {normalized = true}), pg.stft(x, 8) / math.sqrt(8), {rtol = 1e-12, atol = 1e-12})
  t.close(pg.stft(x, 8, {onesided = false})[{{}, {1, 5}}], pg.stft(x, 8), {rtol = 1e-12, atol = 1e-12})
  t.close(pg.stft(x[1], 8), pg.stft(x, 8)[1])
end)

t.test("istft inverts stft", function()
  for _, o in ipairs{{}, {normalized = true}, {onesided = false}, {hop_length = 2, win_length = 7}, {center = false}} do
    local x = pg.randn(2, 48):to("float64")
    if not o.center then o.window = pg.hamming_window(o.win_length or 8, {dtype = "float64"}) end
    local y = pg.stft(x, 8, o)
    o.length = 48
    t.close(pg.istft(y, 8, o), x, {rtol = 1e-10, atol = 1e-10})
    o.length = nil
    t.close(pg.istft(y[1], 8, o), x[1], {rtol = 1e-10, atol = 1e-10})
    o.length = 60  -- the padding of stft, then zeros
    t.equal(pg.istft(y, 8, o)[{{}, {57, 60}}]:sum():item(), 0)
  end
end)

t.test("wrong frames", function()
  local function fails(text, ...)
    local n, given = select("#", ...), {...}
    t.error_contains(function() pg.stft(unpack(given, 1, n)) end, "stft: bad argument " .. text)
  end
  fails("'x' (expected more than 4 elements to reflect", pg.ones(4), 8)
  fails("'x' (expected at least 8 elements", pg.ones(4), 8, {center = false})
  fails("'win_length' (expected at most n_fft, 8", pg.ones(20), 8, {win_length = 9})
  fails("'window' (expected 8 elements", pg.ones(20), 8, {window = pg.ones(4)})
  fails("'x' (expected 1 dims, or 2 with a batch", pg.ones(2, 2, 20), 8)
  t.error_contains(function() pg.istft(pg.ones(5, 3, 2), 10) end, "istft: bad argument 'x' (expected 6 frequencies")
end)
