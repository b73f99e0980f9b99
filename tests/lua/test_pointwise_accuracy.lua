-- The worst error of every unary pointwise op over a dense grid, in ulp (units in the last place of the exact result),
-- against tests/golden/accuracy.txt. PERIGEE_WRITE_ACCURACY=1 writes the file anew, in mode eager with --file=tests/lua/test_pointwise_accuracy.lua;
-- PERIGEE_WRITE_ACCURACY=raise keeps what is larger in it. The file has the larger errors of a run with Sleef and one
-- without, where libm computes.
--
-- float64 is compared with tests/reference.lua, which computes with 32 digits; float32 with the op's own float64, whose
-- error is far below an ulp of float32. Instruction sets without a fused multiply-add round more often, and so do
-- other versions of libm, so an error may be a little above the one in the file.
local pg = require "perigee"
local t = require "tests.support"
local cases = require "tests.ops.cases"
local dd = require "tests.double_double"
local reference = require "tests.reference"

local measured_in = {eager = true, hybrid = true, avx2 = true, sse4 = true, sse2 = true}
if not measured_in[t.mode] then t.skip("accuracy depends on kernels only") end

local path = t.root .. "/tests/golden/accuracy.txt"
local writes = t.mode == "eager" and os.getenv("PERIGEE_WRITE_ACCURACY")
local function allowed(golden) return golden * 1.25 + 0.3 end
local unlisted = 2  -- what an op without a line may be off

local golden = {}
for line in io.lines(path) do
  local name, narrow, wide = line:match("^(%S+)%s+(%S+)%s+(%S+)$")
  if name then golden[name] = {float32 = tonumber(narrow), float64 = tonumber(wide)} end
end

-- Numbers 2^e (1 + m) of both signs with a new m each time, for e in [low, high], and evenly spaced ones.
local seed = 1
local function fraction()
  seed = seed * 16807 % 2147483647
  return seed / 2147483647
