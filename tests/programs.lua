-- Random programs over tensors: local programs = require "tests.programs". The same seed gives the same source on every
-- machine.
local t = require "tests.support"
local pg = require "perigee"
local programs = {}

local random, pick, restart = require "tests.choices"(1)
local function fill(text, x, y) return (text:gsub("%f[%w][XYN]%f[%W]", {X = x, Y = y, N = tostring(random(9))})) end
local function chance(percent) return random(100) <= percent end

local unary = {"tanh", "sigmoid", "relu", "abs", "neg", "square", "gelu", "softplus", "sin", "floor", "silu", "sign"}
local binary = {"X + Y", "X - Y", "X * Y", "X / (Y * Y + 1)", "pg.maximum(X, Y)", "pg.minimum(X, Y)", "pg.atan2(X, Y)"}
local in_place = {"add_(0.5)", "mul_(0.7)", "tanh_()", "clamp_(-1, 1)", "relu_()", "zero_()"}
local fixed = {  -- expressions from an n x 4 matrix to another
  "X:softmax(-1)", "X:log_softmax(2)", "X:matmul(w)", "X:linear(w)", "X:linear(w, r)", "X:layer_norm({4}, r)", "X:cumsum(2)",
  "X:flip{2}", "X:t():t()", "pg.cat({X[{{}, {3, 4}}], X[{{}, {1, 2}}]}, 2)", "pg.where(X:gt(0.1), X, 0.5)", "X:masked_fill(X:lt(0), 2)",
  "X:index_select(2, pick)", "X:to(\"float64\"):exp():to(\"float32\"):log()", "X:dropout(0.3)", "X:detach() * 2", "X + pg.rand_like(X)",
  "X * #X", "X:reshape{-1}:reshape{0 - 1, 4}", "X:clamp(-2, 2):exp()", "X:unsqueeze(2):expand(X:size(1), 3, 4):mean(2)", "X % 0.7",
  "X:norm{dim = 2, keepdim = true} * X", "X:sort(2)", "pg.stack({X, X * 2}, 1):sum(1)", "X:repeat_interleave(2, 1)[{{1, -1, 2}}]",
}
local rows = {"X:sum(1)", "X:mean(1)", "X[1]", "X:amax(1)", "X:matmul(w)[-1]", "X:std(1)", "X:var{dim = 1, correction = 0}"}
local columns = {"X:sum{dim = 2, keepdim = true}", "X:amax{dim = 2, keepdim = true}", "X[{{}, {2, 2}}]", "X:mean{dim = 2, keepdim = true}",
                 "X:logsumexp{dim = 2, keepdim = true}"}
local scalars = {"X:mean()", "X:sum() * 0.1", "X[{1, -1}]", "X:square():sum():add(1):sqrt()", "pg.tensor(N) * 0.25"}

