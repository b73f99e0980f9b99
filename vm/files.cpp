// Tensors in files.
#include "vm/args.h"
#include "vm/bindings.h"

namespace pg::vm {

void open_files(lua_State*, State&) {}

}  // namespace pg::vm
