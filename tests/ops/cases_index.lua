-- Calls of the index ops: args in the order of the call, attrs by name. f is gradcheck.random.
return function(pg, f)
  local function i(values, dtype) return pg.tensor(values, {dtype = dtype or "int64"}) end
  local mask = pg.tensor({{true, false, true}, {false, false, true}})
  local rows = pg.tensor({true, false, true})
  return {
    gather = {
      {args = {f{2, 3}, 2, i{{1, 1, -1}, {3, 2, 1}}}},
      {args = {f{3, 2}, 1, i({{3, 1}, {3, 2}}, "int32")}},
      {args = {f{4}, 1, i{0, 3}}, attrs = {index_base = 0}},
    },
    _gather_backward = {{args = {f{2, 2}, i{{1, 2}, {3, 3}}}, attrs = {dim = 2, shape = {2, 3}}}},
    scatter = {
      {args = {f{2, 3}, 2, i{{1, 3}, {2, 1}}, f{2, 2}}},
      {args = {f{3, 2}, 1, i{{3, 1}}, f{2, 2}}},
    },
    scatter_add = {
      {args = {f{2, 3}, 2, i{{1, 1}, {2, 1}}, f{2, 2}}},
      {args = {f{3, 2}, 1, i{{3, 1}, {3, 1}}, f{3, 3}}},
    },
    take_along_dim = {
      {args = {f{2, 3}, i{{3, 1}, {2, 2}}, 2}},
      {args = {f{2, 3}, i{{2}}, 1}},
      {args = {f{2, 3}, i{{6}, {1}}}},
    },
    take = {{args = {f{2, 3}, i{{6, -1}, {1, 2}}}}},
    pick = {{args = {f{2, 3}, i{3, 1}}}, {args = {f{2, 3}, i{{2, 2, 1}}}, attrs = {dim = 1, keepdim = true}}},
    index_select = {
      {args = {f{3, 2}, 1, i{3, 3, -1, 1}}},
      {args = {f{2, 3, 2}, 2, i{{1, 3}, {3, 2}}}},
      {args = {f{2, 3}, -1, pg.tensor(2, {dtype = "int64"})}},
      {args = {f{2, 3}, 1, pg.zeros({0}, {dtype = "int64"})}},
    },
    _index_select_backward = {{args = {f{2, 4}, i{1, 3, 3, 1}}, attrs = {dim = 2, size = 3}}},
    index_add = {
      {args = {f{3, 2}, 1, i{3, 3, 1}, f{3, 2}}, attrs = {alpha = -2}},
      {args = {f{2, 3}, 2, i{1, 1}, f{2, 1}}},
    },
    _index_assign = {
      {args = {f{3, 2}, i{3, 1}, f{2, 2}}, attrs = {dim = 1}},
      {args = {f{2, 3}, i{3, 1}, f{}}, attrs = {dim = 2}},
    },
    embedding = {
      {args = {i{{1, 3}, {3, 2}}, f{3, 2}}},
      {args = {i{1, 3, 3}, f{3, 2}}, attrs = {padding_idx = -1}, order = 0},
    },
    one_hot = {{args = {i{{1, 3}, {2, 2}}}, attrs = {num_classes = 4}}},
    masked_fill = {{args = {f{2, 3}, mask, f{}}}, {args = {f{2, 1}, mask, 0.5}}},
    masked_select = {{args = {f{2, 3}, mask}}, {args = {f{2, 1}, mask}}},
    _mask_get = {{args = {f{3, 2}, rows}}, {args = {f{2, 3}, mask}}},
    _mask_get_backward = {{args = {f{2, 2}, rows}, attrs = {shape = {3, 2}}}},
    _mask_assign = {
      {args = {f{3, 2}, rows, f{2, 2}}},
      {args = {f{3, 2}, rows, f{2}}},
      {args = {f{3, 2}, rows, f{1, 1}}},
      {args = {f{2, 3}, mask, f{3}}},
      {args = {f{2, 3}, mask, f{}}},
    },
    nonzero = {{args = {f{2, 3}}}},
    sort = {{args = {f{3, 4}}}, {args = {f{3, 4}}, attrs = {dim = 1, descending = true}}, {args = {f{}}}, {args = {f{0, 2}}}},
    argsort = {{args = {f{3, 4}}}},
    topk = {{args = {f{3, 4}}, attrs = {k = 2}}, {args = {f{3, 4}}, attrs = {k = 2, dim = 1, largest = false}}},
    unique = {{args = {f{2, 3}}, attrs = {return_inverse = true, return_counts = true}}},
    bincount = {{args = {i{1, 3, 3}}}, {args = {i{1, 3, 3}, f{3}}, attrs = {minlength = 5}}},
    searchsorted = {{args = {pg.tensor({1, 3, 5}), f{4}}}},
    sequence_mask = {
      {args = {f{3, 2, 2}, i{1, 3}}, attrs = {value = 0.5}},
      {args = {f{2, 3}, i{0, 2}}, attrs = {dim = 2}},
    },
    sequence_last = {{args = {f{3, 2, 2}, i{1, 3}}}, {args = {f{2, 3}}, attrs = {dim = 2}}},
    _sequence_last_backward = {{args = {f{2, 2}, i{1, 3}}, attrs = {steps = 3}}},
    sequence_reverse = {{args = {f{3, 2, 2}, i{1, 3}}}, {args = {f{2, 3}, i{2, 3}}, attrs = {dim = 2}}},
  }
end
