-- Graphs exported by MXNet, as blocks.
local t = require "tests.support"
local json = require "tests.json"
local file = require "tests.params_file"
local mxnet = require "tests.mxnet_graphs"
local pg = require "perigee"
local nn = pg.nn
local imports = nn.SymbolBlock.imports
local text_of, node, var, graph, write, same_as = mxnet.text_of, mxnet.node, mxnet.var, mxnet.graph, mxnet.write, mxnet.same_as

-- Fixtures ---------------------------------------------------------------------------------------------------------------

local exports = t.shared("data/fixtures/mxnet/")
local nets = json.read(exports .. "manifest.json").nets

local function read_inputs(set)
  local names, tensors = {}, {}
  for i, input in ipairs(set.inputs) do names[i], tensors[i] = input.name, pg.load(exports .. input.file) end
  return names, tensors
end

local function import(net, names) return imports(exports .. net.symbol, names, exports .. net.params) end

local function check_outputs(net, set, got, what)
  for k, output in ipairs(set.outputs) do
    local x, y = got[k], pg.load(exports .. output.file)
    local rows = set.valid_rows and set.valid_rows[tostring(k - 1)]
    if rows then x, y = x[{{1, rows}}], y[{{1, rows}}] end
    same_as(x, y, net, ("%s, %s, output %d"):format(net.name, what, k - 1))
  end
end

for _, net in ipairs(nets) do
  t.test("the export " .. net.name, function()
    local block, hybrid
    for s, set in ipairs(net.sets) do
      local names, tensors = read_inputs(set)
      block, hybrid = block or import(net, names), hybrid or import(net, names):hybridize()
      check_outputs(net, set, {block(unpack(tensors))}, "set " .. s)
      check_outputs(net, set, {hybrid(unpack(tensors))}, "hybridized, set " .. s)
      local own = imports(block:export(t.tmp("own")), names, t.tmp("own.safetensors"))
      check_outputs(net, set, {own(unpack(tensors))}, "exported again, set " .. s)
    end
    t.equal(block:collect_params():len(), net.graph.n_arg_params + net.graph.n_aux_params)
  end)

  if net.grads then
    t.test("gradients of the export " .. net.name, function()
      local names, tensors = read_inputs(net.sets[1])
      local data = pg.load(exports .. net.grads.file)
      for _, block in ipairs{import(net, names), import(net, names):hybridize()} do
        for i, name in ipairs(names) do if data["grad:" .. name] then tensors[i]:attach_grad() end end
        local loss = pg.record(function()
          local total = 0
          for k, y in ipairs{block(unpack(tensors))} do total = total + (y * data["head" .. k - 1]):sum() end
          return total
        end, {train = net.grads.mode == "train"})
        loss:backward()
        local grads = {}
        for name, p in block:parameters() do grads[name] = p.grad end
        for i, name in ipairs(names) do grads[name] = tensors[i].grad end
        for key, want in pairs(data) do
          local name = key:match("^grad:(.*)")
          if name then t.close(grads[name], want, {rtol = 1e-4, atol = 1e-5, what = key}) end
        end
      end
    end)
  end
end

t.test("show describes an export", function()
  local out, err, code = t.run("show '" .. exports .. "two_in_out-symbol.json'")
  t.equal({err, code}, {"", 0})
  for _, text in ipairs{
    "inputs:\n  data0\n  data1\n", "  twoinout0_scale          float32            6  1x6\n", "tensors: " .. exports .. "two_in_out-0000.params\n",
    "  twoinout0_concat0 = Concat(twoinout0_dense0_relu_fwd, twoinout0_dense1_tanh_fwd)\n",
  } do t.check(out:find(text, 1, true), out) end
  out, err = t.run("show '" .. write(graph{var "x", node("Frobnicate", "f", {}, {0})}) .. "'")
  t.equal(out, "")
  t.check(err:find("node 1 'f' (Frobnicate): the op 'Frobnicate' is not supported", 1, true), err)
end)

-- Training ---------------------------------------------------------------------------------------------------------------

local function net_named(name) for _, net in ipairs(nets) do if net.name == name then return net end end end

