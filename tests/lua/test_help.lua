local t = require "tests.support"
local pg = require "perigee"
local core = pg.testing.core
local catalog, documents, help = core.require("support.catalog"), core.require("support.documents"), core.require("help")

t.skip_in("hybrid", "texts do not depend on the mode")
t.skip_in("guard", "texts do not depend on the mode")

-- Returns what f writes, and its result.
local function output(f)
  local write, parts = io.write, {}
  io.write = function(...) for _, part in ipairs{...} do parts[#parts + 1] = part end end  -- luacheck: ignore
  local ok, result = pcall(f)
  io.write = write  -- luacheck: ignore
  if not ok then error(result, 0) end
  return table.concat(parts), result
end

-- Returns the output of pg.help without its final newline. pg.help must return nothing.
local function text(what)
  local written, results = output(function()
    if what == nil then return select("#", pg.help()) end
    return select("#", pg.help(what))
  end)
  t.equal(results, 0)
  return (written:gsub("\n$", ""))
end

local function has(what, ...)
  local s = text(what)
  for i = 1, select("#", ...) do
    local part = (select(i, ...))
    if not s:find(part, 1, true) then error("no '" .. part .. "' in\n" .. s, 2) end
  end
end

t.test("help for an op is the same by function, method and name", function()
  t.equal(text(pg.sum), text("sum"))
  t.equal(text(pg.tensor{1}.sum), text("sum"))
  t.equal(text("pg.sum"), text("sum"))
  has("sum", "x:sum(", "Inputs", "keepdim", "default false", "Example", "return ")
end)

t.test("every op of the registry has a help text with its example and the result of that", function()
  t.skip_in("gcstress", "texts of all ops")
  for _, name in ipairs(pg.ops()) do
    has(name, "pg." .. name:gsub("^linalg_", "linalg."):gsub("^fft_", "fft.") .. "(", "\nErrors: ", "\nExample\n  ", "return ", "\nResult\n  ")
    t.check(not text(name):find("\nResult\n  error: "), text(name))
  end
end)

t.test("the calls in a help text have the order of the positions", function()
  t.skip_in("gcstress", "texts of all ops")
  for _, name in ipairs(pg.ops()) do
    local row = core.op_row(name)
    local shown, order = text(name):match("%b()"):sub(2, -2):gsub("[,%s]*%b{}", ""):gsub("%s+", " "), table.concat(row.signature, ", ")
    t.check((order .. ","):sub(1, #shown) == shown, name .. ": " .. shown .. " is no start of " .. order)
  end
  has("lp_pool", "pg.lp_pool(x, norm_type, kernel_size, {stride =, ceil_mode =})", "x:lp_pool(norm_type, kernel_size, {")
end)

t.test("the help of an op", function()
  t.equal(text("softmax"), [=[
pg.softmax(x, {dim =, dtype =}) or x:softmax({dim =, dtype =}) -> out
exp(x) over its sum along dim, without overflow.
Inputs
  x  floating point
Options (by position after the inputs, or by name in a last table)
  dim    dim, default -1; the dim along which the results belong together
  dtype  dtype, optional; x is converted to it first, and the result has it; by name
         only
Errors: x of another dtype (floating point); a dim that the tensor does not have (dims
        are 1, 2, … or -1 for the last); an unknown option.
Example
  return pg.tensor({1, 2, 3}):softmax(1)
Result
  {0.0900, 0.2447, 0.6652}
  [float32 3 cpu]]=])
  has("maximum", "\nReturns the shape to which the inputs broadcast.\n")
  has("split", "\nReturns a list of tensors.\n", "\n  [2] {3, 4}\n")
end)

t.test("every public function, class and method has help, by its name and by itself", function()
  t.skip_in("gcstress", "texts of all names")
  local missing = {}
  for _, item in ipairs(catalog.list()) do
    local ok, by_name = pcall(help.text, "pg." .. item.name)
    if not ok or not by_name:find("%S") then missing[#missing + 1] = item.name .. " (by name)" end
    if help.text(item.value):find("^No documentation") then missing[#missing + 1] = item.name .. " (by value)" end
  end
  t.equal(missing, {})
end)

t.test("classes that share a comment, aliases, methods that a class inherits", function()
  for _, name in ipairs{"MaxPool2D", "GlobalAvgPool3D", "Conv2DTranspose"} do
    has(pg.nn[name], name)
    t.equal(text("pg.nn." .. name), text(pg.nn[name]))
    t.equal(text(name), text(pg.nn[name]))
  end
  has("Conv2DTranspose", "output_padding", "\nExample\n", "\nResult\n  {1, 4, 16, 16}")
  has(pg.no_grad, "pg.no_grad(f[, {train =}])")
  has("vjp", "y, back = pg.vjp(f, ...)", "\nResult\n  {1, 4}\n")
  has("no_grad", "recording off")
  has("pg.optim.lr_scheduler.CosineScheduler", "another name of pg.optim.lr_scheduler.Cosine", "half a cosine")
  has("pg.metric.F1:reset", "metric:reset()")
  has("pg.nn.Dense:forward", "Block:forward")
  local Mine = pg.nn.HybridBlock:extend("Mine")
  has(Mine(), "nn.HybridBlock is the base class")
end)

t.test("examples in comments run", function()
  local count = 0
  for i, entry in ipairs(documents.index().list) do
    if entry.example and (t.takes_all() or i % 4 == 0) then
      count = count + 1
      t.check(not text(entry.name):find("\nResult\n  error: "), text(entry.name))
    end
  end
  t.check(count > (t.takes_all() and 30 or 8), count)
end)

t.test("pg.help changes neither random numbers nor gradients", function()
  pg.manual_seed(3)
  local expected = pg.randn{4}
  pg.manual_seed(3)
  text("randn")
  t.equal(pg.randn{4}, expected)
  local x = pg.tensor({2}):attach_grad()
  local y = pg.record(function()
    local y = x * x
    text("relu")
    return y:sum()
  end)
  y:backward()
  t.equal(x.grad, pg.tensor{4})
  t.equal(pg.jit(function() return pg.tensor(#help.text("relu") > 0 and 1 or 0) end)():item(), 1)
end)

t.test("print(pg) and its modules show the public names with a line about each", function()
  local all = tostring(pg)
  for _, name in ipairs(catalog.names(pg)) do
    if name ~= "version" then t.check(all:find("\n  " .. name .. "  +%S"), name) end
  end
  local function check(path, module)
    local shown = tostring(module)
    t.check(shown:find("^pg%." .. path .. " contains [^\n]+\n  "), shown)
    for _, name in ipairs(catalog.names(module)) do
      t.check(shown:find("\n  " .. name .. "  +%S"), path .. "." .. name)
      if catalog.is_namespace(module[name]) then check(path .. "." .. name, module[name]) end
    end
    for line in shown:gmatch("[^\n]+") do t.check(#line <= 130, line) end
  end
  for _, name in ipairs(catalog.names(pg)) do
    if catalog.is_namespace(pg[name]) then check(name, pg[name]) end
  end
  t.equal(tostring(pg.tree), [[
pg.tree contains nested plain tables of tensors and other values
  flatten    -> leaves, spec: the leaves as a list in walking order, and the structure for tree.unflatten
  leaves     -> an iterator over position, leaf
  map        -> a tree of the same structure whose leaves are f(leaf, …)
  unflatten  -> a tree with these leaves and the structure that tree.flatten returned
pg.help(pg.tree.NAME) explains one of them.]])
end)

t.test("an in-place method points to its op", function() has("add_", "in place", "pg.add(x, y, {alpha =})") end)

t.test("functions of the library show the comment above them", function()
  has(pg.save, "pg.save(path, tensors) writes")
  has(pg.memory, "pg.memory() -> {live =")
  has(pg.tensor, "pg.tensor(data")
  has(pg.tensor{1}.item, "x:item()")
  has("trainer:step", "trainer:step(batch_size")
  has("step", "trainer:step(batch_size")
end)

t.test("classes, their objects and modules", function()
  has(pg.nn.Dense, "nn.Dense(units")
  has(pg.nn.Dense(3), "nn.Dense(units")
  has("pg.nn.Conv2D", "kernel_size")
  has(pg.nn, "Dense", "pg.nn contains")
  has(pg.loss.L2Loss, "pg.loss.L2Loss")
end)

t.test("help in a traced function prints once, with the example and its result", function()
  local f = pg.jit(function(x) pg.help("relu") return x * 2 end)
  local whole = help.text("relu") .. "\n"
  for k = 1, 3 do t.equal((output(function() f(pg.ones(1)) end)), k == 1 and whole or "") end
  t.equal(f:cache_info().traces, 1)
end)

t.test("help without arguments is an overview", function()
  has(nil, "pg.nn", "softmax", "pg.help")
  has(pg, "softmax")
end)

t.test("unknown names and wrong arguments are errors", function()
  t.error_contains(function() pg.help("sofmax") end, "did you mean 'softmax'")
  t.bad_argument(function() pg.help(3) end, "help", "what")
  has(print, "No document")
end)

t.test("-e and the prompt have help as a global", function()
  local out, err, code = t.run([[-e 'help("relu")']])
  t.equal(err, "")
  t.equal(code, 0)
  t.equal(out, text("relu") .. "\n")
  t.equal(t.run("-i", "?relu\n"):gsub("^[^\n]*\n", ""), "> " .. text("relu") .. "\n> ")
end)

t.test("help names fields of tensors, and what to write for names that do not exist", function()
  has("shape", "x.shape -> ")
  has("x.requires_grad", "attach_grad")
  has("view", "return pg.range(1, 6):view{2, -1}")
  t.error_contains(function() pg.help("nn.Linear") end, "help: no documentation for 'nn.Linear' (write nn.Dense(10))")
  t.error_contains(function() pg.help("max_pool_2d") end, "(did you mean 'max_pool2d'?)")
  t.error_contains(function() pg.help("hybridSequental") end, "(did you mean 'HybridSequential'?)")
end)
