-- The state of a trainer in a file: those of the optimizer, of a scheduler and of a loss scaler.
local core = ...
local args = core.require("support.args")
local states_of = core.require("optim.states")
local ops = core.ops
local files = {}

local function header(self) return "@optimizer." .. self.optimizer.name end

-- Returns the scheduler if it has a state of its own: the numbers in the fields that it lists in _saved.
local function saved_scheduler(self)
  local scheduler = self.optimizer.lr_scheduler
  return type(scheduler) == "table" and scheduler._saved and scheduler
end

--- trainer:save_states(path) writes the optimizer's state, and those of a scheduler and a LossScaler, to a safetensors file, atomically.
function files:save_states(path)
  args.self("save_states", self, "trainer")
  args.string("save_states", "path", path)
  local tensors, counts = {}, {}
  for i, entry in ipairs(self._entries) do
    counts[i] = entry.count
    for name, state in pairs(entry.states) do tensors[name .. "." .. entry.path] = state end
  end
  counts[#counts + 1] = self._updates
  tensors["@counts"] = ops.tensor(counts, {dtype = "int64"})
  tensors[header(self)] = ops.tensor({self.optimizer.learning_rate}, {dtype = "float64"})
  local scheduler = saved_scheduler(self)
  if scheduler then
    local values = {}
    for i, field in ipairs(scheduler._saved) do values[i] = scheduler[field] end
    tensors["@scheduler"] = ops.tensor(values, {dtype = "float64"})
  end
  if self.loss_scaler then tensors["@loss_scale"] = self.loss_scaler.state end
  core.save_tensors(path, tensors, nil, "save_states")
end

local function check_counts(self, path, tensors)
  local rate, counts = tensors[header(self)], tensors["@counts"]
  if not rate or not counts then core.fail("load_states", "%s holds no state of %s", path, self.optimizer.name) end
  if counts.dtype ~= "int64" or counts:dim() ~= 1 or counts:numel() ~= #self._entries + 1 then
    core.fail("load_states", "%s holds the state of another set of parameters", path)
  end
  if rate.dtype ~= "float64" or rate:numel() ~= 1 then core.fail("load_states", "%s holds a bad learning rate", path) end
  counts = counts:totable()
  for _, count in ipairs(counts) do
    if type(count) ~= "number" or count < 0 then core.fail("load_states", "%s holds a bad update count", path) end
  end
  return counts, rate:reshape{1}:totable()[1]
end

--- trainer:load_states(path) reads the state that save_states wrote for the same optimizer and parameters. An error
--- changes nothing.
function files:load_states(path)
  args.self("load_states", self, "trainer")
  args.string("load_states", "path", path)
  local tensors = core.load_tensors(path, "load_states", true)
  local counts, rate = check_counts(self, path, tensors)
  local states, used = {}, {["@counts"] = true, [header(self)] = true}
  for i, entry in ipairs(self._entries) do
    states[i] = {}
    for _, name in ipairs(states_of.names(self.optimizer, entry.tensor)) do
      local key = name .. "." .. entry.path
      local state = tensors[key]
      if state then states[i][name], used[key] = states_of.check(path, self.optimizer, entry, name, state), true
      elseif counts[i] > 0 then core.fail("load_states", "%s lacks '%s'", path, key) end
    end
  end
  local scheduler, memory = saved_scheduler(self), tensors["@scheduler"]
  used["@scheduler"] = scheduler
  if scheduler and (not memory or memory.dtype ~= "float64" or memory:numel() ~= #scheduler._saved) then
    core.fail("load_states", "%s lacks the state of the scheduler", path)
  end
  local scaler, scale = self.loss_scaler, tensors["@loss_scale"]
  used["@loss_scale"] = scaler
  if scaler and (not scale or scale.dtype ~= "float64" or scale:numel() ~= 3) then
    core.fail("load_states", "%s lacks the state of the loss scaler", path)
  end
  for key in pairs(tensors) do
    if not used[key] then core.fail("load_states", "%s holds '%s', which this trainer does not have", path, tostring(key)) end
  end
  for i, entry in ipairs(self._entries) do entry.count, entry.states = counts[i], states[i] end
  self._updates = counts[#counts]
  self.optimizer.learning_rate = rate
  if scaler then scaler.state:copy_(scale:to(scaler.state.device)) end
  if scheduler then for i, value in ipairs(memory:reshape{-1}:totable()) do scheduler[scheduler._saved[i]] = value end end
end

return files
