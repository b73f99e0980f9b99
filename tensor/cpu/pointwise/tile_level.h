// The code of one level of a tile program; a part of tile_compile.cpp.
//
// Values are computed on demand, starting from the outputs. Of several operands the most expensive one is computed
// first, so that values stay in the accumulator from step to step. Values that are read again later go to registers,
// which are allocated by liveness.
#pragma once
#include <algorithm>
#include <map>

#include "tensor/cpu/pointwise/tile_plan.h"
#include "tensor/small_vector.h"

namespace pg::cpu {

// The code of one level.
class LevelCompiler {
  using Kind = TileValue::Kind;
  using Instruction = TileInstruction;

 public:
  LevelCompiler(TilePlan& plan, int level, TileCode& code, std::vector<TileTarget> targets, bool streaming = false)
      : p_(plan),
        code_(code),
        level_(level),
        streaming_(streaming),
        targets_(std::move(targets)),
        place_(plan.place),
        left_(plan.level.size(), 0),
        owned_(plan.level.size(), -1) {
    // Users first: what they are computed from is stored on the way.
    std::stable_sort(targets_.begin(), targets_.end(),
                     [](const TileTarget& a, const TileTarget& b) { return a.value > b.value; });
    count_reads();
    code_.pure = is_pure();
  }

  void compile() {
    for (const TileTarget& t : targets_) {
      if (!here(t.value)) {
        transfer(t);
      } else if (!done(t.value)) {
        generate(t.value);
        if (left_[size_t(t.value)] > 0) keep(t.value);
      }
    }
    close();
    lay_out_registers();
  }

 private:
  struct Register {
    Cell cell;
    int64_t element;  // bytes
  };

  bool here(int32_t v) const { return p_.level[size_t(v)] == level_ && p_.computed(v); }
  bool scalar(int32_t v) const { return p_.level[size_t(v)] < level_; }
  bool in_memory(int32_t v) const { return place_[size_t(v)] >= 0; }
  // Computed before; then it is in memory unless nothing reads it any more.
  bool done(int32_t v) const { return finished_.size() > size_t(v) && finished_[size_t(v)]; }

  void count_reads() {
    finished_.assign(p_.level.size(), false);
    for (size_t v = 0; v < p_.level.size(); ++v) {
      if (!p_.needed[v] || !here(int32_t(v))) continue;
      for (int k = 0; k < p_.form[v].operands; ++k) ++left_[size_t(p_.value(int32_t(v)).operands[k])];
    }
  }

  bool is_pure() const {
    for (size_t v = 0; v < p_.level.size(); ++v)
      if (p_.needed[v] && here(int32_t(v)) && !p_.form[v].chained) return false;
    for (const TileTarget& t : targets_)
      if (store_op(p_.value(t.value).dtype, t.dtype) == ChainOp::kCount) return false;
    return true;
  }

  // --- Code ---

  void push(Step& step, ChainOp op) {
    if (!open_) {
      Instruction chain;
      chain.first_step = int32_t(code_.steps.size());
      code_.instructions.push_back(chain);
      open_ = true;
      last_op_ = ChainOp::kEnd;
    }
    const ChainOp pair = pair_op(last_op_, op);
    if (pair != ChainOp::kCount) {
      step = as_second(code_.steps.back(), step);
      code_.steps.pop_back();
      op = pair;
    }
    set_code(step, op);
    code_.steps.push_back(step);
    code_.cost += chain_cost(op);
    last_op_ = op;
    ++p_.clock;
  }

  // The step `first` with the operand of `second` as its other one.
  static Step as_second(Step first, const Step& second) {
    first.b = second.a;
    first.b_mask = second.a_mask;
    first.b_scalar = second.a_scalar;
    return first;
  }

  void close() {
    if (!open_) return;
    Step end;
    push(end, ChainOp::kEnd);
    open_ = false;
    accumulator_ = -1;
  }

  void push(const Instruction& instruction, int64_t cost) {
    close();
    code_.instructions.push_back(instruction);
    code_.cost += cost;
    ++p_.clock;
  }

  // The cell of a value that is in memory, for the code emitted next.
  Cell read(int32_t v) {
    const TileValue& value = p_.value(v);
    if (value.kind == Kind::kInput) p_.last_read[size_t(value.index)] = p_.clock;
    return place_[size_t(v)];
  }

  int32_t mask(int32_t v) const { return code_.pure && owned_[size_t(v)] >= 0 ? 0 : -1; }

  void use_a(Step& step, int32_t v) {
    step.a = read(v);
    step.a_scalar = scalar(v);
    step.a_mask = mask(v);
  }
  void use_b(Step& step, int32_t v) {
    step.b = read(v);
    step.b_scalar = scalar(v);
    step.b_mask = mask(v);
  }

