-- The choices of random tests, the same on every machine: local random, pick, restart = require "tests.choices"(seed).
-- random(n) -> 1 to n; pick(list) -> one of its items; restart(seed): the choices that follow are those of that seed.
return function(seed)
  local function random(n)
    seed = seed * 16807 % 2147483647
    return seed % n + 1
  end
  return random, function(list) return list[random(#list)] end, function(other) seed = other end
end
