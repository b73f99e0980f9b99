-- The attributes of a node of MXNet: texts such as "(3, 3)", "True", "1e-05" and "None".
local core = ...
local Attributes = {}
Attributes.__index = Attributes

--- attributes.new(place, texts) -> an object that reads the texts by name. place is the node, for errors.
local function new(place, texts) return setmetatable({place = place, texts = texts}, Attributes) end

--- a:fail(name, expected) raises that the attribute is something else.
function Attributes:fail(name, expected)
  local text = self.texts[name]
  core.fail("imports", "%s: the attribute '%s' is %s (expected %s)", self.place, name, text and '"' .. text .. '"' or "missing", expected)
end

-- Returns the text of the attribute, or nil if it is absent or None.
local function given(self, name)
  local text = self.texts[name]
  return text ~= "None" and text or nil
end

-- Each method returns the value of an attribute: `default` if it is absent, which raises without a default.
local function reader(expected, read)
  return function(self, name, default)
    local text = given(self, name)
    local value
    if text then value = read(text) else value = default end
    if value == nil then self:fail(name, expected) end
    return value
  end
end

local function number_of(text) return tonumber((text:gsub("^(%-?%d+)L$", "%1"))) end

Attributes.text = reader("a text", function(text) return text end)
Attributes.number = reader("a number", number_of)

--- a:count(name, default, most) -> a whole number from 0 to `most`.
function Attributes:count(name, default, most)
  local n = self:number(name, default)
  if n < 0 or n > most or n ~= math.floor(n) then self:fail(name, "a whole number from 0 to " .. most) end
  return n
end

local booleans = {True = true, ["true"] = true, ["1"] = true, False = false, ["false"] = false, ["0"] = false}
Attributes.boolean = reader("True or False", function(text) return booleans[text] end)

--- a:list(name[, default]) -> the numbers of a tuple or of one number; None gives false.
Attributes.list = reader("a list of numbers", function(text)
  local out = {}
  for item in text:gsub("^%s*[%(%[](.*)[%)%]]%s*$", "%1"):gmatch("[^,%s]+") do
    local value = number_of(item)
    if not value and item ~= "None" then return nil end
    out[#out + 1] = value or false
  end
  return out
end)

local function dim_of(axis) return axis < 0 and axis or axis + 1 end

--- a:dim(name[, default]) -> the dim, from 1 on or negative, of an axis, from 0 on or negative. default is an axis.
function Attributes:dim(name, default) return dim_of(self:number(name, default)) end

--- a:dims(name) -> the list of dims of one axis or several, or nil without any.
function Attributes:dims(name)
  local axes = self:list(name, false)
  if not axes or #axes == 0 then return nil end
  for i, axis in ipairs(axes) do
    if not axis then self:fail(name, "numbers") end
    axes[i] = dim_of(axis)
  end
  return axes
end

--- a:choice(name, choices[, default]) -> a text that is a key of choices, and its value there.
function Attributes:choice(name, choices, default)
  local text = self:text(name, default)
  if choices[text] == nil then
    local names = {}
    for key in pairs(choices) do names[#names + 1] = key end
    table.sort(names)
    self:fail(name, table.concat(names, ", "))
  end
  return text, choices[text]
end

local dtypes = {
  float32 = "float32", float64 = "float64", float16 = "float16", bfloat16 = "bfloat16", uint8 = "uint8", int8 = "int8",
  int32 = "int32", int64 = "int64", bool = "bool",
}
local flags = {[0] = "float32", "float64", "float16", "uint8", "int32", "int8", "int64", "bool", [12] = "bfloat16"}

--- a:dtype(name[, default]) -> the name of a dtype, which may also be given as MXNet's number of it.
Attributes.dtype = reader("a dtype", function(text) return dtypes[text] or flags[tonumber(text) or -1] end)

return {new = new}
