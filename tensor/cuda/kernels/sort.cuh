// Sorts lines, or slices, in the order of their keys; those with equal keys keep their order. T: the dtype of the
// elements; kForm: how an item names its element.
namespace pg::kernels {

// kPacked: a word of a key of at most 32 bits and the position. kWide: both. kSlices: the position of a slice.
enum Form { kPacked, kWide, kSlices };

struct WideItem {
  uint64_t key;
  uint64_t at;
};
using Item = std::conditional_t<kForm == kWide, WideItem, uint64_t>;

__device__ inline void set_item(WideItem& item, uint64_t key, uint64_t at) { item = {key, at}; }
__device__ inline void set_item(uint64_t& item, uint64_t key, uint64_t at) {
  item = kForm == kPacked ? key << 32 | at : at;
}
__device__ inline Item make_item(uint64_t key, uint64_t at) {
  Item item;
  set_item(item, key, at);
  return item;
}
// Bits of all ones are no element; they follow all elements.
__device__ inline Item no_item() { return make_item(~uint64_t(0), kForm == kPacked ? 0xffffffffu : ~uint64_t(0)); }
__device__ inline int64_t position_in(const WideItem& item) { return int64_t(item.at); }
__device__ inline int64_t position_in(uint64_t item) { return int64_t(kForm == kPacked ? item & 0xffffffffu : item); }

__device__ inline bool less(const SortArgs&, const WideItem& p, const WideItem& q) {
  return p.key != q.key ? p.key < q.key : p.at < q.at;
}
__device__ inline bool less(const SortArgs& a, uint64_t p, uint64_t q) {
  if constexpr (kForm == kSlices) {
    const uint64_t n = uint64_t(a.n);
    if (p >= n || q >= n) return p < q;
    const T* x = static_cast<const T*>(a.x);
    for (int64_t o = 0; o < a.outer; ++o)
      for (int64_t i = 0; i < a.inner; ++i) {
        const auto k = key_of(x[(o * a.n + int64_t(p)) * a.inner + i]);
        const auto m = key_of(x[(o * a.n + int64_t(q)) * a.inner + i]);
        if (k != m) return k < m;
      }
  }
  return p < q;
}

// Element k of a line.
__device__ inline int64_t place_of(const SortArgs& a, int64_t line, int64_t k) {
  return (line / a.inner * a.n + k) * a.inner + line % a.inner;
}
__device__ inline Item item_of(const SortArgs& a, int64_t line, int64_t k) {
  if constexpr (kForm == kSlices) return make_item(0, uint64_t(k));
  const auto key = key_of(static_cast<const T*>(a.x)[place_of(a, line, k)]);
  using Key = std::remove_const_t<decltype(key)>;
  return make_item(a.descending ? Key(~key) : key, uint64_t(k));
}
// Item k of the sorted line goes to the results.
__device__ inline void store_item(const SortArgs& a, int64_t line, int64_t k, Item item) {
  const int64_t at = position_in(item);
  const int64_t to = kForm == kSlices ? k : (line / a.inner * a.keep + k) * a.inner + line % a.inner;
  if (a.values) static_cast<T*>(a.values)[to] = static_cast<const T*>(a.x)[place_of(a, line, at)];
  static_cast<int64_t*>(a.indices)[to] = at + a.base;
}

__device__ inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
__device__ inline int64_t total(const SortRuns& runs) { return (runs.count - 1) * runs.length + runs.last; }
__device__ inline int64_t length_of(const SortRuns& runs, int64_t run) {
  return run < runs.count - 1 ? runs.length : run == runs.count - 1 ? runs.last : 0;
}

// One block per tile of a line, by Batcher's bitonic network. The only tile of a line goes to the results.
PERIGEE_BLOCK_KERNEL(sort_tiles, SortArgs) {
  __shared__ Item items[kSortTile];
  const int64_t tiles = a.merged.count, line = blockIdx.x / tiles, tile = blockIdx.x % tiles;
  const int count = int(least(a.n - tile * kSortTile, kSortTile)), threads = int(blockDim.x);
  int size = 1;
  while (size < count) size *= 2;
  for (int i = int(threadIdx.x); i < size; i += threads)
    items[i] = i < count ? item_of(a, line, tile * kSortTile + i) : no_item();
  for (int width = 2; width <= size; width *= 2)
    for (int step = width / 2; step > 0; step /= 2) {
      __syncthreads();
      for (int i = int(threadIdx.x); i < size / 2; i += threads) {
        const int low = i / step * 2 * step + i % step, high = low + step;
        const Item p = items[low], q = items[high];
        if (less(a, q, p) == ((low & width) == 0)) items[low] = q, items[high] = p;
      }
    }
  __syncthreads();
  for (int i = int(threadIdx.x); i < least(count, a.keep); i += threads) {
    if (tiles == 1)
      store_item(a, line, i, items[i]);
    else
      static_cast<Item*>(a.to)[line * total(a.merged) + tile * a.merged.length + i] = items[i];
  }
}

// Returns how many of the first `count` items of a merge come from p. The others come from q.
__device__ inline int64_t split(const SortArgs& a, const Item* p, int64_t p_count, const Item* q, int64_t q_count,
                                int64_t count) {
  int64_t low = count > q_count ? count - q_count : 0, high = least(count, p_count);
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (less(a, q[count - 1 - middle], p[middle]))
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

// Merges runs in pairs, and keeps the first items of each pair. One block makes a tile of a merged run.
PERIGEE_BLOCK_KERNEL(merge_runs, SortArgs) {
  __shared__ Item items[kSortTile];
  __shared__ int64_t splits[2];
  const int64_t tiles = (a.merged.length + kSortTile - 1) / kSortTile, tile = blockIdx.x % tiles;
  const int64_t pair = blockIdx.x / tiles % a.merged.count, line = blockIdx.x / tiles / a.merged.count;
  const Item* p = static_cast<const Item*>(a.from) + line * total(a.runs) + 2 * pair * a.runs.length;
  const Item* q = p + a.runs.length;
  const int64_t p_count = length_of(a.runs, 2 * pair), q_count = length_of(a.runs, 2 * pair + 1);
  const int64_t begin = tile * kSortTile, end = least(begin + kSortTile, length_of(a.merged, pair));
  if (begin >= end) return;
  if (threadIdx.x < 2) splits[threadIdx.x] = split(a, p, p_count, q, q_count, threadIdx.x ? end : begin);
  __syncthreads();
  const int64_t first = splits[0], from_p = splits[1] - first, from_q = end - begin - from_p;
  for (int64_t i = threadIdx.x; i < end - begin; i += blockDim.x)
    items[i] = i < from_p ? p[first + i] : q[begin - first + i - from_p];
  __syncthreads();
  const int64_t share = kSortTile / int64_t(blockDim.x), start = int64_t(threadIdx.x) * share;
  const int64_t stop = least(start + share, end - begin);
  if (start >= stop) return;
  const Item* const rest = items + from_p;
  int64_t i = split(a, items, from_p, rest, from_q, start), j = start - i;
  Item* to = static_cast<Item*>(a.to) + line * total(a.merged) + pair * a.merged.length + begin;
  for (int64_t k = start; k < stop; ++k) {
    const bool second = i >= from_p || (j < from_q && less(a, rest[j], items[i]));
    to[k] = second ? rest[j++] : items[i++];
  }
}

PERIGEE_KERNEL(store_lines, SortArgs) {
  const int64_t lines = kForm == kSlices ? 1 : a.outer * a.inner;
  for (int64_t i = thread_index(); i < lines * a.keep; i += thread_count())
    store_item(a, i / a.keep, i % a.keep, static_cast<const Item*>(a.from)[i]);
}

}  // namespace pg::kernels
