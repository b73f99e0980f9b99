-- Every example runs with small sizes.
local t = require "tests.support"

local function example(name, args)
  local out, err, code = t.run("examples/" .. name .. ".lua " .. args)
  t.check(code == 0, name .. " ended with code " .. code .. ": " .. err)
  return out
end

t.test("digits", function()
  local file = t.tmp("digits.safetensors")
  local out = example("digits", "--tiny --save '" .. file .. "'")
  t.check(out:find("test accuracy"), out)
  t.check(t.exists(file))
end)

t.test("mnist", function()
  local out = example("mnist", "'" .. t.shared("data/mnist") .. "' --tiny")
  t.check(out:find("epoch 1: test accuracy"), out)
end)

t.test("mnist without a folder prints its usage", function()
  local _, err, code = t.run("examples/mnist.lua")
  t.equal(code, 1)
  t.check(err:find("usage"))
end)

t.test("linear_regression fits the line", function()
  local out = example("linear_regression", "--tiny")
  local loss = tonumber(out:match("epoch 10: loss (%S+)"))
  t.check(loss and loss < 0.1, out)
end)

t.test("custom_op", function()
  t.check(example("custom_op", "--tiny"):find("loss after 5 steps"))
end)

t.test("hybridize prints the time before and after", function()
  local out = example("hybridize", "20")
  t.check(out:find("before hybridizing: .* µs per pass") and out:find("after hybridizing: .* µs per pass"), out)
  t.check(out:find("traced 1 time%(s%), 21 passes did not enter Lua"), out)
  t.check(out:find("imported: the same result: true"), out)
end)

t.test("rnn_foreach prints the times of each way and the speed-up", function()
  local out = example("rnn_foreach", "2 --tiny")
  for _, way in ipairs{"a Lua loop", "foreach before hybridizing", "foreach after hybridizing", "while_loop after hybridizing"} do
    t.check(out:find(way .. ": +inference +%S+ ms %(%S+ times as fast%), training +%S+ ms"), way .. "\n" .. out)
  end
  t.check(out:find("foreach", out:find("LSTMCell"), true), out)
end)

t.test("char_lm learns its text and samples from it", function()
  local out = example("char_lm", "--tiny")
  local first, last, traces = out:match("the loss fell from (%S+) to (%S+); the step was traced (%d+) time")
  t.check(first and tonumber(last) < tonumber(first) / 4, out)
  t.equal(traces, "1")
  t.check(out:find("sample 3: ", 1, true), out)
end)

t.test("char_lm reads a file", function()
  t.check(example("char_lm", "--tiny README.md"):find("the loss fell"))
end)

t.test("char_transformer trains on a text, draws its loss and samples", function()
  local out = example("char_transformer", "--tiny")
  local from, to = out:match("the loss fell from ([%d.]+) to ([%d.]+); the step was traced 1 time")
  t.check(from and tonumber(to) < tonumber(from) - 1, out)
  t.check(out:find("│", 1, true) and out:find("sample: .+"))
end)

t.test("beam_search finds what a greedy search misses", function()
  local out = example("beam_search", "--tiny")
  local best, greedy, all = tonumber(out:match("best sequences:\n +(%S+)")), tonumber(out:match("greedy: (%S+)")), tonumber(out:match("the best of all: (%S+)"))
  t.check(best and best > greedy and math.abs(best - all) < 1e-3, out)
  t.check(out:find("imported: the same sequences: true", 1, true), out)
end)
