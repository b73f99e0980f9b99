-- Calls of matrix products, convolutions, pooling and resampling: args in the order of the call, attrs by name. f is gradcheck.random.
return function(pg, f)
  local function positive(n)  -- symmetric and well conditioned
    local a = f{n, n}
    return a:matmul(a:t()) + pg.eye(n, {dtype = "float64"})
  end
  local function regular(m, n) return f{m, n} + pg.eye(m, n, {dtype = "float64"}) * 3 end
  local function spread(m, n)  -- with singular values, and for a square matrix eigenvalues, far apart
    return f({m, n}, -0.3, 0.3) + pg.range(1, n, {dtype = "float64"}) * pg.eye(m, n, {dtype = "float64"})
  end
  local function index(values) return pg.tensor(values, {dtype = "int32"}) end
  local seen = pg.tensor{{true, true, false, true}, {true, false, true, false}, {false, true, true, true}}
  local image, kernel = f{1, 2, 4, 4}, f{2, 2, 3, 3}
  return {
    matmul = {
      {args = {f{2, 3}, f{3, 4}}}, {args = {f{3}, f{3, 2}}}, {args = {f{2, 3}, f{3}}}, {args = {f{3}, f{3}}},
      {args = {f{2, 1, 2, 3}, f{3, 3, 2}}}, {args = {f{2, 3, 4}, f{4}}}, {args = {f{2, 3, 4}, f{4, 5}}},
      {args = {f{3, 4}, f{2, 4, 2}}}, {args = {f{4}, f{2, 4, 2}}},
    },
    mm = {{args = {f{2, 3}, f{3, 4}}}, {args = {f{3, 2}:t(), f{3, 4}}}},
    bmm = {{args = {f{2, 2, 3}, f{2, 3, 2}}}},
    mv = {{args = {f{2, 3}, f{3}}}},
    dot = {{args = {f{3}, f{3}}}, {args = {f{3, 2}, f{4, 3}}, attrs = {transpose_a = true, transpose_b = true}}},
    outer = {{args = {f{2}, f{3}}}},
    einsum = {
      {args = {"ij,jk->ik", f{2, 3}, f{3, 4}}}, {args = {"bij,bkj->b", f{2, 2, 3}, f{2, 4, 3}}}, {args = {"ii->i", f{3, 3}}},
      {args = {"...i,i->...", f{2, 2, 3}, f{3}}}, {args = {"ij->ji", f{3, 3}}}, {args = {"ii", f{3, 3}}}, {args = {"ij->", f{3, 3}}},
      {args = {"ij->j", f{3, 3}}}, {args = {"bij,bjk->ki", f{2, 3, 4}, f{2, 4, 3}}}, {args = {"bij,bji->b", f{2, 3, 4}, f{2, 4, 3}}},
      {args = {"bij,...k->ijk...", f{2, 3, 4}, f{2, 4, 3}}}, {args = {"abc,acd", f{2, 3, 4}, f{2, 4, 3}}},
      {args = {"ijk,kl,jm->ilm", f{2, 3, 4}, f{4, 5}, f{3, 6}}}, {args = {"ij,ij->j", f{1, 3}, f{4, 3}}},
    },
    addmm = {{args = {f{4}, f{2, 3}, f{3, 4}}, attrs = {beta = 0.5, alpha = 2}}},
    baddbmm = {{args = {f{2, 2, 4}, f{2, 2, 3}, f{2, 3, 4}}, attrs = {beta = 0.5, alpha = 2}}},
    linear = {{args = {f{2, 3}, f{4, 3}}}, {args = {f{2, 2, 3}, f{4, 3}, f{4}}}, {args = {f{3}, f{4, 3}, f{4}}}},
    _matmul_add = {{args = {f{2, 3}, f{3, 4}, f{2, 4}}}, {args = {f{2, 2, 3}, f{3, 4}, f{2, 2, 4}}}},
    _linear_act = {
      {args = {f{2, 3}, f{4, 3}, f{4}}, attrs = {activation = "tanh"}}, {args = {f{3}, f{4, 3}}, attrs = {activation = "sigmoid"}},
      {args = {f{2, 3}, f{4, 3}, f{4}}, attrs = {activation = "leaky_relu", slope = 0.2}},
      {args = {f{2, 3}, f{4, 3}, f{4}}, attrs = {activation = "gelu_tanh"}},
      {args = {f{2, 3}, f{4, 3}, f{4}}, attrs = {activation = "relu6"}},
    },
    linalg_cholesky = {{args = {positive(3)}, symmetric = true}},
    linalg_inv = {{args = {regular(3, 3)}}, {args = {regular(3, 3)}, attrs = {check_errors = false}}},
    linalg_solve = {{args = {regular(3, 3), f{3, 2}}}, {args = {regular(3, 3), f{3}}}},
    linalg_solve_triangular = {
      {args = {regular(3, 3), f{3, 2}}, attrs = {upper = false}}, {args = {regular(3, 3), f{2, 2, 3}}, attrs = {upper = true, left = false}},
      {args = {regular(3, 3), f{2, 3, 2}}, attrs = {upper = true, transpose = true, unitriangular = true}},
      {args = {pg.stack{regular(3, 3), regular(3, 3)}, f{2, 3}}, attrs = {upper = false, left = false, transpose = true}},
    },
    linalg_cholesky_solve = {{args = {f{3, 2}, regular(3, 3)}}, {args = {f{2, 3, 1}, regular(3, 3)}, attrs = {upper = true}}},
    linalg_lstsq = {
      {args = {regular(4, 3), f{4, 2}}}, {args = {regular(2, 4), f{2}}}, {args = {f{2, 4, 3}, f{4, 2}}, rtol = 1e-3},
      {args = {regular(4, 3), f{4, 2}}, attrs = {driver = "gelsd"}},
    },
    linalg_qr = {
      {args = {regular(3, 3)}}, {args = {f{2, 4, 3}}, rtol = 1e-3}, {args = {regular(2, 4)}},
      {args = {regular(2, 4)}, attrs = {mode = "complete"}}, {args = {f{4, 3}}, attrs = {mode = "complete"}, order = 0},
    },
    linalg_svd = {
      {args = {spread(3, 3)}, rtol = 1e-3}, {args = {spread(4, 3)}, rtol = 1e-3}, {args = {spread(3, 5)}, rtol = 1e-3},
      {args = {spread(3, 3)}, attrs = {full_matrices = true}, rtol = 1e-3},
      {args = {spread(4, 2)}, attrs = {full_matrices = true}, order = 0, rtol = 1e-3},
    },
    linalg_svdvals = {{args = {spread(3, 3)}}, {args = {f{2, 2, 4}}}},
    linalg_eigh = {{args = {spread(3, 3)}, symmetric = true, rtol = 1e-3}},
    linalg_eigvalsh = {{args = {positive(3)}, symmetric = true}},
    linalg_det = {{args = {f{3, 3}}}, {args = {f{2, 2, 2}}}, {args = {f{4, 1}:matmul(f{1, 4}) + f{4, 2}:matmul(f{2, 4})}}},
    _linalg_cofactors = {{args = {f{3, 3}}}, {args = {f{2, 2, 2}}}},
    linalg_slogdet = {{args = {regular(3, 3)}}, {args = {-regular(3, 3)}}},
    linalg_matrix_power = {
      {args = {regular(3, 3), 3}}, {args = {regular(3, 3), -2}}, {args = {f{2, 2, 2}, 0}, order = 1}, {args = {f{2, 2}, 1}},
    },
    linalg_matrix_exp = {{args = {f{3, 3}}}, {args = {f{2, 2, 2} * 5}, rtol = 1e-4}},
    linalg_pinv = {{args = {regular(4, 3)}}, {args = {regular(2, 3)}}, {args = {f{3, 3}}, attrs = {rtol = 1e-3, atol = 1e-3}}},
    linalg_matrix_rank = {{args = {f{3, 2}:matmul(f{2, 3})}}, {args = {f{2, 3, 2}}, attrs = {rtol = 1e-3}}},
    scaled_dot_product_attention = {
      {args = {f{2, 3, 4}, f{2, 5, 4}, f{2, 5, 2}}}, {args = {f{3, 4}, f{3, 4}, f{3, 2}}, attrs = {is_causal = true}},
      {args = {f{3, 4}, f{5, 4}, f{5, 2}, f{3, 5}}, attrs = {scale = 0.3}},
    },
    _attention_rows = {
      {args = {f{2, 3, 4}, f{2, 5, 4}, f{2, 5, 2}}, outputs = 1}, {args = {f{3, 4}, f{3, 4}, f{3, 2}}, attrs = {is_causal = true, scale = 0.5}, outputs = 1},
      {args = {f{2, 1, 3, 4}, f{3, 5, 4}, f{1, 5, 2}, f{3, 5}}, outputs = 1}, {args = {f{2, 3, 2}, f{2, 4, 2}, f{2, 4, 3}, seen}, outputs = 1},
    },
    _attention_grads = {
      {args = {f{2, 3, 4}, f{2, 5, 4}, f{2, 5, 2}, f{2, 3}, f({2, 3}, 2, 3), f{2, 3}, f{2, 3, 2}}},
      {args = {f{3, 4}, f{3, 4}, f{3, 2}, f{3}, f({3}, 2, 3), f{3}, f{3, 2}}, attrs = {is_causal = true, scale = 0.5}},
      {args = {f{2, 1, 3, 4}, f{3, 5, 4}, f{1, 5, 2}, f{2, 3, 3}, f({2, 3, 3}, 2, 3), f{2, 3, 3}, f{2, 3, 3, 2}, f{3, 5}}},
      {args = {f{3, 2}, f{4, 2}, f{4, 3}, f{3}, f({3}, 2, 3), f{3}, f{3, 3}, seen}},
    },
    conv1d = {
      {args = {f{2, 2, 5}, f{3, 2, 3}, f{3}}}, {args = {f{1, 2, 7}, f{4, 1, 2}}, attrs = {stride = 2, padding = 1, dilation = 2, groups = 2}},
      {args = {f{2, 4, 9}, f{6, 2, 3}, f{6}}, attrs = {stride = 2, padding = 2, groups = 2}},
    },
    conv2d = {
      {args = {image, kernel, f{2}}}, {args = {f{1, 2, 5, 4}, f{2, 1, 3, 2}}, attrs = {stride = {2, 1}, padding = {1, 0}, groups = 2}},
      {args = {f{2, 2, 5, 6}, f{3, 2, 3, 2}, f{3}}, attrs = {stride = {2, 1}, dilation = {1, 2}}},
      {args = {f{2, 5, 6}, f{3, 2, 3, 2}}, attrs = {padding = 1}}, {args = {image, f{2, 2, 2, 3}}, attrs = {padding = "same"}},
    },
    conv3d = {
      {args = {f{1, 1, 3, 3, 3}, f{2, 1, 2, 2, 2}, f{2}}},
      {args = {f{1, 2, 3, 4, 3}, f{2, 2, 2, 3, 2}, f{2}}, attrs = {padding = {0, 1, 1}}},
    },
    conv_transpose1d = {
      {args = {f{1, 2, 3}, f{2, 2, 2}, f{2}}, attrs = {dilation = 3, output_padding = 2}},
      {args = {f{1, 2, 3}, f{2, 3, 3}, f{3}}, attrs = {stride = 2, padding = 1, output_padding = 1}},
      {args = {f{2, 4, 5}, f{4, 3, 3}, f{6}}, attrs = {stride = 2, padding = 1, output_padding = 1, groups = 2}},
    },
    conv_transpose2d = {
      {args = {f{1, 2, 2, 3}, f{2, 1, 2, 2}}, attrs = {stride = 2, dilation = {1, 4}, output_padding = {1, 3}}},
      {args = {f{1, 2, 2, 3}, f{2, 1, 2, 2}, f{2}}, attrs = {groups = 2}},
      {args = {f{2, 2, 3, 4}, f{2, 3, 2, 3}}, attrs = {dilation = 2}},
    },
    conv_transpose3d = {
      {args = {f{1, 1, 2, 2, 2}, f{1, 2, 2, 2, 2}}, attrs = {stride = 2}},
      {args = {f{1, 2, 2, 2, 3}, f{2, 2, 2, 2, 2}, f{2}}, attrs = {stride = 2}},
    },
    _conv_act = {
      {args = {f{1, 2, 4, 5}, f{3, 2, 2, 2}, f{3}}, attrs = {activation = "tanh", padding = 1}},
      {args = {f{2, 3, 6}, f{4, 3, 2}}, attrs = {activation = "silu", stride = 2}},
    },
    _conv_last = {
      {args = {f{1, 4, 5, 2}, f{3, 2, 2, 2}, f{3}}, attrs = {padding = 1}},
      {args = {f{2, 6, 4}, f{4, 2, 2}}, attrs = {stride = 2, groups = 2}},
      {args = {f{1, 3, 4, 3, 2}, f{2, 2, 2, 2, 1}}, attrs = {dilation = {1, 2, 1}}},
    },
    _conv_act_last = {{args = {f{1, 4, 5, 2}, f{3, 2, 2, 2}, f{3}}, attrs = {activation = "tanh", padding = 1}}},
    _max_pool_last = {
      {args = {f{2, 5, 4, 3}, {3, 2}}, attrs = {stride = {1, 2}, padding = {1, 0}, dilation = {1, 2}}},
      {args = {f{1, 4, 4, 3, 2}, {2, 3, 2}}, attrs = {ceil_mode = true}},
    },
    _avg_pool_last = {
      {args = {f{2, 7, 6, 2}, 3}, attrs = {stride = 2, padding = 1, count_include_pad = false}},
      {args = {f{1, 6, 2}, 2}, attrs = {divisor_override = 3}},
    },
    _conv_by_input = {{args = {f{1, 2, 2, 2}, kernel}, attrs = {size = {4, 4}}}},
    _conv_by_input_last = {
      {args = {f{1, 2, 2, 3}, f{3, 2, 3, 3}}, attrs = {size = {4, 4}}},
      {args = {f{2, 3, 4}, f{4, 1, 2}}, attrs = {size = {6}, stride = 2, groups = 2}},
    },
    _conv_by_weight_last = {
      {args = {f{2, 4, 4, 2}, f{2, 2, 2, 3}}, attrs = {size = {3, 3}}},
      {args = {f{1, 3, 3, 2, 2}, f{1, 2, 3, 1, 2}}, attrs = {size = {2, 1, 2}, groups = 2}},
    },
    _conv_by_weight = {{args = {image, f{1, 2, 2, 2}}, attrs = {size = {3, 3}}}},
    max_pool1d = {{args = {f{1, 2, 6}, 2}}, {args = {f{1, 2, 5}, 3}, attrs = {stride = 2, padding = 1, ceil_mode = true}}},
    max_pool2d = {
      {args = {image, 2}}, {args = {f{2, 5, 4}, {3, 2}}, attrs = {stride = {1, 2}, padding = {1, 0}, dilation = {1, 2}}},
      {args = {f{2, 2, 7, 6}, 3}, attrs = {stride = 2, padding = 1, ceil_mode = true}},
    },
    max_pool3d = {
      {args = {f{1, 1, 2, 4, 4}, 2}},
      {args = {f{1, 2, 4, 4, 4}, {2, 3, 2}}, attrs = {stride = {1, 2, 2}}},
    },
    _max_pool = {{args = {image, {2, 2}}}},
    _max_pool_backward = {{args = {f{1, 1, 2}, index{{{0, 3}}}}, attrs = {size = {4}}}},
    _max_pool_backward_last = {
      {args = {f{1, 2, 3}, index{{{0, 3, 1}, {0, 3, 3}}}}, attrs = {size = {4}}},
      {args = {f{2, 1, 2, 2}, index{{{{5, 0}, {3, 3}}}, {{{0, 2}, {0, 4}}}}}, attrs = {size = {2, 3}}},
    },
    _max_pool_take = {{args = {f{1, 1, 4}, index{{{0, 2}}}}, attrs = {dims = 1}}},
    avg_pool1d = {{args = {f{1, 2, 6}, 2}}, {args = {f{1, 2, 5}, 3}, attrs = {stride = 2, padding = 1, count_include_pad = false}}},
    avg_pool2d = {
      {args = {image, 2}}, {args = {image, 3}, attrs = {stride = 2, padding = 1, ceil_mode = true, divisor_override = 5}},
      {args = {f{2, 2, 7, 6}, 3}, attrs = {stride = 2, padding = 1, count_include_pad = false}},
    },
    avg_pool3d = {{args = {f{1, 1, 2, 4, 4}, 2}}},
    _avg_pool_backward = {{args = {f{1, 2, 2, 2}}, attrs = {size = {4, 4}, kernel_size = {2}}}},
    adaptive_avg_pool = {
      {args = {image, {2, 3}}}, {args = {f{1, 2, 5}, {3}}},
      {args = {f{2, 2, 7, 6}, {1, 4}}},
    },
    adaptive_max_pool = {
      {args = {image, {2, 3}}}, {args = {f{1, 2, 5}, {3}}},
      {args = {f{2, 2, 7, 6}, {3, 2}}},
    },
    lp_pool = {{args = {f({1, 1, 4, 4}, 0.5, 2), 2, 2}}, {args = {f({1, 2, 5}, 0.5, 2), 3, {2}}, attrs = {stride = 1}},
               {args = {f({2, 5}, 0.5, 2), 2, 2}}, {args = {f({2, 4, 5}, 0.5, 2), 2, {2, 3}}}},
    interpolate = {
      {args = {image}, attrs = {scale_factor = {2, 1.5}}}, {args = {f{1, 1, 3}}, attrs = {size = {5}, mode = "linear", align_corners = true}},
      {args = {image}, attrs = {size = {3, 6}, mode = "bilinear"}},
      {args = {image}, attrs = {scale_factor = {2}, mode = "bilinear", align_corners = true}},
      {args = {f{2, 2, 7, 6}}, attrs = {size = {5, 9}, mode = "bilinear"}},
      {args = {f{1, 2, 4, 5}}, attrs = {size = {6, 3}, mode = "bicubic"}},
      {args = {f{1, 1, 3, 4}}, attrs = {scale_factor = {1.4, 2}, mode = "bicubic", align_corners = true}},
    },
    unfold = {{args = {f{2, 2, 4, 5}, 3}, attrs = {padding = 1, stride = {2, 1}}}, {args = {f{2, 4, 4}, {1, 2}}, attrs = {dilation = {1, 2}}}},
    fold = {{args = {f{2, 8, 6}, {3, 4}, 2}}, {args = {f{9, 6}, {4, 5}, 3}, attrs = {padding = 1, stride = 2}}},
    deform_conv2d = {
      {args = {f{1, 2, 4, 4}, f({1, 8, 3, 3}, 0.1, 0.9), f{2, 2, 2, 2}}},
      {args = {f{2, 4, 3, 4}, f({2, 16, 2, 3}, 0.1, 0.4), f{4, 2, 2, 2}, f{4}, 2, 1, 1, f({2, 8, 2, 3}, 0, 1)}},
    },
    _resample = {{args = {f{1, 1, 3}}, attrs = {dim = 3, size = 5, step = 0.6, kind = "linear"}}},
    _resample_backward = {{args = {f{1, 1, 5}}, attrs = {dim = 3, size = 3, step = 0.6, kind = "linear"}}},
    pixel_shuffle = {{args = {f{1, 4, 2, 3}, 2}}},
    pixel_unshuffle = {{args = {f{1, 1, 4, 6}, 2}}},
  }
end
