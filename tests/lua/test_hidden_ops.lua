-- What scripts reach only through pg.testing or debug: hidden ops, and the upvalues of functions of C.
local t = require "tests.support"
local pg = require "perigee"

local nan = 0 / 0
local ops = pg.testing.ops

t.test("hidden ops check their arguments", function()
  local x, v, m = pg.ones(4, 3, 5), pg.ones(3), pg.ones(2, 2)
  local places = pg.tensor({0, 100, -5, 3}, {dtype = "int32"}):reshape{1, 1, 2, 2}
  local image = pg.ones(1, 1, 2, 2)
  local calls = {
    _batch_norm_train = {{v}, {x, pg.ones(2), pg.ones(2)}, {x, v}, {x, nil, nil, pg.ones(9)}},
    _batch_norm_sums = {{v, v, v, v}, {x, pg.ones(99), v, x}, {x, v, v, m}, {x, v:to("float64"), v, x}},
    _batch_norm_dx = {{x, v, v, m, v, v}, {x, v, v, x, pg.ones(1), v}, {v, v, v, v, v, v}},
    _batch_norm_apply = {{v, v, v}, {x, pg.ones(1), v}, {x, v, pg.ones(7)}},
    _row_norm_dx = {{x, v, v, x, nil, {5}}, {x, pg.ones(4, 3, 1), pg.ones(4, 3, 1), m, nil, {5}}},
    _row_norm_dw = {{x, v, v, x, {5}}, {x, pg.ones(4, 3, 1), pg.ones(4, 3, 1), m, {5}}},
    _max_pool = {{x, {}}, {x, {1, 1, 1, 1}}},
    _max_pool_backward = {{image, places, {2, 2}}, {image, pg.zeros({9}, {dtype = "int32"}), {2, 2}},
      {image, places, {}},
      {image, places, {-1, 2}}, {image, places:to("int64"), {200, 200}}},
    _max_pool_backward_last = {{image, places, {2, 2}}, {image, pg.zeros({9}, {dtype = "int32"}), {2, 2}},
      {image, places, {}}, {image, places, {2}}, {image, places, {-1, 2}}, {v, places, {2, 2}},
      {image, places:to("int64"), {200, 200}}},
    _max_pool_take = {{image, places, 2}, {pg.ones(1, 1, 1, 1), places, 2}, {image, places, 0}, {image, places, 99},
      {v, places, 2}},
    _avg_pool_backward = {{image, {9, 9}, {2, 2}}, {image, {2}, {2, 2}}, {v, {2, 2}, {2, 2}}},
    _conv_by_input = {{image, pg.ones(1, 1, 3, 3), {9, 9}}, {image, pg.ones(4, 1, 1, 1), {2, 2}},
      {image, pg.ones(1, 1, 1, 1), {}}},
    _conv_by_weight = {{image, image, {9, 9}}, {image, pg.ones(3, 1, 2, 2), {1, 1}},
      {image, pg.ones(1, 3, 2, 2), {2, 2}}},
    _conv_by_input_last = {{image, pg.ones(1, 1, 3, 3), {9, 9}}, {image, image, {2}}, {v, v, {}}, {image, v, {2, 2}}},
    _conv_by_weight_last = {{image, image, {9, 9}}, {image, image, {2}}, {v, v, {}}, {image, v, {2, 2}}},
    _conv_act = {{image, pg.ones(1, 9, 1, 1)}, {v, v}},
    _conv_last = {{image, pg.ones(1, 9, 1, 1)}, {v, v}, {image, v}, {pg.ones(1, 2, 2), pg.ones(1, 2, 1, 1)}},
    _conv_act_last = {{image, pg.ones(1, 9, 1, 1)}, {v, v}},
    _max_pool_last = {{x, {}}, {x, {1, 1, 1, 1}}, {image, {1, 1, 1}}, {v, {1}}},
    _avg_pool_last = {{x, {}}, {image, {1, 1, 1}}, {v, {1}}, {image, {9, 9}}},
    _matmul_add = {{x, v, v}, {pg.ones(2, 3), pg.ones(3, 4), v}},
    _linear_act = {{x, v}, {x, pg.ones(2, 9)}},
    _nll_dx = {{pg.ones(2, {dtype = "int64"}), nil, v, {9, 9}}, {v, nil, v, {3, 2}},
      {pg.ones(3, {dtype = "int64"}), pg.ones(9), v, {3, 2}}},
    _cross_entropy_dx = {{m, pg.ones(9, {dtype = "int64"}), nil, v, v, v},
      {m, pg.ones(2, {dtype = "int64"}), nil, pg.ones(7), pg.ones(2), pg.ones(2)},
      {m, pg.ones(2, {dtype = "int64"}), nil, pg.ones(2), pg.ones(7), pg.ones(2)},
      {m, pg.ones(2, {dtype = "int64"}), pg.ones(9), pg.ones(2), pg.ones(2), pg.ones(2)}},
    _softmax_backward = {{m, v, 1}, {m, m:to("float64"), 1}},
    _log_softmax_backward = {{m, v, 1}, {m, m:to("float64"), 1}},
    _scan_affine = {{m, v, 1}, {m, m:to("float64"), 1}},
    _resample = {{pg.ones(2, 0), 2, 4, 1}, {m, 1, -1, 1}, {m, 1, 4, nan}, {m, 1, 4, math.huge},
      {pg.tensor(1), 1, 4, 1}},
    _resample_backward = {{pg.ones(2, 0), 2, 4, 1}, {m, 1, 0, 1}, {m, 1, 4, nan}},
    _fft_complex = {{m, 2}, {m, 0}, {v, 1}, {pg.ones(0, 2), 1}},
    _fft_real = {{m, 3}, {pg.ones(2, 0), 2}},
    _fft_half = {{m, 9, 1}, {m, 0, 1}, {m, 2, 2}, {v, 1, 1}},
    _ctc_paths = {{m, pg.ones(2)}, {m, pg.tensor{9}}, {m, pg.ones(1, 1)}, {m, pg.tensor{2}, pg.tensor{9}}, {v, pg.ones(1)}},
    _ctc_slope = {{m, pg.tensor{9}}, {m, pg.tensor{2}, nil, nil, v}, {m, pg.tensor{2}, nil, pg.tensor{7}}},
    _slice = {{m, {5, 5}, {1, 1}, {1, 1}, {0, 0}}, {m, {0}, {1}, {1}, {0}},
      {m, {0, 0}, {2 ^ 56, 1}, {2 ^ 56, 1}, {0, 0}}},
    _slice_backward = {{m, {1, 1}, {0, 0}, {2, 2}, {1, 1}, {0, 0}}},
    _gather_backward = {{m, pg.ones(2, 2, {dtype = "int64"}) * 9, 1, {2, 2}}},
    _index_select_backward = {{m, pg.tensor({9, 1}, {dtype = "int64"}), 1, 2},
      {m, pg.tensor({1, 1}, {dtype = "int64"}), 1, -3}},
    _sequence_last_backward = {{m, pg.tensor{99, 1}, 1, 2}, {m, pg.ones(5), 1, 2}},
    _diagonal_backward = {{m, {2, 2}}, {v, {2, 9}}},
    _pad_backward = {{m, {1, 1}, "reflect", {9}}, {m, {0, 0}, "reflect", {9, 9}}},
    _mask_get_backward = {{m, pg.ones(7, {dtype = "bool"}), {2, 2}}, {m, pg.ones(2, {dtype = "bool"}):lt(0), {2, 2}}},
    _reshape_to = {{m, {5}}, {m, {-1, -4}}},
  }
  for name, list in pairs(calls) do
    for k, args in ipairs(list) do
      local ok, e = t.pcall(ops[name], unpack(args, 1, table.maxn(args)))
      t.check(not ok, name .. " took wrong arguments " .. k)
      t.check(not e:find("attempt", 1, true), e)
    end
  end
end)

