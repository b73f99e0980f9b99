// Running chunks of Lua from files, standard input and the command line.
#pragma once
#include <lua.hpp>

#include <string>

namespace pg::repl {

// How errors are told: with the program's name and every frame, or as at the prompt, whose own chunks are no news.
enum class Style { kScript, kPrompt };

// Calls the function below `args` arguments on the stack; leaves its results there and answers true, or prints the
// error with a traceback of the script's frames to standard error, pops everything and answers false.
bool run_function(lua_State* L, int args, Style style = Style::kScript);

// Both run a chunk; the arguments of `...` are taken from the stack (the topmost `args` values).
bool run_text(lua_State* L, const std::string& text, const char* chunk_name);
bool run_file(lua_State* L, const char* path, int args);  // nullptr: standard input

// Calls require(name), for -l.
bool run_module(lua_State* L, const std::string& name);

// Makes the folder of the script the first place where `require` looks.
void add_script_folder(lua_State* L, const std::string& script);

// Whether a chunk of this source (lua_Debug::source) is part of the library.
bool is_library_source(const char* source);

// For signal handlers: says on standard error that the script was interrupted, at `position` ("file:line") or where the
// frames of L say; both may be null. The stack of L must be at rest.
void write_interrupted(lua_State* L, const char* position);

// Prints the text to standard error.
void report(const char* text, Style style = Style::kScript);

}  // namespace pg::repl
