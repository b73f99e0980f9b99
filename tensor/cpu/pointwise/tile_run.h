// One call of a tile program over a space of any size: binds its operands and cuts the work for the threads.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstring>

#include "tensor/cpu/both_ways.h"
#include "tensor/cpu/move/copy.h"
#include "tensor/cpu/scratch.h"
#include "tensor/cpu/shared_grain.h"
#include "tensor/cpu/pointwise/tile_gather.h"
#include "tensor/cpu/pointwise/tile_code.h"
#include "tensor/parallel.h"

namespace pg::cpu {

inline constexpr int64_t kRowsBatch = 256;                  // totals stored at once
inline constexpr int64_t kStreamBytes = int64_t(12) << 20;  // of all streams: outputs would leave the caches anyway
inline constexpr int64_t kGathered = 2048;                  // elements of operands that stay in the first-level cache
inline constexpr int64_t kLarge = 1 << 14;                  // elements of an operand that leaves the first-level cache

inline bool dense(const View& v) { return is_contiguous(v.shape(), *v.strides); }

// One call over a space of any size.
class TileRun {
  using Access = TileLayout::Access;

 public:
  TileRun(const TiledBody& tiled, const TileLayout& layout, std::span<const View> in, std::span<const View> out,
          bool exact)
      : m_(tiled),
        program_(tiled.program),
        layout_(layout),
        in_(in),
        out_(out),
        exact_(exact),
        memory_(Bytes(size_t(table_bytes() + program_.shared_bytes) + in.size() * kElementBytes)) {
    char* const base = memory_.get();
    table_ = reinterpret_cast<char**>(base);
    singles_ = base + table_bytes() + program_.shared_bytes;
    place_constants(program_, table_);
    place_registers(program_.shared, base + table_bytes(), table_);
    bind();
  }

  void run() {
    run_scalars();
    if (!m_.totals.empty()) return reduce();
    if (layout_.size == 0 || program_.levels[2].instructions.empty()) return;
    if (!is_shared(m_, layout_.size)) return Worker(*this).process(0, layout_.size);
    choose_streaming();
    const int64_t cost = code_->cost + 1, unit = unit_elements();
    const int64_t elements = std::min(shared_grain(m_.widest, cost), m_.one_op ? INT64_MAX : kGrainPicoseconds / cost);
    parallel_for((layout_.size + unit - 1) / unit, elements / unit + 1, [&](int64_t begin, int64_t end) {
      Worker worker(*this);
      both_ways(begin, end, unit * m_.widest, [&](int64_t first, int64_t last) {
        worker.process(first * unit, std::min(last * unit, layout_.size));
      });
      if (streaming_) finish_streams();
    });
  }

  // Computes the elements [begin, end), rounded down to whole units; the last unit may be smaller.
  void run_part(int64_t begin, int64_t end) {
    run_scalars();
    choose_streaming();
    const int64_t unit = unit_elements();
    begin = begin / unit * unit;
    if (end < layout_.size) end = end / unit * unit;
    if (begin < end) Worker(*this).process(begin, end);
    if (streaming_) finish_streams();
  }

 private:
  void run_scalars() {
    if (!program_.levels[0].instructions.empty()) run_code(program_.levels[0], table_, 1, false);
  }

  // An operand whose address depends on the position.
  struct Moving {
    Cell cell = 0;
    int32_t input = -1;  // -1: an output
    const char* data = nullptr;
    int64_t size = 0;  // bytes per element
    Access access = Access::kLinear;
    int32_t gather = -1;  // into gathers_
    bool periodic = false;
  };
  // An operand that moves from each element of the space to the next.
  struct Advance {
    Cell cell = 0;
    int64_t bytes = 0;
  };
  // How far an operand moves when index `dim` of the space is the outermost that changes between two runs.
  struct Jump {
    int dim;
    Cell cell;
    int64_t bytes;
  };

  // --- Binding ---

  void bind() {
    const size_t outputs = m_.body.outputs.size();
    const bool alias = may_alias(in_, out_);
    for (size_t k = 0; k < in_.size(); ++k) bind_input(k, alias);
    for (size_t k = 0; k < outputs; ++k) {
      const Cell cell = Cell(in_.size() + k);
      table_[cell] = out_[k].as<char>();
      if (m_.body.outputs[k].single) continue;
      Moving& m = moving_.emplace_back();
      m.cell = cell;
      m.data = out_[k].as<char>();
      m.size = size_of(out_[k].dtype());
      add_advance(m);
    }
    aliased_ = alias;
    if (layout_.runs) find_jumps();
  }

