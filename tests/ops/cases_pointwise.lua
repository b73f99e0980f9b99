-- Calls of pointwise ops, activations and copies beyond what is generated from the rows: broadcasting, numbers, options.
return function(pg, f)
  local function one(args, attrs) return {{args = args, attrs = attrs}} end
  local yes = pg.tensor({{true, false, true}, {false, false, true}})
  return {
    add = {{args = {f{2, 3}, f{3}}}, {args = {f{2, 3}, 2}}, {args = {1.5, f{2}}}, {args = {f{0, 3}, f{1}}}, {args = {f{}, f{}}}},
    sub = {{args = {f{2, 1}, f{3}}}, {args = {2, f{3}}}},
    mul = {{args = {f{2, 3}, f{2, 3}:t():contiguous():t()}}, {args = {f{3}, -2}}},
    div = {{args = {f{2, 3}, f({3}, 1, 2)}}, {args = {2, f({3}, 1, 2)}}, {args = {f{3}, 4}}},
    pow = {
      {args = {f({2, 3}, 0.5, 2), f{3}}}, {args = {f{3}, 2}}, {args = {f{3}, 3}}, {args = {f({3}, 0.5, 2), 0.5}},
      {args = {f({3}, 0.5, 2), -1}}, {args = {f({3}, 0.5, 2), -1.5}}, {args = {0.6, f{3}}}, {args = {f{3}, 0}}, {args = {f{3}, 1}},
    },
    floor_divide = {{args = {f{2, 3}, f({3}, 1, 2)}, order = 0}},
    remainder = {{args = {f({2, 3}, 0.1, 0.4), f({3}, 0.6, 2)}}, {args = {f({3}, 0.1, 0.4), 0.7}}},
    fmod = one{f({2, 3}, 0.1, 0.4), f({3}, 0.6, 2)},
    maximum = {{args = {f{2, 3}, f({3}, 2, 3)}}, {args = {f{3}, 5}}},
    minimum = {{args = {f{2, 3}, f({3}, 2, 3)}}, {args = {f{3}, 5}}},
    atan2 = {{args = {f({2, 3}, 0.2, 2), f({3}, 0.2, 2)}}, {args = {f({3}, 0.2, 2), 2}}, {args = {2, f({3}, 0.2, 2)}}},
    hypot = {{args = {f({2, 3}, 0.2, 2), f({3}, 0.2, 2)}}, {args = {f({3}, 0.2, 2), 2}}},
    copysign = one{f({2, 3}, 0.2, 2), -1},
    logaddexp = {{args = {f{2, 3}, f{3}}}, {args = {f{3}, 0.5}}},
    where = {{args = {yes, f{2, 3}, f{3}}}, {args = {yes, f{3}, 0}}, {args = {yes, 1, f{2, 1}}}},
    lerp = {{args = {f{2, 3}, f{3}, 0.3}}, {args = {f{3}, f{3}, f({2, 1}, 0, 1)}}, {args = {0, 1, f({3}, 0, 1)}}},
    clamp = {
      {args = {f{2, 3}, -0.5, 0.5}}, {args = {f{3}, 0.1}}, {args = {f{3}}, attrs = {max = 0.2}},
      {args = {f{2, 3}, f({3}, -0.9, -0.3), f({3}, 0.3, 0.9)}},
    },
    relu = one{f{2, 3}}, relu6 = one{f({3}, -1, 1)},
    leaky_relu = {{args = {f{3}}}, {args = {f{3}, 0.3}}},
    prelu = {{args = {f{2, 3, 2}, f{3}}}, {args = {f{2, 3}, f{1}}}, {args = {f{4}, f{}}}},
    elu = {{args = {f{3}}}, {args = {f{3}, 0.7}}}, celu = {{args = {f{3}}}, {args = {f{3}, 0.7}}}, selu = one{f{3}},
    gelu = {{args = {f{2, 3}}}, {args = {f{2, 3}}, attrs = {approximate = "tanh"}}},
    silu = one{f{3}}, mish = one{f{3}}, sigmoid = one{f{3}}, logsigmoid = one{f{3}},
    hardsigmoid = one{f{3}}, hardswish = one{f{3}}, hardtanh = one({f{3}}, {min_val = -0.5, max_val = 0.4}),
    softplus = {{args = {f{3}}}, {args = {f{3}}, attrs = {beta = 2, threshold = 1}}},
    softsign = one{f{3}}, softshrink = {{args = {f({3}, 0.7, 2)}}, {args = {f({3}, -2, -0.7), 0.3}}},
    polygamma = {{args = {f({3}, 0.5, 4), 1}}, {args = {f({3}, 0.5, 4), 3}}},
    to = {{args = {f{2, 3}}}},
    clone = {{args = {f{2, 3}:t()}}},
    assert = one{f({2, 3}, 0.5, 1)},
    eq = {{args = {f{2, 3}, f{3}}, order = 0}}, logical_and = {{args = {f{3}, yes}, order = 0}},
  }
end
