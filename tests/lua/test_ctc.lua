-- ctc_loss against the sum over all paths, its derivatives through log_softmax, and pg.loss.CTCLoss.
local t = require "tests.support"
local gradcheck = require "tests.gradcheck"
local pg = require "perigee"

local function labels(list) return pg.tensor(list, {dtype = "int64"}) end

-- Returns what a path of classes spells: repetitions and blanks dropped, as a string.
local function spelled(path, blank)
  local out, last = {}, nil
  for _, c in ipairs(path) do
    if c ~= last and c ~= blank then out[#out + 1] = c end
    last = c
  end
  return table.concat(out, ",")
end

-- The sum of the probabilities of all paths of #rows steps that spell `word`.
local function total(rows, word, blank, path)
  path = path or {}
  local step = #path + 1
  if step > #rows then return spelled(path, blank) == word and 1 or 0 end
  local sum = 0
  for c, logarithm in ipairs(rows[step]) do
    path[step] = c
    sum = sum + math.exp(logarithm) * total(rows, word, blank, path)
    path[step] = nil
  end
  return sum
end

t.test("the loss is that of all paths together", function()
  gradcheck.seed(3)
  for _, case in ipairs{{word = {2, 3}, blank = 1}, {word = {1, 1}, blank = 3}, {word = {2}, blank = 3}} do
    local x = gradcheck.random{5, 3}:log_softmax(2)
    local want = -math.log(total(x:totable(), table.concat(case.word, ","), case.blank))
    t.close(pg.ctc_loss(x, labels(case.word), {blank = case.blank, reduction = "sum"}), want, {rtol = 1e-12})
  end
end)

t.test("derivatives of orders 1 and 2 through log_softmax", function()
  gradcheck.seed(4)
  local words, steps, counts = labels{{2, 4}, {3, 3}, {4, 2}}, labels{5, 4, 3}, labels{2, 2, 1}
  for _, reduction in ipairs{"mean", "sum", "none"} do
    gradcheck.check(function(list)
      return {pg.ctc_loss(list[1]:log_softmax(3), words, steps, counts, {reduction = reduction})}
    end, {gradcheck.random{5, 3, 4}})
  end
end)

t.test("derivatives up to order 5 agree with differences of the order below", function()
  gradcheck.seed(5)
  local function f(x) return pg.ctc_loss(x:log_softmax(2), labels{2, 1}, {blank = 3, reduction = "sum"}) end
  for order = 2, 5 do
    local lower = f
    local v = gradcheck.random{4, 3}
    f = function(x) return (pg.autograd.grad({lower(x)}, {x}, {create_graph = true})[1] * v):sum() end
    local function value(at)
      local x = at:detach():attach_grad()
      return pg.record(function() return f(x) end):item(), x
    end
    if order > 2 then
      local x, step = gradcheck.random{4, 3}:attach_grad(), 1e-5
      local slope = pg.record(function() return pg.autograd.grad({f(x)}, {x}, {create_graph = true})[1] end)
      local w = gradcheck.random{4, 3}
      local numeric = (value(x:detach() + w * step) - value(x:detach() - w * step)) / (2 * step)
      t.close((slope * w):sum(), numeric, {rtol = 1e-6, atol = 1e-7, what = "order " .. order})
    end
  end
end)

t.test("the limit of orders is an error", function()
  local x = pg.randn(3, 2):to("float64"):attach_grad()
  t.error_contains(function()
    pg.record(function()
      local y = pg.ctc_loss(x, labels{2})
      for _ = 1, 6 do y = pg.autograd.grad({y}, {x}, {create_graph = true})[1]:sum() end
    end)
  end, "ctc_loss: bad argument 'log_probs' (expected a derivative of order 5 or less, got 6)")
end)

t.test("no path: infinity, or 0 without a gradient", function()
  local x = pg.zeros(3, 2, 3):log_softmax(3)
  local steps, words = labels{2, 3}, labels{{2, 2}, {2, 3}}  -- two equal labels need three steps
  t.equal(pg.ctc_loss(x, words, steps, {reduction = "none"})[1]:item(), math.huge)
  x:attach_grad()
  local y = pg.record(function() return pg.ctc_loss(x, words, steps, {reduction = "none", zero_infinity = true}) end)
  y:backward()
  t.equal(y[1]:item(), 0)
  t.close(x.grad[{{}, 1}], pg.zeros(3, 3))
  t.check(x.grad[{{}, 2}]:abs():sum():item() > 0.1)
end)

t.test("steps after the end do not matter, even if they are NaN", function()
  local x = pg.randn(6, 2, 4):log_softmax(3)
  local words, steps = labels{{2, 3}, {4, 4}}, labels{4, 6}
  local want = pg.ctc_loss(x, words, steps)
  x[{{5, 6}, 1}] = 0 / 0
  x:attach_grad()
  local y = pg.record(function() return pg.ctc_loss(x, words, steps) end)
  y:backward()
  t.equal(y:item(), want:item())
  t.close(x.grad[{{5, 6}, 1}], pg.zeros(2, 4))
end)

t.test("labels in a row, one sample without a batch, no labels, no samples", function()
  local x = pg.randn(6, 3, 4):log_softmax(3)
  local counts = labels{2, 0, 1}
  local rows = pg.ctc_loss(x, labels{{2, 3}, {9, 9}, {4, 0}}, nil, counts, {reduction = "none"})
  t.close(pg.ctc_loss(x, labels{2, 3, 4}, nil, counts, {reduction = "none"}), rows)
  t.close(pg.ctc_loss(x[{{}, 1}], labels{2, 3}, {reduction = "none"}), rows[1])
  t.close(rows[2], -x[{{}, 2, 1}]:sum(), {rtol = 1e-5})
  t.close(pg.ctc_loss(x, labels{2, 3, 4}, nil, counts), (rows / pg.tensor{2, 1, 1}):mean(), {rtol = 1e-6})
  t.equal(pg.ctc_loss(pg.zeros(3, 0, 4), pg.zeros({0, 2}, {dtype = "int64"}), {reduction = "sum"}):item(), 0)
  t.equal(pg.ctc_loss(pg.zeros(0, 1, 4), pg.zeros({1, 0}, {dtype = "int64"}), {reduction = "sum"}):item(), 0)
end)

t.test("wrong labels and lengths", function()
  local x = pg.zeros(4, 2, 3)
  local function fails(text, ...)
    local n, given = select("#", ...), {...}
    t.error_contains(function() pg.ctc_loss(x, unpack(given, 1, n)) end, "ctc_loss: bad argument " .. text)
  end
  fails("'targets' (expected labels from 1 to 3 other than blank 1, got 0 at position 2)", labels{{2, 0}, {3, 3}})
  fails("'targets' (expected labels from 1 to 3 other than blank 2, got 2 at position 1)", labels{{2, 1}, {3, 3}}, {blank = 2})
  fails("'targets' (expected 2 rows of labels, or 1 dim, got int64 1x2 ", labels{{2, 3}})
  fails("'input_lengths' (expected whole numbers from 0 to 4, got 5 at position 1)", labels{{2}, {3}}, labels{5, 1})
  fails("'input_lengths' (expected one length for each of the 2 samples", labels{{2}, {3}}, labels{5})
  fails("'target_lengths' (expected the number of labels of each sample", labels{2, 3})
  fails("'target_lengths' (expected lengths that sum to the 3 labels, got a sum of 2)", labels{2, 3, 3}, nil, labels{1, 1})
  fails("'blank' (expected a class from 1 to 3, got 4)", labels{{2}, {3}}, {blank = 4})
end)

t.test("CTCLoss: layouts, padding, lengths, weights", function()
  local pred, label = pg.randn(2, 5, 4), labels{{1, 2, 0}, {3, 0, 0}}
  local want = pg.ctc_loss(pred:transpose(1, 2):log_softmax(3), label, nil, labels{2, 1}, {blank = 4, reduction = "none"})
  t.close(pg.loss.CTCLoss()(pred, label), want)
  t.close(pg.loss.CTCLoss()(pred, label - (label:eq(0)):to("int64")), want)
  t.close(pg.loss.CTCLoss{layout = "TNC", label_layout = "TN"}(pred:transpose(1, 2), label:t()), want)
  t.close(pg.loss.CTCLoss{weight = 2}(pred, label, nil, labels{2, 1}, pg.tensor{1, 3}), want * pg.tensor{2, 6})
  t.error_contains(function() pg.loss.CTCLoss{layout = "CNT"} end, "layout")
  t.error_contains(function() pg.loss.CTCLoss{batch_axis = 2} end, "batch_axis")
  t.error_contains(function() pg.loss.CTCLoss()(pred, label:select(1, 1)) end, "CTCLoss: bad argument 'label'")
end)

t.test("CTCLoss trains a net to spell", function()
  pg.manual_seed(1)
  local net = pg.nn.Dense(4, {flatten = false, in_units = 3})
  net:initialize()
  local x, label = pg.randn(2, 6, 3), labels{{1, 2}, {3, 0}}
  local loss_fn = pg.loss.CTCLoss()
  local trainer = pg.optim.Trainer(net:collect_params(), "adam", {learning_rate = 0.3})
  local first, last
  for _ = 1, 20 do
    local l = pg.record(function() return loss_fn(net(x), label):mean() end)
    l:backward()
    trainer:step(1)
    first, last = first or l:item(), l:item()
  end
  t.check(last < first / 2, first .. " to " .. last)
end)
