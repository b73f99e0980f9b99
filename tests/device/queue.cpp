#include "queue.h"

#include <cstdio>
#include <cstdlib>
#include <deque>
#include <exception>
#include <mutex>
#include <random>
#include <vector>

#include "tensor/device_table.h"

namespace queue {
namespace {

// A failure is thrown only once, even if several streams depend on it.
struct Failure {
  std::exception_ptr error;
  const char* place;
  bool thrown = false;
};

struct Stream;

// One recording of an event.
struct Mark {
  std::shared_ptr<Stream> stream;
  bool reached = false;
  std::shared_ptr<Failure> failure;
};

struct Task {
  std::function<void()> work;
  const char* place = nullptr;
  bool always = false;
  std::shared_ptr<Mark> reaches, after;  // the mark that it records, the mark that it waits for
};

using Piece = std::vector<Task>;
using Program = std::vector<Piece>;

struct Stream : std::enable_shared_from_this<Stream> {
  std::deque<Task> tasks;
  std::shared_ptr<Failure> failure;
  std::unique_ptr<Piece> captured;  // the piece that is being captured
  bool destroyed = false;           // is removed when its work is done
};

struct Event {
  std::shared_ptr<Mark> mark;  // the last recording
};

struct Queues {
  Queues() {
    const char* given = std::getenv("PERIGEE_TEST_DEVICE_SEED");
    const unsigned seed = given ? unsigned(std::strtoul(given, nullptr, 10)) : std::random_device()();
    if (!given) std::fprintf(stderr, "test_device: PERIGEE_TEST_DEVICE_SEED=%u\n", seed);
    random.seed(seed);
  }
  std::mutex lock;
  std::vector<std::shared_ptr<Stream>> streams;
  std::mt19937 random;
};
Queues& queues();

// Frees at the exit of the process what no test waited for. Other work is dropped: it may use what the host's kernels
// keep per thread, which is gone by then.
void release_the_rest() {
  const std::lock_guard hold(queues().lock);
  for (const auto& s : queues().streams)
    for (const Task& task : std::exchange(s->tasks, {}))
      if (task.always) task.work();
}

Queues& queues() {
  static Queues* instance = [] {
    std::atexit(release_the_rest);
    return new Queues;
  }();
  return *instance;
}

void (*before_work)() = nullptr;
void (*after_work)() = nullptr;
struct Around {
  Around() {
    if (before_work) before_work();
  }
  ~Around() {
    if (after_work) after_work();
  }
  Around(const Around&) = delete;
};

bool ready(const Stream& s) { return !s.tasks.empty() && (!s.tasks.front().after || s.tasks.front().after->reached); }

void perform(Stream& s) {
  const Task task = std::move(s.tasks.front());
  s.tasks.pop_front();
  if (task.after && task.after->failure && !s.failure) s.failure = task.after->failure;
  if (task.work && (task.always || !s.failure)) try {
      task.work();
    } catch (...) {
      s.failure = std::make_shared<Failure>(Failure{std::current_exception(), task.place});
    }
  if (!task.reaches) return;
  task.reaches->reached = true;
  task.reaches->failure = s.failure;
}

// Runs tasks of any streams until done() returns true.
template <class F>
void perform_until(F done) {
  Queues& all = queues();
  if (done()) return;
  const Around around;
  while (!done()) {
    std::vector<Stream*> able;
    for (const auto& s : all.streams)
      if (ready(*s)) able.push_back(s.get());
    if (able.empty()) {
      std::fprintf(stderr, "test_device: streams wait for each other, or for an event that nobody records\n");
      std::abort();
    }
    perform(*able[all.random() % able.size()]);
    std::erase_if(all.streams, [](const auto& s) { return s->destroyed && s->tasks.empty(); });
  }
}

void raise(std::shared_ptr<Failure> failure) {
  if (!failure || std::exchange(failure->thrown, true)) return;
  try {
    std::rethrow_exception(failure->error);
  } catch (const pg::Error& error) {
    if (typeid(error) != typeid(pg::Error)) throw;
    throw pg::LateError(error.what(), failure->place);
  }
}

Program& program_at(void* program) { return *static_cast<Program*>(program); }
Stream& stream_at(void* stream) { return *static_cast<Stream*>(stream); }

}  // namespace

void* create_stream(int) {
  const std::lock_guard hold(queues().lock);
  return queues().streams.emplace_back(std::make_shared<Stream>()).get();
}

void destroy_stream(int, void* stream) {
  const std::lock_guard hold(queues().lock);
  stream_at(stream).destroyed = true;
  if (stream_at(stream).tasks.empty())
    std::erase_if(queues().streams, [=](const auto& s) { return s.get() == stream; });
}

void* create_event(int) { return new Event; }
void destroy_event(int, void* event) { delete static_cast<Event*>(event); }

void record(int, void* stream, void* event) {
  const std::lock_guard hold(queues().lock);
  auto& mark = static_cast<Event*>(event)->mark;
  mark = std::make_shared<Mark>(Mark{stream_at(stream).shared_from_this(), false, nullptr});
  Task task;
  task.reaches = mark;
  stream_at(stream).tasks.push_back(std::move(task));
}

void follow(int, void* stream, void* event) {
  const std::lock_guard hold(queues().lock);
  Task task;
  task.after = static_cast<Event*>(event)->mark;
  stream_at(stream).tasks.push_back(std::move(task));
}

void await(int, void* event) {
  const std::lock_guard hold(queues().lock);
  const std::shared_ptr<Mark> mark = static_cast<Event*>(event)->mark;
  perform_until([&] { return mark->reached; });
  if (mark->failure && mark->stream->failure == mark->failure) mark->stream->failure = nullptr;
  raise(mark->failure);
}

void synchronize(int, void* stream) {
  const std::lock_guard hold(queues().lock);
  perform_until([&] { return stream_at(stream).tasks.empty(); });
  raise(std::exchange(stream_at(stream).failure, nullptr));
}

void add(void* stream, std::function<void()> work, const char* place, bool always) {
  const std::lock_guard hold(queues().lock);
  Stream& s = stream_at(stream);
  Task task{std::move(work), place, always, nullptr, nullptr};
  if (s.captured)
    s.captured->push_back(std::move(task));
  else
    s.tasks.push_back(std::move(task));
}

void* create_program(int) { return new Program; }

void begin_capture(int, void* stream, void*) {
  const std::lock_guard hold(queues().lock);
  stream_at(stream).captured = std::make_unique<Piece>();
}

void end_capture(int, void* stream, void* program, size_t piece) {
  const std::lock_guard hold(queues().lock);
  const std::unique_ptr<Piece> work = std::move(stream_at(stream).captured);
  Program& pieces = program_at(program);
  if (piece == pg::kNoPiece) return;
  if (piece > pieces.size()) std::abort();
  if (piece == pieces.size()) pieces.emplace_back();
  pieces[piece] = std::move(*work);
}

bool launch(int, void* stream, void* program) {
  const std::lock_guard hold(queues().lock);
  for (const Piece& piece : program_at(program))
    for (const Task& task : piece) stream_at(stream).tasks.push_back(task);
  return true;
}

void run_now(void* program) {
  for (const Piece& piece : program_at(program))
    for (const Task& task : piece) task.work();
}

void destroy_program(int, void* program) { delete &program_at(program); }

void* copy_program(void* program) { return new Program(program_at(program)); }

size_t tasks_of(void* program) {
  size_t count = 0;
  for (const Piece& piece : program_at(program)) count += piece.size();
  return count;
}

void around_work(void (*before)(), void (*after)()) {
  before_work = before;
  after_work = after;
}

void drain() {
  const std::lock_guard hold(queues().lock);
  perform_until([] {
    for (const auto& s : queues().streams)
      if (!s->tasks.empty()) return false;
    return true;
  });
}

}  // namespace queue
