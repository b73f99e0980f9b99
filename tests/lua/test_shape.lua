-- Shape ops: conventions of the script API, edge cases and the errors of wrong calls.
local t = require "tests.support"
local pg = require "perigee"

-- f must raise a bad argument of op whose message contains `text`.
local function bad(f, op, name, text)
  t.bad_argument(f, op, name)
  if text then t.error_contains(f, text) end
end

local function count(shape)
  local n = 1
  for _, d in ipairs(shape) do n = n * d end
  return n
end
local function iota(...)
  local n = count{...}
  return pg.linspace(1, n, n):reshape{...}
end
local is = t.has

t.test("reshape copies dims with 0 and infers one -1", function()
  is(iota(2, 6):reshape{0, -1, 2}, {2, 3, 2})
  is(iota(2, 6):reshape(-1), {12})
  is(iota(6):reshape(2, -1), {2, 3}, {{1, 2, 3}, {4, 5, 6}})
  is(pg.ones(1):reshape{}, {})
  is(pg.zeros(0, 4):reshape{0, -1}, {0, 4})
  is(pg.zeros(0, 4):reshape{-1}, {0})
  is(iota(2, 3):t():reshape(-1), {6}, {1, 4, 2, 5, 3, 6})
  is(pg.zeros(0, 3):reshape_as(pg.zeros(3, 0)), {3, 0})
end)

t.test("reshape refuses shapes that do not fit", function()
  bad(function() return iota(2, 3):reshape(4) end, "reshape", "shape", "a shape of 6 elements like 2x3")
  bad(function() return iota(2, 3):reshape(-1, -1) end, "reshape", "shape")
  bad(function() return iota(2, 3):reshape(-1, 4) end, "reshape", "shape")
  bad(function() return iota(2, 3):reshape(6, 1, 0) end, "reshape", "shape")
  bad(function() return iota(2, 3):reshape(-2, 3) end, "reshape", "shape")
  bad(function() return iota(2, 3):reshape_as(pg.zeros(4)) end, "reshape_as", "other")
  t.error_contains(function() return iota(2, 3):reshape(2 ^ 40, 2 ^ 40) end, "reshape")
end)

t.test("copies of rows of any length and step agree with a loop over elements", function()
  local lengths = {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 47, 64, 65, 130, 700}
  for _, dtype in ipairs{"uint8", "float16", "int32", "float64"} do
    for _, n in ipairs(lengths) do
      for _, step in ipairs{1, 2, 3, 4, 5} do
        local all = (iota(3, 5, n * step + 3) % 251):to(dtype)
        local x, rows, reversed, repeated = all[{{}, {}, {2, 2 + (n - 1) * step, step}}], {}, {}, {}
        for p, plane in ipairs(all:totable()) do
          rows[p], reversed[p], repeated[p] = {}, {}, {}
          for r, row in ipairs(plane) do
            local one, back, same = {}, {}, {}
            for i = 1, n do one[i], same[i] = row[2 + (i - 1) * step], row[2] end
            for i = 1, n do back[i] = one[n + 1 - i] end
            rows[p][r], reversed[p][r], repeated[p][r] = one, back, same
          end
        end
        local what = dtype .. " " .. n .. " by " .. step
        is(x:contiguous(), {3, 5, n}, rows)
        is(x:flip(3), {3, 5, n}, reversed)
        is(x[{{}, {}, {1, 1}}]:expand(3, 5, n):contiguous(), {3, 5, n}, repeated)
        local joined = pg.cat({x, x:flip(3)}, 3)
        t.equal(joined[{{}, {}, {1, n}}]:totable(), rows, what)
        t.equal(joined[{{}, {}, {n + 1, -1}}]:totable(), reversed, what)
      end
    end
  end
end)

t.test("views do not copy, and keep their elements when the source changes", function()
  local x = iota(2, 3)
  local y = x:t()
  x:add_(10)
  is(y, {3, 2}, {{1, 4}, {2, 5}, {3, 6}})
  t.check(not y:is_contiguous() and y:contiguous():is_contiguous(), "contiguous")
  is(x, {2, 3}, {{11, 12, 13}, {14, 15, 16}})
end)

