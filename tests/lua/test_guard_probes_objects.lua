-- The script changes what a traced function read: sharing, fields of tensors, C data and userdata. Each probe is a
-- function, a change and a comparison with plain Lua (tests/probes.lua).
local probe = require "tests.probes"
local pg = require "perigee"
local ffi = require "ffi"

-- Sharing -----------------------------------------------------------------------------------------------------------

local function two_or_one()
  local shared = false
  return function()
    if shared then
      local one = {n = 1}
      return pg.ones(2), one, one
    end
    return pg.ones(2), {n = 1}, {n = 1}
  end, {function() shared = true end, function() shared = false end}
end

probe("two tables as arguments, then one: compared", function()
  local args, mutate = two_or_one()
  return {f = function(x, a, b) return a == b and x * 2 or x end, args = args, mutate = mutate}
end)

probe("two tables as arguments, then one: written to", function()
  local args, mutate = two_or_one()
  return {f = function(x, a, b)
    a.n, b.n = 2, 3
    return x * a.n, a, b
  end, args = args, mutate = mutate}
end)

probe("two empty tables as arguments, then one", function()
  local shared = false
  return {f = function(x, a, b)
    a.y = x * 2
    return (b.y or x) + 1
  end, args = function()
    local a = {}
    return pg.ones(2), a, shared and a or {}
  end, mutate = {function() shared = true end, function() shared = false end}}
end)

probe("two tables in fields, then one, then two", function()
  local o = {a = {n = 1}, b = {n = 1}}
  return {f = function(x)
    o.a.n, o.b.n = 2, 3
    local y = x * o.a.n
    o.a.n, o.b.n = 1, 1
    return y
  end, mutate = {function() o.b = o.a end, function() o.b = {n = 1} end}, state = function() return o end}
end)

probe("two tables in upvalues, then one", function()
  local a, b = {}, {}
  return {f = function(x) return rawequal(a, b) and x * 2 or x end,
    mutate = {function() b = a end, function() b = {} end}}
end)

probe("a table in an argument and a field", function()
  local kept, use = {n = 1}, false
  return {f = function(x, a)
    kept.n = 2
    local y = x * a.n
    kept.n = 1
    return y
  end, args = function() return pg.ones(2), use and kept or {n = 1} end,
    mutate = {function() use = true end, function() use = false end},
    state = function() return kept end}
end)

probe("a table inside another one", function()
  local o = {inner = {n = 1}}
  o.also = o.inner
  return {f = function(x)
    o.also.n = o.also.n % 3 + 1
    return x * o.inner.n
  end, mutate = {function() o.also = {n = 2} end, function() o.also = o.inner end}, state = function() return o end}
end)

probe("two tensors as arguments, then one: written to", function()
  local shared = false
  return {f = function(a, b)
    a:add_(1)
    return b * 2, a
  end, args = function()
    local a = pg.ones(2)
    return a, shared and a or pg.ones(2)
  end, mutate = {function() shared = true end, function() shared = false end}}
end)

probe("two tensors in fields, then one: written to", function()
  local o = {a = pg.ones(3), b = pg.ones(3)}
  return {f = function(x)
    o.a:add_(1)
    return x * o.b
  end, mutate = {function() o.b = o.a end, function() o.b = pg.ones(3) end}, state = function() return o end}
end)

probe("a tensor in a field and an argument: compared", function()
  local o, use = {w = pg.ones(3)}, false
  return {f = function(x) return rawequal(x, o.w) and x * 2 or x end,
    args = function() return use and o.w or pg.ones(3) end,
    mutate = {function() use = true end, function() use = false end}}
end)

probe("two tensors in a list, then one", function()
  local list = {pg.ones(3), pg.ones(3), pg.ones(3)}
  return {f = function(x)
    for _, w in ipairs(list) do w:add_(x) end
    return list[1] + list[2] + list[3]
  end,
    mutate = {function() list[3] = list[1] end, function() list[2] = list[1] end, function() list[2] = pg.zeros(3) end},
    state = function() return list end}
end)

probe("functions that become one", function()
  local function make(n) return function(x) return x * n end end
  local o = {f = make(2), g = make(2)}
  return {f = function(x) return o.f == o.g and x or o.f(x) end,
    mutate = {function() o.g = o.f end, function() o.g = make(2) end}}
end)

