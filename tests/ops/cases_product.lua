-- Calls of the ops of product.cpp: args in the order of the call, attrs by name. f is gradcheck.random.
return function(_, f)
  return {
    tensordot = {
      {args = {f{2, 3, 4}, f{3, 4, 2}}},
      {args = {f{2, 3, 4}, f{4, 3}, {{2, 3}, {2, 1}}}},
      {args = {f{2, 3}, f{3}}, attrs = {dims = {2}, dims_b = {-1}}},
      {args = {f{2, 3}, f{4}, 0}},
      {args = {f{2, 3}, f{2, 1}, {{1, 2}, {1, 2}}}},
    },
    inner = {{args = {f{2, 3}, f{4, 3}}}, {args = {f{3}, f{3}}}, {args = {f{}, f{2}}}},
    trace = {{args = {f{2, 3}}}},
    kron = {{args = {f{2, 3}, f{3, 2}}}, {args = {f{2}, f{2, 2}}}, {args = {f{}, f{3}}}},
    cross = {{args = {f{2, 3}, f{2, 3}}}, {args = {f{3, 2}, f{3, 1}}, attrs = {dim = 1}}, {args = {f{3, 3}, f{1, 3}, -1}}},
    vdot = {{args = {f{3}, f{3}}}},
    chain_matmul = {{args = {{f{2, 3}, f{3, 4}, f{4, 1}, f{1, 5}}}}, {args = {f{2, 3}}}},
    addr = {{args = {f{2, 3}, f{2}, f{3}}, attrs = {beta = 0.5, alpha = 2}}, {args = {f{3}, f{2}, f{3}}, attrs = {beta = 0}}},
    addcmul = {{args = {f{2, 3}, f{3}, f{2, 1}}}, {args = {f{3}, f{3}, f{3}}, attrs = {value = -0.5}}},
    addcdiv = {{args = {f{2, 3}, f{3}, f({2, 1}, 0.5, 2)}}, {args = {f{3}, f{3}, f({3}, 0.5, 2)}, attrs = {value = -0.5}}},
  }
end
