-- Calls of reductions, scans and the softmax family. f is gradcheck.random.
return function(pg, f)
  local function positive(shape) return f(shape, 0.4, 2) end
  local function dims(make, extra)
    local list = {}
    for _, attrs in ipairs{{}, {dim = {1}}, {dim = {2}, keepdim = true}, {dim = {-1, 1}}, {dim = {1, 2, 3}, keepdim = true}} do
      local all = {}
      for k, v in pairs(attrs) do all[k] = v end
      for k, v in pairs(extra or {}) do all[k] = v end
      list[#list + 1] = {args = {make{3, 4, 2}}, attrs = all}
    end
    return list
  end
  local function with(list, ...)
    for i = 1, select("#", ...) do list[#list + 1] = (select(i, ...)) end
    return list
  end
  local wide = f{70, 5}
  local function zeros_inside()
    return pg.tensor({0.5, 0, 2, -1, 0, 0, 3, 4, 0.5}, {dtype = "float64"}):reshape{3, 3}
  end
  local one = {{args = {f{3, 4}}, attrs = {dim = 2}}, {args = {f{3, 4, 2}}, attrs = {dim = 1}}, {args = {f{5}}, attrs = {dim = -1}}}
  local function y(shape) return f(shape, 0.1, 0.9) end
  return {
    sum = with(dims(f), {args = {f{}}}, {args = {f{0, 3}}, attrs = {dim = {1}}}, {args = {wide}, attrs = {dim = {1}}}, {args = {wide:t()}}),
    mean = with(dims(f), {args = {f{}}}, {args = {f{2, 3}:t()}, attrs = {dim = {1}}}),
    _sum_squares = dims(f),
    prod = with(dims(positive), {args = {f{}}}, {args = {zeros_inside()}, attrs = {dim = {2}}}, {args = {zeros_inside()}},
      {args = {f{2, 0}}, attrs = {dim = {2}}}),
    amax = with(dims(f), {args = {f{}}}),
    amin = with(dims(f), {args = {wide}, attrs = {dim = {1}}}),
    max = {{args = {f{3, 4}}}, {args = {f{3, 4}}, attrs = {dim = 2}}, {args = {f{3, 4, 2}}, attrs = {dim = 2, keepdim = true}},
      {args = {f{40}}, attrs = {dim = 1}}},
    min = {{args = {f{3, 4}}}, {args = {f{3, 4}}, attrs = {dim = 1}}, {args = {f{3, 4, 2}}, attrs = {dim = -1, keepdim = true}}},
    argmax = {{args = {f{3, 4}}}, {args = {f{3, 4}}, attrs = {dim = 1}}, {args = {f{3, 40}}, attrs = {dim = 2, keepdim = true}}},
    argmin = {{args = {f{3, 4}}}, {args = {f{3, 4}}, attrs = {dim = 1}}},
    any = {{args = {f{3, 4}}, attrs = {dim = {1}}}},
    all = {{args = {f{3, 4}}, attrs = {dim = {1}}}},
    count_nonzero = {{args = {f{3, 4}}, attrs = {dim = {2}}}, {args = {f{0}}}},
    var = with(dims(f), {args = {f{5}}, attrs = {correction = 0}}),
    std = with(dims(f), {args = {f{5}}, attrs = {correction = 0, keepdim = true}}),
    norm = with(dims(positive), {args = {positive{3, 4}}, attrs = {p = 1, dim = {2}}}, {args = {positive{3, 4}}, attrs = {p = 3, dim = {1}}},
      {args = {f{3, 4}}, attrs = {p = math.huge, dim = {2}}}, {args = {positive{3, 4}}, attrs = {p = 0.5}}),
    logsumexp = with(dims(f), {args = {f{3}}, attrs = {dim = {1}}}),
    sum_to = {{args = {f{2, 3, 4}}, attrs = {shape = {3, 1}}}, {args = {f{2, 3}}, attrs = {shape = {}}}, {args = {f{2, 3}}, attrs = {shape = {2, 3}}}},
    cov = {{args = {f{3, 5}}}, {args = {f{4}}}, {args = {f{1, 4}}}, {args = {f{2, 4}}, attrs = {correction = 0}}},
    cumsum = with({{args = {f{2, 3}}, attrs = {dim = 2, reverse = true}}}, unpack(one)),
    cumprod = with({{args = {zeros_inside()}, attrs = {dim = 2}}, {args = {f{2, 3}}, attrs = {dim = 1, reverse = true}}}, unpack(one)),
    cummax = one,
    cummin = one,
    _scan_affine = {
      {args = {f{2, 4}, f{2, 4}}, attrs = {dim = 2}}, {args = {f{3, 2}, f{3, 2}}, attrs = {dim = 1, reverse = true}},
      {args = {f{2, 4}, f{2, 4}}, attrs = {dim = 2, lag = 1}}, {args = {f{4, 2}, f{4, 2}}, attrs = {dim = 1, lag = 1, reverse = true}},
    },
    softmax = one,
    log_softmax = with({{args = {f{2, 70}}, attrs = {dim = 2}}, {args = {f{3, 300}}, attrs = {dim = 1}}}, unpack(one)),
    softmin = one,
    glu = {{args = {f{3, 4}}}, {args = {f{4, 3}}, attrs = {dim = 1}}, {args = {f{2, 0}}}},
    _softmax_backward = {{args = {y{3, 4}, f{3, 4}}, attrs = {dim = 2}}, {args = {y{3, 4}, f{3, 4}}, attrs = {dim = 1}}},
    _log_softmax_backward = {{args = {f{3, 4}, f{3, 4}}, attrs = {dim = 2}}, {args = {f{3, 4}, f{3, 4}}, attrs = {dim = 1}}},
  }
end
