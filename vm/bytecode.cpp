#include "vm/bytecode.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <unordered_map>
#include <unordered_set>

#include "vm/dump.h"

namespace pg::vm {
namespace {

// The numbers of the instructions that matter here.
struct Opcodes {
  bool known = false;
  uint8_t gget, gset, tgetv, tsetv, tgets, tsets, fori, first_arith, last_arith, len, kshort, knum, mov;
  uint8_t uget, usets[4];
};

// The code of the text; of the first function in it where there is one.
std::vector<Instruction> compile(lua_State* L, const char* text) {
  std::vector<Instruction> code;
  if (!luaL_loadbuffer(L, text, std::strlen(text), "=probe")) {
    std::vector<Prototype> list = parse(dump(L, lua_gettop(L))).prototypes;
    if (!list.empty()) code = list.front().code;
  }
  lua_pop(L, 1);
  return code;
}

// The number of instruction `at` (negative: from the end) of a piece of code.
bool probe(lua_State* L, const char* text, int at, uint8_t& number) {
  const std::vector<Instruction> code = compile(L, text);
  const int i = at < 0 ? int(code.size()) + at : at;
  if (i < 0 || i >= int(code.size())) return false;
  number = code[size_t(i)].op;
  return true;
}

Opcodes find_opcodes(lua_State* L) {
  Opcodes o;
  o.known = probe(L, "return x", 0, o.gget) && probe(L, "x = 1", 1, o.gset) && probe(L, "local t, k = ... return t[k]", 1, o.tgetv) &&
            probe(L, "local t, k = ... t[k] = k", 1, o.tsetv) && probe(L, "local t = ... return t.x", 1, o.tgets) &&
            probe(L, "local t = ... t.x = t", 1, o.tsets) && probe(L, "for i = 1, 2 do end", 3, o.fori) &&
            probe(L, "local a = ... return a + 1", 1, o.first_arith) && probe(L, "local a, b = ... return a ^ b", 1, o.last_arith) &&
            probe(L, "local a = ... return #a", 1, o.len) && probe(L, "return 1", 0, o.kshort) && probe(L, "return 1.5", 0, o.knum) &&
            probe(L, "local a = ... local b = a", 1, o.mov) && probe(L, "local a return function() return a end", 0, o.uget) &&
            probe(L, "local a return function(b) a = b end", 0, o.usets[0]) && probe(L, "local a return function() a = 'x' end", 0, o.usets[1]) &&
            probe(L, "local a return function() a = 1.5 end", 0, o.usets[2]) && probe(L, "local a return function() a = nil end", 0, o.usets[3]);
  return o;
}

bool distinct(const Opcodes& o) {
  uint8_t all[] = {o.gget, o.gset, o.tgetv, o.tsetv, o.tgets, o.tsets, o.fori, o.first_arith, o.last_arith, o.len, o.kshort,
                   o.knum, o.mov, o.uget, o.usets[0], o.usets[1], o.usets[2], o.usets[3]};
  std::sort(std::begin(all), std::end(all));
  return std::adjacent_find(std::begin(all), std::end(all)) == std::end(all);
}

bool has_strings(const Prototype& p, std::vector<std::string> wanted) {
  std::vector<std::string> found;
  for (const Constant& k : p.constants)
    if (k.kind == kString) found.push_back(k.text);
  std::sort(found.begin(), found.end());
  return found == wanted;
}

// Whether the parts of a known chunk are read as they were written.
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
  if (luaL_loadbuffer(L, text, sizeof text - 1, "=probe")) {
    lua_pop(L, 1);
    return false;
  }
  const std::vector<Prototype> list = parse(dump(L, lua_gettop(L))).prototypes;
  lua_pop(L, 1);
  if (list.size() != 3) return false;
  const Prototype &inner = list[0], &f = list[1], &main = list[2];
  const auto local = [](const Prototype& p, size_t i, unsigned flags) { return (p.upvalues[i] & (Prototype::kLocal | Prototype::kImmutable)) == flags; };
  const auto lines = [](const Prototype& p, int first, int last) {
    return p.lines.size() == p.code.size() && !p.lines.empty() && *std::min_element(p.lines.begin(), p.lines.end()) == first &&
           *std::max_element(p.lines.begin(), p.lines.end()) == last;
  };
  return has_strings(inner, {"gamma"}) && has_strings(f, {"alpha", "beta"}) && has_strings(main, {}) && main.children.size() == 1 &&
         f.children.size() == 1 && inner.upvalues.size() == 1 && f.upvalues.size() == 2 && local(inner, 0, 0) &&
         local(f, 0, Prototype::kLocal) &&
         local(f, 1, Prototype::kLocal | Prototype::kImmutable) && lines(inner, 6, 6) && lines(f, 3, 6);
}

std::atomic<bool> unknown_engine{false};

const Opcodes& opcodes(lua_State* L) {
  static const Opcodes found = [L] {
    Opcodes o = find_opcodes(L);  // of the LuaJIT that this process runs
    o.known = o.known && distinct(o) && reads_known_chunk(L);
    return o;
  }();
  static const Opcodes unknown{};
  return unknown_engine ? unknown : found;
}

bool is_arithmetic(const Opcodes& o, uint8_t op) {
  return (op >= o.first_arith && op <= o.last_arith) || op == o.len || op == o.kshort || op == o.knum;
}

// Whether instruction `from` stands in a numeric loop over register `r`.
bool is_loop_counter(const Opcodes& o, const Prototype& p, size_t from, uint8_t r) {
  for (size_t i = from; i-- > 0;) {
    const Instruction& ins = p.code[i];
    if (ins.op != o.fori || ins.a + 3 != r) continue;
    const size_t end = i + 1 + ins.d() - 0x8000;
    if (from < end) return true;
  }
  return false;
}

// Whether register r, read by instruction `at`, is sure to hold a number: set by the arithmetic just before, or the counter of a loop.
bool is_number(const Opcodes& o, const Prototype& p, size_t at, uint8_t r, int depth = 0) {
  for (size_t i = at; i-- > 0 && at - i < 4;) {
    const Instruction& ins = p.code[i];
    if (ins.a != r) continue;
    if (is_arithmetic(o, ins.op)) return true;
    if (ins.op == o.mov && depth < 4) return is_number(o, p, i, uint8_t(ins.d()), depth + 1);
    break;
  }
  return is_loop_counter(o, p, at, r);
}

void note(std::vector<std::string>& list, std::unordered_set<std::string>& seen, const std::string& name) {
  if (seen.insert(name).second) list.push_back(name);
}

void note_strings(Bytecode& out, std::unordered_map<std::string, size_t>& places, const Prototype& p) {
  for (const Constant& k : p.constants) {
    if (k.kind != kString) continue;
    const auto [at, fresh] = places.emplace(k.text, out.strings.size());
    if (fresh) out.strings.push_back(k.text), out.uses.push_back(0);
    ++out.uses[at->second];
  }
}

bool names(const Opcodes& o, const Instruction& ins, size_t constant) {
  if (ins.op == o.tgets || ins.op == o.tsets) return ins.c == constant;
  return (ins.op == o.gget || ins.op == o.gset) && ins.d() == constant;
}

// How often an upvalue of p is used: by its own instructions (counted twice, so that this is never once), or by functions in it.
int count_uses(const Opcodes& o, const std::vector<Prototype>& list, const Prototype& p, size_t upvalue) {
  int uses = 0;
  for (const Instruction& ins : p.code) {
    if (ins.op == o.uget && ins.d() == upvalue) uses += 2;
    if (std::count(std::begin(o.usets), std::end(o.usets), ins.op) && ins.a == upvalue) uses += 2;
  }
  for (size_t child : p.children)
    for (uint16_t captured : list[child].upvalues)
      if (!(captured & Prototype::kLocal) && captured == upvalue) ++uses;
  return uses;
}

}  // namespace

