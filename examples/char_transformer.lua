-- A language model of characters: a causal Transformer with rotary positions, trained on random windows of a text, by
-- default this file. It draws its loss, and samples with a cache in one native loop.
--   perigee examples/char_transformer.lua [--tiny] [file]
local pg = require "perigee"
local nn = pg.nn

local tiny = arg[1] == "--tiny"
local path = arg[tiny and 2 or 1] or arg[0]
pg.manual_seed(1)

local file = assert(io.open(path, "rb"))
local text = file:read("*a")
file:close()

-- The text as numbers 1 … size.
local codes, characters, numbers = {}, {}, {}
for c in text:gmatch(".") do
  if not codes[c] then
    characters[#characters + 1] = c
    codes[c] = #characters
  end
  numbers[#numbers + 1] = codes[c]
end
local size = #characters
numbers = pg.tensor(numbers, {dtype = "int64"})

local units, layers, batch, window, updates = 128, 3, 16, 64, 600
if tiny then units, layers, batch, window, updates = 32, 1, 8, 16, 40 end
assert(#text > window, "the text is too short")

local Model = nn.HybridBlock:extend("Model")
function Model:init()
  self.embedding = nn.Embedding(size, units)
  self.encoder = nn.TransformerEncoder(layers, units, 4, {causal = true, rotary = true, pre_norm = true, activation = "gelu", dropout = 0.1})
  self.head = nn.Dense(size, {in_units = units, flatten = false})
end

-- characters (batch, positions) -> scores of the next ones (batch, positions, size), and the new cache if one is given.
function Model:forward(sequence, cache)
  local y, new = self.encoder(self.embedding(sequence), nil, cache)
  return self.head(y), new
end

local model = Model()
model:initialize("xavier")
local loss_fn = pg.loss.SoftmaxCrossEntropyLoss()
local trainer = pg.optim.Trainer(model:collect_params(), "adamw", {
  lr_scheduler = pg.optim.lr_scheduler.Cosine(updates, {base_lr = tiny and 0.01 or 0.003, warmup_steps = updates / 10}), wd = 0.01,
})

local train = pg.jit(function(starts)
  local positions = starts:unsqueeze(2) + pg.range(0, window, {dtype = "int64"})
  local windows = numbers:take(positions)
  local loss = pg.record(function()
    local scores = model(windows:narrow(2, 1, window))
    return loss_fn(scores:reshape{-1, size}, windows:narrow(2, 2, window):reshape{-1}):mean()
  end)
  loss:backward()
  trainer:step(1)
  return loss
end)

local losses = {}
for update = 1, updates do
  losses[update] = train(pg.randint(1, #text - window, {batch})):item()
  if update % (updates / 10) == 0 then print(("update %d: loss %.4f"):format(update, losses[update])) end
end
print(pg.utils.plot(losses))
print(("the loss fell from %.3f to %.3f; the step was traced %d time(s)"):format(losses[1], losses[updates], train:cache_info().traces))

-- Draws `count` characters after the first one, without entering Lua.
local sample = pg.jit(function(first, temperature, cache, steps)
  local drawn = pg.foreach(function(_, states)
    local scores, new = model(states[1], states[2])
    local next_one = pg.multinomial((scores:reshape{1, size} / temperature):softmax(-1), 1)
    return next_one, {next_one, new}
  end, steps, {first, cache})
  return drawn:reshape{-1}
end)

local count = tiny and 20 or 200
local first = pg.tensor({{codes[text:sub(1, 1)]}}, {dtype = "int64"})
local drawn = sample(first, pg.tensor(0.7), model.encoder:begin_cache(1, count), pg.zeros(count)):totable()
for i, code in ipairs(drawn) do drawn[i] = characters[code] end
print("sample: " .. text:sub(1, 1) .. table.concat(drawn))
