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

#include "tensor/cpu/isa.h"
#include "tensor/cpu/pointwise/native_assembler.h"
#include "tensor/settings.h"

namespace pg::cpu {
namespace {

constexpr size_t kMostBytes = 1 << 16;  // of the code of a chain
constexpr size_t kFewestSteps = 2;      // of a run: one step is as fast as it is
constexpr size_t kLine = 64;            // bytes

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
    if (to - from < kFewestSteps + size_t(ends)) return;
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
    try {
      code.write(graph, *where, to - from, ends);
    } catch (const Xbyak::Error&) {  // the buffer is full: the rest stays steps
      return;
    }
    entries_.push_back({from, used_});
    used_ += (code.getSize() + kLine - 1) / kLine * kLine;
  }

  const std::vector<Step>& steps_;
  const std::unique_ptr<uint8_t[]> buffer_;
  std::vector<Pages::Entry> entries_;
  size_t used_ = kLine;  // sanitizers read what is before a function
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
  // Makes it without the lock; of two threads that make the same, the first one's is kept.
  template <class Make>
  Code get(std::string key, Make make) {
    {
      const std::lock_guard hold(lock_);
      if (const auto found = codes_.find(key); found != codes_.end()) return found->second;
    }
    Code code = make();
    const std::lock_guard hold(lock_);
    if (codes_.size() >= kMost) std::erase_if(codes_, [](const auto& entry) { return entry.second.use_count() <= 1; });
    return codes_.size() < kMost ? codes_.try_emplace(std::move(key), code).first->second : code;
  }

 private:
  static constexpr size_t kMost = 512;
  std::mutex lock_;
  std::map<std::string, Code> codes_;
};

// Lanes of a vector of the steps, whose code may have been compiled for less than the machine has; 0: no code for it.
int lanes() {
  static const int lanes = [] {
    if (!switched_on("PERIGEE_NATIVE", true)) return 0;
    const int64_t vector = chain_block() / kBlockVectors;
    if (vector == 16 && isa() >= Isa::kAvx512) return 16;
    return vector == 8 && isa() >= Isa::kAvx2 ? 8 : 0;
  }();
  return lanes;
}

}  // namespace

std::shared_ptr<const NativeCode> compile_native(std::vector<Step>& steps) {
  if (lanes() == 0) return nullptr;
  static Cache& cache = *new Cache;
  const Code code = cache.get(key_of(steps), [&] { return Compiler(steps, lanes() == 16).compile(); });
  if (code) code->put_into(steps);
  return code;
}

}  // namespace pg::cpu

#else

namespace pg::cpu {
std::shared_ptr<const NativeCode> compile_native(std::vector<Step>&) { return nullptr; }
}  // namespace pg::cpu

#endif