probe("an argument's table that is handed back, of a field that was replaced", function()
  local o = {cfg = {a = 1}}
  return {f = function(x, a) return x * 2, a end, args = function() return pg.ones(2), o.cfg end,
    mutate = {function() o.cfg = {a = 1} end, function() o.cfg.a = 2 end}, state = function() return o end}
end)

probe("a tensor in an argument's table that is handed back, of a field that was replaced", function()
  local o = {w = pg.ones(2), v = pg.ones(2)}
  return {f = function(x, a) return o.v * x, a end, args = function() return pg.ones(2), {w = o.w} end,
    mutate = {function() o.w = pg.ones(2, 2) end, function() o.w = o.v end}, state = function() return o end}
end)

-- Fields of tensors -------------------------------------------------------------------------------------------------

probe("lr_mult and wd_mult", function()
  local w = pg.param(pg.ones(3))
  return {f = function(x) return x * w.lr_mult + w.wd_mult end,
    mutate = {function() w.lr_mult = 3 end, function() w.wd_mult = 5 end}}
end)

probe("grad_req", function()
  local w = pg.param(pg.ones(3))
  return {f = function(x) return w.grad_req == "null" and x or x * 2 end,
    mutate = {function() w.grad_req = "null" end, function() w.grad_req = "add" end}}
end)

local function backward_of(w) return function(x)
  local l = pg.record(function() return (w * w * x):sum() end)
  l:backward()
  return l
end end

probe("grad_req in a step: write, then add, then write", function()
  local w = pg.param(pg.ones(3))
  return {f = backward_of(w), mutate = {function() w.grad_req = "add" end, function() w.grad_req = "write" end},
    state = function() return w.grad end}
end)

probe("grad_req in a step: one of two parameters is null, then write", function()
  local w, v = pg.param(pg.ones(3)), pg.param(pg.ones(3))
  v.grad_req = "null"
  return {f = function(x) return backward_of(w)(v * x) end,
    mutate = {function() v.grad_req = "write" end, function() w.grad_req = "null" end},
    state = function() return w.grad, v.grad end}
end)

probe("whether a gradient exists", function()
  local w = pg.ones(3)
  return {f = function(x) return w.grad and x * 2 or x end, mutate = function() w:attach_grad() end}
end)

probe("requires_grad of an argument", function()
  local needs = false
  return {f = function(x) return x.requires_grad and x * 2 or x end,
    args = function() return needs and pg.ones(2):attach_grad() or pg.ones(2) end,
    mutate = {function() needs = true end, function() needs = false end}}
end)

probe("the name of a tensor", function()
  local w = pg.ones(3)
  return {f = function(x) return w.name == "bias" and x or x * 2 end,
    mutate = {function() w.name = "bias" end, function() w.name = "b" end}}
end)

probe("the name of an argument", function()
  local name = "a"
  return {f = function(x) return x.name == "a" and x or x * 2 end, args = function()
    local x = pg.ones(2)
    x.name = name
    return x
  end, mutate = function() name = "b" end}
end)

probe("is_contiguous", function()
  local turned = false
  return {f = function(x) return x:is_contiguous() and x * 2 or x * 3 end,
    args = function() return turned and pg.ones(2, 2):t() or pg.ones(2, 2) end,
    mutate = {function() turned = true end, function() turned = false end}}
end, {refused = "is_contiguous"})

probe("is_contiguous of a transposed tensor made inside", function()
  return {f = function(x) return x:t():is_contiguous() and x * 2 or x * 3 end,
    args = function() return pg.ones(2, 3) end, mutate = function() end}
end, {refused = "is_contiguous"})

probe("shape, dtype and number of dimensions", function()
  local x = pg.ones(2, 3)
  return {f = function(y) return y * #y.shape + y:size(1) + (y.dtype == "int64" and 1 or 2) end,
    args = function() return x end, mutate = {
    function() x = pg.ones(3, 3) end, function() x = pg.ones(3) end, function() x = pg.ones(3):to("int64") end,
  }}
end)

probe("a key added to a table of options", function()
  local options = {dim = 1}
  return {f = function(x) return pg.sum(x, options) end, args = function() return pg.ones(2, 3) end,
    mutate = {function() options.keepdim = true end, function() options.dim = 2 end,
      function() options.keepdim = nil end}}
end)

