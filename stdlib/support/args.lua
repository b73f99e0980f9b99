-- Reads and checks the arguments of constructors: values by position, then an optional table of options.
local core = ...
local no_list = core.require("support.no_list")
local args = {}

-- Markers in a specification: an option without a default, and a required option.
args.none = {}
args.required = {}

local floor, huge = math.floor, math.huge

local function is_plain(v)
  if type(v) ~= "table" then return false end
  return getmetatable(v) == nil
end

local function is_options(v)
  if not is_plain(v) then return false end
  local first = next(v)
  if first == nil then return true end
  for key in pairs(v) do if type(key) ~= "string" then return false end end
  return true
end

local function defaults(spec)
  local values = {}
  for name, value in pairs(spec) do
    if value ~= args.none and value ~= args.required then values[name] = value end
  end
  return values
end

--- args.called_with_dot(class, …) raises if a class was called with a colon, as in nn:Dense(10).
function args.called_with_dot(class, first)
  local meta = type(first) == "table" and getmetatable(first)
  local label = type(meta) == "table" and rawget(meta, "_label")
  if label then core.fail(class, "bad argument #1 (expected no module, got %s; write %s.%s(…) with a dot)", label, label, class) end
end

-- Raises for MaxPool2D{2, strides = 2}: values and options in one table.
local function check_mixed(op, value)
  if not is_plain(value) or value[1] == nil then return end
  for key in pairs(value) do
    if type(key) == "string" then
      core.fail(op, "values and options in one table (expected values in parentheses and a table of options; write %s(%s, {%s = …}))",
                op, core.is_tensor(value[1]) and "x" or tostring(value[1]), key)
    end
  end
end

--- args.read(op, names, spec, …) -> a table with every option of spec. `names` lists the options in the order of their
--- positions. spec maps each option to its default, args.none or args.required. A last table with string keys holds
--- options by name.
function args.read(op, names, spec, ...)
  local n = select("#", ...)
  local values = defaults(spec)
  local last = n > 0 and (select(n, ...)) or nil
  local options
  if n == 1 then check_mixed(op, last) end
  if is_options(last) then options, n = last, n - 1 end
  if n > #names then core.fail(op, "too many arguments (expected at most %d, got %d)", #names, n) end
  for i = 1, n do
    local value = (select(i, ...))
    if value ~= nil then values[names[i]] = value end
  end
  if options then
    core.check_options(op, options, spec)
    for name, value in pairs(options) do values[name] = value end
  end
  for i, name in ipairs(names) do
    if spec[name] == args.required and values[name] == nil then
      core.fail(op, "bad argument '%s' (expected a value, got %s)", name, i <= n and "nil; a misspelled variable or field is nil"
                or ("nothing; pass it at place %d or as {%s = …}"):format(i, name))
    end
  end
  for name, default in pairs(spec) do
    if default == args.required and values[name] == nil then
      core.fail(op, "bad argument '%s' (expected a value, got nothing; write {%s = …})", name, name)
    end
  end
  return values
end

--- args.options(op, opts, spec) -> a table with every option of spec; opts may be nil.
function args.options(op, opts, spec)
  if type(opts) == "string" and spec.device then
    local name = opts:find("^%a+%d+$") and "dtype" or "device"
    core.fail(op, "bad argument 'options' (expected a table of options, got \"%s\"; write {%s = \"%s\"})", opts, name, opts)
  end
  if opts ~= nil and type(opts) ~= "table" then core.arg_error(op, "options", "a table of options", opts) end
  return args.read(op, {}, spec, opts or {})
end

--- args.has(x, ...) -> whether x is an object with these methods.
function args.has(x, ...)
  if type(x) ~= "table" and not no_list.is(x) then return false end
  for _, method in ipairs{...} do if not x[method] then return false end end
  return true
end

--- args.self(op, self, name) raises if a method was called with a dot, so that self is no object whose class has the
--- method op.
function args.self(op, self, name)
  self = no_list.object(self)
  local is_class = type(self) == "table" and rawget(self, "__index") ~= nil
  local meta = not is_class and type(self) == "table" and getmetatable(self)
  if type(meta) == "table" and meta[op] ~= nil then return end
  if is_class then
    local class = core.describe(self):match("^class (.*)$") or "the class"
    core.fail(op, "bad argument 'self' (expected an object, got class %s; make one first: local %s = %s(…))", class, name, class)
  end
  core.fail(op, "bad argument 'self' (expected the object before the dot, got %s; write %s:%s(…) with a colon)", core.describe(self), name, op)
