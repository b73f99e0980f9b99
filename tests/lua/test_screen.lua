-- Drives the prompt in a terminal emulator, tmux, and compares the screens with tests/golden/screens.txt. With
-- PERIGEE_WRITE_SCREENS=1 the test writes the file anew.
local t = require "tests.support"
if t.mode ~= "eager" then t.skip("the modes are those of another process") end
if t.sanitized then t.skip("takes the time that the screens are waited for") end
if os.execute("command -v tmux >/dev/null 2>&1") ~= 0 then t.skip("there is no tmux") end

local path = t.root .. "/tests/golden/screens.txt"
local writes = os.getenv("PERIGEE_WRITE_SCREENS") ~= nil

local function read_screens()
  local screens, name = {}, nil
  for line in t.read(path):gmatch("([^\n]*)\n") do
    local title = line:match("^== (.*)$")
    if title then name, screens[title] = title, ""
    elseif name then screens[name] = screens[name] .. line .. "\n" end
  end
  return screens
end

local function quote(text) return "'" .. text:gsub("'", "'\\''") .. "'" end

-- A terminal of its own server, so that no setting of the user's tmux matters. Each has another socket: a server
-- that was told to end takes connections for a while.
local Terminal = {}
Terminal.__index = Terminal
local servers = 0

local function open(width, height, environment)
  local home = t.tmp("home")
  os.execute("rm -rf " .. quote(home) .. " && mkdir -p " .. quote(home))
  t.write(home .. "/twice.lua", "function twice(x) return x * 2 end\nlocal secret = 21\nprint(twice(secret))\n")
  t.write(home .. "/fails.lua", "local function inner(x)\n  return x.a.b\nend\ninner({})\n")
  t.write(home .. "/editor", "#!/bin/sh\nsed -i s/1/40/ \"$1\"\n")
  os.execute("chmod +x " .. quote(home .. "/editor"))
  servers = servers + 1
  local self = setmetatable({server = "tmux -f /dev/null -S " .. quote(t.tmp("server" .. servers))}, Terminal)
  self:tmux(("new-session -d -x %d -y %d -c %s 'env HOME=%s XDG_STATE_HOME=%s EDITOR=%s/editor NO_COLOR= %s %s'"):format(
    width, height, quote(home), home, home, home, environment or "", t.program))
  return self
end

function Terminal:tmux(command)
  local out, err, code = t.shell(self.server .. " " .. command)
  if code ~= 0 then error("tmux " .. command .. ": " .. err, 0) end
  return out
end

function Terminal:screen(colours) return (self:tmux("capture-pane -p" .. (colours and " -e" or "")):gsub("[ \t]+\n", "\n"):gsub("\n+$", "\n")) end

local function pause(seconds) os.execute("sleep " .. seconds) end

-- Waits until the screen has not changed for a while.
function Terminal:settle()
  local before
  for _ = 1, 100 do
    local now = self:screen()
    if now == before and now:find("%S") then return end
    before = now
    pause(writes and 0.4 or 0.05)
  end
end

-- Whether the program reads keys: then its terminal passes on each key instead of lines.
function Terminal:is_reading()
  self.tty = self.tty or self:tmux("display-message -p '#{pane_tty}'"):gsub("%s", "")
  local settings = t.shell("stty -a < " .. self.tty)
  return settings:find("-icanon", 1, true) ~= nil
end

-- Waits until condition() holds. The limit ends a test that hangs, and the screens then differ.
local function wait_for(condition)
  for _ = 1, 6000 do
    if condition() then return end
    pause(0.05)
  end
end

-- Waits until keys are read and the last line is an empty prompt, on a screen other than `before`.
function Terminal:wait_for_prompt(before)
  wait_for(function()
    local now = self:screen()
    return now ~= before and ("\n" .. now):find("\n>>?\n$") and self:is_reading()
  end)
end

-- Types texts; those in <> are keys of tmux, or pasted by the terminal as <paste …>. After <Enter> there must be a
-- prompt; after <Enter!> the program must run.
function Terminal:type(...)
  for _, text in ipairs{...} do
    local key, pasted = text:match("^<(.-)!?>$"), text:match("^<paste (.*)>$")
    local before = self:screen()
    if pasted then self:tmux("set-buffer -- " .. quote(pasted) .. " \\; paste-buffer -p -d")
    else self:tmux(key and "send-keys " .. key or "send-keys -l -- " .. quote(text)) end
    if text == "<Enter>" or pasted and pasted:find("\n$") then self:wait_for_prompt(before)
    elseif text == "<Enter!>" then wait_for(function() return not self:is_reading() end)
    else self:settle() end
  end
