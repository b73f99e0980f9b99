// Searches in sorted sequences. S: the dtype of the sequences; V: of the values.
namespace pg::kernels {

template <class T>
constexpr bool kFloating = std::is_floating_point_v<decltype(widen(T()))>;
using C = std::conditional_t<kFloating<S> || kFloating<V>, double, int64_t>;

PERIGEE_KERNEL(search, SearchArgs) {
  for (int64_t i = thread_index(); i < a.count; i += thread_count()) {
    const S* s = static_cast<const S*>(a.sequence) + (a.row ? i / a.row * a.n : 0);
    const auto key = key_of(C(widen(static_cast<const V*>(a.values)[i])));
    int64_t low = 0, high = a.n;
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      const auto at = key_of(C(widen(s[middle])));
      if (a.right ? at <= key : at < key)
        low = middle + 1;
      else
        high = middle;
    }
    a.out[i] = low + a.base;
  }
}

}  // namespace pg::kernels
