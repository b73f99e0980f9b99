#include "tensor/cpu/pointwise/tile_machine.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tensor/cpu/move/copy.h"
#include "tensor/cpu/scratch.h"
#include "tensor/cpu/pointwise/tile_gather.h"
#include "tensor/parallel.h"
#include "tensor/small_vector.h"

namespace pg::cpu {

void execute(const TileCode& code, char* const* table, int64_t n, bool repeatable) {
  using Kind = TileInstruction::Kind;
  repeatable &= code.pure;  // else registers of a tile are written over
  for (const TileInstruction& i : code.instructions) {
    if (i.kind == Kind::kChain) {
      run_chain(&code.steps[size_t(i.first_step)], table, n, repeatable);
    } else if (i.kind == Kind::kSpan) {
      const void* in[kMaxSpanInputs] = {table[i.in[0]], table[i.in[1]], table[i.in[2]]};
      i.span(n, table[i.out], in, i.scalars, i.params);
    } else {
      i.convert(n, table[i.in[0]], i.scalars ? 0 : 1, table[i.out]);
    }
  }
}

namespace {

using Access = TileLayout::Access;

constexpr int64_t kWorthAThread = 10'000'000;  // picoseconds
constexpr int64_t kTotalsBlock = 4096;  // elements reduced at once: what the loops of a reduction take for a block
constexpr int64_t kRowsBatch = 256;     // totals stored at once
constexpr int64_t kStreamBytes = int64_t(12) << 20;  // of all streams: outputs would leave the caches anyway
constexpr size_t kElementBytes = 8;                  // at most

int64_t rounded_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

bool dense(const View& v) { return is_contiguous(v.shape(), *v.strides); }

void place_constants(const TileProgram& program, char** table) {
  for (const auto& c : program.constant_cells)
    table[c.cell] = const_cast<char*>(reinterpret_cast<const char*>(&program.constants[size_t(c.at)]));
}

void place_registers(std::span<const TileProgram::Register> registers, char* base, char** table) {
  for (const auto& r : registers) table[r.cell] = base + r.offset;
}

// Whether some output may stand where an input stands; no false negatives.
bool may_alias(std::span<const View> in, std::span<const View> out) {
  uint64_t seen[4] = {};
  const auto bit = [](const void* p) { return (reinterpret_cast<uintptr_t>(p) >> 2) * 0x9e3779b97f4a7c15u >> 56; };
  for (const View& v : out) seen[bit(v.data) >> 6] |= uint64_t(1) << (bit(v.data) & 63);
  for (const View& v : in)
    if (seen[bit(v.data) >> 6] >> (bit(v.data) & 63) & 1) return true;
  return false;
}

}  // namespace

// One call over a space of many elements.
class TileRun {
 public:
  TileRun(const TileMachine& m, std::span<const View> in, std::span<const View> out)
      : m_(m), program_(m.program_), layout_(m.layout_), in_(in), out_(out) {
    const int64_t table_bytes = rounded_up(program_.cells * int64_t(sizeof(char*)), 64);
    char* base = static_cast<char*>(scratch_bytes(
        ScratchSlot::kFusedShared, Bytes(size_t(table_bytes + program_.shared_bytes) + in.size() * kElementBytes)));
    table_ = reinterpret_cast<char**>(base);
    singles_ = base + table_bytes + program_.shared_bytes;
    place_constants(program_, table_);
    place_registers(program_.shared, base + table_bytes, table_);
    bind();
  }

  void run() {
    if (!program_.levels[0].instructions.empty()) execute(program_.levels[0], table_, 1);
    if (m_.body_.reduction.op) return reduce();
    if (layout_.size == 0 || program_.levels[2].instructions.empty()) return;
    choose_streaming();
    const int64_t unit = unit_elements();
    const int64_t grain = kWorthAThread / (code_->cost + 1) / unit + 1;
    parallel_for((layout_.size + unit - 1) / unit, grain, [&](int64_t begin, int64_t end) {
      Worker worker(*this);
      worker.process(begin * unit, std::min(end * unit, layout_.size));
      if (streaming_) finish_streams();
    });
  }

 private:
  // An operand whose address depends on the position.
  struct Moving {
    Cell cell;
    const char* data;
    int64_t size;   // bytes an element
    int32_t input;  // -1: an output
    Access access;
    int32_t gather;  // into gathers_, or -1
    bool periodic;
  };

