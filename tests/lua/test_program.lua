local t = require "tests.support"

local function expect(args, out, err, code, input)
  local o, e, c = t.run(args, input)
  local function same(got, wanted, what)
    local ok = type(wanted) == "function" and wanted(got) or got == wanted
    if not ok then error(what .. " of " .. args .. ": got " .. t.show(got) .. ", expected " .. t.show(wanted), 3) end
  end
  same(o, out, "output")
  same(e, err, "error output")
  same(c, code, "exit code")
end

local function containing(...)
  local parts = {...}
  return function(s)
    for _, part in ipairs(parts) do if not s:find(part, 1, true) then return false end end
    return true
  end
end

local function script(name, text) return "'" .. t.write(t.tmp(name), text) .. "'" end

t.test("the functions of ops are made when they are first looked up", function()
  local path = t.write(t.tmp("functions.lua"), [[
    local pg = require "perigee"
    local ops, x = pg.testing.ops, pg.ones(2)
    local function count() local n = 0; for _ in pairs(ops) do n = n + 1 end return n end
    local before = count()
    print(before < 100, rawget(ops, "tanh"), x.tanh == pg.tanh, rawget(ops, "tanh") == pg.tanh, count() == before + 1)
    print(x.clip == pg.clamp, pg.clip == x.clamp, x.clip_ == x.clamp_)
    print(rawequal(x.tanh_, x.tanh_), rawget(ops, "tanh_"), ops["tanh\0"], ops["clip\0"], ops[1], ops.no_such_op)
    print((select(2, pcall(getmetatable(ops).__index, 5, "tanh"))))
    print(pcall(function() return x.tanhh end))  -- goes through all names
    print(count() > 400)
  ]])
  expect("'" .. path .. "'", table.concat({
    "true\tnil\ttrue\ttrue\ttrue", "true\ttrue\ttrue", "true\tnil\tnil\tnil\tnil\tnil", "nil",
    "false\t" .. path .. ":9: a tensor has no field or method 'tanhh'; did you mean 'tanh'?", "true\n",
  }, "\n"), "", 0)
end)