-- A program has variables of four shapes: n x 4, 4, n x 1 and 0-dim. All broadcast to n x 4.
local function statement(vars, n)
  local kinds = {"matrix", "row", "column", "scalar"}
  local any = pick(vars[pick(kinds)])
  local matrix = chance(70) and vars.matrix[#vars.matrix] or pick(vars.matrix)  -- so that few values are unused
  local name = "v" .. n
  local function fresh(kind, text)
    table.insert(vars[kind], name)
    return "local " .. name .. " = " .. text
  end
  local roll = random(100)
  if roll <= 20 then return fresh("matrix", fill(pick(fixed), matrix)) end
  if roll <= 45 then return fresh("matrix", fill(pick(binary), matrix, any)) end
  if roll <= 60 then return fresh("matrix", matrix .. ":" .. pick(unary) .. "()") end
  if roll <= 68 then return fresh("row", fill(pick(rows), matrix)) end
  if roll <= 74 then return fresh("column", fill(pick(columns), matrix)) end
  if roll <= 80 then return fresh("scalar", fill(pick(scalars), matrix)) end
  if roll <= 86 then return fresh("matrix", matrix .. " * 1") .. "; " .. name .. ":" .. pick(in_place) end
  if roll <= 92 then
    local key = pick{"{1}", "{{}, 2}", "{{}, {-2, -1}}", "{{1, -1, 2}}", "{-1, {1, 3}}", "{}"}
    return fresh("matrix", matrix .. ":clone()") .. "; " .. name .. "[" .. key .. "] = " .. pick{"0.5", pick(vars.scalar)}
  end
  if roll <= 96 then return "state:mul_(0.9); state:add_(" .. matrix .. ":detach():tanh():mean(1))" end
  return fresh("matrix", ("%s; if %s:size(2) == 4 then %s = %s * 0.5 end"):format(matrix, matrix, name, matrix))
end

--- programs.source(seed) -> the Lua text of function(a, b, r), which returns a list of tensors and reads w, pick and
--- state.
function programs.source(seed)
  restart(seed * 7919 % 2147483646 + 1)
  local vars = {matrix = {"a", "b"}, row = {"r", "state"}, column = {"c"}, scalar = {"s"}}
  local lines = {"local pg, w, pick, state = ...", "return function(a, b, r)", "  local c, s = a:mean{dim = 2, keepdim = true}, b:sum() * 0.1"}
  for i = 1, 4 + random(14) do lines[#lines + 1] = "  " .. statement(vars, i) end
  local m = vars.matrix
  lines[#lines + 1] = ("  return {%s * 0.1, %s:tanh(), %s}"):format(m[#m], pick(m), chance(50) and pick(vars.row) .. " * 2" or pick(vars.scalar) .. " + 1")
  lines[#lines + 1] = "end"
  return table.concat(lines, "\n")
end

local function environment(seed)
  pg.manual_seed(seed)
  local e = {w = pg.randn(4, 4) * 0.5, pick = pg.tensor({2, 1, 4, 4}, {dtype = "int64"}), state = pg.randn(4)}
  e.inputs = {}
  for _, n in ipairs{3, 5, 3, 1} do e.inputs[#e.inputs + 1] = {pg.randn(n, 4), pg.randn(n, 4), pg.randn(4)} end
  return e
end

-- Returns the observable effects of a call with recorded gradients.
local function see_gradients(seen, f, inputs)
  local leaves = {inputs[1]:clone():attach_grad(), inputs[2]:clone():attach_grad(), inputs[3]:clone():attach_grad()}
  local l = pg.record(function()
    local sum = 0
    for _, y in ipairs(f(unpack(leaves))) do sum = sum + y:sum() end
    return sum
  end)
  seen[#seen + 1] = l
  if l.requires_grad then l:backward() end
  for _, x in ipairs(leaves) do seen[#seen + 1] = x.grad end
end

-- Returns all observable effects of the program over several calls: results, gradients, state, random numbers.
local function observe(source, seed, wrap)
  local e, seen = environment(seed), {}
  local f = wrap(assert(loadstring(source))(pg, e.w, e.pick, e.state))
  for _, inputs in ipairs(e.inputs) do
    for _, y in ipairs(f(unpack(inputs))) do seen[#seen + 1] = y end
    e.w:attach_grad()
    see_gradients(seen, f, inputs)
    seen[#seen + 1] = e.w.grad
    seen[#seen + 1] = e.state:clone()
  end
  seen[#seen + 1] = pg.rand(2)
  return seen
end

-- The same for an exported program, without its own tensors.
local function exported(path)
  return function(source, seed, wrap)
    local e, seen = environment(seed), {}
    local f = assert(loadstring(source))(pg, e.w, e.pick, e.state)
    if wrap == pg.jit then
      local net = pg.nn.block{forward = function(_, a, b, r) return f(a, b, r) end}
      pg.debug(net, unpack(e.inputs[1]))
      f = pg.nn.SymbolBlock.imports(net:export(path), nil, path .. ".safetensors")
      if seed % 2 == 0 then f:hybridize() end
    else
      f(unpack(e.inputs[1]))
    end
    pg.manual_seed(seed)
    for _ = 1, 2 do
      for _, y in ipairs(f(unpack(e.inputs[3]))) do seen[#seen + 1] = y end
      see_gradients(seen, f, e.inputs[3])
    end
    seen[#seen + 1] = pg.rand(2)
    return seen
  end
end

local function size_of(v)
  local size = v:abs():clamp(0, 1e30):max():item()
  return size == size and size or 1
end

-- Returns the gradient of the norm of the gradient.
local function curvature(source, seed, wrap)
  local e = environment(seed)
  local f = wrap(assert(loadstring(source))(pg, e.w, e.pick, e.state))
  local leaves = e.inputs[1]
  for i, x in ipairs(leaves) do leaves[i] = x:clone():attach_grad() end
  local z = pg.record(function()
    local sum, size = 0, 0
    for _, y in ipairs(f(unpack(leaves))) do sum = sum + y:tanh():sum() end
    if not sum.requires_grad then return sum end
    for _, g in ipairs(pg.autograd.grad({sum}, leaves, {create_graph = true})) do size = size + g:square():sum() end
    return size
  end)
  if z.requires_grad then z:backward() end
  return {z, leaves[1].grad, leaves[2].grad, leaves[3].grad}
end

local function compare(seed, look)
  local source = programs.source(seed)
  local ok, e = pcall(function()
    local expected = look(source, seed, function(f) return f end)
    local got = look(source, seed, pg.jit)
    for i, v in ipairs(expected) do t.close(got[i], v, {rtol = 2e-3, atol = 1e-5 + 1e-3 * size_of(v), what = "value " .. i}) end
  end)
  if not ok then error(("program %d: %s\n%s"):format(seed, e, source), 0) end
end

--- programs.check(seed) compares plain Lua with pg.jit, and raises an error with the source if they differ.
function programs.check(seed) compare(seed, observe) end

--- programs.check_second(seed) does so for derivatives of the second order.
function programs.check_second(seed) compare(seed, curvature) end

--- programs.check_export(seed, path) compares it with its import from path.json and path.safetensors.
function programs.check_export(seed, path) compare(seed, exported(path)) end

return programs
