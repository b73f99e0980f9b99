#include "vm/pattern.h"

#include <cstring>
#include <utility>

#include "tensor/work_meter.h"

namespace pg::vm {
namespace {

constexpr size_t kPollSteps = 1 << 14;

unsigned char byte_of(char c) { return static_cast<unsigned char>(c); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_lower(char c) { return c >= 'a' && c <= 'z'; }
bool is_upper(char c) { return c >= 'A' && c <= 'Z'; }
bool is_letter(char c) { return is_lower(c) || is_upper(c); }
bool is_graphic(char c) { return c > ' ' && c < 127; }
bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
bool is_control(char c) { return byte_of(c) < 32 || c == 127; }
bool is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

// Whether the byte is in the class that a letter after % names; other characters stand for themselves.
bool in_class(char c, char name) {
  const auto found = [&]() -> bool {
    switch (name | 0x20) {
      case 'a':
        return is_letter(c);
      case 'c':
        return is_control(c);
      case 'd':
        return is_digit(c);
      case 'g':
        return is_graphic(c);
      case 'l':
        return is_lower(c);
      case 'p':
        return is_graphic(c) && !is_letter(c) && !is_digit(c);
      case 's':
        return is_space(c);
      case 'u':
        return is_upper(c);
      case 'w':
        return is_letter(c) || is_digit(c);
      case 'x':
        return is_hex(c);
      default:
        return c == 0;
    }
  };
  if (!is_letter(name) || !std::strchr("acdglpsuwxz", name | 0x20)) return c == name;
  return found() != is_upper(name);
}

// See PatternMatch::is_in_set.
bool in_set(char c, const char* p, const char* last) {
  const bool inverse = p[1] == '^';
  for (p += inverse ? 2 : 1; p < last; ++p) {
    if (*p == '%') {
      if (in_class(c, *++p)) return !inverse;
    } else if (p + 2 < last && p[1] == '-') {
      if (byte_of(*p) <= byte_of(c) && byte_of(c) <= byte_of(p[2])) return !inverse;
      p += 2;
    } else if (*p == c) {
      return !inverse;
    }
  }
  return inverse;
}

}  // namespace

void spend(lua_State* L, size_t instructions) {
  WorkMeter* const meter = WorkMeter::current;
  if (!meter) return;
  meter->done += instructions;
  if (meter->must_end()) luaL_error(L, "interrupted");
}

PatternMatch::PatternMatch(lua_State* L, std::string_view subject, std::string_view pattern)
    : L_(L),
      begin_(subject.data()),
      end_(begin_ + subject.size()),
      pattern_end_(pattern.data() + pattern.size()),
      pattern_(pattern.data()) {}

void PatternMatch::step(size_t n) {
  steps_ += n;
  if (steps_ - polled_ < kPollSteps) return;
  settle();
  if (steps_ > kMaxSteps) luaL_error(L_, "the match takes more than %d steps", int(kMaxSteps));
}

void PatternMatch::settle() { spend(L_, (steps_ - std::exchange(polled_, steps_)) / kStepsOfAnInstruction); }

const char* PatternMatch::at(const char* place) {
  count_ = depth_ = 0;
  return match(place, pattern_);
}

// The end of a set that begins at `p`, after its closing bracket.
const char* PatternMatch::set_end(const char* p) {
  const char* const begin = p;
  p += p + 1 < pattern_end_ && p[1] == '^' ? 2 : 1;
  bool first = true, closed = false;
  for (; p < pattern_end_ && !closed; ++p, first = false) {
    closed = *p == ']' && !first;
    if (*p == '%') ++p;
  }
  scan(size_t(p - begin));
  if (closed) return p;
  settle();
  luaL_error(L_, "malformed pattern (missing ']')");
  return p;
}

// `p`: the opening bracket; `last`: the closing one.
bool PatternMatch::is_in_set(char c, const char* p, const char* last) {
  scan(size_t(last - p));
  return in_set(c, p, last);
}

const char* PatternMatch::item_end(const char* p) {
  if (*p == '[') return set_end(p);
  if (*p != '%') return p + 1;
  if (p + 1 == pattern_end_) luaL_error(L_, "malformed pattern (ends with '%%')");
  return p + 2;
}

bool PatternMatch::fits(const char* s, const char* p, const char* item_end) {
  if (s >= end_) return false;
  if (*p == '.') return true;
  if (*p == '%') return in_class(*s, p[1]);
  return *p == '[' ? is_in_set(*s, p, item_end - 1) : *p == *s;
}

const char* PatternMatch::longest(const char* s, const char* p, const char* item_end) {
  const char* last = s;
  while (fits(last, p, item_end)) step(), ++last;
  for (; last >= s; --last)
    if (const char* found = match(last, item_end + 1)) return found;
  return nullptr;
}

const char* PatternMatch::shortest(const char* s, const char* p, const char* item_end) {
  for (;; ++s) {
    if (const char* found = match(s, item_end + 1)) return found;
    if (!fits(s, p, item_end)) return nullptr;
  }
}

const char* PatternMatch::open(const char* s, const char* p, ptrdiff_t kind) {
  if (count_ == kMaxCaptures) luaL_error(L_, "too many captures");
  captures_[count_++] = {s, kind};
  const char* found = match(s, p);
  if (!found) --count_;
  return found;
}

const char* PatternMatch::close(const char* s, const char* p) {
  int i = count_ - 1;
  while (i >= 0 && captures_[i].size != kOpen) --i;
  if (i < 0) luaL_error(L_, "invalid pattern capture");
  captures_[i].size = s - captures_[i].begin;
  const char* found = match(s, p);
  if (!found) captures_[i].size = kOpen;
  return found;
}

// %bxy; p: at the b.
const char* PatternMatch::balanced(const char* s, const char* p) {
  if (p + 2 >= pattern_end_) luaL_error(L_, "malformed pattern (missing arguments to '%%b')");
  const char first = p[1], last = p[2];
  if (s >= end_ || *s != first) return nullptr;
  size_t inside = 1;
  for (++s; s < end_; ++s) {
    step();
    if (*s == last) {
      if (--inside == 0) return s + 1;
    } else if (*s == first) {
      ++inside;
    }
  }
  return nullptr;
}

const char* PatternMatch::same_as_capture(const char* s, int i) {
  if (i < 0 || i >= count_ || captures_[i].size < 0) luaL_error(L_, "invalid capture index");
  const size_t size = size_t(captures_[i].size);
  step();
  scan(size);
  return size_t(end_ - s) >= size && !std::memcmp(s, captures_[i].begin, size) ? s + size : nullptr;
}

// The items that are no single characters. Sets `done` if `p` was one. Returns where the subject goes on, with p after
// the item; or null if it does not match.
const char* PatternMatch::special(const char* s, const char*& p, bool& done) {
  done = *p == '%' && p + 1 < pattern_end_ && (p[1] == 'b' || p[1] == 'f' || is_digit(p[1]));
  if (!done) return s;
  const char kind = p[1];
  if (kind == 'b') {
    const char* found = balanced(s, p + 1);
    p += 4;
    return found;
  }
  if (kind != 'f') {
    p += 2;
    return same_as_capture(s, kind - '1');
  }
  p += 2;
  if (p >= pattern_end_ || *p != '[') luaL_error(L_, "missing '[' after '%%f' in pattern");
  const char* const last = set_end(p) - 1;
  const char before = s == begin_ ? '\0' : s[-1], here = s < end_ ? *s : '\0';
  const bool found = !is_in_set(before, p, last) && is_in_set(here, p, last);
  p = last + 1;
  return found ? s : nullptr;
}

const char* PatternMatch::match(const char* s, const char* p) {
  struct Depth {
    int& depth;
    ~Depth() { --depth; }
  } depth{++depth_};
  if (depth_ > kMaxDepth) luaL_error(L_, "pattern too complex");
  for (;;) {
    step();
    if (p == pattern_end_) return s;
    if (*p == '(') return p + 1 < pattern_end_ && p[1] == ')' ? open(s, p + 2, kPosition) : open(s, p + 1, kOpen);
    if (*p == ')') return close(s, p + 1);
    if (*p == '$' && p + 1 == pattern_end_) return s == end_ ? s : nullptr;
    bool done = false;
    const char* next = special(s, p, done);
    if (!next) return nullptr;
    if (done) {
      s = next;
      continue;
    }
    const char* const after = item_end(p);
    const char suffix = after < pattern_end_ ? *after : '\0';
    const bool here = fits(s, p, after);
    if (suffix == '*') return longest(s, p, after);
    if (suffix == '+') return here ? longest(s + 1, p, after) : nullptr;
    if (suffix == '-') return shortest(s, p, after);
    if (suffix == '?') {
      if (here)
        if (const char* found = match(s + 1, after + 1)) return found;
      p = after + 1;
      continue;
    }
    if (!here) return nullptr;
    ++s;
    p = after;
  }
}

void PatternMatch::push_capture(int i, const char* first, const char* last) {
  if (i >= count_) {
    if (i > 0) luaL_error(L_, "invalid capture index");
    lua_pushlstring(L_, first, size_t(last - first));
    return;
  }
  const Capture& capture = captures_[i];
  if (capture.size == kOpen) luaL_error(L_, "unfinished capture");
  if (capture.size == kPosition)
    lua_pushinteger(L_, capture.begin - begin_ + 1);
  else
    lua_pushlstring(L_, capture.begin, size_t(capture.size));
}

int PatternMatch::push_captures(const char* first, const char* last) {
  const int n = count_ == 0 && first ? 1 : count_;
  luaL_checkstack(L_, n, "too many captures");
  for (int i = 0; i < n; ++i) push_capture(i, first, last);
  return n;
}

}  // namespace pg::vm
