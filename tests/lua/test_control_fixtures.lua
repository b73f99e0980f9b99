-- Every program of ../shared/data/fixtures/control_flow as plain Lua, eagerly, in pg.jit and hybridized: values and
-- gradients are MXNet's.
local t = require "tests.support"
local json = require "tests.json"
local control = require "tests.control"
local pg = require "perigee"

t.skip_in("gcstress", "reference values do not depend on collections")

local manifest = json.read(t.shared("data/fixtures/control_flow/manifest.json"))
local data = pg.load(t.shared("data/fixtures/control_flow/control_flow.safetensors"))
local programs = {}

-- A scalar state is stored as one element.
local function below(limit) return function(i) return i:lt(limit):reshape{} end end
local function positive(x) return x:sum():gt(0) end

function programs.foreach_scan(v)
  local outs, s = pg.foreach(function(x, s) return s + x, s + x end, v.xs, v.s0)
  return {outs, s}
end

function programs.foreach_rnn(v)
  local outs, h = pg.foreach(function(x, h)
    local new = (x:matmul(v.W) + h:matmul(v.U) + v.b):tanh()
    return new * 2, new
  end, v.xs, v.h0)
  return {outs, h}
end

function programs.foreach_two(v)
  local outs, states = pg.foreach(function(items, states)
    local x, y = unpack(items)
    local a, b = unpack(states)
    local na, nb = a * x + y, b + a * y
    return {na * 2, nb - x}, {na, nb}
  end, {v.xs, v.ys}, {v.a0, v.b0})
  return {outs[1], outs[2], states[1], states[2]}
end

function programs.foreach_no_state(v)
  local outs, none = pg.foreach(function(x, s)
    assert(s == nil)
    return x:exp() * v.k
  end, v.xs)
  assert(none == nil)
  return {outs}
end

function programs.foreach_no_out(v)
  local none, s = pg.foreach(function(x, s) return nil, s * x + 1 end, v.xs, v.s0)
  assert(none == nil)
  return {s}
end

function programs.foreach_shift(v)
  local outs, s = pg.foreach(function(x, s) return s, x end, v.xs, v.s0)
  return {outs, s}
end

function programs.foreach_alias(v)
  local outs, s = pg.foreach(function(x, s)
    local new = s * v.v + x
    return new * v.v, new
  end, v.xs, v.v)
  return {outs + v.v, s}
end

function programs.foreach_nested(v)
  local outs, s = pg.foreach(function(rows, s)
    local inner, last = pg.foreach(function(row, h)
      local new = (row * v.w + h):tanh()
      return new, new
    end, rows, s)
    return inner:sum(1), last * 0.5 + s
  end, v.xs, v.s0)
  return {outs, s}
end

function programs.foreach_chain(v)
  local o1, s1 = pg.foreach(function(x, s) return x + s, (x + s):tanh() end, v.xs, v.s0)
  local o2, s2 = pg.foreach(function(y, s) return y * s, s + y end, o1 * 2, s1)
  return {o2, s2, s1}
end

function programs.foreach_one_step(v)
  local outs, s = pg.foreach(function(x, s) return s * x, s * x + x end, v.xs, v.s0)
  return {outs, s}
end

programs.foreach_1d = function(v)
  local outs, s = pg.foreach(function(x, s)
    assert(x:dim() == 0)
    local new = s * 0.9 + x
    return new * new, new
  end, v.xs, v.s0)
  return {outs, s}
end

function programs.foreach_softmax_attend(v)
  local outs, q = pg.foreach(function(k, q)
    local a = k:mv(q):softmax(-1)
    return a, k:t():mv(a) + q * 0.1
  end, v.ks, v.q0)
  return {outs, q}
end

local function count(limit, most, step)
  return function(v)
    local outs, vars, n = pg.while_loop(below(limit), function(i, s) return s * i, {i + 1, step(s, v.x)} end, {v.i0, v.s0}, {max_iterations = most})
    return {outs, vars[1], vars[2], n}
  end
end
programs.while_count, programs.while_full = count(5, 8, pg.add), count(1000, 4, pg.mul)

function programs.while_zero(v)
  local y = programs.while_count(v)
  return {y[2], y[3], y[4], zeros = y[1]}
end

function programs.while_grow(v)
  local outs, vars, n = pg.while_loop(function(x) return x:abs():sum():lt(60) end, function(x) return x * x, x * 1.5 + v.b end,
                                      {v.x0}, {max_iterations = 20})
  return {outs, vars[1], n}
end

function programs.while_matrix(v)
  local outs, vars, n = pg.while_loop(below(5), function(i, h)
    local row = v.xs:index_select(1, i:to("int64") + 1):reshape{2, 3}
    local new = (h:matmul(v.W) + row):tanh()
    return {new * 2, new + v.c}, {i + 1, new}
  end, {v.i0, v.h0}, {max_iterations = 8})
  return {outs[1], outs[2], vars[1], vars[2], n}
end

function programs.while_three_vars(v)
  local outs, vars, n = pg.while_loop(below(5), function(i, a, b) return {a * b, a + b, i}, {i + 1, b, a + b * 0.5} end,
                                      {v.i0, v.a0, v.b0}, {max_iterations = 8})
  return {outs[1], outs[2], outs[3], vars[1], vars[2], vars[3], n}
end

function programs.while_no_out(v)
  local outs, vars, n = pg.while_loop(below(4), function(i, y) return nil, {i + 1, (y + v.v / y) / 2} end, {v.i0, v.y0}, {max_iterations = 10})
  assert(outs == nil)
  return {vars[1], vars[2], n}
end

