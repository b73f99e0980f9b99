-- Formulas that the rules of several optimizers share. Rates and counts are numbers or 0-dim tensors.
local core = ...
local ops = core.ops
local formulas = {}

-- average(mean, x, beta) -> the exponential average after x.
function formulas.average(mean, x, beta) return mean * beta + x * (1 - beta) end

-- decayed(step, w, wd) -> step + wd * w. The number 0 needs no op.
function formulas.decayed(step, w, wd) return wd == 0 and step or step + w * wd end

-- correction(beta, t) -> 1 - beta ^ t, without cancellation in float32 too.
function formulas.correction(beta, t)
  if type(t) == "number" then return 1 - beta ^ t end
  return -ops.expm1(t * math.log(beta))
end

-- least(x, bound) -> the smaller one.
function formulas.least(x, bound) return type(x) == "number" and math.min(x, bound) or ops.minimum(x, bound) end

-- length(x) -> the Euclidean norm of all elements, a 0-dim tensor.
function formulas.length(x) return x:norm() end

-- trust(a, b, divisor) -> a / divisor, or 1 where one of the norms a and b is 0.
function formulas.trust(a, b, divisor) return ops.where(a:gt(0) * b:gt(0), a / divisor, 1) end

return formulas
