-- Calls of normalizations. f is gradcheck.random.
return function(_, f)
  local function positive(shape) return f(shape, 0.5, 2) end
  local rows = {normalized_shape = {4}}
  local flat = {normalized_shape = {4}, centered = false}
  local function stats() return f{3, 1}, positive{3, 1} end
  local mean, rstd = stats()
  local channels = {f{3}, positive{3}}
  return {
    layer_norm = {
      {args = {f{3, 4}, rows.normalized_shape, f{4}, f{4}}}, {args = {f{3, 4}, {4}, nil, f{4}}}, {args = {f{3, 4}, {4}, f{4}}},
      {args = {f{2, 3, 4}, {3, 4}, f{3, 4}, f{3, 4}}}, {args = {f{2, 40}}, attrs = {normalized_shape = {40}}},
    },
    rms_norm = {{args = {f{3, 4}, {4}, f{4}}}, {args = {f{2, 3, 4}, {3, 4}}}},
    _row_norm = {{args = {f{3, 4}, f{4}, f{4}}, attrs = rows}, {args = {f{3, 4}, f{4}}, attrs = flat}, {args = {f{3, 4}}, attrs = rows}},
    _row_norm_dx = {
      {args = {f{3, 4}, mean, rstd, f{3, 4}, f{4}}, attrs = rows}, {args = {f{3, 4}, mean, rstd, f{3, 4}}, attrs = rows},
      {args = {f{3, 4}, mean, rstd, f{3, 4}, f{4}}, attrs = flat},
    },
    _row_norm_dw = {{args = {f{3, 4}, mean, rstd, f{3, 4}}, attrs = rows}, {args = {f{3, 4}, mean, rstd, f{3, 4}}, attrs = flat}},
    group_norm = {{args = {f{2, 4, 3}, 2, f{4}, f{4}}}, {args = {f{2, 4}, 4}}, {args = {f{2, 4, 2, 2}, 1, f{4}}}},
    instance_norm = {{args = {f{2, 3, 4}, nil, nil, f{3}, f{3}}}, {args = {f{2, 3, 2, 2}}},
      {args = {f{2, 3, 4}, f{3}, positive{3}, f{3}, f{3}}, attrs = {use_input_stats = false}}},
    _scale_shift = {{args = {f{2, 3, 4}, f{3}, f{3}}}, {args = {f{5, 3}, f{3}, f{3}}}},
    batch_norm = {
      {args = {f{4, 3}, nil, nil, f{3}, f{3}}, attrs = {training = true}},
      {args = {f{2, 3, 4}, nil, nil, f{3}, f{3}}},
      {args = {f{2, 3, 4}, channels[1], channels[2], f{3}, f{3}}, attrs = {training = false}, fixed = channels},
      {args = {f{4, 3}, channels[1], channels[2], f{3}, f{3}}, attrs = {training = true, running_var_correction = 1}, order = 0},
      {args = {f{2, 3, 2, 2}}},
    },
    _batch_norm_train = {{args = {f{4, 3}, nil, nil, f{3}, f{3}}}, {args = {f{2, 3, 4}, nil, nil, f{3}}}, {args = {f{2, 3, 4}}}},
    _batch_norm_apply = {
      {args = {f{4, 3}, channels[1], channels[2], f{3}, f{3}}}, {args = {f{2, 3, 4}, channels[1], channels[2]}},
    },
    _batch_norm_sums = {{args = {f{4, 3}, channels[1], channels[2], f{4, 3}}}, {args = {f{2, 3, 4}, channels[1], channels[2], f{2, 3, 4}}}},
    _batch_norm_dx = {
      {args = {f{4, 3}, channels[1], channels[2], f{4, 3}, f{3}, f{3}, f{3}}},
      {args = {f{2, 3, 4}, channels[1], channels[2], f{2, 3, 4}, f{3}, f{3}}},
    },
  }
end
