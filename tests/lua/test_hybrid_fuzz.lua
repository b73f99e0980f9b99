-- Random models whose fields, upvalues, tables, classes and globals change between calls: the cached call against plain
-- Lua. The seed is fixed. A failure prints the source of the model and the calls before it.
local t = require "tests.support"
local pg = require "perigee"
local testing = pg.testing
local model = require "tests.hybrid_model"

-- Ops of the model run natively, like those of tensors.
for _, f in ipairs(model.functions) do testing.runs_natively(f) end

-- The tensors of the models: those of tests/hybrid_model.lua, or real ones.
local kinds = {
  model = {backend = model.backend, tensor = model.tensor, is_tensor = model.is_tensor, value = model.value},
  real = {
    backend = testing.graph_backend(), is_tensor = testing.is_tensor,
    tensor = function(number) return pg.tensor(number, {dtype = "float64"}) end,
    value = function(x)
      local v = x:item()
      return v ~= v and "nan" or v
    end,
  },
}
local kind

local random, pick, restart = require "tests.choices"(1)

local scalars = {"self.s1", "self.s2", "self.missing", "self.cfg.a", "self.cfg.b", "Net.shared", "self.inherited", "up_s", "up_tab.a", "G_s", "G_none", "self.child.k"}
local tensors = {"self.w1", "self.w2", "self.child.w", "up_t", "up_tab.w", "self.ws[1]", "self.ws[2]", "G_t"}
local functions = {"self.f", "up_f", "self.child.f", "G_f"}

local statements = {
  function() return "y = y + " .. pick(tensors) end,
  function() return "y = y * (" .. pick(scalars) .. " or 3)" end,
  function() return "if " .. pick(scalars) .. " == " .. random(3) .. " then y = y + " .. random(9) .. " else y = y * " .. pick(tensors) .. " end" end,
  function() return "if self.flag then y = y + 3 end" end,
  function() return "y = " .. pick(functions) .. "(y)" end,
  function() return "y = self:helper(y)" end,
  function() return "y = self:deep(y)" end,
  function() return "self.s1 = (self.s1 or 0) + 1" end,
  function() return "self.phase = ((self.phase or 0) + 1) % 3; if self.phase == 0 then y = y + 1 end" end,
  function() return "self.last = y" end,
  function() return "if self.last then y = y + self.last end" end,
  function() return "y = y + (self.prev or y); self.prev = y" end,
  function() return pick(tensors) .. ":add_(" .. random(4) .. ")" end,
  function() return pick(tensors) .. ":mul_(y)" end,
  function() return "up_s = (up_s or 0) + 1" end,
  function() return "up_t = y" end,
  function() return "if " .. pick(tensors) .. " == " .. pick(tensors) .. " then y = y + 100 end" end,
  function() return "if x == " .. pick(tensors) .. " then y = y * 7 end" end,
  function() return "for i = 1, #self.list do y = self.list[i](y) end" end,
  function() return "for _, f in ipairs(self.list) do y = f(y) end" end,
  function() return "for _, w in ipairs(self.ws) do y = y + w end" end,
  function() return "local n = 0; for k, v in pairs(self.cfg) do n = n + (tonumber(v) or 0) end; y = y + n" end,
  function() return "self.state = {h = y, n = " .. random(3) .. ", {x}}" end,
  function() return "if self.state then y = y + self.state.h * self.state.n end" end,
  function() return "Net.shared = (Net.shared or 0) + 1" end,
  function() return "y = y * (rawget(self, 'opt') or 2)" end,
  function() return "G_s = (G_s or 1) + 1" end,
  function() return "G_t2 = y" end,
  function() return "if G_t2 then y = y + G_t2 end" end,
  function() return "if not self.ready then self.ready = true; self.bias = y * 0 + 5 end; y = y + self.bias" end,
  function() return "self.missing = nil" end,
  function() return "self.cfg = {a = self.cfg.a, b = " .. random(3) .. "}" end,
  function() return "self.cfg.c = (self.cfg.c or 0) + 1" end,
  function() return "self.w2 = self.w1" end,
  function() return "self.w1, self.w2 = self.w2, self.w1" end,
  function() return "local function cell(z) return z * (self.s2 or 2) end; y = cell(y)" end,
  function() return "y = y + (s or 1)" end,
  function() return "self.child.k = (self.child.k or 0) + 2" end,
  function() return "if type(self.s2) == 'string' then y = y + #self.s2 end" end,
  function() return "y = self.object(y)" end,
  function() return "y = y + self.object.k" end,
  function() return "y = y * (self.proxy.scale or 1)" end,
  function() return "y = y + (self.proxy.other or self.w1)" end,
  function() return "local k = self.key; y = y + (self[k] or 1)" end,
  function() return "self[self.key .. 'x'] = " .. random(3) end,
  function() return "table.insert(self.ws, y)" end,
  function() return "if #self.ws > 2 then table.remove(self.ws) end" end,
  function() return "if next(self.cfg) then y = y + 1 end" end,
  function() return "y = y + (_G_[self.key] or 2)" end,
  function() return "y = y + bump()" end,
  function() return "y = y * peek()" end,
  function() return "y = self.by[self.w1] and y + 1 or y * 2" end,
  function() return "self.by[self.w1] = true" end,
  function() return "local a, b = unpack(self.ws); y = y + a * (b or 1)" end,
  function() return "self.f = up_f" end,
  function() return "self.history = {y, self.history and self.history[1]}" end,
  function() return "y = y + select('#', unpack(self.list))" end,
  function() return "if rawequal(self.w1, up_t) then y = y + 50 end" end,
  function() return "pcall(function() self.s1 = (self.s1 or 0) + 1; error('x') end)" end,
  function() return "if self.a2 ~= nil then y = y + self.a2 end; self.a2 = self.w2" end,
}

