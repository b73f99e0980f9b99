// The texts of errors that kernels report.
#include <bit>
#include <deque>
#include <map>

#include "tensor/arguments.h"
#include "tensor/cuda/stream.h"
#include "tensor/device_table.h"
#include "tensor/op.h"

namespace pg::cuda {
namespace {

struct Refusals {
  std::mutex lock;
  std::deque<Refusal> all;
  std::map<std::string, int32_t> numbers;
};
Refusals& refusals() {
  static Refusals* instance = new Refusals;
  return *instance;
}

std::string key_of(const Refusal& r) {
  return fmt::format("{}/{}/{}/{}/{}/{}/{}/{}/{}/{}/{}/{}/{}/{}", r.op->id, r.input, static_cast<const void*>(r.place),
                     int(r.kind), r.negative, r.size, r.base, r.ignored, r.argument, r.detail, r.name,
                     to_string(r.shape), r.expected, r.got);
}

std::string text_of(const Refusal& r, const Fault& fault) {
  const std::string name = r.name.empty() ? public_name(r.op->name) : r.name;
  const auto filled = [&](const std::string& text) {
    return fmt::format(fmt::runtime(text), fmt::arg("value", fault.value),
                       fmt::arg("number", std::bit_cast<double>(fault.value)), fmt::arg("at", fault.at + 1));
  };
  std::string expected, got;
  const std::string where = r.shape.empty() ? "" : fmt::format(" at element {}", fault.at + 1);
  switch (r.kind) {
    case Refusal::Kind::kAssert:
      return fmt::format("{}: {}", name, r.detail);
    case Refusal::Kind::kDivisor:
      expected = "an integer divisor other than zero", got = "0" + where;
      break;
    case Refusal::Kind::kExponent:
      expected = "integer exponents of at least 0", got = "a negative one" + where;
      break;
    case Refusal::Kind::kText:
      expected = filled(r.expected), got = filled(r.got);
      break;
    case Refusal::Kind::kLabel:
      expected = fmt::format("labels from {} to {}, or ignore_index {}", r.base, r.size - 1 + r.base, r.ignored);
      got = fmt::format("{} at position {}{}", fault.value, fault.at + 1,
                        fault.value == 0 && r.base == 1 ? "; classes count from 1: write labels + 1" : "");
      break;
    default:
      const int64_t high = r.size - 1 + r.base;
      expected = r.size == 0 ? "no index values: the dim is empty"
                             : fmt::format("index values from {} to {}{}", r.base, high,
                                           r.negative ? fmt::format(" or -{} to -1", r.size) : "");
      got = fmt::format("{} at position {}{}{}", fault.value, position_text(r.shape, fault.at), r.detail,
                        fault.value == 0 && r.base == 1 ? "; indices count from 1 (index_base = 0: from 0)" : "");
  }
  return fmt::format("{}: bad argument '{}' (expected {}, got {})", name, r.argument, expected, got);
}

void raise_if_set(Fault* fault) {
  if (fault->report == 0) return;
  const Fault seen = std::exchange(*fault, Fault{});
  Refusal refusal;
  {
    const std::lock_guard hold(refusals().lock);
    refusal = refusals().all[size_t(seen.report - 1)];
  }
  throw LateError(text_of(refusal, seen), refusal.place);
}

}  // namespace

Refusal refusal(const KernelArgs& a, std::string argument, std::string expected, std::string got) {
  Refusal r;
  r.kind = Refusal::Kind::kText;
  r.op = &a.op;
  r.place = a.place;
  r.argument = std::move(argument);
  r.expected = std::move(expected);
  r.got = std::move(got);
  return r;
}

int32_t report_number(const Refusal& refusal) {
  const std::lock_guard hold(refusals().lock);
  const auto [at, added] = refusals().numbers.try_emplace(key_of(refusal), int32_t(refusals().all.size()) + 1);
  if (added) refusals().all.push_back(refusal);
  return at->second;
}

void Stream::raise_fault(bool done) {
  std::vector<std::shared_ptr<FaultSlot>> programs;
  {
    const std::lock_guard hold(lock);
    programs = watched;
    if (done) watched.clear();
  }
  raise_if_set(fault->get());
  for (const auto& slot : programs) raise_if_set(slot->get());
}

}  // namespace pg::cuda
