-- Calls of losses. f is gradcheck.random.
local gradcheck = require "tests.gradcheck"

return function(pg, f)
  local function labels(list) return pg.tensor(list, {dtype = "int64"}) end
  local function away() return f({3, 4}, 0.5, 2), f({3, 4}, -2, 0) end
  local function near() return f({3, 4}, 0.5, 0.9), f({3, 4}, 0.1, 0.4) end
  local function probability(shape) return f(shape, 0.1, 0.9) end
  local each = gradcheck.each_reduction
  local l3, grid = labels{2, 4, 1}, labels{{1, 3}, {-100, 2}}
  local weight = f({4}, 0.5, 2)
  local w3 = f({3}, 0.5, 2)
  local class_cases = {
    {args = {f{3, 4}, l3}}, {args = {f{3, 4}, l3, weight}, attrs = {reduction = "sum"}, fixed = {weight}},
    {args = {f{3, 4}, l3, weight}, fixed = {weight}}, {args = {f{3, 4}, l3}, attrs = {reduction = "none"}},
    {args = {f{2, 3, 2}, grid, w3}, fixed = {w3}}, {args = {f{2, 3, 2}, grid}, attrs = {reduction = "none"}},
    {args = {f{4}, labels(3)}},
  }
  local smooth = {}
  for i, c in ipairs(class_cases) do
    local attrs = {label_smoothing = 0.2}
    for k, v in pairs(c.attrs or {}) do attrs[k] = v end
    smooth[i] = {args = c.args, attrs = attrs, fixed = c.fixed}
  end
  local cross = {
    {args = {f{3, 4}, probability{3, 4}}},
    {args = {f{3, 4}, probability{3, 4}, weight}, attrs = {label_smoothing = 0.1, reduction = "sum"}},
  }
  for i, c in ipairs(class_cases) do
    cross[#cross + 1] = c
    cross[#cross + 1] = smooth[i]
  end
  local lse = f{3}
  local rest, rests = f({3}, -0.1, 0.1), f({2, 2}, -0.1, 0.1)
  local scores, spelled, steps, counts = f{5, 3, 4}, labels{{2, 4}, {3, 3}, {4, 2}}, labels{5, 4, 3}, labels{2, 2, 1}
  -- The gradient of ctc_loss is for normalized log_probs: tests/lua/test_ctc.lua compares it with differences.
  local unlimited = {args = {f{5, 2, 4}, labels{{1, 3}, {1, 1}}, labels{1, 4}}, attrs = {blank = 4, reduction = "sum", zero_infinity = true}, order = 0}
  return {
    mse_loss = each(away),
    l1_loss = each(away),
    huber_loss = {{args = {near()}}, {args = {away()}, attrs = {delta = 0.1, reduction = "sum"}}},
    smooth_l1_loss = {{args = {near()}}, {args = {away()}, attrs = {beta = 0.2, reduction = "none"}}, {args = {away()}, attrs = {beta = 0}}},
    binary_cross_entropy_with_logits = {
      {args = {f{3, 4}, probability{3, 4}}}, {args = {f{3, 4}, probability{3, 4}, f{4}}, attrs = {reduction = "none"}},
      {args = {f{3, 4}, probability{3, 4}, nil, "sum", weight}},
    },
    binary_cross_entropy = each(function() return probability{3, 4}, probability{3, 4} end),
    kl_div = {{args = {f{3, 4}, probability{3, 4}}}, {args = {f{3, 4}, f{3, 4}}, attrs = {log_target = true, reduction = "batchmean"}}},
    cross_entropy = cross,
    nll_loss = class_cases,
    ctc_loss = {
      {args = {scores, spelled, steps, counts}, order = 0}, unlimited, {args = {f{4, 3}, labels{2, 2}}, order = 0},
      {args = {scores, labels{2, 4, 3, 3, 4}, nil, counts}, attrs = {reduction = "none"}, order = 0},
    },
    _ctc_paths = {{args = {scores, spelled, steps, counts}, order = 0}},
    _ctc_slope = {
      {args = {scores, spelled, steps, counts}}, {args = {f{4, 2, 3}, labels{{2}, {3}}, nil, nil, f{4, 2, 3}, f{4, 2, 3}}},
    },
    _nll_fused = {class_cases[1], class_cases[3]},
    _nll_dx = {{args = {l3, weight, f{3}}, attrs = {shape = {3, 4}}, fixed = {weight}}, {args = {grid, nil, f{}}, attrs = {shape = {2, 3, 2}}}},
    _cross_entropy_fused = {class_cases[3], smooth[3]},
    _cross_entropy_dx = {
      {args = {f{3, 4}, l3, nil, lse, rest, f{3}}, fixed = {rest}},
      {args = {f{3, 4}, l3, weight, lse, rest, f{}}, fixed = {weight, rest}},
      {args = {f{3, 4}, l3, weight, lse, rest, f{3}}, attrs = {label_smoothing = 0.2}, fixed = {weight, rest}},
      {args = {f{2, 3, 2}, grid, nil, f{2, 2}, rests, f{2, 2}}, attrs = {label_smoothing = 0.2}, fixed = {rests}},
    },
  }
end
