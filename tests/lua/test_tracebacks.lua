-- Tracebacks that the program prints for errors that pass through the library: the script's frames, innermost first.
local pg = require "perigee"
local t = require "tests.support"

-- Runs the program on a script, whose lines begin with those of `prelude`. Returns what it writes to standard error,
-- without "perigee: " and with "F" for the script's path.
local prelude = [[
local pg = require "perigee"
local nn = pg.nn
local function bad(x)
  local y = x:matmul(pg.ones(7, 2))
  return y
end
local mode = arg[1]
]]

local function errors_of(text, args)
  local path = t.write(t.tmp("frames.lua"), prelude .. text)
  local out, err, code = t.run("'" .. path .. "' " .. (args or ""))
  t.equal(out, "")
  t.equal(code, 1)
  return (err:gsub("^perigee: ", ""):gsub(path:gsub("%p", "%%%0"), "F"))
end

local message = "F:4: matmul: bad argument 'y' (expected 3 rows to go with the 3 columns of x 2x3, got float32 7x2 cpu)"

-- The error of the script must be `message` with the ending, and the traceback must have exactly these lines.
local function expect(text, args, ending, ...)
  local lines = {message .. ending, "stack traceback:", "\tF:4: in function 'bad'"}
  for i = 1, select("#", ...) do lines[#lines + 1] = "\tF:" .. (select(i, ...)) end
  t.equal(errors_of(text, args), table.concat(lines, "\n") .. "\n", args)
end

local training = [[
local Net = nn.HybridBlock:extend("Net")
function Net:init() self.fc = nn.Dense(3) end
function Net:forward(x)
  local y = bad(self.fc(x))
  return y
end
local net = Net()
net:initialize()
if mode == "hybrid" then net:hybridize() end
local function loss(x)
  local y = net(x)
  return y:sum()
end
local function step(x)
  local l = pg.record(function()
    local l = loss(x)
    return l
  end)
  l:backward()
end
if mode == "jit" then step = pg.jit(step) end
step(pg.ones(2, 4))
]]

t.test("a training step: blocks, record, hybridize and jit", function()
  expect(training, "eager", "", "11: in function 'forward'", "18: in function 'loss'", "23: in function <F:22>",
         "22: in function 'step'", "29: in main chunk")
  expect(training, "hybrid", "", "11: in function 'forward'", "18: in function 'loss'", "23: in function <F:22>",
         "22: in function 'step'", "29: in main chunk")
  expect(training, "jit", "", "11: in function 'forward'", "18: in function 'loss'", "23: in function <F:22>",
         "22: in function <F:21>", "29: in main chunk")
end)

t.test("backward of a Function, eager and traced", function()
  local text = [[
local F = pg.autograd.Function{
  forward = function(_, x) return x * 2 end,
  backward = function(_, dy)
    local g = bad(dy)
    return g
  end,
}
local x = pg.ones(2, 3):attach_grad()
local function run()
  local l = pg.record(function()
    local y = F(x)
    return y:sum()
  end)
  l:backward()
end
if mode == "jit" then run = pg.jit(run) end
run()
]]
  expect(text, "eager", "", "11: in function <F:10>", "21: in function 'run'", "24: in main chunk")
  expect(text, "jit", "", "11: in function <F:10>", "18: in function <F:17>", "17: in function <F:16>", "24: in main chunk")
end)

t.test("callbacks: a transform, a hook, an optimizer, x:tap and pg.checkpoint", function()
  expect([[
local dataset = pg.data.ArrayDataset(pg.ones(4, 2, 3)):transform(function(x)
  local y = bad(x)
  return y
end)
for x in pg.data.DataLoader(dataset, {batch_size = 2}):iter() do print(x) end
]], "loader", "", "9: in function <F:8>", "12: in main chunk")
  expect([[
local net = nn.HybridSequential{nn.Dense(3)}
net:initialize()
net:register_forward_hook(function(_, _, y)
  local z = bad(y)
  return z
end)
net(pg.ones(2, 3))
]], "hook", "", "11: in function <F:10>", "14: in main chunk")
  local optimizer = [[
local Mine = pg.optim.Optimizer:extend("Mine")
function Mine:update(group)
  local w = bad(group.weights[1])
  return w
end
local w = pg.param(pg.ones(2, 3))
local trainer = pg.optim.Trainer({w = w}, Mine{learning_rate = 1})
local function step()
  pg.record(function() return (w * 2):sum() end):backward()
  trainer:step(1)
end
if mode == "jit" then step = pg.jit(step) end
step()
]]
  expect(optimizer, "eager", "", "10: in function 'update'", "17: in function 'step'", "20: in main chunk")
  expect(optimizer, "jit", "", "10: in function <F:9>", "17: in function <F:15>", "20: in main chunk")
  local tap = [[
local function f(x)
  local y = x:tap(function(v)
    local z = bad(v)
    return z
  end)
  return y
end
if mode == "jit" then f = pg.jit(f) end
f(pg.ones(2, 3))
]]
  expect(tap, "eager", "", "10: in function <F:9>", "9: in function 'f'", "16: in main chunk")
  expect(tap, "jit", "", "10: in function <F:9>", "16: in main chunk")
  expect([[
local n, x = 0, pg.ones(2, 3):attach_grad()
local function f(v)
  n = n + 1
  local y = n == 1 and v or bad(v)
  return y:sum()
end
local l = pg.record(function() return pg.checkpoint(f, x) end)
l:backward()
]], "checkpoint", "", "11: in function <F:9>", "15: in main chunk")
end)

t.test("combinators: eager, in a trace and in pg.debug", function()
  local loop = [[
local function body(x, h)
  local y = bad(x)
  return y, h
end
local function run()
  local outs = pg.foreach(body, pg.ones(3, 2, 3), pg.ones(2))
  return outs
end
if mode == "jit" then run = pg.jit(run) end
if mode == "debug" then pg.debug(run) end
run()
]]
  expect(loop, "eager", " (in the body of foreach)", "9: in function <F:8>", "13: in function 'run'", "18: in main chunk")
  expect(loop, "jit", " (in the body of foreach)", "9: in function <F:8>", "13: in function <F:12>", "18: in main chunk")
  expect(loop, "debug", "", "9: in function <F:8>", "13: in function <F:12>", "17: in main chunk")
  local branch = [[
local function run()
  local y = pg.cond(pg.tensor(1):gt(0), function()
    local y = bad(pg.ones(2, 3))
    return y
  end, function() return pg.ones(2, 2) end)
  return y
end
if mode == "jit" then run = pg.jit(run) end
run()
]]
  expect(branch, "eager", " (in the branch then_f of cond)", "10: in function <F:9>", "9: in function 'run'", "16: in main chunk")
  expect(branch, "jit", " (in the branch then_f of cond)", "10: in function <F:9>", "9: in function <F:8>", "16: in main chunk")
end)

t.test("coroutine.wrap: the frames of the coroutine, then those of the call", function()
  local text = [[
local function rows(x)
  return coroutine.wrap(function()
    local y = pg.record(function()
      local y = bad(x)
      return y
    end)
    coroutine.yield(y)
  end)
end
local function f(x)
  for y in rows(x) do return y end
end
if mode == "jit" then f = pg.jit(f) end
f(pg.ones(2, 3))
]]
  for _, way in ipairs{"eager", "jit"} do
    local err = errors_of(text, way)
    t.check(err:find("^F:%d+: " .. message:gsub("%p", "%%%0")), err)
    t.equal(err:match("\nstack traceback:\n.*"), "\nstack traceback:\n\tF:4: in function 'bad'\n\tF:11: in function <F:10>\n\tF:10: in function <F:9>\n"
      .. "\tF:18: in function " .. (way == "jit" and "<F:17>" or "'f'") .. "\n\tF:21: in main chunk\n")
  end
end)

t.test("scopes and modes", function()
  expect([[
local function inner()
  local y = bad(pg.ones(2, 3))
  return y
end
pg.scope(function()
  local y = pg.pause(function()
    local y = pg.predict_mode(inner)
    return y
  end)
  return y
end)
]], "", "", "9: in function <F:8>", "14: in function <F:13>", "13: in function <F:12>", "12: in main chunk")
end)

t.test("a tail call at the end of forward: the message says the block and the lines of forward", function()
  local own = [[
local Mine = nn.HybridBlock:extend("Mine")
function Mine:forward(x)
  return x:matmul(pg.ones(7, 2))
end
local net = nn.HybridSequential{Mine()}
if mode == "hybrid" then net:hybridize() end
net(pg.ones(2, 3))
]]
  local text = "matmul: bad argument 'y' (expected 3 rows to go with the 3 columns of x 2x3, got float32 7x2 cpu)"
  t.equal(errors_of(own), "F:14: " .. text .. " (in block '1', Mine, forward at F:9-11)\nstack traceback:\n\tF:14: in main chunk\n")
  t.equal(errors_of(own, "hybrid"), "F:10: " .. text .. " (in block '1', Mine)\nstack traceback:\n"
    .. "\tF:10: in function 'forward'\n\tF:14: in main chunk\n")
  local child = [[
local Net = nn.HybridBlock:extend("Net")
function Net:init() self.fc = nn.Dense(3, {in_units = 5}) end
function Net:forward(x)
  return self.fc(x)
end
local net = nn.HybridSequential{Net()}
net:initialize()
if mode == "hybrid" then net:hybridize() end
net(pg.ones(2, 4))
]]
  text = "Dense: bad argument 'x' (expected 5 features, got float32 2x4 cpu)"
  t.equal(errors_of(child), "F:16: " .. text .. " (in block '1.fc', Dense, called in forward at F:10-12)\n"
    .. "stack traceback:\n\tF:16: in main chunk\n")
  t.equal(errors_of(child, "hybrid"), "F:11: " .. text .. " (in block '1.fc', Dense)\nstack traceback:\n"
    .. "\tF:11: in function 'forward' (tail call)\n\tF:16: in main chunk\n")
end)

t.test("a new error has its own frames, also with the text of one that was caught", function()
  local net = "local net = nn.HybridSequential{nn.HybridLambda(function(x) local y = bad(x) return y end)}\n"
  expect(net .. [[
assert(not pcall(net, pg.ones(2, 3)))
local function again() net(pg.ones(2, 3)) end
again()
]], "", " (in block '1', HybridLambda)", "8: in function 'forward'", "10: in function 'again'", "11: in main chunk")
  t.equal(errors_of([[
pcall(pg.record, function() bad(pg.ones(2, 3)) end)
local f = pg.jit(function(x)
  pcall(x.item, x)
  return x
end)
f(pg.ones(1))
]]):match("\nstack.*"), "\nstack traceback:\n\tF:13: in main chunk\n")
end)

t.test("errors of Lua and of the script, tables as errors", function()
  t.equal(errors_of("local f = pg.jit(function()\n  error('mine')\nend)\nf()\n"),
          "F:9: mine\nstack traceback:\n\tF:9: in function <F:8>\n\tF:11: in main chunk\n")
  t.equal(errors_of("local function f()\n  local x\n  return (x.y)\nend\npg.record(f)\n"),
          "F:10: attempt to index local 'x' (a nil value) ('x' is nil: not set, or the result of a function without return)\nstack traceback:\n\tF:10: in function <F:8>\n\tF:12: in main chunk\n")
  t.equal(errors_of("pg.record(function()\n  error({})\nend)\n"),
          "(error object is a table value)\nstack traceback:\n\tF:9: in function <F:8>\n\tF:8: in main chunk\n")
end)

t.test("errors of Lua in a trace have the script's names", function()
  local function first(text) return errors_of("local f = pg.jit(function(x)\n" .. text .. "\nend)\nf(pg.ones(2))\n"):match("^.-value%)?") end
  t.equal(first("local t = {}\nreturn t.a.b"), "F:10: attempt to index field 'a' (a nil value)")
  t.equal(first("local t = {}\nt.a.b = 1"), "F:10: attempt to index field 'a' (a nil value)")
  t.equal(first("return pg.nn.Dense(2):hybridise()"), "F:9: attempt to call method 'hybridise' (a nil value)")
  t.equal(first("return nothing(x)"), "F:9: attempt to call global 'nothing' (a nil value)")
  t.equal(first("local n\nreturn n.x"), "F:10: attempt to index a nil value")
  t.equal(first("local n\nreturn n + 1"), "F:10: attempt to perform arithmetic on a nil value")
end)

t.test("the path of a block without a child", function()
  local err = errors_of("local Mine = nn.HybridBlock:extend('Mine')\nfunction Mine:forward(x)\n  return bad(x)\nend\nMine()(pg.ones(2, 3))\n")
  t.equal(err, "F:4: " .. message:sub(6) .. " (in block Mine, forward at F:9-11)\nstack traceback:\n\tF:4: in function 'forward'\n\tF:12: in main chunk\n")
end)

t.test("a script that catches an error sees a plain string", function()
  local out = t.run(("'%s'"):format(t.write(t.tmp("caught.lua"), prelude .. [[
local ok, e = pcall(pg.record, function() bad(pg.ones(2, 3)) end)
print(ok, type(e), e:match("[^/]*$"))
]])))
  t.equal(out, "false\tstring\tcaught.lua:4: matmul: bad argument 'y' (expected 3 rows to go with the 3 columns of x 2x3, got float32 7x2 cpu)\n")
end)

t.test("long tracebacks are shortened, interpreted ones too", function()
  for _, call in ipairs{"pg.record(g)", "pg.jit(g)()"} do
    local err = errors_of([[
local function f(n)
  if n == 0 then bad(pg.ones(2, 3)) end
  local y = f(n - 1)
  return y
end
local function g()
  local y = f(100)
  return y
end
]] .. call .. "\n")
    t.check(err:find("\n\t...\n", 1, true), err)
    t.equal(select(2, err:gsub("\n", "")), 25)
    t.check(err:find("\tF:14: in function <F:13>\n\tF:17: in main chunk\n$"), err)
  end
end)

t.test("the prompt shows the same frames", function()
  local path = t.write(t.tmp("prompt_frames.lua"), prelude .. "return function() pg.record(function() bad(pg.ones(2, 3)) end) end")
  local _, err = t.run("-i", ("f = dofile('%s')\nf()\n"):format(path))
  t.equal(err:gsub(path:gsub("%p", "%%%0"), "F"), message .. "\n      local y = x:matmul(pg.ones(7, 2))\n                  ^~~~~~\nstack traceback:\n\tF:4: in function 'bad'\n"
    .. "\tF:8: in function <F:8>\n\tF:8: in function 'f'\n")
end)

-- Ctrl-C leaves code of the library only after a while, and errors skip its frames; both know it by the source.
t.test("code generated for guards belongs to the library", function()
  local scale, sources = {value = 2}, {}
  local step = pg.jit(function(x) return x * scale.value end)
  step(pg.ones(3))
  debug.sethook(function() sources[debug.getinfo(2, "S").source] = true end, "", 1)
  step(pg.ones(3))
  debug.sethook()
  local here = debug.getinfo(1, "S").source
  for source in pairs(sources) do
    t.check(source == here or source:find("^@stdlib/") or source == "=[C]", source)
  end
  t.check(sources["@stdlib/guard"], "no guard ran")
end)
