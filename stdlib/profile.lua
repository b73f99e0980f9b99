-- pg.profile and pg.trace: what runs, how long it takes, and what each op got and gave.
local core = ...
local args = core.require("support.args")
local bytes = core.require("support.units").bytes
local caches = core.require("hybrid.cache")
local profile = {}

local shown_rows = 12           -- of each list in the text of a report
local default_events = 1000000  -- 32 MB

-- The text of a report ---------------------------------------------------------------------------------------------------

local function plural(n, word) return ("%d %s%s"):format(n, word, n == 1 and "" or "s") end

-- Adds a list of rows, those with the most time first.
local function add_rows(lines, report, title, rows, name_of)
  if not rows[1] then return end
  local names, width = {}, #title
  for i = 1, math.min(#rows, shown_rows) do
    names[i] = name_of(rows[i])
    width = math.max(width, #names[i] + 2)
  end
  local function add(format, name, ...) lines[#lines + 1] = format:format(name .. (" "):rep(width - #name), ...) end
  add("%s %9s %11s %6s" .. (rows[1].bytes and " %10s" or ""), title, "count", "ms", "%", "written")
  for i, name in ipairs(names) do
    local row = rows[i]
    add("%s %9d %11.3f %6.1f" .. (row.bytes and " %10s" or ""), "  " .. name, row.count, row.ms, 100 * row.ms / report.total,
        row.bytes and bytes(row.bytes))
  end
  if #rows > shown_rows then lines[#lines + 1] = ("  … and %d more"):format(#rows - shown_rows) end
end

local function add_graphs(lines, graphs)
  if graphs[1] then lines[#lines + 1] = "graphs" end
  for _, g in ipairs(graphs) do
    local parts = {plural(g.runs, "run") .. (" in %.3f ms"):format(g.ms), plural(g.hits, "cache hit")}
    if g.traces > 0 then parts[#parts + 1] = plural(g.traces, "trace") .. (" in %.3f ms"):format(g.trace_ms) end
    if g.compiled > 0 then parts[#parts + 1] = ("%d compiled in %.3f ms"):format(g.compiled, g.compile_ms) end
    if g.retraces > 0 then parts[#parts + 1] = plural(g.retraces, "retrace") end
    lines[#lines + 1] = "  " .. g.name .. ": " .. table.concat(parts, ", ")
    for _, reason in ipairs(g.reasons) do
      lines[#lines + 1] = ("    traced again %s: %s"):format(reason.count == 1 and "once" or reason.count .. " times", reason.text)
    end
  end
end

local Report = {}
Report.__index = Report

function Report:__tostring()
  local lines = {("profile of %.3f ms, %s written"):format(self.total, bytes(self.bytes))}
  add_rows(lines, self, "ops", self.ops, function(row) return row.name end)
  add_rows(lines, self, "kernels of graphs", self.kernels, function(row)
    return row.name .. " (" .. row.graph .. (row.line and ", " .. row.line or "") .. ")"
  end)
  add_rows(lines, self, "script lines", self.lines, function(row) return row.line end)
  add_graphs(lines, self.graphs)
  if self.backward.count > 0 then
    lines[#lines + 1] = ("backward: %s in %.3f ms"):format(plural(self.backward.count, "call"), self.backward.ms)
  end
  local c = self.collector
  lines[#lines + 1] = ("collector: %s in %.3f ms%s"):format(plural(c.steps, "step"), c.ms,
                                                            c.cycles and ", " .. plural(c.cycles, "full cycle") or "")
  if self.dropped > 0 then
    lines[#lines + 1] = ("the file has the first %s; %d more are only in the sums"):format(plural(self.events, "event"), self.dropped)
  end
  return table.concat(lines, "\n")
end

-- Caches and the collector -----------------------------------------------------------------------------------------------

local running  -- the data of the profile that runs: {hits =, reasons =, cycles =}

-- The hits of all caches so far.
local function counters()
  local all = {}
  for cache in pairs(caches.all) do all[cache] = cache:hits() end
  return all
end

-- Called by hybrid/cache.lua after a trace.
local function note_trace(cache, time, own, reason)
  if not running or not time then return end
  core.profile_trace(cache.name, time, own, reason)
  if reason == "" then return end
  local reasons = running.reasons[cache.name] or {}
  running.reasons[cache.name] = reasons
  reasons[reason] = (reasons[reason] or 0) + 1
end

-- Counts cycles of the collector: the finalizer of an object that nothing refers to runs in each of them.
local function count_cycles(data)
  local newproxy = rawget(_G, "newproxy")
  if not newproxy then return end
  data.cycles = 0
  local function renew()
    getmetatable(newproxy(true)).__gc = function()
      if running ~= data then return end
      data.cycles = data.cycles + 1
      renew()
    end
  end
  renew()
end

-- The report -------------------------------------------------------------------------------------------------------------

local function sorted(rows)
  table.sort(rows, function(a, b)
    if a.ms ~= b.ms then return a.ms > b.ms end
    return (a.name or a.line) < (b.name or b.line)
  end)
  return rows
end

local function graphs_of(measured, data)
  local list, by_name = {}, {}
  local function graph(name)
    name = name:gsub(" backward$", "")
    if not by_name[name] then
      by_name[name] = {name = name, runs = 0, ms = 0, hits = 0, traces = 0, trace_ms = 0, compiled = 0, compile_ms = 0, retraces = 0, reasons = {}}
      list[#list + 1] = by_name[name]
    end
    return by_name[name]
  end
  local function add(rows, count, time, value)
    for _, row in ipairs(rows) do
      local g = graph(row.name)
      g[count], g[time] = g[count] + row.count, g[time] + row[value]
    end
  end
  add(measured.runs, "runs", "ms", "total")
  add(measured.compiled, "compiled", "compile_ms", "ms")
  add(measured.traced, "traces", "trace_ms", "ms")
  for cache, now in pairs(counters()) do
    local hits = now - (data.hits[cache] or 0)
    if hits > 0 then
      local g = graph(cache.name)
      g.hits = g.hits + hits
    end
  end
  for name, reasons in pairs(data.reasons) do
    local g = graph(name)
    for text, count in pairs(reasons) do
      g.reasons[#g.reasons + 1] = {text = text, count = count}
      g.retraces = g.retraces + count
    end
    table.sort(g.reasons, function(a, b) return a.text < b.text end)
  end
  return sorted(list)
end

local function sum(rows, key)
  local total = 0
  for _, row in ipairs(rows) do total = total + row[key] end
  return total
end

local function make_report(measured, data, path)
  return setmetatable({
    total = measured.total, events = measured.events, dropped = path and measured.dropped or 0,
    ops = sorted(measured.ops), kernels = sorted(measured.kernels), lines = sorted(measured.lines),
    graphs = graphs_of(measured, data),
    bytes = sum(measured.ops, "bytes") + sum(measured.kernels, "bytes"),
    backward = {count = sum(measured.backward, "count"), ms = sum(measured.backward, "total")},
    collector = {steps = sum(measured.collector, "count"), ms = sum(measured.collector, "total"), cycles = data.cycles},
  }, Report)
end

--- profile.start([max_events]) starts a profile. max_events: the events to keep for a file, by default a million. Raises
--- if a profile runs.
function profile.start(max_events)
  if core.tracing() then core.fail("profile", "cannot run inside a hybridized block or a jitted function; profile its caller") end
  local hits = counters()
  if running or not core.start_profile(max_events or default_events) then core.fail("profile", "a profile is already running") end
  running = {hits = hits, reasons = {}}
  caches.watchers.profile = note_trace
  count_cycles(running)
end

--- profile.stop([path]) -> the report of the profile that runs, or nil. Writes its events to the path as JSON.
function profile.stop(path)
  local data = running
  running, caches.watchers.profile = nil, nil
  local measured = core.stop_profile(path)
  return measured and make_report(measured, data, path)
end

local function finish(path, ok, ...)
  if not ok then
    profile.stop()
    core.reraise((select(1, ...)))
  end
  return profile.stop(path), ...
end

--- pg.profile(f[, {path =, max_events = 1000000}]) -> report, the results of f. tostring(report) shows where the time
--- went, the most first: report.ops (eager ops), report.kernels (of graphs) and report.lines (of scripts) are lists of
--- {name =, line =, count =, ms =, bytes =}, where ms is without the ops inside and bytes is what was written.
--- report.graphs has {name =, runs =, ms =, hits =, traces =, retraces =, reasons =, compiled =} of each hybridized
--- block and jitted function, report.collector {steps =, ms =, cycles =}, report.backward {count =, ms =}, and
--- report.total the time of f in milliseconds. path: a file for the events, which Perfetto (ui.perfetto.dev) and Chrome
--- (chrome://tracing) show; events after the first max_events are only in the sums. Work on other devices than the CPU
--- is waited for. An error of f ends the profile. Raises inside another profile.
--- Example: local report = pg.profile(function() return pg.ones(2, 3):matmul(pg.ones(3, 2)) end)
--- return #report.ops
function profile.profile(f, options)
  args.callable("profile", "f", f)
  local o = args.options("profile", options, {path = args.none, max_events = default_events})
  local path = o.path and args.string("profile", "path", o.path)
  local events = args.count("profile", "max_events", o.max_events)
  profile.start(path and events or 0)
  return finish(path, xpcall(f, core.keep_traceback))
end

local trace_op = core.ops.trace

local function leave(ok, ...)
  core.stop_op_trace()
  if not ok then core.reraise((select(1, ...))) end
  return ...
end

--- pg.trace(f, …) -> what f(…) returns. Prints a line for each op that runs meanwhile: the script line, the operands and
--- the results with their types and ranges, or the elements of small ones. Graphs are off as in pg.debug, so hybridized
--- blocks and jitted functions run op by op. The lines go where those of pg.print go. pg.trace(x) of a matrix is the op:
--- the sum of its diagonal.
--- Example: return pg.trace(function(x) return (x + 1):sum() end, pg.ones(2))
function profile.trace(f, ...)
  if not args.is_callable(f) then return trace_op(f, ...) end
  if core.tracing() then core.fail("trace", "cannot run inside a hybridized block or a jitted function; trace its caller") end
  core.start_op_trace()
  return leave(xpcall(core.require("hybrid").debug, core.keep_traceback, f, ...))
end

return profile