t.test("an import trains: running statistics, gradients of all parameters, a Trainer", function()
  local net = net_named("bn_dropout")
  local x = pg.load(exports .. "bn_dropout-input.npy")
  local results = {}
  for i, hybrid in ipairs{false, true} do
    local block = import(net, {"data"})
    if hybrid then block:hybridize() end
    local trainer = pg.optim.Trainer(block:collect_params(), "sgd", {learning_rate = 0.1})
    local mean = block.hybridsequential2_batchnorm0_running_mean
    local before, untrained = mean:clone(), block(x)
    for step = 1, 3 do
      pg.manual_seed(step)
      pg.record(function() return block(x):square():mean() end):backward()
      trainer:step(1)
    end
    t.equal(pg.allclose(mean, before), false)
    t.equal(mean.grad_req, "null")
    results[i] = block(x)
    t.equal(pg.allclose(results[i], untrained), false)
    block:save_parameters(t.tmp("p.safetensors"))
    local copy = import(net, {"data"})
    copy:load_parameters(t.tmp("p.safetensors"))
    t.close(copy(x), results[i])
    local json_path, tensors = block:export(t.tmp("m"))
    t.close(imports(json_path, {"data"}, tensors)(x), results[i], {rtol = 1e-5, atol = 1e-6})
  end
  t.close(results[1], results[2], {rtol = 1e-4, atol = 1e-5})
end)

t.test("an import composes: in a hybridized net, and with symbols", function()
  local x = pg.load(exports .. "lenet-input.npy")
  local block = import(net_named("lenet"), {"data"})
  local net = nn.HybridSequential{block, nn.Dense(2)}
  net:initialize()
  local y = net(x)
  net:hybridize()
  t.close(net(x), y, {rtol = 1e-5, atol = 1e-6})
  local data = pg.symbol("data", {shape = {2, 1, 28, 28}})
  local g = pg.graph(block(data), data)
  t.close(g:run(x), block(x), {rtol = 1e-5, atol = 1e-6})
  local parameters = 0
  for _, name in ipairs(g:inputs()) do if name:find("^hybridsequential1_") then parameters = parameters + 1 end end
  t.equal(parameters, 10)
end)

t.test("a training head needs no label", function()
  local g = graph{var "data", var "softmax_label", node("SoftmaxOutput", "softmax", {}, {0, 1})}
  local path, x = write(g), pg.randn(2, 3)
  for _, names in ipairs{{"data"}, {"data", "softmax_label"}, false} do t.close(imports(path, names or nil)(x), x:softmax(2)) end
  t.close(imports(path, {"softmax_label", "data"})(pg.zeros(2), x), x:softmax(2))
end)

-- Files ------------------------------------------------------------------------------------------------------------------

t.test("arguments in the order of the names, parameters without a file", function()
  local path = write(graph{var "a", var "b", node("elemwise_sub", "d", {}, {0, 1})})
  local x, y = pg.tensor{5}, pg.tensor{3}
  t.equal(imports(path, {"a", "b"})(x, y):item(), 2)
  t.equal(imports(path, {"b", "a"})(x, y):item(), -2)
  t.equal(imports(path)(x, y):item(), 2)
  local block = imports(path, {"a"})
  t.error_contains(function() block(x) end, "SymbolBlock: the parameter 'b' has no value")
  t.error_contains(function() imports(path, {"a", "c"}) end, "imports: the graph has no argument 'c'")
  t.error_contains(function() imports(path, {"a", "a"}) end, "imports: the name 'a' appears twice")
  t.error_contains(function() imports(path)(x) end, "SymbolBlock: bad argument 'b' (expected a tensor, got nil")
  t.error_contains(function() imports(path)(x, y, y) end, "too many arguments (expected 2, got 3)")
  local params = t.write(t.tmp "p.params", file.file({file.array(y, 2)}, {"arg:b"}))
  t.equal(imports(path, nil, params)(x):item(), 2)
  t.equal(imports(path, "a", params).b.name, "b")
  t.error_contains(function() imports(path, {"a"}, t.write(t.tmp "q.params", file.file({}, {}))) end, "q.params: does not have the tensor 'b'")
  local more = t.write(t.tmp "r.params", file.file({file.array(y, 2), file.array(y, 2)}, {"arg:b", "arg:z"}))
  t.error_contains(function() imports(path, {"a"}, more) end, "r.params: has the tensor 'z', which")
end)

