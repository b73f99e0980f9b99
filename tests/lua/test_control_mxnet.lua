-- MXNet's own tests of control flow (test_contrib_control_flow.py), rewritten for this library: each program in all
-- ways against the same loop written in Lua.
local t = require "tests.support"
local control = require "tests.control"
local pg = require "perigee"

t.skip_in("gcstress", "many traces")

local function rand(...) return pg.rand{...} - 0.5 end
local function f64(x) return x:to("float64") end
local function unpack_or(x) if type(x) == "table" then return unpack(x) end return x end

-- f(inputs) must return the results of plain(inputs) in all ways, with the same gradients.
local function same(f, plain, inputs, opts)
  local expected, grads = control.see("eager", plain, inputs)
  for _, way in ipairs(control.names) do
    local got, own = control.see(way, f, inputs)
    t.equal(#got, #expected, way)
    for k, y in ipairs(expected) do
      t.equal(got[k].shape, y.shape, way .. ": shape of output " .. k)
      t.equal(got[k].dtype, y.dtype, way .. ": dtype of output " .. k)
      t.close(got[k], y, {rtol = opts and opts.rtol or 1e-5, atol = 1e-5, what = way .. ": output " .. k})
    end
    for name, grad in pairs(grads) do t.close(own[name], grad, {rtol = 1e-4, atol = 1e-5, what = ("%s: gradient of %s"):format(way, name)}) end
  end
end

-- The combinators written in Lua, over flat lists or single tensors.
local function at(data, k) return type(data) == "table" and pg.tree.map(function(x) return x[k] end, data) or data[k] end
local function collect(outs)
  if outs[1] == nil then return nil end
  if type(outs[1]) ~= "table" then return pg.stack(outs) end
  local stacked = {}
  for k in ipairs(outs[1]) do
    local column = {}
    for i, out in ipairs(outs) do column[i] = out[k] end
    stacked[k] = pg.stack(column)
  end
  return stacked
end

local plain = {}
function plain.foreach(body, data, states)
  local outs, n = {}, #(type(data) == "table" and data[1] or data)
  for k = 1, n do outs[k], states = body(at(data, k), states) end
  return collect(outs), states
end

local function padded(x, most)
  local shape = x.shape
  shape[1] = most - shape[1]
  return pg.cat{x, pg.zeros(shape, {dtype = x.dtype})}
end

function plain.while_loop(cond, body, vars, opts)
  local outs, n = {}, 0
  while n < opts.max_iterations and cond(unpack(vars)):item() do
    n = n + 1
    outs[n], vars = body(unpack(vars))
  end
  local stacked = collect(outs)
  if type(stacked) == "table" then
    for k, x in ipairs(stacked) do stacked[k] = padded(x, opts.max_iterations) end
  elseif stacked then stacked = padded(stacked, opts.max_iterations) end
  return stacked, vars, n
end

local function flat(...)
  local list = {}
  for i = 1, select("#", ...) do
    for _, x in ipairs{unpack_or((select(i, ...)))} do list[#list + 1] = x end
  end
  return list
end

-- program(combinators, inputs) -> list
local function both(program, inputs, opts)
  same(function(v) return program(pg, v) end, function(v) return program(plain, v) end, inputs, opts)
end

t.test("while_loop_simple_forward", function()
  local function int(x) return pg.tensor(x, {dtype = "int64"}) end
  local cases = {
    {{int{1}, int{0}}, function(i) return i:le(5) end, function(i, s) return nil, {i + 1, s + i} end, 10, {6, 15}},
    {{int{1}, int{0}}, function(i) return i:le(1000) end, function(i, s) return nil, {i + 1, s + i} end, 1000, {1001, 500500}},
    {{int{1}, int{1}, int{0}}, function(on) return on:eq(1) end, function(on, i, s) return nil, {on, i + 1, s + i} end, 1000, {1, 1001, 500500}},
    {{int{1}, int{0}}, function(i) return i:le(100) end, function(i, s) return i, {i + 1, s + i} end, 1000, {101, 5050}, 100},
    {{int{1}, int{1}, int{0}}, function(on) return on:eq(1) end, function(on, i, s) return i, {on, i + 1, s + i} end, 1000, {1, 1001, 500500}, 1000},
    {{int{0}, int{1}, int{0}}, function(on) return on:eq(1) end, function(on, i, s) return i, {on, i + 1, s + i} end, 1000, {0, 1, 0}, 0},
    {{pg.ones(1), pg.zeros(1)}, function(i) return i:le(5) end, function(i, s) return {i, s}, {i + 1, s + i} end, 7, {6, 15}, 5},
  }
  for number, c in ipairs(cases) do
    control.each(function(way, wrap)
      local steps
      local vars = wrap(function(v)
        local outs, vars, n = pg.while_loop(c[2], c[3], v, {max_iterations = c[4]})
        return {outs or false, vars, n}
      end)(c[1])
      local outs = vars[1]
      vars, steps = vars[2], vars[3]
      local what = ("loop %d, %s"):format(number, way)
      for k, x in ipairs(c[5]) do t.equal(vars[k]:item(), x, what) end
      for k, x in ipairs(c[1]) do t.equal(vars[k].dtype, x.dtype, what) end
      if not c[6] then return t.equal(outs, false, what) end
      t.equal(steps:item(), c[6], what)
      local first = type(outs) == "table" and outs[1] or outs
      t.equal(first.shape, {c[4], 1}, what)
      local expected = {}
      for k = 1, c[4] do expected[k] = {k <= c[6] and k or 0} end
      t.equal(first:totable(), expected, what)
    end)
  end
end)

-- foreach by while_loop: a counter among the variables selects the data.
local function scan_by_while(cf, step, data, states, length, most)
  local vars = {pg.tensor(1, {dtype = "int64"}), unpack(states)}
  local outs, finals = cf.while_loop(function(i) return i:le(length) end, function(i, ...)
    local out, new = step(data:index_select(1, i:reshape{1}):squeeze(1), {...})
    return out, {i + 1, unpack(new)}
  end, vars, {max_iterations = most})
  table.remove(finals, 1)
  return outs, finals
end

t.test("while_loop_for_foreach: inputs and outputs in any order", function()
  local orders = {
    function(x, a, b, f) return {x + a, b * f}, {a, b} end,
    function(x, a, b, f) return {b * f, x + a}, {a, b} end,
    function(x, a, b) return {a + x}, {b, a} end,
    function(x, a, b, f) return {x * f}, {a + x, b} end,
    function(x, a) return {a}, {x, a} end,
    function(x, a, b, f) return {f}, {a * f, b + x} end,
    function(x, a, b, f) return {x, x, a, b}, {b + f, a * x} end,
    function(_, a, b) return {a, a}, {a + b, a + b} end,
    function(x, a, b, f) return {a * b * f * x}, {a * 0.5 + b, b * 0.5 - a} end,
    function(x, a, b, f) return {}, {a * x, b * f} end,
  }
  for _, shape in ipairs{{1}, {2, 3}} do
    for number, body in ipairs(orders) do
      local inputs = {xs = rand(4, unpack(shape)), a = rand(unpack(shape)), b = rand(unpack(shape)), f = rand(unpack(shape))}
      both(function(cf, v)
        local function step(x, states)
          local outs, new = body(x, states[1], states[2], v.f)
          return #outs > 0 and outs or nil, new
        end
        return flat(scan_by_while(cf, step, v.xs, {v.a, v.b}, 4, number % 2 == 0 and 4 or 6))
      end, inputs)
    end
  end
end)

t.test("while_loop_for_foreach: a false condition, unused outputs, dot", function()
  both(function(cf, v)
    local _, finals = cf.while_loop(function(a) return a:sum():gt(1e6) end, function(a, b) return nil, {a * v.f, b + a} end, {v.a, v.b}, {max_iterations = 5})
    return finals
  end, {a = rand(2, 3), b = rand(2, 3), f = rand(2, 3)})
  both(function(cf, v)
    local function step(x, s) return s[1]:matmul(v.w), {(x + s[1]:matmul(v.w)):tanh()} end
    return flat(scan_by_while(cf, step, v.xs, {v.h}, 3, 3))
  end, {xs = rand(3, 2, 4), h = rand(2, 4), w = rand(4, 4)})
  both(function(cf, v)  -- four states of different shapes
    local function step(x, s)
      return {s[1]:sum() * x, s[4]}, {s[1] + x, s[2] * x:sum(), s[3]:matmul(v.w), s[4] + s[2]:sum()}
    end
    return flat(scan_by_while(cf, step, v.xs, {v.a, v.b, v.c, v.d}, 5, 8))
  end, {xs = rand(5, 3), a = rand(3), b = rand(2, 2), c = rand(1, 4), d = rand(1), w = rand(4, 4)})
end)

t.test("while_loop_nested: gradients of the captures of the inner loop", function()
  both(function(cf, v)
    local _, vars = cf.while_loop(function(i) return i:lt(4) end, function(i, s)
      local _, inner = cf.while_loop(function(j) return j:lt(3) end, function(j, u) return nil, {j + 1, u * v.a + v.b * i} end, {v.zero, s}, {max_iterations = 3})
      local _, again = cf.while_loop(function(j) return j:lt(2) end, function(j, u) return nil, {j + 1, (u + inner[2]):tanh()} end, {v.zero, s * v.a}, {max_iterations = 4})
      return nil, {i + 1, inner[2] * 0.5 + again[2]}
    end, {v.zero, v.s}, {max_iterations = 6})
    return vars
  end, {zero = pg.zeros(1), s = rand(3), a = rand(3), b = rand(3)})
end)

local function lstm_step(v, x, h, c)
  local gates = x:linear(v.wx, v.b) + h:linear(v.wh)
  local i, f, g, o = unpack(gates:chunk(4, -1))
  local new = f:sigmoid() * c + i:sigmoid() * g:tanh()
  return o:sigmoid() * new:tanh(), new
end

t.test("while_loop_rnn, foreach_rnn: an LSTM against the cell in a Lua loop", function()
  local inputs = {xs = rand(5, 2, 3), h = rand(2, 4), c = rand(2, 4), wx = rand(16, 3), wh = rand(16, 4), b = rand(16)}
  both(function(cf, v)
    local function step(x, s)
      local h, c = lstm_step(v, x, s[1], s[2])
      return h, {h, c}
    end
    return flat(scan_by_while(cf, step, v.xs, {v.h, v.c}, 5, 5))
  end, inputs)
  both(function(cf, v)
    return flat(cf.foreach(function(x, s)
      local h, c = lstm_step(v, x, s[1], s[2])
      return h, {h, c}
    end, v.xs, {v.h, v.c}))
  end, inputs)
end)

local predicates = {
  function(a, b) return (a * b):sum():lt(0.1) end, function(a, b) return (a + b):sum():lt(0) end,
  function(a) return a:mean():gt(0) end, function(a, b) return a[{1, 1}] - b[{2, 2}] end, function(a, b) return (a - b):abs():max():gt(1):reshape{1} end,
}
local branches = {
  function(a) return a end, function(_, b) return b end, function(a, b) return a + b end, function(a, b) return a * b end,
  function(a, b) return a - b * 2 end, function(_, _, c) return c end, function(a, _, c) return a / (c * c + 1) end,
  function(a, b) return pg.maximum(a, b) end, function(a) return pg.ones_like(a) end,
}

local function invert(p) return function(...) return p(...):ne(0):logical_not() end end

t.test("cond: predicates x branches x branches, plain and inverted", function()
  local inputs = {a = rand(2, 3), b = rand(2, 3)}
  for _, p in ipairs(predicates) do
    for x, then_f in ipairs(branches) do
      for y, else_f in ipairs(branches) do
        if (x + y) % 3 == 0 or t.takes_all() then
          for _, pred in ipairs{p, invert(p)} do
            same(function(v)
              local c = v.a * v.b + 1
              return {pg.cond(pred(v.a, v.b), function() return then_f(v.a, v.b, c) end, function() return else_f(v.a, v.b, c) end) * 2}
            end, function(v)
              local value = pred(v.a, v.b):item()
              local f = value ~= 0 and value ~= false and then_f or else_f
              local z = f(v.a, v.b, v.a * v.b + 1) * 2
              return {z.requires_grad and z or z + v.a * 0 + v.b * 0}
            end, inputs)
          end
        end
      end
    end
  end
end)

-- test_foreach: bodies of x, states s and free variables f; data and states are lists.
local function list(...) return {...} end
local bodies = {
  {"the order of what goes in", function(x, s, f) return s[1] + x[1] * 2 + f[1], list(s[1] * 0.5 + x[1]) end, 1, 1},
  {"free variables first", function(x, s, f) return f[1] * 2 + x[1] + s[1], list(f[1] * s[1] + x[1]) end, 1, 1},
  {"the state first", function(x, s, f) return s[1] * f[2] - x[1], list(s[1] + f[1]:sum() * x[1]) end, 1, 1},
  {"no free variable", function(x, s) return x[1] + s[1] * 2, list(s[1] + x[1]) end, 1, 1},
  {"two inputs", function(x, s, f) return x[1] * x[2] + s[1] + f[1], list(s[1] * x[2] + x[1]) end, 2, 1},
  {"two states", function(x, s, f) return x[1] + s[1] * s[2], list(s[2] + f[1], s[1] * x[1]) end, 1, 2},
  {"two of each", function(x, s, f) return list(x[1] + s[2], x[2] * s[1]), list(s[1] * f[1] + x[2], s[2] - x[1]) end, 2, 2},
  {"three outputs", function(x, s, f) return list(x[1], s[1], f[1] * x[1]), list(s[1] + x[1]) end, 1, 1},
  {"an input twice", function(x, s) return x[1] * x[1] + s[1] * s[1], list(x[1] + x[1]) end, 1, 1},
  {"the output is the input", function(x, s) return x[1], list(x[1] + s[1]) end, 1, 1},
  {"the output is the state", function(x, s) return s[1], list(x[1]) end, 1, 1},
  {"the output is a free variable", function(x, s, f) return f[1], list(s[1] * x[1]) end, 1, 1},
  {"outputs that are one tensor", function(x, s) local y = x[1] * s[1] return list(y, y), list(y) end, 1, 1},
  {"an unused input", function(_, s, f) return s[1] * f[1], list(s[1] * 0.9) end, 2, 1},
  {"an unused state", function(x, _, f) return x[1] * f[1], list(x[1], f[1]) end, 1, 2},
  {"no outputs", function(x, s, f) return nil, list(s[1] * f[1] + x[1]) end, 1, 1},
  {"no states", function(x, _, f) return x[1] * f[1] + f[2], {} end, 1, 0},
}

local function foreach_inputs(steps, rows, states, shape)
  local inputs = {f1 = rand(unpack(shape)), f2 = rand(unpack(shape))}
  for k = 1, rows do inputs["x" .. k] = rand(steps, unpack(shape)) end
  for k = 1, states do inputs["s" .. k] = rand(unpack(shape)) end
  return inputs
end

for _, case in ipairs(bodies) do
  t.test("foreach: " .. case[1], function()
    local body, rows, states = case[2], case[3], case[4]
    for _, steps in ipairs{1, 2, 3, 4} do
      for _, shape in ipairs{{2, 3}, {}} do
        both(function(cf, v)
          local data, s = {v.x1, v.x2}, {v.s1, v.s2}
          if rows == 1 then data = {v.x1} end
          return flat(cf.foreach(function(x, now) return body(x, now, {v.f1, v.f2}) end, data, s))
        end, foreach_inputs(steps, rows, states, shape))
      end
    end
  end)
end

t.test("foreach: different shapes and dtypes side by side", function()
  both(function(cf, v)
    return flat(cf.foreach(function(x, s)
      return {x[1]:sum() + s[1], x[2]:sum(1), x[3] * 2}, {s[1] + x[2]:mean(), s[2] * x[1], s[3] + x[3]}
    end, {v.a, v.b, v.i}, {v.s, v.u, v.n}))
  end, {a = rand(3, 2), b = f64(rand(3, 2, 4)), i = pg.tensor({{1, 2}, {3, 4}, {5, 6}}, {dtype = "int64"}), s = f64(rand(1)), u = rand(2),
        n = pg.tensor({0, 1}, {dtype = "int64"})})
end)

t.test("foreach: unused data, states and variables are fine", function()
  both(function(cf, v) return flat(cf.foreach(function(_, s) return s[1], {s[1] + 1, s[2]} end, {v.x}, {v.a, v.b})) end,
       {x = rand(3, 2), a = rand(2), b = rand(2)})
  both(function(cf, v)
    return select(2, cf.while_loop(function(i) return i:lt(3) end, function(i, _, s) return nil, {i + 1, s, s * 2} end, {v.i, v.a, v.b}, {max_iterations = 9}))
  end, {i = pg.zeros(1), a = rand(2), b = rand(2)})
end)

t.test("foreach_nested", function()
  both(function(cf, v)
    return flat(cf.foreach(function(rows, s)
      local inner, last = cf.foreach(function(row, u) return row * v.f + u[1], {u[1] + row} end, rows, {s[1]})
      local more = cf.foreach(function(row, u) return {row + u[1]}, {u[1] * s[1]} end, inner, last)
      return more[1]:sum(1), {last[1] * 0.3}
    end, v.xs, {v.s}))
  end, {xs = rand(3, 4, 2), s = rand(2), f = rand(2)})
end)

t.test("cut_subgraph: bodies use the results of another combinator", function()
  both(function(cf, v)
    local _, first = cf.foreach(function(x, s) return nil, {s[1] + x} end, v.xs, {v.s})
    local outs, last = cf.foreach(function(x, s) return x * first[1] + s[1], {s[1] * first[1]} end, v.xs, first)
    return flat(outs, last, first)
  end, {xs = rand(3, 2), s = rand(2)})
  both(function(cf, v)
    local _, first = cf.while_loop(function(i) return i:lt(3) end, function(i, s) return nil, {i + 1, s * v.f} end, {v.zero, v.s}, {max_iterations = 4})
    local _, second = cf.while_loop(function(i) return i:lt(first[1] + 2) end, function(i, s) return nil, {i + 1, s + first[2]} end, {first[1], v.s}, {max_iterations = 4})
    return flat(first, second)
  end, {zero = pg.zeros(1), s = rand(2), f = rand(2)})
  control.agree(function(v)
    local y = pg.cond(v.a:sum():gt(0), function() return v.a * 2 end, function() return v.b end)
    local z = pg.cond(y:sum():gt(0), function() return y * v.b end, function() return y - v.a end)
    return {y, z, pg.cond(z:sum():gt(y:sum()), function() return z + y end, function() return z * y end)}
  end, {a = rand(3), b = rand(3)})
end)

t.test("uniq_name, scope: many combinators of one graph, of one function", function()
  local function cumulate(x, s) return s + x, s + x end
  both(function(cf, v)
    local sum = v.s
    for _ = 1, 4 do
      local outs, last = cf.foreach(cumulate, v.xs, sum)
      sum = last + outs:sum(1)
    end
    return {sum}
  end, {xs = rand(3, 2), s = rand(2)})
end)

-- Whether two trees have the same structure; leaves are tensors.
local function structure(tree)
  if type(tree) ~= "table" then return "*" end
  local keys = {}
  for key in pairs(tree) do keys[#keys + 1] = tostring(key) end
  table.sort(keys)
  for i, key in ipairs(keys) do keys[i] = key .. "=" .. structure(tree[key] == nil and tree[tonumber(key)] or tree[key]) end
  return "{" .. table.concat(keys, ",") .. "}"
end

local formats = {
  function(a) return a end, function(a) return {a} end, function(a, b) return {a, b} end, function(a, b) return {a, {b}} end,
  function(a, b) return {h = a, c = b} end, function(a, b) return {{a}, {x = {b, a}}} end, function(a, b) return {{{b}}, a, z = {a}} end,
}

t.test("output_format: containers of outputs and states keep their structure", function()
  control.each(function(way, wrap)
    local x = rand(3, 2)
    for number, format in ipairs(formats) do
      local what = way .. ", format " .. number
      local expected = structure(format(1, 2))
      local state = format(x[1], x[2])
      local got = wrap(function(v)
        local outs, last = pg.foreach(function(row, s) return format(row, row + 1), s end, v.x, v.state)
        return {outs = outs, last = last}
      end)({x = x, state = state})
      t.equal(structure(got.outs), expected, what)
      t.equal(structure(got.last), expected, what)
      got = wrap(function(v)
        local outs, vars = pg.while_loop(function(i) return i:lt(2) end, function(i, s) return format(s, i), {i + 1, s} end, {0, v.x}, {max_iterations = 3})
        return {outs = outs, vars = vars}
      end)({x = x})
      t.equal(structure(got.outs), expected, what)
      t.equal(structure(got.vars), "{1=*,2=*}", what)
      got = wrap(function(v)
        return {pg.cond(v.x:sum():gt(0), function() return format(v.x, v.x * 2) end, function() return format(v.x + 1, v.x) end)}
      end)({x = x})
      t.equal(structure(got[1]), expected, what)
    end
  end)
end)

t.test("foreach_with_unkown_dim: a new number of rows or steps needs no new trace", function()
  local f = pg.jit(function(xs, s) return pg.foreach(function(x, u) return x + u, x * u end, xs, s) end)
  for _, n in ipairs{3, 1, 5, 3} do
    for _, m in ipairs{2, 4} do
      local xs, s = rand(n, m), rand(m)
      local outs, last = f(xs, s)
      local expected, final = plain.foreach(function(x, u) return x + u, x * u end, xs, s)
      t.close(outs, expected)
      t.close(last, final)
    end
  end
  t.equal(f:cache_info().traces, 1)
end)

t.test("contrib_rnn: cells under foreach against unrolled cells, weights after a step of the trainer", function()
  local cells = {
    rnn = function(v, x, s) return (x:linear(v.wx, v.b) + s[1]:linear(v.wh)):tanh(), 1 end,
    lstm = function(v, x, s) return lstm_step(v, x, s[1], s[2]) end,
  }
  local gates = {rnn = 1, lstm = 4}
  for name, cell in pairs(cells) do
    local h, weights = 4, {}
    for _, way in ipairs{"plain", "eager", "hybrid", "alloc", "shape"} do
      pg.manual_seed(3)
      local net = pg.nn.block{
        wx = pg.param{shape = {gates[name] * h, 3}}, wh = pg.param{shape = {gates[name] * h, h}}, b = pg.param{shape = {gates[name] * h}},
        forward = function(self, xs, s)
          local foreach = way == "plain" and plain.foreach or pg.foreach
          return (foreach(function(x, now)
            local out, c = cell(self, x, now)
            return out, {out, name == "lstm" and c or nil}
          end, xs, s))
        end,
      }
      net:initialize()
      local xs, s = rand(5, 2, 3), {rand(2, h), name == "lstm" and rand(2, h) or nil}
      if way == "hybrid" then net:hybridize{static_alloc = false}
      elseif way == "alloc" then net:hybridize{static_alloc = true}
      elseif way == "shape" then net:hybridize{static_alloc = true, static_shape = true} end
      local trainer = pg.optim.Trainer(net:collect_params(), "sgd", {learning_rate = 0.3})
      for _ = 1, 2 do
        pg.record(function() return net(xs, s):square():sum() end):backward()
        trainer:step(1)
      end
      for path, p in net:parameters() do
        if way == "plain" then weights[path] = p else t.close(p, weights[path], {rtol = 1e-4, atol = 1e-5, what = ("%s, %s: %s"):format(name, way, path)}) end
      end
    end
  end
end)