t.test("dims count from 1 or from the end", function()
  is(iota(2, 3, 4):transpose(1, -1), {4, 3, 2})
  is(iota(2, 3, 4):permute{3, 1, 2}, {4, 2, 3})
  is(iota(2, 3, 4):permute(-1, 1, 2), {4, 2, 3})
  is(iota(2, 3, 4):moveaxis(1, -1), {3, 4, 2})
  is(iota(2, 3, 4):flatten(2), {2, 12})
  is(iota(2, 3, 4):flatten(1, 2), {6, 4})
  is(pg.ones{}:flatten(), {1})
  is(iota(1, 3, 1):squeeze(), {3})
  is(iota(1, 3, 1):squeeze(-1), {1, 3})
  is(iota(1, 3, 1):squeeze(2), {1, 3, 1})
  is(iota(3):unsqueeze(1), {1, 3})
  is(iota(3):unsqueeze(-1), {3, 1})
  is(pg.ones{}:t(), {})
  bad(function() return iota(2, 3):transpose(0, 1) end, "transpose", "dim0", "a dim from 1 to 2")
  bad(function() return iota(2, 3):transpose(1, 3) end, "transpose", "dim1")
  bad(function() return iota(2, 3):permute{1, 1} end, "permute", "dims", "once")
  bad(function() return iota(2, 3):permute{1} end, "permute", "dims")
  bad(function() return iota(2, 3):unsqueeze(4) end, "unsqueeze", "dim")
  bad(function() return iota(2, 3, 4):t() end, "t", "x", "at most 2 dims")
  bad(function() return iota(2, 3):flatten(2, 1) end, "flatten", "end_dim")
end)

t.test("expand", function()
  is(iota(2, 1):expand(2, 3), {2, 3}, {{1, 1, 1}, {2, 2, 2}})
  is(iota(3):expand{2, -1}, {2, 3})
  is(iota(1, 3):expand{0, 3}, {0, 3})
  is(iota(3):expand_as(pg.zeros(2, 3)), {2, 3})
  is(iota(3):broadcast_to(2, 3):sum(1), {3}, {2, 4, 6})
  bad(function() return iota(2, 3):expand(3, 3) end, "expand", "shape", "2x3 expands to")
  bad(function() return iota(2, 3):expand(3) end, "expand", "shape")
  bad(function() return iota(3):expand(-1, 3) end, "expand", "shape")
  bad(function() return iota(2, 3):expand_as(pg.zeros(3)) end, "expand_as", "other")
end)

t.test("narrow and select", function()
  is(iota(5):narrow(1, 2, 3), {3}, {2, 3, 4})
  is(iota(5):narrow(1, -2, 2), {2}, {4, 5})
  is(iota(5):narrow(1, 6, 0), {0})
  is(iota(2, 3):select(2, -1), {2}, {3, 6})
  is(iota(3):select(1, 2), {}, 2)
  bad(function() return iota(5):narrow(1, 0, 1) end, "narrow", "start")
  bad(function() return iota(5):narrow(1, 4, 3) end, "narrow", "length", "at most 2")
  bad(function() return iota(5):narrow(1, 1, -1) end, "narrow", "length")
  bad(function() return iota(5):narrow(1, 1, 2 ^ 62) end, "narrow", "length")
  bad(function() return iota(2, 3):select(1, 3) end, "select", "index", "1 to 2 or -2 to -1")
  bad(function() return iota(2, 3):select(1, 1.5) end, "select", "index")
  t.error_contains(function() return pg.ones{}:select(1, 1) end, "select")
end)

