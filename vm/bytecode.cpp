#include "vm/bytecode.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <new>
#include <iterator>

#include "vm/dump.h"

namespace pg::vm {
namespace {

// Small chunks, the place of an instruction in each (negative: from the end), and the opcode that the interpreter of
// traces (stdlib/hybrid/interpret.lua) and vm/dump.cpp expect there.
struct Probe {
  const char* text;
  int at;
  uint8_t number;
};
constexpr Probe kProbes[] = {
    {"local a, b = ... if a < b then a() end", 1, 1},
    {"local a, b = ... if a <= b then a() end", 1, 3},
    {"local a, b = ... if a == b then a() end", 1, 5},
    {"local a = ... if a == 'x' then a() end", 1, 7},
    {"local a = ... if a == 1 then a() end", 1, 9},
    {"local a = ... if a == nil then a() end", 1, 11},
    {"local a, b = ... return a or b", 1, 12},
    {"local a, b = ... return a and b", 1, 13},
    {"local a = ... if not a then a() end", 1, 14},
    {"local a = ... if a then a() end", 1, 15},
    {"local a = ... local b = a", 1, 18},
    {"local a = ... return not a", 1, 19},
    {"local a = ... return -a", 1, 20},
    {"local a = ... return #a", 1, 21},
    {"local a = ... return a + 1", 1, 22},
    {"local a = ... return 1 + a", 1, 27},
    {"local a, b = ... return a + b", 1, 32},
    {"local a, b = ... return a % b", 1, 36},
    {"local a, b = ... return a ^ b", 1, 37},
    {"local a, b = ... return a .. b", 3, 38},
    {"return 'x'", 0, 39},
    {"return 1", 0, 41},
    {"return 1.5", 0, 42},
    {"return nil, true", 1, 43},
    {"local a, b", 0, 44},
    {"local a return function() return a end", 0, 45},
    {"local a return function(b) a = b end", 0, 46},
    {"local a return function() a = 'x' end", 0, 47},
    {"local a return function() a = 1.5 end", 0, 48},
    {"local a return function() a = nil end", 0, 49},
    {"return {}", 0, 52},
    {"return {1}", 0, 53},
    {"return x", 0, 54},
    {"x = 1", 1, 55},
    {"local t, k = ... return t[k]", 1, 56},
    {"local t = ... return t.x", 1, 57},
    {"local t = ... return t[1]", 1, 58},
    {"local t, k = ... t[k] = k", 1, 60},
    {"local t = ... t.x = t", 1, 61},
    {"local t = ... t[1] = t", 1, 62},
    {"return {...}", 2, 63},
    {"local f = ... f(f(...))", -2, 65},
    {"local f = ... f()", 2, 66},
    {"local f = ... return f(...)", -1, 67},
    {"local f = ... return f()", -1, 68},
    {"for a in f do end", -3, 69},
    {"return ...", 0, 71},
    {"return ...", 1, 73},
    {"return 1, 2", -1, 74},
    {"local a", -1, 75},
    {"return 1", -1, 76},
    {"for i = 1, 2 do end", 3, 77},
    {"for i = 1, 2 do end", 4, 79},
    {"for a in f do end", -2, 82},
    {"while true do x() end", 0, 85},
    {"while true do x() end", -2, 88},
};

// Pushes the compiled chunk. Returns false and pushes an error if it does not compile. Throws if memory runs out,
// because the result of the checks is kept for the whole process.
bool load(lua_State* L, const char* text) {
  const int status = luaL_loadbuffer(L, text, std::strlen(text), "=probe");
  if (status == LUA_ERRMEM) throw std::bad_alloc();
  return status == 0;
}

// The code of the text, or of the first function in it if there is one.
std::vector<Instruction> compile(lua_State* L, const char* text) {
  std::vector<Instruction> code;
  if (load(L, text)) {
    std::vector<Prototype> list = parse(dump(L, lua_gettop(L))).prototypes;
    if (!list.empty()) code = list.front().code;
  }
  lua_pop(L, 1);
  return code;
}

bool holds(lua_State* L, const Probe& probe) {
  const std::vector<Instruction> code = compile(L, probe.text);
  const int i = probe.at < 0 ? int(code.size()) + probe.at : probe.at;
  return i >= 0 && i < int(code.size()) && code[size_t(i)].op == probe.number;
}

bool has_strings(const Prototype& p, std::vector<std::string> wanted) {
  std::vector<std::string> found;
  for (const Constant& k : p.constants)
    if (k.kind == kString) found.push_back(k.text);
  std::sort(found.begin(), found.end());
  return found == wanted;
}

// Whether the constants, upvalues and children of a known chunk are decoded correctly.
bool reads_known_chunk(lua_State* L) {
  static const char text[] =
      "local a, b = 1, {}\n"
      "local function f(t, k)\n"
      "  local c = t.alpha + (t[k] or 0) + 1.5 + #{x = 1, 2}\n"
      "  beta = c\n"
      "  a = c\n"
      "  return function() return b, 'gamma' end\n"
      "end\n"
      "return f";
  if (!load(L, text)) {
    lua_pop(L, 1);
    return false;
  }
  const std::vector<Prototype> list = parse(dump(L, lua_gettop(L))).prototypes;
  lua_pop(L, 1);
  if (list.size() != 3) return false;
  const Prototype &inner = list[0], &f = list[1], &main = list[2];
  const auto local = [](const Prototype& p, size_t i, unsigned flags) {
    return (p.upvalues[i] & (Prototype::kLocal | Prototype::kImmutable)) == flags;
  };
  const auto lines = [](const Prototype& p, int first, int last) {
    return p.lines.size() == p.code.size() && !p.lines.empty() &&
           *std::min_element(p.lines.begin(), p.lines.end()) == first &&
           *std::max_element(p.lines.begin(), p.lines.end()) == last;
  };
  return has_strings(inner, {"gamma"}) && has_strings(f, {"alpha", "beta"}) && has_strings(main, {}) &&
         main.children.size() == 1 && f.children.size() == 1 && inner.upvalues.size() == 1 && f.upvalues.size() == 2 &&
         local(inner, 0, 0) && local(f, 0, Prototype::kLocal) &&
         local(f, 1, Prototype::kLocal | Prototype::kImmutable) && lines(inner, 6, 6) && lines(f, 3, 6);
}

std::atomic<bool> unknown_engine{false};

// Whether the instruction reads or writes the field or global named by `constant`.
bool names(const Instruction& ins, size_t constant) {
  constexpr uint8_t kGetGlobal = 54, kSetGlobal = 55, kGetField = 57, kSetField = 61;
  if (ins.op == kGetField || ins.op == kSetField) return ins.c == constant;
  return (ins.op == kGetGlobal || ins.op == kSetGlobal) && ins.d() == constant;
}

}  // namespace

bool knows_bytecode(lua_State* L) {
  static const bool known =
      std::all_of(std::begin(kProbes), std::end(kProbes), [L](const Probe& p) { return holds(L, p); }) &&
      reads_known_chunk(L);  // once per process
  return known && !unknown_engine;
}

void set_unknown_engine(bool on) { unknown_engine = on; }

int find_key_line(lua_State* L, int i, const std::string& name) {
  if (!knows_bytecode(L)) return 0;
  int best = 0;
  for (const Prototype& p : parse(dump(L, i)).prototypes)
    for (size_t k = 0; k < p.constants.size(); ++k) {
      if (p.constants[k].kind != kString || p.constants[k].text != name) continue;
      for (size_t at = 0; at < p.code.size() && at < p.lines.size(); ++at)
        if (names(p.code[at], k) && (!best || p.lines[at] < best)) best = p.lines[at];
    }
  return best;
}

namespace {

// Whether frames take two slots. Closures with one upvalue have 48 bytes in that case.
bool has_wide_references(lua_State* L) {
  if (!load(L, "")) return lua_pop(L, 1), false;
  const bool wide = parse(dump(L, lua_gettop(L))).wide_frames;
  lua_pop(L, 1);
  return wide;
}

struct NoPipe {};

// Whether the memory at an address holds these bytes. The address may be invalid: a system call reads it, which returns
// an error then. Throws NoPipe if the process has no free file descriptors.
bool holds_bytes(uintptr_t address, const std::string& bytes) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC)) throw NoPipe();
  std::string read_back(bytes.size(), '\0');
  const bool readable = syscall(SYS_write, ends[1], address, bytes.size()) == ssize_t(bytes.size()) &&
                        read(ends[0], read_back.data(), bytes.size()) == ssize_t(bytes.size());
  close(ends[0]), close(ends[1]);
  return readable && read_back == bytes;
}

