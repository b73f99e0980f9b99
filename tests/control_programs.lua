-- Random programs with nested control flow: local programs = require "tests.control_programs". The same seed gives the
-- same source on every machine.
local t = require "tests.support"
local control = require "tests.control"
local pg = require "perigee"
local programs = {}

local random, pick, restart = require "tests.choices"(1)
local serial, drawing
local function chance(percent) return random(100) <= percent end
local function fresh()
  serial = serial + 1
  return "v" .. serial
end

local unary = {"X:tanh()", "X:sin()", "X:sigmoid()", "X * 0.5", "X:square() * 0.3", "w:mv(X):tanh()", "X:softmax(-1)", "X:flip{1}", "X - X:mean()", "X:exp():log1p()"}
local binary = {"X + Y", "X - Y", "X * Y", "X / (Y * Y + 1)", "pg.maximum(X, Y)", "pg.where(X:gt(Y), X, Y * 0.5)", "(X * Y):sum() * X:tanh()"}

local draws = {"X:dropout(0.4)", "X + pg.rand({3}, {dtype = 'float64'})", "X * pg.randn({3}, {dtype = 'float64'})", "X + pg.rand_like(Y)"}

local function expression(vars)
  local x, y = pick(vars), pick(vars)
  if chance(60) then x = vars[#vars] end
  if drawing and chance(20) then return (pick(draws):gsub("[XY]", {X = x, Y = y})) end
  return (pick(chance(50) and unary or binary):gsub("[XY]", {X = x, Y = y}))
end
local function bounded(vars) return ("(%s):tanh()"):format(expression(vars)) end
local function predicate(vars) return pick{"X:sum():gt(0)", "X[1]:lt(X[2])", "X:mean():gt(0.1)", "(X * X):sum():lt(1):logical_not()"}:gsub("X", pick(vars)) end

local block

local function lines_of(out, depth, text) out[#out + 1] = ("  "):rep(depth) .. text end

local function inner(out, depth, vars, more, budget)
  local own = {}
  for i, v in ipairs(vars) do own[i] = v end
  for _, v in ipairs(more) do own[#own + 1] = v end
  block(out, depth + 1, own, budget)
  return own
end

-- Sometimes a body assigns an outer variable.
local function assign(out, depth, outer, own)
  if #outer > 0 and chance(25) then
    local v = pick(outer)
    lines_of(out, depth + 1, ("%s = (%s * 0.5 + %s):tanh()"):format(v, v, pick(own)))
  end
end

local function foreach(out, depth, vars, outer, budget)
  local outs, last, x, s = fresh(), fresh(), fresh(), fresh()
  local tree = chance(30)
  local data = pick{"xs", "xs", "xs:flip{1}", "xs * " .. pick(vars)}
  lines_of(out, depth, ("local %s, %s = pg.foreach(function(%s, %s)"):format(outs, last, x, s))
  if tree then lines_of(out, depth + 1, ("%s = %s.a * %s.b[1]; %s = %s[1]"):format(x, x, x, s, s)) end
  local own = inner(out, depth, vars, {s, x}, budget)
  assign(out, depth, outer, own)
  local new = chance(60) and ("(%s + %s * 0.1)"):format(bounded(own), s) or bounded(own)
  lines_of(out, depth + 1, ("return %s, %s"):format(chance(80) and expression(own) or "nil", tree and "{" .. new .. "}" or new))
  local options = chance(20) and ", {checkpoint = 2}" or ""
  lines_of(out, depth, tree and ("end, {a = %s, b = {xs}}, {%s}%s)"):format(data, pick(vars), options) or ("end, %s, %s%s)"):format(data, pick(vars), options))
  if tree then lines_of(out, depth, ("%s = %s[1]"):format(last, last)) end
  lines_of(out, depth, ("%s = %s and %s:sum(1):tanh() or %s"):format(outs, outs, outs, last))
  vars[#vars + 1], vars[#vars + 2] = outs, last
end

local function while_loop(out, depth, vars, outer, budget)
  local outs, list, n, i, s = fresh(), fresh(), fresh(), fresh(), fresh()
  local limited = chance(60)
  local test = chance(60) and ("%s:lt(%d)"):format(i, random(4) - 1) or ("(%s:lt(4)):logical_and(%s)"):format(i, (predicate{s}))
  lines_of(out, depth, ("local %s, %s, %s = pg.while_loop(function(%s, %s) return %s end, function(%s, %s)"):format(outs, list, n, i, s, test, i, s))
  local own = inner(out, depth, vars, {s}, budget)
  assign(out, depth, outer, own)
  lines_of(out, depth + 1, ("return %s, {%s + 1, %s}"):format(limited and expression(own) or "nil", i, chance(60) and ("(%s + %s * 0.1)"):format(bounded(own), s) or bounded(own)))
  local options = limited and (", {max_iterations = %d}"):format(random(5)) or chance(30) and ", {checkpoint = 2}" or ""
  lines_of(out, depth, ("end, {0, %s}%s)"):format(pick(vars), options))
  lines_of(out, depth, ("%s = (%s and %s:sum(1) or %s[2]) + %s"):format(outs, outs, outs, list, n))
  lines_of(out, depth, ("%s = %s:tanh(); %s = %s[2]"):format(outs, outs, list, list))
  vars[#vars + 1], vars[#vars + 2] = outs, list
end

local function loop(out, depth, vars, outer, budget)
  local y, i, s = fresh(), fresh(), fresh()
  local count = pick{"0", "1", "2", "3", "#xs", "count"}
  lines_of(out, depth, ("local %s = pg.loop(%s, function(%s, %s)"):format(y, count, i, s))
  local own = inner(out, depth, vars, {s}, budget)
  assign(out, depth, outer, own)
  lines_of(out, depth + 1, ("return (%s + %s * 0.1 + %s * 0.1):tanh()"):format(expression(own), i, chance(60) and s or pick(vars)))
  lines_of(out, depth, ("end, %s)"):format(pick(vars)))
  vars[#vars + 1] = y
end

-- Reads and writes rows of w by the counter, upwards or downwards, in loop or while_loop.
local function rows(out, depth, vars, _, budget)
  local y, m, i, s = fresh(), fresh(), fresh(), fresh()
  local counted = chance(50)
  lines_of(out, depth, ("local %s = w * 1"):format(m))
  if counted then lines_of(out, depth, ("local %s = pg.loop(3, function(%s, %s)"):format(y, i, s))
  else
    local first, test = 1, pick{"le(3)", "lt(4)", "lt(3)", "ne(3)", "le(2)"}
    if chance(30) then first, test = 0, pick{"lt(3)", "lt(2)"} end
    lines_of(out, depth, ("local _, %s = pg.while_loop(function(%s) return %s:%s end, function(%s, %s)"):format(y, i, i, test, i, s))
    if first == 0 then i = "(" .. i .. " + 1)" end
  end
  local row = fresh()
  lines_of(out, depth + 1, ("local %s = %s[%s]"):format(row, pick{"w", "w", m}, pick{i, i, "4 - " .. i}))
  local own = inner(out, depth, vars, {s, row}, budget)
  if chance(40) then lines_of(out, depth + 1, ("%s[%s] = %s"):format(m, i, bounded(own))) end
  local new = ("(%s + %s * 0.1 + %s * 0.2):tanh()"):format(expression(own), s, row)
  if counted then
    lines_of(out, depth + 1, "return " .. new)
    lines_of(out, depth, ("end, %s)"):format(pick(vars)))
  else
    lines_of(out, depth + 1, ("return nil, {%s + 1, %s}"):format(i:gsub(" %+ 1", ""), new))
    lines_of(out, depth, ("end, {%d, %s}%s)"):format(i:find("+ 1", 1, true) and 0 or 1, pick(vars), pick{"", ", {max_iterations = 5}", ", {max_iterations = 2}"}))
    lines_of(out, depth, ("%s = %s[2]"):format(y, y))
  end
  lines_of(out, depth, ("%s = %s:sum(1)"):format(m, m))
  vars[#vars + 1], vars[#vars + 2] = y, m
end

local function cond(out, depth, vars, outer, budget)
  local y = fresh()
  local two = chance(30)
  lines_of(out, depth, ("local %s%s = pg.cond(%s, function()"):format(y, two and ", " .. y .. "b" or "", (predicate(vars))))
  for branch = 1, 2 do
    local own = inner(out, depth, vars, {}, budget)
    assign(out, depth, outer, own)
    lines_of(out, depth + 1, "return " .. expression(own) .. (two and ", " .. expression(own) or ""))
    if branch == 1 then lines_of(out, depth, "end, function()") end
  end
  lines_of(out, depth, "end)")
  vars[#vars + 1] = y
  if two then vars[#vars + 1] = y .. "b" end
end

function block(out, depth, vars, budget)
  local outer = {}
  for _, v in ipairs(vars) do if v:find("^v") then outer[#outer + 1] = v end end
  for _ = 1, random(2) do
    if budget > 0 and chance(depth == 1 and 80 or 45) then
      pick{foreach, while_loop, loop, rows, cond}(out, depth, vars, outer, budget - 1)
    else
      local v = fresh()
      lines_of(out, depth, ("local %s = %s"):format(v, expression(vars)))
      vars[#vars + 1] = v
    end
  end
  if chance(15) then lines_of(out, depth, ("state:mul_(0.5); state:add_(%s:detach():tanh())"):format(pick(vars))) end
end

--- programs.source(seed, draw) -> the Lua text of function(v), which returns a list of tensors and writes to `state`. v
--- holds float64 tensors a and b (3), xs (n x 3) and w (3 x 3), and count (0-dim int64). With draw it also draws random
--- numbers.
function programs.source(seed, draw)
  restart(seed * 7919 % 2147483646 + 1)
  serial, drawing = 0, draw
  local out, vars = {"local pg, state = ...", "return function(v)", "  local a, b, xs, w, count = v.a, v.b, v.xs, v.w, v.count"}, {"a", "b"}
  for _ = 1, 2 do block(out, 1, vars, 2) end
  lines_of(out, 1, ("return {%s * 1, (%s):tanh(), state + 0}"):format(vars[#vars], expression(vars)))
  out[#out + 1] = "end"
  return table.concat(out, "\n")
end

local function f64(x) return x:to("float64") end

local function environment(seed)
  pg.manual_seed(seed)
  local e = {state = f64(pg.randn(3))}
  for i, n in ipairs{3, 3, 5, 0, 1} do
    e[i] = {a = f64(pg.randn(3)), b = f64(pg.randn(3)), xs = f64(pg.randn(n, 3)), w = f64(pg.randn(3, 3)) * 0.5, count = pg.tensor((i + seed) % 4, {dtype = "int64"})}
  end
  return e
end

local leaf_names = {"a", "b", "xs", "w"}
local function with_leaves(v)
  local own, leaves = {count = v.count}, {}
  for i, name in ipairs(leaf_names) do
    own[name] = v[name]:clone():attach_grad()
    leaves[i] = own[name]
  end
  return own, leaves
end

local function weighted(list, more)
  local sum = 0
  for k, y in ipairs(list) do sum = sum + (y * (k + 0.5)):sum() * (more or 1) end
  return sum
end

-- Returns all observable effects of the program over some calls.
local function observe(source, seed, wrap)
  local e, seen = environment(seed), {}
  local f = wrap(assert(loadstring(source))(pg, e.state))
  for i = 1, #e do
    for _, y in ipairs(f(e[i])) do seen[#seen + 1] = y end
    local own, leaves = with_leaves(e[i])
    local l = pg.record(function() return weighted(f(own)) end)
    if l.requires_grad then l:backward() end
    for _, x in ipairs(leaves) do seen[#seen + 1] = x.grad end
    seen[#seen + 1] = e.state:clone()
  end
  return seen
end

local function curvature(source, seed, wrap)
  local e, seen = environment(seed), {}
  local f = wrap(assert(loadstring(source))(pg, e.state))
  for i = 1, 2 do
    local own, leaves = with_leaves(e[i])
    local z = pg.record(function()
      local sum = weighted(f(own))
      if not sum.requires_grad then return sum end
      local grads, size = pg.autograd.grad({sum}, leaves, {create_graph = true}), 0
      for _, g in ipairs(grads) do size = size + g:square():sum() end
      return size
    end)
    if z.requires_grad then z:backward() end
    seen[#seen + 1] = z:detach()
    for _, x in ipairs(leaves) do seen[#seen + 1] = x.grad end
  end
  return seen
end

local function compare(seed, look, draw)
  local source = programs.source(seed, draw)
  local ok, e = pcall(function()
    local expected
    control.each(function(way, wrap)
      if draw and way == "debug" then return end  -- bodies of graphs have their own random streams
      local seen = look(source, seed, wrap)
      expected = expected or seen
      t.equal(#seen, #expected)
      for i, v in ipairs(expected) do t.close(seen[i], v, {rtol = 1e-7, atol = 1e-9, what = ("%s: value %d"):format(way, i)}) end
    end)
  end)
  if not ok then error(("program %d: %s\n%s"):format(seed, tostring(e), source), 0) end
end

local function with_gradients(f, v)
  local own, leaves = with_leaves(v)
  local outs
  local l = pg.record(function()
    outs = {f(own.a, own.b, own.xs, own.w, own.count)}
    if type(outs[1]) == "table" then outs = outs[1] end
    return weighted(outs)
  end)
  if l.requires_grad then l:backward() end
  for _, x in ipairs(leaves) do outs[#outs + 1] = x.grad end
  return outs
end

-- Compares a network of the program with its import from path.json and path.safetensors.
local function exported(source, seed, path)
  local e = environment(seed)
  local f = assert(loadstring(source))(pg, e.state)
  local net = pg.nn.block{forward = function(_, a, b, xs, w, count) return f{a = a, b = b, xs = xs, w = w, count = count} end}
  net:hybridize()
  net(e[1].a, e[1].b, e[1].xs, e[1].w, e[1].count)
  local imported = pg.nn.SymbolBlock.imports(net:export(path), nil, path .. ".safetensors")
  if seed % 2 == 0 then imported:hybridize() end
  for i = 1, source:find("#xs", 1, true) and 2 or #e do  -- sizes that the script read are guarded in files too
    local expected, got = with_gradients(net, e[i]), with_gradients(imported, e[i])
    for k, v in ipairs(expected) do t.close(got[k], v, {rtol = 1e-7, atol = 1e-9, what = ("call %d, value %d"):format(i, k)}) end
  end
end

--- programs.check_export(seed, path) compares a network of the program with its import from path.json and
--- path.safetensors.
function programs.check_export(seed, path)
  local source = programs.source(seed)
  local ok, e = pcall(exported, source, seed, path)
  if not ok then error(("program %d: %s\n%s"):format(seed, tostring(e), source), 0) end
end

--- programs.check(seed) compares all ways with plain Lua, and raises an error with the source if they differ.
function programs.check(seed) compare(seed, observe) end

--- programs.check_second(seed) does so for derivatives of the second order.
function programs.check_second(seed) compare(seed, curvature) end

--- programs.check_draws(seed) compares graphs with eager calls for programs that draw random numbers.
function programs.check_draws(seed) compare(seed, observe, true) end

return programs
