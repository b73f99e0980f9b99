// What goes before and after the transforms of cuFFT: factors, and lines made contiguous. T: float or double.
namespace pg::kernels {

PERIGEE_KERNEL(fft_points, FftArgs) {
  for (int64_t i = thread_index(); i < a.count; i += thread_count()) {  // in the order of `to`
    const int64_t outer = i / (a.points * a.inner), rest = i % (a.points * a.inner);
    const int64_t p = a.to_last ? rest % a.points : rest / a.inner;
    const int64_t q = a.to_last ? rest / a.points : rest % a.inner;
    const int64_t at = outer * a.points * a.inner + (a.from_last ? q * a.points + p : p * a.inner + q);
    const bool end = p == 0 || 2 * p == a.n;
    const T factor = T(end ? a.ends : a.inside);
    const T* from = static_cast<const T*>(a.from) + at * a.from_parts;
    T* to = static_cast<T*>(a.to) + i * a.to_parts;
    const T re = from[0] * factor;
    const T im = a.from_parts == 2 && !(end && a.real_ends) ? from[1] * factor : T(0);
    to[0] = re;
    if (a.to_parts == 2) to[1] = im;
  }
}

}  // namespace pg::kernels
