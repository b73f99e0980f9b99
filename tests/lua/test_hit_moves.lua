-- Traced functions that move tables from before the call between places: each later call must see and leave what plain
-- Lua does.
-- luacheck: ignore 111 112 113
local t = require "tests.support"
local pg = require "perigee"

local function list(n)
  local l = {}
  for i = 1, n do l[i] = {name = string.char(64 + i), v = pg.tensor(i), n = i} end
  return l
end

-- name = make() -> f(x), which moves tables, and read(), which returns them in order.
local programs = {
  ["an exchange by a local"] = function()
    local l = list(2)
    return function(x) local old = l[1] l[1] = l[2] l[2] = old return x * l[1].v end, function() return l end
  end,
  ["an exchange in one statement"] = function()
    local l = list(2)
    return function(x) l[2], l[1] = l[1], l[2] return x * l[1].v + l[2].n end, function() return l end
  end,
  ["fields"] = function()
    local a = list(2)
    local s = {now = a[1], before = a[2]}
    return function(x) s.now, s.before = s.before, s.now return x * s.now.v end, function() return {s.now, s.before} end
  end,
  ["upvalues"] = function()
    local a, b = unpack(list(2))
    return function(x) a, b = b, a return x * a.v end, function() return {a, b} end
  end,
  ["a global and a field"] = function()
    local l = list(2)
    moved_global = l[1]
    local s = {kept = l[2]}
    return function(x) s.kept, moved_global = moved_global, s.kept return x * s.kept.v end, function() return {moved_global, s.kept} end
  end,
  ["a rotation"] = function()
    local l = list(3)
    return function(x) table.insert(l, table.remove(l, 1)) return x * l[1].v end, function() return l end
  end,
  ["a rotation the other way"] = function()
    local l = list(3)
    return function(x) table.insert(l, 1, table.remove(l)) return x * l[1].v end, function() return l end
  end,
  ["a sort"] = function()
    local l = list(3)
    return function(x)
      for _, e in ipairs(l) do e.n = -e.n end
      table.sort(l, function(a, b) return a.n < b.n end)
      return x * l[1].v
    end, function() return l end
  end,
  ["a write to a moved table"] = function()
    local l = list(2)
    return function(x)
      l[1], l[2] = l[2], l[1]
      l[1].v = l[1].v * 2
      return x + l[2].v
    end, function() return l end
  end,
  ["an inner table that moves out"] = function()
    local l = list(3)
    local s = {inner = {l[1], l[2]}, out = l[3]}
    return function(x)
      s.inner[1], s.out = s.out, s.inner[1]
      return x * s.out.v + s.inner[2].v
    end, function() return {s.inner[1], s.inner[2], s.out} end
  end,
  ["a table that is returned"] = function()
    local l = list(2)
    return function(x)
      l[1], l[2] = l[2], l[1]
      return x + l[1].v, l[2]
    end, function() return l end
  end,
}

local function history(wrap, make)
  local f, read = make()
  local run, rows = wrap(f), {}
  for i = 1, 6 do
    local y, extra = run(pg.tensor(i))
    local row = {y:item()}
    for _, e in ipairs(read()) do row[#row + 1] = e.name .. e.v:item() .. "/" .. e.n end
    row[#row + 1] = extra and extra.name
    rows[i] = table.concat(row, " ")
  end
  return table.concat(rows, "\n")
end

local function hybrid(f)
  local net = pg.nn.block{forward = function(_, x) return f(x) end}
  net:hybridize()
  return net
end

for name, make in pairs(programs) do
  t.test("tables move as in plain Lua: " .. name, function()
    local expected = history(function(f) return f end, make)
    t.equal(history(pg.jit, make), expected)
    t.equal(history(hybrid, make), expected)
  end)
end

t.test("many tables move", function()  -- more than a generated function has variables
  local function run(wrap)
    local l = list(120)
    local f = wrap(function(x) table.insert(l, table.remove(l, 1)) return x * l[1].v end)
    for i = 1, 5 do f(pg.tensor(i)) end
    local names = {}
    for i, e in ipairs(l) do names[i] = e.n end
    return table.concat(names, " ")
  end
  t.equal(run(pg.jit), run(function(f) return f end))
end)
