-- The options of the program, the texts that are made of their table, and the end of the program.
local t = require "tests.support"

local function expect(args, out, err, code, input)
  local o, e, c = t.run(args, input)
  local function same(got, wanted, what)
    local ok = type(wanted) == "table" and #wanted > 0
    for _, part in ipairs(ok and wanted or {}) do ok = ok and got:find(part, 1, true) end
    if not ok and got ~= wanted then t.fail(what .. " of " .. args .. ": got " .. t.show(got) .. ", expected " .. t.show(wanted), nil, 4) end
  end
  same(o, out, "output")
  same(e, err, "error output")
  t.equal(c, code, "exit code of " .. args)
end

-- The program with environment variables and shell syntax after its arguments.
local function shell(text) return t.shell("cd '" .. t.root .. "' && " .. text:gsub("PROGRAM", "'" .. t.program .. "'")) end

local function script(name, text) return "'" .. t.write(t.tmp(name), text) .. "'" end

t.test("-j turns the compiler on and off", function()
  expect("-j off -e 'print((jit.status()))'", "false\n", "", 0)
  expect("-joff -e 'print((jit.status()))'", "false\n", "", 0)
  expect("-j on -e 'print((jit.status()))'", "true\n", "", 0)
  expect("-j maybe", "", "perigee: -j: expected on or off, got 'maybe'\n", 1)
end)

t.test("-b is refused", function() expect("-b x.lua out", "", {"perigee: -b: bytecode is not saved"}, 1) end)

t.test("options in other forms", function()
  expect("-iv", {"perigee "}, "", 0)
  expect("-e'print(1)'", "1\n", "", 0)
  expect("--seed=3 -e 'print(1)'", "1\n", "", 0)
  expect("--strict=1", "", "perigee: --strict takes no value\n", 1)
end)

t.test("unknown options and missing arguments are named", function()
  expect("--sed 3", "", {"perigee: unknown option '--sed'; did you mean '--seed'? (perigee -h lists the options)"}, 1)
  expect("--seed", "", "perigee: --seed: N is missing\n", 1)
  expect("test --dot x", "", {"unknown option '--dot' (perigee test -h lists the options)"}, 1)
  expect("-i test", "", {"-i is no option of the sub-command test (./test runs a script)"}, 1)
  expect("tset", "", {"perigee: cannot open 'tset': No such file or directory; did you mean the sub-command 'test'?"}, 1)
end)

t.test("--threads and --seed", function()
  expect("--threads 3 -e 'print(pg.get_num_threads())'", "3\n", "", 0)
  expect("--threads 0", "", "perigee: --threads: expected 1 to 1024, got 0\n", 1)
  expect("--threads two", "", "perigee: --threads: expected a whole number, got 'two'\n", 1)
  expect("--seed x", "", "perigee: --seed: expected a whole number, got 'x'\n", 1)
  expect("--seed -1", "", "perigee: --seed: expected a whole number, got '-1'\n", 1)
  local text = "-e 'print(pg.rand(3), math.random())'"
  local first = t.run("--seed 7 " .. text)
  t.equal(t.run("--seed 7 " .. text), first)
  t.check(t.run("--seed 8 " .. text) ~= first)
  local path = script("seeded.lua", "local pg = require 'perigee' print(pg.rand(3):totable()[1])")
  t.equal(t.run("--sandbox --seed 7 " .. path), t.run("--seed 7 " .. path))
end)

t.test("--time", function()
  local pattern = "^perigee: time: %d+%.%d+ s wall, %d+%.%d+ s processor, %d+%.%d MB peak memory\n$"
  local _, err, code = t.run("--time -e 'x = 1'")
  t.check(err:find(pattern), err)
  t.equal(code, 0)
  for _, text in ipairs{"error('no')", "os.exit(1)", "pg.ones(2) os.exit(1, true)"} do
    _, err, code = t.run('--time -e "' .. text .. '"')
    t.check(("\n" .. err):find("\n" .. pattern:sub(2)), err)
    t.equal(code, 1)
  end
end)

