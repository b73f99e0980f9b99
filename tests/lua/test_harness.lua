-- Tests of the test helpers: they detect differences, and the JSON reader reads test data.
local t = require "tests.support"
local json = require "tests.json"

t.test("t.equal compares nested tables and NaN", function()
  t.equal({1, {2, 0 / 0}, a = "x"}, {1, {2, 0 / 0}, a = "x"})
  t.error_contains(function() t.equal({1, {2, 3}}, {1, {2, 4}}) end, "[2][2]: got 3, expected 4")
  t.error_contains(function() t.equal({1, 2}, {1}) end, "[2]: got 2, expected nothing")
  t.error_contains(function() t.equal(1, true) end, "got 1, expected true")
end)

t.test("t.close respects both tolerances and infinities", function()
  t.close({1.0000001, 1 / 0}, {1, 1 / 0})
  t.error_contains(function() t.close(1.1, 1) end, "got 1.1, expected 1")
  t.error_contains(function() t.close(1 / 0, -1 / 0) end, "got inf, expected -inf")
  t.error_contains(function() t.close(1, 1 / 0) end, "got 1, expected inf")
  t.close(1.1, 1, {atol = 0.2})
end)

t.test("t.bad_argument requires the whole form", function()
  t.bad_argument(function() error("add: bad argument 'y' (expected a tensor or number, got nil)", 1) end, "add", "y")
  t.error_contains(function() t.bad_argument(function() error("no", 1) end) end, "has not the form")
end)

t.test("json reads the manifests", function()
  t.equal(json.decode('{"a": [1, -2.5e3, "x\\n\\u00e9"], "b": {}, "c": [true, false]}'),
          {a = {1, -2500, "x\n\195\169"}, b = {}, c = {true, false}})
  t.check(json.decode("null") == json.null)
  t.error_contains(json.decode, "at byte", "[1 2]")
end)

t.test("a warning that nobody expects fails the test that caused it", function()
  local out, err, code = t.run("- '" .. t.program .. "'", [[
    package.path = "./?.lua;" .. package.path
    local t, pg = require "tests.support", require "perigee"
    t.program = ...
    pg.testing.on_warning(t.on_warning)
    local warn, child = pg.testing.core.warn, "require 'perigee'.testing.core.warn('of a child')"
    local function outcome(f) return t.protect("outcome", f) end
    print(outcome(function() warn("one") end))
    print(outcome(function() t.may_warn("^one$") warn("one") end))
    print(outcome(function() t.may_warn("two") warn("one") end))
    print(outcome(function() t.equal(t.warns("on", function() warn("one") end), {"one"}) end))
    print(outcome(function() t.warns("two", warn, "one") end))
    print(outcome(function() t.warns("two", function() end) end))
    print(outcome(function() t.run("-", child) end))
    print(outcome(function() t.may_warn("of a child") t.run("-", child) end))
    t.cleanup()
  ]])
  t.equal({err, code}, {"", 0})
  local passed = {}
  for line in out:gmatch("[^\n]+") do
    if line == "true" or line == "false" then passed[#passed + 1] = line == "true" end
  end
  t.equal(passed, {false, true, false, true, false, false, false, true})
  t.check(out:find("1 unexpected warnings:\n  stdin:1: of a child", 1, true), out)
end)
