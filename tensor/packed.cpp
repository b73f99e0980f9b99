#include "tensor/packed.h"

#include <algorithm>
#include <atomic>
#include <new>

#include "tensor/error.h"
#include "tensor/memory_account.h"
#include "tensor/op.h"
#include "tensor/parallel.h"
#include "tensor/runtime.h"

namespace pg {

// A packed form of a buffer's contents, and older ones.
struct PackedForm {
  std::shared_ptr<const PreparedKernel> kernel;
  std::unique_ptr<const PackedBytes> bytes;
  PackedForm* next;
};

namespace {

constexpr size_t kLimit = size_t(1) << 30;  // bytes of a runtime; eager calls take half of them at most
constexpr size_t kEntries = 256;            // of PreparedCalls; a power of 2
constexpr int kMostForms = 4;               // of one buffer
constexpr uint8_t kPacks = 1;               // uses before the one that packs
constexpr uint8_t kFails = 2;               // as Buffer::uses: there was no memory

struct Held {
  std::atomic<size_t> bytes{0};
};
PerRuntime<Held> held;

Type type_of(const View& view) { return view ? *view.type : Type{DType::kBool}; }  // no op here takes bools

size_t hash_of(const KernelArgs& args) {
  size_t hash = reinterpret_cast<uintptr_t>(&args.op) >> 4;
  const auto mix = [&](int64_t number) { hash = (hash ^ size_t(number)) * 0x9E3779B97F4A7C15u; };
  for (const View& view : args.in) {
    mix(int64_t(type_of(view).dtype));
    for (int64_t size : type_of(view).shape) mix(size);
  }
  for (size_t i = 0; i < args.attrs.size(); ++i)
    if (const Ints* numbers = std::get_if<Ints>(&args.attrs[i]))
      for (int64_t number : *numbers) mix(number);
  return hash >> 32;
}

// Whether a packed form may be made: it is not what an owner should run out of memory for.
bool has_room(size_t bytes) {
  const MemoryAccount* account = MemoryAccount::current();
  if (account && account->used() + int64_t(bytes) > account->limit() / 2) return false;
  return held_packed_bytes() + bytes <= kLimit / 2;
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

bool PreparedCalls::Entry::is_of(const KernelArgs& args) const {
  if (op != &args.op || threads != num_threads() || in_job != bool(watched_here().suspender)) return false;
  if (in.size() != args.in.size()) return false;
  for (size_t i = 0; i < in.size(); ++i)
    if (!(in[i] == type_of(args.in[i]))) return false;
  return attrs == args.attrs;
}

const std::shared_ptr<const PreparedKernel>& PreparedCalls::find(const KernelArgs& args, PrepareFn prepare) {
  if (entries_.empty()) entries_.resize(kEntries);
  Entry& entry = entries_[hash_of(args) % kEntries];
  if (entry.is_of(args)) return entry.kernel;
  entry.op = nullptr;  // until the entry is complete
  entry.kernel = prepare(args, 2);
  if (entry.kernel && entry.kernel->packed_input < 0) entry.kernel.reset();
  entry.threads = num_threads();
  entry.in_job = bool(watched_here().suspender);
  entry.in.clear();
  for (const View& view : args.in) entry.in.push_back(type_of(view));
  entry.attrs = args.attrs;
  entry.op = &args.op;
  return entry.kernel;
}

const void* packed_form(const std::shared_ptr<const PreparedKernel>& kernel, const View& weight, Buffer& source) {
  PackedForm* const first = source.packed.load(std::memory_order_acquire);
  int forms = 0;
  for (const PackedForm* form = first; form; form = form->next, ++forms)
    if (form->kernel == kernel || form->kernel->packs_like(*kernel)) return form->bytes->data();
  const uint8_t uses = source.uses.load(std::memory_order_relaxed);
  if (uses < kPacks) source.uses.store(uint8_t(uses + 1), std::memory_order_relaxed);
  if (uses != kPacks || forms == kMostForms || !has_room(kernel->packed_bytes)) return nullptr;
  try {
    auto bytes = PackedBytes::allocate(kernel->packed_bytes);
    if (!bytes) return nullptr;
    kernel->pack(weight, bytes->data());
    auto form = std::make_unique<PackedForm>(PackedForm{kernel, std::move(bytes), first});
    PackedForm* expected = first;  // unless another thread was faster
    if (source.packed.compare_exchange_strong(expected, form.get(), std::memory_order_acq_rel))
      return form.release()->bytes->data();
  } catch (const OutOfMemory&) {
    source.uses = kFails;
  } catch (const std::bad_alloc&) {
    source.uses = kFails;
  }
  return nullptr;
}

void Buffer::drop_packed() {
  PackedForm* form = packed.exchange(nullptr, std::memory_order_acquire);
  while (form) delete std::exchange(form, form->next);
}

}  // namespace pg
