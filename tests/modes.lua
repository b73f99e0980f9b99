-- The ways in which tests/lua runs. setup(pg) is called after the module is loaded, env is set for the process; sanitized: under
-- the sanitizers too; files: only those whose path has one of these Lua patterns, without --all; isolate: every file has a process
-- of its own.
local function testing(pg)
  local ok, hooks = pcall(function() return pg.testing end)
  return ok and hooks or nil
end

-- Blocks run hybridized and op calls jitted.
local function hybrid(pg)
  local hooks = testing(pg)
  local _ = pg.jit
  hooks.hybridize_all(true)
  require("tests.ops.driver").jit = true
end

-- Files whose results come from kernels.
local kernels = {
  "_conv%.", "_fixtures_ops", "_linalg", "_norm", "_pointwise", "_reduce", "_registry_values", "_registry_hybrid", "_rnn",
}

local rank = {sse2 = 1, sse4 = 2, avx2 = 3, avx512 = 4}

local function with_isa(name)
  return {name = name, doc = "kernels use " .. name .. " at most", env = {PERIGEE_MAX_ISA = name}, files = kernels, setup = function(pg)
    assert(rank[pg.instruction_set()] <= rank[name], "PERIGEE_MAX_ISA is not obeyed")
  end}
end

-- The longest first, for they run at once.
return {
  {name = "gcstress", doc = "a collection at each op", sanitized = true, isolate = true, setup = function(pg)  -- it costs what lives
    local hooks = testing(pg)
    if hooks and hooks.gc_stress then hooks.gc_stress(true) end
  end},
  {name = "eager", doc = "as a script runs", sanitized = true},
  {name = "hybrid", doc = "blocks hybridized, op calls jitted", sanitized = true, setup = hybrid, env = {PERIGEE_VERIFY_PLANS = "1"}},
  {name = "nofuse", doc = "hybrid without any pass", setup = hybrid, env = {PERIGEE_DISABLE_PASSES = "all", PERIGEE_VERIFY_PLANS = "1"}},
  {name = "roundtrip", doc = "hybrid, every graph through the files of an export", env = {PERIGEE_VERIFY_PLANS = "1"}, setup = function(pg)
    hybrid(pg)
    testing(pg).roundtrip_all(true)
  end},
  {name = "device", doc = "control flow on a device whose memory the host cannot follow", files = {"_control"},
   env = {PERIGEE_TEST_DEVICE = "full", PERIGEE_VERIFY_PLANS = "1"},
   setup = function(pg) testing(pg).default_device("test_device") end},
  {name = "interpreted", doc = "tests run by the interpreter of traces",
   files = {"_api_", "_autograd%.", "_control%.", "_extensions", "_indexing", "_metric%.", "_nn%."}, setup = function(pg)
    local interpret = testing(pg).core.require("hybrid.interpret")
    testing(pg).core.require("hybrid.models")
    require("tests.support").way = function(f) return function() return interpret.run(nil, f) end end
  end},
  {name = "guard", doc = "canaries around buffers", env = {PERIGEE_GUARD = "1"}},
  with_isa "avx2", with_isa "sse4", with_isa "sse2",
}