t.test("split, chunk and unbind return array tables", function()
  local function sizes(pieces)
    local out = {}
    for i, p in ipairs(pieces) do out[i] = p:size(1) end
    return out
  end
  t.equal(sizes(iota(5):split(2)), {2, 2, 1})
  t.equal(sizes(iota(5):split{1, 4, 0}), {1, 4, 0})
  t.equal(sizes(iota(5):chunk(3)), {2, 2, 1})
  t.equal(sizes(iota(4):chunk(3)), {2, 2})
  t.equal(sizes(iota(5):chunk(1)), {5})
  t.equal(#iota(3, 2):unbind(2), 2)
  t.equal(#pg.zeros(0, 2):unbind(), 0)
  t.equal(#pg.zeros(0, 2):split(3), 1)
  is(iota(3, 2):unbind(-1)[2], {3}, {2, 4, 6})
  is(iota(2, 4):split(3, 2)[2], {2, 1}, {{4}, {8}})
  bad(function() return iota(5):split(0) end, "split", "split_size")
  bad(function() return iota(5):split{2, 2} end, "split", "split_size", "sum to 5")
  bad(function() return iota(5):split{6, -1} end, "split", "split_size")
  bad(function() return iota(5):chunk(0) end, "chunk", "chunks")
end)

t.test("a gradient reaches the pieces that were used", function()
  local x = iota(3, 2):attach_grad()
  pg.record(function()
    local parts = x:split(1)
    return (parts[1] * 2 + parts[3]):sum()
  end):backward()
  t.equal(x.grad:totable(), {{2, 2}, {0, 0}, {1, 1}})
  pg.record(function() return x:unbind(2)[2]:sum() end):backward()
  t.equal(x.grad:totable(), {{0, 1}, {0, 1}, {0, 1}})
end)

t.test("cat and stack", function()
  is(pg.cat({iota(2), iota(1)}), {3}, {1, 2, 1})
  is(pg.cat({iota(2, 1), iota(2, 2)}, 2), {2, 3}, {{1, 1, 2}, {2, 3, 4}})
  is(pg.cat({iota(2, 2):t(), pg.zeros(0, 2)}, -2), {2, 2}, {{1, 3}, {2, 4}})
  is(pg.stack({iota(2), iota(2)}), {2, 2})
  is(pg.stack({iota(2), iota(2)}, -1), {2, 2}, {{1, 1}, {2, 2}})
  is(pg.stack{pg.tensor(1), pg.tensor(2)}, {2}, {1, 2})
  local mixed = pg.cat({pg.tensor({1}, {dtype = "int64"}), pg.tensor({0.5}), pg.tensor({true})})
  t.equal(mixed.dtype, "float32")
  is(mixed, {3}, {1, 0.5, 1})
  bad(function() return pg.cat({iota(2, 2), iota(3)}) end, "cat", "tensors", "2 dims")
  bad(function() return pg.cat({iota(2, 2), iota(2, 3)}) end, "cat", "tensors")
  bad(function() return pg.cat({}) end, "cat", "tensors")
  bad(function() return pg.cat({pg.tensor(1)}) end, "cat", "tensors", "at least 1 dim")
  bad(function() return pg.cat({iota(2), 3}) end, "cat", "tensors")
  bad(function() return pg.stack({iota(2), iota(3)}) end, "stack", "tensors")
  bad(function() return pg.stack({iota(2)}, 3) end, "stack", "dim")
end)

t.test("tile and repeat_interleave", function()
  is(iota(2):tile(2), {4}, {1, 2, 1, 2})
  is(iota(2):tile(2, 1), {2, 2}, {{1, 2}, {1, 2}})
  is(iota(2, 1):tile{2}, {2, 2}, {{1, 1}, {2, 2}})
  is(iota(2):tile{}, {2})
  is(iota(2):repeat_interleave(2), {4}, {1, 1, 2, 2})
  is(iota(2):repeat_interleave{3, 0}, {3}, {1, 1, 1})
  is(iota(2, 2):repeat_interleave(2), {8})
  is(iota(2, 2):repeat_interleave({1, 2}, 2), {2, 3}, {{1, 2, 2}, {3, 4, 4}})
  bad(function() return iota(2):tile(-1) end, "tile", "dims")
  bad(function() return iota(3):repeat_interleave{1, 2} end, "repeat_interleave", "repeats", "3 positions")
  t.error_contains(function() return iota(3):tile(2 ^ 62) end, "tile")
end)

t.test("flip and roll", function()
  is(iota(2, 2):flip(1), {2, 2}, {{3, 4}, {1, 2}})
  is(iota(2, 2):flip{1, 2}, {2, 2}, {{4, 3}, {2, 1}})
  is(pg.flip(iota(2, 2), {dims = {}}), {2, 2}, {{1, 2}, {3, 4}})
  for _, dim in ipairs{1, -1} do t.equal(pg.tensor(7):flip(dim):item(), 7) end
  is(iota(4):roll(1), {4}, {4, 1, 2, 3})
  is(iota(4):roll(-5), {4}, {2, 3, 4, 1})
  is(iota(2, 2):roll(1), {2, 2}, {{4, 1}, {2, 3}})
  is(iota(2, 2):roll({1, 1}, {1, 2}), {2, 2}, {{4, 3}, {2, 1}})
  is(iota(3):roll({1, 1}, {1, 1}), {3}, {2, 3, 1})
  is(iota(2, 3):roll({1, -2, 3, -9007199254740992}, {2, 1, -1, -1}), {2, 3}, {{2, 3, 1}, {5, 6, 4}})
  is(iota(2, 3):roll({1, 1, 1}, {1, 2, 1}), {2, 3}, {{3, 1, 2}, {6, 4, 5}})
  is(pg.fft.fftshift(iota(3), {dim = {1, 1}}), {3}, {2, 3, 1})
  is(pg.zeros(0, 2):roll({1, 1}, {1, 1}), {0, 2})
  bad(function() return iota(2):roll({1, 2}) end, "roll", "shifts")
  bad(function() return iota(2):roll({1, 2}, {1, 2}) end, "roll", "dims", "from 1 to 1")
  bad(function() return iota(2):flip(2) end, "flip", "dims")
end)

-- Pads dim d by selecting positions, or by joining blocks of the value 7.
local function pad_dim(x, d, before, after, mode)
  local n = x.shape[d]
  if mode == "constant" then
    local function block(size)
      local shape = x.shape
      shape[d] = size
      return pg.full(shape, 7)
    end
    return pg.cat({block(before), x, block(after)}, d)
  end
  local source = {}
  for i = 1 - before, n + after do
    local at = i
    if mode == "replicate" then at = math.max(1, math.min(n, i)) end
    if mode == "circular" then at = (i - 1) % n + 1 end
    if mode == "reflect" then at = i < 1 and 2 - i or i > n and 2 * n - i or i end
    source[#source + 1] = at
  end
  return x:index_select(d, pg.tensor(source, {dtype = "int64"}))
end

t.test("pad of several dims agrees with dim by dim, with gradients", function()
  for _, mode in ipairs{"constant", "reflect", "replicate", "circular"} do
    for _, shape in ipairs{{5}, {40, 3}, {4, 3, 9}, {2, 3, 4, 70}, {700, 4}, {2, 3, 40, 6}} do
      for _, dims in ipairs{{1}, {1, 2}, {2}, {1, 2, 3}, {3}} do
        if dims[#dims] <= #shape then
          local x = iota(unpack(shape)):attach_grad()
          local pads = {}
          for i = 1, 2 * dims[#dims] do pads[i] = 0 end
          for _, d in ipairs(dims) do pads[2 * d - 1], pads[2 * d] = d % 3, 1 end
          local function padded(v) return v:pad(pads, mode == "constant" and {value = 7} or {mode = mode}) end
          local function by_dim(v)
            for _, d in ipairs(dims) do v = pad_dim(v, #shape + 1 - d, d % 3, 1, mode) end
            return v
          end
          local wanted = by_dim(x)
          is(padded(x), wanted.shape, wanted:totable())
          local last = #shape
          local turned = iota(unpack(shape)):transpose(1, last):contiguous():transpose(1, last)
          is(padded(turned), wanted.shape, by_dim(turned):totable())
          local weight, grads = iota(unpack(wanted.shape)) % 5, {}
          for i, f in ipairs{padded, by_dim} do
            pg.record(function() return (f(x) * weight):sum() end):backward()
            grads[i] = x.grad:totable()
            x.grad:zero_()
          end
          t.equal(grads[1], grads[2], mode)
        end
      end
    end
  end
end)

t.test("pad", function()
  is(iota(2):pad{1, 1}, {4}, {0, 1, 2, 0})
  is(iota(2):pad({1, 1}, {value = 9}), {4}, {9, 1, 2, 9})
  is(iota(3):pad{-1, 1}, {3}, {2, 3, 0})
  is(iota(3):pad({2, 2}, "reflect"), {7}, {3, 2, 1, 2, 3, 2, 1})
  is(iota(3):pad({2, 1}, {mode = "replicate"}), {6}, {1, 1, 1, 2, 3, 3})
  is(iota(3):pad({2, 1}, {mode = "circular"}), {6}, {2, 3, 1, 2, 3, 1})
  is(iota(2, 1):pad{0, 0, 1, 0}, {3, 1}, {{0}, {1}, {2}})
  t.equal(pg.tensor({1}, {dtype = "int64"}):pad({1, 0}, {value = 3}).dtype, "int64")
  -- Values: torch 2.15.
  is(iota(3):pad({-1, 2}, "replicate"), {4}, {2, 3, 3, 3})
  is(iota(3):pad({-4, 5}, "replicate"), {4}, {3, 3, 3, 3})
  is(iota(3):pad({2, -2}, "replicate"), {3}, {1, 1, 1})
  is(iota(3):pad({-1, 2}, "reflect"), {4}, {2, 3, 2, 1})
  is(iota(3):pad({2, -1}, "reflect"), {4}, {3, 2, 1, 2})
  is(iota(3):pad({-3, 2}, "reflect"), {2}, {2, 1})
  is(iota(3):pad({-1, 2}, "circular"), {4}, {2, 3, 2, 3})
  is(iota(3):pad({2, -1}, "circular"), {4}, {1, 2, 1, 2})
  is(iota(2, 3):pad({-1, 1, 1, -1}, "circular"), {2, 3}, {{2, 3, 2}, {2, 3, 2}})
  for _, mode in ipairs{"replicate", "reflect", "circular"} do
    is(iota(3):pad({-1, -1}, mode), {1}, {2})
    is(iota(3):pad({-1, -2}, mode), {0})
    bad(function() return iota(3):pad({-2, -2}, mode) end, "pad", "pad", "size of at least 0")
  end
  bad(function() return iota(3):pad({-2, 2}, "circular") end, "pad", "pad", "at most 1 for 1 elements")
  bad(function() return iota(3):pad({3, 0}, {mode = "reflect"}) end, "pad", "pad", "at most 2")
  bad(function() return iota(3):pad{1} end, "pad", "pad", "pairs")
  bad(function() return iota(3):pad{1, 1, 1, 1} end, "pad", "pad")
  bad(function() return iota(3):pad{-4, 0} end, "pad", "pad")
  bad(function() return iota(3):pad({1, 1}, {mode = "mirror"}) end, "pad", "mode")
  bad(function() return pg.tensor({1}, {dtype = "int64"}):pad({1, 0}, {value = 0.5}) end, "pad", "value")
end)

t.test("diagonals and triangles", function()
  is(iota(2, 3):diagonal(), {2}, {1, 5})
  is(iota(2, 3):diagonal(1), {2}, {2, 6})
  is(iota(2, 3):diagonal(-1), {1}, {4})
  is(iota(2, 3):diagonal(7), {0})
  is(iota(2):diag(), {2, 2}, {{1, 0}, {0, 2}})
  is(iota(2, 2):diag(), {2}, {1, 4})
  is(iota(2):diag_embed(-1), {3, 3}, {{0, 0, 0}, {1, 0, 0}, {0, 2, 0}})
  is(iota(2, 3):tril(), {2, 3}, {{1, 0, 0}, {4, 5, 0}})
  is(iota(2, 3):triu(1), {2, 3}, {{0, 2, 3}, {0, 0, 6}})
  t.error_contains(function() return iota(3):diagonal() end, "diagonal")
  bad(function() return iota(3):tril() end, "tril", "x", "at least 2 dims")
  bad(function() return iota(2, 2, 2):diag() end, "diag", "x")
end)

t.test("every dtype can be moved", function()
  for _, dtype in ipairs{"float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32", "int64", "bool"} do
    local x = pg.tensor({{1, 0, 1}, {0, 1, 1}}):to(dtype)
    for _, y in ipairs{x:t(), x:flip{1, 2}:flip{1, 2}:t(), x:roll({1}, {1}):roll({1}, {1}):t(), pg.cat({x, x}, 2):narrow(2, 4, 3):t(),
                       x:pad{1, 1, 1, 1}:narrow(1, 2, 2):narrow(2, 2, 3):t(), pg.stack({x, x}, 2):select(2, 2):t(),
                       x:repeat_interleave(2, 1):reshape(2, 2, 3):select(2, 1):t()} do
      t.equal(y.dtype, dtype)
      is(y:to("float32"), {3, 2}, {{1, 0}, {0, 1}, {1, 1}})
    end
  end
end)

t.test("large transposes and permutes agree with their definition", function()
  local x = pg.linspace(1, 130 * 67 * 3, 130 * 67 * 3):reshape(130, 67, 3)
  for _, order in ipairs{{1, 3, 2}, {2, 1, 3}, {2, 3, 1}, {3, 1, 2}, {3, 2, 1}} do
    local y = x:permute(order):contiguous()
    local inverse = {}
    for i, d in ipairs(order) do inverse[d] = i end
    t.check(y:permute(inverse):equal(x), table.concat(order, " "))
    t.equal(y:flatten():narrow(1, 2, 1):item(), 1 + ({201, 3, 1})[order[3]], table.concat(order, " "))
  end
end)

t.test("repeat_interleave reads counts from a tensor", function()
  local counts = pg.tensor({1, 0, 2}, {dtype = "int64"})
  t.equal(pg.tensor{4, 5, 6}:repeat_interleave(counts), pg.tensor{4, 6, 6})
  t.equal(pg.range(1, 6):reshape(3, 2):repeat_interleave(counts, 1), pg.tensor{{1, 2}, {5, 6}, {5, 6}})
  t.bad_argument(function() return pg.ones(3):repeat_interleave(pg.ones(3)) end, "repeat_interleave", "repeats")
  t.bad_argument(function() return pg.ones(3):repeat_interleave(counts:reshape(3, 1)) end, "repeat_interleave", "repeats")
end)

-- Element (i, j, k, …) of the result is that of the argument, for rows of every short length, whole and in parts.
t.test("copies of short rows", function()
  t.skip_in("gcstress", "large tensors")
  for _, dtype in ipairs{"uint8", "float16", "float32", "float64"} do
    for row = 1, 10 do
      for _, rows in ipairs{1, 3, 1000, t.takes_all() and 20001 or 7001} do
        local n = row * rows
        local index = pg.range(0, n - 1, {dtype = "int64"})
        local flat = index:remainder(251):to(dtype)
        local i, k = index:floor_divide(row), index:remainder(row)
        local function check(got, at, what)
          t.check(got:reshape(-1):to("int64"):eq(at:remainder(251)):all():item(),
                  ("%s of %s, %d rows of %d"):format(what, dtype, rows, row))
        end
        check(flat:reshape(row, rows):t():contiguous(), k * rows + i, "transposition")
        check(flat:narrow(1, 1, rows):repeat_interleave(row), i, "repetition")
        check(flat:reshape(rows, row):flip(2), i * row + (row - 1 - k), "flip of rows")
        check(flat:reshape(rows, row):flip(1), (rows - 1 - i) * row + k, "flip of columns")
        check(flat:reshape(rows, row):roll(1, 2), i * row + (k + row - 1):remainder(row), "roll")
        local wide = pg.zeros({rows, row + 3}, {dtype = dtype})
        wide[{{}, {2, row + 1}}] = flat:reshape(rows, row)
        check(wide:narrow(2, 2, row), i * row + k, "assignment")
        t.check(wide:narrow(2, 1, 1):eq(0):all():item() and wide:narrow(2, row + 2, 2):eq(0):all():item(), "beside it")
        local deep = pg.range(0, 6 * n - 1, {dtype = "int64"})
        local c, a = deep:floor_divide(2 * n), deep:remainder(2 * n):floor_divide(n)
        local b, e = deep:remainder(n):floor_divide(row), deep:remainder(row)
        local moved = deep:remainder(251):to(dtype):reshape(2, rows, 3, row):permute(3, 1, 2, 4)
        check(moved:contiguous(), ((a * rows + b) * 3 + c) * row + e, "permutation")
      end
    end
  end
end)