t.test("the spelling of older versions, without auxiliary variables", function()
  local old = {
    nodes = {
      {op = "null", param = {}, name = "data", inputs = {}, backward_source_id = -1, attr = {lr_mult = "2"}},
      {op = "null", param = {}, name = "bn_gamma", inputs = {}, backward_source_id = -1},
      {op = "null", param = {}, name = "bn_beta", inputs = {}, backward_source_id = -1},
      {op = "BatchNorm", param = {eps = "0.001", fix_gamma = "False", momentum = "0.9"}, name = "bn", inputs = {{0, 0}, {1, 0}, {2, 0}}, backward_source_id = -1},
      {op = "Activation", param = {act_type = "relu"}, name = "relu", inputs = {{3, 0}}, backward_source_id = -1},
    },
    arg_nodes = {0, 1, 2}, heads = {{4, 0}},
  }
  local one, two = pg.tensor{1, 2}, pg.tensor{4, 9}
  local names = {"arg:bn_gamma", "arg:bn_beta", "aux:bn_moving_mean", "aux:bn_moving_var"}
  local params = t.write(t.tmp "o.params", file.file({file.array(one, 0), file.array(one, 1), file.array(two, 2), file.array(two, 2)}, names))
  local block, x = imports(write((text_of(old):gsub('"param":%[%]', '"param":{}'))), {"data"}, params), pg.randn(3, 2)
  t.close(block(x), pg.batch_norm(x, two, two, one, one, {training = false, eps = 1e-3}):relu(), {rtol = 1e-5, atol = 1e-6})
  t.equal(block.bn_moving_mean.requires_grad, false)
  t.equal(block.bn_gamma.requires_grad, true)
end)

t.test("malformed graphs are errors that name the file and the node", function()
  local x, relu = var "x", node("relu", "r", {}, {0})
  local function refuse(g, text)
    local path = write(g)
    t.error_contains(function() imports(path) end, "imports: " .. path .. ": " .. text)
  end
  refuse(graph{x, node("Frobnicate", "f", {}, {0})}, "node 1 'f' (Frobnicate): the op 'Frobnicate' is not supported")
  refuse(graph{x, node("relu", "r", {}, {1})}, "node 1 'r' (relu): input 1 does not refer to an output of a node before it")
  refuse(graph{x, node("relu", "r", {}, {-1})}, "node 1 'r' (relu): input 1")
  refuse(graph{x, node("relu", "r", {}, {0.5})}, "node 1 'r' (relu): input 1")
  refuse(graph({x, relu}, {7}), "heads: input 1 does not refer")
  refuse(graph({x, relu}, {}), "no heads")
  refuse({nodes = {{op = "null"}}, arg_nodes = {0}, heads = {{0, 0}}}, "node 0 has no 'op' or no 'name'")
  refuse({nodes = {3}, arg_nodes = {0}, heads = {{0, 0}}}, "node 0 has no 'op' or no 'name'")
  refuse({nodes = 3, arg_nodes = {0}}, "no list 'nodes'")
  refuse(graph{x, node("Cast", "c", {dtype = "complex"}, {0})}, "node 1 'c' (Cast): the attribute 'dtype' is \"complex\"")
  refuse(graph{x, node("Cast", "c", {}, {0})}, "node 1 'c' (Cast): the attribute 'dtype' is missing")
  refuse(graph{x, node("Cast", "c", {dtype = 3}, {0})}, "node 1 'c' (Cast): 'attrs' holds other values than texts")
  refuse(graph{x, node("_foreach", "f", {}, {0})}, "node 1 'f' (_foreach): 0 subgraphs (expected 1)")
  local body = graph{x, node("Frobnicate", "g", {}, {0})}
  refuse(graph{x, node("_foreach", "f", {}, {0}, {body})}, "node 1 'f' (_foreach), subgraph 1: node 1 'g' (Frobnicate)")
  refuse(graph{x, node("where", "w", {}, {0, 0})}, "node 1 'w' (where): 2 inputs (expected at least 3)")
  local loop = {in_data_locs = "[9]", in_state_locs = "[]", remain_locs = "[]", num_out_data = "1"}
  refuse(graph{x, node("_foreach", "f", loop, {0}, {graph{x, relu}})}, "node 1 'f' (_foreach): the attribute 'in_data_locs' is \"[9]\"")
  loop = {in_data_locs = "[0]", in_state_locs = "[]", remain_locs = "[]", num_out_data = "1e9"}
  refuse(graph{x, node("_foreach", "f", loop, {0}, {graph{x, relu}})}, "node 1 'f' (_foreach): the attribute 'num_out_data' is \"1e9\"")
  refuse('{"arg_nodes": [0], "nodes": [', "at byte ")
  local path = write(graph({x, relu}, {{1, 3}}))
  t.error_contains(function() imports(path)(pg.ones(1)) end, "node 1 'r' (relu): no output 3 (as head 0)")
  path = write(graph{x, relu, node("relu", "s", {}, {{1, 2}})})
  t.error_contains(function() imports(path)(pg.ones(1)) end, "node 1 'r' (relu): no output 2 (as input 1)")
  local whole = text_of(graph{x, relu})
  for n = 1, #whole - 1, 7 do t.check(not pcall(imports, write(whole:sub(1, n))), n) end
end)
