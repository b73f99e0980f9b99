-- What the sub-commands do with paths.
local paths = {}

--- paths.quote(text) -> the text as one word of the shell.
function paths.quote(text) return "'" .. text:gsub("'", "'\\''") .. "'" end

--- paths.kind(path) -> "file" or "folder"; nil and why it cannot be read.
function paths.kind(path)
  local f, why = io.open(path, "rb")
  if not f then return nil, ("cannot open '%s': %s"):format(path, why:match(": ([^:]*)$") or why) end
  local _, _, code = f:read(1)
  f:close()
  return code == 21 and "folder" or "file"  -- EISDIR
end

--- paths.load(path) -> the chunk of a script, whose folder `require` then searches first; nil and what is wrong.
function paths.load(path)
  local kind, why = paths.kind(path)
  if kind == "folder" then why = ("cannot open '%s': Is a directory"):format(path) end
  if kind ~= "file" then return nil, why end
  local folder = path:match("^(.*)/[^/]*$") or "."
  if not folder:find("[;?]") then package.path = folder .. "/?.lua;" .. folder .. "/?/init.lua;" .. package.path end
  return loadfile(path)
end

return paths
