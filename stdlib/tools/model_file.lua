-- Finding the files of an exported model.
local core = ...
local shell = core.require("tools.paths")
local model_file = {}

local function is_file(path) return shell.kind(path) == "file" end

-- Returns the file of tensors beside NAME.json: NAME.safetensors, or, if an export has numbered them, the last of
-- NAME-0000.safetensors, …; the same with .params, which go with NAME-symbol.json. nil if there is none.
local function tensors_of(stem)
  stem = stem:gsub("%-symbol$", "")
  if is_file(stem .. ".safetensors") then return stem .. ".safetensors" end
  local folder, name = stem:match("^(.*/)([^/]*)$")
  folder, name = folder or "", name or stem
  local list, last = assert(io.popen("ls -- " .. shell.quote(folder ~= "" and folder or ".") .. " 2>/dev/null | LC_ALL=C sort")), nil
  for file in list:lines() do
    local rest = file:sub(1, #name) == name and file:sub(#name + 1) or ""
    if rest:find("^%-%d+%.safetensors$") or rest:find("^%-%d+%.params$") then last = folder .. file end
  end
  list:close()
  return last
end

--- model_file.of(word) -> the path of the .json file of a model, and that of its tensors or nil. The word is that path,
--- with or without .json. Returns nil if there is none, and what the word is: "file", or nil and why it cannot be read.
function model_file.of(word)
  local json = word:find("%.json$") and word or word .. ".json"
  if is_file(json) then return json, tensors_of(json:sub(1, -6)) end
  local kind, why = shell.kind(word)
  if kind == "folder" then return nil, nil, ("'%s' is a directory, not a model"):format(word) end
  return nil, kind, kind and ("'%s' is not a model (.json)"):format(word) or json == word and why or
    ("%s (nor is there '%s')"):format(why, json)
end

--- model_file.try(f, …) -> what f(…) returns, or nil and its message in one line.
function model_file.try(f, ...)
  local function settle(ok, first, ...)
    if ok then return first, ... end
    return nil, (tostring(first):gsub("^load: ", ""):gsub("\n.*", ""))
  end
  return settle(pcall(f, ...))
end

return model_file
