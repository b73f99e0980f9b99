-- A language model of characters: an LSTM in foreach, trained on a text by truncated backpropagation. while_loop
-- samples from it in one native program.
--   perigee examples/char_lm.lua [--tiny] [file]
local pg = require "perigee"
local nn = pg.nn

local tiny = arg[1] == "--tiny"
local path = arg[tiny and 2 or 1]
pg.manual_seed(1)

-- The default text: sentences made by a small grammar.
local function make_text()
  local subjects, verbs, objects = {"the cat", "a dog", "the old crow", "my neighbour"}, {"sees", "follows", "likes", "hears"}, {"the moon", "a mouse", "some rain", "the sea"}
  local parts, state = {}, 1
  local function pick(list)
    state = (state * 16807) % 2147483647
    return list[state % #list + 1]
  end
  for i = 1, tiny and 120 or 600 do parts[i] = pick(subjects) .. " " .. pick(verbs) .. " " .. pick(objects) .. ".\n" end
  return table.concat(parts)
end

local function read(name)
  local f = assert(io.open(name, "rb"))
  local text = f:read("*a")
  f:close()
  return text
end

local text = path and read(path) or make_text()

-- Makes the vocabulary, and the text as numbers 1 … size.
local codes, characters = {}, {}
for i = 0, 255 do
  local c = string.char(i)
  if text:find(c, 1, true) then
    characters[#characters + 1] = c
    codes[c] = #characters
  end
end
local numbers = {}
for i = 1, #text do numbers[i] = codes[text:sub(i, i)] end
local size = #characters

local hidden, batch, steps = tiny and 32 or 96, tiny and 8 or 16, tiny and 16 or 32
local Model = nn.HybridBlock:extend("Model")
function Model:init()
  self.embedding = nn.Embedding(size, 24)
  self.cell = nn.rnn.LSTMCell(hidden, {input_size = 24})
  self.head = nn.Dense(size, {in_units = hidden})
end

function Model:step(character, states)
  local out, new = self.cell(self.embedding(character), states)
  return self.head(out), new
end

-- characters (steps x batch) -> scores of the next characters (steps x batch x size), and the states after them.
function Model:forward(sequence, states)
  return pg.foreach(function(c, s) return self:step(c, s) end, sequence, states)
end

local model = Model()
model:initialize("xavier")
local loss_fn = pg.loss.SoftmaxCrossEntropyLoss()
local trainer = pg.optim.Trainer(model:collect_params(), "adam", {learning_rate = tiny and 0.02 or 0.01, clip_gradient = 1})

-- Arranges the text in `batch` columns. Each training step starts from the states of the one before.
local rows = math.floor((#numbers - 1) / batch)
local function columns(shift)
  local list = {}
  for i = 1, rows * batch do list[i] = numbers[i + shift] end
  return pg.tensor(list, {dtype = "int64"}):reshape{batch, rows}:t():contiguous()
end
local inputs, targets = columns(0), columns(1)

local train = pg.jit(function(x, y, states)
  local last
  local l = pg.record(function()
    local scores, new = model(x, states)
    last = new
    return loss_fn(scores:reshape{-1, size}, y:reshape{-1}):mean()
  end)
  l:backward()
  trainer:step(1)
  return l, pg.tree.map(pg.detach, last)
end)

local first, loss
for epoch = 1, tiny and 6 or 8 do
  local states, sum, count = model.cell:begin_state{batch_size = batch}, 0, 0
  for start = 1, rows - steps + 1, steps do
    local l
    l, states = train(inputs[{{start, start + steps - 1}}], targets[{{start, start + steps - 1}}], states)
    sum, count = sum + l:item(), count + 1
  end
  loss = sum / count
  first = first or loss
  print(("epoch %d: loss %.4f (%.2f bits per character)"):format(epoch, loss, loss / math.log(2)))
end
print(("the loss fell from %.4f to %.4f; the step was traced %d time(s)"):format(first, loss, train:cache_info().traces))

-- Draws characters until a line ends or `most` are drawn, in one call that does not enter Lua.
local newline = codes["\n"] or size
local sample = pg.jit(function(start, temperature, states, most)
  local outs, _, n = pg.while_loop(
    function(i, c) return i:lt(most):logical_and(c:ne(newline):reshape{}) end,
    function(i, c, s)
      local scores, new = model:step(c, s)
      local drawn = pg.multinomial((scores / temperature):softmax(-1), 1):reshape{1}
      return drawn, {i + 1, drawn, new}
    end, {0, start, states}, {max_iterations = 80})
  return outs, n
end)

for line = 1, 3 do
  local start = text:sub(line, line)
  local outs, n = sample(pg.tensor({codes[start]}, {dtype = "int64"}), pg.tensor(0.5), model.cell:begin_state{batch_size = 1}, pg.tensor(80, {dtype = "int64"}))
  local drawn, list = {start}, outs:reshape{-1}:totable()
  for i = 1, n:item() do drawn[#drawn + 1] = characters[list[i]] end
  print("sample " .. line .. ": " .. table.concat(drawn):gsub("\n", ""))
end