local results = {
  "return y", "return y, x", "return {y, k = x}, s", "return y, self.w1, {n = self.s1}", "return y, {self.last or y, {y}}", "return self.w2, y",
}

local mutations = {
  "self.s1 = r", "self.s2 = r", "self.s2 = 'text' .. r", "self.s2 = nil", "self.missing = r", "self.missing = nil", "self.flag = r > 2", "self.w1 = T(r)",
  "self.w2 = T(r)", "self.w2 = self.w1", "self.child.w = self.w1", "up_t = self.w2", "up_t = T(r)", "self.w1:add_(r)", "self.child = {w = T(r), k = r, f = up_f}",
  "self.child.k = r", "self.cfg.a = r", "self.cfg.d = r", "self.cfg.d = nil", "self.cfg = {a = r, b = 1}", "self.list[#self.list + 1] = function(x) return x + r end",
  "self.list[#self.list] = nil", "self.list = {function(x) return x * r end}", "self.ws[1] = T(r)", "self.ws[3] = T(r)", "self.ws[3] = nil", "self.ws = {T(1), T(r)}",
  "up_s = r", "up_tab.a = r", "up_tab = {a = r, w = T(r)}", "up_tab.w = self.w1", "up_f = function(x) return x + r end", "up_f = make(r)", "self.f = make(2)",
  "self.f = function(x) return x * self.w1 end", "G_s = r", "G_none = r", "G_none = nil", "G_t = T(r)", "G_f = make(r)", "Net.shared = r", "Net.shared = nil",
  "Base.inherited = r", "Net.inherited = r", "Net.inherited = nil", "self.inherited = r", "self.inherited = nil", "function Net:helper(x) return x + r end",
  "self.helper = function(_, x) return x * r end", "self.helper = nil", "function Base:deep(x) return x * r + (self.s1 or 0) end", "self.opt = r", "self.opt = nil",
  "rawset(self, 'shared', r)", "self.shared = nil", "self.last = nil", "self.ready = nil", "self.steps = (self.steps or 0) + 1", "self.prev = T(r)", "self.phase = 0",
  "self.state = {h = T(r), n = 2}", "self.state = nil", "self.s1 = 0 / 0", "self.extra = {T(1)}",
  "self.object.k = r", "getmetatable(self.object).__call = function(o, x) return x + o.k * r end", "self.object = setmetatable({k = r}, getmetatable(self.object))",
  "hidden = r", "hidden_t = T(r)", "self.key = ({'s1', 's2', 'k3', 'opt'})[r]", "self.k3 = r", "_G_.s1 = r", "_G_.k3 = r", "shared_n = r",
  "self.by = {}", "self.by[self.w2] = true", "self.a2 = self.w1", "self.history = nil", "setmetatable(self.object, {__call = function(_, x) return x * r end})",
  "Net.__index = setmetatable({opt2 = r}, {__index = Net})",
}

