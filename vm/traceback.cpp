#include "vm/traceback.h"

#include <cstring>
#include <optional>

#include "vm/bindings.h"
#include "vm/call_depth.h"

namespace pg::vm {
namespace {

constexpr size_t kFirstFrames = 12, kLastFrames = 10;  // the frames that a long traceback has
constexpr int kReraiseLevels = 8;                      // where the function that raises again may be

const RegistryKey kHandler;     // core.keep_traceback
const RegistryKey kRunner;      // the function that runs interpreted frames
const RegistryKey kMainChunks;  // weak keys: functions that count as such; values: their marks
const RegistryKey kListFrames;  // lists the interpreted frames

std::string describe_frame(const lua_Debug& frame, bool main, bool named) {
  if (main) return "in main chunk";
  if (named && *frame.namewhat && frame.name) return fmt::format("in function '{}'", frame.name);
  return fmt::format("in function <{}:{}>", frame.short_src, frame.linedefined);
}

// Collects the script's frames of a stack, with those that the interpreter of traces runs in Lua.
class Walk {
 public:
  // of: the running coroutine, or one that has failed. skip: the calls of the runner whose frames are on the stack of a
  // coroutine that failed inside this one.
  explicit Walk(lua_State* L, lua_State* of, int skip = 0)
      : running_(L), L_(of), skip_(skip), room_(lua_checkstack(L, 24) && lua_checkstack(of, 4)) {
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

  // The number of calls of the runner on the stack.
  int count_runs() {
    int runs = 0;
    for (int level = 0, levels = depth(); level < levels; ++level) runs += runs_interpreted(level);
    return runs;
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

  static bool is_script(const lua_Debug& frame) { return frame.currentline > 0 && !is_library_source(frame.source); }

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

  bool is_main_chunk(int level) {
    lua_Debug frame;
    if (!room_ || !lua_getstack(L_, level, &frame) || !lua_getinfo(L_, "f", &frame)) return false;
    if (L_ != running_) lua_xmove(L_, running_, 1);
    if (!push_mark(running_)) return false;
    lua_pop(running_, 1);
    return true;
  }

  void add(int level, std::vector<ScriptFrame>& frames) {
    lua_Debug frame;
    if (!lua_getstack(L_, level, &frame) || !lua_getinfo(L_, "Snl", &frame)) return;
    if (room_ && runs_interpreted(level)) return add_interpreted(frames);
    if (!is_script(frame)) return;
    const bool main = *frame.what == 'm' || is_main_chunk(level), typed = main && !std::strcmp(frame.source, "=stdin");
    frames.push_back({fmt::format("{}:{}", frame.short_src, frame.currentline),
                      describe_frame(frame, main, has_name(level, frame)), typed});
  }

  // Adds the interpreted frames that the next call of the runner has run. The list holds "file:line", text pairs, and
  // false after the last frame of each call.
  void add_interpreted(std::vector<ScriptFrame>& frames) {
    if (!interpreted_) {
      interpreted_ = list_interpreted();
      for (; skip_ > 0 && next_ < interpreted_->size(); ++next_) skip_ -= !(*interpreted_)[next_];
    }
    for (; next_ < interpreted_->size(); ++next_) {
      const std::optional<ScriptFrame>& frame = (*interpreted_)[next_];
      if (!frame) break;
      frames.push_back(*frame);
    }
    ++next_;
  }

  std::vector<std::optional<ScriptFrame>> list_interpreted() {
    lua_State* const L = running_;
    std::vector<std::optional<ScriptFrame>> out;
    const int top = lua_gettop(L);
    kListFrames.push(L);
    if (lua_isfunction(L, -1) && !lua_pcall(L, 0, 1, 0) && lua_istable(L, -1)) {
      for (int i = 1, n = int(lua_objlen(L, -1)); i <= n; ++i) {
        lua_rawgeti(L, -1, i);
        if (lua_type(L, -1) != LUA_TSTRING) {
          out.emplace_back();
          lua_pop(L, 1);
          continue;
        }
        lua_rawgeti(L, -2, ++i);
        const char *place = lua_tostring(L, -2), *what = lua_tostring(L, -1);
        out.push_back(ScriptFrame{place, what ? what : ""});
        lua_pop(L, 2);
      }
    }
    lua_settop(L, top);
    return out;
  }

  lua_State *running_, *L_;
  int skip_;
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

// Returns the coroutine whose error coroutine.wrap is passing on, or null: the thread that its function holds.
lua_State* failed_coroutine(lua_State* L) {
  lua_Debug frame;
  if (!lua_checkstack(L, 4) || !lua_getstack(L, 1, &frame) || !lua_getinfo(L, "Sf", &frame)) return nullptr;
  lua_State* found = nullptr;
  if (*frame.what == 'C' && lua_getupvalue(L, -1, 1)) {
    found = lua_tothread(L, -1);
    lua_pop(L, 1);
  }
  lua_pop(L, 1);
  return found;
}

// The frames of the stack, with those of a coroutine that failed inside it. Its error has the place of the call in
// front.
Traceback collect(lua_State* L, const StoredError& stored, std::string_view text) {
  lua_State* const coroutine = failed_coroutine(L);
  Traceback outer = Walk(L, L, coroutine ? Walk(L, coroutine).count_runs() : 0).collect();
  if (!coroutine) return outer;
  const bool raised_again = stored.by && !stored.text.empty() && text.ends_with(stored.text);
  Traceback all = raised_again ? stored.traceback : Walk(L, coroutine).collect();
  if (!all.gap && outer.gap) all.gap = all.frames.size() + outer.gap;
  all.frames.insert(all.frames.end(), outer.frames.begin(), outer.frames.end());
  return all;
}

std::string text_at(lua_State* L, int i) { return lua_type(L, i) == LUA_TSTRING ? lua_tostring(L, i) : ""; }

// keep_traceback(error) → error, the message handler. It stores the frames of an error that is new.
int keep_traceback(lua_State* L) {
  State* const state = state_of(L);
  if (!state) return lua_settop(L, 1), 1;
  StoredError& stored = state->stored_error;
  lua_settop(L, 1);
  try {
    const std::string text = text_at(L, 1);
    if (!is_raised_again(L, stored, 1)) stored.traceback = collect(L, stored, text);
    stored.text = text;
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

void mark_main_chunk(lua_State* L) {
  kMainChunks.push_or_make(L, "k");
  lua_insert(L, -3);
  lua_rawset(L, -3);
  lua_pop(L, 1);
}

bool push_mark(lua_State* L) {
  kMainChunks.push_or_make(L, "k");
  lua_insert(L, -2);
  lua_rawget(L, -2);
  lua_remove(L, -2);
  if (!lua_isnil(L, -1)) return true;
  lua_pop(L, 1);
  return false;
}

bool is_library_source(const char* source) { return std::strncmp(source, "@stdlib/", 8) == 0; }

bool is_interpreter_source(const char* source) { return !std::strcmp(source, "@stdlib/hybrid/frames.lua"); }

void push_error_text(lua_State* L, int error) {
  const int i = error < 0 ? lua_gettop(L) + error + 1 : error, top = lua_gettop(L);
  if (lua_isstring(L, i)) return lua_pushvalue(L, i);
  if (luaL_getmetafield(L, i, "__tostring")) {
    lua_pushvalue(L, i);
    if (!lua_pcall(L, 1, 1, 0) && lua_isstring(L, -1)) return;
  }
  lua_settop(L, top);
  lua_pushfstring(L, "(error object is a %s value)", luaL_typename(L, i));
}

Traceback traceback_of(lua_State* L, int error) {
  const StoredError& stored = find_state(L).stored_error;
  return is_raised_again(L, stored, error) ? stored.traceback : collect(L, stored, text_at(L, error));
}

int protected_call(lua_State* L, int arguments, int results) {
  const int base = lua_gettop(L) - arguments;
  if (arguments < 0 || base < 1) throw Error("perigee: a function of the library got too few arguments");
  if (is_too_deep()) {
    lua_settop(L, base - 1);
    lua_pushliteral(L, "stack overflow (too many nested functions of the script)");
    return LUA_ERRRUN;
  }
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