  void load(int32_t v) {
    if (accumulator_ == v) return;
    Step step;
    use_a(step, v);
    push(step, load_op(p_.value(v).dtype));
    accumulator_ = v;
  }

  // Stores the accumulator in the register of v.
  void store_register(int32_t v) {
    Step step;
    step.a = place_[size_t(v)];
    step.a_mask = mask(v);
    push(step, store_op(p_.value(v).dtype, p_.value(v).dtype));
  }

  // --- Registers ---

  // A register is only used again for values of the same size: machine code finishes some vectors of a block before it
  // begins others (trace_native).
  void take_register(int32_t v) {
    const int64_t element = level_ < 2 ? kSingleBytes : size_of(p_.value(v).dtype);
    std::vector<int32_t>& pool = free_[element];
    if (pool.empty()) {
      pool.push_back(int32_t(registers_.size()));
      registers_.push_back({p_.new_cell(), element});
    }
    owned_[size_t(v)] = pool.back();
    pool.pop_back();
    place_[size_t(v)] = registers_[size_t(owned_[size_t(v)])].cell;
  }

  void consume(int32_t v) {
    if (!here(v) || --left_[size_t(v)] > 0 || owned_[size_t(v)] < 0) return;
    const int32_t r = owned_[size_t(v)];
    free_[registers_[size_t(r)].element].push_back(r);
    owned_[size_t(v)] = -1;
    place_[size_t(v)] = -1;
  }

  // Stores a value that was just computed, so that it can be read later.
  void keep(int32_t v) {
    if (in_memory(v)) return;
    take_register(v);
    store_register(v);
  }

  void lay_out_registers() {
    int64_t& bytes = level_ == 0 ? p_.program.shared_bytes : p_.program.local_bytes;
    int64_t width = 0;
    for (const Register& r : registers_) width += r.element;
    int64_t elements = level_ < 2 ? 1 : chain_block();
    if (level_ == 2 && !code_.pure) {
      while (p_.program.tile > 128 && p_.program.tile * width > kRegisterBytes) p_.program.tile /= 2;
      elements = p_.program.tile;
    }
    if (level_ == 2) bytes = (bytes + 63) / 64 * 64;
    for (const Register& r : registers_) {
      (level_ == 0 ? p_.program.shared : p_.program.local).push_back({r.cell, bytes});
      bytes += (r.element * elements + kSingleBytes - 1) / kSingleBytes * kSingleBytes;
      if (level_ == 2) bytes = (bytes + 63) / 64 * 64;
    }
  }

  // --- Values ---

  // A value that is to be computed after some of its operands, which go to memory.
  struct Pending {
    int32_t v;
    SmallVector<int32_t, 3> operands{};
    size_t next = 0;                 // of the operands
    bool accumulates = false;        // the last operand stays in the accumulator
    ChainOp join = ChainOp::kCount;  // the step that computes an operand, too, and the position of the other one
    int held = 0;
  };

  // Computes a value, which then is in the accumulator or in memory, and stores it where targets want it. Without
  // recursion, since a chain of ops is as deep as it is long.
  void generate(int32_t root) {
    std::vector<Pending> stack{start(root)};
    while (true) {
      Pending& top = stack.back();
      while (top.next < top.operands.size() && in_memory(top.operands[top.next])) ++top.next;  // another one needed it
      if (top.next < top.operands.size()) {
        stack.push_back(start(top.operands[top.next]));
        continue;
      }
      const int32_t v = top.v;
      finish(top);
      stack.pop_back();
      if (stack.empty()) return;
      Pending& reader = stack.back();
      if (++reader.next < reader.operands.size() || !reader.accumulates) keep(v);
    }
  }

  Pending start(int32_t v) {
    finished_[size_t(v)] = true;
    Pending out{v};
    const ChainForm& form = p_.form[size_t(v)];
    if (form.chained && form.load != ChainOp::kCount) {
      out.operands.push_back(p_.value(v).operands[0]);
    } else if (!form.chained || !find_join(out)) {
      out.operands = pending_operands(v);
      const int32_t last = form.chained ? last_operand(v, out.operands) : -1;
      out.accumulates = last >= 0;
      std::stable_partition(out.operands.begin(), out.operands.end(), [&](int32_t o) { return o != last; });
    }
    return out;
  }

  void finish(const Pending& pending) {
    const int32_t v = pending.v;
    if (!p_.form[size_t(v)].chained) return generate_span(v);
    if (p_.form[size_t(v)].load != ChainOp::kCount)
      generate_load(v);
    else if (pending.join != ChainOp::kCount)
      generate_joined(pending);
    else
      generate_chained(v);
    accumulator_ = v;
    round(v);
    for (const TileTarget& t : targets_)
      if (t.value == v) store_target(t);
    if (left_[size_t(v)] > 1) keep(v);
  }

