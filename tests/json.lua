-- A JSON reader for test data: decode(text). null becomes json.null; objects and arrays become plain tables.
local json = {null = setmetatable({}, {__tostring = function() return "null" end})}

local escapes = {b = "\b", f = "\f", n = "\n", r = "\r", t = "\t", ["/"] = "/", ["\\"] = "\\", ['"'] = '"'}
local words = {["true"] = true, ["false"] = false, ["null"] = json.null, ["NaN"] = 0 / 0, ["Infinity"] = math.huge}
local value

local function utf8(code)
  code = tonumber(code, 16)
  if code < 0x80 then return string.char(code) end
  if code < 0x800 then return string.char(0xC0 + math.floor(code / 64), 0x80 + code % 64) end
  return string.char(0xE0 + math.floor(code / 4096), 0x80 + math.floor(code / 64) % 64, 0x80 + code % 64)
end

local function skip(s, i) return s:find("%S", i) or #s + 1 end

local function text(s, i)
  local j = i + 1
  while true do
    local k = s:find('["\\]', j) or error("json: unclosed string at byte " .. i, 0)
    if s:sub(k, k) == '"' then
      local raw = s:sub(i + 1, k - 1)
      if raw:find("\\", 1, true) then raw = raw:gsub("\\u(%x%x%x%x)", utf8):gsub("\\(.)", escapes) end
      return raw, k + 1
    end
    j = k + 2
  end
end

local function list(s, i, close, item)
  i = skip(s, i + 1)
  if s:sub(i, i) == close then return i + 1 end
  while true do
    i = skip(s, item(i))
    local c = s:sub(i, i)
    if c == close then return i + 1 end
    if c ~= "," then error("json: expected ',' or '" .. close .. "' at byte " .. i, 0) end
    i = skip(s, i + 1)
  end
end

function value(s, i)
  i = skip(s, i)
  local c = s:sub(i, i)
  if c == '"' then return text(s, i) end
  if c == "{" then
    local out = {}
    return out, list(s, i, "}", function(j)
      local k
      k, j = text(s, j)
      out[k], j = value(s, skip(s, j) + 1)
      return j
    end)
  end
  if c == "[" then
    local out, n = {}, 0
    return out, list(s, i, "]", function(j)
      n = n + 1
      out[n], j = value(s, j)
      return j
    end)
  end
  local word = s:match("^%a+", i)
  if word and words[word] ~= nil then return words[word], i + #word end
  if s:match("^%-Infinity", i) then return -math.huge, i + 9 end
  local number = s:match("^-?%d[%d.eE+-]*", i)
  if not number then error("json: unexpected text at byte " .. i, 0) end
  return tonumber(number), i + #number
end

function json.decode(s) return (value(s, 1)) end

function json.read(path)
  local f = assert(io.open(path, "rb"))
  local s = f:read("*a")
  f:close()
  return json.decode(s)
end

return json
