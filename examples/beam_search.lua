-- Beam search as one program: while_loop keeps the best `width` sequences of a small language model until all of them
-- have ended. The result is compared with a greedy and an exhaustive search. The program is exported and runs again
-- from its files.
--   perigee examples/beam_search.lua [--tiny]
local pg = require "perigee"
local nn = pg.nn

local tiny = arg[1] == "--tiny"
local vocabulary, hidden, width, longest = tiny and 5 or 20, 16, tiny and 3 or 8, tiny and 5 or 12
local stop = vocabulary  -- the token that ends a sequence
pg.manual_seed(tiny and 1 or 7)

-- A recurrent decoder: (token, state) -> log-probabilities, new state.
local Decoder = nn.HybridBlock:extend("Decoder")
function Decoder:init()
  self.embedding = nn.Embedding(vocabulary, hidden, {weight_initializer = pg.init.Normal(1)})
  self.input = nn.Dense(hidden, {in_units = hidden, weight_initializer = pg.init.Normal(0.5)})
  self.state = nn.Dense(hidden, {in_units = hidden, use_bias = false, weight_initializer = pg.init.Normal(0.5)})
  self.output = nn.Dense(vocabulary, {in_units = hidden, weight_initializer = pg.init.Normal(1)})
end

function Decoder:forward(tokens, h)
  h = (self.input(self.embedding(tokens)) + self.state(h)):tanh()
  return self.output(h):log_softmax(-1), h
end

-- Keeps `width` beams: the tokens so far (width x longest), their scores, the states of the decoder, and whether each
-- has ended.
local Beam = nn.HybridBlock:extend("Beam")
function Beam:init(decoder) self.decoder = decoder end
function Beam:forward(h)
  local tokens = pg.full({width, longest}, stop, {dtype = "int64"})
  local scores = pg.cat{pg.zeros(1), pg.full({width - 1}, -1e9)}  -- all beams start the same, so only the first counts
  local last = pg.full({width}, stop, {dtype = "int64"})
  local ended = pg.zeros({width}, {dtype = "bool"})
  -- The scores for a beam that has ended: it can only stop again, at no cost.
  local stay = pg.cat{pg.full({vocabulary - 1}, -1e9), pg.zeros(1)}
  local _, vars, n = pg.while_loop(
    function(i, _, _, _, _, done) return i:le(longest):logical_and(done:all():logical_not()) end,
    function(i, sequence, score, previous, state, done)
      local log_p, new = self.decoder(previous, state)
      log_p = pg.where(done:unsqueeze(2), stay, log_p)
      local total = (score:unsqueeze(2) + log_p):reshape{-1}
      local best, index = total:topk(width)
      local from = (index - 1):floor_divide(vocabulary) + 1
      local token = (index - 1) % vocabulary + 1
      sequence = sequence:index_select(1, from)
      sequence[{{}, i}] = token
      return nil, {i + 1, sequence, best, token, new:index_select(1, from), token:eq(stop)}
    end, {1, tokens, scores, last, h:expand(width, hidden) * 1, ended})
  return vars[2], vars[3], n
end

local decoder = Decoder()
decoder:initialize()
local beam = Beam(decoder)
beam:hybridize()

local function text_of(list)
  local parts = {}
  for i, token in ipairs(list) do
    if token == stop then break end
    parts[i] = tostring(token)
  end
  return table.concat(parts, " ")
end

local start = pg.randn(1, hidden)
local tokens, scores, n = beam(start)
print(("%d steps, the best sequences:"):format(n:item()))
local list, values = tokens:totable(), scores:totable()
for k = 1, math.min(width, 4) do print(("  %8.4f  %s"):format(values[k], text_of(list[k]))) end

-- Decodes one token after the other in Lua. f(log_p) chooses the token.
local function greedy()
  local h, token, sum, out = start, pg.tensor({stop}, {dtype = "int64"}), 0, {}
  for i = 1, longest do
    local log_p
    log_p, h = decoder(token, h)
    token = log_p:argmax(-1)
    out[i] = token:item()
    sum = sum + log_p[{1, out[i]}]:item()
    if out[i] == stop then break end
  end
  return sum, out
end

local function exhaustive(h, previous, sum, depth)
  local log_p, new = decoder(pg.tensor({previous}, {dtype = "int64"}), h)
  local row, best = log_p[1]:totable(), -math.huge
  for token, p in ipairs(row) do
    local value = sum + p
    if token ~= stop and depth < longest then value = exhaustive(new, token, value, depth + 1) end
    best = math.max(best, value)
  end
  return best
end

local sum, sequence = greedy()
print(("greedy: %.4f  %s"):format(sum, text_of(sequence)))
print("the beam is at least as good: " .. tostring(values[1] >= sum - 1e-4))
if tiny then
  local best = exhaustive(start, stop, 0, 1)
  print(("the best of all: %.4f"):format(best))
end

-- Runs the same program from its files, without the script.
local path = os.tmpname()
local model, weights = beam:export(path)
local imported = nn.SymbolBlock.imports(model, nil, weights)
local again = imported(start)
print("imported: the same sequences: " .. tostring(again:equal(tokens)))
for _, file in ipairs{path, model, weights} do os.remove(file) end