probe("a key added to options that a method is handed", function()
  local o = {options = {dim = 1}}
  return {f = function(x) return x:sum(o.options) end, args = function() return pg.ones(2, 3) end,
    mutate = {function() o.options.keepdim = true end, function() o.options = {dim = 2} end}}
end)

probe("a shape and an index from tables", function()
  local shape, rows = {2, 3}, {1}
  return {f = function(x) return x[rows] + pg.zeros(shape):sum(), pg.ones(shape) end,
    args = function() return pg.ones(3, 2) end,
    mutate = {function() shape[1] = 4 end, function() shape[3] = 2 end, function() rows[1] = 2 end,
      function() rows[2] = 1 end}}
end)

probe("numbers of a literal tensor from a table", function()
  local numbers = {1, 2, 3}
  return {f = function(x) return x * pg.tensor(numbers) end,
    mutate = {function() numbers[2] = 5 end, function() numbers = {4, 4, 4} end}}
end)

-- C data and userdata -----------------------------------------------------------------------------------------------

probe("a field of an ffi struct", function()
  local s = ffi.new("struct { double rate; int n; }", {2, 3})
  return {f = function(x) return x * s.rate + s.n end, mutate = {function() s.rate = 5 end, function() s.n = 7 end}}
end)

probe("an element of an ffi array", function()
  local a = ffi.new("double[4]", {1, 2, 3, 4})
  return {f = function(x) return x * a[1] end, mutate = {function() a[1] = 5 end, function() a[1] = -0 * 1 end}}
end)

probe("an ffi array in a field, replaced", function()
  local o = {a = ffi.new("int[2]", {1, 2})}
  return {f = function(x) return x * o.a[0] end,
    mutate = {function() o.a = ffi.new("int[2]", {3, 4}) end, function() o.a[0] = 5 end}}
end)

local kind = ffi.metatype("struct { double rate; }", {__index = {twice = function(s) return s.rate * 2 end}})
probe("a method of an ffi struct", function()
  local s = kind(2)
  return {f = function(x) return x * s:twice() end, mutate = function() s.rate = 5 end}
end)

probe("a 64-bit number", function()
  local o = {n = 2LL}
  return {f = function(x) return x * tonumber(o.n) end, mutate = {function() o.n = 3LL end, function() o.n = 4 end}}
end)

probe("ffi.string of a buffer", function()
  local buffer = ffi.new("char[8]", "ab")
  return {f = function(x) return x * #ffi.string(buffer) end, mutate = function() ffi.copy(buffer, "abcd") end}
end)

probe("a large ffi array", function()
  local a = ffi.new("double[20000]")
  return {f = function(x) return x + a[19999] end, mutate = {function() a[19999] = 5 end, function() a[0] = 5 end}}
end, {refused = "cdata"})

probe("an ffi struct inside a struct, and what a pointer points to", function()
  local s = ffi.new("struct { struct { int n; } inner; int rest[3]; }", {{2}, {3, 4, 5}})
  local p = ffi.cast("int *", s.rest)
  return {f = function(x) return x * s.inner.n + p[1] end,
    mutate = {function() s.inner.n = 3 end, function() s.rest[1] = 7 end}}
end, {refused = "cdata"})

probe("an ffi array written by forward", function()
  local a = ffi.new("int[2]", {1, 2})
  return {f = function(x)
    a[0] = a[0] % 3 + 1
    return x * a[0]
  end, mutate = function() a[0] = 1 end, state = function() return a[0] end}
end, {refused = "cdata"})

probe("an ffi array of an argument", function()
  local a = ffi.new("double[2]", {1, 2})
  return {f = function(x, c) return x * c[0] end, args = function() return pg.ones(2), a end,
    mutate = function() a[0] = 5 end}
end)

probe("userdata whose metatable has a table", function()
  local u = newproxy(true)
  getmetatable(u).__index = {rate = 2}
  return {f = function(x) return x * u.rate end,
    mutate = {function() getmetatable(u).__index.rate = 3 end, function() getmetatable(u).__index = {rate = 4} end}}
end)

probe("userdata whose metatable has functions", function()
  local u, rate = newproxy(true), 2
  local meta = getmetatable(u)
  function meta.__index() return rate end
  function meta.__len() return rate end
  function meta.__call(_, x) return x * rate end
  return {f = function(x) return u(x) * u.rate + #u end,
    mutate = {function() rate = 3 end, function() function meta.__len() return 9 end end}}
end)
