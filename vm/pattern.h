// Lua's patterns with a limit on the steps of a match.
#pragma once
#include <lua.hpp>

#include <cstddef>
#include <string_view>

namespace pg::vm {

// Counts `instructions` for the limits of the call. Raises a Lua error if the call must end.
void spend(lua_State* L, size_t instructions);

// Matches one pattern against one subject. Errors of the pattern are Lua errors.
class PatternMatch {
 public:
  PatternMatch(lua_State* L, std::string_view subject, std::string_view pattern);

  // Tries to match at this place of the subject. Returns the end of the match, or null.
  const char* at(const char* place);
  const char* begin() const { return begin_; }
  const char* end() const { return end_; }

  // Counts the last steps for the limits of the call. Call it when the work is done.
  void settle();

  // Pushes the captures of the last match from `first` to `last`, or the whole match if the pattern has none. Returns
  // their number.
  int push_captures(const char* first, const char* last);
  void push_capture(int i, const char* first, const char* last);

 private:
  static constexpr int kMaxCaptures = 32, kMaxDepth = 200;
  static constexpr ptrdiff_t kOpen = -1, kPosition = -2;
  static constexpr size_t kMaxSteps = 20'000'000, kStepsOfAnInstruction = 4, kBytesOfAStep = 8;
  struct Capture {
    const char* begin;
    ptrdiff_t size;
  };

  void step(size_t n = 1);
  void scan(size_t bytes) { step(bytes / kBytesOfAStep); }  // of a set or a capture; few cost nothing
  const char* match(const char* s, const char* p);
  const char* special(const char* s, const char*& p, bool& done);
  const char* item_end(const char* p);
  const char* set_end(const char* p);
  bool is_in_set(char c, const char* p, const char* last);
  bool fits(const char* s, const char* p, const char* item_end);
  const char* longest(const char* s, const char* p, const char* item_end);
  const char* shortest(const char* s, const char* p, const char* item_end);
  const char* open(const char* s, const char* p, ptrdiff_t kind);
  const char* close(const char* s, const char* p);
  const char* balanced(const char* s, const char* p);
  const char* same_as_capture(const char* s, int i);

  lua_State* L_;
  const char *begin_, *end_, *pattern_end_, *pattern_;
  Capture captures_[kMaxCaptures];
  int count_ = 0, depth_ = 0;
  size_t steps_ = 0, polled_ = 0;  // polled_: those that are counted for the limits of the call
};

}  // namespace pg::vm
