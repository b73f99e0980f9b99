local t = require "tests.support"
local pg = require "perigee"

-- Runs a script with a limit of address space (KiB) and returns its output.
local function limited(kib, source)
  if t.sanitized then t.skip("sanitizers reserve more address space than the limit") end
  local path = os.tmpname()
  local file = io.open(path, "w")
  file:write(source)
  file:close()
  local pipe = io.popen(string.format("ulimit -v %d; %s %s 2>&1", kib, t.program, path))
  local text = pipe:read("*a")
  pipe:close()
  os.remove(path)
  return text
end

-- Calls f(i) `count` times. Raises if live tensors ever have more than `limit` bytes after a call.
local function check_live(what, count, limit, f)
  t.skip_in("gcstress", "collects at each op anyway")
  pg.scope(function() end)
  collectgarbage()
  local most = 0
  for i = 1, count do
    f(i)
    most = math.max(most, pg.memory().live)
  end
  t.check(most < limit, ("%s: %d calls held %d bytes"):format(what, count, most))
end

t.test("temporaries in a loop do not accumulate", function()
  local x = pg.zeros(262144)
  check_live("x + i", 600, 150e6, function(i) return x + i end)
end)

t.test("a large result takes the memory of the one before", function()
  t.skip_in("hybrid", "a process of its own")
  t.skip_in("gcstress", "collects at each op anyway")
  for _, call in ipairs{"x:softmax(-1)", "x + x", "-x", "f(x)"} do
    local peak = t.run("-", ([[
      local pg = require "perigee"
      local x, f = pg.zeros(1024, 4096), pg.jit(function(x) return x:softmax(-1) end)
      for _ = 1, 8 do local y = (function() return %s end)() y = nil end
      print(pg.memory().peak)
    ]]):format(call))
    t.check(tonumber(peak) < 2.5 * 2 ^ 24, call .. " held " .. peak)
  end
end)

-- The result of grid_sample is a view of an array that the tape holds until backward.
t.test("recorded results in a loop do not accumulate", function()
  local image, grid = pg.zeros(1, 16, 128, 128):attach_grad(), pg.zeros(1, 128, 128, 2):attach_grad()
  check_live("grid_sample", 300, 100e6, function()
    pg.record(function() return pg.grid_sample(image, grid):sum() end):backward()
  end)
end)

t.test("backward starts without the temporaries that the forward pass has left", function()
  t.skip_in("hybrid", "a process of its own")
  t.skip_in("gcstress", "collects at each op anyway")
  local lines = t.run("-", [[
    local pg = require "perigee"
    local seen = pg.autograd.Function{
      forward = function(ctx, x) return x + 0 end,
      backward = function(ctx, dy) print(pg.memory().live) return dy end,
    }
    local x = pg.zeros(1024, 1024):attach_grad()
    for _ = 1, 3 do
      local loss = pg.record(function() return seen(((x + 1) + 2) + 3):sum() end)
      loss:backward()
    end
  ]])
  local count = 0
  for live in lines:gmatch("%d+") do
    count = count + 1
    t.check(tonumber(live) < 2.5 * 2 ^ 22, "step " .. count .. " held " .. live)
  end
  t.equal(count, 3)
end)

t.test("what views of a tensor keep of it when it is changed in place does not accumulate", function()
  local views = {
    function(p) return p:detach() end, function(p) return p:t() end, function(p) return p:reshape{-1} end,
    function(p) return p[1] end,
  }
  local changes = {
    function(p) p:add_(1) end, function(p) p:fill_(3) end, function(p) p[{1, 1}] = 3 end, function(p) p:copy_(p * 2) end,
  }
  for i, view in ipairs(views) do
    for k, change in ipairs(changes) do
      local p = pg.zeros(512, 512)
      check_live(("view %d, change %d"):format(i, k), 300, 150e6, function()
        view(p)
        change(p)
      end)
    end
  end
end)

t.test("memory that only the collector can free is collected before giving up", function()
  local text = limited(1400000, [[
    local pg = require "perigee"
    collectgarbage("stop")
    for _ = 1, 40 do local x = pg.zeros(32 * 1024 * 1024) end
    print("done", pcall(pg.zeros, 1024 * 1024 * 1024))
  ]])
  t.check(text:find("done\tfalse\t.*out of memory"), text)
end)

t.test("scope frees what it made and did not return", function()
  local before = pg.zeros(4)
  local leaked
  local kept, list = pg.scope(function()
    leaked = pg.ones(4)
    return leaked + 1, {a = leaked + 2}
  end)
  t.equal(kept, pg.full({4}, 2))
  t.equal(list.a, pg.full({4}, 3))
  t.bad_argument(function() return leaked + 1 end, "add", "x")
  t.equal(before, pg.zeros(4))
  t.error_contains(function() pg.scope(function() leaked = pg.ones(1) error("boom") end) end, "boom")
  t.bad_argument(function() return leaked + 1 end, "add", "x")
end)

t.test("kept tensors survive scopes, released tensors cannot be used", function()
  local x
  pg.scope(function() pg.scope(function() x = pg.keep(pg.ones(2)) end) end)
  t.equal(x, pg.ones(2))
  x:release()
  x:release()
  t.bad_argument(function() return x + 1 end, "add", "x")
end)

t.test("pg.keep in a jitted function holds in every run", function()
  local kept = {}
  local f = pg.jit(function(x)
    kept.twice = pg.keep(x * 2)
    return pg.keep(x * 3), x * 4
  end)
  f(pg.ones(2))
  local thrice, other
  pg.scope(function() thrice, other = f(pg.tensor{1, 2}) end)
  t.equal({kept.twice:totable(), thrice:totable()}, {{2, 4}, {3, 6}})
  t.error_contains(function() return other:totable() end, "released tensor")
end)

t.test("pg.scope calls what can be called", function()
  local f = pg.jit(function(x) return x * 2 end)
  t.equal(pg.scope(f, pg.ones(2)):totable(), {2, 2})
  t.error_contains(function() pg.scope(3) end, "scope: bad argument 'f' (expected a function, got number 3")
end)
