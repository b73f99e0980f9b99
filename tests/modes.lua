-- The ways in which tests/lua runs. setup(pg) is called after the module is loaded, start(pg) before the file and each
-- of its tests, env is set for the process;
-- sanitized: under the sanitizers too, a function of the path if only some files;
-- files: only those whose path has one of these Lua patterns, without --all;
-- named: the mode runs only if --mode names it.

-- Blocks run hybridized and op calls jitted.
local function hybrid(pg)
  pg.testing.hybridize_all(true)
  require("tests.ops.driver").jit = true
end

-- Files that test kernels, and what scripts make of their own.
local kernels = {
  "_attention_op", "_conv%.", "_extensions", "_fixtures_ops", "_graph_ops", "_linalg", "_norm", "_pointwise", "_reduce",
  "_registry_values", "_registry_hybrid", "_rnn", "_signals",
}

-- Files that hybridize by themselves do the same in modes eager and hybrid. Checked compilations of all gradients take
-- nine minutes under the sanitizers, those of all edge numbers ten.
local function runs_eagerly(path)
  for _, part in ipairs{"_control", "_graph", "_guard", "_halves", "_hit_", "_hybrid", "_models", "_random_", "_export",
                        "_symbol", "_registry_gradients", "_sizes"} do
    if path:find(part, 1, true) then return false end
  end
  return true
end

-- A collection at each op finds nothing new in kernels, in the texts of errors, or in large networks.
local function makes_boxes(path)
  for _, pattern in ipairs(kernels) do if path:find(pattern) then return false end end
  for _, part in ipairs{"_halves", "_mistakes", "_models", "_numbers", "_registry_errors", "_sizes"} do
    if path:find(part, 1, true) then return false end
  end
  return true
end

local rank = {sse2 = 1, sse4 = 2, avx2 = 3, avx512 = 4, amx = 5}

local function with_isa(name)
  local env = {PERIGEE_MAX_ISA = name}
  return {name = name, doc = "kernels use at most " .. name, env = env, files = kernels, setup = function(pg)
    assert(rank[pg.instruction_set()] <= rank[name], "PERIGEE_MAX_ISA is not obeyed")
  end}
end

-- The longest modes first, since files run at the same time.
local modes = {
  {name = "gcstress", doc = "a collection at each of the first ops of a test, and at many later ones",
   sanitized = makes_boxes, start = function(pg) pg.testing.gc_stress(true) end},
  {name = "eager", doc = "as a script runs", sanitized = true},
  {name = "hybrid", doc = "blocks hybridized, op calls jitted", sanitized = runs_eagerly, setup = hybrid,
   env = {PERIGEE_VERIFY_PLANS = "1"}},
  {name = "nofuse", doc = "hybrid without any pass", setup = hybrid,
   env = {PERIGEE_DISABLE_PASSES = "all", PERIGEE_VERIFY_PLANS = "1"}},
  {name = "roundtrip", doc = "hybrid, every graph through the files of an export",
   env = {PERIGEE_VERIFY_PLANS = "1"}, setup = function(pg)
    hybrid(pg)
    pg.testing.roundtrip_all(true)
  end},
  {name = "device", doc = "on a device that works late, in memory that the host cannot read",
   files = {"_autograd%.", "_control", "_extensions", "_fixtures_ops", "_function%.", "_norm%.", "_numbers%.",
            "_pointwise%.", "_reduce%.", "_registry_hybrid", "_unreached"},
   env = {PERIGEE_TEST_DEVICE = "full", PERIGEE_VERIFY_PLANS = "1"},
   setup = function(pg)
     require("tests.support").device = "test_device"
     pg.testing.default_device("test_device")
   end},
  {name = "interpreted", doc = "tests run by the interpreter of traces",
   files = {"_api_", "_autograd%.", "_control%.", "_control_bodies", "_extensions", "_function%.", "_indexing",
            "_interpret", "_metric%.", "_nn%.", "_unreached"},
   setup = function(pg)
    require("tests.support").way = function(f) return function() return pg.testing.interpret(f) end end
  end},
  {name = "guard", doc = "canaries around buffers", env = {PERIGEE_GUARD = "1"}},
  {name = "winograd", doc = "all convolutions of 3 x 3 by Winograd's algorithm",
   files = {"_conv%.", "_gluon", "_jobs_training", "_layers"},
   env = {PERIGEE_CONV = "winograd", PERIGEE_VERIFY_PLANS = "1"}, setup = hybrid},
  with_isa "avx2", with_isa "sse4", with_isa "sse2",
}

-- The modes on the CUDA device; `more` files besides those of cuda_host.
local function on_cuda(mode, more)
  mode.files = {"test_attention_op", "test_autograd%.", "test_control%.", "test_conv%.", "test_ctc%.", "test_cuda_",
                "test_distance%.", "test_fft%.", "test_fixtures_ops", "test_function%.", "test_hidden_ops",
                "test_index%.", "test_indexing%.", "test_linalg_factor", "test_nn%.", "test_norm%.", "test_numbers%.",
                "test_optim_ops", "test_pointwise%.", "test_random%.", "test_reduce%.", "test_scatter%.",
                "test_shape%.", "test_sizes", "test_unreached", unpack(more)}
  mode.setup = function(pg)
    require("tests.support").device = "cuda"
    pg.testing.default_device("cuda")
  end
  table.insert(modes, mode)
end

on_cuda({name = "cuda", doc = "on a GPU; runs if it is named", named = true, env = {PERIGEE_VERIFY_PLANS = "1"}},
        {"_registry_values", "_registry_hybrid", "_registry_errors", "_linalg", "_signals", "_rnn"})
local host = require "tests.cuda.host"
if host then on_cuda({name = "cuda_host", doc = "on the CUDA device, whose kernels the host runs", env = host}, {}) end

return modes