t.test("tensors always have the same methods and fields", function()
  local path = t.write(t.tmp("fields.lua"), [[
    local pg = require "perigee"
    local before, x = pg.testing.tensor_names(), pg.ones(2)
    for _, entry in ipairs(before) do
      local method = entry:match("^tensor_methods (%S+)$")
      if method and type(x[method]) ~= "function" then print(method) end
    end
    for _, names in ipairs(getmetatable(pg).__fields) do for name in pairs(names) do pcall(function() return pg[name] end) end end
    for _, names in ipairs(getmetatable(pg.nn).__fields) do for name in pairs(names) do pcall(function() return pg.nn[name] end) end end
    local net = pg.nn.HybridSequential{pg.nn.rnn.LSTM(2), pg.nn.Dense(2)}
    net:initialize()
    net:hybridize()
    pg.record(function() return net(pg.ones(2, 2, 2)):sum() end):backward()
    pg.optim.Trainer(net:collect_params(), "sgd", {}):step(1)
    print(table.concat(pg.testing.tensor_names(), " ") == table.concat(before, " "), #before > 100)
  ]])
  expect("'" .. path .. "'", "true\ttrue\n", "", 0)
  expect([[-e 'local x = pg.ones(2):attach_grad(); x.grad_req = "add"; print(x:zero_grad().grad_req)']], "add\n", "", 0)
  expect([[-e 'local text = pg.testing.core.require("help").text(pg.ones(1))
    for name in ("backward gru iter lstm rnn set_data tap zero_grad"):gmatch("%S+") do assert(text:find("%f[%w_]" .. name .. "%f[^%w_]"), name) end']], "", "", 0)
  expect([[-e 'for _, entry in ipairs(pg.testing.core.require("support.catalog").list()) do
    assert(entry.name:sub(1, 2) ~= "x:" or type(entry.value) == "function", entry.name) end']], "", "", 0)
end)

t.test("completion looks at the end of a long line", function()
  local complete = require("perigee").testing.core.require("tools.complete")
  local looks = 0
  local session = {
    globals = {name = 1}, files = function() return {} end, locals = function() return {} end,
    local_of = function() looks = looks + 1 end,
  }
  local line = ("f("):rep(20000)
  local length, names = complete.search(session, line .. "na")
  t.equal(length, #line)
  t.equal(names, {"name"})
  t.equal(complete.signature(session, line), nil)
  t.check(looks < 2000, looks)
end)

t.test("-e runs text, in order, with pg", function()
  expect([[-e 'x = 1' -e 'print(x + 1)']], "2\n", "", 0)
  expect([[-e 'print(pg.tensor{1, 2}:sum():item())']], "3\n", "", 0)
  expect([[-e 'return 1']], "", "", 0)
  expect([[-e '']], "", "", 0)
  expect([[-e '-- only a comment']], "", "", 0)
end)

t.test("-l requires a module, in order with -e", function()
  local folder = t.tmp()
  t.write(folder .. "/lmod.lua", "loaded_it = (loaded_it or 0) + 1 return {}")
  expect("-e 'package.path = \"" .. folder .. "/?.lua;\" .. package.path' -l lmod -e 'print(loaded_it)'", "1\n", "", 0)
  expect("-l no.such.module", "", containing("perigee: module 'no.such.module' not found"), 1)
end)

t.test("-v and -h", function()
  expect("-v", containing("perigee ", "LuaJIT"), "", 0)
  expect("-h", containing("Usage: perigee [options] [script | -] [args]", "-e TEXT"), "", 0)
end)

t.test("a setting with a value that it cannot have is an error at the start, also for -v", function()
  t.skip_in("guard", "processes of their own")
  local wrong = {
    PERIGEE_MAX_ISA = "amx, avx512, avx2, sse4 or sse2", PERIGEE_CONV = "measured, direct or winograd", PERIGEE_NATIVE = "0 or 1",
    PERIGEE_GUARD = "0 or 1", PERIGEE_VERIFY_PLANS = "0 or 1", PERIGEE_VERIFY_PASSES = "0 or 1", PERIGEE_CUDA_SYNC = "0 or 1",
  }
  local function run(name, value, args)
    return t.shell(("cd '%s' && %s=%s '%s' %s"):format(t.root, name, value, t.program, args))
  end
  for name, expected in pairs(wrong) do
    for _, args in ipairs{"-v", "-e 'print(pg.ones(1))'"} do
      local out, err, code = run(name, "foo", args)
      t.equal({out, err, code}, {"", ('perigee: %s: expected %s, got "foo"\n'):format(name, expected), 1})
    end
    local _, err, code = run(name, "", "-v")
    t.equal({err, code}, {"", 0})
    if expected == "0 or 1" then t.equal({run(name, "0", "-e 'print(pg.ones(1):item())'")}, {"1\n", "", 0}) end
  end
  local _, err
  for _, args in ipairs{"-v", "-e 'print(pg.ones(1))'"} do
    _, err = run("PERIGEE_DISABLE_PASSES", "fused", args)
    t.equal(err, "perigee: PERIGEE_DISABLE_PASSES: no pass 'fused'; did you mean 'fuse'?\n")
  end
  _, err = run("PERIGEE_STDLIB", "/no/folder", "-e 'print(1)'")
  t.equal(err, "perigee: PERIGEE_STDLIB: no file '/no/folder/init.lua'\n")
end)

t.test("wrong options", function()
  expect("-q", "", containing("unknown option '-q'"), 1)
  expect("-e", "", containing("-e"), 1)
end)

t.test("a script gets its arguments, options among them", function()
  local path = script("args.lua", "print(...) print(arg[0]:match('[^/]*$'), arg[1], arg[-1] ~= nil, #arg) print(pg, help)")
  expect(path .. " -e 1 --foo -h", "-e\t1\t--foo\t-h\nargs.lua\t-e\ttrue\t4\nnil\tnil\n", "", 0)
  expect("-- " .. path .. " a", "a\nargs.lua\ta\ttrue\t1\nnil\tnil\n", "", 0)
  expect("-e 'y = 1' " .. script("neg.lua", "print(arg[-1], arg[-2], y)"), "y = 1\t-e\t1\n", "", 0)
end)

t.test("standard input is the script when piped", function()
  expect("", "hello\n", "", 0, "print('hello')")
  expect("-", "hello\n", "", 0, "#!/usr/bin/env perigee\nprint('hello')")
  expect("- a b", "a\tb\n", "", 0, "print(...)")
  expect("", "2\n", "", 0, "print(pg.ones(2):sum():item())")
  expect("- 3", "2\t3\n", "", 0, "print(pg.ones(2):sum():item(), ...)")
  expect("", "", containing("perigee: stdin:1: oops"), 1, "error('oops')")
end)

t.test("errors end with code 1 and a traceback of the script's lines", function()
  local path = script("fail.lua", [[
local pg = require "perigee"
local function inner() return (pg.ones(2, 3):matmul(pg.ones(2))) end
local function outer() inner() return 1 end
outer()
]])
  expect(path, "", containing("fail.lua:2: matmul", "stack traceback:", "fail.lua:2: in function 'inner'",
                              "fail.lua:3: in function 'outer'", "fail.lua:4: in main chunk"), 1)
  expect(script("syntax.lua", "x = = 1"), "", containing("syntax.lua:1: unexpected symbol"), 1)
  expect("'" .. t.tmp("absent.lua") .. "'", "", containing("perigee: cannot open"), 1)
  expect([[-e 'error({})']], "", containing("(error object is a table value)"), 1)
  expect([[-e 'error(setmetatable({}, {__tostring = function() return "custom" end}))']], "", containing("perigee: custom"), 1)
  expect([[-e 'error()']], "", containing("(error object is a nil value)"), 1)
end)

t.test("a misspelt method of a visible object gets a suggestion", function()
  local hint = "attempt to call method '%s' (a nil value) (did you mean '%s'?)"
  expect([[-e 'net = pg.nn.Dense(2) net:hybridise()']], "", containing(hint:format("hybridise", "hybridize")), 1)
  expect([[-e 'local d = pg.data.ArrayDataset(pg.ones(3)) d:take_(1)']], "", containing("no field or method 'take_' (did you mean 'take'?)"), 1)
  local path = script("hint.lua", [[
local pg = require "perigee"
local net = pg.nn.Dense(2, {in_units = 3})
net:initialize()
local trainer = pg.optim.Trainer(net:collect_params(), "sgd")
local function train() trainer:stepp(1) end
train()
]])
  expect(path, "", containing("hint.lua:5: Trainer: no field or method 'stepp' (did you mean 'step'?)"), 1)
  local _, err = t.run([[-e 'local t = {} t:no_such_thing()']])
  t.check(err:find("'no_such_thing' (a nil value)\n", 1, true), err)
end)

t.test("a long traceback is shortened", function()
  local _, err = t.run([[-e 'local function f(n) if n == 0 then error("deep") end return 1 + f(n - 1) end f(500)']])
  t.check(err:find("\n\t...", 1, true), err)
  t.check(select(2, err:gsub("\n", "")) < 40)
end)

t.test("frames of the library are left out", function()
  local _, err = t.run([[-e 'pg.record(function() error("inside") end)']])
  t.check(err:find("inside", 1, true) and not err:find("stdlib", 1, true), err)
end)

t.test("os.exit codes pass", function()
  expect([[-e 'os.exit(7)']], "", "", 7)
  expect([[-e 'os.exit(0)' -e 'error("never")']], "", "", 0)
  expect([[-e 'pg.ones(3) os.exit(3, true)']], "", "", 3)
end)

t.test("require looks beside the script", function()
  local folder = t.tmp("place")
  os.execute("mkdir -p '" .. folder .. "/pack'")
  t.write(folder .. "/near.lua", "return 'near'")
  t.write(folder .. "/pack/init.lua", "return 'pack'")
  t.write(folder .. "/main.lua", "print(require 'near', require 'pack')")
  expect("'" .. folder .. "/main.lua'", "near\tpack\n", "", 0)
end)

t.test("SIGINT ends a script with 130 after unwinding", function()
  local path = script("endless.lua", [[
local pg = require "perigee"
local x = pg.ones(10)
io.stdout:write("started\n") io.stdout:flush()
io.popen("kill -INT $PPID"):close()
while true do x = x + 1 end
]])
  expect(path, "started\n", containing("interrupted", "endless.lua:", "in main chunk"), 130)
  local caught = script("caught.lua", [[
local x = 0
print(pcall(function() io.popen("kill -INT $PPID"):close() for i = 1, 1e9 do x = x + math.sin(i) end end))
print "went on"
]])
  expect(caught, "", containing("interrupted", "caught.lua:2: in main chunk"), 130)
end)

t.test("-i reads from a pipe too", function()
  local input = "1 + 1\n=2, 3\nx = {1,\n2}\nx\n4;\nnil\n_\nfor i = 1, 2 do\nprint(i)\nend\n'text'\npg.tensor{1}\n"
  local out, err, code = t.run("-i", input)
  t.equal(err, "")
  t.equal(code, 0)
  t.equal(out:gsub("^[^\n]*\n", ""):gsub("[>]+ ", ""), "2\n2\t3\n{1, 2}\n{1, 2}\n1\n2\ntext\n{1}\n[float32 1 cpu]\n")
end)

t.test("errors keep the prompt", function()
  local out, err, code = t.run("-i", "error('one')\nlocal x = = 2\nlocal function f() error('two') end local y = f()\n5\n")
  t.equal(code, 0)
  t.check(out:find("5\n", 1, true), out)
  t.check(err:find("one", 1, true) and err:find("unexpected symbol", 1, true) and err:find("stdin:1: two", 1, true), err)
  t.check(not err:find("main chunk", 1, true), err)
end)

t.test("the prompt follows a script with -i", function()
  local path = script("before.lua", "value = 41 print(pg == nil)")
  local out = t.run("-i " .. path, "value + 1\n")
  t.check(out:find("42\n", 1, true), out)
end)

t.test("tables, nested ones and tensors in them", function()
  local out = t.run("-i", [[{a = 1, ["b c"] = "s", {1, {2, {3, {4}}}}, pg.tensor{1, 2}}
t = {} t.t = t t.n = 1
t
pg.nn.Dense(3)
]])
  t.check(out:find([[{{1, {2, {…}}}, [float32 2 cpu], ["b c"] = "s", a = 1}]], 1, true), out)
  t.check(out:find("{n = 1, t = {itself}}", 1, true), out)
  t.check(out:find("Dense(", 1, true), out)
end)

t.test("nested loops over pairs and next visit all elements, however often they run", function()
  expect("tests/luajit/nested_pairs.lua", "none\n", "", 0)
  expect([[-e 'local n = 0 for k, v in next, {1, 2, a = 3} do n = n + v end print(n, next({}), next({7}), pairs({}) == next)']],
         "6\tnil\t1\ttrue\n", "", 0)
  for _, name in ipairs{"pairs", "next"} do
    expect("-e 'for k in " .. name .. "(5) do end'", "",
           ("perigee: (command line):1: bad argument #1 to '%s' (table expected, got number)\nstack traceback:\n\t(command line):1: in main chunk\n"):format(name), 1)
  end
end)

t.test("functions that nest on the stack of C end in an error", function()
  for _, text in ipairs{
    "local function f() return coroutine.wrap(function() return f() + 1 end)() + 1 end f()",
    "local function f() return (('a'):gsub('a', f)) end f()",
    "local t = setmetatable({}, {}) getmetatable(t).__index = function() return (('a'):gsub('a', t)) end return (('a'):gsub('a', t))",
    "local function f() table.sort({2, 1}, function() f() return true end) end f()",
  } do
    expect(script("nested.lua", text), "", containing("stack overflow"), 1)
  end
end)
