-- Warnings about reads that a traced function cannot guard, and actions that must not trace again.
local t = require "tests.support"
local pg = require "perigee"
local nn = pg.nn

-- Returns the warnings and the printed lines of f.
local function watch(f)
  local lines, print_before = {}, print
  _G.print = function(...) pg.testing.unlogged(function(...) lines[#lines + 1] = table.concat({...}, "\t") end, ...) end
  local ok, warnings = pcall(t.warnings, f)
  _G.print = print_before
  if not ok then error(warnings, 0) end
  return warnings, lines
end

-- Functions that read values without a guard: the trace warns with the line, later calls do not.
local unseen = {
  ["os.time"] = function() return os.time() * 0 end,
  ["os.clock"] = function() return os.clock() * 0 end,
  ["os.date"] = function() return #os.date("%Y") end,
  ["os.getenv"] = function() return os.getenv("HOME") and 1 or 2 end,
  ["math.random"] = function() return math.random() * 0 end,
  ["io.open"] = function() return io.open("/dev/null") and 1 or 2 end,
  ["io.lines"] = function()
    local n = 0
    for _ in io.lines("/dev/null") do n = n + 1 end
    return n
  end,
  ["require"] = function() return #type(require("perigee")) end,
  ["loadstring"] = function() return loadstring("return 2")() end,
  ["collectgarbage"] = function() return collectgarbage("count") * 0 end,
}

for name, read in pairs(unseen) do
  t.test(name .. " inside forward warns once, with the line", function()
    local f = pg.jit(function(x) return x + read() end)
    local want = (function(x) return x + read() end)(pg.ones(2))
    local list = watch(function()
      for _ = 1, 3 do t.equal(f(pg.ones(2)), want) end
      f(pg.ones(2, 2))
    end)
    t.check(#list == 1, #list .. " warnings: " .. table.concat(list, "\n"))
    t.check(list[1]:find(name:match("%w+$"), 1, true), list[1])
    t.check(list[1]:find("test_guard_warnings.lua:%d+"), list[1])
    t.equal(f:cache_info().traces, 1)
  end)
end

t.test("reads that can be guarded do not warn", function()
  local o = {list = {3, 1, 2}, s = "a b", n = 2.5}
  local f = pg.jit(function(x)
    local copy = {unpack(o.list)}
    table.sort(copy)
    local u = o.s:gsub("%w", string.upper)
    for k, v in pairs(o) do if type(v) == "number" then x = x * #k end end
    local ok = pcall(error, "no")
    return x * math.floor(o.n) + copy[1] + #u + (ok and 1 or 2) + pg.rand(1) * 0
  end)
  local list, lines = watch(function() for _ = 1, 3 do f(pg.ones(2)) end end)
  t.check(#list == 0 and #lines == 0, table.concat(list, "\n"))
end)

t.test("the third trace for a size warns: the guard, the line, the remedy", function()
  local f = pg.jit(function(x) return x * x:size(1) end)
  local list = watch(function() for n = 1, 8 do t.equal(f(pg.ones(n)), pg.full({n}, n)) end end)
  t.check(#list == 1, #list .. " warnings: " .. table.concat(list, "\n"))
  t.check(list[1]:find("size") or list[1]:find("dim"), list[1])
  t.check(list[1]:find("test_guard_warnings.lua:%d+"), list[1])
  t.check(list[1]:find("reshape", 1, true) or list[1]:find("pg.live", 1, true), list[1])
end)

t.test("the third trace for a field, a global, a length warns with guard and line", function()
  local o = {list = {}}
  for label, case in pairs{
    rate = {function(x) return x * o.rate end, function(i) o.rate = i end},
    RATE_ = {function(x) return x * RATE_ end, function(i) _G.RATE_ = i end},  -- luacheck: ignore
    list = {function(x) return x * #o.list end, function(i) o.list[i] = i end},
  } do
    local f = pg.jit(case[1])
    local list = watch(function()
      for i = 1, 5 do
        case[2](i)
        f(pg.ones(1))
      end
    end)
    t.check(#list == 1, label .. ": " .. #list .. " warnings: " .. table.concat(list, "\n"))
    t.check(list[1]:find(label, 1, true), list[1])
    t.check(list[1]:find("test_guard_warnings.lua:%d+"), label .. ": " .. list[1])
  end
  _G.RATE_ = nil
end)

t.test("the warning about traces that are used once names a remedy", function()
  local f = pg.jit(function(x) return x * x:size(1) end)
  local list = watch(function() for n = 1, 20 do t.equal(f(pg.ones(n)), pg.full({n}, n)) end end)
  local last = list[#list] or ""
  t.check(last:find("plain Lua", 1, true), last)
  t.check(last:find("reshape", 1, true) or last:find("pg.live", 1, true), last)
end)

t.test("the call that falls back to plain Lua gets its own number of arguments", function()
  local o = {}
  local f = pg.jit(function(x, ...) return x * o.rate, select("#", ...) end)
  watch(function()
    for i = 1, 20 do
      o.rate = i
      local _, n = f(pg.ones(1))
      t.equal(n, 0, "call " .. i)
    end
  end)
  local g = pg.jit(function(...)
    o.f = function() return o end
    return select("#", ...)
  end)
  watch(function()
    t.equal(g(pg.ones(1)), 1)
    t.equal(g(pg.ones(1), nil), 2)
    t.equal(g(), 0)
  end)
  local k = pg.jit(function(...) return (...) * o.rate, select("#", ...) end)
  watch(function()
    for i = 1, 40 do
      o.rate = i
      local _, n = k(pg.ones(1), unpack({}, 1, i % 4))
      t.equal(n, 1 + i % 4, "call " .. i)
    end
  end)
end)

t.test("summary of a hybridized net does not trace, print or warn", function()
  t.skip_in("hybrid", "hybridizes its blocks itself")
  local net = nn.HybridSequential{nn.Dense(4, {in_units = 3, activation = "relu"}), nn.Dense(2,
    {in_units = 4})}:initialize()
  local x, text = pg.ones(2, 3), nil
  local want = net:summary(x)
  net:hybridize()
  net(x)
  local list, lines = watch(function() text = net:summary(x) end)
  t.equal(text, want)
  t.check(#list == 0 and #lines == 0, table.concat(list, "\n"))
  t.equal(net:cache_info().traces, 1)
  net(x)
  t.equal(net:cache_info(), {traces = 1, specializations = 1, hits = 1})
end)

t.test("export of a hybridized net does not trace again, print or warn", function()
  t.skip_in("hybrid", "hybridizes its blocks itself")
  local net = nn.HybridSequential{nn.Dense(4, {in_units = 3, activation = "relu"}), nn.Dense(2,
    {in_units = 4})}:initialize()
  net:hybridize()
  net(pg.ones(2, 3))
  net(pg.ones(2, 3))
  local list, lines = watch(function()
    net:export(t.tmp("probe"))
    net:export(t.tmp("probe"))
  end)
  t.check(#list == 0 and #lines == 0, table.concat(list, "\n"))
  net(pg.ones(2, 3))
  t.equal(net:cache_info().traces, 1)
end)

t.test("export does not repeat the output of forward", function()
  local path = t.write(t.tmp("shows.lua"), ([[
    local pg = require "perigee"
    local net = pg.nn.block{fc = pg.nn.Dense(2, {in_units = 3}), forward = function(self, x)
      print("traced")
      io.write("io.write, ")
      io.stdout:write("file:write\n")
      return pg.cond(x:sum():gt(0), function() print("a branch") return x end, function() return x * 2 end):sum() + self.fc(x)
    end}:initialize()
    net:hybridize()
    net(pg.ones(2, 3))
    io.stdout:setvbuf("no")
    print("export")
    net:export(%q)
    net:freeze()
    print("exported")
    net(pg.ones(2, 3))
  ]]):format(t.tmp("probe")))
  local out, code, _
  local list = t.warns("block: calls ", function() out, _, code = t.run("'" .. path .. "'") end)
  t.equal(code, 0)
  t.equal(#list, 2)  -- the first call warns of what writes to files
  t.equal(out, "traced\nio.write, file:write\na branch\nexport\nexported\n")
end)

t.test("control flow that is traced at each call names the upvalue that changes", function()
  local scale, options = 0, {rate = 0}
  local function by_variable(v, s) return v * scale, s + v end
  local function by_field(v, s) return v * options.rate, s + v end
  t.warns("12 traces in a row were used once; the last was made because upvalue 'scale' was %d+, is %d+; pass the number as", function()
    for i = 1, 20 do
      scale = i
      pg.foreach(by_variable, pg.ones(3, 2), pg.zeros(2))
    end
  end)
  t.warns("the last was made because options.rate was %d+, is %d+; pass the number as", function()
    for i = 1, 20 do
      options.rate = i
      pg.foreach(by_field, pg.ones(3, 2), pg.zeros(2))
    end
  end)
end)

t.test("a parameter without a name that no field leads to is named by its place", function()
  local w = pg.param{shape = {2}, init = "ones"}
  w:initialize()
  local held = {w}
  local function run(forward)
    return function() nn.block{forward = forward}:hybridize()(pg.ones(2)) end
  end
  t.warns("^block: forward uses the parameter in upvalue 'w', which no field of the block leads to", run(function(_, x) return x * w end))
  t.warns("^block: forward uses the parameter in held%[1%], which", run(function(_, x) return x * held[1] end))
end)

t.test("parameters that a caller passes are inputs, of which nothing warns", function()
  local w = pg.param(pg.ones(2))
  local dense = nn.Dense(2, {in_units = 2}):initialize()
  local function quiet(forward, ...)
    local block, arguments = nn.block{forward = forward}:hybridize(), {n = select("#", ...), ...}
    t.equal(t.warnings(function() block(unpack(arguments, 1, arguments.n)) end), {})
  end
  local function sum(_, x, y) return x:sum() + y:sum() end
  quiet(sum, w, pg.ones(2))
  quiet(sum, pg.ones(2), w)
  quiet(sum, w, w)
  quiet(function(_, x, list) return x + list[1] * list.named.w end, pg.ones(2), {w, named = {w = w}})
  quiet(function(_, x, net) return net(x) end, pg.ones(1, 2), dense)
  quiet(function(_, x, weight) return x:linear(weight) end, pg.ones(1, 2), dense.weight)
  local held = {w = w}
  t.warns("^block: forward uses the parameter in held%.w, which", function()
    nn.block{forward = function(_, x) return x * held.w end}:hybridize()(pg.param(pg.ones(2)))
  end)
end)
