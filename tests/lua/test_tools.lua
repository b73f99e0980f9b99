-- The sub-commands: perigee test, bench, show and run.
local t = require "tests.support"
local pg = require "perigee"
local nn = pg.nn

local function contains(text, ...)
  for _, part in ipairs{...} do
    if not text:find(part, 1, true) then t.fail(t.show(part) .. " is missing in " .. text) end
  end
end

local function fails(args, message)
  t.equal({t.run(args)}, {"", "perigee: " .. message .. "\n", 1}, args)
end

local function folder(name)
  local path = t.tmp(name)
  os.execute("mkdir -p '" .. path .. "'")
  return path
end

local function write_tests(place)
  t.write(place .. "/near.lua", "return {boom = function() local x = nil; return x.y end}")
  t.write(place .. "/test_one.lua", [[
local t = require "perigee.test"
local pg = require "perigee"
local near = require "near"
t.test("sum", function() t.equal(pg.ones(2):sum():item(), 2) end)
t.test("close", function() t.close(pg.ones(2), {1, 2}) end)
t.test("boom", function()
  near.boom()
end)
t.test("none", function() t.error_contains(function() end, "x") end)
t.test("skips", function() t.skip("a reason") end)
]])
  os.execute("mkdir -p '" .. place .. "/sub dir'")
  t.write(place .. "/sub dir/two_test.lua", [[
local t = require "perigee.test"
t.test("first", function() print(("out" .. "put")) t.check(t.exists(t.write(t.tmp("x"), "y"))) end)
t.test("second", function() t.error_matches(error, "^m.s", "mes", 0) end)
]])
  t.write(place .. "/sub dir/test_syntax.lua", "\nx = = 1")
  t.write(place .. "/sub dir/test_exit.lua", [[
    io.write('cut')
    io.stdout:flush()
    require('ffi').cdef 'void _exit(int);'
    require('ffi').C._exit(3)  -- nothing at exit, such as the leak checker, changes the code
  ]])
  t.write(place .. "/sub dir/other.lua", "error('is no test file')")
end

t.test("test runs the files of a folder, each in its process", function()
  local place = folder("suite")
  write_tests(place)
  for _, option in ipairs{"", "--jobs 3 "} do
    local out, err, code = t.run("test " .. option .. "'" .. place .. "'")
    t.equal({err, code}, {"", 1})
    contains(out, "output\n" .. place .. "/sub dir/two_test.lua: 2 passed, 0 failed, 0 skipped\n",
      "FAILED " .. place .. "/test_one.lua: close\n  " .. place .. "/test_one.lua:5: [2]: got 1, expected 2\n",
      "test_one.lua: boom\n  " .. place .. "/near.lua:1: attempt to index local 'x'", "test_one.lua:7: in function",
      "test_one.lua:9: expected an error, none was raised", "skipped: 1 x a reason",
      "test_syntax.lua:2: unexpected symbol near '='", "cut\nFAILED " .. place .. "/sub dir/test_exit.lua: its process ended with code 3",
      "test_one.lua: 1 passed, 3 failed, 1 skipped\n", "4 files: 3 passed, 5 failed, 1 skipped\n")
    t.check(not out:find("stdlib", 1, true) and not out:find("no test file", 1, true), out)
  end
end)

t.test("test of one file, with a pattern and with options", function()
  local place = folder("single")
  write_tests(place)
  local out, err, code = t.run("test --pattern 'one.lua: su' '" .. place .. "/test_one.lua'")
  t.equal({out, err, code}, {"1 passed, 0 failed, 0 skipped\n", "", 0})
  t.equal({t.run("test --pattern second '" .. place .. "/sub dir/two_test.lua' '" .. place .. "/test_one.lua' | tail -1")},
    {"2 files: 1 passed, 0 failed, 0 skipped\n", "", 0})
  local options = t.write(place .. "/options_test.lua", [[
    local t, pg = require "perigee.test", require "perigee"
    t.test("options", function()
      t.equal({pg.get_num_threads(), (jit.status()), arg[0]:match("[^/]*$")}, {3, false, "options_test.lua"})
      t.error_contains(function() undeclared = 1 end, "undeclared global")
    end)
  ]])
  out, err, code = t.run(("--threads 3 test -joff --strict '%s' '%s'"):format(options, options))
  t.equal({out:match("([^\n]*)\n$"), err, code}, {"2 files: 2 passed, 0 failed, 0 skipped", "", 0})
end)

