-- A defect of Debian 12's LuaJIT: a loop over pairs(t) that was given up while it ran continues in compiled code with a
-- wrong key (LuaJIT issue 827, fixed by 1cdff194). Prints the first round in which the outer loop ends early, or "none":
-- some 40000 there, none with the fix and in the program perigee, which has a next and pairs of its own.
local inner = {1, 2, 3, 4, 5}
local outer = {a = inner, b = inner, c = inner, d = inner, e = inner}
local function leave_compiled_code(...)
  for _ = 1, 100 do end
  return ...
end
for round = 1, 100000 do
  leave_compiled_code()
  local count = 0
  for _, v in pairs(outer) do
    for _ in pairs(v) do end
    count = count + 1
  end
  if count ~= 5 then return print(round) end
end
print "none"
