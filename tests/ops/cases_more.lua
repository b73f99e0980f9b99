-- Calls of reductions, scans, softmax and normalisations: args in the order of the call, attrs by name. f is gradcheck.random.
return function(_, f)
  local x = f{2, 3, 4}
  local function over_dims() return {{args = {x}}, {args = {x}, attrs = {dim = 2}}, {args = {x}, attrs = {dim = {1, -1}, keepdim = true}}} end
  local function over_dim()
    return {{args = {x}}, {args = {x}, attrs = {dim = 2}}, {args = {x}, attrs = {dim = -1, keepdim = true}}}
  end
  local function scan() return {{args = {x}, attrs = {dim = 2}}, {args = {x}, attrs = {dim = -1}}} end
  local function both_ways()
    return {{args = {x}, attrs = {dim = 2}}, {args = {x}, attrs = {dim = -1, reverse = true}}}
  end
  local mean3, rstd3 = f{3}, f({3}, 0.5, 2)
  local function scale(n) return f({n}, 0.5, 2) end
  local norm_x = f{4, 3, 2}
  return {
    sum = over_dims(), mean = over_dims(), prod = over_dims(), amax = over_dims(), amin = over_dims(), logsumexp = over_dims(),
    all = over_dims(), any = over_dims(), count_nonzero = over_dims(),
    max = over_dim(), min = over_dim(), argmax = over_dim(), argmin = over_dim(),
    var = {{args = {x}}, {args = {x}, attrs = {dim = {1, 3}, correction = 0}}, {args = {x, {2}}, attrs = {keepdim = true}}},
    std = {{args = {x}}, {args = {x}, attrs = {dim = {1, 3}, correction = 0}}},
    cov = {{args = {f{3, 5}}}, {args = {f{3, 5}}, attrs = {correction = 0}}},
    norm = {
      {args = {f({2, 3}, 0.3, 2)}}, {args = {f({2, 3}, 0.3, 2)}, attrs = {p = 1, dim = {2}}},
      {args = {f({2, 3}, 0.3, 2)}, attrs = {p = 3, dim = {1}, keepdim = true}}, {args = {f({2, 3}, 0.3, 2)}, attrs = {p = math.huge}},
    },
    _sum_squares = over_dims(),
    sum_to = {{args = {x}, attrs = {shape = {3, 1}}}, {args = {x}, attrs = {shape = {}}}},
    cumsum = both_ways(), cumprod = both_ways(), cummax = scan(), cummin = scan(),
    _scan_affine = {
      {args = {f{2, 4}, f{2, 4}}, attrs = {dim = 2}},
      {args = {f{2, 4}, f{2, 4}}, attrs = {dim = 1, reverse = true, lag = 1}},
    },
    softmax = scan(), log_softmax = scan(), softmin = scan(),
    _softmax_backward = {{args = {f({2, 3}, 0.1, 1), f{2, 3}}, attrs = {dim = 2}}},
    _log_softmax_backward = {{args = {f({2, 3}, -2, -0.1), f{2, 3}}, attrs = {dim = 1}}},
    layer_norm = {
      {args = {x}, attrs = {normalized_shape = {4}}},
      {args = {x, {3, 4}, f({3, 4}, 0.5, 2), f{3, 4}}},
      {args = {x, {4}, scale(4)}},
    },
    rms_norm = {{args = {x}, attrs = {normalized_shape = {4}}}, {args = {x, {4}, scale(4)}}},
    group_norm = {{args = {f{2, 4, 3}}, attrs = {num_groups = 2}}, {args = {f{2, 4, 3}, 2, scale(4), f{4}}}},
    instance_norm = {{args = {f{2, 3, 4}}}, {args = {f{2, 3, 4}, scale(3), f{3}}}},
    batch_norm = {
      {args = {norm_x, f{3}, f({3}, 0.5, 2), scale(3), f{3}}, attrs = {training = false}, outputs = 1},
      {args = {norm_x, f{3}, f({3}, 0.5, 2), scale(3), f{3}}, attrs = {training = true}, outputs = 1},
      {args = {norm_x}, attrs = {training = true}, outputs = 1},
    },
    _batch_norm_train = {{args = {norm_x, f{3}, f({3}, 0.5, 2), scale(3), f{3}}, outputs = 3}},
    _batch_norm_sums = {{args = {norm_x, mean3, rstd3, f{4, 3, 2}}}},
    _batch_norm_dx = {{args = {norm_x, mean3, rstd3, f{4, 3, 2}, f{3}, f{3}, scale(3)}}},
    _row_norm = {{args = {f{2, 4}, scale(4), f{4}}, attrs = {normalized_shape = {4}}}},
    _row_norm_dw = {{args = {f{2, 4}, f{2, 1}, f({2, 1}, 0.5, 2), f{2, 4}}, attrs = {normalized_shape = {4}}}},
    _row_norm_dx = {{args = {f{2, 4}, f{2, 1}, f({2, 1}, 0.5, 2), f{2, 4}, scale(4)}, attrs = {normalized_shape = {4}}}},
    _scale_shift = {{args = {norm_x, f{3}, f{3}}}},
    glu = {{args = {f{2, 4}}}, {args = {f{4, 3}}, attrs = {dim = 1}}},
    prelu = {{args = {f({2, 3, 2}, 0.2, 2), f{3}}}, {args = {f({4}, -2, -0.2), f{1}}}},
    clamp = {
      {args = {f({2, 3}, -0.4, 0.4), -0.5, 0.5}}, {args = {f{2, 3}, f({3}, -1.5, -1.2), f({2, 1}, 1.2, 1.5)}},
      {args = {f{2, 3}}, attrs = {min = -0.1}},
    },
    gelu = {{args = {f{2, 3}}}, {args = {f{2, 3}}, attrs = {approximate = "tanh"}}},
    dropout = {
      {args = {f{2, 3}}, attrs = {p = 0.4, training = true}}, {args = {f{2, 3}}, attrs = {p = 0.4, training = false}},
    },
  }
end