  void round(int32_t v) {
    const TileValue& value = p_.value(v);
    if (!is_half(value.rounded) || value.dtype != DType::kFloat32 || p_.form[size_t(v)].load != ChainOp::kCount) return;
    const bool rounds_itself = value.kind == Kind::kConvert && p_.value(value.operands[0]).dtype == DType::kFloat32;
    if (rounds_itself) return;
    Step step;
    push(step, rounding_op(value.rounded));
  }

  void store_target(const TileTarget& t) {
    const ChainOp op = store_op(p_.value(t.value).dtype, t.dtype);
    if (op == ChainOp::kCount) return transfer(t);
    Step step;
    step.a = t.cell;
    if (t.adds != ChainOp::kCount) {
      step.a_mask = 0;
      return push(step, t.adds);
    }
    const bool streams = streaming_ && t.output >= 0 && op == ChainOp::kStore;
    note_write(t);
    push(step, streams ? ChainOp::kStream : op);
    const bool readable = t.dtype == p_.value(t.value).dtype && !streams;
    if (readable && here(t.value) && !in_memory(t.value)) place_[size_t(t.value)] = t.cell;
  }

  void note_write(const TileTarget& t) {
    if (t.output < 0) return;
    int32_t& first = p_.first_write[size_t(t.output)];
    first = std::min(first, p_.clock);
  }

  // Copies a value from memory to a target.
  void transfer(const TileTarget& t) {
    const DType from = p_.value(t.value).dtype;
    if (store_op(from, t.dtype) != ChainOp::kCount) {
      load(t.value);
      return store_target(t);
    }
    if (!in_memory(t.value)) keep(t.value);
    Instruction convert;
    convert.kind = Instruction::Kind::kConvert;
    convert.convert = converter(from, t.dtype);
    convert.in[0] = read(t.value);
    convert.scalars = scalar(t.value);
    convert.out = t.cell;
    note_write(t);
    push(convert, 60);
  }

  void generate_load(int32_t v) {
    const int32_t from = p_.value(v).operands[0];
    Step step;
    use_a(step, from);
    push(step, p_.form[size_t(v)].load);
    consume(from);
  }

  // Operands that must be computed, each once: first those that are stored anyway (results of spans, values that are
  // read again), then the most expensive ones.
  SmallVector<int32_t, 3> pending_operands(int32_t v) const {
    SmallVector<int32_t, 3> out;
    const TileValue& value = p_.value(v);
    for (int k = 0; k < p_.form[size_t(v)].operands; ++k) {
      const int32_t o = value.operands[k];
      if (!in_memory(o) && std::find(out.begin(), out.end(), o) == out.end()) out.push_back(o);
    }
    std::stable_sort(out.begin(), out.end(), [&](int32_t a, int32_t b) {
      const int stored_a = stored_anyway(a), stored_b = stored_anyway(b);
      return stored_a != stored_b ? stored_a > stored_b : p_.weight[size_t(a)] > p_.weight[size_t(b)];
    });
    return out;
  }

  int stored_anyway(int32_t v) const { return !p_.form[size_t(v)].chained ? 2 : left_[size_t(v)] > 1 ? 1 : 0; }

  // The operand to compute last, so that it is in the accumulator; -1: none of the pending.
  int32_t last_operand(int32_t v, std::span<const int32_t> pending) const {
    const ChainForm& form = p_.form[size_t(v)];
    for (size_t i = pending.size(); i-- > 0;)
      for (int k = 0; k < form.operands; ++k)
        if (p_.value(v).operands[k] == pending[i] && form.by_operand[k] != ChainOp::kCount) return pending[i];
    return -1;
  }

  // Which operand the step takes from the accumulator; the best is loaded when none is there.
  int accumulated_operand(int32_t v) {
    const ChainForm& form = p_.form[size_t(v)];
    const TileValue& value = p_.value(v);
    int best = -1;
    for (int k = 0; k < form.operands; ++k) {
      if (form.by_operand[k] == ChainOp::kCount) continue;
      if (value.operands[k] == accumulator_) return k;
      if (best < 0 || (scalar(value.operands[best]) && !scalar(value.operands[k]))) best = k;
    }
    load(value.operands[best]);
    return best;
  }