t.test("--strict: undeclared globals are errors with their line", function()
  expect("--strict " .. script("strict.lua", "count = 1\nlocal function f() return cuont end\nf()"), "",
    {"perigee: ", "strict.lua:2: undeclared global 'cuont' (did you mean 'count'?)", "strict.lua:3: in main chunk"}, 1)
  expect("--strict " .. script("assign.lua", "\nlocal function f() made_here = 1 end\nf()"), "", {"assign.lua:2: undeclared global 'made_here'"}, 1)
  expect("--strict " .. script("main.lua", "\n\nprint(never_made)"), "", {"main.lua:3: undeclared global 'never_made'"}, 1)
  t.write(t.tmp("strict_module.lua"), "local M = {} shared_name = 1 function M.f() return shared_name, rawget(_G, 'absent'), _ENV end return M")
  expect("--strict " .. script("fine.lua", [[
    known = nil
    local function f() known = known or 2 return known end
    print(f(), require("strict_module").f())
    local pg = require "perigee"
    local net = pg.nn.HybridSequential{pg.nn.Dense(2)}
    net:initialize()
    net:hybridize()
    print(net(pg.ones(1, 3)).shape[2], pg.jit(function(x) return x * known end)(pg.ones(2)):sum():item())
  ]]), "2\t1\tnil\tnil\n2\t4\n", "", 0)
end)

t.test("environment variables, and -E", function()
  local folder = t.tmp()
  t.write(folder .. "/from_path.lua", "return 'found'")
  t.equal({shell("LUA_PATH='" .. folder .. "/?.lua' PROGRAM -e 'print(require(\"from_path\"))'")}, {"found\n", "", 0})
  local out, err, code = shell("LUA_PATH='" .. folder .. "/?.lua' LUA_CPATH='/none/?.so' PROGRAM -E -e 'print(package.path, package.cpath)'")
  t.check(not out:find(folder, 1, true) and not out:find("/none", 1, true), out)
  t.equal({err, code}, {"", 0})
  t.equal({shell("LUA_INIT='first = pg' PERIGEE_INIT='second = pg.version' PROGRAM -e 'print(first, second == pg.version)'")},
    {"nil\ttrue\n", "", 0})
  local file = t.write(folder .. "/init.lua", "made = 5")
  local path = script("made.lua", "print(made, pg, help)")
  t.equal({shell("LUA_INIT='@" .. file .. "' PERIGEE_INIT='made = made + pg.ones(1):item()' PROGRAM " .. path)}, {"6\tnil\tnil\n", "", 0})
  t.equal({shell("LUA_INIT='@" .. file .. "' PERIGEE_INIT='made = 1' PROGRAM -E " .. path)}, {"nil\tnil\tnil\n", "", 0})
end)

t.test("errors in the variables end the program", function()
  local out, err, code = shell("LUA_INIT='error(\"no\")' PROGRAM -e 'print(1)'")
  t.equal({out, code}, {"", 1})
  t.check(err:find("^perigee: LUA_INIT:1: no\n"), err)
  out, err, code = shell("PERIGEE_INIT='x = = 1' PROGRAM -e 'print(1)'")
  t.equal({out, code}, {"", 1})
  t.check(err:find("^perigee: PERIGEE_INIT:1: unexpected symbol"), err)
  t.equal({shell("LUA_INIT=@no/such PROGRAM -e 'print(1)'")}, {"", "perigee: cannot open 'no/such': No such file or directory\n", 1})
end)

t.test("scripts that cannot be read are one line", function()
  for _, option in ipairs{"", "--sandbox "} do
    expect(option .. "no/such.lua", "", "perigee: cannot open 'no/such.lua': No such file or directory\n", 1)
    expect(option .. "tests", "", "perigee: cannot open 'tests': Is a directory\n", 1)
    expect(option .. "README.md/x.lua", "", "perigee: cannot open 'README.md/x.lua': Not a directory\n", 1)
  end
end)

