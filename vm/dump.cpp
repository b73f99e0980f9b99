#include "vm/dump.h"

#include <algorithm>
#include <cstring>
#include <new>

namespace pg::vm {
namespace {

constexpr char kHeader[] = "\x1bLJ";  // followed by the version, the flags, and the chunk name unless stripped
constexpr uint8_t kVersion = 2;
constexpr unsigned kStripped = 2, kWideFrames = 8;                     // BCDUMP_F_*
constexpr uint32_t kTableInt = 3, kTableNumber = 4, kTableString = 5;  // BCDUMP_KTAB_*

// A cursor over a dump. Reading past the end sets `failed` and returns zeros.
class Reader {
 public:
  Reader(const std::string& bytes, size_t from, size_t to)
      : begin_(reinterpret_cast<const uint8_t*>(bytes.data())), at_(begin_ + from), end_(begin_ + to) {}

  bool failed() const { return failed_; }
  size_t position() const { return size_t(at_ - begin_); }
  uint8_t byte() { return take(1) ? at_[-1] : 0; }
  uint32_t u16() {
    const uint32_t low = byte();
    return low | uint32_t(byte()) << 8;
  }
  uint32_t uleb() { return uleb_from(byte(), 0); }
  // Reads a number constant: an integer, or both halves of a double.
  double number() {
    const uint8_t first = byte();
    const uint32_t low = uleb_from(uint8_t(first >> 1), first & 128 ? 6 : -1);
    if (!(first & 1)) return double(int32_t(low));
    return real(low, uleb());
  }
  static double real(uint32_t low, uint32_t high) {
    const uint64_t bits = low | uint64_t(high) << 32;
    double value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
  }
  std::string bytes(size_t n) {
    return take(n) ? std::string(reinterpret_cast<const char*>(at_ - n), n) : std::string();
  }
  size_t left() const { return size_t(end_ - at_); }
  std::string text_from(size_t from) const { return std::string(begin_ + from, at_); }

 private:
  // Reads the rest of a ULEB128 number after the byte `first`. shift is the position of its bits; with -1 the number
  // ends there.
  uint32_t uleb_from(uint8_t first, int shift) {
    if (shift < 0) return first & 63;
    uint32_t value = shift ? first & 63 : first & 127;
    bool more = shift ? true : first & 128;
    for (shift = shift ? shift : 7; more && shift < 35 && !failed_; shift += 7) {
      const uint8_t b = byte();
      value |= uint32_t(b & 127) << shift;
      more = b & 128;
    }
    return value;
  }
  bool take(size_t n) {
    if (n > left()) {
      failed_ = true;
      at_ = end_;
      return false;
    }
    at_ += n;
    return true;
  }

