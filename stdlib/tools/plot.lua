-- Drawings of tensors in a terminal: lines in braille dots, histograms and heat maps in block characters, images in
-- colours or in the graphics of kitty and sixel terminals.
local core = ...
local pg = core.pg
local plot = {}

local columns, lines = 72, 14   -- of a drawing
local floor, min, max, char, concat = math.floor, math.min, math.max, string.char, table.concat

local function fail(format, ...) error(("plot: " .. format):format(...), 0) end

local function utf8(code)
  if code < 0x80 then return char(code) end
  if code < 0x800 then return char(0xc0 + floor(code / 64), 0x80 + code % 64) end
  return char(0xe0 + floor(code / 4096), 0x80 + floor(code / 64) % 64, 0x80 + code % 64)
end

-- Returns the elements as a flat table of numbers, and the smallest and largest that are finite.
local function numbers(x)
  local list = pg.pause(function() return x:detach():to{dtype = "float64", device = "cpu"}:flatten():totable() end)
  local low, high = math.huge, -math.huge
  for _, v in ipairs(list) do
    if v == v and v > -math.huge and v < math.huge then low, high = min(low, v), max(high, v) end
  end
  if low > high then fail("no finite element") end
  return list, low, high
end

local function label(v) return ("%.4g"):format(v) end

-- Lines -------------------------------------------------------------------------------------------------------------------

local dots = {[0] = {[0] = 0x01, 0x02, 0x04, 0x40}, {[0] = 0x08, 0x10, 0x20, 0x80}}  -- by column and row of a cell

