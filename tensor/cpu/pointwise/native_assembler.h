// The machine code of a NativeGraph for x86 with AVX2 or AVX-512; a part of native_code.cpp.
#pragma once
#include <xbyak/xbyak.h>

#include <cstddef>
#include <vector>

#include "tensor/cpu/pointwise/native_registers.h"

namespace pg::cpu {

// A part of a chain as a function of the type of Step::block: the step, the table of addresses and the index of the
// block's first element are in rdi, rsi and rdx, the eight accumulators in the first vector registers. No register has
// to be kept.
class Assembler : public Xbyak::CodeGenerator {
 public:
  Assembler(uint8_t* buffer, size_t size, bool wide)
      : Xbyak::CodeGenerator(size, buffer), wide_(wide), lanes_(wide ? 16 : 8) {}

  // One register is kept for the code of single nodes.
  int registers() const { return wide_ ? 31 : 15; }

  void write(const NativeGraph& graph, const NativeRegisters& where, size_t steps, bool ends) {
    graph_ = &graph;
    where_ = &where;
    const size_t count = graph.nodes.size();
    labels_.assign(count, {});
    if (where.pinned)
      for (size_t n = 0; n < count; ++n)
        if (graph.nodes[n].uniform() && where.first[n] >= 0) broadcast(n);
    for (start_ = 0; start_ < kBlockVectors; start_ += where.group) {
      for (size_t n = 0; n < count; ++n)
        if (!(where.pinned && graph.nodes[n].uniform())) write_node(n);
      if (graph.result >= 0)
        for (int k = 0; k < where.group; ++k) move(vector(start_ + k), value(graph.result, k));
    }
    if (ends) {
      ret();
    } else {
      add(rdi, uint32_t(steps * sizeof(Step)));
      jmp(ptr[rdi + offsetof(Step, block)]);
    }
    write_constants();
  }

 private:
  using Vector = Xbyak::Xmm;
  using Op = NativeOp;

  Vector vector(int index) const {
    if (wide_) return Xbyak::Zmm(index);
    return Xbyak::Ymm(index);
  }
  Vector temporary() const { return vector(registers()); }

  // The register of vector k of the group.
  Vector value(int32_t n, int k) const {
    const NativeNode& node = graph_->nodes[size_t(n)];
    const int first = where_->first[size_t(n)];
    if (node.op == Op::kAccumulator) return vector(start_ + k);
    return vector(node.uniform() ? first : first + k);
  }

  void move(const Vector& to, const Vector& from) {
    if (to.getIdx() != from.getIdx()) vmovaps(to, from);
  }

  // --- Memory ---

  void load_base(int32_t cell) { mov(rax, ptr[rsi + cell * int(sizeof(char*))]); }

  // Vector k of the group, after load_base.
  Xbyak::Address address(const NativeNode& n, int k) {
    const bool bytes = n.kind == NativeKind::kBool || n.kind == NativeKind::kByte;
    const int size = n.kind == NativeKind::kFloat ? 4 : bytes ? 1 : 2;
    const int offset = (start_ + k) * lanes_ * size;
    return n.moves ? ptr[rax + rdx * size + offset] : ptr[rax + offset];
  }

  void broadcast(size_t n) {
    const NativeNode& node = graph_->nodes[n];
    const Vector to = vector(where_->first[n]);
    if (node.op == Op::kConstant) {
      if (node.bits == 0)
        wide_ ? vpxord(to, to, to) : vpxor(to, to, to);
      else
        vbroadcastss(to, ptr[rip + labels_[n]]);
      return;
    }
    load_base(node.cell);
    if (node.kind == NativeKind::kFloat) return vbroadcastss(to, ptr[rax]);
    if (node.kind == NativeKind::kBool || node.kind == NativeKind::kByte)
      movzx(ecx, byte[rax]);
    else
      movzx(ecx, word[rax]);
    if (node.kind == NativeKind::kBool) neg(ecx);
    if (node.kind == NativeKind::kBFloat16) shl(ecx, 16);
    const Xbyak::Xmm low(to.getIdx());
    vmovd(low, ecx);
    if (node.kind == NativeKind::kHalf) vcvtph2ps(low, low);
    if (node.kind == NativeKind::kByte) vcvtdq2ps(low, low);
    vbroadcastss(to, low);
  }

  void load(const Vector& to, const NativeNode& n, int k) {
    const Xbyak::Address from = address(n, k);
    switch (n.kind) {
      case NativeKind::kFloat:
        return vmovups(to, from);
      case NativeKind::kHalf:
        return vcvtph2ps(to, from);
      case NativeKind::kBFloat16:
        vpmovzxwd(to, from);
        return vpslld(to, to, 16);
      case NativeKind::kBool:
        vpmovzxbd(to, from);
        wide_ ? vpxord(temporary(), temporary(), temporary()) : vpxor(temporary(), temporary(), temporary());
        return vpsubd(to, temporary(), to);
      case NativeKind::kByte:
        vpmovzxbd(to, from);
        return vcvtdq2ps(to, to);
    }
  }

