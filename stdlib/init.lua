-- The table pg of the library. Modules load when first used; ops come from the registry.
local core = ...

--- core.fail(op, format, …) raises `file:line: op: text` with the position of the script.
function core.fail(op, format, ...)
  core.raise(op, select("#", ...) > 0 and format:format(...) or format)
end

-- core.unlogged(f, …) -> what f(…) returns. In a trace its reads are not guarded, and its writes are neither undone nor
-- repeated.
function core.unlogged(f, ...) return f(...) end

-- core.hint_of(kind, name[, op, known]) -> what to write instead of a name that does not exist, or nil.
function core.hint_of(...) return core.require("support.hint").find(...) end
core.set_hints(core.hint_of, function(...) return core.require("support.lua_errors").explain(...) end)

-- Graphs are off (> 0) while a function is traced and inside pg.debug.
core.graphs = {off = 0}
core.set_graphs_swap(function(off, retracing, exporting)  -- each job has its own
  local graphs = core.graphs
  local before, was_retracing, was_exporting = graphs.off, graphs.retracing, graphs.exporting
  graphs.off, graphs.retracing, graphs.exporting = off, retracing or nil, exporting or nil
  return before, was_retracing, was_exporting
end)
core.require("support.changes")

--- core.print_warning(text[, placed]) logs a warning, with the script's position unless it is placed; core.warn calls what
--- pg.testing.on_warning has put in its place. place: the position that the warning is about.
core.tell_warning = core.print_warning
function core.warn(text, place) core.tell_warning(place and place .. ": " .. text or text, place ~= nil) end

local ops = core.ops
local pg = {}
core.pg = pg

local modules = {
  nn = "nn", loss = "loss", optim = "optim", init = "initializer", data = "data", metric = "metric", utils = "utils",
  tree = "tree", autograd = "autograd", linalg = "linalg", fft = "fft",
  cuda = "cuda", models = "models",
}

-- The module that holds each function of pg.
local owners = {}
local function own(module, names) for name in names:gmatch("%S+") do owners[name] = module end end
own("param", "param constant")
own("autograd", "record pause no_grad train_mode predict_mode is_recording is_training value_and_grad vjp jvp")
own("checkpoint", "checkpoint")
own("runtime", "scope keep memory set_num_threads get_num_threads devices instruction_set synchronize warm_up manual_seed Generator ops print live is_tensor type")
own("help", "help")
own("hybrid", "jit debug live")
own("graph", "graph")
own("files", "save load")
own("profile", "profile trace")
own("symbol", "symbol")
own("control", "cond while_loop foreach loop")
own("runtime.job", "job yield progress")
own("nn.rnn.functional", "rnn lstm gru")

local function lookup(key)
  if modules[key] then return core.require(modules[key]) end
  if key == "grad" then return core.require("autograd").functional_grad end
  if owners[key] then return core.require(owners[key])[key] end
  if type(key) == "string" and key:sub(1, 1) ~= "_" then return ops[key] end  -- hidden ops do not check their arguments
end

pg.version = core.version
if not core.sandboxed then modules.testing = "testing" end

-- Methods and fields of tensors: the name of the module that adds each, in place of the function until it loads.
local function add_late(module, kind, names) for name in names:gmatch("%S+") do core[kind][name] = module end end
add_late("tensor", "tensor_methods", "iter tap lstm gru rnn")
add_late("tensor", "tensor_getters", "T mT")
add_late("autograd", "tensor_methods", "backward")
add_late("param", "tensor_methods", "set_shape set_data initialize zero_grad")
for _, kind in ipairs{"tensor_getters", "tensor_setters"} do
  add_late("param", kind, "grad_req init lr_mult wd_mult differentiable")
end

return setmetatable(pg, {
  __metatable = core.sandboxed and false,  -- the fields below lead to functions that do not check their arguments
  __fields = {ops, modules, owners, {grad = true}},  -- for completion at the prompt
  __tostring = function(self) return core.require("help").columns(self) end,
  __index = function(self, key)
    local value = lookup(key)
    if value == nil then
      local text = core.require("support.namespace").hint("pg", key, self)
      core.fail("pg", "unknown field '%s'%s", tostring(key), text ~= "" and text or " (pg.ops() lists the ops, pg.help() says more)")
    end
    rawset(self, key, value)
    return value
  end,
})
