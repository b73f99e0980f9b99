#include "vm/traceback.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "vm/bindings.h"

namespace pg::vm {
namespace {

constexpr size_t kFirstFrames = 12, kLastFrames = 10;  // the frames that a long traceback has
constexpr int kReraiseLevels = 8;                      // where the function that raises again may be

const RegistryKey kHandler;     // core.keep_traceback
const RegistryKey kRunner;      // the function that runs interpreted frames
const RegistryKey kListFrames;  // lists the interpreted frames

std::string describe_frame(const lua_Debug& frame, bool named) {
  if (named && *frame.namewhat && frame.name) return fmt::format("in function '{}'", frame.name);
  if (*frame.what == 'm') return "in main chunk";
  return fmt::format("in function <{}:{}>", frame.short_src, frame.linedefined);
}

// Collects the script's frames of a stack, with those that the interpreter of traces runs in Lua.
class Walk {
 public:
  explicit Walk(lua_State* L) : L_(L), room_(lua_checkstack(L, 24)) {
    if (!room_) return;
    kRunner.push(L);
    runner_ = lua_topointer(L, -1);
    lua_pop(L, 1);
  }

  Traceback collect() {
    Traceback out;
    const int levels = depth();
    int level = 0;
    for (; level < levels && out.frames.size() < kFirstFrames; ++level) add(level, out.frames);
    std::vector<ScriptFrame> last;  // outermost first
    int from = levels;
    while (from > level && last.size() < kLastFrames) {
      std::vector<ScriptFrame> some;
      if (!runs_interpreted(--from)) add(from, some);
      last.insert(last.end(), some.rbegin(), some.rend());
    }
    if (from > level && has_frames(level, from)) out.gap = out.frames.size();
    out.frames.insert(out.frames.end(), last.rbegin(), last.rend());
    shorten(out);
    return out;
  }

 private:
  // One call of the runner may have many frames.
  static void shorten(Traceback& t) {
    if (t.frames.size() <= kFirstFrames + kLastFrames + 1) return;
    t.frames.erase(t.frames.begin() + kFirstFrames, t.frames.end() - kLastFrames);
    t.gap = kFirstFrames;
  }

  // The number of levels of the stack.
  int depth() const {
    lua_Debug frame;
    int high = 1;
    while (lua_getstack(L_, high, &frame)) high *= 2;
    int low = high / 2;
    while (high - low > 1) {
      const int middle = low + (high - low) / 2;
      (lua_getstack(L_, middle, &frame) ? low : high) = middle;
    }
    return high;
  }

  bool has_frames(int first, int last) {
    lua_Debug frame;
    for (int level = first; level < last; ++level)
      if (lua_getstack(L_, level, &frame) && lua_getinfo(L_, "Sl", &frame) && is_script(frame)) return true;
    return false;
  }

  static bool is_script(const lua_Debug& frame) {
    return frame.currentline > 0 && !is_library_source(frame.source) && std::strncmp(frame.source, "@perigee ", 9);
  }

  // Whether the name of the function is the script's. The variables of the library that hold it are not shown.
  bool has_name(int level, const lua_Debug& frame) {
    lua_Debug caller;
    if (!lua_getstack(L_, level + 1, &caller) || !lua_getinfo(L_, "S", &caller)) return true;
    return !is_library_source(caller.source) || !std::strcmp(frame.namewhat, "method");
  }

  bool runs_interpreted(int level) {
    lua_Debug frame;
    if (!runner_ || !lua_getstack(L_, level, &frame) || !lua_getinfo(L_, "f", &frame)) return false;
    const bool found = lua_topointer(L_, -1) == runner_;
    lua_pop(L_, 1);
    return found;
  }

  void add(int level, std::vector<ScriptFrame>& frames) {
    lua_Debug frame;
    if (!lua_getstack(L_, level, &frame) || !lua_getinfo(L_, "Snl", &frame)) return;
    if (room_ && runs_interpreted(level)) return add_interpreted(frames);
    if (!is_script(frame)) return;
    const bool typed = *frame.what == 'm' && !std::strcmp(frame.source, "=stdin");
    frames.push_back({fmt::format("{}:{}", frame.short_src, frame.currentline),
                      describe_frame(frame, has_name(level, frame)), typed});
  }

  // Adds the interpreted frames that the next call of the runner has run. The list holds "file:line", text pairs, and
  // false after the last frame of each call.
  void add_interpreted(std::vector<ScriptFrame>& frames) {
    if (!interpreted_) interpreted_ = list_interpreted();
    for (; next_ < interpreted_->size(); ++next_) {
      const std::optional<ScriptFrame>& frame = (*interpreted_)[next_];
      if (!frame) break;
      frames.push_back(*frame);
    }
    ++next_;
  }

