// Values that pass between the host and a state. All functions run inside in_state.
#pragma once
#include <string_view>
#include <vector>

#include "vm/host/state.h"

namespace pg::host {

void push_value(perigee_state& state, const perigee_value& value);

// A value for the host. It owns references until release().
class HandedOut {
 public:
  HandedOut() = default;
  HandedOut(HandedOut&&) = default;

  // Reads the value at stack index i.
  void read(perigee_state& state, int i);
  perigee_value release();

 private:
  perigee_value value_ = {};
  Ref<perigee_tensor> tensor_;
  Ref<perigee_model> model_;
};

// Reads `count` values from stack index i on.
std::vector<HandedOut> read_values(perigee_state& state, int i, size_t count);

// Ends the life of the strings that were handed out.
void forget_strings(lua_State* L);

// Pushes the value of the path, or, with `parent`, the table that holds it and its last name.
void push_path(lua_State* L, std::string_view path, bool parent);

// Pushes the function, or another value that can be called. Throws NOT_FOUND if there is none. `caller` is the name in
// messages.
void push_function(lua_State* L, const char* caller, const char* path);

}  // namespace pg::host