t.test("--sandbox names the options that do not go with it", function()
  expect("--sandbox -e 'x = 1'", "", "perigee: -e does not go with --sandbox\n", 1)
  expect("--sandbox", "", {"perigee: --sandbox: the script is missing"}, 1)
  expect("--sandbox --time - a", "a\n", {"perigee: time: "}, 0, "print(arg[1])")
end)

t.test("a script with the name of a sub-command", function()
  local folder = t.tmp("named")
  os.execute("mkdir -p '" .. folder .. "'")
  t.write(folder .. "/show", "print('script', ...)")
  local program = t.program:sub(1, 1) == "/" and t.program or "$OLDPWD/" .. t.program
  local function run(args) return shell("cd '" .. folder .. "' && '" .. program .. "' " .. args) end
  t.equal(run("./show a"), "script\ta\n")
  t.equal(run("-- show a"), "script\ta\n")
  local _, err, code = run("show")
  t.equal({err, code}, {"perigee: show: MODEL is missing (perigee show -h shows how; ./show runs the script of that name)\n", 1})
end)

t.test("lost output is reported", function()
  if not t.exists("/dev/full") then t.skip("no /dev/full") end
  local full = "perigee: cannot write to standard output: No space left on device; output was lost\n"
  for _, text in ipairs{"print(1)", "for i = 1, 1e5 do print(i) end", "print(1) os.exit(0)", "io.write(1) os.exit(3, true)"} do
    t.equal({shell("PROGRAM -e '" .. text .. "' >/dev/full")}, {"", full, 1})
  end
  t.equal({shell("PROGRAM -h >/dev/full")}, {"", full, 1})
  t.equal({shell("echo 'print(1)' | PROGRAM --sandbox - >/dev/full")}, {"", full, 1})
  t.equal({shell("PROGRAM -e 'print(1)' >&-")}, {"", (full:gsub("No space left on device", "Bad file descriptor")), 1})
  t.equal({shell("PROGRAM -e 'x = 1' >&-")}, {"", "", 0})
end)

t.test("a closed standard output ends the program", function()
  local out, err = shell("{ PROGRAM -e 'print(1) while true do print(2) end'; echo $? >&2; } | head -1")
  t.equal({out, err}, {"1\n", "perigee: cannot write to standard output: Broken pipe; output was lost\n1\n"})
  -- In compiled code LuaJIT repeats a failed write, which then only fills the buffer.
  expect([[-j off -e 'local f = io.popen("exit 0", "w") local ok, why for _ = 1, 1e5 do ok, why = f:write(("x"):rep(1000)) if not ok then break end end print(ok, why)']],
    "nil\tBroken pipe\n", "", 0)
  t.equal(shell([[PROGRAM -e 'os.execute("kill -PIPE $$; echo survived")']]), "")  -- children have the default handling
end)

t.test("a write beyond the limit of a file's size fails", function()
  local path = t.tmp("limited") .. ".npy"
  local source = ([[pg.save('%s', pg.ones(4)) print(pcall(pg.save, '%s', pg.ones(1000000)))
    print(pg.load('%s'):sum():item())]]):format(path, path, path):gsub("\n%s*", " ")
  local out, err, code = shell(('ulimit -f 100; PROGRAM -e "%s"'):format(source))
  t.check(out:find("^false\t.*File too large.*\n4\n$"), out)
  t.equal({err, code}, {"", 0})
end)

t.test("--profile writes a trace, also when the script fails or exits", function()
  if not t.exists(t.root .. "/stdlib/profile.lua") then t.skip("there is no profiler") end
  for i, text in ipairs{"x = 1", "error('no')", "os.exit(1)"} do
    local path = t.tmp("trace" .. i .. ".json")
    local _, _, code = t.run(("--profile '%s' -e \"local y = pg.ones(2) + 1 %s\""):format(path, text))
    t.equal(code, i == 1 and 0 or 1)
    t.check(t.read(path):find("^%s*[%[{].*[%]}]%s*$"), t.read(path))
  end
end)

