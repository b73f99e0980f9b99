-- The table of names of other libraries (stdlib/support/hints.lua), and the suggestions of the nearest name.
local t = require "tests.support"
local mistakes = require "tests.mistakes"
local pg = require "perigee"

t.skip_in("hybrid", "names do not depend on the mode")
t.skip_in("guard", "names do not depend on the mode")

local lines = pg.testing.hints()

local function each(kinds, f)
  for kind in kinds:gmatch("%S+") do
    local names = {}
    for name in pairs(lines[kind]) do names[#names + 1] = name end
    table.sort(names)
    for _, name in ipairs(names) do f(name, (lines[kind][name][1]:gsub("NAME", name)), kind) end
  end
end

local function names_of()
  local names = mistakes.names()
  names.a, names.path, names.kernel = pg.ones(2, 3, 4), t.tmp("hint.safetensors"), pg.ones(4, 2, 3, 3)
  names.Net = pg.nn.HybridBlock:extend("Net")
  names.net:save_parameters(names.path)
  names.net = names.fresh()
  names.net:initialize()
  names.trainer = pg.optim.Trainer(names.net, "sgd", {learning_rate = 0.1})
  pg.record(function() return names.net(names.x):sum() end):backward()
  names.metric:update(names.labels, names.scores)
  names.print = function(...) return select("#", ...) end
  return names
end

t.test("the code of every hint runs", function()
  t.skip_in("gcstress", "hundreds of short scripts")
  local wrong = {}
  each("pg tensor nn loss optim lr_scheduler data init initializer optimizer metric activation dtype device block Trainer DataLoader " ..
       "Dataset Metric vision transforms models utils", function(name, text, kind)
    local code = text:match("^(.-)%s*%-%-") or text
    if code == "" then return end
    local names = names_of()
    if kind == "Trainer" and code:find("load_states") then names.trainer:save_states(names.path) end
    local f, e = loadstring("local _ = " .. code, "=hint")
    if not f then f, e = loadstring(code, "=hint") end
    local ok = false
    if f then ok, e = t.pcall(setfenv(f, names)) end
    if not ok then wrong[#wrong + 1] = kind .. " " .. name .. ": " .. code .. "\n  " .. tostring(e) end
  end)
  t.equal(table.concat(wrong, "\n"), "")
end)

t.test("no hint is for a name that exists", function()
  local found, names = {}, names_of()
  local function check(kind, has)
    each(kind, function(name) if has(name) then found[#found + 1] = kind .. "." .. name end end)
  end
  local function field_of(object) return function(name) return (pcall(function() return assert(object[name] ~= nil) end)) end end
  for _, module in ipairs{"nn", "loss", "optim", "data", "init", "metric", "utils"} do check(module, field_of(pg[module])) end
  check("lr_scheduler", field_of(pg.optim.lr_scheduler))
  check("vision", field_of(pg.data.vision))
  check("transforms", field_of(pg.data.vision.transforms))
  check("models", field_of(pg.models))
  check("pg", field_of(pg))
  check("tensor", field_of(names.x))
  check("block", field_of(names.net))
  check("Trainer", field_of(names.trainer))
  check("DataLoader", field_of(names.loader))
  check("Dataset", field_of(names.ds))
  check("Metric", field_of(names.metric))
  t.equal(table.concat(found, " "), "")
end)

t.test("the nearest name does not depend on the order of a table", function()
  local suggest = pg.testing.suggest
  local function same(name, expected, ...)
    local list = {...}
    for _ = 1, #list do
      t.equal(suggest(name, list), expected)
      table.insert(list, table.remove(list, 1))
    end
  end
  same("sun", "sum", "sin", "sum", "run")       -- equal edits: the longest common prefix
  same("conv2d", "Conv2D", "Conv1D", "Conv2D", "Conv3D")  -- case does not count as an edit
  same("ab", "abc", "abd", "abc", "abx")               -- then the alphabet
  same("initalize", "initialize", "initialize", "finalize")
  same("frobnicate", nil, "relu", "frob", "fabricated")  -- no long prefix, no more than two edits
  same("fo", nil, "bar", "far", "x")
  same("x", nil, "t", "y")                             -- a name of one letter is near to nothing
  same("hidde", nil, "_hidden")                        -- names of the library's own
end)