t.test("a warning of the library fails a test of a user", function()
  local path = t.write(folder("warn") .. "/test_warn.lua", [[
    local t = require "perigee.test"
    local warn = require("perigee").testing.core.warn
    t.test("unexpected", function() warn("one") end)
    t.test("wanted", function() t.warns("two", warn, "two") end)
  ]])
  local out, _, code = t.run("test '" .. path .. "'")
  contains(out, "1 unexpected warnings:\n  one", "1 passed, 1 failed, 0 skipped")
  t.equal(code, 1)
end)

t.test("a file that calls os.exit fails, and so does a pattern without tests", function()
  local path = t.write(folder("exits") .. "/test_exits.lua", [[
    local t = require "perigee.test"
    t.test("passes", function() end)
    t.test("exits", function() os.exit(0) end)
    t.test("is not reached", function() error("boom") end)
  ]])
  for _, files in ipairs{"'%s'", "'%s' '%s'"} do
    local out, err, code = t.run("test " .. files:format(path, path))
    t.equal({err, code}, {"", 1})
    contains(out, "FAILED " .. path .. ": os.exit(0) at " .. path .. ":3 ended the file\n", "1 passed, 1 failed, 0 skipped\n")
    out, err, code = t.run("test --pattern nothing " .. files:format(path, path))
    t.equal({out:match("([^\n]*)\n$"):match("%d passed.*"), err, code},
      {"0 passed, 0 failed, 0 skipped", "perigee: test: no test matches the pattern 'nothing'\n", 1})
  end
  path = t.write(folder("exits") .. "/test_none.lua", "")
  t.equal({t.run("test '" .. path .. "'")}, {"0 passed, 0 failed, 0 skipped\n", "perigee: test: no file calls t.test\n", 1})
end)

t.test("test without files", function()
  fails("test no/such", "cannot open 'no/such': No such file or directory")
  local place = folder("nothing")
  fails("test '" .. place .. "'", "test: no file test_*.lua or *_test.lua below " .. place)
  fails("test", "test: DIR|FILE... is missing (perigee test -h shows how)")
end)