t.test("functions whose upvalues a script replaced raise errors", function()
  local x = pg.ones(2)
  local meta = debug.getmetatable(x)
  local functions = {pg.add, pg.sum, pg.one_hot, pg.conv2d, pg.select, pg.unbind, pg.sgd_update_, x.add_, x.sum,
    x.item, pg.tensor, pg.from_bytes, meta.__index, meta.__newindex, meta.__add, meta.__unm, meta.__len, meta.__eq,
    meta.__lt, meta.__tostring, meta.__gc}
  local _, state = debug.getupvalue(pg.add, 1)
  local _, binding = debug.getupvalue(pg.add, 2)
  local _, other = debug.getupvalue(pg.dropout, 2)
  local _, effect = debug.getupvalue(ops._call_value, 2)
  local junk = {nil, false, 1, "text", {}, io.stdout, newproxy(), x, state, binding, other, effect, function() end}
  for _, f in pairs(functions) do
    if type(f) == "function" and debug.getinfo(f, "S").what == "C" then
      for i = 1, 5 do
        local name, old = debug.getupvalue(f, i)
        if not name then break end
        for k = 1, 13 do
          debug.setupvalue(f, i, junk[k])
          t.pcall(f, x, x)
          t.pcall(f, x, "shape")
          t.pcall(f, x, {lr = 1})
          t.pcall(f)
        end
        debug.setupvalue(f, i, old)
      end
    end
  end
  debug.setupvalue(pg.add, 1, nil)
  local ok, e = t.pcall(pg.add, x, x)
  debug.setupvalue(pg.add, 1, state)
  t.check(not ok and e:find("an upvalue of this function was replaced", 1, true), e)
  t.equal((pg.ones(2) + 1):sum():item(), 4)
end)
