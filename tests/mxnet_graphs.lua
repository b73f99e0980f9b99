-- Graphs in MXNet's JSON, as tables, and blocks that run them.
local t = require "tests.support"
local pg = require "perigee"
local imports = pg.nn.SymbolBlock.imports
local mxnet = {}

-- Returns the JSON of a value. An empty table is an array.
local function text_of(v)
  if type(v) == "table" and (v[1] ~= nil or next(v) == nil) then
    local out = {}
    for i, item in ipairs(v) do out[i] = text_of(item) end
    return "[" .. table.concat(out, ",") .. "]"
  elseif type(v) == "table" then
    local out = {}
    for key, item in pairs(v) do out[#out + 1] = ("%q:%s"):format(key, text_of(item)) end
    return "{" .. table.concat(out, ",") .. "}"
  end
  return type(v) == "string" and ("%q"):format(v) or tostring(v)
end

-- Returns a node; its inputs are numbers of nodes, or {node, output}.
function mxnet.node(op, name, attrs, inputs, subgraphs)
  local list = {}
  for i, from in ipairs(inputs or {}) do list[i] = type(from) == "table" and {from[1], from[2], 0} or {from, 0, 0} end
  local out = {op = op, name = name, inputs = list, subgraphs = subgraphs}
  if attrs and next(attrs) then out.attrs = attrs end
  return out
end

function mxnet.var(name) return mxnet.node("null", name) end

function mxnet.graph(nodes, heads)
  local arg_nodes, list = {}, {}
  for i, n in ipairs(nodes) do if n.op == "null" then arg_nodes[#arg_nodes + 1] = i - 1 end end
  for i, head in ipairs(heads or {#nodes - 1}) do list[i] = type(head) == "table" and {head[1], head[2], 0} or {head, 0, 0} end
  return {nodes = nodes, arg_nodes = arg_nodes, heads = list}
end

function mxnet.write(g, name) return t.write(t.tmp(name or "x-symbol.json"), type(g) == "string" and g or text_of(g)) end

-- Returns a block of one op with n inputs, all of them arguments.
function mxnet.block_of(op, attrs, n, outputs)
  local nodes, inputs, names = {}, {}, {}
  for i = 1, n do nodes[i], inputs[i], names[i] = mxnet.var("x" .. i), i - 1, "x" .. i end
  nodes[n + 1] = mxnet.node(op, "op", attrs, inputs)
  local heads = {}
  for k = 1, outputs or 1 do heads[k] = {n, k - 1} end
  return imports(mxnet.write(mxnet.graph(nodes, heads)), names)
end

-- The op with these attributes must give the tensors of `expected` for the inputs, in a hybridized block too.
function mxnet.gives(op, attrs, inputs, expected)
  if pg.is_tensor(expected) then expected = {expected} end
  for _, hybrid in ipairs{false, true} do
    local block = mxnet.block_of(op, attrs, #inputs, #expected)
    if hybrid then block:hybridize() end
    local got = {block(unpack(inputs))}
    for i, y in ipairs(expected) do
      local what = ("%s, output %d"):format(op, i)
      t.equal(got[i].shape, y.shape, what)
      t.equal(got[i].dtype, y.dtype, what)
      t.close(got[i], y, {rtol = 1e-5, atol = 1e-6, what = what})
    end
  end
end

function mxnet.same_as(got, want, case, what)
  t.equal({got.shape, got.dtype}, {want.shape, want.dtype}, what)
  t.close(got, want, {rtol = case.rtol, atol = case.atol, what = what})
end

mxnet.text_of = text_of

return mxnet
