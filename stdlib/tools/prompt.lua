-- The commands of the prompt: `:time f()`, `?name`, `name?`, `??word` and `!command`. `host` is what the program offers:
-- load(text[, chunk name]) returns a function that sees the session's locals, or nil and the message; entries is the
-- list of what ran without an error, {text =, result = the number of its result}; globals has the global variables
-- from when the session began; forget() drops the session's locals and results.
local core = ...
local units = core.require("support.units")
local pg, seconds, bytes, width = core.pg, units.seconds, units.bytes, units.width
local prompt = {}

-- The session may change the globals.
local print, tostring, type, ipairs, pairs, error, pcall = print, tostring, type, ipairs, pairs, error, pcall
local io, os, math, table, debug, collectgarbage, rawset, unpack = io, os, math, table, debug, collectgarbage, rawset, unpack
local getmetatable, loadstring, select, globals = getmetatable, loadstring, select, _G

local commands = {}    -- in the order in which `:help` lists them
local by_name = {}

-- Adds a command. run(host, text) gets the text after its name; what it returns is shown as results.
local function command(name, argument, text, run)
  by_name[name] = {name = name, argument = argument, text = text, run = run}
  commands[#commands + 1] = by_name[name]
end

local function fail(format, ...) error(format:format(...), 0) end

local function compiled(host, name, text)
  if text == "" then fail(":%s needs code: :%s %s", name, name, by_name[name].argument) end
  local f, message = host.load(text)
  if not f then fail("%s", message) end
  return f
end

local function pack(...) return {n = select("#", ...), ...} end

-- Tables ------------------------------------------------------------------------------------------------------------------

-- Prints rows {name, text} as two columns.
local function rows(list)
  local longest = 0
  for _, row in ipairs(list) do longest = math.max(longest, width(row[1])) end
  for _, row in ipairs(list) do print("  " .. row[1] .. (" "):rep(longest - width(row[1]) + 2) .. row[2]) end
end

-- Time and memory ---------------------------------------------------------------------------------------------------------

local measure = core.require("tools.measure")

command("time", "CODE", "run it once; wall and processor time", function(host, text)
  local f = compiled(host, "time", text)
  local clock, wall = os.clock(), measure.now()
  local results = pack(f())
  pg.synchronize()
  local took, processor = measure.now() - wall, os.clock() - clock
  print(("%s (processor time %s)"):format(seconds(took), seconds(processor)))
  return unpack(results, 1, results.n)
end)

local function one_row(name, m)
  return {name, ("%s median, %s fastest, %s slowest tenth; %d x %d runs"):format(
    seconds(m.median), seconds(m.fastest), seconds(m.slow), m.batches, m.runs)}
end

command("bench", "CODE [vs CODE]", "run it again and again; compare with a second piece of code", function(host, text)
  local first, second = text:match("^(.-)%s+vs%s+(.+)$")
  local list = {first or text, second}
  local functions = {}
  for i, code in ipairs(list) do functions[i] = compiled(host, "bench", code) end
  local results = measure.functions(functions, {seconds = 0.5})
  local out = {}
  for i, code in ipairs(list) do out[i] = one_row(code, results[i]) end
  rows(out)
  if second then
    local ratio = results[2].median / results[1].median
    print(ratio >= 1 and ("  the first is %.2f times as fast"):format(ratio) or ("  the second is %.2f times as fast"):format(1 / ratio))
  end
end)

command("profile", "CODE", "run it once; time by op, kernel and line", function(host, text)
  print((pg.profile(compiled(host, "profile", text))))
end)

command("mem", "[CODE]", "memory of tensors and of Lua, or what running the code adds", function(host, text)
  collectgarbage()
  local before, lua = pg.memory(), collectgarbage("count") * 1024
  if text == "" then
    return rows{{"tensors", ("%d, %s"):format(before.tensors, bytes(before.live))}, {"kept for reuse", bytes(before.cached)},
                {"peak", bytes(before.peak)}, {"Lua", bytes(lua)}}
  end
  local results = pack(compiled(host, "mem", text)())
  pg.synchronize()
  local peak = pg.memory().peak
  collectgarbage()
  local after = pg.memory()
  rows{{"tensors", ("%+d, %s"):format(after.tensors - before.tensors, bytes(after.live - before.live))},
       {"peak", peak > before.peak and bytes(peak) .. " (higher than before)" or "not higher than before"},
       {"Lua", bytes(collectgarbage("count") * 1024 - lua)}}
  return unpack(results, 1, results.n)
end)

-- Looking at things -------------------------------------------------------------------------------------------------------

local function value_of(host, name, text) return compiled(host, name, text)() end

command("graph", "NET", "the graph of its last call, one line an op", function(host, text)
  local net = value_of(host, "graph", text)
  local kind = pg.type(net)
  if kind == "graph" then print((tostring(net):gsub("\n$", "")))
  elseif type(net) == "table" and net.graph then print((tostring(net:graph()):gsub("\n$", "")))
  else fail(":graph needs a hybridized block, a jitted function or a graph (got %s)", kind) end
end)

-- Says that a function was traced, and why again.
local function tell_trace(cache, _, _, reason)
  print("-- " .. cache.name .. (reason == "" and ": traced" or ": traced again, because " .. reason))
end

command("trace", "on | off | CODE", "tell each trace and its reason, or print what each op of CODE got and gave", function(host, text)
  local watchers = core.require("hybrid.cache").watchers
  if text == "on" then watchers.prompt = tell_trace
  elseif text == "off" then watchers.prompt = nil
  else return pg.trace(compiled(host, "trace", text)) end
end)

local function statistics(x)
  local out = {{"type", ("%s %s %s, %s"):format(x.dtype, #x.shape > 0 and table.concat(x.shape, "x") or "0-dim", x.device,
    bytes(x:numel() * (tonumber(x.dtype:match("%d+$")) or 8) / 8))}}
  local function add(name, value) out[#out + 1] = {name, value} end
  if x:numel() == 0 then return out end
  local y = pg.pause(function() return x:flatten():to{dtype = "float64"} end)
  local finite = y:isfinite()
  local count = finite:sum():item()
  if count < y:numel() then
    add("not finite", ("%d NaN, %d infinite"):format(y:isnan():sum():item(), y:isinf():sum():item()))
    y = y:masked_select(finite)
  end
  if count == 0 then return out end
  local function number(v) return ("%.6g"):format(v:item()) end
  add("mean", number(y:mean()) .. ", standard deviation " .. (count > 1 and number(y:std()) or "0"))
  local parts = {}
  for _, q in ipairs{0, 0.25, 0.5, 0.75, 1} do parts[#parts + 1] = number(y:quantile(q)) end
  add("quartiles", table.concat(parts, ", "))
  add("zeros", ("%d of %d"):format(y:eq(0):sum():item(), x:numel()))
  return out
end

command("stats", "TENSOR", "its type, range, mean, quartiles and what is not finite", function(host, text)
  local x = value_of(host, "stats", text)
  if not pg.is_tensor(x) then fail(":stats needs a tensor (got %s)", core.describe(x)) end
  rows(statistics(x))
end)

command("plot", "[line | hist | heat | image] TENSOR", "draw it in the terminal", function(host, text)
  local kind, rest = text:match("^(%l+)%s+(.+)$")
  local plot = core.require("tools.plot")
  if not plot.kinds[kind] then kind, rest = nil, text end
  print(plot.text(value_of(host, "plot", rest), kind))
end)

-- Files and the session ---------------------------------------------------------------------------------------------------

local watched = {}   -- path → text of a file that `:load` has run

local function read(path)
  local file, message = io.open(path, "r")
  local text = file and file:read("*a")
  if file then file:close() end
  if not text then fail("cannot read %s", message or path) end
  return text
end

local function load_file(host, path)
  local text = read(path)
  watched[path] = text
  local f, message = host.load(text:gsub("^#[^\n]*", ""), "@" .. path)
  if not f then fail("%s", message) end
  return f()
end

command("load", "FILE", "run a file as if it was typed; run it again when it changes", function(host, path)
  if path == "" then fail(":load needs a file: :load FILE") end
  if not watched[path] then host.entries[#host.entries + 1] = {text = ("dofile(%q)"):format(path)} end
  return load_file(host, path)
end)

--- prompt.reload(host) runs the files again that `:load` has run, if their texts have changed.
function prompt.reload(host)
  for path, before in pairs(watched) do
    local file = io.open(path, "r")
    local text = file and file:read("*a")
    if file then file:close() end
    if text and text ~= before then
      print("-- " .. path .. " has changed: it runs again")
      load_file(host, path)
    end
  end
end

-- Returns the entries as a script. Expressions are printed, as at the prompt. Results that a later entry uses as _ or as
-- _n get that name.
local function script_of(entries)
  local lines, texts = {'local pg = require "perigee"'}, {}
  for i, entry in ipairs(entries) do texts[i] = entry.text end
  local all = table.concat(texts, "\n")
  if all:find("%f[%w_]help%s*%(") then lines[2] = "local help = pg.help" end
  local function used(name) return all:find("%f[%w_]" .. name .. "%f[^%w_]") ~= nil end
  for _, entry in ipairs(entries) do
    local text = entry.text:gsub("^%s*=", ""):gsub("^%s*return%f[%W]", "")
    local expression = text:gsub("[;%s]+$", "") .. (text:find("--", 1, true) and "\n" or "")
    local names = {}
    if entry.result and used("_" .. entry.result) then names[1] = "_" .. entry.result end
    if entry.result and used("_") then names[#names + 1] = "_" end
    if text:find("::", 1, true) then text = "do " .. text .. "\nend" end  -- a label must end its block
    local start = text:find("^%s*%(") and ";" or ""  -- else the line before would go on with a call
    if not loadstring("return " .. text) or loadstring(text) and not entry.result then lines[#lines + 1] = start .. text
    elseif not entry.result then lines[#lines + 1] = "do local _ = " .. expression .. " end"
    elseif not names[1] then lines[#lines + 1] = "print(" .. expression .. ")"
    else
      lines[#lines + 1] = ("%s = (function(...) print(...) return (...) end)(%s)"):format(names[1], expression)
      if names[2] then lines[#lines + 1] = names[2] .. " = " .. names[1] end
    end
  end
  return table.concat(lines, "\n") .. "\n"
end

command("save", "FILE", "write what was typed, without what failed, as a script", function(host, path)
  if path == "" then fail(":save needs a file: :save FILE") end
  local file, message = io.open(path, "w")
  if not file then fail("cannot write %s", message) end
  file:write(script_of(host.entries))
  local closed, why = file:close()
  if not closed then fail("cannot write %s: %s", path, why) end
  print(("%d entries in %s"):format(#host.entries, path))
end)

command("reset", "", "forget all variables and results of the session", function(host)
  for key in pairs(globals) do rawset(globals, key, host.globals[key]) end
  for key, value in pairs(host.globals) do rawset(globals, key, value) end
  for i = #host.entries, 1, -1 do host.entries[i] = nil end
  watched = {}
  host.forget()
  collectgarbage()
  collectgarbage()
end)

command("edit", "[FILE]", "edit a file, or the last entry, with $VISUAL or $EDITOR, then run it", function(host, path)
  local editor = os.getenv("VISUAL") or os.getenv("EDITOR") or "vi"
  local place = path ~= "" and path or os.tmpname()
  if path == "" then
    local file = assert(io.open(place, "w"))
    file:write((host.entries[#host.entries] or {text = ""}).text, "\n")
    file:close()
  end
  local status = os.execute(editor .. " '" .. place:gsub("'", "'\\''") .. "'")
  if status ~= 0 and path == "" then os.remove(place) end
  if status ~= 0 then fail("%s failed (set EDITOR to another editor)", editor) end
  local text = read(place)
  if path == "" then os.remove(place) end
  local f, message = host.load(text, path ~= "" and "@" .. path or nil)
  if not f then fail("%s", message) end
  print((text:gsub("%s+$", "")))
  host.entries[#host.entries + 1] = {text = text}
  return f()
end)

command("paste", "", "enter lines as one piece, up to a line with only a dot", function(host)
  local lines = {}
  for line in io.lines() do
    if line == "." then break end
    lines[#lines + 1] = line
  end
  local text = table.concat(lines, "\n")
  local f, message = host.load(text)
  if not f then fail("%s", message) end
  host.entries[#host.entries + 1] = {text = text}
  return f()
end)

command("help", "", "this list", function()
  local list = {}
  for i, c in ipairs(commands) do list[i] = {":" .. c.name .. (c.argument ~= "" and " " .. c.argument or ""), c.text} end
  for _, more in ipairs{{"?NAME, VALUE?, help(VALUE)", "its documentation with an example"}, {"??WORD", "everything about a word"},
                        {"!COMMAND", "run a command of the shell"}, {"_, _1, _2, …", "the last result, the first one, the second one, …"},
                        {"EXPRESSION;", "print no result"}, {"exit, quit, Ctrl-D", "leave"}} do
    list[#list + 1] = more
  end
  rows(list)
end)

-- Documentation -----------------------------------------------------------------------------------------------------------

-- Whether what is said of an item is said of another one: a method without text of its own, or an op in place.
local function is_detail(item, catalog)
  if catalog.in_place(item.name) then return true end
  local entry = item.class and catalog.entry(item.name, item.value, item.class)
  return entry ~= nil and entry.name:match("[^:]*$") ~= item.name:match("[^:]*$")
end

local function search(word)
  local catalog, documents = core.require("support.catalog"), core.require("support.documents")
  local found, seen = {}, {}
  local function matches(text) return text:lower():find(word:lower(), 1, true) end
  for _, item in ipairs(catalog.list()) do
    local name = item.name:gsub("^x:", "")
    local row = catalog.op(item.name)
    if is_detail(item, catalog) then seen[name] = true end
    local entry = row or catalog.entry(item.name, item.value, item.class)
    local text = entry and documents.summary(entry) or ""
    if not seen[name] and (matches(name) or matches(text) or (entry and matches(entry.doc or entry.text or ""))) then
      seen[name] = true
      found[#found + 1] = {(item.name:find("^x:") and "" or "pg.") .. item.name, documents.cut(text, 70)}
    end
  end
  if #found == 0 then fail("nothing about '%s'; help() lists the modules", word) end
  table.sort(found, function(a, b)
    local first, second = matches(a[1]) and 0 or 1, matches(b[1]) and 0 or 1
    if first ~= second then return first < second end
    return a[1] < b[1]
  end)
  local more = #found - 40
  for i = #found, 41, -1 do found[i] = nil end
  rows(found)
  if more > 0 then print(("  … and %d more"):format(more)) end
end

-- Says what arguments a function of a script has and where it was defined.
local function place_of(f)
  local info = debug.getinfo(f, "S")
  if info.what == "C" or info.source:find("^@stdlib/") then return nil end
  return ("%s, defined at %s:%d"):format(core.require("tools.arguments").signature(f), info.short_src, info.linedefined)
end

-- Prints what there is to say about a value of the session, or else about the name.
local function explain(host, text)
  local f = text ~= "" and host.load("return " .. text)
  local ok, value = false, nil
  if f then ok, value = pcall(f) end
  if text == "" then return pg.help() end
  if not ok or value == nil then return pg.help(text) end
  if pg.is_tensor(value) then
    print(tostring(value))
    rows(statistics(value))
    return print("help(x) lists its methods; ?sum explains one of them")
  end
  local place = type(value) == "function" and place_of(value)
  if place then return print(place) end
  local object = core.require("support.no_list").object(value)
  if type(value) == "function" or type(object) == "table" and getmetatable(object) then return pg.help(value) end
  print(type(value) .. ": " .. tostring(value))
end

-- Running -----------------------------------------------------------------------------------------------------------------

--- prompt.run(host, line) -> the results of a command, which are shown as those of an expression.
function prompt.run(host, line)
  line = line:match("^%s*(.-)%s*$")
  local first, rest = line:sub(1, 1), line:sub(2)
  if first == "!" then
    local status = os.execute(rest)
    if status ~= 0 then print(("-- exit code %d"):format(status >= 256 and status / 256 or status)) end
    return
  end
  if line:sub(1, 2) == "??" then return search(line:match("^%?%?%s*(.*)$")) end
  if first == "?" then return explain(host, rest:match("^%s*(.*)$")) end
  if line:sub(-1) == "?" then return explain(host, line:sub(1, -2)) end
  local name, text = line:match("^:(%a+)%s*(.*)$")
  local found = by_name[name]
  if not found then  -- a start that only one command has; no such start forgets the session
    local matches = {}
    for _, c in ipairs(commands) do if c.name:sub(1, #name) == name then matches[#matches + 1] = c end end
    found = #matches == 1 and matches[1].name ~= "reset" and matches[1] or nil
  end
  if not found then fail("no command :%s; :help lists them", name) end
  return found.run(host, text)
end

--- prompt.names() -> the names of the commands, for completion: ":time".
function prompt.names()
  local names = {}
  for i, c in ipairs(commands) do names[i] = ":" .. c.name end
  return names
end

return prompt