  void find_jumps() {
    const int last = layout_.shape.size() - 1;
    for (const Moving& m : moving_) {
      if (m.access != Access::kRun && m.access != Access::kColumn) continue;
      const Dims& strides = layout_.strides[size_t(m.input)];
      int64_t passed = strides[last] * layout_.inner;
      for (int d = last - 1; d >= 0; --d) {
        if (strides[d] != passed) jumps_.push_back({d, m.cell, (strides[d] - passed) * m.size});
        passed += strides[d] * (layout_.shape[d] - 1);
      }
    }
  }

  void bind_input(size_t k, bool alias) {
    const View& v = in_[k];
    const Access access = layout_.access[k];
    const int64_t size = size_of(v.dtype());
    table_[k] = v.as<char>();
    if (access == Access::kSingle) {
      if (alias && overwritten(k)) {
        std::memcpy(singles_ + k * kElementBytes, v.data, size_t(size));
        table_[k] = singles_ + k * kElementBytes;
      }
      return;
    }
    if (layout_.size == 0) return;
    Moving& m = moving_.emplace_back();
    m.cell = Cell(k);
    m.data = v.as<char>();
    m.size = size;
    m.input = int32_t(k);
    m.access = access;
    const bool reread = alias && overwritten(k), gaps = !exact_ && !dense(v);
    if (scattered(k)) {
      m.data = copy(v);
      m.access = Access::kLinear;
    } else if (access == Access::kLinear) {
      if (gaps || reread) m.gather = add_gather(v.as<char>(), size, v.shape(), *v.strides, reread);
    } else {
      if (!exact_ && (gaps || reread)) m.data = copy(v);  // an exact input that is written over is linear
      if (access == Access::kGather) m.gather = add_gather(m.data, size, layout_.shape, layout_.strides[k], false);
    }
    m.periodic = m.gather >= 0 && layout_.periodic(k);
    add_advance(m);
  }

  void add_advance(const Moving& m) {
    if (m.gather >= 0 || m.access == Access::kColumn) return;
    Advance& a = advances_.emplace_back();
    a.cell = m.cell;
    a.bytes = m.size;
  }

  // A view that has as many elements as the space has its shape, but for dims of size 1.
  int32_t add_gather(const char* data, int64_t size, const Dims& shape, const Dims& strides, bool copies) {
    gathers_.emplace_back(data, size, shape, strides, copies);
    return int32_t(gathers_.size()) - 1;
  }

  // Walking a large transposed operand in order would miss the cache at each element. An expanded operand is smaller
  // than its shape, so a copy of the whole does not pay.
  bool scattered(size_t k) const {
    const int64_t n = in_[k].numel();
    if (n < kLarge || n != layout_.size) return false;
    const Dims& strides = exact_ ? layout_.strides[k] : *in_[k].strides;
    return std::abs(strides.back()) >= 8 && std::count(strides.begin(), strides.end(), 0) == 0;
  }

  const char* copy(const View& v) {
    Ref<Buffer> buffer = Buffer::allocate(Device{}, bytes_of(*v.type));
    copy_strided(v, buffer->data);
    copies_.push_back(buffer);
    return static_cast<const char*>(buffer->data);
  }

  // Whether an output in the memory of input k is written before the input is read for the last time.
  bool overwritten(size_t k) const {
    for (const auto& h : program_.hazards)
      if (h.input == int32_t(k) && out_[size_t(h.output)].data == in_[k].data) return true;
    if (layout_.access[k] == Access::kColumn) return false;
    const auto totals = out_.subspan(m_.body.outputs.size());
    return std::any_of(totals.begin(), totals.end(), [&](const View& v) { return v.data == in_[k].data; });
  }

  // Whether the operand is read or written in order, in memory of its own. An output may be in the memory of an input.
  bool is_stream(const Moving& m) const {
    if (m.access != Access::kLinear) return false;
    return m.input >= 0 ||
           std::none_of(in_.begin(), in_.end(), [&](const View& v) { return v && v.as<char>() == m.data; });
  }
  int64_t linear_bytes() const {
    int64_t bytes = 0;
    for (const Moving& m : moving_)
      if (is_stream(m)) bytes += m.size * layout_.size;
    return bytes;
  }

