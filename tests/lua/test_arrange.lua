-- Ops that turn, align, join and combine tensors: values of PyTorch 2.15, with positions from 1 on.
local t = require "tests.support"
local pg = require "perigee"

local function is(x, values, what) t.equal(x:totable(), values, what) end
local m = pg.tensor({{1, 2}, {3, 4}})

t.test("flips and turns", function()
  is(m:fliplr(), {{2, 1}, {4, 3}})
  is(m:flipud(), {{3, 4}, {1, 2}})
  is(m:rot90(), {{2, 4}, {1, 3}})
  is(m:rot90(-1), {{3, 1}, {4, 2}})
  is(m:rot90(6), {{4, 3}, {2, 1}})
  is(m:rot90(4), {{1, 2}, {3, 4}})
  is(m:rot90(1, {2, 1}), {{3, 1}, {4, 2}})
  t.equal(pg.ones(2, 3, 4):rot90{k = 1, dims = {2, 3}}.shape, {2, 4, 3})
  t.bad_argument(function() pg.ones(3):fliplr() end, "fliplr", "x")
  t.bad_argument(function() m:rot90(1, {1, 1}) end, "rot90", "dims")
  t.bad_argument(function() m:rot90(1, {1}) end, "rot90", "dims")
end)

t.test("at least some dims, and one", function()
  t.equal(pg.tensor(1):atleast_1d().shape, {1})
  t.equal(pg.ones(2):atleast_2d().shape, {1, 2})
  t.equal(pg.tensor(1):atleast_3d().shape, {1, 1, 1})
  t.equal(pg.ones(2):atleast_3d().shape, {1, 2, 1})
  t.equal(pg.ones(2, 3):atleast_3d().shape, {2, 3, 1})
  is(m:t():ravel(), {1, 3, 2, 4})
  is(pg.tensor(5):ravel(), {5})
end)

t.test("broadcast_tensors, meshgrid and block_diag", function()
  local a, b = unpack(pg.broadcast_tensors(pg.tensor({{1}, {2}}), pg.tensor({3, 4})))
  is(a, {{1, 1}, {2, 2}})
  is(b, {{3, 4}, {3, 4}})
  local x, y = unpack(pg.meshgrid(pg.tensor({1, 2}), pg.tensor({3, 4, 5})))
  is(x, {{1, 1, 1}, {2, 2, 2}})
  is(y, {{3, 4, 5}, {3, 4, 5}})
  x, y = unpack(pg.meshgrid({pg.tensor({1, 2}), pg.tensor({3, 4, 5})}, {indexing = "xy"}))
  is(x, {{1, 2}, {1, 2}, {1, 2}})
  is(y, {{3, 3}, {4, 4}, {5, 5}})
  is(pg.block_diag(m, pg.tensor({5, 6}), pg.tensor(7)), {{1, 2, 0, 0, 0}, {3, 4, 0, 0, 0}, {0, 0, 5, 6, 0}, {0, 0, 0, 0, 7}})
  t.bad_argument(function() pg.meshgrid(m) end, "meshgrid", "tensors")
  t.bad_argument(function() pg.meshgrid{} end, "meshgrid", "tensors")
  t.bad_argument(function() pg.broadcast_tensors(pg.ones(2), pg.ones(3)) end, "broadcast_tensors", "tensors")
  t.bad_argument(function() pg.block_diag(pg.ones(1, 1, 1)) end, "block_diag", "tensors")
end)

t.test("diff", function()
  local x = pg.tensor({1, 4, 9, 16}, {dtype = "int64"})
  is(x:diff(), {3, 5, 7})
  is(x:diff(2), {2, 2})
  is(x:diff(9), {})
  is(x:diff(0), {1, 4, 9, 16})
  local ends = {prepend = pg.tensor({0}, {dtype = "int64"}), append = pg.tensor({3, 4}, {dtype = "int64"})}
  is(pg.tensor({1, 4, 9}, {dtype = "int64"}):diff(ends), {1, 3, 5, -6, 1})
  is(m:diff{dim = 1}, {{2, 2}})
  is(pg.tensor({true, true, false}):diff(), {false, true})
  t.bad_argument(function() pg.tensor(1):diff() end, "diff", "x")
  t.bad_argument(function() m:diff{append = pg.ones(3, 1)} end, "diff", "append")
end)