t.test("bench measures what a script names", function()
  local path = t.write(t.tmp("speeds.lua"), [[
    local bench = ...
    local pg = require "perigee"
    local x = pg.ones(100)
    bench("add", function() return x + 1 end)
    return {["a table"] = function() return {} end, add2 = function() return x + x end}
  ]])
  local out, err, code = t.run("bench --seconds 0.01 '" .. path .. "'")
  t.equal({err, code}, {"", 0})
  local names = {}
  for line in out:gmatch("[^\n]+") do
    local name, rest = line:match("^(%S.-)  +(.*)$")
    names[#names + 1] = name
    if #names > 1 then t.check(rest:find("^[%d.]+ %S+s +[%d.]+ %S*s +%S+ %% +[%d.]+ k?B +[%d.]+ k?B$"), line) end
  end
  t.equal(names, {"benchmark", "add", "a table", "add2"})
  t.check(out:match("\nadd  [^\n]* (%d+) B\n") >= "400", out)
  out = t.run("bench --seconds 0.01 --pattern table '" .. path .. "'")
  t.equal(select(2, out:gsub("\n", "")), 2)
end)

t.test("bench of other files", function()
  local path = t.tmp("speed.lua")
  t.write(path, "return function() end")
  local out, _, code = t.run("bench --seconds 0.01 '" .. path .. "'")
  contains(out, "\nspeed   ")
  t.equal(code, 0)
  t.write(path, "return 3")
  fails("bench '" .. path .. "'", "bench: " .. path .. " names no function (perigee bench -h shows how)")
  t.write(path, "return {a = 3}")
  fails("bench '" .. path .. "'", "bench: bad argument 'f' (expected a function, got number 3)")
  t.write(path, "\nx = = 2")
  fails("bench '" .. path .. "'", path .. ":2: unexpected symbol near '='")
  fails("bench no/such", "cannot open 'no/such': No such file or directory")
  fails("bench --seconds 0 x", "--seconds: expected a positive number, got '0'")
  fails("bench --pattern zz '" .. t.write(path, "return function() end") .. "'", "bench: no name matches 'zz'")
end)

-- Writes a network's export and the tensors of one call. Returns the folder.
local function export(name)
  local place = folder(name)
  local net = nn.HybridSequential{nn.Dense(8, {activation = "relu", in_units = 4}), nn.Dense(3, {in_units = 8})}
  net:initialize("xavier")
  net:hybridize()
  local x = pg.randn(2, 4)
  pg.save(place .. "/x.npy", x)
  pg.save(place .. "/wide.npy", x:to("float64"))
  pg.save(place .. "/y.npy", net(x))
  net:export(place .. "/net")
  net:export(place .. "/epochs", {epoch = 2})
  net:export(place .. "/epochs", {epoch = 11})
  return place
end

t.test("show describes a model", function()
  local place = export("shown")
  local out, err, code = t.run("show '" .. place .. "/net.json'")
  t.equal({err, code}, {"", 0})
  contains(out, "inputs:\n  data  float32   2x4\n", "outputs:\n  linear2  float32   2x3\n",
    "parameters:\n  1.weight  float32           32  8x4\n", "  67 numbers, 268 bytes\n", "tensors: " .. place .. "/net.safetensors\n",
    "graph:\n%0 = input \"data\" : float32 2x4\n", "= relu(%3) : float32 2x8")
  t.equal((t.run("show '" .. place .. "/net'")), out)
  contains(t.run("show '" .. place .. "/epochs'"), "tensors: " .. place .. "/epochs-0011.safetensors\n")
  out, err, code = t.run("show --dot '" .. place .. "/net'")
  t.equal({err, code}, {"", 0})
  t.check(out:find("^digraph {\n.*}\n$"), out)
end)

t.test("show lists the tensors of a file", function()
  local path = t.tmp("w.safetensors")
  pg.save(path, {a = pg.ones(2, 4), long_name = pg.zeros({3}, {dtype = "int64"})})
  t.equal({t.run("show '" .. path .. "'")},
    {"tensors:\n  a          float32            8  2x4\n  long_name  int64              3  3\n  11 numbers, 56 bytes\n", "", 0})
end)

t.test("show of what is no model", function()
  local path = t.tmp("text.lua")
  t.write(path, "x")
  fails("show '" .. path .. "'", "'" .. path .. "' is neither a model (.json) nor a file of tensors (.safetensors, .npy, .npz or .params)")
  fails("show no/such", "cannot open 'no/such': No such file or directory (nor is there 'no/such.json')")
  fails("show no/such.json", "cannot open 'no/such.json': No such file or directory")
  fails("show tests", "'tests' is a directory, not a model")
  fails("show --dot '" .. path .. "'", "'" .. path .. "' is not a model (.json)")
  path = t.write(t.tmp("no_model.json"), '{"a": 1}')
  fails("show '" .. path .. "'", path .. ": at byte 0: no field 'format': not a graph of perigee")
  path = t.write(t.tmp("bad.safetensors"), "xx")
  t.check(select(2, t.run("show '" .. path .. "'")):find("^perigee: [^\n]*bad.safetensors: at byte [^\n]*\n$"))
end)

t.test("run computes a model", function()
  local place = export("run")
  local expected = pg.load(place .. "/y.npy")
  for _, input in ipairs{"x.npy", "wide.npy"} do
    t.equal({t.run(("run '%s/net' --input '%s/%s' --output '%s/out.npy'"):format(place, place, input, place))}, {"", "", 0})
    t.equal(pg.load(place .. "/out.npy"), expected)
  end
  t.equal({t.run(("run --input='data=%s/x.npy' --output 'linear2=%s/out2.npy' -- '%s/epochs.json'"):format(place, place, place))}, {"", "", 0})
  t.equal(pg.load(place .. "/out2.npy"), expected)
  t.equal({t.run(("run '%s/net' --input '%s/x.npy'"):format(place, place))}, {"linear2 = " .. tostring(expected) .. "\n", "", 0})
end)

t.test("run of a model with nested results", function()
  local place = folder("nested")
  local Two = nn.HybridBlock:extend("Two")
  function Two:forward(a, b) return {sum = a + b, difference = a - b}, a * b end  -- luacheck: ignore 212
  local x, y = pg.tensor{5, 6}, pg.tensor{2, 3}
  pg.save(place .. "/x.npy", x)
  pg.save(place .. "/y.npy", y)
  local two = Two()
  two:hybridize()
  two(x, y)
  two:export(place .. "/two")
  local out, err, code = t.run(("run '%s/two' --input data2='%s/y.npy' --input '%s/x.npy'"):format(place, place, place))
  t.equal({err, code}, {"", 0})
  t.equal(out, "sub1 = {3, 3}\n[float32 2 cpu]\nadd1 = {7, 9}\n[float32 2 cpu]\nmul1 = {10, 18}\n[float32 2 cpu]\n")
  out, err, code = t.run(("run '%s/two' --input '%s/x.npy' --input '%s/y.npy' --output mul1='%s/m.npy'"):format(place, place, place, place))
  t.equal({out, err, code}, {"", "", 0})
  t.equal(pg.load(place .. "/m.npy"), x * y)
end)

t.test("run names what is wrong in one line", function()
  local place = export("wrong")
  local function wrong(args, message) fails(("run '%s/net' "):format(place) .. args:gsub("PLACE", place), (message:gsub("PLACE", place))) end
  wrong("", "run: --input data=FILE is missing (float32 2x4)")
  wrong("--input dat=x.npy", "run: the model has no input 'dat'; did you mean 'data'?")
  wrong("--input a.npy --input b.npy", "run: too many files of inputs (the model has 1: data)")
  wrong("--input data=a.npy --input data=b.npy", "run: the input 'data' has two files")
  wrong("--input no/such.npy", "run: no/such.npy: No such file or directory")
  wrong("--input 'PLACE/net.safetensors'", "run: PLACE/net.safetensors holds tensors by name, not one tensor")
  wrong("--input 'PLACE/x.npy' --output y.txt", "run: --output y.txt: the path of a .npy file expected")
  wrong("--input 'PLACE/x.npy' --output no/such.npy", "save: no/such.npy: cannot create a file in its folder: No such file or directory")
  os.execute("rm '" .. place .. "/net.safetensors'")
  wrong("--input 'PLACE/x.npy'", "PLACE/net.json: there is no .safetensors file with '1.weight' beside it")
  fails("run no/such", "cannot open 'no/such': No such file or directory (nor is there 'no/such.json')")
end)

t.test("pg.utils.plot draws what it can and names what it cannot", function()
  for _, x in ipairs{{1, 2}, {1e308, -1e308}, {5}, {1, 0 / 0, 2}, {{1, 2}, {3, 4}}} do
    for _, kind in ipairs{"line", "hist"} do t.check(not pg.utils.plot(x, kind):find("nan")) end
  end
  t.error_contains(function() pg.utils.plot({1, 2}, "foo") end, 'plot: expected "line", "hist", "heat" or "image" as kind, got "foo"')
  t.error_contains(function() pg.utils.plot({}) end, "plot: the tensor is empty")
  t.error_contains(function() pg.utils.plot("x") end, "plot: expected a tensor or a list of numbers, got \"x\"")
  t.error_contains(function() pg.utils.plot({0 / 0}) end, "plot: no finite element")
end)
