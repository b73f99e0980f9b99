-- Runs programs with control flow in several ways: local control = require "tests.control".
local t = require "tests.support"
local pg = require "perigee"
local control = {}

-- Each wraps a function f(inputs) -> list of outputs. The others are compared with the first, debug.
local ways = {
  debug = function(f) return function(inputs) return pg.debug(f, inputs) end end,
  eager = function(f) return f end,
  jit = function(f) return pg.jit(f) end,
  hybrid = function(f)
    t.may_warn("^block: forward uses the parameter")  -- the block does not own the layers that f calls
    local net = pg.nn.block{forward = function(_, inputs) return f(inputs) end}
    net:initialize()
    net:hybridize()
    return function(inputs) return net(inputs) end
  end,
}
control.names = {"debug", "eager", "jit", "hybrid"}

local function is_float(x) return x.dtype:find("float", 1, true) ~= nil end

-- Returns cotangents that differ per element and are the same in every run.
local function head_of(y, k)
  local n = y:numel()
  if n == 0 then return pg.zeros_like(y) end
  return ((pg.range(1, n, 1) * 0.37 + k):sin() + 0.2):to(y.dtype):reshape(y.shape)
end

local function backward(outputs, heads)
  local ys, cotangents = {}, {}
  for k, y in ipairs(outputs) do
    if is_float(y) and y.requires_grad then
      ys[#ys + 1] = y
      cotangents[#cotangents + 1] = heads and heads[k] or head_of(y, k)
    end
  end
  if #ys > 0 then pg.autograd.backward(ys, cotangents) end
  return #ys > 0
end

local function leaves_of(poisoned, inputs, wanted)
  local own, leaves = {}, {}
  for name, x in pairs(inputs) do
    own[name] = x
    if type(x) == "userdata" and (wanted == nil and is_float(x) or wanted and wanted[name]) then
      own[name] = x:detach():clone():attach_grad()
      if poisoned then own[name].grad:fill_(0 / 0) end
      leaves[name] = own[name]
    end
  end
  return own, leaves
end

--- control.see(way, f, inputs, {heads =, wanted =, calls = 2, poisoned =}) -> outputs and gradients (by name) of the
--- last of `calls` calls. f takes the table of named inputs. If poisoned, the gradients are NaN before the call, to
--- show that inputs without a gradient get zeros (not in the way debug, which does not know what the other branch would
--- have read).
function control.see(way, f, inputs, opts)
  opts = opts or {}
  local g, outputs, grads = ways[way](f), nil, nil
  for _ = 1, opts.calls or 2 do
    local own, leaves = leaves_of(opts.poisoned and way ~= "debug", inputs, opts.wanted)
    outputs = pg.record(function() return g(own) end)
    if opts.wanted and not next(opts.wanted) then return outputs, {} end
    local flows = backward(outputs, opts.heads)
    grads = {}
    for name, x in pairs(leaves) do grads[name] = flows and x.grad or pg.zeros_like(x) end
  end
  return outputs, grads
end

--- control.agree(f, inputs, opts) raises unless all ways have the outputs and gradients of plain Lua. opts.ways lists
--- the ways; opts.rtol and opts.atol are tolerances (1e-5, 1e-6).
function control.agree(f, inputs, opts)
  opts = opts or {}
  local tolerance = {rtol = opts.rtol or 1e-5, atol = opts.atol or 1e-6}
  local expected, grads = control.see("debug", f, inputs, opts)
  for _, way in ipairs(opts.ways or control.names) do
    local got, own = control.see(way, f, inputs, opts)
    t.equal(#got, #expected, way .. ": number of outputs")
    for k, y in ipairs(expected) do
      t.equal(got[k].dtype, y.dtype, ("%s: dtype of output %d"):format(way, k))
      t.equal(got[k].shape, y.shape, ("%s: shape of output %d"):format(way, k))
      tolerance.what = ("%s: output %d"):format(way, k)
      t.close(got[k], y, tolerance)
    end
    for name, grad in pairs(grads) do
      tolerance.what = ("%s: gradient of %s"):format(way, name)
      t.close(own[name], grad, tolerance)
    end
  end
  return expected, grads
end

--- control.counter() -> a function that counts its calls, and one that returns the number. Traces neither guard nor
--- repeat the count.
function control.counter()
  local n = 0
  local count = coroutine.wrap(function()
    while true do
      n = n + 1
      coroutine.yield(n)
    end
  end)
  pg.testing.runs_natively(count)
  return count, function() return n end
end

--- control.each(f) calls f(way, wrap) for each way, where wrap(g) runs g in that way.
function control.each(f)
  for _, way in ipairs(control.names) do f(way, ways[way]) end
end

--- control.test(name, f) makes a test for each way, which calls f(wrap, way).
function control.test(name, f)
  control.each(function(way, wrap) t.test(name .. ", " .. way, function() f(wrap, way) end) end)
end

return control