  std::vector<std::optional<ScriptFrame>> list_interpreted() {
    std::vector<std::optional<ScriptFrame>> out;
    const int top = lua_gettop(L_);
    kListFrames.push(L_);
    if (lua_isfunction(L_, -1) && !lua_pcall(L_, 0, 1, 0) && lua_istable(L_, -1)) {
      for (int i = 1, n = int(lua_objlen(L_, -1)); i <= n; ++i) {
        lua_rawgeti(L_, -1, i);
        if (lua_type(L_, -1) != LUA_TSTRING) {
          out.emplace_back();
          lua_pop(L_, 1);
          continue;
        }
        lua_rawgeti(L_, -2, ++i);
        const char *place = lua_tostring(L_, -2), *what = lua_tostring(L_, -1);
        out.push_back(ScriptFrame{place, what ? what : ""});
        lua_pop(L_, 2);
      }
    }
    lua_settop(L_, top);
    return out;
  }

  lua_State* L_;
  bool room_;
  const void* runner_ = nullptr;
  std::optional<std::vector<std::optional<ScriptFrame>>> interpreted_;
  size_t next_ = 0;
};

// Returns the text without "file:line: ".
std::string_view without_place(std::string_view text) {
  for (size_t at = text.find(':'); at != text.npos; at = text.find(':', at + 1)) {
    const size_t end = text.find_first_not_of("0123456789", at + 1);
    if (end != text.npos && end > at + 1 && text.substr(end, 2) == ": ") return text.substr(end + 2);
  }
  return text;
}

// Whether the text is that of the stored error. The library may have changed the place or added to the end.
bool is_stored(const StoredError& stored, std::string_view text) {
  if (stored.text.empty() && !text.empty()) return false;
  const std::string_view a = without_place(stored.text), b = without_place(text);
  return a.find(b) != a.npos || b.find(a) != b.npos;
}

// Whether one of the innermost functions is raising the stored error again.
bool is_raised_again(lua_State* L, const StoredError& stored, int error) {
  if (!stored.by || !lua_checkstack(L, 4)) return false;
  if (lua_type(L, error) == LUA_TSTRING && lua_tostring(L, error) != stored.text) return false;
  lua_Debug frame;
  for (int level = 0; level < kReraiseLevels && lua_getstack(L, level, &frame); ++level) {
    lua_getinfo(L, "f", &frame);
    const bool found = lua_topointer(L, -1) == stored.by;
    lua_pop(L, 1);
    if (found) return true;
  }
  return false;
}

std::string text_at(lua_State* L, int i) { return lua_type(L, i) == LUA_TSTRING ? lua_tostring(L, i) : ""; }

// keep_traceback(error) → error, the message handler. It stores the frames of an error that is new.
int keep_traceback(lua_State* L) {
  State* const state = state_of(L);
  if (!state) return lua_settop(L, 1), 1;
  StoredError& stored = state->stored_error;
  lua_settop(L, 1);
  try {
    if (!is_raised_again(L, stored, 1)) stored.traceback = Walk(L).collect();
    stored.text = text_at(L, 1);
  } catch (const std::bad_alloc&) {
    stored = {};
  }
  stored.by = nullptr;
  return 1;
}

// reraise(error) raises an error that the library has caught. Its traceback is that of the place where it was first
// raised.
int reraise(lua_State* L) {
  lua_settop(L, 1);
  if (State* const state = state_of(L)) note_reraise(L, *state);
  return lua_error(L);
}

}  // namespace

bool is_library_source(const char* source) { return std::strncmp(source, "@stdlib/", 8) == 0; }

Traceback traceback_of(lua_State* L, int error) {
  const StoredError& stored = find_state(L).stored_error;
  return is_raised_again(L, stored, error) ? stored.traceback : Walk(L).collect();
}

int protected_call(lua_State* L, int arguments, int results) {
  const int base = lua_gettop(L) - arguments;
  kHandler.push(L);
  const bool has_handler = lua_isfunction(L, -1);
  lua_insert(L, base);
  const int status = lua_pcall(L, arguments, results, has_handler ? base : 0);
  lua_remove(L, base);
  return status;
}

void note_reraise(lua_State* L, State& state, const std::string& text) {
  StoredError& stored = state.stored_error;
  stored.by = nullptr;
  lua_Debug frame;
  if (!is_stored(stored, text) || !lua_checkstack(L, 4) || !lua_getstack(L, 0, &frame)) return;
  lua_getinfo(L, "f", &frame);
  stored.by = lua_topointer(L, -1);
  lua_pop(L, 1);
  stored.text = text;
}

void note_reraise(lua_State* L, State& state) {
  try {
    note_reraise(L, state, text_at(L, -1));
  } catch (const std::bad_alloc&) {
    state.stored_error = {};
  }
}

void open_traceback(lua_State* L, State& state) {
  register_functions(L, state, {{"keep_traceback", keep_traceback}, {"reraise", reraise}});
  lua_getfield(L, -1, "keep_traceback");
  kHandler.set(L);
}

void set_interpreted_frames(lua_State* L) {
  kListFrames.set(L);
  kRunner.set(L);
}

}  // namespace pg::vm
