-- Calls of ops that make tensors, convert them or draw at random: args in the order of the call, attrs by name. f is gradcheck.random.
return function(pg, f)
  local function shapes(extra) return {{args = {{2, 3}}, attrs = extra}, {args = {{}}, attrs = extra}, {args = {{0, 2}}, attrs = extra}} end
  local function like(...) return {{args = {f{2, 3}, ...}}, {args = {f{2, 3}, ...}, attrs = {dtype = "float32"}}} end
  return {
    zeros = shapes(), ones = shapes{dtype = "int64"}, empty = {{args = {{2, 3}}, values = false}}, rand = shapes(), randn = shapes{dtype = "float64"},
    full = {{args = {{2, 3}, 7}}, {args = {{}, -1}, attrs = {dtype = "int8"}}},
    eye = {{args = {3}}, {args = {2, 4}, attrs = {dtype = "float64"}}},
    linspace = {{args = {0, 1, 5}}, {args = {2, -1, 1}}},
    range = {{args = {1, 5}}, {args = {0, 1, 0.25}, attrs = {dtype = "float64"}}, {args = {1, 0}}},
    randint = {{args = {1, 6, {4}}}, {args = {-3, -3, {2, 2}}}},
    randperm = {{args = {5}}, {args = {0}}},
    zeros_like = like(), ones_like = like(), full_like = like(3), rand_like = like(), randn_like = like(),
    empty_like = {{args = {f{2, 3}}, values = false}},
    dropout = {
      {args = {f{2, 3}}, attrs = {p = 0.4, training = true}}, {args = {f{2, 3}}, attrs = {p = 0.4, training = false}},
    },
    bernoulli = {{args = {f({2, 3}, 0, 1)}}},
    multinomial = {{args = {f({4}, 0.1, 1), 2}}, {args = {f({2, 4}, 0.1, 1), 6}, attrs = {replacement = true}}},
    to = {{args = {f{2, 3}, "float32"}, order = 0}, {args = {f{2, 3}}, attrs = {dtype = "float64", device = "cpu"}}},
    polygamma = {{args = {f({2, 3}, 0.5, 4)}}, {args = {f({2, 3}, 0.5, 4), 2}}},
    bitwise_not = {{args = {pg.tensor({1, 0, -7}, {dtype = "int32"})}}, {args = {pg.tensor{true, false}}}},
  }
end