// The offset, in the closure on top of the stack, of a pointer to its code. It is found by comparing the pointed-to
// memory with the instructions of the closure's dump. Returns -1 if there is none.
int code_offset_of(lua_State* L) {
  constexpr int kClosureBytes = 40, kInstruction = 4;  // at least as many bytes as a closure has
  const std::vector<Prototype> list = parse(dump(L, lua_gettop(L))).prototypes;
  if (list.empty()) return -1;
  std::string code;
  for (const Instruction& ins : list.back().code) code += {char(ins.op), char(ins.a), char(ins.c), char(ins.b)};
  for (int at = 0; at + int(sizeof(uintptr_t)) <= kClosureBytes; at += int(sizeof(uintptr_t))) {
    uintptr_t word;
    std::memcpy(&word, static_cast<const char*>(lua_topointer(L, -1)) + at, sizeof word);
    if (holds_bytes(word + kInstruction, code)) return at;
  }
  return -1;
}

// The offset that holds for all test closures, or -1.
int find_code_offset(lua_State* L) {
  if (!has_wide_references(L)) return -1;
  int found = -1;
  for (const char* text :
       {"local u return function() return u end", "local u return function(x) u = x return x + 1.5 end"}) {
    const int status = load(L, text) ? lua_pcall(L, 0, 1, 0) : LUA_ERRSYNTAX;
    if (status == LUA_ERRMEM) throw std::bad_alloc();
    const bool made = status == 0;
    const int offset = made ? code_offset_of(L) : -1;
    lua_pop(L, 1);
    if (offset < 0 || (found >= 0 && offset != found)) return -1;
    found = offset;
  }
  return found;
}

}  // namespace

static int code_offset(lua_State* L) try {
  static const int offset = find_code_offset(L);  // a later call tries again after an exception
  return unknown_engine ? -1 : offset;
} catch (const NoPipe&) {
  return -1;
}

const void* prototype_of(lua_State* L, int i) {
  const int offset = code_offset(L);
  if (offset < 0) return nullptr;
  const void* found;
  std::memcpy(&found, static_cast<const char*>(lua_topointer(L, i)) + offset, sizeof found);
  return found;
}

}  // namespace pg::vm
