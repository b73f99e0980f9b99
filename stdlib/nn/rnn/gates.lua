-- The pointwise part of a recurrent step, after the products with x and with the state. Gates are packed in Gluon's
-- order.
local core = ...
local chunk = core.ops.chunk
local gates = {}

--- gates.lstm(a, c, f, g[, dim = -1[, clip]]) -> h, c. a holds the sums of the gates in, forget, cell and out along dim.
--- f is the activation of the cell, g that of the gates. clip is a function that limits the new c.
function gates.lstm(a, c, f, g, dim, clip)
  local part = chunk(a, 4, dim or -1)
  c = g(part[2]) * c + g(part[1]) * f(part[3])
  if clip then c = clip(c) end
  return g(part[4]) * f(c), c
end

--- gates.gru(i2h, h2h, h, f, g[, dim = -1]) -> h. Both products hold the gates reset, update and new along dim. reset
--- multiplies the product with the state, as in cuDNN. f is the activation of the new state, g that of the gates.
function gates.gru(i2h, h2h, h, f, g, dim)
  local a, b = chunk(i2h, 3, dim or -1), chunk(h2h, 3, dim or -1)
  local reset, update = g(a[1] + b[1]), g(a[2] + b[2])
  local new = f(a[3] + reset * b[3])
  return new + update * (h - new)
end

return gates
