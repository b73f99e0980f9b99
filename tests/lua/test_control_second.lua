-- Derivatives of the second and third order through branches and loops are those of the body without them: what stops a
-- gradient, what has a gradient of its own and what an op's rule guards against count in each order.
local t = require "tests.support"
local pg = require "perigee"

t.skip_in("gcstress", "many traces")

local one = pg.tensor(true)

local double_back = pg.autograd.Function{
  name = "sq",
  forward = function(ctx, x) ctx.x = x return x * x end,
  backward = function(ctx, dy) return dy * ctx.x * 10 end,
}
local rounded = pg.autograd.Function{
  name = "rounded",
  forward = function(_, x) return x:round() end,
  backward = function(_, dy) return dy end,
}

-- Each maps a vector to a number.
local bodies = {
  ["detached factor"] = function(x) return (x * x * x:detach()):sum() end,
  ["pause"] = function(x)
    local c
    pg.autograd.pause(function() c = x * x end)
    return (x * x * c):sum()
  end,
  ["straight through"] = function(x)
    local h = x * x
    return ((h + (h:round() - h):detach()) * x):sum()
  end,
  ["function"] = function(x) return (double_back(x) * x):sum() end,
  ["straight-through function"] = function(x) return (rounded(x * 1.3) * x * x):sum() end,
  ["gradient inside"] = function(x) return (pg.grad(function(y) return (y * y * y):sum() end)(x) * x):sum() end,
  ["detached gradient inside"] = function(x)
    return (pg.grad(function(y) return (y * y * y):sum() end)(x):detach() * x * x):sum()
  end,
  ["checkpoint"] = function(x) return pg.checkpoint(function(y) return (y * y * y * y:detach()):sum() end, x) end,
  ["checkpoint inside a product"] = function(x)
    return (pg.checkpoint(function(y) return y * y * y:detach() end, x) * x):sum()
  end,
  ["norm"] = function(x) return x:norm() + (x - x:detach()):norm() end,
  ["norm of no length"] = function(x) return (x * 0):norm() + x:square():sum() end,
  ["cosine"] = function(x) return pg.cosine_similarity(x * 0, x + 1, {dim = 1}):sum() + (x * x * x):sum() end,
  ["distance to itself"] = function(x) return pg.cdist(x:reshape(3, 1), x:detach():reshape(3, 1)):sum() + (x * x):sum() end,
  ["maximum of equals"] = function(x) return (x * x):maximum((x * x):detach()):sum() end,
  ["composite"] = function(x) return (x:log_softmax(1) * x:softmax(1):detach()):sum() + x:logsumexp(1) end,
}

local wrappers = {
  cond = function(f)
    return function(x) return pg.cond(one, function() return f(x) end, function() return x:sum() end) end
  end,
  ["branch not taken"] = function(f)
    return function(x) return pg.cond(one:logical_not(), function() return x:sum() end, function() return f(x) end) end
  end,
  ["foreach over rows"] = function(f)
    return function(x) return pg.foreach(function(row) return f(row), {} end, x:reshape(1, -1), {}):sum() end
  end,
  ["foreach with a state"] = function(f)
    return function(x)
      local _, s = pg.foreach(function(_, s) return s, s + f(x) end, pg.zeros(1), x:sum() * 0)
      return s
    end
  end,
  while_loop = function(f)
    return function(x)
      local outs = pg.while_loop(function(i) return i:lt(1) end, function(i) return f(x), {i + 1} end, {pg.tensor(0)},
        {max_iterations = 2})
      return outs:sum()
    end
  end,
  loop = function(f) return function(x) return pg.loop(1, function(_, s) return s + f(x) end, x:sum() * 0) end end,
  ["cond in loop"] = function(f)
    return function(x)
      return pg.loop(1, function(_, s)
        return s + pg.cond(one, function() return f(x) end, function() return x:sum() end)
      end, x:sum() * 0)
    end
  end,
  ["loop in cond"] = function(f)
    return function(x)
      return pg.cond(one, function() return pg.loop(1, function(_, s) return s + f(x) end, x:sum() * 0) end,
        function() return x:sum() end)
    end
  end,
}

local function grad(f) return function(x) return pg.grad(f)(x) end end
local derivatives = {
  second = function(f, x) return grad(function(y) return grad(f)(y):sum() end)(x) end,
  third = function(f, x)
    return grad(function(z) return grad(function(y) return (grad(f)(y) * y):sum() end)(z):sum() end)(x)
  end,
  ["jvp of grad"] = function(f, x)
    local _, d = pg.jvp(function(y) return grad(f)(y) end, {x}, {pg.tensor{1, -2, 0.5}})
    return d
  end,
  penalty = function(f, x)
    local y = x:clone():attach_grad()
    pg.record(function()
      local g = pg.autograd.grad(f(y), y, {create_graph = true})
      return (g * g):sum() + f(y)
    end):backward()
    return y.grad
  end,
}

for _, how in ipairs{"eager", "jit"} do
  for wrapper, wrap in pairs(wrappers) do
    t.test(("derivatives through %s are those of its body, %s"):format(wrapper, how), function()
      for name, body in pairs(bodies) do
        for order, derive in pairs(derivatives) do
          local x = pg.tensor{1.25, 2, -0.75}
          local want = derive(body, x)
          local inner = wrap(body)
          local got = how == "jit" and pg.jit(function(y) return derive(inner, y) end)(x) or derive(inner, x)
          local same, message = pcall(t.close, got, want, {rtol = 1e-4, atol = 1e-4})
          if not same then error(name .. ", " .. order .. ": " .. message, 0) end
        end
      end
    end)
  end
end

t.test("each derivative through a branch or a loop sees the random numbers of the body", function()
  for _, wrap in pairs(wrappers) do
    local f = wrap(function(x) return (pg.rand(3) * x * x * x):sum() end)
    local x = pg.tensor{1.25, 2, -0.75}:attach_grad()
    pg.record(function()
      local g = pg.autograd.grad(f(x), x, {create_graph = true})
      t.close(pg.autograd.grad(g:sum(), x), g * 2 / x, {rtol = 1e-5})
    end)
  end
end)
