-- Calls of the ops that write at positions: args in the order of the call, attrs by name. f is gradcheck.random.
return function(pg, f)
  local function i(values, dtype) return pg.tensor(values, {dtype = dtype or "int64"}) end
  local mask = pg.tensor({{true, false, true}, {false, false, true}})
  local rows = pg.tensor({true, false, true})
  local double = {dtype = "float64"}
  local function reductions()
    local list = {}
    for _, reduce in ipairs{"sum", "prod", "mean", "amax", "amin"} do
      for _, include_self in ipairs{true, false} do
        list[#list + 1] = {
          args = {f({2, 3}, 0.4, 2), 2, i{{1, 1, 3}, {-1, 1, 3}}, f({2, 3}, 0.4, 2), reduce},
          attrs = {include_self = include_self},
        }
      end
    end
    return list
  end
  local reduce = reductions()
  reduce[#reduce + 1] = {args = {f{3, 2}, 1, i({{3, 1}, {3, 1}}, "int32"), f{3, 3}, "mean"}}
  reduce[#reduce + 1] = {args = {f{4}, 1, i{0, 3, 0}, f{3}, "prod"}, attrs = {index_base = 0}}
  -- One factor 0 for a position, which the first gradient takes; the second one is 0 there, as PyTorch's.
  reduce[#reduce + 1] = {
    args = {f{3}, 1, i{1, 1, 2}, pg.tensor({0, 0.5, 2}, double), "prod"}, order = 1,
  }
  return {
    scatter_reduce = reduce,
    index_copy = {
      {args = {f{3, 2}, 1, i{3, 1}, f{2, 2}}},
      {args = {f{2, 3}, -1, i{3, -3}, f{2, 1}}},
      {args = {f{2, 3}, 2, pg.tensor(2, {dtype = "int64"}), f{2}}},
    },
    index_fill = {
      {args = {f{3, 2}, 1, i{3, 1, 3}, f{}}},
      {args = {f{2, 3}, 2, i({0, 2}, "int32"), 0.5}, attrs = {index_base = 0}},
    },
    index_put = {
      {args = {f{2, 3}, {i{1, 2, 1}, i{3, -1, 1}}, f{3}}},
      {args = {f{2, 3}, {i{1, 2, 1}, i{3, -1, 3}}, f{3}}, attrs = {accumulate = true}},
      {args = {f{3, 2, 2}, {i{{1}, {3}}, i{1, 2}}, f{2, 2, 1}}, attrs = {accumulate = true}},
      {args = {f{3, 2}, {i{3, 1}}, f{1, 1, 2}}},
      {args = {f{3, 2}, {i{0, 2}}, 0.5}, attrs = {index_base = 0}},
      {args = {f{2, 3}, {mask}, f{3}}},
      {args = {f{3, 2}, {rows}, f{2, 1}}, attrs = {accumulate = true}},
      {args = {f{3, 2}, {rows}, f{2}}},
      {args = {f{3, 2}, {rows}, f{1, 1}}, attrs = {accumulate = true}},
    },
    _flat_index = {{args = {{i{{1}, {2}}, i{3, 1}}}, attrs = {sizes = {2, 3}}}},
    _index_get = {
      {args = {f{2, 3}, {i{{1}, {2}}, i{3, -1}}}, attrs = {dim = 1}},
      {args = {f{2, 3, 2}, {i(3), i{2, 1}}}, attrs = {dim = 2}},
    },
    put = {
      {args = {f{2, 3}, i{{6}, {-6}}, f{2}}},
      {args = {f{2, 3}, i{2, 2, 5}, f{1, 3}, true}},
      {args = {f{2, 3}, i{0, 5}, 2}, attrs = {index_base = 0}},
    },
    masked_scatter = {
      {args = {f{2, 3}, mask, f{4}}},
      {args = {f{2, 1}, mask, f{3, 2}}},
      {args = {f{2, 3}, pg.tensor({false, true, false}), f{2}}},
    },
    _masked_scatter_backward = {{args = {f{2, 3}, mask}, attrs = {shape = {2, 2}}}},
    argwhere = {{args = {f{2, 3}}}},
  }
end