  // --- Binding ---

  void bind() {
    const size_t outputs = m_.body_.outputs.size();
    const bool alias = may_alias(in_, out_);
    for (size_t k = 0; k < in_.size(); ++k) bind_input(k, alias);
    for (size_t k = 0; k < outputs; ++k) {
      const Cell cell = Cell(in_.size() + k);
      table_[cell] = out_[k].as<char>();
      if (m_.body_.outputs[k].single) continue;
      moving_.push_back({cell, out_[k].as<char>(), size_of(out_[k].dtype()), -1, Access::kLinear, -1, false});
    }
    aliased_ = alias;
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
    Moving moving{Cell(k), v.as<char>(), size, int32_t(k), access, -1, layout_.periodic(k)};
    const bool reread = alias && overwritten(k);
    if (access == Access::kLinear) {
      if (!dense(v) && scattered(v))
        moving.data = copy(v);
      else if (!dense(v) || reread)
        moving.gather = add_gather(v.as<char>(), size, v.shape(), *v.strides);
    } else {
      if (!dense(v) || reread) moving.data = copy(v);
      if (access == Access::kGather) {
        moving.gather = int32_t(gathers_.size());
        gathers_.emplace_back(moving.data, size, layout_.shape, layout_.strides[k]);
      }
    }
    moving_.push_back(moving);
  }

  // A view that has as many elements as the space has its shape, but for dims of size 1.
  int32_t add_gather(const char* data, int64_t size, const Dims& shape, const Dims& strides) {
    gathers_.emplace_back(data, size, shape, strides);
    return int32_t(gathers_.size()) - 1;
  }

  // Walking a large transposed operand in order would miss the cache at each element.
  static bool scattered(const View& v) { return v.numel() >= int64_t(1) << 14 && std::abs(v.strides->back()) >= 8; }

  const char* copy(const View& v) {
    Ref<Buffer> buffer = Buffer::allocate(Device{}, bytes_of(*v.type));
    copy_strided(v, buffer->data);
    copies_.push_back(buffer);
    return static_cast<const char*>(buffer->data);
  }

  // Whether an output that stands where input k does is written before the input is read for the last time.
  bool overwritten(size_t k) const {
    for (const auto& h : program_.hazards)
      if (h.input == int32_t(k) && out_[size_t(h.output)].data == in_[k].data) return true;
    const bool reduces = m_.body_.reduction.op && layout_.access[k] != Access::kColumn;
    return reduces && out_.back().data == in_[k].data;
  }

  void choose_streaming() {
    if (program_.streaming.instructions.empty() || aliased_ || !gathers_.empty()) return;
    if (layout_.runs && layout_.inner % 16 != 0) return;
    int64_t bytes = 0;
    for (const Moving& m : moving_) {
      if (m.access == Access::kLinear) bytes += m.size * layout_.size;
      if (m.input < 0 && reinterpret_cast<uintptr_t>(m.data) % 64 != 0) return;
    }
    if (bytes < kStreamBytes) return;
    streaming_ = true;
    code_ = &program_.streaming;
  }

  int64_t unit_elements() const {
    int64_t unit = chain_block();
    for (const Moving& m : moving_)
      if (m.periodic) return std::max<int64_t>(1, program_.tile / layout_.inner) * layout_.inner;
    return unit;
  }

  // --- What one thread does ---

  class Worker {
   public:
    explicit Worker(const TileRun& run) : r_(run) {
      const TileProgram& program = r_.program_;
      const int64_t table_bytes = rounded_up(program.cells * int64_t(sizeof(char*)), 64);
      const int64_t locals = rounded_up(program.local_bytes, 64), gather = program.tile * int64_t(kElementBytes);
      const bool totals = r_.m_.body_.reduction.op;
      const int64_t bytes = table_bytes + locals + gather * int64_t(r_.gathers_.size()) +
                            (totals ? kTotalsBlock * int64_t(kElementBytes) : 0);
      char* base = static_cast<char*>(scratch_bytes(ScratchSlot::kFused, Bytes(size_t(bytes))));
      table_ = reinterpret_cast<char**>(base);
      std::memcpy(table_, r_.table_, size_t(program.cells) * sizeof(char*));
      place_registers(program.local, base + table_bytes, table_);
      tiles_ = base + table_bytes + locals;
      tile_bytes_ = gather;
      totals_ = tiles_ + gather * int64_t(r_.gathers_.size());
      tiled_ = !program.levels[2].pure || !r_.gathers_.empty();
    }

