-- Calls of the pointwise ops about special values and integers, of options of arithmetic, and of joins.
return function(pg, f)
  local function i(values) return pg.tensor(values, {dtype = "int64"}) end
  local function special() return pg.tensor({0 / 0, 1, math.huge, -math.huge, -2}, {dtype = "float64"}) end
  local zeros = pg.zeros({3}, {dtype = "float64"})
  return {
    nan_to_num = {{args = {f{2, 3}}}, {args = {special(), 0.5, 2, -3}}},
    isclose = {{args = {f{2, 3}, f{3}}}, {args = {f{3}, 0.5}, attrs = {rtol = 0.5, atol = 0.1}}, {args = {special(), special()}, attrs = {equal_nan = true}}},
    fmax = {{args = {f{2, 3}, f({3}, 2, 3)}}, {args = {f{3}, 5}}}, fmin = {{args = {f{2, 3}, f({3}, 2, 3)}}, {args = {-5, f{3}}}},
    heaviside = {{args = {zeros, f{2, 3}}, fixed = {zeros}}, {args = {f{3}, 0.5}}},
    logit = {{args = {f({2, 3}, 0.2, 0.8)}, attrs = {eps = 0.1}}, {args = {f({3}, 0.01, 0.05)}, attrs = {eps = 0.1}}},
    xlogy = {{args = {f{2, 3}, f({3}, 0.5, 2)}}, {args = {f{3}, 2}}, {args = {0.5, f({3}, 0.5, 2)}}},
    trunc_divide = {{args = {f{2, 3}, f({3}, 1, 2)}, order = 0}, {args = {i{-7, 7}, 2}}},
    gcd = {{args = {i{{12, -18, 0}}, i{{8}, {0}}}}}, lcm = {{args = {i{4, 6, 0}, 10}}},
    bitwise_left_shift = {{args = {i{3, -1}, i{{0}, {5}, {70}}}}}, bitwise_right_shift = {{args = {i{30, -9}, i{{0}, {2}, {70}}}}},
    add = {{args = {f{2, 3}, f{3}}, attrs = {alpha = 2}}, {args = {f{3}, 2}, attrs = {alpha = -0.5}}, {args = {2, f{3}}, attrs = {alpha = 1}}},
    sub = {{args = {f{2, 3}, f{3}}, attrs = {alpha = 2}}},
    div = {{args = {f{2, 3}, f({3}, 1, 2)}, attrs = {rounding_mode = "trunc"}, order = 0},
      {args = {f{2, 3}, f({3}, 1, 2)}, attrs = {rounding_mode = "floor"}, order = 0}},
    hstack = {{args = {{f{2, 3}, f{2, 2}}}}, {args = {{f{2}, f{}, f{3}}}}, {args = {{f{2, 1, 3}, f{2, 2, 3}}}}},
    vstack = {{args = {{f{2, 3}, f{3}, f{1, 3}}}}, {args = {{f{}, f{1}}}}},
    dstack = {{args = {{f{2, 3}, f{2, 3}}}}, {args = {{f{3}, f{1, 3, 2}}}}, {args = {{f{}, f{1}}}}},
    unflatten = {{args = {f{2, 6}, 2, {3, -1}}}, {args = {f{4}}, attrs = {dim = -1, sizes = {2, 2, 1}}}, {args = {f{2, 0}, 2, {0, 5}}}},
    type_as = {{args = {f{2, 3}, f{1}}}},
  }
end