t.test("choices of elements", function()
  is(pg.cartesian_prod(pg.tensor({1, 2}), pg.tensor({3, 4, 5})), {{1, 3}, {1, 4}, {1, 5}, {2, 3}, {2, 4}, {2, 5}})
  is(pg.cartesian_prod(pg.tensor({1, 2})), {1, 2})
  is(pg.range(1, 4):combinations(3), {{1, 2, 3}, {1, 2, 4}, {1, 3, 4}, {2, 3, 4}})
  is(pg.range(1, 3):combinations(2, true), {{1, 1}, {1, 2}, {1, 3}, {2, 2}, {2, 3}, {3, 3}})
  is(pg.range(1, 3):combinations{r = 1}, {{1}, {2}, {3}})
  t.equal(pg.range(1, 2):combinations(3).shape, {0, 3})
  t.equal(pg.range(1, 2):combinations(0).shape, {0})
  t.equal(pg.zeros(0):combinations(2, true).shape, {0, 2})
  t.equal(pg.range(1, 20):combinations(3).shape, {1140, 3})
  t.bad_argument(function() m:combinations() end, "combinations", "x")
end)

t.test("vander and corrcoef", function()
  is(pg.tensor({1, 2, 3}):vander(), {{1, 1, 1}, {4, 2, 1}, {9, 3, 1}})
  is(pg.tensor({2, 3}, {dtype = "int8"}):vander(3, true), {{1, 2, 4}, {1, 3, 9}})
  t.equal(pg.tensor({2, 3}, {dtype = "int8"}):vander().dtype, "int64")
  is(pg.tensor({0, 2}):vander{n = 1}, {{1}, {1}})
  t.equal(pg.tensor({0, 2}):vander{n = 0}.shape, {2, 0})
  t.close(pg.tensor({{1, 2, 3}, {3, 1, 2}}):corrcoef(), pg.tensor({{1, -0.5}, {-0.5, 1}}))
  t.equal(pg.tensor({1, 2, 3}):corrcoef():item(), 1)
  t.equal(pg.zeros(0, 3):corrcoef().shape, {0, 0})
end)

t.test("one variable has a variance and a correlation without dims", function()
  -- Values: torch 2.15.
  local x = pg.tensor({{1, 2, 4}}, {dtype = "float64"}):attach_grad()
  for _, make in ipairs{function(f) return f end, pg.jit} do
    local v = pg.record(function() return make(pg.cov)(x) end)
    t.equal({v.shape, x:cov{correction = 0}.shape}, {{}, {}})
    t.close(v, pg.tensor(7 / 3, {dtype = "float64"}))
    v:backward()
    t.close(x.grad, pg.tensor({{-4 / 3, -1 / 3, 5 / 3}}, {dtype = "float64"}))
    local r = pg.record(function() return make(pg.corrcoef)(x) end)
    t.equal(r:totable(), 1)
    r:backward()
    t.equal(x.grad:totable(), {{0, 0, 0}})
  end
end)

t.test("positions of triangles and of nonzero elements", function()
  is(pg.tril_indices(3, 4, 1), {{1, 1, 2, 2, 2, 3, 3, 3, 3}, {1, 2, 1, 2, 3, 1, 2, 3, 4}})
  is(pg.triu_indices(3, 4, -1, {index_base = 0}), {{0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2}, {0, 1, 2, 3, 0, 1, 2, 3, 1, 2, 3}})
  for row = 0, 4 do
    for col = 0, 4 do
      for offset = -5, 5 do
        local ones = pg.ones(row, col)
        local what = ("%d x %d, offset %d"):format(row, col, offset)
        t.equal(pg.tril_indices(row, col, offset):t():totable(), ones:tril(offset):nonzero():totable(), "tril " .. what)
        t.equal(pg.triu_indices(row, col, offset):t():totable(), ones:triu(offset):nonzero():totable(), "triu " .. what)
      end
    end
  end
  is(pg.tensor({{0, 1}, {2, 0}}):argwhere(), {{1, 2}, {2, 1}})
  t.equal(pg.tril_indices(3, 3).dtype, "int64")
end)