    char* totals() const { return totals_; }

    // Computes positions [begin, end). Those of the reduced value go to totals(), `size` bytes each.
    void process(int64_t begin, int64_t end, int64_t size = 0) {
      const TileLayout& layout = r_.layout_;
      int64_t tile = tiled_ ? r_.program_.tile : INT64_MAX;
      // Tiles of whole runs leave the tiles of periodic operands as they are.
      const bool whole_runs = tiled_ && !layout.runs && layout.inner <= tile && begin % layout.inner == 0;
      if (whole_runs) tile = tile / layout.inner * layout.inner;
      if (layout.runs) start_runs(begin);
      const Cell totals_cell = Cell(r_.in_.size() + r_.m_.body_.outputs.size());
      int64_t left = layout.runs ? layout.inner - begin % layout.inner : INT64_MAX;  // of the run
      bool fresh = layout.runs;
      for (int64_t position = begin; position < end;) {
        const int64_t n = std::min({end - position, tile, left});
        for (size_t k = 0; k < r_.moving_.size(); ++k)
          move(k, position, n, layout.inner - left, whole_runs && position != begin);
        table_[totals_cell] = totals_ + (position - begin) * size;
        if (fresh && !r_.program_.levels[1].instructions.empty()) execute(r_.program_.levels[1], table_, 1);
        if (r_.streaming_)
          run_chain(r_.code_->steps.data(), table_, n);
        else
          execute(*r_.code_, table_, n, !r_.aliased_);
        position += n;
        fresh = layout.runs && (left -= n) == 0;
        if (!fresh) continue;
        next_run();
        left = layout.inner;
      }
    }

   private:
    void move(size_t k, int64_t position, int64_t n, int64_t in_run, bool filled) {
      const Moving& m = r_.moving_[k];
      if (m.gather >= 0) {
        char* tile = tiles_ + m.gather * tile_bytes_;
        table_[m.cell] = tile;
        if (!(filled && m.periodic)) r_.gathers_[size_t(m.gather)].read(position, n, tile);
        return;
      }
      const int64_t at = m.access == Access::kLinear ? position : runs_[k] + (m.access == Access::kRun ? in_run : 0);
      table_[m.cell] = const_cast<char*>(m.data) + at * m.size;
    }

    // The operands' offsets at the start of the run that `position` lies in.
    void start_runs(int64_t position) {
      const Dims& shape = r_.layout_.shape;
      position -= position % r_.layout_.inner;
      index_ = shape;
      runs_.clear();
      for (const Moving& m : r_.moving_) {
        const bool jumps = m.access == Access::kRun || m.access == Access::kColumn;
        runs_.push_back(jumps ? r_.layout_.offset(size_t(m.input), position) : 0);
      }
      position /= r_.layout_.inner;
      for (int d = shape.size() - 2; d >= 0; position /= shape[d--]) index_[d] = position % shape[d];
    }

    void next_run() {
      const TileLayout& layout = r_.layout_;
      for (int d = layout.shape.size() - 2; d >= 0; --d) {
        const bool wraps = ++index_[d] == layout.shape[d];
        for (size_t k = 0; k < runs_.size(); ++k) {
          const Moving& m = r_.moving_[k];
          if (m.access != Access::kRun && m.access != Access::kColumn) continue;
          const int64_t stride = layout.strides[size_t(m.input)][d];
          runs_[k] += wraps ? stride - stride * layout.shape[d] : stride;
        }
        if (!wraps) return;
        index_[d] = 0;
      }
    }

    Dims index_;                     // of the current run
    SmallVector<int64_t, 12> runs_;  // where it starts, by moving operand
    const TileRun& r_;
    char** table_;
    char *tiles_, *totals_;
    int64_t tile_bytes_;
    bool tiled_;
  };

  // --- Reductions ---