local function source()
  local body = {}
  for i = 1, 2 + random(6) do body[i] = "  " .. pick(statements)() end
  local helper = {}
  for i = 1, random(2) do helper[i] = "  " .. pick(statements)() end
  return table.concat({
    "local T, r = ...",
    "local Base = {inherited = 2}; Base.__index = Base",
    "local Net = setmetatable({}, {__index = Base}); Net.__index = Net",
    "local function make(n) return function(x) return x * n end end",
    "local up_s, up_t, up_tab, up_f = 2, T(3), {a = 1, w = T(4)}, function(x) return x + 1 end",
    "G_s, G_t, G_f = 2, T(6), function(x) return x * 2 end",
    "local self = setmetatable({s1 = 1, s2 = 2, flag = false, w1 = T(2), w2 = T(3), cfg = {a = 1, b = 2},",
    "  list = {function(x) return x + 2 end, make(3)}, ws = {T(1), T(2)}, child = {w = T(5), k = 1, f = make(2)}, f = make(4)}, Net)",
    "local hidden, hidden_t, shared_n = 3, T(2), 1",
    "_G_ = {s1 = 4}",
    "local function bump() shared_n = shared_n + 1; if shared_n > 4 then shared_n = 1 end; return shared_n end",
    "local function peek() return shared_n end",
    "self.object = setmetatable({k = 2}, {__call = function(o, x) return x * o.k end})",
    "self.proxy = setmetatable({}, {__index = function(_, k) if k == 'scale' then return hidden end if k == 'other' then return hidden_t end end})",
    "self.key, self.by = 's1', {}",
    "function Base:deep(x) return x + (self.s2 == 2 and 1 or 2) end",
    "function Net:helper(x)", "  local y, s = x, nil", table.concat(helper, "\n"), "  return y end",
    "function Net:forward(x, s)", "  local y = x", table.concat(body, "\n"), "  " .. pick(results), "end",
    "return self, {", "  function(r) " .. table.concat(mutations, " end,\n  function(r) ") .. " end,", "},",
    "function() return {self, Net, Base, up_s, up_t, up_tab, G_s, G_t, G_t2, G_none, shared_n, _G_} end",
  }, "\n")
end

