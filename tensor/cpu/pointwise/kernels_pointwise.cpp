// The kernel rows of pointwise ops: one a row of the span tables.
#include <array>
#include <utility>

#include "tensor/cpu/pointwise/pointwise.h"
#include "tensor/cpu/register.h"
#include "tensor/op.h"

namespace pg {
namespace {

using Table = std::span<const cpu::SpanRow> (*)();

template <Table table, size_t i>
void span_kernel(const KernelArgs& args) {
  static const cpu::SpanRow& row = table()[i];
  cpu::run_pointwise(args, row);
}

template <Table table, size_t... i>
void add_table(Registry& r, std::index_sequence<i...>) {
  const std::span<const cpu::SpanRow> spans = table();
  static constexpr std::array<KernelFn, cpu::kMaxSpans> kFns = {span_kernel<table, i>...};
  for (size_t k = 0; k < spans.size(); ++k) {
    const KernelRow row{spans[k].op, kFns[k], kStridedInputs};
    r.add_kernels(0, {&row, 1});
  }
}

}  // namespace

void add_pointwise_kernels(Registry& r) {
  add_table<cpu::basic_spans>(r, std::make_index_sequence<cpu::kMaxSpans>());
  add_table<cpu::math_spans>(r, std::make_index_sequence<cpu::kMaxSpans>());
}

}  // namespace pg
