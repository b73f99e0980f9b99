-- Hints for the messages of Lua itself, such as "attempt to compare number with userdata", which cannot say what to
-- write. The program and the prompt add them to errors that nobody caught.
local core = ...
local hints = core.require("support.hint")
local lua_errors = {}

local tensor_names = {}
core.make_ops()
for _, names in ipairs{core.tensor_methods, core.builtin_getters, core.tensor_getters} do
  for name in pairs(names) do tensor_names[name] = true end
end

-- How to read a field of a tensor that a script has called.
local fields = {
  shape = "x.shape is a list: write x.shape[1] or x:size(1)", dtype = "x.dtype is a string, without parentheses",
  device = "x.device is a string, without parentheses", grad = "x.grad is a tensor, without parentheses",
  requires_grad = "x.requires_grad is a boolean; x:attach_grad() sets it", name = "x.name is a string, without parentheses",
}

local to_number = "x:item() is the number of a one-element tensor"

local compare_numbers = "for a tensor write x:gt(0), x:lt(0), x:ge(0) or x:le(0); for an if, compare x:item(), or "
  .. "write pg.cond(x:gt(0), then_f, else_f) in what is hybridized"

-- Hints by pattern. A function gets the capture and the names of methods in sight. It returns a hint, nil where the next
-- rules may have one, or false.
local rules

local of_list = "take one as list[1]; where an op such as split made the list, write local a, b = unpack(x:split(…))"

local function near_method(name, methods)
  if methods["a list of tensors"] and tensor_names[name] then
    local subject = methods["a block object"] and "neither a list of tensors nor a block has an op '%s': %s"
      or "a list of tensors has no op '%s': %s"
    return subject:format(name, of_list)
  end
  local near = core.suggest(name, methods)
  if near then return "did you mean '" .. near .. "'?" end
  if methods["a block object"] and tensor_names[name] then
    return "a block has no op '" .. name .. "'; its forward takes self first: function(self, x)"
  end
  return false
end

local function arithmetic_on_table(_, methods)
  if methods["a list of tensors"] then return "a list of tensors is no tensor: " .. of_list end
  return "a table is no tensor: write pg.tensor(list); the forward of a block takes self first: function(self, x)"
end

local function missing_method(name, methods)
  for _, kind in ipairs{"block", "Trainer", "DataLoader", "Dataset", "Metric"} do
    if methods[kind] then
      local hint = hints.find(kind, name)
      if hint then return hint end
    end
  end
  return near_method(name, methods)
end

local function missing_global(name)
  local hint = hints.find("global", name)
  if hint then return hint end
  if core.ops[name] then return ("write pg.%s(x), or x:%s()"):format(name, name) end
  local near = core.suggest(name, _G)
  if near then return "did you mean '" .. near .. "'?" end
  return ("'%s' is nil: misspelled, or a local that is out of scope"):format(name)
end

local function math_of_tensor(name)
  local method = ({pow = "pow", fmod = "remainder", max = "max", min = "min"})[name] or name
  if tensor_names[method] and math[name] then return ("write x:%s(); %s"):format(method, to_number) end
  return to_number
end

