local t = require "tests.support"
local with_limit = require "tests.ops.limit"
local pg = require "perigee"

local function prints(x, lines)
  local got, wanted = tostring(x), table.concat(lines, "\n"):gsub(" cpu]", " " .. x.device .. "]")
  if got ~= wanted then error("got\n" .. got .. "\nexpected\n" .. wanted, 2) end
end

-- Every line except the footer must be at most 80 columns wide; "…" is one column.
local function check_width(text)
  for line in text:gmatch("[^\n]+") do t.check(#line:gsub("…", ".") <= 80, "too long: " .. line) end
end

t.test("scalars are printed beside their type", function()
  prints(pg.tensor(5), {"5 [float32 scalar cpu]"})
  prints(pg.tensor(1 / 3), {"0.3333 [float32 scalar cpu]"})
  prints(pg.tensor(true), {"true [bool scalar cpu]"})
  prints(pg.tensor(-7, {dtype = "int64"}), {"-7 [int64 scalar cpu]"})
  prints(pg.tensor(0 / 0), {"nan [float32 scalar cpu]"})
end)

t.test("columns are aligned and have the decimals they need", function()
  prints(pg.tensor{1, 20, -3}, {"{ 1, 20, -3}", "[float32 3 cpu]"})
  prints(pg.tensor{{0.5, -2.25}, {1 / 3, 100}}, {"{{  0.5000,  -2.2500},", " {  0.3333, 100.0000}}", "[float32 2x2 cpu]"})
  prints(pg.tensor{0.5, 0.25}, {"{0.50, 0.25}", "[float32 2 cpu]"})
  prints(pg.tensor{1.00001, 1}, {"{1.0000, 1.0000}", "[float32 2 cpu]"})
  prints(pg.tensor(0.99999), {"1.0000 [float32 scalar cpu]"})
  prints(pg.tensor{true, false}, {"{ true, false}", "[bool 2 cpu]"})
  prints(pg.tensor({1, -20}, {dtype = "int8"}), {"{  1, -20}", "[int8 2 cpu]"})
  prints(pg.tensor{{{1, 2}}, {{3, 4}}}, {"{{{1, 2}},", "", " {{3, 4}}}", "[float32 2x1x2 cpu]"})
end)

t.test("nan and infinities do not change the number format", function()
  prints(pg.tensor{0 / 0, 1 / 0, -1 / 0, 1.5}, {"{ nan,  inf, -inf,  1.5}", "[float32 4 cpu]"})
end)

t.test("numbers that fixed decimals would hide are printed in scientific form", function()
  prints(pg.tensor{1e-6, 1}, {"{1.0000e-06, 1.0000e+00}", "[float32 2 cpu]"})
  prints(pg.tensor({1e10, 1}, {dtype = "float64"}), {"{1.0000e+10, 1.0000e+00}", "[float64 2 cpu]"})
  prints(pg.tensor{100000, 1}, {"{100000,      1}", "[float32 2 cpu]"})
end)

t.test("every dtype", function()
  for _, dtype in ipairs{"uint8", "int8", "int32", "int64", "float16", "bfloat16", "float32", "float64"} do
    prints(pg.tensor({1, 2}, {dtype = dtype}), {"{1, 2}", "[" .. dtype .. " 2 cpu]"})
  end
end)

t.test("int64 keeps every digit", function()
  local bytes = ("\255"):rep(7) .. "\127"
  prints(pg.from_bytes(bytes, "int64", {1}), {"{9223372036854775807}", "[int64 1 cpu]"})
end)

t.test("tensors without elements are printed", function()
  prints(pg.zeros(0), {"{}", "[float32 0 cpu]"})
  prints(pg.zeros(2, 0, 3), {"{}", "[float32 2x0x3 cpu]"})
end)

t.test("long rows go over several lines of at most 80 columns", function()
  local text = tostring(pg.range(1, 100))
  check_width(text)
  t.check(select(2, text:gsub("\n", "")) > 4)
  local numbers = 0
  for _ in text:gsub("%[.*", ""):gmatch("%d+") do numbers = numbers + 1 end
  t.equal(numbers, 100)
end)

t.test("1000 elements are printed whole, more are shortened", function()
  t.check(not tostring(pg.range(1, 1000)):find("…", 1, true))
  prints(pg.range(1, 1001), {"{   1,    2,    3, …,  999, 1000, 1001}", "[float32 1001 cpu]"})
  local text = tostring(pg.range(1, 1600):reshape{40, 40})
  t.check(text:find("^{{   1,    2,    3, …,   38,   39,   40},\n"), text)
  t.check(text:find("\n …,\n", 1, true), text)
  t.check(text:find("1598, 1599, 1600}}\n[float32 40x40 " .. t.device .. "]", 1, true), text)
end)

t.test("views print their elements", function()
  local x = pg.tensor{{1, 2, 3}, {4, 5, 6}}
  prints(x:t(), {"{{1, 4},", " {2, 5},", " {3, 6}}", "[float32 3x2 cpu]"})
  prints(x[2], {"{4, 5, 6}", "[float32 3 cpu]"})
  prints(pg.tensor{7}:expand{2, 3}, {"{{7, 7, 7},", " {7, 7, 7}}", "[float32 2x3 cpu]"})
end)

t.test("a huge tensor costs no more than a small one", function()
  local x = pg.tensor{1}:expand{1000000, 1000000, 1000}
  local before, text = pg.testing.allocations(), nil
  with_limit(2 ^ 24, function() text = tostring(x) end)
  t.check(pg.testing.allocations() - before < 100, "copies one by one")
  t.check(#text < 10000 and text:find("1000000x1000000x1000", 1, true), text)
end)

t.test("many dims are printed briefly", function()
  local text = tostring(pg.zeros(7, 7, 7, 7, 7, 7))
  t.check(#text < 20000, "length " .. #text)
end)

t.test("tensors without a value print their type", function()
  local x = pg.tensor{1}
  x:release()
  t.equal(tostring(x), "[released tensor]")
  t.equal(tostring(pg.param{shape = {3, 0}}), "[parameter float32 3x?, no value yet]")
end)

t.test("print uses the same text", function()
  local out = t.run([[-e 'print(pg.tensor{1, 2}, pg.tensor(3))']])
  t.equal(out, "{1, 2}\n[float32 2 cpu]\t3 [float32 scalar cpu]\n")
end)
