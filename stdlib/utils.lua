-- pg.utils: helpers for training scripts.
local core = ...
local args = core.require("support.args")
local class = core.require("support.class")
local ops = core.ops
local utils = {}

local function tensor_list(op, name, value)
  if type(value) ~= "table" then core.arg_error(op, name, "a list of tensors", value) end
  for i, x in ipairs(value) do
    if not core.is_tensor(x) then core.arg_error(op, name .. "[" .. i .. "]", "a tensor", x) end
  end
  return value
end

-- Returns the square root of the sum of all squares, in float32 or float64, on the device of the first tensor.
local function global_norm(arrays)
  local sum
  for _, x in ipairs(arrays) do
    local square = ops.square(x:detach():to(x.dtype == "float64" and "float64" or "float32")):sum()
    sum = sum and sum + square:to(sum.device) or square
  end
  return ops.sqrt(sum or ops.zeros({}))
end

--- pg.utils.clip_global_norm(arrays, max_norm[, {check_isfinite = true}]) -> the norm of all tensors together, a 0-dim
--- tensor. All tensors are scaled in place by min(1, max_norm / (norm + 1e-8)). If the norm is not finite they do not
--- change, and it is an error unless check_isfinite is false. The check is an op, so it runs at every call in pg.jit
--- too.
--- Example: local x = pg.tensor{3, 4}
--- return pg.utils.clip_global_norm({x}, 1), x
function utils.clip_global_norm(arrays, max_norm, opts)
  tensor_list("clip_global_norm", "arrays", arrays)
  args.number("clip_global_norm", "max_norm", max_norm, 0)
  opts = args.options("clip_global_norm", opts, {check_isfinite = true})
  local norm = global_norm(arrays)
  local finite = ops.isfinite(norm)
  if opts.check_isfinite then
    ops["assert"](finite, "clip_global_norm: the norm of the tensors is not finite "
                  .. "(check_isfinite = false does not raise and leaves them unchanged)")
  end
  local scale = ops.where(finite, ops.minimum(max_norm / (norm + 1e-8), 1), 1)
  for _, x in ipairs(arrays) do
    local own = scale:to(x.device)
    if x.dtype == own.dtype then x:mul_(own) else x:copy_((x * own):to(x.dtype)) end
  end
  return norm
end

--- pg.utils.clip_value(arrays, max_value) limits each element of all tensors to -max_value..max_value, in place.
--- Example: local x = pg.tensor{3, -4, 0.5}
--- pg.utils.clip_value({x}, 1)
--- return x
function utils.clip_value(arrays, max_value)
  args.number("clip_value", "max_value", max_value, 0)
  for _, x in ipairs(tensor_list("clip_value", "arrays", arrays)) do x:clamp_(-max_value, max_value) end
end

--- pg.utils.split_data(data, num_slice[, {batch_axis = 1, even_split = true}]) -> a list of num_slice parts of data.
--- With even_split num_slice must divide the size; without it the last part also gets the remainder.
--- Example: return pg.utils.split_data(pg.range(1, 4), 2)
function utils.split_data(data, num_slice, opts)
  if not core.is_tensor(data) then core.arg_error("split_data", "data", "a tensor", data) end
  args.count("split_data", "num_slice", num_slice, 1)
  opts = args.options("split_data", opts, {batch_axis = 1, even_split = true})
  local size = data:size(opts.batch_axis)
  if size < num_slice then core.arg_error("split_data", "num_slice", "at most the size " .. size, num_slice) end
  if opts.even_split and size % num_slice ~= 0 then
    core.fail("split_data", "a size of %d cannot be split into %d equal parts (pass even_split = false)", size, num_slice)
  end
  local sizes, each = {}, math.floor(size / num_slice)
  for i = 1, num_slice do sizes[i] = each end
  sizes[num_slice] = size - each * (num_slice - 1)
  return data:split(sizes, opts.batch_axis)
end

--- pg.utils.plot(x[, kind]) -> the drawing of a tensor or a list of numbers as text for a terminal: "line" (also of the
--- rows of a matrix), "hist", "heat" or "image". Without kind 1 dim is a line, 2 dims are a heat map and 3 dims an image.
--- Example: return #pg.utils.plot({1, 0.5, 0.3, 0.2}) > 0
function utils.plot(x, kind)
  local ok, text = pcall(core.require("tools.plot").text, x, kind)
  if ok then return text end
  if type(text) ~= "string" or not text:find("^plot: ") then error(text, 0) end
  core.fail("plot", "%s", (text:gsub("^plot: ", "")))
end

local Progress = class.new("Progress")

--- pg.utils.progress(total[, label]) -> a progress display on standard error: a bar on a terminal, else a line per
--- tenth of the total. In a host with a print callback the lines go there.
--- Example: local bar = pg.utils.progress(100, "training")
function Progress:init(total, label)
  self._total = args.count("progress", "total", total)
  self._label = label and args.string("progress", "label", label) .. " " or ""
  self._done, self._shown = 0, -1
  self._terminal = not core.write_to_host("") and core.is_terminal(2)
end

local function draw_bar(self, text)
  local share = self._total > 0 and self._done / self._total or 1
  local filled = math.floor(24 * share)
  io.stderr:write(string.format("\r%s[%s%s] %d/%d %s\27[K", self._label, ("#"):rep(filled), (" "):rep(24 - filled), self._done,
                                self._total, text))
  if self._done >= self._total then io.stderr:write("\n") end
  io.stderr:flush()
end

local function draw_line(self, text)
  local tenth = self._total > 0 and math.floor(10 * self._done / self._total) or 10
  if tenth == self._shown then return end
  self._shown = tenth
  local line = string.format("%s%d/%d %s\n", self._label, self._done, self._total, text)
  if not core.write_to_host(line) and io then io.stderr:write(line) end
end

--- bar:step([text]) adds one step. text is shown after the bar.
function Progress:step(text) return self:update(self._done + 1, text) end

--- bar:update(done[, text]) sets the number of steps that are done. text is shown after the bar.
function Progress:update(done, text)
  self._done = math.min(args.count("update", "done", done), self._total)
  if self._terminal then draw_bar(self, text or "") else draw_line(self, text or "") end
end

function utils.progress(total, label) return Progress(total, label) end

--- pg.utils.seed_all(seed) seeds the random numbers of tensors and math.random.
function utils.seed_all(seed)
  args.count("seed_all", "seed", seed)
  core.pg.manual_seed(seed)
  math.randomseed(seed)
end

--- pg.utils.reload(module, path) -> module, after the script at the path has run again. The script gets as its argument a
--- table that reads from `module`, and stores in it what belongs to the module: `local M = …; M.net = M.net or Net()`
--- keeps the network that it made before. If the script raises, `module` is as it was. Otherwise its functions replace
--- those before, and tables and classes are changed in place: objects get the new methods, and graphs of functions that
--- have changed are traced again. path may be a function instead.
--- Example: local M = {count = 1, step = function(x) return x + 1 end}
--- pg.utils.reload(M, function(new)
---   new.count = new.count or 0
---   function new.step(x) return x + 10 end
--- end)
--- return M.count, M.step(1)
function utils.reload(module, path) return core.require("reload")(module, path) end

return core.require("support.namespace").seal("utils", utils)
