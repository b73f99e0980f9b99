local t = require "tests.support"
local pg = require "perigee"

-- Returns the output of pg.help without its final newline.
local function text(what)
  local write, parts = io.write, {}
  io.write = function(...) for _, part in ipairs{...} do parts[#parts + 1] = part end end  -- luacheck: ignore
  local ok, e = pcall(function()
    if what == nil then return pg.help() end
    return pg.help(what)
  end)
  io.write = write  -- luacheck: ignore
  if not ok then error(e, 0) end
  return (table.concat(parts):gsub("\n$", ""))
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

t.test("every op of the registry has a help text with its example", function()
  for _, name in ipairs(pg.ops()) do has(name, "pg." .. name:gsub("^linalg_", "linalg.") .. "(", "\nExample\n  ", "return ") end
end)

t.test("an in-place method points to its op", function() has("add_", "in place", "pg.add(x, y)") end)

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