  void store(const NativeNode& n, const Vector& from, int k) {
    const Xbyak::Address to = address(n, k);
    const Vector bits = temporary();
    switch (n.kind) {
      case NativeKind::kFloat:
        return n.op == Op::kStream ? vmovntps(to, from) : vmovups(to, from);
      case NativeKind::kHalf:
        return vcvtps2ph(to, from, 8);
      case NativeKind::kBFloat16:
        vpsrld(bits, from, 16);
        if (wide_) return vpmovdw(to, Xbyak::Zmm(bits.getIdx()));
        vpackusdw(bits, bits, bits);
        vpermq(Xbyak::Ymm(bits.getIdx()), Xbyak::Ymm(bits.getIdx()), 8);
        return vmovups(to, Xbyak::Xmm(bits.getIdx()));
      case NativeKind::kBool:
        vpsrld(bits, from, 31);
        if (wide_) return vpmovdb(to, Xbyak::Zmm(bits.getIdx()));
        vpackusdw(bits, bits, bits);
        vpermq(Xbyak::Ymm(bits.getIdx()), Xbyak::Ymm(bits.getIdx()), 8);
        vpackuswb(Xbyak::Xmm(bits.getIdx()), Xbyak::Xmm(bits.getIdx()), Xbyak::Xmm(bits.getIdx()));
        return vmovq(to, Xbyak::Xmm(bits.getIdx()));
      case NativeKind::kByte:
        return;
    }
  }

  // --- Nodes ---

  bool folds(int32_t n) const { return where_->folds[size_t(n)]; }

  void write_node(size_t n) {
    const NativeNode& node = graph_->nodes[n];
    if (node.op == Op::kAccumulator || where_->folds[n]) return;
    if (!node.writes() && where_->first[n] < 0) return;
    if (node.uniform()) return broadcast(n);
    if (node.writes() || node.op == Op::kLoad) load_base(node.cell);
    const bool binary = node.operands[1] >= 0;
    if (binary && folds(node.operands[1])) load_base(graph_->nodes[size_t(node.operands[1])].cell);
    for (int k = 0; k < where_->group; ++k) {
      if (node.writes()) {
        store(node, value(node.operands[0], k), k);
        continue;
      }
      const Vector to = value(int32_t(n), k);
      if (node.op == Op::kLoad)
        load(to, node, k);
      else if (binary && folds(node.operands[1]))
        compute(node, to, address(graph_->nodes[size_t(node.operands[1])], k), k);
      else
        compute(node, to, binary ? value(node.operands[1], k) : to, k);
    }
  }

  // y: the second operand, in a register or in memory.
  void compute(const NativeNode& node, const Vector& to, const Xbyak::Operand& y, int k) {
    const Vector x = value(node.operands[0], k);
    switch (node.op) {
      case Op::kAdd:
        return vaddps(to, x, y);
      case Op::kSub:
        return vsubps(to, x, y);
      case Op::kMul:
        return vmulps(to, x, y);
      case Op::kDiv:
        return vdivps(to, x, y);
      case Op::kMax:
        return vmaxps(to, x, y);
      case Op::kMin:
        return vminps(to, x, y);
      case Op::kSquareAdd:
        if (!y.isMEM() && y.getIdx() == to.getIdx()) return vfmadd231ps(to, x, x);
        move(to, x);
        return vfmadd213ps(to, to, y);
      case Op::kSqrt:
        return vsqrtps(to, x);
      case Op::kRound:
        return wide_ ? vrndscaleps(to, x, node.mode) : vroundps(to, x, node.mode);
      case Op::kAnd:
        return vandps(to, x, y);
      case Op::kAndNot:
        return vandnps(to, x, y);
      case Op::kOr:
        return vorps(to, x, y);
      case Op::kXor:
        return vxorps(to, x, y);
      case Op::kAddInts:
        return vpaddd(to, x, y);
      case Op::kShiftRight:
        return vpsrld(to, x, node.mode);
      case Op::kCompare:
        if (!wide_) return vcmpps(to, x, y, node.mode);
        vcmpps(k1, x, y, node.mode);
        return vpmovm2d(to, k1);
      case Op::kSelect:
        if (wide_) vpmovd2m(k1, x);
        return blend(to, x, value(node.operands[1], k), value(node.operands[2], k));
      case Op::kCompareSelect:
        if (wide_)
          vcmpps(k1, x, y, node.mode);
        else
          vcmpps(temporary(), x, y, node.mode);
        return blend(to, temporary(), value(node.operands[2], k), value(node.operands[3], k));
      default:
        return;
    }
  }

  // a where k1, or `mask` where there are no mask registers, else b.
  void blend(const Vector& to, const Vector& mask, const Vector& a, const Vector& b) {
    if (wide_)
      vblendmps(to | k1, b, a);
    else
      vblendvps(to, b, a, mask);
  }

  void write_constants() {
    align(4, false);
    for (size_t n = 0; n < graph_->nodes.size(); ++n) {
      const NativeNode& node = graph_->nodes[n];
      if (node.op != Op::kConstant || node.bits == 0 || where_->first[n] < 0) continue;
      L(labels_[n]);
      dd(node.bits);
    }
  }

  const bool wide_;
  const int lanes_;
  const NativeGraph* graph_ = nullptr;
  const NativeRegisters* where_ = nullptr;
  int start_ = 0;  // the group's first vector
  std::vector<Xbyak::Label> labels_;
};

}  // namespace pg::cpu
