-- Durations and sizes of memory as text, and its columns.
local core = ...  -- luacheck: ignore 211
local units = {}

--- units.seconds(s) -> "12.3 µs", with three digits.
function units.seconds(s)
  if s >= 60 then return ("%d min %04.1f s"):format(math.floor(s / 60), s % 60) end
  if s >= 1 then return ("%.3g s"):format(s) end
  if s >= 1e-3 then return ("%.3g ms"):format(s * 1e3) end
  if s >= 1e-6 then return ("%.3g µs"):format(s * 1e6) end
  return ("%.3g ns"):format(s * 1e9)
end

--- units.bytes(n) -> "4.0 kB", in powers of 1000. n may be negative.
function units.bytes(n)
  if math.abs(n) < 1000 then return ("%d B"):format(n) end
  for _, unit in ipairs{"kB", "MB", "GB", "TB"} do
    n = n / 1000
    if math.abs(n) < 1000 or unit == "TB" then return ("%.1f %s"):format(n, unit) end
  end
end

--- units.width(text) -> the columns of a text in UTF-8, whose characters have one each.
function units.width(text) return select(2, text:gsub("[^\128-\191]", "")) end

return units
