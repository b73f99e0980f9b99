-- A defect of Debian 12's LuaJIT (GC64, before 6bda30d8) with trace stitching: after a call into C, in a trace that
-- starts in a vararg function, `...` cut to a fixed number of results returns the next values, or the function itself.
-- Prints how many of 200 calls were wrong: 142 there, 0 with the fix or with -Ominstitch=100000.
local clock = os.clock
local function first(...) clock() local x = ... return x end
local numbers, functions = 0, 0
for i = 1, 200 do if first(i, -i) ~= i then numbers = numbers + 1 end end
for _ = 1, 200 do if first(print) ~= print then functions = functions + 1 end end
print(numbers, functions)
