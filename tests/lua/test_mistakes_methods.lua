-- Methods called with a dot, on objects of another kind, with the full text of each error.
local t = require "tests.support"
local pg = require "perigee"
local mistakes = require "tests.mistakes"

mistakes.check("methods called with a dot", {
  {[[local _ = x:sum().backward()]],
   [[backward: bad argument 'x' (expected a tensor, got nothing; write x:backward(…) with a colon to pass x)]]},
  {[[local _ = x.backward()]],
   [[backward: bad argument 'x' (expected a tensor, got nothing; write x:backward(…) with a colon to pass x)]]},
  {[[local _ = x.zero_grad()]],
   [[zero_grad: bad argument 'x' (expected a tensor, got nothing; write x:zero_grad(…) with a colon to pass x)]]},
  {[[local _ = x.iter()]],
   [[iter: bad argument 'x' (expected a tensor, got nothing; write x:iter(…) with a colon to pass x)]]},
  {[[local _ = x.lstm()]],
   [[lstm: bad argument 'x' (expected a tensor, got nothing; write x:lstm(…) with a colon to pass x)]]},
  {[[local _ = net.add(nn.Dense(2))]],
   [[add: bad argument 'self' (expected the object before the dot, got block Dense; write net:add(…) with a colon)]]},
  {[[local _ = net.slice(nn.Dense(2))]],
   [[slice: bad argument 'self' (expected the object before the dot, got block Dense; write net:slice(…) with a colon)]]},
  {[[local _ = net.initialize(ds)]],
   [[initialize: bad argument 'self' (expected the object before the dot, got object ArrayDataset; write net:initialize(…) with a colon)]]},
  {[[local _ = trainer.step(ds)]],
   [[step: bad argument 'self' (expected the object before the dot, got object ArrayDataset; write trainer:step(…) with a colon)]]},
  {[[local _ = ds.len(net)]],
   [[len: bad argument 'self' (expected the object before the dot, got block HybridSequential; write ds:len(…) with a colon)]]},
  {[[local _ = ds.transform(function() end)]],
   [[transform: bad argument 'self' (expected the object before the dot, got function; write ds:transform(…) with a colon)]]},
  {[[local _ = loader.iter(ds)]],
   [[iter: bad argument 'self' (expected the object before the dot, got object ArrayDataset; write loader:iter(…) with a colon)]]},
  {[[local _ = data.RandomSampler(5).len()]],
   [[len: bad argument 'self' (expected the object before the dot, got nil; write sampler:len(…) with a colon)]]},
  {[[local _ = metric.update(labels, scores)]],
   [[update: bad argument 'self' (expected the object before the dot, got int64 2 cpu; write metric:update(…) with a colon)]]},
  {[[local _ = pg.metric.CompositeEvalMetric{metric}.get()]],
   [[get: bad argument 'self' (expected the object before the dot, got nil; write metric:get(…) with a colon)]]},
  {[[local _ = net:collect_params().zero_grad()]],
   [[zero_grad: bad argument 'self' (expected the object before the dot, got nil; write params:zero_grad(…) with a colon)]]},
  {[[local _ = net:collect_params().set("grad_req", "null")]],
   [[set: bad argument 'self' (expected the object before the dot, got "grad_req"; write params:set(…) with a colon)]]},
  {[[local _ = net:collect_params().len()]],
   [[len: bad argument 'self' (expected the object before the dot, got nil; write params:len(…) with a colon)]]},
})

t.test("every method of tensors that is called with a dot and no arguments raises at the script's line", function()
  local x = pg.ones(2, 3)
  for _, entry in ipairs(pg.testing.tensor_names()) do
    local name = entry:match("^tensor_methods (%S+)$")
    if name then
      local ok, message = pcall(x[name])
      t.check(not ok, name .. " raised nothing")
      t.check(not message:find("^stdlib/"), name .. ": " .. message)
    end
  end
end)