function programs.while_nested(v)
  local outs, vars, n = pg.while_loop(below(3), function(i, s)
    local _, inner = pg.while_loop(below(2), function(j, u) return nil, {j + 1, u * v.w + 1} end, {v.i0 * 0, s}, {max_iterations = 4})
    return inner[2], {i + 1, inner[2]}
  end, {v.i0, v.s0}, {max_iterations = 5})
  return {outs, vars[1], vars[2], n}
end

function programs.while_in_foreach(v)
  local outs, s = pg.foreach(function(x, s)
    local _, inner = pg.while_loop(below(2), function(j, u) return nil, {j + 1, u * u * 0.5 + v.w} end, {v.j0, x}, {max_iterations = 4})
    return inner[2], s + inner[2]
  end, v.xs, v.s0)
  return {outs, s}
end

function programs.foreach_in_while(v)
  local outs, vars, n = pg.while_loop(below(2), function(i, s)
    local o, last = pg.foreach(function(x, u) return x * u, u + x * 0.5 end, v.xs, s)
    return o, {i + 1, last}
  end, {v.i0, v.s0}, {max_iterations = 3})
  return {outs, vars[1], vars[2], n}
end

function programs.while_int(v)
  local outs, vars, n = pg.while_loop(below(9), function(i, a, b) return a, {i + 1, b, a + b} end, {v.i0, v.a0, v.b0}, {max_iterations = 12})
  return {outs, vars[1], vars[2], vars[3], n}
end

function programs.cond_basic(v)
  return {pg.cond(positive(v.p), function() return v.x:tanh() * v.a end, function() return v.x + v.b * 2 end)}
end

function programs.cond_pred_from_x(v)
  return {pg.cond(positive(v.x), function() return v.x * v.x end, function() return v.x:exp() * v.k end)}
end

function programs.cond_multi(v)
  local u = v.x * 2
  return pg.cond(positive(v.p), function() return {u + v.y, v.x * 1} end, function() return {u - v.y, v.y * 3} end)
end

function programs.cond_nested(v)
  return {pg.cond(positive(v.p), function()
    return pg.cond(positive(v.x), function() return v.x * v.a end, function() return v.x / v.a end)
  end, function()
    return pg.cond(positive(v.a), function() return v.x + v.a end, function() return v.x - v.a end)
  end)}
end

function programs.foreach_in_cond(v)
  return {pg.cond(positive(v.p), function()
    return (select(2, pg.foreach(function(x, s) return nil, s * 0.5 + x end, v.xs, v.s0)))
  end, function() return v.xs:sum(1) * v.s0 end)}
end

function programs.cond_in_foreach(v)
  local outs, s = pg.foreach(function(x, s)
    local new = pg.cond(positive(x), function() return s + x * v.a end, function() return s * 0.5 - x end)
    return new, new
  end, v.xs, v.s0)
  return {outs, s}
end

function programs.cond_in_while(v)
  local outs, vars, n = pg.while_loop(below(4), function(i, s)
    local new = pg.cond(positive(s), function() return s * 0.5 - v.a end, function() return s + v.a * 2 end)
    return new, {i + 1, new}
  end, {v.i0, v.s0}, {max_iterations = 6})
  return {outs, vars[1], vars[2], n}
end

function programs.while_in_cond(v)
  return {pg.cond(positive(v.p), function()
    return (select(2, pg.while_loop(below(3), function(i, x) return nil, {i + 1, x * v.w} end, {v.i0, v.x}, {max_iterations = 5})))[2]
  end, function() return v.x end)}
end

local function gather(keys)
  local out = {}
  for name, key in pairs(keys or {}) do out[name] = data[key] end
  return out
end

local function check_steps(case, n)
  for _, steps in pairs(case.executed_steps or {}) do t.equal(n and n:item(), steps, "the number of steps") end
end

local function check(case, way)
  local program = programs[case.name] or programs[case.name:gsub("_then$", ""):gsub("_else$", "")]
  local expected = gather(case.grads)
  local outputs, grads = control.see(way, program, gather(case.inputs), {heads = gather(case.heads), wanted = expected, poisoned = true})
  local tolerance = {rtol = case.rtol, atol = case.atol}
  for k, key in ipairs(case.outputs) do
    t.equal(outputs[k].shape, data[key].shape, "shape of output " .. k)
    t.equal(outputs[k].dtype, data[key].dtype, "dtype of output " .. k)
    tolerance.what = "output " .. k
    t.close(outputs[k], data[key], tolerance)
  end
  check_steps(case, outputs[#case.outputs + 1])
  for name, grad in pairs(expected) do
    tolerance.what = "gradient of " .. name
    t.close(grads[name], grad, tolerance)
  end
  return outputs, grads
end

-- Inputs that only the other branch uses, or no step, get exact zeros.
local exact = {while_zero = {"x"}, cond_basic_then = {"b"}, cond_basic_else = {"a"}, cond_pred_from_x_then = {"k"}}

for _, way in ipairs(control.names) do
  for _, case in ipairs(manifest.cases) do
    t.test(("%s %s %s"):format(way, case.name, case.dtype), function()
      local outputs, grads = check(case, way)
      for _, name in ipairs(exact[case.name] or {}) do
        t.check(grads[name]:equal(pg.zeros_like(grads[name])), "the gradient of " .. name .. " is not exactly zero")
      end
      if case.name == "while_zero" then
        t.equal(outputs[3]:item(), 0)
        t.equal(outputs.zeros, pg.zeros({8, 3}, {dtype = case.dtype}))
      end
    end)
  end
end

t.test("the programs are those of the manifest", function()
  local seen = {}
  for _, case in ipairs(manifest.cases) do seen[case.name:gsub("_then$", ""):gsub("_else$", "")] = true end
  for name in pairs(programs) do t.check(seen[name], name .. " is not in the manifest") end
end)