  // Finds a step that also computes one of the operands, an op on two values in memory.
  bool find_join(Pending& out) const {
    const TileValue& value = p_.value(out.v);
    const ChainForm& form = p_.form[size_t(out.v)];
    if (form.operands != 2 || value.operands[0] == value.operands[1]) return false;
    for (int k = 0; k < 2; ++k) {
      const int32_t side = value.operands[1 - k];
      if (joinable(side)) out.join = join_op(p_.form[size_t(side)].by_operand[0], form.by_operand[k]);
      if (out.join == ChainOp::kCount) continue;
      out.operands.push_back(value.operands[k]);
      out.accumulates = true;
      out.held = k;
      return true;
    }
    return false;
  }

  void generate_joined(const Pending& pending) {
    const TileValue& value = p_.value(pending.v);
    const int32_t held = value.operands[pending.held], side = value.operands[1 - pending.held];
    const TileValue& joined = p_.value(side);
    load(held);
    Step step;
    use_a(step, joined.operands[0]);
    use_b(step, joined.operands[1]);
    push(step, pending.join);
    finished_[size_t(side)] = true;
    for (const int32_t o : {joined.operands[0], joined.operands[1], held, side}) consume(o);
  }

  // Whether the value has only one reader, no rounding, and operands in memory.
  bool joinable(int32_t v) const {
    const TileValue& value = p_.value(v);
    if (!here(v) || in_memory(v) || left_[size_t(v)] != 1 || p_.form[size_t(v)].operands != 2) return false;
    if (!p_.form[size_t(v)].chained || is_half(value.rounded)) return false;
    for (const TileTarget& t : targets_)
      if (t.value == v) return false;
    return in_memory(value.operands[0]) && in_memory(value.operands[1]);
  }

  void generate_chained(int32_t v) {
    const TileValue& value = p_.value(v);
    const ChainForm& form = p_.form[size_t(v)];
    const int k = accumulated_operand(v);
    const int32_t held = value.operands[k];
    ChainOp op = form.by_operand[k];
    Step step;
    std::copy(value.params, value.params + kMaxSpanParams, step.params);
    int others = 0;
    for (int j = 0; j < form.operands; ++j) {
      if (j == k) continue;
      const int32_t o = value.operands[j];
      if (o == held && op == ChainOp::kMul) {
        op = ChainOp::kSquare;
        continue;
      }
      keep(o);
      others++ == 0 ? use_a(step, o) : use_b(step, o);
    }
    push(step, op);
    for (int j = 0; j < form.operands; ++j) consume(value.operands[j]);
  }

  // --- Span kernels and conversions, from memory to memory ---

  void generate_span(int32_t v) {
    const TileValue& value = p_.value(v);
    Instruction instruction = span_instruction(v);
    const bool rounds = value.dtype == DType::kFloat32 && is_half(value.rounded);
    const TileTarget* direct = nullptr;
    for (const TileTarget& t : targets_)
      if (t.value == v && t.dtype == value.dtype && !rounds) direct = &t;
    if (direct) {
      place_[size_t(v)] = direct->cell;
      note_write(*direct);
    } else {
      take_register(v);
    }
    instruction.out = place_[size_t(v)];
    push(instruction, p_.row[size_t(v)] ? p_.row[size_t(v)]->cost + 20 : 80);
    for (int k = 0; k < p_.form[size_t(v)].operands; ++k) consume(value.operands[k]);
    if (rounds) {
      load(v);
      round(v);
      store_register(v);
    }
    for (const TileTarget& t : targets_)
      if (t.value == v && &t != direct) transfer(t);
  }

  Instruction span_instruction(int32_t v) {
    const TileValue& value = p_.value(v);
    Instruction out;
    for (int k = 0; k < value.count; ++k) {
      out.in[k] = read(value.operands[k]);
      if (scalar(value.operands[k])) out.scalars |= uint8_t(1u << k);
    }
    if (value.kind == Kind::kConvert) {
      out.kind = Instruction::Kind::kConvert;
      out.convert = converter(p_.value(value.operands[0]).dtype, value.dtype);
    } else {
      out.kind = Instruction::Kind::kSpan;
      out.span = p_.row[size_t(v)]->fn[int(value.compute)];
      std::copy(value.params, value.params + kMaxSpanParams, out.params);
    }
    return out;
  }

  TilePlan& p_;
  TileCode& code_;
  const int level_;
  const bool streaming_;
  std::vector<TileTarget> targets_;
  std::vector<Cell> place_;
  std::vector<int32_t> left_;   // reads to come
  std::vector<int32_t> owned_;  // the register of a value, or -1
  std::vector<bool> finished_;
  std::vector<Register> registers_;
  std::map<int64_t, std::vector<int32_t>> free_;
  int32_t accumulator_ = -1;
  ChainOp last_op_ = ChainOp::kEnd;  // of the open chain
  bool open_ = false;
};

}  // namespace pg::cpu
