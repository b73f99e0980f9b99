-- Branches and loops that the CUDA device decides by itself, inside of programs. `fake` counts calls of the driver; it is
-- absent on a GPU.
local t = require "tests.support"
local pg = require "perigee"
if t.device ~= "cuda" then return end

local fake = require "tests.cuda.fake"
local function calls(name) return fake and fake.fake_calls(name) or 0 end

local function numbers(...)
  local shape, n = {...}, 1
  for _, s in ipairs(shape) do n = n * s end
  return ((pg.range(1, n) * 0.37):sin() * 3):reshape(shape)
end

local function on(device, inputs)
  local moved = {}
  for i, x in ipairs(inputs) do moved[i] = x:to(device) end
  return moved
end

-- Runs the jitted f on several inputs, which stay alive, so that each run has other memory. The results must be those
-- of the CPU; from the fourth run on, a run must be `launches` launches, and never wait.
local function agrees(f, sets, launches)
  local jitted, on_cpu, kept = pg.jit(f), pg.jit(f), {}
  for i, inputs in ipairs(sets) do
    local moved = on("cuda", inputs)
    collectgarbage()
    collectgarbage("stop")  -- programs that are collected wait
    local before = {calls("cuGraphLaunch"), calls("cuStreamSynchronize")}
    local got = {jitted(unpack(moved))}
    collectgarbage("restart")
    if fake and i > 3 and launches then
      t.equal(calls("cuGraphLaunch") - before[1], launches, "launches of run " .. i)
      if launches > 0 then t.equal(calls("cuStreamSynchronize"), before[2], "waits of run " .. i) end
    end
    kept[i] = {moved, got}
  end
  for i, inputs in ipairs(sets) do
    local expected, got = {on_cpu(unpack(on("cpu", inputs)))}, kept[i][2]
    t.equal(#got, #expected)
    for k = 1, #got do
      t.equal(got[k].device, "cuda")
      t.close(got[k]:to("cpu"), expected[k], {rtol = 1e-4, atol = 1e-4, what = ("result %d of run %d"):format(k, i)})
    end
  end
end

local function sets(n, make)
  local all = {}
  for i = 1, n do all[i] = {make(i)} end
  return all
end

t.test("a step with a branch and a loop is one launch", function()
  local weight = numbers(4, 4)
  agrees(function(x, w)
    local y = x:matmul(w):softmax(2)
    y = pg.cond(x:sum():gt(0), function() return y:matmul(w) * 2 end, function() return y - x end)
    local outs, vars, n = pg.while_loop(function(s) return s:sum():lt(100) end, function(s) return s:amax(1), {s * 1.5 + 1} end,
                                        {y:abs()}, {max_iterations = 12})
    return outs, vars[1]:matmul(w), n, y
  end, sets(7, function(i) return numbers(3, 4) * (i % 2 == 0 and i or -i), weight end), 1)
end)

t.test("branches nest, and pass on what they get", function()
  agrees(function(x, y)
    local a, b = pg.cond(x:sum():gt(0), function()
      return pg.cond(y:sum():gt(0), function() return x, y end, function() return y, x * 2 end)
    end, function() return x, x end)
    return a + 1, b, x * 2
  end, sets(8, function(i) return numbers(5) * (i % 2 * 2 - 1), numbers(5) * (math.floor(i / 2) % 2 * 2 - 1) end), 1)
end)

t.test("a predicate has any dtype and shape", function()
  agrees(function(x)
    local y = pg.cond(x:sum(), function() return x:softmax(1) * 2 end, function() return x - 1 end)
    return (pg.cond((y:amax() * 4):to("int32"):reshape(1, 1), function() return x + y end, function() return x / 2 end))
  end, sets(6, function(i) return numbers(4) * (i % 3) end), 1)
  agrees(function(x, p)  -- one of the host
    return (pg.cond(p:to("cpu"), function() return x:softmax(1) * 2 end, function() return x - 1 end))
  end, sets(5, function(i) return numbers(4) * i, pg.tensor(i % 2) end), 0)
end)

t.test("a loop takes no step, some or all", function()
  agrees(function(x, bound)
    local outs, vars, n = pg.while_loop(function(i) return i:lt(bound) end,
                                        function(i, s) return {s, i * 10}, {i + 1, s * 0.5 + i} end,
                                        {pg.full({}, 0, {device = x.device}), x}, {max_iterations = 5})
    return outs[1], outs[2], vars[1], vars[2], n
  end, sets(9, function(i) return numbers(3) * i, pg.tensor((i * 4) % 7) end), 1)
end)

t.test("gradients of branches and loops are in the same launch", function()
  local weight = numbers(3, 3) / 4
  local function step(x, w)
    w = w:detach():attach_grad()
    local l = pg.record(function()
      local outs, vars = pg.while_loop(function(s) return s:sum():lt(8) end,
                                       function(s) s = (s:matmul(w) + x):abs() + 0.5 return s * s, {s} end,
                                       {x * x}, {max_iterations = 6})
      local y = pg.cond(vars[1]:mean():gt(2), function() return vars[1]:matmul(w) end, function() return vars[1] * w:sum() end)
      return outs:mean() + y:sum()
    end)
    l:backward()
    return l, w.grad
  end
  agrees(step, sets(6, function(i) return numbers(3, 3) * (i / 3), weight * 1 end), 1)
end)

t.test("long loops are repeated by the device", function()
  agrees(function(x, v)
    local last = pg.loop(700, function(i, s) return s * 0.99 + (s:softmax(1) * x):sum() / i end, x)
    local outs, sum = pg.foreach(function(row, s)
      s = (s + row):tanh() * s:softmax(1)
      return s * row, s
    end, v, x)
    return last, outs, sum
  end, sets(5, function(i) return numbers(4) * i, numbers(600, 4) / i end), 1)
end)

t.test("conditions in loops, and loops in loops", function()
  agrees(function(xs, w)
    local outs, last = pg.foreach(function(row, s)  -- has its steps one after the other
      s = pg.cond(row:sum():gt(0), function() return s:matmul(w) + row end, function() return s - row end)
      return s * 2, s
    end, xs, w:select(1, 1))
    local _, vars = pg.while_loop(function(a) return a:sum():lt(60) end, function(a)
      local _, inner = pg.while_loop(function(b) return b:sum():lt(20) end, function(b) return nil, {b * 2 + 1} end,
                                     {a:abs() / 4}, {max_iterations = 8})
      local b = pg.cond(inner[1]:amax():gt(9), function() return inner[1] + 3 end, function() return inner[1] * 2 end)
      local carried = pg.loop(3, function(i, s) return s + i end, b)
      return nil, {a + carried}
    end, {last:abs()}, {max_iterations = 7})
    return outs, vars[1]
  end, sets(6, function(i) return numbers(5, 4) * (i % 3 - 1), numbers(4, 4) / i end), 1)
end)

t.test("variables change places, and rows have any size", function()
  for _, dtype in ipairs{"float32", "uint8", "float16", "float64"} do
    agrees(function(x, y)
      local outs, vars = pg.while_loop(function(_, _, n) return n:lt(5) end,
                                       function(a, b, n) return {a, b[{{2, 3}}]}, {b, a + b, n + 1} end,
                                       {x, y, pg.full({}, 0, {device = x.device})}, {max_iterations = 7})
      return outs[1], outs[2], vars[1], vars[2]
    end, sets(4, function(i) return (numbers(3):abs() * i):to(dtype), (numbers(3):abs() + i):to(dtype) end), 1)
  end
end)

t.test("a large input that comes at other addresses only stops the branch that reads it", function()
  local large = {pg.zeros(17 * 2^20), pg.zeros(17 * 2^20)}
  local function chain(z)
    for _ = 1, 6 do z = z:softmax(1) end
    return z
  end
  local f = pg.jit(function(x, y)
    local z = chain(x)
    return chain(pg.cond(x:sum():gt(0), function() return z * y[{{1, 4}}] end, function() return z end))
  end)
  for i = 1, 5 do
    local launches, x = calls("cuGraphLaunch"), numbers(4) * i
    local z = f(x, large[i % 2 + 1])
    if fake and i > 2 then t.equal(calls("cuGraphLaunch") - launches, 2) end
    t.close(z, chain(pg.zeros(4)))
  end
end)

t.test("a capture that fails is an error of that run only", function()
  if not fake then t.skip("needs the fake driver") end
  local f = pg.jit(function(x)
    local y = x:softmax(1):softmax(1)
    return (pg.cond(y:amax():gt(0.1), function() return y * 2 end, function() return y - 1 end))
  end)
  local failed, x = 0, numbers(4)
  local expected = (x:softmax(1):softmax(1) * 2):totable()
  for nth = 1, 8 do
    if nth < 8 then fake.fake_fail("cuStreamEndCapture", nth, 901, 1) end
    local ok, y = pcall(f, x)
    if ok then t.equal(y:totable(), expected) else failed = failed + 1 end
  end
  t.check(failed > 2, failed)
  fake.fake_fail("cuStreamEndCapture", 1, 0, 0)
  local launches = calls("cuGraphLaunch")
  t.equal(f(x):totable(), expected)
  t.equal(calls("cuGraphLaunch") - launches, 1)
end)

t.test("the host runs what draws random numbers, between two programs", function()
  local function chain(z)
    for _ = 1, 6 do z = z:softmax(1) end
    return z
  end
  for _, drops in ipairs{
    function(y) return (pg.cond(y:sum():gt(0), function() return y:softmax(1):dropout(0.5) end, function() return y end)) end,
    function(y)
      local _, vars = pg.while_loop(function(s) return s:sum():lt(50) end,
                                    function(s) return nil, {s:softmax(1) * 8 + s:dropout(0.5)} end, {y}, {max_iterations = 10})
      return vars[1]
    end,
    function(y) return (pg.loop(20, function(_, s) return (s * 2):dropout(0.1):softmax(1) end, y)) end,
  } do
    local function plain(x) return chain(drops(chain(x))) end
    local function draws(f, programs)
      pg.manual_seed(5)
      local out = {}
      for i = 1, 6 do
        local launches = calls("cuGraphLaunch")
        out[i] = pg.train_mode(function() return f(numbers(8) * i) end):totable()
        if programs and fake and i > 3 then t.equal(calls("cuGraphLaunch") - launches, programs) end
      end
      return out
    end
    t.equal(draws(pg.jit(plain), 2), draws(plain))
  end
end)

t.test("what a kernel in a branch refuses is reported with its line, and the program goes on", function()
  local f = pg.jit(function(x, i)
    local y = x:softmax(1):softmax(1)
    return (pg.cond(x:sum():gt(0), function() return x:index_select(1, i) * 2 end, function() return y[{{1, 2}}] end))
  end)
  local good = pg.tensor({1, 2}, {dtype = "int64"})
  for _ = 1, 4 do t.equal(f(pg.ones(3), good):totable(), {2, 2}) end
  local ok, text = pcall(function() return f(pg.ones(3), pg.tensor({1, 9}, {dtype = "int64"})):totable() end)
  t.check(not ok and tostring(text):find("test_cuda_conditions.lua:%d+: index_select: .*got 9 at position 2"), tostring(text))
  t.close(f(-pg.ones(3), pg.tensor({1, 9}, {dtype = "int64"})), pg.ones(2) / 3)  -- the other branch looks at no index
  t.equal(f(pg.ones(3), good):totable(), {2, 2})
end)

t.test("where the driver refuses a condition, the host decides, and a warning says so", function()
  if not fake then t.skip("needs the fake driver") end
  local out, err, code
  -- The device logs the warning, so that only another process can catch it.
  local list = t.warns("^cuda: the driver refused a program with conditions; the host decides$", function()
    out, err, code = t.shell(("cd '%s' && '%s' -"):format(t.root, t.program), [[
      local pg, fake = require "perigee", require "tests.cuda.fake"
      local function branch(x)
        local y = x:softmax(1):softmax(1)
        return (pg.cond(y:amax():gt(0.5), function() return y * 2 end, function() return y - 1 end))
      end
      for _, name in ipairs{"cuGraphConditionalHandleCreate", "cuGraphAddNode_v2", "cuGraphInstantiateWithFlags"} do
        fake.fake_fail(name, 1, 801, 1)
        local f = pg.jit(branch)
        local kept, wrong, launches = {}, 0
        for i = 1, 5 do
          local x = pg.range(1, 4) * i
          if i == 4 then launches = fake.fake_calls("cuGraphLaunch") end
          kept[i] = f(x:to("cuda"))
          wrong = math.max(wrong, (kept[i]:to("cpu") - branch(x)):abs():amax():item())
        end
        print(name, wrong < 1e-4, fake.fake_calls("cuGraphLaunch") - launches)
      end]])
  end)
  t.equal(code, 0, err)
  t.equal(out, "cuGraphConditionalHandleCreate\ttrue\t0\ncuGraphAddNode_v2\ttrue\t0\ncuGraphInstantiateWithFlags\ttrue\t0\n")
  t.equal(#list, 3, err)
end)