-- Returns values as text: tensors by number and by their first position, without functions.
local function show(value, seen, depth)
  if kind.is_tensor(value) then
    seen[value] = seen[value] or seen.n
    seen.n = seen.n + 1
    return "T" .. seen[value] .. ":" .. kind.value(value)
  elseif type(value) == "table" then
    if seen[value] or depth > 6 then return "seen" end
    seen[value] = true
    local keys, parts = {}, {}
    for k in pairs(value) do if not kind.is_tensor(k) then keys[#keys + 1] = tostring(k) end end
    table.sort(keys)
    local by = {}
    for k, v in pairs(value) do by[tostring(k)] = v end
    for _, k in ipairs(keys) do parts[#parts + 1] = k .. "=" .. show(by[k], seen, depth + 1) end
    return "{" .. table.concat(parts, ",") .. "}"
  elseif type(value) == "function" then return "f" end
  return tostring(value)
end

local function instance(text)
  local env = setmetatable({}, {__index = _G})
  local chunk = assert(loadstring(text, "=model"))
  setfenv(chunk, env)
  local self, changes, dump = chunk(kind.tensor)
  return {self = self, changes = changes, dump = dump}
end

local function pack(...) return {n = select("#", ...), ...} end

local function run_model(calls)
  local text = source()
  local eager, hybrid = instance(text), instance(text)
  local c = pg.jit(function(...) return hybrid.self:forward(...) end)
  local log = {}
  local before = {}
  for call = 1, calls do
    for _ = 1, math.max(0, random(6) - 3) do
      local m, r = random(#mutations), random(4)
      if random(3) == 1 then m = before.m or m end
      before.m = m
      log[#log + 1] = mutations[m] .. "  -- r = " .. r
      local a, b = pcall(eager.changes[m], r), pcall(hybrid.changes[m], r)
      if a ~= b then return text, log, "a mutation failed on one side only" end
    end
    local which, s = random(6), ({nil, 1, 2, 1})[random(4)]
    local number_of_x = random(50)
    local function argument(side)
      if which == 1 then return side.self.w1 end
      if which == 2 and side.x then return side.x end
      side.x = kind.tensor(number_of_x)
      return side.x
    end
    log[#log + 1] = "call " .. call .. " kind " .. which .. " s " .. tostring(s)
    local x, hx = argument(eager), argument(hybrid)
    local before_eager = show(eager.dump(), {n = 1}, 0)
    local a = pack(pcall(eager.self.forward, eager.self, x, s))
    local b = pack(pcall(c, hx, s))
    if a[1] ~= b[1] then return text, log, "error: " .. tostring(a[2]) .. " against " .. tostring(b[2]) end
    if not a[1] then return nil, nil, tostring(a[2]) end  -- only an eager failure keeps its assignments
    local want = show({pack(select(2, unpack(a, 1, a.n))), eager.dump(), eager.x}, {n = 1}, 0)
    local got = show({pack(select(2, unpack(b, 1, b.n))), hybrid.dump(), hybrid.x}, {n = 1}, 0)
    if want ~= got then
      return text, log, "want " .. want .. "\ngot  " .. got .. "\nbefore " .. before_eager .. "\nlast retrace: " .. tostring(c:cache_info().last_retrace)
    end
  end
  return nil, c
end

local function fuzz(name, models)
  kind = kinds[name]
  local backend, warned, patience = testing.graph_backend(kind.backend), testing.on_warning(function() end), testing.patience(1000)
  local function restore()
    testing.graph_backend(backend)
    testing.on_warning(warned)
    testing.patience(patience)
  end
  restart(12345)
  models = tonumber(os.getenv("PERIGEE_FUZZ")) or (t.mode == "eager" and models or math.floor(models / 8))
  local wrong, traces, hits = 0, 0, 0
  local failure
  for i = 1, models do
    local ok, text, log, problem = pcall(run_model, 30)
    if not ok then
      restore()
      error("model " .. i .. ": " .. tostring(text))
    end
    if text then
      wrong = wrong + 1
      failure = failure or ("model " .. i .. "\n" .. text .. "\n" .. table.concat(log, "\n") .. "\n" .. problem)
    elseif log then
      local info = log:cache_info()
      traces, hits = traces + info.traces, hits + info.hits
    end
  end
  restore()
  if os.getenv("PERIGEE_FUZZ") then print(models .. " models, " .. wrong .. " wrong, " .. traces .. " traces, " .. hits .. " hits") end
  if failure then error(wrong .. " wrong; " .. failure) end
  t.check(hits > models * 5, "only " .. hits .. " hits")
end

t.test("random models on a model of tensors: 0 wrong results", function() fuzz("model", 400) end)
t.test("random models on tensors: 0 wrong results", function() fuzz("real", 80) end)
