-- Lua patterns that scripts choose paths with. Users of Gluon write regular expressions, of which many are Lua patterns
-- that match nothing.
local core = ...
local pattern = {}

-- Says why a text is no Lua pattern but a regular expression, or returns nil. "%|" is a bar of the path itself.
local function regex(text)
  if (" " .. text):find("[^%%]|") then return "which have no '|' for alternatives" end
  if text:find("\\", 1, true) then return "which escape with %, not with \\: %. is a dot, %d a digit" end
end

--- pattern.matches(op, name, text, path) -> whether the pattern is found in the path. name is that of the argument of op.
function pattern.matches(op, name, text, path)
  local ok, found = pcall(string.find, path, text)
  if not ok then core.fail(op, "bad argument '%s' (expected a Lua pattern, got \"%s\": %s)", name, text, found) end
  return found ~= nil
end

--- pattern.refuse_regex(op, name, text, instead) raises for a regular expression. instead says what to write for one with
--- alternatives.
function pattern.refuse_regex(op, name, text, instead)
  local reason = regex(text)
  if not reason then return end
  core.fail(op, "bad argument '%s' (expected a Lua pattern, got \"%s\"; patterns are Lua's, %s%s)", name, text, reason,
            reason:find("|", 1, true) and "; " .. instead or "")
end

return pattern
