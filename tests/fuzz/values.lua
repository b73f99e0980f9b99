-- Random arguments of ops: valid ones, edge cases and nonsense. values(choose) takes a function choose(n) -> 1..n and
-- returns the generators by kind. The same choices give the same values.
local pg = require "perigee"
local edges = require "tests.ops.edges"

local nan, inf = 0 / 0, math.huge
local dtypes = {"bool", "uint8", "int8", "int32", "int64", "float16", "bfloat16", "float32", "float64"}
local floats = {"float32", "float32", "float64", "float16", "bfloat16"}
local strings = {"", "\0", "x", "mean", "reflect", "float32", ("x"):rep(300), "cpu", "täglich", "none", "same"}

return function(choose)
  local v = {}

  local function one_in(n) return choose(n) == 1 end
  local function pick(list) return list[choose(#list)] end
  v.one_in, v.pick = one_in, pick

  local function dims(rank, most)
    local out = {}
    for k = 1, rank do out[k] = choose(most) end
    return out
  end

  function v.shape()
    local kind = choose(12)
    if kind <= 6 then return dims(choose(4), 4) end
    if kind == 7 then return {} end
    if kind == 8 then
      local shape = dims(choose(4), 4)
      shape[choose(#shape)] = 0
      return shape
    end
    if kind == 9 then return {unpack(pick(edges.shapes))} end
    if kind == 10 then return {pick{17, 64, 65, 1000, 5003}} end
    if kind == 11 then return {pick{3, 33}, pick{7, 65}} end
    return dims(choose(10), 2)
  end

  local function numbers(count, dtype)
    local out, special = {}, one_in(6)
    local large = dtype == "float16" and 6e4 or 1e30
    for k = 1, count do
      out[k] = dtype:find("float") and (choose(2001) - 1001) / 500 or choose(7) - 2
      if dtype:find("^u") or dtype == "bool" then out[k] = math.abs(out[k]) end
      if special and dtype:find("float") and one_in(4) then out[k] = pick{nan, inf, -inf, 0, -0.0, large, 1e-40} end
    end
    return out
  end

  local function filled(shape, dtype)
    local count = 1
    for _, d in ipairs(shape) do count = count * d end
    if count == 0 then return pg.zeros(shape, {dtype = dtype}) end
    if count > 256 then return pg.rand(shape):mul(4):sub(1):to(dtype) end
    local list = numbers(count, dtype)
    if dtype == "bool" then for k, x in ipairs(list) do list[k] = x > 0 end end
    return pg.tensor(list, {dtype = dtype}):reshape(shape)
  end

  -- Returns the same elements in another layout, or other elements.
  local function laid_out(x)
    local rank = #x.shape
    if rank == 0 or x:numel() == 0 then return x end
    local kind = choose(4)
    if kind == 1 and rank > 1 then return x:transpose(1, rank):contiguous():transpose(1, rank) end
    if kind == 2 then return pg.cat({x, x}, rank)[{(rank == 1) and {x.shape[1] + 1, -1} or "..." }] end
    if kind == 3 then return pg.stack({x, x}, rank + 1):select(rank + 1, 1) end
    local shape = x.shape
    local d = choose(rank)
    return x:narrow(d, 1, 1):expand(shape)
  end

  -- Returns a tensor of a shape and a dtype; both are random if nil.
  function v.tensor(shape, dtype)
    local x = filled(shape or v.shape(), dtype or pick(one_in(2) and floats or dtypes))
    return one_in(4) and laid_out(x) or x
  end

  function v.int()
    local kind = choose(8)
    if kind == 1 then return pick(edges.numbers) end
    if kind == 2 then return choose(200) - 100 end
    return choose(9) - 4
  end
  v.dim = v.int

  function v.float()
    local kind = choose(8)
    if kind == 1 then return pick(edges.numbers) end
    if kind == 2 then return pick{nan, inf, -inf, 1e300, 1e-300, -0.0} end
    return (choose(4001) - 2001) / 1000
  end

  function v.ints()
    local out, count = {}, choose(5) - 1
    if one_in(6) then return v.int() end
    for k = 1, count do out[k] = v.int() end
    return out
  end
  v.dims = v.ints

  function v.floats()
    local out, count = {}, choose(5) - 1
    if one_in(3) then return v.float() end
    for k = 1, count do out[k] = v.float() end
    return out
  end

  function v.bool() return one_in(2) end
  function v.string() return pick(strings) end
  function v.dtype() return one_in(8) and pick(strings) or pick(dtypes) end
  function v.device() return pick{"cpu", "cpu:0", "cpu:1", "gpu", "", "testdev"} end
  function v.random() return pg.Generator(choose(100)) end

  function v.released()
    local x = pg.ones(2)
    x:release()
    return x
  end

  -- Returns a value of a kind that no argument has.
  function v.nonsense()
    local kind = choose(14)
    if kind == 1 then return nil end
    if kind == 2 then return pick(edges.numbers) end
    if kind == 3 then return v.string() end
    if kind == 4 then return function() end end
    if kind == 5 then return coroutine.create(function() end) end
    if kind == 6 then return io.stdout end
    if kind == 7 then return v.released() end
    if kind == 8 then return pg.param{shape = {0, 3}} end
    if kind == 9 then return {v.nonsense(), v.tensor()} end
    if kind == 10 then return {x = 1, [3] = v.tensor()} end
    if kind == 11 then return v.tensor() end
    if kind == 12 then return v.bool() end
    if kind == 13 then return pg.Generator(1) end
    return pick{nan, 1.5, 0, 1, -1}
  end

  -- Returns a value for an input with this row: a tensor, a number, a list, sometimes nil.
  function v.input(def)
    if one_in(25) then return v.nonsense() end
    if def.arity == "list" then
      local out = {}
      for k = 1, choose(4) - 1 do out[k] = v.tensor() end
      return out
    end
    if def.arity ~= "one" and one_in(3) then return nil end
    if one_in(10) then return v.float() end
    return v.tensor()
  end

  -- Returns a value for an attribute with this row.
  function v.attribute(def)
    if one_in(25) then return v.nonsense() end
    if #def.choices > 0 and not one_in(6) then return pick(def.choices) end
    return v[def.kind]()
  end

  local function changed(x)
    local kind, dtype = choose(5), x.dtype
    if kind == 1 then return edges.stretched(x, choose(12) - 1) end
    if kind == 2 then return x:to(pick(dtypes)) end
    if kind == 3 then return v.tensor(x.shape, dtype) end
    if kind == 4 and x:numel() <= 2 ^ 16 then return laid_out(x) end
    return v.tensor(nil, dtype)
  end

  -- Returns a tensor of another shape, dtype, layout or value in place of x. x may already be something else than a
  -- tensor.
  function v.instead_of(x)
    if one_in(12) then return v.nonsense() end
    local ok, y = pcall(changed, x)
    if ok then return y end
    return v.nonsense()
  end

  return v
end
