-- Updates float16 and bfloat16 weights in float32: optimizer:update(group) with these weights and gradients in float32. What
-- rounding the new weight takes away is a state, the residual: both together are the weight in float32.
return function(optimizer, group)
  local rounded = {}
  for i = 1, group.n do
    local w, residual = group.weights[i], group.residual[i]
    if residual then
      rounded[i] = w
      group.weights[i], group.grads[i] = w:to("float32") + residual, group.grads[i]:to("float32")
    end
  end
  optimizer:update(group)
  for i = 1, group.n do
    local w, exact = rounded[i], group.weights[i]
    if w then
      w:copy_(exact:to(w.dtype))
      group.residual[i]:copy_(exact - w:to("float32"))
      group.weights[i] = w
    end
  end
end
