// Layout: chains of convolutions run on images whose channels are the last dim, where the device's convolutions are
// fastest. An image in this form is an ordinary tensor (N, spatial..., C), and a permutation is its form for the rest
// of the graph. The image is reordered only where it enters a chain. Pointwise ops, pooling, concatenation of channels
// and sums over all positions belong to a chain; other ops read the permutation.
//
// Programs that compute gradients of weights keep the plain form: their kernels read plain images, and each image would
// be kept in both forms.
//
// Convolutions add up in another order, so results differ by a few units in the last place of the largest term of a
// sum, relatively 1e-5 in float32. Outputs of the graph are row-major, as without the pass.
#include <map>

#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"
#include "tensor/device_table.h"
#include "tensor/ops/conv_rules.h"
#include "tensor/rule.h"

namespace pg {
namespace {

Dims numbers_of_dims(int rank) {
  Dims dims;
  for (int d = 0; d < rank; ++d) dims.push_back(d);
  return dims;
}

class Layouts {
 public:
  explicit Layouts(Graph graph) : rewrite_(std::move(graph)), reads_more_(rewrite_.size()) {
    const auto read = [&](const Operand& operand) {
      if (operand.is_node() && operand.output > 0) reads_more_[size_t(operand.node)] = true;
    };
    for (size_t i = 0; i < rewrite_.size(); ++i)
      for (const Operand& operand : rewrite_.old(i).inputs) read(operand);
    for (const Operand& operand : rewrite_.old_outputs()) read(operand);
  }

  Graph run() {
    for (size_t i = 0; i < rewrite_.size(); ++i) {
      Node node = rewrite_.take(i);
      line_ = node.line;
      const Operand last = in_chain(i, node);
      if (last.is_none()) {
        rewrite_.keep(i, rewrite_.append(std::move(node)));
        continue;
      }
      const Operand plain = permuted(last, false);
      rewrite_.replace(i, 0, plain);
      last_[plain.node] = last;
    }
    if (last_.empty()) return rewrite_.finish();
    Graph graph = rewrite_.finish();
    make_dense(graph);
    return without_dead_nodes(graph);
  }

 private:
  const Type& type(const Operand& operand) const { return rewrite_.graph().type(operand); }
  int rank(const Operand& operand) const { return type(operand).shape.size(); }

  Operand permuted(const Operand& x, bool last) {
    const Dims dims = numbers_of_dims(rank(x)), order = last ? channels_last(dims) : channels_first(dims);
    return rewrite_.emit<"permute">({x}, {{"dims", user_dims(order)}}, line_);
  }

  // Returns the form with the channels last that exists already, or none.
  Operand existing(const Operand& x) const {
    if (!x.is_node() || x.output != 0) return {};
    const auto at = last_.find(x.node);
    return at == last_.end() ? Operand() : at->second;
  }
  Operand with_channels_last(const Operand& x) {
    if (const Operand last = existing(x); !last.is_none()) return last;
    const Operand last = rewrite_.emit<"contiguous">({permuted(x, true)}, {}, line_);
    if (x.output == 0) last_[x.node] = last;
    return last;
  }

  // Returns the output of the node with the channels last, or none if the node does not belong to a chain.
  Operand in_chain(size_t i, const Node& node) {
    if (node.kind != NodeKind::kOp || node.inputs.size() == 0 || reads_more_[i]) return {};
    if (node.op->channels_last) return windowed(node);
    if (node.is<"cat">()) return joined(node);
    if (node.op->has(kPointwise) && !node.op->has(kRandom)) return pointwise(node);
    if (node.is<"mean", "sum", "amax", "amin">()) return reduced(node);
    return {};
  }

  // A convolution whose kernel pays on this form, or pooling within a chain.
  Operand windowed(const Node& node) {
    const Operand& x = node.inputs[0];
    const OpDef* op = node.op->channels_last(AttrReader(*node.op, node.attrs), rank(x));
    const bool is_conv = node.inputs.size() > 1;
    if (!op || (is_conv ? !pays(*op, node) : existing(x).is_none())) return {};
    Operands inputs(node.inputs);
    inputs[0] = with_channels_last(x);
    return rewrite_.emit(*op, inputs, node.attrs, line_);
  }