-- The names of options in the help of a command.
local function options_of(command)
  local text, names = t.run(command .. " -h"), {}
  for line in text:match("\nOptions:\n(.-)\n\n"):gmatch("[^\n]+") do
    for name in line:match("^  (.-)  "):gmatch("%-+%w+") do names[#names + 1] = name end
  end
  return names
end

local commands = {"", "test", "bench", "show", "run"}

t.test("-h of the program and of each sub-command", function()
  for _, command in ipairs(commands) do
    local out, err, code = t.run(command .. " -h")
    t.equal({err, code}, {"", 0})
    t.check(out:find("Usage: perigee " .. (command == "" and "" or command .. " ") .. "[options]", 1, true), out)
    t.check(out:find("exit code", 1, true), out)
    t.check(#options_of(command) > 2)
    for line in out:gmatch("[^\n]+") do t.check(#line <= 110, line) end
  end
end)

t.test("the manual page has every option and can be formatted", function()
  local page = t.run("--generate man")
  local plain = page:gsub("\\%-", "-")
  for _, command in ipairs(commands) do
    for _, name in ipairs(options_of(command)) do t.check(plain:find(name, 1, true), name) end
  end
  if select(3, t.shell("command -v groff")) ~= 0 then t.skip("groff is not installed") end
  local text, err, code = t.shell("groff -man -Tutf8 -ww '" .. t.write(t.tmp("perigee.1"), page) .. "'")
  t.equal({err, code}, {"", 0})
  t.check(text:find("perigee - Lua with autodiff tensors", 1, true), text)
end)

t.test("completion for bash", function()
  if select(3, t.shell("command -v bash")) ~= 0 then t.skip("bash is not installed") end
  local path = t.write(t.tmp("completion"), (t.run("--generate bash")))
  t.equal({t.shell("bash -n '" .. path .. "'")}, {"", "", 0})
  -- Returns the completions of the last word.
  local function complete(words)
    local text = "source '%s'; cd '%s'; COMP_WORDS=(perigee %s); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _perigee; printf '%%s\\n' \"${COMPREPLY[@]}\""
    local out, err = t.shell("bash -c " .. "'" .. text:format(path, t.root, words):gsub("'", "'\\''") .. "'")
    t.equal(err, "")
    local list = {}
    for line in out:gmatch("[^\n]+") do list[#list + 1] = line end
    table.sort(list)
    return list
  end
  for _, command in ipairs(commands) do
    local names = options_of(command)
    table.sort(names)
    t.equal(complete(command .. " -"), names)
  end
  t.equal(complete("te"), {"tensor", "test", "tests"})
  t.equal(complete("--see"), {"--seed"})
  t.equal(complete("-j ''"), {"off", "on"})
  t.equal(complete("-j off sh"), {"show"})
  t.equal(complete("--threads ''"), {})
  t.equal(complete("show READ"), {"README.md"})
  t.equal(complete("run m --input READ"), {"README.md"})
  t.equal(complete("run m --input x=READ"), {"README.md"})
  t.equal(complete("script.lua --se"), {})
  t.equal(complete("-- te"), {"tensor", "tests"})
end)

t.test("completion for zsh", function()
  local text = t.run("--generate zsh")
  t.check(text:find("^#compdef perigee\n"), text)
  for _, command in ipairs(commands) do
    for _, name in ipairs(options_of(command)) do t.check(text:find("'*" .. name .. "[", 1, true), name) end
  end
  if select(3, t.shell("command -v zsh")) ~= 0 then t.skip("zsh is not installed") end
  t.equal({t.shell("zsh -n '" .. t.write(t.tmp("_perigee"), text) .. "'")}, {"", "", 0})
end)

t.test("a warning about the text of -e has its position once", function()
  local text = [[local pg = require "perigee"; pg.jit(function(x) if x:gt(0):all() then return x end return -x end)(pg.ones(2))]]
  t.warns("^%(command line%):1: a branch on a bool tensor", t.run, "-e '" .. text .. "'")
end)