end
local function append_powers(list, low, high, count)
  for e = low, high do
    for k = 1, count do
      local m = math.ldexp(k == 1 and 1 or 1 + fraction(), e)
      list[#list + 1], list[#list + 2] = m, -m
    end
  end
end
local function append_range(list, high, count)
  for k = 1, count do list[#list + 1] = high * (2 * k - count + fraction()) / count end
end

local narrow_grid = {0}
append_powers(narrow_grid, -126, 124, 8)
append_powers(narrow_grid, -12, 4, 1000)
append_range(narrow_grid, 16, 40000)
append_range(narrow_grid, 120, 20000)
append_range(narrow_grid, 1000, 5000)
for k = 0, 2000 do narrow_grid[#narrow_grid + 1] = -104 + 17 * k / 2000 end  -- e^x is subnormal, x e^x is not
for _, root in ipairs{-2.4570247, -2.7476826, -3.1435809, -3.9552942, -4.0399613, -4.9915447} do  -- of lgamma
  for k = -21, -2 do
    narrow_grid[#narrow_grid + 1], narrow_grid[#narrow_grid + 2] = root + math.ldexp(1.3, k), root - math.ldexp(1.3, k)
  end
end
narrow_grid = pg.tensor(narrow_grid)

local wide_grid = {}
append_powers(wide_grid, -20, -5, 4)
append_powers(wide_grid, -4, 3, 40)
append_range(wide_grid, 40, 300)
for _, root in ipairs{1, 2, 1.4616321449683623} do  -- of lgamma and digamma
  for k = -40, -2, 2 do
    wide_grid[#wide_grid + 1], wide_grid[#wide_grid + 2] = root + math.ldexp(1.3, k), root - math.ldexp(1.3, k)
  end
end

-- Results below 2^-100 count as if they were as large: ops may lose digits where terms are subnormal.
local function worst_float32(f)
  local y, exact = f(narrow_grid):to("float64"), f(narrow_grid:to("float64"))
  t.check(y:isnan():equal(exact:isnan()), "NaN where float64 has none, or the other way round")
  local size = exact:abs()
  local counted = size:lt(3.4028e38)
  t.check(y:isfinite():logical_or(counted:logical_not()):all():item(), "infinite where float64 is not")
  local e = size:log2():floor()
  e = (e - e:exp2():gt(size):to("float64")):clamp(-100, 127)
  return pg.where(counted, (y - exact):abs() / (e - 23):exp2(), 0):max():item()
end

-- A reference may return a second number, in whose ulp the error counts: the larger of two terms that cancel.
local function worst_float64(f, exact_at, attrs)
  local y = f(pg.tensor(wide_grid, {dtype = "float64"})):totable()
  local worst = 0
  for i, x in ipairs(wide_grid) do
    local exact, scale = exact_at(dd.new(x), attrs)
    local size = exact and math.abs(exact.high) < 1e290 and math.abs((scale or exact).high)
    local is_root = size and size < 1e-28 and y[i] == 0  -- the reference has rounding errors, too
    if size and not is_root then
      local _, e = math.frexp(math.max(size, 1e-290))
      local error = math.ldexp(math.abs((exact - y[i]).high), 53 - e)
      worst = error == error and math.max(worst, error) or math.huge
    end
  end
  return worst
end

local lines = {}
local function measure(name, f, attrs)
  local line = golden[name] or {float32 = unlisted, float64 = unlisted}
  local got = {float32 = worst_float32(f)}
  if t.mode == "eager" and reference[name:match("^[%w_]+")] then
    got.float64 = worst_float64(f, reference[name:match("^[%w_]+")], attrs)
  end
  for dtype, error in pairs(writes == "raise" and line or {}) do got[dtype] = math.max(got[dtype] or 0, error) end
  lines[#lines + 1] = ("%-18s %8.2f %8.2f"):format(name, got.float32, got.float64 or unlisted)
  for dtype, error in pairs(got) do
    t.check(writes or error <= allowed(line[dtype]),
            ("%s: off by %.2f ulp, %.2f in %s"):format(dtype, error, line[dtype], path))
  end
end

-- Attributes with their defaults; the required ones, which have none, are 1.
local function attributes(row)
  local out = {}
  for _, a in ipairs(row.attrs) do
    local text = a.kind == "string" and a.default
    out[a.name] = a.required and 1 or text and text:match('^"(.*)"$') or tonumber(a.default)
  end
  return out
end

local function each_form(row, visit)
  local attrs = attributes(row)
  local choices
  for _, a in ipairs(row.attrs) do
    if #(a.choices or {}) > 0 then choices = a end
  end
  if not choices then return visit(row.name, attrs) end
  for _, choice in ipairs(choices.choices) do
    attrs = attributes(row)
    attrs[choices.name] = choice
    visit(row.name .. "." .. choice, attrs)
  end
end

local function callable(row, attrs)
  local op = pg.testing.ops[cases.field(row)]
  return function(x) return #row.attrs > 0 and op(x, attrs) or op(x) end
end
-- A step of a fused program: with another op behind it.
local function in_program(f)
  local program = pg.jit(function(x) return -f(x) end)
  return function(x) return -program(x) end
end

for _, name in ipairs(pg.testing.op_names(true)) do
  local row = pg.testing.op_row(name)
  local x = row.pointwise and #row.inputs == 1 and row.inputs[1]
  if x and x.dtypes.float32 and not row.random then
    each_form(row, function(form, attrs)
      local f = callable(row, attrs)
      if f(pg.ones(1)).dtype ~= "float32" then return end  -- a question, such as isnan
      t.test("worst error of " .. form, function() measure(form, t.mode == "hybrid" and in_program(f) or f, attrs) end)
    end)
  end
end

if writes and not t.filter then
  local out = assert(io.open(path, "w"))
  out:write("# Worst errors of unary pointwise ops in ulp; see tests/lua/test_pointwise_accuracy.lua\n")
  out:write(("# %-16s %8s %8s\n"):format("op", "float32", "float64"), table.concat(lines, "\n"), "\n")
  out:close()
end
