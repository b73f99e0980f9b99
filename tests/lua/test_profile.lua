-- pg.profile: what it counts, its report and its file of events. No test depends on how long anything takes.
local t = require "tests.support"
local json = require "tests.json"
local pg = require "perigee"
local nn = pg.nn

local function row_of(rows, key, value)
  for _, row in ipairs(rows) do if row[key] == value then return row end end
end

local function graph_of(report, pattern)
  for _, g in ipairs(report.graphs) do if g.name:find(pattern) then return g end end
end

local function here() return "test_profile.lua:" .. debug.getinfo(2, "l").currentline end

local function line_row(report, line)
  for _, row in ipairs(report.lines) do if row.line:sub(-#line) == line then return row end end
end

local function mlp() return nn.HybridSequential{nn.Dense(8, {in_units = 4, activation = "relu"}), nn.Dense(3, {in_units = 8})}:initialize() end

t.test("eager ops: counts, bytes, lines and the results of f", function()
  local x, y = pg.ones(2, 3), pg.ones(3, 4)
  local line
  local report, a, b, c = pg.profile(function()
    local z
    for _ = 1, 5 do z = x:matmul(y) end line = here()
    return z, nil, 7
  end)
  t.equal(a, pg.full({2, 4}, 3))
  t.equal({b == nil, c}, {true, 7})
  local row = row_of(report.ops, "name", "matmul")
  t.equal({row.count, row.bytes}, {5, 5 * 2 * 4 * 4})
  t.check(row.ms >= 0 and row.total >= row.ms and report.total > 0)
  t.equal(line_row(report, line).count, 5)
  t.equal(#report.kernels, 0)
  t.equal(report.dropped, 0)
  local text = tostring(report)
  t.check(text:find("matmul", 1, true) and text:find(line, 1, true) and text:find("collector: ", 1, true), text)
end)

t.test("views write nothing, and ops inside an op are counted by themselves", function()
  local x = pg.ones(4, 3)
  local report = pg.profile(function() return x:t(), x:trace() end)
  t.equal(row_of(report.ops, "name", "t").bytes, 0)
  t.equal(row_of(report.ops, "name", "trace").count, 1)
  local own, total = 0, row_of(report.ops, "name", "trace").total
  for _, row in ipairs(report.ops) do if row.name ~= "t" then own = own + row.ms end end
  t.check(own <= total + 1e-6, "the own times of an op and of the ops inside add up to its time")
end)

t.test("backward has its own row, and its ops the line of the call", function()
  local w = pg.ones(3):attach_grad()
  local line
  local report = pg.profile(function()
    local l = pg.record(function() return (w * w):sum() end)
    l:backward() line = here()
  end)
  t.equal(report.backward.count, 1)
  t.check(line_row(report, line).count >= 2)
  t.equal(w.grad, pg.full({3}, 2))
end)

t.test("a hybridized net: kernels with script lines, cache hits, traces and retraces", function()
  t.skip_in("hybrid", "hybridizes its blocks itself")
  local net = nn.block{scale = 2, forward = function(self, x) return (x * self.scale + 1):sum(1) end}
  net:hybridize()
  local x = pg.ones(3, 4)
  local report = pg.profile(function()
    for _ = 1, 4 do net(x) end
    net.scale = 3
    net(x)
  end)
  local g = report.graphs[1]
  t.equal({#report.graphs, g.runs, g.traces, g.hits, g.retraces}, {1, 5, 2, 3, 1})
  t.check(g.compiled >= 2 and g.reasons[1].count == 1 and g.reasons[1].text:find("scale was 2, is 3", 1, true), tostring(report))
  t.check(#report.kernels > 0)
  for _, row in ipairs(report.kernels) do
    t.equal(row.graph, g.name)
    t.check(row.line and row.line:find("test_profile.lua:%d+$"), row.name)
    t.check(row.count <= 5)
  end
  t.check(tostring(report):find("traced again once: self.scale was 2, is 3", 1, true), tostring(report))
end)

t.test("jitted training steps, loops and trainers", function()
  local net = mlp()
  local trainer = pg.optim.Trainer(net:collect_params(), "adam", {learning_rate = 1e-2})
  local function step(x)
    local l = pg.record(function() return net(x):square():mean() end)
    l:backward()
    trainer:step(1)
    return l
  end
  local fast, x = pg.jit(step), pg.randn(5, 4)
  local report = pg.profile(function() step(x) for _ = 1, 3 do fast(x) end end)
  local g = graph_of(report, "^function at ")
  t.equal({g.runs, g.traces, g.hits}, {3, 1, 2})
  t.check(#report.ops > 0 and #report.kernels > 0)
  local sum = pg.jit(function(rows)
    local _, total = pg.foreach(function(r, s) return r, s * r + r end, rows, pg.zeros(4))
    return total
  end)
  sum(x)
  report = pg.profile(function() return sum(x) end)
  local inside = 0
  for _, row in ipairs(report.kernels) do if row.count % 5 == 0 then inside = inside + 1 end end
  t.check(inside > 0 or t.mode ~= "eager", tostring(report))
end)

t.test("a recorded graph has a backward", function()
  t.skip_in("hybrid", "hybridizes its blocks itself")
  local net, x = mlp():hybridize(), pg.ones(2, 4)
  local report = pg.profile(function() pg.record(function() return net(x):sum() end):backward() end)
  local g = graph_of(report, "HybridSequential")
  t.equal(g.runs, 2)
  local backward = 0
  for _, row in ipairs(report.kernels) do if row.graph == g.name .. " backward" then backward = backward + row.count end end
  t.check(backward > 0, tostring(report))
end)

t.test("profiling changes no result", function()
  local function run()
    pg.manual_seed(3)
    local x = pg.randn(4, 4)
    x:add_(1)
    x:mul_(x)
    local net = pg.jit(function(a) return a:dropout{p = 0.5} + a:softmax(2) end)
    return x, pg.train_mode(function() return net(x) end)
  end
  local x, y = run()
  local _, px, py = pg.profile(run)
  t.equal(px, x)
  t.equal(py, y)
end)

t.test("the file is a Chrome trace", function()
  local path = t.tmp("profile.json")
  local net, x = mlp():hybridize(), pg.ones(2, 4)
  local line
  local report = pg.profile(function()
    pg.record(function() return net(x):exp():sum() end):backward() line = here()
    collectgarbage()
  end, {path = path})
  local data = json.read(path)
  local seen, complete = {}, 0
  for _, e in ipairs(data.traceEvents) do
    t.check(type(e.name) == "string" and type(e.pid) == "number" and type(e.tid) == "number")
    if e.ph == "X" then
      complete = complete + 1
      seen[e.cat] = (seen[e.cat] or 0) + 1
      t.check(e.ts >= 0 and e.dur >= 0)
      if e.name == "exp" and e.cat == "op" then
        t.equal({e.args["in"], e.args.out}, {"float32 2x3", "float32 2x3"})
        t.check(e.args.line:sub(-#line) == line, e.args.line)
      end
      if e.cat == "kernel" then t.check(e.args.graph and e.args.line and e.args["in"] and e.args.out) end
    else t.equal(e.ph, "M") end
  end
  t.equal(complete, report.events)
  for _, kind in ipairs{"op", "kernel", "graph", "backward", "compile", "trace"} do t.check(seen[kind], kind) end
  t.equal(data.otherData.dropped, 0)
end)

t.test("events nest", function()
  local path = t.tmp("nested.json")
  local x = pg.ones(3, 3)
  pg.profile(function() return x:trace() end, {path = path})
  local outer, inner
  for _, e in ipairs(json.read(path).traceEvents) do
    if e.name == "trace" then outer = e elseif e.cat == "op" then inner = e end
  end
  t.check(inner.ts >= outer.ts and inner.ts + inner.dur <= outer.ts + outer.dur + 0.01)
end)

t.test("a retrace has its reason in the file", function()
  local path = t.tmp("reason.json")
  local limits = {low = 1}
  local f = pg.jit(function(x) return x * limits.low end)
  f(pg.ones(2))
  limits.low = 2
  pg.profile(function() return f(pg.ones(2)) end, {path = path})
  for _, e in ipairs(json.read(path).traceEvents) do
    if e.cat == "trace" then t.check(e.args.reason:find("low was 1, is 2", 1, true), e.args.reason) return end
  end
  t.check(false, "no trace")
end)

t.test("events beyond the limit are counted only", function()
  local path = t.tmp("short.json")
  local x = pg.ones(2)
  local report = pg.profile(function() for _ = 1, 20 do x = x:neg() end end, {path = path, max_events = 6})
  t.equal({report.events, report.dropped >= 14}, {6, true})
  t.equal(row_of(report.ops, "name", "neg").count, 20)
  t.check(tostring(report):find("first 6 events", 1, true), tostring(report))
  local complete = 0
  for _, e in ipairs(json.read(path).traceEvents) do if e.ph == "X" then complete = complete + 1 end end
  t.equal(complete, 6)
end)

t.test("an error of f ends the profile and keeps its position", function()
  local e = t.error_contains(function() pg.profile(function() error("my mistake") end) end, "my mistake")
  t.check(e:find("test_profile.lua:%d+"), e)
  t.error_contains(function() pg.profile(function() return pg.ones(2):matmul(pg.ones(3)) end) end, "matmul")
  local report = pg.profile(function() return pg.ones(2) + 1 end)
  t.equal(row_of(report.ops, "name", "add").count, 1)
end)

t.test("a profile inside a profile or a trace is an error", function()
  t.error_contains(function() pg.profile(function() pg.profile(function() end) end) end, "profile: a profile is already running")
  t.error_contains(function() pg.jit(function(x) pg.profile(function() end) return x end)(pg.ones(1)) end, "profile: cannot run inside")
  t.equal(#pg.profile(function() end).ops, 0)
end)

t.test("arguments", function()
  t.bad_argument(function() pg.profile(3) end, "profile", "f")
  t.bad_argument(function() pg.profile(print, {path = 3}) end, "profile", "path")
  t.bad_argument(function() pg.profile(print, {max_events = -1}) end, "profile", "max_events")
  t.error_contains(function() pg.profile(print, {paths = "x"}) end, "paths")
  t.error_contains(function() pg.profile(function() end, {path = "/nowhere/at/all.json"}) end, "profile: /nowhere/at/all.json: ")
  t.equal(#pg.profile(function() end).ops, 0)
end)

t.test("the collector's work and cycles are counted", function()
  local report = pg.profile(function() for _ = 1, 3 do collectgarbage() end end)
  t.check(report.collector.cycles >= 2, tostring(report))
  report = pg.profile(function() for _ = 1, 60 do pg.ones(256, 1024) end end)
  t.check(report.collector.steps > 0, tostring(report))
end)

t.test("coroutines and jobs", function()
  local x = pg.ones(3)
  local report = pg.profile(function()
    local co = coroutine.wrap(function() for _ = 1, 3 do x = x:exp() coroutine.yield() end end)
    for _ = 1, 3 do co() x = x:log() end
    local job = pg.job(function() for _ = 1, 4 do x = x:neg() pg.yield() end return 5 end)
    while not job:step(0.01) do x = x:abs() end
  end)
  t.equal({row_of(report.ops, "name", "exp").count, row_of(report.ops, "name", "log").count, row_of(report.ops, "name", "neg").count}, {3, 3, 4})
end)

t.test("other observers may work inside of a profile", function()
  local net, text = mlp(), nil
  local report = pg.profile(function()
    text = net:summary(pg.ones(1, 4))
    return pg.ones(2):exp()
  end)
  t.check(text:find("Multiply%-adds"))
  t.equal(row_of(report.ops, "name", "exp").count, 1)
end)
