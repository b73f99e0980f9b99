-- The ways in which the whole of tests/lua runs. setup(pg) is called after the module is loaded, env is set for the process.
local function testing(pg)
  local ok, hooks = pcall(function() return pg.testing end)
  return ok and hooks or nil
end

return {
  {name = "eager", doc = "as a script runs"},
  {name = "hybrid", doc = "every outermost call of a hybrid block as a graph", setup = function(pg)
    local hooks = pg.nn and testing(pg)
    if hooks and hooks.hybridize_all then hooks.hybridize_all(true) end
  end},
  {name = "roundtrip", doc = "as hybrid, every graph through the files of an export", setup = function(pg)
    local hooks = pg.nn and testing(pg)
    if hooks and hooks.hybridize_all and hooks.roundtrip_all then
      hooks.hybridize_all(true)
      hooks.roundtrip_all(true)
    end
  end},
  {name = "gcstress", doc = "a collection at each op", setup = function(pg)
    local hooks = testing(pg)
    if hooks and hooks.gc_stress then hooks.gc_stress(true) end
  end},
  {name = "guard", doc = "canaries around buffers", env = {PERIGEE_GUARD = "1"}},
}
