-- A model of core.trace and core.run whose tensors hold one number each, so that thousands of guards can be tested. See
-- stdlib/hybrid/trace.lua (backend).
local model = {}

local data = setmetatable({}, {__mode = "k"})
local serial = 0
local active
local meta_of = newproxy(true)
local M = getmetatable(meta_of)
local methods = {}
M.__index = methods

local function box(value)
  local b = newproxy(meta_of)
  serial = serial + 1
  data[b] = {value = value, serial = serial}
  return b
end

function model.tensor(number) return box{number = number} end
function model.is_tensor(x) return type(x) == "userdata" and data[x] ~= nil end

local function read(x)
  if type(x) == "number" then return {number = x, weak = true} end
  local d = data[x]
  if not active or d.value.node then
    if d.value.node and d.value.trace ~= active then error("a traced tensor used after its trace", 0) end
    return d.value
  end
  if d.serial < active.mark then
    local t = active
    t.inputs[#t.inputs + 1] = {box = x, kind = "box", saved = d.value}
    t.input_index[x] = #t.inputs
    d.value = {node = "i" .. #t.inputs, trace = t}
    t.saved[#t.saved + 1] = x
  end
  return d.value
end

local function apply(name, f, x, y)
  local a, b = read(x), read(y)
  if not active then return {number = f(a.number, b.number)} end
  local t = active
  local function operand(v)
    if v.node then return v.node end
    t.constants[#t.constants + 1] = v.number
    return "c" .. #t.constants
  end
  t.nodes[#t.nodes + 1] = {name = name, f = f, a = operand(a), b = operand(b), text = name .. " " .. (a.node or a.number) .. " " .. (b.node or b.number)}
  return {node = "n" .. #t.nodes, trace = t}
end

local ops = {
  add = function(a, b) return (a + b) % 8191 end, mul = function(a, b) return (a * b) % 8191 end,
  sub = function(a, b) return (a - b) % 8191 end,
}
for name, f in pairs(ops) do
  M["__" .. name] = function(x, y) return box(apply(name, f, x, y)) end
  methods[name] = M["__" .. name]
  methods[name .. "_"] = function(x, y)
    local value = apply(name, f, x, y)
    data[x].value = value
    if active and active.input_index[x] then active.inputs[active.input_index[x]].written = true end
    return x
  end
end
function methods.item(x)
  if active then error("item: cannot read a value while tracing", 0) end
  return data[x].value.number
end
model.value = methods.item

local Trace = {}
Trace.__index = Trace
local Program = {}
Program.__index = Program

function Trace:captured() return self.inputs end
function Trace:input_of(x) return self.input_index[x] end
function Trace:output(x)
  local value = data[x].value
  self.outputs[#self.outputs + 1] = value
  return #self.outputs
end
function Trace:finish()
  local writes = {}
  for i, input in ipairs(self.inputs) do if input.written then writes[#writes + 1] = {i, self.finals[i]} end end
  return setmetatable({trace = self, writes = writes}, Program)
end
function Program.info() return 1, 0 end
function Trace:text()
  local parts = {}
  for i, n in ipairs(self.nodes) do parts[i] = n.text end
  for _, o in ipairs(self.outputs) do parts[#parts + 1] = "out " .. tostring(o.node or o.number) end
  for i, input in ipairs(self.inputs) do
    if input.written then parts[#parts + 1] = "write " .. i .. " " .. tostring(self.finals[i].node or self.finals[i].number) end
  end
  return table.concat(parts, "\n")
end

local backend = {is_tensor = model.is_tensor}
model.backend = backend
function backend.serial(x) return data[x] and data[x].serial end
function backend.next_serial() return serial + 1 end
-- A list in place of tensors, as a table of its own, or nil.
local function list_of(...)
  local x = (...)
  return select("#", ...) == 1 and type(x) == "table" and not model.is_tensor(x) and x or nil
end

function backend.distinct(...)
  if list_of(...) then return backend.distinct(unpack(list_of(...))) end
  local seen = {}
  for i = 1, select("#", ...) do
    local x = (select(i, ...))
    if seen[x] then return false end
    seen[x] = true
  end
  return true
end

local function finish(t, before, ok, ...)
  active = before
  t.finals = {}
  for i, input in ipairs(t.inputs) do
    t.finals[i] = data[input.box].value
    data[input.box].value = input.saved
  end
  if not ok then return false, (...) end
  return true, t, ...
end

function backend.trace(f, _, ...)
  local before = active
  local t = setmetatable({inputs = {}, input_index = {}, saved = {}, nodes = {}, constants = {}, outputs = {}, mark = serial + 1}, Trace)
  active = t
  return finish(t, before, pcall(f, ...))
end

-- The functions of which ops are made.
model.functions = {}
for _, f in pairs(methods) do model.functions[#model.functions + 1] = f end

model.runs = 0
function backend.run(program, ...)
  if list_of(...) then
    local results = {backend.run(program, unpack(list_of(...)))}
    if results[1] == nil and results[2] then return nil, results[2] end
    return results
  end
  local t = program.trace
  local values, seen = {}, {}
  for i = 1, #t.inputs do
    local x = (select(i, ...))
    if not model.is_tensor(x) then return nil, "input " .. i .. " is no tensor" end
    if seen[x] then return nil, "inputs share a tensor" end
    seen[x] = true
    values["i" .. i] = data[x].value.number
  end
  if select("#", ...) ~= #t.inputs then error("wrong number of inputs") end
  for i, c in ipairs(t.constants) do values["c" .. i] = c end
  for i, node in ipairs(t.nodes) do values["n" .. i] = node.f(values[node.a], values[node.b]) end
  local function result(v) return v.node and values[v.node] or v.number end
  local written, outputs = {}, {}
  for i, w in ipairs(program.writes) do written[i] = {number = result(w[2])} end
  for i, o in ipairs(t.outputs) do outputs[i] = model.tensor(result(o)) end
  for i, w in ipairs(program.writes) do data[(select(w[1], ...))].value = written[i] end
  model.runs = model.runs + 1
  return unpack(outputs, 1, #outputs)
end

return model
