-- The overhead of one op.
local function chain100(pg, x)
  return function()
    local y = pg.record(function()
      local y = x
      for _ = 1, 100 do y = y * x end
      return y
    end)
    y:backward()
  end
end

return {
  {name = "op_add1", setup = function(pg)
    local a, b = pg.ones(1), pg.ones(1)
    return function()
      local c
      for _ = 1, 1000 do c = a + b end
      return c
    end, {scale = 1000}
  end},
  {name = "op_add1_record", setup = function(pg)
    local a, b = pg.ones(1):attach_grad(), pg.ones(1)
    return function()
      return pg.record(function()
        local c
        for _ = 1, 1000 do c = a + b end
        return c
      end)
    end, {scale = 1000}
  end},
  {name = "scalar_chain100_fwdbwd", setup = function(pg) return chain100(pg, pg.ones(1):attach_grad()) end},
  {name = "scalar_chain100_fwdbwd", variant = "jit", setup = function(pg)
    return pg.jit(chain100(pg, pg.ones(1):attach_grad()))
  end},
}
