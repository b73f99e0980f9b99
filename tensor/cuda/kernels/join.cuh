// Arrays one after the other along a dim. T: an integer of the size of an element.
namespace pg::kernels {

PERIGEE_KERNEL(join, JoinArgs) {
  for (int64_t k = thread_index(); k < int64_t(a.count); k += thread_count()) {
    const uint32_t i = uint32_t(k), row = i / a.row, at = i % a.row;
    uint32_t part = 0, start = 0;
    while (at >= a.end[part]) start = a.end[part++];
    static_cast<T*>(a.to)[i] = static_cast<const T*>(a.part[part])[row * (a.end[part] - start) + at - start];
  }
}

}  // namespace pg::kernels