  void choose_streaming() {
    if (linear_bytes() < kStreamBytes) return;
    choose_stores();
    if (gathers_.empty()) choose_fetches();
  }

  void choose_fetches() {
    if (!code_->pure || layout_.runs || linear_bytes() < kFetchBytes) return;
    for (const Moving& m : moving_)
      if (is_stream(m) && !(streaming_ && m.input < 0)) fetches_.push_back({m.cell, int32_t(m.size)});
  }

  void choose_stores() {
    if (program_.streaming.instructions.empty() || aliased_) return;
    if ((layout_.runs || !gathers_.empty()) && layout_.inner % 16 != 0) return;  // calls start at runs
    if (!m_.totals.empty() && m_.body.reductions[0].row % 16 != 0) return;
    for (const Moving& m : moving_)
      if (m.input < 0 && reinterpret_cast<uintptr_t>(m.data) % 64 != 0) return;
    streaming_ = true;
    code_ = &program_.streaming;
    adding_ = &program_.streaming_adding;
  }

  int64_t table_bytes() const { return rounded_up(program_.cells * int64_t(sizeof(char*)), 64); }

  int64_t unit_elements() const {
    int64_t unit = chain_block();
    for (const Moving& m : moving_)
      if (m.periodic) return std::max<int64_t>(1, tile() / layout_.inner) * layout_.inner;
    return unit;
  }

  // Whether values pass from instruction to instruction through registers of program_.tile elements.
  bool has_registers() const { return !program_.levels[2].pure && program_.levels[2].instructions.size() > 1; }
  // The elements that are gathered together.
  int64_t tile() const { return has_registers() ? program_.tile : kGathered; }

  // --- What one thread does ---

  class Worker {
   public:
    explicit Worker(const TileRun& run)
        : r_(run),
          tile_bytes_(r_.tile() * int64_t(kElementBytes)),
          memory_(Bytes(size_t(tables() + tile_bytes_ * int64_t(r_.gathers_.size()) + totals_bytes()))) {
      const TileProgram& program = r_.program_;
      char* const base = memory_.get();
      table_ = reinterpret_cast<char**>(base);
      std::memcpy(table_, r_.table_, size_t(program.cells) * sizeof(char*));
      place_registers(program.local, base + r_.table_bytes(), table_);
      tiles_ = base + tables();
      totals_ = tiles_ + tile_bytes_ * int64_t(r_.gathers_.size());
      tiled_ = r_.has_registers() || !r_.gathers_.empty();
    }

    // The elements of reduction k that the last call of `process` computed.
    char* totals(size_t k) const { return totals_ + int64_t(k) * kTotalsBlock * int64_t(kElementBytes); }

    void process(int64_t begin, int64_t end) { process(*r_.code_, begin, end); }

    // Computes the sums of a block of positions (ReduceLoops::join_sums), which are then in totals().
    void add_up(int64_t begin, int64_t end) {
      for (size_t k = 0; k < r_.sizes_.size(); ++k) std::memset(totals(k), 0, size_t(chain_block()) * sizeof(float));
      process(*r_.adding_, begin, end);
    }

    // Computes positions [begin, end), at most kTotalsBlock if the body reduces.
    void process(const TileCode& code, int64_t begin, int64_t end) {
      const TileLayout& layout = r_.layout_;
      int64_t tile = tiled_ ? r_.tile() : INT64_MAX;
      // Tiles of whole runs leave the tiles of periodic operands as they are.
      const bool whole_runs = tiled_ && !layout.runs && layout.inner <= tile && begin % layout.inner == 0;
      if (whole_runs) tile = tile / layout.inner * layout.inner;
      start(begin);
      char** const table = table_;
      char** const reduced = table + r_.in_.size() + r_.m_.body.outputs.size();
      const std::span<const int64_t> sizes = r_.sizes_;
      for (size_t k = 0; k < sizes.size(); ++k) reduced[k] = totals(k);
      const std::span<const Advance> advances = r_.advances_;
      const TileCode& per_run = r_.program_.levels[1];
      const bool gathers = !r_.gathers_.empty();
      const bool repeatable = !r_.aliased_ && !r_.streaming_ && &code != r_.adding_;
      bool fresh = layout.runs && !per_run.instructions.empty();
      int64_t left = layout.runs ? layout.inner - begin % layout.inner : INT64_MAX;  // of the run
      for (int64_t position = begin; position < end;) {
        const int64_t n = std::min({end - position, tile, left});
        if (gathers) gather(position, n, whole_runs && position != begin);
        if (fresh) run_code(per_run, table, 1, false);
        run_code(code, table, n, repeatable, r_.fetches_);
        position += n;
        for (size_t k = 0; k < sizes.size(); ++k) reduced[k] += n * sizes[k];
        for (const Advance& a : advances) table[a.cell] += n * a.bytes;
        fresh = false;
        if (!layout.runs || (left -= n) != 0) continue;
        next_run();
        left = layout.inner;
        fresh = !per_run.instructions.empty();
      }
    }