-- Each row of `series` is drawn as one line over its index.
local function line_text(series, low, high)
  local width, height, cells = columns * 2, lines * 4, {}
  local span = high > low and high / 2 - low / 2 or 1  -- halves do not overflow
  local function set(px, py)
    local cell = floor(py / 4) * columns + floor(px / 2)
    cells[cell] = bit.bor(cells[cell] or 0, dots[px % 2][py % 4])
  end
  for _, list in ipairs(series) do
    local last_x, last_y
    for i, v in ipairs(list) do
      if v == v and v > -math.huge and v < math.huge then
        local px = #list > 1 and (i - 1) / (#list - 1) * (width - 1) or 0
        local py = (high / 2 - v / 2) / span * (height - 1)
        local steps = last_x and max(1, floor(max(px - last_x, math.abs(py - last_y)) + 0.5)) or 1
        for step = last_x and 1 or steps, steps do
          local part = step / steps
          local x, y = last_x and last_x + (px - last_x) * part or px, last_y and last_y + (py - last_y) * part or py
          set(floor(x + 0.5), floor(y + 0.5))
        end
        last_x, last_y = px, py
      else
        last_x, last_y = nil, nil
      end
    end
  end
  local margin, out = max(#label(low), #label(high)), {}
  for row = 0, lines - 1 do
    local text = {}
    for column = 0, columns - 1 do text[#text + 1] = utf8(0x2800 + (cells[row * columns + column] or 0)) end
    local name = row == 0 and label(high) or row == lines - 1 and label(low) or ""
    out[#out + 1] = (" "):rep(margin - #name) .. name .. " │" .. concat(text)
  end
  out[#out + 1] = (" "):rep(margin) .. " └" .. ("─"):rep(columns)
  local last = tostring(#series[1])
  out[#out + 1] = (" "):rep(margin + 2) .. "1" .. (" "):rep(columns - 1 - #last) .. last
  return concat(out, "\n")
end

local function draw_line(x)
  local shape = x.shape
  if #shape == 0 or #shape > 2 or (#shape == 2 and shape[1] > 8) then fail("a line needs 1 dim, or 2 with at most 8 rows (got %s)", concat(shape, "x")) end
  local list, low, high = numbers(x)
  local n, series = shape[#shape], {}
  for r = 1, #shape == 2 and shape[1] or 1 do
    series[r] = {}
    for i = 1, n do series[r][i] = list[(r - 1) * n + i] end
  end
  return line_text(series, low, high)
end

-- Histograms --------------------------------------------------------------------------------------------------------------

local eighths = {[0] = "", "▏", "▎", "▍", "▌", "▋", "▊", "▉"}

local function draw_hist(x)
  local list, low, high = numbers(x)
  local bins, counts, most = min(20, max(1, #list)), {}, 1
  local span = high > low and high / 2 - low / 2 or 0.5  -- halves do not overflow
  local function edge(i) return low + span * (i / bins) + span * (i / bins) end
  for i = 1, bins do counts[i] = 0 end
  for _, v in ipairs(list) do
    if v >= low and v <= high then
      local i = min(bins, floor((v / 2 - low / 2) / span * bins) + 1)
      counts[i] = counts[i] + 1
      most = max(most, counts[i])
    end
  end
  local out = {}
  for i = 1, bins do
    local length = floor(counts[i] / most * (columns - 20) * 8 + 0.5)
    out[i] = ("%10s %s%s %d"):format(label(edge(i - 1)), ("█"):rep(floor(length / 8)), eighths[length % 8], counts[i])
  end
  out[#out + 1] = ("%10s"):format(label(edge(bins)))
  return concat(out, "\n")
end

-- Heat maps and images ----------------------------------------------------------------------------------------------------

-- A ramp of equal steps in lightness, from dark blue over green to yellow.
local ramp = {{68, 1, 84}, {65, 68, 135}, {42, 120, 142}, {34, 168, 132}, {122, 209, 81}, {253, 231, 37}}

local function colour_of(share)
  local at = min(share, 0.9999) * (#ramp - 1)
  local i, part = floor(at) + 1, at % 1
  local a, b, out = ramp[i], ramp[i + 1], {}
  for c = 1, 3 do out[c] = floor(a[c] + (b[c] - a[c]) * part + 0.5) end
  return out
end

-- A picture: {width =, height =, at(row, column) -> {red, green, blue}, share(row, column) -> lightness from 0 to 1}.
-- Cells have two pixels, one above the other.
local function block_text(picture)
  local shrink = max(1, picture.width / columns, picture.height / (lines * 4))
  local width, height = floor(picture.width / shrink), floor(picture.height / shrink)
  width, height = max(width, 1), max(height, 1)
  local function pixel(get, row, column) return get(floor((row + 0.5) * picture.height / height), floor((column + 0.5) * picture.width / width)) end
  local out = {}
  if not core.has_colours(1) then
    local shades = {" ", "░", "▒", "▓", "█"}
    for row = 0, height - 1 do
      local text = {}
      for column = 0, width - 1 do
        local shade = shades[min(5, floor(pixel(picture.share, row, column) * 5) + 1)]
        text[#text + 1] = shade .. shade
      end
      out[#out + 1] = concat(text)
    end
    return concat(out, "\n")
  end
  for row = 0, height - 1, 2 do
    local text = {}
    for column = 0, width - 1 do
      local top = pixel(picture.at, row, column)
      local below = row + 1 < height and pixel(picture.at, row + 1, column)
      text[#text + 1] = ("\027[38;2;%d;%d;%dm"):format(top[1], top[2], top[3]) ..
        (below and ("\027[48;2;%d;%d;%dm"):format(below[1], below[2], below[3]) or "\027[49m") .. "▀"
    end
    out[#out + 1] = concat(text) .. "\027[0m"
  end
  return concat(out, "\n")
end

local digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

local function base64(text)
  local out = {}
  for i = 1, #text, 3 do
    local a, b, c = text:byte(i, i + 2)
    local n = a * 65536 + (b or 0) * 256 + (c or 0)
    for shift = 0, 3 do
      local d = floor(n / 64 ^ (3 - shift)) % 64 + 1
      out[#out + 1] = (shift == 2 and not b or shift == 3 and not c) and "=" or digits:sub(d, d)
    end
  end
  return concat(out)
end

-- The pixels of the picture, each at least `size` screen pixels wide.
local function scaled(picture, size)
  local factor = max(1, floor(size / max(picture.width, picture.height)))
  return picture.width * factor, picture.height * factor, function(row, column)
    return picture.at(floor(row / factor), floor(column / factor))
  end
end

-- The graphics protocol of kitty: raw pixels of 24 bits in pieces of 4096 characters.
local function kitty_text(picture)
  local width, height, at = scaled(picture, 256)
  local pixels = {}
  for row = 0, height - 1 do
    for column = 0, width - 1 do
      local p = at(row, column)
      pixels[#pixels + 1] = char(p[1], p[2], p[3])
    end
  end
  local data, out = base64(concat(pixels)), {}
  for i = 1, #data, 4096 do
    local head = i == 1 and ("a=T,f=24,s=%d,v=%d,"):format(width, height) or ""
    out[#out + 1] = ("\027_G%sm=%d;%s\027\\"):format(head, i + 4096 <= #data and 1 or 0, data:sub(i, i + 4095))
  end
  return concat(out)
end

-- Sixel graphics with the 216 colours of a 6 x 6 x 6 cube.
local function sixel_text(picture)
  local width, height, at = scaled(picture, 256)
  local out = {"\027Pq\"1;1;", tostring(width), ";", tostring(height)}
  for i = 0, 215 do out[#out + 1] = ("#%d;2;%d;%d;%d"):format(i, floor(i / 36) * 20, floor(i / 6) % 6 * 20, i % 6 * 20) end
  for band = 0, height - 1, 6 do
    local masks = {}
    for column = 0, width - 1 do
      for row = band, min(band + 5, height - 1) do
        local p = at(row, column)
        local colour = floor(p[1] / 51 + 0.5) * 36 + floor(p[2] / 51 + 0.5) * 6 + floor(p[3] / 51 + 0.5)
        masks[colour] = masks[colour] or {}
        masks[colour][column] = (masks[colour][column] or 0) + 2 ^ (row - band)
      end
    end
    for colour, mask in pairs(masks) do
      local text = {}
      for column = 0, width - 1 do text[column + 1] = char(63 + (mask[column] or 0)) end
      out[#out + 1] = "#" .. colour .. concat(text) .. "$"
    end
    out[#out + 1] = "-"
  end
  out[#out + 1] = "\027\\"
  return concat(out)
end

-- PERIGEE_GRAPHICS = kitty, sixel or blocks overrules what the terminal's name says.
local function graphics()
  local given, term = os.getenv("PERIGEE_GRAPHICS"), os.getenv("TERM") or ""
  if given == "kitty" or given == "sixel" or given == "blocks" then return given end
  if given and given ~= "" then fail('PERIGEE_GRAPHICS: expected kitty, sixel or blocks, got "%s"', given) end
  if not core.has_colours(1) then return "blocks" end
  if term == "xterm-kitty" or term == "xterm-ghostty" or os.getenv("TERM_PROGRAM") == "WezTerm" then return "kitty" end
  if term:find("sixel") or term == "foot" or term == "mlterm" or term == "contour" then return "sixel" end
  return "blocks"
end

local function picture_text(picture)
  local kind = graphics()
  return kind == "kitty" and kitty_text(picture) or kind == "sixel" and sixel_text(picture) or block_text(picture)
end

local function draw_heat(x)
  local shape = x.shape
  if #shape ~= 2 then fail("a heat map needs 2 dims (got %s)", concat(shape, "x")) end
  local list, low, high = numbers(x)
  local span, width = high > low and high - low or 1, shape[2]
  local function share(row, column)
    local v = list[row * width + column + 1]
    return v == v and max(0, min(1, (v - low) / span)) or 0
  end
  local picture = {width = width, height = shape[1], share = share, at = function(row, column) return colour_of(share(row, column)) end}
  return picture_text(picture) .. ("\n%s … %s"):format(label(low), label(high))
end

-- An image of 1 or 3 channels, before or behind its rows and columns. Values beyond 1 are taken as 0 to 255.
local function draw_image(x)
  local shape = x.shape
  if #shape == 2 then x = x:unsqueeze(1) end
  if #shape == 3 and (shape[3] == 3 or shape[3] == 1) and shape[1] ~= 3 and shape[1] ~= 1 then x = x:permute{3, 1, 2} end
  shape = x.shape
  if #shape ~= 3 or (shape[1] ~= 1 and shape[1] ~= 3) then fail("an image is height x width, or has 1 or 3 channels first or last (got %s)", concat(shape, "x")) end
  local list, _, high = numbers(x:contiguous())
  local scale, plane, width, three = high > 1 and 1 or 255, shape[2] * shape[3], shape[3], shape[1] == 3
  local function at(row, column)
    local out, place = {}, row * width + column + 1
    for c = 1, 3 do
      local v = list[place + (three and (c - 1) * plane or 0)]
      out[c] = v == v and max(0, min(255, floor(v * scale + 0.5))) or 0
    end
    return out
  end
  local function share(row, column)
    local p = at(row, column)
    return (0.299 * p[1] + 0.587 * p[2] + 0.114 * p[3]) / 255
  end
  return picture_text{width = width, height = shape[2], at = at, share = share}
end

plot.kinds = {line = draw_line, hist = draw_hist, heat = draw_heat, image = draw_image}

local function kind_of(shape)
  if #shape == 1 or (#shape == 2 and shape[1] <= 4) then return "line" end
  return #shape == 2 and "heat" or "image"
end

--- plot.text(x[, kind]) -> the drawing of a tensor (or of a list of numbers) as text. kind is "line", "hist", "heat" or
--- "image"; without it 1 dim is drawn as a line, 2 dims as a heat map and 3 dims as an image.
function plot.text(x, kind)
  if type(x) == "table" and not pg.is_tensor(x) then x = pg.tensor(x, {dtype = "float64"}) end
  if not pg.is_tensor(x) then fail("expected a tensor or a list of numbers, got %s", core.describe(x)) end
  if kind ~= nil and not plot.kinds[kind] then fail('expected "line", "hist", "heat" or "image" as kind, got %s', core.describe(kind)) end
  if x:numel() == 0 then fail("the tensor is empty") end
  if #x.shape == 0 then x = x:reshape{1} end
  return plot.kinds[kind or kind_of(x.shape)](x)
end

return plot
