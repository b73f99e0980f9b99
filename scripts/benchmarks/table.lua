-- Converts the JSON lines of scripts/bench on standard input to a Markdown table: one row per case, one column per
-- variant of perigee, and one per peer with its best variant.
local here = arg[0]:match("^(.*)/[^/]*$") or "."
package.path = here .. "/../../?.lua;" .. package.path
local json = require "tests.json"

local names, peers, cells, known = {}, {}, {}, {}
for line in io.lines() do
  local ok, row = pcall(json.decode, line)
  if ok and row.name and type(row.us_min) == "number" then
    local peer = row.peer or row.variant and "perigee " .. row.variant or "perigee"
    if not row.peer then row.variant = nil end
    if not cells[row.name] then
      cells[row.name] = {}
      names[#names + 1] = row.name
    end
    if not known[peer] then
      known[peer] = true
      peers[#peers + 1] = peer
    end
    local best = cells[row.name][peer]
    if not best or row.us_min < best.us_min then cells[row.name][peer] = row end
  end
end

local function number(v) return v >= 100 and string.format("%.0f", v) or string.format("%.3g", v) end

io.write("| µs, minimum | ", table.concat(peers, " | "), " |\n|---|", ("---|"):rep(#peers), "\n")
for _, name in ipairs(names) do
  local row = {}
  for i, peer in ipairs(peers) do
    local c = cells[name][peer]
    row[i] = not c and "–" or number(c.us_min) .. (c.variant and " " .. c.variant or "")
  end
  io.write("| ", name, " | ", table.concat(row, " | "), " |\n")
end
