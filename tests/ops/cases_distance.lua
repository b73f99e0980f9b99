-- Calls of the ops of distance.cpp: args in the order of the call, attrs by name. f is gradcheck.random.
return function(_, f)
  local function positive(shape) return f(shape, 0.4, 2) end
  local function orders(make, list)
    local out = {}
    for _, p in ipairs(list) do out[#out + 1] = make(p) end
    return out
  end
  local cdist = orders(function(p) return {args = {f{3, 2}, f{4, 2}, p}} end, {2, 1, 3, 1.5, 0.5, math.huge, 0})
  cdist[#cdist + 1] = {args = {f{2, 1, 3, 20}, f{3, 2, 20}}}
  cdist[#cdist + 1] = {args = {f{2, 3, 0}, f{2, 3, 0}}}
  local rows = orders(function(p) return {args = {f{2, 3, 4}, f{2, 2, 4}}, attrs = {p = p}} end, {2, 1, 3, 0.5, math.huge})
  local back = orders(function(p)
    local x, y = (f{1, 2, 3} * 8):round() / 8, (f{1, 2, 3} * 8):round() / 8 + 3  -- exact in float32
    local d = x:cdist(y, p)
    return {args = {f{1, 2, 2}, x, y, d}, attrs = {p = p}, order = p == math.huge and 0 or nil}
  end, {2, 1, 3, 1.5, 0.5, math.huge, 0})
  return {
    normalize = {
      {args = {positive{2, 3}}}, {args = {positive{2, 3}}, attrs = {p = 1, dim = 1}}, {args = {positive{2, 3}, 3, {1, 2}}},
      {args = {f{2, 3}}, attrs = {p = math.huge}}, {args = {f{2, 3}}, attrs = {eps = 5}},
    },
    renorm = {{args = {positive{2, 3}, 2, 1, 1}}, {args = {f{2, 3, 2}, 1, -1, 100}}, {args = {positive{3, 2}, 3, 2, 0.5}}},
    cosine_similarity = {
      {args = {f{2, 3}, f{2, 3}}}, {args = {f{3}, f{2, 3}}, attrs = {dim = -1}}, {args = {f{3, 2}, f{3, 1}, 1}},
    },
    pairwise_distance = {
      {args = {f{2, 3}, f{2, 3}}}, {args = {f{3}, f{2, 3}, 1}, attrs = {keepdim = true}}, {args = {f{2, 3}, f{2, 3}, 3}},
      {args = {f{2, 3}, f{2, 3}, math.huge}}, {args = {f{4}, f{4}}},
    },
    cdist = cdist,
    _row_distances = rows,
    _row_distances_backward = back,
  }
end
