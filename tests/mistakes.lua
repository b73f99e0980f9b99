-- Runs the mistakes of beginners and compares the full text of each error: see tests/lua/test_mistakes_*.lua.
local t = require "tests.support"
local pg = require "perigee"
local mistakes = {}

-- What the code of a mistake may use. Line 1 of the code is line 1 of the chunk "script".
function mistakes.names()
  local nn, loss, optim, data = pg.nn, pg.loss, pg.optim, pg.data
  local x, y = pg.tensor{{1, 2, 3}, {4, 5, 6}}, pg.ones(2, 3)
  local labels = pg.tensor({1, 2}, {dtype = "int64"})
  local net = nn.HybridSequential{nn.Dense(4, {activation = "relu"}), nn.Dense(3)}
  net:initialize("zeros")
  local ds = data.ArrayDataset(x, labels)
  return setmetatable({
    pg = pg, nn = nn, loss = loss, optim = optim, data = data, x = x, y = y, labels = labels, net = net, ds = ds,
    scores = net(x), w = pg.ones(4, 3), b = pg.ones(4), a = pg.ones(2, 3, 4), image = pg.ones(1, 2, 8, 8),
    trainer = optim.Trainer(net, "sgd", {learning_rate = 0.1}), loader = data.DataLoader(ds, {batch_size = 2}),
    metric = pg.metric.Accuracy(), fresh = function() return nn.HybridSequential{nn.Dense(4), nn.Dense(3)} end,
    loss_fn = loss.SoftmaxCrossEntropyLoss(),
  }, {__index = _G})
end

local function message_of(f, ...)
  local ok, message = t.pcall(f, ...)
  if ok then return "no error" end
  return (tostring(message):gsub("\n.*", ""):gsub("^script:%d+: ", ""))
end

-- The error of the code when it runs as plain Lua.
local function plain(code)
  local f = assert(loadstring(code, "=script"))
  return message_of(setfenv(f, mistakes.names()))
end

-- The error of the code inside pg.jit.
local function traced(code)
  local names = mistakes.names()
  local f = pg.jit(setfenv(assert(loadstring("return function(x, y, labels) " .. code .. " end", "=script")), names)())
  return message_of(f, names.x, names.y, names.labels)
end

local prelude = [[
package.path = %q .. "/?.lua;" .. package.path
local names = require("tests.mistakes").names()
setfenv(assert(loadstring(%q, "=script")), names)()
]]

-- The error that the program prints, which has hints for errors of Lua itself.
local function printed(code)
  local text
  if loadstring(code) then text = prelude:format(t.root, code) else text = code end
  local path = t.write(t.tmp("script.lua"), text)
  local _, err = t.run("'" .. path .. "'")
  local line = err:match("^perigee: ([^\n]*)") or err
  return (line:gsub("^[^:]*script[^:]*:%d+: ", ""))
end

-- mistakes.message(code, in_program) -> the error of the code, as mistakes.check compares it.
function mistakes.message(code, in_program) return (in_program and printed or plain)(code) end

-- mistakes.check(title, cases[, options]): each case is {code, message}. The message is that of plain Lua; with
-- {traced = true} it is also that of pg.jit, and with {program = true} the one that the program prints.
function mistakes.check(title, cases, options)
  options = options or {}
  t.test("mistakes: " .. title, function()
    if options.program then for _, mode in ipairs{"gcstress", "guard"} do t.skip_in(mode, "processes of their own") end end
    local wrong = {}
    local function compare(how, got, case)
      if got ~= case[2] then wrong[#wrong + 1] = ("%s (%s)\n   got      %s\n   expected %s"):format(case[1], how, got, case[2]) end
    end
    for _, case in ipairs(cases) do
      compare(options.program and "program" or "plain", mistakes.message(case[1], options.program), case)
      if options.traced and not case.plain then compare("pg.jit", traced(case[1]), case) end
    end
    if wrong[1] then error("\n" .. table.concat(wrong, "\n"), 0) end
  end)
end

local function quoted(s)
  local bars = (s:find("]]", 1, true) or s:sub(-1) == "]") and "=" or ""
  return "[" .. bars .. "[" .. s .. "]" .. bars .. "]"
end

-- Writes what each mistake of a file says now in place of what it said: build/perigee tests/mistakes.lua FILE…
local function rewrite(path)
  local out = {t.read(path):match("^.-require \"tests.mistakes\"\n")}
  mistakes.check = function(title, cases, options)
    out[#out + 1] = ("\nmistakes.check(%q, {\n"):format(title)
    for _, case in ipairs(cases) do
      local message = mistakes.message(case[1], options and options.program)
      local plain_only = options and options.traced and traced(case[1]) ~= message
      out[#out + 1] = ("  {%s,\n   %s%s},\n"):format(quoted(case[1]), quoted(message), plain_only and ", plain = true" or "")
    end
    local name = options and next(options)
    out[#out + 1] = "}" .. (name and ", {" .. name .. " = true}" or "") .. ")\n"
  end
  dofile(path)
  t.write(path, table.concat(out))
end

if arg and arg[0]:find("mistakes%.lua$") then
  package.loaded["tests.mistakes"] = mistakes
  for _, path in ipairs(arg) do rewrite(path) end
end

return mistakes