end

local written = {}

-- Compares the screen after these keys with the golden one of this name.
local function check(name, options, ...)
  local keys = {...}
  t.test(name, function()
    local terminal = open(options.width or 80, options.height or 24, options.environment)
    local expected, screen = read_screens()[name], nil
    local ok, e = pcall(function()
      terminal:wait_for_prompt()
      terminal:type(unpack(keys))
      for _ = 1, 200 do
        screen = terminal:screen(options.colours):gsub("LuaJIT [^)]*", "LuaJIT")
        if screen == expected or writes then break end
        pause(0.1)
      end
    end)
    t.shell(terminal.server .. " kill-server")
    if not ok then error(e, 0) end
    written[#written + 1] = "== " .. name .. "\n" .. screen
    if writes then return end
    if screen ~= expected then error("the screen is\n" .. screen .. "\nexpected\n" .. tostring(expected), 0) end
  end)
end

check("a tensor and a table", {}, "x = pg.tensor{{1, 2}, {3, 4}}", "<Enter>", "x * 2", "<Enter>", "{x = x, 1, 2}", "<Enter>", 'print("x", x)', "<Enter>")
check("completion of a name, and the list of several", {}, "pg.nn.Den", "<Tab>", "(2)", "<Enter>", "pg.cum", "<Tab>", "<Tab>")
check("completion of options", {}, "pg.nn.Dense(10, {use", "<Tab>", "false, acti", "<Tab>", '"relu"})', "<Enter>")
check("completion of files", {}, 'dofile("tw', "<Tab>", '")', "<Enter>", ":load fa", "<Tab>", "<Enter>")
check("completion of parameters' paths", {}, "p = pg.nn.Dense(1, {in_units = 1}):initialize('one'):collect_params()", "<Enter>", 'p["wei', "<Tab>", '"]', "<Enter>")
check("completion of commands", {}, ":st", "<Tab>", "pg.tensor{1, 2, 3}", "<Enter>", ":p", "<Tab>", "<Tab>")
check("a signature is shown while arguments are typed", {width = 100}, "pg.conv2d(")
check("a signature of a script's function", {}, "local function scale(x, factor) return x * factor end", "<Enter>", "scale(")
check("errors have the source line, in colours", {colours = true}, "x = pg.ones(2)", "<Enter>", "x:nothing()", "<Enter>", ":load fails.lua", "<Enter>")
check("NO_COLOR is respected", {colours = true, environment = "NO_COLOR=1"}, "x:nothing()", "<Enter>")
check("history has an entry of several lines as one block", {}, "for i = 1, 2 do", "<Enter>", "print(i)", "<Enter>", "end", "<Enter>", "1", "<Enter>", "<Up>", "<Up>", "<Enter>")
check("Ctrl-C ends a line and a loop", {}, "this is wrong", "<C-c>", "while true do end", "<Enter!>", "<C-c>", "'alive'", "<Enter>")
check("a pasted block is one entry", {}, "<paste local p = {5}\nlocal q = p[1]\n  + 1\nprint(q)\n>", "q", "<Enter>", "<Up>", "<Up>")
check("README's first block, pasted", {height = 40}, "<paste " .. t.read(t.root .. "/README.md"):match("```lua\n(.-)```") .. ">", "1 + 1", "<Enter>")
check("results and locals", {}, "local a, b = 1, 2", "<Enter>", "a + b", "<Enter>", "_ + _1", "<Enter>")
check("a heat map in colours", {colours = true}, ":plot heat pg.tensor{{0, 1, 2}, {3, 4, 5}}", "<Enter>")
check("a net as a tree", {}, "net = pg.nn.HybridSequential()", "<Enter>", "net:add(pg.nn.Conv2D(8, 3, {in_channels = 1}), pg.nn.Flatten(), pg.nn.Dense(10));", "<Enter>", "net:initialize();", "<Enter>", "net", "<Enter>")
check("search and help", {height = 30}, "??softplus", "<Enter>", "?relu", "<Enter>")
check("a shell command", {}, "!ls *.lua", "<Enter>", "!exit 2", "<Enter>")
check("edit with an editor", {}, "1 + 2", "<Enter>", ":edit", "<Enter>")

if writes then t.write(path, table.concat(written)) end
