-- Calls of activations, dropout and other random ops, pooling with positions, sampling, bags and losses of pairs. f is
-- gradcheck.random.
local gradcheck = require "tests.gradcheck"

return function(pg, f)
  local function labels(list, dtype) return pg.tensor(list, {dtype = dtype or "int64"}) end
  local function double(list) return pg.tensor(list, {dtype = "float64"}) end
  local each = gradcheck.each_reduction
  local function dropped(shape) return {{args = {f(shape)}, attrs = {p = 0.4, training = true}}, {args = {f(shape)}, attrs = {training = false}}} end
  local function fills(attrs, other) return {{args = {f{2, 3}}, attrs = attrs}, {args = {f{3}}, attrs = other}, {args = {f{0, 2}}}} end
  local image, cube = f{2, 3, 4, 5}, f{2, 2, 3, 4, 3}
  local function grid(...) return f({2, ...}, -0.93, 0.93) end
  local weight = f{5, 3}
  local bags, starts = labels{2, 4, 1, 2, 5, 3}, labels{1, 3, 3, 5}
  local target = f{3, 4}
  local function signs() return labels{1, -1, 1} end
  return {
    softshrink = {{args = {f({3}, 0.7, 2)}}}, hardshrink = {{args = {f({3}, 0.7, 2)}}, {args = {f({3}, -0.25, 0.25), 0.3}}},
    tanhshrink = {{args = {f{2, 3}}}},
    threshold = {{args = {f({3}, 0.7, 2), 0.5, -3}}, {args = {f({2, 3}, -2, -0.7), -0.5, 20}}},
    rrelu = {
      {args = {f({2, 3}, 0.2, 2)}, attrs = {training = true}}, {args = {f({2, 3}, -2, -0.2), 0.1, 0.9}, attrs = {training = true}},
      {args = {f({2, 3}, -2, -0.2)}, attrs = {training = false}},
    },
    dropout = {{args = {f{2, 3, 4}}, attrs = {p = 0.4, training = true, axes = {-1}}}, {args = {f{2, 3}}, attrs = {training = true, axes = {1, 2}}}},
    dropout1d = dropped{2, 3, 4}, dropout2d = dropped{2, 3, 2, 2}, dropout3d = dropped{3, 2, 2, 2},
    alpha_dropout = dropped{2, 3}, feature_alpha_dropout = dropped{2, 3, 4},
    gumbel_softmax = {{args = {f{2, 3}}}, {args = {f{2, 3}}, attrs = {tau = 0.7, dim = 1}}, {args = {f{2, 3}}, attrs = {hard = true}, order = 0}},
    uniform = fills({from = -1, to = 3}, {from = 2, to = 2}), normal = fills({mean = 3, std = 0.5}, {}),
    log_normal = fills({mean = 0.1, std = 0.5}, {}), exponential = fills({lambda = 2}, {}),
    cauchy = fills({median = 1, sigma = 2}, {}), geometric = {{args = {f{2, 3}, 0.3}}, {args = {labels{1, 2, 3}, 0.01}}},
    bernoulli = {{args = {f{2, 3}, 0.3}}},
    local_response_norm = {{args = {f{2, 5, 3}, 3}}, {args = {f{1, 4, 2, 3}, 2}, attrs = {alpha = 0.5, beta = 0.6, k = 2}}, {args = {f{1, 3, 2}, 1}}},

    max_pool1d = {{args = {f{1, 2, 6}, 2}, attrs = {return_indices = true}, outputs = 1}},
    max_pool2d = {
      {args = {f{2, 2, 5, 4}, {3, 2}}, attrs = {stride = {1, 2}, padding = {1, 0}, dilation = {1, 2}, return_indices = true}, outputs = 1},
      {args = {f{1, 2, 4, 4}, 2}, attrs = {return_indices = true, index_base = 0}, outputs = 1},
    },
    max_pool3d = {{args = {f{1, 1, 2, 4, 4}, 2}, attrs = {return_indices = true}, outputs = 1}},
    adaptive_max_pool = {
      {args = {f{1, 2, 4, 4}, {2, 3}}, attrs = {return_indices = true}, outputs = 1}, {args = {f{2, 6, 4}, {3, 2}}, attrs = {return_indices = true}, outputs = 1},
      {args = {f{1, 2, 5}, {3}}, attrs = {return_indices = true, index_base = 0}, outputs = 1},
    },
    max_unpool1d = {{args = {f{1, 2, 2}, labels{{{1, 4}, {2, 3}}}, 2}}, {args = {f{1, 2, 2}, labels{{{0, 4}, {2, 3}}}, 2}, attrs = {output_size = {5}, index_base = 0}}},
    max_unpool2d = {
      {args = {f{1, 2, 1, 2}, labels({{{{1, 8}}, {{6, 3}}}}, "int32"), 2}},
      {args = {f{2, 2, 2}, labels{{{1, 8}, {12, 3}}, {{5, 16}, {2, 10}}}, 3}, attrs = {stride = 2, padding = 1, output_size = {4, 4}}},
    },
    max_unpool3d = {{args = {f{1, 1, 1, 1, 2}, labels{{{{{3, 16}}}}}, 2}}},
    _sample_points = {
      {args = {f{2, 3, 4}, labels({{{0, 3}, {-1, 2}}, {{1, 1}, {3, -1}}}, "int32"), f{2, 2, 2}}}, {args = {f{1, 2, 4}, labels({{{0, 3, 3}}}, "int32")}},
    },
    _sample_points_back = {
      {args = {f{1, 2, 3}, labels({{{0, 3, 3}, {-1, 2, 1}}}, "int32"), f{1, 2, 3}}, attrs = {size = 4}}, {args = {f{1, 2, 3}, labels({{{0, 3, 3}}}, "int32")}, attrs = {size = 5}},
    },
    _sample_points_weight = {{args = {f{1, 2, 3}, f{1, 2, 4}, labels({{{0, 3, 3}, {-1, 2, 1}}}, "int32")}}},
    _sample_taps = {
      {args = {{f({1, 3}, -1, 4), f({1, 3}, -1, 5)}}, attrs = {size = {3, 4}}}, {args = {{f({1, 3}, -1, 4)}}, attrs = {size = {3}, taps = 1}},
      {args = {{f({1, 3}, -9, 9), f({1, 3}, -9, 9)}}, attrs = {size = {3, 4}, taps = 4, padding_mode = "reflection"}},
    },
    grid_sample = {
      {args = {image, grid(3, 2, 2)}}, {args = {image, grid(2, 3, 2)}, attrs = {padding_mode = "border", align_corners = true}},
      {args = {image, f({2, 2, 2, 2}, -2, 2)}, attrs = {padding_mode = "reflection"}}, {args = {image, f({2, 2, 2, 2}, -1.5, 1.5)}},
      {args = {image, grid(2, 2, 2)}, attrs = {mode = "bicubic"}}, {args = {image, f({2, 2, 2, 2}, -2, 2)}, attrs = {mode = "bicubic", padding_mode = "reflection", align_corners = true}},
      {args = {image, grid(2, 2, 2)}, attrs = {mode = "nearest"}}, {args = {cube, grid(2, 1, 3, 3)}},
      {args = {cube, f({2, 1, 2, 2, 3}, -2, 2)}, attrs = {padding_mode = "reflection", align_corners = true}}, {args = {cube, grid(1, 1, 2, 3)}, attrs = {mode = "nearest", padding_mode = "border"}},
    },
    affine_grid = {
      {args = {f{2, 2, 3}, {2, 1, 3, 2}}}, {args = {f{2, 2, 3}, {2, 3, 1, 4}}, attrs = {align_corners = true}}, {args = {f{1, 3, 4}, {1, 1, 2, 3, 2}}},
    },
    embedding_bag = {
      {args = {labels{{1, 3}, {5, 1}}, weight}}, {args = {bags, weight, starts, "sum"}}, {args = {bags, weight, starts, "max"}},
      {args = {bags, weight, starts, "sum", f{6}}}, {args = {labels{{1, 3}, {5, 1}}, weight, nil, "sum", f{2, 2}}},
      {args = {bags, weight, starts}, attrs = {padding_idx = 2}}, {args = {bags, weight, starts, "max"}, attrs = {padding_idx = -4}},
      {args = {labels{1, 3, 0}, weight, labels{0, 2, 3}}, attrs = {include_last_offset = true, index_base = 0}},
    },
    _bag_numbers = {{args = {labels{1, 3, 3}}, attrs = {length = 4}}, {args = {labels{0, 2, 4}}, attrs = {length = 4, include_last_offset = true, index_base = 0}}},
    _sum_rows = {
      {args = {weight, labels{0, 2, 2, 4}, labels{0, 0, 1, 3}}, attrs = {count = 4}},
      {args = {weight, labels{1, 9, 2, -1, 1}, labels{2, 0, 0, 1, 5}, f{5}}, attrs = {count = 3}},
    },
    _bag_argmax = {{args = {f{4, 2}, labels{0, 2, 0, 3}}, attrs = {bags = 3}}},
    _read_positions = {{args = {labels({{1, 3}, {2, 2}}, "uint8")}, attrs = {size = 3, op = "embedding_bag", argument = "indices"}}},
    scaled_dot_product_attention = {{args = {f{2, 4, 3, 2}, f{2, 2, 5, 2}, f{2, 1, 5, 3}}, attrs = {enable_gqa = true}}},

    mse_loss = each(function() return f{3, 4}, f{3, 4}, nil, f({3, 4}, 0.5, 2) end),
    l1_loss = each(function() return f({3, 4}, 0.5, 2), f({3, 4}, -2, 0), nil, f({3, 4}, 0.5, 2) end),
    huber_loss = {{args = {f({3, 4}, 0.5, 0.9), f({3, 4}, 0.1, 0.4)}, attrs = {weight = f({3, 4}, 0.5, 2)}}},
    poisson_nll_loss = {
      {args = {f{3, 4}, f({3, 4}, 0, 4)}}, {args = {f({3, 4}, 0.5, 2), f({4}, 1.5, 4)}, attrs = {log_input = false, full = true, reduction = "sum"}},
      {args = {f{2, 2}, double{{0.2, 0.9}, {1.5, 3}}}, attrs = {full = true, reduction = "none"}},
    },
    gaussian_nll_loss = {
      {args = {f{3, 4}, target, f({3, 4}, 0.5, 2)}}, {args = {f{3, 4}, target, f({3}, 0.5, 2)}, attrs = {full = true, reduction = "none"}},
      {args = {f{3, 4}, target, f({3, 1}, 0.5, 2)}, attrs = {reduction = "sum"}},
    },
    soft_margin_loss = each(function() return f{3, 4}, f{3, 4} end),
    hinge_embedding_loss = {{args = {f({3}, 0.1, 0.9), signs()}}, {args = {f({3}, 0.1, 0.3), signs()}, attrs = {margin = 0.5, reduction = "none"}}},
    margin_ranking_loss = {
      {args = {f({3}, 0.5, 0.9), f({3}, 0.1, 0.4), signs()}, attrs = {margin = 1}}, {args = {f({2, 3}, 0.5, 0.9), f({3}, 0.1, 0.4), signs()}, attrs = {reduction = "none"}},
    },
    triplet_margin_loss = {
      {args = {f{3, 4}, f({3, 4}, 1, 2), f({3, 4}, -2, -1)}, attrs = {margin = 3}}, {args = {f{3, 4}, f({3, 4}, 1, 2), f({3, 4}, 3, 4)}, attrs = {swap = true, p = 3, reduction = "none", margin = 5}},
    },
    cosine_embedding_loss = {
      {args = {f({3, 4}, 0.5, 2), f({3, 4}, 0.5, 2), signs()}}, {args = {f({4}, 0.5, 2), f({4}, -1, 0.2), labels(-1)}, attrs = {margin = -2, reduction = "sum"}},
    },
    multi_margin_loss = {
      {args = {f{3, 4}, labels{2, 4, 1}}, attrs = {margin = 3}}, {args = {f{3, 4}, labels({2, 4, 1}, "int32"), 2, 3, f({4}, 0.5, 2)}, attrs = {reduction = "none"}},
      {args = {f{4}, labels(3)}, attrs = {margin = 3, p = 2, reduction = "none"}}, {args = {f{2, 3}, labels{0, 2}}, attrs = {margin = 3, index_base = 0, reduction = "sum"}},
    },
    multilabel_margin_loss = {
      {args = {f({2, 4}, -0.4, 0.4), labels{{3, 1, 0, 2}, {2, 0, 0, 0}}}}, {args = {f({4}, -0.4, 0.4), labels{3, 0, -1, 1}}, attrs = {index_base = 0, reduction = "none"}},
      {args = {f({2, 3}, -0.4, 0.4), labels{{3, 1, 2}, {0, 1, 1}}}, attrs = {reduction = "none"}},
    },
    multilabel_soft_margin_loss = each(function() return f{3, 4}, f({3, 4}, 0, 1), f({4}, 0.5, 2) end),
  }
end