rules = {
  {"attempt to compare number with userdata", compare_numbers},
  {"attempt to compare userdata with number", compare_numbers},
  {"attempt to compare %S+ with nil", "a variable or field on one side is nil: misspelled, or not set"},
  {"attempt to compare nil with %S+", "a variable or field on one side is nil: misspelled, or not set"},
  {"attempt to call method 'grad' %(a nil value%)$", fields.grad .. "; it is nil before x:attach_grad()"},
  {"attempt to call method '([%w_]+)' %(a nil value%)$", missing_method},
  {"attempt to call field '([%w_]+)' %(a nil value%)$", function(name, methods) return missing_method(name, methods) or nil end},
  {"attempt to call %S+ '([%w_]+)' %(a %w+ value%)$", function(name) return fields[name] end},
  {"attempt to call global '([%w_]+)' %(a nil value%)$", missing_global},
  {"attempt to index global '([%w_]+)' %(a nil value%)$", missing_global},
  {"attempt to index local 'self' %(a %w+ value%)$", "call the method with a colon: object:method(…)"},
  {"attempt to [%w ]+ field '%?' %(a nil value%)$", "a list has no such item; lists count from 1"},
  {"attempt to perform arithmetic on a nil value$", "a list has no such item, or a function returned nothing; lists count from 1"},
  {"attempt to call a nil value$", "a list or table has no such item; lists count from 1"},
  {"attempt to index a nil value$", "a list has no such item, or a function such as forward has no return; lists count from 1"},
  {"attempt to index local '([%w_]+)' %(a nil value%)$",
    function(name) return ("'%s' is nil: not set, or the result of a function without return"):format(name) end},
  {"attempt to perform arithmetic on %w+ '[%w_?]+' %(a table value%)$", arithmetic_on_table},
  {"attempt to perform arithmetic on a table value$", arithmetic_on_table},
  {"attempt to concatenate field 'shape' %(a table value%)$", 'write table.concat(x.shape, "x")'},
  {"attempt to [%w ]+ field 'grad' %(a nil value%)$", "x.grad is nil before x:attach_grad()"},
  {"attempt to index a number value$", "a number has no fields; x:item() is a plain number"},
  {"attempt to %w+ .- '([%w_]+)' %(a nil value%)$", function(name) return ("'%s' is nil: misspelled, or not set"):format(name) end},
  {"bad argument #%d+ to '(%w+)' %(number expected, got userdata%)", math_of_tensor},
  {"bad argument #%d+ to 'i?pairs' %(table expected, got userdata%)", "for the rows of a tensor write for row in x:iter() do … end; "
    .. "for batches for x, y in loader:iter() do … end; for items for i = 1, ds:len() do … ds:get(i) … end"},
  {"bad argument #%d+ to 'i?pairs' %(table expected, got function%)",
    "an iterator needs no pairs: for path, p in net:parameters() do … end"},
  {"attempt to call method 'step' %(a number value%)$", "trainer:step(n) counts the updates of the scheduler"},
  {"bad argument #%d+ to '%w+' %(table expected, got userdata%)", "x:totable() is a tensor's table"},
  {"bad argument #%d+ to '%w+' %(string expected, got userdata%)", "tostring(x) is a tensor's text"},
  {"invalid value %(userdata%) at index %d+ in table for 'concat'", "tostring(x) is a tensor's text; " .. to_number},
  {"'<name>' expected near '(%w+)'$", function(word)
    local instead = ({["repeat"] = "x:tile{2, 1}", ["and"] = "pg.logical_and(x, y)", ["or"] = "pg.logical_or(x, y)",
                      ["not"] = "pg.logical_not(x)"})[word]
    return ("%s is a keyword of Lua%s"):format(word, instead and ": write " .. instead or "")
  end},
  {"'=' expected near '([-+*/])'$", function(op) return ("Lua has no %s=: write x = x %s 1"):format(op, op) end},
  {"expected near '!'$", "write ~= for unequal, and not x for the opposite"},
  {"'%]' expected near ','$", "an element is x[{1, 2}]"},
  {"unexpected symbol near '([%]%[])'$", "a list is written {1, 2, 3}"},
  {"'then' expected near '='$", "== compares; = assigns"},
}

--- lua_errors.explain(message, methods) -> a hint for this message of Lua, or nil. methods is the set of the methods
--- and kinds (such as "block") of objects that the failing function could see. It has "a list of tensors" and "a block
--- object" where a variable holds such a value.
function lua_errors.explain(message, methods)
  local line = message:match("^[^\n]*"):gsub(" %(in %l.*", "")
  for _, rule in ipairs(rules) do
    local found, _, capture = line:find(rule[1])
    if found then
      local hint = rule[2]
      if type(hint) == "function" then hint = hint(capture, methods) end
      if hint ~= nil then return hint or nil end
    end
  end
end

return lua_errors
