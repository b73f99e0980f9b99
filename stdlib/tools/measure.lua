-- Measuring how long functions take.
local core = ...
local pg = core.pg
local measure = {}

--- measure.now() -> seconds of a clock that never goes back.
measure.now = core.clock

local function batch(f, runs)
  local start = measure.now()
  for _ = 1, runs do f() end
  pg.synchronize()
  return measure.now() - start
end

-- Returns how often f must run for a batch of about `target` seconds.
local function calibrate(f, target)
  local runs = 1
  while true do
    local took = batch(f, runs)
    if took >= target / 2 or runs >= 1e9 then return math.max(1, math.floor(runs * target / math.max(took, 1e-9))) end
    runs = took < target / 20 and runs * 10 or runs * 2
  end
end

--- measure.functions(list, {seconds =}) -> a list of {median =, fastest =, slow =, batches =, runs =}: seconds per call,
--- where `slow` is the limit of the slowest tenth. Each function runs for about `seconds`, in batches that take turns, so
--- that a change of the machine's speed meets all of them.
function measure.functions(list, opts)
  local target, out = opts.seconds / 20, {}
  for i, f in ipairs(list) do
    f()
    out[i] = {runs = calibrate(f, target), times = {}}
  end
  local start = measure.now()
  repeat
    for i, f in ipairs(list) do
      local m = out[i]
      m.times[#m.times + 1] = batch(f, m.runs) / m.runs
    end
  until #out[1].times >= 5 and measure.now() - start >= opts.seconds * #list
  for _, m in ipairs(out) do
    table.sort(m.times)
    local n = #m.times
    m.batches, m.fastest, m.median, m.slow = n, m.times[1], m.times[math.ceil(n / 2)], m.times[math.ceil(n * 0.9)]
  end
  return out
end

return measure
