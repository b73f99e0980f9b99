-- The pointwise part of a recurrent step, after the products with x and with the state. Gates are packed in Gluon's
-- order.
local core = ...
local chunk = core.ops.chunk
local gates = {}

--- gates.lstm(a, c, f, g) -> h, c. a holds the sums of the gates in, forget, cell and out. f is the activation of the
--- cell, g that of the gates.
function gates.lstm(a, c, f, g)
  local part = chunk(a, 4, -1)
  c = g(part[2]) * c + g(part[1]) * f(part[3])
  return g(part[4]) * f(c), c
end

--- gates.gru(i2h, h2h, h, f, g) -> h. Both products hold the gates reset, update and new. reset multiplies the product
--- with the state, as in cuDNN. f is the activation of the new state, g that of the gates.
function gates.gru(i2h, h2h, h, f, g)
  local a, b = chunk(i2h, 3, -1), chunk(h2h, 3, -1)
  local reset, update = g(a[1] + b[1]), g(a[2] + b[2])
  local new = f(a[3] + reset * b[3])
  return new + update * (h - new)
end

return gates