bool knows_bytecode(lua_State* L) { return opcodes(L).known; }
void set_unknown_engine(bool on) { unknown_engine = on; }

Bytecode read_bytecode(lua_State* L, int i) {
  Bytecode out;
  const Opcodes& o = opcodes(L);
  const std::vector<Prototype> list = parse(dump(L, i)).prototypes;
  if (!o.known || list.empty()) {
    out.computes_keys = true;
    return out;
  }
  std::unordered_map<std::string, size_t> strings;
  std::unordered_set<std::string> globals;
  for (const Prototype& p : list) {
    note_strings(out, strings, p);
    for (size_t at = 0; at < p.code.size(); ++at) {
      const Instruction& ins = p.code[at];
      if ((ins.op == o.gget || ins.op == o.gset) && ins.d() < p.constants.size()) note(out.globals, globals, p.constants[ins.d()].text);
      if ((ins.op == o.tgetv || ins.op == o.tsetv) && !is_number(o, p, at, ins.c)) out.computes_keys = true;
    }
  }
  const Prototype& own = list.back();
  for (size_t k = 0; k < own.upvalues.size(); ++k) {
    out.frozen.push_back((own.upvalues[k] & Prototype::kLocal) && (own.upvalues[k] & Prototype::kImmutable));
    out.lent.push_back(count_uses(o, list, own, k) == 1);
  }
  return out;
}