   private:
    void start(int64_t position) {
      const TileLayout& layout = r_.layout_;
      for (const Moving& m : r_.moving_) {
        if (m.gather >= 0) continue;
        const int64_t at = m.access == Access::kLinear ? position : layout.offset(size_t(m.input), position);
        table_[m.cell] = const_cast<char*>(m.data) + at * m.size;
      }
      if (!layout.runs) return;
      position /= layout.inner;
      index_ = layout.shape;
      for (int d = layout.shape.size() - 2; d >= 0; position /= layout.shape[d--])
        index_[d] = position % layout.shape[d];
    }

    // The table and the registers of one thread.
    int64_t tables() const { return r_.table_bytes() + rounded_up(r_.program_.local_bytes, 64); }
    int64_t totals_bytes() const { return int64_t(r_.m_.totals.size()) * kTotalsBlock * int64_t(kElementBytes); }

    void gather(int64_t position, int64_t n, bool filled) {
      for (const Moving& m : r_.moving_)
        if (m.gather >= 0 && !(filled && m.periodic))
          table_[m.cell] = const_cast<char*>(r_.gathers_[size_t(m.gather)].read(position, n, tile_of(m)));
    }

    char* tile_of(const Moving& m) const { return tiles_ + m.gather * tile_bytes_; }

    // Moves the operands from the end of a run to the start of the next one.
    void next_run() {
      const TileLayout& layout = r_.layout_;
      int d = layout.shape.size() - 2;
      for (; d > 0 && ++index_[d] == layout.shape[d]; --d) index_[d] = 0;
      for (const Jump& j : r_.jumps_)
        if (j.dim == d) table_[j.cell] += j.bytes;
    }

    Dims index_;  // of the current run, but for the outermost dim
    const TileRun& r_;
    const int64_t tile_bytes_;
    const ScratchBytes memory_;
    char** table_;
    char *tiles_, *totals_;
    bool tiled_;
  };

  // --- Reductions ---

  void reduce() {
    for (const TileReduction& r : m_.body.reductions)
      sizes_.push_back(r.storage == DType::kBool ? 1 : size_of(reduce_compute_type(r.storage)));
    const int64_t rows = out_.back().numel(), row = m_.body.reductions[0].row;
    if (layout_.size == 0) return reduce_nothing(rows);
    choose_streaming();
    if (reduces_in_chunks(rows, row)) return reduce_in_chunks(rows, row);
    if (is_long_row(row)) return reduce_long_rows(rows, row);
    const int64_t group = std::clamp<int64_t>(kTotalsBlock / row, 1, kRowsBatch), groups = (rows + group - 1) / group;
    parallel_for(groups, grain(group * row), [&](int64_t begin, int64_t end) {
      Worker worker(*this);
      Total totals[kRowsBatch];
      for (int64_t g = begin; g < end; ++g) {
        const int64_t first = g * group, n = std::min(group, rows - first);
        worker.process(first * row, (first + n) * row);
        for (size_t k = 0; k < sizes_.size(); ++k) {
          std::fill(totals, totals + n, loops(k).init);
          loops(k).runs(totals, worker.totals(k), row, n, row);
          store(k, first, totals, n);
        }
      }
      if (streaming_) finish_streams();
    });
  }

  const ReduceLoops& loops(size_t k) const { return m_.totals[k].loops; }