end

--- args.tensor_self(op, x) raises if a method of tensors was called with a dot, so that x is no tensor.
function args.tensor_self(op, x)
  if core.is_tensor(x) then return end
  core.fail(op, "bad argument 'x' (expected a tensor, got %s; write x:%s(…) with a colon to pass x)",
            x == nil and "nothing" or core.describe(x), op)
end

--- args.layers(op, value) -> value, a number of layers that are made one by one.
function args.layers(op, value)
  local count = args.count(op, "num_layers", value, 1)
  if count > 10000 then core.arg_error(op, "num_layers", "a whole number of at most 10000", value) end
  return count
end

--- args.count(op, name, value[, least]) -> value, a whole number of at least `least` (default 0).
function args.count(op, name, value, least)
  least = least or 0
  if type(value) ~= "number" or value ~= floor(value) or value < least or value == huge then
    if core.is_tensor(value) then
      core.fail(op, "bad argument '%s' (expected a whole number >= %d, got %s; make the object first, then call it with the tensor)",
                name, least, core.describe(value))
    end
    if is_plain(value) and type(value[1]) == "number" and value[2] == nil then
      core.fail(op, "bad argument '%s' (expected a whole number >= %d, got table; write %s(%g) with parentheses)", name, least, op, value[1])
    end
    core.arg_error(op, name, "a whole number >= " .. least, value)
  end
  if value > 2 ^ 53 then core.arg_error(op, name, "a whole number of at most 2^53", value) end
  return value
end

--- args.number(op, name, value[, low[, high]]) -> value, a finite number in low..high.
function args.number(op, name, value, low, high)
  local ok = type(value) == "number" and value == value and value > -huge and value < huge
  if not ok or (low and value < low) or (high and value > high) then
    local range = ""
    if low and high then range = string.format(" in %g..%g", low, high)
    elseif low then range = string.format(" >= %g", low) end
    core.arg_error(op, name, "a number" .. range, value)
  end
  return value
end

--- args.boolean(op, name, value) -> value, a boolean.
function args.boolean(op, name, value)
  if type(value) ~= "boolean" then core.arg_error(op, name, "a boolean", value) end
  return value
end

--- args.string(op, name, value) -> value, a string.
function args.string(op, name, value)
  if type(value) ~= "string" then core.arg_error(op, name, "a string", value) end
  return value
end

--- args.tensor(op, name, value) -> value, a tensor.
function args.tensor(op, name, value)
  if not core.is_tensor(value) then core.arg_error(op, name, "a tensor", value) end
  return value
end

--- args.is_callable(value) -> whether value is a function or a table that can be called.
function args.is_callable(value)
  local meta = type(value) == "table" and getmetatable(value)
  return type(value) == "function" or type(meta) == "table" and meta.__call ~= nil
end

--- args.callable(op, name, value) -> value, a function or a table that can be called.
function args.callable(op, name, value)
  if not args.is_callable(value) then core.arg_error(op, name, "a function", value) end
  return value
end

--- args.place(f) -> " at file:line" of a function, "" of a table that can be called.
function args.place(f) return type(f) == "function" and " at " .. core.introspect.where(f) or "" end

--- args.returned(op, f, i, expected, some, …) -> …, what the script's function f returned for item i. Raises if that is
--- nothing, and with `some` if its first value is nil.
function args.returned(op, f, i, expected, some, ...)
  if select("#", ...) == 0 or some and (select(1, ...)) == nil then
    local place = args.place(f)
    core.fail(op, "the function%s returned nothing at item %d (expected %s; end it with return …)", place, i, expected)
  end
  return ...
end

--- args.tuple(op, name, value, n, least) -> a list of n whole numbers from a number or a list.
function args.tuple(op, name, value, n, least)
  local list = {}
  if type(value) == "table" then
    if #value ~= n then core.arg_error(op, name, "a whole number or a list of " .. n, value) end
    for i = 1, n do list[i] = args.count(op, name, value[i], least) end
  else
    for i = 1, n do list[i] = args.count(op, name, value, least) end
  end
  return list
end

--- args.choice(op, name, value, choices) -> value, one of the strings in the list choices.
function args.choice(op, name, value, choices)
  for _, choice in ipairs(choices) do if value == choice then return value end end
  core.arg_error(op, name, '"' .. table.concat(choices, '", "') .. '"', value)
end

--- args.plain(v) -> whether v is a table without a metatable.
args.plain = is_plain

return args
