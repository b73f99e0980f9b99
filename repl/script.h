// Running chunks of Lua from files, standard input and the command line.
#pragma once
#include <lua.hpp>

#include <string>

namespace pg::repl {

// The form of error reports: with the program's name and all frames, or without both the name and the prompt's own
// chunks.
enum class Style { kScript, kPrompt };

// Calls the function below `args` arguments on the stack. On success leaves its results there and returns true. On an
// error prints it with a traceback of the script's frames to standard error, pops everything and returns false.
bool run_function(lua_State* L, int args, Style style = Style::kScript);

// Both run a chunk. run_file passes the topmost `args` values of the stack as `...`.
bool run_text(lua_State* L, const std::string& text, const char* chunk_name);
bool run_file(lua_State* L, const char* path, int args);  // nullptr: standard input

// Calls require(name), for -l.
bool run_module(lua_State* L, const std::string& name);

// Makes `require` search the folder of the script first.
void add_script_folder(lua_State* L, const std::string& script);

// Safe in signal handlers: prints to standard error that the script was interrupted in the frames of L, whose stack
// must be consistent, or at `position` ("file:line"), behind which a message handler has no end. Both may be null.
void write_interrupted(lua_State* L, const char* position);

// Tells what the prompt runs next, for the source lines of errors.
void set_entry(const std::string& text);

// Prints the message of a syntax error on top of the stack, with the source line.
void report_entry_syntax(lua_State* L);

// Prints the text to standard error; at the prompt its first line is red where the terminal has colours.
void report(const char* text, Style style = Style::kScript);

}  // namespace pg::repl