  int64_t grain(int64_t elements) const {
    return kGrainPicoseconds / std::max<int64_t>(1, elements * (code_->cost + 50 * int64_t(sizes_.size()))) + 1;
  }

  void store(size_t k, int64_t first, const Total* totals, int64_t n) const {
    const TileReduction& r = m_.body.reductions[k];
    const View& out = out_[m_.body.outputs.size() + k];
    store_totals(r.dtype, out.as<char>() + first * size_of(r.dtype), 1, totals, n, r.storage, m_.totals[k].reduction);
  }

  void reduce_nothing(int64_t rows) {
    for (size_t k = 0; k < sizes_.size(); ++k)
      for (int64_t i = 0; i < rows; ++i) store(k, i, &loops(k).init, 1);
  }

  // By reduction.
  using Totals = SmallVector<Total, 4>;
  Totals initial() const {
    Totals out;
    for (size_t k = 0; k < sizes_.size(); ++k) out.push_back(loops(k).init);
    return out;
  }
  void store(int64_t place, const Totals& totals) const {
    for (size_t k = 0; k < sizes_.size(); ++k) store(k, place, &totals[k], 1);
  }

  // Joins the elements from `begin` on, block by block. The program that adds up needs a whole block in one call: it
  // sums by place in the call.
  void add(Worker& worker, Totals& totals, int64_t begin, int64_t n) const {
    const bool adding = !adding_->instructions.empty() && gathers_.empty() && !layout_.runs;
    const int64_t block = adding ? loops(0).block : kTotalsBlock;
    for (int64_t i = 0; i < n; i += block) {
      const int64_t first = begin + i, count = std::min(block, n - i);
      if (adding && count >= kFewestAdded) {
        worker.add_up(first, first + count);
        for (size_t k = 0; k < sizes_.size(); ++k)
          loops(k).join_sums(&totals[k], reinterpret_cast<const float*>(worker.totals(k)), count);
      } else {
        worker.process(first, first + count);
        for (size_t k = 0; k < sizes_.size(); ++k) loops(k).runs(&totals[k], worker.totals(k), count, 1, 0);
      }
    }
  }

  void reduce_long_rows(int64_t rows, int64_t row) {
    parallel_for(rows, grain(row), [&](int64_t begin, int64_t end) {
      Worker worker(*this);
      for (int64_t i = begin; i < end; ++i) {
        Totals totals = initial();
        add(worker, totals, i * row, row);
        store(i, totals);
      }
      if (streaming_) finish_streams();
    });
  }

  // Few rows with much work each: partial totals of parts of fixed size, joined in order.
  void reduce_in_chunks(int64_t rows, int64_t row) {
    const int64_t size = reduce_chunk(row), chunks = (row + size - 1) / size;
    std::vector<Totals> partial(size_t(rows * chunks), initial());
    parallel_for(rows * chunks, grain(size), [&](int64_t begin, int64_t end) {
      Worker worker(*this);
      for (int64_t i = begin; i < end; ++i) {
        const int64_t first = i % chunks * size;
        add(worker, partial[size_t(i)], i / chunks * row + first, std::min(size, row - first));
      }
      if (streaming_) finish_streams();
    });
    for (int64_t i = 0; i < rows; ++i) {
      Totals totals = initial();
      for (int64_t c = 0; c < chunks; ++c)
        for (size_t k = 0; k < sizes_.size(); ++k) loops(k).join(&totals[k], &partial[size_t(i * chunks + c)][k], 1);
      store(i, totals);
    }
  }

  const TiledBody& m_;
  const TileProgram& program_;
  const TileLayout& layout_;
  std::span<const View> in_, out_;
  const bool exact_;
  const ScratchBytes memory_;
  char** table_;
  char* singles_;
  SmallVector<Moving, 12> moving_;
  SmallVector<Advance, 12> advances_;
  SmallVector<Jump, 8> jumps_;
  SmallVector<Gather, 4> gathers_;
  SmallVector<Fetch, 8> fetches_;
  SmallVector<Ref<Buffer>, 1> copies_;
  const TileCode *code_ = &program_.levels[2], *adding_ = &program_.adding;
  SmallVector<int64_t, 4> sizes_;  // of an element, by reduction; empty before `reduce`
  bool aliased_ = false, streaming_ = false;
};

}  // namespace pg::cpu