  void reduce() {
    const TileReduction& r = m_.body_.reduction;
    const int64_t rows = out_.back().numel();
    element_ = r.storage == DType::kBool ? 1 : size_of(reduce_compute_type(r.storage));
    if (layout_.size == 0) return reduce_nothing(rows);
    if (reduces_in_chunks(rows, r.row)) return reduce_in_chunks(rows);
    if (r.row > kTotalsBlock / 2) return reduce_long_rows(rows);
    const int64_t group = std::clamp<int64_t>(kTotalsBlock / r.row, 1, kRowsBatch), groups = (rows + group - 1) / group;
    parallel_for(groups, grain(group * r.row), [&](int64_t begin, int64_t end) {
      Worker worker(*this);
      Total totals[kRowsBatch];
      for (int64_t g = begin; g < end; ++g) {
        const int64_t first = g * group, n = std::min(group, rows - first);
        worker.process(first * r.row, (first + n) * r.row, element_);
        std::fill(totals, totals + n, m_.loops_.init);
        m_.loops_.runs(totals, worker.totals(), r.row, n, r.row);
        store(first, totals, n);
      }
    });
  }

  int64_t grain(int64_t elements) const {
    return kWorthAThread / std::max<int64_t>(1, elements * (code_->cost + 50)) + 1;
  }

  void store(int64_t first, const Total* totals, int64_t n) const {
    const TileReduction& r = m_.body_.reduction;
    store_totals(r.dtype, out_.back().as<char>() + first * size_of(r.dtype), 1, totals, n, r.storage, m_.reduction_);
  }

  void reduce_nothing(int64_t rows) {
    for (int64_t i = 0; i < rows; ++i) store(i, &m_.loops_.init, 1);
  }

  // Joins the elements from `begin` on, block by block.
  void add(Worker& worker, Total* total, int64_t begin, int64_t n) const {
    for (int64_t i = 0; i < n; i += kTotalsBlock) {
      const int64_t count = std::min(kTotalsBlock, n - i);
      worker.process(begin + i, begin + i + count, element_);
      m_.loops_.runs(total, worker.totals(), count, 1, 0);
    }
  }

  void reduce_long_rows(int64_t rows) {
    const int64_t row = m_.body_.reduction.row;
    parallel_for(rows, grain(row), [&](int64_t begin, int64_t end) {
      Worker worker(*this);
      for (int64_t k = begin; k < end; ++k) {
        Total total = m_.loops_.init;
        add(worker, &total, k * row, row);
        store(k, &total, 1);
      }
    });
  }

  // Few rows with much work each: partial totals of parts of fixed size, joined in order.
  void reduce_in_chunks(int64_t rows) {
    const int64_t row = m_.body_.reduction.row, chunks = (row + kReduceChunk - 1) / kReduceChunk;
    std::vector<Total> partial(size_t(rows * chunks), m_.loops_.init);
    parallel_for(rows * chunks, grain(kReduceChunk), [&](int64_t begin, int64_t end) {
      Worker worker(*this);
      for (int64_t i = begin; i < end; ++i) {
        const int64_t first = i % chunks * kReduceChunk;
        add(worker, &partial[size_t(i)], i / chunks * row + first, std::min(kReduceChunk, row - first));
      }
    });
    for (int64_t k = 0; k < rows; ++k) {
      Total total = m_.loops_.init;
      for (int64_t c = 0; c < chunks; ++c) m_.loops_.join(&total, &partial[size_t(k * chunks + c)], 1);
      store(k, &total, 1);
    }
  }

