// AddressSanitizer marks for memory that must not be accessed. They do nothing in other builds.
#pragma once

#if __has_include(<sanitizer/asan_interface.h>)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(data, bytes) (void(data), void(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(data, bytes) (void(data), void(bytes))
#endif