  bool pays(const OpDef& op, const Node& node) const {
    Type in = type(node.inputs[0]), out = node.types[0];
    in.shape = channels_last(in.shape), out.shape = channels_last(out.shape);
    SmallVector<Type, 4> types;
    for (const Operand& operand : node.inputs) types.push_back(operand.is_none() ? Type{} : type(operand));
    types[0] = in;
    const KernelRow row = kernel_row(op, out.device, std::span<const Type>(types.data(), types.size()));
    if (!row.fn || !row.pays) return false;
    SmallVector<View, 4> views;
    for (size_t i = 0; i < types.size(); ++i) {
      const bool absent = node.inputs[i].is_none();
      views.push_back(absent ? View{} : View{&types[i], nullptr, nullptr});
    }
    const View result{&out, nullptr, nullptr};
    auto no_allocation = [](int, const Dims&) -> View { return {}; };
    return row.pays(KernelArgs{op, {views.data(), views.size()}, {&result, 1}, node.attrs, no_allocation},
                    existing(node.inputs[0]).is_none());
  }

  // All operands must be numbers, have this form, have one element, or be one value per channel.
  Operand pointwise(const Node& node) {
    if (node.types.size() != 1) return {};
    const Dims& shape = node.types[0].shape;
    Operands inputs;
    bool chained = false;
    for (const Operand& x : node.inputs) {
      inputs.push_back(x);
      if (!x.is_node()) continue;
      if (const Operand last = existing(x); !last.is_none() && type(x).shape == shape)
        inputs.back() = last, chained = true;
      else if (numel(type(x).shape) != 1 && !is_per_channel(type(x).shape, shape))
        return {};
    }
    if (!chained) return {};
    for (Operand& x : inputs)
      if (x.is_node() && is_per_channel(type(x).shape, shape) && numel(type(x).shape) != 1)
        x = rewrite_.emit<"reshape_to">({x}, {{"shape", Ints{numel(type(x).shape)}}}, line_);
    return rewrite_.emit(*node.op, inputs, node.attrs, line_);
  }
  static bool is_per_channel(const Dims& shape, const Dims& image) {
    const int at = shape.size() - (image.size() - 1);  // of the channels
    if (image.size() < 2 || at < 0 || at > 1 || shape[at] != image[1]) return false;
    return numel(shape) == image[1];
  }

  // Channels joined.
  Operand joined(const Node& node) {
    const AttrReader c(*node.op, node.attrs);
    const int dims = node.types[0].shape.size();
    if (dims < 3 || c.dim("dim", dims) != 1) return {};
    Operands inputs;
    for (const Operand& x : node.inputs) {
      inputs.push_back(existing(x));
      if (inputs.back().is_none()) return {};
    }
    return rewrite_.emit(*node.op, inputs, make_attrs(*node.op, {{"dim", int64_t(dims)}}), line_);
  }

  // A sum or extreme of all positions that keeps their dims. A product might overflow in another order.
  Operand reduced(const Node& node) {
    const Operand last = existing(node.inputs[0]);
    if (last.is_none() || node.types.size() != 1 || node.inputs.size() != 1) return {};
    if (node.op->attr_index("dim") < 0 || node.op->attr_index("keepdim") < 0) return {};
    const AttrReader c(*node.op, node.attrs);
    const size_t at = size_t(node.op->attr_index("dim"));
    if (node.op->attrs[at].kind != AttrKind::kDims || !c.attr<bool>("keepdim")) return {};
    const int dims = rank(last);
    const Dims given = c.dims("dim", dims);
    Ints wanted, positions;
    for (int64_t d : given) wanted.push_back(d + 1);
    std::sort(wanted.begin(), wanted.end());
    for (int d = 3; d <= dims; ++d) positions.push_back(d);
    if (wanted != positions) return {};
    for (int64_t& d : positions) --d;
    Attrs attrs = node.attrs;
    attrs[at] = positions;
    return rewrite_.emit(*node.op, Operands{last}, std::move(attrs), line_);
  }

  // Copies outputs that are permutations of this pass.
  void make_dense(Graph& graph) const {
    std::map<int32_t, Operand> copies;
    for (Operand& output : graph.outputs) {
      if (output.output != 0 || !last_.contains(output.node) || !graph.node(output).is<"permute">()) continue;
      const auto [at, is_new] = copies.try_emplace(output.node);
      if (is_new) {
        graph.nodes.push_back(make_node(graph, op_named<"contiguous">(), Operands{output},
                                        make_attrs(op_named<"contiguous">(), {}), graph.node(output).line));
        at->second = Operand::of(graph.nodes.size() - 1);
      }
      output = at->second;
    }
  }

  Rewrite rewrite_;
  std::vector<char> reads_more_;     // by old node: something reads another output than the first
  std::map<int32_t, Operand> last_;  // by new node: its first output with the channels last
  int32_t line_ = -1;
};

}  // namespace

Graph choose_layouts(Graph graph) {
  const bool learns =
      std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const Node& node) { return node.is<"conv_by_weight">(); });
  return learns ? graph : Layouts(std::move(graph)).run();
}

}  // namespace pg