int find_key_line(lua_State* L, int i, const std::string& name) {
  const Opcodes& o = opcodes(L);
  if (!o.known) return 0;
  int best = 0;
  for (const Prototype& p : parse(dump(L, i)).prototypes)
    for (size_t k = 0; k < p.constants.size(); ++k) {
      if (p.constants[k].kind != kString || p.constants[k].text != name) continue;
      for (size_t at = 0; at < p.code.size() && at < p.lines.size(); ++at)
        if (names(o, p.code[at], k) && (!best || p.lines[at] < best)) best = p.lines[at];
    }
  return best;
}

namespace {

// Whether frames take two slots: closures with an upvalue have 48 bytes then.
bool has_wide_references(lua_State* L) {
  if (luaL_loadbuffer(L, "", 0, "=probe")) return lua_pop(L, 1), false;
  const bool wide = parse(dump(L, lua_gettop(L))).wide_frames;
  lua_pop(L, 1);
  return wide;
}

// Whether these bytes are at an address that may be none: the kernel says so instead of a signal.
bool holds_bytes(uintptr_t address, const std::string& bytes) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC)) return false;
  std::string read_back(bytes.size(), '\0');
  const bool readable = syscall(SYS_write, ends[1], address, bytes.size()) == ssize_t(bytes.size()) &&
                        read(ends[0], read_back.data(), bytes.size()) == ssize_t(bytes.size());
  close(ends[0]), close(ends[1]);
  return readable && read_back == bytes;
}

// The offset in the closure on top of the stack of a pointer to its code, which is a header and then the instructions
// of its dump. -1 where there is none.
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

// The same for every closure.
int find_code_offset(lua_State* L) {
  if (!has_wide_references(L)) return -1;
  int found = -1;
  for (const char* text :
       {"local u return function() return u end", "local u return function(x) u = x return x + 1.5 end"}) {
    const bool made = !luaL_loadbuffer(L, text, std::strlen(text), "=probe") && !lua_pcall(L, 0, 1, 0);
    const int offset = made ? code_offset_of(L) : -1;
    lua_pop(L, 1);
    if (offset < 0 || (found >= 0 && offset != found)) return -1;
    found = offset;
  }
  return found;
}

}  // namespace

static int code_offset(lua_State* L) {
  static const int offset = find_code_offset(L);
  return unknown_engine ? -1 : offset;
}

bool knows_closures(lua_State* L) { return code_offset(L) >= 0; }

const void* prototype_of(lua_State* L, int i) {
  const int offset = code_offset(L);
  if (offset < 0) return nullptr;
  const void* found;
  std::memcpy(&found, static_cast<const char*>(lua_topointer(L, i)) + offset, sizeof found);
  return found;
}

}  // namespace pg::vm
