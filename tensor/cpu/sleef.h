// Sleef, Debian's libsleef3, is loaded at its first use. Without it the same functions are those of libm, per element.
#pragma once

namespace pg::cpu {

// Returns the address of a function of Sleef, or null if the library is not there.
void* sleef_function(const char* name);

}  // namespace pg::cpu
