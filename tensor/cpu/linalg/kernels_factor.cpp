// Kernels of orthogonal factorizations.
#include <algorithm>

#include "tensor/cpu/linalg/factor.h"
#include "tensor/cpu/linalg/kernels.h"
#include "tensor/cpu/register.h"

namespace pg {
namespace {

// The elements of the largest matrix among the input and the outputs.
int64_t largest_matrix(const KernelArgs& args) {
  const auto size = [](const View& v) { return v.rank() < 2 ? 0 : v.size(v.rank() - 1) * v.size(v.rank() - 2); };
  int64_t most = size(args.in[0]);
  for (const View& v : args.out) most = std::max(most, size(v));
  return most;
}

// Calls f(index, elements) for each matrix of the input, which needs memory for about `copies` matrices.
template <class F>
void for_inputs(const KernelArgs& args, int64_t copies, const F& f) {
  const View& a = args.in[0];
  const cpu::Batch batch(a);
  const int64_t memory = times(copies, largest_matrix(args));
  cpu::visit_real(a.dtype(), [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    cpu::each_matrix(batch.count, 8 * cpu::cubic_work(batch.rows, batch.columns), [&](int64_t q) {
      const cpu::CountedMatrices counted(memory, sizeof(T));
      f(q, a.as<const T>() + q * batch.size());
    });
  });
}

// The part of output i that belongs to matrix q; null for an op without that output.
template <class T>
T* part(const KernelArgs& args, size_t i, int matrix_dims, int64_t q) {
  if (i >= args.out.size()) return nullptr;
  const View& v = args.out[i];
  int64_t size = 1;
  for (int d = v.rank() - matrix_dims; d < v.rank(); ++d) size *= v.size(d);
  return v.as<T>() + q * size;
}

// For matrices without elements: q and other square outputs are identities.
void fill_identities(const View& v) {
  const cpu::Batch batch(v);
  cpu::visit_real(v.dtype(), [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    for (int64_t q = 0; q < batch.count; ++q)
      cpu::Rows<T>(v.as<T>() + q * batch.size(), batch.rows, batch.columns).setIdentity();
  });
}

void qr(const KernelArgs& args) {
  const cpu::Batch a(args.in[0]);
  if (args.in[0].numel() == 0) return fill_identities(args.out[0]);
  const int64_t k = args.out[0].shape().back();
  for_inputs(args, 2, [&]<class T>(int64_t q, const T* x) {
    cpu::qr(a.rows, a.columns, k, x, part<T>(args, 0, 2, q), part<T>(args, 1, 2, q));
  });
}

void svd(const KernelArgs& args) {
  const cpu::Batch a(args.in[0]);
  if (args.in[0].numel() == 0) return fill_identities(args.out[0]), fill_identities(args.out[2]);
  const bool full = args.attr<bool>("full_matrices");
  for_inputs(args, 6, [&]<class T>(int64_t q, const T* x) {
    cpu::svd(a.rows, a.columns, full, x, part<T>(args, 0, 2, q), part<T>(args, 1, 1, q), part<T>(args, 2, 2, q));
  });
}

void singular_values(const KernelArgs& args) {
  const cpu::Batch a(args.in[0]);
  for_inputs(args, 3, [&]<class T>(int64_t q, const T* x) {
    cpu::svd<T>(a.rows, a.columns, false, x, nullptr, part<T>(args, 0, 1, q), nullptr);
  });
}

void eigh(const KernelArgs& args) {  // of which eigvalsh has one output
  const int64_t n = args.in[0].shape().back();
  for_inputs(args, 3,
             [&]<class T>(int64_t q, const T* x) { cpu::eigh(n, x, part<T>(args, 0, 1, q), part<T>(args, 1, 2, q)); });
}

}  // namespace

void add_factor_kernels(Registry& r) {
  static const KernelRow kRows[] = {
      {"linalg_qr", qr},     {"linalg_svd", svd},       {"linalg_svdvals", singular_values},
      {"linalg_eigh", eigh}, {"linalg_eigvalsh", eigh},
  };
  r.add_kernels(0, kRows);
}

}  // namespace pg
