// Tracebacks of errors that pass through the library. The library catches errors to restore its state and raises them
// again, which loses the frames of the script. So each of its protected calls has a message handler that stores the
// frames at the place of the error. The program prints the stored frames of an error that was raised again.
#pragma once
#include <lua.hpp>

#include <string>
#include <vector>

namespace pg::vm {

class State;

struct ScriptFrame {
  std::string place;         // "file:line"
  std::string what;          // "in function 'f'"
  bool prompt_line = false;  // whether it is a line that was typed at the prompt
};

struct Traceback {
  std::vector<ScriptFrame> frames;  // of the script, innermost first
  size_t gap = 0;                   // frames are left out before this one; 0: none are
};

// The error whose frames are stored. There is one per Lua state.
struct StoredError {
  std::string text;          // the latest text of the error
  Traceback traceback;       // where it was raised
  const void* by = nullptr;  // the function that is raising it again
};

// Makes tracebacks call a function a main chunk that has been compiled as a function's body. Pops a mark, which is not
// nil, and the function below it.
void mark_main_chunk(lua_State* L);
// Pops a function. Pushes its mark and returns true if it has one.
bool push_mark(lua_State* L);

// Whether a chunk with this source (lua_Debug::source) belongs to the library.
bool is_library_source(const char* source);
// Whether it is the interpreter of traces, which runs code of scripts.
bool is_interpreter_source(const char* source);

// The traceback of the error at the stack index, in a message handler: the stored one if the error was raised again.
Traceback traceback_of(lua_State* L, int error);

// Pushes the text of the error at the stack index: that of its __tostring, or "(error object is a T value)" where it
// has none or that fails.
void push_error_text(lua_State* L, int error);

// lua_pcall with the handler that stores the frames. Other messages than strings pass unchanged too.
int protected_call(lua_State* L, int arguments, int results);

// To call before the running C function raises the error with this text again.
void note_reraise(lua_State* L, State& state, const std::string& text);
void note_reraise(lua_State* L, State& state);  // the error on top of the stack

// Adds core.keep_traceback, the handler for xpcall, and core.reraise. Stores the former for protected_call.
void open_traceback(lua_State* L, State& state);

// See introspect.set_interpreter. Takes two values from the top of the stack: the function of the interpreter that runs
// interpreted frames, and the one that lists them.
void set_interpreted_frames(lua_State* L);

}  // namespace pg::vm
