// Streams and copies as the core uses them: one stream per device and runtime, and uploads through a ring of pinned
// blocks.
#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <mutex>
#include <optional>
#include <unordered_set>

#include "tensor/device_table.h"
#include "tensor/op.h"
#include "tensor/runtime.h"

namespace pg {
namespace {

// Calls f, which waits for the device. A late error gets its position in the script in place of the op's name, if
// known.
template <class F>
void wait(F&& f) {
  try {
    f();
  } catch (const LateError& error) {
    if (!error.place) throw Error(error.what());
    const std::string_view text = error.what();
    const size_t name = name_length(text);
    throw PositionedError(fmt::format("{}{}", error.place, text.substr(name ? name + 2 : 0)));
  }
}

class Event {
 public:
  Event(const DeviceTable& table, int index) : table_(table), index_(index), event_(table.create_event(index)) {}
  ~Event() { table_.destroy_event(index_, event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  void record(void* stream) const { table_.record(index_, stream, event_); }
  void await() const {
    wait([&] { table_.await(index_, event_); });
  }
  void* get() const { return event_; }

 private:
  const DeviceTable& table_;
  int index_;
  void* event_;
};

// A ring of pinned memory blocks for uploads.
class UploadRing {
 public:
  UploadRing(const DeviceTable& table, int index, void* stream) : table_(table), index_(index), stream_(stream) {
    for (Block& block : blocks_) {
      auto* data = static_cast<char*>(table.allocate_pinned(kBytes));
      if (!data) throw OutOfMemory("out of memory: no pinned memory for uploads");
      block.data.reset(data, [&table](char* p) { table.release_pinned(p, kBytes); });
      block.done.emplace(table, index);
    }
  }

  void upload(void* to, const void* from, size_t bytes) {
    const std::lock_guard hold(lock_);
    for (size_t at = 0; at < bytes; at += kBytes) {
      Block& block = blocks_[next_];
      if (block.used) block.done->await();
      const size_t part = std::min(kBytes, bytes - at);
      std::memcpy(block.data.get(), static_cast<const char*>(from) + at, part);
      table_.copy_in(index_, stream_, static_cast<char*>(to) + at, block.data.get(), part);
      block.done->record(stream_);
      block.used = true;
      next_ = (next_ + 1) % blocks_.size();
    }
  }

 private:
  static constexpr size_t kBytes = size_t(256) << 10;
  struct Block {
    std::shared_ptr<char> data;
    std::optional<Event> done;
    bool used = false;
  };
  const DeviceTable& table_;
  int index_;
  void* stream_;
  std::mutex lock_;
  std::array<Block, 8> blocks_;
  size_t next_ = 0;
};

// A stream of a device.
class Stream {
 public:
  Stream(const DeviceTable& table, int index) : table_(table), index_(index), stream_(table.create_stream(index)) {}
  ~Stream() { table_.destroy_stream(index_, stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  void* get() const { return stream_; }

 private:
  const DeviceTable& table_;
  int index_;
  void* stream_;
};

// The stream and the upload buffers of one device in one runtime.
struct Work {
  explicit Work(Device device)
      : table(device_table(device)), index(device.index), owned(table, index), stream(owned.get()) {
    if (table.allocate_pinned) ring = std::make_unique<UploadRing>(table, index, stream);
  }
  ~Work() {
    try {
      table.synchronize(index, stream);  // queued uploads read the ring
    } catch (const std::exception&) {
      // nobody is left to handle a late error
    }
  }
  const DeviceTable& table;
  const int index;
  const Stream owned;
  void* const stream;
  std::unique_ptr<UploadRing> ring;  // null when the device has no pinned memory
};

// Those of a runtime, created on first use.
struct Works {
  std::atomic<Work*> all[kMaxDeviceKinds][kMaxDeviceIndex] = {};
  std::mutex lock;
  ~Works() {
    for (auto& kind : all)
      for (std::atomic<Work*>& work : kind) delete work.load(std::memory_order_acquire);
  }
};
PerRuntime<Works> works;

Work& work_of(Device device) {
  Works& mine = works.of(Runtime::current());
  std::atomic<Work*>& slot = mine.all[device.kind][device.index];
  if (Work* work = slot.load(std::memory_order_acquire)) return *work;
  const std::lock_guard hold(mine.lock);
  if (!slot.load(std::memory_order_relaxed)) slot.store(new Work(device), std::memory_order_release);
  return *slot.load(std::memory_order_relaxed);
}

}  // namespace

void* device_stream(Device device) { return work_of(device).stream; }

void upload(Device device, void* to, const void* from_host, size_t bytes) {
  if (bytes == 0) return;
  if (host_reads(device)) return void(std::memcpy(to, from_host, bytes));
  Work& work = work_of(device);
  if (work.ring) return work.ring->upload(to, from_host, bytes);
  work.table.copy_in(device.index, work.stream, to, from_host, bytes);
  synchronize(device);
}

void download(Device device, void* to_host, const void* from, size_t bytes) {
  if (bytes == 0) return;
  if (host_reads(device)) return void(std::memcpy(to_host, from, bytes));
  Work& work = work_of(device);
  work.table.copy_out(device.index, work.stream, to_host, from, bytes);
  synchronize(device);
}

void copy_within(Device device, void* to, const void* from, size_t bytes) {
  device_table(device).copy(device.index, stream_of(device), to, from, bytes);
}

// Between two devices of one kind the copy waits for the work that produces the bytes, and later work of the source
// waits for the copy.
void copy_across(Device to_device, void* to, Device from_device, const void* from, size_t bytes) {
  if (bytes == 0) return;
  if (host_reads(from_device)) return upload(to_device, to, from, bytes);
  if (host_reads(to_device)) return download(from_device, to, from, bytes);
  if (to_device == from_device) return copy_within(to_device, to, from, bytes);
  Work &source = work_of(from_device), &target = work_of(to_device);
  if (to_device.kind != from_device.kind || !target.table.copy_between) {
    const auto host = std::make_unique<char[]>(bytes);
    download(from_device, host.get(), from, bytes);
    return upload(to_device, to, host.get(), bytes);
  }
  const Event made(source.table, from_device.index), copied(target.table, to_device.index);
  made.record(source.stream);
  target.table.follow(to_device.index, target.stream, made.get());
  target.table.copy_between(to_device.index, target.stream, to, from_device.index, from, bytes);
  copied.record(target.stream);
  source.table.follow(from_device.index, source.stream, copied.get());
}

void synchronize(Device device) {
  if (host_reads(device)) return;
  const Work& work = work_of(device);
  wait([&] { work.table.synchronize(device.index, work.stream); });
}

bool captures(Device device) { return device_table(device).begin_capture != nullptr; }
bool has_conditions(Device device) { return device_table(device).nest != nullptr; }

void Recording::begin() {
  device_table(device_).begin_capture(device_.index, stream_, program_);
  open_ = true;
}

void Recording::end(size_t piece) {
  open_ = false;
  device_table(device_).end_capture(device_.index, stream_, program_, piece);
}

void Recording::nest(When when, const void* flag, FunctionRef<void()> queue) {
  end(next_++);
  void* const outer = program_;
  const size_t next = next_;
  program_ = device_table(device_).nest(device_.index, outer, next, when, flag);
  next_ = 0;
  begin();
  queue();
  end(next_);
  program_ = outer;
  next_ = next + 1;
  begin();
}

CapturedWork::CapturedWork(Device device) : device_(device) {
  const DeviceTable& table = device_table(device);
  program_ = table.create_program(device.index);
  try {
    stream_ = table.create_stream(device.index);
  } catch (...) {
    table.destroy_program(device.index, program_);
    throw;
  }
}

CapturedWork::~CapturedWork() {
  const DeviceTable& table = device_table(device_);
  table.destroy_program(device_.index, program_);
  table.destroy_stream(device_.index, stream_);
}

void CapturedWork::capture(size_t piece, FunctionRef<void(Recording&)> queue, bool nests) {
  const DeviceTable& table = device_table(device_);
  Recording recording(device_, stream_,
                      nests ? table.nest(device_.index, program_, piece, When::kOnce, nullptr) : program_);
  recording.next_ = nests ? 0 : piece;
  recording.begin();
  try {
    queue(recording);
  } catch (...) {
    if (recording.open_) recording.end(kNoPiece);
    throw;
  }
  recording.end(recording.next_);
}

bool CapturedWork::launch() const { return device_table(device_).launch(device_.index, stream_of(device_), program_); }

const char* kept_place(const std::string& start) {
  static std::mutex lock;
  static auto* all = new std::unordered_set<std::string>;
  const std::lock_guard hold(lock);
  return all->insert(start).first->c_str();
}

bool has_nan(const View& v) {
  if (!is_float(v.dtype())) return false;
  const int64_t n = v.numel();
  std::vector<char> copy;
  const void* data = v.data;
  if (!host_reads(v.type->device)) {
    copy.resize(size_t(n) * size_t(size_of(v.dtype())));
    download(v.type->device, copy.data(), v.data, copy.size());
    data = copy.data();
  }
  return visit_dtype(v.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* elements = static_cast<const T*>(data);
    return std::any_of(elements, elements + n, [](T x) { return std::isnan(double(x)); });
  });
}

}  // namespace pg
