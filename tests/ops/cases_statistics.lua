-- Calls of the ops that order, count and bin elements, and of sums without NaN. f is gradcheck.random.
return function(pg, f)
  local function i(values, dtype) return pg.tensor(values, {dtype = dtype or "int64"}) end
  local function calls(x, extra)
    local list = {}
    for _, attrs in ipairs{{}, {dim = 1}, {dim = 2, keepdim = true}, {dim = -1}} do
      for k, v in pairs(extra or {}) do attrs[k] = v end
      list[#list + 1] = {args = {x}, attrs = attrs}
    end
    return list
  end
  local function with(list, ...)
    for k = 1, select("#", ...) do list[#list + 1] = (select(k, ...)) end
    return list
  end
  local function holes()
    return pg.tensor({{0.5, 0 / 0, 2, -1}, {0 / 0, 0 / 0, 3, 4}}, {dtype = "float64"})
  end
  local one = {{args = {f{3, 4}}, attrs = {dim = 2}}, {args = {f{3, 4, 2}}, attrs = {dim = 1}}, {args = {f{5}}, attrs = {dim = -1}}}
  local function quantiles(x)
    local list = {{args = {x, 0.3}}, {args = {x, 0.3}, attrs = {dim = 1}}, {args = {x, 1}, attrs = {dim = 2, keepdim = true}},
      {args = {x, f({3}, 0.1, 0.9)}}, {args = {x, f({2}, 0.1, 0.9)}, attrs = {dim = 1, keepdim = true}}, {args = {x, f({}, 0.4, 0.6)}}}
    for _, how in ipairs{"lower", "higher", "midpoint", "nearest"} do
      list[#list + 1] = {args = {x, 0.45}, attrs = {dim = 2, interpolation = how}}
    end
    return list
  end
  local moments = {{args = {f{3, 4}}}, {args = {f{3, 4, 2}}, attrs = {dim = {1, 3}, keepdim = true}},
    {args = {f{3, 4}}, attrs = {dim = {2}, correction = 0}}, {args = {f{5}}, attrs = {unbiased = false}}}
  return {
    median = with(calls(f{3, 4}), {args = {f{5}}}, {args = {i{4, 1, 3, 3}}}),
    nanmedian = with(calls(f{3, 4}), {args = {holes()}, attrs = {dim = 2}}, {args = {i{4, 1, 3, 3}}}),
    kthvalue = {{args = {f{3, 4}}, attrs = {k = 2}}, {args = {f{3, 4}, 3, 1, true}}, {args = {f{}}, attrs = {k = 1}}},
    mode = {{args = {f{3, 4}}}, {args = {f{3, 4}}, attrs = {dim = 1, keepdim = true}}, {args = {i{{3, 1, 3}, {2, 2, 2}, {1, 2, 3}}}},
      {args = {f{3, 1}}}},
    quantile = quantiles(f{3, 4}),
    nanquantile = with(quantiles(f{3, 4}), {args = {holes(), 0.5}, attrs = {dim = 2}}),
    nansum = with(calls(f{3, 4}), {args = {holes()}, attrs = {dim = {2}}}, {args = {f{3, 4}}, attrs = {dtype = "float64"}}),
    nanmean = with(calls(f{3, 4}), {args = {holes()}, attrs = {dim = {2}}}, {args = {f{3, 4}}, attrs = {dtype = "float64"}}),
    aminmax = calls(f{3, 4}),
    var_mean = moments, std_mean = moments,
    histc = {{args = {f{12}}, attrs = {bins = 4, min = -1, max = 1}}, {args = {f{3, 4}}, attrs = {bins = 3}}, {args = {f{0}}, attrs = {bins = 2}}},
    _bin_counts = {{args = {f{12}, pg.tensor({-1, -0.5, 0, 0.5, 1}, {dtype = "float64"})}}},
    bucketize = {{args = {f{2, 3}, i{-1, 0, 1}}}, {args = {f{4}, i{-1, 0, 1}}, attrs = {right = true, index_base = 0}}},
    unique_consecutive = {{args = {f{2, 3}}, attrs = {return_inverse = true, return_counts = true}}, {args = {i{3, 3, 1, 3}}},
      {args = {i{{1, 2}, {1, 2}, {3, 2}}}, attrs = {dim = 1, return_inverse = true}}},
    logcumsumexp = with({{args = {f{}}, attrs = {dim = 1}}}, unpack(one)),
    sum = {{args = {f{2, 3}}, attrs = {dtype = "float64"}}, {args = {f{2, 3}, 2}, attrs = {dtype = "int32"}, order = 0}},
    prod = {{args = {f{2, 3}}, attrs = {dim = 1, dtype = "float64"}}},
    mean = {{args = {f{2, 3}}, attrs = {dim = 1, dtype = "float64"}}},
    cumsum = {{args = {f{2, 3}}, attrs = {dim = 1, dtype = "float64"}}},
    cumprod = {{args = {f{2, 3}}, attrs = {dim = 1, dtype = "float64"}}},
    softmax = {{args = {f{2, 3}}, attrs = {dim = 1, dtype = "float64"}}},
    log_softmax = {{args = {f{2, 3}}, attrs = {dim = 1, dtype = "float64"}}},
    softmin = {{args = {f{2, 3}}, attrs = {dim = 1, dtype = "float64"}}},
    var = {{args = {f{2, 3}}, attrs = {unbiased = false}}},
    std = {{args = {f{2, 3}}, attrs = {dim = 1, unbiased = true}}},
  }
end
