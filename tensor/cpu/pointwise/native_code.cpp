// Compiles the runs of chains, and keeps what it has compiled.
#include "tensor/cpu/pointwise/native.h"

#include "hwy/detect_compiler_arch.h"
#if HWY_ARCH_X86_64
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include "tensor/cpu/isa.h"
#include "tensor/cpu/pointwise/native_assembler.h"
#include "tensor/settings.h"

namespace pg::cpu {
namespace {

constexpr size_t kMostBytes = 1 << 16;  // of the code of a chain
constexpr size_t kShortestRun = 2;      // steps: one step is as fast as it is

// Code that can be run, and the steps whose block it is.
class Pages final : public NativeCode {
 public:
  struct Entry {
    size_t step, offset;
  };

  Pages(const uint8_t* code, size_t size, std::vector<Entry> entries) : size_(size), entries_(std::move(entries)) {
    void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return;
    std::memcpy(memory, code, size);
    data_ = static_cast<uint8_t*>(memory);
    if (::mprotect(memory, size, PROT_READ | PROT_EXEC) != 0) release();
  }
  Pages(const Pages&) = delete;
  ~Pages() override { release(); }

  // Whether the system allows generated code.
  bool ready() const { return data_ != nullptr; }

  void put_into(std::vector<Step>& steps) const {
    for (const Entry& e : entries_)
      steps[e.step].block = reinterpret_cast<Step::Code>(reinterpret_cast<uintptr_t>(data_ + e.offset));
  }

 private:
  void release() {
    if (data_) ::munmap(data_, size_);
    data_ = nullptr;
  }
  uint8_t* data_ = nullptr;
  size_t size_;
  std::vector<Entry> entries_;
};
using Code = std::shared_ptr<const Pages>;

class Compiler {
 public:
  Compiler(const std::vector<Step>& steps, bool wide)
      : steps_(steps), buffer_(std::make_unique_for_overwrite<uint8_t[]>(kMostBytes)), wide_(wide) {}

  // Returns null if no run repays it, or if code cannot be run.
  Code compile() {
    for (size_t begin = 0; begin < steps_.size();) {
      size_t chain = begin;
      while (steps_[chain].op != ChainOp::kEnd) ++chain;
      compile_chain(begin, chain + 1);
      begin = chain + 1;
    }
    if (entries_.empty()) return nullptr;
    auto pages = std::make_shared<Pages>(buffer_.get(), used_, std::move(entries_));
    return pages->ready() ? pages : nullptr;
  }

 private:
  void compile_chain(size_t begin, size_t end) {
    for (size_t at = begin; at < end;) {
      size_t stop = at;
      while (stop < end && is_native(steps_[stop])) ++stop;
      if (stop > at) compile_run(begin, end, at, stop);
      at = std::max(stop, at + 1);
    }
  }

  // Runs that need too many registers are halved.
  void compile_run(size_t chain, size_t end, size_t from, size_t to) {
    const bool ends = to > from && steps_[to - 1].op == ChainOp::kEnd;
    if (to - from < kShortestRun + size_t(ends)) return;
    const std::span<const Step> steps(steps_.data() + chain, end - chain);
    const NativeGraph graph = trace_native(steps, from - chain, to - chain);
    Assembler code(buffer_.get() + used_, kMostBytes - used_, wide_);
    const auto where = graph.nodes.empty() ? std::nullopt : assign_registers(graph, code.registers());
    if (!where) {
      const size_t middle = (from + to) / 2;
      compile_run(chain, end, from, middle);
      compile_run(chain, end, middle, to);
      return;
    }
    code.write(graph, *where, to - from, ends);
    entries_.push_back({from, used_});
    used_ += (code.getSize() + 63) / 64 * 64;
  }

  const std::vector<Step>& steps_;
  const std::unique_ptr<uint8_t[]> buffer_;
  std::vector<Pages::Entry> entries_;
  size_t used_ = 0;
  const bool wide_;
};

// What the code of steps depends on.
std::string key_of(const std::vector<Step>& steps) {
  std::string key;
  const auto add = [&](const auto& field) { key.append(reinterpret_cast<const char*>(&field), sizeof field); };
  for (const Step& s : steps) {
    add(s.op), add(s.params);
    add(s.a), add(s.a_mask), add(s.a_scalar);
    add(s.b), add(s.b_mask), add(s.b_scalar);
  }
  return key;
}

// The code of equal steps is shared: the updates of all weights of a network, and plans that are made again.
class Cache {
 public:
  template <class Make>
  Code get(std::string key, Make make) {
    const std::lock_guard hold(lock_);
    if (const auto found = codes_.find(key); found != codes_.end()) return found->second;
    if (codes_.size() >= kMost) std::erase_if(codes_, [](const auto& entry) { return entry.second.use_count() <= 1; });
    Code code = make();
    if (codes_.size() < kMost) codes_.emplace(std::move(key), code);
    return code;
  }

 private:
  static constexpr size_t kMost = 512;
  std::mutex lock_;
  std::map<std::string, Code> codes_;
};

bool allowed() {
  static const bool allowed = [] {
    const char* text = setting("PERIGEE_NATIVE");
    return isa() >= Isa::kAvx2 && !(text && std::string_view(text) == "0");
  }();
  return allowed;
}

}  // namespace

std::shared_ptr<const NativeCode> compile_native(std::vector<Step>& steps) {
  if (!allowed()) return nullptr;
  static Cache& cache = *new Cache;
  try {
    const Code code = cache.get(key_of(steps), [&] { return Compiler(steps, isa() == Isa::kAvx512).compile(); });
    if (code) code->put_into(steps);
    return code;
  } catch (const Xbyak::Error&) {  // more code than the buffer takes
    return nullptr;
  }
}

}  // namespace pg::cpu

#else

namespace pg::cpu {
std::shared_ptr<const NativeCode> compile_native(std::vector<Step>&) { return nullptr; }
}  // namespace pg::cpu

#endif
