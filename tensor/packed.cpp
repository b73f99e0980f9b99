#include "tensor/packed.h"

#include <algorithm>
#include <atomic>

#include "tensor/error.h"
#include "tensor/op.h"
#include "tensor/parallel.h"
#include "tensor/runtime.h"

namespace pg {
namespace {

constexpr size_t kLimit = size_t(1) << 30;  // bytes of a runtime
constexpr size_t kEntries = 256;            // of PreparedCalls; a power of 2
constexpr int kMostForms = 4;               // of one buffer

struct Held {
  std::atomic<size_t> bytes{0};
};
PerRuntime<Held> held;

// A list of the packed forms of one buffer. Those that follow are older.
struct PackedForm final : Derived {
  PackedForm(std::shared_ptr<const PreparedKernel> kernel, const void* weight, std::unique_ptr<const PackedBytes> bytes)
      : kernel(std::move(kernel)), weight(weight), bytes(std::move(bytes)) {}
  ~PackedForm() override { delete next; }
  const std::shared_ptr<const PreparedKernel> kernel;
  const void* const weight;
  const std::unique_ptr<const PackedBytes> bytes;
  PackedForm* next = nullptr;
};

size_t hash_of(const KernelArgs& args) {
  size_t hash = reinterpret_cast<uintptr_t>(&args.op) >> 4;
  for (size_t i = 0; i < std::min<size_t>(args.in.size(), 2); ++i)
    for (int64_t size : args.in[i].shape()) hash = (hash ^ size_t(size)) * 0x9E3779B97F4A7C15u;
  return hash >> 32;
}

}  // namespace

std::unique_ptr<const PackedBytes> PackedBytes::allocate(size_t bytes) {
  std::atomic<size_t>& sum = held.of(Runtime::current()).bytes;
  if (sum + bytes > kLimit) return nullptr;
  auto made = std::make_unique<PackedBytes>();
  made->buffer_ = Buffer::allocate(Device{}, Bytes(bytes));
  sum += bytes;
  return made;
}

PackedBytes::~PackedBytes() {
  if (buffer_) held.of(buffer_->runtime()).bytes -= buffer_->bytes;
}

size_t held_packed_bytes() { return held.of(Runtime::current()).bytes; }

bool PreparedCalls::Entry::is_of(const KernelArgs& args, int count) const {
  if (op != &args.op || threads != count || in.size() != args.in.size()) return false;
  for (size_t i = 0; i < in.size(); ++i) {
    const View& view = args.in[i];
    if (view ? !(*view.type == in[i]) : !in[i].shape.empty() || in[i].dtype != DType::kBool) return false;
  }
  return attrs == args.attrs;
}

const std::shared_ptr<const PreparedKernel>& PreparedCalls::find(const KernelArgs& args, PrepareFn prepare) {
  if (entries_.empty()) entries_.resize(kEntries);
  Entry& entry = entries_[hash_of(args) % kEntries];
  const int threads = num_threads();
  if (entry.is_of(args, threads)) return entry.kernel;
  entry.op = nullptr;  // until the entry is complete
  entry.kernel = prepare(args, 2);
  if (entry.kernel && entry.kernel->packed_input < 0) entry.kernel.reset();
  entry.in.clear();
  for (const View& view : args.in) entry.in.push_back(view ? *view.type : Type{DType::kBool});
  entry.attrs = args.attrs;
  entry.threads = threads;
  entry.op = &args.op;
  return entry.kernel;
}

const void* packed_form(const std::shared_ptr<const PreparedKernel>& kernel, const View& weight,
                        const Ref<Buffer>& source) {
  const Ref<Buffer> unwritten = source;  // by another coroutine while it is packed
  auto* const first = static_cast<PackedForm*>(source->derived.load(std::memory_order_acquire));
  int forms = 0;
  for (const PackedForm* form = first; form; form = form->next, ++forms)
    if (form->weight == weight.data && (form->kernel == kernel || form->kernel->packs_like(*kernel)))
      return form->bytes->data();
  if (!source->used.exchange(true, std::memory_order_relaxed) || forms == kMostForms) return nullptr;
  try {
    auto bytes = PackedBytes::allocate(kernel->packed_bytes);
    if (!bytes) return nullptr;
    kernel->pack(weight, bytes->data());
    auto form = std::make_unique<PackedForm>(kernel, weight.data, std::move(bytes));
    form->next = first;
    Derived* expected = first;
    if (source->derived.compare_exchange_strong(expected, form.get(), std::memory_order_acq_rel))
      return form.release()->bytes->data();
    form->next = nullptr;  // another thread was faster
  } catch (const OutOfMemory&) {}
  return nullptr;
}

}  // namespace pg
