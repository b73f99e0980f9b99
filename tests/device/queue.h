// Streams whose work is done late: nothing runs before the host waits, and then in a random order that the streams and
// events allow.
#pragma once
#include <cstddef>
#include <functional>
#include <memory>

namespace queue {

void* create_stream(int index);
void* create_event(int index);
void destroy_event(int index, void* event);
void record(int index, void* stream, void* event);
void follow(int index, void* stream, void* event);
void await(int index, void* event);
void synchronize(int index, void* stream);

// `place`: of a LateError. Work that comes after a failure is dropped; with `always` it is done all the same.
void add(void* stream, std::function<void()> work, const char* place = nullptr, bool always = false);
// Programs: work that is queued again at each launch.
void begin_capture(int index, void* stream);
void* end_capture(int index, void* stream);
void launch(int index, void* stream, void* program);
void destroy_program(int index, void* program);

// Does all work of all streams; failures wait for who waits for the stream.
void drain();

}  // namespace queue