  const TileMachine& m_;
  const TileProgram& program_;
  const TileLayout& layout_;
  std::span<const View> in_, out_;
  char** table_;
  char* singles_;
  SmallVector<Moving, 12> moving_;
  SmallVector<Gather, 2> gathers_;
  SmallVector<Ref<Buffer>, 1> copies_;
  const TileCode* code_ = &program_.levels[2];
  int64_t element_ = 0;
  bool aliased_ = false, streaming_ = false;
};

namespace {

struct ReductionRow {
  const char* op;
  Reduction reduction;
};
constexpr ReductionRow kReductions[] = {
    {"sum", {ReduceOp::kSum}},
    {"sum_to", {ReduceOp::kSum}},
    {"mean", {ReduceOp::kSum, Finish::kScale}},
    {"sum_squares", {ReduceOp::kSumSquares}},
    {"prod", {ReduceOp::kProd}},
    {"amax", {ReduceOp::kMax}},
    {"amin", {ReduceOp::kMin}},
    {"count_nonzero", {ReduceOp::kCount}},
    {"any", {ReduceOp::kCount, Finish::kAny}},
    {"all", {ReduceOp::kCount, Finish::kAll}},
};

// Of totals over `row` elements.
Reduction find_reduction(const OpDef& op, int64_t row) {
  Reduction out{ReduceOp::kSum};
  for (const ReductionRow& r : kReductions)
    if (std::string_view(op.name) == r.op) out = r.reduction;
  if (out.finish == Finish::kScale) out.factor = 1.0 / double(row);
  if (out.finish == Finish::kAll) out.factor = double(row);
  return out;
}

}  // namespace

TileMachine::TileMachine(TileBody body)
    : body_(std::move(body)), layout_(body_), program_(compile_tiles(body_, layout_)) {
  const TileReduction& r = body_.reduction;
  if (r.op) {
    reduction_ = find_reduction(*r.op, r.row);
    loops_ = reduce_loops(reduction_.op, reduce_compute_type(r.storage));
  }
  plain_ = !r.op && layout_.size > 0 && program_.levels[2].pure;
  int64_t bytes = 0;
  for (size_t k = 0; k < body_.inputs.size(); ++k) {
    plain_ &= layout_.access[k] == Access::kSingle || layout_.access[k] == Access::kLinear;
    bytes += size_of(body_.inputs[k].dtype) * layout_.size;
  }
  for (const TileOutput& o : body_.outputs) bytes += size_of(o.dtype) * layout_.size;
  plain_ &= bytes < kStreamBytes && layout_.size * program_.levels[2].cost < 2 * kWorthAThread;
}

bool TileMachine::runs_plainly(std::span<const View> in, std::span<const View> out) const {
  if (!plain_) return false;
  if (layout_.size == 1) return true;
  for (size_t k = 0; k < in.size(); ++k)
    if (layout_.access[k] == Access::kLinear && !dense(in[k])) return false;
  return program_.hazards.empty() || !may_alias(in, out);
}

void TileMachine::run_plain(std::span<const View> in, std::span<const View> out) const {
  const int64_t table_bytes = rounded_up(program_.cells * int64_t(sizeof(char*)), 64);
  const int64_t shared_bytes = rounded_up(program_.shared_bytes + int64_t(in.size() * kElementBytes), 64);
  char* base = static_cast<char*>(
      scratch_bytes(ScratchSlot::kFused, Bytes(size_t(table_bytes + shared_bytes + program_.local_bytes))));
  char** table = reinterpret_cast<char**>(base);
  for (size_t k = 0; k < in.size(); ++k) table[k] = in[k].as<char>();
  for (size_t k = 0; k < out.size(); ++k) table[in.size() + k] = out[k].as<char>();
  place_constants(program_, table);
  place_registers(program_.shared, base + table_bytes, table);
  place_registers(program_.local, base + table_bytes + shared_bytes, table);
  if (layout_.size == 1 && !program_.hazards.empty() && may_alias(in, out)) {
    char* copies = base + table_bytes + program_.shared_bytes;
    for (size_t k = 0; k < in.size(); ++k) {
      std::memcpy(copies + k * kElementBytes, in[k].data, size_t(size_of(in[k].dtype())));
      table[k] = copies + k * kElementBytes;
    }
  }
  execute(program_.levels[0], table, 1);
  if (layout_.size > 1)
    execute(program_.levels[2], table, layout_.size, program_.levels[2].pure && !may_alias(in, out));
}

void TileMachine::run(std::span<const View> in, std::span<const View> out, void*) const {
  if (runs_plainly(in, out)) return run_plain(in, out);
  TileRun(*this, in, out).run();
}

}  // namespace pg::cpu

namespace pg {

std::shared_ptr<const TileKernel> make_tile_kernel(TileBody body) {
  return std::make_shared<cpu::TileMachine>(std::move(body));
}

bool tile_computes(const OpDef& op, DType compute) {
  const cpu::SpanRow* row = cpu::find_span(op.name);
  return row && row->fn[int(compute)];
}

bool tile_reduces(const OpDef& op) {
  return std::any_of(std::begin(cpu::kReductions), std::end(cpu::kReductions),
                     [&](const cpu::ReductionRow& r) { return std::string_view(op.name) == r.op; });
}

void tile_params(const OpDef& op, const Attrs& attrs, double* params) { cpu::span_params(op, attrs, params); }

bool tile_checks(const OpDef& op) {
  const cpu::SpanRow* row = cpu::find_span(op.name);
  return row && row->check != SpanCheck::kNothing;
}

void tile_check(const OpDef& op, const View& divisor) {
  if (const cpu::SpanRow* row = cpu::find_span(op.name)) cpu::check_divisor(op, divisor, row->check);
}

}  // namespace pg
