-- tests/golden/prompt.txt is a session at the prompt: what was typed behind "> " and ">> ", and what was printed. With
-- PERIGEE_WRITE_SESSION=1 the test writes it anew.
local t = require "tests.support"
if t.mode ~= "eager" then t.skip("the modes are those of another process") end

local path = t.root .. "/tests/golden/prompt.txt"

local function is_input(line) return line:match("^(>>? )(.*)$") end

-- Returns the typed lines, and what the program prints, which is no terminal and shows prompts only.
local function read_session()
  local inputs, output = {}, {}
  for line in t.read(path):gmatch("([^\n]*)\n") do
    local mark, input = is_input(line)
    if mark then
      inputs[#inputs + 1] = input
      output[#output + 1] = mark
    else
      output[#output + 1] = line .. "\n"
    end
  end
  return inputs, table.concat(output)
end

-- Writes the inputs behind the prompts of the program's output.
local function merge(inputs, output)
  local at, parts, i = 1, {}, 0
  for place, mark in output:gmatch("()(>>? )") do
    local starts = place == 1 or output:sub(place - 1, place - 1) == "\n" or output:sub(1, place - 1):find(">>? $")
    if starts and inputs[i + 1] then
      i = i + 1
      parts[#parts + 1] = output:sub(at, place - 1) .. mark .. inputs[i] .. "\n"
      at = place + #mark
    end
  end
  return table.concat(parts) .. output:sub(at)
end

t.test("a recorded session of the prompt prints the same", function()
  local inputs, expected = read_session()
  t.check(#inputs >= 100, "the session has too few inputs")
  local folder = t.tmp("transcript")
  os.execute("rm -rf '" .. folder .. "' && mkdir '" .. folder .. "'")
  local output = t.shell("cd '" .. folder .. "' && TERM=dumb '" .. t.program .. "' -i 2>&1", table.concat(inputs, "\n") .. "\n")
  if os.getenv("PERIGEE_WRITE_SESSION") then t.write(path, merge(inputs, output)) end
  local function plain(text) return (text:gsub("LuaJIT [^)]*", "LuaJIT")) end
  local got = plain(output)
  expected = plain(expected)
  if got == expected then
    local _, errors, code = t.run("'" .. folder .. "/session.lua'")
    return t.equal({errors, code}, {"", 0}, "the saved session as a script")
  end
  local a, b = {}, {}
  for line in (got .. "\n"):gmatch("([^\n]*)\n") do a[#a + 1] = line end
  for line in (expected .. "\n"):gmatch("([^\n]*)\n") do b[#b + 1] = line end
  for i = 1, math.max(#a, #b) do
    if a[i] ~= b[i] then error(("line %d of the output: got %s, expected %s"):format(i, t.show(a[i]), t.show(b[i])), 0) end
  end
end)
