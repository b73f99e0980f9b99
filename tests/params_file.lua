-- Writes .params files of MXNet for tests: the bytes of arrays, and of files of them.
local params = {}

local function little_endian(n, size)
  local bytes = {}
  for i = 1, size do
    bytes[i] = string.char(n % 256)
    n = math.floor(n / 256)
  end
  return table.concat(bytes)
end

function params.u32(n) return little_endian(n % 2 ^ 32, 4) end
-- n is a whole number from -2^53 to 2^53.
function params.u64(n) return params.u32(n) .. params.u32(math.floor(n / 2 ^ 32)) end

local u32, u64 = params.u32, params.u64
local flags = {float32 = 0, float64 = 1, float16 = 2, uint8 = 3, int32 = 4, int8 = 5, int64 = 6, bool = 7, bfloat16 = 12}
local device = u32(1) .. u32(0)

local function dims(shape, number)
  local out = {u32(#shape)}
  for i, size in ipairs(shape) do out[i + 1] = number(size) end
  return table.concat(out)
end

-- The record of a tensor in version 0, 1, 2 or 3.
function params.array(x, version)
  local rest = device .. u32(flags[x.dtype]) .. x:to_bytes()
  if version == 0 then return dims(x.shape, u32) .. rest end
  return u32(0xF993FAC7 + version) .. (version > 1 and u32(0) or "") .. dims(x.shape, u64) .. rest
end

-- The record of a sparse array: rows {indices}, or csr {starts, indices}; all tensors.
function params.sparse(shape, data, aux)
  local types, bytes = {}, {}
  for i, x in ipairs(aux) do types[i], bytes[i] = u32(flags[x.dtype]) .. dims(x.shape, u64), x:to_bytes() end
  return u32(0xF993FAC9) .. u32(#aux) .. dims(data.shape, u64) .. dims(shape, u64) .. device .. u32(flags[data.dtype])
    .. table.concat(types) .. data:to_bytes() .. table.concat(bytes)
end

-- A file of these records, with names or without.
function params.file(records, names)
  local out = {u64(0x112), u64(0), u64(#records), table.concat(records), u64(names and #names or 0)}
  for _, name in ipairs(names or {}) do out[#out + 1] = u64(#name) .. name end
  return table.concat(out)
end

return params
