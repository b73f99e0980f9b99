-- Calls of the ops of arrange.cpp and combine.cpp: args in the order of the call, attrs by name. f is gradcheck.random.
return function(pg, f)
  local three = pg.tensor({3, 1, 2}, {dtype = "int64"})
  return {
    fliplr = {{args = {f{2, 3}}}},
    flipud = {{args = {f{3}}}, {args = {f{2, 3}}}},
    rot90 = {
      {args = {f{2, 3}}}, {args = {f{2, 3}, -1}}, {args = {f{2, 3}, 2}}, {args = {f{2, 3}, 4}},
      {args = {f{2, 3, 2}, 3, {3, 1}}},
    },
    atleast_1d = {{args = {f{}}}, {args = {f{2, 3}}}},
    atleast_2d = {{args = {f{}}}, {args = {f{3}}}, {args = {f{2, 3, 2}}}},
    atleast_3d = {{args = {f{}}}, {args = {f{3}}}, {args = {f{2, 3}}}, {args = {f{2, 3, 2}}}},
    ravel = {{args = {f{2, 3}:t()}}, {args = {f{}}}},
    broadcast_tensors = {{args = {{f{2, 1}, f{3}, f{}}}}, {args = {f{2}, f{2}}}},
    meshgrid = {
      {args = {{f{2}, f{3}}}}, {args = {f{2}, f{3}, f{2}}, attrs = {indexing = "xy"}}, {args = {f{}, f{2}}},
      {args = {{f{3}}}, attrs = {indexing = "xy"}},
    },
    block_diag = {{args = {{f{2, 3}, f{2}, f{}}}}, {args = {f{2, 2}, f{0, 2}}}},
    diff = {
      {args = {f{4}}}, {args = {f{3, 4}, 2}}, {args = {f{3, 4}, 1, 1}}, {args = {f{2, 3}, 1, -1, f{2, 1}, f{2, 2}}},
      {args = {f{3}, 5}}, {args = {f{3}, 0}}, {args = {f{3}}, attrs = {append = f{1}}},
    },
    cartesian_prod = {{args = {{f{2}, f{3}, f{2}}}}, {args = {f{3}}}, {args = {f{2}, f{0}}}},
    combinations = {
      {args = {f{4}}}, {args = {f{4}, 3}}, {args = {f{3}, 2, true}}, {args = {f{2}, 3}}, {args = {f{2}, 0}},
      {args = {three}},
    },
    vander = {{args = {f{3}}}, {args = {f{3}, 4, true}}, {args = {f{2}, 1}}, {args = {f{2}, 0}}, {args = {three}}},
    corrcoef = {{args = {f{3, 5}}}, {args = {f{4}}}, {args = {f{1, 4}}}},
    tril_indices = {{args = {3, 4}}, {args = {3, 2, -1}}, {args = {2, 3}, attrs = {offset = 1, index_base = 0}}, {args = {0, 3}}},
    triu_indices = {{args = {3, 4}}, {args = {3, 2, -1}}, {args = {2, 3}, attrs = {offset = 1, index_base = 0}}, {args = {3, 0}}},
  }
end
