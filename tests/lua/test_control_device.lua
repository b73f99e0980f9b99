-- Control flow, moves and refusals on a device that has few kernels and whose memory the host cannot read.
local t = require "tests.support"
local pg = require "perigee"

local device = "test_device"
local few = t.mode ~= "device"  -- that device has all kernels

local function both(name, f)
  t.test(name .. ", eager", function() f(function(g) return g end) end)
  t.test(name .. ", jit", function() f(pg.jit) end)
end

local function here(x) return x:to(device) end
local function back(x) return x:to("cpu") end
local function source() return pg.range(1, 12, {dtype = "float32", device = "cpu"}):reshape{4, 3} / 10 end

-- f must give the same values and gradients for tensors of a device as for those of the host.
local function agree(way, f, inputs)
  local seen = {}
  for i, place in ipairs{"cpu", device} do
    local own, outs = {}, nil
    for k, x in ipairs(inputs) do own[k] = (x + 0):to(place):attach_grad() end
    local run = way(f)
    for _ = 1, 2 do
      pg.record(function()
        outs = {run(unpack(own))}
        local sum = outs[1]:sum()
        for k = 2, #outs do sum = sum + outs[k]:sum() end
        return sum
      end):backward()
    end
    seen[i] = {}
    for _, out in ipairs(outs) do
      t.equal(out.device, place)
      table.insert(seen[i], back(out):detach())
    end
    for _, x in ipairs(own) do
      t.equal(x.grad.device, place)
      table.insert(seen[i], back(x.grad))
    end
  end
  for k, x in ipairs(seen[2]) do t.close(x, seen[1][k], {what = "value " .. k}) end
end

both("foreach stacks, carries and goes back", function(way)
  local w = pg.tensor({0.5, -0.25, 2}, {device = "cpu"})
  agree(way, function(x, v)
    local outs, last = pg.foreach(function(row, s)
      local new = row * v + s * s
      return -new + row, new
    end, x, v)
    return outs, last
  end, {source(), w})
end)

both("while_loop decides by a counter of the host", function(way)
  agree(way, function(x)
    local zero = pg.tensor(0, {dtype = "int64", device = "cpu"})
    local outs, vars = pg.while_loop(function(i) return i:lt(3) end, function(i, s) return s * s, {i + 1, s * x + x} end, {zero, x},
                                     {max_iterations = 5})
    return outs, vars[2]
  end, {source()})
end)

both("while_loop of any length grows its stacks on the device", function(way)
  agree(way, function(x)
    local zero = pg.tensor(0, {dtype = "int64", device = "cpu"})
    local _, vars = pg.while_loop(function(i) return i:lt(40) end, function(i, s) return nil, {i + 1, s * x + x} end, {zero, x})
    return vars[2]
  end, {source()})
end)

both("loop counts where its state lives", function(way)
  agree(way, function(x) return pg.loop(3, function(i, s) return s * x + x + i:to("float32") end, x) end, {source()})
  agree(way, function(x) return pg.loop(pg.tensor(4, {dtype = "int64"}), function(_, s) return s * x + x end, x) end, {source()})
  agree(way, function(x) return (pg.loop(0, function(_, s) return s * x end, x + 0)) end, {source()})
end)

both("cond takes a predicate of either place", function(way)
  for _, yes in ipairs{true, false} do
    for _, place in ipairs{"cpu", device} do
      local pred = pg.tensor(yes, {device = place})
      agree(way, function(x) return pg.cond(pred, function() return x * x end, function() return -x end) end, {source()})
    end
  end
end)

both("tensors move inside of graphs", function(way)
  agree(way, function(x)
    local place = x.device
    local y = (x:to("cpu") * 2 + 1):exp()
    return (y:tanh() - 0.5):to(place) * x
  end, {source()})
  local f = way(function(x) return (pg.tensor(x, {device = "cpu"}) + 1):sqrt() end)
  t.close(f(here(source())), (source() + 1):sqrt())
  local g = way(function(x)
    local y = pg.zeros(4, 3, {device = "cpu"})
    y:copy_(x)
    return y / 2
  end)
  t.close(g(here(source())), source() / 2)
end)

both("effects show what is on the device", function(way)
  local seen = {}
  local f = way(function(x)
    return (pg.foreach(function(row, s)
      row:tap(function(v) seen[#seen + 1] = v:sum():item() end)
      return row * s, s
    end, x, x[1]))
  end)
  f(here(source()))
  t.equal(#seen, 4)
  t.close(pg.tensor(seen, {device = "cpu"}), source():sum(2))
end)

both("what the device cannot run is refused by name", function(way)
  if not few then t.skip("the device has all kernels") end
  local x = here(source())
  local forms = {
    function(v) return (pg.foreach(function(row, s) return row:tanh(), s end, v, v[1])) end,
    function(v) return pg.loop(2, function(_, s) return s:tanh() end, v) end,
    function(v) return pg.cond(pg.tensor(true), function() return v:tanh() end, function() return v end) end,
  }
  for _, f in ipairs(forms) do t.error_contains(function() way(f)(x) end, "tanh: no kernel for device test_device") end
  t.error_contains(function() way(function(v) return pg.loop(2, function(_, s) return s + source() end, v) end)(x) end,
                   "expected a tensor on test_device like the others")
end)