  const uint8_t *begin_, *at_, *end_;
  bool failed_ = false;
};

// A writer for lua_dump. It must not throw: lua_dump would turn the exception into another error.
int append(lua_State*, const void* data, size_t size, void* out) try {
  static_cast<std::string*>(out)->append(static_cast<const char*>(data), size);
  return 0;
} catch (const std::bad_alloc&) {
  return LUA_ERRMEM;
}

void skip_scalar(Reader& r) {
  const uint32_t kind = r.uleb();
  if (kind >= kTableString)
    r.bytes(kind - kTableString);
  else if (kind == kTableInt)
    r.uleb();
  else if (kind == kTableNumber)
    r.uleb(), r.uleb();
}

void skip_table(Reader& r) {
  const uint32_t array = r.uleb(), hash = r.uleb();
  for (uint32_t i = 0; i < array && !r.failed(); ++i) skip_scalar(r);
  for (uint32_t i = 0; i < hash && !r.failed(); ++i) skip_scalar(r), skip_scalar(r);
}

void read_constants(Reader& r, uint32_t count, Prototype& p) {
  if (count > r.left()) count = 0;
  p.constants.resize(count);
  for (uint32_t i = 0; i < count && !r.failed(); ++i) {
    Constant& k = p.constants[count - 1 - i];
    const size_t from = r.position();
    const uint32_t kind = r.uleb();
    k.kind = ConstantKind(std::min<uint32_t>(kind, kString));
    if (kind >= kString) {
      k.text = r.bytes(kind - kString);
      continue;
    }
    if (kind == kTable)
      skip_table(r);
    else if (kind != kChild)
      for (int part = 0; part < (kind == kComplex ? 4 : 2); ++part) r.uleb();
    k.text = r.text_from(from);
  }
}

void read_lines(Reader& r, uint32_t first, uint32_t span, Prototype& p) {
  const int width = span < 256 ? 1 : span < 65536 ? 2 : 4;
  for (size_t i = 0; i < p.code.size(); ++i) {
    uint32_t delta = r.byte();
    if (width > 1) delta |= uint32_t(r.byte()) << 8;
    if (width > 2) delta |= r.u16() << 16;
    p.lines.push_back(int(first + delta));
  }
}

Prototype read_prototype(Reader r, bool stripped) {
  Prototype p;
  p.flags = r.byte(), p.parameters = r.byte(), p.frame = r.byte();
  const uint32_t upvalues = r.byte(), constants = r.uleb(), numbers = r.uleb(), size = r.uleb();
  uint32_t debug = 0, first = 0, span = 0;
  if (!stripped && (debug = r.uleb()) != 0) first = r.uleb(), span = r.uleb();
  for (uint32_t i = 0; i < size && !r.failed(); ++i) {
    Instruction ins;
    ins.op = r.byte(), ins.a = r.byte(), ins.c = r.byte(), ins.b = r.byte();
    p.code.push_back(ins);
  }
  for (uint32_t i = 0; i < upvalues; ++i) p.upvalues.push_back(uint16_t(r.u16()));
  read_constants(r, constants, p);
  for (uint32_t i = 0; i < numbers && !r.failed(); ++i) p.numbers.push_back(r.number());
  if (debug && !r.failed()) read_lines(r, first, span, p);
  return p;
}

// Assigns children to a function: the last prototypes without a parent, one per child constant.
void adopt(std::vector<Prototype>& list, std::vector<size_t>& waiting) {
  Prototype& p = list.back();
  for (size_t i = p.constants.size(); i-- > 0;) {
    if (p.constants[i].kind != kChild || waiting.empty()) continue;
    p.constants[i].child = waiting.back();
    p.children.push_back(waiting.back());
    p.from = std::min(p.from, list[waiting.back()].from);
    waiting.pop_back();
  }
  waiting.push_back(list.size() - 1);
}

}  // namespace

std::string dump(lua_State* L, int i) {
  std::string out;
  const int top = lua_gettop(L);
  lua_pushvalue(L, i);
  const int status = lua_dump(L, append, &out);
  lua_settop(L, top);
  if (status) throw std::bad_alloc();  // lua_dump of a Lua function fails only if memory runs out
  return out;
}

Dump parse(std::string bytes) {
  Dump out;
  out.bytes = std::move(bytes);
  Reader r(out.bytes, 0, out.bytes.size());
  if (r.bytes(3) != kHeader || r.byte() != kVersion) return out;
  const unsigned flags = r.uleb();
  out.stripped = flags & kStripped, out.wide_frames = flags & kWideFrames;
  if (!out.stripped) r.bytes(r.uleb());
  out.header = out.bytes.substr(0, r.position());
  std::vector<size_t> waiting;  // prototypes whose parent comes later
  while (!r.failed()) {
    const size_t from = r.position();
    const uint32_t size = r.uleb();
    if (!size) break;
    const size_t begin = r.position();
    r.bytes(size);
    if (r.failed()) break;
    out.prototypes.push_back(read_prototype(Reader(out.bytes, begin, begin + size), out.stripped));
    out.prototypes.back().from = from, out.prototypes.back().to = begin + size;
    adopt(out.prototypes, waiting);
  }
  if (r.failed()) out.prototypes.clear();
  return out;
}

namespace {

constexpr uint8_t kNewTable = 52, kCopyTable = 53, kNewFunction = 51, kCdata = 40, kClose = 50, kReturn = 76;
constexpr unsigned kNext = 0x8000;  // a jump to the next instruction

std::string uleb(size_t value) {
  std::string out;
  for (; value >= 128; value >>= 7) out += char(value | 128);
  return out + char(value);
}

std::string word(uint8_t op, uint8_t a, unsigned d) { return {char(op), char(a), char(d & 255), char(d >> 8)}; }

// Returns the dump of a function with one instruction, which sets register 0, and a return of it.
std::string dump_function(const Dump& from, const std::string& before, const std::string& instruction,
                          const std::string& constant, unsigned registers, unsigned upvalues) {
  std::string body = {char(constant.empty() ? 0 : 1), 0, char(registers), char(upvalues)};
  body += uleb(constant.empty() ? 0 : 1) + uleb(0) + uleb(3);
  if (!from.stripped) body += uleb(0);
  body += instruction + word(kClose, 0, kNext) + word(kReturn, 0, 2) + std::string(2 * upvalues, '\0') + constant;
  return from.header + before + uleb(body.size()) + body + uleb(0);
}

}  // namespace

std::string dump_maker(const Dump& from, const Constant& k) {
  const uint8_t op = k.kind == kChild ? kNewFunction : k.kind == kTable ? kCopyTable : kCdata;
  std::string before;
  unsigned registers = 8, upvalues = 0;
  if (k.kind == kChild) {
    const Prototype& child = from.prototypes[k.child];
    before = from.bytes.substr(child.from, child.to - child.from);
    for (uint16_t captured : child.upvalues) {
      unsigned& room = captured & Prototype::kLocal ? registers : upvalues;
      room = std::max(room, unsigned(captured & 0xff) + 1);
    }
  }
  return dump_function(from, before, word(op, 0, 0), k.text, registers, upvalues);
}

std::string dump_new_table(const Dump& from, unsigned d) {
  return dump_function(from, "", word(kNewTable, 0, d), "", 8, 0);
}

}  // namespace pg::vm
