// Matrix products with one thread per element. T: the dtype.
namespace pg::kernels {

constexpr bool kFloating = std::is_floating_point_v<T> || sizeof(T) == 2;
using Acc = std::conditional_t<std::is_same_v<T, double>, double, std::conditional_t<kFloating, float, uint64_t>>;

PERIGEE_KERNEL(product, ProductArgs) {
  for (int64_t i = thread_index(); i < a.batch * a.m * a.n; i += thread_count()) {
    const int64_t column = i % a.n, row = i / a.n % a.m, batch = i / a.n / a.m;
    const T* x = static_cast<const T*>(a.a) + batch * a.a_batch + row * a.a_row;
    const T* y = static_cast<const T*>(a.b) + batch * a.b_batch + column * a.b_col;
    Acc sum = 0;
    for (int64_t k = 0; k < a.k; ++k) sum += Acc(widen(x[k * a.a_col])) * Acc(widen(y[k * a.b_row]));
    if (a.bias) sum += Acc(widen(static_cast<const T*>(a.bias)[column]));
    if (a.addend) sum += Acc(widen(static_cast<const T*>(a.addend)[i]));
    static_cast<T*>(a.c)[i] = convert_one<T>(sum);
  }
}

}  // namespace pg::kernels
