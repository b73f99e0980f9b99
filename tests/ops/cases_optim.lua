-- Calls of the fused optimizer updates. f is gradcheck.random.
return function(_, f)
  local function positive(shape) return f(shape, 0.2, 1) end
  local function lists(states)
    local out = {{f{3, 4}, f{5}}, {f{3, 4}, f{5}}}
    for i = 1, states do out[2 + i] = {positive{3, 4}, positive{5}} end
    return out
  end
  local function calls(states)
    return {
      {args = lists(states), attrs = {lr = 0.1}},
      {args = lists(states), attrs = {lr = {0.1, 0.2}, wd = {0, 0.5}, rescale_grad = 0.5, clip_gradient = 0.2, t = {3, 4}}},
    }
  end
  return {
    sgd_update = calls(0), sgd_momentum_update = calls(1), nag_update = calls(1), adam_update = calls(2), adamw_update = calls(2),
  }
end
