// Streams that do their work late: nothing runs before the host waits. Then tasks run in a random order that respects
// streams and events.
#pragma once
#include <cstddef>
#include <functional>
#include <memory>

namespace queue {

void* create_stream(int index);
void destroy_stream(int index, void* stream);
void* create_event(int index);
void destroy_event(int index, void* event);
void record(int index, void* stream, void* event);
void follow(int index, void* stream, void* event);
void await(int index, void* event);
void synchronize(int index, void* stream);

// `place`: LateError::place. Work after a failure is dropped unless `always` is set.
void add(void* stream, std::function<void()> work, const char* place = nullptr, bool always = false);
// Programs: work that each launch queues again, in pieces.
void* create_program(int index);
void begin_capture(int index, void* stream, void* program);
void end_capture(int index, void* stream, void* program, size_t piece);
bool launch(int index, void* stream, void* program);
void run_now(void* program);  // from work of a stream
void destroy_program(int index, void* program);
void* copy_program(void* program);
size_t tasks_of(void* program);

// What is called before and after work runs on the host's thread.
void around_work(void (*before)(), void (*after)());
// Runs all work of all streams. A failure is thrown later, to the caller that waits for its stream.
void drain();

}  // namespace queue
